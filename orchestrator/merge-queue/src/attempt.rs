//! Steps of an attempt to land proposals.

use goondan_protocol::task::TaskId;
use goondan_protocol::time::Timestamp;

use crate::entry::Outcome;
use crate::exchange::{Action, LandingResult, Proof, Rebase};
use crate::limits::{RETRIES_MAX, RETRY_MS};
use crate::progress::{Attempt, Step};
use crate::queue::MergeQueue;
use crate::record::Record;

impl MergeQueue {
    /// Begins the next attempt, unless one is in progress.
    pub(crate) fn go_on(&mut self, now: Timestamp) {
        if self.attempt.is_some() || self.retry_at.is_some_and(|at| now < at) {
            return;
        }
        let free = self.entries.iter().filter(|entry| entry.held.is_none());
        let mut free = free.peekable();
        let target = free.peek().map(|entry| entry.proposal.target.clone());
        let tasks: Vec<TaskId> = free
            .take(self.batch_size())
            .take_while(|entry| target.as_ref() == Some(&entry.proposal.target))
            .map(|entry| entry.proposal.task.clone())
            .collect();
        if tasks.is_empty() {
            return;
        }
        self.retry_at = None;
        self.next_batch = None;
        let number = self.last.0 + 1;
        let proposals = self.proposals_of(&tasks);
        self.record(Record::AttemptBegun {
            attempt: number,
            tasks,
        });
        self.attempt = Some(Attempt::rebasing(number));
        self.act(Action::Rebase {
            attempt: number,
            proposals,
        });
    }

    /// Halves the proposals of which one failed, until it is found.
    fn batch_size(&self) -> usize {
        let suspected = match self.suspects {
            0 => self.batch_max,
            suspects => (suspects / 2).max(1),
        };
        let allowed = self.next_batch.unwrap_or(suspected);
        allowed.min(suspected).min(self.batch_max).max(1)
    }

    pub(crate) fn rebased(&mut self, attempt: u64, rebase: Rebase, now: Timestamp) {
        let Some(current) = &mut self.attempt else {
            return;
        };
        if current.number != attempt || current.step != Step::Rebasing {
            return;
        }
        match rebase {
            Rebase::Clean { base, result } => {
                current.step = Step::Proving { base, result };
                self.act(Action::Prove { attempt });
            }
            Rebase::Conflict { base, task, text } => {
                let tasks = &self.last.1;
                let before = tasks.iter().position(|other| *other == task);
                self.give_up();
                match before {
                    // It may be the fault of those before it, which are tried without it.
                    Some(before) if before > 0 => self.next_batch = Some(before),
                    _ => {
                        self.suspects = self.suspects.saturating_sub(1);
                        self.leave(task, Outcome::Conflict { base, text });
                    }
                }
            }
            Rebase::Failed { why } => self.trouble(why, now),
        }
    }

    pub(crate) fn proved(&mut self, attempt: u64, proof: Proof, now: Timestamp) {
        let current = self.attempt.as_ref();
        let Some(current) = current.filter(|current| current.number == attempt) else {
            return;
        };
        let Step::Proving { base, result } = current.step.clone() else {
            return;
        };
        match proof {
            Proof::Passed => {
                self.troubles = 0;
                self.record(Record::LandingBegun {
                    attempt,
                    base,
                    result,
                });
                self.attempt = Some(Attempt::landing(attempt));
                if let Some(landing) = self.landing.clone() {
                    self.act(Action::Land(landing));
                }
            }
            Proof::Failed { log } => {
                self.troubles = 0;
                let tasks = self.last.1.clone();
                self.give_up();
                match tasks.as_slice() {
                    [task] => {
                        self.suspects = 0;
                        self.leave(task.clone(), Outcome::Unproved { base, log });
                    }
                    several => self.suspects = several.len(),
                }
            }
            Proof::Lost(why) => self.trouble(why, now),
        }
    }

    pub(crate) fn landed(&mut self, attempt: u64, landing: LandingResult, now: Timestamp) {
        let is_current = self
            .landing
            .as_ref()
            .is_some_and(|it| it.attempt == attempt);
        if !is_current {
            return;
        }
        match landing {
            LandingResult::Done => {
                let landed = self.landing.as_ref().map_or(0, |it| it.proposals.len());
                self.suspects = self.suspects.saturating_sub(landed);
                self.troubles = 0;
                let reported = self.unreported.len();
                self.record(Record::Landed { attempt });
                let reports = self.unreported.iter().skip(reported).cloned();
                let reports: Vec<_> = reports.collect();
                for (proposal, outcome) in reports {
                    self.act(Action::Report { proposal, outcome });
                }
                self.give_up();
            }
            LandingResult::TargetMoved => {
                self.record(Record::LandingAborted { attempt });
                self.give_up();
            }
            LandingResult::Failed { why } => {
                self.record(Record::LandingAborted { attempt });
                self.trouble(why, now);
            }
        }
    }

    /// Ends the attempt if it is about this task.
    pub(crate) fn give_up_attempt_of(&mut self, task: &TaskId) {
        if self.attempt.is_some() && self.last.1.contains(task) {
            self.give_up();
        }
    }

    fn give_up(&mut self) {
        if let Some(attempt) = self.attempt.take() {
            let attempt = attempt.number;
            self.act(Action::Discard { attempt });
        }
    }

    /// Repeats the attempt later. If that does not help, holds its first proposal for a person, so
    /// that the others can land.
    fn trouble(&mut self, why: String, now: Timestamp) {
        let first = self.last.1.first().cloned();
        self.give_up();
        self.troubles += 1;
        if self.troubles > RETRIES_MAX {
            self.troubles = 0;
            self.suspects = 0;
            if let Some(task) = first {
                self.record(Record::Held { task, why });
            }
            return;
        }
        let wait = RETRY_MS.saturating_mul(2_i64.saturating_pow(self.troubles - 1));
        let at = now.as_unix_millis().saturating_add(wait);
        self.retry_at = Some(Timestamp::from_unix_millis(at));
    }
}
