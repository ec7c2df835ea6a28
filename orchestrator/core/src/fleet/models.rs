//! Connector processes of models: started by the first call, stopped when idle (`SUP-3`).

use std::collections::BTreeMap;

use goondan_config::ProjectConfig;
use goondan_protocol::call::{CallOutcome, CallTarget};
use goondan_protocol::control::{ModelFailures, Readiness};
use goondan_protocol::definition::{HostedModel, ModelAssignment};
use goondan_protocol::ids::{ResourceName, WorkspaceId};
use goondan_protocol::ipc::{Assignment, Status};
use goondan_protocol::lifecycle::{LifecycleEvent, Worker};
use goondan_protocol::time::Timestamp;

use super::agents::CONFIGURATION_CHANGED;
use super::availability::{Availability, availability_of, not_ready};
use super::breaker::{Breaker, BreakerScope, OpenBreaker};
use super::model_failures::{FailureChange, LastingFailures};
use super::slot::Slot;
use super::tokens::{self, TokenStore};
use super::{ProcessOwner, Workspace, health, model_failures};
use crate::ClockTime;
#[cfg(test)]
use crate::ProcessId;
use crate::bus::context::Cx;
use crate::exchange::oauth_calls::Tokens;

/// A model with its own process.
///
/// The process is started by the first call and stopped when idle. A turn in progress finishes on
/// the model that it began with, unless only the key has changed.
#[derive(Debug)]
pub(crate) struct Model {
    slot: Slot,
    /// The configured model; `None` if it was removed from the configuration.
    wanted: Option<HostedModel>,
    /// Start configuration of the running process.
    running: Option<HostedModel>,
    tokens: Tokens,
    /// Readiness reported by its process.
    readiness: Readiness,
    idle_since_ms: u64,
    breaker: Breaker,
    failures: LastingFailures,
}

impl Model {
    fn new(wanted: HostedModel) -> Self {
        Self {
            slot: Slot::default(),
            wanted: Some(wanted),
            running: None,
            tokens: Tokens::new(),
            readiness: Readiness::Starting,
            idle_since_ms: 0,
            breaker: Breaker::default(),
            failures: LastingFailures::default(),
        }
    }

    pub(super) fn slot(&self) -> &Slot {
        &self.slot
    }

    pub(super) fn readiness(&self) -> Readiness {
        self.readiness
    }

    /// The configured model; `None` if it was removed from the configuration.
    pub(super) fn wanted(&self) -> Option<&HostedModel> {
        self.wanted.as_ref()
    }

    /// Start configuration of the running process.
    pub(super) fn running(&self) -> Option<&HostedModel> {
        self.running.as_ref()
    }

    /// The tokens that its process was started with.
    pub(super) fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// Failures that only a person can end. A changed Model or key may have ended them.
    fn lasting_failures(&self) -> Option<&ModelFailures> {
        let failures = self.failures.shown();
        failures.filter(|_| self.running == self.wanted)
    }

    /// The definition under which its process was last started, else the configured one.
    fn definition(&self) -> Option<&HostedModel> {
        self.running.as_ref().or(self.wanted.as_ref())
    }

    /// Handles the end of its process.
    pub(super) fn on_exited(&mut self) {
        self.readiness = Readiness::Starting;
    }

    /// True if the running process was started with another configuration or another token, and
    /// the model is still configured.
    pub(super) fn is_outdated(&self, tokens: &TokenStore) -> bool {
        self.slot.up().is_some()
            && self.wanted.is_some()
            && (self.running != self.wanted || self.has_other_tokens(tokens))
    }

    fn has_other_tokens(&self, tokens: &TokenStore) -> bool {
        self.running.as_ref().is_some_and(|running| {
            let needs = tokens::needs_of_model(running);
            tokens.differ(&needs, &self.tokens)
        })
    }

    /// True if only the key has changed. The old key may be invalid, so no turn continues with it.
    fn is_new_key(&self) -> bool {
        let running = self.running.as_ref();
        let wanted = self.wanted.as_ref();
        running.map(HostedModel::without_credentials)
            == wanted.map(HostedModel::without_credentials)
    }

    pub(super) fn assignment(&self, id: &WorkspaceId) -> Option<Assignment> {
        let model = tokens::model_with(self.running.clone()?, &self.tokens);
        Some(Assignment::Model(Box::new(ModelAssignment {
            workspace_id: id.clone(),
            model,
        })))
    }
}

/// Breaker of the models at one URL.
#[derive(Debug)]
struct EndpointBreaker {
    /// One of the models.
    model: HostedModel,
    breaker: Breaker,
}

