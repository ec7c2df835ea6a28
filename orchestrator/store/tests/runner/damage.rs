//! Damaged files (`MSG-11`): every intact record stays readable, losses are reported, nothing is
//! dropped silently, and the next append begins a new line.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use goondan_durable::disk::{Crash, Disk, SimulatedDisk, read_all};
use goondan_durable::{Finding, FindingKind, Severity};
use goondan_protocol::ids::WorkspaceId;
use goondan_store::instance::{self, InstanceStore};
use goondan_store::verify;

use crate::mixes;
use crate::model::{Batch, Change, ModelStep, ModelView};
use crate::world::{BatchPace, at, events_of, fresh, layout, look_at, perform};

pub(crate) const INBOX: &str = "inbox.jsonl";
pub(crate) const EVENTS: &str = "events.jsonl";
pub(crate) const BASE: &str = "base.jsonl";
pub(crate) const MANIFEST: &str = "manifest.jsonl";
pub(crate) const SUMS: &str = "base.sums.jsonl";

/// An instance with a history, waiting events, and an open turn.
pub(crate) struct DamageHarness {
    pub disk: SimulatedDisk,
    pub messages: PathBuf,
    pub events: Vec<String>,
    pub whole: ModelView,
}

pub(crate) fn batches() -> Vec<Batch> {
    mixes::with_open_turn()
}

pub(crate) fn rig() -> DamageHarness {
    rig_of(&batches(), BatchPace::Quiet)
}

/// The same instance after a crash: the journal still holds all turns, committed except for the
/// open one.
pub(crate) fn busy_rig() -> DamageHarness {
    let mut batches = batches();
    assert!(matches!(
        batches.pop().as_deref(),
        Some([ModelStep::Close(_)])
    ));
    rig_of(&batches, BatchPace::Busy)
}

pub(crate) fn rig_of(batches: &[Batch], pace: BatchPace) -> DamageHarness {
    let (disk, workspace_id) = fresh();
    let (_, error) = perform(&disk, &workspace_id, batches, pace);
    assert!(error.is_none(), "{error:?}");
    let disk = disk.after_crash(Crash::KeepUnsynced);
    let dir = dir(&workspace_id);
    let events = events_of(batches);
    let mut rig = DamageHarness {
        disk,
        messages: dir.join("messages"),
        events,
        whole: ModelView::default(),
    };
    // Opening may change the files.
    let (whole, findings) = rig.open(&rig.disk.after_crash(Crash::KeepUnsynced));
    assert!(findings.is_empty(), "{findings:?}");
    assert!(whole.messages.len() > 3 && whole.pending.len() > 1 && whole.waiting.len() > 1);
    rig.whole = whole;
    rig
}

fn dir(workspace_id: &WorkspaceId) -> PathBuf {
    layout().instances(workspace_id).join("a")
}

impl DamageHarness {
    pub(crate) fn dir(&self) -> &Path {
        self.messages.parent().unwrap()
    }

    pub(crate) fn read(&self, disk: &SimulatedDisk, name: &str) -> Vec<u8> {
        let mut file = disk.open_read(&self.path(name)).unwrap();
        read_all(file.as_mut(), 1 << 20).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        let dir = if name == MANIFEST {
            self.dir()
        } else {
            &self.messages
        };
        dir.join(name)
    }

    /// Returns a copy of the disk with another content of one file.
    pub(crate) fn with(&self, name: &str, content: &[u8]) -> SimulatedDisk {
        let disk = self.disk.after_crash(Crash::KeepUnsynced);
        disk.plant(&self.path(name), content).unwrap();
        disk
    }

    pub(crate) fn open(&self, disk: &SimulatedDisk) -> (ModelView, Vec<Finding>) {
        let mut store = InstanceStore::open(Arc::new(disk.clone()), self.dir()).unwrap();
        let mut findings = Vec::new();
        let mut readable = self.events.clone();
        // Reading an untrusted answer is an error.
        readable.retain(|event| store.event_state(&event.parse().unwrap()).is_ok());
        let seen = look_at(&mut store, &readable, &mut findings).unwrap();
        (seen, findings)
    }

