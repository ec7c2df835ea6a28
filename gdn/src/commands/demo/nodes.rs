//! `gdn demo nodes`: two daemons share one log; the one that runs a workspace is killed and the other takes over
//! (`REP-1`).
//!
//! * `server` — a local PostgreSQL server that holds the log.
//! * `scene` — the state roots of the daemons, and the project they share.
//! * `sender` — a sender that produces events continuously and records the acknowledgments.
//! * `play` — the kill, and the check of its outcome.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::verdict::DemoVerdict;
use super::{failure_with_logs, mark, new_state_root, remove, stop_daemon};
use crate::commands::init::strictest;
use crate::context::Context;
use crate::daemon;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::text;
use crate::programs::{REPLICA, place_of};
use crate::schemas;

mod play;
mod scene;
mod sender;
mod server;

use play::NodesRunResult;
use scene::{NODES, NodesDemoFiles, PROJECT};
use server::DemoPostgres;

/// Run a workspace on two local nodes, kill one, and watch the other take over
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn demo nodes
  gdn demo nodes --keep          keep everything, to inspect the files and the log
  gdn demo nodes --json | jq .takeOverMs

Starts a local PostgreSQL server and two daemons in a temporary directory, and sends events continuously.
Kills the daemon that runs the workspace, and restarts it later. Afterwards, each accepted event must be in
the conversation exactly once, with one answer; otherwise, the exit code is 1.
Needs the programs of PostgreSQL 15 or newer, but no network and no key. Running daemons are not touched.")]
pub(super) struct NodesArgs {
    /// Keep the state roots, the project and the database
    #[arg(long)]
    keep: bool,
}

/// Final JSON output.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct NodesDemoReport<'a> {
    take_over_ms: u64,
    accepted_again_ms: u64,
    epoch: u64,
    records: u64,
    #[serde(flatten)]
    verdict: &'a DemoVerdict,
    directory: Option<&'a Path>,
}

pub(super) async fn run(args: NodesArgs, context: &Context) -> Result<(), Failure> {
    let output = context.output;
    if place_of(REPLICA).is_none() {
        return Err(Failure::new(
            Exit::StartFailed,
            format!("{REPLICA}, the PostgreSQL client, was not found"),
            "install it beside gdn or in PATH: `cargo build --release` builds it",
        ));
    }
    // From here on, Ctrl-C ends the demo, not this process, so that everything is removed at any point.
    let interrupts = [
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    ];
    let room = new_state_root()?;
    let path = room
        .path()
        .canonicalize()
        .unwrap_or_else(|_| room.path().to_owned());
    // The server's user needs to traverse this directory if the server does not run as root, but cannot list it.
    set_permissions(&path, Permissions::from_mode(0o711))?;
    let server = DemoPostgres::start(path.join("server"))?;
    output.note(format!(
        "{} PostgreSQL, in {}; a single server, whose loss is not part of this demo",
        mark(context, "log"),
        server.dir().display()
    ));
    let played = play_at(&path, &server, context, interrupts).await;
    let stopped = server.stop();
    let is_bad = match &played {
        Ok(came) => !came.verdict.is_good() || stopped.is_err(),
        Err(failure) => failure.exit != Exit::Interrupted,
    };
    let kept = args.keep || is_bad;
    if kept {
        drop(room.keep());
    } else {
        remove(room)?;
    }
    let logs = daemon::log_dir(&path.join(NODES[1]));
    let came = played.map_err(|failure| match kept {
        true => failure_with_logs(failure, &logs, &path.join(PROJECT)),
        false => failure,
    })?;
    stopped?;
    let told = NodesDemoReport {
        take_over_ms: came.take_over_ms,
        accepted_again_ms: came.accepted_again_ms,
        epoch: came.epoch,
        records: came.records,
        verdict: &came.verdict,
        directory: kept.then_some(&path),
    };
    output.object(schemas::DEMO_NODES, &json!(told))?;
    output.data(in_words(&came))?;
    if kept {
        output.note(format!("Everything is kept in {}", path.display()));
    }
    judged(&came)
}

/// Runs the demo in a directory; afterwards no daemon runs there.
async fn play_at(
    room: &Path,
    server: &DemoPostgres,
    context: &Context,
    interrupts: [Signal; 2],
) -> Result<NodesRunResult, Failure> {
    let scene = NodesDemoFiles::lay_out(room, strictest(&context.machine()), &server.url())?;
    let of = |root: &PathBuf| context.elsewhere(root.clone(), scene.project.clone());
    let nodes = scene.state_roots.each_ref().map(of);
    let played = play::run(&nodes, &scene, interrupts).await;
    let stopped = stop(&nodes).await;
    let came = played?;
    stopped.map(|()| came)
}

/// Stops all daemons that started, the owner of the workspace last.
async fn stop(nodes: &[Context; 2]) -> Result<(), Failure> {
    let mut stopped = Ok(());
    for node in nodes {
        stopped = stopped.and(stop_daemon(node).await);
    }
    stopped
}

/// Results, one line each.
fn in_words(came: &NodesRunResult) -> String {
    let NodesRunResult { verdict, .. } = came;
    let mut lines = vec![
        format!(" accepted  {}", text::count(verdict.accepted, "event")),
        format!(" answered  {} exactly once", verdict.answered_once),
    ];
    let lists = [
        ("lost", &verdict.lost),
        ("repeated", &verdict.repeated),
        ("astray", &verdict.astray),
    ];
    for (name, list) in lists {
        lines.push(format!("{name:>9}  {}", list.len()));
        let shown = list.iter();
        lines.extend(shown.map(|what| format!("{:11}{}", "", text::one_line(what))));
    }
    lines.push(format!(
        "      log  {}, which both nodes have",
        text::count(came.records, "record")
    ));
    if verdict.is_good() {
        lines.push(format!(
            "Every accepted event was answered exactly once. The other node took over after {}.",
            text::duration(came.take_over_ms)
        ));
    }
    lines.join("\n")
}

/// Failure of a run with a bad verdict.
fn judged(came: &NodesRunResult) -> Result<(), Failure> {
    let DemoVerdict {
        lost,
        repeated,
        astray,
        ..
    } = &came.verdict;
    if came.verdict.is_good() {
        return Ok(());
    }
    Err(Failure::new(
        Exit::Internal,
        format!(
            "lost: {}, repeated: {}, astray: {}",
            lost.len(),
            repeated.len(),
            astray.len()
        ),
        "this is a bug in goondan; please report it with the directory, which is kept",
    ))
}
