//! Whole requests to webhooks with presets: challenges, compression, answers.

use std::io::Write as _;

use axum::http::{HeaderMap, HeaderName};
use flate2::Compression;
use flate2::write::GzEncoder;
use goondan_protocol::ids::EventId;
use goondan_protocol::trace::{SpanId, TraceId};
use hmac::{Hmac, Mac as _};
use sha2::Sha256;

use super::*;

fn webhook(preset: &str, secret: &str) -> Webhook {
    let config = json!({"signature": {"preset": preset}});
    let secrets = BTreeMap::from([("hmac".to_owned(), secret.to_owned())]);
    Webhook::new(config.as_object().unwrap(), &secrets)
}

fn mac(secret: &str, text: &[u8]) -> String {
    let keyed = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    hex::encode(keyed.chain_update(text).finalize().into_bytes())
}

async fn receive(
    webhook: &Webhook,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Result<InboundRequest, RequestRejection> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let name: HeaderName = name.parse().unwrap();
        map.append(name, value.parse().unwrap());
    }
    let received = RawRequest {
        method: "POST",
        path: "/",
        remote: "127.0.0.1:5".parse().unwrap(),
        headers: &map,
        body,
        now_s: 1_600_000_000,
    };
    let uri = Uri::from_static("/");
    webhook.authenticate(&received, &uri).await?;
    webhook.read(&received)
}

#[tokio::test]
async fn conn_3_zoom_challenge_is_answered_only_if_signed() {
    let body =
        r#"{"event":"endpoint.url_validation","payload":{"plainToken":"qgg8vlvZRS6UYooatFL8Aw"}}"#;
    let signature = format!(
        "v0={}",
        mac("secret", format!("v0:1600000000:{body}").as_bytes())
    );
    let headers = [
        ("x-zm-request-timestamp", "1600000000"),
        ("x-zm-signature", signature.as_str()),
    ];
    let zoom = webhook("zoom", "secret");
    let answer = receive(&zoom, &headers, body.as_bytes()).await.unwrap();
    let expected = json!({
        "plainToken": "qgg8vlvZRS6UYooatFL8Aw",
        "encryptedToken": "72cef096bfd47c0b8664df30d07721641e4abd7e885ba432204260db477a9a3e",
    });
    assert_eq!(answer, InboundRequest::Answer(DirectResponse::ok(expected)));
    let refused = receive(&zoom, &headers[..1], body.as_bytes())
        .await
        .unwrap_err();
    assert_eq!(refused.status().0, 401);
}

#[tokio::test]
async fn conn_3_slack_challenge_is_answered() {
    let body = r#"{"type":"url_verification","challenge":"c"}"#;
    let signature = format!(
        "v0={}",
        mac("secret", format!("v0:1600000000:{body}").as_bytes())
    );
    let headers = [
        ("x-slack-request-timestamp", "1600000000"),
        ("x-slack-signature", signature.as_str()),
    ];
    let answer = receive(&webhook("slack", "secret"), &headers, body.as_bytes()).await;
    let expected = DirectResponse::ok(json!({"challenge": "c"}));
    let expected = InboundRequest::Answer(expected);
    assert_eq!(answer.unwrap(), expected);
    // Without the preset, too: other services use the same words.
    let plain = Webhook::new(&JsonObject::new(), &BTreeMap::new());
    let answer = receive(&plain, &[], body.as_bytes()).await.unwrap();
    assert_eq!(answer, expected);
}

#[tokio::test]
async fn conn_3_compressed_body_is_signed_before_or_after() {
    let body = br#"{"text":"hi"}"#;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).unwrap();
    let gzip = encoder.finish().unwrap();
    let github = webhook("github", "secret");
    for signed in [&body[..], &gzip] {
        let signature = format!("sha256={}", mac("secret", signed));
        let headers = [
            ("content-encoding", "gzip"),
            ("x-hub-signature-256", &signature),
        ];
        match receive(&github, &headers, &gzip).await.unwrap() {
            InboundRequest::Event(event) => assert_eq!(event.input, "hi"),
            other => panic!("{other:?}"),
        }
    }
    let signature = format!("sha256={}", mac("secret", b"other"));
    let headers = [
        ("content-encoding", "gzip"),
        ("x-hub-signature-256", &signature),
    ];
    for body in [gzip.as_slice(), b"not gzip"] {
        let refused = receive(&github, &headers, body).await.unwrap_err();
        assert_eq!(refused.status().0, 401);
    }
}

#[test]
fn conn_3_accepted_events_have_the_status_that_the_service_expects() {
    let accepted = EventAccepted {
        event_id: EventId::new("e").unwrap(),
        duplicate: false,
        instance_key: None,
    };
    let trace = TraceContext::root(TraceId::from_random([1; 16]), SpanId::from_random([2; 8]));
    for preset in &goondan_connectors::signatures::PRESETS {
        let webhook = webhook(preset.name, "whsec_AQIDBA==");
        let answer = webhook.on_accepted(&accepted, trace);
        assert_eq!(answer.status.as_u16(), preset.status, "{}", preset.name);
        let has_body = answer.status != StatusCode::NO_CONTENT;
        assert_eq!(!answer.body.is_null(), has_body, "{}", preset.name);
    }
    assert_eq!(webhook("zoom", "s").reply_timeout().as_millis(), 2_500);
    assert_eq!(webhook("stripe", "s").reply_timeout().as_millis(), 30_000);
}

#[tokio::test]
async fn conn_3_basic_asks_for_a_password() {
    let basic = webhook("basic", "ada:secret");
    let refused = receive(&basic, &[], b"hi").await.unwrap_err();
    let outcome = RequestRejection::NotSigned(SignatureError::Missing {
        header: axum::http::header::AUTHORIZATION,
    });
    assert_eq!(refused.to_string(), outcome.to_string());
}
