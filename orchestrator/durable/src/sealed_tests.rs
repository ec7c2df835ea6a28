//! Tests of reading damaged sealed files.

use serde_json::json;

use super::*;
use crate::disk::SimulatedDisk;

const FILE: &str = "/log";

/// Lines of a file with `count` records, each durable before the next.
fn file(count: u64) -> Vec<Vec<u8>> {
    let record = |n: u64| {
        let place = RecordPosition { n, durable: n - 1 };
        seal(&json!({"value": n}), place).unwrap()
    };
    (1..=count).map(record).collect()
}

/// Reads `content`: the readable values, the kinds of findings with their lines, and the remaining
/// file.
fn open(content: &[u8]) -> (Vec<u64>, Vec<(FindingKind, u64)>, Vec<u8>) {
    let disk = SimulatedDisk::new();
    disk.plant(Path::new(FILE), content).unwrap();
    let (mut log, reading) = SealedLog::open(&disk, Path::new(FILE)).unwrap();
    let mut values = Vec::new();
    for span in reading.records {
        let bytes = log.record(span).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        values.push(value["value"].as_u64().unwrap());
    }
    let findings = reading.findings.iter();
    let findings = findings
        .map(|found| (found.kind, found.line.unwrap_or(0)))
        .collect();
    let left = log.journal.read(0, usize::MAX).unwrap();
    // A new record gets an unused number, independent of the findings.
    let span = log.append(&json!({"value": 99})).unwrap();
    assert!(log.record(span).unwrap().starts_with(b"{\"value\":99"));
    let whole = log.journal.read(0, usize::MAX).unwrap();
    assert!(left.is_empty() || left.ends_with(b"\n"));
    assert_eq!(whole.len() as u64, left.len() as u64 + span.len + 1);
    (values, findings, left)
}

#[test]
fn msg_11_intact_records_are_read_and_damage_is_reported() {
    use FindingKind::{DamagedRecord, MisplacedRecord, MissingRecords, RepeatedRecord, TornTail};
    let lines = file(5);
    let join =
        |order: &[usize]| -> Vec<u8> { order.iter().flat_map(|at| lines[*at].clone()).collect() };
    let all = vec![1, 2, 3, 4, 5];
    let whole = join(&[0, 1, 2, 3, 4]);
    assert_eq!(open(&whole), (all.clone(), vec![], whole.clone()));
    let gone = open(&join(&[0, 1, 3, 4]));
    assert_eq!(
        (gone.0, gone.1),
        (vec![1, 2, 4, 5], vec![(MissingRecords, 3)])
    );
    let swapped = open(&join(&[0, 2, 1, 3, 4]));
    assert_eq!(
        (swapped.0, swapped.1),
        (all.clone(), vec![(MisplacedRecord, 3)])
    );
    let twice = open(&join(&[0, 1, 1, 2, 3, 4]));
    assert_eq!((twice.0, twice.1), (all.clone(), vec![(RepeatedRecord, 3)]));
    let mut flipped = whole.clone();
    flipped[lines[0].len() + 10] ^= 1;
    let (values, findings, left) = open(&flipped);
    assert_eq!(
        (values, findings),
        (vec![1, 3, 4, 5], vec![(DamagedRecord, 2)])
    );
    assert_eq!(left, flipped, "damage stays where it is");
    let (values, findings, left) = open(&whole[..whole.len() - 3]);
    assert_eq!((values, findings), (vec![1, 2, 3, 4], vec![(TornTail, 5)]));
    assert_eq!(left, join(&[0, 1, 2, 3]));
    let unended = open(&whole[..whole.len() - 1]);
    assert_eq!(unended, (all, vec![], whole));
}

/// Zeros are damage if a later record declares them durable. Otherwise they are remains of a crash,
/// and nothing after them was acknowledged.
#[test]
fn msg_8_a_hole_that_a_crash_left_ends_the_file() {
    let lines = file(3);
    let hole = vec![0; lines[1].len()];
    let record =
        |n: u64, durable: u64| seal(&json!({"value": n}), RecordPosition { n, durable }).unwrap();
    let crashed = [lines[0].clone(), hole.clone(), record(3, 1)].concat();
    let (values, findings, left) = open(&crashed);
    assert_eq!(values, [1]);
    assert_eq!(findings, [(FindingKind::TornTail, 2)]);
    assert_eq!(left, lines[0]);
    let damaged = [lines[0].clone(), hole, record(3, 1), record(4, 3)].concat();
    let (values, findings, left) = open(&damaged);
    assert_eq!(values, [1, 3, 4]);
    assert_eq!(findings, [(FindingKind::DamagedRecord, 2)]);
    assert_eq!(left, damaged);
}

#[test]
fn msg_11_unreadable_records_are_kept_when_a_file_is_cleared() {
    let disk = SimulatedDisk::new();
    let damaged = [b"{not json\n".to_vec(), file(2)[1].clone()].concat();
    for round in 1..3 {
        disk.plant(Path::new(FILE), &damaged[round..]).unwrap();
        let (mut log, _) = SealedLog::open(&disk, Path::new(FILE)).unwrap();
        log.clear(&disk).unwrap();
        assert_eq!(log.len(), 0);
    }
    for (name, content) in [
        ("/log.damaged", &damaged[1..]),
        ("/log.damaged-2", &damaged[2..]),
    ] {
        let mut kept = disk.open_read(Path::new(name)).unwrap();
        let kept = crate::disk::read_all(kept.as_mut(), 1000).unwrap();
        assert_eq!(kept, content, "{name}");
    }
}

#[test]
fn records_of_others_are_read_in_their_order() {
    let (values, findings, _) = open(b"{\"value\":1}\n{\"value\":2}\n");
    assert_eq!((values, findings), (vec![1, 2], vec![]));
    let mixed = [b"{\"value\":1}\n".to_vec(), file(2)[1].clone()].concat();
    let (values, findings, _) = open(&mixed);
    assert_eq!((values, findings), (vec![1, 2], vec![]));
}
