//! An event with an answer in the conversation never runs again, for any state of inbox and journal
//! (`MSG-8`, `MSG-13`).

use std::collections::BTreeSet;
use std::sync::Arc;

use goondan_durable::Severity;
use goondan_durable::disk::{Crash, Disk, SimulatedDisk};
use goondan_store::instance::{self, EventState, InstanceStore};
use goondan_store::verify;

use crate::damage::{BASE, DamageHarness, EVENTS, INBOX, SUMS, batches, busy_rig, rig};
use crate::mixes;
use crate::model::{Batch, ModelView};
use crate::world::{BatchPace, at, fresh, perform};

/// Returns every distinct content of a file during a conversation.
pub(crate) fn copies_of(batches: &[Batch], pace: BatchPace, file: &str) -> BTreeSet<Vec<u8>> {
    let mut copies = BTreeSet::new();
    for until in 1..=batches.len() {
        let (disk, workspace_id) = fresh();
        perform(&disk, &workspace_id, &batches[..until], pace);
        let rig = DamageHarness {
            disk: disk.after_crash(Crash::KeepUnsynced),
            messages: crate::world::layout()
                .instances(&workspace_id)
                .join("a/messages"),
            events: Vec::new(),
            whole: ModelView::default(),
        };
        copies.insert(rig.read(&rig.disk, file));
    }
    copies
}

/// Opens the conversation and repeats every event, like a sender without an answer. No answered
/// event may wait.
fn assert_answered_stay_answered(
    rig: &DamageHarness,
    disk: &SimulatedDisk,
    case: &str,
) -> ModelView {
    let verified = verify::instance(disk, rig.dir()).unwrap();
    let (found, findings) = rig.open(disk);
    // An open turn with a lost event is folded with its current records.
    assert!(
        found.messages.starts_with(&rig.whole.messages),
        "{case}: {:?} {findings:#?}",
        found.messages
    );
    for event in rig.whole.ended.keys() {
        let how = found.ended.get(event).map(String::as_str);
        let was = rig.whole.ended.get(event).map(String::as_str);
        assert!(
            how == was || how == Some("E_OUTCOME_LOST"),
            "{case}: {event} ended with {how:?}"
        );
    }
    let is_kept = |(event, how): (&String, &String)| found.ended.get(event) == Some(how);
    if !rig.whole.ended.iter().all(is_kept) {
        assert_eq!(
            verified.worst(),
            Some(Severity::Error),
            "{case}: verify does not report the lost ends: {verified:#?}"
        );
        assert!(
            findings.iter().any(|f| f.severity == Severity::Error),
            "{case}: opening says nothing: {findings:#?}"
        );
    }
    let mut store = InstanceStore::open(Arc::new(disk.clone()), rig.dir()).unwrap();
    for event in rig.whole.ended.keys() {
        let state = store.event_state(&event.parse().unwrap()).unwrap();
        assert!(matches!(state, EventState::Done(_)), "{case}: {state:?}");
    }
    found
}

#[test]
fn msg_13_inbox_cut_at_any_byte_reruns_no_answered_event() {
    for rig in [rig(), busy_rig()] {
        let content = rig.read(&rig.disk, INBOX);
        for len in 0..content.len() {
            let case = format!("cut to {len} of {}", content.len());
            let disk = rig.with(INBOX, &content[..len]);
            assert_answered_stay_answered(&rig, &disk, &case);
        }
    }
}

#[test]
fn msg_13_missing_halved_or_cut_inbox_reruns_no_answered_event() {
    let rig = rig();
    let content = rig.read(&rig.disk, INBOX);
    let lines: Vec<&[u8]> = content.split_inclusive(|byte| *byte == b'\n').collect();
    let removed = rig.disk.after_crash(Crash::KeepUnsynced);
    removed.remove_file(&rig.messages.join(INBOX)).unwrap();
    assert_answered_stay_answered(&rig, &removed, "removed");
    let half = rig.with(INBOX, &lines[lines.len() / 2..].concat());
    assert_answered_stay_answered(&rig, &half, "second half");
    for at in 0..lines.len() {
        let mut gone = lines.clone();
        gone.remove(at);
        let disk = rig.with(INBOX, &gone.concat());
        assert_answered_stay_answered(&rig, &disk, &format!("line {at} gone"));
    }
}

#[test]
fn msg_13_older_inbox_copy_reruns_no_answered_event() {
    let rig = rig();
    for copy in copies_of(&batches(), BatchPace::Quiet, INBOX) {
        let case = format!("a copy of {} bytes", copy.len());
        assert_answered_stay_answered(&rig, &rig.with(INBOX, &copy), &case);
    }
}

