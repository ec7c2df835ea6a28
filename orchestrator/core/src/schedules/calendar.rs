//! Schedules of one conversation while the daemon runs: queued changes, and due occurrences.
//!
//! One change is written at a time, and one occurrence is submitted at a time. An occurrence is
//! recorded after its input is durable. If the daemon is killed in between, it is submitted again
//! under the same id, which is a duplicate.

use std::collections::VecDeque;

use goondan_connectors::schedule::Ledger;
use goondan_protocol::control::ScheduleInfo;
use goondan_protocol::ids::{AgentName, InstanceRef, ScheduleId};
use goondan_protocol::time::Timestamp;

use super::book::{Book, BookChange};
use super::record::ScheduleRecord;
use crate::RequestToken;
use crate::exchange::schedules::Occurrence;
use crate::fleet::agent_replies::pending_replies::Requester;

/// Recipient of the result of a change.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ChangeReply {
    None,
    Agent(Requester),
    Person {
        token: RequestToken,
        /// Process of the client, for the audit log.
        pid: Option<u32>,
        /// The schedule before the change; `None` if it is new.
        before: Option<Box<ScheduleInfo>>,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct QueuedChange {
    pub(super) change: BookChange,
    pub(super) reply: ChangeReply,
}

/// Next step of a calendar.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    Wait,
    /// Store the ledger of a schedule; `skipped` occurrences are lost permanently.
    Settle {
        schedule_id: ScheduleId,
        ledger: Box<Ledger>,
        skipped: u64,
    },
    /// Remove a schedule without occurrences left.
    End {
        schedule_id: ScheduleId,
        skipped: u64,
    },
    Submit {
        occurrence: Occurrence,
        is_late: bool,
        skipped: u64,
    },
    /// Report a schedule that cannot be read.
    Unreadable {
        schedule_id: ScheduleId,
        problem: String,
    },
}

#[derive(Debug)]
pub(super) struct Calendar {
    pub(super) agent: AgentName,
    /// The content on disk.
    pub(super) book: Book,
    /// Reason why the content on disk cannot be read. Nothing is changed then.
    pub(super) damage: Option<String>,
    pub(super) changes: VecDeque<QueuedChange>,
    /// The change that is being written, and its result.
    pub(super) writing: Option<(QueuedChange, Book)>,
    /// The occurrence whose input is on its way.
    pub(super) submitting: Option<Occurrence>,
    /// Time of the next check; `None` if no occurrence is left.
    pub(super) check_at: Option<Timestamp>,
    /// True if a due occurrence that cannot be submitted was reported.
    pub(super) is_reported: bool,
}

impl Calendar {
    pub(super) fn new(agent: AgentName, book: Book, check_at: Timestamp) -> Self {
        Self {
            agent,
            book,
            damage: None,
            changes: VecDeque::new(),
            writing: None,
            submitting: None,
            check_at: Some(check_at),
            is_reported: false,
        }
    }

    /// True if nothing is stored or in progress.
    pub(super) fn is_empty(&self) -> bool {
        self.book.schedules.is_empty()
            && self.damage.is_none()
            && self.changes.is_empty()
            && self.writing.is_none()
            && self.submitting.is_none()
    }

    /// Number of schedules, including those that are being added.
    pub(super) fn count(&self) -> usize {
        let queued = self.changes.iter();
        let queued = queued.chain(self.writing.iter().map(|(change, _)| change));
        let added = queued.filter(|queued| matches!(queued.change, BookChange::Add(_)));
        self.book.schedules.len() + added.count()
    }

    /// The addition of a schedule that is queued or being written.
    pub(super) fn addition_of(&mut self, id: &ScheduleId) -> Option<&mut QueuedChange> {
        let writing = self.writing.iter_mut().map(|(change, _)| change);
        let mut queued = writing.chain(&mut self.changes);
        queued.find(
            |queued| matches!(&queued.change, BookChange::Add(record) if record.schedule_id == *id),
        )
    }

    /// The next step at `now`, and the time of the next check if there is none.
    pub(super) fn step(&self, now: Timestamp) -> (Step, Option<Timestamp>) {
        let mut next: Option<Timestamp> = None;
        let mut unreadable = None;
        for record in &self.book.schedules {
            let schedule_id = record.schedule_id.clone();
            let standing = match record.status(now) {
                Ok(standing) => standing,
                Err(problem) => {
                    unreadable = Some(Step::Unreadable {
                        schedule_id,
                        problem,
                    });
                    continue;
                }
            };
            let skipped = standing.skipped;
            if let Some(ledger) = standing.ledger {
                let step = Step::Settle {
                    schedule_id,
                    ledger: Box::new(ledger),
                    skipped,
                };
                return (step, None);
            }
            if let Some((at, is_late)) = standing.due {
                let step = Step::Submit {
                    occurrence: Occurrence { schedule_id, at },
                    is_late,
                    skipped,
                };
                return (step, None);
            }
            if standing.is_over {
                let step = Step::End {
                    schedule_id,
                    skipped,
                };
                return (step, None);
            }
            next = next.into_iter().chain(standing.next).min();
        }
        (unreadable.unwrap_or(Step::Wait), next)
    }
}

/// Describes a schedule.
pub(super) fn info_of(
    at: &InstanceRef,
    record: &ScheduleRecord,
    now: Timestamp,
    problem: Option<String>,
) -> ScheduleInfo {
    ScheduleInfo {
        workspace_id: at.workspace_id.clone(),
        instance_key: at.instance_key.clone(),
        agent_name: record.agent_name.clone(),
        by_person: record.by_person,
        schedule_id: record.schedule_id.clone(),
        time: record.time.clone(),
        catch_up: record.catch_up,
        input: record.input.clone(),
        created_at: record.created_at,
        next: record.next(now),
        problem,
    }
}
