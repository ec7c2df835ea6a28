//! Maps a received message to an event. Pure.

use goondan_protocol::JsonObject;
use goondan_protocol::event::ConnectorEvent;
use goondan_protocol::ignored_messages::IgnoreReason;
use goondan_protocol::service::{EMAIL_REPLY, EmailReply};
use mail_parser::{Address, Message, MessageParser, MessagePart, MimeHeaders as _, PartType};
use serde_json::{Value, json};

use super::authentication::is_verified;
use super::guard::hostile;
use super::mailbox::ProofKey;
use super::quotes;
use super::thread::{domain, hash, ids, is_address, is_listed, is_own, thread_of};
use crate::fetch::html_to_text;
use crate::limits::{EMAIL_FILES_MAX, EMAIL_TEXT_BYTES_MAX, PROPERTY_BYTES_MAX};
use crate::payload::{add_payload, event_id, instance_key, properties};

/// Longest subject and name that are passed on, in characters.
const LINE_CHARS_MAX: usize = 300;

/// Longest subject that a reply repeats, in characters.
const REPLY_SUBJECT_CHARS_MAX: usize = 200;

/// Message-IDs of a thread that a reply repeats: the first, and the latest.
const REFERENCES_MAX: usize = 4;

/// Most recipients that are passed on.
const RECIPIENTS_MAX: usize = 20;

/// Beginnings of subjects of forwarded messages.
const FORWARDED: [&str; 4] = ["fwd:", "fw:", "wg:", "tr:"];

/// Settings that determine events.
#[derive(Debug, Clone)]
pub(super) struct Accepted {
    /// The mailbox's own address.
    pub(super) address: String,
    pub(super) folder: String,
    /// The only senders that are accepted; `None` for all.
    pub(super) from: Option<Vec<String>>,
    /// The server whose check of the sender a message must have passed.
    pub(super) verified_by: Option<String>,
}

/// Place of a message on the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) uid_validity: u32,
    pub(super) uid: u32,
}

#[derive(Debug, PartialEq)]
pub(super) enum Mail {
    Event(Box<ConnectorEvent>),
    /// Skipped, with the reason as text.
    Ignored(IgnoreReason, &'static str),
}

/// Headers of a message: names in lower case, values in one line.
struct Headers(Vec<(String, String)>);

impl Headers {
    fn of(message: &Message<'_>, raw: &[u8]) -> Self {
        let headers = message.parts.first().map(|part| part.headers.iter());
        let headers = headers.into_iter().flatten().map(|header| {
            let range = usize::try_from(header.offset_start).ok();
            let range = range.zip(usize::try_from(header.offset_end).ok());
            let value = range.and_then(|(start, end)| raw.get(start..end));
            let value = String::from_utf8_lossy(value.unwrap_or_default());
            let value = value.replace(['\r', '\n'], "");
            (header.name().to_ascii_lowercase(), value.trim().to_owned())
        });
        Self(headers.collect())
    }

    fn all<'h>(&'h self, name: &'h str) -> impl Iterator<Item = &'h str> {
        let named = self.0.iter().filter(move |(found, _)| found == name);
        named.map(|(_, value)| value.as_str())
    }

