//! Agents' requests about sandboxes and proposals: ownership, execution, and answers (`BOX-1`,
//! `PROP-1`).
//!
//! The sandboxes of one conversation form one run. In a run an agent has one sandbox, named after
//! the agent. Run and name follow from the requesting process, never from its message.

use std::path::{Path, PathBuf};

use goondan_config::ProjectConfig;
use goondan_protocol::agents::{
    AGENT_FILES_MAX, AgentAnswer, AgentProposal, AgentQuestion, AgentSandbox, ProposalOwner,
    ProposedFile,
};
use goondan_protocol::control::{
    ApplyProposal, CommentState, ControlError, CreateProposal, DiffProposal, ErrorCode,
    PrepareSandbox, ProposalDetail, SandboxDetail, SandboxRef, ShowProposal, ShowSandbox,
};
use goondan_protocol::ids::{AgentName, InstanceKey, InstanceRef, RunId, WorkerId};
use goondan_store::file_names::{run_dir, sandbox_dir};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::conversation::Conversation;
use super::{Workspace, authority, bundle_of};
use crate::Facts;
use crate::bus::context::Cx;
use crate::exchange::{ApplyByAgent, ProposalWork, ReviewByAgent, ReviewingAgent};
use crate::refusals::AgentRequestError;
use crate::router;

/// Characters of a conversation's key that its run is named by, for people.
const RUN_WORD_CHARS: usize = 40;

/// Length of the digest that distinguishes runs, in bytes.
const RUN_DIGEST_BYTES: usize = 12;

/// Reason for replacing a process.
const PREPARED: &str = "a sandbox was prepared for it";

/// Run id of a conversation: a readable word and a digest.
fn run_of(conversation: &str) -> Result<RunId, AgentRequestError> {
    let is_plain = |character: &char| character.is_ascii_alphanumeric() || *character == '-';
    let word: String = conversation
        .chars()
        .map(|character| if is_plain(&character) { character } else { '-' })
        .take(RUN_WORD_CHARS)
        .collect();
    let digest = Sha256::digest(conversation.as_bytes());
    let digest = hex::encode(digest.get(..RUN_DIGEST_BYTES).unwrap_or_default());
    let name = format!("{}-{digest}", word.trim_matches('-'));
    let run = RunId::new(name.trim_start_matches('-'));
    run.map_err(|error| AgentRequestError::new("E_INVALID_REQUEST", error.to_string()))
}

/// The project's files that a conversation's agent may work with: its sandboxes and proposals.
///
/// The run and the name of a sandbox derive from the conversation, never from a message. The paths
/// that an agent may change derive from the project's policy.
#[derive(Clone, Copy)]
pub(crate) struct AgentFiles<'a> {
    workspace: &'a Workspace,
    at: &'a InstanceRef,
    facts: &'a Facts,
}

impl<'a> AgentFiles<'a> {
    /// Work for a request about files; `None` for other requests.
    pub(super) fn file_work(
        self,
        question: &AgentQuestion,
    ) -> Result<Option<ProposalWork>, AgentRequestError> {
        let workspace_id = self.at.workspace_id.clone();
        Ok(Some(match question {
            AgentQuestion::PrepareSandbox {
                agent,
                files,
                may_create,
            } => {
                self.check_worker(agent)?;
                if files.is_empty() {
                    let message = "list the files and directories to copy";
                    return Err(AgentRequestError::new("E_INVALID_REQUEST", message));
                }
                ProposalWork::Prepare(PrepareSandbox {
                    workspace_id,
                    at: self.sandbox_ref(Some(agent))?,
                    files: files.clone(),
                    allow: Vec::new(),
                    exclude: self.secret_patterns(agent),
                    may_create: may_create.clone(),
                })
            }
            AgentQuestion::ShowSandbox { agent } => ProposalWork::ShowSandbox(ShowSandbox {
                workspace_id,
                at: self.sandbox_ref(agent.as_ref())?,
            }),
            AgentQuestion::SubmitProposal { summary, test_log } => {
                let own = self.agent()?;
                ProposalWork::Create(CreateProposal {
                    workspace_id,
                    at: self.sandbox_ref(None)?,
                    notes: format!("submitted by agent `{own}` in `{}`", self.at.instance_key),
                    summary: summary.clone(),
                    test_log: test_log.clone(),
                })
            }
            AgentQuestion::ShowProposal { agent } => ProposalWork::Show(ShowProposal {
                workspace_id,
                at: self.sandbox_ref(agent.as_ref())?,
            }),
            AgentQuestion::DiffProposal {
                of: ProposalOwner::Agent(agent),
                offset,
            } => ProposalWork::Diff(DiffProposal {
                workspace_id,
                at: self.sandbox_ref(Some(agent))?,
                offset: *offset,
            }),
            AgentQuestion::CheckProposal {
                of: ProposalOwner::Agent(agent),
            } => ProposalWork::ReviewByAgent(ReviewByAgent {
                workspace_id,
                at: self.sandbox_ref(Some(agent))?,
                by: self.reviewing_agent()?,
            }),
            AgentQuestion::ApplyProposal {
                of: ProposalOwner::Agent(agent),
                digest,
            } => ProposalWork::ApplyByAgent(ApplyByAgent {
                workspace_id: workspace_id.clone(),
                apply: ApplyProposal {
                    workspace_id,
                    at: self.sandbox_ref(Some(agent))?,
                    digest: Some(digest.clone()),
                    allow_moved_base: false,
                },
                by: self.reviewing_agent()?,
            }),
            _ => return Ok(None),
        }))
    }

