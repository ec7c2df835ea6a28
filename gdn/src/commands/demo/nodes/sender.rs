//! Sender that produces events continuously for the node that accepts them, and resends each under the same id until
//! one acknowledges it.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use goondan_protocol::control::SendEvent;
use goondan_protocol::ids::{EventId, InstanceKey, InvalidId, WorkspaceId};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::scene::NODES;
use crate::client::Client;
use crate::commands::demo::verdict::DemoEvent;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

const CONVERSATION: &str = "main";

/// Pause between two events and before a resend, in milliseconds.
const PAUSE_MS: u64 = 100;

/// Timeout of one attempt to send an event, in milliseconds.
const ATTEMPT_MS: u64 = 5_000;

/// Record of the sent events.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    events: RefCell<Vec<DemoEvent>>,
    /// Time of each acknowledgment, with the node.
    accepted: RefCell<Vec<(Instant, usize)>>,
    /// True once no new event may be started.
    is_over: Cell<bool>,
    given_up: Notify,
}

impl Ledger {
    /// Stops new events; the event already started is resent until it is accepted.
    pub(super) fn end(&self) {
        self.is_over.set(true);
    }

    pub(super) fn give_up(&self) {
        self.end();
        self.given_up.notify_one();
    }

    /// Times of the events that a node accepted after `after`.
    pub(super) fn accepted_by(&self, node: usize, after: Instant) -> Vec<Instant> {
        let accepted = self.accepted.borrow();
        let by_node = accepted
            .iter()
            .filter(|(at, by)| *by == node && *at > after);
        by_node.map(|(at, _)| *at).collect()
    }

    pub(super) fn into_events(self) -> Vec<DemoEvent> {
        self.events.into_inner()
    }
}

/// Sends events until the ledger is ended and all events are accepted, or until it gives up.
pub(super) async fn send_all(
    ledger: &Ledger,
    nodes: &[Context; 2],
    workspace_id: &WorkspaceId,
) -> Result<(), Failure> {
    tokio::select! {
        sent = send(ledger, nodes, workspace_id) => sent,
        () = ledger.given_up.notified() => Ok(()),
    }
}

async fn send(
    ledger: &Ledger,
    nodes: &[Context; 2],
    workspace_id: &WorkspaceId,
) -> Result<(), Failure> {
    let conversation_key = InstanceKey::new(CONVERSATION).map_err(|error| fault(&error))?;
    let mut at = 0;
    for number in 1u64.. {
        if ledger.is_over.get() {
            break;
        }
        let event = SendEvent {
            workspace_id: workspace_id.clone(),
            agent: None,
            conversation_key: conversation_key.clone(),
            input: format!("event {number}"),
            images: Vec::new(),
            event_id: Some(EventId::new(format!("event-{number}")).map_err(|error| fault(&error))?),
            traceparent: None,
            wait: false,
        };
        ledger.events.borrow_mut().push(DemoEvent {
            conversation: conversation_key.clone(),
            input: event.input.clone(),
            is_accepted: false,
        });
        while !is_accepted(nodes.get(at), event.clone()).await {
            at = (at + 1) % NODES.len();
            sleep(Duration::from_millis(PAUSE_MS)).await;
        }
        ledger.accepted.borrow_mut().push((Instant::now(), at));
        if let Some(event) = ledger.events.borrow_mut().last_mut() {
            event.is_accepted = true;
        }
        sleep(Duration::from_millis(PAUSE_MS)).await;
    }
    Ok(())
}

/// Sends an event to a node. True if an acknowledgment arrived.
async fn is_accepted(node: Option<&Context>, event: SendEvent) -> bool {
    let attempt = async {
        let mut client = Client::connect(&node?.state_root).await.ok()?;
        client.query(event).await.ok()
    };
    let accepted = timeout(Duration::from_millis(ATTEMPT_MS), attempt).await;
    accepted.ok().flatten().is_some()
}

/// Unreachable, because all names here are valid.
fn fault(error: &InvalidId) -> Failure {
    Failure::of(Exit::Internal, error, "this is a bug in goondan")
}
