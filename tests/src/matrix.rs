//! A fake of a Matrix homeserver for one account: it keeps all events, as a homeserver does, and
//! answers with the shapes of Synapse 1.163.2.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::wait::within;

/// Token that the fake accepts.
pub const TOKEN: &str = "syt_double";

/// The account of the token.
pub const BOT: &str = "@bot:example.test";

/// Wait of a request without news.
const POLL: Duration = Duration::from_millis(20);

/// Events of a room in one answer; a homeserver sends more, but the rest is the same.
const TIMELINE: usize = 4;

#[derive(Debug, Clone)]
pub enum MatrixFault {
    /// This status, with this body; nothing is done.
    Answer(u16, Value),
    /// The connection breaks after the request was done.
    Lose,
}

/// An event that the account sent.
#[derive(Debug, Clone)]
pub struct SentEvent {
    pub room: String,
    pub kind: String,
    pub content: Value,
    pub id: String,
}

impl SentEvent {
    /// The text of a message.
    #[must_use]
    pub fn body(&self) -> &str {
        self.content["body"].as_str().unwrap_or_default()
    }
}

#[derive(Debug, Default)]
struct State {
    /// All events of all rooms, each with its room. A position is a number of events.
    log: Vec<(String, Value)>,
    sent: Vec<SentEvent>,
    /// Events by the path of their request.
    transactions: BTreeMap<String, String>,
    files: Vec<Vec<u8>>,
    sync_faults: VecDeque<MatrixFault>,
    send_faults: VecDeque<MatrixFault>,
    typing: usize,
}

/// The fake. Its server ends with the test's process.
#[derive(Debug, Clone)]
pub struct Homeserver {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

struct Request {
    /// Decoded segments after `_matrix`.
    path: Vec<String>,
    query: BTreeMap<String, String>,
    is_authorized: bool,
    body: Vec<u8>,
}

enum Answer {
    Json(u16, Value),
    File(Vec<u8>),
    /// No answer: the connection breaks.
    None,
}

fn refusal(status: u16, code: &str, why: &str) -> Answer {
    Answer::Json(status, json!({"errcode": code, "error": why}))
}

impl State {
    fn membership(&self, room: &str, user: &str) -> Option<&str> {
        let mut events = self.log.iter().rev();
        let (_, member) = events.find(|(of, event)| {
            of == room && event["type"] == "m.room.member" && event["state_key"] == user
        })?;
        member["content"]["membership"].as_str()
    }

    /// Names of the members of a room.
    fn members(&self, room: &str) -> BTreeMap<String, Value> {
        let mut members = BTreeMap::new();
        for (_, event) in self.log.iter().filter(|(of, _)| of == room) {
            if event["type"] == "m.room.member" {
                let user = event["state_key"].as_str().unwrap().to_owned();
                if event["content"]["membership"] == "join" {
                    let name = event["content"]["displayname"].clone();
                    let member = json!({"avatar_url": null, "display_name": name});
                    members.insert(user, member);
                } else {
                    members.remove(&user);
                }
            }
        }
        members
    }

    fn add(&mut self, room: &str, sender: &str, kind: &str, content: &Value) -> String {
        let id = format!("$event-{}", self.log.len());
        let event = json!({"content": content, "event_id": id, "sender": sender, "type": kind,
            "origin_server_ts": 1_796_001_177_180_u64,
            "unsigned": {"age": 1, "membership": "join"}});
        self.log.push((room.to_owned(), event));
        id
    }

    fn add_state(&mut self, room: &str, sender: &str, (kind, key): (&str, &str), content: &Value) {
        self.add(room, sender, kind, content);
        let last = self.log.last_mut().unwrap();
        last.1["state_key"] = json!(key);
    }

    fn join(&mut self, room: &str, user: &str, name: &str) {
        let before = self.membership(room, user).map(str::to_owned);
        let content = json!({"membership": "join", "displayname": name});
        self.add_state(room, user, ("m.room.member", user), &content);
        if let Some(before) = before {
            let last = self.log.last_mut().unwrap();
            last.1["unsigned"]["prev_content"] = json!({"membership": before});
        }
    }

    fn find(&self, room: &str, id: &str) -> Option<Value> {
        let mut events = self.log.iter();
        let (_, event) = events.find(|(of, event)| of == room && event["event_id"] == id)?;
        let mut event = event.clone();
        let in_thread: Vec<&Value> = self
            .log
            .iter()
            .map(|(_, event)| event)
            .filter(|event| {
                let relation = &event["content"]["m.relates_to"];
                relation["rel_type"] == "m.thread" && relation["event_id"] == id
            })
            .collect();
        if !in_thread.is_empty() {
            let is_in = in_thread.iter().any(|event| event["sender"] == BOT);
            event["unsigned"]["m.relations"] = json!({"m.thread": {"count": in_thread.len(),
                "current_user_participated": is_in, "latest_event": in_thread.last()}});
        }
        Some(event)
    }

