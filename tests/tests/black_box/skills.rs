//! Skills: folders and archives with a bare `SKILL.md` (`PKG-2`).

use std::fs;
use std::process::Command;

use goondan_tests::Home;

const PROJECT: &str = r#"apiVersion: goondan.ai/v1
kind: Package
metadata: {name: shop}
spec:
  version: 1.0.0
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: main}
spec:
  modelConfig: {modelRef: Model/scripted}
  tools:
    - {kind: Tool, name: file-system, package: "@goondan/base"}
    - {kind: Tool, name: bash, package: "@goondan/base"}
  extensions: []
---
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: scripted}
spec:
  provider: scripted
  options:
    rules:
      - when: {user: "^read (?P<path>.*)$", step: 1}
        call: [{tool: file-system__read, args: {path: "${path}"}}]
      - when: {user: "^write (?P<path>.*)$", step: 1}
        call: [{tool: file-system__write, args: {path: "${path}", content: "mine"}}]
      - when: {user: "^run (?P<command>.*)$", step: 1}
        call: [{tool: bash__exec, args: {command: "${command}"}}]
      - {when: {result: "(?P<said>(?s:.*))"}, say: "${said}"}
      - {say: "hello"}
"#;

const SKILL: &str = "---\nname: pdf-forms\ndescription: >-\n  Fills in forms. Use it\n  when somebody sends one.\nmetadata: {version: 1.2.0}\n---\n\
                     # How forms are filled in\n\nRun `scripts/fill.sh`.\n";

fn skill(home: &Home, folder: &str) {
    home.write(&format!("{folder}/SKILL.md"), SKILL);
    home.write_program(
        &format!("{folder}/scripts/fill.sh"),
        "#!/bin/sh\necho filled in; cat \"$HOME/../../secret\" 2>/dev/null\n",
    );
}

fn refer(home: &Home) {
    let yaml = fs::read_to_string(home.project().join("goondan.yaml")).unwrap();
    let refer = "extensions: [{kind: Extension, name: pdf-forms, package: pdf-forms}]";
    home.write(
        "project/goondan.yaml",
        &yaml.replace("extensions: []", refer),
    );
}

/// Description and path of the skill as the model receives them.
fn offered_skills(home: &Home) -> (String, String) {
    assert_eq!(home.ask("main", "good morning"), "hello");
    let history = home.history("main");
    let mut texts = history
        .iter()
        .filter_map(|it| it["data"]["content"].as_str());
    let told = texts
        .find(|it| it.contains("Before you use this skill"))
        .unwrap();
    let place = told.split('`').find(|it| it.ends_with("/SKILL.md"));
    (told.to_owned(), place.unwrap().to_owned())
}

#[test]
fn pkg_2_skill_is_a_package_that_the_model_reads_on_demand() {
    let home = Home::new(PROJECT);
    skill(&home, "pdf");
    let packed = Command::new("tar")
        .args(["-czf", "pdf.tgz", "pdf"])
        .current_dir(home.path())
        .status()
        .unwrap();
    assert!(packed.success());
    home.gdn(&["package", "add", "../pdf.tgz"])
        .exits(0)
        .prints(&["+ pdf-forms 1.2.0"]);
    refer(&home);
    home.gdn(&["validate"]).exits(0);
    home.gdn(&["run"]).exits(0);
    let (told, place) = offered_skills(&home);
    assert!(
        told.starts_with("Skill `pdf-forms`: Fills in forms. Use it when somebody sends one.\n"),
        "{told}"
    );
    let read = home.ask("main", &format!("read {place}"));
    assert!(read.contains("How forms are filled in"), "{read}");
    let folder = place.trim_end_matches("/SKILL.md");
    let ran = home.ask("main", &format!("run {folder}/scripts/fill.sh"));
    assert!(ran.contains("filled in"), "{ran}");
    let refused = home.ask("main", &format!("write {place}"));
    assert!(refused.contains("may only be read"), "{refused}");
    // The file tools can read nothing else in the store.
    let refused = home.ask("main", &format!("read {folder}/../../x"));
    assert!(refused.contains("E_PATH_OUTSIDE"), "{refused}");
}

#[test]
fn pkg_2_folder_is_a_skill_only_with_a_complete_description() {
    let home = Home::new(PROJECT);
    skill(&home, "pdf");
    home.gdn(&["package", "add", "../pdf"]).exits(0);
    refer(&home);
    home.gdn(&["validate"]).exits(0);
    home.write("pdf/SKILL.md", "---\nname: pdf-forms\n---\nText\n");
    home.gdn(&["validate"]).exits(6).tells(&[
        "`SKILL.md` does not begin with the `name` and the `description` of a skill",
        "write `---`, `name: …`, `description: …` and `---` above everything else",
    ]);
    fs::remove_file(home.path().join("pdf/SKILL.md")).unwrap();
    home.gdn(&["validate"]).exits(6);
}
