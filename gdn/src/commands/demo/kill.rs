//! `gdn demo kill`: kills processes at random and judges the outcome by the files on disk (`REL-2`).
//!
//! * `scene` — the project: an agent that takes three steps for each event, and a webhook.
//! * `outside` — a service at which each event has one effect.
//! * `senders` — senders that produce events continuously and record the acknowledgments.
//! * `play` — restarts the daemon, chooses what to kill and when, and reads the result from disk.

use std::path::Path;

use clap::Args;
use serde::Serialize;
use serde_json::json;

use super::verdict::DemoVerdict;
use super::{failure_with_logs, new_state_root, remove, stop_daemon};
use crate::commands::init::strictest;
use crate::commands::instance::parse_age_ms;
use crate::context::Context;
use crate::daemon;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::text;
use crate::schemas;

mod outside;
mod play;
mod scene;
mod senders;

use outside::{OutsideService, OutsideVerdict};
use play::{KillCounts, KillRunResult};
use scene::KillDemoFiles;

/// Kill the daemon, agents and connectors at random for a minute, and check that no event is lost or repeated
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn demo kill
  gdn demo kill --for 5m --seed 4711     longer, with the seed of an earlier run
  gdn demo kill --keep                   keep the state, to inspect its files

Sends events continuously, through the control socket and HTTP, and resends each until it is accepted.
Afterwards, each accepted event must be in its conversation exactly once, with one answer, as read from
a newly started daemon, and must have one effect at an outside service, which is a part of the demo;
otherwise, the exit code is 1. Needs no network and no key. An already running daemon is not touched.")]
pub(super) struct KillArgs {
    /// Duration, such as 60s or 5m; at most 24h
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = parse_for_ms)]
    for_ms: u64,
    /// Random seed for the choice of victims and times [default: a new one]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u32>,
    /// Keep the state root and the project
    #[arg(long)]
    keep: bool,
}

/// Maximum duration of the demo, in milliseconds.
const MAX_FOR_MS: u64 = 86_400_000;

fn parse_for_ms(text: &str) -> Result<u64, String> {
    match parse_age_ms(text) {
        Ok(ms) if (1..=MAX_FOR_MS).contains(&ms) => Ok(ms),
        _ => Err("expected a number and s, m or h, such as 90s; at most 24h".to_owned()),
    }
}

/// Final JSON output.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct KillDemoReport<'a> {
    seed: u32,
    killing_ms: u64,
    killed: &'a KillCounts,
    #[serde(flatten)]
    verdict: &'a DemoVerdict,
    outside: &'a OutsideVerdict,
    retried: usize,
    damaged: &'a [String],
    state_root: Option<&'a Path>,
}

pub(super) async fn run(args: KillArgs, context: &Context) -> Result<(), Failure> {
    let output = context.output;
    let room = new_state_root()?;
    let path = room
        .path()
        .canonicalize()
        .unwrap_or_else(|_| room.path().to_owned());
    let outside = OutsideService::listen()?;
    let level = strictest(&context.machine());
    let scene = KillDemoFiles::lay_out(path.join("project"), level, outside.port()?)?;
    let demo = context.elsewhere(path.join("state"), scene.project.clone());
    let seed = args.seed.unwrap_or_else(|| fastrand::u32(..));
    output.note(format!(
        "Killing everything at random for {}, in {} (seed {seed}) …",
        text::duration(args.for_ms),
        path.display()
    ));
    let played = tokio::select! {
        played = play::run(&demo, &scene, &outside, (seed, args.for_ms)) => played,
        failed = outside.serve() => Err(failed.into()),
    };
    let stopped = stop_daemon(&demo).await;
    let is_bad = match &played {
        Ok(came) => !came.is_good() || stopped.is_err(),
        Err(failure) => failure.exit != Exit::Interrupted,
    };
    let kept = args.keep || is_bad;
    if kept {
        drop(room.keep());
    } else {
        remove(room)?;
    }
    let came = played.map_err(|failure| match kept {
        true => failure_with_logs(failure, &daemon::log_dir(&demo.state_root), &scene.project),
        false => failure,
    })?;
    stopped?;
    let told = KillDemoReport {
        seed,
        killing_ms: args.for_ms,
        killed: &came.killed,
        verdict: &came.verdict,
        outside: &came.outside,
        retried: came.retried,
        damaged: &came.damaged,
        state_root: kept.then_some(&demo.state_root),
    };
    output.object(schemas::DEMO_KILL, &json!(told))?;
    output.data(in_words(&came))?;
    if kept {
        output.note(format!(
            "The state root is kept: {}",
            demo.state_root.display()
        ));
    }
    judged(&came, &demo)
}

/// Results, one line each.
fn in_words(came: &KillRunResult) -> String {
    let KillRunResult {
        killed, verdict, ..
    } = came;
    let mut lines = vec![
        format!(
            "   killed  {}: {} × goondan-orchestrator, {} × goondan-agent-process, {} × \
             goondan-connector-process",
            text::count(killed.all(), "process"),
            killed.daemons,
            killed.agents,
            killed.connectors
        ),
        format!("           {} all of them together", times(killed.at_once)),
        format!(" accepted  {}", text::count(verdict.accepted, "event")),
        format!(" answered  {} exactly once", verdict.answered_once),
        format!("  outside  {}", came.outside.in_words()),
    ];
    let lists = [
        ("lost", &verdict.lost),
        ("repeated", &verdict.repeated),
        ("astray", &verdict.astray),
        ("damaged", &came.damaged),
    ];
    let effects = [
        ("doubled", &came.outside.doubled),
        ("no effect", &came.outside.lost),
    ];
    let lists = lists
        .into_iter()
        .chain(effects.into_iter().filter(|(_, list)| !list.is_empty()));
    for (name, list) in lists {
        lines.push(format!("{name:>9}  {}", list.len()));
        lines.extend(
            list.iter()
                .map(|what| format!("{:11}{}", "", text::one_line(what))),
        );
    }
    if came.is_good() {
        lines.push("Every accepted event was answered exactly once.".to_owned());
    }
    lines.join("\n")
}

fn times(count: usize) -> String {
    match count {
        1 => "once".to_owned(),
        count => format!("{count} times"),
    }
}

/// Failure of a run with a bad verdict.
fn judged(came: &KillRunResult, demo: &Context) -> Result<(), Failure> {
    if came.is_good() {
        return Ok(());
    }
    let DemoVerdict {
        lost,
        repeated,
        astray,
        ..
    } = &came.verdict;
    Err(Failure::new(
        Exit::Internal,
        format!(
            "lost: {}, repeated: {}, astray: {}, damaged: {}; outside {}",
            lost.len(),
            repeated.len(),
            astray.len(),
            came.damaged.len(),
            came.outside.in_words()
        ),
        format!(
            "this is a bug in goondan; please report it with the state root, which is kept; to inspect it: `{}`, then `{}`",
            demo.command("run"),
            demo.command("conversation list")
        ),
    ))
}
