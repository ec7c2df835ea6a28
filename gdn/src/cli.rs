//! The command line: every command and option, with the help that teaches them.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use goondan_protocol::ids::{AgentName, EventId, InstanceKey, WorkspaceId};

mod event;
mod forget;
mod logs;
mod question;
mod secret;
mod usage;
mod workspace;

pub(crate) use event::{Event, EventDrop, EventList, EventRetry};
pub(crate) use forget::Forget;
pub(crate) use logs::Logs;
pub(crate) use question::{Question, QuestionAnswer, QuestionDecline, QuestionList, QuestionShow};
pub(crate) use secret::{Secret, SecretAllow, SecretDeny, SecretRemove, SecretSet};
pub(crate) use usage::UsageArgs;
pub(crate) use workspace::Workspace;

/// Records `gdn audit` shows when no number is given.
const DEFAULT_AUDIT_RECORDS: usize = 50;

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
            Command::Validate(Validate {
                format: ValidateFormat::Json,
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
    Init(Init),
    /// Start the daemon if none runs, and this project's workspace
    #[command(after_help = "\
Examples:
  gdn run                 the project here, with the daemon in the background
  gdn run my-swarm
  gdn run --foreground    the daemon in this terminal, its log on stdout; Ctrl-C stops it
  gdn run --watch         and restart what an edit of the project affects
  gdn run --env-file prod.env

The workspace stays registered: the next start of the daemon starts it too, until `gdn stop`.")]
    Run(Run),
    /// Send a message to an agent and print its answer
    #[command(after_help = "\
Examples:
  gdn send \"How many copies of Dune were sold?\"
  gdn send --agent clerk --instance order-17 \"Where is it?\"
  git diff | gdn send -                  the message from stdin
  gdn send --no-wait \"Tidy up\"           print the event's id and go on
  gdn send --event-id ID \"…\"             the same id again: never a second turn, the same answer

What was accepted is answered, even if gdn, the agent or the daemon is killed meanwhile.")]
    Send(Send),
    /// Talk to an agent, line by line
    #[command(after_help = "\
Examples:
  gdn chat
  gdn chat --agent clerk --instance order-17
  gdn chat < questions.txt               one answer for each line

In the chat: /history shows the conversation, /help the commands, /quit or Ctrl-D ends.
If the daemon restarts, the chat reconnects and the question in progress is asked again under the
same id, so that it is answered once.")]
    Chat(Chat),
    /// Show the processes and their states
    #[command(after_help = "\
Examples:
  gdn ps                  this project's agents and connectors
  gdn ps --all            those of every workspace
  gdn ps --watch          go on, as they change
  gdn ps --json | jq '.processes[] | select(.state == \"crashLoopBackOff\")'")]
    Ps(Ps),
    /// Show the daemon and its workspaces
    #[command(after_help = "\
Examples:
  gdn status
  gdn status --json | jq .pid

Exit code 16 says that something does not run as it should, 3 that no daemon runs.")]
    Status,
    /// List, show, prune and delete conversations
    #[command(subcommand)]
    Instance(Instance),
    /// Check that every file is as it was written
    #[command(after_help = "\
Examples:
  gdn verify                        this project's conversations
  gdn verify --instance order-17
  gdn verify --repair               set damage aside; nothing is deleted
  gdn verify --all --json | jq '.findings[] | select(.severity == \"error\")'

Exit code 15 says that something that was written cannot be read.")]
    Verify(Verify),
    /// List what waits for an agent, and decide about what was parked
    #[command(subcommand)]
    Event(Event),
    /// List, show and answer what tools ask a person
    #[command(subcommand)]
    Question(Question),
    /// Keep values that nobody is to see: keys, tokens, passwords
    #[command(subcommand)]
    Secret(Secret),
    /// List and close workspaces
    #[command(subcommand)]
    Workspace(Workspace),
    /// Show what the daemon, the agents and the connectors log
    #[command(after_help = "\
Examples:
  gdn logs -f                            this project, as it happens
  gdn logs -n 200 --agent clerk
  gdn logs --since 2h --level warn       what went wrong lately
  gdn logs --trace 4bf92f3577b34da6a3ce929d0e0e4736
  gdn logs --all --json | jq 'select(.level == \"error\")'")]
    Logs(Logs),
    /// Show what followed from one event, across agents, and how long it took
    #[command(after_help = "\
Examples:
  gdn trace                              of the turn that began last
  gdn trace 4bf92f3577b34da6a3ce929d0e0e4736
  gdn trace EVENT                        the id that `gdn send --no-wait` printed, or a turn's
  gdn trace last --json | jq '.spans[] | select(.standing == \"failed\")'")]
    Trace(TraceArgs),
    /// Show what replies of models took: tokens and money
    #[command(after_help = "\
Examples:
  gdn usage                              by agent
  gdn usage --by day --since 7d          of each of the last seven days
  gdn usage --by instance --since 2026-01-31
  gdn usage --by model --all --json | jq '.total.costMicroUsd'")]
    Usage(UsageArgs),
    /// Show who came and went: conversations made, restarted, deleted, and what people decided
    #[command(after_help = "\
Examples:
  gdn audit                              this project's latest records
  gdn audit --lines 1000
  gdn audit --all --json | jq '.records[] | select(.record.event == \"instance.deleted\")'")]
    Audit(Audit),
    /// Restart processes after the turns in progress
    #[command(after_help = "\
Examples:
  gdn restart                            every process of this project
  gdn restart --agent clerk              only this agent's, with its edited configuration
  gdn restart --agent clerk --fresh      and forget its conversations")]
    Restart(Restart),
    /// Read this project's configuration again, and restart what changed after the turns in progress
    #[command(after_help = "\
Examples:
  gdn reload                             this project's
  gdn reload --all                       every workspace's
  gdn reload --json | jq '.workspaces[] | select(.problem)'

A configuration that is not valid changes nothing: what ran goes on. SIGHUP reads those of all workspaces.")]
    Reload(Reload),
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
    Forget(Forget),
    /// Stop the daemon and every process, and wait until they are gone
    #[command(after_help = "\
Examples:
  gdn shutdown                           after the turns in progress
  gdn shutdown --grace 5                 give them 5 seconds

What was accepted and not answered is answered after the next `gdn run`.")]
    Shutdown(Shutdown),
    /// Check a project's configuration, without the daemon
    #[command(after_help = "\
Examples:
  gdn validate
  gdn validate my-swarm
  gdn validate --fix                     mend misspelt fields and missing quotes
  gdn validate --strict --format github  in a workflow
  gdn validate --json | jq '.agents[]'")]
    Validate(Validate),
    /// Print the JSON Schema of a project's documents, for editors
    #[command(after_help = "\
Examples:
  gdn schema > goondan.schema.json       and write before the first field of each document:
                                         # yaml-language-server: $schema=goondan.schema.json
  gdn schema Agent
  gdn schema Script                      a script file of the scripted model")]
    Schema(Schema),
    /// Look at a project's configuration
    #[command(subcommand)]
    Config(Config),
    /// Print a completion script for a shell
    #[command(after_help = "\
Examples:
  gdn completions bash > ~/.local/share/bash-completion/completions/gdn
  gdn completions zsh > ~/.zfunc/_gdn
  gdn completions fish > ~/.config/fish/completions/gdn.fish")]
    Completions(Completions),
    /// Try an example in a state root of its own that is removed afterwards
    #[command(after_help = "\
Examples:
  gdn demo my-swarm --ask \"run date\"
  gdn demo --ask \"Hello\" --keep           keep the state, to look at its files

It starts a daemon, opens the project, asks, shows each step, and stops the daemon again.
A daemon that runs already is not touched.")]
    Demo(Demo),
}

#[derive(Debug, Args)]
pub(crate) struct Init {
    /// Where to make the project
    #[arg(value_name = "PATH", default_value = ".")]
    pub(crate) path: PathBuf,
    /// What to begin with: default, multi-agent, package or minimal
    #[arg(
        long,
        value_name = "NAME",
        default_value = "default",
        hide_possible_values = true
    )]
    pub(crate) template: Template,
    /// Make no git repository
    #[arg(long)]
    pub(crate) no_git: bool,
    /// Overwrite files that are there
    #[arg(long)]
    pub(crate) force: bool,
}

