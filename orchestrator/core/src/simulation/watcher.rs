//! A client that watches the workspace, goes away and comes back, and must never see anything but how it is.

use std::collections::BTreeMap;

use goondan_protocol::control::{
    Call, ProcessInfo, WatchCursor, WatchUpdate, WatchWorkspace, WorkspaceSnapshot,
};
use goondan_protocol::ids::{InstanceKey, TurnId, WorkspaceId};
use goondan_protocol::ipc::ChildRole;
use goondan_protocol::lifecycle::{LifecycleEvent as Event, Worker};

use super::world::World;
use crate::exchange::Peer;
use crate::fleet::watchers::Told;
use crate::{Input, RequestToken};

/// How many steps there are for one look at whether it sees what is.
const STEPS_OF_LOOK: u64 = 16;

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
}

impl World {
    /// The client begins to watch, or goes away.
    pub(super) fn come_or_go(&mut self, id: WorkspaceId) {
        match self.watcher.token {
            Some(token) if self.watcher.rng.u8(..4) == 0 => {
                self.watcher.token = None;
                let tokens = vec![token];
                self.input(Input::ClientGone { tokens });
            }
            Some(_) => {}
            None => {
                self.watcher.requests += 1;
                // Far from those of other clients.
                let token = RequestToken(u64::MAX - self.watcher.requests);
                self.watcher.token = Some(token);
                let (after, snapshots) = (self.watcher.cursor, self.watcher.snapshots);
                let call = Call::WatchWorkspace(WatchWorkspace {
                    workspace_id: id,
                    after,
                });
                self.input(Input::Request {
                    token,
                    peer: Peer::default(),
                    call: Box::new(call),
                });
                let is_watching = self.watcher.token.is_some();
                let is_known = is_watching && self.watcher.snapshots == snapshots;
                self.watcher.came_back += u64::from(is_known);
            }
        }
    }

    /// What it was told of the processes is how they are.
    pub(super) fn check_watcher(&self) {
        if self.watcher.token.is_none() || !self.steps.is_multiple_of(STEPS_OF_LOOK) {
            return;
        }
        let processes = self.core.fleet.processes(&self.core.calls, None);
        assert_eq!(
            self.watcher.processes,
            up_of(&processes),
            "whoever watches sees what is not"
        );
    }
}
