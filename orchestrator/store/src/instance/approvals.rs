//! Approvals of the open turn's tool calls (`STEER-3`): requested, decided, and handed over.
//!
//! The records are part of the turn's journal, between its message events, and end with the turn. A
//! decision is final, and its handover is recorded in advance: after a crash it is known that the
//! call may have begun.

use goondan_protocol::approval::ApprovalDecision;
use goondan_protocol::ids::{ApprovalId, StepId, ToolCallId, TurnId};
use goondan_protocol::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::InstanceStore;
use crate::error::StoreError;

/// A tool call that needs approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalRequest {
    pub approval_id: ApprovalId,
    /// The step of the call.
    pub step_id: StepId,
    pub tool_call_id: ToolCallId,
    pub tool_name: String,
    pub input: Value,
    /// JSON Schema of the arguments, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// True if an earlier process may have begun the call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_have_begun: bool,
    /// True if two different people must approve the call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub needs_two: bool,
    pub at: Timestamp,
}

/// The approval of the first of two people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FirstConsent {
    pub approval_id: ApprovalId,
    /// The user, if the connection reports one, such as `telegram:12345`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    pub at: Timestamp,
}

/// A user's decision about a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallDecision {
    pub approval_id: ApprovalId,
    pub decision: ApprovalDecision,
    /// Arguments that the user set instead of the call's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// The reason given by the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The deciding user, if the connection reports one, such as `telegram:12345`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    pub at: Timestamp,
}

/// Approval event of a call: a record of the turn's journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all_fields = "camelCase")]
pub enum ApprovalMark {
    /// Approval is requested. A repeated request for a call replaces the earlier one under a new
    /// id.
    #[serde(rename = "approval_asked")]
    Asked { call: ApprovalRequest },
    /// The first of two people approves the call.
    #[serde(rename = "approval_consented")]
    Consented { consent: FirstConsent },
    #[serde(rename = "approval_decided")]
    Decided { decided: CallDecision },
    /// The decision is about to be handed over. From now on the call may have begun.
    #[serde(rename = "approval_handed")]
    Handed { approval_id: ApprovalId },
}

/// Recorded state of one approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    pub call: ApprovalRequest,
    /// The approval of the first of two people.
    pub consent: Option<FirstConsent>,
    /// The decision; `None` while it is pending.
    pub decided: Option<CallDecision>,
    /// True if the decision was handed over.
    pub is_handed: bool,
}

impl Approval {
    /// True if a decision does not lack the approval of another person.
    fn is_agreed(&self, decided: &CallDecision) -> bool {
        let is_approved = decided.decision == ApprovalDecision::Approved;
        if !self.call.needs_two || !is_approved {
            return true;
        }
        let first = self.consent.as_ref();
        first.is_some_and(|first| first.by != decided.by && decided.input.is_none())
    }
}

/// Approvals of one turn, in the order of their requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Approvals(Vec<Approval>);

impl Approvals {
    pub(super) fn all(&self) -> &[Approval] {
        &self.0
    }

    fn get_mut(&mut self, id: &ApprovalId) -> Option<&mut Approval> {
        let mut all = self.0.iter_mut();
        all.find(|known| known.call.approval_id == *id)
    }

