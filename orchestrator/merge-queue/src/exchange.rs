//! Events and actions of a queue.

use goondan_protocol::task::TaskId;
use serde::{Deserialize, Serialize};

use crate::entry::{OpenPullRequest, Outcome, Place, Proposal, Revision};
use crate::limits::ENTRIES_MAX;
use crate::record::Record;

/// Event for a queue. Events with an attempt that is over are ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A person approved a proposal for the queue.
    Enter(Proposal),
    Hold {
        task: TaskId,
        why: String,
    },
    Release {
        task: TaskId,
    },
    Move {
        task: TaskId,
        to: Place,
    },
    Prioritize {
        task: TaskId,
        priority: i32,
    },
    /// A person removes the proposal.
    Drop {
        task: TaskId,
        why: String,
    },
    /// The task no longer proposes it, because it was canceled or works again. Unlike
    /// [`Event::Drop`], this is also accepted during a landing, which it cannot stop.
    Withdraw {
        task: TaskId,
        why: String,
    },
    /// Attempts whose pull requests are merged or closed, or the reason why the service could not be
    /// asked.
    Looked {
        attempt: u64,
        ended: Result<Vec<u64>, String>,
    },
    Rebased {
        attempt: u64,
        rebase: Rebase,
    },
    Proved {
        attempt: u64,
        proof: Proof,
    },
    Landed {
        attempt: u64,
        landing: LandingResult,
    },
    /// The task has recorded the outcome of its proposal.
    Acknowledged {
        task: TaskId,
    },
    /// The time returned by [`crate::MergeQueue::next_tick`] has come.
    Tick,
}

/// Result of a rebase of one or several proposals, one on another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Rebase {
    Clean {
        base: Revision,
        result: Revision,
    },
    /// The proposal of this task conflicts with the base, or with those before it in the batch.
    Conflict {
        base: Revision,
        task: TaskId,
        text: String,
    },
    /// It conflicts with an earlier pull request that is not merged yet, and not with the branch. Its
    /// agent cannot see the other change, so a person decides.
    Blocked {
        why: String,
    },
    /// It failed for a reason other than the proposals.
    Failed {
        why: String,
    },
}

/// Result of a proof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    Passed,
    Failed {
        log: String,
    },
    /// Its outcome is unknown, or it could not be started.
    Lost(String),
}

/// Result of a landing, or of a check after a crash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum LandingResult {
    Done,
    /// The branch of the pull request has the result. The landing ends when the pull request is open.
    Pushed {
        /// Title and text of the pull request, in one.
        summary: String,
    },
    /// The pull request has the result.
    Opened {
        url: String,
    },
    /// The target is no longer the base of the proof. Nothing was changed.
    TargetMoved,
    /// It failed for another reason. Nothing was changed.
    Failed {
        why: String,
    },
}

/// A landing in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Landing {
    pub attempt: u64,
    pub proposals: Vec<Proposal>,
    pub base: Revision,
    pub result: Revision,
    /// Commits of earlier landings of the same task. The branch of its pull request may have any of
    /// these commits; another commit there is not the queue's.
    pub replaces: Vec<Revision>,
}

/// Action for the caller. Each can be repeated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Ask the service which pull requests in `opened` are still open.
    Look {
        attempt: u64,
        opened: Vec<OpenPullRequest>,
    },
    /// Rebase the proposals in this order onto the current state of the target, with the changes of
    /// these earlier pull requests.
    Rebase {
        attempt: u64,
        earlier: Vec<OpenPullRequest>,
        proposals: Vec<Proposal>,
    },
    /// Run the proof on the rebased files.
    Prove { attempt: u64 },
    /// Replace `base` by `result` on the target, atomically, and only if the target still is
    /// `base`.
    Land(Landing),
    /// Check if this landing happened before a crash; if not, nothing may carry it out later. The
    /// target may have changed since: look for the landing in its history.
    Inspect(Landing),
    /// End what runs for the attempt, and remove its files.
    Discard { attempt: u64 },
    /// Report the outcome to the task, until [`Event::Acknowledged`]. A task whose proposal was
    /// not landed continues with the conflict or the log.
    Report {
        proposal: Proposal,
        outcome: Outcome,
    },
}

/// Records, and the actions to carry out once these are durable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    pub records: Vec<Record>,
    pub actions: Vec<Action>,
}

/// Reason why a change by a person is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("task `{0}` has no proposal in the queue")]
    NotQueued(TaskId),
    #[error("task `{0}` already has a proposal in the queue")]
    AlreadyQueued(TaskId),
    #[error("the proposal of task `{0}` is landing")]
    Landing(TaskId),
    #[error("the proposal of task `{0}` is not held")]
    NotHeld(TaskId),
    #[error("the proposal of task `{0}` is already held")]
    AlreadyHeld(TaskId),
    #[error("task `{0}` cannot be moved before itself")]
    BeforeItself(TaskId),
    #[error("the queue already has {ENTRIES_MAX} proposals")]
    Full,
}
