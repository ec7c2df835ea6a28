//! Responses to `status`, `ps` and `workspace list`. The shell adds the memory usage of processes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use goondan_protocol::call::CallTarget;
use goondan_protocol::control::{
    AchievedConfinement, Confinement, ConnectResult, ControlError, DaemonStatus, FileWatchMode,
    ListUnknownCalls, ListWorkspaces, OpenFiles, ProcessInfo, ProcessKey, UnknownCallPlace,
    UnknownCallsPage, WorkspaceInfo, WorkspacesPage,
};
use goondan_protocol::definition::AgentDefinition;
use goondan_protocol::ids::{InstanceKey, InstanceRef, QuestionId, WorkspaceId};
use goondan_protocol::ignored_messages::IgnoredCounts;
use goondan_protocol::ipc::{ChildRole, ConfinementReport};
use goondan_protocol::oauth::OAuthNeed;
use goondan_protocol::process_limits::ProcessLimits;
use goondan_protocol::sandbox::{Level, Right};
use goondan_protocol::version::Version;

use super::availability::Availability;
use super::connectors::Connector;
use super::conversation::Conversation;
use super::models::Model;
use super::runs::TaskProcess;
use super::slot::LiveProcess;
use super::starts::AgentStarts;
use super::{ProcessOwner, Workspace, health};
use crate::bus::context::Cx;
use crate::exchange::oauth_calls::Tokens;
use crate::limits::{BUNDLE_PROBLEMS_SHOWN, WATCHED_FILES_SHOWN};
use crate::refusals::no_workspace;
use crate::{ClockTime, ProcessId};

/// Information about processes' work for others, from other components.
pub(crate) trait ProcessWorkload {
    /// True if a model or connection has a queued or running call.
    fn is_called(&self, id: &WorkspaceId, target: &CallTarget) -> bool;
    /// Number of open questions to users in a workspace.
    fn questions_in(&self, id: &WorkspaceId) -> usize;
    /// Targets of the queued calls of a conversation's turn.
    fn waiting_targets(&self, at: &InstanceRef) -> Vec<CallTarget>;
    /// Logins to renew with more permissions for the calls of the turn.
    fn wider_needs(&self, at: &InstanceRef) -> Vec<OAuthNeed>;
    /// Open questions of a conversation's turn.
    fn questions_of(&self, at: &InstanceRef) -> Vec<QuestionId>;
}

/// State of all workspaces at one moment, for clients. Read-only.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(super) workspaces: &'a BTreeMap<WorkspaceId, Workspace>,
    pub(super) cx: &'a Cx,
    pub(super) starts: &'a AgentStarts,
}

impl<'a> View<'a> {
    /// The tokens that a process was started with, and its workspace; `None` if it has none.
    pub(crate) fn tokens_of(self, process: ProcessId) -> Option<(&'a WorkspaceId, &'a Tokens)> {
        let owner = self.cx.processes().owner_of(process)?;
        let workspace = self.workspaces.get(owner.workspace_id())?;
        let tokens = match owner {
            ProcessOwner::Connector(_, name) => &workspace.connectors.get(name)?.running()?.tokens,
            ProcessOwner::Model(_, name) => workspace.models.get(name)?.tokens(),
            ProcessOwner::Agent(_) | ProcessOwner::Task(..) => return None,
        };
        (!tokens.is_empty()).then_some((owner.workspace_id(), tokens))
    }

    /// Number of agents that wait to be started.
    pub(crate) fn waiting_starts(self) -> usize {
        self.starts.waiting()
    }

