//! Requests between agents (`IPC-2`, `IPC-3`).
//!
//! A question is an event of the target instance, accepted like any other. Its id is derived from
//! the requester's turn and tool call. If it is repeated after a crash of either side or of the
//! daemon, it is the same question and gets the stored answer.
//!
//! # No deadlocks
//!
//! An instance runs one turn at a time, so instances whose running turns wait for each other's
//! answers would deadlock. [`asked`](super::conversation::Conversation::asked) are the instances that
//! each running turn waits for. A request that would close a cycle is rejected.

use std::collections::BTreeSet;

use goondan_config::ProjectConfig;
use goondan_protocol::JsonObject;
use goondan_protocol::agents::{
    AgentAnswer, AgentAsk, AgentListItem, AgentQuestion, InstanceListItem, ListScope, REQUEST_KIND,
    REQUEST_NOTE, RequestNote, reply_id,
};
use goondan_protocol::event::{AgentEvent, Chain, EventSource, ReplyTo};
use goondan_protocol::ids::{AgentName, EventId, InstanceKey, InstanceRef};
use goondan_protocol::ipc::ToAgent;
use goondan_protocol::limits::{MAX_INPUT_BYTES, MAX_REQUEST_TIMEOUT_MS};
use goondan_protocol::trace::{SpanId, TraceContext};
use goondan_store::instance::{Metadata, PendingReplyRecord};
use goondan_store::writer::operation::AwaitReply;
use serde_json::json;

use super::agent_replies::AwaitingThenAsk;
use super::agent_replies::pending_replies::{ReplyMode, Requester};
use super::conversation::Conversation;
use super::event_queue::EventOrigin;
use super::quotas::Root;
use super::scheduled_inputs::ScheduleCreator;
use super::{Fleet, authority, bundle_of};
use crate::exchange::ProposalWork;
use crate::limits::{
    LISTED_INSTANCES_MAX, MAX_CHAIN_DEPTH, MAX_OPEN_QUESTIONS, REQUEST_NOTE_BYTES_MAX,
};
use crate::refusals::AgentRequestError;
use crate::router::agents_of;
use crate::{CoreEffect, ListPurpose, LogEvent, ProcessId, router};

struct AgentRequest {
    agent: AgentName,
    key: Option<InstanceKey>,
    input: String,
    note: RequestNote,
    kind: RequestKind,
}

/// The response that the requester expects.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RequestKind {
    Nothing,
    NewInstance,
    AnswerLater,
    AnswerWithin { timeout_ms: u64 },
}

impl RequestKind {
    fn of_request(waits: bool, timeout_ms: u64) -> Self {
        if waits {
            let timeout_ms = timeout_ms.min(MAX_REQUEST_TIMEOUT_MS);
            Self::AnswerWithin { timeout_ms }
        } else {
            Self::AnswerLater
        }
    }
}

fn check_size(request: &AgentRequest) -> Result<(), AgentRequestError> {
    let invalid = |message: String| Err(AgentRequestError::new("E_INVALID_REQUEST", message));
    if request.input.is_empty() || request.input.len() > MAX_INPUT_BYTES {
        return invalid(format!("the input must have 1 to {MAX_INPUT_BYTES} bytes"));
    }
    let note_bytes = json!(request.note).to_string().len();
    if note_bytes > REQUEST_NOTE_BYTES_MAX {
        return invalid(format!(
            "the note to the input has {note_bytes} bytes; at most {REQUEST_NOTE_BYTES_MAX} are allowed"
        ));
    }
    Ok(())
}

/// A request that another component handles.
pub(crate) enum ForwardedRequest {
    Files(ProposalWork),
    Tasks(AgentAsk),
    Schedules(Box<ScheduleCreator>, AgentAsk),
}

