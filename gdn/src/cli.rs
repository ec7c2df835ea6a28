//! The command line: global options and the list of commands.
//!
//! The arguments of a command, with their help text, are defined in the command's own file.

use std::path::PathBuf;

use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use goondan_protocol::ids::WorkspaceId;

use crate::commands;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::Output;

const ROOT_HELP: &str = "\
Start here:
  gdn init my-swarm     create a project that is ready to run
  cd my-swarm
  gdn run               start the daemon and this project
  gdn chat              talk to its agent

Then:
  gdn ps                show processes
  gdn logs -f           follow the logs
  gdn shutdown          stop everything; nothing is lost

`gdn help run` shows the help of a command. Every command accepts --json. Common exit codes:
0 success, 2 invalid command line, 3 no daemon runs, 6 invalid configuration.";

/// Run agents that survive crashes, and talk to them
#[derive(Debug, Parser)]
#[command(name = "gdn", version, after_help = ROOT_HELP, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// True if the user asked for JSON, with `--json` or a JSON `--format`.
    pub(crate) fn wants_json(&self) -> bool {
        let by_format = matches!(&self.command, Command::Validate(args) if args.wants_json());
        self.global.json || by_format
    }
}

/// Options of every command.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Directory for all run state and the daemon's socket [default: ~/.goondan]
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "GOONDAN_STATE_ROOT",
        hide_env_values = true
    )]
    pub(crate) state_root: Option<PathBuf>,
    /// Project directory [default: the nearest one, from here upwards, that contains goondan.yaml]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) project: Option<PathBuf>,
    /// Select the workspace by id, instead of by project
    #[arg(long, global = true, value_name = "ID", conflicts_with = "project")]
    pub(crate) workspace: Option<WorkspaceId>,
    /// Print JSON on stdout, and errors as JSON on stderr
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// When to use colors: auto, always or never; `NO_COLOR` is respected
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_possible_values = true
    )]
    pub(crate) color: Color,
}

impl Global {
    /// Builds the context that a command runs in.
    pub(crate) fn context(self, output: Output) -> Result<Context, Failure> {
        Context::new(
            output,
            self.state_root.as_deref(),
            self.project,
            self.workspace,
        )
    }
}

/// When to use colors.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal.
    Auto,
    /// Everywhere.
    Always,
    /// Nowhere.
    Never,
}

impl From<Color> for anstream::ColorChoice {
    fn from(color: Color) -> Self {
        match color {
            Color::Auto => Self::Auto,
            Color::Always => Self::Always,
            Color::Never => Self::Never,
        }
    }
}

