//! Renames connectors, their events, settings and secrets.

use std::collections::{BTreeMap, BTreeSet};

use goondan_protocol::base_package::BASE_PACKAGE;

use super::CompatConversion;
use super::references;
use super::resources::OLDER_CONNECTORS;
use crate::codes;
use crate::edit::{
    as_text, at, at_mut, boolean, entries_mut, entry, from_environment, mapping, mapping_mut,
    number, put, rename, take, text, text_at,
};
use crate::environment::Variables;
use crate::report::Problem;
use crate::tree::{YamlNode, YamlValue};

/// Names used by a connector of the older package.
struct OlderConnectorNames {
    connector: &'static str,
    /// Settings, by older and current name.
    settings: &'static [(&'static str, &'static str)],
    /// Settings that are unused now.
    dropped: &'static [&'static str],
    /// Secrets, by older and current name.
    secrets: &'static [(&'static str, &'static str)],
    /// The secret that signs requests, by current name.
    signing: Option<&'static str>,
    /// Its default port.
    port: Option<u64>,
    /// Events, by older and current name.
    events: &'static [OlderEvent],
}

/// Setting of `slack` for the kinds of messages that count.
const MESSAGE_MODE: &str = "SLACK_MESSAGE_MODE";

/// Event of `slack` for a mention of the app.
const MENTION: &str = "app_mention";

/// Older and current name of an event.
type OlderEvent = (&'static str, &'static str);

static OLDER: [OlderConnectorNames; 6] = [
    OlderConnectorNames {
        connector: "cli",
        settings: &[],
        dropped: &[],
        secrets: &[],
        signing: None,
        port: None,
        events: &[("stdin_message", "message")],
    },
    OlderConnectorNames {
        connector: "webhook",
        settings: &[
            ("PORT", "port"),
            ("WEBHOOK_PORT", "port"),
            ("WEBHOOK_PATH", "path"),
        ],
        dropped: &[],
        secrets: &[
            ("signingSecret", "hmac"),
            ("SIGNING_SECRET", "hmac"),
            ("WEBHOOK_SECRET", "hmac"),
        ],
        signing: Some("hmac"),
        port: None,
        events: &[("webhook_message", "request")],
    },
    OlderConnectorNames {
        connector: "telegram",
        settings: &[
            ("TELEGRAM_API_BASE_URL", "endpoint"),
            ("TELEGRAM_POLL_TIMEOUT_SECONDS", "pollSeconds"),
        ],
        dropped: &[
            "TELEGRAM_REQUEST_TIMEOUT_MS",
            "TELEGRAM_RETRY_DELAY_MS",
            "TELEGRAM_INITIAL_OFFSET",
        ],
        secrets: &[
            ("TELEGRAM_BOT_TOKEN", "botToken"),
            ("BOT_TOKEN", "botToken"),
            ("TELEGRAM_TOKEN", "botToken"),
        ],
        signing: None,
        port: None,
        events: &[("telegram_message", "message")],
    },
    OlderConnectorNames {
        connector: "slack",
        settings: &[
            ("SLACK_WEBHOOK_PORT", "port"),
            ("PORT", "port"),
            ("SLACK_WEBHOOK_PATH", "path"),
            ("SLACK_API_BASE_URL", "endpoint"),
        ],
        dropped: &[MESSAGE_MODE],
        secrets: &[
            ("SLACK_SIGNING_SECRET", "signingSecret"),
            ("SIGNING_SECRET", "signingSecret"),
            ("SLACK_BOT_TOKEN", "botToken"),
            ("SLACK_TOKEN", "botToken"),
            ("BOT_TOKEN", "botToken"),
        ],
        signing: Some("signingSecret"),
        port: Some(8_787),
        events: &[("message_im", "message")],
    },
    OlderConnectorNames {
        connector: "github",
        settings: &[
            ("PORT", "port"),
            ("GITHUB_WEBHOOK_PORT", "port"),
            ("GITHUB_WEBHOOK_PATH", "path"),
        ],
        dropped: &[],
        secrets: &[
            ("signingSecret", "webhookSecret"),
            ("GITHUB_WEBHOOK_SECRET", "webhookSecret"),
            ("WEBHOOK_SECRET", "webhookSecret"),
            ("SIGNING_SECRET", "webhookSecret"),
            ("GITHUB_TOKEN", "token"),
        ],
        signing: Some("webhookSecret"),
        port: None,
        events: &[
            ("github_push", "push"),
            ("github_pull_request", "pull_request"),
            ("github_issue", "issues"),
            ("github_issue_comment", "issue_comment"),
        ],
    },
    OlderConnectorNames {
        connector: "discord",
        settings: &[
            ("PORT", "port"),
            ("DISCORD_WEBHOOK_PORT", "port"),
            ("DISCORD_PUBLIC_KEY", "publicKey"),
            ("PUBLIC_KEY", "publicKey"),
        ],
        dropped: &[],
        secrets: &[("DISCORD_BOT_TOKEN", "botToken"), ("BOT_TOKEN", "botToken")],
        signing: None,
        port: None,
        events: &[
            ("slash_command", "command"),
            ("component_interaction", "component"),
        ],
    },
];

