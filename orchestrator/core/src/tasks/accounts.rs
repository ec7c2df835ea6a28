//! Usage limits of the accounts that the agents of tasks use (`AGENT-8`).
//!
//! A limit is a fact of the task that reached it. Agents with the same account share their limits
//! in all workspaces, so the limits are collected from all tasks.

use std::collections::{BTreeMap, BTreeSet};

use goondan_config::ProjectConfig;
use goondan_protocol::control::AccountUsage;
use goondan_protocol::ids::{AgentName, WorkspaceId};
use goondan_protocol::task::{AgentAccount, CliAgentDefinition};
use goondan_protocol::time::Timestamp;
use goondan_tasks::machine::AgentProfile;
use goondan_tasks::preamble::Preamble;
use goondan_tasks::state::{AgentUsage, State, TokenSpend};

use super::Tasks;
use super::conversation_runs::converses;
use super::entry::TaskEntry;
use crate::exchange::TaskRef;
use crate::fleet::{Fleet, bundle_of};

/// An account, and its agent if the account is unknown.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Identity {
    account: AgentAccount,
    own: Option<(WorkspaceId, AgentName)>,
}

impl Identity {
    fn new(id: &WorkspaceId, agent: &CliAgentDefinition) -> Self {
        let is_known = agent.account.is_known();
        Self {
            account: agent.account.clone(),
            own: (!is_known).then(|| (id.clone(), agent.name.clone())),
        }
    }

    fn key(&self) -> String {
        serde_json::to_string(&(&self.account, &self.own)).unwrap_or_default()
    }
}

impl Tasks {
    /// Configuration of a task's agents, as far as they exist; `None` if it is unknown, or the agent
    /// is of another kind.
    pub(super) fn profiles_of(
        &self,
        fleet: &Fleet,
        at: &TaskRef,
    ) -> Option<BTreeMap<AgentName, AgentProfile>> {
        let state = self.entry(at)?.state().filter(|state| !converses(state))?;
        let workspace = fleet.workspace(&at.workspace_id).ok()?;
        let bundle = bundle_of(workspace).ok()?;
        let has_choice = !state.task.fallbacks.is_empty();
        let limits = if has_choice {
            self.limits(fleet)
        } else {
            BTreeMap::new()
        };
        let agents = state.all_agents().filter_map(|name| bundle.cli_agent(name));
        let profiles = agents.map(|agent| {
            let identity = Identity::new(&at.workspace_id, agent);
            let mut profile = profile(agent);
            if has_choice {
                profile.limited_until = limits.get(&identity).copied();
                profile.account = identity.key();
            }
            (agent.name.clone(), profile)
        });
        Some(profiles.collect())
    }

    /// Usage of the agents of all tasks, by account.
    fn usage_by_account<'a>(
        &'a self,
        fleet: &'a Fleet,
    ) -> impl Iterator<Item = (Identity, &'a AgentUsage)> {
        let spaces = self.spaces.iter();
        spaces.flat_map(move |(id, space)| {
            let bundle = fleet.bundle(id);
            let states = space.entries.values().filter_map(TaskEntry::durable);
            let usage = states.flat_map(State::agent_usage);
            usage.filter_map(move |(name, usage)| {
                let agent = bundle?.cli_agent(name)?;
                Some((Identity::new(id, agent), usage))
            })
        })
    }

    /// Reset time of the last limit of each account that reached one.
    fn limits(&self, fleet: &Fleet) -> BTreeMap<Identity, Timestamp> {
        let mut limits = BTreeMap::new();
        for (identity, usage) in self.usage_by_account(fleet) {
            if let Some(until) = usage.limited_until() {
                let known = limits.entry(identity).or_insert(until);
                *known = until.max(*known);
            }
        }
        limits
    }

    /// The accounts of the agents in these workspaces, with the current window of each.
    pub(crate) fn account_usage(&self, fleet: &Fleet, ids: &[WorkspaceId]) -> Vec<AccountUsage> {
        let now = fleet.now().wall;
        let mut agents: BTreeMap<Identity, BTreeSet<AgentName>> = BTreeMap::new();
        for id in ids {
            let bundle = fleet.bundle(id).into_iter();
            for agent in bundle.flat_map(ProjectConfig::cli_agents) {
                let names = agents.entry(Identity::new(id, agent)).or_default();
                names.insert(agent.name.clone());
            }
        }
        if agents.is_empty() {
            return Vec::new();
        }
        let mut usage: BTreeMap<Identity, Vec<&AgentUsage>> = BTreeMap::new();
        for (identity, of_task) in self.usage_by_account(fleet) {
            usage.entry(identity).or_default().push(of_task);
        }
        let accounts = agents.into_iter().map(|(identity, agents)| {
            let usage = usage.get(&identity).map_or(&[][..], Vec::as_slice);
            window_of(identity.account, agents, usage, now)
        });
        accounts.collect()
    }
}

