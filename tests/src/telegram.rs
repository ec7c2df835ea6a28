//! A fake of Telegram's Bot API: it keeps updates until a later one is requested, as Telegram does.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::wait::within;

/// Token that the fake accepts.
pub const TOKEN: &str = "123456:double";

/// Path of its only file.
const FILE_PATH: &str = "photos/file_0.jpg";

/// Wait of a request without updates.
const POLL: Duration = Duration::from_millis(20);

#[derive(Debug, Clone)]
pub enum TelegramFault {
    /// This status, with this body.
    Answer(u16, Value),
    Break,
    /// No response is sent, although the request is executed.
    Hang,
}

/// Something the bot did.
#[derive(Debug, Clone)]
pub struct BotAction {
    /// The method of the Bot API.
    pub method: String,
    pub params: Value,
    /// Id of the resulting message, if any.
    pub message_id: usize,
}

/// Maximum length of a message, in UTF-16 units.
const TEXT_UNITS_MAX: usize = 4_096;

#[derive(Debug, Default)]
struct State {
    updates: VecDeque<(i64, Value)>,
    next_id: i64,
    mishaps: VecDeque<TelegramFault>,
    polls: usize,
    /// Types of updates in the latest request.
    allowed: Vec<String>,
    deeds: Vec<BotAction>,
    deed_mishaps: VecDeque<TelegramFault>,
    /// The bot must wait until then.
    closed_until: Option<Instant>,
    impatient: usize,
}

