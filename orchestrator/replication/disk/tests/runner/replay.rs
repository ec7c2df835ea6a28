//! A standby that stops at any moment resumes at its last note.

use std::io;
use std::sync::Arc;

use goondan_durable::disk::{Crash, RealDisk, SimulatedDisk};
use goondan_replicated_disk::{ConfirmPoint, Replica};
use goondan_replication::operation::FileOperation;

use crate::workload::{Faults, run, seeds};
use crate::world::{Owner, bare, memory, replica};

/// True if a standby follows the replica's rules for notes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Notes {
    AsAsked,
    AtAnyTime,
}

/// A standby that replays operations on a disk that stops from time to time.
struct Standby<'a> {
    operations: &'a [FileOperation],
    disk: SimulatedDisk,
    replica: Replica,
    /// Number of operations in the last note.
    noted: usize,
    made: usize,
    /// Number of operations that were made or started.
    started: usize,
    /// Largest number of operations made before any crash.
    furthest: usize,
    crash: Option<Crash>,
}

impl<'a> Standby<'a> {
    fn new(operations: &'a [FileOperation]) -> Self {
        let disk = bare();
        Self {
            operations,
            replica: replica(&disk),
            disk,
            noted: 0,
            made: 0,
            started: 0,
            furthest: 0,
            crash: None,
        }
    }

    fn go_on(
        &mut self,
        chance: &mut fastrand::Rng,
        notes: Notes,
    ) -> io::Result<Result<(), String>> {
        let rest = &self.operations[self.made..];
        let record = &rest[..chance.usize(1..9).min(rest.len())];
        self.started = self.made + record.len();
        let made = match notes {
            Notes::AsAsked => self.replica.follow(record)?,
            Notes::AtAnyTime => self.replica.apply(record)?.map(|()| record.len()),
        };
        let made = match made {
            Ok(made) => made,
            Err(misfit) => {
                let window = &self.operations[self.noted..self.started];
                return Ok(Err(format!("{misfit} over {:?}: {window:#?}", self.crash)));
            }
        };
        self.made += made;
        let is_due = made < record.len() || chance.u8(..8) == 0;
        if is_due && self.replica.owes().is_ok() {
            self.replica.sync()?;
            let window = self.noted..self.made;
            self.noted = self.made;
            // Before that the files may be ahead.
            if self.made >= self.furthest && !self.has_what_is_noted() {
                let window = &self.operations[window];
                return Ok(Err(format!("differs behind {:?}: {window:#?}", self.crash)));
            }
        }
        Ok(Ok(()))
    }

    /// True if the durable files match the noted operations.
    fn has_what_is_noted(&self) -> bool {
        let durable = self.disk.after_crash(Crash::LoseUnsynced);
        let expected = memory(&self.operations[..self.noted]).digest();
        replica(&durable).digest().unwrap() == expected
    }

    fn start_again(&mut self, crash: Crash) {
        self.disk = self.disk.after_crash(crash);
        self.crash = Some(crash);
        self.furthest = self.furthest.max(self.started);
        self.replica = replica(&self.disk);
        self.made = self.noted;
    }
}

/// Replays with crashes; returns an error message on failure.
fn replay(operations: &[FileOperation], seed: u64, notes: Notes) -> Result<(), String> {
    let mut chance = fastrand::Rng::with_seed(seed);
    let mut standby = Standby::new(operations);
    let mut crashes = 12;
    while standby.made < operations.len() {
        if crashes > 0 && chance.u8(..4) == 0 {
            let at = standby.disk.calls() + chance.u64(1..30);
            standby.disk.crash_at(at);
        }
        match standby.go_on(&mut chance, notes) {
            Ok(made) => made?,
            Err(_) => {
                assert!(standby.disk.is_down());
                crashes -= 1;
                standby.start_again(match chance.u8(..3) {
                    0 => Crash::ProcessOnly,
                    1 => Crash::LoseUnsynced,
                    _ => Crash::Subset(chance.u64(..)),
                });
            }
        }
        if crashes == 0 {
            standby.disk.crash_at(u64::MAX);
        }
    }
    standby.disk.crash_at(u64::MAX);
    if let Err(misfit) = standby.replica.owes() {
        return Err(misfit.to_string());
    }
    standby.replica.sync().unwrap();
    standby.noted = standby.made;
    if standby.has_what_is_noted() {
        Ok(())
    } else {
        Err("the files differ".to_owned())
    }
}

fn workload(seed: u64) -> Vec<FileOperation> {
    let owner = Owner::new(ConfirmPoint::AtEachSync);
    run(&owner, seed, 150, Faults::None);
    owner.operations()
}

#[test]
fn rep_1_a_standby_that_stops_anywhere_gets_the_same_files() {
    for seed in seeds(400) {
        let operations = workload(seed);
        let replayed = replay(&operations, seed, Notes::AsAsked);
        assert_eq!(replayed, Ok(()), "seed {seed}");
    }
}

#[test]
fn replay_test_detects_notes_at_wrong_times() {
    let is_found = |seed| replay(&workload(seed), seed, Notes::AtAnyTime).is_err();
    assert!((0..100).any(is_found));
}

/// Repeats from any operation since the last note, on files that contain all of them.
#[test]
fn replaying_operations_again_changes_nothing() {
    for seed in seeds(40) {
        let operations = workload(seed);
        let disk = bare();
        let mut first = replica(&disk);
        let (mut noted, mut made) = (0, 0);
        while made < operations.len() {
            if first.follow(&operations[made..=made]).unwrap() == Ok(0) {
                first.sync().unwrap();
                noted = made;
                assert_eq!(first.follow(&operations[made..=made]).unwrap(), Ok(1));
            }
            made += 1;
            let found = first.digest().unwrap();
            let again = disk.after_crash(Crash::ProcessOnly);
            let mut second = replica(&again);
            let fits = second.apply(&operations[noted..made]).unwrap();
            let context = format!("seed {seed}: {:#?}", &operations[noted..made]);
            assert_eq!(fits, Ok(()), "{context}");
            assert_eq!(second.digest().unwrap(), found, "{context}");
        }
    }
}

#[test]
fn the_operating_systems_disk_gets_the_same_files() {
    for seed in seeds(20) {
        let operations = workload(seed);
        let temp = tempfile::tempdir().unwrap();
        let mut replica = Replica::new(Arc::new(RealDisk), temp.path().join("w"));
        for piece in operations.chunks(7) {
            replica.apply(piece).unwrap().unwrap();
            replica.sync().unwrap();
        }
        let expected = memory(&operations).digest();
        assert_eq!(replica.digest().unwrap(), expected, "seed {seed}");
        let aside = temp.path().join("aside");
        replica.clear(&aside).unwrap();
        replica.put_back(&aside).unwrap();
        assert_eq!(replica.digest().unwrap(), memory(&[]).digest());
    }
}
