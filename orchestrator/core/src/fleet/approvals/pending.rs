//! Recorded approvals of a conversation's open turn.

use goondan_config::ApprovalPolicy;
use goondan_protocol::control::{ApprovalInfo, ApprovalPlace, FirstApproval};
use goondan_protocol::decision::{
    DecisionButton, DecisionChoice, DecisionDefault, DecisionForm, DecisionShow, DecisionSubject,
};
use goondan_protocol::ids::{AgentName, ApprovalId, InstanceKey, InstanceRef, TurnId, WorkspaceId};
use goondan_protocol::limits::MAX_APPROVAL_BUTTON_BYTES;
use goondan_protocol::observe::detail_of;
use goondan_protocol::time::Timestamp;
use goondan_store::instance::{Approval, ApprovalRequest, InstanceState};

use crate::ClockTime;
use crate::fleet::agent_replies::pending_replies::Requester;

/// A call that needs approval.
#[derive(Debug)]
pub(super) struct OpenApproval {
    pub(super) turn_id: TurnId,
    pub(super) known: Approval,
    /// The process that waits for the decision; `None` while no process works on the turn.
    pub(super) requester: Option<Requester>,
    /// A decision is being recorded.
    pub(super) is_deciding: bool,
    /// The approval of the first of two people is being recorded.
    pub(super) is_consenting: bool,
    /// A delivery is being recorded.
    pub(super) is_handing: bool,
    /// A process has received the approval.
    pub(super) is_told: bool,
    /// Earliest time, on the monotonic clock, to deny it because its time limit is over.
    pub(super) deny_from_ms: u64,
}

impl OpenApproval {
    pub(super) fn waits(&self) -> bool {
        self.known.decided.is_none()
    }

    /// True if the whole call fits into a chat message.
    pub(super) fn fits_message(&self) -> bool {
        self.known.call.input.to_string().len() <= MAX_APPROVAL_BUTTON_BYTES
    }

    /// True if no decision was made or is being recorded.
    pub(super) fn is_undecided(&self) -> bool {
        self.waits() && !self.is_deciding
    }

    /// The approval of the first of two people, if it is the only one so far.
    pub(super) fn first_approval(&self) -> Option<FirstApproval> {
        let first = self.known.consent.as_ref()?;
        Some(FirstApproval {
            by: first.by.clone(),
            at: first.at,
        })
    }

    /// True if the approval of this person leaves the call waiting for another one. The person is
    /// a user of a chat, or one of the clients, which all count as the same person.
    pub(super) fn lacks_another(&self, by: Option<&str>) -> bool {
        let first = self.known.consent.as_ref();
        self.known.call.needs_two && first.is_none_or(|first| first.by.as_deref() == by)
    }

    /// True if this person approved already, and another one must.
    pub(super) fn has_consented(&self, by: Option<&str>) -> bool {
        self.known.consent.is_some() && self.lacks_another(by)
    }

    /// Sort key: longest waiting first.
    pub(super) fn place(&self, workspace_id: &WorkspaceId) -> ApprovalPlace {
        ApprovalPlace {
            asked_at: self.known.call.at,
            workspace_id: workspace_id.clone(),
            approval_id: self.known.call.approval_id.clone(),
        }
    }

    /// The approval as clients see it.
    pub(super) fn info(
        &self,
        at: &InstanceRef,
        agent: &AgentName,
        policy: ApprovalPolicy,
    ) -> ApprovalInfo {
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
            denied_at: policy.denied_at(call.at),
            needs_two: call.needs_two,
            first_approval: self.first_approval(),
        }
    }
}

/// The calls of a conversation's open turn that need approval.
#[derive(Debug, Default)]
pub(crate) struct Approvals(pub(super) Vec<OpenApproval>);

