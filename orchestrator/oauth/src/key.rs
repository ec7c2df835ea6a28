//! Whose tokens they are, and where their documents lie (`SYS-2`).

use std::path::PathBuf;

use goondan_protocol::ids::{LoginId, WorkspaceId};
use goondan_protocol::oauth::{OAuthApp, OAuthNeed};
use sha2::{Digest as _, Sha256};

/// What a document's file is called behind its name.
const DOCUMENT_SUFFIX: &str = ".sops.yaml";

/// Whose tokens: of one application of one workspace, for one subject.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GrantKey {
    /// The workspace. Another project with an application of the same name has grants of its own.
    pub workspace_id: WorkspaceId,
    /// The application and the subject.
    pub need: OAuthNeed,
}

impl GrantKey {
    /// What stands for workspace and subject in the names of files.
    fn subject_hash(&self) -> String {
        digest(&[self.workspace_id.as_str(), self.need.subject.as_str()])
    }
}

/// The SHA-256 of several texts, so that no two lists share one, as hexadecimal digits.
fn digest(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hex::encode(hash.finalize())
}

/// What makes an application the one that a grant was given to: its server and its id there.
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
    // Those that are for no server alone are what they were before there were others.
    let resource = app.resource.iter().map(String::as_str);
    let parts: Vec<&str> = [issuer.as_str(), client_id.as_str()]
        .into_iter()
        .chain(endpoints)
        .chain(resource)
        .collect();
    digest(&parts)
}

/// Which document.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The tokens.
    Grant(GrantKey),
    /// That a refresh is under way.
    Lock(GrantKey),
    /// A login.
    Session(GrantKey, LoginId),
}

impl Place {
    /// Whose it is.
    #[must_use]
    pub fn key(&self) -> &GrantKey {
        match self {
            Self::Grant(key) | Self::Lock(key) | Self::Session(key, _) => key,
        }
    }

    /// Its path below the directory of OAuth.
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
    fn sys_2_documents_lie_by_application_and_subject_and_share_no_file() {
        let key = |workspace: &str, subject: &str| GrantKey {
            workspace_id: workspace.parse().unwrap(),
            need: OAuthNeed {
                app: "github".parse().unwrap(),
                subject: subject.parse().unwrap(),
            },
        };
        let path = |place: Place| place.path().to_string_lossy().into_owned();
        let grant = path(Place::Grant(key("w", "global")));
        let (dir, name) = grant.rsplit_once('/').unwrap();
        assert_eq!(dir, "grants/github");
        assert_eq!(name.len(), 64 + DOCUMENT_SUFFIX.len(), "{name}");
        assert!(path(Place::Lock(key("w", "global"))).starts_with("locks/github/"));
        let session = Place::Session(key("w", "global"), "a-1".parse().unwrap());
        assert_eq!(path(session), "sessions/github/a-1.sops.yaml");
        for (workspace, subject) in [("x", "global"), ("w", "ada"), ("wg", "lobal")] {
            assert_ne!(path(Place::Grant(key(workspace, subject))), grant);
        }
    }
}
