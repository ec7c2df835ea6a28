//! Child processes as shown to clients.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use crate::ids::{ApprovalId, InstanceKey, QuestionId, TurnId, WorkspaceId};
use crate::ignored_messages::IgnoredCounts;
use crate::ipc::ChildRole;
use crate::limits::MAX_PROCESSES_PAGE;
use crate::process_limits::ProcessLimits;
use crate::sandbox::{Facts, Level};
use crate::time::Timestamp;
use crate::trace::TraceId;

use super::pages::page_of;

/// Largest difference between two due times of the same start, in milliseconds. Due times vary
/// because they are converted from the monotonic clock.
const SAME_MOMENT_MS: u64 = 1_000;

/// `daemon.processes`: one page of the child processes, sorted by workspace, kind and name
/// (`OBS-1`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListProcesses {
    /// Return only processes of this workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    /// Start of the page: `next` of the previous page; absent for the first page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<ProcessKey>,
    /// Page size; defaults to and is capped at [`MAX_PROCESSES_PAGE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// Result of `daemon.processes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessesPage {
    /// The processes.
    pub processes: Vec<ProcessInfo>,
    /// Start of the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<ProcessKey>,
}

impl ListProcesses {
    /// The page that starts with these processes, which must be sorted by key and all follow
    /// [`after`](Self::after).
    pub fn page_of(&self, processes: impl Iterator<Item = ProcessInfo>) -> ProcessesPage {
        let (processes, next) =
            page_of(processes, self.limit, MAX_PROCESSES_PAGE, ProcessInfo::key);
        ProcessesPage { processes, next }
    }
}

/// `process.watch`: subscribes to processes. Sends all of them first and then each change, as
/// `process.change` notifications. Ends when the workspace is stopped or the client disconnects.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WatchProcesses {
    /// Watch only processes of this workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    /// True to also report changes of memory usage alone.
    #[serde(default)]
    pub memory: bool,
}

/// The parameters of [`super::PROCESS_CHANGE`]: some of the changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessChange {
    /// The request that subscribed.
    pub request_id: u64,
    /// Time of the observation.
    pub at: Timestamp,
    /// New and changed processes.
    pub processes: Vec<ProcessInfo>,
    /// Processes that no longer exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<ProcessKey>,
    /// True if more changes of the same observation follow.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
}

/// Identifies a process uniquely among all current ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProcessKey {
    /// Its workspace.
    pub workspace_id: WorkspaceId,
    /// Its role.
    pub role: ChildRole,
    /// The conversation, for agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_key: Option<InstanceKey>,
    /// The name of the agent, the connection, the model or the task.
    pub name: String,
}

/// Sort key of processes.
type ProcessSortKey<'a> = (&'a WorkspaceId, u8, Option<&'a InstanceKey>, &'a str);

fn place<'a>(
    workspace_id: &'a WorkspaceId,
    role: ChildRole,
    instance_key: Option<&'a InstanceKey>,
    name: &'a str,
) -> ProcessSortKey<'a> {
    // The most numerous kind comes last.
    let rank = match role {
        ChildRole::Connector => 0,
        ChildRole::Model => 1,
        ChildRole::Task => 2,
        ChildRole::Agent => 3,
    };
    (workspace_id, rank, instance_key, name)
}

impl ProcessKey {
    fn place(&self) -> ProcessSortKey<'_> {
        let key = self.instance_key.as_ref();
        place(&self.workspace_id, self.role, key, &self.name)
    }

    /// True if the given process sorts after this one.
    #[must_use]
    pub fn is_before(
        &self,
        workspace_id: &WorkspaceId,
        role: ChildRole,
        instance_key: Option<&InstanceKey>,
        name: &str,
    ) -> bool {
        self.place() < place(workspace_id, role, instance_key, name)
    }
}

impl Ord for ProcessKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.place().cmp(&other.place())
    }
}

