//! Tools that work through a connection: its connector process holds the credentials and talks to
//! the network. This process does neither.
//!
//! One implementation serves all such tools. The declaration of the service
//! ([`goondan_protocol::service`]) defines the exports and the requests to the connector. Arguments
//! that the call omits (the chat, the channel, the thread) are taken from the event that the turn
//! answers, if it came through the same connection.

use std::io::Read as _;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use goondan_protocol::JsonObject;
use goondan_protocol::call::{CallError, CallErrorCode, CallPlace, CallTarget};
use goondan_protocol::ids::{ConnectionName, StepId};
use goondan_protocol::service::{
    ActionCall, ActionPlan, ActionSpec, AttachedFile, ConnectorRequest, DOWNLOAD_BYTES_MAX,
    PATH_ARGUMENT, PlanError, Recovery, ServiceSpec,
};
use goondan_protocol::trace::TraceContext;
use serde_json::{Value, json};

use super::export::{Export, Output};
use super::fault::ToolFault;
use super::file_system::replace;
use super::invocation::{CallSite, ToolInvocation};
use super::places::{Access, ToolRoots, locate};
use super::readable_file::{io_fault, open_file};
use crate::outgoing_calls::{OutboundCall, OutboundCalls};
use crate::tool_call::{INTERRUPTED_CODE, ToolOutcome};

/// Handling of a request with an unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repetition {
    /// It is repeated.
    Harmless,
    /// The connector finds out whether it took effect, and repeats it if not.
    AfterLookBack,
    /// Its outcome stays unknown.
    Never,
}

impl Repetition {
    /// Of a request that is declared to be repeatable, or not.
    pub(crate) fn of(is_repeatable: bool) -> Self {
        if is_repeatable {
            Self::Harmless
        } else {
            Self::Never
        }
    }

    /// Of the requests of an action. One whose plan carries no key cannot be repeated by its key.
    fn of_plan(recovery: Recovery, plan: &ActionPlan) -> Self {
        match recovery {
            Recovery::LookBack(_) => Self::AfterLookBack,
            Recovery::Repeatable => Self::Harmless,
            Recovery::Key { .. } | Recovery::Unknown(_) => Self::of(plan.is_repeatable()),
        }
    }
}

/// Error of a call that an earlier process may have made, with the reason why it cannot be looked
/// for.
pub(super) fn interrupted(why: &str) -> ToolFault {
    ToolFault {
        is_unknown: true,
        ..ToolFault::new(
            INTERRUPTED_CODE,
            format!(
                "interrupted: the process ended while this call ran; its outcome is unknown: {why}"
            ),
        )
    }
}

/// A call's route to its connection.
#[derive(Debug)]
pub(crate) struct ConnectionRoute {
    connection: ConnectionName,
    site: CallSite,
    call_id: String,
}

impl ConnectionRoute {
    /// Route of a call: the connection that it names, else the connection of the turn's event, else
    /// the only connection.
    pub(super) fn of(
        call: &ToolInvocation,
        connections: &[ConnectionName],
    ) -> Result<Self, ToolFault> {
        let outside = || {
            ToolFault::new(
                "E_UNAVAILABLE",
                "connections are available only within a turn",
            )
        };
        let site = call.site.clone().ok_or_else(outside)?;
        let origin = site.origin.as_ref();
        let home = origin.and_then(|origin| origin.connection.as_ref());
        let named = call.args.get("connection").and_then(Value::as_str);
        let found = match (named, connections) {
            (Some(named), _) => connections.iter().find(|name| name.as_str() == named),
            (None, [only]) => Some(only),
            (None, _) => connections.iter().find(|name| Some(*name) == home),
        };
        let names = || {
            let names = connections.iter().map(|name| format!("`{name}`"));
            names.collect::<Vec<_>>().join(", ")
        };
        let connection = found.ok_or_else(|| match connections {
            [] => ToolFault::new(
                "E_UNAVAILABLE",
                "the project has no connection for this tool, or its credentials are not set; \
                 `gdn validate` shows the missing ones",
            ),
            _ => ToolFault::new(
                "E_INVALID_REQUEST",
                format!("set `connection` to one of {}", names()),
            ),
        })?;
        Ok(Self {
            connection: connection.clone(),
            call_id: call.call_id.clone(),
            site,
        })
    }

    /// Route of a call through this connection.
    pub(crate) fn to(
        call: &ToolInvocation,
        connection: &ConnectionName,
    ) -> Result<Self, ToolFault> {
        Self::of(call, std::slice::from_ref(connection))
    }

    pub(crate) fn outgoing(&self) -> &OutboundCalls {
        &self.site.outgoing
    }

    /// True if an earlier process may have made the call.
    pub(super) fn is_again(&self) -> bool {
        self.site.again_since.is_some()
    }

    pub(crate) fn trace(&self) -> Option<TraceContext> {
        self.site.trace
    }

    /// Position of the call in the turn.
    pub(crate) fn call_place(&self) -> CallPlace {
        CallPlace {
            turn_id: self.site.turn_id.clone(),
            step_id: Some(StepId::of_turn(&self.site.turn_id, self.site.key.step)),
            tool_call_id: self.call_id.parse().ok(),
        }
    }