/// The fake. Its server ends with the test's process.
#[derive(Debug, Clone)]
pub struct Telegram {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Telegram {
    #[must_use]
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let telegram = Self {
            address: listener.local_addr().unwrap(),
            state: Arc::new(Mutex::new(State {
                next_id: 1,
                ..State::default()
            })),
        };
        let server = telegram.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let server = server.clone();
                std::thread::spawn(move || server.serve(stream));
            }
        });
        telegram
    }

    /// Its URL, for `endpoint`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Delivers an update of this type.
    pub fn deliver(&self, kind: &str, content: &Value) {
        let mut state = self.state.lock().unwrap();
        let id = state.next_id;
        state.next_id += 1;
        let update = json!({"update_id": id, kind: content});
        state.updates.push_back((id, update));
    }

    /// Sends a user's message to the bot.
    pub fn write(&self, chat: i64, text: &str) {
        let mut state = self.state.lock().unwrap();
        let id = state.next_id;
        state.next_id += 1;
        let message = json!({"message_id": id, "date": 1, "chat": {"id": chat, "type": "private"},
            "from": {"id": chat, "is_bot": false}, "text": text});
        let update = json!({"update_id": id, "message": message});
        state.updates.push_back((id, update));
    }

    /// Sends a message of a person in a chat to the bot.
    pub fn write_as(&self, chat: &Value, person: &Value, text: &str) {
        let mut state = self.state.lock().unwrap();
        let id = state.next_id;
        state.next_id += 1;
        let message =
            json!({"message_id": id, "date": 1, "chat": chat, "from": person, "text": text});
        let update = json!({"update_id": id, "message": message});
        state.updates.push_back((id, update));
    }

    /// Presses a button with this data, below a message of a chat. Returns the query id.
    pub fn press(&self, user: i64, (chat, message_id): (i64, usize), data: &str) -> String {
        let mut state = self.state.lock().unwrap();
        let id = state.next_id;
        state.next_id += 1;
        let query_id = format!("query-{id}");
        let message =
            json!({"message_id": message_id, "date": 1, "chat": {"id": chat, "type": "group"}});
        let query = json!({"id": query_id, "from": {"id": user, "is_bot": false},
            "message": message, "data": data});
        let update = json!({"update_id": id, "callback_query": query});
        state.updates.push_back((id, update));
        query_id
    }

    /// Sets the faults of the next update requests.
    pub fn have(&self, mishaps: impl IntoIterator<Item = TelegramFault>) {
        self.state.lock().unwrap().mishaps.extend(mishaps);
    }

    /// Sets the faults of the bot's next actions.
    pub fn have_deeds(&self, mishaps: impl IntoIterator<Item = TelegramFault>) {
        self.state.lock().unwrap().deed_mishaps.extend(mishaps);
    }

    /// Actions of the bot, in order.
    #[must_use]
    pub fn deeds(&self) -> Vec<BotAction> {
        self.state.lock().unwrap().deeds.clone()
    }

    /// Texts of the bot's messages in a chat.
    #[must_use]
    pub fn written_to(&self, chat: i64) -> Vec<String> {
        let deeds = self.deeds().into_iter();
        let messages = deeds.filter(|deed| deed.method == "sendMessage");
        messages
            .filter(|deed| deed.params["chat_id"] == chat)
            .map(|deed| deed.params["text"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Number of actions before the requested wait was over.
    #[must_use]
    pub fn impatient(&self) -> usize {
        self.state.lock().unwrap().impatient
    }

    /// Number of updates it still keeps.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.state.lock().unwrap().updates.len()
    }

    /// Types of updates that the latest request names.
    #[must_use]
    pub fn allowed(&self) -> Vec<String> {
        self.state.lock().unwrap().allowed.clone()
    }

    /// Number of update requests.
    #[must_use]
    pub fn polls(&self) -> usize {
        self.state.lock().unwrap().polls
    }

    fn serve(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut stream = stream;
        while let Some((path, body)) = read_request(&mut reader) {
            let (status, answer) = match path.strip_prefix(&format!("/bot{TOKEN}/")) {
                None if path == format!("/file/bot{TOKEN}/{FILE_PATH}") => (200, json!("hello")),
                Some("getFile") => {
                    let file = json!({"file_id": body["file_id"], "file_unique_id": "u1",
                        "file_path": FILE_PATH, "file_size": 7});
                    (200, json!({"ok": true, "result": file}))
                }
                None => (
                    401,
                    json!({"ok": false, "error_code": 401, "description": "Unauthorized"}),
                ),
                Some("getMe") => (
                    200,
                    json!({"ok": true, "result": {"id": 1, "is_bot": true, "first_name": "Double",
                        "username": "double_bot"}}),
                ),
                Some("getUpdates") => match self.updates(&body) {
                    Some(answer) => answer,
                    None => return,
                },
                Some(method) => match self.deed(method, body) {
                    Some(answer) => answer,
                    None => {
                        // Continues when the waiting client disconnects.
                        drop(reader.read(&mut [0]));
                        return;
                    }
                },
            };
            let answer = answer.to_string();
            let head = format!(
                "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                answer.len()
            );
            let written = stream.write_all(head.as_bytes());
            if written
                .and_then(|()| stream.write_all(answer.as_bytes()))
                .is_err()
            {
                return;
            }
        }
    }

    /// Response to an action of the bot; none without a response.
    fn deed(&self, method: &str, params: Value) -> Option<(u16, Value)> {
        let mut state = self.state.lock().unwrap();
        if state
            .closed_until
            .is_some_and(|until| Instant::now() < until)
        {
            state.impatient += 1;
        }
        let mishap = state.deed_mishaps.pop_front();
        if let Some(TelegramFault::Answer(status, answer)) = mishap {
            let patience_s = answer["parameters"]["retry_after"].as_u64();
            state.closed_until = patience_s.map(|s| Instant::now() + Duration::from_secs(s));
            return Some((status, answer));
        }
        if matches!(mishap, Some(TelegramFault::Break)) {
            return None;
        }
        let refused = |status: u16, why: &str| {
            let body = json!({"ok": false, "error_code": status, "description": why});
            Some((status, body))
        };
        if params["chat_id"] == 404 {
            return refused(400, "Bad Request: chat not found");
        }
        if params["chat_id"] == 403 {
            return refused(403, "Forbidden: bot was blocked by the user");
        }
        let text = params["text"].as_str().unwrap_or_default();
        if text.encode_utf16().count() > TEXT_UNITS_MAX {
            return refused(400, "Bad Request: message is too long");
        }
        let id = 1_001 + state.deeds.len();
        let result = result_of(method, &params, id);
        let method = method.to_owned();
        state.deeds.push(BotAction {
            method,
            params,
            message_id: id,
        });
        if matches!(mishap, Some(TelegramFault::Hang)) {
            return None;
        }
        Some((200, json!({"ok": true, "result": result})))
    }

    /// Response to an update request; none if the connection must break.
    fn updates(&self, body: &Value) -> Option<(u16, Value)> {
        let is_waiting = {
            let mut state = self.state.lock().unwrap();
            state.polls += 1;
            if let Some(mishap) = state.mishaps.pop_front() {
                return match mishap {
                    TelegramFault::Answer(status, answer) => Some((status, answer)),
                    TelegramFault::Break | TelegramFault::Hang => None,
                };
            }
            if let Some(offset) = body["offset"].as_i64() {
                state.updates.retain(|(id, _)| *id >= offset);
            }
            if let Some(allowed) = body["allowed_updates"].as_array() {
                let is_allowed = |update: &Value| {
                    allowed
                        .iter()
                        .any(|kind| update.get(kind.as_str().unwrap()).is_some())
                };
                state.updates.retain(|(_, update)| is_allowed(update));
                state.allowed = allowed
                    .iter()
                    .map(|kind| kind.as_str().unwrap().to_owned())
                    .collect();
            }
            state.updates.is_empty() && body["timeout"] != 0
        };
        if is_waiting {
            let has_news = || !self.state.lock().unwrap().updates.is_empty();
            within(POLL, || has_news().then_some(()));
        }
        let state = self.state.lock().unwrap();
        // A few at a time, as a busy bot gets them.
        let updates: Vec<&Value> = state
            .updates
            .iter()
            .take(5)
            .map(|(_, update)| update)
            .collect();
        Some((200, json!({"ok": true, "result": updates})))
    }
}

/// Result of a method: the message for those that send or edit one.
fn result_of(method: &str, params: &Value, id: usize) -> Value {
    let id = match method {
        "editMessageText" => params["message_id"].clone(),
        _ if method.starts_with("send") && method != "sendChatAction" => json!(id),
        _ => return json!(true),
    };
    let chat = params["chat_id"].as_i64().unwrap_or(-1);
    let kind = if chat > 0 { "private" } else { "supergroup" };
    json!({"message_id": id, "date": 1, "chat": {"id": chat, "type": kind},
        "from": {"id": 1, "is_bot": true, "first_name": "Double"}, "text": params["text"]})
}

fn read_request(reader: &mut BufReader<TcpStream>) -> Option<(String, Value)> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|len| *len > 0)?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut len = 0;
    let mut is_chunked = false;
    let mut boundary = None;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok().filter(|len| *len > 0)?;
        let header = header.trim().to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some((_, value)) = header.split_once("boundary=") {
            boundary = Some(value.trim_matches('"').to_owned());
        }
        is_chunked |= header.starts_with("transfer-encoding:") && header.ends_with("chunked");
        if let Some(value) = header.strip_prefix("content-length:") {
            len = value.trim().parse().ok()?;
        }
    }
    let body = if is_chunked {
        chunks(reader)?
    } else {
        let mut body = vec![0; len];
        reader.read_exact(&mut body).ok()?;
        body
    };
    let params = match boundary {
        Some(boundary) => form(&String::from_utf8_lossy(&body), &boundary),
        None => serde_json::from_slice(&body).unwrap_or(Value::Null),
    };
    Some((path, params))
}

