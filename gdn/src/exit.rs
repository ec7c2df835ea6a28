//! How `gdn` ends: the stable exit codes, once for scripts and once for `docs/cli.md`.

use std::process::ExitCode;

/// How a command ended.
///
/// The numbers never change their meaning; a new kind of end gets a new number. The table in
/// `docs/cli.md` is checked against [`Exit::ALL`] by a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The command did what it says.
    Ok,
    /// A fault in goondan itself, or one of the machine that no other code names.
    Internal,
    /// The command line is not valid, or a question could not be asked because no terminal is there.
    Usage,
    /// No daemon runs on this state root.
    DaemonNotRunning,
    /// `gdn` and the daemon are of different versions, or a newer one wrote the state root.
    VersionMismatch,
    /// There is no such project, workspace, agent or conversation.
    NotFound,
    /// The project's configuration is not valid.
    InvalidConfiguration,
    /// The agent could not answer: its turn failed.
    TurnFailed,
    /// Refused for now: too many events wait, the daemon is stopping, its disk cannot be written, or a registry does
    /// not answer.
    TryAgain,
    /// The connection to the daemon was lost while it was needed.
    ConnectionLost,
    /// The request contradicts what is there: a file, a key or a workspace belongs to something else.
    Conflict,
    /// The time limit passed; what was accepted goes on.
    TimedOut,
    /// Nothing was done: the question was answered with no, or its subject was deleted meanwhile.
    Cancelled,
    /// The daemon could not be started.
    StartFailed,
    /// The event is parked: its turn crashed too many processes, and a person has to decide.
    Parked,
    /// Something that was written cannot be read any more.
    Damaged,
    /// What was asked for is shown, and something in it does not run as it should.
    Degraded,
    /// Only a person may do that, and an agent's or a connector's program tried.
    PersonNeeded,
    /// The new version did not do its work, and the one before is in its place again.
    TakenBack,
    /// Ctrl-C; what was accepted goes on.
    Interrupted,
}

impl Exit {
    /// Every way to end, by rising code.
    pub const ALL: [Self; 20] = [
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
        Self::Interrupted,
    ];

    /// The number the shell sees.
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
            // The shell's own convention: 128 + the number of SIGINT.
            Self::Interrupted => 130,
        }
    }

    /// The name `--json` errors carry in `code`.
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
            Self::Interrupted => "interrupted",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
