//! Summary of the old part of the conversation, before a turn's first step.
//!
//! A summary is a model reply like that of a step: it is recorded under its own id before it is
//! used, and it is counted. After a crash the recorded summary is reused and the model is not
//! called again.

use goondan_protocol::ids::{InvalidId, StepId};
use goondan_protocol::message::{Message, MessageContent};
use goondan_protocol::observe::RuntimeEventKind as Kind;
use goondan_protocol::usage::ReplyCost;

use super::phase::{Compaction, NextTurnAction, Phase};
use super::{RunningTurn, reply_id};
use crate::extensions::Summary;
use crate::model::{ModelError, ModelOutcome};
use crate::turn::context::AdvanceContext;
use crate::turn::effect::{Scope, TurnEngineEffect};
use crate::turn::recovered_turn::OpenTurn;

impl RunningTurn {
    /// Restores a summary that was recorded before a crash.
    pub(super) fn remember_summary(&mut self, open: &OpenTurn) {
        let Some(message) = open.summary(&self.id) else {
            return;
        };
        self.count(ReplyCost::of_metadata(&message.metadata));
        self.compaction = Compaction::Recorded(Box::new(message.clone()));
    }

    /// Steps exist already, so no summary is needed.
    pub(super) fn end_compaction(&mut self) {
        self.compaction = Compaction::Over;
    }

    pub(super) fn is_compaction_open(&self) -> bool {
        !matches!(self.compaction, Compaction::Over)
    }

    pub(crate) fn is_summarizing(&self) -> bool {
        matches!(self.phase, Phase::Summarizing { .. })
    }

    /// Asks extensions whether they want a summary, before the turn's first step.
    pub(super) fn compact(
        &mut self,
        step: u32,
        around: &mut AdvanceContext<'_>,
    ) -> Result<Phase, InvalidId> {
        let next = Phase::Settling(NextTurnAction::Ask { step });
        let before = std::mem::replace(&mut self.compaction, Compaction::Over);
        if let Compaction::Recorded(message) = before {
            // Everything that follows from it may have been done already.
            if around.conversation.has(&message.id)
                && let Some(count) = message.step_id().and_then(|id| id.summarized(&self.id))
            {
                let text = message.data.content.to_text();
                self.take_summary(around, count, Ok(&text))?;
            }
            return Ok(next);
        }
        let (wanted, outputs) = around
            .extensions
            .wants_summary(around.conversation, around.now);
        self.take_outputs(outputs);
        let Some(wanted) = wanted else {
            return Ok(next);
        };
        let step_id = StepId::of_summary(&self.id, wanted.count);
        let message_id = reply_id(&step_id)?;
        self.observe(Kind::StepStarted, Scope::Step(step_id.clone()), "");
        self.effects.push(TurnEngineEffect::AskSummary {
            step_id,
            seq: self.sent_seq + 1,
            message_id,
            system: wanted.system,
            text: wanted.text,
        });
        Ok(Phase::Summarizing {
            step,
            count: wanted.count,
        })
    }

    /// Handles the model's summary or its error.
    pub(crate) fn summarize(
        &mut self,
        around: &mut AdvanceContext<'_>,
        came: Result<ModelOutcome, ModelError>,
    ) -> Result<(), InvalidId> {
        let Phase::Summarizing { step, count } = self.phase else {
            return Ok(());
        };
        self.phase = Phase::Settling(NextTurnAction::Ask { step });
        let step_id = StepId::of_summary(&self.id, count);
        let text = match came {
            Ok(ModelOutcome::Reply(reply)) => {
                let content = MessageContent::assistant(&reply.text, &reply.calls);
                let id = reply_id(&step_id)?;
                let message = Message::assistant(id, around.now, step_id.clone(), content);
                self.append_unwatched(around.conversation, message);
                Ok(reply.text)
            }
            Ok(ModelOutcome::Recorded(message)) => {
                let text = message.data.content.to_text();
                self.count(ReplyCost::of_metadata(&message.metadata));
                self.take_recorded_message(around.conversation, *message);
                Ok(text)
            }
            Err(error) => Err(format!("{}: {}", error.code, error.message)),
        };
        let scope = Scope::Step(step_id);
        match &text {
            Ok(text) => self.observe(Kind::StepCompleted, scope, text),
            Err(reason) => self.observe(Kind::StepFailed, scope, reason),
        }
        self.take_summary(around, count, text.as_deref().map_err(String::as_str))
    }

    fn take_summary(
        &mut self,
        around: &mut AdvanceContext<'_>,
        count: usize,
        text: Result<&str, &str>,
    ) -> Result<(), InvalidId> {
        let step_id = StepId::of_summary(&self.id, count);
        let reply_id = reply_id(&step_id)?;
        let message_id = format!("{step_id}:m").parse()?;
        let summary = Summary {
            count,
            reply_id: &reply_id,
            message_id: &message_id,
            text,
        };
        let AdvanceContext {
            extensions,
            conversation,
            now,
        } = around;
        let outputs = extensions.take_summary(&summary, conversation, *now);
        if let Err(reason) = text {
            let warning = format!("the conversation could not be summarized: {reason}");
            self.observe(Kind::MessageWarning, Scope::Turn, &warning);
        }
        self.take_outputs(outputs);
        Ok(())
    }
}