    /// Returns the names of all files in the messages folder.
    fn names(&self, disk: &SimulatedDisk) -> BTreeSet<String> {
        let entries = disk.list(&self.messages).unwrap().into_iter();
        entries
            .map(|entry| entry.name.to_string_lossy().into_owned())
            .collect()
    }

    /// Checks that every byte of `content` still exists, in the file or in a copy.
    fn assert_kept(&self, disk: &SimulatedDisk, name: &str, content: &[u8], case: &str) {
        let mut left: Vec<Vec<u8>> = vec![self.read(disk, name)];
        for other in self.names(disk) {
            if other.starts_with(&format!("{name}.")) {
                left.push(self.read(disk, &other));
            }
        }
        for line in content
            .split(|byte| *byte == b'\n')
            .filter(|l| !l.is_empty())
        {
            let is_there = left
                .iter()
                .any(|file| file.windows(line.len()).any(|window| window == line));
            assert!(is_there, "{case}: a line of {name} is gone");
        }
    }
}

/// True if `part` is a subsequence of `whole`.
fn is_part_of<T: PartialEq>(part: &[T], whole: &[T]) -> bool {
    let mut rest = whole.iter();
    part.iter().all(|entry| rest.any(|other| other == entry))
}

/// Returns the conversation including the open turn. A turn with a lost event is folded, so
/// messages of both count equally.
fn conversation(seen: &ModelView) -> Vec<String> {
    let pending = seen.pending.iter().map(|change| match change {
        Change::Append(id) => id.clone(),
        other => panic!("{other:?}"),
    });
    let messages = seen.messages.iter().map(|message| message.0.clone());
    messages.chain(pending).collect()
}

/// Returns the number of lost messages; the others must exist once, in order.
fn lost(found: &ModelView, whole: &ModelView, case: &str) -> usize {
    let (found, whole) = (conversation(found), conversation(whole));
    assert!(is_part_of(&found, &whole), "{case}: {found:?}");
    whole.len() - found.len()
}

#[test]
fn msg_11_a_log_cut_at_every_byte() {
    let rig = rig();
    for name in [INBOX, EVENTS, BASE, SUMS] {
        let content = rig.read(&rig.disk, name);
        for len in 0..content.len() {
            let case = format!("{name} cut to {len} of {}", content.len());
            let disk = rig.with(name, &content[..len]);
            let (found, findings) = rig.open(&disk);
            let kept = content[..len].iter().filter(|byte| **byte == b'\n').count();
            // A last record that lacks only its newline is intact.
            let kept = kept + usize::from(len > 0 && content[len] == b'\n');
            match name {
                BASE => {
                    assert_eq!(found.messages, rig.whole.messages[..kept], "{case}");
                    let is_said = findings
                        .iter()
                        .any(|found| found.kind == FindingKind::MissingRecords);
                    assert_eq!(
                        is_said,
                        kept < rig.whole.messages.len(),
                        "{case}: {findings:?}"
                    );
                }
                SUMS => assert_eq!(found, rig.whole, "{case}"),
                EVENTS => {
                    let pending = kept.saturating_sub(1);
                    assert_eq!(found.pending, rig.whole.pending[..pending], "{case}");
                    assert_eq!(found.messages, rig.whole.messages, "{case}");
                }
                _ => assert_eq!(lost(&found, &rig.whole, &case), 0, "{case}"),
            }
            let is_torn = len > 0 && content[len - 1] != b'\n' && content[len] != b'\n';
            if is_torn && name != SUMS {
                let torn: Vec<_> = findings
                    .iter()
                    .filter(|found| found.kind == FindingKind::TornTail)
                    .collect();
                assert_eq!(torn.len(), 1, "{case}: {findings:?}");
                rig.assert_kept(&disk, name, &content[..len], &case);
            }
            assert!(rig.read(&disk, name).is_empty() || rig.read(&disk, name).ends_with(b"\n"));
        }
    }
}

