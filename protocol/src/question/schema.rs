//! Conversion of an MCP elicitation schema to a [`QuestionForm`].
//!
//! MCP allows a flat object of primitive fields. Other schemas, and keywords that could not be
//! enforced, are refused, so that a person never sees an incomplete form.

use serde_json::{Number, Value};

use super::form::{FieldKind, FormChoice, FormField, QuestionForm, TextFormat, is_less};
use crate::JsonObject;
use crate::limits::{
    MAX_NAME_BYTES, MAX_QUESTION_CHOICES, MAX_QUESTION_FIELDS, MAX_QUESTION_SCHEMA_BYTES,
};

/// Reason why a schema cannot be shown as a form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadForm(String);

/// Keywords with the choices of a string.
const CHOICES: [&str; 5] = ["enum", "enumNames", "const", "oneOf", "anyOf"];

/// Keywords that are valid for any field.
const KEYWORDS: [&str; 4] = ["type", "title", "description", "default"];

fn bad(problem: impl Into<String>) -> BadForm {
    BadForm(problem.into())
}

impl QuestionForm {
    /// Converts a flat JSON Schema to a form. Its fields may be strings (with a length, one of the
    /// formats `email`, `uri`, `date` and `date-time`, or a list of choices), numbers, integers,
    /// booleans or arrays of choices.
    ///
    /// # Errors
    ///
    /// [`BadForm`] with the unsupported part and the supported ones.
    pub fn of_schema(schema: &Value) -> Result<Self, BadForm> {
        let bytes = serde_json::to_string(schema).map_or(usize::MAX, |text| text.len());
        if bytes > MAX_QUESTION_SCHEMA_BYTES {
            let most = MAX_QUESTION_SCHEMA_BYTES;
            return Err(bad(format!(
                "the schema has {bytes} bytes; at most {most} are allowed"
            )));
        }
        let schema = object(schema, "the schema")?;
        if schema.get("type").and_then(Value::as_str) != Some("object") {
            return Err(bad("the schema must be of the type `object`"));
        }
        let known = [
            "$schema",
            "type",
            "title",
            "description",
            "properties",
            "required",
        ];
        if let Some(other) = unknown(schema, &known, &["additionalProperties"]) {
            return Err(bad(format!(
                "the schema has `{other}`, which is not supported"
            )));
        }
        let empty = JsonObject::new();
        let properties = match schema.get("properties") {
            Some(properties) => object(properties, "`properties`")?,
            None => &empty,
        };
        if properties.len() > MAX_QUESTION_FIELDS {
            let count = properties.len();
            return Err(bad(format!(
                "the schema has {count} fields; at most {MAX_QUESTION_FIELDS} are allowed"
            )));
        }
        let required = names(schema.get("required"), "`required`")?;
        if let Some(other) = required
            .iter()
            .find(|name| !properties.contains_key(**name))
        {
            let other = shown(other);
            return Err(bad(format!(
                "`required` lists `{other}`, which is not a field"
            )));
        }
        let fields = properties.iter().map(|(name, schema)| {
            let field = field(name, schema, required.contains(&name.as_str()));
            field.map_err(|BadForm(problem)| bad(format!("field `{}`: {problem}", shown(name))))
        });
        Ok(Self(fields.collect::<Result<_, _>>()?))
    }
}

fn field(name: &str, schema: &Value, required: bool) -> Result<FormField, BadForm> {
    let is_name = !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && !name.contains('=')
        && !name.chars().any(char::is_control);
    if !is_name {
        return Err(bad(format!(
            "a name must have 1 to {MAX_NAME_BYTES} bytes, no `=` and no control characters"
        )));
    }
    let schema = object(schema, "its schema")?;
    let takes = kind(schema)?;
    let default = schema.get("default").filter(|value| !value.is_null());
    if let Some(default) = default {
        let checked = takes.check(default);
        checked.map_err(|problem| bad(format!("its `default` {problem}")))?;
    }
    Ok(FormField {
        name: name.to_owned(),
        title: text(schema, "title")?,
        description: text(schema, "description")?,
        required,
        takes,
        default: default.cloned(),
    })
}

