//! The layers of extensions around a turn, its steps and its calls.
//!
//! Each scope is entered layer by layer. Built-in extensions are asked on the way in. A module's
//! middleware that called `next()` stays open and receives the result when the turn leaves the
//! scope, innermost first. Nothing of this is recorded: a turn that is resumed after a crash enters
//! its scopes again, and events that its middlewares emit a second time are recognized from the
//! records.

use goondan_protocol::conversation::Conversation;
use goondan_protocol::event::{AgentEvent, TurnOutcome};
use goondan_protocol::ids::{StepId, TurnId};
use goondan_protocol::message::{Message, MessageEvent, ToolResult};
use goondan_protocol::observe::RuntimeEventKind as Kind;

use super::RunningTurn;
use super::phase::{
    ChainCursor, Direction, NextTurnAction, Phase, SuspendedMiddleware, TurnMiddlewareRun,
};
use super::turn_middlewares::TurnMiddlewares;
use crate::extensions::Extensions;
use crate::extensions::middleware_stack::Layer;
use crate::middleware::{
    Enter, ExtensionFault, InvocationId, Middleware, MiddlewareEvent, MiddlewareReturn,
    MiddlewareScope, MiddlewareTarget, NextResult, Notes,
};
use crate::tool_call::ToolRules;
use crate::turn::calls::Calls;
use crate::turn::calls::chain::ChainContext;
use crate::turn::context::AdvanceContext;
use crate::turn::effect::{Scope, TurnEngineEffect};
use crate::turn::recovered_turn::OpenTurn;

/// Error code of a turn that a middleware failed without giving a code.
const FAILED: &str = "E_EXT_FAILED";

impl RunningTurn {
    /// Keeps the event and the recorded events for modules, which wrap this turn.
    pub(crate) fn keep_for_modules(&mut self, event: &AgentEvent, recorded: &OpenTurn) {
        self.middlewares.event = Some(Box::new(event.clone()));
        self.middlewares.events = recorded.events().to_vec();
    }

    /// Routes the turn through its extensions before it continues from its current phase. Modules
    /// are made ready and also wrap the step that a crash interrupted.
    pub(crate) fn enter_extensions(&mut self) {
        let Phase::Settling(next) = std::mem::replace(&mut self.phase, Phase::Completing) else {
            return;
        };
        let has_modules = self.middlewares.has_modules();
        let within = if has_modules {
            self.enter_resumed_step(next)
        } else {
            next
        };
        let enter = NextTurnAction::Enter(ChainCursor {
            step: None,
            at: 0,
            then: Box::new(within),
        });
        self.phase = Phase::Settling(if has_modules {
            NextTurnAction::Assemble(Box::new(enter))
        } else {
            enter
        });
    }

    fn enter_resumed_step(&mut self, next: NextTurnAction) -> NextTurnAction {
        let step = match &next {
            NextTurnAction::Call(calls) => {
                self.middlewares.held_back = Some(Vec::new());
                calls.step()
            }
            NextTurnAction::End { step, .. } => *step,
            NextTurnAction::Ask { .. }
            | NextTurnAction::Complete(_)
            | NextTurnAction::Assemble(_)
            | NextTurnAction::Enter(_) => {
                return next;
            }
        };
        self.prepared_step = step;
        NextTurnAction::Enter(self.cursor_of_step(step, next))
    }

    /// Events of the turn so far; empty if no module wraps it.
    pub(crate) fn events(&self) -> &[MessageEvent] {
        &self.middlewares.events
    }

    /// Event that the turn answers, if modules wrap it.
    pub(crate) fn event(&self) -> Option<&AgentEvent> {
        self.middlewares.event.as_deref()
    }

    pub(crate) fn is_assembling(&self) -> bool {
        matches!(self.phase, Phase::Assembling(_))
    }

    /// The modules are ready.
    pub(crate) fn assembled(&mut self, extensions: &mut Extensions, middlewares: &[Middleware]) {
        extensions.assemble(middlewares);
        self.phase = match std::mem::replace(&mut self.phase, Phase::Completing) {
            Phase::Assembling(then) => Phase::Settling(then),
            other => other,
        };
    }

