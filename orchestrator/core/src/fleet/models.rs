//! Connector processes of models: started by the first call, stopped when idle (`SUP-3`).

use goondan_protocol::call::CallTarget;
use goondan_protocol::control::Readiness;
use goondan_protocol::definition::{HostedModel, ModelAssignment};
use goondan_protocol::ids::{ResourceName, WorkspaceId};
use goondan_protocol::ipc::{Assignment, Status};
use goondan_protocol::lifecycle::{LifecycleEvent, Worker};
use goondan_protocol::observe::detail_of;

use super::agents::CONFIGURATION_CHANGED;
use super::availability::{Availability, availability_of, not_ready};
use super::breaker::Breaker;
use super::slot::Slot;
use super::tokens;
use super::{Fleet, ProcessOwner, health};
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
        }
    }

    /// Status of its process for people.
    pub(super) fn detail(&self, now: ClockTime) -> Option<String> {
        let Some(open) = self.breaker.open() else {
            return self.slot.detail.clone();
        };
        let when = match open.probe_ms(true).saturating_sub(now.mono_ms) {
            _ if open.probe().is_some() => "one call is trying it".to_owned(),
            0 => "the next call tries it".to_owned(),
            left_ms => format!("tried again in {} s", left_ms.div_ceil(1_000)),
        };
        let outages = open.outages;
        let reason = detail_of(&open.error.message);
        Some(format!(
            "not called after {outages} failures in a row; {when}; {reason}"
        ))
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

    /// The circuit breaker of a model.
    pub(crate) fn breaker(&self, id: &WorkspaceId, target: &CallTarget) -> Option<&Breaker> {
        let CallTarget::Model { name } = target else {
            return None;
        };
        let workspace = self.workspaces.get(id)?;
        Some(&workspace.models.get(name)?.breaker)
    }

    pub(crate) fn breaker_mut(
        &mut self,
        id: &WorkspaceId,
        target: &CallTarget,
    ) -> Option<&mut Breaker> {
        let CallTarget::Model { name } = target else {
            return None;
        };
        Some(&mut self.model_mut(id, name)?.breaker)
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
        if model
            .running
            .as_ref()
            .is_some_and(|before| *before != definition)
        {
            model.breaker = Breaker::default();
        }
        model.running = Some(definition);
        model.tokens = tokens;
        model.readiness = Readiness::Starting;
        model.idle_since_ms = now.mono_ms;
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
