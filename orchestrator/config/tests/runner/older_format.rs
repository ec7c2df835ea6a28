//! Bundles of the format 0.0.3 load unchanged, with notes and without errors (`COMPAT-1`).

use goondan_config::{SettingValue, Severity};
use goondan_protocol::base_package::BaseContract;
use serde_json::json;

use crate::support::Project;

/// A bundle that uses the whole format: a coordinator with workers, chats, selectors with
/// overrides.
const BUNDLE: &str = r#"
apiVersion: goondan.ai/v1
kind: Package
metadata:
  name: "@acme/desk"
  labels: {tier: product}
  annotations: {owner: ada, since: 2026}
spec:
  version: 0.0.3
  access: restricted
  dependencies:
    - {name: "@goondan/base", version: "^0.0.3-alpha29"}
---
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: main}
spec: {provider: scripted, options: {rules: [{say: Hello}]}}
---
apiVersion: goondan.ai/v1
kind: Tool
metadata: {name: notes, labels: {area: desk}}
spec:
  entry: ./tools/notes.mjs
  exports: [{name: add}]
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: coordinator, labels: {role: lead}}
spec:
  modelConfig: {modelRef: {ref: Model/main}}
  prompts: {systemPrompt: You coordinate.}
  tools:
    - ref: {kind: Tool, name: agents, package: "@goondan/base"}
    - ref: Tool/http-fetch
    - selector: {kind: Tool, matchLabels: {area: desk}}
      overrides: {spec: {errorMessageLimit: 1500}}
    - selector: {kind: Tool, name: bash, matchLabels: {tier: base}}
      overrides: {spec: {errorMessageLimit: 700}, metadata: {labels: {x: y}}}
  extensions:
    - ref: {kind: Extension, name: message-window, package: "@goondan/base"}
    - ref: Extension/message-compaction
    - ref: Extension/tool-search
    - ref: Extension/logging
    - ref: Extension/message-integrity
    - ref: Extension/inter-agent-response-format
    - ref: Extension/context-message
    - selector: {kind: Extension, name: required-tools-guard}
      overrides: {spec: {config: {requiredTools: [bash__exec, notes__add], errorMessage: Use a tool.}}}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: worker, labels: {role: worker}}
spec:
  modelConfig: {modelRef: "Model/main"}
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {name: desk}
spec:
  entryAgent: {selector: {kind: Agent, matchLabels: {role: lead}}}
  agents:
    - selector: {kind: Agent, matchLabels: {role: lead}}
    - selector: {kind: Agent, matchLabels: {role: worker}}
      overrides: {spec: {description: Works.}}
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: chat}
spec:
  connectorRef: {kind: Connector, name: telegram-polling, package: "@goondan/base"}
  swarmRef: Swarm/desk
  secrets: {TELEGRAM_BOT_TOKEN: {valueFrom: {env: TELEGRAM_BOT_TOKEN}}}
  ingress:
    rules:
      - match: {event: telegram_message}
        route: {agentRef: {ref: Agent/worker}}
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: hook}
spec:
  connectorRef: Connector/slack
  config: {SLACK_WEBHOOK_PORT: {value: "8799"}}
  secrets: {SLACK_BOT_TOKEN: {valueFrom: {env: TELEGRAM_BOT_TOKEN}}}
  verify: {webhook: {signingSecret: {valueFrom: {env: SIGNING}}}}
  ingress:
    rules:
      - match: {event: message_im}
        route: {}
      - route: {agentRef: Agent/coordinator}
"#;

pub(crate) fn bundle() -> Project {
    Project::new(BUNDLE)
        .file("tools/notes.mjs", "export const handlers = {};")
        .variable("TELEGRAM_BOT_TOKEN", "t")
        .variable("SIGNING", "s3cret")
}

#[test]
fn compat_1_older_bundle_loads_and_each_older_form_warns_once() {
    let project = bundle();
    let checked = project.loader().check(&project.root());
    let bundle = checked.bundle.unwrap_or_else(|found| panic!("{found}"));
    let worse: Vec<_> = checked
        .warnings
        .iter()
        .filter(|found| found.severity != Severity::Note)
        .collect();
    assert_eq!(worse, Vec::<&goondan_config::Diagnostic>::new());
    let notes: Vec<&str> = checked
        .warnings
        .iter()
        .map(|it| it.message.as_str())
        .collect();
    let of_selectors = notes
        .iter()
        .filter(|note| note.starts_with("selectors are"));
    assert_eq!(of_selectors.count(), 1, "{notes:?}");
    let names = |of: &str| {
        let mut agents = bundle.agents.values();
        agents.find(|it| it.name.as_str() == of).unwrap()
    };
    let coordinator = names("coordinator");
    assert_eq!(coordinator.contract, BaseContract::V0_0_3);
    assert_eq!(
        coordinator.system_prompt.as_deref(),
        Some("You coordinate.")
    );
    assert_eq!(bundle.entry_agent.as_ref().unwrap().as_str(), "coordinator");
    assert_eq!(names("worker").description.as_deref(), Some("Works."));
    let tools: Vec<_> = coordinator
        .tools
        .iter()
        .map(|tool| (tool.name.as_str(), tool.error_message_limit))
        .collect();
    assert_eq!(
        tools,
        [
            ("agents", 1000),
            ("http-fetch", 1000),
            ("notes", 1500),
            ("bash", 700)
        ]
    );
}

