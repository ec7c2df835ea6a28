//! Recorded expectations about files, stored in a separate file (`MSG-11`).
//!
//! A file that was removed, truncated, exchanged or restored from an older copy looks intact on its
//! own. So a *manifest* outside its folder records the file's length at the last sync and the
//! checksum of its content. A manifest is written after the syncs it describes and is not synced
//! itself. A manifest that is behind its files is normal after a crash; files that are behind their
//! manifest have lost data.
//!
//! The manifest also keeps losses until a user acknowledges them, because later appends would hide
//! them.
//!
//! A file is released, durably, before it is rewritten, so that no claim remains that the new file
//! cannot meet.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crc32fast::Hasher;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::checksum::{RecordPosition, Seal, seal, seal_of};
use crate::disk::{Disk, EntryKind};
use crate::error::{FileError, IoContext as _};
use crate::files;
use crate::findings::{Finding, FindingKind, Severity};
use crate::journal::Journal;
use crate::limits::{MANIFEST_COMPACT_BYTES, MANIFEST_FINDINGS_MAX, READ_CHUNK_BYTES};

/// Length and content of a file at its last sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    pub records: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// CRC-32 of the bytes.
    pub crc32: u32,
}

/// State of a manifest: claims about the files of a folder, plus additional data of its owner.
pub trait State: Clone + Default + PartialEq + Serialize + DeserializeOwned {
    /// Returns the claims by file name.
    fn files(&self) -> &BTreeMap<String, Claim>;

    /// Returns the claims by file name, mutable.
    fn files_mut(&mut self) -> &mut BTreeMap<String, Claim>;
}

/// Claims about the files of a folder, without additional data.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FolderClaims {
    pub files: BTreeMap<String, Claim>,
}

impl State for FolderClaims {
    fn files(&self) -> &BTreeMap<String, Claim> {
        &self.files
    }

    fn files_mut(&mut self) -> &mut BTreeMap<String, Claim> {
        &mut self.files
    }
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum ManifestRecord<S> {
    State(S),
    /// A finding with a path relative to the manifest's folder.
    Finding(Box<Finding>),
}

/// Result of comparing a file with its claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimMatch {
    /// The file begins with the claimed content.
    Whole,
    Short {
        records: u64,
        /// Number of its bytes.
        bytes: u64,
    },
    Replaced,
}

impl ClaimMatch {
    /// Returns the finding, if there is a loss.
    pub fn finding(self, path: &Path, claim: Claim) -> Option<Finding> {
        let Claim { records, bytes, .. } = claim;
        match self {
            Self::Whole => None,
            Self::Short {
                records: left,
                bytes: left_bytes,
            } => {
                let problem = format!(
                    "expected {records} records in {bytes} bytes, found {left} in {left_bytes}: the \
                     rest is lost"
                );
                Some(Finding::new(path, FindingKind::MissingRecords, problem))
            }
            Self::Replaced => {
                let problem = format!(
                    "the first {bytes} bytes with {records} records differ from those written: the \
                     file was edited, or replaced by an older or other file"
                );
                Some(Finding::new(path, FindingKind::ReplacedFile, problem))
            }
        }
    }
}

/// Running length and checksum of a growing file.
#[derive(Debug, Clone, Default)]
pub struct RunningChecksum {
    records: u64,
    bytes: u64,
    hasher: Hasher,
}

impl From<Claim> for RunningChecksum {
    fn from(claim: Claim) -> Self {
        let Claim {
            records,
            bytes,
            crc32,
        } = claim;
        Self {
            records,
            bytes,
            hasher: Hasher::new_with_initial_len(crc32, bytes),
        }
    }
}

impl RunningChecksum {
    /// Returns the totals of a whole file.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn of(journal: &mut Journal) -> Result<Self, FileError> {
        let mut running = Self::default();
        let len = journal.len();
        running.read_to(journal, len)?;
        Ok(running)
    }

    /// Adds appended whole lines.
    pub fn add(&mut self, bytes: &[u8]) {
        self.records += bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.bytes += bytes.len() as u64;
        self.hasher.update(bytes);
    }

    /// Adds the content of a file up to byte `to`.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn read_to(&mut self, journal: &mut Journal, to: u64) -> Result<(), FileError> {
        while self.bytes < to {
            let left = usize::try_from(to - self.bytes).unwrap_or(usize::MAX);
            let chunk = journal.read(self.bytes, left.min(READ_CHUNK_BYTES))?;
            if chunk.is_empty() {
                break;
            }
            self.add(&chunk);
        }
        Ok(())
    }

    /// Returns the claim for the totals.
    #[must_use]
    pub fn claim(&self) -> Claim {
        Claim {
            records: self.records,
            bytes: self.bytes,
            crc32: self.hasher.clone().finalize(),
        }
    }
}

