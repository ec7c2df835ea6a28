//! Agents' own configuration: the definition a process starts with, the activation of revisions,
//! and the failures counted against a revision (`BUNDLE-7`).
//!
//! A revision becomes active between two steps by replacing the agent's process. At that point no
//! tool runs, and everything the turn recorded is durable or being written. A process therefore
//! uses one revision for its whole life, whatever changes: prompt, tools, or the model. The
//! revision of a process is durable before the process receives it.

use std::path::PathBuf;

use goondan_protocol::agents::{AgentAnswer, AgentAsk, AgentQuestion};
use goondan_protocol::control::{ControlError, ErrorCode};
use goondan_protocol::definition::AgentDefinition;
use goondan_protocol::event::TurnOutcome;
use goondan_protocol::ids::{ChangesetId, InstanceKey, InstanceRef};
use goondan_protocol::lifecycle::LifecycleEvent;
use goondan_protocol::observe::RuntimeEventKind;
use goondan_store::file_names::instance_dir_name;
use serde_json::Value;

use super::agent_replies::pending_replies::Requester;
use super::bundle_queue::BundleRequester;
use super::turn::CANCELLED;
use super::{Workspace, authority};
use crate::bus::context::Cx;
use crate::exchange::{
    BundleAction, BundleCall, BundleChange, BundleResult, BundleStanding, BundleWork, ConfigOutcome,
};
use crate::refusals::{AgentRequestError, no_workspace};
use crate::{CoreEffect, Facts, LogEvent, ProcessId, RequestToken};

/// Name of a bundle's directory within its conversation's directory.
const SWARM_BUNDLE: &str = "swarm-bundle";
/// Name of the directory of its changesets.
const CHANGESETS: &str = "changesets";

/// Failure codes that do not count against the agent's configuration.
const NEUTRAL: &[&str] = &[
    CANCELLED,
    "E_BUDGET",
    "E_MODEL_RATE_LIMITED",
    "E_MODEL_OVERLOADED",
    "E_MODEL_UNAVAILABLE",
    "E_MODEL_TIMEOUT",
    "E_MODEL_INTERRUPTED",
];

/// An instance's own configuration, on top of the project's.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    arming: ConfigLookup,
    pub(super) standing: BundleStanding,
}

/// State of the lookup of the next process's definition.
#[derive(Debug, Default)]
enum ConfigLookup {
    #[default]
    Unknown,
    Asked,
    /// Found; `None` means the project's definition. Used once.
    Known(Option<Box<AgentDefinition>>),
}

impl Overlay {
    /// Drops a definition that was looked up under an earlier configuration.
    pub(super) fn disarm(&mut self) {
        if let ConfigLookup::Known(_) = self.arming {
            self.arming = ConfigLookup::Unknown;
        }
    }
}

fn outcome_of(outcome: &TurnOutcome) -> ConfigOutcome {
    match outcome {
        TurnOutcome::Completed { .. } => ConfigOutcome::Completed,
        TurnOutcome::Failed { code, .. } if NEUTRAL.contains(&code.as_str()) => {
            ConfigOutcome::Neutral
        }
        TurnOutcome::Failed { code, message } => {
            ConfigOutcome::Failed(format!("turn failed: {code}: {message}"))
        }
    }
}

/// The id of a tool call, used as the name of its changeset.
fn call_id(ask: &AgentAsk) -> Result<ChangesetId, AgentRequestError> {
    let invalid = |error: &dyn std::fmt::Display| {
        AgentRequestError::new("E_INVALID_REQUEST", error.to_string())
    };
    let id = ask.event_id().map_err(|error| invalid(&error))?;
    ChangesetId::new(id.as_str().replace(':', "-")).map_err(|error| invalid(&error))
}

impl Workspace {
    /// True if its agents may change their configuration.
    fn has_bundles(&self) -> bool {
        let bundle = self.bundle.as_ref();
        bundle.is_some_and(|bundle| bundle.changesets.is_some())
    }

    /// True if the definition for the next process of an instance is known. If not, it is
    /// requested, and the instance is advanced when it arrives.
    pub(super) fn is_armed(&mut self, cx: &mut Cx, at: &InstanceRef) -> bool {
        let Some(bundle) = self.bundle.as_ref().filter(|_| self.has_bundles()) else {
            return true;
        };
        let digest = bundle.digest.clone();
        let Some(entry) = self.conversations.get_mut(&at.instance_key) else {
            return true;
        };
        match entry.overlay().arming {
            ConfigLookup::Known(_) => true,
            ConfigLookup::Asked => false,
            ConfigLookup::Unknown => {
                entry.overlay_mut().arming = ConfigLookup::Asked;
                let definition = bundle.agents.get(entry.agent());
                let is_author = definition.is_some_and(authority::is_author);
                let action = BundleAction::Arm { is_author };
                self.line_up(cx, at, BundleRequester::Start(digest), action);
                false
            }
        }
    }

