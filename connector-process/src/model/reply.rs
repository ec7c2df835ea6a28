//! Reads a server's response into one reply, with pieces ahead of it.
//!
//! The server is not trusted: its output is bounded in bytes, calls and time, and an invalid
//! response is reported with its contents.

use std::time::Duration;

use goondan_clock::{Instant, sleep_until, timeout};
use goondan_protocol::JsonObject;
use goondan_protocol::call::{CallError, ModelAnswer};
use goondan_protocol::definition::HostedModel;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Response, StatusCode};
use serde_json::{Value, json};

use super::ahead::PieceBuffer;
use super::argument_types::ArgumentTypes;
use super::aws_frames::{self, AwsFrames};
use super::dialect::{Dialect, ReplyFault, StreamProgress, error_at, is_keep_alive};
use super::draft::Draft;
use super::events::{Events, NoEvent, SseEvent};
use super::failure;
use super::normalize::ToolNames;
use crate::calls::Pieces;
use crate::content_encoding::{BodyDecoder, ContentEncoding};
use crate::limits::{REPLY_ERROR_BYTES_MAX, REPLY_EVENT_BYTES_MAX, REPLY_STREAM_BYTES_MAX};

/// Finish reasons that mean the reply reached its maximum length.
const CUT: &[&str] = &[
    "length",
    "max_tokens",
    "MAX_TOKENS",
    "max_output_tokens",
    "model_length",
    "model_context_window_exceeded",
];

/// Finish reasons that mean the model had no more to add.
const ENDED_WELL: &[&str] = &["stop", "end_turn", "stop_sequence", "STOP", "completed"];

/// Finish reasons that mean the provider could not finish the reply.
const ABORTED: &[&str] = &[
    "error",
    "abort",
    "network_error",
    "insufficient_system_resource",
];

/// Byte order mark of UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Parts of media types of bodies with one JSON document in each line.
const LINES_OF_JSON: &[&str] = &["ndjson", "jsonl", "stream+json"];

/// Format of a body.
enum Form {
    /// Unknown: only white space so far.
    Unknown,
    Stream(Events),
    /// The binary encoding of AWS.
    AwsStream(AwsFrames),
    Json(Vec<u8>),
    Other(Vec<u8>),
}

/// Kinds of events in a stream so far.
#[derive(Debug, Default)]
struct StreamState {
    has_protocol_events: bool,
    first_unknown: Option<String>,
}

impl StreamState {
    fn record(&mut self, next: StreamProgress, event: &SseEvent) {
        match next {
            StreamProgress::More | StreamProgress::Done => self.has_protocol_events = true,
            StreamProgress::Unknown
                if self.first_unknown.is_none() && !event.data.trim().is_empty() =>
            {
                self.first_unknown = Some(event.data.clone());
            }
            StreamProgress::Unknown => {}
        }
    }

    /// The first event of a stream without any event of the protocol.
    fn foreign(&self) -> Option<&str> {
        let unknown = self.first_unknown.as_deref();
        unknown.filter(|_| !self.has_protocol_events)
    }
}

pub(super) struct ReplyReader<'m> {
    model: &'m HostedModel,
    dialect: Box<dyn Dialect>,
    draft: Draft,
    form: Form,
    content_type: String,
    is_done: bool,
    stream: StreamState,
    bytes: usize,
    /// Bytes of a byte order mark so far.
    mark_bytes: usize,
    /// True if the JSON of the body is one document, and not one for each line.
    is_document: bool,
    names: ToolNames,
    types: ArgumentTypes,
    may_be_silent: bool,
}

/// Parameters for reading a reply.
pub(super) struct Expectation {
    /// Reader of the provider's protocol.
    pub(super) dialect: Box<dyn Dialect>,
    /// Mapping of tool names in the request.
    pub(super) names: ToolNames,
    /// Types of the arguments of the request's tools.
    pub(super) types: ArgumentTypes,
    /// True if a reply with neither words nor calls is valid.
    pub(super) may_be_silent: bool,
}

