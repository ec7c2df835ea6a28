//! Inputs and effects of `gdn top`.

use goondan_protocol::control::{InstancesPage, UsageReport, WorkspaceChange};
use goondan_protocol::ids::InstanceKey;

use super::board::Facts;
use crate::commands::inbox::decisions::{Choice, EnteredText};
use crate::commands::inbox::details::Subject;
use crate::commands::inbox::{Inbox, InboxItem};

/// Number of lines around a view's content: header, tabs, title and footer.
const FRAME_LINES: u16 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) columns: u16,
    pub(super) rows: u16,
}

impl Size {
    /// Number of visible lines in a view; at least one.
    pub(super) fn body_rows(self) -> usize {
        self.rows.saturating_sub(FRAME_LINES).max(1).into()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyPress {
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
    Interrupt,
}

#[derive(Debug)]
pub(super) enum TopInput {
    Key(KeyPress),
    Resized(Size),
    Tick,
    Told(Box<WorkspaceChange>),
    /// The daemon reports changes of all workspaces from now on.
    Connected,
    /// No daemon runs the project.
    Lost,
    Stopped,
    Facts(Box<Facts>),
    Conversations(Box<InstancesPage>),
    Usage(Box<UsageReport>),
    Inbox(Box<Inbox>),
    /// A requested page, as text.
    Page(PageSubject, String),
    /// A requested item of the inbox, with its subject as text and for the decision.
    Item(Box<InboxItem>, String, Box<Subject>),
    /// Start of the log's lines.
    LogBegins,
    LogLine(String),
    Failed(FeedQuery, String),
    Acted(Result<String, String>),
    /// Result of a decision about an item of the inbox.
    Decided(Box<InboxItem>, Result<String, String>),
}

/// An effect to carry out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TopEffect {
    Load(FeedQuery),
    Act(Act),
    Quit,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FeedQuery {
    Facts,
    Conversations,
    Usage,
    /// A page, wrapped to this width in columns.
    Page(PageSubject, u16),
    Logs(LogSource),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LogSource {
    Project,
    Conversation(InstanceKey),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PageSubject {
    /// Latest messages of a conversation.
    Transcript(InstanceKey),
    /// Latest turn of a conversation.
    Trace(InstanceKey),
    /// An item of the inbox in full.
    Item(Box<InboxItem>),
}

impl Act {
    pub(super) fn question(&self) -> String {
        match self {
            Self::Cancel(key) => format!("Cancel the turn of {key}?"),
            Self::Restart(key) => format!("Restart the process of {key}?"),
            Self::Decide(decision) => format!("Decide {}?", decision.item.id),
        }
    }
}

impl PageSubject {
    /// The conversation of a page whose content changes with it.
    pub(super) fn key(&self) -> Option<&InstanceKey> {
        match self {
            Self::Transcript(key) | Self::Trace(key) => Some(key),
            Self::Item(_) => None,
        }
    }

    pub(super) fn title(&self) -> String {
        match self {
            Self::Transcript(key) => format!("Conversation {key}"),
            Self::Trace(key) => format!("Latest turn of {key}"),
            Self::Item(_) => "Needs a person".to_owned(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Act {
    /// Cancel the turn in progress.
    Cancel(InstanceKey),
    /// Replace the process after the turn in progress.
    Restart(InstanceKey),
    /// Decide an item of the inbox.
    Decide(Box<ItemDecision>),
}

/// A decision about an item of the inbox, as it was shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ItemDecision {
    pub(super) item: InboxItem,
    pub(super) subject: Subject,
    pub(super) choice: Choice,
    pub(super) entered: EnteredText,
}
