//! The sandbox that was prepared for an agent: then that is where it works (`BOX-3`).

use std::path::{Path, PathBuf};

use goondan_protocol::definition::AgentAssignment;
use goondan_protocol::sandbox::{SandboxPath, SandboxPolicy};

/// The directories of a sandbox.
#[derive(Debug)]
pub(super) struct WorkerSandbox {
    work: PathBuf,
    input: PathBuf,
    proposal: PathBuf,
}

impl WorkerSandbox {
    /// That of an assignment, if it is there. It is looked for once: the daemon replaces the process of an
    /// agent that a sandbox is prepared for later.
    pub(super) fn of(assignment: &AgentAssignment) -> Option<Self> {
        let directory = assignment.sandbox.as_ref()?;
        let part = |name: &str| Some(directory.join(name)).filter(|path| path.is_dir());
        Some(Self {
            work: part("work")?,
            input: part("input")?,
            proposal: part("proposal")?,
        })
    }

    /// Where the agent works, in place of the work directory of its conversation.
    pub(super) fn work(&self) -> &Path {
        &self.work
    }

    /// The baseline, which it reads.
    pub(super) fn input(&self) -> &Path {
        &self.input
    }

    /// Where it leaves what it says of its work.
    pub(super) fn proposal(&self) -> &Path {
        &self.proposal
    }

    /// A policy with what is beside the work directory.
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
