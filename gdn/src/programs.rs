//! The programs that are installed together with `gdn`.

use std::path::PathBuf;

use goondan_confinement::{Facts, probe_all};

/// All of them. They work together only if they are of one build.
pub(crate) const PROGRAMS: [&str; 4] = [GDN, ORCHESTRATOR, AGENT_PROCESS, CONNECTOR_PROCESS];

/// Those that a build may have beside them.
pub(crate) const FURTHER_PROGRAMS: [&str; 2] = ["goondan-studio", REPLICA];

/// This program.
pub(crate) const GDN: &str = "gdn";

/// The daemon's program.
pub(crate) const ORCHESTRATOR: &str = "goondan-orchestrator";

/// The program that speaks to the server of workspaces' logs.
pub(crate) const REPLICA: &str = "goondan-replica";

/// The program of connectors and models.
pub(crate) const CONNECTOR_PROCESS: &str = "goondan-connector-process";

/// The program that runs tools, too.
pub(crate) const AGENT_PROCESS: &str = "goondan-agent-process";

/// Where a program is: beside this one, else in `PATH`.
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

/// What the kernel can confine, right by right, as it was seen a moment ago. Namespaces are tried by the program
/// that would make them.
pub(crate) fn rights() -> Facts {
    probe_all(&place_of(AGENT_PROCESS).unwrap_or_else(|| AGENT_PROCESS.into()))
}