/// Damage in a journal with folded turns removes nothing from the base, and repeats nothing.
#[test]
fn msg_11_a_journal_of_several_turns_cut_at_every_byte() {
    let rig = busy_rig();
    let content = rig.read(&rig.disk, EVENTS);
    for len in 0..content.len() {
        let case = format!("cut to {len} of {}", content.len());
        let (found, _) = rig.open(&rig.with(EVENTS, &content[..len]));
        assert_eq!(found.messages, rig.whole.messages, "{case}");
        assert_eq!(found.ended, rig.whole.ended, "{case}");
        assert_eq!(
            lost(&found, &rig.whole, &case),
            rig.whole.pending.len() - found.pending.len()
        );
    }
}

/// The same for every changed byte and for missing records; here the base may lack data that was
/// not durable.
#[test]
fn msg_11_any_flipped_bit_in_a_journal_of_turns_is_detected() {
    let rig = busy_rig();
    let content = rig.read(&rig.disk, EVENTS);
    let lines: Vec<&[u8]> = content.split_inclusive(|byte| *byte == b'\n').collect();
    let mut spoiled: Vec<(String, Vec<u8>)> = Vec::new();
    for at in 0..content.len() {
        let mut flipped = content.clone();
        flipped[at] ^= 1 << (at % 8);
        spoiled.push((format!("byte {at} of {}", content.len()), flipped));
    }
    for at in 0..lines.len() {
        let mut gone = lines.clone();
        gone.remove(at);
        // A loss at the end cannot be detected.
        if at + 1 < lines.len() {
            spoiled.push((format!("line {at} gone"), gone.concat()));
        }
    }
    for (case, spoiled) in spoiled {
        for is_base_lost in [false, true] {
            let case = format!("{case}, base lost: {is_base_lost}");
            let disk = rig.with(EVENTS, &spoiled);
            if is_base_lost {
                for name in [BASE, SUMS] {
                    disk.plant(&rig.messages.join(name), b"").unwrap();
                }
            }
            let (found, findings) = rig.open(&disk);
            assert!(!findings.is_empty() || found == rig.whole, "{case}");
            assert_eq!(found.extension, rig.whole.extension, "{case}");
            let lost = lost(&found, &rig.whole, &case);
            let most = if is_base_lost {
                1
            } else {
                usize::from(found.messages == rig.whole.messages)
            };
            assert!(
                lost <= most,
                "{case}: {lost} messages are gone\n{findings:#?}"
            );
            // Folded turns leave the journal, unless it has unreadable records.
            let is_damage = |finding: &Finding| {
                let is_torn = finding.kind == FindingKind::TornTail;
                !is_torn && !finding.problem.contains("it continues from there")
            };
            if findings.iter().any(is_damage) {
                rig.assert_kept(&disk, EVENTS, &spoiled, &case);
            }
            let (again, findings) = rig.open(&disk);
            assert_eq!(again, found, "{case}: opened again");
            // Lost records of the open turn stay lost until a repair.
            let is_known = |finding: &Finding| finding.problem.contains("the beginning of turn");
            assert!(
                findings.iter().all(is_known),
                "{case}: opened again: {findings:#?}"
            );
        }
    }
}

