//! Latest messages of the bot (`CONN-2`).
//!
//! A reaction names only the number of its message, so the bot records its own messages with their
//! topics. They are stored with the connection's state.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::gateway::Gateway;
use crate::limits::{TELEGRAM_SENT_CHARS_MAX, TELEGRAM_SENT_MAX};
use crate::payload::one_line;

/// A message of the bot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SentMessage {
    chat: i64,
    message: i64,
    /// The forum topic, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) thread: Option<i64>,
    /// Its start, in one line.
    pub(super) text: String,
}

impl SentMessage {
    pub(super) fn new((chat, message): (i64, i64), thread: Option<i64>, text: &str) -> Self {
        let line = one_line(text);
        let text = match line.char_indices().nth(TELEGRAM_SENT_CHARS_MAX) {
            Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
            None => line,
        };
        Self {
            chat,
            message,
            thread,
            text,
        }
    }
}

/// The stored form, beside other fields of the connection's state.
#[derive(Debug, Default, Serialize, Deserialize)]
struct StoredMessages {
    #[serde(default)]
    sent: VecDeque<SentMessage>,
}

/// Messages of the bot; of more than [`TELEGRAM_SENT_MAX`], the latest.
pub(super) struct SentMessages {
    gateway: Gateway,
    /// The latest last.
    messages: Mutex<VecDeque<SentMessage>>,
    /// Held while the messages are written, so that an older list never replaces a newer one.
    writing: tokio::sync::Mutex<()>,
}

impl SentMessages {
    /// Loads the stored messages; retries until it succeeds.
    pub(super) async fn load(gateway: Gateway) -> Self {
        let StoredMessages { sent } = gateway.stored("messages of the bot").await;
        Self {
            gateway,
            messages: Mutex::new(sent),
            writing: tokio::sync::Mutex::default(),
        }
    }

    fn messages(&self) -> MutexGuard<'_, VecDeque<SentMessage>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The message of the bot with this number, if it is one of the latest.
    pub(super) fn find(&self, chat: i64, message: i64) -> Option<SentMessage> {
        let messages = self.messages();
        let mut latest = messages.iter().rev();
        let found = latest.find(|sent| (sent.chat, sent.message) == (chat, message));
        found.cloned()
    }

    /// Records a message. Durable when it returns, unless the state cannot be stored; then its
    /// reactions are passed over after a restart.
    pub(super) async fn record(&self, message: SentMessage) {
        add(&mut self.messages(), message);
        let _writing = self.writing.lock().await;
        let sent = self.messages().clone();
        let stored = StoredMessages { sent };
        if let Err(reason) = self.gateway.keep_fields(&stored).await {
            tracing::warn!(reason, "failed to store a sent message");
        }
    }
}

fn add(messages: &mut VecDeque<SentMessage>, message: SentMessage) {
    if messages.len() >= TELEGRAM_SENT_MAX {
        messages.pop_front();
    }
    messages.push_back(message);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conn_2_sent_messages_are_bounded_and_have_a_stored_form() {
        let long = "a b\n".repeat(TELEGRAM_SENT_CHARS_MAX);
        let first = SentMessage::new((-5, 1), Some(40), &long);
        assert_eq!(first.text.chars().count(), TELEGRAM_SENT_CHARS_MAX + 1);
        let stored = serde_json::to_string(&SentMessage::new((7, 2), None, "Hi\nthere")).unwrap();
        assert_eq!(stored, r#"{"chat":7,"message":2,"text":"Hi there"}"#);
        let mut messages = VecDeque::from([first.clone()]);
        for number in 0..TELEGRAM_SENT_MAX {
            let number = i64::try_from(number).unwrap();
            add(&mut messages, SentMessage::new((7, number), None, "x"));
        }
        assert_eq!(messages.len(), TELEGRAM_SENT_MAX);
        assert!(!messages.contains(&first));
    }
}
