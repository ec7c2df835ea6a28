//! GitHub webhooks: activity in a repository becomes an event.
//!
//! * `sentences`: the sentence of each event and action; `phrases`: parts of it.
//! * `texts`: the input: the sentence, the link, and what was written.
//! * `properties`: values for ingress rules.
//! * `repositories`: the repositories listened to.
//! * `actions`, `pull_requests`: actions of agents.

mod actions;
mod phrases;
mod properties;
mod pull_requests;
mod repositories;
mod sentences;
mod texts;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use axum::http::HeaderName;
use goondan_connectors::Values;
use goondan_protocol::JsonObject;
use goondan_protocol::event::{ConnectorEvent, PAYLOAD_BYTES};
use goondan_protocol::ignored_messages::IgnoreReason;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use self::actions::Api;
#[cfg(test)]
pub(crate) use self::properties::PROPERTIES;
use self::repositories::Repositories;
use crate::gateway::Gateway;
use crate::http;
use crate::limits::PAYLOAD_BYTES_MAX;
use crate::listener::{
    self, DirectResponse, HttpEndpoint, InboundRequest, InboundService, MalformedRequest, Outbox,
    RawRequest, RequestRejection, SignatureCheck,
};
use crate::own_mark::OWN_MARK;
use crate::payload::{
    add_payload, event_id, header, instance_key, json_or_form, older_properties, text,
};
use crate::service_api::outbox_of;

const SIGNATURE_HEADER: HeaderName = HeaderName::from_static("x-hub-signature-256");
const EVENT_HEADER: HeaderName = HeaderName::from_static("x-github-event");
const DELIVERY_HEADER: HeaderName = HeaderName::from_static("x-github-delivery");

/// JSON Pointers of the account of an event without a repository.
const ACCOUNTS: &[&str] = &[
    "/organization/login",
    "/installation/account/login",
    "/installation/account/slug",
    "/sponsorship/sponsorable/login",
    "/marketplace_purchase/account/login",
    "/account/login",
    "/enterprise/slug",
];

/// JSON Pointers of lists of repositories in events about several.
const REPOSITORY_LISTS: &[&str] = &[
    "/repositories",
    "/repositories_added",
    "/repositories_removed",
];

pub(crate) struct GitHub {
    http_endpoint: HttpEndpoint,
    check: SignatureCheck,
    /// The only repositories that are listened to; `None` for all.
    repositories: Option<Arc<Repositories>>,
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
        let repositories = values.names("repositories").map(|listed| {
            let written_to = values.names("sendTo").unwrap_or_default();
            Arc::new(Repositories::new(&listed, &written_to))
        });
        let api = match secrets.get("token") {
            None => None,
            Some(token) => Some(Arc::new(Api::new(
                http::service_client()?,
                values.text("endpoint").unwrap_or_default(),
                token.clone(),
                repositories.clone(),
            ))),
        };
        Ok(Self {
            http_endpoint: HttpEndpoint::new(&values),
            check: check.ok_or("failed to use the secret `webhookSecret`")?,
            repositories,
            api,
        })
    }

    /// Serves requests until `stop`.
    pub(crate) async fn run(self, gateway: Gateway, stop: CancellationToken) {
        let repositories = self.repositories.clone();
        let service = Arc::new(self);
        let Some(repositories) = repositories else {
            return listener::run(service, gateway, stop).await;
        };
        repositories.load(&gateway).await;
        tokio::select! {
            () = listener::run(service, gateway.clone(), stop) => {}
            // Never completes.
            () = repositories.keep(&gateway) => {}
        }
    }

    fn to_meaning(
        &self,
        received: &RawRequest<'_>,
        body: &Value,
    ) -> Result<InboundRequest, MalformedRequest> {
        let name = header(received.headers, &EVENT_HEADER)?;
        let delivery = header(received.headers, &DELIVERY_HEADER)?;
        if let Some(answer) = self.answer(name, body) {
            return Ok(InboundRequest::Answer(answer));
        }
        let repository = text(body, "/repository/full_name");
        let account = || ACCOUNTS.iter().find_map(|pointer| text(body, pointer));
        let place = repository.or_else(account).map(str::to_lowercase);
        let number = number_of(body);
        let key = match (place, number) {
            (Some(place), Some(number)) => Some(format!("github:{place}#{number}")),
            (Some(place), None) => Some(format!("github:{place}")),
            (None, _) => None,
        };
        let mut properties = properties::of(name, number, body);
        properties.extend(older_properties([(
            "repo",
            body.pointer("/repository/full_name"),
        )]));
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
            metadata: metadata(received.body.len(), (name, delivery, number), body),
        })))
    }

    /// The answer to a delivery that becomes no event.
    fn answer(&self, name: &str, body: &Value) -> Option<DirectResponse> {
        if name == "ping" {
            let zen = text(body, "/zen").unwrap_or_default();
            let pong = DirectResponse::ok(json!({"pong": zen}));
            return Some(pong.counted_as(IgnoreReason::Ping));
        }
        let repositories = self.repositories.as_ref();
        if repositories.is_some_and(|repositories| !repositories.has_event(body)) {
            return Some(DirectResponse::ignored(
                IgnoreReason::OtherPlace,
                "the repository is not one of `repositories`",
            ));
        }
        // Agents delete nothing, so a deletion of their text is a person's.
        let is_gone = matches!(text(body, "/action"), Some("deleted" | "dismissed"));
        let said = ["/comment/body", "/review/body"].map(|pointer| text(body, pointer));
        let is_own = said.iter().flatten().any(|said| said.contains(OWN_MARK));
        (is_own && !is_gone).then(|| DirectResponse::ignored(IgnoreReason::Own, "goondan wrote it"))
    }
}

