//! Repairs a damaged history with the records in checkpoints (`TASK-1`, `MSG-11`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use goondan_durable::checksum::{Seal, seal_of};
use goondan_durable::disk::{Disk, read_all};
use goondan_durable::register::Register;
use goondan_durable::sealed_log::{SealedLog, unsealed};
use goondan_durable::{IoContext as _, files};
use goondan_protocol::time::Timestamp;
use serde_json::value::RawValue;

use super::{HISTORY, WorkArea, WorkAreaError};
use crate::fact::{HistoryEntry, PauseReason, TaskEvent};

/// Maximum size of a history that is read, in bytes.
const HISTORY_BYTES_MAX: usize = 1 << 40;

/// Reason for pausing a task whose history lacks records.
const WHY_PAUSED: &str =
    "records of its history are lost; check its work area before you resume it";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepairResult {
    /// Path of the damaged history; none if it was missing.
    pub kept: Option<PathBuf>,
    /// Records that could not be recovered.
    pub lost: u64,
}

/// Records of a history by number, verbatim.
#[derive(Debug, Default)]
pub struct Records(BTreeMap<u64, Box<RawValue>>);

impl Records {
    /// Adds the readable records of an earlier copy of the history. A copy of a different history
    /// is ignored: an incomplete repair renumbers the records.
    pub fn add(&mut self, copy: &[u8]) {
        let mut records = BTreeMap::new();
        for line in copy.split(|byte| *byte == b'\n') {
            if let Seal::Whole(place) = seal_of(line)
                && let Some(record) = unsealed(line)
            {
                records.entry(place.n).or_insert(record);
            }
        }
        let agrees = |number: &u64, record: &RawValue| {
            let own = self.0.get(number);
            own.is_none_or(|own| own.get() == record.get())
        };
        let mut all = records.iter();
        if all.all(|(number, record)| agrees(number, record)) {
            records.append(&mut self.0);
            self.0 = records;
        }
    }

    /// Number of records that are missing, either from the first `count` or before the last
    /// available one.
    #[must_use]
    pub fn missing(&self, count: u64) -> u64 {
        let last = self.0.keys().next_back().copied().unwrap_or_default();
        let there = u64::try_from(self.0.len()).unwrap_or(u64::MAX);
        last.max(count).saturating_sub(there)
    }
}

impl WorkArea {
    /// Rewrites a history from the available records, and keeps the damaged one next to it. A task
    /// with missing records is paused because part of its work may be missing. The work area must
    /// not be open. Durable on return.
    ///
    /// # Errors
    ///
    /// [`WorkAreaError::NoTask`] if the first record is missing everywhere, and
    /// [`WorkAreaError::File`].
    pub fn repair(
        disk: &dyn Disk,
        root: &Path,
        records: Records,
        register: &Register<'_>,
        now: Timestamp,
    ) -> Result<RepairResult, WorkAreaError> {
        let lost = records.missing(register.records(HISTORY)?.unwrap_or_default());
        if !records.0.contains_key(&1) {
            return Err(WorkAreaError::NoTask(root.to_owned()));
        }
        let path = root.join(HISTORY);
        let metadata = root.join(super::METADATA);
        files::ensure_dir(disk, root, &metadata)?;
        let mut kept = None;
        if let Some(content) = read_history(disk, &path)? {
            kept = Some(files::keep_aside(disk, &path, "damaged", &content)?);
        }
        register.release(HISTORY)?;
        let (mut history, _) = SealedLog::open(disk, &path)?;
        let records: Vec<Box<RawValue>> = records.0.into_values().collect();
        history.replace(disk, &records)?;
        if lost > 0 {
            let reason = PauseReason::Person;
            let why = Some(WHY_PAUSED.to_owned());
            history.append(&HistoryEntry {
                timestamp: now,
                fact: TaskEvent::TaskPaused { reason, why },
            })?;
            history.sync()?;
        }
        register.acknowledge()?;
        register.note(&[HISTORY]);
        Ok(RepairResult { kept, lost })
    }
}

/// Bytes of a history, if it exists.
///
/// # Errors
///
/// [`WorkAreaError::File`].
pub fn read_history(disk: &dyn Disk, path: &Path) -> Result<Option<Vec<u8>>, WorkAreaError> {
    if disk.stat(path).during("inspect", path)?.is_none() {
        return Ok(None);
    }
    let mut file = disk.open_read(path).during("open", path)?;
    let content = read_all(file.as_mut(), HISTORY_BYTES_MAX).during("read", path)?;
    Ok(Some(content))
}
