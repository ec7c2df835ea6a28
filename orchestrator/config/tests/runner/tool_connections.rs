//! Tools that need a connection, and the connections assigned to them.

use goondan_protocol::ids::{AgentName, ConnectionName};

use crate::support::Project;

const MODEL: &str = "\
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: main}
spec: {provider: scripted, options: {rules: [{say: Hello}]}}
";

fn agent(tool: &str) -> String {
    format!(
        "---\napiVersion: goondan.ai/v1\nkind: Agent\nmetadata: {{name: helper}}\n\
         spec:\n  modelConfig: {{modelRef: Model/main}}\n  tools:\n    - {tool}\n"
    )
}

fn connection(name: &str, connector: &str, secrets: &str) -> String {
    format!(
        "---\napiVersion: goondan.ai/v1\nkind: Connection\nmetadata: {{name: {name}}}\n\
         spec:\n  connectorRef: {connector}\n  secrets: {secrets}\n"
    )
}

fn builtin(kind: &str, name: &str) -> String {
    format!("{{kind: {kind}, name: {name}, package: \"@goondan/base\"}}")
}

const TOKEN: &str = "{botToken: {value: \"1:x\"}}";

fn connections(project: &str) -> Vec<ConnectionName> {
    let bundle = Project::new(project).load();
    let agent = bundle.agents.values().next().unwrap();
    agent.tools[0].connections.clone()
}

fn telegram(name: &str) -> String {
    connection(name, &builtin("Connector", "telegram"), TOKEN)
}

#[test]
fn tool_gets_all_connections_of_its_connector_or_the_named_one() {
    let tool = agent(&builtin("Tool", "telegram"));
    let one = format!("{MODEL}{tool}{}", telegram("bot"));
    assert_eq!(connections(&one), ["bot".parse().unwrap()]);
    let cron = "---\napiVersion: goondan.ai/v1\nkind: Connector\nmetadata: {name: news}\n\
                spec: {builtin: telegram}\n";
    let renamed = connection("also", "Connector/news", TOKEN);
    let several = format!("{one}{}{cron}{renamed}", telegram("another"));
    let names = ["also", "another", "bot"].map(|name| name.parse().unwrap());
    assert_eq!(connections(&several), names);
    for setting in ["another", "Connection/another"] {
        let tool = format!(
            "{}---\napiVersion: goondan.ai/v1\nkind: Tool\nmetadata: {{name: chat}}\n\
             spec: {{builtin: telegram, config: {{connection: {setting}}}}}\n",
            agent("Tool/chat")
        );
        let named = format!("{MODEL}{tool}{}{}", telegram("bot"), telegram("another"));
        assert_eq!(connections(&named), ["another".parse().unwrap()]);
        let missing = format!("{MODEL}{tool}{}", telegram("anothr"));
        let problems = Project::new(&missing).refused();
        let shown = problems.to_string();
        assert!(shown.contains("E_CONFIG_UNKNOWN_REFERENCE"), "{shown}");
        assert!(shown.contains("did you mean `anothr`?"), "{shown}");
    }
}

#[test]
fn a_tool_that_could_do_nothing_is_refused() {
    let alone = format!("{MODEL}{}", agent(&builtin("Tool", "telegram")));
    let problems = Project::new(&alone).problems();
    assert_eq!(
        problems,
        [
            "E_CONFIG_UNKNOWN_REFERENCE 12:26 the tool `telegram` needs a Connection of the \
             connector `telegram`, but the project has none"
        ]
    );
    // A problem of the connection itself is reported once.
    let connection = connection("bot", &builtin("Connector", "telegram"), "{}");
    let problems = Project::new(&format!("{alone}{connection}")).problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("needs `botToken`"), "{problems:?}");
}

fn asking(config: &str) -> Project {
    Project::new(&format!(
        "apiVersion: goondan.ai/v1
models: {{main: {{provider: scripted, options: {{rules: [{{say: Hello}}]}}}}}}
tools: {{desk: {{builtin: agent, config: {config}}}}}
agents:
  clerk: {{model: main, tools: [desk]}}
  lawyer: {{model: main, description: Checks contracts.}}
  coder: {{runtime: {{kind: cli, preset: claude}}}}
entryAgent: clerk
"
    ))
}

#[test]
fn ipc_2_an_agent_as_a_tool_has_the_agents_name_and_description() {
    let clerk: AgentName = "clerk".parse().unwrap();
    let config = |written: &str| {
        asking(written).load().agents[&clerk].tools[0]
            .config
            .clone()
    };
    for name in ["lawyer", "Agent/lawyer"] {
        let found = config(&format!("{{agent: {name}}}"));
        assert_eq!(found["agent"], "lawyer");
        assert_eq!(found["description"], "Checks contracts.");
    }
    let found = config("{agent: lawyer, description: Advises.}");
    assert_eq!(found["description"], "Advises.");
}

#[test]
fn ipc_2_an_agent_as_a_tool_that_could_ask_none_is_refused() {
    for (config, code, said) in [
        ("{}", "E_CONFIG_MISSING_FIELD", "needs the setting `agent`"),
        ("{agent: lawer}", "E_CONFIG_UNKNOWN_REFERENCE", "`lawer`"),
        (
            "{agent: clerk}",
            "E_CONFIG_INVALID_VALUE",
            "the agent itself",
        ),
        ("{agent: coder}", "E_CONFIG_INVALID_VALUE", "works on tasks"),
        ("{agent: 7}", "E_CONFIG_WRONG_TYPE", "must be text"),
        (
            "{agent: lawyer, timeoutMs: 0}",
            "E_CONFIG_INVALID_VALUE",
            "whole number",
        ),
        (
            "{agent: lawyer, parameters: {}}",
            "E_CONFIG_INVALID_VALUE",
            "`type: object`",
        ),
        (
            "{agent: lawyer, parameters: {type: object, properties: 5}}",
            "E_CONFIG_INVALID_VALUE",
            "not a valid JSON Schema",
        ),
    ] {
        let problems = asking(config).problems();
        let shown = problems.join("\n");
        assert_eq!(problems.len(), 1, "{config}: {shown}");
        assert!(
            shown.contains(code) && shown.contains(said),
            "{config}: {shown}"
        );
    }
}