/// Zeros in place of two adjacent records lose only those two.
#[test]
fn msg_11_a_hole_in_a_journal_of_several_turns() {
    let rig = busy_rig();
    let content = rig.read(&rig.disk, EVENTS);
    let lines: Vec<&[u8]> = content.split_inclusive(|byte| *byte == b'\n').collect();
    // A record after the hole must show that the hole is not from a crash.
    for at in 0..lines.len() - 3 {
        let hole: usize = lines[at..at + 2].iter().map(|line| line.len()).sum();
        let before = lines[..at].concat();
        let behind = lines[at + 2..].concat();
        let spoiled = [before, vec![0; hole], behind].concat();
        let messages = lines[at..at + 2].iter();
        let held = messages.filter(|line| line.starts_with(b"{\"type\":\"append\""));
        let held = held.count();
        for is_base_lost in [false, true] {
            let case = format!("lines {at} and {}, base lost: {is_base_lost}", at + 1);
            let disk = rig.with(EVENTS, &spoiled);
            if is_base_lost {
                for name in [BASE, SUMS] {
                    disk.plant(&rig.messages.join(name), b"").unwrap();
                }
            }
            let (found, findings) = rig.open(&disk);
            let lost = lost(&found, &rig.whole, &case);
            assert!(
                lost <= held,
                "{case}: {lost} messages are gone\n{findings:#?}"
            );
            assert!(
                is_base_lost || found.messages == rig.whole.messages,
                "{case}"
            );
            assert_eq!(found.ended, rig.whole.ended, "{case}");
            assert_eq!(found.extension, rig.whole.extension, "{case}");
            let open = |seen: &ModelView| seen.open.as_ref().map(|open| open.0.clone());
            assert_eq!(open(&found), open(&rig.whole), "{case}");
        }
    }
}

/// A crash anywhere in a rewrite, followed by damage of one journal record: no message is
/// duplicated, and a turn with a finished event is completely in the conversation.
#[test]
fn msg_11_a_journal_is_damaged_after_a_crash_in_a_rewrite() {
    let batches = mixes::rewritten();
    let events = events_of(&batches);
    let mut journals = 0;
    for call in 1.. {
        let (disk, workspace_id) = fresh();
        disk.crash_at(disk.calls() + call);
        perform(&disk, &workspace_id, &batches, BatchPace::Busy);
        let is_over = !disk.is_down();
        let messages = dir(&workspace_id).join("messages");
        let disk = disk.after_crash(Crash::KeepUnsynced);
        let content = disk.open_read(&messages.join(EVENTS));
        let content = content.map_or_else(
            |_| Vec::new(),
            |mut f| read_all(f.as_mut(), 1 << 20).unwrap(),
        );
        let ends = (0..content.len()).filter(|at| content[*at] == b'\n');
        let ends: Vec<usize> = ends.collect();
        for (line, end) in ends.iter().enumerate() {
            let mut flipped = content.clone();
            flipped[end - 5] ^= 1;
            let disk = disk.after_crash(Crash::KeepUnsynced);
            disk.plant(&messages.join(EVENTS), &flipped).unwrap();
            let case = format!("call {call}, line {line}");
            let dir = messages.parent().unwrap();
            let mut store = InstanceStore::open(Arc::new(disk), dir).unwrap();
            let found = look_at(&mut store, &events, &mut Vec::new()).unwrap();
            let ids: Vec<&str> = found.messages.iter().map(|held| held.0.as_str()).collect();
            let after = [
                vec![],
                vec!["t1:u", "t1:a"],
                vec!["t1:u", "t1:a", "t2:u", "t2:a"],
                vec!["t1:a", "t2:v", "t2:a", "t3:a"],
            ];
            // A turn with a lost commit continues; the base may already be the new one.
            let mut after = after.iter().skip(found.ended.len()).take(2);
            assert!(
                after.any(|whole| is_part_of(&ids, whole) && whole.len() - ids.len() <= 1),
                "{case}: {found:#?}"
            );
            journals += 1;
        }
        if is_over {
            break;
        }
    }
    assert!(journals > 100, "only {journals} journals were tried");
}