impl Fleet {
    /// Handles a tool call's request about other agents, files, tasks or schedules. Requests about
    /// files, tasks and schedules are returned to the caller.
    pub(crate) fn on_agent_ask(
        &mut self,
        at: &InstanceRef,
        process: ProcessId,
        request_id: Option<u64>,
        trace: Option<TraceContext>,
        ask: AgentAsk,
    ) -> Option<(Requester, ForwardedRequest)> {
        let turn = self.turn_of(at);
        if turn.is_none_or(|turn| turn.turn_id != ask.turn_id) {
            self.on_broken(process, "it asked for a turn that is not in progress");
            return None;
        }
        let requester = Requester {
            at: at.clone(),
            process,
            request_id,
        };
        let trace = match self.check_ask(at, &ask.question, trace) {
            Ok(trace) => trace,
            Err(refused) => {
                let event =
                    LogEvent::warn("agent requested something that it is not allowed to use")
                        .of(at);
                self.log(event.with("problem", refused.message.clone()));
                self.answer_agent(&requester, refused.into());
                return None;
            }
        };
        if let AgentQuestion::Approval { .. } = &ask.question {
            if let Some((workspace, cx)) = self.workspace_and_cx(&at.workspace_id) {
                workspace.ask_approval(cx, requester, ask);
            }
            return None;
        }
        if ask.question.is_of_tasks() {
            return Some((requester, ForwardedRequest::Tasks(ask)));
        }
        if ask.question.is_of_schedules() {
            let entry = self.conversation(at);
            let Some(creator) = entry.and_then(Conversation::schedule_creator) else {
                let gone = AgentRequestError::new("E_UNAVAILABLE", "the requesting turn has ended");
                self.answer_agent(&requester, gone.into());
                return None;
            };
            let forwarded = ForwardedRequest::Schedules(Box::new(creator), ask);
            return Some((requester, forwarded));
        }
        if let AgentQuestion::Bundle { .. } = &ask.question {
            self.ask_bundle(requester, ask);
            return None;
        }
        let files = self.files_of(at);
        match files.and_then(|files| files.file_work(&ask.question)) {
            Ok(None) => {
                self.ask_agents(requester, trace, ask);
                None
            }
            Ok(Some(work)) => Some((requester, ForwardedRequest::Files(work))),
            Err(refused) => {
                self.answer_agent(&requester, refused.into());
                None
            }
        }
    }

    /// Handles an authorized request about other agents.
    fn ask_agents(&mut self, requester: Requester, trace: TraceContext, ask: AgentAsk) {
        let at = &requester.at.clone();
        let trace = Some(trace);
        let id = ask.event_id();
        let request = match ask.question {
            AgentQuestion::Catalog {} => {
                let answer = self.catalog(at);
                return self.answer_agent(&requester, answer);
            }
            AgentQuestion::Restart { reason } => {
                let answer = self.wish_restart(at, reason);
                return self.answer_agent(&requester, answer);
            }
            AgentQuestion::ReadEvent { event_id } => {
                return self.read_events(requester, Some(event_id));
            }
            AgentQuestion::ListEvents {} => return self.read_events(requester, None),
            AgentQuestion::List { scope } => {
                let workspace_id = at.workspace_id.clone();
                let purpose = ListPurpose::Agents { requester, scope };
                return self.cx.emit(CoreEffect::ListMetadata {
                    purpose,
                    workspace_id,
                });
            }
            // Files, tasks, schedules and approvals are handled elsewhere.
            AgentQuestion::Approval { .. }
            | AgentQuestion::CreateSchedule { .. }
            | AgentQuestion::ListSchedules {}
            | AgentQuestion::RemoveSchedule { .. }
            | AgentQuestion::PrepareSandbox { .. }
            | AgentQuestion::ShowSandbox { .. }
            | AgentQuestion::SubmitProposal { .. }
            | AgentQuestion::ShowProposal { .. }
            | AgentQuestion::DiffProposal { .. }
            | AgentQuestion::CheckProposal { .. }
            | AgentQuestion::ApplyProposal { .. }
            | AgentQuestion::Bundle { .. }
            | AgentQuestion::CreateTask { .. }
            | AgentQuestion::ShowTask { .. }
            | AgentQuestion::AwaitTask { .. } => return,
            AgentQuestion::Request {
                agent,
                instance_key: key,
                input,
                wait,
                timeout_ms,
                note,
            } => AgentRequest {
                agent,
                key,
                input,
                note,
                kind: RequestKind::of_request(wait, timeout_ms),
            },
            AgentQuestion::Send {
                agent,
                instance_key: key,
                input,
                note,
            } => AgentRequest {
                agent,
                key,
                input,
                note,
                kind: RequestKind::Nothing,
            },
            AgentQuestion::Spawn {
                agent,
                instance_key: key,
                input,
            } => AgentRequest {
                agent,
                key,
                input,
                note: RequestNote::default(),
                kind: RequestKind::NewInstance,
            },
        };
        let asked = match id {
            Ok(id) => self.ask_other(&requester, id, &request, (ask.step, trace)),
            Err(error) => Err(AgentRequestError::new(
                "E_INVALID_REQUEST",
                error.to_string(),
            )),
        };
        if let Err(refused) = asked {
            self.answer_agent(&requester, refused.into());
        }
    }

