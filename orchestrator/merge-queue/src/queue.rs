//! The state machine of a queue.

use std::collections::{BTreeMap, VecDeque};

use goondan_protocol::task::TaskId;
use goondan_protocol::time::Timestamp;

use crate::entry::{Entry, OpenPullRequest, Outcome, Place, Proposal, Revision, Stage, Target};
use crate::exchange::{Action, Event, Landing, Output, Refusal};
use crate::limits::{BATCH_MAX, COMMITS_KNOWN, ENDED_KEPT};
use crate::progress::Attempt;
use crate::record::Record;

/// Queue of one workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeQueue {
    /// In the order in which they are tried.
    pub(crate) entries: Vec<Entry>,
    /// Outcomes that their tasks have not recorded yet.
    pub(crate) unreported: Vec<(Proposal, Outcome)>,
    /// Outcomes that their tasks have recorded, the oldest first.
    ended: VecDeque<(Proposal, Outcome)>,
    /// Pull requests that were open when they were last asked about, the oldest first.
    pub(crate) opened: Vec<OpenPullRequest>,
    /// Commits that the branch of each task's pull request may have, the oldest first.
    commits: BTreeMap<TaskId, VecDeque<Revision>>,
    /// Number and proposals of the last attempt.
    pub(crate) last: (u64, Vec<TaskId>),
    /// Landing that may have happened.
    pub(crate) landing: Option<Landing>,
    /// Progress of the attempt; none after a restart.
    pub(crate) attempt: Option<Attempt>,
    pub(crate) batch_max: usize,
    /// Number of proposals at the front that contain the cause of a failed proof; 0 without a failure.
    pub(crate) suspects: usize,
    /// Size of the next batch, because of a conflict within the last one.
    pub(crate) next_batch: Option<usize>,
    /// Consecutive failures for reasons other than the proposals.
    pub(crate) troubles: u32,
    pub(crate) retry_at: Option<Timestamp>,
    pub(crate) output: Output,
}

impl Default for MergeQueue {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            unreported: Vec::new(),
            ended: VecDeque::new(),
            opened: Vec::new(),
            commits: BTreeMap::new(),
            last: (0, Vec::new()),
            landing: None,
            attempt: None,
            batch_max: BATCH_MAX,
            suspects: 0,
            next_batch: None,
            troubles: 0,
            retry_at: None,
            output: Output::default(),
        }
    }
}

impl MergeQueue {
    /// Restores a queue from its records. Then call [`MergeQueue::resume`].
    #[must_use]
    pub fn restored(records: &[Record]) -> Self {
        let mut queue = Self::default();
        for record in records {
            queue.apply(record);
        }
        queue
    }

    /// Sets the most proposals that one proof covers; 1 if each must be proved alone.
    #[must_use]
    pub fn with_batches_of(mut self, batch_max: usize) -> Self {
        self.batch_max = batch_max.clamp(1, BATCH_MAX);
        self
    }

    /// Returns the actions that a crash prevented.
    pub fn resume(&mut self, now: Timestamp) -> Output {
        self.report_again();
        if let Some(landing) = self.landing.clone() {
            self.attempt = Some(Attempt::landing(landing.attempt));
            self.act(Action::Inspect(landing));
        } else {
            if self.last.0 > 0 {
                // It may have been in progress.
                let attempt = self.last.0;
                self.act(Action::Discard { attempt });
            }
            self.go_on(now);
        }
        std::mem::take(&mut self.output)
    }

    /// Handles an event. A refused event changes nothing.
    ///
    /// # Errors
    ///
    /// [`Refusal`], for changes by people only.
    pub fn handle(&mut self, event: Event, now: Timestamp) -> Result<Output, Refusal> {
        match event {
            Event::Enter(proposal) => self.enter(proposal)?,
            Event::Hold { task, why } => self.hold(task, why)?,
            Event::Release { task } => self.release(task)?,
            Event::Move { task, to } => self.move_to(task, to)?,
            Event::Prioritize { task, priority } => self.prioritize(task, priority)?,
            Event::Drop { task, why } => self.drop_entry(task, why)?,
            Event::Withdraw { task, why } => self.withdraw(task, why),
            Event::Looked { attempt, ended } => self.looked(attempt, ended, now),
            Event::Rebased { attempt, rebase } => self.rebased(attempt, rebase, now),
            Event::Proved { attempt, proof } => self.proved(attempt, proof, now),
            Event::Landed { attempt, landing } => self.landed(attempt, landing, now),
            Event::Acknowledged { task } => {
                if self.unreported.iter().any(|(it, _)| it.task == task) {
                    self.record(Record::Acknowledged { task });
                }
            }
            Event::Tick => {}
        }
        self.go_on(now);
        Ok(std::mem::take(&mut self.output))
    }

    /// Time when [`Event::Tick`] is due, if any.
    #[must_use]
    pub fn next_tick(&self) -> Option<Timestamp> {
        self.retry_at.filter(|_| self.attempt.is_none())
    }

    /// Proposals in the order in which they are tried.
    pub fn entries(&self) -> impl Iterator<Item = (&Entry, Stage)> {
        let entries = self.entries.iter();
        entries.map(|entry| (entry, self.stage(entry)))
    }

    /// Outcomes, the oldest first. Those that their tasks have not recorded yet are last.
    pub fn outcomes(&self) -> impl Iterator<Item = (&Proposal, &Outcome)> {
        let all = self.ended.iter().chain(&self.unreported);
        all.map(|(proposal, outcome)| (proposal, outcome))
    }

    /// Outcomes that their tasks have not recorded yet.
    pub fn unreported(&self) -> impl Iterator<Item = (&Proposal, &Outcome)> {
        let all = self.unreported.iter();
        all.map(|(proposal, outcome)| (proposal, outcome))
    }

