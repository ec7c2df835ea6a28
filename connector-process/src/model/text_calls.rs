//! Tool calls in the text of a reply (pure).
//!
//! A server without a parser for the calls of its model sends them as the model wrote them. A text
//! can also show an example of a call. Calls therefore count only at the end of the text, at the
//! start of a line, outside of code, and with names of offered tools.

use serde_json::{Map, Value};

use super::thought_tags::FENCE;

/// Marks at the start of a call.
const BLOCK: (&str, &str) = ("<tool_call>", "</tool_call>");
const LIST: &str = "[TOOL_CALLS]";
const LIST_ARGUMENTS: &str = "[ARGS]";
const PYTHON_TAG: &str = "<|python_tag|>";

/// Parts of a call that is not JSON.
const FUNCTION: (&str, &str) = ("<function=", "</function>");
const PARAMETER: (&str, &str) = ("<parameter=", "</parameter>");

/// A call: the tool, and its arguments.
type TextCall = (String, Value);

/// The text before the calls, and the calls; `None` for a text without calls.
pub(super) fn split(
    text: &str,
    is_offered: impl Fn(&str) -> bool,
) -> Option<(&str, Vec<TextCall>)> {
    let (before, mut rest) = text.trim_end().split_at_checked(start_of_calls(text)?)?;
    let mut calls = Vec::new();
    while !rest.is_empty() {
        let (found, behind) = next_calls(rest)?;
        calls.extend(found);
        rest = behind.trim_start();
    }
    let is_complete = !calls.is_empty() && calls.iter().all(|(name, _)| is_offered(name));
    is_complete.then(|| (before.trim_end(), calls))
}

/// The first place of a mark at the start of a line, outside of code.
fn start_of_calls(text: &str) -> Option<usize> {
    let (mut at, mut is_in_code) = (0, false);
    for line in text.split_inclusive('\n') {
        let content = line.trim_start();
        let begins_with = |mark: &str| content.starts_with(mark);
        if begins_with(FENCE) {
            is_in_code = !is_in_code;
        } else if !is_in_code && [BLOCK.0, LIST, PYTHON_TAG].into_iter().any(begins_with) {
            return Some(at + line.len() - content.len());
        }
        at += line.len();
    }
    None
}

/// The calls of the next mark, and the text behind them.
fn next_calls(text: &str) -> Option<(Vec<TextCall>, &str)> {
    if let Some(rest) = text.strip_prefix(BLOCK.0) {
        // Some models leave out the end of the last call.
        let (inner, behind) = rest.split_once(BLOCK.1).unwrap_or((rest, ""));
        let inner = inner.trim();
        let call = match inner.strip_prefix(FUNCTION.0) {
            Some(function) => call_of_function(function)?,
            None => call_of_json(serde_json::from_str(inner).ok()?)?,
        };
        return Some((vec![call], behind));
    }
    if let Some(rest) = text.strip_prefix(PYTHON_TAG) {
        let call = call_of_json(serde_json::from_str(rest.trim()).ok()?)?;
        return Some((vec![call], ""));
    }
    let rest = text.strip_prefix(LIST)?;
    if let Some((name, arguments)) = rest.split_once(LIST_ARGUMENTS) {
        let (arguments, behind) = match start_of_next(arguments) {
            Some(at) => arguments.split_at_checked(at)?,
            None => (arguments, ""),
        };
        let arguments = serde_json::from_str(arguments.trim()).ok()?;
        return Some((vec![(name.trim().to_owned(), arguments)], behind));
    }
    let calls: Vec<Value> = serde_json::from_str(rest.trim()).ok()?;
    let calls: Option<Vec<TextCall>> = calls.into_iter().map(call_of_json).collect();
    Some((calls?, ""))
}

fn start_of_next(text: &str) -> Option<usize> {
    text.find(LIST)
}

/// A call as an object with its name and its arguments.
fn call_of_json(call: Value) -> Option<TextCall> {
    let Value::Object(mut fields) = call else {
        return None;
    };
    let name = fields.get("name")?.as_str()?.to_owned();
    let arguments = fields
        .remove("arguments")
        .or_else(|| fields.remove("parameters"))
        .unwrap_or_else(|| Value::Object(Map::new()));
    Some((name, arguments))
}