/// True if only 0.0.3 has an event of this name of a built-in connector.
pub(super) fn is_older_event(connector: &str, event: &str) -> bool {
    let mut events = older_names(connector)
        .map_or(&[][..], |it| it.events)
        .iter();
    events.any(|(older, _)| *older == event)
}

/// True if only 0.0.3 has a setting or secret of this name of a built-in connector. Some names in
/// lower case are current names of other connectors, and easily mixed up.
pub(super) fn is_older_setting(connector: &str, name: &str) -> bool {
    let Some(older) = older_names(connector) else {
        return false;
    };
    let renamed = older.settings.iter().chain(older.secrets);
    let mut all = renamed.map(|(from, _)| from).chain(older.dropped);
    all.any(|from| *from == name) && !name.contains(char::is_lowercase)
}

/// The older name of a built-in connector, and the older names of its events by current name.
pub(crate) fn older_events(connector: &str) -> Option<(&'static str, BTreeMap<String, String>)> {
    let mut named = OLDER_CONNECTORS.into_iter();
    let renamed = named.find(|(older, today)| *today == connector && older != today);
    let older = older_names(connector)?;
    let events = older.events.iter();
    let events = events.map(|(name, today)| ((*today).to_owned(), (*name).to_owned()));
    let name = renamed.map_or(older.connector, |(name, _)| name);
    Some((name, events.collect()))
}

fn older_names(connector: &str) -> Option<&'static OlderConnectorNames> {
    OLDER.iter().find(|it| it.connector == connector)
}

/// Connectors that post replies to chats.
const CHATS: [&str; 3] = ["telegram", "slack", "discord"];

/// Connectors that can hand in texts as 0.0.3 did.
const OLDER_TEXTS: [&str; 2] = ["telegram", "slack"];

/// Converts the `spec` of a Connection.
pub(super) fn connection(
    spec: &mut YamlNode,
    variables: &Variables<'_>,
    cx: &mut CompatConversion<'_>,
) {
    references::single(spec, "connectorRef", cx);
    references::single(spec, "swarmRef", cx);
    connector_name(spec, cx);
    written_values(spec);
    let builtin = builtin_of(spec);
    let older = builtin.as_deref().and_then(older_names);
    if builtin.as_deref() == Some("slack") {
        message_mode(spec, variables, cx);
    }
    signing_secret(spec, older, builtin.as_deref());
    if let Some(older) = older {
        names(spec, older, cx);
        if cx.is_older() {
            drop_unset(spec, older, variables, cx);
            usual_variables(spec, older, variables);
            defaults(spec, older);
        }
    }
    let Some(rules) = at_mut(spec, &["ingress", "rules"]) else {
        return;
    };
    let YamlValue::List(rules) = &mut rules.value else {
        return;
    };
    for rule in rules {
        if let Some(route) = at_mut(rule, &["route"]) {
            references::single(route, "agentRef", cx);
        }
        if let Some(older) = older {
            event(rule, older, cx);
        }
    }
}

/// The built-in connector to which a Connection directly refers.
fn builtin_of(spec: &YamlNode) -> Option<String> {
    let reference = at(spec, &["connectorRef"])?;
    let is_builtin = text_at(reference, &["package"]) == Some(BASE_PACKAGE);
    text_at(reference, &["name"])
        .filter(|_| is_builtin)
        .map(str::to_owned)
}

/// Renames `telegram-polling` to `telegram`.
fn connector_name(spec: &mut YamlNode, cx: &mut CompatConversion<'_>) {
    let Some(name) = builtin_of(spec) else {
        return;
    };
    let renamed = OLDER_CONNECTORS
        .iter()
        .find(|(older, today)| *older == name && older != today);
    if let Some((older, today)) = renamed
        && let Some(node) = at_mut(spec, &["connectorRef", "name"])
    {
        *node = text(node.place, *today);
        let place = node.place;
        let what = format!("`{older}` is the old name of the connector `{today}`");
        cx.note(place, what, format!("write `{today}`"));
    }
}

/// Replaces `{value: X}` among settings by `X`.
fn written_values(spec: &mut YamlNode) {
    let Some(entries) = at_mut(spec, &["config"]).and_then(entries_mut) else {
        return;
    };
    for setting in entries {
        let is_written = matches!(setting.node.entries(), [only] if only.key == "value");
        if is_written && let Some(value) = take(&mut setting.node, "value") {
            setting.node = value.node;
        }
    }
}

