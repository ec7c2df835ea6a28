//! Clients that watch processes (`OBS-1`). While there are any, the processes are checked
//! regularly, and each client receives the differences from its previous state.

use std::cell::LazyCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use goondan_log::unix_millis_now;
use goondan_protocol::control::{
    JsonRpc, Notification, PROCESS_CHANGE, ProcessChange, ProcessInfo, ProcessKey, WatchProcesses,
};
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::limits::MAX_PROCESSES_PAGE;
use goondan_protocol::time::Timestamp;
use tokio::sync::mpsc;

use super::cgroups::Cgroup;
use super::control::client::ControlClient;
use super::memory::{self, ProcessTree};
use crate::limits::{PROCESS_LOOK_REST_FACTOR, PROCESS_LOOKS_OF_MEMORY};
use goondan_core::{Core, RequestToken};

/// The cgroups of processes, by process id.
pub(super) type Groups = Arc<HashMap<u32, Cgroup>>;

#[derive(Debug, Default)]
pub(super) struct ProcessWatches {
    watches: BTreeMap<RequestToken, ProcessWatch>,
    looks: u64,
    /// Time of the next check.
    next: Option<Instant>,
}

#[derive(Debug)]
struct ProcessWatch {
    only: Option<WorkspaceId>,
    looks: mpsc::Sender<ProcessScan>,
}

/// A snapshot of the processes.
#[derive(Debug)]
pub(super) struct ProcessScan {
    at: Timestamp,
    processes: Vec<ProcessInfo>,
    groups: Groups,
    /// True if the memory of all processes is measured too.
    with_memory: bool,
}

impl ProcessScan {
    fn new(processes: Vec<ProcessInfo>, groups: &Groups, with_memory: bool) -> Self {
        Self {
            at: Timestamp::from_unix_millis(unix_millis_now()),
            processes,
            groups: groups.clone(),
            with_memory,
        }
    }
}

impl ProcessWatches {
    /// Adds a client with the current state. Returns the receiver of its snapshots for [`tell`].
    pub(super) fn add(
        &mut self,
        token: RequestToken,
        watch: &WatchProcesses,
        processes: Vec<ProcessInfo>,
        groups: &Groups,
    ) -> mpsc::Receiver<ProcessScan> {
        let (looks, told) = mpsc::channel(1);
        // The channel is empty, so this cannot fail.
        drop(looks.try_send(ProcessScan::new(processes, groups, true)));
        let only = watch.workspace_id.clone();
        self.watches.insert(token, ProcessWatch { only, looks });
        told
    }

    /// Removes a client.
    pub(super) fn forget(&mut self, token: RequestToken) {
        self.watches.remove(&token);
    }

    /// True if a check is due.
    pub(super) fn is_due(&self) -> bool {
        let has_rested = self.next.is_none_or(|next| next <= Instant::now());
        !self.watches.is_empty() && has_rested
    }

    /// Takes snapshots. Returns the requests whose workspace was closed and whose watch has ended.
    pub(super) fn look(&mut self, core: &Core, groups: &Groups) -> Vec<RequestToken> {
        let began = Instant::now();
        let with_memory = self.looks.is_multiple_of(PROCESS_LOOKS_OF_MEMORY);
        self.looks = self.looks.wrapping_add(1);
        let mut over = Vec::new();
        for (token, watch) in &self.watches {
            // A client that is still processing the previous snapshot gets a later one.
            let Ok(place) = watch.looks.try_reserve() else {
                continue;
            };
            match core.watched_processes(watch.only.as_ref()) {
                Ok(processes) => place.send(ProcessScan::new(processes, groups, with_memory)),
                Err(_) => over.push(*token),
            }
        }
        for token in &over {
            self.watches.remove(token);
        }
        let took = began.elapsed();
        self.next = Some(began + took * PROCESS_LOOK_REST_FACTOR);
        over
    }
}

/// Sends a client the differences, snapshot by snapshot.
pub(super) async fn tell(
    client: ControlClient,
    request_id: u64,
    memory: bool,
    mut looks: mpsc::Receiver<ProcessScan>,
) {
    let mut known = None;
    while let Some(look) = looks.recv().await {
        let at = look.at;
        // Measuring the memory of many processes takes time.
        let compared = tokio::task::spawn_blocking(move || compare(known, look, memory));
        let Ok((now, parts)) = compared.await else {
            return;
        };
        known = Some(now);
        for part in parts {
            client.send(&Notification {
                jsonrpc: JsonRpc,
                method: PROCESS_CHANGE,
                params: ProcessChange {
                    request_id,
                    at,
                    processes: part.processes,
                    gone: part.gone,
                    more: part.more,
                },
            });
        }
    }
}

/// The processes as reported to a client.
type ReportedProcesses = BTreeMap<ProcessKey, ProcessInfo>;

#[derive(Debug, Default, PartialEq)]
struct ProcessDiffPart {
    processes: Vec<ProcessInfo>,
    gone: Vec<ProcessKey>,
    more: bool,
}

