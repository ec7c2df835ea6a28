//! One number that changes exactly when what was loaded changes.

use goondan_protocol::JsonObject;
use goondan_protocol::observe::ObservationBounds;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{Bundle, ConnectionDefinition, IngressRule, KeyRule};

/// SHA-256 over the bundle's content, as 64 lower-case hex digits.
///
/// Comments, spacing, the order of documents and fields, and how the project is split into files do
/// not count; a prompt's text, a script, and the values of environment variables do, since a process
/// that holds an old value must be restarted.
pub(crate) fn digest(bundle: &Bundle) -> String {
    let package = bundle
        .package
        .as_ref()
        .map(|package| json!({"name": package.name, "version": package.version}));
    let agents: Vec<Value> = bundle.agents.values().map(|agent| json!(agent)).collect();
    let connections: Vec<Value> = bundle.connections.values().map(connection).collect();
    let models: Vec<Value> = bundle.models.values().map(|model| json!(model)).collect();
    let mut content = json!({
        "package": package,
        "entryAgent": bundle.entry_agent,
        "conversationKey": bundle.conversation_key,
        "agents": agents,
        "connections": connections,
        "local": bundle.local.as_ref().map(connection),
        "models": models,
        "prices": bundle.prices,
        "budgets": bundle.budgets,
        "gracePeriodMs": bundle.grace_period_ms,
        "lifecycle": {
            "ttlMs": bundle.lifecycle.ttl_ms,
            "gcGraceMs": bundle.lifecycle.gc_grace_ms,
            "idleMs": bundle.lifecycle.idle_ms,
        },
    });
    // What was not said before it could be said has the digest it had.
    if bundle.observation != ObservationBounds::default()
        && let Some(content) = content.as_object_mut()
    {
        let ObservationBounds { bytes, days } = bundle.observation;
        content.insert(
            "observation".to_owned(),
            json!({"bytes": bytes, "days": days}),
        );
    }
    hex::encode(Sha256::digest(sorted(content).to_string()))
}

fn connection(connection: &ConnectionDefinition) -> Value {
    let rules: Vec<Value> = connection.rules.iter().map(rule).collect();
    json!({
        "name": connection.name,
        "connector": connection.connector,
        "entry": connection.entry,
        "entryDigest": connection.entry_digest,
        "config": connection.config,
        "secrets": connection.secrets,
        "rules": rules,
        "limits": connection.limits,
    })
}

fn rule(rule: &IngressRule) -> Value {
    let key = match &rule.key {
        KeyRule::FromEvent { prefix } => json!({"fromEvent": {"prefix": prefix}}),
        KeyRule::Fixed(key) => json!({"fixed": key}),
        KeyRule::Property { name, prefix } => json!({"property": name, "prefix": prefix}),
    };
    json!({
        "event": rule.event,
        "properties": rule.properties,
        "agent": rule.agent,
        "key": key,
    })
}

/// The value with the fields of every object in order. `serde_json` may be built to keep the order
/// of insertion instead, by any crate of the program; the digest must not depend on that.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<(String, Value)> = fields
                .into_iter()
                .map(|(name, value)| (name, sorted(value)))
                .collect();
            fields.sort_by(|(left, _), (right, _)| left.cmp(right));
            Value::Object(fields.into_iter().collect::<JsonObject>())
        }
        Value::Array(items) => items.into_iter().map(sorted).collect(),
        plain @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => plain,
    }
}
