//! Consents: permissions of projects to use secrets (`SEC-6`).
//!
//! A project that names a secret gets it only after a person has allowed it to that project. A
//! consent names the secret, and the project's directory and package. All consents are in one file,
//! `system/consents.json`, which the orchestrator writes.

use std::path::{Path, PathBuf};

use goondan_protocol::control::SecretConsent;
use goondan_protocol::ids::SecretName;
use serde::{Deserialize, Serialize};

use crate::error::ConsentError;
use crate::limits::CONSENTS_MAX;

/// The version of the file's form.
const VERSION: u32 = 1;

/// Identity of a project for access to secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectIdentity {
    pub root: PathBuf,
    /// Its package's name, if it has one.
    pub package: Option<String>,
}

impl ProjectIdentity {
    /// The project in this canonical directory, of that package.
    #[must_use]
    pub fn new(root: &Path, package: Option<&str>) -> Self {
        Self {
            root: root.to_owned(),
            package: package.map(str::to_owned),
        }
    }

    fn is_of(&self, consent: &SecretConsent) -> bool {
        consent.project_root == self.root && consent.package == self.package
    }
}

/// The file, as it is written.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ConsentFile {
    version: u32,
    consents: Vec<SecretConsent>,
}

/// Everything that was allowed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Consents {
    all: Vec<SecretConsent>,
}

impl Consents {
    /// Reads the text of the file.
    ///
    /// # Errors
    ///
    /// [`ConsentError`]: then nothing is allowed.
    pub fn parse(bytes: &[u8]) -> Result<Self, ConsentError> {
        let file: ConsentFile = serde_json::from_slice(bytes)
            .map_err(|error| ConsentError::Malformed(error.to_string()))?;
        if file.version != VERSION {
            return Err(ConsentError::Version(file.version));
        }
        if file.consents.len() > CONSENTS_MAX {
            return Err(ConsentError::TooMany);
        }
        Ok(Self { all: file.consents })
    }

    /// Content of the file.
    ///
    /// # Errors
    ///
    /// [`ConsentError::Malformed`] if a path is not valid UTF-8.
    pub fn to_text(&self) -> Result<String, ConsentError> {
        let file = ConsentFile {
            version: VERSION,
            consents: self.all.clone(),
        };
        let text = serde_json::to_string_pretty(&file)
            .map_err(|error| ConsentError::Malformed(error.to_string()))?;
        Ok(text + "\n")
    }

    /// True if a person has allowed the project to use the secret.
    #[must_use]
    pub fn allows(&self, secret: &SecretName, project: &ProjectIdentity) -> bool {
        let mut all = self.all.iter();
        all.any(|consent| consent.secret == *secret && project.is_of(consent))
    }

    /// Allows it. Whether that is new.
    ///
    /// # Errors
    ///
    /// [`ConsentError::TooMany`].
    pub fn allow(&mut self, consent: SecretConsent) -> Result<bool, ConsentError> {
        let project = ProjectIdentity::new(&consent.project_root, consent.package.as_deref());
        if self.allows(&consent.secret, &project) {
            return Ok(false);
        }
        if self.all.len() >= CONSENTS_MAX {
            return Err(ConsentError::TooMany);
        }
        self.all.push(consent);
        self.all
            .sort_by(|a, b| (&a.secret, &a.workspace_id).cmp(&(&b.secret, &b.workspace_id)));
        Ok(true)
    }

    /// Takes back what `is_meant` picks; returns it.
    pub fn deny(&mut self, is_meant: impl Fn(&SecretConsent) -> bool) -> Vec<SecretConsent> {
        let (denied, kept) = self.all.drain(..).partition(is_meant);
        self.all = kept;
        denied
    }

    /// All consents, sorted by secret and workspace.
    #[must_use]
    pub fn all(&self) -> &[SecretConsent] {
        &self.all
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn consent(secret: &str, root: &str, package: Option<&str>) -> SecretConsent {
        serde_json::from_value(json!({
            "secret": secret, "workspaceId": "w-1", "projectRoot": root, "package": package,
            "allowedAt": "2026-11-22T21:00:00.000Z",
        }))
        .unwrap()
    }

    fn allows(consents: &Consents, secret: &str, root: &str, package: Option<&str>) -> bool {
        let project = ProjectIdentity::new(Path::new(root), package);
        consents.allows(&secret.parse().unwrap(), &project)
    }

    #[test]
    fn sec_6_consent_covers_one_secret_one_directory_one_package() {
        let mut consents = Consents::default();
        assert!(consents.allow(consent("hook", "/a", Some("p"))).unwrap());
        assert!(!consents.allow(consent("hook", "/a", Some("p"))).unwrap());
        assert!(allows(&consents, "hook", "/a", Some("p")));
        for (secret, root, package) in [
            ("other", "/a", Some("p")),
            ("hook", "/b", Some("p")),
            ("hook", "/a/b", Some("p")),
            ("hook", "/a", Some("q")),
            ("hook", "/a", None),
        ] {
            assert!(!allows(&consents, secret, root, package), "{secret} {root}");
        }
        let text = consents.to_text().unwrap();
        assert_eq!(Consents::parse(text.as_bytes()).unwrap(), consents);
        assert_eq!(consents.deny(|it| it.secret.as_str() == "hook").len(), 1);
        assert_eq!(consents, Consents::default());
    }

    #[test]
    fn sec_6_a_file_that_is_not_as_it_was_written_allows_nothing() {
        for bad in [
            "",
            "{",
            "[]",
            r#"{"version":2,"consents":[]}"#,
            "{\"version\":1}",
        ] {
            assert!(Consents::parse(bad.as_bytes()).is_err(), "{bad}");
        }
        let one = serde_json::to_value(consent("hook", "/a", None)).unwrap();
        let many = json!({"version": 1, "consents": vec![one; CONSENTS_MAX + 1]});
        let parsed = Consents::parse(many.to_string().as_bytes());
        assert_eq!(parsed.unwrap_err(), ConsentError::TooMany);
    }
}
