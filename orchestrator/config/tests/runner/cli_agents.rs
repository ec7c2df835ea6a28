//! Agents of `runtime.kind: cli`: programs that work for tasks (`TASK-8`).

use goondan_protocol::sandbox::SandboxPath;
use goondan_protocol::task::{
    AgentFormat, CliAgentDefinition, NotifyOn, PromptChannel, RepositorySource, TaskDelivery,
    TaskSource, ToolsBy,
};
use serde_json::json;

use crate::support::Project;

fn agent(runtime: &str) -> String {
    format!(
        "apiVersion: goondan.ai/v1\nkind: Agent\nmetadata: {{name: coder}}\nspec: {{runtime: {{kind: cli, {runtime}}}}}\n"
    )
}

use agent as agent_of;

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
fn agent_1_a_preset_is_one_line_of_configuration() {
    use AgentFormat::{Acp, Aider, ClaudeStreamJson, CodexJson, OpencodeJson};
    use PromptChannel::{Argument, Stdin};
    for (preset, format, prompt, tools, is_resumed) in [
        (
            "claude",
            ClaudeStreamJson,
            Stdin,
            ToolsBy::ClaudeArguments,
            true,
        ),
        ("codex", CodexJson, Stdin, ToolsBy::CodexArguments, true),
        ("gemini", Acp, Stdin, ToolsBy::AcpSession, true),
        (
            "opencode",
            OpencodeJson,
            Argument,
            ToolsBy::OpencodeVariable,
            true,
        ),
        ("qwen", Acp, Stdin, ToolsBy::QwenArguments, true),
        ("aider", Aider, Argument, ToolsBy::Variable, false),
    ] {
        let agent = definition(&format!("preset: {preset}"));
        assert_eq!(agent.command[0], preset);
        assert_eq!((agent.format, agent.prompt), (format, prompt), "{preset}");
        assert_eq!(agent.tools, tools, "{preset}");
        assert_eq!(!agent.resume.is_empty(), is_resumed, "{preset}");
        let named = agent.command.iter().any(|word| word == "{prompt}");
        assert_eq!(named, prompt == Argument, "{preset}");
        let session = agent.resume.iter().any(|word| word == "{session}");
        assert_eq!(session, is_resumed && format != Acp, "{preset}");
        assert!(agent.limits.memory_bytes.is_some());
    }
}

#[test]
fn agent_1_preset_takes_model_mode_arguments_login_and_key() {
    let runtime = "preset: claude, model: sonnet, mode: acceptEdits, args: [--max-budget-usd, '5'], login: guides, \
                   key: {valueFrom: {env: KEY}}, environment: {A: plain, B: {valueFrom: {env: KEY}}}";
    let project = project(runtime).variable("KEY", "sk-secret");
    let bundle = project.load();
    let agent = bundle.cli_agent(&"coder".parse().unwrap()).unwrap();
    let login = project.root().canonicalize().unwrap().join("guides");
    let options = [
        "--permission-mode",
        "acceptEdits",
        "--model",
        "sonnet",
        "--max-budget-usd",
        "5",
    ];
    assert!(
        agent.command.ends_with(&options.map(str::to_owned)),
        "{:?}",
        agent.command
    );
    assert!(
        agent
            .resume
            .ends_with(&["--resume", "{session}"].map(str::to_owned))
    );
    assert_eq!(
        agent.environment["CLAUDE_CONFIG_DIR"],
        login.display().to_string()
    );
    assert_eq!(
        (&*agent.environment["A"], &*agent.environment["IS_SANDBOX"]),
        ("plain", "1")
    );
    let written: Vec<_> = agent
        .sandbox
        .write
        .iter()
        .map(SandboxPath::as_path)
        .collect();
    assert_eq!(written, [login]);
    let names: Vec<_> = agent.secrets.0.keys().collect();
    assert_eq!(names, ["ANTHROPIC_API_KEY", "B"]);
    assert_eq!(agent.secrets.0["B"], "sk-secret");
    let shown = format!("{agent:?}{}", serde_json::to_string(agent).unwrap());
    assert!(!shown.contains("sk-secret"), "{shown}");
    // A key goes to the provider of the model.
    let aider = Project::with(&agent_of(
        "preset: aider, model: anthropic/opus, key: {valueFrom: {env: KEY}}",
    ));
    let bundle = aider.variable("KEY", "sk-secret").load();
    let agent = bundle.cli_agents().next().unwrap();
    assert_eq!(
        agent.secrets.0.keys().collect::<Vec<_>>(),
        ["ANTHROPIC_API_KEY"]
    );
    assert!(
        agent
            .command
            .ends_with(&["--message", "{prompt}"].map(str::to_owned))
    );
    // Programs of `acp` are asked for both within their session.
    let acp = definition("command: [x], format: acp, model: m, mode: plan");
    assert_eq!(
        (acp.session_model.as_deref(), acp.session_mode.as_deref()),
        (Some("m"), Some("plan"))
    );
    assert_eq!(acp.resume, acp.command);
}