    /// Checks that an approval event is valid in the current state.
    ///
    /// # Errors
    ///
    /// The reason why it is not.
    pub(super) fn check(&self, mark: &ApprovalMark) -> Result<(), String> {
        let find = |id: &ApprovalId| {
            let known = self.0.iter().find(|known| known.call.approval_id == *id);
            known.ok_or_else(|| format!("approval `{id}` does not exist"))
        };
        match mark {
            ApprovalMark::Asked { call } => match find(&call.approval_id) {
                Ok(_) => Err(format!(
                    "approval `{}` was requested before",
                    call.approval_id
                )),
                Err(_) => Ok(()),
            },
            ApprovalMark::Consented { consent } => {
                let id = &consent.approval_id;
                let known = find(id)?;
                match known.call.needs_two && known.consent.is_none() && known.decided.is_none() {
                    true => Ok(()),
                    false => Err(format!(
                        "`{id}` does not wait for the first of two approvals"
                    )),
                }
            }
            ApprovalMark::Decided { decided } => {
                let id = &decided.approval_id;
                let known = find(id)?;
                if let Some(before) = &known.decided {
                    let before = before.decision.as_str();
                    return Err(format!("`{id}` was {before} before"));
                }
                match known.is_agreed(decided) {
                    true => Ok(()),
                    false => Err(format!("`{id}` needs the approval of two different people")),
                }
            }
            ApprovalMark::Handed { approval_id } => {
                let known = find(approval_id)?;
                let decision = known.decided.as_ref().map(|decided| decided.decision);
                if decision != Some(ApprovalDecision::Approved) || known.is_handed {
                    return Err(format!("approval `{approval_id}` cannot be handed over"));
                }
                Ok(())
            }
        }
    }

    /// Applies a record.
    ///
    /// # Errors
    ///
    /// As [`Self::check`]; then nothing changes.
    pub(super) fn take(&mut self, mark: ApprovalMark) -> Result<(), String> {
        self.check(&mark)?;
        match mark {
            ApprovalMark::Asked { call } => {
                self.0.retain(|before| {
                    let is_other = before.call.tool_call_id != call.tool_call_id;
                    is_other || before.call.step_id != call.step_id
                });
                self.0.push(Approval {
                    call,
                    consent: None,
                    decided: None,
                    is_handed: false,
                });
            }
            ApprovalMark::Consented { consent } => {
                if let Some(known) = self.get_mut(&consent.approval_id) {
                    known.consent = Some(consent);
                }
            }
            ApprovalMark::Decided { decided } => {
                if let Some(known) = self.get_mut(&decided.approval_id) {
                    known.decided = Some(decided);
                }
            }
            ApprovalMark::Handed { approval_id } => {
                if let Some(known) = self.get_mut(&approval_id) {
                    known.is_handed = true;
                }
            }
        }
        Ok(())
    }
}

impl InstanceStore {
    /// Stages an approval record of the open turn.
    ///
    /// # Errors
    ///
    /// [`StoreError::WrongTurn`] if the turn is not in progress, [`StoreError::WrongApproval`] if
    /// the event is not valid: both change nothing; [`StoreError::File`].
    pub fn note_approval(
        &mut self,
        turn_id: &TurnId,
        mark: ApprovalMark,
    ) -> Result<(), StoreError> {
        self.turn.note_approval(turn_id, mark)
    }

