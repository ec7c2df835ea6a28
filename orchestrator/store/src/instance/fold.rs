//! The fold: `Base + SUM(Events)` becomes the new base (`MSG-4`, `MSG-6`, `MSG-7`).
//!
//! Two methods, both idempotent:
//!
//! * **delta**, when every event is an `append`: messages and checksums are appended to their
//!   files. The cost does not depend on the history's length. A redo first truncates both files to
//!   the lengths in the commit record (see [`super::redo`]).
//! * **rewrite**, otherwise: the new base and its checksums are written and synced beside the old
//!   ones *before* the commit record, so that only renames are left after it. If they were built
//!   after the commit, a crash between rename and clearing would apply the events twice.
//!
//! Messages are copied byte for byte, so unknown fields survive. Damaged lines are copied too and
//! stay marked as damaged.

use std::borrow::Cow;
use std::path::Path;

use goondan_durable::IoContext as _;
use goondan_durable::checksum::crc32;
use goondan_durable::disk::Disk;
use goondan_protocol::conversation::MissingTarget;
use serde::Deserialize;

use super::answer::AnswerRef;
use super::base::{BASE_NEXT, Base};
use super::base_checksums::{self, SUMS_NEXT};
use super::checksum_diff::LineSum;
use super::records::RawEvent;
use super::turn::FoldMode;
use crate::error::StoreError;

/// Returns the messages of `events`, which must all be appends, as lines.
pub(super) fn delta_of(events: &[RawEvent]) -> Vec<u8> {
    let mut delta = Vec::new();
    for event in events {
        if let RawEvent::Append { message } = event {
            delta.extend_from_slice(message.get().as_bytes());
            delta.push(b'\n');
        }
    }
    delta
}

/// A message of the base: its id, its line with newline, and its original checksum.
struct BaseMessage {
    id: String,
    line: Box<[u8]>,
    sum: LineSum,
}

#[derive(Deserialize)]
struct IdOnly<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
}

impl BaseMessage {
    /// Wraps a line of the base. A damaged line gets no id, so that no event can target it; it
    /// stays in place for manual repair.
    fn of_base(line: &[u8], sum: LineSum) -> Self {
        let id = sum
            .sum
            .and_then(|_| serde_json::from_slice::<IdOnly<'_>>(line).ok())
            .map_or_else(String::new, |found| found.id.into_owned());
        let line = [line, b"\n"].concat().into();
        Self { id, line, sum }
    }

    fn new(message: &str) -> Result<Self, StoreError> {
        let sum = base_checksums::sum_of(&[message.as_bytes(), b"\n"].concat())?;
        Ok(Self::of_base(message.as_bytes(), sum))
    }
}

/// Writes the new base beside the old one. Durable when it returns.
pub(super) fn prepare(
    disk: &dyn Disk,
    base: &mut Base,
    events: Vec<RawEvent>,
    answers: &[AnswerRef],
) -> Result<(FoldMode, Vec<MissingTarget>), StoreError> {
    let survey = base.survey()?;
    let mut sums = survey.lines.into_iter();
    let mut messages: Vec<BaseMessage> = Vec::new();
    base.journal().scan(|_, line| {
        if let Some(sum) = sums.next() {
            messages.push(BaseMessage::of_base(line, sum));
        }
    })?;
    let mut missing = Vec::new();
    for event in events {
        missing.extend(apply(&mut messages, event)?);
    }
    let mut content = Vec::new();
    for message in &messages {
        content.extend_from_slice(&message.line);
    }
    let lines: Vec<LineSum> = messages.iter().map(|message| message.sum).collect();
    base.prepare(disk, &content, &lines, answers)?;
    let mode = FoldMode::Rewrite {
        bytes: Some(content.len() as u64),
        crc32: Some(crc32(&content)),
    };
    Ok((mode, missing))
}

/// Applies an event to raw lines by the rule of
/// [`goondan_protocol::conversation::Conversation::apply`]. A missing target changes nothing and is
/// returned.
fn apply(
    messages: &mut Vec<BaseMessage>,
    event: RawEvent,
) -> Result<Option<MissingTarget>, StoreError> {
    let position =
        |messages: &[BaseMessage], target: &str| messages.iter().position(|m| m.id == target);
    match event {
        RawEvent::Append { message } => messages.push(BaseMessage::new(message.get())?),
        RawEvent::Replace { target_id, message } => {
            let at = position(messages, target_id.as_str());
            let Some(place) = at.and_then(|at| messages.get_mut(at)) else {
                let operation = "replace";
                return Ok(Some(MissingTarget {
                    operation,
                    target_id,
                }));
            };
            *place = BaseMessage::new(message.get())?;
        }
        RawEvent::Remove { target_id } => {
            let Some(at) = position(messages, target_id.as_str()) else {
                let operation = "remove";
                return Ok(Some(MissingTarget {
                    operation,
                    target_id,
                }));
            };
            messages.remove(at);
        }
        RawEvent::Truncate => messages.retain(|message| message.sum.sum.is_none()),
    }
    Ok(None)
}

/// Removes a prepared base without a commit.
pub(super) fn discard_prepared(disk: &dyn Disk, messages: &Path) -> Result<(), StoreError> {
    for name in [BASE_NEXT, SUMS_NEXT] {
        let next = messages.join(name);
        if disk.stat(&next).during("inspect", &next)?.is_some() {
            disk.remove_file(&next).during("remove", &next)?;
        }
    }
    Ok(())
}

/// Returns the raw events for an agent that resumes the turn.
pub(super) fn raw_events(
    events: &[RawEvent],
) -> Result<Vec<Box<serde_json::value::RawValue>>, StoreError> {
    events
        .iter()
        .map(|event| {
            event.to_raw().map_err(|error| StoreError::InvalidEvent {
                problem: error.to_string(),
            })
        })
        .collect()
}
