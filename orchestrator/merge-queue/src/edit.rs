//! Changes of a queue by people and by tasks.

use goondan_protocol::task::TaskId;

use crate::entry::{Outcome, Place, Proposal};
use crate::exchange::{Action, Refusal};
use crate::limits::ENTRIES_MAX;
use crate::queue::MergeQueue;
use crate::record::Record;

impl MergeQueue {
    pub(crate) fn enter(&mut self, proposal: Proposal) -> Result<(), Refusal> {
        let is_ending = |task: &TaskId| self.unreported.iter().any(|(it, _)| it.task == *task);
        if self.position(&proposal.task).is_some() || is_ending(&proposal.task) {
            return Err(Refusal::AlreadyQueued(proposal.task));
        }
        if self.entries.len() + self.unreported.len() >= ENTRIES_MAX {
            return Err(Refusal::Full);
        }
        self.record(Record::Entered { proposal });
        Ok(())
    }

    pub(crate) fn hold(&mut self, task: TaskId, why: String) -> Result<(), Refusal> {
        if self.is_held(&task)? {
            return Err(Refusal::AlreadyHeld(task));
        }
        self.give_up_attempt_of(&task);
        self.forget_suspicion();
        self.record(Record::Held { task, why });
        Ok(())
    }

    pub(crate) fn release(&mut self, task: TaskId) -> Result<(), Refusal> {
        if !self.is_held(&task)? {
            return Err(Refusal::NotHeld(task));
        }
        self.forget_suspicion();
        self.record(Record::Released { task });
        Ok(())
    }

    pub(crate) fn move_to(&mut self, task: TaskId, to: Place) -> Result<(), Refusal> {
        self.is_held(&task)?;
        match &to {
            Place::Before(other) if *other == task => return Err(Refusal::BeforeItself(task)),
            Place::Before(other) if self.position(other).is_none() => {
                return Err(Refusal::NotQueued(other.clone()));
            }
            _ => {}
        }
        self.forget_suspicion();
        self.record(Record::Moved { task, to });
        Ok(())
    }

    pub(crate) fn prioritize(&mut self, task: TaskId, priority: i32) -> Result<(), Refusal> {
        self.is_held(&task)?;
        self.forget_suspicion();
        self.record(Record::Prioritized { task, priority });
        Ok(())
    }

    pub(crate) fn drop_entry(&mut self, task: TaskId, why: String) -> Result<(), Refusal> {
        self.is_held(&task)?;
        self.give_up_attempt_of(&task);
        self.forget_suspicion();
        self.leave(task, Outcome::Dropped { why });
        Ok(())
    }

    /// The task of a landing proposal receives the outcome of the landing instead.
    pub(crate) fn withdraw(&mut self, task: TaskId, why: String) {
        if self.is_held(&task).is_ok() {
            self.give_up_attempt_of(&task);
            self.forget_suspicion();
            self.leave(task, Outcome::Dropped { why });
        }
    }

    /// Removes a proposal from the queue, and reports the outcome to its task.
    pub(crate) fn leave(&mut self, task: TaskId, outcome: Outcome) {
        let Some(entry) = self.position(&task).and_then(|at| self.entries.get(at)) else {
            return;
        };
        let proposal = entry.proposal.clone();
        let reported = outcome.clone();
        self.record(Record::Left { task, outcome });
        self.act(Action::Report {
            proposal,
            outcome: reported,
        });
    }

    /// Returns true if the proposal is held. A proposal that is landing cannot be changed.
    fn is_held(&self, task: &TaskId) -> Result<bool, Refusal> {
        let entry = self.position(task).and_then(|at| self.entries.get(at));
        let Some(entry) = entry else {
            return Err(Refusal::NotQueued(task.clone()));
        };
        let landing = self.landing.as_ref();
        let is_landing =
            landing.is_some_and(|landing| landing.proposals.iter().any(|it| it.task == *task));
        match is_landing {
            true => Err(Refusal::Landing(task.clone())),
            false => Ok(entry.held.is_some()),
        }
    }

    fn forget_suspicion(&mut self) {
        self.suspects = 0;
        self.next_batch = None;
        // A person may have removed the cause.
        self.troubles = 0;
        self.retry_at = None;
    }
}
