//! A connector's only interface to the orchestrator.
//!
//! A [`Gateway`] is cheap to clone: every request of a connector has its own clone. The session at
//! the other end of the channel owns all shared state.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use goondan_clock::{sleep, timeout};
use goondan_protocol::call::TokenVerdict;
use goondan_protocol::decision::{DecisionClosed, DecisionPress, DecisionShow, DecisionVerdict};
use goondan_protocol::event::{ConnectorEvent, TurnOutcome};
use goondan_protocol::ids::DecisionId;
use goondan_protocol::ignored_messages::IgnoreReason;
use goondan_protocol::ipc::{EventAccepted, EventRefused, RefusalCode, Status};
use goondan_protocol::limits::MAX_CONNECTION_STATE_BYTES;
use goondan_protocol::metrics::MetricsSnapshot;
use goondan_protocol::question::{QuestionAnswered, QuestionAsk};
use goondan_protocol::reply::{Reply, ReplyAwait};
use goondan_protocol::trace::{SpanId, TraceContext, TraceId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::back_off::back_off;
use crate::calls::CallHandler;
use crate::limits::{
    CALLBACK_PAUSE_FIRST_MS, COUNT_TIMEOUT_MS, DECISION_NEWS_WAITING_MAX, REPLY_TIMEOUT_MS,
    SERVICE_BACK_OFF_FIRST_MS, SERVICE_BACK_OFF_MAX_MS, SESSION_COMMANDS_WAITING_MAX,
};

/// The orchestrator's decision about an event.
pub(crate) type EventVerdict = Result<EventAccepted, EventRefused>;

/// A connector's command to the session.
pub(crate) enum SessionCommand {
    Submit(Submission),
    /// Report the connector's status to people.
    Report(Status),
    /// Use this handler for all further calls.
    Serve(Arc<dyn CallHandler>),
    /// Ask a person on behalf of a call.
    Person(PersonRequest),
    /// Withdraw the questions to people whose askers are gone.
    Withdraw,
    /// Request an agent's reply to an event.
    Reply(ReplyRequest),
    /// Withdraw the reply requests whose requesters are gone.
    ForgetReplies,
    Metrics(oneshot::Sender<Box<MetricsSnapshot>>),
    /// Count an event that the connector passed over.
    Ignored(IgnoreReason),
    /// Subscribe to the tool calls that wait for a person.
    Follow(DecisionSubscription),
    Press(PressRequest),
    /// Read or replace the stored state of the connection.
    State(StateRequest),
}

impl std::fmt::Debug for SessionCommand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Submit(submission) => f.debug_tuple("Submit").field(submission).finish(),
            Self::Report(status) => f.debug_tuple("Report").field(status).finish(),
            Self::State(asked) => f.debug_tuple("State").field(asked).finish(),
            Self::Person(question) => f.debug_tuple("Person").field(question).finish(),
            Self::Reply(request) => f.debug_tuple("Reply").field(request).finish(),
            Self::ForgetReplies => f.write_str("ForgetReplies"),
            Self::Follow(request) => f.debug_tuple("Follow").field(request).finish(),
            Self::Press(request) => f.debug_tuple("Press").field(request).finish(),
            Self::Metrics(_) => f.write_str("Metrics"),
            Self::Ignored(reason) => f.debug_tuple("Ignored").field(reason).finish(),
            Self::Withdraw => f.write_str("Withdraw"),
            Self::Serve(_) => f.write_str("Serve"),
        }
    }
}

/// A notification about the decisions that wait for a person.
#[derive(Debug)]
pub(crate) enum DecisionNews {
    Show(Box<DecisionShow>),
    /// This decision no longer waits.
    Closed(DecisionClosed),
}

/// Subscription of a connection that shows waiting decisions.
#[derive(Debug)]
pub(crate) struct DecisionSubscription {
    /// Decisions that it already shows.
    pub(crate) known: Vec<DecisionId>,
    pub(crate) news: mpsc::Sender<DecisionNews>,
}

