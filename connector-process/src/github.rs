//! GitHub webhooks: activity in a repository becomes an event.

mod actions;
mod own_mark;
mod pull_requests;
mod texts;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use axum::http::HeaderName;
use goondan_connectors::Values;
use goondan_protocol::JsonObject;
use goondan_protocol::event::ConnectorEvent;
use serde_json::{Value, json};

use self::actions::Api;
use self::own_mark::OWN_MARK;
use crate::http;
use crate::listener::{
    DirectResponse, HttpEndpoint, InboundRequest, InboundService, MalformedRequest, Outbox,
    RawRequest, RequestRejection, SignatureCheck,
};
use crate::payload::{
    add_payload, event_id, header, instance_key, is_allowed, json_or_form, older_properties,
    properties, text, written_to,
};
use crate::service_api::outbox_of;

const SIGNATURE_HEADER: HeaderName = HeaderName::from_static("x-hub-signature-256");
const EVENT_HEADER: HeaderName = HeaderName::from_static("x-github-event");
const DELIVERY_HEADER: HeaderName = HeaderName::from_static("x-github-delivery");

pub(crate) struct GitHub {
    http_endpoint: HttpEndpoint,
    check: SignatureCheck,
    repositories: Option<Vec<String>>,
    api: Option<Arc<Api>>,
}

impl fmt::Debug for GitHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GitHub")
            .field("http_endpoint", &self.http_endpoint)
            .finish_non_exhaustive()
    }
}

impl GitHub {
    /// Creates a connector from validated settings.
    ///
    /// # Errors
    ///
    /// A description of why they cannot be used anyway.
    pub(crate) fn new(
        config: &JsonObject,
        secrets: &BTreeMap<String, String>,
    ) -> Result<Self, String> {
        let values = Values::of("github", config);
        let secret = secrets.get("webhookSecret").map_or("", String::as_str);
        let check = SignatureCheck::new(SIGNATURE_HEADER, "sha256=".to_owned(), secret);
        let api = match secrets.get("token") {
            None => None,
            Some(token) => Some(Arc::new(Api::new(
                http::service_client()?,
                values.text("endpoint").unwrap_or_default(),
                token.clone(),
                written_to(&values, "repositories"),
            ))),
        };
        Ok(Self {
            http_endpoint: HttpEndpoint::new(&values),
            check: check.ok_or("failed to use the secret `webhookSecret`")?,
            repositories: values.names("repositories"),
            api,
        })
    }

    fn to_meaning(
        &self,
        received: &RawRequest<'_>,
        body: &Value,
    ) -> Result<InboundRequest, MalformedRequest> {
        let ignored = |reason| Ok(InboundRequest::Answer(DirectResponse::ignored(reason)));
        let name = header(received.headers, &EVENT_HEADER)?;
        let delivery = header(received.headers, &DELIVERY_HEADER)?;
        if name == "ping" {
            let zen = text(body, "/zen").unwrap_or_default();
            return Ok(InboundRequest::Answer(DirectResponse::ok(
                json!({"pong": zen}),
            )));
        }
        let repository = text(body, "/repository/full_name");
        if !is_allowed(self.repositories.as_deref(), repository.unwrap_or_default()) {
            return ignored("the repository is not one of `repositories`");
        }
        let said = ["/comment/body", "/review/body"].map(|pointer| text(body, pointer));
        if said.iter().flatten().any(|said| said.contains(OWN_MARK)) {
            return ignored("goondan wrote it");
        }
        let number = number_of(body);
        let place = repository.or_else(|| text(body, "/organization/login"));
        let key = match (place, number) {
            (Some(place), Some(number)) => Some(format!("github:{place}#{number}")),
            (Some(place), None) => Some(format!("github:{place}")),
            (None, _) => None,
        };
        let mut metadata = JsonObject::from_iter([("delivery".to_owned(), json!(delivery))]);
        add_payload(&mut metadata, body);
        let fact = |pointer: &str| body.pointer(pointer);
        for (name, value) in [
            ("repository", fact("/repository/full_name")),
            // Review comments are a different type of comment.
            (
                "commentId",
                fact("/comment/id").filter(|_| name == "issue_comment"),
            ),
        ] {
            if let Some(value) = value {
                metadata.insert(name.to_owned(), value.clone());
            }
        }
        let mut properties = properties([
            ("action", fact("/action")),
            ("repository", fact("/repository/full_name")),
            ("sender", fact("/sender/login")),
            ("senderType", fact("/sender/type")),
            ("ref", fact("/ref")),
        ]);
        properties.insert("event".to_owned(), json!(name));
        properties.extend(older_properties([("repo", fact("/repository/full_name"))]));
        if let Some(number) = number {
            properties.insert("number".to_owned(), json!(number));
            metadata.insert("number".to_owned(), json!(number));
        }
        Ok(InboundRequest::Event(Box::new(ConnectorEvent {
            id: Some(event_id(delivery)?),
            name: name.to_owned(),
            input: texts::of(name, body),
            instance_key: key.as_deref().map(instance_key).transpose()?,
            properties,
            auth: text(body, "/sender/login").map(|login| {
                JsonObject::from_iter([
                    ("service".to_owned(), json!("github")),
                    ("user".to_owned(), json!(login)),
                ])
            }),
            metadata,
        })))
    }
}

