//! Capacity for processes when file descriptors, processes or memory run short (`SUP-3`).
//!
//! An idle agent uses descriptors and memory, and restarting it is cheap. When a resource runs
//! short, the agents that have been idle longest are stopped to make room for agents with work. A
//! few slots are kept free in advance, so a start seldom waits: each start that takes one stops
//! some of the longest idle agents, a few at a time to avoid delays. Even with ample capacity, at
//! most [`IDLE_AGENTS_MAX`] idle agents keep running. [`super::starts`] queues the agents that wait
//! for a slot.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use goondan_protocol::control::Resource;
use goondan_protocol::ids::{InstanceRef, WorkspaceId};

use super::Workspace;
use super::conversation::Conversation;
use crate::LogEvent;
use crate::bus::context::Cx;
use crate::exchange::{ProcessId, ResourceLevel, ResourceUsage};
use crate::limits::{
    IDLE_AGENT_DESCRIPTORS, IDLE_AGENT_MEMORY_BYTES, IDLE_AGENTS_MAX, LONGEST_IDLE_REMEMBERED,
    ROOM_QUIET_MS, ROOM_RETRY_MS, SPARE_STARTS_MAX, SPARE_STARTS_PART, STOPPED_AHEAD_MAX,
    WORKING_AGENT_DESCRIPTORS, WORKING_AGENT_MEMORY_BYTES, WORKING_AGENT_TASKS,
};

struct ResourceDemand {
    resource: Resource,
    share: Option<ResourceLevel>,
    /// Reserve for work in progress: a fraction of the total (1/`reserve_part`), within bounds.
    reserve_part: u64,
    reserve_min: u64,
    reserve_max: u64,
    per_start: u64,
    per_idle: u64,
}

impl ResourceDemand {
    fn free_and_reserve(&self) -> Option<(u64, u64)> {
        let ResourceLevel { used, limit } = self.share?;
        let reserve = (limit / self.reserve_part).clamp(self.reserve_min, self.reserve_max);
        Some((limit.saturating_sub(used), reserve))
    }

    /// Number of agents that can still start.
    fn starts(&self) -> u64 {
        self.free_and_reserve().map_or(u64::MAX, |(free, reserve)| {
            free.saturating_sub(reserve) / self.per_start
        })
    }

    /// Number of idle agents to stop to free the reserve.
    fn surplus(&self) -> u64 {
        self.free_and_reserve().map_or(0, |(free, reserve)| {
            reserve.saturating_sub(free).div_ceil(self.per_idle)
        })
    }

