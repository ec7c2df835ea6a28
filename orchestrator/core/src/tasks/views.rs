//! Views of tasks for clients, from durable state.

use goondan_protocol::control::{
    BLOCKED_BY_APPROVAL, BLOCKED_BY_QUEUE, ControlError, ErrorCode, ListTasks, TaskDetail,
    TaskInfo, TasksPage,
};
use goondan_protocol::decision::DecisionVerdict;
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::task::TaskStatus;
use goondan_tasks::state::State;

use super::Tasks;
use super::conversations::approvals_of;
use super::disk::MeasurementFollowUp;
use super::entry::{TaskEntry, TaskRequester};
use crate::RequestToken;
use crate::exchange::TaskRef;
use crate::fleet::Fleet;

impl Tasks {
    /// Answers a client with a task's entry in lists, and an agent with its details.
    pub(super) fn tell_info(&self, fleet: &mut Fleet, asker: &TaskRequester, at: &TaskRef) {
        let token = match asker {
            TaskRequester::Client(token) => *token,
            TaskRequester::Agent(requester) => return self.tell_agent(fleet, requester, at),
            TaskRequester::Chat(chat) => {
                let how = chat.decision.how.clone();
                let verdict = DecisionVerdict::Decided { how };
                return fleet.cx().answer_press(chat.press, verdict);
            }
        };
        match self.entry(at).and_then(|entry| info_of(fleet, at, entry)) {
            Some(info) => fleet.respond(token, &info),
            None => fleet.respond_error(token, super::not_found(at)),
        }
    }

    /// The requested tasks that were on no earlier page, by workspace and id; true for those that
    /// wait for a person.
    fn listed<'a>(
        &'a self,
        fleet: &'a Fleet,
        list: &'a ListTasks,
    ) -> impl Iterator<Item = (bool, TaskInfo)> + 'a {
        let only = list.workspace_id.as_ref();
        let spaces = self.spaces.iter();
        let spaces = spaces.filter(move |(id, _)| only.is_none_or(|only| only == *id));
        let entries = spaces.flat_map(|(id, space)| {
            let entries = space.entries.iter();
            entries.map(move |(task, entry)| (TaskRef::new(id, task), entry))
        });
        entries
            .filter(|(at, _)| list.is_behind(&at.workspace_id, &at.task_id))
            .filter_map(|(at, entry)| {
                let is_queued = self.is_queued(&at) && entry.damage().is_none();
                let needs_person = needs_person(fleet, &at, entry) && !is_queued;
                let mut info = shown(fleet, &at, entry)?;
                note_queued(&mut info, is_queued);
                Some((needs_person, info))
            })
            .filter(|(needs_person, info)| {
                let is_asked_for = list.all || !info.status.is_final() || info.damaged.is_some();
                (*needs_person || !list.needs_me) && is_asked_for
            })
    }

    pub(super) fn list(&self, fleet: &Fleet, list: &ListTasks) -> TasksPage {
        list.page_of(self.listed(fleet, list).map(|(_, info)| info))
    }

    /// All tasks: first those that wait for a person, then those in progress.
    pub(super) fn by_urgency(&self, fleet: &Fleet, list: &ListTasks) -> Vec<TaskInfo> {
        let mut found: Vec<(bool, TaskInfo)> = self.listed(fleet, list).collect();
        found.sort_by_key(|(needs_person, info)| {
            let newest_first = std::cmp::Reverse(info.updated_at);
            (!needs_person, info.status.is_final(), newest_first)
        });
        found.into_iter().map(|(_, info)| info).collect()
    }

    /// Responds with a task and the disk usage of its work area.
    pub(super) fn show(&mut self, fleet: &mut Fleet, token: RequestToken, at: &TaskRef) {
        let is_whole = self.entry(at).and_then(TaskEntry::state).is_some();
        if is_whole && self.is_look_old(fleet, at) {
            return self.look(fleet, at, Some(MeasurementFollowUp::Show(token)));
        }
        self.show_known(fleet, token, at);
    }

    /// Answers with the details of a task.
    pub(super) fn show_known(&self, fleet: &mut Fleet, token: RequestToken, at: &TaskRef) {
        match self.detail_of(fleet, at) {
            Ok(detail) => fleet.respond(token, &detail),
            Err(error) => fleet.respond_error(token, error),
        }
    }

    pub(super) fn detail_of(
        &self,
        fleet: &Fleet,
        at: &TaskRef,
    ) -> Result<TaskDetail, ControlError> {
        let entry = self.entry(at).ok_or_else(|| super::not_found(at))?;
        let Some(state) = entry.durable() else {
            let why = entry.damage().unwrap_or("it is being created");
            return Err(super::damaged(at, why));
        };
        let work_area = fleet.facts().work_area(at);
        let mut detail = state.detail(&at.workspace_id, &work_area, entry.recent());
        detail.sandbox = self.sandbox_told(fleet, at, state);
        detail.disk = self.disk_of(fleet, at);
        detail.approvals = approvals_of(fleet, at, state).cloned().collect();
        add_approval(&mut detail.info, !detail.approvals.is_empty());
        note_queued(&mut detail.info, self.is_queued(at));
        detail.info.damaged = entry.damage().map(ToOwned::to_owned);
        Ok(detail)
    }

    /// The requested workspaces whose tasks are not read yet.
    pub(super) fn unread(&self, only: Option<&WorkspaceId>) -> Option<WorkspaceId> {
        let mut spaces = self.spaces.iter();
        let unread =
            spaces.find(|(id, space)| !space.is_loaded && only.is_none_or(|only| only == *id));
        unread.map(|(id, _)| id.clone())
    }
}

