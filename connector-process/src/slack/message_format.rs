//! Formats messages of a channel or a thread for agents. Pure.

use goondan_protocol::time::Timestamp;
use serde_json::{Value, json};

use super::description::message_words;
use crate::payload::text;
use crate::service::masked;

/// The last messages of the pages read so far, oldest first.
#[derive(Debug)]
pub(super) struct LastMessages {
    messages: Vec<Value>,
    limit: usize,
    has_more: bool,
}

impl LastMessages {
    /// Keeps the last `limit` messages.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            messages: Vec::new(),
            limit,
            has_more: false,
        }
    }

    /// Adds a page of a thread, which starts with the oldest message. Returns the cursor of the
    /// next page, if any.
    pub(super) fn take_thread<'p>(&mut self, page: &'p Value, token: &str) -> Option<&'p str> {
        self.messages.extend(written(page, token));
        self.keep_last();
        let cursor = text(page, "/response_metadata/next_cursor")?;
        (!cursor.is_empty()).then_some(cursor)
    }

    /// Adds a page of a channel, which starts with the newest message.
    pub(super) fn take_channel(&mut self, page: &Value, token: &str) {
        self.messages.extend(written(page, token));
        self.messages.reverse();
        self.has_more = page.get("has_more") == Some(&Value::Bool(true));
        self.keep_last();
    }

    fn keep_last(&mut self) {
        let surplus = self.messages.len().saturating_sub(self.limit);
        self.messages.drain(..surplus);
        self.has_more |= surplus > 0;
    }

    pub(super) fn into_answer(self) -> Value {
        json!({"messages": self.messages, "hasMore": self.has_more})
    }
}

/// A page as Slack has it: its messages, and the cursor of the next page.
pub(super) fn page_of(page: &Value, token: &str) -> Value {
    let messages = page.get("messages").and_then(Value::as_array);
    let messages = messages.into_iter().flatten();
    let messages = messages.filter(|message| message.is_object());
    let messages: Vec<Value> = messages
        .map(|message| masked_within(message, token))
        .collect();
    let cursor = text(page, "/response_metadata/next_cursor").map(str::trim);
    json!({
        "messages": messages, "hasMore": page.get("has_more") == Some(&Value::Bool(true)),
        "nextCursor": cursor.filter(|cursor| !cursor.is_empty()),
    })
}

/// A value whose texts do not contain the token.
fn masked_within(value: &Value, token: &str) -> Value {
    match value {
        Value::String(said) => json!(masked(said.clone(), &[token])),
        Value::Array(items) => items.iter().map(|it| masked_within(it, token)).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), masked_within(value, token)))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// The messages of a page that have words, in the page's order.
fn written(page: &Value, token: &str) -> Vec<Value> {
    let messages = page.get("messages").and_then(Value::as_array);
    let shown = messages.into_iter().flatten().filter_map(|message| {
        let said = Some(message_words(message)).filter(|said| !said.trim().is_empty())?;
        let ts = text(message, "/ts")?;
        let mut authors = ["/user", "/username", "/bot_id"].into_iter();
        Some(json!({
            "ts": ts,
            "author": authors.find_map(|name| text(message, name)),
            "time": time_of(ts),
            "text": masked(said, &[token]),
        }))
    });
    shown.collect()
}

/// Time of a message: its `ts` is seconds and a disambiguating number.
fn time_of(ts: &str) -> Option<Timestamp> {
    let (seconds, _) = ts.split_once('.')?;
    let millis = seconds.parse::<i64>().ok()?.checked_mul(1_000)?;
    Some(Timestamp::from_unix_millis(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(ts: &str, said: &str) -> Value {
        json!({"ts": ts, "user": "U1", "text": said})
    }

    fn texts(last: LastMessages) -> (Vec<String>, bool) {
        let answer = last.into_answer();
        let messages = answer["messages"].as_array().unwrap();
        let texts = messages.iter().map(|it| it["text"].as_str().unwrap());
        (
            texts.map(str::to_owned).collect(),
            answer["hasMore"] == true,
        )
    }

    #[test]
    fn of_a_thread_the_last_messages_of_all_pages_are_kept() {
        let mut last = LastMessages::new(3);
        let page = json!({
            "messages": [message("1.0", "a"), message("2.0", "b")],
            "response_metadata": {"next_cursor": "more"},
        });
        assert_eq!(last.take_thread(&page, ""), Some("more"));
        let page = json!({
            "messages": [message("3.0", "c"), message("4.0", " "), message("5.0", "d")],
            "response_metadata": {"next_cursor": ""},
        });
        assert_eq!(last.take_thread(&page, ""), None);
        assert_eq!(
            texts(last),
            (vec!["b".into(), "c".into(), "d".into()], true)
        );
    }

    #[test]
    fn slack_channel_is_listed_from_its_oldest_message() {
        let mut last = LastMessages::new(5);
        let page =
            json!({"messages": [message("2.0", "b"), message("1.0", "a")], "has_more": false});
        last.take_channel(&page, "");
        assert_eq!(texts(last), (vec!["a".into(), "b".into()], false));
    }

    #[test]
    fn compat_2_a_page_has_the_messages_as_slack_has_them() {
        let newest =
            json!({"ts": "2.0", "user": "U1", "text": "a &amp; the-token", "reactions": []});
        let page = json!({
            "ok": true, "has_more": true, "messages": [newest, message("1.0", "b"), "no message"],
            "response_metadata": {"next_cursor": "next"},
        });
        let shown = json!({"ts": "2.0", "user": "U1", "text": "a &amp; …", "reactions": []});
        let expected = json!({
            "messages": [shown, message("1.0", "b")], "hasMore": true, "nextCursor": "next",
        });
        assert_eq!(page_of(&page, "the-token"), expected);
        let last = json!({"messages": [], "response_metadata": {"next_cursor": ""}});
        let expected = json!({"messages": [], "hasMore": false, "nextCursor": null});
        assert_eq!(page_of(&last, "the-token"), expected);
    }

    #[test]
    fn conn_1_alerts_and_files_are_read_as_well() {
        let mut last = LastMessages::new(5);
        let alert =
            json!({"ts": "1.0", "bot_id": "B1", "attachments": [{"fallback": "disk full"}]});
        let file = json!({"ts": "2.0", "user": "U1", "files": [{"id": "F1", "name": "a.png"}]});
        last.take_thread(
            &json!({"messages": [alert, file, message("3.0", "why?")]}),
            "",
        );
        let expected =
            ["[attachment] disk full", "[File: a.png, ID F1]", "why?"].map(str::to_owned);
        assert_eq!(texts(last), (expected.to_vec(), false));
    }

    #[test]
    fn a_message_has_author_and_time_and_no_secret() {
        let mut last = LastMessages::new(5);
        let bot = json!({"ts": "1700000000.000100", "bot_id": "B1", "text": "a &amp; the-token"});
        last.take_thread(&json!({"messages": [bot, {"text": "no ts"}]}), "the-token");
        let expected = json!({"ts": "1700000000.000100", "author": "B1", "time": "2023-11-14T22:13:20.000Z", "text": "a & …"});
        assert_eq!(last.into_answer()["messages"], json!([expected]));
    }
}
