//! Measures available descriptors, processes and memory.

use std::fs;
use std::path::Path;

use super::descriptors;
use goondan_core::{ResourceLevel, ResourceUsage};

/// Measures current availability. `cgroup` is the delegated cgroup of the daemon, if any. The files
/// it reads are provided by the kernel and respond immediately.
pub(super) fn measure(cgroup: Option<&Path>) -> ResourceUsage {
    let limit = descriptors::limit();
    ResourceUsage {
        descriptors: descriptors::open().map(|used| ResourceLevel { used, limit }),
        tasks: scarcer(cgroup.and_then(tasks_of_group), tasks_of_machine()),
        memory_bytes: scarcer(cgroup.and_then(memory_of_group), memory_of_machine()),
    }
}

/// Free space and size of a file system, in bytes.
pub(super) fn disk(path: &Path) -> Option<(u64, u64)> {
    let found = nix::sys::statvfs::statvfs(path).ok()?;
    let unit = found.fragment_size();
    Some((
        found.blocks_available().saturating_mul(unit),
        found.blocks().saturating_mul(unit),
    ))
}

/// The share with less left.
fn scarcer(one: Option<ResourceLevel>, other: Option<ResourceLevel>) -> Option<ResourceLevel> {
    let free = |share: &ResourceLevel| share.limit.saturating_sub(share.used);
    one.into_iter().chain(other).min_by_key(free)
}

fn number(path: &Path) -> Option<u64> {
    // Without a limit, the file contains `max`.
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn tasks_of_group(dir: &Path) -> Option<ResourceLevel> {
    let limit = number(&dir.join("pids.max"))?;
    let used = number(&dir.join("pids.current"))?;
    Some(ResourceLevel { used, limit })
}

fn tasks_of_machine() -> Option<ResourceLevel> {
    let limits = ["/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"];
    let limit = limits.iter().filter_map(|path| number(Path::new(path)));
    let limit = limit.min()?;
    let used = tasks_in(&fs::read_to_string("/proc/loadavg").ok()?)?;
    Some(ResourceLevel { used, limit })
}

/// Parses the number of tasks in `/proc/loadavg`: `0.20 0.18 0.12 1/80 11206`.
fn tasks_in(loadavg: &str) -> Option<u64> {
    let tasks = loadavg.split_whitespace().nth(3)?;
    tasks.split_once('/')?.1.parse().ok()
}

fn memory_of_group(dir: &Path) -> Option<ResourceLevel> {
    let limit = number(&dir.join("memory.max"))?;
    let current = number(&dir.join("memory.current"))?;
    // Page cache is reclaimable and does not count as used.
    let stat = fs::read_to_string(dir.join("memory.stat")).unwrap_or_default();
    let cached = field(&stat, "inactive_file ").unwrap_or(0);
    let used = current.saturating_sub(cached);
    Some(ResourceLevel { used, limit })
}

fn memory_of_machine() -> Option<ResourceLevel> {
    memory_in(&fs::read_to_string("/proc/meminfo").ok()?)
}

/// Parses the memory in `/proc/meminfo`, in bytes.
fn memory_in(meminfo: &str) -> Option<ResourceLevel> {
    let total = field(meminfo, "MemTotal:")?.checked_mul(1_024)?;
    let available = field(meminfo, "MemAvailable:")?.checked_mul(1_024)?;
    let used = total.saturating_sub(available);
    Some(ResourceLevel { used, limit: total })
}

fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_are_understood() {
        assert_eq!(tasks_in("0.20 0.18 0.12 1/80 11206\n"), Some(80));
        assert_eq!(tasks_in(""), None);
        let meminfo = "MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:   400 kB\n";
        let (used, limit) = (600 << 10, 1_000 << 10);
        assert_eq!(memory_in(meminfo), Some(ResourceLevel { used, limit }));
        assert_eq!(memory_in("MemTotal: 1 kB\n"), None);
    }

    #[test]
    fn scarcer_resource_share_is_used() {
        let (few, many) = (
            ResourceLevel {
                used: 15,
                limit: 20,
            },
            ResourceLevel { used: 1, limit: 9 },
        );
        assert_eq!(scarcer(Some(few), Some(many)), Some(few));
        assert_eq!(scarcer(None, Some(many)), Some(many));
        assert_eq!(scarcer(None, None), None);
    }

    #[test]
    fn this_machine_is_measured() {
        let supply = measure(None);
        assert!(
            supply
                .descriptors
                .is_some_and(|share| share.used > 0 && share.used <= share.limit)
        );
        if cfg!(target_os = "linux") {
            assert!(supply.tasks.is_some_and(|share| share.used > 0));
            assert!(supply.memory_bytes.is_some_and(|share| share.used > 0));
        }
    }
}
