//! Jobs submitted to the store, and their continuations.
//!
//! Each job is submitted with a [`Continuation`] for the result type of its operation. The compiler
//! rejects a continuation of another operation.

use std::collections::BTreeMap;
use std::fmt;

use goondan_protocol::ids::InstanceRef;
#[cfg(test)]
use goondan_protocol::ids::{EventId, InstanceKey};
use goondan_store::StoreError;
use goondan_store::writer::operation::{
    AbandonRewind, Accept, AppendEvent, ArrangeEvent, Audit, AwaitReply, BeginRewind, BeginTurn,
    CancelEvent, Close, CompleteTurn, Delete, DropEvent, Export, FinishRewind, ForgoReply, Import,
    Inspect, KeepSchedules, LogLlm, LookUpEvent, NoteApproval, NoteAttempt, Observe, Open,
    Operation, ParkEvent, PinConversation, ReadEvents, ReadMessage, ReadPage, ReadPageBefore,
    ReadSources, RecordUsage, RetryEvent, VerifyInstance, VerifyRootFiles, VerifyWorkspaceFiles,
};
use goondan_store::writer::{Report, StoreCompletion, StoreJob};

use crate::{Core, LogEvent};

/// Code that runs when the store has completed an operation.
pub(crate) trait Continuation<O: Operation>: fmt::Debug + Send {
    /// The instance it concerns, if any. The instance stays loaded until then.
    fn instance(&self) -> Option<&InstanceRef>;

    /// Handles the store's result.
    fn resume(self: Box<Self>, core: &mut Core, result: Result<O::Output, StoreError>);
}

/// Pending continuations of one operation type, by token.
type PendingJobs<O> = BTreeMap<u64, Box<dyn Continuation<O>>>;

/// An operation type that the core submits.
pub(crate) trait JobOperation: Operation + Sized {
    fn pending(jobs: &mut Jobs) -> &mut PendingJobs<Self>;
}

macro_rules! jobs {
    ($($field:ident: $operation:ident;)*) => {
        /// Jobs that have not completed.
        #[derive(Debug, Default)]
        pub(crate) struct Jobs {
            next_token: u64,
            $($field: PendingJobs<$operation>,)*
        }

        $(
            impl JobOperation for $operation {
                fn pending(jobs: &mut Jobs) -> &mut PendingJobs<Self> {
                    &mut jobs.$field
                }
            }
        )*

        impl Jobs {
            pub(super) fn is_empty(&self) -> bool {
                $(self.$field.is_empty())&&*
            }

            /// True if a pending job concerns an instance that passes `test`.
            pub(super) fn any(&self, mut test: impl FnMut(&InstanceRef) -> bool) -> bool {
                $(self.$field.values().filter_map(|then| then.instance()).any(&mut test))||*
            }
        }

        impl Core {
            pub(super) fn on_stored(&mut self, completion: StoreCompletion) {
                let token = completion.token;
                match completion.report {
                    $(Report::$operation(result) => match self.fleet.cx().take_job::<$operation>(token) {
                        Some(then) => then.resume(self, result),
                        None => self.fleet.log(LogEvent::error("the store reported a job twice")),
                    },)*
                }
            }
        }
    };
}

jobs! {
    accept: Accept;
    read_sources: ReadSources;
    open: Open;
    begin_turn: BeginTurn;
    append_event: AppendEvent;
    complete_turn: CompleteTurn;
    await_reply: AwaitReply;
    forgo_reply: ForgoReply;
    observe: Observe;
    log_llm: LogLlm;
    note_approval: NoteApproval;
    note_attempt: NoteAttempt;
    park_event: ParkEvent;
    retry_event: RetryEvent;
    drop_event: DropEvent;
    arrange_event: ArrangeEvent;
    cancel_event: CancelEvent;
    read_page: ReadPage;
    read_page_before: ReadPageBefore;
    read_message: ReadMessage;
    look_up_event: LookUpEvent;
    read_events: ReadEvents;
    inspect: Inspect;
    keep_schedules: KeepSchedules;
    verify_instance: VerifyInstance;
    verify_workspace_files: VerifyWorkspaceFiles;
    verify_root_files: VerifyRootFiles;
    export: Export;
    import: Import;
    pin_conversation: PinConversation;
    begin_rewind: BeginRewind;
    finish_rewind: FinishRewind;
    abandon_rewind: AbandonRewind;
    close: Close;
    delete: Delete;
    audit: Audit;
    record_usage: RecordUsage;
}

#[cfg(test)]
impl Jobs {
    /// True if a lookup of this event is pending.
    pub(super) fn is_looking_up(&self, key: &InstanceKey, event_id: &EventId) -> bool {
        self.look_up_event.values().any(|then| {
            let is_of_key = then.instance().is_some_and(|at| at.instance_key == *key);
            is_of_key && format!("{then:?}").contains(event_id.as_str())
        })
    }
}

