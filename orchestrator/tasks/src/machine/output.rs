//! What follows from what a run's output tells.

use goondan_cli_agents::blocks::{
    AgentError, Block, ErrorKind, Priority, Progress, QuestionCategory, UserQuestion,
};
use goondan_cli_agents::reply::Decision;
use goondan_cli_agents::usage::{Counter, UsageReport};
use goondan_cli_agents::{Event, PermissionRequest, Reset};
use goondan_protocol::time::Timestamp;

use super::{Effect, Task, plus};
use crate::fact::{Fact, Origin, PauseReason};
use crate::limits::{
    PERMISSION_WAIT_MS, RATE_LIMIT_DEFAULT_MS, RATE_LIMIT_JITTER_MS, RATE_LIMIT_MAX_MS,
    RATE_LIMIT_MIN_MS, RUN_FACTS_MAX, TEXT_CHARS_MAX,
};

impl Task {
    pub(super) fn told(&mut self, run: u64, event: Event, now: Timestamp) {
        if self.watch.facts > RUN_FACTS_MAX {
            return;
        }
        self.told_within_bounds(run, event, now);
        self.watch.facts += self.output.facts.len();
        if self.watch.facts > RUN_FACTS_MAX {
            let flood = format!("it told more than {RUN_FACTS_MAX} things");
            self.watch.result.get_or_insert(Err(flood));
            self.end_run(run);
        }
    }

    fn told_within_bounds(&mut self, run: u64, event: Event, now: Timestamp) {
        self.watch.active_at = Some(now);
        let is_taken = self.state.run.as_ref().is_some_and(|run| run.is_taken);
        let is_sign = !matches!(
            event,
            Event::Noise(_)
                | Event::Skipped(_)
                | Event::RateLimit(_)
                | Event::Error(_)
                | Event::SessionRefused(_)
        );
        if !is_taken && is_sign {
            self.record(now, Fact::PromptTaken { run });
        }
        match event {
            Event::Session { id, model } => self.session_opened(run, id, model, now),
            Event::SessionRefused(problem) => self.session_refused(run, problem, now),
            Event::Usage(report) => self.usage_told(run, report, now),
            Event::RateLimit(reset) => {
                let until = self.rate_limited_until(reset, now);
                self.watch.rate_limit = Some(until);
                self.let_exit(now);
            }
            Event::Result(result) => {
                // The first word on how it ended counts.
                let told = if result.is_ok {
                    Ok(())
                } else {
                    Err(shortened(result.text))
                };
                self.watch.result.get_or_insert(told);
                self.let_exit(now);
            }
            Event::PermissionWithdrawn { id } => self.withdraw_permission(run, Some(&id), now),
            // What people and the log read; nothing is decided by it.
            Event::Text(_)
            | Event::Tool(_)
            | Event::Retrying(_)
            | Event::Error(_)
            | Event::Unsupported { .. }
            | Event::Noise(_)
            | Event::Skipped(_) => {}
            // A task that has ended asks for nothing and cannot be completed.
            _ if self.state.ended.is_some() => {}
            Event::Block(block) => self.block(block, now),
            Event::Refused(refusal) => {
                self.refuse(&refusal.protocol, refusal.problem, now);
            }
            Event::Progress(progress) => self.progress(progress, now),
            Event::Plan(steps) if steps != self.state.plan => {
                self.record(now, Fact::PlanTold { steps });
            }
            Event::Plan(_) => {}
            Event::Permission(request) => self.permission_asked(run, request, now),
        }
    }

    fn session_opened(&mut self, run: u64, id: String, model: Option<String>, now: Timestamp) {
        let is_news = self.state.session.as_ref() != Some(&id)
            || (model.is_some() && self.state.model != model);
        if is_news && !id.is_empty() {
            let session = shortened(id);
            self.record(
                now,
                Fact::SessionOpened {
                    run,
                    session,
                    model,
                },
            );
        }
    }

    /// The run cannot go on; the next one begins a session, and is told how the task stands. One that began a session
    /// of its own has none to be refused.
    fn session_refused(&mut self, run: u64, problem: String, now: Timestamp) {
        let is_resumed = self
            .state
            .run
            .as_ref()
            .is_some_and(|run| run.session.is_some());
        if is_resumed && !self.state.is_session_lost {
            let problem = shortened(problem);
            self.record(now, Fact::SessionLost { run, problem });
            self.end_run(run);
        }
    }

    fn block(&mut self, block: Block, now: Timestamp) {
        // Nothing is asked once all is done.
        if self.state.is_work_completed && block.priority() > Priority::Completion {
            return;
        }
        match block {
            Block::DependencyRequest(request) => self.dependency_requested(request, now),
            Block::UserQuestion(question) => self.question_asked(question, now),
            Block::PhaseComplete(done) => self.phase_completed(done.phase, done.documents, now),
            Block::CustomTaskComplete(done) => {
                if self.state.task.total_phases > 0 {
                    let problem = "the task has phases; complete them one by one";
                    self.refuse("CUSTOM_TASK_COMPLETE", problem.to_owned(), now);
                } else if !self.state.is_work_completed {
                    let documents = done.documents;
                    self.record(now, Fact::WorkCompleted { documents });
                    self.find_documents();
                    self.let_exit(now);
                }
            }
            Block::Error(error) => self.error_reported(error, now),
            Block::Handoff(handoff) => {
                let text = handoff.text;
                self.record(now, Fact::WorkHandedOff { text: text.clone() });
                self.effect(Effect::CheckHandoff { text });
            }
        }
    }