#[test]
fn agent_1_the_inner_sandbox_of_codex_is_off_where_ours_holds() {
    let sandbox = |of_agent: &str| {
        let document = agent_of("preset: codex").replace("spec: {", &format!("spec: {{{of_agent}"));
        let bundle = Project::with(&document).load();
        let agent = bundle.cli_agents().next().unwrap().clone();
        let of = |words: &[String]| {
            let flag = words.iter().position(|word| word == "--sandbox").unwrap();
            words[flag + 1].clone()
        };
        assert_eq!(of(&agent.command), of(&agent.resume));
        of(&agent.command)
    };
    assert_eq!(sandbox(""), "danger-full-access");
    assert_eq!(
        sandbox("sandbox: {require: landlock}, "),
        "danger-full-access"
    );
    assert_eq!(sandbox("sandbox: {require: off}, "), "workspace-write");
    let chosen = definition("preset: codex, mode: read-only");
    let flags = chosen.command.iter().filter(|word| *word == "--sandbox");
    assert_eq!(flags.count(), 1, "{:?}", chosen.command);
}

#[test]
fn agent_1_gemini_runs_commands_without_pty_if_sandboxed() {
    let variable = |of_agent: &str| {
        let document =
            agent_of("preset: gemini").replace("spec: {", &format!("spec: {{{of_agent}"));
        let bundle = Project::with(&document).load();
        let agent = bundle.cli_agents().next().unwrap().clone();
        agent.environment.get("GEMINI_PTY_INFO").cloned()
    };
    assert_eq!(variable(""), None);
    assert_eq!(
        variable("sandbox: {require: landlock}, ").as_deref(),
        Some("child_process")
    );
    assert_eq!(variable("sandbox: {require: off}, "), None);
}

#[test]
fn repo_1_coding_agent_works_on_the_project_by_default() {
    for (runtime, source, deliver) in [
        ("preset: claude", TaskSource::Project, TaskDelivery::Apply),
        (
            "preset: claude, source: none",
            TaskSource::None,
            TaskDelivery::Apply,
        ),
        ("command: [sh]", TaskSource::None, TaskDelivery::Apply),
        (
            "command: [sh], source: project, deliver: proposal",
            TaskSource::Project,
            TaskDelivery::Proposal,
        ),
    ] {
        let agent = definition(runtime);
        assert_eq!(
            (agent.source, agent.deliver),
            (source, deliver),
            "{runtime}"
        );
    }
}

#[test]
fn repo_1_agent_works_on_another_repository_with_a_token() {
    let url = "https://github.com/acme/shop";
    let with = |source: &str| format!("command: [sh], source: {{repository: {source}}}");
    let agent = definition(&with(&format!(
        "\"{url}\", ref: v1, token: {{value: t}}, username: ada"
    )));
    let source = RepositorySource {
        repository: url.to_owned(),
        reference: Some("v1".to_owned()),
    };
    assert_eq!(agent.source, TaskSource::Repository(source));
    assert_eq!(agent.deliver, TaskDelivery::Branch);
    let credentials = agent.repository.credentials.clone().unwrap();
    assert_eq!((&*credentials.username, &*credentials.token), ("ada", "t"));
    let written = serde_json::to_value(&agent).unwrap();
    assert_eq!(written["source"], json!({"repository": url, "ref": "v1"}));
    assert_eq!(written.get("repository"), None, "the token stays here");
    let below = definition(&with("../shop"));
    let repository = below.source.repository().unwrap();
    assert!(
        repository.repository.ends_with("/../shop"),
        "{repository:?}"
    );
    for (runtime, problem) in [
        (with("\"ssh://h/a\""), "does not use `https`"),
        (with("shop"), "neither an absolute path"),
        (with("/a, ref: --x"), "not the name of a branch"),
        (
            with("/a") + ", deliver: apply",
            "`apply` changes the project",
        ),
        (
            with(&format!("\"{url}\"")) + ", deliver: pull-request",
            "needs a repository with",
        ),
        (with("/a, connection: Connection/none"), "none"),
    ] {
        let problems = project(&runtime).problems().concat();
        assert!(problems.contains(problem), "{runtime}: {problems}");
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
    assert_eq!(agent.prompt, PromptChannel::Argument);
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
        bundle.entry_agent.as_ref().unwrap().as_str(),
        "helper",
        "the only one that answers"
    );
}

