//! Splits texts into messages within the limits of a service. No I/O.

use super::action::PlanError;
use super::split::{Measure, split};

/// Largest number of messages that one text is split into.
const PARTS_MAX: usize = 20;

/// Splits a text into parts of at most `limit`, at most [`PARTS_MAX`] of them.
pub(super) fn parts(
    text: &str,
    limit: usize,
    measure: Measure,
    keeps_fences: bool,
) -> Result<Vec<String>, PlanError> {
    let parts = split(text, limit, measure, keeps_fences);
    check_count(parts.len())?;
    Ok(parts)
}

/// Checks that a text does not become too many messages.
pub(super) fn check_count(count: usize) -> Result<(), PlanError> {
    if count <= PARTS_MAX {
        return Ok(());
    }
    Err(PlanError::TooLarge(format!(
        "the text would be {count} messages, at most {PARTS_MAX} are sent at once; say it shorter"
    )))
}

/// Checks that a text fits in one message.
pub(super) fn check_length(text: &str, limit: usize, measure: Measure) -> Result<(), PlanError> {
    let length = measure.of(text);
    if length <= limit {
        return Ok(());
    }
    Err(PlanError::TooLarge(format!(
        "the text has {length} characters, a message at most {limit}"
    )))
}
