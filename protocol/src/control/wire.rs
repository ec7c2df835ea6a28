//! The JSON-RPC 2.0 envelope and the errors it carries.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::Call;

/// The constant `"2.0"`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JsonRpc;

impl Serialize for JsonRpc {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("2.0")
    }
}

impl<'de> Deserialize<'de> for JsonRpc {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        if text == "2.0" {
            Ok(Self)
        } else {
            Err(serde::de::Error::custom(
                "expected JSON-RPC version \"2.0\"",
            ))
        }
    }
}

/// A request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RpcRequest {
    /// `"2.0"`.
    pub jsonrpc: JsonRpc,
    /// The id that the client chose.
    pub id: u64,
    /// The method and its parameters.
    #[serde(flatten)]
    pub call: Call,
}

/// A response: exactly one of `result` and `error`.
#[derive(Debug, Clone, Serialize)]
pub struct RpcResponse {
    /// `"2.0"`.
    pub jsonrpc: JsonRpc,
    /// The request it responds to; absent if the request's id could not be read.
    pub id: Option<u64>,
    /// The outcome.
    #[serde(flatten)]
    pub outcome: ResponseOutcome,
}

/// Outcome of a request.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ResponseOutcome {
    /// It succeeded.
    Result(Value),
    /// Success, with a result that is already serialized; used for long results.
    #[serde(rename = "result")]
    RawResult(Box<RawValue>),
    /// It failed.
    Error(RpcError),
}

impl RpcResponse {
    /// The response to request `id`.
    #[must_use]
    pub fn new(id: Option<u64>, outcome: Result<Value, ControlError>) -> Self {
        let outcome = match outcome {
            Ok(value) => ResponseOutcome::Result(value),
            Err(error) => ResponseOutcome::Error(error.into()),
        };
        Self {
            jsonrpc: JsonRpc,
            id,
            outcome,
        }
    }
}

impl From<(u64, Box<RawValue>)> for RpcResponse {
    fn from((id, result): (u64, Box<RawValue>)) -> Self {
        Self {
            jsonrpc: JsonRpc,
            id: Some(id),
            outcome: ResponseOutcome::RawResult(result),
        }
    }
}

/// A message without a response, sent under a subscription.
#[derive(Debug, Clone, Serialize)]
pub struct Notification<P> {
    /// `"2.0"`.
    pub jsonrpc: JsonRpc,
    /// The method, such as [`super::LOG_LINE`] or [`super::TURN_PROGRESS`].
    pub method: &'static str,
    /// Its content.
    pub params: P,
}

/// A message that a client receives: a response or a notification with unparsed content.
#[derive(Debug, Deserialize)]
pub struct ServerMessage {
    /// `"2.0"`.
    pub jsonrpc: JsonRpc,
    /// Set on a response.
    #[serde(default)]
    pub id: Option<u64>,
    /// Set on a notification.
    #[serde(default)]
    pub method: Option<String>,
    /// Set on a notification.
    #[serde(default)]
    pub params: Option<Box<RawValue>>,
    /// Set on a response to a request that succeeded.
    #[serde(default)]
    pub result: Option<Box<RawValue>>,
    /// Set on a response to a request that failed.
    #[serde(default)]
    pub error: Option<RpcError>,
}

/// A JSON-RPC error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RpcError {
    /// JSON-RPC's error number.
    pub code: i32,
    /// The cause.
    pub message: String,
    /// The rest of [`ControlError`].
    pub data: RpcErrorData,
}

/// Error fields beyond those of JSON-RPC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RpcErrorData {
    /// The stable code.
    pub code: ErrorCode,
    /// A suggested next action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
    /// True if a retry may succeed.
    pub retryable: bool,
}

/// Error code of a failed request. The list is closed and stable across versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ErrorCode {
    /// The request is malformed.
    InvalidRequest,
    /// Client and daemon have different versions.
    VersionMismatch,
    /// No such workspace is registered.
    WorkspaceNotFound,
    /// The workspace's configuration is invalid.
    InvalidConfiguration,
    /// The workspace cannot be opened: it belongs to another project, or the roots overlap.
    WorkspaceConflict,
    /// Another node runs the workspace, or its node is not known yet (`REP-1`).
    WorkspaceElsewhere,
    /// No such agent.
    AgentNotFound,
    /// No such instance.
    InstanceNotFound,
    /// The instance key belongs to another agent (`INST-3`).
    InstanceKeyTaken,
    /// No such joint checkpoint of the conversation.
    CheckpointNotFound,
    /// The conversation is in a turn or used by another operation; nothing was changed.
    InstanceBusy,
    /// No such event is pending or parked.
    EventNotFound,
    /// The event is parked: its turn crashed too many processes.
    EventParked,
    /// No such question is pending.
    QuestionNotFound,
    /// No such tool call waits for approval.
    ApprovalNotFound,
    /// No such tool call has an unknown outcome that waits for a person.
    CallNotFound,
    /// No such schedule exists.
    ScheduleNotFound,
    /// A decision was already made; nothing was changed.
    ApprovalDecided,
    /// No such sandbox.
    SandboxNotFound,
    /// A sandbox of this name already exists.
    SandboxTaken,
    /// The sandbox has no proposal.
    ProposalNotFound,
    /// The state of the files or the proposal does not allow the operation; nothing was changed.
    ProposalRefused,
    /// No such task, or the task has no pending item of that id.
    TaskNotFound,
    /// A task of that id already exists.
    TaskTaken,
    /// The state of the task does not allow the operation; nothing was changed.
    TaskRefused,
    /// Only a person may do this, and one of the daemon's own child processes started the client.
    PersonNeeded,
    /// The instance has too many pending events.
    Overloaded,
    /// The daemon is stopping.
    Stopping,
    /// The store could not write or read.
    Storage,
    /// No such secret or entry.
    SecretNotFound,
    /// The secrets cannot be read: the identity is missing or different, or a file is damaged.
    SecretUnreadable,
    /// The project uses a secret without a person's permission (`SEC-6`).
    SecretNotAllowed,
    /// No such `OAuthApp`, tokens or login.
    OauthNotFound,
    /// The authorization server refused, or a person must log in again.
    OauthRefused,
    /// The authorization server is unreachable; a retry may succeed.
    OauthUnavailable,
    /// The package does not match the expected digest, or its archive is invalid; nothing was
    /// changed.
    PackageRefused,
    /// The conversation's files or an archive are damaged.
    Damaged,
    /// The request was canceled because its subject was deleted or stopped.
    Cancelled,
    /// A bug in goondan.
    Internal,
}

