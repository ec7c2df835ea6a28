//! `kind: Tool`: a built-in tool under a name and with settings of its own.

use goondan_protocol::definition::{ToolDefinition, ToolExport};
use goondan_protocol::ids::{ResourceName, ToolName};

use super::{id, refuse_entry};
use crate::codes;
use crate::document::{Document, Kind};
use crate::fields::{Fields, Located, one_of};
use crate::limits::{
    DEFAULT_ERROR_MESSAGE_LIMIT_CHARS, MAX_ERROR_MESSAGE_LIMIT_CHARS, MAX_TOOL_NAME_BYTES,
};
use crate::reference::{BASE_PACKAGE, builtin_exports, check_builtin};
use crate::report::{Problem, Report};
use crate::similar::nearest;
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
    let exports = read_exports(&mut spec, builtin.as_ref(), report);
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
        exports,
        config: entries_to_json(config),
        error_message_limit,
    })
}

/// Reads the exports that are offered, each with what is said of it.
fn read_exports(
    spec: &mut Fields<'_>,
    builtin: Option<&Located<&str>>,
    report: &mut Report,
) -> Vec<ToolExport> {
    let known = builtin.map(|builtin| builtin_exports(builtin.value));
    let mut exports: Vec<ToolExport> = Vec::new();
    for (node, label) in spec.items("exports", report) {
        let Some(mut fields) = Fields::open(node, node.place, label, report) else {
            continue;
        };
        let name = fields.require_text("name", report);
        let description = fields.text("description", report);
        let idempotent = fields.boolean("idempotent", report);
        fields.close(report);
        let Some(name) = name else { continue };
        // Nothing is known of the exports of a built-in that is not known itself.
        let known = known.unwrap_or_default();
        if !known.is_empty() && !known.contains(&name.value) {
            let names: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
            report.add(
                Problem::new(
                    codes::UNKNOWN_REFERENCE,
                    name.place,
                    format!(
                        "there is no export `{}`; there is {}",
                        name.value,
                        one_of(&names)
                    ),
                )
                .did_you_mean(nearest(name.value, known.iter().copied())),
            );
        } else if exports.iter().any(|export| export.name == name.value) {
            report.add(
                Problem::new(
                    codes::DUPLICATE_REFERENCE,
                    name.place,
                    format!("the export `{}` is listed twice", name.value),
                )
                .help("remove one of the two"),
            );
        } else {
            exports.push(ToolExport {
                name: name.value.to_owned(),
                description: description.map(|text| text.value.to_owned()),
                idempotent,
            });
        }
    }
    exports
}

/// The built-in tool `name` as it is when an agent refers to it directly.
pub(crate) fn builtin(name: &str) -> Option<ToolDefinition> {
    let name = ResourceName::new(name).ok()?;
    Some(ToolDefinition {
        name: name.clone(),
        package: BASE_PACKAGE.to_owned(),
        builtin: name,
        exports: Vec::new(),
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
