//! `kind: Tool`: a built-in tool under a name and with settings of its own.

use goondan_protocol::definition::ToolDefinition;
use goondan_protocol::ids::{ResourceName, ToolName};

use super::{id, refuse_entry};
use crate::codes;
use crate::document::{Document, Kind};
use crate::fields::Located;
use crate::limits::{
    DEFAULT_ERROR_MESSAGE_LIMIT_CHARS, MAX_ERROR_MESSAGE_LIMIT_CHARS, MAX_TOOL_NAME_BYTES,
};
use crate::reference::{BASE_PACKAGE, check_builtin};
use crate::report::{Problem, Report};
use crate::tree::{Entry, Value, entries_to_json};

/// What joins a tool's name and its export's in the full name `tool__export`.
const EXPORT_SEPARATOR: &str = "__";

/// Reads a Tool document.
pub(crate) fn read(document: &Document<'_>, report: &mut Report) -> Option<ToolDefinition> {
    let name = read_name(&document.name, report);
    let mut spec = document.spec(report)?;
    refuse_entry(document, &mut spec, report);
    let builtin = if spec.get("entry").is_some() {
        spec.exclude("builtin", "entry", report);
        None
    } else {
        spec.require_text("builtin", report)
    };
    let config = spec.entries("config", report);
    refuse_environment(config, report);
    let limit = u64::try_from(MAX_ERROR_MESSAGE_LIMIT_CHARS).unwrap_or(u64::MAX);
    let error_message_limit = spec
        .integer("errorMessageLimit", 1..=limit, report)
        .and_then(|limit| usize::try_from(limit).ok())
        .unwrap_or(DEFAULT_ERROR_MESSAGE_LIMIT_CHARS);
    spec.close(report);

    let builtin = builtin?;
    check_builtin(Kind::Tool, builtin.value, builtin.place, report)?;
    Some(ToolDefinition {
        name: name?,
        package: BASE_PACKAGE.to_owned(),
        builtin: id(&builtin, report)?,
        config: entries_to_json(config),
        error_message_limit,
    })
}

/// The built-in tool `name` as it is when an agent refers to it directly.
pub(crate) fn builtin(name: &str) -> Option<ToolDefinition> {
    let name = ResourceName::new(name).ok()?;
    Some(ToolDefinition {
        name: name.clone(),
        package: BASE_PACKAGE.to_owned(),
        builtin: name,
        config: serde_json::Map::new(),
        error_message_limit: DEFAULT_ERROR_MESSAGE_LIMIT_CHARS,
    })
}

/// A tool's name is the first half of the name models call it by, and so has narrower rules.
fn read_name(name: &Located<&str>, report: &mut Report) -> Option<ResourceName> {
    let fits = ToolName::new(name.value).is_ok()
        && name.value.len() <= MAX_TOOL_NAME_BYTES
        && !name.value.contains(EXPORT_SEPARATOR);
    if fits {
        return id(name, report);
    }
    report.add(Problem::new(
        codes::INVALID_VALUE,
        name.place,
        format!(
            "`{}` is not a tool name; allowed are letters, digits, `-` and `_`, at most \
             {MAX_TOOL_NAME_BYTES} bytes, without `{EXPORT_SEPARATOR}`, which joins the names of a \
             tool and its export",
            name.value
        ),
    ));
    None
}

/// Only connectors hold credentials: a tool that asks for one would be given the question itself.
fn refuse_environment(config: &[Entry], report: &mut Report) {
    for entry in config {
        if entry.key == "valueFrom" {
            report.add(
                Problem::new(
                    codes::UNSUPPORTED,
                    entry.key_place,
                    "`valueFrom` is for Connections; a tool's settings are written out",
                )
                .help("write the value itself"),
            );
        }
        refuse_in_value(&entry.node.value, report);
    }
}

fn refuse_in_value(value: &Value, report: &mut Report) {
    match value {
        Value::Mapping(entries) => refuse_environment(entries, report),
        Value::List(items) => items
            .iter()
            .for_each(|item| refuse_in_value(&item.value, report)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => {}
    }
}
