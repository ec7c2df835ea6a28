//! The target address of replies, and delivery of one reply.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use goondan_clock::{sleep, timeout};
use goondan_connectors::Values;
use goondan_outbound::rejection_by_proxy;
use goondan_protocol::event::TurnOutcome;
use goondan_protocol::ids::EventId;
use goondan_protocol::trace::TraceContext;
use hmac::{Hmac, Mac as _};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Url};
use serde_json::Value;
use sha2::Sha256;
use tokio::sync::Semaphore;

use super::super::reply_body::reply_body;
use super::{PendingReply, ReplyDelivery};
use crate::back_off::back_off;
use crate::http::{self, ForbiddenAddress, Resolver, check_proxied, may_reach};
use crate::limits::{
    CALLBACK_ATTEMPTS_MAX, CALLBACK_PAUSE_FIRST_MS, CALLBACK_PAUSE_MAX_MS, CALLBACKS_AT_ONCE_MAX,
    SERVICE_TIMEOUT_MS,
};

/// The header that names the event.
const EVENT_ID: &str = "x-goondan-event-id";

/// The signature header, in the form that webhooks commonly use.
const SIGNATURE: &str = "x-hub-signature-256";

/// A failed POST.
#[derive(Debug)]
struct DeliveryFailure {
    why: String,
    /// True if retrying is pointless.
    is_final: bool,
}

pub(crate) struct ReplyTarget {
    client: Client,
    url: Url,
    keyed: Option<Hmac<Sha256>>,
    allows_private: bool,
    at_once: Semaphore,
}

impl ReplyTarget {
    /// Creates a target from the settings of a callback and the secret that signs deliveries.
    ///
    /// # Errors
    ///
    /// A description of why the target is unusable, without the address, which may be secret.
    pub(crate) fn new(callback: &Values<'_>, secret: Option<&str>) -> Result<Self, String> {
        let url = callback.text("url").and_then(|url| Url::parse(url).ok());
        let url = url.ok_or("`reply.callback.url` is not a URL that replies can be posted to")?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err("`reply.callback.url` contains a password; sign with the secret `callbackHmac` instead".to_owned());
        }
        let allows_private = callback.truth("allowPrivate");
        let host = url.host_str().unwrap_or_default();
        let address = host.trim_start_matches('[').trim_end_matches(']');
        // A name is checked when it is resolved.
        if let Ok(address) = address.parse::<IpAddr>()
            && !may_reach(address, allows_private)
        {
            return Err(forbidden_text(&ForbiddenAddress::at(host, address)));
        }
        let keyed = secret.and_then(|secret| Hmac::new_from_slice(secret.as_bytes()).ok());
        Ok(Self {
            client: http::client_by(Arc::new(Resolver { allows_private }))?,
            url,
            keyed,
            allows_private,
            at_once: Semaphore::new(CALLBACKS_AT_ONCE_MAX),
        })
    }

    /// Posts a reply until it is accepted, at most [`CALLBACK_ATTEMPTS_MAX`] times.
    async fn hand_over(&self, event_id: &EventId, trace: TraceContext, body: &Value) {
        let (body, trace_id) = (body.to_string(), trace.trace_id);
        let event_id = event_id.as_str();
        for attempt in 1.. {
            let DeliveryFailure { why, is_final } = match self.post(event_id, trace, &body).await {
                Ok(()) => {
                    return tracing::info!(%trace_id, event_id, attempt, "reply delivered");
                }
                Err(not_taken) => not_taken,
            };
            if is_final || attempt >= CALLBACK_ATTEMPTS_MAX {
                return tracing::error!(
                    %trace_id, event_id, attempt, reason = why,
                    "failed to deliver a reply; giving up; posting the same event again delivers it"
                );
            }
            let pause = back_off(attempt, CALLBACK_PAUSE_FIRST_MS, CALLBACK_PAUSE_MAX_MS);
            let next_in_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
            tracing::warn!(
                %trace_id, event_id, attempt, next_in_ms, reason = why,
                "reply not accepted; retrying"
            );
            sleep(pause).await;
        }
    }

    async fn post(
        &self,
        event_id: &str,
        trace: TraceContext,
        body: &str,
    ) -> Result<(), DeliveryFailure> {
        let again = |why: String| DeliveryFailure {
            why,
            is_final: false,
        };
        let _place = self.at_once.acquire().await;
        let checked = check_proxied(&self.url, self.allows_private).await;
        checked.map_err(|forbidden| again(forbidden_text(&forbidden)))?;
        let mut request = self
            .client
            .post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(EVENT_ID, event_id)
            .header("traceparent", trace.to_traceparent())
            .body(body.to_owned());
        if let Some(keyed) = &self.keyed {
            let mut keyed = keyed.clone();
            keyed.update(body.as_bytes());
            let digits = hex::encode(keyed.finalize().into_bytes());
            request = request.header(SIGNATURE, format!("sha256={digits}"));
        }
        let timeout_ms = SERVICE_TIMEOUT_MS;
        let sent = timeout(Duration::from_millis(timeout_ms), request.send()).await;
        let sent = sent.map_err(|_elapsed| again(format!("no answer within {timeout_ms} ms")))?;
        let status = match sent {
            Ok(answered) => answered.status(),
            Err(error) => {
                let forbidden = ForbiddenAddress::of(&error).map(forbidden_text);
                let why = forbidden.unwrap_or_else(|| goondan_outbound::error_text(error));
                return Err(again(why));
            }
        };
        if status.is_success() {
            return Ok(());
        }
        let why = if status.is_redirection() {
            format!("the answer is {status}, and a reply follows no redirect")
        } else {
            format!("the answer is {status}")
        };
        let why = match status {
            StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
                rejection_by_proxy(&self.url).map_or(why, |problem| problem.to_string())
            }
            _ => why,
        };
        let is_final = status == StatusCode::GONE;
        Err(DeliveryFailure { why, is_final })
    }
}

