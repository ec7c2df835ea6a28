//! Rewrites a tool's JSON Schema into one that providers accept as `parameters` (pure).
//!
//! Providers reject a whole request if the root of one schema is not a plain object: without
//! `type`, or with `anyOf`, `oneOf` or `allOf` at its root, or if a schema within it is invalid in
//! the current version of JSON Schema. The rewritten schema accepts at least everything that the
//! original accepts. The agent checks a call against the original.

use serde_json::{Map, Value, json};

/// Fields that providers reject at the root.
const COMBINERS: [&str; 3] = ["anyOf", "oneOf", "allOf"];

/// More fields that providers reject at the root; they only narrow the accepted values.
const REFUSED: [&str; 5] = ["not", "enum", "const", "if", "$ref"];

/// Maximum number of references followed from the root.
const REFERENCES_MAX: usize = 16;

/// The schema in a form that providers accept.
pub(super) fn accepted(schema: &Value) -> Value {
    let Value::Object(schema) = schema else {
        return empty();
    };
    let mut root = resolved(schema, schema, REFERENCES_MAX);
    if !may_be_object(&root) {
        return empty();
    }
    for name in COMBINERS {
        if let Some(Value::Array(branches)) = root.remove(name) {
            merge(&mut root, schema, &branches, name == "allOf");
        }
    }
    for name in REFUSED {
        root.remove(name);
    }
    for name in ["$defs", "definitions"] {
        if let Some(definitions) = schema.get(name) {
            root.insert(name.to_owned(), definitions.clone());
        }
    }
    mend(&mut root, DEPTH_MAX);
    root.insert("type".to_owned(), json!("object"));
    if !root.get("properties").is_some_and(Value::is_object) {
        root.insert("properties".to_owned(), json!({}));
    }
    Value::Object(root)
}

/// Deepest nesting of schemas that are repaired.
const DEPTH_MAX: usize = 64;

/// Types of JSON Schema.
const TYPES: [&str; 7] = [
    "string", "number", "integer", "boolean", "object", "array", "null",
];

/// Fields whose value is a schema.
const SCHEMAS: [&str; 7] = [
    "items",
    "additionalProperties",
    "not",
    "if",
    "then",
    "else",
    "contains",
];

/// Fields whose values are schemas by name.
const SCHEMA_MAPS: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];

/// Removes or completes the parts of a schema that are invalid in the current version of JSON
/// Schema, or that a provider demands.
fn mend(schema: &mut Map<String, Value>, depth: usize) {
    let Some(depth) = depth.checked_sub(1) else {
        return;
    };
    mend_fields(schema);
    mend_type(schema);
    for name in SCHEMAS {
        match schema.get_mut(name) {
            Some(Value::Object(inner)) => mend(inner, depth),
            Some(Value::Bool(_)) | None => {}
            Some(Value::Array(forms)) if name == "items" => {
                // Older versions allow a schema for each place.
                let forms = std::mem::take(forms);
                let mut any = json!({"anyOf": forms});
                if let Some(any) = any.as_object_mut() {
                    mend(any, depth);
                }
                schema.insert(name.to_owned(), any);
            }
            Some(_) => {
                schema.remove(name);
            }
        }
    }
    for name in SCHEMA_MAPS {
        match schema.get_mut(name) {
            Some(Value::Object(inner)) => {
                for inner in inner.values_mut() {
                    mend_value(inner, depth);
                }
            }
            Some(_) => {
                schema.remove(name);
            }
            None => {}
        }
    }
    for name in COMBINERS {
        match schema.get_mut(name) {
            Some(Value::Array(forms)) if !forms.is_empty() => {
                for inner in forms {
                    mend_value(inner, depth);
                }
            }
            Some(_) => {
                schema.remove(name);
            }
            None => {}
        }
    }
    if has_type(schema, "array") && !schema.contains_key("items") {
        schema.insert("items".to_owned(), json!({}));
    }
}

fn mend_value(schema: &mut Value, depth: usize) {
    match schema {
        Value::Object(schema) => mend(schema, depth),
        Value::Bool(_) => {}
        _ => *schema = json!({}),
    }
}

