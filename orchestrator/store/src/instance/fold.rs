//! The fold: `Base + SUM(Events)` becomes the new base (`MSG-4`, `MSG-6`, `MSG-7`).
//!
//! Two ways, both harmless to repeat:
//!
//! * **delta**, when every event is an `append`: cut the base to the length the commit record names,
//!   append the messages, sync. The cost does not depend on the history's length.
//! * **rewrite**, otherwise: the new base is written and synced beside the old one *before* the commit
//!   record; after it, only a rename is left. Were it built after the commit, a crash between rename
//!   and clearing would apply the events to a base that has them already.
//!
//! Messages are copied as the bytes they are, so fields nobody here knows survive.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::BASE;
use super::turn::RawEvent;
use crate::disk::Disk;
use crate::durable;
use crate::error::{IoContext as _, StoreError};
use crate::jsonl::Journal;

/// The prepared base of a rewrite.
pub(super) const BASE_NEXT: &str = "base.next.jsonl";

/// Cuts `base` to `base_bytes` and appends the messages of `events`, which must all be appends.
/// Durable when it returns.
pub(super) fn append_delta(
    base: &mut Journal,
    base_bytes: u64,
    events: &[RawEvent],
) -> Result<(), StoreError> {
    if base.len() < base_bytes {
        return Err(StoreError::Damaged {
            path: base.path().to_owned(),
            line: 0,
            problem: format!(
                "it has {} bytes, but {base_bytes} were durable when a turn was committed",
                base.len()
            ),
        });
    }
    if base.len() > base_bytes {
        base.cut(base_bytes)?;
    }
    let mut delta = Vec::new();
    for event in events {
        if let RawEvent::Append { message } = event {
            delta.extend_from_slice(message.get().as_bytes());
            delta.push(b'\n');
        }
    }
    if !delta.is_empty() {
        base.append(&delta)?;
    }
    base.sync()
}

/// One message of the base: its id and its line.
struct Held {
    id: String,
    line: Box<[u8]>,
}

#[derive(Deserialize)]
struct IdOnly<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
}

fn held(line: &[u8]) -> Held {
    // A damaged line has no id, so no event can name it; it stays where it is for people to mend.
    let id = serde_json::from_slice::<IdOnly<'_>>(line)
        .map_or_else(|_| String::new(), |found| found.id.into_owned());
    Held {
        id,
        line: line.into(),
    }
}

/// Writes the new base beside the old one. Durable when it returns.
pub(super) fn prepare(
    disk: &dyn Disk,
    base: &mut Journal,
    events: Vec<RawEvent>,
) -> Result<(), StoreError> {
    let mut messages: Vec<Held> = Vec::new();
    base.scan(|_, line| messages.push(held(line)))?;
    for event in events {
        apply(&mut messages, event);
    }
    let mut content = Vec::new();
    for message in &messages {
        content.extend_from_slice(&message.line);
        content.push(b'\n');
    }
    let next = base.path().with_file_name(BASE_NEXT);
    durable::write_synced(disk, &next, &content)?;
    let dir = next.parent().unwrap_or(Path::new("/"));
    disk.sync_dir(dir).during("sync", dir)
}

/// The rule of [`goondan_protocol::conversation::Conversation::apply`], over raw lines. A target that
/// is missing changes nothing; the agent has said so when the event was made.
fn apply(messages: &mut Vec<Held>, event: RawEvent) {
    let position = |messages: &[Held], target: &str| messages.iter().position(|m| m.id == target);
    match event {
        RawEvent::Append { message } => messages.push(held(message.get().as_bytes())),
        RawEvent::Replace { target_id, message } => {
            if let Some(at) = position(messages, target_id.as_str())
                && let Some(place) = messages.get_mut(at)
            {
                *place = held(message.get().as_bytes());
            }
        }
        RawEvent::Remove { target_id } => {
            if let Some(at) = position(messages, target_id.as_str()) {
                messages.remove(at);
            }
        }
        RawEvent::Truncate => messages.clear(),
    }
}

fn next_path(messages: &Path) -> PathBuf {
    messages.join(BASE_NEXT)
}

/// Puts the prepared base in place. If it is not there, that was done before. Durable when it
/// returns.
pub(super) fn install_prepared(disk: &dyn Disk, messages: &Path) -> Result<(), StoreError> {
    let next = next_path(messages);
    if disk.stat(&next).during("look at", &next)?.is_some() {
        durable::install(disk, &next, &messages.join(BASE))
    } else {
        // The rename may have been done by a process that died before it was durable.
        disk.sync_dir(messages).during("sync", messages)
    }
}

/// Removes a prepared base that no commit stands for.
pub(super) fn discard_prepared(disk: &dyn Disk, messages: &Path) -> Result<(), StoreError> {
    let next = next_path(messages);
    if disk.stat(&next).during("look at", &next)?.is_some() {
        disk.remove_file(&next).during("remove", &next)?;
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
