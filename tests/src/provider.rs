//! A local model provider: it speaks the wire protocols of the real ones, and breaks them on
//! demand.
//!
//! Responses are bytes in chunks, written one at a time, so that a test decides where a stream is
//! split.

use std::fmt::Write as _;
use std::io::{BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

#[derive(Debug, Clone)]
pub struct ReceivedRequest {
    pub method: String,
    pub path: String,
    /// Header lines, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body as JSON, or as text if it is not JSON.
    pub body: Value,
    pub number: usize,
}

impl ReceivedRequest {
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(found, _)| found == name)?;
        Some(&found.1)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseEnd {
    Whole,
    Closed,
    /// Nothing more is sent until the client closes.
    Silent,
}

/// Delays responses until a test opens it.
#[derive(Debug, Clone, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    /// Lets all responses through, from now on.
    pub fn open(&self) {
        let (is_open, changed) = &*self.0;
        *is_open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
    }

    /// True if responses are not delayed any longer.
    #[must_use]
    pub fn is_open(&self) -> bool {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pass(&self) {
        let (is_open, changed) = &*self.0;
        let is_open = is_open.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = changed.wait_while(is_open, |is_open| !*is_open);
        drop(passed.unwrap_or_else(PoisonError::into_inner));
    }
}

/// Creates a part of a body by its number; none after the last.
pub type BodyPartFn = fn(usize) -> Option<Vec<u8>>;

#[derive(Debug, Clone)]
pub struct ProviderResponse {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    /// The body, in the parts it is sent in.
    pub chunks: Vec<Vec<u8>>,
    pub ending: ResponseEnd,
    /// Bytes sent repeatedly after the chunks until the client closes; none if empty.
    pub repeated: Vec<u8>,
    /// Generator of the parts after the chunks, each created when it is sent.
    pub made: Option<BodyPartFn>,
    /// Pause before each repetition and each generated part.
    pub pause: Duration,
    /// Gate that the whole response waits for.
    pub gate: Option<Gate>,
}

impl ProviderResponse {
    #[must_use]
    pub fn stream(events: &str) -> Self {
        Self {
            status: 200,
            headers: vec![("content-type", "text/event-stream".to_owned())],
            chunks: vec![events.as_bytes().to_vec()],
            ending: ResponseEnd::Whole,
            repeated: Vec::new(),
            made: None,
            pause: Duration::ZERO,
            gate: None,
        }
    }

    /// A stream in the encoding of AWS.
    #[must_use]
    pub fn aws_stream(messages: &[u8]) -> Self {
        let mut response = Self::stream("");
        response.headers = vec![("content-type", AWS_STREAM.to_owned())];
        response.chunks = vec![messages.to_vec()];
        response
    }

    /// This, as JSON.
    #[must_use]
    pub fn json(body: &Value) -> Self {
        Self::error(200, body)
    }

    /// An error with a JSON body.
    #[must_use]
    pub fn error(status: u16, body: &Value) -> Self {
        Self {
            status,
            headers: vec![("content-type", "application/json".to_owned())],
            chunks: vec![body.to_string().into_bytes()],
            ending: ResponseEnd::Whole,
            repeated: Vec::new(),
            made: None,
            pause: Duration::ZERO,
            gate: None,
        }
    }

    #[must_use]
    pub fn with_header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// Compresses the body.
    ///
    /// # Panics
    ///
    /// Never: the encoder writes to memory.
    #[must_use]
    pub fn in_gzip(self) -> Self {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&self.chunks.concat()).unwrap();
        let mut compressed = self.with_header("content-encoding", "gzip");
        compressed.chunks = vec![encoder.finish().unwrap()];
        compressed
    }

    /// Splits the body into parts of `bytes` bytes, even within a character or an event.
    #[must_use]
    pub fn in_parts_of(mut self, bytes: usize) -> Self {
        let all = self.chunks.concat();
        self.chunks = all.chunks(bytes).map(<[u8]>::to_vec).collect();
        self
    }

    /// Makes the body endless: this part is repeated.
    #[must_use]
    pub fn repeating(mut self, part: &[u8]) -> Self {
        self.repeated = part.to_vec();
        self
    }

    /// Makes the body endless: this part is repeated, about a hundred times a second.
    #[must_use]
    pub fn repeating_slowly(mut self, part: &[u8]) -> Self {
        self.repeated = part.to_vec();
        self.pause = Duration::from_millis(10);
        self
    }

    /// Appends generated parts, each created when it is sent, about a hundred per second, until the
    /// generator ends.
    #[must_use]
    pub fn made_when_sent(mut self, part: BodyPartFn) -> Self {
        self.made = Some(part);
        self.pause = Duration::from_millis(5);
        self
    }

    /// Delays the response until the gate opens.
    #[must_use]
    pub fn behind(self, gate: Gate) -> Self {
        Self {
            gate: Some(gate),
            ..self
        }
    }

    #[must_use]
    pub fn ending(self, ending: ResponseEnd) -> Self {
        Self { ending, ..self }
    }
}

