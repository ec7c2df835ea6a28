//! Availability of the process for a call.

use goondan_protocol::call::{CallError, CallErrorCode, CallTarget};
use goondan_protocol::control::Readiness;

use super::slot::Slot;
use crate::{ClockTime, ProcessId};

/// Availability of the process for a call.
#[derive(Debug)]
pub(crate) enum Availability {
    Ready(ProcessId),
    /// The process will become ready.
    Coming,
    /// The process will become ready after a user's login.
    Consent,
    /// The process reported a problem that it may overcome, such as a server that is being
    /// restarted. Calls wait for a limited time, then fail with the error.
    Recovering(CallError),
    /// The process cannot accept calls.
    Not(CallError),
}

pub(super) fn not_ready(target: &CallTarget, why: &str) -> CallError {
    let message = format!("{target} cannot be called: {why}");
    CallError::new(CallErrorCode::Unavailable, message)
        .suggest("check its process with `gdn ps` and its output with `gdn logs`")
}

/// The failure of a call that does not wait for the process of its target.
pub(crate) fn starting(target: &CallTarget) -> CallError {
    let message = format!("{target} is starting");
    CallError::new(CallErrorCode::Unavailable, message).later(None)
}

/// Availability of a process, from its slot and its reported readiness.
pub(super) fn availability_of(
    slot: &Slot,
    readiness: Readiness,
    now: ClockTime,
    target: &CallTarget,
) -> Availability {
    match (slot.ready(), &slot.detail) {
        (Some(process), _) if readiness == Readiness::Ready => Availability::Ready(process),
        (Some(_), Some(why)) if readiness == Readiness::NotReady => {
            Availability::Not(not_ready(target, why))
        }
        (None, detail) if slot.up().is_none() && !slot.may_start(now) => {
            let how = detail.as_deref().unwrap_or("its process keeps crashing");
            let why = format!("its process keeps crashing, most recently: {how}");
            Availability::Not(not_ready(target, &why))
        }
        _ => Availability::Coming,
    }
}
