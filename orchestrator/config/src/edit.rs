//! Manipulation of trees.

use crate::place::SourceLocation;
use crate::tree::{MappingEntry, YamlNode, YamlValue};

/// The value at a path of fields.
pub(crate) fn at<'n>(node: &'n YamlNode, path: &[&str]) -> Option<&'n YamlNode> {
    path.iter().try_fold(node, |node, name| {
        let entry = node.entries().iter().find(|entry| entry.key == *name)?;
        Some(&entry.node)
    })
}

/// The value at a path of fields, for modification.
pub(crate) fn at_mut<'n>(node: &'n mut YamlNode, path: &[&str]) -> Option<&'n mut YamlNode> {
    path.iter().try_fold(node, |node, name| {
        let entry = entries_mut(node)?
            .iter_mut()
            .find(|entry| entry.key == *name)?;
        Some(&mut entry.node)
    })
}

/// The text at a path of fields.
pub(crate) fn text_at<'n>(node: &'n YamlNode, path: &[&str]) -> Option<&'n str> {
    at(node, path).and_then(as_text)
}

pub(crate) fn as_text(node: &YamlNode) -> Option<&str> {
    match &node.value {
        YamlValue::Text(text) => Some(text),
        _ => None,
    }
}

/// The items of a list; empty if the node is not a list.
pub(crate) fn items(node: &YamlNode) -> &[YamlNode] {
    match &node.value {
        YamlValue::List(items) => items,
        _ => &[],
    }
}

pub(crate) fn entries_mut(node: &mut YamlNode) -> Option<&mut Vec<MappingEntry>> {
    match &mut node.value {
        YamlValue::Mapping(entries) => Some(entries),
        _ => None,
    }
}

/// Removes and returns a field of a mapping.
pub(crate) fn take(node: &mut YamlNode, name: &str) -> Option<MappingEntry> {
    let entries = entries_mut(node)?;
    let index = entries.iter().position(|entry| entry.key == name)?;
    Some(entries.remove(index))
}

/// Adds a field to a mapping, unless it exists.
pub(crate) fn put(node: &mut YamlNode, entry: MappingEntry) {
    if let Some(entries) = entries_mut(node)
        && !entries.iter().any(|there| there.key == entry.key)
    {
        entries.push(entry);
    }
}

/// Renames a field of a mapping; an existing field of the new name takes precedence.
pub(crate) fn rename(node: &mut YamlNode, from: &str, to: &str) -> Option<SourceLocation> {
    let mut entry = take(node, from)?;
    let place = entry.key_place;
    to.clone_into(&mut entry.key);
    put(node, entry);
    Some(place)
}

/// The mapping of a field, created if absent.
pub(crate) fn mapping_mut<'n>(node: &'n mut YamlNode, name: &str) -> Option<&'n mut YamlNode> {
    let place = node.place;
    put(node, entry(name, mapping(place, Vec::new())));
    at_mut(node, &[name]).filter(|node| matches!(node.value, YamlValue::Mapping(_)))
}

pub(crate) fn text(place: SourceLocation, text: impl Into<String>) -> YamlNode {
    YamlNode {
        value: YamlValue::Text(text.into()),
        place,
    }
}

pub(crate) fn number(place: SourceLocation, number: u64) -> YamlNode {
    YamlNode {
        value: YamlValue::Number(number.into()),
        place,
    }
}

pub(crate) fn boolean(place: SourceLocation, value: bool) -> YamlNode {
    YamlNode {
        value: YamlValue::Bool(value),
        place,
    }
}

pub(crate) fn list(place: SourceLocation, items: Vec<YamlNode>) -> YamlNode {
    YamlNode {
        value: YamlValue::List(items),
        place,
    }
}

pub(crate) fn mapping(place: SourceLocation, entries: Vec<MappingEntry>) -> YamlNode {
    YamlNode {
        value: YamlValue::Mapping(entries),
        place,
    }
}

/// A field with the place of its value.
pub(crate) fn entry(name: &str, node: YamlNode) -> MappingEntry {
    MappingEntry {
        key: name.to_owned(),
        key_place: node.place,
        node,
    }
}

/// `{valueFrom: {env: NAME}}`.
pub(crate) fn from_environment(place: SourceLocation, variable: &str) -> YamlNode {
    let source = mapping(place, vec![entry("env", text(place, variable))]);
    mapping(place, vec![entry("valueFrom", source)])
}

/// Merges the fields of `over` into `under`: mappings are merged, everything else is replaced.
pub(crate) fn merge(under: &mut YamlNode, over: &YamlNode) {
    let (Some(entries), YamlValue::Mapping(more)) = (entries_mut(under), &over.value) else {
        *under = over.clone();
        return;
    };
    for new in more {
        match entries.iter_mut().find(|entry| entry.key == new.key) {
            Some(old) => merge(&mut old.node, &new.node),
            None => entries.push(new.clone()),
        }
    }
}

/// Creates a document of this kind and name.
pub(crate) fn document(place: SourceLocation, kind: &str, name: &str, spec: YamlNode) -> YamlNode {
    let metadata = mapping(place, vec![entry("name", text(place, name))]);
    mapping(
        place,
        vec![
            entry("apiVersion", text(place, crate::frame::API_VERSION)),
            entry("kind", text(place, kind)),
            entry("metadata", metadata),
            entry("spec", spec),
        ],
    )
}
