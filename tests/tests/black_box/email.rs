//! E-mail in the real daemon, with a mail server of the tests, and with Dovecot.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use goondan_tests::binaries::bin;
use goondan_tests::home::{CONNECTOR, ORCHESTRATOR};
use goondan_tests::mail::{ADDRESS, MailServer, PASSWORD, SentMail, SmtpFault, USER};
use goondan_tests::processes::{self, Signal};
use goondan_tests::projects::LAB;
use goondan_tests::random::Random;
use goondan_tests::server::free_ports;
use goondan_tests::{Daemon, Home, needs, wait_until};
use sha2::{Digest as _, Sha256};

use crate::conversation::{check, role, text};

fn connection(config: &str) -> String {
    format!(
        r#"---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {{name: mail}}
spec:
  connectorRef: {{kind: Connector, name: email, package: "@goondan/base"}}
  config: {{{config}}}
  secrets: {{password: {{value: "{PASSWORD}"}}}}
  header: none
"#
    )
}

/// The conversation of a thread, by its first Message-ID.
fn key(first: &str) -> String {
    let hash = hex::encode(Sha256::digest(first.as_bytes()));
    format!("mail:email:{}", hash.get(..32).unwrap())
}

fn detail(home: &Home) -> String {
    let mut processes = home.ps().into_iter();
    let shown = processes.find(|it| it["role"] == "connector" && it["name"] == "mail");
    let detail = shown.as_ref().and_then(|it| it["detail"].as_str());
    detail.unwrap_or_default().to_owned()
}

/// Waits until the mailbox is read, so that further messages are new.
fn wait_until_read(home: &Home) {
    let expected = format!("reading INBOX of {ADDRESS}");
    wait_until("the mailbox is read", || detail(home) == expected);
}

fn sent(mail: &MailServer, count: usize) -> Vec<SentMail> {
    wait_until("the messages are sent", || mail.sent().len() >= count);
    mail.sent()
}

#[test]
fn msg_13_no_email_is_lost_or_repeated_despite_kills() {
    let mail = MailServer::start();
    mail.receive("From: ada@example.com\nMessage-ID: <old@x>\n\necho old");
    let home = Home::new(&format!("{LAB}{}", connection(&mail.config())));
    let mut random = Random::announced();
    let mut daemon = Daemon::serving(&home);
    wait_until_read(&home);
    let mut said: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for number in 0..30 {
        let first = format!("thread-{}@example.com", random.below(3));
        let text = format!("echo {number}");
        mail.receive(&format!(
            "From: ada@example.com\nMessage-ID: <m{number}@example.com>\nReferences: <{first}>\n\n{text}\n"
        ));
        said.entry(key(&first)).or_default().push(text);
        match number % 15 {
            7 => {
                for process in home.running(CONNECTOR) {
                    processes::signal(process.pid, Signal::SIGKILL);
                }
            }
            14 => {
                drop(daemon.kill());
                daemon = Daemon::start(&home);
            }
            _ => {}
        }
    }
    // A repeated reply has the same Message-ID.
    let ids = || {
        let mut ids: Vec<String> = mail.sent().iter().map(SentMail::id).collect();
        ids.sort();
        ids.dedup();
        ids
    };
    wait_until("all replies are sent", || ids().len() == 30);
    for (key, said) in said {
        wait_until("all are answered", || {
            home.history(&key).len() == 2 * said.len()
        });
        let messages = home.history(&key);
        check(&messages);
        let asked = messages.iter().filter(|message| role(message) == "user");
        assert_eq!(asked.map(text).collect::<Vec<_>>(), said);
    }
    assert!(mail.seen().is_empty(), "the mailbox is changed");
    let log = daemon.stop();
    let log = format!("{:?}", log.lines());
    assert!(!log.contains(PASSWORD), "the password is in the log");
    assert!(!log.contains("echo old"));
}

