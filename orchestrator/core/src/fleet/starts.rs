//! Queue of agent starts (`SEC-8`, `SUP-3`).
//!
//! A start waits while the maximum number of processes is running, while too many others are
//! starting, and while a resource is short ([`super::capacity`]). Agents with work from users start
//! before those with work from other agents. Work in progress takes precedence, but a start does
//! not wait for capacity if no work is in progress or the work in progress waits for it.

use std::collections::{BTreeSet, VecDeque};

use goondan_protocol::ids::InstanceRef;

use super::Fleet;
use crate::limits::{AGENT_STARTS_AT_ONCE_MAX, CHILD_PROCESSES_MAX};
use crate::{LogEvent, ProcessId};

/// Reason that no process starts in a restored state root.
pub(super) const PAUSED: &str =
    "paused after a restore: check the restored state, then run `gdn daemon backup resume`";

/// Starting processes, and conversations whose agent waits to start.
#[derive(Debug, Default)]
pub(super) struct StartQueue {
    /// Processes that have not completed their handshake.
    starting: BTreeSet<ProcessId>,
    for_people: VecDeque<InstanceRef>,
    for_agents: VecDeque<InstanceRef>,
    waiting: BTreeSet<InstanceRef>,
}

impl StartQueue {
    /// Number of conversations whose agent waits to start.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

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
    pub(super) fn begin(&mut self, process: ProcessId) {
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

impl Fleet {
    /// True if the agent of a conversation may start now. Otherwise the start is queued.
    pub(super) fn may_start(&mut self, at: &InstanceRef) -> bool {
        let Some(why) = self.why_not_start(at) else {
            self.starts.forget(at);
            self.room.take();
            self.stop_ahead();
            return true;
        };
        self.wait_to_start(at);
        if let Some(entry) = self.conversation_mut(at) {
            entry.slot_mut().detail = Some(why);
        }
        false
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
        if !self.starts.has_place() {
            return Some(format!(
                "it waits because {AGENT_STARTS_AT_ONCE_MAX} other processes are starting"
            ));
        }
        if self.room.has_place(self.cx.now().mono_ms) {
            return None;
        }
        self.make_place();
        let entry = self.conversation(at);
        let is_worth_it = self.room.is_worth_waiting_for(&self.cx, entry);
        is_worth_it.then(|| {
            let short_of: Vec<&str> = self.room.short_of().iter().map(|r| r.as_str()).collect();
            match short_of.is_empty() {
                true => "it waits for resources".to_owned(),
                false => format!("it waits for resources: short of {}", short_of.join(", ")),
            }
        })
    }

    /// Queues an agent's start.
    pub(super) fn wait_to_start(&mut self, at: &InstanceRef) {
        let is_for_agent = self.conversation_mut(at).is_some_and(|entry| {
            let next = entry.next_event();
            next.is_some_and(|event| event.chain.is_some())
        });
        self.starts.wait(at, is_for_agent);
    }

    /// Handles a completed handshake or an exit, and starts the next agents.
    pub(crate) fn start_next(&mut self, process: ProcessId) {
        self.starts.end(process);
        self.let_in();
    }

    /// Starts queued agents while capacity lasts.
    pub(super) fn let_in(&mut self) {
        while !self.cx.is_paused()
            && self.starts.has_place()
            && self.cx.processes().has_place()
            && self.room.has_place(self.cx.now().mono_ms)
            && let Some(at) = self.starts.next()
        {
            self.advance(&at);
        }
    }

    /// Lets processes start in a restored state root.
    pub(crate) fn resume(&mut self) {
        if self.cx.is_paused() {
            self.cx.end_pause();
            self.log(LogEvent::info("resumed after a restore"));
            self.let_in();
        }
    }

    /// Frees a slot for queued starts, because an agent may have become idle.
    pub(crate) fn offer_place(&mut self) {
        if self.starts.waiting() > 0 && !self.room.has_place(self.cx.now().mono_ms) {
            self.make_place();
        }
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
        assert_eq!(starts.waiting(), 2);
        assert_eq!(starts.next(), Some(at("main")));
        assert_eq!(starts.next(), Some(at("helper:1")));
        assert_eq!(starts.next(), None);
        assert_eq!(starts.waiting(), 0);
    }
}
