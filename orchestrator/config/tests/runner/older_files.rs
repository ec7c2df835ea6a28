//! Resource files that 0.0.3 recognized by name, anywhere in a project (`COMPAT-1`).

use std::path::Path;

use goondan_config::{Loader, is_resource_file};

use crate::support::Project;

const PACKAGE: &str = "\
apiVersion: goondan.ai/v1
kind: Package
metadata: {name: split}
spec: {dependencies: [{name: \"@goondan/base\", version: ^0.0.3}]}
";

const MODELS: &str = "\
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: main}
spec: {provider: scripted, options: {rules: [{say: Hello}]}}
";

const AGENT: &str = "\
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: clerk}
spec: {modelConfig: {modelRef: Model/main}, tools: [Tool/notes]}
";

/// A directory with resources also contains another program's file of the same name.
const TOOLS: &str = "\
version: 3
services: {db: {image: postgres}}
---
apiVersion: goondan.ai/v1
kind: Tool
metadata: {name: notes}
spec: {entry: ./tools/notes.mjs, exports: [{name: add}]}
";

const SWARM: &str = "\
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {name: desk}
spec: {entryAgent: Agent/clerk}
";

const BROKEN: &str = "kind: [";

fn split() -> Project {
    Project::new(PACKAGE)
        .file("models.yaml", MODELS)
        .file("agents/clerk/agent.yaml", AGENT)
        .file("tools/tools.yaml", TOOLS)
        .file("tools/notes.mjs", "export const handlers = {};")
        .file("swarm.yml", SWARM)
        .file("node_modules/other/models.yaml", BROKEN)
        .file("packages/other/models.yaml", BROKEN)
        .file(".editor/models.yaml", BROKEN)
        .file("notes.yaml", BROKEN)
        .file("docs/example/goondan.yaml", BROKEN)
}

#[test]
fn compat_1_files_known_by_name_in_the_older_format_are_read() {
    let project = split();
    let checked = project.loader().check(&project.root());
    let bundle = checked.bundle.unwrap_or_else(|found| panic!("{found}"));
    let clerk = &bundle.agents[&"clerk".parse().unwrap()];
    assert_eq!(clerk.tools[0].name.as_str(), "notes");
}

#[test]
fn compat_1_current_project_ignores_files_with_older_names() {
    let project = Project::new(&PACKAGE.replace("^0.0.3", "^0.1")).file("models.yaml", BROKEN);
    let problems = project.problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("no Agent"), "{problems:?}");
}

#[test]
fn compat_1_added_changed_or_removed_file_changes_the_project() {
    let project = split();
    let sources = || Loader::new(&project).load(&project.root()).sources;
    let root = project.root().canonicalize().unwrap();
    let before = sources();
    assert!(before.is_current());
    assert!(before.directories().contains(&root.join("agents/clerk")));
    let added = root.join("agents/other/agents.yml");
    assert!(before.concerns(&added) && before.concerns(&root.join("agents/other")));
    assert!(!before.concerns(&root.join("docs/notes.md")));
    std::fs::create_dir_all(added.parent().unwrap()).unwrap();
    crate::support::write(&added, AGENT.replace("clerk", "other").as_bytes());
    assert!(!before.is_current());
    let with_other = sources();
    assert!(with_other.is_current());
    crate::support::write(&root.join("node_modules/other/tools.yaml"), b"x");
    assert!(with_other.is_current());
    std::fs::remove_file(added).unwrap();
    assert!(!with_other.is_current());
}

#[test]
fn compat_1_kept_copy_of_a_split_project_loads_on_its_own() {
    let project = split();
    let loaded = Loader::new(&project).load(&project.root());
    let kept = loaded.sources.kept().clone();
    for file in ["models.yaml", "swarm.yml", "agents/clerk/agent.yaml"] {
        std::fs::remove_file(project.root().join(file)).unwrap();
    }
    let again = Loader::new(&project).load_kept(&project.root(), &kept);
    let bundle = again.bundle.unwrap_or_else(|found| panic!("{found}"));
    let agents: Vec<&str> = bundle
        .agents
        .keys()
        .map(goondan_protocol::ids::AgentName::as_str)
        .collect();
    assert_eq!(agents, ["clerk"]);
}

#[test]
fn bundle_4_change_to_older_file_is_checked_like_resources() {
    for path in [
        "models.yaml",
        "a/b/tool.yml",
        "resources/x.yaml",
        "goondan.yaml",
    ] {
        assert!(is_resource_file(Path::new(path)), "{path}");
    }
    for path in ["models.md", "a/prices.yaml", "models/x.yaml"] {
        assert!(!is_resource_file(Path::new(path)), "{path}");
    }
}
