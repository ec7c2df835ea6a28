//! Questions to users that belong to a call: asking, answering, and withdrawing.
//!
//! [`open_questions`](super::open_questions) stores the open questions. The requester receives
//! exactly one reply for each question: its outcome, or an error.

use goondan_protocol::JsonObject;
use goondan_protocol::call::CallId;
use goondan_protocol::control::{
    AnswerQuestion, ControlError, DeclineQuestion, ErrorCode, ListQuestions, QuestionClosed,
    QuestionDetail, QuestionInfo, QuestionSource, ShowQuestion,
};
use goondan_protocol::ids::{ConnectionName, QuestionId, WorkspaceId};
use goondan_protocol::ipc::ToConnector;
use goondan_protocol::lifecycle::LifecycleEvent;
use goondan_protocol::observe::{RuntimeEvent, RuntimeEventKind as Kind, detail_of};
use goondan_protocol::question::{
    QuestionAction, QuestionAnswered, QuestionAsk, QuestionRefused, QuestionWithdraw,
};
use goondan_protocol::time::Timestamp;
use goondan_protocol::trace::SpanId;
use serde::Deserialize;
use serde_json::{Value, json};

use super::open_questions::{ClosedQuestion, OpenQuestion, judged};
use super::{CallState, Calls, OpenCall};
use crate::bus::queue::{Message, Notice};
use crate::exchange::ChildRequest;
use crate::fleet::Fleet;
use crate::fleet::conversation::Conversation;
use crate::{LogEvent, Peer, ProcessId, RequestToken};

#[derive(Debug)]
pub(super) enum QuestionOutcome {
    Answered(JsonObject),
    /// A user declined to answer.
    Declined,
    TimedOut,
    /// No process can use an answer, for this reason.
    Withdrawn(&'static str),
}

impl QuestionOutcome {
    fn action(&self) -> QuestionAction {
        match self {
            Self::Answered(_) => QuestionAction::Accept,
            Self::Declined => QuestionAction::Decline,
            Self::TimedOut | Self::Withdrawn(_) => QuestionAction::Cancel,
        }
    }

    /// Outcome for display. Only the requester receives the answer itself.
    fn in_words(&self) -> String {
        match self {
            Self::Answered(_) => "answered by a person".to_owned(),
            Self::Declined => "declined by a person".to_owned(),
            Self::TimedOut => "not answered in time".to_owned(),
            Self::Withdrawn(why) => format!("withdrawn: {why}"),
        }
    }
}

/// The part of a call's parameters that names the tool.
#[derive(Deserialize)]
struct ToolNameParam {
    name: String,
}

/// The tool of a call, by the server's name for it.
fn tool_of(call: &OpenCall) -> Option<String> {
    let named: ToolNameParam = serde_json::from_str(call.params.get()).ok()?;
    Some(detail_of(&named.name))
}

/// Reports a question to the watchers of the turn, while the turn is in progress.
fn observe_question(
    fleet: &mut Fleet,
    question: &OpenQuestion,
    kind: Kind,
    duration_ms: Option<u64>,
    detail: &str,
) {
    let (at, timestamp) = (question.at(), fleet.now().wall);
    let Some(turn) = fleet.conversation(&at).and_then(Conversation::turn) else {
        return;
    };
    if question.info.turn_id.as_ref() != Some(&turn.turn_id) {
        return;
    }
    let whole = turn.context.trace;
    let place = match (&question.step_id, &question.info.tool_call_id) {
        (Some(step), Some(call)) => {
            let around = whole.child(SpanId::of_step(step));
            around.child(SpanId::of_call(step, call))
        }
        (Some(step), None) => whole.child(SpanId::of_step(step)),
        (None, _) => whole,
    };
    let info = &question.info;
    let whose = (info.agent_name.clone(), info.instance_key.clone());
    let event = RuntimeEvent {
        step_id: question.step_id.clone(),
        tool_call_id: info.tool_call_id.clone(),
        question_id: Some(info.question_id.clone()),
        duration_ms,
        detail: Some(detail_of(detail)),
        ..RuntimeEvent::new(kind, timestamp, place, whose, turn.turn_id.clone())
    };
    if let Some((workspace, cx)) = fleet.workspace_and_cx(&at.workspace_id) {
        workspace.record_observation(cx, &at, &event);
    }
}

impl Calls {
    /// Handles a connector's question for a call that it executes.
    pub(crate) fn on_question_ask(
        &mut self,
        fleet: &mut Fleet,
        (id, connection): (&WorkspaceId, &ConnectionName),
        request: ChildRequest,
        ask: QuestionAsk,
    ) {
        match self.open_question(fleet, (id, connection), request, ask) {
            Ok(question) => {
                let asked = LifecycleEvent::QuestionAsked {
                    instance_key: question.info.instance_key.clone(),
                    question_id: question.info.question_id.clone(),
                    connection: connection.clone(),
                };
                fleet.announce(id, asked, question.trace);
                let said = question.info.message.clone();
                observe_question(fleet, &question, Kind::QuestionAsked, None, &said);
                self.questions.ask(question);
                fleet.post(Message::Notice(Notice::Decisions(id.clone())));
            }
            Err(message) => {
                let event = LogEvent::warn("question to a person refused");
                let event = event
                    .with("workspaceId", id.as_str())
                    .with("connection", connection.as_str());
                fleet.log(event.with("problem", message.clone()));
                let refused = ToConnector::QuestionRefused(QuestionRefused { message });
                fleet.cx().answer_connector(request, refused);
            }
        }
    }

