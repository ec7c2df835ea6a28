//! The command line: every command and option, with the help that teaches them.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use goondan_protocol::ids::WorkspaceId;

use crate::commands;

const ROOT_HELP: &str = "\
Begin here:
  gdn init my-swarm     make a project that runs at once
  cd my-swarm
  gdn run               start the daemon and this project
  gdn chat              talk to its agent

Then:
  gdn ps                what runs
  gdn logs -f           what happens
  gdn shutdown          stop everything; nothing is lost

Every command explains itself: `gdn help run`. Every command takes --json, and its exit code tells
what came of it: 0 done, 2 wrong command line, 3 no daemon runs, 6 invalid configuration.";

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
    /// Whether the person asked for JSON, in either way there is.
    pub(crate) fn wants_json(&self) -> bool {
        let by_format = matches!(
            &self.command,
            Command::Validate(commands::validate::Validate {
                format: commands::validate::ValidateFormat::Json,
                ..
            })
        );
        self.global.json || by_format
    }
}

/// Options of every command.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Directory of all run state and of the daemon's socket [default: ~/.goondan]
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "GOONDAN_STATE_ROOT",
        hide_env_values = true
    )]
    pub(crate) state_root: Option<PathBuf>,
    /// Project directory [default: the nearest one, from here upwards, that holds goondan.yaml]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) project: Option<PathBuf>,
    /// Workspace by its id, instead of by its project
    #[arg(long, global = true, value_name = "ID", conflicts_with = "project")]
    pub(crate) workspace: Option<WorkspaceId>,
    /// Print JSON on stdout, and errors as JSON on stderr
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// When to use colours: auto, always or never; `NO_COLOR` is respected
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_possible_values = true
    )]
    pub(crate) color: Color,
}

/// When to use colours.
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

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a new project that runs at once
    #[command(after_help = "\
Examples:
  gdn init my-swarm       make ./my-swarm and what a project needs
  gdn init team --template multi-agent
  gdn init                the same in this directory
  gdn init --no-git .     without a git repository")]
    Init(commands::init::Init),
    /// Start the daemon if none runs, and this project's workspace
    #[command(after_help = "\
Examples:
  gdn run                 the project here, with the daemon in the background
  gdn run my-swarm
  gdn run --foreground    the daemon in this terminal, its log on stdout; Ctrl-C stops it
  gdn run --watch         and restart what an edit of the project affects
  gdn run --env-file prod.env

The workspace stays registered: the next start of the daemon starts it too, until `gdn stop`.")]
    Run(commands::run::Run),
    /// Send a message to an agent and print its answer
    #[command(after_help = "\
Examples:
  gdn send \"How many copies of Dune were sold?\"
  gdn send --agent clerk --instance order-17 \"Where is it?\"
  git diff | gdn send -                  the message from stdin
  gdn send --no-wait \"Tidy up\"           print the event's id and go on
  gdn send --event-id ID \"…\"             the same id again: never a second turn, the same answer

What was accepted is answered, even if gdn, the agent or the daemon is killed meanwhile.")]
    Send(commands::send::Send),
    /// Talk to an agent, line by line
    #[command(after_help = "\
Examples:
  gdn chat
  gdn chat --agent clerk --instance order-17
  gdn chat < questions.txt               one answer for each line

In the chat: /history shows the conversation, /help the commands, /quit or Ctrl-D ends.
If the daemon restarts, the chat reconnects and the question in progress is asked again under the
same id, so that it is answered once.")]
    Chat(commands::chat::Chat),
    /// Show the processes and their states
    #[command(after_help = "\
Examples:
  gdn ps                  this project's agents and connectors
  gdn ps --all            those of every workspace
  gdn ps --watch          go on, as they change
  gdn ps --json | jq '.processes[] | select(.state == \"crashLoopBackOff\")'")]
    Ps(commands::ps::Ps),
    /// Show the daemon and its workspaces
    #[command(after_help = "\
Examples:
  gdn status
  gdn status --json | jq .pid

Exit code 16 says that something does not run as it should, 3 that no daemon runs.")]
    Status,
    /// List, show, prune and delete conversations
    #[command(subcommand)]
    Instance(commands::instance::Instance),
    /// Check that every file is as it was written
    #[command(after_help = "\
Examples:
  gdn verify                        this project's conversations
  gdn verify --instance order-17
  gdn verify --repair               set damage aside; nothing is deleted
  gdn verify --all --json | jq '.findings[] | select(.severity == \"error\")'

Exit code 15 says that something that was written cannot be read.")]
    Verify(commands::verify::Verify),
    /// List what waits for an agent, and decide about what was parked
    #[command(subcommand)]
    Event(commands::event::Event),
    /// List, show and answer what tools ask a person
    #[command(subcommand)]
    Question(commands::question::Question),
    /// Keep values that nobody is to see: keys, tokens, passwords
    #[command(subcommand)]
    Secret(commands::secret::Secret),
    /// List and close workspaces
    #[command(subcommand)]
    Workspace(commands::workspace::Workspace),
    /// Show what the daemon, the agents and the connectors log
    #[command(after_help = "\