/// What a new project begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Template {
    /// One agent with tools.
    Default,
    /// Three agents, and a webhook that says which one.
    MultiAgent,
    /// Tools for other projects, and an agent to try them with.
    Package,
    /// One file, one agent.
    Minimal,
    /// One agent with tools and a model of Anthropic, which needs a key.
    Assistant,
}

impl Template {
    /// The name people write, and the directory its files are in.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::MultiAgent => "multi-agent",
            Self::Package => "package",
            Self::Minimal => "minimal",
            Self::Assistant => "assistant",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The project
    #[arg(value_name = "PATH", conflicts_with_all = ["project", "workspace"])]
    pub(crate) path: Option<PathBuf>,
    /// Be the daemon, in this terminal
    #[arg(long)]
    pub(crate) foreground: bool,
    /// Restart what an edit of the project's files affects, from now on
    #[arg(long, overrides_with = "no_watch")]
    pub(crate) watch: bool,
    /// Watch the project's files no longer
    #[arg(long, overrides_with = "watch")]
    pub(crate) no_watch: bool,
    #[command(flatten)]
    pub(crate) env: EnvFiles,
    /// Take the workspace's environment variables from no named files any more
    #[arg(long, conflicts_with = "env_file")]
    pub(crate) no_env_file: bool,
    /// Run no last known good configuration in place of an invalid one: stop it if it runs
    #[arg(long)]
    pub(crate) strict: bool,
}

