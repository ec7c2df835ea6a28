//! Texts of messages about waiting decisions. Pure.
//!
//! A model wrote the arguments and questions and may try to imitate our messages. Invisible
//! characters are therefore shown by code point, and no line of an argument can look like one of our
//! lines.

use goondan_protocol::decision::{
    DecisionButton, DecisionChoice, DecisionNotice, DecisionShow, DecisionSubject, DecisionText,
    DecisionVerdict,
};
use goondan_protocol::ids::DecisionId;
use goondan_protocol::limits::MAX_DECISION_LABEL_CHARS;
use serde_json::Value;

use super::{Buttons, Message};
use crate::limits::{
    DECISION_DEFAULT_UNITS_MAX, DECISION_KEPT_CHARS_MAX, DECISION_MESSAGE_UNITS_MAX,
};

/// Indentation of the first line of an argument; further lines get it twice.
const INDENT: &str = "  ";

/// The message about a waiting decision.
pub(super) fn waits(show: &DecisionShow) -> Message {
    let id = &show.decision_id;
    let mut body = facts(show);
    let is_whole = cut(&mut body, DECISION_MESSAGE_UNITS_MAX);
    let mut choices = labeled(&show.form.choices);
    let mut reply = show.form.reply.as_deref().map(one_line);
    let noun = match &show.about {
        DecisionSubject::Call { .. } => "Tool call",
        DecisionSubject::Question(_) => "Question",
        DecisionSubject::Review(_) => "Review",
        DecisionSubject::Proposal(_) => "Proposal",
        DecisionSubject::Login(_) => "Login",
    };
    let mut head = format!("{noun} {id} waits for a person.");
    if let DecisionSubject::Call {
        may_have_begun: true,
        ..
    } = &show.about
    {
        head.push_str(" It may have started already, under an earlier rule.");
    }
    if let DecisionSubject::Call {
        needs_two: true,
        first_approval,
        ..
    } = &show.about
    {
        head.push_str(" Two people must approve it");
        if let Some(first) = first_approval {
            head.push_str(&format!("; approved: {}", one_line(first)));
        }
        head.push('.');
    }
    if let Some(expires) = &show.expires {
        let mut outcome = one_line(&expires.outcome);
        cut(&mut outcome, DECISION_DEFAULT_UNITS_MAX);
        let at = expires.at;
        head.push_str(&format!(" Without a decision, {outcome} at {at}."));
    }
    match &show.about {
        DecisionSubject::Call { .. } => {
            if !is_whole {
                choices.retain(|choice| choice.answer != DecisionButton::Approve);
            }
            let mut offered = choices.iter().map(|choice| choice.answer);
            if !offered.any(|answer| answer == DecisionButton::Approve) {
                head.push_str(&format!(
                    " It is too long to be approved here. To see the full call: gdn inbox approvals {id}"
                ));
            }
        }
        DecisionSubject::Question(about) => {
            if !is_whole {
                // The part that is not shown may say what an answer permits.
                choices.retain(|choice| choice.answer == DecisionButton::Deny);
                reply = None;
                head.push_str(" It is too long to be answered here.");
            }
            head.push_str(&format!(" Details: gdn {}.", one_line(&about.command)));
        }
        DecisionSubject::Review(DecisionText { command, .. })
        | DecisionSubject::Proposal(DecisionNotice { command, .. }) => {
            head.push_str(&format!(" Details: gdn {}.", one_line(command)));
        }
        DecisionSubject::Login(about) => {
            head.push_str(&format!(" To log in: gdn {}", one_line(&about.command)));
        }
    }
    Message {
        head,
        reply,
        body,
        buttons: Some(Buttons {
            decision_id: id.clone(),
            choices,
        }),
    }
}

/// The buttons, with labels that hide nothing.
fn labeled(choices: &[DecisionChoice]) -> Vec<DecisionChoice> {
    let labeled = choices.iter().map(|choice| {
        let mut label = one_line(&choice.label);
        cut(&mut label, MAX_DECISION_LABEL_CHARS);
        let answer = choice.answer;
        DecisionChoice { answer, label }
    });
    labeled.collect()
}