    /// One workspace.
    pub(super) fn workspace(self, id: &WorkspaceId) -> Result<&'a Workspace, ControlError> {
        self.workspaces.get(id).ok_or_else(|| no_workspace(id))
    }

    pub(crate) fn connected(self) -> ConnectResult {
        ConnectResult {
            version: Version::current(),
            pid: self.cx.facts().pid,
            state_root: self.cx.facts().layout.root().to_owned(),
            log_dir: self.cx.facts().log_dir.clone(),
        }
    }

    pub(crate) fn daemon_status(self, work: &impl ProcessWorkload) -> DaemonStatus {
        let workspaces = self.workspaces_page(work, &ListWorkspaces::default());
        DaemonStatus {
            version: Version::current(),
            pid: self.cx.facts().pid,
            started_at: self.cx.facts().started_at,
            state_root: self.cx.facts().layout.root().to_owned(),
            log_dir: self.cx.facts().log_dir.clone(),
            cgroup: self.cx.facts().cgroup.clone(),
            program: self.cx.facts().program.clone(),
            // Set by the shell.
            dropped_log_lines: 0,
            log_lines_dropped_at: None,
            open_files: self.starts.descriptors().map(|share| OpenFiles {
                open: share.used,
                limit: share.limit,
            }),
            short_of: self.starts.short_of().to_vec(),
            waiting_for_room: match self.starts.short_of() {
                [] => 0,
                _ => self.starts.waiting(),
            },
            memory_open: self.cx.facts().is_memory_open,
            restored: self.cx.facts().restored.clone(),
            stopping: self.cx.stopping().is_some(),
            workspaces: workspaces.workspaces,
            next_workspace: workspaces.next,
        }
    }

    pub(crate) fn workspaces_page(
        self,
        work: &impl ProcessWorkload,
        list: &ListWorkspaces,
    ) -> WorkspacesPage {
        let workspaces = self.workspaces.iter();
        let asked = workspaces
            .filter(|(id, workspace)| list.is_asked_for(id, &workspace.record.project_root));
        list.page_of(asked.map(|(id, workspace)| self.info(work, id, workspace)))
    }

    #[cfg(test)]
    pub(crate) fn every_workspace(self, work: &impl ProcessWorkload) -> Vec<WorkspaceInfo> {
        let workspaces = self.workspaces.iter();
        workspaces
            .map(|(id, workspace)| self.info(work, id, workspace))
            .collect()
    }

    pub(crate) fn workspace_info(
        self,
        work: &impl ProcessWorkload,
        id: &WorkspaceId,
    ) -> Option<WorkspaceInfo> {
        let workspace = self.workspaces.get(id)?;
        Some(self.info(work, id, workspace))
    }

    fn info(
        self,
        work: &impl ProcessWorkload,
        id: &WorkspaceId,
        workspace: &Workspace,
    ) -> WorkspaceInfo {
        WorkspaceInfo {
            questions: work.questions_in(id),
            consents: workspace.consents(),
            suspended: workspace.models.suspended(self.cx.now()),
            failing: workspace.models.failing(),
            ..info(id, workspace)
        }
    }

    fn agent_info(
        self,
        work: &impl ProcessWorkload,
        id: &WorkspaceId,
        key: &InstanceKey,
        instance: &Conversation,
    ) -> ProcessInfo {
        let at = InstanceRef {
            workspace_id: id.clone(),
            instance_key: key.clone(),
        };
        let targets = work.waiting_targets(&at);
        let workspace = self.workspaces.get(id);
        let waits = workspace.and_then(|it| self.wait_for_connections(it, &targets));
        let info = agent_info(self.cx.now(), id, key, instance);
        ProcessInfo {
            consents: workspace.map_or_else(Vec::new, |it| {
                it.consents_of(targets, work.wider_needs(&at))
            }),
            questions: work.questions_of(&at),
            detail: waits.or_else(|| info.detail.clone()),
            ..info
        }
    }

    /// Names the connections among `targets` whose processes are not ready.
    fn wait_for_connections(self, workspace: &Workspace, targets: &[CallTarget]) -> Option<String> {
        let is_starting = |target: &&CallTarget| {
            matches!(target, CallTarget::Connection { .. })
                && matches!(
                    workspace.availability(self.cx, target),
                    Availability::Coming | Availability::Recovering(_)
                )
        };
        let starting: BTreeSet<&CallTarget> = targets.iter().filter(is_starting).collect();
        let names: Vec<String> = starting.iter().map(ToString::to_string).collect();
        (!names.is_empty()).then(|| format!("waits for {} to be ready", names.join(", ")))
    }

    /// Lists the unresolved calls.
    pub(crate) fn list_unknown_calls(
        self,
        list: &ListUnknownCalls,
    ) -> Result<UnknownCallsPage, ControlError> {
        let only = list.workspace_id.as_ref();
        if let Some(id) = only {
            self.workspace(id)?;
        }
        let workspaces = self.workspaces.iter();
        let workspaces = workspaces.filter(|(id, _)| only.is_none_or(|only| only == *id));
        let calls = workspaces.flat_map(|(id, workspace)| workspace.unknown_calls.all(id));
        let is_behind = |place: &UnknownCallPlace| list.after.as_ref().is_none_or(|it| it < place);
        Ok(list.page_of(calls.filter(|call| is_behind(&call.place()))))
    }

    /// Processes ordered by key: of one workspace or of all, from the start or after a given one.
    pub(crate) fn processes(
        self,
        work: &impl ProcessWorkload,
        only: Option<&WorkspaceId>,
        after: Option<&ProcessKey>,
    ) -> impl Iterator<Item = ProcessInfo> {
        let workspaces = self.workspaces.iter();
        let workspaces = workspaces.filter(move |(id, _)| {
            let is_behind = after.is_none_or(|after| after.workspace_id <= **id);
            is_behind && only.is_none_or(|only| only == *id)
        });
        workspaces.flat_map(move |(id, workspace)| self.processes_in(work, id, workspace, after))
    }

    fn processes_in(
        self,
        work: &impl ProcessWorkload,
        id: &'a WorkspaceId,
        workspace: &'a Workspace,
        after: Option<&ProcessKey>,
    ) -> impl Iterator<Item = ProcessInfo> {
        let is_behind = move |role, key: Option<&InstanceKey>, name: &str| {
            after.is_none_or(|after| after.is_before(id, role, key, name))
        };
        let connectors = workspace.connectors.iter();
        let connectors = connectors
            .filter(move |(name, _)| is_behind(ChildRole::Connector, None, name.as_str()))
            .map(move |(name, connector)| {
                let target = CallTarget::Connection { name: name.clone() };
                let is_called = work.is_called(id, &target);
                connector_info(self.cx.now(), id, name.as_str(), connector, is_called)
            });
        let models = workspace.models.iter();
        let models = models
            .filter(move |(name, _)| is_behind(ChildRole::Model, None, name.as_str()))
            .map(move |(name, model)| {
                let target = CallTarget::Model { name: name.clone() };
                let is_called = work.is_called(id, &target);
                let now = self.cx.now();
                ProcessInfo {
                    detail: workspace.models.detail_of(model, now),
                    ..model_info(now, id, name.as_str(), model, is_called)
                }
            });
        let runs = workspace.runs.iter();
        let runs = runs
            .filter(move |(task, _)| is_behind(ChildRole::Task, None, task.as_str()))
            .map(move |(task, run)| run_info(self.cx.now(), id, task.as_str(), run));
        let agents = workspace.conversations.iter();
        let agents = agents
            .filter(move |(key, entry)| {
                is_behind(ChildRole::Agent, Some(key), entry.agent().as_str())
            })
            .map(move |(key, entry)| self.agent_info(work, id, key, entry));
        connectors.chain(models).chain(runs).chain(agents)
    }

    pub(crate) fn process_of(
        self,
        work: &impl ProcessWorkload,
        at: &InstanceRef,
    ) -> Option<ProcessInfo> {
        let workspace = self.workspaces.get(&at.workspace_id)?;
        let instance = workspace.conversations.get(&at.instance_key)?;
        Some(self.agent_info(work, &at.workspace_id, &at.instance_key, instance))
    }
}