#[derive(Debug)]
pub(crate) struct PressRequest {
    /// The button and the user.
    pub(crate) press: DecisionPress,
    pub(crate) answer: oneshot::Sender<DecisionVerdict>,
}

#[derive(Debug)]
pub(crate) struct PersonRequest {
    /// The question and its call.
    pub(crate) ask: Box<QuestionAsk>,
    pub(crate) answer: oneshot::Sender<UserQuestionResult>,
}

/// Result of a question to a person.
#[derive(Debug)]
pub(crate) enum UserQuestionResult {
    Answered(QuestionAnswered),
    /// The question will not be asked; the reason.
    Refused(String),
}

/// A request for an agent's reply.
#[derive(Debug)]
pub(crate) struct ReplyRequest {
    pub(crate) asked: ReplyAwait,
    pub(crate) answer: oneshot::Sender<Reply>,
}

/// Withdraws the reply requests of waiters that are gone, also when the waiting future itself is
/// dropped.
struct ReplyCancelGuard<'a>(&'a mpsc::Sender<SessionCommand>);

impl Drop for ReplyCancelGuard<'_> {
    fn drop(&mut self) {
        // If the queue is full, the next withdrawal covers this one.
        drop(self.0.try_send(SessionCommand::ForgetReplies));
    }
}

/// Access to the stored state of the connection.
#[derive(Debug)]
pub(crate) struct StateRequest {
    /// State to store; `None` reads the stored state.
    pub(crate) set: Option<Box<RawValue>>,
    pub(crate) answer: oneshot::Sender<StateAnswer>,
}

/// The stored state when reading, `None` after storing, or a description of the failure.
pub(crate) type StateAnswer = Result<Option<Box<RawValue>>, String>;

/// An in-flight event to the orchestrator.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) event: Box<ConnectorEvent>,
    /// Trace context in which it was received.
    pub(crate) trace: TraceContext,
    /// Receiver of the verdict; dropped once the client has gone.
    pub(crate) verdict: oneshot::Sender<EventVerdict>,
}

/// A connector's handle to the orchestrator.
#[derive(Debug, Clone)]
pub(crate) struct Gateway {
    commands: mpsc::Sender<SessionCommand>,
    /// Canceled when the connector must accept no new input.
    intake_over: CancellationToken,
    /// Canceled when the connector must stop and no call is in flight.
    calls_over: CancellationToken,
    /// Fields of the stored state, once known, for connectors whose parts store their own.
    fields: Arc<Mutex<Option<StateFields>>>,
}

/// Top-level fields of the stored state.
type StateFields = BTreeMap<String, Box<RawValue>>;

impl Gateway {
    /// Creates the gateway of a connector that accepts input until `intake_over`, and the receiver
    /// of its commands.
    pub(crate) fn new(intake_over: CancellationToken) -> (Self, mpsc::Receiver<SessionCommand>) {
        let (commands, receiver) = mpsc::channel(SESSION_COMMANDS_WAITING_MAX);
        let calls_over = CancellationToken::new();
        let gateway = Self {
            commands,
            intake_over,
            calls_over,
            fields: Arc::default(),
        };
        (gateway, receiver)
    }

    /// Canceled when the connector must accept no new input. Calls can still arrive.
    pub(crate) fn intake_over(&self) -> CancellationToken {
        self.intake_over.clone()
    }

    /// Canceled when the connector must stop and no call is in flight.
    pub(crate) fn calls_over(&self) -> CancellationToken {
        self.calls_over.clone()
    }

