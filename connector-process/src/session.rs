//! Communication with the orchestrator after the handshake.
//!
//! [`OrchestratorSession`] is the pure core: a frame or a command goes in, actions come out. [`run`] is the
//! shell around it: one task that reads, decides, and feeds two bounded queues of outgoing frames.
//! Reading never waits for writing, and a `ping` is answered before anything else, regardless of
//! the load. Messages that a connector can send in any number (events, requests, statuses) wait for
//! capacity.

mod waiters;

use std::pin::pin;

use bytes::Bytes;
use futures_util::SinkExt as _;
use goondan_protocol::call::{CallId, CallOrder};
use goondan_protocol::decision::{DecisionVerdict, DecisionsFollow};
use goondan_protocol::envelope::{Address, Envelope};
use goondan_protocol::ignored_messages::EventIgnored;
use goondan_protocol::ipc::{
    ConfinementReport, EnvelopeHeader, MetricsGet, Pong, ShutdownAck, StateGet, StateSet,
    ToConnector, ToOrchestrator,
};
use goondan_protocol::metrics::MetricsSnapshot;
use goondan_protocol::question::QuestionWithdraw;
use goondan_protocol::reply::{Reply, ReplyForget};
use goondan_protocol::sandbox::Facts;
use goondan_protocol::trace::TraceContext;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use self::waiters::Waiters;
use crate::calls::Calls;
use crate::connector;
use crate::egress::ProxySockets;
use crate::gateway::{
    DecisionNews, DecisionSubscription, EventVerdict, Gateway, PersonRequest, PressRequest,
    ReplyRequest, SessionCommand, StateAnswer, StateRequest, Submission, UserQuestionResult,
};
use crate::limits::{
    CALL_FRAMES_WAITING_MAX, CONTROL_FRAMES_WAITING_MAX, EVENT_FRAMES_WAITING_MAX,
};
use crate::link::{ConnectorRole, LinkError, OrchestratorFrames, OrchestratorSink, next_frame};

/// Action required by a frame from the orchestrator.
#[derive(Debug)]
enum FrameAction {
    Call(Box<CallOrder>, Option<TraceContext>),
    Cancel(CallId),
    /// None: a reply was delivered, or its waiter is gone.
    Done,
    Answer(Vec<u8>),
    Quiesce,
    /// Stop, for this reason.
    Stop(String),
}

/// Requests that wait for the orchestrator, by the id in their frame.
#[derive(Debug)]
struct OrchestratorSession {
    me: Address,
    next_request: u64,
    waiting: Waiters<EventVerdict>,
    waiting_for_state: Waiters<StateAnswer>,
    waiting_for_person: Waiters<UserQuestionResult>,
    waiting_for_metrics: Waiters<Box<MetricsSnapshot>>,
    waiting_for_reply: Waiters<Reply>,
    waiting_for_verdict: Waiters<DecisionVerdict>,
    /// Subscriber to the tool calls that wait for a person.
    following: Option<mpsc::Sender<DecisionNews>>,
}

impl OrchestratorSession {
    fn new(me: Address) -> Self {
        Self {
            me,
            next_request: 1,
            waiting: Waiters::default(),
            waiting_for_state: Waiters::default(),
            waiting_for_person: Waiters::default(),
            waiting_for_metrics: Waiters::default(),
            waiting_for_reply: Waiters::default(),
            waiting_for_verdict: Waiters::default(),
            following: None,
        }
    }

    fn head(&self) -> EnvelopeHeader {
        EnvelopeHeader::new(self.me.clone(), Address::Orchestrator)
    }

    fn frame(&self, message: &ToOrchestrator) -> Result<Vec<u8>, LinkError> {
        message
            .to_frame(&self.head())
            .map_err(LinkError::CannotEncode)
    }

