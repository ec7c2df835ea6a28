//! `gdn task …`: work for command-line agents that people start, answer and approve.

use clap::{Args, Subcommand};
use goondan_protocol::control::{
    AnswerTask, ApproveTask, CancelTask, CreateTask, ImportTask, Method, PauseTask, ProvideTask,
    RemoveTask, ResumeTask, ReworkTask, SendTask, SetTaskBudget, ShowTask, StartTask, TaskAskKind,
    TaskDetail, TaskInfo,
};
use goondan_protocol::ids::{AgentName, EventId, WorkspaceId};
use goondan_protocol::task::{RepositorySource, TaskBudget, TaskId, TaskSource};
use goondan_protocol::usage::MicroUsd;
use serde_json::json;
use std::io::{IsTerminal as _, Read as _};
use std::path::PathBuf;

use super::confirm::confirm;
use super::secret::read_value;
use super::send::stdin_text;
use crate::client::Client;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::text;
use crate::schemas;

mod checkpoints;
mod list;
mod logs;
mod prune;
mod queue;
mod show;
mod watch;

pub(crate) use checkpoints::{TaskCheckpointArgs, TaskRestoreArgs};
pub(crate) use list::TaskListArgs;
pub(super) use list::note_held;
pub(crate) use logs::TaskLogsArgs;
pub(crate) use prune::TaskPruneArgs;
pub(crate) use queue::QueueCommand;
pub(crate) use watch::TaskWatchArgs;