    /// Takes the definition for the next process of an instance; `None` for the project's
    /// definition.
    pub(super) fn take_definition(&mut self, key: &InstanceKey) -> Option<Box<AgentDefinition>> {
        let has_bundles = self.has_bundles();
        let entry = self.conversations.get_mut(key)?;
        match std::mem::take(&mut entry.overlay_mut().arming) {
            ConfigLookup::Known(definition) => definition.filter(|_| has_bundles),
            ConfigLookup::Unknown | ConfigLookup::Asked => None,
        }
    }

    /// Directory of an instance's working copies of changesets; `None` for an agent that cannot
    /// create any.
    pub(super) fn changesets_dir_of(&self, facts: &Facts, key: &InstanceKey) -> Option<PathBuf> {
        let entry = self.conversations.get(key)?;
        if !authority::is_author(entry.definition()?) || !self.has_bundles() {
            return None;
        }
        let instances = facts.layout.instances(&self.record.workspace_id);
        let dir = instances.join(instance_dir_name(key));
        Some(dir.join(SWARM_BUNDLE).join(CHANGESETS))
    }

    /// Handles the end of a step. If another revision must become active, the process is replaced
    /// here.
    pub(super) fn on_step_over(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        process: ProcessId,
        kind: RuntimeEventKind,
    ) {
        let Some(entry) = self.conversations.get_mut(&at.instance_key) else {
            return;
        };
        if kind != RuntimeEventKind::StepCompleted
            || !entry.overlay().standing.is_pending
            || entry.slot().ready() != Some(process)
        {
            return;
        }
        let event_id = entry.turn().map(|turn| turn.context.event_id.clone());
        let Some(event_id) = event_id else {
            return;
        };
        // Messages of this process about the next step are ignored, because the next process
        // executes it.
        entry.end_work_on(&event_id);
        entry.kill(cx, process, true);
    }

    /// Counts a finished turn for or against the revision it ended with.
    pub(super) fn note_turn(&mut self, cx: &mut Cx, at: &InstanceRef, outcome: &TurnOutcome) {
        self.note(cx, at, outcome_of(outcome));
    }

    /// Counts a crash against the revision of the process.
    pub(super) fn note_crash(&mut self, cx: &mut Cx, at: &InstanceRef, how: &str) {
        self.note(
            cx,
            at,
            ConfigOutcome::Failed(format!("its process crashed: {how}")),
        );
    }

    fn note(&mut self, cx: &mut Cx, at: &InstanceRef, outcome: ConfigOutcome) {
        let entry = self.conversations.get_mut(&at.instance_key);
        if entry.is_some_and(|entry| entry.overlay().standing.is_on_probation) {
            self.line_up(cx, at, BundleRequester::Nobody, BundleAction::Note(outcome));
        }
    }

    /// Handles an agent's request about its own configuration.
    pub(super) fn ask_bundle(&mut self, cx: &mut Cx, requester: Requester, ask: AgentAsk) {
        let call = call_id(&ask);
        let AgentQuestion::Bundle { ask } = ask.question else {
            return;
        };
        let at = requester.at.clone();
        match call.and_then(|call| cx.bundles().check_room(&at).map(|()| call)) {
            Ok(call) => {
                let action = BundleAction::Ask { ask, call };
                self.line_up(cx, &at, BundleRequester::Agent(requester), action);
            }
            Err(refused) => self.answer_agent(cx, &requester, refused.into()),
        }
    }

    /// Handles a client's request about a conversation's configuration.
    pub(crate) fn serve_bundle(
        &self,
        cx: &mut Cx,
        token: RequestToken,
        instance_key: &InstanceKey,
        call: BundleCall,
    ) -> Result<(), ControlError> {
        let at = self.conversation_ref(instance_key);
        cx.bundles().check_room(&at).map_err(|refused| {
            let error = ControlError::new(ErrorCode::Overloaded, refused.message);
            error.suggest("try again later")
        })?;
        let action = BundleAction::Serve(call);
        self.line_up(cx, &at, BundleRequester::Client(token), action);
        Ok(())
    }

    fn line_up(&self, cx: &mut Cx, at: &InstanceRef, asker: BundleRequester, action: BundleAction) {
        cx.bundles_mut().add(at, asker, action);
        self.begin_bundle_work(cx, at);
    }

    /// Starts the first queued operation, unless it is in progress.
    fn begin_bundle_work(&self, cx: &mut Cx, at: &InstanceRef) {
        let Some(action) = cx.bundles_mut().begin_next(at) else {
            return;
        };
        let is_as_read = self.problem.is_none() && !self.is_last_known_good;
        let sources = self.may_be_kept && is_as_read;
        let entry = self.conversations.get(&at.instance_key);
        let work = BundleWork {
            instance: at.clone(),
            agent: entry.map(|entry| entry.agent().clone()),
            project_root: self.record.project_root.clone(),
            package: self.record.package.clone(),
            env_files: self.record.env_files.clone(),
            swarm: self.record.swarm.clone(),
            sources: sources.then(|| self.sources.clone()),
            policy: self.bundle.as_ref().and_then(|bundle| bundle.changesets),
            at: cx.now().wall,
            action,
        };
        cx.emit(CoreEffect::Bundle(Box::new(work)));
    }

