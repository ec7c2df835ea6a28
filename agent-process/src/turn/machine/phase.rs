//! Phases of a turn and the actions that follow them.

use goondan_protocol::event::TurnOutcome;
use goondan_protocol::message::Message;

use crate::middleware::{ExtensionFault, InvocationId};
use crate::turn::calls::Calls;

/// The input that the turn waits for.
#[derive(Debug)]
pub(super) enum Phase {
    /// Durability of everything it appended; then `NextTurnAction`.
    Settling(NextTurnAction),
    Asking {
        step: u32,
    },
    /// The model's summary of `count` messages, before a step.
    Summarizing {
        step: u32,
        count: usize,
    },
    Calling(Calls),
    /// The modules of extensions; then `NextTurnAction`.
    Assembling(NextTurnAction),
    /// A middleware of a module.
    Invoking(TurnMiddlewareRun),
    Completing,
}

/// Next action once everything is durable.
#[derive(Debug)]
pub(super) enum NextTurnAction {
    Ask {
        step: u32,
    },
    Call(Calls),
    /// Asks extensions whether the turn may end with this reply.
    End {
        step: u32,
        reply: String,
    },
    Complete(TurnOutcome),
    /// Makes the modules of extensions ready.
    Assemble(Box<NextTurnAction>),
    /// Enters a layer of extensions.
    Enter(ChainCursor),
}

/// A middleware that waits for the result of its `next()`.
#[derive(Debug, Clone, Copy)]
pub(super) struct SuspendedMiddleware {
    pub(super) place: usize,
    pub(super) invocation: InvocationId,
}

/// Position in a chain of layers on the way inwards.
#[derive(Debug)]
pub(super) struct ChainCursor {
    /// The step, if the scope is a step.
    pub(super) step: Option<u32>,
    /// The next layer to enter.
    pub(super) at: usize,
    /// The action inside all layers.
    pub(super) then: Box<NextTurnAction>,
}

#[derive(Debug)]
pub(super) struct TurnMiddlewareRun {
    pub(super) open: SuspendedMiddleware,
    pub(super) direction: Direction,
}

/// Direction of the turn: whether the middleware has called `next()`.
#[derive(Debug)]
pub(super) enum Direction {
    In(ChainCursor),
    Out(NextTurnAction),
}

/// State of the turn's summary.
#[derive(Debug, Default)]
pub(super) enum Compaction {
    /// Extensions have not been asked yet.
    #[default]
    Open,
    /// The model's summary was recorded before a crash.
    Recorded(Box<Message>),
    /// A summary exists, is not needed, or could not be obtained.
    Over,
}

impl NextTurnAction {
    /// The action at the end of the way inwards.
    pub(super) fn innermost(self) -> Self {
        match self {
            Self::Assemble(then) | Self::Enter(ChainCursor { then, .. }) => then.innermost(),
            core @ (Self::Ask { .. } | Self::Call(_) | Self::End { .. } | Self::Complete(_)) => {
                core
            }
        }
    }

    /// The next action after an extension has failed the turn. Calls still need their results.
    pub(super) fn in_spite_of(self, fault: &ExtensionFault) -> Self {
        match self.innermost() {
            calls @ Self::Call(_) => calls,
            failed @ Self::Complete(TurnOutcome::Failed { .. }) => failed,
            Self::Ask { .. }
            | Self::End { .. }
            | Self::Complete(TurnOutcome::Completed { .. })
            | Self::Assemble(_)
            | Self::Enter(_) => Self::Complete(TurnOutcome::Failed {
                code: fault.code.clone(),
                message: fault.message.clone(),
            }),
        }
    }
}
