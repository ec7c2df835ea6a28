//! Calls of a model in a row that fail for a reason that only a person can end, such as a rejected
//! key (`PROV-1`) (pure).
//!
//! The model is still called, because goondan does not learn when the account works again.

use goondan_protocol::call::{CallError, CallErrorCode, CallOutcome};
use goondan_protocol::control::ModelFailures;
use goondan_protocol::observe::detail_of;
use goondan_protocol::time::Timestamp;

use crate::limits::LASTING_FAILURES_SHOWN;

/// The failures since the last reply.
#[derive(Debug, Default)]
pub(crate) struct LastingFailures(Option<ModelFailures>);

/// Change of the failures that people see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureChange {
    Begun,
    Ended,
}

fn is_lasting(error: &CallError) -> bool {
    error.lasting || error.code == CallErrorCode::Unauthorized
}

impl LastingFailures {
    /// Notes the outcome of a call. Other failures, such as an outage, show nothing about the
    /// reason of the earlier ones.
    pub(crate) fn note(&mut self, outcome: &CallOutcome, at: Timestamp) -> Option<FailureChange> {
        let error = match outcome {
            CallOutcome::Ok(_) => {
                let was_shown = self.shown().is_some();
                self.0 = None;
                return was_shown.then_some(FailureChange::Ended);
            }
            CallOutcome::Error(error) if is_lasting(error) => error,
            CallOutcome::Error(_) => return None,
        };
        let before = self.0.as_ref();
        let (since, calls) = before.map_or((at, 0), |before| (before.since, before.calls));
        let calls = calls.saturating_add(1);
        self.0 = Some(ModelFailures {
            since,
            calls,
            reason: detail_of(&error.message),
            suggestion: error.suggestion.clone(),
        });
        (calls == LASTING_FAILURES_SHOWN).then_some(FailureChange::Begun)
    }

    /// The failures, once there are enough for people to see.
    pub(crate) fn shown(&self) -> Option<&ModelFailures> {
        let failures = self.0.as_ref();
        failures.filter(|failures| failures.calls >= LASTING_FAILURES_SHOWN)
    }
}

/// Description for people.
pub(crate) fn detail(failures: &ModelFailures) -> String {
    let ModelFailures {
        since,
        calls,
        reason,
        suggestion,
    } = failures;
    let next = suggestion.as_ref();
    let next = next.map_or_else(String::new, |next| format!("; {next}"));
    format!("{calls} calls in a row failed since {since}; {reason}{next}")
}

#[cfg(test)]
mod tests {
    use serde_json::value::to_raw_value;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_unix_millis(1_000 * second)
    }

    fn rejected(message: &str) -> CallOutcome {
        let error = CallError::new(CallErrorCode::Unauthorized, message);
        CallOutcome::Error(error.suggest("check the `apiKey` of Model `voice`"))
    }

    fn failed(code: CallErrorCode) -> CallOutcome {
        CallOutcome::Error(CallError::new(code, "x"))
    }

    #[test]
    fn prov_1_a_key_that_stays_rejected_is_shown_until_a_reply() {
        let mut failures = LastingFailures::default();
        for call in 1..LASTING_FAILURES_SHOWN {
            assert_eq!(failures.note(&rejected("no"), at(i64::from(call))), None);
            assert_eq!(failures.shown(), None);
        }
        let begun = failures.note(&rejected("wrong key"), at(60));
        assert_eq!(begun, Some(FailureChange::Begun));
        // An outage in between does not hide it.
        assert_eq!(
            failures.note(&failed(CallErrorCode::Unavailable), at(70)),
            None
        );
        assert_eq!(failures.note(&rejected("wrong key"), at(80)), None);
        let shown = failures.shown().unwrap();
        let calls = LASTING_FAILURES_SHOWN + 1;
        assert_eq!((shown.since, shown.calls), (at(1), calls));
        assert_eq!(
            detail(shown),
            format!(
                "{calls} calls in a row failed since 1970-01-01T00:00:01.000Z; wrong key; check \
                 the `apiKey` of Model `voice`"
            )
        );
        let reply = CallOutcome::Ok(to_raw_value("hello").unwrap());
        assert_eq!(failures.note(&reply, at(90)), Some(FailureChange::Ended));
        assert_eq!(failures.shown(), None);
        assert_eq!(failures.note(&reply, at(91)), None);
    }

    #[test]
    fn prov_1_failures_that_pass_or_belong_to_one_message_are_not_shown() {
        let mut failures = LastingFailures::default();
        for code in [
            CallErrorCode::RateLimited,
            CallErrorCode::Overloaded,
            CallErrorCode::Invalid,
            CallErrorCode::Refused,
            CallErrorCode::TooLarge,
        ] {
            for call in 0..=i64::from(LASTING_FAILURES_SHOWN) {
                assert_eq!(failures.note(&failed(code), at(call)), None, "{code:?}");
            }
        }
        assert_eq!(failures.shown(), None);
        let used_up = CallError::new(CallErrorCode::Refused, "no credit").until_a_person_acts();
        let used_up = CallOutcome::Error(used_up);
        for call in 0..i64::from(LASTING_FAILURES_SHOWN) {
            failures.note(&used_up, at(call));
        }
        assert_eq!(failures.shown().unwrap().reason, "no credit");
    }
}
