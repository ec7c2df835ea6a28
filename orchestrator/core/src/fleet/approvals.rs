//! Tool calls that need a person before they are carried out (`STEER-3`).
//!
//! An agent's process asks, and waits as long as it takes. What it asks about and what was decided is on
//! record before anybody hears of it, so that neither a crash of the agent nor of the daemon asks or decides
//! again: the next process asks about the same call, and gets the same decision.
//!
//! # Invariants
//!
//! * A call is decided about once, whoever answers at the same moment.
//! * Before an approval is handed to a process, that it is goes on record. A process after that one is told that
//!   the call may have begun.
//! * An approval is handed to no process that was told to end: what it did not begin, the next one begins.
//! * What waits ends with its turn.

use goondan_protocol::agents::{AgentAnswer, AgentAsk, Question};
use goondan_protocol::approval::ApprovalDecision;
use goondan_protocol::control::{
    ApprovalDecided, ApprovalDetail, ApprovalInfo, ControlError, DecideApproval, ErrorCode,
    ListApprovals, ShowApproval,
};
use goondan_protocol::ids::{
    AgentName, ApprovalId, EventId, InstanceRef, StepId, TurnId, WorkspaceId,
};
use goondan_protocol::lifecycle::LifecycleEvent;
use goondan_protocol::limits::{
    MAX_APPROVAL_INPUT_BYTES, MAX_APPROVAL_REASON_BYTES, MAX_NAME_BYTES,
};
use goondan_protocol::observe::{RuntimeEvent, RuntimeEventKind as Kind, detail_of};
use goondan_protocol::trace::SpanId;
use goondan_store::StoreError;
use goondan_store::instance::{Approval, ApprovalMark, AskedCall, DecidedCall, InstanceState};
use goondan_store::writer::operation::NoteApproval;
use serde_json::json;

use super::Fleet;
use super::answers::waiting::Requester;
use crate::jobs::continuation;
use crate::refusals::{Refused, control_error};
use crate::{Effect, Peer, RequestToken};

/// One call that needs a person.
#[derive(Debug)]
struct OpenApproval {
    turn_id: TurnId,
    /// What is on record.
    known: Approval,
    /// Who waits for the decision; nobody while no process works on the turn.
    requester: Option<Requester>,
    /// A decision is on its way to disk.
    is_deciding: bool,
    /// That it is handed over is on its way to disk.
    is_handing: bool,
    /// A process was told that the call is approved.
    is_told: bool,
}

impl OpenApproval {
    fn waits(&self) -> bool {
        self.known.decided.is_none()
    }

    /// What clients are told of it.
    fn info(&self, at: &InstanceRef, agent: &AgentName) -> ApprovalInfo {
        let call = &self.known.call;
        ApprovalInfo {
            workspace_id: at.workspace_id.clone(),
            approval_id: call.approval_id.clone(),
            instance_key: at.instance_key.clone(),
            agent_name: agent.clone(),
            turn_id: self.turn_id.clone(),
            step_id: call.step_id.clone(),
            tool_call_id: call.tool_call_id.clone(),
            tool_name: call.tool_name.clone(),
            summary: detail_of(&call.input.to_string()),
            may_have_begun: call.may_have_begun,
            asked_at: call.at,
        }
    }
}

/// The calls of a conversation's open turn that need a person.
#[derive(Debug, Default)]
pub(crate) struct Approvals(Vec<OpenApproval>);

impl Approvals {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ids of those that wait.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &ApprovalId> {
        let waiting = self.0.iter().filter(|open| open.waits());
        waiting.map(|open| &open.known.call.approval_id)
    }

    fn get(&self, id: &ApprovalId) -> Option<&OpenApproval> {
        let mut all = self.0.iter();
        all.find(|open| open.known.call.approval_id == *id)
    }

    fn get_mut(&mut self, id: &ApprovalId) -> Option<&mut OpenApproval> {
        let mut all = self.0.iter_mut();
        all.find(|open| open.known.call.approval_id == *id)
    }

    fn of_call(&mut self, call: &AskedCall) -> Option<&mut OpenApproval> {
        self.0.iter_mut().find(|open| {
            let known = &open.known.call;
            known.step_id == call.step_id && known.tool_call_id == call.tool_call_id
        })
    }

    /// Nobody waits for a decision any more: the process is gone.
    pub(super) fn forget_requesters(&mut self) {
        for open in &mut self.0 {
            open.requester = None;
        }
    }

