//! Circuit breaker of a model or an endpoint (`PROV-1`): after outages in a row it is not called,
//! until a probe shows that it works again (pure).
//!
//! A rate limit, a usage limit or a rejected request is not an outage, because the provider works.
//! An outage of a model's endpoint counts for both; an overloaded model shows that its endpoint
//! works.

use goondan_protocol::call::{CallError, CallErrorCode, CallId};
use goondan_protocol::observe::detail_of;

use crate::limits::{
    BREAKER_OUTAGES, BREAKER_PAUSE_FIRST_MS, BREAKER_PAUSE_MAX_MS, BREAKER_SPAN_MIN_MS,
};

/// Subject of a breaker. The models of a workspace at the same URL share an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BreakerScope {
    Endpoint,
    Model,
}

impl BreakerScope {
    /// The wider one comes first: it explains the failures of the other.
    pub(crate) const ALL: [Self; 2] = [Self::Endpoint, Self::Model];
}

/// State of a breaker.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Breaker {
    /// The model is called.
    #[default]
    Closed,
    /// The last calls failed; the model is still called.
    Failing { outages: u32, since_ms: u64 },
    /// The model is not called.
    Open(OpenBreaker),
}

/// A breaker that stops calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenBreaker {
    /// The last failure.
    pub(crate) error: CallError,
    pub(crate) outages: u32,
    /// Start of the current pause.
    paused_ms: u64,
    pause_ms: u64,
    /// The call that decides, if one runs.
    probe: Option<CallId>,
}

/// Permission of one call to start; the strictest is last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Passage {
    Free,
    /// Only as the probe.
    Probe,
    No,
}

/// True if a failed attempt means that the model, or its endpoint, does not work at present.
pub(crate) fn is_outage(error: &CallError, scope: BreakerScope) -> bool {
    let is_of_provider = matches!(
        error.code,
        CallErrorCode::Unavailable
            | CallErrorCode::Overloaded
            | CallErrorCode::TimedOut
            | CallErrorCode::Interrupted
    );
    let is_in_scope = match scope {
        BreakerScope::Endpoint => error.endpoint_down,
        BreakerScope::Model => true,
    };
    is_of_provider && is_in_scope && error.retryable
}

impl Breaker {
    /// The open breaker, if it is.
    pub(crate) fn open(&self) -> Option<&OpenBreaker> {
        match self {
            Self::Open(open) => Some(open),
            Self::Closed | Self::Failing { .. } => None,
        }
    }

    /// True if the model is not called.
    pub(crate) fn is_open(&self) -> bool {
        self.open().is_some()
    }

    /// Notes that a call starts as the probe.
    pub(crate) fn probing(&mut self, call: CallId) {
        if let Self::Open(open) = self {
            open.probe = Some(call);
        }
    }

    /// Notes an answer of the provider, which may be a refusal.
    pub(crate) fn answered(&mut self) {
        *self = Self::Closed;
    }

    /// Notes the end of a call without an answer of the provider, such as a cancellation. The next
    /// call is the probe.
    pub(crate) fn abandoned(&mut self, call: CallId) {
        if let Self::Open(open) = self
            && open.probe == Some(call)
        {
            open.probe = None;
        }
    }

    /// Notes an outage. True if the model is not called from now on.
    pub(crate) fn failed(&mut self, call: CallId, error: &CallError, now_ms: u64) -> bool {
        let requested_ms = error.retry_after_ms.unwrap_or(0);
        match self {
            Self::Closed => {
                *self = Self::Failing {
                    outages: 1,
                    since_ms: now_ms,
                };
                false
            }
            Self::Failing { outages, since_ms } => {
                let (outages, since_ms) = (outages.saturating_add(1), *since_ms);
                let is_long = now_ms.saturating_sub(since_ms) >= BREAKER_SPAN_MIN_MS;
                let opens = outages >= BREAKER_OUTAGES && is_long;
                *self = match opens {
                    false => Self::Failing { outages, since_ms },
                    true => Self::Open(OpenBreaker {
                        error: error.clone(),
                        outages,
                        paused_ms: now_ms,
                        pause_ms: BREAKER_PAUSE_FIRST_MS.max(requested_ms),
                        probe: None,
                    }),
                };
                opens
            }
            Self::Open(open) => {
                open.outages = open.outages.saturating_add(1);
                open.error = error.clone();
                // A call that began before does not count as the probe.
                if open.probe == Some(call) {
                    open.probe = None;
                    open.paused_ms = now_ms;
                    let doubled = open.pause_ms.saturating_mul(2).min(BREAKER_PAUSE_MAX_MS);
                    open.pause_ms = doubled.max(requested_ms);
                }
                false
            }
        }
    }
}

impl OpenBreaker {
    /// Decides if a call may start. A call that has no other model need not wait for a pause that
    /// has grown.
    pub(crate) fn passage(&self, now_ms: u64, has_fallback: bool) -> Passage {
        if self.probe.is_none() && now_ms >= self.probe_ms(has_fallback) {
            Passage::Probe
        } else {
            Passage::No
        }
    }

    /// Time of the next probe.
    pub(crate) fn probe_ms(&self, has_fallback: bool) -> u64 {
        let pause_ms = match has_fallback {
            true => self.pause_ms,
            false => self.pause_ms.min(BREAKER_PAUSE_FIRST_MS),
        };
        self.paused_ms.saturating_add(pause_ms)
    }

    /// The call that decides, if one runs.
    pub(crate) fn probe(&self) -> Option<CallId> {
        self.probe
    }

