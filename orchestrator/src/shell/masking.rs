//! No value that a configuration took from elsewhere leaves the daemon in a log line, an error text or a
//! runtime event (`SEC-2`).
//!
//! A value is looked for as it is and as programs write it: escaped as JSON (once and twice, since a
//! line may quote another), in base64 at any place of what is encoded, in hexadecimal digits, and
//! percent-encoded. A value of several lines, such as a private key, is written line by line, so each of its
//! lines is looked for, too. What of a text is escaped otherwise (`\/`, `\u0068`, `%2f`) is undone before it is looked
//! through, at each level of quotation. Where a line is too long and is split, it is split beside a value, not within,
//! however that is written; a value that is too long for that is looked for in pieces. What a child
//! says about itself is masked as it comes in, so that everything made of it is; what the daemon says, as
//! it goes out. Messages of a conversation are not touched: they are what the agent was told.
//!
//! A value that was known once stays known until the daemon ends: a process may still write it.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{PoisonError, RwLock};

use aho_corasick::{AhoCorasick, MatchKind};
use goondan_config::Secrets;
use goondan_log::line_bytes;
use goondan_protocol::JsonObject;
use goondan_protocol::call::{CallOutcome, TokenVerdict};
use goondan_protocol::control::ControlError;
use goondan_protocol::event::TurnOutcome;
use goondan_protocol::ipc::{ToChild, ToConnector, ToOrchestrator};
use goondan_protocol::limits::MAX_LOG_LINE_BYTES;
use goondan_protocol::reply::Reply;
use goondan_protocol::task::{OutputStream, TaskOutput};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::limits::{
    MASKED_BEGINNING_BYTES_MAX, MASKED_LINE_BYTES_MIN, MASKED_PIECE_BYTES, MASKED_VALUE_BYTES_MIN,
};

mod undoing;

use undoing::{ESCAPED_BYTES_MAX, before_escape, may_hide, undone};

/// What stands in place of a value.
const MASK: &str = "[masked]";

/// Fields of a log line that say whose it is. None is ever made of a value, and a line without them is
/// of no use, whatever somebody puts into a variable.
const IDENTITY: [&str; 11] = [
    "timestamp",
    "level",
    "process",
    "pid",
    "workspaceId",
    "agentName",
    "connection",
    "model",
    "taskId",
    "traceId",
    "spanId",
];

/// Every value that is masked.
#[derive(Debug, Default)]
pub(super) struct Masks {
    known: RwLock<Known>,
}

#[derive(Default)]
struct Known {
    values: BTreeSet<String>,
    /// What they are found by.
    patterns: BTreeSet<String>,
    /// Bytes of the longest that is written in one go.
    longest: usize,
    finder: Option<AhoCorasick>,
}

impl std::fmt::Debug for Known {
    /// Shows how many there are.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Known({})", self.values.len())
    }
}

impl Masks {
    /// Masks the values of a configuration from now on.
    pub(super) fn add(&self, secrets: &Secrets) {
        self.add_values(&secrets.values().collect::<Vec<_>>());
    }

    /// Masks one value from now on.
    pub(super) fn add_value(&self, value: &str) {
        self.add_values(&[value]);
    }

