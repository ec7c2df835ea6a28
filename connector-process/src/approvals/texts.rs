//! Texts of messages about waiting tool calls. Pure.
//!
//! A model wrote the arguments and may try to imitate our messages. Invisible characters are
//! therefore shown by code point, and no line of an argument can look like one of our lines.

use goondan_protocol::approval::{ApprovalDecision, ApprovalShow, ApprovalVerdict};
use goondan_protocol::ids::ApprovalId;
use serde_json::Value;

use super::{Buttons, Message};
use crate::limits::{APPROVAL_KEPT_CHARS_MAX, APPROVAL_MESSAGE_UNITS_MAX};

/// Indentation of the first line of an argument; further lines get it twice.
const INDENT: &str = "  ";

/// The message about a waiting call.
pub(super) fn waits(show: &ApprovalShow) -> Message {
    let id = &show.approval_id;
    let mut body = facts(show);
    let is_whole = cut(&mut body, APPROVAL_MESSAGE_UNITS_MAX);
    let may_approve = show.may_approve && is_whole;
    let mut head = format!("Tool call {id} waits for a person.");
    if show.may_have_begun {
        head.push_str(" It may have started already, under an earlier rule.");
    }
    if let Some(denied_at) = show.denied_at {
        head.push_str(&format!(
            " Without a decision, it is denied at {denied_at}."
        ));
    }
    if !may_approve {
        head.push_str(&format!(
            " It is too long to be approved here. To see the full call: gdn inbox approvals {id}"
        ));
    }
    Message {
        head,
        body,
        buttons: Some(Buttons {
            approval_id: id.clone(),
            may_approve,
        }),
    }
}

/// The message about a call that no longer waits.
pub(super) fn closed(id: &ApprovalId, how: &str, about: &str) -> Message {
    let mut body = one_line(how);
    if !about.is_empty() {
        body.push('\n');
        body.push_str(about);
    }
    cut(&mut body, APPROVAL_MESSAGE_UNITS_MAX);
    Message {
        head: format!("Tool call {id} is no longer pending."),
        body,
        buttons: None,
    }
}

/// The start of a call's description, kept for the time after the decision.
pub(super) fn about(show: &ApprovalShow) -> String {
    let mut about = facts(show);
    if let Some((at, _)) = about.char_indices().nth(APPROVAL_KEPT_CHARS_MAX) {
        about.truncate(at);
        about.push('…');
    }
    about
}

/// The call's agent, conversation, tool and arguments.
fn facts(show: &ApprovalShow) -> String {
    let arguments: String = match &show.input {
        Value::Object(fields) => {
            let fields = fields.iter();
            fields.map(|(name, value)| argument(name, value)).collect()
        }
        other => argument("arguments", other),
    };
    format!(
        "agent: {}\nconversation: {}\ntool: {}{arguments}",
        one_line(show.agent_name.as_str()),
        one_line(show.instance_key.as_str()),
        one_line(&show.tool_name)
    )
}

/// One line, or several for a multi-line value.
fn argument(name: &str, value: &Value) -> String {
    let text = match value {
        Value::String(text) => visible(text),
        other => visible(&other.to_string()),
    };
    let name = one_line(name);
    if !text.contains('\n') {
        return format!("\n{INDENT}{name}: {text}");
    }
    let lines = text.split('\n');
    let lines: String = lines
        .map(|line| format!("\n{INDENT}{INDENT}{line}"))
        .collect();
    format!("\n{INDENT}{name}:{lines}")
}

fn one_line(text: &str) -> String {
    visible(text).replace('\n', " ")
}

/// True if a character is invisible: a control character, or one that reverses, joins or hides its
/// neighbors.
fn is_unseen(c: char) -> bool {
    let turns_or_hides = [
        '\u{ad}'..='\u{ad}',
        '\u{61c}'..='\u{61c}',
        '\u{115f}'..='\u{1160}',
        '\u{17b4}'..='\u{17b5}',
        '\u{180b}'..='\u{180f}',
        '\u{200b}'..='\u{200f}',
        '\u{2028}'..='\u{202e}',
        '\u{2060}'..='\u{206f}',
        '\u{3164}'..='\u{3164}',
        '\u{fe00}'..='\u{fe0f}',
        '\u{feff}'..='\u{feff}',
        '\u{ffa0}'..='\u{ffa0}',
        '\u{fff0}'..='\u{fffb}',
        '\u{e0000}'..='\u{e0fff}',
    ];
    c.is_control() || turns_or_hides.iter().any(|range| range.contains(&c))
}

/// Replaces invisible characters with their code points.
fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c != '\n' && is_unseen(c) {
            out.push_str(&format!("\\u{{{:x}}}", u32::from(c)));
        } else {
            out.push(c);
        }
    }
    out
}

/// Truncates a text to `units_max` UTF-16 units, the unit of Telegram's limits. Returns true if it
/// already fit.
fn cut(text: &mut String, units_max: usize) -> bool {
    let mut units = 0;
    let too_long = text.char_indices().find(|(_, c)| {
        units += c.len_utf16();
        units > units_max
    });
    let Some((at, _)) = too_long else {
        return true;
    };
    text.truncate(at);
    text.push('…');
    false
}