fn kind(schema: &JsonObject) -> Result<FieldKind, BadForm> {
    let of_type = schema.get("type").and_then(Value::as_str);
    let has_choices = CHOICES.iter().any(|name| schema.contains_key(*name));
    let (kind, own): (FieldKind, &[&str]) = match of_type {
        Some("string") | None if has_choices => {
            let choices = choices(schema)?;
            (FieldKind::Choice { choices }, &CHOICES)
        }
        Some("array") => (
            several(schema)?,
            &["items", "minItems", "maxItems", "uniqueItems"],
        ),
        Some("string") => (string(schema)?, &["minLength", "maxLength", "format"]),
        Some("number") => {
            let (minimum, maximum) = bounds(schema)?;
            (
                FieldKind::Number { minimum, maximum },
                &["minimum", "maximum"],
            )
        }
        Some("integer") => {
            let (minimum, maximum) = bounds(schema)?;
            (
                FieldKind::Integer { minimum, maximum },
                &["minimum", "maximum"],
            )
        }
        Some("boolean") => (FieldKind::Boolean {}, &[]),
        Some(other) => {
            let other = shown(other);
            return Err(bad(format!(
                "its type is `{other}`; a question can have string, number, integer and boolean \
                 fields, and arrays of choices, without nesting"
            )));
        }
        None => return Err(bad("it has no `type`")),
    };
    match unknown(schema, &KEYWORDS, own) {
        Some(other) => Err(bad(format!("it has `{other}`, which is not supported"))),
        None => Ok(kind),
    }
}

fn count(schema: &JsonObject, name: &str) -> Result<Option<u64>, BadForm> {
    match schema.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64() {
            Some(count) => Ok(Some(count)),
            None => Err(bad(format!("its `{name}` is not a valid length"))),
        },
    }
}

/// A field with any of several choices.
fn several(schema: &JsonObject) -> Result<FieldKind, BadForm> {
    let Some(items) = schema.get("items") else {
        return Err(bad("it is an array without `items`"));
    };
    let items = object(items, "its `items`")?;
    let of_type = items.get("type").and_then(Value::as_str);
    let has_choices = CHOICES.iter().any(|name| items.contains_key(*name));
    if !has_choices || !matches!(of_type, None | Some("string")) {
        return Err(bad(
            "it is an array; its `items` must be strings with choices in `enum` or `anyOf`",
        ));
    }
    if let Some(other) = unknown(items, &["type", "title", "description"], &CHOICES) {
        return Err(bad(format!(
            "its `items` have `{other}`, which is not supported"
        )));
    }
    let choices = choices(items)?;
    let (min_items, max_items) = (count(schema, "minItems")?, count(schema, "maxItems")?);
    let least = min_items.unwrap_or(0);
    if least > max_items.unwrap_or(u64::MAX).min(choices.len() as u64) {
        return Err(bad("no list of its choices has `minItems` items"));
    }
    Ok(FieldKind::Choices {
        choices,
        min_items,
        max_items,
    })
}

fn string(schema: &JsonObject) -> Result<FieldKind, BadForm> {
    let (min_length, max_length) = (count(schema, "minLength")?, count(schema, "maxLength")?);
    if min_length
        .zip(max_length)
        .is_some_and(|(least, most)| least > most)
    {
        return Err(bad("its `minLength` is larger than its `maxLength`"));
    }
    let format = match schema.get("format") {
        None | Some(Value::Null) => None,
        Some(value) => {
            let known = serde_json::from_value(value.clone());
            let known: TextFormat = known.map_err(|_| {
                bad(format!(
                    "its format is {}; a question can have email, uri, date and date-time. \
                     Questions must not request secrets: pass them to the server in its \
                     configuration",
                    shown(&value.to_string())
                ))
            })?;
            Some(known)
        }
    };
    Ok(FieldKind::String {
        min_length,
        max_length,
        format,
    })
}

