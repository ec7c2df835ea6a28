//! Routing of events to instances (`IPC-3`, `INST-3`). Pure functions of the configuration.

use goondan_config::{ConnectionDefinition, IngressJoin, IngressRule, KeyRule, ProjectConfig};
use goondan_protocol::JsonObject;
use goondan_protocol::event::ConnectorEvent;
use goondan_protocol::event_join::{EventJoin, JoinPart};
use goondan_protocol::ids::{AgentName, InstanceKey};
use goondan_protocol::namespace::within_connection;
use goondan_protocol::time::Timestamp;
use serde_json::Value;

/// Name of events sent by clients.
pub(crate) const SENT_EVENT: &str = "message";

/// Connector whose schedules can name conversations.
const CRON: &str = "cron";

/// Connectors of services that ignore the case of names, with the properties of such names.
const CASELESS_NAMES: [(&str, &[&str]); 2] = [
    (
        "github",
        &[
            "repository",
            "repo",
            "organization",
            "sender",
            "author",
            "assignee",
            "reviewer",
            "member",
            "team",
            "label",
        ],
    ),
    ("gitlab", &["project", "group", "sender", "member"]),
];

/// Reason an event cannot be routed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RoutingError {
    #[error("no ingress rule of connection `{connection}` matches event `{event}`")]
    NoRule { connection: String, event: String },
    /// The rule reads the key from a property that is missing or not a plain value.
    #[error("the event lacks the property `{property}` for the conversation's key")]
    NoKey { property: String },
    /// The key is empty or too long.
    #[error("the conversation's key is not valid: {problem}")]
    BadKey { problem: String },
    #[error(
        "the project's agents are programs that work on tasks, so no agent answers messages; \
         create a task with `gdn task new`"
    )]
    NoEntryAgent,
    /// The agent does not exist.
    #[error("agent `{agent}` does not exist")]
    NoAgent { agent: AgentName },
}

/// Destination of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) agent: AgentName,
    pub(crate) instance_key: InstanceKey,
    /// The key of this event before keys were namespaced by connection. A conversation that
    /// belonged to the connection then keeps this key.
    pub(crate) former_key: Option<InstanceKey>,
}

/// The key of `agent`'s part of a conversation: the conversation's key for the entry agent,
/// `<agent>:<key>` for other agents, unless the key already has that form.
fn key_within(
    bundle: &ProjectConfig,
    agent: &AgentName,
    conversation: &InstanceKey,
) -> Result<InstanceKey, RoutingError> {
    let prefix = format!("{agent}:");
    if bundle.is_entry(agent) || conversation.as_str().starts_with(&prefix) {
        return Ok(conversation.clone());
    }
    new_key(&format!("{prefix}{conversation}"))
}

fn new_key(text: &str) -> Result<InstanceKey, RoutingError> {
    InstanceKey::new(text).map_err(|error| RoutingError::BadKey {
        problem: error.to_string(),
    })
}

/// The connector that the local client is.
pub(crate) const CLIENT_CONNECTION: &str = "cli";

/// Routes a client's event to `agent`, or to the entry agent if `None`.
fn route_direct(
    bundle: &ProjectConfig,
    agent: Option<&AgentName>,
    conversation: &InstanceKey,
) -> Result<Route, RoutingError> {
    let entry = bundle.entry_agent.as_ref();
    let agent = agent.or(entry).ok_or(RoutingError::NoEntryAgent)?;
    if !bundle.agents.contains_key(agent) {
        return Err(RoutingError::NoAgent {
            agent: agent.clone(),
        });
    }
    let instance_key = key_within(bundle, agent, conversation)?;
    Ok(Route {
        agent: agent.clone(),
        instance_key,
        former_key: None,
    })
}

