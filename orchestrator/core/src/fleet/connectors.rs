//! Connector processes: one for each connection, always running (`SUP-3`).

use std::path::PathBuf;

use goondan_config::ConnectionDefinition;
use goondan_oauth::RedirectOutcome;
use goondan_protocol::JsonObject;
use goondan_protocol::call::CallTarget;
use goondan_protocol::control::Readiness;
use goondan_protocol::definition::{ConnectorAssignment, ConnectorProgram};
use goondan_protocol::egress::EgressCaller;
use goondan_protocol::envelope::Address;
use goondan_protocol::event::{AgentEvent, ConnectorEvent, EventSource, PAYLOAD, PAYLOAD_BYTES};
use goondan_protocol::export::OTLP;
use goondan_protocol::ids::{ConnectionName, EventId, WorkspaceId};
use goondan_protocol::ignored::{IgnoreReason, IgnoredCounts};
use goondan_protocol::images;
use goondan_protocol::ipc::{
    Assignment, EnvelopeHeader, EventAccepted, EventRefused, Quiesce, RefusalCode, Status,
    ToConnector,
};
use goondan_protocol::lifecycle::{LifecycleEvent, Worker};
use goondan_protocol::limits::MAX_INPUT_BYTES;
use goondan_protocol::namespace::event_id_within;
use goondan_protocol::oauth::{CALLBACK_SETTING, OAuthNeed};
use goondan_protocol::package_runner::PackageCommand;
use goondan_protocol::sandbox::{Level, Network};
use goondan_protocol::trace::{SpanId, TraceContext, TraceId};
use serde_json::Value;

use super::agents::CONFIGURATION_CHANGED;
use super::availability::{Availability, availability_of, not_ready};
use super::changes::RunningConnector;
use super::chat_approvals::ShownApprovals;
use super::collectors::ExportQueue;
use super::connection_state::StateQueue;
use super::event_queue::EventOrigin;
use super::legacy_keys::{Arrival, FormerKeys};
use super::replies::AwaitedReplies;
use super::slot::Slot;
use super::{Fleet, ProcessOwner, health, tokens};
use crate::limits::{BACK_OFF_MAX_MS, KEPT_PROPERTIES_MAX, KEPT_PROPERTY_BYTES_MAX};
use crate::router::RoutingError;
use crate::{CoreEffect, ProcessId, router};

#[derive(Debug)]
pub(crate) struct Connector {
    pub(super) slot: Slot,
    /// The configured definition; `None` if the connection was removed from the configuration.
    pub(super) wanted: Option<ConnectionDefinition>,
    /// Start configuration of the current or the last process.
    pub(super) running: Option<RunningConnector>,
    /// The process that was told to accept nothing new from outside.
    quiesced: Option<ProcessId>,
    /// Readiness reported by its process.
    pub(super) readiness: Readiness,
    /// Events that were passed over since the daemon started, by reason.
    pub(super) ignored: IgnoredCounts,
    /// Operations on its persistent state.
    pub(super) state: StateQueue,
    /// Ownership of conversations with legacy keys.
    pub(super) former_keys: FormerKeys,
    /// Replies that its process waits for.
    pub(super) replies: AwaitedReplies,
    /// Pending approvals that its process shows.
    pub(super) showing: ShownApprovals,
    /// Export queue, for a collector connection.
    pub(super) collecting: ExportQueue,
}

impl Connector {
    pub(crate) fn new(wanted: ConnectionDefinition) -> Self {
        Self {
            slot: Slot::default(),
            wanted: Some(wanted),
            running: None,
            quiesced: None,
            readiness: Readiness::Starting,
            ignored: IgnoredCounts::new(),
            state: StateQueue::default(),
            former_keys: FormerKeys::default(),
            replies: AwaitedReplies::default(),
            showing: ShownApprovals::default(),
            collecting: ExportQueue::default(),
        }
    }

    /// True if the connection exports traces.
    pub(super) fn is_exporter(&self) -> bool {
        let wanted = self.wanted.as_ref();
        wanted.is_some_and(|wanted| wanted.entry.is_none() && wanted.connector.as_str() == OTLP)
    }
}

/// Current purpose of a connection's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionPurpose {
    /// All work of the connection.
    All,
    /// Only calls of turns in progress, and nothing new from outside.
    Calls,
    /// None: the process must stop.
    Nothing,
}

/// The path on which a connection receives redirects from an authorization server: the one set in a
/// webhook's configuration.
pub(crate) fn callback_path(connection: &ConnectionDefinition) -> Option<&str> {
    let is_webhook = connection.entry.is_none() && connection.connector.as_str() == WEBHOOK;
    let path = connection.config.get(CALLBACK_SETTING)?.as_str()?;
    is_webhook.then_some(path)
}