    fn add_values(&self, values: &[&str]) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let before = known.values.len();
        let long = values.iter();
        let long = long.filter(|value| value.len() >= MASKED_VALUE_BYTES_MIN);
        known.values.extend(long.map(|value| (*value).to_owned()));
        if known.values.len() == before {
            return;
        }
        let parts: Vec<&str> = known.values.iter().flat_map(|value| parts(value)).collect();
        let longest = parts.iter().map(|part| part.len()).max();
        let longest = longest.unwrap_or_default();
        let patterns: BTreeSet<String> = parts.into_iter().flat_map(forms).collect();
        let finder = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(&patterns);
        match finder {
            Ok(finder) => {
                known.finder = Some(finder);
                known.patterns = patterns;
                known.longest = longest;
            }
            Err(error) => tracing::error!(
                error = &error as &dyn std::error::Error,
                "values of a configuration cannot be masked"
            ),
        }
    }

    /// The text without any value.
    pub(super) fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.text(text)
    }

    /// Where `bytes`, the first part of a line that goes on, can be cut so that no value is cut in two,
    /// whatever comes behind: at most `bytes.len()`, and never 0 unless there are none.
    pub(super) fn cut_beside_values(&self, bytes: &[u8]) -> usize {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let Some(finder) = &known.finder else {
            return bytes.len();
        };
        // The last of them may be the beginning of a value, each byte of it escaped. One that is longer than half is
        // cut, and found in pieces.
        let escaped = if may_hide(bytes) {
            known.longest.saturating_mul(ESCAPED_BYTES_MAX)
        } else {
            0
        };
        let kept_back = finder.max_pattern_len().max(escaped).saturating_sub(1);
        let cut = bytes.len().saturating_sub(kept_back.min(bytes.len() / 2));
        let cut = before_escape(bytes, cut);
        let mut across = known.spans(bytes).into_iter();
        let across = across.find(|span| span.start < cut && cut < span.end);
        across.map_or(cut, |span| span.end)
    }

    /// Takes from the end of `text`, the first part of one that goes on, what may be the beginning of a value.
    fn split_off_beginning(&self, text: &mut String) -> String {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let begun = known.patterns.iter().filter_map(|pattern| {
            let most = pattern.len().min(MASKED_BEGINNING_BYTES_MAX + 1);
            let mut lengths = (1..most).rev();
            lengths.find(|length| {
                let beginning = pattern.get(..*length);
                beginning.is_some_and(|beginning| text.ends_with(beginning))
            })
        });
        let cut = text.len() - begun.max().unwrap_or_default();
        // What is a value already is not cut.
        let mut across = known.spans(text.as_bytes()).into_iter();
        let across = across.find(|span| span.start < cut && cut < span.end);
        text.split_off(across.map_or(cut, |span| span.end))
    }

    fn mask(&self, text: &mut String) {
        if let Cow::Owned(masked) = self.text(text) {
            *text = masked;
        }
    }

    fn mask_any(&self, text: &mut Option<String>) {
        if let Some(text) = text {
            self.mask(text);
        }
    }

    /// A log line, a JSON object, without any value.
    pub(super) fn line(&self, line: Vec<u8>) -> Vec<u8> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if !known.may_be_in_json(&line) {
            return line;
        }
        let Ok(fields) = serde_json::from_slice::<JsonObject>(&line) else {
            let text = String::from_utf8_lossy(&line).into_owned();
            return known.text(&text).into_owned().into_bytes();
        };
        let masked = fields.into_iter().map(|(name, value)| {
            if IDENTITY.contains(&name.as_str()) {
                (name, value)
            } else {
                (known.text(&name).into_owned(), known.value(value))
            }
        });
        line_bytes(&masked.collect())
    }

    /// An error as a client is told it.
    pub(super) fn error(&self, mut error: ControlError) -> ControlError {
        self.mask(&mut error.message);
        self.mask_any(&mut error.suggestion);
        error
    }

    /// What a server wants a token to allow is written down and shown.
    fn verdict(&self, verdict: &mut TokenVerdict) {
        if let TokenVerdict::TooLittle { scopes } = verdict {
            scopes.iter_mut().for_each(|scope| self.mask(scope));
        }
    }

    /// What a child is told that it passes on to the outside as it stands.
    pub(super) fn told(&self, message: &mut ToChild) {
        let ToChild::Connector(message) = message else {
            return;
        };
        match message {
            ToConnector::Reply(reply) => {
                if let Reply::Over {
                    outcome:
                        TurnOutcome::Completed { reply: text }
                        | TurnOutcome::Failed { message: text, .. },
                } = &mut **reply
                {
                    self.mask(text);
                }
            }
            ToConnector::ApprovalShow(show) => {
                let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
                show.input = known.value(std::mem::take(&mut show.input));
            }
            ToConnector::ApprovalClosed(closed) => self.mask(&mut closed.how),
            _ => {}
        }
    }

    /// What a child says about itself.
    pub(super) fn message(&self, message: &mut ToOrchestrator) {
        match message {
            ToOrchestrator::Observe(event) => self.mask_any(&mut event.detail),
            ToOrchestrator::Status(status) => {
                self.mask(&mut status.detail);
                status.token.iter_mut().for_each(|it| self.verdict(it));
            }
            ToOrchestrator::TurnComplete(complete) => {
                if let TurnOutcome::Failed { message, .. } = &mut complete.outcome {
                    self.mask(message);
                }
            }
            ToOrchestrator::QuestionAsk(ask) => {
                self.mask(&mut ask.message);
                let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
                ask.schema = known.value(std::mem::take(&mut ask.schema));
            }
            ToOrchestrator::CallResult(result) => {
                if let CallOutcome::Error(error) = &mut result.outcome {
                    self.mask(&mut error.message);
                    self.mask_any(&mut error.suggestion);
                    error.token.iter_mut().for_each(|it| self.verdict(it));
                }
            }
            ToOrchestrator::TaskNotStarted(not) => self.mask(&mut not.error),
            ToOrchestrator::TaskOutput(output) => self.mask(&mut output.text),
            ToOrchestrator::TaskTold(told) => {
                let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
                for event in &mut told.events {
                    known.raw(event);
                }
            }
            _ => {}
        }
    }
}

