//! Values from the environment: which place wins, and that none is shown (`SEC-2`).

use goondan_config::{Bundle, Origin, SettingValue, effective};
use serde_json::json;

use crate::support::{Project, SMALLEST};

const HOOK: &str = "apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: hook}
spec:
  connectorRef: Connector/http
  config: {a: 1, list: [{valueFrom: {env: PATH_OF_HOOK}}]}
  secrets:
    hmac: {valueFrom: {env: HMAC}}
    token: {value: written-out}
";

fn secret(bundle: &Bundle) -> &str {
    &bundle.connections[&"hook".parse().unwrap()].secrets["hmac"]
}

fn project() -> Project {
    Project::with(HOOK)
        .own_connector()
        .variable("PATH_OF_HOOK", "/from-env")
}

#[test]
fn the_process_wins_over_the_local_file_and_that_over_the_shared_one() {
    let shared = project().file(".env", "HMAC=shared\n");
    assert_eq!(secret(&shared.load()), "shared");
    let local = shared.file(".env.local", "export HMAC='local'\n");
    assert_eq!(secret(&local.load()), "local");
    let process = local.variable("HMAC", "process");
    assert_eq!(secret(&process.load()), "process");
}

#[test]
fn a_value_from_a_file_counts_for_the_digest() {
    let digest = |text: &str| project().file(".env", text).load().digest;
    assert_eq!(digest("HMAC=a"), digest("# again\nHMAC='a'\nOTHER=b"));
    assert_ne!(digest("HMAC=a"), digest("HMAC=b"));
}

#[test]
fn what_is_wrong_with_a_file_is_told_without_its_lines() {
    let broken = project().file(".env", "HMAC='hunter2\nhunter2 = x\n");
    let problems = broken.refused();
    assert!(!format!("{problems:?}").contains("hunter2"), "{problems:?}");
    assert_eq!(
        broken.problems(),
        [
            "E_CONFIG_ENVIRONMENT_FILE 1:1 a quote that nothing ends",
            "E_CONFIG_MISSING_ENVIRONMENT 18:29 the environment variable `HMAC` is not set",
        ]
    );
    let outside = tempfile::NamedTempFile::new().unwrap();
    let link = project().link(".env", outside.path());
    assert!(link.problems()[0].starts_with("E_CONFIG_PATH_OUTSIDE 1:1"));
    // The directory of another tool.
    let directory = project().file(".env/bin", "").variable("HMAC", "x");
    assert_eq!(secret(&directory.load()), "x");
}

#[test]
fn there_is_no_secret_store_yet() {
    let of_store = "{valueFrom: {secretRef: {ref: Secret/hook, key: hmac}}}";
    let text = HOOK.replace("{valueFrom: {env: HMAC}}", of_store);
    let project = Project::with(&text)
        .own_connector()
        .variable("PATH_OF_HOOK", "");
    assert_eq!(
        project.problems(),
        [
            "E_CONFIG_UNSUPPORTED 18:41 `Secret/hook` cannot be read: this version has no secret \
             store yet"
        ]
    );
    let wrong = Project::with(&text.replace("Secret/hook", "hook"))
        .own_connector()
        .variable("PATH_OF_HOOK", "");
    assert!(wrong.problems()[0].contains("referred to as `Secret/name`"));
    let both = text.replace("{secretRef", "{env: X, secretRef");
    let problems = Project::with(&both)
        .own_connector()
        .variable("PATH_OF_HOOK", "")
        .problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(
        problems[0].contains("has both `env` and `secretRef`"),
        "{problems:?}"
    );
}

#[test]
fn every_value_is_shown_with_its_origin_but_no_secret() {
    let project = project()
        .file(".env", "OTHER=1\nHMAC=s3cret\n")
        .file("resources/more/second.yaml", SECOND);
    let settings = effective(&project.root(), &project).unwrap();
    let shown = format!("{settings:?}");
    for secret in ["s3cret", "written-out", "/from-env"] {
        assert!(!shown.contains(secret), "{shown}");
    }
    let find = |resource: &str, path: &str| {
        let found = settings
            .iter()
            .find(|setting| setting.resource == resource && setting.path == path);
        let found = found.unwrap_or_else(|| panic!("no {resource} {path} in {settings:#?}"));
        (found.value.clone(), found.origin.clone())
    };
    let at = |file: &str, line, column| Origin::File {
        file: file.into(),
        line,
        column,
    };
    let from = |variable: &str, file: Option<(&str, usize)>| Origin::Environment {
        variable: variable.into(),
        file: file.map(|(file, line)| (file.into(), line)),
    };
    let plain = SettingValue::Plain;
    assert_eq!(
        find("Connection/hook", "config.a"),
        (plain(json!(1)), at("goondan.yaml", 16, 15))
    );
    assert_eq!(
        find("Connection/hook", "config.list[0]"),
        (SettingValue::Masked, from("PATH_OF_HOOK", None))
    );
    assert_eq!(
        find("Connection/hook", "secrets.hmac"),
        (SettingValue::Masked, from("HMAC", Some((".env", 2))))
    );
    assert_eq!(
        find("Connection/hook", "secrets.token").0,
        SettingValue::Masked
    );
    assert_eq!(
        find("Swarm/team", "policy.lifecycle.idleSeconds"),
        (plain(json!(600)), Origin::Default)
    );
    assert_eq!(
        find("Swarm/team", "policy.maxStepsPerTurn"),
        (plain(json!(5)), at("resources/more/second.yaml", 6, 29))
    );
    assert_eq!(
        find("Swarm/team", "agents"),
        (
            SettingValue::Meaning("every Agent of the project"),
            Origin::Default
        )
    );
    assert_eq!(
        find("Agent/helper", "runtime.kind"),
        (plain(json!("llm")), Origin::Default)
    );
    assert_eq!(
        find("Model/main", "options.rules[0].say"),
        (plain(json!("Hello")), at("goondan.yaml", 4, 52))
    );
}

const SECOND: &str = "apiVersion: goondan.ai/v1
kind: Swarm
metadata: {name: team}
spec:
  entryAgent: Agent/helper
  policy: {maxStepsPerTurn: 5}
";

#[test]
fn a_project_without_a_swarm_shows_the_policy_it_gets() {
    let project = Project::new(SMALLEST);
    let settings = effective(&project.root(), &project).unwrap();
    let policy: Vec<_> = settings
        .iter()
        .filter(|setting| setting.resource == "Swarm")
        .map(|setting| setting.path.as_str())
        .collect();
    assert_eq!(
        policy,
        [
            "policy.maxStepsPerTurn",
            "policy.loopBreaker.sameCallsMax",
            "policy.loopBreaker.noProgressStepsMax",
            "policy.lifecycle.ttlSeconds",
            "policy.lifecycle.gcGraceSeconds",
            "policy.lifecycle.idleSeconds",
            "policy.shutdown.gracePeriodSeconds",
        ]
    );
    let broken = Project::new("kind: [");
    assert!(effective(&broken.root(), &broken).is_err());
}
