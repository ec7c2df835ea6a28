//! Connector processes: one for each connection, always running (`SUP-3`).

use std::path::PathBuf;

use goondan_config::{ConnectionDefinition, ProjectConfig};
use goondan_oauth::RedirectOutcome;
use goondan_protocol::JsonObject;
use goondan_protocol::call::{CallOutcome, CallResult, CallTarget};
use goondan_protocol::control::Readiness;
use goondan_protocol::definition::{ConnectorAssignment, ConnectorProgram};
use goondan_protocol::egress::EgressCaller;
use goondan_protocol::event::{AgentEvent, ConnectorEvent, EventSource, PAYLOAD, PAYLOAD_BYTES};
use goondan_protocol::export::{ExportedEvent, OTLP};
use goondan_protocol::ids::{ConnectionName, EventId, WorkspaceId};
use goondan_protocol::ignored_messages::{IgnoreReason, IgnoredCounts};
use goondan_protocol::images;
use goondan_protocol::ipc::{
    Assignment, EventAccepted, EventRefused, Quiesce, RefusalCode, Status, ToConnector,
};
use goondan_protocol::lifecycle::{LifecycleEvent, Worker};
use goondan_protocol::limits::MAX_INPUT_BYTES;
use goondan_protocol::metrics::{Label, Labels, METRICS, Metric, Micros};
use goondan_protocol::namespace::event_id_within;
use goondan_protocol::oauth::{CALLBACK_SETTING, OAuthNeed};
use goondan_protocol::package_runner::PackageCommand;
use goondan_protocol::sandbox::{Level, Network};
use goondan_protocol::trace::{SpanId, TraceContext, TraceId};
use serde_json::Value;

use super::agents::CONFIGURATION_CHANGED;
use super::availability::{Availability, availability_of, not_ready};
use super::changes::RunningConnector;
use super::chat_decisions::ShownDecisions;
use super::collectors::ExportQueue;
use super::connection_state::StateQueue;
use super::event_queue::EventOrigin;
use super::legacy_keys::{Arrival, FormerKeys};
use super::replies::AwaitedReplies;
use super::slot::Slot;
use super::starts::PAUSED;
use super::tokens::TokenStore;
use super::{ProcessOwner, Workspace, health, tokens};
use crate::bus::context::Cx;
use crate::exchange::{ChildRequest, StateResult, StateWork};
use crate::limits::{BACK_OFF_MAX_MS, KEPT_PROPERTIES_MAX, KEPT_PROPERTY_BYTES_MAX};
use crate::router::{RoutedPart, RoutingError};
use crate::{ClockTime, Facts, ProcessId, router};

/// A connection and its process.
///
/// The process runs while the connection is configured. After that, it runs while a turn in
/// progress may call it, and is quiesced: it accepts nothing new from outside. State requests,
/// replies, approvals and exports are bounded, and end with the process, because the next process
/// requests them again.
#[derive(Debug)]
pub(crate) struct Connector {
    id: WorkspaceId,
    name: ConnectionName,
    slot: Slot,
    /// The configured definition; `None` if the connection was removed from the configuration.
    wanted: Option<ConnectionDefinition>,
    /// Start configuration of the current or the last process.
    running: Option<RunningConnector>,
    /// The process that was requested to accept no new input from outside.
    quiesced: Option<ProcessId>,
    /// Readiness reported by its process.
    readiness: Readiness,
    /// Events that were passed over since the daemon started, by reason.
    ignored: IgnoredCounts,
    /// Operations on its persistent state.
    state: StateQueue,
    /// Ownership of conversations with legacy keys.
    former_keys: FormerKeys,
    /// Replies that its process waits for.
    replies: AwaitedReplies,
    /// Pending approvals that its process shows.
    showing: ShownDecisions,
    /// Export queue, for a collector connection.
    collecting: ExportQueue,
}

impl Connector {
    pub(super) fn new(id: &WorkspaceId, wanted: ConnectionDefinition) -> Self {
        Self {
            id: id.clone(),
            name: wanted.name.clone(),
            slot: Slot::default(),
            wanted: Some(wanted),
            running: None,
            quiesced: None,
            readiness: Readiness::Starting,
            ignored: IgnoredCounts::new(),
            state: StateQueue::default(),
            former_keys: FormerKeys::default(),
            replies: AwaitedReplies::default(),
            showing: ShownDecisions::default(),
            collecting: ExportQueue::default(),
        }
    }

