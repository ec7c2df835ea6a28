//! Readers of task logs.

use std::collections::HashSet;

use goondan_protocol::task::{TaskItem, TaskItemContent};

use super::Tasks;
use crate::RequestToken;
use crate::exchange::tasks::{EndOfLogPolicy, LogPosition, LogText};
use crate::exchange::{TaskRef, TaskWork};
use crate::fleet::Fleet;
use crate::limits::TASK_ITEMS_WAITING_MAX;

impl Tasks {
    /// Reads a part of a log or of the stream for a client, or waits for new lines.
    pub(super) fn read_log(
        &mut self,
        fleet: &mut Fleet,
        token: RequestToken,
        at: &TaskRef,
        (position, waits): (LogPosition, bool),
    ) {
        let at_end = match (self.is_over(fleet, at), waits) {
            (true, _) => EndOfLogPolicy::Over,
            (false, true) => EndOfLogPolicy::Wait,
            (false, false) => EndOfLogPolicy::Answer,
        };
        if at_end == EndOfLogPolicy::Wait {
            self.readers.insert(token);
        }
        let work = TaskWork::ReadLog {
            token,
            at: at.clone(),
            position,
            at_end,
        };
        Self::work(fleet, work);
    }

    /// Adds contents to a task's stream. If too many are not written yet, they are dropped and
    /// counted.
    pub(super) fn add_to_stream(
        &mut self,
        fleet: &mut Fleet,
        at: &TaskRef,
        run: u64,
        contents: Vec<TaskItemContent>,
    ) {
        let now = fleet.now().wall;
        let Some(entry) = self.entry_mut(at).filter(|_| !contents.is_empty()) else {
            return;
        };
        let count = contents.len();
        if entry.items_waiting >= TASK_ITEMS_WAITING_MAX {
            entry.items_dropped = entry.items_dropped.saturating_add(count as u64);
            return;
        }
        let dropped = std::mem::take(&mut entry.items_dropped);
        let gap = (dropped > 0).then_some(TaskItemContent::Gap { items: dropped });
        let items = gap.into_iter().chain(contents).map(|content| TaskItem {
            at: now,
            run: Some(run),
            content,
        });
        let items: Vec<TaskItem> = items.collect();
        entry.items_waiting += items.len();
        Self::log(fleet, at, LogText::Items(items));
    }

    /// True if the task has ended or cannot be read, and none of its processes runs: its logs do not
    /// grow.
    fn is_over(&self, fleet: &Fleet, at: &TaskRef) -> bool {
        let runs = fleet.run_of(&at.workspace_id, &at.task_id).is_some();
        self.entry(at).is_some_and(|entry| {
            let state = entry.durable();
            let has_ended = state.is_some_and(|state| state.status().is_final());
            let is_unreadable = entry.is_unreadable(fleet.now().mono_ms);
            (has_ended || is_unreadable) && !runs && entry.conversing.is_none()
        })
    }

    /// Ends the waits of readers if a task's logs are complete.
    pub(super) fn end_logs(&self, fleet: &mut Fleet, at: &TaskRef) {
        if !self.readers.is_empty() && self.is_over(fleet, at) {
            Self::work(fleet, TaskWork::EndLogs { at: at.clone() });
        }
    }

    /// Drops disconnected clients.
    pub(crate) fn forget_readers(&mut self, fleet: &mut Fleet, gone: &HashSet<RequestToken>) {
        let tokens: Vec<RequestToken> = self.readers.intersection(gone).copied().collect();
        self.readers.retain(|token| !gone.contains(token));
        if !tokens.is_empty() {
            Self::work(fleet, TaskWork::ForgetReaders { tokens });
        }
    }
}
