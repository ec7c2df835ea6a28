//! Decisions on pending approvals from clients and chats. Each is recorded durably before it is
//! reported.

use goondan_config::check_arguments;
use goondan_protocol::approval::{ApprovalDecision, ApprovalScope};
use goondan_protocol::control::{ApprovalDecided, ControlError, DecideApproval, ErrorCode};
use goondan_protocol::decision::DecisionVerdict;
use goondan_protocol::ids::{ApprovalId, InstanceRef};
use goondan_protocol::lifecycle::LifecycleEvent;
use goondan_protocol::limits::{MAX_APPROVAL_INPUT_BYTES, MAX_APPROVAL_REASON_BYTES};
use goondan_protocol::observe::RuntimeEventKind as Kind;
use goondan_store::StoreError;
use goondan_store::instance::{ApprovalMark, CallDecision, FirstConsent};
use goondan_store::writer::operation::NoteApproval;
use serde_json::{Value, json};

use super::pending::{Approvals, OpenApproval};
use crate::bus::context::Cx;
use crate::exchange::ChildRequest;
use crate::fleet::Workspace;
use crate::fleet::conversation::Conversation;
use crate::jobs::continuation;
use crate::limits::DENY_AGAIN_MS;
use crate::refusals::control_error;
use crate::{Peer, RequestToken};

/// Recipient of a decision's result.
#[derive(Debug, Clone, Copy)]
pub(crate) enum DecisionRequester {
    Client(RequestToken),
    /// A client that also stored a standing approval.
    StandingClient(RequestToken, ApprovalScope),
    /// A connection whose button was pressed.
    Button(ChildRequest),
    /// The configuration: the time limit is over.
    Timeout,
    /// A standing approval.
    Standing,
}

/// The decider of calls whose time limit is over. Other deciders have a user's id after a colon.
const TIMEOUT: &str = "timeout";

/// Prefix of the decider of calls that a standing approval covers, before its id.
const STANDING: &str = "standing:";

/// Recorded decider of calls that this standing approval covers.
pub(super) fn standing_decider(id: &ApprovalId) -> String {
    format!("{STANDING}{id}")
}

/// An authorized decision on a pending approval.
#[derive(Debug)]
pub(crate) struct AuthorizedDecision {
    pub(in crate::fleet) approval_id: ApprovalId,
    pub(in crate::fleet) decision: ApprovalDecision,
    /// Arguments to execute the call with instead of its own.
    pub(in crate::fleet) input: Option<Value>,
    pub(in crate::fleet) reason: Option<String>,
    /// The user, if the connection reports one.
    pub(in crate::fleet) by: Option<String>,
}

continuation! {
    DecidingCall { decider: DecisionRequester, decided: CallDecision }
        after NoteApproval => workspace.on_approval_decided
}

continuation! {
    /// Records the approval of the first of two people.
    ConsentingFirst { decider: DecisionRequester, consent: FirstConsent }
        after NoteApproval => workspace.on_first_consent
}

pub(super) fn no_approval(id: &ApprovalId) -> ControlError {
    let text = format!(
        "no tool call waits for approval `{id}`: its turn has ended, or it has another approval id"
    );
    ControlError::new(ErrorCode::ApprovalNotFound, text)
        .suggest("list waiting tool calls: `gdn inbox approvals`")
}

fn decided_before(id: &ApprovalId, decision: Option<ApprovalDecision>) -> ControlError {
    let how = decision.map_or("decided", ApprovalDecision::as_str);
    let text = format!("`{id}` was already {how}; nothing was changed");
    ControlError::new(ErrorCode::ApprovalDecided, text)
        .suggest("list waiting tool calls: `gdn inbox approvals`")
}

/// Refuses the approval of a person who approved the call before.
fn approved_before(id: &ApprovalId) -> ControlError {
    let text = format!(
        "`{id}` was already approved by a client of this daemon (1 of 2): another person must \
         approve it; nothing was changed"
    );
    ControlError::new(ErrorCode::ApprovalDecided, text).suggest(format!(
        "ask another person to approve it in a chat, or deny it: `gdn inbox deny {id}`"
    ))
}