/// Manage tasks of command-line agents
#[derive(Debug, Subcommand)]
pub(crate) enum TaskCommand {
    /// Create a task with its own work area
    #[command(after_help = "\
Examples:
  gdn task new 'Shop' --description 'Build a small web shop' --phases 3 --start
  gdn task new 'Shop' --agent claude --max-usd 5 < brief.md
  gdn task new 'Shop' --agent claude --fallback codex --start < brief.md
  gdn task new 'Research' --agent claude --source none --description 'Compare the two libraries'
  gdn task new 'Fix the parser' --id parser --type bugfix --description \"$(cat BUG.md)\"

Without `--description`, reads it from stdin.")]
    New(TaskNewArgs),
    /// List tasks, those that wait for you first
    #[command(after_help = "\
Examples:
  gdn task list                     unfinished tasks
  gdn task list --needs-me          tasks that wait for you
  gdn task list --all --json | jq -r '.tasks[] | select(.status == \"failed\") | .taskId'")]
    List(TaskListArgs),
    /// Show a task on one page: its state, what it waits for, and next commands
    #[command(after_help = "\
Examples:
  gdn task show shop
  gdn task show shop --json | jq '.asks[]'")]
    Show(TaskAtArgs),
    /// Start a task
    #[command(after_help = "\
Examples:
  gdn task start shop")]
    Start(TaskAtArgs),
    /// Pause a task: stop its agent and all it started
    #[command(after_help = "\
Examples:
  gdn task pause shop
  gdn task resume shop")]
    Pause(TaskAtArgs),
    /// Resume a paused task
    #[command(after_help = "\
Examples:
  gdn task resume shop

For a task that reached its budget or disk quota, first increase it or free space: `gdn task budget`.")]
    Resume(TaskAtArgs),
    /// Cancel a task permanently; its work area is kept
    #[command(after_help = "\
Examples:
  gdn task cancel shop --yes")]
    Cancel(TaskCancelArgs),
    /// Provide what an agent needs: a key, a service, a file
    #[command(after_help = "\
Examples:
  gdn task provide shop                  the only dependency; a key is typed without showing it
  gdn task provide shop d-0002 < key     a key from a file; a trailing newline is removed
  gdn task provide shop DATABASE --say 'runs on port 5432'

Keys and variables are stored encrypted, and only the agent's program receives them, in its environment.")]
    Provide(TaskProvideArgs),
    /// Answer a question of an agent
    #[command(after_help = "\
Examples:
  gdn task answer shop PostgreSQL            the only open question
  gdn task answer shop --id q-0003 allow     one of several; for permissions: `allow` or `refuse`")]
    Answer(TaskAnswerArgs),
    /// Approve the phase that waits for review
    #[command(after_help = "\
Examples:
  gdn task approve shop
  gdn task approve shop --phase 2            only if phase 2 waits
  gdn task approve shop --without-delivery   do not apply its proposal
  gdn task approve shop --allow-moved-base   even if other files or the commit of the project have changed

If its agent works on the project, approving the last phase first applies the whole proposal to the project. If that
fails, nothing is applied and the task stays in review.")]
    Approve(TaskApproveArgs),
    /// Request changes to the phase that waits for review
    #[command(after_help = "\
Examples:
  gdn task rework shop 'The price list lacks taxes'
  gdn task rework shop                       only the comments on its proposal

Sends all open comments on its proposal (`gdn proposal comment`) to the agent, in the same session.")]
    Rework(TaskReworkArgs),
    #[command(subcommand)]
    Queue(QueueCommand),
    /// Send a message to the agent of a task, while it works or after
    #[command(after_help = "\
Examples:
  gdn task send shop 'Prices are in euros'
  gdn task send shop - < review.md            the message from stdin
  gdn task send shop --message-id ID '…'      the same id again: never delivered twice

The agent receives it in its session after the current run. A completed or failed task continues, with its files as they
are. A phase that waits for a review returns to its agent.")]
    Send(TaskSendArgs),
    /// Set the budget of a task
    #[command(after_help = "\
Examples:
  gdn task budget shop --max-usd 10
  gdn task budget shop --max-tokens 2000000
  gdn task budget shop --max-disk-mib 40960
  gdn task budget shop --none

Replaces the whole budget. Warns at 90 %; the task pauses before the run that could exceed the budget.
A task over its disk quota is paused and gets no checkpoints; no file is removed.")]
    Budget(TaskBudgetArgs),
    /// Show what a task's agent does, as it happens
    #[command(after_help = "\
Examples:
  gdn task watch shop
  gdn task watch shop --all        everything that is kept, from the first run on
  gdn task watch shop --json | jq -r 'select(.type == \"command\") | .command'

Starts with the latest run, continues across daemon restarts, and ends with the task: exit code 0 if it completed,
19 if it failed, 20 if it was canceled.")]
    Watch(TaskWatchArgs),
    /// Print a log of a task
    #[command(after_help = "\
Examples:
  gdn task logs shop                    readable events
  gdn task logs shop --log stdout -f    follow the output of its program
  gdn task logs shop --log history      all recorded facts, as JSON lines")]
    Logs(TaskLogsArgs),
    /// Show a task's usage: tokens and cost
    #[command(after_help = "\
Examples:
  gdn task usage shop
  gdn task usage shop --json | jq .cost")]
    Usage(TaskAtArgs),
    /// Create a checkpoint of a task's work area
    #[command(after_help = "\
Examples:
  gdn task checkpoint shop
  gdn task checkpoint shop --name before-refactoring    never removed by age")]
    Checkpoint(TaskCheckpointArgs),
    /// List the checkpoints of a task
    #[command(after_help = "\
Examples:
  gdn task checkpoints shop")]
    Checkpoints(TaskAtArgs),
    /// Restore a work area from a checkpoint
    #[command(after_help = "\
Examples:
  gdn task restore shop --dry-run                  show what the newest would change
  gdn task restore shop checkpoint_003 --yes

First creates a checkpoint of the current state. The task's history is not rolled back.")]
    Restore(TaskRestoreArgs),
    /// Test that the newest checkpoint can be restored
    #[command(after_help = "\
Examples:
  gdn task drill shop
  gdn task drill shop --json | jq -r .problem

Unpacks it into a temporary directory, compares it with its manifest, and removes it again; nothing else changes.
With `policy.tasks.drillHours` of the Swarm, the daemon does this automatically.")]
    Drill(TaskAtArgs),
    /// Import a work area from another place
    #[command(after_help = "\
Examples:
  gdn task import /backup/shop

The work area is sufficient to restore the task. It is copied; the original does not change.")]
    Import(TaskImportArgs),
    /// Remove a finished task, with a backup
    #[command(after_help = "\
Examples:
  gdn task rm shop
  gdn task rm shop --no-backup --yes")]
    Rm(TaskRmArgs),
    /// Remove tasks that ended long ago, with backups
    #[command(after_help = "\
Examples:
  gdn task prune --dry-run                  tasks that the swarm's policy would remove
  gdn task prune --older-than 30d --dry-run
  gdn task prune --older-than 30d --yes     without confirmation, as in scripts

The policy is `policy.tasks.keepDays` of the Swarm; the daemon applies it automatically.")]
    Prune(TaskPruneArgs),
}

