//! The fold: `Base + SUM(Events)` becomes the new base (`MSG-4`, `MSG-6`, `MSG-7`).
//!
//! Two ways, both harmless to repeat:
//!
//! * **delta**, when every event is an `append`: the messages are appended to the base, and their
//!   checksums to theirs. The cost does not depend on the history's length. Before it is done again, both
//!   are cut to the lengths that the commit record names (see [`super::redo`]).
//! * **rewrite**, otherwise: the new base and its checksums are written and synced beside the old ones
//!   *before* the commit record; after it, only renames are left. Were they built after the commit, a
//!   crash between rename and clearing would apply the events to a base that has them already.
//!
//! Messages are copied as the bytes they are, so fields nobody here knows survive; and so is what was
//! found damaged, which stays marked as damaged.

use std::borrow::Cow;
use std::path::Path;

use goondan_durable::IoContext as _;
use goondan_durable::checksum::crc32;
use goondan_durable::disk::Disk;
use goondan_protocol::conversation::MissingTarget;
use serde::Deserialize;

use super::answer::Answer;
use super::base::{BASE_NEXT, Base};
use super::base_checksums::{self, SUMS_NEXT};
use super::checksum_diff::LineSum;
use super::raw::RawEvent;
use super::turn::FoldMode;
use crate::error::StoreError;

/// The messages of `events`, which must all be appends, as lines.
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

/// One message of the base: its id, its line with its newline, and the checksum it was written with.
struct Held {
    id: String,
    line: Box<[u8]>,
    sum: LineSum,
}

#[derive(Deserialize)]
struct IdOnly<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
}

impl Held {
    /// A line of the base. One that is damaged has no id, so no event can name it; it stays where it
    /// is for people to mend.
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
    answers: &[Answer],
) -> Result<(FoldMode, Vec<MissingTarget>), StoreError> {
    let survey = base.survey()?;
    let mut sums = survey.lines.into_iter();
    let mut messages: Vec<Held> = Vec::new();
    base.journal().scan(|_, line| {
        if let Some(sum) = sums.next() {
            messages.push(Held::of_base(line, sum));
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

/// The rule of [`goondan_protocol::conversation::Conversation::apply`], over raw lines. A target that
/// is missing changes nothing, and is returned.
fn apply(messages: &mut Vec<Held>, event: RawEvent) -> Result<Option<MissingTarget>, StoreError> {
    let position = |messages: &[Held], target: &str| messages.iter().position(|m| m.id == target);
    match event {
        RawEvent::Append { message } => messages.push(Held::new(message.get())?),
        RawEvent::Replace { target_id, message } => {
            let at = position(messages, target_id.as_str());
            let Some(place) = at.and_then(|at| messages.get_mut(at)) else {
                let operation = "replace";
                return Ok(Some(MissingTarget {
                    operation,
                    target_id,
                }));
            };
            *place = Held::new(message.get())?;
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

/// Removes a prepared base that no commit stands for.
pub(super) fn discard_prepared(disk: &dyn Disk, messages: &Path) -> Result<(), StoreError> {
    for name in [BASE_NEXT, SUMS_NEXT] {
        let next = messages.join(name);
        if disk.stat(&next).during("look at", &next)?.is_some() {
            disk.remove_file(&next).during("remove", &next)?;
        }
    }
    Ok(())
}

/// The raw events as an agent that resumes the turn gets them.
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
