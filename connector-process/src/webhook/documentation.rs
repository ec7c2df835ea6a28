//! Checks `docs/connectors.md` against the code.

use std::collections::BTreeMap;

use axum::http::{HeaderMap, HeaderName, Uri};
use goondan_connectors::signatures::{
    Challenge, HashAlgorithm, PRESETS, SignatureEncoding, SignaturePreset, SignatureScheme,
    SignedTime, TOLERANCE_S, ValueSource,
};
use goondan_protocol::JsonObject;
use goondan_protocol::ids::InstanceKey;
use goondan_protocol::ipc::{EventRefused, RefusalCode};

use super::WebhookSettings;
use super::event_input::{
    ID_HEADERS, INPUT_FIELDS, KEY_HEADER, MORE_ID_HEADERS, MORE_TYPE_HEADERS,
};
use super::verifier::SignedRequest;
use crate::limits::{
    BODY_BYTES_HELD_MAX, BODY_RATE_GRACE_MS, BODY_RATE_MIN_BYTES_S, BODY_READ_TIMEOUT_MS,
    CONNECTIONS_MAX, HEADER_READ_TIMEOUT_MS, HEADERS_MAX, HEADERS_PARSED_MAX, PROPERTIES_MAX,
    PROPERTY_BYTES_MAX, REQUESTS_IN_FLIGHT_MAX, SWIFT_REPLY_TIMEOUT_MS,
};
use crate::listener::{MalformedRequest, RequestRejection, SignatureError};

const PAGE: &str = include_str!("../../../docs/connectors.md");

/// The page with the signature presets and the forms of bodies.
const PRESETS_PAGE: &str = include_str!("../../../docs/connectors/webhook.md");

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
        format!("more than {HEADERS_PARSED_MAX} headers"),
        format!("more than {HEADERS_MAX} headers"),
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
        MalformedRequest::NotInCharset {
            charset: "UTF-16LE",
        },
        MalformedRequest::NotJson(not_json),
        MalformedRequest::NotCompressed,
        MalformedRequest::NotMultipart {
            reason: String::new(),
        },
        MalformedRequest::NotBatch,
        MalformedRequest::LargeBatch { events: 2, max: 1 },
        MalformedRequest::NotCloudEvent,
        MalformedRequest::InBatch {
            index: 0,
            reason: Box::new(MalformedRequest::EmptyInput),
        },
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
    .map(|code| EventRefused::new(code, ""));
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
        RequestRejection::UnknownEncoding,
        RequestRejection::TooManyHeaders { max: 1 },
        RequestRejection::ServiceUnreachable {
            purpose: "x",
            reason: String::new(),
        },
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
    let verifier = settings.verifier.unwrap();
    let mut headers = HeaderMap::new();
    headers.insert("x-hub-signature-256", signature.parse().unwrap());
    let request = SignedRequest {
        headers: &headers,
        uri: &Uri::from_static("/"),
        body: body.as_bytes(),
        now_s: 0,
    };
    assert_eq!(verifier.verify(&request), Ok(()));
}

/// Names as the page writes them.
fn quoted(sources: &[ValueSource]) -> String {
    let names = sources.iter().map(|source| match source {
        ValueSource::Header(name) => format!("`{name}`"),
        ValueSource::Field(path) => format!("`{path}` of the body"),
        ValueSource::Digest => "hash of the body".to_owned(),
    });
    names.collect::<Vec<_>>().join(", ")
}

/// The row of a preset in the table of `docs/connectors/webhook.md`.
fn row(preset: &SignaturePreset) -> String {
    let headers = preset.headers.iter().map(|header| format!("`{header}`"));
    let headers = match preset.scheme {
        SignatureScheme::Sns => "`Signature` of the body".to_owned(),
        SignatureScheme::Hmac
        | SignatureScheme::Token
        | SignatureScheme::Basic
        | SignatureScheme::Twilio => headers.collect::<Vec<_>>().join(", "),
    };
    let algorithm = match preset.algorithm {
        HashAlgorithm::Sha1 => "HMAC-SHA1",
        HashAlgorithm::Sha256 => "HMAC-SHA256",
        HashAlgorithm::Sha512 => "HMAC-SHA512",
    };
    let encoding = match preset.encoding {
        SignatureEncoding::Hex => "hex",
        SignatureEncoding::Base64 => "base64",
    };
    let signature = match preset.scheme {
        SignatureScheme::Hmac | SignatureScheme::Twilio => format!("{algorithm}, {encoding}"),
        SignatureScheme::Token => "the secret".to_owned(),
        SignatureScheme::Basic => "`user:password`".to_owned(),
        SignatureScheme::Sns => "RSA".to_owned(),
    };
    let replay = match preset.time {
        SignedTime::None => "ID".to_owned(),
        SignedTime::Header(_) | SignedTime::Item(_) => format!("{TOLERANCE_S} s, ID"),
    };
    let challenge = match preset.challenge {
        Challenge::None => "",
        Challenge::Slack | Challenge::Zoom => ", challenge",
    };
    format!(
        "| `{}` | {headers} | {signature} | {replay} | {} | {} | {}{challenge} |",
        preset.name,
        quoted(preset.id),
        quoted(preset.event_type),
        preset.status,
    )
}

#[test]
fn conn_3_table_of_presets_matches_the_code() {
    let rows: Vec<&str> = PRESETS_PAGE
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    let expected: Vec<String> = PRESETS.iter().map(row).collect();
    assert_eq!(rows, expected, "\n{}", expected.join("\n"));
    for header in MORE_ID_HEADERS.iter().chain(&MORE_TYPE_HEADERS) {
        assert!(PRESETS_PAGE.contains(&format!("`{header}`")), "{header}");
    }
    let swift: Vec<String> = PRESETS
        .iter()
        .filter(|preset| preset.is_swift)
        .map(|preset| format!("`{}`", preset.name))
        .collect();
    let words: Vec<&str> = PRESETS_PAGE.split_whitespace().collect();
    let swift = format!("{}: {SWIFT_REPLY_TIMEOUT_MS} ms", swift.join(", "));
    assert!(words.join(" ").contains(&swift), "{swift}");
}
