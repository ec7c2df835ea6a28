//! A client that watches the workspace, disconnects and reconnects, and must never see a wrong
//! state.

use std::collections::BTreeMap;

use goondan_protocol::control::{
    Call, ProcessInfo, WatchCursor, WatchUpdate, WatchWorkspace, WorkspaceSnapshot,
};
use goondan_protocol::ids::{InstanceKey, TurnId, WorkspaceId};
use goondan_protocol::ipc::ChildRole;
use goondan_protocol::lifecycle::{LifecycleEvent as Event, Worker};

use crate::RequestToken;
use crate::fleet::watchers::WatchNotification;

pub(super) struct Watcher {
    rng: fastrand::Rng,
    /// The request, while it watches.
    token: Option<RequestToken>,
    requests: u64,
    cursor: Option<WatchCursor>,
    /// The running processes, according to the updates.
    processes: BTreeMap<String, u32>,
    /// The turns that began since the last snapshot, according to the updates.
    turns: BTreeMap<InstanceKey, TurnId>,
    /// Number of resumed watches, and number of snapshots.
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

    /// Ends the watch and returns true if `token` is its request, or `None` because the daemon is
    /// gone.
    pub(super) fn ended(&mut self, token: Option<RequestToken>) -> bool {
        let is_its = token.is_none_or(|token| self.token == Some(token));
        if is_its {
            self.token = None;
        }
        is_its
    }

    pub(super) fn on_notification(&mut self, token: RequestToken, told: WatchNotification) {
        assert_eq!(
            self.token,
            Some(token),
            "an update for a client that does not watch"
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
                let cursor = self.cursor.expect("a snapshot comes first");
                let next = WatchCursor {
                    count: cursor.count + 1,
                    ..cursor
                };
                assert_eq!(told.cursor, next, "an update is missing or was sent twice");
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
            // Also sent for a process that could not be started.
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

    /// Sometimes disconnects, which ends its request.
    pub(super) fn goes_away(&mut self) -> Option<RequestToken> {
        self.token.take_if(|_| self.rng.u8(..4) == 0)
    }

    /// Requests the missed updates.
    pub(super) fn comes(&mut self, workspace_id: WorkspaceId) -> (RequestToken, Call) {
        self.requests += 1;
        // Does not collide with other clients' tokens.
        let token = RequestToken(u64::MAX - self.requests);
        self.token = Some(token);
        let call = Call::WatchWorkspace(WatchWorkspace {
            workspace_id: Some(workspace_id),
            after: self.cursor,
        });
        (token, call)
    }

    /// Checks that the process states from the updates are correct.
    pub(super) fn sees(&self, processes: &[ProcessInfo]) {
        assert_eq!(
            self.processes,
            up_of(processes),
            "the watcher's view is wrong"
        );
    }
}
