//! What `gdn top` is told, and what it asks for.

use goondan_protocol::control::{InstancesPage, UsageReport, WorkspaceChange};
use goondan_protocol::ids::InstanceKey;

use super::board::Facts;

/// Lines above and below what a view shows: the head, the tabs, its title and the foot.
const FRAME_LINES: u16 = 4;

/// The size of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) columns: u16,
    pub(super) rows: u16,
}

impl Size {
    /// How many lines of a view are shown at once; one at least.
    pub(super) fn body_rows(self) -> usize {
        self.rows.saturating_sub(FRAME_LINES).max(1).into()
    }
}

/// A key as it is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Enter,
    Escape,
    Backspace,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    NextView,
    PreviousView,
    /// Ctrl-C.
    Interrupt,
}

/// What arrives.
#[derive(Debug)]
pub(super) enum Input {
    Key(Key),
    Resized(Size),
    /// Time went by.
    Tick,
    /// The daemon tells of its own accord.
    Told(Box<WorkspaceChange>),
    /// No daemon runs the project.
    Lost,
    /// The project was stopped.
    Stopped,
    Facts(Box<Facts>),
    Conversations(Box<InstancesPage>),
    Usage(Box<UsageReport>),
    /// A page that was asked for, as text.
    Page(PageAbout, String),
    /// The lines of the log come, from the first that is kept.
    LogBegins,
    LogLine(String),
    /// What was asked for cannot be had.
    Failed(Wanted, String),
    /// What came of an act.
    Acted(Result<String, String>),
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Effect {
    Load(Wanted),
    Act(Act),
    Quit,
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wanted {
    Facts,
    Conversations,
    Usage,
    /// A page of at most so many columns.
    Page(PageAbout, u16),
    Logs(LogsOf),
}

/// Whose log is followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LogsOf {
    Project,
    Conversation(InstanceKey),
}

/// What a page is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PageAbout {
    /// The latest messages of a conversation.
    Transcript(InstanceKey),
    /// Its latest turn.
    Trace(InstanceKey),
}

impl PageAbout {
    pub(super) fn key(&self) -> &InstanceKey {
        match self {
            Self::Transcript(key) | Self::Trace(key) => key,
        }
    }

    pub(super) fn title(&self) -> String {
        match self {
            Self::Transcript(key) => format!("Conversation {key}"),
            Self::Trace(key) => format!("Latest turn of {key}"),
        }
    }
}

/// What a person does to a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Act {
    /// Cancel the turn in progress.
    Cancel(InstanceKey),
    /// Let a new process take over after the turn in progress.
    Restart(InstanceKey),
}

impl Act {
    pub(super) fn question(&self) -> String {
        match self {
            Self::Cancel(key) => format!("Cancel the turn of {key}?"),
            Self::Restart(key) => format!("Restart the process of {key}?"),
        }
    }
}
