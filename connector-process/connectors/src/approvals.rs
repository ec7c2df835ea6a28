//! Chats in which people are asked to approve tool calls, and the people who may decide
//! (`STEER-3`).
//!
//! The orchestrator's decisions and the connector's questions share this parser of the settings.

use goondan_protocol::JsonObject;

use crate::values::Values;

/// The name of the setting.
const APPROVALS: &str = "approvals";

/// Connectors that support approvals, with their word for a chat.
const ASKING: [(&str, &str); 4] = [
    ("telegram", "chat"),
    ("slack", "channel"),
    ("discord", "channel"),
    ("matrix", "room"),
];

/// A connection's approval chat and the people who may decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalChat {
    pub place: String,
    /// People who may decide, by the service's ids.
    users: Vec<String>,
    /// The only agents whose calls are shown; `None` for all.
    agents: Option<Vec<String>>,
}

impl ApprovalChat {
    /// Parses the validated settings of a built-in connector; `None` if approvals are not
    /// configured.
    #[must_use]
    pub fn of(connector: &str, config: &JsonObject) -> Option<Self> {
        let (_, place) = ASKING.iter().find(|(name, _)| *name == connector)?;
        let values = Values::of(connector, config).map(APPROVALS);
        Some(Self {
            place: values.id(place)?,
            users: values.names("users")?,
            agents: values.names("agents"),
        })
    }

    /// True if this person may decide.
    #[must_use]
    pub fn has_user(&self, user: &str) -> bool {
        self.users.iter().any(|known| known == user)
    }

    /// True if calls of this agent are shown.
    #[must_use]
    pub fn has_agent(&self, agent: &str) -> bool {
        let agents = self.agents.as_ref();
        agents.is_none_or(|agents| agents.iter().any(|known| known == agent))
    }

    /// The agents that the settings name.
    pub fn agents(&self) -> impl Iterator<Item = &str> {
        self.agents.iter().flatten().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::*;

    fn chat(connector: &str, config: &Value) -> Option<ApprovalChat> {
        ApprovalChat::of(connector, config.as_object().unwrap())
    }

    fn problems(connector: &str, config: &Value) -> Vec<String> {
        let described = crate::find(connector).unwrap();
        let secrets: BTreeMap<String, String> = match connector {
            "telegram" => [("botToken", "1:x")].as_slice(),
            _ => [("signingSecret", "s")].as_slice(),
        }
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
        let problems = crate::check(described, config.as_object().unwrap(), &secrets);
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn steer_3_only_listed_users_may_decide_approvals() {
        let config = json!({"approvals": {"chat": -100, "users": [5, "6"], "agents": ["careful"]}});
        assert_eq!(problems("telegram", &config), Vec::<String>::new());
        let found = chat("telegram", &config).unwrap();
        assert_eq!(found.place, "-100");
        assert!(found.has_user("5") && found.has_user("6") && !found.has_user("7"));
        assert!(found.has_agent("careful") && !found.has_agent("other"));
        let all = chat(
            "slack",
            &json!({"approvals": {"channel": "C1", "users": ["U1"]}}),
        );
        assert!(all.unwrap().has_agent("other"));
        for none in [json!({}), json!({"approvals": {"chat": 1}})] {
            assert_eq!(chat("telegram", &none), None);
        }
        // Other connectors ignore the setting.
        assert_eq!(chat("webhook", &config), None);
    }

    #[test]
    fn steer_3_approval_settings_without_users_or_chat_are_rejected() {
        let refused = |connector, approvals: Value| {
            let problems = problems(connector, &json!({ "approvals": approvals }));
            problems.join("; ")
        };
        let empty = refused("telegram", json!({"chat": 1, "users": []}));
        assert!(
            empty.contains("`approvals.users` must be a list, not empty"),
            "{empty}"
        );
        let nobody = refused("telegram", json!({"chat": 1}));
        assert!(nobody.contains("needs the setting `users`"), "{nobody}");
        let nowhere = refused("telegram", json!({"users": [1]}));
        assert!(nowhere.contains("needs the setting `chat`"), "{nowhere}");
        let tokenless = refused("slack", json!({"channel": "C1", "users": ["U1"]}));
        assert!(
            tokenless.contains("the secret `botToken` is missing"),
            "{tokenless}"
        );
    }
}
