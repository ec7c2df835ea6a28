//! `workspace.*`: projects that the daemon runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::JsonObject;
use crate::ids::{AgentName, InstanceKey, WorkspaceId};
use crate::ipc::ChildRole;
use crate::limits::MAX_WORKSPACES_PAGE;
use crate::task::TaskId;
use crate::time::Timestamp;

use super::paging::page_of;
use super::process::{ProcessState, Readiness};

/// `workspace.open`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OpenWorkspace {
    /// The Project Root, absolute.
    pub project_root: PathBuf,
    /// Whether its files are watched from now on; as it was if this is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<bool>,
    /// Files to take environment variables from, absolute, the one that wins last; those it had if this
    /// is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env_files: Option<Vec<PathBuf>>,
}

/// One registered workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceInfo {
    /// Its id.
    pub workspace_id: WorkspaceId,
    /// Its Project Root.
    pub project_root: PathBuf,
    /// The package's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
    /// The agent that gets what names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry_agent: Option<AgentName>,
    /// The conversation that is meant when none is named, if the project says which; otherwise `main`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_key: Option<InstanceKey>,
    /// Every agent.
    pub agents: Vec<AgentName>,
    /// Every agent that is a program and works for tasks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub task_agents: Vec<AgentName>,
    /// Every connection.
    pub connections: Vec<String>,
    /// Agent processes that run.
    pub running_agents: usize,
    /// Events that wait for their turn or are in it.
    pub pending_events: usize,
    /// Those of them that a person has wait until they are resumed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub paused_events: usize,
    /// Events that are parked: their turns crashed too many processes, and a person has to decide.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub parked_events: usize,
    /// Tool calls that wait for a person to approve them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub approvals: usize,
    /// Tool calls of which nobody knows if they had their effect, and that no person has looked after.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unknown_calls: usize,
    /// Questions that wait for a person's answer.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub questions: usize,
    /// The logins at authorization servers that something in it waits for, such as `OAuthApp/github`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub consents: Vec<String>,
    /// Tasks whose newest checkpoint could not be restored in a drill, the first few of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_drills: Vec<TaskId>,
    /// How many there are, those that are not listed included.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed_drills_total: usize,
    /// Why conversations do not work with what their agents made of them, by their keys, the first few of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub bundle_problems: BTreeMap<InstanceKey, String>,
    /// How many there are, those that are not listed included.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bundle_problems_total: usize,
    /// Since when nothing of it is acknowledged, since its log confirms nothing; none while it does, and where there is
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unacknowledged: Option<Unacknowledged>,
    /// The SHA-256 of the configuration that runs, as hex digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_digest: Option<String>,
    /// Since when it runs; of the last known good one, since when it did while it was the project's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_since: Option<Timestamp>,
    /// Whether that is the last known good one, since the project's own is not valid.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub last_known_good: bool,
    /// How changes of its files are noticed.
    #[serde(default)]
    pub watch: Watching,
    /// Which files those are, the first few of them; none if they are not watched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub watched_files: Vec<PathBuf>,
    /// How many there are, those that are not listed included.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub watched_files_total: usize,
    /// The environment files it was given, the one that wins last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_files: Vec<PathBuf>,
    /// Why it does not run as it should, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<WorkspaceProblem>,
    /// Processes that do not do their work, the first few of them (`OBS-6`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unhealthy: Vec<UnhealthyProcess>,
    /// How many there are, those that are not listed included.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unhealthy_total: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde wants it")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// A process that does not do its work: a connector that cannot listen, or anything in back-off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnhealthyProcess {
    /// What it is.
    pub role: ChildRole,
    /// The agent's, the connection's or the model's name.
    pub name: String,
    /// An agent's conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_key: Option<InstanceKey>,
    /// Its state.
    pub state: ProcessState,
    /// Of a connector or a model that runs: whether it can do its work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readiness: Option<Readiness>,
    /// Why, in its own words, or how its last process ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// The log of a workspace confirms nothing (`REP-1`): whoever hands something in waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Unacknowledged {
    /// Since when.
    pub since: Timestamp,
    /// Why, as far as that is known.
    pub reason: String,
}

