//! Returns the agent's reply to the sender of an event, if it arrives in time (`MSG-13`).
//!
//! The event is durable before any of this begins, and its outcome is on disk once its turn is
//! over. Nothing is lost with the waiting client: the same event posted again gets the same reply.

use goondan_clock::timeout;
use goondan_protocol::event::ConnectorEvent;
use goondan_protocol::ipc::EventAccepted;
use goondan_protocol::reply::{Reply, ReplyAwait};
use goondan_protocol::trace::TraceContext;

use super::answer::RequestRejection;
use super::callbacks::CallbackSlot;
use super::request::Listener;
use super::response::RequestOutcome;

impl Listener {
    /// Reserves a slot for a callback, if callbacks are configured, before the event is submitted.
    pub(super) fn place_for_reply(
        &self,
        trace: TraceContext,
        event: &ConnectorEvent,
    ) -> Result<Option<CallbackSlot>, RequestRejection> {
        let Some(callbacks) = self.service.callbacks() else {
            return Ok(None);
        };
        let place = callbacks.place(trace, event);
        place.map(Some).ok_or(RequestRejection::NoPlace)
    }

    /// Schedules the callback of the reply. Durable when it returns.
    pub(super) async fn promise(
        &self,
        place: CallbackSlot,
        accepted: &EventAccepted,
    ) -> Result<(), RequestRejection> {
        let Some(callbacks) = self.service.callbacks() else {
            return Ok(());
        };
        let promise = callbacks.promise(place, accepted);
        let not_promised = |reason| RequestRejection::NotPromised { reason };
        promise.await.map_err(not_promised)
    }

    /// Waits for the reply to a durable event, if configured, up to the configured time.
    pub(super) async fn replied(&self, accepted: EventAccepted) -> RequestOutcome {
        let wait = self.service.reply_wait();
        let (Some(wait), Some(instance_key)) = (wait, accepted.instance_key.clone()) else {
            return RequestOutcome::Accepted(accepted);
        };
        // The event is accepted anyway; a client without a slot can ask again.
        let Ok(_place) = self.waiting.try_acquire() else {
            return RequestOutcome::Accepted(accepted);
        };
        let event_id = accepted.event_id.clone();
        let asked = ReplyAwait {
            instance_key,
            event_id,
        };
        let reply = tokio::select! {
            reply = timeout(wait, self.gateway.reply(asked)) => reply.ok().flatten(),
            () = self.stop.cancelled() => None,
        };
        match reply {
            Some(Reply::Over { outcome }) => RequestOutcome::Replied(accepted, outcome),
            Some(Reply::Open { .. } | Reply::Unknown {}) | None => {
                RequestOutcome::Accepted(accepted)
            }
        }
    }
}
