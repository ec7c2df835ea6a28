//! Agents' own configuration: the definition a process starts with, the activation of revisions,
//! and the failures counted against a revision (`BUNDLE-7`).
//!
//! A revision becomes active between two steps by replacing the agent's process. At that point no
//! tool runs, and everything the turn recorded is durable or being written. A process therefore
//! uses one revision for its whole life, whatever changes: prompt, tools, or the model. The
//! revision of a process is durable before the process receives it.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;

use goondan_protocol::agents::{AgentAnswer, AgentAsk, AgentQuestion};
use goondan_protocol::control::{ControlError, ErrorCode};
use goondan_protocol::definition::AgentDefinition;
use goondan_protocol::event::TurnOutcome;
use goondan_protocol::ids::{ChangesetId, InstanceKey, InstanceRef, WorkspaceId};
use goondan_protocol::lifecycle::LifecycleEvent;
use goondan_protocol::observe::RuntimeEventKind;
use goondan_store::file_names::instance_dir_name;
use serde_json::Value;

use super::agent_replies::pending_replies::Requester;
use super::turn::CANCELLED;
use super::{Fleet, authority};
use crate::exchange::{
    BundleAction, BundleCall, BundleResult, BundleStanding, BundleWork, ConfigOutcome,
};
use crate::limits::BUNDLE_REQUESTS_MAX;
use crate::refusals::{AgentRequestError, no_workspace};
use crate::{CoreEffect, LogEvent, ProcessId, RequestToken};

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

/// Recipient of the result of a bundle operation.
#[derive(Debug)]
enum BundleRequester {
    Nobody,
    /// The next process of the instance, under the configuration with this digest.
    Start(String),
    Agent(Requester),
    Client(RequestToken),
}

#[derive(Debug)]
struct QueuedBundleAction {
    asker: BundleRequester,
    /// `None` while the operation is in progress.
    action: Option<BundleAction>,
}

/// Queued operations by conversation. The first of each queue is in progress.
#[derive(Debug, Default)]
pub(crate) struct BundleQueues(BTreeMap<InstanceRef, VecDeque<QueuedBundleAction>>);

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

impl Fleet {
    /// True if agents of a workspace may change their configuration.
    fn has_bundles(&self, id: &WorkspaceId) -> bool {
        let bundle = self.bundle(id);
        bundle.is_some_and(|bundle| bundle.changesets.is_some())
    }

    /// True if the definition for the next process of an instance is known. If not, it is
    /// requested, and the instance is advanced when it arrives.
    pub(super) fn is_armed(&mut self, at: &InstanceRef) -> bool {
        if !self.has_bundles(&at.workspace_id) {
            return true;
        }
        let Some(digest) = self
            .bundle(&at.workspace_id)
            .map(|bundle| bundle.digest.clone())
        else {
            return true;
        };
        let Some(entry) = self.conversation_mut(at) else {
            return true;
        };
        match entry.overlay().arming {
            ConfigLookup::Known(_) => true,
            ConfigLookup::Asked => false,
            ConfigLookup::Unknown => {
                entry.overlay_mut().arming = ConfigLookup::Asked;
                let agent = entry.agent().clone();
                let bundle = self.bundle(&at.workspace_id);
                let definition = bundle.and_then(|bundle| bundle.agents.get(&agent));
                let is_author = definition.is_some_and(authority::is_author);
                self.line_up(
                    at,
                    BundleRequester::Start(digest),
                    BundleAction::Arm { is_author },
                );
                false
            }
        }
    }

    /// Takes the definition for the next process of an instance; `None` for the project's
    /// definition.
    pub(super) fn take_definition(&mut self, at: &InstanceRef) -> Option<Box<AgentDefinition>> {
        let has_bundles = self.has_bundles(&at.workspace_id);
        let entry = self.conversation_mut(at)?;
        match std::mem::take(&mut entry.overlay_mut().arming) {
            ConfigLookup::Known(definition) => definition.filter(|_| has_bundles),
            ConfigLookup::Unknown | ConfigLookup::Asked => None,
        }
    }

