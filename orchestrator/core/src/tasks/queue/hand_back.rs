//! Outcomes of the merge queue, for the tasks: a landed proposal approves the last phase of its task,
//! a conflict or a failed proof sends the phase back to its agent. After a drop, the task waits for
//! its review as before.

use goondan_merge_queue::{Event, Outcome, Proposal, Target};
use goondan_protocol::ids::WorkspaceId;
use goondan_tasks::machine::{Delivery, TaskInput};
use goondan_tasks::state::State;

use super::pull_requests::branch_of;
use super::waiting_digest;
use crate::exchange::tasks::QueueFollowUp;
use crate::exchange::{QueueStep, TaskRef};
use crate::fleet::Fleet;
use crate::tasks::Tasks;
use crate::tasks::entry::TaskEntry;

/// Most characters of a log or of conflicts that an agent receives.
const HANDED_BACK_CHARS_MAX: usize = 6_000;

fn end_of(text: &str) -> String {
    let count = text.chars().count();
    text.chars()
        .skip(count.saturating_sub(HANDED_BACK_CHARS_MAX))
        .collect()
}

/// Instructions for the agent whose proposal is handed back.
fn instructions(outcome: &Outcome, rebased: &Result<Vec<String>, String>) -> Option<String> {
    let mut text = match outcome {
        Outcome::Landed { .. } | Outcome::Dropped { .. } => return None,
        Outcome::Conflict { text, .. } => {
            let text: String = text.chars().take(HANDED_BACK_CHARS_MAX).collect();
            format!(
                "The project has changed since you began, and your changes conflict with it:\n{text}"
            )
        }
        Outcome::Unproved { log, .. } => format!(
            "With your changes, `verify` fails on the project's current files. End of its output:\n{}",
            end_of(log)
        ),
    };
    match rebased {
        Ok(lost) => {
            text.push_str(
                "\n\nYour copy now has the project's current files, with your changes to them.",
            );
            if !lost.is_empty() {
                let lost: Vec<&str> = lost.iter().take(50).map(String::as_str).collect();
                text.push_str(&format!(
                    " These files are as in the project, without your changes: {}. Make your \
                     changes to them again; `../proposal/changes.patch` has them.",
                    lost.join(", ")
                ));
            }
        }
        Err(why) => {
            let why: String = why.chars().take(500).collect();
            text.push_str(&format!(
                "\n\nYour copy still has the files that you began with: {why}"
            ));
        }
    }
    Some(text)
}

impl Tasks {
    /// Reports the outcome of a proposal to its task.
    pub(super) fn report(
        &mut self,
        fleet: &mut Fleet,
        id: &WorkspaceId,
        proposal: Proposal,
        outcome: Outcome,
    ) {
        let at = TaskRef::new(id, &proposal.task);
        let is_dropped = matches!(outcome, Outcome::Dropped { .. });
        if is_dropped || self.is_settled(&at, &proposal) {
            let task = proposal.task;
            return self.queue_event(fleet, id, Event::Acknowledged { task });
        }
        let digest = proposal.digest.clone();
        if let Outcome::Landed { pull_request, .. } = outcome {
            let state = self.entry(&at).and_then(TaskEntry::durable);
            let phase = state.and_then(State::review).unwrap_or_default();
            let branch = match proposal.target {
                Target::Project => None,
                Target::PullRequest { .. } if pull_request.is_some() => {
                    Some(branch_of(&proposal.task))
                }
                // Without a change, it needs no pull request.
                Target::Branch { branch, .. } | Target::PullRequest { branch, .. } => Some(branch),
            };
            let delivery = Delivery::Delivered {
                digest,
                branch,
                pull_request,
            };
            return self.input(fleet, &at, TaskInput::Approve { phase, delivery }, None);
        }
        let sandbox = self.sandboxes_of(id, std::slice::from_ref(&proposal)).pop();
        let queue = self.queue_mut(id);
        if let (Some(sandbox), Some(queue)) = (sandbox, queue)
            && queue.returning.insert(proposal.task.clone())
        {
            let then = QueueFollowUp::HandedBack { proposal, outcome };
            self.post(fleet, id, QueueStep::HandBack(sandbox), then);
        }
    }

    /// True if a task has recorded the outcome of its proposal, or has moved on without it.
    fn is_settled(&self, at: &TaskRef, proposal: &Proposal) -> bool {
        let Some(entry) = self.entry(at) else {
            return true;
        };
        let state = entry.durable().filter(|_| entry.damage().is_none());
        state.is_some_and(|state| waiting_digest(state) != Some(proposal.digest.as_str()))
    }

    /// A task has changed durably or was removed: its outcome may be recorded, or its proposal
    /// withdrawn.
    pub(in crate::tasks) fn note_change_to_queue(&mut self, fleet: &mut Fleet, at: &TaskRef) {
        let id = &at.workspace_id;
        let queue = self.spaces.get(id).map(|space| &space.queue);
        let Some(machine) = queue.and_then(|queue| queue.machine.as_ref()) else {
            return;
        };
        let of_task = |proposal: &&Proposal| proposal.task == at.task_id;
        let reported = machine.unreported().map(|(proposal, _)| proposal);
        let reported = reported.filter(of_task).any(|it| self.is_settled(at, it));
        let queued = machine.entries().map(|(entry, _)| &entry.proposal);
        let withdrawn = queued.filter(of_task).any(|it| self.is_settled(at, it));
        let task = at.task_id.clone();
        if reported {
            let task = task.clone();
            self.queue_event(fleet, id, Event::Acknowledged { task });
        }
        if withdrawn {
            let why = "its task no longer proposes it".to_owned();
            self.queue_event(fleet, id, Event::Withdraw { task, why });
        }
    }

    pub(super) fn on_handed_back(
        &mut self,
        fleet: &mut Fleet,
        id: &WorkspaceId,
        proposal: &Proposal,
        outcome: &Outcome,
        rebased: &Result<Vec<String>, String>,
    ) {
        if let Some(queue) = self.queue_mut(id) {
            queue.returning.remove(&proposal.task);
        }
        let at = TaskRef::new(id, &proposal.task);
        if self.is_settled(&at, proposal) {
            return self.note_change_to_queue(fleet, &at);
        }
        let state = self.entry(&at).and_then(TaskEntry::state);
        let phase = state.and_then(State::review);
        if let (Some(phase), Some(text)) = (phase, instructions(outcome, rebased)) {
            let comments = Vec::new();
            let input = TaskInput::Rework {
                phase,
                text,
                comments,
            };
            self.input(fleet, &at, input, None);
        }
    }
}
