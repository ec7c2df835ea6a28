//! `gdn ps --watch`: the processes as they change.
//!
//! On a terminal the table is drawn again in its place; in a pipe there is a line for each change, and
//! with `--json` an object. The daemon is asked once in [`INTERVAL_MS`]: what comes and goes between
//! two looks is not seen, the log has it.

use std::collections::BTreeMap;
use std::time::Duration;

use goondan_protocol::control::{ListProcesses, ProcessInfo};
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::time::Timestamp;
use serde_json::json;

use super::table::{detail, state_words, table};
use crate::client::Client;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::screen::Screen;
use crate::output::style::{self, Palette};
use crate::output::text;
use crate::schemas;

/// How long after a look the next one follows, in milliseconds.
pub(crate) const INTERVAL_MS: u64 = 1_000;

/// Looks again and again until the daemon or the reader is gone.
pub(super) async fn run(
    client: &mut Client,
    workspace_id: Option<WorkspaceId>,
    all: bool,
    context: &Context,
) -> Result<(), Failure> {
    let output = context.output;
    let mut screen = Screen::of(output);
    let mut before = Processes::new();
    loop {
        let workspace_id = workspace_id.clone();
        let processes = client.query(ListProcesses { workspace_id }).await?;
        let now = text::now();
        if let Some(screen) = &mut screen {
            let head = format!("{}, every {} s", text::clock(now), INTERVAL_MS / 1_000);
            let head = output.out.paint(style::FAINT, &head);
            let processes = table(&processes, all, now).render(output.canvas());
            screen.show(&format!("{head}\n{processes}"))?;
        } else {
            for change in changes(&mut before, processes) {
                let object = json!({
                    "at": now, "change": change.what.as_str(), "process": change.process,
                });
                output.object(schemas::PS_CHANGE, &object)?;
                output.data(line(&change, now, output.out))?;
            }
        }
        tokio::time::sleep(Duration::from_millis(INTERVAL_MS)).await;
    }
}

/// Processes by workspace, kind, name and conversation.
type Processes = BTreeMap<(String, &'static str, String, String), ProcessInfo>;

/// What became of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Appeared,
    Changed,
    Gone,
}

impl What {
    fn as_str(self) -> &'static str {
        match self {
            Self::Appeared => "appeared",
            Self::Changed => "changed",
            Self::Gone => "gone",
        }
    }
}

struct Change {
    what: What,
    process: ProcessInfo,
}

/// What is different from `before`, which becomes what is now.
fn changes(before: &mut Processes, now: Vec<ProcessInfo>) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut after = Processes::new();
    for process in now {
        let conversation = process.instance_key.as_ref().map(ToString::to_string);
        let key = (
            process.workspace_id.to_string(),
            process.role.as_str(),
            process.name.clone(),
            conversation.unwrap_or_default(),
        );
        let what = match before.remove(&key) {
            None => Some(What::Appeared),
            Some(old) => (!is_as_before(&old, &process)).then_some(What::Changed),
        };
        if let Some(what) = what {
            let process = process.clone();
            changes.push(Change { what, process });
        }
        after.insert(key, process);
    }
    let gone = std::mem::replace(before, after).into_values();
    changes.extend(gone.map(|process| Change {
        what: What::Gone,
        process,
    }));
    changes
}

/// Whether nothing is different but the memory, which always is.
fn is_as_before(old: &ProcessInfo, new: &ProcessInfo) -> bool {
    let old = ProcessInfo {
        memory_bytes: new.memory_bytes,
        counted_memory_bytes: new.counted_memory_bytes,
        ..old.clone()
    };
    old == *new
}

/// A change as people read it.
fn line(change: &Change, now: Timestamp, palette: Palette) -> String {
    let process = &change.process;
    let mut who = format!("{} {}", process.role.as_str(), process.name);
    if let Some(key) = &process.instance_key {
        who.push_str(&format!("/{key}"));
    }
    let (state, look) = match change.what {
        What::Gone => ("gone", style::FAINT),
        What::Appeared | What::Changed => state_words(process),
    };
    let pid = process.pid.map(|pid| format!("pid {pid}"));
    let pending =
        (process.pending_events > 0).then(|| format!("{} pending", process.pending_events));
    let crashes = process.consecutive_crashes;
    let crashes = match crashes {
        0 => None,
        1 => Some("1 crash".to_owned()),
        n => Some(format!("{n} crashes")),
    };
    let detail = Some(detail(process, now)).filter(|detail| !detail.is_empty());
    let mut parts = vec![
        palette.paint(style::FAINT, &text::clock_ms(now)),
        palette.paint(style::TITLE, &text::one_line(&who)),
        palette.paint(look, state),
    ];
    if change.what != What::Gone {
        let rest = [pid, pending, crashes, detail].into_iter().flatten();
        parts.extend(rest.map(|part| text::one_line(&part)));
    }
    parts.join("  ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(name: &str, state: &str) -> ProcessInfo {
        let process = json!({
            "workspaceId": "w", "role": "agent", "name": name, "instanceKey": "main", "state": state,
            "pid": 7, "consecutiveCrashes": 0, "pendingEvents": 1, "memoryBytes": 1024,
        });
        serde_json::from_value(process).unwrap()
    }

    fn seen(before: &mut Processes, now: Vec<ProcessInfo>) -> Vec<(What, String)> {
        let changes = changes(before, now).into_iter();
        changes
            .map(|change| (change.what, change.process.name))
            .collect()
    }

    #[test]
    fn only_what_is_different_is_told() {
        let mut before = Processes::new();
        let (a, b) = (process("a", "idle"), process("b", "idle"));
        let both = [
            (What::Appeared, "a".to_owned()),
            (What::Appeared, "b".to_owned()),
        ];
        assert_eq!(seen(&mut before, vec![a.clone(), b.clone()]), both);
        let mut fatter = a.clone();
        fatter.memory_bytes = Some(4096);
        assert_eq!(seen(&mut before, vec![fatter, b]), []);
        let changed = [
            (What::Changed, "a".to_owned()),
            (What::Gone, "b".to_owned()),
        ];
        assert_eq!(seen(&mut before, vec![process("a", "processing")]), changed);
        assert_eq!(seen(&mut before, vec![]), [(What::Gone, "a".to_owned())]);
    }

    #[test]
    fn a_line_tells_what_a_process_does_now() {
        let now = Timestamp::from_unix_millis(1_000_000);
        let plain = Palette::new(false);
        let mut process = process("clerk", "crashLoopBackOff");
        (process.pid, process.consecutive_crashes) = (None, 6);
        process.next_start_at = Some(Timestamp::from_unix_millis(1_002_000));
        let mut change = Change {
            what: What::Changed,
            process,
        };
        let told = line(&change, now, plain);
        let (_, told) = told.split_once("  ").unwrap();
        assert_eq!(
            told,
            "agent clerk/main  crashLoopBackOff  1 pending  6 crashes  starts again in 2.0s"
        );
        change.what = What::Gone;
        assert!(line(&change, now, plain).ends_with("agent clerk/main  gone"));
    }
}
