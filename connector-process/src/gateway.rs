//! All a connector sees of the orchestrator.
//!
//! A [`Gateway`] is cheap to clone: every request of a connector has its own. The session at the
//! other end of the channel owns what is shared.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use goondan_clock::timeout;
use goondan_protocol::approval::{ApprovalClosed, ApprovalPress, ApprovalShow, ApprovalVerdict};
use goondan_protocol::call::TokenVerdict;
use goondan_protocol::event::ConnectorEvent;
use goondan_protocol::ids::ApprovalId;
use goondan_protocol::ipc::{EventAccepted, EventRefused, RefusalCode, Status};
use goondan_protocol::metrics::MetricsSnapshot;
use goondan_protocol::question::{QuestionAnswered, QuestionAsk};
use goondan_protocol::reply::{Reply, ReplyAwait};
use goondan_protocol::trace::{SpanId, TraceContext, TraceId};
use serde_json::value::RawValue;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::calls::CallHandler;
use crate::limits::{APPROVAL_NEWS_WAITING_MAX, REPLY_TIMEOUT_MS, SESSION_COMMANDS_WAITING_MAX};

/// The orchestrator's word on an event.
pub(crate) type Verdict = Result<EventAccepted, EventRefused>;

/// What a connector asks of the session.
pub(crate) enum SessionCommand {
    /// Hand in an event.
    Submit(Submission),
    /// Tell people what the connector does.
    Report(Status),
    /// Have these calls made by this handler from now on.
    Serve(Arc<dyn CallHandler>),
    /// Ask a person something, for the sake of a call.
    Person(PersonRequest),
    /// Tell the orchestrator which questions to a person nobody waits for any more.
    Withdraw,
    /// Ask what an agent answered to an event, for whoever waits here.
    Reply(ReplyRequest),
    /// Tell the orchestrator which replies nobody waits for any more.
    ForgetReplies,
    /// Ask what the daemon counts, for whoever waits here.
    Metrics(oneshot::Sender<Box<MetricsSnapshot>>),
    /// Hear of the tool calls that wait for a person, from now on.
    Follow(FollowRequest),
    /// Hand in a button that somebody pressed.
    Press(PressRequest),
    /// Ask what the connection last kept, or have something kept in its place.
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
            Self::Withdraw => f.write_str("Withdraw"),
            Self::Serve(_) => f.write_str("Serve"),
        }
    }
}

/// What the orchestrator tells of the tool calls that wait for a person.
#[derive(Debug)]
pub(crate) enum ApprovalNews {
    /// This one waits.
    Show(Box<ApprovalShow>),
    /// This one does not any more.
    Closed(ApprovalClosed),
}

/// A connection that shows what waits for a person.
#[derive(Debug)]
pub(crate) struct FollowRequest {
    /// What it shows already.
    pub(crate) known: Vec<ApprovalId>,
    /// Where it hears of the rest.
    pub(crate) news: mpsc::Sender<ApprovalNews>,
}

/// A button that somebody pressed.
#[derive(Debug)]
pub(crate) struct PressRequest {
    /// Which, and who.
    pub(crate) press: ApprovalPress,
    /// Who waits for what comes of it.
    pub(crate) answer: oneshot::Sender<ApprovalVerdict>,
}

/// A question to a person.
#[derive(Debug)]
pub(crate) struct PersonRequest {
    /// What is asked, and for which call.
    pub(crate) ask: Box<QuestionAsk>,
    /// Who waits for what comes of it.
    pub(crate) answer: oneshot::Sender<Asked>,
}

/// What came of a question to a person.
#[derive(Debug)]
pub(crate) enum Asked {
    /// What was decided.
    Answered(QuestionAnswered),
    /// Nobody will be asked that; why, in words.
    Refused(String),
}

/// A question about what an agent answered.
#[derive(Debug)]
pub(crate) struct ReplyRequest {
    /// To which event.
    pub(crate) asked: ReplyAwait,
    /// Who waits for the answer.
    pub(crate) answer: oneshot::Sender<Reply>,
}

/// Has those who wait for no reply any more told to the orchestrator, also when whoever waited is dropped.
struct Forgetting<'a>(&'a mpsc::Sender<SessionCommand>);

