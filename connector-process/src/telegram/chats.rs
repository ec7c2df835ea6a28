//! Groups that became supergroups, which Telegram gives a new ID (`CONN-1`).
//!
//! The conversation continues under the first ID, and settings that name any ID of a group hold for
//! all of its IDs. The change is stored with the connection's state.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::answer::ApiError;
use super::api::Api;
use crate::gateway::Gateway;
use crate::limits::{CHATS_MIGRATED_MAX, SERVICE_TIMEOUT_MS};

/// Former IDs of groups, each with the next ID. As stored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Migrations {
    #[serde(default)]
    migrated: BTreeMap<i64, i64>,
}

impl Migrations {
    /// Adds a change. Returns false if the former ID has a new one already, or if the change would
    /// lead back to it.
    fn add(&mut self, old: i64, new: i64) -> bool {
        if self.migrated.contains_key(&old) || self.current(new) == old {
            return false;
        }
        self.migrated.insert(old, new);
        true
    }

    /// The current ID of a chat.
    pub(super) fn current(&self, id: i64) -> i64 {
        let next = |id: &i64| self.migrated.get(id).copied();
        // A chain is no longer than the number of changes.
        let chain = std::iter::successors(Some(id), next).take(self.migrated.len() + 1);
        chain.last().unwrap_or(id)
    }

    /// The first known ID of a chat.
    pub(super) fn first(&self, id: i64) -> i64 {
        let former = |id: &i64| {
            let mut changes = self.migrated.iter();
            changes.find_map(|(old, new)| (new == id).then_some(*old))
        };
        let chain = std::iter::successors(Some(id), former).take(self.migrated.len() + 1);
        chain.last().unwrap_or(id)
    }

    /// True if a list names any ID of the chat; without a list, for every chat.
    pub(super) fn is_listed(&self, list: Option<&[String]>, id: i64) -> bool {
        let current = self.current(id);
        list.is_none_or(|list| {
            let mut listed = list.iter();
            listed.any(|name| {
                let listed = name.parse().map(|listed| self.current(listed));
                listed == Ok(current)
            })
        })
    }

    /// Notes about former IDs that a list still names.
    pub(super) fn notes(&self, list: Option<&[String]>) -> Vec<String> {
        let list = list.unwrap_or_default();
        let listed = |id: i64| list.contains(&id.to_string());
        let changes = self.migrated.keys().filter(|old| listed(**old));
        let outdated = changes.filter(|old| !listed(self.current(**old)));
        let notes = outdated.map(|old| {
            let new = self.current(*old);
            format!("chat {old} is now {new}, replace it in `chats`")
        });
        notes.collect()
    }
}

/// The known changes of one connection.
pub(super) struct Chats {
    gateway: Gateway,
    migrations: Mutex<Migrations>,
}

impl Chats {
    /// Loads the stored changes; retries until it succeeds.
    pub(super) async fn load(gateway: Gateway) -> Self {
        let migrations = gateway.stored("new IDs of chats").await;
        Self {
            gateway,
            migrations: Mutex::new(migrations),
        }
    }

    pub(super) fn migrations(&self) -> Migrations {
        let known = self.migrations.lock();
        known.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The current ID of a chat that is named by its ID; other names stay.
    pub(super) fn current(&self, name: &str) -> String {
        name.parse().map_or_else(
            |_name| name.to_owned(),
            |id| self.migrations().current(id).to_string(),
        )
    }

    /// Records that a group has a new ID. Durable when it returns.
    ///
    /// # Errors
    ///
    /// A description of why it could not be stored. The change is known anyway.
    pub(super) async fn learn(&self, old: i64, new: i64) -> Result<(), String> {
        let known = {
            let known = self.migrations.lock();
            let mut known = known.unwrap_or_else(PoisonError::into_inner);
            if known.migrated.len() >= CHATS_MIGRATED_MAX || !known.add(old, new) {
                return Ok(());
            }
            known.clone()
        };
        tracing::warn!(
            chat = old,
            now = new,
            "a group became a supergroup with a new ID; its conversation continues"
        );
        self.gateway.keep_fields(&known).await
    }

    /// Calls a method in a chat. If the chat has a new ID, the call is repeated there.
    ///
    /// # Errors
    ///
    /// As [`Api::call`].
    pub(super) async fn call(
        &self,
        api: &Api,
        method: &str,
        params: &Value,
    ) -> Result<Value, ApiError> {
        let timeout = Duration::from_millis(SERVICE_TIMEOUT_MS);
        let called = api.call(method, params, timeout).await;
        let chat = params.get("chat_id").and_then(Value::as_i64);
        let (Err(ApiError::Migrated { to }), Some(chat)) = (&called, chat) else {
            return called;
        };
        if let Err(reason) = self.learn(chat, *to).await {
            tracing::warn!(
                reason,
                chat,
                now = *to,
                "failed to store the new ID of a chat"
            );
        }
        let mut moved = params.clone();
        if let Some(fields) = moved.as_object_mut() {
            fields.insert("chat_id".to_owned(), Value::from(*to));
        }
        api.call(method, &moved, timeout).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conn_1_settings_of_a_group_hold_for_its_new_id() {
        let mut migrations = Migrations::default();
        assert!(migrations.add(-100, -1001));
        assert!(!migrations.add(-100, -1001));
        assert!(!migrations.add(-1001, -100), "a cycle");
        assert!(migrations.add(-1001, -1002));
        assert!(!migrations.add(-1001, -100), "a cycle");
        assert_eq!(migrations.current(-100), -1002);
        assert_eq!(migrations.first(-1002), -100);
        assert_eq!((migrations.current(-5), migrations.first(-5)), (-5, -5));
        let old = ["-100".to_owned(), "@name".to_owned()];
        for id in [-100, -1001, -1002] {
            assert!(migrations.is_listed(Some(&old), id));
        }
        assert!(!migrations.is_listed(Some(&old), -5));
        assert!(migrations.is_listed(None, -5));
        assert_eq!(
            migrations.notes(Some(&old)),
            ["chat -100 is now -1002, replace it in `chats`"]
        );
        let both = ["-100".to_owned(), "-1002".to_owned()];
        assert!(migrations.notes(Some(&both)).is_empty());
        let stored = serde_json::to_string(&migrations).unwrap();
        assert_eq!(stored, r#"{"migrated":{"-1001":-1002,"-100":-1001}}"#);
        assert_eq!(
            serde_json::from_str::<Migrations>(&stored).unwrap(),
            migrations
        );
    }
}
