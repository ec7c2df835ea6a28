//! Expected state of the files of a conversation, a task or a run, stored outside of its folder
//! (`MSG-11`).
//!
//! A folder that was removed, or a file in it that was truncated, emptied or reset to an earlier
//! state, looks intact on its own. So each such folder has a *register* beside the others of its
//! workspace, which holds [manifests](crate::manifest):
//!
//! ```text
//! <workspace>/<group>/<name>/…                the folder
//! <workspace>/known/<group>/<name>/
//! ├── files.jsonl                             that the folder exists, and how far its files are durable
//! └── here.jsonl                              the same for files that only this machine has
//! ```
//!
//! # Invariants
//!
//! * A claim is written after the sync that it describes, and is not synced itself. It costs no
//!   sync, and after a crash it may only be behind the file, which is not a finding.
//! * A claim is durably retracted before its file is rewritten or removed.
//! * A file that is replaced as a whole always matches its old or its new claim
//!   ([`Register::replace`]).
//! * A claim that a file does not match stays, or is recorded as a finding, until a person
//!   acknowledges it.
//! * One caller at a time changes a register: callers on several threads wait for each other, but
//!   only for the same register.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use serde::{Deserialize, Serialize};

use crate::disk::{Disk, EntryKind};
use crate::error::{FileError, IoContext as _};
use crate::files;
use crate::findings::{Finding, FindingKind, Severity};
use crate::journal::Journal;
use crate::manifest::{
    Claim, ClaimMatch, Manifest, ManifestContent, RunningChecksum, State, is_same, standing,
    standing_of_missing,
};

/// The directory of registers, in that of a workspace.
pub const REGISTERS: &str = "known";
/// Manifest of files that exist on every machine of the workspace.
const FILES: &str = "files.jsonl";
/// Manifest of files that exist only on this machine.
pub const HERE: &str = "here.jsonl";

/// Claims of the files of a folder, by their paths below it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaimTable {
    files: BTreeMap<String, Claim>,
    /// New claims of files that are being replaced.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    next: BTreeMap<String, Claim>,
}

impl State for ClaimTable {
    fn files(&self) -> &BTreeMap<String, Claim> {
        &self.files
    }

    fn files_mut(&mut self) -> &mut BTreeMap<String, Claim> {
        &mut self.files
    }
}

/// The locks of the registers that are being changed.
static LOCKS: Mutex<BTreeMap<PathBuf, Weak<Mutex<()>>>> = Mutex::new(BTreeMap::new());

/// The lock of the register at `path`.
fn lock_of(path: &Path) -> Arc<Mutex<()>> {
    let mut locks = LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(lock) = locks.get(path).and_then(Weak::upgrade) {
        return lock;
    }
    locks.retain(|_, lock| lock.strong_count() > 0);
    let lock = Arc::new(Mutex::new(()));
    locks.insert(path.to_owned(), Arc::downgrade(&lock));
    lock
}

fn hold(lock: &Mutex<()>) -> MutexGuard<'_, ()> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Expected state of the files of one folder.
#[derive(Debug, Clone)]
pub struct Register<'d> {
    disk: &'d dyn Disk,
    subject: PathBuf,
    dir: PathBuf,
    name: &'static str,
}

impl<'d> Register<'d> {
    /// The register of the folder `<workspace>/<group>/<name>`.
    #[must_use]
    pub fn of(disk: &'d dyn Disk, subject: &Path) -> Self {
        let group = subject.parent().unwrap_or(Path::new("/"));
        let workspace = group.parent().unwrap_or(Path::new("/"));
        let name = group.file_name().unwrap_or_default();
        Self::in_group(disk, workspace, Path::new(name), subject)
    }

    /// The register of a folder of a workspace, wherever the folder is.
    #[must_use]
    pub fn in_group(disk: &'d dyn Disk, workspace: &Path, group: &Path, subject: &Path) -> Self {
        let name = subject.file_name().unwrap_or_default();
        Self {
            disk,
            subject: subject.to_owned(),
            dir: workspace.join(REGISTERS).join(group).join(name),
            name: FILES,
        }
    }

    /// The register of files that other machines do not have.
    #[must_use]
    pub fn here(mut self) -> Self {
        self.name = HERE;
        self
    }

    #[must_use]
    pub fn subject(&self) -> &Path {
        &self.subject
    }