impl Drop for Forgetting<'_> {
    fn drop(&mut self) {
        // If there is no place now, the next one tells of this one, too.
        drop(self.0.try_send(SessionCommand::ForgetReplies));
    }
}

/// A question about what the connection remembers.
#[derive(Debug)]
pub(crate) struct StateRequest {
    /// What is to be kept; none asks what was.
    pub(crate) set: Option<Box<RawValue>>,
    /// Who waits for the answer.
    pub(crate) answer: oneshot::Sender<StateAnswer>,
}

/// What was kept, or nothing after something was to be kept; or why not, in words.
pub(crate) type StateAnswer = Result<Option<Box<RawValue>>, String>;

/// An event on its way to the orchestrator.
#[derive(Debug)]
pub(crate) struct Submission {
    /// The event.
    pub(crate) event: Box<ConnectorEvent>,
    /// Where in a trace it was seen.
    pub(crate) trace: TraceContext,
    /// Who waits for the verdict. Nobody, once the client has gone.
    pub(crate) verdict: oneshot::Sender<Verdict>,
}

/// A connector's way to the orchestrator.
#[derive(Debug, Clone)]
pub(crate) struct Gateway {
    commands: mpsc::Sender<SessionCommand>,
    /// Cancelled once the connector is to take nothing new from outside.
    intake_over: CancellationToken,
    /// Cancelled once the connector is to stop and no call is under way.
    calls_over: CancellationToken,
}

impl Gateway {
    /// A gateway of a connector that takes things in until `intake_over`, and the commands that come out of it.
    pub(crate) fn new(intake_over: CancellationToken) -> (Self, mpsc::Receiver<SessionCommand>) {
        let (commands, receiver) = mpsc::channel(SESSION_COMMANDS_WAITING_MAX);
        let calls_over = CancellationToken::new();
        let gateway = Self {
            commands,
            intake_over,
            calls_over,
        };
        (gateway, receiver)
    }

    /// Cancelled when the connector must accept no new input. Calls can still arrive.
    pub(crate) fn intake_over(&self) -> CancellationToken {
        self.intake_over.clone()
    }

    /// What tells the connector, once it is to stop, that no call is under way any more.
    pub(crate) fn calls_over(&self) -> CancellationToken {
        self.calls_over.clone()
    }

