//! Inputs and effects of `gdn top`.

use goondan_protocol::control::{InstancesPage, UsageReport, WorkspaceChange};
use goondan_protocol::ids::{ApprovalId, InstanceKey};

use super::board::Facts;

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
    /// No daemon runs the project.
    Lost,
    Stopped,
    Facts(Box<Facts>),
    Conversations(Box<InstancesPage>),
    Usage(Box<UsageReport>),
    /// A requested page, as text.
    Page(PageSubject, String),
    /// Start of the log's lines.
    LogBegins,
    LogLine(String),
    /// A requested decision about a tool call, to be confirmed; none if no call waits.
    Approval(Option<Box<PendingDecision>>),
    Failed(FeedQuery, String),
    Acted(Result<String, String>),
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
    /// The tool call of a conversation that waits for approval; true to approve it.
    Approval(InstanceKey, bool),
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
}

impl PageSubject {
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Act {
    /// Cancel the turn in progress.
    Cancel(InstanceKey),
    /// Replace the process after the turn in progress.
    Restart(InstanceKey),
    /// Decide a tool call that waits for approval.
    Decide(Box<PendingDecision>),
}

/// A decision about a tool call, and the whole call as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PendingDecision {
    pub(super) approval_id: ApprovalId,
    pub(super) key: InstanceKey,
    pub(super) is_approved: bool,
    pub(super) call: String,
}

impl Act {
    pub(super) fn question(&self) -> String {
        match self {
            Self::Cancel(key) => format!("Cancel the turn of {key}?"),
            Self::Restart(key) => format!("Restart the process of {key}?"),
            Self::Decide(pending) => {
                let verb = if pending.is_approved {
                    "Approve"
                } else {
                    "Deny"
                };
                format!("{verb} this call of {}?", pending.key)
            }
        }
    }
}