#[test]
fn compat_1_extensions_have_the_defaults_they_had() {
    let bundle = bundle().load();
    let coordinator = &bundle.agents[bundle.entry_agent.as_ref().unwrap()];
    let configs: Vec<_> = coordinator
        .extensions
        .iter()
        .map(|it| {
            (
                it.name.as_str(),
                serde_json::Value::Object(it.config.clone()),
            )
        })
        .collect();
    assert_eq!(
        configs,
        [
            ("message-window", json!({"maxMessages": 80})),
            (
                "message-compaction",
                json!({"maxMessages": 40, "maxCharacters": 12_000, "keepMessages": 8})
            ),
            (
                "tool-search",
                json!({"toolName": "tool-search__search", "maxResults": 10})
            ),
            ("logging", json!({})),
            ("message-integrity", json!({})),
            ("inter-agent-response-format", json!({})),
            (
                "required-tools-guard",
                json!({"tools": ["bash__exec", "notes__add"], "anyOf": true, "message": "Use a tool."})
            ),
        ]
    );
}

#[test]
fn compat_1_connections_keep_names_and_implicit_ones_are_listed() {
    let project = bundle();
    let bundle = project.load();
    let names: Vec<&str> = bundle.connections.keys().map(AsRef::as_ref).collect();
    assert_eq!(names, ["chat", "hook", "http-fetch"]);
    let chat = &bundle.connections[&"chat".parse().unwrap()];
    assert_eq!(chat.connector.as_str(), "telegram");
    assert_eq!(chat.secrets["botToken"], "t");
    // Agents of 0.0.3 write to chats only with their tools.
    assert_eq!(chat.config["reply"], json!("never"));
    assert_eq!(chat.config["olderTexts"], json!(true));
    assert_eq!(chat.rules[0].event.as_deref(), Some("message"));
    let hook = &bundle.connections[&"hook".parse().unwrap()];
    assert_eq!(hook.secrets["signingSecret"], "s3cret");
    assert_eq!(hook.config["port"], json!("8799"));
    let settings = project.loader().effective(&project.root()).unwrap();
    let shown = settings
        .iter()
        .find(|it| it.resource == "Connection/http-fetch" && it.path == "config.allow[0]");
    assert_eq!(shown.unwrap().value, SettingValue::Plain(json!("*:*")));
}

#[test]
fn compat_1_chat_tool_without_connection_needs_usual_variable() {
    let bundle = BUNDLE.replace("ref: Tool/http-fetch", "ref: Tool/telegram");
    let (bundle, _) = bundle.split_once("kind: Connection").unwrap();
    let bundle = bundle
        .trim_end()
        .trim_end_matches("apiVersion: goondan.ai/v1");
    let project = Project::new(bundle.trim_end().trim_end_matches("---"))
        .file("tools/notes.mjs", "export const handlers = {};");
    let warnings = project.warnings();
    let missing = "`TELEGRAM_BOT_TOKEN` is not set, so Connection `telegram` does not start";
    assert!(
        warnings
            .iter()
            .any(|it| it.starts_with("W_") && it.contains(missing)),
        "{warnings:?}"
    );
    let bundle = project.load();
    assert!(bundle.connections.is_empty(), "{:?}", bundle.connections);
    let coordinator = &bundle.agents[bundle.entry_agent.as_ref().unwrap()];
    let mut tools = coordinator.tools.iter();
    let telegram = tools.find(|it| it.name.as_str() == "telegram").unwrap();
    assert!(telegram.connections.is_empty(), "{telegram:?}");
    let bundle = project.variable("BOT_TOKEN", "b").load();
    let made = &bundle.connections[&"telegram".parse().unwrap()];
    assert_eq!(made.secrets["botToken"], "b");
}