Examples:
  gdn logs -f                            this project, as it happens
  gdn logs -n 200 --agent clerk
  gdn logs --since 2h --level warn       what went wrong lately
  gdn logs --trace 4bf92f3577b34da6a3ce929d0e0e4736
  gdn logs --all --json | jq 'select(.level == \"error\")'")]
    Logs(commands::logs::Logs),
    /// Show what followed from one event, across agents, and how long it took
    #[command(after_help = "\
Examples:
  gdn trace                              of the turn that began last
  gdn trace 4bf92f3577b34da6a3ce929d0e0e4736
  gdn trace EVENT                        the id that `gdn send --no-wait` printed, or a turn's
  gdn trace last --json | jq '.spans[] | select(.standing == \"failed\")'")]
    Trace(commands::trace::TraceArgs),
    /// Show what replies of models took: tokens and money
    #[command(after_help = "\
Examples:
  gdn usage                              by agent
  gdn usage --by day --since 7d          of each of the last seven days
  gdn usage --by instance --since 2026-01-31
  gdn usage --by model --all --json | jq '.total.costMicroUsd'")]
    Usage(commands::usage::UsageArgs),
    /// Show who came and went: conversations made, restarted, deleted, and what people decided
    #[command(after_help = "\
Examples:
  gdn audit                              this project's latest records
  gdn audit --lines 1000
  gdn audit --all --json | jq '.records[] | select(.record.event == \"instance.deleted\")'")]
    Audit(commands::audit::Audit),
    /// Restart processes after the turns in progress
    #[command(after_help = "\
Examples:
  gdn restart                            every process of this project
  gdn restart --agent clerk              only this agent's, with its edited configuration
  gdn restart --agent clerk --fresh      and forget its conversations")]
    Restart(commands::restart::Restart),
    /// Read this project's configuration again, and restart what changed after the turns in progress
    #[command(after_help = "\
Examples:
  gdn reload                             this project's
  gdn reload --all                       every workspace's
  gdn reload --json | jq '.workspaces[] | select(.problem)'

A configuration that is not valid changes nothing: what ran goes on. SIGHUP reads those of all workspaces.")]
    Reload(commands::reload::ReloadArgs),
    /// Stop this project's workspace; its conversations stay
    #[command(after_help = "\
Examples:
  gdn stop
  gdn stop --project ~/my-swarm

`gdn run` starts it again, where it left off.")]
    Stop,
    /// Forget this project: stop it, and let it use no secret any more; its conversations stay
    #[command(after_help = "\
Examples:
  gdn forget
  gdn forget --delete                    its conversations go, too
  gdn forget --workspace home_me_swarm__swarm   one whose project is gone

It needs the daemon, and starts it if none runs.")]
    Forget(commands::forget::Forget),
    /// Stop the daemon and every process, and wait until they are gone
    #[command(after_help = "\
Examples:
  gdn shutdown                           after the turns in progress
  gdn shutdown --grace 5                 give them 5 seconds

What was accepted and not answered is answered after the next `gdn run`.")]
    Shutdown(commands::shutdown::Shutdown),
    /// Check a project's configuration, without the daemon
    #[command(after_help = "\
Examples:
  gdn validate
  gdn validate my-swarm
  gdn validate --fix                     mend misspelt fields and missing quotes
  gdn validate --strict --format github  in a workflow
  gdn validate --json | jq '.agents[]'")]
    Validate(commands::validate::Validate),
    /// Print the JSON Schema of a project's documents, for editors
    #[command(after_help = "\
Examples:
  gdn schema > goondan.schema.json       and write before the first field of each document:
                                         # yaml-language-server: $schema=goondan.schema.json
  gdn schema Agent
  gdn schema Script                      a script file of the scripted model")]
    Schema(commands::schema::Schema),
    /// Look at a project's configuration
    #[command(subcommand)]
    Config(commands::config::Config),
    /// Print a completion script for a shell
    #[command(after_help = "\
Examples:
  gdn completions bash > ~/.local/share/bash-completion/completions/gdn
  gdn completions zsh > ~/.zfunc/_gdn
  gdn completions fish > ~/.config/fish/completions/gdn.fish")]
    Completions(commands::completions::Completions),
    /// Try an example in a state root of its own that is removed afterwards
    #[command(after_help = "\
Examples:
  gdn demo my-swarm --ask \"run date\"
  gdn demo --ask \"Hello\" --keep           keep the state, to look at its files

It starts a daemon, opens the project, asks, shows each step, and stops the daemon again.
A daemon that runs already is not touched.")]
    Demo(commands::demo::Demo),
}
