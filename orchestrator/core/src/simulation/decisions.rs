//! Approval requests of agents, and the decisions on them (`STEER-3`).

use std::collections::{HashMap, HashSet};

use goondan_protocol::agents::{AgentAnswer, AgentAsk, AgentQuestion};
use goondan_protocol::approval::ApprovalDecision;
use goondan_protocol::control::ApprovalInfo;
use goondan_protocol::ids::{ApprovalId, EventId, ToolCallId, TurnId};
use serde_json::json;

/// The input of an event whose turn requests approval.
pub(super) const ASK_FIRST: &str = "ask first";

/// The approval request of an event's turn.
pub(super) fn ask_of(turn_id: &TurnId, event_id: &EventId) -> AgentAsk {
    AgentAsk {
        turn_id: turn_id.clone(),
        step: 1,
        call: 9,
        question: AgentQuestion::Approval {
            tool_call_id: ToolCallId::new("risky").unwrap(),
            tool_name: "bash__exec".to_owned(),
            input: json!({"command": event_id}),
            schema: None,
            may_have_begun: false,
            needs_two: is_for_two(event_id),
        },
    }
}

/// True if two people must approve the call of an event's turn.
fn is_for_two(event_id: &EventId) -> bool {
    event_id.as_str().bytes().fold(0_u8, u8::wrapping_add) % 3 == 0
}

/// A person who decides in the simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Decider {
    /// Every client.
    Client,
    /// The user of the chat.
    User,
}

/// Decisions, and their delivery to agents. Each turn requests approval of one call.
#[derive(Debug, Default)]
pub(super) struct Decisions {
    /// Approval id of each turn's call.
    ids: HashMap<TurnId, ApprovalId>,
    /// Requested decisions, applied or not.
    wanted: HashSet<(ApprovalId, &'static str)>,
    /// People who tried to approve, with or without effect.
    approvers: HashSet<(ApprovalId, Decider)>,
    /// The first of two approvals, as confirmed to the person.
    first: HashMap<ApprovalId, Decider>,
    taken: HashMap<ApprovalId, ApprovalDecision>,
    told: HashMap<ApprovalId, ApprovalDecision>,
    /// Approvals reported as closed to a chat.
    closed: HashSet<ApprovalId>,
    /// Turns whose agent was allowed to begin the call.
    begun: HashSet<TurnId>,
}

impl Decisions {
    /// Records listed approvals. They are durable, so their ids never change.
    pub(super) fn list(&mut self, found: &[ApprovalInfo]) {
        for info in found {
            let id = &info.approval_id;
            let known = self.ids.entry(info.turn_id.clone()).or_insert(id.clone());
            assert_eq!(known, id, "one call is asked about twice");
            assert!(!self.taken.contains_key(id), "`{id}` waits and is decided");
            assert!(!self.closed.contains(id), "`{id}` waits and was closed");
            if let Some(first) = self.first.get(id) {
                let listed = info.first_approval.as_ref();
                let listed = listed.expect("the first of two approvals was lost");
                let is_client = listed.by.is_none();
                assert_eq!(is_client, *first == Decider::Client, "`{id}`");
            }
        }
    }

    /// True if a user has listed it.
    pub(super) fn is_listed(&self, id: &ApprovalId) -> bool {
        self.ids.values().any(|listed| listed == id)
    }

    /// Records that a chat was notified of a closed approval. This is permanent.
    pub(super) fn close(&mut self, id: &ApprovalId) {
        self.closed.insert(id.clone());
    }

    /// Records a requested decision. It may be applied even if the daemon crashes.
    pub(super) fn want(&mut self, id: &ApprovalId, decision: ApprovalDecision, who: Decider) {
        if decision == ApprovalDecision::Approved {
            self.approvers.insert((id.clone(), who));
        }
        self.wanted.insert((id.clone(), decision.as_str()));
    }

    /// Records the first of two approvals confirmed to a person, which is durable.
    pub(super) fn count_first(&mut self, id: &ApprovalId, who: Decider) {
        let before = self.first.insert(id.clone(), who);
        assert_eq!(before, None, "`{id}` has two first approvals");
        assert!(!self.taken.contains_key(id), "`{id}` was decided before");
    }

    /// Records a decision confirmed to a user, which is durable.
    pub(super) fn take(&mut self, id: &ApprovalId, decision: ApprovalDecision) {
        let before = self.taken.insert(id.clone(), decision);
        assert_eq!(before, None, "`{id}` was decided twice");
        self.check(id);
    }

    /// Records a decision delivered to an agent.
    pub(super) fn tell(
        &mut self,
        ask: &AgentAsk,
        decision: ApprovalDecision,
        has_begun: bool,
    ) -> &'static str {
        let turn_id = &ask.turn_id;
        let id = self.ids.get(turn_id);
        let id = id.expect("the decided call was never seen").clone();
        let is_wanted = self.wanted.contains(&(id.clone(), decision.as_str()));
        assert!(is_wanted, "no user requested `{id}` {}", decision.as_str());
        let needs_two = matches!(
            ask.question,
            AgentQuestion::Approval {
                needs_two: true,
                ..
            }
        );
        if needs_two && decision == ApprovalDecision::Approved {
            for who in [Decider::Client, Decider::User] {
                let is_approver = self.approvers.contains(&(id.clone(), who));
                assert!(is_approver, "`{id}` runs without the approval of {who:?}");
            }
        }
        let before = self.told.insert(id.clone(), decision);
        assert!(before.is_none_or(|before| before == decision), "`{id}`");
        self.check(&id);
        match decision {
            ApprovalDecision::Denied => "approval: denied",
            ApprovalDecision::Approved if has_begun => "approval: approved, and may have begun",
            ApprovalDecision::Approved => {
                let is_first = self.begun.insert(turn_id.clone());
                assert!(is_first, "`{id}` must not start twice");
                "approval: approved"
            }
        }
    }

    fn check(&self, id: &ApprovalId) {
        if let (Some(taken), Some(told)) = (self.taken.get(id), self.told.get(id)) {
            assert_eq!(taken, told, "a person and an agent get different decisions");
        }
    }
}

/// True if this is an answer to an approval request.
pub(super) fn is_decision(answer: &AgentAnswer) -> bool {
    matches!(
        answer,
        AgentAnswer::Approval { .. } | AgentAnswer::Refused { .. }
    )
}