impl Approvals {
    pub(in crate::fleet) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(in crate::fleet) fn waiting(&self) -> impl Iterator<Item = &ApprovalId> {
        let waiting = self.0.iter().filter(|open| open.waits());
        waiting.map(|open| &open.known.call.approval_id)
    }

    /// Pending approvals that are `wanted`, as connections show them, with the time of each
    /// request.
    pub(in crate::fleet) fn to_show(
        &self,
        (key, agent): (&InstanceKey, &AgentName),
        policy: ApprovalPolicy,
        wanted: impl Fn(&ApprovalId) -> bool,
    ) -> impl Iterator<Item = (Timestamp, DecisionShow)> {
        let waiting = self.0.iter().filter(|open| open.waits());
        let wanted = waiting.filter(move |open| wanted(&open.known.call.approval_id));
        wanted.map(move |open| {
            let call = &open.known.call;
            let choice = |answer, label: &str| DecisionChoice {
                answer,
                label: label.to_owned(),
            };
            let approve = choice(DecisionButton::Approve, "Approve");
            let approve = Some(approve).filter(|_| open.fits_message());
            let deny = choice(DecisionButton::Deny, "Deny");
            let show = DecisionShow {
                decision_id: (&call.approval_id).into(),
                about: DecisionSubject::Call {
                    instance_key: key.clone(),
                    agent_name: agent.clone(),
                    tool_name: call.tool_name.clone(),
                    input: call.input.clone(),
                    may_have_begun: call.may_have_begun,
                    needs_two: call.needs_two,
                    first_approval: open.first_approval().map(|first| first.in_words()),
                },
                form: DecisionForm {
                    choices: approve.into_iter().chain([deny]).collect(),
                    reply: None,
                },
                expires: policy.denied_at(call.at).map(|at| DecisionDefault {
                    at,
                    outcome: "it is denied".to_owned(),
                }),
            };
            (call.at, show)
        })
    }

    /// Undecided approvals whose time limit is over; not those whose decision is being recorded.
    pub(super) fn late(&self, policy: ApprovalPolicy, now: ClockTime) -> Vec<ApprovalId> {
        let undecided = self.0.iter().filter(|open| {
            let is_free = open.is_undecided();
            is_free && open.deny_from_ms <= now.mono_ms
        });
        let late = undecided.filter(|open| {
            let denied_at = policy.denied_at(open.known.call.at);
            denied_at.is_some_and(|at| at.as_unix_millis() <= now.wall.as_unix_millis())
        });
        late.map(|open| open.known.call.approval_id.clone())
            .collect()
    }

    pub(super) fn get(&self, id: &ApprovalId) -> Option<&OpenApproval> {
        let mut all = self.0.iter();
        all.find(|open| open.known.call.approval_id == *id)
    }

    pub(super) fn get_mut(&mut self, id: &ApprovalId) -> Option<&mut OpenApproval> {
        let mut all = self.0.iter_mut();
        all.find(|open| open.known.call.approval_id == *id)
    }

    pub(super) fn of_call(&mut self, call: &ApprovalRequest) -> Option<&mut OpenApproval> {
        self.0.iter_mut().find(|open| {
            let known = &open.known.call;
            known.step_id == call.step_id && known.tool_call_id == call.tool_call_id
        })
    }

    /// Removes the waiting processes after the process exited.
    pub(in crate::fleet) fn forget_requesters(&mut self) {
        for open in &mut self.0 {
            open.requester = None;
        }
    }

    /// Loads the recorded state.
    pub(in crate::fleet) fn read(&mut self, state: &InstanceState) {
        let mut before = std::mem::take(&mut self.0);
        // Approvals end with their turn.
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
                    is_consenting: false,
                    is_handing: false,
                    deny_from_ms: 0,
                },
            };
            self.0.push(open);
        }
    }
}

#[cfg(test)]
mod tests {
    use goondan_protocol::approval::ApprovalDecision;
    use goondan_protocol::ids::StepId;
    use goondan_store::instance::{CallDecision, FirstConsent};
    use serde_json::json;

