//! The program, and a test daemon at the other end of its socket.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use bytes::BytesMut;
use goondan_protocol::frame::FrameCodec;
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::ipc::IPC_FD_VAR;
use goondan_protocol::secret::SecretValue;
use goondan_protocol::version::Version;
use goondan_replication::log::{LogPage, PutAnswer, PutRequest, ReadAnswer};
use goondan_replication::names::{NodeId, Position};
use goondan_replication::wire::{Hello, LogAnswer, LogCommand, LogRequest, LogResponse, Welcome};
use goondan_tests::wait::{PATIENCE, wait_for, wait_until};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_goondan-replica");

/// Connections of the program to a server that finishes all statements: four for puts and one for
/// reads.
pub(crate) const CONNECTIONS: usize = 5;

type PendingAnswers = Arc<Mutex<HashMap<u64, mpsc::Sender<LogAnswer>>>>;

/// The program, after the handshake.
pub(crate) struct Replica {
    child: Mutex<Child>,
    socket: Mutex<UnixStream>,
    next: AtomicU64,
    waiting: PendingAnswers,
    log: Arc<Mutex<String>>,
}

/// The program and the other end of its socket, before the handshake.
pub(crate) fn spawn() -> (Child, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let child = Command::new(BINARY)
        .env(IPC_FD_VAR, "0")
        .env("GOONDAN_LOG", "debug")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    ours.set_read_timeout(Some(PATIENCE)).unwrap();
    (child, ours)
}

/// Reads a frame; `None` at the end of the stream.
pub(crate) fn frame(socket: &mut UnixStream, read: &mut BytesMut) -> Option<Vec<u8>> {
    loop {
        if let Some(frame) = FrameCodec::new().decode(read).unwrap() {
            return Some(frame.to_vec());
        }
        let mut some = vec![0; 64 * 1024];
        match socket.read(&mut some) {
            Ok(0) | Err(_) => return None,
            Ok(count) => read.extend_from_slice(&some[..count]),
        }
    }
}

/// Writes a frame.
pub(crate) fn say(socket: &mut UnixStream, body: &[u8]) {
    let mut frame = BytesMut::new();
    FrameCodec::new().encode(body, &mut frame).unwrap();
    // The missing answers reveal a program that has exited.
    socket.write_all(&frame).ok();
}

/// The welcome with the server's URL.
pub(crate) fn welcome(url: &str) -> Welcome {
    Welcome {
        version: Version::current(),
        server: SecretValue::new(url.to_owned()),
        node: NodeId::new("a").unwrap(),
    }
}

impl Replica {
    /// Starts the program and sends it the server's URL.
    pub(crate) fn start(url: &str) -> Self {
        let (mut child, mut socket) = spawn();
        let mut read = BytesMut::new();
        Hello::from_frame(&frame(&mut socket, &mut read).unwrap()).unwrap();
        say(&mut socket, &welcome(url).to_frame().unwrap());
        let log = Arc::new(Mutex::new(String::new()));
        let (lines, kept) = (child.stdout.take().unwrap(), Arc::clone(&log));
        thread::spawn(move || {
            for line in BufReader::new(lines).lines().map_while(Result::ok) {
                kept.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        let waiting = PendingAnswers::default();
        let (mut answers, those) = (socket.try_clone().unwrap(), Arc::clone(&waiting));
        answers.set_read_timeout(None).unwrap();
        thread::spawn(move || {
            while let Some(body) = frame(&mut answers, &mut read) {
                let LogResponse { id, answer } = LogResponse::from_frame(&body).unwrap();
                let asked = those.lock().unwrap().remove(&id).unwrap();
                // The requester may be gone.
                asked.send(answer).ok();
            }
            those.lock().unwrap().clear();
        });
        Self {
            child: Mutex::new(child),
            socket: Mutex::new(socket),
            next: AtomicU64::new(1),
            waiting,
            log,
        }
    }

    /// Starts the program and waits until the server responds.
    pub(crate) fn ready(url: &str) -> Self {
        let replica = Self::start(url);
        replica.wait_for_server();
        replica
    }

    /// Waits until all its connections have been ready.
    pub(crate) fn wait_for_server(&self) {
        wait_until("the connections are ready", || {
            let log = self.log();
            let ready = log.lines().filter(|line| line.contains("connection ready"));
            ready.count() >= CONNECTIONS
        });
    }

    /// Sends a request; the answer arrives on the channel.
    pub(crate) fn begin(&self, ask: LogCommand) -> mpsc::Receiver<LogAnswer> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = mpsc::channel();
        self.waiting.lock().unwrap().insert(id, sender);
        let body = LogRequest { id, ask }.to_frame().unwrap();
        say(&mut self.socket.lock().unwrap(), &body);
        answer
    }

    /// Sends a request and waits for the answer.
    pub(crate) fn ask(&self, ask: LogCommand) -> LogAnswer {
        self.begin(ask).recv_timeout(PATIENCE).unwrap()
    }

    pub(crate) fn put(&self, put: &PutRequest) -> PutAnswer {
        match self.ask(LogCommand::Put(put.clone())) {
            LogAnswer::Put(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    /// Puts a record, retrying until the server is available.
    pub(crate) fn put_when_there(&self, put: &PutRequest) -> PutAnswer {
        wait_for("the record is offered", || {
            Some(self.put(put)).filter(|answer| *answer != PutAnswer::Unavailable)
        })
    }

    pub(crate) fn read(&self, workspace: &WorkspaceId, from: Position) -> ReadAnswer {
        let workspace = workspace.clone();
        match self.ask(LogCommand::Read { workspace, from }) {
            LogAnswer::Read(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    /// Reads, retrying until there is an answer.
    pub(crate) fn page(&self, workspace: &WorkspaceId, from: Position) -> LogPage {
        wait_for("the log is read", || match self.read(workspace, from) {
            ReadAnswer::Page(page) => Some(page),
            ReadAnswer::Unavailable => None,
        })
    }

    /// All records of a log that begins with its first record.
    pub(crate) fn all(&self, workspace: &WorkspaceId) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            let from = Position(all.len() as u64 + 1);
            let page = self.page(workspace, from);
            if page.records.is_empty() {
                return all;
            }
            all.extend(page.records);
        }
    }

    /// The program's log output.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Closes the socket and waits for the exit.
    pub(crate) fn close(&self) -> ExitStatus {
        let socket = self.socket.lock().unwrap();
        socket.shutdown(std::net::Shutdown::Both).unwrap();
        self.child.lock().unwrap().wait().unwrap()
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let mut child = self.child.lock().unwrap();
        child.kill().ok();
        child.wait().ok();
    }
}