/// The connector that receives HTTP requests.
const WEBHOOK: &str = "webhook";

/// Properties that are stored with an event: plain and short ones.
fn kept_properties(properties: JsonObject) -> JsonObject {
    let is_short = |name: &str, value: &Value| match value {
        Value::String(text) => name.len().max(text.len()) <= KEPT_PROPERTY_BYTES_MAX,
        Value::Number(_) | Value::Bool(_) => name.len() <= KEPT_PROPERTY_BYTES_MAX,
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    };
    let kept = properties.into_iter();
    let kept = kept.filter(|(name, value)| is_short(name, value));
    kept.take(KEPT_PROPERTIES_MAX).collect()
}

impl Fleet {
    pub(crate) fn on_connector_status(
        &mut self,
        id: &WorkspaceId,
        name: &ConnectionName,
        status: Status,
    ) {
        let Some(connector) = self.connector_mut(id, name) else {
            return;
        };
        connector.readiness = health::readiness_of(&status);
        connector.slot.detail = Some(status.detail.clone());
        let event = LifecycleEvent::ReadinessChanged {
            worker: Worker::Connector {
                connection: name.clone(),
            },
            ready: status.ready,
            detail: status.detail,
        };
        self.announce(id, event, None);
    }

    /// Handles a rejected token of a connection that cannot be replaced.
    pub(crate) fn stays_declined(&mut self, process: ProcessId, why: &str) {
        let Some(ProcessOwner::Connector(id, name)) = self.owners.get(&process).cloned() else {
            return;
        };
        if let Some(connector) = self.connector_mut(&id, &name) {
            connector.readiness = Readiness::NotReady;
            let detail = connector.slot.detail.take().unwrap_or_default();
            connector.slot.detail = Some(format!("{detail}; {why}"));
        }
    }

    /// Starts, quiesces or stops the process of a connection, as needed.
    pub(crate) fn pump_connector(&mut self, id: &WorkspaceId, name: &ConnectionName) {
        self.pump_showing(id, name);
        let purpose = self.purpose_of(id, name);
        let connector = self.connector_mut(id, name);
        if connector.is_some_and(|connector| connector.slot.up().is_some()) {
            self.adjust_connector(id, name, purpose);
        } else if purpose != ConnectionPurpose::Nothing || !self.is_ending(id) {
            self.start_connector(id, name);
        }
    }

    /// A turn in progress finishes with the connections it began with, as with its models.
    fn purpose_of(&self, id: &WorkspaceId, name: &ConnectionName) -> ConnectionPurpose {
        let workspace = self.workspaces.get(id);
        let connector = workspace.and_then(|workspace| workspace.connectors.get(name));
        let is_needed = if self.is_ending(id) {
            !self.is_past_work(id)
        } else if connector.is_some_and(|connector| connector.wanted.is_some()) {
            return ConnectionPurpose::All;
        } else {
            self.is_any_agent_outdated(id)
        };
        if is_needed {
            ConnectionPurpose::Calls
        } else {
            ConnectionPurpose::Nothing
        }
    }

    /// Adjusts a running process to its current purpose.
    fn adjust_connector(
        &mut self,
        id: &WorkspaceId,
        name: &ConnectionName,
        purpose: ConnectionPurpose,
    ) {
        let connector = self.connector_mut(id, name);
        let Some(connector) = connector else { return };
        let up = connector.slot.up().map(|up| up.process);
        let is_quiesced = up.is_some() && connector.quiesced == up;
        let ready = connector.slot.ready();
        let is_wanted = connector.wanted.is_some();
        let is_outdated = is_wanted && self.is_connector_outdated(id, name);
        match purpose {
            ConnectionPurpose::All if is_quiesced => {
                self.drain_connector(id, name, "it must accept events again");
            }
            ConnectionPurpose::All | ConnectionPurpose::Calls if is_outdated => {
                self.drain_connector(id, name, CONFIGURATION_CHANGED);
            }
            ConnectionPurpose::Calls if !is_quiesced => {
                let Some(process) = ready else { return };
                if let Some(connector) = self.connector_mut(id, name) {
                    connector.quiesced = Some(process);
                }
                let owner = ProcessOwner::Connector(id.clone(), name.clone());
                self.send(&owner, process, ToConnector::Quiesce(Quiesce {}).into());
            }
            ConnectionPurpose::Nothing if is_wanted => {
                self.drain_connector(id, name, "no remaining turn can need it");
            }
            ConnectionPurpose::Nothing => self.drain_connector(id, name, CONFIGURATION_CHANGED),
            ConnectionPurpose::All | ConnectionPurpose::Calls => {}
        }
    }

