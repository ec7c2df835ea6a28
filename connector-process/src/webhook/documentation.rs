//! Checks `docs/connectors.md` against the code.

use std::collections::BTreeMap;

use axum::http::{HeaderMap, HeaderName};
use goondan_protocol::JsonObject;
use goondan_protocol::ids::InstanceKey;
use goondan_protocol::ipc::{EventRefused, RefusalCode};

use super::WebhookSettings;
use super::event_input::{ID_HEADERS, INPUT_FIELDS, KEY_HEADER};
use crate::limits::{
    BODY_BYTES_HELD_MAX, BODY_RATE_GRACE_MS, BODY_RATE_MIN_BYTES_S, BODY_READ_TIMEOUT_MS,
    CONNECTIONS_MAX, HEADER_READ_TIMEOUT_MS, PROPERTIES_MAX, PROPERTY_BYTES_MAX,
    REQUESTS_IN_FLIGHT_MAX,
};
use crate::listener::{MalformedRequest, RequestRejection, SignatureError};

const PAGE: &str = include_str!("../../../docs/connectors.md");

/// The value behind `name=` in the page's signature example.
fn example(name: &str) -> &'static str {
    let start = format!("{name}='");
    let line = PAGE.lines().find_map(|line| line.strip_prefix(&start));
    let value = line.and_then(|rest| rest.strip_suffix('\''));
    value.unwrap_or_else(|| panic!("docs/connectors.md sets no {name}"))
}

#[test]
fn every_header_input_field_and_limit_is_named() {
    let words: Vec<&str> = PAGE.split_whitespace().collect();
    let page = words.join(" ").to_ascii_lowercase();
    for header in ID_HEADERS.iter().chain([&KEY_HEADER]) {
        assert!(page.contains(&format!("`{header}`")), "{header}");
    }
    let fields = INPUT_FIELDS.map(|field| format!("`{field}`")).join(", ");
    assert!(page.contains(&fields), "{fields}");
    for limit in [
        format!("{CONNECTIONS_MAX} connections"),
        format!("{REQUESTS_IN_FLIGHT_MAX} requests"),
        format!(
            "{} seconds for a request's head",
            HEADER_READ_TIMEOUT_MS / 1000
        ),
        format!("{} seconds for its body", BODY_READ_TIMEOUT_MS / 1000),
        format!("after {} seconds the body", BODY_RATE_GRACE_MS / 1000),
        format!("{BODY_RATE_MIN_BYTES_S} bytes a second"),
        format!("{} mib together", BODY_BYTES_HELD_MAX / (1024 * 1024)),
        format!("first {PROPERTIES_MAX}"),
        format!("{PROPERTY_BYTES_MAX} bytes"),
    ] {
        assert!(page.contains(&limit), "{limit}");
    }
}

#[test]
fn every_answer_has_an_item_with_its_code() {
    let header = HeaderName::from_static("x-signature");
    let field = String::from("f");
    let id = || InstanceKey::new("").unwrap_err();
    let not_text = std::str::from_utf8(b"\xff".as_slice()).unwrap_err();
    let not_json = serde_json::from_str::<u8>("x").unwrap_err();
    let malformed = [
        MalformedRequest::NotText(not_text),
        MalformedRequest::NotJson(not_json),
        MalformedRequest::EmptyInput,
        MalformedRequest::NoInput {
            field: field.clone(),
        },
        MalformedRequest::NotAName { field },
        MalformedRequest::BadHeader {
            header: header.clone(),
        },
        MalformedRequest::NoHeader {
            header: header.clone(),
        },
        MalformedRequest::NoField { field: "f" },
        MalformedRequest::BadKey(id()),
        MalformedRequest::BadId(id()),
    ];
    let by_orchestrator = [
        RefusalCode::Invalid,
        RefusalCode::Unroutable,
        RefusalCode::Overloaded,
        RefusalCode::Unavailable,
        RefusalCode::Damaged,
    ]
    .map(|code| EventRefused {
        code,
        message: String::new(),
    });
    let own = [
        RequestRejection::NotFound,
        RequestRejection::WrongMethod { allowed: "POST" },
        RequestRejection::TooLarge { max: 1 },
        RequestRejection::TooSlow { timeout_ms: 1 },
        RequestRejection::BrokenBody(axum::Error::new(std::io::Error::other("broken"))),
        RequestRejection::NotSigned(SignatureError::Stale {
            header: header.clone(),
            window_s: 1,
        }),
        RequestRejection::NotSigned(SignatureError::Missing { header }),
        RequestRejection::Busy,
        RequestRejection::NoPlace,
        RequestRejection::NotPromised {
            reason: String::new(),
        },
        RequestRejection::Stopping,
    ];
    let refusals = own
        .into_iter()
        .chain(malformed.map(RequestRejection::Malformed))
        .chain(by_orchestrator.map(RequestRejection::ByOrchestrator));
    for refusal in refusals {
        let (status, code) = refusal.status();
        let start = format!("{} `", status.as_u16());
        let item = PAGE.split("\n* ").find(|item| item.starts_with(&start));
        let item = item.unwrap_or_else(|| panic!("no item for {status}"));
        let (codes, _) = item.split_once(": ").unwrap();
        assert!(
            codes.contains(&format!("`{code}`")),
            "{code} is not in {codes}"
        );
    }
}

#[test]
fn the_signature_example_is_right() {
    let (secret, body, signature) = (example("SECRET"), example("BODY"), example("SIGNATURE"));
    let secrets = BTreeMap::from([("hmac".to_owned(), secret.to_owned())]);
    let settings = WebhookSettings::new(&JsonObject::new(), &secrets);
    let check = settings.signature.unwrap();
    let mut headers = HeaderMap::new();
    headers.insert("x-hub-signature-256", signature.parse().unwrap());
    assert_eq!(check.check(&headers, body.as_bytes()), Ok(()));
}
