//! Inputs of the operations of the merge queue: proposals, the place that they land in, and git.

use goondan_protocol::control::SandboxRef;
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::task::TaskId;

use crate::create::PatchVerifier;
use crate::repository::{BranchMaker, RepositoryClone, RepositoryMaker};

/// A proposal of a task in the queue, and its sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedProposal {
    pub task: TaskId,
    /// Title of the task.
    pub title: String,
    pub at: SandboxRef,
    pub digest: String,
}

/// A proposal that is in an open pull request of the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EarlierProposal {
    pub proposal: QueuedProposal,
    pub url: String,
}

/// Changes of an attempt.
#[derive(Debug, Clone, Copy)]
pub struct QueuedChanges<'q> {
    /// Those of open pull requests, which the result includes.
    pub earlier: &'q [EarlierProposal],
    pub proposals: &'q [QueuedProposal],
    /// True if the result becomes a pull request.
    pub is_pull_request: bool,
}

/// Place that proposals land in.
#[derive(Debug)]
pub struct QueuePlace<'r> {
    pub workspace_id: &'r WorkspaceId,
    /// Patterns of files with secrets of the project.
    pub exclude: &'r [String],
    /// The repository with the branch, if it is another one than the project.
    pub repository: Option<RepositoryClone<'r>>,
}

/// Git, for the operations of the queue.
#[derive(Clone, Copy)]
pub struct QueueGit<'g> {
    pub patches: &'g dyn PatchVerifier,
    pub repositories: &'g dyn RepositoryMaker,
    pub branches: &'g dyn BranchMaker,
}
