//! Owners of tokens, and paths of their documents (`SYS-2`).

use std::path::PathBuf;

use goondan_protocol::ids::{LoginId, WorkspaceId};
use goondan_protocol::oauth::{OAuthApp, OAuthNeed};
use sha2::{Digest as _, Sha256};

const DOCUMENT_SUFFIX: &str = ".sops.yaml";

/// Owner of tokens: one application of one workspace, for one subject.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GrantKey {
    /// The workspace. Applications with equal names in other projects have separate grants.
    pub workspace_id: WorkspaceId,
    /// The application and the subject.
    pub need: OAuthNeed,
}

impl GrantKey {
    /// Returns the part of file names that identifies workspace and subject.
    fn subject_hash(&self) -> String {
        digest(&[self.workspace_id.as_str(), self.need.subject.as_str()])
    }
}

/// Returns the SHA-256 of several texts in hex, with unambiguous boundaries.
fn digest(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hex::encode(hash.finalize())
}

/// Returns the fingerprint of the application's server and client id, which ties a grant to it.
pub(crate) fn fingerprint(app: &OAuthApp) -> String {
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    let endpoints = [
        part(&app.endpoints.authorization),
        part(&app.endpoints.token),
        part(&app.endpoints.revocation),
        part(&app.endpoints.device_authorization),
    ];
    let issuer = part(&app.issuer);
    let endpoints = endpoints.iter().map(String::as_str);
    let client_id = part(&app.client_id);
    // Fingerprints without a resource stay as in earlier versions.
    let resource = app.resource.iter().map(String::as_str);
    let parts: Vec<&str> = [issuer.as_str(), client_id.as_str()]
        .into_iter()
        .chain(endpoints)
        .chain(resource)
        .collect();
    digest(&parts)
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum DocumentKey {
    Grant(GrantKey),
    /// The mark of a refresh in progress.
    Lock(GrantKey),
    Session(GrantKey, LoginId),
}

impl DocumentKey {
    #[must_use]
    pub fn key(&self) -> &GrantKey {
        match self {
            Self::Grant(key) | Self::Lock(key) | Self::Session(key, _) => key,
        }
    }

    /// Returns its path below the OAuth directory.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        let key = self.key();
        let (kind, name) = match self {
            Self::Grant(_) => ("grants", format!("{}{DOCUMENT_SUFFIX}", key.subject_hash())),
            Self::Lock(_) => ("locks", format!("{}.lock", key.subject_hash())),
            Self::Session(_, id) => ("sessions", format!("{id}{DOCUMENT_SUFFIX}")),
        };
        [kind, key.need.app.as_str(), &name].iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sys_2_grants_have_separate_files_per_app_and_subject() {
        let key = |workspace: &str, subject: &str| GrantKey {
            workspace_id: workspace.parse().unwrap(),
            need: OAuthNeed {
                app: "github".parse().unwrap(),
                subject: subject.parse().unwrap(),
            },
        };
        let path = |place: DocumentKey| place.path().to_string_lossy().into_owned();
        let grant = path(DocumentKey::Grant(key("w", "global")));
        let (dir, name) = grant.rsplit_once('/').unwrap();
        assert_eq!(dir, "grants/github");
        assert_eq!(name.len(), 64 + DOCUMENT_SUFFIX.len(), "{name}");
        assert!(path(DocumentKey::Lock(key("w", "global"))).starts_with("locks/github/"));
        let session = DocumentKey::Session(key("w", "global"), "a-1".parse().unwrap());
        assert_eq!(path(session), "sessions/github/a-1.sops.yaml");
        for (workspace, subject) in [("x", "global"), ("w", "ada"), ("wg", "lobal")] {
            assert_ne!(path(DocumentKey::Grant(key(workspace, subject))), grant);
        }
    }
}
