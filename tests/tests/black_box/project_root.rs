//! Nothing at run time writes to the Project Root (`ROOT-2`), and nothing outside it is loaded
//! (`ROOT-5`).

use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;

use goondan_tests::binaries::bin;
use goondan_tests::home::{ORCHESTRATOR, RunningProgram};
use goondan_tests::projects::LAB;
use goondan_tests::{Daemon, Home, tree, wait_until};

#[test]
fn root_2_project_root_is_never_changed_at_run_time() {
    let home = Home::without_project();
    // The example, as a writable project.
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/bookshop");
    for file in [
        "goondan.yaml",
        "prompts/clerk.md",
        "scripts/clerk.yaml",
        "data/orders.csv",
    ] {
        let text = std::fs::read_to_string(example.join(file)).unwrap();
        home.write(&format!("project/{file}"), &text);
    }
    // Version control files there are not changed either (`ROOT-6`).
    home.write("project/.git/HEAD", "ref: refs/heads/main\n");
    home.write("project/.git/config.yaml", "not: [valid");
    // A command of an agent tries to write there.
    let script = home.project().join("scripts/clerk.yaml");
    let rules = std::fs::read_to_string(&script).unwrap();
    let write = r#"rules:
  - when: { user: '^write to the project$', step: 1 }
    call:
      - tool: bash__exec
        args: { command: 'for file in new data/orders.csv .git/HEAD; do echo x >> "$GOONDAN_PROJECT_ROOT/$file" && echo written; done; echo tried' }
  - when: { user: '^write to the project$', tool: bash__exec, result: '(?s)(?<said>.*)' }
    say: "${said}"
"#;
    home.write(
        "project/scripts/clerk.yaml",
        &rules.replacen("rules:\n", write, 1),
    );
    let before = tree::snapshot(&home.project(), |_| true);
    let daemon = Daemon::serving(&home);
    let reply = home.ask("other", "write to the project");
    assert!(
        reply.contains("tried") && !reply.contains("written"),
        "{reply}"
    );
    let question = "How many copies of Dune were sold, and what did they earn?";
    assert!(home.ask("main", question).starts_with("25 copies"));
    assert_eq!(
        home.ask("main", "remember my name is Ada"),
        "I shall remember you, Ada."
    );
    home.gdn(&["send", "--no-wait", "take stock slowly for 1 s"])
        .exits(0);
    wait_until("the tool runs", || !home.running("sleep").is_empty());
    drop(daemon.kill());
    let daemon = Daemon::start(&home);
    wait_until("the turn finishes", || home.history("main").len() == 18);
    home.gdn(&["restart"]).exits(0);
    assert_private(&home);
    home.gdn(&["instance", "delete", "main", "--yes"]).exits(0);
    home.gdn(&["stop"]).exits(0);
    drop(daemon.stop());
    assert_eq!(tree::snapshot(&home.project(), |_| true), before);
}

/// Nothing in the state root is accessible to others, except files that tools created in their work
/// directories (`ROOT-8`).
fn assert_private(home: &Home) {
    let mut waiting = vec![home.state_root()];
    let mut seen = 0;
    while let Some(path) = waiting.pop() {
        let metadata = std::fs::symlink_metadata(&path).unwrap();
        assert_eq!(metadata.mode() & 0o077, 0, "{}", path.display());
        seen += 1;
        if metadata.is_dir() && !path.ends_with("work") {
            let entries = std::fs::read_dir(&path).unwrap();
            waiting.extend(entries.map(|entry| entry.unwrap().path()));
        }
    }
    assert!(seen > 20, "{seen} files");
}

#[test]
fn root_5_paths_outside_the_project_are_rejected_on_load() {
    let home = Home::new(LAB);
    let _daemon = Daemon::start(&home);
    home.write("outside.yaml", "rules:\n  - say: from outside\n");
    symlink(
        home.path().join("outside.yaml"),
        home.project().join("link.yaml"),
    )
    .unwrap();
    let outside = home.path().join("outside.yaml");
    let start = LAB.find("    rules:").unwrap();
    let end = LAB
        .find("---\napiVersion: goondan.ai/v1\nkind: Agent")
        .unwrap();
    let (head, tail) = (LAB.get(..start).unwrap(), LAB.get(end..).unwrap());
    for path in ["../outside.yaml", "link.yaml", outside.to_str().unwrap()] {
        let text = format!("{head}    script: {path}\n{tail}");
        home.write("project/goondan.yaml", &text);
        home.gdn(&["run"])
            .exits(6)
            .tells(&["E_CONFIG_PATH_OUTSIDE"]);
    }
    assert_eq!(
        home.gdn_json(&["workspace", "list"])["workspaces"],
        serde_json::json!([])
    );
}

#[test]
fn root_1_daemon_creates_no_state_root_inside_its_project() {
    let home = Home::new(LAB);
    let (project, inside) = (home.project(), home.project().join("state"));
    let before = tree::snapshot(&project, |_| true);
    let arguments = [
        "--state-root",
        inside.to_str().unwrap(),
        "--open",
        project.to_str().unwrap(),
    ];
    let refused = RunningProgram::start(home.command(&bin(ORCHESTRATOR), &arguments)).wait();
    refused
        .exits(6)
        .tells(&["must not contain one another", "--state-root"]);
    assert_eq!(tree::snapshot(&project, |_| true), before);
}

#[test]
fn box_3_tools_start_in_conversation_or_project_directory() {
    let with = |runtime: &str| {
        let where_am_i = "      - when: {user: '^where$', step: 1}
        call:
          - tool: bash__exec
            args: {command: 'echo \"[$PWD] [$GOONDAN_WORK_DIR]\"'}
      - when: {user: '^where$'}
        say: \"${result}\"
";
        let lab = LAB.replacen("    rules:\n", &format!("    rules:\n{where_am_i}"), 1);
        lab.replacen("  tools:", &format!("{runtime}  tools:"), 1)
    };
    let home = Home::new(&with(""));
    let _daemon = Daemon::serving(&home);
    let told = home.ask("main", "where");
    let work_dir = home.work_dir("main");
    let work_dir = work_dir.to_str().unwrap();
    assert!(
        told.contains(&format!("[{work_dir}] [{work_dir}]")),
        "{told}"
    );

    let others = || tree::snapshot(&home.project(), |path| !path.ends_with("goondan.yaml"));
    let before = others();
    for (mode, directory) in [
        ("workspace", home.project().to_str().unwrap()),
        ("agentHome", work_dir),
    ] {
        let runtime = format!("  runtime: {{cwdMode: {mode}}}\n");
        home.write("project/goondan.yaml", &home.filled_in(&with(&runtime)));
        home.gdn(&["reload"]).exits(0);
        let reply = home.ask("main", "where");
        assert!(
            reply.contains(&format!("[{directory}] [{work_dir}]")),
            "{reply}"
        );
    }
    assert_eq!(others(), before);
}