/// Routes a client's event: to the named agent, otherwise by the rules of the project's
/// local-client connection, otherwise to the entry agent.
pub(crate) fn route_sent(
    bundle: &ProjectConfig,
    agent: Option<&AgentName>,
    conversation: &InstanceKey,
) -> Result<Route, RoutingError> {
    match (agent, &bundle.local) {
        (None, Some(local)) => {
            let event = ConnectorEvent {
                id: None,
                name: SENT_EVENT.to_owned(),
                input: String::new(),
                instance_key: Some(conversation.clone()),
                properties: JsonObject::new(),
                auth: None,
                metadata: JsonObject::new(),
            };
            // Users name conversations directly.
            let rule = rule_for(local, &event)?;
            let agent = agent_of(bundle, rule)?;
            let instance_key = key_by_rule(bundle, local, (rule, &agent), &event)?;
            Ok(Route {
                agent,
                instance_key,
                former_key: None,
            })
        }
        (agent, _) => route_direct(bundle, agent, conversation),
    }
}

/// Separator between a conversation's key and the name of an instance that an agent created in it.
pub(super) const SPAWNED: char = '#';

/// The conversation that an instance belongs to: the key of the entry agent's part.
pub(super) fn conversation_of<'k>(
    bundle: &ProjectConfig,
    (agent, key): (&AgentName, &'k InstanceKey),
) -> &'k str {
    if bundle.is_entry(agent) {
        return key.as_str();
    }
    let own = key.as_str().strip_prefix(agent.as_str());
    let rest = own.and_then(|rest| rest.strip_prefix(':'));
    rest.filter(|rest| !rest.is_empty()).unwrap_or(key.as_str())
}

/// Routes an agent's event to another agent in the same conversation, or in the conversation with
/// the `given` key. `fresh` names a new instance within the conversation.
pub(super) fn route_between(
    bundle: &ProjectConfig,
    from: (&AgentName, &InstanceKey),
    agent: &AgentName,
    given: Option<&InstanceKey>,
    fresh: Option<&str>,
) -> Result<Route, RoutingError> {
    if !bundle.agents.contains_key(agent) {
        return Err(RoutingError::NoAgent {
            agent: agent.clone(),
        });
    }
    let instance_key = match given {
        Some(given) => given.clone(),
        None => {
            let conversation = conversation_of(bundle, from);
            let prefix = if bundle.is_entry(agent) {
                String::new()
            } else {
                format!("{agent}:")
            };
            let suffix = fresh.map(|name| format!("{SPAWNED}{name}"));
            new_key(&format!(
                "{prefix}{conversation}{}",
                suffix.unwrap_or_default()
            ))?
        }
    };
    Ok(Route {
        agent: agent.clone(),
        instance_key,
        former_key: None,
    })
}

/// Routes a connector's event by the first matching rule of its connection.
///
/// An event without a conversation, under a rule that uses the event's own key, belongs to the
/// conversation named after the connection. Keys chosen by a sender are namespaced by connection
/// (`SEC-9`), unless the rule sets `instanceKeyPrefix`.
pub(crate) fn route_ingress(
    bundle: &ProjectConfig,
    connection: &ConnectionDefinition,
    event: &ConnectorEvent,
) -> Result<Route, RoutingError> {
    let rule = rule_for(connection, event)?;
    let agent = agent_of(bundle, rule)?;
    let as_said = key_by_rule(bundle, connection, (rule, &agent), event);
    let chosen = match &rule.key {
        KeyRule::Fixed(_)
        | KeyRule::FromEvent { prefix: Some(_) }
        | KeyRule::Property {
            prefix: Some(_), ..
        } => {
            return Ok(Route {
                agent,
                instance_key: as_said?,
                former_key: None,
            });
        }
        KeyRule::FromEvent { prefix: None } => {
            let said = event.instance_key.as_ref();
            said.map_or(connection.name.as_str(), |key| key.as_str())
                .to_owned()
        }
        KeyRule::Property { name, prefix: None } => property_of(connection, event, name)?,
    };
    if chosen.is_empty() || is_configured(connection, &chosen) {
        return as_said.map(|instance_key| Route {
            agent,
            instance_key,
            former_key: None,
        });
    }
    let own = within_connection(&connection.name, &chosen);
    let instance_key = if bundle.is_entry(&agent) {
        new_key(&own)?
    } else {
        new_key(&format!("{agent}:{own}"))?
    };
    let former_key = as_said.ok().filter(|former| *former != instance_key);
    Ok(Route {
        agent,
        instance_key,
        former_key,
    })
}