/// The current window of an account. While its limit is reached, the window is the one before the
/// reset.
fn window_of(
    account: AgentAccount,
    agents: BTreeSet<AgentName>,
    usage: &[&AgentUsage],
    now: Timestamp,
) -> AccountUsage {
    let resets = usage.iter().flat_map(|usage| usage.resets());
    let (over, reached): (Vec<Timestamp>, Vec<Timestamp>) = resets.partition(|at| *at <= now);
    let since = over.into_iter().max();
    let mut taken = TokenSpend::default();
    for slot in usage.iter().flat_map(|usage| usage.slots()) {
        if since.is_none_or(|since| slot.from >= since) {
            taken.add(&slot.taken);
        }
    }
    AccountUsage {
        account,
        agents: agents.into_iter().collect(),
        limited_until: reached.into_iter().max(),
        since,
        usage: taken.usage,
        cost_micro_usd: taken.cost,
    }
}

fn profile(agent: &CliAgentDefinition) -> AgentProfile {
    AgentProfile {
        resumes: !agent.resume.is_empty(),
        preamble: match &agent.preamble {
            None if agent.tools.is_certain() => Preamble::Tools,
            None => Preamble::Usual,
            Some(text) if text.trim().is_empty() => Preamble::None,
            Some(text) => Preamble::Own(text.clone()),
        },
        ..AgentProfile::default()
    }
}

#[cfg(test)]
mod tests {
    use goondan_tasks::fact::HistoryEntry;
    use serde_json::json;

    use super::*;

    #[test]
    fn agent_8_a_window_begins_at_the_last_reset() {
        let at = |seconds: i64| Timestamp::from_unix_millis(seconds * 1000);
        let task = json!({
            "taskId": "t", "agent": "coder", "title": "t", "type": "k", "description": "d",
            "totalPhases": 0, "tellsResult": true,
        });
        let mut state = State::new(serde_json::from_value(task).unwrap(), at(0));
        let mut apply = |seconds: i64, event: &str, data: serde_json::Value| {
            let entry = json!({"timestamp": at(seconds), "event": event, "data": data});
            let entry: HistoryEntry = serde_json::from_value(entry).unwrap();
            state.apply(&entry);
            state.agent_usage().next().unwrap().1.clone()
        };
        let used = |run: u64, tokens: u64| {
            let usage = goondan_protocol::usage::Usage {
                input_tokens: tokens,
                ..Default::default()
            };
            json!({"counter": format!("run-{run}"), "usage": usage, "cost": null})
        };
        let limited = |until: i64| json!({"run": 1, "outcome": {"rate_limited": at(until)}});
        let window = |usage: &AgentUsage, now: i64| {
            let window = window_of(AgentAccount::default(), BTreeSet::new(), &[usage], at(now));
            let tokens = window.usage.input_tokens;
            (window.limited_until, window.since, tokens)
        };
        apply(10, "usage_recorded", used(1, 100));
        let usage = apply(20, "run_ended", limited(1000));
        assert_eq!(window(&usage, 30), (Some(at(1000)), None, 100));
        assert_eq!(window(&usage, 1000), (None, Some(at(1000)), 0));
        apply(990, "usage_recorded", used(2, 30));
        let usage = apply(1010, "usage_recorded", used(3, 7));
        assert_eq!(window(&usage, 1010), (None, Some(at(1000)), 7));
        let usage = apply(1020, "run_ended", limited(2000));
        assert_eq!(window(&usage, 1030), (Some(at(2000)), Some(at(1000)), 7));
        assert_eq!(window(&usage, 2000), (None, Some(at(2000)), 0));
    }
}
