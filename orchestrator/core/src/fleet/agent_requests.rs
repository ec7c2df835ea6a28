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
use goondan_protocol::limits::{MAX_INPUT_BYTES, MAX_REQUEST_TIMEOUT_MS};
use goondan_protocol::trace::{SpanId, TraceContext};
use goondan_store::instance::Metadata;
use serde_json::json;

use super::agent_replies::AwaitingThenAsk;
use super::agent_replies::pending_replies::{ReplyMode, Requester};
use super::conversation::Conversation;
use super::event_queue::EventOrigin;
use super::event_reads::read_events;
use super::quotas::Root;
use super::scheduled_inputs::ScheduleCreator;
use super::{Workspace, authority, bundle_of};
use crate::bus::context::Cx;
use crate::exchange::{ChildRequest, ProposalWork};
use crate::limits::{
    LISTED_INSTANCES_MAX, MAX_CHAIN_DEPTH, MAX_OPEN_QUESTIONS, REQUEST_NOTE_BYTES_MAX,
};
use crate::refusals::AgentRequestError;
use crate::router::agents_of;
use crate::{CoreEffect, ListPurpose, LogEvent, router};

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

impl Workspace {
    /// Handles a tool call's request about other agents, files, tasks or schedules. Requests about
    /// files, tasks and schedules are returned to the caller.
    pub(crate) fn on_agent_ask(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        request: ChildRequest,
        trace: Option<TraceContext>,
        ask: AgentAsk,
    ) -> Option<(Requester, ForwardedRequest)> {
        let ChildRequest {
            process,
            request_id,
        } = request;
        let turn = self.turn_of(&at.instance_key);
        if turn.is_none_or(|turn| turn.turn_id != ask.turn_id) {
            self.on_broken(cx, process, "it asked for a turn that is not in progress");
            return None;
        }
        let requester = Requester {
            at: at.clone(),
            process,
            request_id,
        };
        let entry = self.conversations.get(&at.instance_key);
        let checked = entry.ok_or_else(turn_has_ended);
        let checked = checked.and_then(|entry| entry.check_ask(&ask.question, trace));
        let trace = match checked {
            Ok(trace) => trace,
            Err(refused) => {
                let event =
                    LogEvent::warn("agent requested something that it is not allowed to use")
                        .of(at);
                self.log(cx, event.with("problem", refused.message.clone()));
                self.answer_agent(cx, &requester, refused.into());
                return None;
            }
        };
        if let AgentQuestion::Approval { .. } = &ask.question {
            self.ask_approval(cx, requester, ask);
            return None;
        }
        if ask.question.is_of_tasks() {
            return Some((requester, ForwardedRequest::Tasks(ask)));
        }
        if ask.question.is_of_schedules() {
            let entry = self.conversations.get(&at.instance_key);
            let Some(creator) = entry.and_then(Conversation::schedule_creator) else {
                self.answer_agent(cx, &requester, turn_has_ended().into());
                return None;
            };
            let forwarded = ForwardedRequest::Schedules(Box::new(creator), ask);
            return Some((requester, forwarded));
        }
        if let AgentQuestion::Bundle { .. } = &ask.question {
            if let Err(refused) = cx.ask_bundle(requester.clone(), ask) {
                self.answer_agent(cx, &requester, refused.into());
            }
            return None;
        }
        match self.files_of(cx.facts(), at).file_work(&ask.question) {
            Ok(None) => {
                self.ask_agents(cx, requester, trace, ask);
                None
            }
            Ok(Some(work)) => Some((requester, ForwardedRequest::Files(work))),
            Err(refused) => {
                self.answer_agent(cx, &requester, refused.into());
                None
            }
        }
    }

