//! Queries of past events: the audit log (`INST-6`, `SEC-5`), turns (`MSG-12`), and model usage.

use goondan_protocol::control::{
    ControlError, ErrorCode, InstanceTurns, ListProcesses, ListWaitingChangesets, PageTrace,
    ProcessInfo, ReadAudit, ReadUsage, WatchUpdate, WatchWorkspace, WorkspaceSnapshot,
};
use goondan_protocol::ids::{InstanceRef, WorkspaceId};
use goondan_store::audit::Logs;

use crate::exchange::MetricsReader;
use crate::{Core, CoreEffect, ReadRequest, RequestToken};

impl Core {
    /// The requested workspace, or all workspaces.
    pub(super) fn workspace_ids(
        &self,
        only: Option<WorkspaceId>,
    ) -> Result<Vec<WorkspaceId>, ControlError> {
        match only {
            Some(id) => self.fleet.workspace(&id).map(|_| vec![id]),
            None => Ok(self.fleet.workspaces().keys().cloned().collect()),
        }
    }

    /// Starts watching a workspace or all (`OBS-1`). The response is sent when the workspace is
    /// stopped.
    pub(super) fn watch_workspace(&mut self, token: RequestToken, watch: &WatchWorkspace) {
        let Some(id) = &watch.workspace_id else {
            return match watch.after {
                None => self.fleet.cx().audience_mut().watch_all(token),
                Some(_) => {
                    let text = "`after` is a position in the events of one workspace";
                    let error = ControlError::new(ErrorCode::InvalidRequest, text);
                    self.fleet.respond_error(token, error);
                }
            };
        };
        if let Err(error) = self.fleet.workspace(id) {
            return self.fleet.respond_error(token, error);
        }
        if self.fleet.cx().watch(id, token, watch.after) {
            return;
        }
        let Some(workspace) = self.fleet.view().workspace_info(&self.calls, id) else {
            return;
        };
        let mut list = ListProcesses {
            workspace_id: Some(id.clone()),
            ..ListProcesses::default()
        };
        loop {
            let after = list.after.as_ref();
            let processes = self.fleet.view().processes(&self.calls, Some(id), after);
            let page = list.page_of(processes);
            list.after = page.next;
            let snapshot = Box::new(WorkspaceSnapshot {
                workspace: workspace.clone(),
                processes: page.processes,
                more: list.after.is_some(),
            });
            let update = WatchUpdate::Snapshot(snapshot);
            self.fleet.cx().tell_snapshot(id, token, update);
            if list.after.is_none() {
                return;
            }
        }
    }

    /// All running processes of watched workspaces.
    ///
    /// # Errors
    ///
    /// The workspace is not registered.
    pub fn watched_processes(
        &self,
        only: Option<&WorkspaceId>,
    ) -> Result<Vec<ProcessInfo>, ControlError> {
        if let Some(id) = only {
            self.fleet.workspace(id)?;
        }
        Ok(self
            .fleet
            .view()
            .processes(&self.calls, only, None)
            .collect())
    }

    pub(super) fn read_audit(&mut self, token: RequestToken, request: ReadAudit) {
        let logs = match &request.workspace_id {
            None => Logs::All,
            Some(id) => match self.fleet.workspace(id) {
                Ok(_) => Logs::Workspace(id.clone()),
                Err(error) => return self.fleet.respond_error(token, error),
            },
        };
        let page = request;
        let read = ReadRequest::Audit { logs, page };
        self.fleet.cx().emit(CoreEffect::Read { token, read });
    }

    pub(super) fn read_trace(&mut self, token: RequestToken, request: PageTrace) {
        if let Err(error) = self.fleet.workspace(&request.workspace_id) {
            return self.fleet.respond_error(token, error);
        }
        let read = ReadRequest::Trace(request);
        self.fleet.cx().emit(CoreEffect::Read { token, read });
    }

    pub(super) fn list_waiting_changesets(
        &mut self,
        token: RequestToken,
        list: ListWaitingChangesets,
    ) {
        match self.fleet.workspace(&list.workspace_id) {
            Ok(_) => {
                let read = ReadRequest::WaitingChangesets(list);
                self.fleet.cx().emit(CoreEffect::Read { token, read });
            }
            Err(error) => self.fleet.respond_error(token, error),
        }
    }

    pub(super) fn read_turns(&mut self, token: RequestToken, request: InstanceTurns) {
        let busy = match self.fleet.workspace(&request.workspace_id) {
            Ok(workspace) => workspace.is_in_use(&request.instance_key),
            Err(error) => return self.fleet.respond_error(token, error),
        };
        let instance = InstanceRef {
            workspace_id: request.workspace_id,
            instance_key: request.instance_key,
        };
        let read = ReadRequest::Turns {
            instance,
            offset: request.offset,
            before: request.before,
            busy,
        };
        self.fleet.cx().emit(CoreEffect::Read { token, read });
    }

    /// Reports the core's current samples to a reader of metrics.
    pub(crate) fn tell_metrics(&mut self, reader: MetricsReader) {
        let mut samples = self.fleet.view().samples(&self.calls);
        samples.extend(self.calls.samples(&self.fleet));
        self.fleet
            .cx()
            .emit(CoreEffect::TellMetrics { reader, samples });
    }

    pub(super) fn read_usage(&mut self, token: RequestToken, request: ReadUsage) {
        match self.workspace_ids(request.workspace_id.clone()) {
            Ok(workspaces) => {
                let budgets = workspaces
                    .iter()
                    .flat_map(|id| self.calls.budget_states(&self.fleet, id));
                let budgets = budgets.collect();
                let accounts = self.tasks.account_usage(&self.fleet, &workspaces);
                let read = ReadRequest::Usage {
                    budgets,
                    accounts,
                    workspaces,
                    page: request,
                };
                self.fleet.cx().emit(CoreEffect::Read { token, read });
            }
            Err(error) => self.fleet.respond_error(token, error),
        }
    }
}
