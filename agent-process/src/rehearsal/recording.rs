//! Which turns a conversation holds, and what was recorded of each.

use goondan_protocol::ids::{StepId, ToolCallId, TurnId};
use goondan_protocol::message::{Message, MessageSource, ToolResult};

/// How the id of the message ends that begins a turn.
const FIRST: &str = ":u";

/// A turn as it was recorded.
#[derive(Debug)]
pub(super) struct RecordedTurn<'m> {
    /// The turn.
    pub(super) id: TurnId,
    /// The conversation before it.
    pub(super) history: &'m [Message],
    /// What it was to answer.
    pub(super) first: &'m Message,
    /// All that was recorded behind that.
    rest: &'m [Message],
}

/// The latest turns that are there, the oldest of them first.
pub(super) fn latest_turns(messages: &[Message], count: u32) -> Vec<RecordedTurn<'_>> {
    let begins = messages.iter().enumerate().filter_map(|(at, message)| {
        let is_input = matches!(message.source, MessageSource::User { .. });
        let id = message.id.as_str().strip_suffix(FIRST)?;
        is_input.then_some((at, TurnId::new(id).ok()?))
    });
    let begins: Vec<(usize, TurnId)> = begins.collect();
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let first = begins.len().saturating_sub(count);
    let turn_at = |place: usize| {
        let (at, id) = begins.get(place)?.clone();
        let end = begins.get(place + 1).map_or(messages.len(), |next| next.0);
        Some(RecordedTurn {
            id,
            history: messages.get(..at)?,
            first: messages.get(at)?,
            rest: messages.get(at + 1..end)?,
        })
    };
    (first..begins.len()).filter_map(turn_at).collect()
}

impl<'m> RecordedTurn<'m> {
    /// The number of the step that a reply is of.
    fn step_of(&self, message: &Message) -> Option<u32> {
        let number = message.step_id()?.as_str();
        let number = number.strip_prefix(self.id.as_str())?.strip_prefix('.')?;
        let number = number.parse().ok()?;
        (StepId::of_turn(&self.id, number) == *message.step_id()?).then_some(number)
    }

    /// The model's reply in a step.
    pub(super) fn reply(&self, step: u32) -> Option<&'m Message> {
        let mut rest = self.rest.iter();
        rest.find(|message| self.step_of(message) == Some(step))
    }

    /// Whether this reply ended the turn: it calls no tool, and none follows.
    pub(super) fn is_last(&self, step: u32) -> bool {
        let calls = |reply: &Message| !reply.data.content.tool_calls().is_empty();
        let is_end = self.reply(step).is_some_and(|reply| !calls(reply));
        is_end && self.reply(step.saturating_add(1)).is_none()
    }

    /// How a call ended.
    pub(super) fn result(&self, call: &ToolCallId) -> Option<ToolResult> {
        let mut results = self
            .rest
            .iter()
            .flat_map(|it| it.data.content.tool_results());
        results.find(|result| result.tool_call_id == *call)
    }

    /// The answers of other agents that it took in between two replies; before the first one if `after` is 0.
    pub(super) fn answers(&self, after: u32) -> impl Iterator<Item = &'m Message> {
        let place = |step: u32| {
            let mut rest = self.rest.iter();
            rest.position(|message| self.step_of(message) == Some(step))
        };
        let from = if after == 0 { Some(0) } else { place(after) };
        let to = place(after.saturating_add(1)).unwrap_or(self.rest.len());
        let between = from.and_then(|from| self.rest.get(from..to));
        let prefix = format!("{}:i", self.id);
        let between = between.unwrap_or_default().iter();
        between.filter(move |message| message.id.as_str().starts_with(&prefix))
    }
}
