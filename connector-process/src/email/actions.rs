//! Actions of agents through a mailbox: messages by SMTP, attachments by IMAP.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use goondan_protocol::JsonObject;
use goondan_protocol::call::{CallError, CallErrorCode, TokenVerdict};
use goondan_protocol::service::{
    DOWNLOAD_BYTES_MAX, EMAIL, EMAIL_REPLY, Email as Action, EmailDraft, EmailReply, ServiceSpec,
};
use mail_builder::MessageBuilder;
use mail_builder::headers::address::Address;
use mail_builder::headers::message_id::MessageId;
use mail_builder::headers::raw::Raw;
use serde_json::{Value, json};

use super::imap::{FetchedMessage, Imap, ImapError};
use super::login::Login;
use super::mailbox::ProofKey;
use super::message::{OpenedFile, open_file, parse_file_id, reply_parts};
use super::smtp::{self, Envelope, SmtpError, TOO_LARGE};
use super::stream::MailServer;
use super::thread::{is_address, is_id, is_listed, own_id};
use crate::chat_replies::ChatService;
use crate::service::FailureContext;
use crate::service_api::ServiceApi;

/// Display name in errors.
const SERVICE: &str = "the mail server";

/// Most recipients of one message.
const RECIPIENTS_MAX: usize = 20;

/// Performs the actions of agents.
pub(super) struct Actions {
    pub(super) imap: MailServer,
    /// Server for outgoing messages, if configured.
    pub(super) smtp: Option<MailServer>,
    pub(super) login: Login,
    pub(super) address: String,
    pub(super) display_name: Option<String>,
    pub(super) folder: String,
    /// Addresses and domains that agents can write to, besides answers.
    pub(super) send_to: Vec<String>,
    pub(super) key: ProofKey,
}

/// A file to attach.
struct Attachment<'a> {
    name: &'a str,
    content: Vec<u8>,
}

impl ServiceApi for Actions {
    type Action = Action;
    const SERVICE: &'static ServiceSpec = &EMAIL;

    async fn run(&self, action: Action, is_idempotent: bool) -> Result<Value, CallError> {
        match action {
            Action::Send(draft) => self.send(&draft, None, is_idempotent).await,
            Action::SendFile {
                draft,
                name,
                base64,
            } => {
                let content = STANDARD.decode(base64).map_err(|error| {
                    let message = format!("the file is not Base64: {error}");
                    CallError::new(CallErrorCode::Invalid, message)
                })?;
                let attachment = Attachment {
                    name: &name,
                    content,
                };
                self.send(&draft, Some(attachment), is_idempotent).await
            }
            Action::Download { file, max_bytes } => self.download(&file, max_bytes).await,
        }
    }

    fn written_place(&self, action: &Action) -> Option<String> {
        match action {
            Action::Send(draft) => Some(draft.reply.as_ref()?.thread.clone()),
            Action::SendFile { .. } | Action::Download { .. } => None,
        }
    }

    fn secret(&self) -> &str {
        self.login.secret()
    }
}

impl ChatService for Actions {
    const FACTS: &'static [&'static str] = &[EMAIL_REPLY];

    fn home(&self, facts: &JsonObject) -> Option<String> {
        let thread = facts.get(EMAIL_REPLY)?.get("thread")?;
        thread.as_str().map(str::to_owned)
    }

    fn reply_args(text: &str, _facts: &JsonObject) -> Value {
        json!({"text": text})
    }
}

impl Actions {
    async fn send(
        &self,
        draft: &EmailDraft,
        attachment: Option<Attachment<'_>>,
        is_idempotent: bool,
    ) -> Result<Value, CallError> {
        let Some(server) = &self.smtp else {
            let message = "the Connection has no `smtp` server, so it only receives messages";
            return Err(CallError::new(CallErrorCode::Refused, message));
        };
        let to = self.recipients(draft)?;
        let thread = draft.reply.as_ref().map(|reply| reply.thread.as_str());
        let id = own_id(thread, &draft.mark, &self.address);
        let message = self.compose(draft, &to, &id, attachment);
        let message = message.map_err(|error| {
            CallError::new(CallErrorCode::Internal, format!("no message: {error}"))
        })?;
        let envelope = Envelope {
            from: &self.address,
            to: &to,
        };
        match smtp::send(server, &self.login, envelope, &message).await {
            Ok(()) => Ok(json!(id)),
            Err(error) => Err(to_error(&error, is_idempotent)),
        }
    }

    /// The permitted recipients of a message.
    fn recipients(&self, draft: &EmailDraft) -> Result<Vec<String>, CallError> {
        let to = match &draft.reply {
            Some(reply) => {
                self.check_reply(reply)?;
                vec![reply.to.clone()]
            }
            None => draft.to.clone(),
        };
        if to.is_empty() || to.len() > RECIPIENTS_MAX {
            let message = format!("a message has 1 to {RECIPIENTS_MAX} recipients");
            return Err(CallError::new(CallErrorCode::Invalid, message));
        }
        for address in &to {
            if !is_address(address) {
                let message = format!("`{}` is not an e-mail address", address.escape_debug());
                return Err(CallError::new(CallErrorCode::Invalid, message));
            }
            if draft.reply.is_none() && !is_listed(&self.send_to, address) {
                let message = format!("{address} is not in `sendTo` of the Connection");
                return Err(CallError::new(CallErrorCode::Refused, message)
                    .suggest("without `to`, the sender of the turn's message gets an answer"));
            }
        }
        Ok(to)
    }

