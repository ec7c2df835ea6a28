//! Inputs and effects of `gdn top`.

use goondan_protocol::control::{ApprovalDetail, InstancesPage, UsageReport, WorkspaceChange};
use goondan_protocol::ids::{ApprovalId, InstanceKey};

use serde_json::Value;

use super::board::Facts;
use crate::commands::{approval, call_arguments};
use crate::output::text;

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
    /// True if the same call is approved from now on in its conversation.
    pub(super) is_always: bool,
    /// Changed arguments, if the user set some.
    pub(super) changed: Option<Value>,
    pub(super) detail: ApprovalDetail,
}

impl PendingDecision {
    /// The whole call as text, with the changed arguments.
    pub(super) fn call(&self) -> String {
        let tool = text::one_line(&self.detail.approval.tool_name);
        let input = self.changed.as_ref().unwrap_or(&self.detail.input);
        let call = format!("{tool}\n{}", approval::arguments(input));
        match self.detail.approval.needs_two {
            true => format!(
                "{call}\nApproved: {}",
                approval::approved_by(&self.detail.approval)
            ),
            false => call,
        }
    }

    /// Sets one argument, written as `NAME=VALUE`.
    ///
    /// # Errors
    ///
    /// The reason why the arguments would not fit the tool.
    pub(super) fn set(&self, assignment: &str) -> Result<Self, String> {
        let schema = self.detail.schema.as_ref();
        let input = self.changed.as_ref().unwrap_or(&self.detail.input);
        let assignment = call_arguments::parse_assignment(assignment)?;
        let changed = call_arguments::set(input, schema, &assignment)?;
        call_arguments::check(&changed, schema)?;
        Ok(Self {
            changed: Some(changed).filter(|changed| *changed != self.detail.input),
            ..self.clone()
        })
    }
}

impl Act {
    pub(super) fn question(&self) -> String {
        match self {
            Self::Cancel(key) => format!("Cancel the turn of {key}?"),
            Self::Restart(key) => format!("Restart the process of {key}?"),
            Self::Decide(pending) => {
                let key = &pending.key;
                match (pending.is_approved, pending.is_always, &pending.changed) {
                    (false, ..) => format!("Deny this call of {key}?"),
                    (true, true, _) => {
                        format!("Approve exactly this call in {key} from now on, without asking?")
                    }
                    (true, false, Some(_)) => format!("Approve the changed call of {key}?"),
                    (true, false, None) => format!("Approve this call of {key}?"),
                }
            }
        }
    }

    /// Answers to the question.
    pub(super) fn answers(&self) -> &'static str {
        match self {
            Self::Decide(pending) if pending.is_approved && !pending.is_always => {
                match pending.changed {
                    Some(_) => "y/N, e edit",
                    None => "y/N, e edit, A always",
                }
            }
            Self::Cancel(_) | Self::Restart(_) | Self::Decide(_) => "y/N",
        }
    }
}