fn info(id: &WorkspaceId, workspace: &Workspace) -> WorkspaceInfo {
    let bundle = workspace.bundle.as_ref();
    let instances = workspace.conversations.values();
    let is_watched = workspace.record.watch;
    let watched = || workspace.sources.files().filter(|_| is_watched);
    let unhealthy = health::unhealthy_of(workspace);
    let unhealthy_total = unhealthy.len();
    let bundle_problems = workspace.bundle_problems.iter();
    WorkspaceInfo {
        workspace_id: id.clone(),
        project_root: workspace.record.project_root.clone(),
        package: workspace.record.package.clone(),
        entry_agent: bundle.and_then(|bundle| bundle.entry_agent.clone()),
        swarm: bundle.and_then(|bundle| bundle.swarm.clone()),
        idle_swarms: bundle
            .map(|bundle| bundle.idle_swarms.clone())
            .unwrap_or_default(),
        conversation_key: bundle.and_then(|bundle| bundle.conversation_key.clone()),
        agents: bundle
            .map(|bundle| bundle.agents.keys().cloned().collect())
            .unwrap_or_default(),
        task_agents: bundle
            .map(|bundle| bundle.cli_agents.keys().cloned().collect())
            .unwrap_or_default(),
        connections: workspace
            .connectors
            .keys()
            .map(ToString::to_string)
            .collect(),
        running_agents: instances
            .clone()
            .filter(|i| i.slot().up().is_some())
            .count(),
        pending_events: instances.clone().map(Conversation::pending).sum(),
        paused_events: instances.map(Conversation::paused).sum(),
        parked_events: usize::try_from(workspace.parked.total()).unwrap_or(usize::MAX),
        approvals: approvals_in(workspace),
        unknown_calls: workspace.unknown_calls.count(),
        questions: 0,
        consents: Vec::new(),
        suspended: BTreeMap::new(),
        failing: BTreeMap::new(),
        undecided_permissions: bundle
            .map(|bundle| bundle.undecided_permissions.clone())
            .unwrap_or_default(),
        failed_drills: Vec::new(),
        failed_drills_total: 0,
        bundle_problems: bundle_problems
            .take(BUNDLE_PROBLEMS_SHOWN)
            .map(|(key, problem)| (key.clone(), problem.clone()))
            .collect(),
        bundle_problems_total: workspace.bundle_problems.len(),
        unacknowledged: workspace.unacknowledged.clone(),
        config_digest: bundle.map(|bundle| bundle.digest.clone()),
        config_since: workspace.since,
        last_known_good: workspace.is_last_known_good,
        watch: watching(workspace),
        watched_files: watched()
            .take(WATCHED_FILES_SHOWN)
            .map(Path::to_owned)
            .collect(),
        watched_files_total: watched().count(),
        env_files: workspace.record.env_files.clone(),
        problem: workspace.problem.clone(),
        unhealthy: health::shown_unhealthy(unhealthy),
        unhealthy_total,
    }
}