/// Ends of what a task's program has written so far: each may be the beginning of a value, which is then masked
/// as a whole.
#[derive(Debug, Default)]
pub(super) struct OutputEnds {
    stdout: String,
    stderr: String,
}

impl OutputEnds {
    fn of(&mut self, stream: OutputStream) -> &mut String {
        match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        }
    }

    /// Puts before a message what was kept back of its stream, and keeps back the end of it.
    pub(super) fn keep_back(&mut self, masks: &Masks, message: &mut ToOrchestrator) {
        if let ToOrchestrator::TaskOutput(output) = message {
            let kept = self.of(output.stream);
            output.text.insert_str(0, kept);
            *kept = masks.split_off_beginning(&mut output.text);
        }
    }

    /// Nothing more is written: what was kept back, masked.
    pub(super) fn rest(&mut self, masks: &Masks) -> Vec<ToOrchestrator> {
        let streams = [OutputStream::Stdout, OutputStream::Stderr];
        let texts = streams.map(|stream| (stream, std::mem::take(self.of(stream))));
        let texts = texts.into_iter().filter(|(_, text)| !text.is_empty());
        let messages = texts.map(|(stream, text)| {
            let text = masks.text(&text).into_owned();
            ToOrchestrator::TaskOutput(TaskOutput { stream, text })
        });
        messages.collect()
    }
}

impl Known {
    fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let spans = self.spans(text.as_bytes());
        if spans.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut masked = String::with_capacity(text.len());
        let mut at = 0;
        for span in spans {
            masked.push_str(text.get(at..span.start).unwrap_or_default());
            masked.push_str(MASK);
            at = span.end;
        }
        masked.push_str(text.get(at..).unwrap_or_default());
        Cow::Owned(masked)
    }

    /// Where values stand, as they are or hidden by what is escaped: in order, and none over another.
    fn spans(&self, bytes: &[u8]) -> Vec<Range<usize>> {
        let Some(finder) = &self.finder else {
            return Vec::new();
        };
        let found = finder.find_iter(bytes);
        let mut spans: Vec<Range<usize>> = found.map(|found| found.range()).collect();
        if !may_hide(bytes) {
            return spans;
        }
        for undone in undone(bytes) {
            let found = finder.find_iter(&undone.bytes);
            spans.extend(found.map(|found| undone.places(found.range())));
        }
        spans.sort_by_key(|span| (span.start, span.end));
        let mut apart: Vec<Range<usize>> = Vec::new();
        for span in spans {
            match apart.last_mut() {
                Some(last) if span.start < last.end => last.end = last.end.max(span.end),
                _ => apart.push(span),
            }
        }
        apart
    }

    /// Whether a value may be in this JSON: as it stands there, or hidden by what is escaped, such as the quotation
    /// marks of a text that is JSON itself.
    fn may_be_in_json(&self, json: &[u8]) -> bool {
        let finder = self.finder.as_ref();
        finder.is_some_and(|finder| may_hide(json) || finder.is_match(json))
    }

    /// What is JSON stays JSON.
    fn raw(&self, raw: &mut Box<RawValue>) {
        if self.may_be_in_json(raw.get().as_bytes())
            && let Ok(value) = serde_json::from_str(raw.get())
            && let Ok(masked) = to_raw_value(&self.value(value))
        {
            *raw = masked;
        }
    }

    fn value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(&text).into_owned()),
            Value::Array(items) => items.into_iter().map(|item| self.value(item)).collect(),
            Value::Object(fields) => {
                let masked = fields.into_iter();
                let masked =
                    masked.map(|(name, value)| (self.text(&name).into_owned(), self.value(value)));
                Value::Object(masked.collect())
            }
            Value::Number(number) if self.values.contains(&number.to_string()) => MASK.into(),
            plain @ (Value::Null | Value::Bool(_) | Value::Number(_)) => plain,
        }
    }
}

