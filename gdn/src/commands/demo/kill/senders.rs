//! Senders that produce events continuously and resend each under the same id until it is acknowledged.

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
use crate::commands::demo::verdict::DemoEvent;
use crate::exit::Exit;
use crate::failure::Failure;

/// Number of conversations fed over the control socket, and the same number over HTTP.
const CONVERSATIONS: u64 = 2;

/// Pause between two events of a sender, in milliseconds.
const PAUSE_MS: std::ops::Range<u64> = 50..350;

/// Pause before a sender resends an event, in milliseconds.
const AGAIN_MS: u64 = 50;

/// Timeout of one attempt to send an event, in milliseconds.
const ATTEMPT_MS: u64 = 10_000;

/// Record of the sent events.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    events: RefCell<Vec<DemoEvent>>,
    /// True once no new event may be started.
    is_over: Cell<bool>,
    given_up: Notify,
}

impl Ledger {
    /// Stops new events; events already started are resent until they are accepted.
    pub(super) fn end(&self) {
        self.is_over.set(true);
    }

    /// Stops all sending.
    pub(super) fn give_up(&self) {
        self.end();
        self.given_up.notify_one();
    }

    /// Number of events whose senders received an acknowledgment.
    pub(super) fn accepted(&self) -> usize {
        let events = self.events.borrow();
        events.iter().filter(|event| event.is_accepted).count()
    }

    pub(super) fn into_events(self) -> Vec<DemoEvent> {
        self.events.into_inner()
    }

    fn begin(&self, conversation: &InstanceKey, input: &str) -> usize {
        let mut events = self.events.borrow_mut();
        events.push(DemoEvent {
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

#[derive(Debug)]
enum EventTransport {
    Socket {
        state_root: PathBuf,
        workspace_id: WorkspaceId,
    },
    Http {
        port: u16,
    },
}

/// Sends events until the ledger is ended and all events are accepted, or until it gives up.
pub(super) async fn send_all(
    ledger: &Ledger,
    state_root: &Path,
    workspace_id: &WorkspaceId,
    port: u16,
    random: &mut fastrand::Rng,
) -> Result<(), Failure> {
    let mut senders = Vec::new();
    for number in 1..=CONVERSATIONS {
        let socket = EventTransport::Socket {
            state_root: state_root.to_owned(),
            workspace_id: workspace_id.clone(),
        };
        for (door, name) in [(socket, "socket"), (EventTransport::Http { port }, "http")] {
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

/// Sends events to the conversation with this name.
async fn send(
    door: EventTransport,
    name: String,
    ledger: &Ledger,
    mut random: fastrand::Rng,
) -> Result<(), Failure> {
    let conversation = match &door {
        EventTransport::Socket { .. } => name.clone(),
        // The listener prefixes the key with the name of its connection.
        EventTransport::Http { .. } => format!("{HOOK}:{name}"),
    };
    let conversation = InstanceKey::new(conversation).map_err(|error| fault(&error))?;
    let mut client = None;
    for number in 1u64.. {
        if ledger.is_over.get() {
            break;
        }
        let event_id = EventId::new(format!("{name}-{number}")).map_err(|error| fault(&error))?;
        let input = input_of(&event_id);
        let event = ledger.begin(&conversation, &input);
        loop {
            let is_accepted = match &door {
                EventTransport::Http { port } => by_http(*port, &name, &event_id, &input).await,
                EventTransport::Socket {
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

/// The input of an event.
pub(super) fn input_of(event_id: &EventId) -> String {
    format!("event {event_id}")
}

/// Unreachable, because all names here are valid.
fn fault(error: &InvalidId) -> Failure {
    Failure::of(Exit::Internal, error, "this is a bug in goondan")
}

/// Sends an event over the control socket. True if an acknowledgment arrived.
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

/// Posts an event to the webhook. True if an acknowledgment arrived.
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
