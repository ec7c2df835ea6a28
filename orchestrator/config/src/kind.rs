//! The kinds of resources, by name.

use std::fmt;

/// A kind of resource. Each kind is declared as a constant where its `spec` is read; `crate::kinds`
/// lists all kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ResourceKind(&'static str);

impl ResourceKind {
    /// Creates the kind of documents with this `kind`.
    pub(crate) const fn named(name: &'static str) -> Self {
        Self(name)
    }

    pub(crate) const fn name(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for ResourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Kinds of resources that a short document lists, by the name of its field.
pub(crate) const LISTS: [(&str, ResourceKind); 7] = [
    ("models", ResourceKind::MODEL),
    ("tools", ResourceKind::TOOL),
    ("extensions", ResourceKind::EXTENSION),
    ("connectors", ResourceKind::CONNECTOR),
    ("agents", ResourceKind::AGENT),
    ("connections", ResourceKind::CONNECTION),
    ("oauthApps", ResourceKind::OAUTH_APP),
];
