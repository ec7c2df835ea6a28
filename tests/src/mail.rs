//! A mail server for tests: a mailbox by IMAP, and outgoing messages by SMTP.

use std::collections::{BTreeSet, VecDeque};
use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// User that the server accepts.
pub const USER: &str = "help";

/// Password of the user.
pub const PASSWORD: &str = "s3cret-word";

/// Address of the mailbox.
pub const ADDRESS: &str = "help@example.org";

/// Interval of checks for new messages while a client waits.
const IDLE: Duration = Duration::from_millis(20);

/// A message that the client sent.
#[derive(Debug, Clone)]
pub struct SentMail {
    pub to: Vec<String>,
    pub content: String,
}

impl SentMail {
    /// The first header with this name, in one line.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<String> {
        let head = self.content.split("\n\n").next().unwrap_or_default();
        let head = head.replace("\n ", " ").replace("\n\t", " ");
        head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found
                .eq_ignore_ascii_case(name)
                .then(|| value.trim().to_owned())
        })
    }

    /// The Message-ID without brackets.
    ///
    /// # Panics
    ///
    /// If it has none.
    #[must_use]
    pub fn id(&self) -> String {
        let id = self.header("Message-ID").unwrap();
        id.trim_matches(['<', '>']).to_owned()
    }
}

