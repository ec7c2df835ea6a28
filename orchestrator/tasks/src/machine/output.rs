//! Effects of the events in a run's output.

use std::collections::VecDeque;

use goondan_cli_agents::blocks::{
    AgentError, Block, ErrorKind, Priority, Progress, QuestionCategory, UserQuestion,
};
use goondan_cli_agents::reply::PermissionDecision;
use goondan_cli_agents::usage::{Counter, SessionUsage, UsageReport};
use goondan_cli_agents::{ChoicePrompt, CliEvent, Consent, PermissionRequest, Reset};
use goondan_protocol::time::Timestamp;

use super::watch::ProgramAsk;
use super::{ALLOW, ALLOW_FOR_TASK, APPROVE, REFUSE, Task, TaskEffect, plus, refusal_of};
use crate::fact::{Origin, PauseReason, TaskEvent};
use crate::limits::{
    EXIT_GRACE_MS, OPEN_ASKS_MAX, PERMISSION_WAIT_MS, RATE_LIMIT_DEFAULT_MS, RATE_LIMIT_JITTER_MS,
    RATE_LIMIT_MAX_MS, RATE_LIMIT_MIN_MS, RUN_FACTS_MAX, TEXT_CHARS_MAX, TOOL_EXIT_GRACE_MS,
};

impl Task {
    pub(super) fn on_output(&mut self, run: u64, event: CliEvent, now: Timestamp) {
        if !self.run_kind().is_agent() {
            // Output of tests is not output of the agent.
            self.watch.active_at = Some(now);
            return;
        }
        if self.watch.facts > RUN_FACTS_MAX {
            return;
        }
        self.told_within_bounds(run, event, now);
        self.watch.facts += self.output.facts.len();
        if self.watch.facts > RUN_FACTS_MAX {
            let flood = format!("it reported more than {RUN_FACTS_MAX} events");
            self.watch.result.get_or_insert(Err(flood));
            self.end_run(run);
        }
    }

    fn told_within_bounds(&mut self, run: u64, event: CliEvent, now: Timestamp) {
        self.alive(now);
        let is_taken = self.state.run.as_ref().is_some_and(|run| run.is_taken);
        let is_sign = !matches!(
            event,
            CliEvent::Noise(_)
                | CliEvent::Skipped(_)
                | CliEvent::RateLimit(_)
                | CliEvent::Error(_)
                | CliEvent::Permanent(_)
                | CliEvent::Retrying(_)
                | CliEvent::Stderr(_)
                | CliEvent::SessionRefused(_)
        );
        if !is_taken && is_sign {
            self.record(now, TaskEvent::PromptTaken { run });
        }
        self.note_files(&event);
        match event {
            // The next run cannot use it.
            CliEvent::PassingSession { .. } => {}
            CliEvent::Session { id, model } => self.session_opened(run, id, model, now),
            CliEvent::SessionRefused(problem) => self.session_refused(run, problem, now),
            CliEvent::Usage(report) => self.usage_told(run, report, now),
            CliEvent::RateLimit(reset) => {
                let until = self.rate_limited_until(&reset, now);
                self.watch.rate_limit = Some(until);
                self.let_exit(now);
            }
            CliEvent::Result(result) => {
                self.proposing.hear(&result.text);
                // The latest reported outcome counts: a program may continue after a first one.
                let told = match self.watch.tools.all_failed() {
                    _ if !result.is_ok => Err(shortened(result.text)),
                    Some(why) if !self.watch.is_answered => Err(why),
                    _ => Ok(()),
                };
                let error = told.as_ref().err().cloned();
                self.record(now, TaskEvent::ResultReported { run, error });
                self.watch.result = Some(told);
                self.watch.result_at.get_or_insert(now);
                self.watch.exit_grace_ms = EXIT_GRACE_MS;
                self.let_exit(now);
            }
            CliEvent::PermissionWithdrawn { id } => self.withdraw_permission(run, Some(&id), now),
            CliEvent::Permanent(why) => {
                self.watch.blocked.get_or_insert(shortened(why));
                self.end_run(run);
            }
            CliEvent::Stderr(lines) => self.watch.stderr = shortened(lines),
            CliEvent::Text(text) => self.watch.last_words.append(&text),
            // goondan's own tools do no work, so their success does not count.
            CliEvent::Tool(tool) if self.watch.tools.is_own(&tool) => {}
            CliEvent::Tool(tool) => {
                self.watch.last_words.tool();
                self.watch.tools.count(&tool);
            }
            // Only shown and logged; no decision depends on these.
            CliEvent::Retrying(_)
            | CliEvent::Error(_)
            | CliEvent::Unsupported { .. }
            | CliEvent::TextEnd
            | CliEvent::Thinking(_)
            | CliEvent::FileChanged(_)
            | CliEvent::Noise(_)
            | CliEvent::Skipped(_) => {}
            // A finished task makes no requests and cannot be completed.
            _ if self.state.ended.is_some() => {}
            CliEvent::Block(block) => self.block(block, now),
            CliEvent::ToolMessage(block) => {
                // The program continues, because its model reads the tool's result.
                self.watch.exit_grace_ms = TOOL_EXIT_GRACE_MS;
                self.block(block, now);
            }
            CliEvent::Refused(refusal) => {
                self.refuse(&refusal.protocol, refusal.problem, now);
            }
            CliEvent::Progress(progress) => self.progress(progress, now),
            CliEvent::Plan(steps) if steps != self.state.plan => {
                self.record(now, TaskEvent::PlanTold { steps });
            }
            CliEvent::Plan(_) => {}
            CliEvent::Permission(request) => self.permission_asked(run, request, now),
        }
    }

