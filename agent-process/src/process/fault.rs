//! How the process ends, and why it cannot go on.

use tokio::task::JoinError;

use crate::extensions::ExtensionError;
use crate::link::LinkError;
use crate::tools::ToolboxError;
use crate::turn::EngineFault;

/// How the process came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The orchestrator asked for it.
    Shutdown,
    /// The orchestrator is gone.
    Orphaned,
    /// The program of a task has ended, and with it what there was to do.
    Finished,
}

/// Why the process cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProcessError {
    /// The process could not be set up.
    #[error("the process could not be set up")]
    Setup(#[source] std::io::Error),
    /// The kernel does not hold what it took.
    #[cfg(target_os = "linux")]
    #[error("the agent's process could not be confined")]
    OwnSandbox(#[from] goondan_confinement::EnforceError),
    /// The link failed.
    #[error("the link to the orchestrator failed")]
    Link(#[from] LinkError),
    /// The agent's tools cannot be set up.
    #[error("the agent's tools cannot be set up")]
    Toolbox(#[from] ToolboxError),
    /// The engine refused what came.
    #[error("the orchestrator broke the protocol of turns")]
    Engine(#[from] EngineFault),
    /// A message came that has no meaning now.
    #[error("`{kind}` came while {doing}")]
    Unexpected {
        /// The message's type.
        kind: &'static str,
        /// What the process was doing.
        doing: &'static str,
    },
    /// There is no memory for the conversation.
    #[error("there is no memory for the conversation")]
    Memory(#[source] std::io::Error),
    /// A recorded event of the open turn cannot be read.
    #[error("record {place} of the open turn is no message event")]
    BadRecord {
        /// Its place in the turn, from 1.
        place: usize,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// A message event cannot be written.
    #[error("a message event cannot be written as JSON")]
    Unwritable(#[source] serde_json::Error),
    /// The agent's extensions cannot be set up.
    #[error("the agent's extensions cannot be set up")]
    Extension(#[from] ExtensionError),
    /// A model or tool panicked.
    #[error("a model or a tool of this process failed")]
    Work(#[source] JoinError),
}
