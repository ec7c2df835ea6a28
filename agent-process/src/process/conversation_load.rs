//! Loads the conversation page by page.

use goondan_protocol::frame::FrameCodec;
use goondan_protocol::ids::ExtensionStates;
use goondan_protocol::ipc::{
    ConversationLoad, ConversationPage, Pong, ShutdownAck, ToAgent, ToOrchestrator, TurnStart,
};
use goondan_protocol::records::Records;
use goondan_protocol::trace::TraceContext;

use super::fault::{ProcessError, ProcessExit};
use crate::history::History;
use crate::link::{InboundMessage, LinkError, OrchestratorLink};
use crate::turn::OpenTurn;

#[derive(Default)]
pub(super) struct LoadedConversation {
    pub(super) history: History,
    pub(super) open: OpenTurn,
    pub(super) states: ExtensionStates,
    /// A turn that arrived before the conversation was loaded.
    pub(super) first_turn: Option<(Box<TurnStart>, Option<TraceContext>)>,
    /// Number of the next request; earlier numbers were used to load the conversation.
    pub(super) next_request: u64,
}

pub(super) enum LoadOutcome {
    Loaded(Box<LoadedConversation>),
    Ended(ProcessExit),
}

/// Loads the conversation page by page.
pub(super) async fn load(link: &mut OrchestratorLink) -> Result<LoadOutcome, ProcessError> {
    let doing = "the conversation was loaded";
    let mut loaded = Box::<LoadedConversation>::default();
    let mut request_id = 1;
    let mut page_count = 0;
    let load = ToOrchestrator::ConversationLoad(ConversationLoad { offset: 0 });
    link.send(&load, None, Some(request_id)).await?;
    loop {
        let Some(InboundMessage { message, trace, .. }) = link.receive().await? else {
            return Ok(LoadOutcome::Ended(ProcessExit::Orphaned));
        };
        match message {
            ToAgent::ConversationPage(mut page) => {
                page_count += 1;
                if let Some(offset) = page.next {
                    // The orchestrator prepares the next page while this one is received.
                    request_id += 1;
                    let load = ToOrchestrator::ConversationLoad(ConversationLoad { offset });
                    link.send(&load, None, Some(request_id)).await?;
                }
                let is_last = page.next.is_none();
                let is_all = is_last && page_count == 1;
                if !receive_messages(link, &page.messages, &mut loaded.history, is_all).await? {
                    return Ok(LoadOutcome::Ended(ProcessExit::Orphaned));
                }
                loaded.states.append(&mut page.states);
                take_events(&page, &mut loaded.open)?;
                if is_last {
                    loaded.next_request = request_id + 1;
                    return Ok(LoadOutcome::Loaded(loaded));
                }
            }
            ToAgent::Ping(ping) => {
                let pong = ToOrchestrator::Pong(Pong { nonce: ping.nonce });
                link.send(&pong, None, None).await?;
            }
            ToAgent::Shutdown(shutdown) => {
                tracing::info!(reason = shutdown.reason, "shutdown requested");
                let ack = ToOrchestrator::ShutdownAck(ShutdownAck {});
                link.send(&ack, None, None).await?;
                return Ok(LoadOutcome::Ended(ProcessExit::Shutdown));
            }
            ToAgent::Event(start) if loaded.first_turn.is_none() => {
                loaded.first_turn = Some((start, trace));
            }
            other => {
                let kind = other.kind();
                return Err(ProcessError::Unexpected { kind, doing });
            }
        }
    }
}

/// Receives the messages that a page announced; false if the orchestrator is gone.
async fn receive_messages(
    link: &mut OrchestratorLink,
    announced: &Records,
    history: &mut History,
    is_all: bool,
) -> Result<bool, ProcessError> {
    if announced.is_empty() {
        return Ok(true);
    }
    let bytes = announced.frame_bytes();
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    FrameCodec::new().header(bytes).map_err(LinkError::from)?;
    let room = history.room(bytes, is_all).map_err(ProcessError::Memory)?;
    if !link.receive_into(room).await? {
        return Ok(false);
    }
    history.take(announced).map_err(LinkError::from)?;
    Ok(true)
}

fn take_events(page: &ConversationPage, open: &mut OpenTurn) -> Result<(), ProcessError> {
    for (record, place) in page.events.iter().zip(1..) {
        open.push_record(record.get())
            .map_err(|source| ProcessError::BadRecord { place, source })?;
    }
    Ok(())
}