fn approvals_in(workspace: &Workspace) -> usize {
    let entries = workspace.conversations.values();
    entries
        .map(|entry| entry.approvals().waiting().count())
        .sum()
}

/// The state of file watching. The watch begins shortly after it is requested.
fn watching(workspace: &Workspace) -> FileWatchMode {
    match workspace.watching {
        FileWatchMode::Off if workspace.record.watch => FileWatchMode::Starting,
        how => how,
    }
}

fn agent_info(
    now: ClockTime,
    id: &WorkspaceId,
    key: &InstanceKey,
    instance: &Conversation,
) -> ProcessInfo {
    let up = instance.slot().up();
    ProcessInfo {
        workspace_id: id.clone(),
        role: ChildRole::Agent,
        name: instance.agent().to_string(),
        instance_key: Some(key.clone()),
        state: instance.slot().shown(instance.turn().is_some()),
        readiness: None,
        pid: up.and_then(|up| up.pid),
        started_at: up.map(|up| up.started_at),
        consecutive_crashes: instance.slot().crashes,
        next_start_at: instance.slot().next_start_at(now),
        pending_events: instance.pending(),
        turn_id: instance.turn().map(|turn| turn.turn_id.clone()),
        trace_id: instance.turn().map(|turn| turn.context.trace.trace_id),
        waiting_for: {
            let mut others: Vec<_> = instance.asked().cloned().collect();
            others.dedup();
            others
        },
        consents: Vec::new(),
        approvals: instance.approvals().waiting().cloned().collect(),
        questions: Vec::new(),
        ignored: IgnoredCounts::new(),
        refused: instance.refusals().cloned(),
        detail: instance.slot().detail.clone(),
        memory_bytes: None,
        counted_memory_bytes: None,
        limits: limits_of(up, instance.definition().map(|it| it.limits)),
        confinement: confinement_of(
            up,
            instance.definition().and_then(AgentDefinition::programs),
        ),
    }
}

