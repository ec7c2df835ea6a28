//! Rehearsals: replays recorded turns with a new configuration before it becomes active
//! (`BUNDLE-7`).
//!
//! The turn engine plays each turn twice, with the current and with the new agent, over the
//! conversation recorded before it. Replies and tool results are the recorded ones: no model is
//! asked and nothing runs. The requests of both sides and the outcomes of their calls are compared.
//! Everything is pure except [`run`], which the daemon invokes through this binary
//! ([`REHEARSE`](goondan_protocol::ipc::REHEARSE)).
//!
//! Later parts of the conversation do not affect the turn. The extension states at that time are
//! unknown, so extensions start without a state. Modules of extensions are not started, and MCP
//! servers are not asked.

use std::borrow::Cow;
use std::path::PathBuf;

use goondan_protocol::approval::Approve;
use goondan_protocol::definition::{
    AgentAssignment, AgentDefinition, CatalogEntry, ExtensionSource,
};
use goondan_protocol::ids::{InstanceKey, ToolName};
use goondan_protocol::message::{Message, ToolCall};
use goondan_protocol::rehearsal::{RehearsalScript, ReplayResult, ToolDifferences};

use crate::tool_call::ToolRules;
use crate::tools::Toolbox;

mod comparison;
pub(crate) mod playback;
pub(crate) mod recorded_turns;
#[cfg(test)]
pub(crate) mod tests;

/// The view of an agent's tools that a rehearsal or a replay needs.
pub(crate) trait Tools: ToolRules + Clone {
    /// The tools as a model sees them, without those that only servers know.
    fn known(&self) -> Cow<'_, [CatalogEntry]>;

    /// The approval that a call needs before it runs.
    fn approval(&self, call: &ToolCall) -> Approve;

    /// Connections of MCP servers, whose tools are unknown.
    fn unasked(&self) -> Vec<String>;
}

impl Tools for Toolbox {
    fn known(&self) -> Cow<'_, [CatalogEntry]> {
        self.catalog()
    }

    fn approval(&self, call: &ToolCall) -> Approve {
        self.approval_of(call)
    }

    fn unasked(&self) -> Vec<String> {
        let servers = self.servers().iter();
        servers.map(|it| it.connection().to_owned()).collect()
    }
}

/// One side of the comparison: an agent and its tools.
pub(crate) struct RehearsalSide<'a, T> {
    pub(crate) agent: &'a AgentDefinition,
    pub(crate) key: &'a InstanceKey,
    pub(crate) tools: T,
}

impl<'a, T> RehearsalSide<'a, T> {
    pub(crate) fn of(assignment: &'a AgentAssignment, tools: T) -> Self {
        Self {
            agent: &assignment.agent,
            key: &assignment.instance_key,
            tools,
        }
    }
}

/// Plays the rehearsal that the daemon requests. `supervisor` is this crate's binary.
pub(crate) fn run(script: &RehearsalScript, supervisor: PathBuf) -> ReplayResult {
    let tools = |assignment: &AgentAssignment, supervisor, whose: &str| {
        Toolbox::new(assignment, supervisor)
            .map_err(|error| format!("the tools of {whose} cannot be set up: {error}"))
    };
    let before = tools(&script.before, supervisor.clone(), "the active revision");
    let after = tools(&script.after, supervisor, "the revision");
    let (before, after) = match (before, after) {
        (Ok(before), Ok(after)) => (before, after),
        (Err(problem), _) | (_, Err(problem)) => {
            let problems = vec![problem];
            return ReplayResult {
                problems,
                ..ReplayResult::default()
            };
        }
    };
    rehearse(
        &RehearsalSide::of(&script.before, before),
        &RehearsalSide::of(&script.after, after),
        &script.messages,
        script.turns,
    )
}

/// Plays the latest turns with both sides.
fn rehearse<T: Tools>(
    before: &RehearsalSide<'_, T>,
    after: &RehearsalSide<'_, T>,
    messages: &[Message],
    turns: u32,
) -> ReplayResult {
    let recorded = recorded_turns::latest_turns(messages, turns);
    let turns = recorded.iter().map(|turn| {
        let was = playback::play(before, turn);
        let is = playback::play(after, turn);
        comparison::compare((before, &was), (after, &is), turn)
    });
    ReplayResult {
        problems: Vec::new(),
        tools: tools_differ(&before.tools.known(), &after.tools.known()),
        turns: turns.collect(),
        notes: notes_of(after),
    }
}

fn tools_differ(before: &[CatalogEntry], after: &[CatalogEntry]) -> ToolDifferences {
    let only = |these: &[CatalogEntry], those: &[CatalogEntry]| -> Vec<ToolName> {
        let is_there = |name: &ToolName| those.iter().any(|it| it.name == *name);
        let names = these.iter().map(|it| it.name.clone());
        names.filter(|name| !is_there(name)).collect()
    };
    let changed = after.iter().filter(|entry| {
        let was = before.iter().find(|it| it.name == entry.name);
        was.is_some_and(|was| was != *entry)
    });
    ToolDifferences {
        added: only(after, before),
        removed: only(before, after),
        changed: changed.map(|entry| entry.name.clone()).collect(),
    }
}

/// Parts that a rehearsal with this side cannot check.
pub(crate) fn notes_of<T: Tools>(side: &RehearsalSide<'_, T>) -> Vec<String> {
    let mut notes = Vec::new();
    for extension in &side.agent.extensions {
        if matches!(extension.source, ExtensionSource::Module { .. }) {
            notes.push(format!(
                "extension `{}` is a module and was not started",
                extension.name
            ));
        }
    }
    for connection in side.tools.unasked() {
        notes.push(format!(
            "the MCP server of connection `{connection}` was not asked: calls of its tools are taken to fit"
        ));
    }
    notes
}