/// Moves `verify.webhook.signingSecret` to the secrets.
fn signing_secret(spec: &mut YamlNode, older: Option<&OlderConnectorNames>, builtin: Option<&str>) {
    let Some(mut verify) = take(spec, "verify") else {
        return;
    };
    let secret =
        at_mut(&mut verify.node, &["webhook"]).and_then(|hook| take(hook, "signingSecret"));
    let Some(mut secret) = secret else {
        // Without a secret, the usual variable counts. Other content stays and is refused later.
        let is_empty =
            |node: &YamlNode| node.entries().iter().all(|it| it.node.entries().is_empty());
        if !(is_empty(&verify.node) && at(&verify.node, &["webhook"]).is_some()) {
            put(spec, verify);
        }
        return;
    };
    if builtin == Some("discord") {
        "publicKey".clone_into(&mut secret.key);
        if let Some(config) = mapping_mut(spec, "config") {
            put(config, secret);
        }
        return;
    }
    let name = match older {
        Some(older) => older.signing,
        None => Some("signingSecret"),
    };
    // Messages that are polled rather than posted are not signed.
    let Some(name) = name else { return };
    name.clone_into(&mut secret.key);
    if let Some(secrets) = mapping_mut(spec, "secrets") {
        put(secrets, secret);
    }
}

/// Moves names between settings and secrets, because some have changed sides.
fn move_names(spec: &mut YamlNode, from: &str, to: &str, names: &[(&str, &str)]) {
    for (name, _) in names {
        let moved = at_mut(spec, &[from]).and_then(|written| take(written, name));
        if let Some(moved) = moved
            && let Some(there) = mapping_mut(spec, to)
        {
            put(there, moved);
        }
    }
}

/// Renames settings and secrets.
fn names(spec: &mut YamlNode, older: &OlderConnectorNames, cx: &mut CompatConversion<'_>) {
    move_names(spec, "config", "secrets", older.secrets);
    move_names(spec, "secrets", "config", older.settings);
    let mut renamed = Vec::new();
    if let Some(config) = at_mut(spec, &["config"]) {
        for (from, to) in older.settings {
            renamed.extend(rename(config, from, to).map(|place| (place, *from, *to)));
        }
        for name in older.dropped {
            if let Some(dropped) = take(config, name) {
                let what = format!("`{name}` is ignored");
                cx.note(dropped.key_place, what, "remove it");
            }
        }
    }
    if let Some(secrets) = at_mut(spec, &["secrets"]) {
        for (from, to) in older.secrets {
            renamed.extend(rename(secrets, from, to).map(|place| (place, *from, *to)));
        }
    }
    for (place, from, to) in renamed {
        let what = format!(
            "`{from}` is the old name of `{to}` of the connector `{}`",
            older.connector
        );
        cx.note(place, what, format!("write `{to}`"));
    }
}

/// Replaces `SLACK_MESSAGE_MODE: mention` by rules for mentions. With its other values, all messages
/// count, and it is ignored.
fn message_mode(spec: &mut YamlNode, variables: &Variables<'_>, cx: &mut CompatConversion<'_>) {
    let Some(mode) = at(spec, &["config", MESSAGE_MODE]) else {
        return;
    };
    let variable = text_at(mode, &["valueFrom", "env"]).and_then(|name| variables.get(name));
    let variable = variable.as_ref().map(|variable| variable.value.as_str());
    let is_mention = as_text(mode)
        .or(variable)
        .is_some_and(|mode| mode.eq_ignore_ascii_case("mention"));
    if !is_mention {
        return;
    }
    if let Some(mode) = at_mut(spec, &["config"]).and_then(|config| take(config, MESSAGE_MODE)) {
        let what = format!("`{MESSAGE_MODE}: mention` keeps only the rules for `{MENTION}`");
        let help = format!("remove it, and write only rules with `match: {{event: {MENTION}}}`");
        cx.note(mode.key_place, what, help);
    }
    let Some(rules) = at_mut(spec, &["ingress", "rules"]) else {
        return;
    };
    let place = rules.place;
    let YamlValue::List(rules) = &mut rules.value else {
        return;
    };
    rules.retain(|rule| text_at(rule, &["match", "event"]).is_none_or(|event| event == MENTION));
    // Without a rule, all events would be accepted.
    if rules.is_empty() {
        rules.push(mapping(place, Vec::new()));
    }
    for rule in rules {
        if let Some(matched) = mapping_mut(rule, "match") {
            let event = entry("event", text(matched.place, MENTION));
            put(matched, event);
        }
    }
}

