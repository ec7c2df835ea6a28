//! Mistakes of beginners and of users of other systems: each causes one precise problem with a
//! suggestion.

use crate::support::{Project, SMALLEST};

/// The report about a project: `line: message | help` for each problem.
fn problems(goondan_yaml: &str) -> Vec<String> {
    let refused = Project::new(goondan_yaml).refused();
    let problems = refused.as_slice().iter();
    problems
        .map(|problem| {
            let help = problem.suggestion.as_deref().unwrap_or("no help");
            format!("{}: {} | {help}", problem.line, problem.message)
        })
        .collect()
}

#[track_caller]
fn tells(goondan_yaml: &str, expected: &[&str]) {
    assert_eq!(problems(goondan_yaml), expected, "{goondan_yaml}");
}

/// [`SMALLEST`] with its Model replaced by one with these lines in its `spec`.
fn model(lines: &str) -> String {
    let (_, agent) = SMALLEST.split_once("---\n").unwrap();
    let head = "apiVersion: goondan.ai/v1\nkind: Model\nmetadata: {name: main}\nspec:\n";
    format!("{head}{lines}---\n{agent}")
}

/// [`SMALLEST`] with its Agent replaced by one with these lines in its `spec`.
fn agent(lines: &str) -> String {
    let (model, _) = SMALLEST.split_once("---\n").unwrap();
    let head = "apiVersion: goondan.ai/v1\nkind: Agent\nmetadata: {name: helper}\nspec:\n";
    format!("{model}---\n{head}{lines}")
}

const MODEL_CONFIG: &str = "  modelConfig: {modelRef: Model/main}\n";

#[test]
fn unknown_provider_is_reported_with_the_provider_to_use() {
    for (provider, help) in [
        (
            "ollama",
            "ollama is compatible with the OpenAI API: write `provider: openai` and `endpoint: \
             http://127.0.0.1:11434/v1`",
        ),
        ("claude", "write `provider: anthropic`"),
        ("Gemini", "write `provider: google`"),
        (
            "bedrock",
            "write `provider: anthropic` and `bedrock: {region: …}`",
        ),
        (
            "palm",
            "for a server with a compatible API, write for example `provider: openai` and \
             `endpoint: URL`, up to and including the version, such as `http://127.0.0.1:8080/v1`",
        ),
    ] {
        let expected = format!(
            "5: `spec.provider` of Model `main` must be `scripted`, `anthropic`, `openai` or `google`, \
             not `{provider}` | {help}"
        );
        tells(
            &model(&format!("  provider: {provider}\n  model: x\n")),
            &[&expected],
        );
    }
}

#[test]
fn sec_2_plain_text_key_is_hidden_and_its_right_place_is_named() {
    let yaml = model("  provider: anthropic\n  model: x\n  apiKey: sk-ant-verysecret\n");
    tells(
        &yaml,
        &[
            "7: `spec.apiKey` of Model `main` must not be literal; it must have a `valueFrom` | \
             keep it out of the file: run `gdn secret set main apiKey --for .`, then write \
             `apiKey: {valueFrom: {secretRef: {ref: Secret/main, key: apiKey}}}`. Or set a \
             variable in `.env.local` and write `apiKey: {valueFrom: {env: API_KEY}}`",
        ],
    );
    let shown = Project::new(&yaml).refused().to_string();
    assert!(!shown.contains("verysecret"), "{shown}");
    for written in ["$OPENAI_API_KEY", "\"${OPENAI_API_KEY}\"", "OPENAI_API_KEY"] {
        tells(
            &model(&format!(
                "  provider: openai\n  model: x\n  apiKey: {written}\n"
            )),
            &[
                "7: `spec.apiKey` of Model `main` uses the shell syntax for variables | write \
                 `apiKey: {valueFrom: {env: OPENAI_API_KEY}}`",
            ],
        );
    }
}

#[test]
fn yaml_syntax_error_is_explained_in_plain_words() {
    for (lines, expected) in [
        (
            "  prompt:\n\tsystem: hi\n",
            "this line is indented with a tab; YAML allows only spaces | replace each tab with two spaces",
        ),
        (
            "  description: Answer like this: short\n",
            "a text without quotes contains `: `, which starts another field | put the text in \
             quotes: `description: \"Answer like this: short\"`",
        ),
        (
            "  description: @you\n",
            "a text without quotes cannot begin with this character | put the text in quotes: \
             `description: \"@you\"`",
        ),
        (
            "  description: 'it's'\n",
            "unexpected text after the closing `'` | write `''` for a `'` within the text, or put \
             the text in `\"`",
        ),
        (
            "  description: {{name}} is here\n",
            "a field's name must be text | a text that begins with `{` is parsed as a mapping: put \
             it in quotes",
        ),
        (
            "--\n",
            "this line is not a field: it has no `:` | write `---` to begin another document",
        ),
    ] {
        let message = problems(&agent(&format!("{MODEL_CONFIG}{lines}")));
        let [only] = message.as_slice() else {
            panic!("{message:#?}")
        };
        let (_line, only) = only.split_once(": ").unwrap();
        assert_eq!(only, expected, "{lines}");
    }
}

