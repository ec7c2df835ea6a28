//! What agents ask people about, and what was decided of it (`STEER-3`).

use std::collections::{HashMap, HashSet};

use goondan_protocol::agents::{AgentAnswer, AgentAsk, Question};
use goondan_protocol::approval::ApprovalDecision;
use goondan_protocol::control::ApprovalInfo;
use goondan_protocol::ids::{ApprovalId, EventId, ToolCallId, TurnId};
use serde_json::json;

/// The input of an event in whose turn a person is asked.
pub(super) const ASK_FIRST: &str = "ask first";

/// What an agent asks a person in the turn of an event.
pub(super) fn ask_of(turn_id: &TurnId, event_id: &EventId) -> AgentAsk {
    AgentAsk {
        turn_id: turn_id.clone(),
        step: 1,
        call: 9,
        question: Question::Approval {
            tool_call_id: ToolCallId::new("risky").unwrap(),
            tool_name: "bash__exec".to_owned(),
            input: json!({"command": event_id}),
            may_have_begun: false,
        },
    }
}

/// What was decided, and what agents were told of it. Each turn asks about one call.
#[derive(Debug, Default)]
pub(super) struct Decisions {
    /// Under what each turn's call is asked about.
    ids: HashMap<TurnId, ApprovalId>,
    /// What people wanted, whether it was carried out or not.
    wanted: HashSet<(ApprovalId, &'static str)>,
    /// What people were told to have decided.
    taken: HashMap<ApprovalId, ApprovalDecision>,
    /// What agents were told.
    told: HashMap<ApprovalId, ApprovalDecision>,
    /// Of what a chat was told that it waits no more.
    closed: HashSet<ApprovalId>,
    /// Whose calls an agent was told to begin.
    begun: HashSet<TurnId>,
}

impl Decisions {
    /// A person sees what waits, which is on record: it has the same id for good.
    pub(super) fn list(&mut self, found: &[ApprovalInfo]) {
        for info in found {
            let id = &info.approval_id;
            let known = self.ids.entry(info.turn_id.clone()).or_insert(id.clone());
            assert_eq!(known, id, "one call is asked about twice");
            assert!(!self.taken.contains_key(id), "`{id}` waits and is decided");
            assert!(!self.closed.contains(id), "`{id}` waits and was closed");
        }
    }

    /// Whether a person has seen it.
    pub(super) fn is_listed(&self, id: &ApprovalId) -> bool {
        self.ids.values().any(|listed| listed == id)
    }

    /// A chat is told that it waits no more. This stays so.
    pub(super) fn close(&mut self, id: &ApprovalId) {
        self.closed.insert(id.clone());
    }

    /// A person wants this; it may be carried out, whatever becomes of the daemon.
    pub(super) fn want(&mut self, id: &ApprovalId, decision: ApprovalDecision) {
        self.wanted.insert((id.clone(), decision.as_str()));
    }

    /// A person is told that this was decided, which is durable.
    pub(super) fn take(&mut self, id: &ApprovalId, decision: ApprovalDecision) {
        let before = self.taken.insert(id.clone(), decision);
        assert_eq!(before, None, "`{id}` was decided twice");
        self.check(id);
    }

    /// An agent is told what was decided.
    pub(super) fn tell(
        &mut self,
        turn_id: &TurnId,
        decision: ApprovalDecision,
        has_begun: bool,
    ) -> &'static str {
        let id = self.ids.get(turn_id);
        let id = id.expect("nobody has seen what was decided about").clone();
        let is_wanted = self.wanted.contains(&(id.clone(), decision.as_str()));
        assert!(is_wanted, "nobody wanted `{id}` {}", decision.as_str());
        let before = self.told.insert(id.clone(), decision);
        assert!(before.is_none_or(|before| before == decision), "`{id}`");
        self.check(&id);
        match decision {
            ApprovalDecision::Denied => "approval: denied",
            ApprovalDecision::Approved if has_begun => "approval: approved, and may have begun",
            ApprovalDecision::Approved => {
                let is_first = self.begun.insert(turn_id.clone());
                assert!(is_first, "`{id}` is to be begun twice");
                "approval: approved"
            }
        }
    }

    fn check(&self, id: &ApprovalId) {
        if let (Some(taken), Some(told)) = (self.taken.get(id), self.told.get(id)) {
            assert_eq!(taken, told, "a person and an agent are told another thing");
        }
    }
}

/// Whether it is an answer to what a person was asked.
pub(super) fn is_decision(answer: &AgentAnswer) -> bool {
    matches!(
        answer,
        AgentAnswer::Approval { .. } | AgentAnswer::Refused { .. }
    )
}
