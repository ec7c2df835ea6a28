//! `kind: Connection`: a connector with its settings, secrets and ingress rules.

use std::collections::BTreeMap;

use goondan_protocol::JsonObject;
use goondan_protocol::event_header::HeaderTemplate;
use goondan_protocol::ids::{ConnectionName, InstanceKey, ResourceName};
use goondan_protocol::process_limits::ProcessLimits;
use serde_json::Value as Json;

use super::joins::{self, JoinSpec, PartSpec};
use super::written::ConnectionLocations;
use super::{Context, id, process_limits, sandbox, value};
use crate::KeyRule;
use crate::codes;
use crate::document::Document;
use crate::fields::{Fields, Label, LocatedValue};
use crate::kind::ResourceKind;
use crate::limits::{DEFAULT_CONNECTOR_MEMORY_MIB, MAX_KEY_PREFIX_BYTES};
use crate::reference::{LOCAL_CLIENT, Reference};
use crate::report::{Problem, ProblemReport, SourceLocation};
use crate::shape::{Field, FieldConstraint, FieldDefault, FieldType, Shape};
use crate::tree::{MappingEntry, YamlNode, YamlValue, entries_to_json};

/// The built-in connector that may start a local program.
pub(crate) const MCP: &str = "mcp";

/// The field for the header of events.
pub(crate) const HEADER: &str = "header";
/// The field that says if payloads are stored.
pub(crate) const PAYLOAD: &str = "payload";
/// The field of `ingress` with the joins.
const JOINS: &str = "joins";
/// Value of [`PAYLOAD`]: payloads are stored.
const KEEP: &str = "keep";
/// Value of [`HEADER`] and [`PAYLOAD`] for none.
const NONE: &str = "none";

impl ResourceKind {
    pub(crate) const CONNECTION: Self = Self::named("Connection");
}

/// Shape of a Connection's `spec`.
pub(crate) static SPEC: Shape = Shape::of(
    "ConnectionSpec",
    "A running connector. Each Connection has one process.",
    &[
        Field::required(
            "connectorRef",
            FieldType::Reference(ResourceKind::CONNECTOR),
            "The Connector.",
        ),
        Field::optional(
            "swarmRef",
            FieldType::Reference(ResourceKind::SWARM),
            "The Swarm that receives its events.",
        )
        .or(FieldDefault::Meaning("the project's Swarm")),
        Field::optional("config", FieldType::Settings, "The connector's settings."),
        Field::optional(
            "secrets",
            FieldType::Entries(&FieldType::Secret),
            "Its secrets by name. They are never shown.",
        ),
        Field::optional(
            "ingress",
            FieldType::Mapping(&INGRESS),
            "Routes for its events.",
        ),
        Field::optional(
            HEADER,
            FieldType::Text,
            "Header: a line above each message that shows its sender and place to the model, with placeholders such as `{event}`; `none` for no header.",
        )
        .or(FieldDefault::Meaning("the header of the connector")),
        Field::optional(
            PAYLOAD,
            FieldType::Word(&[KEEP, NONE]),
            "`keep`: the request of the service is stored with each event, and agents that get the events can read it with the tool `event`.",
        )
        .or(FieldDefault::Text(KEEP)),
        Field::optional(
            "limits",
            FieldType::Mapping(&process_limits::LIMITS),
            "Limits of its process, including all processes it starts.",
        ),
        sandbox::OF_CONNECTION,
    ],
);

static INGRESS: Shape = Shape::of(
    "Ingress",
    "Routes for a connection's events.",
    &[
        Field::optional(
            "rules",
            FieldType::List(&FieldType::Mapping(&RULE)),
            "Tried in order; the first that matches wins.",
        )
        .or(FieldDefault::Meaning("everything goes to the entry agent")),
        Field::optional(
            JOINS,
            FieldType::List(&FieldType::Mapping(&joins::JOIN)),
            "Events that reach an agent together, as one input.",
        ),
    ],
);

