//! JSON Schemas for the `config` of built-in tools and extensions.
//!
//! They are derived from the descriptions that the loader and the agent process check against
//! ([`goondan_protocol::settings`]). An agent's settings for an Extension of the project are only
//! checked by the loader, which can resolve the Extension.

use goondan_protocol::base_package::{BASE_PACKAGE, EXTENSIONS, tool_names};
use goondan_protocol::settings::{Setting, SettingFormat, SettingsSpec, of_extension, of_tool};
use serde_json::{Map, Value as Json, json};

use super::{Definitions, camel, insert, is_there, or_nothing, required, with_default};

/// The `config` of each built-in tool that a Tool may name.
pub(super) fn of_tools(definitions: &mut Definitions) -> Vec<Json> {
    let each = tool_names().filter_map(|name| Some((name, of_tool(name)?)));
    each.map(|(name, settings)| {
        let config = config(name, "Tool", settings, definitions);
        resource(name, &config)
    })
    .collect()
}

/// The `config` of each built-in extension that an Extension may name. Missing settings may be
/// given by the agents that use it.
pub(super) fn of_extensions(definitions: &mut Definitions) -> Vec<Json> {
    extensions()
        .map(|(name, settings)| {
            let config = config(name, "Extension", settings, definitions);
            resource(name, &config)
        })
        .collect()
}

/// The `config` next to each reference to a built-in extension in an agent's list. All required
/// settings must be there, because no Extension is in between.
pub(super) fn of_listed_extensions(definitions: &mut Definitions) -> Vec<Json> {
    let mut cases = Vec::new();
    for (name, settings) in extensions() {
        let reference = json!({
            "type": "object",
            "properties": { "name": { "const": name }, "package": { "const": BASE_PACKAGE } },
            "required": ["name", "package"],
        });
        let config = config(name, "Extension", settings, definitions);
        let then = if settings.demands_any() {
            let whole = format!("{}ListedExtensionConfig", camel(name));
            let whole =
                definitions.named(&whole, |_| json!({ "allOf": [config, demands(settings)] }));
            json!({ "properties": { "config": whole }, "required": ["config"] })
        } else {
            json!({ "properties": { "config": or_nothing(&config) } })
        };
        cases.push(json!({
            "if": { "type": "object", "properties": { "ref": reference }, "required": ["ref"] },
            "then": then,
        }));
        if settings.demands_any() {
            cases.push(json!({ "not": reference }));
        }
    }
    cases
}

fn extensions() -> impl Iterator<Item = (&'static str, &'static SettingsSpec)> {
    let each = EXTENSIONS.iter();
    each.filter_map(|name| Some((*name, of_extension(name)?)))
}

/// A resource with `builtin: <name>` and no other implementation.
fn resource(name: &str, config: &Json) -> Json {
    json!({
        "if": {
            "type": "object",
            "properties": { "builtin": { "const": name }, "entry": { "type": "null" } },
            "required": ["builtin"],
        },
        "then": { "properties": { "config": or_nothing(config) } },
    })
}

/// The settings, all optional.
fn config(
    name: &str,
    what: &str,
    settings: &'static SettingsSpec,
    definitions: &mut Definitions,
) -> Json {
    definitions.named(&format!("{}{what}Config", camel(name)), |_| {
        let each = settings.settings.iter();
        let properties: Map<String, Json> = each
            .map(|setting| (setting.name.to_owned(), value(setting)))
            .collect();
        json!({
            "type": "object",
            "description": format!("Settings of the built-in {} `{name}`.", what.to_lowercase()),
            "properties": properties,
            "additionalProperties": false,
        })
    })
}

/// Required settings, which must have a value.
fn demands(settings: &'static SettingsSpec) -> Json {
    let required = required(settings.settings).into_iter();
    let mut all: Vec<Json> = required.map(is_there).collect();
    if !settings.any_of.is_empty() {
        let any: Vec<Json> = settings.any_of.iter().copied().map(is_there).collect();
        all.push(json!({ "anyOf": any }));
    }
    json!({ "allOf": all })
}

fn value(setting: &Setting) -> Json {
    let text = json!({ "type": "string", "minLength": 1 });
    let written = match setting.content {
        SettingFormat::Text => text,
        SettingFormat::Texts => json!({ "type": "array", "minItems": 1, "items": text }),
        SettingFormat::Number(least, most) => {
            json!({ "type": "integer", "minimum": least, "maximum": most })
        }
        SettingFormat::Truth => json!({ "type": "boolean" }),
        SettingFormat::Schema => json!({
            "type": "object",
            "properties": { "type": { "const": "object" } },
            "required": ["type"],
        }),
    };
    let mut schema = or_nothing(&written);
    insert(&mut schema, "description", setting.about.into());
    with_default(&mut schema, setting);
    schema
}