/// Generates [`Command`] from the list below. Each line names a command, its argument type from a module of
/// `commands`, and the call that runs it. Help text is on the argument types.
macro_rules! commands {
    (
        $context:ident;
        $($(#[$attribute:meta])* $name:ident($args:tt: $module:ident::$type:ident) => $call:expr,)*
    ) => {
        #[derive(Debug, Subcommand)]
        pub(crate) enum Command {
            $($(#[$attribute])* $name(commands::$module::$type),)*
        }

        impl Command {
            pub(crate) async fn run(self, $context: &Context) -> Result<(), Failure> {
                match self {
                    $(Self::$name($args) => $call,)*
                }
            }
        }
    };
}

commands! {
    context;
    Init(args: init::InitArgs) => commands::init::run(&args, context).await,
    Run(args: run::RunArgs) => commands::run::run(&args, context).await,
    Send(args: send::SendArgs) => commands::send::run(args, context).await,
    Chat(args: chat::ChatArgs) => commands::chat::run(args, context).await,
    Cancel(args: cancel::CancelArgs) => commands::cancel::run(args, context).await,
    Rewind(args: rewind::RewindArgs) => commands::rewind::run(args, context).await,
    Ps(args: ps::PsArgs) => commands::ps::run(&args, context).await,
    Status(_: status::StatusArgs) => commands::status::run(context).await,
    Doctor(args: doctor::DoctorArgs) => commands::doctor::run(&args, context).await,
    #[command(subcommand)]
    Service(args: service::ServiceCommand) => commands::service::run(args, context).await,
    Upgrade(args: upgrade::UpgradeArgs) => commands::upgrade::run(&args, context).await,
    #[command(subcommand)]
    Instance(args: instance::InstanceCommand) => commands::instance::run(args, context).await,
    Verify(args: verify::VerifyArgs) => commands::verify::run(args, context).await,
    #[command(subcommand)]
    Event(args: event::EventCommand) => commands::event::run(args, context).await,
    #[command(subcommand)]
    Question(args: question::QuestionCommand) => commands::question::run(args, context).await,
    Approvals(args: approval::ApprovalsArgs) => commands::approval::list(args, context).await,
    Approve(args: approval::ApproveArgs) => commands::approval::approve(args, context).await,
    Deny(args: approval::DenyArgs) => commands::approval::deny(args, context).await,
    Calls(args: unknown_call::CallsArgs) => commands::unknown_call::list(args, context).await,
    Settle(args: unknown_call::SettleArgs) => commands::unknown_call::settle(args, context).await,
    #[command(subcommand)]
    Schedule(args: schedule::ScheduleCommand) => commands::schedule::run(args, context).await,
    #[command(subcommand)]
    Sandbox(args: sandbox::SandboxCommand) => commands::sandbox::run(args, context).await,
    #[command(subcommand)]
    Proposal(args: proposal::ProposalCommand) => commands::proposal::run(args, context).await,
    #[command(subcommand)]
    Bundle(args: bundle::BundleCommand) => commands::bundle::run(args, context).await,
    #[command(subcommand)]
    Task(args: task::TaskCommand) => commands::task::run(args, context).await,
    #[command(subcommand)]
    Secret(args: secret::SecretCommand) => commands::secret::run(args, context).await,
    #[command(subcommand)]
    Permission(args: permission::PermissionCommand) => commands::permission::run(args, context).await,
    #[command(subcommand, name = "oauth")]
    OAuth(args: oauth::OAuthCommand) => commands::oauth::run(args, context).await,
    #[command(subcommand)]
    Package(args: package::PackageCommand) => commands::package::run(args, context).await,
    #[command(subcommand)]
    Workspace(args: workspace::WorkspaceCommand) => commands::workspace::run(&args, context).await,
    #[command(subcommand)]
    Node(args: node::NodeCommand) => commands::node::run(&args, context).await,
    Logs(args: logs::LogsArgs) => commands::logs::run(args, context).await,
    Top(args: top::TopArgs) => commands::top::run(&args, context).await,
    Watch(args: watch::WatchArgs) => commands::watch::run(args, context).await,
    Trace(args: trace::TraceArgs) => commands::trace::run(args, context).await,
    Usage(args: usage::UsageArgs) => commands::usage::run(&args, context).await,
    Metrics(args: metrics::MetricsArgs) => commands::metrics::run(&args, context).await,
    Studio(args: studio::StudioArgs) => commands::studio::run(&args, context),
    Audit(args: audit::AuditArgs) => commands::audit::run(&args, context).await,
    Restart(args: restart::RestartArgs) => commands::restart::run(args, context).await,
    Reload(args: reload::ReloadArgs) => commands::reload::run(&args, context).await,
    Stop(_: stop::StopArgs) => commands::stop::run(context).await,
    Forget(args: forget::ForgetArgs) => commands::forget::run(&args, context).await,
    Shutdown(args: shutdown::ShutdownArgs) => commands::shutdown::run(&args, context).await,
    Validate(args: validate::ValidateArgs) => commands::validate::run(&args, context),
    Migrate(args: migrate::MigrateArgs) => commands::migrate::run(&args, context),
    Schema(args: schema::SchemaArgs) => commands::schema::run(&args, context),
    Types(args: types::TypesArgs) => commands::types::run(&args, context),
    #[command(subcommand)]
    Config(args: config::ConfigCommand) => commands::config::run(&args, context),
    Completions(args: completions::CompletionsArgs) =>
        commands::completions::run(&args, &mut Cli::command(), context),
    Man(args: man::ManArgs) => commands::man::run(&args, Cli::command(), context),
    Demo(args: demo::DemoArgs) => commands::demo::run(args, context).await,
}

impl Command {
    /// True for commands that only show events until the user interrupts them.
    pub(crate) fn follows(&self) -> bool {
        match self {
            Self::Watch(_) => true,
            Self::Ps(args) => args.watch,
            Self::Logs(args) => args.follow,
            Self::Task(commands::task::TaskCommand::Logs(args)) => args.follow,
            _ => false,
        }
    }
}
