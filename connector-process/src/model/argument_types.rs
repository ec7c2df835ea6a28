//! Fits the arguments of a call to the types of its tool's schema (pure).
//!
//! Models and servers write lists, objects, numbers and booleans as texts (`"[\"a\"]"`, `"5"`), and
//! objects where a tool expects JSON as a text. They write `null` for arguments that they omit. The
//! agent would refuse such a call, although its meaning is clear.
//!
//! A value keeps its type if the schema allows it, or if the conversion could change its meaning: a
//! list as a text can mean lines or words, and the number `1.10` has already lost a digit.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::normalize::ToolNames;
use super::question::OfferedTool;

/// Deepest nesting of arguments that is fitted.
const DEPTH_MAX: usize = 32;

/// Schemas of the offered tools, by their original names.
#[derive(Debug, Default)]
pub(super) struct ArgumentTypes {
    schemas: BTreeMap<String, Value>,
}

impl ArgumentTypes {
    pub(super) fn of(tools: Vec<OfferedTool>, names: &ToolNames) -> Self {
        let schemas = tools
            .into_iter()
            .map(|tool| (names.original(&tool.name).to_owned(), tool.parameters));
        Self {
            schemas: schemas.collect(),
        }
    }

    /// The arguments of a call of this tool, fitted to its schema.
    pub(super) fn fit(&self, tool: &str, input: Value) -> Value {
        match self.schemas.get(tool) {
            Some(schema) => fitted(input, schema, DEPTH_MAX),
            None => input,
        }
    }
}

/// The types that a schema allows. `None` if it does not restrict them, or not in a form that is
/// recognized here.
fn allowed_types(schema: &Map<String, Value>) -> Option<BTreeSet<&str>> {
    if let Some(kind) = schema.get("type") {
        return match kind {
            Value::String(kind) => Some(BTreeSet::from([kind.as_str()])),
            Value::Array(kinds) => kinds.iter().map(Value::as_str).collect(),
            _ => None,
        };
    }
    let forms = schema.get("anyOf").or_else(|| schema.get("oneOf"))?;
    let mut allowed = BTreeSet::new();
    for form in forms.as_array()? {
        allowed.extend(allowed_types(form.as_object()?)?);
    }
    (!allowed.is_empty()).then_some(allowed)
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn is_allowed(value: &Value, allowed: &BTreeSet<&str>) -> bool {
    let kind = type_of(value);
    allowed.contains(kind) || kind == "integer" && allowed.contains("number")
}

fn fitted(value: Value, schema: &Value, depth: usize) -> Value {
    let (Some(schema), Some(depth)) = (schema.as_object(), depth.checked_sub(1)) else {
        return value;
    };
    let value = match allowed_types(schema) {
        Some(allowed) if !is_allowed(&value, &allowed) => converted(value, &allowed),
        Some(_) | None => value,
    };
    match value {
        Value::Object(fields) => Value::Object(fitted_fields(fields, schema, depth)),
        Value::Array(items) => match form_with(schema, "items") {
            Some(of_items) => items
                .into_iter()
                .map(|item| fitted(item, of_items, depth))
                .collect(),
            None => Value::Array(items),
        },
        value => value,
    }
}

/// The value of a field in a schema, or in its only alternative that has it.
fn form_with<'s>(schema: &'s Map<String, Value>, field: &str) -> Option<&'s Value> {
    schema.get(field).or_else(|| {
        let forms = schema.get("anyOf").or_else(|| schema.get("oneOf"))?;
        let mut found = forms.as_array()?.iter().filter_map(|form| form.get(field));
        found.next().filter(|_| found.next().is_none())
    })
}

fn fitted_fields(
    fields: Map<String, Value>,
    schema: &Map<String, Value>,
    depth: usize,
) -> Map<String, Value> {
    let Some(properties) = form_with(schema, "properties").and_then(Value::as_object) else {
        return fields;
    };
    let required = form_with(schema, "required").and_then(Value::as_array);
    let is_required = |name: &str| required.is_some_and(|all| all.iter().any(|it| it == name));
    let fields = fields.into_iter().filter_map(|(name, value)| {
        let Some(property) = properties.get(&name) else {
            return Some((name, value));
        };
        let allowed = property.as_object().and_then(allowed_types);
        let is_left_out = value.is_null()
            && !is_required(&name)
            && allowed.is_some_and(|allowed| !allowed.contains("null"));
        (!is_left_out).then(|| (name, fitted(value, property, depth)))
    });
    fields.collect()
}

