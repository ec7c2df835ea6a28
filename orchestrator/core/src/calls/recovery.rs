//! Calls whose connector finds out, after a crash, whether an earlier attempt took effect.
//!
//! After a lost attempt, the call is sent to its connector again, marked as a repetition. The
//! connector first looks back: it searches for the effect of the earlier attempt. If the call ends
//! before the search has a result, its outcome stays unknown, and a person decides.

use goondan_protocol::call::{CallError, CallErrorCode, CallOutcome, LookedBack};
use goondan_protocol::lifecycle::LifecycleEvent;
use goondan_protocol::time::Timestamp;

use super::OpenCall;
use crate::fleet::Fleet;

/// The known attempts of a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct AttemptRecovery {
    /// True if the connector can find out whether an earlier attempt took effect.
    is_recoverable: bool,
    /// Start of the first attempt.
    first: Option<Timestamp>,
    /// Set if an attempt, made at this time or later, may have taken effect.
    again_since: Option<Timestamp>,
}

impl AttemptRecovery {
    /// State of a new call; `again_since` is set if an earlier process may have made an attempt.
    pub(super) fn new(is_recoverable: bool, again_since: Option<Timestamp>) -> Self {
        Self {
            is_recoverable,
            first: again_since,
            again_since,
        }
    }

    pub(super) fn is_recoverable(self) -> bool {
        self.is_recoverable
    }

    /// The time since which an attempt may have taken effect.
    pub(super) fn again_since(self) -> Option<Timestamp> {
        self.again_since
    }

    /// An attempt begins.
    pub(super) fn begin(&mut self, now: Timestamp) {
        self.first.get_or_insert(now);
    }

    /// The connector of the attempt is gone.
    pub(super) fn attempt_lost(&mut self) {
        if self.is_recoverable {
            self.again_since = self.first;
        }
    }

    /// The connector reported the end of an attempt.
    pub(super) fn found_out(&mut self, outcome: &CallOutcome) {
        let is_unknown = match outcome {
            CallOutcome::Ok(_) => false,
            CallOutcome::Error(error) => error.outcome_unknown,
        };
        if !is_unknown {
            self.again_since = None;
        } else if self.is_recoverable {
            self.again_since = self.first;
        }
    }

    /// The error of a call that ends now: its outcome is unknown if an attempt may have taken
    /// effect.
    pub(super) fn unsettled(self, mut error: CallError) -> CallError {
        self.mark_unsettled(&mut error);
        error
    }

    /// As [`Self::unsettled`].
    pub(super) fn mark_unsettled(self, error: &mut CallError) {
        if self.again_since.is_none() {
            return;
        }
        if !error.outcome_unknown {
            error
                .message
                .push_str("; outcome of an earlier attempt unknown");
            let check = "check whether the call took effect before you try again";
            error.suggestion = Some(check.to_owned());
        }
        error.code = CallErrorCode::Interrupted;
        error.retryable = false;
        error.outcome_unknown = true;
    }
}

/// Reports a look-back of a connector in the log, the audit log, and to watchers.
pub(super) fn announce_look_back(fleet: &mut Fleet, call: &OpenCall, found: LookedBack) {
    let Some(tool_call_id) = call.place.as_ref().and_then(|it| it.tool_call_id.clone()) else {
        return;
    };
    let told = LifecycleEvent::CallClosed {
        instance_key: call.at.instance_key.clone(),
        agent_name: call.agent.clone(),
        tool_call_id,
        target: call.target.to_string(),
        method: call.method.clone(),
        found,
    };
    fleet.announce(&call.at.workspace_id, told, call.trace);
}

#[cfg(test)]
mod tests {
    use serde_json::value::to_raw_value;

    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_unix_millis(ms)
    }

    fn refused() -> CallError {
        CallError::new(CallErrorCode::Unavailable, "gone").later(None)
    }

    #[test]
    fn msg_13_a_lost_attempt_is_looked_for_from_the_first_one_on() {
        let mut recovery = AttemptRecovery::new(true, None);
        recovery.begin(at(5));
        assert_eq!(recovery.again_since(), None, "nothing can have happened");
        recovery.attempt_lost();
        recovery.begin(at(9));
        recovery.attempt_lost();
        assert_eq!(recovery.again_since(), Some(at(5)));
        let done = CallOutcome::Ok(to_raw_value("9.1").unwrap());
        recovery.found_out(&done);
        assert_eq!(recovery.again_since(), None);
        // Without a connector that can find out, a call is not repeated.
        let mut other = AttemptRecovery::new(false, None);
        other.begin(at(5));
        other.attempt_lost();
        assert_eq!(other.again_since(), None);
    }

    #[test]
    fn msg_13_a_call_that_ends_before_the_look_back_is_unknown() {
        let fresh = AttemptRecovery::new(true, None);
        assert_eq!(fresh.unsettled(refused()), refused());
        let mut again = AttemptRecovery::new(true, Some(at(5)));
        let ended = again.unsettled(refused());
        assert_eq!(ended.code, CallErrorCode::Interrupted);
        assert!(ended.outcome_unknown && !ended.retryable, "{ended:?}");
        // After a failed look-back the outcome stays open; after a successful one, a refusal closes
        // it.
        again.found_out(&CallOutcome::Error(refused().of_unknown_outcome()));
        assert_eq!(again.again_since(), Some(at(5)));
        again.found_out(&CallOutcome::Error(refused()));
        assert_eq!(again.again_since(), None);
        assert_eq!(again.unsettled(refused()), refused());
    }
}