    /// Starts a connection's process if it is wanted and may start.
    fn start_connector(&mut self, id: &WorkspaceId, name: &ConnectionName) {
        let now = self.cx.now();
        let Some(workspace) = self.workspaces.get_mut(id) else {
            return;
        };
        let Some(connector) = workspace.connectors.get_mut(name) else {
            return;
        };
        if !connector.slot.may_start(now) {
            return;
        }
        let Some(definition) = connector
            .wanted
            .clone()
            .filter(|_| workspace.bundle.is_some())
        else {
            workspace.connectors.remove(name);
            return;
        };
        let tokens = match self.tokens_for(id, &tokens::needs_of_connection(&definition)) {
            Ok(tokens) => tokens,
            Err(need) => return self.wait_for_token(id, name, &need),
        };
        let Some(workspace) = self.workspaces.get_mut(id) else {
            return;
        };
        let (Some(connector), Some(bundle)) = (
            workspace.connectors.get_mut(name),
            workspace.bundle.as_ref(),
        ) else {
            return;
        };
        let running = RunningConnector::of(definition, tokens, bundle);
        let limits = running.definition.limits;
        connector.running = Some(running);
        connector.readiness = Readiness::Starting;
        self.spawn(&ProcessOwner::Connector(id.clone(), name.clone()), limits);
    }

    /// True if the running process was started with another configuration.
    pub(crate) fn is_connector_outdated(&self, id: &WorkspaceId, name: &ConnectionName) -> bool {
        let workspace = self.workspaces.get(id);
        workspace.is_some_and(|workspace| {
            let connector = workspace.connectors.get(name);
            let running = connector.filter(|connector| connector.slot.up().is_some());
            match (running.and_then(|c| c.running.as_ref()), &workspace.bundle) {
                (Some(running), Some(bundle)) => {
                    running.is_outdated(bundle) || self.has_other_tokens(id, name)
                }
                _ => false,
            }
        })
    }

    /// Delays the start of a connection until its token is available.
    fn wait_for_token(&mut self, id: &WorkspaceId, name: &ConnectionName, need: &OAuthNeed) {
        let why = tokens::lacks(need);
        let Some(connector) = self.connector_mut(id, name) else {
            return;
        };
        connector.readiness = Readiness::NotReady;
        if connector.slot.detail.as_ref() != Some(&why) {
            connector.slot.detail = Some(why.clone());
            let event = LifecycleEvent::ReadinessChanged {
                worker: Worker::Connector {
                    connection: name.clone(),
                },
                ready: false,
                detail: why,
            };
            self.announce(id, event, None);
        }
    }

    pub(super) fn connector_assignment(
        &mut self,
        id: &WorkspaceId,
        name: &ConnectionName,
    ) -> Option<Assignment> {
        let project_root = self.workspaces.get(id)?.record.project_root.clone();
        let running = self.connector_mut(id, name)?.running.clone()?;
        // Before tokens are filled in, because a renewed one does not change the command.
        let package_cache = self.package_cache(id, &running.definition);
        let definition = tokens::connection_with(running.definition, &running.tokens);
        let program = definition.entry.map(|entry| ConnectorProgram {
            project_root: project_root.clone(),
            entry,
        });
        let caller = EgressCaller::Connection(name.clone());
        Some(Assignment::Connector(Box::new(ConnectorAssignment {
            workspace_id: id.clone(),
            connection: name.clone(),
            connector: definition.connector,
            program,
            project_root: Some(project_root),
            package_cache,
            config: definition.config,
            secrets: definition.secrets,
            egress_socket: self.egress_socket(id, &caller, &definition.sandbox),
            egress: self.egress_doors(id, definition.egress),
            sandbox: definition.sandbox,
        })))
    }

    /// Directory for the packages that the server of a connection may download.
    fn package_cache(
        &self,
        id: &WorkspaceId,
        connection: &ConnectionDefinition,
    ) -> Option<PathBuf> {
        let sandbox = &connection.sandbox;
        if sandbox.require == Level::Off || sandbox.network == Network::None {
            return None;
        }
        let command = connection.server_command()?;
        let digest = PackageCommand::of(&command)?.digest();
        let layout = &self.facts.layout;
        Some(layout.package_cache(id, &connection.name, &digest))
    }

