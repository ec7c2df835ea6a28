//! Task state: the sum of its facts.

use std::collections::{BTreeMap, BTreeSet};

use goondan_cli_agents::blocks::{DependencyRequest, ErrorKind, UserQuestion};
use goondan_protocol::control::TaskDrill;
use goondan_protocol::ids::AgentName;
use goondan_protocol::task::{PlanStep, TaskRunKind};
use goondan_protocol::time::Timestamp;

use crate::fact::{
    HistoryEntry, InputOutcome, NewTask, Origin, PauseReason, Provision, RunOutcome, TaskEvent,
    rework_text,
};
use crate::limits::REWORKS_KEPT;

mod agents;
mod notifications;
mod plan;
mod proposal;
mod tokens;

pub use agents::{AgentUsage, HandOver, UsageSlot};
pub use goondan_protocol::task::TaskStatus as Status;
pub use notifications::{NotificationStage, NotificationState};
pub use tokens::{TokenEntry, TokenSpend, Tokens};

/// Answer to goondan's question that ends the task.
pub const GIVE_UP: &str = "fail";

/// Answer that allows all permissions of this kind until the task ends.
pub const ALLOW_FOR_TASK: &str = "allow for this task";

/// Progress of completed work.
const DONE_PERCENT: u8 = 100;

/// Request to people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersonInput {
    pub what: PersonInputKind,
    pub asked_at: Timestamp,
    /// Time when its default replaces an answer; none if it is required.
    pub until: Option<Timestamp>,
}

/// Request and its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PersonInputKind {
    Dependency(DependencyRequest, Option<Provision>),
    Question(Origin, UserQuestion, Option<InputOutcome>),
}

impl PersonInputKind {
    /// True while unanswered.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Dependency(_, None) | Self::Question(_, _, None))
    }
}

/// Note for the agent's next prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// Outcome of a request, by its id.
    Asked(String),
    Approved(u32),
    /// A phase was not approved, with the reason.
    Rework(u32, String),
    Message(String),
    /// The verify command failed, with the end of its output.
    Unverified(String),
    /// The outcome of its last run is unknown.
    OutcomeUnknown,
    Failed(String),
    /// Its last run was ended intentionally.
    Interrupted,
    /// It moved to another node from this one.
    Moved(String),
    /// Its files were rolled back to a checkpoint.
    Restored(String),
    /// It wrote an invalid block.
    Refused(String, String),
    /// It reported a recoverable error, with a recovery hint.
    Error(String, Option<String>),
}

