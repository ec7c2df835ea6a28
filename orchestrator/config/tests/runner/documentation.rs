//! `docs/configuration.md` is correct: its example loads, and its tables are complete.

use std::path::PathBuf;

use goondan_config::{KeyRule, codes};
use serde_json::Value;

use crate::support::{Project, schema_without_builtins};

fn page() -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    std::fs::read_to_string(path).unwrap()
}

/// The fenced blocks of the page whose first line is `# {path}`, as (path, content).
fn files(page: &str) -> Vec<(String, String)> {
    let mut blocks = page.split("```");
    let mut files = Vec::new();
    // Prose precedes each fence; language and content follow it.
    while let (Some(_), Some(block)) = (blocks.next(), blocks.next()) {
        let (_language, content) = block.split_once('\n').unwrap();
        if let Some((path, _)) = content
            .strip_prefix("# file: ")
            .and_then(|c| c.split_once('\n'))
        {
            files.push((path.to_owned(), content.to_owned()));
        }
    }
    files
}

#[test]
fn documentation_example_loads_as_described() {
    let files = files(&page());
    let paths: Vec<_> = files.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(
        paths,
        ["goondan.yaml", "scripts/main.yaml", "prompts/helper.md"]
    );
    let project = files
        .iter()
        .fold(Project::empty(), |project, (path, content)| {
            project.file(path, content)
        });

    let without_variable = project.problems();
    assert_eq!(without_variable.len(), 1, "{without_variable:?}");
    assert!(without_variable[0].contains("`HOOK_SECRET` is not set"));

    let bundle = project.variable("HOOK_SECRET", "s3cret").load();
    assert_eq!(bundle.package.unwrap().name, "@goondan/sample-10");
    assert_eq!(bundle.entry_agent.as_ref().unwrap().as_str(), "helper");
    assert_eq!(bundle.grace_period_ms, 60_000);
    let helper = &bundle.agents[bundle.entry_agent.as_ref().unwrap()];
    let tools: Vec<_> = helper.tools.iter().map(|tool| tool.name.as_str()).collect();
    // The last one reads what the connection received.
    assert_eq!(tools, ["bash", "files", "event"]);
    let hook = &bundle.connections[&"hook".parse().unwrap()];
    assert_eq!(hook.secrets["hmac"], "s3cret");
    assert!(matches!(hook.rules[0].key, KeyRule::Property { .. }));
    assert_eq!(bundle.agents.len(), 2);
}

#[test]
fn every_code_is_explained() {
    let page = page();
    let (_, section) = page.split_once("\n## Error codes\n").unwrap();
    for code in codes::ALL {
        assert!(section.contains(&format!("`{code}`")), "{code} is missing");
    }
    let starts = ["`E_CONFIG_", "`W_CONFIG_", "`N_CONFIG_"];
    let listed: usize = starts
        .iter()
        .map(|start| section.matches(start).count())
        .sum();
    assert_eq!(
        listed,
        codes::ALL.len(),
        "a code is listed twice, or does not exist"
    );
}

#[test]
fn every_limit_is_the_one_the_program_has() {
    use goondan_config::limits::*;
    let page = page();
    for (limit, name) in [
        (MAX_YAML_BYTES, "Bytes of a YAML file"),
        (MAX_PROMPT_BYTES, "Bytes of a prompt file"),
        (MAX_ENV_FILE_BYTES, "Bytes of an environment file"),
        (MAX_RESOURCE_FILES, "Files in `resources/`"),
        (MAX_RESOURCE_DEPTH, "Levels of directories in `resources/`"),
        (MAX_YAML_DEPTH, "Levels of nesting"),
        (MAX_YAML_NODES, "Values in a file"),
        (MAX_ANCESTORS, "Levels of `inherit`"),
        (MAX_INHERITED_NODES, "Values of Agents with `inherit`"),
        (MAX_YAML_TEXT_BYTES, "Bytes of text in a file"),
        (MAX_YAML_DOCUMENTS, "Documents in a file"),
        (MAX_JOIN_PARTS, "Parts of a join"),
        (MAX_DIAGNOSTICS, "Problems shown"),
    ] {
        let digits = limit.to_string();
        assert!(
            page.lines()
                .any(|line| line.starts_with(&format!("* {name}")) && line.contains(&digits)),
            "{name}: {limit}"
        );
    }
}

