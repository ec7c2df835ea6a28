//! Sandboxes of one workspace, and the shared parts of all operations on them.

use std::path::{Path, PathBuf};

use goondan_durable::disk::Folder;
use goondan_durable::register::Register;
use goondan_protocol::control::{
    CommentChange, ProposalInfo, ProposalRecord, ProposalState, RunEvent, RunEventKind,
    SandboxInfo, SandboxRef,
};
use goondan_protocol::ids::RunId;
use goondan_protocol::time::Timestamp;
use goondan_trees::{Digest, FileAccess, TreeEntry};

use crate::error::{IoContext as _, ProposalError};
use crate::limits::RECORD_BYTES_MAX;
use crate::place::{
    APPLY, DETAILS, EVENTS, INPUT, KEPT, PATCH, PLAN, PROPOSAL, RECORD, REVERT, SANDBOX, SUMMARY,
    TEST_LOG, WORK, run_dir, sandbox_dir, sandbox_name,
};
use crate::record::{Details, SandboxRecord, read_file, read_record};
use crate::run_log::{self, ProposalStatus};

/// The sandboxes of one workspace. One caller at a time.
#[derive(Debug)]
pub struct Sandboxes<'f> {
    pub(crate) files: &'f dyn FileAccess,
    pub(crate) dir: PathBuf,
    pub(crate) project_root: PathBuf,
    pub(crate) now: Timestamp,
    happened: Vec<RunEvent>,
    /// True if the workspace is replicated to other nodes.
    pub(crate) hands_on: bool,
}

/// An existing sandbox, opened for an operation.
#[derive(Debug)]
pub(crate) struct OpenSandbox {
    pub(crate) at: SandboxRef,
    pub(crate) path: PathBuf,
    pub(crate) folder: Box<dyn Folder>,
    pub(crate) record: SandboxRecord,
}

/// The stored copy of a proposal.
#[derive(Debug)]
pub(crate) struct StoredProposal {
    pub(crate) folder: Box<dyn Folder>,
    pub(crate) record: ProposalRecord,
    pub(crate) details: Details,
    pub(crate) standing: ProposalStatus,
}

impl<'f> Sandboxes<'f> {
    /// Creates the interface to the sandboxes in `dir` of the project in `project_root`. `now` is
    /// the time of all operations.
    #[must_use]
    pub fn new(
        files: &'f dyn FileAccess,
        dir: impl Into<PathBuf>,
        project_root: impl Into<PathBuf>,
        now: Timestamp,
    ) -> Self {
        Self {
            files,
            dir: dir.into(),
            project_root: project_root.into(),
            now,
            happened: Vec::new(),
            hands_on: false,
        }
    }

    /// Drains the events that were recorded in the logs of runs since the last call, including
    /// those of failed operations.
    #[must_use]
    pub fn take_happened(&mut self) -> Vec<RunEvent> {
        std::mem::take(&mut self.happened)
    }

    pub(crate) fn log_path(&self, run: &RunId) -> PathBuf {
        run_dir(&self.dir, run).join(EVENTS)
    }

    pub(crate) fn events(&self, run: &RunId) -> Result<Vec<RunEvent>, ProposalError> {
        Ok(run_log::read(self.files.disk(), &self.log_path(run))?)
    }

    /// Records an event durably.
    pub(crate) fn note(
        &mut self,
        at: &SandboxRef,
        kind: RunEventKind,
        digest: Option<&str>,
        detail: impl Into<String>,
    ) -> Result<(), ProposalError> {
        self.note_event(RunEvent {
            kind,
            at: self.now,
            run_id: at.run_id.clone(),
            agent_id: at.agent_id.clone(),
            digest: digest.map(str::to_owned),
            detail: detail.into(),
            comments: None,
        })
    }

    /// Records a change of the comments durably.
    pub(crate) fn note_comments(
        &mut self,
        at: &SandboxRef,
        digest: &str,
        detail: String,
        change: CommentChange,
    ) -> Result<(), ProposalError> {
        self.note_event(RunEvent {
            kind: RunEventKind::ProposalCommented,
            at: self.now,
            run_id: at.run_id.clone(),
            agent_id: at.agent_id.clone(),
            digest: Some(digest.to_owned()),
            detail,
            comments: Some(change),
        })
    }

    fn note_event(&mut self, event: RunEvent) -> Result<(), ProposalError> {
        run_log::append(self.files.disk(), &self.log_path(&event.run_id), &event)?;
        self.happened.push(event);
        Ok(())
    }

