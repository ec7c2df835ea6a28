//! Runtimes that execute the project's modules on this machine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use goondan_clock::timeout;
use goondan_confinement::find_program;
use goondan_protocol::module_file::{ModuleKind, NoRuntime, NodeVersion, Runtime, UnfitNode};
use goondan_protocol::process_limits::ProcessLimits;
use goondan_protocol::working_directory::{ProcessPurpose, working_directory};
use nix::unistd::{AccessFlags, access};
use tokio::process::Command;
use tokio::sync::OnceCell;

use super::fault::ToolFault;
use super::host::HostProgram;

/// The host program of Python modules, as an argument of the interpreter.
const PYTHON_HOST: &str = include_str!("host/host.py");

/// The module `goondan` that Python modules can import, as an argument of [`PYTHON_HOST`].
const PYTHON_HELPER: &str = include_str!("host/goondan.py");

/// Time limit for node to print its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(10);

/// Runtimes of this machine, detected on first use.
#[derive(Debug)]
pub(crate) struct Runtimes {
    /// The `PATH` to search.
    path: OsString,
    node: OnceCell<Option<NodeVersion>>,
}

impl Runtimes {
    /// Creates a detector for the runtimes in `path`.
    pub(super) fn in_path(path: OsString) -> Self {
        Self {
            path,
            node: OnceCell::new(),
        }
    }

    /// The single host for modules in JavaScript and TypeScript, which runs `script`.
    ///
    /// # Errors
    ///
    /// `E_TOOL_NO_RUNTIME` if no available runtime can run a module.
    pub(super) async fn host_of_all(
        &self,
        script: &str,
        entries: &[(PathBuf, PathBuf)],
    ) -> Result<Option<HostProgram>, ToolFault> {
        let mut program = None;
        for (entry, path) in entries {
            let limits = ProcessLimits::default();
            program = Some(self.host_of(script, entry, path, limits).await?);
        }
        Ok(program)
    }

    /// The host for a module; `script` is the host program for JavaScript and TypeScript.
    ///
    /// # Errors
    ///
    /// `E_TOOL_NO_RUNTIME` if no available runtime can run it; the text names the suitable ones.
    pub(super) async fn host_of(
        &self,
        script: &str,
        entry: &Path,
        path: &Path,
        limits: ProcessLimits,
    ) -> Result<HostProgram, ToolFault> {
        let kind = ModuleKind::of(path);
        let mut node = UnfitNode::Absent;
        for runtime in kind.runtimes() {
            let Some(program) = find_program(runtime.program(), &self.path) else {
                continue;
            };
            let mut version = NodeVersion::TYPESCRIPT;
            if *runtime == Runtime::Node {
                match *self.node.get_or_init(|| node_version(&program)).await {
                    Some(found) if found.runs(kind) => version = found,
                    Some(found) => {
                        node = UnfitNode::TooOld(found);
                        continue;
                    }
                    None => {
                        node = UnfitNode::Silent;
                        continue;
                    }
                }
            }
            let mut command = vec![program.into_os_string()];
            command.extend(runtime.host_arguments(version).iter().map(OsString::from));
            let name = if *runtime == Runtime::Python {
                command.extend([PYTHON_HOST.into(), path.into(), PYTHON_HELPER.into()]);
                entry.display().to_string()
            } else {
                command.push(script.into());
                runtime.program().to_owned()
            };
            return Ok(HostProgram {
                name,
                command,
                limits,
                // The host of Python moves its streams itself. Deno cannot open other descriptors.
                has_own_channel: matches!(runtime, Runtime::Bun | Runtime::Node),
            });
        }
        if kind == ModuleKind::Executable && access(path, AccessFlags::X_OK).is_ok() {
            return Ok(HostProgram {
                name: entry.display().to_string(),
                command: vec![path.into()],
                limits,
                has_own_channel: false,
            });
        }
        Err(no_runtime(entry, NoRuntime { kind, node }))
    }
}

fn no_runtime(entry: &Path, why: NoRuntime) -> ToolFault {
    let (entry, choices) = (entry.display(), why.kind.choices());
    ToolFault::new("E_TOOL_NO_RUNTIME", format!("`{entry}` {why}; {choices}"))
}

async fn node_version(program: &Path) -> Option<NodeVersion> {
    let asked = Command::new(program)
        .arg("--version")
        .current_dir(working_directory(ProcessPurpose::Own))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let printed = timeout(VERSION_TIMEOUT, asked).await.ok()?.ok()?;
    NodeVersion::parse(&String::from_utf8_lossy(&printed.stdout))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_without_a_runtime_lists_runtimes_to_install() {
        let told = |kind, node| no_runtime(Path::new("tools/x"), NoRuntime { kind, node }).message;
        assert_eq!(
            told(ModuleKind::JavaScript, UnfitNode::Absent),
            "`tools/x` is JavaScript, and nothing that runs it is in PATH; install bun, deno or node"
        );
        let old = NodeVersion {
            major: 20,
            minor: 9,
        };
        assert_eq!(
            told(ModuleKind::TypeScript, UnfitNode::TooOld(old)),
            "`tools/x` is TypeScript, which the node 20.9 in PATH is too old for; install bun, deno \
             or node 22.6 or newer"
        );
        assert_eq!(
            told(ModuleKind::Executable, UnfitNode::Absent),
            "`tools/x` cannot be executed; make the file executable (chmod +x)"
        );
    }
}
