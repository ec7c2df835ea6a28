//! Names and members of rooms, as far as messages need them. Kept in memory and loaded on demand.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde_json::Value;

use super::api::{Api, ApiError};
use super::sync::MEMBER;
use crate::limits::MATRIX_ROOMS_MAX;
use crate::payload::{one_line, text};

/// Number of members of a direct room: the account, and a person who may have left.
const DIRECT_MEMBERS: RangeInclusive<usize> = 1..=2;

/// Event types that change the name of a room.
const NAMES: [&str; 2] = ["m.room.name", "m.room.canonical_alias"];

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) name: Option<String>,
    /// Display names of its members.
    pub(super) members: BTreeMap<String, String>,
}

impl Room {
    async fn load(api: &Api, room: &str) -> Result<Self, ApiError> {
        let path = ["client", "v3", "rooms", room, "joined_members"];
        let joined = api.find(&path).await?.unwrap_or_default();
        let joined = joined.get("joined").and_then(Value::as_object);
        let members = joined.into_iter().flatten().map(|(user, member)| {
            let name = name_of(user, text(member, "/display_name"));
            (user.clone(), name)
        });
        let members = members.collect();
        let named = state(api, room, "m.room.name").await?;
        let mut name = named.and_then(|content| line(&content, "/name"));
        if name.is_none() {
            let alias = state(api, room, "m.room.canonical_alias").await?;
            name = alias.and_then(|content| line(&content, "/alias"));
        }
        Ok(Self { name, members })
    }

    pub(super) fn is_direct(&self) -> bool {
        DIRECT_MEMBERS.contains(&self.members.len())
    }

    /// The display name of a user; without one, the ID.
    pub(super) fn name_of(&self, user: &str) -> String {
        let known = self.members.get(user).cloned();
        known.unwrap_or_else(|| user.to_owned())
    }

    fn apply_member(&mut self, event: &Value) {
        let Some(user) = text(event, "/state_key") else {
            return;
        };
        if text(event, "/content/membership") == Some("join") {
            let name = name_of(user, text(event, "/content/displayname"));
            self.members.insert(user.to_owned(), name);
        } else {
            self.members.remove(user);
        }
    }
}

/// The content of a state event, if the room has it.
async fn state(api: &Api, room: &str, kind: &str) -> Result<Option<Value>, ApiError> {
    let path = ["client", "v3", "rooms", room, "state", kind];
    api.find(&path).await
}

fn line(content: &Value, pointer: &str) -> Option<String> {
    let line = one_line(text(content, pointer)?);
    (!line.is_empty()).then_some(line)
}

fn name_of(user: &str, name: Option<&str>) -> String {
    let name = name.map(one_line).filter(|name| !name.is_empty());
    name.unwrap_or_else(|| user.to_owned())
}

/// The rooms that are known; of more than [`MATRIX_ROOMS_MAX`], all are loaded again.
#[derive(Debug, Default)]
pub(super) struct Rooms(BTreeMap<String, Room>);

impl Rooms {
    /// A room, loaded if it is not known.
    ///
    /// # Errors
    ///
    /// [`ApiError`] if it cannot be loaded.
    pub(super) async fn find(&mut self, api: &Api, id: &str) -> Result<Room, ApiError> {
        if let Some(room) = self.0.get(id) {
            return Ok(room.clone());
        }
        let room = Room::load(api, id).await?;
        if self.0.len() >= MATRIX_ROOMS_MAX {
            self.0.clear();
        }
        self.0.insert(id.to_owned(), room.clone());
        Ok(room)
    }

    /// Forgets a room, so that it is loaded again.
    pub(super) fn forget(&mut self, id: &str) {
        self.0.remove(id);
    }

    /// Applies a change of a room's state.
    pub(super) fn apply(&mut self, id: &str, event: &Value) {
        match text(event, "/type") {
            Some(MEMBER) => {
                if let Some(room) = self.0.get_mut(id) {
                    room.apply_member(event);
                }
            }
            Some(kind) if NAMES.contains(&kind) => self.forget(id),
            Some(_) | None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn conn_1_members_of_a_room_follow_its_events() {
        let ann = "@ann:x";
        let member = |membership: &str, name: Option<&str>| {
            json!({"type": MEMBER, "state_key": ann,
                "content": {"membership": membership, "displayname": name}})
        };
        let mut rooms = Rooms::default();
        rooms.apply("!r:x", &member("join", None));
        assert!(rooms.0.is_empty());
        rooms.0.insert("!r:x".to_owned(), Room::default());
        rooms.apply("!r:x", &member("join", Some("Ann\nLee")));
        assert_eq!(rooms.0["!r:x"].name_of(ann), "Ann Lee");
        assert!(rooms.0["!r:x"].is_direct());
        rooms.apply("!r:x", &member("join", None));
        assert_eq!(rooms.0["!r:x"].name_of(ann), ann);
        rooms.apply("!r:x", &member("leave", None));
        assert!(rooms.0["!r:x"].members.is_empty());
        rooms.apply(
            "!r:x",
            &json!({"type": "m.room.name", "content": {"name": "New"}}),
        );
        assert!(rooms.0.is_empty());
    }
}