    pub(super) fn slot(&self) -> &Slot {
        &self.slot
    }

    pub(super) fn slot_mut(&mut self) -> &mut Slot {
        &mut self.slot
    }

    pub(super) fn readiness(&self) -> Readiness {
        self.readiness
    }

    pub(super) fn ignored(&self) -> &IgnoredCounts {
        &self.ignored
    }

    /// The configured definition; `None` if the connection was removed from the configuration.
    pub(super) fn wanted(&self) -> Option<&ConnectionDefinition> {
        self.wanted.as_ref()
    }

    /// Start configuration of the current or the last process.
    pub(super) fn running(&self) -> Option<&RunningConnector> {
        self.running.as_ref()
    }

    pub(super) fn former_keys(&mut self) -> &mut FormerKeys {
        &mut self.former_keys
    }

    pub(super) fn replies(&mut self) -> &mut AwaitedReplies {
        &mut self.replies
    }

    pub(super) fn showing(&self) -> &ShownDecisions {
        &self.showing
    }

    pub(super) fn showing_mut(&mut self) -> &mut ShownDecisions {
        &mut self.showing
    }

    fn owner(&self) -> ProcessOwner {
        ProcessOwner::Connector(self.id.clone(), self.name.clone())
    }

    /// True if the connection exports traces.
    pub(super) fn is_exporter(&self) -> bool {
        let wanted = self.wanted.as_ref();
        wanted.is_some_and(|wanted| wanted.entry.is_none() && wanted.connector.as_str() == OTLP)
    }

    /// True if the connection was started as one that serves metrics.
    pub(crate) fn may_read_metrics(&self) -> bool {
        self.running.as_ref().is_some_and(|running| {
            let definition = &running.definition;
            let kind = definition.connector.as_str();
            definition.entry.is_none() && [METRICS, OTLP].contains(&kind)
        })
    }
}

/// Current purpose of a connection's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionPurpose {
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

/// Checks an event before its route is determined.
fn check_event(event: &ConnectorEvent) -> Result<(), EventRefused> {
    let invalid = |message| EventRefused::new(RefusalCode::Invalid, message);
    if event.input.len() > MAX_INPUT_BYTES {
        let message = format!("the input has more than {MAX_INPUT_BYTES} bytes");
        return Err(invalid(message));
    }
    images::of_metadata(&event.metadata).map_err(|problem| invalid(problem.to_string()))?;
    Ok(())
}

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

/// Start and end of the process.
impl Connector {
    /// Applies a valid configuration; `None` if the configuration was withdrawn.
    pub(super) fn on_configuration(&mut self, bundle: Option<&ProjectConfig>) {
        let wanted = bundle.and_then(|bundle| bundle.connections.get(&self.name));
        self.wanted = wanted.cloned();
        if let (Some(running), Some(bundle)) = (&mut self.running, bundle) {
            running.compare(bundle);
        }
    }

    pub(crate) fn on_status(&mut self, cx: &mut Cx, status: Status) {
        self.readiness = health::readiness_of(&status);
        self.slot.detail = Some(status.detail.clone());
        self.announce_readiness(cx, status.ready, status.detail);
    }

    fn announce_readiness(&self, cx: &mut Cx, ready: bool, detail: String) {
        let event = LifecycleEvent::ReadinessChanged {
            worker: Worker::Connector {
                connection: self.name.clone(),
            },
            ready,
            detail,
        };
        cx.announce(&self.id, event, None, None);
    }

    /// Handles a rejected token that cannot be replaced.
    pub(crate) fn stays_declined(&mut self, why: &str) {
        self.readiness = Readiness::NotReady;
        let detail = self.slot.detail.take().unwrap_or_default();
        self.slot.detail = Some(format!("{detail}; {why}"));
    }