    /// Checks that the agent's process has the tool for its request. Returns the trace context of
    /// the question.
    fn check_ask(
        &mut self,
        at: &InstanceRef,
        question: &AgentQuestion,
        said: Option<TraceContext>,
    ) -> Result<TraceContext, AgentRequestError> {
        let gone = || AgentRequestError::new("E_UNAVAILABLE", "the requesting turn has ended");
        let entry = self.conversation_mut(at).ok_or_else(gone)?;
        let agent = entry.definition().ok_or_else(gone)?;
        let turn = entry.turn().ok_or_else(gone)?;
        authority::may_ask(agent, question)?;
        Ok(authority::trace_within(turn, said))
    }

    /// Sends a question to another instance, or to the same one.
    fn ask_other(
        &mut self,
        requester: &Requester,
        id: EventId,
        request: &AgentRequest,
        (step, trace): (u32, Option<TraceContext>),
    ) -> Result<(), AgentRequestError> {
        let at = &requester.at;
        check_size(request)?;
        let own = self.own_agent(at)?;
        let route = self.route_request(at, &own, &id, request)?;
        let target = InstanceRef {
            workspace_id: at.workspace_id.clone(),
            instance_key: route.instance_key,
        };
        let is_known = self.is_waiting_in(&target, &id);
        let mut reply_mode = match request.kind {
            RequestKind::Nothing | RequestKind::NewInstance => ReplyMode::Hand,
            RequestKind::AnswerLater => ReplyMode::Later { note: None },
            RequestKind::AnswerWithin { timeout_ms } => ReplyMode::Wait {
                until_ms: self.cx.now().mono_ms.saturating_add(timeout_ms),
            },
        };
        if matches!(reply_mode, ReplyMode::Wait { .. }) {
            let circle = self.circle(at, &target.instance_key);
            if self.is_awaited(at, &id) {
                // The call of an earlier process timed out.
                let note = Some("it took longer than the request may wait".to_owned());
                reply_mode = ReplyMode::Later { note };
            } else if let Some(path) = circle.filter(|_| !is_known) {
                let message = format!(
                    "this request would deadlock: {}; use `wait: false` or `send`",
                    path.join(" waits for ")
                );
                return Err(AgentRequestError::new("E_CIRCULAR_REQUEST", message));
            } else if self.circle(at, &target.instance_key).is_some() {
                let note = Some("the other agent now waits for this one".to_owned());
                reply_mode = ReplyMode::Later { note };
            }
        }
        let event = self.event_of(at, &own, id, request, trace, &target, is_known)?;
        if !is_known && target != *at {
            self.check_growth(at, &event, (&target.instance_key, step))?;
        }
        let reply = self.reply_template(&event, &route.agent, &target, at)?;
        if let ReplyMode::Wait { .. } = reply_mode
            && let Some(entry) = self.conversation_mut(at)
        {
            let (question, key) = (event.id.clone(), target.instance_key.clone());
            entry.ask(question, key);
        }
        if let ReplyMode::Later { .. } = reply_mode {
            self.await_then_ask(requester, target, route.agent, event, reply, reply_mode)
        } else {
            let reply = EventOrigin::Agent {
                requester: requester.clone(),
                reply_mode,
                question: event.id.clone(),
                reply: Box::new(reply),
            };
            self.accept(target, &route.agent, event, reply);
            Ok(())
        }
    }