/// Message for a person whose approval arrives while another one is being recorded.
pub(in crate::fleet) const CONSENT_IN_PROGRESS: &str =
    "the approval of another person is being recorded";

/// True if the configuration made this decision, because the time limit was over.
pub(super) fn is_timeout(decided: &CallDecision) -> bool {
    decided.by.as_deref() == Some(TIMEOUT)
}

/// Description of a decision for display.
fn in_words(decided: &CallDecision, first: Option<&FirstConsent>) -> String {
    let how = decided.decision.as_str();
    if is_timeout(decided) {
        return format!("{how}: no decision was made in time");
    }
    let by = decided.by.as_deref().unwrap_or("a person");
    let by = match by.strip_prefix(STANDING) {
        Some(id) => format!("standing approval {id}"),
        None => by.to_owned(),
    };
    let is_approved = decided.decision == ApprovalDecision::Approved;
    let by = match first.filter(|_| is_approved) {
        Some(first) => format!("{} and {by}", first.by.as_deref().unwrap_or("the operator")),
        None => by,
    };
    let how = match decided.input {
        Some(_) => format!("{how} with changed arguments by {by}"),
        None => format!("{how} by {by}"),
    };
    match &decided.reason {
        Some(reason) => format!("{how}: {reason}"),
        None => how,
    }
}

/// Checks the arguments that a person sets for a call.
fn check_input(open: &OpenApproval, input: &Value) -> Result<(), ControlError> {
    let call = &open.known.call;
    let refused = |text: String| {
        ControlError::new(ErrorCode::InvalidRequest, text).suggest(format!(
            "see the call: `gdn inbox approvals {}`",
            call.approval_id
        ))
    };
    let bytes = input.to_string().len();
    if bytes > MAX_APPROVAL_INPUT_BYTES {
        return Err(refused(format!(
            "the arguments have {bytes} bytes; at most {MAX_APPROVAL_INPUT_BYTES} are allowed"
        )));
    }
    let checked = match &call.schema {
        Some(schema) => check_arguments(schema, input),
        None if input.is_object() => Ok(()),
        None => Err("expected an object".to_owned()),
    };
    checked.map_err(|faults| {
        refused(format!(
            "the arguments do not fit tool `{}`: {faults}",
            call.tool_name
        ))
    })
}

/// Decisions on the calls of its conversations.
impl Workspace {
    /// Handles a client's decision.
    pub(crate) fn decide_approval(
        &mut self,
        cx: &mut Cx,
        token: RequestToken,
        peer: Peer,
        decide: DecideApproval,
    ) -> Result<(), ControlError> {
        let DecideApproval {
            workspace_id: _,
            approval_id: id,
            decision,
            reason,
            input,
            always,
        } = decide;
        let invalid = |text: &str| {
            Err(ControlError::new(
                ErrorCode::InvalidRequest,
                text.to_owned(),
            ))
        };
        if decision == ApprovalDecision::Denied && (input.is_some() || always.is_some()) {
            return invalid("`input` and `always` need the decision `approved`");
        }
        if input.is_some() && always.is_some() {
            return invalid(
                "`always` covers the arguments that the agent chose, so it cannot be combined with \
                 `input`",
            );
        }
        if reason
            .as_ref()
            .is_some_and(|it| it.len() > MAX_APPROVAL_REASON_BYTES)
        {
            let text = format!("a reason can have at most {MAX_APPROVAL_REASON_BYTES} bytes");
            return Err(ControlError::new(ErrorCode::InvalidRequest, text));
        }
        let found = self.find_approval(&id);
        let at = found.map(|(key, _)| self.conversation_ref(key));
        let at = at.ok_or_else(|| no_approval(&id))?;
        let entry = self.conversations.get_mut(&at.instance_key);
        let entry = entry.ok_or_else(|| no_approval(&id))?;
        let open = entry.approvals().get(&id);
        let open = open.ok_or_else(|| no_approval(&id))?;
        if open.is_consenting {
            let text = format!("{CONSENT_IN_PROGRESS}; nothing was changed");
            let error = ControlError::new(ErrorCode::Overloaded, text);
            return Err(error.suggest("decide again in a moment".to_owned()));
        }
        if open.is_deciding || !open.waits() {
            let decided = open.known.decided.as_ref();
            return Err(decided_before(&id, decided.map(|decided| decided.decision)));
        }
        let input = input.filter(|input| *input != open.known.call.input);
        if open.known.call.needs_two {
            if input.is_some() || always.is_some() {
                let text = "a call that two people must approve takes no `input` and no `always`";
                let error = ControlError::new(ErrorCode::InvalidRequest, text.to_owned());
                let hint = format!("deny it with a reason: `gdn inbox deny {id} --reason '…'`");
                return Err(error.suggest(hint));
            }
            if decision == ApprovalDecision::Approved && open.has_consented(None) {
                return Err(approved_before(&id));
            }
        }
        if let Some(input) = &input {
            check_input(open, input)?;
        }
        let chosen = AuthorizedDecision {
            approval_id: id,
            decision,
            input,
            reason,
            by: None,
        };
        if let Some(scope) = always {
            return self.begin_standing(cx, &at, (token, peer.pid), chosen, scope);
        }
        let decider = DecisionRequester::Client(token);
        entry.note_decision(cx, &at, chosen, decider, peer.pid);
        Ok(())
    }

