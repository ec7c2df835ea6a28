//! E-mail: messages of a mailbox.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::action::{
    ActionCall, ActionPlan, ActionSpec, DOWNLOAD, PATH_ARGUMENT, PlanError, SEND_FILE, ServiceSpec,
};
use super::recovery::Recovery;
use super::{DOWNLOAD_BYTES_MAX, path_schema};
use crate::JsonObject;
use crate::limits::MAX_INPUT_BYTES;

/// Most recipients of one message.
const RECIPIENTS_MAX: usize = 20;

/// Longest subject that an agent writes, in characters.
const SUBJECT_CHARS_MAX: usize = 200;

/// Metadata of an event that a reply to it needs.
pub const EMAIL_REPLY: &str = "reply";

/// The `email` tool.
pub const EMAIL: ServiceSpec = ServiceSpec {
    tool: "email",
    connector: "email",
    secret: None,
    actions: &[
        ActionSpec {
            name: "send",
            description: "Sends an e-mail and returns its Message-ID. Without `to`, it answers the message of this turn in its thread.",
            arguments: || json!({"text": text_schema(), "to": to_schema(), "subject": subject_schema()}),
            required: &["text"],
            recovery: Recovery::Unknown("SMTP has no request that finds a message that was sent"),
            plan: send,
        },
        ActionSpec {
            name: SEND_FILE,
            description: "Sends a file of the work directory as an attachment of an e-mail and returns its Message-ID. Without `to`, it answers the message of this turn in its thread.",
            arguments: || {
                json!({
                    PATH_ARGUMENT: path_schema("send"), "text": text_schema(), "to": to_schema(),
                    "subject": subject_schema(),
                })
            },
            required: &[PATH_ARGUMENT],
            recovery: Recovery::Unknown("SMTP has no request that finds a message that was sent"),
            plan: send_file,
        },
        ActionSpec {
            name: DOWNLOAD,
            description: "Saves an attachment of a received e-mail in the work directory.",
            arguments: || {
                json!({
                    "file": {"type": "string", "minLength": 1, "description": "The file's ID, as the message names it"},
                    PATH_ARGUMENT: path_schema("write"),
                })
            },
            required: &["file", PATH_ARGUMENT],
            recovery: Recovery::Repeatable,
            plan: download,
        },
    ],
};

/// Methods of a connection of the connector `email`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Email {
    /// Sends a message. Returns its Message-ID.
    Send(EmailDraft),
    /// Sends a message with a file. Returns its Message-ID.
    SendFile {
        /// The message.
        draft: EmailDraft,
        /// The file's name.
        name: String,
        /// Its content, in Base64; at most [`super::DOWNLOAD_BYTES_MAX`] bytes.
        base64: String,
    },
    /// Reads an attachment. Returns `{name, contentType, base64}`.
    Download {
        /// The attachment, by the ID in its message.
        file: String,
        /// Size limit in bytes, at most [`super::DOWNLOAD_BYTES_MAX`].
        max_bytes: u64,
    },
}

/// A message to send.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EmailDraft {
    /// The recipients; empty for a reply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<String>,
    /// The subject; empty for that of the answered message.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// The text.
    pub text: String,
    /// Determines the Message-ID, so that a repeated message is recognized.
    pub mark: String,
    /// The answered message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<EmailReply>,
}

/// The message that a reply answers, as the connector described it in the event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EmailReply {
    /// Its sender.
    pub to: String,
    /// Its subject.
    pub subject: String,
    /// Its Message-ID; empty if it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message_id: String,
    /// Earlier messages of its thread, by Message-ID.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub references: Vec<String>,
    /// Its thread.
    pub thread: String,
    /// Proof that the connector received this message.
    pub proof: String,
}

fn text_schema() -> Value {
    json!({
        "type": "string", "maxLength": MAX_INPUT_BYTES,
        "description": "The text. It is sent as plain text",
    })
}

fn to_schema() -> Value {
    json!({
        "type": "array", "items": {"type": "string", "minLength": 3}, "maxItems": RECIPIENTS_MAX,
        "description": "The recipients' addresses, for a new message. If not given, the sender of the message this turn answers",
    })
}

