//! Projects of the formats that succeeded 0.0.3 elsewhere are one problem, not many (`COMPAT-1`).

use goondan_config::{Diagnostic, Loader};

use crate::support::Project;

/// The only problem of a project, which all commands report.
#[track_caller]
fn problem(project: &Project) -> Diagnostic {
    let found = project.refused();
    let [problem] = found.as_slice() else {
        panic!("{found}");
    };
    let migrated = Loader::new(project).migrate(&project.root());
    assert_eq!(migrated.unwrap_err(), found);
    problem.clone()
}

#[test]
fn compat_1_projects_of_the_library_are_one_problem() {
    let agents = "agents:\n  main:\n    model: large\n    systemMessage: {template: main.md}\n    tools: [search, {agent: \
                  helper}]\n  helper: {inherit: main}\n";
    for (text, fields) in [
        (agents.to_owned(), "begins with `agents`"),
        (
            format!("version: 1\n{agents}routes:\n  - {{from: main, to: helper, when: done}}\n"),
            "`agents`, `routes`",
        ),
        (format!("{agents}flow: {{in: main}}\n"), "`agents`, `flow`"),
        (
            "extends: base\nresources: [agents.yaml]\n".to_owned(),
            "begins with `resources`, `extends`",
        ),
    ] {
        let project = Project::new(&text).file("resources/agents.yaml", agents);
        let found = problem(&project);
        assert_eq!((found.code, found.line), ("E_CONFIG_UNKNOWN_KIND", 1));
        assert!(found.message.contains("the goondan library"), "{found}");
        assert!(found.message.contains(fields), "{found}");
        let help = found.suggestion.unwrap();
        assert!(
            help.contains("gdn config import") && help.contains("kind: Agent"),
            "{help}"
        );
    }
}

#[test]
fn compat_1_projects_of_the_typescript_harness_are_one_problem() {
    let module = "export default defineHarness({agents: {main: {}}});";
    let project = Project::empty().file("harness.config.ts", module);
    let found = problem(&project);
    assert_eq!(found.code, "E_CONFIG_MISSING_FILE");
    assert!(
        found.message.contains("OpenHarness (`harness.config.ts`)"),
        "{found}"
    );
    assert!(found.suggestion.unwrap().contains("gdn init"));

    let project = Project::empty().file("harness.yaml", "kind: Agent\n");
    let help = problem(&project).suggestion.unwrap();
    assert!(
        help.contains("copy `harness.yaml` to `goondan.yaml`"),
        "{help}"
    );

    // The project file takes precedence.
    let project = Project::new(crate::support::SMALLEST).file("harness.config.ts", module);
    project.load();
}

#[test]
fn compat_1_a_forgotten_frame_is_not_taken_for_the_library() {
    let found = Project::new("agents: {main: {model: m, prompt: Hi}}\n").refused();
    assert!(found.to_string().contains("no `apiVersion`"), "{found}");
}