    fn first<'h>(&'h self, name: &'h str) -> Option<&'h str> {
        self.all(name).next()
    }
}

/// Maps a message to an event, unless it contains nothing for an agent.
pub(super) fn to_mail(raw: &[u8], place: Place, accepted: &Accepted, key: &ProofKey) -> Mail {
    let unsupported = |why| Mail::Ignored(IgnoreReason::Unsupported, why);
    if let Some(why) = hostile(raw) {
        return unsupported(why);
    }
    let Some(message) = MessageParser::default().parse(raw) else {
        return unsupported("it is not a message");
    };
    let headers = Headers::of(&message, raw);
    let Some((from, name)) = sender(&message, &headers) else {
        return unsupported("it does not have exactly one usable sender");
    };
    let own_id = headers.first("message-id").map(ids).unwrap_or_default();
    let own_id = own_id.into_iter().next();
    let is_ours = own_id
        .as_deref()
        .is_some_and(|id| is_own(id, &accepted.address));
    if is_ours || from.eq_ignore_ascii_case(&accepted.address) {
        return Mail::Ignored(IgnoreReason::Own, "it is from this mailbox");
    }
    if let Some(why) = automatic(&headers, &from) {
        return Mail::Ignored(IgnoreReason::Bot, why);
    }
    let is_accepted = accepted
        .from
        .as_ref()
        .is_none_or(|list| is_listed(list, &from));
    if !is_accepted {
        return Mail::Ignored(IgnoreReason::OtherPlace, "its sender is not in `from`");
    }
    let results: Vec<&str> = headers.all("authentication-results").collect();
    let is_authenticated = accepted
        .verified_by
        .as_ref()
        .map(|server| is_verified(&results, server, &from));
    if is_authenticated == Some(false) {
        let why = "the own server did not verify its sender";
        return Mail::Ignored(IgnoreReason::Unverified, why);
    }
    let received = Received {
        raw,
        message: &message,
        headers: &headers,
        from,
        name,
        own_id,
        is_authenticated: is_authenticated == Some(true),
    };
    match received.event(place, accepted, key) {
        Some(event) => Mail::Event(Box::new(event)),
        None => Mail::Ignored(IgnoreReason::NoText, "it is empty"),
    }
}

/// Address and name of the only sender. Of several, a reader could see another one than a check.
fn sender(message: &Message<'_>, headers: &Headers) -> Option<(String, Option<String>)> {
    if headers.all("from").count() != 1 {
        return None;
    }
    let mut senders = message.from()?.iter();
    let sender = senders.next().filter(|_| senders.next().is_none())?;
    let address = sender.address()?.trim().to_ascii_lowercase();
    let name = sender.name().map(line).filter(|name| !name.is_empty());
    is_address(&address).then_some((address, name))
}

/// Reason why a message was written by a program, if it was (RFC 3834).
fn automatic(headers: &Headers, from: &str) -> Option<&'static str> {
    let word = |name| {
        let word = headers.first(name)?.split([';', ' ', '(']).next()?;
        Some(word.to_ascii_lowercase())
    };
    let local = from.split('@').next().unwrap_or_default();
    if word("auto-submitted").is_some_and(|word| word != "no") {
        return Some("it is an automatic answer");
    }
    if headers.first("return-path") == Some("<>")
        || word("content-type").is_some_and(|kind| kind == "multipart/report")
        || ["mailer-daemon", "postmaster"].contains(&local)
    {
        return Some("it is a report about a message");
    }
    let is_bulk = |word: String| ["bulk", "list", "junk", "auto_reply"].contains(&word.as_str());
    if headers.first("list-id").is_some() || word("precedence").is_some_and(is_bulk) {
        return Some("it is from a list");
    }
    None
}

struct Received<'m> {
    raw: &'m [u8],
    message: &'m Message<'m>,
    headers: &'m Headers,
    from: String,
    name: Option<String>,
    own_id: Option<String>,
    is_authenticated: bool,
}

