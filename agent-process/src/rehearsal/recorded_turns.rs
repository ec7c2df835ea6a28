//! Extracts the turns of a conversation and their records.

use goondan_protocol::ids::{StepId, ToolCallId, TurnId};
use goondan_protocol::message::{Message, MessageSource, ToolResult};

/// Suffix of the id of a turn's first message.
const FIRST: &str = ":u";

#[derive(Debug)]
pub(crate) struct RecordedTurn<'m> {
    pub(crate) id: TurnId,
    /// The conversation before it.
    pub(crate) history: &'m [Message],
    pub(crate) first: &'m Message,
    /// The records after the first message.
    rest: &'m [Message],
}

/// The latest turns, oldest first.
pub(crate) fn latest_turns(messages: &[Message], count: u32) -> Vec<RecordedTurn<'_>> {
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
    /// The turn of `count` messages from `first` on; `None` if there are not as many.
    pub(crate) fn at(
        messages: &'m [Message],
        id: TurnId,
        (first, count): (usize, usize),
    ) -> Option<Self> {
        let end = first.checked_add(count)?;
        Some(Self {
            id,
            history: messages.get(..first)?,
            first: messages.get(first)?,
            rest: messages.get(first + 1..end)?,
        })
    }

    /// The messages after the first one.
    pub(crate) fn rest(&self) -> &'m [Message] {
        self.rest
    }

    /// The summary that the model wrote.
    pub(crate) fn summary(&self) -> Option<&'m Message> {
        let is_summary = |message: &&Message| {
            let step_id = message.step_id();
            step_id.is_some_and(|step_id| step_id.summarized(&self.id).is_some())
        };
        self.rest.iter().find(is_summary)
    }

    /// Number of the step that a reply belongs to.
    fn step_of(&self, message: &Message) -> Option<u32> {
        let number = message.step_id()?.as_str();
        let number = number.strip_prefix(self.id.as_str())?.strip_prefix('.')?;
        let number = number.parse().ok()?;
        (StepId::of_turn(&self.id, number) == *message.step_id()?).then_some(number)
    }

    /// The model's reply in a step.
    pub(crate) fn reply(&self, step: u32) -> Option<&'m Message> {
        let mut rest = self.rest.iter();
        rest.find(|message| self.step_of(message) == Some(step))
    }

    /// True if this reply ended the turn: it calls no tool, and no reply follows.
    pub(crate) fn is_last(&self, step: u32) -> bool {
        let calls = |reply: &Message| !reply.data.content.tool_calls().is_empty();
        let is_end = self.reply(step).is_some_and(|reply| !calls(reply));
        is_end && self.reply(step.saturating_add(1)).is_none()
    }

    pub(crate) fn result(&self, call: &ToolCallId) -> Option<ToolResult> {
        let mut results = self
            .rest
            .iter()
            .flat_map(|it| it.data.content.tool_results());
        results.find(|result| result.tool_call_id == *call)
    }

    /// Answers of other agents that were taken in after the reply `after` and before the next one;
    /// before the first reply if `after` is 0.
    pub(crate) fn answers(&self, after: u32) -> impl Iterator<Item = &'m Message> {
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
