//! Landings of the merge queue on a branch of a repository (`QUEUE-1`).
//!
//! The attempt is a clone of the branch, and its base the commit of the branch. The result is the last
//! of its commits on top (`queue_stack`). Git moves the branch only from the base to this commit, so
//! that either exactly this happens, or nothing. The history of the branch shows if it happened.
//!
//! For a pull request, the result becomes the branch of its task, which git moves only from a commit
//! that the queue made. The caller then opens the pull request, and finds an existing one.

use goondan_merge_queue::{Landing, LandingResult, Revision, Target};
use goondan_protocol::git::RepositoryAddress;
use goondan_protocol::task::TASK_BRANCHES;

use crate::error::ProposalError;
use crate::place::ORIGIN;
use crate::queue_requests::{QueueGit, QueuePlace};
use crate::repository::{BranchMaker, BranchPlace, RepositoryClone};
use crate::sandboxes::{OpenSandbox, Sandboxes};

/// Error of git about the branch on which proposals land.
pub(crate) fn failed(what: &str, problem: &str) -> ProposalError {
    ProposalError::invalid(
        format!("failed to {what}: {problem}"),
        "check the address, `ref`, and the access of the token",
    )
}

/// True if a landing ends in a pull request. One without a change needs none.
pub(crate) fn has_pull_request(landing: &Landing) -> bool {
    let mut proposals = landing.proposals.iter();
    landing.result != landing.base
        && proposals.any(|it| matches!(it.target, Target::PullRequest { .. }))
}

/// The branch of the pull request of a landing.
fn head_of(landing: &Landing) -> Result<String, ProposalError> {
    let proposal = landing.proposals.first();
    let proposal = proposal.ok_or_else(|| failed("push the branch", "the landing is empty"))?;
    Ok(format!("{TASK_BRANCHES}{}", proposal.task))
}

/// The branch that proposals land on, for git.
fn at_branch<T>(
    repository: &RepositoryClone<'_>,
    open: &OpenSandbox,
    what: &str,
    act: impl FnOnce(&BranchPlace<'_>) -> Result<T, String>,
) -> Result<T, ProposalError> {
    let no_branch = || failed(what, "its source has no `ref` with the branch");
    let branch = repository.source.reference.as_deref();
    at_named_branch(repository, open, branch.ok_or_else(no_branch)?, what, act)
}

/// A branch, for git.
fn at_named_branch<T>(
    repository: &RepositoryClone<'_>,
    open: &OpenSandbox,
    branch: &str,
    what: &str,
    act: impl FnOnce(&BranchPlace<'_>) -> Result<T, String>,
) -> Result<T, ProposalError> {
    let source = repository.source;
    let address = source.address().map_err(|problem| failed(what, &problem))?;
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

    /// Gives the branch of a pull request the commit of an attempt, if the branch that it is for is still
    /// the base of the proof.
    pub(crate) fn push_for_pull_request(
        &self,
        repository: &RepositoryClone<'_>,
        open: &OpenSandbox,
        landing: &Landing,
        branches: &dyn BranchMaker,
    ) -> Result<LandingResult, ProposalError> {
        let what = "find the branch to merge into";
        let tip = at_branch(repository, open, what, |place| branches.tip(place))?;
        if tip.as_deref() != Some(landing.base.as_str()) {
            return Ok(LandingResult::TargetMoved);
        }
        let head = head_of(landing)?;
        let to = landing.result.as_str();
        let replaces: Vec<&str> = landing.replaces.iter().map(Revision::as_str).collect();
        let what = format!("push branch `{head}`");
        let placed = at_named_branch(repository, open, &head, &what, |place| {
            branches.place(place, to, &replaces)
        });
        Ok(match placed {
            Ok(true) => self.pushed(open)?,
            Ok(false) => LandingResult::Failed {
                why: format!(
                    "branch `{head}` has a commit that the merge queue did not make; rename or delete \
                     the branch, then release the proposal"
                ),
            },
            // A push whose answer was lost may have happened.
            Err(error) => match self.find_pull_request(repository, open, landing, branches)? {
                found @ LandingResult::Pushed { .. } => found,
                _ => LandingResult::Failed {
                    why: error.to_string(),
                },
            },
        })
    }

    /// Looks if the commit of an attempt was pushed for its pull request. The pull request may be merged
    /// already.
    pub(crate) fn find_pull_request(
        &self,
        repository: &RepositoryClone<'_>,
        open: &OpenSandbox,
        landing: &Landing,
        branches: &dyn BranchMaker,
    ) -> Result<LandingResult, ProposalError> {
        let head = head_of(landing)?;
        let what = format!("read branch `{head}`");
        let tip = at_named_branch(repository, open, &head, &what, |place| branches.tip(place))?;
        let is_pushed = tip.as_deref() == Some(landing.result.as_str());
        Ok(
            match is_pushed || self.is_on_branch(repository, open, landing, branches)? {
                true => self.pushed(open)?,
                false => LandingResult::TargetMoved,
            },
        )
    }

    fn pushed(&self, open: &OpenSandbox) -> Result<LandingResult, ProposalError> {
        let summary = Self::summary_of(&self.kept(open)?)?;
        Ok(LandingResult::Pushed { summary })
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
