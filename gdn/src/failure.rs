//! Converts errors to user-facing failures with a message, a hint and an exit code.
//!
//! Modules keep their own error types; each is classified here, in one place.

use std::error::Error;
use std::fmt;

use goondan_protocol::control::{ControlError, ErrorCode};

use crate::client::{CallError, ConnectError, Remote, RemoteProblem};
use crate::exit::Exit;
use crate::reader;

/// Failure of a command.
///
/// It displays as a lower-case fragment. Its hint names the command to run next.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
    pub(crate) causes: Vec<String>,
    pub(crate) hint: String,
    /// True if nothing is printed, because the reader of stdout is gone.
    pub(crate) silent: bool,
    /// Kind of the unknown name, if that is the reason.
    pub(crate) unknown: Option<NameKind>,
}

/// Kind of a name that a command takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameKind {
    Workspace,
    Agent,
    Conversation,
    ConversationCheckpoint,
    Event,
    Question,
    Approval,
    Call,
    Schedule,
    Sandbox,
    Proposal,
    Changeset,
    Task,
    TaskCheckpoint,
    Secret,
    OAuthApp,
    Node,
}

impl NameKind {
    /// Kind of the name that the daemon does not know.
    fn of(error: &ControlError) -> Option<Self> {
        let begins = |start: &str| error.message.starts_with(start);
        Some(match error.code {
            ErrorCode::WorkspaceNotFound => Self::Workspace,
            ErrorCode::AgentNotFound => Self::Agent,
            ErrorCode::InstanceNotFound => Self::Conversation,
            ErrorCode::CheckpointNotFound => Self::ConversationCheckpoint,
            ErrorCode::EventNotFound => Self::Event,
            ErrorCode::QuestionNotFound => Self::Question,
            ErrorCode::ApprovalNotFound => Self::Approval,
            ErrorCode::CallNotFound => Self::Call,
            ErrorCode::ScheduleNotFound => Self::Schedule,
            ErrorCode::SandboxNotFound => Self::Sandbox,
            ErrorCode::ProposalNotFound => Self::Proposal,
            ErrorCode::TaskNotFound if begins("checkpoint `") => Self::TaskCheckpoint,
            ErrorCode::TaskNotFound => Self::Task,
            ErrorCode::SecretNotFound => Self::Secret,
            ErrorCode::OauthNotFound => Self::OAuthApp,
            ErrorCode::InvalidRequest if begins("changeset `") => Self::Changeset,
            _ if error.message.contains("` has not recently reported") => Self::Node,
            _ => return None,
        })
    }
}

impl Failure {
    /// Creates a failure with a hint.
    pub(crate) fn new(exit: Exit, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            causes: Vec::new(),
            hint: hint.into(),
            silent: false,
            unknown: None,
        }
    }

    /// Silent end of a command after the reader of stdout has gone.
    pub(crate) fn reader_gone() -> Self {
        Self {
            silent: true,
            ..Self::new(Exit::Ok, "the reader has gone", "")
        }
    }

    /// Marks the failure as caused by an unknown name of this kind.
    pub(crate) fn of_unknown(self, kind: NameKind) -> Self {
        Self {
            unknown: Some(kind),
            ..self
        }
    }

    /// Creates a failure from `error` and its sources.
    pub(crate) fn of(exit: Exit, error: &(dyn Error + 'static), hint: impl Into<String>) -> Self {
        Self::new(exit, error.to_string(), hint).caused_by(error.source())
    }

    /// Adds a chain of errors as causes.
    pub(crate) fn caused_by(mut self, mut source: Option<&(dyn Error + 'static)>) -> Self {
        while let Some(cause) = source {
            self.causes.push(cause.to_string());
            source = cause.source();
        }
        self
    }

    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: hint.into(),
            ..self
        }
    }

    /// True if the unchanged command may succeed later.
    pub(crate) fn is_retryable(&self) -> bool {
        matches!(
            self.exit,
            Exit::TryAgain | Exit::DaemonNotRunning | Exit::ConnectionLost | Exit::TimedOut
        )
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.causes
            .iter()
            .try_for_each(|cause| write!(f, ": {cause}"))
    }
}

impl Error for Failure {}

