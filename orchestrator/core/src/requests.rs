//! Requests of clients. One arm for each method of the control API.

use std::collections::{BTreeMap, HashSet};

use goondan_config::ProjectConfig;
use goondan_protocol::JsonObject;
use goondan_protocol::control::{
    Call, ControlError, CreateSchedule, DaemonCheck, EmptyResult, ErrorCode, InstanceDetail,
    InstanceSummary, ListInstances, MoveWorkspace, NodesCheck, NodesPage, SendEvent, SendResult,
};
use goondan_protocol::event::{AgentEvent, EventSource};
use goondan_protocol::ids::{
    AgentName, ConnectionName, EventId, InstanceKey, InstanceRef, WorkspaceId,
};
use goondan_protocol::images::{self, IMAGES};
use goondan_protocol::limits::MAX_INPUT_BYTES;
use goondan_protocol::rehearsal::DEFAULT_REHEARSAL_TURNS;
use goondan_protocol::trace::{SpanId, TraceContext, TraceId};
use goondan_store::StoreError;
use goondan_store::instance::work_dir;
use goondan_store::writer::operation::{Inspect, Inspection, Operation};
use serde_json::json;

use crate::exchange::{BundleCall, MetricsReader, ProposalWork, SecretWork};
use crate::fleet::Workspace;
use crate::fleet::bundle_of;
use crate::fleet::conversation::DeleteReply;
use crate::fleet::event_queue::EventOrigin;
use crate::fleet::parked_events::ParkedEventDecision;
use crate::jobs::{Continuation, continuation};
use crate::refusals::{no_other_nodes, no_workspace, stopping_error};
use crate::router::{RoutingError, SENT_EVENT};
use crate::{Core, CoreEffect, LoadPurpose, Peer, RequestToken, control_error, router};

pub(crate) mod archives;
pub(crate) mod configuration_load;
pub(crate) mod conversations;
pub(crate) mod deletion;
pub(crate) mod events;
pub(crate) mod persons;
pub(crate) mod proposals;
pub(crate) mod queries;
pub(crate) mod reload;
pub(crate) mod retention;
pub(crate) mod rewind;
#[cfg(test)]
mod rewinding_tests;
pub(crate) mod secrets;
pub(crate) mod verification;

use self::deletion::PendingDeletions;
use self::events::EventListing;
use self::persons::check_person;
use self::proposals::{ProposalQueues, ProposalRequester};
use self::reload::PendingReload;
use self::retention::Retention;
use self::verification::PendingVerification;

/// Requests of clients that take more than one step.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// Requests that wait for the daemon's exit.
    stops: Vec<RequestToken>,
    sweeps: BTreeMap<RequestToken, PendingDeletions>,
    event_listings: BTreeMap<RequestToken, EventListing>,
    verifications: BTreeMap<RequestToken, PendingVerification>,
    reloads: BTreeMap<RequestToken, PendingReload>,
    proposals: ProposalQueues,
    /// State of the retention policy for each workspace.
    retention: BTreeMap<WorkspaceId, Retention>,
}

impl Requests {
    /// Drains the requests that wait for the daemon's exit.
    pub(crate) fn take_stops(&mut self) -> Vec<RequestToken> {
        std::mem::take(&mut self.stops)
    }
}

/// True if a request is answered during the daemon's shutdown, because it changes nothing.
fn may_come_late(call: &Call) -> bool {
    matches!(
        call,
        Call::Connect(_)
            | Call::Status(_)
            | Call::CheckDaemon(_)
            | Call::ReadMetrics(_)
            | Call::ListProcesses(_)
            | Call::WatchProcesses(_)
            | Call::ListNodes(_)
            | Call::CheckNodes(_)
            | Call::ListWorkspaces(_)
            | Call::ListInstances(_)
            | Call::ListEvents(_)
            | Call::ListInstanceCheckpoints(_)
            | Call::ListQuestions(_)
            | Call::ListApprovals(_)
            | Call::ListStandingApprovals(_)
            | Call::ListUnknownCalls(_)
            | Call::ListSchedules(_)
            | Call::ShowApproval(_)
            | Call::ShowBundle(_)
            | Call::ListWaitingChangesets(_)
            | Call::ReadBundleLog(_)
            | Call::ShowChangeset(_)
            | Call::ListTasks(_)
            | Call::ShowTask(_)
            | Call::ReadTaskLog(_)
            | Call::WatchTask(_)
            | Call::ReadAudit(_)
            | Call::ReadUsage(_)
            | Call::ReadTraffic(_)
            | Call::InstanceTurns(_)
            | Call::PageTrace(_)
            | Call::WatchWorkspace(_)
            | Call::FollowTurns(_)
            | Call::ListSecrets(_)
            | Call::ListPermissions(_)
            | Call::ListGrants(_)
            | Call::ShowGrant(_)
            | Call::Stop(_)
    )
}

