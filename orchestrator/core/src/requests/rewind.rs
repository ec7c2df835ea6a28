//! Joint checkpoints of conversations, and rewinds (`CKPT-6`).
//!
//! Checkpoint: the store merges the conversation into its base and returns the state to pin, then
//! the files are copied. Rewind: a checkpoint of the current state (to make the rewind reversible),
//! then the store durably records that the rewind has begun, the files are restored, and the
//! conversation follows. After a crash, the record determines where to resume; without the record
//! nothing has changed.

use goondan_protocol::control::{
    CheckpointInstance, ControlError, ErrorCode, InstanceCheckpoint, InstanceRewound,
    ListInstanceCheckpoints, RewindInstance, RewindRecord,
};
use goondan_protocol::ids::{EventId, InstanceRef};
use goondan_protocol::lifecycle::LifecycleEvent;
use goondan_store::StoreError;
use goondan_store::instance::{Pins, RewindNote};
use goondan_store::writer::operation::{AbandonRewind, BeginRewind, FinishRewind, PinConversation};

use crate::exchange::joint::{FreezeId, JointMetadata, JointResult, JointWork, RollbackFailure};
use crate::fleet::Fleet;
use crate::fleet::cancellation::CancelCause;
use crate::fleet::conversation::freeze::{Freeze, FreezeAction, FreezeStep, Order};
use crate::fleet::freeze::in_turn;
use crate::jobs::continuation;
use crate::refusals::no_workspace;
use crate::{Core, CoreEffect, LogEvent, RequestToken, control_error};

continuation! {
    /// Requests the state to pin.
    Pinning { hold: FreezeId } after PinConversation => core.on_pinned
}

continuation! {
    /// Records that a rewind begins.
    BeginningRewind { hold: FreezeId, note: RewindNote } after BeginRewind => core.on_rewind_begun
}

continuation! {
    /// Restores the conversation after its files.
    FinishingRewind { hold: FreezeId } after FinishRewind => &core.on_rewind_finished
}

continuation! {
    AbandoningRewind { hold: FreezeId, error: ControlError } after AbandonRewind => core.on_rewind_abandoned
}

/// The hold with this id, if it is still active.
fn held_for<'f>(fleet: &'f mut Fleet, at: &InstanceRef, id: FreezeId) -> Option<&'f mut Freeze> {
    fleet.conversation_and_cx(at)?.0.held_for(id)
}

/// The client request of a conversation's hold.
fn token_of_hold(fleet: &mut Fleet, at: &InstanceRef, id: FreezeId) -> Option<RequestToken> {
    held_for(fleet, at, id)?.token()
}

impl Core {
    fn joint(&mut self, work: JointWork) {
        self.fleet.cx().emit(CoreEffect::Joint(Box::new(work)));
    }

    /// Holds a conversation for an operation between turns.
    fn hold(
        &mut self,
        at: &InstanceRef,
        order: Order,
        may_cancel: bool,
    ) -> Result<(), ControlError> {
        let workspace = self.fleet.workspace_and_cx(&at.workspace_id);
        let (workspace, cx) = workspace.ok_or_else(|| no_workspace(&at.workspace_id))?;
        workspace.hold(cx, at, order, may_cancel)
    }

    pub(super) fn checkpoint_instance(&mut self, token: RequestToken, request: CheckpointInstance) {
        let at = InstanceRef {
            workspace_id: request.workspace_id,
            instance_key: request.instance_key,
        };
        let name = request.name;
        let order = Order::Checkpoint { token, name };
        match self.hold(&at, order, false) {
            Ok(()) => self.go_on_with_hold(&at),
            Err(error) => self.fleet.respond_error(token, error),
        }
    }

    pub(super) fn list_instance_checkpoints(
        &mut self,
        token: RequestToken,
        list: ListInstanceCheckpoints,
    ) {
        match self.fleet.workspace(&list.workspace_id) {
            Ok(_) => {
                let at = InstanceRef {
                    workspace_id: list.workspace_id.clone(),
                    instance_key: list.instance_key.clone(),
                };
                self.joint(JointWork::List { at, token, list });
            }
            Err(error) => self.fleet.respond_error(token, error),
        }
    }

