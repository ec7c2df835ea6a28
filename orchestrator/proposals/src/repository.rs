//! A git repository of its own in the copy that a task works on (`REPO-1`).
//!
//! It is made before anything of a worker's was ever there, so that nothing that a worker could write into a repository
//! (configuration, hooks, filters) is ever run for goondan. Afterwards goondan takes it for files.

use std::path::{Path, PathBuf};

use goondan_durable::disk::Folder;
use goondan_protocol::control::{ApplyProposal, RunEventKind, SandboxRef};
use goondan_protocol::git::{RepositoryAddress, RepositoryUrl};
use goondan_protocol::task::{DeliveredBranch, GitCredentials, RepositorySource, TASK_BRANCHES};
use goondan_protocol::time::Timestamp;

use crate::error::{IoContext as _, ProposalError};
use crate::limits::SUMMARY_BYTES_MAX;
use crate::place::{KEPT, ORIGIN, PATCH, SUMMARY};
use crate::record::read_file;
use crate::review::unsound;
use crate::sandboxes::{OpenSandbox, Sandboxes};

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

/// A repository to clone.
#[derive(Debug)]
pub struct RepositoryClone<'r> {
    pub source: &'r RepositorySource,
    /// Credentials, for a repository with a URL.
    pub credentials: Option<&'r GitCredentials>,
}

/// Result of a fetch.
#[derive(Debug)]
pub struct FetchedRepository {
    /// The commit, in hexadecimal digits.
    pub commit: String,
    /// The branch that was fetched; the default branch if it was a tag or a commit.
    pub branch: Option<String>,
}

/// A branch to push.
#[derive(Debug)]
pub struct BranchPush<'p> {
    /// The bare repository that contains it.
    pub origin: &'p Path,
    pub url: &'p RepositoryUrl,
    pub branch: &'p str,
    pub credentials: Option<&'p GitCredentials>,
}

/// A branch to be made of a proposal, in the repository of its source.
#[derive(Debug)]
pub struct NewBranch<'p> {
    /// The root of a repository: the project, another one on this machine, or the bare one that is
    /// pushed from.
    pub project: &'p Path,
    /// The commit that the proposal's files were copied at, to which the patch applies.
    pub base: &'p str,
    /// Parent of the new commit, if it is another one than the base.
    pub parent: Option<&'p str>,
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

/// A branch of a repository.
#[derive(Debug, Clone, Copy)]
pub struct BranchPlace<'p> {
    pub address: &'p RepositoryAddress,
    pub branch: &'p str,
    /// The repository that has goondan's commits: the one at the path, or the bare one that is pushed
    /// from.
    pub commits: &'p Path,
    pub credentials: Option<&'p GitCredentials>,
}