/// Join of an event whose rule makes it a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RoutedPart {
    pub(crate) join: IngressJoin,
    /// Value that the parts of a set have in common, if the join has a `keyProperty`.
    pub(crate) key: Option<String>,
}

impl RoutedPart {
    /// The part under the terms of now.
    pub(crate) fn accepted(self, now: Timestamp) -> EventJoin {
        let Self { join, key } = self;
        let timeout_ms = i64::try_from(join.timeout_ms).unwrap_or(i64::MAX);
        let until = now.as_unix_millis().saturating_add(timeout_ms);
        EventJoin::Part(Box::new(JoinPart {
            name: join.name,
            part: join.part,
            key,
            all: join.all,
            until: Timestamp::from_unix_millis(until),
            on_timeout: join.on_timeout,
        }))
    }
}

/// Returns the join of a connector's event, if the first matching rule makes it a part.
pub(crate) fn part_of(
    connection: &ConnectionDefinition,
    event: &ConnectorEvent,
) -> Result<Option<RoutedPart>, RoutingError> {
    let Some(join) = rule_for(connection, event)?.join.clone() else {
        return Ok(None);
    };
    let key = match &join.key_property {
        None => None,
        // It has the form and the limit of a conversation's key.
        Some(name) => {
            let key = new_key(&property_of(connection, event, name)?)?;
            Some(key.as_str().to_owned())
        }
    };
    Ok(Some(RoutedPart { join, key }))
}

fn rule_for<'c>(
    connection: &'c ConnectionDefinition,
    event: &ConnectorEvent,
) -> Result<&'c IngressRule, RoutingError> {
    let mut rules = connection.rules.iter();
    let rule = rules.find(|rule| matches(connection, rule, event));
    rule.ok_or_else(|| {
        let (connection, event) = (connection.name.to_string(), event.name.clone());
        RoutingError::NoRule { connection, event }
    })
}

/// True if a schedule in the project names this key.
fn is_configured(connection: &ConnectionDefinition, key: &str) -> bool {
    let schedules = connection.config.get("schedules").and_then(Value::as_array);
    let mut schedules = schedules.into_iter().flatten();
    connection.entry.is_none()
        && connection.connector.as_str() == CRON
        && schedules
            .any(|schedule| schedule.get("instanceKey").and_then(Value::as_str) == Some(key))
}

fn agent_of(bundle: &ProjectConfig, rule: &IngressRule) -> Result<AgentName, RoutingError> {
    let named = rule.agent.as_ref().or(bundle.entry_agent.as_ref());
    named.cloned().ok_or(RoutingError::NoEntryAgent)
}

/// The key according to the rule and the event.
fn key_by_rule(
    bundle: &ProjectConfig,
    connection: &ConnectionDefinition,
    (rule, agent): (&IngressRule, &AgentName),
    event: &ConnectorEvent,
) -> Result<InstanceKey, RoutingError> {
    match &rule.key {
        KeyRule::Fixed(key) => Ok(key.clone()),
        KeyRule::FromEvent { prefix } => {
            let own = event
                .instance_key
                .as_ref()
                .map_or(connection.name.as_str(), |k| k.as_str());
            match prefix {
                Some(prefix) => new_key(&format!("{prefix}{own}")),
                None => key_within(bundle, agent, &new_key(own)?),
            }
        }
        KeyRule::Property { name, prefix } => {
            let value = property_of(connection, event, name)?;
            new_key(&format!("{}{value}", prefix.as_deref().unwrap_or_default()))
        }
    }
}

