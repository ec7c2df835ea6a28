//! Submission of messages by SMTP (RFC 6409). An error shows if the server can have accepted the message.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use goondan_clock::timeout;

use super::login::Login;
use super::stream::{MailServer, MailStream, Security, StreamError};
use crate::limits::{SMTP_ACCEPT_TIMEOUT_MS, SMTP_LINE_BYTES_MAX, SMTP_REPLY_LINES_MAX};

/// Usual ports: with TLS from the start, and otherwise.
pub(super) const PORTS: (u16, u16) = (465, 587);

/// Name in the greeting. Servers for submission do not check it, and it says nothing about this
/// machine.
const GREETING: &str = "EHLO [127.0.0.1]";

/// Longest text of a server that an error repeats, in characters.
const SAID_CHARS_MAX: usize = 200;

/// Reason why a message was not sent, or may not have been.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum SmtpError {
    /// Nothing was sent.
    #[error("cannot reach the SMTP server: {0}")]
    NotSent(#[from] StreamError),
    #[error("the SMTP server rejects the login: {0}")]
    Login(String),
    /// The server refused the message, and may take it later.
    #[error("the SMTP server answers {code} for now: {said}")]
    Temporary { code: u16, said: String },
    /// The server refused the message.
    #[error("the SMTP server answers {code}: {said}")]
    Permanent { code: u16, said: String },
    #[error("the SMTP server {0}")]
    Strange(String),
    /// The connection broke while the server decided.
    #[error("no decision of the SMTP server about the message: {0}")]
    Lost(StreamError),
}

/// Sender and recipients of a message, as plain addresses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Envelope<'a> {
    pub(super) from: &'a str,
    pub(super) to: &'a [String],
}

#[derive(Debug, PartialEq, Eq)]
struct Reply {
    code: u16,
    lines: Vec<String>,
}

impl Reply {
    /// The reply, if it has the first digit of success.
    fn expect(self, digit: u16) -> Result<Self, SmtpError> {
        let code = self.code;
        let said = self.lines.join(" ").chars().take(SAID_CHARS_MAX).collect();
        match code / 100 {
            class if class == digit => Ok(self),
            4 => Err(SmtpError::Temporary { code, said }),
            5 => Err(SmtpError::Permanent { code, said }),
            _ => Err(SmtpError::Strange(format!("answers {code}: {said}"))),
        }
    }
}

/// Sends a message with CRLF or LF at the ends of its lines.
///
/// # Errors
///
/// [`SmtpError`]. Only [`SmtpError::Lost`] leaves open if it was sent.
pub(super) async fn send(
    server: &MailServer,
    login: &Login,
    envelope: Envelope<'_>,
    message: &[u8],
) -> Result<(), SmtpError> {
    let mut smtp = Smtp {
        stream: server.connect().await?,
        extensions: Vec::new(),
    };
    smtp.reply().await?.expect(2)?;
    smtp.greet().await?;
    if server.security() == Security::StartTls {
        smtp.command("STARTTLS").await?.expect(2)?;
        smtp.stream = smtp.stream.encrypt(server).await?;
        smtp.greet().await?;
    }
    smtp.log_in(login, server.security()).await?;
    let content = to_data(message);
    smtp.check_size(content.len())?;
    let begin = format!("MAIL FROM:<{}>", envelope.from);
    smtp.command(&begin).await?.expect(2)?;
    for to in envelope.to {
        let recipient = format!("RCPT TO:<{to}>");
        smtp.command(&recipient).await?.expect(2)?;
    }
    smtp.command("DATA").await?.expect(3)?;
    smtp.stream.send(&content).await?;
    // From here on, the server can have the message.
    smtp.stream.send(b".\r\n").await.map_err(SmtpError::Lost)?;
    let limit = Duration::from_millis(SMTP_ACCEPT_TIMEOUT_MS);
    let decided = timeout(limit, smtp.late_reply()).await;
    let silent = || StreamError(format!("no answer within {SMTP_ACCEPT_TIMEOUT_MS} ms"));
    let decided = decided.map_err(|_elapsed| SmtpError::Lost(silent()))?;
    let decided = decided.map_err(|error| match error {
        SmtpError::NotSent(broken) => SmtpError::Lost(broken),
        other => other,
    })?;
    decided.expect(2)?;
    // The message is accepted; the answer to `QUIT` changes nothing.
    smtp.stream.send(b"QUIT\r\n").await.ok();
    Ok(())
}

