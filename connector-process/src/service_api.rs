//! A service's API for agents: the shared part of all connectors that act at a service.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use goondan_protocol::call::{CallError, CallOrder};
use goondan_protocol::service::ServiceSpec;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::calls::{CallHandler, Pieces, RawCallResult};
use crate::listener::{AnsweredTurns, Outbox};
use crate::service;

/// The API of one service.
pub(crate) trait ServiceApi: Send + Sync + 'static {
    /// Its actions, as sent by agents.
    type Action: DeserializeOwned + Send;

    const SERVICE: &'static ServiceSpec;

    /// Performs the action of a call; `is_idempotent` is declared with the action.
    ///
    /// # Errors
    ///
    /// [`CallError`] if the action was not performed, or its outcome is unknown.
    fn run(
        &self,
        action: Self::Action,
        is_idempotent: bool,
    ) -> impl Future<Output = Result<Value, CallError>> + Send;

    /// The place that an action writes a message to, if it does.
    fn written_place(&self, _action: &Self::Action) -> Option<String> {
        None
    }

    /// The secret that errors must not repeat; may be empty.
    fn secret(&self) -> &str;

    /// Checks that the service accepts the token, as [`Outbox::check`] does.
    ///
    /// # Errors
    ///
    /// [`CallError`] if the service rejects the token or is unreachable.
    fn check(&self) -> impl Future<Output = Result<Option<String>, CallError>> + Send {
        std::future::ready(Ok(None))
    }
}

/// Creates the handler of agents' calls through `api`.
pub(crate) fn outbox_of<A: ServiceApi>(api: &Arc<A>) -> Arc<dyn Outbox> {
    outbox_marking(api, None)
}

/// As [`outbox_of`], and marks the turns whose agents write to a chat.
pub(crate) fn outbox_marking<A: ServiceApi>(
    api: &Arc<A>,
    answered: Option<AnsweredTurns>,
) -> Arc<dyn Outbox> {
    Arc::new(ServiceCalls {
        api: Arc::clone(api),
        answered,
    })
}

struct ServiceCalls<A> {
    api: Arc<A>,
    answered: Option<AnsweredTurns>,
}

impl<A: ServiceApi> CallHandler for ServiceCalls<A> {
    fn call(&self, call: CallOrder, _pieces: Pieces) -> BoxFuture<'static, RawCallResult> {
        let (api, answered) = (Arc::clone(&self.api), self.answered.clone());
        async move {
            let result = match service::action::<A::Action>(A::SERVICE.connector, &call) {
                Ok(action) => {
                    let is_idempotent = A::SERVICE.is_idempotent(&call.method);
                    let place = api.written_place(&action);
                    let result = api.run(action, is_idempotent).await;
                    if let (Ok(_), Some(place), Some(answered), Some(event_id)) =
                        (&result, place, answered, &call.event_id)
                    {
                        answered.wrote(event_id, &place).await;
                    }
                    result
                }
                Err(error) => Err(error),
            };
            service::outcome(result, &[api.secret()])
        }
        .boxed()
    }
}

impl<A: ServiceApi> Outbox for ServiceCalls<A> {
    fn check(&self) -> BoxFuture<'static, Result<Option<String>, CallError>> {
        let api = Arc::clone(&self.api);
        async move { api.check().await }.boxed()
    }
}
