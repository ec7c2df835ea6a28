//! GitLab webhooks: activity in a project or a group becomes an event.
//!
//! * `origin`: the kind, the place and the thing of an event.
//! * `sentences`: the sentence of each event and action; `phrases`: parts of it.
//! * `texts`: the input: the sentence, the link, and what was written.
//! * `properties`: values for ingress rules.
//! * `projects`: the projects listened to.
//! * `actions`, `requests`, `answers`: actions of agents.

mod actions;
mod answers;
mod origin;
mod phrases;
mod projects;
mod properties;
mod requests;
mod sentences;
mod texts;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, Uri};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use goondan_connectors::Values;
use goondan_connectors::signatures::preset;
use goondan_protocol::JsonObject;
use goondan_protocol::event::{ConnectorEvent, PAYLOAD_BYTES};
use goondan_protocol::ids::EventId;
use goondan_protocol::ignored_messages::IgnoreReason;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use self::actions::Api;
use self::projects::Projects;
#[cfg(test)]
pub(crate) use self::properties::PROPERTIES;
use crate::gateway::Gateway;
use crate::http;
use crate::limits::PAYLOAD_BYTES_MAX;
use crate::listener::{
    self, DirectResponse, HttpEndpoint, InboundRequest, InboundService, MalformedRequest, Outbox,
    RawRequest, RequestRejection,
};
use crate::own_mark::OWN_MARK;
use crate::payload::{add_payload, event_id, header, instance_key, json_or_form, text};
use crate::service_api::outbox_of;
use crate::webhook::{SignedRequest, Verifier};

const UUID_HEADER: HeaderName = HeaderName::from_static("x-gitlab-event-uuid");

/// Headers with an ID that only repetitions of a delivery share, the most exact first.
static DELIVERY_HEADERS: [HeaderName; 2] = [
    HeaderName::from_static("idempotency-key"),
    HeaderName::from_static("webhook-id"),
];

/// Bytes of a hash that distinguishes events with the same `X-Gitlab-Event-UUID`.
const DIGEST_BYTES: usize = 8;

/// Prefix of a signing token. Other secrets are secret tokens.
const SIGNING_TOKEN_PREFIX: &str = "whsec_";

/// Kinds of events in which the account of the agents shows what it did itself. Runs that it caused
/// are news to the agents.
const ACTED_KINDS: [&str; 5] = ["emoji", "issue", "merge_request", "note", "work_item"];

pub(crate) struct GitLab {
    http_endpoint: HttpEndpoint,
    verifier: Verifier,
    projects: Arc<Projects>,
    api: Option<Arc<Api>>,
}

impl fmt::Debug for GitLab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GitLab")
            .field("http_endpoint", &self.http_endpoint)
            .finish_non_exhaustive()
    }
}

impl GitLab {
    /// Creates a connector from validated settings.
    ///
    /// # Errors
    ///
    /// A description of why they cannot be used anyway.
    pub(crate) fn new(
        config: &JsonObject,
        secrets: &BTreeMap<String, String>,
    ) -> Result<Self, String> {
        let values = Values::of("gitlab", config);
        let secret = secrets.get("webhookSecret").map_or("", String::as_str);
        let projects = Arc::new(Projects::new(
            values.names("projects").as_deref(),
            &values.names("sendTo").unwrap_or_default(),
        ));
        let api = match secrets.get("token") {
            None => None,
            Some(token) => Some(Arc::new(Api::new(
                http::service_client()?,
                values.text("endpoint").unwrap_or_default(),
                token.clone(),
                Arc::clone(&projects),
            ))),
        };
        Ok(Self {
            http_endpoint: HttpEndpoint::new(&values),
            verifier: verifier(secret)?,
            projects,
            api,
        })
    }

    /// Serves requests until `stop`.
    pub(crate) async fn run(self, gateway: Gateway, stop: CancellationToken) {
        listener::run(Arc::new(self), gateway, stop).await;
    }

    fn to_meaning(
        &self,
        received: &RawRequest<'_>,
        body: &Value,
    ) -> Result<InboundRequest, MalformedRequest> {
        let event = origin::event_name(body).unwrap_or_default();
        if let Some(answer) = self.answer(event, body) {
            return Ok(InboundRequest::Answer(answer));
        }
        let place = origin::project(body).or_else(|| origin::group(body));
        let place = place.map(str::to_lowercase);
        let reference = origin::reference(event, body);
        let key = place.map(|place| {
            let reference = reference.as_deref().unwrap_or_default();
            format!("gitlab:{place}{reference}")
        });
        let delivery = delivery_id(received)?;
        Ok(InboundRequest::Event(Box::new(ConnectorEvent {
            metadata: metadata(received.body.len(), (event, &delivery), body),
            id: Some(delivery),
            name: event.to_owned(),
            input: texts::of(event, body),
            instance_key: key.as_deref().map(instance_key).transpose()?,
            properties: properties::of(event, body),
            auth: origin::sender(event, body).map(|user| {
                JsonObject::from_iter([
                    ("service".to_owned(), json!("gitlab")),
                    ("user".to_owned(), json!(user)),
                ])
            }),
        })))
    }