    pub(super) fn connection_availability(
        &self,
        id: &WorkspaceId,
        name: &ConnectionName,
    ) -> Availability {
        let target = CallTarget::Connection { name: name.clone() };
        let workspace = self.workspaces.get(id);
        let connector = workspace.and_then(|workspace| workspace.connectors.get(name));
        let is_over = self.is_ending(id) && self.is_past_work(id);
        match connector {
            Some(_) if self.lacking(id, &target).is_some() => Availability::Consent,
            Some(connector) if !is_over || connector.slot.ready().is_some() => {
                let found =
                    availability_of(&connector.slot, connector.readiness, self.cx.now(), &target);
                match found {
                    Availability::Not(error) if connector.slot.ready().is_some() => {
                        Availability::Recovering(error)
                    }
                    found => found,
                }
            }
            Some(_) => Availability::Not(not_ready(&target, "it is being stopped")),
            None => Availability::Not(not_ready(&target, "it was removed from the configuration")),
        }
    }

    /// Route of a connection's event, or the reason it has none; `None` if the connection does not
    /// run.
    fn route_of(
        &self,
        id: &WorkspaceId,
        name: &ConnectionName,
        event: &ConnectorEvent,
    ) -> Option<Result<router::Route, EventRefused>> {
        let invalid = |message| EventRefused::new(RefusalCode::Invalid, message);
        if event.input.len() > MAX_INPUT_BYTES {
            let message = format!("the input has more than {MAX_INPUT_BYTES} bytes");
            return Some(Err(invalid(message)));
        }
        if let Err(problem) = images::of_metadata(&event.metadata) {
            return Some(Err(invalid(problem.to_string())));
        }
        let workspace = self.workspaces.get(id)?;
        let bundle = workspace.bundle.as_ref()?;
        let running = workspace.connectors.get(name)?.running.as_ref()?;
        let route = router::route_ingress(bundle, &running.definition, event);
        Some(route.map_err(|problem| EventRefused {
            ignored: Some(match problem {
                RoutingError::NoRule { .. } => IgnoreReason::NoRule,
                RoutingError::NoKey { .. }
                | RoutingError::BadKey { .. }
                | RoutingError::NoEntryAgent
                | RoutingError::NoAgent { .. } => IgnoreReason::Unroutable,
            }),
            ..EventRefused::new(RefusalCode::Unroutable, problem.to_string())
        }))
    }

    /// Counts an event that a connection passed over.
    pub(crate) fn on_event_ignored(
        &mut self,
        id: &WorkspaceId,
        name: &ConnectionName,
        reason: IgnoreReason,
    ) {
        let Some(connector) = self.connector_mut(id, name) else {
            return;
        };
        let count = connector.ignored.entry(reason).or_default();
        *count = count.saturating_add(1);
        self.count_ignored(id, name, reason);
    }

    /// Start configuration of a connection's process.
    fn running_connection(
        &self,
        id: &WorkspaceId,
        name: &ConnectionName,
    ) -> Option<&ConnectionDefinition> {
        let connector = self.workspaces.get(id)?.connectors.get(name)?;
        Some(&connector.running.as_ref()?.definition)
    }

    /// Header of an event. It is rendered once and stored with the event, so a repeated turn sends
    /// the same text, even under a changed configuration.
    fn header_of(
        &self,
        id: &WorkspaceId,
        name: &ConnectionName,
        event: &ConnectorEvent,
    ) -> Option<String> {
        let template = self.running_connection(id, name)?.header.as_ref()?;
        Some(template.render(name.as_str(), &event.name, &event.properties))
    }

    fn keeps_payload(&self, id: &WorkspaceId, name: &ConnectionName) -> bool {
        self.running_connection(id, name)
            .is_some_and(|connection| connection.keeps_payload)
    }

    /// Handles an event from a connector.
    pub(crate) fn on_connector_event(
        &mut self,
        id: &WorkspaceId,
        name: &ConnectionName,
        process: ProcessId,
        request_id: Option<u64>,
        trace: Option<TraceContext>,
        event: ConnectorEvent,
    ) {
        let route = match self.route_of(id, name, &event) {
            Some(Ok(route)) => route,
            Some(Err(refusal)) => {
                if let Some(reason) = refusal.ignored {
                    self.on_event_ignored(id, name, reason);
                }
                return self.refuse_connector(process, request_id, refusal);
            }
            None => return,
        };
        let said = event
            .id
            .clone()
            .unwrap_or_else(|| EventId::from(self.cx.uuid()));
        let event_id = match event_id_within(name, &said) {
            Ok(event_id) => event_id,
            Err(error) => {
                let (code, message) = (RefusalCode::Invalid, error.to_string());
                return self.refuse_connector(
                    process,
                    request_id,
                    EventRefused::new(code, message),
                );
            }
        };
        let new_trace = TraceContext::root(
            TraceId::from_uuid(self.cx.uuid()),
            SpanId::from_uuid(self.cx.uuid()),
        );
        let trace = trace.unwrap_or(new_trace);
        let header = self.header_of(id, name, &event);
        let mut metadata = event.metadata;
        if !self.keeps_payload(id, name) {
            metadata.retain(|name, _| name != PAYLOAD && name != PAYLOAD_BYTES);
        }
        let agent_event = AgentEvent {
            id: event_id,
            kind: event.name,
            created_at: self.cx.now().wall,
            trace_id: Some(trace.trace_id),
            parent_span_id: Some(trace.span_id),
            input: Some(event.input),
            header,
            properties: kept_properties(event.properties),
            instance_key: Some(route.instance_key.clone()),
            source: EventSource::Connector { name: name.clone() },
            auth: event.auth,
            reply_to: None,
            chain: None,
            metadata,
        };
        let reply = EventOrigin::Connector {
            process,
            request_id,
            said,
        };
        let arrival = Arrival {
            connection: name.clone(),
            route,
            event: agent_event,
            reply,
        };
        self.arrive(id, arrival);
    }