#[test]
fn compat_1_package_ref_token_in_config_and_cli_name_are_valid() {
    let written = BUNDLE
        .replace(
            "ref: Tool/http-fetch",
            "{ref: Tool/http-fetch, package: \"@goondan/base\"}",
        )
        .replace(
            "  secrets: {TELEGRAM_BOT_TOKEN: {valueFrom: {env: TELEGRAM_BOT_TOKEN}}}",
            "  config: {TELEGRAM_BOT_TOKEN: {valueFrom: {env: TELEGRAM_BOT_TOKEN}}}",
        );
    let local = "---\napiVersion: goondan.ai/v1\nkind: Connection\nmetadata: {name: cli}\nspec:\n  connectorRef: {kind: \
                 Connector, name: cli, package: \"@goondan/base\"}\n  ingress: {rules: [{match: {event: stdin_message}, \
                 route: {}}]}\n";
    let project = Project::new(&format!("{written}{local}"))
        .file("tools/notes.mjs", "export const handlers = {};")
        .variable("TELEGRAM_BOT_TOKEN", "t")
        .variable("SIGNING", "s3cret");
    let bundle = project.load();
    let coordinator = &bundle.agents[bundle.entry_agent.as_ref().unwrap()];
    assert!(
        coordinator
            .tools
            .iter()
            .any(|it| it.name.as_str() == "http-fetch")
    );
    let chat = &bundle.connections[&"chat".parse().unwrap()];
    assert_eq!(chat.secrets["botToken"], "t");
    assert_eq!(bundle.local.unwrap().name.as_str(), "cli");
}

#[test]
fn compat_1_bad_selector_or_override_is_reported_in_place() {
    let nothing = BUNDLE.replace(
        "{area: desk}}\n      overrides",
        "{area: moon}}\n      overrides",
    );
    let problems = Project::new(&nothing)
        .file("tools/notes.mjs", "")
        .variable("TELEGRAM_BOT_TOKEN", "t")
        .variable("SIGNING", "s")
        .problems();
    assert!(
        problems
            .iter()
            .any(|it| it.contains("the selector matches no Tool")),
        "{problems:?}"
    );
}

#[test]
fn compat_1_other_package_version_uses_the_current_contract() {
    let modern = BUNDLE.replace("^0.0.3-alpha29", "^0.1");
    let found = Project::new(&modern)
        .file("tools/notes.mjs", "")
        .variable("TELEGRAM_BOT_TOKEN", "t")
        .variable("SIGNING", "s")
        .problems();
    assert!(
        found
            .iter()
            .any(|it| it.contains("Tool `http-fetch` does not exist")),
        "{found:?}"
    );
    let neither = BUNDLE.replace("^0.0.3-alpha29", "^0.0.2");
    let found = Project::new(&neither)
        .file("tools/notes.mjs", "")
        .problems();
    assert!(
        found
            .iter()
            .any(|it| it.contains("is built in with version")),
        "{found:?}"
    );
}

/// A bundle with one Connection of a connector, which has these further lines in its `spec`.
fn connected(connector: &str, lines: &str) -> Project {
    let package = "apiVersion: goondan.ai/v1\nkind: Package\nmetadata: {name: p}\nspec: {dependencies: [{name: \
                   \"@goondan/base\", version: ^0.0.3}]}\n";
    let connection = format!(
        "apiVersion: goondan.ai/v1\nkind: Connection\nmetadata: {{name: outside}}\nspec:\n  connectorRef: {{kind: \
         Connector, name: {connector}, package: \"@goondan/base\"}}\n{lines}"
    );
    Project::new(&format!(
        "{package}---\n{}---\n{connection}",
        crate::support::SMALLEST
    ))
}

#[test]
fn compat_1_connections_without_secrets_take_usual_variables() {
    let key = "ab".repeat(32);
    let port = "  config: {PORT: {value: '0'}}\n";
    for (connector, lines, variables, secrets) in [
        (
            "telegram-polling",
            "",
            &[("TELEGRAM_BOT_TOKEN", "t")][..],
            json!({"botToken": "t"}),
        ),
        (
            "telegram",
            "",
            &[("BOT_TOKEN", "b")][..],
            json!({"botToken": "b"}),
        ),
        (
            "slack",
            "",
            &[("SLACK_BOT_TOKEN", "t"), ("SLACK_SIGNING_SECRET", "s")][..],
            json!({"botToken": "t", "signingSecret": "s"}),
        ),
        (
            "github",
            port,
            &[
                ("GITHUB_TOKEN", "t"),
                ("GITHUB_WEBHOOK_SECRET", "s"),
                ("SIGNING_SECRET", "other"),
            ][..],
            json!({"token": "t", "webhookSecret": "s"}),
        ),
        (
            "webhook",
            port,
            &[("WEBHOOK_SECRET", "s")][..],
            json!({"hmac": "s"}),
        ),
        // Another service's secret.
        ("webhook", port, &[("SIGNING_SECRET", "s")][..], json!({})),
        (
            "discord",
            port,
            &[
                ("DISCORD_PUBLIC_KEY", key.as_str()),
                ("DISCORD_BOT_TOKEN", "t"),
            ][..],
            json!({"botToken": "t"}),
        ),
    ] {
        let set = variables.iter();
        let project = set.fold(connected(connector, lines), |project, (name, value)| {
            project.variable(name, value)
        });
        let bundle = project.load();
        let outside = &bundle.connections[&"outside".parse().unwrap()];
        assert_eq!(json!(outside.secrets), secrets, "{connector}");
        if connector == "discord" {
            assert_eq!(outside.config["publicKey"], json!(key));
        }
    }
}