    /// Denies the calls whose time limit (`Swarm.spec.policy.approvals`) is over. A person's
    /// decision that is being recorded comes first.
    pub(crate) fn deny_late_approvals(&mut self, cx: &mut Cx) {
        let policy = self.approval_policy();
        if policy.timeout_ms.is_none() {
            return;
        }
        for (key, entry) in &mut self.conversations {
            for approval_id in entry.approvals().late(policy, cx.now()) {
                let at = InstanceRef {
                    workspace_id: self.record.workspace_id.clone(),
                    instance_key: key.clone(),
                };
                let chosen = AuthorizedDecision {
                    approval_id,
                    decision: ApprovalDecision::Denied,
                    input: None,
                    reason: None,
                    by: Some(TIMEOUT.to_owned()),
                };
                entry.note_decision(cx, &at, chosen, DecisionRequester::Timeout, None);
            }
        }
    }

    /// Handles the result of recording a decision.
    pub(in crate::fleet) fn on_approval_decided(
        &mut self,
        cx: &mut Cx,
        deciding: DecidingCall,
        result: Result<(), StoreError>,
    ) {
        let DecidingCall {
            instance: at,
            decider,
            decided,
        } = deciding;
        let id = decided.approval_id.clone();
        let mono_ms = cx.now().mono_ms;
        let entry = self.conversations.get_mut(&at.instance_key);
        let open = entry.and_then(|entry| entry.approvals_mut().get_mut(&id));
        if let Some(open) = open {
            open.is_deciding = false;
            open.known.decided = result.is_ok().then(|| decided.clone());
            open.deny_from_ms = mono_ms.saturating_add(DENY_AGAIN_MS);
        }
        match result {
            Ok(()) => {}
            Err(StoreError::WrongTurn { .. }) => {
                self.drop_standing_of(cx, &at, &id, decider);
                return tell_undecided(cx, decider, no_approval(&id), true);
            }
            Err(error) => {
                self.drop_standing_of(cx, &at, &id, decider);
                tell_undecided(cx, decider, control_error(&error), false);
                return self.on_store_failure(cx, &at, None, &error);
            }
        }
        let entry = self.conversations.get(&at.instance_key);
        let open = entry.and_then(|entry| entry.approvals().get(&id));
        let tool_name = open.map(|open| open.known.call.tool_name.clone());
        let first = open.and_then(|open| open.known.consent.as_ref());
        let told = in_words(&decided, first);
        self.tell_closed(cx, &at, &id, &told);
        let detail = match &decided.input {
            Some(input) => format!("{told}: {input}"),
            None => told,
        };
        self.observe_approval(cx, &at, &id, Kind::ApprovalClosed, Some(&detail));
        let decision = decided.decision;
        let always = match decider {
            DecisionRequester::StandingClient(_, scope) => Some(scope),
            _ => None,
        };
        match decider {
            DecisionRequester::Client(token) | DecisionRequester::StandingClient(token, _) => {
                let answer = ApprovalDecided {
                    approval_id: id.clone(),
                    decision,
                    instance_key: at.instance_key.clone(),
                    tool_name: tool_name.unwrap_or_default(),
                    is_changed: decided.input.is_some(),
                    always,
                    needs_another: false,
                };
                cx.respond(token, &answer);
            }
            DecisionRequester::Button(press) => {
                let how = decision.as_str().to_owned();
                let verdict = DecisionVerdict::Decided { how };
                cx.answer_press(press, verdict);
            }
            DecisionRequester::Timeout | DecisionRequester::Standing => {}
        }
        self.go_on_with_approval(cx, &at, &id);
        if always.is_some() {
            self.approve_all_standing(cx);
        }
    }

