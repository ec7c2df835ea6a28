//! `docs/connectors.md` against the code: what it says is what the code does.

use std::collections::BTreeMap;

use axum::http::{HeaderMap, HeaderName};
use goondan_protocol::JsonObject;
use goondan_protocol::ids::InstanceKey;
use goondan_protocol::ipc::{EventRefused, RefusalCode};

use super::Settings;
use super::answer::Refusal;
use super::mapping::{ID_HEADERS, INPUT_FIELDS, KEY_HEADER, Malformed};
use super::settings::{DEFAULT_HOST, DEFAULT_PATH, FieldPath, SETTINGS, SIGNATURE_SETTINGS};
use super::signature::{DEFAULT_HEADER, DEFAULT_PREFIX, NotSigned};
use crate::limits::{
    BODY_BYTES_CEILING, BODY_READ_TIMEOUT_MS, CONNECTIONS_MAX, DEFAULT_BODY_BYTES_MAX,
    HEADER_READ_TIMEOUT_MS, PROPERTIES_MAX, PROPERTY_BYTES_MAX, REQUESTS_IN_FLIGHT_MAX,
};

const PAGE: &str = include_str!("../../../docs/connectors.md");

/// The cells of the table row whose first cell is `` `name` ``.
fn row(name: &str) -> Vec<&'static str> {
    let start = format!("| `{name}` |");
    let line = PAGE.lines().find(|line| line.starts_with(&start));
    let line = line.unwrap_or_else(|| panic!("docs/connectors.md has no row for `{name}`"));
    line.trim_matches('|').split('|').map(str::trim).collect()
}

/// The value behind `name=` in the page's signature example.
fn example(name: &str) -> &'static str {
    let start = format!("{name}='");
    let line = PAGE.lines().find_map(|line| line.strip_prefix(&start));
    let value = line.and_then(|rest| rest.strip_suffix('\''));
    value.unwrap_or_else(|| panic!("docs/connectors.md sets no {name}"))
}

#[test]
fn every_setting_has_a_row_with_its_default() {
    for name in SETTINGS {
        if name != "signature" {
            row(name);
        }
    }
    for name in SIGNATURE_SETTINGS {
        row(&format!("signature.{name}"));
    }
    assert_eq!(row("host")[1], format!("`{DEFAULT_HOST}`"));
    assert_eq!(row("path")[1], format!("`{DEFAULT_PATH}`"));
    assert_eq!(
        row("maxBodyBytes")[1],
        format!("`{DEFAULT_BODY_BYTES_MAX}`")
    );
    assert!(row("maxBodyBytes")[2].contains(&BODY_BYTES_CEILING.to_string()));
    let header = row("signature.header")[1].to_ascii_lowercase();
    assert_eq!(header, format!("`{DEFAULT_HEADER}`"));
    assert_eq!(row("signature.prefix")[1], format!("`{DEFAULT_PREFIX}`"));
}

#[test]
fn every_header_input_field_and_limit_is_named() {
    let page = PAGE.to_ascii_lowercase();
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
        format!("first {PROPERTIES_MAX}"),
        format!("{PROPERTY_BYTES_MAX} bytes"),
    ] {
        assert!(page.contains(&limit), "{limit}");
    }
}

#[test]
fn every_answer_has_a_row_with_its_code() {
    let header = HeaderName::from_static("x-signature");
    let field = FieldPath::new("f");
    let id = || InstanceKey::new("").unwrap_err();
    let not_text = std::str::from_utf8(b"\xff".as_slice()).unwrap_err();
    let not_json = serde_json::from_str::<u8>("x").unwrap_err();
    let malformed = [
        Malformed::NotText(not_text),
        Malformed::NotJson(not_json),
        Malformed::EmptyInput,
        Malformed::NoInput {
            field: field.clone(),
        },
        Malformed::NotAName { field },
        Malformed::BadHeader {
            header: header.clone(),
        },
        Malformed::BadKey(id()),
        Malformed::BadId(id()),
    ];
    let by_orchestrator = [
        RefusalCode::Invalid,
        RefusalCode::Unroutable,
        RefusalCode::Overloaded,
        RefusalCode::Unavailable,
    ]
    .map(|code| EventRefused {
        code,
        message: String::new(),
    });
    let own = [
        Refusal::NotFound,
        Refusal::WrongMethod,
        Refusal::TooLarge { max: 1 },
        Refusal::TooSlow { timeout_ms: 1 },
        Refusal::BrokenBody(axum::Error::new(std::io::Error::other("broken"))),
        Refusal::NotSigned(NotSigned::Missing { header }),
        Refusal::Busy,
        Refusal::Stopping,
    ];
    let refusals = own
        .into_iter()
        .chain(malformed.map(Refusal::Malformed))
        .chain(by_orchestrator.map(Refusal::ByOrchestrator));
    for refusal in refusals {
        let (status, code) = refusal.status();
        let start = format!("| {} |", status.as_u16());
        let row = PAGE.lines().find(|line| line.starts_with(&start));
        let row = row.unwrap_or_else(|| panic!("no row for {status}"));
        assert!(row.contains(&format!("`{code}`")), "{code} is not in {row}");
    }
}

#[test]
fn the_signature_example_is_right() {
    let (secret, body, signature) = (example("SECRET"), example("BODY"), example("SIGNATURE"));
    let secrets = BTreeMap::from([("hmac".to_owned(), secret.to_owned())]);
    let settings = Settings::new(&JsonObject::new(), &secrets).unwrap();
    let check = settings.signature.unwrap();
    let mut headers = HeaderMap::new();
    headers.insert(DEFAULT_HEADER, signature.parse().unwrap());
    assert_eq!(check.check(&headers, body.as_bytes()), Ok(()));
}