#[test]
fn compat_1_missing_variable_of_a_connection_is_a_warning() {
    let port = "  config: {PORT: {value: '0'}}\n";
    let signed =
        format!("{port}  verify: {{webhook: {{signingSecret: {{valueFrom: {{env: HOOK}}}}}}}}\n");
    for (connector, lines, variable) in [
        ("telegram-polling", "", "TELEGRAM_BOT_TOKEN"),
        ("slack", "", "SLACK_SIGNING_SECRET"),
        ("github", port, "GITHUB_WEBHOOK_SECRET"),
        ("github", signed.as_str(), "HOOK"),
        ("discord", port, "DISCORD_PUBLIC_KEY"),
        (
            "telegram",
            "  secrets: {botToken: {valueFrom: {env: MY_BOT}}}\n",
            "MY_BOT",
        ),
    ] {
        let project = connected(connector, lines);
        let warnings = project.warnings();
        let missing = format!("`{variable}` is not set, so Connection `outside` does not start");
        let is_it =
            |it: &String| it.starts_with("W_CONFIG_MISSING_VARIABLE ") && it.contains(&missing);
        assert!(warnings.iter().any(is_it), "{connector}: {warnings:?}");
        assert!(project.load().connections.is_empty(), "{connector}");
    }
    // In the current contract, it is an error.
    let current = Project::with(
        "apiVersion: goondan.ai/v1\nkind: Connection\nmetadata: {name: outside}\nspec:\n  connectorRef: {kind: \
         Connector, name: telegram, package: \"@goondan/base\"}\n  secrets: {botToken: {valueFrom: {env: MY_BOT}}}\n",
    );
    let problems = current.problems();
    assert!(
        problems[0].starts_with("E_CONFIG_MISSING_ENVIRONMENT "),
        "{problems:?}"
    );
}

#[test]
fn compat_1_slack_message_mode_selects_rules() {
    let rules =
        "  ingress: {rules: [{match: {event: app_mention}}, {match: {event: message_im}}, {}]}\n";
    let direct_only = "  ingress: {rules: [{match: {event: message_im}}]}\n";
    let all = [Some("app_mention"), Some("message"), None];
    let mentions = [Some("app_mention"); 2];
    for (rules, mode, variable, expected) in [
        (rules, "Mention", "", &mentions[..]),
        (rules, "{value: mention}", "", &mentions),
        (rules, "{valueFrom: {env: MODE}}", "mention", &mentions),
        (rules, "{valueFrom: {env: MODE}}", "all", &all),
        (rules, "channel_and_threads", "", &all),
        (direct_only, "mention", "", &mentions[..1]),
    ] {
        let lines = format!("  config: {{SLACK_MESSAGE_MODE: {mode}}}\n{rules}");
        let project = connected("slack", &lines)
            .variable("SLACK_BOT_TOKEN", "t")
            .variable("SLACK_SIGNING_SECRET", "s")
            .variable("MODE", variable);
        let bundle = project.load();
        let outside = &bundle.connections[&"outside".parse().unwrap()];
        let events = outside.rules.iter().map(|rule| rule.event.as_deref());
        let events: Vec<Option<&str>> = events.collect();
        assert_eq!(events, expected, "{mode}");
        assert_eq!(outside.config.get("SLACK_MESSAGE_MODE"), None, "{mode}");
    }
}

#[test]
fn compat_1_slack_without_signing_secret_only_sends() {
    let receives = "  ingress: {rules: [{match: {event: app_mention}}]}\n";
    for (lines, is_told) in [("", false), (receives, true)] {
        let project = connected("slack", lines).variable("SLACK_BOT_TOKEN", "t");
        let warnings = project.warnings();
        let told = warnings
            .iter()
            .filter(|it| it.contains("sends but receives nothing"));
        assert_eq!(told.count(), usize::from(is_told), "{warnings:?}");
        let secret = || {
            let bundle = project.load();
            bundle.connections[&"outside".parse().unwrap()].secrets["signingSecret"].clone()
        };
        assert_eq!(secret().len(), 64);
        assert_eq!(secret(), secret(), "the connector does not restart");
    }
}