    /// Takes over what is on record.
    pub(super) fn read(&mut self, state: &InstanceState) {
        let mut before = std::mem::take(&mut self.0);
        // They end with their turn.
        let Some(open_turn) = &state.open_turn else {
            return;
        };
        for known in &state.approvals {
            let is_same =
                |open: &OpenApproval| open.known.call.approval_id == known.call.approval_id;
            let open = match before.iter().position(is_same) {
                Some(place) => OpenApproval {
                    known: known.clone(),
                    ..before.swap_remove(place)
                },
                None => OpenApproval {
                    turn_id: open_turn.turn_id.clone(),
                    is_told: known.is_handed,
                    known: known.clone(),
                    requester: None,
                    is_deciding: false,
                    is_handing: false,
                },
            };
            self.0.push(open);
        }
    }
}

continuation! {
    /// A call that a person is about to be asked about.
    AskingPerson { turn_id: TurnId, call: AskedCall, requester: Requester }
        after NoteApproval => core.fleet.on_approval_asked
}

continuation! {
    /// What a person has decided about a call.
    DecidingCall { token: RequestToken, decided: DecidedCall }
        after NoteApproval => core.fleet.on_approval_decided
}

continuation! {
    /// An approval that is about to be handed over.
    HandingOver { approval_id: ApprovalId } after NoteApproval => &core.fleet.on_approval_handed
}

fn no_approval(id: &ApprovalId) -> ControlError {
    let text = format!(
        "no tool call waits under `{id}`: its turn is over, or it was asked about under another id"
    );
    ControlError::new(ErrorCode::ApprovalNotFound, text)
        .suggest("`gdn approvals` shows those that wait")
}

fn decided_before(id: &ApprovalId, decision: Option<ApprovalDecision>) -> ControlError {
    let how = decision.map_or("decided about", ApprovalDecision::as_str);
    let text = format!("`{id}` was {how} already; nothing was changed");
    ControlError::new(ErrorCode::ApprovalDecided, text)
        .suggest("`gdn approvals` shows those that wait")
}

/// How a decision is told to people.
fn in_words(decided: &DecidedCall) -> String {
    let how = decided.decision.as_str();
    match &decided.reason {
        Some(reason) => format!("{how} by a person: {reason}"),
        None => format!("{how} by a person"),
    }
}