    /// Handles an authorized request about other agents.
    fn ask_agents(
        &mut self,
        cx: &mut Cx,
        requester: Requester,
        trace: TraceContext,
        ask: AgentAsk,
    ) {
        let at = &requester.at.clone();
        let trace = Some(trace);
        let id = ask.event_id();
        let request = match ask.question {
            AgentQuestion::Catalog {} => {
                let agents = self.bundle.as_ref().map(known_agents).unwrap_or_default();
                let answer = AgentAnswer::Catalog { agents };
                return self.answer_agent(cx, &requester, answer);
            }
            AgentQuestion::Restart { reason } => {
                let now_ms = cx.now().mono_ms;
                let entry = self.conversations.get_mut(&at.instance_key);
                let answer = entry.map(|entry| entry.wish_restart(now_ms, reason));
                let answer = answer.unwrap_or_else(|| conversation_is_gone().into());
                return self.answer_agent(cx, &requester, answer);
            }
            AgentQuestion::ReadEvent { event_id } => {
                return read_events(cx, requester, Some(event_id));
            }
            AgentQuestion::ListEvents {} => return read_events(cx, requester, None),
            AgentQuestion::List { scope } => {
                let workspace_id = at.workspace_id.clone();
                let purpose = ListPurpose::Agents { requester, scope };
                return cx.emit(CoreEffect::ListMetadata {
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
            Ok(id) => self.ask_other(cx, &requester, id, &request, (ask.step, trace)),
            Err(error) => Err(AgentRequestError::new(
                "E_INVALID_REQUEST",
                error.to_string(),
            )),
        };
        if let Err(refused) = asked {
            self.answer_agent(cx, &requester, refused.into());
        }
    }

    /// Sends a question to another instance, or to the same one.
    fn ask_other(
        &mut self,
        cx: &mut Cx,
        requester: &Requester,
        id: EventId,
        request: &AgentRequest,
        (step, trace): (u32, Option<TraceContext>),
    ) -> Result<(), AgentRequestError> {
        let at = &requester.at;
        check_size(request)?;
        let own = self.conversations.get(&at.instance_key);
        let own = own.ok_or_else(conversation_is_gone)?.agent().clone();
        let route = self.route_request(at, &own, &id, request)?;
        let target = InstanceRef {
            workspace_id: at.workspace_id.clone(),
            instance_key: route.instance_key,
        };
        let asked = self.conversations.get(&target.instance_key);
        let is_known = asked.is_some_and(|entry| entry.queue().get(&id).is_some());
        let mut reply_mode = match request.kind {
            RequestKind::Nothing | RequestKind::NewInstance => ReplyMode::Hand,
            RequestKind::AnswerLater => ReplyMode::Later { note: None },
            RequestKind::AnswerWithin { timeout_ms } => ReplyMode::Wait {
                until_ms: cx.now().mono_ms.saturating_add(timeout_ms),
            },
        };
        if matches!(reply_mode, ReplyMode::Wait { .. }) {
            let circle = self.circle(&at.instance_key, &target.instance_key);
            let own = self.conversations.get(&at.instance_key);
            if own.is_some_and(|entry| entry.has_or_awaits_answer_to(&id)) {
                // The call of an earlier process timed out.
                let note = Some("it took longer than the request may wait".to_owned());
                reply_mode = ReplyMode::Later { note };
            } else if let Some(path) = circle.filter(|_| !is_known) {
                let message = format!(
                    "this request would deadlock: {}; use `wait: false` or `send`",
                    path.join(" waits for ")
                );
                return Err(AgentRequestError::new("E_CIRCULAR_REQUEST", message));
            } else if self
                .circle(&at.instance_key, &target.instance_key)
                .is_some()
            {
                let note = Some("the other agent now waits for this one".to_owned());
                reply_mode = ReplyMode::Later { note };
            }
        }
        let entry = self.conversations.get(&at.instance_key);
        let entry = entry.ok_or_else(turn_has_ended)?;
        let event = Question {
            id,
            request,
            trace,
            target: &target,
            is_known,
        };
        let event = entry.question_event(cx, at, event)?;
        if !is_known && target != *at {
            self.check_growth(cx, at, &event, (&target.instance_key, step))?;
        }
        let reply = reply_template(cx, &event, (&route.agent, &target), at)?;
        if let Some(entry) = self.conversations.get_mut(&at.instance_key) {
            match reply_mode {
                ReplyMode::Hand => {}
                ReplyMode::Wait { .. } => {
                    let (question, key) = (event.id.clone(), target.instance_key.clone());
                    entry.ask(question, key);
                }
                ReplyMode::Later { .. } => entry.check_open_questions(&event.id)?,
            }
        }
        if let ReplyMode::Later { .. } = reply_mode {
            let asking = AwaitingThenAsk {
                instance: at.clone(),
                requester: requester.clone(),
                target,
                agent: route.agent,
                event: Box::new(event),
                reply: Box::new(reply),
                reply_mode,
            };
            asking.begin(cx);
            Ok(())
        } else {
            let reply = EventOrigin::Agent {
                requester: requester.clone(),
                reply_mode,
                question: event.id.clone(),
                reply: Box::new(reply),
            };
            self.accept(cx, target, &route.agent, event, reply);
            Ok(())
        }
    }

    /// Checks that the turn's tree may give work to another conversation (`SEC-8`).
    fn check_growth(
        &mut self,
        cx: &Cx,
        at: &InstanceRef,
        question: &AgentEvent,
        (target, step): (&InstanceKey, u32),
    ) -> Result<(), AgentRequestError> {
        let now_ms = cx.now().mono_ms;
        let Some(chain) = &question.chain else {
            return Ok(());
        };
        let root = Root::of(chain);
        let entry = self.conversations.get_mut(&at.instance_key);
        let Some(turn) = entry.and_then(Conversation::turn_mut) else {
            return Ok(());
        };
        self.trees
            .reach(root, (&mut turn.used, step), target, now_ms)
    }

    fn route_request(
        &self,
        at: &InstanceRef,
        own: &AgentName,
        id: &EventId,
        request: &AgentRequest,
    ) -> Result<router::Route, AgentRequestError> {
        let unavailable = |message: &str| AgentRequestError::new("E_UNAVAILABLE", message);
        let bundle = bundle_of(self).map_err(|error| unavailable(&error.message))?;
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

    /// The cycle that a request from `from` to `target` would close, as the instances on it.
    fn circle(&self, from: &InstanceKey, target: &InstanceKey) -> Option<Vec<String>> {
        let mut paths: Vec<Vec<&InstanceKey>> = vec![vec![target]];
        let mut seen: BTreeSet<&InstanceKey> = BTreeSet::new();
        while let Some(path) = paths.pop() {
            let last = *path.last()?;
            if last == from {
                let whole = std::iter::once(from).chain(path);
                return Some(whole.map(|key| format!("`{key}`")).collect());
            }
            if !seen.insert(last) {
                continue;
            }
            let entry = self.conversations.get(last);
            for next in entry.into_iter().flat_map(Conversation::asked) {
                paths.push(path.iter().copied().chain([next]).collect());
            }
        }
        None
    }

    /// Handles the list of instances that a requester needs.
    pub(crate) fn on_instances_listed(
        &self,
        cx: &mut Cx,
        requester: &Requester,
        scope: ListScope,
        found: Vec<Metadata>,
    ) {
        let at = &requester.at;
        let agent_of = |key| self.conversations.get(key).map(Conversation::agent);
        let conversation = self.bundle.as_ref().zip(agent_of(&at.instance_key));
        let conversation = conversation.map(|(bundle, own)| {
            let own = (own, &at.instance_key);
            router::conversation_of(bundle, own).to_owned()
        });
        let is_chosen = |metadata: &Metadata| match (scope, &conversation, &self.bundle) {
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
                let entry = self.conversations.get(&metadata.instance_key);
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
        self.answer_agent(cx, requester, AgentAnswer::Instances { instances, more });
    }

    /// Sends the answer of a request to the agent.
    pub(crate) fn answer_agent(&self, cx: &mut Cx, requester: &Requester, answer: AgentAnswer) {
        if let Some(entry) = self.conversations.get(&requester.at.instance_key) {
            entry.answer(cx, requester, answer);
        }
    }
}

/// A question to another conversation.
struct Question<'a> {
    id: EventId,
    request: &'a AgentRequest,
    trace: Option<TraceContext>,
    target: &'a InstanceRef,
    /// True if the target has the question already.
    is_known: bool,
}

impl Conversation {
    /// Checks that the agent's process has the tool for its request. Returns the trace context of
    /// the question.
    fn check_ask(
        &self,
        question: &AgentQuestion,
        said: Option<TraceContext>,
    ) -> Result<TraceContext, AgentRequestError> {
        let agent = self.definition().ok_or_else(turn_has_ended)?;
        let turn = self.turn().ok_or_else(turn_has_ended)?;
        authority::may_ask(agent, question)?;
        Ok(authority::trace_within(turn, said))
    }

    /// The question's event. Its information about the requester comes from the event of the
    /// requester's turn.
    fn question_event(
        &self,
        cx: &Cx,
        at: &InstanceRef,
        question: Question<'_>,
    ) -> Result<AgentEvent, AgentRequestError> {
        let Question {
            id,
            request,
            trace,
            target,
            is_known,
        } = question;
        let created_at = cx.now().wall;
        let turn = self.turn().ok_or_else(turn_has_ended)?;
        let cause = self
            .queue()
            .get(&turn.context.event_id)
            .ok_or_else(turn_has_ended)?;
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
            name: self.agent().clone(),
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
            join: None,
            source,
            metadata: match request.note.is_empty() {
                true => JsonObject::new(),
                false => JsonObject::from_iter([(REQUEST_NOTE.to_owned(), json!(request.note))]),
            },
            id,
        })
    }

    /// True if the answer to a question is expected as an event or has arrived as one.
    fn has_or_awaits_answer_to(&self, question: &EventId) -> bool {
        let reply = reply_id(question);
        reply.is_ok_and(|reply| self.queue().get(&reply).is_some() || self.is_awaiting(&reply))
    }

    /// Checks that another answer may be expected as an event.
    fn check_open_questions(&self, question: &EventId) -> Result<(), AgentRequestError> {
        if self.open_questions() >= MAX_OPEN_QUESTIONS && !self.has_or_awaits_answer_to(question) {
            let message = format!(
                "this conversation already has {MAX_OPEN_QUESTIONS} unanswered requests; wait for \
                 some answers"
            );
            return Err(AgentRequestError::new("E_TOO_MANY_QUESTIONS", message));
        }
        Ok(())
    }
}

/// The event that will deliver the answer, without its content.
fn reply_template(
    cx: &Cx,
    question: &AgentEvent,
    (agent, target): (&AgentName, &InstanceRef),
    requester: &InstanceRef,
) -> Result<AgentEvent, AgentRequestError> {
    let id = reply_id(&question.id);
    let id = id.map_err(|error| AgentRequestError::new("E_INVALID_REQUEST", error.to_string()))?;
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
        created_at: cx.now().wall,
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
        join: None,
        metadata,
    })
}

fn turn_has_ended() -> AgentRequestError {
    AgentRequestError::new("E_UNAVAILABLE", "the requesting turn has ended")
}

fn conversation_is_gone() -> AgentRequestError {
    AgentRequestError::new("E_UNAVAILABLE", "the requesting conversation was deleted")
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
