//! Headers of connections, and the tool that reads payloads (`CONN-1`).

use goondan_config::ProjectConfig;

use crate::support::{Project, SMALLEST};

/// A Connection `in` with these further lines in its `spec`.
fn connection(connector: &str, more: &str) -> String {
    let secrets = match connector {
        "telegram" => "  secrets: {botToken: {value: \"1:x\"}}\n",
        "slack" => "  secrets: {signingSecret: {value: x}}\n",
        "github" | "gitlab" => "  secrets: {webhookSecret: {value: x}}\n",
        _ => "",
    };
    format!(
        "apiVersion: goondan.ai/v1\nkind: Connection\nmetadata: {{name: in}}\nspec:\n  \
         connectorRef: {{kind: Connector, name: {connector}, package: \"@goondan/base\"}}\n\
         {secrets}{more}"
    )
}

fn header(bundle: &ProjectConfig) -> Option<&str> {
    let connection = bundle.connections.values().next().unwrap();
    connection
        .header
        .as_ref()
        .map(goondan_protocol::event_header::HeaderTemplate::as_str)
}

/// Names of the tools of an agent.
fn tools<'b>(bundle: &'b ProjectConfig, agent: &str) -> Vec<&'b str> {
    let agent = &bundle.agents[&agent.parse().unwrap()];
    agent.tools.iter().map(|tool| tool.name.as_str()).collect()
}

const CLOCK: &str = "  config: {schedules: [{name: a, cron: '0 9 * * *', input: x}]}\n";

#[test]
fn conn_1_chats_and_github_have_a_header_by_default() {
    for (connector, begins) in [
        ("telegram", Some("Telegram[")),
        ("slack", Some("Slack[")),
        ("github", Some("GitHub ")),
        ("gitlab", Some("GitLab ")),
        ("webhook", None),
    ] {
        let bundle = Project::with(&connection(connector, "")).load();
        let found =
            header(&bundle).map(|header| header.split_inclusive(['[', ' ']).next().unwrap());
        assert_eq!(found, begins, "{connector}");
        let off = Project::with(&connection(connector, "  header: none\n")).load();
        assert_eq!(header(&off), None);
        let own = "  header: 'Own {event} of {connection}'\n";
        let own = Project::with(&connection(connector, own)).load();
        assert_eq!(header(&own), Some("Own {event} of {connection}"));
        assert_ne!(own.digest, off.digest);
    }
    let clock = format!("{CLOCK}  header: 'Clock {{schedule}}'\n");
    let clock = Project::with(&connection("cron", &clock)).load();
    assert_eq!(header(&clock), Some("Clock {schedule}"));
    // Senders choose the properties of a webhook, and a program those that it does not list.
    let webhook = "  header: 'Shop {customer}'\n";
    assert!(
        Project::with(&connection("webhook", webhook))
            .try_load()
            .is_ok()
    );
}

#[test]
fn conn_1_unknown_placeholders_list_the_known_ones() {
    for (connector, template, problem) in [
        (
            "github",
            "GitHub {user}",
            "has the placeholder `{user}`, which is not a property of its events; expected `action`, \
             `connection`, `event`, `number`, `ref`, `repo`, `repository`, `sender` or `senderType`",
        ),
        (
            "slack",
            "Slack [ {chanel}]",
            "`{chanel}`, which is not a property",
        ),
        ("slack", "Slack {user", "is not a header: `{` is not closed"),
        (
            "slack",
            "{user}",
            "is not a header: it does not begin with a fixed word",
        ),
    ] {
        let project = Project::with(&connection(connector, &format!("  header: '{template}'\n")));
        let problems = project.problems();
        assert_eq!(problems.len(), 1, "{problems:#?}");
        let place = " 17:11 `spec.header` of Connection `in` ";
        assert!(problems[0].contains(place), "{}", problems[0]);
        assert!(problems[0].contains(problem), "{}", problems[0]);
    }
}

