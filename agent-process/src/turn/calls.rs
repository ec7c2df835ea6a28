//! The tool calls of one step: run in parallel, recorded in call order.

pub(crate) mod chain;
mod slot;

use goondan_protocol::ids::{MessageId, StepId};
use goondan_protocol::message::{Message, ToolCall, ToolResult};
use goondan_protocol::observe::{RuntimeEventKind as Kind, detail_of, refusal_of};
use goondan_protocol::time::Timestamp;
use goondan_protocol::usage::ReplyCost;

use super::effect::{Observation, TurnEngineEffect};
use super::fault::EngineFault;
use super::recovered_turn::RecordedReply;
use crate::tool_call::{CallKey, CallRejection, ToolOutcome, ToolRules};
use slot::{Slot, State, called, scope_of};

/// The calls of one step and their progress.
#[derive(Debug)]
pub(crate) struct Calls {
    step: u32,
    step_id: StepId,
    /// Index of the first call that is not recorded.
    first_open: usize,
    slots: Vec<Slot>,
}

impl Calls {
    /// Creates the calls of a fresh reply.
    pub(crate) fn new<R: ToolRules>(
        rules: &R,
        step: u32,
        step_id: StepId,
        calls: Vec<ToolCall>,
        effects: &mut Vec<TurnEngineEffect>,
    ) -> Self {
        let slots = calls.into_iter().map(|call| {
            let state = first_state(rules, &step_id, &call, effects);
            let needs_person = rules.needs_person(&call);
            Slot {
                needs_person,
                ..Slot::new(call, state)
            }
        });
        let slots = slots.collect();
        Self {
            step,
            step_id,
            first_open: 0,
            slots,
        }
    }

    /// Creates the calls of a recorded reply. A call without a result may have run, so it runs
    /// again only if it is idempotent, or if its connector first finds out whether it took effect.
    /// For a call that needs a person, the orchestrator tracks whether it has begun.
    pub(crate) fn resumed<R: ToolRules>(
        rules: &R,
        step_id: StepId,
        replied: RecordedReply,
        effects: &mut Vec<TurnEngineEffect>,
    ) -> Self {
        let slots = replied.calls.into_iter().map(|call| {
            let is_idempotent = rules.is_idempotent(&call.tool_name);
            let is_recoverable = rules.is_recoverable(&call.tool_name);
            let needs_person = rules.needs_person(&call);
            let state = if replied.answered.contains(&call.id) {
                State::Recorded
            } else {
                match first_state(rules, &step_id, &call, effects) {
                    State::ToRun if !is_idempotent && !is_recoverable && !needs_person => {
                        let why = rules.why_unknown(&call.tool_name);
                        State::Finished(ToolOutcome::interrupted_because(why))
                    }
                    state => state,
                }
            };
            Slot {
                needs_person,
                may_have_begun: !is_idempotent,
                asked_at: replied.at,
                ..Slot::new(call, state)
            }
        });
        let slots = slots.collect();
        Self {
            step: replied.step,
            step_id,
            first_open: 0,
            slots,
        }
    }

    pub(crate) fn step(&self) -> u32 {
        self.step
    }

    pub(crate) fn step_id(&self) -> &StepId {
        &self.step_id
    }

    pub(crate) fn all_recorded(&self) -> bool {
        self.first_open == self.slots.len()
    }

    pub(crate) fn is_running(&self, key: CallKey) -> bool {
        key.step == self.step
            && self
                .slots
                .get(key.index)
                .is_some_and(|slot| matches!(slot.state, State::Running))
    }

    /// Answers calls that must not run: first calls of tools that are not offered, then calls with
    /// invalid arguments.
    pub(crate) fn keep_to_catalog(
        &mut self,
        why_not_offered: impl Fn(&str) -> Option<String>,
        effects: &mut Vec<TurnEngineEffect>,
    ) {
        for slot in &mut self.slots {
            let unfit = match &mut slot.state {
                State::ToRun => None,
                State::Unfit(fault) => Some(std::mem::take(fault)),
                _ => continue,
            };
            let why_not = why_not_offered(&slot.call.tool_name)
                .map(|why| CallRejection::NotInCatalog(why).to_string())
                .or(unfit);
            slot.state = match why_not {
                None => State::ToRun,
                Some(why) => {
                    effects.push(called(&self.step_id, &slot.call));
                    State::Finished(ToolOutcome::error(why))
                }
            };
        }
    }

