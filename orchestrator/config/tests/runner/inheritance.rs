//! Agents that inherit from other Agents and from templates.

use serde_json::{Value, json};

use crate::support::Project;

const PAGE: &str = include_str!("../../../../docs/configuration.md");

const MODELS: &str = "\
apiVersion: goondan.ai/v1
models:
  main: {provider: scripted, options: {rules: [{say: Hello}]}}
  other: {provider: scripted, options: {rules: [{say: Bye}]}}
agents:
";

/// A project with these agents in the short form.
fn agents(lines: &str) -> Project {
    Project::new(&format!("{MODELS}{lines}"))
}

/// The `spec` of an Agent as `gdn config expand` prints it.
fn spec_of(project: &Project, agent: &str) -> Value {
    let expanded = project.loader().expand(&project.root()).unwrap();
    let mut agents = expanded.resources.into_iter();
    let is_it = |it: &Value| it["kind"] == "Agent" && it["metadata"]["name"] == agent;
    agents.find(is_it).unwrap()["spec"].clone()
}

/// The only problem of a project, without its place.
#[track_caller]
fn only_problem(project: &Project) -> String {
    let refused = project.refused();
    let [only] = refused.as_slice() else {
        panic!("{refused}");
    };
    format!("{} {}", only.code, only.message)
}

#[test]
fn compat_1_documented_agents_inherit_from_a_template() {
    let (_, section) = PAGE.split_once("\n#### Inheritance\n").unwrap();
    let (_, block) = section.split_once("```yaml\n").unwrap();
    let project = Project::new(block.split_once("```").unwrap().0);
    let base = |name: &str| json!({"kind": "Tool", "name": name, "package": "@goondan/base"});
    assert_eq!(
        spec_of(&project, "reviewer"),
        json!({
            "modelConfig": {"modelRef": "Model/draft"},
            "prompt": {"system": "Write well."},
            "tools": [
                {"ref": base("bash"), "approve": "ask"}, base("file-system"), base("wait"),
            ],
            "sandbox": {"network": "none"},
        })
    );
    let bundle = project.load();
    let names: Vec<&str> = bundle.agents.keys().map(AsRef::as_ref).collect();
    assert_eq!(names, ["reviewer", "writer"]);
    assert_eq!(bundle.entry_agent.unwrap().as_str(), "writer");
    // The expansion is a project of the same meaning.
    let expanded = project.loader().expand(&project.root()).unwrap();
    assert_eq!(Project::new(&expanded.yaml).load().agents, bundle.agents);
}

#[test]
fn compat_1_resources_inherit_field_by_field() {
    let document = |name: &str, spec: &Value| {
        let document = json!({
            "apiVersion": "goondan.ai/v1", "kind": "Agent", "metadata": {"name": name},
            "spec": spec,
        });
        format!("{document}\n---\n")
    };
    let text = [
        document(
            "clerk",
            &json!({
                "inherit": "Agent/base", "prompt": {"system": "s"},
                "runtime": {"limits": {"openFiles": 128}},
                "sandbox": {"read": ["/usr/lib"]}, "extensions": [],
            }),
        ),
        document(
            "base",
            &json!({
                "template": true, "description": "d",
                "modelConfig": {"modelRef": "Model/main"},
                "prompt": {"systemRef": "p.md"},
                "tools": ["Tool/bash"],
                "extensions": [{"kind": "Extension", "name": "logging", "package": "@goondan/base"}],
                "runtime": {"cwdMode": "workspace", "limits": {"memoryMiB": 64}},
                "sandbox": {"read": ["/usr/share"], "network": {"allow": ["example.org"]}},
            }),
        ),
        json!({
            "apiVersion": "goondan.ai/v1", "kind": "Tool", "metadata": {"name": "bash"},
            "spec": {"builtin": "bash"},
        })
        .to_string(),
        "\n---\n".to_owned(),
        MODELS.trim_end_matches("agents:\n").to_owned(),
    ];
    let project = Project::new(&text.concat()).file("p.md", "p");
    assert_eq!(
        spec_of(&project, "clerk"),
        json!({
            "description": "d",
            "modelConfig": {"modelRef": "Model/main"},
            "prompt": {"system": "s"},
            "tools": ["Tool/bash"],
            "extensions": [],
            "runtime": {"cwdMode": "workspace", "limits": {"memoryMiB": 64, "openFiles": 128}},
            "sandbox": {"read": ["/usr/lib"], "network": {"allow": ["example.org"]}},
        })
    );
    assert_eq!(project.load().agents.len(), 1);
}

#[test]
fn compat_1_wrong_inheritance_is_a_problem_at_its_place() {
    assert_eq!(
        only_problem(&agents(
            "  clerk: {inherit: bose}\n  base: {model: main}\nentryAgent: base\n"
        )),
        "E_CONFIG_UNKNOWN_REFERENCE Agent `clerk` inherits from `bose`, which does not exist"
    );
    assert_eq!(
        only_problem(&agents(
            "  b: {inherit: a}\n  a: {inherit: c}\n  c: {inherit: b}\nentryAgent: a\n"
        )),
        "E_CONFIG_INVALID_VALUE Agent `a` inherits from itself: `a` from `c` from `b` from `a`"
    );
    let programs = "  base: {runtime: {kind: cli, command: [sh]}}\n";
    assert_eq!(
        only_problem(&agents(&format!(
            "{programs}  clerk: {{inherit: base, model: main, runtime: {{kind: llm}}}}\nentryAgent: clerk\n"
        ))),
        "E_CONFIG_INVALID_VALUE Agent `clerk` has the runtime `llm`, but inherits from Agent `base` with the runtime \
         `cli`"
    );
    let levels = |count: usize| {
        let below = (1..=count).map(|level| format!("  a{level}: {{inherit: a{}}}\n", level - 1));
        let below: String = below.collect();
        agents(&format!("  a0: {{model: main}}\n{below}entryAgent: a0\n"))
    };
    assert_eq!(levels(8).load().agents.len(), 9);
    assert_eq!(
        only_problem(&levels(9)),
        "E_CONFIG_INVALID_VALUE Agent `a9` inherits over more than 8 levels"
    );
    assert_eq!(
        only_problem(&agents(
            "  clerk: {inherit: base}\n  base: {template: true, prompt: p}\nentryAgent: clerk\n"
        )),
        "E_CONFIG_MISSING_FIELD `spec` of Agent `clerk` needs the field `modelConfig`"
    );
}

#[test]
fn compat_1_mistake_in_a_template_is_reported_once() {
    let project = agents(
        "  base: {template: true, model: main, promt: p}\n  one: {inherit: base}\n  two: {inherit: \
         base}\nentryAgent: one\n",
    );
    let refused = project.refused();
    let [only] = refused.as_slice() else {
        panic!("{refused}");
    };
    assert_eq!((only.code, only.line), ("E_CONFIG_UNKNOWN_FIELD", 6));
    assert!(only.message.contains("Agent `base`"), "{}", only.message);
}

#[test]
fn compat_1_template_without_heirs_is_a_warning() {
    let project = agents("  base: {template: true}\n  clerk: {model: main}\nentryAgent: clerk\n");
    let warnings = project.warnings();
    let is_told = |it: &String| {
        it.starts_with("W_CONFIG_UNUSED_RESOURCE")
            && it.ends_with("no Agent inherits from the template `base`")
    };
    assert!(warnings.iter().any(is_told), "{warnings:?}");
}