/// Reads an answer to its end, before `until`.
pub(super) async fn of(
    model: &HostedModel,
    response: Response,
    expected: Expectation,
    pieces: Pieces,
    until: Instant,
) -> Result<ModelAnswer, CallError> {
    let status = response.status();
    if status == StatusCode::PROXY_AUTHENTICATION_REQUIRED
        && let Some(problem) = goondan_outbound::rejection_by_proxy(response.url())
    {
        return Err(failure::of_network(model, problem));
    }
    let encoding = ContentEncoding::of(response.headers());
    if !status.is_success() {
        let headers = response.headers().clone();
        let encoding = encoding.unwrap_or(ContentEncoding::Identity);
        let body = error_body(model, response, BodyDecoder::new(encoding)).await;
        return Err(failure::of_status(model, status, &body, Some(&headers)));
    }
    let encoding = encoding.map_err(|name| failure::unknown_encoding(model, &name))?;
    let decoder = BodyDecoder::new(encoding);
    let content_type = response.headers().get(CONTENT_TYPE);
    let content_type = content_type.map(|value| String::from_utf8_lossy(value.as_bytes()));
    let content_type = content_type.unwrap_or_default().into_owned();
    let mut reading = ReplyReader::new(model, expected, content_type);
    let read = reading
        .read((response, decoder), PieceBuffer::new(pieces), until)
        .await;
    let usage = reading.draft.usage();
    let answer = read.and_then(|()| reading.end());
    answer.map_err(|error| error.having_taken(usage))
}

/// Reads the body of an error response, up to the limit.
async fn error_body(
    model: &HostedModel,
    mut response: Response,
    mut decoder: BodyDecoder,
) -> String {
    let mut body = Vec::new();
    let stall = Duration::from_millis(model.timeouts.stall_ms);
    while let Ok(Ok(Some(part))) = timeout(stall, response.chunk()).await {
        let Ok(part) = decoder.decode(&part) else {
            break;
        };
        let room = REPLY_ERROR_BYTES_MAX.saturating_sub(body.len());
        body.extend(part.iter().take(room));
        if part.len() >= room {
            break;
        }
    }
    String::from_utf8_lossy(&body).into_owned()
}

impl<'m> ReplyReader<'m> {
    fn new(model: &'m HostedModel, expected: Expectation, content_type: String) -> Self {
        Self {
            model,
            dialect: expected.dialect,
            draft: Draft::default(),
            form: Form::Unknown,
            content_type,
            is_done: false,
            stream: StreamState::default(),
            bytes: 0,
            mark_bytes: 0,
            is_document: false,
            names: expected.names,
            types: expected.types,
            may_be_silent: expected.may_be_silent,
        }
    }
}

