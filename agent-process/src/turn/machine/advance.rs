//! Advances a turn once its appended events are durable.
//!
//! Only `step_forward` contains the conditions for asking the model, running tools and completing
//! the turn.

use goondan_protocol::event::TurnOutcome;
use goondan_protocol::ids::StepId;
use goondan_protocol::message::Message;
use goondan_protocol::observe::RuntimeEventKind as Kind;
use goondan_protocol::usage::ReplyCost;

use super::phase::{NextTurnAction, Phase};
use super::{RunningTurn, reply_id};
use crate::extensions::TurnEndDecision;
use crate::model::ModelLocation;
use crate::tool_call::{CallKey, ToolOutcome, ToolRules};
use crate::turn::calls::Calls;
use crate::turn::context::AdvanceContext;
use crate::turn::effect::{Scope, TurnEngineEffect};
use crate::turn::fault::EngineFault;
use crate::turn::recovered_turn::{OpenTurn, RecordedReply};

impl RunningTurn {
    /// Restores the state of the turn from its records.
    pub(crate) fn remember(&mut self, open: &OpenTurn) {
        self.remember_summary(open);
        let is_summary = |message: &&Message| message.step_id().is_some_and(StepId::is_summary);
        for message in open.messages().filter(|message| !is_summary(message)) {
            self.watch.take(message);
        }
        let replies = open.replies(&self.id);
        let spent: Vec<ReplyCost> = replies
            .map(|r| ReplyCost::of_metadata(&r.metadata))
            .collect();
        for spent in spent {
            self.count(spent);
        }
    }

    /// Resumes after the last recorded reply.
    pub(crate) fn resume_after<R: ToolRules>(&mut self, rules: &R, replied: RecordedReply) {
        self.end_compaction();
        self.phase = Phase::Settling(if replied.calls.is_empty() {
            NextTurnAction::End {
                step: replied.step,
                reply: replied.text,
            }
        } else {
            let step_id = StepId::of_turn(&self.id, replied.step);
            NextTurnAction::Call(Calls::resumed(rules, step_id, replied, &mut self.effects))
        });
    }

    /// Takes the result of a tool; extensions may replace it.
    pub(crate) fn finish_call(&mut self, key: CallKey, outcome: ToolOutcome) {
        if let Phase::Calling(calls) = &mut self.phase {
            calls.begin_way_out(key, outcome);
        }
    }

    /// Performs the next action that needs no input. Returns false if there is none.
    pub(crate) fn step_forward<R: ToolRules>(
        &mut self,
        rules: &R,
        step_count_max: u32,
        around: &mut AdvanceContext<'_>,
    ) -> Result<bool, EngineFault> {
        if let Some(has_moved) = self.go_around(around) {
            return Ok(has_moved);
        }
        let is_settled = self.durable_seq == self.sent_seq;
        let may_ask = is_settled || self.model == ModelLocation::Inside;
        // `Completing` is a placeholder while the phase is matched.
        self.phase = match std::mem::replace(&mut self.phase, Phase::Completing) {
            Phase::Settling(NextTurnAction::Ask { step }) if may_ask => {
                self.prepare_step(step, step_count_max, around)?
            }
            Phase::Settling(NextTurnAction::Call(calls)) if is_settled => {
                Phase::Calling(self.begin_calls(calls, around.extensions))
            }
            Phase::Settling(NextTurnAction::End { step, reply }) => {
                self.ask_before_end(step, reply, around)
            }
            Phase::Settling(NextTurnAction::Complete(outcome)) => self.complete(outcome),
            Phase::Calling(calls) => return self.record_results(calls, rules, around),
            waiting @ (Phase::Settling(_)
            | Phase::Asking { .. }
            | Phase::Assembling(_)
            | Phase::Invoking(_)
            | Phase::Summarizing { .. }
            | Phase::Completing) => {
                self.phase = waiting;
                return Ok(false);
            }
        };
        Ok(true)
    }

    /// Performs the next action before a step is asked: obtains a summary, takes in answers, asks
    /// extensions. Asks the model if none is left.
    fn prepare_step(
        &mut self,
        step: u32,
        step_count_max: u32,
        around: &mut AdvanceContext<'_>,
    ) -> Result<Phase, EngineFault> {
        if self.is_compaction_open() {
            return Ok(self.compact(step, around)?);
        }
        let ask = NextTurnAction::Ask { step };
        if let Some(message) = self.told.take() {
            self.append_unwatched(around.conversation, message);
            return Ok(Phase::Settling(ask));
        }
        if let Some(message) = self.answers.next_message(&self.id, around.now)? {
            self.append(around.conversation, message);
            return Ok(Phase::Settling(ask));
        }
        if self.prepared_step >= step {
            return self.ask(step, step_count_max);
        }
        self.prepared_step = step;
        Ok(self.begin_step(step, ask))
    }

