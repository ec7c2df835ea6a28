//! Fingerprints of the parts of a request, independent of the place of the project.

use std::collections::BTreeMap;

use goondan_protocol::definition::{AgentAssignment, AgentDefinition, CatalogEntry, ModelProvider};
use goondan_protocol::ids::ToolName;
use goondan_protocol::message::{Message, MessageContent, ToolCall};
use goondan_protocol::observe::detail_of;
use goondan_protocol::replay::{PlayedMessage, PlayedReply, ShortDigest};
use serde_json::{Value, json};

/// Directories whose paths differ between machines, with the texts that replace them.
#[derive(Debug, Clone, Default)]
pub(super) struct PathNames(Vec<(String, &'static str)>);

impl PathNames {
    pub(super) fn of(assignment: &AgentAssignment) -> Self {
        let places = [
            (&assignment.work_dir, "{work}"),
            (&assignment.project_root, "{project}"),
        ];
        let texts = places.map(|(path, name)| (path.to_string_lossy().into_owned(), name));
        let texts = texts.into_iter().filter(|(path, _)| path.len() > 1);
        Self(texts.collect())
    }

    /// The text without the paths of this machine.
    fn without_paths(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (path, name)| {
            if text.contains(path) {
                text.replace(path, name)
            } else {
                text
            }
        })
    }

    pub(super) fn print_of_prompt(&self, agent: &AgentDefinition) -> ShortDigest {
        let prompt = agent.system_prompt.as_deref().unwrap_or_default();
        ShortDigest::of(&[&self.without_paths(prompt)])
    }

    /// The tools by name, with a print of the description that the model gets.
    pub(super) fn prints_of_tools(
        &self,
        catalog: &[CatalogEntry],
    ) -> BTreeMap<ToolName, ShortDigest> {
        let prints = catalog.iter().map(|entry| {
            let parameters = self.without_paths(&entry.parameters.to_string());
            let description = self.without_paths(&entry.description);
            let print = ShortDigest::of(&[&description, &parameters]);
            (entry.name.clone(), print)
        });
        prints.collect()
    }
}

/// The model with its parameters, without a script.
pub(super) fn print_of_model(agent: &AgentDefinition) -> ShortDigest {
    let model = &agent.model;
    let settings = match &model.provider {
        ModelProvider::Scripted { .. } => json!("scripted"),
        ModelProvider::Connector { .. } => json!(model.provider),
    };
    ShortDigest::of(&[model.name.as_str(), &model.model, &settings.to_string()])
}

/// Role and content of a message, as far as a model sees them.
pub(super) fn print_of_message(message: &Message) -> ShortDigest {
    let role = json!(message.data.role).to_string();
    ShortDigest::of(&[&role, &message.data.content.as_json().to_string()])
}

pub(super) fn played_message(message: &Message) -> PlayedMessage {
    PlayedMessage {
        id: message.id.clone(),
        fingerprint: print_of_message(message),
        detail: detail_of(&shown(&message.data.content)),
    }
}

/// The text of a message, or a description of its other content.
fn shown(content: &MessageContent) -> String {
    let text = content.to_text();
    if !text.is_empty() {
        return text;
    }
    let results = content.tool_results().into_iter();
    let results: Vec<String> = results.map(|result| result.text).collect();
    if results.is_empty() {
        calls_as_text(&content.tool_calls())
    } else {
        results.join("\n")
    }
}

fn calls_as_text(calls: &[ToolCall]) -> String {
    let calls = calls
        .iter()
        .map(|call| format!("{} {}", call.tool_name, call.input));
    calls.collect::<Vec<_>>().join("; ")
}

/// A reply, whichever model wrote it.
pub(super) fn print_of_reply(text: &str, calls: &[ToolCall]) -> PlayedReply {
    let made = calls
        .iter()
        .map(|call| json!([call.id, call.tool_name, call.input]));
    let made = Value::Array(made.collect());
    let shown = [text.to_owned(), calls_as_text(calls)];
    let shown: Vec<String> = shown.into_iter().filter(|part| !part.is_empty()).collect();
    PlayedReply {
        fingerprint: ShortDigest::of(&["reply", text, &made.to_string()]),
        detail: detail_of(&shown.join(" → ")),
    }
}

/// A failure instead of a reply. Recordings only have the beginning of its text.
pub(super) fn print_of_failure(message: &str) -> PlayedReply {
    let detail = detail_of(message);
    PlayedReply {
        fingerprint: ShortDigest::of(&["failure", &detail]),
        detail: format!("fails: {detail}"),
    }
}