/// Records without a turn id stay with their turn when other turns leave the journal.
#[test]
fn msg_3_foreign_events_stay_with_their_turn_after_clearing() {
    let mut batches = batches();
    assert!(matches!(
        batches.pop().as_deref(),
        Some([ModelStep::Close(_)])
    ));
    let is_fourth = |step: &ModelStep| matches!(step, ModelStep::Begin(_, turn, _) if turn == "t4");
    let fourth = batches.iter().position(|batch| batch.iter().any(is_fourth));
    let foreign = Change::Append("foreign".into());
    let line = format!("{}\n", foreign.to_json());
    for until in [fourth.unwrap(), batches.len()] {
        let rig = {
            let (disk, workspace_id) = fresh();
            perform(&disk, &workspace_id, &batches[..until], BatchPace::Busy);
            DamageHarness {
                disk: disk.after_crash(Crash::KeepUnsynced),
                messages: dir(&workspace_id).join("messages"),
                events: events_of(&batches),
                whole: ModelView::default(),
            }
        };
        let content = [rig.read(&rig.disk, EVENTS).as_slice(), line.as_bytes()].concat();
        let (whole, _) = rig.open(&rig.disk.after_crash(Crash::KeepUnsynced));
        let (found, _) = rig.open(&rig.with(EVENTS, &content));
        let expected = [conversation(&whole), vec!["foreign".to_owned()]].concat();
        assert_eq!(conversation(&found), expected, "{until} batches");
        assert_eq!((found.open, found.ended), (whole.open, whole.ended));
    }
}

/// In a rewritten file, zeros in place of a durable record are damage, not a torn end.
#[test]
fn msg_11_zeros_in_a_rewritten_file_hide_nothing_after_them() {
    let rig = busy_rig();
    let disk = rig.disk.after_crash(Crash::KeepUnsynced);
    let mut store = InstanceStore::open(Arc::new(disk.clone()), rig.dir()).unwrap();
    let last = rig.read(&disk, EVENTS);
    let (turn, event) = ("t4".parse().unwrap(), "e4".parse().unwrap());
    store
        .begin_turn("t5".parse().unwrap(), &event, at())
        .unwrap();
    let added = Change::Append("t4:c".into()).to_json();
    let added = serde_json::value::to_raw_value(&added).unwrap();
    store.append_event(&turn, 4, &added).unwrap();
    store.sync().unwrap();
    drop(store);
    let mut content = rig.read(&disk, EVENTS);
    let before = last.iter().rposition(|byte| *byte == b'{').unwrap();
    let line = last[..before]
        .iter()
        .rposition(|byte| *byte == b'\n')
        .unwrap();
    content[line + 1..last.len() - 1].fill(0);
    disk.plant(&rig.messages.join(EVENTS), &content).unwrap();
    let (found, findings) = rig.open(&disk);
    let expected = ["t4:u", "t4:a", "t4:c"].map(|id| Change::Append(id.into()));
    assert_eq!(found.pending, expected, "{findings:#?}");
}

/// Changes one bit, and all bits, of every byte of every file.
#[test]
fn msg_11_no_flipped_bit_goes_unnoticed() {
    let rig = rig();
    for name in [INBOX, EVENTS, BASE, SUMS] {
        let content = rig.read(&rig.disk, name);
        for at in 0..content.len() {
            for mask in [1 << (at % 8), 0xff] {
                let mut flipped = content.clone();
                flipped[at] ^= mask;
                let case = format!("{name}, byte {at} of {}, mask {mask:#x}", content.len());
                let disk = rig.with(name, &flipped);
                let before = rig.names(&disk);
                let (found, findings) = rig.open(&disk);
                let lost = lost(&found, &rig.whole, &case);
                assert!(lost <= 2, "{case}: {lost} records are gone\n{findings:#?}");
                if findings.is_empty() {
                    assert_eq!(found, rig.whole, "{case}: nothing was reported");
                    assert!(name != BASE, "{case}: nothing was reported");
                }
                for finding in &findings {
                    assert!(
                        finding.path.starts_with(&rig.messages),
                        "{case}: {finding:?}"
                    );
                    assert!(!finding.problem.is_empty() && !finding.advice.is_empty());
                }
                assert!(
                    rig.names(&disk).is_superset(&before),
                    "{case}: a file is gone"
                );
                rig.assert_kept(&disk, name, &flipped, &case);
            }
        }
    }
}