/// The models of a workspace, and the breakers of their endpoints.
///
/// A breaker of an endpoint applies to every model at its URL, and exists while any such model does.
#[derive(Debug, Default)]
pub(crate) struct Models {
    of: BTreeMap<ResourceName, Model>,
    /// Breakers of the endpoints of models that were called.
    endpoints: Vec<EndpointBreaker>,
}

/// Processes of models.
impl Models {
    pub(super) fn get(&self, name: &ResourceName) -> Option<&Model> {
        self.of.get(name)
    }

    pub(super) fn get_mut(&mut self, name: &ResourceName) -> Option<&mut Model> {
        self.of.get_mut(name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&ResourceName, &Model)> + Clone {
        self.of.iter()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &ResourceName> {
        self.of.keys()
    }

    pub(super) fn slot_mut(&mut self, name: &ResourceName) -> Option<&mut Slot> {
        self.of.get_mut(name).map(|model| &mut model.slot)
    }

    /// Applies a valid configuration.
    pub(super) fn on_configuration(&mut self, bundle: &ProjectConfig) {
        for (name, model) in &mut self.of {
            model.wanted = bundle.models.get(name).cloned();
        }
        for (name, definition) in &bundle.models {
            let model = self.of.entry(name.clone());
            model.or_insert_with(|| Model::new(definition.clone()));
        }
    }

    /// Withdraws the configuration.
    pub(super) fn withdraw(&mut self) {
        for model in self.of.values_mut() {
            model.wanted = None;
        }
    }

    /// Resets the crash count of a model after successful work.
    pub(super) fn worked(&mut self, name: &ResourceName) {
        if let Some(model) = self.of.get_mut(name) {
            model.slot.crashes = 0;
        }
    }

    /// Resets the crash counts on request of a person. Returns the number of running processes.
    pub(super) fn forgive(&mut self) -> usize {
        let mut running = 0;
        for model in self.of.values_mut() {
            model.slot.forgive();
            running += usize::from(model.slot.up().is_some());
        }
        running
    }

    pub(super) fn on_status(
        &mut self,
        cx: &mut Cx,
        (id, name): (&WorkspaceId, &ResourceName),
        status: Status,
    ) {
        let Some(model) = self.of.get_mut(name) else {
            return;
        };
        model.readiness = health::readiness_of(&status);
        model.slot.detail = Some(status.detail.clone());
        let event = LifecycleEvent::ReadinessChanged {
            worker: Worker::Model {
                model: name.clone(),
            },
            ready: status.ready,
            detail: status.detail,
        };
        cx.announce(id, event, None, None);
    }

    /// Starts a model's process if a call waits for it and it may start.
    fn advance(
        &mut self,
        cx: &mut Cx,
        (id, name): (&WorkspaceId, &ResourceName),
        tokens: &TokenStore,
        is_called: bool,
    ) {
        let now = cx.now();
        let Some(model) = self.of.get_mut(name) else {
            return;
        };
        if !model.slot.may_start(now) {
            return;
        }
        let Some(definition) = model.wanted.clone() else {
            self.of.remove(name);
            return;
        };
        if !is_called {
            return;
        }
        let Ok(tokens) = tokens.for_needs(&tokens::needs_of_model(&definition)) else {
            return;
        };
        let limits = definition.limits;
        let before = model.running.as_ref();
        let is_changed = before.is_some_and(|before| *before != definition);
        if is_changed {
            model.breaker = Breaker::default();
            model.failures = LastingFailures::default();
        }
        model.running = Some(definition);
        model.tokens = tokens;
        model.readiness = Readiness::Starting;
        model.idle_since_ms = now.mono_ms;
        let owner = ProcessOwner::Model(id.clone(), name.clone());
        cx.spawn(&mut model.slot, &owner, None, limits);
        if is_changed {
            self.forget_endpoints();
        }
    }

    /// Asks a model's process to finish its calls and exit.
    fn drain(
        &mut self,
        cx: &mut Cx,
        (id, name): (&WorkspaceId, &ResourceName),
        grace_ms: u64,
        reason: &str,
    ) {
        if let Some(model) = self.of.get_mut(name) {
            let owner = ProcessOwner::Model(id.clone(), name.clone());
            cx.drain(&mut model.slot, &owner, None, grace_ms, reason);
        }
    }

    fn availability(&self, now: ClockTime, name: &ResourceName, is_lacking: bool) -> Availability {
        let target = CallTarget::Model { name: name.clone() };
        match self.of.get(name) {
            None => Availability::Not(not_ready(&target, "it was removed from the configuration")),
            Some(_) if is_lacking => Availability::Consent,
            Some(model) => availability_of(&model.slot, model.readiness, now, &target),
        }
    }
}

/// Circuit breakers and failures of models.
impl Models {
    /// The breaker of a model, or that of its endpoint.
    fn breaker_of<'a>(&'a self, model: &'a Model, scope: BreakerScope) -> Option<&'a Breaker> {
        match scope {
            BreakerScope::Model => Some(&model.breaker),
            BreakerScope::Endpoint => {
                let definition = model.definition()?;
                let mut endpoints = self.endpoints.iter();
                let at = endpoints.find(|it| it.model.shares_endpoint_with(definition))?;
                Some(&at.breaker)
            }
        }
    }

    /// The open breaker that stops calls to a model, and its scope.
    fn suspension<'a>(&'a self, model: &'a Model) -> Option<(BreakerScope, &'a OpenBreaker)> {
        BreakerScope::ALL
            .into_iter()
            .find_map(|scope| Some((scope, self.breaker_of(model, scope)?.open()?)))
    }

    /// True if a model is not called at present.
    pub(super) fn is_suspended(&self, model: &Model) -> bool {
        self.suspension(model).is_some()
    }

    /// The models that are not called at present, with the reason.
    pub(super) fn suspended(&self, now: ClockTime) -> BTreeMap<ResourceName, String> {
        let suspended = self.of.iter().filter_map(|(name, model)| {
            let (scope, open) = self.suspension(model)?;
            Some((name.clone(), open.detail(scope, now.mono_ms)))
        });
        suspended.collect()
    }

    /// The models whose calls fail until a person acts.
    pub(super) fn failing(&self) -> BTreeMap<ResourceName, ModelFailures> {
        let models = self.of.iter();
        let failing = models
            .filter_map(|(name, model)| Some((name.clone(), model.lasting_failures()?.clone())));
        failing.collect()
    }

    /// Status of a model's process for people.
    pub(super) fn detail_of(&self, model: &Model, now: ClockTime) -> Option<String> {
        match (self.suspension(model), model.lasting_failures()) {
            (Some((scope, open)), _) => Some(open.detail(scope, now.mono_ms)),
            (None, Some(failures)) => Some(model_failures::detail(failures)),
            (None, None) => model.slot.detail.clone(),
        }
    }

    /// A circuit breaker that concerns calls to a model; `None` if it cannot be open.
    pub(crate) fn breaker(&self, target: &CallTarget, scope: BreakerScope) -> Option<&Breaker> {
        self.breaker_of(self.target(target)?, scope)
    }

    pub(crate) fn breaker_mut(
        &mut self,
        target: &CallTarget,
        scope: BreakerScope,
    ) -> Option<&mut Breaker> {
        let CallTarget::Model { name } = target else {
            return None;
        };
        let model = self.of.get_mut(name)?;
        if scope == BreakerScope::Model {
            return Some(&mut model.breaker);
        }
        let definition = model.definition()?;
        let endpoints = &mut self.endpoints;
        let mut places = endpoints.iter();
        let place = places.position(|it| it.model.shares_endpoint_with(definition));
        let place = place.unwrap_or_else(|| {
            endpoints.push(EndpointBreaker {
                model: definition.without_credentials(),
                breaker: Breaker::default(),
            });
            endpoints.len() - 1
        });
        Some(&mut endpoints.get_mut(place)?.breaker)
    }

    /// Notes the outcome of a call to a model in the failures that only a person can end.
    pub(crate) fn note_lasting_failure(
        &mut self,
        target: &CallTarget,
        outcome: &CallOutcome,
        at: Timestamp,
    ) -> Option<FailureChange> {
        let CallTarget::Model { name } = target else {
            return None;
        };
        self.of.get_mut(name)?.failures.note(outcome, at)
    }

    fn target(&self, target: &CallTarget) -> Option<&Model> {
        match target {
            CallTarget::Model { name } => self.of.get(name),
            CallTarget::Connection { .. } => None,
        }
    }

    /// True if two targets are models at the same URL.
    pub(crate) fn share_endpoint(&self, target: &CallTarget, other: &CallTarget) -> bool {
        let definition = |target: &CallTarget| self.target(target)?.definition();
        definition(target)
            .zip(definition(other))
            .is_some_and(|(one, other)| one.shares_endpoint_with(other))
    }

    /// Resumes calls to the models that were suspended because of the endpoint of `target`, which
    /// works again.
    pub(crate) fn resume_endpoint(&mut self, target: &CallTarget) {
        let Some(definition) = self.target(target).and_then(Model::definition).cloned() else {
            return;
        };
        for model in self.of.values_mut() {
            let open = model.breaker.open();
            let other = model.definition();
            if open.is_some_and(|open| open.error.endpoint_down)
                && other.is_some_and(|other| definition.shares_endpoint_with(other))
            {
                model.breaker.answered();
            }
        }
    }

    /// Drops the breakers of endpoints that no model uses.
    fn forget_endpoints(&mut self) {
        let models = &self.of;
        self.endpoints.retain(|endpoint| {
            let mut definitions = models.values().filter_map(Model::definition);
            definitions.any(|model| model.shares_endpoint_with(&endpoint.model))
        });
    }

    /// Adds a model with a ready process.
    #[cfg(test)]
    pub(super) fn add_ready(
        &mut self,
        definition: HostedModel,
        process: ProcessId,
        now: ClockTime,
    ) {
        let name = definition.name.clone();
        let mut model = Model::new(definition);
        model.running.clone_from(&model.wanted);
        model.slot.start(process, now);
        model.slot.greeted();
        model.readiness = Readiness::Ready;
        self.of.insert(name, model);
    }
}

impl Workspace {
    /// After a turn: the models whose outdated processes may be replaced now. A turn that began
    /// under another configuration kept them running.
    pub(crate) fn outdated_models(&self, began_under: Option<&String>) -> Vec<ResourceName> {
        let digest = self.bundle.as_ref().map(|bundle| &bundle.digest);
        if began_under == digest {
            return Vec::new();
        }
        let outdated = self.models.iter();
        let outdated = outdated.filter(|(_, model)| model.is_outdated(&self.tokens));
        outdated.map(|(name, _)| name.clone()).collect()
    }

