//! `gdn validate`, `gdn config schema` and `gdn config`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::home::Home;

const GOOD: &str = "# A project.
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: main}
spec: {provider: scripted, options: {rules: [{say: Hello}]}}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: helper}
spec: {modelConfig: {modelRef: Model/main}}
";

fn home_with(goondan_yaml: &str) -> Home {
    let home = Home::new();
    fs::write(home.project().join("goondan.yaml"), goondan_yaml).unwrap();
    home
}

#[test]
fn warnings_are_printed_and_fail_only_on_request() {
    let spare = GOOD.replace("kind: Agent", "kind: Tool").replace(
        "spec: {modelConfig: {modelRef: Model/main}}",
        "spec: {builtin: bash}",
    );
    let (_, tool) = spare.split_once("---\n").unwrap();
    let home = home_with(&format!("{GOOD}---\n{tool}"));
    let ran = home.gdn(&["validate"]).exits(0);
    assert!(ran.stdout.contains("valid, with 1 warning"), "{ran:?}");
    ran.tells(&["warning[W_CONFIG_UNUSED_RESOURCE]", "goondan.yaml:14:18"]);
    home.gdn(&["validate", "--strict"])
        .exits(6)
        .tells(&["has 1 warning"]);
    let ran = home.gdn(&["validate", "--format", "json"]).exits(0);
    assert_eq!(ran.stderr, "");
    let json = ran.json();
    assert_eq!(json["valid"], true);
    assert_eq!(json["problems"][0]["severity"], "warning");
    let strict = home.gdn(&["validate", "--json", "--strict"]).exits(6);
    assert_eq!(strict.json()["valid"], false);
    assert_eq!(strict.error_json()["code"], "invalidConfiguration");
}

#[test]
fn annotations_name_the_file_from_where_the_workflow_runs() {
    let home = home_with(&GOOD.replace("modelConfig", "modelCnfig"));
    let ran = home.gdn(&["validate", "--format", "github"]).exits(6);
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{ran:?}");
    assert_eq!(
        lines[0],
        "::error file=goondan.yaml,line=10,col=1,endColumn=5,title=E_CONFIG_MISSING_FIELD::`spec` \
         of Agent `helper` needs the field `modelConfig`"
    );
    assert!(lines[1].ends_with("%0Ahelp: did you mean `modelConfig`?"));

    let mut command = home.command(&["validate", "--format", "github", "project"]);
    command.current_dir(home.path());
    let ran = crate::home::GdnOutput::of(command.output().unwrap()).exits(6);
    assert!(ran.stdout.starts_with("::error file=project/goondan.yaml,"));
}

#[test]
fn fix_mends_shows_and_leaves_the_rest_alone() {
    let broken = GOOD
        .replace("modelConfig", "modelCnfig")
        .replace("{say: Hello}]}}", "{sya: Hello}]}} # why");
    let home = home_with(&broken);
    let file = home.project().join("goondan.yaml");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    home.gdn(&["validate"])
        .exits(6)
        .tells(&["`gdn validate --fix`"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), broken);

    let ran = home.gdn(&["validate", "--fix"]).exits(0);
    let mended = broken
        .replace("modelCnfig", "modelConfig")
        .replace("sya", "say");
    assert_eq!(fs::read_to_string(&file).unwrap(), mended);
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o640
    );
    for line in [
        "fixed goondan.yaml:10: unknown field `modelCnfig`",
        "  - spec: {modelCnfig: {modelRef: Model/main}}\n",
        "  + spec: {modelConfig: {modelRef: Model/main}}\n",
        "Configuration  valid\n",
    ] {
        assert!(ran.stdout.contains(line), "no {line:?} in {ran:#?}");
    }
    let names: Vec<_> = fs::read_dir(home.project())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["goondan.yaml"], "something was left behind");

    fs::write(&file, &broken).unwrap();
    let json = home.gdn(&["validate", "--fix", "--json"]).exits(0).json();
    assert_eq!(json["fixed"][1]["line"], 10);
    assert_eq!(
        json["fixed"][1]["after"],
        "spec: {modelConfig: {modelRef: Model/main}}"
    );
    let again = home.gdn(&["validate", "--fix", "--json"]).exits(0).json();
    assert_eq!(again["fixed"], json!([]));
}