    /// The modules are lost: nothing waits for them any longer, and the turn fails.
    pub(crate) fn lose_modules(&mut self, fault: ExtensionFault) {
        let middlewares = &mut self.middlewares;
        if !middlewares.has_modules() {
            return;
        }
        middlewares.open_turn.clear();
        middlewares.open_step.clear();
        let fault = middlewares.fault.get_or_insert(fault).clone();
        self.phase = match std::mem::replace(&mut self.phase, Phase::Completing) {
            Phase::Assembling(then) => Phase::Settling(then),
            Phase::Invoking(invoking) => Phase::Settling(match invoking.direction {
                Direction::In(cursor) => *cursor.then,
                Direction::Out(next) => next,
            }),
            Phase::Calling(mut calls) => {
                calls.give_up(&fault_text(&fault), &mut self.effects);
                Phase::Calling(calls)
            }
            other @ (Phase::Settling(_)
            | Phase::Asking { .. }
            | Phase::Summarizing { .. }
            | Phase::Completing) => other,
        };
    }

    /// Handles an event of a middleware. Events of an invocation that has ended are ignored.
    pub(crate) fn hear(
        &mut self,
        around: &mut AdvanceContext<'_>,
        invocation: InvocationId,
        event: MiddlewareEvent,
    ) {
        match std::mem::replace(&mut self.phase, Phase::Completing) {
            Phase::Invoking(invoking) if invoking.open.invocation == invocation => {
                self.phase = Phase::Settling(self.answered(around, invoking, event));
            }
            Phase::Calling(mut calls) => {
                calls.hear(around.extensions, invocation, event);
                self.phase = Phase::Calling(calls);
            }
            other => self.phase = other,
        }
    }

    fn answered(
        &mut self,
        around: &mut AdvanceContext<'_>,
        invoking: TurnMiddlewareRun,
        event: MiddlewareEvent,
    ) -> NextTurnAction {
        let TurnMiddlewareRun { open, direction } = invoking;
        let (notes, threw) = match event {
            MiddlewareEvent::Next {
                notes,
                hidden,
                args: _,
            } => {
                self.take_notes(around, open.place, notes);
                match direction {
                    Direction::In(mut cursor) => {
                        self.middlewares.hidden.extend(hidden);
                        match cursor.step {
                            Some(_) => self.middlewares.open_step.push(open),
                            None => self.middlewares.open_turn.push(open),
                        }
                        cursor.at += 1;
                        return NextTurnAction::Enter(cursor);
                    }
                    // The host does not let a middleware call `next()` twice.
                    Direction::Out(next) => return next,
                }
            }
            MiddlewareEvent::Left { notes, returned } => match direction {
                Direction::Out(next) => {
                    self.take_notes(around, open.place, notes);
                    return self.after_return(next, returned);
                }
                Direction::In(_) => (
                    notes,
                    (None, "it returned without calling `next()`".to_owned()),
                ),
            },
            MiddlewareEvent::Threw {
                notes,
                code,
                message,
            } => (notes, (code, message)),
        };
        self.take_notes(around, open.place, notes);
        let (code, message) = threw;
        self.fail_by(around.extensions, open.place, code, &message);
        match direction {
            Direction::In(cursor) => *cursor.then,
            Direction::Out(next) => next,
        }
    }

    /// The next action after a middleware has returned.
    fn after_return(&self, next: NextTurnAction, returned: MiddlewareReturn) -> NextTurnAction {
        let goes_on = match returned {
            MiddlewareReturn::Step { goes_on } => goes_on,
            MiddlewareReturn::Turn(_) | MiddlewareReturn::Call(_) => None,
        };
        match (next, returned) {
            (NextTurnAction::Complete(_), MiddlewareReturn::Turn(outcome)) => {
                NextTurnAction::Complete(outcome)
            }
            (NextTurnAction::End { step, .. }, _) if goes_on == Some(true) => NextTurnAction::Ask {
                step: step.saturating_add(1),
            },
            (NextTurnAction::Ask { .. }, _) if goes_on == Some(false) => NextTurnAction::End {
                step: self.middlewares.step,
                reply: self.reply_of_step(),
            },
            (next, _) => next,
        }
    }

    /// Text of the model's reply in the latest step.
    fn reply_of_step(&self) -> String {
        let step_id = StepId::of_turn(&self.id, self.middlewares.step);
        let mut messages = appended(&self.middlewares.events);
        let reply = messages.find(|message| message.step_id() == Some(&step_id));
        reply.map_or_else(String::new, |reply| reply.data.content.to_text())
    }