fn subject_schema() -> Value {
    json!({
        "type": "string", "maxLength": SUBJECT_CHARS_MAX,
        "description": "The subject; required with `to`. If not given, that of the answered message",
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Args {
    #[serde(default)]
    to: Vec<String>,
    #[serde(default)]
    subject: String,
    #[serde(default)]
    text: String,
    #[serde(default)]
    file: String,
}

/// The message of a call, and its place for the model.
fn draft(call: &ActionCall<'_>) -> Result<(EmailDraft, JsonObject), PlanError> {
    let args: Args = call.args()?;
    let subject = args.subject.trim().to_owned();
    let reply = if args.to.is_empty() {
        Some(answered(call)?)
    } else if subject.is_empty() {
        let missing = "say which `subject`: a message with `to` begins a thread";
        return Err(PlanError::Invalid(missing.to_owned()));
    } else {
        None
    };
    let to = match &reply {
        Some(reply) => json!([reply.to]),
        None => json!(args.to),
    };
    let draft = EmailDraft {
        to: args.to,
        subject,
        text: args.text,
        mark: call.call_id.to_owned(),
        reply,
    };
    Ok((draft, JsonObject::from_iter([("to".to_owned(), to)])))
}

/// The message that the turn answers.
fn answered(call: &ActionCall<'_>) -> Result<EmailReply, PlanError> {
    let Some(fact) = call.fact(EMAIL_REPLY) else {
        return Err(PlanError::Invalid(format!(
            "pass `to`: the event of this turn did not come from connection `{}`",
            call.connection
        )));
    };
    let read = EmailReply::deserialize(fact);
    read.map_err(|error| PlanError::Failed(format!("the event's `{EMAIL_REPLY}`: {error}")))
}

fn send(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let (draft, place) = draft(call)?;
    if draft.text.trim().is_empty() {
        let missing = "the `text` is empty";
        return Err(PlanError::Invalid(missing.to_owned()));
    }
    ActionPlan::message(&Email::Send(draft), place)
}

fn send_file(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let (draft, place) = draft(call)?;
    let file = call.file()?;
    let action = Email::SendFile {
        draft,
        name: file.name.clone(),
        base64: file.base64.clone(),
    };
    ActionPlan::message(&action, place)
}

fn download(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let args: Args = call.args()?;
    ActionPlan::result(&Email::Download {
        file: args.file,
        max_bytes: DOWNLOAD_BYTES_MAX,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(args: &Value, facts: &Value) -> Result<String, PlanError> {
        let facts = facts.as_object().cloned();
        let plan = send(&ActionCall {
            connection: &"mail".parse().unwrap(),
            call_id: "t.1:c0",
            args,
            facts: facts.as_ref(),
            file: None,
        })?;
        let [request] = plan.requests() else {
            panic!("{plan:?}");
        };
        Ok(format!("{} {}", request.method, request.params))
    }

    #[test]
    fn conn_2_an_email_answers_its_thread_or_begins_one() {
        let reply = json!({"to": "ada@example.com", "subject": "Books", "messageId": "1@x",
            "references": ["0@x"], "thread": "t", "proof": "p"});
        let home = json!({EMAIL_REPLY: reply});
        let answer = planned(&json!({"text": "hi"}), &home).unwrap();
        let expected = format!(r#"send {{"text":"hi","mark":"t.1:c0","reply":{reply}}}"#);
        assert_eq!(answer, expected);
        let new = json!({"text": "hi", "to": ["bob@example.com"], "subject": " Hello "});
        let expected =
            r#"send {"to":["bob@example.com"],"subject":"Hello","text":"hi","mark":"t.1:c0"}"#;
        assert_eq!(planned(&new, &home).unwrap(), expected);
        for (args, facts, part) in [
            (json!({"text": "hi"}), json!({}), "pass `to`"),
            (
                json!({"text": "hi", "to": ["a@b"]}),
                json!({}),
                "which `subject`",
            ),
            (json!({"text": " "}), home, "`text` is empty"),
        ] {
            let error = planned(&args, &facts).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