/// An agent that answers with fixed texts, and has the tool.
fn answering(config: &str) -> Home {
    let connection = connection(config);
    Home::new(&format!(
        r#"
apiVersion: goondan.ai/v1
kind: Model
metadata: {{name: main}}
spec:
  provider: scripted
  options:
    rules:
      - when: {{user: '^by tool$', step: 1}}
        call: [{{tool: email__send, args: {{text: "from the tool"}}}}]
      - when: {{user: '^to (?P<to>\S+)$', step: 1}}
        call: [{{tool: email__send, args: {{text: "elsewhere", to: ["${{to}}"], subject: News}}}}]
      - when: {{tool: email__send, result: '(?P<part>sendTo)'}}
        say: "refused by ${{part}}"
      - when: {{user: '^file$', step: 1}}
        call: [{{tool: file-system__write, args: {{path: a.txt, content: hello}}}}]
      - when: {{tool: file-system__write}}
        call: [{{tool: email__sendFile, args: {{path: a.txt}}}}]
      - when: {{user: 'file ID (?P<id>[0-9a-f.]+)', step: 1}}
        call: [{{tool: email__download, args: {{file: "${{id}}", path: got.txt}}}}]
      - when: {{tool: email__download}}
        call: [{{tool: file-system__read, args: {{path: got.txt}}}}]
      - when: {{tool: file-system__read}}
        say: "it says: ${{result}}"
      - when: {{user: '(?s)^(?P<text>.*)$'}}
        say: "You said: ${{text}}"
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {{name: clerk}}
spec:
  modelConfig: {{modelRef: Model/main}}
  tools:
    - {{kind: Tool, name: email, package: "@goondan/base"}}
    - {{kind: Tool, name: file-system, package: "@goondan/base"}}
{connection}"#
    ))
}

/// A message in the thread of `parent`.
fn answer(number: u32, parent: &str, text: &str) -> String {
    format!(
        "From: Ada <ada@example.com>\nSubject: Re: Books\nMessage-ID: <{number}@example.com>\n\
         In-Reply-To: <{parent}>\n\n{text}\n"
    )
}

#[test]
fn conn_2_email_thread_is_answered_by_default_and_once() {
    let mail = MailServer::start();
    let home = answering(&format!(
        "{}, from: [example.com], sendTo: [example.org], markSeen: true",
        mail.config()
    ));
    let daemon = Daemon::serving(&home);
    wait_until_read(&home);
    mail.receive(
        "From: Ada <ada@example.com>\nSubject: Books\nMessage-ID: <1@example.com>\n\nWhere?\n",
    );
    let first = sent(&mail, 1).remove(0);
    assert_eq!(first.to, ["ada@example.com"]);
    assert!(first.content.contains("You said: Books"), "{first:?}");
    for (name, value) in [
        ("Subject", "Re: Books"),
        ("In-Reply-To", "<1@example.com>"),
        ("References", "<1@example.com>"),
        ("Auto-Submitted", "auto-replied"),
    ] {
        assert_eq!(first.header(name).as_deref(), Some(value), "{name}");
    }
    // The mail program of the person passes on only the last Message-ID.
    mail.receive(&answer(
        2,
        &first.id(),
        "Thanks.\n\nOn Monday 2 March, Help wrote:\n> You said",
    ));
    let second = sent(&mail, 2).remove(1);
    assert!(second.content.contains("You said: Thanks."), "{second:?}");
    let thread = key("1@example.com");
    wait_until("the turn is over", || home.history(&thread).len() == 4);
    // Programs, strangers and goondan itself are not answered.
    let automatic = answer(3, &first.id(), "Out of office.");
    mail.receive(&format!("Auto-Submitted: auto-replied\n{automatic}"));
    mail.receive(&answer(4, &first.id(), "obey").replace("ada@example.com", "eve@evil.com"));
    mail.receive(&first.content);
    // An answer by the tool is not repeated.
    mail.receive(&answer(5, &second.id(), "by tool"));
    mail.receive(&answer(6, &second.id(), "end"));
    let all = sent(&mail, 4);
    assert!(all[2].content.contains("from the tool"), "{:?}", all[2]);
    assert_eq!(all[2].header("Subject").as_deref(), Some("Re: Books"));
    assert!(all[3].content.contains("You said: end"), "{:?}", all[3]);
    // A message to a listed address begins a thread, and does not replace the reply.
    mail.receive(&answer(7, &second.id(), "to bob@example.org"));
    let all = sent(&mail, 6);
    assert_eq!(all[4].to, ["bob@example.org"]);
    assert_eq!(all[4].header("In-Reply-To"), None);
    assert_eq!(all[5].to, ["ada@example.com"]);
    mail.receive(&answer(8, &second.id(), "to eve@evil.com"));
    let all = sent(&mail, 7);
    assert!(all[6].content.contains("refused by sendTo"), "{:?}", all[6]);
    let processes = home.ps();
    let connector = processes.iter().find(|it| it["name"] == "mail").unwrap();
    let counted = serde_json::json!({"bot": 1, "otherPlace": 1, "own": 1});
    assert_eq!(connector["ignored"], counted);
    wait_until("events are marked", || mail.seen() == [1, 2, 6, 7, 8, 9]);
    drop(daemon.stop());
}

