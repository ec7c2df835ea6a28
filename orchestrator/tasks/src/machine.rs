//! Task state machine (`TASK-7`, `TASK-8`): a pure function of the state, the input and the time.

use std::collections::BTreeMap;

use goondan_cli_agents::blocks::{QuestionCategory, UserQuestion};
use goondan_cli_agents::failure::is_permanent;
use goondan_cli_agents::telling_line;
use goondan_protocol::ids::AgentName;
use goondan_protocol::limits::MAX_FALLBACK_AGENTS;
use goondan_protocol::task::TaskRunKind;
use goondan_protocol::time::Timestamp;

use crate::decisions::ChatDecision;
use crate::fact::{
    HistoryEntry, NewTask, Origin, PauseReason, ReworkComment, RunOutcome, TaskEvent,
};
use crate::limits::{
    DESCRIPTION_BYTES_MAX, LONG_PAUSE_MS, PHASES_MAX, RATE_LIMITED_RUNS_MAX, RETRIES_MAX, RETRY_MS,
    SESSION_INPUT_TOKENS_MAX, STALL_MS, TEXT_CHARS_MAX, TITLE_CHARS_MAX, WORK_AFTER_RESULT_MS,
};
use crate::preamble::Preamble;
use crate::prompt::prompt_of;
use crate::state::{GIVE_UP, Note, PersonInputKind, State, Status};

mod asks;
mod choice;
mod exchange;
mod messages;
mod notices;
mod output;
mod proposals;
mod watch;

use watch::RunWatch;

pub use exchange::{Delivery, DiskUse, InputRefusal, Output, TaskEffect, TaskInput};
pub use notices::NotificationTrigger;

/// Properties of the agent's configuration that its runs depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentProfile {
    /// True if a run can resume a session. If not, each run receives the whole task (`AGENT-3`).
    pub resumes: bool,
    /// Protocol instructions for runs that receive the whole task.
    pub preamble: Preamble,
    /// Its account. Agents with the same account reach their usage limit together.
    pub account: String,
    /// Reset time of the last usage limit that its account reached in any task.
    pub limited_until: Option<Timestamp>,
}

impl Default for AgentProfile {
    fn default() -> Self {
        Self {
            resumes: true,
            preamble: Preamble::None,
            account: String::new(),
            limited_until: None,
        }
    }
}

/// Task, with transient information about its run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    state: State,
    watch: RunWatch,
    /// Configuration of its agents, as far as it exists.
    agents: BTreeMap<AgentName, AgentProfile>,
    /// Disk use of its work area at the last measurement.
    disk: Option<DiskUse>,
    /// Shared budget that is exhausted, if one is.
    shortage: Option<String>,
    /// True if [`Input::Tick`] was received since the task was restored.
    has_ticked: bool,
    /// Proposal in progress, and its inputs.
    proposing: proposals::ProposalProgress,
    output: Output,
}

impl Task {
    /// Creates a task, with its first fact.
    ///
    /// # Errors
    ///
    /// [`InputRefusal::BadTask`].
    pub fn create(task: NewTask, now: Timestamp) -> Result<(Self, HistoryEntry), InputRefusal> {
        let is_short = [&task.title, &task.kind]
            .into_iter()
            .all(|text| text.chars().nth(TITLE_CHARS_MAX).is_none())
            && task.description.len() <= DESCRIPTION_BYTES_MAX;
        let is_complete = !task.title.trim().is_empty() && !task.description.trim().is_empty();
        let is_bounded =
            task.total_phases <= PHASES_MAX && task.fallbacks.len() <= MAX_FALLBACK_AGENTS;
        if !is_short || !is_complete || !is_bounded {
            return Err(InputRefusal::BadTask);
        }
        let created = HistoryEntry {
            timestamp: now,
            fact: TaskEvent::TaskCreated(task.clone()),
        };
        Ok((Self::restored(State::new(task, now)), created))
    }