    /// The agent, with the paths that the project's policy lets it change. The policy is the
    /// project's own: an agent cannot extend it by changes to its configuration.
    pub(crate) fn reviewing_agent(self) -> Result<ReviewingAgent, AgentRequestError> {
        let agent = self.agent()?.clone();
        let paths = self.bundle()?.appliers.get(&agent).cloned();
        Ok(ReviewingAgent {
            agent,
            instance_key: self.at.instance_key.clone(),
            paths: paths.unwrap_or_default(),
            sources: self.workspace.sources.clone(),
        })
    }

    /// Checks that an agent may receive files: it belongs to the swarm, and can submit proposals.
    fn check_worker(self, agent: &AgentName) -> Result<(), AgentRequestError> {
        let bundle = self.bundle()?;
        let Some(definition) = bundle.agents.get(agent) else {
            let message = format!(
                "agent `{agent}` does not exist; the agents are: {}",
                router::agents_of(bundle)
            );
            return Err(AgentRequestError::new("E_AGENT_NOT_FOUND", message));
        };
        if !authority::is_worker(definition) {
            let message = format!(
                "agent `{agent}` cannot submit its changes; add `submit` of `proposal` to its \
                 `tools` in goondan.yaml"
            );
            return Err(AgentRequestError::new("E_INVALID_REQUEST", message));
        }
        Ok(())
    }

    fn entry(self) -> Option<&'a Conversation> {
        self.workspace.conversations.get(&self.at.instance_key)
    }

    fn bundle(self) -> Result<&'a ProjectConfig, AgentRequestError> {
        bundle_of(self.workspace).map_err(|_| gone())
    }

    fn agent(self) -> Result<&'a AgentName, AgentRequestError> {
        self.entry().map(Conversation::agent).ok_or_else(|| {
            AgentRequestError::new("E_UNAVAILABLE", "the requesting conversation was deleted")
        })
    }

    /// The sandbox of an agent in the conversation; its own if no other is named.
    fn sandbox_ref(self, agent: Option<&AgentName>) -> Result<SandboxRef, AgentRequestError> {
        let own = self.agent()?;
        let conversation = router::conversation_of(self.bundle()?, (own, &self.at.instance_key));
        let agent_id = WorkerId::new(agent.unwrap_or(own).as_str());
        Ok(SandboxRef {
            run_id: run_of(conversation)?,
            agent_id: agent_id
                .map_err(|error| AgentRequestError::new("E_INVALID_REQUEST", error.to_string()))?,
        })
    }

    fn sandboxes(self) -> PathBuf {
        self.facts.layout.sandboxes(&self.at.workspace_id)
    }

    /// Directory of its sandbox; `None` for an agent that cannot submit proposals.
    pub(super) fn sandbox_dir(self) -> Option<PathBuf> {
        if !authority::is_worker(self.entry()?.definition()?) {
            return None;
        }
        let own = self.sandbox_ref(None).ok()?;
        Some(sandbox_dir(&self.sandboxes(), &own.run_id, &own.agent_id))
    }

    /// Directory of the conversation's sandboxes, for an agent that may read every sandbox.
    pub(super) fn run_dir(self) -> Option<PathBuf> {
        if !authority::is_coordinator(self.entry()?.definition()?) {
            return None;
        }
        let own = self.sandbox_ref(None).ok()?;
        Some(run_dir(&self.sandboxes(), &own.run_id))
    }

    /// As [`Self::sandbox_dir`], independent of the running process.
    pub(crate) fn sandbox_of(self, agent: &AgentName) -> Option<PathBuf> {
        let bundle = self.workspace.bundle.as_ref()?;
        if !authority::is_worker(bundle.agents.get(agent)?) {
            return None;
        }
        let own = self.sandbox_ref(Some(agent)).ok()?;
        Some(sandbox_dir(&self.sandboxes(), &own.run_id, &own.agent_id))
    }

    /// Patterns of project files that hold secrets of either agent.
    fn secret_patterns(self, agent: &AgentName) -> Vec<String> {
        let root = &self.workspace.record.project_root;
        let own = self.entry().and_then(Conversation::definition);
        let other = self.bundle().ok();
        let other = other.and_then(|bundle| bundle.agents.get(agent));
        let files = [own, other].into_iter().flatten();
        let files = files.flat_map(|definition| &definition.secret_files);
        files.filter_map(|file| pattern_of(file, root)).collect()
    }
}