#[test]
fn msg_13_an_older_copy_of_the_journal_runs_no_turn_again() {
    for pace in [BatchPace::Quiet, BatchPace::Busy] {
        let rig = rig();
        for copy in copies_of(&batches(), pace, EVENTS) {
            for inbox in copies_of(&batches(), pace, INBOX) {
                let case = format!("copies of {} and {} bytes", copy.len(), inbox.len());
                let disk = rig.with(EVENTS, &copy);
                disk.plant(&rig.messages.join(INBOX), &inbox).unwrap();
                assert_answered_stay_answered(&rig, &disk, &case);
            }
        }
    }
}

/// A rewrite keeps the list of answers: compaction must not lose answered events.
#[test]
fn msg_13_answered_events_survive_a_rewrite_of_the_conversation() {
    let (disk, workspace_id) = fresh();
    let batches = mixes::rewritten();
    perform(&disk, &workspace_id, &batches, BatchPace::Quiet);
    let disk = disk.after_crash(Crash::KeepUnsynced);
    let dir = crate::world::layout().instances(&workspace_id).join("a");
    let inbox = dir.join("messages").join(INBOX);
    let mut store = InstanceStore::open(Arc::new(disk.clone()), &dir).unwrap();
    let events = ["e1", "e2", "e3"].map(|id| id.parse().unwrap());
    let is_done = |store: &mut InstanceStore, event| {
        matches!(store.event_state(event).unwrap(), EventState::Done(_))
    };
    assert!(events.iter().all(|event| is_done(&mut store, event)));
    drop(store);
    for _ in 0..2 {
        disk.plant(&inbox, b"").unwrap();
        let mut store = InstanceStore::open(Arc::new(disk.clone()), &dir).unwrap();
        for event in &events {
            assert!(is_done(&mut store, event), "{event} would run again");
        }
    }
}

/// Conversations of earlier versions list no answers; the first opening adds them from the inbox.
/// If checksums and inbox are both lost, the messages themselves name their events.
#[test]
fn msg_13_a_conversation_without_names_gets_them() {
    let rig = rig();
    let disk = rig.disk.after_crash(Crash::KeepUnsynced);
    disk.remove_file(&rig.messages.join(SUMS)).unwrap();
    rig.open(&disk);
    disk.plant(&rig.messages.join(INBOX), b"").unwrap();
    assert_answered_stay_answered(&rig, &disk, "checksums recreated");

    let disk = rig.disk.after_crash(Crash::KeepUnsynced);
    disk.remove_file(&rig.messages.join(SUMS)).unwrap();
    disk.remove_file(&rig.messages.join(INBOX)).unwrap();
    disk.remove_file(&rig.messages.join(EVENTS)).unwrap();
    let content = String::from_utf8(rig.read(&disk, BASE)).unwrap();
    let named = content.replacen("\"metadata\":{}", "\"metadata\":{\"eventId\":\"e1\"}", 1);
    disk.plant(&rig.messages.join(BASE), named.as_bytes())
        .unwrap();
    let mut store = InstanceStore::open(Arc::new(disk.clone()), rig.dir()).unwrap();
    let state = store.event_state(&"e1".parse().unwrap()).unwrap();
    assert!(matches!(state, EventState::Done(_)), "{state:?}");
}

/// After a repair of the inbox no findings remain, and no answered event runs.
#[test]
fn msg_13_a_repaired_inbox_runs_no_answered_event_again() {
    let rig = rig();
    let content = rig.read(&rig.disk, INBOX);
    let lines: Vec<&[u8]> = content.split_inclusive(|byte| *byte == b'\n').collect();
    for at_line in 0..lines.len() {
        let case = format!("line {at_line}");
        let mut flipped: Vec<Vec<u8>> = lines.iter().map(|line| line.to_vec()).collect();
        let middle = flipped[at_line].len() / 2;
        flipped[at_line][middle] ^= 4;
        let disk = rig.with(INBOX, &flipped.concat());
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        instance::repair(&shared, rig.dir(), at()).unwrap();
        let verified = verify::instance(&disk, rig.dir()).unwrap();
        assert!(
            verified.worst() <= Some(Severity::Info),
            "{case}: {verified:#?}"
        );
        let (found, findings) = rig.open(&disk);
        assert!(findings.is_empty(), "{case}: {findings:#?}");
        let mut whole = rig.whole.ended.keys();
        assert!(whole.all(|e| found.ended.contains_key(e)), "{case}");
    }
}