/// Selects one task.
#[derive(Debug, Args)]
pub(crate) struct TaskAtArgs {
    /// The task
    #[arg(value_name = "TASK")]
    task: TaskId,
}

#[derive(Debug, Args)]
pub(crate) struct TaskNewArgs {
    /// Title of the task
    #[arg(value_name = "TITLE")]
    title: String,
    /// Description of the work: the agent's first prompt
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Id of the task [default: `task_`, the date and six random characters]
    #[arg(long, value_name = "ID")]
    id: Option<TaskId>,
    /// The agent; optional if only one runs a program, or if there is only one
    #[arg(long, value_name = "AGENT")]
    agent: Option<AgentName>,
    /// An agent that continues while the usage limit of those before it is reached; repeatable [default: the agent's
    /// `runtime.fallbacks`]
    #[arg(long = "fallback", value_name = "AGENT")]
    fallbacks: Vec<AgentName>,
    /// Type of the task
    #[arg(long = "type", value_name = "TYPE", default_value = "custom")]
    kind: String,
    /// Number of phases that you review one by one; 0 for a task without phases
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    phases: u32,
    #[command(flatten)]
    budget: BudgetArgs,
    /// Files to work on: a copy of the `project`, a clone of the git repository at a URL or path, or `none` but the work
    /// area [default: the agent's `runtime.source`]
    #[arg(long, value_name = "SOURCE")]
    source: Option<String>,
    /// Branch, tag or commit of that repository [default: its default branch]
    #[arg(long = "ref", value_name = "REF", requires = "source")]
    reference: Option<String>,
    /// Start it immediately
    #[arg(long)]
    start: bool,
}

/// The source that is written as a word, a URL, or a path with a `/`.
fn source_of(text: &str, reference: Option<String>) -> Result<TaskSource, Failure> {
    let hint = "pass `--source project`, `none`, `https://HOST/PATH` or `./PATH`";
    let word = match text {
        "project" => Some(TaskSource::Project),
        "none" => Some(TaskSource::None),
        _ => None,
    };
    if let Some(word) = word {
        return match reference {
            None => Ok(word),
            Some(_) => {
                let problem = "`--ref` needs a repository in `--source`";
                Err(Failure::new(Exit::Usage, problem, hint))
            }
        };
    }
    // A colon before the first `/` belongs to an address of another kind.
    let first = text.split('/').next().unwrap_or_default();
    let is_path = first != text && !first.contains(':') && !first.starts_with('-');
    let repository = match is_path {
        // The daemon has another current directory.
        true => std::path::absolute(text)?.to_string_lossy().into_owned(),
        false => text.to_owned(),
    };
    let source = RepositorySource {
        repository,
        reference,
    };
    match source.address() {
        Ok(_) => Ok(TaskSource::Repository(source)),
        Err(problem) => Err(Failure::new(Exit::Usage, problem, hint)),
    }
}

/// Budget of a task.
#[derive(Debug, Args)]
struct BudgetArgs {
    /// Maximum tokens, input and output
    #[arg(long, value_name = "TOKENS")]
    max_tokens: Option<u64>,
    /// Maximum cost, in dollars
    #[arg(long, value_name = "DOLLARS")]
    max_usd: Option<MicroUsd>,
    /// Maximum disk usage of its work area, in MiB
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..))]
    max_disk_mib: Option<u64>,
}