    /// Submits an event and waits for the verdict, for at most `reply_timeout`.
    ///
    /// Dropping the future does not revoke the event, because the orchestrator may already have it.
    ///
    /// # Errors
    ///
    /// The orchestrator's refusal. A timeout is reported as `unavailable` too: the event may or may
    /// not be accepted, and sending it again under the same id is safe (`MSG-13`).
    pub(crate) async fn submit_within(
        &self,
        reply_timeout: Duration,
        event: ConnectorEvent,
        trace: TraceContext,
    ) -> EventVerdict {
        let (verdict, answer) = oneshot::channel();
        let submission = Submission {
            event: Box::new(event),
            trace,
            verdict,
        };
        let exchange = async {
            self.commands
                .send(SessionCommand::Submit(submission))
                .await
                .ok()?;
            answer.await.ok()
        };
        match timeout(reply_timeout, exchange).await {
            Ok(Some(verdict)) => verdict,
            Ok(None) => Err(unavailable("the connector is stopping")),
            Err(_elapsed) => Err(unavailable("the orchestrator did not answer in time")),
        }
    }

    /// Uses `handler` for all further calls of agents. A connector does this before it reports that
    /// it is ready, because the orchestrator sends calls only then.
    pub(crate) async fn serve(&self, handler: Arc<dyn CallHandler>) {
        drop(self.commands.send(SessionCommand::Serve(handler)).await);
    }

    /// Counts an event that the connector passed over. A service does not wait longer for its
    /// answer because the session is behind; then the event is not counted.
    pub(crate) async fn ignored(&self, reason: IgnoreReason) {
        let counting = self.commands.send(SessionCommand::Ignored(reason));
        let counted = timeout(Duration::from_millis(COUNT_TIMEOUT_MS), counting).await;
        if !matches!(counted, Ok(Ok(()))) {
            tracing::debug!(reason = reason.as_str(), "ignored event not counted");
        }
    }

    /// As [`Self::ignored`], without waiting.
    pub(crate) fn try_ignored(&self, reason: IgnoreReason) {
        let counted = self.commands.try_send(SessionCommand::Ignored(reason));
        if counted.is_err() {
            tracing::debug!(reason = reason.as_str(), "ignored event not counted");
        }
    }

    /// The daemon's metrics.
    ///
    /// # Errors
    ///
    /// A description of the failure.
    pub(crate) async fn metrics(&self) -> Result<Box<MetricsSnapshot>, String> {
        let (sender, answer) = oneshot::channel();
        let exchange = async {
            let asked = SessionCommand::Metrics(sender);
            self.commands.send(asked).await.ok()?;
            answer.await.ok()
        };
        match timeout(Duration::from_millis(REPLY_TIMEOUT_MS), exchange).await {
            Ok(Some(snapshot)) => Ok(snapshot),
            Ok(None) => Err("the connector is stopping".to_owned()),
            Err(_elapsed) => Err("the orchestrator did not answer in time".to_owned()),
        }
    }

    /// The agent's reply to an event of this connection, once it is known. This may take as long as
    /// a turn; dropping the future cancels the request. `None` without a session.
    pub(crate) async fn reply(&self, asked: ReplyAwait) -> Option<Reply> {
        let _forgetting = ReplyCancelGuard(&self.commands);
        // Declared later, so that it is dropped first and the request counts as abandoned.
        let (sender, answer) = oneshot::channel();
        let request = ReplyRequest {
            asked,
            answer: sender,
        };
        let asked = SessionCommand::Reply(request);
        self.commands.send(asked).await.ok()?;
        answer.await.ok()
    }

    /// Subscribes to waiting calls that are not `known`, and to the end of their waiting. `None`
    /// without a session.
    pub(crate) async fn follow(
        &self,
        known: Vec<DecisionId>,
    ) -> Option<mpsc::Receiver<DecisionNews>> {
        let (news, receiver) = mpsc::channel(DECISION_NEWS_WAITING_MAX);
        let request = SessionCommand::Follow(DecisionSubscription { known, news });
        self.commands.send(request).await.ok()?;
        Some(receiver)
    }

