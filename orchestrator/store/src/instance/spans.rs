//! Finds one trace in the runtime events of many instances, for display (`MSG-12`).
//!
//! There is no index: every page scans the files again, newest instances first and each from its
//! end, within limits. Lines without the requested id are skipped unparsed, and at most one page of
//! events is kept in memory.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use goondan_durable::IoContext as _;
use goondan_durable::disk::Disk;
use goondan_protocol::control::TraceCursor;
use goondan_protocol::ids::InstanceKey;
use goondan_protocol::limits::{HISTORY_PAGE_BYTES, MAX_TRACE_PAGE};
use goondan_protocol::observe::{RuntimeEvent, RuntimeEventKind};
use goondan_protocol::time::Timestamp;
use goondan_protocol::trace::TraceId;

use super::segments::SegmentReader;
use super::{MESSAGES, OBSERVED};
use crate::error::StoreError;
use crate::file_names::instance_dir_name;
use crate::limits::{TRACE_FILE_BYTES, TRACE_INSTANCES_MAX};

/// Selection of a part of a trace.
#[derive(Debug, Clone, Copy, Default)]
pub struct TraceQuery<'a> {
    /// The trace, by its own id or by the id of a turn or an event; `None` selects the trace of the
    /// newest turn.
    pub of: Option<&'a str>,
    /// The last event of the previous page; `None` starts at the first event.
    pub after: Option<&'a TraceCursor>,
    /// Maximum number of events; default and maximum: [`MAX_TRACE_PAGE`].
    pub limit: Option<usize>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct TraceSlice {
    pub trace_id: TraceId,
    /// Its events, oldest first.
    pub events: Vec<RuntimeEvent>,
    /// True if the limits ended the scan early.
    pub is_partial: bool,
    /// The last event of this page, if more follow.
    pub next: Option<TraceCursor>,
}

/// Instances searched for the newest turn.
const LATEST_INSTANCES: usize = 20;

/// Finds a page of the selected trace. `latest` lists the instances, most recently changed first.
/// `None` if the trace does not exist. Safe while writer threads append.
///
/// # Errors
///
/// [`StoreError::File`].
pub fn read_trace(
    disk: &dyn Disk,
    instances: &Path,
    latest: &[InstanceKey],
    wanted: TraceQuery<'_>,
) -> Result<Option<TraceSlice>, StoreError> {
    let looked_at = latest.get(..TRACE_INSTANCES_MAX).unwrap_or(latest);
    let mut is_partial = looked_at.len() < latest.len();
    let trace_id = match wanted.of {
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
    let mut page = EarliestEvents::new(wanted);
    for key in looked_at {
        let mut at_same_time = HashMap::<Timestamp, usize>::new();
        is_partial |= look(disk, instances, key, &name, |event, bytes| {
            if event.trace_id == trace_id {
                let index = at_same_time.entry(event.timestamp).or_default();
                let place = TraceCursor {
                    timestamp: event.timestamp,
                    instance_key: key.clone(),
                    index: *index,
                };
                *index += 1;
                page.add(place, event, bytes);
            }
        })?;
    }
    let (events, next) = page.end();
    // A page after the last is empty, although the trace exists.
    let is_known = !events.is_empty() || wanted.after.is_some();
    Ok(is_known.then_some(TraceSlice {
        trace_id,
        events,
        is_partial,
        next,
    }))
}

/// The earliest events after a cursor, up to one more than a page.
struct EarliestEvents<'a> {
    after: Option<&'a TraceCursor>,
    limit: usize,
    /// Events with the size of their records in bytes.
    events: BTreeMap<TraceCursor, (RuntimeEvent, usize)>,
}

impl<'a> EarliestEvents<'a> {
    fn new(wanted: TraceQuery<'a>) -> Self {
        let limit = wanted.limit.unwrap_or(MAX_TRACE_PAGE);
        Self {
            after: wanted.after,
            limit: limit.clamp(1, MAX_TRACE_PAGE),
            events: BTreeMap::new(),
        }
    }

    fn add(&mut self, place: TraceCursor, event: RuntimeEvent, bytes: usize) {
        if self.after.is_some_and(|after| place <= *after) {
            return;
        }
        self.events.insert(place, (event, bytes));
        if self.events.len() > self.limit + 1 {
            self.events.pop_last();
        }
    }

    /// Returns the events of the page, at least one if there are any, and the cursor of the last
    /// one if more follow.
    fn end(self) -> (Vec<RuntimeEvent>, Option<TraceCursor>) {
        let (mut page, mut last, mut bytes) = (Vec::new(), None, 0);
        for (place, (event, length)) in self.events {
            bytes += length;
            let is_full = page.len() == self.limit || bytes > HISTORY_PAGE_BYTES;
            if is_full && !page.is_empty() {
                return (page, last);
            }
            page.push(event);
            last = Some(place);
        }
        (page, None)
    }
}