/// A call as `NAME>`, parameters, and `</function>`. Their values are texts.
fn call_of_function(text: &str) -> Option<TextCall> {
    let (name, body) = text.split_once('>')?;
    let (body, behind) = body.split_once(FUNCTION.1)?;
    if !behind.trim().is_empty() {
        return None;
    }
    let mut arguments = Map::new();
    let mut rest = body.trim();
    while !rest.is_empty() {
        let (key, value) = rest.strip_prefix(PARAMETER.0)?.split_once('>')?;
        let (value, behind) = value.split_once(PARAMETER.1)?;
        // The template puts the value on lines of its own.
        let value = value.strip_prefix('\n').unwrap_or(value);
        let value = value.strip_suffix('\n').unwrap_or(value);
        arguments.insert(key.trim().to_owned(), value.into());
        rest = behind.trim_start();
    }
    Some((name.trim().to_owned(), Value::Object(arguments)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(text: &str) -> Option<(String, Value)> {
        let (before, calls) = split(text, |name| matches!(name, "read" | "list"))?;
        let calls = calls.into_iter();
        let calls = calls.map(|(name, input)| json!([name, input]));
        Some((before.to_owned(), calls.collect()))
    }

    #[test]
    fn prov_1_calls_that_are_text_are_calls() {
        let read = json!([["read", {"path": "a"}]]);
        let both = json!([["read", {"path": "a"}], ["list", {}]]);
        let json_call = r#"{"name": "read", "arguments": {"path": "a"}}"#;
        let json_list = r#"{"name": "list", "parameters": {}}"#;
        let block = |call: &str| format!("<tool_call>\n{call}\n</tool_call>");
        let function = "<function=read>\n<parameter=path>\na\n</parameter>\n</function>";
        for (text, before, calls) in [
            (block(json_call), "", &read),
            (
                format!("I look.\n\n{}\n", block(json_call)),
                "I look.",
                &read,
            ),
            (
                format!("{}\n{}", block(json_call), block(json_list)),
                "",
                &both,
            ),
            (format!("<tool_call>{json_call}"), "", &read),
            (
                format!("```\n<tool_call>{json_list}\n```\n{}", block(json_call)),
                format!("```\n<tool_call>{json_list}\n```").as_str(),
                &read,
            ),
            (block(function), "", &read),
            (format!("[TOOL_CALLS][{json_call}, {json_list}]"), "", &both),
            (
                "[TOOL_CALLS]read[ARGS]{\"path\": \"a\"}[TOOL_CALLS]list[ARGS]{}".to_owned(),
                "",
                &both,
            ),
            (format!("<|python_tag|>{json_call}"), "", &read),
        ] {
            let expected = Some((before.to_owned(), calls.clone()));
            assert_eq!(found(&text), expected, "{text}");
        }
        let lines = block("<function=read>\n<parameter=path>\na\n\n</parameter>\n</function>");
        assert_eq!(found(&lines).unwrap().1, json!([["read", {"path": "a\n"}]]));
    }

    #[test]
    fn prov_1_a_text_about_calls_is_no_call() {
        let call = r#"{"name": "read", "arguments": {}}"#;
        for text in [
            "hello".to_owned(),
            String::new(),
            call.to_owned(),
            format!("Write <tool_call>{call}</tool_call>."),
            format!("Write <tool_call>{call}</tool_call>"),
            format!("<tool_call>{call}</tool_call>\nThis reads."),
            format!("```\n<tool_call>{call}</tool_call>\n```"),
            format!("Without an end:\n```\n<tool_call>{call}</tool_call>"),
            r#"<tool_call>{"name": "delete", "arguments": {}}</tool_call>"#.to_owned(),
            "<tool_call>read a</tool_call>".to_owned(),
            "<tool_call></tool_call>".to_owned(),
            "<tool_call>".to_owned(),
            "[TOOL_CALLS][]".to_owned(),
            "<tool_call><function=read><parameter=path>a</function></tool_call>".to_owned(),
        ] {
            assert_eq!(found(&text), None, "{text}");
        }
    }
}
