//! Tools that work by a connection: what they are asked for is done by its connector process, which
//! holds the credentials and speaks to the network. This process does neither.
//!
//! What is not said of a place (the chat, the channel, the thread) is taken from the event that the
//! turn answers, if that came by the same connection.

use std::future::Future;
use std::sync::Arc;

use goondan_protocol::call::{CallError, CallErrorCode, CallPlace, CallTarget};
use goondan_protocol::ids::{ConnectionName, StepId};
use goondan_protocol::service::to_call;
use goondan_protocol::trace::TraceContext;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::export::{Export, Output};
use super::fault::ToolFault;
use super::invocation::{CallSite, ToolInvocation};
use crate::outgoing::{Ask, Outgoing};
use crate::tool_call::ToolOutcome;

pub(crate) mod discord;
pub(crate) mod github;
pub(crate) mod http_fetch;
pub(crate) mod slack;
pub(crate) mod split;
pub(crate) mod telegram;

/// How long a tool waits for its connection, queueing and the service's "later" included, in
/// milliseconds.
const DEADLINE_MS: u64 = 120_000;

/// Most messages that one text is split into.
const PARTS_MAX: usize = 20;

/// The connections that a tool may work by.
pub(crate) type Connections = Arc<[ConnectionName]>;

/// A call's route to its connection.
#[derive(Debug)]
pub(crate) struct ConnectionRoute {
    connection: ConnectionName,
    site: CallSite,
    call_id: String,
}

impl ConnectionRoute {
    /// The route of a call: by the connection it names, else by the one that the turn's event came by,
    /// else by the only one there is.
    fn of(call: &ToolInvocation, connections: &[ConnectionName]) -> Result<Self, ToolFault> {
        let outside =
            || ToolFault::new("E_UNAVAILABLE", "connections are reached from a turn only");
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
                "the project has no connection for this tool",
            ),
            _ => ToolFault::new(
                "E_INVALID_REQUEST",
                format!("say by which `connection`: there are {}", names()),
            ),
        })?;
        Ok(Self {
            connection: connection.clone(),
            call_id: call.call_id.clone(),
            site,
        })
    }

    /// The route of a call by this connection.
    pub(crate) fn to(
        call: &ToolInvocation,
        connection: &ConnectionName,
    ) -> Result<Self, ToolFault> {
        Self::of(call, std::slice::from_ref(connection))
    }

    /// The way outside.
    pub(crate) fn outgoing(&self) -> &Outgoing {
        &self.site.outgoing
    }

    /// Where in a trace the call belongs.
    pub(crate) fn trace(&self) -> Option<TraceContext> {
        self.site.trace
    }

    /// What in the turn the call is.
    pub(crate) fn call_place(&self) -> CallPlace {
        CallPlace {
            turn_id: self.site.turn_id.clone(),
            step_id: Some(StepId::of_turn(&self.site.turn_id, self.site.key.step)),
            tool_call_id: self.call_id.parse().ok(),
        }
    }

    /// What the event says that the turn answers, if it came by this connection.
    pub(crate) fn fact(&self, name: &str) -> Option<&Value> {
        let origin = self.site.origin.as_ref()?;
        let is_home = origin.connection.as_ref() == Some(&self.connection);
        origin.metadata.get(name).filter(|_| is_home)
    }

    /// The place that is named, or the one that the turn's event came from; and whether it is that one.
    pub(crate) fn place(
        &self,
        argument: &'static str,
        named: Option<&Value>,
        fact: &str,
    ) -> Result<(String, bool), ToolFault> {
        let home = self.fact(fact).and_then(name_of);
        match named.and_then(name_of) {
            Some(name) => {
                let is_home = home.as_ref() == Some(&name);
                Ok((name, is_home))
            }
            None => match home {
                Some(home) => Ok((home, true)),
                None => Err(ToolFault::new(
                    "E_INVALID_REQUEST",
                    format!(
                        "say which `{argument}`: what this turn answers did not come by connection \
                         `{}`",
                        self.connection
                    ),
                )),
            },
        }
    }

    /// The call's own id.
    pub(crate) fn call_id(&self) -> &str {
        &self.call_id
    }

    /// Has the connection do something. If it may be done again, it is, when nobody knows whether it
    /// was done.
    pub(crate) async fn run(
        &self,
        errand: &impl Serialize,
        is_repeatable: bool,
    ) -> Result<Value, ToolFault> {
        self.run_for(errand, is_repeatable, DEADLINE_MS).await
    }

    /// The same, but waiting for so long.
    pub(crate) async fn run_for(
        &self,
        errand: &impl Serialize,
        is_repeatable: bool,
        deadline_ms: u64,
    ) -> Result<Value, ToolFault> {
        let unwritable = |error: serde_json::Error| {
            ToolFault::new(
                "E_TOOL_FAILED",
                format!("the call cannot be written: {error}"),
            )
        };
        let (method, params) = to_call(errand).map_err(unwritable)?;
        let ask = Ask {
            target: CallTarget::Connection {
                name: self.connection.clone(),
            },
            method,
            params,
            deadline_ms,
            idempotent: is_repeatable,
            place: Some(self.call_place()),
            record: None,
            trace: self.site.trace,
        };
        let answer = self.site.outgoing.call(ask).await.map_err(fault_of)?;
        serde_json::from_str(answer.get()).map_err(|error| {
            ToolFault::new(
                "E_TOOL_FAILED",
                format!("the answer cannot be read: {error}"),
            )
        })
    }

    /// Sends the parts of a text one after another, and gives what came of each.
    pub(crate) async fn run_parts<E: Serialize>(
        &self,
        parts: &[String],
        is_repeatable: bool,
        errand: impl Fn(usize, &str) -> E,
    ) -> Result<Vec<Value>, ToolFault> {
        let mut sent = Vec::with_capacity(parts.len());
        for (number, part) in parts.iter().enumerate() {
            match self.run(&errand(number, part), is_repeatable).await {
                Ok(value) => sent.push(value),
                Err(fault) if number == 0 => return Err(fault),
                Err(fault) => {
                    let of = parts.len();
                    let message = format!(
                        "the text was split into {of} messages, of which {number} were sent ({}); \
                         then: {}",
                        Value::Array(sent),
                        fault.message
                    );
                    return Err(ToolFault::new(fault.code, message));
                }
            }
        }
        Ok(sent)
    }
}

