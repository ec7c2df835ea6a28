//! How much memory processes take, for people to look at.

use std::collections::HashMap;
use std::fs;

use goondan_protocol::control::ProcessInfo;

use super::cgroups::Cgroup;

/// Adds to a process how much memory it takes now: with all it started, if it has one of `groups`, which are by
/// process id. Blocks, if only for moments.
pub(super) fn add_to(process: &mut ProcessInfo, groups: &HashMap<u32, Cgroup>) {
    let Some(pid) = process.pid else { return };
    let of_group = groups.get(&pid).and_then(Cgroup::memory_bytes);
    process.memory_bytes = of_group.or_else(|| bytes_of(pid, RESIDENT));
    if process.limits.memory_bytes.is_some() {
        process.counted_memory_bytes = of_group.or_else(|| bytes_of(pid, COUNTED));
    }
}

/// What a process has in memory.
const RESIDENT: &str = "VmRSS:";
/// What of a process counts against its limit, where it has no control group.
const COUNTED: &str = "VmData:";

/// One of these, in bytes; none if the process is gone or the system does not tell.
fn bytes_of(pid: u32, what: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(what))?;
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
        add_to(&mut process, &HashMap::new());
        process
    }

    #[test]
    fn what_runs_has_a_size_and_what_does_not_has_none() {
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
}