    /// Fails the turn because of an extension.
    fn fail_by(&mut self, extensions: &Extensions, place: usize, code: Option<String>, why: &str) {
        let name = extensions.name_at(place);
        let name = name.map(ToString::to_string).unwrap_or_default();
        let fault = ExtensionFault {
            code: code.unwrap_or_else(|| FAILED.to_owned()),
            message: format!("extension `{name}` failed: {why}"),
        };
        self.middlewares.fault.get_or_insert(fault);
    }

    fn take_notes(&mut self, around: &mut AdvanceContext<'_>, place: usize, notes: Notes) {
        let events = match around.extensions.take_notes(place, notes) {
            Ok(events) => events,
            Err(why) => {
                self.fail_by(around.extensions, place, None, &why);
                return;
            }
        };
        match &mut self.middlewares.held_back {
            Some(held_back) => held_back.extend(events),
            None => self.emit(around.conversation, events),
        }
    }

    /// Records the deferred events, because the calls now have their results.
    pub(super) fn release(&mut self, conversation: &mut Conversation) {
        let held_back = self.middlewares.held_back.take();
        self.emit(conversation, held_back.unwrap_or_default());
    }

    fn emit(&mut self, conversation: &mut Conversation, events: Vec<MessageEvent>) {
        for event in events {
            if let MessageEvent::Append { message } = &event
                && conversation.has(&message.id)
            {
                continue;
            }
            if let Err(missing) = conversation.apply(event.clone()) {
                self.observe(Kind::MessageWarning, Scope::Turn, &missing.to_string());
            }
            self.record(Box::new(event));
        }
    }

    /// Starts entering a step.
    pub(super) fn begin_step(&mut self, step: u32, then: NextTurnAction) -> Phase {
        let cursor = self.cursor_of_step(step, then);
        Phase::Settling(NextTurnAction::Enter(cursor))
    }

    fn cursor_of_step(&mut self, step: u32, then: NextTurnAction) -> ChainCursor {
        self.middlewares.step = step;
        self.middlewares.hidden.clear();
        ChainCursor {
            step: Some(step),
            at: 0,
            then: Box::new(then),
        }
    }

    /// True if a middleware removed this tool from the step's catalog.
    pub(crate) fn hides(&self, tool_name: &str) -> bool {
        self.middlewares.why_not_offered(tool_name).is_some()
    }

    /// Performs the next action of a layer. Returns `Some(true)` if it did, `Some(false)` if it
    /// waits until everything is durable, and `None` if no layer is next.
    pub(super) fn go_around(&mut self, around: &mut AdvanceContext<'_>) -> Option<bool> {
        let is_settled = self.durable_seq == self.sent_seq;
        let middlewares = &mut self.middlewares;
        let next = match std::mem::replace(&mut self.phase, Phase::Completing) {
            Phase::Settling(next) => next,
            other => {
                self.phase = other;
                return None;
            }
        };
        let next = match &middlewares.fault {
            Some(fault) => next.in_spite_of(fault),
            None => next,
        };
        if !is_settled && middlewares.waits_before(&next) {
            self.phase = Phase::Settling(next);
            return Some(false);
        }
        if let Some((scope, open)) = middlewares.leaver(&next) {
            let result = result_of_next(middlewares, &self.id, scope, &next);
            let invocation = open.invocation;
            self.effects
                .push(TurnEngineEffect::Return { invocation, result });
            let direction = Direction::Out(next);
            self.phase = Phase::Invoking(TurnMiddlewareRun { open, direction });
            return Some(true);
        }
        match next {
            NextTurnAction::Assemble(then) => {
                self.effects.push(TurnEngineEffect::Assemble);
                self.phase = Phase::Assembling(*then);
            }
            NextTurnAction::Enter(cursor) => self.phase = self.enter(cursor, around),
            other @ (NextTurnAction::Ask { .. }
            | NextTurnAction::Call(_)
            | NextTurnAction::End { .. }
            | NextTurnAction::Complete(_)) => {
                self.phase = Phase::Settling(other);
                return None;
            }
        }
        Some(true)
    }