fn metadata(
    body_bytes: usize,
    (name, delivery, number): (&str, &str, Option<u64>),
    body: &Value,
) -> JsonObject {
    let mut metadata = JsonObject::from_iter([("delivery".to_owned(), json!(delivery))]);
    add_payload(&mut metadata, body);
    if metadata.contains_key(PAYLOAD_BYTES) || body_bytes > PAYLOAD_BYTES_MAX {
        // The body may have been shortened while it was parsed.
        metadata.insert(PAYLOAD_BYTES.to_owned(), json!(body_bytes));
    }
    // Review comments are a different type of comment.
    let comment = (name == "issue_comment").then_some("/comment/id");
    for (name, pointer) in [
        ("repository", Some("/repository/full_name")),
        ("commentId", comment),
    ] {
        if let Some(value) = pointer.and_then(|pointer| body.pointer(pointer)) {
            metadata.insert(name.to_owned(), value.clone());
        }
    }
    if let Some(number) = number {
        metadata.insert("number".to_owned(), json!(number));
    }
    metadata
}

/// Number of the issue, pull request or discussion concerned.
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
            "ann opened issue #7 \"It breaks\" in a/b\nhttps://github.com/a/b/issues/7\n\nBadly."
        );
    }

    #[test]
    fn conn_1_push_event_keeps_the_useful_part_of_a_large_payload() {
        let commit = |n: usize| {
            json!({"id": format!("{n:040}"), "message": format!("Mend {n}\n\nAt last."),
            "added": vec!["f"; 500], "patch": "x".repeat(10_000)})
        };
        let commits: Vec<Value> = (0..2_048).map(commit).collect();
        let body = json!({"ref": "refs/heads/main", "commits": commits,
            "repository": {"full_name": "A/b"}, "sender": {"login": "ann"}});
        let found = event("push", &body);
        assert_eq!(found.instance_key.unwrap().as_str(), "github:a/b");
        let mut lines = found.input.lines();
        assert_eq!(
            lines.next(),
            Some("ann pushed 2048 commits to branch main of A/b")
        );
        assert_eq!(lines.nth(1), Some("0000000 Mend 0"));
        assert_eq!(lines.last(), Some("and 2028 more"));
        assert!(found.metadata["payloadBytes"].as_u64().unwrap() > 20_000_000);
        let kept = &found.metadata["payload"];
        assert!(kept.to_string().len() <= PAYLOAD_BYTES_MAX);
        assert_eq!(kept["sender"]["login"], "ann");
        assert!(kept["commits"].as_array().unwrap().len() > 2);
    }

    #[test]
    fn conn_1_repository_is_compared_without_regard_to_case() {
        let body = json!({"action": "opened", "issue": {"number": 5, "title": "t"},
            "repository": {"full_name": "Ada/Shelf"}, "sender": {"login": "ada", "type": "User"}});
        let listed = json!({"repositories": ["ada/SHELF"]});
        let InboundRequest::Event(found) = read(&listed, "issues", &body).unwrap() else {
            panic!("it is ignored");
        };
        assert_eq!(found.instance_key.unwrap().as_str(), "github:ada/shelf#5");
        assert_eq!(found.properties["repository"], "Ada/Shelf");
    }

    #[test]
    fn conn_1_event_without_a_repository_belongs_to_its_account() {
        let body = json!({"action": "created", "installation": {"account": {"login": "Ada"},
            "app_slug": "helper", "repository_selection": "selected"},
            "repositories": [{"full_name": "ada/shelf"}], "sender": {"login": "ada"}});
        let found = event("installation", &body);
        assert_eq!(found.instance_key.unwrap().as_str(), "github:ada");
        let advisory = json!({"action": "published", "security_advisory": {"ghsa_id": "G",
            "summary": "s"}});
        let found = event("security_advisory", &advisory);
        assert_eq!(found.instance_key, None);
        assert_eq!(
            found.input,
            "GitHub published the security advisory G \"s\""
        );
    }

    #[test]
    fn github_deliveries_without_an_event_are_answered() {
        let answered = |config: Value, name, body: Value| match read(&config, name, &body).unwrap()
        {
            InboundRequest::Answer(answer) => {
                format!("{:?} {}", answer.ignored.unwrap(), answer.body)
            }
            other => panic!("{other:?}"),
        };
        let ping = answered(
            json!({}),
            "ping",
            json!({"zen": "Keep it logically awesome."}),
        );
        assert!(
            ping.starts_with("Ping") && ping.contains("awesome"),
            "{ping}"
        );
        let mut own =
            json!({"action": "created", "comment": {"body": format!("Done. {OWN_MARK}")}});
        let said = answered(json!({}), "issue_comment", own.clone());
        assert!(said.contains("goondan wrote it"), "{said}");
        own["action"] = json!("deleted");
        own["sender"] = json!({"login": "ann"});
        assert!(
            event("issue_comment", &own)
                .input
                .starts_with("ann deleted a comment on issue")
        );
        let other = json!({"repository": {"full_name": "c/d"}});
        let other = answered(json!({"repositories": ["a/b"]}), "push", other);
        assert!(other.starts_with("OtherPlace"), "{other}");
    }
}
