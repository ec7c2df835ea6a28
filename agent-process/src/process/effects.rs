//! Executes the effects of the engine.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::BoxFuture;
use goondan_protocol::conversation::Conversation;
use goondan_protocol::definition::CatalogEntry;
use goondan_protocol::ids::{MessageId, StepId, ToolCallId};
use goondan_protocol::ipc::{ToOrchestrator, TurnAppend, TurnComplete};
use goondan_protocol::message::{Message, ToolCall};
use goondan_protocol::observe::{RuntimeEvent, RuntimeEventKind, SpanPhase};
use goondan_protocol::time::Timestamp;
use goondan_protocol::trace::TraceContext;
use goondan_protocol::usage::ReplyCost;

use crate::model::ModelRequest;
use crate::recorder::Recorder;
use crate::tool_call::CallKey;
use crate::tools::{CallSite, WhileStarting, has_no_sandbox};
use crate::turn::{Observation, Scope, TurnEngineEffect, TurnEngineInput};

use super::agent::{Agent, BackgroundResult, now};
use super::fault::ProcessError;

impl Agent {
    pub(super) async fn handle(&mut self, input: TurnEngineInput) -> Result<(), ProcessError> {
        let effects = self.engine.handle(input, now())?;
        self.carry_out(effects).await
    }

    pub(super) async fn carry_out(
        &mut self,
        effects: Vec<TurnEngineEffect>,
    ) -> Result<(), ProcessError> {
        let trace = self.recorder.as_ref().map(Recorder::trace);
        for effect in effects {
            match effect {
                TurnEngineEffect::Append {
                    turn_id,
                    seq,
                    event,
                } => {
                    let event = serde_json::value::to_raw_value(&event)
                        .map_err(ProcessError::Unwritable)?;
                    let append = ToOrchestrator::TurnAppend(TurnAppend {
                        turn_id,
                        seq,
                        event,
                    });
                    self.link.send(&append, trace, None).await?;
                }
                TurnEngineEffect::AskModel {
                    step,
                    seq,
                    message_id,
                } => {
                    let has_asked = self.asked_servers == Some(step);
                    if has_asked || self.toolbox.servers().is_empty() {
                        self.ask_model(step, seq, &message_id);
                    } else {
                        self.ask_servers(step, seq, message_id);
                    }
                }
                TurnEngineEffect::Assemble => self.assemble(),
                TurnEngineEffect::Enter(enter) => self.enter(enter),
                TurnEngineEffect::Return { invocation, result } => {
                    self.return_to(invocation, &result);
                }
                TurnEngineEffect::AskSummary {
                    step_id,
                    seq,
                    message_id,
                    system,
                    text,
                } => self.ask_summary(&step_id, seq, &message_id, &system, &text),
                TurnEngineEffect::RunTool {
                    key,
                    call,
                    may_have_begun,
                    asked_at,
                } => {
                    let earlier = may_have_begun
                        .then(|| asked_at.unwrap_or_else(|| Timestamp::from_unix_millis(0)));
                    self.run_tool(key, call, earlier);
                }
                TurnEngineEffect::Log { extension, line } => {
                    tracing::info!(extension = extension.as_str(), "{line}");
                }
                TurnEngineEffect::Observe(observation) => self.observe(observation, trace).await?,
                TurnEngineEffect::Complete {
                    turn_id,
                    last_seq,
                    outcome,
                    answered,
                } => {
                    let complete = ToOrchestrator::TurnComplete(TurnComplete {
                        turn_id,
                        last_seq,
                        outcome,
                        answered,
                        states: self.engine.changed_states(),
                    });
                    self.link.send(&complete, trace, None).await?;
                }
            }
        }
        Ok(())
    }

    /// Reports an observation to the orchestrator and the modules of extensions.
    async fn observe(
        &mut self,
        observation: Observation,
        trace: Option<TraceContext>,
    ) -> Result<(), ProcessError> {
        let assignment = &self.assignment;
        let Some(recorder) = &mut self.recorder else {
            return Ok(());
        };
        let sandbox = match (&observation.scope, observation.kind.phase()) {
            (Scope::Call { tool_name, .. }, SpanPhase::Ends(_)) => {
                let was_started = !observation.detail.as_deref().is_some_and(has_no_sandbox);
                self.toolbox.sandbox_of(tool_name).filter(|_| was_started)
            }
            _ => None,
        };
        let event = recorder.record(
            observation,
            &assignment.agent.name,
            &assignment.instance_key,
            now(),
            Instant::now(),
        );
        let event = RuntimeEvent { sandbox, ..event };
        if let Some(host) = &mut self.extension_host {
            host.tell_event(&event);
        }
        let observe = ToOrchestrator::Observe(Box::new(event));
        self.link.send(&observe, trace, None).await?;
        Ok(())
    }

    /// The span for a call's log lines.
    pub(super) fn log_span(&self, key: CallKey, call: &ToolCall) -> tracing::Span {
        match (&self.recorder, self.engine.turn_id()) {
            (Some(recorder), Some(turn_id)) => {
                recorder.log_span(&StepId::of_turn(turn_id, key.step), call)
            }
            (None, _) | (_, None) => tracing::Span::none(),
        }
    }