    /// True if the running process was started with another configuration or another token.
    pub(super) fn is_outdated(&self, bundle: Option<&ProjectConfig>, tokens: &TokenStore) -> bool {
        let running = self.running.as_ref();
        let running = running.filter(|_| self.slot.up().is_some());
        running.zip(bundle).is_some_and(|(running, bundle)| {
            let needs = tokens::needs_of_connection(&running.definition);
            running.is_outdated(bundle) || tokens.differ(&needs, &running.tokens)
        })
    }

    /// Adjusts a running process to its current purpose.
    pub(super) fn adjust(
        &mut self,
        cx: &mut Cx,
        purpose: ConnectionPurpose,
        is_outdated: bool,
        grace_ms: u64,
    ) {
        let up = self.slot.up().map(|up| up.process);
        let is_quiesced = up.is_some() && self.quiesced == up;
        let is_wanted = self.wanted.is_some();
        let is_outdated = is_wanted && is_outdated;
        match purpose {
            ConnectionPurpose::All if is_quiesced => {
                self.drain(cx, grace_ms, "it must accept events again");
            }
            ConnectionPurpose::All | ConnectionPurpose::Calls if is_outdated => {
                self.drain(cx, grace_ms, CONFIGURATION_CHANGED);
            }
            ConnectionPurpose::Calls if !is_quiesced => {
                let Some(process) = self.slot.ready() else {
                    return;
                };
                self.quiesced = Some(process);
                let quiesce = ToConnector::Quiesce(Quiesce {}).into();
                cx.send_process(process, &self.owner(), None, quiesce);
            }
            ConnectionPurpose::Nothing if is_wanted => {
                self.drain(cx, grace_ms, "no remaining turn can need it");
            }
            ConnectionPurpose::Nothing => self.drain(cx, grace_ms, CONFIGURATION_CHANGED),
            ConnectionPurpose::All | ConnectionPurpose::Calls => {}
        }
    }

    /// Starts the process if it is wanted and may start. False if the connection is no longer
    /// wanted and its process has ended.
    pub(super) fn start(
        &mut self,
        cx: &mut Cx,
        bundle: Option<&ProjectConfig>,
        tokens: &TokenStore,
    ) -> bool {
        if !self.slot.may_start(cx.now()) {
            return true;
        }
        let (Some(definition), Some(bundle)) = (self.wanted.clone(), bundle) else {
            return false;
        };
        if cx.is_paused() {
            self.wait_for(cx, PAUSED.to_owned());
            return true;
        }
        match tokens.for_needs(&tokens::needs_of_connection(&definition)) {
            Ok(tokens) => {
                let limits = definition.limits;
                self.running = Some(RunningConnector::of(definition, tokens, bundle));
                self.readiness = Readiness::Starting;
                let owner = self.owner();
                cx.spawn(&mut self.slot, &owner, None, limits);
            }
            Err(need) => self.wait_for_token(cx, &need),
        }
        true
    }

    /// Delays the start until its token is available.
    fn wait_for_token(&mut self, cx: &mut Cx, need: &OAuthNeed) {
        self.wait_for(cx, tokens::lacks(need));
    }

    /// Delays the start for a reason.
    fn wait_for(&mut self, cx: &mut Cx, why: String) {
        self.readiness = Readiness::NotReady;
        if self.slot.detail.as_ref() != Some(&why) {
            self.slot.detail = Some(why.clone());
            self.announce_readiness(cx, false, why);
        }
    }

    pub(super) fn assignment(&self, facts: &Facts, project_root: PathBuf) -> Option<Assignment> {
        let running = self.running.clone()?;
        // Before tokens are filled in, because a renewed one does not change the command.
        let package_cache = self.package_cache(facts, &running.definition);
        let definition = tokens::connection_with(running.definition, &running.tokens);
        let program = definition.entry.map(|entry| ConnectorProgram {
            project_root: project_root.clone(),
            entry,
        });
        let caller = EgressCaller::Connection(self.name.clone());
        Some(Assignment::Connector(Box::new(ConnectorAssignment {
            workspace_id: self.id.clone(),
            connection: self.name.clone(),
            connector: definition.connector,
            program,
            project_root: Some(project_root),
            package_cache,
            config: definition.config,
            secrets: definition.secrets,
            egress_socket: facts.egress_socket(&self.id, &caller, &definition.sandbox),
            egress: facts.egress_doors(&self.id, definition.egress),
            sandbox: definition.sandbox,
        })))
    }