impl Received<'_> {
    /// The event; `None` for a message without content.
    fn event(&self, place: Place, accepted: &Accepted, key: &ProofKey) -> Option<ConnectorEvent> {
        let subject = self.message.subject().map(line).unwrap_or_default();
        let references = self.references();
        let is_forwarded = {
            let subject = subject.to_lowercase();
            FORWARDED.iter().any(|start| subject.starts_with(start))
        };
        let text = body(self.message);
        let (written, quoted) = if references.is_empty() || is_forwarded {
            (text.trim().to_owned(), None)
        } else {
            quotes::split(&text)
        };
        let files = files(self.message);
        if subject.is_empty() && written.is_empty() && files.is_empty() {
            return None;
        }
        // A message without a Message-ID is identified by its content.
        let identity = match &self.own_id {
            Some(id) => hash(id.as_bytes()),
            None => hash(self.raw),
        };
        let thread = thread_of(&references, self.own_id.as_deref().unwrap_or(&identity));
        let is_reply = !references.is_empty();
        let mut properties = properties([
            ("from", Some(&json!(self.from))),
            (
                "fromName",
                self.name.as_ref().map(|name| json!(name)).as_ref(),
            ),
            ("fromDomain", Some(&json!(domain(&self.from)))),
            ("mailbox", Some(&json!(accepted.address))),
            ("folder", Some(&json!(accepted.folder))),
            ("isAuthenticated", Some(&json!(self.is_authenticated))),
            ("isReply", Some(&json!(is_reply))),
        ]);
        if !subject.is_empty() && subject.len() <= PROPERTY_BYTES_MAX {
            properties.insert("subject".to_owned(), json!(subject));
        }
        let input = input(
            (!is_reply).then_some(subject.as_str()),
            &written,
            quoted.is_some(),
            &FileLines {
                files: &files,
                place,
                key,
            },
        );
        let reply = EmailReply {
            to: self.from.clone(),
            subject: subject.chars().take(REPLY_SUBJECT_CHARS_MAX).collect(),
            message_id: self.own_id.clone().unwrap_or_default(),
            proof: key.proof(&reply_parts(
                &self.from,
                self.own_id.as_deref().unwrap_or_default(),
                &thread,
            )),
            references: kept_references(&references),
            thread: thread.clone(),
        };
        let listed =
            |header: Option<&Address<'_>>| json!(header.map(addresses).unwrap_or_default());
        let date = self.message.date().map(mail_parser::DateTime::to_rfc3339);
        let payload = json!({
            "from": self.from, "fromName": self.name, "to": listed(self.message.to()),
            "cc": listed(self.message.cc()), "subject": subject, "date": date,
            "messageId": self.own_id, "references": references, "text": written, "quoted": quoted,
        });
        let mut metadata = JsonObject::from_iter([
            (EMAIL_REPLY.to_owned(), json!(reply)),
            ("folder".to_owned(), json!(accepted.folder)),
            ("uid".to_owned(), json!(place.uid)),
        ]);
        for (name, value) in [
            ("fromName", json!(self.name)),
            ("date", json!(date)),
            ("messageId", json!(self.own_id)),
        ] {
            if !value.is_null() {
                metadata.insert(name.to_owned(), value);
            }
        }
        let listed_files = files.iter().take(EMAIL_FILES_MAX);
        let listed_files: Vec<Value> = listed_files
            .map(|file| file.described(place, key))
            .collect();
        if !listed_files.is_empty() {
            metadata.insert("files".to_owned(), json!(listed_files));
        }
        add_payload(&mut metadata, &payload);
        Some(ConnectorEvent {
            id: event_id(&format!("email:{identity}")).ok(),
            name: "message".to_owned(),
            input,
            instance_key: instance_key(&format!("email:{thread}")).ok(),
            properties,
            auth: self.is_authenticated.then(|| {
                JsonObject::from_iter([
                    ("service".to_owned(), json!("email")),
                    ("user".to_owned(), json!(self.from)),
                ])
            }),
            metadata,
        })
    }

    /// Earlier messages of the thread, oldest first.
    fn references(&self) -> Vec<String> {
        let mut references: Vec<String> = self.headers.all("references").flat_map(ids).collect();
        let parents = self.headers.first("in-reply-to").map(ids);
        // Some programs put an address or a date behind it.
        for parent in parents.into_iter().flatten().take(1) {
            if !references.contains(&parent) {
                references.push(parent);
            }
        }
        references
    }
}

/// The parts of a reply's proof.
pub(super) fn reply_parts<'r>(to: &'r str, message_id: &'r str, thread: &'r str) -> [&'r str; 4] {
    ["reply", to, message_id, thread]
}

/// The first Message-ID and the latest ones.
fn kept_references(references: &[String]) -> Vec<String> {
    let latest = references.len().saturating_sub(REFERENCES_MAX - 1).max(1);
    let first = references.iter().take(1);
    first
        .chain(references.iter().skip(latest))
        .cloned()
        .collect()
}

/// A text in one line, shortened.
fn line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ");
    let text = text.chars().filter(|c| !c.is_control());
    text.take(LINE_CHARS_MAX).collect()
}

fn addresses(header: &Address<'_>) -> Vec<String> {
    let found = header.iter().take(RECIPIENTS_MAX);
    found.filter_map(|it| it.address().map(line)).collect()
}

/// The text of a message: plain text where there is some, otherwise that of the HTML.
fn body(message: &Message<'_>) -> String {
    let mut texts = Vec::new();
    for part in message.text_bodies() {
        match &part.body {
            PartType::Text(text) => texts.push(text.replace("\r\n", "\n").trim().to_owned()),
            PartType::Html(html) => texts.push(html_to_text(html)),
            PartType::Binary(_)
            | PartType::InlineBinary(_)
            | PartType::Message(_)
            | PartType::Multipart(_) => {}
        }
    }
    texts.retain(|text| !text.is_empty());
    texts.join("\n\n")
}

/// An attachment.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AttachedPart {
    part: u32,
    name: String,
    mime_type: String,
    bytes: usize,
}

impl AttachedPart {
    fn described(&self, place: Place, key: &ProofKey) -> Value {
        json!({"name": self.name, "mimeType": self.mime_type, "bytes": self.bytes,
            "fileId": file_id(place, self.part, key)})
    }
}