continuation! {
    /// Everything about an instance for a client.
    Inspecting { token: RequestToken } after Inspect => &core.on_inspected
}

impl Core {
    fn with_instance<O: Operation + 'static, C: Continuation<O> + 'static>(
        &mut self,
        token: RequestToken,
        workspace_id: WorkspaceId,
        instance_key: InstanceKey,
        job: impl FnOnce(InstanceRef) -> (O, C),
    ) {
        match self.fleet.workspace(&workspace_id) {
            Ok(_) => {
                let (operation, then) = job(InstanceRef {
                    workspace_id,
                    instance_key,
                });
                self.fleet.cx().store(operation, then);
            }
            Err(error) => self.fleet.respond_error(token, error),
        }
    }

    pub(super) fn on_client_gone(&mut self, tokens: &[RequestToken]) {
        let gone: HashSet<RequestToken> = tokens.iter().copied().collect();
        if gone.is_empty() {
            return;
        }
        self.tasks.forget_readers(&mut self.fleet, &gone);
        self.fleet
            .each_workspace(|workspace, _| workspace.forget_waiters(&gone));
        self.fleet.cx().audience_mut().forget(&gone);
    }

    /// The trace of an event that a client sends, within its own if it has one.
    fn trace_of_sender(&mut self, traceparent: Option<&str>) -> Result<TraceContext, ControlError> {
        let span_id = SpanId::from_uuid(self.fleet.cx().uuid());
        match traceparent.map(TraceContext::from_traceparent) {
            Some(Ok(theirs)) => Ok(theirs.child(span_id)),
            Some(Err(problem)) => Err(ControlError::new(
                ErrorCode::InvalidRequest,
                format!("`traceparent` is not valid: {problem}"),
            )),
            None => Ok(TraceContext::root(
                TraceId::from_uuid(self.fleet.cx().uuid()),
                span_id,
            )),
        }
    }

    /// Route of a client's input for a conversation.
    fn route_of_client(
        &self,
        id: &WorkspaceId,
        agent: Option<&AgentName>,
        conversation: &InstanceKey,
    ) -> Result<router::Route, ControlError> {
        let workspace = self.fleet.workspace(id)?;
        if workspace.closing.is_some() {
            return Err(no_workspace(id));
        }
        let bundle = bundle_of(workspace)?;
        router::route_sent(bundle, agent, conversation)
            .map_err(|problem| unroutable(&problem, bundle))
    }

    fn create_schedule(&mut self, token: RequestToken, peer: Peer, create: CreateSchedule) {
        let (id, agent) = (&create.workspace_id, create.agent.as_ref());
        match self.route_of_client(id, agent, &create.conversation_key) {
            Ok(route) => {
                let at = InstanceRef {
                    workspace_id: create.workspace_id.clone(),
                    instance_key: route.instance_key,
                };
                let (client, of) = ((token, peer), (&at, route.agent));
                self.schedules
                    .create_for_person(&mut self.fleet, client, of, create);
            }
            Err(error) => self.fleet.respond_error(token, error),
        }
    }