fn gone() -> AgentRequestError {
    AgentRequestError::new("E_UNAVAILABLE", "the workspace no longer exists")
}

impl Workspace {
    /// Patterns of project files that hold the project's secrets.
    pub(crate) fn secret_patterns(&self) -> Vec<String> {
        let root = &self.record.project_root;
        let files = self.record.env_files.iter();
        files.filter_map(|file| pattern_of(file, root)).collect()
    }
}

impl Workspace {
    /// The files of a conversation's agent.
    pub(crate) fn files_of<'a>(&'a self, facts: &'a Facts, at: &'a InstanceRef) -> AgentFiles<'a> {
        AgentFiles {
            workspace: self,
            at,
            facts,
        }
    }

    /// A sandbox was prepared: a process of its agent that runs works elsewhere, and makes way for another one
    /// as soon as it has no turn.
    pub(crate) fn on_sandbox_prepared(&mut self, cx: &mut Cx, at: &InstanceRef, agent: &WorkerId) {
        let Ok(prepared) = AgentName::new(agent.as_str()) else {
            return;
        };
        let files = self.files_of(cx.facts(), at);
        let Ok(wanted) = files.sandbox_ref(Some(&prepared)) else {
            return;
        };
        let keys = self.conversations.iter();
        let keys =
            keys.filter(|(_, entry)| *entry.agent() == prepared && entry.process().is_some());
        let keys: Vec<InstanceKey> = keys.map(|(key, _)| key.clone()).collect();
        for instance_key in keys {
            let its = InstanceRef {
                workspace_id: at.workspace_id.clone(),
                instance_key,
            };
            let own = self.files_of(cx.facts(), &its).sandbox_ref(None);
            if own.ok().as_ref() != Some(&wanted) {
                continue;
            }
            let Some(entry) = self.conversations.get_mut(&its.instance_key) else {
                continue;
            };
            match entry.turn_mut() {
                Some(turn) => turn.restart = Some(PREPARED.to_owned()),
                None => {
                    entry.restart_as_wished(cx, &its, PREPARED);
                    self.advance(cx, &its);
                }
            }
        }
    }
}

/// Exclusion pattern of a file, if it is in the project.
fn pattern_of(file: &Path, project_root: &Path) -> Option<String> {
    let relative = file.strip_prefix(project_root).ok()?.to_str()?;
    let mut pattern = "/".to_owned();
    for character in relative.chars() {
        if matches!(character, '*' | '?' | '[' | ']' | '{' | '}' | '\\' | '!') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    Some(pattern)
}

/// Kind of the answer to an agent's request about files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileAnswer {
    Sandbox,
    Proposal,
    Diff,
    Review,
    Applied,
}

