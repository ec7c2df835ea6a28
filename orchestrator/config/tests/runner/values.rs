//! Values from the environment: which place wins, and that none is shown (`SEC-2`).

use goondan_config::{Origin, ProjectConfig, SettingValue, effective};
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

fn secret(bundle: &ProjectConfig) -> &str {
    &bundle.connections[&"hook".parse().unwrap()].secrets["hmac"]
}

fn project() -> Project {
    Project::with(HOOK)
        .own_connector()
        .variable("PATH_OF_HOOK", "/from-env")
}

#[test]
fn process_variable_overrides_local_file_which_overrides_shared() {
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
fn file_problems_are_reported_without_file_content() {
    let broken = project().file(".env", "HMAC='hunter2\nhunter2 = x\n");
    let problems = broken.refused();
    assert!(!format!("{problems:?}").contains("hunter2"), "{problems:?}");
    assert_eq!(
        broken.problems(),
        [
            "E_CONFIG_ENVIRONMENT_FILE 1:1 a quote is not closed",
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

fn of_store(reference: &str, key: &str) -> Project {
    let of_store = format!("{{valueFrom: {{secretRef: {{ref: {reference}, key: {key}}}}}}}");
    Project::with(&HOOK.replace("{valueFrom: {env: HMAC}}", &of_store))
        .own_connector()
        .variable("PATH_OF_HOOK", "")
        .secret("hook", "hmac", "from-the-store")
        .secret("hook", "other", "another-value")
}

#[test]
fn sec_1_value_is_read_from_the_secret_store() {
    let project = of_store("Secret/hook", "hmac");
    assert_eq!(secret(&project.load()), "from-the-store");
    let loaded = project.loader().load(&project.root());
    assert!(
        loaded
            .secrets
            .values()
            .any(|value| value == "from-the-store")
    );
    assert!(
        !loaded
            .secrets
            .values()
            .any(|value| value == "another-value")
    );
    assert!(loaded.sources.secrets().contains("hook"));
    let changed = of_store("Secret/hook", "hmac").secret("hook", "hmac", "changed");
    assert_ne!(changed.load().digest, project.load().digest);

    let settings = project.loader().effective(&project.root()).unwrap();
    let setting = settings
        .iter()
        .find(|setting| setting.path == "secrets.hmac");
    let setting = setting.unwrap();
    assert_eq!(setting.value, SettingValue::Masked);
    let (name, key) = ("hook".into(), "hmac".into());
    assert_eq!(setting.origin, Origin::Secret { name, key });
    assert!(!format!("{settings:?}").contains("from-the-store"));

    // Settings take values in the same way.
    let setting = HOOK.replace(
        "{env: PATH_OF_HOOK}",
        "{secretRef: {ref: Secret/hook, key: hmac}}",
    );
    let project = Project::with(&setting)
        .own_connector()
        .variable("HMAC", "x")
        .secret("hook", "hmac", "from-the-store");
    let bundle = project.load();
    let list = &bundle.connections[&"hook".parse().unwrap()].config["list"];
    assert_eq!(*list, json!(["from-the-store"]));
}

#[test]
fn missing_secret_is_reported_with_position_and_set_command() {
    let told = |reference: &str, key: &str| {
        let project = of_store(reference, key);
        let loaded = project.loader().load(&project.root());
        let name = reference.trim_start_matches("Secret/");
        assert!(reference == name || loaded.sources.secrets().contains(name));
        let problems = project.refused();
        let [problem] = problems.as_slice() else {
            panic!("{problems:?}");
        };
        let (line, column) = (problem.line, problem.column);
        let (code, message) = (problem.code, &problem.message);
        let help = problem.suggestion.clone().unwrap_or_default();
        assert!(!problems.to_string().contains("from-the-store"));
        format!("{code} {line}:{column} {message}: {help}")
    };
    assert_eq!(
        told("Secret/github", "token"),
        "E_CONFIG_MISSING_SECRET 18:41 secret `github` does not exist: set it: `gdn secret set \
         github token --for .`"
    );
    assert_eq!(
        told("Secret/hok", "hmac"),
        "E_CONFIG_MISSING_SECRET 18:41 secret `hok` does not exist: did you mean `hook`? Otherwise \
         set it: `gdn secret set hok hmac --for .`"
    );
    assert_eq!(
        told("Secret/hook", "hmacs"),
        "E_CONFIG_MISSING_SECRET 18:59 secret `hook` has no entry `hmacs`: did you mean `hmac`? \
         Otherwise set it: `gdn secret set hook hmacs --for .`"
    );
    assert_eq!(
        told("Secret/damaged", "k"),
        "E_CONFIG_UNREADABLE_SECRET 18:41 failed to use the secret in `damaged.sops.yaml`: put it \
         back from a backup"
    );
    assert!(told("hook", "hmac").contains("of the form `Secret/name`"));
    let both = HOOK.replace(
        "{env: HMAC}",
        "{env: X, secretRef: {ref: Secret/hook, key: hmac}}",
    );
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
fn sec_2_reference_line_is_shown_unless_it_may_hold_the_secret() {
    let shown = |reference: &str| {
        let model = format!(
            "apiVersion: goondan.ai/v1\nkind: Model\nmetadata: {{name: big}}\nspec:\n  provider: \
             anthropic\n  model: m\n  apiKey: {{valueFrom: {{secretRef: {reference}}}}}\n"
        );
        Project::with(&model).refused().to_string()
    };
    let good = shown("{ref: Secret/anthropic, key: apiKey}");
    assert!(
        good.contains("apiKey: {valueFrom: {secretRef: {ref: Secret/anthropic"),
        "{good}"
    );
    assert!(good.contains("^^^"), "{good}");
    // Also among the secrets of a connection, except on a line with another secret.
    let of_hook = of_store("Secret/github", "token").refused().to_string();
    assert!(
        of_hook.contains("hmac: {valueFrom: {secretRef: {ref: Secret/github"),
        "{of_hook}"
    );
    let beside = HOOK.replace(
        "    hmac: {valueFrom: {env: HMAC}}\n    token: {value: written-out}\n",
        "    {hmac: {valueFrom: {secretRef: {ref: Secret/github, key: k}}}, token: {value: hunter2}}\n",
    );
    let beside = Project::with(&beside)
        .own_connector()
        .variable("PATH_OF_HOOK", "")
        .refused()
        .to_string();
    assert!(
        beside.contains("secret `github` does not exist") && !beside.contains("hunter2"),
        "{beside}"
    );
    for wrong in [
        "{ref: hunter2, key: k}",
        "hunter2",
        "{ref: Secret/x, kee: hunter2}",
    ] {
        let text = shown(wrong);
        assert!(!text.contains("secretRef: "), "{wrong}: {text}");
    }
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
            "policy.observation.maxMiB",
            "policy.observation.maxDays",
            "policy.tasks.keepDays",
            "policy.tasks.drillHours",
            "policy.tasks.checkpointSeconds",
            "policy.approvals.timeoutSeconds",
            "policy.changesets",
            "policy.proposals.apply",
            "policy.sandbox.require",
            "policy.sandbox.network",
        ]
    );
    let broken = Project::new("kind: [");
    assert!(effective(&broken.root(), &broken).is_err());
}

#[test]
fn sec_2_key_in_place_of_its_mapping_is_not_shown() {
    let told = |line: &str| {
        let model = format!(
            "apiVersion: goondan.ai/v1\nkind: Model\nmetadata: {{name: big}}\nspec:\n  provider: \
             anthropic\n  model: m\n  {line}\n"
        );
        let problems = Project::with(&model).refused();
        for problem in problems.as_slice() {
            assert_eq!(
                problem.fix.as_deref().filter(|fix| fix.contains("hunter2")),
                None
            );
        }
        format!("{problems}{problems:?}")
    };
    for line in [
        "apiKey: sk-hunter2",
        "apiKey: {valu: sk-hunter2}",
        "apiKey: [sk-hunter2]",
        "apiKey: {valueFrom: {env: sk-hunter2}}",
        "api_key: sk-hunter2",
        "apiKeey: x\n  apiToken: sk-hunter2",
        "options: {authorization: sk-hunter2}",
        "apiKey: sk-hunter2: x",
        "apiKey: \"sk-hunter2",
    ] {
        let told = told(line);
        assert!(
            !told.contains("| ")
                || !told
                    .lines()
                    .any(|line| line.contains('|') && line.contains("hunter2")),
            "{told}"
        );
        assert!(
            !told.contains("apiKey: sk-hunter2")
                && !told.contains("source_line: Some(\"  apiKey: {valu:"),
            "{told}"
        );
    }
    // References to other sources are visible, with their problems.
    let seen = told("apiKey: {valueFrom: {env: NOT_THERE}}");
    assert!(
        seen.contains("apiKey: {valueFrom: {env: NOT_THERE}}"),
        "{seen}"
    );
}
