//! Questions that await a user's answer (pure): the open questions, their deadlines, and the time
//! that their calls spend waiting.
//!
//! # Invariants
//!
//! * A question closes once: by an answer, by its timeout, or because its call ended.
//! * At most [`MAX_QUESTIONS_PER_CONNECTION`] of one connection are open, [`QUESTIONS_OPEN_MAX`] in
//!   all, and one call asks at most [`QUESTIONS_PER_CALL_MAX`].
//! * The time that a call waits for answers is reported once, when its last question closes. It
//!   does not count toward the call's timeout.

use std::collections::{BTreeMap, VecDeque};

use goondan_protocol::call::CallId;
use goondan_protocol::control::{QuestionInfo, QuestionSource};
use goondan_protocol::ids::{ConnectionName, InstanceRef, QuestionId, StepId, WorkspaceId};
use goondan_protocol::limits::{
    MAX_QUESTION_TEXT_BYTES, MAX_QUESTION_TIMEOUT_MS, MAX_QUESTIONS_PER_CONNECTION,
};
use goondan_protocol::question::{QuestionAsk, QuestionForm};
use goondan_protocol::trace::TraceContext;

use super::ProcessId;
use crate::exchange::ChildRequest;
use crate::limits::{QUESTIONS_OPEN_MAX, QUESTIONS_PER_CALL_MAX};

#[derive(Debug, Clone)]
pub(crate) struct OpenQuestion {
    /// The question as clients see it.
    pub(crate) info: QuestionInfo,
    /// The form of the answer.
    pub(crate) form: QuestionForm,
    pub(crate) call_id: CallId,
    /// The process of the connector, and its id for the question.
    pub(crate) requester: ChildRequest,
    /// The step of the call, for the trace.
    pub(crate) step_id: Option<StepId>,
    /// Trace context of the call.
    pub(crate) trace: Option<TraceContext>,
    /// When the question was asked, on the monotonic clock.
    pub(crate) asked_ms: u64,
    /// Deadline, on the monotonic clock.
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

    pub(super) fn connection(&self) -> &ConnectionName {
        let QuestionSource::Mcp { connection, .. } = &self.info.source;
        connection
    }
}

#[derive(Debug, Default)]
struct QuestionCounts {
    count: u32,
    open: u32,
    /// Start of the current period with an open question.
    since_ms: u64,
}

#[derive(Debug, Default)]
pub(super) struct Questions {
    open: BTreeMap<QuestionId, OpenQuestion>,
    /// Outcomes of the latest closed questions, for people who answer late.
    outcomes: VecDeque<(QuestionId, String)>,
    calls: BTreeMap<CallId, QuestionCounts>,
}

#[derive(Debug)]
pub(super) struct ClosedQuestion {
    pub(super) question: OpenQuestion,
    /// How long it was open, in milliseconds.
    pub(super) waited_ms: u64,
    /// How long its call waited for answers, in milliseconds; `None` while the call has other open
    /// questions.
    pub(super) held_ms: Option<u64>,
}

/// Validates a question by itself: returns the form of its answer and its timeout in milliseconds.
///
/// # Errors
///
/// The reason the question is invalid.
pub(super) fn judged(ask: &QuestionAsk) -> Result<(QuestionForm, u64), String> {
    let bytes = ask.message.len();
    if ask.message.trim().is_empty() {
        return Err("a question needs a `message`".to_owned());
    }
    if bytes > MAX_QUESTION_TEXT_BYTES {
        return Err(format!(
            "the `message` has {bytes} bytes; at most {MAX_QUESTION_TEXT_BYTES} are allowed"
        ));
    }
    let form = QuestionForm::of_schema(&ask.schema);
    let form = form.map_err(|problem| format!("invalid question: {problem}"))?;
    Ok((form, ask.timeout_ms.clamp(1, MAX_QUESTION_TIMEOUT_MS)))
}

