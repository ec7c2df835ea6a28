//! Replication of proposals to other nodes of a workspace (`REP-1`).
//!
//! A sandbox is a tree that other programs write to, and it is not in a log. Therefore, before the
//! creation of a proposal is recorded, the proposal and its input are packed and replicated like
//! goondan's own files: through the disk.
//!
//! ```text
//! <sandboxes>/<run>/.handed-on/<agent>.json              the proposal and the list of packed entries
//!                              <agent>.<digest>.tar.gz   sandbox.json, input/, kept/<digest>/
//! ```
//!
//! A node that takes over the workspace unpacks missing proposals. On that node, the worker's
//! directory contains the submitted state without later changes.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use goondan_durable::disk::{DiskFile, Folder, append_all, read_all};
use goondan_durable::{files, names};
use goondan_protocol::control::SandboxRef;
use goondan_protocol::ids::RunId;
use goondan_trees::extract::extract_listed;
use goondan_trees::freeze::{EntryPolicy, freeze};
use goondan_trees::limits::Limits;
use goondan_trees::pack::{pack, sync_listed};
use goondan_trees::{Excludes, Manifest, RelativePath, remove_all};
use serde::{Deserialize, Serialize};

use crate::error::{IoContext as _, ProposalError};
use crate::guards::options;
use crate::limits::{
    HANDED_ON_SYNC_BYTES, RECORD_BYTES_MAX, SANDBOX_BYTES_MAX, SANDBOX_ENTRIES_MAX,
};
use crate::list::visible;
use crate::place::{
    AFTER, HANDED_ON, INPUT, KEPT, PARTIAL, PROPOSAL, RECORD, SANDBOX, SUPERSEDED, WORK, run_dir,
    sandbox_name,
};
use crate::record::{RECORD_VERSION, written};
use crate::sandboxes::{OpenSandbox, Sandboxes};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PackedProposal {
    version: String,
    #[serde(rename = "sandbox")]
    at: SandboxRef,
    digest: String,
    /// All packed files, links and directories.
    packed: Manifest,
}

const RECORD_SUFFIX: &str = ".json";

/// Parts of a proposal that are not packed, because they are local to this node.
const OF_THIS_NODE: [&str; 3] = ["/kept/*/apply/", "/kept/*/revert/", "/kept/*/published"];

fn directory(sandboxes: &Path, run: &RunId) -> PathBuf {
    run_dir(sandboxes, run).join(HANDED_ON)
}

fn record_path(sandboxes: &Path, at: &SandboxRef) -> PathBuf {
    let name = format!("{}{RECORD_SUFFIX}", sandbox_name(at));
    directory(sandboxes, &at.run_id).join(name)
}

fn archive_path(sandboxes: &Path, at: &SandboxRef, digest: &str) -> PathBuf {
    let name = format!("{}.{digest}.tar.gz", sandbox_name(at));
    directory(sandboxes, &at.run_id).join(name)
}

/// Two copies of a sandbox plus a margin.
fn limits() -> Limits {
    Limits::new(3 * SANDBOX_ENTRIES_MAX, 3 * SANDBOX_BYTES_MAX)
}