    fn send_event(&mut self, token: RequestToken, send: SendEvent) {
        let (id, agent) = (&send.workspace_id, send.agent.as_ref());
        let route = match self.route_of_client(id, agent, &send.conversation_key) {
            Ok(route) => route,
            Err(error) => return self.fleet.respond_error(token, error),
        };
        if send.input.is_empty() || send.input.len() > MAX_INPUT_BYTES {
            let message = format!("the input must have 1 to {MAX_INPUT_BYTES} bytes");
            let error = ControlError::new(ErrorCode::InvalidRequest, message);
            return self.fleet.respond_error(token, error);
        }
        if let Err(problem) = images::check(&send.images) {
            let error = ControlError::new(ErrorCode::InvalidRequest, problem.to_string());
            return self.fleet.respond_error(token, error);
        }
        let mut metadata = JsonObject::new();
        if !send.images.is_empty() {
            metadata.insert(IMAGES.to_owned(), json!(send.images));
        }
        let trace = match self.trace_of_sender(send.traceparent.as_deref()) {
            Ok(trace) => trace,
            Err(error) => return self.fleet.respond_error(token, error),
        };
        let Ok(name) = ConnectionName::new(router::CLIENT_CONNECTION) else {
            return;
        };
        let event_id = send
            .event_id
            .unwrap_or_else(|| EventId::from(self.fleet.cx().uuid()));
        let sent = SendResult {
            event_id: event_id.clone(),
            instance_key: route.instance_key.clone(),
            agent: route.agent.clone(),
            trace_id: trace.trace_id,
            duplicate: false,
            outcome: None,
        };
        let event = AgentEvent {
            id: event_id,
            kind: SENT_EVENT.to_owned(),
            created_at: self.fleet.now().wall,
            trace_id: Some(trace.trace_id),
            parent_span_id: Some(trace.span_id),
            input: Some(send.input),
            header: None,
            properties: JsonObject::new(),
            instance_key: Some(route.instance_key.clone()),
            source: EventSource::Connector { name },
            auth: None,
            reply_to: None,
            chain: None,
            join: None,
            metadata,
        };
        let instance = InstanceRef {
            workspace_id: send.workspace_id,
            instance_key: route.instance_key,
        };
        let reply = EventOrigin::Client {
            token,
            sent,
            wait: send.wait,
        };
        let id = instance.workspace_id.clone();
        if let Some((workspace, cx)) = self.fleet.workspace_and_cx(&id) {
            workspace.accept(cx, instance, &route.agent, event, reply);
        }
    }

    fn serve_bundle(
        &mut self,
        token: RequestToken,
        id: &WorkspaceId,
        key: InstanceKey,
        call: BundleCall,
    ) {
        let at = InstanceRef {
            workspace_id: id.clone(),
            instance_key: key,
        };
        self.fleet
            .serve(token, id, |_, cx| cx.serve_bundle(token, &at, call));
    }

    fn decide_parked(
        &mut self,
        token: RequestToken,
        at: &InstanceRef,
        event_id: EventId,
        decision: ParkedEventDecision,
    ) {
        self.fleet.serve(token, &at.workspace_id, |workspace, cx| {
            workspace.decide(cx, token, at, event_id, decision);
            Ok(())
        });
    }

    fn list_instances(&mut self, token: RequestToken, list: ListInstances) {
        let workspaces = match self.workspace_ids(list.workspace_id.clone()) {
            Ok(workspaces) => workspaces,
            Err(error) => return self.fleet.respond_error(token, error),
        };
        let all = self.fleet.workspaces().values();
        let processing = all.flat_map(Workspace::in_turn).collect();
        self.fleet.cx().emit(CoreEffect::ListInstances {
            token,
            list,
            workspaces,
            processing,
        });
    }

