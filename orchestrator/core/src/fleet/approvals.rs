//! Tool calls that need a user's approval (`STEER-3`).
//!
//! An agent's process requests approval and waits without a timeout. The request and the decision
//! are recorded before they are reported, so neither a crash of the agent nor of the daemon repeats
//! them: the next process requests approval of the same call and receives the same decision.
//!
//! # Invariants
//!
//! * A call is decided once, even with simultaneous decisions.
//! * Before an approval is delivered to a process, its delivery is recorded. Later processes are
//!   notified that the call may have begun.
//! * An approval is not delivered to a process that was requested to stop. The next process
//!   executes the call.
//! * Pending approvals end with their turn, or are denied when the workspace's time limit is over.
//! * A standing approval decides only calls of the same agent and tool with equal arguments.
//!
//! `pending` holds the recorded state, `decisions` handles decisions, `standing` approves calls
//! that a standing approval covers, `list` answers clients.

mod decisions;
mod list;
pub(super) mod pending;
mod standing;

use goondan_protocol::agents::{AgentAnswer, AgentAsk, AgentQuestion};
use goondan_protocol::approval::ApprovalDecision;
use goondan_protocol::ids::{ApprovalId, EventId, InstanceKey, InstanceRef, StepId, TurnId};
use goondan_protocol::lifecycle::LifecycleEvent;
use goondan_protocol::limits::{MAX_APPROVAL_INPUT_BYTES, MAX_NAME_BYTES};
use goondan_protocol::observe::{RuntimeEvent, RuntimeEventKind as Kind, detail_of};
use goondan_protocol::trace::SpanId;
use goondan_store::StoreError;
use goondan_store::instance::{Approval, ApprovalMark, ApprovalRequest};
use goondan_store::writer::operation::NoteApproval;

pub(crate) use self::decisions::DecisionRequester;
use self::decisions::is_timeout;
pub(super) use self::decisions::{AuthorizedDecision, CONSENT_IN_PROGRESS};
use self::pending::{Approvals, OpenApproval};
use super::Workspace;
use super::agent_replies::pending_replies::Requester;
use super::conversation::Conversation;
use crate::bus::context::Cx;
use crate::jobs::continuation;
use crate::refusals::AgentRequestError;
use crate::{CoreEffect, RequestToken};

continuation! {
    /// Records a request for approval.
    AskingPerson { turn_id: TurnId, call: ApprovalRequest, requester: Requester }
        after NoteApproval => workspace.on_approval_asked
}

continuation! {
    /// Records that an approval is delivered.
    HandingOver { approval_id: ApprovalId } after NoteApproval => &workspace.on_approval_handed
}

/// The tool calls of its conversations that wait for a person.
impl Workspace {
    /// Handles an agent's request for approval of a call.
    pub(super) fn ask_approval(&mut self, cx: &mut Cx, requester: Requester, ask: AgentAsk) {
        let AgentQuestion::Approval {
            tool_call_id,
            tool_name,
            input,
            schema,
            may_have_begun,
            needs_two,
        } = ask.question
        else {
            return;
        };
        let at = requester.at.clone();
        let mut call = ApprovalRequest {
            approval_id: ApprovalId::of_uuid(uuid::Uuid::nil()),
            step_id: StepId::of_turn(&ask.turn_id, ask.step),
            tool_call_id,
            tool_name,
            input,
            schema,
            may_have_begun,
            needs_two,
            at: cx.now().wall,
        };
        let Some(entry) = self.conversations.get_mut(&at.instance_key) else {
            return;
        };
        if let Err(refused) = check_size(&call) {
            return entry.answer(cx, &requester, refused.into());
        }
        if let Some(open) = entry.approvals_mut().of_call(&call) {
            let known = &open.known.call;
            if is_same(known, &call) {
                let id = known.approval_id.clone();
                open.requester = Some(requester);
                // The daemon may have ended between the standing approval and this decision.
                if self.approve_if_standing(cx, &at, &id) {
                    return;
                }
                return self.go_on_with_approval(cx, &at, &id);
            }
            // The call has changed, so an earlier approval does not apply.
            call.may_have_begun |= open.is_told;
        }
        loop {
            call.approval_id = ApprovalId::of_uuid(cx.uuid());
            let id = &call.approval_id;
            if self.find_approval(id).is_none() && self.standing.get(id).is_none() {
                break;
            }
        }
        let turn_id = ask.turn_id;
        let note = NoteApproval {
            instance: at.clone(),
            turn_id: turn_id.clone(),
            mark: ApprovalMark::Asked { call: call.clone() },
        };
        let then = AskingPerson {
            instance: at,
            turn_id,
            call,
            requester,
        };
        cx.store(note, then);
    }

