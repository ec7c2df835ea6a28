//! `gdn init` and `gdn validate`.

use std::fs;

use goondan_config::ProcessEnvironment;
use goondan_tests::needs;

use crate::home::{GdnOutput, Home};

#[test]
fn a_new_project_is_valid_and_runs_at_once() {
    let home = Home::new();
    let ran = home.gdn(&["init", "My Swarm", "--no-git"]).exits(0);
    assert!(
        ran.stdout.starts_with("Created project my-swarm in "),
        "{ran:?}"
    );
    ran.tells(&["  cd 'My Swarm'\n  gdn run\n  gdn chat\n"]);
    let root = home.project().join("My Swarm");
    for file in [
        "goondan.yaml",
        "prompts/assistant.md",
        "scripts/assistant.yaml",
        ".gitignore",
    ] {
        assert!(root.join(file).is_file(), "no {file}");
    }
    assert!(!root.join(".git").exists());

    let bundle = goondan_config::load(&root, &ProcessEnvironment).unwrap();
    assert_eq!(bundle.package.unwrap().name, "my-swarm");
    let agent = &bundle.agents[&bundle.entry_agent.unwrap()];
    assert!(agent.system_prompt.as_ref().unwrap().contains("assistant"));
    assert_eq!(agent.tools.len(), 2);

    let ran = home.gdn(&["validate", "My Swarm"]).exits(0);
    assert!(ran.stdout.contains("valid"), "{ran:?}");
    let json = home
        .gdn(&["validate", "My Swarm", "--json"])
        .exits(0)
        .json();
    assert_eq!(json["schema"], "gdn.validate/v1");
    assert_eq!(json["agents"], serde_json::json!(["assistant"]));
}

#[test]
fn each_template_is_valid_and_nothing_is_to_be_warned_of() {
    let home = Home::new();
    for template in [
        "default",
        "multi-agent",
        "package",
        "minimal",
        "two-agents",
        "webhook",
    ] {
        let json = home
            .gdn(&[
                "init",
                template,
                "--template",
                template,
                "--no-git",
                "--json",
            ])
            .exits(0)
            .json();
        assert_eq!(json["template"], template);
        for file in json["files"].as_array().unwrap() {
            let path = home.project().join(template).join(file.as_str().unwrap());
            let text = fs::read_to_string(path).unwrap();
            assert!(!text.contains("PACKAGE_NAME") && !text.contains("GOONDAN_VERSION"));
        }
        let ran = home.gdn(&["validate", "--strict", template]).exits(0);
        assert!(ran.stdout.contains("valid\n"), "{ran:?}");
        home.gdn(&["config", "show", template]).exits(0);
    }
    home.gdn(&["init", "x", "--template", "none"]).exits(2);
}

#[test]
fn real_model_template_explains_its_key_and_lacks_nothing_else() {
    let home = Home::new();
    let template = ["init", "real", "--template", "assistant", "--no-git"];
    home.gdn(&template)
        .exits(0)
        .tells(&["cd real", "gdn secret set anthropic apiKey --for ."]);
    let json = home.gdn(&["validate", "real", "--json"]).exits(6).json();
    let problems = json["problems"].as_array().unwrap();
    assert_eq!(problems.len(), 1, "{json:#}");
    assert_eq!(problems[0]["code"], "E_CONFIG_MISSING_SECRET");
}