impl Jobs {
    /// Stores the continuation of an operation and returns the job for the store.
    pub(crate) fn add<O: JobOperation>(
        &mut self,
        operation: O,
        then: impl Continuation<O> + 'static,
    ) -> StoreJob {
        self.next_token += 1;
        let token = self.next_token;
        O::pending(self).insert(token, Box::new(then));
        let op = operation.into();
        StoreJob { token, op }
    }

    /// Removes the continuation of a completed job; `None` if it was already taken.
    pub(crate) fn take<O: JobOperation>(&mut self, token: u64) -> Option<Box<dyn Continuation<O>>> {
        O::pending(self).remove(&token)
    }
}

/// Declares a continuation: its fields, and the method of the core that handles the result. The
/// method receives the fields by value, or by reference with `&`. `workspace` is that of the
/// instance; it exists, because a workspace with pending jobs does not close.
macro_rules! continuation {
    (
        $(#[$doc:meta])*
        $name:ident { $($field:ident: $type:ty),* $(,)? } after $operation:ty
            => & $core:ident . $machine:ident . $method:ident in $fleet:ident
    ) => {
        continuation!(@declare [$(#[$doc])*] $name { $($field: $type),* } $operation, this, $core, result,
            $core.$machine.$method(&mut $core.$fleet, &this, result));
    };
    (
        $(#[$doc:meta])*
        $name:ident { $($field:ident: $type:ty),* $(,)? } after $operation:ty
            => $core:ident . $machine:ident . $method:ident in $fleet:ident
    ) => {
        continuation!(@declare [$(#[$doc])*] $name { $($field: $type),* } $operation, this, $core, result,
            $core.$machine.$method(&mut $core.$fleet, *this, result));
    };
    (
        $(#[$doc:meta])*
        $name:ident { $($field:ident: $type:ty),* $(,)? } after $operation:ty => & workspace . $method:ident
    ) => {
        continuation!(@declare [$(#[$doc])*] $name { $($field: $type),* } $operation, this, core, result,
            if let Some((workspace, cx)) = core.fleet.workspace_and_cx(&this.instance.workspace_id) {
                workspace.$method(cx, &this, result);
            });
    };
    (
        $(#[$doc:meta])*
        $name:ident { $($field:ident: $type:ty),* $(,)? } after $operation:ty => workspace . $method:ident
    ) => {
        continuation!(@declare [$(#[$doc])*] $name { $($field: $type),* } $operation, this, core, result,
            if let Some((workspace, cx)) = core.fleet.workspace_and_cx(&this.instance.workspace_id) {
                workspace.$method(cx, *this, result);
            });
    };
    (
        $(#[$doc:meta])*
        $name:ident { $($field:ident: $type:ty),* $(,)? } after $operation:ty => & $core:ident . $($to:ident).+
    ) => {
        continuation!(@declare [$(#[$doc])*] $name { $($field: $type),* } $operation, this, $core, result,
            $core.$($to).+(&this, result));
    };
    (
        $(#[$doc:meta])*
        $name:ident { $($field:ident: $type:ty),* $(,)? } after $operation:ty => $core:ident . $($to:ident).+
    ) => {
        continuation!(@declare [$(#[$doc])*] $name { $($field: $type),* } $operation, this, $core, result,
            $core.$($to).+(*this, result));
    };
    (
        @declare [$($doc:tt)*] $name:ident { $($field:ident: $type:ty),* } $operation:ty,
        $this:ident, $core:ident, $result:ident, $resume:expr
    ) => {
        $($doc)*
        #[derive(Debug)]
        pub(crate) struct $name {
            pub(crate) instance: InstanceRef,
            $(pub(crate) $field: $type,)*
        }

        impl $crate::jobs::Continuation<$operation> for $name {
            fn instance(&self) -> Option<&InstanceRef> {
                Some(&self.instance)
            }

            fn resume(
                self: Box<Self>,
                $core: &mut $crate::Core,
                $result: Result<<$operation as goondan_store::writer::operation::Operation>::Output, StoreError>,
            ) {
                let $this = self;
                $resume;
            }
        }
    };
}
pub(crate) use continuation;

/// Logs a failure and does nothing else.
#[derive(Debug)]
pub(super) struct LogFailure(pub(super) InstanceRef);

impl<O: Operation> Continuation<O> for LogFailure {
    fn instance(&self) -> Option<&InstanceRef> {
        Some(&self.0)
    }

    fn resume(self: Box<Self>, core: &mut Core, result: Result<O::Output, StoreError>) {
        if let Err(error) = result {
            let event = LogEvent::warn("store failed to write").of(&self.0);
            core.fleet
                .log(event.with("error", goondan_log::error_chain(&error)));
        }
    }
}

/// Logs a failure of the audit log, which concerns no instance.
#[derive(Debug)]
pub(super) struct LogAuditFailure;

impl Continuation<Audit> for LogAuditFailure {
    fn instance(&self) -> Option<&InstanceRef> {
        None
    }

    fn resume(self: Box<Self>, core: &mut Core, result: Result<(), StoreError>) {
        if let Err(error) = result {
            let event = LogEvent::error("failed to write the audit log");
            core.fleet
                .log(event.with("error", goondan_log::error_chain(&error)));
        }
    }
}