/// Reads the claimed part of a file and compares it with the claim.
///
/// # Errors
///
/// [`FileError::Io`].
pub fn standing(journal: &mut Journal, claim: Claim) -> Result<ClaimMatch, FileError> {
    let mut found = RunningChecksum::default();
    found.read_to(journal, claim.bytes)?;
    Ok(stands(found.claim(), claim))
}

/// As [`standing`], for a missing file.
pub fn standing_of_missing(claim: Claim) -> ClaimMatch {
    stands(RunningChecksum::default().claim(), claim)
}

fn stands(found: Claim, claim: Claim) -> ClaimMatch {
    let Claim { records, bytes, .. } = found;
    if found == claim {
        ClaimMatch::Whole
    } else if bytes < claim.bytes {
        ClaimMatch::Short { records, bytes }
    } else {
        ClaimMatch::Replaced
    }
}

#[derive(Debug, Clone, Default)]
pub struct ManifestContent<S> {
    pub state: S,
    /// Losses that are not acknowledged.
    pub unacknowledged: Vec<Finding>,
    records: u64,
    /// True if it has invalid records, which a crash may leave.
    is_odd: bool,
}

impl<S: State> ManifestContent<S> {
    /// Reads a manifest; empty if the file does not exist.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn read(disk: &dyn Disk, path: &Path) -> Result<Self, FileError> {
        let stat = disk.stat(path).during("inspect", path)?;
        if stat.is_none_or(|stat| stat.kind != EntryKind::File) {
            return Ok(Self::default());
        }
        Self::of(&mut Journal::open_read(disk, path)?)
    }

    fn of(journal: &mut Journal) -> Result<Self, FileError> {
        let dir = folder(journal.path());
        let mut content = Self::default();
        let good = journal.scan(|_, line| {
            let record = match seal_of(line) {
                Seal::Whole(_) => serde_json::from_slice(line).ok(),
                Seal::Absent | Seal::Broken => None,
            };
            content.records += 1;
            match record {
                Some(ManifestRecord::State(state)) => content.state = state,
                Some(ManifestRecord::Finding(finding)) => {
                    let path = dir.join(&finding.path);
                    content.unacknowledged.push(Finding { path, ..*finding });
                }
                None => content.is_odd = true,
            }
        })?;
        content.is_odd |= good < journal.len();
        Ok(content)
    }
}

fn folder(path: &Path) -> PathBuf {
    path.parent().unwrap_or(Path::new("/")).to_owned()
}

/// A manifest, open for writing.
#[derive(Debug)]
pub struct Manifest<S> {
    /// `None` after a failed write: the manifest stays outdated until it is reopened.
    journal: Option<Journal>,
    path: PathBuf,
    content: ManifestContent<S>,
}