fn files(message: &Message<'_>) -> Vec<AttachedPart> {
    let parts = message.attachments.iter();
    let files = parts.filter_map(|id| {
        let part = message.part(*id)?;
        let name = part.attachment_name().map(line);
        Some(AttachedPart {
            part: *id,
            name: name.filter(|name| !name.is_empty()).unwrap_or_else(|| {
                let unnamed = match part.body {
                    PartType::Message(_) => "message.eml",
                    PartType::Text(_)
                    | PartType::Html(_)
                    | PartType::Binary(_)
                    | PartType::InlineBinary(_)
                    | PartType::Multipart(_) => "attachment",
                };
                unnamed.to_owned()
            }),
            mime_type: mime_type(part),
            bytes: content(message, part).map_or(0, <[u8]>::len),
        })
    });
    files.collect()
}

fn mime_type(part: &MessagePart<'_>) -> String {
    let Some(kind) = part.content_type() else {
        return "application/octet-stream".to_owned();
    };
    line(&format!(
        "{}/{}",
        kind.ctype(),
        kind.subtype().unwrap_or("octet-stream")
    ))
}

/// The decoded content of a part; `None` for a group of parts.
fn content<'m>(message: &'m Message<'_>, part: &'m MessagePart<'_>) -> Option<&'m [u8]> {
    match &part.body {
        PartType::Text(text) | PartType::Html(text) => Some(text.as_bytes()),
        PartType::Binary(bytes) | PartType::InlineBinary(bytes) => Some(bytes),
        PartType::Message(_) => {
            let start = usize::try_from(part.offset_body).ok()?;
            message
                .raw_message
                .get(start..usize::try_from(part.offset_end).ok()?)
        }
        PartType::Multipart(_) => None,
    }
}

/// ID of an attachment. Its proof shows that the connector named it, so that agents read no other
/// messages.
fn file_id(place: Place, part: u32, key: &ProofKey) -> String {
    let Place { uid_validity, uid } = place;
    let id = format!("{uid_validity}.{uid}.{part}");
    let proof = key.proof(&["file", &id]);
    format!("{id}.{proof}")
}

/// The message and the part that an attachment's ID names.
pub(super) fn parse_file_id(id: &str, key: &ProofKey) -> Option<(Place, u32)> {
    let (named, proof) = id.rsplit_once('.')?;
    if !key.is_proof(&["file", named], proof) {
        return None;
    }
    let mut numbers = named.split('.').map(str::parse::<u32>);
    let mut next = || numbers.next()?.ok();
    let (uid_validity, uid, part) = (next()?, next()?, next()?);
    Some((Place { uid_validity, uid }, part))
}

/// A file for an agent.
pub(super) struct OpenedFile {
    pub(super) name: String,
    pub(super) mime_type: String,
    pub(super) content: Vec<u8>,
}

/// An attachment of a message.
pub(super) fn open_file(raw: &[u8], part: u32) -> Option<OpenedFile> {
    if hostile(raw).is_some() {
        return None;
    }
    let message = MessageParser::default().parse(raw)?;
    let file = files(&message).into_iter().find(|file| file.part == part)?;
    let content = content(&message, message.part(part)?)?.to_vec();
    Some(OpenedFile {
        name: file.name,
        mime_type: file.mime_type,
        content,
    })
}

/// Attachments as lines of an input.
struct FileLines<'f> {
    files: &'f [AttachedPart],
    place: Place,
    key: &'f ProofKey,
}

impl FileLines<'_> {
    fn lines(&self) -> Vec<String> {
        let listed = self.files.iter().take(EMAIL_FILES_MAX);
        let lines = listed.map(|file| {
            let AttachedPart {
                part,
                name,
                mime_type,
                bytes,
            } = file;
            let id = file_id(self.place, *part, self.key);
            format!("[File: {name}, {mime_type}, {bytes} bytes, file ID {id}]")
        });
        let mut lines: Vec<String> = lines.collect();
        let omitted = self.files.len() - lines.len();
        if omitted > 0 {
            lines.push(format!("[{omitted} more files]"));
        }
        lines
    }
}

/// The words for the model.
fn input(subject: Option<&str>, written: &str, is_cut: bool, files: &FileLines<'_>) -> String {
    let mut parts = Vec::new();
    parts.extend(subject.filter(|it| !it.is_empty()).map(str::to_owned));
    let kept = written.get(..written.floor_char_boundary(EMAIL_TEXT_BYTES_MAX));
    let kept = kept.unwrap_or_default();
    if !kept.is_empty() {
        parts.push(kept.to_owned());
    }
    let mut notes = Vec::new();
    if kept.len() < written.len() {
        notes.push("[The rest of the text is left out]".to_owned());
    }
    if is_cut {
        notes.push("[Earlier messages are left out]".to_owned());
    }
    notes.extend(files.lines());
    if !notes.is_empty() {
        parts.push(notes.join("\n"));
    }
    parts.join("\n\n")
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
