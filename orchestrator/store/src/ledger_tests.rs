//! Goal: a ledger loses no acknowledged entry and counts no entry twice, at any crash point.

use std::path::Path;

use goondan_durable::disk::{CallFault, Crash, SimulatedDisk};

use super::*;
use crate::workspace;

fn disk() -> (SimulatedDisk, Layout, WorkspaceId) {
    let disk = SimulatedDisk::new();
    let layout = Layout::new("/s");
    for dir in ["/s", "/s/workspaces"] {
        disk.create_dir(Path::new(dir)).unwrap();
    }
    for dir in ["/", "/s"] {
        disk.sync_dir(Path::new(dir)).unwrap();
    }
    let record = workspace::open(&disk, &layout, Path::new("/p"), None).unwrap();
    (disk, layout, record.workspace_id)
}

/// Every seventh entry is for a task.
fn purpose(number: u64) -> ReplyPurpose {
    if number.is_multiple_of(7) {
        let task = LedgerTask {
            id: "t-1".parse().unwrap(),
            created_at: Timestamp::from_unix_millis(1_767_225_600_000),
        };
        return ReplyPurpose::Task { task };
    }
    ReplyPurpose::Step {
        turn_id: "t".parse().unwrap(),
        step_id: "t.1".parse().unwrap(),
        task: None,
        bundle_revision: number.is_multiple_of(2).then(|| "r-2".parse().unwrap()),
    }
}

fn entry(number: u64) -> LedgerEntry {
    LedgerEntry {
        id: Uuid::from_u128(number.into()),
        at: Timestamp::from_unix_millis(1_767_225_600_000),
        agent_name: "clerk".parse().unwrap(),
        instance_key: format!("k{}", number % 3).parse().unwrap(),
        asked_by: Vec::new(),
        asked_by_agents: Vec::new(),
        purpose: purpose(number),
        model: "big".parse().unwrap(),
        usage: (!number.is_multiple_of(5)).then_some(Usage {
            input_tokens: number,
            ..Usage::default()
        }),
        cost_micro_usd: Some(MicroUsd(number)),
        assumed: Charge::default(),
    }
}

fn total(found: &LedgerContent) -> UsageTotal {
    let mut all = UsageTotal::default();
    for line in &found.lines {
        all.add(&line.spending);
    }
    all
}

fn expected(count: u64) -> UsageTotal {
    let mut all = UsageTotal::default();
    for number in 0..count {
        all.add_reply(&entry(number).spent());
    }
    all
}

#[test]
fn duplicate_reply_counts_once_also_after_reopening() {
    let (disk, layout, id) = disk();
    for _ in 0..2 {
        let (mut ledger, findings) = Ledger::open(&disk, &layout, &id).unwrap();
        assert_eq!(findings, []);
        for number in [0, 1, 1] {
            ledger.append(&entry(number)).unwrap();
        }
        ledger.sync().unwrap();
    }
    let found = read(&disk, &layout, &id).unwrap();
    assert_eq!(total(&found), expected(2));
    assert_eq!(found.unreadable, 0);
}

/// A file left by a failed attempt is not assumed durable.
#[test]
fn first_ledger_entry_survives_an_error_and_a_crash_after_retry() {
    for call in 1.. {
        let (disk, layout, id) = disk();
        let failing = disk.calls() + call;
        disk.fail_at(failing, CallFault::Errno(5), false);
        let record = || -> Result<(), StoreError> {
            let (mut ledger, _) = Ledger::open(&disk, &layout, &id)?;
            ledger.append(&entry(0))?;
            ledger.sync()
        };
        let audit = || {
            let record = goondan_protocol::JsonObject::new();
            workspace::append_audit(&disk, &layout, &id, &record)
        };
        record().or_else(|_| record()).unwrap();
        audit().or_else(|_| audit()).unwrap();
        let after = disk.after_crash(Crash::LoseUnsynced);
        let found = read(&after, &layout, &id).unwrap();
        assert_eq!(total(&found), expected(1), "call {call}");
        let audited = layout.workspace(&id).join("audit.jsonl");
        let audited = after.stat(&audited).unwrap().map(|stat| stat.len);
        assert!(audited >= Some(3), "call {call}: {audited:?}");
        if disk.calls() < failing {
            return;
        }
    }
}