/// The message about a decision that no longer waits.
pub(super) fn closed(id: &DecisionId, how: &str, about: &str) -> Message {
    let mut body = one_line(how);
    if !about.is_empty() {
        body.push('\n');
        body.push_str(about);
    }
    cut(&mut body, DECISION_MESSAGE_UNITS_MAX);
    // The ids of tool calls have this prefix.
    let noun = match id.as_str().starts_with("a-") {
        true => "Tool call",
        false => "Decision",
    };
    Message {
        head: format!("{noun} {id} is no longer pending."),
        reply: None,
        body,
        buttons: None,
    }
}

/// The start of a decision's description, kept for the time after the decision.
pub(super) fn about(show: &DecisionShow) -> String {
    let mut about = facts(show);
    if let Some((at, _)) = about.char_indices().nth(DECISION_KEPT_CHARS_MAX) {
        about.truncate(at);
        about.push('…');
    }
    about
}

/// The subject: of a call, its agent, conversation, tool and arguments.
fn facts(show: &DecisionShow) -> String {
    match &show.about {
        DecisionSubject::Call {
            instance_key,
            agent_name,
            tool_name,
            input,
            ..
        } => {
            let arguments: String = match input {
                Value::Object(fields) => {
                    let fields = fields.iter();
                    fields.map(|(name, value)| argument(name, value)).collect()
                }
                other => argument("arguments", other),
            };
            format!(
                "agent: {}\nconversation: {}\ntool: {}{arguments}",
                one_line(agent_name.as_str()),
                one_line(instance_key.as_str()),
                one_line(tool_name)
            )
        }
        DecisionSubject::Question(about) => text_facts("question", about),
        DecisionSubject::Review(about) => text_facts("work", about),
        DecisionSubject::Proposal(about) => notice_facts("changes", about),
        DecisionSubject::Login(about) => notice_facts("effect", about),
    }
}

fn notice_facts(name: &str, about: &DecisionNotice) -> String {
    let text = argument(name, &Value::from(about.text.as_str()));
    format!("{}{text}", one_line(&about.of))
}

