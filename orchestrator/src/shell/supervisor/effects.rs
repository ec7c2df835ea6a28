//! Execution of the core's effects.

use bytes::Bytes;
use goondan_core::{
    CoreEffect, CoreInput, InstanceListing, ListPurpose, LoadPurpose, MetricsReader, ProcessId,
    RequestToken, Spawn, StateResult, StateWork, WorkspaceLoadResult, control_error,
};
use goondan_protocol::control::{
    ControlError, ErrorCode, JsonRpc, ListInstances, Notification, TURN_PIECE, TURN_PROGRESS,
    TurnPiece, TurnProgress, WORKSPACE_CHANGE, WorkspaceChange,
};
use goondan_protocol::ids::{ConnectionName, InstanceRef, WorkspaceId};
use goondan_protocol::ipc::{EnvelopeHeader, ToChild, ToConnector};
use goondan_protocol::metrics::Sample;
use goondan_store::workspace::WorkspaceRecord;
use goondan_store::{connection, workspace};
use serde::Serialize;
use std::collections::HashSet;
use std::path::PathBuf;

use super::{EventLoop, write_log};
use crate::shell::event::ShellEvent;
use crate::shell::workspace_load::{self, LoadParams};
use crate::shell::{bundles, child, descriptors, proposals, reads};

impl EventLoop {
    /// Executes an effect. Returns an immediate result as the core's next input.
    pub(super) fn carry_out(&mut self, effect: CoreEffect) -> Option<CoreInput> {
        match effect {
            CoreEffect::Spawn(spawn) => return Some(self.start(&spawn)),
            CoreEffect::Send {
                process,
                head,
                mut message,
            } => {
                self.reports.hub.masks().mask_to_child(&mut message);
                return self.send(process, &head, &message);
            }
            CoreEffect::Kill { process } => {
                let child = self.children.get_mut(&process)?;
                child.ends_in_order = false;
                child.kill();
            }
            CoreEffect::SetTrace { process, trace } => {
                self.children.get(&process)?.set_trace(trace);
            }
            CoreEffect::Store(mut job) => {
                self.reports.hub.masks().stored(&mut job.op);
                self.jobs.push(job);
            }
            CoreEffect::LoadWorkspace {
                purpose,
                workspace_id,
                project_root,
            } => self.load(purpose, workspace_id, project_root),
            CoreEffect::KeepConfiguration {
                workspace_id,
                digest,
                since,
                sources,
            } => {
                self.kept += 1;
                let (projects, number) = (self.projects.clone(), self.kept);
                self.tasks.spawn_blocking(move || {
                    projects.keep(number, &workspace_id, digest, since, &sources);
                });
            }
            CoreEffect::Watch {
                workspace_id,
                sources,
            } => {
                let events = &self.reports.events;
                self.watches
                    .set(workspace_id, sources, events, &mut self.tasks);
            }
            CoreEffect::WriteWorkspace(record) => self.write_workspace(record),
            CoreEffect::HandOver {
                workspace_id,
                to,
                token,
            } => self.hand_over(workspace_id, to, token),
            CoreEffect::ConnectionState {
                workspace_id,
                connection,
                work,
            } => self.carry_out_state_work(workspace_id, connection, work),
            CoreEffect::ListInstances {
                token,
                list,
                workspaces,
                processing,
            } => self.list_instances(token, &list, &workspaces, &processing),
            CoreEffect::ListMetadata {
                purpose,
                workspace_id,
            } => return self.list_metadata(purpose, workspace_id),
            CoreEffect::Read { token, read } => {
                let (disk, layout) = (self.disk.clone(), self.layout.clone());
                let index = self.projects.known.index.clone();
                self.in_background(move || {
                    let result = reads::read(disk.as_ref(), &layout, &index, read);
                    ShellEvent::Answer { token, result }
                });
            }
            CoreEffect::Secrets { token, at, work } => {
                let keeper = self.projects.secrets.clone();
                self.in_background(move || {
                    let result = keeper.carry_out(work, at);
                    ShellEvent::Input(CoreInput::Secrets { token, result })
                });
            }
            CoreEffect::StorePackage { token, request } => {
                let keeper = self.packages.clone();
                self.in_background(move || {
                    let result = keeper.answer(&request);
                    ShellEvent::Answer { token, result }
                });
            }
            CoreEffect::PrunePackages { token, request } => {
                let (keeper, layout) = (self.packages.clone(), self.layout.clone());
                self.in_background(move || {
                    let result = keeper.prune(&request, &layout);
                    ShellEvent::Answer { token, result }
                });
            }
            CoreEffect::Proposals {
                at,
                project_root,
                work,
            } => {
                let layout = self.layout.clone();
                let files = self.projects.proposal_files();
                self.in_background(move || {
                    let workspace_id = work.workspace_id().clone();
                    let done = proposals::carry_out(&files, &layout, &project_root, work, at);
                    ShellEvent::Input(CoreInput::Proposals {
                        workspace_id,
                        is_asked: true,
                        done,
                    })
                });
            }
            CoreEffect::Bundle(work) => {
                let projects = self.projects.clone();
                self.in_background(move || {
                    let done = bundles::carry_out(&projects, *work);
                    ShellEvent::Input(CoreInput::Bundle(Box::new(done)))
                });
            }
            CoreEffect::Tasks(work) => {
                if !self.tasks_thread.submit(*work) {
                    tracing::error!("the task thread has ended; the daemon cannot continue");
                    self.is_over = true;
                }
            }
            CoreEffect::OAuth(work) => {
                if !self.oauth_thread.submit(work) {
                    tracing::error!("the OAuth thread has ended; the daemon cannot continue");
                    self.is_over = true;
                }
            }
            CoreEffect::Joint(work) => {
                if !self.joint_thread.submit(*work) {
                    tracing::error!(
                        "the joint checkpoint thread has ended; the daemon cannot continue"
                    );
                    self.is_over = true;
                }
            }
            CoreEffect::Respond { token, result } => self.respond(token, result),
            CoreEffect::Progress { token, mut event } => {
                self.reports.hub.masks().progress(&mut event);
                self.notify(token, TURN_PROGRESS, |request_id| TurnProgress {
                    request_id,
                    event,
                });
            }
            CoreEffect::Piece {
                token,
                place,
                piece,
            } => self.notify(token, TURN_PIECE, |request_id| TurnPiece {
                request_id,
                place: *place,
                piece,
            }),
            CoreEffect::Tell {
                token,
                workspace_id,
                told,
            } => {
                let update = self.reports.hub.masks().update(told.update)?;
                self.notify(token, WORKSPACE_CHANGE, |request_id| WorkspaceChange {
                    request_id,
                    workspace_id,
                    cursor: told.cursor,
                    at: told.at,
                    told: update,
                });
            }
            CoreEffect::Log(event) => write_log(&self.reports.hub, event),
            CoreEffect::Count(sample) => self.metrics.count(sample),
            CoreEffect::TellMetrics { reader, samples } => {
                return self.tell_metrics(reader, samples);
            }
            CoreEffect::Exit => self.is_over = true,
        }
        None
    }