/// What of a value is written in one go: all of it, without the space around it, or one line.
fn parts(value: &str) -> BTreeSet<&str> {
    let lines = value.lines().map(str::trim);
    let lines = lines.filter(|line| line.len() >= MASKED_LINE_BYTES_MIN);
    lines.chain([value, value.trim()]).collect()
}

/// A form of a value, and what it is found by where it may be cut in two, each byte of it escaped.
fn with_pieces(form: String) -> Vec<String> {
    let mut found_by = Vec::new();
    if form.len() > MAX_LOG_LINE_BYTES / 2 / ESCAPED_BYTES_MAX {
        let mut rest = form.as_str();
        while rest.len() >= MASKED_PIECE_BYTES {
            let (piece, behind) = rest.split_at(rest.floor_char_boundary(MASKED_PIECE_BYTES));
            found_by.push(piece.to_owned());
            rest = behind;
        }
    }
    found_by.push(form);
    found_by
}

/// A value as it may turn up, long enough not to be found by accident.
fn forms(value: &str) -> Vec<String> {
    let escaped = json_escaped(value);
    let mut forms = vec![
        value.to_owned(),
        json_escaped(&escaped),
        escaped,
        percent_encoded(value, false, "%20"),
        percent_encoded(value, true, "%20"),
        percent_encoded(value, true, "+"),
        ascii_escaped(value),
        hex_encoded(value, false),
        hex_encoded(value, true),
    ];
    for skipped in 0..3 {
        let encoded = base64_within(value.as_bytes(), skipped);
        forms.push(encoded.replace('+', "-").replace('/', "_"));
        forms.push(encoded);
    }
    forms.retain(|form| form.len() >= MASKED_VALUE_BYTES_MIN);
    forms.into_iter().flat_map(with_pieces).collect()
}

fn json_escaped(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    let inner = quoted.strip_prefix('"').and_then(|q| q.strip_suffix('"'));
    inner.unwrap_or(&quoted).to_owned()
}

/// As JSON is written that may hold nothing but ASCII.
fn ascii_escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in json_escaped(text).chars() {
        if c.is_ascii() {
            escaped.push(c);
        } else {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                escaped.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    escaped
}

fn hex_encoded(text: &str, is_upper: bool) -> String {
    let digits = text.bytes().map(|byte| format!("{byte:02x}"));
    let digits = digits.collect::<String>();
    if is_upper {
        digits.to_uppercase()
    } else {
        digits
    }
}

fn percent_encoded(text: &str, is_upper: bool, space: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            b' ' => encoded.push_str(space),
            _ if is_upper => encoded.push_str(&format!("%{byte:02X}")),
            _ => encoded.push_str(&format!("%{byte:02x}")),
        }
    }
    encoded
}

/// The part of the base64 of something that depends on `bytes` alone, where they stand behind
/// `skipped` bytes (modulo 3) of something else.
fn base64_within(bytes: &[u8], skipped: usize) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let before = std::iter::repeat_n(0, skipped);
    let bits: Vec<u8> = before
        .chain(bytes.iter().copied())
        .flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1))
        .collect();
    // A digit is six bits; those that hold a bit of what stands before or behind are left out.
    let first = (skipped * 8).div_ceil(6);
    let digits = bits.chunks_exact(6).skip(first).map(|digit| {
        let index = digit.iter().fold(0, |sum, bit| sum * 2 + usize::from(*bit));
        ALPHABET.get(index).copied().map_or('=', char::from)
    });
    digits.collect()
}