    fn open_question(
        &mut self,
        fleet: &mut Fleet,
        (id, connection): (&WorkspaceId, &ConnectionName),
        request: ChildRequest,
        ask: QuestionAsk,
    ) -> Result<OpenQuestion, String> {
        let (form, timeout_ms) = judged(&ask)?;
        if let Some(why) = fleet.why_nobody_is_asked(id) {
            return Err(why.to_owned());
        }
        let call = self.open.get(&ask.call_id);
        let call = call.filter(|call| call.process() == Some(request.process));
        let call = call.ok_or("the call of the question has ended")?;
        let place = call.place.as_ref();
        let now = fleet.now();
        let expires_ms = i64::try_from(timeout_ms).unwrap_or(i64::MAX);
        let expires_ms = now.wall.as_unix_millis().saturating_add(expires_ms);
        let mut question = OpenQuestion {
            info: QuestionInfo {
                workspace_id: id.clone(),
                question_id: QuestionId::of_uuid(uuid::Uuid::nil()),
                source: QuestionSource::Mcp {
                    connection: connection.clone(),
                    tool: tool_of(call),
                },
                instance_key: call.at.instance_key.clone(),
                agent_name: call.agent.clone(),
                turn_id: place.map(|place| place.turn_id.clone()),
                tool_call_id: place.and_then(|place| place.tool_call_id.clone()),
                message: ask.message,
                asked_at: now.wall,
                expires_at: Timestamp::from_unix_millis(expires_ms),
            },
            form,
            call_id: ask.call_id,
            requester: request,
            step_id: place.and_then(|place| place.step_id.clone()),
            trace: call.trace,
            asked_ms: now.mono_ms,
            due_ms: now.mono_ms.saturating_add(timeout_ms),
        };
        self.questions.has_room(id, connection, ask.call_id)?;
        loop {
            question.info.question_id = QuestionId::of_uuid(fleet.cx().uuid());
            if self.questions.is_free(&question.info.question_id) {
                return Ok(question);
            }
        }
    }

    /// Handles the withdrawal of a question by its requester.
    pub(crate) fn on_question_withdraw(
        &mut self,
        fleet: &mut Fleet,
        process: ProcessId,
        withdraw: QuestionWithdraw,
    ) {
        if let Some(question_id) = self.questions.asked_as(process, withdraw.request_id) {
            self.close_question(
                fleet,
                &question_id,
                QuestionOutcome::Withdrawn("the server withdrew the question"),
                None,
            );
        }
    }

