//! Which instance an event belongs to (`IPC-3`, `INST-3`). Pure functions of the configuration.

use goondan_config::{Bundle, ConnectionDefinition, IngressRule, KeyRule};
use goondan_protocol::event::ConnectorEvent;
use goondan_protocol::ids::{AgentName, InstanceKey};
use serde_json::Value;

/// Why an event goes nowhere.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unroutable {
    /// No ingress rule matches.
    #[error("no ingress rule of connection `{connection}` matches event `{event}`")]
    NoRule {
        /// The connection.
        connection: String,
        /// The event's name.
        event: String,
    },
    /// The rule takes the key from a property that is not there or is no plain value.
    #[error("the event has no property `{property}` to take the conversation's key from")]
    NoKey {
        /// The property.
        property: String,
    },
    /// The key is empty or too long.
    #[error("the conversation's key is not valid: {problem}")]
    BadKey {
        /// Why.
        problem: String,
    },
    /// There is no such agent.
    #[error("there is no agent `{agent}`")]
    NoAgent {
        /// Its name.
        agent: AgentName,
    },
}

/// Where an event goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) agent: AgentName,
    pub(crate) instance_key: InstanceKey,
}

/// The key of `agent`'s part of a conversation: the conversation's own key for the entry agent,
/// `<agent>:<key>` for any other, unless it is written so already.
fn key_within(
    bundle: &Bundle,
    agent: &AgentName,
    conversation: &InstanceKey,
) -> Result<InstanceKey, Unroutable> {
    let prefix = format!("{agent}:");
    if *agent == bundle.entry_agent || conversation.as_str().starts_with(&prefix) {
        return Ok(conversation.clone());
    }
    new_key(&format!("{prefix}{conversation}"))
}

fn new_key(text: &str) -> Result<InstanceKey, Unroutable> {
    InstanceKey::new(text).map_err(|error| Unroutable::BadKey {
        problem: error.to_string(),
    })
}

/// Routes what a client sends to an agent, the entry agent if none is named.
pub(crate) fn route_direct(
    bundle: &Bundle,
    agent: Option<&AgentName>,
    conversation: &InstanceKey,
) -> Result<Route, Unroutable> {
    let agent = agent.unwrap_or(&bundle.entry_agent);
    if !bundle.agents.contains_key(agent) {
        return Err(Unroutable::NoAgent {
            agent: agent.clone(),
        });
    }
    let instance_key = key_within(bundle, agent, conversation)?;
    Ok(Route {
        agent: agent.clone(),
        instance_key,
    })
}

/// Routes a connector's event by the first of its connection's rules that matches.
///
/// An event that names no conversation, under a rule that takes the event's own, belongs to the one
/// conversation named like the connection.
pub(crate) fn route_ingress(
    bundle: &Bundle,
    connection: &ConnectionDefinition,
    event: &ConnectorEvent,
) -> Result<Route, Unroutable> {
    let Some(rule) = connection.rules.iter().find(|rule| matches(rule, event)) else {
        let (connection, event) = (connection.name.to_string(), event.name.clone());
        return Err(Unroutable::NoRule { connection, event });
    };
    let agent = rule
        .agent
        .clone()
        .unwrap_or_else(|| bundle.entry_agent.clone());
    let instance_key = match &rule.key {
        KeyRule::Fixed(key) => key.clone(),
        KeyRule::FromEvent { prefix } => {
            let own = event
                .instance_key
                .as_ref()
                .map_or(connection.name.as_str(), |k| k.as_str());
            match prefix {
                Some(prefix) => new_key(&format!("{prefix}{own}"))?,
                None => key_within(bundle, &agent, &new_key(own)?)?,
            }
        }
        KeyRule::Property { name, prefix } => {
            let value = property_text(event, name).ok_or_else(|| Unroutable::NoKey {
                property: name.clone(),
            })?;
            new_key(&format!("{}{value}", prefix.as_deref().unwrap_or_default()))?
        }
    };
    Ok(Route {
        agent,
        instance_key,
    })
}

fn matches(rule: &IngressRule, event: &ConnectorEvent) -> bool {
    rule.event.as_ref().is_none_or(|name| *name == event.name)
        && rule
            .properties
            .iter()
            .all(|(name, expected)| event.properties.get(name) == Some(expected))
}

fn property_text(event: &ConnectorEvent, name: &str) -> Option<String> {
    match event.properties.get(name)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}