    /// Events of a room in a range of positions.
    fn range(&self, room: &str, from: usize, to: usize) -> Vec<(usize, Value)> {
        let events = self.log.iter().enumerate();
        let events = events.filter(|(at, (of, _))| of == room && (from..to).contains(at));
        events.map(|(at, (_, event))| (at, event.clone())).collect()
    }

    /// News since a position; all pending invitations without one.
    fn news(&self, since: Option<usize>, has_events: bool) -> Value {
        let end = self.log.len();
        let start = since.unwrap_or(0);
        let mut rooms: Vec<&String> = self.log.iter().map(|(room, _)| room).collect();
        rooms.sort();
        rooms.dedup();
        let (mut joined, mut invited) = (json!({}), json!({}));
        for room in rooms {
            let news = self.range(room, start, end);
            let is_own =
                |event: &Value| event["type"] == "m.room.member" && event["state_key"] == BOT;
            match self.membership(room, BOT) {
                Some("join") if has_events && !news.is_empty() => {
                    let has_come = news.iter().any(|(_, event)| {
                        is_own(event) && event["unsigned"]["prev_content"]["membership"] != "join"
                    });
                    // A new room has its history, and the position before the answer.
                    let all = if has_come {
                        self.range(room, 0, end)
                    } else {
                        news
                    };
                    let skipped = if has_come {
                        0
                    } else {
                        all.len().saturating_sub(TIMELINE)
                    };
                    let first = all[skipped].0;
                    let events: Vec<&Value> =
                        all[skipped..].iter().map(|(_, event)| event).collect();
                    let before = if has_come { start } else { first };
                    joined[room] = json!({"timeline": {"events": events,
                        "prev_batch": format!("s{before}"), "limited": has_come || skipped > 0},
                        "state": {"events": []}, "summary": {}});
                }
                Some("invite") if news.iter().any(|(_, event)| is_own(event)) => {
                    let all = self.range(room, 0, end);
                    let events: Vec<&Value> = all.iter().map(|(_, event)| event).collect();
                    invited[room] = json!({"invite_state": {"events": events}});
                }
                _ => {}
            }
        }
        json!({"next_batch": format!("s{end}"), "rooms": {"join": joined, "invite": invited}})
    }