#[test]
fn msg_11_lines_that_are_swapped_repeated_or_gone() {
    let rig = rig();
    for name in [INBOX, EVENTS, BASE] {
        let content = rig.read(&rig.disk, name);
        let lines: Vec<&[u8]> = content.split_inclusive(|byte| *byte == b'\n').collect();
        assert!(lines.len() > 2, "{name}");
        for at in 0..lines.len() {
            for at2 in 0..lines.len() {
                let mut swapped = lines.clone();
                swapped.swap(at, at2);
                let case = format!("{name}, lines {at} and {at2} swapped");
                let (found, findings) = rig.open(&rig.with(name, &swapped.concat()));
                if name == BASE {
                    let set =
                        |seen: &ModelView| seen.messages.iter().cloned().collect::<BTreeSet<_>>();
                    assert_eq!(set(&found), set(&rig.whole), "{case}");
                    assert_eq!(found.messages.len(), rig.whole.messages.len(), "{case}");
                } else {
                    assert_eq!(found, rig.whole, "{case}");
                }
                assert_eq!(findings.is_empty(), at == at2, "{case}: {findings:?}");
            }
            let mut repeated = lines.clone();
            repeated.insert(at, lines[at]);
            let case = format!("{name}, line {at} repeated");
            let (found, findings) = rig.open(&rig.with(name, &repeated.concat()));
            assert_eq!(found, rig.whole, "{case}");
            assert!(!findings.is_empty(), "{case}");
            let mut gone = lines.clone();
            gone.remove(at);
            let case = format!("{name}, line {at} gone");
            let (found, findings) = rig.open(&rig.with(name, &gone.concat()));
            let most = usize::from(name != INBOX);
            assert!(lost(&found, &rig.whole, &case) <= most, "{case}");
            // A loss at the journal's end is undetectable; the base detects it by its checksums.
            if name == BASE || at + 1 < lines.len() {
                let kinds: Vec<_> = findings.iter().map(|found| found.kind).collect();
                assert!(
                    kinds.contains(&FindingKind::MissingRecords),
                    "{case}: {kinds:?}"
                );
            }
        }
    }
}

#[test]
fn msg_11_two_damaged_messages_are_both_passed_over() {
    let rig = rig();
    let mut content = rig.read(&rig.disk, BASE);
    let starts: Vec<usize> = std::iter::once(0)
        .chain((1..content.len()).filter(|at| content[at - 1] == b'\n'))
        .collect();
    for line in [1, 4] {
        content[starts[line] + 20] ^= 1;
    }
    let (found, findings) = rig.open(&rig.with(BASE, &content));
    let expected = [0, 2, 3, 5, 6].map(|at: usize| rig.whole.messages[at].clone());
    assert_eq!(found.messages, expected);
    let lines: Vec<_> = findings
        .iter()
        .map(|found| (found.kind, found.line))
        .collect();
    let damaged = FindingKind::DamagedRecord;
    assert_eq!(lines, [(damaged, Some(2)), (damaged, Some(5))]);
}

#[test]
fn msg_11_bytes_that_are_no_text() {
    let rig = rig();
    for name in [INBOX, EVENTS, BASE] {
        let content = rig.read(&rig.disk, name);
        let first = content.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for junk in [
            &b"\0\0\0\n"[..],
            b"\xff\xfe\n",
            b"\xc3(\n",
            b"null\n",
            b"[1]\n",
            b"{}\n",
        ] {
            let case = format!("{name}, {junk:?}");
            let (head, tail) = content.split_at(first);
            let spoiled = [head, junk, tail].concat();
            let disk = rig.with(name, &spoiled);
            let (found, findings) = rig.open(&disk);
            assert_eq!(lost(&found, &rig.whole, &case), 0, "{case}");
            assert_eq!(found.waiting, rig.whole.waiting, "{case}");
            assert!(!findings.is_empty(), "{case}");
            rig.assert_kept(&disk, name, &spoiled, &case);
        }
    }
}

