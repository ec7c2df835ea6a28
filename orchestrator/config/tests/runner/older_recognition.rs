//! Projects that require no version of `@goondan/base` get the contract of their format
//! (`COMPAT-3`).

use std::path::PathBuf;

use goondan_config::{Diagnostic, ProjectCheck, Severity};
use goondan_protocol::base_package::BaseContract;
use goondan_protocol::ids::ResourceName;

use crate::support::{Project, SMALLEST};

/// Part of the note about the form that decided.
const DECIDED: &str = "makes this a project of goondan 0.0.3";

const MODEL: &str = "\
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: main}
spec: {provider: scripted, options: {rules: [{say: Hello}]}}
---
";

const NOTES: &str = "\
---
apiVersion: goondan.ai/v1
kind: Tool
metadata: {name: notes, labels: {area: desk}}
spec:
  entry: ./notes.mjs
  exports: [{name: add, description: Adds a note., parameters: {type: object}}]
";

/// A model, an agent with these lines in its `spec`, and further documents.
fn with_agent(lines: &str, more: &str) -> Project {
    let agent = format!(
        "apiVersion: goondan.ai/v1\nkind: Agent\nmetadata: {{name: clerk}}\nspec:\n{lines}"
    );
    Project::new(&format!("{MODEL}{agent}{more}")).file("notes.mjs", "export const handlers = {};")
}

/// [`SMALLEST`] with a Connection that has these lines in its `spec`.
fn with_connection(lines: &str) -> Project {
    Project::with(&format!(
        "apiVersion: goondan.ai/v1\nkind: Connection\nmetadata: {{name: outside}}\nspec:\n{lines}"
    ))
    .variable("TOKEN", "t")
}

/// The notes about the form that decided.
fn decisions(checked: &ProjectCheck) -> Vec<&str> {
    let warnings = checked.warnings.iter();
    let notes = warnings.filter(|found| found.severity == Severity::Note);
    let messages = notes.map(|found| found.message.as_str());
    messages.filter(|it| it.contains(DECIDED)).collect()
}

#[track_caller]
fn is_older(project: &Project, form: &str) {
    let checked = project.loader().check(&project.root());
    let decided = decisions(&checked);
    assert_eq!(decided.len(), 1, "{form}: {:?}", checked.warnings);
    assert!(decided[0].starts_with(form), "{form}: {decided:?}");
    let bundle = checked.bundle.unwrap_or_else(|found| panic!("{found}"));
    let mut agents = bundle.agents.values();
    assert!(agents.all(|agent| agent.contract == BaseContract::V0_0_3));
}

#[track_caller]
fn is_current(project: &Project) {
    let checked = project.loader().check(&project.root());
    assert_eq!(decisions(&checked), Vec::<&str>::new());
    let bundle = checked.bundle.unwrap_or_else(|found| panic!("{found}"));
    let mut agents = bundle.agents.values();
    assert!(agents.all(|agent| agent.contract == BaseContract::Own));
}

const MAIN: &str = "  modelConfig: {modelRef: Model/main}\n";

#[test]
fn compat_3_forms_of_agents_select_the_older_contract() {
    for (lines, form) in [
        (
            "  modelConfig: {modelRef: Model/main}\n  prompts: {systemPrompt: Be kind.}\n",
            "`prompts` of an Agent",
        ),
        (
            "  modelConfig: {modelRef: {ref: Model/main}}\n",
            "`ref` in `modelRef`",
        ),
        (
            "  modelConfig: {modelRef: {selector: {kind: Model, name: main}}}\n",
            "`selector` in `modelRef`",
        ),
        (
            "  modelConfig: {modelRef: Model/main}\n  tools: [{selector: {kind: Tool, matchLabels: {area: desk}}}]\n",
            "`selector` in a reference",
        ),
        (
            "  modelConfig: {modelRef: Model/main}\n  tools: [{ref: Tool/notes}, {ref: Tool/bash}]\n",
            "`{ref: Tool/bash}` of `@goondan/base` without `package`",
        ),
        (
            "  modelConfig: {modelRef: Model/main}\n  tools: [{ref: Tool/bash, package: \"@goondan/base\"}]\n",
            "`package` beside `ref`",
        ),
        (
            "  modelConfig: {modelRef: Model/main}\n  extensions:\n    - ref: {kind: Extension, name: \
             message-compaction, package: \"@goondan/base\"}\n      config: {retainLastMessages: 4}\n",
            "`retainLastMessages` of the extension `message-compaction`",
        ),
    ] {
        is_older(&with_agent(lines, NOTES), form);
    }
}