    /// Directory for the packages that its server may download.
    fn package_cache(&self, facts: &Facts, connection: &ConnectionDefinition) -> Option<PathBuf> {
        let sandbox = &connection.sandbox;
        if sandbox.require == Level::Off || sandbox.network == Network::None {
            return None;
        }
        let command = connection.server_command()?;
        let digest = PackageCommand::of(&command)?.digest();
        Some(facts.layout.package_cache(&self.id, &self.name, &digest))
    }

    /// Availability for calls. `is_over` is true if no remaining work can need it.
    pub(super) fn availability(&self, now: ClockTime, is_over: bool) -> Availability {
        let target = CallTarget::Connection {
            name: self.name.clone(),
        };
        let is_ready = self.slot.ready().is_some();
        if is_over && !is_ready {
            return Availability::Not(not_ready(&target, "it is being stopped"));
        }
        match availability_of(&self.slot, self.readiness, now, &target) {
            Availability::Not(error) if is_ready => Availability::Recovering(error),
            found => found,
        }
    }

    /// Resets the crash count after successful work.
    pub(super) fn worked(&mut self) {
        self.slot.crashes = 0;
    }

    /// Before its process is removed: resets the crash count if the process ran longer than the
    /// maximum back-off, because it has no turns.
    pub(super) fn forgive_if_long_up(&mut self, now: ClockTime) {
        if self.slot.uptime_ms(now) >= BACK_OFF_MAX_MS {
            self.slot.crashes = 0;
        }
    }

    /// Handles the exit of its process. Decisions that it showed are dropped, and the batch in
    /// flight counts as lost.
    pub(super) fn on_exited(&mut self, process: ProcessId, how: &str) {
        self.collecting.on_gone(process, how);
        self.showing = ShownDecisions::default();
        self.readiness = Readiness::Starting;
    }

    /// Asks the process to finish its work and exit.
    pub(super) fn drain(&mut self, cx: &mut Cx, grace_ms: u64, reason: &str) {
        let owner = self.owner();
        cx.drain(&mut self.slot, &owner, None, grace_ms, reason);
    }

    /// Resets the crash count on request of a person. True if a process runs.
    pub(super) fn forgive(&mut self) -> bool {
        self.slot.forgive();
        self.slot.up().is_some()
    }
}

/// Requests of the process.
impl Connector {
    /// Queues a read or a write of the connection's state.
    pub(crate) fn on_state_work(&mut self, cx: &mut Cx, request: ChildRequest, work: StateWork) {
        self.state.add(cx, (&self.id, &self.name), request, work);
    }

    pub(crate) fn on_state_done(&mut self, cx: &mut Cx, result: Result<StateResult, String>) {
        self.state.on_done(cx, (&self.id, &self.name), result);
    }

    /// Queues an event of a turn for export.
    pub(super) fn export(&mut self, cx: &mut Cx, event: ExportedEvent) {
        self.collecting.add(event);
        self.export_next(cx);
    }

    /// Sends the next batch, if the connection is ready.
    pub(crate) fn export_next(&mut self, cx: &mut Cx) {
        let is_ready = self.readiness == Readiness::Ready;
        let ready = self.slot.ready().filter(|_| is_ready);
        self.collecting.send(cx, (&self.id, &self.name), ready);
    }

    /// True if this is the result of a batch, in which case the next batch is sent.
    pub(crate) fn on_exported(
        &mut self,
        cx: &mut Cx,
        process: ProcessId,
        result: &CallResult,
    ) -> bool {
        let is_known = self.collecting.on_done(process, result);
        if is_known {
            if let CallOutcome::Ok(_) = result.outcome {
                self.worked();
            }
            self.export_next(cx);
        }
        is_known
    }

    /// Reports the events that were lost since the last report.
    pub(super) fn report_losses(&mut self, cx: &mut Cx) {
        if let Some(event) = self.collecting.losses((&self.id, &self.name)) {
            cx.log(event);
        }
    }

