//! Per-process limits enforced by the kernel.
//!
//! The daemon sets them from outside, immediately after starting a child: a child does nothing
//! before it receives its `welcome`, and its descendants inherit the limits. Setting them between
//! `fork` and `exec` would need unsafe code, and limits set by the child itself could not be
//! trusted.

use std::io;

use goondan_protocol::process_limits::ProcessLimits;

/// Limits a newly started child. Lower existing limits are kept.
///
/// # Errors
///
/// The operating system's error. The child must not continue without its limits.
#[cfg(target_os = "linux")]
pub(super) fn apply(pid: u32, limits: &ProcessLimits) -> io::Result<()> {
    use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

    let pid_of = pid;
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let lower = |what: &str, resource, limit: Option<u64>| {
        let Some(limit) = limit else {
            return Ok(());
        };
        let most = getrlimit(resource).maximum.unwrap_or(u64::MAX);
        let limit = Some(limit.min(most));
        let both = Rlimit {
            current: limit,
            maximum: limit,
        };
        let set = pid
            .ok_or(rustix::io::Errno::SRCH)
            .and_then(|pid| prlimit(Some(pid), resource, both));
        set.map(drop)
            .map_err(|errno| io::Error::other(format!("failed to limit its {what}: {errno}")))
    };
    if limits.processes.is_some() {
        tracing::warn!(
            child_pid = pid_of,
            "`limits.processes` has no effect: no control groups"
        );
    }
    // Not the address space, because JavaScript engines reserve gigabytes of it and use little.
    lower("memory", Resource::Data, limits.memory_bytes)?;
    lower("open files", Resource::Nofile, limits.open_files)
}

/// Unsupported on this system; logs a warning once.
#[cfg(not(target_os = "linux"))]
pub(super) fn apply(_pid: u32, limits: &ProcessLimits) -> io::Result<()> {
    static TOLD: std::sync::Once = std::sync::Once::new();
    if !limits.is_none() {
        TOLD.call_once(|| tracing::warn!("limits of processes have no effect on this system"));
    }
    Ok(())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    struct Sleeper(Child);

    impl Drop for Sleeper {
        fn drop(&mut self) {
            self.0.kill().ok();
            self.0.wait().ok();
        }
    }

    #[test]
    fn a_process_has_the_limits_it_was_given_and_no_higher_ones() {
        let sleeper = Command::new("sleep")
            .arg("1000")
            .stdin(Stdio::null())
            .spawn();
        let sleeper = Sleeper(sleeper.unwrap());
        let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
        for open_files in [most.unwrap_or(1 << 20) + 1, 100] {
            let limits = ProcessLimits {
                memory_bytes: Some(64 << 20),
                open_files: Some(open_files),
                processes: None,
            };
            apply(sleeper.0.id(), &limits).unwrap();
            let shown =
                std::fs::read_to_string(format!("/proc/{}/limits", sleeper.0.id())).unwrap();
            let of = |name: &str| -> Vec<String> {
                let line = shown.lines().find_map(|line| line.strip_prefix(name));
                let words = line.unwrap().split_whitespace().take(2);
                words.map(str::to_owned).collect()
            };
            assert_eq!(of("Max data size"), ["67108864", "67108864"]);
            let held = open_files.min(most.unwrap_or(u64::MAX)).to_string();
            assert_eq!(of("Max open files"), [held.clone(), held]);
        }
    }

    #[test]
    fn a_process_that_is_gone_cannot_be_limited() {
        let mut gone = Command::new("true").spawn().unwrap();
        gone.wait().unwrap();
        let limits = ProcessLimits {
            open_files: Some(100),
            ..ProcessLimits::default()
        };
        let error = apply(gone.id(), &limits).unwrap_err().to_string();
        assert!(
            error.starts_with("failed to limit its open files: "),
            "{error}"
        );
    }
}