/// A body of unknown length, as clients stream files.
fn chunks(reader: &mut BufReader<TcpStream>) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut size = String::new();
        reader.read_line(&mut size).ok().filter(|len| *len > 0)?;
        let size = usize::from_str_radix(size.trim(), 16).ok()?;
        // Each chunk ends with a line break.
        let mut chunk = vec![0; size + 2];
        reader.read_exact(&mut chunk).ok()?;
        chunk.truncate(size);
        if chunk.is_empty() {
            return Some(body);
        }
        body.extend(chunk);
    }
}

/// The fields of a form; a file is `name: content`, also if a field refers to it by `attach://`.
fn form(body: &str, boundary: &str) -> Value {
    let boundary = format!("--{boundary}");
    let parts = body.split(&boundary);
    let fields = parts.filter_map(|part| {
        let (head, content) = part.trim_start().split_once("\r\n\r\n")?;
        let value_of = |name: &str| {
            let mut facts = head.split([';', '\r', '\n']).map(str::trim);
            let value = facts.find_map(|fact| fact.strip_prefix(name)?.strip_prefix('='))?;
            Some(value.trim_matches('"').to_owned())
        };
        let content = content.strip_suffix("\r\n").unwrap_or(content);
        let value = match value_of("filename") {
            Some(file) => json!(format!("{file}: {content}")),
            None => serde_json::from_str(content).unwrap_or_else(|_| json!(content)),
        };
        Some((value_of("name")?, value))
    });
    let mut fields: serde_json::Map<String, Value> = fields.collect();
    let attached: Vec<(String, String)> = fields
        .iter()
        .filter_map(|(name, value)| {
            let file = value.as_str()?.strip_prefix("attach://")?;
            Some((name.clone(), file.to_owned()))
        })
        .collect();
    for (name, file) in attached {
        if let Some(content) = fields.remove(&file) {
            fields.insert(name, content);
        }
    }
    Value::Object(fields)
}