    /// Handles the result of recording the approval of the first of two people.
    pub(in crate::fleet) fn on_first_consent(
        &mut self,
        cx: &mut Cx,
        consenting: ConsentingFirst,
        result: Result<(), StoreError>,
    ) {
        let ConsentingFirst {
            instance: at,
            decider,
            consent,
        } = consenting;
        let id = consent.approval_id.clone();
        let entry = self.conversations.get_mut(&at.instance_key);
        let open = entry.and_then(|entry| entry.approvals_mut().get_mut(&id));
        let open = open.map(|open| {
            (open.is_deciding, open.is_consenting) = (false, false);
            if result.is_ok() {
                open.known.consent = Some(consent);
            }
            open.known.call.tool_name.clone()
        });
        match result {
            Ok(()) => {}
            Err(StoreError::WrongTurn { .. }) => {
                return tell_undecided(cx, decider, no_approval(&id), true);
            }
            Err(error) => {
                tell_undecided(cx, decider, control_error(&error), false);
                return self.on_store_failure(cx, &at, None, &error);
            }
        }
        let Some(tool_name) = open else {
            // The turn ended in the meantime.
            return tell_undecided(cx, decider, no_approval(&id), true);
        };
        match decider {
            DecisionRequester::Client(token) | DecisionRequester::StandingClient(token, _) => {
                let answer = ApprovalDecided {
                    approval_id: id.clone(),
                    decision: ApprovalDecision::Approved,
                    instance_key: at.instance_key.clone(),
                    tool_name: tool_name.clone(),
                    is_changed: false,
                    always: None,
                    needs_another: true,
                };
                cx.respond(token, &answer);
            }
            DecisionRequester::Button(press) => {
                let message = "approved, 1 of 2: another person must approve it, too".to_owned();
                cx.answer_press(press, DecisionVerdict::Counted { message });
            }
            DecisionRequester::Timeout | DecisionRequester::Standing => {}
        }
        // Clients read the list again, because the call waits for another person.
        if let Some(entry) = self.conversations.get(&at.instance_key) {
            let asked = LifecycleEvent::ApprovalAsked {
                instance_key: at.instance_key.clone(),
                approval_id: id.clone(),
                tool_name,
            };
            let trace = entry.turn().map(|turn| turn.context.trace);
            entry.announce(cx, &at, asked, trace);
        }
        self.show_first_approval(cx, &at, &id);
    }
}

