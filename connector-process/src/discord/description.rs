//! Describes interactions in words (`CONN-1`). Pure.
//!
//! The text of a person stays as it is. Everything else, such as the command, its target or an
//! attachment, is named, or becomes a line in brackets.

use serde_json::{Value, json};

use super::INPUT_OPTIONS;
use crate::listener::MalformedRequest;
use crate::payload::{one_line, required, shortened, text};

/// Types of application commands.
const USER_COMMAND: u64 = 2;
const MESSAGE_COMMAND: u64 = 3;

/// Types of options.
const SUBCOMMAND: u64 = 1;
const SUBCOMMAND_GROUP: u64 = 2;

/// Types of options and form fields whose values are IDs.
const REFERRING_OPTIONS: [u64; 5] = [6, 7, 8, 9, 11];
const REFERRING_FIELDS: [u64; 5] = [5, 6, 7, 8, 19];

/// Words for the action of a person.
#[derive(Debug, Default, PartialEq)]
pub(super) struct InteractionText {
    pub(super) text: String,
    /// Names of the subcommand group and the subcommand.
    pub(super) subcommand: Option<String>,
    /// Files of the interaction, for its metadata.
    pub(super) files: Vec<Value>,
}

/// Objects that the values of an interaction refer to.
struct Resolved<'a>(Option<&'a Value>);

impl Resolved<'_> {
    fn get(&self, kind: &str, id: &str) -> Option<&Value> {
        self.0?.get(kind)?.get(id)
    }

    /// The name of an object of any kind with this id.
    fn name(&self, id: &str) -> Option<String> {
        if self.get("users", id).is_some() || self.get("members", id).is_some() {
            return Some(format!("{} (user {id})", self.user(id)));
        }
        if let Some(role) = self.get("roles", id) {
            let name = text(role, "/name").unwrap_or_default();
            return Some(format!("{} (role {id})", one_line(name)));
        }
        if let Some(channel) = self.get("channels", id) {
            let name = text(channel, "/name").unwrap_or_default();
            return Some(format!("#{} (channel {id})", one_line(name)));
        }
        let attachment = self.get("attachments", id)?;
        let name = text(attachment, "/filename").unwrap_or("a file");
        Some(one_line(name))
    }

    fn user(&self, id: &str) -> String {
        let nick = self
            .get("members", id)
            .and_then(|member| text(member, "/nick"));
        let nick = nick.filter(|nick| !nick.is_empty()).map(one_line);
        nick.unwrap_or_else(|| match self.get("users", id) {
            Some(user) => person(user),
            None => "a member".to_owned(),
        })
    }
}

/// Describes a command.
pub(super) fn command(body: &Value) -> Result<InteractionText, MalformedRequest> {
    let name = required(body, "/data/name")?;
    let resolved = Resolved(body.pointer("/data/resolved"));
    let target = text(body, "/data/target_id");
    match (number(body, "/data/type"), target) {
        (Some(USER_COMMAND), Some(id)) => {
            let who = resolved.user(id);
            return Ok(InteractionText {
                text: format!("[Command {} about {who} (user {id})]", one_line(name)),
                ..InteractionText::default()
            });
        }
        (Some(MESSAGE_COMMAND), Some(id)) => {
            let mut spoken = InteractionText::default();
            let message = resolved.get("messages", id);
            let who = message.and_then(|message| message.get("author"));
            let who = who.map_or_else(|| "a member".to_owned(), person);
            let mut lines = vec![format!(
                "[Command {} about message {id} of {who}]",
                one_line(name)
            )];
            if let Some(message) = message {
                lines.extend(of_message(message, &mut spoken.files));
            }
            spoken.text = lines.join("\n");
            return Ok(spoken);
        }
        _ => {}
    }
    Ok(chat_input(name, body, &resolved))
}