impl PartialOrd for ProcessKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The state of a child process (`SUP-2`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ProcessState {
    /// Started; the handshake is not finished.
    Spawning,
    /// Ready and without work.
    Idle,
    /// An agent in a turn, or a connector or model with an outgoing call.
    Processing,
    /// Was requested to stop; finishes work in progress.
    Draining,
    /// Ended as requested.
    Terminated,
    /// Ended unexpectedly; a new process starts immediately.
    Crashed,
    /// Crashed too often; a new process starts after a delay.
    CrashLoopBackOff,
}

impl ProcessState {
    /// The serialized form of the state.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Spawning => "spawning",
            Self::Idle => "idle",
            Self::Processing => "processing",
            Self::Draining => "draining",
            Self::Terminated => "terminated",
            Self::Crashed => "crashed",
            Self::CrashLoopBackOff => "crashLoopBackOff",
        }
    }
}

/// Readiness reported by a connector or the process of a model (`OBS-6`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Readiness {
    /// No report yet.
    Starting,
    /// Works: it listens or is connected.
    Ready,
    /// Runs but cannot work; `detail` contains the reason.
    NotReady,
}

impl Readiness {
    /// The name shown to people.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::NotReady => "not ready",
        }
    }
}

/// One child process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessInfo {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// Its role.
    pub role: ChildRole,
    /// The agent's or the connection's name.
    pub name: String,
    /// The conversation, for agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_key: Option<InstanceKey>,
    /// Its state.
    pub state: ProcessState,
    /// Readiness of a running connector or model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readiness: Option<Readiness>,
    /// Its process id, while running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Start time of the running process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// Crashes since the last completed turn.
    pub consecutive_crashes: u32,
    /// Due time of the next start, in back-off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_start_at: Option<Timestamp>,
    /// Number of pending events, including the one of the current turn.
    pub pending_events: usize,
    /// The turn in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    /// The trace of the turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<TraceId>,
    /// Conversations whose answers its turn waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting_for: Vec<InstanceKey>,
    /// Logins at authorization servers that its turn waits for, such as `OAuthApp/github`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub consents: Vec<String>,
    /// Tool calls of its turn that wait for approval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<ApprovalId>,
    /// Questions to people that its turn waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<QuestionId>,
    /// Events that a connection passed over since the daemon started, by reason.
    #[serde(default, skip_serializing_if = "IgnoredCounts::is_empty")]
    pub ignored: IgnoredCounts,
    /// Accesses that the sandbox seems to have refused to an agent's programs since the daemon
    /// started, with its current permissions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<SandboxRefusals>,
    /// Its reported activity, or the exit status of the last process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Memory used by the process and its descendants, in bytes; absent if the system does not
    /// report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Memory that counts against its limit, in bytes; absent without a limit. In a control group
    /// this is all memory, otherwise the private memory of its largest process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_memory_bytes: Option<u64>,
    /// Resource limits; empty while it does not run.
    #[serde(default, skip_serializing_if = "ProcessLimits::is_none")]
    pub limits: ProcessLimits,
    /// Confinement of the process and the programs it starts, while running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confinement: Option<Confinement>,
}

impl ProcessInfo {
    /// The key of the process.
    #[must_use]
    pub fn key(&self) -> ProcessKey {
        ProcessKey {
            workspace_id: self.workspace_id.clone(),
            role: self.role,
            instance_key: self.instance_key.clone(),
            name: self.name.clone(),
        }
    }

    /// True if the processes are equal apart from memory usage and counts of ignored events and
    /// refused accesses, which change constantly.
    #[must_use]
    pub fn is_as(&self, other: &Self) -> bool {
        let is_same_start = match (self.next_start_at, other.next_start_at) {
            (Some(one), Some(other)) => {
                one.as_unix_millis().abs_diff(other.as_unix_millis()) < SAME_MOMENT_MS
            }
            (one, other) => one == other,
        };
        let as_other = Self {
            next_start_at: other.next_start_at,
            ignored: other.ignored.clone(),
            refused: other.refused.clone(),
            memory_bytes: other.memory_bytes,
            counted_memory_bytes: other.counted_memory_bytes,
            ..self.clone()
        };
        is_same_start && as_other == *other
    }
}

