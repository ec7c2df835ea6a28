//! The layers of extensions around the calls of a step.
//!
//! Calls advance independently: inwards through the layers, into the tool, and outwards again. A
//! call fails if a built-in extension refuses it or a module's middleware throws. A middleware that
//! returns without calling `next()` supplies the call's result. In each case the tool does not run.

use serde_json::Value;

use super::Calls;
use super::slot::{
    Direction, EnteredLayer, InboundCall, OutboundResult, Slot, State, ToolMiddlewareRun, called,
};
use crate::extensions::middleware_stack::Layer;
use crate::extensions::{ExtensionOutput, Extensions};
use crate::middleware::{
    Enter, InvocationId, MiddlewareEvent, MiddlewareReturn, MiddlewareScope, MiddlewareTarget,
    NextResult, Notes,
};
use crate::tool_call::{CallKey, ToolOutcome, ToolRules};
use crate::turn::context::AdvanceContext;
use crate::turn::effect::TurnEngineEffect;

/// Error code of a call that a middleware failed without giving a code.
const FAILED: &str = "E_EXT_FAILED";

/// Context for advancing calls through the layers around them.
pub(crate) struct ChainContext<'a, 'b> {
    pub(crate) around: &'a mut AdvanceContext<'b>,
    pub(crate) effects: &'a mut Vec<TurnEngineEffect>,
    /// Outputs of built-in extensions.
    pub(crate) outputs: Vec<ExtensionOutput>,
}

impl Calls {
    /// Starts the calls that are ready to run on their way inwards.
    pub(crate) fn begin_way_in(&mut self) {
        for slot in &mut self.slots {
            if matches!(slot.state, State::ToRun) {
                let is_changed = false;
                slot.state = State::Inwards(InboundCall { at: 0, is_changed });
            }
        }
    }

    /// Takes the result of a tool and starts its call on its way outwards.
    pub(crate) fn begin_way_out(&mut self, key: CallKey, outcome: ToolOutcome) {
        if let Some(slot) = self.slots.get_mut(key.index) {
            slot.state = State::Outwards(OutboundResult {
                below: usize::MAX,
                outcome,
                has_run: true,
            });
        }
    }

    /// Advances every call that waits for nothing; calls that have passed all layers become ready
    /// to run. Returns false if no call ended.
    pub(crate) fn advance<R: ToolRules>(
        &mut self,
        rules: &R,
        chain: &mut ChainContext<'_, '_>,
    ) -> bool {
        let (step, step_id) = (self.step, &self.step_id);
        let mut has_ended = false;
        for slot in &mut self.slots {
            loop {
                slot.state = match std::mem::replace(&mut slot.state, State::Running) {
                    State::Inwards(inwards) => go_in(slot, step, inwards, rules, chain),
                    State::Outwards(outwards) => {
                        let has_run = outwards.has_run;
                        let state = go_out(slot, outwards, chain);
                        if matches!(state, State::Finished(_)) {
                            has_ended = true;
                            if !has_run {
                                chain.effects.push(called(step_id, &slot.call));
                            }
                        }
                        state
                    }
                    waiting => {
                        slot.state = waiting;
                        break;
                    }
                };
            }
        }
        has_ended
    }

    /// Handles an event of a middleware.
    pub(crate) fn hear(
        &mut self,
        extensions: &mut Extensions,
        invocation: InvocationId,
        event: MiddlewareEvent,
    ) {
        let is_it = |slot: &&mut Slot| match &slot.state {
            State::Invoking(invoking) => invoking.open.invocation == invocation,
            _ => false,
        };
        let Some(slot) = self.slots.iter_mut().find(is_it) else {
            return;
        };
        let State::Invoking(invoking) = std::mem::replace(&mut slot.state, State::Running) else {
            return;
        };
        let ToolMiddlewareRun {
            place,
            open,
            direction,
        } = invoking;
        let outcome = match event {
            MiddlewareEvent::Next { notes, args, .. } => {
                slot.state = go_further_in(extensions, slot, invoking, notes, args);
                return;
            }
            MiddlewareEvent::Left { notes, returned } => {
                match (extensions.take_notes(place, notes), returned) {
                    (Ok(_), MiddlewareReturn::Call(outcome)) => outcome,
                    (Err(why), _) => failed_by(extensions, place, None, &why),
                    (Ok(_), MiddlewareReturn::Turn(_) | MiddlewareReturn::Step { .. }) => {
                        let why = "returned no result of a tool call";
                        failed_by(extensions, place, None, why)
                    }
                }
            }
            MiddlewareEvent::Threw {
                notes,
                code,
                message,
            } => {
                // The call has already failed, so the remaining notes have no effect.
                drop(extensions.take_notes(place, notes));
                failed_by(extensions, place, code.as_deref(), &message)
            }
        };
        slot.state = State::Outwards(OutboundResult {
            below: open.at,
            outcome,
            has_run: matches!(direction, Direction::Out { has_run: true }),
        });
    }

