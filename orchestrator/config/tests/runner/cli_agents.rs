//! Agents of `runtime.kind: cli`: programs that work for tasks (`TASK-8`).

use goondan_protocol::task::{AgentFormat, CliAgentDefinition, PromptBy};

use crate::support::Project;

fn agent(runtime: &str) -> String {
    format!(
        "apiVersion: goondan.ai/v1\nkind: Agent\nmetadata: {{name: coder}}\nspec: {{runtime: {{kind: cli, {runtime}}}}}\n"
    )
}

/// A project with such an agent beside one with a model.
fn project(runtime: &str) -> Project {
    Project::with(&agent(runtime)).file("guides/style.md", "Be brief.")
}

fn definition(runtime: &str) -> CliAgentDefinition {
    let bundle = project(runtime).load();
    bundle
        .cli_agent(&"coder".parse().unwrap())
        .cloned()
        .unwrap()
}

#[track_caller]
fn only_problem(project: &Project) -> String {
    let problems = project.problems();
    assert_eq!(problems.len(), 1, "{problems:#?}");
    problems[0].clone()
}

#[test]
fn task_8_a_preset_is_one_line_of_configuration() {
    for (preset, format, prompt, is_resumed) in [
        (
            "claude",
            AgentFormat::ClaudeStreamJson,
            PromptBy::Stdin,
            true,
        ),
        ("codex", AgentFormat::CodexJson, PromptBy::Stdin, true),
        ("gemini", AgentFormat::Acp, PromptBy::Stdin, false),
        ("aider", AgentFormat::Plain, PromptBy::Argument, false),
    ] {
        let agent = definition(&format!("preset: {preset}"));
        assert_eq!(agent.command[0], preset);
        assert_eq!((agent.format, agent.prompt), (format, prompt), "{preset}");
        assert_eq!(!agent.resume.is_empty(), is_resumed, "{preset}");
        let named = agent.command.iter().any(|word| word == "{prompt}");
        assert_eq!(named, prompt == PromptBy::Argument, "{preset}");
        let session = agent.resume.iter().any(|word| word == "{session}");
        assert_eq!(session, is_resumed, "{preset}");
        assert!(agent.limits.memory_bytes.is_some());
    }
}

#[test]
fn task_8_a_command_is_written_out() {
    let project = project(
        "command: [./bin/agent, --do, '{prompt}'], format: codex-json, resume: [bin/agent, '{session}', '{prompt}'], \
         environment: {MODE: fast}, guide: guides, limits: {memoryMiB: 64}, diskMiB: 512",
    );
    let bundle = project.load();
    let [agent] = bundle.cli_agents().collect::<Vec<_>>()[..] else {
        panic!("{:?}", bundle.cli_agents);
    };
    let root = project.root().canonicalize().unwrap();
    let program = root.join("bin/agent").display().to_string();
    assert_eq!(agent.command, [&program, "--do", "{prompt}"]);
    assert_eq!(agent.resume, [&program, "{session}", "{prompt}"]);
    assert_eq!(agent.prompt, PromptBy::Argument);
    assert_eq!(agent.environment["MODE"], "fast");
    assert_eq!(agent.guide, Some(root.join("guides")));
    assert_eq!(agent.limits.memory_bytes, Some(64 << 20));
    assert_eq!(agent.disk_bytes, Some(512 << 20));
    assert_eq!(definition("preset: claude").disk_bytes, None);
    assert!(
        !bundle.agents.contains_key(&agent.name),
        "it is no agent with a model"
    );
    assert_eq!(
        bundle.entry_agent.as_str(),
        "helper",
        "the only one that answers"
    );
}

#[test]
fn what_makes_no_sense_for_a_program_is_told() {
    let says = |runtime: &str, expected: &str| {
        let told = only_problem(&project(runtime));
        assert!(told.contains(expected), "{runtime}: {told}");
    };
    says(
        "preset: clod",
        "must be `claude`, `codex`, `gemini` or `aider`, not `clod`",
    );
    says("limits: {memoryMiB: 64}", "needs `preset` or `command`");
    says(
        "preset: claude, command: [x]",
        "has both `preset` and `command`",
    );
    says(
        "preset: claude, resume: [x]",
        "has both `preset` and `resume`",
    );
    says("command: []", "names no program");
    says("command: ['']", "begins with an empty word");
    says(
        "command: [x], prompt: argument",
        "does not say where the prompt goes",
    );
    says(
        "command: [x, '{prompt}'], prompt: stdin",
        "`{prompt}` is an argument",
    );
    says(
        "command: [x, '{prompt}'], format: acp",
        "not as an argument",
    );
    says(
        "command: [x], format: codex-json, resume: [x]",
        "where the id of the session goes",
    );
    says(
        "command: [x], environment: {1A: x}",
        "`1A` is no name of a variable",
    );
    says(
        "command: [x], environment: {GOONDAN_X: x}",
        "a name that goondan sets itself",
    );
    says(
        "command: [x], environment: {A: {valueFrom: {env: B}}}",
        "must be text",
    );
    says("command: [x], guide: ../x", "holds `..`");
    says("command: [x], guide: missing", "there is no file `missing`");
    says("command: [x], guide: guides/style.md", "is not a directory");
    says(
        "command: [x], cwdMode: workspace",
        "unknown field `cwdMode`",
    );
    says(
        "command: [x], modelRef: Model/main",
        "unknown field `modelRef`",
    );
}

#[test]
fn fields_of_an_agent_with_a_model_are_refused_with_advice() {
    for field in [
        "modelConfig: {modelRef: Model/main}",
        "tools: []",
        "prompt: {system: x}",
        "extensions: []",
    ] {
        let document = agent("preset: claude").replace("spec: {", &format!("spec: {{{field}, "));
        let refused = Project::with(&document).refused();
        let told = refused.as_slice()[0].to_string();
        assert!(told.contains("unknown field"), "{told}");
        assert!(told.contains("tools of its own"), "{told}");
    }
}

#[test]
fn no_event_goes_to_a_program() {
    let entry = "---\napiVersion: goondan.ai/v1\nkind: Swarm\nmetadata: {name: s}\nspec: {entryAgent: Agent/coder}\n";
    let told = only_problem(&Project::with(&(agent("preset: claude") + entry)));
    assert!(
        told.contains("works for tasks, and no events go to it"),
        "{told}"
    );
    let hook = "---\napiVersion: goondan.ai/v1\nkind: Connection\nmetadata: {name: hook}\nspec:\n  \
                connectorRef: {kind: Connector, name: webhook, package: '@goondan/base'}\n  \
                ingress: {rules: [{route: {agentRef: Agent/coder}}]}\n";
    let told = only_problem(&Project::with(&(agent("preset: claude") + hook)));
    assert!(
        told.contains("works for tasks, and no events go to it"),
        "{told}"
    );
    let told = only_problem(&Project::new(&agent("preset: claude")));
    assert!(told.contains("nobody could answer events"), "{told}");
}

#[test]
fn task_8_a_guide_stays_as_it_is() {
    let document = agent("preset: claude, guide: guides")
        .replace("spec: {", "spec: {sandbox: {write: [guides]}, ");
    let project = Project::with(&document).file("guides/style.md", "");
    let told = only_problem(&project);
    assert!(told.contains("where its `guide` is"), "{told}");
}
