//! How much memory processes take, for people to look at.

use std::collections::HashMap;
use std::fs;

use serde_json::Value;

use super::cgroups::Cgroup;

/// Adds to each process of an answer how much memory it takes now: with all it started, if it has one of
/// `groups`, which are by process id. Blocks, if only for moments.
pub(super) fn add_to(processes: &mut Value, groups: &HashMap<u64, Cgroup>) {
    for process in processes.as_array_mut().into_iter().flatten() {
        let pid = process.get("pid").and_then(Value::as_u64);
        let Some(pid) = pid else { continue };
        let of_group = groups.get(&pid).and_then(Cgroup::memory_bytes);
        let taken = of_group.or_else(|| bytes_of(pid, RESIDENT));
        let is_limited = process.pointer("/limits/memoryBytes").is_some();
        let counted = of_group.or_else(|| bytes_of(pid, COUNTED));
        let counted = counted.filter(|_| is_limited);
        let found = [("memoryBytes", taken), ("countedMemoryBytes", counted)];
        if let Some(fields) = process.as_object_mut() {
            for (name, bytes) in found {
                if let Some(bytes) = bytes {
                    fields.insert(name.to_owned(), Value::from(bytes));
                }
            }
        }
    }
}

/// What a process has in memory.
const RESIDENT: &str = "VmRSS:";
/// What of a process counts against its limit, where it has no control group.
const COUNTED: &str = "VmData:";

/// One of these, in bytes; none if the process is gone or the system does not tell.
fn bytes_of(pid: u64, what: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(what))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_runs_has_a_size_and_what_does_not_has_none() {
        let mut processes = json!([
            {"pid": std::process::id()},
            {"name": "down"},
            {"pid": std::process::id(), "limits": {"memoryBytes": 1}},
        ]);
        add_to(&mut processes, &HashMap::new());
        if cfg!(target_os = "linux") {
            assert!(
                processes[0]["memoryBytes"].as_u64() > Some(100_000),
                "{processes}"
            );
        }
        assert_eq!(processes[1], json!({"name": "down"}));
        assert!(processes[0].get("countedMemoryBytes").is_none());
        if cfg!(target_os = "linux") {
            assert!(processes[2]["countedMemoryBytes"].is_u64(), "{processes}");
        }
    }
}