    pub(super) fn on_request(&mut self, token: RequestToken, peer: Peer, call: Call) {
        if self.fleet.is_stopping() && !may_come_late(&call) {
            return self.fleet.respond_error(token, stopping_error());
        }
        if let Err(error) = check_person(peer, &call) {
            return self.fleet.respond_error(token, error);
        }
        match call {
            Call::Connect(_) => self.fleet.respond(token, &self.fleet.view().connected()),
            Call::Status(_) => {
                let mut status = self.fleet.view().daemon_status(&self.calls);
                self.tasks.tell_failed_drills(&mut status.workspaces);
                self.fleet.respond(token, &status);
            }
            Call::ReadMetrics(_) => {
                self.tell_metrics(MetricsReader::Client(token));
            }
            Call::Stop(stop) => {
                self.requests.stops.push(token);
                self.stop(stop.grace_period_ms);
            }
            Call::ListProcesses(list) => {
                let (only, after) = (list.workspace_id.as_ref(), list.after.as_ref());
                let processes = self.fleet.view().processes(&self.calls, only, after);
                let page = list.page_of(processes);
                self.fleet.respond(token, &page);
            }
            Call::ListWorkspaces(list) => {
                let mut page = self.fleet.view().workspaces_page(&self.calls, &list);
                self.tasks.tell_failed_drills(&mut page.workspaces);
                self.fleet.respond(token, &page);
            }
            Call::OpenWorkspace(open) => self.fleet.open_workspace(token, open),
            Call::Reload(reload) => self.reload(token, reload),
            Call::CloseWorkspace(close) => {
                self.fleet.close_workspace(token, &close.workspace_id);
                self.tasks.on_close(&mut self.fleet, &close.workspace_id);
            }
            Call::MoveWorkspace(MoveWorkspace { workspace_id, to }) => match to {
                Some(to) => {
                    self.fleet.move_workspace(Some(token), &workspace_id, to);
                    self.tasks.on_close(&mut self.fleet, &workspace_id);
                }
                None => self.fleet.respond_error(token, no_other_nodes()),
            },
            Call::DrainNode(_) | Call::LeaveNodes(_) | Call::VerifyReplica(_) => {
                self.fleet.respond_error(token, no_other_nodes());
            }
            Call::Restart(request) => match self.fleet.workspace(&request.workspace_id) {
                Ok(workspace) => {
                    let project_root = workspace.record.project_root.clone();
                    let workspace_id = Some(request.workspace_id.clone());
                    let purpose = LoadPurpose::Restart { token, request };
                    self.fleet.cx().emit(CoreEffect::LoadWorkspace {
                        purpose,
                        workspace_id,
                        project_root,
                    });
                }
                Err(error) => self.fleet.respond_error(token, error),
            },
            Call::SendEvent(send) => self.send_event(token, send),
            Call::ListInstances(list) => self.list_instances(token, list),
            Call::ShowInstance(show) => {
                self.with_instance(token, show.workspace_id, show.instance_key, |instance| {
                    let inspect = Inspect {
                        instance: instance.clone(),
                    };
                    (inspect, Inspecting { instance, token })
                });
            }
            Call::InstancePage(page) => self.read_page_before(token, page),
            Call::InstanceHistory(history) => self.read_history(token, history),
            Call::GetMessage(get) => self.read_message(token, get),
            Call::WatchWorkspace(watch) => self.watch_workspace(token, &watch),
            Call::FollowTurns(follow) => self.fleet.cx().follow_turns(token, follow),
            Call::ReadAudit(read) => self.read_audit(token, read),
            Call::ReadUsage(read) => self.read_usage(token, read),
            Call::ReadTraffic(read) => {
                let report = self.fleet.view().traffic(&read);
                self.fleet.answer(token, report);
            }
            Call::InstanceTurns(turns) => self.read_turns(token, turns),
            Call::PageTrace(page) => self.read_trace(token, page),
            Call::ListEvents(list) => self.list_events(token, list),
            Call::ListWaitingChangesets(list) => self.list_waiting_changesets(token, list),
            Call::RetryEvent(retry) => {
                let (workspace_id, instance_key) = (retry.workspace_id, retry.instance_key);
                let at = InstanceRef {
                    workspace_id,
                    instance_key,
                };
                self.decide_parked(token, &at, retry.event_id, ParkedEventDecision::Retry);
            }
            Call::DropEvent(drop) => {
                let (workspace_id, instance_key) = (drop.workspace_id, drop.instance_key);
                let at = InstanceRef {
                    workspace_id,
                    instance_key,
                };
                self.decide_parked(token, &at, drop.event_id, ParkedEventDecision::Drop);
            }
            Call::CancelEvent(cancel) => self.cancel_event(token, cancel),
            Call::PauseEvent(pause) => self.arrange_event(token, pause),
            Call::ResumeEvent(resume) => self.arrange_event(token, resume),
            Call::MoveEvent(moved) => self.arrange_event(token, moved),
            Call::ListQuestions(list) => {
                self.calls.list_questions(&mut self.fleet, token, &list);
            }
            Call::ShowQuestion(show) => self.calls.show_question(&mut self.fleet, token, &show),
            Call::AnswerQuestion(answer) => {
                self.calls
                    .answer_question(&mut self.fleet, token, peer, answer);
            }
            Call::DeclineQuestion(decline) => {
                self.calls
                    .decline_question(&mut self.fleet, token, peer, &decline);
            }
            Call::ListUnknownCalls(list) => {
                let page = self.fleet.view().list_unknown_calls(&list);
                self.fleet.answer(token, page);
            }
            Call::SettleCall(settle) => {
                let id = settle.workspace_id.clone();
                self.fleet.serve(token, &id, |workspace, cx| {
                    workspace.settle_call(cx, token, peer, settle)
                });
            }
            Call::ListSchedules(list) => self.schedules.list(&mut self.fleet, token, &list),
            Call::CreateSchedule(create) => self.create_schedule(token, peer, create),
            Call::MoveSchedule(moved) => {
                self.schedules
                    .move_to(&mut self.fleet, (token, peer), &moved);
            }
            Call::RemoveSchedule(remove) => {
                self.schedules
                    .remove(&mut self.fleet, (token, peer), &remove);
            }
            Call::ListApprovals(list) => {
                let page = self.fleet.view().list_approvals(&list);
                self.fleet.answer(token, page);
            }
            Call::ShowApproval(show) => {
                let detail = self.fleet.view().show_approval(&show);
                self.fleet.answer(token, detail);
            }
            Call::DecideApproval(decide) => {
                let id = decide.workspace_id.clone();
                self.fleet.serve(token, &id, |workspace, cx| {
                    workspace.decide_approval(cx, token, peer, decide)
                });
            }
            Call::ListStandingApprovals(list) => {
                let page = self.fleet.view().list_standing(&list);
                self.fleet.answer(token, page);
            }
            Call::RevokeStandingApproval(revoke) => {
                let id = revoke.workspace_id.clone();
                self.fleet.serve(token, &id, |workspace, cx| {
                    workspace.revoke_standing(cx, token, peer, revoke)
                });
            }
            Call::VerifyInstances(verify) => self.verify(token, verify),
            Call::VerifyRoot(verify) => self.verify_root(token, &verify),
            Call::ExportInstance(export) => self.export(token, export),
            Call::ImportInstance(import) => self.import(token, import),
            Call::PruneInstances(prune) => self.prune(token, prune),
            Call::CheckpointInstance(call) => self.checkpoint_instance(token, call),
            Call::ListInstanceCheckpoints(call) => self.list_instance_checkpoints(token, call),
            Call::RewindInstance(call) => self.rewind_instance(token, call),
            Call::DeleteInstance(delete) => {
                let instance = InstanceRef {
                    workspace_id: delete.workspace_id,
                    instance_key: delete.instance_key,
                };
                match self.fleet.workspace(&instance.workspace_id) {
                    Ok(_) => {
                        self.delete_instance(&instance, None, DeleteReply::Client(token));
                    }
                    Err(error) => self.fleet.respond_error(token, error),
                }
            }
            Call::PrepareSandbox(call) => {
                self.use_proposals(
                    ProposalRequester::Client(token),
                    ProposalWork::Prepare(call),
                );
            }
            Call::ListSandboxes(call) => {
                self.use_proposals(
                    ProposalRequester::Client(token),
                    ProposalWork::ListSandboxes(call),
                );
            }
            Call::ShowSandbox(call) => {
                self.use_proposals(
                    ProposalRequester::Client(token),
                    ProposalWork::ShowSandbox(call),
                );
            }
            Call::RemoveSandbox(call) => {
                self.use_proposals(ProposalRequester::Client(token), ProposalWork::Remove(call));
            }
            Call::CreateProposal(call) => {
                self.use_proposals(ProposalRequester::Client(token), ProposalWork::Create(call));
            }
            Call::ListProposals(call) => {
                self.use_proposals(ProposalRequester::Client(token), ProposalWork::List(call));
            }
            Call::ShowProposal(call) => {
                self.use_proposals(ProposalRequester::Client(token), ProposalWork::Show(call));
            }
            Call::DiffProposal(call) => {
                self.use_proposals(ProposalRequester::Client(token), ProposalWork::Diff(call));
            }
            Call::CheckProposal(call) => {
                self.use_proposals(ProposalRequester::Client(token), ProposalWork::Check(call));
            }
            Call::ReviewProposal(call) => {
                self.use_proposals(ProposalRequester::Client(token), ProposalWork::Review(call));
            }
            Call::ApplyProposal(call) => {
                self.use_proposals(ProposalRequester::Client(token), ProposalWork::Apply(call));
            }
            Call::RejectProposal(call) => {
                self.use_proposals(ProposalRequester::Client(token), ProposalWork::Reject(call));
            }
            Call::RevertProposal(call) => {
                self.use_proposals(ProposalRequester::Client(token), ProposalWork::Revert(call));
            }
            Call::CommentProposal(call) => {
                self.use_proposals(
                    ProposalRequester::Client(token),
                    ProposalWork::Comment(call),
                );
            }
            Call::UncommentProposal(call) => {
                self.use_proposals(
                    ProposalRequester::Client(token),
                    ProposalWork::Uncomment(call),
                );
            }
            Call::MergeProposal(call) => {
                self.use_proposals(ProposalRequester::Client(token), ProposalWork::Merge(call));
            }
            Call::ShowBundle(call) => {
                let (id, key) = (call.workspace_id, call.instance_key);
                self.serve_bundle(token, &id, key, BundleCall::Show);
            }
            Call::ReadBundleLog(call) => {
                let (id, key) = (call.workspace_id, call.instance_key);
                self.serve_bundle(token, &id, key, BundleCall::Log);
            }
            Call::ShowChangeset(call) => {
                let (id, key) = (call.workspace_id, call.instance_key);
                self.serve_bundle(token, &id, key, BundleCall::Changeset(call.changeset_id));
            }
            Call::RehearseBundle(call) => {
                let (id, key) = (call.workspace_id, call.instance_key);
                self.serve_bundle(
                    token,
                    &id,
                    key,
                    BundleCall::Rehearse(
                        call.subject,
                        call.turns.unwrap_or(DEFAULT_REHEARSAL_TURNS),
                    ),
                );
            }
            Call::ApproveChangeset(call) => {
                let (id, key) = (call.workspace_id, call.instance_key);
                self.serve_bundle(
                    token,
                    &id,
                    key,
                    BundleCall::Approve(call.changeset_id, call.reason),
                );
            }
            Call::RejectChangeset(call) => {
                let (id, key) = (call.workspace_id, call.instance_key);
                self.serve_bundle(
                    token,
                    &id,
                    key,
                    BundleCall::Reject(call.changeset_id, call.reason),
                );
            }
            Call::RevertBundle(call) => {
                let (id, key) = (call.workspace_id, call.instance_key);
                self.serve_bundle(
                    token,
                    &id,
                    key,
                    BundleCall::Revert(call.revision, call.reason),
                );
            }
            Call::PinBundle(call) => {
                let (id, key) = (call.workspace_id, call.instance_key);
                self.serve_bundle(token, &id, key, BundleCall::Pin(call.pinned));
            }
            call @ (Call::CreateTask(_)
            | Call::ListTasks(_)
            | Call::ShowTask(_)
            | Call::StartTask(_)
            | Call::PauseTask(_)
            | Call::ResumeTask(_)
            | Call::CancelTask(_)
            | Call::ProvideTask(_)
            | Call::AnswerTask(_)
            | Call::ApproveTask(_)
            | Call::ReworkTask(_)
            | Call::SendTask(_)
            | Call::SetTaskBudget(_)
            | Call::ReadTaskLog(_)
            | Call::WatchTask(_)
            | Call::CheckpointTask(_)
            | Call::ListCheckpoints(_)
            | Call::RestoreTask(_)
            | Call::DrillTask(_)
            | Call::PruneTasks(_)
            | Call::ImportTask(_)
            | Call::RemoveTask(_)
            | Call::ListQueue(_)
            | Call::ChangeQueue(_)) => {
                self.tasks.on_request(&mut self.fleet, token, call);
            }
            call @ (Call::ListGrants(_)
            | Call::ShowGrant(_)
            | Call::BeginLogin(_)
            | Call::FinishLogin(_)
            | Call::RefreshGrant(_)
            | Call::RevokeGrant(_)) => {
                self.oauth.on_request(&mut self.fleet, token, call);
            }
            Call::ListSecrets(_) => self.use_secrets(token, SecretWork::List),
            Call::SetSecret(set) => self.use_secrets(token, SecretWork::Set(set)),
            Call::RemoveSecret(remove) => self.use_secrets(token, SecretWork::Remove(remove)),
            Call::AllowSecret(allow) => self.use_secrets(token, SecretWork::Allow(allow)),
            Call::DenySecret(deny) => self.use_secrets(token, SecretWork::Deny(deny)),
            Call::ListPermissions(_) => self.use_secrets(token, SecretWork::ListPermissions),
            Call::DecidePermission(call) => self.use_secrets(token, SecretWork::Decide(call)),
            Call::RotateSecrets(_) => self.use_secrets(token, SecretWork::Rotate),
            Call::StorePackage(request) => {
                self.fleet
                    .cx()
                    .emit(CoreEffect::StorePackage { token, request });
            }
            Call::PrunePackages(request) => {
                self.fleet
                    .cx()
                    .emit(CoreEffect::PrunePackages { token, request });
            }
            // The shell handles these requests itself: logs, and the resource usage of processes.
            Call::FollowLogs(_)
            | Call::WatchProcesses(_)
            | Call::HoldWrites(_)
            | Call::ReleaseWrites(_) => {
                self.fleet.respond(token, &EmptyResult {});
            }
            // The shell has removed the mark of the restore.
            Call::ResumeDaemon(_) => {
                if self.fleet.cx().is_paused() {
                    self.fleet.starts().resume();
                    self.tasks.resume_queues(&mut self.fleet);
                }
                self.fleet.respond(token, &EmptyResult {});
            }
            Call::CheckDaemon(_) => self.fleet.respond(token, &DaemonCheck::default()),
            Call::CheckNodes(_) => self.fleet.respond(token, &NodesCheck::default()),
            Call::ListNodes(list) => {
                let page = list.page_of(NodesPage::default());
                self.fleet.respond(token, &page);
            }
        }
    }