    /// Checks that the turn's tree may give work to another conversation (`SEC-8`).
    fn check_growth(
        &mut self,
        at: &InstanceRef,
        question: &AgentEvent,
        (target, step): (&InstanceKey, u32),
    ) -> Result<(), AgentRequestError> {
        let now_ms = self.cx.now().mono_ms;
        let Some(chain) = &question.chain else {
            return Ok(());
        };
        let root = Root::of(&at.workspace_id, chain);
        let workspace = self.workspaces.get_mut(&at.workspace_id);
        let entry = workspace.and_then(|w| w.conversations.get_mut(&at.instance_key));
        let Some(turn) = entry.and_then(Conversation::turn_mut) else {
            return Ok(());
        };
        self.trees
            .reach(root, (&mut turn.used, step), target, now_ms)
    }

    /// Records that an answer is expected, and sends the question once that is durable.
    fn await_then_ask(
        &mut self,
        requester: &Requester,
        target: InstanceRef,
        agent: AgentName,
        event: AgentEvent,
        reply: AgentEvent,
        reply_mode: ReplyMode,
    ) -> Result<(), AgentRequestError> {
        let at = &requester.at;
        let entry = self.conversation(at);
        let open = entry.map_or(0, Conversation::open_questions);
        if open >= MAX_OPEN_QUESTIONS && !self.is_awaited(at, &event.id) {
            let message = format!(
                "this conversation already has {MAX_OPEN_QUESTIONS} unanswered requests; wait for \
                 some answers"
            );
            return Err(AgentRequestError::new("E_TOO_MANY_QUESTIONS", message));
        }
        let awaited = PendingReplyRecord {
            question: event.id.clone(),
            target: target.instance_key.clone(),
            reply: reply.clone(),
        };
        let op = AwaitReply {
            instance: at.clone(),
            awaited: Box::new(awaited),
            at: self.cx.now().wall,
        };
        let asking = AwaitingThenAsk {
            instance: at.clone(),
            requester: requester.clone(),
            target,
            agent,
            event: Box::new(event),
            reply: Box::new(reply),
            reply_mode,
        };
        self.cx.store(op, asking);
        Ok(())
    }

    fn own_agent(&mut self, at: &InstanceRef) -> Result<AgentName, AgentRequestError> {
        let entry = self.conversation_mut(at);
        let gone =
            || AgentRequestError::new("E_UNAVAILABLE", "the requesting conversation was deleted");
        entry.map(|entry| entry.agent().clone()).ok_or_else(gone)
    }

    fn route_request(
        &self,
        at: &InstanceRef,
        own: &AgentName,
        id: &EventId,
        request: &AgentRequest,
    ) -> Result<router::Route, AgentRequestError> {
        let unavailable = |message: &str| AgentRequestError::new("E_UNAVAILABLE", message);
        let workspace = self.workspaces.get(&at.workspace_id);
        let workspace = workspace.ok_or_else(|| unavailable("the workspace no longer exists"))?;
        let bundle = bundle_of(workspace).map_err(|error| unavailable(&error.message))?;
        // A new instance is named after the call that creates it, so a repeated call creates the
        // same instance.
        let fresh = (request.kind == RequestKind::NewInstance).then(|| SpanId::of_id(id.as_str()));
        let fresh = fresh.map(|span| span.to_string());
        let (own, key) = ((own, &at.instance_key), request.key.as_ref());
        router::route_between(bundle, own, &request.agent, key, fresh.as_deref()).map_err(
            |problem| {
                let message = format!("{problem}; the agents are: {}", agents_of(bundle));
                AgentRequestError::new("E_AGENT_NOT_FOUND", message)
            },
        )
    }

