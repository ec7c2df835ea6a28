//! Watches a project for the runtime of a command, across daemon restarts (`OBS-1`).

use std::collections::BTreeMap;
use std::time::Duration;

use goondan_protocol::control::{
    ProcessChange, ProcessInfo, ProcessKey, WatchWorkspace, WorkspaceChange, WorkspaceInfo,
};

use crate::client::{Client, Notice, RequestTimeout};
use crate::context::Context;

/// Interval between checks for a daemon that runs the project again, in milliseconds.
pub(super) const RECONNECT_MS: u64 = 500;

/// Message while no daemon runs the watched project.
pub(super) const LOST: &str = "Connection lost; waiting for a daemon that runs the project.";

#[derive(Debug)]
pub(super) enum WorkspaceNotification {
    Change(Box<WorkspaceChange>),
    Stopped,
    /// No daemon runs the project.
    Lost,
}

/// Waits before the next check.
pub(super) async fn rest() {
    tokio::time::sleep(Duration::from_millis(RECONNECT_MS)).await;
}

/// Waits for the next daemon that runs the project.
pub(super) async fn reopened(context: &Context) -> (Client, WorkspaceInfo) {
    loop {
        rest().await;
        if let Ok(open) = context.open().await {
            return open;
        }
    }
}

/// Watches the project until the future is dropped.
pub(super) async fn follow(context: &Context, mut take: impl FnMut(WorkspaceNotification)) {
    let mut after = None;
    loop {
        let ended = match context.open().await {
            Err(_) => WorkspaceNotification::Lost,
            Ok((mut client, workspace)) => {
                let request = WatchWorkspace {
                    workspace_id: Some(workspace.workspace_id),
                    after,
                };
                let mut take = |notice| {
                    if let Notice::Change(change) = notice {
                        if !change.told.has_more() {
                            after = Some(change.cursor);
                        }
                        take(WorkspaceNotification::Change(change));
                    }
                };
                let timeout = RequestTimeout::Endless;
                match client.watch(request, timeout, &mut take).await {
                    Ok(_) => WorkspaceNotification::Stopped,
                    Err(_) => WorkspaceNotification::Lost,
                }
            }
        };
        take(ended);
        rest().await;
    }
}

/// Processes of the project, updated from notifications.
#[derive(Debug, Default)]
pub(super) struct Processes {
    known: BTreeMap<ProcessKey, ProcessInfo>,
}

impl Processes {
    /// Applies a change. Returns true if the list is complete.
    pub(super) fn take(&mut self, change: ProcessChange) -> bool {
        for key in &change.gone {
            self.known.remove(key);
        }
        let there = change.processes.into_iter();
        self.known
            .extend(there.map(|process| (process.key(), process)));
        !change.more
    }

    /// All processes, in order.
    pub(super) fn all(&self) -> Vec<ProcessInfo> {
        self.known.values().cloned().collect()
    }
}
