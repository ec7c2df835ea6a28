//! Converts references with `ref`, selectors with overrides, and names of the package without it.

use std::collections::BTreeMap;

use goondan_protocol::base_package::BASE_PACKAGE;

use super::resources::SelectedResource;
use super::{CompatConversion, Trees};
use crate::codes;
use crate::edit::{as_text, at, at_mut, document, entry, mapping, merge, put, take, text, text_at};
use crate::kind::ResourceKind;
use crate::report::{Problem, SourceLocation};
use crate::tree::{YamlNode, YamlValue};

/// Converts a field with a single reference.
pub(super) fn single(spec: &mut YamlNode, name: &str, cx: &mut CompatConversion<'_>) {
    let Some(node) = at_mut(spec, &[name]) else {
        return;
    };
    join_package(node);
    unwrap_ref(node);
    if at(node, &["selector"]).is_some() {
        let place = node.place;
        let mut found = selected(node, &[], cx);
        if found.len() > 1 {
            let message = format!("the selector of `{name}` matches {} resources", found.len());
            let problem = Problem::new(codes::INVALID_VALUE, place, message);
            cx.report
                .add(problem.help("select one resource with `name`"));
        }
        if let Some(first) = found.drain(..).next() {
            *node = first;
        }
    }
    plain(node, cx);
}

/// Converts a field with a list of references.
pub(super) fn listed(spec: &mut YamlNode, name: &str, cx: &mut CompatConversion<'_>) {
    let Some(node) = at_mut(spec, &[name]) else {
        return;
    };
    let YamlValue::List(items) = &mut node.value else {
        return;
    };
    let mut rewritten: Vec<YamlNode> = Vec::with_capacity(items.len());
    for mut item in std::mem::take(items) {
        join_package(&mut item);
        if at(&item, &["selector"]).is_some() {
            // Resources that are also listed by name keep their listed form.
            let there: Vec<String> = rewritten.iter().filter_map(name_of).collect();
            rewritten.extend(selected(&item, &there, cx));
            continue;
        }
        if let Some(overrides) = take(&mut item, "overrides") {
            let inner = at(&item, &["ref"]).unwrap_or(&item).clone();
            if let Some((kind, found)) = kind_and_name(&inner, cx) {
                rewritten.push(overridden(&kind, &found, &overrides.node, item.place, cx));
            }
            continue;
        }
        match at_mut(&mut item, &["ref"]) {
            Some(inner) => plain(inner, cx),
            None => plain(&mut item, cx),
        }
        rewritten.push(item);
    }
    node.value = YamlValue::List(rewritten);
}

/// Merges the overrides of selectors into the selected documents.
pub(super) fn apply(
    patches: Vec<(ResourceKind, String, YamlNode)>,
    trees: &mut Trees,
    cx: &mut CompatConversion<'_>,
) {
    let mut done: BTreeMap<(ResourceKind, String), (serde_json::Value, SourceLocation)> =
        BTreeMap::new();
    for (kind, name, over) in patches {
        let json = over.to_json();
        if let Some((earlier, _)) = done.get(&(kind, name.clone())) {
            if *earlier != json {
                let message = format!(
                    "{kind} `{name}` is overridden in two different ways, which one document cannot express"
                );
                let problem = Problem::new(codes::UNSUPPORTED, over.place, message);
                cx.report.add(problem.help(format!(
                    "add a second document of kind `{kind}` with another name, and refer to it"
                )));
            }
            continue;
        }
        done.insert((kind, name.clone()), (json, over.place));
        let documents = trees.iter_mut().flat_map(|(_, documents)| documents);
        let added = cx.added.iter_mut();
        for document in documents.chain(added) {
            let is_it = text_at(document, &["kind"]) == Some(kind.name())
                && text_at(document, &["metadata", "name"]) == Some(name.as_str());
            if is_it && let Some(spec) = at_mut(document, &["spec"]) {
                merge(spec, &over);
            }
        }
    }
}

/// Replaces `{ref: Kind/name, package: P}` by a reference with its package.
fn join_package(node: &mut YamlNode) {
    if at(node, &["ref"]).is_none() {
        return;
    }
    let Some(package) = take(node, "package") else {
        return;
    };
    let Some(inner) = at_mut(node, &["ref"]) else {
        return;
    };
    if let Some((kind, name)) = as_text(inner).and_then(|written| written.split_once('/')) {
        let place = inner.place;
        let entries = vec![
            entry("kind", text(place, kind)),
            entry("name", text(place, name)),
        ];
        *inner = mapping(place, entries);
    }
    put(inner, package);
}

/// Replaces `{ref: X}` by `X`.
fn unwrap_ref(node: &mut YamlNode) {
    let is_wrapped = matches!(node.entries(), [only] if only.key == "ref");
    if is_wrapped && let Some(inner) = take(node, "ref") {
        *node = inner.node;
    }
}

/// Converts a reference without a selector; adds the package's name if only the package defines the
/// resource.
fn plain(node: &mut YamlNode, cx: &mut CompatConversion<'_>) {
    take(node, "apiVersion");
    let place = node.place;
    // An unknown field may be a misspelled `package`.
    if at(node, &["package"]).is_some() || has_unknown_field(node) {
        return;
    }
    let Some((kind, found)) = kind_and_name(node, cx) else {
        return;
    };
    if found.is_builtin {
        *node = reference(&kind, &found, place);
    }
}

