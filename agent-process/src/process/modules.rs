//! Extensions that are modules: passes the engine's requests to their host and the host's events to
//! the engine.

use goondan_protocol::agents::{AgentAnswer, AgentAsk, AgentQuestion, ListScope};
use goondan_protocol::call::CallPlace;
use goondan_protocol::event::TurnOutcome;
use goondan_protocol::ids::{AgentName, InstanceKey, StepId};
use goondan_protocol::limits::{
    DEFAULT_REQUEST_TIMEOUT_MS, MAX_INPUT_BYTES, MAX_REQUEST_TIMEOUT_MS,
};
use serde_json::{Value, json};

use super::agent::{Agent, AgentRequestResult, BackgroundResult};
use super::fault::ProcessError;
use crate::extension_host::{
    HostEvent, MiddlewareAgentRequest, MiddlewareRequest, NewTurn, SCRIPT,
};
use crate::middleware::{
    Enter, ExtensionFault, InvocationId, MiddlewareEvent, MiddlewareReturn, MiddlewareTarget,
    NextResult,
};
use crate::tools::ToolFault;
use crate::tools::host::HostProgram;
use crate::turn::{Scope, TurnEngineInput};

impl Agent {
    /// Prepares the host for a turn.
    pub(super) fn prepare_modules(&mut self) {
        if let Some(host) = &mut self.extension_host {
            host.prepare(self.engine.conversation());
        }
    }

    /// Makes the modules ready for the turn.
    pub(super) fn assemble(&mut self) {
        let Some(host) = &self.extension_host else {
            return;
        };
        if !host.needs_host() {
            self.begin_with_host();
            return;
        }
        let (toolbox, entries) = (self.toolbox.clone(), host.entries());
        self.work.spawn(async move {
            let program = toolbox.host_of_modules(SCRIPT, &entries).await;
            BackgroundResult::HostOfModules { program }
        });
    }

    /// Starts the host with the program found for the modules.
    pub(super) async fn launch_host(
        &mut self,
        program: Result<Option<HostProgram>, ToolFault>,
    ) -> Result<(), ProcessError> {
        let lost = |message: String| ExtensionFault {
            code: "E_EXT_LOAD".to_owned(),
            message,
        };
        let states = self.engine.states_of_modules();
        let started = match (program, &mut self.extension_host) {
            (Ok(Some(program)), Some(host)) => host.launch(&program, &states),
            (Err(fault), Some(_)) => Err(lost(format!(
                "failed to run the module of an extension: {}",
                fault.message
            ))),
            (Ok(None), _) | (_, None) => Ok(()),
        };
        match started {
            Ok(()) => {
                self.begin_with_host();
                Ok(())
            }
            Err(fault) => self.lose_modules(fault).await,
        }
    }

    fn begin_with_host(&mut self) {
        let states = self.engine.states_of_modules();
        let (Some(host), Some(recorder), Some(turn_id), Some(event)) = (
            &mut self.extension_host,
            &self.recorder,
            self.engine.turn_id(),
            self.engine.turn_event(),
        ) else {
            return;
        };
        let begun = NewTurn {
            turn_id,
            trace_id: recorder.trace().trace_id,
            event,
        };
        host.begin(begun, states, recorder.turn_span());
    }

    /// Enters a middleware. MCP servers are asked for their tools before a step's catalog is shown.
    pub(super) fn enter(&mut self, enter: Box<Enter>) {
        let step = match &enter.moment {
            MiddlewareTarget::Step { step } => Some(*step),
            MiddlewareTarget::Turn | MiddlewareTarget::Call { .. } => None,
        };
        match step {
            Some(step)
                if !self.toolbox.servers().is_empty() && self.asked_servers != Some(step) =>
            {
                self.asked_servers = Some(step);
                let asking = self.asking_servers(step);
                self.work.spawn(async move {
                    if let Some(asking) = asking {
                        asking.await;
                    }
                    BackgroundResult::OfferedTo { enter }
                });
            }
            _ => self.enter_now(&enter),
        }
    }

