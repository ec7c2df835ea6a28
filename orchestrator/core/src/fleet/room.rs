//! Room for processes: what is done when file descriptors, processes or memory run short (`SUP-3`).
//!
//! An agent without work costs descriptors and memory, and waking one costs little. So when something runs
//! short, the agents that have been idle for longest are stopped, and whoever has work takes their place.
//! A few places are kept free ahead, so that a start seldom waits for one: with each start that takes one,
//! some of those idle for longest are stopped, a few at a time, so that nobody is slowed by it.
//! Where there is room for very many, no more than [`IDLE_AGENTS_MAX`] go on without work all the same.
//! Who waits for a place is [`super::starts`]' business.

use std::collections::{BTreeSet, VecDeque};

use goondan_protocol::control::Resource;
use goondan_protocol::ids::InstanceRef;

use super::{Fleet, Owner};
use crate::LogEvent;
use crate::exchange::{ProcessId, Share, Supply};
use crate::limits::{
    IDLE_AGENT_DESCRIPTORS, IDLE_AGENT_MEMORY_BYTES, IDLE_AGENTS_MAX, LONGEST_IDLE_REMEMBERED,
    ROOM_QUIET_MS, ROOM_RETRY_MS, SPARE_STARTS_MAX, SPARE_STARTS_PART, STOPPED_AHEAD_MAX,
    STOPPED_FOR_ROOM_MAX, WORKING_AGENT_DESCRIPTORS, WORKING_AGENT_MEMORY_BYTES,
    WORKING_AGENT_TASKS,
};

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

    /// How many idle agents are to be stopped for as many starts to be possible as are kept ahead, while
    /// `working` may still take what they need.
    fn surplus_ahead(&self, working: u64) -> u64 {
        let (Some((_, reserve)), Some(share)) = (self.free_and_reserve(), self.share) else {
            return 0;
        };
        let places = share.limit.saturating_sub(reserve) / self.per_start;
        let spare = SPARE_STARTS_MAX.min(places / SPARE_STARTS_PART);
        let missing = spare.saturating_add(working).saturating_sub(self.starts());
        missing
            .saturating_mul(self.per_start)
            .div_ceil(self.per_idle)
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

/// How many agents run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Agents {
    working: u64,
    idle: u64,
}

/// An agent that had nothing to do when it was looked at.
#[derive(Debug)]
struct Idle {
    since_ms: u64,
    process: ProcessId,
    at: InstanceRef,
}

/// How much room there is, and who leaves for there to be more.
#[derive(Debug)]
pub(super) struct Room {
    supply: Supply,
    /// How many agents may still start.
    left: u64,
    /// What there is room for the fewest in.
    scarcest: Option<Resource>,
    /// How many idle agents that end make room for one start.
    ends_per_start: u64,
    /// Ends of idle agents that no start was counted for yet.
    ended: u64,
    short_of: Vec<Resource>,
    /// Idle agents that are still to be stopped, a few at a time.
    surplus_ahead: u64,
    /// Those that had been idle for longest when all were looked at, in their order.
    longest_idle: VecDeque<Idle>,
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
            ends_per_start: 1,
            ended: 0,
            short_of: Vec::new(),
            surplus_ahead: 0,
            longest_idle: VecDeque::new(),
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

    /// Takes a measure. Those that are working may not have taken all yet that they will need. Returns how
    /// many idle agents are to be stopped at once.
    fn measured(&mut self, supply: Supply, Agents { working, idle }: Agents) -> u64 {
        self.supply = supply;
        let needs = supply.needs();
        let left = |need: &Need| match need.starts() {
            u64::MAX => u64::MAX,
            starts => starts.saturating_sub(working),
        };
        self.left = needs.iter().map(left).min().unwrap_or(u64::MAX);
        let scarcest = needs.iter().min_by_key(|need| left(need));
        self.scarcest = scarcest.map(|need| need.resource);
        self.ends_per_start = scarcest.map_or(1, |need| need.per_start.div_ceil(need.per_idle));
        self.ended = 0;
        let short = needs.iter().filter(|need| left(need) == 0);
        self.short_of = short.map(|need| need.resource).collect();
        // Those that are leaving will have made room for as many.
        let leaving = u64::try_from(self.leaving.len()).unwrap_or(u64::MAX);
        let most = |surplus: &dyn Fn(&Need) -> u64| {
            let most = needs.iter().map(surplus).max();
            most.unwrap_or(0).saturating_sub(leaving)
        };
        let too_many = idle.saturating_sub(IDLE_AGENTS_MAX);
        self.surplus_ahead = most(&|need| need.surplus_ahead(working)).max(too_many);
        most(&Need::surplus)
    }

    /// Whether an agent may start at that time.
    pub(super) fn has_place(&self, now_ms: u64) -> bool {
        self.left > 0 && now_ms >= self.retry_at_ms
    }

