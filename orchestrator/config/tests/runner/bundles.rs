//! Valid projects and their bundles.

use goondan_config::{
    ApprovalPolicy, IngressJoin, IngressRule, KeyRule, Lifecycle, ProjectConfig, TaskPolicy,
    package_name,
};
use goondan_protocol::definition::ModelProvider;
use goondan_protocol::event_join::JoinTimeout;
use goondan_protocol::ids::{AgentName, InstanceKey};
use goondan_protocol::limits::{DEFAULT_GRACE_PERIOD_MS, DEFAULT_MAX_STEPS_PER_TURN};
use goondan_protocol::script::Script;
use goondan_protocol::time::Timestamp;
use serde_json::json;

use crate::support::{Project, SMALLEST};

const BASH: &str = "{kind: Tool, name: bash, package: \"@goondan/base\"}";

fn agent<'b>(
    bundle: &'b ProjectConfig,
    name: &str,
) -> &'b goondan_protocol::definition::AgentDefinition {
    &bundle.agents[&name.parse().unwrap()]
}

fn script<'b>(bundle: &'b ProjectConfig, name: &str) -> &'b Script {
    let ModelProvider::Scripted { script } = &agent(bundle, name).model.provider else {
        panic!("the model of `{name}` plays no script")
    };
    script
}

fn rules(ingress: &str) -> Vec<IngressRule> {
    let document = format!(
        "apiVersion: goondan.ai/v1\n\
         kind: Connection\n\
         metadata: {{name: hook}}\n\
         spec:\n  \
           connectorRef: Connector/http\n  \
           {ingress}\n"
    );
    let bundle = Project::with(&document).own_connector().load();
    bundle.connections[&"hook".parse().unwrap()].rules.clone()
}

#[test]
fn a_single_agent_needs_no_swarm_and_gets_the_defaults() {
    let bundle = Project::new(SMALLEST).load();
    assert_eq!(bundle.package, None);
    assert_eq!(bundle.entry_agent.as_ref().unwrap().as_str(), "helper");
    assert_eq!(bundle.grace_period_ms, DEFAULT_GRACE_PERIOD_MS);
    assert_eq!(
        bundle.lifecycle,
        Lifecycle {
            ttl_ms: None,
            gc_grace_ms: 86_400_000,
            idle_ms: 600_000
        }
    );
    let helper = agent(&bundle, "helper");
    assert_eq!(helper.max_steps_per_turn, DEFAULT_MAX_STEPS_PER_TURN);
    assert_eq!(helper.system_prompt, None);
    assert_eq!(helper.model.model, "scripted");
    assert_eq!(
        script(&bundle, "helper").rules[0].say.as_deref(),
        Some("Hello")
    );
}

#[test]
fn a_script_file_is_read_whole() {
    let bundle =
        Project::new(&SMALLEST.replace("rules: [{say: Hello}]", "script: ./scripts/main.yaml"))
            .file(
                "scripts/main.yaml",
                r"rules:
  - when: {user: 'list (?P<dir>\S+)', step: 1, system: help, history: before}
    call:
      - tool: bash__exec
        args: {command: 'ls ${dir}', deep: {n: 1}}
    delayMs: 250
  - when: {tool: bash__exec, error: false, result: '(?P<out>.*)'}
    say: ${out}
  - fail: no idea
",
            )
            .load();
    let expected: Script = serde_json::from_value(json!({"rules": [
        {
            "when": {"user": r"list (?P<dir>\S+)", "step": 1, "system": "help", "history": "before"},
            "call": [{"tool": "bash__exec", "args": {"command": "ls ${dir}", "deep": {"n": 1}}}],
            "delayMs": 250,
        },
        {"when": {"tool": "bash__exec", "error": false, "result": "(?P<out>.*)"}, "say": "${out}"},
        {"fail": "no idea"},
    ]}))
    .unwrap();
    assert_eq!(script(&bundle, "helper"), &expected);
}

