//! `gdn demo`: one complete run of a project in a temporary state root.

use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};

use goondan_protocol::control::{OpenWorkspace, SendResult};
use serde_json::json;
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};

use super::ask::{AgentInput, reply_of};
use super::{shutdown, transcript};
use crate::client::Client;
use crate::context::Context;
use crate::daemon::{self, StartedDaemon};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::progress::{StreamMode, TurnView};
use crate::output::style;
use crate::output::text::{self, shell_quoted};
use crate::{project, schemas};

mod kill;
mod nodes;
mod verdict;

/// Run an example in a temporary state root
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Examples:
  gdn demo my-swarm --ask \"run date\"
  gdn demo --ask \"Hello\" --keep           keep the state, to inspect its files
  gdn demo kill                          kill processes for a minute, and check that nothing is lost
  gdn demo nodes                         kill one of two nodes, and watch the other take over

Starts a daemon, opens the project, sends a message, shows each step, and stops the daemon.
An already running daemon is not touched. For a project named `kill`, write `./kill`."
)]
pub(crate) struct DemoArgs {
    #[command(subcommand)]
    command: Option<DemoCommand>,
    /// The project
    #[arg(value_name = "PATH", conflicts_with_all = ["project", "workspace"])]
    path: Option<PathBuf>,
    /// Message for its entry agent
    #[arg(long, value_name = "TEXT", required = true)]
    ask: Option<String>,
    /// Keep the state root
    #[arg(long)]
    keep: bool,
}

#[derive(Debug, Subcommand)]
enum DemoCommand {
    Kill(kill::KillArgs),
    Nodes(nodes::NodesArgs),
}

/// Grace period when the demo's daemon is stopped, in milliseconds. No turn is in progress at that point.
const GRACE_MS: u64 = 5_000;

pub(crate) async fn run(args: DemoArgs, context: &Context) -> Result<(), Failure> {
    match args.command {
        Some(DemoCommand::Kill(args)) => return kill::run(args, context).await,
        Some(DemoCommand::Nodes(args)) => return nodes::run(args, context).await,
        None => {}
    }
    let project = match &args.path {
        Some(path) => project::find(Some(path))?,
        None => context.project()?,
    };
    let root = new_state_root()?;
    let path = root
        .path()
        .canonicalize()
        .unwrap_or_else(|_| root.path().to_owned());
    let demo = context.elsewhere(path, project.clone());
    let output = context.output;
    output.note(format!(
        "{} {}",
        mark(context, "project"),
        project.display()
    ));
    // From here on, Ctrl-C ends the demo, not this process, so that the daemon is always stopped. The start itself is
    // not canceled, because afterwards it would be unknown whether a daemon runs.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let started = daemon::start(&demo.state_root, false).await?;
    let played = tokio::select! {
        played = play(&args, &project, started, &demo) => played,
        _ = interrupt.recv() => Err(Failure::new(
            Exit::Interrupted,
            "interrupted",
            "run the demo again, or create a project: `gdn init my-swarm`",
        )),
    };
    let stopped = stop_daemon(&demo).await;
    let went_wrong = match &played {
        Ok(_) => stopped.is_err(),
        Err(failure) => failure.exit != Exit::Interrupted,
    };
    let kept = args.keep || went_wrong;
    let logs = daemon::log_dir(&demo.state_root);
    let state_root = if kept {
        Some(root.keep())
    } else {
        drop(root);
        None
    };
    let played = played.map_err(|failure| match &state_root {
        Some(_) => failure_with_logs(failure, &logs, &project),
        None => failure,
    })?;
    stopped?;
    output.object(
        schemas::DEMO,
        &json!({
            "question": args.ask,
            "answer": played.sent,
            "messages": played.messages,
            "stateRoot": state_root,
        }),
    )?;
    finish(&played, state_root.as_deref(), &project, context);
    Ok(())
}

struct DemoResult {
    sent: SendResult,
    messages: usize,
}

