//! The connector `relay`: a connector that runs on another machine.

use goondan_protocol::JsonObject;
use goondan_protocol::field::FieldDefault;
use serde_json::Value;

use crate::description::{Connector, Secret, Setting, SettingType};

const NAME: &str = "relay";

/// The setting that names the built-in connector on the other machine.
const CONNECTOR: &str = "connector";

/// The built-in connectors that can be relayed: all whose work is outside. Schedules and metrics
/// gain nothing from another machine, because they depend only on the clock or the daemon.
pub const RELAYED: &[&str] = &[
    "webhook", "telegram", "slack", "github", "gitlab", "discord", "email", "matrix", "http", "mcp",
];

/// Longest name of a client, in bytes.
const CLIENT_NAME_BYTES: usize = 64;

/// Bytes of a fingerprint: a SHA-256.
const FINGERPRINT_BYTES: usize = 32;

pub(crate) static RELAY: Connector = Connector {
    name: NAME,
    about: "A connector that runs on another machine.",
    settings: &[
        Setting::optional(
            "host",
            SettingType::Text,
            "Address or host name to listen on.",
        )
        .or(FieldDefault::Text("127.0.0.1")),
        Setting::optional(
            "port",
            SettingType::Number(0, 65_535),
            "Port to listen on; 0 is any free one.",
        )
        .or(FieldDefault::Number(0)),
        Setting::optional(
            CONNECTOR,
            SettingType::Word(RELAYED),
            "The built-in connector that runs on the other machine. Without it, a program runs there.",
        ),
        Setting::required(
            "certificate",
            SettingType::Text,
            "The certificate that the relay presents, as PEM.",
        ),
        Setting::required(
            "clients",
            SettingType::Named(&CLIENTS),
            "The clients that may connect.",
        ),
    ],
    one_of: None,
    needs: None,
    secrets: &[Secret {
        name: "key",
        is_required: true,
        about: "The private key of `certificate`, as PEM.",
    }],
    events: &[],
};

static CLIENTS: [Setting; 2] = [
    Setting::required(
        "name",
        SettingType::Name(CLIENT_NAME_BYTES),
        "The name of the other machine here.",
    ),
    Setting::required(
        "fingerprint",
        SettingType::Hex(FINGERPRINT_BYTES),
        "The SHA-256 of its certificate, in hexadecimal digits.",
    ),
];

/// The built-in connector that does a Connection's work: its own, or the one behind its relay.
/// `connector` is its own. `None` if the relay runs a program.
#[must_use]
pub fn working_as<'a>(connector: &'a str, config: &'a JsonObject) -> Option<&'a str> {
    if connector == NAME {
        config.get(CONNECTOR).and_then(Value::as_str)
    } else {
        Some(connector)
    }
}

/// True for the relay, whose secrets differ from those of the connector behind it.
#[must_use]
pub fn is_relay(connector: &str) -> bool {
    connector == NAME
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn relay_acts_as_the_connector_it_carries() {
        let config = |value: Value| value.as_object().unwrap().clone();
        assert_eq!(
            working_as("slack", &config(json!({"connector": "x"}))),
            Some("slack")
        );
        assert_eq!(
            working_as("relay", &config(json!({"connector": "slack"}))),
            Some("slack")
        );
        assert_eq!(working_as("relay", &config(json!({}))), None);
    }

    #[test]
    fn every_relayed_connector_is_built_in() {
        for name in RELAYED {
            assert!(crate::find(name).is_some() && !is_relay(name), "{name}");
        }
    }
}
