//! The turn in progress, and what it belongs to.

use std::collections::BTreeSet;

use goondan_protocol::ids::{EventId, TurnId};
use goondan_protocol::trace::TraceContext;

use super::ceilings::TurnUse;

/// The code of a turn that a person ended.
pub(crate) const CANCELLED: &str = "E_CANCELLED";

/// What a turn belongs to.
#[derive(Debug, Clone)]
pub(crate) struct TurnContext {
    pub(crate) event_id: EventId,
    pub(crate) trace: TraceContext,
    /// The digest of the configuration it runs under.
    pub(super) config_digest: Option<String>,
}

/// The turn in progress.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    pub(crate) turn_id: TurnId,
    pub(crate) context: TurnContext,
    /// What it has used of what a turn may.
    pub(super) used: TurnUse,
    /// When its process was handed it.
    pub(super) handed_over_ms: u64,
    /// Answers its process was given on the way; it takes them in, or they wait for a turn.
    pub(super) inputs: BTreeSet<EventId>,
    /// Why its agent wants its process restarted afterwards, if it does.
    pub(super) restart: Option<String>,
    /// What it took in, once its commit is on the way: whoever hears of that needs to hear of nothing
    /// before it.
    pub(super) taken_in: Option<Vec<EventId>>,
}
