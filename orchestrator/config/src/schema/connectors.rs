//! JSON Schemas for the Connections of built-in connectors.
//!
//! They are derived from the descriptions that the loader checks against (`goondan_connectors`). A
//! Connection that refers to a Connector of the project is only checked by the loader, which can
//! resolve the Connector.

use goondan_connectors::signatures::SECRETLESS_PRESETS;
use goondan_connectors::{BUILTINS, Connector, Secret, Setting, SettingType};
use goondan_protocol::base_package::BASE_PACKAGE;
use serde_json::{Map, Value as Json, json};

use super::{Definitions, camel, insert, or_nothing, required, with_default};
use crate::shape::value::{TAKEN, VALUE};

/// For each built-in connector: the schema of a Connection's `spec` that refers to it.
pub(super) fn cases(definitions: &mut Definitions) -> Vec<Json> {
    let each = BUILTINS.iter();
    each.map(|connector| case(connector, definitions)).collect()
}

fn case(connector: &'static Connector, definitions: &mut Definitions) -> Json {
    let named = |part: &str| format!("{}{part}", camel(connector.name));
    let config = definitions.named(&named("Config"), |definitions| {
        let mut config = map(connector.settings, definitions);
        if let Some(names) = connector.one_of {
            let one_of = names.map(|name| json!({ "required": [name] }));
            insert(&mut config, "oneOf", json!(one_of));
        }
        let about = format!("Settings of the connector `{}`.", connector.name);
        insert(&mut config, "description", about.into());
        config
    });
    let secrets = definitions.named(&named("Secrets"), |definitions| {
        secrets(connector.secrets, definitions)
    });
    let is_needed = connector.one_of.is_some() || !required(connector.settings).is_empty();
    let (config, needs_config) = maybe(&config, is_needed);
    let (secrets, needs_secrets) = maybe(&secrets, connector.secrets.iter().any(|s| s.is_required));
    let mut then = json!({ "properties": { "config": config, "secrets": secrets } });
    let needed: Vec<&str> = [(needs_config, "config"), (needs_secrets, "secrets")]
        .into_iter()
        .filter_map(|(needs, name)| needs.then_some(name))
        .collect();
    if !needed.is_empty() {
        insert(&mut then, "required", json!(needed));
    }
    let needs = connector.needs;
    let mut conditions: Vec<Json> = needs
        .map(|(setting, secret)| needs_secret(setting, secret))
        .into_iter()
        .collect();
    if connector.name == "webhook" {
        conditions.push(signature_conditions());
    }
    if !conditions.is_empty() {
        insert(&mut then, "allOf", json!(conditions));
    }
    json!({
        "if": {
            "properties": { "connectorRef": {
                "type": "object",
                "properties": {
                    "name": { "const": connector.name },
                    "package": { "const": BASE_PACKAGE },
                },
                "required": ["name", "package"],
            } },
            "required": ["connectorRef"],
        },
        "then": then,
    })
}

/// Optional fields may also be present without a value.
fn maybe(schema: &Json, is_required: bool) -> (Json, bool) {
    if is_required {
        (json!({ "allOf": [schema] }), true)
    } else {
        (or_nothing(schema), false)
    }
}

/// Settings of a signature with a preset that has no secret.
fn secretless() -> Json {
    json!({
        "type": "object",
        "properties": { "preset": { "enum": SECRETLESS_PRESETS } },
        "required": ["preset"],
    })
}

/// A setting that requires a secret, except a signature preset without one.
fn needs_secret(setting: &str, secret: &str) -> Json {
    json!({
        "if": {
            "properties": { "config": {
                "type": "object",
                "properties": { setting: { "not": secretless() } },
                "required": [setting],
            } },
            "required": ["config"],
        },
        "then": {
            "properties": { "secrets": { "type": "object", "required": [secret] } },
            "required": ["secrets"],
        },
    })
}

/// Fields of a webhook that require others.
fn signature_conditions() -> Json {
    json!({ "properties": {
        "config": { "properties": {
            "signature": { "if": secretless(), "then": { "required": ["topics"] } },
        } },
        "secrets": { "dependentRequired": { "previousHmac": ["hmac"] } },
    } })
}

