//! Room for processes: what is done when file descriptors, processes or memory run short (`SUP-3`).
//!
//! An agent without work costs descriptors and memory, and waking one costs little. So when something runs
//! short, the agents that have been idle for longest are stopped, and whoever has work takes their place.
//! Where nobody is idle, a start waits until some process has ended: what is in progress has precedence.
//! It does not wait if nothing is in progress, or if what is in progress waits for it. A start that fails
//! for want of room is no crash: it is made again.

use std::collections::{BTreeSet, VecDeque};

use goondan_protocol::control::Resource;
use goondan_protocol::ids::InstanceRef;

use super::{Core, LogEvent, Owner, ProcessId};
use crate::limits::{
    IDLE_AGENT_DESCRIPTORS, IDLE_AGENT_MEMORY_BYTES, ROOM_QUIET_MS, ROOM_RETRY_MS,
    STOPPED_FOR_ROOM_MAX, WORKING_AGENT_DESCRIPTORS, WORKING_AGENT_MEMORY_BYTES,
    WORKING_AGENT_TASKS,
};

/// How much of something is in use, and how much there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) used: u64,
    pub(crate) limit: u64,
}

/// What there is of what processes need. What the system does not tell is not short.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Supply {
    /// File descriptors of the daemon.
    pub(crate) descriptors: Option<Share>,
    /// Processes and their threads, of the machine or the control group.
    pub(crate) tasks: Option<Share>,
    /// Memory of the machine or the control group, in bytes.
    pub(crate) memory_bytes: Option<Share>,
}

/// How one resource is counted.
struct Need {
    resource: Resource,
    share: Option<Share>,
    /// What is kept free for work in progress: one part in so many of all, within bounds.
    reserve_part: u64,
    reserve_min: u64,
    reserve_max: u64,
    per_start: u64,
    per_idle: u64,
}

impl Need {
    fn free_and_reserve(&self) -> Option<(u64, u64)> {
        let Share { used, limit } = self.share?;
        let reserve = (limit / self.reserve_part).clamp(self.reserve_min, self.reserve_max);
        Some((limit.saturating_sub(used), reserve))
    }

    /// How many more agents may start.
    fn starts(&self) -> u64 {
        self.free_and_reserve().map_or(u64::MAX, |(free, reserve)| {
            free.saturating_sub(reserve) / self.per_start
        })
    }

    /// How many idle agents are to be stopped for the reserve to be free.
    fn surplus(&self) -> u64 {
        self.free_and_reserve().map_or(0, |(free, reserve)| {
            reserve.saturating_sub(free).div_ceil(self.per_idle)
        })
    }
}

impl Supply {
    fn needs(&self) -> [Need; 3] {
        [
            Need {
                resource: Resource::Descriptors,
                share: self.descriptors,
                reserve_part: 8,
                reserve_min: 24,
                reserve_max: 1_024,
                per_start: WORKING_AGENT_DESCRIPTORS,
                per_idle: IDLE_AGENT_DESCRIPTORS,
            },
            Need {
                resource: Resource::Processes,
                share: self.tasks,
                reserve_part: 16,
                reserve_min: 16,
                reserve_max: 1_024,
                per_start: WORKING_AGENT_TASKS,
                per_idle: 1,
            },
            Need {
                resource: Resource::Memory,
                share: self.memory_bytes,
                reserve_part: 16,
                reserve_min: 32 << 20,
                reserve_max: 512 << 20,
                per_start: WORKING_AGENT_MEMORY_BYTES,
                per_idle: IDLE_AGENT_MEMORY_BYTES,
            },
        ]
    }
}

/// How much room there is, and who waits for some.
#[derive(Debug)]
pub(super) struct Room {
    supply: Supply,
    /// How many agents may still start.
    left: u64,
    /// What there is room for the fewest in.
    scarcest: Option<Resource>,
    short_of: Vec<Resource>,
    waiting: VecDeque<InstanceRef>,
    /// Those that are being stopped to make room.
    leaving: BTreeSet<ProcessId>,
    /// Until then a start that would fail is not tried.
    retry_at_ms: u64,
    last_short_ms: u64,
    is_told: bool,
}

impl Default for Room {
    fn default() -> Self {
        Self {
            supply: Supply::default(),
            left: u64::MAX,
            scarcest: None,
            short_of: Vec::new(),
            waiting: VecDeque::new(),
            leaving: BTreeSet::new(),
            retry_at_ms: 0,
            last_short_ms: 0,
            is_told: false,
        }
    }
}

