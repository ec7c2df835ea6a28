//! Answers of a conversation, matched with the inbox (`MSG-8`, `MSG-13`).
//!
//! Every fold lists the events that its turn answered, beside the checksums of the messages it
//! added (see [`super::base_checksums`]). So two files record that an event is answered: the inbox
//! with `done`, and the conversation itself. When the inbox was truncated, emptied or replaced by
//! an older copy, the conversation decides: an event with an answer in it is finished and never
//! runs again. The outcome of its turn is lost, and requests for it get `E_OUTCOME_LOST`.

use std::collections::BTreeMap;

use goondan_durable::{Finding, FindingKind};
use goondan_protocol::ids::TurnId;

use super::answer::AnswerRef;
use super::inbox::Table;
use super::turn::TurnEvent;
use super::{InstanceStore, redo};
use crate::error::StoreError;

/// Most ids listed in a finding; the others are counted.
const NAMED_IN_FINDING: usize = 3;

/// Answers in the conversation that the inbox lacks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct MissingAnswers {
    /// Answers to events that are waiting or parked in the inbox.
    pub waiting: Vec<AnswerRef>,
    /// Answers to events that are missing in the inbox.
    pub forgotten: Vec<AnswerRef>,
}

impl MissingAnswers {
    /// Compares the answers listed by the conversation with the inbox.
    pub(super) fn find(answers: Vec<AnswerRef>, inbox: &Table) -> Self {
        let mut unknown = Self::default();
        // An event that is listed twice is in the inbox once.
        let by_id: BTreeMap<_, _> = answers
            .into_iter()
            .map(|answer| (answer.event_id.clone(), answer))
            .collect();
        for answer in by_id.into_values() {
            match inbox.seq_of_pending(&answer.event_id) {
                // An event with another number was forgotten and then accepted again.
                Some(seq) if answer.inbox_seq == seq || answer.inbox_seq == 0 => {
                    unknown.waiting.push(AnswerRef {
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

    /// Returns the findings about the inbox.
    pub(super) fn findings(&self, path: &std::path::Path) -> Vec<Finding> {
        let told = |answers: &[AnswerRef], what: &str| {
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
            .then(|| told(&self.waiting, "the `done` record of an event is missing"));
        let forgotten = (!self.forgotten.is_empty())
            .then(|| told(&self.forgotten, "all records of an event are missing"));
        waiting.into_iter().chain(forgotten).collect()
    }
}

impl InstanceStore {
    /// Marks events as done in the inbox if the conversation holds their answers. Called when no
    /// commit is pending. Durable when it returns.
    pub(super) fn restore_answers(&mut self) -> Result<(), StoreError> {
        if self.base.answers_are_known_to(&self.inbox)? {
            return Ok(());
        }
        self.restore_every_answer()
    }

    /// As [`Self::restore_answers`], for a rewritten inbox, which looks complete even if records
    /// were left out.
    pub(super) fn restore_every_answer(&mut self) -> Result<(), StoreError> {
        let unknown = MissingAnswers::find(self.base.answers()?, self.inbox.table());
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

    /// Adds answers to the conversation's list that only the inbox has. The list is missing if an
    /// earlier version wrote it or the checksum file was lost. Durable when it returns.
    pub(super) fn name_answers(&mut self) -> Result<(), StoreError> {
        if self.base.count() == 0 || self.base.names_answers()? {
            return Ok(());
        }
        let answers = self.inbox.answers()?;
        self.base.name(&answers)
    }

    /// True if the conversation lists the turn and its length matches its checksums.
    pub(super) fn holds_turn(&mut self, turn_id: &TurnId) -> Result<bool, StoreError> {
        if self.base.covered() != Some(self.base.len()) {
            return Ok(false);
        }
        self.base.names_turn(turn_id)
    }
}
