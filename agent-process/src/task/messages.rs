//! Converts a program's output to messages for the orchestrator. Pure.

use goondan_cli_agents::CliEvent;
use goondan_protocol::ipc::ToOrchestrator;
use goondan_protocol::limits::MAX_FRAME_BYTES;
use goondan_protocol::task::{OutputStream, TASK_OUTPUT_BYTES_MAX, TaskOutput, TaskTold};
use serde_json::value::{RawValue, to_raw_value};

/// Size of events at which a new message begins. A larger event is alone in its message.
const TOLD_BYTES: usize = 64 << 10;

/// Maximum bytes of one event, so that its message fits a frame.
const EVENT_BYTES_MAX: usize = MAX_FRAME_BYTES - (64 << 10);

/// Maximum bytes of an incomplete UTF-8 character.
const CUT_BYTES_MAX: usize = 3;

/// Decoder for one output, whose chunks may split a character.
#[derive(Debug)]
pub(super) struct Text {
    stream: OutputStream,
    cut: Vec<u8>,
}

impl Text {
    pub(super) fn of(stream: OutputStream) -> Self {
        Self {
            stream,
            cut: Vec::new(),
        }
    }

    /// Returns the messages for the next bytes. Invalid UTF-8 is replaced.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<ToOrchestrator> {
        let mut whole = std::mem::take(&mut self.cut);
        whole.extend_from_slice(bytes);
        self.cut = whole.split_off(whole.len() - cut_off(&whole));
        self.messages(&whole)
    }

    pub(super) fn end(&mut self) -> Vec<ToOrchestrator> {
        let rest = std::mem::take(&mut self.cut);
        self.messages(&rest)
    }

    fn messages(&self, bytes: &[u8]) -> Vec<ToOrchestrator> {
        let text = String::from_utf8_lossy(bytes);
        let mut rest = &*text;
        let mut messages = Vec::new();
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.floor_char_boundary(TASK_OUTPUT_BYTES_MAX));
            rest = after;
            messages.push(ToOrchestrator::TaskOutput(TaskOutput {
                stream: self.stream,
                text: piece.to_owned(),
            }));
        }
        messages
    }
}

/// Number of bytes at the end that begin an incomplete character.
fn cut_off(bytes: &[u8]) -> usize {
    let last = bytes.len().saturating_sub(CUT_BYTES_MAX);
    (last..bytes.len())
        .find(|from| {
            let tail = bytes.get(*from..).unwrap_or_default();
            std::str::from_utf8(tail)
                .is_err_and(|error| error.error_len().is_none() && error.valid_up_to() == 0)
        })
        .map_or(0, |from| bytes.len() - from)
}

/// Events as messages of bounded size, in order. Consecutive texts are merged.
pub(super) fn event_messages(events: Vec<CliEvent>) -> Vec<ToOrchestrator> {
    let mut messages = Vec::new();
    let mut batch: Vec<Box<RawValue>> = Vec::new();
    let mut bytes = 0;
    for event in joined(events) {
        let Some(raw) = raw_of(&event) else { continue };
        if bytes > 0 && bytes + raw.get().len() > TOLD_BYTES {
            messages.push(message_of(&mut batch));
            bytes = 0;
        }
        bytes += raw.get().len();
        batch.push(raw);
    }
    if !batch.is_empty() {
        messages.push(message_of(&mut batch));
    }
    messages
}

fn message_of(batch: &mut Vec<Box<RawValue>>) -> ToOrchestrator {
    let events = std::mem::take(batch);
    ToOrchestrator::TaskTold(TaskTold { events })
}

fn raw_of(event: &CliEvent) -> Option<Box<RawValue>> {
    // Events consist of texts and numbers, which can always be JSON.
    let raw = to_raw_value(event).ok()?;
    let length = raw.get().len();
    if length <= EVENT_BYTES_MAX {
        return Some(raw);
    }
    let length = u64::try_from(length).unwrap_or(u64::MAX);
    to_raw_value(&CliEvent::Skipped(length)).ok()
}

fn joined(events: Vec<CliEvent>) -> Vec<CliEvent> {
    let mut joined: Vec<CliEvent> = Vec::with_capacity(events.len());
    for event in events {
        match (joined.last_mut(), event) {
            (Some(CliEvent::Text(before)), CliEvent::Text(text))
                if before.len() + text.len() <= TOLD_BYTES =>
            {
                before.push_str(&text);
            }
            (_, event) => joined.push(event),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(messages: Vec<ToOrchestrator>) -> String {
        let text = |message| match message {
            ToOrchestrator::TaskOutput(output) => {
                assert!(output.text.len() <= TASK_OUTPUT_BYTES_MAX);
                output.text
            }
            other => panic!("{other:?}"),
        };
        messages.into_iter().map(text).collect()
    }

    proptest! {
        #[test]
        fn proto_1_text_is_the_same_however_it_is_cut(
            text in "([a-z]|\u{e9}|\u{20ac}|\u{1f600}|\n){0,40}",
            cuts in prop::collection::vec(0_usize..200, 0..10),
        ) {
            let mut output = Text::of(OutputStream::Stdout);
            let mut heard = String::new();
            let (mut from, mut cuts) = (0, cuts);
            cuts.sort_unstable();
            for cut in cuts.into_iter().map(|cut| cut.min(text.len())) {
                heard += &texts(output.push(&text.as_bytes()[from..cut.max(from)]));
                from = cut.max(from);
            }
            heard += &texts(output.push(&text.as_bytes()[from..]));
            heard += &texts(output.end());
            prop_assert_eq!(heard, text);
        }
    }

    #[test]
    fn invalid_utf8_output_is_replaced_within_the_size_limit() {
        let mut output = Text::of(OutputStream::Stderr);
        assert_eq!(texts(output.push(b"a\xff")), "a\u{fffd}");
        assert_eq!(texts(output.push(b"\xe2\x82")), "");
        assert_eq!(texts(output.end()), "\u{fffd}");
        let long = vec![0xff; TASK_OUTPUT_BYTES_MAX];
        assert_eq!(texts(output.push(&long)).chars().count(), long.len());
    }

    #[test]
    fn events_are_sent_in_batches_of_bounded_size() {
        let text = "x".repeat(TOLD_BYTES / 3);
        let events = vec![CliEvent::Text(text); 9];
        let messages = event_messages(events);
        assert!(messages.len() >= 3, "{}", messages.len());
        for message in &messages {
            let ToOrchestrator::TaskTold(told) = message else {
                panic!("{message:?}");
            };
            let bytes: usize = told.events.iter().map(|event| event.get().len()).sum();
            assert!(
                bytes <= TOLD_BYTES + 64 || told.events.len() == 1,
                "{bytes}"
            );
        }
        let short = event_messages(vec![
            CliEvent::Text("a\n".to_owned()),
            CliEvent::Text("b\n".to_owned()),
            CliEvent::Skipped(3),
        ]);
        let [ToOrchestrator::TaskTold(short)] = short.as_slice() else {
            panic!("{short:?}");
        };
        let [first, second] = short.events.as_slice() else {
            panic!("{short:?}");
        };
        assert_eq!(first.get(), r#"{"text":"a\nb\n"}"#);
        assert_eq!(second.get(), r#"{"skipped":3}"#);
    }
}
