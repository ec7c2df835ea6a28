//! A git repository of its own in the copy that a task works on (`REPO-1`).
//!
//! It is made before anything of a worker's was ever there, so that nothing that a worker could write into a repository
//! (configuration, hooks, filters) is ever run for goondan. Afterwards goondan takes it for files.

use std::path::{Path, PathBuf};

use goondan_durable::disk::Folder;
use goondan_protocol::control::ApplyProposal;
use goondan_protocol::task::TASK_BRANCHES;
use goondan_protocol::time::Timestamp;

use crate::error::{IoContext as _, ProposalError};
use crate::limits::SUMMARY_BYTES_MAX;
use crate::place::{KEPT, PATCH, SUMMARY};
use crate::record::read_file;
use crate::review::unsound;
use crate::sandboxes::Sandboxes;

#[derive(Debug)]
pub struct NewRepository<'p> {
    /// The project, which is the root of a repository.
    pub project: &'p Path,
    /// The commit that its HEAD names, in hexadecimal digits.
    pub head: &'p str,
    /// The copy of its files, in which the repository is made.
    pub work: PathBuf,
    /// The branch that begins at that commit and is checked out.
    pub branch: String,
    /// Author of commits, with address.
    pub author: &'p str,
}

/// A branch to be made of a proposal, in the repository of the project.
#[derive(Debug)]
pub struct NewBranch<'p> {
    /// The project, which is the root of a repository.
    pub project: &'p Path,
    /// The commit that the proposal's files were copied at.
    pub base: &'p str,
    pub patch: PathBuf,
    /// A directory for files that are of no use afterwards.
    pub scratch: PathBuf,
    pub message: String,
    pub branch: String,
    /// Author of the commit, with address.
    pub author: &'p str,
    /// When the proposal was made, which is the time of the commit: made again, it is the same one.
    pub at: Timestamp,
}

/// Creates branches: git.
pub trait BranchMaker {
    /// Makes a branch with one commit; one that is there already is done. No file of the project is touched.
    ///
    /// # Errors
    ///
    /// Why it cannot be made, in words.
    fn branch(&self, wanted: &NewBranch<'_>) -> Result<(), String>;
}

/// Creates repositories: git, where it is installed.
pub trait RepositoryMaker {
    /// Makes one. Where git is not installed, none is made.
    ///
    /// # Errors
    ///
    /// Why it cannot be made, in words.
    fn make(&self, wanted: &NewRepository<'_>) -> Result<(), String>;
}

/// No repositories: copies contain only files.
#[derive(Debug, Clone, Copy)]
pub struct NoRepositories;

impl RepositoryMaker for NoRepositories {
    fn make(&self, _wanted: &NewRepository<'_>) -> Result<(), String> {
        Ok(())
    }
}

impl Sandboxes<'_> {
    /// Commits a task's proposal to a branch of the project's repository, unless that was done
    /// before; returns the branch.
    ///
    /// # Errors
    ///
    /// [`ProposalError::Refused`] if the proposal has a problem, [`ProposalError::Invalid`] if
    /// there is no base commit, or git reports an error.
    pub fn deliver_branch(
        &mut self,
        request: &ApplyProposal,
        maker: &dyn BranchMaker,
    ) -> Result<String, ProposalError> {
        let open = self.open(&request.at)?;
        let kept = self.kept(&open)?;
        Self::check_digest(request.digest.as_deref(), &kept)?;
        let refusals = unsound(&open, &kept)?;
        if !refusals.is_empty() {
            return Err(ProposalError::Refused {
                what: "the proposal",
                refusals,
                kept: Vec::new(),
                merge: None,
            });
        }
        let git = Path::new(".git");
        let has_repository = self.project()?.look(git).during("inspect", git)?.is_some();
        let base = open.record.base.git_head.as_deref();
        let base = base.filter(|_| has_repository).ok_or_else(|| {
            ProposalError::invalid(
                "the project is not the root of a git repository with a commit",
                "write `deliver: apply`, or create a first commit and a new task",
            )
        })?;
        let summary = read_file(kept.folder.as_ref(), SUMMARY, SUMMARY_BYTES_MAX)?;
        let summary = summary.unwrap_or_default();
        let branch = format!("{TASK_BRANCHES}{}", open.at.run_id);
        let directory = open.path.join(KEPT).join(&kept.standing.digest);
        let wanted = NewBranch {
            project: &self.project_root,
            base,
            patch: directory.join(PATCH),
            scratch: open.path.join(KEPT),
            message: String::from_utf8_lossy(&summary).into_owned(),
            branch: branch.clone(),
            author: open.at.agent_id.as_str(),
            at: kept.record.created_at,
        };
        maker.branch(&wanted).map_err(|problem| {
            ProposalError::invalid(
                format!("failed to create branch `{branch}`: {problem}"),
                "apply the proposal instead, with `gdn proposal apply`",
            )
        })?;
        Ok(branch)
    }

    /// Makes a repository in the copy of a project that is the root of one and has a commit.
    pub(crate) fn make_repository(
        &self,
        project: &dyn Folder,
        wanted: &NewRepository<'_>,
        maker: &dyn RepositoryMaker,
    ) -> Result<(), ProposalError> {
        let git = Path::new(".git");
        if project.look(git).during("inspect", git)?.is_none() {
            return Ok(());
        }
        maker.make(wanted).map_err(|problem| {
            ProposalError::invalid(
                format!("git failed to copy the project's repository: {problem}"),
                "repair the repository and try again",
            )
        })
    }
}