impl From<std::io::Error> for Failure {
    /// Converts an error while printing. A reader that closes the pipe early (`gdn logs | head`) is not a failure.
    fn from(error: std::io::Error) -> Self {
        if reader::is_gone(&error) {
            return Self::reader_gone();
        }
        Self::new(
            Exit::Internal,
            "cannot write the output",
            "check the output's destination: `df -h .` shows if the disk is full",
        )
        .caused_by(Some(&error))
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        match &error {
            ConnectError::NotRunning { .. } => Self::new(
                Exit::DaemonNotRunning,
                error.to_string(),
                "start it with `gdn run` in a project directory",
            ),
            ConnectError::VersionMismatch { daemon_pid, .. } => {
                let last =
                    daemon_pid.map(|pid| format!(" (or, if it does not listen, `kill {pid}`)"));
                let last = last.unwrap_or_default();
                Self::of(
                    Exit::VersionMismatch,
                    &error,
                    format!(
                        "stop the running daemon with `gdn daemon shutdown`{last}, then start this one: `gdn run`"
                    ),
                )
            }
            ConnectError::NotListening { .. } => Self::of(
                Exit::TimedOut,
                &error,
                "stop it with `gdn daemon shutdown`, which needs no socket; then start it again: `gdn run`",
            ),
            ConnectError::BadPath { .. } => Self::of(
                Exit::Usage,
                &error,
                "pass a shorter directory: `gdn --state-root DIR …`, or set GOONDAN_STATE_ROOT",
            ),
            ConnectError::ForeignPeer { .. } => Self::of(
                Exit::Conflict,
                &error,
                "use your own state root: `gdn --state-root DIR …`, or set GOONDAN_STATE_ROOT",
            ),
            ConnectError::Unreachable { socket, source }
                if source.kind() == std::io::ErrorKind::NotADirectory =>
            {
                let state_root = socket.ancestors().nth(2).unwrap_or(socket);
                Self::new(
                    Exit::Usage,
                    format!("the state root {} is not a directory", state_root.display()),
                    "pass a directory: `gdn --state-root DIR …`, or set GOONDAN_STATE_ROOT",
                )
            }
            ConnectError::Unreachable { socket, .. } => {
                let hint = format!("check its permissions: `ls -l {}`", socket.display());
                Self::of(Exit::Internal, &error, hint)
            }
            ConnectError::NoAnswer { .. } => Self::of(
                Exit::TimedOut,
                &error,
                "check the newest file in `logs/` of the state root",
            ),
            ConnectError::Remote { remote, problem } => {
                let (exit, hint) = remote_hint(remote, problem);
                Self::of(exit, &error, hint)
            }
            ConnectError::Handshake(CallError::Refused(refused) | CallError::Replaced(refused)) => {
                refused.clone().into()
            }
            ConnectError::Handshake(_) => Self::of(
                Exit::ConnectionLost,
                &error,
                "check the daemon: `gdn daemon status`",
            ),
        }
    }
}

/// Exit code and hint for another machine.
fn remote_hint(remote: &Remote, problem: &RemoteProblem) -> (Exit, String) {
    let try_it = remote.shell_command("true");
    let hint = match problem {
        RemoteProblem::NoSsh(_) => {
            "install OpenSSH's client: `apt-get install openssh-client`".to_owned()
        }
        RemoteProblem::HostKey(_) => format!(
            "compare the fingerprint, and accept it: `{try_it}`; gdn never accepts a host key"
        ),
        RemoteProblem::Login(_) => format!(
            "make this work without a password: `{try_it}`; `ssh-copy-id` installs a key, `ssh-add` unlocks it"
        ),
        RemoteProblem::Network(_) => {
            format!("check the name, the port and the network: `{try_it}`")
        }
        RemoteProblem::NoProgram(_) => format!(
            "install goondan there in a directory of the PATH that `{}` prints",
            remote.shell_command("'echo $PATH'")
        ),
        RemoteProblem::OldProgram(_) => {
            let hint = format!(
                "install the same version of goondan on both machines; the one there: `{}`",
                remote.shell_command("gdn --version")
            );
            return (Exit::VersionMismatch, hint);
        }
        RemoteProblem::Refused { code, hint, .. } => {
            let exit = Exit::ALL.into_iter().find(|exit| exit.name() == code);
            let hint = match exit {
                Some(Exit::DaemonNotRunning) => format!(
                    "start it there in a project directory: `{}`",
                    remote.shell_command(&remote.gdn("run DIR"))
                ),
                _ => format!("there: {hint}"),
            };
            return (exit.unwrap_or(Exit::RemoteUnreachable), hint);
        }
        RemoteProblem::Noise => format!(
            "`{try_it}` must print nothing: move output of ~/.bashrc and the like to interactive shells"
        ),
        RemoteProblem::Other(_) => format!("try it without gdn: `{try_it}`"),
    };
    (Exit::RemoteUnreachable, hint)
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Refused(refused) | CallError::Replaced(refused) => refused.into(),
            CallError::Lost { .. } => Self::of(
                Exit::ConnectionLost,
                &error,
                "check the daemon: `gdn daemon status`",
            ),
            CallError::TimedOut { .. } => Self::of(
                Exit::TimedOut,
                &error,
                "check the daemon's log: `gdn logs --all`",
            ),
            CallError::Unreadable { .. } | CallError::TooLarge { .. } => Self::of(
                Exit::Internal,
                &error,
                "check the daemon's log: `gdn logs --all`",
            ),
        }
    }
}

