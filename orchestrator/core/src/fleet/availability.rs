//! Whether the process that is to make a call can.

use goondan_protocol::call::{CallError, CallErrorCode, CallTarget};
use goondan_protocol::control::Readiness;

use super::slot::Slot;
use crate::{Now, ProcessId};

/// Whether the process that is to make a call can.
#[derive(Debug)]
pub(crate) enum Availability {
    /// It can.
    Ready(ProcessId),
    /// It will; waiting is worth it.
    Coming,
    /// It will once a person has logged in: whoever waits, waits for that.
    Consent,
    /// It cannot.
    Not(CallError),
}

pub(super) fn not_ready(target: &CallTarget, why: &str) -> CallError {
    let message = format!("{target} cannot be called: {why}");
    CallError::new(CallErrorCode::Unavailable, message)
        .suggest("`gdn ps` shows its process, `gdn logs` what it wrote")
}

/// Whether a process can make calls, by its slot and by what it says of itself.
pub(super) fn availability_of(
    slot: &Slot,
    readiness: Readiness,
    now: Now,
    target: &CallTarget,
) -> Availability {
    match (slot.ready(), &slot.detail) {
        (Some(process), _) if readiness == Readiness::Ready => Availability::Ready(process),
        (Some(_), Some(why)) if readiness == Readiness::NotReady => {
            Availability::Not(not_ready(target, why))
        }
        (None, detail) if slot.up().is_none() && !slot.may_start(now) => {
            let how = detail.as_deref().unwrap_or("its process keeps crashing");
            let why = format!("its process keeps crashing, the last time: {how}");
            Availability::Not(not_ready(target, &why))
        }
        _ => Availability::Coming,
    }
}
