//! The source files as text: crates, tests and names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::pages::repository;

/// Every crate of the workspace: its name in code, and its directory.
pub(crate) const CRATES: [(&str, &str); 33] = [
    ("goondan_protocol", "protocol"),
    ("goondan_log", "protocol/log"),
    ("goondan_clock", "protocol/clock"),
    ("goondan_masking", "protocol/masking"),
    ("goondan_confinement", "protocol/confinement"),
    ("goondan_outbound", "connector-process/outbound"),
    ("goondan_cli_agents", "protocol/cli-agents"),
    ("goondan_orchestrator", "orchestrator"),
    ("goondan_core", "orchestrator/core"),
    ("goondan_durable", "orchestrator/durable"),
    ("goondan_writers", "orchestrator/durable/writers"),
    ("goondan_store", "orchestrator/store"),
    ("goondan_config", "orchestrator/config"),
    ("goondan_vault", "orchestrator/vault"),
    ("goondan_oauth", "orchestrator/oauth"),
    ("goondan_merge_queue", "orchestrator/merge-queue"),
    ("goondan_tasks", "orchestrator/tasks"),
    ("goondan_trees", "orchestrator/trees"),
    ("goondan_proposals", "orchestrator/proposals"),
    ("goondan_checkpoints", "orchestrator/checkpoints"),
    ("goondan_bundles", "orchestrator/bundles"),
    ("goondan_packages", "orchestrator/packages"),
    ("goondan_replication", "orchestrator/replication"),
    ("goondan_replicated_disk", "orchestrator/replication/disk"),
    ("goondan_replica", "orchestrator/replica"),
    ("goondan_agent_process", "agent-process"),
    ("goondan_connectors", "connector-process/connectors"),
    ("goondan_connector_process", "connector-process"),
    ("gdn", "gdn"),
    ("goondan_backup", "gdn/backup"),
    ("goondan_client", "gdn/client"),
    ("goondan_studio", "gdn/studio"),
    ("goondan_tests", "tests"),
];

/// The Rust files below a directory.
pub(crate) fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|end| end == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// Text of all sources of all crates, without tests.
pub(crate) fn all_sources() -> String {
    let dirs = CRATES
        .iter()
        .map(|(_, dir)| repository().join(dir).join("src"));
    let files = dirs.flat_map(|dir| rust_files(&dir));
    files
        .map(|file| fs::read_to_string(file).unwrap())
        .collect()
}

/// Every test, by its full name: crate, test binary (for tests outside of `src`), modules,
/// function.
pub(crate) fn all_tests() -> BTreeSet<String> {
    let mut tests = BTreeSet::new();
    for (name, dir) in CRATES {
        for part in ["src", "tests"] {
            let top = repository().join(dir).join(part);
            let files: BTreeMap<PathBuf, String> = rust_files(&top)
                .into_iter()
                .map(|file| (file.clone(), fs::read_to_string(file).unwrap()))
                .collect();
            let renamed: BTreeMap<PathBuf, String> = files
                .iter()
                .flat_map(|(file, text)| renamed_modules(&top, file, text))
                .collect();
            for (file, text) in &files {
                let own = module_path(&top, file);
                let path = renamed.get(file).unwrap_or(&own);
                for test in tests_in(text) {
                    let parts = [name, path, &test]
                        .into_iter()
                        .filter(|part| !part.is_empty());
                    tests.insert(parts.collect::<Vec<_>>().join("::"));
                }
            }
        }
    }
    tests
}

/// The module path of a file: `turn/engine.rs` is `turn::engine`.
fn module_path(top: &Path, file: &Path) -> String {
    let inside = file.strip_prefix(top).unwrap().with_extension("");
    let mut parts: Vec<&str> = inside.iter().map(|part| part.to_str().unwrap()).collect();
    if parts
        .last()
        .is_some_and(|last| ["lib", "main", "mod"].contains(last))
    {
        parts.pop();
    }
    parts.join("::")
}

/// Modules in files that differ from their names (`#[path = "…"]`).
fn renamed_modules(top: &Path, file: &Path, text: &str) -> Vec<(PathBuf, String)> {
    let own = module_path(top, file);
    let marks = text.split("#[path = \"").skip(1);
    marks
        .filter_map(|rest| {
            let (path, rest) = rest.split_once('"')?;
            let (_, rest) = rest.split_once("mod ")?;
            let (name, _) = rest.split_once(';')?;
            Some((file.parent()?.join(path), format!("{own}::{name}")))
        })
        .collect()
}

/// Test functions of a file, with their module within the file.
fn tests_in(text: &str) -> Vec<String> {
    let (mut module, mut is_test, mut tests) = ("", false, Vec::new());
    for line in text.lines() {
        if let Some(rest) = line.trim_start_matches("pub ").strip_prefix("mod ") {
            module = rest.strip_suffix(" {").unwrap_or(module);
        } else if line.starts_with('}') {
            module = "";
        }
        let code = line.trim_start();
        is_test |= code.starts_with("#[test]") || code.starts_with("#[tokio::test");
        if let Some(rest) = code.trim_start_matches("async ").strip_prefix("fn ")
            && std::mem::take(&mut is_test)
        {
            let name = rest.split('(').next().unwrap();
            let separator = if module.is_empty() { "" } else { "::" };
            tests.push(format!("{module}{separator}{name}"));
        }
    }
    tests
}

#[test]
fn every_crate_of_the_workspace_is_known() {
    let manifest = fs::read_to_string(repository().join("Cargo.toml")).unwrap();
    let (_, members) = manifest.split_once("members = [").unwrap();
    let members = members.split(']').next().unwrap();
    let members: BTreeSet<&str> = members.split('"').skip(1).step_by(2).collect();
    assert_eq!(members, CRATES.iter().map(|(_, dir)| *dir).collect());
}

#[test]
fn tests_are_found_in_every_module_location() {
    let tests = all_tests();
    for known in [
        "goondan_store::file_names::tests::root_9_the_example_of_the_clause",
        "goondan_store::file_names::tests::inst_1_names_are_reversible",
        "goondan_store::writer::tests::inst_3_a_key_of_another_agent_is_refused",
        "goondan_protocol::ipc::golden::every_message_has_golden_bytes",
        "goondan_config::runner::files::loading_writes_nothing",
        "goondan_tests::docs::sources::tests_are_found_in_every_module_location",
    ] {
        assert!(tests.contains(known), "{known} is not found");
    }
    assert!(
        !tests.contains("goondan_store::file_names::tests::id"),
        "a helper is no test"
    );
}