impl ReplyReader<'_> {
    async fn read(
        &mut self,
        (mut response, mut decoder): (Response, BodyDecoder),
        mut ahead: PieceBuffer,
        until: Instant,
    ) -> Result<(), CallError> {
        let stall = Duration::from_millis(self.model.timeouts.stall_ms);
        while !self.is_done {
            let silent_at = Instant::now() + stall;
            let part = loop {
                let due = ahead.due();
                tokio::select! {
                    part = response.chunk() => break part,
                    () = sleep_until(due.unwrap_or(until)), if due.is_some() => ahead.flush().await,
                    () = sleep_until(until) => return Err(failure::too_long(self.model)),
                    () = sleep_until(silent_at) => return Err(failure::silent(self.model)),
                }
            };
            let part = match part {
                Ok(Some(part)) => part,
                Ok(None) => break,
                Err(error) => return Err(failure::of_transport(self.model, &error)),
            };
            let part = decoder
                .decode(&part)
                .map_err(|error| failure::damaged_encoding(self.model, &error))?;
            self.bytes = self.bytes.saturating_add(part.len());
            if self.bytes > REPLY_STREAM_BYTES_MAX {
                return Err(failure::excess(
                    self.model,
                    &format!("its stream has more than {REPLY_STREAM_BYTES_MAX} bytes"),
                ));
            }
            let taken = self.take(&part);
            for (kind, text) in self.draft.take_fresh() {
                ahead.add(kind, &text).await;
            }
            if let Err(error) = taken {
                ahead.flush().await;
                return Err(error);
            }
        }
        self.complete()?;
        for (kind, text) in self.draft.take_fresh() {
            ahead.add(kind, &text).await;
        }
        ahead.flush().await;
        Ok(())
    }

    /// Takes the next part of the body.
    fn take(&mut self, mut part: &[u8]) -> Result<(), CallError> {
        if matches!(self.form, Form::Unknown)
            && self.content_type.starts_with(aws_frames::MEDIA_TYPE)
        {
            self.form = Form::AwsStream(AwsFrames::default());
        }
        if matches!(self.form, Form::Unknown) {
            while let Some((first, rest)) = part.split_first()
                && BYTE_ORDER_MARK.get(self.mark_bytes) == Some(first)
            {
                self.mark_bytes += 1;
                part = rest;
            }
            part = part.trim_ascii_start();
            let Some(first) = part.first() else {
                return Ok(());
            };
            self.form = self.form_of(*first);
        }
        match &mut self.form {
            Form::Unknown => Ok(()),
            Form::Json(body) | Form::Other(body) => {
                let has_line_end = body.ends_with(b"\n") || part.contains(&b'\n');
                body.extend_from_slice(part);
                if body.len() > REPLY_EVENT_BYTES_MAX {
                    return Err(failure::excess(
                        self.model,
                        &format!("its answer has more than {REPLY_EVENT_BYTES_MAX} bytes"),
                    ));
                }
                match has_line_end {
                    true => self.detect_lines(),
                    false => Ok(()),
                }
            }
            Form::Stream(_) | Form::AwsStream(_) => {
                let (dialect, draft) = (&mut self.dialect, &mut self.draft);
                let stream = &mut self.stream;
                let mut seen = None;
                let mut take = |event: SseEvent| {
                    let next = take_event(dialect.as_mut(), draft, stream, &event);
                    seen = Some(event.data);
                    Ok::<_, ReplyFault>(next? != StreamProgress::Done)
                };
                let more = match &mut self.form {
                    Form::Stream(events) => events.feed(part, take),
                    Form::AwsStream(frames) => frames.feed(part, |message| {
                        message.into_event()?.map_or(Ok(true), &mut take)
                    }),
                    Form::Unknown | Form::Json(_) | Form::Other(_) => Ok(true),
                };
                match more {
                    Ok(more) => {
                        self.is_done = !more;
                        Ok(())
                    }
                    Err(fault) => Err(self.failed(fault, seen.as_deref())),
                }
            }
        }
    }

    /// Reads JSON as a stream if its first line is a complete object and another line follows.
    fn detect_lines(&mut self) -> Result<(), CallError> {
        let Form::Json(body) = &mut self.form else {
            return Ok(());
        };
        let first = body.split(|byte| *byte == b'\n').next();
        let first = first.filter(|first| first.len() < body.trim_ascii_end().len());
        let Some(first) = first.filter(|_| !self.is_document) else {
            return Ok(());
        };
        if serde_json::from_slice::<JsonObject>(first).is_err() {
            self.is_document = true;
            return Ok(());
        }
        let body = std::mem::take(body);
        self.form = Form::Stream(Events::default());
        self.take(&body)
    }

    /// Detects the format from the first non-space character, because the content type of servers
    /// is unreliable.
    fn form_of(&self, first: u8) -> Form {
        let says_stream = self.content_type.contains("event-stream");
        let says_lines = LINES_OF_JSON
            .iter()
            .any(|kind| self.content_type.contains(kind));
        match first {
            b'{' if says_lines => Form::Stream(Events::default()),
            b'{' | b'[' => Form::Json(Vec::new()),
            b'<' => Form::Other(Vec::new()),
            // Field names and comments.
            b'd' | b'e' | b'i' | b'r' | b':' => Form::Stream(Events::default()),
            _ if says_stream => Form::Stream(Events::default()),
            _ => Form::Other(Vec::new()),
        }
    }

    /// Handles the end of the stream or of the body.
    fn complete(&mut self) -> Result<(), CallError> {
        if !self.is_done {
            self.finish()?;
        }
        let ended = self.draft.end_text();
        ended.map_err(|excess| self.failed(excess.into(), None))
    }

    /// Handles the end of a body without an end marker.
    fn finish(&mut self) -> Result<(), CallError> {
        match std::mem::replace(&mut self.form, Form::Unknown) {
            Form::Unknown => Err(failure::no_reply(self.model, &self.content_type, "")),
            Form::Other(body) => {
                let text = String::from_utf8_lossy(&body);
                Err(failure::no_reply(self.model, &self.content_type, &text))
            }
            Form::Json(body) => match serde_json::from_slice(&body) {
                Ok(body) => self.take_whole(body),
                Err(error) if error.is_eof() => Err(failure::broken_off(self.model)),
                Err(_) => {
                    let text = String::from_utf8_lossy(&body);
                    Err(failure::no_reply(self.model, &self.content_type, &text))
                }
            },
            Form::AwsStream(_) => Err(failure::broken_off(self.model)),
            Form::Stream(events) => {
                if let Some(event) = events.finish() {
                    let taken = take_event(
                        self.dialect.as_mut(),
                        &mut self.draft,
                        &mut self.stream,
                        &event,
                    );
                    match taken {
                        Ok(StreamProgress::Done) => return Ok(()),
                        // The last event is incomplete.
                        Ok(StreamProgress::More | StreamProgress::Unknown)
                        | Err(ReplyFault::NoJson(_)) => {}
                        Err(fault) => return Err(self.failed(fault, Some(&event.data))),
                    }
                }
                let is_whole = self.dialect.may_just_end() && self.draft.stop_reason().is_some();
                if is_whole {
                    let closed = self.dialect.close(&mut self.draft);
                    return closed.map_err(|fault| self.failed(fault, None));
                }
                match self.stream.foreign() {
                    Some(event) => Err(failure::no_reply(self.model, &self.content_type, event)),
                    None => Err(failure::broken_off(self.model)),
                }
            }
        }
    }

    fn take_whole(&mut self, body: Value) -> Result<(), CallError> {
        if let Some(error) = error_in(&body) {
            return Err(failure::of_said(self.model, error, false));
        }
        let text = body.to_string();
        let taken = self.dialect.whole(body, &mut self.draft);
        taken.map_err(|fault| self.failed(fault, Some(&text)))
    }

    fn failed(&self, fault: ReplyFault, seen: Option<&str>) -> CallError {
        let seen = seen.unwrap_or_default();
        match fault {
            ReplyFault::Said(said) => failure::of_said(self.model, &said, true),
            ReplyFault::NoJson(error) if error.is_eof() => failure::broken_off(self.model),
            ReplyFault::Strange | ReplyFault::NoJson(_) => {
                failure::no_reply(self.model, &self.content_type, seen)
            }
            ReplyFault::NoEvent(NoEvent::Damaged) => failure::damaged(self.model),
            ReplyFault::Excess(_) | ReplyFault::NoEvent(_) => {
                failure::excess(self.model, &fault.to_string())
            }
        }
    }

    /// The complete reply.
    ///
    /// # Errors
    ///
    /// If the model refused, or if the reply has neither words nor calls although it should.
    fn end(mut self) -> Result<ModelAnswer, CallError> {
        let taken = self.draft.take_text_calls(&self.names);
        taken.map_err(|excess| self.failed(excess.into(), None))?;
        if self.draft.is_refusal() || self.dialect.is_declined(&self.draft) {
            let reason = self.draft.stop_reason().unwrap_or("refusal");
            return Err(failure::declined(
                self.model,
                reason,
                self.draft.declined_with(),
            ));
        }
        let model = self.model;
        let reason = self.draft.stop_reason();
        if let Some(reason) = reason.filter(|reason| ABORTED.contains(reason)) {
            return Err(failure::aborted(model, reason));
        }
        if self.dialect.lost_a_call(&self.draft) {
            return Err(failure::lost_call(model, reason.unwrap_or_default()));
        }
        if self.draft.is_silent() {
            let is_cut = reason.is_some_and(|reason| CUT.contains(&reason));
            if is_cut {
                return Err(failure::cut_short(model, reason.unwrap_or_default()));
            }
            let ended_well = reason.is_some_and(|reason| ENDED_WELL.contains(&reason));
            if !(self.may_be_silent && ended_well) {
                return Err(failure::nothing_said(model, reason));
            }
        }
        self.draft
            .finish(model, &self.names, &self.types)
            .map_err(|error| failure::unkept(model, &error))
    }
}