#[test]
fn the_exports_are_those_the_page_of_tools_describes() {
    // A test of the agent process checks that the page describes every export.
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/tools.md");
    let page = std::fs::read_to_string(path).unwrap();
    for (tool, exports) in goondan_protocol::base_package::tools() {
        if exports.is_empty() {
            // Its exports are only known at run time.
            continue;
        }
        let (_, section) = page.split_once(&format!("\n## {tool}\n")).unwrap();
        let section = section.split("\n## ").next().unwrap();
        let described: Vec<&str> = section
            .lines()
            .filter_map(|line| line.strip_prefix("### `")?.strip_suffix('`'))
            .collect();
        let exports: String = described
            .iter()
            .map(|name| format!("{{name: {name}}},"))
            .collect();
        let document = format!(
            "apiVersion: goondan.ai/v1\nkind: Tool\nmetadata: {{name: x}}\nspec: {{builtin: {tool}, exports: [{exports}]}}\n"
        );
        Project::with(&document).load();
        let unknown = Project::with(&document.replace("[{", "[{name: none},{")).problems();
        let listed = described.join("`, `");
        let shown = unknown[0].replace(" or ", ", ");
        assert!(shown.ends_with(&format!("`{listed}`")), "{unknown:?}");
    }
}

#[test]
fn ipc_2_the_example_of_an_agent_as_a_tool_loads() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/tools.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (_, section) = page.split_once("\n## agent\n").unwrap();
    let (_, example) = section.split_once("```yaml\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    let bundle = Project::new(example).load();
    let tool = &bundle.agents[&"clerk".parse().unwrap()].tools[0];
    assert_eq!(tool.config["agent"], "lawyer");
    assert_eq!(tool.config["description"], "Checks contracts.");
}

#[test]
fn every_other_example_of_the_page_loads_too() {
    let page = page();
    let mut count = 0;
    for block in page.split("```yaml\n").skip(1) {
        let block = block.split("```").next().unwrap();
        // The tests of the short form load its example.
        if block.starts_with("# file: ") || block.contains("\npackage: ") {
            continue;
        }
        count += 1;
        Project::with(block)
            .variable("BOT_TOKEN", "1:t")
            .variable("TEAM_BOT_TOKEN", "1:t")
            .variable("DUTY_BOT_TOKEN", "2:t")
            .variable("MATRIX_TOKEN", "t")
            .variable("HOOK_PATH", "/hook")
            .variable("HOOK_SECRET", "s3cret")
            .variable("GITHUB_WEBHOOK_SECRET", "s3cret")
            .variable("GITHUB_TOKEN", "t0ken")
            .secret("github", "token", "s3cret")
            .load();
    }
    assert_eq!(count, 9, "an example is not loaded");
}

#[test]
fn every_field_is_described() {
    fn walk(schema: &Value, page: &str) {
        match schema {
            Value::Object(fields) => {
                for (keyword, field) in fields {
                    let Some(of) = field.as_object().filter(|_| keyword == "properties") else {
                        walk(field, page);
                        continue;
                    };
                    for (name, field) in of {
                        let ends = [
                            format!(".{name}`"),
                            format!("{name}."),
                            format!("{{{name}: "),
                            format!("`{name}`"),
                        ];
                        let is_there = ends.iter().any(|end| page.contains(end));
                        assert!(is_there, "the page does not tell of `{name}`");
                        walk(field, page);
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| walk(item, page)),
            _ => {}
        }
    }
    walk(&schema_without_builtins(), &page());
}

#[test]
fn every_setting_of_an_extension_is_described() {
    use goondan_protocol::field::FieldDefault;
    use goondan_protocol::settings::of_extension;

    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/extensions.md");
    let page = std::fs::read_to_string(path).unwrap();
    for name in goondan_protocol::base_package::EXTENSIONS {
        let (_, section) = page.split_once(&format!("\n### `{name}`\n")).unwrap();
        let section = section.split("\n## ").next().unwrap();
        let section = section.split("\n### ").next().unwrap();
        let items = section.split("\n* `").skip(1);
        let rows: Vec<String> = items
            .map(|item| {
                let item = item.split("\n\n").next().unwrap();
                let words: Vec<&str> = item.split_whitespace().collect();
                words.join(" ")
            })
            .collect();
        let settings = of_extension(name).unwrap().settings;
        assert_eq!(rows.len(), settings.len(), "{name}");
        for (row, setting) in rows.iter().zip(settings) {
            let begin = format!("{}`", setting.name);
            assert!(row.starts_with(&begin), "{name}: {row}");
            let default = match setting.default {
                Some(FieldDefault::Number(number)) => format!("Default {number}"),
                Some(FieldDefault::Text(word)) => format!("Default: `{word}`"),
                Some(FieldDefault::Truth(truth)) => format!("Default: `{truth}`"),
                Some(FieldDefault::Meaning(_)) | None => continue,
            };
            assert!(row.contains(&default), "{name}: {row}");
        }
    }
}

#[test]
fn conn_3_examples_of_signature_presets_load() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/connectors/webhook.md");
    let page = std::fs::read_to_string(path).unwrap();
    let examples: Vec<&str> = page
        .split("```yaml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect();
    let both = Project::with(&examples.join("---\n"));
    let loaded = both.variable("STRIPE_WEBHOOK_SECRET", "whsec_s").load();
    assert_eq!(examples.len(), 2);
    assert_eq!(loaded.connections.len(), 2);
}
