//! `kind: Tool`: a module of the project, or a built-in tool with a custom name and settings.

use goondan_protocol::base_package::{BASE_PACKAGE, tool_exports};
use goondan_protocol::definition::{ToolDefinition, ToolExport, ToolSource};
use goondan_protocol::ids::{ResourceName, ToolName};
use goondan_protocol::message::tool_full_name;
use goondan_protocol::settings;

use super::{Context, builtin_settings, id, process_limits, read_entry};
use crate::codes;
use crate::document::Document;
use crate::fields::{Fields, LocatedValue, one_of};
use crate::kind::ResourceKind;
use crate::limits::{
    DEFAULT_ERROR_MESSAGE_LIMIT_CHARS, DEFAULT_TOOL_TIMEOUT_SECONDS, MAX_ERROR_MESSAGE_LIMIT_CHARS,
    MAX_TOOL_NAME_BYTES, MAX_TOOL_TIMEOUT_SECONDS,
};
use crate::reference::check_builtin;
use crate::report::{Problem, ProblemReport};
use crate::shape::{Case, Field, FieldConstraint, FieldDefault, FieldType, Shape, ShapeChoice};
use crate::similar::nearest;
use crate::tree::{MappingEntry, YamlValue, entries_to_json};

/// Separator of tool and export in the full name `tool__export`.
const EXPORT_SEPARATOR: &str = "__";

impl ResourceKind {
    pub(crate) const TOOL: Self = Self::named("Tool");
}

/// Shape of a Tool's `spec`.
pub(crate) static SPEC: ShapeChoice = ShapeChoice {
    field: "entry",
    cases: &[(Case::IsThere, &MODULE_SPEC)],
    otherwise: &BUILTIN_SPEC,
};

const ERROR_MESSAGE_LIMIT: Field = Field::optional(
    "errorMessageLimit",
    FieldType::Number(1, MAX_ERROR_MESSAGE_LIMIT_CHARS as u64),
    "Maximum length of an error text for the model, in characters.",
)
.or(FieldDefault::Number(
    DEFAULT_ERROR_MESSAGE_LIMIT_CHARS as u64,
));

const CONFIG: Field = Field::optional(
    "config",
    FieldType::Entries(&FieldType::Anything),
    "The tool's settings.",
);

const IDEMPOTENT: Field = Field::optional(
    "idempotent",
    FieldType::Boolean,
    "True if a call that a crash interrupted may run again.",
);

static BUILTIN_SPEC: Shape = Shape::of(
    "BuiltinToolSpec",
    "A built-in tool with a custom name and settings.",
    &[
        Field::required(
            "builtin",
            FieldType::Text,
            "A tool of `@goondan/base`, such as `bash`.",
        ),
        Field::optional(
            "exports",
            FieldType::List(&FieldType::Mapping(&BUILTIN_EXPORT)),
            "The exports of the tool that models can call.",
        )
        .or(FieldDefault::Meaning("everything")),
        CONFIG,
        ERROR_MESSAGE_LIMIT,
    ],
);

static BUILTIN_EXPORT: Shape = Shape::of(
    "BuiltinExport",
    "One of a built-in tool's exports.",
    &[
        Field::required("name", FieldType::Text, "One of the tool's exports."),
        Field::optional("description", FieldType::Text, "Description for models.")
            .or(FieldDefault::Meaning("the tool's own value")),
        IDEMPOTENT.or(FieldDefault::Meaning("the tool's own value")),
    ],
);

static MODULE_SPEC: Shape = Shape::of(
    "ModuleToolSpec",
    "A tool that is a module of the project.",
    &[
        Field::required(
            "entry",
            FieldType::Path,
            "Path of the module: a file for bun, deno, node or python3, or an executable.",
        ),
        Field::optional("builtin", FieldType::Text, "Not together with `entry`."),
        Field::required(
            "exports",
            FieldType::List(&FieldType::Mapping(&MODULE_EXPORT)),
            "The exports of the module.",
        ),
        Field::optional(
            "timeoutSeconds",
            FieldType::Number(1, MAX_TOOL_TIMEOUT_SECONDS),
            "Time limit of a call.",
        )
        .or(FieldDefault::Number(DEFAULT_TOOL_TIMEOUT_SECONDS)),
        Field::optional(
            "limits",
            FieldType::Mapping(&process_limits::HOST_LIMITS),
            "Limits of each process of the module's host.",
        ),
        CONFIG,
        ERROR_MESSAGE_LIMIT,
    ],
)
.with(&[FieldConstraint::NotBoth("builtin", "entry")]);

