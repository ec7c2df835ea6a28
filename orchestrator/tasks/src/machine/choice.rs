//! Choice of the agent for the next run of a task with several (`AGENT-8`).

use goondan_cli_agents::{CliEvent, ToolKind};
use goondan_protocol::ids::AgentName;
use goondan_protocol::time::Timestamp;

use super::Task;
use crate::fact::TaskEvent;
use crate::limits::{CHANGED_FILE_CHARS_MAX, CHANGED_FILES_MAX};
use crate::state::AgentUsage;

impl Task {
    /// Changes to the first agent whose usage limit is not reached, if that of the current one is.
    /// Returns false if all limits are reached; the task then waits for the earliest reset.
    pub(super) fn choose_agent(&mut self, now: Timestamp) -> bool {
        let state = &self.state;
        if state.task.fallbacks.is_empty() {
            return true;
        }
        let Some(until) = self.limit_of(&state.agent, now) else {
            return true;
        };
        let known = state.all_agents();
        let known = known.filter(|agent| self.agents.contains_key(*agent));
        let limits = known.map(|agent| (agent, self.limit_of(agent, now)));
        let limits: Vec<(&AgentName, Option<Timestamp>)> = limits.collect();
        let mut open = limits.iter().filter(|(_, limit)| limit.is_none());
        if let Some((to, _)) = open.next() {
            let (from, to) = (state.agent.clone(), (*to).clone());
            self.record(now, TaskEvent::AgentChanged { from, to, until });
            return true;
        }
        let resets = limits.iter().filter_map(|(_, limit)| *limit);
        let at = resets.min().unwrap_or(until);
        if state.not_before != Some(at) {
            let is_limited = true;
            self.record(now, TaskEvent::RetryPlanned { at, is_limited });
        }
        false
    }

    /// Reset time of an agent's usage limit; `None` if it is not reached. Limits that this task has
    /// just reached are not part of the profiles yet.
    fn limit_of(&self, agent: &AgentName, now: Timestamp) -> Option<Timestamp> {
        let profile = self.agents.get(agent);
        let of_account = profile.and_then(|profile| profile.limited_until);
        let is_shared = |other: &AgentName| {
            let account = |agent| self.agents.get(agent).map(|it| it.account.as_str());
            let account_of_agent = account(agent).filter(|account| !account.is_empty());
            other == agent || (account_of_agent.is_some() && account(other) == account_of_agent)
        };
        let reached = self.state.agents.iter();
        let reached = reached.filter(|(other, _)| is_shared(other));
        let reached = reached.filter_map(|(_, usage)| AgentUsage::limited_until(usage));
        reached.chain(of_account).filter(|at| *at > now).max()
    }

    /// Records the files that the agent changes, for the agent that continues its work.
    pub(super) fn note_files(&mut self, event: &CliEvent) {
        if self.state.task.fallbacks.is_empty() {
            return;
        }
        let files = match event {
            CliEvent::FileChanged(file) => std::slice::from_ref(file),
            CliEvent::Tool(tool) if tool.detail.kind == ToolKind::FileChange => {
                tool.detail.files.as_slice()
            }
            _ => return,
        };
        for file in files {
            let known = &mut self.watch.files;
            let is_short = file.path.chars().nth(CHANGED_FILE_CHARS_MAX).is_none();
            if is_short && known.len() < CHANGED_FILES_MAX && !known.contains(&file.path) {
                known.push(file.path.clone());
            }
        }
    }
}
