//! Tests of the segmented log: segments, bounds, and crashes at every call.

use goondan_durable::disk::{Crash, SimulatedDisk};

use super::*;

const LOG: &str = "runtime-events.jsonl";
/// Bytes of a line. Five lines fill a segment.
const LINE_BYTES: u64 = 20;
const SEGMENT_BYTES: u64 = 5 * LINE_BYTES;
const UNBOUNDED: ObservationBounds = ObservationBounds {
    bytes: u64::MAX,
    days: 36_500,
};

fn dir() -> &'static Path {
    Path::new("/m")
}

fn fresh() -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    disk.create_dir(dir()).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    disk
}

fn on_day(day: i64) -> Timestamp {
    Timestamp::from_unix_millis(1_800_000_000_000 + day * DAY_MS)
}

fn open(disk: &SimulatedDisk) -> Result<SegmentedLog, StoreError> {
    let log = SegmentedLog::open_with(Arc::new(disk.clone()), dir(), LOG, SEGMENT_BYTES)?;
    disk.sync_dir(dir()).during("sync", dir())?;
    Ok(log)
}

fn line(number: u64) -> String {
    format!("{{\"n\":\"{number:011}\"}}\n")
}

/// Appends the lines with these numbers, one at a time.
fn append(
    log: &mut SegmentedLog,
    numbers: std::ops::Range<u64>,
    bounds: ObservationBounds,
    at: Timestamp,
) -> Result<(), StoreError> {
    for number in numbers {
        log.append(line(number).as_bytes())?;
        log.write_out(bounds, at)?;
    }
    Ok(())
}

/// Reads the whole log by parts, and returns its start and its text.
fn read(disk: &SimulatedDisk) -> (u64, String) {
    let first = SegmentReader::open(disk, dir(), LOG).unwrap().first();
    let (mut at, mut text) = (first, String::new());
    loop {
        let reading = SegmentReader::open(disk, dir(), LOG).unwrap();
        let Some(mut placed) = reading.part_at(at).unwrap() else {
            break;
        };
        assert_eq!(placed.start, at);
        let len = placed.part.len();
        let bytes = placed.part.read(0, usize::MAX).unwrap();
        assert_eq!(bytes.len() as u64, len);
        text.push_str(&String::from_utf8(bytes).unwrap());
        match placed.next {
            Some(next) => at = next,
            None => break,
        }
    }
    (first, text)
}

fn text_of(numbers: std::ops::Range<u64>) -> String {
    numbers.map(line).collect()
}

