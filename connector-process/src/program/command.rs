//! Which program runs a connector's file.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use goondan_clock::timeout;
use goondan_confinement::find_program;
use goondan_protocol::module_file::{ModuleKind, NoRuntime, NodeVersion, Runtime, UnfitNode};
use goondan_protocol::working_directory::{Purpose, working_directory};
use tokio::process::Command;

use crate::limits::VERSION_TIMEOUT_MS;

/// The command that runs `file`, and its arguments.
///
/// # Errors
///
/// Why there is none, in words that follow the file's name.
pub(super) async fn of(file: &Path, path: &OsStr) -> Result<Vec<OsString>, String> {
    let kind = ModuleKind::of(file);
    if kind == ModuleKind::Executable {
        return if is_executable(file) {
            Ok(vec![file.into()])
        } else {
            Err(wanting(kind, UnfitNode::Absent))
        };
    }
    let mut unfit = UnfitNode::Absent;
    for runtime in kind.runtimes() {
        let Some(program) = find_program(runtime.program(), path) else {
            continue;
        };
        let mut node = NodeVersion { major: 0, minor: 0 };
        if *runtime == Runtime::Node {
            match node_version(&program).await {
                Some(version) if version.runs(kind) => node = version,
                Some(version) => {
                    unfit = UnfitNode::TooOld(version);
                    continue;
                }
                None => {
                    unfit = UnfitNode::Silent;
                    continue;
                }
            }
        }
        let arguments = runtime
            .file_arguments(kind, node)
            .iter()
            .map(OsString::from);
        let mut command = vec![program.into_os_string()];
        command.extend(arguments);
        command.push(file.into());
        return Ok(command);
    }
    Err(wanting(kind, unfit))
}

fn wanting(kind: ModuleKind, node: UnfitNode) -> String {
    format!("{}; {}", NoRuntime { kind, node }, kind.choices())
}

fn is_executable(file: &Path) -> bool {
    std::fs::metadata(file)
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

async fn node_version(node: &Path) -> Option<NodeVersion> {
    let asking = Command::new(node)
        .arg("--version")
        .current_dir(working_directory(Purpose::Own))
        .env_clear()
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(Duration::from_millis(VERSION_TIMEOUT_MS), asking).await;
    let printed = output.ok()?.ok()?.stdout;
    NodeVersion::parse(std::str::from_utf8(&printed).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_cannot_be_run_says_what_would_help() {
        let nowhere = OsStr::new("/nonexistent");
        for (file, said) in [
            (
                "/nonexistent/a.py",
                "is Python, and nothing that runs it is in PATH; install python3",
            ),
            (
                "/nonexistent/a.ts",
                "install bun, deno or node 22.6 or newer",
            ),
            ("/nonexistent/a", "make the file executable"),
        ] {
            let error = of(Path::new(file), nowhere).await.unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }

    #[tokio::test]
    async fn an_executable_is_its_own_program() {
        let command = of(Path::new("/bin/sh"), OsStr::new("")).await.unwrap();
        assert_eq!(command, ["/bin/sh"]);
    }
}
