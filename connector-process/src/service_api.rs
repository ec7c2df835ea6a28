//! A service's API for agents: the shared part of all connectors that act at a service.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use goondan_clock::sleep;
use goondan_protocol::call::{CallError, CallErrorCode, CallOrder, LookedBack};
use goondan_protocol::service::{Recovery, ServiceSpec};
use goondan_protocol::time::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::calls::{CallHandler, Pieces, RawCallResult};
use crate::listener::{AnsweredTurns, Outbox};
use crate::look_back::{self, Evidence, Next};
use crate::service;

/// The API of one service.
pub(crate) trait ServiceApi: Send + Sync + 'static {
    /// Actions of the service, as sent by agents.
    type Action: DeserializeOwned + Clone + Send + Sync;

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

    /// Recovery of an action after a crash; `method` is that of the call.
    fn recovery(&self, _action: &Self::Action, method: &str) -> Recovery {
        let none = Recovery::Unknown("the action is not one that agents have");
        Self::SERVICE.recovery(method).unwrap_or(none)
    }

    /// Checks at the service whether an attempt of an action, made at `since` or later, took
    /// effect.
    ///
    /// # Errors
    ///
    /// [`CallError`] if the service did not answer as expected.
    fn look_back(
        &self,
        _action: &Self::Action,
        _since: Timestamp,
    ) -> impl Future<Output = Result<Evidence, CallError>> + Send {
        let reason = "the connector does not look back".to_owned();
        std::future::ready(Ok(Evidence::Unclear(reason)))
    }

    /// The place of the message that an action writes, if any.
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
    fn call(&self, call: CallOrder, pieces: Pieces) -> BoxFuture<'static, RawCallResult> {
        let (api, answered) = (Arc::clone(&self.api), self.answered.clone());
        async move {
            let result = match service::action::<A::Action>(A::SERVICE.connector, &call) {
                Ok(action) => {
                    let place = api.written_place(&action);
                    let result = settled(&*api, action, &call, &pieces).await;
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

/// Performs an action, after a look-back if an earlier attempt may have taken effect. If the
/// outcome of this attempt is unknown, looks back immediately.
async fn settled<A: ServiceApi>(
    api: &A,
    action: A::Action,
    call: &CallOrder,
    pieces: &Pieces,
) -> Result<Value, CallError> {
    let is_idempotent = A::SERVICE.is_idempotent(&call.method);
    let recovery = api.recovery(&action, &call.method);
    let begun = Timestamp::from_unix_millis(now_ms());
    if let Some(since) = call.again_since.filter(|_| !recovery.is_repeatable()) {
        match find_out(api, &action, recovery, since).await? {
            Next::Close(result) => {
                pieces.looked_back(LookedBack::Happened);
                return Ok(result);
            }
            Next::Make(found) => pieces.looked_back(found),
            Next::LookAgain(_) => {}
            Next::Person(reason) => return Err(look_back::unknown(&reason)),
        }
    }
    let result = api.run(action.clone(), is_idempotent).await;
    let Err(error) = &result else {
        return result;
    };
    if error.code != CallErrorCode::Interrupted || !recovery.is_automatic() {
        return result;
    }
    match find_out(api, &action, recovery, begun).await {
        Ok(Next::Close(found)) => {
            pieces.looked_back(LookedBack::Happened);
            Ok(found)
        }
        Ok(Next::Make(found)) => {
            pieces.looked_back(found);
            api.run(action, is_idempotent).await
        }
        // The daemon repeats the call, which then looks back again.
        Err(failed) if failed.retryable => Err(failed),
        Ok(Next::LookAgain(_) | Next::Person(_)) | Err(_) => result,
    }
}

/// Determines the outcome of an attempt that was made at `since` or later.
async fn find_out<A: ServiceApi>(
    api: &A,
    action: &A::Action,
    recovery: Recovery,
    since: Timestamp,
) -> Result<Next, CallError> {
    let mut looks = 0;
    loop {
        let evidence = match look_back::known(recovery, since, now_ms()) {
            Some(evidence) => evidence,
            None => api
                .look_back(action, since)
                .await
                .map_err(look_back::failed)?,
        };
        match look_back::next(evidence, looks) {
            Next::LookAgain(pause) => sleep(pause).await,
            next => return Ok(next),
        }
        looks += 1;
    }
}

fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

impl<A: ServiceApi> Outbox for ServiceCalls<A> {
    fn check(&self) -> BoxFuture<'static, Result<Option<String>, CallError>> {
        let api = Arc::clone(&self.api);
        async move { api.check().await }.boxed()
    }
}