fn names(disk: &SimulatedDisk) -> Vec<String> {
    let entries = disk.list(dir()).unwrap().into_iter();
    let mut names: Vec<String> = entries
        .map(|entry| entry.name.into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn msg_12_full_files_become_compressed_segments_of_one_log() {
    let disk = fresh();
    let mut log = open(&disk).unwrap();
    append(&mut log, 0..17, UNBOUNDED, on_day(0)).unwrap();
    assert_eq!(
        names(&disk),
        [
            "runtime-events.000000000000000.2027-01-15.jsonl.gz",
            "runtime-events.000000000000100.2027-01-15.jsonl.gz",
            "runtime-events.000000000000200.2027-01-15.jsonl.gz",
            "runtime-events.jsonl",
        ]
    );
    assert_eq!(read(&disk), (0, text_of(0..17)));
    drop(log);
    let mut log = open(&disk).unwrap();
    append(&mut log, 17..40, UNBOUNDED, on_day(0)).unwrap();
    assert_eq!(read(&disk), (0, text_of(0..40)));
    let (tail, is_partial) = SegmentReader::open(&disk, dir(), LOG)
        .unwrap()
        .tail(20 * 9)
        .unwrap();
    assert_eq!(String::from_utf8(tail).unwrap(), text_of(31..40));
    assert!(is_partial);
    let (tail, is_partial) = SegmentReader::open(&disk, dir(), LOG)
        .unwrap()
        .tail(9_999)
        .unwrap();
    assert_eq!((tail.len(), is_partial), (40 * 20, false));
    for name in names(&disk) {
        assert_eq!(is_segment(LOG, &name), name != LOG, "{name}");
    }
}

#[test]
fn msg_12_a_log_of_the_format_before_is_the_current_file() {
    let disk = fresh();
    disk.plant(&dir().join(LOG), text_of(0..30).as_bytes())
        .unwrap();
    assert_eq!(read(&disk), (0, text_of(0..30)));
    let mut log = open(&disk).unwrap();
    append(&mut log, 30..31, UNBOUNDED, on_day(0)).unwrap();
    assert_eq!(read(&disk), (0, text_of(0..31)));
    assert_eq!(names(&disk).len(), 2);
}

#[test]
fn msg_12_segments_over_the_bounds_drop_oldest_first_and_count() {
    let disk = fresh();
    let mut log = open(&disk).unwrap();
    append(&mut log, 0..20, UNBOUNDED, on_day(0)).unwrap();
    let few_days = ObservationBounds {
        days: 3,
        ..UNBOUNDED
    };
    append(&mut log, 20..25, few_days, on_day(3)).unwrap();
    assert_eq!(
        read(&disk).0,
        0,
        "three days old is not older than three days"
    );
    append(&mut log, 25..30, few_days, on_day(4)).unwrap();
    assert_eq!(read(&disk), (20 * LINE_BYTES, text_of(20..30)));
    let few_bytes = ObservationBounds {
        bytes: 1,
        ..UNBOUNDED
    };
    append(&mut log, 30..35, few_bytes, on_day(4)).unwrap();
    assert_eq!(
        read(&disk),
        (30 * LINE_BYTES, text_of(30..35)),
        "the newest stays"
    );
    drop(log);
    let mut log = open(&disk).unwrap();
    append(&mut log, 35..36, few_bytes, on_day(4)).unwrap();
    assert_eq!(read(&disk), (30 * LINE_BYTES, text_of(30..36)));
    let gone = SegmentReader::open(&disk, dir(), LOG).unwrap().part_at(0);
    assert!(matches!(gone, Err(StoreError::HistoryChanged)), "{gone:?}");
    let (_, is_partial) = SegmentReader::open(&disk, dir(), LOG)
        .unwrap()
        .tail(9_999)
        .unwrap();
    assert!(is_partial);
}

#[test]
fn msg_12_a_damaged_segment_is_found_and_passed_over() {
    let disk = fresh();
    let mut log = open(&disk).unwrap();
    append(&mut log, 0..12, UNBOUNDED, on_day(0)).unwrap();
    let path = dir().join(&names(&disk)[0]);
    let mut bytes = read_all(disk.open_read(&path).unwrap().as_mut(), 9_999).unwrap();
    bytes[15] ^= 0xff;
    disk.plant(&path, &bytes).unwrap();
    let mut findings = Vec::new();
    check(&disk, dir(), LOG, &mut findings).unwrap();
    let damaged: Vec<_> = findings
        .iter()
        .map(|found| (&found.path, found.kind))
        .collect();
    assert_eq!(damaged, [(&path, FindingKind::UnreadableFile)]);
    let reading = SegmentReader::open(&disk, dir(), LOG).unwrap();
    let placed = reading.part_at(0).unwrap().unwrap();
    assert!(matches!(placed.part, SegmentPart::Whole(None)));
    assert_eq!(placed.next, Some(100));
    let (tail, is_partial) = SegmentReader::open(&disk, dir(), LOG)
        .unwrap()
        .tail(9_999)
        .unwrap();
    assert_eq!(String::from_utf8(tail).unwrap(), text_of(5..12));
    assert!(is_partial);
}

#[test]
fn msg_12_a_segment_that_is_missing_between_two_others_is_found() {
    let disk = fresh();
    let mut log = open(&disk).unwrap();
    append(&mut log, 0..20, UNBOUNDED, on_day(0)).unwrap();
    let found = || {
        let mut findings = Vec::new();
        check(&disk, dir(), LOG, &mut findings).unwrap();
        findings
    };
    assert_eq!(found(), []);
    let segments = names(&disk);
    disk.remove_file(&dir().join(&segments[1])).unwrap();
    let findings = found();
    let [missing] = &findings[..] else {
        panic!("{findings:#?}");
    };
    assert_eq!(missing.path, dir().join(&segments[2]));
    assert_eq!(missing.kind, FindingKind::MissingRecords);
    assert!(missing.problem.starts_with("100 bytes"), "{missing:?}");
    // The oldest segments may be dropped by policy.
    disk.remove_file(&dir().join(&segments[0])).unwrap();
    assert_eq!(found(), []);
}

/// A segment with a valid checksum may hold lines that were damaged before compression.
#[test]
fn msg_12_each_line_of_a_segment_is_checked() {
    let disk = fresh();
    let mut log = open(&disk).unwrap();
    append(&mut log, 0..2, UNBOUNDED, on_day(0)).unwrap();
    log.append(b"{\"number\":torn\nno json, either\n").unwrap();
    append(&mut log, 4..12, UNBOUNDED, on_day(0)).unwrap();
    let mut findings = Vec::new();
    check(&disk, dir(), LOG, &mut findings).unwrap();
    let [found] = &findings[..] else {
        panic!("{findings:#?}");
    };
    assert_eq!(found.path, dir().join(&names(&disk)[0]));
    let kind = (found.kind, found.severity, found.line);
    let expected = (FindingKind::DamagedRecord, Severity::Warning, Some(3));
    assert_eq!(kind, expected, "{found:#?}");
    assert!(found.problem.contains("and 1 more"), "{found:#?}");
}

#[test]
fn log_search_covers_current_file_and_segments_despite_damage() {
    let disk = fresh();
    let mut log = open(&disk).unwrap();
    append(&mut log, 0..17, UNBOUNDED, on_day(0)).unwrap();
    let newest = dir().join(&names(&disk)[2]);
    disk.plant(&newest, b"no archive").unwrap();
    let look = |numbers: &[u64]| {
        let wanted: Vec<String> = numbers.iter().map(|number| line(*number)).collect();
        find_in_lines(&disk, dir(), LOG, |found| {
            let found = String::from_utf8_lossy(found);
            let mut wanted = wanted.iter().map(|line| line.trim_end());
            wanted.any(|line| line == found).then(|| found.into_owned())
        })
        .unwrap()
    };
    assert_eq!(look(&[0]), Some(line(0).trim_end().to_owned()));
    assert_eq!(look(&[0, 7, 16]), Some(line(16).trim_end().to_owned()));
    assert_eq!(look(&[0, 7]), Some(line(7).trim_end().to_owned()));
    assert_eq!(look(&[12]), None, "its segment is damaged");
}

/// Crashes at every call with every surviving state: sealed lines exist once, in order. Only the
/// end of the current file, which is never synced, may be missing.
#[test]
fn msg_12_a_crash_at_every_call_loses_only_the_unsynced_end() {
    let crashes = [Crash::LoseUnsynced, Crash::KeepUnsynced, Crash::ProcessOnly];
    let crashes = crashes.into_iter().chain((0..8).map(Crash::Subset));
    let bounds = ObservationBounds {
        bytes: 120,
        ..UNBOUNDED
    };
    for crash in crashes {
        for call in 1.. {
            let disk = fresh();
            disk.crash_at(call);
            let mut done = 0;
            let run = open(&disk).and_then(|mut log| {
                (0..32).try_for_each(|number| {
                    append(&mut log, number..number + 1, bounds, on_day(0))?;
                    done = number + 1;
                    Ok(())
                })
            });
            let survivor = disk.after_crash(crash);
            // Lines that were acknowledged and filled a segment.
            let sealed = done / 5 * 5;
            let mut log = open(&survivor).unwrap();
            let (first, text) = read(&survivor);
            let number = first / LINE_BYTES;
            let expected = text_of(number..32);
            let sealed_lines = sealed.saturating_sub(number);
            let sealed_bytes = usize::try_from(sealed_lines * LINE_BYTES).unwrap();
            let kept = text.get(..sealed_bytes);
            assert_eq!(kept, expected.get(..sealed_bytes), "{crash:?} {call}");
            // The rest was not synced: parts may be missing, but no line is duplicated.
            assert!(text.len() <= expected.len(), "{crash:?} {call}: {text}");
            assert!(
                names(&survivor)
                    .iter()
                    .all(|name| name == LOG || name.ends_with(".gz") || name.ends_with(".tmp"))
            );
            append(&mut log, 0..9, bounds, on_day(0)).unwrap();
            if run.is_ok() && !disk.is_down() {
                break;
            }
        }
    }
}