#[test]
fn compat_3_forms_of_connections_select_the_older_contract() {
    let of = |name: &str| {
        format!("  connectorRef: {{kind: Connector, name: {name}, package: \"@goondan/base\"}}\n")
    };
    let token = "{valueFrom: {env: TOKEN}}";
    for (lines, form) in [
        (
            format!(
                "{}  config: {{port: 0}}\n  verify: {{webhook: {{signingSecret: {token}}}}}\n",
                of("webhook")
            ),
            "`verify` of a Connection",
        ),
        (
            format!(
                "{}  secrets: {{botToken: {token}}}\n",
                of("telegram-polling")
            ),
            "the connector `telegram-polling`",
        ),
        (
            format!(
                "{}  ingress: {{rules: [{{match: {{event: stdin_message}}}}]}}\n",
                of("cli")
            ),
            "the event `stdin_message`",
        ),
        (
            format!(
                "{}  secrets: {{TELEGRAM_BOT_TOKEN: {token}}}\n",
                of("telegram")
            ),
            "`TELEGRAM_BOT_TOKEN` of a Connection",
        ),
        (
            format!(
                "{}  config: {{port: 0}}\n  ingress: {{rules: [{{route: {{agentRef: {{ref: Agent/helper}}}}}}]}}\n",
                of("webhook")
            ),
            "`ref` in `agentRef`",
        ),
    ] {
        is_older(&with_connection(&lines), form);
    }
}

#[test]
fn compat_3_two_hints_select_the_older_contract_but_one_does_not() {
    let short = NOTES.replace(
        ", description: Adds a note., parameters: {type: object}",
        "",
    );
    let both = format!("{MAIN}  tools: [Tool/bash, Tool/notes]\n");
    is_older(
        &with_agent(&both, &short),
        "`Tool/bash` of `@goondan/base` without `package` and an export without `description`",
    );
    let reference = with_agent(&both, NOTES).problems();
    assert_eq!(reference.len(), 1, "{reference:?}");
    assert!(
        reference[0].contains("Tool `bash` does not exist"),
        "{reference:?}"
    );
    let export = with_agent(&format!("{MAIN}  tools: [Tool/notes]\n"), &short).problems();
    assert!(
        export
            .iter()
            .all(|it| it.starts_with("E_CONFIG_MISSING_FIELD")),
        "{export:?}"
    );
}

#[test]
fn compat_3_wrapped_references_throughout_are_the_older_format() {
    let swarm = |agents: &str| {
        format!(
            "{NOTES}---\napiVersion: goondan.ai/v1\nkind: Swarm\nmetadata: {{name: desk}}\nspec: {{entryAgent: \
             Agent/clerk, agents: [{agents}]}}\n"
        )
    };
    let wrapped = format!("{MAIN}  tools: [{{ref: Tool/notes}}]\n");
    is_older(
        &with_agent(&wrapped, &swarm("{ref: Agent/clerk}")),
        "`{ref: …}` in all lists of references",
    );
    for (lines, agents) in [
        (wrapped.as_str(), "Agent/clerk"),
        (MAIN, "{ref: Agent/clerk}"),
        (
            &format!("{MAIN}  tools: [Tool/notes]\n"),
            "{ref: Agent/clerk}",
        ),
        (
            &format!("{MAIN}  tools: [{{ref: Tool/notes, approve: ask}}]\n"),
            "{ref: Agent/clerk}",
        ),
    ] {
        is_current(&with_agent(lines, &swarm(agents)));
    }
}

