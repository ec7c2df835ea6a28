//! The tool `json-query`: queries JSON documents with `JMESPath` or JSON Pointer.
//!
//! The length of a query, its work ([`evaluate`]) and its result are bounded.

mod evaluate;

use std::io::{self, Read as _};

use jmespath::{Rcvar, Variable};
use serde::Deserialize;
use serde_json::{Value, json};

use self::evaluate::{MAX_QUERY_CHARS, QueryError};

use super::export::{Export, ExportHandler, Output, blocking};
use super::fault::ToolFault;
use super::invocation::ToolInvocation;
use super::places::ToolRoots;
use super::places::{Access, locate};
use super::readable_file::{MAX_FILE_BYTES, io_fault, open_file};

/// Stack of the thread that runs a query, in bytes. Parser and interpreter recurse as deep as the
/// query nests, which may be one level per character. Only the used part takes memory.
const QUERY_STACK_BYTES: usize = 32 * 1024 * 1024;
/// Longest document passed in the call itself, in characters.
const MAX_JSON_CHARS: usize = 1_048_576;

/// Longest result, in bytes.
const MAX_RESULT_BYTES: usize = 16 * 1024 * 1024;

pub(crate) fn exports() -> Vec<Export> {
    let parameters = |language: &str, about: &str| {
        let mut parameters = json!({
            "type": "object",
            "required": [language],
            "additionalProperties": false,
            "properties": {
                language: {"type": "string", "maxLength": MAX_QUERY_CHARS, "description": about},
                "path": {
                    "type": "string", "minLength": 1, "maxLength": 4096,
                    "description": "A JSON file of the work directory or the project",
                },
                "json": {
                    "type": "string", "maxLength": MAX_JSON_CHARS,
                    "description": "The JSON document itself, instead of `path`",
                },
            },
        });
        let one_of = json!([{"required": ["path"]}, {"required": ["json"]}]);
        if let Some(parameters) = parameters.as_object_mut() {
            parameters.insert("oneOf".to_owned(), one_of);
        }
        parameters
    };
    vec![
        Export {
            name: "query".into(),
            description: "Queries a JSON document with JMESPath, for example `items[?price > `10`].name | sort(@)`. Returns JSON.".into(),
            parameters: parameters("query", "A JMESPath expression"),
            is_idempotent: true,
            output: Output::MayBeLong,
            run: beside(|places, call| with_deep_stack(|| query(places, call))),
        },
        Export {
            name: "pointer".into(),
            description: "Returns the part of a JSON document that a JSON Pointer names, for example `/items/0/name`. Returns JSON.".into(),
            parameters: parameters("pointer", "A JSON Pointer (RFC 6901)"),
            is_idempotent: true,
            output: Output::MayBeLong,
            run: beside(pointer),
        },
    ]
}

fn beside(work: fn(&ToolRoots, &ToolInvocation) -> Result<String, ToolFault>) -> ExportHandler {
    Box::new(move |places, call| Box::pin(blocking(move || work(&places, &call))))
}

fn with_deep_stack<T: Send>(
    work: impl FnOnce() -> Result<T, ToolFault> + Send,
) -> Result<T, ToolFault> {
    let failed = |why: &str| ToolFault::new("E_TOOL_FAILED", format!("the query {why}"));
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(QUERY_STACK_BYTES);
        let running = thread
            .spawn_scoped(scope, work)
            .map_err(|error| failed(&format!("could not be started: {error}")))?;
        running.join().unwrap_or_else(|_| Err(failed("failed")))
    })
}

#[derive(Deserialize)]
struct DocumentSource {
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    json: Option<String>,
}

#[derive(Deserialize)]
struct QueryArgs {
    query: String,
}

#[derive(Deserialize)]
struct PointerArgs {
    pointer: String,
}

fn query(places: &ToolRoots, call: &ToolInvocation) -> Result<String, ToolFault> {
    let args: QueryArgs = call.args()?;
    let document = document(places, call)?;
    let invalid =
        |error: &dyn std::fmt::Display| ToolFault::new("E_INVALID_QUERY", error.to_string());
    let document = Variable::from_serializable(document).map_err(|error| invalid(&error))?;
    match evaluate::search(&args.query, &Rcvar::new(document)) {
        Ok(found) => written(&*found),
        Err(error @ QueryError::Invalid(_)) => Err(invalid(&error)),
        Err(error @ QueryError::TooMuchWork) => {
            Err(ToolFault::new("E_TOO_LARGE", error.to_string()))
        }
    }
}

fn pointer(places: &ToolRoots, call: &ToolInvocation) -> Result<String, ToolFault> {
    let args: PointerArgs = call.args()?;
    let document = document(places, call)?;
    match document.pointer(&args.pointer) {
        Some(found) => written(found),
        None => Err(ToolFault::new(
            "E_NO_MATCH",
            format!(
                "`{}`: {}",
                args.pointer,
                why_nothing(&document, &args.pointer)
            ),
        )),
    }
}

