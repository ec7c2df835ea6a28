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
        let of_group = pid.and_then(|pid| groups.get(&pid)?.memory_bytes());
        let Some(bytes) = of_group.or_else(|| pid.and_then(resident_bytes)) else {
            continue;
        };
        if let Some(fields) = process.as_object_mut() {
            fields.insert("memoryBytes".to_owned(), Value::from(bytes));
        }
    }
}

/// What a process has in memory, in bytes; none if it is gone or the system does not tell.
fn resident_bytes(pid: u64) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_runs_has_a_size_and_what_does_not_has_none() {
        let mut processes = json!([{"pid": std::process::id()}, {"name": "down"}]);
        add_to(&mut processes, &HashMap::new());
        if cfg!(target_os = "linux") {
            assert!(
                processes[0]["memoryBytes"].as_u64() > Some(100_000),
                "{processes}"
            );
        }
        assert_eq!(processes[1], json!({"name": "down"}));
    }
}