    fn on_inspected(
        &mut self,
        inspecting: &Inspecting,
        result: Result<Box<Inspection>, StoreError>,
    ) {
        let (at, token) = (&inspecting.instance, inspecting.token);
        let found = match result {
            Ok(found) => found,
            Err(error) => return self.fleet.respond_error(token, control_error(&error)),
        };
        let metadata = found.metadata;
        let detail = InstanceDetail {
            summary: InstanceSummary {
                workspace_id: at.workspace_id.clone(),
                instance_key: metadata.instance_key,
                agent_name: metadata.agent_name,
                status: metadata.status.as_str().to_owned(),
                created_at: metadata.created_at,
                updated_at: metadata.updated_at,
            },
            work_dir: work_dir(&found.dir),
            directory: found.dir,
            messages: found.messages,
            base_bytes: found.base_bytes,
            pending_events: found.waiting,
            process: self.fleet.view().process_of(&self.calls, at),
            extensions: found.extensions,
            rewinds: metadata.rewinds,
            schedules: self.schedules.count(at),
        };
        self.fleet.respond(token, &detail);
    }
}

/// Error for a client's event that cannot be routed.
fn unroutable(problem: &RoutingError, bundle: &ProjectConfig) -> ControlError {
    let agents = router::agents_of(bundle);
    match problem {
        RoutingError::NoEntryAgent => {
            let text = "the project's agents are programs that work on tasks, so no agent answers messages";
            ControlError::new(ErrorCode::AgentNotFound, text).suggest(
                "create a task with `gdn task new TITLE`, or add a document of `kind: Agent` with a `modelConfig`",
            )
        }
        RoutingError::NoAgent { .. } if agents.is_empty() => {
            ControlError::new(ErrorCode::AgentNotFound, problem.to_string())
                .suggest("agents with `runtime.kind: cli` work only on tasks: `gdn task new TITLE`")
        }
        RoutingError::NoAgent { .. } => {
            ControlError::new(ErrorCode::AgentNotFound, problem.to_string())
                .suggest(format!("the agents are: {agents}"))
        }
        RoutingError::NoRule { .. } | RoutingError::NoKey { .. } | RoutingError::BadKey { .. } => {
            ControlError::new(ErrorCode::InvalidRequest, problem.to_string()).suggest(format!(
                "choose an agent with `--agent`; the agents are: {agents}"
            ))
        }
    }
}
