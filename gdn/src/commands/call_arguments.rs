//! Changed arguments of a tool call that waits for approval.

use std::fs;
use std::io::{self, BufRead as _, Write as _};
use std::process::Command;

use goondan_config::check_arguments;
use goondan_protocol::control::ApprovalDetail;
use serde_json::Value;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

/// Parses `NAME=VALUE`; the value may contain `=`.
pub(super) fn parse_assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.to_owned()))
        }
        _ => Err("expected NAME=VALUE, such as command=ls".to_owned()),
    }
}

/// Names of the JSON types that a schema allows for an argument; empty if it does not say.
fn types_of<'s>(schema: Option<&'s Value>, name: &str) -> Vec<&'s str> {
    let property = schema.and_then(|schema| schema.get("properties")?.get(name));
    match property.and_then(|property| property.get("type")) {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// Returns the arguments after one assignment. The value stays text where the tool takes text or the
/// call has text; other values are JSON.
pub(super) fn set(
    input: &Value,
    schema: Option<&Value>,
    (name, text): &(String, String),
) -> Result<Value, String> {
    let mut changed = match input {
        Value::Object(arguments) => arguments.clone(),
        _ => return Err("the arguments of this call are not an object".to_owned()),
    };
    let types = types_of(schema, name);
    let is_text = match types.is_empty() {
        true => changed.get(name).is_some_and(Value::is_string),
        false => types.contains(&"string"),
    };
    let value = match serde_json::from_str(text) {
        _ if is_text => Value::String(text.clone()),
        Ok(value) => value,
        Err(_) if types.is_empty() => Value::String(text.clone()),
        Err(_) => {
            let types = types.join(" or ");
            return Err(format!("`{name}` takes JSON of the type {types}"));
        }
    };
    changed.insert(name.clone(), value);
    Ok(Value::Object(changed))
}

/// Checks changed arguments as the daemon does.
pub(super) fn check(input: &Value, schema: Option<&Value>) -> Result<(), String> {
    schema.map_or(Ok(()), |schema| check_arguments(schema, input))
}

/// Sets several arguments and checks the result.
///
/// # Errors
///
/// A usage failure that names the faulty argument.
pub(super) fn set_all(
    detail: &ApprovalDetail,
    assignments: &[(String, String)],
) -> Result<Value, Failure> {
    let schema = detail.schema.as_ref();
    let mut input = detail.input.clone();
    let changed: Result<(), String> = assignments.iter().try_for_each(|assignment| {
        input = set(&input, schema, assignment)?;
        Ok(())
    });
    let checked = changed.and_then(|()| check(&input, schema));
    checked.map_err(|problem| {
        let tool = &detail.approval.tool_name;
        Failure::new(
            Exit::Usage,
            format!("the arguments do not fit tool `{tool}`: {problem}"),
            "the call still waits; set arguments that fit",
        )
    })?;
    Ok(input)
}

/// The user's editor: `$VISUAL`, else `$EDITOR`; none if neither is set.
pub(super) fn editor() -> Option<String> {
    let named = |name| std::env::var(name).ok();
    let mut editors = ["VISUAL", "EDITOR"].into_iter().filter_map(named);
    editors.find(|editor| !editor.trim().is_empty())
}

/// Opens the arguments in the user's editor, again until they fit. None if the user cancels, or changes
/// nothing.
pub(super) fn edit(
    editor: &str,
    detail: &ApprovalDetail,
    context: &Context,
) -> Result<Option<Value>, Failure> {
    let output = context.output;
    let failed = |what: &str, error: &io::Error| {
        Failure::new(
            Exit::Internal,
            format!("failed to {what}"),
            "set single arguments instead: `gdn inbox approve ID --set NAME=VALUE`",
        )
        .caused_by(Some(error))
    };
    // Only the user may read the arguments.
    let file = tempfile::Builder::new()
        .prefix("goondan-call-")
        .suffix(".json")
        .tempfile();
    let mut file = file.map_err(|error| failed("create a temporary file", &error))?;
    let before = serde_json::to_string_pretty(&detail.input).unwrap_or_default();
    writeln!(file, "{before}").map_err(|error| failed("write a temporary file", &error))?;
    loop {
        // As in git, an editor can have options.
        let status = Command::new("sh")
            .arg("-c")
            .arg(format!("{editor} \"$@\""))
            .arg(editor)
            .arg(file.path())
            .status()
            .map_err(|error| failed("start the editor", &error))?;
        let text = fs::read_to_string(file.path())
            .map_err(|error| failed("read the edited arguments", &error))?;
        if !status.success() || text.trim().is_empty() || text.trim() == before {
            return Ok(None);
        }
        let problem = match serde_json::from_str::<Value>(&text) {
            Ok(input) if input == detail.input => return Ok(None),
            Ok(input) => match check(&input, detail.schema.as_ref()) {
                Ok(()) => return Ok(Some(input)),
                Err(problem) => problem,
            },
            Err(error) => format!("it is not valid JSON: {error}"),
        };
        output.note(format!("The arguments do not fit: {problem}"));
        output.prompt("Enter: edit again; n: cancel: ");
        let mut answer = String::new();
        let read = io::stdin().lock().read_line(&mut answer)?;
        if read == 0 || answer.trim().to_lowercase().starts_with('n') {
            return Ok(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn steer_3_one_argument_is_set_as_the_tool_takes_it() {
        let schema = json!({
            "type": "object",
            "properties": {
                "command": {"type": "string"},
                "timeoutMs": {"type": ["integer", "null"]},
                "files": {"type": "array"},
            },
        });
        let input = json!({"command": "make release", "other": "x"});
        let changed = |text: &str| {
            let assignment = parse_assignment(text)?;
            let changed = set(&input, Some(&schema), &assignment)?;
            check(&changed, Some(&schema)).map(|()| changed)
        };
        let of = |text: &str, name: &str| changed(text).unwrap()[name].clone();
        assert_eq!(of("command=a=b", "command"), "a=b");
        assert_eq!(of("command=5", "command"), "5");
        assert_eq!(of("timeoutMs=5", "timeoutMs"), 5);
        assert_eq!(of("timeoutMs=null", "timeoutMs"), Value::Null);
        assert_eq!(of("files=[\"a\"]", "files"), json!(["a"]));
        // Without a type, text stays text.
        assert_eq!(of("other=7", "other"), "7");
        assert_eq!(of("new=7", "new"), 7);
        assert_eq!(of("new=seven", "new"), "seven");
        assert_eq!(of("command=ls", "other"), "x");
        for (text, problem) in [
            ("command", "expected NAME=VALUE"),
            ("=x", "expected NAME=VALUE"),
            ("timeoutMs=soon", "takes JSON of the type integer or null"),
            ("timeoutMs=[]", "at `/timeoutMs`"),
        ] {
            let found = changed(text).unwrap_err();
            assert!(found.contains(problem), "{text}: {found}");
        }
    }
}
