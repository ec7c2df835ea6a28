//! `docs/dependencies.md` lists exactly the direct dependencies.

use std::collections::BTreeSet;
use std::fs;

use crate::pages::{Page, repository};
use crate::sources::CRATES;

/// Names in one kind of table of a manifest, `[dependencies]` or `[dev-dependencies]`, including
/// platform-specific ones.
fn names_in(manifest: &str, kind: &str) -> BTreeSet<String> {
    let mut is_inside = false;
    let mut names = BTreeSet::new();
    for line in manifest.lines() {
        if let Some(table) = line.strip_prefix('[') {
            let table = table.trim_end_matches(']');
            is_inside = table == kind || table.ends_with(&format!(".{kind}"));
        } else if is_inside
            && let Some((name, _)) = line.split_once(['.', ' ', '='])
            && !name.is_empty()
            && !name.starts_with('#')
        {
            names.insert(name.to_owned());
        }
    }
    names
}

fn manifest(dir: &str) -> String {
    fs::read_to_string(repository().join(dir).join("Cargo.toml")).unwrap()
}

fn is_foreign(name: &&String) -> bool {
    !name.starts_with("goondan-")
}

/// Third-party crates that the workspace's crates depend on, also only in tests.
fn used() -> BTreeSet<String> {
    let manifests = CRATES.iter().map(|(_, dir)| manifest(dir));
    let names = manifests.flat_map(|manifest| {
        let dev = names_in(&manifest, "dev-dependencies");
        names_in(&manifest, "dependencies").into_iter().chain(dev)
    });
    names.filter(|name| is_foreign(&name)).collect()
}

/// Names of a section, from lines such as ``* `name`: purpose``.
fn listed(section: &Page) -> Vec<String> {
    let lines = section
        .text
        .lines()
        .filter_map(|line| line.strip_prefix("* "));
    lines
        .map(|line| {
            let parts = line
                .strip_prefix('`')
                .and_then(|line| line.split_once("`: "));
            let (name, _) = parts.unwrap_or_else(|| panic!("`{line}` has no name or no purpose"));
            name.to_owned()
        })
        .collect()
}

#[test]
fn every_direct_dependency_is_listed_once() {
    let page = Page::read("docs/dependencies.md").section("## In use");
    let mut shown = listed(&page);
    shown.sort();
    let used: Vec<String> = used().into_iter().collect();
    assert_eq!(shown, used);
}

#[test]
fn unused_declared_dependencies_are_listed_as_planned() {
    let page = Page::read("docs/dependencies.md").section("## Planned, not used yet");
    let planned: BTreeSet<String> = listed(&page).into_iter().collect();
    let used = used();
    for name in &planned {
        assert!(!used.contains(name), "`{name}` is in use");
    }
    let declared = names_in(&manifest("."), "workspace.dependencies");
    let unused = declared
        .iter()
        .filter(is_foreign)
        .filter(|name| !used.contains(*name));
    for name in unused {
        assert!(
            planned.contains(name),
            "`{name}` is declared, not used and not planned"
        );
    }
}

/// Checks the single-writer rule in the dependency graph: only the orchestrator has crates for
/// durable files, and the core describes the store's work without executing it.
#[test]
fn only_the_orchestrator_uses_the_store() {
    let users_of = |wanted: &str| -> Vec<&str> {
        let uses = |dir: &str| names_in(&manifest(dir), "dependencies").contains(wanted);
        let users = CRATES.into_iter().filter(|(_, dir)| uses(dir));
        users.map(|(name, _)| name).collect()
    };
    let speakers = ["goondan_orchestrator", "goondan_core"];
    assert_eq!(users_of("goondan-store"), speakers);
    let layers = [
        "goondan_writers",
        "goondan_store",
        "goondan_tasks",
        "goondan_trees",
        "goondan_proposals",
        "goondan_checkpoints",
        "goondan_bundles",
        "goondan_replicated_disk",
    ];
    assert_eq!(
        users_of("goondan-durable"),
        [speakers.as_slice(), &layers].concat()
    );
    assert_eq!(users_of("goondan-writers"), ["goondan_orchestrator"]);
}

/// The durable layer is independent of conversations: what is built on it shares none of its terms.
#[test]
fn the_durable_layer_knows_no_conversation() {
    let dirs = [
        "orchestrator/durable",
        "orchestrator/durable/writers",
        "orchestrator/trees",
    ];
    for dir in dirs {
        let used = names_in(&manifest(dir), "dependencies");
        let known = BTreeSet::from(["goondan-durable".to_owned()]);
        let own: BTreeSet<String> = used.into_iter().filter(|name| !is_foreign(&name)).collect();
        assert!(own.is_subset(&known), "{dir} uses {own:?}");
    }
}

/// Crates whose code a package is built with, without its tests.
fn built_with(package: &str) -> BTreeSet<String> {
    let tree = std::process::Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--edges", "normal"])
        .args(["--prefix", "none", "--format", "{p}", "--package", package])
        .current_dir(repository())
        .output()
        .unwrap();
    let said = String::from_utf8(tree.stderr).unwrap();
    assert!(tree.status.success(), "cargo tree: {said}");
    let lines = String::from_utf8(tree.stdout).unwrap();
    let names = lines.lines().filter_map(|line| line.split(' ').next());
    names.map(str::to_owned).collect()
}

/// The core decides but executes nothing: it has no crate for files, sockets, processes, clocks or
/// tasks, and none of its crates brings a runtime.
#[test]
fn the_core_has_nothing_to_do_anything_with() {
    let known = [
        "goondan-cli-agents",
        "goondan-config",
        "goondan-connectors",
        "goondan-durable",
        "goondan-log",
        "goondan-merge-queue",
        "goondan-oauth",
        "goondan-protocol",
        "goondan-store",
        "goondan-tasks",
        "hex",
        "serde",
        "serde_json",
        "sha2",
        "thiserror",
        "uuid",
    ];
    let used = names_in(&manifest("orchestrator/core"), "dependencies");
    assert_eq!(used, known.map(str::to_owned).into());

    let doers = [
        "goondan-clock",
        "goondan-writers",
        "hyper",
        "interprocess",
        "mio",
        "notify",
        "reqwest",
        "rustix",
        "signal-hook",
        "socket2",
        "tokio",
        "tokio-util",
    ];
    assert!(
        built_with("goondan-orchestrator").is_superset(&["mio", "tokio"].map(str::to_owned).into())
    );
    let core = built_with("goondan-core");
    assert!(core.contains("goondan-store"), "{core:?}");
    for doer in doers {
        assert!(!core.contains(doer), "goondan-core is built with `{doer}`");
    }
}