    /// Number of idle agents to stop so that the spare starts are possible, while `working` agents
    /// may still take the resources they need.
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

impl ResourceUsage {
    fn needs(&self) -> [ResourceDemand; 3] {
        [
            ResourceDemand {
                resource: Resource::Descriptors,
                share: self.descriptors,
                reserve_part: 8,
                reserve_min: 24,
                reserve_max: 1_024,
                per_start: WORKING_AGENT_DESCRIPTORS,
                per_idle: IDLE_AGENT_DESCRIPTORS,
            },
            ResourceDemand {
                resource: Resource::Processes,
                share: self.tasks,
                reserve_part: 16,
                reserve_min: 16,
                reserve_max: 1_024,
                per_start: WORKING_AGENT_TASKS,
                per_idle: 1,
            },
            ResourceDemand {
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

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Agents {
    working: u64,
    idle: u64,
}

/// An agent that was idle when checked.
#[derive(Debug)]
pub(super) struct IdleAgent {
    since_ms: u64,
    pub(super) process: ProcessId,
    pub(super) at: InstanceRef,
}

/// Available capacity, and the agents being stopped to increase it.
#[derive(Debug)]
pub(super) struct CapacityState {
    supply: ResourceUsage,
    /// Number of agents that can still start.
    left: u64,
    scarcest: Option<Resource>,
    /// Number of idle agents to stop for one start.
    ends_per_start: u64,
    /// Stopped idle agents that have not been counted toward a start.
    ended: u64,
    short_of: Vec<Resource>,
    /// Idle agents that will be stopped, a few at a time.
    surplus_ahead: u64,
    /// The longest idle agents at the last scan, in order.
    longest_idle: VecDeque<IdleAgent>,
    /// Agents being stopped to free resources.
    leaving: BTreeSet<ProcessId>,
    /// No start is attempted before this time, because it would fail.
    retry_at_ms: u64,
    last_short_ms: u64,
    is_told: bool,
}

impl Default for CapacityState {
    fn default() -> Self {
        Self {
            supply: ResourceUsage::default(),
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

impl CapacityState {
    pub(super) fn short_of(&self) -> &[Resource] {
        &self.short_of
    }

    /// Number of open descriptors, and the limit.
    pub(super) fn descriptors(&self) -> Option<ResourceLevel> {
        self.supply.descriptors
    }

    /// Applies a measurement. Working agents may not have taken all their resources yet. Returns
    /// the number of idle agents to stop immediately.
    fn measured(&mut self, supply: ResourceUsage, Agents { working, idle }: Agents) -> u64 {
        self.supply = supply;
        let needs = supply.needs();
        let left = |need: &ResourceDemand| match need.starts() {
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
        // Subtracts the agents already being stopped.
        let leaving = u64::try_from(self.leaving.len()).unwrap_or(u64::MAX);
        let most = |surplus: &dyn Fn(&ResourceDemand) -> u64| {
            let most = needs.iter().map(surplus).max();
            most.unwrap_or(0).saturating_sub(leaving)
        };
        let too_many = idle.saturating_sub(IDLE_AGENTS_MAX);
        self.surplus_ahead = most(&|need| need.surplus_ahead(working)).max(too_many);
        most(&ResourceDemand::surplus)
    }

    /// Number of idle agents to stop now to keep slots free in advance.
    pub(super) fn to_stop_ahead(&self) -> u64 {
        STOPPED_AHEAD_MAX.min(self.surplus_ahead)
    }

    /// True if agents are being stopped to free resources.
    pub(super) fn is_stopping_any(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// True if an agent may start at `now_ms`.
    pub(super) fn has_place(&self, now_ms: u64) -> bool {
        self.left > 0 && now_ms >= self.retry_at_ms
    }

    /// Takes a slot for a starting agent.
    pub(super) fn take(&mut self) {
        if self.left < u64::MAX {
            self.left = self.left.saturating_sub(1);
        }
    }

    /// Handles the exit of an agent that was stopped to free resources. Its resources are estimated
    /// until the next measurement.
    pub(super) fn left(&mut self, process: ProcessId) {
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

/// Running and idle agents.
impl CapacityState {
    /// Handles a measurement of the available resources. Returns the number of idle agents to stop
    /// immediately.
    pub(super) fn on_supply(
        &mut self,
        cx: &mut Cx,
        workspaces: &BTreeMap<WorkspaceId, Workspace>,
        supply: ResourceUsage,
    ) -> u64 {
        let agents = self.count(workspaces);
        let surplus = self.measured(supply, agents);
        self.report(cx);
        surplus
    }

    /// Counts the running agents. Agents being stopped take no more resources and are not counted.
    fn count(&self, workspaces: &BTreeMap<WorkspaceId, Workspace>) -> Agents {
        let mut agents = Agents::default();
        for entry in workspaces.values().flat_map(|w| w.conversations.values()) {
            match entry.slot().up() {
                Some(up) if self.leaving.contains(&up.process) => {}
                Some(_) if entry.is_at_rest() => agents.idle += 1,
                Some(_) => agents.working += 1,
                None => {}
            }
        }
        agents
    }

    /// Reports the start of a shortage, and its end after a period without one, because shortages
    /// fluctuate.
    fn report(&mut self, cx: &mut Cx) {
        let now_ms = cx.now().mono_ms;
        if !self.short_of.is_empty() {
            self.last_short_ms = now_ms;
        }
        let is_over = now_ms.saturating_sub(self.last_short_ms) >= ROOM_QUIET_MS;
        let event = match (self.short_of.is_empty(), self.is_told) {
            (false, false) => LogEvent::warn(
                "resources for processes run short; stopping the longest idle agents",
            ),
            (true, true) if is_over => LogEvent::info("resources for processes available again"),
            _ => return,
        };
        self.is_told = !self.is_told;
        let short_of: Vec<&str> = self.short_of.iter().map(|r| r.as_str()).collect();
        cx.log(event.with("shortOf", short_of.join(", ")));
    }

    /// Handles a failed start of a process: delays the next start.
    pub(super) fn run_out(&mut self, now_ms: u64) {
        self.left = 0;
        self.retry_at_ms = now_ms.saturating_add(ROOM_RETRY_MS);
    }

    /// Records that an idle agent is being stopped to free its resources.
    pub(super) fn begin_stopping(&mut self, process: ProcessId) {
        self.surplus_ahead = self.surplus_ahead.saturating_sub(1);
        self.leaving.insert(process);
    }

    /// True if waiting can free capacity: an agent is stopping, or an agent works without waiting
    /// for the agent that starts.
    pub(super) fn is_worth_waiting_for(&self, cx: &Cx, entry: Option<&Conversation>) -> bool {
        if cx.now().mono_ms < self.retry_at_ms || !self.leaving.is_empty() {
            return true;
        }
        let is_asked = entry.is_some_and(|entry| {
            let first = entry.queue().ready().next();
            first.is_some_and(|event| event.chain.is_some())
        });
        // Other programs may hold memory and processes indefinitely.
        let is_own = self.scarcest == Some(Resource::Descriptors);
        is_own && !is_asked && cx.processes().is_any_agent()
    }

    /// The longest idle agent, if any.
    pub(super) fn next_longest_idle(
        &mut self,
        workspaces: &BTreeMap<WorkspaceId, Workspace>,
    ) -> Option<IdleAgent> {
        let mut was_looked = false;
        loop {
            match self.longest_idle.pop_front() {
                Some(idle) if idle.is_idle_since(workspaces) => return Some(idle),
                Some(_) => {}
                None if was_looked => return None,
                None => {
                    self.look_for_idle(workspaces);
                    was_looked = true;
                }
            }
        }
    }

    /// Scans all agents. There can be thousands, so it records more than are stopped now.
    fn look_for_idle(&mut self, workspaces: &BTreeMap<WorkspaceId, Workspace>) {
        let mut idle = Vec::new();
        for (workspace_id, workspace) in workspaces {
            let instances = workspace.conversations.iter();
            idle.extend(instances.filter_map(|(key, entry)| {
                let process = entry.slot().ready().filter(|_| entry.may_leave())?;
                Some((entry.idle_since_ms(), process, workspace_id, key))
            }));
        }
        if idle.len() > LONGEST_IDLE_REMEMBERED {
            idle.select_nth_unstable(LONGEST_IDLE_REMEMBERED);
            idle.truncate(LONGEST_IDLE_REMEMBERED);
        }
        idle.sort_unstable();
        let idle = idle
            .into_iter()
            .map(|(since_ms, process, id, key)| IdleAgent {
                since_ms,
                process,
                at: InstanceRef {
                    workspace_id: id.clone(),
                    instance_key: key.clone(),
                },
            });
        self.longest_idle = idle.collect();
    }
}

impl IdleAgent {
    /// True if it has been idle since the scan.
    fn is_idle_since(&self, workspaces: &BTreeMap<WorkspaceId, Workspace>) -> bool {
        let workspace = workspaces.get(&self.at.workspace_id);
        let entry = workspace.and_then(|w| w.conversations.get(&self.at.instance_key));
        entry.is_some_and(|entry| {
            entry.may_leave()
                && entry.slot().ready() == Some(self.process)
                && entry.idle_since_ms() == self.since_ms
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptors(used: u64, limit: u64) -> ResourceUsage {
        let descriptors = Some(ResourceLevel { used, limit });
        ResourceUsage {
            descriptors,
            ..ResourceUsage::default()
        }
    }

    const NOBODY: Agents = Agents {
        working: 0,
        idle: 0,
    };

    #[test]
    fn sup_3_idle_agents_are_limited() {
        let mut room = CapacityState::default();
        let agents = |idle| Agents { working: 7, idle };
        assert_eq!(
            room.measured(ResourceUsage::default(), agents(IDLE_AGENTS_MAX)),
            0
        );
        assert_eq!(room.surplus_ahead, 0);
        let too_many = agents(IDLE_AGENTS_MAX + 5);
        assert_eq!(
            room.measured(ResourceUsage::default(), too_many),
            0,
            "not at once"
        );
        assert_eq!(room.surplus_ahead, 5);
        assert!(room.short_of().is_empty() && room.has_place(0));
    }

    #[test]
    fn sup_3_unknown_supply_is_not_a_shortage() {
        let mut room = CapacityState::default();
        assert_eq!(room.measured(ResourceUsage::default(), NOBODY), 0);
        assert!(room.short_of().is_empty() && room.has_place(0));
        assert_eq!(room.surplus_ahead, 0);
    }

    #[test]
    fn sup_3_a_reserve_is_kept_for_work_in_progress() {
        let mut room = CapacityState::default();
        // Of 800 descriptors, 100 are reserved.
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
        let mut room = CapacityState::default();
        let share = |used, limit| Some(ResourceLevel { used, limit });
        let supply = ResourceUsage {
            descriptors: share(10, 1_000),
            tasks: share(1_000, 1_000),
            memory_bytes: share(1 << 30, 1 << 30),
        };
        assert!(room.measured(supply, NOBODY) > 0);
        assert_eq!(room.short_of(), [Resource::Processes, Resource::Memory]);
    }

    #[test]
    fn sup_3_places_are_reserved_and_estimated_between_measurements() {
        let mut room = CapacityState::default();
        // Of 20,000 descriptors, 1,024 are reserved, plus room for the spare starts.
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
