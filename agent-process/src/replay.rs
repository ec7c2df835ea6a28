//! Replays of incidents: plays recorded turns with the current engine and reports its requests,
//! calls and replies.
//!
//! Replies, tool results, answers of other agents and times come from the recording: no model of a
//! provider is asked, no tool runs, and nothing is written. A scripted model is asked, because it
//! is part of this program and has no effect outside; the turn continues with the recorded reply.
//! `gdn incident` compares the result with an earlier one.
//!
//! As in a [rehearsal](crate::rehearsal), extensions begin without a state, modules of extensions
//! are not started, and MCP servers are not asked. Everything is pure except [`run`], which opens
//! the directories of the agents' tools.

use std::path::Path;

use goondan_protocol::definition::{AgentAssignment, ModelProvider};
use goondan_protocol::message::Message;
use goondan_protocol::replay::{PlayedEnd, PlayedTurn, ReplayOutput, ReplayScript, ReplayTurn};

use crate::model::scripted::ScriptedModel;
use crate::rehearsal::RehearsalSide;
use crate::rehearsal::recorded_turns::RecordedTurn;
use crate::tools::{Toolbox, ToolboxError};

mod player;
mod prints;
#[cfg(test)]
mod tests;

use player::{Player, ReplaySide};
use prints::PathNames;

/// An agent cannot be set up.
#[derive(Debug, thiserror::Error)]
#[error("the tools of agent `{agent}` cannot be set up")]
pub(crate) struct ReplaySetupError {
    agent: String,
    #[source]
    source: ToolboxError,
}

/// Plays the turns of a script. `supervisor` is this crate's binary.
///
/// # Errors
///
/// [`ReplaySetupError`] if the present program cannot set up the tools of an agent.
pub(crate) fn run(
    script: &ReplayScript,
    supervisor: &Path,
) -> Result<ReplayOutput, ReplaySetupError> {
    let set_up = |assignment| {
        let tools = Toolbox::new(assignment, supervisor.to_owned());
        let tools = tools.map_err(|source| ReplaySetupError {
            agent: assignment.agent.name.to_string(),
            source,
        })?;
        Ok(ReplaySide::new(
            RehearsalSide::of(assignment, tools),
            scripted_model(assignment),
            &PathNames::of(assignment),
        ))
    };
    let sides: Result<Vec<ReplaySide<'_, Toolbox>>, ReplaySetupError> =
        script.assignments.iter().map(set_up).collect();
    let sides = sides?;
    let turns = script.turns.iter().map(|turn| {
        let side = sides.get(turn.assignment);
        let messages = script.conversations.get(turn.conversation);
        match (side, messages.and_then(|messages| recorded(messages, turn))) {
            (Some(side), Some(recorded)) => Player::new(side, &recorded, &turn.failures).play(),
            (Some(side), None) => side.unplayable("the file has not all of its messages"),
            (None, _) => without_agent(),
        }
    });
    Ok(ReplayOutput {
        turns: turns.collect(),
    })
}

fn recorded<'m>(messages: &'m [Message], turn: &ReplayTurn) -> Option<RecordedTurn<'m>> {
    RecordedTurn::at(messages, turn.turn_id.clone(), (turn.first, turn.count))
}

fn scripted_model(assignment: &AgentAssignment) -> Option<ScriptedModel> {
    match &assignment.agent.model.provider {
        ModelProvider::Scripted { script } => Some(ScriptedModel::new(script)),
        ModelProvider::Connector { .. } => None,
    }
}

/// A turn whose agent is missing in the script.
fn without_agent() -> PlayedTurn {
    let nothing = goondan_protocol::replay::ShortDigest::of(&[]);
    PlayedTurn {
        prompt: nothing.clone(),
        model: nothing,
        steps: Vec::new(),
        end: PlayedEnd::Unplayable {
            why: "its agent is missing".to_owned(),
        },
        unlike: Vec::new(),
        notes: Vec::new(),
    }
}