    fn phase_completed(&mut self, phase: u32, documents: Vec<String>, now: Timestamp) {
        if self.state.review == Some(phase) {
            return;
        }
        if phase == 0 || phase != self.state.current_phase || self.state.review.is_some() {
            let current = self.state.current_phase;
            let problem =
                format!("phase {phase} is not the one that is under way, which is {current}");
            self.refuse("PHASE_COMPLETE", problem, now);
            return;
        }
        self.record(now, Fact::PhaseCompleted { phase, documents });
        self.record(now, Fact::ReviewRequested { phase });
        self.find_documents();
        self.effect(Effect::MakeCheckpoint {
            kind: "phase_completion",
        });
        self.let_exit(now);
    }

    fn error_reported(&mut self, error: AgentError, now: Timestamp) {
        let is_fatal = error.kind == ErrorKind::Fatal;
        let reason = error.message.clone();
        self.record(now, Fact::ErrorReported { error });
        self.effect(Effect::MakeCheckpoint { kind: "error" });
        if is_fatal {
            self.record(now, Fact::TaskFailed { reason });
            if let Some(run) = self.run_number() {
                self.end_run(run);
            }
        }
    }

    fn progress(&mut self, progress: Progress, now: Timestamp) {
        match progress {
            // The phase is what was approved, not what is said.
            Progress::Phase { .. } => {}
            Progress::Step { title, .. } if self.state.step.as_ref() != Some(&title) => {
                let step = shortened(title);
                self.record(now, Fact::StepStarted { step });
            }
            Progress::Percent(percent) if percent != self.state.progress => {
                self.record(now, Fact::ProgressMade { percent });
            }
            Progress::Document(file) if !self.state.documents.contains(&file) => {
                self.record(now, Fact::DocumentCreated { file });
            }
            Progress::Step { .. } | Progress::Percent(_) | Progress::Document(_) => {}
        }
    }

    fn permission_asked(&mut self, run: u64, asked: PermissionRequest, now: Timestamp) {
        let question = UserQuestion {
            category: QuestionCategory::Confirmation,
            question: shortened(format!(
                "May the agent run {}: {}?",
                asked.tool, asked.input
            )),
            options: Self::permission_options(),
            default: None,
            required: false,
        };
        let request = asked.id;
        let origin = Origin::Permission {
            run,
            request: request.clone(),
        };
        if !self.ask(origin, question, Some(PERMISSION_WAIT_MS), now) {
            // Nobody will ever be asked: the agent must not wait for it.
            let why = "too much was asked already".to_owned();
            self.answer_permission(run, request, Decision::Refuse(why), now);
        }
    }

    fn usage_told(&mut self, run: u64, report: UsageReport, now: Timestamp) {
        let counter = match report.counter {
            Counter::Run => format!("run-{run}"),
            Counter::Session(id) => format!("session-{}", shortened(id)),
        };
        let UsageReport { usage, cost, .. } = report;
        if !self.state.tokens.is_news(&counter, &usage, cost) {
            return;
        }
        self.record(
            now,
            Fact::UsageRecorded {
                counter,
                usage,
                cost,
                phase: None,
            },
        );
        let budget = self.state.task.budget;
        let percent = self.state.tokens.percent_of(&budget);
        if self.state.tokens.is_near(&budget) && !self.state.budget_warned {
            self.record(now, Fact::BudgetWarned { percent });
        }
        let is_live = self.state.ended.is_none() && self.state.is_paused.is_none();
        if is_live && self.state.tokens.would_pass(&budget) {
            let reason = PauseReason::Budget;
            self.record(now, Fact::TaskPaused { reason, why: None });
            self.end_run(run);
        }
    }

    /// When the next run may begin: as it was told, within bounds, and not all tasks at once.
    fn rate_limited_until(&self, reset: Reset, now: Timestamp) -> Timestamp {
        let wait = match reset {
            Reset::At(at) => at.as_unix_millis().saturating_sub(now.as_unix_millis()),
            Reset::After(span) => i64::try_from(span.as_millis()).unwrap_or(i64::MAX),
            Reset::Unknown => RATE_LIMIT_DEFAULT_MS,
        };
        let spread = self
            .state
            .task
            .task_id
            .as_str()
            .bytes()
            .fold(7_i64, |hash, byte| {
                (hash * 31 + i64::from(byte)) % RATE_LIMIT_JITTER_MS
            });
        let wait = wait.clamp(RATE_LIMIT_MIN_MS, RATE_LIMIT_MAX_MS);
        plus(now, wait.saturating_add(spread))
    }
}

fn shortened(mut text: String) -> String {
    if let Some((at, _)) = text.char_indices().nth(TEXT_CHARS_MAX) {
        text.truncate(at);
    }
    text
}