    fn session_opened(&mut self, run: u64, id: String, model: Option<String>, now: Timestamp) {
        let is_news = self.state.session.as_ref() != Some(&id)
            || (model.is_some() && self.state.model != model);
        if is_news && !id.is_empty() {
            let session = shortened(id);
            self.record(
                now,
                TaskEvent::SessionOpened {
                    run,
                    session,
                    model,
                },
            );
        }
    }

    /// The run cannot continue; the next one starts a session, and receives the task's progress. A
    /// run that started its own session has none that could be refused.
    fn session_refused(&mut self, run: u64, problem: String, now: Timestamp) {
        let is_resumed = self
            .state
            .run
            .as_ref()
            .is_some_and(|run| run.session.is_some());
        if is_resumed && !self.state.is_session_lost {
            let problem = shortened(problem);
            self.record(now, TaskEvent::SessionLost { run, problem });
            self.end_run(run);
        }
    }

    fn block(&mut self, block: Block, now: Timestamp) {
        // Requests are ignored after the whole work is complete.
        if self.state.is_work_completed && block.priority() > Priority::Completion {
            return;
        }
        // After a completed phase or a request, a person reviews the agent's work.
        self.watch.is_answered = !matches!(block, Block::CustomTaskComplete(_));
        match block {
            Block::DependencyRequest(request) => self.dependency_requested(request, now),
            Block::UserQuestion(question) => self.question_asked(question, now),
            Block::PhaseComplete(done) => self.phase_completed(done.phase, done.documents, now),
            Block::CustomTaskComplete(done) => {
                let phase = self.state.current_phase;
                let has_source = !self.state.task.source.is_none();
                let is_repeated = self.watch.completed_phase.is_some();
                if self.state.task.total_phases > 0 && is_repeated {
                    // It also completed the phase it was in, which is what can be complete now.
                } else if has_source && phase == self.state.task.total_phases {
                    // It is the last one, which ends the task.
                    self.phase_completed(phase, done.documents, now);
                } else if self.state.task.total_phases > 0 {
                    let problem = "the task has phases; complete them one by one";
                    self.refuse("CUSTOM_TASK_COMPLETE", problem.to_owned(), now);
                } else if let Some(why) = self.watch.tools.all_failed() {
                    let problem = format!("{why}; find out why, or explain how the work was done");
                    self.refuse("CUSTOM_TASK_COMPLETE", problem, now);
                } else if !self.state.is_work_completed {
                    let documents = done.documents;
                    self.record(now, TaskEvent::WorkCompleted { documents });
                    self.find_documents();
                    self.let_exit(now);
                }
            }
            Block::Error(error) => self.error_reported(error, now),
            Block::Handoff(handoff) => {
                let text = handoff.text;
                self.record(now, TaskEvent::WorkHandedOff { text: text.clone() });
                self.effect(TaskEffect::CheckHandoff { text });
            }
        }
    }

