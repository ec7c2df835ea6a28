//! `json-query`: `query`, `pick`, `count` and `flatten`.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::javascript::{self, index, number, with_numbers};
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
                properties: json!({"data": data(), "depth": {"type": "number"}}),
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
    Ok((args, with_numbers(document)))
}

/// Keys and indexes of a path such as `users[0].name`. A key can contain dots within brackets, and
/// includes its quotation marks.
fn steps(path: &str) -> Vec<String> {
    let mut steps = vec![String::new()];
    let mut is_in_brackets = false;
    for c in path.strip_prefix('.').unwrap_or(path).chars() {
        let ends_step = match c {
            '[' | ']' => {
                is_in_brackets = c == '[';
                true
            }
            '.' => !is_in_brackets,
            _ => false,
        };
        if ends_step {
            steps.push(String::new());
        } else if let Some(step) = steps.last_mut() {
            step.push(c);
        }
    }
    steps.retain(|step| !step.is_empty());
    steps
}

fn find<'v>(document: &'v Value, path: &str) -> Option<&'v Value> {
    let mut steps = steps(path).into_iter();
    steps.try_fold(document, |value, step| match value {
        Value::Object(fields) => fields.get(&step),
        Value::Array(items) => items.get(index(&step)?),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    })
}

fn query(call: &ToolInvocation) -> Result<Value, ToolFault> {
    let (args, document) = read(call)?;
    let path = args.path.unwrap_or_else(|| ".".to_owned());
    let found = find(&document, &path);
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
    let (count, kind) = match find(&document, &path).unwrap_or(&Value::Null) {
        Value::Array(items) => (items.len(), "array"),
        Value::Object(fields) => (fields.len(), "object"),
        Value::String(text) => (javascript::length(text), "string"),
        Value::Null => (0, "null"),
        Value::Number(_) => (1, "number"),
        Value::Bool(_) => (1, "boolean"),
    };
    Ok(json!({"path": path, "count": count, "type": kind}))
}

fn flatten(call: &ToolInvocation) -> Result<Value, ToolFault> {
    let (args, document) = read(call)?;
    let Value::Array(items) = document else {
        return Err(invalid("`data` must be a JSON list"));
    };
    let depth = args.depth.unwrap_or(1.0);
    let mut result = Vec::new();
    flatten_into(items, depth, &mut result);
    Ok(json!({"depth": number(depth), "count": result.len(), "result": result}))
}

/// A fraction of a depth counts as a whole level.
fn flatten_into(items: Vec<Value>, depth: f64, result: &mut Vec<Value>) {
    for item in items {
        match item {
            Value::Array(inner) if depth > 0.0 => flatten_into(inner, depth - 1.0, result),
            item => result.push(item),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(
        work: fn(&ToolInvocation) -> Result<Value, ToolFault>,
        args: Value,
    ) -> Result<Value, ToolFault> {
        work(&ToolInvocation {
            call_id: "c".to_owned(),
            args,
            span: tracing::Span::none(),
            site: None,
        })
    }

    const DATA: &str =
        r#"{"a": {"b": [10, {"c": null}, [1.0]]}, "x.y": 1, "\"q\"": 2, "e": "a😀"}"#;

    #[test]
    fn compat_2_paths_lead_where_they_led() {
        for (path, expected) in [
            ("a.b[0]", Some(json!(10))),
            (".a.b.0", Some(json!(10))),
            ("a.b[1].c", Some(json!(null))),
            ("a.b[1].c.d", None),
            ("a.b[-1]", None),
            ("a.b[3]", None),
            ("a.b[2][0]", Some(json!(1))),
            ("[x.y]", Some(json!(1))),
            ("x.y", None),
            ("[\"q\"]", Some(json!(2))),
            ("[\"a\"]", None),
            ("e.0", None),
            (" a", None),
            ("a..b.[0]", Some(json!(10))),
        ] {
            let found = outcome(query, json!({"data": DATA, "path": path})).unwrap();
            let is_found = expected.is_some();
            let expected = json!({"path": path, "found": is_found, "value": expected});
            assert_eq!(found, expected, "{path}");
        }
        for whole in ["", "."] {
            let found = outcome(query, json!({"data": "[1]", "path": whole})).unwrap();
            assert_eq!(found, json!({"path": whole, "found": true, "value": [1]}));
        }
    }

    #[test]
    fn compat_2_counts_are_those_of_javascript() {
        for (path, count, kind) in [
            (".", 4, "object"),
            ("a.b", 3, "array"),
            ("e", 3, "string"),
            ("a.b[1].c", 0, "null"),
            ("nothing", 0, "null"),
            ("a.b[0]", 1, "number"),
        ] {
            let found = outcome(super::count, json!({"data": DATA, "path": path})).unwrap();
            assert_eq!(found, json!({"path": path, "count": count, "type": kind}));
        }
    }

    #[test]
    fn compat_2_lists_are_flattened_by_depth() {
        for (depth, result) in [
            (json!(0), json!([1, [2, [3, [4]]]])),
            (json!(-1), json!([1, [2, [3, [4]]]])),
            (json!(1), json!([1, 2, [3, [4]]])),
            (json!(1.5), json!([1, 2, 3, [4]])),
            (json!(9), json!([1, 2, 3, 4])),
        ] {
            let args = json!({"data": "[1,[2,[3,[4]]]]", "depth": depth});
            let found = outcome(flatten, args).unwrap();
            let count = result.as_array().unwrap().len();
            assert_eq!(
                found,
                json!({"depth": depth, "count": count, "result": result})
            );
        }
        assert!(outcome(flatten, json!({"data": "{}"})).is_err());
        assert!(outcome(pick, json!({"data": "[]", "keys": []})).is_err());
        assert!(outcome(query, json!({"data": "no"})).is_err());
    }
}