/// Environment files beside the project's own.
#[derive(Debug, Args)]
pub(crate) struct EnvFiles {
    /// Take environment variables from this file, too (can be repeated; the last one wins)
    #[arg(long, value_name = "FILE")]
    pub(crate) env_file: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Send {
    /// The message; `-` reads it from stdin
    #[arg(value_name = "TEXT")]
    pub(crate) text: String,
    #[command(flatten)]
    pub(crate) to: To,
    /// An image for the agent: a file, or its address (can be repeated)
    #[arg(long, value_name = "FILE|URL")]
    pub(crate) image: Vec<String>,
    /// The event's id; the same id twice is one turn [default: a new one]
    #[arg(long, value_name = "ID")]
    pub(crate) event_id: Option<EventId>,
    /// Return as soon as the message is accepted
    #[arg(long, conflicts_with_all = ["timeout", "quiet"])]
    pub(crate) no_wait: bool,
    /// Show no progress
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// Print the answer as it comes, also where no terminal is
    #[arg(long, conflicts_with = "no_wait")]
    pub(crate) stream: bool,
    /// Wait at most this long for the answer
    #[arg(long, value_name = "SECONDS")]
    pub(crate) timeout: Option<u64>,
}

/// Whom a message is for.
#[derive(Debug, Clone, Args)]
pub(crate) struct To {
    /// The agent [default: the swarm's entry agent]
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<AgentName>,
    /// The conversation [default: the swarm's `instanceKey`, or `main`]
    #[arg(long, value_name = "KEY")]
    pub(crate) instance: Option<InstanceKey>,
}

#[derive(Debug, Args)]
pub(crate) struct Chat {
    #[command(flatten)]
    pub(crate) to: To,
}

#[derive(Debug, Args)]
pub(crate) struct Ps {
    /// Those of every workspace
    #[arg(long)]
    pub(crate) all: bool,
    /// Go on showing them as they change
    #[arg(long, short)]
    pub(crate) watch: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Instance {
    /// List conversations
    #[command(after_help = "\
Examples:
  gdn instance list
  gdn instance list --all --json")]
    List(InstanceList),
    /// Show one conversation's state
    #[command(after_help = "\
Examples:
  gdn instance show               the conversation `main`
  gdn instance show order-17")]
    Show(InstanceShow),
    /// Print one conversation's messages, or its turns
    #[command(after_help = "\
Examples:
  gdn instance history            every message of `main`
  gdn instance history order-17 --limit 10
  gdn instance history --turns    what became of each turn, how long it took, which tools it used
  gdn instance history --json | jq '.messages | length'")]
    History(InstanceHistory),
    /// Write one conversation to a file that can be imported elsewhere
    #[command(after_help = "\
Examples:
  gdn instance export order-17 -o order-17.jsonl
  gdn instance export order-17 | gzip > order-17.jsonl.gz

Confirmed messages and the state of extensions are in it; the work directory and what waits are not.")]
    Export(InstanceExport),
    /// Make a conversation from an exported file
    #[command(after_help = "\
Examples:
  gdn instance import order-17.jsonl
  gdn instance import order-17.jsonl --instance order-17-again --agent clerk

A file that was cut or changed is refused, and nothing is made of it.")]
    Import(InstanceImport),
    /// Delete the conversations that nobody has used for long
    #[command(after_help = "\
Examples:
  gdn instance prune --dry-run                  what the swarm's policy lets go
  gdn instance prune --older-than 30d --dry-run
  gdn instance prune --older-than 30d --yes     ask nothing (needed in scripts)

The policy is `policy.lifecycle` of the Swarm; the daemon carries it out by itself.")]
    Prune(InstancePrune),
    /// Delete one conversation: its messages, its extensions' state and its work directory
    #[command(after_help = "\
Examples:
  gdn instance delete order-17
  gdn instance delete order-17 --yes     ask nothing (needed in scripts)

Deleting what is not there succeeds.")]
    Delete(InstanceDelete),
}

#[derive(Debug, Args)]
pub(crate) struct InstanceList {
    /// Those of every workspace
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct InstanceShow {
    /// The conversation [default: the swarm's `instanceKey`, or `main`]
    #[arg(value_name = "KEY")]
    pub(crate) key: Option<InstanceKey>,
}

#[derive(Debug, Args)]
pub(crate) struct InstanceHistory {
    /// The conversation [default: the swarm's `instanceKey`, or `main`]
    #[arg(value_name = "KEY")]
    pub(crate) key: Option<InstanceKey>,
    /// Only the latest so many messages, or turns
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// The turns with their outcomes, instead of the messages
    #[arg(long)]
    pub(crate) turns: bool,
}

#[derive(Debug, Args)]
pub(crate) struct InstanceExport {
    /// The conversation [default: the swarm's `instanceKey`, or `main`]
    #[arg(value_name = "KEY")]
    pub(crate) key: Option<InstanceKey>,
    /// Where to write it; `-` is stdout
    #[arg(long, short, value_name = "FILE", default_value = "-")]
    pub(crate) output: PathBuf,
    /// Overwrite a file that is there
    #[arg(long)]
    pub(crate) force: bool,
    /// Leave out what is damaged, instead of stopping at it
    #[arg(long)]
    pub(crate) skip_damaged: bool,
}

#[derive(Debug, Args)]
pub(crate) struct InstanceImport {
    /// The exported file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The conversation it becomes [default: what it was]
    #[arg(long, value_name = "KEY")]
    pub(crate) instance: Option<InstanceKey>,
    /// The agent it belongs to then [default: the one it belonged to]
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<AgentName>,
}

#[derive(Debug, Args)]
pub(crate) struct InstanceDelete {
    /// The conversation
    #[arg(value_name = "KEY")]
    pub(crate) key: InstanceKey,
    /// Ask nothing
    #[arg(long, short)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct InstancePrune {
    /// Those unchanged for so long, such as 30d, 12h or 90m, instead of by the swarm's policy
    #[arg(long, value_name = "AGE", value_parser = parse_age_ms)]
    pub(crate) older_than: Option<u64>,
    /// Only show which they are
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Ask nothing
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// Reads an age such as `30d` as milliseconds.
fn parse_age_ms(text: &str) -> Result<u64, String> {
    let problem = || format!("`{text}` is no age; write a number and s, m, h, d or w, such as 30d");
    let unit = text.chars().next_back().ok_or_else(problem)?;
    let second_ms: u64 = 1_000;
    let unit_ms = match unit {
        's' => second_ms,
        'm' => 60 * second_ms,
        'h' => 3_600 * second_ms,
        'd' => 86_400 * second_ms,
        'w' => 7 * 86_400 * second_ms,
        _ => return Err(problem()),
    };
    let number: u64 = text
        .strip_suffix(unit)
        .and_then(|number| number.parse().ok())
        .ok_or_else(problem)?;
    number.checked_mul(unit_ms).ok_or_else(problem)
}

#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// Only this conversation
    #[arg(long, value_name = "KEY", conflicts_with = "all")]
    pub(crate) instance: Option<InstanceKey>,
    /// Those of every workspace
    #[arg(long)]
    pub(crate) all: bool,
    /// Set damage aside, so that everything else can be used; nothing is deleted
    #[arg(long)]
    pub(crate) repair: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    /// A trace, or a turn or an event that is part of it; `last`: of the turn that began last
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) of: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Audit {
    /// How many of the latest records
    #[arg(long, short = 'n', value_name = "N", default_value_t = DEFAULT_AUDIT_RECORDS)]
    pub(crate) lines: usize,
    /// Those of every workspace
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Restart {
    /// Only this agent's processes
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<AgentName>,
    /// Only this conversation's process
    #[arg(long, value_name = "KEY")]
    pub(crate) instance: Option<InstanceKey>,
    /// Delete the conversations of what is restarted
    #[arg(long)]
    pub(crate) fresh: bool,
    /// With --fresh: ask nothing
    #[arg(long, short, requires = "fresh")]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Reload {
    /// Those of every workspace
    #[arg(long, conflicts_with_all = ["project", "workspace"])]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Shutdown {
    /// Time for the turns in progress [default: each swarm's own grace period]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) grace: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct Validate {
    /// The project
    #[arg(value_name = "PATH", conflicts_with = "project")]
    pub(crate) path: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) env: EnvFiles,
    /// Take warnings for errors
    #[arg(long)]
    pub(crate) strict: bool,
    /// Do not check whether this machine has what runs the project's modules
    #[arg(long)]
    pub(crate) other_machine: bool,
    /// Mend what needs no judgement in the project's files, and show each change
    #[arg(long)]
    pub(crate) fix: bool,
    /// How to tell what was found: text, json or github
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "text",
        hide_possible_values = true
    )]
    pub(crate) format: ValidateFormat,
}

/// How `gdn validate` tells what it found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ValidateFormat {
    /// For people.
    Text,
    /// One JSON object, as with `--json`.
    Json,
    /// Annotations of a GitHub workflow.
    Github,
}

#[derive(Debug, Args)]
pub(crate) struct Schema {
    /// Only this kind, or `Script` [default: documents of every kind]
    #[arg(value_name = "KIND")]
    pub(crate) kind: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Show every value that holds, defaults included, and who says so
    #[command(after_help = "\
Examples:
  gdn config show
  gdn config show --json | jq '.settings[] | select(.origin.kind == \"environment\")'

Secrets and values from the environment are masked.")]
    Show(ConfigShow),
}

#[derive(Debug, Args)]
pub(crate) struct ConfigShow {
    /// The project
    #[arg(value_name = "PATH", conflicts_with = "project")]
    pub(crate) path: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) env: EnvFiles,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// The project
    #[arg(value_name = "PATH", conflicts_with_all = ["project", "workspace"])]
    pub(crate) path: Option<PathBuf>,
    /// What to ask its entry agent
    #[arg(long, value_name = "TEXT")]
    pub(crate) ask: String,
    /// Keep the state root
    #[arg(long)]
    pub(crate) keep: bool,
}
