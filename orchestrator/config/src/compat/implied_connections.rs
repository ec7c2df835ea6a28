//! Connections that tools of `@goondan/base` had implicitly.

use goondan_protocol::base_package::BASE_PACKAGE;

use super::{CompatConversion, Trees, edit};
use crate::codes;
use crate::edit::{
    as_text, at, document, entry, from_environment, items, list, mapping, number, text, text_at,
};
use crate::environment::Variables;
use crate::place::SourceLocation;
use crate::report::Problem;
use crate::tree::{MappingEntry, YamlNode};

/// Usual environment variables for a Telegram bot's token; the first one that is set is used.
const TELEGRAM: [&str; 4] = [
    "TELEGRAM_BOT_TOKEN",
    "BOT_TOKEN",
    "TELEGRAM_TOKEN",
    "BRAIN_TELEGRAM_BOT_TOKEN",
];
/// Usual environment variables for a Slack app's token.
const SLACK: [&str; 3] = ["SLACK_BOT_TOKEN", "SLACK_TOKEN", "BRAIN_SLACK_BOT_TOKEN"];

/// Tools that need a connection, each with its connector.
const TOOLS: [(&str, &str); 3] = [
    ("http-fetch", "http"),
    ("slack", "slack"),
    ("telegram", "telegram"),
];

/// Creates a Connection for each connector that an Agent's tools need and the project does not
/// define.
pub(super) fn connections(
    trees: &Trees,
    variables: &Variables<'_>,
    cx: &mut CompatConversion<'_>,
) -> Vec<YamlNode> {
    let missing = TOOLS
        .iter()
        .filter(|(_, connector)| !has_connection(trees, connector));
    let mut made = Vec::new();
    for (tool, connector) in missing {
        let Some(place) = user_of(trees, &cx.added, tool) else {
            continue;
        };
        let spec = match *connector {
            "http" => match http(cx.swarm.as_ref(), place) {
                Ok(spec) => spec,
                Err(problem) => {
                    cx.report.add(*problem);
                    continue;
                }
            },
            "slack" => slack(variables, place),
            _ => telegram(variables, place),
        };
        let reference = mapping(
            place,
            vec![
                entry("kind", text(place, "Connector")),
                entry("name", text(place, *connector)),
                entry("package", text(place, BASE_PACKAGE)),
            ],
        );
        let mut entries = vec![entry("connectorRef", reference)];
        entries.extend(spec);
        let what = format!("the tool `{tool}` uses an implicit Connection `{tool}`");
        cx.note(
            place,
            what,
            "show it with `gdn config show`; write the Connection yourself to change it",
        );
        made.push(document(place, "Connection", tool, mapping(place, entries)));
    }
    made
}

fn documents<'t>(trees: &'t Trees, kind: &'static str) -> impl Iterator<Item = &'t YamlNode> {
    let all = trees.iter().flat_map(|(_, documents)| documents);
    all.filter(move |document| text_at(document, &["kind"]) == Some(kind))
}

fn has_connection(trees: &Trees, connector: &str) -> bool {
    let own: Vec<&str> = documents(trees, "Connector")
        .filter(|document| text_at(document, &["spec", "builtin"]) == Some(connector))
        .filter_map(|document| text_at(document, &["metadata", "name"]))
        .collect();
    documents(trees, "Connection").any(|document| {
        let Some(reference) = at(document, &["spec", "connectorRef"]) else {
            return false;
        };
        let named = text_at(reference, &["name"]);
        match as_text(reference).and_then(|text| text.split_once('/')) {
            Some((_, name)) => own.contains(&name),
            None => named.is_some_and(|name| name == connector || own.contains(&name)),
        }
    })
}

