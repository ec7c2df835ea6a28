//! A model's thoughts: text for people, and blocks to send back to the same model.

use std::collections::BTreeMap;

use goondan_protocol::definition::HostedModel;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Thoughts stored with a reply.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Thoughts {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) text: String,
    /// The model they belong to, because another model cannot use their signatures.
    model: String,
    /// The provider's own blocks, in the form to send back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) blocks: Vec<Value>,
    /// Signatures of tool calls, by the call's id.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) signatures: BTreeMap<String, Vec<String>>,
    /// Format of the first version.
    #[serde(default, skip_serializing)]
    parts: Vec<ThoughtPart>,
}

/// A part of thoughts in the format of the first version.
#[derive(Debug, Clone, Deserialize)]
enum ThoughtPart {
    ThoughtSignature(String),
    ReasoningContent(String),
    Custom {
        data: Value,
    },
    #[serde(untagged)]
    Other(serde::de::IgnoredAny),
}

impl Thoughts {
    /// Creates the thoughts of a model.
    pub(super) fn new(model: &HostedModel, text: String, blocks: Vec<Value>) -> Self {
        Self {
            text,
            model: model.model.clone(),
            blocks,
            signatures: BTreeMap::new(),
            parts: Vec::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty() && self.blocks.is_empty() && self.signatures.is_empty()
    }

    /// Parses the stored thoughts of a message, if this exact model can reuse them.
    pub(super) fn read(kept: &Value, model: &HostedModel) -> Option<Self> {
        let mut thoughts: Self = serde_json::from_value(kept.clone()).ok()?;
        if thoughts.model != model.model {
            return None;
        }
        if thoughts.blocks.is_empty() {
            thoughts.blocks = blocks_of(std::mem::take(&mut thoughts.parts));
        }
        Some(thoughts)
    }
}

/// Converts the parts of the first version to blocks: each signed thought with its signature and
/// text.
fn blocks_of(parts: Vec<ThoughtPart>) -> Vec<Value> {
    let (mut signatures, mut texts, mut blocks) = (Vec::new(), Vec::new(), Vec::new());
    for part in parts {
        match part {
            ThoughtPart::ThoughtSignature(signature) => signatures.push(signature),
            ThoughtPart::ReasoningContent(text) => texts.push(text),
            ThoughtPart::Custom { data } => blocks.push(data),
            ThoughtPart::Other(_) => {}
        }
    }
    if signatures.len() == texts.len() {
        let signed = signatures.into_iter().zip(texts).map(|(signature, text)| {
            json!({"type": "thinking", "thinking": text, "signature": signature})
        });
        blocks.splice(0..0, signed);
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> HostedModel {
        serde_json::from_value(json!({"name": "m", "provider": "anthropic", "model": "big-1"}))
            .unwrap()
    }

    #[test]
    fn thoughts_of_the_first_version_are_still_read() {
        let kept = json!({"text": "Hm.", "model": "big-1", "parts": [
            {"ThoughtSignature": "c2ln"}, {"ReasoningContent": "Hm."},
            {"Custom": {"model_iden": null, "data": {"type": "redacted_thinking", "data": "x"}}},
            {"Text": "?"},
        ]});
        let thoughts = Thoughts::read(&kept, &model()).unwrap();
        assert_eq!(
            thoughts.blocks,
            [
                json!({"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}),
                json!({"type": "redacted_thinking", "data": "x"}),
            ]
        );
        let kept = json!(thoughts);
        assert_eq!(kept.get("parts"), None);
        assert_eq!(
            Thoughts::read(&kept, &model()).unwrap().blocks,
            thoughts.blocks
        );
    }

    #[test]
    fn thoughts_of_another_model_are_not_shown() {
        let kept = json!({"text": "Hm.", "model": "big-2"});
        assert!(Thoughts::read(&kept, &model()).is_none());
    }
}
