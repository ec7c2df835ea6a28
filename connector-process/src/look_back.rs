//! Actions whose outcome is unknown after a crash or a broken connection: the connector finds out
//! whether they took effect, and repeats them if not.
//!
//! [`next`] decides; it is pure. The service's API looks back ([`crate::service_api::ServiceApi`]).
//!
//! A request that the crash left in transit may still take effect. So "absent" counts only if it is
//! found twice, [`SETTLE_MS`] apart.

use std::time::Duration;

use goondan_protocol::call::{CallError, CallErrorCode, LookedBack};
use goondan_protocol::service::Recovery;
use goondan_protocol::time::Timestamp;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Pause between the two look-backs that find nothing, in milliseconds.
const SETTLE_MS: u64 = 2_000;

/// Largest difference between this machine's clock and the service's, in milliseconds.
const CLOCK_SKEW_MS: i64 = 2 * 60 * 1_000;

/// Length of a key in hexadecimal digits.
const KEY_DIGITS: usize = 32;

/// A service's answer about an earlier attempt.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Evidence {
    /// The attempt took effect, with this result.
    Found(Value),
    /// The service does not list the attempt.
    Absent,
    /// The service recognizes the repetition, so no look-back is needed.
    Recognized,
    /// The outcome cannot be determined, for this reason.
    Unclear(String),
}

/// The next step for an action.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Next {
    /// End the call with this result.
    Close(Value),
    /// Repeat the action.
    Make(LookedBack),
    /// Look back once more, after this pause.
    LookAgain(Duration),
    /// The outcome stays unknown, and a person decides, for this reason.
    Person(String),
}

/// Decides about an action after `looks` earlier look-backs.
pub(crate) fn next(evidence: Evidence, looks: u32) -> Next {
    match evidence {
        Evidence::Found(result) => Next::Close(result),
        Evidence::Absent if looks == 0 => Next::LookAgain(Duration::from_millis(SETTLE_MS)),
        Evidence::Absent => Next::Make(LookedBack::NotHappened),
        Evidence::Recognized => Next::Make(LookedBack::SameKey),
        Evidence::Unclear(reason) => Next::Person(reason),
    }
}

/// Evidence about an attempt, made at `since` or later, without a request to the service; `None` if
/// the service must be asked.
pub(crate) fn known(recovery: Recovery, since: Timestamp, now_ms: i64) -> Option<Evidence> {
    match recovery {
        Recovery::Repeatable => Some(Evidence::Recognized),
        Recovery::Key { name, valid_ms } => {
            let age_ms = now_ms.saturating_sub(since.as_unix_millis());
            let is_valid = u64::try_from(age_ms).is_ok_and(|age_ms| age_ms <= valid_ms);
            Some(if is_valid {
                Evidence::Recognized
            } else {
                let minutes = valid_ms / 60_000;
                Evidence::Unclear(format!(
                    "the service is sure to remember its {name} for {minutes} minutes only"
                ))
            })
        }
        Recovery::LookBack(_) => None,
        Recovery::Unknown(why) => Some(Evidence::Unclear(why.to_owned())),
    }
}

/// Earliest time at which the service can have received an attempt, in milliseconds since 1970.
pub(crate) fn earliest_ms(since: Timestamp) -> i64 {
    since.as_unix_millis().saturating_sub(CLOCK_SKEW_MS).max(0)
}

/// Key by which an action is recognized at a service. It reveals nothing about the conversation.
pub(crate) fn key_of(mark: &str) -> String {
    let mut digits = hex::encode(Sha256::digest(mark));
    digits.truncate(KEY_DIGITS);
    digits
}

/// Error of an action whose outcome only a person can determine.
pub(crate) fn unknown(reason: &str) -> CallError {
    let message = format!("outcome of an earlier attempt unknown: {reason}");
    CallError::new(CallErrorCode::Interrupted, message)
        .of_unknown_outcome()
        .suggest("check if it took effect before you try again")
}

/// Error of a look-back that failed. It can be tried again if the service says so.
pub(crate) fn failed(error: CallError) -> CallError {
    let message = format!("failed to look back: {}", error.message);
    let error = CallError { message, ..error }.of_unknown_outcome();
    if error.retryable {
        return error;
    }
    CallError {
        code: CallErrorCode::Interrupted,
        ..error
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_unix_millis(ms)
    }

    #[test]
    fn msg_13_only_an_absent_action_is_made_again_and_after_a_second_look() {
        let found = || Evidence::Found(json!("9.1"));
        assert_eq!(next(found(), 0), Next::Close(json!("9.1")));
        assert_eq!(next(found(), 1), Next::Close(json!("9.1")));
        let pause = Duration::from_millis(SETTLE_MS);
        assert_eq!(next(Evidence::Absent, 0), Next::LookAgain(pause));
        let made = Next::Make(LookedBack::NotHappened);
        assert_eq!(next(Evidence::Absent, 1), made);
        let same = Next::Make(LookedBack::SameKey);
        assert_eq!(next(Evidence::Recognized, 0), same);
        let unclear = Evidence::Unclear("no".to_owned());
        assert_eq!(next(unclear, 0), Next::Person("no".to_owned()));
    }

    #[test]
    fn msg_13_a_key_counts_while_the_service_remembers_it() {
        let key = Recovery::Key {
            name: "nonce",
            valid_ms: 120_000,
        };
        assert_eq!(known(key, at(0), 120_000), Some(Evidence::Recognized));
        for now_ms in [120_001, -1] {
            let late = known(key, at(0), now_ms);
            assert!(matches!(late, Some(Evidence::Unclear(_))), "{late:?}");
        }
        assert_eq!(known(Recovery::LookBack("there"), at(0), 1), None);
        let unknown = known(Recovery::Unknown("no list"), at(0), 1);
        assert_eq!(unknown, Some(Evidence::Unclear("no list".to_owned())));
    }

    #[test]
    fn msg_13_a_failed_look_back_leaves_the_outcome_unknown() {
        let late = CallError::new(CallErrorCode::RateLimited, "wait").later(Some(5));
        let late = failed(late);
        assert!(late.retryable && late.outcome_unknown, "{late:?}");
        let refused = failed(CallError::new(CallErrorCode::Refused, "no"));
        assert_eq!(refused.code, CallErrorCode::Interrupted);
        assert!(refused.outcome_unknown && !refused.retryable);
    }

    #[test]
    fn msg_13_a_key_is_short_and_reveals_no_id() {
        let key = key_of("t.1:c0/0");
        assert_eq!(key.len(), KEY_DIGITS);
        assert_ne!(key, key_of("t.1:c0/1"));
        assert_eq!(earliest_ms(at(5)), 0);
    }
}
