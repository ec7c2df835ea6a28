//! Calls to authorization servers and their results, and verdicts of other servers on the tokens
//! they received.

use std::collections::BTreeMap;

use goondan_oauth::Ticket;
use goondan_protocol::call::{CallId, CallOutcome, TokenVerdict};
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::oauth::OAuthNeed;
use goondan_protocol::secret::SecretValue;
use serde_json::value::RawValue;

use super::ProcessId;

/// Tokens by the need they satisfy.
pub(crate) type Tokens = BTreeMap<OAuthNeed, SecretValue>;

/// A request to an authorization server.
#[derive(Debug)]
pub(crate) struct OAuthCall {
    pub(crate) ticket: Ticket,
    pub(crate) workspace_id: WorkspaceId,
    pub(crate) method: &'static str,
    pub(crate) params: Box<RawValue>,
    pub(crate) deadline_ms: u64,
    /// True if the request can be repeated when its outcome is unknown.
    pub(crate) is_idempotent: bool,
}

#[derive(Debug)]
pub(crate) struct OAuthCallResult {
    pub(crate) ticket: Ticket,
    pub(crate) method: String,
    pub(crate) outcome: CallOutcome,
}

/// Verdict of a server on tokens.
#[derive(Debug)]
pub(crate) struct TokenReport {
    /// The call that used the tokens; `None` if a connection used them at startup.
    pub(crate) call: Option<CallId>,
    pub(crate) process: ProcessId,
    pub(crate) workspace_id: WorkspaceId,
    pub(crate) tokens: Tokens,
    /// The rejection; `None` if the tokens were accepted.
    pub(crate) said: Option<TokenVerdict>,
}