#[cfg(test)]
mod cut_tests;

#[cfg(test)]
mod tests {
    use goondan_protocol::ipc::Status;
    use serde_json::json;

    use super::*;

    const VALUE: &str = "p\"ss wörd/+?1";

    fn masks(values: &[&str]) -> Masks {
        let masks = Masks::default();
        masks.add_values(values);
        masks
    }

    #[test]
    fn sec_2_a_value_is_found_however_it_is_written() {
        let masks = masks(&[VALUE]);
        // Written down by other programs: Python's json, base64 and urllib.
        for text in [
            VALUE,
            r#"{"k": "p\"ss wörd/+?1"}"#,
            r#"{\"k\": \"p\\\"ss wörd/+?1\"}"#,
            "cCJzcyB3w7ZyZC8rPzE=",
            "YTpwInNzIHfDtnJkLys/MQ==",
            "YWI6cCJzcyB3w7ZyZC8rPzE6eA==",
            "YTpwInNzIHfDtnJkLys_MQ==",
            "https://h/?t=p%22ss%20w%C3%B6rd%2F%2B%3F1&x",
            "https://h/?t=p%22ss%20w%c3%b6rd%2f%2b%3f1&x",
            "t=p%22ss+w%C3%B6rd%2F%2B%3F1",
            "x702273732077c3b672642f2b3f31x",
            "702273732077C3B672642F2B3F31",
            r#"{"k": "p\"ss w\u00f6rd/+?1"}"#,
        ] {
            let masked = masks.text(text);
            assert!(masked.contains(MASK), "{text} stays {masked}");
            assert!(!masked.contains("rd/"), "{masked}");
            // Within a line of the log, which JSON escapes once more.
            let line = masks.line(serde_json::to_vec(&json!({"message": text})).unwrap());
            let line: Value = serde_json::from_slice(&line).unwrap();
            assert_eq!(line["message"], masked.as_ref(), "{text}");
        }
        assert_eq!(masks.text("nothing of it"), "nothing of it");
    }

    #[test]
    fn sec_2_a_masked_line_is_a_line_and_still_says_whose_it_is() {
        let masks = masks(&["assistant", "12345678", VALUE]);
        let line = json!({
            "timestamp": "2026-01-01T00:00:00.000Z",
            "message": format!("failed with {VALUE}"),
            "agentName": "assistant",
            "nested": [{"token": VALUE, "assistant": true}, 12_345_678, 1],
        });
        let mut bytes = serde_json::to_vec(&line).unwrap();
        bytes.push(b'\n');
        let masked = masks.line(bytes);
        assert_eq!(masked.iter().filter(|b| **b == b'\n').count(), 1);
        assert_eq!(
            serde_json::from_slice::<Value>(&masked).unwrap(),
            json!({
                "timestamp": "2026-01-01T00:00:00.000Z",
                "message": "failed with [masked]",
                "agentName": "assistant",
                "nested": [{"token": "[masked]", "[masked]": true}, "[masked]", 1],
            })
        );
    }

    #[test]
    fn sec_2_a_line_is_cut_beside_a_value() {
        let masks = masks(&["hunter2-and-more"]);
        for before in 0..60 {
            let line = format!("{}hunter2-and-more{}", "a".repeat(before), "b".repeat(60));
            for length in 40..line.len() {
                let cut = masks.cut_beside_values(&line.as_bytes()[..length]);
                assert!(cut > 0 && cut <= length);
                let (head, rest) = line.split_at(cut);
                let masked = format!("{}{}", masks.text(head), masks.text(rest));
                assert!(masked.contains(MASK), "{head} | {rest}");
            }
        }
        assert_eq!(Masks::default().cut_beside_values(b"abc"), 3);
    }

