//! Parses answers of `/sync`. Pure.

use serde_json::{Value, json};

use super::api::ApiError;
use crate::payload::text;

/// Most events of a room in one answer; earlier ones are requested separately.
const TIMELINE_EVENTS: u64 = 100;

/// Type of the events about members.
pub(super) const MEMBER: &str = "m.room.member";

/// The part of an answer that the connector uses.
#[derive(Debug, Default, PartialEq)]
pub(super) struct SyncResponse {
    /// The position after it.
    pub(super) next: String,
    pub(super) rooms: Vec<SyncedRoom>,
    pub(super) invitations: Vec<Invitation>,
    /// Rooms that the account has left.
    pub(super) left: Vec<String>,
}

/// News of a room that the account has joined.
#[derive(Debug, PartialEq)]
pub(super) struct SyncedRoom {
    pub(super) id: String,
    /// Changes of its state before `events`.
    pub(super) state: Vec<Value>,
    /// Its latest events, oldest first.
    pub(super) events: Vec<Value>,
    /// The position before `events`, if there are events between the two positions.
    pub(super) gap: Option<String>,
}

/// An invitation of the account to a room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Invitation {
    pub(super) room: String,
    pub(super) inviter: String,
}

/// Filter of the parts that are requested: nothing but rooms, and with `has_events` their events.
pub(super) fn filter(has_events: bool) -> String {
    let none = || json!({"not_types": ["*"]});
    let (state, timeline) = if has_events {
        let members = json!({"lazy_load_members": true});
        let timeline = json!({"limit": TIMELINE_EVENTS, "lazy_load_members": true});
        (members, timeline)
    } else {
        (none(), none())
    };
    let room = json!({"state": state, "timeline": timeline, "ephemeral": none(),
        "account_data": none()});
    json!({"presence": none(), "account_data": none(), "room": room}).to_string()
}

fn events(value: &Value, pointer: &str) -> Vec<Value> {
    let list = value.pointer(pointer).and_then(Value::as_array);
    list.cloned().unwrap_or_default()
}

/// Parses an answer. `own` is the account.
///
/// # Errors
///
/// [`ApiError`] if it has no position.
pub(super) fn to_synced(answer: &Value, own: &str) -> Result<SyncResponse, ApiError> {
    let next = text(answer, "/next_batch").map(str::to_owned);
    let next = next.ok_or_else(|| ApiError::Strange("a sync without `next_batch`".to_owned()))?;
    let of = |pointer| {
        let rooms = answer.pointer(pointer).and_then(Value::as_object);
        rooms.into_iter().flatten()
    };
    let rooms = of("/rooms/join").map(|(id, room)| {
        let is_limited = room.pointer("/timeline/limited") == Some(&Value::Bool(true));
        let gap = text(room, "/timeline/prev_batch").filter(|_| is_limited);
        SyncedRoom {
            id: id.clone(),
            state: events(room, "/state/events"),
            events: events(room, "/timeline/events"),
            gap: gap.map(str::to_owned),
        }
    });
    let invitations = of("/rooms/invite").map(|(room, invited)| {
        let state = events(invited, "/invite_state/events");
        let own_member = state.iter().find(|event| is_own_member(event, own));
        let inviter = own_member.and_then(|event| text(event, "/sender"));
        Invitation {
            room: room.clone(),
            inviter: inviter.unwrap_or_default().to_owned(),
        }
    });
    Ok(SyncResponse {
        next,
        rooms: rooms.collect(),
        invitations: invitations.collect(),
        left: of("/rooms/leave").map(|(id, _)| id.clone()).collect(),
    })
}

fn is_own_member(event: &Value, own: &str) -> bool {
    text(event, "/type") == Some(MEMBER) && text(event, "/state_key") == Some(own)
}

fn membership(event: &Value) -> Option<&str> {
    text(event, "/content/membership")
}

/// Position of the event with which the account came into a room: its invitation, because people
/// can write before it is accepted, or its joining without one. An invitation that is not among the
/// events was earlier.
pub(super) fn arrival(events: &[Value], own: &str) -> Option<usize> {
    let is_invitation =
        |event: &Value| is_own_member(event, own) && membership(event) == Some("invite");
    let is_joining = |event: &Value| {
        let before = text(event, "/unsigned/prev_content/membership");
        let is_new = !matches!(before, Some("join" | "invite"));
        is_own_member(event, own) && membership(event) == Some("join") && is_new
    };
    let invited = events.iter().rposition(is_invitation);
    invited.or_else(|| events.iter().rposition(is_joining))
}