    /// Restores a task from its facts. The state of a run that was in flight is unknown: end what
    /// is left of it, then report it as [`TaskInput::Exited`].
    #[must_use]
    pub fn restored(state: State) -> Self {
        Self {
            state,
            watch: RunWatch::default(),
            agents: BTreeMap::new(),
            disk: None,
            shortage: None,
            has_ticked: false,
            proposing: proposals::ProposalProgress::default(),
            output: Output::default(),
        }
    }

    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Sets the current configuration of its agents.
    pub fn set_agents(&mut self, agents: BTreeMap<AgentName, AgentProfile>) {
        self.agents = agents;
    }

    /// The session that the next run resumes, if there is one and its agent can.
    fn session(&self) -> Option<&String> {
        let session = self.state.session.as_ref();
        let agent = self.agents.get(&self.state.agent);
        let is_used_up = self.state.session_input >= SESSION_INPUT_TOKENS_MAX;
        session.filter(|_| !is_used_up && agent.is_none_or(|agent| agent.resumes))
    }

    /// Handles an input. A refused input changes nothing.
    ///
    /// # Errors
    ///
    /// [`InputRefusal`], for inputs from people only.
    pub fn handle(&mut self, input: TaskInput, now: Timestamp) -> Result<Output, InputRefusal> {
        match input {
            TaskInput::Start => self.start(now)?,
            TaskInput::Pause => self.pause(now)?,
            TaskInput::Resume => self.resume(now)?,
            TaskInput::Cancel => self.cancel(now)?,
            TaskInput::Provide { id, provision } => self.provide(&id, provision, now)?,
            TaskInput::Answer { id, text } => self.answer(&id, &text, now)?,
            TaskInput::Approve { phase, delivery } => self.approve(phase, delivery, now)?,
            TaskInput::ProposalMade { phase, result } => self.proposal_made(phase, result, now),
            TaskInput::Rework {
                phase,
                text,
                comments,
            } => self.rework(phase, text, comments, now)?,
            TaskInput::Say { id, text } => self.say(id, text, now)?,
            TaskInput::SetBudget(budget) => {
                self.live()?;
                self.record(now, TaskEvent::BudgetChanged { budget });
            }
            TaskInput::Measured(disk) => self.measured(disk, now),
            TaskInput::SharedBudgets { shortage } => self.shared_budgets(shortage, now),
            TaskInput::CheckpointMade { id } => {
                self.record(now, TaskEvent::CheckpointCreated { checkpoint_id: id });
            }
            TaskInput::HandoffRefused { problem } => self.refuse("HANDOFF", problem, now),
            TaskInput::Drilled(drill) => {
                self.record(
                    now,
                    TaskEvent::RestoreDrilled {
                        checkpoint_id: drill.checkpoint_id,
                        entries: drill.entries,
                        problem: drill.problem,
                    },
                );
            }
            TaskInput::Restored { id, pre_restore } => {
                self.record(
                    now,
                    TaskEvent::CheckpointRestored {
                        checkpoint_id: id,
                        pre_restore,
                    },
                );
            }
            TaskInput::DocumentsFound { missing } if missing != self.state.missing_documents => {
                self.record(now, TaskEvent::DocumentsMissing { documents: missing });
            }
            TaskInput::DocumentsFound { .. } => {}
            TaskInput::Spawned {
                run,
                pid,
                start_time,
            } if self.is_current(run) => {
                self.watch.active_at = Some(now);
                self.record(
                    now,
                    TaskEvent::AgentStarted {
                        run,
                        pid: Some(pid),
                        start_time: Some(start_time),
                    },
                );
            }
            TaskInput::Begun { run } if self.is_current(run) => {
                self.watch.active_at = Some(now);
                let (pid, start_time) = (None, None);
                let started = TaskEvent::AgentStarted {
                    run,
                    pid,
                    start_time,
                };
                self.record(now, started);
            }
            TaskInput::CallRefused { run } if self.is_current(run) => self.call_refused(run, now),
            TaskInput::NotSpawned { run, error } if self.is_current(run) => {
                self.run_ended(run, RunOutcome::NotStarted(error), now);
            }
            TaskInput::SecretsLost { run, names, error } if self.is_current(run) => {
                self.ask_again(&names, now);
                self.run_ended(run, RunOutcome::NotStarted(error), now);
            }
            TaskInput::Told { run, event } if self.is_current(run) => {
                self.on_output(run, event, now);
            }
            TaskInput::Printed { run, text } if self.is_current(run) => self.watch.printed = text,
            TaskInput::Alive { run } if self.is_current(run) => self.alive(now),
            TaskInput::Exited { run, code } if self.is_current(run) => self.exited(run, code, now),
            TaskInput::Stopped { run, code } => {
                if self.is_current(run) {
                    self.watch.is_ended_on_purpose = true;
                    self.exited(run, code, now);
                }
                // The next run starts when the task is opened again.
                return Ok(std::mem::take(&mut self.output));
            }
            // These do not affect the task itself.
            TaskInput::OnNode(node) => {
                let is_new = self.state.node.as_ref() != Some(&node);
                if is_new && self.state.ended.is_none() {
                    self.record(now, TaskEvent::NodeEntered { node });
                }
                return Ok(std::mem::take(&mut self.output));
            }
            TaskInput::Notify(notifications) => {
                self.notify(notifications, now);
                return Ok(std::mem::take(&mut self.output));
            }
            TaskInput::NotificationBegun { id } => {
                self.notification_begun(id, now);
                return Ok(std::mem::take(&mut self.output));
            }
            TaskInput::NotificationEnded { id, result } => {
                self.notification_ended(id, result, now);
                return Ok(std::mem::take(&mut self.output));
            }
            // From a run that is over.
            TaskInput::Spawned { .. }
            | TaskInput::Begun { .. }
            | TaskInput::CallRefused { .. }
            | TaskInput::NotSpawned { .. }
            | TaskInput::SecretsLost { .. }
            | TaskInput::Told { .. }
            | TaskInput::Printed { .. }
            | TaskInput::Alive { .. }
            | TaskInput::Exited { .. } => {}
            TaskInput::Tick => self.tick(now),
        }
        self.go_on(now);
        Ok(std::mem::take(&mut self.output))
    }