fn property_of(
    connection: &ConnectionDefinition,
    event: &ConnectorEvent,
    name: &str,
) -> Result<String, RoutingError> {
    let text = property_text(event, name).ok_or_else(|| RoutingError::NoKey {
        property: name.to_owned(),
    })?;
    Ok(if is_caseless(connection, name) {
        text.to_lowercase()
    } else {
        text
    })
}

fn matches(connection: &ConnectionDefinition, rule: &IngressRule, event: &ConnectorEvent) -> bool {
    let has = |name: &str, expected: &Value| match (event.properties.get(name), expected) {
        (Some(Value::String(text)), Value::String(expected)) if is_caseless(connection, name) => {
            text.to_lowercase() == expected.to_lowercase()
        }
        (found, expected) => found == Some(expected),
    };
    let mut properties = rule.properties.iter();
    rule.event.as_ref().is_none_or(|name| *name == event.name)
        && properties.all(|(name, expected)| has(name, expected))
}

/// True if the service ignores the case of a property's value.
fn is_caseless(connection: &ConnectionDefinition, property: &str) -> bool {
    let connector = connection.connector.as_str();
    let mut names = CASELESS_NAMES.iter().filter(|(of, _)| *of == connector);
    connection.entry.is_none() && names.any(|(_, names)| names.contains(&property))
}