    /// Submits a button press and waits for the result, for at most `reply_timeout`.
    ///
    /// # Errors
    ///
    /// As [`Self::submit_within`]: the press may or may not count, and submitting it again is
    /// harmless.
    pub(crate) async fn press_within(
        &self,
        reply_timeout: Duration,
        press: DecisionPress,
    ) -> Result<DecisionVerdict, EventRefused> {
        let (sender, answer) = oneshot::channel();
        let request = PressRequest {
            press,
            answer: sender,
        };
        let exchange = async {
            let pressed = SessionCommand::Press(request);
            self.commands.send(pressed).await.ok()?;
            answer.await.ok()
        };
        match timeout(reply_timeout, exchange).await {
            Ok(Some(verdict)) => Ok(verdict),
            Ok(None) => Err(unavailable("the connector is stopping")),
            Err(_elapsed) => Err(unavailable("the orchestrator did not answer in time")),
        }
    }

    /// The stored state of the connection.
    ///
    /// # Errors
    ///
    /// A description of the failure.
    pub(crate) async fn state(&self) -> StateAnswer {
        self.ask_state(None).await
    }

    /// The stored state of the connection; retries until it can be read. `subject` names the
    /// required part in the log.
    pub(crate) async fn state_at_last(&self, subject: &'static str) -> Option<Box<RawValue>> {
        let mut failures = 0_u32;
        loop {
            match self.state().await {
                Ok(state) => return state,
                Err(reason) => {
                    tracing::warn!(subject, reason, "failed to read the stored state; retrying");
                }
            }
            failures = failures.saturating_add(1);
            let pause = back_off(failures, SERVICE_BACK_OFF_FIRST_MS, SERVICE_BACK_OFF_MAX_MS);
            sleep(pause).await;
        }
    }

    /// The fields of `T` in the stored state; retries until they can be read. Invalid fields are
    /// reported as lost. `subject` names them in the log.
    pub(crate) async fn stored<T: Default + DeserializeOwned>(&self, subject: &'static str) -> T {
        let Some(state) = self.state_at_last(subject).await else {
            return T::default();
        };
        serde_json::from_str(state.get()).unwrap_or_else(|error| {
            tracing::error!(subject, %error, "failed to parse the stored state; continuing without it");
            T::default()
        })
    }

    /// Replaces the stored state of the connection. Durable when it returns.
    ///
    /// # Errors
    ///
    /// The reason for a refusal.
    pub(crate) async fn keep(&self, state: Box<RawValue>) -> Result<(), String> {
        self.ask_state(Some(state)).await.map(drop)
    }

    /// Replaces the given top-level fields of the stored state and keeps the others. Durable when it
    /// returns. A connector that calls this never calls [`Self::keep`].
    ///
    /// # Errors
    ///
    /// The reason for a refusal.
    pub(crate) async fn keep_fields(&self, fields: &impl Serialize) -> Result<(), String> {
        let unreadable = |error: serde_json::Error| error.to_string();
        let fields = to_raw_value(fields).map_err(unreadable)?;
        let new: StateFields = serde_json::from_str(fields.get()).map_err(unreadable)?;
        // Held while the state is written, so that concurrent parts do not overwrite each other.
        let mut known = self.fields.lock().await;
        let mut all = match known.take() {
            Some(known) => known,
            // State of another shape is from another connector, which no longer needs it.
            None => self
                .state()
                .await?
                .and_then(|state| serde_json::from_str(state.get()).ok())
                .unwrap_or_default(),
        };
        let before = all.clone();
        all.extend(new);
        let state = to_raw_value(&all).map_err(unreadable)?;
        let kept = if state.get().len() > MAX_CONNECTION_STATE_BYTES {
            Err("the state of the connection is too large".to_owned())
        } else {
            self.keep(state).await
        };
        *known = Some(if kept.is_ok() { all } else { before });
        kept
    }

