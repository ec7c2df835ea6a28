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
use crate::project::PROJECT_FILE;
use crate::remotes::{self, RemoteChoice};

const ROOT_HELP: &str = "\
Examples:
  gdn                   what runs, what needs you, and the next command
  gdn help run          the help of a command";

/// Run agents that survive crashes, and talk to them
#[derive(Debug, Parser)]
#[command(name = "gdn", version, after_help = ROOT_HELP, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    /// None for `gdn` alone, which gives an overview.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

impl Cli {
    /// True if the user asked for JSON, with `--json` or a JSON `--format`.
    pub(crate) fn wants_json(&self) -> bool {
        let by_format = matches!(&self.command, Some(Command::Validate(args)) if args.wants_json());
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
    /// Daemon of another machine, over OpenSSH: `ssh://[user@]host[:port][/state-root]`; `local` is this machine [env:
    /// `GOONDAN_REMOTE`]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) remote: Option<RemoteChoice>,
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
    /// Print no notes and no progress, only data and errors
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    /// Print more, such as ids in `gdn logs`
    #[arg(long, short, global = true, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
    /// Like `--color never`
    #[arg(long, global = true, hide = true)]
    pub(crate) no_color: bool,
    /// Like `--project`, with the path of its goondan.yaml
    #[arg(
        long,
        short,
        global = true,
        hide = true,
        value_name = "FILE",
        conflicts_with_all = ["project", "workspace"]
    )]
    pub(crate) config: Option<PathBuf>,
}

impl Global {
    /// Output streams of the command.
    pub(crate) fn output(&self, json: bool) -> Output {
        let color = match self.no_color {
            true => Color::Never,
            false => self.color,
        };
        Output::new(json, color.into()).with_notes(!self.quiet, self.verbose)
    }

    /// Builds the context that a command runs in.
    pub(crate) fn context(self, output: Output) -> Result<Context, Failure> {
        let project = self.project.or_else(|| self.config.map(project_of));
        let is_this_machine = self.remote == Some(RemoteChoice::ThisMachine);
        let remote = remotes::select(self.remote, self.state_root.as_deref())?;
        let state_root = self.state_root.as_deref();
        let context = Context::new(output, state_root, project, self.workspace, remote)?;
        match is_this_machine {
            true => Ok(context.of_this_machine()),
            false => Ok(context),
        }
    }
}

