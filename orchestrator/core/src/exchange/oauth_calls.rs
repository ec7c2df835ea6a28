//! What the tokens of authorization servers have connections do, and what came of it; and what others say of the
//! tokens that they were called with.

use std::collections::BTreeMap;

use goondan_oauth::Ticket;
use goondan_protocol::call::{CallId, CallOutcome, TokenVerdict};
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::oauth::OAuthNeed;
use goondan_protocol::secret::SecretValue;
use serde_json::value::RawValue;

use super::ProcessId;

/// Tokens by what needs them.
pub(crate) type Tokens = BTreeMap<OAuthNeed, SecretValue>;

/// A request that is to be made for the machine.
#[derive(Debug)]
pub(crate) struct OAuthCall {
    pub(crate) ticket: Ticket,
    pub(crate) workspace_id: WorkspaceId,
    pub(crate) method: &'static str,
    pub(crate) params: Box<RawValue>,
    pub(crate) deadline_ms: u64,
    /// Whether it may be made again when nobody knows whether it was made.
    pub(crate) is_idempotent: bool,
}

/// What came of one.
#[derive(Debug)]
pub(crate) struct OAuthCalled {
    pub(crate) ticket: Ticket,
    pub(crate) method: String,
    pub(crate) outcome: CallOutcome,
}

/// What the other side said of tokens.
#[derive(Debug)]
pub(crate) struct SaidOfTokens {
    /// The call that was made with them; none if a connection came with them to begin with.
    pub(crate) call: Option<CallId>,
    /// The process that came with them.
    pub(crate) process: ProcessId,
    pub(crate) workspace_id: WorkspaceId,
    pub(crate) tokens: Tokens,
    /// What it said; none if it took them.
    pub(crate) said: Option<TokenVerdict>,
}