/// Message shown to the user who pressed a button.
pub(super) fn verdict(verdict: &ApprovalVerdict) -> String {
    match verdict {
        ApprovalVerdict::Decided { decision } => match decision {
            ApprovalDecision::Approved => "Approved.".to_owned(),
            ApprovalDecision::Denied => "Denied.".to_owned(),
        },
        ApprovalVerdict::DecidedBefore { how } => format!("Nothing changed: it is already {how}."),
        ApprovalVerdict::Over {} => "Nothing changed: it is no longer pending.".to_owned(),
        ApprovalVerdict::NotAllowed { message } => format!("Nothing changed: {message}."),
        ApprovalVerdict::NotNow { message } => {
            format!("Nothing changed: {message}. Press again in a moment.")
        }
    }
}

/// Outcome of the call, if it no longer waits.
pub(super) fn settled(verdict: &ApprovalVerdict) -> Option<String> {
    match verdict {
        ApprovalVerdict::Decided { decision } => Some(decision.as_str().to_owned()),
        ApprovalVerdict::DecidedBefore { how } => Some(how.clone()),
        ApprovalVerdict::Over {} => Some("over: its turn has ended".to_owned()),
        ApprovalVerdict::NotAllowed { .. } | ApprovalVerdict::NotNow { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn show(input: Value) -> ApprovalShow {
        ApprovalShow {
            approval_id: "a-1".parse().unwrap(),
            instance_key: "ann".parse().unwrap(),
            agent_name: "careful".parse().unwrap(),
            tool_name: "bash__exec".to_owned(),
            input,
            may_have_begun: false,
            may_approve: true,
            denied_at: None,
        }
    }

    #[test]
    fn steer_3_a_message_shows_all_that_would_be_done() {
        let message = waits(&show(
            json!({"command": "cd x\nagent: other", "timeoutMs": 5}),
        ));
        let expected = "agent: careful\nconversation: ann\ntool: bash__exec\n  command:\n    cd x\n    \
                        agent: other\n  timeoutMs: 5";
        assert_eq!(message.body, expected);
        assert_eq!(message.head, "Tool call a-1 waits for a person.");
        assert!(message.buttons.unwrap().may_approve);
        let warned = waits(&ApprovalShow {
            may_have_begun: true,
            ..show(json!(1))
        });
        assert!(warned.head.contains("may have started"), "{warned:?}");
        let limited = waits(&ApprovalShow {
            denied_at: Some("2026-01-01T01:00:00.000Z".parse().unwrap()),
            ..show(json!(1))
        });
        let expected = " Without a decision, it is denied at 2026-01-01T01:00:00.000Z.";
        assert!(limited.head.ends_with(expected), "{limited:?}");
        assert!(warned.body.ends_with("\n  arguments: 1"), "{warned:?}");
    }

    #[test]
    fn steer_3_truncated_approval_cannot_be_approved_in_the_chat() {
        let long = "x".repeat(APPROVAL_MESSAGE_UNITS_MAX);
        let message = waits(&show(json!({ "command": long })));
        assert!(message.body.encode_utf16().count() <= APPROVAL_MESSAGE_UNITS_MAX + 1);
        assert!(
            message.head.contains("gdn inbox approvals a-1"),
            "{message:?}"
        );
        assert!(!message.buttons.unwrap().may_approve);
        let message = waits(&ApprovalShow {
            may_approve: false,
            ..show(json!({}))
        });
        assert!(!message.buttons.unwrap().may_approve);
        // Telegram counts UTF-16 units, not characters.
        let wide = "😀".repeat(APPROVAL_MESSAGE_UNITS_MAX / 2);
        let message = waits(&show(json!({ "c": wide })));
        assert!(!message.buttons.unwrap().may_approve);
    }

    #[test]
    fn steer_3_invisible_characters_are_shown_as_code_points() {
        let hidden = "ls \u{202e}fr- mr\u{200b}\r\u{1b}[2J\u{e0041}";
        let message = waits(&show(json!({ "command": hidden })));
        let shown = r"command: ls \u{202e}fr- mr\u{200b}\u{d}\u{1b}[2J\u{e0041}";
        assert!(message.body.ends_with(shown), "{}", message.body);
        let closed = closed(&"a-1".parse().unwrap(), "denied by a person: no\nno", "");
        assert_eq!(closed.body, "denied by a person: no no");
    }

    #[test]
    fn steer_3_button_press_is_answered_with_its_result() {
        let decision = ApprovalDecision::Approved;
        let (how, message) = ("denied by a person".to_owned(), "not you".to_owned());
        for (given, told, is_settled) in [
            (ApprovalVerdict::Decided { decision }, "Approved.", true),
            (
                ApprovalVerdict::DecidedBefore { how },
                "Nothing changed: it is already denied by a person.",
                true,
            ),
            (
                ApprovalVerdict::Over {},
                "Nothing changed: it is no longer pending.",
                true,
            ),
            (
                ApprovalVerdict::NotAllowed { message },
                "Nothing changed: not you.",
                false,
            ),
        ] {
            assert_eq!(verdict(&given), told);
            assert_eq!(settled(&given).is_some(), is_settled);
        }
    }
}