/// Number of the issue or pull request concerned.
fn number_of(body: &Value) -> Option<u64> {
    [
        "/issue/number",
        "/pull_request/number",
        "/discussion/number",
    ]
    .iter()
    .find_map(|pointer| body.pointer(pointer)?.as_u64())
}

impl InboundService for GitHub {
    fn http_endpoint(&self) -> &HttpEndpoint {
        &self.http_endpoint
    }

    fn outbox(&self) -> Option<Arc<dyn Outbox>> {
        self.api.as_ref().map(outbox_of)
    }

    fn read(&self, received: &RawRequest<'_>) -> Result<InboundRequest, RequestRejection> {
        self.check.check(received.headers, received.body)?;
        let body = json_or_form(received.headers, received.body)?;
        Ok(self.to_meaning(received, &body)?)
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderMap;
    use hmac::{Hmac, Mac as _};
    use sha2::Sha256;

    use super::*;
    use crate::limits::PAYLOAD_BYTES_MAX;

    fn read(config: &Value, name: &str, body: &Value) -> Result<InboundRequest, RequestRejection> {
        let secrets = BTreeMap::from([("webhookSecret".to_owned(), "s".to_owned())]);
        let github = GitHub::new(config.as_object().unwrap(), &secrets).unwrap();
        let body = body.to_string();
        let keyed = Hmac::<Sha256>::new_from_slice(b"s").unwrap();
        let mac = keyed.chain_update(&body).finalize().into_bytes();
        let mut headers = HeaderMap::new();
        headers.insert(EVENT_HEADER, name.parse().unwrap());
        headers.insert(DELIVERY_HEADER, "d-1".parse().unwrap());
        let signature = format!("sha256={}", hex::encode(mac));
        headers.insert(SIGNATURE_HEADER, signature.parse().unwrap());
        github.read(&RawRequest {
            method: "POST",
            path: "/",
            remote: "127.0.0.1:5".parse().unwrap(),
            headers: &headers,
            body: body.as_bytes(),
            now_s: 0,
        })
    }

    fn event(name: &str, body: &Value) -> ConnectorEvent {
        match read(&json!({}), name, body).unwrap() {
            InboundRequest::Event(event) => *event,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_issue_is_a_conversation_of_its_repository() {
        let body = json!({"action": "opened", "issue": {"number": 7, "title": "It breaks",
            "body": "Badly.", "html_url": "https://github.com/a/b/issues/7"},
            "repository": {"full_name": "a/b"}, "sender": {"login": "ann", "type": "User"}});
        let found = event("issues", &body);
        assert_eq!(found.id.unwrap().as_str(), "d-1");
        assert_eq!(found.name, "issues");
        assert_eq!(found.instance_key.unwrap().as_str(), "github:a/b#7");
        assert_eq!(found.properties["event"], "issues");
        assert_eq!(found.properties["action"], "opened");
        assert_eq!(found.properties["number"], 7);
        assert_eq!(found.metadata["payload"], body);
        assert_eq!(found.metadata["repository"], "a/b");
        assert_eq!(found.metadata["number"], 7);
        assert_eq!(
            found.input,
            "ann opened issue a/b#7: It breaks\nhttps://github.com/a/b/issues/7\n\nBadly."
        );
    }

    #[test]
    fn push_event_belongs_to_its_repository_and_shortens_large_payload() {
        let body = json!({"ref": "refs/heads/main", "repository": {"full_name": "a/b"},
            "sender": {"login": "ann"}, "filler": "x".repeat(PAYLOAD_BYTES_MAX),
            "commits": [{"id": "0123456789abcdef", "message": "Mend it\n\nAt last."}]});
        let found = event("push", &body);
        assert_eq!(found.instance_key.unwrap().as_str(), "github:a/b");
        assert_eq!(
            found.input,
            "ann pushed 1 commit to refs/heads/main of a/b\n\n0123456 Mend it"
        );
        assert_eq!(found.metadata["payload"]["ref"], "refs/heads/main");
        assert!(found.metadata["payloadBytes"].is_u64());
    }

    #[test]
    fn github_deliveries_without_an_event_are_answered() {
        let answered = |config: Value, name, body: Value| match read(&config, name, &body).unwrap()
        {
            InboundRequest::Answer(answer) => answer.body.to_string(),
            other => panic!("{other:?}"),
        };
        let ping = answered(
            json!({}),
            "ping",
            json!({"zen": "Keep it logically awesome."}),
        );
        assert!(ping.contains("awesome"), "{ping}");
        let own = json!({"comment": {"body": format!("Done. {OWN_MARK}")}});
        let own = answered(json!({}), "issue_comment", own);
        assert!(own.contains("goondan wrote it"), "{own}");
        let other = json!({"repository": {"full_name": "c/d"}});
        let other = answered(json!({"repositories": ["a/b"]}), "push", other);
        assert!(other.contains("not one of"), "{other}");
    }
}