    /// Waits without a time limit for the outcome of an event; `None` if it is no longer known.
    pub(crate) async fn outcome(&self, asked: &ReplyAwait) -> Option<TurnOutcome> {
        let mut looks = 0_u32;
        loop {
            match self.reply(asked.clone()).await {
                Some(Reply::Over { outcome }) => return Some(outcome),
                Some(Reply::Unknown {}) => return None,
                Some(Reply::Open { message }) => {
                    let event_id = asked.event_id.as_str();
                    tracing::debug!(event_id, message, "pending reply is not available yet");
                }
                // The process is about to end.
                None => pending().await,
            }
            looks = looks.saturating_add(1);
            sleep(back_off(
                looks,
                CALLBACK_PAUSE_FIRST_MS,
                SERVICE_BACK_OFF_MAX_MS,
            ))
            .await;
        }
    }

    async fn ask_state(&self, set: Option<Box<RawValue>>) -> StateAnswer {
        let (sender, answer) = oneshot::channel();
        let asked = StateRequest {
            set,
            answer: sender,
        };
        let exchange = async {
            self.commands
                .send(SessionCommand::State(asked))
                .await
                .ok()?;
            answer.await.ok()
        };
        match timeout(Duration::from_millis(REPLY_TIMEOUT_MS), exchange).await {
            Ok(Some(answer)) => answer,
            Ok(None) => Err("the connector is stopping".to_owned()),
            Err(_elapsed) => Err("the orchestrator did not answer in time".to_owned()),
        }
    }

    /// Asks a person and waits for the result; the orchestrator enforces the time limit. Canceling
    /// `given_up` withdraws the question.
    pub(crate) async fn ask_person(
        &self,
        ask: QuestionAsk,
        given_up: CancellationToken,
    ) -> UserQuestionResult {
        let (sender, mut answer) = oneshot::channel();
        let question = PersonRequest {
            ask: Box::new(ask),
            answer: sender,
        };
        let stopping = || UserQuestionResult::Refused("the connector is stopping".to_owned());
        if self
            .commands
            .send(SessionCommand::Person(question))
            .await
            .is_err()
        {
            return stopping();
        }
        tokio::select! {
            asked = &mut answer => asked.unwrap_or_else(|_closed| stopping()),
            () = given_up.cancelled() => {
                drop(answer);
                // Without a session the question is withdrawn anyway.
                drop(self.commands.send(SessionCommand::Withdraw).await);
                UserQuestionResult::Refused("the question was withdrawn".to_owned())
            }
        }
    }

    /// Reports to people that the connector works, or why it does not.
    pub(crate) async fn report(&self, ready: bool, detail: impl Into<String>) {
        let detail = detail.into();
        let token = None;
        self.tell(Status {
            ready,
            detail,
            token,
        })
        .await;
    }

    /// Says why a connector cannot work, and waits for `stop`: the reason stays visible, where a crash loop would bury
    /// it.
    pub(crate) async fn park(&self, reason: &str, stop: &CancellationToken) {
        tracing::error!(
            reason,
            "parked: nothing is tried before a restart or another configuration"
        );
        let detail = format!("parked, {reason}; remove the cause, then `gdn restart`");
        self.report(false, detail).await;
        stop.cancelled().await;
    }

    /// As [`Self::report`], for a connector that stopped working because the service declined its
    /// token.
    pub(crate) async fn report_declined(&self, detail: String, token: Option<TokenVerdict>) {
        let ready = false;
        self.tell(Status {
            ready,
            detail,
            token,
        })
        .await;
    }

    /// Creates a reporter that works concurrently with other tasks.
    pub(crate) fn telling(&self) -> StatusReporter {
        StatusReporter {
            commands: self.commands.clone(),
            next: None,
            under_way: None,
        }
    }

    async fn tell(&self, status: Status) {
        // Without a session the report has no recipient, and the process is about to end.
        drop(self.commands.send(SessionCommand::Report(status)).await);
    }
}

/// Reports a status to people while events of the same task are in flight.
///
/// The session receives commands in order, each once the queue has capacity. A task that blocks on
/// a report while it does not poll its own pending events would deadlock, because those events are
/// next in the queue.
pub(crate) struct StatusReporter {
    commands: mpsc::Sender<SessionCommand>,
    /// The latest status, while an earlier report still waits for capacity.
    next: Option<Status>,
    under_way: Option<BoxFuture<'static, ()>>,
}