fn secrets(secrets: &'static [Secret], definitions: &mut Definitions) -> Json {
    let properties: Map<String, Json> = secrets
        .iter()
        .map(|secret| {
            let value =
                json!({ "allOf": [definitions.shape(&VALUE)], "description": secret.about });
            (secret.name.to_owned(), value)
        })
        .collect();
    let required: Vec<&str> = secrets
        .iter()
        .filter(|secret| secret.is_required)
        .map(|secret| secret.name)
        .collect();
    object(&properties, &required)
}

fn map(settings: &'static [Setting], definitions: &mut Definitions) -> Json {
    let properties: Map<String, Json> = settings
        .iter()
        .map(|setting| (setting.name.to_owned(), value(setting, definitions)))
        .collect();
    object(&properties, &required(settings))
}

fn object(properties: &Map<String, Json>, required: &[&str]) -> Json {
    let mut object = json!({
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    });
    if !required.is_empty() {
        insert(&mut object, "required", json!(required));
    }
    object
}

/// A setting's value, given directly or taken from elsewhere.
fn value(setting: &'static Setting, definitions: &mut Definitions) -> Json {
    let taken = definitions.shape(&TAKEN);
    let written = content(setting.content, definitions);
    let mut schema = json!({
        "if": { "type": "object", "required": ["valueFrom"] },
        "then": taken,
        "else": written,
        "description": setting.about,
    });
    with_default(&mut schema, setting);
    schema
}

fn content(content: SettingType, definitions: &mut Definitions) -> Json {
    match content {
        SettingType::Text
        | SettingType::Name(_)
        | SettingType::HeaderName
        | SettingType::InstanceKey
        | SettingType::Cron
        | SettingType::TimeZone => json!({ "type": "string", "minLength": 1 }),
        SettingType::AnyText => json!({ "type": "string" }),
        SettingType::Word(words) => json!({ "enum": words }),
        SettingType::Words(words) => {
            json!({ "type": "array", "minItems": 1, "items": { "enum": words } })
        }
        SettingType::TimeOfDay => {
            json!({ "type": "string", "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$" })
        }
        // Values from the environment are always strings.
        SettingType::Number(least, most) => json!({ "anyOf": [
            { "type": "integer", "minimum": least, "maximum": most },
            { "type": "string", "pattern": "^\\+?[0-9]+$" },
        ] }),
        SettingType::Truth => json!({ "enum": [true, false, "true", "false"] }),
        SettingType::Hosts => json!({
            "type": "array",
            "minItems": 1,
            "items": { "type": "string", "minLength": 1 },
        }),
        SettingType::UrlPath => json!({ "type": "string", "pattern": "^/" }),
        SettingType::Url => json!({ "type": "string", "pattern": "^https?://" }),
        SettingType::Hex(bytes) => {
            json!({ "type": "string", "pattern": format!("^[0-9A-Fa-f]{{{}}}$", 2 * bytes) })
        }
        SettingType::Id => {
            json!({ "anyOf": [{ "type": "string", "minLength": 1 }, { "type": "integer" }] })
        }
        SettingType::Names => json!({
            "type": "array",
            "minItems": 1,
            "items": { "anyOf": [{ "type": "string", "minLength": 1 }, { "type": "integer" }] },
        }),
        SettingType::Command => json!({
            "type": "array",
            "minItems": 1,
            "items": { "type": "string" },
        }),
        SettingType::Variables => texts("^[A-Za-z_][A-Za-z0-9_]*$", definitions),
        SettingType::Headers => texts("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$", definitions),
        SettingType::Map(settings) => map(settings, definitions),
        SettingType::Named(settings) => json!({
            "type": "array",
            "minItems": 1,
            "items": map(settings, definitions),
        }),
    }
}

/// A map of strings, each given directly or taken from elsewhere, whose names match a pattern.
fn texts(names: &str, definitions: &mut Definitions) -> Json {
    json!({
        "type": "object",
        "patternProperties": { names: {
            "if": { "type": "object" },
            "then": definitions.shape(&TAKEN),
            "else": { "type": "string" },
        } },
        "additionalProperties": false,
    })
}
