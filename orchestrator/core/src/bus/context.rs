//! Context of a step of a machine: its inputs (the time, new ids, facts) and its outputs (effects,
//! messages).
//!
//! A machine has no other access to the outside, so a test controls everything that it depends on.

use goondan_protocol::call::CallId;
use goondan_protocol::control::{ControlError, ErrorCode};
use goondan_protocol::metrics::{Labels, Metric, Micros, Sample};
use goondan_store::writer::operation::Operation;
use serde::Serialize;
use uuid::Uuid;

use super::queue::{Message, MessageQueue};
use crate::exchange::joint::FreezeId;
use crate::fleet::bundle_queue::BundleQueues;
use crate::fleet::conversation_run::{ConversationRun, RunUpdate};
use crate::fleet::process_table::ProcessTable;
use crate::fleet::watchers::Audience;
use crate::jobs::{Continuation, Jobs, PendingJob};
use crate::{ClockTime, CoreEffect, Facts, LogEvent, RequestToken};

/// The daemon is stopping: no new work begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DaemonShutdown {
    /// Grace period of the latest request; `None` if the grace period of each workspace applies.
    pub(crate) grace_period_ms: Option<u64>,
    /// Time of the latest request.
    pub(crate) since_ms: u64,
}

/// The time of the input, fresh ids, facts about the daemon, and the outputs of a machine: effects,
/// jobs of the store, messages to other machines, and notifications of clients and processes.
pub(crate) struct Cx {
    now: ClockTime,
    next_uuid: Box<dyn FnMut() -> Uuid + Send>,
    next_call: u64,
    freezes: u64,
    bundles: BundleQueues,
    jobs: Jobs,
    messages: MessageQueue,
    effects: Vec<CoreEffect>,
    audience: Audience,
    processes: ProcessTable,
    facts: Facts,
    stopping: Option<DaemonShutdown>,
}

impl Cx {
    pub(crate) fn new(facts: Facts, next_uuid: impl FnMut() -> Uuid + Send + 'static) -> Self {
        let wall = facts.started_at;
        Self {
            now: ClockTime { mono_ms: 0, wall },
            next_uuid: Box::new(next_uuid),
            next_call: 0,
            freezes: 0,
            bundles: BundleQueues::default(),
            jobs: Jobs::default(),
            messages: MessageQueue::default(),
            effects: Vec::new(),
            audience: Audience::default(),
            processes: ProcessTable::default(),
            facts,
            stopping: None,
        }
    }

    /// Sets the time of the next input.
    pub(crate) fn begin(&mut self, now: ClockTime) {
        self.now = now;
    }

    pub(crate) fn now(&self) -> ClockTime {
        self.now
    }

    pub(crate) fn uuid(&mut self) -> Uuid {
        (self.next_uuid)()
    }

    /// A unique id for a call to a connector.
    pub(crate) fn next_call_id(&mut self) -> CallId {
        self.next_call += 1;
        CallId(self.next_call)
    }

    /// A unique id for an operation that freezes a conversation.
    pub(crate) fn next_freeze_id(&mut self) -> FreezeId {
        self.freezes += 1;
        FreezeId(self.freezes)
    }

    /// Operations on the bundles of conversations.
    pub(crate) fn bundles(&self) -> &BundleQueues {
        &self.bundles
    }

    pub(crate) fn bundles_mut(&mut self) -> &mut BundleQueues {
        &mut self.bundles
    }

    pub(crate) fn emit(&mut self, effect: CoreEffect) {
        self.effects.push(effect);
    }

    pub(crate) fn log(&mut self, event: LogEvent) {
        self.emit(CoreEffect::Log(event));
    }

    /// Answers a client's request.
    pub(crate) fn respond<T: Serialize>(&mut self, token: RequestToken, value: &T) {
        let result = serde_json::to_value(value)
            .map_err(|error| ControlError::new(ErrorCode::Internal, error.to_string()));
        self.emit(CoreEffect::Respond { token, result });
    }

    pub(crate) fn respond_error(&mut self, token: RequestToken, error: ControlError) {
        self.emit(CoreEffect::Respond {
            token,
            result: Err(error),
        });
    }

    /// Adds to a counted metric.
    pub(crate) fn count(&mut self, metric: Metric, labels: Labels, value: Micros) {
        self.emit(CoreEffect::Count(Sample {
            metric,
            labels,
            value,
        }));
    }

    /// Facts about the daemon's environment.
    pub(crate) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// True if no process may start, because the state root was restored from a backup and no person
    /// has resumed it.
    pub(crate) fn is_paused(&self) -> bool {
        self.facts.restored.is_some()
    }

    pub(crate) fn end_pause(&mut self) {
        self.facts.restored = None;
    }

    /// The latest request to stop the daemon, if any.
    pub(crate) fn stopping(&self) -> Option<DaemonShutdown> {
        self.stopping
    }

    /// Records a request to stop the daemon.
    pub(crate) fn stop(&mut self, grace_period_ms: Option<u64>) {
        self.stopping = Some(DaemonShutdown {
            grace_period_ms,
            since_ms: self.now.mono_ms,
        });
    }

    /// The child processes.
    pub(crate) fn processes(&self) -> &ProcessTable {
        &self.processes
    }

    pub(crate) fn processes_mut(&mut self) -> &mut ProcessTable {
        &mut self.processes
    }

    /// The clients that watch workspaces.
    pub(crate) fn audience(&self) -> &Audience {
        &self.audience
    }

    pub(crate) fn audience_mut(&mut self) -> &mut Audience {
        &mut self.audience
    }

    /// Drains the effects, in order.
    pub(crate) fn take_effects(&mut self) -> Vec<CoreEffect> {
        std::mem::take(&mut self.effects)
    }

    /// Sends a message to another machine. It is delivered after the input.
    pub(crate) fn send(&mut self, message: Message) {
        self.messages.send(message);
    }

    /// Reports the progress of a run to its task.
    pub(crate) fn tell_task(&mut self, of: &ConversationRun, news: RunUpdate) {
        self.send(Message::Run(of.clone(), news));
    }

    /// Takes the next message to deliver.
    pub(crate) fn next_message(&mut self) -> Option<Message> {
        self.messages.next()
    }

    /// Submits a job to the store, with its continuation.
    pub(crate) fn store<O: Operation + 'static>(
        &mut self,
        operation: O,
        then: impl Continuation<O> + 'static,
    ) {
        let job = self.jobs.add(operation, then);
        self.emit(CoreEffect::Store(job));
    }

    /// Jobs that the store has not finished.
    pub(crate) fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    /// Takes a job that the store has finished; `None` if it was already reported.
    pub(crate) fn take_job(&mut self, token: u64) -> Option<Box<dyn PendingJob>> {
        self.jobs.take(token)
    }
}