/// A run of the agent's program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentRun {
    /// Its number, from 1.
    pub number: u64,
    pub kind: TaskRunKind,
    pub session: Option<String>,
    /// Its process: the id, and the start time in the kernel's units.
    pub process: Option<(u32, u64)>,
    carried: usize,
    /// True once the agent has shown progress on its prompt.
    pub is_taken: bool,
    /// True if the agent will restart because a block was refused, an error was reported, or the
    /// session was lost, and nothing was completed since.
    is_fruitless: bool,
    /// Result that the agent reported, or the reason of its failure.
    pub(crate) result: Option<Result<(), String>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastRun {
    pub number: u64,
    pub outcome: RunOutcome,
    /// Last message of the agent.
    pub last_words: String,
    /// The last lines of its standard error.
    pub stderr: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    pub task: NewTask,
    pub(crate) created_at: Timestamp,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) updated_at: Timestamp,
    pub(crate) ended: Option<(Status, Timestamp)>,
    /// Reason of the failure, if it failed.
    pub failure: Option<String>,
    pub(crate) is_paused: Option<PauseReason>,
    /// Shared budget that it waits for, while it is paused for one.
    pub(crate) shared_budget: Option<String>,
    /// Current phase, from 1; 0 before the start and for a task without phases.
    pub current_phase: u32,
    pub(crate) review: Option<u32>,
    /// Time at which the last review was requested.
    pub(crate) review_at: Timestamp,
    /// Proposal, for a task with a source.
    pub(crate) proposing: proposal::ProposalProcess,
    pub(crate) is_work_completed: bool,
    pub run: Option<AgentRun>,
    pub(crate) runs: u64,
    pub(crate) agent: AgentName,
    /// The work of the agent before, for the current one.
    pub(crate) hand_over: Option<HandOver>,
    /// Limits and usage of its agents.
    pub(crate) agents: BTreeMap<AgentName, AgentUsage>,
    /// Agent of the last recorded usage, with its model.
    charged: Option<(AgentName, Option<String>)>,
    /// Files that its agents changed, as their programs report them.
    pub(crate) changed_files: BTreeSet<String>,
    /// Last HANDOFF of its agent.
    pub(crate) handed_off: Option<String>,
    /// Session that the next run resumes.
    pub session: Option<String>,
    sessions: BTreeSet<String>,
    /// Outcomes of the open points that were decided in a chat, by their keys.
    pub(crate) decided: BTreeMap<String, String>,
    /// True if the session with the task's context is lost, and no other has started.
    pub(crate) is_session_lost: bool,
    /// Model name reported by its program.
    pub model: Option<String>,
    pub(crate) asks: BTreeMap<String, PersonInput>,
    /// Kinds of tools that are allowed for the whole task.
    pub(crate) allowed: BTreeSet<String>,
    pub(crate) notes: Vec<Note>,
    /// Its node, in a shared workspace.
    pub(crate) node: Option<String>,
    pub(crate) not_before: Option<Timestamp>,
    pub(crate) is_rate_limited: bool,
    pub(crate) failures: u32,
    pub(crate) unknown: u32,
    /// Recoverable errors reported since the last completion.
    pub(crate) recoveries: u32,
    /// Consecutive runs after which the agent restarted without completing anything.
    pub(crate) fruitless: u32,
    /// Consecutive runs that ended at a rate limit.
    pub(crate) rate_limited: u32,
    /// Reason why no run can succeed before a person changes something.
    pub(crate) blocked: Option<String>,
    /// Outcome of its last run.
    pub(crate) last_run: Option<LastRun>,
    /// True once an agent has accepted a prompt: later runs are continuations.
    pub(crate) has_begun: bool,
    /// Requested rework, with the phase.
    pub(crate) reworks: Vec<(u32, String)>,
    pub(crate) messages: Vec<String>,
    message_ids: BTreeSet<String>,
    /// True if the task was completed and then received a message: all its phases were approved
    /// once.
    pub(crate) was_completed: bool,
    /// True if the last run succeeded.
    is_run_done: bool,
    pub(crate) step: Option<String>,
    /// Its agent's plan, as last reported.
    pub(crate) plan: Vec<PlanStep>,
    pub(crate) progress: u8,
    pub(crate) documents: Vec<String>,
    /// Documents of the last completed work, as its agent lists them.
    pub(crate) completed_documents: Vec<String>,
    /// Listed documents that do not exist in the work area.
    pub(crate) missing_documents: Vec<String>,
    pub(crate) checkpoint: Option<String>,
    pub(crate) drill: Option<TaskDrill>,
    pub(crate) budget_warned: bool,
    pub(crate) notifications: notifications::Notifications,
    pub tokens: Tokens,
    /// Input tokens of the session that are not cached.
    pub(crate) session_input: u64,
}

impl State {
    /// Creates the state of a new task.
    #[must_use]
    pub fn new(task: NewTask, at: Timestamp) -> Self {
        Self {
            agent: task.agent.clone(),
            hand_over: None,
            agents: BTreeMap::new(),
            charged: None,
            changed_files: BTreeSet::new(),
            handed_off: None,
            task,
            created_at: at,
            started_at: None,
            updated_at: at,
            ended: None,
            failure: None,
            is_paused: None,
            shared_budget: None,
            current_phase: 0,
            review: None,
            review_at: at,
            proposing: proposal::ProposalProcess::default(),
            is_work_completed: false,
            run: None,
            runs: 0,
            session: None,
            sessions: BTreeSet::new(),
            decided: BTreeMap::new(),
            is_session_lost: false,
            model: None,
            asks: BTreeMap::new(),
            allowed: BTreeSet::new(),
            notes: Vec::new(),
            node: None,
            not_before: None,
            is_rate_limited: false,
            failures: 0,
            unknown: 0,
            recoveries: 0,
            fruitless: 0,
            rate_limited: 0,
            blocked: None,
            last_run: None,
            has_begun: false,
            reworks: Vec::new(),
            messages: Vec::new(),
            message_ids: BTreeSet::new(),
            was_completed: false,
            is_run_done: false,
            step: None,
            plan: Vec::new(),
            progress: 0,
            documents: Vec::new(),
            completed_documents: Vec::new(),
            missing_documents: Vec::new(),
            checkpoint: None,
            drill: None,
            budget_warned: false,
            notifications: notifications::Notifications::default(),
            tokens: Tokens::default(),
            session_input: 0,
        }
    }

