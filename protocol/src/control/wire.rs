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
pub struct Request {
    /// `"2.0"`.
    pub jsonrpc: JsonRpc,
    /// The client's number for it.
    pub id: u64,
    /// The method and its parameters.
    #[serde(flatten)]
    pub call: Call,
}

/// A response: exactly one of `result` and `error`.
#[derive(Debug, Clone, Serialize)]
pub struct Response {
    /// `"2.0"`.
    pub jsonrpc: JsonRpc,
    /// The request it answers; none if the request's id could not be read.
    pub id: Option<u64>,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: ResponseOutcome,
}

/// What came of a request.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ResponseOutcome {
    /// It succeeded.
    Result(Value),
    /// It succeeded, with a result that is JSON already: for long ones.
    #[serde(rename = "result")]
    RawResult(Box<RawValue>),
    /// It failed.
    Error(RpcError),
}

impl Response {
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

impl From<(u64, Box<RawValue>)> for Response {
    fn from((id, result): (u64, Box<RawValue>)) -> Self {
        Self {
            jsonrpc: JsonRpc,
            id: Some(id),
            outcome: ResponseOutcome::RawResult(result),
        }
    }
}

/// A message without an answer, under a subscription.
#[derive(Debug, Clone, Serialize)]
pub struct Notification<P> {
    /// `"2.0"`.
    pub jsonrpc: JsonRpc,
    /// What it is: [`super::LOG_LINE`] or [`super::TURN_PROGRESS`].
    pub method: &'static str,
    /// Its content.
    pub params: P,
}

/// What a client receives: a response or a notification, its content unread.
#[derive(Debug, Deserialize)]
pub struct Incoming {
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

/// An error as JSON-RPC writes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RpcError {
    /// JSON-RPC's number for the kind of error.
    pub code: i32,
    /// What failed.
    pub message: String,
    /// The rest of [`ControlError`].
    pub data: RpcErrorData,
}

/// What JSON-RPC has no field for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RpcErrorData {
    /// The stable code.
    pub code: ErrorCode,
    /// What to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
    /// Whether the same request may succeed later.
    pub retryable: bool,
}

/// Why a request failed: a closed list, stable across versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ErrorCode {
    /// The request is not well formed.
    InvalidRequest,
    /// Client and daemon are of different versions.
    VersionMismatch,
    /// No such workspace is registered.
    WorkspaceNotFound,
    /// The workspace's configuration is not valid.
    InvalidConfiguration,
    /// The workspace cannot be opened here: it belongs to another project, or the roots overlap.
    WorkspaceConflict,
    /// Another node runs the workspace, or nobody knows yet which one does (`REP-1`).
    WorkspaceElsewhere,
    /// No such agent.
    AgentNotFound,
    /// No such instance.
    InstanceNotFound,
    /// The instance key belongs to another agent (`INST-3`).
    InstanceKeyTaken,
    /// There is no such joint checkpoint of the conversation.
    CheckpointNotFound,
    /// The conversation is in a turn, or something else is done with it; nothing was changed.
    InstanceBusy,
    /// No such event waits or is parked.
    EventNotFound,
    /// The event is parked: its turn crashed too many processes.
    EventParked,
    /// No such question waits.
    QuestionNotFound,
    /// No such tool call waits to be approved.
    ApprovalNotFound,
    /// No such tool call is waiting for a person to look after it.
    CallNotFound,
    /// It was decided about already; nothing was changed.
    ApprovalDecided,
    /// No such sandbox.
    SandboxNotFound,
    /// There is one already.
    SandboxTaken,
    /// The sandbox has no proposal.
    ProposalNotFound,
    /// The files, or the proposal, are not such that it can be done; nothing was changed.
    ProposalRefused,
    /// No such task, or nothing in it waits by that id.
    TaskNotFound,
    /// There is one by that id already.
    TaskTaken,
    /// The task stands such that it cannot be done; nothing was changed.
    TaskRefused,
    /// Only a person may do that, and the client was started by the daemon's own children.
    PersonNeeded,
    /// The instance has too many events waiting.
    Overloaded,
    /// The daemon is stopping.
    Stopping,
    /// The store could not write or read.
    Storage,
    /// No such secret, or no such entry of it.
    SecretNotFound,
    /// The secrets cannot be read: the identity is not there or is another, or a file is damaged.
    SecretUnreadable,
    /// The project names a secret that no person has allowed it to use (`SEC-6`).
    SecretNotAllowed,
    /// No such `OAuthApp`, no tokens of it, or no such login.
    OauthNotFound,
    /// The authorization server declines, or a person has to log in again.
    OauthRefused,
    /// The authorization server cannot be asked; the same may succeed later.
    OauthUnavailable,
    /// A package is not what it has to be, or its archive is not one that is unpacked; nothing was changed.
    PackageRefused,
    /// The conversation's files, or an archive, are not as they were written.
    Damaged,
    /// The request was cut off, because what it was about was deleted or stopped.
    Cancelled,
    /// A fault in goondan itself.
    Internal,
}

/// Why a request failed, and what to do next.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ControlError {
    /// The stable code.
    pub code: ErrorCode,
    /// What failed, and where.
    pub message: String,
    /// What to do next.
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

    /// The same, with what to do next.
    #[must_use]
    pub fn suggest(self, suggestion: impl Into<String>) -> Self {
        Self {
            suggestion: Some(suggestion.into()),
            ..self
        }
    }

    /// Whether the same request may succeed later.
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
        let request = Request {
            jsonrpc: JsonRpc,
            id: 7,
            call: Call::Status(Status {}),
        };
        let json = r#"{"jsonrpc":"2.0","id":7,"method":"daemon.status","params":{}}"#;
        assert_eq!(serde_json::to_string(&request).unwrap(), json);
        assert_eq!(serde_json::from_str::<Request>(json).unwrap(), request);
    }

    #[test]
    fn every_request_is_read_back() {
        let version = Version::current();
        for call in [
            Call::Connect(Connect { version }),
            Call::ListWorkspaces(ListWorkspaces::default()),
        ] {
            let request = Request {
                jsonrpc: JsonRpc,
                id: 1,
                call,
            };
            let json = serde_json::to_vec(&request).unwrap();
            assert_eq!(serde_json::from_slice::<Request>(&json).unwrap(), request);
        }
    }

    #[test]
    fn an_error_keeps_its_code_and_suggestion_over_the_wire() {
        let error = ControlError::new(ErrorCode::Overloaded, "too many").suggest("wait");
        let response = Response::new(Some(3), Err(error.clone()));
        let json = serde_json::to_vec(&response).unwrap();
        let incoming: Incoming = serde_json::from_slice(&json).unwrap();
        assert_eq!(incoming.id, Some(3));
        let rpc = incoming.error.unwrap();
        assert!(rpc.data.retryable);
        assert_eq!(ControlError::from(rpc), error);
    }

    #[test]
    fn a_result_that_is_json_already_is_written_as_it_is() {
        let raw = RawValue::from_string(r#"[1, {"a":2}]"#.to_owned()).unwrap();
        let json = serde_json::to_string(&Response::from((7, raw))).unwrap();
        assert_eq!(json, r#"{"jsonrpc":"2.0","id":7,"result":[1, {"a":2}]}"#);
    }

    #[test]
    fn another_json_rpc_version_is_refused() {
        let json = r#"{"jsonrpc":"1.0","id":7,"method":"daemon.status","params":{}}"#;
        assert!(serde_json::from_str::<Request>(json).is_err());
    }
}
