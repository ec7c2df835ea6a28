//! The API of a service in the hands of agents: what all connectors share that act at one.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use goondan_protocol::call::{CallError, CallOrder};
use goondan_protocol::service::Service;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::calls::{CallHandler, Outcome, Pieces};
use crate::listener::Outbox;
use crate::service;

/// The API of one service.
pub(crate) trait ServiceApi: Send + Sync + 'static {
    /// Its actions, as they come from agents.
    type Action: DeserializeOwned + Send;

    /// What is declared of it.
    const SERVICE: &'static Service;

    /// Does what a call asks for; `is_idempotent` is what is declared of the action.
    ///
    /// # Errors
    ///
    /// [`CallError`] if it was not done, or nobody knows whether it was.
    fn run(
        &self,
        action: Self::Action,
        is_idempotent: bool,
    ) -> impl Future<Output = Result<Value, CallError>> + Send;

    /// What no error may repeat; none if it is empty.
    fn secret(&self) -> &str;

    /// Asks the service whether it takes the token, as [`Outbox::check`] does.
    ///
    /// # Errors
    ///
    /// [`CallError`] if it does not, or cannot be asked.
    fn check(&self) -> impl Future<Output = Result<Option<String>, CallError>> + Send {
        std::future::ready(Ok(None))
    }
}

/// Has agents' calls made by `api`.
pub(crate) fn outbox_of<A: ServiceApi>(api: &Arc<A>) -> Arc<dyn Outbox> {
    Arc::new(ServiceCalls(Arc::clone(api)))
}

struct ServiceCalls<A>(Arc<A>);

impl<A: ServiceApi> CallHandler for ServiceCalls<A> {
    fn call(&self, call: CallOrder, _pieces: Pieces) -> BoxFuture<'static, Outcome> {
        let api = Arc::clone(&self.0);
        async move {
            let result = match service::action(A::SERVICE.connector, &call) {
                Ok(action) => {
                    let is_idempotent = A::SERVICE.is_idempotent(&call.method);
                    api.run(action, is_idempotent).await
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
        let api = Arc::clone(&self.0);
        async move { api.check().await }.boxed()
    }
}