    /// Enters the next layer of a scope, or continues with its interior.
    fn enter(&mut self, mut cursor: ChainCursor, around: &mut AdvanceContext<'_>) -> Phase {
        let scope = match cursor.step {
            Some(_) => MiddlewareScope::Step,
            None => MiddlewareScope::Turn,
        };
        match around.extensions.layer(scope, cursor.at) {
            None => Phase::Settling(*cursor.then),
            Some(Layer::Builtin { place }) => {
                cursor.at += 1;
                let (extensions, conversation) = (&mut around.extensions, &mut around.conversation);
                let outputs = extensions.enter_at(place, cursor.step, conversation, around.now);
                self.take_outputs(outputs);
                Phase::Settling(NextTurnAction::Enter(cursor))
            }
            Some(Layer::Module { place, number }) => {
                let invocation = around.extensions.next_invocation();
                let moment = match cursor.step {
                    Some(step) => MiddlewareTarget::Step { step },
                    None => MiddlewareTarget::Turn,
                };
                let hook = cursor
                    .step
                    .map_or_else(|| "b".to_owned(), |step| format!("s{step}"));
                let name = around.extensions.name_at(place);
                self.effects.extend(name.map(|name| {
                    TurnEngineEffect::Enter(Box::new(Enter {
                        invocation,
                        extension: name.clone(),
                        number,
                        moment,
                        id_prefix: format!("{}:x{place}m{number}{hook}.", self.id),
                    }))
                }));
                let open = SuspendedMiddleware { place, invocation };
                let direction = Direction::In(cursor);
                Phase::Invoking(TurnMiddlewareRun { open, direction })
            }
        }
    }

    /// Starts the permitted calls on their way inwards.
    pub(super) fn begin_calls(&mut self, mut calls: Calls, extensions: &Extensions) -> Calls {
        let middlewares = &self.middlewares;
        calls.keep_to_catalog(
            |tool_name| {
                middlewares
                    .why_not_offered(tool_name)
                    .or_else(|| extensions.why_not_offered(tool_name))
            },
            &mut self.effects,
        );
        calls.begin_way_in();
        if let Some(fault) = &middlewares.fault {
            calls.give_up(&fault_text(fault), &mut self.effects);
        }
        calls
    }

    /// Advances the calls of a step. Returns false if no call ended.
    pub(super) fn advance_calls<R: ToolRules>(
        &mut self,
        calls: &mut Calls,
        rules: &R,
        around: &mut AdvanceContext<'_>,
    ) -> bool {
        let mut chain = ChainContext {
            around,
            effects: &mut self.effects,
            outputs: Vec::new(),
        };
        let has_ended = calls.advance(rules, &mut chain);
        let outputs = chain.outputs;
        self.take_outputs(outputs);
        calls.run(&mut self.effects);
        has_ended
    }
}

/// Result of `next()` for a middleware that leaves.
fn result_of_next(
    middlewares: &TurnMiddlewares,
    turn_id: &TurnId,
    scope: MiddlewareScope,
    next: &NextTurnAction,
) -> NextResult {
    if let (MiddlewareScope::Turn, NextTurnAction::Complete(outcome)) = (scope, next) {
        return NextResult::Turn(outcome.clone());
    }
    let step_id = StepId::of_turn(turn_id, middlewares.step);
    let mut messages =
        appended(&middlewares.events).skip_while(|message| message.step_id() != Some(&step_id));
    let calls = messages.next().map(|reply| reply.data.content.tool_calls());
    let error = match next {
        NextTurnAction::Complete(TurnOutcome::Failed { code, message }) => {
            Some(format!("{code}: {message}"))
        }
        _ => None,
    };
    NextResult::Step {
        calls: calls.unwrap_or_default(),
        results: messages.flat_map(results_of).collect(),
        goes_on: matches!(next, NextTurnAction::Ask { .. }),
        error,
    }
}

/// The messages that were appended, in order.
fn appended(events: &[MessageEvent]) -> impl Iterator<Item = &Message> {
    events.iter().filter_map(|event| match event {
        MessageEvent::Append { message } => Some(message),
        MessageEvent::Replace { .. } | MessageEvent::Remove { .. } | MessageEvent::Truncate => None,
    })
}

fn results_of(message: &Message) -> Vec<ToolResult> {
    message.data.content.tool_results()
}

/// Error result, for the model, of a call that is not made because its turn fails.
fn fault_text(fault: &ExtensionFault) -> String {
    format!("{}: {}", fault.code, fault.message)
}