    /// Identifies the call among all calls, also those of other conversations: a model may use the
    /// same id for calls of several steps.
    fn mark(&self) -> String {
        let step = StepId::of_turn(&self.site.turn_id, self.site.key.step);
        if self.call_id.starts_with(step.as_str()) {
            return self.call_id.clone();
        }
        format!("{step}:{}", self.call_id)
    }

    /// Metadata of the event that the turn answers, if it came through this connection.
    fn facts(&self) -> Option<&JsonObject> {
        let origin = self.site.origin.as_ref()?;
        let is_home = origin.connection.as_ref() == Some(&self.connection);
        is_home.then_some(&origin.event.metadata)
    }

    /// Runs a request through the connection within `deadline_ms`.
    pub(crate) async fn run(
        &self,
        request: ConnectorRequest,
        repetition: Repetition,
        deadline_ms: u64,
    ) -> Result<Value, ToolFault> {
        let again_since = self.site.again_since;
        let ask = OutboundCall {
            target: CallTarget::Connection {
                name: self.connection.clone(),
            },
            method: request.method,
            params: request.params,
            deadline_ms,
            idempotent: repetition == Repetition::Harmless,
            recoverable: repetition == Repetition::AfterLookBack,
            again_since,
            only_if_ready: false,
            place: Some(self.call_place()),
            record: None,
            trace: self.site.trace,
        };
        let answer = self.site.outgoing.call(ask).await.map_err(fault_of)?;
        serde_json::from_str(answer.get()).map_err(|error| {
            ToolFault::new(
                "E_TOOL_FAILED",
                format!("failed to read the answer: {error}"),
            )
        })
    }

    /// Runs the requests of a plan in sequence and returns their results.
    async fn run_all(
        &self,
        plan: &ActionPlan,
        recovery: Recovery,
    ) -> Result<Vec<Value>, ToolFault> {
        let repetition = Repetition::of_plan(recovery, plan);
        if self.is_again() && repetition == Repetition::Never {
            let why = recovery.why_unknown();
            let why = why.unwrap_or("the service recognizes no repetition of this request");
            return Err(interrupted(why));
        }
        let requests = plan.requests();
        let mut sent = Vec::with_capacity(requests.len());
        for (number, request) in requests.iter().enumerate() {
            let run = self.run(request.clone(), repetition, plan.deadline_ms());
            match run.await {
                Ok(value) => sent.push(value),
                Err(fault) if number == 0 => return Err(fault),
                Err(fault) => {
                    let of = requests.len();
                    let message = format!(
                        "{number} of {of} messages of the split text were sent ({}); then: {}",
                        Value::Array(sent),
                        fault.message
                    );
                    return Err(ToolFault { message, ..fault });
                }
            }
        }
        Ok(sent)
    }
}

impl From<PlanError> for ToolFault {
    fn from(error: PlanError) -> Self {
        let code = match error {
            PlanError::Arguments(_) => "E_TOOL_INVALID_ARGS",
            PlanError::Invalid(_) => "E_INVALID_REQUEST",
            PlanError::TooLarge(_) => "E_TOO_LARGE",
            PlanError::Failed(_) => "E_TOOL_FAILED",
        };
        Self::new(code, error.to_string())
    }
}

/// Converts a failed call to an error for the model.
pub(crate) fn fault_of(error: CallError) -> ToolFault {
    let code = match error.code {
        CallErrorCode::Invalid => "E_INVALID_REQUEST",
        CallErrorCode::NotFound => "E_NOT_FOUND",
        CallErrorCode::Unauthorized => "E_UNAUTHORIZED",
        CallErrorCode::Refused | CallErrorCode::OverBudget => "E_REFUSED",
        CallErrorCode::TooLarge => "E_TOO_LARGE",
        CallErrorCode::RateLimited => "E_RATE_LIMITED",
        CallErrorCode::Overloaded => "E_OVERLOADED",
        CallErrorCode::Unavailable | CallErrorCode::Cancelled => "E_UNAVAILABLE",
        CallErrorCode::TimedOut => "E_TOOL_TIMEOUT",
        CallErrorCode::Interrupted => INTERRUPTED_CODE,
        CallErrorCode::Internal => "E_TOOL_FAILED",
    };
    let mut message = error.message;
    if let Some(suggestion) = error.suggestion {
        message.push_str("; ");
        message.push_str(&suggestion);
    }
    if let Some(after_ms) = error.retry_after_ms {
        message.push_str(&format!("; retry in {} s", after_ms.div_ceil(1_000)));
    }
    ToolFault {
        is_unknown: error.outcome_unknown,
        ..ToolFault::new(code, message)
    }
}

/// Exports of a service's tool: its actions, performed through one of `connections`.
pub(crate) fn exports(
    service: &'static ServiceSpec,
    connections: &[ConnectionName],
) -> Vec<Export> {
    let connections: Arc<[ConnectionName]> = connections.into();
    let actions = service.actions.iter();
    actions.map(|action| export(action, &connections)).collect()
}