    /// Runs work on a thread that may block on a disk, and reports its result as an event.
    pub(super) fn in_background(&mut self, work: impl FnOnce() -> ShellEvent + Send + 'static) {
        let events = self.reports.events.clone();
        self.tasks
            .spawn_blocking(move || drop(events.blocking_send(work())));
    }

    fn start(&mut self, spawn: &Spawn) -> CoreInput {
        let process = spawn.process;
        let started = child::start(
            spawn,
            &self.launcher,
            &mut self.cgroups,
            &self.reports,
            &mut self.tasks,
        );
        match started {
            Ok(child) => {
                let pid = child.pid;
                self.children.insert(process, child);
                CoreInput::Spawned { process, pid }
            }
            Err(error) => {
                let how = format!("failed to start it: {error}");
                if descriptors::is_shortage(&error) {
                    CoreInput::NoRoom { process, how }
                } else {
                    CoreInput::Exited { process, how }
                }
            }
        }
    }

    fn send(
        &mut self,
        process: ProcessId,
        head: &EnvelopeHeader,
        message: &ToChild,
    ) -> Option<CoreInput> {
        let child = self.children.get_mut(&process)?;
        child.ends_in_order |= message.is_shutdown();
        let sent = message.to_frame(head).map(|frame| {
            let records = message.records_frame().cloned();
            let mut frames = std::iter::once(Bytes::from(frame)).chain(records);
            frames.all(|frame| child.send(frame))
        });
        let problem = match sent {
            Ok(true) => return None,
            Ok(false) => "it does not read its messages".to_owned(),
            Err(error) => goondan_log::error_chain(&error),
        };
        Some(CoreInput::Broken { process, problem })
    }

    fn write_workspace(&mut self, record: Box<WorkspaceRecord>) {
        let (disk, layout) = (self.disk.clone(), self.layout.clone());
        self.projects.known.index.forget(&record.workspace_id);
        self.in_background(move || {
            let written = workspace::write(disk.as_ref(), &layout, &record);
            ShellEvent::Input(CoreInput::WorkspaceWritten {
                workspace_id: record.workspace_id.clone(),
                result: written.map_err(|error| control_error(&error)),
            })
        });
    }

    /// Hands a workspace over to another node, once all its files are closed.
    fn hand_over(&mut self, workspace_id: WorkspaceId, to: String, token: Option<RequestToken>) {
        self.projects.known.forget(&workspace_id);
        let (disk, dir) = (self.disk.clone(), self.layout.workspace(&workspace_id));
        let replication = self.replication.clone();
        self.in_background(move || {
            // The core requests this only with replication.
            let result = replication.map_or(Ok(()), |replication| {
                replication.hand_over(disk.as_ref(), (&workspace_id, &dir), &to)
            });
            ShellEvent::HandedOver {
                workspace_id,
                token,
                result,
            }
        });
    }

