//! Jobs submitted to the store, and their continuations: the code that handles the result.
//!
//! Each job is submitted with a [`Continuation`] for the result type of its operation. The compiler
//! rejects a continuation of another operation.

use std::any::type_name;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use goondan_protocol::ids::InstanceRef;
#[cfg(test)]
use goondan_protocol::ids::{EventId, InstanceKey};
use goondan_store::StoreError;
#[cfg(test)]
use goondan_store::writer::operation::LookUpEvent;
use goondan_store::writer::operation::{Audit, Operation, Report};
use goondan_store::writer::{StoreCompletion, StoreJob};

use crate::{Core, LogEvent};

/// Code that runs when the store has completed an operation.
pub(crate) trait Continuation<O: Operation>: fmt::Debug + Send {
    /// The instance it concerns, if any. The instance stays loaded until then.
    fn instance(&self) -> Option<&InstanceRef>;

    /// Handles the store's result.
    fn resume(self: Box<Self>, core: &mut Core, result: Result<O::Output, StoreError>);
}

/// A continuation with its operation.
struct Job<O, C> {
    then: C,
    of: PhantomData<fn(O)>,
}

/// A [`Job`] of any operation.
pub(crate) trait PendingJob: Send {
    fn instance(&self) -> Option<&InstanceRef>;

    /// Name of the operation.
    #[cfg(test)]
    fn operation(&self) -> &'static str;

    #[cfg(test)]
    fn continuation(&self) -> &dyn fmt::Debug;

    /// Passes the store's report to the continuation.
    fn resume(self: Box<Self>, core: &mut Core, report: Report);
}

impl<O: Operation, C: Continuation<O>> PendingJob for Job<O, C> {
    fn instance(&self) -> Option<&InstanceRef> {
        self.then.instance()
    }

    #[cfg(test)]
    fn operation(&self) -> &'static str {
        type_name::<O>()
    }

    #[cfg(test)]
    fn continuation(&self) -> &dyn fmt::Debug {
        &self.then
    }

    fn resume(self: Box<Self>, core: &mut Core, report: Report) {
        match O::output(report) {
            Some(result) => Box::new(self.then).resume(core, result),
            None => {
                let event = LogEvent::error("the store reported another operation than the job's");
                core.fleet.log(event.with("operation", type_name::<O>()));
            }
        }
    }
}

/// Jobs that have not completed, by token.
#[derive(Default)]
pub(crate) struct Jobs {
    next_token: u64,
    pending: BTreeMap<u64, Box<dyn PendingJob>>,
}

impl Jobs {
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// True if a pending job concerns an instance that passes `test`.
    pub(super) fn any(&self, test: impl FnMut(&InstanceRef) -> bool) -> bool {
        let jobs = self.pending.values();
        jobs.filter_map(|job| job.instance()).any(test)
    }

    /// Stores the continuation of an operation and returns the job for the store.
    pub(crate) fn add<O: Operation + 'static>(
        &mut self,
        operation: O,
        then: impl Continuation<O> + 'static,
    ) -> StoreJob {
        self.next_token += 1;
        let token = self.next_token;
        let of = PhantomData::<fn(O)>;
        self.pending.insert(token, Box::new(Job { then, of }));
        let op = operation.into();
        StoreJob { token, op }
    }

    /// Removes a completed job; `None` if it was already taken.
    pub(crate) fn take(&mut self, token: u64) -> Option<Box<dyn PendingJob>> {
        self.pending.remove(&token)
    }

    /// True if a lookup of this event is pending.
    #[cfg(test)]
    pub(super) fn is_looking_up(&self, key: &InstanceKey, event_id: &EventId) -> bool {
        self.pending.values().any(|job| {
            let is_of_key = job.instance().is_some_and(|at| at.instance_key == *key);
            is_of_key
                && job.operation() == type_name::<LookUpEvent>()
                && format!("{:?}", job.continuation()).contains(event_id.as_str())
        })
    }
}

impl Core {
    pub(super) fn on_stored(&mut self, completion: StoreCompletion) {
        match self.fleet.cx().take_job(completion.token) {
            Some(job) => job.resume(self, completion.report),
            None => {
                let event = LogEvent::error("the store reported a job twice");
                self.fleet.log(event);
            }
        }
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
