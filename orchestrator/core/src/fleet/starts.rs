//! Queue of agent starts (`SEC-8`, `SUP-3`).
//!
//! A start waits while the maximum number of processes is running, while too many others are
//! starting, and while a resource is short ([`super::capacity`]). Agents with work from users start
//! before those with work from other agents. Work in progress takes precedence, but a start does
//! not wait for capacity if no work is in progress or the work in progress waits for it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use goondan_protocol::control::Resource;
use goondan_protocol::ids::{InstanceRef, WorkspaceId};

use super::capacity::{CapacityState, IdleAgent};
use super::conversation::Conversation;
use super::{ProcessOwner, Workspace};
use crate::bus::context::Cx;
use crate::exchange::{ResourceLevel, ResourceUsage};
use crate::limits::{
    AGENT_STARTS_AT_ONCE_MAX, CHILD_PROCESSES_MAX, IDLE_AGENT_DESCRIPTORS, STOPPED_FOR_ROOM_MAX,
    WORKING_AGENT_DESCRIPTORS,
};
use crate::{LogEvent, ProcessId};

/// Reason that no process starts in a restored state root.
pub(super) const PAUSED: &str =
    "paused after a restore: check the restored state, then run `gdn daemon backup resume`";

/// Starting processes, and conversations whose agent waits to start.
#[derive(Debug, Default)]
struct StartQueue {
    /// Processes that have not completed their handshake.
    starting: BTreeSet<ProcessId>,
    for_people: VecDeque<InstanceRef>,
    for_agents: VecDeque<InstanceRef>,
    waiting: BTreeSet<InstanceRef>,
}

impl StartQueue {
    fn has_place(&self) -> bool {
        self.starting.len() < AGENT_STARTS_AT_ONCE_MAX
    }

    /// Queues a start. `is_for_agent` is true if the work comes from another agent.
    fn wait(&mut self, at: &InstanceRef, is_for_agent: bool) {
        if self.waiting.insert(at.clone()) {
            let queue = if is_for_agent {
                &mut self.for_agents
            } else {
                &mut self.for_people
            };
            queue.push_back(at.clone());
        }
    }

    fn forget(&mut self, at: &InstanceRef) {
        if self.waiting.remove(at) {
            self.for_people.retain(|waiting| waiting != at);
            self.for_agents.retain(|waiting| waiting != at);
        }
    }

    /// Records the start of an agent's process.
    fn begin(&mut self, process: ProcessId) {
        self.starting.insert(process);
    }

    /// Handles a completed handshake or an exit.
    fn end(&mut self, process: ProcessId) {
        self.starting.remove(&process);
    }

    /// Takes the next queued start: users' work first, then longest waiting.
    fn next(&mut self) -> Option<InstanceRef> {
        let first = self.for_people.pop_front();
        let next = first.or_else(|| self.for_agents.pop_front())?;
        self.waiting.remove(&next);
        Some(next)
    }
}

/// The agents that wait to start, and the capacity for them, which all workspaces share.
#[derive(Debug, Default)]
pub(super) struct AgentStarts {
    queue: StartQueue,
    room: CapacityState,
}

impl AgentStarts {
    /// Number of conversations whose agent waits to start.
    pub(super) fn waiting(&self) -> usize {
        self.queue.waiting.len()
    }

    pub(super) fn short_of(&self) -> &[Resource] {
        self.room.short_of()
    }

    /// Number of open descriptors, and the limit.
    pub(super) fn descriptors(&self) -> Option<ResourceLevel> {
        self.room.descriptors()
    }

    pub(super) fn with<'a>(
        &'a mut self,
        workspaces: &'a mut BTreeMap<WorkspaceId, Workspace>,
        cx: &'a mut Cx,
    ) -> Starts<'a> {
        Starts {
            queue: &mut self.queue,
            room: &mut self.room,
            workspaces,
            cx,
        }
    }
}

