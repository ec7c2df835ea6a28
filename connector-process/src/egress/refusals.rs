//! Rate-limited log lines of refusals, because a program can cause any number.

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use goondan_log::LineLimit;
use goondan_protocol::egress::EgressCaller;

use crate::limits::{EGRESS_REFUSALS_INTERVAL_MS, EGRESS_REFUSALS_TOLD};

#[derive(Debug)]
pub(super) struct Refusals(Mutex<LineLimit>);

impl Refusals {
    pub(super) fn new() -> Self {
        let lines = LineLimit::new(EGRESS_REFUSALS_TOLD, EGRESS_REFUSALS_INTERVAL_MS);
        Self(Mutex::new(lines))
    }

    /// Logs a refusal unless too many were logged recently.
    pub(super) fn tell(&self, caller: &EgressCaller, why: impl Display) {
        let admitted = {
            let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            lines.admit(Instant::now())
        };
        match admitted {
            None => {}
            Some(0) => tracing::warn!(%caller, %why, "a program of a sandbox was refused"),
            Some(left_out) => tracing::warn!(
                %caller,
                %why,
                left_out,
                "a program of a sandbox was refused; some refusals were not logged"
            ),
        }
    }
}