#[test]
fn compat_3_forms_in_other_files_select_the_older_contract() {
    let package = "apiVersion: goondan.ai/v1\nkind: Package\nmetadata: {name: split}\nspec: {version: 0.0.3}\n";
    let agent = "apiVersion: goondan.ai/v1\nkind: Agent\nmetadata: {name: clerk}\nspec:\n  modelConfig: {modelRef: \
                 Model/main}\n  prompts: {systemPrompt: Be kind.}\n";
    let model = MODEL.trim_end_matches("---\n");
    let named = Project::new(package)
        .file("models.yaml", model)
        .file("agents/clerk/agent.yaml", agent)
        .file("other/tools.yaml", "services: {db: {image: postgres}}\n");
    is_older(&named, "`prompts` of an Agent");
    let half = Project::new(package)
        .file("models.yaml", model)
        .file("resources/clerk.yaml", agent);
    is_older(&half, "`prompts` of an Agent");
    // Files that other programs own do not make a project.
    let foreign = Project::new(package).file("models.yaml", "kind: [");
    let problems = foreign.problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("no Agent"), "{problems:?}");
}

#[test]
fn compat_3_project_of_the_current_format_keeps_its_contract() {
    is_current(&Project::new(SMALLEST));
    is_current(&with_agent(
        &format!("{MAIN}  tools: [{{ref: Tool/notes}}]\n"),
        NOTES,
    ));
    let window = "{kind: Extension, name: message-window, package: \"@goondan/base\"}";
    is_current(&with_agent(
        &format!("{MAIN}  extensions: [{{ref: {window}, config: {{maxMessages: 9}}}}]\n"),
        "",
    ));
    is_current(&with_connection(
        "  connectorRef: {kind: Connector, name: slack, package: \"@goondan/base\"}\n  config: {port: 0}\n  secrets: \
         {signingSecret: {valueFrom: {env: TOKEN}}}\n  ingress: {rules: [{match: {event: app_mention}}]}\n",
    ));
    // A connector of the project may have an event with an older name.
    let own = with_connection(
        "  connectorRef: Connector/cli\n  config: {PORT: 1}\n  ingress: {rules: [{match: {event: stdin_message}}]}\n",
    )
    .file("cli.mjs", "")
    .file(
        "resources/cli.yaml",
        "apiVersion: goondan.ai/v1\nkind: Connector\nmetadata: {name: cli}\nspec: {entry: cli.mjs, events: [{name: \
         stdin_message}]}\n",
    );
    is_current(&own);
}

#[test]
fn compat_3_examples_and_templates_are_of_the_current_format() {
    let top = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut count = 0;
    for directory in ["docs/examples", "gdn/templates"] {
        for entry in std::fs::read_dir(top.join(directory)).unwrap() {
            let root = entry.unwrap().path();
            if !root.join("goondan.yaml").is_file() {
                continue;
            }
            let nothing = Project::empty();
            let checked = nothing.loader().check(&root);
            assert_eq!(
                decisions(&checked),
                Vec::<&str>::new(),
                "{}",
                root.display()
            );
            count += 1;
        }
    }
    assert!(count > 10, "only {count} projects were found");
}