    /// Description for people.
    pub(crate) fn detail(&self, scope: BreakerScope, now_ms: u64) -> String {
        let subject = match scope {
            BreakerScope::Endpoint => "endpoint ",
            BreakerScope::Model => "",
        };
        let when = match self.probe_ms(true).saturating_sub(now_ms) {
            _ if self.probe.is_some() => "one call is trying it".to_owned(),
            0 => "the next call tries it".to_owned(),
            left_ms => format!("tried again in {} s", left_ms.div_ceil(1_000)),
        };
        let (outages, reason) = (self.outages, detail_of(&self.error.message));
        format!("{subject}not called after {outages} failures in a row; {when}; {reason}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outage() -> CallError {
        CallError::new(CallErrorCode::Overloaded, "busy").later(None)
    }

    /// A breaker after outages every two seconds.
    fn after(outages: u32) -> (Breaker, u64) {
        let (mut breaker, mut now_ms) = (Breaker::default(), 0);
        for outage_number in 0..outages {
            now_ms = 2_000 * u64::from(outage_number);
            breaker.failed(CallId(0), &outage(), now_ms);
        }
        (breaker, now_ms)
    }

    fn passage(breaker: &Breaker, now_ms: u64, has_fallback: bool) -> Passage {
        let open = breaker.open();
        open.map_or(Passage::Free, |open| open.passage(now_ms, has_fallback))
    }

    #[test]
    fn prov_1_outages_in_a_row_open_the_breaker_and_a_probe_closes_it() {
        assert!(!after(BREAKER_OUTAGES - 1).0.is_open());
        let (mut breaker, opened_ms) = after(BREAKER_OUTAGES);
        assert_eq!(passage(&breaker, opened_ms, true), Passage::No);
        let probe_ms = opened_ms + BREAKER_PAUSE_FIRST_MS;
        assert_eq!(passage(&breaker, probe_ms, true), Passage::Probe);
        breaker.probing(CallId(7));
        assert_eq!(
            passage(&breaker, probe_ms, true),
            Passage::No,
            "one at a time"
        );
        // The probe fails: the pause doubles, except for calls without another model.
        breaker.failed(CallId(7), &outage(), probe_ms);
        let first = probe_ms + BREAKER_PAUSE_FIRST_MS;
        assert_eq!(passage(&breaker, first, true), Passage::No);
        assert_eq!(passage(&breaker, first, false), Passage::Probe);
        // An abandoned probe decides nothing.
        breaker.probing(CallId(8));
        breaker.abandoned(CallId(9));
        assert_eq!(passage(&breaker, first, false), Passage::No);
        breaker.abandoned(CallId(8));
        assert_eq!(passage(&breaker, first, false), Passage::Probe);
        breaker.answered();
        assert_eq!(passage(&breaker, first, true), Passage::Free);
    }

    #[test]
    fn prov_1_a_short_outage_of_many_calls_opens_no_breaker() {
        let mut breaker = Breaker::default();
        for call in 0..100 {
            assert!(!breaker.failed(CallId(call), &outage(), BREAKER_SPAN_MIN_MS - 1));
        }
        assert_eq!(passage(&breaker, BREAKER_SPAN_MIN_MS, true), Passage::Free);
    }

    #[test]
    fn prov_1_limits_and_refusals_are_no_outages() {
        for code in [
            CallErrorCode::RateLimited,
            CallErrorCode::Refused,
            CallErrorCode::Unauthorized,
            CallErrorCode::Invalid,
            CallErrorCode::TooLarge,
        ] {
            let error = CallError::new(code, "x").later(None).of_endpoint();
            for scope in BreakerScope::ALL {
                assert!(!is_outage(&error, scope), "{code:?}");
            }
        }
        // A reply that took too long shows that the provider works.
        let slow = CallError::new(CallErrorCode::TimedOut, "x");
        assert!(!is_outage(&slow, BreakerScope::Model));
    }

    #[test]
    fn prov_1_an_overloaded_model_is_no_outage_of_its_endpoint() {
        assert!(is_outage(&outage(), BreakerScope::Model));
        assert!(!is_outage(&outage(), BreakerScope::Endpoint));
        let unreachable = CallError::new(CallErrorCode::Unavailable, "refused").later(None);
        for scope in BreakerScope::ALL {
            assert!(is_outage(&unreachable.clone().of_endpoint(), scope));
        }
    }

    #[test]
    fn prov_1_an_open_breaker_names_its_reason_and_the_next_try() {
        let (breaker, opened_ms) = after(BREAKER_OUTAGES);
        let open = breaker.open().unwrap();
        let detail = open.detail(BreakerScope::Endpoint, opened_ms);
        let wait_s = BREAKER_PAUSE_FIRST_MS / 1_000;
        assert_eq!(
            detail,
            format!(
                "endpoint not called after {BREAKER_OUTAGES} failures in a row; tried again in \
                 {wait_s} s; busy"
            )
        );
    }

    #[test]
    fn prov_1_a_requested_pause_is_kept_and_pauses_are_bounded() {
        let (mut breaker, mut now_ms) = after(BREAKER_OUTAGES - 1);
        now_ms += 2_000;
        let long = outage().later(Some(120_000));
        assert!(breaker.failed(CallId(0), &long, now_ms));
        assert_eq!(passage(&breaker, now_ms + 119_999, true), Passage::No);
        for call in 1..20 {
            now_ms += BREAKER_PAUSE_MAX_MS;
            assert_eq!(passage(&breaker, now_ms, true), Passage::Probe);
            breaker.probing(CallId(call));
            breaker.failed(CallId(call), &outage(), now_ms);
        }
    }
}