#[test]
fn compat_1_optional_setting_with_unset_variable_has_its_default() {
    let lines = "  config: {SLACK_WEBHOOK_PORT: {valueFrom: {env: MY_PORT}}}\n";
    let project = connected("slack", lines)
        .variable("SLACK_BOT_TOKEN", "t")
        .variable("SLACK_SIGNING_SECRET", "s");
    let warnings = project.warnings();
    let is_it = |it: &String| it.contains("`MY_PORT` is not set, so `port` has its default");
    assert!(warnings.iter().any(is_it), "{warnings:?}");
    let bundle = project.load();
    let outside = &bundle.connections[&"outside".parse().unwrap()];
    assert_eq!(outside.config["port"], json!(8787));
    let set = project.variable("MY_PORT", "9000").load();
    let outside = &set.connections[&"outside".parse().unwrap()];
    assert_eq!(outside.config["port"], json!("9000"));
}

/// A project of 0.0.3 whose Agent has these lines in its `spec`.
fn with_older_agent(lines: &str) -> Project {
    Project::new(&format!(
        "apiVersion: goondan.ai/v1\nkind: Package\nmetadata: {{name: \"@acme/desk\"}}\nspec: {{dependencies: \
         [{{name: \"@goondan/base\", version: ^0.0.3}}]}}\n---\napiVersion: goondan.ai/v1\nkind: Model\nmetadata: \
         {{name: main}}\nspec: {{provider: scripted, options: {{rules: [{{say: Hello}}]}}}}\n---\napiVersion: \
         goondan.ai/v1\nkind: Extension\nmetadata: {{name: extra}}\nspec: {{entry: ./extra.mjs}}\n---\napiVersion: \
         goondan.ai/v1\nkind: Agent\nmetadata: {{name: clerk}}\nspec:\n  modelConfig: {{modelRef: Model/main}}\n\
         {lines}---\napiVersion: goondan.ai/v1\nkind: Swarm\nmetadata: {{name: desk}}\nspec: {{entryAgent: \
         Agent/clerk, agents: [Agent/clerk]}}\n"
    ))
    .file("extra.mjs", "export function register() {}")
}

#[test]
fn compat_1_system_of_an_agent_is_its_prompt() {
    let project = with_older_agent("  system: |\n    You help.\n");
    let checked = project.loader().check(&project.root());
    let bundle = checked.bundle.unwrap_or_else(|found| panic!("{found}"));
    let clerk = bundle.agents.values().next().unwrap();
    assert_eq!(clerk.system_prompt.as_deref(), Some("You help.\n"));
    let notes = checked.warnings.iter().map(|it| it.message.as_str());
    let notes: Vec<&str> = notes.filter(|it| it.contains("`system`")).collect();
    assert_eq!(notes, ["`system` of an Agent belongs to `prompt`"]);
    // Two prompts are a mistake.
    let project = with_older_agent("  system: One.\n  prompt: {system: Two.}\n");
    let checked = project.loader().check(&project.root());
    let found = checked.bundle.unwrap_err().to_string();
    assert!(found.contains("unknown field `system`"), "{found}");
}

#[test]
fn compat_1_one_callable_required_tool_is_enough() {
    for fine in [
        "  requiredTools: [bash__exec, gone__call]\n  tools: [{ref: Tool/bash}]\n",
        "  requiredTools: [extra__call]\n  extensions: [{ref: Extension/extra}]\n",
        "  tools: [{ref: Tool/bash}]\n  extensions:\n    - ref: Extension/required-tools-guard\n      config: \
         {requiredTools: [gone__call, bash__exec]}\n",
    ] {
        let project = with_older_agent(fine);
        let checked = project.loader().check(&project.root());
        assert!(checked.bundle.is_ok(), "{fine}: {:?}", checked.bundle);
        let mut notes = checked.warnings.iter();
        let note = notes.find(|it| it.message.contains("has no tool"));
        assert_eq!(note.unwrap().severity, Severity::Note, "{fine}");
    }
    let project = with_older_agent("  requiredTools: [gone__call]\n  tools: [{ref: Tool/bash}]\n");
    let checked = project.loader().check(&project.root());
    let found = checked.bundle.unwrap_err().to_string();
    assert!(found.contains("requires a call of `gone__call`"), "{found}");
}
