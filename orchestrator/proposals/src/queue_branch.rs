//! Landings of the merge queue on a branch of a repository (`QUEUE-1`).
//!
//! The attempt is a clone of the branch, and its base the commit of the branch. The result is one
//! commit on top, always the same for the same attempt. Git moves the branch only from the base to
//! this commit, so that either exactly this happens, or nothing. The history of the branch shows if
//! it happened.

use goondan_merge_queue::{Landing, LandingResult, Revision};
use goondan_protocol::control::MERGE_QUEUE;
use goondan_protocol::git::RepositoryAddress;

use crate::error::ProposalError;
use crate::limits::SUMMARY_BYTES_MAX;
use crate::merge_queue::{QueueGit, QueuePlace};
use crate::place::{KEPT, ORIGIN, PATCH, SUMMARY};
use crate::record::read_file;
use crate::repository::{BranchMaker, BranchPlace, NewBranch, RepositoryClone};
use crate::sandboxes::{OpenSandbox, Sandboxes, StoredProposal};

/// Error of git about the branch on which proposals land.
fn failed(what: &str, problem: &str) -> ProposalError {
    ProposalError::invalid(
        format!("failed to {what}: {problem}"),
        "check the address, `ref`, and the access of the token",
    )
}

/// A branch, for git.
fn at_branch<T>(
    repository: &RepositoryClone<'_>,
    open: &OpenSandbox,
    what: &str,
    act: impl FnOnce(&BranchPlace<'_>) -> Result<T, String>,
) -> Result<T, ProposalError> {
    let source = repository.source;
    let address = source.address().map_err(|problem| failed(what, &problem))?;
    let no_branch = || failed(what, "its source has no `ref` with the branch");
    let branch = source.reference.as_deref().ok_or_else(no_branch)?;
    let origin = open.path.join(ORIGIN);
    let commits = match &address {
        RepositoryAddress::Path(path) => path,
        RepositoryAddress::Url(_) => &origin,
    };
    let place = BranchPlace {
        address: &address,
        branch,
        commits,
        credentials: repository.credentials,
    };
    act(&place).map_err(|problem| failed(what, &problem))
}

impl Sandboxes<'_> {
    /// Why an attempt cannot land on its branch, if it cannot.
    pub(crate) fn branch_problem(
        &self,
        place: &QueuePlace<'_>,
        open: &OpenSandbox,
        base: &Revision,
        git: QueueGit<'_>,
    ) -> Result<Option<String>, ProposalError> {
        let Some(repository) = &place.repository else {
            return Ok(None);
        };
        let what = "find the branch to land on";
        let tip = at_branch(repository, open, what, |place| git.branches.tip(place))?;
        let source = repository.source;
        Ok(match tip {
            Some(tip) if tip == base.as_str() => None,
            Some(_) => Some(format!(
                "the branch moved while {source} was cloned, or a tag has its name"
            )),
            None => Some(format!("{source} is not a branch")),
        })
    }

    /// The commit of an attempt.
    pub(crate) fn queue_commit(
        &self,
        open: &OpenSandbox,
        kept: &StoredProposal,
        branches: &dyn BranchMaker,
    ) -> Result<Revision, ProposalError> {
        let what = "commit the changes";
        let (project, _) = self.target_of(open)?;
        let base = open.record.base.git_head.as_deref();
        let summary = read_file(kept.folder.as_ref(), SUMMARY, SUMMARY_BYTES_MAX)?;
        let wanted = NewBranch {
            project: &project,
            base: base.ok_or_else(|| failed(what, "the clone has no commit"))?,
            patch: open.path.join(KEPT).join(&kept.standing.digest).join(PATCH),
            scratch: open.path.join(KEPT),
            message: String::from_utf8_lossy(&summary.unwrap_or_default()).into_owned(),
            branch: String::new(),
            author: MERGE_QUEUE,
            at: kept.record.created_at,
        };
        let commit = branches.commit(&wanted);
        Ok(Revision::new(
            commit.map_err(|problem| failed(what, &problem))?,
        ))
    }

    /// Moves the branch to the commit of an attempt.
    pub(crate) fn land_on_branch(
        &self,
        repository: &RepositoryClone<'_>,
        open: &OpenSandbox,
        landing: &Landing,
        branches: &dyn BranchMaker,
    ) -> Result<LandingResult, ProposalError> {
        let (from, to) = (landing.base.as_str(), landing.result.as_str());
        let advanced = at_branch(repository, open, "move the branch", |place| {
            branches.advance(place, from, to)
        });
        // A push whose answer was lost may have happened.
        if !matches!(advanced, Ok(true))
            && self.is_on_branch(repository, open, landing, branches)?
        {
            return Ok(LandingResult::Done);
        }
        Ok(match advanced {
            Ok(true) => LandingResult::Done,
            Ok(false) => LandingResult::TargetMoved,
            Err(error) => LandingResult::Failed {
                why: error.to_string(),
            },
        })
    }

    /// True if the branch has the commit of an attempt.
    pub(crate) fn is_on_branch(
        &self,
        repository: &RepositoryClone<'_>,
        open: &OpenSandbox,
        landing: &Landing,
        branches: &dyn BranchMaker,
    ) -> Result<bool, ProposalError> {
        let commit = landing.result.as_str();
        at_branch(repository, open, "read the branch", |place| {
            branches.contains(place, commit)
        })
    }
}
