//! Calls that fail once or permanently (`MSG-10`): the error is reported, a failed operation is not
//! acknowledged, a failed handle is not reused, and the store recovers when the cause is gone.

use std::sync::Arc;

use goondan_durable::FileError;
use goondan_durable::disk::{CallFault, Crash, Disk, read_all};
use goondan_store::StoreError;
use goondan_store::writer::Worker;

use crate::mixes;
use crate::model::{Batch, ModelStep, World, allowed_after};
use crate::world::{
    BatchPace, PACES, events_of, fresh, layout, look, perform, perform_again, perform_with,
};

const EIO: i32 = 5;
const EINTR: i32 = 4;
const ENOSPC: i32 = 28;
const EMFILE: i32 = 24;
const EROFS: i32 = 30;

const FAULTS: [CallFault; 7] = [
    CallFault::Errno(EIO),
    CallFault::Errno(ENOSPC),
    CallFault::Errno(EMFILE),
    CallFault::Errno(EROFS),
    CallFault::ShortWrite(3),
    CallFault::ShortWrite(0),
    CallFault::Errno(EINTR),
];

/// True if the fault must be invisible: a short write is continued.
fn is_harmless(fault: CallFault) -> bool {
    fault == CallFault::ShortWrite(3)
}

/// Fails every call of `batches` in turn.
fn exhaust(name: &str, batches: &[Batch], fault: CallFault, for_ever: bool) {
    for pace in PACES {
        exhaust_at(pace, name, batches, fault, for_ever);
    }
}

fn exhaust_at(pace: BatchPace, name: &str, batches: &[Batch], fault: CallFault, for_ever: bool) {
    let events = events_of(batches);
    for call in 1.. {
        let (disk, workspace_id) = fresh();
        let failing = disk.calls() + call;
        disk.fail_at(failing, fault, for_ever);
        let (acknowledged, error) = perform(&disk, &workspace_id, batches, pace);
        let is_past_the_end = disk.calls() < failing;
        let case = format!("{name}, {pace:?}, {fault:?} at call {call}, for ever: {for_ever}");
        if is_harmless(fault) {
            assert!(error.is_none(), "{case}: {error:?}");
        }
        if let Some(error) = &error {
            let StoreError::File(FileError::Io { source, .. }) = error else {
                panic!("{case}: {error:?}");
            };
            let is_said = match fault {
                CallFault::Errno(code) => source.raw_os_error() == Some(code),
                CallFault::ShortWrite(_) => source.kind() == std::io::ErrorKind::WriteZero,
            };
            assert!(
                is_said && !error.to_string().is_empty(),
                "{case}: {source:?}"
            );
        }
        assert_eq!(
            disk.reused_after_failed_sync(),
            0,
            "{case}: a handle was reused"
        );
        let allowed = allowed_after(batches, acknowledged);
        // The cause is gone: for a successor process, and then also after a power failure.
        for crash in [Crash::KeepUnsynced, Crash::LoseUnsynced] {
            let healed = disk.after_crash(crash);
            let (found, _) = look(&healed, &workspace_id, &events).unwrap();
            assert!(
                allowed.contains(&found),
                "{case}, {crash:?}\nfound: {found:#?}\nallowed: {allowed:#?}"
            );
        }
        if is_past_the_end {
            return;
        }
    }
}

#[test]
fn msg_10_an_error_at_every_call_once() {
    for (name, batches) in mixes::small() {
        for fault in FAULTS {
            exhaust(name, &batches, fault, false);
        }
    }
}

#[test]
fn msg_10_an_error_at_every_call_and_ever_after() {
    for (name, batches) in mixes::small() {
        // A permanently interrupted append would be retried forever; no kernel does that.
        for fault in FAULTS
            .into_iter()
            .filter(|fault| *fault != CallFault::Errno(EINTR))
        {
            exhaust(name, &batches, fault, true);
        }
    }
}

/// The same writer continues after the cause is gone, and only the failed batch is lost.
#[test]
fn msg_10_the_same_writer_recovers() {
    let batches = mixes::grouped();
    for call in 1.. {
        let (disk, workspace_id) = fresh();
        let failing = disk.calls() + call;
        disk.fail_at(failing, CallFault::Errno(ENOSPC), false);
        let found = perform_again(&disk, &workspace_id, &batches);
        let mut world = World::default();
        for batch in &batches {
            batch.iter().for_each(|step| world.apply(step));
        }
        let world = world.into_found();
        assert_eq!(found.as_ref(), Ok(&world), "ENOSPC at call {call}");
        if disk.calls() < failing {
            return;
        }
    }
}

/// A turn committed on a full disk is folded once there is space, without another request for its
/// instance.
#[test]
fn msg_10_failed_fold_is_retried_automatically() {
    for (name, mut batches) in mixes::small() {
        if !name.starts_with("fold by") {
            continue;
        }
        while !matches!(batches.last().unwrap()[..], [ModelStep::Complete(..)]) {
            batches.pop();
        }
        let mut failed = 0;
        for call in 1.. {
            let (disk, workspace_id) = fresh();
            let mut worker = Worker::new(Arc::new(disk.clone()), layout());
            let (_, error) = perform_with(&mut worker, &workspace_id, &batches, BatchPace::Quiet);
            assert!(error.is_none(), "{name}: {error:?}");
            let settling = disk.calls() + call;
            disk.fail_at(settling, CallFault::Errno(ENOSPC), true);
            worker.settle();
            worker.tidy(true);
            if disk.calls() < settling {
                break;
            }
            disk.fail_at(u64::MAX, CallFault::Errno(ENOSPC), false);
            worker.tidy(true);
            let messages = layout().instances(&workspace_id).join("a/messages");
            let mut journal = disk.open_read(&messages.join("events.jsonl")).unwrap();
            let left = read_all(journal.as_mut(), 1 << 20).unwrap();
            assert!(left.is_empty(), "{name}, call {call}: it is not folded");
            let mut world = World::default();
            batches.iter().flatten().for_each(|step| world.apply(step));
            let (found, _) = look(&disk, &workspace_id, &events_of(&batches)).unwrap();
            assert_eq!(found, world.into_found(), "{name}, call {call}");
            failed += 1;
        }
        assert!(failed > 5, "{name}: only {failed} calls failed");
    }
}