    /// Proposals of the attempt in progress, in order.
    #[must_use]
    pub fn tried(&self) -> Vec<Proposal> {
        match &self.attempt {
            Some(_) => self.proposals_of(&self.last.1),
            None => Vec::new(),
        }
    }

    /// True if nothing waits, is in progress or must be reported.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.entries.is_empty() && self.unreported.is_empty()
    }

    fn stage(&self, entry: &Entry) -> Stage {
        let attempt = self.attempt.as_ref();
        let is_tried = attempt.is_some() && self.last.1.contains(&entry.proposal.task);
        match attempt {
            Some(attempt) if is_tried => attempt.stage(),
            _ if entry.held.is_some() => Stage::Held,
            _ => Stage::Waiting,
        }
    }

    pub(crate) fn act(&mut self, action: Action) {
        self.output.actions.push(action);
    }

    pub(crate) fn record(&mut self, record: Record) {
        self.apply(&record);
        self.output.records.push(record);
    }

    pub(crate) fn position(&self, task: &TaskId) -> Option<usize> {
        let mut entries = self.entries.iter();
        entries.position(|entry| entry.proposal.task == *task)
    }

    fn report_again(&mut self) {
        for (proposal, outcome) in self.unreported.clone() {
            self.act(Action::Report { proposal, outcome });
        }
    }

    /// Adds a record to the state.
    fn apply(&mut self, record: &Record) {
        match record {
            Record::Entered { proposal } => self.insert(Entry {
                proposal: proposal.clone(),
                held: None,
            }),
            Record::Held { task, why } => self.set_held(task, Some(why.clone())),
            Record::Released { task } => self.set_held(task, None),
            Record::Moved { task, to } => self.reorder(task, to),
            Record::Prioritized { task, priority } => {
                if let Some(mut entry) = self.take(task) {
                    entry.proposal.priority = *priority;
                    self.insert(entry);
                }
            }
            Record::AttemptBegun { attempt, tasks } => self.last = (*attempt, tasks.clone()),
            Record::LandingBegun {
                attempt,
                base,
                result,
            } => self.begin_landing(*attempt, base, result),
            Record::LandingAborted { .. } => self.landing = None,
            Record::PullRequestEnded { attempt } => {
                self.opened.retain(|opened| opened.attempt != *attempt);
            }
            Record::Landed { pull_request, .. } => {
                let Some(landing) = self.landing.take() else {
                    return;
                };
                for proposal in landing.proposals {
                    self.take(&proposal.task);
                    if let Some(url) = pull_request {
                        let task = &proposal.task;
                        self.opened.retain(|opened| opened.proposal.task != *task);
                        self.opened.push(OpenPullRequest {
                            attempt: landing.attempt,
                            proposal: proposal.clone(),
                            result: landing.result.clone(),
                            url: url.clone(),
                        });
                    }
                    let outcome = Outcome::Landed {
                        base: landing.base.clone(),
                        result: landing.result.clone(),
                        pull_request: pull_request.clone(),
                    };
                    self.unreported.push((proposal, outcome));
                }
            }
            Record::Left { task, outcome } => {
                if let Some(entry) = self.take(task) {
                    self.unreported.push((entry.proposal, outcome.clone()));
                }
            }
            Record::Acknowledged { task } => {
                let mut all = self.unreported.iter();
                if let Some(at) = all.position(|(proposal, _)| proposal.task == *task) {
                    let ended = self.unreported.remove(at);
                    self.ended.push_back(ended);
                    let beyond = self.ended.len().saturating_sub(ENDED_KEPT);
                    self.ended.drain(..beyond);
                }
            }
        }
    }

    fn begin_landing(&mut self, attempt: u64, base: &Revision, result: &Revision) {
        let proposals = self.proposals_of(&self.last.1);
        let mut replaces = Vec::new();
        for proposal in &proposals {
            if !matches!(proposal.target, Target::PullRequest { .. }) {
                continue;
            }
            let known = self.commits.entry(proposal.task.clone()).or_default();
            replaces.extend(known.iter().cloned());
            if !known.contains(result) {
                known.push_back(result.clone());
            }
            let beyond = known.len().saturating_sub(COMMITS_KNOWN);
            known.drain(..beyond);
        }
        self.landing = Some(Landing {
            attempt,
            proposals,
            base: base.clone(),
            result: result.clone(),
            replaces,
        });
    }

    pub(crate) fn proposals_of(&self, tasks: &[TaskId]) -> Vec<Proposal> {
        let entries = tasks.iter().filter_map(|task| {
            let at = self.position(task)?;
            self.entries.get(at)
        });
        entries.map(|entry| entry.proposal.clone()).collect()
    }

    /// Inserts an entry behind the last one whose priority is not lower.
    fn insert(&mut self, entry: Entry) {
        let priority = entry.proposal.priority;
        let mut entries = self.entries.iter();
        let behind = entries.rposition(|other| other.proposal.priority >= priority);
        self.entries.insert(behind.map_or(0, |at| at + 1), entry);
    }

    fn take(&mut self, task: &TaskId) -> Option<Entry> {
        let at = self.position(task)?;
        Some(self.entries.remove(at))
    }

    fn set_held(&mut self, task: &TaskId, held: Option<String>) {
        if let Some(at) = self.position(task)
            && let Some(entry) = self.entries.get_mut(at)
        {
            entry.held = held;
        }
    }

    fn reorder(&mut self, task: &TaskId, to: &Place) {
        let Some(entry) = self.take(task) else {
            return;
        };
        let at = match to {
            Place::First => 0,
            Place::Last => self.entries.len(),
            Place::Before(other) => self.position(other).unwrap_or(self.entries.len()),
        };
        self.entries.insert(at, entry);
    }
}
