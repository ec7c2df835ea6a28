//! Masking of secret values: no value that a configuration read from a secret or the environment
//! leaves the daemon in a log line, an error text or a runtime event (`SEC-2`).
//!
//! [`MaskTable`] finds a value in the forms that programs write. A line that is too long is split
//! next to a value and not within it, in any form; a value that is too long for that is found in
//! pieces.
//!
//! * Reports of a child, and payloads of events, are masked on arrival, so everything derived from
//!   them is masked. For a task, this includes the outcome of a turn and the output of its program, and therefore the
//!   task's history, notifications and logs.
//! * Output of the daemon is masked when written: log lines, errors, replies to external systems,
//!   runtime events, lifecycle events, the audit log, the log of model messages, and the texts of
//!   context blocks.
//! * Messages of a conversation are not masked: they are the agent's input and output.
//!
//! A value stays masked until the daemon ends, because a process can still write it.

use std::borrow::Cow;
use std::sync::{PoisonError, RwLock};

use goondan_config::Secrets;
use goondan_log::line_bytes;
use goondan_masking::MaskTable;
use goondan_protocol::JsonObject;
use goondan_protocol::call::{CallOutcome, TokenVerdict};
use goondan_protocol::control::{ControlError, WatchUpdate};
use goondan_protocol::decision::{DecisionSubject, DecisionVerdict};
use goondan_protocol::definition::{ExtensionDefinition, ExtensionSource};
use goondan_protocol::event::{PAYLOAD, TurnOutcome};
use goondan_protocol::ipc::{Assignment, ToAgent, ToChild, ToConnector, ToOrchestrator};
use goondan_protocol::reply::Reply;
use goondan_protocol::task::{OutputStream, TaskOutput};
use goondan_store::writer::operation::Op;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

/// Identity fields of a log line. They are never masked, because they never contain a value and a
/// line without them is useless.
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

/// Fields of runtime events, lifecycle events and audit records whose text can come from an agent,
/// a program or a service. The other fields are names, numbers and ids that connect records.
const FREE_TEXTS: [&str; 10] = [
    "changes", "decision", "detail", "error", "how", "note", "outcome", "problem", "reason",
    "toolName",
];

/// The extension whose text is a context block.
const CONTEXT_BLOCK: &str = "context-message";

/// Owner of a child, which determines the masked parts of its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MaskingScope {
    /// A conversation, whose messages are not masked, or no owner.
    Conversation,
    /// A task: all its answers reach the task's history, logs and notifications.
    Task,
}

#[derive(Debug, Default)]
pub(super) struct Masks {
    known: RwLock<MaskTable>,
}

impl Masks {
    /// Adds the values of a configuration.
    pub(super) fn add(&self, secrets: &Secrets) {
        self.add_values(&secrets.values().collect::<Vec<_>>());
    }

    pub(super) fn add_value(&self, value: &str) {
        self.add_values(&[value]);
    }