    /// Counts an event that the connection passed over.
    pub(crate) fn on_event_ignored(&mut self, cx: &mut Cx, reason: IgnoreReason) {
        let count = self.ignored.entry(reason).or_default();
        *count = count.saturating_add(1);
        let labels = Labels::none()
            .with(Label::Workspace, self.id.as_str())
            .with(Label::Connection, self.name.as_str())
            .with(Label::Reason, reason.as_str());
        cx.count(Metric::EventsIgnored, labels, Micros::whole(1));
    }

    /// Route of an event and its join, or the reason it has none; `None` if the connection does not run.
    fn route_of(
        &self,
        bundle: Option<&ProjectConfig>,
        event: &ConnectorEvent,
    ) -> Option<Result<(router::Route, Option<RoutedPart>), EventRefused>> {
        let (running, bundle) = self.running.as_ref().zip(bundle)?;
        let route = router::route_ingress(bundle, &running.definition, event);
        let route =
            route.and_then(|route| Ok((route, router::part_of(&running.definition, event)?)));
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

    /// Header of an event. It is rendered once and stored with the event, so a repeated turn sends
    /// the same text, even under a changed configuration.
    fn header_of(&self, event: &ConnectorEvent) -> Option<String> {
        let template = self.running.as_ref()?.definition.header.as_ref()?;
        Some(template.render(self.name.as_str(), &event.name, &event.properties))
    }

    fn keeps_payload(&self) -> bool {
        let running = self.running.as_ref();
        running.is_some_and(|running| running.definition.keeps_payload)
    }

    /// Handles an event from its process. Returns the event with its conversation; `None` if the
    /// event is refused.
    pub(super) fn on_event(
        &mut self,
        cx: &mut Cx,
        bundle: Option<&ProjectConfig>,
        request: ChildRequest,
        trace: Option<TraceContext>,
        event: ConnectorEvent,
    ) -> Option<Arrival> {
        let (route, part) = match self.route_of(bundle, &event)? {
            Ok(route) => route,
            Err(refusal) => {
                if let Some(reason) = refusal.ignored {
                    self.on_event_ignored(cx, reason);
                }
                cx.refuse_connector(request, refusal);
                return None;
            }
        };
        let said = event.id.clone().unwrap_or_else(|| EventId::from(cx.uuid()));
        let event_id = match event_id_within(&self.name, &said) {
            Ok(event_id) => event_id,
            Err(error) => {
                let refused = EventRefused::new(RefusalCode::Invalid, error.to_string());
                cx.refuse_connector(request, refused);
                return None;
            }
        };
        let new_trace =
            TraceContext::root(TraceId::from_uuid(cx.uuid()), SpanId::from_uuid(cx.uuid()));
        let trace = trace.unwrap_or(new_trace);
        let header = self.header_of(&event);
        let mut metadata = event.metadata;
        if !self.keeps_payload() {
            metadata.retain(|name, _| name != PAYLOAD && name != PAYLOAD_BYTES);
        }
        let agent_event = AgentEvent {
            id: event_id,
            kind: event.name,
            created_at: cx.now().wall,
            trace_id: Some(trace.trace_id),
            parent_span_id: Some(trace.span_id),
            input: Some(event.input),
            header,
            properties: kept_properties(event.properties),
            instance_key: Some(route.instance_key.clone()),
            source: EventSource::Connector {
                name: self.name.clone(),
            },
            auth: event.auth,
            reply_to: None,
            chain: None,
            join: part.map(|part| part.accepted(cx.now().wall)),
            metadata,
        };
        let reply = EventOrigin::Connector { request, said };
        Some(Arrival {
            connection: self.name.clone(),
            route,
            event: agent_event,
            reply,
        })
    }
}

impl Cx {
    /// Sends the result of a callback to the connection. The HTTP client receives nothing else.
    pub(crate) fn answer_callback(&mut self, request: ChildRequest, came: RedirectOutcome) {
        let (code, message) = match came {
            RedirectOutcome::Taken => {
                let accepted = EventAccepted {
                    event_id: EventId::from(self.uuid()),
                    duplicate: false,
                    instance_key: None,
                };
                let accepted = ToConnector::EventAccepted(accepted);
                return self.answer_connector(request, accepted);
            }
            RedirectOutcome::EndsNone => (RefusalCode::Invalid, "it ends no login"),
            RedirectOutcome::TooEarly => (
                RefusalCode::Unavailable,
                "the logins are not loaded yet; reload the page",
            ),
        };
        self.refuse_connector(request, EventRefused::new(code, message));
    }
}

impl Workspace {
    /// Handles an event from a connector.
    pub(crate) fn on_connector_event(
        &mut self,
        cx: &mut Cx,
        name: &ConnectionName,
        request: ChildRequest,
        trace: Option<TraceContext>,
        event: ConnectorEvent,
    ) {
        if let Err(refused) = check_event(&event) {
            return cx.refuse_connector(request, refused);
        }
        let bundle = self.bundle.as_ref();
        let connector = self.connectors.get_mut(name);
        let arrival = connector.and_then(|it| it.on_event(cx, bundle, request, trace, event));
        if let Some(arrival) = arrival {
            self.arrive(cx, arrival);
        }
    }
}

impl Workspace {
    /// Starts, quiesces or stops the process of a connection, as needed.
    pub(super) fn advance_connector(&mut self, cx: &mut Cx, name: &ConnectionName) {
        self.advance_showing(cx, name);
        let purpose = self.purpose_of(cx, name);
        let (is_ending, grace_ms) = (self.is_ending(cx), self.grace_left_ms(cx));
        let (bundle, tokens) = (self.bundle.as_ref(), &self.tokens);
        let Some(connector) = self.connectors.get_mut(name) else {
            return;
        };
        if connector.slot.up().is_some() {
            let is_outdated = connector.is_outdated(bundle, tokens);
            connector.adjust(cx, purpose, is_outdated, grace_ms);
        } else if (purpose != ConnectionPurpose::Nothing || !is_ending)
            && !connector.start(cx, bundle, tokens)
        {
            self.connectors.remove(name);
        }
    }