/// Reads the parts of a complete body.
#[cfg(test)]
pub(super) fn read_parts(
    model: &HostedModel,
    dialect: Box<dyn Dialect>,
    content_type: &str,
    parts: &[Vec<u8>],
) -> Result<ModelAnswer, CallError> {
    let expected = Expectation {
        dialect,
        names: ToolNames::default(),
        types: ArgumentTypes::default(),
        may_be_silent: false,
    };
    let mut reading = ReplyReader::new(model, expected, content_type.to_owned());
    for part in parts {
        if reading.is_done {
            break;
        }
        reading.take(part)?;
    }
    reading.complete()?;
    reading.end()
}

/// The error in place of a reply: an object that contains it, or a list of one such object, as
/// Google sends.
fn error_in(body: &Value) -> Option<&Value> {
    let said = body.get(0).unwrap_or(body);
    let is_error =
        error_at(said).is_some() || said.get("type").and_then(Value::as_str) == Some("error");
    is_error.then_some(said)
}

fn take_event(
    dialect: &mut dyn Dialect,
    draft: &mut Draft,
    stream: &mut StreamState,
    event: &SseEvent,
) -> Result<StreamProgress, ReplyFault> {
    let Some(parts) = lines_of_json(event) else {
        return take_one_event(dialect, draft, stream, event);
    };
    for part in &parts {
        if take_one_event(dialect, draft, stream, part)? == StreamProgress::Done {
            return Ok(StreamProgress::Done);
        }
    }
    Ok(StreamProgress::More)
}

