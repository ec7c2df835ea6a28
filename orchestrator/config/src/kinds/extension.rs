//! `kind: Extension`: what stands around an agent's turns, steps and tool calls.

use goondan_protocol::JsonObject;
use goondan_protocol::base_package::BASE_PACKAGE;
use goondan_protocol::definition::ExtensionDefinition;
use goondan_protocol::ids::{ExtensionName, ResourceName};
use goondan_protocol::settings;

use super::{Context, builtin_settings, id, refuse_entry};
use crate::document::{Document, Kind};
use crate::reference::{Reference, check_builtin};
use crate::report::Report;
use crate::shape::{Case, Choice, Content, Field, Rule, Shape};
use crate::tree::entries_to_json;

/// What an Extension's `spec` holds.
pub(crate) static SPEC: Choice = Choice {
    field: "entry",
    cases: &[(Case::IsThere, &MODULE_SPEC)],
    otherwise: &BUILTIN_SPEC,
};

const CONFIG: Field = Field::optional(
    "config",
    Content::Entries(&Content::Anything),
    "The extension's settings.",
);

static BUILTIN_SPEC: Shape = Shape::of(
    "BuiltinExtensionSpec",
    "A built-in extension under a name and with settings of its own.",
    &[
        Field::required(
            "builtin",
            Content::Text,
            "An extension of `@goondan/base`, such as `message-window`.",
        ),
        CONFIG,
    ],
);

static MODULE_SPEC: Shape = Shape::of(
    "ModuleExtensionSpec",
    "An extension that is a module of the project. Not supported by this version.",
    &[
        Field::required("entry", Content::Path, "Path of the module."),
        Field::optional("builtin", Content::Text, "Not together with `entry`."),
        CONFIG,
    ],
)
.with(&[Rule::NotBoth("builtin", "entry")]);

/// Reads an Extension document. Whether all its settings are there is checked where an agent uses it,
/// since the agent may add to them.
pub(crate) fn read(document: &Document<'_>, cx: &mut Context<'_>) -> Option<ExtensionDefinition> {
    let name: Option<ResourceName> = id(&document.name, &mut cx.report);
    let mut spec = document.spec(&mut cx.report)?;
    let is_module = spec.has("entry");
    if is_module {
        refuse_entry(document, &mut spec, cx);
    }
    let report = &mut cx.report;
    let builtin = spec.text("builtin", report);
    let config = spec.entries("config", report);
    let config_label = spec.label.field("config");
    spec.close();

    let builtin = builtin.filter(|_| !is_module)?;
    check_builtin(Kind::Extension, builtin.value, builtin.place, report)?;
    if let Some(settings) = settings::of_extension(builtin.value) {
        let owner = owner(builtin.value);
        builtin_settings::check_written(settings, config, &config_label, &owner, report);
    }
    Some(ExtensionDefinition {
        name: ExtensionName::new(name?.as_str()).ok()?,
        package: BASE_PACKAGE.to_owned(),
        builtin: id(&builtin, report)?,
        config: entries_to_json(config),
    })
}

/// A built-in extension under its own name.
pub(crate) fn builtin(name: &str) -> Option<ExtensionDefinition> {
    Some(ExtensionDefinition {
        name: name.parse().ok()?,
        package: BASE_PACKAGE.to_owned(),
        builtin: name.parse().ok()?,
        config: JsonObject::new(),
    })
}

/// The extension as an agent uses it: the settings of its list are put over the extension's own.
pub(crate) fn with_settings(
    mut definition: ExtensionDefinition,
    reference: &Reference,
    report: &mut Report,
) -> Option<ExtensionDefinition> {
    let settings = settings::of_extension(definition.builtin.as_str())?;
    let owner = owner(definition.builtin.as_str());
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
