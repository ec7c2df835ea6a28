//! Conversations that are held: no turn of theirs begins while a joint checkpoint is made, or while they are
//! rewound (`CKPT-6`). Events are accepted all the while, and wait.

use goondan_protocol::control::{ControlError, ErrorCode, InstanceRewound, RewindInstance};
use goondan_protocol::ids::{InstanceRef, WorkspaceId};
use goondan_protocol::shell::shell_quoted;
use goondan_store::instance::RewindNote;

use super::Fleet;
use super::cancelling::BY_PERSON;
use crate::RequestToken;
use crate::exchange::joint::HoldId;

/// What a conversation is held for.
#[derive(Debug, Clone)]
pub(crate) enum Order {
    /// A joint checkpoint is to be made.
    Checkpoint {
        token: RequestToken,
        name: Option<String>,
    },
    /// It is to go back to one, or it is to be told what that would change.
    Rewind {
        token: RequestToken,
        request: RewindInstance,
    },
    /// A rewind that had begun is to be finished; nobody waits for it.
    Finish { note: RewindNote },
}

/// How far the work is.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// A turn or a process is to end first.
    Waiting,
    /// It is with the store, or with the thread of the joint checkpoints.
    Working,
    /// The files are being taken back; then this is what is answered.
    TakingBack(Option<Box<InstanceRewound>>),
}

/// A conversation that is held.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) id: HoldId,
    pub(crate) order: Order,
    pub(crate) step: Step,
}

/// What is next for a conversation that is held.
#[derive(Debug)]
pub(crate) enum Next {
    /// The store is asked what is to be pinned.
    Pin,
    /// The files are taken back.
    TakeBack(RewindNote),
}

fn busy(at: &InstanceRef, what: &str) -> ControlError {
    let text = format!("conversation `{}` {what}", at.instance_key);
    ControlError::new(ErrorCode::InstanceBusy, text)
}

/// Why nothing is done between turns while there is one.
pub(crate) fn in_turn(at: &InstanceRef) -> ControlError {
    let key = shell_quoted(at.instance_key.as_str()).unwrap_or_else(|| "KEY".to_owned());
    busy(at, "is in a turn").suggest(format!(
        "wait until the turn is over, or end it: `gdn cancel --instance {key}`; `gdn rewind {key} --cancel` does so by itself"
    ))
}

impl Fleet {
    /// Holds a conversation for something that is done between turns. With `may_cancel`, a turn may be in progress.
    pub(crate) fn hold(
        &mut self,
        at: &InstanceRef,
        order: Order,
        may_cancel: bool,
    ) -> Result<(), ControlError> {
        if self.workspace(&at.workspace_id)?.closing.is_some() {
            return Err(crate::refusals::no_workspace(&at.workspace_id));
        }
        let id = self.next_hold();
        let Some(entry) = self.instance_entry(at, None) else {
            return Err(crate::refusals::no_workspace(&at.workspace_id));
        };
        if entry.deleting.is_some() {
            return Err(busy(at, "is being deleted"));
        }
        if entry.hold.is_some() {
            let hint = "try again when that is done";
            return Err(busy(at, "is being checkpointed or rewound").suggest(hint));
        }
        if !may_cancel && (entry.turn.is_some() || entry.progress.beginning.is_some()) {
            return Err(in_turn(at));
        }
        entry.hold = Some(Hold {
            id,
            order,
            step: Step::Waiting,
        });
        Ok(())
    }

    fn next_hold(&mut self) -> HoldId {
        self.holds += 1;
        HoldId(self.holds)
    }

    /// The conversation is held for a rewind that had begun before.
    pub(super) fn hold_to_finish(&mut self, at: &InstanceRef, note: RewindNote) {
        let id = self.next_hold();
        if let Some(entry) = self.instance_mut(at)
            && entry.hold.is_none()
        {
            entry.hold = Some(Hold {
                id,
                order: Order::Finish { note },
                step: Step::Waiting,
            });
        }
    }

    /// Whether a conversation is held.
    pub(crate) fn is_held(&mut self, at: &InstanceRef) -> bool {
        let entry = self.instance_mut(at);
        entry.is_some_and(|entry| entry.hold.is_some())
    }

