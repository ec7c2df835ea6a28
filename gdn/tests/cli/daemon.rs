//! A fake daemon: it listens on the real socket, parses each request like the real daemon, and replies as the test
//! specifies.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use bytes::BytesMut;
use goondan_protocol::control::{
    Call, ConnectResult, ControlError, LOG_LINE, Notification, PROCESS_CHANGE, RpcRequest,
    RpcResponse, TURN_PIECE, TURN_PROGRESS, WORKSPACE_CHANGE,
};
use goondan_protocol::frame::FrameCodec;
use goondan_protocol::version::Version;
use serde_json::{Value, json};

/// Reaction of the daemon to a request.
pub(crate) enum Act {
    /// Sends a `turn.progress` with this event.
    Progress(Value),
    /// Sends a part of a model's reply.
    Piece(Value),
    /// Sends a `logs.line` with this line.
    Line(&'static str),
    /// Sends this `process.change`, under the request's id.
    Processes(Value),
    /// Sends this `workspace.change`, under the request's id.
    Change(Value),
    Answer(Value),
    Refuse(ControlError),
    /// Sends this error without a request's id and closes the connection.
    Replace(ControlError),
    /// Sends nothing and keeps the connection open.
    Silence,
    /// Closes the connection and removes the socket.
    Die,
}

pub(crate) fn answer(value: Value) -> Vec<Act> {
    vec![Act::Answer(value)]
}

type Handler = dyn FnMut(&Call) -> Vec<Act> + Send;

/// A running fake daemon. Stopped on drop.
pub(crate) struct Daemon {
    calls: Arc<Mutex<Vec<Call>>>,
    socket: std::path::PathBuf,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Daemon {
    /// Listens on the socket of `state_root`. Replies to `daemon.connect` with our own version, and to other requests
    /// with `handler`.
    pub(crate) fn start(
        state_root: &Path,
        handler: impl FnMut(&Call) -> Vec<Act> + Send + 'static,
    ) -> Self {
        let run = state_root.join("run");
        fs::create_dir_all(&run).unwrap();
        let socket = run.join("orchestrator.sock");
        drop(fs::remove_file(&socket));
        let listener = UnixListener::bind(&socket).unwrap();
        let calls = Arc::new(Mutex::new(Vec::new()));
        let stopped = Arc::new(AtomicBool::new(false));
        let serving = FakeDaemon {
            socket: socket.clone(),
            state_root: state_root.to_owned(),
            calls: Arc::clone(&calls),
            stopped: Arc::clone(&stopped),
            handler: Mutex::new(Box::new(handler)),
        };
        let thread = std::thread::spawn(move || serving.serve(&listener));
        Self {
            calls,
            socket,
            stopped,
            thread: Some(thread),
        }
    }

    /// Starts a daemon with a real process that exits on a stop request. Also returns its process id.
    pub(crate) fn mortal(
        state_root: &Path,
        mut handler: impl FnMut(&Call) -> Vec<Act> + Send + 'static,
    ) -> (Self, u32) {
        let mut process = Command::new("sleep")
            .arg("600")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let pid = process.id();
        let root = state_root.to_owned();
        let daemon = Self::start(state_root, move |call| match call {
            Call::Connect(_) => answer(json!({
                "version": Version::current(),
                "pid": pid,
                "stateRoot": root,
            })),
            Call::Stop(_) => {
                process.kill().unwrap();
                process.wait().unwrap();
                vec![Act::Answer(json!({})), Act::Die]
            }
            _ => handler(call),
        });
        (daemon, pid)
    }

    /// Waits until the daemon has executed [`Act::Die`].
    pub(crate) fn wait_for_death(&mut self) {
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }

    /// Requests received, without `daemon.connect` and `workspace.list`.
    pub(crate) fn calls(&self) -> Vec<Call> {
        let calls = self.calls.lock().unwrap();
        calls
            .iter()
            .filter(|call| !matches!(call, Call::Connect(_) | Call::ListWorkspaces(_)))
            .cloned()
            .collect()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // Wakes the accept call; if this fails, the listener is already closed.
            drop(UnixStream::connect(&self.socket));
            let served = thread.join();
            assert!(served.is_ok() || std::thread::panicking());
        }
    }
}

struct FakeDaemon {
    socket: std::path::PathBuf,
    state_root: std::path::PathBuf,
    calls: Arc<Mutex<Vec<Call>>>,
    stopped: Arc<AtomicBool>,
    handler: Mutex<Box<Handler>>,
}

impl FakeDaemon {
    /// Serves connections concurrently: `gdn run` watches on one while it asks on another.
    fn serve(&self, listener: &UnixListener) {
        std::thread::scope(|scope| {
            for stream in listener.incoming() {
                if self.stopped.load(Ordering::SeqCst) {
                    return;
                }
                let stream = stream.unwrap();
                scope.spawn(move || self.connection(stream));
            }
        });
    }