/// A text or a whole number, as text.
pub(crate) fn name_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) if number.is_i64() || number.is_u64() => Some(number.to_string()),
        _ => None,
    }
}

/// A text of which there is more than [`PARTS_MAX`] messages hold.
pub(crate) fn not_too_many(parts: Vec<String>) -> Result<Vec<String>, ToolFault> {
    let count = parts.len();
    if count <= PARTS_MAX {
        return Ok(parts);
    }
    Err(ToolFault::new(
        "E_TOO_LARGE",
        format!(
            "the text would be {count} messages, at most {PARTS_MAX} are sent at once; say it shorter"
        ),
    ))
}

/// A failed call as the model is told.
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
        CallErrorCode::Interrupted => "E_TOOL_INTERRUPTED",
        CallErrorCode::Internal => "E_TOOL_FAILED",
    };
    let mut message = error.message;
    if let Some(suggestion) = error.suggestion {
        message.push_str("; ");
        message.push_str(&suggestion);
    }
    if let Some(after_ms) = error.retry_after_ms {
        message.push_str(&format!(
            "; not before {} s from now",
            after_ms.div_ceil(1_000)
        ));
    }
    ToolFault::new(code, message)
}

/// How an export is offered to models.
pub(crate) struct Offer {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    pub(crate) properties: Value,
    pub(crate) required: &'static [&'static str],
    /// Whether a call that a crash cut short may be run again.
    pub(crate) is_idempotent: bool,
}

/// An export that works by one of `connections`; which one is an argument if there are several.
pub(crate) fn export<A, F, R>(offer: Offer, connections: &Connections, run: F) -> Export
where
    A: DeserializeOwned + Send,
    F: Fn(ConnectionRoute, A) -> R + Copy + Send + Sync + 'static,
    R: Future<Output = Result<String, ToolFault>> + Send,
{
    let mut properties = offer.properties;
    if let ([_, _, ..], Some(fields)) = (&connections[..], properties.as_object_mut()) {
        let connection = json!({
            "enum": connections.as_ref(),
            "description": "By which connection; if not given, the one this turn's input came by",
        });
        fields.insert("connection".to_owned(), connection);
    }
    let connections = Arc::clone(connections);
    Export {
        name: offer.name.into(),
        description: offer.description.into(),
        parameters: json!({
            "type": "object",
            "required": offer.required,
            "additionalProperties": false,
            "properties": properties,
        }),
        is_idempotent: offer.is_idempotent,
        output: Output::MayBeLong,
        run: Box::new(move |_, call| {
            let connections = Arc::clone(&connections);
            Box::pin(async move {
                let made = async {
                    let route = ConnectionRoute::of(&call, &connections)?;
                    run(route, call.args()?).await
                };
                made.await.map_or_else(ToolOutcome::from, ToolOutcome::ok)
            })
        }),
    }
}