    pub(crate) fn on_model_status(&mut self, cx: &mut Cx, name: &ResourceName, status: Status) {
        let id = &self.record.workspace_id;
        self.models.on_status(cx, (id, name), status);
    }

    /// Starts a model's process if a call waits for it and it may start. A turn in progress can
    /// need its model even during a shutdown.
    pub(crate) fn advance_model(&mut self, cx: &mut Cx, name: &ResourceName, is_called: bool) {
        let is_called = is_called && !self.is_past_calls(cx);
        let id = &self.record.workspace_id;
        self.models.advance(cx, (id, name), &self.tokens, is_called);
    }

    /// Stops a model's process that is idle or was removed from the configuration. In a stopping
    /// workspace, stops it once no agent is left to call it.
    pub(crate) fn on_model_time(&mut self, cx: &mut Cx, name: &ResourceName, is_called: bool) {
        let now_ms = cx.now().mono_ms;
        let idle_ms = self.lifecycle().idle_ms;
        let is_past_calls = self.is_past_calls(cx);
        let Some(model) = self.models.get(name) else {
            return;
        };
        // A turn in progress finishes on the model it began with.
        let is_another = model.is_outdated(&self.tokens);
        let is_gone = model.wanted.is_none();
        let is_needed_as_it_is = (is_another || is_gone) && self.is_any_agent_outdated()
            || is_another && !model.is_new_key() && self.is_any_turn_of_before();
        let is_outdated = is_another && !is_needed_as_it_is;
        let Some(model) = self.models.get_mut(name) else {
            return;
        };
        if is_called {
            model.idle_since_ms = now_ms;
        }
        let is_idle = now_ms.saturating_sub(model.idle_since_ms) >= idle_ms;
        let is_unwanted = is_gone && !is_called && !is_needed_as_it_is;
        let is_up = model.slot.up().is_some();
        if is_outdated {
            self.drain_model(cx, name, CONFIGURATION_CHANGED);
        } else if is_up && (is_past_calls || is_idle || is_unwanted) {
            self.drain_model(cx, name, "it is not called");
        } else {
            self.advance_model(cx, name, is_called);
        }
    }

    /// Asks a model's process to finish its calls and exit.
    pub(super) fn drain_model(&mut self, cx: &mut Cx, name: &ResourceName, reason: &str) {
        let grace_ms = self.grace_left_ms(cx);
        let id = &self.record.workspace_id;
        self.models.drain(cx, (id, name), grace_ms, reason);
    }

    /// Availability of the process for a call.
    pub(crate) fn availability(&self, cx: &Cx, target: &CallTarget) -> Availability {
        let is_lacking = self.lacking(target).is_some();
        match target {
            CallTarget::Model { name } => self.models.availability(cx.now(), name, is_lacking),
            CallTarget::Connection { name } => match self.connectors.get(name) {
                Some(_) if is_lacking => Availability::Consent,
                Some(connector) => connector.availability(cx.now(), self.is_past_calls(cx)),
                None => {
                    let why = "it was removed from the configuration";
                    Availability::Not(not_ready(target, why))
                }
            },
        }
    }
}