    /// Checks that this connector received the answered message.
    fn check_reply(&self, reply: &EmailReply) -> Result<(), CallError> {
        let parts = reply_parts(&reply.to, &reply.message_id, &reply.thread);
        if self.key.is_proof(&parts, &reply.proof) {
            return Ok(());
        }
        let message = "the answered message was not received by this Connection";
        Err(CallError::new(CallErrorCode::Refused, message))
    }

    fn compose(
        &self,
        draft: &EmailDraft,
        to: &[String],
        id: &str,
        attachment: Option<Attachment<'_>>,
    ) -> std::io::Result<Vec<u8>> {
        let from = Address::new_address(self.display_name.as_deref(), self.address.as_str());
        let to = to.iter().map(|to| Address::from(to.as_str()));
        // Programs do not answer messages with this header (RFC 3834).
        let kind = match draft.reply {
            Some(_) => "auto-replied",
            None => "auto-generated",
        };
        let mut message = MessageBuilder::new()
            .message_id(id)
            .from(from)
            .to(Address::new_list(to.collect()))
            .subject(subject(draft))
            .header("Auto-Submitted", Raw::new(kind))
            .text_body(draft.text.as_str());
        if let Some(reply) = &draft.reply
            && is_id(&reply.message_id)
        {
            let earlier = reply.references.iter().map(String::as_str);
            let earlier = earlier.filter(|id| is_id(id) && *id != reply.message_id);
            let chain: Vec<&str> = earlier.chain([reply.message_id.as_str()]).collect();
            message = message
                .in_reply_to(reply.message_id.as_str())
                .references(MessageId::new_list(chain.into_iter()));
        }
        if let Some(file) = attachment {
            let kind = "application/octet-stream";
            message = message.attachment(kind, one_line(file.name), file.content);
        }
        message.write_to_vec()
    }

    async fn download(&self, file: &str, bytes_max: u64) -> Result<Value, CallError> {
        let Some((place, part)) = parse_file_id(file, &self.key) else {
            let message = "no message has a file with this ID";
            return Err(CallError::new(CallErrorCode::NotFound, message)
                .suggest("use the ID as the message names it"));
        };
        let fetched = async {
            let mut imap = Imap::open(&self.imap, &self.login).await?;
            let folder = imap.select(&self.folder, false).await?;
            if folder.uid_validity != place.uid_validity {
                return Ok(FetchedMessage::Gone);
            }
            imap.fetch(place.uid).await
        };
        let fetched = fetched.await.map_err(|error| to_read_error(&error))?;
        let gone = |message: &str| CallError::new(CallErrorCode::NotFound, message);
        let raw = match fetched {
            FetchedMessage::Message(raw) => raw,
            FetchedMessage::TooLarge { .. } | FetchedMessage::Gone => {
                return Err(gone("the message is no longer in the folder"));
            }
        };
        let OpenedFile {
            name,
            mime_type,
            content,
        } = open_file(&raw, part).ok_or_else(|| gone("the message has no such file"))?;
        let bytes = u64::try_from(content.len()).unwrap_or(u64::MAX);
        let bytes_max = bytes_max.min(DOWNLOAD_BYTES_MAX);
        if bytes > bytes_max {
            let message = format!("the file has {bytes} bytes; at most {bytes_max} can be read");
            return Err(CallError::new(CallErrorCode::TooLarge, message));
        }
        Ok(json!({"name": name, "contentType": mime_type, "base64": STANDARD.encode(content)}))
    }
}

/// The subject in one line: the given one, or that of the answered message with `Re:`.
fn subject(draft: &EmailDraft) -> String {
    let given = one_line(&draft.subject);
    match &draft.reply {
        Some(reply) if given.is_empty() => {
            let answered = one_line(&reply.subject);
            let is_marked = answered
                .get(..3)
                .is_some_and(|it| it.eq_ignore_ascii_case("re:"));
            if is_marked {
                answered
            } else {
                format!("Re: {answered}")
            }
        }
        Some(_) | None => given,
    }
}

fn one_line(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

fn to_error(error: &SmtpError, is_repeatable: bool) -> CallError {
    let failed = FailureContext {
        service: SERVICE,
        is_repeatable,
    };
    let message = error.to_string();
    match error {
        SmtpError::NotSent(_) | SmtpError::Temporary { .. } => {
            CallError::new(CallErrorCode::Unavailable, message).later(None)
        }
        SmtpError::Login(_) => CallError::new(CallErrorCode::Unauthorized, message)
            .of_token(Some(TokenVerdict::Declined)),
        SmtpError::Permanent { code, .. } if *code == TOO_LARGE => {
            CallError::new(CallErrorCode::TooLarge, message)
        }
        SmtpError::Permanent { .. } => CallError::new(CallErrorCode::Refused, message),
        SmtpError::Strange(_) => CallError::new(CallErrorCode::Internal, message),
        SmtpError::Lost(_) => failed.unknown(message),
    }
}

fn to_read_error(error: &ImapError) -> CallError {
    let message = error.to_string();
    match error {
        ImapError::Stream(_) => CallError::new(CallErrorCode::Unavailable, message).later(None),
        ImapError::Login(_) => CallError::new(CallErrorCode::Unauthorized, message)
            .of_token(Some(TokenVerdict::Declined)),
        ImapError::Refused { .. } => CallError::new(CallErrorCode::Refused, message),
        ImapError::Strange(_) => CallError::new(CallErrorCode::Internal, message),
    }
}

#[cfg(test)]
#[path = "actions_tests.rs"]
mod tests;
