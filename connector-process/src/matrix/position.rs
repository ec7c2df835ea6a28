//! State of a connection that survives restarts: the position in the homeserver's events, and the
//! encrypted rooms that have the notice about it.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::gateway::Gateway;
use crate::limits::MATRIX_ENCRYPTED_ROOMS_MAX;

/// The position after the last processed answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Position {
    /// The account that it belongs to.
    pub(super) user: String,
    /// The position as the homeserver names it.
    pub(super) since: String,
}

/// Fields of the connection's state.
#[derive(Debug, Default, Deserialize)]
pub(super) struct StoredPosition {
    #[serde(default)]
    pub(super) position: Option<Position>,
    #[serde(default)]
    pub(super) encrypted: EncryptedRooms,
}

impl Position {
    /// Loads the state. Retries until it succeeds.
    pub(super) async fn load(gateway: &Gateway) -> StoredPosition {
        gateway.stored("position at the homeserver").await
    }

    /// Stores the position. Durable when it returns.
    ///
    /// # Errors
    ///
    /// A description of the failure.
    pub(super) async fn keep(&self, gateway: &Gateway) -> Result<(), String> {
        gateway.keep_fields(&json!({"position": self})).await
    }
}

/// Rooms that have the notice; of more than [`MATRIX_ENCRYPTED_ROOMS_MAX`], the latest.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct EncryptedRooms(VecDeque<String>);

impl EncryptedRooms {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn has(&self, room: &str) -> bool {
        self.0.iter().any(|known| known == room)
    }

    fn push(&mut self, room: &str) {
        if self.0.len() >= MATRIX_ENCRYPTED_ROOMS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(room.to_owned());
    }

    /// Adds a room. Durable when it returns.
    ///
    /// # Errors
    ///
    /// A description of the failure.
    pub(super) async fn add(&mut self, room: &str, gateway: &Gateway) -> Result<(), String> {
        self.push(room);
        gateway.keep_fields(&json!({"encrypted": self})).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conn_1_position_and_encrypted_rooms_have_a_stored_form() {
        let mut encrypted = EncryptedRooms::default();
        for number in 0..=MATRIX_ENCRYPTED_ROOMS_MAX {
            encrypted.push(&format!("!{number}:x"));
        }
        assert_eq!(encrypted.len(), MATRIX_ENCRYPTED_ROOMS_MAX);
        assert!(!encrypted.has("!0:x") && encrypted.has("!1:x"));
        let position = Position {
            user: "@bot:x".to_owned(),
            since: "s1_2".to_owned(),
        };
        let state = json!({"position": position, "encrypted": encrypted, "callbacks": []});
        let read: StoredPosition = serde_json::from_value(state).unwrap();
        assert_eq!(read.position.unwrap(), position);
        assert_eq!(read.encrypted, encrypted);
        let empty: StoredPosition = serde_json::from_value(json!({})).unwrap();
        assert_eq!(empty.encrypted.len(), 0);
    }
}
