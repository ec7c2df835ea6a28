//! Finding one trace in the runtime events of many instances, for people (`MSG-12`).
//!
//! There is no index: the files are looked through, the latest instances first and each from its end,
//! within bounds. A line that does not name what is looked for is passed over unparsed.

use std::path::Path;

use goondan_durable::IoContext as _;
use goondan_durable::disk::Disk;
use goondan_protocol::ids::InstanceKey;
use goondan_protocol::observe::{RuntimeEvent, RuntimeEventKind};
use goondan_protocol::trace::TraceId;

use super::segments::Reading;
use super::{MESSAGES, OBSERVED};
use crate::error::StoreError;
use crate::limits::{TRACE_EVENTS_MAX, TRACE_FILE_BYTES, TRACE_INSTANCES_MAX};
use crate::naming::instance_dir_name;

/// A trace, as far as it was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Traced {
    /// The trace.
    pub trace_id: TraceId,
    /// What happened in it, oldest first.
    pub events: Vec<RuntimeEvent>,
    /// Whether there was more to look through.
    pub is_partial: bool,
}

/// Instances among which the latest turn is looked for.
const LATEST_INSTANCES: usize = 20;

/// Finds the trace that `of` names, by its own id or by that of a turn or an event; none: that of the
/// turn that began last. `latest` are the instances, the one changed last first. None if there is no
/// such trace. May be done while writer threads append.
///
/// # Errors
///
/// [`StoreError::File`].
pub fn traced(
    disk: &dyn Disk,
    instances: &Path,
    latest: &[InstanceKey],
    of: Option<&str>,
) -> Result<Option<Traced>, StoreError> {
    let looked_at = latest.get(..TRACE_INSTANCES_MAX).unwrap_or(latest);
    let mut is_partial = looked_at.len() < latest.len();
    let trace_id = match of {
        Some(text) => match text.parse::<TraceId>() {
            Ok(trace_id) => Some(trace_id),
            Err(_) => trace_of(disk, instances, looked_at, text)?,
        },
        None => latest_trace(disk, instances, looked_at)?,
    };
    let Some(trace_id) = trace_id else {
        return Ok(None);
    };
    let name = trace_id.to_string();
    let mut events: Vec<RuntimeEvent> = Vec::new();
    for key in looked_at {
        is_partial |= look(disk, instances, key, &name, |event| {
            if event.trace_id == trace_id {
                events.push(event);
            }
        })?;
        if events.len() > TRACE_EVENTS_MAX {
            is_partial = true;
            break;
        }
    }
    events.truncate(TRACE_EVENTS_MAX);
    events.sort_by_key(|event| event.timestamp);
    Ok((!events.is_empty()).then_some(Traced {
        trace_id,
        events,
        is_partial,
    }))
}

/// The trace of the turn or event of this id.
fn trace_of(
    disk: &dyn Disk,
    instances: &Path,
    keys: &[InstanceKey],
    id: &str,
) -> Result<Option<TraceId>, StoreError> {
    let mut found = None;
    for key in keys {
        look(disk, instances, key, id, |event| {
            let is_event = event.event_id.as_ref().is_some_and(|e| e.as_str() == id);
            if is_event || event.turn_id.as_str() == id {
                found = Some(event.trace_id);
            }
        })?;
        if found.is_some() {
            break;
        }
    }
    Ok(found)
}

fn latest_trace(
    disk: &dyn Disk,
    instances: &Path,
    keys: &[InstanceKey],
) -> Result<Option<TraceId>, StoreError> {
    let mut latest: Option<RuntimeEvent> = None;
    let started = RuntimeEventKind::TurnStarted;
    for key in keys.iter().take(LATEST_INSTANCES) {
        look(disk, instances, key, started.as_str(), |event| {
            let is_later = latest
                .as_ref()
                .is_none_or(|l| l.timestamp <= event.timestamp);
            if event.kind == started && is_later {
                latest = Some(event);
            }
        })?;
    }
    Ok(latest.map(|event| event.trace_id))
}