/// With several connections, the export gets an argument that selects one.
fn export(action: &'static ActionSpec, connections: &Arc<[ConnectionName]>) -> Export {
    let mut properties = (action.arguments)();
    if let ([_, _, ..], Some(fields)) = (&connections[..], properties.as_object_mut()) {
        let connection = json!({
            "enum": connections.as_ref(),
            "description": "The connection to use; default: the one of this turn's input",
        });
        fields.insert("connection".to_owned(), connection);
    }
    let connections = Arc::clone(connections);
    Export {
        name: action.name.into(),
        description: action.description.into(),
        parameters: json!({
            "type": "object",
            "required": action.required,
            "additionalProperties": false,
            "properties": properties,
        }),
        is_idempotent: action.is_idempotent(),
        output: Output::MayBeLong,
        run: Box::new(move |places, call| {
            let connections = Arc::clone(&connections);
            Box::pin(async move {
                let done = run(action, places, &call, &connections).await;
                // A call that an earlier process may have made stays unknown if it cannot even be
                // planned.
                let is_again = call.site.is_some_and(|site| site.again_since.is_some());
                let done = match done {
                    Err(UnsentFault(fault)) if is_again => Err(interrupted(&fault.to_string())),
                    Err(UnsentFault(fault)) => Err(fault),
                    Ok(sent) => sent,
                };
                done.map_or_else(ToolOutcome::from, ToolOutcome::ok)
            })
        }),
    }
}

/// A failure before anything was sent.
struct UnsentFault(ToolFault);

impl From<ToolFault> for UnsentFault {
    fn from(fault: ToolFault) -> Self {
        Self(fault)
    }
}

impl From<PlanError> for UnsentFault {
    fn from(error: PlanError) -> Self {
        Self(error.into())
    }
}

/// Performs an action. The outer error is that of a call that was not sent.
async fn run(
    action: &ActionSpec,
    places: Arc<ToolRoots>,
    call: &ToolInvocation,
    connections: &[ConnectionName],
) -> Result<Result<String, ToolFault>, UnsentFault> {
    let route = ConnectionRoute::of(call, connections)?;
    let path = call.args.get(PATH_ARGUMENT).and_then(Value::as_str);
    let path = path.unwrap_or_default().to_owned();
    let file = if action.sends_file() {
        let (places, path) = (Arc::clone(&places), path.clone());
        Some(blocking_file(move || attached(&places, &path)).await?)
    } else {
        None
    };
    let plan = (action.plan)(&ActionCall {
        connection: &route.connection,
        call_id: &route.mark(),
        args: &call.args,
        facts: route.facts(),
        file: file.as_ref(),
    })?;
    let mut results = match route.run_all(&plan, action.recovery).await {
        Ok(results) => results,
        Err(fault) => return Ok(Err(fault)),
    };
    if action.saves_file() {
        let fetched = results.pop().unwrap_or_default();
        return Ok(blocking_file(move || save(&places, &path, &fetched)).await);
    }
    Ok(plan.answer(results).map_err(ToolFault::from))
}

/// Runs blocking work with a file off the loop that answers the orchestrator.
async fn blocking_file<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ToolFault> + Send + 'static,
) -> Result<T, ToolFault> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| {
        let message = format!("the tool itself failed: {error}");
        Err(ToolFault::new("E_TOOL_FAILED", message))
    })
}

/// Reads a file to send.
fn attached(places: &ToolRoots, path: &str) -> Result<AttachedFile, ToolFault> {
    let (root, relative) = locate(places, path, Access::Read)?;
    let mut file = open_file(root, &relative, path)?.take(DOWNLOAD_BYTES_MAX + 1);
    let mut content = Vec::new();
    file.read_to_end(&mut content)
        .map_err(|error| io_fault(path, &error))?;
    if u64::try_from(content.len()).unwrap_or(u64::MAX) > DOWNLOAD_BYTES_MAX {
        let message = format!("`{path}` is too large; at most {DOWNLOAD_BYTES_MAX} bytes are sent");
        return Err(ToolFault::new("E_TOO_LARGE", message));
    }
    let name = relative.file_name().unwrap_or_default();
    Ok(AttachedFile {
        name: name.to_string_lossy().into_owned(),
        base64: STANDARD.encode(content),
    })
}

/// Writes a fetched file, and returns the text for the model.
fn save(places: &ToolRoots, path: &str, fetched: &Value) -> Result<String, ToolFault> {
    let base64 = fetched.get("base64").and_then(Value::as_str);
    let content = STANDARD.decode(base64.unwrap_or_default());
    let content = content.map_err(|error| {
        let message = format!("failed to read the fetched file: {error}");
        ToolFault::new("E_TOOL_FAILED", message)
    })?;
    replace(places, path, &content)?;
    let kind = fetched.get("contentType").and_then(Value::as_str);
    let saved = json!({"path": path, "bytes": content.len(), "contentType": kind});
    Ok(saved.to_string())
}
