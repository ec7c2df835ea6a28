//! What a package asks for beyond what every module may do, and what a person has granted it (`PKG-3`).

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

/// What a package asks for, or may have. The default is nothing. Texts as its makers write them: they mean the same on
/// every machine, and are found on one when a project is loaded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Permissions {
    /// Hosts that its modules reach, as `network` of a sandbox lists them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub hosts: BTreeSet<String>,
    /// Paths that its modules read, as `read` of a sandbox lists them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub read: BTreeSet<String>,
    /// Paths that its modules change, as `write` of a sandbox lists them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub write: BTreeSet<String>,
    /// Names of secrets that its modules are given: those of a Connection, and those of a task.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub secrets: BTreeSet<String>,
    /// Built-in connectors by whose Connections its Tools work.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub connections: BTreeSet<String>,
    /// Built-in tools that its Tools stand for.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub tools: BTreeSet<String>,
}

impl Permissions {
    /// Whether it is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sections().iter().all(|(_, texts)| texts.is_empty())
    }

    /// All there is, by the names of the fields.
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

    /// What of this is not in `other`, text by text: what means less in other words counts as new.
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
    fn pkg_3_what_is_asked_for_beyond_what_was_granted_is_told_text_by_text() {
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
