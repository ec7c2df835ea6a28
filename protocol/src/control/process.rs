//! What clients are told of child processes.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use crate::ids::{ApprovalId, InstanceKey, QuestionId, TurnId, WorkspaceId};
use crate::ipc::ChildRole;
use crate::limits::MAX_PROCESSES_PAGE;
use crate::process_limits::ProcessLimits;
use crate::sandbox::{Facts, Level};
use crate::time::Timestamp;
use crate::trace::TraceId;

use super::paging::page_of;

/// How much the moment at which a start is due may differ for it to be the same, in milliseconds: it is counted by
/// another clock than the one that people read.
const SAME_MOMENT_MS: u64 = 1_000;

/// `daemon.processes`: one page of the processes there are, by workspace, kind and name (`OBS-1`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListProcesses {
    /// Only this workspace's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    /// Where the page begins: what the page before said in `next`; none for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<ProcessKey>,
    /// Most processes on the page, at most and if it is not said [`MAX_PROCESSES_PAGE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// Result of `daemon.processes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessesPage {
    /// The processes.
    pub processes: Vec<ProcessInfo>,
    /// Where the next page begins; none on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<ProcessKey>,
}

impl ListProcesses {
    /// The page that begins with these processes, which come in the order of their keys and are all behind
    /// [`after`](Self::after).
    pub fn page_of(&self, processes: impl Iterator<Item = ProcessInfo>) -> ProcessesPage {
        let (processes, next) =
            page_of(processes, self.limit, MAX_PROCESSES_PAGE, ProcessInfo::key);
        ProcessesPage { processes, next }
    }
}

/// `process.watch`: the processes, and each that is another way than it was told, as `process.change`
/// notifications. Ends when the workspace is stopped, or its client goes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WatchProcesses {
    /// Only this workspace's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    /// Also those of which only the memory is different.
    #[serde(default)]
    pub memory: bool,
}

/// The parameters of [`super::PROCESS_CHANGE`]: a part of what is different.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessChange {
    /// The request that watches.
    pub request_id: u64,
    /// When it was looked.
    pub at: Timestamp,
    /// The processes that are new or different, as they are.
    pub processes: Vec<ProcessInfo>,
    /// Those that are not there any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<ProcessKey>,
    /// Whether more of the same look follows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
}

/// Which process: of all that are known at a time no other has the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProcessKey {
    /// Its workspace.
    pub workspace_id: WorkspaceId,
    /// What it is.
    pub role: ChildRole,
    /// An agent's conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_key: Option<InstanceKey>,
    /// The name of the agent, the connection, the model or the task.
    pub name: String,
}

/// What processes are ordered by.
type Place<'a> = (&'a WorkspaceId, u8, Option<&'a InstanceKey>, &'a str);

fn place<'a>(
    workspace_id: &'a WorkspaceId,
    role: ChildRole,
    instance_key: Option<&'a InstanceKey>,
    name: &'a str,
) -> Place<'a> {
    // Those of which there are many, at last.
    let rank = match role {
        ChildRole::Connector => 0,
        ChildRole::Model => 1,
        ChildRole::Task => 2,
        ChildRole::Agent => 3,
    };
    (workspace_id, rank, instance_key, name)
}

impl ProcessKey {
    fn place(&self) -> Place<'_> {
        let key = self.instance_key.as_ref();
        place(&self.workspace_id, self.role, key, &self.name)
    }

    /// Whether the process of a workspace that is of this kind, conversation and name comes behind this one.
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
    /// Started; its handshake is not done.
    Spawning,
    /// Ready, with nothing to do.
    Idle,
    /// An agent in a turn; a connector or a model with an outgoing call.
    Processing,
    /// Told to stop; finishes what is in progress.
    Draining,
    /// Ended as it was asked to.
    Terminated,
    /// Ended as it was not asked to; a new one starts at once.
    Crashed,
    /// Crashed too often; a new one starts after a delay.
    CrashLoopBackOff,
}

impl ProcessState {
    /// The state as it is written.
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

/// What a connector or the process of a model says of its own work (`OBS-6`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Readiness {
    /// It has said nothing yet.
    Starting,
    /// It does its work: it listens, or is connected.
    Ready,
    /// It runs and cannot do its work; `detail` says why.
    NotReady,
}

impl Readiness {
    /// The word as people read it.
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
    /// What it is.
    pub role: ChildRole,
    /// The agent's or the connection's name.
    pub name: String,
    /// An agent's conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_key: Option<InstanceKey>,
    /// Its state.
    pub state: ProcessState,
    /// Of a connector or a model that runs: whether it can do its work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readiness: Option<Readiness>,
    /// Its process id, while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// When the running process started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// Crashes since the last completed turn.
    pub consecutive_crashes: u32,
    /// When the next start is due, in back-off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_start_at: Option<Timestamp>,
    /// Events waiting, the one in its turn included.
    pub pending_events: usize,
    /// The turn in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    /// Its trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<TraceId>,
    /// Whose answers its turn waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting_for: Vec<InstanceKey>,
    /// The logins at authorization servers that its turn waits for, such as `OAuthApp/github`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub consents: Vec<String>,
    /// The tool calls of its turn that wait for a person to approve them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<ApprovalId>,
    /// The questions whose answers by a person its turn waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<QuestionId>,
    /// What it says it does, or how the last one ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Memory it takes now with all that it started, in bytes; only where the system tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// How much of its memory counts against its limit, in bytes, if it has one: what the largest of its processes
    /// asked for of its own, or where it has a control group, all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_memory_bytes: Option<u64>,
    /// How much of the machine it may take; none while it does not run.
    #[serde(default, skip_serializing_if = "ProcessLimits::is_none")]
    pub limits: ProcessLimits,
    /// How it and what it starts are confined, while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confinement: Option<Confinement>,
}

impl ProcessInfo {
    /// Which it is.
    #[must_use]
    pub fn key(&self) -> ProcessKey {
        ProcessKey {
            workspace_id: self.workspace_id.clone(),
            role: self.role,
            instance_key: self.instance_key.clone(),
            name: self.name.clone(),
        }
    }

    /// Whether nothing is different but how much memory it takes, which always is.
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
            memory_bytes: other.memory_bytes,
            counted_memory_bytes: other.counted_memory_bytes,
            ..self.clone()
        };
        is_same_start && as_other == *other
    }
}

/// How a process that runs is confined, right by right (`SEC-3`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Confinement {
    /// What the kernel holds the process itself to, as it says.
    pub own: Facts,
    /// Why that is not all that a process of its kind holds itself to; absent if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacks: Option<String>,
    /// The programs that it starts; absent if it starts none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub programs: Option<Achieved>,
}

/// A level, and what the kernel holds for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Achieved {
    /// The level.
    pub level: Level,
    /// What is held.
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
    fn obs_1_the_pages_of_processes_miss_and_repeat_nothing_whatever_changes() {
        let all = ["inbox", "big", "t", "b", "a"];
        for limit in [1, 2, 3, 4, 5, 6, MAX_PROCESSES_PAGE + 1] {
            let list = ListProcesses {
                limit: Some(limit),
                ..ListProcesses::default()
            };
            assert_eq!(named(list.clone(), |_| {}), all, "{limit}");
            // What comes before a page changes nothing of it, and what is gone is nowhere any more.
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