static RULE: Shape = Shape::of(
    "IngressRule",
    "A filter for events and the route of the events that match.",
    &[
        Field::optional(
            "match",
            FieldType::Mapping(&MATCH),
            "The events that match.",
        )
        .or(FieldDefault::Meaning("every event")),
        Field::optional(
            "route",
            FieldType::Mapping(&ROUTE),
            "The route of matching events.",
        ),
        Field::optional(
            "join",
            FieldType::Mapping(&joins::PART),
            "The join that matching events wait in.",
        ),
    ],
);

static MATCH: Shape = Shape::of(
    "Match",
    "The events that match a rule.",
    &[
        Field::optional("event", FieldType::Text, "The event's name."),
        Field::optional(
            "properties",
            FieldType::Entries(&FieldType::Anything),
            "Properties the event must have, with equal values.",
        ),
    ],
);

static ROUTE: Shape = Shape::of(
    "Route",
    "The agent and conversation that receive events.",
    &[
        Field::optional(
            "agentRef",
            FieldType::Reference(ResourceKind::AGENT),
            "The Agent.",
        )
        .or(FieldDefault::Meaning("the entry agent")),
        Field::optional("instanceKey", FieldType::Text, "Always this conversation."),
        Field::optional(
            "instanceKeyProperty",
            FieldType::Text,
            "The conversation named by this property of the event.",
        ),
        Field::optional(
            "instanceKeyPrefix",
            FieldType::Text,
            "Prefix of the conversation's key.",
        ),
    ],
)
.with(&[
    FieldConstraint::NotBoth("instanceKey", "instanceKeyProperty"),
    FieldConstraint::NotBoth("instanceKey", "instanceKeyPrefix"),
]);

/// A Connection as written, with resolved environment values.
pub(crate) struct ConnectionSpec {
    pub(crate) name: ConnectionName,
    pub(crate) connector: Option<Reference>,
    pub(crate) swarm: Option<Reference>,
    pub(crate) config: JsonObject,
    /// Reason why `command`, if given, cannot run on this machine.
    pub(crate) missing_program: Option<LocatedValue<String>>,
    pub(crate) secrets: BTreeMap<String, String>,
    pub(crate) rules: Vec<RuleSpec>,
    pub(crate) joins: Vec<JoinSpec>,
    pub(crate) header: Option<LocatedValue<HeaderSpec>>,
    pub(crate) keeps_payload: bool,
    /// Place of the field `payload`, if it is set.
    pub(crate) payload_place: Option<SourceLocation>,
    pub(crate) limits: ProcessLimits,
    pub(crate) sandbox: sandbox::SandboxSpec,
    pub(crate) written: ConnectionLocations,
}

/// A header as written.
pub(crate) enum HeaderSpec {
    None,
    Template(HeaderTemplate),
}

/// An ingress rule as written.
pub(crate) struct RuleSpec {
    pub(crate) event: Option<LocatedValue<String>>,
    pub(crate) properties: BTreeMap<String, Json>,
    /// The places of the properties' names.
    pub(crate) property_places: Vec<LocatedValue<String>>,
    pub(crate) agent: Option<Reference>,
    pub(crate) key: KeyRule,
    pub(crate) join: Option<PartSpec>,
}