/// Opens the project, sends the event and reads the history.
async fn play(
    args: &DemoArgs,
    project: &Path,
    started: StartedDaemon,
    demo: &Context,
) -> Result<DemoResult, Failure> {
    let output = demo.output;
    let StartedDaemon {
        mut client,
        log_dir,
    } = started;
    output.note(format!(
        "{} pid {}, log in {}",
        mark(demo, "daemon"),
        client.daemon().pid,
        log_dir.display()
    ));
    let open = OpenWorkspace {
        project_root: project.to_owned(),
        watch: None,
        env_files: None,
        swarm: None,
    };
    let info = client.change(open).await?;
    if let Some(problem) = info.problem {
        return Err(Failure::new(
            Exit::InvalidConfiguration,
            problem.message,
            problem.suggestion,
        ));
    }
    output.note(format!("{} {}", mark(demo, "workspace"), info.workspace_id));
    let asked = args.ask.clone().unwrap_or_default();
    output.note(format!("{} {asked}\n", mark(demo, "question")));
    let question = AgentInput::new(&info, None, None, asked, None)?;
    let view = TurnView::start(demo, output.is_json(), StreamMode::Off);
    let sent = question
        .ask(&mut client, &view)
        .await
        .map_err(|error| question.failed(error, demo))?;
    drop(view);
    output.note("");
    output.reply(reply_of(&sent, demo)?)?;
    let messages = history_len(&mut client, &sent, &info.workspace_id).await?;
    Ok(DemoResult { sent, messages })
}

async fn history_len(
    client: &mut Client,
    sent: &SendResult,
    workspace_id: &goondan_protocol::ids::WorkspaceId,
) -> Result<usize, Failure> {
    let transcript = transcript::read(client, workspace_id, &sent.instance_key, Some(0)).await?;
    Ok(transcript.total)
}

/// Stops the demo's daemon if it started.
async fn stop_daemon(demo: &Context) -> Result<(), Failure> {
    match Client::connect(&demo.state_root).await {
        Ok(client) => shutdown::stop(client, Some(GRACE_MS), demo).await,
        Err(_) => Ok(()),
    }
}

fn new_state_root() -> Result<TempDir, Failure> {
    tempfile::Builder::new()
        .prefix("gdn-demo-")
        .tempdir()
        .map_err(|error| {
            Failure::new(
                Exit::Internal,
                "cannot make a temporary directory",
                "free disk space in the temporary directory, or set TMPDIR to another one",
            )
            .caused_by(Some(&error))
        })
}

/// Removes the temporary directory. No process uses it at this point.
fn remove(room: TempDir) -> Result<(), Failure> {
    let path = room.path().to_owned();
    room.close().map_err(|error| {
        let hint = format!("remove it: `rm -r {}`", path.display());
        Failure::of(Exit::Internal, &error, hint)
    })
}

/// Replaces hints that need the demo's daemon, because it is already stopped.
fn failure_with_logs(failure: Failure, logs: &Path, project: &Path) -> Failure {
    let hint = if failure.exit == Exit::InvalidConfiguration {
        failure.hint.clone()
    } else {
        let project = shell_quoted(&project.to_string_lossy());
        let run = format!("run {}", project.as_deref().unwrap_or("PATH"));
        format!("try it step by step: `{} {run}`", program())
    };
    failure.with_hint(format!("{hint}; the logs are in {}", logs.display()))
}

fn mark(context: &Context, name: &str) -> String {
    let palette = context.output.err;
    palette.paint(style::FAINT, &format!("{name:>9}"))
}

/// Prints the results and the commands to try next.
fn finish(played: &DemoResult, state_root: Option<&Path>, project: &Path, context: &Context) {
    let output = context.output;
    let kept = match state_root {
        Some(root) => format!("The state root is kept: {}", root.display()),
        None => "Its daemon is stopped and its state root removed.".to_owned(),
    };
    output.note(format!(
        "\nAgent {} answered; the conversation has {} (trace {}). {kept}",
        played.sent.agent,
        text::count(played.messages, "message"),
        played.sent.trace_id,
    ));
    let gdn = program();
    let project = shell_quoted(&project.to_string_lossy()).unwrap_or_else(|| "PATH".to_owned());
    output.note(format!(
        "\nNext, with a daemon that stays:\n  \
         {gdn} run {project}\n  \
         {gdn} chat --project {project}\n  \
         {gdn} init my-swarm      a project of your own"
    ));
}

/// Name of this program as the user invoked it.
fn program() -> String {
    let called = std::env::args_os().next().map(PathBuf::from);
    called
        .and_then(|path| shell_quoted(&path.to_string_lossy()))
        .unwrap_or_else(|| "gdn".to_owned())
}
