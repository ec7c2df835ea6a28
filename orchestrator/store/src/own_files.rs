//! Manifest of the files of a workspace that belong to no conversation (audit log and ledger), and
//! of the system's audit log (`MSG-11`, `INST-6`).
//!
//! The [manifest](goondan_durable::manifest) is stored beside the files. It is updated with each
//! audit record, but for the ledger only after [`LEDGER_NOTE_BYTES`] of growth, so that a reply
//! costs no extra write. A loss after the last update goes unnoticed.

use std::path::{Path, PathBuf};

use goondan_durable::disk::Disk;
use goondan_durable::journal::Journal;
use goondan_durable::manifest::{
    Claim, ClaimMatch, FolderClaims, Manifest, ManifestContent, RunningChecksum, standing,
    standing_of_missing,
};
use goondan_durable::{
    FileError, Finding, FindingKind, IoContext as _, Severity, VerificationResult,
};

use crate::ledger::LEDGER_FILE;
use crate::limits::LEDGER_NOTE_BYTES;
use crate::root::AUDIT_FILE;

/// Name of the manifest in a workspace's folder and in the system's.
pub(crate) const OWN_MANIFEST: &str = "manifest.jsonl";

/// Manifest of one folder, open for writing.
#[derive(Debug)]
pub(crate) struct FolderManifest {
    manifest: Manifest<FolderClaims>,
    dir: PathBuf,
}

impl FolderManifest {
    /// Opens the manifest of a folder and compares the files with it. Missing data is recorded and
    /// logged; after that the files' current state is the expected one.
    pub(crate) fn open(disk: &dyn Disk, dir: &Path) -> Result<Self, FileError> {
        let manifest = Manifest::open(disk, &dir.join(OWN_MANIFEST))?;
        let mut own = Self {
            manifest,
            dir: dir.to_owned(),
        };
        let claims = own.manifest.state().files.clone();
        for (file, claim) in claims {
            if own.lost(disk, &file, claim)? {
                own.take_as_it_is(disk, &file)?;
            }
        }
        Ok(own)
    }

    /// Records the current state of a file, which must be durable.
    pub(crate) fn note(&mut self, disk: &dyn Disk, file: &str) -> Result<(), FileError> {
        let path = self.dir.join(file);
        let Some(mut journal) = open_read(disk, &path)? else {
            return Ok(());
        };
        let claim = self.manifest.claim(file);
        let mut running = match claim {
            Some(claim) if claim.bytes <= journal.len() => RunningChecksum::from(claim),
            Some(claim) => {
                self.lost(disk, file, claim)?;
                RunningChecksum::default()
            }
            None => RunningChecksum::default(),
        };
        let len = journal.len();
        running.read_to(&mut journal, len)?;
        let mut state = self.manifest.state().clone();
        state.files.insert(file.to_owned(), running.claim());
        self.manifest.note(state);
        self.manifest.compact(disk)
    }

    /// Records the state of the ledger, if it has grown by [`LEDGER_NOTE_BYTES`] since the last
    /// update.
    pub(crate) fn note_ledger(&mut self, disk: &dyn Disk, bytes: u64) -> Result<(), FileError> {
        let known = self.manifest.claim(LEDGER_FILE).map_or(0, |it| it.bytes);
        if bytes.abs_diff(known) < LEDGER_NOTE_BYTES {
            return Ok(());
        }
        self.note(disk, LEDGER_FILE)
    }

    /// Drops the claim about the ledger before the ledger is rewritten.
    pub(crate) fn release_ledger(&mut self, disk: &dyn Disk) -> Result<(), FileError> {
        self.manifest.release(disk, LEDGER_FILE)
    }

    /// Acknowledges all losses. From now on the files' current state is the expected one.
    pub(crate) fn acknowledge(&mut self, disk: &dyn Disk) -> Result<(), FileError> {
        for file in [AUDIT_FILE, LEDGER_FILE] {
            self.take_as_it_is(disk, file)?;
        }
        self.manifest.acknowledge(disk)
    }

    /// Returns true, and records the loss, if a file does not match its claim.
    fn lost(&mut self, disk: &dyn Disk, file: &str, claim: Claim) -> Result<bool, FileError> {
        let path = self.dir.join(file);
        let Some(finding) = finding_of(disk, &path, claim)? else {
            return Ok(false);
        };
        tracing::error!(
            path = %path.display(),
            problem = finding.problem,
            "file does not match its manifest; run `gdn daemon verify --repair` to acknowledge"
        );
        self.manifest.remember(&[finding])?;
        Ok(true)
    }

    fn take_as_it_is(&mut self, disk: &dyn Disk, file: &str) -> Result<(), FileError> {
        self.manifest.release(disk, file)?;
        self.note(disk, file)
    }
}

/// Compares the files of a folder with the manifest, and adds earlier losses that are not
/// acknowledged. Changes nothing.
pub(crate) fn check(
    disk: &dyn Disk,
    dir: &Path,
    out: &mut VerificationResult,
) -> Result<(), FileError> {
    let known = ManifestContent::<FolderClaims>::read(disk, &dir.join(OWN_MANIFEST))?;
    for (file, claim) in known.state.files {
        out.findings
            .extend(finding_of(disk, &dir.join(file), claim)?);
    }
    for finding in known.unacknowledged {
        if !out.findings.contains(&finding) {
            out.findings.push(finding);
        }
    }
    Ok(())
}

/// Marks the losses covered by [`FolderManifest::acknowledge`].
pub(crate) fn mark_acknowledged(found: &mut VerificationResult) {
    for finding in &mut found.findings {
        let name = finding.path.file_name().and_then(|name| name.to_str());
        let is_lost = matches!(
            finding.kind,
            FindingKind::MissingRecords | FindingKind::ReplacedFile
        );
        if is_lost && finding.line.is_none() && matches!(name, Some(AUDIT_FILE | LEDGER_FILE)) {
            mark(finding);
        }
    }
}

/// Marks a loss as acknowledged.
pub(crate) fn mark(finding: &mut Finding) {
    finding.severity = Severity::Warning;
    "acknowledged: it is not reported again".clone_into(&mut finding.advice);
}

fn finding_of(disk: &dyn Disk, path: &Path, claim: Claim) -> Result<Option<Finding>, FileError> {
    let standing: ClaimMatch = match open_read(disk, path)? {
        Some(mut journal) => standing(&mut journal, claim)?,
        None => standing_of_missing(claim),
    };
    Ok(standing.finding(path, claim))
}

fn open_read(disk: &dyn Disk, path: &Path) -> Result<Option<Journal>, FileError> {
    if disk.stat(path).during("inspect", path)?.is_none() {
        return Ok(None);
    }
    Ok(Some(Journal::open_read(disk, path)?))
}

#[cfg(test)]
#[path = "own_files_tests.rs"]
mod tests;
