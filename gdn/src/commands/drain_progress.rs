//! Progress while processes finish their turns before a stop: the processes that are still running, and for how long.

use std::future::Future;
use std::time::Duration;

use goondan_protocol::control::{ProcessChange, ProcessInfo, ProcessState, WatchProcesses};
use goondan_protocol::ids::WorkspaceId;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::follow::Processes;
use crate::client::{Client, Notice, RequestTimeout};
use crate::context::Context;
use crate::output::progress::WaitIndicator;
use crate::output::text;

/// Interval between progress lines, in milliseconds.
const TELL_MS: u64 = 1_000;

/// Maximum number of names in one line.
const NAMES_MAX: usize = 3;

/// Runs `work`, which waits for the processes of one workspace or of all to end, and prints their names meanwhile.
/// Prints nothing if it takes less than a second.
pub(super) async fn while_draining<T>(
    context: &Context,
    workspace_id: Option<WorkspaceId>,
    work: impl Future<Output = T>,
) -> T {
    tokio::pin!(work);
    if context.output.is_json() {
        return work.await;
    }
    let since = Instant::now();
    let each = Duration::from_millis(TELL_MS);
    let mut tellings = interval_at(since + each, each);
    tellings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (told, mut changes) = mpsc::unbounded_channel();
    let watching = watch(context, workspace_id, told);
    tokio::pin!(watching);
    let mut waiting = WaitIndicator::new(context.output);
    let mut processes = Processes::default();
    let mut shown = String::new();
    let mut is_watched = true;
    loop {
        tokio::select! {
            done = &mut work => return done,
            () = &mut watching, if is_watched => is_watched = false,
            Some(change) = changes.recv() => {
                processes.take(change);
                continue;
            }
            _ = tellings.tick() => {}
        }
        // A daemon that is about to exit reports nothing more.
        let who = who_is_left(&processes.all()).filter(|_| is_watched);
        let Some(who) = who else { continue };
        let seconds = since.elapsed().as_secs();
        waiting.show(&format!("waiting for {who}, for {seconds} s"), who != shown);
        shown = who;
    }
}

/// Watches the processes for as long as the daemon reports them. Starts only once the wait is long enough to report.
async fn watch(
    context: &Context,
    workspace_id: Option<WorkspaceId>,
    told: mpsc::UnboundedSender<ProcessChange>,
) {
    tokio::time::sleep(Duration::from_millis(TELL_MS)).await;
    let Ok(mut client) = Client::connect(&context.endpoint).await else {
        return;
    };
    let request = WatchProcesses {
        workspace_id,
        memory: false,
    };
    let mut take = |notice| {
        if let Notice::Processes(change) = notice {
            // A send fails only after `work` is done, which also ends this watch.
            drop(told.send(change));
        }
    };
    let watched = client.watch(request, RequestTimeout::Endless, &mut take);
    // The result is ignored, because `work` reports the outcome.
    drop(watched.await);
}

/// `agent clerk/main (draining), connector hook (draining) and 3 more`; none if no process is left.
fn who_is_left(processes: &[ProcessInfo]) -> Option<String> {
    let left: Vec<&ProcessInfo> = processes
        .iter()
        .filter(|process| process.pid.is_some())
        .collect();
    let named: Vec<String> = left.iter().take(NAMES_MAX).map(|p| named(p)).collect();
    match left.len() {
        0 => None,
        count if count > named.len() => Some(format!(
            "{} and {} more",
            named.join(", "),
            count - named.len()
        )),
        _ => Some(named.join(", ")),
    }
}

fn named(process: &ProcessInfo) -> String {
    let mut name = format!("{} {}", process.role.as_str(), process.name);
    if let Some(key) = &process.instance_key {
        name.push_str(&format!("/{key}"));
    }
    let does = match (process.state, &process.turn_id) {
        (ProcessState::Draining, Some(_)) => "finishes its turn",
        (state, _) => state.as_str(),
    };
    text::one_line(&format!("{name} ({does})"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn those_that_are_left_are_named_and_the_rest_counted() {
        let process = |name: &str, pid: Option<u32>, turn: Option<&str>| {
            let mut process = json!({
                "workspaceId": "w", "role": "agent", "name": name, "instanceKey": "main",
                "state": "draining", "consecutiveCrashes": 0, "pendingEvents": 1,
            });
            process["pid"] = json!(pid);
            process["turnId"] = json!(turn);
            serde_json::from_value::<ProcessInfo>(process).unwrap()
        };
        assert_eq!(who_is_left(&[process("a", None, None)]), None);
        let a = process("a", Some(1), Some("t"));
        let b = process("b", Some(2), None);
        assert_eq!(
            who_is_left(&[a.clone(), b.clone()]).unwrap(),
            "agent a/main (finishes its turn), agent b/main (draining)"
        );
        let many = [a, b.clone(), b.clone(), b.clone(), b];
        assert!(who_is_left(&many).unwrap().ends_with(" and 2 more"));
    }
}