impl From<ControlError> for Failure {
    fn from(error: ControlError) -> Self {
        let (exit, hint) = match error.code {
            ErrorCode::InvalidRequest => (Exit::Usage, "see `gdn help`"),
            ErrorCode::VersionMismatch => (
                Exit::VersionMismatch,
                "stop the running daemon, then start this one: `gdn run`",
            ),
            ErrorCode::WorkspaceNotFound => {
                (Exit::NotFound, "list the workspaces: `gdn workspace list`")
            }
            ErrorCode::InvalidConfiguration => (
                Exit::InvalidConfiguration,
                "list all problems: `gdn validate`",
            ),
            ErrorCode::WorkspaceConflict => {
                (Exit::Conflict, "list the workspaces: `gdn workspace list`")
            }
            ErrorCode::WorkspaceElsewhere => {
                (Exit::Conflict, "find its node: `gdn daemon node list`")
            }
            ErrorCode::AgentNotFound => {
                (Exit::NotFound, "list the project's agents: `gdn validate`")
            }
            ErrorCode::InstanceNotFound => (
                Exit::NotFound,
                "list the conversations: `gdn conversation list`",
            ),
            ErrorCode::InstanceKeyTaken => (
                Exit::Conflict,
                "choose another key with `--conversation KEY`; `gdn conversation list` shows its agent",
            ),
            ErrorCode::CheckpointNotFound => (
                Exit::NotFound,
                "list the checkpoints: `gdn conversation checkpoints`",
            ),
            ErrorCode::InstanceBusy => (
                Exit::Conflict,
                "check its state: `gdn conversation show`; `gdn conversation cancel` ends a turn",
            ),
            ErrorCode::EventNotFound => (Exit::NotFound, "list the events: `gdn event list`"),
            ErrorCode::EventParked => (
                Exit::Parked,
                "list parked events: `gdn event list --parked`",
            ),
            ErrorCode::QuestionNotFound => (
                Exit::NotFound,
                "list open questions: `gdn inbox question list`",
            ),
            ErrorCode::CallNotFound => (Exit::NotFound, "list the calls: `gdn inbox calls`"),
            ErrorCode::ScheduleNotFound => (
                Exit::NotFound,
                "list the schedules: `gdn event schedule list`",
            ),
            ErrorCode::ApprovalNotFound => {
                (Exit::NotFound, "list pending calls: `gdn inbox approvals`")
            }
            ErrorCode::ApprovalDecided => {
                (Exit::Conflict, "list pending calls: `gdn inbox approvals`")
            }
            ErrorCode::SandboxNotFound => (
                Exit::NotFound,
                "list the sandboxes: `gdn proposal sandbox list`",
            ),
            ErrorCode::SandboxTaken => (
                Exit::Conflict,
                "choose another `--run` or `--agent`, or remove it: `gdn proposal sandbox remove`",
            ),
            ErrorCode::ProposalNotFound => {
                (Exit::NotFound, "list the proposals: `gdn proposal list`")
            }
            ErrorCode::ProposalRefused => {
                (Exit::Conflict, "list all reasons: `gdn proposal check`")
            }
            ErrorCode::TaskNotFound => (Exit::NotFound, "list the tasks: `gdn task list --all`"),
            ErrorCode::TaskTaken => (Exit::Conflict, "choose another id: `gdn task new --id ID`"),
            ErrorCode::TaskRefused => (Exit::Conflict, "show its state: `gdn task show TASK`"),
            ErrorCode::PersonNeeded => (
                Exit::PersonNeeded,
                "run the command in your own terminal, not in a tool of an agent",
            ),
            ErrorCode::Overloaded => (
                Exit::TryAgain,
                "wait for the agent to catch up: `gdn ps` shows waiting events",
            ),
            ErrorCode::Stopping => (
                Exit::TryAgain,
                "wait until it has ended, then start it again: `gdn run`",
            ),
            ErrorCode::Storage => (Exit::TryAgain, storage_hint(&error.message)),
            ErrorCode::SecretNotFound => (Exit::NotFound, "list the secrets: `gdn secret list`"),
            ErrorCode::SecretUnreadable => {
                (Exit::Damaged, "list unreadable secrets: `gdn secret list`")
            }
            ErrorCode::SecretNotAllowed => (
                Exit::InvalidConfiguration,
                "if you trust the project with it: `gdn secret allow NAME`",
            ),
            ErrorCode::OauthNotFound => (
                Exit::NotFound,
                "list the OAuthApps: `gdn secret oauth list`",
            ),
            ErrorCode::OauthRefused => (
                Exit::Conflict,
                "log in again: `gdn secret oauth login APP`; `gdn secret oauth list` shows required logins",
            ),
            ErrorCode::OauthUnavailable => (
                Exit::TryAgain,
                "try again later; `gdn logs` shows the log of the process `oauth`",
            ),
            ErrorCode::PackageRefused => (
                Exit::Conflict,
                "nothing was changed; check its source: `gdn package list`",
            ),
            ErrorCode::Damaged => (Exit::Damaged, "list all damage: `gdn daemon verify`"),
            ErrorCode::Cancelled => (
                Exit::Cancelled,
                "list the conversations: `gdn conversation list`",
            ),
            ErrorCode::Internal => (
                Exit::Internal,
                "this is a bug in goondan; for details: `gdn logs --all`",
            ),
        };
        let unknown = NameKind::of(&error);
        let hint = error.suggestion.clone().unwrap_or_else(|| hint.to_owned());
        let message = in_current_words(error);
        Self {
            unknown,
            ..Self::new(exit, message, hint)
        }
    }
}