    fn hear(&mut self, frame: &[u8]) -> Result<FrameAction, LinkError> {
        let envelope = Envelope::from_frame(frame).map_err(LinkError::NotAMessage)?;
        let message = ToConnector::from_envelope(&envelope).map_err(LinkError::NotAMessage)?;
        match message {
            ToConnector::Ping(ping) => {
                let pong = ToOrchestrator::Pong(Pong { nonce: ping.nonce });
                Ok(FrameAction::Answer(self.frame(&pong)?))
            }
            ToConnector::Quiesce(_) => Ok(FrameAction::Quiesce),
            ToConnector::Shutdown(shutdown) => Ok(FrameAction::Stop(shutdown.reason)),
            ToConnector::EventAccepted(accepted) => {
                self.waiting.settle(envelope.in_reply_to, Ok(accepted));
                Ok(FrameAction::Done)
            }
            ToConnector::EventRefused(refused) => {
                self.waiting.settle(envelope.in_reply_to, Err(refused));
                Ok(FrameAction::Done)
            }
            ToConnector::Call(call) => Ok(FrameAction::Call(call, envelope.trace)),
            ToConnector::CallCancel(cancel) => Ok(FrameAction::Cancel(cancel.call_id)),
            ToConnector::State(state) => {
                self.waiting_for_state
                    .settle(envelope.in_reply_to, Ok(state.state));
                Ok(FrameAction::Done)
            }
            ToConnector::Metrics(snapshot) => {
                self.waiting_for_metrics
                    .settle(envelope.in_reply_to, snapshot);
                Ok(FrameAction::Done)
            }
            ToConnector::Reply(reply) => {
                self.waiting_for_reply.settle(envelope.in_reply_to, *reply);
                Ok(FrameAction::Done)
            }
            ToConnector::DecisionShow(show) => {
                self.pass_on(DecisionNews::Show(show));
                Ok(FrameAction::Done)
            }
            ToConnector::DecisionClosed(closed) => {
                self.pass_on(DecisionNews::Closed(closed));
                Ok(FrameAction::Done)
            }
            ToConnector::DecisionVerdict(verdict) => {
                self.waiting_for_verdict
                    .settle(envelope.in_reply_to, verdict);
                Ok(FrameAction::Done)
            }
            ToConnector::StateKept(_) => {
                self.waiting_for_state
                    .settle(envelope.in_reply_to, Ok(None));
                Ok(FrameAction::Done)
            }
            ToConnector::StateRefused(refused) => {
                self.waiting_for_state
                    .settle(envelope.in_reply_to, Err(refused.message));
                Ok(FrameAction::Done)
            }
            ToConnector::QuestionAnswered(answered) => {
                self.waiting_for_person.settle(
                    envelope.in_reply_to,
                    UserQuestionResult::Answered(*answered),
                );
                Ok(FrameAction::Done)
            }
            ToConnector::QuestionRefused(refused) => {
                self.waiting_for_person.settle(
                    envelope.in_reply_to,
                    UserQuestionResult::Refused(refused.message),
                );
                Ok(FrameAction::Done)
            }
            ToConnector::Welcome(_) => Err(LinkError::OutOfTurn {
                kind: message.kind(),
                when: "after its welcome",
            }),
        }
    }

    /// Notifies the subscriber to waiting tool calls.
    fn pass_on(&self, news: DecisionNews) {
        let following = self.following.as_ref();
        if following.is_none_or(|it| it.try_send(news).is_err()) {
            tracing::warn!("no approval subscriber; dropping notification");
        }
    }

    /// Creates the frame that subscribes to waiting tool calls, and stores the subscriber.
    fn follow(&mut self, request: DecisionSubscription) -> Result<Vec<u8>, LinkError> {
        self.following = Some(request.news);
        let known = request.known;
        self.frame(&ToOrchestrator::DecisionsFollow(DecisionsFollow { known }))
    }

    /// Creates the frame of a button press, and stores its waiter.
    fn press(&mut self, request: PressRequest) -> Result<Vec<u8>, LinkError> {
        self.waiting_for_verdict.take_gone();
        let pressed = ToOrchestrator::DecisionPress(request.press);
        let (request_id, frame) = self.request(&pressed, None)?;
        self.waiting_for_verdict.add(request_id, request.answer);
        Ok(frame)
    }

    /// Creates the frame of a request and returns its id.
    fn request(
        &mut self,
        message: &ToOrchestrator,
        trace: Option<TraceContext>,
    ) -> Result<(u64, Vec<u8>), LinkError> {
        let request_id = self.next_request;
        self.next_request += 1;
        let mut head = self.head().asking(request_id);
        if let Some(trace) = trace {
            head = head.in_trace(trace);
        }
        let frame = message.to_frame(&head).map_err(LinkError::CannotEncode)?;
        Ok((request_id, frame))
    }

