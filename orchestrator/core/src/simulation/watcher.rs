//! A client that watches the workspace, goes away and comes back, and must never see anything but how it is.

use std::collections::BTreeMap;

use goondan_protocol::control::{
    Call, ProcessInfo, WatchCursor, WatchUpdate, WatchWorkspace, WorkspaceSnapshot,
};
use goondan_protocol::ids::{InstanceKey, TurnId, WorkspaceId};
use goondan_protocol::ipc::ChildRole;
use goondan_protocol::lifecycle::{LifecycleEvent as Event, Worker};

use crate::RequestToken;
use crate::fleet::watchers::Told;

pub(super) struct Watcher {
    rng: fastrand::Rng,
    /// The request, while it watches.
    token: Option<RequestToken>,
    requests: u64,
    cursor: Option<WatchCursor>,
    /// The processes there are, by what was told.
    processes: BTreeMap<String, u32>,
    /// The turns that began, by what was told since the last snapshot.
    turns: BTreeMap<InstanceKey, TurnId>,
    /// How often it was told what it had missed, and how everything is.
    pub(super) came_back: u64,
    pub(super) snapshots: u64,
}

fn worker_of(info: &ProcessInfo) -> String {
    let worker = match (info.role, &info.instance_key) {
        (ChildRole::Agent, Some(key)) => Worker::Agent {
            instance_key: key.clone(),
        },
        (ChildRole::Model, _) => Worker::Model {
            model: info.name.parse().unwrap(),
        },
        _ => Worker::Connector {
            connection: info.name.parse().unwrap(),
        },
    };
    format!("{worker:?}")
}

fn up_of(processes: &[ProcessInfo]) -> BTreeMap<String, u32> {
    let processes = processes.iter();
    let up = processes.filter_map(|info| Some((worker_of(info), info.pid?)));
    up.collect()
}

impl Watcher {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rng: fastrand::Rng::with_seed(seed),
            token: None,
            requests: 0,
            cursor: None,
            processes: BTreeMap::new(),
            turns: BTreeMap::new(),
            came_back: 0,
            snapshots: 0,
        }
    }

    /// Its request was answered, or its daemon is gone. Whether it was its request.
    pub(super) fn ended(&mut self, token: Option<RequestToken>) -> bool {
        let is_its = token.is_none_or(|token| self.token == Some(token));
        if is_its {
            self.token = None;
        }
        is_its
    }

    pub(super) fn told(&mut self, token: RequestToken, told: Told) {
        assert_eq!(
            self.token,
            Some(token),
            "somebody is told who does not watch"
        );
        assert!(!told.update.has_more(), "there are not so many processes");
        match told.update {
            WatchUpdate::Snapshot(snapshot) => {
                let WorkspaceSnapshot { processes, .. } = *snapshot;
                self.processes = up_of(&processes);
                self.turns.clear();
                self.snapshots += 1;
            }
            WatchUpdate::Event(event) => {
                let cursor = self.cursor.expect("it was told how everything is first");
                let next = WatchCursor {
                    count: cursor.count + 1,
                    ..cursor
                };
                assert_eq!(told.cursor, next, "something was left out or told twice");
                self.take(event);
            }
        }
        self.cursor = Some(told.cursor);
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::ProcessStarted { worker, child_pid } => {
                let before = self.processes.insert(format!("{worker:?}"), child_pid);
                assert_eq!(before, None, "{worker:?} has two processes");
            }
            // One that could not be started has ended, too.
            Event::ProcessEnded { worker, .. } | Event::ProcessCrashed { worker, .. } => {
                self.processes.remove(&format!("{worker:?}"));
            }
            Event::TurnStarted {
                instance_key,
                turn_id,
                ..
            } => {
                self.turns.insert(instance_key, turn_id);
            }
            Event::TurnCommitted {
                instance_key,
                turn_id,
                ..
            } => {
                let begun = self.turns.remove(&instance_key);
                assert!(
                    begun.is_none_or(|begun| begun == turn_id),
                    "a turn is over that did not begin"
                );
            }
            _ => {}
        }
    }

    /// Its request, while it watches.
    pub(super) fn token(&self) -> Option<RequestToken> {
        self.token
    }

    /// Goes away now and then; its request is over then.
    pub(super) fn goes_away(&mut self) -> Option<RequestToken> {
        self.token.take_if(|_| self.rng.u8(..4) == 0)
    }

    /// Asks for what it has missed, by a request of its own.
    pub(super) fn comes(&mut self, workspace_id: WorkspaceId) -> (RequestToken, Call) {
        self.requests += 1;
        // Far from those of other clients.
        let token = RequestToken(u64::MAX - self.requests);
        self.token = Some(token);
        let call = Call::WatchWorkspace(WatchWorkspace {
            workspace_id,
            after: self.cursor,
        });
        (token, call)
    }

    /// What it was told of the processes is how they are.
    pub(super) fn sees(&self, processes: &[ProcessInfo]) {
        assert_eq!(
            self.processes,
            up_of(processes),
            "whoever watches sees what is not"
        );
    }
}