    /// Closes questions whose deadline has passed.
    pub(crate) fn on_question_time(&mut self, fleet: &mut Fleet) {
        for question_id in self.questions.due(fleet.now().mono_ms) {
            self.close_question(fleet, &question_id, QuestionOutcome::TimedOut, None);
        }
    }

    /// Closes questions whose requester can no longer receive an answer.
    pub(crate) fn withdraw_questions(&mut self, fleet: &mut Fleet) {
        if !self.questions.is_empty() {
            let over = self.questions.all(None).filter_map(|open| {
                let question_id = open.info.question_id.clone();
                if !self.is_made_by(open.requester.process, open.call_id) {
                    return Some((question_id, "its call has ended"));
                }
                let why = fleet.why_nobody_is_asked(&open.info.workspace_id)?;
                Some((question_id, why))
            });
            let over: Vec<_> = over.collect();
            for (question_id, why) in over {
                self.close_question(fleet, &question_id, QuestionOutcome::Withdrawn(why), None);
            }
        }
        let open = &self.open;
        let is_made = |id: CallId| {
            let call = open.get(&id);
            call.is_some_and(|call| matches!(call.state, CallState::Running { .. }))
        };
        self.questions.forget_calls(is_made);
    }

    fn close_question(
        &mut self,
        fleet: &mut Fleet,
        question_id: &QuestionId,
        end: QuestionOutcome,
        by: Option<&str>,
    ) -> Option<QuestionClosed> {
        let closed = self.questions.close(question_id, fleet.now().mono_ms)?;
        let ClosedQuestion {
            question,
            waited_ms,
            held_ms,
        } = closed;
        if let Some(call) = self.open.get_mut(&question.call_id) {
            call.deadline_ms = call.deadline_ms.saturating_add(held_ms.unwrap_or_default());
        }
        let told = end.in_words();
        let event = LifecycleEvent::QuestionClosed {
            instance_key: question.info.instance_key.clone(),
            question_id: question_id.clone(),
            connection: question.connection().clone(),
            how: told.clone(),
        };
        fleet.announce(&question.at().workspace_id, event, question.trace);
        observe_question(
            fleet,
            &question,
            Kind::QuestionClosed,
            Some(waited_ms),
            &told,
        );
        let outcome = match by {
            Some(by) => end.in_words().replace("a person", by),
            None => told,
        };
        self.questions.note_outcome(question_id, outcome);
        fleet.post(Message::Notice(Notice::Decisions(
            question.at().workspace_id.clone(),
        )));
        let action = end.action();
        let content = match end {
            QuestionOutcome::Answered(content) => Some(content),
            QuestionOutcome::Declined
            | QuestionOutcome::TimedOut
            | QuestionOutcome::Withdrawn(_) => None,
        };
        let answered = Box::new(QuestionAnswered { action, content });
        let answer = ToConnector::QuestionAnswered(answered);
        fleet.cx().answer_connector(question.requester, answer);
        Some(QuestionClosed {
            question_id: question_id.clone(),
            action,
        })
    }

    /// Lists the open questions for a client.
    pub(crate) fn list_questions(
        &mut self,
        fleet: &mut Fleet,
        token: RequestToken,
        list: &ListQuestions,
    ) {
        let only = list.workspace_id.as_ref();
        if let Some(id) = only
            && let Err(error) = fleet.workspace(id)
        {
            return fleet.respond_error(token, error);
        }
        let open = self.questions.all(only);
        let mut open: Vec<_> = open.map(|open| (open.info.place(), &open.info)).collect();
        if let Some(after) = &list.after {
            open.retain(|(place, _)| after < place);
        }
        open.sort_by(|(one, _), (other, _)| one.cmp(other));
        let page = list.page_of(open.into_iter().map(|(_, info)| info.clone()));
        fleet.respond(token, &page);
    }

    pub(crate) fn show_question(
        &mut self,
        fleet: &mut Fleet,
        token: RequestToken,
        show: &ShowQuestion,
    ) {
        match self.find_question(fleet, &show.workspace_id, &show.question_id) {
            Ok(open) => {
                let detail = QuestionDetail {
                    question: open.info.clone(),
                    form: open.form.clone(),
                };
                fleet.respond(token, &detail);
            }
            Err(error) => fleet.respond_error(token, error),
        }
    }

