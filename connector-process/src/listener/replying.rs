//! Whoever brought an event gets what the agent answered, if that comes in time (`MSG-13`).
//!
//! The event is durable before anything of this begins, and what came of it is on disk once its turn is over. So
//! nothing is lost with whoever waits: the same event posted again is answered with the same reply.

use goondan_clock::timeout;
use goondan_protocol::ipc::EventAccepted;
use goondan_protocol::reply::{Reply, ReplyAwait};
use goondan_protocol::trace::TraceContext;

use super::answer::Refusal;
use super::callbacks::Place;
use super::request::Listener;
use super::response::Outcome;

impl Listener {
    /// A place among the replies that are to be handed over, if they are; taken before the event is.
    pub(super) fn place_for_reply(&self) -> Result<Option<Place>, Refusal> {
        let Some(callbacks) = self.service.callbacks() else {
            return Ok(None);
        };
        callbacks.place().map(Some).ok_or(Refusal::NoPlace)
    }

    /// Promises that the reply will be handed over. Durable when it returns.
    pub(super) async fn promise(
        &self,
        place: Place,
        accepted: &EventAccepted,
        trace: TraceContext,
    ) -> Result<(), Refusal> {
        let Some(callbacks) = self.service.callbacks() else {
            return Ok(());
        };
        let promise = callbacks.promise(place, accepted, trace);
        let not_promised = |reason| Refusal::NotPromised { reason };
        promise.await.map_err(not_promised)
    }

    /// Waits for the reply to a durable event, if it may be waited for, as long as that may be.
    pub(super) async fn replied(&self, accepted: EventAccepted) -> Outcome {
        let wait = self.service.reply_wait();
        let (Some(wait), Some(instance_key)) = (wait, accepted.instance_key.clone()) else {
            return Outcome::Accepted(accepted);
        };
        // The event is taken anyway: who finds no place to wait asks again.
        let Ok(_place) = self.waiting.try_acquire() else {
            return Outcome::Accepted(accepted);
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
            Some(Reply::Over { outcome }) => Outcome::Replied(accepted, outcome),
            Some(Reply::Open { .. } | Reply::Unknown {}) | None => Outcome::Accepted(accepted),
        }
    }
}
