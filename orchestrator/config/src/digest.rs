//! One number that changes exactly when what was loaded changes.

use goondan_protocol::JsonObject;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{ConnectionDefinition, IngressRule, KeyRule};

/// SHA-256 over the content of a bundle, as 64 lower-case hex digits.
///
/// Comments, spacing, the order of documents and fields, and how the project is split into files do
/// not count; a prompt's text, a script, and the values of environment variables do, since a process
/// that holds an old value must be restarted.
pub(crate) fn digest(content: Value) -> String {
    hex::encode(Sha256::digest(sorted(content).to_string()))
}

/// What a connection counts for.
pub(crate) fn connection(connection: &ConnectionDefinition) -> Value {
    let rules: Vec<Value> = connection.rules.iter().map(rule).collect();
    let mut content = json!({
        "name": connection.name,
        "connector": connection.connector,
        "entry": connection.entry,
        "entryDigest": connection.entry_digest,
        "config": connection.config,
        "secrets": connection.secrets,
        "rules": rules,
        "limits": connection.limits,
        "sandbox": connection.sandbox,
    });
    // What was not said before it could be said has the digest it had.
    if !connection.egress.is_empty()
        && let Some(content) = content.as_object_mut()
    {
        content.insert("egress".to_owned(), json!(connection.egress));
    }
    content
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
