//! Describes the content of a message other than its text. Pure.

use serde_json::{Value, json};

use super::{chat, integer, number, person};
use crate::payload::{one_line, shortened, text};

/// One line for each content of a message. Files are added to `files`.
pub(super) fn described(message: &Value, files: &mut Vec<Value>) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(photo(message, files));
    for (field, kind) in [
        ("video", "Video"),
        ("video_note", "Video message"),
        ("voice", "Voice message"),
        ("audio", "Audio"),
    ] {
        lines.extend(message.get(field).map(|file| file_line(kind, file, files)));
    }
    match message.get("animation") {
        Some(animation) => lines.push(file_line("GIF", animation, files)),
        // The document of an animation is the same file.
        None => lines.extend(
            message
                .get("document")
                .map(|file| file_line("File", file, files)),
        ),
    }
    lines.extend(message.get("sticker").map(|it| sticker(it, files)));
    lines.extend(message.get("paid_media").map(|it| {
        let stars = number(it, "/star_count").unwrap_or_default();
        format!("Media for {stars} stars")
    }));
    lines.extend(message.get("dice").and_then(dice));
    lines.extend(place(message));
    lines.extend(message.get("contact").map(contact));
    lines.extend(message.get("poll").and_then(poll));
    lines.extend(message.get("checklist").and_then(checklist));
    lines.extend(other(message));
    lines.into_iter().map(|line| format!("[{line}]")).collect()
}

/// The largest size of a photo.
fn photo(message: &Value, files: &mut Vec<Value>) -> Option<String> {
    let sizes = message.get("photo").and_then(Value::as_array)?;
    let area = |size: &&Value| {
        let side = |name: &str| number(size, name).unwrap_or_default();
        side("/width").saturating_mul(side("/height"))
    };
    let largest = sizes.iter().max_by_key(area)?;
    Some(file_line("Photo", largest, files))
}

/// A file with its kind, name, size and ID.
fn file_line(kind: &str, file: &Value, files: &mut Vec<Value>) -> String {
    let name = text(file, "/file_name").map(one_line);
    let titles = ["/performer", "/title"].map(|name| text(file, name).map(one_line));
    let titles: Vec<String> = titles.into_iter().flatten().collect();
    let mut facts = Vec::new();
    facts.extend(name.clone());
    if !titles.is_empty() {
        facts.push(titles.join(" – "));
    }
    facts.extend(number(file, "/duration").map(duration));
    let size = number(file, "/width").zip(number(file, "/height"));
    facts.extend(size.map(|(width, height)| format!("{width}×{height}")));
    facts.extend(text(file, "/mime_type").map(one_line));
    let bytes = number(file, "/file_size");
    facts.extend(bytes.map(|bytes| format!("{bytes} bytes")));
    if let Some(id) = text(file, "/file_id") {
        facts.push(format!("file ID {id}"));
        let mut kept = json!({"kind": kind.to_ascii_lowercase(), "fileId": id});
        if let Some(kept) = kept.as_object_mut() {
            let of_file = [
                ("name", name.map(Value::from)),
                ("mimeType", file.get("mime_type").cloned()),
                ("bytes", bytes.map(Value::from)),
            ];
            kept.extend(
                of_file
                    .into_iter()
                    .filter_map(|(name, value)| Some((name.to_owned(), value?))),
            );
        }
        files.push(kept);
    }
    if facts.is_empty() {
        return kind.to_owned();
    }
    format!("{kind}: {}", facts.join(", "))
}