#[test]
fn init_without_a_terminal_never_asks_and_yes_uses_environment() {
    let home = Home::new();
    // With `--yes`, keys of the environment are stored, which starts a daemon; `env` needs none.
    let mut command = home.command(&[
        "init", "a", "--yes", "--no-git", "--no-run", "--key", "env", "--json",
    ]);
    // No Ollama of this machine is called.
    command
        .env("OPENAI_API_KEY", "sk-x")
        .env("OLLAMA_HOST", "ollama.example.org");
    let made = GdnOutput::of(command.output().unwrap()).exits(0).json();
    assert_eq!(
        (&made["template"], &made["model"]),
        (&"assistant".into(), &"openai".into())
    );
    // `gdn init` had the variable.
    assert_eq!(made["valid"], true, "{made:#}");
    let text = fs::read_to_string(home.project().join("a/goondan.yaml")).unwrap();
    assert!(text.contains("apiKey: $OPENAI_API_KEY\n"), "{text}");
    assert!(!text.contains("sk-x"), "{text}");

    let mut command = home.command(&["init", "b", "--yes", "--no-git", "--no-run"]);
    command.env("OLLAMA_HOST", "ollama.example.org");
    GdnOutput::of(command.output().unwrap()).exits(0);
    let text = fs::read_to_string(home.project().join("b/goondan.yaml")).unwrap();
    assert!(text.contains("provider: scripted"), "{text}");

    home.gdn(&["init", "c", "--model", "openai"])
        .exits(2)
        .tells(&["the template `default` does not use `--model`"]);
    home.gdn(&["init", "c", "--template", "assistant", "--key", "store"])
        .exits(2)
        .tells(&["ANTHROPIC_API_KEY is not set"]);
    assert!(!home.project().join("c").exists());
}

#[test]
fn a_new_project_has_the_schema_that_its_first_line_names() {
    let home = Home::new();
    home.gdn(&["init", "a", "--no-git"]).exits(0);
    let text = fs::read_to_string(home.project().join("a/goondan.yaml")).unwrap();
    let first = text.lines().next().unwrap();
    assert_eq!(first, "# yaml-language-server: $schema=goondan.schema.json");
    let schema = fs::read_to_string(home.project().join("a/goondan.schema.json")).unwrap();
    let schema: serde_json::Value = serde_json::from_str(&schema).unwrap();
    assert_eq!(Some(schema), goondan_config::schema(None));
}

#[test]
fn a_directory_named_like_a_yaml_value_is_a_name() {
    let home = Home::new();
    for name in ["null", "true", "2026", "1e3"] {
        home.gdn(&["init", name, "--no-git"]).exits(0);
        let package = goondan_config::package_name(&home.project().join(name));
        assert_eq!(package.unwrap().as_deref(), Some(name));
    }
}

#[test]
fn a_repository_is_made_unless_there_is_one() {
    if !needs::program("git") {
        return;
    }
    let home = Home::new();
    let json = home.gdn(&["init", "new", "--json"]).exits(0).json();
    assert_eq!(json["git"], true);
    let root = home.project().join("new");
    assert!(root.join(".git").is_dir());
    let json = home.gdn(&["init", "new/inner", "--json"]).exits(0).json();
    assert_eq!(json["git"], false);
    assert!(!root.join("inner/.git").exists());
}

#[test]
fn nothing_is_overwritten_without_force() {
    let home = Home::new();
    let before = fs::read_to_string(home.project().join("goondan.yaml")).unwrap();
    home.gdn(&["init"])
        .exits(10)
        .tells(&["goondan.yaml already exists", "`gdn init --force .`"]);
    let error = home.gdn(&["init", "--json"]).exits(10).error_json();
    assert_eq!(error["code"], "conflict");
    let file = home.project().join("goondan.yaml");
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    home.gdn(&["init", "--force", "--no-git"]).exits(0);
    assert_ne!(fs::read_to_string(&file).unwrap(), before);
}

#[test]
fn an_invalid_configuration_is_shown_with_its_places() {
    let home = Home::new();
    fs::write(
        home.project().join("goondan.yaml"),
        "apiVersion: goondan.ai/v1\nkind: Agnet\nmetadata: {name: a}\nspec: {}\n",
    )
    .unwrap();
    home.gdn(&["validate"])
        .exits(6)
        .tells(&["goondan.yaml:2:", "Agnet", "hint: "]);
    let ran = home.gdn(&["validate", "--json"]).exits(6);
    let json = ran.json();
    assert_eq!(json["valid"], false);
    assert_eq!(json["problems"][0]["line"], 2);
    assert_eq!(ran.error_json()["code"], "invalidConfiguration");
}
