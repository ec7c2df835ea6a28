//! Jobs handed to the store, and what follows when each of them is done.
//!
//! Whoever has something done says with it what follows: a [`Continuation`], made for what that very operation
//! answers. What follows another operation does not fit.

use std::collections::BTreeMap;
use std::fmt;

use goondan_protocol::ids::InstanceRef;
#[cfg(test)]
use goondan_protocol::ids::{EventId, InstanceKey};
use goondan_store::StoreError;
use goondan_store::writer::operation::{
    AbandonRewind, Accept, AppendEvent, ArrangeEvent, Audit, AwaitReply, BeginRewind, BeginTurn,
    CancelEvent, Close, CompleteTurn, Delete, DropEvent, Export, FinishRewind, ForgoReply, Import,
    Inspect, LogLlm, LookUpEvent, NoteApproval, NoteAttempt, Observe, Open, Operation, ParkEvent,
    PinConversation, ReadMessage, ReadPage, ReadPageBefore, ReadSources, RecordUsage, RetryEvent,
    VerifyInstance, VerifyRootFiles, VerifyWorkspaceFiles,
};
use goondan_store::writer::{Completion, Job, Report};

use crate::{Core, LogEvent};

/// What follows when the store has done an operation.
pub(crate) trait Continuation<O: Operation>: fmt::Debug + Send {
    /// The instance it is about, if it is about one: that is not forgotten before.
    fn instance(&self) -> Option<&InstanceRef>;

    /// Goes on with what the store answered.
    fn resume(self: Box<Self>, core: &mut Core, result: Result<O::Output, StoreError>);
}

/// What follows the jobs of one operation, by their marks.
type Pending<O> = BTreeMap<u64, Box<dyn Continuation<O>>>;

/// An operation the core asks for.
pub(crate) trait Asked: Operation + Sized {
    /// Its jobs that are not reported yet.
    fn pending(jobs: &mut Jobs) -> &mut Pending<Self>;
}

macro_rules! jobs {
    ($($field:ident: $operation:ident;)*) => {
        /// The jobs that are not reported yet.
        #[derive(Debug, Default)]
        pub(crate) struct Jobs {
            next_token: u64,
            $($field: Pending<$operation>,)*
        }

        $(
            impl Asked for $operation {
                fn pending(jobs: &mut Jobs) -> &mut Pending<Self> {
                    &mut jobs.$field
                }
            }
        )*

        impl Jobs {
            pub(super) fn is_empty(&self) -> bool {
                $(self.$field.is_empty())&&*
            }

            /// Whether a job is about an instance of which this holds.
            pub(super) fn any(&self, mut test: impl FnMut(&InstanceRef) -> bool) -> bool {
                $(self.$field.values().filter_map(|then| then.instance()).any(&mut test))||*
            }
        }

        impl Core {
            pub(super) fn on_stored(&mut self, completion: Completion) {
                let token = completion.token;
                match completion.report {
                    $(Report::$operation(result) => match self.fleet.take_job::<$operation>(token) {
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
    inspect: Inspect;
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
    /// Whether the store is asked what became of an event.
    pub(super) fn is_looking_up(&self, key: &InstanceKey, event_id: &EventId) -> bool {
        self.look_up_event.values().any(|then| {
            let is_of_key = then.instance().is_some_and(|at| at.instance_key == *key);
            is_of_key && format!("{then:?}").contains(event_id.as_str())
        })
    }
}

impl Jobs {
    /// Keeps what follows an operation. Gives what is handed to the store.
    pub(crate) fn add<O: Asked>(
        &mut self,
        operation: O,
        then: impl Continuation<O> + 'static,
    ) -> Job {
        self.next_token += 1;
        let token = self.next_token;
        O::pending(self).insert(token, Box::new(then));
        let op = operation.into();
        Job { token, op }
    }

    /// What follows a job that is done; none if it was reported before.
    pub(crate) fn take<O: Asked>(&mut self, token: u64) -> Option<Box<dyn Continuation<O>>> {
        O::pending(self).remove(&token)
    }
}

/// Declares what follows an operation: what of it is remembered, and the method of the core that goes on. That
/// is given what is remembered, or with `&` a reference to it.
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
            /// The instance it is about.
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

/// Nothing follows but a line in the log if it failed.
#[derive(Debug)]
pub(super) struct LogFailure(pub(super) InstanceRef);

impl<O: Operation> Continuation<O> for LogFailure {
    fn instance(&self) -> Option<&InstanceRef> {
        Some(&self.0)
    }

    fn resume(self: Box<Self>, core: &mut Core, result: Result<O::Output, StoreError>) {
        if let Err(error) = result {
            let event = LogEvent::warn("the store could not write").of(&self.0);
            core.fleet
                .log(event.with("error", goondan_log::error_chain(&error)));
        }
    }
}

/// The same for the audit log, which is about no instance.
#[derive(Debug)]
pub(super) struct LogAuditFailure;

impl Continuation<Audit> for LogAuditFailure {
    fn instance(&self) -> Option<&InstanceRef> {
        None
    }

    fn resume(self: Box<Self>, core: &mut Core, result: Result<(), StoreError>) {
        if let Err(error) = result {
            let event = LogEvent::error("the audit log could not be written");
            core.fleet
                .log(event.with("error", goondan_log::error_chain(&error)));
        }
    }
}