#[test]
fn crash_at_any_call_loses_and_duplicates_no_ledger_entry() {
    for call in 0..40 {
        for crash in [
            Crash::LoseUnsynced,
            Crash::KeepUnsynced,
            Crash::Subset(call),
        ] {
            let (disk, layout, id) = disk();
            disk.crash_at(disk.calls() + call);
            let mut acknowledged = 0;
            let mut life = || -> Result<(), StoreError> {
                let (mut ledger, _) = Ledger::open(&disk, &layout, &id)?;
                for number in 0..6 {
                    ledger.append(&entry(number))?;
                    ledger.sync()?;
                    acknowledged = number + 1;
                }
                Ok(())
            };
            drop(life());
            let after = disk.after_crash(crash);
            // A caller without an acknowledgment submits the same entry again.
            let (mut ledger, _) = Ledger::open(&after, &layout, &id).unwrap();
            let before = total(&read(&after, &layout, &id).unwrap()).replies;
            assert!(before >= acknowledged, "call {call}, {crash:?}");
            for number in 0..6 {
                ledger.append(&entry(number)).unwrap();
            }
            ledger.sync().unwrap();
            let found = read(&after, &layout, &id).unwrap();
            assert_eq!(total(&found), expected(6), "call {call}, {crash:?}");
        }
    }
}

#[test]
fn large_ledger_is_compacted_with_the_same_totals() {
    let (disk, layout, id) = disk();
    let (mut ledger, _) = Ledger::open(&disk, &layout, &id).unwrap();
    ledger.compact_at = 100_000;
    let count = 3_000;
    for number in 0..count {
        ledger.append(&entry(number)).unwrap();
        ledger.sync().unwrap();
        ledger.compact(&disk).unwrap();
        ledger.compact_at = ledger.compact_at.min(100_000 + ledger.log.len());
    }
    let found = read(&disk, &layout, &id).unwrap();
    assert_eq!(total(&found), expected(count));
    let sums = found.lines.iter().filter(|line| line.spending.replies > 1);
    assert!(sums.count() >= 3, "it was never compacted");
    // The latest replies are still recognized, also after reopening.
    let (mut ledger, _) = Ledger::open(&disk, &layout, &id).unwrap();
    ledger.append(&entry(count - 1)).unwrap();
    assert_eq!(total(&read(&disk, &layout, &id).unwrap()), expected(count));
}

#[test]
fn ledger_survives_a_fault_at_every_call_of_compaction() {
    for call in 0..200 {
        let (disk, layout, id) = disk();
        let (mut ledger, _) = Ledger::open(&disk, &layout, &id).unwrap();
        for number in 0..20 {
            ledger.append(&entry(number)).unwrap();
        }
        ledger.sync().unwrap();
        ledger.compact_at = 0;
        disk.fail_at(disk.calls() + call, CallFault::ShortWrite(7), false);
        let failed = ledger.compact(&disk).is_err();
        drop(ledger);
        let (_, findings) = Ledger::open(&disk.after_crash(Crash::LoseUnsynced), &layout, &id)
            .unwrap_or_else(|error| panic!("call {call}: {error}"));
        assert_eq!(findings, [], "call {call}");
        assert_eq!(total(&read(&disk, &layout, &id).unwrap()), expected(20));
        if !failed && call > 30 {
            return;
        }
    }
    panic!("it never came to its end");
}

#[test]
fn damage_is_counted_and_the_rest_is_read() {
    let (disk, layout, id) = disk();
    let (mut ledger, _) = Ledger::open(&disk, &layout, &id).unwrap();
    for number in 0..3 {
        ledger.append(&entry(number)).unwrap();
        ledger.sync().unwrap();
    }
    let path = path_of(&layout, &id);
    let mut file = disk.open_read(&path).unwrap();
    let bytes = goondan_durable::disk::read_all(file.as_mut(), 1 << 20).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let bad = text.replacen("\"inputTokens\":1,", "\"inputTokens\":9,", 1);
    assert_ne!(bad, text);
    disk.plant(&path, bad.as_bytes()).unwrap();
    let found = read(&disk, &layout, &id).unwrap();
    assert_eq!((found.lines.len(), found.unreadable), (2, 1));
    let mut verified = crate::verify::workspace(&disk, &layout, &id).unwrap();
    verified.findings.retain(|finding| finding.path == path);
    assert_eq!(verified.findings.len(), 1, "{verified:?}");
}