impl Fleet {
    /// An agent's process wants a person to approve a call of its turn.
    pub(super) fn ask_approval(&mut self, requester: Requester, ask: AgentAsk) {
        let Question::Approval {
            tool_call_id,
            tool_name,
            input,
            may_have_begun,
        } = ask.question
        else {
            return;
        };
        let at = requester.at.clone();
        let mut call = AskedCall {
            approval_id: ApprovalId::of_uuid(uuid::Uuid::nil()),
            step_id: StepId::of_turn(&ask.turn_id, ask.step),
            tool_call_id,
            tool_name,
            input,
            may_have_begun,
            at: self.now.wall,
        };
        if let Err(refused) = check_size(&call) {
            return self.answer_agent(&requester, refused.into());
        }
        let Some(entry) = self.instance_mut(&at) else {
            return;
        };
        if let Some(open) = entry.approvals.of_call(&call) {
            let known = &open.known.call;
            if known.tool_name == call.tool_name && known.input == call.input {
                let id = known.approval_id.clone();
                open.requester = Some(requester);
                return self.go_on_with_approval(&at, &id);
            }
            // It is another call now, which nobody has approved.
            call.may_have_begun |= open.is_told;
        }
        loop {
            call.approval_id = ApprovalId::of_uuid(self.uuid());
            if self
                .find_approval(&at.workspace_id, &call.approval_id)
                .is_none()
            {
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
        self.store(note, then);
    }

    /// That a person is asked is on record.
    fn on_approval_asked(&mut self, asking: AskingPerson, result: Result<(), StoreError>) {
        let AskingPerson {
            instance: at,
            turn_id,
            call,
            requester,
        } = asking;
        match result {
            Ok(()) => {}
            // The turn is over: nobody waits.
            Err(StoreError::WrongTurn { .. }) => return,
            Err(error) => return self.on_store_failure(&at, Some(requester.process), &error),
        }
        let Some(entry) = self.instance_mut(&at) else {
            return;
        };
        let up = entry.slot.up().map(|up| up.process);
        let requester = Some(requester).filter(|it| up == Some(it.process));
        let before = entry.approvals.of_call(&call);
        let before = before.map(|open| (open.known.call.approval_id.clone(), open.waits()));
        if let Some((id, true)) = &before {
            self.tell_closed(&at, id, "withdrawn: it is another call now");
        }
        let asked = LifecycleEvent::ApprovalAsked {
            instance_key: at.instance_key.clone(),
            approval_id: call.approval_id.clone(),
            tool_name: call.tool_name.clone(),
        };
        let trace = self.turn_of(&at).map(|turn| turn.context.trace);
        self.announce(&at.workspace_id, asked, trace);
        let id = call.approval_id.clone();
        if let Some(entry) = self.instance_mut(&at) {
            let all = &mut entry.approvals.0;
            all.retain(|open| Some(&open.known.call.approval_id) != before.as_ref().map(|b| &b.0));
            all.push(OpenApproval {
                turn_id,
                known: Approval {
                    call,
                    decided: None,
                    is_handed: false,
                },
                requester,
                is_deciding: false,
                is_handing: false,
                is_told: false,
            });
        }
        self.observe_approval(&at, &id, Kind::ApprovalAsked, None);
    }

    /// Does what is next for a call: tells that it waits, or hands the decision over.
    fn go_on_with_approval(&mut self, at: &InstanceRef, id: &ApprovalId) {
        let Some(entry) = self.instance_mut(at) else {
            return;
        };
        let ready = entry.slot.ready();
        let Some(open) = entry.approvals.get_mut(id) else {
            return;
        };
        let Some(decided) = open.known.decided.clone() else {
            return self.observe_approval(at, id, Kind::ApprovalAsked, None);
        };
        // One that is to end would not begin it.
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
                return self.store(note, then);
            }
            ApprovalDecision::Approved => open.is_told = true,
            ApprovalDecision::Denied => {}
        }
        open.requester = None;
        let answer = AgentAnswer::Approval {
            decision: decided.decision,
            reason: decided.reason,
            has_begun,
        };
        self.answer_agent(&requester, answer);
    }

    /// That an approval is handed over is on record.
    fn on_approval_handed(&mut self, handing: &HandingOver, result: Result<(), StoreError>) {
        let (at, id) = (&handing.instance, &handing.approval_id);
        if let Some(open) = self
            .instance_mut(at)
            .and_then(|entry| entry.approvals.get_mut(id))
        {
            open.is_handing = false;
            open.known.is_handed |= result.is_ok();
        }
        match result {
            Ok(()) => self.go_on_with_approval(at, id),
            // The turn is over: nobody waits.
            Err(StoreError::WrongTurn { .. }) => {}
            Err(error) => self.on_store_failure(at, None, &error),
        }
    }

    /// A client decides about a call.
    pub(crate) fn decide_approval(
        &mut self,
        token: RequestToken,
        peer: Peer,
        decide: DecideApproval,
    ) {
        if let Err(error) = self.begin_decision(token, peer, decide) {
            self.respond_error(token, error);
        }
    }

    fn begin_decision(
        &mut self,
        token: RequestToken,
        peer: Peer,
        decide: DecideApproval,
    ) -> Result<(), ControlError> {
        let DecideApproval {
            workspace_id,
            approval_id: id,
            decision,
            reason,
        } = decide;
        let what = format!("tool call `{id}`");
        peer.must_be_person(&what, &format!("gdn approvals {id}"))?;
        self.workspace(&workspace_id)?;
        if reason
            .as_ref()
            .is_some_and(|it| it.len() > MAX_APPROVAL_REASON_BYTES)
        {
            let text = format!("a reason has at most {MAX_APPROVAL_REASON_BYTES} bytes");
            return Err(ControlError::new(ErrorCode::InvalidRequest, text));
        }
        let at = self.find_approval(&workspace_id, &id);
        let at = at.ok_or_else(|| no_approval(&id))?;
        let wall = self.now.wall;
        let entry = self.instance_mut(&at);
        let open = entry.and_then(|entry| entry.approvals.get_mut(&id));
        let open = open.ok_or_else(|| no_approval(&id))?;
        if open.is_deciding || !open.waits() {
            let decided = open.known.decided.as_ref();
            return Err(decided_before(&id, decided.map(|decided| decided.decision)));
        }
        open.is_deciding = true;
        let turn_id = open.turn_id.clone();
        let mut record = json!({
            "approvalId": id, "toolName": open.known.call.tool_name,
            "toolCallId": open.known.call.tool_call_id,
        });
        if let Some(record) = record.as_object_mut() {
            record.extend(peer.pid.map(|pid| ("clientPid".to_owned(), json!(pid))));
            record.extend(reason.as_ref().map(|it| ("reason".to_owned(), json!(it))));
        }
        let decided = DecidedCall {
            approval_id: id,
            decision,
            reason,
            at: wall,
        };
        let note = NoteApproval {
            instance: at.clone(),
            turn_id,
            mark: ApprovalMark::Decided {
                decided: decided.clone(),
            },
        };
        let then = DecidingCall {
            instance: at.clone(),
            token,
            decided,
        };
        self.store(note, then);
        let what = match decision {
            ApprovalDecision::Approved => "callApproved",
            ApprovalDecision::Denied => "callDenied",
        };
        self.audit(&at, what, record);
        Ok(())
    }

