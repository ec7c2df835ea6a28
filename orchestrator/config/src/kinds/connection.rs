//! `kind: Connection`: a connector at work, its settings and secrets, and where its events go.

use std::collections::BTreeMap;

use goondan_protocol::JsonObject;
use goondan_protocol::ids::{ConnectionName, InstanceKey};
use serde_json::Value as Json;

use super::{Context, id};
use crate::KeyRule;
use crate::codes;
use crate::document::{Document, Kind};
use crate::fields::{Fields, Label, Located};
use crate::limits::MAX_KEY_PREFIX_BYTES;
use crate::reference::Reference;
use crate::report::{Problem, Report};
use crate::tree::{Entry, Node, Value, entries_to_json};

/// The name under which the local client's own events arrive.
const LOCAL_CLIENT: &str = "cli";

/// A Connection as written, environment values filled in.
pub(crate) struct ConnectionSpec {
    pub(crate) name: ConnectionName,
    pub(crate) connector: Option<Reference>,
    pub(crate) config: JsonObject,
    pub(crate) secrets: BTreeMap<String, String>,
    pub(crate) rules: Vec<RuleSpec>,
}

/// An ingress rule as written.
pub(crate) struct RuleSpec {
    pub(crate) event: Option<String>,
    pub(crate) properties: BTreeMap<String, Json>,
    pub(crate) agent: Option<Reference>,
    pub(crate) key: KeyRule,
}

/// Reads a Connection document.
pub(crate) fn read(document: &Document<'_>, cx: &mut Context<'_>) -> Option<ConnectionSpec> {
    let name = read_name(&document.name, &mut cx.report);
    let mut spec = document.spec(&mut cx.report)?;
    let label = spec.label.field("connectorRef");
    let connector = spec
        .require("connectorRef", &mut cx.report)
        .and_then(|entry| Reference::read(&entry.node, &label, Kind::Connector, &mut cx.report));
    let label = spec.label.field("config");
    let config = spec.entries("config", &mut cx.report);
    let config = fill_in_entries(config, &label, cx);
    let label = spec.label.field("secrets");
    let secrets = spec
        .entries("secrets", &mut cx.report)
        .iter()
        .filter_map(|entry| {
            let secret = read_secret(entry, label.field(&entry.key), cx)?;
            Some((entry.key.clone(), secret))
        })
        .collect();
    let rules = spec
        .nested("ingress", &mut cx.report)
        .map(|ingress| read_ingress(ingress, &mut cx.report))
        .unwrap_or_default();
    spec.close(&mut cx.report);
    Some(ConnectionSpec {
        name: name?,
        connector,
        config,
        secrets,
        rules,
    })
}

fn read_name(name: &Located<&str>, report: &mut Report) -> Option<ConnectionName> {
    if name.value == LOCAL_CLIENT {
        report.add(
            Problem::new(
                codes::INVALID_VALUE,
                name.place,
                format!("`{LOCAL_CLIENT}` is the local client's own connection"),
            )
            .help("choose another name"),
        );
        return None;
    }
    id(name, report)
}

/// Turns settings into JSON with every `{valueFrom: {env: NAME}}` replaced by the variable's value.
fn fill_in_entries(entries: &[Entry], label: &Label, cx: &mut Context<'_>) -> JsonObject {
    entries
        .iter()
        .map(|entry| {
            let value = fill_in(&entry.node, &label.field(&entry.key), cx);
            (entry.key.clone(), value)
        })
        .collect()
}

fn fill_in(node: &Node, label: &Label, cx: &mut Context<'_>) -> Json {
    match &node.value {
        Value::Mapping(entries) if entries.iter().any(|entry| entry.key == "valueFrom") => {
            let fields = Fields::open(node, node.place, label.clone(), &mut cx.report);
            let value = fields.and_then(|mut fields| {
                let value = read_environment(&mut fields, cx);
                fields.close(&mut cx.report);
                value
            });
            value.map_or(Json::Null, |value| Json::String(value.value))
        }
        Value::Mapping(entries) => Json::Object(fill_in_entries(entries, label, cx)),
        Value::List(items) => items
            .iter()
            .enumerate()
            .map(|(index, item)| fill_in(item, &label.item(index), cx))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => node.to_json(),
    }
}

/// Reads the field `valueFrom` and the variable it names.
fn read_environment(fields: &mut Fields<'_>, cx: &mut Context<'_>) -> Option<Located<String>> {
    let mut source = fields.require_nested("valueFrom", &mut cx.report)?;
    let variable = source.require_text("env", &mut cx.report);
    source.close(&mut cx.report);
    let variable = variable?;
    let value = cx.env.get(variable.value);
    if value.is_none() {
        cx.report.add(
            Problem::new(
                codes::MISSING_ENVIRONMENT,
                variable.place,
                format!("the environment variable `{}` is not set", variable.value),
            )
            .help(format!(
                "set it where the orchestrator is started: `export {}=…`",
                variable.value
            )),
        );
    }
    Some(Located {
        value: value?,
        place: variable.place,
    })
}

/// Reads one secret. An empty one is refused: it would protect nothing and look as if it did.
fn read_secret(entry: &Entry, label: Label, cx: &mut Context<'_>) -> Option<String> {
    let mut fields = Fields::open(&entry.node, entry.key_place, label, &mut cx.report)?;
    fields.exclude("value", "valueFrom", &mut cx.report);
    let secret = if fields.get("valueFrom").is_some() {
        read_environment(&mut fields, cx)
    } else {
        fields
            .require_text("value", &mut cx.report)
            .map(|text| Located {
                value: text.value.to_owned(),
                place: text.place,
            })
    };
    let label = fields.label.clone();
    fields.close(&mut cx.report);
    let secret = secret?;
    if secret.value.is_empty() {
        cx.report.add(Problem::new(
            codes::INVALID_VALUE,
            secret.place,
            format!("{label} must not be empty"),
        ));
        return None;
    }
    Some(secret.value)
}

fn read_ingress(mut ingress: Fields<'_>, report: &mut Report) -> Vec<RuleSpec> {
    let rules = ingress
        .items("rules", report)
        .into_iter()
        .filter_map(|(node, label)| read_rule(node, label, report))
        .collect();
    ingress.close(report);
    rules
}

fn read_rule(node: &Node, label: Label, report: &mut Report) -> Option<RuleSpec> {
    let mut fields = Fields::open(node, node.place, label, report)?;
    let mut rule = RuleSpec {
        event: None,
        properties: BTreeMap::new(),
        agent: None,
        key: KeyRule::FromEvent { prefix: None },
    };
    if let Some(mut conditions) = fields.nested("match", report) {
        rule.event = conditions
            .text("event", report)
            .map(|event| event.value.to_owned());
        rule.properties = entries_to_json(conditions.entries("properties", report))
            .into_iter()
            .collect();
        conditions.close(report);
    }
    if let Some(mut route) = fields.nested("route", report) {
        let label = route.label.field("agentRef");
        rule.agent = route
            .get("agentRef")
            .and_then(|entry| Reference::read(&entry.node, &label, Kind::Agent, report));
        if let Some(key) = read_key(&mut route, report) {
            rule.key = key;
        }
        route.close(report);
    }
    fields.close(report);
    Some(rule)
}

fn read_key(route: &mut Fields<'_>, report: &mut Report) -> Option<KeyRule> {
    route.exclude("instanceKey", "instanceKeyProperty", report);
    route.exclude("instanceKey", "instanceKeyPrefix", report);
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