    fn carry_out_state_work(
        &mut self,
        workspace_id: WorkspaceId,
        connection: ConnectionName,
        work: StateWork,
    ) {
        let (disk, layout) = (self.disk.clone(), self.layout.clone());
        self.in_background(move || {
            let (disk, id, name) = (disk.as_ref(), &workspace_id, &connection);
            let done = match &work {
                StateWork::Get => {
                    connection::state(disk, &layout, id, name).map(StateResult::Found)
                }
                StateWork::Set(state) => connection::set_state(disk, &layout, id, name, state)
                    .map(|()| StateResult::Kept),
            };
            ShellEvent::Input(CoreInput::ConnectionState {
                workspace_id,
                connection,
                result: done.map_err(|error| goondan_log::error_chain(&error)),
            })
        });
    }

    fn list_instances(
        &mut self,
        token: RequestToken,
        list: &ListInstances,
        workspaces: &[WorkspaceId],
        processing: &HashSet<InstanceRef>,
    ) {
        let is_processing = |at: &_| processing.contains(at);
        let listed = workspaces
            .iter()
            .flat_map(|id| workspace_load::list_instances(&self.projects.known, id, is_processing));
        let page = list.page_of(listed.collect());
        self.answer(token, &page);
    }

    /// Sends the metrics to their reader.
    fn tell_metrics(&mut self, reader: MetricsReader, samples: Vec<Sample>) -> Option<CoreInput> {
        let snapshot = self.metrics(samples);
        match reader {
            MetricsReader::Client(token) => {
                self.answer(token, &snapshot);
                None
            }
            MetricsReader::Connection {
                process,
                head,
                workspace_id,
            } => {
                let snapshot = Box::new(snapshot.of_workspace(&workspace_id));
                self.send(process, &head, &ToConnector::Metrics(snapshot).into())
            }
        }
    }

    /// Responds to a request with data that contains no secrets.
    pub(super) fn answer(&mut self, token: RequestToken, answer: &impl Serialize) {
        match serde_json::value::to_raw_value(answer) {
            Ok(answer) => {
                if let Some(request) = self.requests.remove(&token) {
                    request.client.respond_raw(request.id, answer);
                }
            }
            Err(error) => {
                let error = ControlError::new(ErrorCode::Internal, error.to_string());
                self.respond(token, Err(error));
            }
        }
    }

    fn list_metadata(
        &mut self,
        purpose: ListPurpose,
        workspace_id: WorkspaceId,
    ) -> Option<CoreInput> {
        if let ListPurpose::Verify { .. } = purpose {
            self.list_on_disk(purpose, workspace_id);
            return None;
        }
        let found = self.projects.known.index.list(&workspace_id);
        let listed = InstanceListing {
            found: found.unwrap_or_default(),
            unreadable: Vec::new(),
        };
        Some(CoreInput::Listed {
            workspace_id,
            purpose,
            result: Ok(listed),
        })
    }

    /// Lists the instances of a workspace from its directories, ignoring cached data.
    fn list_on_disk(&mut self, purpose: ListPurpose, workspace_id: WorkspaceId) {
        let (disk, layout) = (self.disk.clone(), self.layout.clone());
        let known = self.projects.known.clone();
        self.in_background(move || {
            let instances = layout.instances(&workspace_id);
            let listed = workspace::list_instances(disk.as_ref(), &instances);
            let listed = listed.map(|listed| {
                known.warned.report(&listed.1);
                InstanceListing::of(listed)
            });
            ShellEvent::Input(CoreInput::Listed {
                workspace_id,
                purpose,
                result: listed.map_err(|error| control_error(&error)),
            })
        });
    }

    fn load(
        &mut self,
        purpose: LoadPurpose,
        workspace_id: Option<WorkspaceId>,
        project_root: PathBuf,
    ) {
        let wanted = LoadParams {
            workspace_id: workspace_id.clone(),
            settings: purpose.settings(),
            may_fall_back: purpose.may_fall_back(),
            all_instances: purpose.begins_anew(),
        };
        let (projects, events) = (self.projects.clone(), self.reports.events.clone());
        self.tasks.spawn_blocking(move || {
            projects.read_then(&project_root, &wanted, |(sources, result)| {
                let loaded = Box::new(WorkspaceLoadResult {
                    purpose,
                    workspace_id,
                    sources,
                    result,
                });
                drop(events.blocking_send(ShellEvent::Input(CoreInput::Loaded(loaded))));
            });
        });
    }

    /// Sends a notification to a client while its request is open.
    fn notify<T: Serialize>(
        &self,
        token: RequestToken,
        method: &'static str,
        params: impl FnOnce(u64) -> T,
    ) {
        if let Some(request) = self.requests.get(&token) {
            request.client.send(&Notification {
                jsonrpc: JsonRpc,
                method,
                params: params(request.id),
            });
        }
    }
}