    /// The path on which a connection receives redirects from an authorization server, if any.
    pub(crate) fn callback_path_of(
        &self,
        id: &WorkspaceId,
        name: &ConnectionName,
    ) -> Option<String> {
        let connection = self.bundle(id)?.connections.get(name)?;
        callback_path(connection).map(str::to_owned)
    }

    /// Sends the result of a callback to the connection. The HTTP client receives nothing else.
    pub(crate) fn answer_callback(
        &mut self,
        process: ProcessId,
        request_id: Option<u64>,
        came: RedirectOutcome,
    ) {
        let (code, message) = match came {
            RedirectOutcome::Taken => {
                let accepted = EventAccepted {
                    event_id: EventId::from(self.cx.uuid()),
                    duplicate: false,
                    instance_key: None,
                };
                let accepted = ToConnector::EventAccepted(accepted);
                return self.answer_connector(process, request_id, accepted);
            }
            RedirectOutcome::EndsNone => (RefusalCode::Invalid, "it ends no login"),
            RedirectOutcome::TooEarly => (
                RefusalCode::Unavailable,
                "the logins are not loaded yet; reload the page",
            ),
        };
        self.refuse_connector(process, request_id, EventRefused::new(code, message));
    }

    pub(super) fn refuse_connector(
        &mut self,
        process: ProcessId,
        request_id: Option<u64>,
        refused: EventRefused,
    ) {
        self.answer_connector(process, request_id, ToConnector::EventRefused(refused));
    }

    pub(crate) fn answer_connector(
        &mut self,
        process: ProcessId,
        request_id: Option<u64>,
        message: ToConnector,
    ) {
        let to = match self.owners.get(&process) {
            Some(ProcessOwner::Connector(_, name)) => Address::Connector { name: name.clone() },
            Some(ProcessOwner::Model(_, name)) => Address::Model { name: name.clone() },
            Some(ProcessOwner::Agent(_) | ProcessOwner::Task(..)) | None => return,
        };
        let head = EnvelopeHeader::new(Address::Orchestrator, to).answering(request_id);
        self.cx.emit(CoreEffect::Send {
            process,
            head,
            message: Box::new(message.into()),
        });
    }

    /// Resets the crash count after a successful call.
    pub(crate) fn provider_worked(&mut self, process: ProcessId) {
        self.connector_worked(process);
        self.model_worked(process);
    }

    /// Resets the crash count after an accepted event.
    pub(super) fn connector_worked(&mut self, process: ProcessId) {
        if let Some(ProcessOwner::Connector(id, name)) = self.owners.get(&process).cloned()
            && let Some(connector) = self.connector_mut(&id, &name)
        {
            connector.slot.crashes = 0;
        }
    }

    /// Resets the crash count of a connector that ran longer than the maximum back-off, because it
    /// has no turns.
    pub(crate) fn forgive_if_long_up(&mut self, id: &WorkspaceId, name: &ConnectionName) {
        let now = self.cx.now();
        if let Some(connector) = self.connector_mut(id, name)
            && connector.slot.uptime_ms(now) >= BACK_OFF_MAX_MS
        {
            connector.slot.crashes = 0;
        }
    }

    /// Asks a connector's process to finish its work and exit.
    pub(super) fn drain_connector(
        &mut self,
        id: &WorkspaceId,
        name: &ConnectionName,
        reason: &str,
    ) {
        let grace_ms = self.grace_left_ms(id);
        let owner = ProcessOwner::Connector(id.clone(), name.clone());
        self.drain(&owner, Some(grace_ms), reason);
    }
}