fn property_text(event: &ConnectorEvent, name: &str) -> Option<String> {
    match event.properties.get(name)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Names of the agents, for display.
pub(super) fn agents_of(bundle: &ProjectConfig) -> String {
    let names: Vec<&str> = bundle.agents.keys().map(AgentName::as_str).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use goondan_protocol::definition::{
        AgentDefinition, LoopBreaker, ModelDefinition, ModelProvider,
    };
    use goondan_protocol::ids::ConnectionName;
    use goondan_protocol::limits::MAX_INSTANCE_KEY_BYTES;
    use goondan_protocol::process_limits::ProcessLimits;
    use goondan_protocol::script::Script;
    use goondan_protocol::working_directory::CwdMode;
    use serde_json::json;

    use super::*;

    fn bundle() -> ProjectConfig {
        let agent = |name: &str| {
            let name: AgentName = name.parse().unwrap();
            let definition = AgentDefinition {
                name: name.clone(),
                description: None,
                system_prompt: None,
                model: ModelDefinition {
                    name: "scripted".parse().unwrap(),
                    model: "scripted".to_owned(),
                    provider: ModelProvider::Scripted {
                        script: Script { rules: Vec::new() },
                    },
                },
                tools: Vec::new(),
                extensions: Vec::new(),
                max_steps_per_turn: 1,
                loop_breaker: LoopBreaker::default(),
                cwd_mode: CwdMode::default(),
                limits: ProcessLimits::default(),
                secret_files: Vec::new(),
                sandbox: goondan_protocol::sandbox::SandboxPolicy::off(),
                package_sandboxes: Vec::new(),
                extension_sandbox: None,
                skills: Vec::new(),
                contract: goondan_protocol::base_package::BaseContract::Own,
                swarm: None,
                project_work: None,
            };
            (name, definition)
        };
        ProjectConfig {
            package: None,
            swarm: None,
            idle_swarms: Vec::new(),
            conversation_key: None,
            entry_agent: "clerk".parse().ok(),
            agents: [agent("clerk"), agent("helper")].into(),
            cli_agents: BTreeMap::new(),
            notify: BTreeMap::new(),
            connections: BTreeMap::new(),
            local: None,
            models: BTreeMap::new(),
            oauth_apps: BTreeMap::new(),
            oauth_needs: std::collections::BTreeSet::new(),
            prices: BTreeMap::new(),
            budgets: Vec::new(),
            grace_period_ms: 0,
            lifecycle: goondan_config::Lifecycle::default(),
            observation: goondan_protocol::observe::ObservationBounds::default(),
            tasks: goondan_config::TaskPolicy::default(),
            approvals: goondan_config::ApprovalPolicy::default(),
            changesets: None,
            undecided_permissions: Vec::new(),
            appliers: BTreeMap::new(),
            digest: String::new(),
        }
    }

    fn rule(event: Option<&str>, agent: Option<&str>, key: KeyRule) -> IngressRule {
        IngressRule {
            event: event.map(str::to_owned),
            properties: BTreeMap::new(),
            agent: agent.map(|name| name.parse().unwrap()),
            key,
            join: None,
        }
    }

    fn own_key(prefix: Option<&str>) -> KeyRule {
        let prefix = prefix.map(str::to_owned);
        KeyRule::FromEvent { prefix }
    }

    fn connection(rules: Vec<IngressRule>) -> ConnectionDefinition {
        let name: ConnectionName = "hook".parse().unwrap();
        ConnectionDefinition {
            name,
            connector: "webhook".parse().unwrap(),
            entry: None,
            entry_digest: None,
            config: JsonObject::new(),
            secrets: BTreeMap::new(),
            rules,
            header: None,
            keeps_payload: true,
            limits: ProcessLimits::default(),
            sandbox: goondan_protocol::sandbox::SandboxPolicy::default(),
            egress: Vec::new(),
        }
    }

    fn event(name: &str, key: Option<&str>, properties: Value) -> ConnectorEvent {
        let Value::Object(properties) = properties else {
            panic!("properties are an object")
        };
        ConnectorEvent {
            id: None,
            name: name.to_owned(),
            input: "x".to_owned(),
            instance_key: key.map(|key| key.parse().unwrap()),
            properties,
            auth: None,
            metadata: JsonObject::new(),
        }
    }

    fn route(
        rules: Vec<IngressRule>,
        event: &ConnectorEvent,
    ) -> Result<(String, String), RoutingError> {
        let route = route_ingress(&bundle(), &connection(rules), event)?;
        Ok((route.agent.to_string(), route.instance_key.to_string()))
    }

    fn goes_to(agent: &str, key: &str) -> Result<(String, String), RoutingError> {
        Ok((agent.to_owned(), key.to_owned()))
    }

    #[test]
    fn inst_3_agents_reach_each_other_within_a_conversation() {
        let bundle = bundle();
        let entry = bundle.entry_agent.clone().unwrap();
        let mut others = bundle.agents.keys().filter(|name| **name != entry);
        let other = others.next().unwrap().clone();
        let route = |from: &AgentName, key: &str, to: &AgentName, given: Option<&str>| {
            let key: InstanceKey = key.parse().unwrap();
            let given = given.map(|given| given.parse().unwrap());
            let route = route_between(&bundle, (from, &key), to, given.as_ref(), None).unwrap();
            route.instance_key.to_string()
        };
        let others_key = format!("{other}:main");
        assert_eq!(route(&entry, "main", &other, None), others_key);
        assert_eq!(route(&other, &others_key, &entry, None), "main");
        assert_eq!(route(&other, &others_key, &other, None), others_key);
        // A key of the entry agent that looks like another agent's key belongs to no other agent.
        let twice = format!("{other}:{others_key}");
        assert_eq!(route(&entry, &others_key, &other, None), twice);
        assert_eq!(route(&entry, "main", &other, Some("x")), "x");
        // An instance with a given key is a separate conversation.
        assert_eq!(route(&other, "x", &entry, None), "x");

        let main: InstanceKey = "main".parse().unwrap();
        let fresh = route_between(&bundle, (&entry, &main), &other, None, Some("1f"));
        assert_eq!(
            fresh.unwrap().instance_key.as_str(),
            format!("{others_key}#1f")
        );
    }

    #[test]
    fn conn_1_names_of_github_match_in_any_case() {
        let bundle = bundle();
        let mut of_shelf = rule(None, None, own_key(None));
        of_shelf.properties = [("repository".to_owned(), json!("Ada/Shelf"))].into();
        let mut by_name = rule(
            Some("push"),
            None,
            KeyRule::Property {
                name: "repository".to_owned(),
                prefix: None,
            },
        );
        by_name.properties = [("branch".to_owned(), json!("main"))].into();
        let mut hub = connection(vec![of_shelf, by_name]);
        hub.connector = "github".parse().unwrap();
        let shelf = json!({"repository": "ada/shelf"});
        let issue = event("issues", Some("k"), shelf.clone());
        assert!(route_ingress(&bundle, &hub, &issue).is_ok());
        let push = event(
            "push",
            None,
            json!({"repository": "Ada/Books", "branch": "main"}),
        );
        let route = route_ingress(&bundle, &hub, &push).unwrap();
        assert_eq!(route.instance_key.as_str(), "hook:ada/books");
        // Branches differ by case, and so do properties of other connectors.
        let other = event(
            "push",
            None,
            json!({"repository": "Ada/Books", "branch": "Main"}),
        );
        assert!(route_ingress(&bundle, &hub, &other).is_err());
        hub.connector = "webhook".parse().unwrap();
        assert!(route_ingress(&bundle, &hub, &event("issues", Some("k"), shelf)).is_err());
        let mut of_project = rule(None, None, own_key(None));
        of_project.properties = [("project".to_owned(), json!("Ada/Shelf"))].into();
        let mut lab = connection(vec![of_project]);
        lab.connector = "gitlab".parse().unwrap();
        let note = event("note", Some("k"), json!({"project": "ada/shelf"}));
        assert!(route_ingress(&bundle, &lab, &note).is_ok());
    }

    #[test]
    fn ipc_3_first_matching_rule_wins_and_default_is_entry_agent() {
        let rules = || {
            let mut vip = rule(Some("order"), Some("helper"), own_key(None));
            vip.properties.insert("vip".to_owned(), json!(true));
            vec![vip, rule(Some("order"), None, own_key(None))]
        };
        let order = |properties| event("order", Some("ann"), properties);
        assert_eq!(
            route(rules(), &order(json!({"vip": true}))),
            goes_to("helper", "helper:hook:ann")
        );
        assert_eq!(
            route(rules(), &order(json!({"vip": false}))),
            goes_to("clerk", "hook:ann")
        );
        assert_eq!(
            route(rules(), &order(json!({"vip": "true"}))),
            goes_to("clerk", "hook:ann")
        );
        let other = event("visit", Some("ann"), json!({}));
        assert!(matches!(
            route(rules(), &other),
            Err(RoutingError::NoRule { .. })
        ));
    }

    #[test]
    fn inst_3_other_agent_gets_its_own_key_unless_one_is_given() {
        let at = |agent: Option<&str>, key: &str| {
            let agent = agent.map(|name| name.parse().unwrap());
            let route = route_direct(&bundle(), agent.as_ref(), &key.parse().unwrap());
            route.map(|route| route.instance_key.to_string())
        };
        assert_eq!(at(None, "ann").unwrap(), "ann");
        assert_eq!(at(Some("clerk"), "ann").unwrap(), "ann");
        assert_eq!(at(Some("helper"), "ann").unwrap(), "helper:ann");
        assert_eq!(at(Some("helper"), "helper:ann").unwrap(), "helper:ann");
        assert!(matches!(
            at(Some("nobody"), "ann"),
            Err(RoutingError::NoAgent { .. })
        ));
        let fixed = KeyRule::Fixed("shared".parse().unwrap());
        let rules = vec![rule(None, Some("helper"), fixed)];
        let found = route(rules, &event("e", Some("ann"), json!({})));
        assert_eq!(found, goes_to("helper", "shared"));
    }

    #[test]
    fn ipc_3_local_client_events_follow_the_rules_of_its_connection() {
        let at = |rules: Option<Vec<IngressRule>>, agent: Option<&str>| {
            let mut bundle = bundle();
            bundle.local = rules.map(connection);
            let agent = agent.map(|name| name.parse().unwrap());
            let route = route_sent(&bundle, agent.as_ref(), &"ann".parse().unwrap())?;
            Ok((route.agent.to_string(), route.instance_key.to_string()))
        };
        let to_helper = || vec![rule(Some("message"), Some("helper"), own_key(None))];
        assert_eq!(at(None, None), goes_to("clerk", "ann"));
        assert_eq!(at(Some(to_helper()), None), goes_to("helper", "helper:ann"));
        assert_eq!(
            at(Some(to_helper()), Some("clerk")),
            goes_to("clerk", "ann")
        );
        let other = vec![rule(Some("request"), None, own_key(None))];
        assert!(matches!(
            at(Some(other), None),
            Err(RoutingError::NoRule { .. })
        ));
    }

    #[test]
    fn instance_key_is_taken_from_event_connection_or_property() {
        let own = |prefix| vec![rule(None, None, own_key(prefix))];
        let named = event("e", Some("ann"), json!({}));
        let nameless = event("e", None, json!({}));
        assert_eq!(route(own(None), &nameless), goes_to("clerk", "hook"));
        assert_eq!(route(own(None), &named), goes_to("clerk", "hook:ann"));
        assert_eq!(route(own(Some("")), &named), goes_to("clerk", "ann"));
        assert_eq!(
            route(own(Some("web-")), &named),
            goes_to("clerk", "web-ann")
        );
        let property = || {
            let (name, prefix) = ("user".to_owned(), Some("u".to_owned()));
            vec![rule(None, None, KeyRule::Property { name, prefix })]
        };
        let of = |value: Value| route(property(), &event("e", None, json!({"user": value})));
        assert_eq!(of(json!("bob")), goes_to("clerk", "ubob"));
        assert_eq!(of(json!(7)), goes_to("clerk", "u7"));
        assert_eq!(of(json!(false)), goes_to("clerk", "ufalse"));
        for value in [json!(null), json!([1]), json!({"a": 1})] {
            assert!(matches!(of(value), Err(RoutingError::NoKey { .. })));
        }
        let missing = route(property(), &event("e", None, json!({})));
        assert!(matches!(missing, Err(RoutingError::NoKey { .. })));
    }

    #[test]
    fn sec_9_keys_and_ids_from_senders_are_scoped_to_connections() {
        let own = || vec![rule(None, None, own_key(None))];
        for (said, key) in [
            ("main", "hook:main"),
            ("telegram:178", "hook:telegram:178"),
            ("hook", "hook"),
            ("hook:main", "hook:main"),
            ("hooky", "hook:hooky"),
            ("other:hook:main", "hook:other:hook:main"),
        ] {
            let found = route(own(), &event("e", Some(said), json!({})));
            assert_eq!(found, goes_to("clerk", key));
        }
        let by_property = |prefix: Option<&str>| {
            let (name, prefix) = ("user".to_owned(), prefix.map(str::to_owned));
            let rules = vec![rule(None, None, KeyRule::Property { name, prefix })];
            route(rules, &event("e", None, json!({"user": "main"})))
        };
        assert_eq!(by_property(None), goes_to("clerk", "hook:main"));
        assert_eq!(by_property(Some("")), goes_to("clerk", "main"));
        // A key that looks like another agent's part of a conversation is not treated as one.
        let to_helper = vec![rule(None, Some("helper"), own_key(None))];
        let found = route(to_helper, &event("e", Some("helper:main"), json!({})));
        assert_eq!(found, goes_to("helper", "helper:hook:helper:main"));
    }

    #[test]
    fn sec_9_schedule_key_is_set_by_the_configuration() {
        let key_of = |connector: &str, said: &str| {
            let mut clock = connection(vec![rule(None, None, own_key(None))]);
            clock.connector = connector.parse().unwrap();
            let schedules = json!([{"name": "nightly", "instanceKey": "reports"}]);
            clock.config.insert("schedules".to_owned(), schedules);
            let event = event("nightly", Some(said), json!({}));
            let route = route_ingress(&bundle(), &clock, &event).unwrap();
            route.instance_key.to_string()
        };
        assert_eq!(key_of("cron", "reports"), "reports");
        assert_eq!(key_of("cron", "main"), "hook:main");
        assert_eq!(key_of("webhook", "reports"), "hook:reports");
    }

    #[test]
    fn sec_9_a_route_names_the_key_that_the_conversation_had_before() {
        let former = |key: KeyRule, agent: Option<&str>, said: &str| {
            let rules = vec![rule(None, agent, key)];
            let event = event("e", Some(said), json!({"user": said}));
            let route = route_ingress(&bundle(), &connection(rules), &event).unwrap();
            route.former_key.map(|key| key.to_string())
        };
        let property = || KeyRule::Property {
            name: "user".to_owned(),
            prefix: None,
        };
        assert_eq!(former(own_key(None), None, "ann").as_deref(), Some("ann"));
        let of_helper = former(own_key(None), Some("helper"), "ann");
        assert_eq!(of_helper.as_deref(), Some("helper:ann"));
        assert_eq!(former(property(), None, "ann").as_deref(), Some("ann"));
        assert_eq!(former(own_key(None), None, "hook:ann"), None);
        assert_eq!(former(own_key(Some("")), None, "ann"), None);
    }

    #[test]
    fn ipc_3_a_part_of_a_join_is_told_by_its_rule_and_key() {
        let mut build = rule(Some("build"), None, own_key(None));
        build.join = Some(IngressJoin {
            name: "release".to_owned(),
            part: "built".to_owned(),
            key_property: Some("commit".to_owned()),
            all: vec!["built".to_owned(), "reviewed".to_owned()],
            timeout_ms: 1_000,
            on_timeout: goondan_protocol::event_join::JoinTimeout::Deliver,
        });
        let hook = connection(vec![build, rule(None, None, own_key(None))]);
        let of = |event: &ConnectorEvent| part_of(&hook, event);
        let part = of(&event("build", None, json!({"commit": 12}))).unwrap();
        let part = part.unwrap().accepted(Timestamp::from_unix_millis(5));
        let part = part.as_part().unwrap();
        let told = (part.part.as_str(), part.key.as_deref());
        assert_eq!(told, ("built", Some("12")));
        assert_eq!(part.until, Timestamp::from_unix_millis(1_005));
        assert_eq!(of(&event("other", None, json!({}))), Ok(None));
        let keyless = of(&event("build", None, json!({})));
        assert!(matches!(keyless, Err(RoutingError::NoKey { .. })));
        let long = "c".repeat(MAX_INSTANCE_KEY_BYTES + 1);
        let long = of(&event("build", None, json!({ "commit": long })));
        assert!(matches!(long, Err(RoutingError::BadKey { .. })));
    }

    #[test]
    fn a_key_that_grows_too_long_goes_nowhere() {
        let longest = "k".repeat(MAX_INSTANCE_KEY_BYTES);
        let rules = vec![rule(None, Some("helper"), own_key(None))];
        let found = route(rules, &event("e", Some(&longest), json!({})));
        assert!(matches!(found, Err(RoutingError::BadKey { .. })));
        let empty = KeyRule::Property {
            name: "user".to_owned(),
            prefix: None,
        };
        let found = route(
            vec![rule(None, None, empty)],
            &event("e", None, json!({"user": ""})),
        );
        assert!(matches!(found, Err(RoutingError::BadKey { .. })));
    }
}