    /// The workspaces in which a conversation is held.
    pub(super) fn holding(&self) -> Vec<WorkspaceId> {
        let workspaces = self.workspaces.iter().filter(|(_, workspace)| {
            let mut instances = workspace.instances.values();
            instances.any(|entry| entry.hold.is_some())
        });
        workspaces.map(|(id, _)| id.clone()).collect()
    }

    /// A person wants the turn in progress to end, so that a rewind can begin. Whether there is one.
    pub(crate) fn cancel_for_rewind(&mut self, at: &InstanceRef) -> bool {
        let entry = self.instance_mut(at);
        let event_id = entry.and_then(|entry| entry.worked_on().next().cloned());
        let is_in_turn = event_id.is_some();
        if is_in_turn {
            self.cancel_for(None, at.clone(), event_id, BY_PERSON);
        }
        is_in_turn
    }

    /// What is next for a conversation that is held, once neither a turn nor, where files are taken back, a process
    /// is in the way.
    pub(crate) fn next_of_hold(&mut self, at: &InstanceRef) -> Option<Next> {
        let entry = self.instance_mut(at)?;
        let up = entry.slot.up().map(|up| up.process);
        let is_in_turn = entry.turn.is_some() || entry.progress.beginning.is_some();
        let hold = entry.hold.as_mut()?;
        if !matches!(hold.step, Step::Waiting) || is_in_turn {
            return None;
        }
        let may_run = match &hold.order {
            Order::Checkpoint { .. } => true,
            Order::Rewind { request, .. } => request.dry_run,
            Order::Finish { .. } => false,
        };
        if let Some(process) = up.filter(|_| !may_run) {
            // It holds the conversation as it is. Nothing of a turn is lost with it.
            self.kill(process, true);
            return None;
        }
        Some(match &hold.order {
            Order::Checkpoint { .. } | Order::Rewind { .. } => {
                hold.step = Step::Working;
                Next::Pin
            }
            Order::Finish { note } => {
                let note = note.clone();
                hold.step = Step::TakingBack(None);
                Next::TakeBack(note)
            }
        })
    }

    /// The conversations that are held and for which something may be next.
    pub(crate) fn take_due_holds(&mut self) -> std::collections::BTreeSet<InstanceRef> {
        std::mem::take(&mut self.holds_due)
    }

    /// What a conversation is held under.
    pub(crate) fn instance_hold(&mut self, at: &InstanceRef) -> Option<HoldId> {
        Some(self.instance_mut(at)?.hold.as_ref()?.id)
    }

    /// Who waits for what a conversation is held for.
    pub(crate) fn token_of_hold(&mut self, at: &InstanceRef, id: HoldId) -> Option<RequestToken> {
        match &self.held_for(at, id)?.order {
            Order::Checkpoint { token, .. } | Order::Rewind { token, .. } => Some(*token),
            Order::Finish { .. } => None,
        }
    }

    /// The hold of this id, if the conversation is still held for it.
    pub(crate) fn held_for(&mut self, at: &InstanceRef, id: HoldId) -> Option<&mut Hold> {
        let hold = self.instance_mut(at)?.hold.as_mut()?;
        (hold.id == id).then_some(hold)
    }

    /// The conversation is held no longer. Whether it is to be deleted now.
    pub(crate) fn release(&mut self, at: &InstanceRef) -> bool {
        let Some(entry) = self.instance_mut(at) else {
            return false;
        };
        entry.hold = None;
        if entry.deleting.is_some() {
            return entry.slot.up().is_none();
        }
        // What waits is found out anew, and has its turn.
        entry.inbox.invalidate();
        self.pump(at);
        self.forget_if_done(at);
        false
    }

    /// A rewind that had begun could not be finished: it is tried again after the back-off, and no turn begins
    /// before.
    pub(crate) fn put_off(&mut self, at: &InstanceRef, why: &str) {
        let now = self.now();
        if let Some(entry) = self.instance_mut(at) {
            entry.slot.failed(now, why.to_owned());
        }
    }

    /// What is pinned beside what the store says: that of the configuration and of the ledger comes from elsewhere.
    pub(crate) fn config_digest(&self, id: &WorkspaceId) -> Option<String> {
        let bundle = self.workspaces.get(id)?.bundle.as_ref()?;
        Some(bundle.digest.clone())
    }
}
