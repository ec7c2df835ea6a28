//! The turn in progress and its context.

use std::collections::BTreeSet;

use goondan_protocol::ids::{EventId, TurnId};
use goondan_protocol::trace::TraceContext;

use super::quotas::TurnUse;

/// Error code of a canceled turn.
pub(crate) const CANCELLED: &str = "E_CANCELLED";

/// Error code of a part of a join that the set's time limit ended without a turn.
pub(super) const JOIN_TIMEOUT: &str = "E_JOIN_TIMEOUT";

#[derive(Debug, Clone)]
pub(crate) struct TurnContext {
    pub(crate) event_id: EventId,
    pub(crate) trace: TraceContext,
    /// The digest of the configuration it runs under.
    pub(super) config_digest: Option<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct ActiveTurn {
    pub(crate) turn_id: TurnId,
    pub(crate) context: TurnContext,
    /// Usage that counts toward the limits of a turn.
    pub(super) used: TurnUse,
    /// Time at which its process received it.
    pub(super) handed_over_ms: u64,
    /// Answers passed to its process during the turn. The turn includes them, or they get a turn of
    /// their own.
    pub(super) inputs: BTreeSet<EventId>,
    /// Reason for a process restart after the turn, if the agent requested one.
    pub(super) restart: Option<String>,
}
