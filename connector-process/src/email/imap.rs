//! Client of `IMAP4rev1` (RFC 3501): reads one folder, and waits for new messages with IDLE
//! (RFC 2177).
//!
//! Only the few responses that this takes are interpreted. A message is a literal, so its content
//! is never parsed as a response.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use goondan_clock::{Instant, sleep, timeout_at};

use super::login::Login;
use super::stream::{MailServer, MailStream, Security, StreamError};
use crate::limits::{EMAIL_BYTES_MAX, IMAP_IDLE_MS, IMAP_LINE_BYTES_MAX};

/// Usual ports: with TLS from the start, and otherwise.
pub(super) const PORTS: (u16, u16) = (993, 143);

/// Longest text of a server that an error repeats, in characters.
const SAID_CHARS_MAX: usize = 200;

/// Reason why a mailbox cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ImapError {
    #[error("cannot reach the IMAP server: {0}")]
    Stream(#[from] StreamError),
    #[error("the IMAP server rejects the login: {0}")]
    Login(String),
    #[error("the IMAP server refuses `{command}`: {said}")]
    Refused { command: &'static str, said: String },
    #[error("the IMAP server {0}")]
    Strange(String),
}

/// A selected folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Folder {
    pub(super) uid_validity: u32,
    /// The UID of the next message.
    pub(super) uid_next: u32,
}

/// A message, as far as it was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FetchedMessage {
    Message(Vec<u8>),
    /// It is larger than [`EMAIL_BYTES_MAX`].
    TooLarge {
        bytes: u64,
    },
    /// It was deleted.
    Gone,
}

/// A response with a `{}` in its text for each literal.
#[derive(Debug, Default, PartialEq, Eq)]
struct Response {
    text: String,
    literals: Vec<Vec<u8>>,
}

/// A session of one user.
pub(super) struct Imap {
    stream: MailStream,
    tag: u32,
    capabilities: Vec<String>,
    /// True if the server has announced messages since the last search.
    has_news: bool,
}

impl Imap {
    /// Connects and logs in.
    ///
    /// # Errors
    ///
    /// [`ImapError`].
    pub(super) async fn open(server: &MailServer, login: &Login) -> Result<Self, ImapError> {
        let mut imap = Self {
            stream: server.connect().await?,
            tag: 0,
            capabilities: Vec::new(),
            has_news: false,
        };
        let greeting = imap.response().await?.text;
        if !greeting.starts_with("* OK") {
            return Err(ImapError::Strange(format!(
                "greets with `{}`",
                response_text(&greeting)
            )));
        }
        if server.security() == Security::StartTls {
            imap.command("STARTTLS", "STARTTLS", &[]).await?;
            imap.stream = imap.stream.encrypt(server).await?;
        }
        imap.learn_capabilities().await?;
        imap.log_in(login).await?;
        imap.learn_capabilities().await?;
        Ok(imap)
    }

    async fn learn_capabilities(&mut self) -> Result<(), ImapError> {
        let responses = self.command("CAPABILITY", "CAPABILITY", &[]).await?;
        let listed = responses.iter();
        let listed = listed.filter_map(|it| it.text.strip_prefix("* CAPABILITY "));
        let words = listed.flat_map(str::split_ascii_whitespace);
        self.capabilities = words.map(str::to_ascii_uppercase).collect();
        Ok(())
    }

    fn can(&self, capability: &str) -> bool {
        self.capabilities.iter().any(|it| it == capability)
    }

    async fn log_in(&mut self, login: &Login) -> Result<(), ImapError> {
        let done = if let Some(response) = login.xoauth2() {
            let response = [STANDARD.encode(response)];
            self.command("AUTHENTICATE", "AUTHENTICATE XOAUTH2", &response)
                .await
        } else if self.can("AUTH=PLAIN") {
            let response = [STANDARD.encode(login.plain())];
            self.command("AUTHENTICATE", "AUTHENTICATE PLAIN", &response)
                .await
        } else if self.can("LOGINDISABLED") {
            let reason = "it offers no way to log in with a password";
            return Err(ImapError::Login(reason.to_owned()));
        } else {
            let user = quoted(login.user()).map_err(ImapError::Login)?;
            let secret = quoted(login.secret()).map_err(ImapError::Login)?;
            self.command("LOGIN", &format!("LOGIN {user} {secret}"), &[])
                .await
        };
        match done {
            Ok(_) => Ok(()),
            Err(ImapError::Refused { said, .. }) => Err(ImapError::Login(said)),
            Err(other) => Err(other),
        }
    }