    /// Handles the result of recording a request.
    fn on_approval_asked(
        &mut self,
        cx: &mut Cx,
        asking: AskingPerson,
        result: Result<(), StoreError>,
    ) {
        let AskingPerson {
            instance: at,
            turn_id,
            call,
            requester,
        } = asking;
        match result {
            Ok(()) => {}
            // The turn is over and nothing waits.
            Err(StoreError::WrongTurn { .. }) => return,
            Err(error) => {
                return self.on_store_failure(cx, &at, Some(requester.process), &error);
            }
        }
        let Some(entry) = self.conversations.get_mut(&at.instance_key) else {
            return;
        };
        let up = entry.process();
        let requester = Some(requester).filter(|it| up == Some(it.process));
        let before = entry.approvals_mut().of_call(&call);
        let before = before.map(|open| (open.known.call.approval_id.clone(), open.waits()));
        if let Some((id, true)) = &before {
            self.tell_closed(cx, &at, id, "withdrawn: the call has changed");
        }
        let asked = LifecycleEvent::ApprovalAsked {
            instance_key: at.instance_key.clone(),
            approval_id: call.approval_id.clone(),
            tool_name: call.tool_name.clone(),
        };
        let id = call.approval_id.clone();
        let is_covered = self.standing_for(&at.instance_key, &call).is_some();
        if let Some(entry) = self.conversations.get_mut(&at.instance_key) {
            let trace = entry.turn().map(|turn| turn.context.trace);
            if !is_covered {
                entry.announce(cx, &at, asked, trace);
            }
            let all = &mut entry.approvals_mut().0;
            all.retain(|open| Some(&open.known.call.approval_id) != before.as_ref().map(|b| &b.0));
            all.push(OpenApproval {
                turn_id,
                known: Approval {
                    call,
                    consent: None,
                    decided: None,
                    is_handed: false,
                },
                requester,
                is_deciding: false,
                is_consenting: false,
                is_handing: false,
                is_told: false,
                deny_from_ms: 0,
            });
        }
        // Nothing waits for a person then.
        if is_covered && self.approve_if_standing(cx, &at, &id) {
            return;
        }
        self.observe_approval(cx, &at, &id, Kind::ApprovalAsked, None);
        self.show_in_chats(cx);
    }

    /// Executes the next step of a call: announces the request or delivers the decision.
    fn go_on_with_approval(&mut self, cx: &mut Cx, at: &InstanceRef, id: &ApprovalId) {
        let Some(entry) = self.conversations.get_mut(&at.instance_key) else {
            return;
        };
        let ready = entry.slot().ready();
        let Some(open) = entry.approvals_mut().get_mut(id) else {
            return;
        };
        let Some(decided) = open.known.decided.clone() else {
            return self.observe_approval(cx, at, id, Kind::ApprovalAsked, None);
        };
        // A stopping process would not execute the call.
        let requester = open.requester.as_ref();
        let Some(requester) = requester.filter(|it| ready == Some(it.process)).cloned() else {
            return;
        };
        let has_begun = open.is_told;
        match decided.decision {
            ApprovalDecision::Approved if !open.known.is_handed => {
                if std::mem::replace(&mut open.is_handing, true) {
                    return;
                }
                let note = NoteApproval {
                    instance: at.clone(),
                    turn_id: open.turn_id.clone(),
                    mark: ApprovalMark::Handed {
                        approval_id: id.clone(),
                    },
                };
                let then = HandingOver {
                    instance: at.clone(),
                    approval_id: id.clone(),
                };
                return cx.store(note, then);
            }
            ApprovalDecision::Approved => open.is_told = true,
            ApprovalDecision::Denied => {}
        }
        open.requester = None;
        let answer = AgentAnswer::Approval {
            decision: decided.decision,
            timed_out: is_timeout(&decided),
            reason: decided.reason,
            input: decided.input,
            has_begun,
        };
        entry.answer(cx, &requester, answer);
    }

    /// Handles the result of recording a delivery.
    fn on_approval_handed(
        &mut self,
        cx: &mut Cx,
        handing: &HandingOver,
        result: Result<(), StoreError>,
    ) {
        let (at, id) = (&handing.instance, &handing.approval_id);
        let entry = self.conversations.get_mut(&at.instance_key);
        if let Some(open) = entry.and_then(|entry| entry.approvals_mut().get_mut(id)) {
            open.is_handing = false;
            open.known.is_handed |= result.is_ok();
        }
        match result {
            Ok(()) => self.go_on_with_approval(cx, at, id),
            // The turn is over and nothing waits.
            Err(StoreError::WrongTurn { .. }) => {}
            Err(error) => self.on_store_failure(cx, at, None, &error),
        }
    }

    /// Ends the pending approvals of a finished turn.
    pub(super) fn end_approvals(&mut self, cx: &mut Cx, at: &InstanceRef, why: &str) {
        let Some(entry) = self.conversations.get(&at.instance_key) else {
            return;
        };
        let waiting: Vec<ApprovalId> = entry.approvals().waiting().cloned().collect();
        for id in waiting {
            self.tell_closed(cx, at, &id, &format!("withdrawn: {why}"));
        }
        if let Some(entry) = self.conversations.get_mut(&at.instance_key) {
            *entry.approvals_mut() = Approvals::default();
        }
    }

