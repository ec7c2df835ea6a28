//! The short form of a project: it means the same as its resources, and problems point into it.

use goondan_config::schema;
use serde_json::{Value, json};

use crate::support::{Project, SMALLEST};

const PAGE: &str = include_str!("../../../../docs/configuration.md");

/// The first YAML block below a heading of the page.
fn block(heading: &str) -> &'static str {
    let (_, section) = PAGE.split_once(&format!("\n## {heading}\n")).unwrap();
    let (_, block) = section.split_once("```yaml\n").unwrap();
    block.split_once("```").unwrap().0
}

/// The two forms of the example of the page.
fn example(text: &str) -> Project {
    Project::new(text)
        .file("scripts/main.yaml", "rules: [{say: There you are.}]")
        .file("prompts/helper.md", "You help with directories.")
        .variable("HOOK_SECRET", "s3cret")
}

fn resources(project: &Project) -> Vec<Value> {
    let expanded = project.loader().expand(&project.root()).unwrap();
    let mut resources = expanded.resources;
    resources.sort_by_key(|it| format!("{} {}", it["kind"], it["metadata"]["name"]));
    resources
}

#[test]
fn documented_short_form_means_the_documented_resources() {
    let short = example(block("Short form"));
    let long = example(block("A complete example"));
    let mut expected = resources(&long);
    // The long form lists all agents, which is the default.
    let swarm = expected
        .iter_mut()
        .find(|it| it["kind"] == "Swarm")
        .unwrap();
    swarm["spec"].as_object_mut().unwrap().remove("agents");
    assert_eq!(resources(&short), expected);

    let bundle = short.load();
    assert_eq!(bundle.entry_agent.as_ref().unwrap().as_str(), "helper");
    assert_eq!(
        bundle.connections[&"hook".parse().unwrap()].secrets["hmac"],
        "s3cret"
    );
    assert_eq!(short.warnings(), long.warnings());
    // Its expansion is a project with the same meaning.
    let expanded = short.loader().expand(&short.root()).unwrap();
    let again = example(&expanded.yaml);
    assert_eq!(resources(&again), resources(&short));
    assert_eq!(again.load().agents, short.load().agents);
}

#[test]
fn each_shorter_form_has_its_long_form() {
    let project = Project::new(
        "apiVersion: goondan.ai/v1
package: desk
models:
  main: {provider: anthropic, model: m, apiKey: {secret: keys/anthropic}}
connectors:
  own: {entry: own.py}
agents:
  clerk:
    model: main
    prompt: Help.
    tools: [{bash: ask}, {ref: {kind: Tool, name: wait, package: '@goondan/base'}}, Tool/other]
    extensions: [{message-window: {maxMessages: 9}}, logging]
  idle:
connections:
  own: {connector: own, rules: [{event: e, agent: clerk}, {route: {agentRef: Agent/idle}}]}
policy: {maxStepsPerTurn: 3}
",
    );
    let base =
        |kind: &str, name: &str| json!({"kind": kind, "name": name, "package": "@goondan/base"});
    let resources = resources(&project);
    let spec = |kind: &str, name: &str| {
        let is = |it: &&Value| it["kind"] == kind && it["metadata"]["name"] == name;
        resources.iter().find(is).unwrap()["spec"].clone()
    };
    assert_eq!(spec("Package", "desk"), json!({}));
    assert_eq!(
        spec("Model", "main")["apiKey"],
        json!({"valueFrom": {"secretRef": {"ref": "Secret/keys", "key": "anthropic"}}})
    );
    assert_eq!(
        spec("Agent", "clerk"),
        json!({
            "modelConfig": {"modelRef": "Model/main"},
            "prompt": {"system": "Help."},
            "tools": [
                {"ref": base("Tool", "bash"), "approve": "ask"},
                {"ref": base("Tool", "wait")},
                "Tool/other",
            ],
            "extensions": [
                {"ref": base("Extension", "message-window"), "config": {"maxMessages": 9}},
                base("Extension", "logging"),
            ],
        })
    );
    assert_eq!(spec("Agent", "idle"), json!({}));
    assert_eq!(
        spec("Connection", "own"),
        json!({
            "connectorRef": "Connector/own",
            "ingress": {"rules": [
                {"match": {"event": "e"}, "route": {"agentRef": "Agent/clerk"}},
                {"route": {"agentRef": "Agent/idle"}},
            ]},
        })
    );
    // Two agents: none of them is the entry agent by default.
    assert_eq!(
        spec("Swarm", "default"),
        json!({"policy": {"maxStepsPerTurn": 3}})
    );
}

#[test]
fn problems_point_into_the_short_form() {
    let short = "apiVersion: goondan.ai/v1
models:
  main: {provider: scripted, options: {rules: [{say: Hello}]}}
agents:
  helper: {model: man, promt: Help.}
connectionz: {}
";
    let found = Project::new(short).problems().join("\n");
    assert!(found.contains("6:1 unknown field `connectionz`"), "{found}");
    // The unknown field may contain the missing model.
    assert!(!found.contains("5:19"), "{found}");

    let found = Project::new(&short.replace("connectionz: {}\n", "")).problems();
    let all = found.join("\n");
    assert!(all.contains(" 5:19 "), "{all}");
    assert!(all.contains("5:24 unknown field `promt`"), "{all}");

    // A name that is taken in the other form.
    let both = "apiVersion: goondan.ai/v1\nagents: {helper: {model: main}}\n";
    let found = Project::with(both).problems().join("\n");
    assert!(found.contains("E_CONFIG_DUPLICATE_RESOURCE"), "{found}");
    let beside = "apiVersion: goondan.ai/v1\nagents: {other: {model: main}}\nentryAgent: helper\n";
    assert_eq!(Project::with(beside).load().agents.len(), 2);
    // Neither form: the fields of a resource are missing.
    let none = Project::new(&format!("{SMALLEST}---\napiVersion: goondan.ai/v1\n")).problems();
    assert!(none.iter().any(|it| it.contains("`kind`")), "{none:?}");
}

#[test]
fn schema_accepts_the_short_form_and_finds_typing_errors() {
    for name in [None, Some("ShortForm")] {
        let validator = jsonschema::validator_for(&schema(name).unwrap()).unwrap();
        let example: Value = serde_saphyr::from_str(block("Short form")).unwrap();
        assert!(validator.is_valid(&example));
        let broken = [
            json!({"apiVersion": "goondan.ai/v1"}),
            json!({"apiVersion": "goondan.ai/v2", "agents": {}}),
            json!({"apiVersion": "goondan.ai/v1", "agentz": {}}),
            json!({"apiVersion": "goondan.ai/v1", "agents": {"a": {"promt": "x"}}}),
            json!({"apiVersion": "goondan.ai/v1", "agents": {"a": {"tools": "bash"}}}),
            json!({"apiVersion": "goondan.ai/v1", "connections": {"a": {"rules": [{"evnt": "x"}]}}}),
            json!({"apiVersion": "goondan.ai/v1", "policy": {"maxStepsPerTurn": "many"}}),
        ];
        for broken in broken {
            assert!(!validator.is_valid(&broken), "{broken}");
        }
    }
}