    pub(super) fn rewind_instance(&mut self, token: RequestToken, request: RewindInstance) {
        let at = InstanceRef {
            workspace_id: request.workspace_id.clone(),
            instance_key: request.instance_key.clone(),
        };
        let may_cancel = request.cancel && !request.dry_run;
        let order = Order::Rewind { token, request };
        match self.hold(&at, order, may_cancel) {
            Ok(()) => {
                if may_cancel
                    && let Some((workspace, cx)) = self.fleet.workspace_and_cx(&at.workspace_id)
                {
                    workspace.cancel_for_rewind(cx, &at);
                }
                self.go_on_with_hold(&at);
            }
            Err(error) => self.fleet.respond_error(token, error),
        }
    }

    /// Executes the next step of a conversation's operation.
    pub(crate) fn go_on_with_hold(&mut self, at: &InstanceRef) {
        let entry = self.fleet.conversation_and_cx(at);
        let Some((hold, next)) = entry.and_then(|(entry, cx)| entry.next_of_hold(cx)) else {
            return;
        };
        let instance = at.clone();
        match next {
            FreezeAction::Pin => self.pin(instance, hold),
            FreezeAction::TakeBack(note) => self.take_back(instance, hold, note),
        }
    }

    fn take_back(&mut self, at: InstanceRef, hold: FreezeId, note: RewindNote) {
        let now = self.fleet.now().wall;
        self.joint(JointWork::TakeBack {
            at,
            hold,
            checkpoint_id: note.checkpoint_id,
            pre_rewind: note.pre_rewind,
            now,
        });
    }

    /// Ends a turn that is open without a process, as after a crash, if the user requested it; then
    /// queries the store again. Done at most once. True if the turn is being ended.
    fn cancel_open_turn(
        &mut self,
        at: &InstanceRef,
        hold: FreezeId,
        event_id: Option<EventId>,
    ) -> bool {
        let Some(held) = held_for(&mut self.fleet, at, hold) else {
            return false;
        };
        let Order::Rewind { request, .. } = &mut held.order else {
            return false;
        };
        let may_cancel = std::mem::take(&mut request.cancel) && !request.dry_run;
        let Some(event_id) = event_id.filter(|_| may_cancel) else {
            return false;
        };
        if let Some((workspace, cx)) = self.fleet.workspace_and_cx(&at.workspace_id) {
            workspace.cancel_for(cx, None, at, Some(event_id), CancelCause::BY_PERSON);
        }
        self.pin(at.clone(), hold);
        true
    }

    /// Requests the state to pin from the store.
    fn pin(&mut self, instance: InstanceRef, hold: FreezeId) {
        let pin = PinConversation {
            instance: instance.clone(),
        };
        self.fleet.cx().store(pin, Pinning { instance, hold });
    }

    fn on_pinned(&mut self, pinning: Pinning, result: Result<Pins, StoreError>) {
        let (at, hold) = (pinning.instance, pinning.hold);
        let pins = match result {
            Ok(pins) => pins,
            Err(StoreError::InTurn { event_id, .. }) => {
                if !self.cancel_open_turn(&at, hold, event_id) {
                    self.refuse_hold(&at, hold, in_turn(&at));
                }
                return;
            }
            Err(error) => return self.refuse_hold(&at, hold, control_error(&error)),
        };
        let spent = self.calls.spent_by(&at);
        let bundle = self.fleet.bundle(&at.workspace_id);
        let digest = bundle.map(|bundle| bundle.digest.clone());
        let workspace = self.fleet.workspaces().get(&at.workspace_id);
        let files = workspace.map(|it| it.files_of(self.fleet.facts(), &at));
        let sandbox = files.and_then(|files| files.sandbox_of(&pins.agent));
        let mut about = JointMetadata {
            pinned: pins.with(spent, digest),
            name: None,
            now: self.fleet.now().wall,
        };
        let Some(held) = held_for(&mut self.fleet, &at, hold) else {
            return;
        };
        let work = match held.order.clone() {
            Order::Checkpoint { name, .. } => {
                about.name = name;
                JointWork::Make { at, hold, about }
            }
            Order::Rewind { request, .. } => JointWork::Plan {
                at,
                hold,
                checkpoint_id: request.checkpoint_id,
                about,
                sandbox,
                is_rehearsal: request.dry_run,
            },
            Order::Finish { .. } => return,
        };
        self.joint(work);
    }

