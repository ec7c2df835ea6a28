//! `gdn validate --fix` fixes the expected problems and changes nothing else.

use goondan_config::{FixedFile, autofix};

use crate::support::{Project, SMALLEST};

#[track_caller]
fn fixed(project: &Project) -> Vec<FixedFile> {
    autofix(&project.root(), project).unwrap()
}

/// Fixes a project with one file, which must be valid afterwards; returns its text.
#[track_caller]
fn only_file(before: &str) -> String {
    let files = fixed(&Project::new(before));
    let [file] = files.as_slice() else {
        panic!("{files:#?}")
    };
    assert_eq!(file.before, before);
    Project::new(&file.after).load();
    file.after.clone()
}

#[test]
fn misspelt_names_are_mended_and_every_other_byte_stays() {
    let before = "\u{feff}# A comment, 가나다\r\n\
        apiVersion:   goondan.ai/v2 # wrong\r\n\
        kind: Modle\r\n\
        metadata: { 'name': main }\r\n\
        spec: {provider: scriptd, 'optoins': {rules: [{sya: \"Hello\",\tdelayMs: 1}]}}\r\n\
        ---\r\n\
        apiVersion: goondan.ai/v1\r\n\
        kind: Agent\r\n\
        metadata: {name: helper}\r\n\
        spec:\r\n  # keep me\r\n  modelCnfig: {\"modelref\": Model/main}\r\n";
    let after = before
        .replace("/v2 ", "/v1 ")
        .replace("Modle", "Model")
        .replace("scriptd", "scripted")
        .replace("optoins", "options")
        .replace("sya", "say")
        .replace("modelCnfig", "modelConfig")
        .replace("modelref", "modelRef");
    assert_eq!(only_file(before), after);
}

#[test]
fn a_value_that_lacks_quotes_gets_them() {
    let before = SMALLEST
        .replace("name: helper", "name: 2026")
        .replace("say: Hello", "say: 1.50");
    assert_eq!(
        only_file(&before),
        before
            .replace("name: 2026", "name: \"2026\"")
            .replace("say: 1.50", "say: \"1.50\"")
    );
}

#[test]
fn each_fix_is_reported() {
    let project = Project::new(&SMALLEST.replace("modelConfig", "modelCnfig"));
    let files = fixed(&project);
    let [change] = files[0].changes.as_slice() else {
        panic!("{files:#?}")
    };
    assert_eq!(
        (
            change.problem.code,
            change.problem.line,
            change.replacement.as_str()
        ),
        ("E_CONFIG_UNKNOWN_FIELD", 9, "modelConfig")
    );
    assert_eq!(
        change.line_after.as_deref(),
        Some("spec: {modelConfig: {modelRef: Model/main}}")
    );
    // Nothing has been written.
    assert_eq!(fixed(&project), files);
}

#[test]
fn files_named_by_others_are_mended_too() {
    let project = Project::new(&SMALLEST.replace("rules: [{say: Hello}]", "script: s.yaml"))
        .file("s.yaml", "rules:\n  - whne: {user: a}\n    say: b\n");
    let files = fixed(&project);
    assert_eq!(files[0].path.to_str(), Some("s.yaml"));
    assert!(files[0].after.contains("- when: {user: a}"));
}

#[test]
fn fixes_that_need_judgment_are_left_to_people() {
    for text in [
        // The field is there already.
        SMALLEST.replace("{name: helper}", "{name: helper, nmae: again}"),
        // A reference is not fixed, because its target is a person's decision.
        SMALLEST.replace("Model/main", "Model/mian"),
        SMALLEST.replace("Hello", "[1]"),
        SMALLEST.replace("}]}}", "}]"),
        SMALLEST.replace("modelConfig", "somethingElse"),
    ] {
        assert_eq!(fixed(&Project::new(&text)), [], "{text}");
    }
}

#[test]
fn values_repeated_by_an_alias_are_not_fixed() {
    // Inside the settings of a tool, all values are accepted.
    let text = format!(
        "{SMALLEST}---\napiVersion: goondan.ai/v1\nkind: Tool\nmetadata: &m {{nmae: x}}\n\
         spec: {{builtin: bash, config: *m}}\n"
    );
    assert_eq!(fixed(&Project::new(&text)), []);
    let alone = text.replace("*m", "{}");
    assert_eq!(fixed(&Project::new(&alone))[0].changes.len(), 1);
}

#[test]
fn fixed_line_that_may_hold_a_secret_is_not_shown() {
    let text = "apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: hook}
spec:
  connectorRef: {kind: Connector, name: webhook, package: '@goondan/base'}
  secrets: {hmac: {vlaue: open-sesame}}
";
    let files = fixed(&Project::with(text));
    assert!(files[0].after.contains("{value: open-sesame}"));
    assert!(
        !format!("{:?}", files[0].changes).contains("open-sesame"),
        "{:?}",
        files[0].changes
    );
}

#[test]
fn a_good_project_is_left_alone() {
    assert_eq!(fixed(&Project::new(SMALLEST)), []);
}