    fn add_values(&self, values: &[&str]) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = known.add(values) {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "failed to mask values of a configuration"
            );
        }
    }

    pub(super) fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.text(text)
    }

    /// See [`MaskTable::cut_beside_values`].
    pub(super) fn cut_beside_values(&self, bytes: &[u8]) -> usize {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.cut_beside_values(bytes)
    }

    /// See [`MaskTable::split_off_beginning`].
    fn split_off_beginning(&self, text: &mut String) -> String {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.split_off_beginning(text)
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

    /// Masks a log line, which is a JSON object.
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

    pub(super) fn error(&self, mut error: ControlError) -> ControlError {
        self.mask(&mut error.message);
        self.mask_any(&mut error.suggestion);
        error
    }

    /// Masks the requested scopes, which are logged and displayed.
    fn verdict(&self, verdict: &mut TokenVerdict) {
        if let TokenVerdict::TooLittle { scopes } = verdict {
            scopes.iter_mut().for_each(|scope| self.mask(scope));
        }
    }

    /// Masks stored reports: runtime events, the audit log and model messages.
    pub(super) fn stored(&self, op: &mut Op) {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        match op {
            Op::LogLlm(log) => known.raw(&mut log.message.message),
            Op::Observe(observe) => {
                if known.may_be_in_json(&observe.line)
                    && let Ok(record) = serde_json::from_slice(&observe.line)
                {
                    observe.line = line_bytes(&masked_record(&known, record));
                }
            }
            Op::Audit(audit) => {
                audit.record = masked_record(&known, std::mem::take(&mut audit.record));
            }
            _ => {}
        }
    }

    /// Masks a runtime event for clients.
    pub(super) fn progress(&self, event: &mut Box<RawValue>) {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if known.may_be_in_json(event.get().as_bytes())
            && let Ok(record) = serde_json::from_str(event.get())
            && let Ok(masked) = to_raw_value(&masked_record(&known, record))
        {
            *event = masked;
        }
    }

    /// Masks an update for watchers; `None` if that fails. Reports of processes were masked on
    /// arrival.
    pub(super) fn update(&self, update: WatchUpdate) -> Option<WatchUpdate> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let WatchUpdate::Event(event) = &update else {
            return Some(update);
        };
        let masked = serde_json::to_vec(event).and_then(|json| {
            if !known.may_be_in_json(&json) {
                return Ok(None);
            }
            let record = masked_record(&known, serde_json::from_slice(&json)?);
            serde_json::from_value(Value::Object(record)).map(Some)
        });
        match masked {
            Ok(None) => Some(update),
            Ok(Some(masked)) => Some(WatchUpdate::Event(masked)),
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "failed to mask an event; not sent to watchers"
                );
                None
            }
        }
    }

    /// Masks messages that a child passes on unchanged, to a service or as a context block to a
    /// model.
    pub(super) fn mask_to_child(&self, message: &mut ToChild) {
        let message = match message {
            ToChild::Connector(message) => message,
            ToChild::Agent(ToAgent::Welcome(welcome)) => {
                if let Assignment::Agent(assignment) = &mut welcome.assignment {
                    let extensions = &mut assignment.agent.extensions;
                    extensions.iter_mut().for_each(|it| self.context_block(it));
                }
                return;
            }
            _ => return,
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
            ToConnector::DecisionShow(show) => {
                match &mut show.about {
                    DecisionSubject::Call { input, .. } => {
                        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
                        *input = known.value(std::mem::take(input));
                    }
                    DecisionSubject::Question(about) | DecisionSubject::Review(about) => {
                        self.mask(&mut about.of);
                        self.mask(&mut about.text);
                    }
                    DecisionSubject::Proposal(about) | DecisionSubject::Login(about) => {
                        self.mask(&mut about.of);
                        self.mask(&mut about.text);
                    }
                }
                for choice in &mut show.form.choices {
                    self.mask(&mut choice.label);
                }
                if let Some(expires) = &mut show.expires {
                    self.mask(&mut expires.outcome);
                }
            }
            ToConnector::DecisionClosed(closed) => self.mask(&mut closed.how),
            ToConnector::DecisionVerdict(
                DecisionVerdict::Decided { how: text }
                | DecisionVerdict::DecidedBefore { how: text }
                | DecisionVerdict::Counted { message: text }
                | DecisionVerdict::NotAllowed { message: text }
                | DecisionVerdict::NotNow { message: text },
            ) => self.mask(text),
            _ => {}
        }
    }

    fn context_block(&self, extension: &mut ExtensionDefinition) {
        if let ExtensionSource::Builtin { name, .. } = &extension.source
            && name.as_str() == CONTEXT_BLOCK
        {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            let texts = extension.config.values_mut();
            texts.for_each(|text| *text = known.value(std::mem::take(text)));
        }
    }

    /// Masks a child's reports about itself and, if it works for a task, its answers.
    pub(super) fn message(&self, message: &mut ToOrchestrator, works_for: MaskingScope) {
        match message {
            ToOrchestrator::Observe(event) => {
                self.mask_any(&mut event.detail);
                self.mask_any(&mut event.refusal);
            }
            ToOrchestrator::Status(status) => {
                self.mask(&mut status.detail);
                status.token.iter_mut().for_each(|it| self.verdict(it));
            }
            ToOrchestrator::TurnComplete(complete) => match &mut complete.outcome {
                TurnOutcome::Failed { message, .. } => self.mask(message),
                TurnOutcome::Completed { reply } if works_for == MaskingScope::Task => {
                    self.mask(reply);
                }
                TurnOutcome::Completed { .. } => {}
            },
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
            // A payload repeats what a service knows, such as the secret of a webhook.
            ToOrchestrator::Event(event) => {
                if let Some(payload) = event.metadata.get_mut(PAYLOAD) {
                    let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
                    *payload = known.value(std::mem::take(payload));
                }
            }
            ToOrchestrator::AgentNotStarted(not) => self.mask(&mut not.error),
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

/// Masks the [free texts](FREE_TEXTS) of a record.
fn masked_record(known: &MaskTable, record: JsonObject) -> JsonObject {
    let masked = record.into_iter().map(|(name, value)| {
        let is_free = FREE_TEXTS.contains(&name.as_str());
        let value = if is_free { known.value(value) } else { value };
        (name, value)
    });
    masked.collect()
}

/// Ends of the output of a task's program so far. Each may be the beginning of a value, which must
/// be masked as a whole.
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

    /// Prepends the retained output of the message's stream, and retains its new end.
    pub(super) fn keep_back(&mut self, masks: &Masks, message: &mut ToOrchestrator) {
        if let ToOrchestrator::TaskOutput(output) = message {
            let kept = self.of(output.stream);
            output.text.insert_str(0, kept);
            *kept = masks.split_off_beginning(&mut output.text);
        }
    }

    /// The masked retained output, at the end of the streams.
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

#[cfg(test)]
mod tests {
    use goondan_masking::{MASK, MASKED_PIECE_BYTES};
    use goondan_protocol::ipc::Status;
    use goondan_protocol::limits::MAX_LOG_LINE_BYTES;
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
        // Written by other programs: Python's json, base64 and urllib.
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
            // In a log line, which escapes the text once more.
            let line = masks.line(serde_json::to_vec(&json!({"message": text})).unwrap());
            let line: Value = serde_json::from_slice(&line).unwrap();
            assert_eq!(line["message"], masked.as_ref(), "{text}");
        }
        assert_eq!(masks.text("nothing of it"), "nothing of it");
    }

    #[test]
    fn sec_2_masked_log_line_stays_valid_and_keeps_its_agent() {
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
    fn sec_2_value_is_masked_across_any_pieces_of_program_output() {
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
                    masks.message(&mut message, MaskingScope::Conversation);
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
        assert_eq!(output(plain), "a line\n", "nothing is held back");
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
    fn sec_2_short_values_stay_and_the_longer_of_two_is_masked() {
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
        masks.mask_to_child(&mut message);
        let shown = format!("{message:?}");
        assert!(shown.contains("it is [masked]"), "{shown}");
    }

    #[test]
    fn sec_2_every_text_of_a_decision_in_a_chat_goes_out_masked() {
        let masks = masks(&[VALUE]);
        let text = format!("it is {VALUE}");
        let decision = json!({
            "decisionId": "t-1",
            "about": {"kind": "question", "agentName": "a", "of": text, "text": text,
                "command": "task show t"},
            "form": {"choices": [{"answer": "0", "label": text}]},
            "expires": {"at": "2026-01-01T00:00:00.000Z", "outcome": text},
        });
        let show = ToConnector::DecisionShow(serde_json::from_value(decision).unwrap());
        let verdict = |verdict| ToConnector::DecisionVerdict(verdict);
        let (how, message) = (text.clone(), text);
        for (message, count) in [
            (show, 4),
            (verdict(DecisionVerdict::Decided { how: how.clone() }), 1),
            (verdict(DecisionVerdict::DecidedBefore { how }), 1),
            (verdict(DecisionVerdict::NotAllowed { message }), 1),
        ] {
            let mut message = ToChild::from(message);
            masks.mask_to_child(&mut message);
            let shown = format!("{message:?}");
            assert_eq!(shown.matches("it is [masked]").count(), count, "{shown}");
        }
    }

    #[test]
    fn sec_2_reply_of_an_agent_with_a_task_arrives_masked() {
        let masks = masks(&[VALUE]);
        let answer = |works_for| {
            let complete = json!({
                "turnId": "t1", "lastSeq": 0,
                "outcome": {"status": "completed", "reply": format!("the key is {VALUE}")},
            });
            let mut message =
                ToOrchestrator::TurnComplete(serde_json::from_value(complete).unwrap());
            masks.message(&mut message, works_for);
            match message {
                ToOrchestrator::TurnComplete(complete) => complete.outcome,
                other => panic!("{other:?}"),
            }
        };
        let said = |reply: &str| TurnOutcome::Completed {
            reply: reply.to_owned(),
        };
        assert_eq!(answer(MaskingScope::Task), said("the key is [masked]"));
        let raw = format!("the key is {VALUE}");
        assert_eq!(answer(MaskingScope::Conversation), said(&raw));
    }

    #[test]
    fn sec_2_only_free_texts_of_a_record_are_masked() {
        let masks = masks(&["assistant", VALUE]);
        let record = json!({
            "agentName": "assistant", "instanceKey": "assistant", "detail": format!("a {VALUE}"),
            "toolName": VALUE, "changes": [VALUE, "assistant"],
        });
        let masked = json!({
            "agentName": "assistant", "instanceKey": "assistant", "detail": "a [masked]",
            "toolName": "[masked]", "changes": ["[masked]", "[masked]"],
        });
        let mut event = to_raw_value(&record).unwrap();
        masks.progress(&mut event);
        assert_eq!(serde_json::from_str::<Value>(event.get()).unwrap(), masked);
    }

    #[test]
    fn sec_2_payload_of_an_event_arrives_masked() {
        let event = json!({"name": "message", "input": VALUE,
            "metadata": {"payload": {"hook": [{"config": VALUE}]}}});
        let event = serde_json::from_value(event).unwrap();
        let mut message = ToOrchestrator::Event(Box::new(event));
        masks(&[VALUE]).message(&mut message, MaskingScope::Conversation);
        let ToOrchestrator::Event(event) = message else {
            panic!("{message:?}");
        };
        assert_eq!(event.metadata[PAYLOAD]["hook"][0]["config"], MASK);
        // The text is what the agent works on.
        assert_eq!(event.input, VALUE);
    }

    #[test]
    fn sec_2_status_reported_by_a_child_arrives_masked() {
        let masks = masks(&[VALUE]);
        let detail = format!("cannot reach h?{VALUE}");
        let ready = false;
        let mut message = ToOrchestrator::Status(Status {
            ready,
            detail,
            token: None,
        });
        masks.message(&mut message, MaskingScope::Conversation);
        let shown = format!("{message:?}");
        assert!(shown.contains("h?[masked]"), "{shown}");
        let error = ControlError::new(goondan_protocol::control::ErrorCode::Internal, VALUE);
        assert_eq!(masks.error(error).message, MASK);
    }
}