    /// Records the results that have arrived; the last one ends the step. Returns false if it needs
    /// another input.
    fn record_results<R: ToolRules>(
        &mut self,
        mut calls: Calls,
        rules: &R,
        around: &mut AdvanceContext<'_>,
    ) -> Result<bool, EngineFault> {
        let has_modules = self.middlewares.has_modules();
        // Built-in extensions are asked immediately, modules only when every result is durable.
        if !has_modules {
            self.advance_calls(&mut calls, rules, around);
        }
        calls.tell_ends(rules, &mut self.effects);
        while let Some(message) = calls.next_result(around.now)? {
            self.append(around.conversation, message);
        }
        if !calls.all_recorded() {
            let is_settled = self.durable_seq == self.sent_seq;
            let has_moved =
                has_modules && is_settled && self.advance_calls(&mut calls, rules, around);
            self.phase = Phase::Calling(calls);
            return Ok(has_moved);
        }
        self.release(around.conversation);
        let scope = Scope::Step(calls.step_id().clone());
        self.observe(Kind::StepCompleted, scope, "");
        let step = calls.step().saturating_add(1);
        self.phase = Phase::Settling(NextTurnAction::Ask { step });
        Ok(true)
    }

    /// Asks extensions whether the turn may end.
    fn ask_before_end(
        &mut self,
        step: u32,
        mut reply: String,
        around: &mut AdvanceContext<'_>,
    ) -> Phase {
        let AdvanceContext {
            extensions,
            conversation,
            now,
        } = around;
        let (ending, outputs) = extensions.end_turn(step, &mut reply, conversation, *now);
        self.take_outputs(outputs);
        Phase::Settling(match ending {
            TurnEndDecision::Accept => NextTurnAction::Complete(TurnOutcome::Completed { reply }),
            TurnEndDecision::GoOn => NextTurnAction::Ask {
                step: step.saturating_add(1),
            },
            TurnEndDecision::Refuse { code, message } => {
                NextTurnAction::Complete(TurnOutcome::Failed {
                    code: code.to_owned(),
                    message,
                })
            }
        })
    }

    /// Asks the model, or ends the turn if a limit is reached. Called when everything appended is
    /// durable or the model is inside the process.
    fn ask(&mut self, step: u32, step_count_max: u32) -> Result<Phase, EngineFault> {
        let failed = |code: &str, message| {
            let code = code.to_owned();
            Phase::Settling(NextTurnAction::Complete(TurnOutcome::Failed {
                code,
                message,
            }))
        };
        if let Some(message) = self.watch.verdict() {
            return Ok(failed("E_LOOP", message));
        }
        if step > step_count_max {
            let message = format!(
                "the turn needs more than {step_count_max} steps; raise `maxStepsPerTurn` in the \
                 swarm's policy, or ask for less at a time"
            );
            return Ok(failed("E_MAX_STEPS", message));
        }
        let step_id = StepId::of_turn(&self.id, step);
        let message_id = reply_id(&step_id)?;
        self.observe(Kind::StepStarted, Scope::Step(step_id), "");
        self.effects.push(TurnEngineEffect::AskModel {
            step,
            seq: self.sent_seq + 1,
            message_id,
        });
        Ok(Phase::Asking { step })
    }

    /// Completes the turn. The commit makes everything appended before it durable with a single
    /// sync.
    fn complete(&mut self, outcome: TurnOutcome) -> Phase {
        let (kind, detail) = match &outcome {
            TurnOutcome::Completed { reply } => (Kind::TurnCompleted, reply.clone()),
            TurnOutcome::Failed { code, message } => {
                (Kind::TurnFailed, format!("{code}: {message}"))
            }
        };
        self.observe(kind, Scope::Turn, &detail);
        self.effects.push(TurnEngineEffect::Complete {
            turn_id: self.id.clone(),
            last_seq: self.sent_seq,
            outcome,
            answered: self.answers.taken_in(),
        });
        Phase::Completing
    }
}