    /// Handles an input that a person gave in a chat. A refused input changes nothing.
    ///
    /// # Errors
    ///
    /// [`InputRefusal`], as for [`Self::handle`].
    pub fn handle_in_chat(
        &mut self,
        input: TaskInput,
        decision: ChatDecision,
        now: Timestamp,
    ) -> Result<Output, InputRefusal> {
        let mut output = self.handle(input, now)?;
        let entry = HistoryEntry::of_chat(decision, now.max(self.state.updated_at));
        self.state.apply(&entry);
        output.facts.push(entry);
        Ok(output)
    }

    /// Time when [`TaskInput::Tick`] is due next, if known.
    #[must_use]
    pub fn next_tick(&self, now: Timestamp) -> Option<Timestamp> {
        let asks = self.state.open_asks().filter_map(|(_, ask)| ask.until);
        let watch = &self.watch;
        let stall = self
            .state
            .run
            .as_ref()
            .map(|_| plus(watch.active_at.unwrap_or(now), STALL_MS));
        let times = [self.state.not_before, watch.end_at, stall];
        asks.chain(times.into_iter().flatten()).min()
    }

    fn record(&mut self, now: Timestamp, fact: TaskEvent) {
        // A clock that moves backwards must not reorder the history.
        let timestamp = now.max(self.state.updated_at);
        let entry = HistoryEntry { timestamp, fact };
        self.state.apply(&entry);
        self.output.facts.push(entry);
    }

