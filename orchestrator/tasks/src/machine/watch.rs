//! Transient facts about the current run.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use goondan_cli_agents::tools::is_own_tool;
use goondan_cli_agents::{ChoicePrompt, ToolActivity, ToolState};
use goondan_protocol::time::Timestamp;

use crate::limits::{EXIT_GRACE_MS, LAST_WORDS_CHARS_MAX};

/// Maximum characters of a tool's name, which may be a command.
const TOOL_CHARS_MAX: usize = 200;

/// Maximum open calls of goondan's own tools that are tracked.
const OWN_CALLS_MAX: usize = 64;

/// Information about the current run, which is discarded when the run ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RunWatch {
    pub(super) active_at: Option<Timestamp>,
    pub(super) result: Option<Result<(), String>>,
    /// Time of its first result.
    pub(super) result_at: Option<Timestamp>,
    /// Time when it is ended if it has not exited.
    pub(super) end_at: Option<Timestamp>,
    /// Time that it has to exit, in milliseconds.
    pub(super) exit_grace_ms: i64,
    pub(super) completed_phase: Option<u32>,
    /// True if it was asked to end for a reason other than a stall.
    pub(super) is_ended_on_purpose: bool,
    pub(super) is_stalled: bool,
    pub(super) rate_limit: Option<Timestamp>,
    /// Reason why neither it nor the next run can succeed.
    pub(super) blocked: Option<String>,
    /// Number of facts it has reported.
    pub(super) facts: usize,
    /// The end of the output of a `setup` or `verify` command.
    pub(super) printed: String,
    pub(super) paused_at: Option<Timestamp>,
    pub(super) tools: Tools,
    /// True if it completed a phase, or asked for something.
    pub(super) is_answered: bool,
    pub(super) last_words: FinalText,
    /// The last lines of its standard error.
    pub(super) stderr: String,
    /// Files that it changed, for a task with several agents.
    pub(super) files: Vec<String>,
    /// Requests of its program to its user, by request id. Requests that are not listed are
    /// permissions.
    pub(super) program_asks: BTreeMap<String, ProgramAsk>,
}

impl Default for RunWatch {
    fn default() -> Self {
        Self {
            active_at: None,
            result: None,
            result_at: None,
            end_at: None,
            exit_grace_ms: EXIT_GRACE_MS,
            completed_phase: None,
            is_ended_on_purpose: false,
            is_stalled: false,
            rate_limit: None,
            blocked: None,
            facts: 0,
            printed: String::new(),
            paused_at: None,
            tools: Tools::default(),
            is_answered: false,
            last_words: FinalText::default(),
            stderr: String::new(),
            files: Vec::new(),
            program_asks: BTreeMap::new(),
        }
    }
}

/// Request of a program to its user within a run, other than a permission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProgramAsk {
    /// Questions that are asked one at a time: the remaining ones, and the answers so far.
    Choices {
        choices: VecDeque<ChoicePrompt>,
        answers: Vec<(String, String)>,
    },
    /// A plan that needs approval.
    Plan,
}

/// Tool calls of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Tools {
    completed: u64,
    failed: u64,
    /// Name of the last named call.
    last: String,
    /// Ids of calls of goondan's own tools that have not ended.
    own: BTreeSet<String>,
}

impl Tools {
    /// True if it is a call of one of goondan's own tools. The end of a call may have no name.
    pub(super) fn is_own(&mut self, tool: &ToolActivity) -> bool {
        let is_own = is_own_tool(&tool.name) || self.own.contains(&tool.id);
        if is_own && tool.state == ToolState::Started && self.own.len() < OWN_CALLS_MAX {
            self.own.insert(tool.id.clone());
        } else if is_own && tool.state != ToolState::Started {
            self.own.remove(&tool.id);
        }
        is_own
    }

    pub(super) fn count(&mut self, tool: &ToolActivity) {
        if !tool.name.is_empty() {
            self.last = tool.name.chars().take(TOOL_CHARS_MAX).collect();
        }
        match tool.state {
            ToolState::Started => {}
            ToolState::Completed => self.completed += 1,
            ToolState::Failed => self.failed += 1,
        }
    }

    /// Returns why a run whose tool calls all failed is not a success; none if a call succeeded or
    /// there were none.
    pub(super) fn all_failed(&self) -> Option<String> {
        if self.failed == 0 || self.completed > 0 {
            return None;
        }
        let calls = match self.failed {
            1 => "its only tool call failed".to_owned(),
            failed => format!("all its {failed} tool calls failed"),
        };
        Some(match self.last.as_str() {
            "" => calls,
            name => format!("{calls}, most recently {name}"),
        })
    }
}

/// End of the agent's text since its last tool call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FinalText {
    text: String,
    is_over: bool,
}

impl FinalText {
    pub(super) fn append(&mut self, text: &str) {
        if std::mem::take(&mut self.is_over) {
            self.text.clear();
        }
        self.text.push_str(text);
        let beyond = self
            .text
            .chars()
            .count()
            .saturating_sub(LAST_WORDS_CHARS_MAX);
        if let Some((at, _)) = self.text.char_indices().nth(beyond) {
            self.text.drain(..at);
        }
    }

    pub(super) fn tool(&mut self) {
        self.is_over = true;
    }

    pub(super) fn take(&mut self) -> String {
        std::mem::take(&mut self.text).trim().to_owned()
    }
}