#[test]
fn prompts_are_read_from_inline_text_or_a_file() {
    let inline = SMALLEST.replace("Model/main}", "Model/main}, prompt: {system: Be kind.}");
    let bundle = Project::new(&inline).load();
    assert_eq!(
        agent(&bundle, "helper").system_prompt.as_deref(),
        Some("Be kind.")
    );

    let by_file = SMALLEST.replace(
        "Model/main}",
        "Model/main}, prompt: {systemRef: prompts/a.md}",
    );
    let bundle = Project::new(&by_file)
        .file("prompts/a.md", "Be brief.\r\n")
        .load();
    assert_eq!(
        agent(&bundle, "helper").system_prompt.as_deref(),
        Some("Be brief.\r\n"),
        "a prompt is sent as it is"
    );
}

#[test]
fn tools_are_built_in_or_configured() {
    let bundle = Project::new(&format!(
        "{}---
apiVersion: goondan.ai/v1
kind: Tool
metadata: {{name: files}}
spec:
  builtin: file-system
  config: {{}}
  errorMessageLimit: 50
  exports: [{{name: write, idempotent: true}}, {{name: read, description: Reads.}}]
",
        SMALLEST.replace(
            "Model/main}",
            &format!("Model/main}}, tools: [{BASH}, Tool/files]")
        )
    ))
    .load();
    let tools = &agent(&bundle, "helper").tools;
    assert_eq!(
        json!(tools),
        json!([
            {"name": "bash", "source": {"kind": "builtin", "package": "@goondan/base", "name": "bash"},
             "errorMessageLimit": 1000},
            {"name": "files", "source": {"kind": "builtin", "package": "@goondan/base", "name": "file-system"},
             "exports": [{"name": "write", "idempotent": true},
                         {"name": "read", "description": "Reads."}],
             "errorMessageLimit": 50},
        ])
    );
}

#[test]
fn a_tool_may_be_a_module_of_the_project() {
    let tools = SMALLEST.replace("Model/main}", "Model/main}, tools: [Tool/stock]");
    let project = |module: &str| {
        Project::new(&format!(
            "{tools}---
apiVersion: goondan.ai/v1
kind: Tool
metadata: {{name: stock}}
spec:
  entry: ./tools/stock.ts
  timeoutSeconds: 5
  config: {{shelf: 3}}
  exports:
    - name: count
      description: Counts.
      parameters: {{type: object, required: [title], properties: {{title: {{type: string}}}}}}
      idempotent: true
"
        ))
        .file("tools/stock.ts", module)
        .load()
    };
    let bundle = project("export {}");
    let mut tools = json!(agent(&bundle, "helper").tools);
    let source = tools[0]["source"].as_object_mut().unwrap();
    let digest = source.remove("digest").unwrap();
    let other = project("export { a }");
    let other = json!(agent(&other, "helper").tools[0].source);
    assert_ne!(digest, other["digest"], "another file is another tool");
    assert_eq!(
        tools,
        json!([{
            "name": "stock",
            "source": {"kind": "module", "entry": "tools/stock.ts", "timeoutMs": 5000},
            "exports": [{
                "name": "count", "description": "Counts.", "idempotent": true,
                "parameters": {"type": "object", "required": ["title"],
                               "properties": {"title": {"type": "string"}}},
            }],
            "config": {"shelf": 3}, "errorMessageLimit": 1000,
        }])
    );
}