    /// Register of the sandboxes of a run on this machine.
    pub(crate) fn register(&self, run: &RunId) -> Register<'f> {
        Register::of(self.files.disk(), &run_dir(&self.dir, run)).here()
    }

    /// Records the files of a sandbox that goondan wrote and never changes.
    pub(crate) fn note_kept(&self, open: &OpenSandbox) -> Result<(), ProposalError> {
        let name = sandbox_name(&open.at);
        let mut files = vec![format!("{name}/{SANDBOX}")];
        if let Some(standing) = self.standing(&open.at)? {
            let kept = format!("{name}/{KEPT}/{}", standing.digest);
            let parts = [RECORD, DETAILS, PATCH, SUMMARY, TEST_LOG];
            files.extend(parts.map(|part| format!("{kept}/{part}")));
            // The plan names the digest of each old file.
            let journals: &[&str] = match standing.state {
                ProposalState::Open | ProposalState::Rejected => &[],
                ProposalState::Applied => &[APPLY],
                ProposalState::Reverted => &[APPLY, REVERT],
            };
            let plans = journals.iter();
            files.extend(plans.map(|journal| format!("{kept}/{journal}/{PLAN}")));
        }
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        self.register(&open.at.run_id).note_new(&files);
        Ok(())
    }

    /// Withdraws the records of a sandbox or one of its proposals before its removal.
    pub(crate) fn forget_kept(
        &self,
        at: &SandboxRef,
        proposal: Option<&str>,
    ) -> Result<(), ProposalError> {
        let name = sandbox_name(at);
        let prefix = match proposal {
            Some(digest) => format!("{name}/{KEPT}/{digest}/"),
            None => format!("{name}/"),
        };
        Ok(self.register(&at.run_id).release(&prefix)?)
    }

    pub(crate) fn project(&self) -> Result<Box<dyn Folder>, ProposalError> {
        let root = &self.project_root;
        self.files.folder(root).during("open", root)
    }

    /// Opens a sandbox, and finishes interrupted operations in it.
    pub(crate) fn open(&mut self, at: &SandboxRef) -> Result<OpenSandbox, ProposalError> {
        let open = self.look(at)?;
        self.recover(&open)?;
        self.note_kept(&open)?;
        Ok(open)
    }

    pub(crate) fn look(&self, at: &SandboxRef) -> Result<OpenSandbox, ProposalError> {
        let path = sandbox_dir(&self.dir, at);
        let none = || ProposalError::NoSandbox { at: at.clone() };
        let stat = self.files.disk().stat(&path).during("inspect", &path)?;
        stat.ok_or_else(none)?;
        let folder = self.files.folder(&path).during("open", &path)?;
        self.finish_rebase(at, folder.as_ref())?;
        let damaged = |problem: String| ProposalError::Damaged {
            path: path.join(SANDBOX),
            problem,
        };
        let record: SandboxRecord = match read_record(folder.as_ref(), SANDBOX) {
            Ok(Some(record)) => record,
            Ok(None) => return Err(damaged("it does not exist".to_owned())),
            Err(ProposalError::Damaged { problem, .. }) => return Err(damaged(problem)),
            Err(error) => return Err(error),
        };
        if record.at != *at {
            let SandboxRef { run_id, agent_id } = &record.at;
            return Err(damaged(format!(
                "it belongs to `{agent_id}` in run `{run_id}`"
            )));
        }
        Ok(OpenSandbox {
            at: at.clone(),
            path,
            folder,
            record,
        })
    }

    /// State of the newest proposal of a sandbox.
    pub(crate) fn standing(
        &self,
        at: &SandboxRef,
    ) -> Result<Option<ProposalStatus>, ProposalError> {
        Ok(run_log::standing(&self.events(&at.run_id)?, &at.agent_id))
    }

    /// The stored copy of the newest proposal of a sandbox.
    pub(crate) fn kept(&self, open: &OpenSandbox) -> Result<StoredProposal, ProposalError> {
        let at = &open.at;
        let standing = self
            .standing(at)?
            .ok_or_else(|| ProposalError::NoProposal { at: at.clone() })?;
        let name = Path::new(KEPT).join(&standing.digest);
        let path = open.path.join(&name);
        let folder = open.folder.below(&name).during("open", &path)?;
        let damaged = |problem: &str| ProposalError::Damaged {
            path: path.join(RECORD),
            problem: problem.to_owned(),
        };
        let text = read_file(folder.as_ref(), RECORD, RECORD_BYTES_MAX)?
            .ok_or_else(|| damaged("it does not exist"))?;
        if Digest::of(&text).to_string() != standing.digest {
            return Err(damaged("it is not the submitted one"));
        }
        let record = serde_json::from_slice(&text).map_err(|error| damaged(&error.to_string()))?;
        let details = read_record(folder.as_ref(), DETAILS)?
            .ok_or_else(|| damaged("its files do not exist"))?;
        Ok(StoredProposal {
            folder,
            record,
            details,
            standing,
        })
    }

    pub(crate) fn info(
        &self,
        open: &OpenSandbox,
        standing: Option<&ProposalStatus>,
    ) -> SandboxInfo {
        let record = &open.record;
        let leaves = record.given.entries();
        let leaves = leaves.filter(|(_, entry)| !matches!(entry, TreeEntry::Directory { .. }));
        SandboxInfo {
            at: open.at.clone(),
            created_at: Some(record.created_at),
            files: leaves.count(),
            bytes: record.given.bytes(),
            proposal: standing.map(|standing| standing.state),
            directory: open.path.clone(),
            problem: None,
        }
    }

    pub(crate) fn proposal_info(&self, open: &OpenSandbox, kept: &StoredProposal) -> ProposalInfo {
        let record = &kept.record;
        ProposalInfo {
            at: open.at.clone(),
            state: kept.standing.state,
            created_at: record.created_at,
            changed_files: record.changed_files.len(),
            digest: kept.standing.digest.clone(),
            notes: record.notes.clone(),
            directory: open.path.join(PROPOSAL),
            problem: None,
        }
    }
}

impl OpenSandbox {
    pub(crate) fn below(&self, name: &str) -> Result<Box<dyn Folder>, ProposalError> {
        let path = self.path.join(name);
        self.folder.below(Path::new(name)).during("open", &path)
    }

    pub(crate) fn input(&self) -> Result<Box<dyn Folder>, ProposalError> {
        self.below(INPUT)
    }

    pub(crate) fn work(&self) -> Result<Box<dyn Folder>, ProposalError> {
        self.below(WORK)
    }
}