fn model_info(
    now: ClockTime,
    id: &WorkspaceId,
    name: &str,
    model: &Model,
    is_called: bool,
) -> ProcessInfo {
    let up = model.slot().up();
    ProcessInfo {
        workspace_id: id.clone(),
        role: ChildRole::Model,
        name: name.to_owned(),
        instance_key: None,
        state: model.slot().shown(is_called),
        readiness: health::shown(model.slot(), model.readiness()),
        pid: up.and_then(|up| up.pid),
        started_at: up.map(|up| up.started_at),
        consecutive_crashes: model.slot().crashes,
        next_start_at: model.slot().next_start_at(now),
        pending_events: 0,
        turn_id: None,
        trace_id: None,
        waiting_for: Vec::new(),
        consents: Vec::new(),
        approvals: Vec::new(),
        questions: Vec::new(),
        ignored: IgnoredCounts::new(),
        refused: None,
        detail: None,
        memory_bytes: None,
        counted_memory_bytes: None,
        limits: limits_of(up, model.running().map(|model| model.limits)),
        confinement: confinement_of(up, None),
    }
}

fn connector_info(
    now: ClockTime,
    id: &WorkspaceId,
    name: &str,
    connector: &Connector,
    is_called: bool,
) -> ProcessInfo {
    let up = connector.slot().up();
    ProcessInfo {
        workspace_id: id.clone(),
        role: ChildRole::Connector,
        name: name.to_owned(),
        instance_key: None,
        state: connector.slot().shown(is_called),
        readiness: health::shown(connector.slot(), connector.readiness()),
        pid: up.and_then(|up| up.pid),
        started_at: up.map(|up| up.started_at),
        consecutive_crashes: connector.slot().crashes,
        next_start_at: connector.slot().next_start_at(now),
        pending_events: 0,
        turn_id: None,
        trace_id: None,
        waiting_for: Vec::new(),
        consents: Vec::new(),
        approvals: Vec::new(),
        questions: Vec::new(),
        ignored: connector.ignored().clone(),
        refused: None,
        detail: connector.slot().detail.clone(),
        memory_bytes: None,
        counted_memory_bytes: None,
        limits: limits_of(up, connector.running().map(|r| r.definition.limits)),
        confinement: confinement_of(
            up,
            connector.running().and_then(|r| r.definition.programs()),
        ),
    }
}

fn run_info(now: ClockTime, id: &WorkspaceId, task: &str, run: &TaskProcess) -> ProcessInfo {
    let up = run.slot().up();
    let agent = run.agent();
    ProcessInfo {
        workspace_id: id.clone(),
        role: ChildRole::Task,
        name: task.to_owned(),
        instance_key: None,
        state: run.slot().shown(true),
        readiness: None,
        pid: up.and_then(|up| up.pid),
        started_at: up.map(|up| up.started_at),
        consecutive_crashes: run.slot().crashes,
        next_start_at: run.slot().next_start_at(now),
        pending_events: 0,
        turn_id: None,
        trace_id: None,
        waiting_for: Vec::new(),
        consents: Vec::new(),
        approvals: Vec::new(),
        questions: Vec::new(),
        ignored: IgnoredCounts::new(),
        refused: None,
        detail: run.slot().detail.clone(),
        memory_bytes: None,
        counted_memory_bytes: None,
        limits: limits_of(up, Some(agent.limits)),
        confinement: confinement_of(up, Some(agent.sandbox.require)),
    }
}

/// The limits of a process; default while it does not run.
fn limits_of(up: Option<&LiveProcess>, started_with: Option<ProcessLimits>) -> ProcessLimits {
    up.and(started_with).unwrap_or_default()
}

/// Confinement of a process and its programs, once reported. Programs are never started with less
/// than their level.
fn confinement_of(up: Option<&LiveProcess>, programs: Option<Level>) -> Option<Confinement> {
    let ConfinementReport { rights, lacks } = up?.own.clone()?;
    let programs = programs.map(|level| AchievedConfinement {
        level,
        rights: Right::of(level).iter().copied().collect(),
    });
    Some(Confinement {
        own: rights,
        lacks,
        programs,
    })
}
