//! Reads conversations for users (`MSG-4`, `OBS-1`): pages, and single messages in full.

use goondan_protocol::control::{
    ConversationPage, GetMessage, History, InstanceHistory, InstancePage, TruncatedMessage,
    WholeMessage,
};
use goondan_protocol::ids::InstanceRef;
use goondan_protocol::limits::SHOWN_TEXT_BYTES;
use goondan_protocol::message::{Message, MessageEvent};
use goondan_store::StoreError;
use goondan_store::instance::ConversationSlice;
use goondan_store::writer::operation::{LatestPage, ReadMessage, ReadPage, ReadPageBefore};

use crate::jobs::continuation;
use crate::{Core, RequestToken, control_error};

continuation! {
    /// Reads a page of a conversation for a client.
    ReadingHistory { token: RequestToken } after ReadPage => &core.on_page_for_client
}

continuation! {
    /// Reads a page of a conversation, backward from its end, for a client.
    ReadingPage { token: RequestToken, whole: bool } after ReadPageBefore => &core.on_page_before
}

continuation! {
    ReadingMessage { token: RequestToken } after ReadMessage => &core.on_message_for_client
}

impl Core {
    pub(super) fn read_history(&mut self, token: RequestToken, history: InstanceHistory) {
        let InstanceHistory {
            workspace_id,
            instance_key,
            offset,
        } = history;
        self.with_instance(token, workspace_id, instance_key, |instance| {
            let read = ReadPage {
                instance: instance.clone(),
                offset,
                states_of: Vec::new(),
            };
            (read, ReadingHistory { instance, token })
        });
    }

    pub(super) fn read_page_before(&mut self, token: RequestToken, page: InstancePage) {
        let InstancePage {
            workspace_id,
            instance_key,
            before,
            limit,
            whole,
        } = page;
        self.with_instance(token, workspace_id, instance_key, |instance| {
            let read = ReadPageBefore {
                instance: instance.clone(),
                before,
                limit,
            };
            let then = ReadingPage {
                instance,
                token,
                whole,
            };
            (read, then)
        });
    }

    pub(super) fn read_message(&mut self, token: RequestToken, get: GetMessage) {
        let GetMessage {
            workspace_id,
            instance_key,
            message_id,
            offset,
        } = get;
        self.with_instance(token, workspace_id, instance_key, |instance| {
            let read = ReadMessage {
                instance: instance.clone(),
                message_id,
                offset,
            };
            (read, ReadingMessage { instance, token })
        });
    }

    fn on_page_for_client(
        &mut self,
        reading: &ReadingHistory,
        result: Result<Box<ConversationSlice>, StoreError>,
    ) {
        match result {
            Ok(page) => {
                let history = PageMessages::on(&page).into_history(page.next);
                self.fleet.respond(reading.token, &history);
            }
            Err(error) => self
                .fleet
                .respond_error(reading.token, control_error(&error)),
        }
    }

    fn on_page_before(&mut self, reading: &ReadingPage, result: Result<LatestPage, StoreError>) {
        match result {
            Ok(LatestPage { page, total }) => {
                let mut shown = PageMessages::on(&page);
                let cut = if reading.whole {
                    Vec::new()
                } else {
                    shown.cut_texts()
                };
                let answer = ConversationPage {
                    history: shown.into_history(page.next),
                    previous: page.previous,
                    total,
                    cut,
                };
                self.fleet.respond(reading.token, &answer);
            }
            Err(error) => self
                .fleet
                .respond_error(reading.token, control_error(&error)),
        }
    }

    fn on_message_for_client(
        &mut self,
        reading: &ReadingMessage,
        result: Result<Box<Message>, StoreError>,
    ) {
        match result {
            Ok(message) => {
                let message = *message;
                self.fleet.respond(reading.token, &WholeMessage { message });
            }
            Err(error) => self
                .fleet
                .respond_error(reading.token, control_error(&error)),
        }
    }
}

/// A message and its offset in the base; `None` for messages of the open turn.
struct MessageAtOffset {
    message: Message,
    offset: Option<u64>,
}

/// Messages of a page and of the open turn, with the turn's edits applied.
struct PageMessages {
    messages: Vec<MessageAtOffset>,
    pending: Vec<MessageAtOffset>,
}