    /// Handles the result of a bundle operation.
    pub(crate) fn on_bundle(&mut self, cx: &mut Cx, done: BundleResult) {
        let BundleResult {
            instance: at,
            answer,
            definition,
            standing,
            happened,
        } = done;
        for happened in happened {
            self.announce(cx, changed(&at, happened), None);
        }
        if let Some(standing) = standing {
            self.on_standing(&at.instance_key, standing);
        }
        match cx.bundles_mut().end(&at) {
            None | Some(BundleRequester::Nobody) => {
                if let Err(error) = answer {
                    let event = LogEvent::error("failed to count the outcome of a turn");
                    self.log(cx, event.of(&at).with("error", error.message));
                }
            }
            Some(BundleRequester::Start(digest)) => {
                self.on_told_to_be(cx, &at, &digest, answer.map(|_| definition));
            }
            Some(BundleRequester::Client(token)) => cx.emit(CoreEffect::Respond {
                token,
                result: answer,
            }),
            Some(BundleRequester::Agent(requester)) => {
                self.answer_agent(cx, &requester, to_agent_answer(answer));
            }
        }
        self.begin_bundle_work(cx, &at);
        self.advance(cx, &at);
    }

    /// Updates the bundle state of an instance.
    fn on_standing(&mut self, key: &InstanceKey, standing: BundleStanding) {
        match &standing.problem {
            Some(problem) => {
                let line = problem.lines().next().unwrap_or_default().to_owned();
                self.bundle_problems.insert(key.clone(), line);
            }
            None => drop(self.bundle_problems.remove(key)),
        }
        let Some(entry) = self.conversations.get_mut(key) else {
            return;
        };
        if standing.is_pending && matches!(entry.overlay().arming, ConfigLookup::Known(_)) {
            entry.overlay_mut().arming = ConfigLookup::Unknown;
        }
        entry.overlay_mut().standing = standing;
    }

    /// Handles the result of the lookup of the next process's definition.
    fn on_told_to_be(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        digest: &String,
        told: Result<Option<Box<AgentDefinition>>, ControlError>,
    ) {
        let is_current = self.bundle.as_ref().map(|it| &it.digest) == Some(digest);
        let definition = told.unwrap_or_else(|error| {
            let message = "configuration of a conversation is invalid; using the project's";
            let event = LogEvent::error(message).of(at);
            self.log(cx, event.with("error", error.message));
            None
        });
        if let Some(entry) = self.conversations.get_mut(&at.instance_key) {
            entry.overlay_mut().arming = if is_current {
                ConfigLookup::Known(definition)
            } else {
                ConfigLookup::Unknown
            };
        }
    }
}

impl Cx {
    /// Handles the result of a bundle operation whose workspace was closed in the meantime.
    pub(crate) fn abandon_bundle_work(&mut self, done: BundleResult) {
        let at = done.instance;
        for happened in done.happened {
            self.announce(&at.workspace_id, changed(&at, happened), None, None);
        }
        if let Some(BundleRequester::Client(token)) = self.bundles_mut().end(&at) {
            let result = done.answer;
            self.emit(CoreEffect::Respond { token, result });
        }
        for token in self.bundles_mut().clear(&at) {
            self.respond_error(token, no_workspace(&at.workspace_id));
        }
    }
}

fn changed(at: &InstanceRef, happened: BundleChange) -> LifecycleEvent {
    LifecycleEvent::BundleChanged {
        instance_key: at.instance_key.clone(),
        what: happened.what.to_owned(),
        changeset_id: happened.changeset_id,
        revision: happened.revision,
        detail: happened.detail,
    }
}

/// Converts the result for an agent.
fn to_agent_answer(answer: Result<Value, ControlError>) -> AgentAnswer {
    match answer {
        Ok(value) => serde_json::from_value(value).map_or_else(
            |error| AgentRequestError::new("E_FAILED", error.to_string()).into(),
            |told| AgentAnswer::Bundle { told },
        ),
        Err(error) => AgentRequestError::new(code_of(error.code), error.message).into(),
    }
}

fn code_of(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::InvalidRequest => "E_INVALID_REQUEST",
        _ => "E_FAILED",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundle_7_rate_limits_and_cancels_do_not_judge_a_revision() {
        let failed = |code: &str| {
            outcome_of(&TurnOutcome::Failed {
                code: code.to_owned(),
                message: "m".to_owned(),
            })
        };
        assert_eq!(failed("E_MODEL_RATE_LIMITED"), ConfigOutcome::Neutral);
        assert_eq!(failed(CANCELLED), ConfigOutcome::Neutral);
        assert_eq!(
            failed("E_LOOP"),
            ConfigOutcome::Failed("turn failed: E_LOOP: m".to_owned())
        );
        let reply = String::new();
        assert_eq!(
            outcome_of(&TurnOutcome::Completed { reply }),
            ConfigOutcome::Completed
        );
    }
}
