//! The repositories of a connection, compared as GitHub does: without regard to case, and under a
//! new name after a rename or a transfer.
//!
//! GitHub sends events of a renamed repository under its new name. The connection therefore stores
//! the ID of each listed repository that it has seen.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::Notify;

use super::REPOSITORY_LISTS;
use crate::gateway::Gateway;
use crate::payload::{items, text};

/// State of the connection, as stored.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SeenRepositories {
    /// IDs of listed repositories, with the listed name in lower case.
    #[serde(default)]
    repositories: BTreeMap<u64, SeenRepository>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SeenRepository {
    /// The name in the settings.
    listed: String,
    /// Its latest name.
    name: String,
}

/// The only repositories that a connection listens to and writes to.
#[derive(Debug)]
pub(super) struct Repositories {
    /// Listened to: names in lower case, or IDs.
    listed: Vec<String>,
    /// Written to in addition.
    written_to: Vec<String>,
    seen: Mutex<SeenRepositories>,
    changed: Notify,
}

impl Repositories {
    pub(super) fn new(listed: &[String], written_to: &[String]) -> Self {
        let lower = |names: &[String]| names.iter().map(|name| name.to_lowercase()).collect();
        Self {
            listed: lower(listed),
            written_to: lower(written_to),
            seen: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// True if an event is of a listed repository.
    pub(super) fn has_event(&self, body: &Value) -> bool {
        match body.pointer("/repository") {
            Some(repository) => self.has(repository, former_name(body)),
            None => {
                let lists = REPOSITORY_LISTS.iter();
                let mut concerned = lists.flat_map(|list| items(body, list));
                concerned.any(|repository| self.has(repository, None))
            }
        }
    }

    /// True if a repository of a payload is listed by its name, its ID, the name that it had
    /// before, or the name under which this connection has seen it.
    fn has(&self, repository: &Value, former: Option<String>) -> bool {
        let id = repository.get("id").and_then(Value::as_u64);
        let name = text(repository, "/full_name").unwrap_or_default();
        let name = name.to_lowercase();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let known = id.and_then(|id| seen.repositories.get(&id));
        let known = known.filter(|known| self.listed.contains(&known.listed));
        let id_text = id.map(|id| id.to_string());
        let mut names = [Some(name.clone()), id_text, former].into_iter().flatten();
        let listed = names.find(|name| self.listed.contains(name));
        let Some(listed) = listed.or_else(|| known.map(|known| known.listed.clone())) else {
            return false;
        };
        if let Some(id) = id {
            let now = SeenRepository { listed, name };
            if seen.repositories.get(&id) != Some(&now) {
                if now.listed != now.name && now.listed != id.to_string() {
                    tracing::warn!(
                        listed = now.listed,
                        name = now.name,
                        "a repository has a new name; change `repositories`"
                    );
                }
                seen.repositories.insert(id, now);
                self.changed.notify_one();
            }
        }
        true
    }

    /// True if agents may write to a repository.
    pub(super) fn may_write(&self, name: &str) -> bool {
        let name = name.to_lowercase();
        if self.listed.contains(&name) || self.written_to.contains(&name) {
            return true;
        }
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = seen.repositories.values();
        known.any(|known| known.name == name && self.listed.contains(&known.listed))
    }

    /// Loads the stored IDs.
    pub(super) async fn load(&self, gateway: &Gateway) {
        let state = match gateway.state().await {
            Ok(state) => state,
            Err(reason) => {
                tracing::warn!(reason, "failed to load the repositories' IDs");
                return;
            }
        };
        let stored = state.map(|state| serde_json::from_str::<SeenRepositories>(state.get()));
        match stored {
            None => {}
            Some(Ok(stored)) => {
                let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
                seen.repositories.extend(stored.repositories);
            }
            Some(Err(error)) => {
                tracing::warn!(%error, "the stored IDs of repositories are not valid");
            }
        }
    }

    /// Stores IDs whenever they change. Never completes.
    pub(super) async fn keep(&self, gateway: &Gateway) {
        loop {
            self.changed.notified().await;
            let stored = self.stored();
            let kept = match stored {
                Ok(state) => gateway.keep(state).await,
                Err(error) => Err(error.to_string()),
            };
            if let Err(reason) = kept {
                tracing::warn!(reason, "failed to store the repositories' IDs");
            }
        }
    }

    /// The state to store: only repositories that are still listed.
    fn stored(&self) -> Result<Box<RawValue>, serde_json::Error> {
        let mut seen = {
            let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.clone()
        };
        seen.repositories
            .retain(|_, known| self.listed.contains(&known.listed));
        to_raw_value(&seen)
    }
}

/// The name of a repository before the rename or transfer that an event reports, in lower case.
fn former_name(body: &Value) -> Option<String> {
    let (owner, name) = text(body, "/repository/full_name")?.split_once('/')?;
    let former_name = text(body, "/changes/repository/name/from");
    let former_owner = text(body, "/changes/owner/from/user/login")
        .or_else(|| text(body, "/changes/owner/from/organization/login"));
    if former_name.is_none() && former_owner.is_none() {
        return None;
    }
    let former = format!(
        "{}/{}",
        former_owner.unwrap_or(owner),
        former_name.unwrap_or(name)
    );
    Some(former.to_lowercase())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn listed(names: &[&str]) -> Repositories {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        Repositories::new(&names, &["acme/docs".to_owned()])
    }

    fn event(id: u64, name: &str) -> Value {
        json!({"repository": {"id": id, "full_name": name}})
    }

    #[test]
    fn conn_1_repositories_are_compared_without_regard_to_case() {
        let repositories = listed(&["ada/Shelf", "77"]);
        for (id, name, is_listed) in [
            (1, "Ada/shelf", true),
            (77, "any/name", true),
            (2, "ada/other", false),
        ] {
            let found = repositories.has_event(&event(id, name));
            assert_eq!(found, is_listed, "{name}");
        }
        assert!(repositories.may_write("ADA/SHELF"));
        assert!(repositories.may_write("Acme/Docs"));
        assert!(!repositories.may_write("ada/other"));
    }

    #[test]
    fn conn_1_renamed_repository_stays_listed() {
        let repositories = listed(&["ada/shelf"]);
        let mut renamed = event(1, "ada/books");
        renamed["changes"] = json!({"repository": {"name": {"from": "Shelf"}}});
        assert!(repositories.has_event(&renamed));
        assert!(repositories.has_event(&event(1, "ada/books")));
        assert!(repositories.may_write("ada/books"));
        assert!(!repositories.has_event(&event(2, "ada/books")));
        let mut moved = event(1, "acme/books");
        moved["changes"] = json!({"owner": {"from": {"user": {"login": "ada"}}}});
        assert!(repositories.has_event(&moved));
        // The next process knows the ID from the stored state.
        let stored = repositories.stored().unwrap();
        let next = listed(&["ada/shelf"]);
        *next.seen.lock().unwrap() = serde_json::from_str(stored.get()).unwrap();
        assert!(next.has_event(&event(1, "acme/books")));
        // The state alone permits nothing that the settings no longer list.
        let other = listed(&["ada/else"]);
        *other.seen.lock().unwrap() = serde_json::from_str(stored.get()).unwrap();
        assert!(!other.has_event(&event(1, "acme/books")));
        assert!(!other.may_write("acme/books"));
    }

    #[test]
    fn conn_1_installation_event_concerns_its_repositories() {
        let repositories = listed(&["ada/shelf"]);
        let body =
            |id: u64, name: &str| json!({"repositories_added": [{"id": id, "full_name": name}]});
        assert!(repositories.has_event(&body(3, "Ada/Shelf")));
        assert!(!repositories.has_event(&body(4, "ada/other")));
        assert!(!repositories.has_event(&json!({"organization": {"login": "ada"}})));
    }
}