    fn effect(&mut self, effect: TaskEffect) {
        self.output.effects.push(effect);
    }

    fn is_current(&self, run: u64) -> bool {
        self.state
            .run
            .as_ref()
            .is_some_and(|current| current.number == run)
    }

    fn live(&self) -> Result<Status, InputRefusal> {
        let status = self.state.status();
        if status.is_final() {
            Err(InputRefusal::Final(status))
        } else {
            Ok(status)
        }
    }

    fn start(&mut self, now: Timestamp) -> Result<(), InputRefusal> {
        let status = self.live()?;
        if status != Status::Idle {
            return Err(InputRefusal::WrongStatus(status));
        }
        let phase = self.state.task.total_phases.min(1);
        self.record(now, TaskEvent::PhaseStarted { phase });
        Ok(())
    }

    fn pause(&mut self, now: Timestamp) -> Result<(), InputRefusal> {
        let status = self.live()?;
        if matches!(status, Status::Idle | Status::Paused) {
            return Err(InputRefusal::WrongStatus(status));
        }
        let reason = PauseReason::Person;
        self.record(now, TaskEvent::TaskPaused { reason, why: None });
        if let Some(run) = self.run_number() {
            self.watch.paused_at = Some(now);
            self.effect(TaskEffect::PauseRun { run });
        }
        self.effect(TaskEffect::MakeCheckpoint {
            kind: "manual_pause",
        });
        Ok(())
    }

    fn resume(&mut self, now: Timestamp) -> Result<(), InputRefusal> {
        let status = self.live()?;
        if status != Status::Paused {
            return Err(InputRefusal::WrongStatus(status));
        }
        let budget = &self.state.task.budget;
        if self.state.tokens.would_pass(budget) {
            let percent = self.state.tokens.percent_of(budget);
            return Err(InputRefusal::OverBudget { percent });
        }
        if let Some(why) = &self.shortage {
            return Err(InputRefusal::OverSharedBudget(why.clone()));
        }
        if let Some(disk) = self.over_quota() {
            return Err(InputRefusal::OverQuota(disk));
        }
        self.record(now, TaskEvent::TaskResumed {});
        let paused_at = self.watch.paused_at.take();
        if let (Some(run), Some(paused_at)) = (self.run_number(), paused_at) {
            self.effect(TaskEffect::ContinueRun { run });
            self.watch.active_at = Some(now);
            if now >= plus(paused_at, LONG_PAUSE_MS) {
                self.end_run(run);
            }
        }
        Ok(())
    }

    /// Disk use of its work area, if it exceeds the quota.
    fn over_quota(&self) -> Option<DiskUse> {
        self.disk.filter(|disk| disk.is_over())
    }

    /// Pauses a run that exceeds its disk quota in place. No work is lost and no file is deleted.
    fn measured(&mut self, disk: DiskUse, now: Timestamp) {
        self.disk = Some(disk);
        let is_held = self.state.ended.is_some() || self.state.is_paused.is_some();
        if let Some(run) = self.run_number()
            && disk.is_over()
            && !is_held
        {
            let reason = PauseReason::Quota;
            self.record(now, TaskEvent::TaskPaused { reason, why: None });
            self.watch.paused_at = Some(now);
            self.effect(TaskEffect::PauseRun { run });
        }
    }

    /// Applies the shared budgets. A run that exceeds one is ended because nothing else keeps a
    /// program from making its next call.
    fn shared_budgets(&mut self, shortage: Option<String>, now: Timestamp) {
        self.shortage = shortage;
        if self.state.ended.is_some() {
            return;
        }
        match (&self.shortage, self.state.is_paused, self.run_number()) {
            (Some(_), None, Some(run)) => {
                self.pause_for_shortage(now);
                self.end_run(run);
            }
            (None, Some(PauseReason::SharedBudget), _) => {
                self.watch.paused_at = None;
                self.record(now, TaskEvent::TaskResumed {});
            }
            _ => {}
        }
    }