impl PageMessages {
    fn on(page: &ConversationSlice) -> Self {
        let messages = page.messages.iter().zip(&page.places);
        let messages = messages.filter_map(|(raw, offset)| {
            Some(MessageAtOffset {
                message: serde_json::from_slice(raw).ok()?,
                offset: Some(*offset),
            })
        });
        let events = page.events.iter();
        let events = events.filter_map(|raw| serde_json::from_str(raw.get()).ok());
        Self::of(messages.collect(), events)
    }

    fn of(messages: Vec<MessageAtOffset>, events: impl Iterator<Item = MessageEvent>) -> Self {
        let (mut messages, mut pending) = (messages, Vec::<MessageAtOffset>::new());
        for event in events {
            match event {
                MessageEvent::Append { message } => pending.push(MessageAtOffset {
                    message,
                    offset: None,
                }),
                MessageEvent::Replace { target_id, message } => {
                    let mut all = messages.iter_mut().chain(&mut pending);
                    if let Some(found) = all.find(|found| found.message.id == target_id) {
                        found.message = message;
                    }
                }
                MessageEvent::Remove { target_id } => {
                    let at = |list: &[MessageAtOffset]| {
                        let mut list = list.iter();
                        list.position(|found| found.message.id == target_id)
                    };
                    if let Some(at) = at(&messages) {
                        messages.remove(at);
                    } else if let Some(at) = at(&pending) {
                        pending.remove(at);
                    }
                }
                MessageEvent::Truncate => {
                    messages.clear();
                    pending.clear();
                }
            }
        }
        Self { messages, pending }
    }

    /// Truncates long texts and returns the affected messages.
    fn cut_texts(&mut self) -> Vec<TruncatedMessage> {
        let all = self.messages.iter_mut().chain(&mut self.pending);
        all.filter_map(|MessageAtOffset { message, offset }| {
            message
                .cut_texts(SHOWN_TEXT_BYTES)
                .then(|| TruncatedMessage {
                    message_id: message.id.clone(),
                    offset: *offset,
                })
        })
        .collect()
    }

    fn into_history(self, next: Option<u64>) -> History {
        let messages =
            |list: Vec<MessageAtOffset>| list.into_iter().map(|placed| placed.message).collect();
        History {
            messages: messages(self.messages),
            pending: messages(self.pending),
            next,
        }
    }
}

#[cfg(test)]
mod tests {
    use goondan_protocol::time::Timestamp;

    use super::*;

    #[test]
    fn msg_4_a_history_is_shown_as_the_open_turn_leaves_it() {
        let message =
            |id: &str| Message::user(id.parse().unwrap(), Timestamp::from_unix_millis(0), id);
        let append = |id: &str| MessageEvent::Append {
            message: message(id),
        };
        let remove = |id: &str| MessageEvent::Remove {
            target_id: id.parse().unwrap(),
        };
        let replace = |id: &str, by: &str| MessageEvent::Replace {
            target_id: id.parse().unwrap(),
            message: message(by),
        };
        let shown = |events: Vec<MessageEvent>| {
            let base = ["a", "b", "c"].map(message).into_iter().zip([0, 10, 20]);
            let base = base.map(|(message, offset)| MessageAtOffset {
                message,
                offset: Some(offset),
            });
            let shown = PageMessages::of(base.collect(), events.into_iter());
            let ids =
                |list: &[MessageAtOffset]| list.iter().map(|m| m.message.id.to_string()).collect();
            (ids(&shown.messages), ids(&shown.pending))
        };
        let both = |base: &str, pending: &str| (base.to_owned(), pending.to_owned());
        assert_eq!(shown(vec![append("d"), remove("b")]), both("ac", "d"));
        assert_eq!(
            shown(vec![
                append("d"),
                append("e"),
                remove("d"),
                replace("e", "f"),
                replace("c", "g")
            ]),
            both("abg", "f")
        );
        assert_eq!(
            shown(vec![append("d"), MessageEvent::Truncate, append("e")]),
            both("", "e")
        );
        assert_eq!(
            shown(vec![remove("zz"), replace("zz", "y")]),
            both("abc", "")
        );
    }
}