impl Room {
    /// What has run short.
    pub(super) fn short_of(&self) -> &[Resource] {
        &self.short_of
    }

    /// The descriptors that are open, and how many may be.
    pub(super) fn descriptors(&self) -> Option<Share> {
        self.supply.descriptors
    }

    /// How many conversations with work wait for room.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Takes a measure. Those that are `working` may not have taken all yet that they will need. Returns how
    /// many idle agents are to be stopped.
    fn measured(&mut self, supply: Supply, working: u64) -> u64 {
        self.supply = supply;
        let needs = supply.needs();
        let left = |need: &Need| match need.starts() {
            u64::MAX => u64::MAX,
            starts => starts.saturating_sub(working),
        };
        self.left = needs.iter().map(left).min().unwrap_or(u64::MAX);
        self.scarcest = needs
            .iter()
            .min_by_key(|need| left(need))
            .map(|need| need.resource);
        let short = needs.iter().filter(|need| left(need) == 0);
        self.short_of = short.map(|need| need.resource).collect();
        needs.iter().map(Need::surplus).max().unwrap_or(0)
    }

    fn take(&mut self) -> bool {
        let has_room = self.left > 0;
        if has_room && self.left < u64::MAX {
            self.left -= 1;
        }
        has_room
    }

    fn wait(&mut self, at: &InstanceRef) {
        if !self.waiting.contains(at) {
            self.waiting.push_back(at.clone());
        }
    }
}

impl Core {
    /// How much there is of what processes need.
    pub(super) fn on_supply(&mut self, supply: Supply) {
        let instances = self.workspaces.values().flat_map(|w| w.instances.values());
        let working = instances.filter(|entry| entry.slot.up().is_some() && !entry.is_at_rest());
        let working = u64::try_from(working.count()).unwrap_or(u64::MAX);
        let surplus = self.room.measured(supply, working);
        self.tell_of_shortage();
        if surplus > 0 {
            self.stop_longest_idle(usize::try_from(surplus).unwrap_or(usize::MAX));
        } else if !self.room.waiting.is_empty() {
            self.let_in();
        }
    }

    /// Says when room begins to run short, and when it has not for a while: in between it comes and goes.
    fn tell_of_shortage(&mut self) {
        let now_ms = self.now.mono_ms;
        if !self.room.short_of.is_empty() {
            self.room.last_short_ms = now_ms;
        }
        let is_over = now_ms.saturating_sub(self.room.last_short_ms) >= ROOM_QUIET_MS;
        let event = match (self.room.short_of.is_empty(), self.room.is_told) {
            (false, false) => {
                LogEvent::warn("room for processes runs short; agents idle for longest are stopped")
            }
            (true, true) if is_over => LogEvent::info("there is room for processes again"),
            _ => return,
        };
        self.room.is_told = !self.room.is_told;
        let short_of: Vec<&str> = self.room.short_of.iter().map(|r| r.as_str()).collect();
        self.log(event.with("shortOf", short_of.join(", ")));
    }

    /// Whether an agent may start now. If it may not, it starts when there is room.
    pub(super) fn may_take_room(&mut self, at: &InstanceRef) -> bool {
        if self.now.mono_ms < self.room.retry_at_ms {
            self.room.wait(at);
            return false;
        }
        if self.room.take() {
            self.room.waiting.retain(|waiting| waiting != at);
            return true;
        }
        self.make_place();
        if self.is_worth_waiting_for(at) {
            self.room.wait(at);
            return false;
        }
        self.room.waiting.retain(|waiting| waiting != at);
        true
    }

    /// Stops as many idle agents as one that works takes the place of; those that are leaving already are
    /// waited for first.
    fn make_place(&mut self) {
        if self.room.leaving.is_empty() {
            let places = WORKING_AGENT_DESCRIPTORS.div_ceil(IDLE_AGENT_DESCRIPTORS);
            self.stop_longest_idle(usize::try_from(places).unwrap_or(1));
        }
    }

    /// An agent may have nothing to do any more: who waits for room may have its place.
    pub(super) fn offer_place(&mut self) {
        if self.room.left == 0 && !self.room.waiting.is_empty() {
            self.make_place();
        }
    }

