//! Rehearsal: replays recorded turns with another configuration before it becomes active
//! (`BUNDLE-7`).
//!
//! The agent binary replays them, because only it can present tools as a model sees them; the
//! conversation is only read. This module formats the result for users.

use std::path::Path;

use goondan_bundles::limits::{REHEARSAL_BYTES_MAX, REHEARSAL_MS, REHEARSAL_TURNS_MAX};
use goondan_bundles::{BundleError, RehearsalConfigs, text_diff};
use goondan_durable::disk::Disk;
use goondan_protocol::definition::{AgentAssignment, AgentDefinition, ModelDefinition};
use goondan_protocol::ipc::REHEARSE;
use goondan_protocol::rehearsal::{
    ModelChange, Rehearsal, RehearsalScript, RehearsedTurn, ReplayResult, ToolDifferences,
};
use goondan_store::instance::{self, ConversationTail};

use super::module_preflight::{self, PreflightRun};

/// Name of the prompt in a diff.
const PROMPT: &str = "prompt";

pub(super) struct RehearsalInput<'a> {
    pub(super) disk: &'a dyn Disk,
    pub(super) agent_process: &'a Path,
    /// The directory of the conversation.
    pub(super) instance: &'a Path,
    pub(super) turns: u32,
}

/// Checks the number of turns.
///
/// # Errors
///
/// [`BundleError::Invalid`].
pub(super) fn check_turns(turns: u32) -> Result<(), BundleError> {
    if (1..=REHEARSAL_TURNS_MAX).contains(&turns) {
        return Ok(());
    }
    let text = format!("expected 1 to {REHEARSAL_TURNS_MAX} turns to rehearse, found {turns}");
    Err(BundleError::Invalid(text))
}

/// Replays the turns of the conversation with the staged definition. `assign` creates the
/// assignment of a process from it. Blocks for at most [`REHEARSAL_MS`].
///
/// # Errors
///
/// [`BundleError::Invalid`] if the conversation cannot be read or the turns cannot be replayed.
pub(super) fn rehearse(
    stage: &RehearsalInput<'_>,
    staged: RehearsalConfigs<Box<AgentDefinition>>,
    assign: impl Fn(AgentDefinition) -> AgentAssignment,
) -> Result<Rehearsal, BundleError> {
    let invalid = |error: &dyn std::fmt::Display| BundleError::Invalid(error.to_string());
    let RehearsalConfigs {
        changeset_id,
        revision,
        against,
        before,
        after,
        problems,
    } = staged;
    let mut rehearsal = Rehearsal {
        changeset_id,
        revision,
        against,
        breaks: false,
        problems,
        prompt: String::new(),
        model: None,
        tools: ToolDifferences::default(),
        turns: Vec::new(),
        notes: Vec::new(),
    };
    if let Some(after) = after {
        let prompt = |agent: &AgentDefinition| agent.system_prompt.clone().unwrap_or_default();
        rehearsal.prompt = text_diff(PROMPT, &prompt(&before), &prompt(&after));
        rehearsal.model = model_change(&before.model, &after.model);
        let recent = instance::read_tail(stage.disk, stage.instance, REHEARSAL_BYTES_MAX)
            .map_err(|error| invalid(&error))?;
        rehearsal.notes.extend(notes_of(&recent));
        let script = RehearsalScript {
            before: assign(*before),
            after: assign(*after),
            messages: recent.messages,
            turns: stage.turns,
        };
        let played = play(stage.agent_process, &script).map_err(|error| invalid(&error))?;
        rehearsal.problems.extend(played.problems);
        rehearsal.tools = played.tools;
        rehearsal.turns = played.turns;
        rehearsal.notes.extend(played.notes);
    }
    rehearsal.breaks =
        !rehearsal.problems.is_empty() || rehearsal.turns.iter().any(RehearsedTurn::breaks);
    Ok(rehearsal)
}

fn notes_of(recent: &ConversationTail) -> Option<String> {
    let ConversationTail {
        unreadable,
        is_partial,
        ..
    } = recent;
    match (is_partial, unreadable) {
        (false, 0) => None,
        (true, 0) => Some(format!(
            "messages before the last {REHEARSAL_BYTES_MAX} bytes of the conversation were omitted"
        )),
        (_, count) => Some(format!("unreadable messages omitted: {count}")),
    }
}

/// The change of the model, if any.
fn model_change(before: &ModelDefinition, after: &ModelDefinition) -> Option<ModelChange> {
    let named = |model: &ModelDefinition| format!("{} ({})", model.name, model.model);
    (before != after).then(|| ModelChange {
        before: named(before),
        after: named(after),
    })
}

/// Runs the replay in the agent binary.
fn play(agent_process: &Path, script: &RehearsalScript) -> Result<ReplayResult, String> {
    let asked = PreflightRun {
        arguments: &[REHEARSE.to_owned()],
        limit_ms: REHEARSAL_MS,
    };
    let cannot = |error: &dyn std::fmt::Display| format!("failed to replay the turns: {error}");
    let script = serde_json::to_vec(script).map_err(|error| cannot(&error))?;
    let said =
        module_preflight::ask(agent_process, &asked, script).map_err(|error| cannot(&error))?;
    let Some(said) = said else {
        return Err(cannot(&format!("they took more than {REHEARSAL_MS} ms")));
    };
    serde_json::from_slice(&said)
        .map_err(|_| cannot(&"the process that replays them ended early; see its log"))
}