    /// Runs every call that is ready to run.
    pub(crate) fn run(&mut self, effects: &mut Vec<TurnEngineEffect>) {
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if matches!(slot.state, State::ToRun) {
                slot.state = State::Running;
                effects.push(called(&self.step_id, &slot.call));
                effects.push(TurnEngineEffect::RunTool {
                    key: CallKey {
                        step: self.step,
                        index,
                    },
                    call: slot.call.clone(),
                    may_have_begun: slot.may_have_begun,
                    asked_at: slot.asked_at,
                });
            }
        }
    }

    /// Reports the calls that have ended, without waiting for earlier ones that still run.
    pub(crate) fn tell_ends<R: ToolRules>(
        &mut self,
        rules: &R,
        effects: &mut Vec<TurnEngineEffect>,
    ) {
        for slot in &mut self.slots {
            let State::Finished(outcome) = &mut slot.state else {
                continue;
            };
            if std::mem::replace(&mut slot.is_told, true) {
                continue;
            }
            if outcome.is_error {
                let chars_max = rules.error_limit_chars(&slot.call.tool_name);
                outcome.text = cut(std::mem::take(&mut outcome.text), chars_max);
            }
            effects.push(TurnEngineEffect::Observe(Observation {
                kind: if outcome.is_error || outcome.has_failed {
                    Kind::ToolFailed
                } else {
                    Kind::ToolCompleted
                },
                scope: scope_of(&self.step_id, &slot.call),
                spent: ReplyCost::default(),
                response: None,
                outcome_unknown: outcome.is_unknown && outcome.is_error,
                refusal: outcome.refusal.as_deref().map(refusal_of),
                detail: Some(detail_of(&outcome.text)),
            }));
        }
    }

    /// True if exactly `count` calls run that wait for people, and the results of all other calls
    /// are recorded.
    pub(crate) fn only_wait_for_people(&self, count: usize) -> bool {
        let open = self.slots.iter();
        let mut open = open.filter(|slot| !matches!(slot.state, State::Recorded));
        let waits = |slot: &Slot| slot.needs_person && matches!(slot.state, State::Running);
        open.clone().count() == count && open.all(waits)
    }

    /// Returns the next result to record, if it has arrived. Results keep the order of their calls,
    /// except that no result waits for a call that needs a person.
    pub(crate) fn next_result(&mut self, now: Timestamp) -> Result<Option<Message>, EngineFault> {
        let is_recorded = |slot: &&Slot| matches!(slot.state, State::Recorded);
        let recorded = self.slots.iter().skip(self.first_open);
        self.first_open += recorded.take_while(is_recorded).count();
        for index in self.first_open..self.slots.len() {
            let Some(slot) = self.slots.get_mut(index) else {
                break;
            };
            let outcome = match std::mem::replace(&mut slot.state, State::Recorded) {
                State::Finished(outcome) => outcome,
                State::Recorded => continue,
                waiting @ (State::ToRun
                | State::Unfit(_)
                | State::Inwards(_)
                | State::Invoking(_)
                | State::Running
                | State::Outwards(_)) => {
                    slot.state = waiting;
                    if slot.needs_person {
                        continue;
                    }
                    return Ok(None);
                }
            };
            let call = &slot.call;
            let result = ToolResult {
                tool_call_id: call.id.clone(),
                tool_name: call.tool_name.clone(),
                text: outcome.text,
                is_error: outcome.is_error,
                images: outcome.images,
            };
            let id = MessageId::new(format!("{}:r{index}", self.step_id))?;
            return Ok(Some(Message::tool(id, now, &result)));
        }
        Ok(None)
    }
}

/// First state of a call. A valid call is ready to run; a call of an unknown tool gets its error
/// result immediately.
fn first_state<R: ToolRules>(
    rules: &R,
    step_id: &StepId,
    call: &ToolCall,
    effects: &mut Vec<TurnEngineEffect>,
) -> State {
    match rules.check(call) {
        Ok(()) => State::ToRun,
        Err(unfit @ CallRejection::InvalidArgs(_)) => State::Unfit(unfit.to_string()),
        Err(unknown @ CallRejection::NotInCatalog(_)) => {
            effects.push(called(step_id, call));
            State::Finished(ToolOutcome::error(unknown.to_string()))
        }
    }
}

/// Truncates a text to `chars_max` characters and marks the cut.
fn cut(text: String, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        None => text,
        Some((end, _)) => {
            let mut text = text;
            text.truncate(end);
            text.push_str(" … (cut)");
            text
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_text_is_cut_between_characters() {
        assert_eq!(cut("가나다".to_owned(), 2), "가나 … (cut)");
        assert_eq!(cut("가나다".to_owned(), 3), "가나다");
    }
}
