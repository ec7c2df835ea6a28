//! `gdn ps --watch`: shows processes as they change, across daemon restarts.
//!
//! On a terminal, the table is redrawn in place; in a pipe, each change is printed as a line, and with `--json` as an
//! object. The daemon pushes changes; nothing is polled.

use std::collections::BTreeMap;
use std::time::Duration;

use goondan_protocol::control::{
    EmptyResult, ProcessChange, ProcessInfo, ProcessKey, WatchProcesses,
};
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::time::Timestamp;
use serde_json::json;
use tokio::sync::mpsc;

use super::table::{detail, state_words, table};
use crate::client::{CallError, Client, Notice, RequestTimeout};
use crate::commands::follow;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::screen::Screen;
use crate::output::style::{self, Palette};
use crate::output::text;
use crate::schemas;

/// Interval between redraws that update the times, in milliseconds.
const REDRAW_MS: u64 = 1_000;

/// Reason why the updates ended.
#[derive(Debug, PartialEq, Eq)]
enum WatchEnd {
    Stopped,
    Lost,
}

/// Shows the processes until the project is stopped or the reader closes the pipe.
pub(super) async fn run(
    (mut client, mut workspace_id): (Client, Option<WorkspaceId>),
    all: bool,
    context: &Context,
) -> Result<(), Failure> {
    let mut shown = ProcessDisplay {
        context,
        all,
        screen: Screen::of(context.output),
        told: follow::Processes::default(),
        before: Processes::new(),
        is_whole: false,
        is_lost: false,
    };
    loop {
        if shown.watch(client, workspace_id).await? == WatchEnd::Stopped {
            context.output.note("The project is stopped.");
            return Ok(());
        }
        shown.lost()?;
        (client, workspace_id) = reconnected(all, context).await;
    }
}

/// Waits for the next daemon that runs the project.
async fn reconnected(all: bool, context: &Context) -> (Client, Option<WorkspaceId>) {
    loop {
        follow::rest().await;
        if let Ok(open) = context.open_scope(all).await {
            return open;
        }
    }
}

struct ProcessDisplay<'a> {
    context: &'a Context,
    all: bool,
    screen: Option<Screen>,
    /// Processes reported by the current daemon.
    told: follow::Processes,
    before: Processes,
    /// True once the list is complete.
    is_whole: bool,
    is_lost: bool,
}

impl ProcessDisplay<'_> {
    /// Shows the updates of one daemon.
    async fn watch(
        &mut self,
        mut client: Client,
        workspace_id: Option<WorkspaceId>,
    ) -> Result<WatchEnd, Failure> {
        self.told = follow::Processes::default();
        let (told, mut changes) = mpsc::unbounded_channel();
        let request = WatchProcesses {
            workspace_id,
            memory: self.screen.is_some(),
        };
        let mut take = |notice| {
            if let Notice::Processes(change) = notice {
                // The receiver is in this function.
                drop(told.send(change));
            }
        };
        let watching = client.watch(request, RequestTimeout::Endless, &mut take);
        tokio::pin!(watching);
        let mut redraw = tokio::time::interval(Duration::from_millis(REDRAW_MS));
        let ended = loop {
            tokio::select! {
                biased;
                Some(change) = changes.recv() => self.take(change)?,
                ended = &mut watching => break ended,
                _ = redraw.tick(), if self.screen.is_some() => self.draw()?,
            }
        };
        while let Ok(change) = changes.try_recv() {
            self.take(change)?;
        }
        match ended {
            Ok(EmptyResult {}) => Ok(WatchEnd::Stopped),
            Err(CallError::Lost { .. }) => Ok(WatchEnd::Lost),
            Err(error) => Err(error.into()),
        }
    }

    fn take(&mut self, change: ProcessChange) -> Result<(), Failure> {
        let at = change.at;
        if !self.told.take(change) {
            return Ok(());
        }
        (self.is_whole, self.is_lost) = (true, false);
        if self.screen.is_some() {
            return self.draw();
        }
        let output = self.context.output;
        for change in changes(&mut self.before, self.told.all()) {
            let object = json!({
                "at": at, "change": change.what.as_str(), "process": change.process,
            });
            output.object(schemas::PS_CHANGE, &object)?;
            output.data(line(&change, at, output.out))?;
        }
        Ok(())
    }

    /// Handles the loss of the daemon.
    fn lost(&mut self) -> Result<(), Failure> {
        self.is_lost = true;
        if self.screen.is_some() {
            return self.draw();
        }
        self.context.output.note(follow::LOST);
        Ok(())
    }

    fn draw(&mut self) -> Result<(), Failure> {
        let Some(screen) = self.screen.as_mut().filter(|_| self.is_whole) else {
            return Ok(());
        };
        let (output, now) = (self.context.output, text::now());
        let mut head = text::clock(now);
        if self.is_lost {
            head.push_str("  ");
            head.push_str(follow::LOST);
        }
        let head = output.out.paint(style::FAINT, &head);
        let processes = table(&self.told.all(), self.all, now).render(output.canvas());
        screen.show(&format!("{head}\n{processes}"))
    }
}