/// The starts of agents, with the workspaces of the agents.
pub(crate) struct Starts<'a> {
    queue: &'a mut StartQueue,
    room: &'a mut CapacityState,
    workspaces: &'a mut BTreeMap<WorkspaceId, Workspace>,
    cx: &'a mut Cx,
}

impl Starts<'_> {
    /// Starts the process of a conversation, or queues its start. If its next step is another one by
    /// now, that one is performed.
    pub(crate) fn start_agent(&mut self, at: &InstanceRef) {
        let Some(workspace) = self.workspaces.get_mut(&at.workspace_id) else {
            return;
        };
        if !workspace.is_to_start(self.cx, at) {
            return workspace.advance(self.cx, at);
        }
        let Some(running) = workspace.configuration_to_start(self.cx, at) else {
            return;
        };
        if let Some(why) = self.why_not_start(at) {
            self.wait_to_start(at);
            let workspace = self.workspaces.get_mut(&at.workspace_id);
            let owner = ProcessOwner::Agent(at.clone());
            if let Some(slot) = workspace.and_then(|it| it.slot_mut(&owner)) {
                slot.detail = Some(why);
            }
            return;
        }
        self.queue.forget(at);
        self.room.take();
        self.stop_ahead();
        let workspace = self.workspaces.get_mut(&at.workspace_id);
        let process = workspace.and_then(|it| it.start_agent(self.cx, at, running));
        if let Some(process) = process {
            self.queue.begin(process);
        }
    }

    fn conversation(&self, at: &InstanceRef) -> Option<&Conversation> {
        let workspace = self.workspaces.get(&at.workspace_id)?;
        workspace.conversations.get(&at.instance_key)
    }

    /// Reason a start must wait, if any.
    fn why_not_start(&mut self, at: &InstanceRef) -> Option<String> {
        if self.cx.is_paused() {
            return Some(PAUSED.to_owned());
        }
        if !self.cx.processes().has_place() {
            self.make_place();
            return Some(format!(
                "{CHILD_PROCESSES_MAX} processes are running, which is the limit; it starts when one ends"
            ));
        }
        if !self.queue.has_place() {
            return Some(format!(
                "it waits because {AGENT_STARTS_AT_ONCE_MAX} other processes are starting"
            ));
        }
        if self.room.has_place(self.cx.now().mono_ms) {
            return None;
        }
        self.make_place();
        let entry = self.conversation(at);
        let is_worth_it = self.room.is_worth_waiting_for(self.cx, entry);
        is_worth_it.then(|| {
            let short_of: Vec<&str> = self.room.short_of().iter().map(|r| r.as_str()).collect();
            match short_of.is_empty() {
                true => "it waits for resources".to_owned(),
                false => format!("it waits for resources: short of {}", short_of.join(", ")),
            }
        })
    }

    /// Queues an agent's start.
    fn wait_to_start(&mut self, at: &InstanceRef) {
        let next = self.conversation(at).and_then(Conversation::next_event);
        let is_for_agent = next.is_some_and(|event| event.chain.is_some());
        self.queue.wait(at, is_for_agent);
    }

    /// Handles a completed handshake or an exit, and starts the next agents.
    pub(super) fn start_next(&mut self, process: ProcessId) {
        self.queue.end(process);
        self.let_in();
    }

    /// Starts queued agents while capacity lasts.
    pub(super) fn let_in(&mut self) {
        while !self.cx.is_paused()
            && self.queue.has_place()
            && self.cx.processes().has_place()
            && self.room.has_place(self.cx.now().mono_ms)
            && let Some(at) = self.queue.next()
        {
            self.start_agent(&at);
        }
    }

    /// Lets processes start in a restored state root.
    pub(crate) fn resume(&mut self) {
        self.cx.end_pause();
        self.cx.log(LogEvent::info("resumed after a restore"));
        self.let_in();
    }

    /// Frees a slot for queued starts, because an agent may have become idle.
    pub(crate) fn offer_place(&mut self) {
        let is_any_waiting = !self.queue.waiting.is_empty();
        if is_any_waiting && !self.room.has_place(self.cx.now().mono_ms) {
            self.make_place();
        }
    }

    /// Handles a measurement of the available resources.
    pub(crate) fn on_supply(&mut self, supply: ResourceUsage) {
        let surplus = self.room.on_supply(self.cx, self.workspaces, supply);
        if surplus > 0 {
            self.stop_longest_idle(usize::try_from(surplus).unwrap_or(usize::MAX));
        } else {
            self.stop_ahead();
        }
        self.let_in();
    }

    /// Stops as many idle agents as one working agent replaces, unless agents are already being
    /// stopped.
    fn make_place(&mut self) {
        if !self.room.is_stopping_any() {
            let places = WORKING_AGENT_DESCRIPTORS.div_ceil(IDLE_AGENT_DESCRIPTORS);
            self.stop_longest_idle(usize::try_from(places).unwrap_or(1));
        }
    }

    /// Stops a few idle agents to keep slots free in advance.
    fn stop_ahead(&mut self) {
        let count = self.room.to_stop_ahead();
        if count > 0 {
            self.stop_longest_idle(usize::try_from(count).unwrap_or(usize::MAX));
        }
    }

    /// Stops idle agents, longest idle first.
    fn stop_longest_idle(&mut self, count: usize) {
        for _ in 0..count.min(STOPPED_FOR_ROOM_MAX) {
            let Some(IdleAgent { process, at, .. }) = self.room.next_longest_idle(self.workspaces)
            else {
                return;
            };
            self.room.begin_stopping(process);
            if let Some(workspace) = self.workspaces.get_mut(&at.workspace_id) {
                workspace.drain_agent(self.cx, &at, "its resources are needed");
            }
        }
    }

    /// Handles an agent's exit: its slot may be used by a waiting agent.
    pub(crate) fn give_room(&mut self, process: ProcessId) {
        self.room.left(process);
        self.let_in();
    }

    /// Handles a process that could not start for lack of resources. Returns its owner.
    pub(crate) fn on_no_room(&mut self, process: ProcessId, how: &str) -> Option<ProcessOwner> {
        let owner = self.cx.processes_mut().remove(process)?;
        if let Some(workspace) = self.workspaces.get_mut(owner.workspace_id()) {
            if let Some(slot) = workspace.slot_mut(&owner) {
                slot.not_started(how.to_owned());
            }
            let event = LogEvent::warn("no resources for a process; it starts later");
            workspace.log(self.cx, owner.log_line(event).with("how", how));
        }
        self.room.run_out(self.cx.now().mono_ms);
        if let ProcessOwner::Agent(at) = &owner {
            self.wait_to_start(at);
        }
        self.make_place();
        self.start_next(process);
        Some(owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sec_8_process_starts_are_limited_and_people_come_first() {
        let at = |key: &str| InstanceRef {
            workspace_id: "w".parse().unwrap(),
            instance_key: key.parse().unwrap(),
        };
        let mut starts = StartQueue::default();
        for n in 0..AGENT_STARTS_AT_ONCE_MAX {
            assert!(starts.has_place());
            starts.begin(ProcessId(u64::try_from(n).unwrap()));
        }
        assert!(!starts.has_place());
        starts.wait(&at("helper:1"), true);
        starts.wait(&at("other"), false);
        starts.wait(&at("main"), false);
        starts.wait(&at("main"), false);
        starts.end(ProcessId(0));
        assert!(starts.has_place());
        starts.forget(&at("other"));
        assert_eq!(starts.waiting.len(), 2);
        assert_eq!(starts.next(), Some(at("main")));
        assert_eq!(starts.next(), Some(at("helper:1")));
        assert_eq!(starts.next(), None);
        assert!(starts.waiting.is_empty());
    }
}
