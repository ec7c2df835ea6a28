//! Those who send events all the time, and send each again, under the same id, until they are told that it is
//! accepted.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::join_all;
use goondan_protocol::control::SendEvent;
use goondan_protocol::ids::{EventId, InstanceKey, InvalidId, WorkspaceId};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::scene::{HOOK, HOOK_PATH};
use crate::client::Client;
use crate::commands::demo::verdict::Event;
use crate::exit::Exit;
use crate::failure::Failure;

/// Conversations that get events by the control socket, and as many more by HTTP.
const CONVERSATIONS: u64 = 2;

/// How long a sender waits from one event to the next, in milliseconds.
const PAUSE_MS: std::ops::Range<u64> = 50..350;

/// How long a sender waits before it sends an event again, in milliseconds.
const AGAIN_MS: u64 = 50;

/// Longest that one attempt to send an event may take, in milliseconds.
const ATTEMPT_MS: u64 = 10_000;

/// What was sent.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    events: RefCell<Vec<Event>>,
    /// Whether no further event is begun.
    is_over: Cell<bool>,
    given_up: Notify,
}

impl Ledger {
    /// No further event is begun; those that were are sent until they are accepted.
    pub(super) fn end(&self) {
        self.is_over.set(true);
    }

    /// Nothing is sent any more.
    pub(super) fn give_up(&self) {
        self.end();
        self.given_up.notify_one();
    }

    /// Events whose senders were told that they are accepted.
    pub(super) fn accepted(&self) -> usize {
        let events = self.events.borrow();
        events.iter().filter(|event| event.is_accepted).count()
    }

    /// All that was sent.
    pub(super) fn into_events(self) -> Vec<Event> {
        self.events.into_inner()
    }

    fn begin(&self, conversation: &InstanceKey, input: &str) -> usize {
        let mut events = self.events.borrow_mut();
        events.push(Event {
            conversation: conversation.clone(),
            input: input.to_owned(),
            is_accepted: false,
        });
        events.len() - 1
    }

    fn accept(&self, at: usize) {
        if let Some(event) = self.events.borrow_mut().get_mut(at) {
            event.is_accepted = true;
        }
    }
}

/// By which way events come in.
#[derive(Debug)]
enum Door {
    Socket {
        state_root: PathBuf,
        workspace_id: WorkspaceId,
    },
    Http {
        port: u16,
    },
}

/// Sends events until the ledger is ended and all are accepted, or it is given up.
pub(super) async fn send_all(
    ledger: &Ledger,
    state_root: &Path,
    workspace_id: &WorkspaceId,
    port: u16,
    random: &mut fastrand::Rng,
) -> Result<(), Failure> {
    let mut senders = Vec::new();
    for number in 1..=CONVERSATIONS {
        let socket = Door::Socket {
            state_root: state_root.to_owned(),
            workspace_id: workspace_id.clone(),
        };
        for (door, name) in [(socket, "socket"), (Door::Http { port }, "http")] {
            senders.push(send(
                door,
                format!("{name}-{number}"),
                ledger,
                random.fork(),
            ));
        }
    }
    tokio::select! {
        ends = join_all(senders) => ends.into_iter().collect(),
        () = ledger.given_up.notified() => Ok(()),
    }
}

/// Sends events to the conversation of this name.
async fn send(
    door: Door,
    name: String,
    ledger: &Ledger,
    mut random: fastrand::Rng,
) -> Result<(), Failure> {
    let conversation = match &door {
        Door::Socket { .. } => name.clone(),
        // The name is one among those of its connection.
        Door::Http { .. } => format!("{HOOK}:{name}"),
    };
    let conversation = InstanceKey::new(conversation).map_err(|error| fault(&error))?;
    let mut client = None;
    for number in 1u64.. {
        if ledger.is_over.get() {
            break;
        }
        let input = format!("{name} event {number}");
        let event_id = EventId::new(format!("{name}-{number}")).map_err(|error| fault(&error))?;
        let event = ledger.begin(&conversation, &input);
        loop {
            let is_accepted = match &door {
                Door::Http { port } => by_http(*port, &name, &event_id, &input).await,
                Door::Socket {
                    state_root,
                    workspace_id,
                } => {
                    let event = SendEvent {
                        workspace_id: workspace_id.clone(),
                        agent: None,
                        conversation_key: conversation.clone(),
                        input: input.clone(),
                        images: Vec::new(),
                        event_id: Some(event_id.clone()),
                        traceparent: None,
                        wait: false,
                    };
                    by_socket(&mut client, state_root, event).await
                }
            };
            if is_accepted {
                break;
            }
            sleep(Duration::from_millis(AGAIN_MS)).await;
        }
        ledger.accept(event);
        sleep(Duration::from_millis(random.u64(PAUSE_MS))).await;
    }
    Ok(())
}

/// What cannot be: all names here are short words.
fn fault(error: &InvalidId) -> Failure {
    Failure::of(Exit::Internal, error, "this is a fault in goondan")
}

/// Sends an event over the control socket; whether it is accepted, as far as anybody was told.
async fn by_socket(client: &mut Option<Client>, state_root: &Path, event: SendEvent) -> bool {
    let attempt = async {
        let mut connected = match client.take() {
            Some(connected) => connected,
            None => Client::connect(state_root).await.ok()?,
        };
        connected.query(event).await.ok()?;
        Some(connected)
    };
    let connected = timeout(Duration::from_millis(ATTEMPT_MS), attempt).await;
    *client = connected.ok().flatten();
    client.is_some()
}

/// Posts an event to the webhook; whether it is accepted, as far as anybody was told.
async fn by_http(port: u16, key: &str, event_id: &EventId, input: &str) -> bool {
    let body = json!({ "key": key, "id": event_id, "text": input }).to_string();
    let request = format!(
        "POST {HOOK_PATH} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let attempt = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut status = [0; "HTTP/1.1 202".len()];
        stream.read_exact(&mut status).await.ok()?;
        Some(status.ends_with(b" 202"))
    };
    let answered = timeout(Duration::from_millis(ATTEMPT_MS), attempt).await;
    answered.ok().flatten().unwrap_or(false)
}