/// Returns the trace of the turn or event with this id.
fn trace_of(
    disk: &dyn Disk,
    instances: &Path,
    keys: &[InstanceKey],
    id: &str,
) -> Result<Option<TraceId>, StoreError> {
    let mut found = None;
    for key in keys {
        look(disk, instances, key, id, |event, _| {
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
        look(
            disk,
            instances,
            key,
            started.as_str(),
            |event: RuntimeEvent, _| {
                let is_later = latest
                    .as_ref()
                    .is_none_or(|l| l.timestamp <= event.timestamp);
                if event.kind == started && is_later {
                    latest = Some(event);
                }
            },
        )?;
    }
    Ok(latest.map(|event| event.trace_id))
}

/// Visits the events of an instance with lines that contain `text`, in order, with the lengths of
/// their lines. Returns true if the log is longer than the scanned part.
fn look(
    disk: &dyn Disk,
    instances: &Path,
    key: &InstanceKey,
    text: &str,
    mut show: impl FnMut(RuntimeEvent, usize),
) -> Result<bool, StoreError> {
    let messages = instances.join(instance_dir_name(key)).join(MESSAGES);
    // The instance may have been deleted in the meantime.
    if disk.stat(&messages).during("inspect", &messages)?.is_none() {
        return Ok(false);
    }
    let (bytes, is_partial) =
        SegmentReader::open(disk, &messages, OBSERVED)?.tail(TRACE_FILE_BYTES)?;
    // The first line of a tail may be cut, and then is not a valid event.
    for line in bytes.split(|byte| *byte == b'\n') {
        let is_named = std::str::from_utf8(line).is_ok_and(|line| line.contains(text));
        if is_named && let Ok(event) = serde_json::from_slice(line) {
            show(event, line.len());
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

    fn turns(found: Option<&TraceSlice>) -> Vec<&str> {
        let events = found.map(|found| found.events.as_slice());
        let events = events.unwrap_or_default().iter();
        events.map(|event| event.turn_id.as_str()).collect()
    }

    #[test]
    fn msg_12_trace_is_collected_from_all_instances_by_any_id() {
        let first = [line(1, "t1", 5), "damage\n".to_owned(), line(2, "t2", 9)].concat();
        let second = [line(1, "t3", 7), line(3, "t4", 8)].concat();
        let (disk, keys) = disk_with(&[("a", first), ("b", second)]);
        let find = |of| {
            let wanted = TraceQuery {
                of,
                ..TraceQuery::default()
            };
            read_trace(&disk, Path::new("/i"), &keys, wanted).unwrap()
        };
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
    fn msg_12_trace_records_too_far_back_are_reported_missing() {
        let filler = line(2, "filler", 1);
        let times = TRACE_FILE_BYTES / filler.len() + 1;
        let text = [line(1, "t1", 1), filler.repeat(times), line(1, "t2", 2)].concat();
        let (disk, keys) = disk_with(&[("a", text)]);
        let trace = format!("{:032x}", 1);
        let wanted = TraceQuery {
            of: Some(&trace),
            ..TraceQuery::default()
        };
        let found = read_trace(&disk, Path::new("/i"), &keys, wanted).unwrap();
        assert_eq!(turns(found.as_ref()), ["t2"]);
        assert!(found.unwrap().is_partial);
    }

    #[test]
    fn obs_1_pages_of_a_growing_trace_miss_and_repeat_nothing() {
        // Events with equal times: in one conversation, and in two.
        let first = [line(1, "t1", 5), line(1, "t2", 5), line(2, "x", 5)].concat();
        let second = [line(1, "t3", 5), line(1, "t4", 4), line(1, "t5", 9)].concat();
        let grown = [second.clone(), line(1, "t6", 9)].concat();
        let trace = format!("{:032x}", 1);
        for limit in [None, Some(0), Some(1), Some(2), Some(3), Some(9)] {
            let mut after = None;
            let mut seen = Vec::new();
            loop {
                let is_first = after.is_none();
                // The conversation changed last comes first, and it varies.
                let text = if is_first { &second } else { &grown };
                let (disk, mut keys) = disk_with(&[("a", first.clone()), ("b", text.clone())]);
                if is_first {
                    keys.reverse();
                }
                let wanted = TraceQuery {
                    of: Some(&trace),
                    after: after.as_ref(),
                    limit,
                };
                let found = read_trace(&disk, Path::new("/i"), &keys, wanted)
                    .unwrap()
                    .unwrap();
                assert!(found.events.len() <= limit.unwrap_or(9).max(1));
                seen.extend(turns(Some(&found)).into_iter().map(str::to_owned));
                let Some(next) = found.next else {
                    break;
                };
                after = Some(next);
            }
            let all = ["t4", "t1", "t2", "t3", "t5", "t6"];
            let is_one_page = limit.is_none_or(|limit| limit > 5);
            assert_eq!(seen, &all[..if is_one_page { 5 } else { 6 }], "{limit:?}");
        }
    }

    #[test]
    fn obs_1_a_page_of_a_trace_ends_behind_so_many_bytes() {
        let (disk, keys) = disk_with(&[("a", line(1, "t", 1).repeat(3))]);
        let trace = format!("{:032x}", 1);
        let wanted = TraceQuery {
            of: Some(&trace),
            ..TraceQuery::default()
        };
        let found = read_trace(&disk, Path::new("/i"), &keys, wanted).unwrap();
        let found = found.unwrap();
        assert_eq!((found.events.len(), found.next), (3, None));
        let mut page = EarliestEvents::new(wanted);
        for (index, event) in found.events.into_iter().enumerate() {
            let place = TraceCursor {
                timestamp: event.timestamp,
                instance_key: event.instance_key.clone(),
                index,
            };
            page.add(place, event, HISTORY_PAGE_BYTES / 2 + 1);
        }
        let (events, next) = page.end();
        assert_eq!(events.len(), 1);
        assert_eq!(next.map(|next| next.index), Some(0));
    }
}