    /// Hands in an event and waits for the verdict, no longer than `reply_timeout`.
    ///
    /// Dropping the future takes nothing back: the orchestrator may have the event already.
    ///
    /// # Errors
    ///
    /// The orchestrator's refusal. Its silence is `unavailable` too: the event may or may not be
    /// taken, and sending it again under the same id is safe (`MSG-13`).
    pub(crate) async fn submit_within(
        &self,
        reply_timeout: Duration,
        event: ConnectorEvent,
        trace: TraceContext,
    ) -> Verdict {
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

    /// Has agents' calls made by `handler` from now on. A connector does this before it reports that
    /// it is ready: the orchestrator sends calls only then.
    pub(crate) async fn serve(&self, handler: Arc<dyn CallHandler>) {
        drop(self.commands.send(SessionCommand::Serve(handler)).await);
    }

    /// What the daemon counts.
    ///
    /// # Errors
    ///
    /// Why it cannot be told, in words.
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

    /// What the agent answered to an event of this connection, once there is anything to say. It may take as long
    /// as a turn; dropping the future gives it up. None without a session.
    pub(crate) async fn reply(&self, asked: ReplyAwait) -> Option<Reply> {
        let _forgetting = Forgetting(&self.commands);
        // Dropped before that, so that it shows that nobody waits.
        let (sender, answer) = oneshot::channel();
        let request = ReplyRequest {
            asked,
            answer: sender,
        };
        let asked = SessionCommand::Reply(request);
        self.commands.send(asked).await.ok()?;
        answer.await.ok()
    }

    /// What waits for a person and is not `known`, and what of that waits no more, from now on. None without a session.
    pub(crate) async fn follow(
        &self,
        known: Vec<ApprovalId>,
    ) -> Option<mpsc::Receiver<ApprovalNews>> {
        let (news, receiver) = mpsc::channel(APPROVAL_NEWS_WAITING_MAX);
        let request = SessionCommand::Follow(FollowRequest { known, news });
        self.commands.send(request).await.ok()?;
        Some(receiver)
    }

    /// Hands in a button that somebody pressed, and waits for what comes of it, no longer than `reply_timeout`.
    ///
    /// # Errors
    ///
    /// As [`Self::submit_within`]: it may or may not count, and handing it in again does no harm.
    pub(crate) async fn press_within(
        &self,
        reply_timeout: Duration,
        press: ApprovalPress,
    ) -> Result<ApprovalVerdict, EventRefused> {
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

    /// What the connection last kept.
    ///
    /// # Errors
    ///
    /// Why it cannot be told, in words.
    pub(crate) async fn state(&self) -> StateAnswer {
        self.ask_state(None).await
    }

    /// Keeps something for the connection. Durable when it returns.
    ///
    /// # Errors
    ///
    /// Why it may not be kept, in words.
    pub(crate) async fn keep(&self, state: Box<RawValue>) -> Result<(), String> {
        self.ask_state(Some(state)).await.map(drop)
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

    /// Asks a person something and waits for what comes of it: the orchestrator says when its time is up.
    /// When it is given up meanwhile, the question is withdrawn.
    pub(crate) async fn ask_person(&self, ask: QuestionAsk, given_up: CancellationToken) -> Asked {
        let (sender, mut answer) = oneshot::channel();
        let question = PersonRequest {
            ask: Box::new(ask),
            answer: sender,
        };
        let stopping = || Asked::Refused("the connector is stopping".to_owned());
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
                Asked::Refused("the question was withdrawn".to_owned())
            }
        }
    }

    /// Tells people what the connector does, or why it does nothing.
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

    /// As [`Self::report`], of one that does nothing since the other side does not like its token.
    pub(crate) async fn report_declined(&self, detail: String, token: Option<TokenVerdict>) {
        let ready = false;
        self.tell(Status {
            ready,
            detail,
            token,
        })
        .await;
    }

    /// A way to tell people beside other work.
    pub(crate) fn telling(&self) -> Telling {
        Telling {
            commands: self.commands.clone(),
            next: None,
            under_way: None,
        }
    }

    async fn tell(&self, status: Status) {
        // Without a session there is nobody left to tell, and the process is about to end.
        drop(self.commands.send(SessionCommand::Report(status)).await);
    }
}

/// Tells people what somebody says of itself, while events of the same are on their way.
///
/// The session takes commands in the order in which they came, each once there is a place for it. A task that waits to
/// tell something and lets its own events stand still meanwhile waits for ever: the next places are theirs.
pub(crate) struct Telling {
    commands: mpsc::Sender<SessionCommand>,
    /// What was said last, while something said before has no place yet.
    next: Option<Status>,
    under_way: Option<BoxFuture<'static, ()>>,
}

impl Telling {
    /// Tells people this: at once if there is a place for it, else once [`Self::told`] has found one. Of what is said
    /// meanwhile they are told the last.
    pub(crate) fn tell(&mut self, status: Status) {
        if self.under_way.is_some() {
            self.next = Some(status);
            return;
        }
        match self.commands.try_send(SessionCommand::Report(status)) {
            // Without a session there is nobody left to tell.
            Ok(()) | Err(TrySendError::Closed(_)) => {}
            Err(TrySendError::Full(command)) => {
                let commands = self.commands.clone();
                self.under_way = Some(Box::pin(async move {
                    drop(commands.send(command).await);
                }));
            }
        }
    }

    /// Waits until people have been told something that waits. Cancel-safe.
    pub(crate) async fn told(&mut self) {
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

/// The span of something that happened outside: within its caller's trace, else the first of a new trace.
/// `fresh` makes up the ids that are needed.
pub(crate) fn span_within(caller: Option<TraceContext>, fresh: Uuid) -> TraceContext {
    let span = SpanId::from_uuid(fresh);
    match caller {
        Some(caller) => caller.child(span),
        None => TraceContext::root(TraceId::from_uuid(fresh), span),
    }
}

/// A refusal that says: not now.
fn unavailable(message: &str) -> EventRefused {
    EventRefused {
        code: RefusalCode::Unavailable,
        message: message.to_owned(),
    }
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
    async fn of_what_finds_no_place_people_are_told_the_last() {
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
                () = telling.told() => {}
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