/// True if a task waits for a person, including approvals of its agent's tool calls.
pub(super) fn needs_person(fleet: &Fleet, at: &TaskRef, entry: &TaskEntry) -> bool {
    let of_state =
        |state: &State| state.needs_person() || approvals_of(fleet, at, state).next().is_some();
    entry.damage().is_some() || entry.durable().is_some_and(of_state)
}

/// Entry in lists of a task that was read at least once.
fn info_of(fleet: &Fleet, at: &TaskRef, entry: &TaskEntry) -> Option<TaskInfo> {
    let mut info = entry.info(&at.workspace_id)?;
    let state = entry.durable();
    let is_asked = state.is_some_and(|state| approvals_of(fleet, at, state).next().is_some());
    add_approval(&mut info, is_asked);
    Some(info)
}

/// A task whose agent waits for an approval is blocked by the approval alone.
fn add_approval(info: &mut TaskInfo, is_asked: bool) {
    if is_asked && info.blocked_by.is_none() {
        info.blocked_by = Some(BLOCKED_BY_APPROVAL.to_owned());
    }
}

/// A task whose proposal is in the merge queue waits for the queue, not for a person.
fn note_queued(info: &mut TaskInfo, is_queued: bool) {
    if is_queued {
        info.blocked_by = Some(BLOCKED_BY_QUEUE.to_owned());
    }
}

/// Entry of a task in lists; the damage if the task could not be read.
fn shown(fleet: &Fleet, at: &TaskRef, entry: &TaskEntry) -> Option<TaskInfo> {
    info_of(fleet, at, entry).or_else(|| {
        let damaged = entry.damage()?.to_owned();
        Some(TaskInfo {
            workspace_id: at.workspace_id.clone(),
            task_id: at.task_id.clone(),
            title: String::new(),
            kind: String::new(),
            agent: "unknown".parse().ok()?,
            status: TaskStatus::Idle,
            blocked_by: None,
            current_phase: 0,
            total_phases: 0,
            progress: 0,
            tokens: 0,
            cost: goondan_protocol::usage::MicroUsd::default(),
            created_by: None,
            created_at: None,
            updated_at: None,
            warning: None,
            damaged: Some(damaged),
        })
    })
}

/// Error when too many requests are waiting.
pub(super) fn too_many(id: &WorkspaceId, most: usize) -> ControlError {
    let text = format!("{most} requests about tasks of `{id}` are already waiting");
    ControlError::new(ErrorCode::Overloaded, text).suggest("try again later")
}