/// `/name option: value, …`, or the text of the option that is the input and the other options.
fn chat_input(name: &str, body: &Value, resolved: &Resolved<'_>) -> InteractionText {
    let mut words = vec![name.to_owned()];
    let mut options = body.pointer("/data/options").and_then(Value::as_array);
    let (mut said, mut input, mut files) = (Vec::new(), None, Vec::new());
    let mut lines = Vec::new();
    while let Some(list) = options.take() {
        for option in list {
            let name = text(option, "/name").unwrap_or_default();
            let kind = number(option, "/type");
            // A subcommand is an option that contains options.
            let is_nested = matches!(kind, Some(SUBCOMMAND | SUBCOMMAND_GROUP));
            match option.get("value") {
                Some(Value::String(value)) if INPUT_OPTIONS.contains(&name) && input.is_none() => {
                    input = Some(value.clone());
                }
                Some(value) => {
                    let refers = kind.is_none_or(|kind| REFERRING_OPTIONS.contains(&kind));
                    said.push(format!("{name}: {}", shown(value, resolved, refers)));
                    let id = value.as_str().filter(|_| refers).unwrap_or_default();
                    if let Some(file) = resolved.get("attachments", id) {
                        lines.push(attachment(file, &mut files));
                    }
                }
                None if is_nested || kind.is_none() => {
                    words.push(name.to_owned());
                    options = option.get("options").and_then(Value::as_array);
                }
                None => said.push(name.to_owned()),
            }
        }
    }
    let subcommand = words.get(1..).unwrap_or_default().join(" ");
    let mut command = format!("/{}", words.join(" "));
    if !said.is_empty() {
        command.push(' ');
        command.push_str(&said.join(", "));
    }
    let has_more = !subcommand.is_empty() || !said.is_empty();
    let mut text = match input {
        Some(input) if has_more => vec![input, format!("[{command}]")],
        Some(input) => vec![input],
        None => vec![command],
    };
    text.extend(lines);
    InteractionText {
        text: text.join("\n"),
        subcommand: (!subcommand.is_empty()).then_some(subcommand),
        files,
    }
}

/// The value of an option, by name if it refers to an object.
fn shown(value: &Value, resolved: &Resolved<'_>, refers: bool) -> String {
    match value {
        Value::String(value) => {
            let name = if refers { resolved.name(value) } else { None };
            name.unwrap_or_else(|| value.clone())
        }
        other => other.to_string(),
    }
}

/// Describes a button press, or the chosen items of a list.
pub(super) fn component(body: &Value) -> Result<InteractionText, MalformedRequest> {
    let id = required(body, "/data/custom_id")?;
    let resolved = Resolved(body.pointer("/data/resolved"));
    let used = body
        .pointer("/message/components")
        .and_then(|components| find(components, id));
    let values = body.pointer("/data/values").and_then(Value::as_array);
    let chosen: Vec<String> = values
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(|value| {
            let label = used.and_then(|used| label_of(used, value));
            let label = label.filter(|label| *label != value);
            let label = label.map(|label| format!("{} ({value})", one_line(label)));
            label
                .or_else(|| resolved.name(value))
                .unwrap_or_else(|| value.to_owned())
        })
        .collect();
    let pressed = used.and_then(|used| text(used, "/label"));
    let mut lines = vec![match pressed {
        _ if !chosen.is_empty() => format!("{id}: {}", chosen.join(", ")),
        Some(label) if label != id => format!("{} ({id})", one_line(label)),
        Some(_) | None => id.to_owned(),
    }];
    let about = text(body, "/message/content").filter(|said| !said.trim().is_empty());
    lines.extend(about.map(|said| format!("[Below the message {}]", shortened(said))));
    Ok(InteractionText {
        text: lines.join("\n"),
        ..InteractionText::default()
    })
}

/// The component with this id, at any depth.
fn find<'v>(components: &'v Value, id: &str) -> Option<&'v Value> {
    components.as_array()?.iter().find_map(|component| {
        if text(component, "/custom_id") == Some(id) {
            return Some(component);
        }
        let nested = component.get("components").and_then(|it| find(it, id));
        // A section has one component beside its texts.
        let beside = component
            .get("accessory")
            .filter(|it| text(it, "/custom_id") == Some(id));
        nested.or(beside)
    })
}

fn label_of<'v>(used: &'v Value, value: &str) -> Option<&'v str> {
    let mut options = used.get("options").and_then(Value::as_array)?.iter();
    let chosen = options.find(|option| text(option, "/value") == Some(value))?;
    text(chosen, "/label")
}

/// Describes a submitted form: its fields, one a line.
pub(super) fn form(body: &Value) -> Result<InteractionText, MalformedRequest> {
    let mut spoken = InteractionText::default();
    let mut lines = vec![required(body, "/data/custom_id")?.to_owned()];
    let resolved = Resolved(body.pointer("/data/resolved"));
    let rows = body.pointer("/data/components").and_then(Value::as_array);
    for row in rows.into_iter().flatten() {
        let fields = row.get("components").and_then(Value::as_array);
        for field in fields.into_iter().flatten().chain(row.get("component")) {
            let Some(name) = text(field, "/custom_id") else {
                continue;
            };
            let kind = number(field, "/type");
            let refers = kind.is_some_and(|kind| REFERRING_FIELDS.contains(&kind));
            let values = field.get("values").and_then(Value::as_array);
            let values: Vec<String> = values
                .into_iter()
                .flatten()
                .chain(field.get("value").filter(|value| !value.is_null()))
                .map(|value| shown(value, &resolved, refers))
                .collect();
            lines.push(format!("{name}: {}", values.join(", ")));
            let ids = field.get("values").filter(|_| refers);
            let ids = ids.and_then(Value::as_array);
            for id in ids.into_iter().flatten().filter_map(Value::as_str) {
                if let Some(file) = resolved.get("attachments", id) {
                    lines.push(attachment(file, &mut spoken.files));
                }
            }
        }
    }
    spoken.text = lines.join("\n");
    Ok(spoken)
}

