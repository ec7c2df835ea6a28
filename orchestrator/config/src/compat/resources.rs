//! Resources by name and label.

use std::collections::BTreeMap;

use goondan_protocol::base_package::{BaseContract, EXTENSIONS};

use super::Trees;
use crate::edit::{as_text, at, text_at};

/// Label of every resource of the older package.
const TIER: (&str, &str) = ("tier", "base");

/// The tools of the older package.
pub(super) const OLDER_TOOLS: [&str; 10] = [
    "agents",
    "bash",
    "file-system",
    "http-fetch",
    "json-query",
    "self-restart",
    "slack",
    "telegram",
    "text-transform",
    "wait",
];

/// The connectors of the older package, by former and current name.
pub(super) const OLDER_CONNECTORS: [(&str, &str); 7] = [
    ("cli", "cli"),
    ("discord", "discord"),
    ("github", "github"),
    ("slack", "slack"),
    ("telegram", "telegram"),
    ("telegram-polling", "telegram"),
    ("webhook", "webhook"),
];

type Labels = BTreeMap<String, String>;

/// Resources of a project and, if the project requires it, of the older package.
pub(super) struct Resources {
    of_project: BTreeMap<(String, String), Labels>,
    contract: BaseContract,
}

/// A resource that a selector matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SelectedResource {
    pub(super) name: String,
    pub(super) is_builtin: bool,
}

impl Resources {
    pub(super) fn of(trees: &Trees, contract: BaseContract) -> Self {
        let mut of_project = BTreeMap::new();
        for document in trees.iter().flat_map(|(_, documents)| documents) {
            let kind = text_at(document, &["kind"]);
            let name = text_at(document, &["metadata", "name"]);
            let labels = at(document, &["metadata", "labels"]);
            let labels = labels.map_or(&[][..], |node| node.entries()).iter();
            let labels = labels
                .filter_map(|entry| Some((entry.key.clone(), as_text(&entry.node)?.to_owned())));
            if let (Some(kind), Some(name)) = (kind, name) {
                of_project.insert((kind.to_owned(), name.to_owned()), labels.collect());
            }
        }
        Self {
            of_project,
            contract,
        }
    }

    /// True if the project itself defines a resource of that name.
    pub(super) fn has(&self, kind: &str, name: &str) -> bool {
        let key = (kind.to_owned(), name.to_owned());
        self.of_project.contains_key(&key)
    }

    /// Names of the project's resources of a kind.
    pub(super) fn names(&self, kind: &str) -> Vec<String> {
        let of_kind = self.of_project.keys().filter(|(of, _)| of == kind);
        of_kind.map(|(_, name)| name.clone()).collect()
    }

    /// True if the name is not defined by the project but by the package.
    pub(super) fn is_builtin(&self, kind: &str, name: &str) -> bool {
        self.contract == BaseContract::V0_0_3
            && !self.has(kind, name)
            && builtins(kind).any(|builtin| builtin == name)
    }

    /// Resources of a kind that have all these labels, and the name if one is given.
    pub(super) fn select(
        &self,
        kind: &str,
        name: Option<&str>,
        labels: &Labels,
    ) -> Vec<SelectedResource> {
        let has_name = |it: &str| name.is_none_or(|name| name == it);
        let own = self.of_project.iter().filter(|((of, it), has)| {
            of == kind
                && has_name(it)
                && labels
                    .iter()
                    .all(|(label, value)| has.get(label) == Some(value))
        });
        let mut found: Vec<SelectedResource> = own
            .map(|((_, name), _)| SelectedResource {
                name: name.clone(),
                is_builtin: false,
            })
            .collect();
        let is_of_package = labels
            .iter()
            .all(|(label, value)| (label.as_str(), value.as_str()) == TIER);
        if self.contract == BaseContract::V0_0_3 && is_of_package {
            let builtins = builtins(kind).filter(|it| has_name(it) && !self.has(kind, it));
            found.extend(builtins.map(|name| SelectedResource {
                name: name.to_owned(),
                is_builtin: true,
            }));
        }
        found
    }
}

/// The older package's resources of a kind.
fn builtins(kind: &str) -> Box<dyn Iterator<Item = &'static str>> {
    match kind {
        "Tool" => Box::new(OLDER_TOOLS.into_iter()),
        "Extension" => Box::new(EXTENSIONS.iter().copied()),
        "Connector" => Box::new(OLDER_CONNECTORS.into_iter().map(|(older, _)| older)),
        _ => Box::new(std::iter::empty()),
    }
}
