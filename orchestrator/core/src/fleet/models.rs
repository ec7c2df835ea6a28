//! Connector processes of models: started by the first call, stopped when idle (`SUP-3`).

use std::collections::BTreeMap;

use goondan_protocol::call::{CallOutcome, CallTarget};
use goondan_protocol::control::{ModelFailures, Readiness};
use goondan_protocol::definition::{HostedModel, ModelAssignment};
use goondan_protocol::ids::{ResourceName, WorkspaceId};
use goondan_protocol::ipc::{Assignment, Status};
use goondan_protocol::lifecycle::{LifecycleEvent, Worker};

use super::agents::CONFIGURATION_CHANGED;
use super::availability::{Availability, availability_of, not_ready};
use super::breaker::{Breaker, BreakerScope, OpenBreaker};
use super::model_failures::{FailureChange, LastingFailures};
use super::slot::Slot;
use super::tokens;
use super::{Fleet, ProcessOwner, Workspace, health, model_failures};
use crate::exchange::oauth_calls::Tokens;
use crate::{ClockTime, ProcessId};

#[derive(Debug)]
pub(crate) struct Model {
    pub(super) slot: Slot,
    /// The configured model; `None` if it was removed from the configuration.
    pub(super) wanted: Option<HostedModel>,
    /// Start configuration of the running process.
    pub(super) running: Option<HostedModel>,
    pub(super) tokens: Tokens,
    /// Readiness reported by its process.
    pub(super) readiness: Readiness,
    idle_since_ms: u64,
    pub(super) breaker: Breaker,
    failures: LastingFailures,
}

impl Model {
    pub(crate) fn new(wanted: HostedModel) -> Self {
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

    /// Failures that only a person can end. A changed Model or key may have ended them.
    fn lasting_failures(&self) -> Option<&ModelFailures> {
        let failures = self.failures.shown();
        failures.filter(|_| self.running == self.wanted)
    }

    /// The definition under which its process was last started, else the configured one.
    fn definition(&self) -> Option<&HostedModel> {
        self.running.as_ref().or(self.wanted.as_ref())
    }
}

/// Breaker of the models at one URL.
#[derive(Debug)]
pub(super) struct EndpointBreaker {
    /// One of the models.
    model: HostedModel,
    breaker: Breaker,
}

impl Workspace {
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
    pub(super) fn suspended_models(&self, now: ClockTime) -> BTreeMap<ResourceName, String> {
        let models = self.models.iter();
        let suspended = models.filter_map(|(name, model)| {
            let (scope, open) = self.suspension(model)?;
            Some((name.clone(), open.detail(scope, now.mono_ms)))
        });
        suspended.collect()
    }

    /// The models whose calls fail until a person acts.
    pub(super) fn failing_models(&self) -> BTreeMap<ResourceName, ModelFailures> {
        let models = self.models.iter();
        let failing = models
            .filter_map(|(name, model)| Some((name.clone(), model.lasting_failures()?.clone())));
        failing.collect()
    }

    /// Status of a model's process for people.
    pub(super) fn detail_of_model(&self, model: &Model, now: ClockTime) -> Option<String> {
        match (self.suspension(model), model.lasting_failures()) {
            (Some((scope, open)), _) => Some(open.detail(scope, now.mono_ms)),
            (None, Some(failures)) => Some(model_failures::detail(failures)),
            (None, None) => model.slot.detail.clone(),
        }
    }
}

impl Fleet {
    /// After a turn: the models whose outdated processes may be replaced now. A turn that began
    /// under another configuration kept them running.
    pub(crate) fn outdated_models(
        &self,
        id: &WorkspaceId,
        began_under: Option<&String>,
    ) -> Vec<ResourceName> {
        let Some(workspace) = self.workspaces.get(id) else {
            return Vec::new();
        };
        let digest = workspace.bundle.as_ref().map(|bundle| &bundle.digest);
        if began_under == digest {
            return Vec::new();
        }
        let names = workspace.models.keys();
        let outdated = names.filter(|name| self.is_model_outdated(id, name));
        outdated.cloned().collect()
    }

