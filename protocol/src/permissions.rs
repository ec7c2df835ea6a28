//! Permissions that a package requests beyond those of every module, and that a person grants
//! (`PKG-3`).

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Requested or granted permissions; empty by default. They are texts as the package's authors
/// write them, with the same meaning on every machine. Loading a project resolves them on its
/// machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Permissions {
    /// Hosts that its modules may reach, in the syntax of a sandbox's `network`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub hosts: BTreeSet<String>,
    /// Paths that its modules may read, in the syntax of a sandbox's `read`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub read: BTreeSet<String>,
    /// Paths that its modules may change, in the syntax of a sandbox's `write`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub write: BTreeSet<String>,
    /// Names of secrets that its modules receive: for a Connection or a task.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub secrets: BTreeSet<String>,
    /// Built-in connectors whose Connections its Tools may use.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub connections: BTreeSet<String>,
    /// Built-in tools that its Tools may replace.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub tools: BTreeSet<String>,
}

impl Permissions {
    /// True if no permission is requested.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sections().iter().all(|(_, texts)| texts.is_empty())
    }

    /// All permissions, by field name.
    #[must_use]
    pub fn sections(&self) -> [(&'static str, &BTreeSet<String>); 6] {
        [
            ("hosts", &self.hosts),
            ("read", &self.read),
            ("write", &self.write),
            ("secrets", &self.secrets),
            ("connections", &self.connections),
            ("tools", &self.tools),
        ]
    }

    /// Permissions that are not in `other`, compared as text. A narrower permission in different
    /// words counts as new.
    #[must_use]
    pub fn beyond(&self, other: &Self) -> Self {
        let beyond = |own: &BTreeSet<String>, other: &BTreeSet<String>| {
            own.difference(other).cloned().collect()
        };
        Self {
            hosts: beyond(&self.hosts, &other.hosts),
            read: beyond(&self.read, &other.read),
            write: beyond(&self.write, &other.write),
            secrets: beyond(&self.secrets, &other.secrets),
            connections: beyond(&self.connections, &other.connections),
            tools: beyond(&self.tools, &other.tools),
        }
    }
}

impl fmt::Display for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sections = self.sections().into_iter();
        let said = sections.filter(|(_, texts)| !texts.is_empty());
        for (index, (name, texts)) in said.enumerate() {
            let comma = if index == 0 { "" } else { "; " };
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            write!(f, "{comma}{name} {}", texts.join(", "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pkg_3_requested_rights_beyond_the_granted_ones_are_listed() {
        let read = |text: &str| serde_json::from_str::<Permissions>(text).unwrap();
        let granted = read(r#"{"hosts":["a.org","b.org"],"tools":["bash"]}"#);
        let asked = read(r#"{"hosts":["*.a.org","b.org"],"secrets":["token"]}"#);
        let beyond = asked.beyond(&granted);
        assert_eq!(beyond.to_string(), "hosts *.a.org; secrets token");
        assert_eq!(
            granted.beyond(&asked).to_string(),
            "hosts a.org; tools bash"
        );
        assert!(asked.beyond(&asked).is_empty());
        assert_eq!(
            serde_json::to_string(&Permissions::default()).unwrap(),
            "{}"
        );
        assert!(serde_json::from_str::<Permissions>(r#"{"files":["/"]}"#).is_err());
    }
}