impl WorkspaceInfo {
    /// Whether all of it runs as it should.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.problem.is_none()
            && self.unacknowledged.is_none()
            && self.unhealthy_total == 0
            && self.parked_events == 0
    }

    /// The conversation that is meant: the one that was named, or the project's own, or `main`.
    #[must_use]
    pub fn conversation(&self, named: Option<InstanceKey>) -> InstanceKey {
        let own = || self.conversation_key.clone();
        named.or_else(own).unwrap_or_else(InstanceKey::main)
    }
}

/// How changes of a project's files are noticed (`SUP-8`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Watching {
    /// Not at all: a person restarts or reloads.
    #[default]
    Off,
    /// From now on; how is not known yet.
    Starting,
    /// The system tells of them.
    Events,
    /// The system cannot tell of them; the files are compared every few seconds.
    Polling,
}

impl Watching {
    /// The word as it is written.
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

/// Why a workspace does not run as it should.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceProblem {
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub suggestion: String,
}

/// `workspace.list`: one page of the registered workspaces, by id (`OBS-1`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListWorkspaces {
    /// Only this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    /// Only those of this Project Root, absolute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_root: Option<PathBuf>,
    /// Where the page begins: what the page before said in `next`; none for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<WorkspaceId>,
    /// Most workspaces on the page, at most and if it is not said [`MAX_WORKSPACES_PAGE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// Result of `workspace.list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkspacesPage {
    /// The workspaces, by id.
    pub workspaces: Vec<WorkspaceInfo>,
    /// Where the next page begins; none on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<WorkspaceId>,
}

impl ListWorkspaces {
    /// Whether a workspace is among those that are asked for, and on no page before.
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

    /// The page that begins with these workspaces, which come by id and are all
    /// [asked for](Self::is_asked_for).
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
    /// Only this agent's processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// Only this conversation's process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_key: Option<InstanceKey>,
    /// Removes the conversations of what is restarted, so that they begin anew.
    #[serde(default)]
    pub fresh: bool,
}

/// Result of `workspace.restart`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Restarted {
    /// How many processes are being restarted.
    pub processes: usize,
    /// Conversations that were removed (`fresh`).
    pub removed: Vec<InstanceKey>,
}

/// `workspace.reload` (`SUP-8`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Reload {
    /// Only this workspace's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
}

/// Result of `workspace.reload`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reloaded {
    /// What came of it for each workspace, by id.
    pub workspaces: Vec<WorkspaceReload>,
}

/// What came of reading one workspace's configuration again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceReload {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// What changed; nothing if the configuration is as it was, or could not be taken.
    pub changes: Vec<ConfigurationChange>,
    /// How many processes are being restarted.
    pub processes: usize,
    /// Why the configuration that ran before still runs, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<WorkspaceProblem>,
    /// The SHA-256 of the configuration that runs, as hex digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_digest: Option<String>,
    /// Since when it runs; of the last known good one, since when it did while it was the project's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_since: Option<Timestamp>,
    /// Whether that is the last known good one, since the project's own is not valid.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub last_known_good: bool,
}

/// One difference between the configuration that ran and the one that runs now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigurationChange {
    /// `Agent/clerk`, `Connection/hook`, or `Swarm` for what concerns all of them. What belongs to an
    /// agent (its model, prompt, tools, extensions) counts as the agent.
    pub resource: String,
    /// What became of it.
    pub change: ChangeKind,
}

/// What became of a part of a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// It is not as it was.
    Changed,
    /// It is gone.
    Removed,
}

impl ChangeKind {
    /// The word as it is written.
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
    /// Only this workspace's; otherwise those of every workspace and of the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    /// Where the page ends: what the page behind it said in `previous`; none for the latest records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<AuditCursor>,
    /// Most records on the page, at most and if it is not said [`crate::limits::MAX_AUDIT_PAGE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// How much of each log lies before a page, in bytes; of a log that is not named, nothing. A client hands it
/// back as it got it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AuditCursor {
    /// Of the system's own log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<u64>,
    /// Of those of workspaces.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub workspaces: BTreeMap<WorkspaceId, u64>,
}

/// Result of `workspace.audit`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditLog {
    /// Records, newest last.
    pub records: Vec<AuditRecord>,
    /// Where the page before this one ends; none if there are no earlier records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<AuditCursor>,
    /// Lines among them that cannot be read and were passed over.
    pub unreadable: u64,
}

/// One line of an audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditRecord {
    /// The workspace; `None` of the system's own log, which tells of secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    /// The line: `at`, `event`, and what belongs to the event.
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
                // What comes before a page changes nothing of it.
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
