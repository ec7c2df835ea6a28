//! Stages of a conversation, and of its turns.

use goondan_protocol::ids::{EventId, TurnId};

use super::super::turn::{ActiveTurn, TurnContext};
use crate::ProcessId;

/// Stage of a conversation. It decides the next step, in
/// [`next_step`](super::super::Workspace::next_step).
///
/// The first stage whose condition holds is the conversation's stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// An operation between turns holds it, such as a joint checkpoint. No turn begins.
    Frozen,
    /// Its files are removed as soon as its process has exited.
    Deleting,
    /// The store was asked to begin a turn.
    BeginningTurn,
    /// Its process works on a turn.
    InTurn,
    /// The process can no longer change the turn: it is committed, canceled, or continued by the
    /// next process. The store may have been asked to begin the next turn.
    EndingTurn,
    /// The queue in memory is unknown or may be outdated.
    Unread,
    /// The store was asked for the queue.
    Reading,
    /// No event may begin a turn.
    Idle,
    /// An event may begin a turn, and no process runs.
    Waiting,
    /// The handshake of its process is not complete.
    Starting,
    /// Its process does not have the whole conversation yet.
    Loading,
    /// Its process can begin a turn.
    Ready(ProcessId),
    /// Its process is stopping or was killed.
    Stopping,
}

impl Stage {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Frozen => "frozen",
            Self::Deleting => "deleting",
            Self::BeginningTurn => "beginning turn",
            Self::InTurn => "in turn",
            Self::EndingTurn => "ending turn",
            Self::Unread => "unread",
            Self::Reading => "reading",
            Self::Idle => "idle",
            Self::Waiting => "waiting",
            Self::Starting => "starting",
            Self::Loading => "loading",
            Self::Ready(_) => "ready",
            Self::Stopping => "stopping",
        }
    }
}

/// An event that a conversation in this stage cannot get. It changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WrongStage {
    pub(in crate::fleet) event: &'static str,
    pub(in crate::fleet) stage: &'static str,
}

/// Knowledge of the queue on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueueCopy {
    /// The store was not asked yet, the read failed, or a failed write may have changed the queue.
    Unread,
    Reading,
    /// The copy in memory matches the queue on disk.
    Read,
}

/// The turns of a conversation: one at a time, and the beginning of the next one behind a commit.
#[derive(Debug, Default)]
pub(super) enum Turns {
    #[default]
    None,
    /// The store was asked to begin a turn.
    Beginning(TurnContext),
    /// The process works on it.
    Open(ActiveTurn),
    Ending {
        turn: ActiveTurn,
        /// Events that the turn includes besides its own.
        taken_in: Vec<EventId>,
        /// The turn that the store was asked to begin after this one.
        next: Option<TurnContext>,
    },
}

impl Turns {
    /// The turn that is not committed yet.
    pub(super) fn turn(&self) -> Option<&ActiveTurn> {
        match self {
            Self::None | Self::Beginning(_) => None,
            Self::Open(turn) | Self::Ending { turn, .. } => Some(turn),
        }
    }

    pub(super) fn turn_mut(&mut self) -> Option<&mut ActiveTurn> {
        match self {
            Self::None | Self::Beginning(_) => None,
            Self::Open(turn) | Self::Ending { turn, .. } => Some(turn),
        }
    }

    /// The turn that the store was asked to begin.
    pub(super) fn beginning(&self) -> Option<&TurnContext> {
        match self {
            Self::None | Self::Open(_) => None,
            Self::Beginning(context) => Some(context),
            Self::Ending { next, .. } => next.as_ref(),
        }
    }

    /// Contexts of the turns that are not committed or about to begin.
    pub(super) fn contexts(&self) -> impl Iterator<Item = &TurnContext> {
        let turn = self.turn().map(|turn| &turn.context);
        turn.into_iter().chain(self.beginning())
    }

    /// The store is asked to begin a turn. False if it cannot begin now.
    #[must_use]
    pub(super) fn begin(&mut self, context: TurnContext) -> bool {
        match self {
            Self::None => {
                *self = Self::Beginning(context);
                true
            }
            Self::Ending { next, .. } if next.is_none() => {
                *next = Some(context);
                true
            }
            Self::Beginning(_) | Self::Open(_) | Self::Ending { .. } => false,
        }
    }

