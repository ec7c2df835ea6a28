//! Replies of agents, posted to the chat of their event (`CONN-2`).
//!
//! A reply takes the same path as a message of the agent's tool: the declared action plans the
//! requests, so splitting, formatting and the place are those of the tool. A request with an
//! unknown outcome is looked for at the service; if that is impossible it is repeated, because a
//! reply that appears twice is better than none.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use goondan_clock::sleep;
use goondan_connectors::Values;
use goondan_protocol::JsonObject;
use goondan_protocol::event::TurnOutcome;
use goondan_protocol::ids::ConnectionName;
use goondan_protocol::service::{
    ActionCall, ActionPlan, ActionSpec, ConnectorRequest, PlanError, Recovery, of_call,
};
use goondan_protocol::time::Timestamp;
use serde_json::Value;

use crate::back_off::back_off;
use crate::limits::{CALLBACK_ATTEMPTS_MAX, CALLBACK_PAUSE_FIRST_MS, CALLBACK_PAUSE_MAX_MS};
use crate::listener::{PendingReply, ReplyDelivery};
use crate::look_back::Evidence;
use crate::service::masked;
use crate::service_api::ServiceApi;

/// Setting that selects the replies to post.
const SETTING: &str = "reply";

/// Name of the action that posts a reply.
const SEND: &str = "send";

/// Code of a turn that a person canceled.
const CANCELED: &str = "E_CANCELLED";

/// Note below a reply that is too long for the chat.
const CUT: &str = "\n\n[The reply is longer than this chat can show.]";

/// Replies that are posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyMode {
    /// Those of turns in which the agent did not write to the chat itself.
    Auto,
    /// All.
    Always,
    /// None.
    Never,
}

impl ReplyMode {
    /// The mode in validated settings.
    pub(crate) fn of(values: &Values<'_>) -> Self {
        match values.text(SETTING) {
            Some("always") => Self::Always,
            Some("never") => Self::Never,
            _ => Self::Auto,
        }
    }
}

/// A service with chats that agents answer.
pub(crate) trait ChatService: ServiceApi {
    /// Metadata of an event that identifies its place, as the service's `send` action uses it.
    const FACTS: &'static [&'static str];

    /// Message for a turn without a reply, if the service waits for one.
    const EMPTY: Option<&'static str> = None;

    /// The place of an event, comparable with [`ServiceApi::written_place`].
    fn home(&self, facts: &JsonObject) -> Option<String>;

    /// Arguments of `send` for a reply.
    fn reply_args(text: &str, facts: &JsonObject) -> Value;

    /// Records a posted message of a reply to an event with these facts.
    fn posted(&self, _facts: &JsonObject, _result: &Value) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// Posts replies to the chats of a service.
pub(crate) struct ChatReplies<A> {
    api: Arc<A>,
    connection: ConnectionName,
    mode: ReplyMode,
    /// Replies to one place are posted in order, by place.
    queues: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl<A: ChatService> ChatReplies<A> {
    pub(crate) fn new(api: Arc<A>, connection: ConnectionName, mode: ReplyMode) -> Self {
        Self {
            api,
            connection,
            mode,
            queues: Mutex::default(),
        }
    }

    fn queue(&self, place: String) -> Arc<tokio::sync::Mutex<()>> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.retain(|_, queue| Arc::strong_count(queue) > 1);
        Arc::clone(queues.entry(place).or_default())
    }

    async fn post(&self, reply: &PendingReply, text: &str) {
        let event_id = reply.event_id.as_str();
        let plan = match self.plan(reply, text) {
            Ok(plan) => plan,
            Err(error) => {
                return tracing::error!(event_id, %error, "failed to plan a reply to a chat");
            }
        };
        for request in plan.requests() {
            match self.send(event_id, request).await {
                Ok(result) => self.api.posted(&reply.facts, &result).await,
                Err(reason) => {
                    return tracing::error!(
                        event_id,
                        reason,
                        "failed to post a reply to its chat; giving up"
                    );
                }
            }
        }
        tracing::info!(event_id, trace_id = %reply.trace.trace_id, "reply posted");
    }

