//! Readers of task logs.

use std::collections::HashSet;

use goondan_protocol::control::ReadTaskLog;

use super::Tasks;
use crate::RequestToken;
use crate::exchange::tasks::AtEnd;
use crate::exchange::{TaskRef, TaskWork};
use crate::fleet::Fleet;

impl Tasks {
    /// Reads a part of a log for a client, or waits for new lines.
    pub(super) fn read_log(
        &mut self,
        fleet: &mut Fleet,
        token: RequestToken,
        at: &TaskRef,
        read: &ReadTaskLog,
    ) {
        let at_end = match (self.is_over(fleet, at), read.wait) {
            (true, _) => AtEnd::Over,
            (false, true) => AtEnd::Wait,
            (false, false) => AtEnd::Answer,
        };
        if at_end == AtEnd::Wait {
            self.readers.insert(token);
        }
        let work = TaskWork::ReadLog {
            token,
            at: at.clone(),
            log: read.log,
            offset: read.offset,
            at_end,
        };
        Self::work(fleet, work);
    }

    /// True if the task has ended and none of its processes runs, so its logs are complete.
    fn is_over(&self, fleet: &Fleet, at: &TaskRef) -> bool {
        let runs = fleet.run_of(&at.workspace_id, &at.task_id).is_some();
        self.entry(at).is_some_and(|entry| {
            let state = entry.durable();
            let has_ended = state.is_some_and(|state| state.status().is_final());
            has_ended && !runs && entry.conversing.is_none()
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
