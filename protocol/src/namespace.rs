//! Names of a connection's events and conversations in the orchestrator's namespace (`SEC-9`).
//!
//! A connector chooses ids for its events and keys for its conversations. Prefixed with the name of
//! the connection, they cannot collide with those of another connection.

use sha2::{Digest as _, Sha256};

use crate::ids::{ConnectionName, EventId, InvalidId};

/// Namespaces a text by its connection: `<connection>:<text>`, or the connection's name itself. A
/// text that begins with the name already is returned as it is.
#[must_use]
pub fn within_connection(connection: &ConnectionName, text: &str) -> String {
    let rest = text.strip_prefix(connection.as_str());
    if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':')) {
        return text.to_owned();
    }
    format!("{connection}:{text}")
}

/// Namespaces the id of a connector's event. An id that becomes too long is replaced by its
/// checksum.
///
/// # Errors
///
/// [`InvalidId`] if even that is too long, because the connection's name is.
pub fn event_id_within(connection: &ConnectionName, said: &EventId) -> Result<EventId, InvalidId> {
    let whole = within_connection(connection, said.as_str());
    EventId::new(&*whole).or_else(|_too_long| {
        let sum = Sha256::digest(said.as_str());
        EventId::new(format!("{connection}:{}", hex::encode(sum)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sec_9_ids_of_events_are_within_their_connection() {
        let connection: ConnectionName = "hook".parse().unwrap();
        let id = |said: &str| event_id_within(&connection, &said.parse().unwrap()).unwrap();
        assert_eq!(id("1").as_str(), "hook:1");
        assert_eq!(id("hook:1"), id("1"));
        let (long, other) = ("x".repeat(256), "y".repeat(256));
        assert_ne!(id(&long), id(&other));
        assert!(id(&long).as_str().starts_with("hook:"));
    }
}