    /// The turn that was beginning does not begin.
    pub(super) fn begin_failed(&mut self) {
        match self {
            Self::Beginning(_) => *self = Self::None,
            Self::Ending { next, .. } => *next = None,
            Self::None | Self::Open(_) => {}
        }
    }

    /// The store has begun the turn. False if none was beginning.
    #[must_use]
    pub(super) fn begun(&mut self, turn: ActiveTurn) -> bool {
        let is_due = matches!(self, Self::Beginning(_));
        if is_due {
            *self = Self::Open(turn);
        }
        is_due
    }

    /// The process can no longer change the open turn. False if no turn is open.
    #[must_use]
    pub(super) fn end(&mut self, taken_in: Vec<EventId>) -> bool {
        match std::mem::take(self) {
            Self::Open(turn) => {
                *self = Self::Ending {
                    turn,
                    taken_in,
                    next: None,
                };
                true
            }
            other @ (Self::None | Self::Beginning(_) | Self::Ending { .. }) => {
                *self = other;
                false
            }
        }
    }

    /// The store has ended this turn. Returns the turn, unless its process is gone.
    pub(super) fn ended(&mut self, turn_id: &TurnId) -> Option<ActiveTurn> {
        self.turn().filter(|turn| turn.turn_id == *turn_id)?;
        match std::mem::take(self) {
            Self::Open(turn) => Some(turn),
            Self::Ending { turn, next, .. } => {
                if let Some(next) = next {
                    *self = Self::Beginning(next);
                }
                Some(turn)
            }
            Self::None | Self::Beginning(_) => None,
        }
    }

    /// The process has exited. Returns its turn.
    pub(super) fn process_exited(&mut self) -> Option<ActiveTurn> {
        match std::mem::take(self) {
            Self::Open(turn) | Self::Ending { turn, .. } => Some(turn),
            Self::None | Self::Beginning(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    use goondan_protocol::trace::{SpanId, TraceId};
    use uuid::Uuid;

    use super::super::super::quotas::TurnUse;
    use goondan_protocol::trace::TraceContext;

    fn context(event: &str) -> TurnContext {
        let (trace_id, span_id) = (TraceId::from_uuid(Uuid::nil()), Uuid::nil());
        TurnContext {
            event_id: event.parse().unwrap(),
            trace: TraceContext::root(trace_id, SpanId::from_uuid(span_id)),
            config_digest: None,
        }
    }

    fn turn(n: u128, event: &str) -> ActiveTurn {
        ActiveTurn {
            turn_id: TurnId::from(Uuid::from_u128(n)),
            context: context(event),
            used: TurnUse::new(0),
            handed_over_ms: 0,
            inputs: BTreeSet::new(),
            restart: None,
        }
    }

    #[test]
    fn turns_follow_one_another() {
        let mut turns = Turns::None;
        assert!(!turns.begun(turn(1, "a")), "none was beginning");
        assert!(!turns.end(Vec::new()), "none was open");
        assert!(turns.begin(context("a")));
        assert!(!turns.begin(context("b")), "one is beginning");
        assert!(turns.begun(turn(1, "a")));
        assert!(!turns.begin(context("b")), "one is open");
        assert!(turns.end(Vec::new()));
        assert!(!turns.end(Vec::new()), "it is ending");
        assert!(turns.begin(context("b")), "behind the commit");
        assert!(!turns.begin(context("c")), "one is waiting");
        assert!(!turns.begun(turn(2, "b")), "the first is not committed");
        assert!(turns.ended(&turn(7, "x").turn_id).is_none());
        assert!(turns.ended(&turn(1, "a").turn_id).is_some());
        assert!(matches!(&turns, Turns::Beginning(next) if next.event_id.as_str() == "b"));
        assert!(turns.begun(turn(2, "b")));
        assert!(turns.process_exited().is_some());
        assert!(matches!(turns, Turns::None));
    }

    #[test]
    fn a_turn_that_does_not_begin_leaves_the_other_as_it_is() {
        let mut turns = Turns::Open(turn(1, "a"));
        turns.begin_failed();
        assert!(turns.turn().is_some(), "nothing was beginning");
        assert!(turns.end(Vec::new()) && turns.begin(context("b")));
        turns.begin_failed();
        assert!(turns.turn().is_some() && turns.beginning().is_none());
        assert!(turns.ended(&turn(1, "a").turn_id).is_some());
        assert!(turns.begin(context("b")));
        turns.begin_failed();
        assert!(matches!(turns, Turns::None));
    }
}