    /// Creates the frame that asks a person, and stores its waiter.
    fn ask_person(&mut self, question: PersonRequest) -> Result<Vec<u8>, LinkError> {
        let asked = ToOrchestrator::QuestionAsk(question.ask);
        let (request_id, frame) = self.request(&asked, None)?;
        self.waiting_for_person.add(request_id, question.answer);
        Ok(frame)
    }

    /// Creates the frames that withdraw the questions whose waiters are gone.
    fn withdraw_questions(&mut self) -> Result<Vec<Vec<u8>>, LinkError> {
        let given_up = self.waiting_for_person.take_gone().into_iter();
        let frames = given_up.map(|request_id| {
            self.frame(&ToOrchestrator::QuestionWithdraw(QuestionWithdraw {
                request_id,
            }))
        });
        frames.collect()
    }

    /// Creates the frame that requests an agent's reply, and stores its waiter.
    fn ask_reply(&mut self, request: ReplyRequest) -> Result<Vec<u8>, LinkError> {
        let asked = ToOrchestrator::ReplyAwait(request.asked);
        let (request_id, frame) = self.request(&asked, None)?;
        self.waiting_for_reply.add(request_id, request.answer);
        Ok(frame)
    }

    /// Creates the frame that withdraws reply requests whose waiters are gone, if any.
    fn forget_replies(&mut self) -> Result<Option<Vec<u8>>, LinkError> {
        let request_ids = self.waiting_for_reply.take_gone();
        if request_ids.is_empty() {
            return Ok(None);
        }
        let forget = ToOrchestrator::ReplyForget(ReplyForget { request_ids });
        self.frame(&forget).map(Some)
    }

    /// Creates the frame that requests the daemon's metrics, and stores its waiter.
    fn ask_metrics(
        &mut self,
        answer: oneshot::Sender<Box<MetricsSnapshot>>,
    ) -> Result<Vec<u8>, LinkError> {
        self.waiting_for_metrics.take_gone();
        let asked = ToOrchestrator::MetricsGet(MetricsGet {});
        let (request_id, frame) = self.request(&asked, None)?;
        self.waiting_for_metrics.add(request_id, answer);
        Ok(frame)
    }

    /// Creates the frame that reads or sets the connection's state, and stores its waiter.
    fn ask_state(&mut self, asked: StateRequest) -> Result<Vec<u8>, LinkError> {
        self.waiting_for_state.take_gone();
        let message = match asked.set {
            None => ToOrchestrator::StateGet(StateGet {}),
            Some(state) => ToOrchestrator::StateSet(StateSet { state }),
        };
        let (request_id, frame) = self.request(&message, None)?;
        self.waiting_for_state.add(request_id, asked.answer);
        Ok(frame)
    }

    /// Creates the frame that submits an event, and stores its waiter.
    fn submit(&mut self, submission: Submission) -> Result<Vec<u8>, LinkError> {
        self.waiting.take_gone();
        let event = ToOrchestrator::Event(submission.event);
        let (request_id, frame) = self.request(&event, Some(submission.trace))?;
        self.waiting.add(request_id, submission.verdict);
        Ok(frame)
    }
}

/// The two ends of a connector: the end of its input, and its final stop.
#[derive(Debug)]
struct ShutdownSignals {
    /// Also canceled by `stop`.
    intake: CancellationToken,
    stop: CancellationToken,
    /// True if calls can be made. Before that, a connector does not stop accepting input, because
    /// that would end it.
    is_ready: bool,
    is_asked_to_quiesce: bool,
}

impl ShutdownSignals {
    fn new() -> Self {
        let stop = CancellationToken::new();
        Self {
            intake: stop.child_token(),
            stop,
            is_ready: false,
            is_asked_to_quiesce: false,
        }
    }

    fn quiesce(&mut self) {
        self.is_asked_to_quiesce = true;
        if self.is_ready {
            self.intake.cancel();
        }
    }

    fn reported(&mut self, is_ready: bool) {
        self.is_ready |= is_ready;
        if self.is_asked_to_quiesce {
            self.quiesce();
        }
    }

    /// True if it accepts no input but still performs calls.
    fn is_quiesced(&self) -> bool {
        self.is_asked_to_quiesce && !self.stop.is_cancelled()
    }
}

