//! Files that are read or refused; nothing is ever written (`ROOT-2`, `ROOT-5`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use goondan_config::limits::{MAX_PROMPT_BYTES, MAX_RESOURCE_FILES, MAX_YAML_BYTES};

use crate::support::{Project, SMALLEST};

fn with_prompt(path: &str) -> String {
    SMALLEST.replace(
        "Model/main}",
        &format!("Model/main}}, prompt: {{systemRef: \"{path}\"}}"),
    )
}

fn with_script(path: &str) -> String {
    SMALLEST.replace("rules: [{say: Hello}]", &format!("script: \"{path}\""))
}

#[test]
fn missing_project_file_is_reported_with_a_fix() {
    assert_eq!(
        Project::empty().refused().to_string(),
        "error[E_CONFIG_MISSING_FILE]: file `goondan.yaml` does not exist in the Project Root
 --> \
         goondan.yaml:1:1
  = help: create a project with `gdn init`"
    );
    let misnamed = Project::empty().file("goondan.yml", SMALLEST).refused();
    assert_eq!(
        misnamed.as_slice()[0].suggestion.as_deref(),
        Some("rename `goondan.yml` to `goondan.yaml`")
    );
}

#[test]
fn deleted_resource_file_is_reported_as_missing() {
    let problems = Project::new(SMALLEST)
        .link("resources/a.yaml", "gone.yaml")
        .refused();
    assert_eq!(
        problems.to_string(),
        "error[E_CONFIG_MISSING_FILE]: file `resources/a.yaml` does not exist in the Project Root
 \
         --> resources/a.yaml:1:1
  = help: create the file or correct its path"
    );
}

#[test]
fn a_project_root_that_is_no_directory_is_an_error() {
    let project = Project::new(SMALLEST);
    for root in [
        project.root().join("nowhere"),
        project.root().join("goondan.yaml"),
    ] {
        let problems = goondan_config::load(&root, &project).unwrap_err();
        assert_eq!(
            problems.as_slice()[0].code,
            "E_CONFIG_MISSING_FILE",
            "{problems}"
        );
    }
}

#[test]
fn paths_outside_the_project_are_refused_at_their_position() {
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret.md");
    std::os::unix::fs::symlink("/dev/null", &secret).unwrap();
    let absolute = secret.display().to_string();
    for path in [
        "../secret.md",
        "prompts/../../secret.md",
        &absolute,
        "",
        "a/../p.md",
    ] {
        for text in [with_prompt(path), with_script(path)] {
            let problems = Project::new(&text).file("p.md", "x").refused();
            let [problem] = problems.as_slice() else {
                panic!("{problems}")
            };
            assert_eq!(problem.code, "E_CONFIG_PATH_OUTSIDE", "{problems}");
            let line = problem.source_line.as_deref().unwrap();
            assert!(line.contains(path), "{problems}");
        }
    }
}

#[test]
fn links_are_followed_inside_the_project_only() {
    let outside = Project::new("rules: [{say: from outside}]").file("p.md", "from outside");
    let inside = Project::new(&with_prompt("prompts/link.md"))
        .file("prompts/real.md", "inside")
        .link("prompts/link.md", "real.md");
    let prompt = inside
        .load()
        .agents
        .into_values()
        .next()
        .unwrap()
        .system_prompt;
    assert_eq!(prompt.as_deref(), Some("inside"));

    for project in [
        Project::new(&with_prompt("link.md")).link("link.md", outside.root().join("p.md")),
        Project::new(&with_prompt("dir/p.md")).link("dir", outside.root()),
        Project::new(&with_script("s.yaml")).link("s.yaml", outside.root().join("goondan.yaml")),
        Project::new(SMALLEST).link("resources/x.yaml", outside.root().join("goondan.yaml")),
        Project::new(SMALLEST).link("resources", outside.root()),
        Project::empty().link("goondan.yaml", outside.root().join("goondan.yaml")),
    ] {
        let problems = project.refused();
        assert_eq!(
            problems.as_slice()[0].code,
            "E_CONFIG_PATH_OUTSIDE",
            "{problems}"
        );
        assert!(!problems.to_string().contains("from outside"), "{problems}");
    }
}