/// Converts a result to an agent's answer.
pub(crate) fn file_answer(kind: FileAnswer, answer: Result<Value, ControlError>) -> AgentAnswer {
    let read = |error: serde_json::Error| AgentRequestError::new("E_FAILED", error.to_string());
    let answer = answer.map_err(|error| {
        // The suggestion does not apply to agents, only to people.
        AgentRequestError::new(code_of(error.code), error.message).into()
    });
    let value = match answer {
        Ok(value) => value,
        Err(refused) => return refused,
    };
    let told = match kind {
        FileAnswer::Sandbox => serde_json::from_value(value).map(|detail| AgentAnswer::Sandbox {
            sandbox: Box::new(sandbox_of(detail)),
        }),
        FileAnswer::Proposal => serde_json::from_value(value).map(|detail| AgentAnswer::Proposal {
            proposal: Box::new(proposal_of(detail)),
        }),
        FileAnswer::Diff => serde_json::from_value(value).map(|diff| AgentAnswer::Diff { diff }),
        FileAnswer::Review => {
            serde_json::from_value(value).map(|review| AgentAnswer::Review { review })
        }
        FileAnswer::Applied => {
            serde_json::from_value(value).map(|applied| AgentAnswer::Applied { applied })
        }
    };
    told.unwrap_or_else(|error| read(error).into())
}

fn code_of(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::SandboxNotFound => "E_NO_SANDBOX",
        ErrorCode::SandboxTaken => "E_SANDBOX_TAKEN",
        ErrorCode::ProposalNotFound => "E_NO_PROPOSAL",
        ErrorCode::ProposalRefused => "E_PROPOSAL_REFUSED",
        ErrorCode::PersonNeeded => "E_NOT_GRANTED",
        ErrorCode::InvalidRequest => "E_INVALID_REQUEST",
        ErrorCode::Overloaded => "E_OVERLOADED",
        _ => "E_FAILED",
    }
}

fn sandbox_of(detail: SandboxDetail) -> AgentSandbox {
    let more_files = detail.given.len().saturating_sub(AGENT_FILES_MAX);
    let files = detail.given.into_iter().map(|file| file.path);
    AgentSandbox {
        run_id: detail.info.at.run_id,
        agent: detail.info.at.agent_id,
        input_dir: detail.input_dir,
        work_dir: detail.work_dir,
        proposal_dir: detail.proposal_dir,
        files: files.take(AGENT_FILES_MAX).collect(),
        more_files,
        may_create: detail.may_create,
        proposal: detail.info.proposal,
    }
}

fn proposal_of(detail: ProposalDetail) -> AgentProposal {
    let more_changed = detail.files.len().saturating_sub(AGENT_FILES_MAX);
    let changed = detail.files.into_iter().map(|file| ProposedFile {
        path: file.change.path,
        status: file.change.status,
    });
    let said = detail.history.last().map(|event| event.detail.clone());
    let mut comments = detail.comments;
    comments.retain(|comment| comment.state == CommentState::Open);
    AgentProposal {
        work_dir: detail.info.work_dir(),
        proposal_dir: detail.info.directory,
        run_id: detail.info.at.run_id,
        agent: detail.info.at.agent_id,
        state: detail.info.state,
        digest: detail.info.digest,
        changed: changed.take(AGENT_FILES_MAX).collect(),
        more_changed,
        said: said.unwrap_or_default(),
        comments,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sec_7_run_names_differ_for_similar_conversation_keys() {
        let run = |key: &str| run_of(key).unwrap_or_else(|refused| panic!("{}", refused.message));
        assert!(run("main").as_str().starts_with("main-"), "{}", run("main"));
        assert_eq!(run("main"), run("main"));
        assert_ne!(run("a:b"), run("a-b"));
        assert_ne!(run("\u{d55c}"), run("\u{ae00}"));
        assert!(run(&"x".repeat(1024)).as_str().len() < 80);
    }

    #[test]
    fn sec_2_a_file_with_secrets_is_a_pattern_that_means_it_alone() {
        let pattern = |file: &str| pattern_of(Path::new(file), Path::new("/p"));
        assert_eq!(
            pattern("/p/env/prod*.txt").as_deref(),
            Some("/env/prod\\*.txt")
        );
        assert_eq!(pattern("/q/x"), None);
    }
}