pub(crate) fn read(document: &Document<'_>, cx: &mut Context<'_>) -> Option<ConnectionSpec> {
    let mut spec = document.spec(&mut cx.report)?;
    let mut written = ConnectionLocations::new(&spec);
    let connector = spec.reference("connectorRef", &mut cx.report);
    let name = read_name(&document.name, connector.as_ref(), &mut cx.report);
    let swarm = spec.reference("swarmRef", &mut cx.report);
    let label = spec.label.field("config");
    let config = spec.entries("config", &mut cx.report);
    written.note_settings("", config);
    let missing_program = missing_program(config, cx);
    let config = fill_in_entries(config, &label, cx, &mut written);
    let label = spec.label.field("secrets");
    let mut secrets = BTreeMap::new();
    for entry in spec.entries("secrets", &mut cx.report) {
        written.note_secret(entry);
        match value::read_named_secret(entry, label.field(&entry.key), cx) {
            Some(secret) => {
                secrets.insert(entry.key.clone(), secret);
            }
            None => written.is_whole = false,
        }
    }
    let (rules, joins) = spec
        .nested("ingress", &mut cx.report)
        .map(|ingress| read_ingress(ingress, &mut cx.report))
        .unwrap_or_default();
    let header = read_header(&mut spec, &mut cx.report);
    let payload = spec.word(PAYLOAD, &mut cx.report);
    let limits = process_limits::read(&mut spec, DEFAULT_CONNECTOR_MEMORY_MIB, cx);
    let sandbox = sandbox::read(&mut spec, cx);
    spec.close();
    Some(ConnectionSpec {
        name: name?,
        connector,
        swarm,
        config,
        missing_program,
        secrets,
        rules,
        joins,
        header,
        keeps_payload: payload.as_ref().is_none_or(|payload| payload.value == KEEP),
        payload_place: payload.map(|payload| payload.place),
        limits,
        sandbox,
        written,
    })
}

fn read_header(
    spec: &mut Fields<'_>,
    report: &mut ProblemReport,
) -> Option<LocatedValue<HeaderSpec>> {
    let label = spec.label.field(HEADER);
    let LocatedValue { value, place } = spec.text(HEADER, report)?;
    if value == NONE {
        let value = HeaderSpec::None;
        return Some(LocatedValue { value, place });
    }
    match HeaderTemplate::parse(value) {
        Ok(template) => {
            let value = HeaderSpec::Template(template);
            Some(LocatedValue { value, place })
        }
        Err(error) => {
            let message = format!("{label} is not a header: {error}");
            report.add(Problem::new(codes::INVALID_VALUE, place, message).help(
                "write text with placeholders, such as `Chat {event}[ of {connection}]`, or `none`",
            ));
            None
        }
    }
}

/// Checks that only the local client's connection uses its default name.
fn read_name(
    name: &LocatedValue<&str>,
    connector: Option<&Reference>,
    report: &mut ProblemReport,
) -> Option<ConnectionName> {
    let is_local = connector.is_some_and(|it| it.builtin && it.name == LOCAL_CLIENT);
    if name.value == LOCAL_CLIENT && !is_local {
        report.add(
            Problem::new(
                codes::INVALID_VALUE,
                name.place,
                format!("`{LOCAL_CLIENT}` is reserved for the local client"),
            )
            .help("choose another name"),
        );
        return None;
    }
    id(name, report)
}

/// Reason why the program of an MCP server is missing on this machine, if it is. Not checked if the
/// settings define `PATH`.
fn missing_program(config: &[MappingEntry], cx: &Context<'_>) -> Option<LocatedValue<String>> {
    let named = |name: &str| config.iter().find(|entry| entry.key == name);
    let sets_path = |entry: &MappingEntry| {
        matches!(&entry.node.value, YamlValue::Mapping(variables)
            if variables.iter().any(|variable| variable.key == "PATH"))
    };
    let YamlValue::List(words) = &named("command")?.node.value else {
        return None;
    };
    let node = words.first()?;
    let YamlValue::Text(program) = &node.value else {
        return None;
    };
    if named("env").is_some_and(sets_path) || cx.machine.has_program(program, cx.files.root()) {
        return None;
    }
    let value = match program.contains('/') {
        true => format!("the program `{program}` is not executable"),
        false => format!("no program `{program}` in PATH"),
    };
    let place = node.place;
    Some(LocatedValue { value, place })
}

/// Checks that the program of an MCP server exists on this machine, regardless of the connector's
/// name.
pub(crate) fn check_program(
    connection: &ConnectionSpec,
    connector: &ResourceName,
    report: &mut ProblemReport,
) {
    if let Some(missing) = &connection.missing_program
        && connector.as_str() == MCP
    {
        report.add(
            Problem::new(codes::NO_RUNTIME, missing.place, missing.value.clone())
                .help("install the server's program, or write its path"),
        );
    }
}