/// The project of a configuration file; a directory is the project itself.
fn project_of(config: PathBuf) -> PathBuf {
    if !config.ends_with(PROJECT_FILE) {
        return config;
    }
    match config.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir.to_owned(),
        _ => PathBuf::from("."),
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

/// Generates an enum of commands from the list below. Each line names a command, its argument type, and the call that
/// runs it. Help text is on the argument types.
macro_rules! commands {
    (
        $(#[$of:meta])*
        $enum:ident, $context:ident;
        $($(#[$attribute:meta])* $name:ident($args:tt: $type:ty) => $call:expr,)*
    ) => {
        $(#[$of])*
        #[derive(Debug, Subcommand)]
        pub(crate) enum $enum {
            $($(#[$attribute])* $name($type),)*
        }

        impl $enum {
            pub(crate) async fn run(self, $context: &Context) -> Result<(), Failure> {
                match self {
                    $(Self::$name($args) => $call,)*
                }
            }
        }
    };
}

commands! {
    Command, context;
    Init(args: commands::init::InitArgs) => commands::init::run(&args, context).await,
    Run(args: commands::run::RunArgs) => commands::run::run(&args, context).await,
    Stop(_: commands::stop::StopArgs) => commands::stop::run(context).await,
    Restart(args: commands::restart::RestartArgs) => commands::restart::run(args, context).await,
    Validate(args: commands::validate::ValidateArgs) => commands::validate::run(&args, context),
    #[command(subcommand)]
    Config(args: commands::config::ConfigCommand) => commands::config::run(&args, context).await,
    #[command(subcommand)]
    Package(args: commands::package::PackageCommand) => commands::package::run(args, context).await,
    #[command(subcommand)]
    Secret(args: commands::secret::SecretCommand) => commands::secret::run(args, context).await,
    Chat(args: commands::chat::ChatArgs) => commands::chat::run(args, context).await,
    Send(args: commands::send::SendArgs) => commands::send::run(args, context).await,
    #[command(subcommand)]
    Task(args: commands::task::TaskCommand) => commands::task::run(args, context).await,
    Inbox(args: commands::inbox::InboxArgs) => commands::inbox::run(args, context).await,
    #[command(subcommand)]
    Proposal(args: commands::proposal::ProposalCommand) => commands::proposal::run(args, context).await,
    Ps(args: commands::ps::PsArgs) => commands::ps::run(&args, context).await,
    Top(args: commands::top::TopArgs) => commands::top::run(&args, context).await,
    Logs(args: commands::logs::LogsArgs) => commands::logs::run(args, context).await,
    Usage(args: commands::usage::UsageArgs) => commands::usage::run(&args, context).await,
    Studio(args: commands::studio::StudioArgs) => commands::studio::run(&args, context),
    #[command(subcommand)]
    Incident(args: commands::incident::IncidentCommand) => commands::incident::run(args, context).await,
    #[command(subcommand)]
    Conversation(args: commands::instance::InstanceCommand) => commands::instance::run(args, context).await,
    #[command(subcommand)]
    Event(args: commands::event::EventCommand) => commands::event::run(args, context).await,
    #[command(subcommand)]
    Workspace(args: commands::workspace::WorkspaceCommand) => commands::workspace::run(args, context).await,
    #[command(subcommand)]
    Daemon(args: DaemonCommand) => args.run(context).await,
    Doctor(args: commands::doctor::DoctorArgs) => commands::doctor::run(&args, context).await,
    Demo(args: commands::demo::DemoArgs) => commands::demo::run(args, context).await,
    #[command(hide = true)]
    Completions(args: commands::completions::CompletionsArgs) =>
        commands::completions::run(&args, &mut Cli::command(), context),
    #[command(hide = true)]
    Man(args: commands::man::ManArgs) => commands::man::run(&args, Cli::command(), context),
}

commands! {
    /// Check, stop, upgrade and install the daemon
    DaemonCommand, context;
    Status(args: commands::status::StatusArgs) => commands::status::run(&args, context).await,
    Shutdown(args: commands::shutdown::ShutdownArgs) => commands::shutdown::run(&args, context).await,
    Upgrade(args: commands::upgrade::UpgradeArgs) => commands::upgrade::run(&args, context).await,
    #[command(subcommand)]
    Service(args: commands::service::ServiceCommand) => commands::service::run(args, context).await,
    #[command(subcommand)]
    Backup(args: commands::backup::BackupCommand) => commands::backup::run(args, context).await,
    #[command(subcommand)]
    Node(args: commands::node::NodeCommand) => commands::node::run(&args, context).await,
    Gc(args: commands::gc::GcArgs) => commands::gc::run(&args, context).await,
    Verify(args: commands::verify::VerifyArgs) => commands::verify::run(args, context).await,
    Audit(args: commands::audit::AuditArgs) => commands::audit::run(&args, context).await,
    Metrics(args: commands::metrics::MetricsArgs) => commands::metrics::run(&args, context).await,
    #[command(subcommand)]
    Remote(args: commands::remote::RemoteCommand) => commands::remote::run(args, context),
    #[command(hide = true)]
    DialStdio(_: commands::dial_stdio::DialStdioArgs) => commands::dial_stdio::run(context).await,
}

/// The machine that a command is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Only the daemon, on any machine.
    Daemon,
    /// This machine: it starts, checks or changes its daemon, or reads the daemon's files.
    ThisMachine(&'static str),
    /// Files of this machine, without a daemon.
    Files(&'static str),
}

impl Command {
    /// The machine that the command is about. Every new command must decide.
    pub(crate) fn reach(&self) -> Reach {
        use commands::config::ConfigCommand;
        use commands::incident::IncidentCommand;
        use commands::permission::PermissionCommand;
        use commands::task::TaskCommand;
        use commands::workspace::WorkspaceCommand;
        match self {
            Self::Init(_) => Reach::Files("init"),
            Self::Validate(_) => Reach::Files("validate"),
            Self::Package(_) => Reach::Files("package"),
            Self::Demo(_) => Reach::Files("demo"),
            Self::Completions(_) => Reach::Files("completions"),
            Self::Man(_) => Reach::Files("man"),
            Self::Run(_) => Reach::ThisMachine("run"),
            Self::Doctor(_) => Reach::ThisMachine("doctor"),
            Self::Config(command) => match command {
                ConfigCommand::Reload(_) => Reach::Daemon,
                ConfigCommand::Show(_) => Reach::Files("config show"),
                ConfigCommand::Expand(_) => Reach::Files("config expand"),
                ConfigCommand::Migrate(_) => Reach::Files("config migrate"),
                ConfigCommand::Import(_) => Reach::Files("config import"),
                ConfigCommand::Schema(_) => Reach::Files("config schema"),
                ConfigCommand::Types(_) => Reach::Files("config types"),
            },
            Self::Incident(command) => match command {
                // It checks the file for every secret of the daemon.
                IncidentCommand::Export(_) => Reach::ThisMachine("incident export"),
                IncidentCommand::Replay(_) => Reach::Files("incident replay"),
                IncidentCommand::Test(_) => Reach::Files("incident test"),
            },
            Self::Task(TaskCommand::Import(_)) => Reach::ThisMachine("task import"),
            Self::Workspace(command) => match command {
                WorkspaceCommand::Forget(_) => Reach::ThisMachine("workspace forget"),
                // They read the project.
                WorkspaceCommand::Permission(PermissionCommand::Allow(_)) => {
                    Reach::ThisMachine("workspace permission allow")
                }
                WorkspaceCommand::Permission(PermissionCommand::Deny(_)) => {
                    Reach::ThisMachine("workspace permission deny")
                }
                WorkspaceCommand::Permission(PermissionCommand::List)
                | WorkspaceCommand::List
                | WorkspaceCommand::Close
                | WorkspaceCommand::Watch(_) => Reach::Daemon,
            },
            Self::Daemon(command) => command.reach(),
            Self::Stop(_)
            | Self::Restart(_)
            | Self::Secret(_)
            | Self::Chat(_)
            | Self::Send(_)
            | Self::Task(_)
            | Self::Inbox(_)
            | Self::Proposal(_)
            | Self::Ps(_)
            | Self::Top(_)
            | Self::Logs(_)
            | Self::Usage(_)
            | Self::Studio(_)
            | Self::Conversation(_)
            | Self::Event(_) => Reach::Daemon,
        }
    }

    /// True for commands that only show events until the user interrupts them.
    pub(crate) fn follows(&self) -> bool {
        match self {
            Self::Workspace(commands::workspace::WorkspaceCommand::Watch(_)) => true,
            Self::Ps(args) => args.watch,
            Self::Logs(args) => args.follow,
            Self::Task(commands::task::TaskCommand::Logs(args)) => args.follow,
            _ => false,
        }
    }
}

impl DaemonCommand {
    fn reach(&self) -> Reach {
        use commands::backup::BackupCommand;
        use commands::node::NodeCommand;
        match self {
            Self::Backup(command) => match command {
                BackupCommand::Create(_) => Reach::ThisMachine("daemon backup create"),
                BackupCommand::List(_) => Reach::Files("daemon backup list"),
                BackupCommand::Verify(_) => Reach::Files("daemon backup verify"),
                BackupCommand::Restore(_) => Reach::ThisMachine("daemon backup restore"),
                BackupCommand::Resume => Reach::Daemon,
                BackupCommand::Prune(_) => Reach::Files("daemon backup prune"),
                BackupCommand::Identity(_) => Reach::Files("daemon backup identity"),
            },
            Self::Upgrade(_) => Reach::ThisMachine("daemon upgrade"),
            Self::Verify(args) if args.is_offline() => {
                Reach::ThisMachine("daemon verify --offline")
            }
            Self::Service(_) => Reach::ThisMachine("daemon service"),
            // A remote of its user must not redirect it.
            Self::DialStdio(_) => Reach::Files("daemon dial-stdio"),
            // It checks the files that the daemon has left.
            Self::Node(NodeCommand::Leave(_)) => Reach::ThisMachine("daemon node leave"),
            Self::Node(_)
            | Self::Status(_)
            | Self::Shutdown(_)
            | Self::Gc(_)
            | Self::Verify(_)
            | Self::Audit(_)
            | Self::Metrics(_)
            | Self::Remote(_) => Reach::Daemon,
        }
    }
}
