//! The stable exit codes of `gdn`, shared by scripts and `docs/cli.md`.

use std::process::ExitCode;

/// Exit code of a command.
///
/// Codes never change their meaning; a new outcome gets a new code. A test checks the table in `docs/cli.md` against
/// [`Exit::ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Ok,
    /// A bug in goondan, or a machine error without a code of its own.
    Internal,
    /// The command line is not valid, or a confirmation needs a terminal.
    Usage,
    /// No daemon runs on this state root.
    DaemonNotRunning,
    /// `gdn` and the daemon have different versions, or a newer version wrote the state root.
    VersionMismatch,
    /// The project, workspace, agent or conversation does not exist.
    NotFound,
    /// The project's configuration is not valid.
    InvalidConfiguration,
    /// The turn failed, so there is no reply.
    TurnFailed,
    /// Refused temporarily: too many pending events, the daemon is stopping, its disk is not writable, or a registry
    /// does not respond.
    TryAgain,
    /// The connection to the daemon was lost during a request.
    ConnectionLost,
    /// The request conflicts with existing state: a file, a key or a workspace belongs to something else.
    Conflict,
    /// The time limit passed; accepted work continues.
    TimedOut,
    /// No change was made: the user declined, or the subject was deleted in the meantime.
    Cancelled,
    /// The daemon could not be started.
    StartFailed,
    /// The event is parked: its turn crashed too many processes, and a person must decide.
    Parked,
    /// Stored data is not readable.
    Damaged,
    /// The requested data is shown, and part of the system is unhealthy.
    Degraded,
    /// The action is reserved for people, and a program of an agent or connector attempted it.
    PersonNeeded,
    /// The new version was unhealthy, and the upgrade was rolled back.
    TakenBack,
    TaskFailed,
    /// The watched task was canceled.
    TaskCancelled,
    /// A replay of an incident differs from its recording.
    Diverged,
    /// The other machine, its `gdn` or its login does not work.
    RemoteUnreachable,
    /// Ctrl-C; accepted work continues.
    Interrupted,
}

impl Exit {
    /// All exit codes, in ascending order.
    pub const ALL: [Self; 24] = [
        Self::Ok,
        Self::Internal,
        Self::Usage,
        Self::DaemonNotRunning,
        Self::VersionMismatch,
        Self::NotFound,
        Self::InvalidConfiguration,
        Self::TurnFailed,
        Self::TryAgain,
        Self::ConnectionLost,
        Self::Conflict,
        Self::TimedOut,
        Self::Cancelled,
        Self::StartFailed,
        Self::Parked,
        Self::Damaged,
        Self::Degraded,
        Self::PersonNeeded,
        Self::TakenBack,
        Self::TaskFailed,
        Self::TaskCancelled,
        Self::Diverged,
        Self::RemoteUnreachable,
        Self::Interrupted,
    ];

    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Internal => 1,
            Self::Usage => 2,
            Self::DaemonNotRunning => 3,
            Self::VersionMismatch => 4,
            Self::NotFound => 5,
            Self::InvalidConfiguration => 6,
            Self::TurnFailed => 7,
            Self::TryAgain => 8,
            Self::ConnectionLost => 9,
            Self::Conflict => 10,
            Self::TimedOut => 11,
            Self::Cancelled => 12,
            Self::StartFailed => 13,
            Self::Parked => 14,
            Self::Damaged => 15,
            Self::Degraded => 16,
            Self::PersonNeeded => 17,
            Self::TakenBack => 18,
            Self::TaskFailed => 19,
            Self::TaskCancelled => 20,
            Self::Diverged => 21,
            Self::RemoteUnreachable => 22,
            // Shell convention: 128 plus the number of SIGINT.
            Self::Interrupted => 130,
        }
    }

    /// Value of `code` in `--json` errors.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Internal => "internal",
            Self::Usage => "usage",
            Self::DaemonNotRunning => "daemonNotRunning",
            Self::VersionMismatch => "versionMismatch",
            Self::NotFound => "notFound",
            Self::InvalidConfiguration => "invalidConfiguration",
            Self::TurnFailed => "turnFailed",
            Self::TryAgain => "tryAgain",
            Self::ConnectionLost => "connectionLost",
            Self::Conflict => "conflict",
            Self::TimedOut => "timedOut",
            Self::Cancelled => "cancelled",
            Self::StartFailed => "startFailed",
            Self::Parked => "parked",
            Self::Damaged => "damaged",
            Self::Degraded => "degraded",
            Self::PersonNeeded => "personNeeded",
            Self::TakenBack => "takenBack",
            Self::TaskFailed => "taskFailed",
            Self::TaskCancelled => "taskCancelled",
            Self::Diverged => "diverged",
            Self::RemoteUnreachable => "remoteUnreachable",
            Self::Interrupted => "interrupted",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