    pub(super) fn advance_connectors(&mut self, cx: &mut Cx) {
        let names: Vec<ConnectionName> = self.connectors.keys().cloned().collect();
        for name in names {
            self.advance_connector(cx, &name);
        }
    }

    /// The path on which a connection receives redirects from an authorization server, if any.
    pub(crate) fn callback_path(&self, name: &ConnectionName) -> Option<String> {
        let connection = self.bundle.as_ref()?.connections.get(name)?;
        callback_path(connection).map(str::to_owned)
    }

    /// Handles the exit of a connection's process. A configured connection starts again.
    pub(super) fn on_connector_exited(
        &mut self,
        cx: &mut Cx,
        name: &ConnectionName,
        process: ProcessId,
        how: &str,
    ) {
        self.forget_replies_of(cx, name, process);
        if let Some(connector) = self.connectors.get_mut(name) {
            connector.on_exited(process, how);
        }
        self.advance_connector(cx, name);
    }

    /// The assignment of a process that is not an agent's.
    pub(super) fn assignment(&mut self, facts: &Facts, owner: &ProcessOwner) -> Option<Assignment> {
        match owner {
            ProcessOwner::Agent(_) => None,
            ProcessOwner::Connector(_, name) => {
                let project_root = self.record.project_root.clone();
                self.connectors.get(name)?.assignment(facts, project_root)
            }
            ProcessOwner::Model(id, name) => self.models.get(name)?.assignment(id),
            ProcessOwner::Task(_, task) => self.runs.assignment(facts, task),
        }
    }

    /// A turn in progress finishes with the connections it began with, as with its models.
    fn purpose_of(&self, cx: &Cx, name: &ConnectionName) -> ConnectionPurpose {
        let connector = self.connectors.get(name);
        let is_needed = if self.is_ending(cx) {
            !self.is_past_work()
        } else if connector.is_some_and(|connector| connector.wanted.is_some()) {
            return ConnectionPurpose::All;
        } else {
            self.is_any_agent_outdated()
        };
        if is_needed {
            ConnectionPurpose::Calls
        } else {
            ConnectionPurpose::Nothing
        }
    }
}
