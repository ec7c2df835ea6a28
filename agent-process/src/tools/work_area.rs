//! Access of tools to the work area of a task (`TASK-2`).

use std::path::Path;

use goondan_confinement::ProgramRights;
use goondan_protocol::sandbox::SandboxPath;
use goondan_protocol::task::KEPT_DIRECTORIES;

/// Makes directories of a work area that only the daemon writes read-only for programs. This takes
/// a mount, which exists only at level `full`, because Landlock cannot revoke access granted to a
/// parent directory.
pub(crate) fn keep_directories(allowed: &mut ProgramRights, work_area: &Path) {
    let kept = KEPT_DIRECTORIES.map(|name| work_area.join(name));
    let kept = kept.into_iter().filter(|path| path.is_dir());
    let kept = kept.filter_map(|path| SandboxPath::try_from(path).ok());
    allowed.policy.read.extend(kept);
}