#[test]
fn a_swarm_chooses_its_agents_and_their_policy() {
    let bundle = Project::with(
        "apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: second}
spec: {modelConfig: {modelRef: {kind: Model, name: main}}}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: spare}
spec: {modelConfig: {modelRef: Model/main}}
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {name: team}
spec:
  entryAgent: Agent/second
  agents: [Agent/helper, Agent/second]
  instanceKey: lobby
  policy:
    maxStepsPerTurn: 7
    lifecycle: {ttlSeconds: 60, gcGraceSeconds: 0, idleSeconds: 5}
    observation: {maxMiB: 3, maxDays: 4}
    tasks: {keepDays: 0, drillHours: 2, checkpointSeconds: 30}
    approvals: {timeoutSeconds: 90}
    shutdown: {gracePeriodSeconds: 3}
",
    )
    .load();
    let names: Vec<_> = bundle.agents.keys().map(AgentName::as_str).collect();
    assert_eq!(names, ["helper", "second"]);
    assert_eq!(bundle.entry_agent.as_ref().unwrap().as_str(), "second");
    assert_eq!(bundle.conversation_key.unwrap().as_str(), "lobby");
    assert_eq!(bundle.grace_period_ms, 3_000);
    assert_eq!(
        bundle.lifecycle,
        Lifecycle {
            ttl_ms: Some(60_000),
            gc_grace_ms: 0,
            idle_ms: 5_000
        }
    );
    let tasks = bundle.tasks;
    assert_eq!((tasks.keep_ms, tasks.drill_ms), (None, Some(7_200_000)));
    assert_eq!(tasks.checkpoint_ms, Some(30_000));
    assert_eq!(TaskPolicy::default().keep_ms, Some(30 * 86_400_000));
    let asked_at = Timestamp::from_unix_millis(1_000);
    let denied_at = bundle.approvals.denied_at(asked_at);
    assert_eq!(denied_at, Some(Timestamp::from_unix_millis(91_000)));
    assert_eq!(ApprovalPolicy::default().denied_at(asked_at), None);
    let observation = bundle.observation;
    assert_eq!((observation.bytes, observation.days), (3 << 20, 4));
    assert!(
        bundle
            .agents
            .values()
            .all(|agent| agent.max_steps_per_turn == 7)
    );
}

#[test]
fn a_swarm_without_a_list_takes_every_agent() {
    let bundle = Project::with(
        "apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: second}
spec: {modelConfig: {modelRef: Model/main}}
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {name: team}
spec: {entryAgent: Agent/second}
",
    )
    .load();
    assert_eq!(bundle.agents.len(), 2);
}

#[test]
fn connection_takes_environment_values_and_shows_none() {
    let bundle = Project::with(
        "apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: hook}
spec:
  connectorRef: Connector/http
  config:
    port: 8080
    paths: [/a, {valueFrom: {env: HOOK_PATH}}]
  secrets:
    hmac: {valueFrom: {env: HOOK_SECRET}}
    token: {value: open-sesame}
",
    )
    .own_connector()
    .variable("HOOK_PATH", "/from-env")
    .variable("HOOK_SECRET", "s3cret")
    .load();
    let hook = &bundle.connections[&"hook".parse().unwrap()];
    assert_eq!(hook.connector.as_str(), "http");
    let entry = Some(std::path::Path::new("connectors/http.py"));
    assert_eq!(hook.entry.as_deref(), entry);
    assert_eq!(
        json!(hook.config),
        json!({"port": 8080, "paths": ["/a", "/from-env"]})
    );
    assert_eq!(hook.secrets["hmac"], "s3cret");
    assert_eq!(hook.secrets["token"], "open-sesame");

    let shown = format!("{bundle:?}");
    for value in ["s3cret", "open-sesame", "/from-env"] {
        assert!(!shown.contains(value), "{shown}");
    }
    assert!(shown.contains("hmac"), "{shown}");
}

#[test]
fn without_rules_everything_goes_to_the_entry_agent() {
    let everything = vec![IngressRule {
        event: None,
        properties: std::collections::BTreeMap::new(),
        agent: None,
        key: KeyRule::FromEvent { prefix: None },
        join: None,
    }];
    assert_eq!(rules(""), everything);
    assert_eq!(rules("ingress: {rules: []}"), everything);
}