impl Conversation {
    /// Records a decision, unless the call was decided or a decision is being recorded.
    pub(in crate::fleet) fn note_decision(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        chosen: AuthorizedDecision,
        decider: DecisionRequester,
        client_pid: Option<u32>,
    ) {
        let wall = cx.now().wall;
        let AuthorizedDecision {
            approval_id: id,
            decision,
            input,
            reason,
            by,
        } = chosen;
        let Some(open) = self.approvals_mut().get_mut(&id) else {
            return;
        };
        open.is_deciding = true;
        let is_first = decision == ApprovalDecision::Approved && open.lacks_another(by.as_deref());
        open.is_consenting = is_first;
        let turn_id = open.turn_id.clone();
        let mut record = json!({
            "approvalId": id, "toolName": open.known.call.tool_name,
            "toolCallId": open.known.call.tool_call_id,
        });
        if let Some(record) = record.as_object_mut() {
            record.extend(client_pid.map(|pid| ("clientPid".to_owned(), json!(pid))));
            record.extend(by.as_ref().map(|it| ("by".to_owned(), json!(it))));
            record.extend(reason.as_ref().map(|it| ("reason".to_owned(), json!(it))));
            record.extend(input.as_ref().map(|it| ("input".to_owned(), json!(it))));
        }
        if is_first {
            let consent = FirstConsent {
                approval_id: id,
                by,
                at: wall,
            };
            let note = NoteApproval {
                instance: at.clone(),
                turn_id,
                mark: ApprovalMark::Consented {
                    consent: consent.clone(),
                },
            };
            let then = ConsentingFirst {
                instance: at.clone(),
                decider,
                consent,
            };
            cx.store(note, then);
            return cx.audit(at, Some(self.agent()), "callApprovedFirst", record);
        }
        let decided = CallDecision {
            approval_id: id,
            decision,
            input,
            reason,
            by,
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
            decider,
            decided,
        };
        cx.store(note, then);
        let what = match decision {
            ApprovalDecision::Approved => "callApproved",
            ApprovalDecision::Denied => "callDenied",
        };
        cx.audit(at, Some(self.agent()), what, record);
    }
}

impl OpenApproval {
    /// Description of the decision, if there is one.
    fn outcome(&self) -> Option<String> {
        let decided = self.known.decided.as_ref()?;
        Some(in_words(decided, self.known.consent.as_ref()))
    }
}

impl Approvals {
    /// Description of the decision on a call, empty while it is pending; `None` if the call does
    /// not exist.
    pub(in crate::fleet) fn decision_about(&self, id: &ApprovalId) -> Option<Option<String>> {
        let open = self.get(id)?;
        Some(open.outcome())
    }

    /// Description of the decision, including one that is being recorded; `None` while the call is
    /// pending.
    pub(in crate::fleet) fn decided_or_deciding(&self, id: &ApprovalId) -> Option<String> {
        let open = self.get(id)?;
        let is_deciding = || open.is_deciding.then(|| "being decided".to_owned());
        open.outcome().or_else(is_deciding)
    }

    /// True if an approval is being recorded that leaves the call waiting for another person.
    pub(in crate::fleet) fn is_consenting(&self, id: &ApprovalId) -> bool {
        self.get(id).is_some_and(|open| open.is_consenting)
    }

    /// True if this user approved already, and another person must.
    pub(in crate::fleet) fn has_consented(&self, id: &ApprovalId, by: &str) -> bool {
        self.get(id)
            .is_some_and(|open| open.has_consented(Some(by)))
    }

    /// The full name of the tool of a call.
    pub(in crate::fleet) fn tool_of(&self, id: &ApprovalId) -> Option<&str> {
        self.get(id).map(|it| it.known.call.tool_name.as_str())
    }

    /// True if a call does not fit into a message, so that a button must not approve it.
    pub(in crate::fleet) fn is_too_long_for_button(&self, id: &ApprovalId) -> bool {
        self.get(id).is_some_and(|it| !it.fits_message())
    }
}

/// Reports that a decision had no effect.
fn tell_undecided(cx: &mut Cx, decider: DecisionRequester, error: ControlError, is_over: bool) {
    let message = error.message.clone();
    match decider {
        DecisionRequester::Client(token) | DecisionRequester::StandingClient(token, _) => {
            cx.respond_error(token, error);
        }
        DecisionRequester::Button(press) => {
            let verdict = match is_over {
                true => DecisionVerdict::Over {},
                false => DecisionVerdict::NotNow { message },
            };
            cx.answer_press(press, verdict);
        }
        // It is tried again after [`DENY_AGAIN_MS`] while the call waits.
        DecisionRequester::Timeout => {}
        // Its process asks again.
        DecisionRequester::Standing => {}
    }
}