/// Runs the assigned connector until the orchestrator sends `shutdown`.
///
/// # Errors
///
/// [`LinkError`] when the connection to the orchestrator is closed or receives an invalid message;
/// then no request is answered any longer. A process that could not be confined only reports that.
pub(crate) async fn run(
    role: ConnectorRole,
    confined: Result<ConfinementReport, String>,
    doors: ProxySockets,
    mut incoming: OrchestratorFrames,
    outgoing: OrchestratorSink,
) -> Result<(), LinkError> {
    let me = role.address();
    let mut session = OrchestratorSession::new(me.clone());
    let mut ends = ShutdownSignals::new();
    let (gateway, mut commands) = Gateway::new(ends.intake.clone());
    let calls_over = gateway.calls_over();
    let (control, control_frames) = mpsc::channel(CONTROL_FRAMES_WAITING_MAX);
    let (events, event_frames) = mpsc::channel(EVENT_FRAMES_WAITING_MAX);
    let (call_frames_in, call_frames) = mpsc::channel(CALL_FRAMES_WAITING_MAX);
    let mut calls = Calls::new(me, call_frames_in);
    let (confined, fault) = match confined {
        Ok(confined) => (confined, None),
        Err(why) => (unconfined(&why), Some(why)),
    };
    enqueue(
        &control,
        session.frame(&ToOrchestrator::Confined(confined))?,
    )?;

    let mut writing = pin!(write(control_frames, call_frames, event_frames, outgoing));
    let work = connector::run(role, fault, doors, gateway, ends.stop.clone());
    let mut connector = pin!(work);
    let mut has_ended = false;
    // In-flight calls are finished even after the connector itself has stopped. A connector that
    // only accepts no input still serves further calls.
    while !has_ended || !calls.is_empty() || ends.is_quiesced() {
        if ends.stop.is_cancelled() && calls.is_empty() {
            calls_over.cancel();
        }
        tokio::select! {
            frame = next_frame(&mut incoming) => match session.hear(&frame?)? {
                FrameAction::Done => {}
                FrameAction::Answer(frame) => enqueue(&control, frame)?,
                FrameAction::Call(call, trace) => calls.begin(*call, trace),
                FrameAction::Cancel(call_id) => calls.cancel(call_id),
                FrameAction::Quiesce => {
                    tracing::info!("quiescing");
                    ends.quiesce();
                }
                FrameAction::Stop(reason) => {
                    tracing::info!(reason, "asked to stop");
                    ends.stop.cancel();
                }
            },
            Some((place, command)) = next_command(&events, &mut commands) => match command {
                SessionCommand::Report(status) => {
                    ends.reported(status.ready);
                    place.send(session.frame(&ToOrchestrator::Status(status))?);
                }
                SessionCommand::Person(question) => enqueue(&control, session.ask_person(question)?)?,
                SessionCommand::Withdraw => {
                    for frame in session.withdraw_questions()? {
                        enqueue(&control, frame)?;
                    }
                }
                SessionCommand::State(asked) => place.send(session.ask_state(asked)?),
                SessionCommand::Ignored(reason) => {
                    let ignored = ToOrchestrator::EventIgnored(EventIgnored { reason });
                    place.send(session.frame(&ignored)?);
                }
                SessionCommand::Metrics(answer) => enqueue(&control, session.ask_metrics(answer)?)?,
                SessionCommand::Follow(request) => enqueue(&control, session.follow(request)?)?,
                SessionCommand::Press(request) => place.send(session.press(request)?),
                SessionCommand::Reply(request) => place.send(session.ask_reply(request)?),
                SessionCommand::ForgetReplies => forget_replies(place, &mut session)?,
                SessionCommand::Submit(submission) => place.send(session.submit(submission)?),
                SessionCommand::Serve(handler) => calls.serve_with(handler),
            },
            result = &mut writing => return result.map(drop),
            () = calls.next_end(), if !calls.is_empty() => {}
            () = &mut connector, if !has_ended => has_ended = true,
        }
    }
    drop((calls, control));
    // The acknowledgment must be the last frame: the result of a call that has just ended must not
    // follow it.
    let mut outgoing = writing.await?;
    let ack = session.frame(&ToOrchestrator::ShutdownAck(ShutdownAck {}))?;
    let sent = outgoing.send(Bytes::from(ack)).await;
    sent.map_err(LinkError::Write)
}