    #[test]
    fn sec_2_a_value_is_masked_however_a_program_writes_it_in_pieces() {
        let masks = masks(&["hunter2-and-more", "hunter2", "anan-anan", "ä-bcd\u{20ac}-"]);
        let text = "ananan-anan-anan hunter2-and-more: hunter2, ä-bcd\u{20ac}- ha";
        let whole = masks.text(text).into_owned();
        assert_eq!(whole.matches(MASK).count(), 4, "{whole}");
        let characters = text.chars().count();
        for first in 0..characters {
            for second in first..characters {
                let mut ends = OutputEnds::default();
                let mut written = String::new();
                for (from, to) in [(0, first), (first, second), (second, characters)] {
                    let mut message = ToOrchestrator::TaskOutput(TaskOutput {
                        stream: OutputStream::Stdout,
                        text: text.chars().take(to).skip(from).collect(),
                    });
                    ends.keep_back(&masks, &mut message);
                    masks.message(&mut message);
                    written += &output(message);
                }
                written.extend(ends.rest(&masks).into_iter().map(output));
                assert_eq!(written, whole, "{first} {second}");
            }
        }
        let mut ends = OutputEnds::default();
        let mut plain = ToOrchestrator::TaskOutput(TaskOutput {
            stream: OutputStream::Stderr,
            text: "a line\n".to_owned(),
        });
        ends.keep_back(&masks, &mut plain);
        assert_eq!(output(plain), "a line\n", "nothing of it is held back");
    }

    fn output(message: ToOrchestrator) -> String {
        match message {
            ToOrchestrator::TaskOutput(output) => output.text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn sec_2_each_line_of_a_value_is_masked_on_its_own() {
        let key = "-----BEGIN PRIVATE KEY-----\r\n  MC4CAQAwBQYDK2VwBCIEIBbl\n{\n}\n";
        let masks = masks(&[key, "hunter2-and\n"]);
        for (text, masked) in [
            (key, MASK),
            (key.trim(), MASK),
            ("key: MC4CAQAwBQYDK2VwBCIEIBbl", "key: [masked]"),
            ("MC4CAQAwBQYDK2VwBCIEIBbl\r", "[masked]\r"),
            ("hunter2-and", MASK),
            ("{", "{"),
        ] {
            assert_eq!(masks.text(text), masked, "{text}");
        }
        let encoded = base64_within(b"MC4CAQAwBQYDK2VwBCIEIBbl", 0);
        assert_eq!(masks.text(&encoded), MASK);
    }

    #[test]
    fn sec_2_a_value_longer_than_a_line_is_masked_piece_by_piece() {
        let long: String = (0..10_000).map(|n| format!("{n:05}é")).collect();
        assert!(long.len() > MAX_LOG_LINE_BYTES);
        let masks = masks(&[&long]);
        let bytes = long.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            let end = bytes.len().min(at + MAX_LOG_LINE_BYTES);
            let cut = masks.cut_beside_values(&bytes[at..end]);
            let line = String::from_utf8_lossy(&bytes[at..at + cut]);
            let masked = masks.text(&line);
            let left = masked.replace(MASK, "").len();
            assert!(left < 2 * MASKED_PIECE_BYTES, "{left} bytes of a value");
            at += cut;
        }
        assert_eq!(masks.text(&long), MASK);
    }

    #[test]
    fn sec_2_values_too_short_to_tell_are_left_and_of_two_the_longer_is_masked_whole() {
        let masks = masks(&["8080", "secret", "secret-and-more"]);
        assert_eq!(
            masks.text("8080 secret-and-more secret"),
            "8080 [masked] [masked]"
        );
    }

    #[test]
    fn sec_2_a_reply_goes_out_masked() {
        let masks = masks(&[VALUE]);
        let outcome = TurnOutcome::Completed {
            reply: format!("it is {VALUE}"),
        };
        let reply = Reply::Over { outcome };
        let mut message = ToChild::from(ToConnector::Reply(Box::new(reply)));
        masks.told(&mut message);
        let shown = format!("{message:?}");
        assert!(shown.contains("it is [masked]"), "{shown}");
    }

    #[test]
    fn sec_2_what_a_child_says_of_itself_comes_in_masked() {
        let masks = masks(&[VALUE]);
        let detail = format!("cannot reach h?{VALUE}");
        let ready = false;
        let mut message = ToOrchestrator::Status(Status {
            ready,
            detail,
            token: None,
        });
        masks.message(&mut message);
        let shown = format!("{message:?}");
        assert!(shown.contains("h?[masked]"), "{shown}");
        let error = ControlError::new(goondan_protocol::control::ErrorCode::Internal, VALUE);
        assert_eq!(masks.error(error).message, MASK);
    }
}