    /// Directory of an instance's working copies of changesets; `None` for an agent that cannot
    /// create any.
    pub(super) fn changesets_dir_of(&self, at: &InstanceRef) -> Option<PathBuf> {
        let workspace = self.workspaces.get(&at.workspace_id)?;
        let entry = workspace.conversations.get(&at.instance_key)?;
        if !authority::is_author(entry.definition()?) || !self.has_bundles(&at.workspace_id) {
            return None;
        }
        let instances = self.cx.facts().layout.instances(&at.workspace_id);
        let dir = instances.join(instance_dir_name(&at.instance_key));
        Some(dir.join(SWARM_BUNDLE).join(CHANGESETS))
    }

    /// Handles the end of a step. If another revision must become active, the process is replaced
    /// here.
    pub(super) fn on_step_over(
        &mut self,
        at: &InstanceRef,
        process: ProcessId,
        kind: RuntimeEventKind,
    ) {
        let Some(entry) = self.conversation_mut(at) else {
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
        self.kill(process, true);
    }

    /// Counts a finished turn for or against the revision it ended with.
    pub(super) fn note_turn(&mut self, at: &InstanceRef, outcome: &TurnOutcome) {
        self.note(at, outcome_of(outcome));
    }

    /// Counts a crash against the revision of the process.
    pub(super) fn note_crash(&mut self, at: &InstanceRef, how: &str) {
        self.note(
            at,
            ConfigOutcome::Failed(format!("its process crashed: {how}")),
        );
    }

    fn note(&mut self, at: &InstanceRef, outcome: ConfigOutcome) {
        let entry = self.conversation_mut(at);
        if entry.is_some_and(|entry| entry.overlay().standing.is_on_probation) {
            self.line_up(at, BundleRequester::Nobody, BundleAction::Note(outcome));
        }
    }

    /// Handles an agent's request about its own configuration.
    pub(super) fn ask_bundle(&mut self, requester: Requester, ask: AgentAsk) {
        let call = call_id(&ask);
        let AgentQuestion::Bundle { ask } = ask.question else {
            return;
        };
        let at = requester.at.clone();
        match call.and_then(|call| self.check_room(&at).map(|()| call)) {
            Ok(call) => {
                let action = BundleAction::Ask { ask, call };
                self.line_up(&at, BundleRequester::Agent(requester), action);
            }
            Err(refused) => self.answer_agent(&requester, refused.into()),
        }
    }

    /// Handles a client's request about a conversation's configuration.
    pub(crate) fn serve_bundle(
        &mut self,
        token: RequestToken,
        workspace_id: WorkspaceId,
        instance_key: InstanceKey,
        call: BundleCall,
    ) {
        let at = InstanceRef {
            workspace_id,
            instance_key,
        };
        if let Err(error) = self.workspace(&at.workspace_id) {
            return self.cx.respond_error(token, error);
        }
        match self.check_room(&at) {
            Ok(()) => self.line_up(
                &at,
                BundleRequester::Client(token),
                BundleAction::Serve(call),
            ),
            Err(refused) => {
                let error = ControlError::new(ErrorCode::Overloaded, refused.message);
                self.cx
                    .respond_error(token, error.suggest("try again later"));
            }
        }
    }

    /// True while the outcome of the last turn is being counted, because the next turn may use
    /// another revision.
    pub(super) fn is_noting(&self, at: &InstanceRef) -> bool {
        let line = self.bundles.0.get(at);
        line.is_some_and(|line| {
            line.iter()
                .any(|it| matches!(it.asker, BundleRequester::Nobody))
        })
    }

    fn check_room(&self, at: &InstanceRef) -> Result<(), AgentRequestError> {
        let line = self.bundles.0.get(at);
        if line.is_some_and(|line| line.len() >= BUNDLE_REQUESTS_MAX) {
            let message = format!(
                "{BUNDLE_REQUESTS_MAX} requests about this conversation's configuration are already waiting"
            );
            return Err(AgentRequestError::new("E_OVERLOADED", message));
        }
        Ok(())
    }

    fn line_up(&mut self, at: &InstanceRef, asker: BundleRequester, action: BundleAction) {
        let line = self.bundles.0.entry(at.clone()).or_default();
        line.push_back(QueuedBundleAction {
            asker,
            action: Some(action),
        });
        self.begin_bundle_work(at);
    }

    /// Starts the first queued operation, unless it is in progress.
    fn begin_bundle_work(&mut self, at: &InstanceRef) {
        let Some(line) = self.bundles.0.get_mut(at) else {
            return;
        };
        let Some(first) = line.front_mut() else {
            self.bundles.0.remove(at);
            return;
        };
        let Some(action) = first.action.take() else {
            return;
        };
        let wall = self.cx.now().wall;
        let Some(workspace) = self.workspaces.get(&at.workspace_id) else {
            // The workspace was closed in the meantime.
            let waiting = self.bundles.0.remove(at).unwrap_or_default();
            for QueuedBundleAction { asker, .. } in waiting {
                if let BundleRequester::Client(token) = asker {
                    self.cx.respond_error(token, no_workspace(&at.workspace_id));
                }
            }
            return;
        };
        let is_as_read = workspace.problem.is_none() && !workspace.is_last_known_good;
        let sources = workspace.may_be_kept && is_as_read;
        let entry = workspace.conversations.get(&at.instance_key);
        let work = BundleWork {
            instance: at.clone(),
            agent: entry.map(|entry| entry.agent().clone()),
            project_root: workspace.record.project_root.clone(),
            package: workspace.record.package.clone(),
            env_files: workspace.record.env_files.clone(),
            swarm: workspace.record.swarm.clone(),
            sources: sources.then(|| workspace.sources.clone()),
            policy: workspace
                .bundle
                .as_ref()
                .and_then(|bundle| bundle.changesets),
            at: wall,
            action,
        };
        self.cx.emit(CoreEffect::Bundle(Box::new(work)));
    }

    /// Handles the result of a bundle operation.
    pub(crate) fn on_bundle(&mut self, done: BundleResult) {
        let BundleResult {
            instance: at,
            answer,
            definition,
            standing,
            happened,
        } = done;
        for happened in happened {
            let event = LifecycleEvent::BundleChanged {
                instance_key: at.instance_key.clone(),
                what: happened.what.to_owned(),
                changeset_id: happened.changeset_id,
                revision: happened.revision,
                detail: happened.detail,
            };
            self.announce(&at.workspace_id, event, None);
        }
        if let Some(standing) = standing {
            self.on_standing(&at, standing);
        }
        let line = self.bundles.0.get_mut(&at);
        let waiting = line.and_then(VecDeque::pop_front);
        match waiting.map(|waiting| waiting.asker) {
            None | Some(BundleRequester::Nobody) => {
                if let Err(error) = answer {
                    let event = LogEvent::error("failed to count the outcome of a turn");
                    self.log(event.of(&at).with("error", error.message));
                }
            }
            Some(BundleRequester::Start(digest)) => {
                self.on_told_to_be(&at, &digest, answer.map(|_| definition));
            }
            Some(BundleRequester::Client(token)) => self.cx.emit(CoreEffect::Respond {
                token,
                result: answer,
            }),
            Some(BundleRequester::Agent(requester)) => {
                self.answer_agent(&requester, to_agent_answer(answer));
            }
        }
        self.begin_bundle_work(&at);
        self.advance(&at);
    }

    /// Updates the bundle state of an instance.
    fn on_standing(&mut self, at: &InstanceRef, standing: BundleStanding) {
        if let Some(workspace) = self.workspaces.get_mut(&at.workspace_id) {
            let problems = &mut workspace.bundle_problems;
            match &standing.problem {
                Some(problem) => {
                    let line = problem.lines().next().unwrap_or_default().to_owned();
                    problems.insert(at.instance_key.clone(), line);
                }
                None => drop(problems.remove(&at.instance_key)),
            }
        }
        let Some(entry) = self.conversation_mut(at) else {
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
        at: &InstanceRef,
        digest: &String,
        told: Result<Option<Box<AgentDefinition>>, ControlError>,
    ) {
        let is_current = self.bundle(&at.workspace_id).map(|it| &it.digest) == Some(digest);
        let definition = told.unwrap_or_else(|error| {
            let message = "configuration of a conversation is invalid; using the project's";
            let event = LogEvent::error(message).of(at);
            self.log(event.with("error", error.message));
            None
        });
        if let Some(entry) = self.conversation_mut(at) {
            entry.overlay_mut().arming = if is_current {
                ConfigLookup::Known(definition)
            } else {
                ConfigLookup::Unknown
            };
        }
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