#[test]
fn fix_follows_a_link_instead_of_replacing_it() {
    let home = home_with(GOOD);
    let file = home.project().join("goondan.yaml");
    fs::create_dir(home.project().join("real")).unwrap();
    let real = home.project().join("real/goondan.yaml");
    fs::write(&real, GOOD.replace("modelConfig", "modelCnfig")).unwrap();
    fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("real/goondan.yaml", &file).unwrap();
    home.gdn(&["validate", "--fix"]).exits(0);
    assert!(file.symlink_metadata().unwrap().is_symlink());
    assert_eq!(fs::read_to_string(&real).unwrap(), GOOD);
}

#[test]
fn the_schema_is_printed_for_all_kinds_or_one() {
    let home = Home::new();
    let all: Value = home.gdn(&["schema"]).exits(0).json();
    assert_eq!(all["$schema"], "http://json-schema.org/draft-07/schema#");
    let agent = home.gdn(&["schema", "agent"]).exits(0).json();
    assert_eq!(agent["title"], "goondan Agent");
    assert_eq!(
        home.gdn(&["schema", "Agent", "--json"]).exits(0).json(),
        agent
    );
    home.gdn(&["schema", "Secret"]).exits(5).tells(&[
        "unknown kind `Secret`",
        "Connection, OAuthApp, ShortForm, Script",
    ]);
}

#[test]
fn config_show_lists_each_value_with_its_source() {
    let hook = "apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: hook}
spec:
  connectorRef: {kind: Connector, name: webhook, package: '@goondan/base'}
  secrets: {hmac: {valueFrom: {env: HMAC}}}
";
    let home = home_with(&format!("{GOOD}---\n{hook}"));
    fs::write(home.project().join(".env.local"), "\nHMAC=s3cret\n").unwrap();
    let ran = home.gdn(&["config", "show"]).exits(0);
    assert!(!ran.stdout.contains("s3cret"), "{ran:?}");
    let rows: Vec<Vec<&str>> = ran
        .stdout
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    for row in [
        vec![
            "Agent/helper",
            "modelConfig.modelRef",
            "Model/main",
            "goondan.yaml:10",
        ],
        vec!["runtime.kind", "llm", "default"],
        vec!["secrets.hmac", "••••••", "$HMAC", "(.env.local:2)"],
        vec!["policy.lifecycle.idleSeconds", "600", "default"],
    ] {
        assert!(rows.contains(&row), "no {row:?} in {ran:#?}");
    }
    let json = home.gdn(&["config", "show", "--json"]).exits(0).json();
    assert_eq!(json["schema"], "gdn.config.show/v1");
    assert!(!json.to_string().contains("s3cret"));
    let settings = json["settings"].as_array().unwrap();
    let secret = settings
        .iter()
        .find(|setting| setting["path"] == "secrets.hmac")
        .unwrap();
    assert_eq!(
        *secret,
        json!({
            "resource": "Connection/hook", "path": "secrets.hmac", "value": null, "meaning": null,
            "masked": true,
            "origin": {"kind": "environment", "variable": "HMAC", "file": ".env.local", "line": 2},
        })
    );
    fs::write(home.project().join("goondan.yaml"), "kind: [").unwrap();
    home.gdn(&["config", "show"])
        .exits(6)
        .tells(&["`gdn validate`"]);
}

#[test]
fn config_expand_prints_the_resources_of_the_short_form() {
    let short = "apiVersion: goondan.ai/v1
models: {main: {provider: scripted, options: {rules: [{say: Hello}]}}}
agents: {helper: {model: main, tools: [{bash: ask}]}}
";
    let home = home_with(short);
    let ran = home.gdn(&["config", "expand"]).exits(0);
    let expanded = ran.stdout.clone();
    assert!(expanded.contains("kind: Agent"), "{ran:?}");
    assert!(expanded.contains("modelRef: Model/main"), "{ran:?}");
    let json = home.gdn(&["config", "expand", "--json"]).exits(0).json();
    assert_eq!(json["schema"], "gdn.config.expand/v1");
    assert_eq!(json["resources"][1]["spec"]["tools"][0]["approve"], "ask");
    let shown = home.gdn(&["config", "show", "--json"]).exits(0).json();
    let expanded = home_with(&expanded);
    let again = expanded.gdn(&["config", "show", "--json"]).exits(0).json();
    let values = |shown: &Value| -> Vec<Value> {
        let settings = shown["settings"].as_array().unwrap().iter();
        settings
            .map(|it| json!([it["resource"], it["path"], it["value"]]))
            .collect()
    };
    assert_eq!(values(&again), values(&shown));

    let broken = home_with("apiVersion: goondan.ai/v1\nagentz: {}\nagents: {}\n");
    broken
        .gdn(&["config", "expand"])
        .exits(6)
        .tells(&["1 error", "gdn validate"]);
}