static MODULE_EXPORT: Shape = Shape::of(
    "ModuleExport",
    "An export of a module.",
    &[
        Field::required(
            "name",
            FieldType::Text,
            "Name of the export, the second half of the tool's full name.",
        ),
        Field::required("description", FieldType::Text, "Description for models."),
        Field::required(
            "parameters",
            FieldType::Entries(&FieldType::Anything),
            "JSON Schema of its arguments.",
        ),
        IDEMPOTENT,
    ],
);

pub(crate) fn read(document: &Document<'_>, cx: &mut Context<'_>) -> Option<ToolDefinition> {
    let name = read_name(&document.name, &mut cx.report);
    let mut spec = document.spec(&mut cx.report)?;
    let mut settings = None;
    let (source, exports) = if spec.has("entry") {
        let source = read_module(&mut spec, cx);
        // A conflict with `entry`, which is already reported.
        let _builtin = spec.text("builtin", &mut cx.report);
        let exports = read_module_exports(&mut spec, document.name.value, &mut cx.report);
        (source, exports)
    } else {
        let report = &mut cx.report;
        let builtin = spec.text("builtin", report);
        let exports = read_exports(&mut spec, builtin.as_ref(), report);
        let source = builtin.and_then(|builtin| {
            check_builtin(ResourceKind::TOOL, builtin.value, builtin.place, report)?;
            settings = settings::of_tool(builtin.value).map(|it| (it, builtin.value));
            Some(ToolSource::Builtin {
                package: BASE_PACKAGE.to_owned(),
                name: id(&builtin, report)?,
            })
        });
        (source, exports)
    };
    let report = &mut cx.report;
    let config = spec.entries("config", report);
    if let Some((settings, builtin)) = settings {
        let owner = format!("the tool `{builtin}`");
        let label = spec.label.field("config");
        builtin_settings::check_written(settings, config, &label, &owner, report);
    } else {
        refuse_environment(config, report);
    }
    let error_message_limit = spec
        .number("errorMessageLimit", report)
        .and_then(|limit| usize::try_from(limit).ok())
        .unwrap_or(DEFAULT_ERROR_MESSAGE_LIMIT_CHARS);
    spec.close();
    Some(ToolDefinition {
        name: name?,
        source: source?,
        exports,
        config: entries_to_json(config),
        connections: Vec::new(),
        approve: Vec::new(),
        error_message_limit,
    })
}

fn read_module(spec: &mut Fields<'_>, cx: &mut Context<'_>) -> Option<ToolSource> {
    let entry = spec.text("entry", &mut cx.report);
    let entry = entry.and_then(|entry| read_entry(&entry, cx));
    let timeout_seconds = spec
        .number("timeoutSeconds", &mut cx.report)
        .unwrap_or(DEFAULT_TOOL_TIMEOUT_SECONDS);
    let limits = process_limits::read_of_host(spec, cx);
    let entry = entry?;
    Some(ToolSource::Module {
        digest: cx.files.digest(&entry),
        entry: cx.files.started_as(entry),
        timeout_ms: timeout_seconds * 1_000,
        limits,
    })
}

/// Reads the exports of a module, which the module itself does not declare.
fn read_module_exports(
    spec: &mut Fields<'_>,
    tool: &str,
    report: &mut ProblemReport,
) -> Vec<ToolExport> {
    let mut exports: Vec<ToolExport> = Vec::new();
    let place = spec.place_of("exports");
    let listed = spec.mappings("exports", report);
    if let (Some(place), []) = (place, listed.as_slice()) {
        report.add(
            Problem::new(
                codes::INVALID_VALUE,
                place,
                "a tool module must have exports",
            )
            .help("list the functions in the module's `handlers`"),
        );
    }
    for mut export in listed.into_iter().flatten() {
        let name = export.text("name", report);
        let description = export.text("description", report);
        let schema_place = export.place_of("parameters");
        let parameters = entries_to_json(export.entries("parameters", report)).into();
        let idempotent = export.boolean("idempotent", report);
        export.close();
        if let (Some(place), Err(reason)) = (schema_place, check_schema(&parameters)) {
            report.add(
                Problem::new(
                    codes::INVALID_VALUE,
                    place,
                    format!("`parameters` is not a valid JSON Schema for arguments: {reason}"),
                )
                .help("write `type: object`, and the arguments in `properties`"),
            );
        }
        let Some(name) = name else { continue };
        if let Err(error) = tool_full_name(tool, name.value) {
            report.add(
                Problem::new(codes::INVALID_VALUE, name.place, error.to_string())
                    .help(format!("models call the export `{tool}__{}`", name.value)),
            );
        } else if exports.iter().any(|export| export.name == name.value) {
            report.add(listed_twice(&name));
        } else {
            exports.push(ToolExport {
                name: name.value.to_owned(),
                description: description.map(|text| text.value.to_owned()),
                parameters: Some(parameters),
                idempotent,
            });
        }
    }
    exports
}

