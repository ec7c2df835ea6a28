//! `workspace.*`: projects that the daemon runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize};

use crate::JsonObject;
use crate::ids::{AgentName, InstanceKey, ResourceName, WorkspaceId};
use crate::ipc::ChildRole;
use crate::limits::MAX_WORKSPACES_PAGE;
use crate::task::TaskId;
use crate::time::Timestamp;

use super::pages::page_of;
use super::process::{ProcessState, Readiness};
use super::workspace_permission::WorkspacePermission;

/// `workspace.open`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OpenWorkspace {
    /// The Project Root, absolute.
    pub project_root: PathBuf,
    /// True to watch its files from now on, false to stop; unchanged if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<bool>,
    /// Absolute paths of files that define environment variables; later files override earlier
    /// ones. Unchanged if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env_files: Option<Vec<PathBuf>>,
    /// The Swarm to run, or `null` for the project's first one; unchanged if absent.
    #[serde(
        default,
        deserialize_with = "null_or_value",
        skip_serializing_if = "Option::is_none"
    )]
    pub swarm: Option<Option<ResourceName>>,
}

/// Reads a field that is present. Otherwise, serde reads `null` like a missing field.
fn null_or_value<'de, D: Deserializer<'de>>(
    field: D,
) -> Result<Option<Option<ResourceName>>, D::Error> {
    Option::deserialize(field).map(Some)
}

/// One registered workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceInfo {
    /// Its id.
    pub workspace_id: WorkspaceId,
    /// Its Project Root.
    pub project_root: PathBuf,
    /// Name of the project's package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
    /// The agent that receives events without an explicit agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry_agent: Option<AgentName>,
    /// The Swarm that runs, if the project has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swarm: Option<ResourceName>,
    /// Further Swarms of the project, which do not run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub idle_swarms: Vec<ResourceName>,
    /// The project's default conversation key; `main` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_key: Option<InstanceKey>,
    /// Every agent.
    pub agents: Vec<AgentName>,
    /// Agents that are programs and run tasks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub task_agents: Vec<AgentName>,
    /// Every connection.
    pub connections: Vec<String>,
    /// Number of running agent processes.
    pub running_agents: usize,
    /// Number of pending events, including those whose turn runs.
    pub pending_events: usize,
    /// Number of pending events that a person paused.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub paused_events: usize,
    /// Number of parked events: their turns crashed too many processes, and a person must decide.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub parked_events: usize,
    /// Number of tool calls that wait for approval.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub approvals: usize,
    /// Number of tool calls with an unknown outcome that no person has resolved yet.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unknown_calls: usize,
    /// Number of questions that wait for a person's answer.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub questions: usize,
    /// Pending logins at authorization servers, such as `OAuthApp/github`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub consents: Vec<String>,
    /// Models that are not called at present, with the reason and the time of the next try.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub suspended: BTreeMap<ResourceName, String>,
    /// Models whose calls fail until a person acts, such as those with a rejected key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failing: BTreeMap<ResourceName, ModelFailures>,
    /// Permissions that it can use and about which no person has decided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undecided_permissions: Vec<WorkspacePermission>,
    /// Tasks whose newest checkpoint failed a restore drill; only the first few are listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_drills: Vec<TaskId>,
    /// Total number of failed drills, including unlisted ones.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed_drills_total: usize,
    /// Problems that keep conversations from using their own configuration, by conversation key;
    /// only the first few are listed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub bundle_problems: BTreeMap<InstanceKey, String>,
    /// Total number of bundle problems, including unlisted ones.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bundle_problems_total: usize,
    /// Set while the workspace's log confirms nothing and the daemon thus acknowledges nothing.
    /// Absent without a log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unacknowledged: Option<ReplicationStall>,
    /// SHA-256 of the active configuration, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_digest: Option<String>,
    /// Time since which it is active. For the last known good configuration: time since which it
    /// was the project's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_since: Option<Timestamp>,
    /// True if the last known good configuration is active because the project's own is invalid.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub last_known_good: bool,
    /// The way in which file changes are detected.
    #[serde(default)]
    pub watch: FileWatchMode,
    /// Watched files; only the first few are listed. Empty if files are not watched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub watched_files: Vec<PathBuf>,
    /// Total number of watched files, including unlisted ones.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub watched_files_total: usize,
    /// Its environment files; later files override earlier ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_files: Vec<PathBuf>,
    /// Problem that keeps it from running normally.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<WorkspaceProblem>,
    /// Processes that cannot do their work; only the first few are listed (`OBS-6`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unhealthy: Vec<UnhealthyProcess>,
    /// Total number of unhealthy processes, including unlisted ones.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unhealthy_total: usize,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "signature required by serde"
)]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// A process that cannot do its work: a connector that cannot listen, or any process in back-off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnhealthyProcess {
    /// Its role.
    pub role: ChildRole,
    /// The agent's, the connection's or the model's name.
    pub name: String,
    /// The conversation, for agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_key: Option<InstanceKey>,
    /// Its state.
    pub state: ProcessState,
    /// Readiness of a running connector or model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readiness: Option<Readiness>,
    /// The reason reported by the process, or the exit status of its last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Calls of a model in a row that failed for a reason that only a person can end (`PROV-1`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelFailures {
    /// Time of the first one.
    pub since: Timestamp,
    /// Their number.
    pub calls: u32,
    /// The last failure.
    pub reason: String,
    /// A suggested next action, which names the setting with the credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
}

