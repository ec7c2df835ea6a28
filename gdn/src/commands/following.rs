//! Watching a project for as long as a command runs, over restarts of its daemon (`OBS-1`).

use std::collections::BTreeMap;
use std::time::Duration;

use goondan_protocol::control::{
    ProcessChange, ProcessInfo, ProcessKey, WatchWorkspace, WorkspaceChange, WorkspaceInfo,
};

use crate::client::{Client, Notice, RequestTimeout};
use crate::context::Context;

/// How often it is looked whether a daemon runs the project again, in milliseconds.
pub(super) const RECONNECT_MS: u64 = 500;

/// What people are told while no daemon runs what is watched.
pub(super) const LOST: &str = "The connection is lost; waiting for a daemon that runs the project.";

/// What whoever watches is told.
#[derive(Debug)]
pub(super) enum Followed {
    /// Something changed.
    Change(Box<WorkspaceChange>),
    /// The project was stopped.
    Stopped,
    /// No daemon runs the project.
    Lost,
}

/// Waits before it is looked again.
pub(super) async fn rest() {
    tokio::time::sleep(Duration::from_millis(RECONNECT_MS)).await;
}

/// The next daemon that runs the project.
pub(super) async fn reopened(context: &Context) -> (Client, WorkspaceInfo) {
    loop {
        rest().await;
        if let Ok(open) = context.open().await {
            return open;
        }
    }
}

/// Watches the project until it is dropped.
pub(super) async fn follow(context: &Context, mut take: impl FnMut(Followed)) {
    let mut after = None;
    loop {
        let ended = match context.open().await {
            Err(_) => Followed::Lost,
            Ok((mut client, workspace)) => {
                let request = WatchWorkspace {
                    workspace_id: workspace.workspace_id,
                    after,
                };
                let mut take = |notice| {
                    if let Notice::Change(change) = notice {
                        if !change.told.has_more() {
                            after = Some(change.cursor);
                        }
                        take(Followed::Change(change));
                    }
                };
                let timeout = RequestTimeout::Endless;
                match client.watch(request, timeout, &mut take).await {
                    Ok(_) => Followed::Stopped,
                    Err(_) => Followed::Lost,
                }
            }
        };
        take(ended);
        rest().await;
    }
}

/// The processes, as whoever watches them was told.
#[derive(Debug, Default)]
pub(super) struct Processes {
    known: BTreeMap<ProcessKey, ProcessInfo>,
}

impl Processes {
    /// Takes what is different. Whether that is all of it.
    pub(super) fn take(&mut self, change: ProcessChange) -> bool {
        for key in &change.gone {
            self.known.remove(key);
        }
        let there = change.processes.into_iter();
        self.known
            .extend(there.map(|process| (process.key(), process)));
        !change.more
    }

    /// All there are, in their order.
    pub(super) fn all(&self) -> Vec<ProcessInfo> {
        self.known.values().cloned().collect()
    }
}
