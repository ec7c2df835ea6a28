//! Manipulation of trees.

use crate::place::Place;
use crate::tree::{Entry, Node, Value};

/// The value at a path of fields.
pub(super) fn at<'n>(node: &'n Node, path: &[&str]) -> Option<&'n Node> {
    path.iter().try_fold(node, |node, name| {
        let entry = node.entries().iter().find(|entry| entry.key == *name)?;
        Some(&entry.node)
    })
}

/// The value at a path of fields, for modification.
pub(super) fn at_mut<'n>(node: &'n mut Node, path: &[&str]) -> Option<&'n mut Node> {
    path.iter().try_fold(node, |node, name| {
        let entry = entries_mut(node)?
            .iter_mut()
            .find(|entry| entry.key == *name)?;
        Some(&mut entry.node)
    })
}

/// The text at a path of fields.
pub(super) fn text_at<'n>(node: &'n Node, path: &[&str]) -> Option<&'n str> {
    at(node, path).and_then(as_text)
}

pub(super) fn as_text(node: &Node) -> Option<&str> {
    match &node.value {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

/// The items of a list; empty if the node is not a list.
pub(super) fn items(node: &Node) -> &[Node] {
    match &node.value {
        Value::List(items) => items,
        _ => &[],
    }
}

pub(super) fn entries_mut(node: &mut Node) -> Option<&mut Vec<Entry>> {
    match &mut node.value {
        Value::Mapping(entries) => Some(entries),
        _ => None,
    }
}

/// Removes and returns a field of a mapping.
pub(super) fn take(node: &mut Node, name: &str) -> Option<Entry> {
    let entries = entries_mut(node)?;
    let index = entries.iter().position(|entry| entry.key == name)?;
    Some(entries.remove(index))
}

/// Adds a field to a mapping, unless it exists.
pub(super) fn put(node: &mut Node, entry: Entry) {
    if let Some(entries) = entries_mut(node)
        && !entries.iter().any(|there| there.key == entry.key)
    {
        entries.push(entry);
    }
}

/// Renames a field of a mapping; an existing field of the new name takes precedence.
pub(super) fn rename(node: &mut Node, from: &str, to: &str) -> Option<Place> {
    let mut entry = take(node, from)?;
    let place = entry.key_place;
    to.clone_into(&mut entry.key);
    put(node, entry);
    Some(place)
}

/// The mapping of a field, created if absent.
pub(super) fn mapping_mut<'n>(node: &'n mut Node, name: &str) -> Option<&'n mut Node> {
    let place = node.place;
    put(node, entry(name, mapping(place, Vec::new())));
    at_mut(node, &[name]).filter(|node| matches!(node.value, Value::Mapping(_)))
}

pub(super) fn text(place: Place, text: impl Into<String>) -> Node {
    Node {
        value: Value::Text(text.into()),
        place,
    }
}

pub(super) fn number(place: Place, number: u64) -> Node {
    Node {
        value: Value::Number(number.into()),
        place,
    }
}

pub(super) fn boolean(place: Place, value: bool) -> Node {
    Node {
        value: Value::Bool(value),
        place,
    }
}

pub(super) fn list(place: Place, items: Vec<Node>) -> Node {
    Node {
        value: Value::List(items),
        place,
    }
}

pub(super) fn mapping(place: Place, entries: Vec<Entry>) -> Node {
    Node {
        value: Value::Mapping(entries),
        place,
    }
}

/// A field with the place of its value.
pub(super) fn entry(name: &str, node: Node) -> Entry {
    Entry {
        key: name.to_owned(),
        key_place: node.place,
        node,
    }
}

/// `{valueFrom: {env: NAME}}`.
pub(super) fn from_environment(place: Place, variable: &str) -> Node {
    let source = mapping(place, vec![entry("env", text(place, variable))]);
    mapping(place, vec![entry("valueFrom", source)])
}

/// Merges the fields of `over` into `under`: mappings are merged, everything else is replaced.
pub(super) fn merge(under: &mut Node, over: &Node) {
    let (Some(entries), Value::Mapping(more)) = (entries_mut(under), &over.value) else {
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
pub(super) fn document(place: Place, kind: &str, name: &str, spec: Node) -> Node {
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