    pub(crate) fn on_model_status(
        &mut self,
        id: &WorkspaceId,
        name: &ResourceName,
        status: Status,
    ) {
        let Some(model) = self.model_mut(id, name) else {
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
        self.announce(id, event, None);
    }

    pub(super) fn model_mut(
        &mut self,
        id: &WorkspaceId,
        name: &ResourceName,
    ) -> Option<&mut Model> {
        self.workspaces.get_mut(id)?.models.get_mut(name)
    }

    /// A circuit breaker that concerns calls to a model; `None` if it cannot be open.
    pub(crate) fn breaker(
        &self,
        id: &WorkspaceId,
        target: &CallTarget,
        scope: BreakerScope,
    ) -> Option<&Breaker> {
        let CallTarget::Model { name } = target else {
            return None;
        };
        let workspace = self.workspaces.get(id)?;
        workspace.breaker_of(workspace.models.get(name)?, scope)
    }

    pub(crate) fn breaker_mut(
        &mut self,
        id: &WorkspaceId,
        target: &CallTarget,
        scope: BreakerScope,
    ) -> Option<&mut Breaker> {
        let CallTarget::Model { name } = target else {
            return None;
        };
        let workspace = self.workspaces.get_mut(id)?;
        let model = workspace.models.get_mut(name)?;
        if scope == BreakerScope::Model {
            return Some(&mut model.breaker);
        }
        let definition = model.definition()?;
        let endpoints = &mut workspace.endpoints;
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
        id: &WorkspaceId,
        target: &CallTarget,
        outcome: &CallOutcome,
    ) -> Option<FailureChange> {
        let CallTarget::Model { name } = target else {
            return None;
        };
        let at = self.cx.now().wall;
        self.model_mut(id, name)?.failures.note(outcome, at)
    }

    /// True if two targets are models at the same URL.
    pub(crate) fn shares_endpoint(
        &self,
        id: &WorkspaceId,
        target: &CallTarget,
        other: &CallTarget,
    ) -> bool {
        let definition = |target: &CallTarget| {
            let CallTarget::Model { name } = target else {
                return None;
            };
            self.workspaces.get(id)?.models.get(name)?.definition()
        };
        definition(target)
            .zip(definition(other))
            .is_some_and(|(one, other)| one.shares_endpoint_with(other))
    }

    /// Resumes calls to the models that were suspended because of the endpoint of `target`, which
    /// works again.
    pub(crate) fn resume_endpoint(&mut self, id: &WorkspaceId, target: &CallTarget) {
        let Some(workspace) = self.workspaces.get(id) else {
            return;
        };
        let names = workspace.models.iter().filter(|(_, model)| {
            let open = model.breaker.open();
            open.is_some_and(|open| open.error.endpoint_down)
        });
        let names: Vec<ResourceName> = names.map(|(name, _)| name.clone()).collect();
        for name in names {
            let other = CallTarget::Model { name: name.clone() };
            if self.shares_endpoint(id, target, &other)
                && let Some(model) = self.model_mut(id, &name)
            {
                model.breaker.answered();
            }
        }
    }

    /// Drops the breakers of endpoints that no model uses.
    fn forget_endpoints(&mut self, id: &WorkspaceId) {
        let Some(Workspace {
            models, endpoints, ..
        }) = self.workspaces.get_mut(id)
        else {
            return;
        };
        endpoints.retain(|endpoint| {
            let mut definitions = models.values().filter_map(Model::definition);
            definitions.any(|model| model.shares_endpoint_with(&endpoint.model))
        });
    }

    /// Starts a model's process if a call waits for it and it may start. A turn in progress can
    /// need its model even during a shutdown.
    pub(crate) fn pump_model(&mut self, id: &WorkspaceId, name: &ResourceName, is_called: bool) {
        let now = self.cx.now();
        let is_called = is_called && !self.is_past_calls(id);
        let Some(model) = self.model_mut(id, name) else {
            return;
        };
        if !model.slot.may_start(now) {
            return;
        }
        let Some(definition) = model.wanted.clone() else {
            if let Some(workspace) = self.workspaces.get_mut(id) {
                workspace.models.remove(name);
            }
            return;
        };
        if !is_called {
            return;
        }
        let Ok(tokens) = self.tokens_for(id, &tokens::needs_of_model(&definition)) else {
            return;
        };
        let Some(model) = self.model_mut(id, name) else {
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
        if is_changed {
            self.forget_endpoints(id);
        }
        self.spawn(&ProcessOwner::Model(id.clone(), name.clone()), limits);
    }

    /// True if the running process was started with another configuration and the model is still
    /// configured.
    pub(crate) fn is_model_outdated(&self, id: &WorkspaceId, name: &ResourceName) -> bool {
        let workspace = self.workspaces.get(id);
        let model = workspace.and_then(|workspace| workspace.models.get(name));
        model.is_some_and(|model| {
            model.slot.up().is_some()
                && model.wanted.is_some()
                && (model.running != model.wanted || self.model_has_other_tokens(id, name))
        })
    }

    /// True if only the key has changed. The old key may be invalid, so no turn continues with it.
    fn is_new_key(&self, id: &WorkspaceId, name: &ResourceName) -> bool {
        let workspace = self.workspaces.get(id);
        let model = workspace.and_then(|workspace| workspace.models.get(name));
        model.is_some_and(|model| {
            let running = model.running.as_ref();
            let wanted = model.wanted.as_ref();
            running.map(HostedModel::without_credentials)
                == wanted.map(HostedModel::without_credentials)
        })
    }

    pub(super) fn model_assignment(
        &mut self,
        id: &WorkspaceId,
        name: &ResourceName,
    ) -> Option<Assignment> {
        let model = self.model_mut(id, name)?;
        let model = tokens::model_with(model.running.clone()?, &model.tokens);
        Some(Assignment::Model(Box::new(ModelAssignment {
            workspace_id: id.clone(),
            model,
        })))
    }

    pub(super) fn model_availability(&self, id: &WorkspaceId, name: &ResourceName) -> Availability {
        let target = CallTarget::Model { name: name.clone() };
        let workspace = self.workspaces.get(id);
        let Some(model) = workspace.and_then(|workspace| workspace.models.get(name)) else {
            return Availability::Not(not_ready(&target, "it was removed from the configuration"));
        };
        if self.lacking(id, &target).is_some() {
            return Availability::Consent;
        }
        availability_of(&model.slot, model.readiness, self.cx.now(), &target)
    }

    /// Resets the crash count after successful work.
    pub(super) fn model_worked(&mut self, process: ProcessId) {
        if let Some(ProcessOwner::Model(id, name)) = self.owners.get(&process).cloned()
            && let Some(model) = self.model_mut(&id, &name)
        {
            model.slot.crashes = 0;
        }
    }

    /// True if a workspace is stopping and no agent is left to make calls. A reply that could not
    /// be recorded may still be kept for an agent that will not start.
    fn is_past_calls(&self, id: &WorkspaceId) -> bool {
        self.is_ending(id) && self.is_past_work(id)
    }

    /// Stops a model's process that is idle or was removed from the configuration. In a stopping
    /// workspace, stops it once no agent is left to call it.
    pub(crate) fn on_model_time(&mut self, id: &WorkspaceId, name: &ResourceName, is_called: bool) {
        let now_ms = self.cx.now().mono_ms;
        let idle_ms = self.idle_ms(id);
        let is_past_calls = self.is_past_calls(id);
        // A turn in progress finishes on the model it began with.
        let is_another = self.is_model_outdated(id, name);
        let is_gone = self.model_mut(id, name).is_some_and(|m| m.wanted.is_none());
        let is_needed_as_it_is = (is_another || is_gone) && self.is_any_agent_outdated(id)
            || is_another && !self.is_new_key(id, name) && self.is_any_turn_of_before(id);
        let is_outdated = is_another && !is_needed_as_it_is;
        let Some(model) = self.model_mut(id, name) else {
            return;
        };
        if is_called {
            model.idle_since_ms = now_ms;
        }
        let is_idle = now_ms.saturating_sub(model.idle_since_ms) >= idle_ms;
        let is_unwanted = model.wanted.is_none() && !is_called && !is_needed_as_it_is;
        if is_outdated {
            self.drain_model(id, name, CONFIGURATION_CHANGED);
        } else if model.slot.up().is_some() && (is_past_calls || is_idle || is_unwanted) {
            self.drain_model(id, name, "it is not called");
        } else {
            self.pump_model(id, name, is_called);
        }
    }

    /// Asks a model's process to finish its calls and exit.
    pub(super) fn drain_model(&mut self, id: &WorkspaceId, name: &ResourceName, reason: &str) {
        let grace_ms = self.grace_left_ms(id);
        let owner = ProcessOwner::Model(id.clone(), name.clone());
        self.drain(&owner, Some(grace_ms), reason);
    }
}