impl Sandboxes<'_> {
    /// Enables replication of proposals to other nodes of the workspace.
    #[must_use]
    pub fn handing_on(mut self) -> Self {
        self.hands_on = true;
        self
    }

    /// Packs a proposal for other nodes durably, replacing the previous one.
    pub(crate) fn hand_on(&self, open: &OpenSandbox, digest: &str) -> Result<(), ProposalError> {
        if !self.hands_on {
            return Ok(());
        }
        let (disk, at) = (self.files.disk(), &open.at);
        let before = self.handed_on(&record_path(&self.dir, at))?;
        files::ensure_dir(disk, &self.dir, &directory(&self.dir, &at.run_id))?;
        let kept = format!("{KEPT}/{digest}");
        let wanted = [SANDBOX, INPUT, &kept].map(RelativePath::from_text);
        let wanted: Result<Vec<_>, _> = wanted.into_iter().collect();
        let wanted = wanted.map_err(|error| fault(&error))?;
        let excludes = Excludes::new(&OF_THIS_NODE).map_err(|error| fault(&error))?;
        let path = archive_path(&self.dir, at, digest);
        let temp = files::temp_path(&path);
        let file = disk.create(&temp).during("create", &temp)?;
        let mut archive = Archive { file, unsynced: 0 };
        let packed = pack(
            open.folder.as_ref(),
            &excludes.only(wanted),
            limits(),
            &mut archive,
        )?;
        archive.file.sync().during("sync", &temp)?;
        files::install(disk, &temp, &path)?;
        let record = PackedProposal {
            version: RECORD_VERSION.to_owned(),
            at: at.clone(),
            digest: digest.to_owned(),
            packed,
        };
        files::replace(disk, &record_path(&self.dir, at), &written(&record)?)?;
        if let Some(before) = before.filter(|before| before.digest != digest) {
            let path = archive_path(&self.dir, at, &before.digest);
            disk.remove_file(&path).during("remove", &path)?;
        }
        Ok(())
    }

    /// Packs a pending proposal that was created before replication was enabled.
    pub(crate) fn hand_on_late(
        &self,
        open: &OpenSandbox,
        digest: &str,
    ) -> Result<(), ProposalError> {
        let path = archive_path(&self.dir, &open.at, digest);
        if self.hands_on
            && self
                .files
                .disk()
                .stat(&path)
                .during("inspect", &path)?
                .is_none()
        {
            self.hand_on(open, digest)?;
        }
        Ok(())
    }

    /// Removes the packed proposal of a sandbox.
    pub(crate) fn forget_handed_on(&self, at: &SandboxRef) -> Result<(), ProposalError> {
        let (disk, path) = (self.files.disk(), record_path(&self.dir, at));
        let Some(record) = self.handed_on(&path)? else {
            return Ok(());
        };
        let archive = archive_path(&self.dir, at, &record.digest);
        for path in [&path, &archive] {
            disk.remove_file(path).during("remove", path)?;
        }
        let dir = directory(&self.dir, &at.run_id);
        disk.sync_dir(&dir).during("sync", &dir)
    }

    /// Reads the record at a path, if it exists.
    fn handed_on(&self, path: &Path) -> Result<Option<PackedProposal>, ProposalError> {
        let disk = self.files.disk();
        if disk.stat(path).during("inspect", path)?.is_none() {
            return Ok(None);
        }
        let mut file = disk.open_read(path).during("open", path)?;
        let text = read_all(file.as_mut(), RECORD_BYTES_MAX).during("read", path)?;
        let damaged = |problem: String| ProposalError::Damaged {
            path: path.to_owned(),
            problem,
        };
        let record: PackedProposal =
            serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        if record_path(&self.dir, &record.at) != path {
            return Err(damaged("it is about another sandbox".to_owned()));
        }
        Ok(Some(record))
    }

    /// Unpacks the missing proposals of other nodes. Returns an error for each that failed; the
    /// next call retries them.
    pub fn take_on(&mut self) -> Vec<ProposalError> {
        let records = match self.records_handed_on() {
            Ok(records) => records,
            Err(error) => return vec![error],
        };
        let taken = records.iter().map(|path| self.take_on_one(path));
        taken.filter_map(Result::err).collect()
    }

    fn records_handed_on(&self) -> Result<Vec<PathBuf>, ProposalError> {
        let disk = self.files.disk();
        let mut found = Vec::new();
        for run in visible(disk, &self.dir)? {
            let dir = run.join(HANDED_ON);
            if disk.stat(&dir).during("inspect", &dir)?.is_none() {
                continue;
            }
            let names = disk.list(&dir).during("list", &dir)?.into_iter();
            let names = names.map(|entry| entry.name.to_string_lossy().into_owned());
            let records = names.filter(|name| name.ends_with(RECORD_SUFFIX));
            found.extend(records.map(|name| dir.join(name)));
        }
        found.sort();
        Ok(found)
    }

    fn take_on_one(&self, path: &Path) -> Result<(), ProposalError> {
        let Some(record) = self.handed_on(path)? else {
            return Ok(());
        };
        let at = &record.at;
        let standing = self.standing(at)?;
        // An archive without a log entry is left by an owner that crashed before recording the
        // proposal, or after removing it.
        if standing.is_none_or(|standing| standing.digest != record.digest) {
            return Ok(());
        }
        let run = run_dir(&self.dir, &at.run_id);
        let folder = self.files.folder(&run).during("open", &run)?;
        let name = sandbox_name(at);
        let kept = Path::new(&name).join(KEPT).join(&record.digest);
        let is_here = folder.look(&kept.join(RECORD)).during("inspect", &kept)?;
        if is_here.is_some() {
            return Ok(());
        }
        let partial = format!(".{name}{PARTIAL}");
        remove_all(folder.as_ref(), Path::new(&partial))?;
        let unpacked = self.unpack(&record, folder.as_ref(), &partial);
        let placed = unpacked.and_then(|()| {
            let (from, to) = (Path::new(&partial), Path::new(&name));
            if folder.look(to).during("inspect", to)?.is_some() {
                // The worker's state on this node from before another node owned the workspace.
                self.forget_kept(at, None)?;
                let aside = self.free_name(folder.as_ref(), &name)?;
                folder.rename_new(to, &aside).during("rename", to)?;
            }
            folder.rename_new(from, to).during("rename", to)?;
            folder.sync_dir(Path::new("")).during("sync", &run)
        });
        if placed.is_err() {
            drop(remove_all(folder.as_ref(), Path::new(&partial)));
        }
        placed
    }

    /// A free name for a sandbox that is being replaced.
    fn free_name(&self, run: &dyn Folder, name: &str) -> Result<PathBuf, ProposalError> {
        let now = names::encode(&self.now.to_string());
        let mut number = 1_u64;
        loop {
            let path = PathBuf::from(format!("{SUPERSEDED}{name}-{now}-{number}"));
            if run.look(&path).during("inspect", &path)?.is_none() {
                return Ok(path);
            }
            number += 1;
        }
    }

    fn unpack(
        &self,
        record: &PackedProposal,
        run: &dyn Folder,
        partial: &str,
    ) -> Result<(), ProposalError> {
        let path = Path::new(partial);
        run.create_dir(path, 0o700).during("create", path)?;
        let sandbox = run.below(path).during("open", path)?;
        let archive = archive_path(&self.dir, &record.at, &record.digest);
        let disk = self.files.disk();
        let file = disk.open_read(&archive).during("open", &archive)?;
        let reader = ArchiveReader { file, offset: 0 };
        extract_listed(reader, &record.packed, sandbox.as_ref(), &|_| true)?;
        sync_listed(sandbox.as_ref(), &record.packed)?;
        let kept = Path::new(KEPT).join(&record.digest);
        let after = kept.join(AFTER);
        let after = sandbox.below(&after).during("open", &after)?;
        let none = Excludes::new::<&str>(&[]).map_err(|error| fault(&error))?;
        let everything = options(none, EntryPolicy::LeaveOut);
        freeze(after.as_ref(), sandbox.as_ref(), WORK, &everything)?;
        let proposal = Path::new(PROPOSAL);
        sandbox
            .create_dir(proposal, 0o700)
            .during("create", proposal)?;
        for path in [Path::new(KEPT), Path::new("")] {
            sandbox.sync_dir(path).during("sync", path)?;
        }
        Ok(())
    }
}

fn fault(error: &dyn std::error::Error) -> ProposalError {
    ProposalError::invalid(error.to_string(), "this is a bug in goondan")
}

/// An archive being written. It is synced regularly to bound the amount of data that waits for
/// replication.
struct Archive {
    file: Box<dyn DiskFile>,
    unsynced: usize,
}

impl Write for Archive {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        append_all(self.file.as_mut(), bytes)?;
        self.unsynced += bytes.len();
        if self.unsynced >= HANDED_ON_SYNC_BYTES {
            self.unsynced = 0;
            self.file.sync()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct ArchiveReader {
    file: Box<dyn DiskFile>,
    offset: u64,
}

impl io::Read for ArchiveReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buf, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}