/// Converts settings to JSON and resolves every `{valueFrom: {env: NAME}}`.
fn fill_in_entries(
    entries: &[MappingEntry],
    label: &Label,
    cx: &mut Context<'_>,
    written: &mut ConnectionLocations,
) -> JsonObject {
    entries
        .iter()
        .map(|entry| {
            let value = fill_in(&entry.node, &label.field(&entry.key), cx, written);
            (entry.key.clone(), value)
        })
        .collect()
}

fn fill_in(
    node: &YamlNode,
    label: &Label,
    cx: &mut Context<'_>,
    written: &mut ConnectionLocations,
) -> Json {
    match &node.value {
        YamlValue::Mapping(entries) if entries.iter().any(|entry| entry.key == "valueFrom") => {
            let value = value::read_setting(node, label.clone(), cx);
            written.is_whole &= value.is_some();
            value.map_or(Json::Null, Json::String)
        }
        YamlValue::Mapping(entries) => Json::Object(fill_in_entries(entries, label, cx, written)),
        YamlValue::List(items) => items
            .iter()
            .enumerate()
            .map(|(index, item)| fill_in(item, &label.item(index), cx, written))
            .collect(),
        YamlValue::Null | YamlValue::Bool(_) | YamlValue::Number(_) | YamlValue::Text(_) => {
            node.to_json()
        }
    }
}

fn read_ingress(
    mut ingress: Fields<'_>,
    report: &mut ProblemReport,
) -> (Vec<RuleSpec>, Vec<JoinSpec>) {
    let rules = ingress
        .mappings("rules", report)
        .into_iter()
        .flatten()
        .map(|rule| read_rule(rule, report))
        .collect();
    let joins = ingress
        .mappings(JOINS, report)
        .into_iter()
        .flatten()
        .filter_map(|join| joins::read(join, report))
        .collect();
    ingress.close();
    (rules, joins)
}

fn read_rule(mut fields: Fields<'_>, report: &mut ProblemReport) -> RuleSpec {
    let mut rule = RuleSpec {
        event: None,
        properties: BTreeMap::new(),
        property_places: Vec::new(),
        agent: None,
        key: KeyRule::FromEvent { prefix: None },
        join: None,
    };
    if let Some(mut conditions) = fields.nested("match", report) {
        rule.event = conditions.text("event", report).map(|event| LocatedValue {
            value: event.value.to_owned(),
            place: event.place,
        });
        let properties = conditions.entries("properties", report);
        rule.properties = entries_to_json(properties).into_iter().collect();
        rule.property_places = properties
            .iter()
            .map(|entry| LocatedValue {
                value: entry.key.clone(),
                place: entry.key_place,
            })
            .collect();
        conditions.close();
    }
    if let Some(mut route) = fields.nested("route", report) {
        rule.agent = route.reference("agentRef", report);
        if let Some(key) = read_key(&mut route, report) {
            rule.key = key;
        }
        route.close();
    }
    if let Some(part) = fields.nested("join", report) {
        rule.join = joins::read_part(part, report);
    }
    fields.close();
    rule
}

fn read_key(route: &mut Fields<'_>, report: &mut ProblemReport) -> Option<KeyRule> {
    let fixed = route.text("instanceKey", report);
    let property = route.text("instanceKeyProperty", report);
    let prefix = route.text("instanceKeyPrefix", report);
    if let Some(prefix) = prefix
        .as_ref()
        .filter(|p| p.value.len() > MAX_KEY_PREFIX_BYTES)
    {
        report.add(Problem::new(
            codes::INVALID_VALUE,
            prefix.place,
            format!("`instanceKeyPrefix` is longer than {MAX_KEY_PREFIX_BYTES} bytes"),
        ));
    }
    let prefix = prefix.map(|prefix| prefix.value.to_owned());
    match (fixed, property) {
        (Some(fixed), _) => id::<InstanceKey>(&fixed, report).map(KeyRule::Fixed),
        (None, Some(property)) => Some(KeyRule::Property {
            name: property.value.to_owned(),
            prefix,
        }),
        (None, None) => Some(KeyRule::FromEvent { prefix }),
    }
}