    fn pause_for_shortage(&mut self, now: Timestamp) {
        let reason = PauseReason::SharedBudget;
        let why = self.shortage.clone();
        self.record(now, TaskEvent::TaskPaused { reason, why });
    }

    /// The maximum cost of the next call is known, and exceeds the remaining budget.
    fn call_refused(&mut self, run: u64, now: Timestamp) {
        if self.state.ended.is_none() && self.state.is_paused.is_none() {
            if self.shortage.is_some() {
                self.pause_for_shortage(now);
            } else {
                let reason = PauseReason::Budget;
                self.record(now, TaskEvent::TaskPaused { reason, why: None });
            }
        }
        self.end_run(run);
    }

    fn cancel(&mut self, now: Timestamp) -> Result<(), InputRefusal> {
        self.live()?;
        self.record(now, TaskEvent::TaskCancelled {});
        if let Some(run) = self.run_number() {
            self.end_run(run);
        }
        Ok(())
    }

    /// Approves a phase that is under review, or one in which the agent stopped without completing
    /// it. If the task has a source, a stopped phase is proposed and reviewed first.
    fn approve(
        &mut self,
        phase: u32,
        delivery: Delivery,
        now: Timestamp,
    ) -> Result<(), InputRefusal> {
        self.live()?;
        if phase >= self.state.task.total_phases && self.state.has_message() {
            return Err(InputRefusal::MessagePending(phase));
        }
        if self.state.review != Some(phase) {
            if self.state.stopped_phase() != Some(phase) {
                return Err(InputRefusal::NotUnderReview(phase));
            }
            let documents = self.state.documents.clone();
            self.withdraw_own_questions(now);
            self.complete_phase(phase, documents, now);
            if self.state.proposing.phase().is_some() {
                return Ok(());
            }
        }
        self.deliver(phase, delivery, now)?;
        self.record(now, TaskEvent::ReviewApproved { phase });
        if phase < self.state.task.total_phases {
            self.record(now, TaskEvent::PhaseStarted { phase: phase + 1 });
        }
        Ok(())
    }

    fn rework(
        &mut self,
        phase: u32,
        text: String,
        comments: Vec<ReworkComment>,
        now: Timestamp,
    ) -> Result<(), InputRefusal> {
        self.check_rework(phase, &text)?;
        if comments.is_empty() {
            check_text(&text)?;
        }
        self.record(
            now,
            TaskEvent::ReviewReworked {
                phase,
                text,
                comments,
            },
        );
        Ok(())
    }

    /// Checks that rework of a phase can be requested with this text, or with comments and without
    /// a text.
    ///
    /// # Errors
    ///
    /// [`InputRefusal`], as for [`TaskInput::Rework`].
    pub fn check_rework(&self, phase: u32, text: &str) -> Result<(), InputRefusal> {
        self.live()?;
        if self.state.review != Some(phase) {
            return Err(InputRefusal::NotUnderReview(phase));
        }
        match text.is_empty() {
            true => Ok(()),
            false => check_text(text),
        }
    }

    /// Checks that the documents of the last completed work exist, because a review relies on them.
    pub(super) fn find_documents(&mut self) {
        let documents = self.state.completed_documents.clone();
        if !documents.is_empty() {
            self.effect(TaskEffect::FindDocuments { documents });
        }
    }

    fn run_number(&self) -> Option<u64> {
        self.state.run.as_ref().map(|run| run.number)
    }

    fn end_run(&mut self, run: u64) {
        self.watch.is_ended_on_purpose = true;
        self.watch.end_at = None;
        self.effect(TaskEffect::EndRun { run });
    }

    /// Gives the run some time to exit on its own, because its work is done. The earliest time counts.
    fn let_exit(&mut self, now: Timestamp) {
        let end_at = plus(now, self.watch.exit_grace_ms);
        let sooner = self.watch.end_at.filter(|before| *before < end_at);
        self.watch.end_at = Some(sooner.unwrap_or(end_at));
    }

