//! Every start of a process gets its directory from one function (`BOX-3`).

use std::fs;

use crate::pages::repository;
use crate::sources::rust_files;

/// Crates that start processes at run time.
const CRATES: [&str; 3] = ["orchestrator", "agent-process", "connector-process"];

/// Files whose processes start in their own current directory, which was set earlier.
const INHERITING: [&str; 6] = [
    "agent-process/src/tools/tool_supervisor.rs",
    "agent-process/src/tools/tool_supervisor/program.rs",
    "agent-process/src/tools/tool_supervisor/task.rs",
    "protocol/confinement/src/entry.rs",
    "agent-process/src/tools/tool_supervisor/session.rs",
    "connector-process/src/sandboxed_program.rs",
];

/// Allowed arguments of `current_dir(…)`: the function, or a variable with its result.
const ASKS: [&str; 2] = ["working_directory(ProcessPurpose::", "cwd)"];

#[test]
fn box_3_process_starts_get_their_directory_from_one_function() {
    let mut starts = 0;
    for krate in CRATES {
        for file in rust_files(&repository().join(krate).join("src")) {
            let text = fs::read_to_string(&file).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap();
            let code = code.split("#[cfg(all(test").next().unwrap();
            let name = file.strip_prefix(repository()).unwrap().to_str().unwrap();
            if name.ends_with("tests.rs") {
                continue;
            }
            let started = code.matches("Command::new(").count();
            let asked = code.matches(".current_dir(").count();
            for directory in code.split(".current_dir(").skip(1) {
                let asks = ASKS.iter().any(|ask| directory.starts_with(ask));
                assert!(asks, "{name}: a directory from elsewhere");
            }
            if INHERITING.contains(&name) {
                assert_eq!(asked, 0, "{name}");
            } else {
                assert_eq!(asked, started, "{name}: a process starts anywhere");
            }
            starts += started;
        }
    }
    assert!(starts > 8, "only {starts} starts were found");
}
