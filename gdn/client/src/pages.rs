//! Lists that the daemon gives in pages (`OBS-1`).

use goondan_protocol::control::{
    ApprovalInfo, AuditLog, CheckpointInfo, DaemonStatus, EventInfo, InstanceCheckpoint,
    InstanceSummary, ListApprovals, ListCheckpoints, ListEvents, ListInstanceCheckpoints,
    ListInstances, ListProcesses, ListProposals, ListQuestions, ListSandboxes, ListTasks,
    ListUnknownCalls, ListWorkspaces, Method, PageTrace, ProcessInfo, ProposalInfo, QuestionInfo,
    ReadAudit, ReadUsage, SandboxInfo, Status, TaskInfo, UnknownCallInfo, UsageReport,
    WorkspaceInfo,
};
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::observe::RuntimeEvent;
use goondan_protocol::trace::TraceId;

use crate::{CallError, Client};

/// What followed from one event, across agents.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// The trace.
    pub trace_id: TraceId,
    /// What happened in it, oldest first.
    pub events: Vec<RuntimeEvent>,
    /// Whether something may be missing: the daemon looks through the latest records only.
    pub partial: bool,
}

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
    ListUnknownCalls: calls of UnknownCallInfo;
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

    /// All of the trace with this id, or that a turn or an event with this id is part of; none: of the trace of
    /// the turn that began last.
    ///
    /// # Errors
    ///
    /// As [`Self::query`].
    pub async fn trace(
        &mut self,
        workspace_id: WorkspaceId,
        of: Option<String>,
    ) -> Result<Trace, CallError> {
        let mut get = PageTrace {
            workspace_id,
            of,
            after: None,
            limit: None,
        };
        let page = self.query(get.clone()).await?;
        let mut trace = Trace {
            trace_id: page.trace_id,
            events: page.events,
            partial: page.partial,
        };
        // The latest trace may be another one meanwhile.
        get.of = Some(trace.trace_id.to_string());
        get.after = page.next;
        while get.after.is_some() {
            let page = self.query(get.clone()).await?;
            trace.events.extend(page.events);
            trace.partial |= page.partial;
            get.after = page.next;
        }
        Ok(trace)
    }

    /// What replies of models took, with the sums of all pages.
    ///
    /// # Errors
    ///
    /// As [`Self::query`].
    pub async fn usage(&mut self, mut read: ReadUsage) -> Result<UsageReport, CallError> {
        let mut report = self.query(read.clone()).await?;
        while let Some(after) = report.next.take() {
            read.after = Some(after);
            let page = self.query(read.clone()).await?;
            report.rows.extend(page.rows);
            (report.left_out, report.next) = (page.left_out, page.next);
        }
        Ok(report)
    }

    /// The latest records of audit logs, at most so many, over as many pages as they take.
    ///
    /// # Errors
    ///
    /// As [`Self::query`].
    pub async fn audit(
        &mut self,
        workspace_id: Option<WorkspaceId>,
        records: usize,
    ) -> Result<AuditLog, CallError> {
        let mut log = AuditLog::default();
        let mut read = ReadAudit {
            workspace_id,
            before: None,
            limit: Some(records),
        };
        loop {
            let page = self.query(read.clone()).await?;
            log.records.splice(0..0, page.records);
            log.unreadable += page.unreadable;
            log.previous = page.previous;
            let missing = records.saturating_sub(log.records.len());
            if missing == 0 || log.previous.is_none() {
                return Ok(log);
            }
            read.before.clone_from(&log.previous);
            read.limit = Some(missing);
        }
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
