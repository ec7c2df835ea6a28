//! Steps of an attempt to land proposals.

use goondan_protocol::task::TaskId;
use goondan_protocol::time::Timestamp;

use crate::entry::{OpenPullRequest, Outcome, Target};
use crate::exchange::{Action, LandingResult, Proof, Rebase};
use crate::limits::{PULL_REQUESTS_MAX, RETRIES_MAX, RETRY_MS};
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
        let batch_max = target.as_ref().map_or(1, Target::batch_max);
        let tasks: Vec<TaskId> = free
            .take(self.batch_size().min(batch_max))
            .take_while(|entry| target.as_ref() == Some(&entry.proposal.target))
            .map(|entry| entry.proposal.task.clone())
            .collect();
        if tasks.is_empty() {
            return;
        }
        self.retry_at = None;
        self.next_batch = None;
        let number = self.last.0 + 1;
        self.record(Record::AttemptBegun {
            attempt: number,
            tasks,
        });
        let opened = self.earlier();
        if opened.is_empty() {
            return self.rebase(number);
        }
        self.attempt = Some(Attempt::looking(number));
        self.act(Action::Look {
            attempt: number,
            opened,
        });
    }

    fn rebase(&mut self, attempt: u64) {
        self.attempt = Some(Attempt::rebasing(attempt));
        let action = Action::Rebase {
            attempt,
            earlier: self.earlier(),
            proposals: self.proposals_of(&self.last.1),
        };
        self.act(action);
    }

    /// Open pull requests of other tasks that the last attempt's proof covers, the oldest first.
    fn earlier(&self) -> Vec<OpenPullRequest> {
        let tried = self.proposals_of(&self.last.1);
        let is_earlier = |opened: &&OpenPullRequest| {
            tried.iter().any(|proposal| {
                proposal.target == opened.proposal.target && proposal.task != opened.proposal.task
            })
        };
        self.opened.iter().filter(is_earlier).cloned().collect()
    }

    /// The output of a failed proof, with the changes that its agent cannot see.
    fn with_earlier(&self, log: String) -> String {
        let earlier = self.earlier();
        let urls: Vec<&str> = earlier.iter().map(|opened| opened.url.as_str()).collect();
        match urls.is_empty() {
            true => log,
            false => format!(
                "{log}\n[It ran together with open pull requests, whose changes are not in your copy: {}]",
                urls.join(", ")
            ),
        }
    }

    pub(crate) fn looked(&mut self, attempt: u64, ended: Result<Vec<u64>, String>, now: Timestamp) {
        let current = self.attempt.as_ref();
        if !current.is_some_and(|it| it.number == attempt && it.step == Step::Looking) {
            return;
        }
        let ended = match ended {
            Ok(ended) => ended,
            Err(why) => return self.trouble(why, now),
        };
        for attempt in ended {
            if self.opened.iter().any(|opened| opened.attempt == attempt) {
                self.record(Record::PullRequestEnded { attempt });
            }
        }
        let open = self.earlier().len();
        if open > PULL_REQUESTS_MAX {
            let why = format!(
                "{open} pull requests of the queue are open, and it proves a change together with at \
                 most {PULL_REQUESTS_MAX}: merge or close some, then release it"
            );
            return self.hold_first(why);
        }
        self.rebase(attempt);
    }

    /// Size of the next batch. After a failed proof it is halved, until the cause is found.
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
                    // An earlier proposal may be the cause: the next batch ends before this one.
                    Some(before) if before > 0 => self.next_batch = Some(before),
                    _ => {
                        self.suspects = self.suspects.saturating_sub(1);
                        self.leave(task, Outcome::Conflict { base, text });
                    }
                }
            }
            Rebase::Blocked { why } => self.hold_first(why),
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
                let log = self.with_earlier(log);
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
        let pull_request = match &landing {
            LandingResult::Opened { url } => Some(url.clone()),
            _ => None,
        };
        match landing {
            // The caller opens the pull request next.
            LandingResult::Pushed { .. } => {}
            LandingResult::Done | LandingResult::Opened { .. } => {
                let landed = self.landing.as_ref().map_or(0, |it| it.proposals.len());
                self.suspects = self.suspects.saturating_sub(landed);
                self.troubles = 0;
                let reported = self.unreported.len();
                self.record(Record::Landed {
                    attempt,
                    pull_request,
                });
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
        self.troubles += 1;
        if self.troubles > RETRIES_MAX {
            return self.hold_first(why);
        }
        self.give_up();
        let wait = RETRY_MS.saturating_mul(2_i64.saturating_pow(self.troubles - 1));
        let at = now.as_unix_millis().saturating_add(wait);
        self.retry_at = Some(Timestamp::from_unix_millis(at));
    }

    /// Ends the attempt, and holds its first proposal for a person, so that the others can land.
    fn hold_first(&mut self, why: String) {
        let first = self.last.1.first().cloned();
        self.give_up();
        self.troubles = 0;
        self.suspects = 0;
        if let Some(task) = first {
            self.record(Record::Held { task, why });
        }
    }
}