    /// Takes a place for an agent that starts.
    pub(super) fn take(&mut self) {
        if self.left < u64::MAX {
            self.left = self.left.saturating_sub(1);
        }
    }

    /// One that was stopped to make room has ended. What that makes free is reckoned until the next measure.
    fn left(&mut self, process: ProcessId) {
        if !self.leaving.remove(&process) || self.left == u64::MAX {
            return;
        }
        self.ended += 1;
        if self.ended >= self.ends_per_start {
            self.ended = 0;
            self.left += 1;
        }
    }
}

impl Fleet {
    /// How much there is of what processes need.
    pub(crate) fn on_supply(&mut self, supply: Supply) {
        let agents = self.count_agents();
        let surplus = self.room.measured(supply, agents);
        self.tell_of_shortage();
        if surplus > 0 {
            self.stop_longest_idle(usize::try_from(surplus).unwrap_or(usize::MAX));
        } else {
            self.stop_ahead();
        }
        self.let_in();
    }

    /// How many agents run. Those that are leaving take nothing more, and are not counted.
    fn count_agents(&self) -> Agents {
        let mut agents = Agents::default();
        let instances = self.workspaces.values().flat_map(|w| w.instances.values());
        for entry in instances {
            match entry.slot.up() {
                Some(up) if self.room.leaving.contains(&up.process) => {}
                Some(_) if entry.is_at_rest() => agents.idle += 1,
                Some(_) => agents.working += 1,
                None => {}
            }
        }
        agents
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

    /// Stops as many idle agents as one that works takes the place of; those that are leaving already are
    /// waited for first.
    pub(super) fn make_place(&mut self) {
        if self.room.leaving.is_empty() {
            let places = WORKING_AGENT_DESCRIPTORS.div_ceil(IDLE_AGENT_DESCRIPTORS);
            self.stop_longest_idle(usize::try_from(places).unwrap_or(1));
        }
    }

    /// Stops a few of those that are to leave for places to be free ahead.
    pub(super) fn stop_ahead(&mut self) {
        let count = STOPPED_AHEAD_MAX.min(self.room.surplus_ahead);
        if count > 0 {
            self.stop_longest_idle(usize::try_from(count).unwrap_or(usize::MAX));
        }
    }

    /// Whether waiting for room makes some: somebody is about to end or at work, and does not wait for this
    /// one.
    pub(super) fn is_worth_waiting_for(&mut self, at: &InstanceRef) -> bool {
        if self.now.mono_ms < self.room.retry_at_ms || !self.room.leaving.is_empty() {
            return true;
        }
        let is_asked = self.instance_mut(at).is_some_and(|entry| {
            let first = entry.inbox.ready().next();
            first.is_some_and(|event| event.chain.is_some())
        });
        // Memory and processes are not the daemon's alone: others may hold them for ever.
        let is_own = self.room.scarcest == Some(Resource::Descriptors);
        let mut owners = self.owners.values();
        is_own && !is_asked && owners.any(|owner| matches!(owner, Owner::Agent(_)))
    }

    /// Asks agents to end that have nothing to do, those idle for longest first.
    fn stop_longest_idle(&mut self, count: usize) {
        for _ in 0..count.min(STOPPED_FOR_ROOM_MAX) {
            let Some(Idle { process, at, .. }) = self.next_longest_idle() else {
                return;
            };
            self.room.surplus_ahead = self.room.surplus_ahead.saturating_sub(1);
            self.room.leaving.insert(process);
            self.drain_agent(&at, None, "its place is needed");
        }
    }

    /// The agent that has been idle for longest, if one is.
    fn next_longest_idle(&mut self) -> Option<Idle> {
        let mut was_looked = false;
        loop {
            match self.room.longest_idle.pop_front() {
                Some(idle) if self.is_idle_since(&idle) => return Some(idle),
                Some(_) => {}
                None if was_looked => return None,
                None => {
                    self.look_for_idle();
                    was_looked = true;
                }
            }
        }
    }

    /// Whether an agent has had nothing to do ever since.
    fn is_idle_since(&self, idle: &Idle) -> bool {
        let workspace = self.workspaces.get(&idle.at.workspace_id);
        let entry = workspace.and_then(|w| w.instances.get(&idle.at.instance_key));
        entry.is_some_and(|entry| {
            entry.may_leave()
                && entry.slot.ready() == Some(idle.process)
                && entry.idle_since_ms == idle.since_ms
        })
    }

    /// Looks through all agents. There may be thousands, so more are noted than are to be stopped now.
    fn look_for_idle(&mut self) {
        let mut idle = Vec::new();
        for (workspace_id, workspace) in &self.workspaces {
            let instances = workspace.instances.iter();
            idle.extend(instances.filter_map(|(key, entry)| {
                let process = entry.slot.ready().filter(|_| entry.may_leave())?;
                Some((entry.idle_since_ms, process, workspace_id, key))
            }));
        }
        if idle.len() > LONGEST_IDLE_REMEMBERED {
            idle.select_nth_unstable(LONGEST_IDLE_REMEMBERED);
            idle.truncate(LONGEST_IDLE_REMEMBERED);
        }
        idle.sort_unstable();
        let idle = idle.into_iter().map(|(since_ms, process, id, key)| Idle {
            since_ms,
            process,
            at: InstanceRef {
                workspace_id: id.clone(),
                instance_key: key.clone(),
            },
        });
        self.room.longest_idle = idle.collect();
    }

    /// An agent's process is gone: who waits may have its place.
    pub(crate) fn give_room(&mut self, process: ProcessId) {
        self.room.left(process);
        self.let_in();
    }

    /// A process could not be started for want of room. Whose it was to be.
    pub(crate) fn on_no_room(&mut self, process: ProcessId, how: &str) -> Option<Owner> {
        let owner = self.owners.remove(&process)?;
        if let Some(slot) = self.slot_mut(&owner) {
            slot.not_started(how.to_owned());
        }
        let event = LogEvent::warn("there is no room for a process; it is started in a moment");
        self.log(Self::log_of(&owner, event).with("how", how));
        self.room.left = 0;
        self.room.retry_at_ms = self.now.mono_ms.saturating_add(ROOM_RETRY_MS);
        if let Owner::Agent(at) = &owner {
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

    fn descriptors(used: u64, limit: u64) -> Supply {
        let descriptors = Some(Share { used, limit });
        Supply {
            descriptors,
            ..Supply::default()
        }
    }

    const NOBODY: Agents = Agents {
        working: 0,
        idle: 0,
    };

    #[test]
    fn sup_3_no_more_agents_than_so_many_go_on_without_work() {
        let mut room = Room::default();
        let agents = |idle| Agents { working: 7, idle };
        assert_eq!(room.measured(Supply::default(), agents(IDLE_AGENTS_MAX)), 0);
        assert_eq!(room.surplus_ahead, 0);
        let too_many = agents(IDLE_AGENTS_MAX + 5);
        assert_eq!(room.measured(Supply::default(), too_many), 0, "not at once");
        assert_eq!(room.surplus_ahead, 5);
        assert!(room.short_of().is_empty() && room.has_place(0));
    }

    #[test]
    fn sup_3_what_is_not_told_is_not_short() {
        let mut room = Room::default();
        assert_eq!(room.measured(Supply::default(), NOBODY), 0);
        assert!(room.short_of().is_empty() && room.has_place(0));
        assert_eq!(room.surplus_ahead, 0);
    }

    #[test]
    fn sup_3_a_reserve_is_kept_for_work_in_progress() {
        let mut room = Room::default();
        // Of 800 descriptors 100 are kept.
        assert_eq!(
            room.measured(
                descriptors(700 - 2 * WORKING_AGENT_DESCRIPTORS, 800),
                NOBODY
            ),
            0
        );
        for _ in 0..2 {
            assert!(room.has_place(0));
            room.take();
        }
        assert!(!room.has_place(0));
        assert_eq!(room.measured(descriptors(700, 800), NOBODY), 0);
        assert_eq!(room.short_of(), [Resource::Descriptors]);
        let surplus = room.measured(descriptors(710, 800), NOBODY);
        assert_eq!(surplus, 10_u64.div_ceil(IDLE_AGENT_DESCRIPTORS));
        assert_eq!(room.measured(descriptors(10, 800), NOBODY), 0);
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
        assert!(room.measured(supply, NOBODY) > 0);
        assert_eq!(room.short_of(), [Resource::Processes, Resource::Memory]);
    }

    #[test]
    fn sup_3_places_are_kept_free_ahead_and_reckoned_between_measures() {
        let mut room = Room::default();
        // Of 20,000 descriptors 1,024 are kept, and the room of some starts before that.
        let full = 20_000 - 1_024;
        assert_eq!(room.measured(descriptors(full, 20_000), NOBODY), 0);
        let ahead = SPARE_STARTS_MAX * WORKING_AGENT_DESCRIPTORS;
        assert_eq!(room.surplus_ahead, ahead.div_ceil(IDLE_AGENT_DESCRIPTORS));
        let ends = WORKING_AGENT_DESCRIPTORS.div_ceil(IDLE_AGENT_DESCRIPTORS);
        for n in 0..ends {
            assert!(!room.has_place(0), "{n}");
            room.leaving.insert(ProcessId(n));
            room.left(ProcessId(n));
        }
        assert!(room.has_place(0));
        room.measured(descriptors(full - ahead, 20_000), NOBODY);
        assert_eq!(room.surplus_ahead, 0);
    }
}