    /// Handles the result of an operation on joint checkpoints.
    pub(crate) fn on_joint(&mut self, done: JointResult) {
        match done {
            JointResult::Made { at, hold, result } => self.on_checkpoint_made(&at, hold, result),
            JointResult::Planned { at, hold, result } => self.on_planned(at, hold, result),
            JointResult::TakenBack { at, hold, result } => match result {
                Ok(unpacked) => {
                    let finish = FinishRewind {
                        instance: at.clone(),
                        unpacked,
                    };
                    if held_for(&mut self.fleet, &at, hold).is_some() {
                        let instance = at;
                        self.fleet
                            .cx()
                            .store(finish, FinishingRewind { instance, hold });
                    }
                }
                Err(failed) => self.on_not_taken_back(at, hold, failed),
            },
        }
    }

    fn on_checkpoint_made(
        &mut self,
        at: &InstanceRef,
        hold: FreezeId,
        result: Result<InstanceCheckpoint, ControlError>,
    ) {
        let made = match result {
            Ok(made) => made,
            Err(error) => return self.refuse_hold(at, hold, error),
        };
        let event = LifecycleEvent::InstanceCheckpointed {
            instance_key: at.instance_key.clone(),
            checkpoint_id: made.checkpoint_id.clone(),
        };
        self.fleet.announce(&at.workspace_id, event, None);
        if let Some(token) = token_of_hold(&mut self.fleet, at, hold) {
            self.fleet.respond(token, &made);
        }
        self.end_hold(at, hold);
    }

    fn on_planned(
        &mut self,
        at: InstanceRef,
        hold: FreezeId,
        result: Result<Box<InstanceRewound>, ControlError>,
    ) {
        let rewound = match result {
            Ok(rewound) => rewound,
            Err(error) => return self.refuse_hold(&at, hold, error),
        };
        let now = self.fleet.now().wall;
        let Some(held) = held_for(&mut self.fleet, &at, hold) else {
            return;
        };
        let Some(pre_rewind) = rewound.pre_rewind.clone() else {
            // A dry run, or nothing to restore.
            if let Some(token) = token_of_hold(&mut self.fleet, &at, hold) {
                self.fleet.respond(token, &rewound);
            }
            return self.end_hold(&at, hold);
        };
        let note = RewindNote {
            at: now,
            checkpoint_id: rewound.checkpoint_id.clone(),
            pre_rewind,
            messages_before: 0,
            is_prepared: false,
        };
        held.step = FreezeStep::TakingBack(Some(rewound));
        let begin = BeginRewind {
            instance: at.clone(),
            note: note.clone(),
        };
        let instance = at;
        self.fleet.cx().store(
            begin,
            BeginningRewind {
                instance,
                hold,
                note,
            },
        );
    }

    fn on_rewind_begun(&mut self, beginning: BeginningRewind, result: Result<(), StoreError>) {
        let (at, hold) = (beginning.instance, beginning.hold);
        match result {
            Ok(()) => self.take_back(at, hold, beginning.note),
            // The record may have been written anyway. In that case it is found when the inbox is
            // read, and the rewind is finished.
            Err(error) => self.refuse_hold(&at, hold, control_error(&error)),
        }
    }

