//! Proposal of a task with a source (`REPO-3`).

use goondan_protocol::control::{TaskProposal, TaskVerdict};
use goondan_protocol::task::{TaskRunKind, TaskSource};

use crate::fact::RunOutcome;
use crate::limits::RETRIES_MAX;

/// The proposal of a task, from the end of a phase to its delivery.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ProposalProcess {
    /// Completed phase whose proposal must be created; none while it is under review.
    phase: Option<u32>,
    proposal: Option<TaskProposal>,
    /// Reason why there is no proposal.
    problem: Option<String>,
    /// True once its creation was attempted.
    is_made: bool,
    /// Verdict of the verify command.
    verdict: Option<TaskVerdict>,
    /// True once its copy of the project was set up.
    is_set_up: bool,
    /// Reason why the setup command failed.
    setup_problem: Option<String>,
    /// Consecutive runs of either command with an unknown outcome.
    lost: u32,
}

impl ProposalProcess {
    /// Phase whose proposal is created once its run is over.
    pub(crate) fn phase(&self) -> Option<u32> {
        self.phase
    }

    pub(crate) fn proposal(&self) -> Option<&TaskProposal> {
        self.proposal.as_ref()
    }

    /// Reason why there is no proposal, shown in the review instead.
    pub(crate) fn problem(&self) -> Option<&str> {
        let is_unchanged = self.is_made && self.proposal.is_none();
        let unchanged = is_unchanged.then_some("the project was not changed");
        self.problem.as_deref().or(unchanged)
    }

    /// True if a proposal could not be created.
    pub(crate) fn has_failed(&self) -> bool {
        self.problem.is_some()
    }

    /// Verdict of the verify command on the completed work.
    pub(crate) fn verdict(&self) -> Option<&TaskVerdict> {
        self.verdict.as_ref()
    }

    pub(crate) fn failed_verdict(&self) -> Option<&TaskVerdict> {
        self.verdict.as_ref().filter(|verdict| !verdict.passed)
    }

    pub(crate) fn is_set_up(&self) -> bool {
        self.is_set_up
    }

    /// Reason why its copy of the project could not be set up.
    pub(crate) fn setup_problem(&self) -> Option<&str> {
        self.setup_problem.as_deref()
    }

    /// Consecutive runs of its commands with an unknown outcome.
    pub(crate) fn lost(&self) -> u32 {
        self.lost
    }

    pub(super) fn completed(&mut self, phase: u32, source: &TaskSource) {
        self.phase = (!source.is_none()).then_some(phase);
        self.verdict = None;
    }

    pub(super) fn verified(&mut self, verdict: &TaskVerdict) {
        self.verdict = Some(verdict.clone());
    }

    /// A run of one of its commands ended.
    pub(super) fn check_ended(&mut self, kind: TaskRunKind, outcome: &RunOutcome) {
        match outcome {
            RunOutcome::Ended | RunOutcome::RateLimited(_) => return,
            RunOutcome::Unknown | RunOutcome::NotStarted(_) => self.lost += 1,
            RunOutcome::Done | RunOutcome::Failed(_) | RunOutcome::Blocked(_) => self.lost = 0,
        }
        if kind != TaskRunKind::Setup {
            return;
        }
        match outcome {
            RunOutcome::Done => self.is_set_up = true,
            RunOutcome::Failed(why) | RunOutcome::Blocked(why) => {
                self.setup_problem = Some(why.clone());
            }
            RunOutcome::NotStarted(why) if self.lost > RETRIES_MAX => {
                self.setup_problem = Some(why.clone());
            }
            RunOutcome::Unknown if self.lost > RETRIES_MAX => {
                self.setup_problem = Some("its outcome is unknown".to_owned());
            }
            _ => {}
        }
    }

    /// Resets a failure so that a person's retry takes effect.
    pub(super) fn try_again(&mut self) {
        self.setup_problem = None;
        self.lost = 0;
    }

    pub(super) fn made(&mut self, proposal: Option<&TaskProposal>, problem: Option<&str>) {
        self.proposal = proposal.cloned();
        self.problem = problem.map(ToOwned::to_owned);
        self.is_made = true;
    }

    /// The completed phase is under review, or is no longer complete.
    pub(super) fn reviewed(&mut self) {
        self.phase = None;
    }

    pub(super) fn delivered(
        &mut self,
        digest: &str,
        branch: Option<&str>,
        pull_request: Option<&str>,
    ) {
        let proposal = self.proposal.as_mut();
        if let Some(proposal) = proposal.filter(|proposal| proposal.digest == digest) {
            proposal.is_delivered = true;
            proposal.branch = branch.map(ToOwned::to_owned);
            proposal.pull_request = pull_request.map(ToOwned::to_owned);
        }
    }
}
