//! Texts that become messages: how many, and how long they may be. Pure.

use super::action::PlanError;
use super::split::{Measure, split};

/// Most messages that one text is split into.
const PARTS_MAX: usize = 20;

/// A text in parts of at most `limit`, no more than [`PARTS_MAX`] of them.
pub(super) fn parts(
    text: &str,
    limit: usize,
    measure: Measure,
    keeps_fences: bool,
) -> Result<Vec<String>, PlanError> {
    let parts = split(text, limit, measure, keeps_fences);
    let count = parts.len();
    if count <= PARTS_MAX {
        return Ok(parts);
    }
    Err(PlanError::TooLarge(format!(
        "the text would be {count} messages, at most {PARTS_MAX} are sent at once; say it shorter"
    )))
}

/// Checks that a text is one message.
pub(super) fn check_length(text: &str, limit: usize, measure: Measure) -> Result<(), PlanError> {
    let length = measure.of(text);
    if length <= limit {
        return Ok(());
    }
    Err(PlanError::TooLarge(format!(
        "the text has {length} characters, a message at most {limit}"
    )))
}
