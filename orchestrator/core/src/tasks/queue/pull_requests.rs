//! Pull requests of the merge queue: which ones are still open, and the next one (`QUEUE-1`).
//!
//! Both are asked of the service through the connection of the task whose proposal is tried. Opening can
//! be repeated: the connector finds the pull request of the branch. After a crash, the queue looks if the
//! branch was pushed, and then asks again.

use std::collections::BTreeSet;

use goondan_merge_queue::{Event, Landing, LandingResult, OpenPullRequest, Target};
use goondan_protocol::call::CallOutcome;
use goondan_protocol::ids::{AgentName, WorkspaceId};
use goondan_protocol::service::{ConnectorRequest, GitHub, PullRequest, PullRequestStatus};
use goondan_protocol::task::{TASK_BRANCHES, TaskId, title_and_text};

use crate::exchange::task_calls::{TaskCall, TaskCallRef};
use crate::exchange::tasks::QueueFollowUp;
use crate::exchange::{QueueStep, TaskRef};
use crate::fleet::Fleet;
use crate::limits::TASK_PULL_REQUEST_WAIT_MS;
use crate::tasks::Tasks;
use crate::tasks::deliveries::{BODY_CHARS_MAX, RequestPlace, error_text};
use crate::tasks::entry::TaskEntry;
use crate::tasks::proofs::queue_ref;
use crate::tasks::runs::is_ending;

/// Questions to the service about the pull requests of earlier attempts.
#[derive(Debug)]
pub(in crate::tasks) struct PullRequestLook {
    attempt: u64,
    /// Attempts whose pull requests the service has not answered about.
    waiting: BTreeSet<u64>,
    ended: Vec<u64>,
}

/// The branch of the pull request of a task.
pub(super) fn branch_of(task: &TaskId) -> String {
    format!("{TASK_BRANCHES}{task}")
}

impl Tasks {
    /// Returns the connection and repository of a task's pull requests.
    fn queue_place(
        &self,
        fleet: &Fleet,
        at: &TaskRef,
    ) -> Result<(RequestPlace, AgentName), String> {
        let state = self.entry(at).and_then(TaskEntry::durable);
        let agent = state.ok_or("its task cannot be read")?.task.agent.clone();
        Ok((self.request_place(fleet, at)?, agent))
    }

    /// Asks the service which pull requests are still open.
    pub(super) fn look_at_pull_requests(
        &mut self,
        fleet: &mut Fleet,
        id: &WorkspaceId,
        attempt: u64,
        opened: &[OpenPullRequest],
    ) {
        let queue = self.spaces.get(id).map(|space| &space.queue);
        let tried = queue.and_then(|queue| Some(queue.machine.as_ref()?.tried()));
        let Some(proposal) = tried.into_iter().flatten().next() else {
            return;
        };
        let at = TaskRef::new(id, &proposal.task);
        let calls = self.queue_place(fleet, &at).and_then(|(place, agent)| {
            let call = |opened: &OpenPullRequest| {
                let request = ConnectorRequest::of(&GitHub::FindPullRequest {
                    repository: place.repository.clone(),
                    head: branch_of(&opened.proposal.task),
                    commit: opened.result.to_string(),
                });
                Ok(TaskCall {
                    of: TaskCallRef::QueueLook {
                        at: at.clone(),
                        attempt,
                        about: opened.attempt,
                    },
                    agent: agent.clone(),
                    connection: place.connection.clone(),
                    request: request.map_err(|error| error.to_string())?,
                    deadline_ms: TASK_PULL_REQUEST_WAIT_MS,
                    is_idempotent: true,
                })
            };
            opened.iter().map(call).collect::<Result<Vec<_>, String>>()
        });
        let calls = match calls {
            Ok(calls) => calls,
            Err(why) => {
                let ended = Err(why);
                return self.queue_event(fleet, id, Event::Looked { attempt, ended });
            }
        };
        if let Some(queue) = self.queue_mut(id) {
            queue.looking = Some(PullRequestLook {
                attempt,
                waiting: opened.iter().map(|opened| opened.attempt).collect(),
                ended: Vec::new(),
            });
        }
        for call in calls {
            self.post_call(fleet, id, call);
        }
    }

    /// Makes a call. The workspace stays open until it ends.
    fn post_call(&mut self, fleet: &mut Fleet, id: &WorkspaceId, call: TaskCall) {
        if let Some(space) = self.spaces.get_mut(id) {
            space.works += 1;
            fleet.post(crate::bus::queue::Message::TaskCall(Box::new(call)));
        }
    }

