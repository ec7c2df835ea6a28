//! Begins of turns that are reported, but only in memory.
//!
//! The begin of a turn becomes durable with the first event of the turn. A failed write closes the
//! files of the instance, and with them the records in memory. The process still works on the turn,
//! so its begin is staged again when the instance is reopened (`MSG-10`).

use goondan_protocol::ids::InstanceRef;

use super::Worker;
use super::operation::BeginTurn;
use crate::instance::{InstanceStore, OpenTurn};

/// The begin of a turn, for a repetition.
#[derive(Debug, Clone)]
pub(super) struct UnwrittenBegin {
    begin: BeginTurn,
    attempt: u32,
}

impl UnwrittenBegin {
    pub(super) fn new(begin: BeginTurn, open: &OpenTurn) -> Self {
        let attempt = open.attempt;
        Self { begin, attempt }
    }

    /// True if the files of its instance do not contain it.
    fn is_missing_in(&self, store: &InstanceStore) -> bool {
        store
            .open_turn()
            .is_none_or(|open| open.attempt < self.attempt)
    }
}

impl Worker {
    /// Closes the files of an instance, for example after a failed write. Its next use reopens them.
    pub(super) fn close_files(&mut self, instance: &InstanceRef) {
        let begin = self.open.remove(instance).and_then(|it| it.reported_begin);
        if let Some(begin) = begin {
            self.unwritten_begins.insert(instance.clone(), begin);
        }
    }

    /// Stages the begin that was in memory when writing failed, if the files do not contain it.
    pub(super) fn begin_again(&mut self, instance: &InstanceRef) {
        let Some(unwritten) = self.unwritten_begins.remove(instance) else {
            return;
        };
        let Some(held) = self.open.get_mut(instance) else {
            return;
        };
        if !unwritten.is_missing_in(&held.store) {
            return;
        }
        match held.begin(unwritten.begin.clone()) {
            Ok(_) => held.reported_begin = held.staged_begin.take(),
            Err(error) => tracing::warn!(
                workspace_id = %instance.workspace_id,
                instance_key = %instance.instance_key,
                turn_id = %unwritten.begin.turn_id,
                error = &error as &dyn std::error::Error,
                "the begin of a turn was lost with a failed write; its event runs again"
            ),
        }
    }
}