    /// The question's event. Its information about the requester comes from the event of the
    /// requester's turn.
    #[expect(clippy::too_many_arguments, reason = "gathers the parts of one event")]
    fn event_of(
        &mut self,
        at: &InstanceRef,
        own: &AgentName,
        id: EventId,
        request: &AgentRequest,
        trace: Option<TraceContext>,
        target: &InstanceRef,
        is_known: bool,
    ) -> Result<AgentEvent, AgentRequestError> {
        let created_at = self.cx.now().wall;
        let gone = || AgentRequestError::new("E_UNAVAILABLE", "the requesting turn has ended");
        let entry = self.conversation_mut(at).ok_or_else(gone)?;
        let turn = entry.turn().ok_or_else(gone)?;
        let cause = entry.queue().get(&turn.context.event_id).ok_or_else(gone)?;
        let chain = cause.chain.clone().unwrap_or_else(|| Chain {
            root_instance: at.instance_key.clone(),
            root_event: cause.id.clone(),
            depth: 0,
            through: Vec::new(),
        });
        if chain.depth >= MAX_CHAIN_DEPTH && !is_known {
            let message = format!(
                "the chain of requests between agents has reached its limit of {MAX_CHAIN_DEPTH}; \
                 answer with the results so far"
            );
            return Err(AgentRequestError::new("E_CHAIN_TOO_DEEP", message));
        }
        let is_request = !matches!(
            request.kind,
            RequestKind::Nothing | RequestKind::NewInstance
        );
        let mut through = chain.through.clone();
        if chain.depth > 0 {
            through.push(at.instance_key.clone());
        }
        let source = EventSource::Agent {
            name: own.clone(),
            instance_key: at.instance_key.clone(),
        };
        let kind = if is_request { REQUEST_KIND } else { "message" };
        let span = trace.map_or(turn.context.trace.span_id, |trace| trace.span_id);
        Ok(AgentEvent {
            kind: kind.to_owned(),
            created_at,
            trace_id: Some(turn.context.trace.trace_id),
            parent_span_id: Some(span),
            input: Some(request.input.clone()),
            header: None,
            properties: JsonObject::new(),
            instance_key: Some(target.instance_key.clone()),
            auth: cause.auth.clone(),
            reply_to: is_request.then(|| ReplyTo {
                target: source.clone(),
                correlation_id: Some(id.to_string()),
            }),
            chain: Some(Chain {
                depth: chain.depth + 1,
                through,
                ..chain
            }),
            source,
            metadata: match request.note.is_empty() {
                true => JsonObject::new(),
                false => JsonObject::from_iter([(REQUEST_NOTE.to_owned(), json!(request.note))]),
            },
            id,
        })
    }

    /// The event that will deliver the answer, without its content.
    fn reply_template(
        &mut self,
        question: &AgentEvent,
        agent: &AgentName,
        target: &InstanceRef,
        requester: &InstanceRef,
    ) -> Result<AgentEvent, AgentRequestError> {
        let id = reply_id(&question.id);
        let id =
            id.map_err(|error| AgentRequestError::new("E_INVALID_REQUEST", error.to_string()))?;
        // The answer goes back to the latest requester in the chain.
        let chain = question.chain.as_ref().map(|chain| Chain {
            depth: chain.depth.saturating_sub(1),
            through: {
                let asked = chain.through.split_last();
                asked.map_or_else(Vec::new, |(_, before)| before.to_vec())
            },
            ..chain.clone()
        });
        let mut metadata = JsonObject::new();
        let in_reply_to = goondan_protocol::agents::IN_REPLY_TO;
        metadata.insert(in_reply_to.to_owned(), json!(question.id));
        if let Some(mark) = question
            .reply_to
            .as_ref()
            .and_then(|r| r.correlation_id.as_ref())
        {
            metadata.insert("correlationId".to_owned(), json!(mark));
        }
        if let Some(note) = question.metadata.get(REQUEST_NOTE) {
            metadata.insert(REQUEST_NOTE.to_owned(), note.clone());
        }
        Ok(AgentEvent {
            id,
            kind: goondan_protocol::agents::REPLY_KIND.to_owned(),
            created_at: self.cx.now().wall,
            trace_id: question.trace_id,
            parent_span_id: question.parent_span_id,
            input: None,
            header: None,
            properties: JsonObject::new(),
            instance_key: Some(requester.instance_key.clone()),
            source: EventSource::Agent {
                name: agent.clone(),
                instance_key: target.instance_key.clone(),
            },
            auth: question.auth.clone(),
            reply_to: None,
            chain: chain.filter(|chain| chain.depth > 0),
            metadata,
        })
    }

    fn is_waiting_in(&mut self, at: &InstanceRef, id: &EventId) -> bool {
        let entry = self.conversation_mut(at);
        entry.is_some_and(|entry| entry.queue().get(id).is_some())
    }

    /// True if the answer to a question is expected as an event or has arrived as one.
    fn is_awaited(&mut self, at: &InstanceRef, question: &EventId) -> bool {
        let Ok(reply) = reply_id(question) else {
            return false;
        };
        let is_here = self.is_waiting_in(at, &reply);
        let entry = self.conversation_mut(at);
        is_here || entry.is_some_and(|entry| entry.is_awaiting(&reply))
    }

