//! Which events a conversation holds the answers of (`MSG-8`, `MSG-13`).
//!
//! Every fold names the events that its turn answered, beside the checksums of the messages it added
//! (see [`super::sums`]). So that an event is answered is known from two files: the inbox, whose `done`
//! says so, and the conversation itself. When the inbox lost its end, was emptied or is an older copy,
//! what the conversation says goes: an event whose answer is in it is over, and never runs again. How
//! its turn ended cannot be told any more; whoever asks gets `E_OUTCOME_LOST`.

use std::collections::BTreeMap;

use goondan_durable::{Finding, FindingKind};
use goondan_protocol::ids::TurnId;

use super::answer::Answer;
use super::inbox::Table;
use super::turn::TurnEvent;
use super::{InstanceStore, redo};
use crate::error::StoreError;

/// Ids that a finding names at most; the others are counted.
const NAMED_IN_FINDING: usize = 3;

/// What the inbox does not know of answers that the conversation holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Unknown {
    /// Of events that wait, or are parked, by the inbox.
    pub waiting: Vec<Answer>,
    /// Of events that the inbox knows nothing of, and should.
    pub forgotten: Vec<Answer>,
}

impl Unknown {
    /// Holds what the conversation names against the inbox.
    pub(super) fn find(answers: Vec<Answer>, inbox: &Table) -> Self {
        let mut unknown = Self::default();
        // An event that was named twice is in the inbox once.
        let by_id: BTreeMap<_, _> = answers
            .into_iter()
            .map(|answer| (answer.event_id.clone(), answer))
            .collect();
        for answer in by_id.into_values() {
            match inbox.seq_of_pending(&answer.event_id) {
                // One with another number was accepted again after it had been forgotten.
                Some(seq) if answer.inbox_seq == seq || answer.inbox_seq == 0 => {
                    unknown.waiting.push(Answer {
                        inbox_seq: seq,
                        ..answer
                    });
                }
                Some(_) => {}
                None if inbox.should_know(&answer.event_id, answer.inbox_seq) => {
                    unknown.forgotten.push(answer);
                }
                None => {}
            }
        }
        unknown.forgotten.sort_by_key(|answer| answer.inbox_seq);
        unknown
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.forgotten.is_empty()
    }

    /// What is to be said of the inbox.
    pub(super) fn findings(&self, path: &std::path::Path) -> Vec<Finding> {
        let told = |answers: &[Answer], what: &str| {
            let events: Vec<String> = answers
                .iter()
                .take(NAMED_IN_FINDING)
                .map(|answer| format!("`{}`", answer.event_id))
                .collect();
            let more = answers.len() - events.len();
            let more = if more > 0 {
                format!(" and {more} more")
            } else {
                String::new()
            };
            let problem = format!(
                "{what}, though the conversation holds the answer: event {}{more}; not run again, and \
                 asking for the outcome gives E_OUTCOME_LOST",
                events.join(", ")
            );
            Finding::new(path, FindingKind::MissingRecords, problem)
        };
        let waiting = (!self.waiting.is_empty())
            .then(|| told(&self.waiting, "the record that an event is done is missing"));
        let forgotten = (!self.forgotten.is_empty())
            .then(|| told(&self.forgotten, "all records of an event are missing"));
        waiting.into_iter().chain(forgotten).collect()
    }
}

impl InstanceStore {
    /// Has the inbox know of every event that it is over whose answer the conversation holds. Called
    /// when no commit is pending. Durable when it returns.
    pub(super) fn restore_answers(&mut self) -> Result<(), StoreError> {
        if self.base.answers_are_known_to(&self.inbox)? {
            return Ok(());
        }
        self.restore_every_answer()
    }

    /// The same of an inbox that was written anew, which looks whole whatever was left out.
    pub(super) fn restore_every_answer(&mut self) -> Result<(), StoreError> {
        let unknown = Unknown::find(self.base.answers()?, self.inbox.table());
        if unknown.is_empty() {
            return Ok(());
        }
        self.findings.extend(unknown.findings(self.inbox.path()));
        let outcome = redo::outcome_lost();
        let at = self.metadata.updated_at;
        for answer in unknown.forgotten.iter().chain(&unknown.waiting) {
            let event = TurnEvent {
                event_id: answer.event_id.clone(),
                inbox_seq: answer.inbox_seq,
            };
            self.inbox.finish(&event, &answer.turn_id, at, &outcome)?;
        }
        self.inbox.sync()
    }

    /// Names the answers in the conversation that only the inbox knows of: an earlier version named
    /// none, and a file of checksums that was lost takes its names along. Durable when it returns.
    pub(super) fn name_answers(&mut self) -> Result<(), StoreError> {
        if self.base.count() == 0 || self.base.names_answers()? {
            return Ok(());
        }
        let answers = self.inbox.answers()?;
        self.base.name(&answers)
    }

    /// Whether the conversation itself says that it holds a turn, and is as long as its checksums say.
    pub(super) fn holds_turn(&mut self, turn_id: &TurnId) -> Result<bool, StoreError> {
        if self.base.covered() != Some(self.base.len()) {
            return Ok(false);
        }
        self.base.names_turn(turn_id)
    }
}