    use super::*;

    const ASKED_MS: i64 = 1_000;

    fn open(id: &str) -> OpenApproval {
        let turn_id: TurnId = "t".parse().unwrap();
        OpenApproval {
            known: Approval {
                call: ApprovalRequest {
                    approval_id: id.parse().unwrap(),
                    step_id: StepId::of_turn(&turn_id, 1),
                    tool_call_id: id.parse().unwrap(),
                    tool_name: "bash__exec".to_owned(),
                    input: json!({"command": "ls"}),
                    schema: None,
                    may_have_begun: false,
                    needs_two: false,
                    at: Timestamp::from_unix_millis(ASKED_MS),
                },
                consent: None,
                decided: None,
                is_handed: false,
            },
            turn_id,
            requester: None,
            is_deciding: false,
            is_consenting: false,
            is_handing: false,
            is_told: false,
            deny_from_ms: 0,
        }
    }

    #[test]
    fn need_1_each_person_counts_once_of_two() {
        let mut one = open("a-1");
        assert!(!one.lacks_another(None), "one person is enough");
        let mut two = open("a-2");
        two.known.call.needs_two = true;
        assert!(two.lacks_another(None) && two.lacks_another(Some("telegram:7")));
        assert!(!two.has_consented(None), "no person approved it yet");
        for (first, other) in [
            (None, Some("telegram:7")),
            (Some("telegram:7"), None),
            (Some("telegram:7"), Some("slack:7")),
        ] {
            let consent = FirstConsent {
                approval_id: two.known.call.approval_id.clone(),
                by: first.map(str::to_owned),
                at: Timestamp::from_unix_millis(ASKED_MS),
            };
            two.known.consent = Some(consent.clone());
            assert!(two.has_consented(first) && two.lacks_another(first));
            assert!(!two.has_consented(other) && !two.lacks_another(other));
            one.known.consent = Some(consent);
            assert!(!one.has_consented(first), "one person is enough");
        }
        let words = two.first_approval().map(|first| first.in_words());
        assert_eq!(words.as_deref(), Some("1 of 2, by telegram:7"));
    }

    #[test]
    fn steer_3_only_undecided_calls_are_late_and_only_with_a_time_limit() {
        let decided = CallDecision {
            approval_id: "a-decided".parse().unwrap(),
            decision: ApprovalDecision::Approved,
            input: None,
            reason: None,
            by: None,
            at: Timestamp::from_unix_millis(ASKED_MS),
        };
        let mut approvals = Approvals(vec![
            open("a-waits"),
            OpenApproval {
                is_deciding: true,
                ..open("a-deciding")
            },
            open("a-decided"),
            OpenApproval {
                deny_from_ms: 70,
                ..open("a-failed")
            },
        ]);
        let id: ApprovalId = "a-decided".parse().unwrap();
        approvals.get_mut(&id).unwrap().known.decided = Some(decided);
        let late = |timeout_ms: Option<u64>, wall_ms: i64, mono_ms: u64| {
            let now = ClockTime {
                mono_ms,
                wall: Timestamp::from_unix_millis(wall_ms),
            };
            let late = approvals.late(ApprovalPolicy { timeout_ms }, now);
            let late = late.iter().map(|id| id.as_str().to_owned());
            late.collect::<Vec<_>>()
        };
        assert_eq!(late(None, i64::MAX, u64::MAX), [""; 0]);
        assert_eq!(late(Some(5), ASKED_MS + 4, 69), [""; 0]);
        assert_eq!(late(Some(5), ASKED_MS + 5, 69), ["a-waits"]);
        assert_eq!(late(Some(5), ASKED_MS + 5, 70), ["a-waits", "a-failed"]);
        // A limit that is never reached.
        assert_eq!(late(Some(u64::MAX), ASKED_MS, 70), [""; 0]);
    }
}
