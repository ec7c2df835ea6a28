//! Stores consents: which workspace may use which secret (`SEC-6`).
//!
//! The file is replaced atomically, so that a crash leaves either the old or the new consents.
//! Granting is recorded in the audit log before it takes effect, revoking after it.

use std::path::{Path, PathBuf};

use goondan_durable::files;
use goondan_protocol::control::{DenySecret, SecretConsent, SecretConsentChanged};
use goondan_protocol::ids::{SecretName, WorkspaceId};
use goondan_protocol::time::Timestamp;
use goondan_vault::{Consents, VaultError};
use serde_json::json;

use super::{KeepError, SecretKeeper};

/// A workspace that a secret can be allowed to.
pub(super) struct ConsentWorkspace {
    pub(super) id: WorkspaceId,
    pub(super) project_root: PathBuf,
    pub(super) package: Option<String>,
}

/// Identifies the workspace of a project. Blocks.
///
/// # Errors
///
/// The directory does not exist, or no workspace id can be derived from it.
pub(super) fn identify(project_root: &Path) -> Result<ConsentWorkspace, KeepError> {
    let path = project_root.to_owned();
    let root = std::fs::canonicalize(project_root);
    let project_root = root.map_err(|source| KeepError::Project { path, source })?;
    let package = goondan_config::package_name(&project_root).unwrap_or_default();
    let id = goondan_store::file_names::workspace_id(&project_root, package.as_deref());
    let id = id.map_err(|problem| KeepError::Unnamed {
        path: project_root.clone(),
        why: problem.to_string(),
    })?;
    Ok(ConsentWorkspace {
        id,
        project_root,
        package,
    })
}

impl SecretKeeper {
    /// Allows a workspace to use an existing secret.
    pub(super) fn allow(
        &self,
        name: SecretName,
        project_root: &Path,
        at: Timestamp,
    ) -> Result<SecretConsentChanged, KeepError> {
        let workspace = identify(project_root)?;
        if !self.vault.names(self.files.as_ref())?.contains(&name) {
            return Err(KeepError::NotFound { name, key: None });
        }
        let (consent, is_new) = self.add_consent(&name, workspace, at)?;
        Ok(SecretConsentChanged {
            name,
            changed: is_new.then_some(consent).into_iter().collect(),
            workspaces: Vec::new(),
        })
    }

    /// Revokes consents, including those of projects that no longer exist.
    pub(super) fn deny(
        &self,
        deny: DenySecret,
        at: Timestamp,
    ) -> Result<SecretConsentChanged, KeepError> {
        let DenySecret {
            name,
            project_root,
            workspace_id,
        } = deny;
        let root = project_root.map(|root| std::fs::canonicalize(&root).unwrap_or(root));
        let mut consents = self.vault.consents(self.files.as_ref())?;
        let changed = consents.deny(|consent| {
            let is_its_root = root
                .as_ref()
                .is_none_or(|root| consent.project_root == *root);
            let is_its_id = workspace_id
                .as_ref()
                .is_none_or(|id| consent.workspace_id == *id);
            consent.secret == name && is_its_root && is_its_id
        });
        if !changed.is_empty() {
            self.write_consents(&consents)?;
        }
        for consent in &changed {
            self.audit_consent("secret.denied", consent, at);
        }
        Ok(SecretConsentChanged {
            name,
            changed,
            workspaces: Vec::new(),
        })
    }

    /// Stores a consent. Also returns true if it is new.
    pub(super) fn add_consent(
        &self,
        name: &SecretName,
        workspace: ConsentWorkspace,
        at: Timestamp,
    ) -> Result<(SecretConsent, bool), KeepError> {
        let consent = SecretConsent {
            secret: name.clone(),
            workspace_id: workspace.id,
            project_root: workspace.project_root,
            package: workspace.package,
            allowed_at: at,
        };
        let mut consents = self.vault.consents(self.files.as_ref())?;
        let is_new = consents
            .allow(consent.clone())
            .map_err(|source| self.bad_consents(source))?;
        if is_new {
            self.audit_consent("secret.allowed", &consent, at);
            self.write_consents(&consents)?;
        }
        Ok((consent, is_new))
    }

    fn write_consents(&self, consents: &Consents) -> Result<(), KeepError> {
        let text = consents.to_text();
        let text = text.map_err(|source| self.bad_consents(source))?;
        self.write_in_system(&self.vault.consents_file(), &text)
    }

    /// Replaces a file below `system/` that is not encrypted.
    pub(super) fn write_in_system(&self, path: &Path, text: &str) -> Result<(), KeepError> {
        let disk = self.disk.as_ref();
        files::ensure_dir(disk, self.layout.root(), self.vault.system_dir())?;
        match self.name_in_system(path) {
            Some(name) => {
                let register = self.register_of(&name);
                register.replace(&name, text.as_bytes())?;
            }
            None => files::replace(disk, path, text.as_bytes())?,
        }
        Ok(())
    }

    fn bad_consents(&self, source: goondan_vault::ConsentError) -> VaultError {
        let path = self.vault.consents_file();
        VaultError::Consents { path, source }
    }

    fn audit_consent(&self, event: &str, consent: &SecretConsent, at: Timestamp) {
        let fields = json!({
            "event": event,
            "secret": consent.secret,
            "workspaceId": consent.workspace_id,
            "projectRoot": consent.project_root,
        });
        self.record(fields, at);
    }
}