impl ReplyDelivery for ReplyTarget {
    fn deliver(
        self: Arc<Self>,
        reply: PendingReply,
        outcome: Option<TurnOutcome>,
    ) -> BoxFuture<'static, ()> {
        let body = reply_body(&reply.event_id, reply.trace.trace_id, outcome.as_ref());
        async move { self.hand_over(&reply.event_id, reply.trace, &body).await }.boxed()
    }
}

/// Explains why a request is forbidden, and which setting allows it.
fn forbidden_text(forbidden: &ForbiddenAddress) -> String {
    if forbidden.is_private {
        format!("{forbidden}; `reply.callback.allowPrivate: true` of the Connection allows that")
    } else {
        forbidden.to_string()
    }
}

#[cfg(test)]
mod tests {
    use goondan_protocol::JsonObject;
    use serde_json::json;

    use super::*;

    fn problem_of(callback: &Value) -> Option<String> {
        let config: JsonObject =
            serde_json::from_value(json!({"reply": {"callback": callback}})).unwrap();
        let values = Values::of("webhook", &config);
        ReplyTarget::new(&values.map("reply").map("callback"), None).err()
    }

    #[test]
    fn sec_2_replies_to_local_addresses_need_explicit_permission() {
        http::install_cryptography();
        assert_eq!(
            problem_of(&json!({"url": "https://example.com/hook"})),
            None
        );
        for url in [
            "http://127.0.0.1:80/x",
            "http://[::1]/x",
            "http://2130706433/x",
            "http://10.0.0.7/x",
        ] {
            let problem = problem_of(&json!({"url": url})).unwrap();
            assert!(problem.contains("allowPrivate"), "{url}: {problem}");
            assert!(!problem.contains("/x"), "{problem}");
            assert_eq!(problem_of(&json!({"url": url, "allowPrivate": true})), None);
        }
        // Cloud metadata services, which issue machine credentials, are never reachable.
        let metadata = json!({"url": "http://169.254.169.254/", "allowPrivate": true});
        assert!(problem_of(&metadata).is_some());
        assert!(
            problem_of(&json!({"url": "https://u:hunter2@example.com/"}))
                .is_some_and(|it| !it.contains("hunter2"))
        );
    }
}
