//! Counts of the events and calls between a workspace's connections and agents, for people who
//! watch it (`OBS-5`).
//!
//! An event counts when it is durable, and a repeated delivery does not count again. The counts are
//! in memory only: they show what happens, and are not a ledger.

use std::collections::BTreeMap;

use goondan_protocol::control::{
    ControlError, ReadTraffic, TrafficEnd, TrafficFlow, TrafficReport,
};
use goondan_protocol::event::EventSource;
use goondan_protocol::ids::{AgentName, ConnectionName, InstanceKey};
use goondan_protocol::time::Timestamp;

use super::Workspace;
use super::views::View;
use crate::bus::context::Cx;
use crate::limits::TRAFFIC_FLOWS_MAX;

/// Counts of one sender and one receiver.
#[derive(Debug, Clone, Copy)]
struct FlowCount {
    count: u64,
    last_at: Timestamp,
}

/// Counts of one workspace. The number of flows is bounded, because names of agents and connections
/// change with the configuration.
#[derive(Debug)]
pub(super) struct Traffic {
    since: Timestamp,
    flows: BTreeMap<(TrafficEnd, TrafficEnd), FlowCount>,
    others: u64,
}

impl Traffic {
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            since: now,
            flows: BTreeMap::new(),
            others: 0,
        }
    }

    fn count(&mut self, from: TrafficEnd, to: TrafficEnd, now: Timestamp) {
        let key = (from, to);
        if self.flows.len() >= TRAFFIC_FLOWS_MAX && !self.flows.contains_key(&key) {
            self.others = self.others.saturating_add(1);
            return;
        }
        let flow = self.flows.entry(key).or_insert(FlowCount {
            count: 0,
            last_at: now,
        });
        flow.count = flow.count.saturating_add(1);
        flow.last_at = now;
    }

    fn report(&self, now: Timestamp) -> TrafficReport {
        let flows = self.flows.iter().map(|((from, to), flow)| TrafficFlow {
            from: from.clone(),
            to: to.clone(),
            count: flow.count,
            last_at: flow.last_at,
        });
        TrafficReport {
            at: now,
            since: self.since,
            flows: flows.collect(),
            others: self.others,
        }
    }
}

impl Workspace {
    /// Counts a new event of a conversation.
    pub(super) fn count_event(&mut self, cx: &Cx, key: &InstanceKey, source: &EventSource) {
        let Some(to) = self.agent_name(key).cloned() else {
            return;
        };
        let from = match source {
            EventSource::Agent { name, .. } => TrafficEnd::Agent { name: name.clone() },
            EventSource::Connector { name } => TrafficEnd::Connection { name: name.clone() },
        };
        let to = TrafficEnd::Agent { name: to };
        self.traffic.count(from, to, cx.now().wall);
    }

    /// Counts a successful call of an agent to a connection.
    pub(crate) fn count_call(&mut self, cx: &Cx, agent: &AgentName, to: &ConnectionName) {
        let from = TrafficEnd::Agent {
            name: agent.clone(),
        };
        let to = TrafficEnd::Connection { name: to.clone() };
        self.traffic.count(from, to, cx.now().wall);
    }
}

impl View<'_> {
    /// Returns the counts of a workspace.
    pub(crate) fn traffic(self, read: &ReadTraffic) -> Result<TrafficReport, ControlError> {
        let workspace = self.workspace(&read.workspace_id)?;
        Ok(workspace.traffic.report(self.cx.now().wall))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(name: &str) -> TrafficEnd {
        TrafficEnd::Agent {
            name: AgentName::new(name).unwrap(),
        }
    }

    fn at(second: u32) -> Timestamp {
        format!("2026-01-01T00:00:{second:02}.000Z")
            .parse()
            .unwrap()
    }

    #[test]
    fn obs_5_traffic_counts_each_pair_with_its_latest_time() {
        let mut traffic = Traffic::new(at(0));
        traffic.count(agent("a"), agent("b"), at(1));
        traffic.count(agent("b"), agent("a"), at(2));
        traffic.count(agent("a"), agent("b"), at(3));
        let report = traffic.report(at(4));
        let flows = report.flows.iter();
        let flows: Vec<_> = flows.map(|flow| (flow.count, flow.last_at)).collect();
        assert_eq!(flows, [(2, at(3)), (1, at(2))]);
        assert_eq!((report.since, report.at, report.others), (at(0), at(4), 0));
    }

    #[test]
    fn obs_5_traffic_of_too_many_pairs_is_counted_together() {
        let mut traffic = Traffic::new(at(0));
        for number in 0..TRAFFIC_FLOWS_MAX + 2 {
            traffic.count(agent(&format!("a{number}")), agent("b"), at(1));
        }
        // Known pairs are still counted separately.
        traffic.count(agent("a0"), agent("b"), at(2));
        let report = traffic.report(at(3));
        assert_eq!(report.flows.len(), TRAFFIC_FLOWS_MAX);
        assert_eq!(report.flows[0].count, 2);
        assert_eq!(report.others, 2);
    }
}