    /// Handles the service's answer about a pull request.
    pub(in crate::tasks) fn on_queue_looked(
        &mut self,
        fleet: &mut Fleet,
        at: &TaskRef,
        (attempt, about): (u64, u64),
        outcome: CallOutcome,
    ) {
        let id = &at.workspace_id;
        self.work_done(id);
        let Some(queue) = self.queue_mut(id) else {
            return;
        };
        let looking = queue.looking.as_mut();
        let Some(look) = looking.filter(|look| look.attempt == attempt) else {
            return;
        };
        let ended = match answer::<PullRequestStatus>(outcome) {
            Ok(status) => {
                look.waiting.remove(&about);
                if !status.is_open {
                    look.ended.push(about);
                }
                if !look.waiting.is_empty() {
                    return;
                }
                Ok(std::mem::take(&mut look.ended))
            }
            Err(why) => Err(format!(
                "the service cannot be asked which earlier pull requests are open: {why}"
            )),
        };
        queue.looking = None;
        self.queue_event(fleet, id, Event::Looked { attempt, ended });
    }

    /// Opens the pull request of a landing whose branch was pushed, or finds it.
    pub(super) fn open_queued(
        &mut self,
        fleet: &mut Fleet,
        id: &WorkspaceId,
        landing: Landing,
        summary: &str,
    ) {
        // The next opening of the workspace finds the pushed branch.
        if queue_ref(id).is_none_or(|at| is_ending(fleet, &at)) {
            return;
        }
        match self.call_to_open(fleet, id, &landing, summary) {
            Ok(call) => {
                if let Some(queue) = self.queue_mut(id) {
                    queue.opening = Some(landing);
                }
                self.post_call(fleet, id, call);
            }
            Err(why) => self.on_landed(fleet, id, landing, LandingResult::Failed { why }),
        }
    }

    fn call_to_open(
        &self,
        fleet: &Fleet,
        id: &WorkspaceId,
        landing: &Landing,
        summary: &str,
    ) -> Result<TaskCall, String> {
        let proposal = landing.proposals.first();
        let proposal = proposal.ok_or("the landing has no proposal")?;
        let Target::PullRequest { branch: base, .. } = &proposal.target else {
            return Err("the proposal has no pull request".to_owned());
        };
        let at = TaskRef::new(id, &proposal.task);
        let (place, agent) = self.queue_place(fleet, &at)?;
        let state = self.entry(&at).and_then(TaskEntry::durable);
        let title = state.map_or("", |state| state.task.title.as_str());
        let (title, body) = title_and_text(summary, title);
        let request = ConnectorRequest::of(&GitHub::OpenPullRequest {
            repository: place.repository,
            head: branch_of(&proposal.task),
            commit: landing.result.to_string(),
            base: base.clone(),
            title,
            body: body.chars().take(BODY_CHARS_MAX).collect(),
        });
        Ok(TaskCall {
            of: TaskCallRef::QueuePullRequest {
                attempt: landing.attempt,
                at,
            },
            agent,
            connection: place.connection,
            request: request.map_err(|error| error.to_string())?,
            deadline_ms: TASK_PULL_REQUEST_WAIT_MS,
            is_idempotent: true,
        })
    }

    /// Handles the service's answer about the pull request of a landing: it is recorded with the
    /// proposal.
    pub(in crate::tasks) fn on_queue_opened(
        &mut self,
        fleet: &mut Fleet,
        at: &TaskRef,
        attempt: u64,
        outcome: CallOutcome,
    ) {
        let id = &at.workspace_id;
        self.work_done(id);
        let queue = self.queue_mut(id);
        let opening = queue.and_then(|queue| queue.opening.take_if(|it| it.attempt == attempt));
        let Some(landing) = opening else {
            return;
        };
        match answer::<PullRequest>(outcome) {
            Ok(opened) => {
                let step = QueueStep::NoteOpened {
                    proposals: self.sandboxes_of(id, &landing.proposals),
                    url: opened.url.clone(),
                };
                let url = opened.url;
                self.post(fleet, id, step, QueueFollowUp::Opened { landing, url });
            }
            // Its connection may have ended with the workspace, whose next opening asks again.
            Err(_) if queue_ref(id).is_none_or(|at| is_ending(fleet, &at)) => {}
            Err(why) => {
                let task = landing.proposals.first().map(|proposal| &proposal.task);
                let branch = task.map(branch_of).unwrap_or_default();
                let why = format!(
                    "branch `{branch}` was pushed, but its pull request could not be opened: {why}"
                );
                self.on_landed(fleet, id, landing, LandingResult::Failed { why });
            }
        }
    }
}

/// The connector's answer, or the reason why there is none.
fn answer<T: serde::de::DeserializeOwned>(outcome: CallOutcome) -> Result<T, String> {
    match outcome {
        CallOutcome::Ok(value) => serde_json::from_str(value.get())
            .map_err(|error| format!("failed to read the connector's answer: {error}")),
        CallOutcome::Error(error) => Err(error_text(&error)),
    }
}
