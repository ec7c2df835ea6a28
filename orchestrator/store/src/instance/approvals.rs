//! Tool calls of the open turn that need a person (`STEER-3`): asked about, decided, and handed over.
//!
//! Their records stand in the turn's journal between its message events, and end with the turn. What a
//! person decided is never decided again, and that it was handed over is on record before it is: after a
//! crash it is known that the call may have begun.

use goondan_protocol::approval::ApprovalDecision;
use goondan_protocol::ids::{ApprovalId, StepId, ToolCallId, TurnId};
use goondan_protocol::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::InstanceStore;
use crate::error::StoreError;

/// A tool call that a person is asked about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AskedCall {
    /// What it is approved by.
    pub approval_id: ApprovalId,
    /// The step of the call.
    pub step_id: StepId,
    /// The call.
    pub tool_call_id: ToolCallId,
    /// The tool's full name.
    pub tool_name: String,
    /// Its arguments, whole.
    pub input: Value,
    /// Whether a process before the one that asked may have begun it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_have_begun: bool,
    /// When it was asked about.
    pub at: Timestamp,
}

/// What a person decided about a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DecidedCall {
    /// What it was approved by.
    pub approval_id: ApprovalId,
    /// What was decided.
    pub decision: ApprovalDecision,
    /// Why, in the person's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who decided, if a connection tells, such as `telegram:12345`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// When.
    pub at: Timestamp,
}

/// Something that happens to a call that needs a person: a record of the turn's journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all_fields = "camelCase")]
pub enum ApprovalMark {
    /// A person is asked. A call that was asked about before is asked about anew, under another id.
    #[serde(rename = "approval_asked")]
    Asked {
        /// About what.
        call: AskedCall,
    },
    /// A person has decided.
    #[serde(rename = "approval_decided")]
    Decided {
        /// About what, and what.
        decided: DecidedCall,
    },
    /// The approval is about to be handed over: from here on the call may have begun.
    #[serde(rename = "approval_handed")]
    Handed {
        /// What it was approved by.
        approval_id: ApprovalId,
    },
}

/// What is on record of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    /// What is asked about.
    pub call: AskedCall,
    /// What was decided; none while it waits.
    pub decided: Option<DecidedCall>,
    /// Whether an approval was handed over.
    pub is_handed: bool,
}

/// The calls of one turn that need a person, in the order in which they were asked about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Approvals(Vec<Approval>);

impl Approvals {
    /// What is on record.
    pub(super) fn all(&self) -> &[Approval] {
        &self.0
    }

    fn get_mut(&mut self, id: &ApprovalId) -> Option<&mut Approval> {
        let mut all = self.0.iter_mut();
        all.find(|known| known.call.approval_id == *id)
    }

    /// Whether something may happen, by what is on record.
    ///
    /// # Errors
    ///
    /// Why not, in words.
    pub(super) fn check(&self, mark: &ApprovalMark) -> Result<(), String> {
        let find = |id: &ApprovalId| {
            let known = self.0.iter().find(|known| known.call.approval_id == *id);
            known.ok_or_else(|| format!("nobody was asked about `{id}`"))
        };
        match mark {
            ApprovalMark::Asked { call } => match find(&call.approval_id) {
                Ok(_) => Err(format!("`{}` was asked about before", call.approval_id)),
                Err(_) => Ok(()),
            },
            ApprovalMark::Decided { decided } => match &find(&decided.approval_id)?.decided {
                Some(before) => Err(format!(
                    "`{}` was {} before",
                    decided.approval_id,
                    before.decision.as_str()
                )),
                None => Ok(()),
            },
            ApprovalMark::Handed { approval_id } => {
                let known = find(approval_id)?;
                let decision = known.decided.as_ref().map(|decided| decided.decision);
                if decision != Some(ApprovalDecision::Approved) || known.is_handed {
                    return Err(format!("`{approval_id}` is not to be handed over"));
                }
                Ok(())
            }
        }
    }

    /// Takes a record into account.
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
                    decided: None,
                    is_handed: false,
                });
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
    /// Stages a record of a call of the open turn that needs a person.
    ///
    /// # Errors
    ///
    /// [`StoreError::WrongTurn`] if the turn is not in progress, [`StoreError::WrongApproval`] if that may
    /// not happen to the call: both change nothing; [`StoreError::File`].
    pub fn note_approval(
        &mut self,
        turn_id: &TurnId,
        mark: ApprovalMark,
    ) -> Result<(), StoreError> {
        self.turn.note_approval(turn_id, mark)
    }

    /// The calls of the open turn that a person was asked about.
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

    fn call(id: &str, tool_call_id: &str) -> AskedCall {
        AskedCall {
            approval_id: id.parse().unwrap(),
            step_id: StepId::of_turn(&turn("t1"), 1),
            tool_call_id: tool_call_id.parse().unwrap(),
            tool_name: "bash__exec".to_owned(),
            input: json!({"command": "rm -r build"}),
            may_have_begun: false,
            at: at(1),
        }
    }

    fn asked(id: &str) -> ApprovalMark {
        let call = call(id, &format!("c-{id}"));
        ApprovalMark::Asked { call }
    }

    fn decided(id: &str, decision: ApprovalDecision) -> ApprovalMark {
        ApprovalMark::Decided {
            decided: DecidedCall {
                approval_id: id.parse().unwrap(),
                decision,
                reason: Some("because".to_owned()),
                by: Some("telegram:5".to_owned()),
                at: at(2),
            },
        }
    }

    fn handed(id: &str) -> ApprovalMark {
        ApprovalMark::Handed {
            approval_id: id.parse().unwrap(),
        }
    }

    /// A turn in progress, with one message.
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

    /// How far one of a store's approvals is: not there 0, asked 1, decided 2, handed over 3.
    fn progress(store: &InstanceStore, id: &str) -> u32 {
        let known = store.approvals().iter();
        let mut known = known.filter(|known| known.call.approval_id.as_str() == id);
        known.next().map_or(0, |known| {
            1 + u32::from(known.decided.is_some()) + u32::from(known.is_handed)
        })
    }

    #[test]
    fn steer_3_what_was_decided_once_is_on_record_and_nothing_is_decided_twice() {
        let disk = in_a_turn();
        let mut store = open(&disk);
        let mut note = |mark| store.note_approval(&turn("t1"), mark);
        let wrong = |noted| matches!(noted, Err(StoreError::WrongApproval { .. }));
        assert!(wrong(note(decided("a-1", ApprovalDecision::Approved))));
        note(asked("a-1")).unwrap();
        assert!(wrong(note(asked("a-1"))));
        assert!(wrong(note(handed("a-1"))), "nobody approved it");
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
        // The same call is asked about anew if it is another one now.
        let anew = ApprovalMark::Asked {
            call: call("a-4", "c-a-1"),
        };
        store.note_approval(&turn("t1"), anew).unwrap();
        assert_eq!((progress(&store, "a-1"), progress(&store, "a-4")), (0, 1));
    }

    #[test]
    fn steer_3_what_waits_ends_with_its_turn_and_the_next_knows_nothing_of_it() {
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
    fn steer_3_a_crash_at_every_call_keeps_each_record_that_was_durable() {
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
