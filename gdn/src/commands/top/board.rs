//! What `gdn top` knows of a project: what it was told, and what it asked for.

use std::collections::{HashMap, VecDeque};

use anstyle::Style;
use goondan_protocol::control::{
    InstancesPage, ProcessInfo, UsageReport, WatchUpdate, WorkspaceChange, WorkspaceInfo,
};
use goondan_protocol::ids::InstanceKey;
use goondan_protocol::ipc::ChildRole;
use goondan_protocol::lifecycle::LifecycleEvent as Event;
use goondan_protocol::time::Timestamp;

use crate::commands::happened;
use crate::output::text;

/// Happenings that are kept to be looked at.
pub(super) const HAPPENED_MAX: usize = 1_000;
/// Log lines that are kept to be looked at.
pub(super) const LOG_LINES_MAX: usize = 2_000;
/// Conversations that are listed at most: those that changed last.
pub(super) const CONVERSATIONS_MAX: usize = 20_000;

/// How a project is, as the daemon says when it is asked.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Facts {
    pub(super) workspace: WorkspaceInfo,
    pub(super) processes: Vec<ProcessInfo>,
}

/// A conversation in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Conversation {
    pub(super) key: InstanceKey,
    pub(super) agent: String,
    pub(super) updated_at: Timestamp,
}

/// Something that happened, as a line.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Happened {
    pub(super) at: Timestamp,
    pub(super) subject: String,
    pub(super) what: String,
    pub(super) look: Style,
}

/// What is known.
#[derive(Debug, Default)]
pub(super) struct Board {
    facts: Option<Facts>,
    /// Where the process of each conversation stands in the list of processes.
    places: HashMap<InstanceKey, usize>,
    conversations: HashMap<InstanceKey, Conversation>,
    conversations_total: usize,
    happened: VecDeque<Happened>,
    usage: Option<UsageReport>,
    logs: VecDeque<String>,
    /// When the turn of a conversation began, as far as that was told.
    turns: HashMap<InstanceKey, Timestamp>,
    /// Counts what changed, so that a list is made anew only if something did.
    version: u64,
}