/// Shows the events of an instance whose lines hold `text`, oldest first. True if its record is longer
/// than what was looked through.
fn look(
    disk: &dyn Disk,
    instances: &Path,
    key: &InstanceKey,
    text: &str,
    mut show: impl FnMut(RuntimeEvent),
) -> Result<bool, StoreError> {
    let messages = instances.join(instance_dir_name(key)).join(MESSAGES);
    // It may have been deleted meanwhile.
    if disk.stat(&messages).during("look at", &messages)?.is_none() {
        return Ok(false);
    }
    let (bytes, is_partial) = Reading::open(disk, &messages, OBSERVED)?.tail(TRACE_FILE_BYTES)?;
    // The first line of a tail may have lost its head; it is no event then.
    for line in bytes.split(|byte| *byte == b'\n') {
        let is_named = std::str::from_utf8(line).is_ok_and(|line| line.contains(text));
        if is_named && let Ok(event) = serde_json::from_slice(line) {
            show(event);
        }
    }
    Ok(is_partial)
}

#[cfg(test)]
mod tests {
    use goondan_durable::disk::SimulatedDisk;

    use super::*;

    fn line(trace: u8, turn: &str, at_ms: u64) -> String {
        let event = serde_json::json!({
            "type": "turn.started",
            "timestamp": format!("2026-01-01T00:00:00.{at_ms:03}Z"),
            "traceId": format!("{trace:032x}"),
            "spanId": "00f067aa0ba902b7",
            "agentName": "clerk",
            "instanceKey": "main",
            "turnId": turn,
            "eventId": format!("event-{turn}"),
        });
        format!("{event}\n")
    }

    fn disk_with(files: &[(&str, String)]) -> (SimulatedDisk, Vec<InstanceKey>) {
        let disk = SimulatedDisk::new();
        disk.create_dir(Path::new("/i")).unwrap();
        for (key, text) in files {
            let dir = Path::new("/i").join(key);
            disk.create_dir(&dir).unwrap();
            disk.create_dir(&dir.join(MESSAGES)).unwrap();
            let path = dir.join(MESSAGES).join(OBSERVED);
            disk.plant(&path, text.as_bytes()).unwrap();
        }
        let keys = files.iter().map(|(key, _)| key.parse().unwrap());
        (disk, keys.collect())
    }

    fn turns(found: Option<&Traced>) -> Vec<&str> {
        let events = found.map(|found| found.events.as_slice());
        let events = events.unwrap_or_default().iter();
        events.map(|event| event.turn_id.as_str()).collect()
    }

    #[test]
    fn msg_12_a_trace_is_gathered_from_all_instances_by_any_of_its_ids() {
        let first = [line(1, "t1", 5), "damage\n".to_owned(), line(2, "t2", 9)].concat();
        let second = [line(1, "t3", 7), line(3, "t4", 8)].concat();
        let (disk, keys) = disk_with(&[("a", first), ("b", second)]);
        let find = |of| traced(&disk, Path::new("/i"), &keys, of).unwrap();
        let trace = format!("{:032x}", 1);
        for of in [trace.as_str(), "t1", "t3", "event-t3"] {
            let found = find(Some(of));
            assert_eq!(turns(found.as_ref()), ["t1", "t3"], "{of}");
            assert!(!found.unwrap().is_partial);
        }
        assert_eq!(turns(find(None).as_ref()), ["t2"]);
        assert_eq!(find(Some("t9")), None);
        assert_eq!(find(Some(&format!("{:032x}", 9))), None);
    }

    #[test]
    fn msg_12_what_lies_too_far_back_is_said_to_be_missing() {
        let filler = line(2, "filler", 1);
        let times = TRACE_FILE_BYTES / filler.len() + 1;
        let text = [line(1, "t1", 1), filler.repeat(times), line(1, "t2", 2)].concat();
        let (disk, keys) = disk_with(&[("a", text)]);
        let trace = format!("{:032x}", 1);
        let found = traced(&disk, Path::new("/i"), &keys, Some(&trace)).unwrap();
        assert_eq!(turns(found.as_ref()), ["t2"]);
        assert!(found.unwrap().is_partial);
    }
}