    /// Current status. If it waits for several things, the most urgent one (`PROTO-5`).
    #[must_use]
    pub fn status(&self) -> Status {
        let is_open = |is_dependency: bool| {
            self.asks.values().any(|ask| {
                ask.what.is_open()
                    && matches!(ask.what, PersonInputKind::Dependency(..)) == is_dependency
            })
        };
        match self.ended {
            Some((status, _)) => status,
            None if self.started_at.is_none() => Status::Idle,
            None if self.is_paused.is_some() => Status::Paused,
            None if self.review.is_some() => Status::WaitingReview,
            None if is_open(true) => Status::WaitingDependency,
            None if is_open(false) => Status::WaitingQuestion,
            None => Status::Running,
        }
    }

    /// Reason why it waits (`TASK-4`).
    pub(crate) fn blocked_by(&self) -> Option<&'static str> {
        match self.status() {
            Status::WaitingDependency => Some("dependency"),
            Status::WaitingQuestion => Some("question"),
            Status::WaitingReview => Some("review"),
            Status::Running if self.is_rate_limited => Some("rate_limit"),
            _ => None,
        }
    }

    /// Open asks, in the order in which they were made.
    pub fn open_asks(&self) -> impl Iterator<Item = (&str, &PersonInput)> {
        let asks = self.asks.iter().filter(|(_, ask)| ask.what.is_open());
        asks.map(|(id, ask)| (id.as_str(), ask))
    }

    /// True if its agent succeeded, and there is nothing to report to it.
    pub(crate) fn rests(&self) -> bool {
        let is_for_later = |note: &Note| matches!(note, Note::Interrupted | Note::Moved(_));
        self.is_run_done && self.notes.iter().all(is_for_later)
    }

    /// Reason why its last run failed, if it did.
    pub(crate) fn last_failure(&self) -> Option<&str> {
        match &self.last_run.as_ref()?.outcome {
            RunOutcome::Failed(why) | RunOutcome::NotStarted(why) | RunOutcome::Blocked(why) => {
                Some(why)
            }
            _ => None,
        }
    }

    /// Provided secrets as environment variables: name and reference.
    #[must_use]
    pub fn environment(&self) -> BTreeMap<String, String> {
        let provided = self.asks.values().filter_map(|ask| match &ask.what {
            PersonInputKind::Dependency(request, Some(Provision::Secret(reference)))
                if request.kind.is_environment() =>
            {
                Some((request.name.clone(), reference.clone()))
            }
            _ => None,
        });
        provided.collect()
    }

    pub fn sessions(&self) -> impl Iterator<Item = &str> {
        self.sessions.iter().map(String::as_str)
    }

    /// Adds a fact.
    pub fn apply(&mut self, entry: &HistoryEntry) {
        let at = entry.timestamp;
        self.updated_at = self.updated_at.max(at);
        match &entry.fact {
            TaskEvent::TaskCreated(_) => {}
            TaskEvent::WorkHandedOff { text } => self.handed_off = Some(text.clone()),
            TaskEvent::NodeEntered { node } => {
                if let Some(before) = self.node.replace(node.clone()) {
                    self.notes.push(Note::Moved(before));
                }
            }
            TaskEvent::ErrorReported { error } if error.kind == ErrorKind::Fatal => {
                self.fail(&error.message, at);
            }
            TaskEvent::ErrorReported { error } => {
                self.recoveries += 1;
                self.is_fruitless();
                let recovery = error.recovery.clone();
                self.notes
                    .push(Note::Error(error.message.clone(), recovery));
            }
            TaskEvent::RunRequested {
                run,
                session,
                carried,
                kind,
                ..
            } => {
                self.run = Some(AgentRun {
                    number: *run,
                    kind: *kind,
                    session: session.clone(),
                    process: None,
                    carried: *carried,
                    is_taken: false,
                    is_fruitless: false,
                    result: None,
                });
                self.runs = self.runs.max(*run);
                if kind.is_agent() && session.is_none() {
                    self.session_input = 0;
                }
                if kind.is_agent() {
                    // A message is pending, otherwise the task would be completed.
                    self.is_work_completed = false;
                    self.not_before = None;
                    self.is_rate_limited = false;
                    self.is_run_done = false;
                }
            }
            TaskEvent::AgentStarted {
                pid, start_time, ..
            } => {
                self.started_at.get_or_insert(at);
                if let Some(run) = &mut self.run {
                    run.process = pid.zip(*start_time);
                }
            }
            TaskEvent::ResultReported { error, .. } => {
                if let Some(run) = &mut self.run {
                    run.result = Some(error.clone().map_or(Ok(()), Err));
                }
            }
            TaskEvent::RunCutOff { .. } => {}
            TaskEvent::PromptTaken { .. } => {
                self.has_begun = true;
                if let Some(run) = &mut self.run {
                    run.is_taken = true;
                    self.notes.drain(..run.carried.min(self.notes.len()));
                    run.carried = 0;
                }
            }
            TaskEvent::SessionOpened { session, model, .. } => {
                self.session = Some(session.clone());
                self.sessions.insert(session.clone());
                self.is_session_lost = false;
                if model.is_some() {
                    self.model.clone_from(model);
                }
            }
            TaskEvent::SessionLost { .. } => {
                self.session = None;
                self.is_session_lost = true;
                self.is_fruitless();
            }
            TaskEvent::RunEnded {
                run,
                outcome,
                last_words,
                stderr,
                files,
            } => {
                self.note_changed(files);
                self.last_run = Some(LastRun {
                    number: *run,
                    outcome: outcome.clone(),
                    last_words: last_words.clone(),
                    stderr: stderr.clone(),
                });
                self.run_ended(outcome, at);
            }
            TaskEvent::AgentChanged { from, to, .. } => self.agent_changed(from, to),
            TaskEvent::RetryPlanned { at, is_limited } => {
                self.not_before = Some(*at);
                self.is_rate_limited |= is_limited;
            }
            TaskEvent::PhaseStarted { phase } => {
                self.current_phase = *phase;
                self.started_at.get_or_insert(at);
                self.progress = 0;
            }
            TaskEvent::PhaseCompleted { phase, documents } => {
                self.recovered();
                self.proposing.completed(*phase, &self.task.source);
                self.add_documents(documents);
                self.progress = DONE_PERCENT;
                self.completed_documents.clone_from(documents);
                self.missing_documents.clear();
            }
            TaskEvent::WorkCompleted { documents } => {
                self.recovered();
                self.is_work_completed = true;
                self.add_documents(documents);
                self.progress = DONE_PERCENT;
                self.completed_documents.clone_from(documents);
                self.missing_documents.clear();
            }
            TaskEvent::DocumentsMissing { documents } => {
                self.missing_documents.clone_from(documents);
            }
            TaskEvent::StepStarted { step } => self.step = Some(step.clone()),
            TaskEvent::PlanTold { steps } => self.planned(steps),
            TaskEvent::ProgressMade { percent } => self.progress = *percent,
            TaskEvent::DocumentCreated { file } => self.add_documents(std::slice::from_ref(file)),
            TaskEvent::CheckpointCreated { checkpoint_id } => {
                self.checkpoint = Some(checkpoint_id.clone());
            }
            TaskEvent::CheckpointRestored { checkpoint_id, .. } => {
                self.restored(checkpoint_id);
            }
            TaskEvent::RestoreDrilled {
                checkpoint_id,
                entries,
                problem,
            } => {
                self.drill = Some(TaskDrill {
                    checkpoint_id: checkpoint_id.clone(),
                    at,
                    entries: *entries,
                    problem: problem.clone(),
                });
            }
            TaskEvent::DependencyRequested { id, request, until } => {
                let what = PersonInputKind::Dependency(request.clone(), None);
                self.asks.insert(
                    id.clone(),
                    PersonInput {
                        what,
                        asked_at: at,
                        until: *until,
                    },
                );
            }
            TaskEvent::QuestionAsked {
                id,
                origin,
                question,
                until,
            } => {
                let what = PersonInputKind::Question(origin.clone(), question.clone(), None);
                self.asks.insert(
                    id.clone(),
                    PersonInput {
                        what,
                        asked_at: at,
                        until: *until,
                    },
                );
            }
            TaskEvent::DependencyProvided { id, provision } => {
                self.close_ask(id, |what| match what {
                    PersonInputKind::Dependency(_, provided) => *provided = Some(provision.clone()),
                    PersonInputKind::Question(..) => {}
                });
            }
            TaskEvent::QuestionAnswered { id, answer } => {
                self.close_ask(id, |what| match what {
                    PersonInputKind::Question(_, _, answered) => *answered = Some(answer.clone()),
                    PersonInputKind::Dependency(..) => {}
                });
                if self.is_given_up(id) {
                    self.fail("abandoned by a person", at);
                }
            }
            TaskEvent::WorkVerified { verdict, .. } => self.proposing.verified(verdict),
            TaskEvent::ProposalMade {
                proposal, problem, ..
            } => self.proposing.made(proposal.as_ref(), problem.as_deref()),
            TaskEvent::ProposalDelivered {
                digest,
                branch,
                pull_request,
            } => {
                let (branch, url) = (branch.as_deref(), pull_request.as_deref());
                self.proposing.delivered(digest, branch, url);
            }
            TaskEvent::ReviewRequested { phase } => {
                self.review = Some(*phase);
                self.review_at = at;
                self.proposing.reviewed();
            }
            TaskEvent::ReviewApproved { phase } => {
                self.review = None;
                self.completed_documents.clear();
                self.missing_documents.clear();
                if *phase < self.task.total_phases {
                    self.current_phase = phase + 1;
                }
                self.notes.push(Note::Approved(*phase));
            }
            TaskEvent::DecisionMade { about, how, .. } => {
                self.decided.insert(about.clone(), how.clone());
            }
            TaskEvent::MessageSent { id, text } => self.message_sent(id.as_ref(), text),
            TaskEvent::ReviewWithdrawn { .. } => self.back_to_work(),
            TaskEvent::ReviewReworked {
                phase,
                text,
                comments,
            } => {
                self.back_to_work();
                let text = rework_text(text, comments);
                self.notes.push(Note::Rework(*phase, text.clone()));
                self.reworks.push((*phase, text));
                let beyond = self.reworks.len().saturating_sub(REWORKS_KEPT);
                self.reworks.drain(..beyond);
            }
            TaskEvent::ProtocolRefused { protocol, problem } => {
                self.is_fruitless();
                self.notes
                    .push(Note::Refused(protocol.clone(), problem.clone()));
            }
            TaskEvent::UsageRecorded {
                counter,
                usage,
                cost,
                phase,
                session,
            } => {
                let phase = phase.unwrap_or(self.current_phase);
                let before = self.tokens.total();
                self.tokens.record(at, phase, counter, usage, *cost);
                let taken = self.tokens.total().beyond(&before);
                self.session_input = self.session_input.saturating_add(taken.usage.input_tokens);
                self.charge(at, &taken);
                if let Some(session) = session {
                    self.tokens.record_session(counter, session);
                }
            }
            TaskEvent::BudgetWarned { .. } => self.budget_warned = true,
            TaskEvent::BudgetChanged { budget } => {
                self.task.budget = *budget;
                self.budget_warned = false;
            }
            TaskEvent::NotificationRequested { notification, .. } => {
                self.notifications.add(notification, at);
            }
            TaskEvent::NotificationBegun { id } => {
                self.notifications.set(id, NotificationStage::Begun);
            }
            TaskEvent::Notified { id } => self.notifications.set(id, NotificationStage::Sent),
            TaskEvent::NotificationFailed { id, why } => {
                self.notifications
                    .set(id, NotificationStage::Failed(why.clone()));
            }
            TaskEvent::TaskPaused { reason, why } => {
                self.is_paused = Some(*reason);
                self.shared_budget.clone_from(why);
            }
            TaskEvent::TaskResumed {} => {
                self.is_paused = None;
                self.shared_budget = None;
            }
            TaskEvent::TaskCompleted {} => {
                self.ended = Some((Status::Completed, at));
                self.progress = DONE_PERCENT;
            }
            TaskEvent::TaskFailed { reason } => self.fail(reason, at),
            TaskEvent::TaskCancelled {} => self.ended = Some((Status::Cancelled, at)),
        }
    }

    /// Resets the restart counters after progress. Notes in the current prompt are kept until the
    /// prompt is accepted.
    fn recovered(&mut self) {
        self.forget_restarts();
        if let Some(run) = &mut self.run {
            run.is_fruitless = false;
        }
        let carried = self.run.as_ref().map_or(0, |run| run.carried);
        let mut place = 0;
        self.notes.retain(|note| {
            place += 1;
            place <= carried || !matches!(note, Note::Error(..))
        });
    }

    /// Records that the current run makes the agent restart.
    fn is_fruitless(&mut self) {
        if let Some(run) = &mut self.run {
            run.is_fruitless = true;
        }
    }

    /// Ends a review without an approval.
    fn back_to_work(&mut self) {
        self.review = None;
        self.progress = 0;
        self.completed_documents.clear();
        self.missing_documents.clear();
        if let Some(failed) = self.proposing.failed_verdict() {
            self.notes.push(Note::Unverified(failed.output.clone()));
        }
    }

    /// True if a person's message is not in the prompt of any run yet.
    pub(crate) fn has_message(&self) -> bool {
        let carried = self.run.as_ref().map_or(0, |run| run.carried);
        let mut waiting = self.notes.iter().skip(carried);
        waiting.any(|note| matches!(note, Note::Message(_)))
    }

    /// Messages that no agent has received yet, the oldest first.
    pub(crate) fn waiting_messages(&self) -> Vec<String> {
        let messages = self.notes.iter().filter_map(|note| match note {
            Note::Message(text) => Some(text.clone()),
            _ => None,
        });
        messages.collect()
    }

    /// True if a message with this id was accepted.
    pub(crate) fn is_message(&self, id: &str) -> bool {
        self.message_ids.contains(id)
    }

    fn message_sent(&mut self, id: Option<&String>, text: &str) {
        self.message_ids.extend(id.cloned());
        if let Some((status, _)) = self.ended.take() {
            self.continued(status);
        }
        // It does not wait for a retry delay.
        self.forget_restarts();
        if !self.is_rate_limited {
            self.not_before = None;
        }
        self.notes.push(Note::Message(text.to_owned()));
        self.messages.push(text.to_owned());
        let beyond = self.messages.len().saturating_sub(REWORKS_KEPT);
        self.messages.drain(..beyond);
    }

    /// Resets the end of a task, because a person continues it.
    fn continued(&mut self, ended_as: Status) {
        self.was_completed |= ended_as == Status::Completed;
        self.is_work_completed = false;
        self.failure = None;
        self.progress = 0;
        (self.is_paused, self.shared_budget) = (None, None);
        (self.failures, self.unknown) = (0, 0);
        self.blocked = None;
        self.proposing.try_again();
        let last = Note::Approved(self.task.total_phases);
        self.notes.retain(|note| *note != last);
    }

    /// Resets the counter of consecutive restarts.
    fn forget_restarts(&mut self) {
        (self.recoveries, self.fruitless, self.rate_limited) = (0, 0, 0);
    }

    fn fail(&mut self, reason: &str, at: Timestamp) {
        self.failure.get_or_insert_with(|| reason.to_owned());
        self.ended.get_or_insert((Status::Failed, at));
    }

    /// True if a person answered goondan's question by giving up.
    fn is_given_up(&self, id: &str) -> bool {
        let ask = self.asks.get(id).map(|ask| &ask.what);
        matches!(ask, Some(PersonInputKind::Question(Origin::Supervisor, _, Some(InputOutcome::Person(text)))) if text == GIVE_UP)
    }

    fn run_ended(&mut self, outcome: &RunOutcome, at: Timestamp) {
        let run = self.run.take();
        let kind = run.as_ref().map(|run| run.kind).unwrap_or_default();
        if !kind.is_agent() {
            return self.proposing.check_ended(kind, outcome);
        }
        self.fruitless += u32::from(run.is_some_and(|run| run.is_fruitless));
        if !matches!(outcome, RunOutcome::RateLimited(_)) {
            self.rate_limited = 0;
        }
        self.is_rate_limited = false;
        self.is_run_done = *outcome == RunOutcome::Done;
        match outcome {
            RunOutcome::Done => (self.failures, self.unknown) = (0, 0),
            // The prompt already reports the restart.
            RunOutcome::Ended if self.is_session_lost => {}
            RunOutcome::Ended => self.notes.push(Note::Interrupted),
            RunOutcome::Blocked(why) => {
                self.blocked = Some(why.clone());
                self.notes.push(Note::Interrupted);
            }
            RunOutcome::Failed(why) | RunOutcome::NotStarted(why) => {
                self.failures += 1;
                self.notes.push(Note::Failed(why.clone()));
            }
            RunOutcome::Unknown => {
                self.unknown += 1;
                self.notes.push(Note::OutcomeUnknown);
            }
            RunOutcome::RateLimited(until) => {
                let agent = self.agents.entry(self.agent.clone()).or_default();
                agent.limited(at, *until);
                self.not_before = Some(*until);
                self.is_rate_limited = true;
                self.rate_limited += 1;
            }
        }
    }

    fn add_documents(&mut self, documents: &[String]) {
        for document in documents {
            if !self.documents.contains(document) {
                self.documents.push(document.clone());
            }
        }
    }

    /// Applies a restore. The session remembers files that no longer exist, so the next run starts
    /// a new one (`CKPT-6`). Outcomes of runs that it does not remember are not reported to it.
    fn restored(&mut self, checkpoint_id: &str) {
        self.session = None;
        self.was_completed = false;
        // The completed work no longer exists.
        self.proposing.reviewed();
        self.is_session_lost = false;
        // Outcomes of earlier runs do not apply to these files, and a person requested the restore.
        (self.failures, self.unknown) = (0, 0);
        self.blocked = None;
        self.forget_restarts();
        if !self.is_rate_limited {
            self.not_before = None;
        }
        self.notes.retain(|note| {
            matches!(
                note,
                Note::Asked(_) | Note::Approved(_) | Note::Rework(..) | Note::Message(_)
            )
        });
        self.notes.push(Note::Restored(checkpoint_id.to_owned()));
    }

    fn close_ask(&mut self, id: &str, close: impl FnOnce(&mut PersonInputKind)) {
        let Some(ask) = self.asks.get_mut(id) else {
            return;
        };
        close(&mut ask.what);
        if let PersonInputKind::Question(
            Origin::Permission { kind, .. },
            _,
            Some(InputOutcome::Person(text)),
        ) = &ask.what
            && text == ALLOW_FOR_TASK
            && !kind.is_empty()
        {
            self.allowed.insert(kind.clone());
        }
        let told = match &ask.what {
            // A waiting run has received its answer; a finished one needs none.
            PersonInputKind::Question(Origin::Permission { .. }, ..) => false,
            PersonInputKind::Question(_, _, Some(InputOutcome::Withdrawn)) => false,
            PersonInputKind::Question(..) | PersonInputKind::Dependency(..) => true,
        };
        let is_supervisors = matches!(&ask.what, PersonInputKind::Question(Origin::Supervisor, ..));
        let is_by_person = matches!(
            &ask.what,
            PersonInputKind::Question(_, _, Some(InputOutcome::Person(_)))
                | PersonInputKind::Dependency(_, Some(Provision::Ready(_) | Provision::Secret(_)))
        );
        if is_supervisors {
            (self.failures, self.unknown) = (0, 0);
            self.blocked = None;
            self.proposing.try_again();
        }
        if is_supervisors || is_by_person {
            self.forget_restarts();
            // A person's answer does not wait for a retry delay.
            if !self.is_rate_limited {
                self.not_before = None;
            }
        }
        if told {
            self.notes.push(Note::Asked(id.to_owned()));
        }
    }
}