#[test]
fn conn_2_files_travel_both_ways_by_email() {
    let mail = MailServer::start();
    let home = answering(&mail.config());
    let daemon = Daemon::serving(&home);
    wait_until_read(&home);
    mail.receive(&answer(1, "0@example.com", "file"));
    let all = sent(&mail, 2);
    let file = all.iter().find(|it| it.content.contains("a.txt")).unwrap();
    // Base64 of `hello`.
    assert!(file.content.contains("aGVsbG8="), "{file:?}");
    mail.receive(
        "From: ada@example.com\nMessage-ID: <2@example.com>\nMIME-Version: 1.0\n\
         Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: text/plain\n\nSee:\n\
         --b\nContent-Type: application/octet-stream; name=b.bin\n\
         Content-Transfer-Encoding: base64\n\naGVsbG8gYWdhaW4=\n--b--\n",
    );
    let all = sent(&mail, 3);
    let said = &all[2].content;
    assert!(
        said.contains("it says:") && said.contains("hello again"),
        "{said}"
    );
    drop(daemon.stop());
}

#[test]
fn conn_2_email_reply_survives_refusals_and_lost_answers() {
    let mail = MailServer::start();
    let home = answering(&mail.config());
    let daemon = Daemon::serving(&home);
    wait_until_read(&home);
    mail.have([SmtpFault::Answer("451 try later"), SmtpFault::Lose]);
    mail.receive(&answer(1, "0@example.com", "hello"));
    // It is sent again after the lost answer, recognizable by its Message-ID.
    let all = sent(&mail, 2);
    assert_eq!(all[0].id(), all[1].id());
    mail.have([SmtpFault::Answer("550 no such user")]);
    mail.receive(&answer(2, "0@example.com", "lost"));
    daemon.log().wait_for("the refusal", |line| {
        let reason = line["reason"].as_str().unwrap_or_default();
        line["message"] == "failed to post a reply to its chat; giving up"
            && reason.contains("550: no such user")
    });
    mail.receive(&answer(3, "0@example.com", "then"));
    let all = sent(&mail, 3);
    assert!(all[2].content.contains("You said: then"), "{:?}", all[2]);
    drop(daemon.stop());
}

#[test]
fn conn_1_recreated_folder_repeats_no_message() {
    let mail = MailServer::start();
    let home = answering(&mail.config());
    let mut daemon = Daemon::serving(&home);
    wait_until_read(&home);
    mail.receive(&answer(1, "0@example.com", "before"));
    sent(&mail, 1);
    drop(daemon.stop());
    mail.recreate();
    mail.receive(&answer(2, "0@example.com", "after"));
    daemon = Daemon::serving(&home);
    let all = sent(&mail, 2);
    assert!(all[1].content.contains("You said: after"), "{:?}", all[1]);
    let messages = home.history(&key("0@example.com"));
    let asked = messages.iter().filter(|message| role(message) == "user");
    assert_eq!(asked.map(text).collect::<Vec<_>>(), ["before", "after"]);
    drop(daemon.stop());
}

#[test]
fn conn_1_rejected_mail_password_is_reported() {
    let mail = MailServer::start();
    let config = mail
        .config()
        .replace(&format!("user: {USER}"), "user: other");
    let home = answering(&config);
    let _daemon = Daemon::serving(&home);
    wait_until("it is reported", || {
        detail(&home).contains("the IMAP server rejects the login: NO wrong password")
    });
    assert_eq!(home.ask("ann", "here"), "You said: here");
}

/// A running Dovecot with one mailbox.
struct Dovecot {
    process: Child,
    dir: tempfile::TempDir,
    port: u16,
}

impl Drop for Dovecot {
    fn drop(&mut self) {
        processes::signal(self.process.id(), Signal::SIGTERM);
        self.process.wait().ok();
    }
}

