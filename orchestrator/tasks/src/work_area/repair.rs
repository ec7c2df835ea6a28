//! Making a damaged history whole again, with what checkpoints hold of it (`TASK-1`, `MSG-11`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use goondan_durable::checksum::{Seal, seal_of};
use goondan_durable::disk::{Disk, read_all};
use goondan_durable::register::Register;
use goondan_durable::sealed::{SealedLog, unsealed};
use goondan_durable::{IoContext as _, files};
use goondan_protocol::time::Timestamp;
use serde_json::value::RawValue;

use super::{HISTORY, WorkArea, WorkAreaError};
use crate::fact::{Entry, Fact, PauseReason};

/// Largest history that is read, in bytes.
const HISTORY_BYTES_MAX: usize = 1 << 40;

/// Why a task is paused whose history lacks records.
const WHY_PAUSED: &str =
    "records of its history are lost; look at its work area before it is resumed";

/// What a history was made whole with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repaired {
    /// Where it is kept as it was; none if it was missing.
    pub kept: Option<PathBuf>,
    /// Records that are lost all the same.
    pub lost: u64,
}

/// The records of a history by their numbers, each as it was written.
#[derive(Debug, Default)]
pub struct Records(BTreeMap<u64, Box<RawValue>>);

impl Records {
    /// Adds what can be read of an earlier copy of a history, and nothing of one that is another's: a history that was
    /// repaired without all of its records has other numbers than before.
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

    /// How many of the first `count` records are missing, and of those before the last one that is there.
    #[must_use]
    pub fn missing(&self, count: u64) -> u64 {
        let last = self.0.keys().next_back().copied().unwrap_or_default();
        let there = u64::try_from(self.0.len()).unwrap_or(u64::MAX);
        last.max(count).saturating_sub(there)
    }
}

impl WorkArea {
    /// Writes a history anew with the records there are, and keeps it as it was beside itself. A task that lacks records
    /// is paused: what it has done may be missing. Nobody may have the work area open. Durable when it returns.
    ///
    /// # Errors
    ///
    /// [`WorkAreaError::NoTask`] if nobody has the first record, and [`WorkAreaError::File`].
    pub fn repair(
        disk: &dyn Disk,
        root: &Path,
        records: Records,
        register: &Register<'_>,
        now: Timestamp,
    ) -> Result<Repaired, WorkAreaError> {
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
            history.append(&Entry {
                timestamp: now,
                fact: Fact::TaskPaused { reason, why },
            })?;
            history.sync()?;
        }
        register.acknowledge()?;
        register.note(&[HISTORY]);
        Ok(Repaired { kept, lost })
    }
}

/// The bytes of a history, if there is one.
///
/// # Errors
///
/// [`WorkAreaError::File`].
pub fn read_history(disk: &dyn Disk, path: &Path) -> Result<Option<Vec<u8>>, WorkAreaError> {
    if disk.stat(path).during("look at", path)?.is_none() {
        return Ok(None);
    }
    let mut file = disk.open_read(path).during("open", path)?;
    let content = read_all(file.as_mut(), HISTORY_BYTES_MAX).during("read", path)?;
    Ok(Some(content))
}
