//! Default headers of messages for the model, and payloads, of the built-in connectors.

use crate::description::Connector;

/// The events of a connector that delivers what people and services outside send.
#[derive(Debug)]
pub struct Inbound {
    /// Name of the connector.
    pub connector: &'static str,
    /// Default header of its events ([`goondan_protocol::event_header`]); `None` if the text alone
    /// says enough.
    pub header: Option<&'static str>,
    /// Properties of its events, in addition to those in its description.
    pub properties: &'static [&'static str],
}

static INBOUND: [Inbound; 8] = [
    Inbound {
        connector: "webhook",
        header: None,
        properties: &[],
    },
    Inbound {
        connector: "telegram",
        header: Some(
            "Telegram[ · {from_first_name}[ {from_last_name}]][ (@{fromUsername})| (id {fromId})]\
             [ in \"{chat_title}\"]",
        ),
        properties: &[],
    },
    // Ids in the form in which Slack's texts mention people and channels.
    Inbound {
        connector: "slack",
        header: Some("Slack[ · <@{user}>][ in <#{channel}>]"),
        properties: &[],
    },
    Inbound {
        connector: "github",
        header: Some("GitHub · {event}[ {action}][ · {repository}[#{number}]][ · by {sender}]"),
        properties: &[
            "event",
            "action",
            "repository",
            "number",
            "sender",
            "senderType",
            "ref",
            "repo",
        ],
    },
    Inbound {
        connector: "gitlab",
        header: Some(
            "GitLab · {event}[ {action}][ · {project}[{reference}]| · {group}][ · by {sender}]",
        ),
        properties: &[
            "event",
            "action",
            "project",
            "group",
            "reference",
            "sender",
            "status",
            "ref",
        ],
    },
    Inbound {
        connector: "discord",
        header: Some("Discord[ · {username}][ (id {userId})][ in channel {channelId}]"),
        properties: &[],
    },
    Inbound {
        connector: "email",
        header: Some("Email[ · {fromName} ({from})| · {from}][ · \"{subject}\"][ to {mailbox}]"),
        properties: &[],
    },
    Inbound {
        connector: "matrix",
        header: Some("Matrix[ · {fromName} ({from})| · {from}][ in \"{roomName}\"]"),
        properties: &[],
    },
];

/// The events of a built-in connector; `None` if it delivers nothing from outside.
#[must_use]
pub fn inbound(connector: &str) -> Option<&'static Inbound> {
    INBOUND.iter().find(|it| it.connector == connector)
}

impl Inbound {
    /// Names that a header can use as placeholders, sorted; `None` if senders choose the names.
    #[must_use]
    pub fn placeholders(&self, described: &Connector) -> Option<Vec<&'static str>> {
        let mut names = self.properties.to_vec();
        for event in described.events {
            names.extend(event.properties?);
        }
        names.sort_unstable();
        names.dedup();
        Some(names)
    }
}

#[cfg(test)]
mod tests {
    use goondan_protocol::event_header::HeaderTemplate;
    use serde_json::json;

    use super::*;

    #[test]
    fn conn_1_default_headers_use_properties_of_their_connector() {
        for inbound in &INBOUND {
            let described = crate::find(inbound.connector).unwrap();
            let names = inbound.placeholders(described);
            let Some(header) = inbound.header else {
                continue;
            };
            let names = names.unwrap();
            for name in HeaderTemplate::parse(header).unwrap().names() {
                assert!(names.contains(&name), "{}: {name}", inbound.connector);
            }
        }
    }

    #[test]
    fn conn_1_default_headers_name_person_place_and_event() {
        for (connector, properties, header) in [
            (
                "telegram",
                json!({"fromId": 9, "fromUsername": "ada", "from_first_name": "Ada",
                    "from_last_name": "Lovelace", "chat_title": "Orders"}),
                "[Telegram · Ada Lovelace (@ada) in \"Orders\"]",
            ),
            (
                "telegram",
                json!({"fromId": 9, "from_first_name": "Ada"}),
                "[Telegram · Ada (id 9)]",
            ),
            (
                "telegram",
                json!({"chat_title": "News"}),
                "[Telegram in \"News\"]",
            ),
            (
                "slack",
                json!({"user": "U1", "channel": "C1"}),
                "[Slack · <@U1> in <#C1>]",
            ),
            (
                "github",
                json!({"event": "issues", "action": "opened", "repository": "a/b", "number": 7,
                    "sender": "ann"}),
                "[GitHub · issues opened · a/b#7 · by ann]",
            ),
            (
                "github",
                json!({"event": "push", "repository": "a/b"}),
                "[GitHub · push · a/b]",
            ),
            (
                "gitlab",
                json!({"event": "merge_request", "action": "open", "project": "a/b",
                    "reference": "!7", "sender": "ann"}),
                "[GitLab · merge_request open · a/b!7 · by ann]",
            ),
            (
                "gitlab",
                json!({"event": "member", "action": "user_add_to_group", "group": "a"}),
                "[GitLab · member user_add_to_group · a]",
            ),
            (
                "discord",
                json!({"username": "ann", "userId": "1", "channelId": "2"}),
                "[Discord · ann (id 1) in channel 2]",
            ),
            (
                "email",
                json!({"from": "ada@example.com", "fromName": "Ada", "subject": "Books",
                    "mailbox": "help@example.org"}),
                "[Email · Ada (ada@example.com) · \"Books\" to help@example.org]",
            ),
            (
                "email",
                json!({"from": "ada@example.com", "mailbox": "help@example.org"}),
                "[Email · ada@example.com to help@example.org]",
            ),
            (
                "matrix",
                json!({"from": "@ada:example.org", "fromName": "Ada", "roomName": "Orders"}),
                "[Matrix · Ada (@ada:example.org) in \"Orders\"]",
            ),
        ] {
            let template = inbound(connector).unwrap().header.unwrap();
            let template = HeaderTemplate::parse(template).unwrap();
            let properties = properties.as_object().unwrap();
            assert_eq!(template.render("c", "message", properties), header);
        }
    }
}
