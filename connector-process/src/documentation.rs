//! Checks the documentation pages of the connectors against their descriptions.

use goondan_connectors::{Connector, Setting, SettingType};
use goondan_protocol::field::FieldDefault;

/// The page of a connector: `docs/connectors/<name>.md`. The page of `webhook` is the overview.
fn page(name: &str) -> &'static str {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/connectors");
    let path = match name {
        "webhook" => format!("{docs}.md"),
        other => format!("{docs}/{other}.md"),
    };
    let page = std::fs::read_to_string(&path);
    page.unwrap_or_else(|error| panic!("`{name}` has no page {path}: {error}"))
        .leak()
}

#[test]
fn every_connector_that_is_described_is_made() {
    let described = goondan_connectors::BUILTINS.iter();
    let made = crate::BUILTINS.iter().map(|(name, _)| *name);
    assert!(described.map(|connector| connector.name).eq(made));
}

fn connectors() -> impl Iterator<Item = (&'static Connector, &'static str)> {
    let described = goondan_connectors::BUILTINS.iter();
    described.map(|connector| (*connector, page(connector.name)))
}

/// Settings of every connector that listens, described once on the page of `webhook`.
const LISTENER: [&str; 4] = ["host", "port", "path", "maxBodyBytes"];

/// The note in parentheses in the list item of a setting or secret, empty without one.
fn note(shown: &'static str, name: &str) -> &'static str {
    let start = format!("* `{name}`");
    let common = if LISTENER.contains(&name) {
        page("webhook")
    } else {
        ""
    };
    let items = shown.lines().chain(common.lines());
    let mut rests = items.filter_map(|line| line.strip_prefix(&start));
    let rest = rests.find(|rest| rest.starts_with([':', ' ']));
    let rest = rest.unwrap_or_else(|| panic!("no item for `{name}`"));
    let note = rest
        .strip_prefix(" (")
        .and_then(|rest| rest.split_once("):"));
    note.map_or("", |(note, _)| note)
}

fn check(page: &'static str, parent: &str, settings: &[Setting]) {
    for setting in settings {
        let name = format!("{parent}{}", setting.name);
        if let SettingType::Map(inner) | SettingType::Named(inner) = setting.content {
            check(page, &format!("{name}."), inner);
        }
        if matches!(setting.content, SettingType::Map(_)) {
            continue;
        }
        let default = note(page, &name).to_ascii_lowercase();
        let expected = match setting.default {
            _ if setting.is_required => "required".to_owned(),
            Some(FieldDefault::Text(text)) => format!("`{text}`"),
            Some(FieldDefault::Number(number)) => format!("`{number}`"),
            Some(FieldDefault::Truth(truth)) => format!("`{truth}`"),
            Some(FieldDefault::Meaning(_)) | None => {
                assert!(!default.starts_with('`'), "{name} has no default");
                continue;
            }
        };
        assert_eq!(default, expected.to_ascii_lowercase(), "{name}");
    }
}

#[test]
fn every_setting_has_an_item_with_its_default() {
    for (connector, page) in connectors() {
        check(page, "", connector.settings);
    }
}

#[test]
fn every_secret_event_and_property_is_named() {
    for (connector, page) in connectors() {
        for secret in connector.secrets {
            let expected = if secret.is_required {
                "secret, required"
            } else {
                "secret"
            };
            assert_eq!(note(page, secret.name), expected, "{}", secret.name);
        }
        for event in connector.events {
            let names = event.properties.into_iter().flatten().chain([&event.name]);
            for name in names {
                let quoted = format!("`{name}`");
                assert!(page.contains(&quoted), "{quoted} of {}", connector.name);
            }
        }
    }
}

#[test]
fn conn_1_properties_of_github_events_are_documented() {
    let page = page("github");
    let names = crate::github::PROPERTIES.iter().map(|(name, _)| *name);
    let others = ["event", "branch", "tag", "number", "isPullRequest"];
    for name in names.chain(others) {
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn conn_1_properties_of_gitlab_events_are_documented() {
    let page = page("gitlab");
    let names = crate::gitlab::PROPERTIES.iter().map(|(name, _)| *name);
    let others = [
        "event",
        "action",
        "change",
        "project",
        "projectId",
        "group",
        "sender",
        "reference",
        "number",
        "isMergeRequest",
        "label",
        "branch",
        "tag",
        "member",
        "created",
        "deleted",
    ];
    for name in names.chain(others) {
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn limits_match_the_documentation() {
    use crate::limits::{
        EMAIL_BYTES_MAX, EMAIL_FILES_MAX, EMAIL_PARTS_MAX, EMAIL_TEXT_BYTES_MAX,
        EVENT_TEXT_CHARS_MAX, GITLAB_DIFF_CHARS_MAX, PAYLOAD_BYTES_MAX,
        PROGRAM_EVENTS_IN_FLIGHT_MAX, PROGRAM_LINE_BYTES_MAX, PROGRAM_STOP_TIMEOUT_MS,
        RELAY_HANDSHAKES_MAX, RELAY_HELLO_BYTES_MAX, RELAY_SILENCE_MS, RELAY_UNANSWERED_MAX,
        SLACK_WINDOW_S, SWIFT_REPLY_TIMEOUT_MS,
    };
    let program = include_str!("../../docs/connectors/program.md");
    for (page, said) in [
        (page("slack"), format!("within {SLACK_WINDOW_S} seconds")),
        (page("slack"), format!("{SWIFT_REPLY_TIMEOUT_MS} ms")),
        (page("discord"), format!("{SWIFT_REPLY_TIMEOUT_MS} ms")),
        (page("github"), format!("{PAYLOAD_BYTES_MAX} bytes")),
        (page("github"), format!("{EVENT_TEXT_CHARS_MAX} characters")),
        (page("gitlab"), format!("{PAYLOAD_BYTES_MAX} bytes")),
        (page("gitlab"), format!("{EVENT_TEXT_CHARS_MAX} characters")),
        (
            page("gitlab"),
            format!("{GITLAB_DIFF_CHARS_MAX} characters"),
        ),
        (
            page("email"),
            format!("{EMAIL_BYTES_MAX} bytes or {EMAIL_PARTS_MAX} parts"),
        ),
        (
            page("email"),
            format!("At most {EMAIL_TEXT_BYTES_MAX} bytes."),
        ),
        (page("email"), format!("listed, at most {EMAIL_FILES_MAX}.")),
        (
            page("relay"),
            format!("at most {RELAY_HANDSHAKES_MAX} unauthenticated"),
        ),
        (page("relay"), format!("{RELAY_HELLO_BYTES_MAX} bytes")),
        (page("relay"), format!("for {RELAY_SILENCE_MS} ms")),
        (page("relay"), format!("{RELAY_UNANSWERED_MAX} requests")),
        (program, format!("{PROGRAM_LINE_BYTES_MAX} bytes")),
        (
            program,
            format!("At most {PROGRAM_EVENTS_IN_FLIGHT_MAX} of"),
        ),
        (
            program,
            format!("within {} seconds", PROGRAM_STOP_TIMEOUT_MS / 1000),
        ),
    ] {
        let words: Vec<&str> = page.split_whitespace().collect();
        assert!(words.join(" ").contains(&said), "{said}");
    }
}
