//! `kind: Extension`: code that wraps an agent's turns, steps and tool calls.

use goondan_protocol::JsonObject;
use goondan_protocol::base_package::BASE_PACKAGE;
use goondan_protocol::definition::{ExtensionDefinition, ExtensionSource};
use goondan_protocol::ids::{ExtensionName, ResourceName};
use goondan_protocol::module_file::ModuleKind;
use goondan_protocol::settings;

use super::{Context, builtin_settings, id, read_entry};
use crate::codes;
use crate::document::Document;
use crate::fields::Fields;
use crate::kind::ResourceKind;
use crate::limits::{DEFAULT_TOOL_TIMEOUT_SECONDS, MAX_TOOL_TIMEOUT_SECONDS};
use crate::reference::{Reference, check_builtin};
use crate::report::{Problem, ProblemReport};
use crate::shape::{Case, Field, FieldConstraint, FieldDefault, FieldType, Shape, ShapeChoice};
use crate::tree::entries_to_json;

impl ResourceKind {
    pub(crate) const EXTENSION: Self = Self::named("Extension");
}

/// Shape of an Extension's `spec`.
pub(crate) static SPEC: ShapeChoice = ShapeChoice {
    field: "entry",
    cases: &[(Case::IsThere, &MODULE_SPEC)],
    otherwise: &BUILTIN_SPEC,
};

const CONFIG: Field = Field::optional(
    "config",
    FieldType::Entries(&FieldType::Anything),
    "The extension's settings.",
);

static BUILTIN_SPEC: Shape = Shape::of(
    "BuiltinExtensionSpec",
    "A built-in extension with a custom name and settings.",
    &[
        Field::required(
            "builtin",
            FieldType::Text,
            "An extension of `@goondan/base`, such as `message-window`.",
        ),
        CONFIG,
    ],
);

static MODULE_SPEC: Shape = Shape::of(
    "ModuleExtensionSpec",
    "An extension that is a module of the project.",
    &[
        Field::required(
            "entry",
            FieldType::Path,
            "Path of the TypeScript or JavaScript module, for bun, deno or node.",
        ),
        Field::optional("builtin", FieldType::Text, "Not together with `entry`."),
        Field::optional(
            "timeoutSeconds",
            FieldType::Number(1, MAX_TOOL_TIMEOUT_SECONDS),
            "Time limit of a middleware before `next()` and after it.",
        )
        .or(FieldDefault::Number(DEFAULT_TOOL_TIMEOUT_SECONDS)),
        CONFIG,
    ],
)
.with(&[FieldConstraint::NotBoth("builtin", "entry")]);

/// Reads an Extension document. Missing settings are checked for each agent that uses it, because
/// the agent may add settings.
pub(crate) fn read(document: &Document<'_>, cx: &mut Context<'_>) -> Option<ExtensionDefinition> {
    let name: Option<ResourceName> = id(&document.name, &mut cx.report);
    let mut spec = document.spec(&mut cx.report)?;
    let is_module = spec.has("entry");
    let source = if is_module {
        let source = read_module(&mut spec, cx);
        // A conflict with `entry`, which is already reported.
        let _builtin = spec.text("builtin", &mut cx.report);
        source
    } else {
        read_builtin(&mut spec, &mut cx.report)
    };
    let report = &mut cx.report;
    let config = spec.entries("config", report);
    let config_label = spec.label.field("config");
    spec.close();
    let source = source?;
    if let ExtensionSource::Builtin { name: builtin, .. } = &source
        && let Some(settings) = settings::of_extension(builtin.as_str())
    {
        let owner = owner(builtin.as_str());
        builtin_settings::check_written(settings, config, &config_label, &owner, report);
    }
    Some(ExtensionDefinition {
        name: ExtensionName::new(name?.as_str()).ok()?,
        source,
        config: entries_to_json(config),
    })
}

fn read_builtin(spec: &mut Fields<'_>, report: &mut ProblemReport) -> Option<ExtensionSource> {
    let builtin = spec.text("builtin", report)?;
    check_builtin(
        ResourceKind::EXTENSION,
        builtin.value,
        builtin.place,
        report,
    )?;
    Some(ExtensionSource::Builtin {
        package: BASE_PACKAGE.to_owned(),
        name: id(&builtin, report)?,
    })
}

fn read_module(spec: &mut Fields<'_>, cx: &mut Context<'_>) -> Option<ExtensionSource> {
    let written = spec.text("entry", &mut cx.report);
    let entry = written.as_ref().and_then(|entry| read_entry(entry, cx));
    let timeout_seconds = spec
        .number("timeoutSeconds", &mut cx.report)
        .unwrap_or(DEFAULT_TOOL_TIMEOUT_SECONDS);
    let entry = entry?;
    match ModuleKind::of(&entry) {
        ModuleKind::JavaScript | ModuleKind::TypeScript => {}
        other @ (ModuleKind::Python | ModuleKind::Executable) => {
            cx.report.add(
                Problem::new(
                    codes::INVALID_VALUE,
                    written?.place,
                    format!(
                        "an extension must be a TypeScript or JavaScript module; by its file name, \
                         `{}` is {other}",
                        entry.display()
                    ),
                )
                .help(
                    "write the path of a .ts, .mts, .js or .mjs file that exports `register(api, \
                     config)`",
                ),
            );
            return None;
        }
    }
    Some(ExtensionSource::Module {
        digest: cx.files.digest(&entry),
        entry: cx.files.started_as(entry),
        timeout_ms: timeout_seconds * 1_000,
    })
}

/// A built-in extension under its own name.
pub(crate) fn builtin(name: &str) -> Option<ExtensionDefinition> {
    Some(ExtensionDefinition {
        name: name.parse().ok()?,
        source: ExtensionSource::Builtin {
            package: BASE_PACKAGE.to_owned(),
            name: name.parse().ok()?,
        },
        config: JsonObject::new(),
    })
}

/// The extension as used by an agent: the settings in the agent's list override the extension's
/// own.
pub(crate) fn with_settings(
    mut definition: ExtensionDefinition,
    reference: &Reference,
    report: &mut ProblemReport,
) -> Option<ExtensionDefinition> {
    let ExtensionSource::Builtin { name: builtin, .. } = &definition.source else {
        if let Some(listed) = &reference.config {
            definition.config.extend(entries_to_json(&listed.entries));
        }
        return Some(definition);
    };
    let settings = settings::of_extension(builtin.as_str())?;
    let owner = owner(builtin.as_str());
    if let Some(listed) = &reference.config {
        let (entries, label) = (&listed.entries, &listed.label);
        builtin_settings::check_written(settings, entries, label, &owner, report);
        definition.config.extend(entries_to_json(entries));
    }
    builtin_settings::check_missing(
        settings,
        &definition.config,
        reference.place,
        &owner,
        report,
    );
    Some(definition)
}

fn owner(builtin: &str) -> String {
    format!("the extension `{builtin}`")
}
