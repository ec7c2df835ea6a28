//! `docs/dependencies.md` lists exactly the direct dependencies, with their users.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::pages::{Page, repository};
use crate::sources::CRATES;

/// The marks of the crates, in the order of the table's cells.
const MARKS: [(&str, &str); 29] = [
    ("protocol", "p"),
    ("protocol/log", "l"),
    ("protocol/clock", "w"),
    ("protocol/confinement", "x"),
    ("protocol/cli-agents", "i"),
    ("orchestrator", "o"),
    ("orchestrator/core", "d"),
    ("orchestrator/durable", "f"),
    ("orchestrator/durable/writers", "h"),
    ("orchestrator/store", "s"),
    ("orchestrator/config", "c"),
    ("orchestrator/vault", "v"),
    ("orchestrator/oauth", "u"),
    ("orchestrator/tasks", "j"),
    ("orchestrator/trees", "r"),
    ("orchestrator/proposals", "b"),
    ("orchestrator/checkpoints", "y"),
    ("orchestrator/bundles", "m"),
    ("orchestrator/packages", "e"),
    ("orchestrator/replication", "R"),
    ("orchestrator/replication/disk", "D"),
    ("orchestrator/replica", "P"),
    ("agent-process", "a"),
    ("connector-process/connectors", "k"),
    ("connector-process", "n"),
    ("gdn", "g"),
    ("gdn/client", "q"),
    ("gdn/studio", "z"),
    ("tests", "t"),
];

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

/// Users of each third-party crate, as in the table: `p o *s*`.
fn used() -> BTreeMap<String, String> {
    let (mut always, mut in_tests) = (BTreeMap::new(), BTreeMap::new());
    for (dir, mark) in MARKS {
        let manifest = manifest(dir);
        let normal = names_in(&manifest, "dependencies");
        for name in normal.iter().filter(is_foreign) {
            always
                .entry(name.clone())
                .or_insert_with(Vec::new)
                .push(mark);
        }
        let dev = names_in(&manifest, "dev-dependencies");
        for name in dev
            .iter()
            .filter(is_foreign)
            .filter(|name| !normal.contains(*name))
        {
            in_tests
                .entry(name.clone())
                .or_insert_with(Vec::new)
                .push(mark);
        }
    }
    let names: BTreeSet<String> = always.keys().chain(in_tests.keys()).cloned().collect();
    names
        .into_iter()
        .map(|name| {
            let normal = always.get(&name).map(|marks| marks.join(" "));
            let dev = in_tests
                .get(&name)
                .map(|marks| format!("*{}*", marks.join(" ")));
            let cell: Vec<String> = normal.into_iter().chain(dev).collect();
            (name, cell.join(" "))
        })
        .collect()
}

#[test]
fn the_table_of_what_is_used_is_that_of_the_manifests() {
    let page = Page::read("docs/dependencies.md").section("## In use");
    let shown: BTreeMap<String, String> = page
        .rows()
        .into_iter()
        .map(|row| {
            assert!(
                row.len() == 4 && !row[2].is_empty(),
                "{row:?} does not say what for"
            );
            (row[0].trim_matches('`').to_owned(), row[1].clone())
        })
        .collect();
    assert_eq!(shown, used());
}

#[test]
fn what_is_declared_and_not_used_is_said_to_be_planned() {
    let page = Page::read("docs/dependencies.md").section("## Planned, not used yet");
    let planned: BTreeSet<String> = page
        .rows()
        .iter()
        .flat_map(|row| {
            crate::pages::quoted(&row[0])
                .into_iter()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect();
    let used = used();
    for name in &planned {
        assert!(!used.contains_key(name), "`{name}` is in use");
    }
    let declared = names_in(&manifest("."), "workspace.dependencies");
    let unused = declared
        .iter()
        .filter(is_foreign)
        .filter(|name| !used.contains_key(*name));
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
        "goondan-durable",
        "goondan-log",
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