    fn on_not_taken_back(&mut self, at: InstanceRef, hold: FreezeId, failed: RollbackFailure) {
        if held_for(&mut self.fleet, &at, hold).is_none() {
            return;
        }
        if failed.is_untouched {
            let abandon = AbandonRewind {
                instance: at.clone(),
            };
            let (instance, error) = (at, failed.error);
            let abandoning = AbandoningRewind {
                instance,
                hold,
                error,
            };
            return self.fleet.cx().store(abandon, abandoning);
        }
        self.unfinished(&at, hold, failed.error);
    }

    fn on_rewind_abandoned(
        &mut self,
        abandoning: AbandoningRewind,
        result: Result<(), StoreError>,
    ) {
        let (at, hold) = (abandoning.instance, abandoning.hold);
        match result {
            Ok(()) => self.refuse_hold(&at, hold, abandoning.error),
            // The conversation has begun to follow, so the rewind cannot be abandoned.
            Err(StoreError::Rewinding { .. }) => self.unfinished(&at, hold, abandoning.error),
            Err(error) => self.unfinished(&at, hold, control_error(&error)),
        }
    }

    fn on_rewind_finished(
        &mut self,
        finishing: &FinishingRewind,
        result: Result<Option<RewindRecord>, StoreError>,
    ) {
        let (at, hold) = (&finishing.instance, finishing.hold);
        let record = match result {
            Ok(record) => record,
            Err(error) => return self.unfinished(at, hold, control_error(&error)),
        };
        if let Some(record) = record {
            let event = LifecycleEvent::InstanceRewound {
                instance_key: at.instance_key.clone(),
                checkpoint_id: record.checkpoint_id,
                pre_rewind: record.pre_rewind,
                messages_before: record.messages_before,
                messages_after: record.messages_after,
            };
            self.fleet.announce(&at.workspace_id, event, None);
        }
        let token = token_of_hold(&mut self.fleet, at, hold);
        let step = held_for(&mut self.fleet, at, hold).map(|held| held.step.clone());
        if let (Some(token), Some(FreezeStep::TakingBack(Some(rewound)))) = (token, step) {
            self.fleet.respond(token, &rewound);
        }
        self.joint(JointWork::TidyUp { at: at.clone() });
        self.end_hold(at, hold);
    }

    /// Handles a rewind that cannot be finished now. No turn of the conversation begins until it
    /// is.
    fn unfinished(&mut self, at: &InstanceRef, hold: FreezeId, error: ControlError) {
        let text = error.message.clone();
        let event = LogEvent::error("failed to finish a rewind; retrying");
        self.fleet.log(event.of(at).with("error", text.clone()));
        if let Some((entry, cx)) = self.fleet.conversation_and_cx(at) {
            entry.put_off(cx.now(), &text);
        }
        let hint = "the rewind has started and is finished automatically once the cause is fixed; no turn starts before that";
        self.refuse_hold(at, hold, error.suggest(hint));
    }

    fn refuse_hold(&mut self, at: &InstanceRef, hold: FreezeId, error: ControlError) {
        if let Some(token) = token_of_hold(&mut self.fleet, at, hold) {
            self.fleet.respond_error(token, error);
        } else if held_for(&mut self.fleet, at, hold).is_some()
            && error.code != ErrorCode::Cancelled
        {
            let event = LogEvent::warn("rewind abandoned");
            self.fleet.log(event.of(at).with("error", error.message));
        }
        self.end_hold(at, hold);
    }

    /// Releases the conversation, or deletes it if a deletion was requested.
    fn end_hold(&mut self, at: &InstanceRef, hold: FreezeId) {
        if held_for(&mut self.fleet, at, hold).is_none() {
            return;
        }
        let workspace = self.fleet.workspace_and_cx(&at.workspace_id);
        if workspace.is_some_and(|(it, cx)| it.release(cx, at)) {
            self.calls.give_up_calls_of(&mut self.fleet, at, None);
            self.remove_from_store(at);
        }
    }
}