/// Removes fields whose values are valid only in older versions.
fn mend_fields(schema: &mut Map<String, Value>) {
    let is_list = |value: &Value| value.as_array().is_some_and(|list| !list.is_empty());
    schema.retain(|name, value| match name.as_str() {
        "required" => value.is_array(),
        "enum" => is_list(value),
        "exclusiveMinimum" | "exclusiveMaximum" => value.is_number(),
        _ => true,
    });
}

/// Removes unknown types, such as `any`.
fn mend_type(schema: &mut Map<String, Value>) {
    let is_type = |kind: &Value| kind.as_str().is_some_and(|kind| TYPES.contains(&kind));
    let is_kept = match schema.get_mut("type") {
        Some(Value::Array(kinds)) if kinds.iter().all(is_type) => !kinds.is_empty(),
        Some(kind) => is_type(kind),
        None => return,
    };
    if !is_kept {
        schema.remove("type");
    }
}

fn has_type(schema: &Map<String, Value>, name: &str) -> bool {
    match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == name),
        Some(kind) => kind == name,
        None => false,
    }
}

fn empty() -> Value {
    json!({"type": "object", "properties": {}})
}

fn may_be_object(schema: &Map<String, Value>) -> bool {
    match schema.get("type") {
        None | Some(Value::Null) => true,
        Some(Value::Array(types)) => types.iter().any(|kind| kind == "object"),
        Some(kind) => kind == "object",
    }
}

/// Replaces a `$ref` at the root with its target within the document.
fn resolved(
    document: &Map<String, Value>,
    schema: &Map<String, Value>,
    references: usize,
) -> Map<String, Value> {
    let target = schema.get("$ref").and_then(Value::as_str);
    let target = target.and_then(|target| {
        let path = target.strip_prefix('#')?;
        let mut at = document.get(path.strip_prefix('/')?.split('/').next()?)?;
        for name in path.split('/').skip(2) {
            at = at.get(name.replace("~1", "/").replace("~0", "~"))?;
        }
        at.as_object()
    });
    match (target, references.checked_sub(1)) {
        (Some(target), Some(references)) => {
            let mut merged = resolved(document, target, references);
            for (name, value) in schema.iter().filter(|(name, _)| *name != "$ref") {
                merged.insert(name.clone(), value.clone());
            }
            merged
        }
        _ => schema.clone(),
    }
}

/// Merges alternatives into the root. All properties are offered. Required are those that every
/// alternative requires, or, for `allOf`, those that any alternative requires.
fn merge(
    root: &mut Map<String, Value>,
    document: &Map<String, Value>,
    branches: &[Value],
    all_hold: bool,
) {
    let mut required: Option<Vec<Value>> = None;
    for branch in branches.iter().filter_map(Value::as_object) {
        let branch = resolved(document, branch, REFERENCES_MAX);
        if !may_be_object(&branch) {
            continue;
        }
        if let Some(Value::Object(properties)) = branch.get("properties") {
            let offered = root.entry("properties").or_insert_with(|| json!({}));
            if let Some(offered) = offered.as_object_mut() {
                for (name, property) in properties {
                    offered
                        .entry(name)
                        .and_modify(|known| widen(known, property, all_hold));
                    offered.entry(name).or_insert_with(|| property.clone());
                }
            }
        }
        let its = branch.get("required").and_then(Value::as_array);
        let its = its.cloned().unwrap_or_default();
        required = Some(match required {
            None => its,
            Some(mut held) if all_hold => {
                held.extend(its);
                held
            }
            Some(held) => held.into_iter().filter(|name| its.contains(name)).collect(),
        });
    }
    // A closed root would reject the alternatives' properties, in the original as well; the merged
    // schema must not.
    root.remove("additionalProperties");
    let required = required.unwrap_or_default();
    if required.is_empty() {
        return;
    }
    let held = root.entry("required").or_insert_with(|| json!([]));
    if let Some(held) = held.as_array_mut() {
        for name in required {
            if !held.contains(&name) {
                held.push(name);
            }
        }
    }
}

