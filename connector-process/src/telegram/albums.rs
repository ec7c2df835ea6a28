//! Albums: photos, videos or files that a person sends together (`CONN-1`).
//!
//! Telegram delivers each as a message of its own, with the same `media_group_id`. They become one
//! event. Telegram keeps the messages until that event is on disk, because the position stays at
//! the first one. The event has the ID of the last one, so that a part of the album that is
//! delivered again is the same event.

use std::time::Duration;

use goondan_clock::Instant;
use goondan_protocol::event::{ConnectorEvent, PAYLOAD, PAYLOAD_BYTES};
use serde_json::{Value, json};

use super::description::integer;
use crate::limits::{TELEGRAM_ALBUM_MESSAGES_MAX, TELEGRAM_ALBUM_WAIT_MAX_MS};
use crate::payload::{add_payload, text};

/// Metadata with the files of a message.
const FILES: &str = "files";

/// Types of updates with messages of albums. An edit is of one message.
const KINDS: [&str; 2] = ["message", "channel_post"];

/// The chat and the group of an update that is part of an album.
fn group(update: &Value) -> Option<(i64, &str)> {
    let message = KINDS.iter().find_map(|kind| update.get(*kind))?;
    let group = text(message, "/media_group_id")?;
    Some((integer(message, "/chat/id")?, group))
}

/// The updates of the album to which the first one belongs; empty if it belongs to none.
pub(super) fn album(updates: &[Value]) -> Vec<&Value> {
    let Some(first) = updates.first().and_then(group) else {
        return Vec::new();
    };
    let parts = updates.iter().filter(|update| group(update) == Some(first));
    parts.collect()
}

/// Wait for further messages of an album.
#[derive(Debug)]
pub(super) struct AlbumWait {
    /// Its first update.
    first: i64,
    /// Its messages so far.
    messages: usize,
    since: Instant,
}

impl AlbumWait {
    /// True if further messages of the album with this first update can arrive. `wait` remembers
    /// the latest album.
    pub(super) fn expects_more(wait: &mut Option<Self>, first: i64, messages: usize) -> bool {
        let is_open = messages < TELEGRAM_ALBUM_MESSAGES_MAX;
        match wait {
            Some(wait) if wait.first == first => {
                let has_grown = messages > wait.messages;
                wait.messages = messages;
                let longest = Duration::from_millis(TELEGRAM_ALBUM_WAIT_MAX_MS);
                is_open && has_grown && Instant::now() - wait.since < longest
            }
            Some(_) | None => {
                *wait = Some(Self {
                    first,
                    messages,
                    since: Instant::now(),
                });
                is_open
            }
        }
    }
}

/// The event of an album, from those of its messages and their updates; `None` without messages.
pub(super) fn merged(events: Vec<ConnectorEvent>, updates: &[&Value]) -> Option<ConnectorEvent> {
    let mut events = events.into_iter();
    let mut whole = events.next()?;
    for mut event in events {
        for line in event.input.lines() {
            // Each message of a forwarded album has the same origin.
            let is_known = line.starts_with('[') && whole.input.lines().any(|it| it == line);
            if !is_known {
                whole.input.push('\n');
                whole.input.push_str(line);
            }
        }
        let files = event.metadata.get_mut(FILES).and_then(Value::as_array_mut);
        let known = whole.metadata.get_mut(FILES).and_then(Value::as_array_mut);
        if let (Some(files), Some(known)) = (files, known) {
            known.append(files);
        }
        if let Some(is_caption) = event.properties.remove("isCaption")
            && is_caption == true
        {
            whole.properties.insert("isCaption".to_owned(), is_caption);
        }
        whole.id = event.id;
    }
    whole.metadata.remove(PAYLOAD);
    whole.metadata.remove(PAYLOAD_BYTES);
    add_payload(&mut whole.metadata, &json!({ "updates": updates }));
    Some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telegram::chats::Migrations;
    use crate::telegram::updates::{Accepted, Update, to_update};

    fn photo(id: i64, chat: i64, caption: Option<&str>) -> Value {
        json!({"update_id": id, "message": {"message_id": id, "date": 1, "media_group_id": "g1",
            "chat": {"id": chat, "type": "private"}, "from": {"id": chat, "first_name": "Ann"},
            "caption": caption, "forward_origin": {"type": "hidden_user", "date": 1,
                "sender_user_name": "Bob"},
            "photo": [{"file_id": format!("P{id}"), "width": 90, "height": 90}]}})
    }

    fn event(update: &Value) -> ConnectorEvent {
        let id = update["update_id"].as_i64().unwrap();
        match to_update(id, update, &Accepted::default(), &Migrations::default()) {
            Update::Event { event, .. } => *event,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn conn_1_an_album_is_one_event_with_all_its_files() {
        let text = json!({"update_id": 2, "message": {"message_id": 2, "text": "hi",
            "chat": {"id": 7}}});
        let updates = [
            photo(1, 7, Some("two photos")),
            text,
            photo(3, 8, None),
            photo(4, 7, None),
        ];
        let parts = album(&updates);
        let ids: Vec<i64> = parts
            .iter()
            .map(|it| it["update_id"].as_i64().unwrap())
            .collect();
        assert_eq!(ids, [1, 4]);
        let whole = merged(parts.iter().map(|it| event(it)).collect(), &parts).unwrap();
        let lines: Vec<&str> = whole.input.lines().collect();
        assert_eq!(lines.len(), 4, "{lines:?}");
        assert_eq!((lines[0], lines[1]), ("[Forwarded from Bob]", "two photos"));
        assert!(
            lines[2].contains("P1") && lines[3].contains("P4"),
            "{lines:?}"
        );
        assert_eq!(whole.id.unwrap().as_str(), "telegram:4");
        assert_eq!(whole.metadata["files"].as_array().unwrap().len(), 2);
        assert_eq!(whole.metadata["messageId"], 1);
        assert_eq!(whole.metadata["payload"]["updates"][1]["update_id"], 4);
        assert_eq!(whole.properties["isCaption"], true);
        // The rest of an album that is delivered again is the same event.
        let rest = merged(vec![event(&updates[3])], &[&updates[3]]).unwrap();
        assert_eq!(rest.id.unwrap().as_str(), "telegram:4");
        assert!(album(&updates[1..]).is_empty());
    }

    #[test]
    fn conn_1_an_album_is_complete_when_no_more_messages_arrive() {
        let mut wait = None;
        assert!(AlbumWait::expects_more(&mut wait, 1, 1));
        assert!(AlbumWait::expects_more(&mut wait, 1, 3), "it has grown");
        assert!(!AlbumWait::expects_more(&mut wait, 1, 3));
        assert!(AlbumWait::expects_more(&mut wait, 9, 1), "another album");
        let most = TELEGRAM_ALBUM_MESSAGES_MAX;
        assert!(!AlbumWait::expects_more(&mut wait, 12, most));
    }
}