    fn phase_completed(&mut self, phase: u32, documents: Vec<String>, now: Timestamp) {
        // A message by a tool and by a block counts once, even if a person was quick in between.
        let is_repeated = self.watch.completed_phase == Some(phase);
        if is_repeated
            || self.state.review == Some(phase)
            || self.state.proposing.phase() == Some(phase)
        {
            return;
        }
        if phase == 0 || phase != self.state.current_phase || self.state.review.is_some() {
            let current = self.state.current_phase;
            let problem = format!("phase {phase} is not the current phase, {current}");
            self.refuse("PHASE_COMPLETE", problem, now);
            return;
        }
        self.watch.completed_phase = Some(phase);
        self.complete_phase(phase, documents, now);
        self.find_documents();
        self.let_exit(now);
    }

    /// Records that a phase is complete. Its review is requested now, or once its work is proposed.
    pub(super) fn complete_phase(&mut self, phase: u32, documents: Vec<String>, now: Timestamp) {
        self.record(now, TaskEvent::PhaseCompleted { phase, documents });
        if self.state.proposing.phase().is_none() {
            self.record(now, TaskEvent::ReviewRequested { phase });
        }
        self.effect(TaskEffect::MakeCheckpoint {
            kind: "phase_completion",
        });
    }

    fn error_reported(&mut self, error: AgentError, now: Timestamp) {
        let is_fatal = error.kind == ErrorKind::Fatal;
        let reason = error.message.clone();
        self.record(now, TaskEvent::ErrorReported { error });
        self.effect(TaskEffect::MakeCheckpoint { kind: "error" });
        if is_fatal {
            self.record(now, TaskEvent::TaskFailed { reason });
            if let Some(run) = self.run_number() {
                self.end_run(run);
            }
        }
    }

    fn progress(&mut self, progress: Progress, now: Timestamp) {
        match progress {
            // The approved phase counts, not the reported one.
            Progress::Phase { .. } => {}
            Progress::Step { title, .. } if self.state.step.as_ref() != Some(&title) => {
                let step = shortened(title);
                self.record(now, TaskEvent::StepStarted { step });
            }
            Progress::Percent(percent) if percent != self.state.progress => {
                self.record(now, TaskEvent::ProgressMade { percent });
            }
            Progress::Document(file) if !self.state.documents.contains(&file) => {
                self.record(now, TaskEvent::DocumentCreated { file });
            }
            Progress::Step { .. } | Progress::Percent(_) | Progress::Document(_) => {}
        }
    }

    /// The program requests something within its run, and waits.
    fn permission_asked(&mut self, run: u64, asked: PermissionRequest, now: Timestamp) {
        let request = asked.id.clone();
        if matches!(asked.consent, Consent::Tool) && self.state.allowed.contains(&asked.kind) {
            return self.answer_permission(run, request, PermissionDecision::AllowForTask, now);
        }
        let origin = Origin::Permission {
            run,
            request: request.clone(),
            kind: asked.kind.clone(),
        };
        let (question, wait) = match asked.consent {
            Consent::Tool => (permission_question(&asked), Some(PERMISSION_WAIT_MS)),
            Consent::Plan(plan) => {
                let consent = ProgramAsk::Plan;
                self.watch.program_asks.insert(request.clone(), consent);
                (plan_question(&plan), None)
            }
            Consent::Choices(choices) => {
                let mut choices = VecDeque::from(choices);
                let Some(first) = choices.front() else {
                    return;
                };
                let question = choice_question(first);
                let answers = Vec::new();
                choices.truncate(OPEN_ASKS_MAX);
                let consent = ProgramAsk::Choices { choices, answers };
                self.watch.program_asks.insert(request.clone(), consent);
                (question, None)
            }
        };
        if !self.ask(origin, question, wait, now) {
            // This will never be shown to a person: the agent must not wait for it.
            let why = "the limit of requests is reached".to_owned();
            self.answer_permission(run, request, PermissionDecision::Refuse(why), now);
        }
    }

    /// Forwards a person's answer to the program's request within its run.
    pub(super) fn program_answered(&mut self, origin: Origin, text: &str, now: Timestamp) {
        let Origin::Permission { run, request, .. } = &origin else {
            return;
        };
        let (run, request) = (*run, request.clone());
        let refusal = refusal_of(text);
        let decision = match self.watch.program_asks.get_mut(&request) {
            None | Some(ProgramAsk::Plan) => match (text, refusal) {
                (ALLOW_FOR_TASK, _) => PermissionDecision::AllowForTask,
                (ALLOW | APPROVE, _) => PermissionDecision::Allow,
                (_, Some("")) => PermissionDecision::Refuse("denied by a person".to_owned()),
                (_, Some(why)) => PermissionDecision::Refuse(why.to_owned()),
                (text, None) => PermissionDecision::Refuse(text.to_owned()),
            },
            Some(ProgramAsk::Choices { choices, answers }) => {
                if let Some(asked) = choices.pop_front() {
                    answers.push((asked.question, text.to_owned()));
                }
                if let Some(next) = choices.front() {
                    let question = choice_question(next);
                    if self.ask(origin, question, None, now) {
                        return;
                    }
                    PermissionDecision::Refuse("the limit of requests is reached".to_owned())
                } else {
                    PermissionDecision::Answers(std::mem::take(answers))
                }
            }
        };
        self.watch.program_asks.remove(&request);
        self.answer_permission(run, request, decision, now);
    }