fn choices(schema: &JsonObject) -> Result<Vec<FormChoice>, BadForm> {
    let titled = [schema.get("oneOf"), schema.get("anyOf")];
    let only = schema
        .get("const")
        .map(|only| Value::from(vec![only.clone()]));
    let values = schema.get("enum").or(only.as_ref());
    let choices: Vec<FormChoice> = match (values, titled) {
        (Some(values), [None, None]) => {
            let values = names(Some(values), "`enum`")?;
            let titles = names(schema.get("enumNames"), "`enumNames`")?;
            if !titles.is_empty() && titles.len() != values.len() {
                return Err(bad("`enumNames` must have as many texts as `enum`"));
            }
            let titles = titles.into_iter().map(|title| Some(title.to_owned()));
            let titles = titles.chain(std::iter::repeat(None));
            let choices = values.into_iter().zip(titles);
            choices
                .map(|(value, title)| FormChoice {
                    value: value.to_owned(),
                    title,
                })
                .collect()
        }
        (None, [Some(Value::Array(options)), None] | [None, Some(Value::Array(options))]) => {
            let choices = options.iter().map(|option| {
                let option = object(option, "a titled choice")?;
                let value = text(option, "const")?.ok_or_else(|| bad("a choice has no `const`"))?;
                let title = text(option, "title")?;
                match unknown(option, &["const", "title", "type", "description"], &[]) {
                    Some(other) => Err(bad(format!(
                        "a choice has `{other}`, which is not supported"
                    ))),
                    None => Ok(FormChoice { value, title }),
                }
            });
            choices.collect::<Result<_, _>>()?
        }
        _ => {
            return Err(bad(
                "its choices are either in `enum`, or in the list `oneOf` or `anyOf`",
            ));
        }
    };
    if choices.is_empty() || choices.len() > MAX_QUESTION_CHOICES {
        return Err(bad(format!(
            "it must have 1 to {MAX_QUESTION_CHOICES} choices"
        )));
    }
    Ok(choices)
}

fn bounds(schema: &JsonObject) -> Result<(Option<Number>, Option<Number>), BadForm> {
    let bound = |name: &str| match schema.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Number(number)) => Ok(Some(number.clone())),
        Some(_) => Err(bad(format!("its `{name}` is not a number"))),
    };
    let (minimum, maximum) = (bound("minimum")?, bound("maximum")?);
    let is_empty = minimum.as_ref().zip(maximum.as_ref());
    if is_empty.is_some_and(|(least, most)| is_less(most, least)) {
        return Err(bad("no number is within its bounds"));
    }
    Ok((minimum, maximum))
}

fn object<'v>(value: &'v Value, what: &str) -> Result<&'v JsonObject, BadForm> {
    let object = value.as_object();
    object.ok_or_else(|| bad(format!("{what} must be an object")))
}

fn text(object: &JsonObject, name: &str) -> Result<Option<String>, BadForm> {
    match object.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(bad(format!("its `{name}` is not text"))),
    }
}

fn names<'v>(value: Option<&'v Value>, what: &str) -> Result<Vec<&'v str>, BadForm> {
    let not_a_list = || bad(format!("{what} must be a list of texts"));
    match value {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) => {
            let texts = items.iter().map(Value::as_str);
            texts.collect::<Option<_>>().ok_or_else(not_a_list)
        }
        Some(_) => Err(not_a_list()),
    }
}

/// The first name that is in neither list, shortened for display.
fn unknown(object: &JsonObject, known: &[&str], also: &[&str]) -> Option<String> {
    let is_known = |name: &str| known.contains(&name) || also.contains(&name);
    let other = object.keys().find(|name| !is_known(name))?;
    Some(shown(other))
}

/// An externally chosen name, on one short line.
fn shown(name: &str) -> String {
    crate::observe::detail_of(name).chars().take(60).collect()
}