    /// Handles a sign of life. A program that works after its result is left to it, for a limited
    /// time.
    pub(super) fn alive(&mut self, now: Timestamp) {
        self.watch.active_at = Some(now);
        let last = self
            .watch
            .result_at
            .map(|at| plus(at, WORK_AFTER_RESULT_MS));
        if let (Some(end_at), Some(last)) = (self.watch.end_at, last) {
            let later = plus(now, self.watch.exit_grace_ms).min(last);
            self.watch.end_at = Some(end_at.max(later));
        }
    }

    fn exited(&mut self, run: u64, code: Option<i32>, now: Timestamp) {
        let watch = &self.watch;
        let tells_code = !self.state.tells_result() || !self.run_kind().is_agent();
        // A run that was lost with the daemon may have reported its result before.
        let reported = self.state.run.as_ref().and_then(|run| run.result.as_ref());
        let outcome = match (watch.result.as_ref().or(reported), watch.rate_limit, code) {
            (Some(Ok(())), _, _) => RunOutcome::Done,
            (_, Some(until), _) => RunOutcome::RateLimited(until),
            (Some(Err(why)), None, _) => RunOutcome::Failed(why.clone()),
            (None, None, _) if watch.is_ended_on_purpose => RunOutcome::Ended,
            (None, None, _) if watch.is_stalled => RunOutcome::Unknown,
            (None, None, Some(0)) if tells_code => RunOutcome::Done,
            (None, None, Some(code)) if code != 0 => {
                RunOutcome::Failed(match telling_line(&watch.stderr) {
                    Some(line) => format!("it exited with {code}: {line}"),
                    None => format!("it exited with {code}"),
                })
            }
            (None, None, _) => RunOutcome::Unknown,
        };
        let outcome = match (outcome, &watch.blocked) {
            // Output of tests may quote any error.
            (outcome, _) if !self.run_kind().is_agent() => outcome,
            (RunOutcome::Failed(_) | RunOutcome::Ended, Some(why)) => {
                RunOutcome::Blocked(why.clone())
            }
            (RunOutcome::Failed(why), None)
                if is_permanent(&why) || is_permanent(&watch.stderr) =>
            {
                RunOutcome::Blocked(why)
            }
            (outcome, _) => outcome,
        };
        self.run_ended(run, outcome, now);
    }

    fn run_ended(&mut self, run: u64, outcome: RunOutcome, now: Timestamp) {
        if !self.run_kind().is_agent() {
            return self.check_ended(run, outcome, now);
        }
        self.withdraw_permissions(run, now);
        let is_taken = self.state.run.as_ref().is_some_and(|run| run.is_taken);
        if outcome == RunOutcome::Done && !is_taken {
            // An agent that succeeded has read the prompt.
            self.record(now, TaskEvent::PromptTaken { run });
        }
        let has_failed = matches!(outcome, RunOutcome::Failed(_) | RunOutcome::NotStarted(_));
        let is_limited = matches!(outcome, RunOutcome::RateLimited(_));
        let fruitless = self.state.fruitless;
        let ended = TaskEvent::RunEnded {
            run,
            outcome,
            last_words: self.watch.last_words.take(),
            stderr: std::mem::take(&mut self.watch.stderr),
            files: std::mem::take(&mut self.watch.files),
        };
        self.record(now, ended);
        self.watch = RunWatch::default();
        if self.state.ended.is_some() {
            return;
        }
        if is_limited {
            self.effect(TaskEffect::MakeCheckpoint { kind: "rate_limit" });
        }
        let times = if has_failed {
            self.state.failures.checked_sub(1)
        } else if !is_limited && self.state.fruitless > fruitless {
            // The first retry is immediate, because it usually succeeds.
            self.state.fruitless.checked_sub(2)
        } else {
            None
        };
        if let Some(times) = times {
            let wait = RETRY_MS.saturating_mul(4_i64.saturating_pow(times));
            let at = plus(now, wait);
            let is_limited = false;
            self.record(now, TaskEvent::RetryPlanned { at, is_limited });
        }
    }