    /// The cycle that a request from `at` to `target` would close, as the instances on it.
    fn circle(&self, at: &InstanceRef, target: &InstanceKey) -> Option<Vec<String>> {
        let workspace = self.workspaces.get(&at.workspace_id)?;
        let mut paths: Vec<Vec<&InstanceKey>> = vec![vec![target]];
        let mut seen: BTreeSet<&InstanceKey> = BTreeSet::new();
        while let Some(path) = paths.pop() {
            let last = *path.last()?;
            if *last == at.instance_key {
                let whole = std::iter::once(&at.instance_key).chain(path);
                return Some(whole.map(|key| format!("`{key}`")).collect());
            }
            if !seen.insert(last) {
                continue;
            }
            let entry = workspace.conversations.get(last);
            for next in entry.into_iter().flat_map(Conversation::asked) {
                paths.push(path.iter().copied().chain([next]).collect());
            }
        }
        None
    }

    fn catalog(&self, at: &InstanceRef) -> AgentAnswer {
        let workspace = self.workspaces.get(&at.workspace_id);
        let bundle = workspace.and_then(|workspace| workspace.bundle.as_ref());
        let agents = bundle.map(known_agents).unwrap_or_default();
        AgentAnswer::Catalog { agents }
    }

    /// Handles the list of instances that a requester needs.
    pub(crate) fn on_instances_listed(
        &mut self,
        requester: &Requester,
        scope: ListScope,
        found: Vec<Metadata>,
    ) {
        let at = &requester.at;
        let Some(workspace) = self.workspaces.get(&at.workspace_id) else {
            return;
        };
        let agent_of = |key| workspace.conversations.get(key).map(Conversation::agent);
        let conversation = workspace.bundle.as_ref().zip(agent_of(&at.instance_key));
        let conversation = conversation.map(|(bundle, own)| {
            let own = (own, &at.instance_key);
            router::conversation_of(bundle, own).to_owned()
        });
        let is_chosen = |metadata: &Metadata| match (scope, &conversation, &workspace.bundle) {
            (ListScope::Conversation, Some(conversation), Some(bundle)) => {
                let whose = (&metadata.agent_name, &metadata.instance_key);
                let theirs = router::conversation_of(bundle, whose);
                theirs == conversation
                    || theirs
                        .strip_prefix(conversation.as_str())
                        .is_some_and(|rest| rest.starts_with(router::SPAWNED))
            }
            _ => true,
        };
        let mut instances: Vec<InstanceListItem> = found
            .into_iter()
            .filter(is_chosen)
            .map(|metadata| {
                let entry = workspace.conversations.get(&metadata.instance_key);
                let status = match entry {
                    _ if metadata.instance_key == at.instance_key => "self",
                    Some(entry) if entry.turn().is_some() => "processing",
                    _ => "idle",
                };
                InstanceListItem {
                    pending_events: entry.map_or(0, Conversation::pending),
                    status: status.to_owned(),
                    agent: metadata.agent_name,
                    instance_key: metadata.instance_key,
                }
            })
            .collect();
        instances.sort_by(|a, b| a.instance_key.cmp(&b.instance_key));
        let more = instances.len().saturating_sub(LISTED_INSTANCES_MAX);
        instances.truncate(LISTED_INSTANCES_MAX);
        self.answer_agent(requester, AgentAnswer::Instances { instances, more });
    }

    /// Sends the answer of a request to the agent.
    pub(crate) fn answer_agent(&mut self, requester: &Requester, answer: AgentAnswer) {
        let message = ToAgent::AgentAnswer(Box::new(answer));
        self.send_agent(
            &requester.at,
            requester.process,
            requester.request_id,
            None,
            message,
        );
    }
}

fn known_agents(bundle: &ProjectConfig) -> Vec<AgentListItem> {
    let known = |(name, agent): (&AgentName, &goondan_protocol::definition::AgentDefinition)| {
        AgentListItem {
            name: name.clone(),
            description: agent.description.clone(),
            tools: agent.tools.iter().map(|tool| tool.name.clone()).collect(),
            is_entry: bundle.is_entry(name),
        }
    };
    bundle.agents.iter().map(known).collect()
}