type Processes = BTreeMap<ProcessKey, ProcessInfo>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProcessEventKind {
    Appeared,
    Changed,
    Gone,
}

impl ProcessEventKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Appeared => "appeared",
            Self::Changed => "changed",
            Self::Gone => "gone",
        }
    }
}

struct ProcessEvent {
    what: ProcessEventKind,
    process: ProcessInfo,
}

/// Computes the changes since `before`, and replaces it with `now`.
fn changes(before: &mut Processes, now: Vec<ProcessInfo>) -> Vec<ProcessEvent> {
    let mut changes = Vec::new();
    let mut after = Processes::new();
    for process in now {
        let key = process.key();
        let what = match before.remove(&key) {
            None => Some(ProcessEventKind::Appeared),
            Some(old) => (!old.is_as(&process)).then_some(ProcessEventKind::Changed),
        };
        if let Some(what) = what {
            let process = process.clone();
            changes.push(ProcessEvent { what, process });
        }
        after.insert(key, process);
    }
    let gone = std::mem::replace(before, after).into_values();
    changes.extend(gone.map(|process| ProcessEvent {
        what: ProcessEventKind::Gone,
        process,
    }));
    changes
}

/// Renders a change as a line.
fn line(change: &ProcessEvent, now: Timestamp, palette: Palette) -> String {
    let process = &change.process;
    let mut who = format!("{} {}", process.role.as_str(), process.name);
    if let Some(key) = &process.instance_key {
        who.push_str(&format!("/{key}"));
    }
    let (state, look) = match change.what {
        ProcessEventKind::Gone => ("gone", style::FAINT),
        ProcessEventKind::Appeared | ProcessEventKind::Changed => state_words(process),
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
    if change.what != ProcessEventKind::Gone {
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

    fn seen(before: &mut Processes, now: Vec<ProcessInfo>) -> Vec<(ProcessEventKind, String)> {
        let changes = changes(before, now).into_iter();
        changes
            .map(|change| (change.what, change.process.name))
            .collect()
    }

    #[test]
    fn only_changed_processes_are_reported() {
        let mut before = Processes::new();
        let (a, b) = (process("a", "idle"), process("b", "idle"));
        let both = [
            (ProcessEventKind::Appeared, "a".to_owned()),
            (ProcessEventKind::Appeared, "b".to_owned()),
        ];
        assert_eq!(seen(&mut before, vec![a.clone(), b.clone()]), both);
        let mut fatter = a.clone();
        fatter.memory_bytes = Some(4096);
        assert_eq!(seen(&mut before, vec![fatter, b]), []);
        let changed = [
            (ProcessEventKind::Changed, "a".to_owned()),
            (ProcessEventKind::Gone, "b".to_owned()),
        ];
        assert_eq!(seen(&mut before, vec![process("a", "processing")]), changed);
        assert_eq!(
            seen(&mut before, vec![]),
            [(ProcessEventKind::Gone, "a".to_owned())]
        );
    }

    #[test]
    fn watch_line_shows_the_current_state_of_a_process() {
        let now = Timestamp::from_unix_millis(1_000_000);
        let plain = Palette::new(false);
        let mut process = process("clerk", "crashLoopBackOff");
        (process.pid, process.consecutive_crashes) = (None, 6);
        process.next_start_at = Some(Timestamp::from_unix_millis(1_002_000));
        let mut change = ProcessEvent {
            what: ProcessEventKind::Changed,
            process,
        };
        let told = line(&change, now, plain);
        let (_, told) = told.split_once("  ").unwrap();
        assert_eq!(
            told,
            "agent clerk/main  crashLoopBackOff  1 pending  6 crashes  starts again in 2.0s"
        );
        change.what = ProcessEventKind::Gone;
        assert!(line(&change, now, plain).ends_with("agent clerk/main  gone"));
    }
}