impl BudgetArgs {
    fn wanted(&self) -> TaskBudget {
        TaskBudget {
            tokens: self.max_tokens,
            micro_usd: self.max_usd,
            disk_bytes: self.max_disk_mib.map(|mib| mib.saturating_mul(1 << 20)),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct TaskCancelArgs {
    #[command(flatten)]
    at: TaskAtArgs,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TaskProvideArgs {
    #[command(flatten)]
    at: TaskAtArgs,
    /// Id or name of the need; optional if there is only one
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// Confirmation text, for needs other than keys and variables
    #[arg(long, value_name = "TEXT")]
    say: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct TaskAnswerArgs {
    #[command(flatten)]
    at: TaskAtArgs,
    /// The answer
    #[arg(value_name = "ANSWER")]
    answer: String,
    /// Id of the question; optional if there is only one
    #[arg(long, value_name = "ID")]
    id: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct TaskApproveArgs {
    #[command(flatten)]
    at: TaskAtArgs,
    /// Only if this phase waits for review
    #[arg(long, value_name = "NUMBER")]
    phase: Option<u32>,
    /// Do not apply its proposal; `gdn proposal apply` can still apply it
    #[arg(long)]
    without_delivery: bool,
    /// Apply it even if the project has changed: other files, or another commit
    #[arg(long, conflicts_with = "without_delivery")]
    allow_moved_base: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TaskReworkArgs {
    #[command(flatten)]
    at: TaskAtArgs,
    /// Requested changes; can be omitted if the proposal has open comments
    #[arg(value_name = "TEXT", default_value = "", hide_default_value = true)]
    text: String,
    /// Only if this phase waits for review
    #[arg(long, value_name = "NUMBER")]
    phase: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct TaskSendArgs {
    #[command(flatten)]
    at: TaskAtArgs,
    /// The message; `-` reads it from stdin
    #[arg(value_name = "TEXT")]
    text: String,
    /// The message's id; a message is delivered once for each id [default: a new one]
    #[arg(long, value_name = "ID")]
    message_id: Option<EventId>,
}

#[derive(Debug, Args)]
pub(crate) struct TaskBudgetArgs {
    #[command(flatten)]
    at: TaskAtArgs,
    #[command(flatten)]
    budget: BudgetArgs,
    /// Remove all limits
    #[arg(long, conflicts_with_all = ["max_tokens", "max_usd", "max_disk_mib"])]
    none: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TaskImportArgs {
    /// A work area
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Agent for a task whose history names none [default: the only one]
    #[arg(long, value_name = "AGENT")]
    agent: Option<AgentName>,
}

#[derive(Debug, Args)]
pub(crate) struct TaskRmArgs {
    #[command(flatten)]
    at: TaskAtArgs,
    /// Do not create a backup
    #[arg(long)]
    no_backup: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
}

pub(crate) async fn run(command: TaskCommand, context: &Context) -> Result<(), Failure> {
    match command {
        TaskCommand::New(args) => new(args, context).await,
        TaskCommand::List(args) => list::run(&args, context).await,
        TaskCommand::Show(args) => show(args, context).await,
        TaskCommand::Start(args) => {
            let make = |workspace_id, task_id| StartTask {
                workspace_id,
                task_id,
            };
            change(args.task, make, context).await
        }
        TaskCommand::Pause(args) => {
            let make = |workspace_id, task_id| PauseTask {
                workspace_id,
                task_id,
            };
            change(args.task, make, context).await
        }
        TaskCommand::Resume(args) => {
            let make = |workspace_id, task_id| ResumeTask {
                workspace_id,
                task_id,
            };
            change(args.task, make, context).await
        }
        TaskCommand::Cancel(args) => cancel(args, context).await,
        TaskCommand::Provide(args) => provide(args, context).await,
        TaskCommand::Answer(TaskAnswerArgs { at, answer, id }) => {
            let make = |workspace_id, task_id| AnswerTask {
                workspace_id,
                task_id,
                id,
                text: answer,
            };
            change(at.task, make, context).await
        }
        TaskCommand::Approve(TaskApproveArgs {
            at,
            phase,
            without_delivery,
            allow_moved_base,
        }) => {
            let make = |workspace_id, task_id| ApproveTask {
                workspace_id,
                task_id,
                phase,
                without_delivery,
                allow_moved_base,
            };
            change(at.task, make, context).await
        }
        TaskCommand::Rework(TaskReworkArgs { at, text, phase }) => {
            let make = |workspace_id, task_id| ReworkTask {
                workspace_id,
                task_id,
                phase,
                text,
            };
            change(at.task, make, context).await
        }
        TaskCommand::Queue(command) => queue::run(command, context).await,
        TaskCommand::Send(args) => send(args, context).await,
        TaskCommand::Budget(args) => budget(args, context).await,
        TaskCommand::Watch(args) => watch::run(args, context).await,
        TaskCommand::Logs(args) => logs::run(args, context).await,
        TaskCommand::Usage(args) => usage(args, context).await,
        TaskCommand::Checkpoint(args) => checkpoints::make(args, context).await,
        TaskCommand::Checkpoints(args) => checkpoints::list(args, context).await,
        TaskCommand::Restore(args) => checkpoints::restore(args, context).await,
        TaskCommand::Import(args) => import(args, context).await,
        TaskCommand::Rm(args) => rm(args, context).await,
        TaskCommand::Prune(args) => prune::run(args, context).await,
        TaskCommand::Drill(args) => checkpoints::drill(args, context).await,
    }
}

async fn new(args: TaskNewArgs, context: &Context) -> Result<(), Failure> {
    let description = match args.description {
        Some(description) => description,
        None => read_description()?,
    };
    let source = args.source.as_deref();
    let source = source.map(|source| source_of(source, args.reference));
    let source = source.transpose()?;
    let (mut client, workspace) = context.open().await?;
    let create = CreateTask {
        workspace_id: workspace.workspace_id,
        task_id: args.id,
        agent: args.agent,
        title: args.title,
        kind: args.kind,
        description,
        total_phases: args.phases,
        budget: args.budget.wanted(),
        source,
        fallbacks: (!args.fallbacks.is_empty()).then_some(args.fallbacks),
        start: args.start,
    };
    let info = client.change(create).await?;
    tell(&info, context)?;
    let next = if args.start { "show" } else { "start" };
    let next = context.command(&format!("task {next} {}", info.task_id));
    context.output.note(format!("Next: {next}"));
    Ok(())
}

fn read_description() -> Result<String, Failure> {
    let hint = "pass `--description TEXT`, or pass it on stdin: `gdn task new TITLE < brief.md`";
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Err(Failure::new(
            Exit::Usage,
            "the task has no description",
            hint,
        ));
    }
    let mut description = String::new();
    let most = u64::try_from(goondan_protocol::limits::MAX_INPUT_BYTES).unwrap_or(u64::MAX);
    stdin
        .lock()
        .take(most.saturating_add(1))
        .read_to_string(&mut description)
        .map_err(|error| {
            Failure::new(Exit::Usage, "cannot read the description", hint).caused_by(Some(&error))
        })?;
    Ok(description)
}

/// Sends a request that changes one task, and prints its new state.
async fn change<M: Method<Output = TaskInfo>>(
    task_id: TaskId,
    make: impl FnOnce(WorkspaceId, TaskId) -> M,
    context: &Context,
) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let info = client.change(make(workspace.workspace_id, task_id)).await?;
    tell(&info, context)
}

/// Prints the state of a task in one line.
fn tell(info: &TaskInfo, context: &Context) -> Result<(), Failure> {
    context.output.object(schemas::TASK, info)?;
    let stands = list::status_word(info);
    context.output.data(format!("{}: {stands}", info.task_id))
}

/// Reads all details of a task.
async fn read(
    client: &mut Client,
    workspace_id: WorkspaceId,
    task_id: TaskId,
) -> Result<TaskDetail, Failure> {
    let show = ShowTask {
        workspace_id,
        task_id,
    };
    Ok(client.query(show).await?)
}

async fn show(args: TaskAtArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let detail = read(&mut client, workspace.workspace_id, args.task).await?;
    let output = context.output;
    output.object(schemas::TASK_SHOW, &detail)?;
    output.data(show::page_of(&detail, output.canvas(), text::now()))?;
    for command in show::next_commands(&detail) {
        let line = format!("{}: {}", command.what, context.command(&command.command));
        output.note(line);
    }
    Ok(())
}

async fn cancel(args: TaskCancelArgs, context: &Context) -> Result<(), Failure> {
    let task = args.at.task;
    if !args.yes {
        let question = format!("Cancel task {task} permanently?");
        confirm(context, &question, &format!("task cancel {task} --yes"))?;
    }
    let make = |workspace_id, task_id| CancelTask {
        workspace_id,
        task_id,
    };
    change(task, make, context).await
}

async fn provide(args: TaskProvideArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let (workspace_id, task_id) = (workspace.workspace_id, args.at.task);
    let detail = read(&mut client, workspace_id.clone(), task_id.clone()).await?;
    let asked = detail.asks.iter().filter(|ask| {
        matches!(ask.kind, TaskAskKind::Secret | TaskAskKind::Dependency)
            && args
                .id
                .as_ref()
                .is_none_or(|id| *id == ask.id || *id == ask.text)
    });
    let asked: Vec<_> = asked.collect();
    let list = context.command(&format!("task show {task_id}"));
    let ask = match (asked.as_slice(), &args.id) {
        ([ask], _) => *ask,
        ([], Some(id)) => {
            let message = format!("task {task_id} has no pending dependency `{id}`");
            return Err(Failure::new(
                Exit::NotFound,
                message,
                format!("list its dependencies: `{list}`"),
            ));
        }
        ([], None) => {
            let message = format!("task {task_id} has no pending dependencies");
            return Err(Failure::new(
                Exit::NotFound,
                message,
                format!("show its state: `{list}`"),
            ));
        }
        (several, _) => {
            let message = format!("task {task_id} has {} pending dependencies", several.len());
            let hint = format!("select one by its id; list them: `{list}`");
            return Err(Failure::new(Exit::Usage, message, hint));
        }
    };
    let value = match (ask.kind, args.say) {
        (TaskAskKind::Secret, Some(_)) => {
            let hint = context.command(&format!("task provide {task_id} {}", ask.id));
            return Err(Failure::new(
                Exit::Usage,
                "keys cannot be passed as arguments: other processes could see them, and the shell stores them in its history",
                format!("run `{hint}` and type the key, or pass it on stdin: `{hint} < FILE`"),
            ));
        }
        (TaskAskKind::Secret, None) => {
            let question = format!("Value of {} (not shown): ", text::one_line(&ask.text));
            let pipe = context.command(&format!("task provide {task_id} {} < FILE", ask.id));
            read_value(&question, &pipe, context)?
        }
        (_, Some(say)) => say,
        (_, None) => "it is there".to_owned(),
    };
    let provide = ProvideTask {
        workspace_id,
        task_id,
        id: Some(ask.id.clone()),
        value,
    };
    let info = client.change(provide).await?;
    tell(&info, context)
}

async fn send(args: TaskSendArgs, context: &Context) -> Result<(), Failure> {
    let TaskSendArgs {
        at,
        text,
        message_id,
    } = args;
    let text = match text.as_str() {
        "-" => stdin_text()?,
        _ => text,
    };
    let make = |workspace_id, task_id| SendTask {
        workspace_id,
        task_id,
        text,
        message_id,
    };
    change(at.task, make, context).await
}

async fn budget(args: TaskBudgetArgs, context: &Context) -> Result<(), Failure> {
    let task = args.at.task;
    let budget = args.budget.wanted();
    if budget == TaskBudget::default() && !args.none {
        return Err(Failure::new(
            Exit::Usage,
            "no limit given",
            format!(
                "pass a limit, such as `{}`, or `--none`",
                context.command(&format!("task budget {task} --max-usd 5"))
            ),
        ));
    }
    let make = |workspace_id, task_id| SetTaskBudget {
        workspace_id,
        task_id,
        budget,
    };
    change(task, make, context).await
}

async fn usage(args: TaskAtArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let detail = read(&mut client, workspace.workspace_id, args.task).await?;
    let output = context.output;
    let object = json!({
        "taskId": detail.info.task_id,
        "usage": detail.usage,
        "cost": detail.info.cost,
        "budget": detail.budget,
    });
    output.object(schemas::TASK_USAGE, &object)?;
    output.data(show::usage_of(&detail).render(output.canvas()))
}

async fn import(args: TaskImportArgs, context: &Context) -> Result<(), Failure> {
    let path = std::path::absolute(&args.dir).map_err(Failure::from)?;
    let (mut client, workspace) = context.open().await?;
    let import = ImportTask {
        workspace_id: workspace.workspace_id,
        path,
        agent: args.agent,
    };
    let info = client.change(import).await?;
    tell(&info, context)?;
    let show = context.command(&format!("task show {}", info.task_id));
    context.output.note(format!("Show it: {show}"));
    Ok(())
}

async fn rm(args: TaskRmArgs, context: &Context) -> Result<(), Failure> {
    let task = args.at.task;
    if !args.yes {
        let (how, option) = if args.no_backup {
            (" without a backup", " --no-backup")
        } else {
            ("", "")
        };
        let question = format!("Remove task {task} with its work area{how}?");
        confirm(context, &question, &format!("task rm {task}{option} --yes"))?;
    }
    let (mut client, workspace) = context.open().await?;
    let remove = RemoveTask {
        workspace_id: workspace.workspace_id,
        task_id: task.clone(),
        no_backup: args.no_backup,
    };
    let removed = client.change(remove).await?;
    let output = context.output;
    output.object(schemas::TASK_RM, &removed)?;
    output.data(format!("Removed task {task}"))?;
    if let Some(backup) = &removed.backup {
        output.note(format!("Its work area is kept in {}", backup.display()));
    }
    Ok(())
}