    /// Opens a folder, only for reading unless messages are marked.
    ///
    /// # Errors
    ///
    /// [`ImapError`], such as for a folder that does not exist.
    pub(super) async fn select(&mut self, folder: &str, marks: bool) -> Result<Folder, ImapError> {
        let name = if marks { "SELECT" } else { "EXAMINE" };
        let folder = folder_name(folder).map_err(ImapError::Strange)?;
        let responses = self.command(name, &format!("{name} {folder}"), &[]).await?;
        let code = |code: &str| {
            let mut responses = responses.iter();
            responses.find_map(|it| number_after(&it.text, code))
        };
        let Some(uid_validity) = code("[UIDVALIDITY ") else {
            let missing = "gives the folder no UIDVALIDITY";
            return Err(ImapError::Strange(missing.to_owned()));
        };
        let uid_next = match code("[UIDNEXT ") {
            Some(next) => next,
            // Only old servers leave it out.
            None => {
                let all = self.search("ALL").await?;
                all.last().map_or(1, |last| last.saturating_add(1))
            }
        };
        Ok(Folder {
            uid_validity,
            uid_next,
        })
    }

    /// UIDs above `uid`, in order.
    ///
    /// # Errors
    ///
    /// [`ImapError`].
    pub(super) async fn above(&mut self, uid: u32) -> Result<Vec<u32>, ImapError> {
        let first = uid.saturating_add(1);
        let mut found = self.search(&format!("UID {first}:*")).await?;
        // `*` is the last message, even if it is before the first of the range.
        found.retain(|found| *found > uid);
        Ok(found)
    }

    /// UIDs of the messages that arrived on a day, such as `1-Feb-2026`, or later.
    ///
    /// # Errors
    ///
    /// [`ImapError`].
    pub(super) async fn since(&mut self, day: &str) -> Result<Vec<u32>, ImapError> {
        self.search(&format!("SINCE {day}")).await
    }

    async fn search(&mut self, criteria: &str) -> Result<Vec<u32>, ImapError> {
        self.has_news = false;
        let command = format!("UID SEARCH {criteria}");
        let responses = self.command("UID SEARCH", &command, &[]).await?;
        let found = responses.iter();
        let found = found.filter_map(|it| it.text.strip_prefix("* SEARCH"));
        let uids = found.flat_map(str::split_ascii_whitespace);
        let mut uids: Vec<u32> = uids.filter_map(|uid| uid.parse().ok()).collect();
        uids.sort_unstable();
        uids.dedup();
        Ok(uids)
    }

    /// Reads a message without marking it as read.
    ///
    /// # Errors
    ///
    /// [`ImapError`].
    pub(super) async fn fetch(&mut self, uid: u32) -> Result<FetchedMessage, ImapError> {
        let command = format!("UID FETCH {uid} (UID RFC822.SIZE)");
        let responses = self.command("UID FETCH", &command, &[]).await?;
        let Some(known) = responses.iter().find(|it| is_about(&it.text, uid)) else {
            return Ok(FetchedMessage::Gone);
        };
        let bytes: u64 = number_after(&known.text, "RFC822.SIZE ").unwrap_or_default();
        if bytes > limit() {
            return Ok(FetchedMessage::TooLarge { bytes });
        }
        let command = format!("UID FETCH {uid} (UID BODY.PEEK[])");
        let responses = self.command("UID FETCH", &command, &[]).await?;
        let mut responses = responses.into_iter();
        let Some(found) = responses.find(|it| is_about(&it.text, uid)) else {
            return Ok(FetchedMessage::Gone);
        };
        // A message without a literal is empty.
        let content = found.literals.into_iter().next().unwrap_or_default();
        let read = u64::try_from(content.len()).unwrap_or(u64::MAX);
        Ok(if read > limit() {
            FetchedMessage::TooLarge { bytes: read }
        } else {
            FetchedMessage::Message(content)
        })
    }

    /// Marks a message as read.
    ///
    /// # Errors
    ///
    /// [`ImapError`].
    pub(super) async fn mark_seen(&mut self, uid: u32) -> Result<(), ImapError> {
        let command = format!("UID STORE {uid} +FLAGS.SILENT (\\Seen)");
        self.command("UID STORE", &command, &[]).await.map(drop)
    }

