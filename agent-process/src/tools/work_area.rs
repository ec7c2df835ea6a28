//! The work area of a task, as those who work in it find it (`TASK-2`).

use std::path::Path;

use goondan_confinement::Allowed;
use goondan_protocol::sandbox::SandboxPath;
use goondan_protocol::task::KEPT_DIRECTORIES;

/// Keeps programs from writing to what of a work area the daemon alone writes. A mount does that, which there is at
/// level `full`; Landlock cannot take away what it allows above.
pub(crate) fn keep_directories(allowed: &mut Allowed, work_area: &Path) {
    let kept = KEPT_DIRECTORIES.map(|name| work_area.join(name));
    let kept = kept.into_iter().filter(|path| path.is_dir());
    let kept = kept.filter_map(|path| SandboxPath::try_from(path).ok());
    allowed.policy.read.extend(kept);
}
