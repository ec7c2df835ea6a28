//! `text-transform`: `replace`, `slice`, `split`, `join`, `trim` and `case`.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{ExportSpec, invalid, pure};
use crate::tools::export::Export;
use crate::tools::fault::ToolFault;
use crate::tools::invocation::ToolInvocation;

pub(super) fn exports() -> Vec<Export> {
    let text = || json!({"type": "string"});
    let of = |name, description, properties, required, work| {
        let told = ExportSpec {
            name,
            description,
            properties,
            required,
            is_idempotent: true,
        };
        pure(told, work)
    };
    vec![
        of(
            "replace",
            "Replaces the first occurrence of a text, or all.",
            json!({
                "text": text(), "search": text(), "replacement": text(), "all": {"type": "boolean"},
            }),
            &["text", "search"],
            replace,
        ),
        of(
            "slice",
            "Returns a part of a text.",
            json!({"text": text(), "start": {"type": "number"}, "end": {"type": "number"}}),
            &["text"],
            slice,
        ),
        of(
            "split",
            "Splits a text at a delimiter.",
            json!({"text": text(), "delimiter": text(), "maxParts": {"type": "number"}}),
            &["text"],
            split,
        ),
        of(
            "join",
            "Joins texts, numbers and truth values with a delimiter.",
            json!({
                "parts": {"type": "array", "items": {"type": ["string", "number", "boolean"]}},
                "delimiter": text(),
            }),
            &["parts"],
            join,
        ),
        of(
            "trim",
            "Trims white space at the ends of a text.",
            json!({"text": text(), "mode": {"enum": ["start", "end", "both"]}}),
            &["text"],
            trim,
        ),
        of(
            "case",
            "Writes a text in upper or lower case.",
            json!({"text": text(), "to": {"enum": ["upper", "lower"]}}),
            &["text", "to"],
            case,
        ),
    ]
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Args {
    #[serde(default)]
    text: String,
    #[serde(default)]
    search: String,
    #[serde(default)]
    replacement: String,
    #[serde(default)]
    all: bool,
    #[serde(default)]
    start: Option<f64>,
    #[serde(default)]
    end: Option<f64>,
    #[serde(default)]
    delimiter: Option<String>,
    #[serde(default)]
    max_parts: Option<f64>,
    #[serde(default)]
    parts: Vec<Value>,
    #[serde(default)]
    mode: Option<String>,
    #[serde(default)]
    to: String,
}

fn replace(call: &ToolInvocation) -> Result<Value, ToolFault> {
    let args: Args = call.args()?;
    if args.search.is_empty() {
        return Err(invalid("`search` must not be empty"));
    }
    let found = args.text.matches(&args.search).count();
    let (result, replacements) = match args.all {
        true => (args.text.replace(&args.search, &args.replacement), found),
        false => (
            args.text.replacen(&args.search, &args.replacement, 1),
            found.min(1),
        ),
    };
    Ok(json!({"original": args.text, "result": result, "replacements": replacements}))
}

/// Clamps an index to a text of `len` characters; a negative index counts from the end.
fn place(written: f64, len: usize) -> usize {
    let whole = format!("{:.0}", written.trunc());
    let whole: i64 = whole.parse().unwrap_or(0);
    let len = i64::try_from(len).unwrap_or(i64::MAX);
    let from_start = if whole < 0 {
        whole.saturating_add(len)
    } else {
        whole
    };
    usize::try_from(from_start.clamp(0, len)).unwrap_or(0)
}

fn slice(call: &ToolInvocation) -> Result<Value, ToolFault> {
    let args: Args = call.args()?;
    let len = args.text.chars().count();
    let start = place(args.start.unwrap_or(0.0), len);
    let end = args.end.map_or(len, |end| place(end, len));
    let result: String = args
        .text
        .chars()
        .skip(start)
        .take(end.saturating_sub(start))
        .collect();
    let length = result.chars().count();
    Ok(json!({
        "original": args.text, "result": result, "start": start, "end": end, "length": length,
    }))
}

fn split(call: &ToolInvocation) -> Result<Value, ToolFault> {
    let args: Args = call.args()?;
    let delimiter = args.delimiter.unwrap_or_else(|| "\n".to_owned());
    let mut parts: Vec<String> = match delimiter.as_str() {
        "" => args.text.chars().map(String::from).collect(),
        delimiter => args.text.split(delimiter).map(str::to_owned).collect(),
    };
    if let Some(most) = args.max_parts {
        parts.truncate(place(most, parts.len()));
    }
    Ok(json!({"delimiter": delimiter, "count": parts.len(), "parts": parts}))
}

fn join(call: &ToolInvocation) -> Result<Value, ToolFault> {
    let args: Args = call.args()?;
    let delimiter = args.delimiter.unwrap_or_else(|| "\n".to_owned());
    let parts = args.parts.iter().map(|part| match part {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    });
    let result = parts.collect::<Vec<_>>().join(&delimiter);
    Ok(json!({"delimiter": delimiter, "count": args.parts.len(), "result": result}))
}

fn trim(call: &ToolInvocation) -> Result<Value, ToolFault> {
    let args: Args = call.args()?;
    let mode = args.mode.unwrap_or_else(|| "both".to_owned());
    let result = match mode.as_str() {
        "start" => args.text.trim_start(),
        "end" => args.text.trim_end(),
        _ => args.text.trim(),
    };
    let trimmed = args.text.chars().count() - result.chars().count();
    Ok(json!({"original": args.text, "result": result, "mode": mode, "trimmedLength": trimmed}))
}

fn case(call: &ToolInvocation) -> Result<Value, ToolFault> {
    let args: Args = call.args()?;
    let result = match args.to.as_str() {
        "upper" => args.text.to_uppercase(),
        _ => args.text.to_lowercase(),
    };
    Ok(json!({"original": args.text, "result": result, "to": args.to}))
}