    /// Waits until there may be new messages: with IDLE until the server announces some, otherwise
    /// for `pause`.
    ///
    /// # Errors
    ///
    /// [`ImapError`] if the connection is gone.
    pub(super) async fn wait(&mut self, pause: Duration) -> Result<(), ImapError> {
        if self.has_news {
            return Ok(());
        }
        if !self.can("IDLE") {
            sleep(pause).await;
            return self.command("NOOP", "NOOP", &[]).await.map(drop);
        }
        let tag = self.begin("IDLE").await?;
        let until = Instant::now() + Duration::from_millis(IMAP_IDLE_MS);
        let mut is_waiting = false;
        while !(is_waiting && self.has_news) {
            let next = self.stream.next_line(IMAP_LINE_BYTES_MAX);
            let line = match timeout_at(until, next).await {
                Ok(line) => String::from_utf8_lossy(&line?).into_owned(),
                // A line that was cut is not needed: `finish` reads up to the end of the command.
                Err(_elapsed) => break,
            };
            if line.starts_with('+') {
                is_waiting = true;
            } else if let Some(ended) = line.strip_prefix(&tag) {
                return Err(ImapError::Refused {
                    command: "IDLE",
                    said: response_text(ended),
                });
            } else {
                self.note(&line)?;
            }
        }
        if !is_waiting {
            let silent = "does not begin IDLE";
            return Err(ImapError::Strange(silent.to_owned()));
        }
        self.stream.send(b"DONE\r\n").await?;
        self.finish("IDLE", &tag, &[]).await.map(drop)
    }

    /// Sends a command and returns the untagged responses. `answers` are sent when the server asks
    /// for them.
    async fn command(
        &mut self,
        name: &'static str,
        command: &str,
        answers: &[String],
    ) -> Result<Vec<Response>, ImapError> {
        let tag = self.begin(command).await?;
        self.finish(name, &tag, answers).await
    }

    /// Sends a command and returns its tag.
    async fn begin(&mut self, command: &str) -> Result<String, ImapError> {
        self.tag = self.tag.wrapping_add(1);
        let tag = format!("g{} ", self.tag);
        let line = format!("{tag}{command}\r\n");
        self.stream.send(line.as_bytes()).await?;
        Ok(tag)
    }

    async fn finish(
        &mut self,
        command: &'static str,
        tag: &str,
        answers: &[String],
    ) -> Result<Vec<Response>, ImapError> {
        let mut answers = answers.iter();
        let mut responses = Vec::new();
        loop {
            let response = self.response().await?;
            if response.text.starts_with('+') {
                // After a failed login, a server expects an empty line.
                let answer = answers.next().map_or("", String::as_str);
                let line = format!("{answer}\r\n");
                self.stream.send(line.as_bytes()).await?;
            } else if let Some(ended) = response.text.strip_prefix(tag) {
                let word = ended.split_ascii_whitespace().next().unwrap_or_default();
                if word.eq_ignore_ascii_case("OK") {
                    return Ok(responses);
                }
                return Err(ImapError::Refused {
                    command,
                    said: response_text(ended),
                });
            } else {
                self.note(&response.text)?;
                responses.push(response);
            }
        }
    }

    /// Interprets what a server says at any time.
    fn note(&mut self, line: &str) -> Result<(), ImapError> {
        if let Some(reason) = line.strip_prefix("* BYE") {
            let reason = format!("closes the session: {}", response_text(reason));
            return Err(ImapError::Strange(reason));
        }
        let mut words = line.split_ascii_whitespace();
        if words.next() == Some("*") && words.nth(1) == Some("EXISTS") {
            self.has_news = true;
        }
        Ok(())
    }

    /// Reads a response with its literals.
    async fn response(&mut self) -> Result<Response, ImapError> {
        let mut response = Response::default();
        loop {
            let line = self.stream.line(IMAP_LINE_BYTES_MAX).await?;
            let line = String::from_utf8_lossy(&line);
            let Some((start, bytes)) = literal(&line) else {
                response.text.push_str(&line);
                return Ok(response);
            };
            response.text.push_str(start);
            response.text.push_str("{}");
            if response.text.len() > IMAP_LINE_BYTES_MAX || response.literals.len() >= 64 {
                return Err(ImapError::Strange("sends an endless response".to_owned()));
            }
            // One byte more than permitted shows that there are too many.
            let kept = EMAIL_BYTES_MAX.saturating_add(1);
            let content = self.stream.bytes(bytes, kept).await?;
            response.literals.push(content);
        }
    }
}

