//! Agents' own configuration: the definition a process starts with, the activation of revisions,
//! and the failures counted against a revision (`BUNDLE-7`).
//!
//! A revision becomes active between two steps by replacing the agent's process. At that point no
//! tool runs, and everything the turn recorded is durable or being written. A process therefore
//! uses one revision for its whole life, even if the prompt, the tools or the model change. The
//! revision of a process is durable before the process receives it.

use std::path::PathBuf;

use goondan_config::ProjectConfig;
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
use super::conversation::Conversation;
use super::turn::CANCELLED;
use super::{Workspace, authority};
use crate::bus::context::Cx;
use crate::bus::queue::{Message, Notice};
use crate::exchange::{
    BundleAction, BundleCall, BundleChange, BundleResult, BundleWork, ConfigOutcome,
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

/// Its own configuration.
impl Conversation {
    /// True if the definition for its next process is known. If not, it is requested, and the
    /// conversation is advanced when it arrives.
    pub(super) fn is_armed(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        bundle: Option<&ProjectConfig>,
    ) -> bool {
        let Some(bundle) = bundle.filter(|bundle| bundle.changesets.is_some()) else {
            return true;
        };
        if self.overlay_mut().begin_lookup() {
            let definition = bundle.agents.get(self.agent());
            let is_author = definition.is_some_and(authority::is_author);
            let asker = BundleRequester::Start(bundle.digest.clone());
            cx.queue_bundle_work(at, asker, BundleAction::Arm { is_author });
        }
        self.overlay().is_known()
    }

    /// Handles the end of a step. If another revision must become active, the process is replaced
    /// here.
    pub(super) fn on_step_over(&mut self, cx: &mut Cx, process: ProcessId, kind: RuntimeEventKind) {
        if kind != RuntimeEventKind::StepCompleted
            || !self.overlay().standing.is_pending
            || self.slot().ready() != Some(process)
        {
            return;
        }
        let event_id = self.turn().map(|turn| turn.context.event_id.clone());
        if let Some(event_id) = event_id {
            // Messages of this process about the next step are ignored, because the next process
            // executes it.
            self.end_work_on(&event_id);
            self.kill(cx, process, true);
        }
    }

    /// Counts a finished turn for or against the revision it ended with.
    pub(super) fn note_turn(&self, cx: &mut Cx, at: &InstanceRef, outcome: &TurnOutcome) {
        self.note(cx, at, outcome_of(outcome));
    }

    /// Counts a crash against the revision of the process.
    pub(super) fn note_crash(&self, cx: &mut Cx, at: &InstanceRef, how: &str) {
        let crash = format!("its process crashed: {how}");
        self.note(cx, at, ConfigOutcome::Failed(crash));
    }

    fn note(&self, cx: &mut Cx, at: &InstanceRef, outcome: ConfigOutcome) {
        if self.overlay().standing.is_on_probation {
            cx.queue_bundle_work(at, BundleRequester::Nobody, BundleAction::Note(outcome));
        }
    }

    /// Handles the result of the lookup of its next process's definition, which
    /// counts only if the configuration has not changed since.
    fn on_told_to_be(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        is_current: bool,
        told: Result<Option<Box<AgentDefinition>>, ControlError>,
    ) {
        let definition = told.unwrap_or_else(|error| {
            let message = "configuration of a conversation is invalid; using the project's";
            let event = LogEvent::error(message);
            self.log(cx, at, event.with("error", error.message));
            None
        });
        match is_current {
            true => self.overlay_mut().found(definition),
            false => self.overlay_mut().not_found(),
        }
    }
}

impl Workspace {
    /// True if its agents may change their configuration.
    pub(super) fn has_bundles(&self) -> bool {
        let bundle = self.bundle.as_ref();
        bundle.is_some_and(|bundle| bundle.changesets.is_some())
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

    /// Starts the first queued operation, unless it is in progress.
    pub(crate) fn begin_bundle_work(&self, cx: &mut Cx, at: &InstanceRef) {
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
        let entry = self.conversations.get_mut(&at.instance_key);
        if let Some(standing) = standing {
            let problem = standing.problem.as_ref();
            let problem = problem.map(|it| it.lines().next().unwrap_or_default().to_owned());
            let key = at.instance_key.clone();
            match problem {
                Some(line) => drop(self.bundle_problems.insert(key, line)),
                None => drop(self.bundle_problems.remove(&key)),
            }
            if let Some(entry) = entry {
                entry.overlay_mut().on_standing(standing);
            }
        }
        match cx.bundles_mut().end(&at) {
            None | Some(BundleRequester::Nobody) => {
                if let Err(error) = answer {
                    let event = LogEvent::error("failed to count the outcome of a turn");
                    self.log(cx, event.of(&at).with("error", error.message));
                }
            }
            Some(BundleRequester::Start(digest)) => {
                let is_current = self.bundle.as_ref().is_some_and(|it| it.digest == digest);
                if let Some(entry) = self.conversations.get_mut(&at.instance_key) {
                    entry.on_told_to_be(cx, &at, is_current, answer.map(|_| definition));
                }
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
}

impl Cx {
    /// Queues an operation on the bundle of a conversation.
    fn queue_bundle_work(
        &mut self,
        at: &InstanceRef,
        asker: BundleRequester,
        action: BundleAction,
    ) {
        self.bundles_mut().add(at, asker, action);
        self.send(Message::Notice(Notice::BundleWork(at.clone())));
    }

    /// Handles an agent's request about its own configuration.
    pub(super) fn ask_bundle(
        &mut self,
        requester: Requester,
        ask: AgentAsk,
    ) -> Result<(), AgentRequestError> {
        let call = call_id(&ask)?;
        if let AgentQuestion::Bundle { ask } = ask.question {
            let at = requester.at.clone();
            self.bundles().check_room(&at)?;
            let action = BundleAction::Ask { ask, call };
            self.queue_bundle_work(&at, BundleRequester::Agent(requester), action);
        }
        Ok(())
    }

    /// Handles a client's request about a conversation's configuration.
    pub(crate) fn serve_bundle(
        &mut self,
        token: RequestToken,
        at: &InstanceRef,
        call: BundleCall,
    ) -> Result<(), ControlError> {
        self.bundles().check_room(at).map_err(|refused| {
            let error = ControlError::new(ErrorCode::Overloaded, refused.message);
            error.suggest("try again later")
        })?;
        let action = BundleAction::Serve(call);
        self.queue_bundle_work(at, BundleRequester::Client(token), action);
        Ok(())
    }

    /// Drops the operations on the bundle of a conversation whose workspace was closed.
    pub(crate) fn drop_bundle_work(&mut self, at: &InstanceRef) {
        for token in self.bundles_mut().clear(at) {
            self.respond_error(token, no_workspace(&at.workspace_id));
        }
    }

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
        self.drop_bundle_work(&at);
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
