//! `docs/connectors.md` against the code: what it says is what the code does.

use std::collections::BTreeMap;

use axum::http::HeaderMap;
use goondan_protocol::JsonObject;

use super::Settings;
use super::mapping::{ID_HEADERS, INPUT_FIELDS, KEY_HEADER};
use super::settings::{DEFAULT_HOST, DEFAULT_PATH, SETTINGS, SIGNATURE_SETTINGS};
use super::signature::{DEFAULT_HEADER, DEFAULT_PREFIX};
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
    assert_eq!(row("maxBodyBytes")[1], format!("`{DEFAULT_BODY_BYTES_MAX}`"));
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
        format!("{} seconds for a request's head", HEADER_READ_TIMEOUT_MS / 1000),
        format!("{} seconds for its body", BODY_READ_TIMEOUT_MS / 1000),
        format!("first {PROPERTIES_MAX}"),
        format!("{PROPERTY_BYTES_MAX} bytes"),
    ] {
        assert!(page.contains(&limit), "{limit}");
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
