//! What a turn waits for, and what is done then.

use goondan_protocol::event::TurnOutcome;
use goondan_protocol::message::Message;

use crate::middleware::{ExtensionFault, InvocationId};
use crate::turn::calls::Calls;

/// What the turn waits for.
#[derive(Debug)]
pub(super) enum Phase {
    /// That all it has appended is durable; then `Next`.
    Settling(Next),
    /// The model's reply.
    Asking { step: u32 },
    /// The model's summary of so many messages, before a step.
    Summarizing { step: u32, count: usize },
    /// Its tools.
    Calling(Calls),
    /// That the modules of extensions are ready; then `Next`.
    Assembling(Next),
    /// A middleware of a module.
    Invoking(Invoking),
    /// The commit.
    Completing,
}

/// What is done once everything is durable.
#[derive(Debug)]
pub(super) enum Next {
    Ask {
        step: u32,
    },
    Call(Calls),
    /// Extensions are asked whether the turn may end with this reply.
    End {
        step: u32,
        reply: String,
    },
    Complete(TurnOutcome),
    /// The modules of extensions are made ready.
    Assemble(Box<Next>),
    /// A layer of extensions is entered.
    Enter(ChainCursor),
}

/// A middleware that waits for what comes of its `next()`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Open {
    pub(super) place: usize,
    pub(super) invocation: InvocationId,
}

/// Where in a chain of layers the turn is on its way inwards.
#[derive(Debug)]
pub(super) struct ChainCursor {
    /// The step, if the scope is that of a step.
    pub(super) step: Option<u32>,
    /// The layer to be entered.
    pub(super) at: usize,
    /// What lies further in.
    pub(super) then: Box<Next>,
}

/// A middleware is at work.
#[derive(Debug)]
pub(super) struct Invoking {
    pub(super) open: Open,
    pub(super) direction: Direction,
}

/// Whether it has asked for what lies further in.
#[derive(Debug)]
pub(super) enum Direction {
    In(ChainCursor),
    Out(Next),
}

/// How a turn stands with its summary.
#[derive(Debug, Default)]
pub(super) enum Compaction {
    /// Extensions were not asked yet.
    #[default]
    Open,
    /// The model's summary was recorded before a crash.
    Recorded(Box<Message>),
    /// There is one, or none is wanted, or none could be had.
    Over,
}

impl Next {
    /// What a way inwards leads to.
    pub(super) fn innermost(self) -> Self {
        match self {
            Self::Assemble(then) | Self::Enter(ChainCursor { then, .. }) => then.innermost(),
            core @ (Self::Ask { .. } | Self::Call(_) | Self::End { .. } | Self::Complete(_)) => {
                core
            }
        }
    }

    /// What becomes of it when an extension has failed the turn. Calls need their results all the same.
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
