//! `task.json`, `agent-state.json` and `tokens.json`: views of the task (`TASK-3`, `TASK-4`,
//! `TASK-6`).

use std::collections::BTreeMap;
use std::path::Path;

use goondan_durable::FileError;
use goondan_protocol::time::Timestamp;
use goondan_protocol::usage::MicroUsd;
use serde::Serialize;

use crate::state::{State, Status, TokenSpend};

/// Paths of the views, in the order of [`views_of`].
pub(super) const NAMES: [&str; 3] = [
    ".metadata/task.json",
    ".metadata/agent-state.json",
    ".metadata/tokens.json",
];

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TaskView<'s> {
    id: &'s str,
    title: &'s str,
    #[serde(rename = "type")]
    kind: &'s str,
    status: Status,
    description: &'s str,
    created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<Timestamp>,
    updated_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    completed_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed_at: Option<Timestamp>,
    current_phase: u32,
    total_phases: u32,
    working_dir: &'s Path,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AgentStateView<'s> {
    task_id: &'s str,
    status: Status,
    /// None before the first phase, and for a task without phases.
    current_phase: Option<u32>,
    current_step: Option<&'s str>,
    progress: u8,
    tokens_used: u64,
    last_update: Timestamp,
    blocked_by: Option<&'static str>,
    checkpoint_id: Option<&'s str>,
    metadata: AgentMetadata<'s>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AgentMetadata<'s> {
    model: Option<&'s str>,
    start_time: Option<Timestamp>,
    completed_steps: Vec<&'s str>,
    pending_steps: Vec<&'s str>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TokenCountsView {
    input: u64,
    output: u64,
    cost: f64,
    cache_read: u64,
    cache_write: u64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TokensView {
    total: TokenCountsView,
    by_phase: BTreeMap<u32, TokenCountsView>,
    history: Vec<TokenEntryView>,
}

#[derive(Debug, Serialize)]
struct TokenEntryView {
    timestamp: Timestamp,
    #[serde(flatten)]
    taken: TokenCountsView,
}

fn taken_view(taken: &TokenSpend) -> TokenCountsView {
    let usage = &taken.usage;
    TokenCountsView {
        input: usage.input_tokens,
        output: usage.output_tokens,
        cost: dollars(taken.cost),
        cache_read: usage.cache_read_tokens,
        cache_write: usage.cache_write_tokens,
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "exact up to nine billion dollars; the exact number is in the history"
)]
fn dollars(cost: MicroUsd) -> f64 {
    cost.0 as f64 / MicroUsd::USD.0 as f64
}

/// The bytes of the three files.
pub(super) fn views_of(state: &State, root: &Path) -> Result<[Vec<u8>; 3], FileError> {
    let ended_as = |status| {
        let ended = state.ended.filter(|(ended, _)| *ended == status);
        ended.map(|(_, at)| at)
    };
    let task = TaskView {
        id: state.task.task_id.as_str(),
        title: &state.task.title,
        kind: &state.task.kind,
        status: state.status(),
        description: &state.task.description,
        created_at: state.created_at,
        started_at: state.started_at,
        updated_at: state.updated_at,
        completed_at: ended_as(Status::Completed),
        failed_at: ended_as(Status::Failed),
        current_phase: state.current_phase,
        total_phases: state.task.total_phases,
        working_dir: root,
    };
    let imported = state.task.model.as_deref();
    let imported = imported.filter(|_| state.sessions().next().is_none());
    let agent = AgentStateView {
        task_id: state.task.task_id.as_str(),
        status: state.status(),
        current_phase: Some(state.current_phase).filter(|phase| *phase > 0),
        current_step: state.step.as_deref(),
        progress: state.progress,
        tokens_used: state.tokens.total.usage.total(),
        last_update: state.updated_at,
        blocked_by: state.blocked_by(),
        checkpoint_id: state.checkpoint.as_deref(),
        metadata: AgentMetadata {
            model: state.model.as_deref().or(imported),
            start_time: state.started_at,
            completed_steps: state.completed_steps().collect(),
            pending_steps: state.pending_steps().collect(),
        },
    };
    let phases = state.tokens.by_phase.iter();
    let history = state.tokens.history.iter();
    let tokens = TokensView {
        total: taken_view(&state.tokens.total),
        by_phase: phases
            .map(|(phase, taken)| (*phase, taken_view(taken)))
            .collect(),
        history: history
            .map(|entry| TokenEntryView {
                timestamp: entry.at,
                taken: taken_view(&entry.taken),
            })
            .collect(),
    };
    Ok([pretty(&task)?, pretty(&agent)?, pretty(&tokens)?])
}

fn unwritable(error: &serde_json::Error) -> FileError {
    FileError::Unwritable {
        problem: error.to_string(),
    }
}

fn pretty(view: &impl Serialize) -> Result<Vec<u8>, FileError> {
    let mut bytes = serde_json::to_vec_pretty(view).map_err(|error| unwritable(&error))?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Returns a record as a line of JSON.
///
/// # Errors
///
/// [`FileError::Unwritable`]; no known case.
pub fn json_line(record: &impl Serialize) -> Result<Vec<u8>, FileError> {
    let mut bytes = serde_json::to_vec(record).map_err(|error| unwritable(&error))?;
    bytes.push(b'\n');
    Ok(bytes)
}