    /// Reason why the next run needs a person's decision; none if it needs none.
    fn doubt(&self) -> Option<String> {
        let state = &self.state;
        if let Some(why) = &state.blocked {
            return Some(format!("The agent cannot work: {why}"));
        }
        if state.failures > RETRIES_MAX {
            let why = state.last_failure().unwrap_or_default();
            return Some(format!(
                "The agent failed {} times in a row, most recently: {why}",
                state.failures
            ));
        }
        if state.recoveries > RETRIES_MAX {
            return Some(format!(
                "The agent reported an error {} times and has completed nothing since",
                state.recoveries
            ));
        }
        if state.fruitless > RETRIES_MAX {
            return Some(format!(
                "The agent started again {} times and has completed nothing since",
                state.fruitless
            ));
        }
        if state.rate_limited > RATE_LIMITED_RUNS_MAX {
            return Some(format!(
                "The agent hit a rate limit {} times in a row",
                state.rate_limited
            ));
        }
        if state.unknown > 1 || (state.unknown > 0 && self.session().is_none()) {
            return Some("The outcome of the agent's last run is unknown".to_owned());
        }
        let phase = state.current_phase;
        state
            .rests()
            .then(|| format!("The agent stopped before phase {phase} was complete"))
    }

    fn ask_person(&mut self, what: &str, now: Timestamp) {
        let question = UserQuestion {
            category: QuestionCategory::Confirmation,
            question: format!("{}. Go on?", what.trim_end_matches('.')),
            options: vec!["go on".to_owned(), GIVE_UP.to_owned()],
            default: None,
            required: true,
        };
        self.ask(Origin::Supervisor, question, None, now);
    }

    fn tick(&mut self, now: Timestamp) {
        self.close_late_asks(now);
        let is_first = !std::mem::replace(&mut self.has_ticked, true);
        if is_first && self.state.ended.is_none() && self.state.review.is_some() {
            // A daemon may have died before it checked them.
            self.find_documents();
        }
        let Some(run) = self.run_number() else {
            return;
        };
        if self.watch.end_at.is_some_and(|at| now >= at) {
            if self.watch.result.is_some() && !self.watch.is_ended_on_purpose {
                self.record(now, TaskEvent::RunCutOff { run });
            }
            self.end_run(run);
        }
        let active_at = *self.watch.active_at.get_or_insert(now);
        let is_held = self.state.is_paused.is_some() || self.waits_for_permission(run);
        let is_quiet = now >= plus(active_at, STALL_MS);
        if is_quiet && !is_held && !self.watch.is_ended_on_purpose && !self.watch.is_stalled {
            self.watch.is_stalled = true;
            self.effect(TaskEffect::EndRun { run });
        }
    }

    /// Advances the task: completes what is complete, and starts the next run.
    fn go_on(&mut self, now: Timestamp) {
        let state = &self.state;
        if state.ended.is_some() || state.status() == Status::Idle {
            return;
        }
        let is_approved = state
            .notes
            .contains(&Note::Approved(state.task.total_phases));
        // A task without phases ends with its agent, regardless of the agent's reports. The same
        // applies to a completed task whose agent has received a message.
        let needs_no_phase =
            state.task.total_phases == 0 || (state.was_completed && state.task.source.is_none());
        let is_at_rest = state.status() == Status::Running && state.rests();
        let is_done =
            (state.is_work_completed && !state.has_message()) || (needs_no_phase && is_at_rest);
        if state.review.is_none() && (is_done || is_approved) {
            self.record(now, TaskEvent::TaskCompleted {});
            if let Some(run) = self.run_number() {
                self.let_exit(now);
                if self.watch.result.is_none() && is_approved {
                    self.end_run(run);
                }
            }
            return;
        }
        if self.propose(now) {
            return;
        }
        self.withdraw_review(now);
        let state = &self.state;
        if state.status() != Status::Running || state.run.is_some() {
            return;
        }
        if self.set_up(now) {
            return;
        }
        if let Some(doubt) = self.doubt() {
            self.ask_person(&doubt, now);
            return;
        }
        if !self.choose_agent(now) {
            return;
        }
        let is_early = self.state.not_before.is_some_and(|at| now < at);
        if !is_early && !self.is_short(now) {
            self.request_run(now);
        }
    }