/// Creates branches: git.
pub trait BranchMaker {
    /// Makes a branch with one commit, and returns the commit; one that is there already is done. No
    /// file of the project is touched.
    ///
    /// # Errors
    ///
    /// Why it cannot be made, in words.
    fn branch(&self, wanted: &NewBranch<'_>) -> Result<String, String>;

    /// Pushes a branch that does not exist there; one with the same commit is done.
    ///
    /// # Errors
    ///
    /// The reason, as text without credentials.
    fn push(&self, push: &BranchPush<'_>) -> Result<(), String>;

    /// Makes the commit of a branch, without the branch. Made again, it is the same one.
    ///
    /// # Errors
    ///
    /// The reason, as text.
    fn commit(&self, wanted: &NewBranch<'_>) -> Result<String, String>;

    /// True if a commit has exactly the files that [`Self::commit`] would give it.
    ///
    /// # Errors
    ///
    /// The reason, as text.
    fn has_files(&self, wanted: &NewBranch<'_>, commit: &str) -> Result<bool, String>;

    /// Makes a branch at this commit, or moves it there from one of the commits that may be replaced.
    /// False if it is at another commit.
    ///
    /// # Errors
    ///
    /// The reason, as text without credentials. The branch may have been moved.
    fn place(&self, place: &BranchPlace<'_>, to: &str, replaces: &[&str]) -> Result<bool, String>;

    /// The commit of a branch; none if the branch does not exist.
    ///
    /// # Errors
    ///
    /// The reason, as text without credentials.
    fn tip(&self, place: &BranchPlace<'_>) -> Result<Option<String>, String>;

    /// Moves a branch from one commit to a later one, atomically. False if it is at another commit.
    ///
    /// # Errors
    ///
    /// The reason, as text without credentials. The branch may have been moved.
    fn advance(&self, place: &BranchPlace<'_>, from: &str, to: &str) -> Result<bool, String>;

    /// True if a branch contains a commit.
    ///
    /// # Errors
    ///
    /// The reason, as text without credentials.
    fn contains(&self, place: &BranchPlace<'_>, commit: &str) -> Result<bool, String>;
}

/// Creates repositories: git, where it is installed.
pub trait RepositoryMaker {
    /// Makes one. Where git is not installed, none is made.
    ///
    /// # Errors
    ///
    /// Why it cannot be made, in words.
    fn make(&self, wanted: &NewRepository<'_>) -> Result<(), String>;

    /// Fetches a commit with its history into an empty directory, which becomes a bare repository,
    /// and checks out its files in another empty directory.
    ///
    /// # Errors
    ///
    /// The reason, as text without credentials.
    fn fetch(
        &self,
        source: &RepositoryClone<'_>,
        address: &RepositoryAddress,
        origin: &Path,
        files: &Path,
    ) -> Result<FetchedRepository, String>;
}

const NO_GIT: &str = "git is not available";

/// No repositories: copies contain only files.
#[derive(Debug, Clone, Copy)]
pub struct NoRepositories;

impl RepositoryMaker for NoRepositories {
    fn make(&self, _wanted: &NewRepository<'_>) -> Result<(), String> {
        Ok(())
    }

    fn fetch(
        &self,
        _source: &RepositoryClone<'_>,
        _address: &RepositoryAddress,
        _origin: &Path,
        _files: &Path,
    ) -> Result<FetchedRepository, String> {
        Err(NO_GIT.to_owned())
    }
}

impl BranchMaker for NoRepositories {
    fn branch(&self, _wanted: &NewBranch<'_>) -> Result<String, String> {
        Err(NO_GIT.to_owned())
    }

    fn push(&self, _push: &BranchPush<'_>) -> Result<(), String> {
        Err(NO_GIT.to_owned())
    }

    fn commit(&self, _wanted: &NewBranch<'_>) -> Result<String, String> {
        Err(NO_GIT.to_owned())
    }

    fn has_files(&self, _wanted: &NewBranch<'_>, _commit: &str) -> Result<bool, String> {
        Err(NO_GIT.to_owned())
    }

    fn place(
        &self,
        _place: &BranchPlace<'_>,
        _to: &str,
        _replaces: &[&str],
    ) -> Result<bool, String> {
        Err(NO_GIT.to_owned())
    }

    fn tip(&self, _place: &BranchPlace<'_>) -> Result<Option<String>, String> {
        Err(NO_GIT.to_owned())
    }

    fn advance(&self, _place: &BranchPlace<'_>, _from: &str, _to: &str) -> Result<bool, String> {
        Err(NO_GIT.to_owned())
    }

    fn contains(&self, _place: &BranchPlace<'_>, _commit: &str) -> Result<bool, String> {
        Err(NO_GIT.to_owned())
    }
}

impl Sandboxes<'_> {
    /// Commits a task's proposal to a branch of its source's repository, unless that was done
    /// before. A repository with a URL is pushed to.
    ///
    /// # Errors
    ///
    /// [`ProposalError::Refused`] if the proposal has a problem, [`ProposalError::Invalid`] if
    /// there is no base commit, or git reports an error.
    pub fn deliver_branch(
        &mut self,
        request: &ApplyProposal,
        credentials: Option<&GitCredentials>,
        maker: &dyn BranchMaker,
    ) -> Result<DeliveredBranch, ProposalError> {
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
        let (target, url) = self.target_of(&open)?;
        let base = open.record.base.git_head.as_deref().ok_or_else(no_commit)?;
        let summary = read_file(kept.folder.as_ref(), SUMMARY, SUMMARY_BYTES_MAX)?;
        let summary = String::from_utf8_lossy(&summary.unwrap_or_default()).into_owned();
        let branch = format!("{TASK_BRANCHES}{}", open.at.run_id);
        let directory = open.path.join(KEPT).join(&kept.standing.digest);
        let wanted = NewBranch {
            project: &target,
            base,
            parent: None,
            patch: directory.join(PATCH),
            scratch: open.path.join(KEPT),
            message: summary.clone(),
            branch: branch.clone(),
            author: open.at.agent_id.as_str(),
            at: kept.record.created_at,
        };
        let hint = match &open.record.repository {
            Some(_) => "check the address and the access of the token, and approve again",
            None => "apply the proposal instead, with `gdn proposal apply`",
        };
        let commit = maker.branch(&wanted).map_err(|problem| {
            ProposalError::invalid(
                format!("failed to create branch `{branch}`: {problem}"),
                hint,
            )
        })?;
        if let Some(url) = &url {
            let push = BranchPush {
                origin: &target,
                url,
                branch: &branch,
                credentials,
            };
            maker.push(&push).map_err(|problem| {
                let url = url.as_str();
                ProposalError::invalid(
                    format!("failed to push branch `{branch}` to {url}: {problem}"),
                    hint,
                )
            })?;
        }
        self.note_delivered(&open.at, &kept.standing.digest, &branch)?;
        let repository = open.record.repository.as_ref();
        Ok(DeliveredBranch {
            branch,
            commit,
            into: repository.and_then(|repository| repository.branch.clone()),
            summary,
        })
    }

    /// Records the branch or pull request that a proposal was delivered as, once.
    ///
    /// # Errors
    ///
    /// [`ProposalError::File`].
    pub fn note_delivered(
        &mut self,
        at: &SandboxRef,
        digest: &str,
        delivered_as: &str,
    ) -> Result<(), ProposalError> {
        let kind = RunEventKind::ProposalDelivered;
        let standing = self.standing(at)?;
        let history = standing
            .as_ref()
            .map(|standing| standing.history.as_slice());
        let mut history = history.unwrap_or_default().iter();
        if history.any(|event| event.kind == kind && event.detail == delivered_as) {
            return Ok(());
        }
        self.note(at, kind, Some(digest), delivered_as)
    }

    /// The repository in which a branch is made, and the URL to which it is pushed, if there is one.
    pub(crate) fn target_of(
        &self,
        open: &OpenSandbox,
    ) -> Result<(PathBuf, Option<RepositoryUrl>), ProposalError> {
        let Some(repository) = &open.record.repository else {
            let git = Path::new(".git");
            let found = self.project()?.look(git).during("inspect", git)?;
            return match found {
                Some(_) => Ok((self.project_root.clone(), None)),
                None => Err(no_commit()),
            };
        };
        let damaged = |problem: String| ProposalError::invalid(problem, "create a new task");
        match repository.source.address().map_err(damaged)? {
            RepositoryAddress::Path(path) => Ok((path, None)),
            RepositoryAddress::Url(url) => {
                let origin = Path::new(ORIGIN);
                if open
                    .folder
                    .look(origin)
                    .during("inspect", origin)?
                    .is_none()
                {
                    return Err(ProposalError::invalid(
                        "the clone of the repository is not on this node",
                        "approve the task on the node that prepared its sandbox",
                    ));
                }
                Ok((open.path.join(origin), Some(url)))
            }
        }
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

fn no_commit() -> ProposalError {
    ProposalError::invalid(
        "the project is not the root of a git repository with a commit",
        "write `deliver: apply`, or create a first commit and a new task",
    )
}
