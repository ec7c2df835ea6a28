//! Requests about sandboxes and proposals: permissions, the order of work on files, and reports of
//! events (`PROP-3`, `PROP-5`).
//!
//! The work itself can take long with many files. In each workspace one operation runs at a time,
//! so that no two change the same files; the others are queued.

use std::collections::{BTreeMap, VecDeque};

use goondan_protocol::control::{ControlError, ErrorCode, RunEvent, RunEventKind};
use goondan_protocol::ids::{WorkerId, WorkspaceId};
use goondan_protocol::lifecycle::LifecycleEvent;

use super::persons::person_needed;
use crate::exchange::chat_proposals::ChatProposalStep;
use crate::exchange::tasks::SandboxStep;
use crate::exchange::{ProposalWork, ProposalsResult};
use crate::fleet::agent_replies::pending_replies::Requester;
use crate::fleet::sandboxes::{FileAnswer, file_answer};
use crate::limits::PROPOSAL_REQUESTS_MAX;
use crate::{ClientOrigin, Core, CoreEffect, RequestToken};

/// Queues of work, by workspace; the first item of each is in progress.
#[derive(Debug, Default)]
pub(crate) struct ProposalQueues(BTreeMap<WorkspaceId, VecDeque<QueuedProposalWork>>);

#[derive(Debug)]
struct QueuedProposalWork {
    asker: ProposalRequester,
    subject: Subject,
    /// None while it is being done.
    work: Option<ProposalWork>,
}

/// Caller that waits for the result.
#[derive(Debug)]
pub(crate) enum ProposalRequester {
    Client(RequestToken),
    /// An agent, which was granted to ask.
    Agent(Requester),
    /// A verification that a client waits for.
    Verification(RequestToken),
    /// The chats of a workspace, whose users are persons.
    Chat(Box<ChatProposalStep>),
    /// A task, for its own sandbox. A person has made the decisions that only a person may make.
    Task(SandboxStep),
}

/// Description of work that only a person may request, matching [`super::persons`] for clients. An
/// agent applies a proposal only by [`ProposalWork::ApplyByAgent`], which checks the policy.
fn needs_person(work: &ProposalWork) -> Option<&'static str> {
    match work {
        ProposalWork::Apply(_) => Some("applying a proposal"),
        ProposalWork::Reject(_) => Some("rejecting a proposal"),
        ProposalWork::Revert(_) => Some("reverting a proposal"),
        ProposalWork::Merge(_) => Some("merging a proposal"),
        ProposalWork::Comment(_) | ProposalWork::Uncomment(_) | ProposalWork::TakeComments(_) => {
            Some("commenting on a proposal")
        }
        ProposalWork::Prepare(prepare) if !prepare.allow.is_empty() => {
            Some("allowing a sandbox files that are usually refused")
        }
        ProposalWork::Remove(remove) if remove.force => {
            Some("removing a sandbox with a waiting proposal")
        }
        _ => None,
    }
}

/// Subject of the work, for the caller's answer.
#[derive(Debug)]
enum Subject {
    /// A sandbox of this worker, which is new.
    NewSandbox(WorkerId),
    Sandbox,
    Proposal,
    Patch,
    Review,
    Application,
}

impl ProposalWork {
    fn subject(&self) -> Subject {
        match self {
            Self::Prepare(prepare) => Subject::NewSandbox(prepare.at.agent_id.clone()),
            Self::ListSandboxes(_) | Self::ShowSandbox(_) | Self::Remove(_) => Subject::Sandbox,
            Self::Diff(_) => Subject::Patch,
            Self::ReviewByAgent(_) => Subject::Review,
            Self::ApplyByAgent(_) => Subject::Application,
            _ => Subject::Proposal,
        }
    }
}

