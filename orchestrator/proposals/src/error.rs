//! Errors of operations on sandboxes and proposals.

use std::io;
use std::path::{Path, PathBuf};

use goondan_durable::FileError;
use goondan_protocol::control::{
    ControlError, DisplacedUserFile, ErrorCode, ProposalRefusal, ProposalState, SandboxRef,
};
use goondan_trees::TreeError;
use goondan_trees::swap::SwapError;

use crate::limits::REFUSALS_TOLD_MAX;

/// Why something was not done. Nothing has changed in the Project Root then, but for
/// [`ProposalError::Unfinished`].
#[derive(Debug, thiserror::Error)]
pub enum ProposalError {
    /// There is no such sandbox.
    #[error("sandbox of `{}` in run `{}` does not exist", at.agent_id, at.run_id)]
    NoSandbox { at: SandboxRef },
    #[error("`{}` already has a sandbox in run `{}`", at.agent_id, at.run_id)]
    Taken { at: SandboxRef },
    #[error("`{}` has submitted no proposal in run `{}`", at.agent_id, at.run_id)]
    NoProposal { at: SandboxRef },
    /// The proposal's state does not allow the operation.
    #[error("the proposal of `{}` is {}: {problem}", at.agent_id, state.as_str())]
    Standing {
        at: SandboxRef,
        state: ProposalState,
        /// The reason, and the alternatives.
        problem: &'static str,
    },
    /// There are no changes to propose.
    #[error("`{}` has changed nothing", at.agent_id)]
    Unchanged { at: SandboxRef, work: PathBuf },
    #[error("{problem}")]
    Invalid { problem: String, hint: String },
    /// A proposal was not created or not applied; the refusals contain the reasons.
    #[error("{}", refusals_text(what, refusals, kept))]
    Refused {
        what: &'static str,
        refusals: Vec<ProposalRefusal>,
        /// Files that a user wrote during the operation and that were moved to another path.
        kept: Vec<DisplacedUserFile>,
        /// The proposal that could be merged into a new one, if that may help.
        merge: Option<SandboxRef>,
    },
    /// A tree cannot be copied, compared or read.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// goondan's own files cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A directory cannot be opened.
    #[error("failed to {operation} `{}`", path.display())]
    Io {
        /// The failed operation, as a verb.
        operation: &'static str,
        path: PathBuf,
        /// Error of the file system.
        #[source]
        source: io::Error,
    },
    /// A record of goondan's own cannot be understood.
    #[error("`{}` is damaged: {problem}", path.display())]
    Damaged { path: PathBuf, problem: String },
    /// The disk failed in the middle, and again while taking it back.
    #[error(
        "the project's files are only partly changed; the next request, or the next start of the \
         daemon, finishes the change"
    )]
    Unfinished(#[source] Box<SwapError>),
}

fn refusals_text(what: &str, refusals: &[ProposalRefusal], kept: &[DisplacedUserFile]) -> String {
    let mut text = format!("{what} was refused; nothing was changed");
    for refusal in refusals.iter().take(REFUSALS_TOLD_MAX) {
        match &refusal.path {
            Some(path) => text.push_str(&format!("\n  {path}: {}", refusal.reason)),
            None => text.push_str(&format!("\n  {}", refusal.reason)),
        }
    }
    if let Some(more) = refusals.len().checked_sub(REFUSALS_TOLD_MAX + 1) {
        text.push_str(&format!("\n  and {} more", more + 1));
    }
    for kept in kept {
        let at = kept.at.display();
        text.push_str(&format!(
            "\n  changes made to {} in the meantime were saved to {at}",
            kept.path
        ));
    }
    text
}

impl ProposalError {
    /// Tells of a refusal that a merge may help, if it is that the project moved on and nothing else.
    pub(crate) fn or_merge(self, at: &SandboxRef) -> Self {
        match self {
            Self::Refused {
                what,
                refusals,
                kept,
                merge: None,
            } => Self::Refused {
                what,
                merge: refusals
                    .iter()
                    .all(ProposalRefusal::is_stale)
                    .then(|| at.clone()),
                refusals,
                kept,
            },
            other => other,
        }
    }

    /// True if descriptors or memory ran out, which says nothing about the files.
    pub(crate) fn is_shortage(&self) -> bool {
        let source = match self {
            Self::File(error) => return error.is_shortage(),
            Self::Tree(TreeError::Io { source, .. }) | Self::Io { source, .. } => source,
            _ => return false,
        };
        // Reported in the same way as a file's own error.
        let code = source.raw_os_error();
        let source = code.map_or_else(|| source.kind().into(), io::Error::from_raw_os_error);
        let (operation, path) = ("read", PathBuf::new());
        let same = FileError::Io {
            operation,
            path,
            source,
        };
        same.is_shortage()
    }

    pub(crate) fn invalid(problem: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Invalid {
            problem: problem.into(),
            hint: hint.into(),
        }
    }
}

impl From<ProposalError> for ControlError {
    fn from(error: ProposalError) -> Self {
        let text = goondan_log::error_chain(&error);
        let (code, hint) = match error {
            ProposalError::NoSandbox { .. } => (
                ErrorCode::SandboxNotFound,
                "list sandboxes: `gdn proposal sandbox list`".to_owned(),
            ),
            ProposalError::Taken { .. } => (
                ErrorCode::SandboxTaken,
                "choose another `--run` or `--agent`, or remove it: `gdn proposal sandbox remove`"
                    .to_owned(),
            ),
            ProposalError::NoProposal { at } => (
                ErrorCode::ProposalNotFound,
                format!(
                    "create a proposal from its changes: `gdn proposal create {} {}`",
                    at.run_id, at.agent_id
                ),
            ),
            ProposalError::Standing { .. } => (
                ErrorCode::ProposalRefused,
                "see its status: `gdn proposal show`".to_owned(),
            ),
            ProposalError::Unchanged { work, .. } => (
                ErrorCode::InvalidRequest,
                format!("work in `{}`", work.display()),
            ),
            ProposalError::Invalid { hint, .. } => (ErrorCode::InvalidRequest, hint),
            ProposalError::Refused { merge, .. } => (
                ErrorCode::ProposalRefused,
                match merge {
                    Some(at) => format!(
                        "create a new proposal on top of the current files: `gdn proposal merge {} {}`",
                        at.run_id, at.agent_id
                    ),
                    None => "see every reason, with digests: `gdn proposal check`".to_owned(),
                },
            ),
            ProposalError::Tree(TreeError::Io { .. })
            | ProposalError::File(_)
            | ProposalError::Io { .. }
            | ProposalError::Unfinished(_) => (
                ErrorCode::Storage,
                "fix the cause and try again".to_owned(),
            ),
            ProposalError::Tree(TreeError::Damaged { .. }) | ProposalError::Damaged { .. } => (
                ErrorCode::Damaged,
                "list all damage: `gdn daemon verify`; remove a damaged sandbox: `gdn proposal sandbox remove --force`"
                    .to_owned(),
            ),
            ProposalError::Tree(_) => (
                ErrorCode::InvalidRequest,
                "exclude it with `--exclude`, or change it and try again".to_owned(),
            ),
        };
        Self::new(code, text).suggest(hint)
    }
}

/// Names the path and the operation in an I/O error.
pub(crate) trait IoContext<T> {
    fn during(self, operation: &'static str, path: &Path) -> Result<T, ProposalError>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn during(self, operation: &'static str, path: &Path) -> Result<T, ProposalError> {
        self.map_err(|source| ProposalError::Io {
            operation,
            path: path.to_owned(),
            source,
        })
    }
}