    /// Serves one connection until the client closes it.
    fn connection(&self, mut stream: UnixStream) {
        let codec = FrameCodec::new();
        let mut buffer = BytesMut::new();
        let mut chunk = [0; 4096];
        loop {
            while let Some(frame) = codec.decode(&mut buffer).unwrap() {
                let request: RpcRequest = serde_json::from_slice(&frame).unwrap();
                self.calls.lock().unwrap().push(request.call.clone());
                for act in self.acts(&request.call) {
                    let message = match act {
                        Act::Progress(event) => notification(
                            TURN_PROGRESS,
                            &json!({ "requestId": request.id, "event": event }),
                        ),
                        Act::Piece(piece) => {
                            let place = json!({"turnId": "t", "stepId": "t.1"});
                            let params =
                                json!({"requestId": request.id, "place": place, "piece": piece});
                            notification(TURN_PIECE, &params)
                        }
                        Act::Line(line) => {
                            let line: Value = serde_json::from_str(line).unwrap();
                            notification(
                                LOG_LINE,
                                &json!({ "requestId": request.id, "line": line }),
                            )
                        }
                        Act::Processes(mut change) => {
                            change["requestId"] = json!(request.id);
                            notification(PROCESS_CHANGE, &change)
                        }
                        Act::Change(mut change) => {
                            change["requestId"] = json!(request.id);
                            notification(WORKSPACE_CHANGE, &change)
                        }
                        Act::Answer(value) => response(Some(request.id), Ok(value)),
                        Act::Refuse(error) => response(Some(request.id), Err(error)),
                        Act::Replace(error) => {
                            write(&codec, &mut stream, &response(None, Err(error)));
                            return;
                        }
                        Act::Silence => continue,
                        Act::Die => {
                            self.stopped.store(true, Ordering::SeqCst);
                            // Wakes the accept call.
                            drop(UnixStream::connect(&self.socket));
                            fs::remove_file(&self.socket).unwrap();
                            return;
                        }
                    };
                    if !write(&codec, &mut stream, &message) {
                        return;
                    }
                }
            }
            match stream.read(&mut chunk) {
                Ok(0) | Err(_) => return,
                Ok(len) => buffer.extend_from_slice(&chunk[..len]),
            }
        }
    }

    fn acts(&self, call: &Call) -> Vec<Act> {
        let acts = (self.handler.lock().unwrap())(call);
        if !acts.is_empty() {
            return acts;
        }
        match call {
            Call::Connect(_) => answer(
                serde_json::to_value(ConnectResult {
                    log_dir: None,
                    version: Version::current(),
                    pid: std::process::id(),
                    state_root: self.state_root.clone(),
                })
                .unwrap(),
            ),
            Call::ListProcesses(_) => answer(json!({"processes": []})),
            // `gdn ps` reports changes that the merge queue holds.
            Call::ListTasks(_) => answer(json!({"tasks": []})),
            Call::ListNodes(_) => answer(json!({"nodes": [], "workspaces": []})),
            // `gdn run` waits for the connections of a project.
            Call::WatchProcesses(_) => answer(json!({})),
            other => panic!("the test has no answer to {other:?}"),
        }
    }
}

/// Sends a message; false if an interrupted client has disconnected.
fn write(codec: &FrameCodec, stream: &mut UnixStream, message: &[u8]) -> bool {
    let mut wire = BytesMut::new();
    codec.encode(message, &mut wire).unwrap();
    stream.write_all(&wire).is_ok()
}

fn notification(method: &'static str, params: &Value) -> Vec<u8> {
    serde_json::to_vec(&Notification {
        jsonrpc: goondan_protocol::control::JsonRpc,
        method,
        params,
    })
    .unwrap()
}

fn response(id: Option<u64>, outcome: Result<Value, ControlError>) -> Vec<u8> {
    serde_json::to_vec(&RpcResponse::new(id, outcome)).unwrap()
}