impl Board {
    /// Grows with each change.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn facts(&self) -> Option<&Facts> {
        self.facts.as_ref()
    }

    pub(super) fn usage(&self) -> Option<&UsageReport> {
        self.usage.as_ref()
    }

    /// The latest last.
    pub(super) fn happened(&self) -> &VecDeque<Happened> {
        &self.happened
    }

    /// The latest last.
    pub(super) fn logs(&self) -> &VecDeque<String> {
        &self.logs
    }

    /// How many conversations there are, those that are not listed included.
    pub(super) fn conversations_total(&self) -> usize {
        self.conversations_total.max(self.conversations.len())
    }

    pub(super) fn conversation(&self, key: &InstanceKey) -> Option<&Conversation> {
        self.conversations.get(key)
    }

    /// The conversations whose key or agent has this text, in small letters; those that changed last first.
    pub(super) fn conversations_with(&self, wanted: &str) -> Vec<InstanceKey> {
        let has = |text: &str| text.to_lowercase().contains(wanted);
        let mut found: Vec<&Conversation> = self
            .conversations
            .values()
            .filter(|one| wanted.is_empty() || has(one.key.as_str()) || has(&one.agent))
            .collect();
        found.sort_unstable_by(|one, other| {
            let latest_first = other.updated_at.cmp(&one.updated_at);
            latest_first.then_with(|| one.key.cmp(&other.key))
        });
        found.into_iter().map(|one| one.key.clone()).collect()
    }

    /// The process of a conversation, if it has one, or something to do.
    pub(super) fn process_of(&self, key: &InstanceKey) -> Option<&ProcessInfo> {
        let at = *self.places.get(key)?;
        self.facts.as_ref()?.processes.get(at)
    }

    /// When the turn of a conversation began, as far as that was told.
    pub(super) fn turn_since(&self, key: &InstanceKey) -> Option<Timestamp> {
        self.turns.get(key).copied()
    }

    /// The agents whose turns are in progress.
    pub(super) fn working(&self) -> impl Iterator<Item = &ProcessInfo> {
        let processes = self.facts.iter().flat_map(|facts| &facts.processes);
        processes.filter(|info| info.role == ChildRole::Agent && info.turn_id.is_some())
    }

    /// Takes what was asked for anew.
    pub(super) fn take_facts(&mut self, facts: Facts) {
        self.version += 1;
        let agents = facts.processes.iter().enumerate();
        let agents = agents.filter(|(_, info)| info.role == ChildRole::Agent);
        self.places = agents
            .filter_map(|(at, info)| Some((info.instance_key.clone()?, at)))
            .collect();
        let places = &self.places;
        let is_in_turn = |key: &InstanceKey| {
            let info = places.get(key).and_then(|at| facts.processes.get(*at));
            info.is_some_and(|info| info.turn_id.is_some())
        };
        self.turns.retain(|key, _| is_in_turn(key));
        self.facts = Some(facts);
    }

    /// Takes a page of the list of conversations; what is known to have changed later stays as it is.
    pub(super) fn take_page(&mut self, page: InstancesPage) {
        self.version += 1;
        self.conversations_total = page.total;
        for one in page.instances {
            let conversation = Conversation {
                key: one.instance_key.clone(),
                agent: one.agent_name.to_string(),
                updated_at: one.updated_at,
            };
            let known = self.conversations.get(&one.instance_key);
            if known.is_none_or(|known| known.updated_at < one.updated_at) {
                self.conversations.insert(one.instance_key, conversation);
            }
        }
    }

    pub(super) fn take_usage(&mut self, usage: UsageReport) {
        self.version += 1;
        self.usage = Some(usage);
    }

    pub(super) fn take_log_line(&mut self, line: String) {
        self.version += 1;
        keep(&mut self.logs, line, LOG_LINES_MAX);
    }

    /// Other lines are asked for.
    pub(super) fn clear_logs(&mut self) {
        self.version += 1;
        self.logs.clear();
    }

    /// Takes what the daemon tells of its own accord.
    pub(super) fn take_change(&mut self, change: WorkspaceChange) {
        self.version += 1;
        match change.told {
            WatchUpdate::Snapshot(snapshot) => {
                self.turns.clear();
                self.take_facts(Facts {
                    workspace: snapshot.workspace,
                    processes: snapshot.processes,
                });
            }
            WatchUpdate::Event(event) => self.take_event(change.at, &event),
        }
    }

    fn take_event(&mut self, at: Timestamp, event: &Event) {
        let (look, what) = happened::told(event);
        let happened = Happened {
            at,
            subject: text::one_line(&happened::subject(event)),
            what: text::one_line(&what),
            look,
        };
        keep(&mut self.happened, happened, HAPPENED_MAX);
        let Some(key) = event.instance_key() else {
            return;
        };
        match event {
            Event::InstanceDeleted { .. } => {
                self.turns.remove(key);
                if self.conversations.remove(key).is_some() {
                    self.conversations_total = self.conversations_total.saturating_sub(1);
                }
            }
            Event::InstanceCreated { agent_name, .. } => {
                let agent = agent_name.as_ref().map(ToString::to_string);
                self.begin(key, agent.unwrap_or_default(), at);
            }
            Event::InstanceImported { agent_name, .. } => {
                self.begin(key, agent_name.to_string(), at);
            }
            Event::TurnStarted { .. } => {
                self.turns.insert(key.clone(), at);
                self.touch(key, at);
            }
            Event::TurnCommitted { .. } | Event::EventParked { .. } => {
                self.turns.remove(key);
                self.touch(key, at);
            }
            Event::EventAccepted { .. }
            | Event::EventCancelled { .. }
            | Event::InstanceRewound { .. } => self.touch(key, at),
            _ => {}
        }
    }

    /// A conversation changed.
    fn touch(&mut self, key: &InstanceKey, at: Timestamp) {
        if let Some(conversation) = self.conversations.get_mut(key) {
            conversation.updated_at = conversation.updated_at.max(at);
        }
    }

    fn begin(&mut self, key: &InstanceKey, agent: String, at: Timestamp) {
        let conversation = Conversation {
            key: key.clone(),
            agent,
            updated_at: at,
        };
        let known = self.conversations.insert(key.clone(), conversation);
        if known.is_none() {
            self.conversations_total += 1;
        }
    }
}

fn keep<T>(queue: &mut VecDeque<T>, one: T, most: usize) {
    if queue.len() >= most {
        queue.pop_front();
    }
    queue.push_back(one);
}
