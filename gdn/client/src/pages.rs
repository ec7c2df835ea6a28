//! Lists that the daemon returns in pages (`OBS-1`).

use goondan_protocol::control::{
    ApprovalInfo, AuditLog, CheckpointInfo, DaemonStatus, EventInfo, InstanceCheckpoint,
    InstanceSummary, ListApprovals, ListCheckpoints, ListEvents, ListInstanceCheckpoints,
    ListInstances, ListProcesses, ListProposals, ListQuestions, ListSandboxes, ListSchedules,
    ListStandingApprovals, ListTasks, ListUnknownCalls, ListWaitingChangesets, ListWorkspaces,
    Method, PageTrace, ProcessInfo, ProposalInfo, QuestionInfo, ReadAudit, ReadUsage, SandboxInfo,
    ScheduleInfo, StandingApprovalInfo, Status, TaskInfo, UnknownCallInfo, UsageReport,
    WaitingChangeset, WorkspaceInfo,
};
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::observe::RuntimeEvent;
use goondan_protocol::trace::TraceId;

use crate::{CallError, Client};

/// All consequences of one event, across agents.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    pub trace_id: TraceId,
    /// Its runtime events, oldest first.
    pub events: Vec<RuntimeEvent>,
    /// True if events may be missing, because the daemon searches only the latest records.
    pub partial: bool,
}

/// A request for one page of a list.
pub trait PagedMethod: Method + Clone {
    type Item;

    /// Adds the items of a page to `listed` and advances the request to the next page. Returns true
    /// if another page exists.
    fn turn(&mut self, page: Self::Output, listed: &mut Vec<Self::Item>) -> bool;
}

/// Implements [`PagedMethod`] for lists whose pages contain `$items` and the start of the next page in
/// `next`.
macro_rules! paged {
    ($($list:ty: $items:ident of $item:ty;)+) => {$(
        impl PagedMethod for $list {
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
    ListStandingApprovals: standing of StandingApprovalInfo;
    ListUnknownCalls: calls of UnknownCallInfo;
    ListWaitingChangesets: changesets of WaitingChangeset;
    ListSchedules: schedules of ScheduleInfo;
    ListQuestions: questions of QuestionInfo;
    ListSandboxes: sandboxes of SandboxInfo;
    ListProposals: proposals of ProposalInfo;
    ListCheckpoints: checkpoints of CheckpointInfo;
    ListInstanceCheckpoints: checkpoints of InstanceCheckpoint;
}

impl Client {
    /// The daemon's state with all workspaces, including those on later pages.
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

    /// The complete trace with this id, or that contains a turn or an event with this id. Without
    /// an id, the trace of the latest turn.
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
        // Pins the trace, because another one may become the latest.
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

    /// Usage of model replies, with the sums of all pages.
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

    /// The latest `records` records of audit logs, over as many pages as necessary.
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

    /// All items of a list, from the requested page to the last.
    ///
    /// # Errors
    ///
    /// As [`Self::query`].
    pub async fn all<L: PagedMethod>(&mut self, mut list: L) -> Result<Vec<L::Item>, CallError> {
        let mut listed = Vec::new();
        loop {
            let page = self.query(list.clone()).await?;
            if !list.turn(page, &mut listed) {
                return Ok(listed);
            }
        }
    }
}
