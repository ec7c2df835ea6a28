//! Rights of goondan's processes, tested by the daemon if one runs, because a service can have fewer rights than a
//! shell.

use std::path::PathBuf;

use goondan_confinement::{Facts, open_beneath};
use goondan_protocol::control::DaemonCheck;

use super::check_result::CheckResult;
use crate::output::text;
use crate::programs::rights;

/// Test results, and the process that tested.
#[derive(Debug)]
pub(super) struct ProbeResults {
    pub(super) rights: Facts,
    pub(super) no_open_beneath: Option<String>,
    read_only_projects: Vec<PathBuf>,
    is_by_daemon: bool,
}

impl ProbeResults {
    pub(super) fn by_daemon(check: DaemonCheck) -> Self {
        let DaemonCheck {
            rights,
            no_open_beneath,
            read_only_projects,
            network: _,
        } = check;
        Self {
            rights,
            no_open_beneath,
            read_only_projects,
            is_by_daemon: true,
        }
    }

    /// Results of this program, which a daemon started from here would share.
    pub(super) fn here() -> Self {
        Self {
            rights: rights(),
            no_open_beneath: open_beneath().err().map(|error| error.to_string()),
            read_only_projects: Vec::new(),
            is_by_daemon: false,
        }
    }

    /// Returns the finding, and names the daemon in it if the daemon tested.
    pub(super) fn placed(&self, finding: CheckResult) -> CheckResult {
        if !self.is_by_daemon {
            return finding;
        }
        let found = format!("in the daemon: {}", finding.found);
        CheckResult { found, ..finding }
    }

    /// Projects in which the daemon cannot apply a proposal.
    pub(super) fn read_only_projects(&self) -> impl Iterator<Item = CheckResult> {
        self.read_only_projects.iter().map(|root| {
            let path = root.to_string_lossy();
            let found = format!("the daemon cannot write {path}: no proposal can be applied there");
            let quoted = text::shell_quoted(&path).unwrap_or_else(|| path.clone().into_owned());
            let hint = format!(
                "`gdn daemon service install --writable {quoted}`, and restart the service; or check who owns it: \
                 `ls -ld {quoted}`"
            );
            CheckResult::warn("project files", found, hint)
        })
    }
}
