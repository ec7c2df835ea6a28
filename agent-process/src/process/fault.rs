//! The end of the process, and its errors.

use tokio::task::JoinError;

use crate::extensions::ExtensionError;
use crate::link::LinkError;
use crate::tools::ToolboxError;
use crate::turn::EngineFault;

/// Normal end of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessExit {
    /// The orchestrator requested the end.
    Shutdown,
    Orphaned,
    /// The program of a task has ended, so no work is left.
    Finished,
}

/// Error after which the process cannot continue.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProcessError {
    /// The process could not be set up.
    #[error("failed to set up the process")]
    Setup(#[source] std::io::Error),
    /// The kernel does not enforce the restrictions it accepted.
    #[cfg(target_os = "linux")]
    #[error("failed to confine the agent's process")]
    OwnSandbox(#[from] goondan_confinement::EnforceError),
    #[error("the link to the orchestrator failed")]
    Link(#[from] LinkError),
    /// The agent's tools cannot be set up.
    #[error("failed to set up the agent's tools")]
    Toolbox(#[from] ToolboxError),
    /// The engine rejected an input.
    #[error("the orchestrator violated the turn protocol")]
    Engine(#[from] EngineFault),
    /// A message arrived at a point where it is invalid.
    #[error("`{kind}` came while {doing}")]
    Unexpected {
        kind: &'static str,
        /// The current activity of the process.
        doing: &'static str,
    },
    /// The system is out of memory for the conversation.
    #[error("out of memory for the conversation")]
    Memory(#[source] std::io::Error),
    /// A recorded event of the open turn is unreadable.
    #[error("record {place} of the open turn is not a message event")]
    BadRecord {
        /// Its position in the turn, from 1.
        place: usize,
        #[source]
        source: serde_json::Error,
    },
    /// A message event cannot be serialized.
    #[error("failed to write a message event as JSON")]
    Unwritable(#[source] serde_json::Error),
    /// The agent's extensions cannot be set up.
    #[error("failed to set up the agent's extensions")]
    Extension(#[from] ExtensionError),
    /// A model or tool panicked.
    #[error("a model or a tool of this process failed")]
    Work(#[source] JoinError),
}