#[test]
fn unreadable_or_non_text_files_are_rejected() {
    let codes = |project: Project| -> Vec<&str> {
        let problems = project.refused();
        problems
            .as_slice()
            .iter()
            .map(|problem| problem.code)
            .collect()
    };
    let prompt = || Project::new(&with_prompt("p.md"));
    assert_eq!(codes(prompt()), ["E_CONFIG_MISSING_FILE"]);
    assert_eq!(
        codes(prompt().file("p.md/inner", "")),
        ["E_CONFIG_UNREADABLE_FILE"]
    );
    assert_eq!(
        codes(prompt().file("p.md", [0xff, 0xfe])),
        ["E_CONFIG_UNREADABLE_FILE"]
    );
    assert_eq!(
        codes(prompt().file("p.md", vec![b'x'; MAX_PROMPT_BYTES + 1])),
        ["E_CONFIG_TOO_LARGE"]
    );
    assert_eq!(
        codes(Project::new(&format!("# {}", "x".repeat(MAX_YAML_BYTES)))),
        ["E_CONFIG_TOO_LARGE"]
    );
    let most = prompt().file("p.md", vec![b'x'; MAX_PROMPT_BYTES]);
    assert!(most.try_load().is_ok(), "the limit itself is allowed");
}

#[test]
fn a_named_pipe_does_not_make_loading_wait() {
    let project = Project::new(&with_prompt("pipe"));
    let made = std::process::Command::new("mkfifo")
        .arg(project.root().join("pipe"))
        .status()
        .unwrap();
    assert!(made.success());
    assert_eq!(
        project.refused().as_slice()[0].code,
        "E_CONFIG_UNREADABLE_FILE"
    );
}

#[test]
fn too_many_resource_files_are_refused() {
    let many = (0..=MAX_RESOURCE_FILES).fold(Project::new(SMALLEST), |project, number| {
        project.file(&format!("resources/{number}.yaml"), "")
    });
    let problems = many.refused();
    assert_eq!(
        problems.as_slice()[0].code,
        "E_CONFIG_TOO_LARGE",
        "{problems}"
    );
    assert_eq!(problems.as_slice().len(), 1, "{problems}");
}

#[test]
fn line_ends_of_every_system_are_read_and_counted_alike() {
    let broken = SMALLEST.replace("modelConfig:", "modelCnfig:");
    let problems = Project::new(&broken).problems();
    for line_end in ["\r\n", "\r"] {
        let text = SMALLEST.replace('\n', line_end);
        assert_eq!(Project::new(&text).load(), Project::new(SMALLEST).load());
        let broken = Project::new(&broken.replace('\n', line_end));
        assert_eq!(broken.problems(), problems);
        assert!(
            broken
                .refused()
                .to_string()
                .contains("\n9 | spec: {modelCnfig")
        );
    }
    let with_mark = Project::new(&format!("\u{feff}{broken}"));
    assert_eq!(with_mark.problems(), problems);
}

#[test]
fn loading_writes_nothing() {
    let project = Project::new(&with_prompt("p.md"))
        .file("p.md", "x")
        .file("resources/a.yaml", "");
    let before = listing(&project.root());
    project.load();
    assert_eq!(listing(&project.root()), before);
}

fn listing(directory: &Path) -> BTreeMap<PathBuf, (u64, std::time::SystemTime)> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let metadata = entry.metadata().unwrap();
        found.insert(entry.path(), (metadata.len(), metadata.modified().unwrap()));
        if metadata.is_dir() {
            found.extend(listing(&entry.path()));
        }
    }
    found
}

#[test]
fn directories_are_read_in_an_order_that_is_always_the_same() {
    let (model, agent) = SMALLEST.split_once("---\n").unwrap();
    let project = Project::new("")
        .file("resources/b/agents/helper.yaml", agent)
        .file("resources/a.yaml", model)
        .file("resources/b/.hidden/x.yaml", "not: [valid")
        .file("resources/b/notes.md", "no YAML: [");
    assert_eq!(project.load(), Project::new(SMALLEST).load());
    let twice = project
        .file("resources/a/z.yaml", model)
        .file("resources/b/a.yaml", model);
    assert_eq!(
        twice.problems(),
        [
            "E_CONFIG_DUPLICATE_RESOURCE 3:18 Model `main` is defined twice; first at \
             resources/a/z.yaml:3:18",
            "E_CONFIG_DUPLICATE_RESOURCE 3:18 Model `main` is defined twice; first at \
             resources/a/z.yaml:3:18",
        ]
    );
    let deep = Project::new(SMALLEST).file("resources/2/3/4/5/6/7/8/x.yaml", "");
    deep.load();
    let too_deep = deep.file("resources/2/3/4/5/6/7/8/9/x.yaml", "");
    assert_eq!(too_deep.refused().as_slice()[0].code, "E_CONFIG_TOO_LARGE");
    let circle = Project::new(SMALLEST).link("resources/again", ".");
    assert_eq!(circle.refused().as_slice()[0].code, "E_CONFIG_TOO_LARGE");
}

#[test]
fn version_control_is_neither_read_nor_touched() {
    let project = Project::new(SMALLEST)
        .file(".git/HEAD", "ref: refs/heads/main\n")
        .file(".git/config.yaml", "not: [valid")
        .file("resources/.git/x.yaml", "not: [valid");
    let before = listing(&project.root());
    project.load();
    assert_eq!(listing(&project.root()), before);
}