/// A property that two alternatives describe differently accepts either.
fn widen(known: &mut Value, other: &Value, all_hold: bool) {
    if known == other || all_hold {
        return;
    }
    match known.get_mut("anyOf").and_then(Value::as_array_mut) {
        Some(forms) if !forms.contains(other) => forms.push(other.clone()),
        Some(_) => {}
        None => *known = json!({"anyOf": [known.clone(), other]}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prov_1_a_plain_object_schema_stays_as_it_is() {
        let schema = json!({"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}]}},
            "required": ["a"], "additionalProperties": false, "$defs": {"x": {}}});
        assert_eq!(accepted(&schema), schema);
    }

    #[test]
    fn prov_1_every_root_is_an_object_without_combiners() {
        for schema in [
            json!({}),
            json!(null),
            json!("object"),
            json!(true),
            json!({"type": "string"}),
            json!({"type": ["object", "null"]}),
            json!({"type": null, "properties": null}),
            json!({"anyOf": []}),
            json!({"oneOf": [{"type": "string"}, {"properties": {"a": {}}}]}),
            json!({"$ref": "#"}),
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}),
            json!({"not": {"required": ["a"]}, "enum": [{}], "if": {}}),
        ] {
            let found = accepted(&schema);
            assert_eq!(found["type"], "object", "{schema}");
            assert!(found["properties"].is_object(), "{schema}");
            for name in COMBINERS.iter().chain(&REFUSED) {
                assert_eq!(found.get(name), None, "{schema}");
            }
        }
    }

    #[test]
    fn prov_1_inner_schemas_that_providers_refuse_are_mended() {
        for (inner, expected) in [
            (
                json!({"type": "array"}),
                json!({"type": "array", "items": {}}),
            ),
            (
                json!({"type": ["string", "array"]}),
                json!({"type": ["string", "array"], "items": {}}),
            ),
            (
                json!({"type": "array", "items": [{"type": "number"}, {"type": "array"}]}),
                json!({"type": "array",
                    "items": {"anyOf": [{"type": "number"}, {"type": "array", "items": {}}]}}),
            ),
            (
                json!({"type": "array", "items": []}),
                json!({"type": "array", "items": {}}),
            ),
            (
                json!({"type": "string", "required": true}),
                json!({"type": "string"}),
            ),
            (
                json!({"type": "number", "minimum": 0, "exclusiveMinimum": true}),
                json!({"type": "number", "minimum": 0}),
            ),
            (
                json!({"type": "number", "exclusiveMinimum": 0}),
                json!({"type": "number", "exclusiveMinimum": 0}),
            ),
            (json!({"type": "any", "enum": []}), json!({})),
            (json!({"type": null}), json!({})),
            (json!({"type": ["string", "any"]}), json!({})),
            (json!("string"), json!({})),
            (json!(null), json!({})),
            (json!(true), json!(true)),
            (
                json!({"type": "object", "properties": {"b": {"type": "array"}}}),
                json!({"type": "object", "properties": {"b": {"type": "array", "items": {}}}}),
            ),
            (json!({"oneOf": [], "anyOf": null}), json!({})),
            (
                json!({"anyOf": [{"type": "array"}, {"type": "null"}]}),
                json!({"anyOf": [{"type": "array", "items": {}}, {"type": "null"}]}),
            ),
        ] {
            let schema = json!({"type": "object", "properties": {"a": inner}});
            assert_eq!(accepted(&schema)["properties"]["a"], expected, "{inner}");
        }
        // A property may have the name of a field.
        let schema = json!({"type": "object", "properties": {
            "required": {"type": "boolean"}, "enum": {"type": "string"},
            "items": {"type": "array", "items": {"type": "string"}}}});
        assert_eq!(accepted(&schema), schema);
    }

    #[test]
    fn prov_1_alternatives_become_one_object() {
        let schema = json!({"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"],
        "anyOf": [
            {"properties": {"a": {"type": "string"}, "b": {}}, "required": ["a", "b"]},
            {"properties": {"a": {"type": "number"}}, "required": ["a"]},
        ]});
        assert_eq!(
            accepted(&schema),
            json!({"type": "object", "required": ["id", "a"], "properties": {
                "id": {"type": "string"}, "b": {},
                "a": {"anyOf": [{"type": "string"}, {"type": "number"}]},
            }})
        );
        let schema = json!({"allOf": [{"$ref": "#/$defs/one"}, {"required": ["b"]}],
            "$defs": {"one": {"type": "object", "properties": {"a": {}}, "required": ["a"]}}});
        let found = accepted(&schema);
        assert_eq!(found["required"], json!(["a", "b"]));
        assert_eq!(found["properties"], json!({"a": {}}));
    }
}