fn limit() -> u64 {
    u64::try_from(EMAIL_BYTES_MAX).unwrap_or(u64::MAX)
}

/// The text before a literal at the end of a line, and the length of the literal.
fn literal(line: &str) -> Option<(&str, u64)> {
    let (start, length) = line.strip_suffix('}')?.rsplit_once('{')?;
    Some((start, length.parse().ok()?))
}

/// True for the response to FETCH about a message.
fn is_about(response: &str, uid: u32) -> bool {
    let mut words = response.split_ascii_whitespace();
    words.next() == Some("*")
        && words.nth(1) == Some("FETCH")
        && (number_after(response, "(UID ") == Some(uid)
            || number_after(response, " UID ") == Some(uid))
}

/// The number after a text.
fn number_after<N: std::str::FromStr>(text: &str, before: &str) -> Option<N> {
    let (_, rest) = text.split_once(before)?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// A text as a quoted string.
fn quoted(text: &str) -> Result<String, String> {
    if text.chars().any(|c| !c.is_ascii() || c.is_ascii_control()) {
        return Err("the server takes only ASCII in user names and passwords".to_owned());
    }
    Ok(format!(
        "\"{}\"",
        text.replace('\\', "\\\\").replace('"', "\\\"")
    ))
}

/// The name of a folder in the encoding of IMAP (modified UTF-7), quoted.
fn folder_name(folder: &str) -> Result<String, String> {
    let mut name = String::new();
    let mut others: Vec<u16> = Vec::new();
    let close = |name: &mut String, others: &mut Vec<u16>| {
        if !others.is_empty() {
            let bytes: Vec<u8> = others.iter().flat_map(|unit| unit.to_be_bytes()).collect();
            let encoded = STANDARD.encode(bytes).replace('/', ",");
            name.push('&');
            name.push_str(encoded.trim_end_matches('='));
            name.push('-');
            others.clear();
        }
    };
    for c in folder.chars() {
        if c.is_ascii() && !c.is_ascii_control() {
            close(&mut name, &mut others);
            name.push(c);
            if c == '&' {
                name.push('-');
            }
        } else {
            others.extend(c.encode_utf16(&mut [0; 2]).iter());
        }
    }
    close(&mut name, &mut others);
    quoted(&name)
}

/// A server's text, for an error.
fn response_text(text: &str) -> String {
    let text = text.trim().chars().filter(|c| !c.is_control());
    text.take(SAID_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conn_1_folders_have_the_names_that_servers_expect() {
        for (folder, name) in [
            ("INBOX", r#""INBOX""#),
            ("Work/a \"b\"", r#""Work/a \"b\"""#),
            ("A&B", r#""A&-B""#),
            ("Entwürfe", r#""Entw&APw-rfe""#),
            ("台北/日本語", r#""&U,BTFw-/&ZeVnLIqe-""#),
        ] {
            assert_eq!(folder_name(folder).unwrap(), name);
        }
        assert!(quoted("päss").is_err() && quoted("a\r\nb").is_err());
    }

    #[test]
    fn conn_1_responses_are_read_by_their_numbers() {
        assert_eq!(
            literal("* 1 FETCH (UID 7 BODY[] {12}"),
            Some(("* 1 FETCH (UID 7 BODY[] ", 12))
        );
        for plain in ["* OK {x}", "* OK", "}", "{-1}"] {
            assert_eq!(literal(plain), None, "{plain}");
        }
        assert!(is_about("* 1 FETCH (UID 7 RFC822.SIZE 70)", 7));
        assert!(is_about("* 1 FETCH (RFC822.SIZE 70 UID 7)", 7));
        assert!(!is_about("* 1 FETCH (UID 71)", 7));
        assert!(!is_about("* OK FETCH (UID 7)", 8));
        let size: Option<u64> = number_after("* 1 FETCH (RFC822.SIZE 70)", "RFC822.SIZE ");
        assert_eq!(size, Some(70));
        let next: Option<u32> = number_after("* OK [UIDNEXT 4294967296]", "[UIDNEXT ");
        assert_eq!(next, None);
    }
}