    /// Answer to a request of the account to send an event.
    fn sent_event(&mut self, path: &str, (room, kind, content): (&str, &str, Value)) -> Answer {
        let fault = self.send_faults.pop_front();
        if let Some(MatrixFault::Answer(status, body)) = fault {
            return Answer::Json(status, body);
        }
        let known = self.transactions.get(path).cloned();
        let id = known.unwrap_or_else(|| {
            let id = self.add(room, BOT, kind, &content);
            self.transactions.insert(path.to_owned(), id.clone());
            self.sent.push(SentEvent {
                room: room.to_owned(),
                kind: kind.to_owned(),
                content,
                id: id.clone(),
            });
            id
        });
        match fault {
            Some(MatrixFault::Lose) => Answer::None,
            Some(MatrixFault::Answer(..)) | None => Answer::Json(200, json!({"event_id": id})),
        }
    }
}

fn position(text: Option<&String>) -> Option<usize> {
    text?.strip_prefix('s')?.parse().ok()
}

impl Homeserver {
    #[must_use]
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let homeserver = Self {
            address: listener.local_addr().unwrap(),
            state: Arc::default(),
        };
        let server = homeserver.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let server = server.clone();
                std::thread::spawn(move || server.serve(stream));
            }
        });
        homeserver
    }

    /// Its URL, for `endpoint`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Creates a room with these people, which the account has joined.
    pub fn room(&self, room: &str, name: &str, people: &[(&str, &str)]) {
        self.invite(room, name, people);
        self.state.lock().unwrap().join(room, BOT, "Goon Bot");
    }

    /// Creates a room with these people, the first of whom invites the account.
    pub fn invite(&self, room: &str, name: &str, people: &[(&str, &str)]) {
        let mut state = self.state.lock().unwrap();
        let owner = people[0].0;
        for (user, name) in people {
            state.join(room, user, name);
        }
        state.add_state(room, owner, ("m.room.name", ""), &json!({"name": name}));
        let content = json!({"membership": "invite", "displayname": "Goon Bot"});
        state.add_state(room, owner, ("m.room.member", BOT), &content);
    }

    /// Sends an event of a person. Returns its ID.
    pub fn send(&self, room: &str, sender: &str, kind: &str, content: &Value) -> String {
        self.state.lock().unwrap().add(room, sender, kind, content)
    }

    /// Sends a text of a person. Returns its ID.
    pub fn say(&self, room: &str, sender: &str, text: &str) -> String {
        let content = json!({"msgtype": "m.text", "body": text});
        self.send(room, sender, "m.room.message", &content)
    }

    /// Stores a file and returns its URI.
    #[must_use]
    pub fn file(&self, content: &str) -> String {
        let mut state = self.state.lock().unwrap();
        state.files.push(content.as_bytes().to_vec());
        format!("mxc://example.test/{}", state.files.len() - 1)
    }

    /// Content of a file of the account.
    #[must_use]
    pub fn content_of(&self, uri: &str) -> String {
        let state = self.state.lock().unwrap();
        let number = uri.strip_prefix("mxc://example.test/").unwrap();
        let number: usize = number.parse().unwrap();
        String::from_utf8_lossy(&state.files[number]).into_owned()
    }

    /// Sets the faults of the next syncs.
    pub fn have(&self, faults: impl IntoIterator<Item = MatrixFault>) {
        self.state.lock().unwrap().sync_faults.extend(faults);
    }

    /// Sets the faults of the next events of the account.
    pub fn have_sends(&self, faults: impl IntoIterator<Item = MatrixFault>) {
        self.state.lock().unwrap().send_faults.extend(faults);
    }

    /// Events of the account, in order.
    #[must_use]
    pub fn sent(&self) -> Vec<SentEvent> {
        self.state.lock().unwrap().sent.clone()
    }

    /// Messages of the account, in order.
    #[must_use]
    pub fn messages(&self) -> Vec<SentEvent> {
        let mut sent = self.sent();
        sent.retain(|event| event.kind == "m.room.message");
        sent
    }

    /// True if the account is in a room.
    #[must_use]
    pub fn has_joined(&self, room: &str) -> bool {
        self.state.lock().unwrap().membership(room, BOT) == Some("join")
    }

    /// Number of typing indicators.
    #[must_use]
    pub fn typing(&self) -> usize {
        self.state.lock().unwrap().typing
    }

    fn serve(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut stream = stream;
        while let Some(request) = read_request(&mut reader) {
            let (status, kind, body) = match self.answer(&request) {
                Answer::Json(status, body) => {
                    (status, "application/json", body.to_string().into_bytes())
                }
                Answer::File(content) => (200, "text/plain; charset=UTF-8", content),
                Answer::None => return,
            };
            let head = format!(
                "HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            let written = stream.write_all(head.as_bytes());
            if written.and_then(|()| stream.write_all(&body)).is_err() {
                return;
            }
        }
    }

    fn answer(&self, request: &Request) -> Answer {
        if !request.is_authorized {
            return Answer::Json(
                401,
                json!({"errcode": "M_UNKNOWN_TOKEN", "error": "Invalid access token passed.",
                    "soft_logout": false}),
            );
        }
        let path: Vec<&str> = request.path.iter().map(String::as_str).collect();
        match path.as_slice() {
            ["client", "v3", "account", "whoami"] => Answer::Json(
                200,
                json!({"user_id": BOT, "is_guest": false, "device_id": "DOUBLE"}),
            ),
            ["client", "v3", "profile", _, "displayname"] => {
                Answer::Json(200, json!({"displayname": "Goon Bot"}))
            }
            ["client", "v3", "sync"] => self.sync(request),
            ["client", "v3", "rooms", room, rest @ ..] => self.in_room(room, rest, request),
            ["client", "v1", "rooms", room, "relations", root, "m.thread"] => {
                let state = self.state.lock().unwrap();
                let all = state.range(room, 0, state.log.len());
                let events = all.into_iter().rev().map(|(_, event)| event);
                let chunk = events.filter(|event| {
                    let relation = &event["content"]["m.relates_to"];
                    relation["rel_type"] == "m.thread" && relation["event_id"] == *root
                });
                Answer::Json(200, json!({"chunk": chunk.collect::<Vec<_>>()}))
            }
            ["media", "v3", "upload"] => {
                let content = String::from_utf8_lossy(&request.body).into_owned();
                Answer::Json(200, json!({"content_uri": self.file(&content)}))
            }
            ["client", "v1", "media", "download", "example.test", number] => {
                let state = self.state.lock().unwrap();
                let number: Option<usize> = number.parse().ok();
                match number.and_then(|number| state.files.get(number)) {
                    Some(content) => Answer::File(content.clone()),
                    None => refusal(404, "M_NOT_FOUND", "Not found"),
                }
            }
            _ => refusal(404, "M_UNRECOGNIZED", "Unrecognized request"),
        }
    }

    fn sync(&self, request: &Request) -> Answer {
        let fault = self.state.lock().unwrap().sync_faults.pop_front();
        match fault {
            Some(MatrixFault::Answer(status, body)) => return Answer::Json(status, body),
            Some(MatrixFault::Lose) => return Answer::None,
            None => {}
        }
        let since = request.query.get("since");
        if since.is_some() && position(since).is_none() {
            return refusal(400, "M_UNKNOWN", "Invalid stream token");
        }
        let filter = request.query.get("filter");
        let filter = filter.map_or("{}", String::as_str);
        let filter: Value = serde_json::from_str(filter).unwrap();
        let has_events = filter["room"]["timeline"].get("not_types").is_none();
        let since = position(since);
        if since.is_some() && request.query.get("timeout").is_some_and(|it| it != "0") {
            let has_news = || self.state.lock().unwrap().log.len() > since.unwrap_or(0);
            within(POLL, || has_news().then_some(()));
        }
        Answer::Json(200, self.state.lock().unwrap().news(since, has_events))
    }

    fn in_room(&self, room: &str, rest: &[&str], request: &Request) -> Answer {
        let mut state = self.state.lock().unwrap();
        let body: Value = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
        let end = state.log.len();
        match rest {
            ["join"] if state.membership(room, BOT) == Some("invite") => {
                state.join(room, BOT, "Goon Bot");
                return Answer::Json(200, json!({"room_id": room}));
            }
            _ if state.membership(room, BOT) != Some("join") => {
                return refusal(403, "M_FORBIDDEN", "User not in room");
            }
            _ => {}
        }
        match rest {
            ["joined_members"] => Answer::Json(200, json!({"joined": state.members(room)})),
            ["state", kind] => {
                let mut events = state.log.iter().rev();
                let found = events.find(|(of, event)| of == room && event["type"] == *kind);
                match found {
                    Some((_, event)) => Answer::Json(200, event["content"].clone()),
                    None => refusal(404, "M_NOT_FOUND", "Event not found."),
                }
            }
            ["event", id] => match state.find(room, id) {
                Some(event) => Answer::Json(200, event),
                None => refusal(404, "M_NOT_FOUND", "Event not found."),
            },
            ["messages"] => {
                let from = position(request.query.get("from")).unwrap_or(end);
                let to = position(request.query.get("to")).unwrap_or(0);
                let range = state.range(room, to, from);
                let page = range.iter().rev().take(TIMELINE);
                let page: Vec<&(usize, Value)> = page.collect();
                let events: Vec<&Value> = page.iter().map(|(_, event)| event).collect();
                let mut answer = json!({"chunk": events});
                if let Some((last, _)) = page.last() {
                    answer["end"] = json!(format!("s{last}"));
                }
                Answer::Json(200, answer)
            }
            ["typing", _] => {
                state.typing += 1;
                Answer::Json(200, json!({}))
            }
            ["send", kind, transaction] => {
                let path = format!("{room} {kind} {transaction}");
                state.sent_event(&path, (room, kind, body))
            }
            ["redact", id, transaction] => {
                let path = format!("{room} {id} {transaction}");
                let content = json!({"redacts": id});
                state.sent_event(&path, (room, "m.room.redaction", content))
            }
            _ => refusal(404, "M_UNRECOGNIZED", "Unrecognized request"),
        }
    }
}