fn text_facts(name: &str, about: &DecisionText) -> String {
    format!(
        "agent: {}\n{}{}",
        one_line(about.agent_name.as_str()),
        one_line(&about.of),
        argument(name, &Value::from(about.text.as_str()))
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
/// already fit. A backtick counts twice, because Discord's messages separate backticks.
fn cut(text: &mut String, units_max: usize) -> bool {
    let mut units = 0;
    let too_long = text.char_indices().find(|(_, c)| {
        units += if *c == '`' { 2 } else { c.len_utf16() };
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
pub(super) fn verdict(verdict: &DecisionVerdict) -> String {
    match verdict {
        DecisionVerdict::Decided { how } | DecisionVerdict::Counted { message: how } => {
            let mut chars = how.chars();
            let first = chars.next().map(|first| first.to_uppercase().to_string());
            let rest = chars.as_str();
            let end = if rest.ends_with('.') { "" } else { "." };
            format!("{}{rest}{end}", first.unwrap_or_default())
        }
        DecisionVerdict::DecidedBefore { how } => format!("Nothing changed: it is already {how}."),
        DecisionVerdict::Over {} => "Nothing changed: it is no longer pending.".to_owned(),
        DecisionVerdict::NotAllowed { message } => format!("Nothing changed: {message}."),
        DecisionVerdict::NotNow { message } => {
            format!("Nothing changed: {message}. Try again in a moment.")
        }
    }
}

/// Outcome of the decision, if it no longer waits.
pub(super) fn settled(verdict: &DecisionVerdict) -> Option<String> {
    match verdict {
        DecisionVerdict::Decided { how } | DecisionVerdict::DecidedBefore { how } => {
            Some(how.clone())
        }
        DecisionVerdict::Over {} => Some("over: it no longer needs you".to_owned()),
        DecisionVerdict::NotAllowed { .. }
        | DecisionVerdict::NotNow { .. }
        | DecisionVerdict::Counted { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use goondan_protocol::decision::{DecisionDefault, DecisionForm};
    use serde_json::json;

    use super::*;

    fn show(input: Value) -> DecisionShow {
        DecisionShow {
            decision_id: "a-1".parse().unwrap(),
            about: DecisionSubject::Call {
                needs_two: false,
                first_approval: None,
                instance_key: "ann".parse().unwrap(),
                agent_name: "careful".parse().unwrap(),
                tool_name: "bash__exec".to_owned(),
                input,
                may_have_begun: false,
            },
            form: DecisionForm {
                choices: Buttons::of_call("a-1", true).choices,
                reply: None,
            },
            expires: None,
        }
    }

    fn may_approve(message: &Message) -> bool {
        let buttons = message.buttons.as_ref().unwrap();
        let mut offered = buttons.offered();
        offered.any(|(answer, _)| answer == DecisionButton::Approve)
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
        assert!(may_approve(&message));
        let mut begun = show(json!(1));
        if let DecisionSubject::Call { may_have_begun, .. } = &mut begun.about {
            *may_have_begun = true;
        }
        let warned = waits(&begun);
        assert!(warned.head.contains("may have started"), "{warned:?}");
        let limited = waits(&DecisionShow {
            expires: Some(DecisionDefault {
                at: "2026-01-01T01:00:00.000Z".parse().unwrap(),
                outcome: "it is denied".to_owned(),
            }),
            ..show(json!(1))
        });
        let expected = " Without a decision, it is denied at 2026-01-01T01:00:00.000Z.";
        assert!(limited.head.ends_with(expected), "{limited:?}");
        assert!(warned.body.ends_with("\n  arguments: 1"), "{warned:?}");
    }

    #[test]
    fn steer_3_truncated_approval_cannot_be_approved_in_the_chat() {
        let long = "x".repeat(DECISION_MESSAGE_UNITS_MAX);
        let message = waits(&show(json!({ "command": long })));
        assert!(message.body.encode_utf16().count() <= DECISION_MESSAGE_UNITS_MAX + 1);
        assert!(
            message.head.contains("gdn inbox approvals a-1"),
            "{message:?}"
        );
        assert!(!may_approve(&message));
        let message = waits(&DecisionShow {
            form: DecisionForm {
                choices: Buttons::of_call("a-1", false).choices,
                reply: None,
            },
            ..show(json!({}))
        });
        assert!(!may_approve(&message));
        // Telegram counts UTF-16 units, not characters.
        let wide = "😀".repeat(DECISION_MESSAGE_UNITS_MAX / 2);
        let message = waits(&show(json!({ "c": wide })));
        assert!(!may_approve(&message));
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
    fn need_2_a_question_shows_who_asks_and_how_to_answer() {
        let about = DecisionText {
            agent_name: "coder".parse().unwrap(),
            of: "task shop, A shop".to_owned(),
            text: "Which color?\nagent: other".to_owned(),
            command: "task show shop".to_owned(),
        };
        let question = DecisionShow {
            decision_id: "t-1".parse().unwrap(),
            about: DecisionSubject::Question(about.clone()),
            form: DecisionForm {
                choices: Vec::new(),
                reply: Some("answer".to_owned()),
            },
            expires: None,
        };
        let message = waits(&question);
        assert_eq!(
            message.headline("Reply to this message to"),
            "Question t-1 waits for a person. Details: gdn task show shop. Reply to this message \
             to answer."
        );
        // The text of an agent cannot look like one of our lines.
        assert_eq!(
            message.body,
            "agent: coder\ntask shop, A shop\n  question:\n    Which color?\n    agent: other"
        );
        let review = DecisionShow {
            about: DecisionSubject::Review(about),
            ..question
        };
        assert!(waits(&review).head.starts_with("Review t-1 waits"));
        let notice = DecisionNotice {
            of: "login for OAuthApp/idp".to_owned(),
            text: "calls wait\nlogin for other".to_owned(),
            command: "secret oauth login idp".to_owned(),
        };
        let login = DecisionShow {
            about: DecisionSubject::Login(notice.clone()),
            form: DecisionForm::default(),
            ..review.clone()
        };
        let message = waits(&login);
        assert_eq!(
            message.head,
            "Login t-1 waits for a person. To log in: gdn secret oauth login idp"
        );
        assert_eq!(
            message.body,
            "login for OAuthApp/idp\n  effect:\n    calls wait\n    login for other"
        );
        let about = DecisionSubject::Proposal(notice);
        let proposal = DecisionShow { about, ..login };
        assert!(waits(&proposal).head.starts_with("Proposal t-1 waits"));
        let closed = closed(&"t-1".parse().unwrap(), "answered by telegram:5: blue", "");
        assert_eq!(closed.head, "Decision t-1 is no longer pending.");
    }

    #[test]
    fn need_2_truncated_question_can_only_be_declined_in_the_chat() {
        let choice = |answer, label: &str| DecisionChoice {
            answer,
            label: label.to_owned(),
        };
        let choices = vec![
            choice(DecisionButton::Option(0), "al\u{202e}low"),
            choice(
                DecisionButton::Deny,
                &"x".repeat(MAX_DECISION_LABEL_CHARS + 1),
            ),
        ];
        let question = |text: String| DecisionShow {
            decision_id: "t-1".parse().unwrap(),
            about: DecisionSubject::Question(DecisionText {
                agent_name: "coder".parse().unwrap(),
                of: "task shop, A shop".to_owned(),
                text,
                command: "task show shop".to_owned(),
            }),
            form: DecisionForm {
                choices: choices.clone(),
                reply: Some("answer".to_owned()),
            },
            expires: Some(DecisionDefault {
                at: "2026-01-01T01:00:00.000Z".parse().unwrap(),
                outcome: "y".repeat(DECISION_MESSAGE_UNITS_MAX),
            }),
        };
        let whole = waits(&question("May it?".to_owned()));
        assert!(whole.reply.is_some());
        let labels: Vec<&str> = whole
            .buttons
            .as_ref()
            .map(|buttons| buttons.offered().map(|(_, label)| label).collect())
            .unwrap();
        let cut = format!("{}…", "x".repeat(MAX_DECISION_LABEL_CHARS));
        assert_eq!(labels, [r"al\u{202e}low", &cut]);
        assert!(
            whole.head.len() < 2 * DECISION_DEFAULT_UNITS_MAX + 200,
            "{whole:?}"
        );
        let part = waits(&question("`".repeat(DECISION_MESSAGE_UNITS_MAX / 2)));
        assert_eq!(part.reply, None);
        let offered: Vec<DecisionButton> = part
            .buttons
            .as_ref()
            .map(|buttons| buttons.offered().map(|(answer, _)| answer).collect())
            .unwrap();
        assert_eq!(offered, [DecisionButton::Deny]);
        assert!(
            part.head.contains("too long to be answered here"),
            "{part:?}"
        );
    }

    #[test]
    fn steer_3_button_press_is_answered_with_its_result() {
        let decided = "approved".to_owned();
        let (how, message) = ("denied by a person".to_owned(), "not you".to_owned());
        for (given, told, is_settled) in [
            (DecisionVerdict::Decided { how: decided }, "Approved.", true),
            (
                DecisionVerdict::DecidedBefore { how },
                "Nothing changed: it is already denied by a person.",
                true,
            ),
            (
                DecisionVerdict::Over {},
                "Nothing changed: it is no longer pending.",
                true,
            ),
            (
                DecisionVerdict::NotAllowed { message },
                "Nothing changed: not you.",
                false,
            ),
        ] {
            assert_eq!(verdict(&given), told);
            assert_eq!(settled(&given).is_some(), is_settled);
        }
    }
}