/// State of a process that could not be confined and therefore does no work.
fn unconfined(why: &str) -> ConfinementReport {
    ConfinementReport {
        rights: Facts::new(),
        lacks: Some(why.to_owned()),
    }
}

/// Waits for a place among the events to be written, then for a command that may need it: while the
/// orchestrator is behind, commands stay where they are. Cancel-safe.
async fn next_command<'a>(
    events: &'a mpsc::Sender<Vec<u8>>,
    commands: &mut mpsc::Receiver<SessionCommand>,
) -> Option<(mpsc::Permit<'a, Vec<u8>>, SessionCommand)> {
    let place = events.reserve().await.ok()?;
    Some((place, commands.recv().await?))
}

/// Sends a withdrawal of reply requests whose waiters are gone, if any.
fn forget_replies(
    place: mpsc::Permit<'_, Vec<u8>>,
    session: &mut OrchestratorSession,
) -> Result<(), LinkError> {
    if let Some(frame) = session.forget_replies()? {
        place.send(frame);
    }
    Ok(())
}

/// Queues a frame other than an event.
fn enqueue(control: &mpsc::Sender<Vec<u8>>, frame: Vec<u8>) -> Result<(), LinkError> {
    control.try_send(frame).map_err(|_full| LinkError::NotRead {
        waiting: CONTROL_FRAMES_WAITING_MAX,
    })
}

/// Writes queued frames, events last, until the control queue ends and no call sends any longer;
/// then returns the writer. By then, only events without a waiter can be left.
async fn write(
    mut control: mpsc::Receiver<Vec<u8>>,
    mut calls: mpsc::Receiver<Vec<u8>>,
    mut events: mpsc::Receiver<Vec<u8>>,
    mut outgoing: OrchestratorSink,
) -> Result<OrchestratorSink, LinkError> {
    let mut has_control = true;
    loop {
        let frame = tokio::select! {
            biased;
            frame = control.recv(), if has_control => match frame {
                Some(frame) => frame,
                None => {
                    has_control = false;
                    continue;
                }
            },
            Some(frame) = calls.recv() => frame,
            Some(frame) = events.recv(), if has_control => frame,
            else => return Ok(outgoing),
        };
        outgoing
            .send(Bytes::from(frame))
            .await
            .map_err(LinkError::Write)?;
    }
}

#[cfg(test)]
mod tests {
    use goondan_protocol::JsonObject;
    use goondan_protocol::envelope::MessageError;
    use goondan_protocol::event::ConnectorEvent;
    use goondan_protocol::question::{QuestionAction, QuestionAsk};
    use goondan_protocol::reply::ReplyAwait;
    use goondan_protocol::trace::{SpanId, TraceContext, TraceId};

    use super::*;

    fn session() -> OrchestratorSession {
        OrchestratorSession::new("connector:hook".parse().unwrap())
    }

    fn submission() -> (Submission, oneshot::Receiver<EventVerdict>) {
        let (verdict, answer) = oneshot::channel();
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
        let submission = Submission {
            event: Box::new(event),
            trace,
            verdict,
        };
        (submission, answer)
    }

    fn accepted(in_reply_to: u64, event_id: &str) -> String {
        format!(
            r#"{{"type":"event.accepted","inReplyTo":{in_reply_to},"from":"orchestrator","to":"connector:hook","payload":{{"eventId":"{event_id}","duplicate":false}}}}"#
        )
    }

    #[test]
    fn each_reply_reaches_its_own_request() {
        let mut session = session();
        let (first, mut first_answer) = submission();
        let (second, mut second_answer) = submission();
        let sent = [first, second].map(|submission| {
            let frame = session.submit(submission).unwrap();
            let envelope = Envelope::from_frame(&frame).unwrap();
            assert!(envelope.trace.is_some());
            envelope.id.unwrap()
        });
        assert_ne!(sent[0], sent[1]);

        let frame = accepted(sent[1], "two");
        assert!(matches!(
            session.hear(frame.as_bytes()),
            Ok(FrameAction::Done)
        ));
        let verdict = second_answer.try_recv().unwrap().unwrap();
        assert_eq!(verdict.event_id.as_str(), "two");
        assert!(first_answer.try_recv().is_err());
        // A reply without a waiter is ignored.
        assert!(matches!(
            session.hear(frame.as_bytes()),
            Ok(FrameAction::Done)
        ));
    }

