//! The tasks of a workspace that is opened or closed, and of a daemon that ends.

use goondan_protocol::ids::WorkspaceId;
use goondan_tasks::machine::TaskInput;

use super::conversation_runs::converses;
use super::entry::TaskEntry;
use super::{Tasks, WorkspaceTasks};
use crate::bus::queue::{Message, Notice};
use crate::exchange::tasks::LoadedTask;
use crate::exchange::{TaskRef, TaskWork};
use crate::fleet::Fleet;
use crate::fleet::workspaces::being_stopped;
use crate::refusals::stopping_error;
use crate::{LogEvent, RequestToken};

impl Tasks {
    /// A workspace is open: its tasks are read.
    pub(crate) fn on_opened(&mut self, fleet: &mut Fleet, id: &WorkspaceId) {
        self.spaces.insert(id.clone(), WorkspaceTasks::default());
        let workspace_id = id.clone();
        Self::work(fleet, TaskWork::Load { workspace_id });
    }

    pub(super) fn on_loaded(
        &mut self,
        fleet: &mut Fleet,
        id: &WorkspaceId,
        found: Result<Vec<LoadedTask>, String>,
    ) {
        let now = fleet.now();
        let Some(space) = self.spaces.get_mut(id) else {
            return;
        };
        space.is_loaded = true;
        let held = std::mem::take(&mut space.held);
        let held_asks = std::mem::take(&mut space.held_asks);
        let mut opened = Vec::new();
        match found {
            Ok(found) => {
                for task in found {
                    opened.push(TaskRef::new(id, &task.task_id));
                    if let Err(why) = &task.result {
                        let event = LogEvent::error("failed to read task");
                        let event = event.with("workspaceId", id.as_str());
                        let event = event.with("taskId", task.task_id.as_str());
                        fleet.log(event.with("error", why.as_str()));
                    }
                    let entry = TaskEntry::found(task.result, now);
                    space.entries.insert(task.task_id, entry);
                }
            }
            Err(why) => {
                let event = LogEvent::error("failed to list the tasks of a workspace");
                let event = event.with("workspaceId", id.as_str());
                fleet.log(event.with("error", why));
            }
        }
        for at in opened {
            self.take_up(fleet, &at);
        }
        self.take_up_queue(fleet, id);
        fleet.post(Message::Notice(Notice::Decisions(id.clone())));
        for (token, call) in held {
            self.on_request(fleet, token, call);
        }
        for (requester, ask) in held_asks {
            self.on_agent_ask(fleet, requester, ask);
        }
    }

    pub(super) fn on_reloaded(&mut self, fleet: &mut Fleet, id: &WorkspaceId, found: LoadedTask) {
        let now = fleet.now();
        let at = TaskRef::new(id, &found.task_id);
        if let Some(entry) = self.entry_mut(&at) {
            entry.reloaded(found.result, now);
            self.take_up(fleet, &at);
            self.take_up_queue(fleet, id);
            self.note_change_to_queue(fleet, &at);
            self.end_logs(fleet, &at);
            fleet.post(Message::Notice(Notice::Decisions(id.clone())));
        }
    }

    /// Resumes a task from disk. A run that was in progress is over, because its process has ended.
    pub(super) fn take_up(&mut self, fleet: &mut Fleet, at: &TaskRef) {
        fleet.post(Message::Notice(Notice::Spent(at.clone())));
        self.take_up_notifications(fleet, at);
        if super::runs::is_ending(fleet, at) {
            return;
        }
        self.enter_node(fleet, at);
        let Some(state) = self.entry(at).and_then(TaskEntry::state) else {
            return;
        };
        if state.run.is_some() && converses(state) {
            if self
                .entry(at)
                .is_some_and(|entry| entry.conversing.is_none())
            {
                self.take_up_conversing(fleet, at);
            }
            return;
        }
        let input = match &state.run {
            Some(run) => TaskInput::Exited {
                run: run.number,
                code: None,
            },
            None => TaskInput::Tick,
        };
        self.input(fleet, at, input, None);
    }

    /// Records that a task of a replicated workspace is on this node: its agent is notified if it
    /// was on another before.
    pub(super) fn enter_node(&mut self, fleet: &mut Fleet, at: &TaskRef) {
        if let Some(node) = fleet.facts().node.clone() {
            self.input(fleet, at, TaskInput::OnNode(node), None);
        }
    }

    /// The daemon ends.
    pub(crate) fn on_stop(&mut self, fleet: &mut Fleet) {
        let ids: Vec<WorkspaceId> = self.spaces.keys().cloned().collect();
        for id in ids {
            self.end_starts(fleet, &id);
            for token in self.held_requests(&id) {
                fleet.respond_error(token, stopping_error());
            }
        }
    }

    pub(crate) fn on_close(&mut self, fleet: &mut Fleet, id: &WorkspaceId) {
        self.end_starts(fleet, id);
        for token in self.held_requests(id) {
            fleet.respond_error(token, being_stopped(id));
        }
    }

    /// Takes the requests that wait until the tasks, or the merge queue, are read.
    fn held_requests(&mut self, id: &WorkspaceId) -> Vec<RequestToken> {
        let Some(space) = self.spaces.get_mut(id) else {
            return Vec::new();
        };
        let held = std::mem::take(&mut space.held).into_iter();
        let held = held.chain(space.queue.take_held());
        held.map(|(token, _)| token).collect()
    }

    /// Cancels queued runs; they start when the tasks are opened again.
    fn end_starts(&mut self, fleet: &mut Fleet, id: &WorkspaceId) {
        let space = self.spaces.get(id).into_iter();
        let queued: Vec<(TaskRef, u64)> = space
            .flat_map(|space| &space.entries)
            .filter_map(|(task, entry)| Some((TaskRef::new(id, task), entry.queued_run()?)))
            .collect();
        for (at, run) in queued {
            self.forget_start(&at);
            let input = TaskInput::Stopped { run, code: None };
            self.input(fleet, &at, input, None);
        }
    }

    /// Removes a closed workspace.
    pub(crate) fn forget(&mut self, fleet: &mut Fleet, id: &WorkspaceId) {
        self.spaces.remove(id);
        self.waiting.retain(|at| at.workspace_id != *id);
        self.preparing.retain(|at| at.workspace_id != *id);
        self.forget_notifications(|at| at.workspace_id == *id);
        let workspace_id = id.clone();
        Self::work(fleet, TaskWork::Close { workspace_id });
    }
}
