//! Shared code of the tools that work through connections, which hold the tokens. The arguments
//! `token` and `apiBaseUrl` are ignored, because the Connection determines the bot and the server.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use goondan_protocol::ids::ConnectionName;
use goondan_protocol::service::ConnectorRequest;
use serde_json::value::to_raw_value;
use serde_json::{Map, Value, json};

use super::javascript::{self, is_space};
use super::{ExportSpec, export, invalid, outcome};
use crate::tools::connection_tools::{ConnectionRoute, Repetition};
use crate::tools::export::Export;
use crate::tools::fault::ToolFault;
use crate::tools::invocation::ToolInvocation;
use crate::tools::places::ToolRoots;

/// Time limit of a call, in milliseconds, including its wait in the queue.
pub(super) const DEADLINE_MS: u64 = 120_000;

/// JavaScript's `undefined` or text for an argument that is missing or blank.
fn trimmed(value: Option<&Value>) -> Option<String> {
    let text = value.and_then(Value::as_str)?.trim_matches(is_space);
    (!text.is_empty()).then(|| text.to_owned())
}

pub(super) type ServiceHandler =
    for<'a> fn(&'a RoutedCall) -> BoxFuture<'a, Result<Value, ToolFault>>;

/// A call and its route to the connection.
pub(super) struct RoutedCall {
    route: ConnectionRoute,
    pub(super) args: Map<String, Value>,
    pub(super) places: Arc<ToolRoots>,
}

impl RoutedCall {
    pub(super) fn text(&self, name: &str) -> Option<String> {
        match self.args.get(name)? {
            Value::String(text) if !text.is_empty() => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        }
    }

    /// The first given argument among `names`.
    pub(super) fn needed(&self, names: &[&str]) -> Result<String, ToolFault> {
        let found = names.iter().find_map(|name| self.text(name));
        let name = names.first().copied().unwrap_or_default();
        found.ok_or_else(|| invalid(format!("`{name}` is needed")))
    }

    /// The first argument among `names` that is a text and not blank.
    pub(super) fn trimmed(&self, names: &[&str]) -> Option<String> {
        names.iter().find_map(|name| trimmed(self.args.get(*name)))
    }

    /// As [`Self::trimmed`], for an argument that must be given.
    pub(super) fn trimmed_needed(&self, names: &[&str]) -> Result<String, ToolFault> {
        let name = names.first().copied().unwrap_or_default();
        let found = self.trimmed(names);
        found.ok_or_else(|| invalid(format!("`{name}` must be a text that is not blank")))
    }

    /// A whole number, also written as text.
    pub(super) fn integer(&self, name: &str) -> Option<i64> {
        match self.args.get(name)? {
            Value::Number(number) => {
                let value = number.as_f64().filter(|value| value.fract() == 0.0)?;
                Some(javascript::integer(value))
            }
            Value::String(text) => {
                let text = text.trim_matches(is_space);
                // `parse` accepts a plus sign, which 0.0.3 refused.
                (!text.starts_with('+')).then(|| text.parse().ok())?
            }
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// The id of a message; `None` if it is not given.
    pub(super) fn message_id(&self, name: &str) -> Result<Option<i64>, ToolFault> {
        if !self.args.contains_key(name) {
            return Ok(None);
        }
        let id = self.integer(name).filter(|id| *id > 0);
        let wrong = || invalid(format!("`{name}` must be a positive integer"));
        id.map(Some).ok_or_else(wrong)
    }

    /// `timeoutMs`, for calls that have one.
    fn deadline_ms(&self) -> Result<u64, ToolFault> {
        let Some(written) = self.args.get("timeoutMs") else {
            return Ok(DEADLINE_MS);
        };
        let millis = written.as_f64().filter(|millis| *millis > 0.0);
        let millis = millis
            .map(javascript::integer)
            .and_then(|millis| u64::try_from(millis).ok());
        let millis = millis.ok_or_else(|| invalid("`timeoutMs` must be a positive number"))?;
        Ok(millis.clamp(1, DEADLINE_MS))
    }

    pub(super) fn truth(&self, name: &str) -> Option<bool> {
        self.args.get(name).and_then(Value::as_bool)
    }

    /// `emoji` and the items of `emojis`, each once.
    pub(super) fn emojis(&self) -> Vec<String> {
        let many = self.args.get("emojis").and_then(Value::as_array);
        let one = trimmed(self.args.get("emoji"));
        let all = one.into_iter().chain(
            many.into_iter()
                .flatten()
                .filter_map(|emoji| trimmed(Some(emoji))),
        );
        let mut emojis: Vec<String> = Vec::new();
        for emoji in all {
            if !emojis.contains(&emoji) {
                emojis.push(emoji);
            }
        }
        emojis
    }

    pub(super) async fn ask(
        &self,
        method: &str,
        params: Value,
        is_repeatable: bool,
    ) -> Result<Value, ToolFault> {
        let deadline_ms = self.deadline_ms()?;
        self.ask_within(method, params, is_repeatable, deadline_ms)
            .await
    }

    pub(super) async fn ask_within(
        &self,
        method: &str,
        params: Value,
        is_repeatable: bool,
        deadline_ms: u64,
    ) -> Result<Value, ToolFault> {
        let params = match params {
            Value::Object(fields) => Value::Object(
                fields
                    .into_iter()
                    .filter(|(_, value)| !value.is_null())
                    .collect(),
            ),
            other => other,
        };
        let params = to_raw_value(&params);
        let params = params.map_err(|error| ToolFault::new("E_TOOL_FAILED", error.to_string()))?;
        let request = ConnectorRequest {
            method: method.to_owned(),
            params,
        };
        self.route
            .run(request, Repetition::of(is_repeatable), deadline_ms)
            .await
    }
}

pub(super) fn of(
    connections: &[ConnectionName],
    name: &'static str,
    description: &'static str,
    properties: Value,
    required: &'static [&'static str],
    is_idempotent: bool,
    work: ServiceHandler,
) -> Export {
    let connections: Arc<[ConnectionName]> = connections.into();
    let told = ExportSpec {
        name,
        description,
        properties,
        required,
        is_idempotent,
    };
    export(
        told,
        Box::new(move |places, call| {
            let connections = Arc::clone(&connections);
            Box::pin(async move { outcome(done(&connections, places, &call, work).await) })
        }),
    )
}

async fn done(
    connections: &[ConnectionName],
    places: Arc<ToolRoots>,
    call: &ToolInvocation,
    work: ServiceHandler,
) -> Result<Value, ToolFault> {
    let site = RoutedCall {
        route: ConnectionRoute::of(call, connections)?,
        args: call.args()?,
        places,
    };
    work(&site).await
}

/// Schema properties from names and types.
pub(super) fn properties(fields: &[(&str, &str)]) -> Value {
    let each = fields.iter().map(|(name, kind)| {
        let schema = match *kind {
            "id" => json!({"type": ["string", "number"]}),
            "texts" => json!({"type": "array", "items": {"type": "string"}}),
            kind => json!({ "type": kind }),
        };
        ((*name).to_owned(), schema)
    });
    Value::Object(each.collect())
}

/// Schema properties with the arguments shared by all chat calls.
pub(super) fn of_chat(fields: &[(&str, &str)]) -> Value {
    let common = [
        ("token", "string"),
        ("timeoutMs", "number"),
        ("apiBaseUrl", "string"),
    ];
    properties(&[&common, fields].concat())
}