    /// Returns true if a budget is exhausted; then pauses the task.
    fn is_short(&mut self, now: Timestamp) -> bool {
        let state = &self.state;
        if state.tokens.would_pass(&state.task.budget) {
            let reason = PauseReason::Budget;
            self.record(now, TaskEvent::TaskPaused { reason, why: None });
        } else if self.shortage.is_some() {
            self.pause_for_shortage(now);
        } else if self.over_quota().is_some() {
            let reason = PauseReason::Quota;
            self.record(now, TaskEvent::TaskPaused { reason, why: None });
        } else {
            return false;
        }
        true
    }

    fn request_run(&mut self, now: Timestamp) {
        let state = &self.state;
        let (run, session) = (state.runs + 1, self.session().cloned());
        let profile = self.agents.get(&state.agent);
        let preamble = profile.map_or(&Preamble::None, |agent| &agent.preamble);
        let prompt = prompt_of(state, preamble, session.is_some());
        let has_choice = !state.task.fallbacks.is_empty();
        let agent = has_choice.then(|| state.agent.clone());
        let environment = state.environment().into_iter().collect();
        let carried = state.notes.len();
        self.watch = RunWatch {
            active_at: Some(now),
            ..RunWatch::default()
        };
        let requested = session.clone();
        self.record(
            now,
            TaskEvent::RunRequested {
                run,
                session: requested,
                carried,
                kind: TaskRunKind::Agent,
                agent,
            },
        );
        self.effect(TaskEffect::StartRun {
            run,
            session,
            prompt,
            environment,
            kind: TaskRunKind::Agent,
        });
    }
}

/// Adds milliseconds to a time.
fn plus(at: Timestamp, millis: i64) -> Timestamp {
    Timestamp::from_unix_millis(at.as_unix_millis().saturating_add(millis))
}

fn check_text(text: &str) -> Result<(), InputRefusal> {
    let is_long = text.chars().nth(TEXT_CHARS_MAX).is_some();
    if text.trim().is_empty() || is_long {
        Err(InputRefusal::BadText)
    } else {
        Ok(())
    }
}

fn open_ask<'s>(state: &'s State, id: &str) -> Result<&'s PersonInputKind, InputRefusal> {
    let ask = state
        .asks
        .get(id)
        .ok_or_else(|| InputRefusal::Unknown(id.to_owned()))?;
    if ask.what.is_open() {
        Ok(&ask.what)
    } else {
        Err(InputRefusal::Closed(id.to_owned()))
    }
}

/// Answer that allows a permission.
const ALLOW: &str = "allow";

/// Answer that allows a permission and all later ones of its kind.
const ALLOW_FOR_TASK: &str = crate::state::ALLOW_FOR_TASK;

/// Answer that refuses a permission. A reason may follow, after a colon.
const REFUSE: &str = "refuse";

/// Answer that approves a plan.
const APPROVE: &str = "approve";

/// Reason of a refusing answer; empty without a reason.
fn refusal_of(text: &str) -> Option<&str> {
    let rest = text.strip_prefix(REFUSE)?;
    match rest.strip_prefix(':') {
        Some(why) => Some(why.trim()),
        None => rest.is_empty().then_some(""),
    }
}

#[cfg(test)]
mod tests;
