//! YAML text as a tree, in the order written: a document's checksum depends on that order.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::limits::{SECRET_DOCUMENT_BYTES_MAX, YAML_DEPTH_MAX, YAML_NODES_MAX};

#[derive(Clone, PartialEq)]
pub(crate) enum SecretYamlNode {
    Null,
    Bool(bool),
    /// A number, whose value is never needed.
    Number,
    Text(String),
    List(Vec<SecretYamlNode>),
    Mapping(Vec<(String, SecretYamlNode)>),
}

impl SecretYamlNode {
    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn as_list(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            _ => &[],
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Mapping(entries) => entries.iter().find(|(key, _)| key == name).map(|it| &it.1),
            _ => None,
        }
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_text()
    }
}

/// Parses one document. The error has the location, but quotes no content.
pub(crate) fn parse(text: &str) -> Result<SecretYamlNode, String> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: YAML_DEPTH_MAX,
            flow_nesting_limit: YAML_DEPTH_MAX,
            max_nodes: YAML_NODES_MAX,
            max_total_scalar_bytes: SECRET_DOCUMENT_BYTES_MAX,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: YAML_NODES_MAX,
            max_replay_stack_depth: YAML_DEPTH_MAX,
        },
        // A merge would copy its content. The tools that write these documents use no merges.
        merge_keys: serde_saphyr::MergeKeyPolicy::AsOrdinary,
        strict_booleans: true,
        leading_zero_numbers_as_strings: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options::<SecretYamlNode>(text, options).map_err(|error| {
        let line = error.location().map_or(1, |location| location.line());
        format!("line {line} is not valid YAML of one document")
    })
}

impl<'de> Deserialize<'de> for SecretYamlNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = SecretYamlNode;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<SecretYamlNode, E> {
        Ok(SecretYamlNode::Null)
    }

    fn visit_none<E>(self) -> Result<SecretYamlNode, E> {
        Ok(SecretYamlNode::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<SecretYamlNode, D::Error> {
        SecretYamlNode::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<SecretYamlNode, E> {
        Ok(SecretYamlNode::Bool(value))
    }

    fn visit_i64<E>(self, _value: i64) -> Result<SecretYamlNode, E> {
        Ok(SecretYamlNode::Number)
    }

    fn visit_u64<E>(self, _value: u64) -> Result<SecretYamlNode, E> {
        Ok(SecretYamlNode::Number)
    }

    fn visit_f64<E>(self, _value: f64) -> Result<SecretYamlNode, E> {
        Ok(SecretYamlNode::Number)
    }

    fn visit_str<E>(self, text: &str) -> Result<SecretYamlNode, E> {
        Ok(SecretYamlNode::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<SecretYamlNode, E> {
        Ok(SecretYamlNode::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<SecretYamlNode, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(SecretYamlNode::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<SecretYamlNode, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = fields.next_entry()? {
            entries.push(entry);
        }
        Ok(SecretYamlNode::Mapping(entries))
    }
}