#[test]
fn misplaced_or_misnamed_field_is_reported_with_a_fix() {
    for (lines, field, help) in [
        (
            "  memory: 512\n",
            "memory",
            "limit the process with `runtime: {limits: {memoryMiB: 512}}`; the agent's memory \
             needs no setting",
        ),
        (
            "  systemPrompt: hi\n",
            "systemPrompt",
            "write `prompt: {system: …}`, or `prompt: {systemRef: prompts/name.md}`",
        ),
        (
            "  model: gpt-4o\n",
            "model",
            "a model is a separate document of `kind: Model`; write `modelConfig: {modelRef: \
             Model/name}` here",
        ),
        (
            "  system: hi\n",
            "system",
            "`system` is a field of `prompt`: indent it below `prompt`",
        ),
        (
            "  temperature: 0.2\n",
            "temperature",
            "`temperature` is a field of `modelConfig.params`: indent it below `modelConfig.params`",
        ),
    ] {
        let text = problems(&agent(&format!("{MODEL_CONFIG}{lines}")));
        let [only] = text.as_slice() else {
            panic!("{text:#?}")
        };
        let starts = format!("11: unknown field `{field}` in `spec` of Agent `helper`; expected ");
        assert!(only.starts_with(&starts), "{only}");
        assert_eq!(only.split_once(" | ").unwrap().1, help);
    }
    let too_far = agent("  modelConfig:\n    modelRef: Model/main\n    prompt: {system: hi}\n");
    tells(
        &too_far,
        &[
            "12: unknown field `prompt` in `spec.modelConfig` of Agent `helper`; expected \
             `fallbacks`, `modelRef` or `params` | `prompt` is a field of `spec`: indent it like \
             the other fields of `spec`",
        ],
    );
    let no_spec = "apiVersion: goondan.ai/v1\nkind: Agent\nname: x\n";
    let told = problems(no_spec);
    let help = "`name` is a field of `metadata`: indent it below `metadata`";
    assert!(told.iter().any(|told| told.ends_with(help)), "{told:#?}");
}

#[test]
fn a_file_of_another_program_is_one_problem() {
    let begin =
        "create a project with `gdn init`, or pass a project directory: `gdn --project DIR …`";
    for (text, what) in [
        (
            "version: '3'\nservices: {web: {image: nginx}}\nvolumes: {}\n",
            "this is a Docker Compose file, not a goondan project",
        ),
        (
            "on: push\njobs: {}\n",
            "this is a GitHub Actions workflow, not a goondan project",
        ),
        (
            "{\"name\": \"x\", \"scripts\": {}}\n",
            "this is a JavaScript package manifest, not a goondan project",
        ),
        (
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n",
            "this is a Kubernetes `Deployment`, not a goondan resource",
        ),
    ] {
        tells(text, &[&format!("1: {what} | {begin}")]);
    }
}

#[test]
fn two_resources_without_a_line_between_them_are_one_problem() {
    tells(
        &SMALLEST.replace("---\n", ""),
        &["5: another resource begins here in the same document | add a line `---` above it"],
    );
}

#[test]
fn built_in_tool_name_is_reported_with_its_reference_form() {
    tells(
        &agent(&format!("{MODEL_CONFIG}  tools:\n    - bash\n")),
        &[
            "12: `spec.tools[0]` of Agent `helper` must be a reference of the form `Tool/name` | write \
             `{kind: Tool, name: bash, package: \"@goondan/base\"}`",
        ],
    );
}

#[test]
fn missing_space_or_nested_field_is_reported_with_a_fix() {
    tells(
        &agent("  modelConfig:\n    modelRef:Model/main\n"),
        &[
            "11: `spec.modelConfig` of Agent `helper` must be a mapping of fields, not text | put a space \
             after the colon: `modelRef: …`",
        ],
    );
    tells(
        &agent(&format!("{MODEL_CONFIG}  prompt: You are helpful\n")),
        &[
            "11: `spec.prompt` of Agent `helper` must be a mapping of fields, not text | write \
             `prompt: {system: …}`, or refer to a file with `prompt: {systemRef: …}`",
        ],
    );
}