/// Accesses that the sandbox seems to have refused to the programs of an agent's conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxRefusals {
    /// Number of tool calls with a refused access.
    pub count: u64,
    /// The latest one, with the setting that allows it.
    pub last: String,
    /// Time of the latest one.
    pub at: Timestamp,
}

/// Confinement of a running process, right by right (`SEC-3`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Confinement {
    /// Rights that the kernel enforces on the process itself, as it reports them.
    pub own: Facts,
    /// Reason why the confinement is weaker than intended for this kind of process; absent if it is
    /// complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacks: Option<String>,
    /// Confinement of the programs it starts; absent if it starts none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub programs: Option<AchievedConfinement>,
}

/// A confinement level and the rights that the kernel enforces for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AchievedConfinement {
    /// The level.
    pub level: Level,
    /// The enforced rights.
    pub rights: Facts,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn process(role: &str, name: &str, instance: Option<&str>) -> ProcessInfo {
        let mut process = json!({
            "workspaceId": "w", "role": role, "name": name, "state": "idle",
            "consecutiveCrashes": 0, "pendingEvents": 0,
        });
        if let Some(instance) = instance {
            process["instanceKey"] = json!(instance);
        }
        serde_json::from_value(process).unwrap()
    }

    fn named(mut list: ListProcesses, change: impl Fn(&mut Vec<ProcessInfo>)) -> Vec<String> {
        let mut there = vec![
            process("agent", "b", Some("a")),
            process("task", "t", None),
            process("agent", "a", Some("b")),
            process("model", "big", None),
            process("connector", "inbox", None),
        ];
        let mut named = Vec::new();
        loop {
            there.sort_by_key(ProcessInfo::key);
            let behind = there
                .iter()
                .filter(|one| list.after.as_ref() < Some(&one.key()));
            let page = list.page_of(behind.cloned());
            named.extend(page.processes.into_iter().map(|one| one.name));
            list.after = page.next;
            if list.after.is_none() {
                return named;
            }
            change(&mut there);
        }
    }

    #[test]
    fn obs_1_process_pages_miss_and_repeat_nothing_under_changes() {
        let all = ["inbox", "big", "t", "b", "a"];
        for limit in [1, 2, 3, 4, 5, 6, MAX_PROCESSES_PAGE + 1] {
            let list = ListProcesses {
                limit: Some(limit),
                ..ListProcesses::default()
            };
            assert_eq!(named(list.clone(), |_| {}), all, "{limit}");
            // Changes before a page do not affect it, and ended processes are not listed.
            let changed = named(list, |there| {
                there.retain(|one| one.name != "inbox");
                there.push(process("connector", "aa", None));
                there[0].pending_events += 1;
            });
            assert_eq!(changed, all, "{limit}");
        }
    }

    #[test]
    fn memory_and_another_clock_make_no_difference() {
        let one = ProcessInfo {
            next_start_at: Some(Timestamp::from_unix_millis(10_000)),
            memory_bytes: Some(1),
            ..process("agent", "a", Some("b"))
        };
        let mut other = ProcessInfo {
            next_start_at: Some(Timestamp::from_unix_millis(10_002)),
            memory_bytes: Some(2),
            counted_memory_bytes: Some(3),
            ..one.clone()
        };
        assert!(one.is_as(&other));
        other.next_start_at = Some(Timestamp::from_unix_millis(12_000));
        assert!(!one.is_as(&other));
        other.next_start_at = None;
        assert!(!one.is_as(&other));
        other.next_start_at = one.next_start_at;
        other.state = ProcessState::Processing;
        assert!(!one.is_as(&other));
    }
}