    fn usage_told(&mut self, run: u64, report: UsageReport, now: Timestamp) {
        let counter = match report.counter {
            Counter::Run => format!("run-{run}"),
            Counter::Session(id) => format!("session-{}", shortened(id)),
        };
        let UsageReport {
            mut usage,
            mut cost,
            session,
            ..
        } = report;
        let tokens = &self.state.tokens;
        let session = session.map(|told| SessionUsage {
            id: shortened(told.id),
            ..told
        });
        if let Some(session) = &session {
            (usage, cost) = tokens.of_run(&counter, &usage, session);
        }
        let session = session.filter(|session| tokens.is_session_news(&counter, session));
        if session.is_none() && !tokens.is_news(&counter, &usage, cost) {
            return;
        }
        self.record(
            now,
            TaskEvent::UsageRecorded {
                counter,
                usage,
                cost,
                phase: None,
                session,
            },
        );
        let budget = self.state.task.budget;
        let percent = self.state.tokens.percent_of(&budget);
        if self.state.tokens.is_near(&budget) && !self.state.budget_warned {
            self.record(now, TaskEvent::BudgetWarned { percent });
        }
        let is_live = self.state.ended.is_none() && self.state.is_paused.is_none();
        if is_live && self.state.tokens.would_pass(&budget) {
            let reason = PauseReason::Budget;
            self.record(now, TaskEvent::TaskPaused { reason, why: None });
            self.end_run(run);
        }
    }

    /// Start time of the next run: as reported, within limits, and with jitter so that tasks do not
    /// all start together.
    fn rate_limited_until(&self, reset: &Reset, now: Timestamp) -> Timestamp {
        let wait = match *reset {
            Reset::At(at) => at.as_unix_millis().saturating_sub(now.as_unix_millis()),
            Reset::After(span) => i64::try_from(span.as_millis()).unwrap_or(i64::MAX),
            Reset::Clock(_) | Reset::Unknown => RATE_LIMIT_DEFAULT_MS,
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

fn permission_question(asked: &PermissionRequest) -> UserQuestion {
    // Omit a title that only repeats the command.
    let is_repeated = asked.detail.starts_with(&asked.tool);
    let question = match (asked.detail.as_str(), is_repeated) {
        ("", _) => format!("{}?", asked.tool),
        (detail, true) => detail.to_owned(),
        (detail, false) => format!("{}:\n{detail}", asked.tool),
    };
    let mut options = vec![ALLOW.to_owned()];
    if !asked.kind.is_empty() {
        options.push(ALLOW_FOR_TASK.to_owned());
    }
    options.push(REFUSE.to_owned());
    UserQuestion {
        category: QuestionCategory::Confirmation,
        question: shortened(question),
        options,
        default: None,
        required: false,
    }
}

fn plan_question(plan: &str) -> UserQuestion {
    UserQuestion {
        category: QuestionCategory::Confirmation,
        question: shortened(format!("The agent proposes this plan:\n{plan}")),
        options: vec![APPROVE.to_owned(), REFUSE.to_owned()],
        default: None,
        required: true,
    }
}

fn choice_question(asked: &ChoicePrompt) -> UserQuestion {
    let mut question = asked.question.clone();
    for (label, about) in &asked.options {
        if !about.is_empty() {
            question.push_str(&format!("\n{label}: {about}"));
        }
    }
    let options = asked.options.iter().map(|(label, _)| label.clone());
    UserQuestion {
        category: QuestionCategory::Choice,
        question: shortened(question),
        options: options.collect(),
        default: None,
        required: true,
    }
}

fn shortened(mut text: String) -> String {
    if let Some((at, _)) = text.char_indices().nth(TEXT_CHARS_MAX) {
        text.truncate(at);
    }
    text
}