impl StatusReporter {
    /// Reports a status: immediately if the queue has capacity, otherwise when [`Self::reported`] is
    /// polled. Of several waiting statuses, only the latest is reported.
    pub(crate) fn tell(&mut self, status: Status) {
        if self.under_way.is_some() {
            self.next = Some(status);
            return;
        }
        match self.commands.try_send(SessionCommand::Report(status)) {
            // Without a session the report has no recipient.
            Ok(()) | Err(TrySendError::Closed(_)) => {}
            Err(TrySendError::Full(command)) => {
                let commands = self.commands.clone();
                self.under_way = Some(Box::pin(async move {
                    drop(commands.send(command).await);
                }));
            }
        }
    }

    /// Waits until a waiting status has been reported. Cancel-safe.
    pub(crate) async fn reported(&mut self) {
        match &mut self.under_way {
            Some(under_way) => under_way.await,
            None => pending().await,
        }
        self.under_way = None;
        if let Some(next) = self.next.take() {
            self.tell(next);
        }
    }
}

/// The span of an event from outside: within the caller's trace, otherwise the root of a new trace.
/// `fresh` supplies the new ids.
pub(crate) fn span_within(caller: Option<TraceContext>, fresh: Uuid) -> TraceContext {
    let span = SpanId::from_uuid(fresh);
    match caller {
        Some(caller) => caller.child(span),
        None => TraceContext::root(TraceId::from_uuid(fresh), span),
    }
}

/// A refusal with the code `unavailable`.
fn unavailable(message: &str) -> EventRefused {
    EventRefused::new(RefusalCode::Unavailable, message.to_owned())
}

#[cfg(test)]
mod tests {
    use goondan_protocol::JsonObject;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silence_and_a_lost_session_are_both_unavailable() {
        let event = ConnectorEvent {
            id: None,
            name: "request".into(),
            input: "hi".into(),
            instance_key: None,
            properties: JsonObject::new(),
            auth: None,
            metadata: JsonObject::new(),
        };
        let trace = TraceContext::root(TraceId::from_random([1; 16]), SpanId::from_random([1; 8]));

        let reply_timeout = Duration::from_millis(1);
        let (gateway, commands) = Gateway::new(CancellationToken::new());
        let submission = gateway.submit_within(reply_timeout, event.clone(), trace);
        let refused = submission.await.unwrap_err();
        assert_eq!(refused.code, RefusalCode::Unavailable);
        assert!(refused.message.contains("in time"), "{}", refused.message);

        drop(commands);
        let submission = gateway.submit_within(reply_timeout, event, trace);
        let refused = submission.await.unwrap_err();
        assert_eq!(refused.code, RefusalCode::Unavailable);
        assert!(refused.message.contains("stopping"), "{}", refused.message);
    }

    #[tokio::test]
    async fn status_queue_overflow_keeps_the_latest_status() {
        let (gateway, mut commands) = Gateway::new(CancellationToken::new());
        let mut telling = gateway.telling();
        let count = SESSION_COMMANDS_WAITING_MAX + 5;
        for number in 1..=count {
            telling.tell(Status {
                ready: true,
                detail: number.to_string(),
                token: None,
            });
        }
        let mut heard = Vec::new();
        while heard.last() != Some(&count) {
            tokio::select! {
                biased;
                () = telling.reported() => {}
                Some(command) = commands.recv() => {
                    let SessionCommand::Report(status) = command else {
                        panic!("{command:?}");
                    };
                    heard.push(status.detail.parse().unwrap());
                }
            }
        }
        let mut expected: Vec<_> = (1..=SESSION_COMMANDS_WAITING_MAX + 1).collect();
        expected.push(count);
        assert_eq!(heard, expected);
    }
}
