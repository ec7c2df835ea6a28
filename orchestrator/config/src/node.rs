//! A YAML value with its place.

use goondan_protocol::JsonObject;
use goondan_protocol::oauth::OAUTH_APP_PREFIX;
use goondan_protocol::secret::SECRET_PREFIX;
use serde_json::{Number, Value as Json};

use crate::place::SourceLocation;

/// Field that refers to a secret.
pub(crate) const REFERENCE: &str = "secretRef";

#[derive(Debug, Clone)]
pub(crate) struct YamlNode {
    pub(crate) value: YamlValue,
    pub(crate) place: SourceLocation,
}

#[derive(Debug, Clone)]
pub(crate) enum YamlValue {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<YamlNode>),
    /// In the order written, each key once.
    Mapping(Vec<MappingEntry>),
}

#[derive(Debug, Clone)]
pub(crate) struct MappingEntry {
    pub(crate) key: String,
    pub(crate) key_place: SourceLocation,
    pub(crate) node: YamlNode,
}

impl YamlValue {
    /// Name of the value's type, for messages.
    pub(crate) fn noun(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "true or false",
            Self::Number(_) => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Mapping(_) => "a mapping",
        }
    }
}

impl YamlNode {
    /// Converts the node to plain JSON.
    pub(crate) fn to_json(&self) -> Json {
        match &self.value {
            YamlValue::Null => Json::Null,
            YamlValue::Bool(value) => Json::Bool(*value),
            YamlValue::Number(value) => Json::Number(value.clone()),
            YamlValue::Text(value) => Json::String(value.clone()),
            YamlValue::List(items) => items.iter().map(Self::to_json).collect(),
            YamlValue::Mapping(entries) => Json::Object(entries_to_json(entries)),
        }
    }

    /// Calls `visit` with each line of a secret value, including its nested values and keys.
    /// References to secrets are skipped.
    pub(crate) fn each_line(&self, visit: &mut impl FnMut(usize)) {
        match &self.value {
            YamlValue::List(items) => items.iter().for_each(|item| item.each_line(visit)),
            YamlValue::Mapping(entries) => {
                let may_hold = entries.iter().filter(|entry| !entry.only_names_a_secret());
                may_hold.for_each(|entry| {
                    visit(entry.key_place.line);
                    entry.node.each_line(visit);
                });
            }
            YamlValue::Null | YamlValue::Bool(_) | YamlValue::Number(_) | YamlValue::Text(_) => {
                visit(self.place.line);
            }
        }
    }

    pub(crate) fn entries(&self) -> &[MappingEntry] {
        match &self.value {
            YamlValue::Mapping(entries) => entries,
            _ => &[],
        }
    }
}

/// Converts a mapping to a JSON object.
pub(crate) fn entries_to_json(entries: &[MappingEntry]) -> JsonObject {
    entries
        .iter()
        .map(|entry| (entry.key.clone(), entry.node.to_json()))
        .collect()
}

/// True for `{ref: Secret/name, key: …}`. Any other form may contain the secret itself.
pub(crate) fn is_reference(node: &YamlNode) -> bool {
    let entries = node.entries();
    let is_name = |entry: &MappingEntry| match (entry.key.as_str(), &entry.node.value) {
        ("ref", YamlValue::Text(name)) => name.starts_with(SECRET_PREFIX),
        ("key", YamlValue::Text(_)) => true,
        _ => false,
    };
    entries.len() == 2 && entries.iter().all(is_name)
}

/// True for `{app: OAuthApp/name}`, with or without a `subject`.
pub(crate) fn is_token(node: &YamlNode) -> bool {
    let entries = node.entries();
    let is_part = |entry: &MappingEntry| match (entry.key.as_str(), &entry.node.value) {
        ("app", YamlValue::Text(name)) => name.starts_with(OAUTH_APP_PREFIX),
        ("subject", YamlValue::Text(_)) => true,
        _ => false,
    };
    !entries.is_empty() && entries.iter().all(is_part)
}

impl MappingEntry {
    /// True for `…: {valueFrom: {secretRef: {ref: Secret/name, key: …}}}`, which can be shown.
    pub(crate) fn only_names_a_secret(&self) -> bool {
        let [source] = self.node.entries() else {
            return false;
        };
        let [reference] = source.node.entries() else {
            return false;
        };
        (source.key.as_str(), reference.key.as_str()) == ("valueFrom", REFERENCE)
            && is_reference(&reference.node)
    }
}