/// The value as one of the allowed types, if its meaning is clear.
fn converted(value: Value, allowed: &BTreeSet<&str>) -> Value {
    match &value {
        Value::String(text) => {
            let read = match text.trim() {
                "True" => Some(Value::Bool(true)),
                "False" => Some(Value::Bool(false)),
                plain => serde_json::from_str(plain)
                    .ok()
                    .filter(|read| !is_rounded(plain, read)),
            };
            read.filter(|read| is_allowed(read, allowed))
                .unwrap_or(value)
        }
        // A whole number as a fraction: `5.0`.
        Value::Number(number) if number.is_f64() && allowed.contains("integer") => {
            let whole = number.as_f64().filter(|number| number.fract() == 0.0);
            let whole = whole.and_then(|number| format!("{number:.0}").parse::<i64>().ok());
            whole.map_or(value, Value::from)
        }
        Value::Number(number) if !number.is_f64() && allowed.contains("string") => {
            Value::String(number.to_string())
        }
        Value::Bool(_) if allowed.contains("string") => Value::String(value.to_string()),
        Value::Object(fields) if !fields.is_empty() && allowed.contains("string") => {
            Value::String(value.to_string())
        }
        _ => value,
    }
}

/// True if a number may have lost digits, such as those of a long id.
fn is_rounded(text: &str, read: &Value) -> bool {
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    read.is_f64() && digits > usize::try_from(f64::DIGITS).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn prov_1_arguments_fit_the_types_of_the_schema() {
        let optional = json!({"anyOf": [{"type": "array", "items": {"type": "string"}},
            {"type": "null"}]});
        for (schema, value, expected) in [
            (json!({"type": "array"}), json!("[\"a\"]"), json!(["a"])),
            (
                json!({"type": "object"}),
                json!("{\"n\":1}"),
                json!({"n": 1}),
            ),
            (json!({"type": "integer"}), json!("5"), json!(5)),
            (json!({"type": "integer"}), json!(5.0), json!(5)),
            (json!({"type": "number"}), json!(" 1.5 "), json!(1.5)),
            (json!({"type": "number"}), json!(5), json!(5)),
            (json!({"type": "boolean"}), json!("true"), json!(true)),
            (json!({"type": "boolean"}), json!("False"), json!(false)),
            (
                json!({"type": "string"}),
                json!({"n": 1}),
                json!("{\"n\":1}"),
            ),
            (json!({"type": "string"}), json!(713), json!("713")),
            (optional.clone(), json!("[\"a\"]"), json!(["a"])),
            (optional.clone(), json!(["5", 5]), json!(["5", "5"])),
            (optional, json!(null), json!(null)),
            (
                json!({"type": "array", "items": {"type": "object",
                    "properties": {"n": {"type": "integer"}}}}),
                json!("[{\"n\": \"5\"}]"),
                json!([{"n": 5}]),
            ),
            // A value stays as it is if it is allowed, or if its meaning is not clear.
            (json!({"type": "string"}), json!(1.1), json!(1.1)),
            (json!({"type": "string"}), json!(["a"]), json!(["a"])),
            (json!({"type": "string"}), json!({}), json!({})),
            (
                json!({"type": "number"}),
                json!("123456789012345678901234"),
                json!("123456789012345678901234"),
            ),
            (json!({"type": "string"}), json!("00713"), json!("00713")),
            (json!({"type": "string"}), json!("[1]"), json!("[1]")),
            (
                json!({"type": ["string", "array"]}),
                json!("[1]"),
                json!("[1]"),
            ),
            (json!({"type": "array"}), json!("a"), json!("a")),
            (json!({"type": "array"}), json!("{}"), json!("{}")),
            (json!({"type": "integer"}), json!("1.5"), json!("1.5")),
            (json!({}), json!("5"), json!("5")),
            (
                json!({"anyOf": [{"type": "array"}, {"$ref": "#/$defs/a"}]}),
                json!("[1]"),
                json!("[1]"),
            ),
            (json!(true), json!("5"), json!("5")),
        ] {
            assert_eq!(
                fitted(value.clone(), &schema, DEPTH_MAX),
                expected,
                "{schema} {value}"
            );
        }
    }

    #[test]
    fn prov_1_null_leaves_an_optional_argument_out() {
        let schema = json!({"type": "object", "required": ["a"], "properties": {
            "a": {"type": "string"}, "b": {"type": "string"},
            "c": {"type": ["string", "null"]}, "d": {}}});
        let input = json!({"a": null, "b": null, "c": null, "d": null, "e": null});
        assert_eq!(
            fitted(input, &schema, DEPTH_MAX),
            json!({"a": null, "c": null, "d": null, "e": null})
        );
        // All of the arguments as one text.
        let input = json!("{\"a\": \"x\"}");
        assert_eq!(fitted(input, &schema, DEPTH_MAX), json!({"a": "x"}));
    }

    #[test]
    fn prov_1_only_offered_tools_have_types() {
        let tool = OfferedTool {
            name: "t".to_owned(),
            description: String::new(),
            parameters: json!({"type": "object", "properties": {"n": {"type": "integer"}}}),
        };
        let types = ArgumentTypes::of(vec![tool], &ToolNames::default());
        assert_eq!(types.fit("t", json!({"n": "5"})), json!({"n": 5}));
        assert_eq!(types.fit("u", json!({"n": "5"})), json!({"n": "5"}));
    }
}