    /// Whether waiting makes room: somebody is about to end or at work, and does not wait for this one.
    fn is_worth_waiting_for(&mut self, at: &InstanceRef) -> bool {
        if !self.room.leaving.is_empty() {
            return true;
        }
        let is_asked = self.instance_mut(at).is_some_and(|entry| {
            entry
                .waiting
                .front()
                .is_some_and(|event| event.chain.is_some())
        });
        // Memory and processes are not the daemon's alone: others may hold them for ever.
        let is_own = self.room.scarcest == Some(Resource::Descriptors);
        let mut owners = self.owners.values();
        is_own && !is_asked && owners.any(|owner| matches!(owner, Owner::Agent(_)))
    }

    /// Asks agents to end that have nothing to do, those idle for longest first.
    fn stop_longest_idle(&mut self, count: usize) {
        let count = count.min(STOPPED_FOR_ROOM_MAX);
        let mut idle: Vec<(u64, ProcessId, InstanceRef)> = Vec::new();
        for (id, workspace) in &self.workspaces {
            for (key, entry) in &workspace.instances {
                if let Some(process) = entry.slot.ready()
                    && entry.is_at_rest()
                    && entry.accepting == 0
                {
                    let (workspace_id, instance_key) = (id.clone(), key.clone());
                    let at = InstanceRef {
                        workspace_id,
                        instance_key,
                    };
                    idle.push((entry.idle_since_ms, process, at));
                }
            }
        }
        // In a crowd several are stopped at once, so that it is not looked through for each.
        let count = count.max(idle.len() / 64).min(STOPPED_FOR_ROOM_MAX);
        if idle.len() > count {
            idle.select_nth_unstable(count);
            idle.truncate(count);
        }
        for (_, process, at) in idle {
            self.room.leaving.insert(process);
            self.drain_agent(&at, None, "its place is needed");
        }
    }

    /// An agent's process is gone. What that makes free, the next measure tells.
    pub(super) fn give_room(&mut self, process: ProcessId) {
        self.room.leaving.remove(&process);
    }

    /// Starts those that wait for room, as long as there is some.
    fn let_in(&mut self) {
        while self.room.left > 0
            && self.now.mono_ms >= self.room.retry_at_ms
            && let Some(at) = self.room.waiting.pop_front()
        {
            self.pump(&at);
        }
    }

    /// A process could not be started for want of room.
    pub(super) fn on_no_room(&mut self, process: ProcessId, how: &str) {
        let Some(owner) = self.owners.remove(&process) else {
            return;
        };
        if let Some(slot) = self.slot_mut(&owner) {
            slot.not_started(how.to_owned());
        }
        let event = LogEvent::warn("there is no room for a process; it is started in a moment");
        self.log(Self::log_of(&owner, event).with("how", how));
        self.room.left = 0;
        self.room.retry_at_ms = self.now.mono_ms.saturating_add(ROOM_RETRY_MS);
        if let Owner::Agent(at) = &owner {
            self.room.wait(at);
        }
        self.make_place();
        self.start_next(process);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptors(used: u64, limit: u64) -> Supply {
        let descriptors = Some(Share { used, limit });
        Supply {
            descriptors,
            ..Supply::default()
        }
    }

    #[test]
    fn sup_3_what_is_not_told_is_not_short() {
        let mut room = Room::default();
        assert_eq!(room.measured(Supply::default(), 0), 0);
        assert!(room.short_of().is_empty() && room.take());
    }

    #[test]
    fn sup_3_a_reserve_is_kept_for_work_in_progress() {
        let mut room = Room::default();
        // Of 800 descriptors 100 are kept.
        assert_eq!(
            room.measured(descriptors(700 - 2 * WORKING_AGENT_DESCRIPTORS, 800), 0),
            0
        );
        assert!(room.take() && room.take() && !room.take());
        assert_eq!(room.measured(descriptors(700, 800), 0), 0);
        assert_eq!(room.short_of(), [Resource::Descriptors]);
        let surplus = room.measured(descriptors(710, 800), 0);
        assert_eq!(surplus, 10_u64.div_ceil(IDLE_AGENT_DESCRIPTORS));
        assert_eq!(room.measured(descriptors(10, 800), 0), 0);
        assert!(room.short_of().is_empty());
    }

    #[test]
    fn sup_3_memory_and_processes_run_short_too() {
        let mut room = Room::default();
        let share = |used, limit| Some(Share { used, limit });
        let supply = Supply {
            descriptors: share(10, 1_000),
            tasks: share(1_000, 1_000),
            memory_bytes: share(1 << 30, 1 << 30),
        };
        assert!(room.measured(supply, 0) > 0);
        assert_eq!(room.short_of(), [Resource::Processes, Resource::Memory]);
    }
}
