//! Values that people choose or enter in Slack's blocks, as words. Pure.

use goondan_protocol::time::Timestamp;
use serde_json::Value;

use crate::payload::text;
use crate::slack::description::{file_words, list, plain, rich_text, text_of};

/// The chosen or entered value of an element; `None` if there is none.
pub(super) fn action_words(action: &Value) -> Option<String> {
    let single = [
        ("/selected_date", ""),
        ("/selected_time", ""),
        ("/selected_user", "@"),
        ("/selected_channel", "#"),
        ("/selected_conversation", "#"),
    ];
    let mut single = single.iter();
    let chosen = single.find_map(|(place, sign)| Some(mentioned(sign, text(action, place)?)));
    let chosen = chosen.map(|chosen| match text(action, "/timezone") {
        Some(zone) => format!("{chosen} ({zone})"),
        None => chosen,
    });
    let chosen = chosen
        .or_else(|| date_time(action))
        .or_else(|| action.get("selected_option").and_then(option_words))
        .or_else(|| several(action))
        .or_else(|| files(action))
        .or_else(|| action.get("rich_text_value").map(rich_text))
        .or_else(|| button(action))
        .or_else(|| action.get("value").and_then(scalar));
    chosen.filter(|chosen| !chosen.trim().is_empty())
}

/// A number or a text.
fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A user or channel, as a message mentions it.
fn mentioned(sign: &str, id: &str) -> String {
    match sign {
        "" => id.to_owned(),
        // A conversation can be with a person.
        _ if id.starts_with(['U', 'W']) => format!("<@{id}>"),
        sign => format!("<{sign}{id}>"),
    }
}

fn date_time(action: &Value) -> Option<String> {
    let seconds = action.get("selected_date_time")?.as_i64()?;
    Some(Timestamp::from_unix_millis(seconds.checked_mul(1_000)?).to_string())
}

/// Label of an option or button, with the app's value if it differs.
fn labeled(label: &str, value: &str) -> Option<String> {
    match (label.is_empty(), value.trim().is_empty()) {
        (true, true) => None,
        (true, false) => Some(value.to_owned()),
        (false, true) => Some(label.to_owned()),
        (false, false) if label == value => Some(label.to_owned()),
        (false, false) => Some(format!("{label} ({value})")),
    }
}

fn option_words(option: &Value) -> Option<String> {
    let label = option.get("text").map(text_of).unwrap_or_default();
    labeled(&label, text(option, "/value").unwrap_or_default())
}

fn button(action: &Value) -> Option<String> {
    // Buttons of older messages have their name as a bare string.
    let label = action
        .get("text")
        .map(text_of)
        .or_else(|| text(action, "/name").map(plain));
    labeled(&label?, text(action, "/value").unwrap_or_default())
}

fn several(action: &Value) -> Option<String> {
    let options = list(action, "selected_options")
        .iter()
        .filter_map(option_words);
    let named = [
        ("selected_users", "@"),
        ("selected_channels", "#"),
        ("selected_conversations", "#"),
    ];
    let named = named.iter().flat_map(|(name, sign)| {
        let ids = list(action, name).iter().filter_map(Value::as_str);
        ids.map(|id| mentioned(sign, id))
    });
    let words: Vec<String> = options.chain(named).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

fn files(action: &Value) -> Option<String> {
    let files: Vec<String> = list(action, "files").iter().map(file_words).collect();
    (!files.is_empty()).then(|| files.join("\n"))
}

/// The entered values of a message or dialog, one in a line after its label. Those of `except` are
/// already in the message.
pub(super) fn entered(
    values: Option<&Value>,
    blocks: &[Value],
    except: Option<&[Value]>,
) -> String {
    let blocks_of_values = values.and_then(Value::as_object).into_iter().flatten();
    let mut lines: Vec<(usize, String)> = Vec::new();
    for (block, elements) in blocks_of_values {
        let at = blocks
            .iter()
            .position(|it| text(it, "/block_id") == Some(block));
        let label = at.and_then(|at| label_of(blocks.get(at)?));
        let elements = elements.as_object().into_iter().flatten();
        for (action, element) in elements {
            let mut told = except.into_iter().flatten();
            if told.any(|it| text(it, "/action_id") == Some(action)) {
                continue;
            }
            if let Some(words) = action_words(element) {
                let label = label.clone().unwrap_or_else(|| action.clone());
                lines.push((at.unwrap_or(usize::MAX), format!("{label}: {words}")));
            }
        }
    }
    // In the order in which people see them.
    lines.sort_by_key(|(at, _)| *at);
    let lines: Vec<String> = lines.into_iter().map(|(_, line)| line).collect();
    lines.join("\n")
}

fn label_of(block: &Value) -> Option<String> {
    let label = block
        .get("label")
        .or_else(|| block.get("text"))
        .map(text_of);
    label.filter(|label| !label.is_empty())
}