#[test]
fn compat_1_range_with_both_contracts_leaves_the_choice_to_the_form() {
    let package = |range: &str| {
        format!(
            "apiVersion: goondan.ai/v1\nkind: Package\nmetadata: {{name: p}}\nspec:\n  dependencies:\n    - {{name: \
             \"@goondan/base\", version: \"{range}\"}}\n---\n"
        )
    };
    let older = format!(
        "{MODEL}apiVersion: goondan.ai/v1\nkind: Agent\nmetadata: {{name: clerk}}\nspec:\n{MAIN}  prompts: \
         {{systemPrompt: Be kind.}}\n"
    );
    for range in [">=0.0.3", "*", "latest", "workspace:*", "file:../base"] {
        let project = Project::new(&format!("{}{older}", package(range)));
        is_older(&project, "`prompts` of an Agent");
        let told = project.warnings();
        let note = format!("`{range}` selects its contract of 0.0.3");
        assert!(
            told.iter().any(|it| it.contains(&note)),
            "{range}: {told:?}"
        );
    }
    for range in [">=0.0.3", "*"] {
        is_current(&Project::new(&format!("{}{SMALLEST}", package(range))));
    }
    for range in ["latest", "workspace:*", "file:../base", "^0.0.2", "one"] {
        let refused = Project::new(&format!("{}{SMALLEST}", package(range))).refused();
        let [only] = refused.as_slice() else {
            panic!("{range}: {refused}");
        };
        let help = only.suggestion.as_deref().unwrap_or_default();
        assert!(
            help.contains("or `^0.0.3` for a project of goondan 0.0.3"),
            "{range}: {help}"
        );
    }
    // An explicit requirement takes precedence over forms.
    let explicit = Project::new(&format!("{}{older}", package("^0.1")));
    is_current(&explicit);
}

#[test]
fn compat_1_texts_without_quotes_are_read_as_before() {
    let package = "apiVersion: goondan.ai/v1\nkind: Package\nmetadata:\n  name: @acme/desk\nspec:\n  dependencies:\n    \
                   - name: @goondan/base\n      version: ^0.0.3\n---\n";
    let agent = "apiVersion: goondan.ai/v1\nkind: Agent\nmetadata: {name: clerk}\nspec:\n  description: Answer: short\n  \
                 modelConfig: {modelRef: Model/main}\n  tools:\n    - ref: {kind: Tool, name: bash, package: \
                 @goondan/base}\n";
    let project = Project::new(&format!("{package}{MODEL}{agent}"));
    let bundle = project.load();
    assert_eq!(bundle.package.unwrap().name, "@acme/desk");
    let clerk = &bundle.agents[bundle.entry_agent.as_ref().unwrap()];
    assert_eq!(clerk.contract, BaseContract::V0_0_3);
    assert_eq!(clerk.description.as_deref(), Some("Answer: short"));
    assert_eq!(clerk.tools[0].name.as_str(), "bash");
    let checked = project.loader().check(&project.root());
    let quotes = checked.warnings.iter().filter_map(|found| {
        let is_it = found.message.starts_with("a text without quotes");
        is_it.then_some((found.line, found.suggestion.as_deref()?))
    });
    let help = |text: &str| format!("put the text in quotes: `{text}`");
    let expected = [
        (4, help("name: \"@acme/desk\"")),
        (7, help("- name: \"@goondan/base\"")),
        (19, help("description: \"Answer: short\"")),
        (
            22,
            help("- ref: {kind: Tool, name: bash, package: \"@goondan/base\"}"),
        ),
    ];
    let found: Vec<_> = quotes.map(|(line, help)| (line, help.to_owned())).collect();
    assert_eq!(found, expected);
    // In the current format, it is an error that shows the line with quotes.
    let current = Project::new(&format!(
        "{MODEL}{}",
        agent.replace("  description: Answer: short\n", "")
    ))
    .refused();
    let [only] = current.as_slice() else {
        panic!("{current}");
    };
    assert_eq!(
        only.suggestion.as_deref(),
        Some(help("- ref: {kind: Tool, name: bash, package: \"@goondan/base\"}").as_str())
    );
}