fn read_request(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|len| *len > 0)?;
    let target = line.split(' ').nth(1)?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let path = path.strip_prefix("/_matrix/")?;
    let path = path.split('/').map(|part| decoded(part, false)).collect();
    let query = query.split('&').filter_map(|pair| pair.split_once('='));
    let query = query.map(|(name, value)| (name.to_owned(), decoded(value, true)));
    let query = query.collect();
    let (mut len, mut is_authorized) = (0, false);
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok().filter(|len| *len > 0)?;
        let header = header.trim();
        if header.is_empty() {
            break;
        }
        let (name, value) = header.split_once(": ")?;
        match name.to_ascii_lowercase().as_str() {
            "authorization" => is_authorized = value == format!("Bearer {TOKEN}"),
            "content-length" => len = value.parse().ok()?,
            _ => {}
        }
    }
    let mut body = vec![0; len];
    reader.read_exact(&mut body).ok()?;
    Some(Request {
        path,
        query,
        is_authorized,
        body,
    })
}

/// A segment or value of a URL.
fn decoded(text: &str, is_query: bool) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' if is_query => b' ',
            b'%' => {
                let digits = [rest.next().unwrap(), rest.next().unwrap()];
                let digits = std::str::from_utf8(&digits).unwrap();
                u8::from_str_radix(digits, 16).unwrap()
            }
            other => other,
        });
    }
    String::from_utf8(bytes).unwrap()
}