/// Place at which an Agent lists the built-in tool, directly or through a Tool.
fn user_of(trees: &Trees, added: &[YamlNode], tool: &str) -> Option<SourceLocation> {
    let tools = documents(trees, "Tool").chain(added);
    let own: Vec<&str> = tools
        .filter(|document| text_at(document, &["spec", "builtin"]) == Some(tool))
        .filter_map(|document| text_at(document, &["metadata", "name"]))
        .collect();
    let listed = documents(trees, "Agent")
        .flat_map(|agent| at(agent, &["spec", "tools"]).map_or(&[][..], items));
    let found = listed.filter_map(|item| {
        let reference = at(item, &["ref"]).unwrap_or(item);
        let is_it = match as_text(reference).and_then(|text| text.split_once('/')) {
            Some((_, name)) => own.contains(&name),
            None => match text_at(reference, &["package"]) {
                Some(BASE_PACKAGE) => text_at(reference, &["name"]) == Some(tool),
                _ => text_at(reference, &["name"]).is_some_and(|name| own.contains(&name)),
            },
        };
        is_it.then_some(item.place)
    });
    found.into_iter().next()
}

/// The hosts that the Swarm's policy allows; all public hosts if the policy does not list any.
fn http(
    swarm: Option<&YamlNode>,
    place: SourceLocation,
) -> Result<Vec<MappingEntry>, Box<Problem>> {
    let network = swarm.and_then(|swarm| at(swarm, &["spec", "policy", "sandbox", "network"]));
    let listed: Vec<&str> = network
        .and_then(|network| at(network, &["allow"]))
        .map_or(&[][..], items)
        .iter()
        .filter_map(as_text)
        .collect();
    let written = network.and_then(as_text);
    if let (Some(network), Some("none")) = (network, written) {
        let message = "`http-fetch` cannot reach any host: `network` of the Swarm is `none`";
        let problem = Problem::new(codes::INVALID_VALUE, network.place, message);
        let problem = problem.help(
            "allow hosts with `network: {allow: [example.org]}`, or write a Connection of the connector `http`",
        );
        return Err(Box::new(problem));
    }
    let mut config = Vec::new();
    let hosts: Vec<YamlNode> = if listed.is_empty() {
        vec![text(place, "*:*"), text(place, "http://*:*")]
    } else {
        let both = listed
            .iter()
            .flat_map(|host| [(*host).to_owned(), format!("http://{host}")]);
        both.map(|host| text(place, host)).collect()
    };
    if !listed.is_empty() || written == Some("any") {
        config.push(entry("allowPrivate", edit::boolean(place, true)));
    }
    config.insert(0, entry("allow", list(place, hosts)));
    Ok(vec![entry("config", mapping(place, config))])
}

fn telegram(variables: &Variables<'_>, place: SourceLocation) -> Vec<MappingEntry> {
    let token = entry("botToken", from_first(&TELEGRAM, variables, place));
    let mut spec = vec![entry("secrets", mapping(place, vec![token]))];
    let address = "TELEGRAM_API_BASE_URL";
    if variables.get(address).is_some() {
        let endpoint = entry("endpoint", from_environment(place, address));
        spec.push(entry("config", mapping(place, vec![endpoint])));
    }
    spec
}

fn slack(variables: &Variables<'_>, place: SourceLocation) -> Vec<MappingEntry> {
    let is_set = |name: &str| variables.get(name).is_some();
    let mut config = vec![entry(
        "port",
        match is_set("SLACK_WEBHOOK_PORT") {
            true => from_environment(place, "SLACK_WEBHOOK_PORT"),
            false => number(place, 8_787),
        },
    )];
    for (variable, name) in [
        ("SLACK_WEBHOOK_PATH", "path"),
        ("SLACK_API_BASE_URL", "endpoint"),
    ] {
        if is_set(variable) {
            config.push(entry(name, from_environment(place, variable)));
        }
    }
    let mut secrets = vec![entry("botToken", from_first(&SLACK, variables, place))];
    // Without it, the connection only sends.
    let signing = "SLACK_SIGNING_SECRET";
    if is_set(signing) {
        secrets.push(entry("signingSecret", from_environment(place, signing)));
    }
    vec![
        entry("config", mapping(place, config)),
        entry("secrets", mapping(place, secrets)),
    ]
}

/// The value of the first variable that is set. If none is set, refers to the first one, which is
/// then reported as missing.
fn from_first(names: &[&str], variables: &Variables<'_>, place: SourceLocation) -> YamlNode {
    let set = names.iter().find(|name| variables.get(name).is_some());
    let name = set.or(names.first()).copied().unwrap_or_default();
    from_environment(place, name)
}
