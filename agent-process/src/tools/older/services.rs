//! Shared code of the tools that work through connections, which hold the tokens. The arguments
//! `token` and `apiBaseUrl` are ignored, because the Connection determines the bot and the server.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use goondan_protocol::ids::ConnectionName;
use goondan_protocol::service::ConnectorRequest;
use serde_json::value::to_raw_value;
use serde_json::{Map, Value, json};

use super::{ExportSpec, export, invalid, outcome};
use crate::tools::connection_tools::ConnectionRoute;
use crate::tools::export::Export;
use crate::tools::fault::ToolFault;
use crate::tools::invocation::ToolInvocation;
use crate::tools::places::ToolRoots;

/// Time limit of a call, in milliseconds, including its wait in the queue.
pub(super) const DEADLINE_MS: u64 = 120_000;

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

    pub(super) fn number(&self, names: &[&str]) -> Result<i64, ToolFault> {
        let text = self.needed(names)?;
        let name = names.first().copied().unwrap_or_default();
        text.parse()
            .map_err(|_| invalid(format!("`{name}` must be a whole number")))
    }

    pub(super) fn truth(&self, name: &str) -> Option<bool> {
        self.args.get(name).and_then(Value::as_bool)
    }

    /// `emoji` and the items of `emojis`.
    pub(super) fn emojis(&self) -> Vec<String> {
        let many = self
            .args
            .get("emojis")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let many = many.filter_map(|it| it.as_str().map(str::to_owned));
        self.text("emoji").into_iter().chain(many).collect()
    }

    pub(super) async fn ask(
        &self,
        method: &str,
        params: Value,
        is_repeatable: bool,
    ) -> Result<Value, ToolFault> {
        self.ask_within(method, params, is_repeatable, DEADLINE_MS)
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
        self.route.run(request, is_repeatable, deadline_ms).await
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