/// Describes a message: its text, and a line for each other content.
fn of_message(message: &Value, files: &mut Vec<Value>) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(answered) = message
        .get("referenced_message")
        .filter(|it| it.is_object())
    {
        let who = answered.get("author").map(person).unwrap_or_default();
        let said = text(answered, "/content")
            .map(shortened)
            .unwrap_or_default();
        lines.push(format!("[Reply to {who}: {said}]"));
    }
    let said = text(message, "/content").filter(|said| !said.trim().is_empty());
    lines.extend(said.map(str::to_owned));
    let list = |name: &str| {
        let list = message.get(name).and_then(Value::as_array);
        list.into_iter().flatten()
    };
    // A forwarded message has its content in a snapshot.
    for forwarded in list("message_snapshots") {
        if let Some(forwarded) = forwarded.get("message") {
            lines.push("[Forwarded message]".to_owned());
            let said = text(forwarded, "/content").filter(|said| !said.trim().is_empty());
            lines.extend(said.map(str::to_owned));
            let attachments = forwarded.get("attachments").and_then(Value::as_array);
            let attachments = attachments.into_iter().flatten();
            lines.extend(attachments.map(|file| attachment(file, files)));
        }
    }
    lines.extend(list("attachments").map(|file| attachment(file, files)));
    lines.extend(list("sticker_items").map(|sticker| {
        let name = text(sticker, "/name").unwrap_or_default();
        format!("[Sticker {}]", one_line(name))
    }));
    lines.extend(list("embeds").filter_map(embed));
    lines.extend(message.get("poll").and_then(poll));
    lines
}

/// A preview of a link, or a card that an application sent.
fn embed(embed: &Value) -> Option<String> {
    let named = ["/author/name", "/title", "/description"];
    let facts = named.into_iter().filter_map(|name| text(embed, name));
    let mut facts: Vec<String> = facts.map(one_line).collect();
    let fields = embed.get("fields").and_then(Value::as_array);
    facts.extend(fields.into_iter().flatten().filter_map(|field| {
        let (name, value) = (text(field, "/name")?, text(field, "/value")?);
        Some(format!("{}: {}", one_line(name), one_line(value)))
    }));
    facts.extend(text(embed, "/footer/text").map(one_line));
    facts.extend(text(embed, "/url").map(str::to_owned));
    (!facts.is_empty()).then(|| format!("[Card: {}]", facts.join(" – ")))
}

fn poll(poll: &Value) -> Option<String> {
    let question = text(poll, "/question/text").map(one_line)?;
    let answers = poll.get("answers").and_then(Value::as_array);
    let answers = answers.into_iter().flatten();
    let answers = answers.filter_map(|answer| text(answer, "/poll_media/text").map(one_line));
    let answers: Vec<String> = answers.collect();
    Some(format!("[Poll: {question} – {}]", answers.join(" / ")))
}

/// A line about an attachment, which is added to `files`.
fn attachment(file: &Value, files: &mut Vec<Value>) -> String {
    let name = text(file, "/filename").map_or_else(|| "a file".to_owned(), one_line);
    let mut facts = vec![name.clone()];
    facts.extend(text(file, "/description").map(shortened));
    facts.extend(text(file, "/content_type").map(one_line));
    let bytes = number(file, "/size");
    facts.extend(bytes.map(|bytes| format!("{bytes} bytes")));
    if let Some(url) = text(file, "/url") {
        facts.push(format!("URL {url}"));
        files.push(json!({
            "name": name, "url": url, "mimeType": file.get("content_type"), "bytes": bytes,
        }));
    }
    format!("[File: {}]", facts.join(", "))
}

/// The name that people see of a user.
pub(super) fn person(user: &Value) -> String {
    let names = ["/global_name", "/username"];
    let mut names = names.into_iter().filter_map(|name| text(user, name));
    names
        .find(|name| !name.is_empty())
        .map_or_else(|| "a member".to_owned(), one_line)
}

fn number(value: &Value, pointer: &str) -> Option<u64> {
    value.pointer(pointer).and_then(Value::as_u64)
}

#[cfg(test)]
#[path = "words_tests.rs"]
mod tests;
