//! Answers to services that check an address before they send events to it. Pure.
//!
//! An answer proves nothing and needs no signature: it repeats what the sender said. The checks that
//! are in a signed body belong to the presets of `goondan_connectors::signatures`.

use axum::http::header::HeaderName;
use axum::http::{HeaderMap, HeaderValue, Method, Uri};
use serde_json::{Value, json};

use crate::limits::CHALLENGE_BYTES_MAX;
use crate::listener::CheckAnswer;
use crate::payload::form_pairs;

/// Header of Okta.
const OKTA: HeaderName = HeaderName::from_static("x-okta-verification-challenge");

/// The sender of CloudEvents asks for permission (HTTP 1.1 Web Hooks for Event Delivery, 4).
const ORIGIN: HeaderName = HeaderName::from_static("webhook-request-origin");
/// Header with the permission.
const ALLOWED_ORIGIN: HeaderName = HeaderName::from_static("webhook-allowed-origin");

/// Parameters whose value is the answer to a `GET`: of Meta and `WebSub`, and of Dropbox and Nylas.
const CHALLENGES: [&str; 2] = ["hub.challenge", "challenge"];

/// Parameter whose value is the answer to a `POST`: of Microsoft Graph.
const VALIDATION_TOKEN: &str = "validationToken";

/// The type of Azure Event Grid's first event.
const EVENT_GRID: &str = "Microsoft.EventGrid.SubscriptionValidationEvent";

/// The answer to an address check in the head of a request; `None` if the request is not a check.
pub(super) fn answer_to(method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<CheckAnswer> {
    let query = uri.query().unwrap_or_default();
    match *method {
        // Trello, Mandrill and Mailchimp only check that the address exists.
        Method::HEAD => Some(CheckAnswer::text("")),
        Method::GET => {
            if let Some(challenge) = headers.get(OKTA).and_then(|it| it.to_str().ok()) {
                let answer = json!({"verification": short(challenge)?});
                return Some(CheckAnswer::json(&answer));
            }
            match parameter(query, &CHALLENGES) {
                Some(challenge) => Some(CheckAnswer::text(&challenge)),
                None if query.is_empty() => {
                    Some(CheckAnswer::text("This address takes POST requests.\n"))
                }
                None => None,
            }
        }
        Method::POST => {
            let token = parameter(query, &[VALIDATION_TOKEN])?;
            Some(CheckAnswer::text(&token))
        }
        Method::OPTIONS => {
            let origin = headers.get(ORIGIN)?.to_str().ok()?;
            let allowed = HeaderValue::from_str(short(origin)?).ok()?;
            Some(CheckAnswer::text("").with(ALLOWED_ORIGIN, allowed))
        }
        _ => None,
    }
}

/// The answer to an address check in the body of a request; `None` if the body is an event.
pub(super) fn answer_to_body(body: &[u8]) -> Option<Value> {
    if body.len() > CHALLENGE_BYTES_MAX {
        return None;
    }
    match serde_json::from_slice(body).ok()? {
        // From monday.com, and from Slack and Lark without a preset.
        Value::Object(message) => {
            let challenge = message.get("challenge")?.as_str()?;
            let kind = message.get("type").and_then(Value::as_str);
            let is_check = message.len() == 1 || kind == Some("url_verification");
            is_check.then(|| json!({"challenge": challenge}))
        }
        Value::Array(events) => {
            let event = events.first().filter(|_| events.len() == 1)?;
            let kind = event.get("eventType")?.as_str()?;
            let code = event.pointer("/data/validationCode")?.as_str()?;
            (kind == EVENT_GRID).then(|| json!({"validationResponse": code}))
        }
        _ => None,
    }
}

/// The value of the first name in `names` that is a parameter of a query.
fn parameter(query: &str, names: &[&str]) -> Option<String> {
    let pairs = form_pairs(query);
    let found = names.iter().find_map(|wanted| {
        let mut of_name = pairs.iter().filter(|(name, _)| name == wanted);
        of_name.next().map(|(_, value)| value.clone())
    })?;
    short(&found)?;
    Some(found)
}

fn short(text: &str) -> Option<&str> {
    (text.len() <= CHALLENGE_BYTES_MAX).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(method: &str, uri: &str, headers: &[(HeaderName, &str)]) -> Option<CheckAnswer> {
        let headers = headers.iter().cloned();
        let headers = headers.map(|(name, value)| (name, value.parse().unwrap()));
        answer_to(
            &method.parse().unwrap(),
            &uri.parse().unwrap(),
            &headers.collect(),
        )
    }

    #[test]
    fn conn_3_services_that_check_the_address_get_the_answer_they_want() {
        let meta = "/in?hub.mode=subscribe&hub.verify_token=t&hub.challenge=1158201444";
        let dropbox = "/in?challenge=a%20b%2Bc";
        let graph = "/in?validationToken=Validation%3a+Testing";
        for (method, uri, answer) in [
            ("GET", meta, "1158201444"),
            ("GET", dropbox, "a b+c"),
            ("POST", graph, "Validation: Testing"),
            ("HEAD", "/in", ""),
            ("GET", "/in", "This address takes POST requests.\n"),
        ] {
            assert_eq!(
                asked(method, uri, &[]),
                Some(CheckAnswer::text(answer)),
                "{uri}"
            );
        }
        let okta = asked("GET", "/in", &[(OKTA, "x")]);
        assert_eq!(okta, Some(CheckAnswer::json(&json!({"verification": "x"}))));
        let allowed = asked("OPTIONS", "/in", &[(ORIGIN, "eventgrid.azure.net")]).unwrap();
        let expected = HeaderValue::from_static("eventgrid.azure.net");
        assert_eq!(allowed.header, Some((ALLOWED_ORIGIN, expected)));
        for (method, uri) in [
            ("POST", "/in"),
            ("POST", "/in?challenge=x"),
            ("GET", "/in?code=x&state=y"),
            ("OPTIONS", "/in"),
            ("PUT", "/in?challenge=x"),
        ] {
            assert_eq!(asked(method, uri, &[]), None, "{method} {uri}");
        }
        let long = format!("/in?challenge={}", "x".repeat(CHALLENGE_BYTES_MAX + 1));
        assert_eq!(asked("GET", &long, &[]), None);
    }

    #[test]
    fn conn_3_checks_in_bodies_are_told_from_events() {
        let grid = json!([{"eventType": EVENT_GRID, "data": {"validationCode": "c"}}]);
        for (body, answer) in [
            (json!({"challenge": "c"}), json!({"challenge": "c"})),
            (
                json!({"challenge": "c", "type": "url_verification", "token": "t"}),
                json!({"challenge": "c"}),
            ),
            (grid, json!({"validationResponse": "c"})),
        ] {
            assert_eq!(
                answer_to_body(body.to_string().as_bytes()),
                Some(answer),
                "{body}"
            );
        }
        for event in [
            json!({"challenge": "chess", "player": "ada"}),
            json!({"challenge": 7}),
            json!([{"eventType": "Microsoft.Storage.BlobCreated", "data": {}}]),
            json!("c"),
        ] {
            assert_eq!(
                answer_to_body(event.to_string().as_bytes()),
                None,
                "{event}"
            );
        }
        let long = json!({"challenge": "x".repeat(CHALLENGE_BYTES_MAX)});
        assert_eq!(answer_to_body(long.to_string().as_bytes()), None);
    }
}
