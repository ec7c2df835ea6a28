//! Lists that the daemon gives in pages (`OBS-1`).

use goondan_protocol::control::{
    ApprovalInfo, CheckpointInfo, DaemonStatus, EventInfo, InstanceCheckpoint, InstanceSummary,
    ListApprovals, ListCheckpoints, ListEvents, ListInstanceCheckpoints, ListInstances,
    ListProcesses, ListProposals, ListQuestions, ListSandboxes, ListTasks, ListWorkspaces, Method,
    ProcessInfo, ProposalInfo, QuestionInfo, SandboxInfo, Status, TaskInfo, WorkspaceInfo,
};

use crate::{CallError, Client};

/// A request for one page of a list.
pub trait Paged: Method + Clone {
    /// What is listed.
    type Item;

    /// Takes what is on the page that was asked for, and asks for the next one from now on. Whether there is one.
    fn turn(&mut self, page: Self::Output, listed: &mut Vec<Self::Item>) -> bool;
}

/// Lists of which a page has what is listed in `$items`, and where the next one begins in `next`.
macro_rules! paged {
    ($($list:ty: $items:ident of $item:ty;)+) => {$(
        impl Paged for $list {
            type Item = $item;

            fn turn(&mut self, page: Self::Output, listed: &mut Vec<$item>) -> bool {
                listed.extend(page.$items);
                self.after = page.next;
                self.after.is_some()
            }
        }
    )+};
}

paged! {
    ListInstances: instances of InstanceSummary;
    ListProcesses: processes of ProcessInfo;
    ListEvents: events of EventInfo;
    ListTasks: tasks of TaskInfo;
    ListWorkspaces: workspaces of WorkspaceInfo;
    ListApprovals: approvals of ApprovalInfo;
    ListQuestions: questions of QuestionInfo;
    ListSandboxes: sandboxes of SandboxInfo;
    ListProposals: proposals of ProposalInfo;
    ListCheckpoints: checkpoints of CheckpointInfo;
    ListInstanceCheckpoints: checkpoints of InstanceCheckpoint;
}

impl Client {
    /// The daemon's state with all of its workspaces, also those behind the first page.
    ///
    /// # Errors
    ///
    /// As [`Self::query`].
    pub async fn status(&mut self) -> Result<DaemonStatus, CallError> {
        let mut status = self.query(Status {}).await?;
        if let Some(after) = status.next_workspace.take() {
            let behind = ListWorkspaces {
                after: Some(after),
                ..ListWorkspaces::default()
            };
            status.workspaces.extend(self.all(behind).await?);
        }
        Ok(status)
    }

    /// All that is on the pages of a list, from the one that is asked for to the last.
    ///
    /// # Errors
    ///
    /// As [`Self::query`].
    pub async fn all<L: Paged>(&mut self, mut list: L) -> Result<Vec<L::Item>, CallError> {
        let mut listed = Vec::new();
        loop {
            let page = self.query(list.clone()).await?;
            if !list.turn(page, &mut listed) {
                return Ok(listed);
            }
        }
    }
}
