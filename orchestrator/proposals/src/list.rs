//! Telling of sandboxes and proposals.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use goondan_durable::disk::{Disk, EntryKind, read_full};
use goondan_durable::names::decode_directory;
use goondan_log::error_chain;
use goondan_protocol::control::{
    FileStatus, ListProposals, ListSandboxes, ProposalDetail, ProposalDiff, ProposalFile,
    ProposalInfo, ProposalsPage, RunEvent, RunEventKind, SandboxDetail, SandboxInfo, SandboxRef,
    SandboxesPage,
};
use goondan_protocol::ids::RunId;
use goondan_trees::RelativePath;

use crate::comments::comments;
use crate::entries::{bytes, files};
use crate::error::{IoContext as _, ProposalError};
use crate::limits::{CUT_LINE_BYTES, DIFF_PART_BYTES, SUMMARY_BYTES_MAX, TEST_LOG_BYTES_MAX};
use crate::place::{
    EVENTS, INPUT, PATCH, PROPOSAL, SANDBOX, SUMMARY, TEST_LOG, WORK, run_dir, sandbox_dir,
};
use crate::record::{MayCreate, SandboxRecord, read_file, read_record};
use crate::run_log::{self, ProposalStatus};
use crate::sandboxes::{OpenSandbox, Sandboxes, StoredProposal};

