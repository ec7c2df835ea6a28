//! The inbox as it was read last, updated by changes.

use goondan_protocol::ids::WorkspaceId;

use super::changes::{LiveChanges, Stale};
use super::items::{self, Inbox};
use crate::client::CallError;
use crate::context::Context;
use crate::failure::Failure;

/// The inbox as it was read last.
pub(in crate::commands) struct CurrentInbox<'a> {
    pub(in crate::commands) inbox: Inbox,
    only: Option<&'a WorkspaceId>,
    live: &'a LiveChanges,
    context: &'a Context,
}

impl<'a> CurrentInbox<'a> {
    pub(in crate::commands) async fn read(
        only: Option<&'a WorkspaceId>,
        live: &'a LiveChanges,
        context: &'a Context,
    ) -> Result<Self, Failure> {
        let mut client = context.connect().await?;
        Ok(Self {
            inbox: items::read(&mut client, only, context).await?,
            only,
            live,
            context,
        })
    }

    /// Reads what has changed. With thousands of items, a complete read takes too long for a change to
    /// be visible at once.
    pub(in crate::commands) async fn refresh(&mut self) -> Result<(), Failure> {
        let stale = match self.live.take_stale() {
            Stale::Workspaces(ids) if ids.is_empty() => return Ok(()),
            // A list that could not be read belongs to no known workspace.
            Stale::Workspaces(_) if !self.inbox.failures.is_empty() => Stale::Everything,
            stale => stale,
        };
        let refreshed = self.refresh_these(&stale).await;
        if refreshed.is_err() {
            self.live.mark(stale);
        }
        refreshed
    }

    async fn refresh_these(&mut self, stale: &Stale) -> Result<(), Failure> {
        let mut client = self.context.connect().await?;
        if let Stale::Workspaces(ids) = stale {
            let mut is_complete = true;
            let wanted = |id: &&WorkspaceId| self.only.is_none_or(|only| only == *id);
            let ids: Vec<&WorkspaceId> = ids.iter().filter(wanted).collect();
            for id in ids {
                match items::read(&mut client, Some(id), self.context).await {
                    Ok(read) if read.failures.is_empty() => self.inbox.replace(id, read.items),
                    // The workspace may be closed.
                    Ok(_) | Err(CallError::Refused(_)) => is_complete = false,
                    Err(error) => return Err(error.into()),
                }
            }
            if is_complete {
                return Ok(());
            }
        }
        self.inbox = items::read(&mut client, self.only, self.context).await?;
        Ok(())
    }
}
