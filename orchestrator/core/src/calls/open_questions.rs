//! Questions that wait for a person's answer (pure): which there are, how long each waits, and how long
//! the calls wait that they came under.
//!
//! # Invariants
//!
//! * A question is closed once: by an answer, by its time, or because its call is over.
//! * At most [`MAX_QUESTIONS_PER_CONNECTION`] of one connection are open, [`QUESTIONS_OPEN_MAX`] in all, and
//!   one call asks at most [`QUESTIONS_PER_CALL_MAX`].
//! * The time in which a call has a question open is told when its last one closes, once: it does not count
//!   towards the call's own.

use std::collections::BTreeMap;

use goondan_protocol::call::CallId;
use goondan_protocol::control::{QuestionInfo, QuestionSource};
use goondan_protocol::ids::{ConnectionName, InstanceRef, QuestionId, StepId, WorkspaceId};
use goondan_protocol::limits::{
    MAX_QUESTION_TEXT_BYTES, MAX_QUESTION_TIMEOUT_MS, MAX_QUESTIONS_PER_CONNECTION,
};
use goondan_protocol::question::{QuestionAsk, QuestionForm};
use goondan_protocol::trace::TraceContext;

use super::ProcessId;
use crate::limits::{QUESTIONS_OPEN_MAX, QUESTIONS_PER_CALL_MAX};

/// One question that waits.
#[derive(Debug, Clone)]
pub(crate) struct OpenQuestion {
    /// What clients are told of it.
    pub(crate) info: QuestionInfo,
    /// What an answer holds.
    pub(crate) form: QuestionForm,
    /// The call it came under.
    pub(crate) call_id: CallId,
    /// The connector that asks, and its number for the question.
    pub(crate) requester: (ProcessId, Option<u64>),
    /// The step of the call, for its place in the trace.
    pub(crate) step_id: Option<StepId>,
    /// Where in a trace the call belongs.
    pub(crate) trace: Option<TraceContext>,
    /// When it was asked, on the clock of delays.
    pub(crate) asked_ms: u64,
    /// When its time is up.
    pub(crate) due_ms: u64,
}

impl OpenQuestion {
    /// The conversation whose turn waits.
    pub(super) fn at(&self) -> InstanceRef {
        InstanceRef {
            workspace_id: self.info.workspace_id.clone(),
            instance_key: self.info.instance_key.clone(),
        }
    }

    /// The connection that asks.
    pub(super) fn connection(&self) -> &ConnectionName {
        let QuestionSource::Mcp { connection, .. } = &self.info.source;
        connection
    }
}

/// What a call has asked so far.
#[derive(Debug, Default)]
struct Asked {
    count: u32,
    open: u32,
    /// Since when it has had a question open.
    since_ms: u64,
}

/// The questions that wait.
#[derive(Debug, Default)]
pub(super) struct Questions {
    open: BTreeMap<QuestionId, OpenQuestion>,
    calls: BTreeMap<CallId, Asked>,
}

/// A question that waits no longer.
#[derive(Debug)]
pub(super) struct Closed {
    pub(super) question: OpenQuestion,
    /// How long it waited, in milliseconds.
    pub(super) waited_ms: u64,
    /// How long its call waited for answers, in milliseconds, if it has no question open any more.
    pub(super) held_ms: Option<u64>,
}

/// What is asked, as far as a question alone can be judged: the form of its answer, and how long it waits,
/// in milliseconds.
///
/// # Errors
///
/// Why nobody can be asked that, in words.
pub(super) fn judged(ask: &QuestionAsk) -> Result<(QuestionForm, u64), String> {
    let bytes = ask.message.len();
    if ask.message.trim().is_empty() {
        return Err("a question needs a `message`".to_owned());
    }
    if bytes > MAX_QUESTION_TEXT_BYTES {
        return Err(format!(
            "the `message` has {bytes} bytes; at most {MAX_QUESTION_TEXT_BYTES} are taken"
        ));
    }
    let form = QuestionForm::of_schema(&ask.schema);
    let form = form.map_err(|problem| format!("no person can be asked that: {problem}"))?;
    Ok((form, ask.timeout_ms.clamp(1, MAX_QUESTION_TIMEOUT_MS)))
}