impl Core {
    pub(crate) fn use_proposals(&mut self, asker: ProposalRequester, work: ProposalWork) {
        let is_bounded = matches!(
            asker,
            ProposalRequester::Task(_) | ProposalRequester::Chat(_)
        );
        if !is_bounded
            && !matches!(asker, ProposalRequester::Client(_))
            && let Some(what) = needs_person(&work)
        {
            let error = person_needed(what, "gdn proposal list", ClientOrigin::BelowDaemon);
            return self.answer_asker(&asker, &work.subject(), Err(error));
        }
        let id = work.workspace_id().clone();
        if let Err(error) = self.fleet.workspace(&id) {
            return self.answer_asker(&asker, &work.subject(), Err(error));
        }
        let line = self.requests.proposals.0.entry(id.clone()).or_default();
        // Each task asks for one thing at a time, and chats read one thing and decide each proposal
        // once.
        if line.len() >= PROPOSAL_REQUESTS_MAX && !is_bounded {
            let text = format!(
                "{PROPOSAL_REQUESTS_MAX} requests about proposals of `{id}` are already waiting"
            );
            let error = ControlError::new(ErrorCode::Overloaded, text).suggest("try again later");
            return self.answer_asker(&asker, &work.subject(), Err(error));
        }
        let subject = work.subject();
        let work = Some(work);
        line.push_back(QueuedProposalWork {
            asker,
            subject,
            work,
        });
        self.begin_proposal_work(&id);
    }

    /// Has the first in line done, unless it is already.
    fn begin_proposal_work(&mut self, id: &WorkspaceId) {
        let Some(line) = self.requests.proposals.0.get_mut(id) else {
            return;
        };
        let Some(first) = line.front_mut() else {
            self.requests.proposals.0.remove(id);
            return;
        };
        let Some(work) = first.work.take() else {
            return;
        };
        match self.fleet.workspace(id) {
            Ok(workspace) => {
                let project_root = workspace.record.project_root.clone();
                let at = self.fleet.now().wall;
                self.fleet.cx().emit(CoreEffect::Proposals {
                    at,
                    project_root,
                    work,
                });
            }
            // It was closed meanwhile.
            Err(error) => {
                let waiting = line.pop_front();
                if let Some(waiting) = waiting {
                    self.answer_asker(&waiting.asker, &waiting.subject, Err(error));
                }
                self.begin_proposal_work(id);
            }
        }
    }

    /// Handles a finished operation; without a caller if it was found finished at the daemon's
    /// start.
    pub(crate) fn on_proposals(&mut self, id: &WorkspaceId, is_asked: bool, done: ProposalsResult) {
        for event in done.happened {
            if let Some(event) = lifecycle_event(event) {
                self.fleet.announce(id, event, None);
                self.note_proposals(id);
            }
        }
        if !is_asked {
            return;
        }
        let line = self.requests.proposals.0.get_mut(id);
        if let Some(waiting) = line.and_then(VecDeque::pop_front) {
            self.answer_asker(&waiting.asker, &waiting.subject, done.answer);
        }
        self.begin_proposal_work(id);
    }

    fn answer_asker(
        &mut self,
        asker: &ProposalRequester,
        subject: &Subject,
        result: Result<serde_json::Value, ControlError>,
    ) {
        match asker {
            ProposalRequester::Client(token) => self.fleet.cx().emit(CoreEffect::Respond {
                token: *token,
                result,
            }),
            ProposalRequester::Chat(step) => self.on_chat_proposals(step, result),
            ProposalRequester::Task(step) => {
                self.tasks.on_sandbox_done(&mut self.fleet, step, result);
            }
            ProposalRequester::Verification(token) => self.on_sandboxes_verified(*token, result),
            ProposalRequester::Agent(requester) => {
                if let (Subject::NewSandbox(agent), Ok(_)) = (subject, &result)
                    && let Some((workspace, cx)) =
                        self.fleet.workspace_and_cx(&requester.at.workspace_id)
                {
                    workspace.on_sandbox_prepared(cx, &requester.at, agent);
                }
                let kind = match subject {
                    Subject::NewSandbox(_) | Subject::Sandbox => FileAnswer::Sandbox,
                    Subject::Proposal => FileAnswer::Proposal,
                    Subject::Patch => FileAnswer::Diff,
                    Subject::Review => FileAnswer::Review,
                    Subject::Application => FileAnswer::Applied,
                };
                self.fleet
                    .answer_agent(requester, file_answer(kind, result));
            }
        }
    }
}

