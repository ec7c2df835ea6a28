//! The file of an incident: records of turns, and the actions of the turn engine in them
//! when it was exported.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use goondan_protocol::ids::{AgentName, EventId, InstanceKey, TurnId};
use goondan_protocol::message::Message;
use goondan_protocol::replay::PlayedTurn;
use goondan_protocol::time::Timestamp;
use goondan_protocol::trace::TraceId;
use goondan_protocol::usage::MicroUsd;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::limits::INCIDENT_BYTES_MAX;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::text;

/// Format of the file. A later version with another format refuses this one, or reads it.
pub(super) const FORMAT: &str = "goondan.incident/1";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Incident {
    pub(super) format: String,
    /// Version of goondan that exported it.
    pub(super) goondan: String,
    pub(super) exported_at: Timestamp,
    pub(super) trace_id: TraceId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) package: Option<String>,
    pub(super) configuration: RecordedConfiguration,
    pub(super) conversations: Vec<RecordedConversation>,
    pub(super) turns: Vec<IncidentTurn>,
    /// Parts that the file lacks, and differences between recording and replay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RecordedConfiguration {
    /// Digest of the configuration in the file.
    pub(super) digest: String,
    /// Digests of the configurations that the turns ran with.
    pub(super) ran_with: Vec<String>,
    /// The agents with prompts, models, tools and extensions. Paths of the project begin with
    /// `{project}`.
    pub(super) agents: BTreeMap<AgentName, Value>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RecordedConversation {
    pub(super) agent_name: AgentName,
    pub(super) instance_key: InstanceKey,
    /// All messages up to the end of the last turn, oldest first.
    pub(super) messages: Vec<Message>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct IncidentTurn {
    pub(super) turn_id: TurnId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) event_id: Option<EventId>,
    /// Index of its conversation.
    pub(super) conversation: usize,
    /// Index of its first message.
    pub(super) first: usize,
    /// Number of its messages.
    pub(super) count: usize,
    pub(super) started_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ended_at: Option<Timestamp>,
    /// `completed`, `failed` or `parked`.
    pub(super) outcome: String,
    /// The beginning of the error of a failed turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    /// Errors of the model, by step.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) failures: BTreeMap<u32, String>,
    /// Actions of the turn engine in the turn, when it was exported.
    pub(super) played: PlayedTurn,
    /// Costs of the replies at the prices of that time, by step.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) costs: BTreeMap<u32, MicroUsd>,
}

impl Incident {
    /// The conversation of a turn.
    pub(super) fn conversation(&self, turn: &IncidentTurn) -> Option<&RecordedConversation> {
        self.conversations.get(turn.conversation)
    }

    /// The messages of a turn.
    pub(super) fn messages(&self, turn: &IncidentTurn) -> &[Message] {
        let conversation = self.conversation(turn);
        let messages = conversation.map_or(&[][..], |it| it.messages.as_slice());
        let end = turn.first.saturating_add(turn.count);
        messages.get(turn.first..end).unwrap_or_default()
    }

    /// Number of steps of all turns.
    pub(super) fn steps(&self) -> usize {
        self.turns.iter().map(|turn| turn.played.steps.len()).sum()
    }

    /// Parses a file.
    ///
    /// # Errors
    ///
    /// The reason why it is not an incident of this format.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        /// The first field, which says if the others can be read.
        #[derive(Deserialize)]
        struct Head {
            format: String,
        }
        let head: Head = serde_json::from_slice(bytes)
            .map_err(|error| format!("it is not an incident: {error}"))?;
        if head.format != FORMAT {
            let format = text::one_line(&head.format);
            return Err(format!("its format is `{format}`, not `{FORMAT}`"));
        }
        let incident: Self =
            serde_json::from_slice(bytes).map_err(|error| format!("it is damaged: {error}"))?;
        for turn in &incident.turns {
            if turn.count == 0 || incident.messages(turn).len() != turn.count {
                let id = &turn.turn_id;
                return Err(format!("it lacks messages of turn `{id}`"));
            }
        }
        Ok(incident)
    }

    /// Reads a file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is too large, or is not an incident.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let hint = "pass a file that `gdn incident export` wrote";
        let unreadable = |error: std::io::Error| {
            let message = format!("cannot read {}", path.display());
            Failure::new(Exit::NotFound, message, hint).caused_by(Some(&error))
        };
        let file = File::open(path).map_err(unreadable)?;
        let most = u64::try_from(INCIDENT_BYTES_MAX).unwrap_or(u64::MAX);
        let mut bytes = Vec::new();
        file.take(most.saturating_add(1))
            .read_to_end(&mut bytes)
            .map_err(unreadable)?;
        let refused = |why: String| {
            let message = format!("cannot replay {}: {why}", path.display());
            Failure::new(Exit::Damaged, message, hint)
        };
        if bytes.len() > INCIDENT_BYTES_MAX {
            let most = text::bytes(most);
            return Err(refused(format!("it has more than {most}")));
        }
        Self::parse(&bytes).map_err(refused)
    }
}