impl Sandboxes<'_> {
    /// Returns one page of the sandboxes of all runs, or of one run, sorted by run and worker.
    /// Damaged sandboxes are included and marked.
    ///
    /// # Errors
    ///
    /// [`ProposalError::Io`] if the directories cannot be listed, or descriptors or memory ran out.
    pub fn list(&mut self, list: &ListSandboxes) -> Result<SandboxesPage, ProposalError> {
        let mut all = self.all(list.run_id.as_ref())?;
        all.retain(|at| list.is_behind(at));
        list.page_of(all.into_iter().map(|at| self.listed(at)))
    }

    fn listed(&mut self, at: SandboxRef) -> Result<SandboxInfo, ProposalError> {
        let info = self.open(&at).and_then(|open| {
            let standing = self.standing(&at)?;
            Ok(self.info(&open, standing.as_ref()))
        });
        match info {
            Err(error) if !error.is_shortage() => Ok(self.damaged_sandbox(at, &error)),
            info => info,
        }
    }

    /// A damaged sandbox, described from the run's log only.
    fn damaged_sandbox(&self, at: SandboxRef, error: &ProposalError) -> SandboxInfo {
        let events = self.events(&at.run_id).unwrap_or_default();
        let prepared = events.iter().rfind(|event| {
            event.agent_id == at.agent_id && event.kind == RunEventKind::SandboxPrepared
        });
        SandboxInfo {
            created_at: prepared.map(|event| event.at),
            files: 0,
            bytes: 0,
            proposal: run_log::standing(&events, &at.agent_id).map(|standing| standing.state),
            directory: sandbox_dir(&self.dir, &at),
            problem: Some(error_chain(error)),
            at,
        }
    }

    /// A damaged proposal, described from the run's log only; `None` if the log has no proposal.
    fn damaged_proposal(&self, at: SandboxRef, error: &ProposalError) -> Option<ProposalInfo> {
        let events = self.events(&at.run_id).unwrap_or_default();
        let standing = run_log::standing(&events, &at.agent_id)?;
        let created = standing.history.first()?;
        Some(ProposalInfo {
            state: standing.state,
            created_at: created.at,
            changed_files: 0,
            digest: standing.digest,
            notes: String::new(),
            directory: sandbox_dir(&self.dir, &at).join(PROPOSAL),
            problem: Some(error_chain(error)),
            at,
        })
    }

    /// Every sandbox there is, by run and worker, by the names of directories: their records may be damaged.
    pub(crate) fn all(&self, run: Option<&RunId>) -> Result<Vec<SandboxRef>, ProposalError> {
        let found = self.directories(run)?.into_iter();
        let mut all: Vec<SandboxRef> = found.filter_map(|(_, at)| at).collect();
        all.sort();
        Ok(all)
    }

    /// Directories of possible sandboxes and their identities; `None` for a directory that goondan
    /// did not create.
    pub(crate) fn directories(
        &self,
        run: Option<&RunId>,
    ) -> Result<Vec<(PathBuf, Option<SandboxRef>)>, ProposalError> {
        let runs = match run {
            Some(run) => vec![run_dir(&self.dir, run)],
            None => visible(self.files.disk(), &self.dir)?,
        };
        let mut found = Vec::new();
        for run in runs {
            for sandbox in visible(self.files.disk(), &run)? {
                let at = self.named(&run, &sandbox)?;
                found.push((sandbox, at));
            }
        }
        Ok(found)
    }

    /// Identifies a directory by its name, its record, or the run's log.
    fn named(&self, run: &Path, sandbox: &Path) -> Result<Option<SandboxRef>, ProposalError> {
        let text = |path: &Path| decode_directory(path.file_name()?.to_str()?);
        if let (Some(run_id), Some(agent_id)) = (text(run), text(sandbox)) {
            let (run_id, agent_id) = (run_id.parse(), agent_id.parse());
            let (Ok(run_id), Ok(agent_id)) = (run_id, agent_id) else {
                return Ok(None);
            };
            return Ok(Some(SandboxRef { run_id, agent_id }));
        }
        // The name of a long text is its digest.
        let is_it = |at: &SandboxRef| sandbox_dir(&self.dir, at) == sandbox;
        let folder = self.files.folder(sandbox).during("open", sandbox)?;
        if let Ok(Some(record)) = read_record::<SandboxRecord>(folder.as_ref(), SANDBOX)
            && is_it(&record.at)
        {
            return Ok(Some(record.at));
        }
        let events = run_log::read(self.files.disk(), &run.join(EVENTS)).unwrap_or_default();
        let at = events.into_iter().map(|event| SandboxRef {
            run_id: event.run_id,
            agent_id: event.agent_id,
        });
        Ok(at.into_iter().find(is_it))
    }

    /// One sandbox, with every file that it was given.
    ///
    /// # Errors
    ///
    /// [`ProposalError::NoSandbox`].
    pub fn show_sandbox(&mut self, at: &SandboxRef) -> Result<SandboxDetail, ProposalError> {
        let open = self.open(at)?;
        let standing = self.standing(at)?;
        Ok(self.sandbox_detail(&open, standing.as_ref()))
    }

    pub(crate) fn sandbox_detail(
        &self,
        open: &OpenSandbox,
        standing: Option<&ProposalStatus>,
    ) -> SandboxDetail {
        let record = &open.record;
        SandboxDetail {
            info: self.info(open, standing),
            input_dir: open.path.join(INPUT),
            work_dir: open.path.join(WORK),
            proposal_dir: open.path.join(PROPOSAL),
            base: record.base.clone(),
            given: files(&record.given),
            may_create: match &record.may_create {
                MayCreate::Anywhere => vec![".".to_owned()],
                MayCreate::Below(paths) => paths.iter().map(RelativePath::to_string).collect(),
            },
            not_given: record.not_given.clone(),
        }
    }

    /// One page of the proposals of all runs, or of one, by run and worker.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list).
    pub fn list_proposals(&mut self, list: &ListProposals) -> Result<ProposalsPage, ProposalError> {
        let mut all = self.all(list.run_id.as_ref())?;
        all.retain(|at| list.is_behind(at));
        list.page_of(
            all.into_iter()
                .filter_map(|at| self.handed_in(at).transpose()),
        )
    }

    /// The proposal of a sandbox; `None` if there is none.
    fn handed_in(&mut self, at: SandboxRef) -> Result<Option<ProposalInfo>, ProposalError> {
        let info = self.open(&at).and_then(|open| {
            let kept = self.kept(&open)?;
            Ok(self.proposal_info(&open, &kept))
        });
        match info {
            Ok(info) => Ok(Some(info)),
            Err(ProposalError::NoProposal { .. }) => Ok(None),
            Err(error) if error.is_shortage() => Err(error),
            Err(error) => Ok(self.damaged_proposal(at, &error)),
        }
    }

    /// Shows a proposal in full.
    ///
    /// # Errors
    ///
    /// [`ProposalError::NoSandbox`], [`ProposalError::NoProposal`].
    pub fn show(&mut self, at: &SandboxRef) -> Result<ProposalDetail, ProposalError> {
        let open = self.open(at)?;
        self.show_open(&open)
    }

    pub(crate) fn show_open(&self, open: &OpenSandbox) -> Result<ProposalDetail, ProposalError> {
        let kept = self.kept(open)?;
        let text = |name: &str, max: usize| -> Result<Option<String>, ProposalError> {
            let read = read_file(kept.folder.as_ref(), name, max)?;
            Ok(read.map(|text| String::from_utf8_lossy(&text).into_owned()))
        };
        let record = &kept.record;
        Ok(ProposalDetail {
            info: self.proposal_info(open, &kept),
            base: record.base.clone(),
            merged_from: record.merged_from.clone(),
            files: shown_files(open, &kept),
            directories: record.directories.clone(),
            modes: record.modes.clone(),
            summary: text(SUMMARY, SUMMARY_BYTES_MAX)?.unwrap_or_default(),
            test_log: text(TEST_LOG, TEST_LOG_BYTES_MAX + CUT_LINE_BYTES)?,
            not_given: open.record.not_given.clone(),
            left_out: kept.details.left_out.clone(),
            git: kept.details.git,
            repository: open
                .record
                .repository
                .as_ref()
                .map(|it| it.source.to_string()),
            delivered_as: delivered_as(&kept.standing.history),
            history: kept.standing.history.clone(),
            comments: comments(&self.events(&open.at.run_id)?, &open.at.agent_id),
        })
    }

    /// A part of a proposal's patch.
    ///
    /// # Errors
    ///
    /// As [`show`](Self::show).
    pub fn diff(&mut self, at: &SandboxRef, offset: u64) -> Result<ProposalDiff, ProposalError> {
        let open = self.open(at)?;
        let kept = self.kept(&open)?;
        let path = Path::new(PATCH);
        let mut file = kept.folder.read(path).during("open", path)?;
        let total = file.len().during("inspect", path)?;
        let mut part = vec![0; DIFF_PART_BYTES];
        let read = read_full(file.as_mut(), &mut part, offset).during("read", path)?;
        part.truncate(read);
        let end = offset.saturating_add(read as u64);
        Ok(ProposalDiff {
            data: STANDARD.encode(&part),
            next: (read > 0 && end < total).then_some(end),
            total,
        })
    }
}