#[test]
fn settings_invalid_for_a_cli_agent_are_reported() {
    let says = |runtime: &str, expected: &str| {
        let told = only_problem(&project(runtime));
        assert!(told.contains(expected), "{runtime}: {told}");
    };
    says(
        "preset: clod",
        "must be `claude`, `codex`, `gemini`, `opencode`, `qwen` or `aider`, not `clod`",
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
    says("command: []", "has no program");
    says("command: ['']", "begins with an empty word");
    says(
        "command: [x], prompt: argument",
        "does not contain `{prompt}`",
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
        "does not contain `{session}`",
    );
    says(
        "command: [x], environment: {1A: x}",
        "`1A` is not a valid variable name",
    );
    says(
        "command: [x], environment: {GOONDAN_X: x}",
        "is reserved: goondan sets it",
    );
    says("command: [x], environment: {A: [b]}", "must be text");
    says(
        "command: [x], environment: {A: {valueFrom: {env: B}}}",
        "`B` is not set",
    );
    says("command: [x], args: [y]", "has both `command` and `args`");
    let warnings = project("command: [x], model: y").warnings();
    assert!(
        warnings[0].contains("`model` has no effect"),
        "{warnings:?}"
    );
    says(
        "preset: claude, model: --resume",
        "would parse as an option",
    );
    says("preset: claude, key: sk-1", "must not be literal");
    says("preset: aider, login: guides", "the program has none");
    says("preset: claude, login: ../x", "is not a valid sandbox path");
    says(
        "command: [x], preamble: missing.md",
        "file `missing.md` does not exist",
    );
    says("command: [x], guide: ../x", "contains `..`");
    says(
        "command: [x], guide: missing",
        "file `missing` does not exist",
    );
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
        let text = refused.as_slice()[0].to_string();
        assert!(text.contains("unknown field"), "{text}");
        assert!(text.contains("its own model, prompt and tools"), "{text}");
    }
}

#[test]
fn no_event_goes_to_a_program() {
    let entry = "---\napiVersion: goondan.ai/v1\nkind: Swarm\nmetadata: {name: s}\nspec: {entryAgent: Agent/coder}\n";
    let told = only_problem(&Project::with(&(agent("preset: claude") + entry)));
    assert!(
        told.contains("works on tasks and cannot receive events"),
        "{told}"
    );
    let hook = "---\napiVersion: goondan.ai/v1\nkind: Connection\nmetadata: {name: hook}\nspec:\n  \
                connectorRef: {kind: Connector, name: webhook, package: '@goondan/base'}\n  \
                ingress: {rules: [{route: {agentRef: Agent/coder}}]}\n";
    let told = only_problem(&Project::with(&(agent("preset: claude") + hook)));
    assert!(
        told.contains("works on tasks and cannot receive events"),
        "{told}"
    );
}

#[test]
fn task_8_project_with_only_cli_agents_has_no_entry_agent() {
    let two =
        agent("preset: claude") + "---\n" + &agent("preset: codex").replace("coder", "second");
    let bundle = Project::new(&two).load();
    assert_eq!(bundle.entry_agent, None);
    assert_eq!(bundle.cli_agents().len(), 2);
    let hook = "---\napiVersion: goondan.ai/v1\nkind: Connection\nmetadata: {name: hook}\nspec:\n  \
                connectorRef: {kind: Connector, name: webhook, package: '@goondan/base'}\n";
    Project::new(&(two + hook)).load();
    let broken = agent("preset: clod");
    assert!(only_problem(&Project::new(&broken)).contains("`clod`"));
}

#[test]
fn agent_8_account_is_a_login_directory_or_a_secret_name() {
    let account = |runtime: &str| definition(runtime).account;
    let unknown = account("preset: claude, environment: {A: b}");
    assert_eq!(unknown.program, "claude");
    assert!(!unknown.is_known());
    let key = Project::with(&agent(
        "preset: aider, key: {valueFrom: {env: KEY}}, environment: {B: {valueFrom: {env: OTHER}}}",
    ));
    let bundle = key.variable("KEY", "sk-1").variable("OTHER", "sk-2").load();
    let account = &bundle.cli_agents().next().unwrap().account;
    assert_eq!(account.secrets, ["KEY", "OTHER"]);
    assert!(account.is_known());
}

#[test]
fn agent_8_other_programs_continue_the_tasks_of_an_agent() {
    let two =
        |first: &str| agent(first) + "---\n" + &agent("preset: codex").replace("coder", "second");
    let bundle = Project::new(&two("preset: claude, fallbacks: [Agent/second]")).load();
    let first = bundle.cli_agent(&"coder".parse().unwrap()).unwrap();
    assert_eq!(first.fallbacks, ["second".parse().unwrap()]);
    for (fallbacks, problem) in [
        ("Agent/coder", "`coder` already works on these tasks"),
        ("Agent/second, Agent/second", "`second` already works"),
        ("Agent/third", "`third`"),
    ] {
        let runtime = format!("preset: claude, fallbacks: [{fallbacks}]");
        let told = only_problem(&Project::new(&two(&runtime)));
        assert!(told.contains(problem), "{told}");
    }
    // An agent with a model cannot continue.
    let model = Project::with(&agent("preset: claude, fallbacks: [Agent/helper]"));
    let told = only_problem(&model);
    assert!(told.contains("`helper`"), "{told}");
}

