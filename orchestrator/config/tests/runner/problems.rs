//! Invalid projects and their diagnostics.

use crate::support::{Project, SMALLEST};

/// Loads [`SMALLEST`] with one text replaced; gives its only problem.
#[track_caller]
fn only_problem(from: &str, to: &str) -> String {
    assert!(SMALLEST.contains(from), "{from} is not in the project");
    only_problem_of(&Project::new(&SMALLEST.replace(from, to)))
}

/// Loads [`SMALLEST`] with a further document; gives its only problem.
#[track_caller]
fn only_problem_with(document: &str) -> String {
    only_problem_of(&Project::with(document))
}

#[track_caller]
fn only_problem_of(project: &Project) -> String {
    let problems = project.problems();
    assert_eq!(problems.len(), 1, "{problems:#?}");
    problems[0].clone()
}

fn suggestion(project: &Project) -> String {
    project.refused().as_slice()[0]
        .suggestion
        .clone()
        .unwrap_or_default()
}

fn connection(spec: &str) -> String {
    format!(
        "apiVersion: goondan.ai/v1
kind: Connection
metadata: {{name: hook}}
spec:
  connectorRef: {{kind: Connector, name: webhook, package: \"@goondan/base\"}}
{spec}"
    )
}

/// A document named `x`.
fn document(kind: &str, spec: &str) -> String {
    format!("apiVersion: goondan.ai/v1\nkind: {kind}\nmetadata: {{name: x}}\nspec: {{{spec}}}\n")
}

#[test]
fn all_problems_are_reported_at_once_with_their_lines() {
    let project = Project::new(
        r#"apiVersion: goondan.ai/v1
kind: Model
metadata:
  name: main
spec:
  provider: scripted
  options:
    script: scripts/main.yaml
---
apiVersion: goondan.ai/v1
kind: Agent
metadata:
  name: helper
spec:
  modelConfig:
    modelRef: Model/mian
  promt:
    system: 도와주세요
  tools:
    - Tool/bash
    - {kind: Tool, name: "도구", packge: "@goondan/base"}
"#,
    )
    .file(
        "scripts/main.yaml",
        "rules:\n  - when: {user: 'a('}\n    say: 3\n",
    );
    assert_eq!(
        project.refused().to_string(),
        r#"error[E_CONFIG_UNKNOWN_REFERENCE]: Model `mian` does not exist
  --> goondan.yaml:16:15
   |
16 |     modelRef: Model/mian
   |               ^^^^^^^^^^
   = help: did you mean `Model/main`?

error[E_CONFIG_UNKNOWN_FIELD]: unknown field `promt` in `spec` of Agent `helper`; expected `budgets`, `description`, `extensions`, `inherit`, `modelConfig`, `notify`, `prompt`, `requiredTools`, `runtime`, `sandbox`, `template` or `tools`
  --> goondan.yaml:17:3
   |
17 |   promt:
   |   ^^^^^
   = help: did you mean `prompt`?

error[E_CONFIG_UNKNOWN_REFERENCE]: Tool `bash` does not exist
  --> goondan.yaml:20:7
   |
20 |     - Tool/bash
   |       ^^^^^^^^^
   = help: for the built-in resource, write `{kind: Tool, name: bash, package: "@goondan/base"}`

error[E_CONFIG_UNKNOWN_REFERENCE]: Tool `도구` does not exist
  --> goondan.yaml:21:26
   |
21 |     - {kind: Tool, name: "도구", packge: "@goondan/base"}
   |                          ^^^^^^
   = help: add a document of kind `Tool` with this name

error[E_CONFIG_UNKNOWN_FIELD]: unknown field `packge` in `spec.tools[1]` of Agent `helper`; expected `kind`, `name` or `package`
  --> goondan.yaml:21:32
   |
21 |     - {kind: Tool, name: "도구", packge: "@goondan/base"}
   |                                  ^^^^^^
   = help: did you mean `package`?

error[E_CONFIG_INVALID_PATTERN]: `rules[0].when.user` of the script is not a regular expression: found open group without closing ')'
 --> scripts/main.yaml:2:18
  |
2 |   - when: {user: 'a('}
  |                  ^^^^
  = help: escape special characters with `\`

error[E_CONFIG_WRONG_TYPE]: `rules[0].say` of the script must be text, not a number
 --> scripts/main.yaml:3:10
  |
3 |     say: 3
  |          ^
  = help: put the value in quotes"#
    );
}

#[test]
fn the_frame_of_a_document_is_checked() {
    assert_eq!(
        only_problem_with("just text"),
        "E_CONFIG_WRONG_TYPE 11:1 this document must be a mapping of fields, not text"
    );
    assert_eq!(
        only_problem("kind: Agent", "kind: Agnet"),
        "E_CONFIG_UNKNOWN_KIND 7:7 unknown kind `Agnet`; expected `Package`, `Model`, `Agent`, \
         `Swarm`, `Tool`, `Extension`, `Connector`, `Connection` or `OAuthApp`"
    );
    assert_eq!(
        only_problem("goondan.ai/v1\nkind: Agent", "v2\nkind: Agent"),
        "E_CONFIG_INVALID_VALUE 6:13 `apiVersion` must be `goondan.ai/v1`, not `v2`"
    );
    assert_eq!(
        only_problem("metadata: {name: helper}", "metadata: {}"),
        "E_CONFIG_MISSING_FIELD 8:1 `metadata` of this document needs the field `name`"
    );
    assert_eq!(
        only_problem("{name: helper}", "{name: 'a b'}"),
        "E_CONFIG_INVALID_VALUE 8:18 agent name `a b` holds ' '; allowed are letters, digits, `-`, \
         `_` and `.`"
    );
    assert_eq!(
        only_problem("spec: {modelConfig: {modelRef: Model/main}}", "spec:"),
        "E_CONFIG_MISSING_FIELD 8:18 Agent `helper` needs the field `spec`"
    );
    assert_eq!(
        only_problem("{modelRef: Model/main}", "{modelRef: }"),
        "E_CONFIG_MISSING_FIELD 9:22 `spec.modelConfig.modelRef` of Agent `helper` has no value"
    );
    assert_eq!(
        only_problem("{name: helper}", "{name: helper, name: again}"),
        "E_CONFIG_DUPLICATE_FIELD 8:26 field `name` is set twice; first at goondan.yaml:8:12"
    );
}

#[test]
fn invalid_yaml_is_reported_with_its_place() {
    let project = Project::new("kind: [Agent\nspec: 1\n");
    let problem = only_problem_of(&project);
    assert!(problem.starts_with("E_CONFIG_SYNTAX 2:"), "{problem}");
    assert!(!problem.contains(" at line "), "{problem}");
    assert!(only_problem("{say: Hello}", "{say: *Hello}").contains("undefined anchor"));
    assert!(only_problem("{say: Hello}", "{say: !secret Hello}").contains("unsupported tag"));
    assert!(only_problem("{say: Hello}", "{? [a] : Hello}").contains("name must be text"));
}

#[test]
fn a_capture_without_quotes_in_a_flow_mapping_is_explained() {
    let project = Project::new(&SMALLEST.replace("say: Hello", "say: a/${b}.md"));
    assert!(only_problem_of(&project).starts_with("E_CONFIG_SYNTAX 4:"));
    assert!(suggestion(&project).contains("in quotes"));
}

#[test]
fn unparsable_file_raises_no_false_problems_elsewhere() {
    let (model, agent) = SMALLEST.split_once("---\n").unwrap();
    let project = Project::new(agent).file("resources/model.yaml", model.replace('}', ""));
    assert!(only_problem_of(&project).starts_with("E_CONFIG_SYNTAX"));
    let only_broken = Project::new("kind: [");
    assert!(only_problem_of(&only_broken).starts_with("E_CONFIG_SYNTAX"));
}

#[test]
fn references_are_followed() {
    assert_eq!(
        only_problem("modelRef: Model/main", "modelRef: main"),
        "E_CONFIG_INVALID_VALUE 9:32 `spec.modelConfig.modelRef` of Agent `helper` must be a \
         reference of the form `Model/name`"
    );
    assert_eq!(
        only_problem("modelRef: Model/main", "modelRef: Agent/helper"),
        "E_CONFIG_WRONG_KIND 9:32 `spec.modelConfig.modelRef` of Agent `helper` must refer to kind \
         `Model`, not `Agent`"
    );
    let tools = |tools: &str| format!("Model/main}}, tools: [{tools}]}}");
    assert_eq!(
        only_problem(
            "Model/main}}",
            &tools("{kind: Tool, name: bahs, package: '@goondan/base'}")
        ),
        "E_CONFIG_UNKNOWN_REFERENCE 9:72 package `@goondan/base` has no Tool `bahs`; it has `agent`, `agents`, `bash`, \
         `discord`, `email`, `event`, `file-system`, `github`, `gitlab`, `http-fetch`, `json-query`, `matrix`, `mcp`, `proposal`, `proposal-review`, `sandbox`, `schedule`, `self-restart`, `slack`, `swarm-bundle`, `tasks`, `telegram`, `text-transform` or `wait`"
    );
    assert_eq!(
        only_problem(
            "Model/main}}",
            &tools("{kind: Tool, name: x, package: '@acme/tools'}")
        ),
        "E_CONFIG_UNKNOWN_REFERENCE 9:84 the project does not require the package `@acme/tools`"
    );
    let bash = "{kind: Tool, name: bash, package: '@goondan/base'}";
    assert!(
        only_problem("Model/main}}", &tools(&format!("{bash}, {bash}")))
            .contains("Agent `helper` has two tools named `bash`")
    );
}

#[test]
fn duplicate_resource_is_reported() {
    assert_eq!(
        only_problem_with(
            "apiVersion: goondan.ai/v1
kind: Model
metadata: {name: main}
spec: {provider: scripted, options: {rules: [{say: Bye}]}}
"
        ),
        "E_CONFIG_DUPLICATE_RESOURCE 13:18 Model `main` is defined twice; first at goondan.yaml:3:18"
    );
}

#[test]
fn a_package_is_the_first_document() {
    let package = "apiVersion: goondan.ai/v1\nkind: Package\nmetadata: {name: x}\n";
    assert_eq!(
        only_problem_with(package),
        "E_CONFIG_MISPLACED_PACKAGE 13:18 Package `x` must be the first document of \
         `goondan.yaml`, and the only one of its kind"
    );
    let elsewhere = Project::new(SMALLEST).file("resources/a.yaml", package);
    assert!(only_problem_of(&elsewhere).starts_with("E_CONFIG_MISPLACED_PACKAGE"));
    let bad = format!("{package}spec: {{version: '1'}}\n---\n{SMALLEST}").replace("x}", "'a b'}");
    let problems = Project::new(&bad).problems();
    assert!(
        problems[0].contains("`a b` is not a package name"),
        "{problems:?}"
    );
    assert!(
        problems[1].contains("`1` is not a semantic version"),
        "{problems:?}"
    );
}

#[test]
fn invalid_or_unsupported_settings_are_reported_clearly() {
    assert_eq!(
        only_problem("provider: scripted", "provider: anthropic, model: opus"),
        "E_CONFIG_MISSING_FIELD 4:18 a model of `anthropic` needs an `apiKey`"
    );
    let hosted = |more: &str| {
        let spec = format!("provider: openai, model: m, apiKey: {{value: k}}, {more}");
        only_problem("provider: scripted", &spec)
    };
    assert_eq!(
        hosted("endpoint: \"http://key@host/v1\""),
        "E_CONFIG_INVALID_VALUE 4:66 `endpoint` must be the URL of a server and must not contain a key"
    );
    assert_eq!(
        hosted("params: {temperature: 3}"),
        "E_CONFIG_INVALID_VALUE 4:78 `temperature` must be a number from 0 to 2"
    );
    assert_eq!(
        only_problem("scripted", "scriptd"),
        "E_CONFIG_INVALID_VALUE 4:18 `spec.provider` of Model `main` must be `scripted`, \
         `anthropic`, `openai` or `google`, not `scriptd`"
    );
    let export = "{name: a, description: b, parameters: {type: object}}";
    let text = document(
        "Tool",
        &format!(
            "entry: tools/x.ts, exports: [{export}], config: {{a: [{{valueFrom: {{env: X}}}}]}}"
        ),
    );
    let from_env = only_problem_of(&Project::with(&text).file("tools/x.ts", ""));
    assert!(
        from_env.contains("`valueFrom` works only in Connections"),
        "{from_env}"
    );
}

#[test]
fn root_5_extensions_are_project_files_in_typescript_or_js() {
    let module = |entry: &str| {
        Project::with(&document("Extension", &format!("entry: {entry}")))
            .file("tools/x.ts", "export {}")
            .file("tools/x.py", "pass")
            .file("tools/x", "")
            .link("tools/link.ts", "/etc/passwd")
            .problems()
    };
    for (entry, code) in OUTSIDE {
        let problems = module(entry);
        assert!(
            problems[0].starts_with(&format!("{code} 14:15")),
            "{problems:?}"
        );
    }
    let other = |entry: &str, kind: &str| {
        let expected = format!(
            "E_CONFIG_INVALID_VALUE 14:15 an extension must be a TypeScript or JavaScript module; \
             by its file name, `{entry}` is {kind}"
        );
        assert_eq!(module(entry), [expected]);
    };
    other("tools/x.py", "Python");
    other("tools/x", "an executable");
}

/// Entries that are refused, in a project with `tools/x.ts` and a link `tools/link.ts`.
const OUTSIDE: [(&str, &str); 5] = [
    ("../x.ts", "E_CONFIG_PATH_OUTSIDE"),
    ("/etc/passwd", "E_CONFIG_PATH_OUTSIDE"),
    ("tools/link.ts", "E_CONFIG_PATH_OUTSIDE"),
    ("tools/y.ts", "E_CONFIG_MISSING_FILE"),
    ("tools", "E_CONFIG_UNREADABLE_FILE"),
];

/// A Tool that is a module, on a line of its own from 14 on.
fn module_tool(entry: &str, exports: &str) -> Project {
    let text = document("Tool", &format!("entry: {entry}, exports: [{exports}]"));
    Project::with(&text)
        .file("tools/x.ts", "export {}")
        .link("tools/link.ts", "/etc/passwd")
}

#[test]
fn root_5_a_tools_module_lies_in_the_project() {
    let export = "{name: a, description: b, parameters: {type: object}}";
    module_tool("tools/x.ts", export).load();
    for (entry, code) in OUTSIDE {
        let problem = only_problem_of(&module_tool(entry, export));
        assert!(problem.starts_with(&format!("{code} 14:15")), "{problem}");
    }
}

#[test]
fn the_exports_of_a_module_can_be_called_and_checked() {
    let problem = |exports: &str| only_problem_of(&module_tool("tools/x.ts", exports));
    assert_eq!(
        problem(""),
        "E_CONFIG_INVALID_VALUE 14:27 a tool module must have exports"
    );
    assert!(
        problem("{name: a b, description: b, parameters: {type: object}}")
            .starts_with("E_CONFIG_INVALID_VALUE 14:44 "),
    );
    assert!(problem("{name: a, description: b}").contains("needs the field `parameters`"));
    for (parameters, why) in [
        ("{}", "its `type` is not `object`"),
        ("{type: array}", "its `type` is not `object`"),
        (
            "{type: object, properties: {a: {type: strin}}}",
            "at `/properties/a/type`: ",
        ),
    ] {
        let problem = problem(&format!(
            "{{name: a, description: b, parameters: {parameters}}}"
        ));
        let begin = "`parameters` is not a valid JSON Schema for arguments: ";
        assert!(problem.contains(&format!("{begin}{why}")), "{problem}");
    }
    let twice = "{name: a, description: b, parameters: {type: object}}";
    assert!(problem(&format!("{twice}, {twice}")).ends_with("the export `a` is listed twice"));
}

#[test]
fn root_5_a_connectors_program_lies_in_the_project() {
    let project = |entry: &str| {
        let text = document("Connector", &format!("entry: {entry}"));
        Project::with(&text)
            .file("connectors/x.ts", "export {}")
            .link("connectors/link.ts", "/etc/passwd")
    };
    project("connectors/x.ts").load();
    for (entry, code) in [
        ("../x.ts", "E_CONFIG_PATH_OUTSIDE"),
        ("/etc/passwd", "E_CONFIG_PATH_OUTSIDE"),
        ("connectors/link.ts", "E_CONFIG_PATH_OUTSIDE"),
        ("connectors/y.ts", "E_CONFIG_MISSING_FILE"),
        ("connectors", "E_CONFIG_UNREADABLE_FILE"),
    ] {
        let problem = only_problem_of(&project(entry));
        assert!(problem.starts_with(&format!("{code} 14:15")), "{problem}");
    }
}

#[test]
fn settings_are_those_the_built_in_connector_takes() {
    let of = |connector: &str, rest: &str| {
        let text = connection(rest).replace("name: webhook", &format!("name: {connector}"));
        Project::with(&text).problems()
    };
    let misspelt = of("webhook", "  config: {prot: 80}\n");
    assert!(
        misspelt[0].contains("unknown field `spec.config.prot` of Connection `hook`"),
        "{misspelt:?}"
    );
    let project = Project::with(&connection("  config: {prot: 80}\n"));
    assert_eq!(suggestion(&project), "did you mean `port`?");

    let port = of("webhook", "  config: {port: 70000}\n");
    assert!(port[0].contains("must be a whole number from 0 to 65535, found 70000"));
    let secret = of("telegram", "");
    assert!(
        secret[0].starts_with("E_CONFIG_MISSING_FIELD")
            && secret[0].contains("`spec.secrets` of Connection `hook` needs `botToken`"),
        "{secret:?}"
    );
    let cron = of(
        "cron",
        "  config:\n    schedules:\n    - {name: a, cron: '61 * * * *', timeZone: Erope/Berlin, input: x}\n",
    );
    assert_eq!(cron.len(), 2, "{cron:?}");
    assert!(cron[0].contains("`spec.config.schedules[0].cron` of Connection `hook`"));
    assert!(cron[1].contains("time zone"));
    // A value that could not be found is one problem, not two.
    let unset = of("webhook", "  config: {port: {valueFrom: {env: PORT}}}\n");
    assert_eq!(unset.len(), 1, "{unset:?}");
    let events = of(
        "telegram",
        "  secrets: {botToken: {valueFrom: {env: TOKEN}}}\n  ingress: {rules: [{match: {event: mesage}}]}\n",
    );
    let said = events
        .iter()
        .any(|problem| problem.contains("has no event `mesage`"));
    assert!(said, "{events:?}");
}

#[test]
fn conn_3_unknown_signature_presets_are_named_with_the_known_ones() {
    let text =
        connection("  config: {signature: {preset: strip}}\n  secrets: {hmac: {value: s}}\n");
    let project = Project::with(&text);
    let problems = project.problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
    for preset in goondan_connectors::signatures::PRESET_NAMES {
        assert!(problems[0].contains(&format!("`{preset}`")), "{problems:?}");
    }
    assert_eq!(suggestion(&project), "did you mean `stripe`?");
    let no_topics = connection("  config: {signature: {preset: sns}}\n");
    assert!(only_problem_with(&no_topics).contains("needs `topics`"));
    let no_secret = connection("  config: {signature: {preset: stripe}}\n");
    assert!(only_problem_with(&no_secret).contains("requires the secret `hmac`"));
}

#[test]
fn a_secret_among_the_settings_is_not_shown() {
    let text = connection("  config: {botToken: hunter2}\n").replace("webhook", "telegram");
    let refused = Project::with(&text).refused();
    let shown = refused.to_string();
    assert!(!shown.contains("hunter2"), "{shown}");
    assert!(
        shown.contains("write it into `secrets.botToken`"),
        "{shown}"
    );
}

#[test]
fn the_local_client_has_one_connection_and_no_settings() {
    let local = |name: &str, rest: &str| {
        connection(rest)
            .replace("name: webhook", "name: cli")
            .replace("name: hook", &format!("name: {name}"))
    };
    let bundle = Project::with(&local("local", "")).load();
    assert!(bundle.local.is_some() && bundle.connections.is_empty());
    let twice = format!("{}---\n{}", local("one", ""), local("two", ""));
    assert!(only_problem_with(&twice).contains("is a second Connection of the connector `cli`"));
    let settings = only_problem_with(&local("one", "  config: {a: 1}\n"));
    assert!(settings.contains("takes no settings"), "{settings}");
}

#[test]
fn project_needs_exactly_one_entry_agent() {
    let (model, agent) = SMALLEST.split_once("---\n").unwrap();
    let second = agent.replace("helper", "second");
    let problem = only_problem_of(&Project::new(model));
    assert!(
        problem.starts_with("E_CONFIG_NO_ENTRY_AGENT 1:1"),
        "{problem}"
    );
    let project = Project::with(&second);
    assert!(only_problem_of(&project).starts_with("E_CONFIG_NO_ENTRY_AGENT 8:18"));
    assert_eq!(
        suggestion(&project),
        "add a document of `kind: Swarm` with `entryAgent: Agent/helper`"
    );

    let nameless = format!(
        "{second}---\n{}",
        document("Swarm", "entryAgent: Agent/helper").replace("name: x", "name: 12")
    );
    assert!(only_problem_with(&nameless).contains("must be text, not a number"));

    let swarm = |spec: &str| {
        format!(
            "{second}---\napiVersion: goondan.ai/v1\nkind: Swarm\nmetadata: {{name: s}}\nspec: {{{spec}}}\n"
        )
    };
    assert_eq!(
        only_problem_with(&swarm("entryAgent: Agent/helper, agents: [Agent/second]")),
        "E_CONFIG_UNKNOWN_REFERENCE 19:20 Agent `helper` is not an agent of Swarm `s`"
    );
    assert!(
        only_problem_with(&swarm("entryAgent: Agent/helper, agents: [Agent/helpr]"))
            .contains("Agent `helpr` does not exist")
    );
    assert!(
        only_problem_with(&swarm(
            "entryAgent: Agent/helper, agents: [Agent/helper, Agent/helper]"
        ))
        .contains("Agent `helper` is listed twice")
    );
    for policy in [
        "maxStepsPerTurn: 0",
        "maxStepsPerTurn: -1",
        "loopBreaker: {sameCallsMax: 1}",
        "loopBreaker: {noProgressStepsMax: 10001}",
        "shutdown: {gracePeriodSeconds: 90000}",
        "lifecycle: {ttlSeconds: 0}",
        "lifecycle: {gcGraceSeconds: -1}",
        "lifecycle: {idleSeconds: 700000}",
        "observation: {maxMiB: 1048577}",
        "observation: {maxDays: 3651}",
        "tasks: {keepDays: 36501}",
        "tasks: {drillHours: 8761}",
        "tasks: {checkpointSeconds: 604801}",
        "approvals: {timeoutSeconds: 0}",
        "approvals: {timeoutSeconds: 31536001}",
    ] {
        let problem = only_problem_with(&swarm(&format!(
            "entryAgent: Agent/helper, policy: {{{policy}}}"
        )));
        assert!(problem.contains("must be a whole number from"), "{problem}");
    }
}

#[test]
fn fields_that_exclude_each_other_are_refused() {
    let both = "Model/main}, prompt: {system: a, systemRef: p.md}}";
    let problem =
        only_problem_of(&Project::new(&SMALLEST.replace("Model/main}}", both)).file("p.md", "x"));
    assert_eq!(
        problem,
        "E_CONFIG_CONFLICTING_FIELDS 9:65 `spec.prompt` of Agent `helper` has both `system` and `systemRef`"
    );
    let key =
        connection("  ingress: {rules: [{route: {instanceKey: a, instanceKeyProperty: b}}]}\n");
    assert!(only_problem_with(&key).contains("has both `instanceKey` and `instanceKeyProperty`"));
}

#[test]
fn script_rule_needs_a_reply_a_call_or_a_failure() {
    let rule = |rule: &str| only_problem("{say: Hello}", rule);
    assert_eq!(
        rule("{when: {step: 1}}"),
        "E_CONFIG_MISSING_FIELD 4:46 `spec.options.rules[0]` of Model `main` needs `say`, `call` or \
         `fail`"
    );
    assert!(rule("{say: a, fail: b}").starts_with("E_CONFIG_CONFLICTING_FIELDS"));
    assert!(rule("{say: a, when: {usr: b}}").contains("unknown field `usr`"));
    assert!(rule("{say: a, when: {step: 0}}").contains("from 1 to"));
    assert!(rule("{say: a, when: {error: 'no'}}").contains("must be `true` or `false`, not text"));
    assert!(rule("{call: [{tool: 'a b'}]}").contains("tool name `a b`"));
    assert!(rule("{call: [{args: {}}]}").contains("needs the field `tool`"));
    assert!(rule("{call: {tool: x}}").contains("must be a list, not a mapping"));
    assert!(rule("{say: a, delayMs: 99999999}").contains("from 0 to 600000"));
    assert!(only_problem("[{say: Hello}]", "[]").contains("at least one rule"));
    assert!(only_problem("rules: [{say: Hello}]", "").contains("needs `script` or `rules`"));

    let two = Project::new(&SMALLEST.replace("rules: [{say: Hello}]", "script: s.yaml"))
        .file("s.yaml", "rules: [{say: a}]\n---\nrules: [{say: b}]\n");
    assert!(only_problem_of(&two).contains("in the script `s.yaml`, found 2"));
}

#[test]
fn captures_are_there_when_they_are_used() {
    let rule = |rule: &str| only_problem("{say: Hello}", rule);
    let when = "when: {user: '(?P<title>.)', system: '(?P<role>.)'}";
    assert_eq!(
        rule(&format!("{{{when}, say: 'It is ${{tilte}}.'}}")),
        "E_CONFIG_INVALID_VALUE 4:105 `spec.options.rules[0].say` of Model `main` uses `tilte`, \
         which no pattern captures; expected `role`, `title`, `header`, `input`, `result`, `step`"
    );
    assert!(
        rule(&format!(
            "{{{when}, call: [{{tool: x, args: {{a: [{{b: '${{c}}'}}]}}}}]}}"
        ))
        .contains("`spec.options.rules[0].call[0].args.a[0].b` of Model `main` uses")
    );
    assert!(rule("{fail: '${x'}").contains("has a `${` without `}`"));
    assert!(rule("{say: a, when: {user: '(?P<step>.)'}}").contains("is always defined"));
    assert!(
        rule("{say: a, when: {user: '(?P<a>.)', result: '(?P<a>.)'}}")
            .contains("`a`, which another pattern of the rule also captures")
    );
    let known = "{when: {user: '(?P<a>.)'}, say: '${a}${input}${result}${step}$${b}$5'}";
    Project::new(&SMALLEST.replace("{say: Hello}", known)).load();
    let broken = rule("{when: {user: '(?P<a>'}, say: '${a}'}");
    assert!(broken.starts_with("E_CONFIG_INVALID_PATTERN"), "{broken}");
}

#[test]
fn one_script_shared_by_two_models_is_judged_once() {
    let models = SMALLEST.replace("rules: [{say: Hello}]", "script: s.yaml");
    let (model, _) = models.split_once("---\n").unwrap();
    let second = model.replace("name: main", "name: other");
    let project = Project::new(&format!("{models}---\n{second}")).file("s.yaml", "rules: [{}]");
    assert!(only_problem_of(&project).contains("needs `say`, `call` or `fail`"));
}

#[test]
fn tool_names_must_fit_the_full_names_of_their_exports() {
    for name in ["a.b", "a__b", &"x".repeat(65)] {
        let problem = only_problem_with(&format!(
            "apiVersion: goondan.ai/v1\nkind: Tool\nmetadata: {{name: {name}}}\nspec: {{builtin: bash}}\n"
        ));
        assert!(problem.contains("is not a tool name"), "{problem}");
    }
}

#[test]
fn exports_are_those_the_tool_has() {
    let tool = |exports: &str| {
        only_problem_with(&format!(
            "apiVersion: goondan.ai/v1\nkind: Tool\nmetadata: {{name: x}}\nspec: {{builtin: file-system, exports: [{exports}]}}\n"
        ))
    };
    assert_eq!(
        tool("{name: raed}"),
        "E_CONFIG_UNKNOWN_REFERENCE 14:47 unknown export `raed`; expected `read`, `write`, `edit`, \
         `list`, `glob` or `grep`"
    );
    assert!(tool("{name: read}, {name: read}").starts_with("E_CONFIG_DUPLICATE_REFERENCE"));
    assert!(tool("{idempotent: true}").contains("needs the field `name`"));
    assert!(tool("{name: read, idempotent: 1}").contains("must be `true` or `false`"));
}

#[test]
fn a_missing_variable_is_named() {
    let spec = "  config: {port: {valueFrom: {env: PORT}}}
  secrets: {hmac: {valueFrom: {env: HMAC}}}\n";
    assert_eq!(
        Project::with(&connection(spec)).problems(),
        [
            "E_CONFIG_MISSING_ENVIRONMENT 16:36 the environment variable `PORT` is not set",
            "E_CONFIG_MISSING_ENVIRONMENT 17:37 the environment variable `HMAC` is not set",
        ]
    );
}

#[test]
fn an_empty_secret_is_refused() {
    let literal = only_problem_with(&connection("  secrets: {hmac: {value: ''}}\n"));
    assert!(literal.contains("`spec.secrets.hmac` of Connection `hook` must not be empty"));
    let spec = "  secrets: {hmac: {valueFrom: {env: HMAC}}}\n";
    let empty = Project::with(&connection(spec)).variable("HMAC", "");
    assert!(only_problem_of(&empty).contains("must not be empty"));
}

#[test]
fn connections_are_checked() {
    let name = connection("").replace("name: hook", "name: cli");
    assert!(only_problem_with(&name).contains("`cli` is reserved for the local client"));
    let webhok = connection("").replace("name: webhook", "name: webhok");
    assert!(only_problem_with(&webhok).contains("has no Connector `webhok`; it has `webhook`"));
    let agent = connection("  ingress: {rules: [{route: {agentRef: Agent/nobody}}]}\n");
    assert!(only_problem_with(&agent).contains("Agent `nobody` does not exist"));
    let key = connection("  ingress: {rules: [{route: {instanceKey: ''}}]}\n");
    assert!(only_problem_with(&key).contains("instance key must not be empty"));
    let prefix = format!(
        "  ingress: {{rules: [{{route: {{instanceKeyPrefix: {}}}}}]}}\n",
        "p".repeat(257)
    );
    assert!(only_problem_with(&connection(&prefix)).contains("longer than 256 bytes"));
}

/// A Connection with the join `release` of the parts `build` and `review`, with one text replaced.
fn joined(from: &str, to: &str) -> String {
    let ingress = "  ingress:
    joins: [{name: release, timeoutSeconds: 60, onTimeout: drop}]
    rules:
      - match: {event: request, properties: {kind: build}}
        route: {instanceKey: ci}
        join: {name: release, part: build, keyProperty: commit}
      - match: {event: request, properties: {kind: review}}
        route: {instanceKey: ci}
        join: {name: release, part: review, keyProperty: sha}
";
    assert!(ingress.contains(from), "{from} is not in the project");
    connection(&ingress.replacen(from, to, 1))
}

#[test]
fn joins_are_checked_where_they_are_written() {
    Project::with(&joined("release", "release")).load();
    for (from, to, problem) in [
        (
            "join: {name: release,",
            "join: {name: relase,",
            "E_CONFIG_UNKNOWN_REFERENCE 21:22 the join `relase` is not in `ingress.joins`",
        ),
        (
            "onTimeout: drop}",
            "onTimeout: drop}, {name: release}",
            "E_CONFIG_DUPLICATE_REFERENCE 17:74 the join `release` is listed twice",
        ),
        (
            "part: review",
            "part: build",
            "E_CONFIG_INVALID_VALUE 17:20 the join `release` has 1 of at least 2 parts",
        ),
        (
            "instanceKey: ci",
            "instanceKey: other",
            "E_CONFIG_CONFLICTING_FIELDS 24:22 the parts of the join `release` have different routes",
        ),
        (
            ", keyProperty: commit",
            "",
            "E_CONFIG_CONFLICTING_FIELDS 24:22 some parts of the join `release` have a `keyProperty`",
        ),
        ("onTimeout: drop", "onTimeout: keep", "onTimeout"),
        (
            "timeoutSeconds: 60",
            "timeoutSeconds: 2592001",
            "timeoutSeconds",
        ),
        ("part: build", "part: ''", "must not be empty"),
        ("part: build, ", "", "E_CONFIG_MISSING_FIELD"),
    ] {
        let problems = Project::with(&joined(from, to)).problems();
        let found = problems.iter().any(|found| found.contains(problem));
        assert!(found, "{to}: {problems:#?}");
    }
    let many: Vec<String> = (0..17)
        .map(|n| format!("      - join: {{name: release, part: p{n}}}\n"))
        .collect();
    let many = format!(
        "  ingress:\n    joins: [{{name: release}}]\n    rules:\n{}",
        many.concat()
    );
    let problem = only_problem_with(&connection(&many));
    assert!(problem.contains("has 17 parts; at most 16"), "{problem}");
    let local = joined("release", "release").replace("name: webhook", "name: cli");
    let problems = Project::with(&local.replace("name: hook", "name: local")).problems();
    let found = problems
        .iter()
        .any(|found| found.contains("so it has no joins"));
    assert!(found, "{problems:#?}");
}

#[test]
fn no_problem_shows_a_secret() {
    const SECRET: &str = "open-sesame";
    for spec in [
        // Each is wrong in another way, on the line that holds the secret.
        "  secrets: {hmac: {value: open-sesame, valu: 1}}\n",
        "  secrets: {hmac: open-sesame}\n",
        "  secrets: open-sesame\n",
        "  secrets:\n    hmac: {value: [open-sesame]}\n",
        "  secrets:\n    hmac: {valueFrom: {env: [open-sesame]}}\n",
        "  secrets:\n    hmac: {value: open-sesame, value: open-sesame}\n",
        "  secretz: {hmac: {value: open-sesame}}\n",
        "  secrets:\n    hmac:\n      value: \"open-sesame\n",
        "  secrets:\n    hmac: {value: open-sesame\n",
        "  secrets:\n    hmac: {value: *open-sesame }}\n",
        "secrets: {hmac: {value: open-sesame}}\n",
    ] {
        let problems = Project::with(&connection(spec)).refused();
        assert!(!problems.to_string().contains(SECRET), "{problems}");
        assert!(!format!("{problems:?}").contains(SECRET), "{problems:?}");
    }
    let from_env = "  secrets: {hmac: {valueFrom: {env: HMAC}}}\n  config: {a: {valueFrom: {env: HMAC}, b: 1}}\n";
    let problems = Project::with(&connection(from_env))
        .variable("HMAC", SECRET)
        .refused();
    assert!(!problems.to_string().contains(SECRET), "{problems}");
}

#[test]
fn suspicious_settings_yield_warnings() {
    assert_eq!(Project::new(SMALLEST).warnings(), Vec::<String>::new());
    let text = format!(
        "{}---
apiVersion: goondan.ai/v1
kind: Tool
metadata: {{name: shell}}
spec: {{builtin: bash}}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {{name: spare}}
spec: {{modelConfig: {{modelRef: Model/main}}}}
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {{name: team}}
spec: {{entryAgent: Agent/helper, agents: [Agent/helper]}}
---
{}",
        SMALLEST.replace("Model/main}", "Model/main, params: {temperature: 1}}"),
        connection("  secrets: {hmac: {value: open-sesame}}\n"),
    );
    let project = Project::new(&text).file(".env", "A=1\nA=2\n");
    assert_eq!(
        project.warnings(),
        [
            "W_CONFIG_DUPLICATE_VARIABLE 2:1 `A` is set again; first on line 1",
            "W_CONFIG_NO_EFFECT 9:44 `params` has no effect: the scripted model has no parameters",
            "W_CONFIG_UNUSED_RESOURCE 13:18 nothing refers to Tool `shell`",
            "W_CONFIG_UNUSED_RESOURCE 18:18 nothing refers to Agent `spare`",
            "W_CONFIG_PLAIN_SECRET 31:27 `spec.secrets.hmac` of Connection `hook` is literal and \
             visible to everyone who can read the project",
        ]
    );
    let checked = goondan_config::check(&project.root(), &project);
    let shown: String = checked.warnings.iter().map(ToString::to_string).collect();
    assert!(shown.starts_with("warning[W_CONFIG_"), "{shown}");
    assert!(!shown.contains("open-sesame"), "{shown}");
}

#[test]
fn conn_2_one_conversation_for_two_agents_yields_a_warning() {
    let warnings = |second: &str| {
        let rules = format!(
            "  ingress:
    rules:
      - {{match: {{properties: {{x: a}}}}, route: {{agentRef: Agent/helper, instanceKey: one}}}}
      - {{match: {{properties: {{x: b}}}}, route: {{{second}}}}}
"
        );
        let text = format!(
            "{SMALLEST}---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {{name: other}}
spec: {{modelConfig: {{modelRef: Model/main}}}}
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {{name: team}}
spec: {{entryAgent: Agent/helper}}
---
{}",
            connection(&rules)
        );
        Project::new(&text).warnings().join("\n")
    };
    let warned = warnings("agentRef: Agent/other, instanceKey: one");
    assert!(
        warned.contains("W_CONFIG_NO_EFFECT") && warned.contains("conversation `one`"),
        "{warned}"
    );
    for fine in [
        "agentRef: Agent/other, instanceKey: two",
        "agentRef: Agent/helper, instanceKey: one",
        "instanceKey: one",
        "agentRef: Agent/other",
    ] {
        assert_eq!(warnings(fine), "", "{fine}");
    }
}

#[test]
fn each_further_kind_and_field_is_checked() {
    let agent = |more: &str| only_problem("Model/main}", &format!("Model/main}}, {more}"));
    assert!(agent("runtime: {kind: lmm}").contains("must be `llm` or `cli`, not `lmm`"));
    assert!(
        agent("requiredTools: [bash__exec]")
            .contains("requires a call of `bash__exec`, but has no tool `bash`")
    );
    let window = "{kind: Extension, name: message-window, package: '@goondan/base'}";
    assert!(
        agent(&format!("extensions: [{window}]"))
            .contains("the extension `message-window` needs the setting `maxMessages`")
    );
    assert!(
        agent("extensions: [{kind: Extension, name: message-windw, package: '@goondan/base'}]")
            .contains("has no Extension `message-windw`")
    );
    let twice = format!("{{ref: {window}, config: {{maxMessages: 9}}}}");
    assert!(
        agent(&format!("extensions: [{twice}, {twice}]"))
            .contains("two extensions named `message-window`")
    );
    assert!(agent("tools: [{ref: Tool/x}]").contains("Tool `x` does not exist"));
    let bash = "{kind: Tool, name: bash, package: '@goondan/base'}";
    assert!(
        agent(&format!("tools: [{{ref: {bash}, config: {{}}}}]"))
            .contains("unknown field `config`")
    );

    let swarm = |more: &str| {
        only_problem_with(&document(
            "Swarm",
            &format!("entryAgent: Agent/helper, {more}"),
        ))
    };
    assert!(swarm("instanceKey: ''").contains("must not be empty"));

    let package = |spec: &str| {
        let text = format!("{}---\n{SMALLEST}", document("Package", spec));
        only_problem_of(&Project::new(&text))
    };
    assert!(package("access: privat").contains("must be `public` or `restricted`"));
    let on = |name: &str, range: &str| {
        package(&format!(
            "dependencies: [{{name: '{name}', version: '{range}'}}]"
        ))
    };
    assert!(on("@goondan/base", "one").contains("is not a range of versions"));
    assert!(on("@goondan/base", ">=99").contains("which `>=99` excludes"));
    assert!(on("@acme/x", "^1").contains("`goondan.lock` does not exist"));

    let hook = |events: &str, rule: &str| {
        let connector = document(
            "Connector",
            &format!("builtin: webhook, events: [{events}]"),
        );
        let connection = connection(&format!("  ingress: {{rules: [{rule}]}}\n")).replace(
            "{kind: Connector, name: webhook, package: \"@goondan/base\"}",
            "Connector/x",
        );
        only_problem_with(&format!("{connector}---\n{connection}"))
    };
    let push = "{name: push, properties: {branch: the branch}}";
    assert!(hook(push, "{match: {event: psuh}}").contains("has no event `psuh`; expected `push`"));
    assert!(
        hook(push, "{match: {properties: {brnach: a}}}")
            .contains("has no property `brnach`; expected `branch`")
    );
    assert!(hook(&format!("{push}, {push}"), "").contains("`push` is listed twice"));
    let swarm_ref = connection("  swarmRef: Swarm/team\n");
    assert!(only_problem_with(&swarm_ref).contains("Swarm `team` does not exist"));
}

#[test]
fn built_in_tool_settings_are_checked_at_their_place() {
    let tool = |spec: &str| only_problem_with(&document("Tool", spec));
    assert_eq!(
        tool("builtin: file-system, config: {maxBytes: 10}"),
        "E_CONFIG_UNKNOWN_FIELD 14:39 unknown field `maxBytes` in `spec.config` of Tool `x`; the tool \
         `file-system` takes `secretFiles`"
    );
    assert!(
        tool("builtin: bash, config: {connection: a}").starts_with(
            "E_CONFIG_UNKNOWN_FIELD 14:32 unknown field `connection` in `spec.config`"
        )
    );
    let misspelt = Project::with(&document("Tool", "builtin: slack, config: {conection: a}"));
    let refused = misspelt.refused().to_string();
    assert!(
        refused.contains(
            "unknown field `conection` in `spec.config` of Tool `x`; the tool `slack` takes \
             `connection`"
        ),
        "{refused}"
    );
    assert!(refused.contains("did you mean `connection`?"), "{refused}");
    assert_eq!(
        tool("builtin: slack, config: {connection: [a]}"),
        "E_CONFIG_WRONG_TYPE 14:45 `spec.config.connection` of Tool `x` must be text, not a list"
    );
    assert_eq!(
        tool("builtin: mcp, config: {connection: '  '}"),
        "E_CONFIG_INVALID_VALUE 14:43 `spec.config.connection` of Tool `x` must be a text that is not \
         blank"
    );
    let from_env = Project::with(&document(
        "Tool",
        "builtin: telegram, config: {connection: {valueFrom: {env: X}}}",
    ));
    let from_env = from_env.refused().to_string();
    assert!(
        from_env.contains("`valueFrom` works only in Connections"),
        "{from_env}"
    );
    // An agent that uses it is not reported as a second problem.
    let used = document("Tool", "builtin: slack, config: {connection: [a]}");
    let text = SMALLEST.replace("Model/main}", "Model/main}, tools: [Tool/x]");
    let used = only_problem_of(&Project::new(&format!("{text}---\n{used}")));
    assert!(used.starts_with("E_CONFIG_WRONG_TYPE "), "{used}");
    Project::with(&document("Tool", "builtin: bash, config: {}")).load();
}

#[test]
fn built_in_extension_settings_are_checked_at_their_position() {
    let extension = |spec: &str| only_problem_with(&document("Extension", spec));
    assert_eq!(
        extension("builtin: message-window, config: {maxMessage: 9}"),
        "E_CONFIG_UNKNOWN_FIELD 14:42 unknown field `maxMessage` in `spec.config` of Extension `x`; \
         the extension `message-window` takes `maxMessages`"
    );
    assert_eq!(
        extension("builtin: message-window, config: {maxMessages: 3}"),
        "E_CONFIG_INVALID_VALUE 14:55 `spec.config.maxMessages` of Extension `x` must be a whole \
         number from 4 to 1000000"
    );
    assert_eq!(
        extension("builtin: required-tools-guard, config: {tools: [a, 1]}"),
        "E_CONFIG_WRONG_TYPE 14:59 `spec.config.tools[1]` of Extension `x` must be text, not a number"
    );
    // An agent can supply the missing field, and one of the two must.
    Project::with(&document("Extension", "builtin: message-window")).load();
    let using = |listed: &str| {
        let text = SMALLEST.replace(
            "Model/main}",
            &format!("Model/main}}, extensions: [{listed}]"),
        );
        let window = document("Extension", "builtin: message-window");
        Project::new(&format!("{text}---\n{window}"))
    };
    using("{ref: Extension/x, config: {maxMessages: 9}}").load();
    let missing = only_problem_of(&using("Extension/x"));
    assert!(
        missing.starts_with("E_CONFIG_MISSING_FIELD 9:")
            && missing.ends_with("the extension `message-window` needs the setting `maxMessages`"),
        "{missing}"
    );
    let wrong = only_problem_of(&using("{ref: Extension/x, config: {maxMessages: many}}"));
    assert!(
        wrong.ends_with(
            "`spec.extensions[0].config.maxMessages` of Agent `helper` must be a whole number, not text"
        ),
        "{wrong}"
    );
}

#[test]
fn an_extension_names_tools_that_its_agent_has() {
    let with = |tool: &str, extension: &str| {
        let more = format!(
            "Model/main}}, tools: [{{kind: Tool, name: {tool}, package: '@goondan/base'}}], \
             extensions: [{{ref: {{kind: Extension, {extension}}}]"
        );
        Project::new(&SMALLEST.replace("Model/main}", &more))
    };
    let search = |name: &str| {
        format!(
            "name: tool-search, package: '@goondan/base'}}, config: {{alwaysOffered: [{name}]}}"
        )
    };
    with("bash", &search("bash__exec")).load();
    let missing = only_problem_of(&with("bash", &search("wait__for")));
    assert!(
        missing.contains(
            "`alwaysOffered` of the extension `tool-search` lists `wait__for`, but Agent `helper` \
             has no tool `wait`"
        ),
        "{missing}"
    );
    let guard = "name: required-tools-guard, package: '@goondan/base'}, config: {tools: [exec]}";
    let missing = only_problem_of(&with("bash", guard));
    assert!(missing.contains("lists `exec`, but Agent"), "{missing}");

    let taken = SMALLEST.replace(
        "Model/main}",
        "Model/main}, tools: [Tool/tool-search], extensions: [{kind: Extension, name: tool-search, \
         package: '@goondan/base'}]",
    );
    let tool = document("Tool", "builtin: bash").replace("name: x", "name: tool-search");
    let taken = only_problem_of(&Project::new(&format!("{taken}---\n{tool}")));
    assert!(taken.contains("adds a tool `tool-search`"), "{taken}");
}