    /// What a person decided is on record.
    fn on_approval_decided(&mut self, deciding: DecidingCall, result: Result<(), StoreError>) {
        let DecidingCall {
            instance: at,
            token,
            decided,
        } = deciding;
        let id = decided.approval_id.clone();
        let entry = self.instance_mut(&at);
        let open = entry.and_then(|entry| entry.approvals.get_mut(&id));
        if let Some(open) = open {
            open.is_deciding = false;
            open.known.decided = result.is_ok().then(|| decided.clone());
        }
        match result {
            Ok(()) => {}
            Err(StoreError::WrongTurn { .. }) => {
                return self.respond_error(token, no_approval(&id));
            }
            Err(error) => {
                self.respond_error(token, control_error(&error));
                return self.on_store_failure(&at, None, &error);
            }
        }
        let tool_name = self
            .approval(&at, &id)
            .map(|open| open.known.call.tool_name.clone());
        let told = in_words(&decided);
        self.tell_closed(&at, &id, &told);
        self.observe_approval(&at, &id, Kind::ApprovalClosed, Some(&told));
        let answer = ApprovalDecided {
            approval_id: id.clone(),
            decision: decided.decision,
            instance_key: at.instance_key.clone(),
            tool_name: tool_name.unwrap_or_default(),
        };
        self.respond(token, &answer);
        self.go_on_with_approval(&at, &id);
    }

    /// The turn of a conversation is over, and with it what waited in it.
    pub(crate) fn end_approvals(&mut self, at: &InstanceRef, why: &str) {
        let Some(entry) = self.instance_mut(at) else {
            return;
        };
        let waiting: Vec<ApprovalId> = entry.approvals.waiting().cloned().collect();
        for id in waiting {
            self.tell_closed(at, &id, &format!("withdrawn: {why}"));
        }
        if let Some(entry) = self.instance_mut(at) {
            entry.approvals = Approvals::default();
        }
    }

    /// What waits of a conversation is told to a client that waits for its turn from now on.
    pub(super) fn tell_of_approvals(
        &mut self,
        at: &InstanceRef,
        event_id: &EventId,
        token: RequestToken,
    ) {
        let is_of_turn = self
            .turn_of(at)
            .is_some_and(|turn| turn.context.event_id == *event_id);
        let Some(entry) = self.instance_mut(at).filter(|_| is_of_turn) else {
            return;
        };
        let waiting: Vec<ApprovalId> = entry.approvals.waiting().cloned().collect();
        for id in waiting {
            let event = self.approval_event(at, &id, Kind::ApprovalAsked, None);
            let written = event.map(|event| serde_json::value::to_raw_value(&event));
            if let Some(Ok(event)) = written {
                self.push(Effect::Progress { token, event });
            }
        }
    }

    fn tell_closed(&mut self, at: &InstanceRef, id: &ApprovalId, how: &str) {
        let Some(open) = self.approval(at, id) else {
            return;
        };
        let closed = LifecycleEvent::ApprovalClosed {
            instance_key: at.instance_key.clone(),
            approval_id: id.clone(),
            tool_name: open.known.call.tool_name.clone(),
            how: how.to_owned(),
        };
        let trace = self.turn_of(at).map(|turn| turn.context.trace);
        self.announce(&at.workspace_id, closed, trace);
    }