/// A session of one message.
struct Smtp {
    stream: MailStream,
    /// Extensions that the server offers, in capitals.
    extensions: Vec<String>,
}

impl Smtp {
    async fn greet(&mut self) -> Result<(), SmtpError> {
        let reply = self.command(GREETING).await?.expect(2)?;
        let lines = reply.lines.iter().skip(1);
        self.extensions = lines.map(|line| line.to_ascii_uppercase()).collect();
        Ok(())
    }

    /// The parameters of an extension; `None` if the server does not offer it.
    fn extension(&self, name: &str) -> Option<Vec<&str>> {
        let mut lines = self.extensions.iter().map(|it| it.split_ascii_whitespace());
        lines.find_map(|mut words| (words.next() == Some(name)).then(|| words.collect()))
    }

    /// The lines of a login; none if the server needs none.
    fn login_lines(&self, login: &Login, security: Security) -> Result<Vec<String>, SmtpError> {
        let offered = self.extension("AUTH");
        // A mail server of this machine can know its users without a login.
        if offered.is_none() && security == Security::Plain {
            return Ok(Vec::new());
        }
        let offered = offered.unwrap_or_default();
        if let Some(response) = login.xoauth2() {
            let line = format!("AUTH XOAUTH2 {}", STANDARD.encode(response));
            Ok(vec![line])
        } else if offered.contains(&"PLAIN") {
            let line = format!("AUTH PLAIN {}", STANDARD.encode(login.plain()));
            Ok(vec![line])
        } else if offered.contains(&"LOGIN") {
            Ok(vec![
                "AUTH LOGIN".to_owned(),
                STANDARD.encode(login.user()),
                STANDARD.encode(login.secret()),
            ])
        } else {
            let reason = "it offers no way to log in with a password";
            Err(SmtpError::Login(reason.to_owned()))
        }
    }

    async fn log_in(&mut self, login: &Login, security: Security) -> Result<(), SmtpError> {
        let mut decided = None;
        for line in self.login_lines(login, security)? {
            let reply = self.command(&line).await?;
            let is_open = reply.code / 100 == 3;
            decided = Some(reply);
            if !is_open {
                break;
            }
        }
        let Some(mut reply) = decided else {
            return Ok(());
        };
        if reply.code / 100 == 3 {
            // The server explains a failed XOAUTH2, and decides after an empty line.
            reply = self.command("").await?;
        }
        match reply.expect(2) {
            Ok(_) => Ok(()),
            Err(SmtpError::Permanent { said, .. }) => Err(SmtpError::Login(said)),
            Err(other) => Err(other),
        }
    }

    /// Checks the size before the message is sent.
    fn check_size(&self, bytes: usize) -> Result<(), SmtpError> {
        let limit = self.extension("SIZE");
        let limit = limit.and_then(|words| words.first()?.parse::<usize>().ok());
        match limit.filter(|limit| *limit > 0 && bytes > *limit) {
            Some(limit) => Err(SmtpError::Permanent {
                code: TOO_LARGE,
                said: format!("it takes at most {limit} bytes, the message has {bytes}"),
            }),
            None => Ok(()),
        }
    }

    async fn command(&mut self, line: &str) -> Result<Reply, SmtpError> {
        let line = format!("{line}\r\n");
        self.stream.send(line.as_bytes()).await?;
        self.reply().await
    }