    /// Returns the approvals of the open turn.
    #[must_use]
    pub fn approvals(&self) -> &[Approval] {
        self.turn.approvals()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use goondan_durable::disk::{Crash, SimulatedDisk};
    use goondan_protocol::event::TurnOutcome;
    use goondan_protocol::message::{Message, MessageEvent};
    use serde_json::json;
    use serde_json::value::to_raw_value;

    use super::super::sweep;
    use super::super::tests::{agent, at, dir, event, fresh, key, turn};
    use super::*;

    fn open(disk: &SimulatedDisk) -> InstanceStore {
        InstanceStore::open(Arc::new(disk.clone()), &dir()).unwrap()
    }

    fn call(id: &str, tool_call_id: &str) -> ApprovalRequest {
        ApprovalRequest {
            approval_id: id.parse().unwrap(),
            step_id: StepId::of_turn(&turn("t1"), 1),
            tool_call_id: tool_call_id.parse().unwrap(),
            tool_name: "bash__exec".to_owned(),
            input: json!({"command": "rm -r build"}),
            schema: Some(json!({"type": "object"})),
            may_have_begun: false,
            needs_two: false,
            at: at(1),
        }
    }

    fn asked(id: &str) -> ApprovalMark {
        let call = call(id, &format!("c-{id}"));
        ApprovalMark::Asked { call }
    }

    fn decided(id: &str, decision: ApprovalDecision) -> ApprovalMark {
        ApprovalMark::Decided {
            decided: CallDecision {
                approval_id: id.parse().unwrap(),
                decision,
                input: None,
                reason: Some("because".to_owned()),
                by: Some("telegram:5".to_owned()),
                at: at(2),
            },
        }
    }

    fn consented(id: &str, by: Option<&str>) -> ApprovalMark {
        ApprovalMark::Consented {
            consent: FirstConsent {
                approval_id: id.parse().unwrap(),
                by: by.map(str::to_owned),
                at: at(2),
            },
        }
    }

    fn handed(id: &str) -> ApprovalMark {
        ApprovalMark::Handed {
            approval_id: id.parse().unwrap(),
        }
    }

    /// A turn in progress with one message.
    fn in_a_turn() -> SimulatedDisk {
        let disk = fresh();
        let (files, root) = (Arc::new(disk.clone()), Path::new("/i"));
        let made = InstanceStore::create(files, root, &key(), &agent(), at(0), ".new");
        let mut store = made.unwrap();
        for id in ["e1", "e2"] {
            store.accept(event(id)).unwrap();
        }
        store
            .begin_turn(turn("t1"), &"e1".parse().unwrap(), at(1))
            .unwrap();
        append(&mut store, 1);
        store.sync().unwrap();
        disk
    }

    fn append(store: &mut InstanceStore, seq: u64) {
        let message = Message::user(format!("m{seq}").parse().unwrap(), at(1), "go");
        let raw = to_raw_value(&MessageEvent::Append { message }).unwrap();
        store.append_event(&turn("t1"), seq, &raw).unwrap();
    }

    /// Progress of an approval: 0 missing, 1 requested, 2 decided, 3 handed over.
    fn progress(store: &InstanceStore, id: &str) -> u32 {
        let known = store.approvals().iter();
        let mut known = known.filter(|known| known.call.approval_id.as_str() == id);
        known.next().map_or(0, |known| {
            1 + u32::from(known.decided.is_some()) + u32::from(known.is_handed)
        })
    }

    #[test]
    fn steer_3_decision_is_recorded_and_cannot_be_made_twice() {
        let disk = in_a_turn();
        let mut store = open(&disk);
        let mut note = |mark| store.note_approval(&turn("t1"), mark);
        let wrong = |noted| matches!(noted, Err(StoreError::WrongApproval { .. }));
        assert!(wrong(note(decided("a-1", ApprovalDecision::Approved))));
        note(asked("a-1")).unwrap();
        assert!(wrong(note(asked("a-1"))));
        assert!(wrong(note(handed("a-1"))), "it is not approved");
        note(decided("a-1", ApprovalDecision::Approved)).unwrap();
        assert!(wrong(note(decided("a-1", ApprovalDecision::Denied))));
        note(handed("a-1")).unwrap();
        assert!(wrong(note(handed("a-1"))), "it is handed over once");
        note(asked("a-2")).unwrap();
        note(decided("a-2", ApprovalDecision::Denied)).unwrap();
        assert!(wrong(note(handed("a-2"))), "it was denied");
        let other = store.note_approval(&turn("t2"), asked("a-3"));
        assert!(matches!(other, Err(StoreError::WrongTurn { .. })));
        append(&mut store, 2);
        store.sync().unwrap();
        drop(store);

        let mut store = open(&disk);
        let known = store.approvals().to_vec();
        assert_eq!((known.len(), &known[0].call), (2, &call("a-1", "c-a-1")));
        let reason = known[1].decided.as_ref().unwrap().reason.as_deref();
        assert_eq!(reason, Some("because"));
        let by = known[1].decided.as_ref().unwrap().by.as_deref();
        assert_eq!(by, Some("telegram:5"));
        assert_eq!(store.state().approvals, known);
        // A changed call gets a new request.
        let anew = ApprovalMark::Asked {
            call: call("a-4", "c-a-1"),
        };
        store.note_approval(&turn("t1"), anew).unwrap();
        assert_eq!((progress(&store, "a-1"), progress(&store, "a-4")), (0, 1));
    }

    #[test]
    fn need_1_call_for_two_needs_approvals_of_different_people() {
        let disk = in_a_turn();
        let mut store = open(&disk);
        let mut note = |mark| store.note_approval(&turn("t1"), mark);
        let wrong = |noted| matches!(noted, Err(StoreError::WrongApproval { .. }));
        for id in ["a-1", "a-2"] {
            let mut call = call(id, id);
            call.needs_two = true;
            note(ApprovalMark::Asked { call }).unwrap();
        }
        // The helper's decisions are those of `telegram:5`.
        let approved = |id| decided(id, ApprovalDecision::Approved);
        assert!(wrong(note(approved("a-1"))), "it has no first approval");
        note(consented("a-1", Some("telegram:5"))).unwrap();
        assert!(
            wrong(note(consented("a-1", None))),
            "the first one is recorded once"
        );
        assert!(wrong(note(approved("a-1"))), "it is the same person");
        note(consented("a-2", None)).unwrap();
        note(approved("a-2")).unwrap();
        note(decided("a-1", ApprovalDecision::Denied)).unwrap();
        assert!(wrong(note(handed("a-1"))), "it was denied");
        note(asked("a-3")).unwrap();
        assert!(wrong(note(consented("a-3", None))), "one person is enough");
        store.sync().unwrap();
        drop(store);

        let store = open(&disk);
        let first: Vec<Option<&str>> = store
            .approvals()
            .iter()
            .map(|known| known.consent.as_ref()?.by.as_deref())
            .collect();
        assert_eq!(first, [Some("telegram:5"), None, None]);
        let is_approved = |known: &Approval| known.consent.is_some() && known.decided.is_some();
        assert!(store.approvals()[..2].iter().all(is_approved));
        assert!(store.findings.is_empty(), "{:?}", store.findings);
    }

    #[test]
    fn steer_3_pending_approval_ends_with_its_turn() {
        for cancels in [false, true] {
            let disk = in_a_turn();
            let mut store = open(&disk);
            store.note_approval(&turn("t1"), asked("a-1")).unwrap();
            let outcome = TurnOutcome::Completed {
                reply: "done".to_owned(),
            };
            if cancels {
                let event_id = "e1".parse().unwrap();
                store.cancel(&event_id, outcome, "a person", at(2)).unwrap();
            } else {
                store.complete_turn(&turn("t1"), 1, outcome, at(2)).unwrap();
            }
            let late = decided("a-1", ApprovalDecision::Approved);
            let late = store.note_approval(&turn("t1"), late);
            assert!(matches!(late, Err(StoreError::WrongTurn { .. })));
            assert!(store.approvals().is_empty());
            store.sync().unwrap();
            drop(store);
            let mut store = open(&disk);
            assert!(store.approvals().is_empty());
            let next = store.begin_turn(turn("t2"), &"e2".parse().unwrap(), at(3));
            assert_eq!(next.unwrap().turn_id, turn("t2"));
            assert!(store.approvals().is_empty());
            assert!(store.findings.is_empty(), "{:?}", store.findings);
        }
    }

    #[test]
    fn steer_3_crash_at_any_call_keeps_durable_approval_records() {
        for crash in [Crash::LoseUnsynced, Crash::KeepUnsynced, Crash::Subset(7)] {
            for at_call in 1.. {
                let disk = in_a_turn();
                let mut store = open(&disk);
                disk.crash_at(disk.calls() + at_call);
                let mut durable = 0;
                for mark in [
                    asked("a-1"),
                    decided("a-1", ApprovalDecision::Approved),
                    handed("a-1"),
                ] {
                    let noted = store.note_approval(&turn("t1"), mark);
                    if noted.is_err() || store.sync().is_err() {
                        break;
                    }
                    durable += 1;
                }
                drop(store);
                let disk = disk.after_crash(crash);
                sweep(&disk, Path::new("/i")).unwrap();
                let store = open(&disk);
                let found = progress(&store, "a-1");
                assert!(
                    found == durable || found == durable + 1,
                    "{crash:?} at {at_call}: {found} of {durable}"
                );
                if durable == 3 {
                    break;
                }
            }
        }
    }
}