    pub(super) fn enter_now(&mut self, enter: &Enter) {
        let catalog = match &enter.moment {
            MiddlewareTarget::Step { .. } => self.offered().into_owned(),
            MiddlewareTarget::Turn | MiddlewareTarget::Call { .. } => Vec::new(),
        };
        if let Some(host) = &mut self.extension_host {
            host.enter(enter, self.engine.turn_events(), &catalog);
        }
    }

    pub(super) fn return_to(&mut self, invocation: InvocationId, result: &NextResult) {
        if let Some(host) = &mut self.extension_host {
            host.tell(invocation, result, self.engine.turn_events());
        }
    }

    pub(super) async fn take_host_event(
        &mut self,
        host_event: HostEvent,
    ) -> Result<(), ProcessError> {
        // A host that ends between turns is restarted for the next turn.
        if self.engine.turn_id().is_none() {
            return Ok(());
        }
        match host_event {
            HostEvent::Assembled(middlewares) => {
                self.handle(TurnEngineInput::Assembled { middlewares })
                    .await
            }
            HostEvent::MiddlewareActed {
                invocation,
                event,
                made_result_of,
            } => {
                let event = match (event, made_result_of) {
                    (
                        MiddlewareEvent::Left {
                            notes,
                            returned: MiddlewareReturn::Call(outcome),
                        },
                        Some(call_id),
                    ) => {
                        let returned =
                            MiddlewareReturn::Call(self.toolbox.shortened(outcome, &call_id));
                        MiddlewareEvent::Left { notes, returned }
                    }
                    (event, _) => event,
                };
                self.handle(TurnEngineInput::MiddlewareActed { invocation, event })
                    .await
            }
            HostEvent::Lost(fault) => self.lose_modules(fault).await,
            HostEvent::Ask(ask) => {
                self.ask_others(ask);
                Ok(())
            }
        }
    }

    async fn lose_modules(&mut self, fault: ExtensionFault) -> Result<(), ProcessError> {
        self.handle(TurnEngineInput::ExtensionsLost { fault }).await
    }

    fn ask_others(&mut self, ask: MiddlewareRequest) {
        let MiddlewareRequest {
            id,
            step,
            place,
            asked,
        } = ask;
        let Some(turn_id) = self.engine.turn_id().cloned() else {
            return;
        };
        let scope = match step {
            Some(step) => Scope::Step(StepId::of_turn(&turn_id, step)),
            None => Scope::Turn,
        };
        let trace = self.recorder.as_ref().map(|r| r.place_of(&scope));
        let agent_client = self.agent_client.clone();
        self.work.spawn(async move {
            let answer = match question_of(asked) {
                Err(fault) => Err(fault),
                Ok(question) => {
                    let ask = AgentAsk {
                        turn_id,
                        step: step.unwrap_or(0),
                        call: place,
                        question,
                    };
                    match agent_client.ask(ask, trace).await {
                        Some(answer) => to_request_result(answer),
                        None => Err(fault("E_UNAVAILABLE", "this process is ending")),
                    }
                }
            };
            BackgroundResult::Answered { id, answer }
        });
    }

    pub(super) fn answer_module(&mut self, id: u64, answer: AgentRequestResult) {
        if let Some(host) = &mut self.extension_host {
            host.answer(id, answer);
        }
    }

    /// Position of a step in the turn, for outgoing calls.
    pub(super) fn place_of_step(&self, step: u32) -> Option<CallPlace> {
        let turn_id = self.engine.turn_id()?;
        Some(CallPlace {
            turn_id: turn_id.clone(),
            step_id: Some(StepId::of_turn(turn_id, step)),
            tool_call_id: None,
        })
    }
}

fn fault(code: &str, message: impl Into<String>) -> (String, String) {
    (code.to_owned(), message.into())
}