    #[test]
    fn clients_that_left_are_forgotten() {
        let mut session = session();
        for _ in 0..10 {
            let (submission, answer) = submission();
            session.submit(submission).unwrap();
            drop(answer);
        }
        assert_eq!(session.waiting.len(), 1);
    }

    #[test]
    fn user_answer_reaches_its_asker_or_question_is_withdrawn() {
        let mut session = session();
        let ask = |session: &mut OrchestratorSession| {
            let (sender, answer) = oneshot::channel();
            let ask = QuestionAsk {
                call_id: CallId(1),
                message: "Which?".to_owned(),
                schema: serde_json::json!({"type": "object"}),
                timeout_ms: 1,
            };
            let question = PersonRequest {
                ask: Box::new(ask),
                answer: sender,
            };
            let frame = session.ask_person(question).unwrap();
            (Envelope::from_frame(&frame).unwrap().id.unwrap(), answer)
        };
        let (_, given_up) = ask(&mut session);
        let (second, mut answer) = ask(&mut session);
        drop(given_up);
        let withdrawn = session.withdraw_questions().unwrap();
        assert_eq!(withdrawn.len(), 1);
        let withdrawn = String::from_utf8_lossy(&withdrawn[0]).into_owned();
        assert!(
            withdrawn.contains(r#""payload":{"requestId":1}"#),
            "{withdrawn}"
        );
        assert!(session.withdraw_questions().unwrap().is_empty());
        let text = format!(
            r#"{{"type":"question.answered","inReplyTo":{second},"from":"orchestrator","to":"connector:hook","payload":{{"action":"decline"}}}}"#
        );
        assert!(matches!(
            session.hear(text.as_bytes()),
            Ok(FrameAction::Done)
        ));
        assert!(matches!(
            answer.try_recv(),
            Ok(UserQuestionResult::Answered(answered)) if answered.action == QuestionAction::Decline
        ));
        // Another reply without a waiter is ignored.
        assert!(matches!(
            session.hear(text.as_bytes()),
            Ok(FrameAction::Done)
        ));
    }

    #[test]
    fn msg_13_reply_reaches_its_waiter_and_forgetting_is_sent_once() {
        let mut session = session();
        let mut ask = || {
            let (sender, answer) = oneshot::channel();
            let asked = ReplyAwait {
                instance_key: "hook:k".parse().unwrap(),
                event_id: "e".parse().unwrap(),
            };
            let request = ReplyRequest {
                asked,
                answer: sender,
            };
            let frame = session.ask_reply(request).unwrap();
            (Envelope::from_frame(&frame).unwrap().id.unwrap(), answer)
        };
        let ((first, given_up), (second, mut answer)) = (ask(), ask());
        drop(given_up);
        let forgotten = session.forget_replies().unwrap().unwrap();
        let forgotten = String::from_utf8(forgotten).unwrap();
        let expected = format!(r#""payload":{{"requestIds":[{first}]}}"#);
        assert!(forgotten.contains(&expected), "{forgotten}");
        assert!(session.forget_replies().unwrap().is_none());
        for request in [first, second] {
            let text = format!(
                r#"{{"type":"reply","inReplyTo":{request},"from":"orchestrator","to":"connector:hook","payload":{{"state":"unknown"}}}}"#
            );
            assert!(matches!(
                session.hear(text.as_bytes()),
                Ok(FrameAction::Done)
            ));
        }
        assert_eq!(answer.try_recv(), Ok(Reply::Unknown {}));
    }

    #[test]
    fn message_for_agents_ends_the_connector_session() {
        let committed = r#"{"type":"turn.committed","from":"orchestrator","to":"connector:hook","payload":{"turnId":"t"}}"#;
        let error = session().hear(committed.as_bytes()).unwrap_err();
        assert!(
            matches!(
                &error,
                LinkError::NotAMessage(MessageError::UnknownKind { kind }) if kind == "turn.committed"
            ),
            "{error}"
        );
        assert!(matches!(
            session().hear(b"garbage"),
            Err(LinkError::NotAMessage(_))
        ));
    }
}