    async fn reply(&mut self) -> Result<Reply, SmtpError> {
        let mut lines = Vec::new();
        loop {
            let line = self.stream.line(SMTP_LINE_BYTES_MAX).await?;
            if let Some(code) = add_line(&line, &mut lines)? {
                return Ok(Reply { code, lines });
            }
        }
    }

    /// As [`Self::reply`]; the caller limits the time.
    async fn late_reply(&mut self) -> Result<Reply, SmtpError> {
        let mut lines = Vec::new();
        loop {
            let line = self.stream.next_line(SMTP_LINE_BYTES_MAX).await?;
            if let Some(code) = add_line(&line, &mut lines)? {
                return Ok(Reply { code, lines });
            }
        }
    }
}

/// Code for a message that is too large.
pub(super) const TOO_LARGE: u16 = 552;

/// Adds a line of a reply. Returns the code with the last one.
fn add_line(line: &[u8], lines: &mut Vec<String>) -> Result<Option<u16>, SmtpError> {
    let line = String::from_utf8_lossy(line);
    let strange = || SmtpError::Strange("does not speak SMTP".to_owned());
    let code = line.get(..3).ok_or_else(strange)?;
    let code: u16 = code.parse().map_err(|_not_a_number| strange())?;
    let rest = line.get(3..).unwrap_or_default();
    let text = rest.get(1..).unwrap_or_default();
    lines.push(text.chars().filter(|c| !c.is_control()).collect());
    if lines.len() > SMTP_REPLY_LINES_MAX {
        return Err(SmtpError::Strange("sends an endless reply".to_owned()));
    }
    Ok((!rest.starts_with('-')).then_some(code))
}

/// The content of DATA without the final dot: lines end with CRLF, and a dot at the beginning of a
/// line is doubled.
fn to_data(message: &[u8]) -> Vec<u8> {
    let mut data = Vec::with_capacity(message.len() + message.len() / 64);
    let message = message.strip_suffix(b"\n").unwrap_or(message);
    for line in message.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.starts_with(b".") {
            data.push(b'.');
        }
        // A bare CR within a line would end it at some servers.
        data.extend(
            line.iter()
                .map(|byte| if *byte == b'\r' { b' ' } else { *byte }),
        );
        data.extend_from_slice(b"\r\n");
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conn_2_no_line_of_a_message_ends_it() {
        for (message, data) in [
            ("a\r\nb\r\n", "a\r\nb\r\n"),
            ("a\n.\nb", "a\r\n..\r\nb\r\n"),
            (".\r\n.x\r\n", "..\r\n..x\r\n"),
            ("a\r.\r\nb\r\n", "a .\r\nb\r\n"),
        ] {
            let found = to_data(message.as_bytes());
            assert_eq!(String::from_utf8(found).unwrap(), data);
        }
    }

    #[test]
    fn conn_2_replies_of_several_lines_have_one_code() {
        let mut lines = Vec::new();
        assert_eq!(add_line(b"250-one", &mut lines), Ok(None));
        assert_eq!(add_line(b"250 two", &mut lines), Ok(Some(250)));
        assert_eq!(lines, ["one", "two"]);
        assert_eq!(add_line(b"354", &mut lines), Ok(Some(354)));
        for wrong in [&b""[..], b"25", b"abc hi", "é250".as_bytes()] {
            assert!(add_line(wrong, &mut lines).is_err());
        }
        let reply = |code| Reply {
            code,
            lines: vec!["x".to_owned()],
        };
        assert!(reply(250).expect(2).is_ok());
        let said = || "x".to_owned();
        let temporary = SmtpError::Temporary {
            code: 451,
            said: said(),
        };
        assert_eq!(reply(451).expect(2), Err(temporary));
        let permanent = SmtpError::Permanent {
            code: 550,
            said: said(),
        };
        assert_eq!(reply(550).expect(2), Err(permanent));
    }
}
