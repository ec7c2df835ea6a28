//! Crashes at every call (`MSG-5`, `MSG-8`, `MSG-9`, `MSG-13`, `EXT-2`, `INST-5`).
//!
//! `GOONDAN_STORE_SEEDS` (default 4) is the number of seeded mixes, starting at
//! `GOONDAN_STORE_SEED` (default 1). Every failure prints the command that repeats it.

use std::cell::RefCell;
use std::rc::Rc;

use goondan_durable::disk::{Crash, SimulatedDisk};
use goondan_durable::{Finding, Severity};
use goondan_protocol::ids::WorkspaceId;
use goondan_store::limits::JOURNAL_FOLDED_TURNS;

use crate::mixes::{self, knob};
use crate::model::{Batch, World, allowed_after};
use crate::world::{BatchPace, PACES, crashes, events_of, fresh, look, perform};

/// A run of batches that is stopped at each call.
struct Run<'a> {
    name: String,
    batches: &'a [Batch],
    pace: BatchPace,
    events: Vec<String>,
    /// Cache of the allowed worlds by number of acknowledged batches, because consecutive calls
    /// share it.
    last_allowed: RefCell<(usize, Rc<[World]>)>,
}

impl<'a> Run<'a> {
    fn new(name: impl Into<String>, batches: &'a [Batch], pace: BatchPace) -> Self {
        let (name, events) = (format!("{}, {pace:?}", name.into()), events_of(batches));
        Self {
            name,
            batches,
            pace,
            events,
            last_allowed: RefCell::new((0, allowed_after(batches, 0).into())),
        }
    }

    /// Stops at call `call`. Returns the number of acknowledged batches, the allowed worlds, and
    /// the stopped machine; `None` if the run ended before.
    fn stop_at(&self, call: u64) -> Option<(usize, Rc<[World]>, SimulatedDisk, WorkspaceId)> {
        let (disk, workspace_id) = fresh();
        disk.crash_at(disk.calls() + call);
        let (acknowledged, _) = perform(&disk, &workspace_id, self.batches, self.pace);
        if !disk.is_down() {
            assert_eq!(acknowledged, self.batches.len(), "{}", self.name);
            return None;
        }
        let allowed = self.allowed_after(acknowledged);
        Some((acknowledged, allowed, disk, workspace_id))
    }

    fn allowed_after(&self, acknowledged: usize) -> Rc<[World]> {
        let mut last = self.last_allowed.borrow_mut();
        if last.0 != acknowledged {
            *last = (
                acknowledged,
                allowed_after(self.batches, acknowledged).into(),
            );
        }
        last.1.clone()
    }

    /// Compares a recovered world with the model.
    fn check(&self, found: &World, allowed: &[World], case: &str) {
        assert!(
            allowed.contains(found),
            "{}, {case}\nfound: {found:#?}\nallowed: {allowed:#?}\n{}",
            self.name,
            mixes::REPEAT
        );
    }

    /// A crash alone loses no durable data, so no loss may be reported.
    fn check_no_alarm(&self, findings: &[Finding], case: &str) {
        let worst = findings.iter().map(|finding| finding.severity).max();
        assert!(
            worst < Some(Severity::Error),
            "{}, {case}\n{findings:#?}\n{}",
            self.name,
            mixes::REPEAT
        );
    }

    /// Crashes at every call with each of `kinds`, and again at every call of the recovery.
    fn exhaust(&self, kinds: &[Crash], is_doubled: bool) -> u64 {
        for call in 1.. {
            let Some((acknowledged, allowed, disk, workspace_id)) = self.stop_at(call) else {
                return call - 1;
            };
            for kind in kinds {
                let case = format!("call {call}, {kind:?}, {acknowledged} batches acknowledged");
                let after = disk.after_crash(*kind);
                let (found, findings) = look(&after, &workspace_id, &self.events)
                    .unwrap_or_else(|error| panic!("{}, {case}: {error}", self.name));
                self.check(&found, &allowed, &case);
                self.check_no_alarm(&findings, &case);
                if *kind == Crash::ProcessOnly {
                    // Data shown by a successor must survive a machine crash too.
                    let after = after.after_crash(Crash::LoseUnsynced);
                    let (again, _) = look(&after, &workspace_id, &self.events).unwrap();
                    assert_eq!(again, found, "{}, {case}: seen, and then lost", self.name);
                }
                if is_doubled && *kind == Crash::Subset(call % 4) {
                    self.stop_recovery(&disk, *kind, &workspace_id, &allowed, &case);
                }
            }
        }
        0
    }

