//! Where people are asked to approve tool calls, and who may (`STEER-3`).
//!
//! The orchestrator decides by the same reading of the settings by which a connector asks.

use goondan_protocol::JsonObject;

use crate::values::Values;

/// The name of the setting.
const APPROVALS: &str = "approvals";

/// The connectors that ask, with what a place is called there.
const ASKING: [(&str, &str); 2] = [("telegram", "chat"), ("slack", "channel")];

/// Where a connection asks people, and who may decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalChat {
    /// The chat or channel.
    pub place: String,
    /// Who may decide, by the ids that the service gives people.
    users: Vec<String>,
    /// The only agents whose calls are asked about; none: all.
    agents: Option<Vec<String>>,
}

impl ApprovalChat {
    /// That of a built-in connector with settings in which nothing is wrong; none if it does not ask.
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

    /// Whether this person may decide.
    #[must_use]
    pub fn has_user(&self, user: &str) -> bool {
        self.users.iter().any(|known| known == user)
    }

    /// Whether calls of this agent are asked about.
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
    fn steer_3_who_may_decide_is_listed_and_nobody_else_may() {
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
        // Nobody else asks, whatever stands in the settings.
        assert_eq!(chat("webhook", &config), None);
    }

    #[test]
    fn steer_3_settings_that_name_nobody_or_no_place_are_refused() {
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
            tokenless.contains("there is no secret `botToken`"),
            "{tokenless}"
        );
    }
}
