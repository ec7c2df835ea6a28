//! Proposals of tasks with a source: when they are created, and the steps before an approval
//! (`REPO-3`).

use goondan_cli_agents::blocks::{QuestionCategory, UserQuestion};
use goondan_protocol::control::{TaskProposal, TaskVerdict};
use goondan_protocol::task::TaskRunKind;
use goondan_protocol::time::Timestamp;

use super::{Delivery, InputRefusal, RunWatch, Task, TaskEffect, plus};
use crate::fact::{Origin, RunOutcome, TaskEvent};
use crate::limits::{CHECK_OUTPUT_CHARS_ASKED, CHECK_OUTPUT_CHARS_MAX, RETRIES_MAX, RETRY_MS};
use crate::state::{GIVE_UP, Status};

/// Maximum length of an agent's last message that is stored for the summary of its proposal, in
/// characters.
const WORDS_CHARS_MAX: usize = 4_000;

/// Transient information about the next proposal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ProposalProgress {
    /// True while the proposal is being created.
    is_under_way: bool,
    /// Last message of the agent.
    words: Option<String>,
}

impl ProposalProgress {
    /// Stores the agent's last message, which describes the work if the agent writes no summary.
    pub(super) fn hear(&mut self, words: &str) {
        let words = words.trim();
        if !words.is_empty() {
            self.words = Some(words.chars().take(WORDS_CHARS_MAX).collect());
        }
    }
}

fn end_of(text: &str, chars: usize) -> String {
    let text = text.trim_end();
    let at = text.char_indices().nth_back(chars.saturating_sub(1));
    let at = at.map_or(0, |(at, _)| at);
    text.get(at..).unwrap_or(text).to_owned()
}

/// The `test.log` of a proposal.
fn test_log_of(verdict: &TaskVerdict) -> String {
    let end = match verdict.passed {
        true => "[`verify` passed]".to_owned(),
        false => format!("[`verify` failed: {}]", verdict.why),
    };
    format!("{}\n{end}\n", verdict.output)
        .trim_start()
        .to_owned()
}

impl Task {
    /// Returns true if completed work must be proposed first; the next run does not start then.
    pub(super) fn propose(&mut self, now: Timestamp) -> bool {
        let state = &self.state;
        // The only phase of a task is complete when its agent has ended, regardless of its reports.
        // The same applies to the last phase of a completed task whose agent has received a
        // message.
        let is_done = !state.task.source.is_none()
            && (state.task.total_phases == 1 || state.was_completed)
            && state.status() == Status::Running
            && state.run.is_none()
            && state.proposing.phase().is_none()
            && state.rests();
        if is_done {
            let phase = state.current_phase;
            self.complete_phase(phase, Vec::new(), now);
        }
        let state = &self.state;
        let Some(phase) = state.proposing.phase() else {
            return false;
        };
        let may_be = state.run.is_none() && state.is_paused.is_none();
        if !may_be || self.proposing.is_under_way {
            return true;
        }
        let verdict = state.proposing.verdict();
        if state.task.checks.verify && verdict.is_none() {
            self.request_check(TaskRunKind::Verify, now);
            return true;
        }
        let test_log = verdict.map(test_log_of);
        self.proposing.is_under_way = true;
        let words = self.proposing.words.take();
        self.effect(TaskEffect::MakeProposal {
            phase,
            words,
            test_log,
        });
        true
    }

    /// Returns true if the copy of the project must be set up first; the agent does not start then.
    pub(super) fn set_up(&mut self, now: Timestamp) -> bool {
        let state = &self.state;
        if !state.task.checks.setup || state.proposing.is_set_up() {
            return false;
        }
        match state.proposing.setup_problem() {
            Some(problem) => {
                let question = UserQuestion {
                    category: QuestionCategory::Confirmation,
                    question: format!("Try `setup` again? {problem}"),
                    options: vec!["go on".to_owned(), GIVE_UP.to_owned()],
                    default: None,
                    required: true,
                };
                self.ask(Origin::Supervisor, question, None, now);
            }
            None => self.request_check(TaskRunKind::Setup, now),
        }
        true
    }

    pub(super) fn run_kind(&self) -> TaskRunKind {
        let run = self.state.run.as_ref();
        run.map(|run| run.kind).unwrap_or_default()
    }