    /// Plans the messages of a reply. A reply that needs too many messages is cut.
    fn plan(&self, reply: &PendingReply, text: &str) -> Result<ActionPlan, PlanError> {
        let missing = || PlanError::Failed("the service has no action `send`".to_owned());
        let mut actions = A::SERVICE.actions.iter();
        let action: &ActionSpec = actions.find(|it| it.name == SEND).ok_or_else(missing)?;
        let plan_of = |text: &str| {
            (action.plan)(&ActionCall {
                connection: &self.connection,
                call_id: reply.event_id.as_str(),
                args: &A::reply_args(text, &reply.facts),
                facts: Some(&reply.facts),
                file: None,
            })
        };
        let mut whole = plan_of(text);
        let mut bytes = text.len();
        while matches!(whole, Err(PlanError::TooLarge(_))) && bytes > CUT.len() {
            bytes /= 2;
            let start = text
                .get(..text.floor_char_boundary(bytes))
                .unwrap_or_default();
            whole = plan_of(&format!("{start}{CUT}"));
        }
        whole
    }

    /// Sends one message, repeatedly if the service is not available.
    async fn send(&self, event_id: &str, request: &ConnectorRequest) -> Result<Value, String> {
        let since = Timestamp::from_unix_millis(jiff::Timestamp::now().as_millisecond());
        for attempt in 1.. {
            let action = of_call::<A::Action>(&request.method, &request.params)
                .map_err(|error| error.to_string())?;
            if attempt > 1
                && let Recovery::LookBack(_) = self.api.recovery(&action, &request.method)
                && let Ok(Evidence::Found(result)) = self.api.look_back(&action, since).await
            {
                return Ok(result);
            }
            let error = match self.api.run(action, true).await {
                Ok(result) => return Ok(result),
                Err(error) => error,
            };
            let reason = masked(error.to_string(), &[self.api.secret()]);
            if !error.retryable || attempt >= CALLBACK_ATTEMPTS_MAX {
                return Err(reason);
            }
            let asked = Duration::from_millis(error.retry_after_ms.unwrap_or_default());
            let pause = back_off(attempt, CALLBACK_PAUSE_FIRST_MS, CALLBACK_PAUSE_MAX_MS);
            tracing::warn!(
                event_id,
                attempt,
                reason,
                "failed to post a reply; retrying"
            );
            sleep(pause.max(asked)).await;
        }
        Ok(Value::Null)
    }
}

/// The text to post, if any.
fn text_of(outcome: Option<TurnOutcome>, empty: Option<&str>) -> Option<String> {
    match outcome? {
        TurnOutcome::Completed { reply } if !reply.trim().is_empty() => Some(reply),
        TurnOutcome::Failed { code, .. } if code != CANCELED => Some(format!(
            "I could not answer this message ({code}). An operator can find the reason in the log."
        )),
        TurnOutcome::Completed { .. } | TurnOutcome::Failed { .. } => empty.map(str::to_owned),
    }
}

impl<A: ChatService> ReplyDelivery for ChatReplies<A> {
    fn deliver(
        self: Arc<Self>,
        reply: PendingReply,
        outcome: Option<TurnOutcome>,
    ) -> BoxFuture<'static, ()> {
        async move {
            if self.mode == ReplyMode::Auto && reply.mark.is_set() {
                let event_id = reply.event_id.as_str();
                return tracing::debug!(event_id, "the agent wrote to the chat itself");
            }
            let Some(text) = text_of(outcome, A::EMPTY) else {
                return;
            };
            let queue = self.queue(self.api.home(&reply.facts).unwrap_or_default());
            let _turn = queue.lock().await;
            self.post(&reply, &text).await;
        }
        .boxed()
    }

    fn connection(&self) -> Option<ConnectionName> {
        Some(self.connection.clone())
    }

    fn place(&self, facts: &JsonObject) -> Option<String> {
        self.api.home(facts)
    }

    fn facts(&self) -> &'static [&'static str] {
        A::FACTS
    }

    fn delivers_once(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conn_2_chat_gets_the_reply_or_a_short_notice() {
        let completed = |reply: &str| {
            Some(TurnOutcome::Completed {
                reply: reply.to_owned(),
            })
        };
        let failed = |code: &str| {
            Some(TurnOutcome::Failed {
                code: code.to_owned(),
                message: "/home/ada: no such key".to_owned(),
            })
        };
        assert_eq!(text_of(completed("hi"), None).as_deref(), Some("hi"));
        assert_eq!(text_of(completed(" \n"), None), None);
        assert_eq!(
            text_of(completed(""), Some("Done.")).as_deref(),
            Some("Done.")
        );
        let told = text_of(failed("E_MODEL"), None).unwrap();
        assert!(told.contains("E_MODEL") && !told.contains("ada"), "{told}");
        assert_eq!(text_of(failed(CANCELED), None), None);
        assert_eq!(text_of(None, Some("Done.")), None);
    }
}