/// Lifecycle event for an entry of a run's log, if it concerns more than the run.
fn lifecycle_event(event: RunEvent) -> Option<LifecycleEvent> {
    let RunEvent {
        kind,
        run_id,
        agent_id,
        digest,
        detail,
        ..
    } = event;
    let digest = digest.unwrap_or_default();
    Some(match kind {
        // The delivery of a task's proposal is reported as a decision about the task.
        RunEventKind::SandboxPrepared
        | RunEventKind::SandboxRemoved
        | RunEventKind::ProposalDelivered => return None,
        RunEventKind::ProposalCreated => LifecycleEvent::ProposalCreated {
            run_id,
            agent_id,
            digest,
            detail,
        },
        RunEventKind::ProposalReviewed => LifecycleEvent::ProposalReviewed {
            run_id,
            agent_id,
            digest,
            detail,
        },
        RunEventKind::ProposalApplied => LifecycleEvent::ProposalApplied {
            run_id,
            agent_id,
            digest,
            detail,
        },
        RunEventKind::ProposalRejected => LifecycleEvent::ProposalRejected {
            run_id,
            agent_id,
            digest,
            detail,
        },
        RunEventKind::ProposalReverted => LifecycleEvent::ProposalReverted {
            run_id,
            agent_id,
            digest,
            detail,
        },
        RunEventKind::ProposalCommented => LifecycleEvent::ProposalCommented {
            run_id,
            agent_id,
            digest,
            detail,
        },
    })
}

#[cfg(test)]
mod tests {
    use goondan_protocol::control::Call;
    use serde_json::json;

    use super::*;

    /// The work that a request of this method and these parameters is about.
    fn work(method: &str, more: &serde_json::Value) -> ProposalWork {
        let mut params = json!({"workspaceId": "w", "sandbox": {"runId": "r", "agentId": "a"}});
        if let (Some(params), Some(more)) = (params.as_object_mut(), more.as_object()) {
            params.extend(more.clone());
        }
        let call = serde_json::from_value(json!({"method": method, "params": params}));
        match call.unwrap() {
            Call::PrepareSandbox(call) => ProposalWork::Prepare(call),
            Call::RemoveSandbox(call) => ProposalWork::Remove(call),
            Call::CreateProposal(call) => ProposalWork::Create(call),
            Call::CheckProposal(call) => ProposalWork::Check(call),
            Call::ApplyProposal(call) => ProposalWork::Apply(call),
            Call::RejectProposal(call) => ProposalWork::Reject(call),
            Call::RevertProposal(call) => ProposalWork::Revert(call),
            Call::MergeProposal(call) => ProposalWork::Merge(call),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn prop_3_no_agent_applies_rejects_takes_back_merges_or_allows() {
        for (method, more, is_for_a_person) in [
            ("sandbox.prepare", json!({}), false),
            ("sandbox.prepare", json!({"allow": [".env"]}), true),
            ("sandbox.remove", json!({}), false),
            ("sandbox.remove", json!({"force": true}), true),
            ("proposal.create", json!({}), false),
            ("proposal.check", json!({}), false),
            ("proposal.apply", json!({}), true),
            ("proposal.reject", json!({}), true),
            ("proposal.revert", json!({}), true),
            ("proposal.merge", json!({}), true),
        ] {
            let needs = needs_person(&work(method, &more));
            assert_eq!(needs.is_some(), is_for_a_person, "{method} {more}");
        }
    }
}