/// Checking reports the same as opening and changes nothing; after a repair no findings remain.
#[test]
fn verify_finds_every_flipped_bit_and_repair_sets_it_aside() {
    let rig = rig();
    for name in [INBOX, EVENTS, BASE, SUMS] {
        let content = rig.read(&rig.disk, name);
        for at_byte in (0..content.len()).step_by(17) {
            let mut flipped = content.clone();
            flipped[at_byte] ^= 4;
            let case = format!("{name}, byte {at_byte}");
            let disk = rig.with(name, &flipped);
            let written = disk.bytes_written();
            let verified = verify::instance(&disk, rig.dir()).unwrap();
            assert_eq!(
                disk.bytes_written(),
                written,
                "{case}: checking wrote something"
            );
            let is_bad = verified.worst() >= Some(Severity::Warning);
            if !is_bad {
                assert_eq!(rig.open(&disk).0, rig.whole, "{case}: {verified:#?}");
                continue;
            }
            let shared: Arc<dyn Disk> = Arc::new(disk.clone());
            instance::repair(&shared, rig.dir(), at()).unwrap();
            let verified = verify::instance(&disk, rig.dir()).unwrap();
            assert!(
                verified.worst() <= Some(Severity::Info),
                "{case}: {verified:#?}"
            );
            rig.assert_kept(&disk, name, &flipped, &case);
            let (found, findings) = rig.open(&disk);
            assert!(lost(&found, &rig.whole, &case) <= 1, "{case}");
            assert!(findings.is_empty(), "{case}: {findings:?}");
        }
    }
}

#[test]
fn repair_makes_lost_metadata_again_and_sets_states_aside() {
    let rig = rig();
    let metadata = rig.dir().join("metadata.json");
    let notes = rig.dir().join("extensions").join("notes.json");
    rig.disk.plant(&metadata, b"{\"status\":\"id").unwrap();
    rig.disk.plant(&notes, b"{\"n\":").unwrap();
    rig.disk
        .plant(
            &rig.messages.join("llm.jsonl"),
            b"{\"agentName\":\"agent\"}\n",
        )
        .unwrap();
    let verified = verify::instance(&rig.disk, rig.dir()).unwrap();
    let unreadable: Vec<_> = verified
        .findings
        .iter()
        .filter(|found| found.kind == FindingKind::UnreadableFile)
        .map(|found| found.path.clone())
        .collect();
    assert_eq!(unreadable, [metadata, notes]);
    let text = serde_json::to_string(&verified).unwrap();
    assert_eq!(
        serde_json::from_str::<goondan_durable::VerificationResult>(&text).unwrap(),
        verified
    );
    let shared: Arc<dyn Disk> = Arc::new(rig.disk.clone());
    let kept = instance::repair(&shared, rig.dir(), at()).unwrap();
    assert_eq!(kept.len(), 2, "{kept:?}");
    let (found, _) = rig.open(&rig.disk);
    assert_eq!(
        (found.messages, found.extension),
        (rig.whole.messages.clone(), None)
    );
    assert!(verify::instance(&rig.disk, rig.dir()).unwrap().worst() <= Some(Severity::Info));
}

/// If the current logs have just begun, their older segments identify the instance.
#[test]
fn repair_finds_the_owner_in_the_segments_of_the_logs() {
    let rig = rig();
    for log in ["runtime-events.jsonl", "llm.jsonl"] {
        rig.disk.plant(&rig.messages.join(log), b"").unwrap();
    }
    rig.disk
        .plant(&rig.dir().join("metadata.json"), b"{")
        .unwrap();
    let shared: Arc<dyn Disk> = Arc::new(rig.disk.clone());
    instance::repair(&shared, rig.dir(), at()).unwrap_err();
    let segment = "llm.000000000000000.2026-01-01.jsonl.gz";
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(b"{\"agentName\":\"agent\"}\n").unwrap();
    let content = encoder.finish().unwrap();
    rig.disk
        .plant(&rig.messages.join(segment), &content)
        .unwrap();
    instance::repair(&shared, rig.dir(), at()).unwrap();
    let metadata = instance::Metadata::read(&rig.disk, rig.dir()).unwrap();
    assert_eq!(metadata.agent_name.as_str(), "agent");
    let (found, _) = rig.open(&rig.disk);
    assert_eq!(found.messages, rig.whole.messages);
}

