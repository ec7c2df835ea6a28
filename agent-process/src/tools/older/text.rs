//! `text-transform`: `replace`, `slice`, `split`, `join`, `trim` and `case`.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::javascript::{self, is_space, json_text, number, primitive_text, units};
use super::{ExportSpec, invalid, pure};
use crate::tools::export::Export;
use crate::tools::fault::ToolFault;
use crate::tools::invocation::ToolInvocation;

/// Returns the result as JSON text, because a part of a text can end within a surrogate pair, which
/// no JSON value of Rust can hold.
type TextFunction = fn(&ToolInvocation) -> Result<String, ToolFault>;

pub(super) fn exports() -> Vec<Export> {
    let text = || json!({"type": "string"});
    let of = |name, description, properties, required, work: TextFunction| {
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

fn args_of(call: &ToolInvocation) -> Result<Args, ToolFault> {
    let args: Args = call.args()?;
    if args.text.is_empty() {
        return Err(invalid("`text` must not be empty"));
    }
    Ok(args)
}

fn part(units: &[u16]) -> Result<Box<RawValue>, ToolFault> {
    json_text(units).map_err(|error| ToolFault::new("E_TOOL_FAILED", error.to_string()))
}

fn replace(call: &ToolInvocation) -> Result<String, ToolFault> {
    let args = args_of(call)?;
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
    let told = json!({"original": args.text, "result": result, "replacements": replacements});
    Ok(told.to_string())
}

fn slice(call: &ToolInvocation) -> Result<String, ToolFault> {
    let args = args_of(call)?;
    let units = units(&args.text);
    let start = args.start.unwrap_or(0.0);
    let sliced = javascript::slice(&units, start, args.end);
    // The positions are reported as they were given.
    let end = args.end.map_or_else(|| json!(units.len()), number);
    let told =
        json!({"original": args.text, "start": number(start), "end": end, "length": sliced.len()});
    with_parts(&told, "result", part(sliced)?.get())
}

/// Adds a field to an object, in JSON.
fn with_parts(object: &Value, name: &str, json: &str) -> Result<String, ToolFault> {
    let object = object.to_string();
    let rest = object
        .strip_suffix('}')
        .ok_or_else(|| ToolFault::new("E_TOOL_FAILED", "the result is not an object"))?;
    Ok(format!("{rest},\"{name}\":{json}}}"))
}

/// Number of parts of a limit, which JavaScript takes as an unsigned 32-bit integer.
fn limit_of(written: f64) -> usize {
    let limit = javascript::integer(written).rem_euclid(1 << 32);
    usize::try_from(limit).unwrap_or(usize::MAX)
}

fn split(call: &ToolInvocation) -> Result<String, ToolFault> {
    let args = args_of(call)?;
    let delimiter = args.delimiter.unwrap_or_else(|| "\n".to_owned());
    let units = units(&args.text);
    let limit = args.max_parts.map_or(usize::MAX, limit_of);
    let parts: Vec<String> = match delimiter.as_str() {
        "" => {
            let parts = units.chunks(1).take(limit).map(part);
            let parts: Result<Vec<Box<RawValue>>, ToolFault> = parts.collect();
            parts?.iter().map(|part| part.get().to_owned()).collect()
        }
        delimiter => {
            let parts = args.text.split(delimiter).take(limit);
            parts.map(|part| json!(part).to_string()).collect()
        }
    };
    let told = json!({"delimiter": delimiter, "count": parts.len()});
    with_parts(&told, "parts", &format!("[{}]", parts.join(",")))
}

fn join(call: &ToolInvocation) -> Result<String, ToolFault> {
    let args: Args = call.args()?;
    let delimiter = args.delimiter.unwrap_or_else(|| "\n".to_owned());
    let parts: Option<Vec<String>> = args.parts.iter().map(primitive_text).collect();
    let parts =
        parts.ok_or_else(|| invalid("`parts` must hold texts, numbers and truth values"))?;
    let result = parts.join(&delimiter);
    let told = json!({"delimiter": delimiter, "count": parts.len(), "result": result});
    Ok(told.to_string())
}

fn trim(call: &ToolInvocation) -> Result<String, ToolFault> {
    let args = args_of(call)?;
    let mode = args.mode.unwrap_or_else(|| "both".to_owned());
    let result = match mode.as_str() {
        "start" => args.text.trim_start_matches(is_space),
        "end" => args.text.trim_end_matches(is_space),
        _ => args.text.trim_matches(is_space),
    };
    // White space is one code unit a character.
    let trimmed = javascript::length(&args.text) - javascript::length(result);
    let told = json!({
        "original": args.text, "result": result, "mode": mode, "trimmedLength": trimmed,
    });
    Ok(told.to_string())
}

fn case(call: &ToolInvocation) -> Result<String, ToolFault> {
    let args = args_of(call)?;
    let result = match args.to.as_str() {
        "upper" => args.text.to_uppercase(),
        _ => args.text.to_lowercase(),
    };
    Ok(json!({"original": args.text, "result": result, "to": args.to}).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(work: TextFunction, args: Value) -> Result<String, ToolFault> {
        work(&ToolInvocation {
            call_id: "c".to_owned(),
            args,
            span: tracing::Span::none(),
            site: None,
        })
    }

    // The expected values of these tables are those of Node 20.

    #[test]
    fn compat_2_texts_are_measured_in_utf16_code_units() {
        let cases: [(TextFunction, Value, &str); 12] = [
            (
                slice,
                json!({"text": "a😀b", "start": 0, "end": 2}),
                r#"{"original":"a😀b","start":0,"end":2,"length":2,"result":"a\ud83d"}"#,
            ),
            (
                slice,
                json!({"text": "a😀b", "start": -3, "end": -1}),
                r#"{"original":"a😀b","start":-3,"end":-1,"length":2,"result":"😀"}"#,
            ),
            (
                slice,
                json!({"text": "a😀b"}),
                r#"{"original":"a😀b","start":0,"end":4,"length":4,"result":"a😀b"}"#,
            ),
            (
                split,
                json!({"text": "😀x", "delimiter": ""}),
                r#"{"delimiter":"","count":3,"parts":["\ud83d","\ude00","x"]}"#,
            ),
            (
                split,
                json!({"text": "a,b,c", "delimiter": ",", "maxParts": -1}),
                r#"{"delimiter":",","count":3,"parts":["a","b","c"]}"#,
            ),
            (
                split,
                json!({"text": "a,b,c", "delimiter": ",", "maxParts": 1.9}),
                r#"{"delimiter":",","count":1,"parts":["a"]}"#,
            ),
            (
                split,
                json!({"text": "a,b", "delimiter": ",", "maxParts": 0}),
                r#"{"delimiter":",","count":0,"parts":[]}"#,
            ),
            (
                replace,
                json!({"text": "a.a", "search": "a", "replacement": "$&$1", "all": true}),
                r#"{"original":"a.a","result":"$&$1.$&$1","replacements":2}"#,
            ),
            (
                join,
                json!({"parts": ["a", 1.0, 1e21, 0.5, false], "delimiter": "-"}),
                r#"{"delimiter":"-","count":5,"result":"a-1-1e+21-0.5-false"}"#,
            ),
            (
                join,
                json!({"parts": []}),
                r#"{"delimiter":"\n","count":0,"result":""}"#,
            ),
            (
                trim,
                json!({"text": "\u{feff}\u{85} x \u{a0}"}),
                "{\"original\":\"\u{feff}\u{85} x \u{a0}\",\"result\":\"\u{85} x\",\"mode\":\"both\",\"trimmedLength\":3}",
            ),
            (
                case,
                json!({"text": "ΑΣ ß", "to": "lower"}),
                r#"{"original":"ΑΣ ß","result":"ας ß","to":"lower"}"#,
            ),
        ];
        for (work, args, expected) in cases {
            assert_eq!(outcome(work, args.clone()).unwrap(), expected, "{args}");
        }
    }

    #[test]
    fn compat_2_empty_texts_and_other_parts_are_refused() {
        let cases: [(TextFunction, Value); 5] = [
            (slice, json!({"text": ""})),
            (trim, json!({"text": ""})),
            (case, json!({"text": "", "to": "upper"})),
            (replace, json!({"text": "a", "search": ""})),
            (join, json!({"parts": [null]})),
        ];
        for (work, args) in cases {
            let fault = outcome(work, args.clone()).unwrap_err();
            assert_eq!(fault.code, "E_TOOL_INVALID_ARGS", "{args}");
        }
    }
}