/// Explains a missing value: the part of the pointer that matches, and the keys that exist at that
/// point.
fn why_nothing(document: &Value, pointer: &str) -> String {
    /// Maximum number of keys listed for an object.
    const NAMES_TOLD: usize = 20;
    if !pointer.is_empty() && !pointer.starts_with('/') {
        return "a JSON Pointer is empty or begins with `/`".to_owned();
    }
    let mut reached = pointer;
    let found = loop {
        let end = reached.rfind('/').unwrap_or_default();
        reached = reached.get(..end).unwrap_or_default();
        if let Some(found) = document.pointer(reached) {
            break found;
        }
    };
    let there = match found {
        Value::Object(fields) => {
            let names: Vec<&str> = fields.keys().take(NAMES_TOLD).map(String::as_str).collect();
            let more = if fields.len() > NAMES_TOLD {
                ", …"
            } else {
                ""
            };
            format!("an object with the fields {}{more}", names.join(", "))
        }
        Value::Array(items) => format!("a list of {} items, counted from 0", items.len()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            "a value without parts".to_owned()
        }
    };
    format!("not found; `{reached}` is {there}")
}

fn document(places: &ToolRoots, call: &ToolInvocation) -> Result<Value, ToolFault> {
    let source: DocumentSource = call.args()?;
    let (text, name) = match (source.json, source.path) {
        (Some(text), _) => (text, "`json`".to_owned()),
        (None, path) => {
            let path = path.unwrap_or_default();
            let (root, relative) = locate(places, &path, Access::Read)?;
            let mut text = String::new();
            open_file(root, &relative, &path)?
                .take(MAX_FILE_BYTES)
                .read_to_string(&mut text)
                .map_err(|error| io_fault(&path, &error))?;
            (text, format!("`{path}`"))
        }
    };
    serde_json::from_str(&text)
        .map_err(|error| ToolFault::new("E_NOT_JSON", format!("{name} is not JSON: {error}")))
}

fn written(value: &impl serde::Serialize) -> Result<String, ToolFault> {
    let mut text = BoundedText(Vec::new());
    serde_json::to_writer_pretty(&mut text, value).map_err(|error| {
        let code = if error.is_io() {
            "E_TOO_LARGE"
        } else {
            "E_NOT_JSON"
        };
        ToolFault::new(code, format!("failed to write the result: {error}"))
    })?;
    String::from_utf8(text.0)
        .map_err(|error| ToolFault::new("E_NOT_JSON", format!("the result is not text: {error}")))
}

/// A text of at most [`MAX_RESULT_BYTES`].
struct BoundedText(Vec<u8>);

impl io::Write for BoundedText {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        if self.0.len() + part.len() > MAX_RESULT_BYTES {
            return Err(io::Error::other(format!(
                "the result has more than {MAX_RESULT_BYTES} bytes; ask for less at a time"
            )));
        }
        self.0.extend_from_slice(part);
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_that_nests_as_deep_as_it_may_does_no_harm() {
        let document = json!({"a": [[1]]});
        let search = |query: &str| {
            let document = Variable::from_serializable(&document).unwrap();
            evaluate::search(query, &Rcvar::new(document)).is_ok()
        };
        let is_good = |query: String| {
            assert!(query.len() <= MAX_QUERY_CHARS);
            with_deep_stack(|| Ok(search(&query))).unwrap()
        };
        for part in [
            "(", "[", "!", "{a:", "a.", "&", "[?", "a[", "`", "a||", "[*].", "[]|",
        ] {
            assert!(
                !is_good(part.repeat(MAX_QUERY_CHARS / part.len())),
                "{part}"
            );
        }
        assert!(is_good(format!("{}a{}", "(".repeat(499), ")".repeat(499))));
        assert!(is_good(format!("{}a", "!".repeat(999))));
        assert!(is_good(format!("a{}", "[]".repeat(499))));
        assert!(is_good(format!("a{}", "||a".repeat(333))));
    }

    #[test]
    fn a_result_is_written_as_far_as_the_limit() {
        let fits = vec![0; 1_000];
        assert!(written(&fits).is_ok());
        let nested = (0..100).fold(json!(vec![0; 200_000]), |inner, _| json!([inner]));
        let fault = written(&nested).unwrap_err();
        assert!(fault.to_string().contains("16777216 bytes"), "{fault}");
    }

    #[test]
    fn unresolved_json_pointer_is_reported_with_its_resolved_part() {
        let document = json!({"a": {"b": [1]}, "c": 2});
        let why = |pointer| why_nothing(&document, pointer);
        assert_eq!(
            why("/a/x/y"),
            "not found; `/a` is an object with the fields b"
        );
        assert_eq!(
            why("/a/b/7"),
            "not found; `/a/b` is a list of 1 items, counted from 0"
        );
        assert_eq!(why("/c/d"), "not found; `/c` is a value without parts");
        assert_eq!(why("/x"), "not found; `` is an object with the fields a, c");
        assert_eq!(why("a"), "a JSON Pointer is empty or begins with `/`");
    }
}