impl Questions {
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Open questions of one workspace or of all, ordered by id.
    pub(super) fn all<'q>(
        &'q self,
        only: Option<&'q WorkspaceId>,
    ) -> impl Iterator<Item = &'q OpenQuestion> {
        let open = self.open.values();
        open.filter(move |open| only.is_none_or(|only| *only == open.info.workspace_id))
    }

    /// Ids of a conversation's open questions.
    pub(super) fn of_instance(&self, at: &InstanceRef) -> Vec<QuestionId> {
        let of_it = self.all(Some(&at.workspace_id));
        let of_it = of_it.filter(|open| open.info.instance_key == at.instance_key);
        of_it.map(|open| open.info.question_id.clone()).collect()
    }

    pub(super) fn get(&self, id: &WorkspaceId, question_id: &QuestionId) -> Option<&OpenQuestion> {
        let open = self.open.get(question_id);
        open.filter(|open| open.info.workspace_id == *id)
    }

    /// True if no open question has this id.
    pub(super) fn is_free(&self, question_id: &QuestionId) -> bool {
        !self.open.contains_key(question_id)
    }

    /// The open question that a connector asked with this request id.
    pub(super) fn asked_as(&self, process: ProcessId, request_id: u64) -> Option<QuestionId> {
        let requester = ChildRequest {
            process,
            request_id: Some(request_id),
        };
        let mut open = self.open.values();
        let found = open.find(|open| open.requester == requester)?;
        Some(found.info.question_id.clone())
    }

    /// Checks the limits for one more question.
    ///
    /// # Errors
    ///
    /// The limit that was reached.
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
                "a call can ask at most {QUESTIONS_PER_CALL_MAX} questions"
            ));
        }
        if of_connection.count() >= MAX_QUESTIONS_PER_CONNECTION {
            return Err(format!(
                "this connection already has {MAX_QUESTIONS_PER_CONNECTION} open questions"
            ));
        }
        if self.open.len() >= QUESTIONS_OPEN_MAX {
            return Err(format!("{QUESTIONS_OPEN_MAX} questions are already open"));
        }
        Ok(())
    }

    /// Adds a question. Its id must be free.
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

    /// Closes a question; `None` if it is not open.
    pub(super) fn close(
        &mut self,
        question_id: &QuestionId,
        now_ms: u64,
    ) -> Option<ClosedQuestion> {
        let question = self.open.remove(question_id)?;
        let mut held_ms = None;
        if let Some(asked) = self.calls.get_mut(&question.call_id) {
            asked.open = asked.open.saturating_sub(1);
            if asked.open == 0 {
                held_ms = Some(now_ms.saturating_sub(asked.since_ms));
            }
        }
        Some(ClosedQuestion {
            waited_ms: now_ms.saturating_sub(question.asked_ms),
            held_ms,
            question,
        })
    }

    /// Records the outcome of a closed question.
    pub(super) fn note_outcome(&mut self, question_id: &QuestionId, how: String) {
        if self.outcomes.len() >= QUESTIONS_OPEN_MAX {
            self.outcomes.pop_front();
        }
        self.outcomes.push_back((question_id.clone(), how));
    }

    /// Outcome of a question that was closed lately.
    pub(super) fn outcome_of(&self, question_id: &QuestionId) -> Option<&str> {
        let mut outcomes = self.outcomes.iter();
        let found = outcomes.find(|(of, _)| of == question_id)?;
        Some(&found.1)
    }

    /// True if a call waits for an answer, which pauses its timeout.
    pub(super) fn holds(&self, call_id: CallId) -> bool {
        self.calls.get(&call_id).is_some_and(|asked| asked.open > 0)
    }

    /// Questions whose deadline has passed.
    pub(super) fn due(&self, now_ms: u64) -> Vec<QuestionId> {
        let late = self.open.values().filter(|open| open.due_ms <= now_ms);
        late.map(|open| open.info.question_id.clone()).collect()
    }

    /// Drops the counts of calls that have ended.
    pub(super) fn forget_calls(&mut self, is_open: impl Fn(CallId) -> bool) {
        self.calls
            .retain(|call_id, asked| asked.open > 0 || is_open(*call_id));
    }
}

#[cfg(test)]
#[path = "open_questions_tests.rs"]
mod tests;
