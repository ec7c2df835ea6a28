//! `messages/llm.jsonl`: every message exchanged between the agent and a model (`LLM-1`).
//!
//! Append-only and never an input of state, so it is not synced line by line.

use goondan_protocol::ids::{AgentName, InstanceKey, StepId, TurnId};
use goondan_protocol::time::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;

use super::{InstanceStore, json_line};
use crate::error::StoreError;

/// The file's name.
pub(super) const LLM: &str = "llm.jsonl";

/// A message sent to or received from a model.
#[derive(Debug)]
pub struct LlmMessage {
    /// Time it was sent or received.
    pub at: Timestamp,
    pub turn_id: TurnId,
    /// The step, if it belongs to one.
    pub step_id: Option<StepId>,
    /// The message, raw: an object with `role` and `content`.
    pub message: Box<RawValue>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LlmRecord<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    recorded_at: Timestamp,
    instance_id: &'a InstanceKey,
    agent_name: &'a AgentName,
    turn_id: &'a TurnId,
    #[serde(skip_serializing_if = "Option::is_none")]
    step_id: Option<&'a StepId>,
    message: &'a RawValue,
}

impl InstanceStore {
    /// Appends one message to the log of model messages (`LLM-1`). Not synced, because it is never
    /// an input of state.
    ///
    /// # Errors
    ///
    /// [`StoreError::InvalidEvent`] if the message cannot be written on one line;
    /// [`StoreError::File`].
    pub fn log_llm(&mut self, message: &LlmMessage) -> Result<(), StoreError> {
        let raw = super::records::one_line(&message.message)
            .map_err(|problem| StoreError::InvalidEvent { problem })?;
        let line = json_line(&LlmRecord {
            kind: "llm.message",
            recorded_at: message.at,
            instance_id: &self.metadata.instance_key,
            agent_name: &self.metadata.agent_name,
            turn_id: &message.turn_id,
            step_id: message.step_id.as_ref(),
            message: &raw,
        })?;
        self.llm.append(&line)
    }
}