impl Questions {
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Those that wait, of one workspace or of all, by their ids.
    pub(super) fn all<'q>(
        &'q self,
        only: Option<&'q WorkspaceId>,
    ) -> impl Iterator<Item = &'q OpenQuestion> {
        let open = self.open.values();
        open.filter(move |open| only.is_none_or(|only| *only == open.info.workspace_id))
    }

    /// The ids of those that wait for the answer to a conversation's turn.
    pub(super) fn of_instance(&self, at: &InstanceRef) -> Vec<QuestionId> {
        let of_it = self.all(Some(&at.workspace_id));
        let of_it = of_it.filter(|open| open.info.instance_key == at.instance_key);
        of_it.map(|open| open.info.question_id.clone()).collect()
    }

    /// The one of this id in a workspace.
    pub(super) fn get(&self, id: &WorkspaceId, question_id: &QuestionId) -> Option<&OpenQuestion> {
        let open = self.open.get(question_id);
        open.filter(|open| open.info.workspace_id == *id)
    }

    /// Whether this id is free.
    pub(super) fn is_free(&self, question_id: &QuestionId) -> bool {
        !self.open.contains_key(question_id)
    }

    /// The one that a connector asked under this number.
    pub(super) fn asked_as(&self, process: ProcessId, request_id: u64) -> Option<QuestionId> {
        let requester = (process, Some(request_id));
        let mut open = self.open.values();
        let found = open.find(|open| open.requester == requester)?;
        Some(found.info.question_id.clone())
    }

    /// Whether one more may be asked.
    ///
    /// # Errors
    ///
    /// Why not, in words.
    pub(super) fn has_room(
        &self,
        id: &WorkspaceId,
        connection: &ConnectionName,
        call_id: CallId,
    ) -> Result<(), String> {
        let of_connection = self
            .all(Some(id))
            .filter(|open| open.connection() == connection);
        let asked = self.calls.get(&call_id).map_or(0, |asked| asked.count);
        if asked >= QUESTIONS_PER_CALL_MAX {
            return Err(format!(
                "one call asks at most {QUESTIONS_PER_CALL_MAX} questions"
            ));
        }
        if of_connection.count() >= MAX_QUESTIONS_PER_CONNECTION {
            return Err(format!(
                "{MAX_QUESTIONS_PER_CONNECTION} questions of this connection wait already"
            ));
        }
        if self.open.len() >= QUESTIONS_OPEN_MAX {
            return Err(format!("{QUESTIONS_OPEN_MAX} questions wait already"));
        }
        Ok(())
    }

    /// Keeps a question. Its id must be free.
    pub(super) fn ask(&mut self, question: OpenQuestion) {
        let asked = self.calls.entry(question.call_id).or_default();
        if asked.open == 0 {
            asked.since_ms = question.asked_ms;
        }
        asked.open += 1;
        asked.count = asked.count.saturating_add(1);
        self.open
            .insert(question.info.question_id.clone(), question);
    }

    /// Lets a question wait no longer; none if it does not.
    pub(super) fn close(&mut self, question_id: &QuestionId, now_ms: u64) -> Option<Closed> {
        let question = self.open.remove(question_id)?;
        let mut held_ms = None;
        if let Some(asked) = self.calls.get_mut(&question.call_id) {
            asked.open = asked.open.saturating_sub(1);
            if asked.open == 0 {
                held_ms = Some(now_ms.saturating_sub(asked.since_ms));
            }
        }
        Some(Closed {
            waited_ms: now_ms.saturating_sub(question.asked_ms),
            held_ms,
            question,
        })
    }

    /// Whether a call waits for an answer: its own time stands still.
    pub(super) fn holds(&self, call_id: CallId) -> bool {
        self.calls.get(&call_id).is_some_and(|asked| asked.open > 0)
    }

    /// Those whose time is up.
    pub(super) fn due(&self, now_ms: u64) -> Vec<QuestionId> {
        let late = self.open.values().filter(|open| open.due_ms <= now_ms);
        late.map(|open| open.info.question_id.clone()).collect()
    }

    /// Forgets what calls have asked that are over.
    pub(super) fn forget_calls(&mut self, is_open: impl Fn(CallId) -> bool) {
        self.calls
            .retain(|call_id, asked| asked.open > 0 || is_open(*call_id));
    }
}

#[cfg(test)]
#[path = "open_questions_tests.rs"]
mod tests;