    /// Reports a conversation's pending approvals to a client that starts to wait for its turn.
    pub(super) fn tell_of_approvals(
        &self,
        cx: &mut Cx,
        at: &InstanceRef,
        event_id: &EventId,
        token: RequestToken,
    ) {
        let is_of_turn = |entry: &&Conversation| {
            let turn = entry.turn();
            turn.is_some_and(|turn| turn.context.event_id == *event_id)
        };
        let entry = self.conversations.get(&at.instance_key);
        let Some(entry) = entry.filter(is_of_turn) else {
            return;
        };
        let waiting: Vec<ApprovalId> = entry.approvals().waiting().cloned().collect();
        for id in waiting {
            let event = entry.approval_event(cx, at, &id, Kind::ApprovalAsked, None);
            let written = event.map(|event| serde_json::value::to_raw_value(&event));
            if let Some(Ok(event)) = written {
                cx.emit(CoreEffect::Progress { token, event });
            }
        }
    }

    fn tell_closed(&mut self, cx: &mut Cx, at: &InstanceRef, id: &ApprovalId, how: &str) {
        let Some(entry) = self.conversations.get(&at.instance_key) else {
            return;
        };
        let Some(open) = entry.approvals().get(id) else {
            return;
        };
        let closed = LifecycleEvent::ApprovalClosed {
            instance_key: at.instance_key.clone(),
            approval_id: id.clone(),
            tool_name: open.known.call.tool_name.clone(),
            how: how.to_owned(),
        };
        let trace = entry.turn().map(|turn| turn.context.trace);
        entry.announce(cx, at, closed, trace);
        self.close_in_chats(cx, id, how);
    }

    fn observe_approval(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        id: &ApprovalId,
        kind: Kind,
        detail: Option<&str>,
    ) {
        let entry = self.conversations.get(&at.instance_key);
        let event = entry.and_then(|entry| entry.approval_event(cx, at, id, kind, detail));
        if let Some(event) = event {
            self.record_observation(cx, at, &event);
        }
    }

    /// Finds the conversation of an approval.
    pub(crate) fn find_approval(&self, id: &ApprovalId) -> Option<(&InstanceKey, &Conversation)> {
        let mut entries = self.conversations.iter();
        entries.find(|(_, entry)| entry.approvals().get(id).is_some())
    }

    /// Pending approvals of a conversation.
    pub(crate) fn approvals_waiting(
        &self,
        key: &InstanceKey,
    ) -> impl Iterator<Item = &ApprovalId> + use<'_> {
        let entry = self.conversations.get(key).into_iter();
        entry.flat_map(|entry| entry.approvals().waiting())
    }
}

impl Conversation {
    /// Event for the turn's watchers, while the turn is in progress.
    fn approval_event(
        &self,
        cx: &Cx,
        at: &InstanceRef,
        id: &ApprovalId,
        kind: Kind,
        detail: Option<&str>,
    ) -> Option<RuntimeEvent> {
        let (agent, turn) = (self.agent(), self.turn()?);
        let open = self.approvals().get(id)?;
        if open.turn_id != turn.turn_id {
            return None;
        }
        let call = &open.known.call;
        let around = turn.context.trace.child(SpanId::of_step(&call.step_id));
        let place = around.child(SpanId::of_call(&call.step_id, &call.tool_call_id));
        let whose = (agent.clone(), at.instance_key.clone());
        let detail = detail.map_or_else(|| call.input.to_string(), str::to_owned);
        Some(RuntimeEvent {
            step_id: Some(call.step_id.clone()),
            tool_call_id: Some(call.tool_call_id.clone()),
            tool_name: Some(call.tool_name.clone()),
            approval_id: Some(id.clone()),
            detail: Some(detail_of(&detail)),
            ..RuntimeEvent::new(kind, cx.now().wall, place, whose, turn.turn_id.clone())
        })
    }
}

/// True if a repeated request is for the call that is known already, under the same rule.
fn is_same(known: &ApprovalRequest, call: &ApprovalRequest) -> bool {
    let is_same_rule = known.needs_two == call.needs_two;
    is_same_rule && known.tool_name == call.tool_name && known.input == call.input
}

/// Checks that a call is small enough to be shown in full.
fn check_size(call: &ApprovalRequest) -> Result<(), AgentRequestError> {
    let bytes = call.input.to_string().len();
    if bytes > MAX_APPROVAL_INPUT_BYTES || call.tool_name.len() > MAX_NAME_BYTES {
        let message = format!(
            "this call needs a person's approval, but its arguments have {bytes} bytes; at most \
             {MAX_APPROVAL_INPUT_BYTES} are allowed: split it into smaller calls"
        );
        return Err(AgentRequestError::new("E_APPROVAL_TOO_LARGE", message));
    }
    Ok(())
}