impl<S: State> Manifest<S> {
    /// Opens or creates a manifest, and repairs the remains of a crash.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn open(disk: &dyn Disk, path: &Path) -> Result<Self, FileError> {
        let mut journal = Journal::open(disk, path)?;
        let content = ManifestContent::of(&mut journal)?;
        let is_odd = content.is_odd;
        let mut manifest = Self {
            journal: Some(journal),
            path: path.to_owned(),
            content,
        };
        if is_odd {
            manifest.rewrite(disk)?;
        }
        Ok(manifest)
    }

    #[must_use]
    pub fn state(&self) -> &S {
        &self.content.state
    }

    /// Returns the claim about a file, if any.
    #[must_use]
    pub fn claim(&self, file: &str) -> Option<Claim> {
        self.content.state.files().get(file).copied()
    }

    /// Returns the losses that are not acknowledged.
    #[must_use]
    pub fn unacknowledged(&self) -> &[Finding] {
        &self.content.unacknowledged
    }

    /// Records the durable state. A failure is only logged, because the files themselves are
    /// durable.
    pub fn note(&mut self, state: S) {
        if self.content.state == state || self.journal.is_none() {
            return;
        }
        if let Err(error) = self.append(&ManifestRecord::State(state.clone()), false) {
            tracing::warn!(
                path = %self.path.display(),
                error = &error as &dyn std::error::Error,
                "failed to update a manifest; a later loss may go unnoticed"
            );
            self.journal = None;
            return;
        }
        self.content.state = state;
    }

    /// Drops the claim about a file before it is rewritten. Durable when it returns.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn release(&mut self, disk: &dyn Disk, file: &str) -> Result<(), FileError> {
        let mut state = self.content.state.clone();
        if state.files_mut().remove(file).is_none() {
            return Ok(());
        }
        self.note_durably(disk, state)
    }

    /// As [`Self::note`], and durable when it returns.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn note_durably(&mut self, disk: &dyn Disk, state: S) -> Result<(), FileError> {
        if self.journal.is_none() {
            self.content.state = state;
            return self.rewrite(disk);
        }
        self.append(&ManifestRecord::State(state.clone()), true)?;
        self.content.state = state;
        Ok(())
    }

    /// Records losses. Durable when it returns.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn remember(&mut self, findings: &[Finding]) -> Result<(), FileError> {
        let dir = folder(&self.path);
        let mut is_new = false;
        for finding in findings.iter().filter(|finding| is_loss(finding)) {
            let is_known = |known: &Finding| is_same(known, finding);
            let known = &mut self.content.unacknowledged;
            if known.len() >= MANIFEST_FINDINGS_MAX || known.iter().any(is_known) {
                continue;
            }
            known.push(finding.clone());
            let path = finding.path.strip_prefix(&dir).unwrap_or(&finding.path);
            let relative = Finding {
                path: path.to_owned(),
                ..finding.clone()
            };
            self.append(&ManifestRecord::Finding(Box::new(relative)), false)?;
            is_new = true;
        }
        match &mut self.journal {
            Some(journal) if is_new => journal.sync(),
            Some(_) | None => Ok(()),
        }
    }

    /// Removes the recorded losses after a user acknowledged them. Durable when it returns.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn acknowledge(&mut self, disk: &dyn Disk) -> Result<(), FileError> {
        self.content.unacknowledged.clear();
        self.rewrite(disk)
    }

    /// Compacts a large manifest. Durable when it returns.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn compact(&mut self, disk: &dyn Disk) -> Result<(), FileError> {
        let len = self.journal.as_ref().map_or(0, Journal::len);
        if len < MANIFEST_COMPACT_BYTES {
            return Ok(());
        }
        self.rewrite(disk)
    }

    fn append(&mut self, record: &ManifestRecord<S>, is_synced: bool) -> Result<(), FileError> {
        let Some(journal) = &mut self.journal else {
            return Ok(());
        };
        let n = self.content.records + 1;
        journal.append(&seal(record, RecordPosition { n, durable: 0 })?)?;
        journal.write_out()?;
        self.content.records = n;
        if is_synced {
            journal.sync()?;
        }
        Ok(())
    }

    fn rewrite(&mut self, disk: &dyn Disk) -> Result<(), FileError> {
        let dir = folder(&self.path);
        let findings = self.content.unacknowledged.iter().map(|finding| {
            let path = finding.path.strip_prefix(&dir).unwrap_or(&finding.path);
            ManifestRecord::Finding(Box::new(Finding {
                path: path.to_owned(),
                ..finding.clone()
            }))
        });
        let state = ManifestRecord::State(self.content.state.clone());
        let mut bytes = Vec::new();
        let mut n = 0;
        for record in findings.chain([state]) {
            n += 1;
            bytes.extend(seal(&record, RecordPosition { n, durable: n - 1 })?);
        }
        files::replace(disk, &self.path, &bytes)?;
        self.journal = Some(Journal::open(disk, &self.path)?);
        (self.content.records, self.content.is_odd) = (n, false);
        Ok(())
    }
}

/// True if two findings report the same problem.
pub fn is_same(a: &Finding, b: &Finding) -> bool {
    (&a.path, a.kind, &a.problem) == (&b.path, b.kind, &b.problem)
}

