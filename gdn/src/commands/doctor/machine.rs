//! Checks free disk space and process limits.

use std::path::Path;

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::sys::statvfs::statvfs;

use super::check_result::CheckResult;
use crate::output::text;

/// Free disk space below which doctor warns, in bytes.
const DISK_WARN_BYTES: u64 = 1 << 30;
/// Free disk space below which the disk may soon be full, in bytes.
const DISK_BAD_BYTES: u64 = 64 << 20;
/// Free inodes below which doctor warns.
const INODES_WARN: u64 = 10_000;
/// Open files for a daemon with some hundred agents, at up to three for each.
const OPEN_FILES_WARN: u64 = 4_096;
/// Processes and threads for a daemon with some hundred agents.
const PROCESSES_WARN: u64 = 2_048;
/// File watches for the files of projects.
const WATCHES_WARN: u64 = 8_192;

pub(super) fn findings(state_root: &Path) -> Vec<CheckResult> {
    // A state root that does not exist yet will be on the same disk as its closest existing parent.
    let mut above = state_root.ancestors();
    let dir = above.find(|dir| dir.exists()).unwrap_or(state_root);
    let mut found = vec![disk(dir), file_system(dir)];
    found.push(limit(
        "open files",
        Resource::RLIMIT_NOFILE,
        OPEN_FILES_WARN,
        "raise it: `ulimit -Hn 65536`, or `LimitNOFILE=` in the unit",
    ));
    #[cfg(target_os = "linux")]
    found.push(limit(
        "processes",
        Resource::RLIMIT_NPROC,
        PROCESSES_WARN,
        "raise it: `ulimit -Hu 8192`, or `TasksMax=` in the unit",
    ));
    found.extend(watches());
    found
}

fn disk(dir: &Path) -> CheckResult {
    const CHECK: &str = "disk";
    let status = match statvfs(dir) {
        Ok(status) => status,
        Err(error) => return CheckResult::unknown(CHECK, format!("{}: {error}", dir.display())),
    };
    #[expect(
        clippy::useless_conversion,
        reason = "field types differ between systems"
    )]
    let (blocks, inodes, all) = (
        u64::from(status.blocks_available()),
        u64::from(status.files_available()),
        u64::from(status.files()),
    );
    room(blocks.saturating_mul(status.fragment_size()), inodes, all)
}

/// `inodes` of `all` are free; a file system without a fixed number of inodes reports 0.
fn room(bytes: u64, inodes: u64, all: u64) -> CheckResult {
    const CHECK: &str = "disk";
    let found = format!("{} free", text::bytes(bytes));
    let hint = "free disk space; `gdn daemon status` and `gdn conversation prune` show the usage of conversations";
    if bytes < DISK_BAD_BYTES {
        CheckResult::bad(CHECK, found, hint)
    } else if bytes < DISK_WARN_BYTES {
        CheckResult::warn(CHECK, found, hint)
    } else if all > 0 && inodes < INODES_WARN {
        let found = format!("{found}, and {inodes} more files");
        CheckResult::warn(CHECK, found, hint)
    } else {
        CheckResult::ok(CHECK, found)
    }
}

/// Checks the file system of the state directory: it must be persistent and sync correctly.
#[cfg(target_os = "linux")]
fn file_system(dir: &Path) -> CheckResult {
    use nix::sys::statfs::{
        FUSE_SUPER_MAGIC, NFS_SUPER_MAGIC, SMB_SUPER_MAGIC, TMPFS_MAGIC, statfs,
    };

    const CHECK: &str = "file system";
    let elsewhere = "keep the state on a local disk: `--state-root DIR`";
    match statfs(dir).map(|status| status.filesystem_type()) {
        Err(error) => CheckResult::unknown(CHECK, format!("{}: {error}", dir.display())),
        Ok(TMPFS_MAGIC) => {
            let found = "in memory: all state is lost when the machine restarts";
            CheckResult::warn(CHECK, found, elsewhere)
        }
        Ok(NFS_SUPER_MAGIC | SMB_SUPER_MAGIC | FUSE_SUPER_MAGIC) => {
            let found = "remote or FUSE: locks and syncs may be unreliable";
            CheckResult::warn(CHECK, found, elsewhere)
        }
        Ok(_) => CheckResult::ok(CHECK, "local disk"),
    }
}

#[cfg(not(target_os = "linux"))]
fn file_system(_dir: &Path) -> CheckResult {
    CheckResult::unknown("file system", "not reported by this system")
}

fn limit(check: &'static str, of: Resource, least: u64, hint: &str) -> CheckResult {
    match getrlimit(of) {
        Ok((_, hard)) if hard == RLIM_INFINITY => CheckResult::ok(check, "no limit"),
        // The daemon raises its soft limit to the hard limit.
        Ok((_, hard)) if hard < least => {
            let found = format!("at most {hard}, enough for few agents");
            CheckResult::warn(check, found, hint)
        }
        Ok((_, hard)) => CheckResult::ok(check, format!("up to {hard}")),
        Err(error) => CheckResult::unknown(check, error.to_string()),
    }
}

fn watches() -> Option<CheckResult> {
    let text = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_watches").ok()?;
    let number: u64 = text.trim().parse().ok()?;
    let found = format!("up to {number}");
    Some(if number < WATCHES_WARN {
        let hint = "raise it: `sudo sysctl fs.inotify.max_user_watches=65536`";
        CheckResult::warn("watched files", found, hint)
    } else {
        CheckResult::ok("watched files", found)
    })
}

#[cfg(test)]
mod tests {
    use super::super::check_result::CheckStatus;
    use super::*;

    #[test]
    fn a_disk_is_judged_by_bytes_and_by_files() {
        let verdict = |bytes, inodes, all| room(bytes, inodes, all).verdict;
        assert_eq!(verdict(10 << 30, 1_000_000, 2_000_000), CheckStatus::Ok);
        assert_eq!(verdict(10 << 30, 0, 0), CheckStatus::Ok);
        assert_eq!(verdict(10 << 30, 12, 2_000_000), CheckStatus::Warn);
        assert_eq!(verdict(DISK_WARN_BYTES - 1, 0, 0), CheckStatus::Warn);
        assert_eq!(verdict(DISK_BAD_BYTES - 1, 0, 0), CheckStatus::Bad);
    }
}
