//! Project data of `gdn top`, from updates and queries.

use std::collections::{HashMap, VecDeque};

use anstyle::Style;
use goondan_protocol::control::{
    InstancesPage, ProcessInfo, UsageReport, WatchUpdate, WorkspaceChange, WorkspaceInfo,
};
use goondan_protocol::ids::InstanceKey;
use goondan_protocol::ipc::ChildRole;
use goondan_protocol::lifecycle::LifecycleEvent as Event;
use goondan_protocol::time::Timestamp;

use crate::commands::inbox::{Inbox, InboxItem};
use crate::commands::lifecycle_text;
use crate::output::text;

/// Maximum number of past events kept.
pub(super) const HAPPENED_MAX: usize = 1_000;
/// Maximum number of log lines kept.
pub(super) const LOG_LINES_MAX: usize = 2_000;
/// Maximum number of conversations listed, the most recently updated first.
pub(super) const CONVERSATIONS_MAX: usize = 20_000;

/// Project state, as returned by queries.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Facts {
    /// The project, or all workspaces.
    pub(super) workspaces: Vec<WorkspaceInfo>,
    pub(super) processes: Vec<ProcessInfo>,
}

impl Facts {
    /// The first or only workspace.
    pub(super) fn workspace(&self) -> Option<&WorkspaceInfo> {
        self.workspaces.first()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Conversation {
    pub(super) key: InstanceKey,
    pub(super) agent: String,
    pub(super) updated_at: Timestamp,
}

/// A past event, as a line.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct BoardEvent {
    pub(super) at: Timestamp,
    pub(super) subject: String,
    pub(super) what: String,
    pub(super) look: Style,
}

#[derive(Debug, Default)]
pub(super) struct Board {
    facts: Option<Facts>,
    inbox: Option<Inbox>,
    /// Index of each conversation's process in the list of processes.
    places: HashMap<InstanceKey, usize>,
    conversations: HashMap<InstanceKey, Conversation>,
    conversations_total: usize,
    happened: VecDeque<BoardEvent>,
    usage: Option<UsageReport>,
    logs: VecDeque<String>,
    /// Start of each conversation's turn, if it was reported.
    turns: HashMap<InstanceKey, Timestamp>,
    /// Change counter, so that lists are rebuilt only after a change.
    version: u64,
}

impl Board {
    /// Increases with each change.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn facts(&self) -> Option<&Facts> {
        self.facts.as_ref()
    }

    /// Everything that needs a person; none until it was read.
    pub(super) fn inbox(&self) -> Option<&Inbox> {
        self.inbox.as_ref()
    }

    /// True if an item no longer needs a person. A list that could not be read may have it.
    pub(super) fn is_decided(&self, item: &InboxItem) -> bool {
        self.inbox.as_ref().is_some_and(|inbox| {
            inbox.failures.is_empty() && inbox.items.iter().all(|it| it.key() != item.key())
        })
    }

    pub(super) fn take_inbox(&mut self, inbox: Inbox) {
        self.version += 1;
        self.inbox = Some(inbox);
    }

    pub(super) fn usage(&self) -> Option<&UsageReport> {
        self.usage.as_ref()
    }

    /// Oldest first.
    pub(super) fn happened(&self) -> &VecDeque<BoardEvent> {
        &self.happened
    }

    /// Oldest first.
    pub(super) fn logs(&self) -> &VecDeque<String> {
        &self.logs
    }

    /// Number of conversations, including those not listed.
    pub(super) fn conversations_total(&self) -> usize {
        self.conversations_total.max(self.conversations.len())
    }

    pub(super) fn conversation(&self, key: &InstanceKey) -> Option<&Conversation> {
        self.conversations.get(key)
    }

    /// Conversations whose key or agent contains the lowercase text, most recently updated first.
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

    /// Process of a conversation, if it has one or has pending events.
    pub(super) fn process_of(&self, key: &InstanceKey) -> Option<&ProcessInfo> {
        let at = *self.places.get(key)?;
        self.facts.as_ref()?.processes.get(at)
    }

    /// Start of a conversation's turn, if it was reported.
    pub(super) fn turn_since(&self, key: &InstanceKey) -> Option<Timestamp> {
        self.turns.get(key).copied()
    }

    /// Agents with a turn in progress.
    pub(super) fn working(&self) -> impl Iterator<Item = &ProcessInfo> {
        let processes = self.facts.iter().flat_map(|facts| &facts.processes);
        processes.filter(|info| info.role == ChildRole::Agent && info.turn_id.is_some())
    }

    /// Stores the result of a query.
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

    /// Stores a page of the conversation list; newer data is kept.
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

    /// Clears the log lines, because another log was requested.
    pub(super) fn clear_logs(&mut self) {
        self.version += 1;
        self.logs.clear();
    }

    /// Applies an update from the daemon.
    pub(super) fn take_change(&mut self, change: WorkspaceChange) {
        self.version += 1;
        match change.told {
            WatchUpdate::Snapshot(snapshot) => {
                self.turns.clear();
                self.take_facts(Facts {
                    workspaces: vec![snapshot.workspace],
                    processes: snapshot.processes,
                });
            }
            WatchUpdate::Event(event) => self.take_event(change.at, &event),
        }
    }

    fn take_event(&mut self, at: Timestamp, event: &Event) {
        let (look, what) = lifecycle_text::event_text(event);
        let happened = BoardEvent {
            at,
            subject: text::one_line(&lifecycle_text::subject(event)),
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

    /// Records a change to a conversation.
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
