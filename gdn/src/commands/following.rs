//! Watching a project for as long as a command runs, over restarts of its daemon (`OBS-1`).

use std::time::Duration;

use goondan_protocol::control::{WatchWorkspace, WorkspaceChange};

use crate::client::{Notice, RequestTimeout};
use crate::context::Context;

/// How often it is looked whether a daemon runs the project again, in milliseconds.
pub(super) const RECONNECT_MS: u64 = 500;

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
                        after = Some(change.cursor);
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