#[derive(Debug, Clone, Copy)]
pub enum SmtpFault {
    /// The recipient gets this answer.
    Answer(&'static str),
    /// The message is taken, and the connection breaks before the answer.
    Lose,
}

#[derive(Debug, Default)]
struct State {
    uid_validity: u32,
    /// Messages by UID.
    messages: Vec<(u32, String)>,
    seen: BTreeSet<u32>,
    sent: Vec<SentMail>,
    faults: VecDeque<SmtpFault>,
}

/// The server. It ends with the test's process.
#[derive(Debug, Clone)]
pub struct MailServer {
    imap: SocketAddr,
    smtp: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl MailServer {
    #[must_use]
    pub fn start() -> Self {
        let imap = TcpListener::bind("127.0.0.1:0").unwrap();
        let smtp = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self {
            imap: imap.local_addr().unwrap(),
            smtp: smtp.local_addr().unwrap(),
            state: Arc::new(Mutex::new(State {
                uid_validity: 1,
                ..State::default()
            })),
        };
        let (of_imap, of_smtp) = (server.clone(), server.clone());
        serve(imap, move |stream| of_imap.serve_imap(stream));
        serve(smtp, move |stream| of_smtp.serve_smtp(stream));
        server
    }

    /// Fields of the Connection's `config` for both servers.
    #[must_use]
    pub fn config(&self) -> String {
        format!(
            "address: {ADDRESS}, user: {USER}, {}, {}",
            self.imap_config(),
            self.smtp_config()
        )
    }

    fn imap_config(&self) -> String {
        let port = self.imap.port();
        format!("imap: {{host: 127.0.0.1, port: {port}, security: none}}")
    }

    /// The field `smtp` of the Connection's `config`.
    #[must_use]
    pub fn smtp_config(&self) -> String {
        let port = self.smtp.port();
        format!("smtp: {{host: 127.0.0.1, port: {port}, security: none}}")
    }

    /// Delivers a message to the mailbox.
    pub fn receive(&self, message: &str) {
        let mut state = self.state.lock().unwrap();
        let uid = state.messages.last().map_or(1, |(uid, _)| uid + 1);
        state.messages.push((uid, message.replace('\n', "\r\n")));
    }

    /// Creates the folder again: all messages have new UIDs.
    pub fn recreate(&self) {
        let mut state = self.state.lock().unwrap();
        state.uid_validity += 1;
        for (uid, _) in &mut state.messages {
            *uid += 1_000;
        }
    }

    /// UIDs of messages that are marked as read.
    #[must_use]
    pub fn seen(&self) -> Vec<u32> {
        self.state.lock().unwrap().seen.iter().copied().collect()
    }

    /// Sets the faults of the next outgoing messages.
    pub fn have(&self, faults: impl IntoIterator<Item = SmtpFault>) {
        self.state.lock().unwrap().faults.extend(faults);
    }

    /// Outgoing messages, in order.
    #[must_use]
    pub fn sent(&self) -> Vec<SentMail> {
        self.state.lock().unwrap().sent.clone()
    }

    fn serve_imap(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut out = stream.try_clone()?;
        let mut lines = BufReader::new(stream);
        out.write_all(b"* OK double ready\r\n")?;
        let mut announced = 0;
        while let Some(line) = next_line(&mut lines)? {
            let (tag, command) = line.split_once(' ').unwrap_or_default();
            let words: Vec<&str> = command.split(' ').collect();
            let mut answer = String::new();
            match words.as_slice() {
                ["CAPABILITY"] => answer.push_str("* CAPABILITY IMAP4rev1 IDLE AUTH=PLAIN\r\n"),
                ["AUTHENTICATE", "PLAIN"] => {
                    out.write_all(b"+ \r\n")?;
                    let given = next_line(&mut lines)?.unwrap_or_default();
                    if !is_login(&given) {
                        out.write_all(format!("{tag} NO wrong password\r\n").as_bytes())?;
                        continue;
                    }
                }
                ["EXAMINE" | "SELECT", _] => {
                    let state = self.state.lock().unwrap();
                    announced = state.messages.len();
                    let next = state.messages.last().map_or(1, |(uid, _)| uid + 1);
                    answer = format!(
                        "* {announced} EXISTS\r\n* OK [UIDVALIDITY {}] valid\r\n* OK [UIDNEXT {next}] next\r\n",
                        state.uid_validity
                    );
                }
                ["UID", "SEARCH", criteria @ ..] => {
                    let range = criteria.get(1).and_then(|range| range.strip_suffix(":*"));
                    let first: u32 = range.map_or(0, |first| first.parse().unwrap());
                    let state = self.state.lock().unwrap();
                    let uids = state.messages.iter().map(|(uid, _)| *uid);
                    // `*` is the last message in any case.
                    let last = uids.clone().next_back();
                    let found = uids.filter(|uid| *uid >= first || Some(*uid) == last);
                    let found: Vec<String> = found.map(|uid| uid.to_string()).collect();
                    answer = format!("* SEARCH {}\r\n", found.join(" "));
                }
                ["UID", "FETCH", uid, "(UID", part] => {
                    let uid: u32 = uid.parse().unwrap();
                    let state = self.state.lock().unwrap();
                    let found = state.messages.iter().find(|(it, _)| *it == uid);
                    if let Some((_, message)) = found {
                        let bytes = message.len();
                        answer = if *part == "RFC822.SIZE)" {
                            format!("* 1 FETCH (UID {uid} RFC822.SIZE {bytes})\r\n")
                        } else {
                            format!("* 1 FETCH (UID {uid} BODY[] {{{bytes}}}\r\n{message})\r\n")
                        };
                    }
                }
                ["UID", "STORE", uid, ..] => {
                    let uid = uid.parse().unwrap();
                    self.state.lock().unwrap().seen.insert(uid);
                }
                ["IDLE"] => {
                    out.write_all(b"+ idling\r\n")?;
                    self.idle(&mut lines, &mut out, &mut announced)?;
                }
                _ => {}
            }
            answer.push_str(&format!("{tag} OK done\r\n"));
            out.write_all(answer.as_bytes())?;
        }
        Ok(())
    }

    /// Announces new messages until the client ends that.
    fn idle(
        &self,
        lines: &mut BufReader<TcpStream>,
        out: &mut TcpStream,
        announced: &mut usize,
    ) -> std::io::Result<()> {
        lines.get_ref().set_read_timeout(Some(IDLE))?;
        let mut line = String::new();
        loop {
            let count = self.state.lock().unwrap().messages.len();
            if count > *announced {
                *announced = count;
                out.write_all(format!("* {count} EXISTS\r\n").as_bytes())?;
            }
            match lines.read_line(&mut line) {
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                read => {
                    read?;
                    return lines.get_ref().set_read_timeout(None);
                }
            }
        }
    }

    fn serve_smtp(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut out = stream.try_clone()?;
        let mut lines = BufReader::new(stream);
        out.write_all(b"220 double\r\n")?;
        let mut to = Vec::new();
        while let Some(line) = next_line(&mut lines)? {
            let word = line.split([' ', ':']).next().unwrap_or_default();
            let answer = match word {
                "EHLO" => "250-double\r\n250-SIZE 40000000\r\n250 AUTH LOGIN PLAIN",
                "AUTH" if line.strip_prefix("AUTH PLAIN ").is_some_and(is_login) => "235 welcome",
                "AUTH" => "535 wrong password",
                "RCPT" => {
                    let fault = self.state.lock().unwrap().faults.front().copied();
                    if let Some(SmtpFault::Answer(answer)) = fault {
                        self.state.lock().unwrap().faults.pop_front();
                        answer
                    } else {
                        let address = line.trim_start_matches("RCPT TO:<");
                        to.push(address.trim_end_matches('>').to_owned());
                        "250 ok"
                    }
                }
                "DATA" => {
                    out.write_all(b"354 go on\r\n")?;
                    let mut content = String::new();
                    while let Some(line) = next_line(&mut lines)?.filter(|line| line != ".") {
                        content.push_str(line.strip_prefix('.').unwrap_or(&line));
                        content.push('\n');
                    }
                    let mut state = self.state.lock().unwrap();
                    let to = std::mem::take(&mut to);
                    state.sent.push(SentMail { to, content });
                    if matches!(state.faults.pop_front(), Some(SmtpFault::Lose)) {
                        return Ok(());
                    }
                    "250 taken"
                }
                "QUIT" => "221 bye",
                _ => "250 ok",
            };
            out.write_all(format!("{answer}\r\n").as_bytes())?;
        }
        Ok(())
    }
}

/// Serves each connection in a thread until the client leaves.
fn serve(
    listener: TcpListener,
    session: impl Fn(TcpStream) -> std::io::Result<()> + Clone + Send + 'static,
) {
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let session = session.clone();
            // A killed client breaks its connection.
            std::thread::spawn(move || session(stream).ok());
        }
    });
}

fn next_line(lines: &mut BufReader<TcpStream>) -> std::io::Result<Option<String>> {
    let mut line = String::new();
    let read = lines.read_line(&mut line)?;
    Ok((read > 0).then(|| line.trim_end_matches(['\r', '\n']).to_owned()))
}

/// True for the response of the mechanism PLAIN with the user's password.
fn is_login(response: &str) -> bool {
    let expected = STANDARD.encode(format!("\0{USER}\0{PASSWORD}"));
    response == expected
}