/// Branch or pull request that a proposal was last delivered as.
fn delivered_as(history: &[RunEvent]) -> Option<String> {
    let mut latest = history.iter().rev();
    let delivered = latest.find(|event| event.kind == RunEventKind::ProposalDelivered);
    delivered.map(|event| event.detail.clone())
}

/// Lists the directories in a directory, without hidden ones; empty if it does not exist.
pub(crate) fn visible(disk: &dyn Disk, path: &Path) -> Result<Vec<PathBuf>, ProposalError> {
    if disk.stat(path).during("inspect", path)?.is_none() {
        return Ok(Vec::new());
    }
    let entries = disk.list(path).during("list", path)?.into_iter();
    let visible = entries.filter(|entry| {
        entry.kind == EntryKind::Directory && !entry.name.as_encoded_bytes().starts_with(b".")
    });
    let mut paths: Vec<_> = visible.map(|entry| path.join(entry.name)).collect();
    paths.sort();
    Ok(paths)
}

/// The files of a proposal, with those that were moved.
fn shown_files(open: &OpenSandbox, kept: &StoredProposal) -> Vec<ProposalFile> {
    let mut gone: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for change in &kept.record.changed_files {
        if let (FileStatus::Deleted, Some(digest)) = (change.status, &change.old_sha256) {
            gone.entry(digest).or_default().push(&change.path);
        }
    }
    let mut files = Vec::new();
    for change in &kept.record.changed_files {
        let entry = |of: &goondan_trees::Manifest| {
            let path = RelativePath::from_text(&change.path).ok()?;
            bytes(of.get(&path))
        };
        let (old_bytes, new_bytes) = (entry(&open.record.given), entry(&kept.details.after));
        // Empty files are all alike.
        let is_moved = change.status == FileStatus::Added && new_bytes.is_some_and(|len| len > 0);
        let digest = change.new_sha256.as_deref().filter(|_| is_moved);
        let source = digest.and_then(|digest| gone.get_mut(digest)?.pop());
        files.push(ProposalFile {
            change: change.clone(),
            renamed_from: source.map(str::to_owned),
            old_bytes,
            new_bytes,
        });
    }
    files
}