    /// Runs one of the task's commands, unless its next attempt must wait.
    fn request_check(&mut self, kind: TaskRunKind, now: Timestamp) {
        let state = &self.state;
        // Rate limits of the provider do not apply to the commands.
        let is_early = !state.is_rate_limited && state.not_before.is_some_and(|at| now < at);
        if is_early {
            return;
        }
        let run = state.runs + 1;
        let environment = state.environment().into_iter().collect();
        self.watch = RunWatch {
            active_at: Some(now),
            ..RunWatch::default()
        };
        let (session, carried) = (None, 0);
        self.record(
            now,
            TaskEvent::RunRequested {
                run,
                session,
                carried,
                kind,
                agent: None,
            },
        );
        self.effect(TaskEffect::StartRun {
            run,
            session: None,
            prompt: String::new(),
            environment,
            kind,
        });
    }

    /// A run of one of the task's commands ended.
    pub(super) fn check_ended(&mut self, run: u64, outcome: RunOutcome, now: Timestamp) {
        let printed = std::mem::take(&mut self.watch.printed);
        let is_lost = matches!(outcome, RunOutcome::Unknown | RunOutcome::NotStarted(_));
        let lost = self.state.proposing.lost();
        let outcome = match (self.run_kind(), outcome) {
            (TaskRunKind::Setup, RunOutcome::Failed(why)) => {
                let end = end_of(&printed, CHECK_OUTPUT_CHARS_ASKED);
                RunOutcome::Failed(format!("{why}; end of its output:\n{end}"))
            }
            (TaskRunKind::Verify, outcome) => {
                let why = match &outcome {
                    RunOutcome::Done => Some(String::new()),
                    RunOutcome::Failed(why) => Some(why.clone()),
                    RunOutcome::NotStarted(why) if lost >= RETRIES_MAX => Some(why.clone()),
                    RunOutcome::Unknown if lost >= RETRIES_MAX => {
                        Some("its outcome is unknown".to_owned())
                    }
                    _ => None,
                };
                if let Some(why) = why {
                    let verdict = TaskVerdict {
                        passed: outcome == RunOutcome::Done,
                        why,
                        output: end_of(&printed, CHECK_OUTPUT_CHARS_MAX),
                    };
                    self.record(now, TaskEvent::WorkVerified { run, verdict });
                }
                outcome
            }
            (_, outcome) => outcome,
        };
        let ended = TaskEvent::RunEnded {
            run,
            outcome,
            last_words: String::new(),
            stderr: std::mem::take(&mut self.watch.stderr),
            files: Vec::new(),
        };
        self.record(now, ended);
        self.watch = RunWatch::default();
        // The first lost attempt is repeated immediately.
        if is_lost && self.state.ended.is_none() && lost > 0 {
            let at = plus(now, RETRY_MS.saturating_mul(i64::from(lost)));
            let is_limited = false;
            self.record(now, TaskEvent::RetryPlanned { at, is_limited });
        }
    }

    pub(super) fn proposal_made(
        &mut self,
        phase: u32,
        result: Result<Option<TaskProposal>, String>,
        now: Timestamp,
    ) {
        self.proposing.is_under_way = false;
        if self.state.ended.is_some() || self.state.proposing.phase() != Some(phase) {
            return;
        }
        let (proposal, problem) = match result {
            Ok(proposal) => (proposal, None),
            Err(problem) => (None, Some(problem)),
        };
        self.record(
            now,
            TaskEvent::ProposalMade {
                phase,
                proposal,
                problem,
            },
        );
        self.record(now, TaskEvent::ReviewRequested { phase });
    }

    /// Allows the approval of the last phase only after its proposal was delivered.
    pub(super) fn deliver(
        &mut self,
        phase: u32,
        delivery: Delivery,
        now: Timestamp,
    ) -> Result<(), InputRefusal> {
        let is_last = phase >= self.state.task.total_phases;
        let wanted = self.state.to_deliver(phase).map(|it| it.digest.clone());
        match (wanted, delivery) {
            (_, Delivery::Left) => Ok(()),
            (None, _) if is_last && self.state.proposing.has_failed() => {
                Err(InputRefusal::NoProposal(phase))
            }
            (None, _) => Ok(()),
            (
                Some(wanted),
                Delivery::Delivered {
                    digest,
                    branch,
                    pull_request,
                },
            ) if wanted == digest => {
                let delivered = TaskEvent::ProposalDelivered {
                    digest,
                    branch,
                    pull_request,
                };
                self.record(now, delivered);
                Ok(())
            }
            (Some(_), _) => Err(InputRefusal::NotDelivered(phase)),
        }
    }
}
