//! Package names.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::limits::PACKAGE_NAME_BYTES_MAX;

/// A package's name: `name` or `@scope/name`. Each part consists of letters, digits, `-`, `_` and
/// `.`, and begins with a letter or digit, so that the name is a safe path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PackageName(String);

/// Text that is not a package name.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{0}` is not a package name; allowed are `name` and `@scope/name` of letters, digits, `-`, `_` and `.`"
)]
pub struct InvalidName(String);

impl PackageName {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the scope without the `@`, if there is one, and the rest.
    #[must_use]
    pub fn parts(&self) -> (Option<&str>, &str) {
        let scoped = self.0.strip_prefix('@');
        match scoped.and_then(|scoped| scoped.split_once('/')) {
            Some((scope, name)) => (Some(scope), name),
            None => (None, &self.0),
        }
    }
}

fn is_part(part: &str) -> bool {
    part.starts_with(|c: char| c.is_ascii_alphanumeric())
        && part
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

impl FromStr for PackageName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let is_name = match text.strip_prefix('@') {
            Some(scoped) => scoped
                .split_once('/')
                .is_some_and(|(scope, name)| is_part(scope) && is_part(name)),
            None => is_part(text),
        };
        if is_name && text.len() <= PACKAGE_NAME_BYTES_MAX {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidName(text.to_owned()))
        }
    }
}

impl TryFrom<String> for PackageName {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        text.parse()
    }
}

impl From<PackageName> for String {
    fn from(name: PackageName) -> Self {
        name.0
    }
}

impl Borrow<str> for PackageName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PackageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pkg_1_a_name_is_a_path_that_leads_nowhere_else() {
        for (text, parts) in [
            ("tools", (None, "tools")),
            ("@acme/tools.2", (Some("acme"), "tools.2")),
        ] {
            assert_eq!(text.parse::<PackageName>().unwrap().parts(), parts);
        }
        for wrong in [
            "", ".", "..", "@/a", "@a/", "@a", "a/b", "@a/b/c", "@../x", "@a/..", "a b", ".store",
            "a@1", "a\0", "/a",
        ] {
            assert!(wrong.parse::<PackageName>().is_err(), "{wrong}");
        }
        assert!(
            "a".repeat(PACKAGE_NAME_BYTES_MAX + 1)
                .parse::<PackageName>()
                .is_err()
        );
    }
}
