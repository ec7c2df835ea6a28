//! The sandbox prepared for an agent, which replaces its work directory (`BOX-3`).

use std::path::{Path, PathBuf};

use goondan_protocol::definition::AgentAssignment;
use goondan_protocol::sandbox::{SandboxPath, SandboxPolicy};

#[derive(Debug)]
pub(super) struct WorkerSandbox {
    work: PathBuf,
    input: PathBuf,
    proposal: PathBuf,
}

impl WorkerSandbox {
    /// The sandbox of an assignment, if it exists. Checked once, because the daemon restarts the
    /// agent's process when a sandbox is prepared later.
    pub(super) fn of(assignment: &AgentAssignment) -> Option<Self> {
        let directory = assignment.sandbox.as_ref()?;
        let part = |name: &str| Some(directory.join(name)).filter(|path| path.is_dir());
        Some(Self {
            work: part("work")?,
            input: part("input")?,
            proposal: part("proposal")?,
        })
    }

    /// Directory in which the agent works instead of its conversation's work directory.
    pub(super) fn work(&self) -> &Path {
        &self.work
    }

    /// The baseline, which the agent can read.
    pub(super) fn input(&self) -> &Path {
        &self.input
    }

    /// Directory for the agent's description of its work.
    pub(super) fn proposal(&self) -> &Path {
        &self.proposal
    }

    /// Extends a policy with the directories beside the work directory.
    pub(super) fn beside(&self, asked: &SandboxPolicy) -> SandboxPolicy {
        let mut policy = asked.clone();
        policy
            .read
            .extend(SandboxPath::try_from(self.input.clone()));
        policy
            .write
            .extend(SandboxPath::try_from(self.proposal.clone()));
        policy
    }
}
