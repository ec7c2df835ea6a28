//! Masks the secret values of an incident, as the daemon masks its log.
//!
//! Ids and names stay as they are, because the parts of an incident refer to each other by them. If
//! one contains a value, the [last check](super::leaks) refuses the file.

use goondan_masking::{MaskTable, MasksTooLarge};
use goondan_protocol::definition::AgentDefinition;
use goondan_protocol::message::Message;
use serde_json::Value;

use super::secrets::SecretText;
use crate::exit::Exit;
use crate::failure::Failure;

/// Fields of a message that are texts of users, models and tools.
const TEXTS: [&str; 2] = ["data", "metadata"];

/// The values to mask.
#[derive(Debug, Default)]
pub(super) struct Redaction {
    masks: MaskTable,
}

impl Redaction {
    /// # Errors
    ///
    /// The values are too large to search for.
    pub(super) fn of(secrets: &[SecretText]) -> Result<Self, MasksTooLarge> {
        let values: Vec<&str> = secrets.iter().map(|it| it.value.as_str()).collect();
        let mut masks = MaskTable::default();
        masks.add(&values)?;
        Ok(Self { masks })
    }

    pub(super) fn text(&self, text: &str) -> String {
        self.masks.text(text).into_owned()
    }

    /// Masks a message. One that would be damaged by that stays as it is.
    pub(super) fn message(&self, message: Message) -> Message {
        let Ok(Value::Object(mut fields)) = serde_json::to_value(&message) else {
            return message;
        };
        for name in TEXTS {
            if let Some(value) = fields.get_mut(name) {
                *value = self.masks.value(std::mem::take(value));
            }
        }
        serde_json::from_value(Value::Object(fields)).unwrap_or(message)
    }

    /// An agent as JSON, masked. A path of the project begins with `{project}` instead of `root`.
    pub(super) fn definition(&self, agent: &AgentDefinition, root: &str) -> Result<Value, Failure> {
        let value = serde_json::to_value(agent).map_err(|error| unmaskable(agent, &error))?;
        Ok(self.masks.value(without_root(value, root)))
    }

    /// An agent for the engine: masked, because the recording is, too.
    pub(super) fn masked(&self, agent: &AgentDefinition) -> Result<AgentDefinition, Failure> {
        let masked = serde_json::to_value(agent).map(|value| self.masks.value(value));
        masked
            .and_then(serde_json::from_value)
            .map_err(|error| unmaskable(agent, &error))
    }
}

/// A name or another fixed value of the configuration contains a secret value.
fn unmaskable(agent: &AgentDefinition, error: &serde_json::Error) -> Failure {
    let message = format!("cannot mask the secret values in agent `{}`", agent.name);
    let hint = "choose secret values that do not occur in names of the configuration";
    Failure::new(Exit::Conflict, message, hint).caused_by(Some(error))
}

fn without_root(value: Value, root: &str) -> Value {
    match value {
        Value::String(text) if text.starts_with(root) => {
            Value::String(text.replacen(root, "{project}", 1))
        }
        Value::Array(items) => items.into_iter().map(|it| without_root(it, root)).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter();
            let fields = fields.map(|(name, value)| (name, without_root(value, root)));
            Value::Object(fields.collect())
        }
        plain @ (Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_)) => plain,
    }
}

#[cfg(test)]
mod tests {
    use goondan_protocol::message::{ToolCall, ToolResult};
    use goondan_protocol::time::Timestamp;
    use serde_json::json;

    use super::*;

    fn redaction(value: &str) -> Redaction {
        let secret = SecretText {
            what: "a secret".to_owned(),
            value: value.to_owned(),
        };
        Redaction::of(&[secret]).unwrap()
    }

    #[test]
    fn sec_2_texts_are_masked_and_ids_stay() {
        let call: ToolCall = ToolCall {
            id: "c1".parse().unwrap(),
            tool_name: "bash__exec".to_owned(),
            input: json!({"command": "use hunter2-and-more"}),
        };
        let result = ToolResult {
            tool_call_id: call.id,
            tool_name: call.tool_name,
            text: "aHVudGVyMi1hbmQtbW9yZQ==".to_owned(),
            is_error: false,
            images: Vec::new(),
        };
        let at = Timestamp::from_unix_millis(0);
        let message = Message::tool("hunter2-and-more:r0".parse().unwrap(), at, &result);
        let masked = redaction("hunter2-and-more").message(message);
        assert_eq!(masked.id.as_str(), "hunter2-and-more:r0");
        let results = masked.data.content.tool_results();
        assert_eq!(results[0].text, "[masked]Q==");
        assert_eq!(results[0].tool_call_id.as_str(), "c1");
    }

    #[test]
    fn paths_of_the_project_do_not_name_the_machine() {
        let value = json!({"a": ["/home/ada/shop/tools/x.ts", "see /home/ada/shop"]});
        let moved = without_root(value, "/home/ada/shop");
        assert_eq!(
            moved,
            json!({"a": ["{project}/tools/x.ts", "see /home/ada/shop"]})
        );
    }
}
