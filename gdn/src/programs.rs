//! The programs that are installed together with `gdn`.

use std::path::PathBuf;

use goondan_confinement::{Facts, probe_all};

/// All required programs. They are compatible only within one build.
pub(crate) const PROGRAMS: [&str; 4] = [GDN, ORCHESTRATOR, AGENT_PROCESS, CONNECTOR_PROCESS];

pub(crate) const FURTHER_PROGRAMS: [&str; 2] = ["goondan-studio", REPLICA];

pub(crate) const GDN: &str = "gdn";

pub(crate) const ORCHESTRATOR: &str = "goondan-orchestrator";

/// Client of the log server.
pub(crate) const REPLICA: &str = "goondan-replica";

/// Runs connectors and model calls.
pub(crate) const CONNECTOR_PROCESS: &str = "goondan-connector-process";

/// Runs agents and their tools.
pub(crate) const AGENT_PROCESS: &str = "goondan-agent-process";

/// Path of a program: beside this one, otherwise from `PATH`.
pub(crate) fn place_of(program: &str) -> Option<PathBuf> {
    let exe = std::env::current_exe().ok();
    let beside = exe.and_then(|exe| Some(exe.parent()?.join(program)));
    if let Some(beside) = beside.filter(|path| path.is_file()) {
        return Some(beside);
    }
    let dirs = std::env::var_os("PATH")?;
    let mut places = std::env::split_paths(&dirs).map(|dir| dir.join(program));
    places.find(|path| path.is_file())
}

/// Confinement rights of this kernel, tested now. Namespaces are tested by the program that would create them.
pub(crate) fn rights() -> Facts {
    probe_all(&place_of(AGENT_PROCESS).unwrap_or_else(|| AGENT_PROCESS.into()))
}
