//! Selection of the registry of a package.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::limits::REQUIREMENT_BYTES_MAX;
use crate::name::PackageName;

/// URL of a registry: `https://host/path`, or `http://` on this machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RegistryUrl(String);

/// Text that is not a registry URL.
#[derive(Debug, thiserror::Error)]
#[error("`{text}` is not the address of a registry: {reason}")]
pub struct InvalidRegistry {
    text: String,
    reason: &'static str,
}

impl RegistryUrl {
    /// Returns the URL without a trailing slash.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the URL of a package's metadata. The slash of a scope is encoded as `%2f`.
    #[must_use]
    pub fn of_package(&self, name: &PackageName) -> String {
        format!("{}/{}", self.0, name.as_str().replace('/', "%2f"))
    }
}

impl fmt::Display for RegistryUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the reason why a text is not a valid URL.
fn wrong_with(text: &str) -> Option<&'static str> {
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    let host = rest.split('/').next().unwrap_or_default();
    if !matches!(scheme, "https" | "http") || host.is_empty() {
        return Some("write `https://host`");
    }
    let is_strange = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '?' | '#' | '\\');
    if text.contains(is_strange) || text.len() > REQUIREMENT_BYTES_MAX {
        return Some("remove `?`, `#` and spaces");
    }
    if host.contains('@') {
        return Some(
            "remove user name and password; store a token with `gdn secret set registry HOST`",
        );
    }
    let name = match host.strip_prefix("[::1]") {
        Some(port) if port.is_empty() || port.starts_with(':') => "localhost",
        _ => host.split(':').next().unwrap_or_default(),
    };
    let is_own = matches!(name, "localhost" | "127.0.0.1");
    (scheme == "http" && !is_own)
        .then_some("use `https://`; plain HTTP is allowed only on this machine")
}

impl FromStr for RegistryUrl {
    type Err = InvalidRegistry;

    fn from_str(text: &str) -> Result<Self, InvalidRegistry> {
        match wrong_with(text) {
            None => Ok(Self(text.trim_end_matches('/').to_owned())),
            Some(reason) => Err(InvalidRegistry {
                text: text.to_owned(),
                reason,
            }),
        }
    }
}

/// Registries configured by a project.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Registries {
    general: Option<RegistryUrl>,
    by_scope: BTreeMap<String, RegistryUrl>,
}

#[derive(Debug, thiserror::Error)]
pub enum InvalidScope {
    /// The text is not a scope.
    #[error("`{0}` is not a scope; write one as `@acme`")]
    Form(String),
    /// The scope already has a registry.
    #[error("a registry is named twice for {0}")]
    Twice(String),
}

impl Registries {
    /// Adds a registry: for a scope such as `@acme`, or for all packages of other scopes.
    ///
    /// # Errors
    ///
    /// [`InvalidScope`]
    pub fn add(&mut self, scope: Option<&str>, url: RegistryUrl) -> Result<(), InvalidScope> {
        let Some(scope) = scope else {
            return match self.general.replace(url) {
                None => Ok(()),
                Some(_) => Err(InvalidScope::Twice("packages of all scopes".to_owned())),
            };
        };
        let is_scope = format!("{scope}/x").parse::<PackageName>().is_ok();
        let own = scope.strip_prefix('@').filter(|_| is_scope);
        let own = own.ok_or_else(|| InvalidScope::Form(scope.to_owned()))?;
        match self.by_scope.insert(own.to_owned(), url) {
            None => Ok(()),
            Some(_) => Err(InvalidScope::Twice(format!("the scope `{scope}`"))),
        }
    }

    /// Returns the registry of a package, if the project configures one.
    #[must_use]
    pub fn of(&self, name: &PackageName) -> Option<&RegistryUrl> {
        let scope = name.parts().0;
        let own = scope.and_then(|scope| self.by_scope.get(scope));
        own.or(self.general.as_ref())
    }

    pub fn all(&self) -> impl Iterator<Item = &RegistryUrl> {
        self.general.iter().chain(self.by_scope.values())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pkg_3_registry_url_needs_tls_unless_local_and_no_password() {
        for right in [
            "https://npm.example.org",
            "https://h:8443/npm",
            "http://localhost:4873",
            "http://127.0.0.1:4873/",
            "http://[::1]:4873",
        ] {
            let url: RegistryUrl = right.parse().unwrap();
            assert_eq!(url.as_str(), right.trim_end_matches('/'));
        }
        for wrong in [
            "",
            "https://",
            "npm.example.org",
            "ftp://h",
            "http://h",
            "http://localhost.evil.example",
            "http://127.0.0.1.evil.example",
            "http://[::1].evil.example",
            "https://a:b@h",
            "http://localhost@evil.example",
            "https://h/?x",
            "https://h#x",
            "https://h /",
            "http://localhost\\@evil.example",
        ] {
            assert!(wrong.parse::<RegistryUrl>().is_err(), "{wrong}");
        }
        let name: PackageName = "@acme/words".parse().unwrap();
        let url: RegistryUrl = "https://h/npm/".parse().unwrap();
        assert_eq!(url.of_package(&name), "https://h/npm/@acme%2fwords");
    }

    #[test]
    fn pkg_3_a_scope_has_its_own_registry_and_never_another_ones() {
        let url = |text: &str| text.parse::<RegistryUrl>().unwrap();
        let mut all = Registries::default();
        all.add(Some("@acme"), url("https://acme")).unwrap();
        let of = |all: &Registries, name: &str| {
            let found = all.of(&name.parse().unwrap());
            found.map(ToString::to_string)
        };
        assert_eq!(of(&all, "@acme/a").as_deref(), Some("https://acme"));
        assert_eq!(of(&all, "@other/a"), None);
        all.add(None, url("https://all")).unwrap();
        assert_eq!(of(&all, "@acme/a").as_deref(), Some("https://acme"));
        assert_eq!(of(&all, "@acmes/a").as_deref(), Some("https://all"));
        assert_eq!(of(&all, "acme").as_deref(), Some("https://all"));
        for twice in [None, Some("@acme"), Some("acme"), Some("@a/b"), Some("@")] {
            assert!(all.add(twice, url("https://x")).is_err(), "{twice:?}");
        }
    }
}