/// True if a finding must be recorded: a loss or foreign data. Remains of a crash are normal.
fn is_loss(finding: &Finding) -> bool {
    let is_ordinary = matches!(
        finding.kind,
        FindingKind::TornTail | FindingKind::SetAside | FindingKind::UnfinishedWork
    );
    finding.severity >= Severity::Warning && !is_ordinary
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Crash, SimulatedDisk};

    const PATH: &str = "/m/manifest.jsonl";

    fn disk() -> SimulatedDisk {
        let disk = SimulatedDisk::new();
        disk.create_dir(Path::new("/m")).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        disk
    }

    fn open(disk: &SimulatedDisk) -> Manifest<FolderClaims> {
        Manifest::open(disk, Path::new(PATH)).unwrap()
    }

    fn state(bytes: u64) -> FolderClaims {
        let claim = Claim {
            records: 1,
            bytes,
            crc32: 7,
        };
        FolderClaims {
            files: [("a.jsonl".to_owned(), claim)].into(),
        }
    }

    fn loss() -> Finding {
        let path = Path::new("/m/messages/a.jsonl");
        Finding::new(path, FindingKind::MissingRecords, "gone")
    }

    #[test]
    fn msg_11_loss_is_remembered_until_it_is_acknowledged() {
        let disk = disk();
        let mut manifest = open(&disk);
        manifest.remember(&[loss()]).unwrap();
        manifest.remember(&[loss()]).unwrap();
        manifest.note(state(9));
        for crash in [Crash::KeepUnsynced, Crash::ProcessOnly] {
            let again = open(&disk.after_crash(crash));
            assert_eq!(again.unacknowledged(), [loss()]);
            assert_eq!(again.state(), &state(9));
        }
        disk.sync_dir(Path::new("/m")).unwrap();
        let again = open(&disk.after_crash(Crash::LoseUnsynced));
        assert_eq!(again.unacknowledged(), [loss()]);
        assert_eq!(again.state(), &FolderClaims::default(), "it was not synced");
        manifest.acknowledge(&disk).unwrap();
        let again = open(&disk.after_crash(Crash::LoseUnsynced));
        assert_eq!(again.unacknowledged(), []);
        assert_eq!(again.state(), &state(9));
    }

    #[test]
    fn msg_11_torn_manifest_keeps_its_previous_state() {
        let disk = disk();
        let mut manifest = open(&disk);
        manifest.note(state(1));
        manifest.note(state(2));
        let mut file = disk.open_read(Path::new(PATH)).unwrap();
        let whole = crate::disk::read_all(file.as_mut(), 1 << 20).unwrap();
        let first = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for len in first..whole.len() {
            for fill in [b"".to_vec(), vec![0; whole.len() - len]] {
                let torn = [&whole[..len], &fill].concat();
                disk.plant(Path::new(PATH), &torn).unwrap();
                let mut again = open(&disk);
                assert_eq!(again.state(), &state(1), "{len}");
                again.note(state(3));
                let read = ManifestContent::read(&disk, Path::new(PATH)).unwrap();
                assert_eq!((read.state, read.is_odd), (state(3), false), "{len}");
            }
        }
    }

    #[test]
    fn released_file_has_no_claim_after_any_crash() {
        let disk = disk();
        let mut manifest = open(&disk);
        disk.sync_dir(Path::new("/m")).unwrap();
        manifest.note(state(1));
        manifest.release(&disk, "a.jsonl").unwrap();
        let after = disk.after_crash(Crash::LoseUnsynced);
        let again = open(&after);
        assert_eq!(again.claim("a.jsonl"), None);
    }

    #[test]
    fn msg_11_file_is_compared_with_its_claim() {
        let disk = disk();
        let path = Path::new("/m/a.jsonl");
        disk.plant(path, b"one\ntwo\n").unwrap();
        let mut journal = Journal::open(&disk, path).unwrap();
        let claim = RunningChecksum::of(&mut journal).unwrap().claim();
        assert_eq!((claim.records, claim.bytes), (2, 8));
        let against = |content: &[u8]| {
            disk.plant(path, content).unwrap();
            standing(&mut Journal::open(&disk, path).unwrap(), claim).unwrap()
        };
        assert_eq!(against(b"one\ntwo\n"), ClaimMatch::Whole);
        assert_eq!(against(b"one\ntwo\nthree\n"), ClaimMatch::Whole);
        let short = ClaimMatch::Short {
            records: 1,
            bytes: 4,
        };
        assert_eq!(against(b"one\n"), short);
        assert_eq!(against(b"one\ntwx\n"), ClaimMatch::Replaced);
    }
}