type ResponseHandler = Box<dyn FnMut(&ReceivedRequest) -> ProviderResponse + Send>;

/// A provider with the test's responses. Its threads end with the test's process.
pub struct Provider {
    address: SocketAddr,
    received: Arc<Mutex<Vec<ReceivedRequest>>>,
    /// Number of connections that the client closed before the response was complete.
    given_up: Arc<Mutex<usize>>,
}

impl Provider {
    /// Starts a server; `answer` is called for each request, one at a time.
    ///
    /// # Panics
    ///
    /// If it cannot listen on the loopback interface.
    #[must_use]
    pub fn start(
        answer: impl FnMut(&ReceivedRequest) -> ProviderResponse + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback can be listened on");
        let address = listener.local_addr().expect("it has an address");
        let received = Arc::new(Mutex::new(Vec::new()));
        let given_up = Arc::new(Mutex::new(0));
        let answer: Arc<Mutex<ResponseHandler>> = Arc::new(Mutex::new(Box::new(answer)));
        let (noted, gone) = (Arc::clone(&received), Arc::clone(&given_up));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (noted, gone) = (Arc::clone(&noted), Arc::clone(&gone));
                let answer = Arc::clone(&answer);
                std::thread::spawn(move || {
                    if serve(stream, &noted, &answer).is_err() {
                        *gone.lock().unwrap_or_else(PoisonError::into_inner) += 1;
                    }
                });
            }
        });
        Self {
            address,
            received,
            given_up,
        }
    }

    /// Its address, for `endpoint`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Its root, without a path.
    #[must_use]
    pub fn root(&self) -> String {
        format!("http://{}", self.address)
    }

    #[must_use]
    pub fn received(&self) -> Vec<ReceivedRequest> {
        let received = self.received.lock();
        received.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Number of requests abandoned by the client.
    #[must_use]
    pub fn given_up(&self) -> usize {
        *self.given_up.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn serve(
    stream: TcpStream,
    noted: &Mutex<Vec<ReceivedRequest>>,
    answer: &Mutex<ResponseHandler>,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    let Some(mut received) = read(&mut reader)? else {
        return Ok(());
    };
    let answer = {
        let mut all = noted.lock().unwrap_or_else(PoisonError::into_inner);
        received.number = all.len();
        all.push(received.clone());
        drop(all);
        let mut answer = answer.lock().unwrap_or_else(PoisonError::into_inner);
        answer(&received)
    };
    if let Some(gate) = &answer.gate {
        gate.pass();
    }
    let mut head = format!("HTTP/1.1 {} -\r\nconnection: close\r\n", answer.status);
    if answer.ending != ResponseEnd::Closed {
        head.push_str("transfer-encoding: chunked\r\n");
    }
    for (name, value) in &answer.headers {
        write!(head, "{name}: {value}\r\n").map_err(std::io::Error::other)?;
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes())?;
    for chunk in answer.chunks.iter().filter(|chunk| !chunk.is_empty()) {
        if answer.ending == ResponseEnd::Closed {
            stream.write_all(chunk)?;
            stream.flush()?;
        } else {
            write_chunk(&mut stream, chunk)?;
        }
    }
    for number in 0.. {
        std::thread::sleep(answer.pause);
        let Some(part) = answer.made.and_then(|made| made(number)) else {
            break;
        };
        write_chunk(&mut stream, &part)?;
    }
    while !answer.repeated.is_empty() {
        std::thread::sleep(answer.pause);
        write_chunk(&mut stream, &answer.repeated)?;
    }
    match answer.ending {
        ResponseEnd::Whole => stream.write_all(b"0\r\n\r\n"),
        ResponseEnd::Closed => Ok(()),
        // The client closes or disconnects.
        ResponseEnd::Silent => match reader.read(&mut [0; 1])? {
            0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        },
    }
}

fn write_chunk(stream: &mut TcpStream, chunk: &[u8]) -> std::io::Result<()> {
    let size = format!("{:x}\r\n", chunk.len());
    stream.write_all(&[size.as_bytes(), chunk, b"\r\n"].concat())?;
    stream.flush()
}

fn read(reader: &mut impl std::io::BufRead) -> std::io::Result<Option<ReceivedRequest>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split(' ').map(str::to_owned);
    let (method, path) = (
        words.next().unwrap_or_default(),
        words.next().unwrap_or_default(),
    );
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        headers.push((name.to_lowercase(), value.to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.and_then(|(_, length)| length.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body)?;
    Ok(Some(ReceivedRequest {
        method,
        path,
        headers,
        body: body_of(&body),
        number: 0,
    }))
}

/// Parses a body as JSON; returns anything else as text.
fn body_of(body: &[u8]) -> Value {
    let as_text = || match body {
        [] => Value::Null,
        body => Value::String(String::from_utf8_lossy(body).into_owned()),
    };
    serde_json::from_slice(body).unwrap_or_else(|_| as_text())
}

/// Events of Anthropic's Messages API.
#[must_use]
pub fn anthropic(events: &[Value]) -> String {
    let mut text = String::new();
    for event in events {
        let kind = event.get("type").and_then(Value::as_str).unwrap_or("error");
        text.push_str(&format!("event: {kind}\ndata: {event}\n\n"));
    }
    text
}

/// A complete reply of Anthropic's API with `text`.
#[must_use]
pub fn anthropic_saying(text: &str) -> String {
    anthropic(&anthropic_events(text))
}

/// The events of a complete reply of Anthropic's API with `text`.
#[must_use]
pub fn anthropic_events(text: &str) -> Vec<Value> {
    vec![
        json!({"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 5, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}}),
        json!({"type": "message_stop"}),
    ]
}

/// Media type of the encoding of AWS for streams.
const AWS_STREAM: &str = "application/vnd.amazon.eventstream";

/// Events of Anthropic's Messages API in the encoding of AWS, as Bedrock sends them.
#[must_use]
pub fn bedrock(events: &[Value]) -> Vec<u8> {
    let headers = [(":event-type", "chunk"), (":message-type", "event")];
    let messages = events.iter().map(|event| {
        let bytes = STANDARD.encode(event.to_string());
        aws_message(&headers, json!({"bytes": bytes}).to_string().as_bytes())
    });
    messages.collect::<Vec<_>>().concat()
}

/// One message in the encoding of AWS.
///
/// # Panics
///
/// If a header or the payload is too long for the encoding.
#[must_use]
pub fn aws_message(headers: &[(&str, &str)], payload: &[u8]) -> Vec<u8> {
    let mut head = Vec::new();
    for (name, value) in headers {
        head.push(u8::try_from(name.len()).expect("the name is short"));
        head.extend_from_slice(name.as_bytes());
        // The type of a text.
        head.push(7);
        let length = u16::try_from(value.len()).expect("the value is short");
        head.extend_from_slice(&length.to_be_bytes());
        head.extend_from_slice(value.as_bytes());
    }
    let length = |length: usize| u32::try_from(length).expect("the message is short");
    let mut message = length(head.len() + payload.len() + 16)
        .to_be_bytes()
        .to_vec();
    message.extend_from_slice(&length(head.len()).to_be_bytes());
    message.extend_from_slice(&crc32fast::hash(&message).to_be_bytes());
    message.extend_from_slice(&head);
    message.extend_from_slice(payload);
    message.extend_from_slice(&crc32fast::hash(&message).to_be_bytes());
    message
}

/// Events of the Responses API.
#[must_use]
pub fn responses(events: &[Value]) -> String {
    anthropic(events)
}

/// A complete reply of the Responses API with `text`.
#[must_use]
pub fn responses_saying(text: &str) -> String {
    let item = |status: &str, content: Value| {
        json!({"type": "message", "id": "msg_1", "role": "assistant", "status": status,
            "content": content})
    };
    let all = item(
        "completed",
        json!([{"type": "output_text", "text": text, "annotations": []}]),
    );
    responses(&[
        json!({"type": "response.created",
            "response": {"id": "resp_1", "model": "big-1-0901", "status": "in_progress", "output": []}}),
        json!({"type": "response.output_item.added", "output_index": 0,
            "item": item("in_progress", json!([]))}),
        json!({"type": "response.output_text.delta", "output_index": 0, "item_id": "msg_1",
            "content_index": 0, "delta": text}),
        json!({"type": "response.output_text.done", "output_index": 0, "item_id": "msg_1",
            "content_index": 0, "text": text}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": all}),
        json!({"type": "response.completed", "response": {"id": "resp_1", "model": "big-1-0901",
            "status": "completed", "output": [all], "usage": {"input_tokens": 9,
            "input_tokens_details": {"cached_tokens": 3}, "output_tokens": 4,
            "output_tokens_details": {"reasoning_tokens": 0}}}}),
    ])
}

/// Chunks of the Chat Completions API, without the mark of the end.
#[must_use]
pub fn openai(chunks: &[Value]) -> String {
    let lines = chunks.iter().map(|chunk| format!("data: {chunk}\n\n"));
    lines.collect()
}

/// End of a stream of the Chat Completions API.
pub const OPENAI_DONE: &str = "data: [DONE]\n\n";

/// A complete reply of the Chat Completions API with these words, each in its own chunk.
#[must_use]
pub fn openai_saying(words: &[&str]) -> String {
    let mut chunks = vec![openai_delta(&json!({"role": "assistant", "content": ""}))];
    let words = words
        .iter()
        .map(|word| openai_delta(&json!({"content": word})));
    chunks.extend(words);
    chunks.push(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}));
    chunks.push(
        json!({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 3}}}),
    );
    openai(&chunks) + OPENAI_DONE
}

/// A whole reply of the Chat Completions API that calls one tool.
#[must_use]
pub fn openai_calling(tool: &str, args: &Value) -> String {
    let call = json!({"tool_calls": [{"index": 0, "id": format!("call-{tool}"), "type": "function",
        "function": {"name": tool, "arguments": args.to_string()}}]});
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]});
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4}});
    openai(&[openai_delta(&call), end, usage]) + OPENAI_DONE
}

/// One chunk of the Chat Completions API.
#[must_use]
pub fn openai_delta(delta: &Value) -> Value {
    json!({"id": "chatcmpl-1", "model": "big-1-0901",
        "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

/// Chunks of the Gemini API.
#[must_use]
pub fn google(chunks: &[Value]) -> String {
    openai(chunks)
}

/// A complete reply of the Gemini API with `text`.
#[must_use]
pub fn google_saying(text: &str) -> String {
    google(&[
        json!({"candidates": [{"content": {"role": "model", "parts": [{"text": text}]},
        "finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 4}}),
    ])
}
