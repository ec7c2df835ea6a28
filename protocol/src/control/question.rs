//! `question.*`: what waits for a person's answer.

use serde::{Deserialize, Serialize};

use crate::JsonObject;
use crate::ids::{
    AgentName, ConnectionName, InstanceKey, QuestionId, ToolCallId, TurnId, WorkspaceId,
};
use crate::limits::MAX_QUESTIONS_PAGE;
use crate::question::{QuestionAction, QuestionForm};
use crate::time::Timestamp;

use super::paging::page_of;

/// `question.list`: one page of them, those that have waited for longest first (`OBS-1`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListQuestions {
    /// Only this workspace's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    /// Where the page begins: what the page before said in `next`; none for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<QuestionPlace>,
    /// Most questions on the page, at most and if it is not said [`MAX_QUESTIONS_PAGE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// The place of a question in the list of all.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QuestionPlace {
    /// When it was asked.
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
    /// The questions that wait.
    pub questions: Vec<QuestionInfo>,
    /// Where the next page begins; none on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<QuestionPlace>,
}

impl ListQuestions {
    /// The page that begins with these questions, which come by their places and are all behind
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

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "kind",
    rename_all = "lowercase",
    rename_all_fields = "camelCase"
)]
pub enum QuestionSource {
    /// An MCP server, in a call of one of its tools.
    Mcp {
        /// Its connection.
        connection: ConnectionName,
        /// The tool, by the server's own name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tool: Option<String>,
    },
}

impl QuestionSource {
    /// Who asks, in words.
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

/// A question that waits for an answer, without its form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuestionInfo {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The question.
    pub question_id: QuestionId,
    /// Who asks.
    pub source: QuestionSource,
    /// The conversation whose turn waits.
    pub instance_key: InstanceKey,
    /// Its agent.
    pub agent_name: AgentName,
    /// The turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    /// The tool call it came under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<ToolCallId>,
    /// What is asked. Whoever asks wrote it: it is not to be trusted.
    pub message: String,
    /// When it was asked.
    pub asked_at: Timestamp,
    /// Until when it waits, unless its call is over before. Then it is answered with `cancel`.
    pub expires_at: Timestamp,
}

impl QuestionInfo {
    /// Its place in the list of all.
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
    /// What an answer holds.
    pub form: QuestionForm,
}

/// Result of `question.answer` and `question.decline`: what whoever asked is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuestionClosed {
    /// The question.
    pub question_id: QuestionId,
    /// What was decided.
    pub action: QuestionAction,
}