#[test]
fn conn_1_own_connectors_declare_the_placeholders() {
    let project = |header: &str, events: &str| {
        Project::with(&format!(
            "apiVersion: goondan.ai/v1\nkind: Connector\nmetadata: {{name: tail}}\n\
             spec: {{entry: tail.py{events}}}\n---\n\
             apiVersion: goondan.ai/v1\nkind: Connection\nmetadata: {{name: in}}\n\
             spec: {{connectorRef: Connector/tail, header: {header}}}\n"
        ))
        .file("tail.py", "")
    };
    let events = ", events: [{name: line, properties: {offset: where}}]";
    let bundle = project("'Log {offset}'", events).load();
    assert_eq!(header(&bundle), Some("Log {offset}"));
    assert_eq!(tools(&bundle, "helper"), ["event"]);
    let problems = project("'Log {ofset}'", events).problems();
    assert!(problems[0].contains("expected `connection`, `event` or `offset`"));
    assert!(project("'Log {anything}'", "").try_load().is_ok());
}

#[test]
fn conn_1_settings_without_effect_are_reported() {
    let http = "  config: {allow: [example.com]}\n  header: none\n  payload: none\n";
    let warnings = Project::with(&connection("http", http)).warnings();
    assert_eq!(warnings.len(), 2, "{warnings:#?}");
    for (warning, name) in warnings.iter().zip(["header", "payload"]) {
        let text = format!("`spec.{name}` of Connection `in` has no effect");
        assert!(warning.contains(&text), "{warning}");
    }
}

#[test]
fn conn_1_agents_that_connections_reach_can_read_payloads() {
    let other = "apiVersion: goondan.ai/v1\nkind: Agent\nmetadata: {name: other}\n\
                 spec: {modelConfig: {modelRef: Model/main}}\n---\n\
                 apiVersion: goondan.ai/v1\nkind: Swarm\nmetadata: {name: team}\n\
                 spec: {entryAgent: Agent/helper}\n---\n";
    let load = |connection: &str| Project::with(&format!("{other}{connection}")).load();
    let bundle = load(&connection("github", ""));
    assert_eq!(tools(&bundle, "helper"), ["event"]);
    assert!(tools(&bundle, "other").is_empty());
    let to_other = "  ingress: {rules: [{route: {agentRef: Agent/other}}]}\n";
    let bundle = load(&connection("slack", to_other));
    assert!(tools(&bundle, "helper").is_empty());
    assert_eq!(tools(&bundle, "other"), ["event"]);
    for connection in [
        connection("webhook", "  payload: none\n"),
        connection("cron", CLOCK),
    ] {
        assert!(
            tools(&load(&connection), "helper").is_empty(),
            "{connection}"
        );
    }
    // A tool that the agent lists is left as it is.
    let own = "apiVersion: goondan.ai/v1\nkind: Tool\nmetadata: {name: event}\n\
               spec: {builtin: event, exports: [{name: list}]}\n---\n";
    let listed = SMALLEST.replace("Model/main}}", "Model/main}, tools: [Tool/event]}");
    let hook = connection("webhook", "");
    let bundle = Project::new(&format!("{listed}---\n{own}{hook}")).load();
    assert_eq!(tools(&bundle, "helper"), ["event"]);
    let agent = bundle.agents.values().next().unwrap();
    assert_eq!(agent.tools[0].exports[0].name, "list");
}

#[test]
fn compat_1_older_projects_keep_messages_and_tools_as_they_were() {
    let package = "apiVersion: goondan.ai/v1\nkind: Package\nmetadata: {name: \"@acme/desk\"}\n\
                   spec: {dependencies: [{name: \"@goondan/base\", version: \"^0.0.3\"}]}\n---\n";
    let load = |more: &str| {
        let connection = connection("telegram", more);
        Project::new(&format!("{package}{SMALLEST}---\n{connection}")).load()
    };
    let bundle = load("");
    assert_eq!(header(&bundle), None);
    assert!(tools(&bundle, "helper").is_empty());
    let bundle = load("  header: 'Chat {chatId}'\n");
    assert_eq!(header(&bundle), Some("Chat {chatId}"));
}