    pub(super) fn site_of(
        &self,
        key: CallKey,
        call_id: &ToolCallId,
        tool_name: &str,
    ) -> Option<CallSite> {
        let turn_id = self.engine.turn_id()?.clone();
        let scope = Scope::Call {
            step_id: StepId::of_turn(&turn_id, key.step),
            call_id: call_id.clone(),
            tool_name: tool_name.to_owned(),
        };
        let recorder = self.recorder.as_ref();
        Some(CallSite {
            turn_id,
            key,
            trace: recorder.map(|recorder| recorder.place_of(&scope)),
            agent_client: self.agent_client.clone(),
            outgoing: self.outgoing.clone(),
            origin: self.origin.clone(),
            again_since: None,
        })
    }

    /// Asks MCP servers for their tools and then the model. A server that does not answer keeps its
    /// previous tools.
    fn ask_servers(&mut self, step: u32, seq: u64, message_id: MessageId) {
        let Some(asking) = self.asking_servers(step) else {
            return;
        };
        self.work.spawn(async move {
            asking.await;
            BackgroundResult::Offered {
                step,
                seq,
                message_id,
            }
        });
    }

    pub(super) fn asking_servers(&self, step: u32) -> Option<BoxFuture<'static, ()>> {
        let place = self.place_of_step(step)?;
        let scope = Scope::Step(place.step_id.clone()?);
        let trace = self.recorder.as_ref().map(|r| r.place_of(&scope));
        let servers = Arc::clone(self.toolbox.servers());
        let outgoing = self.outgoing.clone();
        Some(Box::pin(async move {
            let asked = servers.iter().map(|server| async {
                let place = (place.clone(), trace);
                let refreshed = server.refresh(&outgoing, place, WhileStarting::Fail).await;
                let connection = server.connection();
                match refreshed {
                    Ok(()) => {}
                    Err(_) if server.wait_tool().is_some() => {
                        tracing::info!(connection, "MCP server still starting");
                    }
                    Err(reason) => tracing::warn!(
                        connection,
                        %reason,
                        "failed to list the tools of an MCP server"
                    ),
                }
            });
            futures_util::future::join_all(asked).await;
        }))
    }

    /// The tools offered to the model in the coming step.
    pub(super) fn offered(&self) -> Cow<'_, [CatalogEntry]> {
        let mut catalog = self.toolbox.catalog();
        let is_left_out = |entry: &CatalogEntry| !self.engine.offers(entry.name.as_str());
        if catalog.iter().any(is_left_out) {
            catalog.to_mut().retain(|entry| !is_left_out(entry));
        }
        catalog
    }

    /// Asks the model to summarize a text, sent as a conversation of one message.
    fn ask_summary(
        &mut self,
        step_id: &StepId,
        seq: u64,
        message_id: &MessageId,
        system: &str,
        text: &str,
    ) {
        let Some(turn_id) = self.engine.turn_id() else {
            return;
        };
        let question = Message::user(message_id.clone(), now(), text);
        let scope = Scope::Step(step_id.clone());
        let trace = self.recorder.as_ref().map(|r| r.place_of(&scope));
        let answer = self.model.ask(ModelRequest {
            system: Some(system),
            messages: &Conversation::from_base(vec![question]),
            catalog: &[],
            turn_id,
            step_id,
            seq,
            message_id,
            trace,
            step: 0,
        });
        self.work.spawn(async move {
            let came = answer.await;
            BackgroundResult::Summary { came }
        });
    }

    /// Reports servers whose tools are missing in the coming step.
    pub(super) async fn report_missing_tools(&mut self) -> Result<(), ProcessError> {
        let trace = self.recorder.as_ref().map(Recorder::trace);
        for missing in self.missing_tools() {
            if self.reported_missing.contains(&missing) {
                continue;
            }
            self.reported_missing.push(missing.clone());
            let warning = Observation {
                kind: RuntimeEventKind::MessageWarning,
                scope: Scope::Turn,
                spent: ReplyCost::default(),
                response: None,
                outcome_unknown: false,
                refusal: None,
                detail: Some(missing),
            };
            self.observe(warning, trace).await?;
        }
        Ok(())
    }

    fn missing_tools(&self) -> Vec<String> {
        let servers = self.toolbox.servers().iter();
        servers.filter_map(|server| server.missing()).collect()
    }

    /// The system prompt, and a note about tools that are not available yet.
    fn system_prompt(&self) -> Option<Cow<'_, str>> {
        let prompt = self.assignment.agent.system_prompt.as_deref();
        let missing = self.missing_tools();
        if missing.is_empty() {
            return prompt.map(Cow::Borrowed);
        }
        let mut parts: Vec<&str> = prompt.into_iter().collect();
        let mut note = format!("Note: {}.", missing.join("; "));
        let servers = self.toolbox.servers().iter();
        let waits: BTreeSet<String> = servers.filter_map(|server| server.wait_tool()).collect();
        for tool in waits {
            note.push_str(&format!(" If you need them, call `{tool}` first."));
        }
        parts.push(&note);
        Some(Cow::Owned(parts.join("\n\n")))
    }

    pub(super) fn ask_model(&mut self, step: u32, seq: u64, message_id: &MessageId) {
        let Some(turn_id) = self.engine.turn_id() else {
            return;
        };
        let step_id = StepId::of_turn(turn_id, step);
        let scope = Scope::Step(step_id.clone());
        let trace = self.recorder.as_ref().map(|r| r.place_of(&scope));
        let catalog = self.offered();
        let system = self.system_prompt();
        let answer = self.model.ask(ModelRequest {
            system: system.as_deref(),
            messages: self.engine.conversation(),
            catalog: &catalog,
            turn_id,
            step_id: &step_id,
            seq,
            message_id,
            trace,
            step,
        });
        self.work.spawn(async move {
            let answer = answer.await;
            BackgroundResult::Model { step, answer }
        });
    }
}
