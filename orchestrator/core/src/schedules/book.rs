//! All schedules of one conversation, as stored, and their changes.

use goondan_connectors::schedule::Ledger;
use goondan_protocol::ids::ScheduleId;
use goondan_protocol::schedule::ScheduleTime;
use goondan_protocol::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::record::ScheduleRecord;
use crate::limits::SCHEDULES_ENDED_REMEMBERED;

/// All schedules of one conversation. Each change is stored as a whole.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Book {
    /// The schedules, in the order of their creation.
    #[serde(default)]
    pub(super) schedules: Vec<ScheduleRecord>,
    /// The latest schedules that ended, oldest first. A tool call that is repeated after a crash
    /// must not create one of them again.
    #[serde(default)]
    pub(super) ended: Vec<ScheduleId>,
}

/// A change of a book.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum BookChange {
    /// None: the stored content may differ after a failed write.
    Rewrite,
    Add(Box<ScheduleRecord>),
    Remove(ScheduleId),
    /// Changes the time of a schedule with a single occurrence.
    Move(ScheduleId, Timestamp),
    /// Replaces the ledger of a schedule.
    Settle(ScheduleId, Box<Ledger>),
    /// An occurrence was submitted. It is the only one of a schedule without a ledger.
    Submitted(ScheduleId, Timestamp),
}

impl Book {
    pub(super) fn get(&self, id: &ScheduleId) -> Option<&ScheduleRecord> {
        self.schedules.iter().find(|it| it.schedule_id == *id)
    }

    /// True if the schedule existed and ended recently.
    pub(super) fn has_ended(&self, id: &ScheduleId) -> bool {
        self.ended.contains(id)
    }

    /// True if a change is of a schedule that no longer exists.
    pub(super) fn is_late(&self, change: &BookChange) -> bool {
        match change {
            BookChange::Remove(id) | BookChange::Move(id, _) => self.get(id).is_none(),
            BookChange::Rewrite
            | BookChange::Add(_)
            | BookChange::Settle(..)
            | BookChange::Submitted(..) => false,
        }
    }

    /// The book after a change. A change of a schedule that no longer exists has no effect.
    pub(super) fn after(&self, change: &BookChange) -> Self {
        let mut book = self.clone();
        match change {
            BookChange::Rewrite => {}
            BookChange::Add(record) => book.schedules.push((**record).clone()),
            BookChange::Remove(id) => book.end(id),
            BookChange::Move(id, at) => {
                if let Some(record) = book.get_mut(id) {
                    record.time = ScheduleTime::Once { at: *at };
                }
            }
            BookChange::Settle(id, ledger) => {
                if let Some(record) = book.get_mut(id) {
                    record.ledger = Some((**ledger).clone());
                }
            }
            BookChange::Submitted(id, at) => match book.get_mut(id).map(|it| &mut it.ledger) {
                Some(Some(ledger)) => *ledger = ledger.clone().with(*at),
                Some(None) => book.end(id),
                None => {}
            },
        }
        book
    }

    fn get_mut(&mut self, id: &ScheduleId) -> Option<&mut ScheduleRecord> {
        self.schedules.iter_mut().find(|it| it.schedule_id == *id)
    }

    fn end(&mut self, id: &ScheduleId) {
        let before = self.schedules.len();
        self.schedules.retain(|it| it.schedule_id != *id);
        if self.schedules.len() < before {
            self.ended.push(id.clone());
            let surplus = self.ended.len().saturating_sub(SCHEDULES_ENDED_REMEMBERED);
            self.ended.drain(..surplus);
        }
    }
}