/// State in which a workspace's log confirms nothing (`REP-1`); submitters of events wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicationStall {
    /// Start of this state.
    pub since: Timestamp,
    /// The reason, if known.
    pub reason: String,
}

impl WorkspaceInfo {
    /// True if everything in the workspace runs normally.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.problem.is_none()
            && self.unacknowledged.is_none()
            && self.unhealthy_total == 0
            && self.failing.is_empty()
            && self.parked_events == 0
    }

    /// The conversation to use: the named one, the project's default, or `main`.
    #[must_use]
    pub fn conversation(&self, named: Option<InstanceKey>) -> InstanceKey {
        let own = || self.conversation_key.clone();
        named.or_else(own).unwrap_or_else(InstanceKey::main)
    }
}

/// Way in which changes of a project's files are detected (`SUP-8`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FileWatchMode {
    /// Changes are not detected; a person restarts or reloads.
    #[default]
    Off,
    /// Watching is starting; the method is not known yet.
    Starting,
    /// The operating system reports changes.
    Events,
    /// The operating system cannot report changes; files are compared every few seconds.
    Polling,
}

impl FileWatchMode {
    /// The serialized form.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Starting => "starting",
            Self::Events => "events",
            Self::Polling => "polling",
        }
    }
}

/// Problem that keeps a workspace from running normally.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceProblem {
    /// The problem.
    pub message: String,
    /// A suggested fix.
    pub suggestion: String,
}

/// `workspace.list`: one page of the registered workspaces, sorted by id (`OBS-1`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListWorkspaces {
    /// Return only this workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    /// Return only workspaces with this absolute Project Root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_root: Option<PathBuf>,
    /// Start of the page: `next` of the previous page; absent for the first page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<WorkspaceId>,
    /// Page size; defaults to and is capped at [`MAX_WORKSPACES_PAGE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// Result of `workspace.list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkspacesPage {
    /// The workspaces, sorted by id.
    pub workspaces: Vec<WorkspaceInfo>,
    /// Start of the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<WorkspaceId>,
}

impl ListWorkspaces {
    /// True if a workspace matches the request and is not on an earlier page.
    #[must_use]
    pub fn is_asked_for(&self, id: &WorkspaceId, project_root: &Path) -> bool {
        let is_wanted = self.workspace_id.as_ref().is_none_or(|only| only == id);
        let is_there = self
            .project_root
            .as_deref()
            .is_none_or(|only| only == project_root);
        let is_behind = self.after.as_ref().is_none_or(|after| after < id);
        is_wanted && is_there && is_behind
    }

    /// The page that starts with these workspaces, which must be sorted by id and all
    /// [match](Self::is_asked_for).
    pub fn page_of(&self, workspaces: impl Iterator<Item = WorkspaceInfo>) -> WorkspacesPage {
        let place_of = |last: &WorkspaceInfo| last.workspace_id.clone();
        let (workspaces, next) = page_of(workspaces, self.limit, MAX_WORKSPACES_PAGE, place_of);
        WorkspacesPage { workspaces, next }
    }
}

/// `workspace.close`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CloseWorkspace {
    /// The workspace.
    pub workspace_id: WorkspaceId,
}

/// `workspace.restart`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Restart {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// Restart only this agent's processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// Restart only this conversation's process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_key: Option<InstanceKey>,
    /// Delete the conversations that are restarted, so that they start empty.
    #[serde(default)]
    pub fresh: bool,
}

/// Result of `workspace.restart`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestartResult {
    /// Number of processes that restart.
    pub processes: usize,
    /// Conversations that were deleted (`fresh`).
    pub removed: Vec<InstanceKey>,
}

/// `workspace.reload` (`SUP-8`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Reload {
    /// Reload only this workspace's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
}

/// Result of `workspace.reload`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReloadResult {
    /// The result for each workspace, sorted by id.
    pub workspaces: Vec<WorkspaceReload>,
}

