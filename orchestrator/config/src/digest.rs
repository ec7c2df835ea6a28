//! A digest that changes exactly when the loaded configuration changes.

use goondan_protocol::JsonObject;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{ConnectionDefinition, IngressRule, KeyRule};

/// SHA-256 of the content of a bundle, as 64 lower-case hexadecimal digits.
///
/// Comments, spacing, the order of documents and fields, and the split into files do not matter.
/// Prompt texts, scripts and values of environment variables do, because a process with an old
/// value must be restarted.
pub(crate) fn digest(content: Value) -> String {
    hex::encode(Sha256::digest(sorted(content).to_string()))
}

/// Content of a connection for the digest.
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
    // Absent new fields do not change the digests of older configurations.
    if let Some(content) = content.as_object_mut() {
        if !connection.egress.is_empty() {
            content.insert("egress".to_owned(), json!(connection.egress));
        }
        if let Some(header) = &connection.header {
            content.insert("header".to_owned(), json!(header.as_str()));
        }
        if !connection.keeps_payload {
            content.insert("keepsPayload".to_owned(), json!(false));
        }
    }
    content
}

fn rule(rule: &IngressRule) -> Value {
    let key = match &rule.key {
        KeyRule::FromEvent { prefix } => json!({"fromEvent": {"prefix": prefix}}),
        KeyRule::Fixed(key) => json!({"fixed": key}),
        KeyRule::Property { name, prefix } => json!({"property": name, "prefix": prefix}),
    };
    let mut content = json!({
        "event": rule.event,
        "properties": rule.properties,
        "agent": rule.agent,
        "key": key,
    });
    // Rules without a join keep their digest.
    if let (Some(join), Some(content)) = (&rule.join, content.as_object_mut()) {
        let join = json!({
            "name": join.name,
            "part": join.part,
            "keyProperty": join.key_property,
            "all": join.all,
            "timeoutMs": join.timeout_ms,
            "onTimeout": join.on_timeout,
        });
        content.insert("join".to_owned(), join);
    }
    content
}

/// Sorts the fields of all objects. Any crate of the program may configure `serde_json` to preserve
/// insertion order, which must not affect the digest.
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