fn take_one_event(
    dialect: &mut dyn Dialect,
    draft: &mut Draft,
    stream: &mut StreamState,
    event: &SseEvent,
) -> Result<StreamProgress, ReplyFault> {
    // Gateways describe an error in plain words.
    let is_described = event.name == "error" && !event.data.trim().is_empty();
    if is_described && serde_json::from_str::<JsonObject>(&event.data).is_err() {
        return Err(ReplyFault::Said(json!({"error": event.data})));
    }
    let next = if is_keep_alive(event) {
        StreamProgress::Unknown
    } else {
        dialect.event(event, draft)?
    };
    stream.record(next, event);
    Ok(next)
}

/// The events of a server that writes no empty line between them: each of several lines is
/// complete. `None` for a usual event.
fn lines_of_json(event: &SseEvent) -> Option<Vec<SseEvent>> {
    if !event.data.contains('\n') {
        return None;
    }
    let lines = event.data.lines().filter(|line| !line.trim().is_empty());
    let lines: Vec<SseEvent> = lines
        .map(|line| SseEvent {
            name: event.name.clone(),
            data: line.to_owned(),
        })
        .collect();
    let is_complete = |line: &SseEvent| {
        line.data.trim().eq_ignore_ascii_case("[DONE]")
            || serde_json::from_str::<JsonObject>(&line.data).is_ok()
    };
    (lines.len() > 1 && lines.iter().all(is_complete)).then_some(lines)
}