/// Result of reloading one workspace's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceReload {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The changes; empty if the configuration is unchanged or could not be applied.
    pub changes: Vec<ConfigurationChange>,
    /// Number of processes that restart.
    pub processes: usize,
    /// The reason why the previous configuration remains active, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<WorkspaceProblem>,
    /// SHA-256 of the active configuration, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_digest: Option<String>,
    /// Time since which it is active. For the last known good configuration: time since which it
    /// was the project's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_since: Option<Timestamp>,
    /// True if the last known good configuration is active because the project's own is invalid.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub last_known_good: bool,
}

/// A difference between the previous and the active configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigurationChange {
    /// `Agent/clerk`, `Connection/hook`, or `Swarm` for a change that affects all resources. A
    /// change of an agent's model, prompt, tools or extensions is listed as a change of the agent.
    pub resource: String,
    /// The kind of change.
    pub change: ChangeKind,
}

/// Kind of change of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ChangeKind {
    /// The resource was added.
    Added,
    /// The resource was changed.
    Changed,
    /// The resource was removed.
    Removed,
}

impl ChangeKind {
    /// The serialized form.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Changed => "changed",
            Self::Removed => "removed",
        }
    }
}

/// `workspace.audit` (`INST-6`, `SEC-5`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReadAudit {
    /// Only records of this workspace; if absent, records of all workspaces and of the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    /// End of the page: `previous` of the following page; absent for the latest records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<AuditCursor>,
    /// Page size; defaults to and is capped at [`crate::limits::MAX_AUDIT_PAGE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// Position before a page: the number of bytes that precede it in each log. A log that is not
/// listed has none. Opaque to clients, which return it unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AuditCursor {
    /// Bytes of the system's own log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<u64>,
    /// Bytes of the logs of workspaces.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub workspaces: BTreeMap<WorkspaceId, u64>,
}

/// Result of `workspace.audit`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditLog {
    /// The records, newest last.
    pub records: Vec<AuditRecord>,
    /// End of the preceding page; absent if no earlier records exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<AuditCursor>,
    /// Number of unreadable lines that were skipped.
    pub unreadable: u64,
}

/// One line of an audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditRecord {
    /// The workspace; `None` for the system's own log, which records changes of secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    /// The record: `at`, `event`, and the fields of the event.
    pub record: JsonObject,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn info(id: &str) -> WorkspaceInfo {
        serde_json::from_value(json!({
            "workspaceId": id, "projectRoot": format!("/srv/{id}"), "agents": [], "connections": [],
            "runningAgents": 0, "pendingEvents": 0,
        }))
        .unwrap()
    }

    #[test]
    fn compat_1_null_selects_the_first_swarm() {
        for (field, expected) in [
            (json!({}), None),
            (json!({"swarm": null}), Some(None)),
            (
                json!({"swarm": "night"}),
                Some(ResourceName::new("night").ok()),
            ),
        ] {
            let mut request = json!({"projectRoot": "/p"});
            let fields = field.as_object().unwrap().clone();
            request.as_object_mut().unwrap().extend(fields);
            let open: OpenWorkspace = serde_json::from_value(request.clone()).unwrap();
            assert_eq!(open.swarm, expected);
            assert_eq!(json!(open), request);
        }
    }

    #[test]
    fn obs_1_the_pages_of_workspaces_miss_and_repeat_none() {
        for limit in [1, 2, 3, 4, MAX_WORKSPACES_PAGE + 1] {
            let mut there = vec![info("b"), info("c"), info("d"), info("e")];
            let mut list = ListWorkspaces {
                limit: Some(limit),
                ..ListWorkspaces::default()
            };
            let mut seen = Vec::new();
            loop {
                let asked = there.iter();
                let asked =
                    asked.filter(|info| list.is_asked_for(&info.workspace_id, &info.project_root));
                let page = list.page_of(asked.cloned());
                assert!(page.workspaces.len() <= limit);
                seen.extend(page.workspaces.iter().map(|it| it.workspace_id.to_string()));
                list.after = page.next;
                if list.after.is_none() {
                    break;
                }
                // Changes before a page do not affect it, and deleted workspaces are not listed.
                there.retain(|info| info.workspace_id.as_str() != "b");
                there.insert(0, info("a"));
            }
            assert_eq!(seen, ["b", "c", "d", "e"], "{limit}");
        }
    }

    #[test]
    fn one_workspace_is_asked_for_by_its_id_or_its_place() {
        let (b, c) = (info("b"), info("c"));
        let is_asked = |list: &ListWorkspaces, info: &WorkspaceInfo| {
            list.is_asked_for(&info.workspace_id, &info.project_root)
        };
        let by_id: ListWorkspaces = serde_json::from_value(json!({"workspaceId": "c"})).unwrap();
        let at: ListWorkspaces = serde_json::from_value(json!({"projectRoot": "/srv/c"})).unwrap();
        for list in [by_id, at] {
            assert!(is_asked(&list, &c) && !is_asked(&list, &b), "{list:?}");
        }
    }
}