/// Checks a schema of arguments, which must describe an object.
pub(crate) fn check_schema(schema: &serde_json::Value) -> Result<(), String> {
    if schema.get("type").and_then(serde_json::Value::as_str) != Some("object") {
        return Err("its `type` is not `object`".to_owned());
    }
    match jsonschema::draft202012::new(schema) {
        Ok(_) => Ok(()),
        Err(error) => {
            let at = error.instance_path().to_string();
            let at = if at.is_empty() { "/".to_owned() } else { at };
            Err(format!("at `{at}`: {error}"))
        }
    }
}

fn listed_twice(name: &LocatedValue<&str>) -> Problem {
    Problem::new(
        codes::DUPLICATE_REFERENCE,
        name.place,
        format!("the export `{}` is listed twice", name.value),
    )
    .help("remove one of the two")
}

/// Reads the offered exports with their descriptions.
fn read_exports(
    spec: &mut Fields<'_>,
    builtin: Option<&LocatedValue<&str>>,
    report: &mut ProblemReport,
) -> Vec<ToolExport> {
    // The exports of an unknown built-in tool are unknown.
    let known = builtin.map_or_else(Vec::new, |builtin| tool_exports(builtin.value));
    let mut exports: Vec<ToolExport> = Vec::new();
    for mut fields in spec.mappings("exports", report).into_iter().flatten() {
        let name = fields.text("name", report);
        let description = fields.text("description", report);
        let idempotent = fields.boolean("idempotent", report);
        fields.close();
        let Some(name) = name else { continue };
        if !known.is_empty() && !known.contains(&name.value) {
            report.add(
                Problem::new(
                    codes::UNKNOWN_REFERENCE,
                    name.place,
                    format!(
                        "unknown export `{}`; expected {}",
                        name.value,
                        one_of(&known)
                    ),
                )
                .did_you_mean(nearest(name.value, known.iter().copied())),
            );
        } else if exports.iter().any(|export| export.name == name.value) {
            report.add(listed_twice(&name));
        } else {
            exports.push(ToolExport {
                name: name.value.to_owned(),
                description: description.map(|text| text.value.to_owned()),
                parameters: None,
                idempotent,
            });
        }
    }
    exports
}

/// The built-in tool `name`, for direct references.
pub(crate) fn builtin(name: &str) -> Option<ToolDefinition> {
    let name = ResourceName::new(name).ok()?;
    Some(ToolDefinition {
        name: name.clone(),
        source: ToolSource::Builtin {
            package: BASE_PACKAGE.to_owned(),
            name,
        },
        exports: Vec::new(),
        config: serde_json::Map::new(),
        connections: Vec::new(),
        approve: Vec::new(),
        error_message_limit: DEFAULT_ERROR_MESSAGE_LIMIT_CHARS,
    })
}

/// Reads a tool's name. Its rules are stricter because it is the first half of the name that models
/// use.
fn read_name(name: &LocatedValue<&str>, report: &mut ProblemReport) -> Option<ResourceName> {
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

/// Refuses environment references: only connectors hold credentials, and a tool would receive the
/// mapping itself instead of its value.
fn refuse_environment(config: &[MappingEntry], report: &mut ProblemReport) {
    for entry in config {
        if entry.key == "valueFrom" {
            report.add(
                Problem::new(
                    codes::UNSUPPORTED,
                    entry.key_place,
                    "`valueFrom` works only in Connections; a tool's settings must be literal",
                )
                .help("write the value itself"),
            );
        }
        refuse_in_value(&entry.node.value, report);
    }
}

fn refuse_in_value(value: &YamlValue, report: &mut ProblemReport) {
    match value {
        YamlValue::Mapping(entries) => refuse_environment(entries, report),
        YamlValue::List(items) => items
            .iter()
            .for_each(|item| refuse_in_value(&item.value, report)),
        YamlValue::Null | YamlValue::Bool(_) | YamlValue::Number(_) | YamlValue::Text(_) => {}
    }
}
