//! Projects of the goondan library, as far as they can be converted (`COMPAT-1`).

use std::path::Path;

use goondan_config::{ImportedProject, import};

use crate::support::{Project, problem_lines};

const LIBRARY: &str = "\
version: 1
agents:
  base:
    abstract: true
    model: large
    params: {temperature: 0.2, magic: 1}
  main:
    inherit: base
    description: Answers people.
    systemMessage: {template: main.md}
    tools: [bash, search, {agent: helper}, {agent: helper}]
  helper:
    model: anthropic/claude-sonnet-4-5
    params: {temperature: 0.5}
    systemMessage: \"Help {{name}}.\"
    input: text
routes:
  - {from: main, to: helper, when: done}
flow: {in: main}
resources:
  models: {large: {provider: openai, model: gpt-5}}
  sinks: {out: {}}
";

fn imported(text: &str) -> ImportedProject {
    let read = |path: &str| (path == "main.md").then(|| "Be kind.\nAlways.\n".to_owned());
    import(Path::new("library.yaml"), text, &read).unwrap()
}

#[test]
fn compat_1_simple_library_becomes_a_valid_project() {
    let ImportedProject { yaml, notes } = imported(LIBRARY);
    let bundle = Project::new(&yaml)
        .variable("ANTHROPIC_API_KEY", "k")
        .variable("OPENAI_API_KEY", "k")
        .load();
    let agents: Vec<&str> = bundle.agents.keys().map(AsRef::as_ref).collect();
    assert_eq!(agents, ["helper", "main"], "{yaml}");
    assert_eq!(bundle.entry_agent.as_ref().unwrap().as_str(), "main");
    let main = &bundle.agents[&"main".parse().unwrap()];
    assert_eq!(main.system_prompt.as_deref(), Some("Be kind.\nAlways.\n"));
    assert_eq!(main.model.name.as_str(), "large");
    let tools: Vec<&str> = main.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(tools, ["bash", "agents"]);
    let told = |line: usize, part: &str| {
        let mut notes = notes.iter();
        notes.any(|note| note.line == line && note.text.contains(part))
    };
    for (line, part) in [
        (5, "`OPENAI_API_KEY`"),
        (6, "`params.magic` of agent `base`"),
        (11, "the tool `search` of agent `main`"),
        (11, "`agents__request`"),
        (13, "`ANTHROPIC_API_KEY`"),
        (15, "placeholders"),
        (16, "`input` of agent `helper`"),
        (18, "from `main` to `helper`"),
        (22, "`resources.sinks`"),
    ] {
        assert!(told(line, part), "{line}: {part}: {notes:#?}");
    }
    assert_eq!(notes.len(), 9, "{notes:#?}");
}

#[test]
fn compat_1_import_replaces_unknown_models_by_a_script() {
    let text =
        "agents:\n  one: {model: fast, params: {temperature: 1}, systemMessage: Hi}\nroutes: []\n";
    let ImportedProject { yaml, notes } = imported(text);
    let bundle = Project::new(&yaml).load();
    assert_eq!(bundle.entry_agent.unwrap().as_str(), "one");
    let texts: Vec<&str> = notes.iter().map(|note| note.text.as_str()).collect();
    assert!(
        texts
            .iter()
            .any(|it| it.contains("the Model `fast` is a script")),
        "{texts:?}"
    );
    assert!(
        texts
            .iter()
            .any(|it| it.starts_with("`params` of agent `one`")),
        "{texts:?}"
    );
}

#[test]
fn compat_1_import_refuses_what_it_cannot_read() {
    let problem = |text: &str| {
        let refused = import(Path::new("library.yaml"), text, &|_| None).unwrap_err();
        problem_lines(&refused).join("\n")
    };
    for text in ["", "a: b\n", "apiVersion: goondan.ai/v1\nkind: Agent\n"] {
        assert!(
            problem(text).starts_with("E_CONFIG_UNKNOWN_KIND 1:1 this is not"),
            "{text}"
        );
    }
    assert!(problem("agents: {a: [}\n").starts_with("E_CONFIG_SYNTAX"));
    assert!(problem("agents: {}\nroutes: []\n").starts_with("E_CONFIG_MISSING_FIELD"));
    assert!(problem("agents: {'a b/c': {}}\nroutes: []\n").starts_with("E_CONFIG_INVALID_VALUE"));
}