    pub(crate) fn answer_question(
        &mut self,
        fleet: &mut Fleet,
        token: RequestToken,
        peer: Peer,
        answer: AnswerQuestion,
    ) {
        let (id, question_id) = (answer.workspace_id, answer.question_id);
        let found = self.find_question(fleet, &id, &question_id);
        let checked = found.and_then(|open| {
            open.form.check(&answer.content).map_err(|problem| {
                let text = format!("the answer does not fit question `{question_id}`: {problem}");
                ControlError::new(ErrorCode::InvalidRequest, text).suggest(format!(
                    "the question is still open; see the expected answer: `gdn inbox question show {question_id}`"
                ))
            })
        });
        if let Err(error) = checked {
            return fleet.respond_error(token, error);
        }
        let fields: Vec<&String> = answer.content.keys().collect();
        let details = json!({ "fields": fields });
        self.decide_question(
            fleet,
            token,
            peer,
            (&id, &question_id),
            details,
            QuestionOutcome::Answered(answer.content.clone()),
        );
    }

    pub(crate) fn decline_question(
        &mut self,
        fleet: &mut Fleet,
        token: RequestToken,
        peer: Peer,
        decline: &DeclineQuestion,
    ) {
        let (id, question_id) = (&decline.workspace_id, &decline.question_id);
        self.decide_question(
            fleet,
            token,
            peer,
            (id, question_id),
            json!({}),
            QuestionOutcome::Declined,
        );
    }

    /// Applies a user's decision and records the user.
    fn decide_question(
        &mut self,
        fleet: &mut Fleet,
        token: RequestToken,
        peer: Peer,
        (id, question_id): (&WorkspaceId, &QuestionId),
        details: Value,
        end: QuestionOutcome,
    ) {
        if let Err(error) = self.find_question(fleet, id, question_id) {
            return fleet.respond_error(token, error);
        }
        let mut details = details;
        if let (Value::Object(details), Some(pid)) = (&mut details, peer.pid) {
            details.insert("clientPid".to_owned(), json!(pid));
        }
        match self.record_decision(fleet, (id, question_id), details, end, None) {
            Some(closed) => fleet.respond(token, &closed),
            None => fleet.respond_error(token, no_question(question_id)),
        }
    }

    /// Closes an open question with a user's decision, and records the decision.
    pub(super) fn record_decision(
        &mut self,
        fleet: &mut Fleet,
        (id, question_id): (&WorkspaceId, &QuestionId),
        details: Value,
        end: QuestionOutcome,
        by: Option<&str>,
    ) -> Option<QuestionClosed> {
        let open = self.questions.get(id, question_id)?;
        let (at, connection) = (open.at(), open.connection().clone());
        let what = match end {
            QuestionOutcome::Answered(_) => "questionAnswered",
            QuestionOutcome::Declined
            | QuestionOutcome::TimedOut
            | QuestionOutcome::Withdrawn(_) => "questionDeclined",
        };
        let mut record = json!({"questionId": question_id, "connection": connection});
        if let (Value::Object(record), Value::Object(details)) = (&mut record, details) {
            record.extend(details);
            record.extend(by.map(|by| ("by".to_owned(), json!(by))));
        }
        fleet.audit(&at, what, record);
        self.close_question(fleet, question_id, end, by)
    }

    fn find_question(
        &self,
        fleet: &Fleet,
        id: &WorkspaceId,
        question_id: &QuestionId,
    ) -> Result<&OpenQuestion, ControlError> {
        fleet.workspace(id)?;
        let open = self.questions.get(id, question_id);
        open.ok_or_else(|| no_question(question_id))
    }
}

fn no_question(question_id: &QuestionId) -> ControlError {
    let text = format!(
        "question `{question_id}` is not open: it was answered or timed out, or its call has ended"
    );
    ControlError::new(ErrorCode::QuestionNotFound, text)
        .suggest("list open questions: `gdn inbox question list`")
}
