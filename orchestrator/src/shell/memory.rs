//! Memory usage of processes, for display.

use std::collections::HashMap;
use std::fs;

use goondan_protocol::control::ProcessInfo;

use super::cgroups::Cgroup;
use super::orphans_of_agents::parent_of;

/// Parent-child relations of processes at one moment.
#[derive(Debug, Default)]
pub(super) struct ProcessTree {
    children: HashMap<u32, Vec<u32>>,
}

impl ProcessTree {
    /// Reads the processes of this machine; empty if the system does not provide them. Blocks
    /// briefly.
    pub(super) fn read() -> Self {
        let mut families = Self::default();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let pid = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            if let Some(pid) = pid
                && let Some(parent) = parent_of(pid)
            {
                families.children.entry(parent).or_default().push(pid);
            }
        }
        families
    }

    /// Returns a process with all its current descendants.
    fn of(&self, pid: u32) -> Vec<u32> {
        let mut found = vec![pid];
        let mut next = 0;
        while let Some(parent) = found.get(next).copied() {
            let children = self.children.get(&parent).into_iter().flatten();
            let new: Vec<u32> = children
                .copied()
                .filter(|pid| !found.contains(pid))
                .collect();
            found.extend(new);
            next += 1;
        }
        found
    }
}

/// Adds the memory usage of a process and its descendants: that of its cgroup in `groups` (by
/// process id), otherwise the sum over its descendants. Blocks briefly.
pub(super) fn add_to(
    process: &mut ProcessInfo,
    groups: &HashMap<u32, Cgroup>,
    families: &ProcessTree,
) {
    let Some(pid) = process.pid else { return };
    let of_group = groups.get(&pid).and_then(Cgroup::memory_bytes);
    let family = || families.of(pid).into_iter();
    process.memory_bytes = of_group.or_else(|| {
        let sizes: Vec<u64> = family().filter_map(resident_bytes).collect();
        (!sizes.is_empty()).then(|| sizes.into_iter().sum())
    });
    if process.limits.memory_bytes.is_some() {
        // Without a cgroup, the limit applies to each process separately.
        let largest = || family().filter_map(|pid| bytes_of(pid, COUNTED)).max();
        process.counted_memory_bytes = of_group.or_else(largest);
    }
}

/// Returns the resident memory of a process. Shared pages count proportionally if the system
/// reports that, otherwise fully.
fn resident_bytes(pid: u32) -> Option<u64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok();
    let proportional = rollup.and_then(|rollup| kibibytes_in(&rollup, PROPORTIONAL));
    proportional.or_else(|| bytes_of(pid, RESIDENT))
}

/// Resident memory in `smaps_rollup`, with shared pages counted proportionally.
const PROPORTIONAL: &str = "Pss:";
/// Resident memory in `status`.
const RESIDENT: &str = "VmRSS:";
/// Memory that counts toward a process's limit without a cgroup.
const COUNTED: &str = "VmData:";

/// A field of `status` in bytes; `None` if the process is gone or the field is missing.
fn bytes_of(pid: u32, what: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    kibibytes_in(&status, what)
}

/// Returns a field of the text in bytes.
fn kibibytes_in(text: &str, what: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(what))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn taken(pid: Option<u32>, limits: &serde_json::Value) -> ProcessInfo {
        let process = json!({
            "workspaceId": "w", "role": "agent", "name": "clerk", "state": "idle", "pid": pid,
            "consecutiveCrashes": 0, "pendingEvents": 0, "limits": limits,
        });
        let mut process = serde_json::from_value(process).unwrap();
        add_to(&mut process, &HashMap::new(), &ProcessTree::read());
        process
    }

    #[test]
    fn only_a_running_process_has_a_memory_size() {
        let own = Some(std::process::id());
        let free = taken(own, &json!({}));
        assert_eq!(free.counted_memory_bytes, None);
        let limited = taken(own, &json!({"memoryBytes": 1}));
        if cfg!(target_os = "linux") {
            assert!(free.memory_bytes > Some(100_000), "{free:?}");
            assert!(limited.counted_memory_bytes.is_some(), "{limited:?}");
        }
        assert_eq!(taken(None, &json!({})).memory_bytes, None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn ctl_1_memory_includes_descendant_processes() {
        let size = 64 << 20;
        // A shell that waits for a program that allocates this much memory.
        let program = format!("x=$(head -c {size} /dev/zero | tr '\\0' x); echo held; read y");
        let mut outer = std::process::Command::new("sh")
            .args([
                "-c",
                &format!("sh -c '{}'; true", program.replace('\'', "'\\''")),
            ])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut text = String::new();
        let mut stdout = std::io::BufReader::new(outer.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut stdout, &mut text).unwrap();
        assert_eq!(text, "held\n");
        let taken = taken(Some(outer.id()), &json!({"memoryBytes": 1}));
        let alone = bytes_of(outer.id(), RESIDENT);
        drop(outer.stdin.take());
        outer.wait().unwrap();
        assert!(alone < Some(size), "{alone:?}");
        assert!(taken.memory_bytes >= Some(size), "{taken:?}");
        assert!(taken.counted_memory_bytes >= Some(size), "{taken:?}");
    }
}