fn question_of(asked: MiddlewareAgentRequest) -> Result<AgentQuestion, (String, String)> {
    let MiddlewareAgentRequest {
        op,
        agent,
        input,
        instance_key,
        wait,
        timeout_ms,
        scope,
        note,
    } = asked;
    let invalid = |message: String| fault("E_INVALID_REQUEST", message);
    match op.as_str() {
        "list" => {
            let scope = match scope.as_deref() {
                None | Some("conversation") => ListScope::Conversation,
                Some("workspace") => ListScope::Workspace,
                Some(other) => {
                    return Err(invalid(format!(
                        "the scope is `conversation` or `workspace`, not `{other}`"
                    )));
                }
            };
            return Ok(AgentQuestion::List { scope });
        }
        "catalog" => return Ok(AgentQuestion::Catalog {}),
        _ => {}
    }
    let agent: AgentName = agent
        .parse()
        .map_err(|error| fault("E_AGENT_NOT_FOUND", format!("`target`: {error}")))?;
    let instance_key = instance_key.map(|key| key.parse::<InstanceKey>());
    let instance_key = instance_key
        .transpose()
        .map_err(|error| invalid(format!("`instanceKey`: {error}")))?;
    if input.is_empty() || input.len() > MAX_INPUT_BYTES {
        return Err(invalid(format!(
            "`input` has 1 to {MAX_INPUT_BYTES} bytes, not {}",
            input.len()
        )));
    }
    let timeout_ms = timeout_ms.unwrap_or(DEFAULT_REQUEST_TIMEOUT_MS);
    if timeout_ms == 0 || timeout_ms > MAX_REQUEST_TIMEOUT_MS {
        return Err(invalid(format!(
            "`timeoutMs` is 1 to {MAX_REQUEST_TIMEOUT_MS}, not {timeout_ms}"
        )));
    }
    match op.as_str() {
        "request" => Ok(AgentQuestion::Request {
            agent,
            instance_key,
            input,
            wait: wait.unwrap_or(true),
            timeout_ms,
            note,
        }),
        "send" => Ok(AgentQuestion::Send {
            agent,
            instance_key,
            input,
            note,
        }),
        "spawn" => Ok(AgentQuestion::Spawn {
            agent,
            instance_key,
            input,
        }),
        other => Err(invalid(format!(
            "unknown request to other agents: `{other}`"
        ))),
    }
}

/// Formats an answer for a module.
fn to_request_result(answer: AgentAnswer) -> AgentRequestResult {
    match answer {
        AgentAnswer::Answered {
            agent,
            instance_key,
            event_id,
            outcome: TurnOutcome::Completed { reply },
        } => Ok(json!({
            "target": agent, "response": reply, "instanceKey": instance_key, "eventId": event_id,
        })),
        AgentAnswer::Answered {
            agent,
            outcome: TurnOutcome::Failed { code, message },
            ..
        } => Err(fault(
            "E_AGENT_FAILED",
            format!("agent `{agent}` could not answer: {code}: {message}"),
        )),
        AgentAnswer::Accepted {
            agent,
            instance_key,
            event_id,
        } => Ok(json!({
            "accepted": true, "target": agent, "instanceKey": instance_key, "eventId": event_id,
        })),
        AgentAnswer::Pending { agent, reason, .. } => Err(fault(
            "E_AGENT_PENDING",
            format!(
                "agent `{agent}` has not answered yet: {reason}. Its answer comes as a message later"
            ),
        )),
        AgentAnswer::Instances { instances, more } => {
            Ok(json!({"instances": instances, "more": more}))
        }
        AgentAnswer::Catalog { agents } => Ok(json!({"agents": agents})),
        // These answer only requests for a restart, an approval, events, files or tasks.
        AgentAnswer::Restarting {}
        | AgentAnswer::Events { .. }
        | AgentAnswer::Approval { .. }
        | AgentAnswer::Sandbox { .. }
        | AgentAnswer::Proposal { .. }
        | AgentAnswer::Task { .. }
        | AgentAnswer::Diff { .. }
        | AgentAnswer::Review { .. }
        | AgentAnswer::Applied { .. }
        | AgentAnswer::Tasks { .. }
        | AgentAnswer::Schedule { .. }
        | AgentAnswer::Schedules { .. }
        | AgentAnswer::ScheduleEnded { .. }
        | AgentAnswer::Bundle { .. } => Ok(Value::Null),
        AgentAnswer::Refused { code, message } => Err((code, message)),
    }
}
