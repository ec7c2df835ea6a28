//! Projects of the format 0.0.3 are migrated to the current format (`COMPAT-1`).

use goondan_config::{Loader, MigratedFile, SettingValue};
use proptest::prelude::*;

use crate::older_format::bundle;
use crate::support::{Project, write};

/// A project with the older contract, without older forms.
const BASE: &str = "\
apiVersion: goondan.ai/v1
kind: Package
metadata: {name: desk}
spec: {dependencies: [{name: \"@goondan/base\", version: ^0.0.3}]}
---
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: main}
spec: {provider: scripted, options: {rules: [{say: Hello}]}}
---
apiVersion: goondan.ai/v1
kind: Tool
metadata: {name: notes, labels: {area: desk}}
spec:
  entry: ./tools/notes.mjs
  exports: [{name: add}]
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: lead}
spec: {modelConfig: {modelRef: Model/main}}
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {name: desk}
spec: {entryAgent: Agent/lead}
";

const COMMENTS: (&str, &str) = (
    "\
# The clerk.
apiVersion: goondan.ai/v1
kind: Agent
metadata:
  name: clerk # at the desk
spec:
  # How it\tspeaks.
  prompts:
    systemPrompt:   \"Be kind.\" # short
  modelConfig:
    modelRef: {ref: 'Model/main'}   # cheap
  description: Serves.
# The end.
",
    "\
# The clerk.
apiVersion: goondan.ai/v1
kind: Agent
metadata:
  name: clerk # at the desk
spec:
  # How it\tspeaks.
  prompt:
    system:   \"Be kind.\" # short
  modelConfig:
    modelRef: 'Model/main'   # cheap
  description: Serves.
# The end.
",
);

const LISTS: (&str, &str) = (
    "\
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: clerk}
spec:
  modelConfig: {modelRef: Model/main}
  tools:
    # Works.
    - ref: Tool/bash # shell
    # Everything of the desk.
    - selector: # all
        kind: Tool
        matchLabels: {area: desk}
    # Files.
    - {ref: Tool/file-system}
  extensions:
  - ref: Extension/message-window # short
  - ref: Extension/logging
    config:
      includeToolArgs: true
",
    "\
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: clerk}
spec:
  modelConfig: {modelRef: Model/main}
  tools:
    # Works.
    - ref: Tool/bash # shell
    # Everything of the desk.
    # all
    - {kind: Tool, name: notes}
    # Files.
    - {ref: Tool/file-system}
  extensions:
  - ref: Extension/message-window # short
  - ref: Extension/logging
    config:
      content: true
",
);

const TELEGRAM: (&str, &str) = (
    "\
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: chat}
spec:
  connectorRef:
    kind: Connector
    name: telegram-polling # long polling
    package: \"@goondan/base\"
  swarmRef: Swarm/desk
  config:
    TELEGRAM_POLL_TIMEOUT_SECONDS: 20
    TELEGRAM_REQUEST_TIMEOUT_MS: 5000 # unused
  secrets:
    TELEGRAM_BOT_TOKEN: {valueFrom: {env: TOKEN}}
  ingress:
    rules:
      - match: {event: telegram_message}
        route: {agentRef: {ref: \"Agent/lead\"}} # first
",
    "\
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: chat}
spec:
  connectorRef:
    kind: Connector
    name: telegram # long polling
    package: \"@goondan/base\"
  swarmRef: Swarm/desk
  config:
    pollSeconds: 20
  secrets:
    botToken: {valueFrom: {env: TOKEN}}
  ingress:
    rules:
      - match: {event: message}
        route: {agentRef: \"Agent/lead\"} # first
",
);

const SLACK: (&str, &str) = (
    "\
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: hook}
spec:
  connectorRef: Connector/slack
  config:
    SLACK_WEBHOOK_PORT: {value: 8799} # public
  secrets:
    SLACK_BOT_TOKEN: {valueFrom: {env: TOKEN}} # a bot
  verify:
    webhook:
      signingSecret: {valueFrom: {env: SIGNING}}
  ingress:
    rules:
      - match: {event: message_im}
        route: {}
",
    "\
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: hook}
spec:
  connectorRef: Connector/slack
  config:
    port: 8799 # public
  secrets:
    signingSecret: {valueFrom: {env: SIGNING}}
    botToken: {valueFrom: {env: TOKEN}} # a bot
  ingress:
    rules:
      - match: {event: message}
        route: {}
",
);

const FLOW: (&str, &str) = (
    "apiVersion: goondan.ai/v1\nkind: Agent\nmetadata: {name: clerk}\nspec: {prompts: {systemPrompt: Hi}, \
     # spoken\n  modelConfig: {modelRef: {ref: Model/main}, params: {maxTokens: 5, topic: x}},\n  tools: \
     [{selector: {kind: Tool, name: notes}}, Tool/wait]}\n",
    "apiVersion: goondan.ai/v1\nkind: Agent\nmetadata: {name: clerk}\nspec: {prompt: {system: Hi}, \
     # spoken\n  modelConfig: {modelRef: Model/main, params: {maxTokens: 5}},\n  tools: \
     [{kind: Tool, name: notes}, Tool/wait]}\n",
);

/// Older documents, each with what a person would write instead.
const CORPUS: [(&str, &str); 5] = [COMMENTS, LISTS, TELEGRAM, SLACK, FLOW];

const ANCHORS: (&str, &str) = (
    "\
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: chat}
spec:
  connectorRef: {kind: Connector, name: telegram, package: \"@goondan/base\"}
  secrets: {BOT_TOKEN: &token {valueFrom: {env: TOKEN}}}
  ingress:
    rules:
      - match: {event: telegram_message}
        route: &route {agentRef: {ref: Agent/lead}}
      - route: *route
",
    "\
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: chat}
spec:
  connectorRef: {kind: Connector, name: telegram, package: \"@goondan/base\"}
  secrets: {botToken: &token {valueFrom: {env: TOKEN}}}
  ingress:
    rules:
      - match: {event: message}
        route: &route {agentRef: Agent/lead}
      - route: *route
",
);

const BLOCKS: (&str, &str) = (
    "\
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: clerk}
spec:
  prompts:
    systemPrompt: |
      prompts: {systemPrompt: this is text}

      # and this
  description: >-
    a: folded
    text
  modelConfig: {modelRef: Model/main}
",
    "\
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: clerk}
spec:
  prompt:
    system: |
      prompts: {systemPrompt: this is text}

      # and this
  description: >-
    a: folded
    text
  modelConfig: {modelRef: Model/main}
",
);

/// Comments within values that are replaced as a whole.
const REPLACED: (&str, &str) = (
    "\
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: clerk}
spec:
  modelConfig: {modelRef: Model/main}
  tools: [Tool/bash]
  extensions:
    - ref: Extension/message-window # window
    - selector: # guard
        kind: Extension
        name: required-tools-guard
      overrides:
        spec:
          # The tools.
          config:
            requiredTools: [bash__exec] # any
            errorMessage: \"not # a comment\" # words
# The end.
",
    "\
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: clerk}
spec:
  modelConfig: {modelRef: Model/main}
  tools: [Tool/bash]
  extensions:
    - ref: Extension/message-window # window
    # guard
    # The tools.
    # any
    - ref: {kind: Extension, name: required-tools-guard, package: \"@goondan/base\"}
      config: {tools: [bash__exec], anyOf: true, message: \"not # a comment\"} # words
# The end.
",
);

const CASE: &str = "resources/case.yaml";

fn desk(case: impl AsRef<[u8]>) -> Project {
    Project::new(BASE)
        .file(CASE, case)
        .file("tools/notes.mjs", "export const handlers = {};")
        .variable("TOKEN", "t")
        .variable("SIGNING", "s3cret")
}

/// The effective values that `gdn config show` prints.
fn values(project: &Project) -> Vec<(String, String, SettingValue)> {
    let found = project.loader().effective(&project.root());
    let found = found.unwrap_or_else(|found| panic!("{found}"));
    let values = found.into_iter();
    values.map(|it| (it.resource, it.path, it.value)).collect()
}

/// Migrates the case; returns its text, and checks that its meaning and other files stay.
fn migrated_case(case: &str) -> String {
    let project = desk(case);
    let before = values(&project);
    let files = migrated(&project);
    let [file] = files.as_slice() else {
        panic!("{files:?}");
    };
    assert_eq!(
        (file.path.to_str(), file.before.as_str()),
        (Some(CASE), case)
    );
    put(&project, &files);
    assert_eq!(values(&project), before, "{}", file.after);
    assert_eq!(migrated(&project), [], "{}", file.after);
    file.after.clone()
}

#[test]
fn compat_1_migration_changes_what_a_person_would_change() {
    for (case, expected) in CORPUS.into_iter().chain([ANCHORS, BLOCKS, REPLACED]) {
        assert_eq!(migrated_case(case), expected);
    }
}

#[test]
fn compat_1_migration_keeps_line_ends_mark_and_missing_final_newline() {
    for (case, expected) in CORPUS {
        let ended = |text: &str, end: &str| text.replace('\n', end);
        for end in ["\n", "\r\n"] {
            let marked = format!("\u{feff}{}", ended(case, end));
            let wanted = format!("\u{feff}{}", ended(expected, end));
            assert_eq!(migrated_case(&marked), wanted);
            let bare = ended(case.trim_end(), end);
            assert_eq!(migrated_case(&bare), ended(expected.trim_end(), end));
        }
    }
}

#[test]
fn compat_1_migration_changes_each_of_several_documents() {
    let join = |texts: [&str; 3]| {
        let [first, second, third] = texts;
        format!("--- # first\n{first}---\n# second\n{second}\n...\n--- # third\n{third}")
    };
    let case = join([LISTS.0, TELEGRAM.0, SLACK.0]);
    assert_eq!(migrated_case(&case), join([LISTS.1, TELEGRAM.1, SLACK.1]));
}

#[test]
fn compat_1_migration_appends_an_implicit_connection() {
    let case = LISTS.0.replace("Tool/file-system", "Tool/http-fetch");
    let expected = LISTS.1.replace("Tool/file-system", "Tool/http-fetch");
    let connection = "---\napiVersion: goondan.ai/v1\nkind: Connection\nmetadata: {name: http-fetch}\nspec:\n  \
                      connectorRef: {kind: Connector, name: http, package: \"@goondan/base\"}\n  config: {allow: \
                      [\"*:*\", \"http://*:*\"]}\n";
    assert_eq!(migrated_case(&case), format!("{expected}{connection}"));
}

#[test]
fn compat_1_migration_appends_implicit_connections_of_chats() {
    let tools = "{ref: Tool/telegram}\n    - {ref: Tool/slack}";
    let case = LISTS.0.replace("{ref: Tool/file-system}", tools);
    let after = migrated_case(&case);
    for name in ["telegram", "slack"] {
        let connection = format!("kind: Connection\nmetadata: {{name: {name}}}\n");
        assert!(after.contains(&connection), "{after}");
    }
    assert_eq!(after.matches("reply: never").count(), 2, "{after}");
}

#[test]
fn compat_1_migration_writes_merged_fields_out_where_they_differ() {
    let case = "apiVersion: goondan.ai/v1\nkind: Agent\nmetadata: # names\n  name: clerk\n  annotations: {shared: &shared \
                {prompts: {systemPrompt: Hi}}}\nspec:\n  <<: *shared\n  modelConfig: {modelRef: Model/main}\n";
    let after = migrated_case(case);
    assert!(after.contains("metadata: # names\n"), "{after}");
    assert!(after.contains("prompt: {system: Hi}"), "{after}");
    assert!(!after.contains("<<"), "{after}");
}

/// Lines that differ, in either text.
fn changed_lines(before: &str, after: &str) -> usize {
    let count = |of: &str, other: &str| {
        let mut left: Vec<&str> = other.lines().collect();
        let lines = of.lines().filter(|line| {
            let found = left.iter().position(|it| it == line);
            found.map(|index| left.remove(index)).is_none()
        });
        lines.count()
    };
    count(before, after) + count(after, before)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Comments and empty lines anywhere change neither the meaning nor the size of the patch.
    #[test]
    fn compat_1_migration_of_commented_documents_is_minimal(
        case in 0_usize..CORPUS.len(),
        comments in proptest::collection::vec((0_usize..20, 0_usize..12, "[a-z:{}#\t' -]{0,12}"), 0..6),
        is_crlf in any::<bool>(),
    ) {
        let (text, expected) = CORPUS[case];
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        for (line, indent, comment) in &comments {
            // A comment within braces would have to follow a separator.
            if case + 1 < CORPUS.len() {
                let line = line % (lines.len() + 1);
                lines.insert(line, format!("{}#{comment}", " ".repeat(*indent)));
            }
        }
        let end = if is_crlf { "\r\n" } else { "\n" };
        let before: String = lines.iter().map(|line| format!("{line}{end}")).collect();
        let after = migrated_case(&before);
        let most = 2 * changed_lines(text, expected) + comments.len();
        prop_assert!(changed_lines(&before, &after) <= most, "{}", after);
        prop_assert_eq!(is_crlf, after.contains("\r\n"));
    }
}

#[test]
fn compat_1_project_that_cannot_be_read_is_not_called_modern() {
    let migrate = |project: &Project| Loader::new(project).migrate(&project.root());
    for (text, expected) in [
        ("kind: [", "E_CONFIG_SYNTAX"),
        (
            "services: {db: {image: postgres}}\n",
            "a Docker Compose file",
        ),
        (
            "apiVersion: goondan.ai/v2\nkind: Agent\nmetadata: {name: a}\n",
            "`apiVersion` must be",
        ),
        (
            "apiVersion: goondan.ai/v1\nkind: Agnt\nmetadata: {name: a}\n",
            "unknown kind `Agnt`",
        ),
        ("", "E_CONFIG_NO_ENTRY_AGENT"),
        ("# Only a comment.\n", "the project has no documents"),
        ("---\n---\n", "the project has no documents"),
        ("- Model/main\n", "must be a mapping of fields"),
        ("Model/main\n", "must be a mapping of fields"),
    ] {
        let found = migrate(&Project::new(text)).unwrap_err().to_string();
        assert!(found.contains(expected), "{found}");
        assert!(found.contains("goondan.yaml:"), "{found}");
    }
    let found = Project::empty().file("goondan.yaml", [0xff, 0xfe]);
    let found = migrate(&found).unwrap_err().to_string();
    assert!(found.contains("`goondan.yaml` is not UTF-8"), "{found}");
    let found = migrate(&Project::empty()).unwrap_err().to_string();
    assert!(found.contains("`goondan.yaml` does not exist"), "{found}");
}

/// A Package that keeps the older contract once the older forms are gone.
const PACKAGE: &str = "apiVersion: goondan.ai/v1\nkind: Package\nmetadata: {name: shop}\nspec:\n  dependencies: \
                       [{name: \"@goondan/base\", version: ^0.0.3}]\n---\n";

fn migrated(project: &Project) -> Vec<MigratedFile> {
    let files = Loader::new(project).migrate(&project.root());
    files.expect("nothing is wrong with it")
}

fn put(project: &Project, files: &[MigratedFile]) {
    for file in files {
        write(&project.root().join(&file.path), file.after.as_bytes());
    }
}

#[test]
fn compat_1_migrated_file_means_the_same_without_older_forms() {
    let project = bundle();
    let load = || Loader::new(&project).load(&project.root());
    let before = load();
    let files = migrated(&project);
    assert_eq!(files.len(), 1);
    put(&project, &files);
    let after = load();
    let (Ok(was), Ok(is)) = (before.bundle, after.bundle) else {
        panic!("{:?}", load().bundle);
    };
    assert_eq!(was.agents, is.agents);
    assert_eq!(was.connections, is.connections);
    assert_eq!(was.entry_agent, is.entry_agent);
    let older: Vec<_> = after
        .warnings
        .iter()
        .filter(|found| found.code == "N_CONFIG_OLDER_FORM")
        .map(|found| found.message.clone())
        .collect();
    // This note is about its behavior, not its form.
    let told = "`message-compaction` writes summaries with the agent's own model";
    assert_eq!(older, [told]);
    assert_eq!(migrated(&project), []);
}

#[test]
fn compat_1_document_without_older_form_stays_byte_for_byte() {
    let kept = "# The answers.\napiVersion: goondan.ai/v1\nkind: Model\nmetadata: {name: main} # cheap\nspec: {provider: \
                scripted, options: {rules: [{say: Hi}]}}\n";
    let older = "apiVersion: goondan.ai/v1\nkind: Agent\nmetadata: {name: clerk}\nspec:\n  prompts: {systemPrompt: \
                 Be kind.}\n  modelConfig: {modelRef: {ref: Model/main}}\n";
    let swarm = "apiVersion: goondan.ai/v1\nkind: Swarm\nmetadata: {name: s}\nspec: {entryAgent: Agent/clerk}\n";
    let project = Project::new(&format!(
        "{PACKAGE}{kept}--- # the clerk\n{older}---\n{swarm}"
    ));
    let files = migrated(&project);
    let [file] = files.as_slice() else {
        panic!("{files:?}");
    };
    let expected = format!(
        "{PACKAGE}{kept}--- # the clerk\napiVersion: goondan.ai/v1\nkind: Agent\nmetadata: {{name: clerk}}\nspec:\n  prompt: \
         {{system: Be kind.}}\n  modelConfig: {{modelRef: Model/main}}\n---\n{swarm}"
    );
    assert_eq!(file.after, expected);
}

#[test]
fn compat_1_a_file_keeps_its_line_ends() {
    let text = "apiVersion: goondan.ai/v1\r\nkind: Agent\r\nmetadata: {name: other}\r\nspec:\r\n  prompts: {systemPrompt: \
                Hi}\r\n  modelConfig: {modelRef: Model/main}\r\n";
    let project = Project::new(&format!("{PACKAGE}{}", crate::support::SMALLEST));
    let project = project.file("resources/other.yaml", text);
    let files = migrated(&project);
    assert_eq!(files[0].before, text);
    let after = &files[0].after;
    assert!(after.contains("prompt: {system: Hi}\r\n"), "{after:?}");
    assert_eq!(after.matches('\n').count(), after.matches("\r\n").count());
}

#[test]
fn compat_1_a_project_of_today_has_nothing_to_migrate() {
    assert_eq!(migrated(&Project::new(crate::support::SMALLEST)), []);
}

#[test]
fn compat_1_bad_older_form_is_reported_and_nothing_is_written() {
    let wrong = "apiVersion: goondan.ai/v1\nkind: Agent\nmetadata: {name: clerk}\nspec:\n  modelConfig: {modelRef: \
                 Model/main}\n  tools: [{selector: {kind: Tool, matchLabels: {area: none}}}]\n";
    let project = Project::with(wrong);
    let found = Loader::new(&project).migrate(&project.root()).unwrap_err();
    assert!(
        found.to_string().contains("the selector matches no Tool"),
        "{found}"
    );
}
