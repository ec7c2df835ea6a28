//! Agents of a task: the current one, their usage limits, and their usage (`AGENT-8`).

use std::collections::VecDeque;

use goondan_protocol::control::TaskAgent;
use goondan_protocol::ids::AgentName;
use goondan_protocol::time::Timestamp;

use super::{Note, State, TokenSpend};
use crate::limits::{CHANGED_FILES_MAX, USAGE_SLOT_MS, USAGE_SLOTS_MAX};

/// Work of the agent that worked on a task before the current one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandOver {
    pub from: AgentName,
    pub last_words: String,
}

/// Limit and usage of one agent in a task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentUsage {
    /// Reset time of the last limit that it reached.
    limited_until: Option<Timestamp>,
    /// Reset time of the limit before that.
    reset_before: Option<Timestamp>,
    slots: VecDeque<UsageSlot>,
}

/// Usage within a short time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageSlot {
    /// Time of its first amount.
    pub from: Timestamp,
    pub taken: TokenSpend,
}

impl AgentUsage {
    /// Reset time of the last limit that it reached, which may be over.
    #[must_use]
    pub fn limited_until(&self) -> Option<Timestamp> {
        self.limited_until
    }

    /// Reset times of the limits that it reached, as far as they are recorded.
    pub fn resets(&self) -> impl Iterator<Item = Timestamp> {
        self.limited_until.into_iter().chain(self.reset_before)
    }

    /// Its usage, the oldest first.
    pub fn slots(&self) -> impl Iterator<Item = &UsageSlot> {
        self.slots.iter()
    }

    pub(super) fn limited(&mut self, at: Timestamp, until: Timestamp) {
        if let Some(before) = self.limited_until.replace(until)
            && before <= at
        {
            self.reset_before = Some(before);
        }
    }

    fn charge(&mut self, at: Timestamp, taken: &TokenSpend) {
        let reset = self.limited_until;
        let last = self.slots.back_mut().filter(|slot| {
            let age = at
                .as_unix_millis()
                .saturating_sub(slot.from.as_unix_millis());
            // A window must not begin within a slot.
            let is_split = reset.is_some_and(|reset| slot.from < reset && reset <= at);
            age < USAGE_SLOT_MS && !is_split
        });
        match last {
            Some(slot) => slot.taken.add(taken),
            None => self.slots.push_back(UsageSlot {
                from: at,
                taken: *taken,
            }),
        }
        if self.slots.len() > USAGE_SLOTS_MAX {
            self.slots.pop_front();
        }
    }
}

impl State {
    #[must_use]
    pub fn agent(&self) -> &AgentName {
        &self.agent
    }

    /// Its agents, in order of preference.
    pub fn all_agents(&self) -> impl Iterator<Item = &AgentName> {
        let others = self.task.fallbacks.iter().map(|other| &other.agent);
        std::iter::once(&self.task.agent).chain(others)
    }

    /// Limits and usage of its agents that have any.
    pub fn agent_usage(&self) -> impl Iterator<Item = (&AgentName, &AgentUsage)> {
        self.agents.iter()
    }

    /// Agent of the last recorded usage, with its model.
    #[must_use]
    pub fn charged(&self) -> (&AgentName, Option<&str>) {
        match &self.charged {
            Some((agent, model)) if *agent != self.agent => (agent, model.as_deref()),
            _ => (&self.agent, self.model.as_deref()),
        }
    }

    /// True if the output of its agent contains a result.
    #[must_use]
    pub fn tells_result(&self) -> bool {
        let mut others = self.task.fallbacks.iter();
        let other = others.find(|other| other.agent == self.agent);
        other.map_or(self.task.tells_result, |other| other.tells_result)
    }

    /// Its agents as shown to clients; empty if there is one.
    pub(crate) fn told_agents(&self) -> Vec<TaskAgent> {
        let agents = self
            .all_agents()
            .filter(|_| !self.task.fallbacks.is_empty());
        let agents = agents.map(|name| TaskAgent {
            name: name.clone(),
            is_current: *name == self.agent,
            limited_until: self.agents.get(name).and_then(AgentUsage::limited_until),
        });
        agents.collect()
    }

    pub(super) fn charge(&mut self, at: Timestamp, taken: &TokenSpend) {
        self.charged = Some((self.agent.clone(), self.model.clone()));
        let usage = self.agents.entry(self.agent.clone()).or_default();
        usage.charge(at, taken);
    }

    pub(super) fn note_changed(&mut self, files: &[String]) {
        let room = CHANGED_FILES_MAX.saturating_sub(self.changed_files.len());
        let new = files
            .iter()
            .filter(|file| !self.changed_files.contains(*file));
        let new: Vec<String> = new.take(room).cloned().collect();
        self.changed_files.extend(new);
    }

    /// Another agent continues. It has no session, and failures of the one before are not its own.
    pub(super) fn agent_changed(&mut self, from: &AgentName, to: &AgentName) {
        self.agent = to.clone();
        let last_words = self.last_run.as_ref().map(|run| run.last_words.clone());
        self.hand_over = Some(HandOver {
            from: from.clone(),
            last_words: last_words.unwrap_or_default(),
        });
        if let Some((agent, model)) = &mut self.charged
            && agent == from
        {
            model.clone_from(&self.model);
        }
        (self.session, self.model) = (None, None);
        self.is_session_lost = false;
        (self.not_before, self.is_rate_limited) = (None, false);
        (self.failures, self.unknown) = (0, 0);
        self.notes.retain(|note| {
            !matches!(
                note,
                Note::OutcomeUnknown
                    | Note::Failed(_)
                    | Note::Interrupted
                    | Note::Refused(..)
                    | Note::Error(..)
            )
        });
    }
}
