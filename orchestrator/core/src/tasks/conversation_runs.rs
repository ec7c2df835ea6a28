//! State of a task run that is a turn of a conversation (`TASK-8`).

use goondan_tasks::fact::Runtime;
use goondan_tasks::state::State;

use crate::fleet::conversation_run::ConversationRun;

/// A run that is the turn of an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ConversationTurnRun {
    pub(super) of: ConversationRun,
    pub(super) stage: TurnRunStage,
    pub(super) ending: Option<TurnRunEnd>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum TurnRunStage {
    /// The run was in progress when the daemon ended; its secrets are being read.
    ReadingSecrets,
    /// The conversation is being looked up. Holds the instruction for the agent if it was not sent
    /// yet.
    LookingUp(Option<String>),
    /// The event is being submitted, for the first time or again.
    HandingIn { is_new: bool },
    /// The turn is queued or in progress.
    UnderWay,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TurnRunEnd {
    Over,
    Paused,
}

impl ConversationTurnRun {
    pub(super) fn run(&self) -> u64 {
        self.of.run
    }
}

/// True if the task's runs are turns.
pub(super) fn converses(state: &State) -> bool {
    state.task.runtime == Runtime::Llm
}
