//! Selects the program that runs a connector's file.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use goondan_clock::timeout;
use goondan_confinement::find_program;
use goondan_protocol::module_file::{ModuleKind, NoRuntime, NodeVersion, Runtime, UnfitNode};
use goondan_protocol::working_directory::{ProcessPurpose, working_directory};
use tokio::process::Command;

use crate::limits::VERSION_TIMEOUT_MS;

/// Host of modules that export a connector, without the line that names the module.
const MODULE_HOST: &str = include_str!("host.mjs");

/// Maximum number of bytes of a file that are searched for its exports.
const LOOKED_AT_BYTES_MAX: u64 = 1024 * 1024;

/// The command that runs `file`, with its arguments: the file itself, or the host of modules for a
/// module (`COMPAT-3`).
///
/// # Errors
///
/// A description of why no program can run it; the text follows the file's name.
pub(super) async fn of(file: &Path, path: &OsStr) -> Result<Vec<OsString>, String> {
    let kind = ModuleKind::of(file);
    if kind == ModuleKind::Executable {
        let metadata = std::fs::metadata(file);
        let metadata = metadata.map_err(|error| format!("cannot be read: {error}"))?;
        return if is_executable(&metadata) {
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
        let mut command = vec![program.into_os_string()];
        if let Some(script) = module_host(kind, file) {
            let arguments: &[&str] = match runtime {
                Runtime::Bun => &["-e"],
                Runtime::Deno => &["eval"],
                Runtime::Node | Runtime::Python => {
                    command.extend(node.arguments(kind).iter().map(OsString::from));
                    &["--input-type=module", "-e"]
                }
            };
            command.extend(arguments.iter().map(OsString::from));
            command.push(script.into());
            return Ok(command);
        }
        let arguments = runtime
            .file_arguments(kind, node)
            .iter()
            .map(OsString::from);
        command.extend(arguments);
        command.push(file.into());
        return Ok(command);
    }
    Err(wanting(kind, unfit))
}

/// The host of modules, if the file is a module; a program of the other contract exports nothing.
fn module_host(kind: ModuleKind, file: &Path) -> Option<String> {
    if !matches!(kind, ModuleKind::JavaScript | ModuleKind::TypeScript) {
        return None;
    }
    let mut text = String::new();
    // The program that runs the file reports if it is unreadable.
    let opened = File::open(file).ok()?;
    opened
        .take(LOOKED_AT_BYTES_MAX)
        .read_to_string(&mut text)
        .ok()?;
    let exports = text.lines().any(|line| line.starts_with("export "));
    let path = serde_json::to_string(&file.to_string_lossy()).ok()?;
    exports.then(|| format!("const modulePath = {path};\n{MODULE_HOST}"))
}

fn wanting(kind: ModuleKind, node: UnfitNode) -> String {
    format!("{}; {}", NoRuntime { kind, node }, kind.choices())
}

fn is_executable(metadata: &Metadata) -> bool {
    metadata.is_file() && metadata.permissions().mode() & 0o111 != 0
}

async fn node_version(node: &Path) -> Option<NodeVersion> {
    let asking = Command::new(node)
        .arg("--version")
        .current_dir(working_directory(ProcessPurpose::Own))
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
    async fn program_that_cannot_run_reports_how_to_fix_it() {
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
            ("/nonexistent/a", "cannot be read: No such file"),
            ("/dev/null", "make the file executable"),
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