#[test]
fn a_part_of_a_join_has_the_terms_and_all_parts() {
    let rules = rules(
        "ingress:
    joins: [{name: release}, {name: quick, timeoutSeconds: 5, onTimeout: drop}]
    rules:
      - {match: {event: b}, join: {name: release, part: review}}
      - {match: {event: c}, join: {name: release, part: build}}
      - {match: {event: d}, join: {name: release, part: build}}
      - {match: {event: e}, join: {name: quick, part: x, keyProperty: k}}
      - {match: {event: f}, join: {name: quick, part: y, keyProperty: l}}",
    );
    let joins: Vec<_> = rules.into_iter().filter_map(|rule| rule.join).collect();
    let release = IngressJoin {
        name: "release".to_owned(),
        part: "review".to_owned(),
        key_property: None,
        all: vec!["build".to_owned(), "review".to_owned()],
        timeout_ms: 3_600_000,
        on_timeout: JoinTimeout::Deliver,
    };
    assert_eq!(joins[0], release);
    assert_eq!(
        (joins[1].part.as_str(), &joins[1].all),
        ("build", &release.all)
    );
    let quick = (joins[4].timeout_ms, joins[4].on_timeout);
    assert_eq!(quick, (5_000, JoinTimeout::Drop));
    assert_eq!(joins[4].key_property.as_deref(), Some("l"));
}

#[test]
fn ingress_rules_keep_their_order_and_routes() {
    let rules = rules(
        "ingress:
    rules:
      - match: {event: push, properties: {branch: main, size: 3}}
        route: {agentRef: Agent/helper, instanceKey: 'ci'}
      - route: {instanceKeyProperty: user, instanceKeyPrefix: 'web:'}
      - route: {instanceKeyPrefix: 'x:'}",
    );
    assert_eq!(rules[0].event.as_deref(), Some("push"));
    assert_eq!(
        json!(rules[0].properties),
        json!({"branch": "main", "size": 3})
    );
    assert_eq!(rules[0].agent.as_ref().unwrap().as_str(), "helper");
    let keys: Vec<_> = rules.into_iter().map(|rule| rule.key).collect();
    assert_eq!(
        keys,
        [
            KeyRule::Fixed(InstanceKey::new("ci").unwrap()),
            KeyRule::Property {
                name: "user".into(),
                prefix: Some("web:".into())
            },
            KeyRule::FromEvent {
                prefix: Some("x:".into())
            },
        ]
    );
}

#[test]
fn a_project_may_be_split_over_files_without_becoming_another() {
    let (model, agent) = SMALLEST.split_once("---\n").unwrap();
    let split = Project::new(model)
        .file("resources/agents.yml", agent)
        .file("resources/.hidden.yaml", "not: [valid")
        .file("resources/notes.txt", "no YAML at all: [");
    assert_eq!(split.load(), Project::new(SMALLEST).load());
}

