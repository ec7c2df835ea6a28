//! `json-query`: `query`, `pick`, `count` and `flatten`.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{ExportSpec, invalid, pure};
use crate::tools::export::Export;
use crate::tools::fault::ToolFault;
use crate::tools::invocation::ToolInvocation;

pub(super) fn exports() -> Vec<Export> {
    let data = || json!({"type": "string", "description": "A JSON document"});
    let path = || json!({"type": "string", "description": "Such as `users[0].name`; the whole if not given"});
    vec![
        pure(
            ExportSpec {
                name: "query",
                description: "Returns what a path of a JSON document leads to.",
                properties: json!({"data": data(), "path": path()}),
                required: &["data"],
                is_idempotent: true,
            },
            query,
        ),
        pure(
            ExportSpec {
                name: "pick",
                description: "Returns some fields of a JSON object.",
                properties: json!({
                    "data": data(), "keys": {"type": "array", "items": {"type": "string"}},
                }),
                required: &["data", "keys"],
                is_idempotent: true,
            },
            pick,
        ),
        pure(
            ExportSpec {
                name: "count",
                description: "Counts what a path of a JSON document leads to.",
                properties: json!({"data": data(), "path": path()}),
                required: &["data"],
                is_idempotent: true,
            },
            count,
        ),
        pure(
            ExportSpec {
                name: "flatten",
                description: "Flattens lists within a JSON list.",
                properties: json!({"data": data(), "depth": {"type": "number", "minimum": 0}}),
                required: &["data"],
                is_idempotent: true,
            },
            flatten,
        ),
    ]
}

#[derive(Deserialize)]
struct Args {
    data: String,
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    keys: Vec<String>,
    #[serde(default)]
    depth: Option<f64>,
}

fn read(call: &ToolInvocation) -> Result<(Args, Value), ToolFault> {
    let args: Args = call.args()?;
    let document = serde_json::from_str(&args.data);
    let document = document
        .map_err(|error| ToolFault::new("E_NOT_JSON", format!("`data` is not JSON: {error}")))?;
    Ok((args, document))
}

/// Parses a path into its keys and indexes: `users[0].name`, `.items`, `["a b"]`.
fn steps(path: &str) -> Result<Vec<String>, ToolFault> {
    let mut steps = Vec::new();
    let mut rest = path.trim();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            rest = after;
        } else if let Some(after) = rest.strip_prefix('[') {
            let Some((inner, after)) = after.split_once(']') else {
                return Err(ToolFault::new(
                    "E_INVALID_QUERY",
                    format!("`{path}` has a `[` without `]`"),
                ));
            };
            steps.push(inner.trim_matches(['"', '\'']).to_owned());
            rest = after;
        } else {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            let (name, after) = rest.split_at(end);
            steps.push(name.to_owned());
            rest = after;
        }
    }
    Ok(steps)
}

fn find<'v>(document: &'v Value, path: &str) -> Result<Option<&'v Value>, ToolFault> {
    let found = steps(path)?
        .iter()
        .try_fold(document, |value, step| match value {
            Value::Object(fields) => fields.get(step),
            Value::Array(items) => items.get(step.parse::<usize>().ok()?),
            _ => None,
        });
    Ok(found)
}

fn query(call: &ToolInvocation) -> Result<Value, ToolFault> {
    let (args, document) = read(call)?;
    let path = args.path.unwrap_or_else(|| ".".to_owned());
    let found = find(&document, &path)?;
    Ok(json!({"path": path, "found": found.is_some(), "value": found}))
}

fn pick(call: &ToolInvocation) -> Result<Value, ToolFault> {
    let (args, document) = read(call)?;
    let Value::Object(fields) = document else {
        return Err(invalid("`data` must be a JSON object"));
    };
    let picked: Map<String, Value> = args
        .keys
        .iter()
        .filter_map(|key| Some((key.clone(), fields.get(key)?.clone())))
        .collect();
    Ok(json!({"keys": args.keys, "result": picked}))
}

fn count(call: &ToolInvocation) -> Result<Value, ToolFault> {
    let (args, document) = read(call)?;
    let path = args.path.unwrap_or_else(|| ".".to_owned());
    let Some(found) = find(&document, &path)? else {
        return Ok(json!({"path": path, "count": 0, "type": "undefined"}));
    };
    let (count, kind) = match found {
        Value::Array(items) => (items.len(), "array"),
        Value::Object(fields) => (fields.len(), "object"),
        Value::String(text) => (text.chars().count(), "string"),
        Value::Null => (0, "null"),
        Value::Number(_) => (1, "number"),
        Value::Bool(_) => (1, "boolean"),
    };
    Ok(json!({"path": path, "count": count, "type": kind}))
}

fn flatten(call: &ToolInvocation) -> Result<Value, ToolFault> {
    let (args, document) = read(call)?;
    let Value::Array(mut items) = document else {
        return Err(invalid("`data` must be a JSON list"));
    };
    let depth = args.depth.unwrap_or(1.0);
    let mut left = depth;
    while left >= 1.0 && items.iter().any(Value::is_array) {
        let each = items.into_iter().map(|item| match item {
            Value::Array(inner) => inner,
            other => vec![other],
        });
        items = each.flatten().collect();
        left -= 1.0;
    }
    Ok(json!({"depth": number(depth), "count": items.len(), "result": items}))
}

/// Formats a whole number without a fraction.
pub(super) fn number(value: f64) -> Value {
    let text = format!("{value}");
    text.parse::<i64>()
        .map_or_else(|_| json!(value), |whole| json!(whole))
}
