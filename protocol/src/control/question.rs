//! `question.*`: questions that wait for a person's answer.

use serde::{Deserialize, Serialize};

use crate::JsonObject;
use crate::ids::{
    AgentName, ConnectionName, InstanceKey, QuestionId, ToolCallId, TurnId, WorkspaceId,
};
use crate::limits::MAX_QUESTIONS_PAGE;
use crate::question::{QuestionAction, QuestionForm};
use crate::time::Timestamp;

use super::pages::page_of;

/// `question.list`: one page of the pending questions, oldest first (`OBS-1`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListQuestions {
    /// Return only questions of this workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    /// Start of the page: `next` of the previous page; absent for the first page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<QuestionPlace>,
    /// Page size; defaults to and is capped at [`MAX_QUESTIONS_PAGE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// Position of a question in the list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QuestionPlace {
    /// Time of the question.
    pub asked_at: Timestamp,
    /// Its workspace.
    pub workspace_id: WorkspaceId,
    /// Its id.
    pub question_id: QuestionId,
}

/// Result of `question.list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuestionsPage {
    /// The pending questions.
    pub questions: Vec<QuestionInfo>,
    /// Start of the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<QuestionPlace>,
}

impl ListQuestions {
    /// The page that starts with these questions, which must be sorted by position and all follow
    /// [`after`](Self::after).
    pub fn page_of(&self, questions: impl Iterator<Item = QuestionInfo>) -> QuestionsPage {
        let (limit, place_of) = (self.limit, QuestionInfo::place);
        let (questions, next) = page_of(questions, limit, MAX_QUESTIONS_PAGE, place_of);
        QuestionsPage { questions, next }
    }
}

/// `question.show`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ShowQuestion {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The question.
    pub question_id: QuestionId,
}

/// `question.answer`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AnswerQuestion {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The question.
    pub question_id: QuestionId,
    /// The answer, by field.
    pub content: JsonObject,
}

/// `question.decline`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeclineQuestion {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The question.
    pub question_id: QuestionId,
}

/// Requester of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "kind",
    rename_all = "lowercase",
    rename_all_fields = "camelCase"
)]
pub enum QuestionSource {
    /// An MCP server, during a call of one of its tools.
    Mcp {
        /// Its connection.
        connection: ConnectionName,
        /// The tool, by the server's name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tool: Option<String>,
    },
}

impl QuestionSource {
    /// Describes the requester as text.
    #[must_use]
    pub fn in_words(&self) -> String {
        match self {
            Self::Mcp {
                connection,
                tool: Some(tool),
            } => format!("tool {tool} of the MCP server of connection {connection}"),
            Self::Mcp {
                connection,
                tool: None,
            } => format!("the MCP server of connection {connection}"),
        }
    }
}

/// A pending question, without its form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuestionInfo {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The question.
    pub question_id: QuestionId,
    /// The requester.
    pub source: QuestionSource,
    /// The conversation whose turn waits.
    pub instance_key: InstanceKey,
    /// Its agent.
    pub agent_name: AgentName,
    /// The turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    /// The tool call that caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<ToolCallId>,
    /// The text. It is untrusted because the requester wrote it.
    pub message: String,
    /// Time of the question.
    pub asked_at: Timestamp,
    /// Time at which it expires and is answered with `cancel`, unless its call ends earlier.
    pub expires_at: Timestamp,
}

impl QuestionInfo {
    /// Its position in the list.
    #[must_use]
    pub fn place(&self) -> QuestionPlace {
        QuestionPlace {
            asked_at: self.asked_at,
            workspace_id: self.workspace_id.clone(),
            question_id: self.question_id.clone(),
        }
    }
}

/// Result of `question.show`: a question with the form of its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuestionDetail {
    /// The question.
    pub question: QuestionInfo,
    /// The form of the answer.
    pub form: QuestionForm,
}

/// Result of `question.answer` and `question.decline`: the reply that the requester receives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuestionClosed {
    /// The question.
    pub question_id: QuestionId,
    /// The decision.
    pub action: QuestionAction,
}