    fn observe_approval(
        &mut self,
        at: &InstanceRef,
        id: &ApprovalId,
        kind: Kind,
        detail: Option<&str>,
    ) {
        if let Some(event) = self.approval_event(at, id, kind, detail) {
            self.record_observation(at, &event);
        }
    }

    /// What those are told who watch the turn, while it is in progress.
    fn approval_event(
        &self,
        at: &InstanceRef,
        id: &ApprovalId,
        kind: Kind,
        detail: Option<&str>,
    ) -> Option<RuntimeEvent> {
        let (agent, turn) = (self.agent_name(at)?, self.turn_of(at)?);
        let open = self.approval(at, id)?;
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
            ..RuntimeEvent::new(kind, self.now.wall, place, whose, turn.turn_id.clone())
        })
    }

    fn approval(&self, at: &InstanceRef, id: &ApprovalId) -> Option<&OpenApproval> {
        let workspace = self.workspaces.get(&at.workspace_id)?;
        workspace.instances.get(&at.instance_key)?.approvals.get(id)
    }

    /// The conversation of a workspace in which this is.
    fn find_approval(&self, id: &WorkspaceId, approval_id: &ApprovalId) -> Option<InstanceRef> {
        let mut entries = self.workspaces.get(id)?.instances.iter();
        let (key, _) = entries.find(|(_, entry)| entry.approvals.get(approval_id).is_some())?;
        Some(InstanceRef {
            workspace_id: id.clone(),
            instance_key: key.clone(),
        })
    }

    /// The calls of a conversation that wait for a person.
    pub(crate) fn approvals_waiting<'f>(
        &'f self,
        at: &InstanceRef,
    ) -> impl Iterator<Item = &'f ApprovalId> + use<'f> {
        let workspace = self.workspaces.get(&at.workspace_id);
        let entry = workspace.and_then(|workspace| workspace.instances.get(&at.instance_key));
        entry
            .into_iter()
            .flat_map(|entry| entry.approvals.waiting())
    }

    /// A client wants to know which calls wait for a person.
    pub(crate) fn list_approvals(&mut self, token: RequestToken, list: &ListApprovals) {
        let only = list.workspace_id.as_ref();
        if let Some(id) = only
            && let Err(error) = self.workspace(id)
        {
            return self.respond_error(token, error);
        }
        let mut found = Vec::new();
        for (id, workspace) in &self.workspaces {
            if only.is_some_and(|only| only != id) {
                continue;
            }
            for (key, entry) in &workspace.instances {
                if list.instance_key.as_ref().is_some_and(|only| only != key) {
                    continue;
                }
                let at = InstanceRef {
                    workspace_id: id.clone(),
                    instance_key: key.clone(),
                };
                let waiting = entry.approvals.0.iter().filter(|open| open.waits());
                found.extend(waiting.map(|open| open.info(&at, &entry.agent)));
            }
        }
        // Who has waited for longest comes first.
        found.sort_by_key(|info: &ApprovalInfo| info.asked_at.as_unix_millis());
        self.respond(token, &found);
    }

    /// A client wants to see one of them.
    pub(crate) fn show_approval(&mut self, token: RequestToken, show: &ShowApproval) {
        let id = &show.approval_id;
        let shown = self.workspace(&show.workspace_id).and_then(|workspace| {
            let waiting = workspace.instances.iter().find_map(|(key, entry)| {
                let open = entry.approvals.get(id).filter(|open| open.waits())?;
                let at = InstanceRef {
                    workspace_id: show.workspace_id.clone(),
                    instance_key: key.clone(),
                };
                Some(ApprovalDetail {
                    approval: open.info(&at, &entry.agent),
                    input: open.known.call.input.clone(),
                })
            });
            waiting.ok_or_else(|| no_approval(id))
        });
        match shown {
            Ok(detail) => self.respond(token, &detail),
            Err(error) => self.respond_error(token, error),
        }
    }
}

/// Whether a person can be shown the whole of a call.
fn check_size(call: &AskedCall) -> Result<(), Refused> {
    let bytes = call.input.to_string().len();
    if bytes > MAX_APPROVAL_INPUT_BYTES || call.tool_name.len() > MAX_NAME_BYTES {
        let message = format!(
            "this call needs a person's approval, and its arguments have {bytes} bytes; a person is asked \
             about at most {MAX_APPROVAL_INPUT_BYTES}: do it in smaller parts"
        );
        return Err(Refused::new("E_APPROVAL_TOO_LARGE", message));
    }
    Ok(())
}