/// The message of the daemon, with the word `conversation`.
fn in_current_words(error: ControlError) -> String {
    if error.code == ErrorCode::InstanceNotFound {
        return error.message.replace("instance `", "conversation `");
    }
    error.message
}

/// Hint for a file system error, based on the system's message.
fn storage_hint(message: &str) -> &'static str {
    let says = |words: &[&str]| words.iter().any(|words| message.contains(words));
    if says(&["No space left on device", "Disk quota exceeded"]) {
        "free disk space for the state root; for details: `gdn logs --all`"
    } else if says(&[
        "Permission denied",
        "Operation not permitted",
        "Read-only file system",
    ]) {
        "give the daemon's user read and write access there, then try again"
    } else {
        "for details: `gdn logs --all`"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_space_hint_is_given_only_for_a_full_disk() {
        let hint = |message: &str| {
            let error = ControlError::new(ErrorCode::Storage, message);
            Failure::from(error).hint
        };
        assert!(
            hint("cannot write `x`: No space left on device (os error 28)").contains("disk space")
        );
        assert!(hint("cannot list `x`: Permission denied (os error 13)").contains("user read"));
        for other in ["Not a directory", "Too many levels of symbolic links"] {
            assert!(!hint(other).contains("disk space"), "{other}");
        }
    }

    #[test]
    fn the_daemons_own_suggestion_is_the_hint() {
        let error = ControlError::new(ErrorCode::Overloaded, "too many").suggest("wait a minute");
        let failure = Failure::from(error);
        assert_eq!(failure.exit, Exit::TryAgain);
        assert_eq!(failure.hint, "wait a minute");
        assert!(failure.is_retryable());
    }

    #[test]
    fn a_reader_that_has_gone_is_no_failure() {
        let failure = Failure::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert!(failure.silent);
        assert_eq!(failure.exit, Exit::Ok);
        assert!(!Failure::from(std::io::Error::other("disk full")).silent);
    }

    #[test]
    fn failure_message_includes_its_causes() {
        let error = std::io::Error::other("disk full");
        let failure = Failure::new(Exit::Internal, "cannot write", "x").caused_by(Some(&error));
        assert_eq!(failure.to_string(), "cannot write: disk full");
    }
}