    /// The modules are lost: calls that need them end with an error. Tools that already run
    /// continue.
    pub(crate) fn give_up(&mut self, why: &str, effects: &mut Vec<TurnEngineEffect>) {
        for slot in &mut self.slots {
            slot.open.clear();
            let has_run = match &slot.state {
                State::ToRun | State::Unfit(_) | State::Inwards(_) => false,
                State::Invoking(ToolMiddlewareRun { direction, .. }) => {
                    matches!(direction, Direction::Out { has_run: true })
                }
                State::Running | State::Outwards(_) | State::Finished(_) | State::Recorded => {
                    continue;
                }
            };
            if !has_run {
                effects.push(called(&self.step_id, &slot.call));
            }
            slot.state = State::Finished(ToolOutcome::error(why));
        }
    }
}

/// Handles a middleware's call of `next()`.
fn go_further_in(
    extensions: &mut Extensions,
    slot: &mut Slot,
    invoking: ToolMiddlewareRun,
    notes: Notes,
    args: Option<Value>,
) -> State {
    let ToolMiddlewareRun { place, open, .. } = invoking;
    match (invoking.direction, extensions.take_notes(place, notes)) {
        (Direction::In { is_changed }, Ok(_)) => {
            slot.open.push(open);
            let is_changed = is_changed || args.is_some();
            slot.call.input = args.unwrap_or_else(|| slot.call.input.take());
            let at = open.at + 1;
            State::Inwards(InboundCall { at, is_changed })
        }
        (Direction::In { .. }, Err(why)) => {
            slot.open.push(open);
            State::Outwards(OutboundResult {
                below: open.at + 1,
                outcome: failed_by(extensions, place, None, &why),
                has_run: false,
            })
        }
        // The host does not let a middleware call `next()` twice.
        (Direction::Out { .. }, _) => State::Invoking(invoking),
    }
}

fn failed_by(extensions: &Extensions, place: usize, code: Option<&str>, why: &str) -> ToolOutcome {
    let name = extensions.name_at(place);
    let name = name.map(ToString::to_string).unwrap_or_default();
    let code = code.unwrap_or(FAILED);
    ToolOutcome::error(format!("{code}: extension `{name}`: {why}"))
}

fn go_in<R: ToolRules>(
    slot: &mut Slot,
    step: u32,
    inwards: InboundCall,
    rules: &R,
    chain: &mut ChainContext<'_, '_>,
) -> State {
    let InboundCall { at, is_changed } = inwards;
    let turned_back = |text: String| {
        State::Outwards(OutboundResult {
            below: at,
            outcome: ToolOutcome::error(text),
            has_run: false,
        })
    };
    let AdvanceContext {
        extensions,
        conversation,
        now,
    } = &mut *chain.around;
    match extensions.layer(MiddlewareScope::ToolCall, at) {
        None => match is_changed.then(|| rules.check(&slot.call)) {
            Some(Err(fault)) => turned_back(fault.to_string()),
            Some(Ok(())) | None => State::ToRun,
        },
        Some(Layer::Builtin { place }) => {
            let (verdict, outputs) =
                extensions.before_call_at(place, &slot.call, conversation, *now);
            chain.outputs.extend(outputs);
            match verdict {
                Err(reason) => turned_back(reason),
                Ok(()) => State::Inwards(InboundCall {
                    at: at + 1,
                    is_changed,
                }),
            }
        }
        Some(Layer::Module { place, number }) => {
            let Some(name) = extensions.name_at(place).cloned() else {
                return turned_back("E_EXT_FAILED: the extension does not exist".to_owned());
            };
            let invocation = extensions.next_invocation();
            chain.effects.push(TurnEngineEffect::Enter(Box::new(Enter {
                invocation,
                extension: name,
                number,
                moment: MiddlewareTarget::Call {
                    step,
                    call: slot.call.clone(),
                },
                id_prefix: String::new(),
            })));
            let open = EnteredLayer { at, invocation };
            let direction = Direction::In { is_changed };
            State::Invoking(ToolMiddlewareRun {
                place,
                open,
                direction,
            })
        }
    }
}

fn go_out(slot: &mut Slot, outwards: OutboundResult, chain: &mut ChainContext<'_, '_>) -> State {
    let OutboundResult {
        below,
        mut outcome,
        has_run,
    } = outwards;
    let AdvanceContext {
        extensions,
        conversation,
        now,
    } = &mut *chain.around;
    let below = below.min(extensions.depth(MiddlewareScope::ToolCall));
    let Some(at) = below.checked_sub(1) else {
        return State::Finished(outcome);
    };
    match extensions.layer(MiddlewareScope::ToolCall, at) {
        Some(Layer::Builtin { place }) if has_run => {
            let outputs =
                extensions.after_call_at(place, &slot.call, &mut outcome, conversation, *now);
            chain.outputs.extend(outputs);
        }
        Some(Layer::Module { place, .. }) => {
            if let Some(open) = slot.open.pop_if(|open| open.at == at) {
                chain.effects.push(TurnEngineEffect::Return {
                    invocation: open.invocation,
                    result: NextResult::Call(outcome),
                });
                let direction = Direction::Out { has_run };
                return State::Invoking(ToolMiddlewareRun {
                    place,
                    open,
                    direction,
                });
            }
        }
        Some(Layer::Builtin { .. }) | None => {}
    }
    State::Outwards(OutboundResult {
        below: at,
        outcome,
        has_run,
    })
}
