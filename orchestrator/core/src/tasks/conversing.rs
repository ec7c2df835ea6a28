//! A run of a task that is a turn of a conversation, as it stands (`TASK-8`).

use goondan_tasks::fact::Runtime;
use goondan_tasks::state::State;

use crate::fleet::conversation_run::ConversationRun;

/// A run that is the turn of an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Conversing {
    pub(super) of: ConversationRun,
    pub(super) stage: Stage,
    pub(super) ending: Option<Ending>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It was under way when the daemon ended; what was provided for it is being read.
    ReadingSecrets,
    /// The conversation is looked for. With what the agent is to be told, if it was not told yet.
    LookingUp(Option<String>),
    /// The event is on its way, for the first time or again.
    HandingIn { is_new: bool },
    /// Its turn will be, or is, in progress.
    UnderWay,
}

/// Why it is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Over,
    Paused,
}

impl Conversing {
    /// The number of the run.
    pub(super) fn run(&self) -> u64 {
        self.of.run
    }
}

/// Whether a task's runs are turns.
pub(super) fn converses(state: &State) -> bool {
    state.task.runtime == Runtime::Llm
}