/// True if a reference that is a mapping has other fields than references have.
pub(super) fn has_unknown_field(node: &YamlNode) -> bool {
    const FIELDS: [&str; 4] = ["apiVersion", "kind", "name", "package"];
    let mut entries = node.entries().iter();
    entries.any(|entry| !FIELDS.contains(&entry.key.as_str()))
}

/// Kind and name of a reference, and if it refers to the package.
fn kind_and_name(node: &YamlNode, cx: &CompatConversion<'_>) -> Option<(String, SelectedResource)> {
    let (kind, name, package) = match &node.value {
        YamlValue::Text(written) => {
            let (kind, name) = written.split_once('/')?;
            (kind, name, None)
        }
        _ => {
            let kind = text_at(node, &["kind"])?;
            (kind, text_at(node, &["name"])?, text_at(node, &["package"]))
        }
    };
    let is_builtin = match package {
        Some(package) => package == BASE_PACKAGE,
        None => cx.resources.is_builtin(kind, name),
    };
    let name = name.to_owned();
    Some((kind.to_owned(), SelectedResource { name, is_builtin }))
}

fn name_of(node: &YamlNode) -> Option<String> {
    let node = at(node, &["ref"]).unwrap_or(node);
    let name = match &node.value {
        YamlValue::Text(written) => written.split_once('/').map(|(_, name)| name),
        _ => text_at(node, &["name"]),
    };
    name.map(str::to_owned)
}

fn reference(kind: &str, found: &SelectedResource, place: SourceLocation) -> YamlNode {
    let mut entries = vec![
        entry("kind", text(place, kind)),
        entry("name", text(place, found.name.as_str())),
    ];
    if found.is_builtin {
        entries.push(entry("package", text(place, BASE_PACKAGE)));
    }
    mapping(place, entries)
}

/// References to all resources that a selector matches, except those that are already listed.
fn selected(item: &YamlNode, there: &[String], cx: &mut CompatConversion<'_>) -> Vec<YamlNode> {
    let Some(selector) = at(item, &["selector"]) else {
        return Vec::new();
    };
    let place = selector.place;
    let labels: BTreeMap<String, String> = at(selector, &["matchLabels"])
        .map_or(&[][..], |node| node.entries())
        .iter()
        .filter_map(|entry| Some((entry.key.clone(), as_text(&entry.node)?.to_owned())))
        .collect();
    let Some(kind) = text_at(selector, &["kind"]) else {
        let problem = Problem::new(
            codes::MISSING_FIELD,
            place,
            "the selector needs the field `kind`",
        );
        cx.report.add(problem);
        return Vec::new();
    };
    let name = text_at(selector, &["name"]);
    let found = cx.resources.select(kind, name, &labels);
    if found.is_empty() {
        let message = format!("the selector matches no {kind}");
        let problem = Problem::new(codes::UNKNOWN_REFERENCE, place, message);
        cx.report.add(
            problem.help("correct its `name` and `matchLabels`, or add the labels to a resource"),
        );
    }
    let today = "refer to each resource by name: `Kind/name`".to_owned();
    cx.note(
        place,
        "selectors are an old form of references".to_owned(),
        today,
    );
    let overrides = at(item, &["overrides"]);
    let new = found.iter().filter(|found| !there.contains(&found.name));
    let each = new.map(|found| match overrides {
        Some(overrides) => overridden(kind, found, overrides, place, cx),
        None => reference(kind, found, place),
    });
    each.collect()
}

/// A reference to a resource with overridden settings.
fn overridden(
    kind: &str,
    found: &SelectedResource,
    overrides: &YamlNode,
    place: SourceLocation,
    cx: &mut CompatConversion<'_>,
) -> YamlNode {
    let plain = reference(kind, found, place);
    let Some(spec) = at(overrides, &["spec"]) else {
        return plain;
    };
    if kind == "Extension" {
        let Some(config) = at(spec, &["config"]) else {
            return plain;
        };
        let entries = vec![entry("ref", plain), entry("config", config.clone())];
        return mapping(place, entries);
    }
    if found.is_builtin && kind == "Tool" {
        if !cx.resources_added(kind, &found.name) {
            let builtin = entry("builtin", text(place, found.name.as_str()));
            let tool = document(place, kind, &found.name, mapping(place, vec![builtin]));
            cx.added.push(tool);
        }
        cx.patches
            .push((ResourceKind::TOOL, found.name.clone(), spec.clone()));
        let own = SelectedResource {
            name: found.name.clone(),
            is_builtin: false,
        };
        return reference(kind, &own, place);
    }
    if let Some(kind) = cx.report.kind(kind) {
        cx.patches.push((kind, found.name.clone(), spec.clone()));
    }
    plain
}

impl CompatConversion<'_> {
    fn resources_added(&self, kind: &str, name: &str) -> bool {
        self.added.iter().any(|document| {
            text_at(document, &["kind"]) == Some(kind)
                && text_at(document, &["metadata", "name"]) == Some(name)
        })
    }
}