/// A project with two Swarms, each with an agent and a Connection.
fn two_swarms() -> Project {
    let of = |name: &str| {
        format!(
            "---\napiVersion: goondan.ai/v1\nkind: Agent\nmetadata: {{name: {name}-clerk}}\nspec:\n  modelConfig: \
             {{modelRef: Model/main}}\n  prompts: {{systemPrompt: Be kind.}}\n---\napiVersion: goondan.ai/v1\nkind: \
             Swarm\nmetadata: {{name: {name}}}\nspec: {{entryAgent: Agent/{name}-clerk, agents: [{{ref: \
             Agent/{name}-clerk}}]}}\n---\napiVersion: goondan.ai/v1\nkind: Connection\nmetadata: {{name: {name}-hook}}\nspec: \
             {{connectorRef: {{kind: Connector, name: webhook, package: \"@goondan/base\"}}, swarmRef: Swarm/{name}}}\n"
        )
    };
    let model = MODEL.trim_end_matches("---\n");
    Project::new(&format!("{model}{}{}", of("day"), of("night")))
}

#[test]
fn compat_1_first_of_several_swarms_runs_and_others_are_listed() {
    let project = two_swarms();
    let bundle = project.load();
    assert_eq!(bundle.entry_agent.unwrap().as_str(), "day-clerk");
    assert_eq!(bundle.agents.len(), 1);
    let connections: Vec<&str> = bundle.connections.keys().map(AsRef::as_ref).collect();
    assert_eq!(connections, ["day-hook"]);
    // The default conversation has the Swarm's name.
    assert_eq!(bundle.conversation_key.unwrap().as_str(), "day");
    let checked = project.loader().check(&project.root());
    let told = |message: &str| {
        let mut warnings = checked.warnings.iter();
        warnings.any(|it| it.severity == Severity::Note && it.message.contains(message))
    };
    assert!(told("Swarm `night` does not run, because Swarm `day` runs"));
    assert!(told("Connection `night-hook` does not start"));
    let mut warnings = checked.warnings.iter();
    assert!(
        warnings.all(|it| it.severity == Severity::Note),
        "{:?}",
        checked.warnings
    );
}

#[test]
fn compat_1_named_swarm_runs_instead_of_the_first() {
    let project = two_swarms();
    let name = |name: &str| ResourceName::new(name).unwrap();
    let night = name("night");
    let loader = project.loader().with_swarm(Some(&night));
    let loaded = loader.load(&project.root());
    let bundle = loaded.bundle.unwrap();
    assert_eq!(bundle.swarm, Some(night.clone()));
    assert_eq!(bundle.idle_swarms, [name("day")]);
    assert_eq!(bundle.entry_agent.as_ref().unwrap().as_str(), "night-clerk");
    let connections: Vec<&str> = bundle.connections.keys().map(AsRef::as_ref).collect();
    assert_eq!(connections, ["night-hook"]);
    assert_eq!(bundle.conversation_key.as_ref().unwrap().as_str(), "night");
    let is_note = |it: &Diagnostic| it.severity == Severity::Note;
    assert!(loaded.warnings.iter().all(is_note), "{:?}", loaded.warnings);
    // The same configuration is stored and loaded again with the same Swarm.
    let kept = loaded.sources.kept().clone();
    let again = loader.load_kept(&project.root(), &kept).bundle.unwrap();
    assert_eq!(again.digest, bundle.digest);
    assert_ne!(project.load().digest, bundle.digest);
}

#[test]
fn compat_1_unknown_swarm_is_an_error_with_the_known_names() {
    let noon = ResourceName::new("noon").unwrap();
    let problem = |project: &Project| {
        let loader = project.loader().with_swarm(Some(&noon));
        let problems = loader.load(&project.root()).bundle.unwrap_err();
        let [only] = problems.as_slice() else {
            panic!("{problems}");
        };
        assert_eq!(only.code, "E_CONFIG_UNKNOWN_REFERENCE");
        only.message.clone()
    };
    assert_eq!(
        problem(&two_swarms()),
        "the Swarm `noon` to run does not exist; the project has `day`, `night`"
    );
    assert_eq!(
        problem(&Project::new(SMALLEST)),
        "the Swarm `noon` to run does not exist; the project has no Swarm"
    );
}