#[test]
fn task_8_a_guide_stays_as_it_is() {
    let document = agent("preset: claude, guide: guides")
        .replace("spec: {", "spec: {sandbox: {write: [guides]}, ");
    let project = Project::with(&document).file("guides/style.md", "");
    let told = only_problem(&project);
    assert!(told.contains("which contains its `guide`"), "{told}");
}

/// A project with connections and an agent that sends notifications through one.
fn notifying(entry: &str) -> Project {
    let connection = |name: &str, connector: &str, more: &str| {
        format!(
            "apiVersion: goondan.ai/v1\nkind: Connection\nmetadata: {{name: {name}}}\nspec:\n  connectorRef: {{kind: \
             Connector, name: {connector}, package: \"@goondan/base\"}}\n{more}---\n"
        )
    };
    let token = "  config: {chats: [1]}\n  secrets: {botToken: {valueFrom: {env: TOKEN}}}\n";
    Project::with(&format!(
        "{}{}{}apiVersion: goondan.ai/v1\nkind: Agent\nmetadata: {{name: coder}}\nspec:\n  runtime: {{kind: cli, \
         command: [x]}}\n  notify:\n    - {entry}\n",
        connection("chat", "telegram", token),
        connection("hook", "webhook", "  config: {port: 0}\n"),
        connection(
            "web",
            "http",
            "  config: {allow: [example.com]}\n"
        ),
    ))
    .variable("TOKEN", "1:a")
}

#[test]
fn task_8_connection_notifies_people_of_waiting_tasks() {
    let project = notifying(
        "{connection: Connection/chat, action: send, args: {chat: -5, text: \"${message}\", silent: true}}",
    );
    let bundle = project.load();
    let [notify] = bundle.notify.values().next().unwrap().as_slice() else {
        panic!("{bundle:#?}");
    };
    assert_eq!(
        (
            notify.connection.as_str(),
            notify.service.as_str(),
            notify.action.as_str()
        ),
        ("chat", "telegram", "send")
    );
    assert_eq!(notify.args["chat"], -5);
    assert_eq!(notify.on, NotifyOn::WAITS);
    let ends = notifying(
        "{connection: Connection/web, action: request, args: {url: \"https://example.com/${taskId}\", body: \
         \"${json}\"}, on: [completed, failed]}",
    );
    let ends = ends.load();
    let notify = &ends.notify.values().next().unwrap()[0];
    assert_eq!(notify.on, [NotifyOn::Completed, NotifyOn::Failed]);
    assert_ne!(ends.digest, bundle.digest);
}

#[test]
fn task_8_impossible_notification_is_reported_with_its_position() {
    let says = |entry: &str, expected: &str| {
        let problems = notifying(entry).refused();
        let [problem] = problems.as_slice() else {
            panic!("{entry}: {problems:#?}");
        };
        let told = format!(
            "{} {}",
            problem.message,
            problem.suggestion.as_deref().unwrap_or("")
        );
        assert!(told.contains(expected), "{entry}: {told}");
        let line = problem.source_line.as_deref().unwrap_or_default();
        assert!(line.trim().starts_with("- {connection:"), "{line}");
    };
    let send = |args: &str| format!("{{connection: Connection/chat, action: send, args: {args}}}");
    says(
        "{connection: Connection/chatt, action: send, args: {}}",
        "did you mean `Connection/chat`?",
    );
    says(
        "{connection: Connection/hook, action: send}",
        "Connection `hook` has no actions",
    );
    says(
        "{connection: Connection/chat, action: sent, args: {}}",
        "did you mean `send`?",
    );
    says(&send("{chat: 1}"), "`send` needs the argument `text`");
    says(
        &send("{chat: 1, texts: x, text: x}"),
        "`send` has no argument `texts`",
    );
    says(&send("{chat: 1, text: 5}"), "args.text");
    says(&send("{text: x}"), "pass `chat`");
    says(
        &send("{chat: 1, text: \"${comand}\"}"),
        "did you mean `command`?",
    );
    says(&send("{chat: 1, text: \"${need\"}"), "without `}`");
    says(
        "{connection: Connection/chat, action: send, args: {chat: 1, text: x}, on: [answer]}",
        "`on` must be of",
    );
    says(
        "{connection: Connection/chat, action: send, args: {chat: 1, text: x}, on: []}",
        "`on` is empty",
    );
    says(
        "{connection: Connection/chat, action: send, args: {chat: 1, text: x}, when: x}",
        "`when`",
    );
}