    fn stop_recovery(
        &self,
        disk: &SimulatedDisk,
        kind: Crash,
        workspace_id: &WorkspaceId,
        allowed: &[World],
        case: &str,
    ) {
        for again in 1.. {
            let disk = disk.after_crash(kind);
            disk.crash_at(again);
            if look(&disk, workspace_id, &self.events).is_ok() {
                return;
            }
            let second = Crash::Subset(again * 31 + 7);
            let after = disk.after_crash(second);
            let case = format!("{case}, then call {again}, {second:?}");
            let (found, findings) = look(&after, workspace_id, &self.events)
                .unwrap_or_else(|error| panic!("{}, {case}: {error}", self.name));
            self.check(&found, allowed, &case);
            self.check_no_alarm(&findings, &case);
        }
    }
}

/// Crashes at every call of one small mix, and at every call of each recovery.
fn exhaust_small(name: &str) {
    let small = mixes::small();
    let (_, batches) = small.iter().find(|mix| mix.0 == name).unwrap();
    for pace in PACES {
        let calls = Run::new(name, batches, pace).exhaust(&crashes(0..4), true);
        assert!(calls > 20, "{name}: only {calls} calls were tried");
    }
}

#[test]
fn msg_8_a_crash_at_every_call_of_a_fold_by_delta() {
    exhaust_small("fold by delta");
}

#[test]
fn msg_8_a_crash_at_every_call_of_a_fold_by_rewrite() {
    exhaust_small("fold by rewrite");
}

#[test]
fn msg_13_a_crash_at_every_call_of_parking() {
    exhaust_small("park, retry and drop");
}

#[test]
fn ipc_2_a_crash_at_every_call_of_questions_and_answers() {
    exhaust_small("questions and answers");
}

#[test]
fn ext_2_a_crash_at_every_call_of_states_and_logs() {
    exhaust_small("extensions, metadata, logs, audit");
}

#[test]
fn inst_5_a_crash_at_every_call_of_deleting() {
    exhaust_small("delete and make again");
}

#[test]
fn msg_8_a_crash_at_every_call_of_a_group_commit() {
    let batches = mixes::grouped();
    for pace in PACES {
        let calls = Run::new("grouped", &batches, pace).exhaust(&crashes(0..24), false);
        assert!(calls > 40, "only {calls} calls were tried");
    }
}

/// More turns than a journal holds, so that the base is synced between two turns.
#[test]
fn msg_6_a_crash_at_every_call_of_a_long_journal() {
    let batches = mixes::many_turns(JOURNAL_FOLDED_TURNS + 3);
    let run = Run::new("many turns", &batches, BatchPace::Busy);
    let calls = run.exhaust(&[Crash::LoseUnsynced, Crash::Subset(5)], false);
    assert!(calls > 100, "only {calls} calls were tried");
}

#[test]
fn msg_8_seeded_long_mixes_of_two_instances() {
    let first = knob("GOONDAN_STORE_SEED", 1);
    for seed in first..first + knob("GOONDAN_STORE_SEEDS", 4) {
        let batches = mixes::seeded(seed, 40);
        for pace in PACES {
            let run = Run::new(format!("GOONDAN_STORE_SEED={seed}"), &batches, pace);
            run.exhaust(&[Crash::LoseUnsynced, Crash::Subset(seed)], false);
        }
    }
}

/// An append reaches the disk up to an arbitrary byte.
#[test]
fn msg_11_an_append_torn_at_every_byte() {
    let batches = mixes::grouped();
    let run = Run::new("torn", &batches, BatchPace::Busy);
    let mut lengths = std::collections::BTreeSet::new();
    let mut last: Option<(Rc<[World]>, SimulatedDisk, WorkspaceId)> = None;
    for call in 1.. {
        let stopped = run.stop_at(call);
        let unsynced = stopped.as_ref().map_or(0, |stop| stop.2.unsynced_bytes());
        // Data that was unsynced earlier is also unsynced just before a sync.
        if let Some((allowed, disk, workspace_id)) = last
            && unsynced < disk.unsynced_bytes()
        {
            for kept in 0..disk.unsynced_bytes() {
                let after = disk.after_crash(Crash::KeepBytes(kept));
                let (found, _) = look(&after, &workspace_id, &run.events).unwrap();
                run.check(
                    &found,
                    &allowed,
                    &format!("call {}, {kept} bytes kept", call - 1),
                );
                lengths.insert(kept);
            }
        }
        let Some((_, allowed, disk, workspace_id)) = stopped else {
            break;
        };
        last = Some((allowed, disk, workspace_id));
    }
    assert!(lengths.len() > 200, "only {} lengths", lengths.len());
}