#[test]
fn compat_1_current_format_may_have_several_swarms() {
    let of = |name: &str| {
        format!(
            "---\napiVersion: goondan.ai/v1\nkind: Agent\nmetadata: {{name: {name}-clerk}}\nspec: {{modelConfig: \
             {{modelRef: Model/main}}}}\n---\napiVersion: goondan.ai/v1\nkind: Swarm\nmetadata: {{name: \
             {name}}}\nspec: {{entryAgent: Agent/{name}-clerk, agents: [{{ref: Agent/{name}-clerk}}]}}\n---\n\
             apiVersion: goondan.ai/v1\nkind: Connection\nmetadata: {{name: {name}-hook}}\nspec:\n  connectorRef: \
             {{kind: Connector, name: webhook, package: \"@goondan/base\"}}\n  ingress: {{rules: [{{route: {{agentRef: \
             Agent/{name}-clerk}}}}]}}\n"
        )
    };
    let model = MODEL.trim_end_matches("---\n");
    let project = Project::new(&format!("{model}{}{}", of("day"), of("night")));
    let night = ResourceName::new("night").unwrap();
    for (swarm, name) in [(None, "day"), (Some(&night), "night")] {
        let loaded = project.loader().with_swarm(swarm).load(&project.root());
        let bundle = loaded.bundle.unwrap();
        let [agent] = bundle.agents.values().collect::<Vec<_>>()[..] else {
            panic!("{:?}", bundle.agents);
        };
        assert_eq!(agent.name.as_str(), format!("{name}-clerk"));
        assert!(agent.contract.is_own());
        // A Connection without a Swarm belongs to the one with its agents.
        let connections: Vec<&str> = bundle.connections.keys().map(AsRef::as_ref).collect();
        assert_eq!(connections, [format!("{name}-hook")]);
        assert!(
            loaded
                .warnings
                .iter()
                .all(|it| it.code == "N_CONFIG_IDLE_SWARM")
        );
    }
}

#[test]
fn compat_1_each_setting_of_context_message_has_an_effect() {
    let text_of = |config: &str| {
        let project = with_agent(
            &format!(
                "{MAIN}  prompts: {{systemPrompt: Be kind.}}\n  extensions:\n    - ref: {{kind: Extension, name: \
                 context-message, package: \"@goondan/base\"}}\n      config: {{{config}}}\n"
            ),
            &format!(
                "---\n{}---\napiVersion: goondan.ai/v1\nkind: Swarm\nmetadata: {{name: desk}}\nspec: {{entryAgent: \
                 Agent/clerk}}\n",
                SMALLEST.split_once("---\n").unwrap().1
            ),
        );
        let bundle = project.load();
        let clerk = &bundle.agents[bundle.entry_agent.as_ref().unwrap()];
        let text = clerk
            .extensions
            .first()
            .map(|it| it.config["text"].as_str().unwrap().to_owned());
        (clerk.system_prompt.clone(), text)
    };
    let prompt = Some("Be kind.".to_owned());
    assert_eq!(text_of(""), (prompt.clone(), None));
    assert_eq!(text_of("includeAgentPrompt: false"), (None, None));
    let catalog = "You are the agent `clerk` of the swarm `desk`.\nOther agents: helper.\n";
    let (_, text) = text_of("includeSwarmCatalog: true");
    let text = text.unwrap();
    assert!(
        text.starts_with(catalog) && text.contains("`agents__catalog`"),
        "{text}"
    );
    let (_, text) = text_of("includeSwarmCatalog: true, swarmCatalogInstruction: Ask the helper.");
    assert_eq!(text.unwrap(), format!("{catalog}Ask the helper."));
    let (_, text) = text_of("includeInboundContext: true, includeCallContext: true");
    assert_eq!(text.unwrap(), "${inbound}\n${call}");
    let (_, text) = text_of("includeRouteSummary: true");
    assert!(text.unwrap().contains("came by ${source}"));
}