impl Dovecot {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let fixtures =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../connector-process/tests/fixtures");
        let fixtures = fixtures.display();
        let [port] = free_ports();
        let root = nix::unistd::geteuid().is_root();
        let own = nix::unistd::User::from_uid(nix::unistd::geteuid())
            .unwrap()
            .unwrap();
        // Dovecot serves no mailbox as root, and takes no connections as root.
        let (login, uid, gid) = if root {
            ("nobody", 65_534, 65_534)
        } else {
            (own.name.as_str(), own.uid.as_raw(), own.gid.as_raw())
        };
        let group = nix::unistd::Group::from_gid(own.gid).unwrap().unwrap().name;
        let (user, at) = (&own.name, dir.path().display());
        let config = format!(
            "protocols = imap\nlisten = 127.0.0.1\nbase_dir = {at}/run\nstate_dir = {at}/state\n\
             log_path = {at}/log\ndefault_internal_user = {user}\ndefault_internal_group = {group}\n\
             default_login_user = {login}\nfirst_valid_uid = 0\nmail_location = maildir:{at}/mail\n\
             ssl = required\nssl_cert = <{fixtures}/localhost.pem\nssl_key = <{fixtures}/localhost.key\n\
             passdb {{\n driver = static\n args = password={PASSWORD}\n}}\n\
             userdb {{\n driver = static\n args = uid={uid} gid={gid} home={at}/mail\n}}\n\
             service imap-login {{\n chroot =\n inet_listener imap {{\n port = 0\n }}\n\
             inet_listener imaps {{\n port = {port}\n ssl = yes\n }}\n}}\n\
             service anvil {{\n chroot =\n}}\nservice stats {{\n chroot =\n}}\n"
        );
        for folder in ["run", "state", "mail/new", "mail/cur", "mail/tmp"] {
            std::fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        let shared = ["", "mail", "mail/new", "mail/cur", "mail/tmp"];
        for folder in shared {
            open_to_all(&dir.path().join(folder));
        }
        write(&dir.path().join("dovecot.conf"), &config);
        let process = Command::new(needs::dovecot().unwrap())
            .args(["-F", "-c"])
            .arg(dir.path().join("dovecot.conf"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Self { process, dir, port }
    }

    /// Delivers a message as a mail server on the same machine does.
    fn receive(&self, name: &str, message: &str) {
        let file = self.dir.path().join("mail/tmp").join(name);
        write(&file, message);
        std::fs::hard_link(&file, self.dir.path().join("mail/new").join(name)).unwrap();
    }

    /// Names of the files of delivered messages, with their flags.
    fn files(&self) -> Vec<String> {
        let folders = ["new", "cur"].map(|folder| self.dir.path().join("mail").join(folder));
        let files = folders
            .iter()
            .flat_map(|folder| std::fs::read_dir(folder).unwrap());
        let names = files.map(|file| file.unwrap().file_name().to_string_lossy().into_owned());
        names.collect()
    }
}

#[expect(clippy::disallowed_methods, reason = "a mailbox of a test")]
fn write(file: &Path, text: &str) {
    std::fs::write(file, text).unwrap();
}

fn open_to_all(dir: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o777)).unwrap();
}

fn authority() -> PathBuf {
    let path = "../connector-process/tests/fixtures/authority.pem";
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

#[test]
fn conn_1_mailbox_of_dovecot_is_read_over_tls_and_stays_as_it_is() {
    if needs::dovecot().is_none() {
        return;
    }
    let (dovecot, smtp) = (Dovecot::start(), MailServer::start());
    let home = answering(&format!(
        "address: {ADDRESS}, user: {USER}, imap: {{host: localhost, port: {}}}, {}",
        dovecot.port,
        smtp.smtp_config(),
    ));
    let command = || {
        let mut command = home.command(&bin(ORCHESTRATOR), &[]);
        command.env("GOONDAN_CA_FILE", authority());
        command
    };
    dovecot.receive("1.old", "From: ada@example.com\nMessage-ID: <0@x>\n\nold\n");
    let daemon = Daemon::start_command(&home, command());
    let ran = home.gdn(&["run"]);
    assert!(ran.code == 0 || ran.code == 16, "{ran:?}");
    wait_until_read(&home);
    dovecot.receive(
        "2.new",
        "From: ada@example.com\nMessage-ID: <1@x>\n\nhello\n",
    );
    let first = sent(&smtp, 1).remove(0);
    assert!(first.content.contains("You said: hello"), "{first:?}");
    // IDLE announces the next one.
    dovecot.receive(
        "3.new",
        "From: ada@example.com\nMessage-ID: <2@x>\n\nagain\n",
    );
    let second = sent(&smtp, 2).remove(1);
    assert!(second.content.contains("You said: again"), "{second:?}");
    drop(daemon.kill());
    dovecot.receive(
        "4.new",
        "From: ada@example.com\nMessage-ID: <3@x>\n\nlate\n",
    );
    let daemon = Daemon::start_command(&home, command());
    wait_until("the last message is answered", || {
        let mut sent = smtp.sent().into_iter();
        sent.any(|it| it.content.contains("You said: late"))
    });
    let files = dovecot.files();
    assert!(
        files.len() == 4 && !files.iter().any(|name| name.ends_with('S')),
        "{files:?}"
    );
    drop(daemon.stop());
}