    /// The answer to a delivery that becomes no event.
    fn answer(&self, event: &str, body: &Value) -> Option<DirectResponse> {
        let ignored = |reason, explanation| Some(DirectResponse::ignored(reason, explanation));
        if sentences::of_event(event).is_none() {
            return ignored(
                IgnoreReason::Unsupported,
                "goondan has no words for this kind of event",
            );
        }
        if !self.projects.has_event(body) {
            return ignored(
                IgnoreReason::OtherPlace,
                "the project is not one of `projects`",
            );
        }
        let is_open = text(body, "/object_attributes/action") == Some("open");
        let written = match event {
            "note" => text(body, "/object_attributes/note"),
            "issue" | "merge_request" if is_open => text(body, "/object_attributes/description"),
            _ => None,
        };
        let is_marked = written.is_some_and(|written| written.contains(OWN_MARK));
        let is_by_bot = ACTED_KINDS.contains(&event)
            && self.api.as_ref().is_some_and(|api| api.is_own_bot(body));
        if is_marked || is_by_bot {
            return ignored(IgnoreReason::Own, "goondan did it");
        }
        None
    }
}

/// The check of a secret token, or of the signature by a signing token.
fn verifier(secret: &str) -> Result<Verifier, String> {
    let name = match secret.starts_with(SIGNING_TOKEN_PREFIX) {
        true => "standard-webhooks",
        false => "gitlab",
    };
    let unset = JsonObject::new();
    let signature = Values::of("webhook", &unset).map("signature");
    let verifier = preset(name).and_then(|preset| Verifier::new(preset, &signature, &[secret]));
    verifier.ok_or_else(|| {
        "failed to use the secret `webhookSecret`: expected a secret token, or a signing token \
         of `whsec_` and Base64"
            .to_owned()
    })
}

/// The ID that repetitions of a delivery share. Events that one request caused share
/// `X-Gitlab-Event-UUID`, which is all that servers before GitLab 17.4 send.
fn delivery_id(received: &RawRequest<'_>) -> Result<EventId, MalformedRequest> {
    let headers: &HeaderMap = received.headers;
    let mut exact = DELIVERY_HEADERS.iter();
    if let Some(name) = exact.find(|name| headers.contains_key(*name)) {
        return event_id(header(headers, name)?);
    }
    let uuid = header(headers, &UUID_HEADER)?;
    let digest = Sha256::digest(received.body);
    let digest = digest.get(..DIGEST_BYTES).unwrap_or_default();
    event_id(&format!("{uuid}-{}", hex::encode(digest)))
}

fn metadata(body_bytes: usize, (event, delivery): (&str, &EventId), body: &Value) -> JsonObject {
    let mut metadata = JsonObject::from_iter([("delivery".to_owned(), json!(delivery.as_str()))]);
    add_payload(&mut metadata, body);
    if metadata.contains_key(PAYLOAD_BYTES) || body_bytes > PAYLOAD_BYTES_MAX {
        // The body may have been shortened while it was parsed.
        metadata.insert(PAYLOAD_BYTES.to_owned(), json!(body_bytes));
    }
    let discussion = text(body, "/object_attributes/discussion_id").filter(|_| event == "note");
    for (name, value) in [
        ("project", origin::project(body).map(str::to_owned)),
        ("reference", origin::reference(event, body)),
        ("commit", origin::commit(body).map(str::to_owned)),
        ("discussion", discussion.map(str::to_owned)),
        (
            "defaultBranch",
            text(body, "/project/default_branch").map(str::to_owned),
        ),
    ] {
        if let Some(value) = value {
            metadata.insert(name.to_owned(), json!(value));
        }
    }
    metadata
}

impl InboundService for GitLab {
    fn http_endpoint(&self) -> &HttpEndpoint {
        &self.http_endpoint
    }

    fn outbox(&self) -> Option<Arc<dyn Outbox>> {
        self.api.as_ref().map(outbox_of)
    }

    fn authenticate<'a>(
        &'a self,
        received: &'a RawRequest<'a>,
        uri: &'a Uri,
    ) -> BoxFuture<'a, Result<(), RequestRejection>> {
        let verified = self.verifier.verify(&SignedRequest {
            headers: received.headers,
            uri,
            body: received.body,
            now_s: received.now_s,
        });
        std::future::ready(verified.map_err(RequestRejection::from)).boxed()
    }

    fn read(&self, received: &RawRequest<'_>) -> Result<InboundRequest, RequestRejection> {
        let body = json_or_form(received.headers, received.body)?;
        Ok(self.to_meaning(received, &body)?)
    }
}

#[cfg(test)]
#[path = "gitlab/service_tests.rs"]
mod tests;