/// The events since the account came into the room; all if it was there before.
pub(super) fn since_arrival(mut events: Vec<Value>, own: &str) -> Vec<Value> {
    match arrival(&events, own) {
        Some(at) => events.split_off(at + 1),
        None => events,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "@bot:example.test";

    fn member(membership: &str, before: Option<&str>) -> Value {
        let before = before.map(|before| json!({"membership": before}));
        json!({"type": MEMBER, "state_key": OWN, "sender": "@ada:example.test",
            "content": {"membership": membership}, "unsigned": {"prev_content": before}})
    }

    /// An answer of Synapse 1.163.2.
    #[test]
    fn conn_1_invitation_and_messages_of_a_sync_are_found() {
        let answer = json!({
            "next_batch": "s10_3_0_1_1_1_1_3_0_1_1_1_1_1",
            "device_one_time_keys_count": {"signed_curve25519": 0},
            "device_unused_fallback_key_types": [],
            "rooms": {
                "invite": {"!A1DfgZSB7xCKf2_9DboL6d6hXYm4UgUK6eUdQCZJT4g": {"invite_state": {"events": [
                    {"content": {"room_version": "12"}, "sender": "@ada:example.test", "state_key": "",
                        "type": "m.room.create"},
                    {"content": {"displayname": "Ada Lovelace", "membership": "join"},
                        "sender": "@ada:example.test", "state_key": "@ada:example.test",
                        "type": "m.room.member"},
                    {"type": "m.room.member", "state_key": OWN, "sender": "@ada:example.test",
                        "content": {"displayname": "Goon Bot", "is_direct": true,
                            "membership": "invite"}},
                ]}}},
                "join": {"!V1ty-dkNqxnPCK6Mwpv6_RD_v-QPxfCebeN-UMyID38": {
                    "timeline": {"events": [{"content": {"body": "n29", "msgtype": "m.text"},
                        "event_id": "$gtcFl6MzjLC3rEIwYX8xWQuISPlomDDXb2Ay1rmjwi0",
                        "origin_server_ts": 1_796_001_182_555_u64, "sender": "@ada:example.test",
                        "type": "m.room.message", "unsigned": {"age": 2585, "membership": "join"}}],
                        "prev_batch": "s67_6_2_1_1_1_1_5_0_1_1_1_1_1", "limited": true},
                    "state": {"events": []}, "account_data": {"events": []},
                    "ephemeral": {"events": []}, "summary": {},
                    "unread_notifications": {"notification_count": 7, "highlight_count": 2}}},
            },
        });
        let synced = to_synced(&answer, OWN).unwrap();
        assert_eq!(synced.next, "s10_3_0_1_1_1_1_3_0_1_1_1_1_1");
        let invitation = Invitation {
            room: "!A1DfgZSB7xCKf2_9DboL6d6hXYm4UgUK6eUdQCZJT4g".to_owned(),
            inviter: "@ada:example.test".to_owned(),
        };
        assert_eq!(synced.invitations, [invitation]);
        let [room] = synced.rooms.as_slice() else {
            panic!("{:?}", synced.rooms);
        };
        assert_eq!(room.gap.as_deref(), Some("s67_6_2_1_1_1_1_5_0_1_1_1_1_1"));
        assert_eq!(room.events[0]["content"]["body"], "n29");
        assert_eq!(arrival(&room.events, OWN), None);
        assert!(to_synced(&json!({}), OWN).is_err());
        let nothing = to_synced(&json!({"next_batch": "s1"}), OWN).unwrap();
        assert_eq!((nothing.rooms.len(), nothing.left.len()), (0, 0));
    }

    #[test]
    fn conn_1_messages_count_since_the_invitation() {
        let said = |body: &str| json!({"type": "m.room.message", "content": {"body": body}});
        let invited = vec![
            said("old"),
            member("invite", None),
            said("before joining"),
            member("join", Some("invite")),
            said("after"),
        ];
        let kept = since_arrival(invited, OWN);
        assert_eq!(kept.len(), 3);
        assert_eq!(kept[0]["content"]["body"], "before joining");
        let joined = vec![said("old"), member("join", None), said("after")];
        assert_eq!(since_arrival(joined, OWN).len(), 1);
        // The invitation was before these events.
        let accepted = vec![
            said("before joining"),
            member("join", Some("invite")),
            said("after"),
        ];
        assert_eq!(since_arrival(accepted, OWN).len(), 3);
        // A changed name is not an arrival.
        let named = vec![said("old"), member("join", Some("join")), said("after")];
        assert_eq!(since_arrival(named, OWN).len(), 3);
    }
}