    /// Number of records that a file is known to have had; `None` without a claim.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn records(&self, name: &str) -> Result<Option<u64>, FileError> {
        let known = self.read()?.state.files;
        Ok(known.get(name).map(|claim| claim.records))
    }

    fn path(&self) -> PathBuf {
        self.dir.join(self.name)
    }

    /// True if the register has claims about the folder.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn exists(&self) -> Result<bool, FileError> {
        let path = self.path();
        Ok(self.disk.stat(&path).during("inspect", &path)?.is_some())
    }

    /// Records that the folder exists, and the current state of its files, which must be durable
    /// and append-only or immutable. Failures are ignored, because the files themselves are
    /// durable.
    pub fn note(&self, names: &[&str]) {
        let noted = self.change(|known, manifest| {
            for name in names {
                self.extend(known, manifest, name)?;
            }
            Ok(())
        });
        self.report(noted);
    }

    /// As [`Self::note`], but only for files without a claim.
    pub fn note_new(&self, names: &[&str]) {
        let noted = self.exists().and_then(|exists| {
            let known = self.read()?.state.files;
            let is_new = |name: &&&str| !known.contains_key(**name);
            let new: Vec<&str> = names.iter().filter(is_new).copied().collect();
            if !(exists && new.is_empty()) {
                self.note(&new);
            }
            Ok(())
        });
        self.report(noted);
    }

    fn report(&self, noted: Result<(), FileError>) {
        if let Err(error) = noted {
            tracing::warn!(
                path = %self.path().display(),
                error = &error as &dyn std::error::Error,
                "failed to record the durable length of files; later losses may go unnoticed"
            );
        }
    }

    /// Replaces a file, as [`files::replace`] does. After a crash at any moment the file matches
    /// its claim.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`]; then the old content is still there.
    pub fn replace(&self, name: &str, content: &[u8]) -> Result<(), FileError> {
        let mut running = RunningChecksum::default();
        running.add(content);
        let next = running.claim();
        self.change_durably(|known, manifest| {
            self.settle(known, manifest, name)?;
            // A file without a claim gets one only after it was written.
            if known.files.contains_key(name) {
                known.next.insert(name.to_owned(), next);
            }
            Ok(())
        })?;
        files::replace(self.disk, &self.subject.join(name), content)?;
        let settled = self.change(|known, _| {
            known.next.remove(name);
            known.files.insert(name.to_owned(), next);
            Ok(())
        });
        self.report(settled);
        Ok(())
    }

    /// Finishes a replacement that was interrupted before its end was recorded, and records missing
    /// data as a finding before the old content is lost.
    fn settle(
        &self,
        known: &mut ClaimTable,
        manifest: &mut Manifest<ClaimTable>,
        name: &str,
    ) -> Result<(), FileError> {
        let path = self.subject.join(name);
        if let Some(next) = known.next.remove(name)
            && self.standing(&path, next)? == ClaimMatch::Whole
        {
            known.files.insert(name.to_owned(), next);
        }
        let Some(claim) = known.files.get(name).copied() else {
            return Ok(());
        };
        let finding = self.standing(&path, claim)?.finding(&path, claim);
        if let Some(finding) = &finding {
            tracing::error!(
                path = %path.display(),
                problem = finding.problem,
                "a file is not as it was left; `gdn daemon verify --repair` acknowledges that"
            );
        }
        manifest.remember(finding.as_slice())
    }

    /// Durably retracts the claim of a file that is about to be rewritten, and records missing data
    /// as a finding.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn rewrite(&self, name: &str) -> Result<(), FileError> {
        if !self.exists()? {
            return Ok(());
        }
        self.change_durably(|known, manifest| {
            self.settle(known, manifest, name)?;
            known.files.remove(name);
            Ok(())
        })
    }

    /// Claims a file as it is instead of as it was: a person may have changed it on purpose. Durable when it returns.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn take_as_it_is(&self, name: &str) -> Result<(), FileError> {
        if !self.exists()? {
            return Ok(());
        }
        self.change_durably(|known, manifest| {
            let claim = known.files.remove(name);
            known.next.remove(name);
            self.extend(known, manifest, name)?;
            // A missing file does not replace its claim.
            if let (Some(claim), None) = (claim, known.files.get(name)) {
                known.files.insert(name.to_owned(), claim);
            }
            Ok(())
        })
    }

    /// Prepares for a folder that will replace a missing one, which is recorded as one finding, in
    /// the register of all machines if it exists. Durable when it returns. Does nothing without
    /// claims, or if the folder exists.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn begin_again(&self) -> Result<(), FileError> {
        if !(self.exists()? && self.is_folder_gone()?) {
            return Ok(());
        }
        let is_recorded = self.name == HERE && {
            let path = self.dir.join(FILES);
            self.disk.stat(&path).during("inspect", &path)?.is_some()
        };
        let problem = "an earlier folder of this name was removed, and everything in it is lost";
        self.change_durably(|known, manifest| {
            if !is_recorded {
                manifest.remember(&[self.folder_finding(problem)])?;
            }
            *known = ClaimTable::default();
            Ok(())
        })
    }

    /// Durably retracts the claims of files with this name prefix, which are about to be rewritten
    /// or removed.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn release(&self, prefix: &str) -> Result<(), FileError> {
        if !self.exists()? {
            return Ok(());
        }
        self.change_durably(|known, _| {
            known.files.retain(|name, _| !name.starts_with(prefix));
            known.next.retain(|name, _| !name.starts_with(prefix));
            Ok(())
        })
    }

    /// Forgets the folder, which is about to be removed. Durable when it returns.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn forget(&self) -> Result<(), FileError> {
        let lock = lock_of(&self.path());
        let _held = hold(&lock);
        let dir = &self.dir;
        if self.disk.stat(dir).during("inspect", dir)?.is_none() {
            return Ok(());
        }
        self.disk.remove_tree(dir).during("remove", dir)?;
        let above = dir.parent().unwrap_or(Path::new("/"));
        self.disk.sync_dir(above).during("sync", above)
    }

    /// Compares the files with their claims, and returns current mismatches and earlier
    /// unacknowledged ones. Changes nothing, and may run while others write.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn check(&self) -> Result<Vec<Finding>, FileError> {
        let mut findings = self.compare()?;
        for finding in self.read()?.unacknowledged {
            if !findings.iter().any(|found| is_same(found, &finding)) {
                findings.push(finding);
            }
        }
        Ok(findings)
    }

    /// As [`Self::check`], but only with current mismatches.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn compare(&self) -> Result<Vec<Finding>, FileError> {
        if !self.exists()? {
            return Ok(Vec::new());
        }
        let state = self.read()?.state;
        let mut findings = Vec::new();
        if self.is_folder_gone()? {
            // It may have been removed since it was looked up.
            if self.exists()? {
                let problem = "the folder was removed, and everything in it is lost";
                findings.push(self.folder_finding(problem));
            }
            return Ok(findings);
        }
        for (name, claim) in &state.files {
            findings.extend(self.confirmed(&state, name, *claim)?);
        }
        Ok(findings)
    }

    /// Acknowledges lost data: the current state of the files becomes the expected one.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn acknowledge(&self) -> Result<(), FileError> {
        if !self.exists()? {
            return Ok(());
        }
        if self.is_folder_gone()? {
            return self.forget();
        }
        let state = self.read()?.state;
        let lock = lock_of(&self.path());
        let _held = hold(&lock);
        let mut manifest = self.open()?;
        let mut known = manifest.state().clone();
        for (name, claim) in &state.files {
            if self.finding_of(&state, name, *claim)?.is_some() {
                known.files.remove(name);
                self.extend(&mut known, &mut manifest, name)?;
            }
        }
        manifest.note(known);
        manifest.acknowledge(self.disk)
    }

    fn is_folder_gone(&self) -> Result<bool, FileError> {
        let stat = self.disk.stat(&self.subject);
        let stat = stat.during("inspect", &self.subject)?;
        Ok(stat.is_none_or(|stat| stat.kind != EntryKind::Directory))
    }

    fn folder_finding(&self, problem: &str) -> Finding {
        Finding::new(&self.subject, FindingKind::MissingFile, problem)
            .severity(Severity::Error)
            .advice(
                "restore it from a backup, or acknowledge the loss: `gdn daemon verify --repair`",
            )
    }

    /// Problem of a file; `None` if its claim was retracted or extended meanwhile.
    fn confirmed(
        &self,
        state: &ClaimTable,
        name: &str,
        claim: Claim,
    ) -> Result<Option<Finding>, FileError> {
        let Some(finding) = self.finding_of(state, name, claim)? else {
            return Ok(None);
        };
        let again = self.read()?.state;
        let is_same_claim =
            again.files.get(name) == Some(&claim) && again.next.get(name) == state.next.get(name);
        Ok(is_same_claim.then_some(finding))
    }

    fn finding_of(
        &self,
        state: &ClaimTable,
        name: &str,
        claim: Claim,
    ) -> Result<Option<Finding>, FileError> {
        let path = self.subject.join(name);
        let standing = self.standing(&path, claim)?;
        if standing == ClaimMatch::Whole {
            return Ok(None);
        }
        if let Some(next) = state.next.get(name)
            && self.standing(&path, *next)? == ClaimMatch::Whole
        {
            return Ok(None);
        }
        Ok(standing.finding(&path, claim))
    }

    fn standing(&self, path: &Path, claim: Claim) -> Result<ClaimMatch, FileError> {
        match self.open_read(path)? {
            Some(mut journal) => standing(&mut journal, claim),
            None => Ok(standing_of_missing(claim)),
        }
    }

    /// Opens a file if it exists. Any other node at its path counts as missing.
    fn open_read(&self, path: &Path) -> Result<Option<Journal>, FileError> {
        let stat = self.disk.stat(path).during("inspect", path)?;
        match stat.map(|stat| stat.kind) {
            Some(EntryKind::File) => Ok(Some(Journal::open_read(self.disk, path)?)),
            Some(EntryKind::Directory | EntryKind::Other) | None => Ok(None),
        }
    }

    /// Extends a claim to the current content of a file. Missing data is recorded as a finding
    /// first.
    fn extend(
        &self,
        known: &mut ClaimTable,
        manifest: &mut Manifest<ClaimTable>,
        name: &str,
    ) -> Result<(), FileError> {
        let path = self.subject.join(name);
        let Some(mut journal) = self.open_read(&path)? else {
            return Ok(());
        };
        let len = journal.len();
        let claim = known.files.get(name).copied();
        let mut running = match claim {
            Some(claim) if claim.bytes <= len => RunningChecksum::from(claim),
            Some(claim) => {
                let finding = standing(&mut journal, claim)?.finding(&path, claim);
                manifest.remember(finding.as_slice())?;
                RunningChecksum::default()
            }
            None => RunningChecksum::default(),
        };
        running.read_to(&mut journal, len)?;
        known.files.insert(name.to_owned(), running.claim());
        Ok(())
    }

    fn read(&self) -> Result<ManifestContent<ClaimTable>, FileError> {
        ManifestContent::read(self.disk, &self.path())
    }

    fn open(&self) -> Result<Manifest<ClaimTable>, FileError> {
        let path = self.path();
        if self.disk.stat(&path).during("inspect", &path)?.is_none() {
            self.make_dir(&self.dir)?;
        }
        Manifest::open(self.disk, &path)
    }

    /// Makes a directory and those above it. They are not synced: a register that a crash takes claims nothing.
    fn make_dir(&self, dir: &Path) -> Result<(), FileError> {
        if self.disk.stat(dir).during("inspect", dir)?.is_some() {
            return Ok(());
        }
        if let Some(above) = dir.parent() {
            self.make_dir(above)?;
        }
        self.disk.create_dir(dir).during("create", dir)
    }

    fn change(
        &self,
        change: impl FnOnce(&mut ClaimTable, &mut Manifest<ClaimTable>) -> Result<(), FileError>,
    ) -> Result<(), FileError> {
        let lock = lock_of(&self.path());
        let _held = hold(&lock);
        let mut manifest = self.open()?;
        let mut known = manifest.state().clone();
        change(&mut known, &mut manifest)?;
        manifest.note(known);
        manifest.compact(self.disk)
    }

    fn change_durably(
        &self,
        change: impl FnOnce(&mut ClaimTable, &mut Manifest<ClaimTable>) -> Result<(), FileError>,
    ) -> Result<(), FileError> {
        let lock = lock_of(&self.path());
        let _held = hold(&lock);
        let mut manifest = self.open()?;
        let mut known = manifest.state().clone();
        change(&mut known, &mut manifest)?;
        if known != *manifest.state() {
            manifest.note_durably(self.disk, known)?;
        }
        Ok(())
    }
}

/// The names of the folders of a group that are known to exist.
///
/// # Errors
///
/// [`FileError::Io`].
pub fn names(disk: &dyn Disk, workspace: &Path, group: &str) -> Result<Vec<OsString>, FileError> {
    let dir = workspace.join(REGISTERS).join(group);
    let stat = disk.stat(&dir).during("inspect", &dir)?;
    if stat.is_none_or(|stat| stat.kind != EntryKind::Directory) {
        return Ok(Vec::new());
    }
    let mut names = Vec::new();
    for entry in disk.list(&dir).during("list", &dir)? {
        let register = dir.join(&entry.name).join(FILES);
        // A register with only local files belongs to a folder that another machine removed.
        if disk.stat(&register).during("inspect", &register)?.is_some() {
            names.push(entry.name);
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
#[path = "register_tests.rs"]
mod tests;