#[test]
fn the_digest_changes_exactly_with_the_content() {
    let hook = "apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: hook}
spec:
  connectorRef: {kind: Connector, name: webhook, package: \"@goondan/base\"}
  config: {port: 1, host: a}
  secrets: {hmac: {valueFrom: {env: SECRET}}}
";
    let project = |text: &str, secret: &str, prompt: &str| {
        Project::new(text)
            .file("p.md", prompt)
            .variable("SECRET", secret)
            .load()
            .digest
    };
    let with_prompt = SMALLEST.replace("Model/main}", "Model/main}, prompt: {systemRef: p.md}");
    let text = format!("{with_prompt}---\n{hook}");
    let digest = project(&text, "one", "prompt");
    assert_eq!(digest.len(), 64);
    assert!(digest.chars().all(|c| c.is_ascii_hexdigit()));

    let reordered = format!("# A comment.\n{hook}---\n{with_prompt}");
    assert_eq!(project(&reordered, "one", "prompt"), digest);
    let fields = text.replace("{port: 1, host: a}", "{host: \"a\", port: 0x1}");
    assert_eq!(project(&fields, "one", "prompt"), digest);

    let mut changed = vec![
        project(&text, "two", "prompt"),
        project(&text, "one", "another prompt"),
        project(&text.replace("say: Hello", "say: Bye"), "one", "prompt"),
        project(&text.replace("port: 1", "port: 2"), "one", "prompt"),
        project(&text.replace("port: 1", "port: '1'"), "one", "prompt"),
        project(
            &text.replace("name: helper", "name: other"),
            "one",
            "prompt",
        ),
        project(
            &format!("{text}  ingress: {{rules: [{{match: {{event: request}}}}]}}\n"),
            "one",
            "prompt",
        ),
        digest,
    ];
    let count = changed.len();
    changed.sort();
    changed.dedup();
    assert_eq!(changed.len(), count, "every change counts");
}

#[test]
fn the_package_name_is_found_without_judging_the_rest() {
    let package = "apiVersion: goondan.ai/v1
kind: Package
metadata: {name: '@goondan/sample-10'}
spec: {version: 1.2.3, description: An example.}
";
    let project = Project::new(&format!("{package}---\n{SMALLEST}"));
    assert_eq!(
        package_name(&project.root()).unwrap().as_deref(),
        Some("@goondan/sample-10")
    );
    let loaded = project.load().package.unwrap();
    assert_eq!(
        (loaded.name.as_str(), loaded.version.as_deref()),
        ("@goondan/sample-10", Some("1.2.3"))
    );

    let nameless = Project::new("apiVersion: goondan.ai/v1\nkind: Package\n");
    assert!(
        package_name(&nameless.root()).is_err(),
        "a Package without a name is not the same as no Package"
    );
    let broken_rest = Project::new(&format!("{package}---\nkind: Nonsense\n"));
    assert!(package_name(&broken_rest.root()).unwrap().is_some());
    assert_eq!(package_name(&Project::new(SMALLEST).root()).unwrap(), None);
    assert!(package_name(&Project::empty().root()).is_err());
    assert!(package_name(&Project::new(&package.replace("@goondan/", "@/")).root()).is_err());
}

#[test]
fn aliases_and_merges_may_be_used() {
    let bundle = Project::new(&SMALLEST.replace(
        "rules: [{say: Hello}]",
        "rules: [&first {say: Hello, delayMs: 5}, {<<: *first, say: Bye}, *first]",
    ))
    .load();
    let rules: Vec<_> = script(&bundle, "helper")
        .rules
        .iter()
        .map(|rule| (rule.say.as_deref(), rule.delay_ms))
        .collect();
    assert_eq!(
        rules,
        [
            (Some("Hello"), Some(5)),
            (Some("Bye"), Some(5)),
            (Some("Hello"), Some(5))
        ]
    );
}

#[test]
fn merge_adds_only_missing_values_in_source_order() {
    let rules = |rules: &str| {
        let project =
            Project::new(&SMALLEST.replace("rules: [{say: Hello}]", &format!("rules: {rules}")));
        let bundle = project.load();
        let rules = script(&bundle, "helper").rules.clone();
        let last = rules.last().unwrap();
        (last.say.clone().unwrap_or_default(), last.delay_ms)
    };
    let sources = "&a {say: A, delayMs: 1}, &b {say: B, delayMs: 2}";
    for (last, said, delay_ms) in [
        ("{<<: [*a, *b]}", "A", 1),
        ("{<<: *a, <<: *b}", "A", 1),
        ("{<<: [*b, *a], delayMs: 3}", "B", 3),
        ("{delayMs: 3, <<: {<<: *b, say: C}}", "C", 3),
        ("{<<: {<<: {<<: *b}}}", "B", 2),
    ] {
        let found = rules(&format!("[{sources}, {last}]"));
        assert_eq!(found, (said.to_owned(), Some(delay_ms)), "{last}");
    }
    let problems = Project::new(&SMALLEST.replace("say: Hello", "<<: Hello")).refused();
    let mut all = problems.as_slice().iter();
    let problem = all
        .find(|problem| problem.code == "E_CONFIG_SYNTAX")
        .unwrap();
    assert!(problem.message.contains("not text"), "{problem}");
}