/// Error of a failed request, with a suggestion.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ControlError {
    /// The stable code.
    pub code: ErrorCode,
    /// The cause and the place of the failure.
    pub message: String,
    /// A suggested next action.
    pub suggestion: Option<String>,
}

impl ControlError {
    /// An error without a suggestion.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            suggestion: None,
        }
    }

    /// Adds a suggestion.
    #[must_use]
    pub fn suggest(self, suggestion: impl Into<String>) -> Self {
        Self {
            suggestion: Some(suggestion.into()),
            ..self
        }
    }

    /// True if a retry may succeed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(
            self.code,
            ErrorCode::Overloaded
                | ErrorCode::Stopping
                | ErrorCode::Storage
                | ErrorCode::OauthUnavailable
        )
    }
}

/// JSON-RPC's number for "invalid request".
const RPC_INVALID_REQUEST: i32 = -32600;
/// JSON-RPC's number for "internal error".
const RPC_INTERNAL: i32 = -32603;
/// First of JSON-RPC's numbers for a server's own errors.
const RPC_SERVER: i32 = -32000;

impl From<ControlError> for RpcError {
    fn from(error: ControlError) -> Self {
        let retryable = error.is_retryable();
        let code = match error.code {
            ErrorCode::InvalidRequest => RPC_INVALID_REQUEST,
            ErrorCode::Internal => RPC_INTERNAL,
            _ => RPC_SERVER,
        };
        let data = RpcErrorData {
            code: error.code,
            suggestion: error.suggestion,
            retryable,
        };
        Self {
            code,
            message: error.message,
            data,
        }
    }
}

impl From<RpcError> for ControlError {
    fn from(error: RpcError) -> Self {
        Self {
            code: error.data.code,
            message: error.message,
            suggestion: error.data.suggestion,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Connect, ListWorkspaces, Status};
    use super::*;
    use crate::version::Version;

    #[test]
    fn requests_have_golden_bytes() {
        let request = RpcRequest {
            jsonrpc: JsonRpc,
            id: 7,
            call: Call::Status(Status {}),
        };
        let json = r#"{"jsonrpc":"2.0","id":7,"method":"daemon.status","params":{}}"#;
        assert_eq!(serde_json::to_string(&request).unwrap(), json);
        assert_eq!(serde_json::from_str::<RpcRequest>(json).unwrap(), request);
    }

    #[test]
    fn every_request_is_read_back() {
        let version = Version::current();
        for call in [
            Call::Connect(Connect { version }),
            Call::ListWorkspaces(ListWorkspaces::default()),
        ] {
            let request = RpcRequest {
                jsonrpc: JsonRpc,
                id: 1,
                call,
            };
            let json = serde_json::to_vec(&request).unwrap();
            assert_eq!(
                serde_json::from_slice::<RpcRequest>(&json).unwrap(),
                request
            );
        }
    }

    #[test]
    fn an_error_keeps_its_code_and_suggestion_over_the_wire() {
        let error = ControlError::new(ErrorCode::Overloaded, "too many").suggest("wait");
        let response = RpcResponse::new(Some(3), Err(error.clone()));
        let json = serde_json::to_vec(&response).unwrap();
        let incoming: ServerMessage = serde_json::from_slice(&json).unwrap();
        assert_eq!(incoming.id, Some(3));
        let rpc = incoming.error.unwrap();
        assert!(rpc.data.retryable);
        assert_eq!(ControlError::from(rpc), error);
    }

    #[test]
    fn a_result_that_is_json_already_is_written_as_it_is() {
        let raw = RawValue::from_string(r#"[1, {"a":2}]"#.to_owned()).unwrap();
        let json = serde_json::to_string(&RpcResponse::from((7, raw))).unwrap();
        assert_eq!(json, r#"{"jsonrpc":"2.0","id":7,"result":[1, {"a":2}]}"#);
    }

    #[test]
    fn another_json_rpc_version_is_refused() {
        let json = r#"{"jsonrpc":"1.0","id":7,"method":"daemon.status","params":{}}"#;
        assert!(serde_json::from_str::<RpcRequest>(json).is_err());
    }
}