/// Computes the differences of a snapshot and the new state. The first snapshot is always reported,
/// even if empty.
fn compare(
    known: Option<ReportedProcesses>,
    look: ProcessScan,
    memory: bool,
) -> (ReportedProcesses, Vec<ProcessDiffPart>) {
    let is_first = known.is_none();
    let mut before = known.unwrap_or_default();
    let mut after = ReportedProcesses::new();
    let mut different = Vec::new();
    let families = LazyCell::new(ProcessTree::read);
    for mut process in look.processes {
        let key = process.key();
        let old = before.remove(&key).filter(|old| old.is_as(&process));
        if let Some(old) = old {
            if !memory || !look.with_memory {
                after.insert(key, old);
                continue;
            }
            memory::add_to(&mut process, &look.groups, &families);
            let sizes = |of: &ProcessInfo| (of.memory_bytes, of.counted_memory_bytes);
            if sizes(&old) == sizes(&process) {
                after.insert(key, old);
                continue;
            }
        } else {
            memory::add_to(&mut process, &look.groups, &families);
        }
        different.push(process.clone());
        after.insert(key, process);
    }
    let gone: Vec<ProcessKey> = before.into_keys().collect();
    let mut parts = parts_of(different, gone);
    if is_first && parts.is_empty() {
        parts.push(ProcessDiffPart::default());
    }
    (after, parts)
}

fn parts_of(mut processes: Vec<ProcessInfo>, mut gone: Vec<ProcessKey>) -> Vec<ProcessDiffPart> {
    let mut parts = Vec::new();
    while !processes.is_empty() || !gone.is_empty() {
        let later = processes.split_off(MAX_PROCESSES_PAGE.min(processes.len()));
        let gone_later = gone.split_off(MAX_PROCESSES_PAGE.min(gone.len()));
        parts.push(ProcessDiffPart {
            processes: std::mem::replace(&mut processes, later),
            gone: std::mem::replace(&mut gone, gone_later),
            more: !processes.is_empty() || !gone.is_empty(),
        });
    }
    parts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn process(name: &str, state: &str) -> ProcessInfo {
        serde_json::from_value(json!({
            "workspaceId": "w", "role": "agent", "name": "clerk", "instanceKey": name,
            "state": state, "pid": std::process::id(), "consecutiveCrashes": 0, "pendingEvents": 0,
        }))
        .unwrap()
    }

    fn look(processes: Vec<ProcessInfo>, with_memory: bool) -> ProcessScan {
        ProcessScan::new(processes, &Groups::default(), with_memory)
    }

    fn names(parts: &[ProcessDiffPart]) -> Vec<String> {
        let all = parts.iter().flat_map(|part| {
            let there = part.processes.iter().map(ProcessInfo::key);
            let gone = part.gone.iter().cloned();
            let there = there.map(|key| (key, ""));
            there.chain(gone.map(|key| (key, " gone")))
        });
        let key = |key: ProcessKey| key.instance_key.unwrap();
        all.map(|(of, how)| format!("{}{how}", key(of))).collect()
    }

    #[test]
    fn obs_1_process_watcher_gets_only_differences() {
        let first = look(vec![process("a", "idle"), process("b", "idle")], true);
        let (known, parts) = compare(None, first, false);
        assert_eq!(names(&parts), ["a", "b"]);
        assert_eq!(known.len(), 2);
        let same = look(vec![process("a", "idle"), process("b", "idle")], true);
        let (known, parts) = compare(Some(known), same, false);
        assert_eq!(parts, []);
        let now = look(
            vec![process("b", "processing"), process("c", "idle")],
            false,
        );
        let (known, parts) = compare(Some(known), now, false);
        assert_eq!(names(&parts), ["b", "c", "a gone"]);
        assert_eq!(
            names(&compare(Some(known), look(Vec::new(), false), false).1).len(),
            2
        );
        // An empty list is reported, too.
        assert_eq!(
            compare(None, look(Vec::new(), false), false).1,
            [ProcessDiffPart::default()]
        );
    }

    #[test]
    fn memory_is_sent_to_its_subscribers_at_each_measurement() {
        let of = |with_memory| look(vec![process("a", "idle")], with_memory);
        let (mut known, parts) = compare(None, of(false), true);
        if cfg!(target_os = "linux") {
            assert!(parts[0].processes[0].memory_bytes.is_some());
        }
        let key = process("a", "idle").key();
        known.get_mut(&key).unwrap().memory_bytes = Some(1);
        let (known, parts) = compare(Some(known), of(false), true);
        assert_eq!(names(&parts), Vec::<String>::new());
        let (_, parts) = compare(Some(known), of(true), true);
        assert_eq!(names(&parts), ["a"]);
    }

    #[test]
    fn obs_1_of_many_that_are_different_each_part_holds_so_many() {
        let of = |count: usize, state| {
            let names = (0..count).map(|number| format!("{number:05}"));
            let processes = names.map(|name| process(&name, state)).collect();
            look(processes, false)
        };
        let many = 2 * MAX_PROCESSES_PAGE + 1;
        let (known, parts) = compare(None, of(many, "idle"), false);
        let sizes: Vec<_> = parts
            .iter()
            .map(|part| (part.processes.len(), part.more))
            .collect();
        let full = (MAX_PROCESSES_PAGE, true);
        assert_eq!(sizes, [full, full, (1, false)]);
        let (_, parts) = compare(Some(known), of(1, "processing"), false);
        let sizes: Vec<_> = parts
            .iter()
            .map(|part| (part.processes.len(), part.gone.len(), part.more))
            .collect();
        let full = |changed| (changed, MAX_PROCESSES_PAGE, true);
        assert_eq!(sizes[0], full(1));
        assert_eq!(sizes[1], (0, MAX_PROCESSES_PAGE, false));
    }
}