/// A repair removes the metadata of another instance, and the finding disappears.
#[test]
fn repair_takes_another_instances_metadata_away() {
    let rig = rig();
    let metadata = rig.dir().join("metadata.json");
    let foreign = b"{\"status\":\"idle\",\"agentName\":\"other\",\"instanceKey\":\"b\",\"createdAt\":\"2026-01-01T00:00:00.000Z\",\"updatedAt\":\"2026-01-01T00:00:00.000Z\"}\n";
    rig.disk.plant(&metadata, foreign).unwrap();
    let llm = rig.messages.join("llm.jsonl");
    let line = b"{\"agentName\":\"agent\"}\n";
    rig.disk.plant(&llm, line).unwrap();
    let verified = verify::instance(&rig.disk, rig.dir()).unwrap();
    assert_eq!(verified.worst(), Some(Severity::Error));
    let shared: Arc<dyn Disk> = Arc::new(rig.disk.clone());
    instance::repair(&shared, rig.dir(), at()).unwrap();
    let verified = verify::instance(&rig.disk, rig.dir()).unwrap();
    assert!(verified.worst() <= Some(Severity::Info), "{verified:#?}");
    assert_eq!(rig.open(&rig.disk).0.messages, rig.whole.messages);
}

/// A duplicate of the first record is reported as a duplicate only.
#[test]
fn msg_11_a_repeated_first_record_is_no_missing_one() {
    let rig = rig();
    let content = rig.read(&rig.disk, INBOX);
    let first = content.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let spoiled = [&content[..first], &content].concat();
    let verified = verify::instance(&rig.with(INBOX, &spoiled), rig.dir()).unwrap();
    let kinds: Vec<_> = verified.findings.iter().map(|found| found.kind).collect();
    assert_eq!(kinds, [FindingKind::RepeatedRecord], "{verified:#?}");
    let (found, _) = rig.open(&rig.with(INBOX, &spoiled));
    assert_eq!(found, rig.whole);
}

/// A repair interrupted at any call is finished by the next one with the same result, and every
/// line still exists.
#[test]
fn a_crash_at_every_call_of_a_repair_loses_nothing() {
    let rig = rig();
    for name in [INBOX, EVENTS, BASE, SUMS] {
        let mut flipped = rig.read(&rig.disk, name);
        let middle = flipped.len() / 2;
        flipped[middle] ^= 4;
        let damaged = rig.with(name, &flipped);
        let repair = |disk: &SimulatedDisk| {
            let shared: Arc<dyn Disk> = Arc::new(disk.clone());
            instance::repair(&shared, rig.dir(), at())
        };
        let whole = damaged.after_crash(Crash::KeepUnsynced);
        assert!(!repair(&whole).unwrap().is_empty(), "{name} is not damaged");
        let (expected, _) = rig.open(&whole);
        let mut calls = 0;
        for call in 1.. {
            let run = damaged.after_crash(Crash::KeepUnsynced);
            run.crash_at(call);
            let result = repair(&run);
            if !run.is_down() {
                result.unwrap();
                break;
            }
            calls += 1;
            for crash in [
                Crash::LoseUnsynced,
                Crash::KeepUnsynced,
                Crash::ProcessOnly,
                Crash::Subset(call),
            ] {
                let case = format!("{name}, call {call}, {crash:?}");
                let after = run.after_crash(crash);
                repair(&after).unwrap_or_else(|error| panic!("{case}: {error}"));
                rig.assert_kept(&after, name, &flipped, &case);
                let (found, findings) = rig.open(&after);
                assert_eq!(found, expected, "{case}");
                assert!(findings.is_empty(), "{case}: {findings:?}");
            }
        }
        assert!(calls > 10, "{name}: only {calls} calls were tried");
    }
}