fn duration(seconds: u64) -> String {
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

fn sticker(sticker: &Value, files: &mut Vec<Value>) -> String {
    let emoji = text(sticker, "/emoji").unwrap_or_default();
    let set = text(sticker, "/set_name").map(|set| format!(" of the set {}", one_line(set)));
    if let Some(id) = text(sticker, "/file_id") {
        files.push(json!({"kind": "sticker", "fileId": id}));
    }
    let line = format!("Sticker {emoji}{}", set.unwrap_or_default());
    one_line(&line)
}

fn dice(dice: &Value) -> Option<String> {
    let value = number(dice, "/value")?;
    let emoji = text(dice, "/emoji").unwrap_or("🎲");
    Some(format!("Dice {emoji}: {value}"))
}

/// A place or a location.
fn place(message: &Value) -> Option<String> {
    let position = |of: &Value| {
        let latitude = of.get("latitude").filter(|it| it.is_number())?;
        let longitude = of.get("longitude").filter(|it| it.is_number())?;
        Some(format!("{latitude}, {longitude}"))
    };
    if let Some(venue) = message.get("venue") {
        let named = ["/title", "/address"].map(|name| text(venue, name).map(one_line));
        let mut facts: Vec<String> = named.into_iter().flatten().collect();
        facts.extend(venue.get("location").and_then(position));
        return Some(format!("Place: {}", facts.join(", ")));
    }
    let location = message.get("location")?;
    let kind = match number(location, "/live_period") {
        Some(_) => "Live location",
        None => "Location",
    };
    Some(format!("{kind}: {}", position(location)?))
}

fn contact(contact: &Value) -> String {
    let mut facts = vec![person(contact)];
    facts.extend(text(contact, "/phone_number").map(one_line));
    facts.extend(integer(contact, "/user_id").map(|id| format!("user {id}")));
    format!("Contact: {}", facts.join(", "))
}

fn poll(poll: &Value) -> Option<String> {
    let question = text(poll, "/question").map(one_line)?;
    let options = poll.get("options").and_then(Value::as_array);
    let options = options.into_iter().flatten().filter_map(|option| {
        let said = text(option, "/text").map(one_line)?;
        Some(match number(option, "/voter_count") {
            Some(votes) if votes > 0 => format!("{said} ({votes})"),
            Some(_) | None => said,
        })
    });
    let options: Vec<String> = options.collect();
    let kind = match text(poll, "/type") {
        Some("quiz") => "Quiz",
        _ => "Poll",
    };
    let closed = match poll.get("is_closed") {
        Some(Value::Bool(true)) => ", closed",
        _ => "",
    };
    Some(format!(
        "{kind}{closed}: {question} – {}",
        options.join(" / ")
    ))
}

fn checklist(checklist: &Value) -> Option<String> {
    let title = text(checklist, "/title").map(one_line)?;
    let tasks = checklist.get("tasks").and_then(Value::as_array);
    let tasks = tasks.into_iter().flatten().filter_map(|task| {
        let is_done = number(task, "/completion_date").is_some_and(|date| date > 0);
        let said = text(task, "/text").map(one_line)?;
        Some(format!("{} {said}", if is_done { "☑" } else { "☐" }))
    });
    let tasks: Vec<String> = tasks.collect();
    Some(format!("Checklist: {title} – {}", tasks.join(" / ")))
}

/// Content that people send less often.
fn other(message: &Value) -> Option<String> {
    let titled = |field: &str, kind: &str| {
        let title = text(message.get(field)?, "/title").map(one_line)?;
        Some(format!("{kind}: {title}"))
    };
    if let Some(story) = message.pointer("/story/chat") {
        return Some(format!("Story of {}", chat(story)));
    }
    if let Some(said) = text(message, "/web_app_data/data") {
        let button = text(message, "/web_app_data/button_text").unwrap_or_default();
        return Some(format!("Sent by the app {}: {said}", one_line(button)));
    }
    for (field, kind) in [("invoice", "Invoice"), ("successful_payment", "Payment")] {
        let Some(paid) = message.get(field) else {
            continue;
        };
        let amount = number(paid, "/total_amount").unwrap_or_default();
        let currency = text(paid, "/currency").unwrap_or_default();
        let about = text(paid, "/title").or(text(paid, "/invoice_payload"));
        let about = about.map(shortened).unwrap_or_default();
        let line = format!("{kind} {about}: {amount} {currency} in its smallest unit");
        return Some(one_line(&line));
    }
    if let Some(users) = message
        .pointer("/users_shared/users")
        .and_then(Value::as_array)
    {
        let users = users.iter().filter_map(|user| integer(user, "/user_id"));
        let users: Vec<String> = users.map(|id| format!("user {id}")).collect();
        return Some(format!("Shared: {}", users.join(", ")));
    }
    if let Some(id) = integer(message, "/chat_shared/chat_id") {
        return Some(format!("Shared: chat {id}"));
    }
    if message.get("giveaway").is_some() || message.get("giveaway_winners").is_some() {
        return Some("Giveaway".to_owned());
    }
    if message.get("gift").is_some() || message.get("unique_gift").is_some() {
        return Some("Gift".to_owned());
    }
    if message.get("passport_data").is_some() {
        return Some("Telegram Passport data".to_owned());
    }
    titled("game", "Game")
}