/// Removes optional settings whose environment variable is not set, so that their defaults apply.
fn drop_unset(
    spec: &mut YamlNode,
    older: &OlderConnectorNames,
    variables: &Variables<'_>,
    cx: &mut CompatConversion<'_>,
) {
    let Some(config) = at_mut(spec, &["config"]).and_then(entries_mut) else {
        return;
    };
    for setting in std::mem::take(config) {
        let variable = text_at(&setting.node, &["valueFrom", "env"]);
        let unset = variable.filter(|name| variables.get(name).is_none());
        match unset.filter(|_| !is_required(older.connector, &setting.key)) {
            Some(name) => {
                let message = format!(
                    "the environment variable `{name}` is not set, so `{}` has its default",
                    setting.key
                );
                let problem = Problem::warning(codes::MISSING_VARIABLE, setting.key_place, message);
                let help = format!("set it, or remove `{}`", setting.key);
                cx.report.add(problem.help(help));
            }
            None => config.push(setting),
        }
    }
}

/// Adds references to the usual environment variables of the service, for settings and secrets that
/// the Connection does not have. A required one refers to its variable even if that is not set, which
/// is then reported.
fn usual_variables(spec: &mut YamlNode, older: &OlderConnectorNames, variables: &Variables<'_>) {
    let place = spec.place;
    for (section, names) in [("secrets", older.secrets), ("config", older.settings)] {
        let mut done = BTreeSet::new();
        for (_, today) in names {
            if !done.insert(*today) || at(spec, &[section, *today]).is_some() {
                continue;
            }
            let is_required = is_required(older.connector, today)
                && !(older.connector == "slack" && sends(spec, variables));
            let candidates = candidates(older, names, today, is_required);
            let is_set = |name: &&str| variables.get(name).is_some();
            let first = candidates.first().filter(|_| is_required).copied();
            let Some(variable) = candidates.iter().copied().find(is_set).or(first) else {
                continue;
            };
            if let Some(fields) = mapping_mut(spec, section) {
                put(fields, entry(today, from_environment(place, variable)));
            }
        }
    }
}

/// Environment variables for a current name, the first one preferred. A variable without the
/// name of the service may belong to another service, so it only counts for required secrets.
fn candidates(
    older: &OlderConnectorNames,
    names: &[(&'static str, &'static str)],
    today: &str,
    is_required: bool,
) -> Vec<&'static str> {
    let of_name = names.iter().filter(|(_, to)| *to == today);
    let variables = of_name.map(|(from, _)| *from);
    let variables = variables.filter(|from| !from.contains(char::is_lowercase));
    let service = format!("{}_", older.connector.to_ascii_uppercase());
    let (mut own, others): (Vec<_>, Vec<_>) =
        variables.partition(|from| from.starts_with(&service));
    if is_required {
        own.extend(others);
    }
    own
}

/// True if the connector does not start without this setting or secret.
fn is_required(connector: &str, name: &str) -> bool {
    let described = goondan_connectors::find(connector);
    described.is_some_and(|described| {
        let secrets = described.secrets.iter();
        let settings = described.settings.iter();
        secrets
            .filter(|it| it.is_required)
            .any(|it| it.name == name)
            || settings
                .filter(|it| it.is_required)
                .any(|it| it.name == name)
    })
}

/// True if a Connection for Slack has a token, and can therefore send messages.
fn sends(spec: &YamlNode, variables: &Variables<'_>) -> bool {
    let names = ["SLACK_BOT_TOKEN", "SLACK_TOKEN"];
    at(spec, &["secrets", "botToken"]).is_some()
        || names.iter().any(|name| variables.get(name).is_some())
}

/// Applies what connections of 0.0.3 did without a setting for it.
fn defaults(spec: &mut YamlNode, older: &OlderConnectorNames) {
    if older.connector == "cli" {
        take(spec, "config");
        take(spec, "secrets");
    }
    // Agents of 0.0.3 write to chats only with their tools.
    if CHATS.contains(&older.connector)
        && let Some(config) = mapping_mut(spec, "config")
    {
        let place = config.place;
        put(config, entry("reply", text(place, "never")));
        // They find files by the markers in the text.
        if OLDER_TEXTS.contains(&older.connector) {
            put(config, entry("olderTexts", boolean(place, true)));
        }
    }
    if let Some(port) = older.port
        && let Some(config) = mapping_mut(spec, "config")
    {
        let place = config.place;
        put(config, entry("port", number(place, port)));
    }
}

/// Renames the event of a rule.
fn event(rule: &mut YamlNode, older: &OlderConnectorNames, cx: &mut CompatConversion<'_>) {
    let Some(written) = text_at(rule, &["match", "event"]) else {
        return;
    };
    let found = older.events.iter().find(|(name, _)| *name == written);
    let Some((name, today)) = found else {
        return;
    };
    let Some(node) = at_mut(rule, &["match", "event"]) else {
        return;
    };
    *node = text(node.place, *today);
    let place = node.place;
    let what = format!(
        "`{name}` is the old name of the event `{today}` of `{}`",
        older.connector
    );
    cx.note(place, what, format!("write `{today}`"));
}
