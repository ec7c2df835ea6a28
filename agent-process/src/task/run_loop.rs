//! Event loop of a run: executes the orchestrator's requests, and reports what the program does.

use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::time::Duration;

use bytes::BytesMut;
use goondan_cli_agents::limits::ACP_ANSWER_TIMEOUT_MS;
use goondan_cli_agents::tools::is_own_request;
use goondan_cli_agents::{CliEvent, Parser, Setup};
use goondan_clock::{Instant, sleep, sleep_until};
use goondan_confinement::ProgramRights;
use goondan_log::error_chain;
use goondan_protocol::ipc::{Pong, Shutdown, ToOrchestrator, ToTask};
use goondan_protocol::sandbox::{Level, SandboxPath};
use goondan_protocol::task::{OutputStream, TaskAlive, TaskAssignment, TaskExited, TaskNotStarted};
use nix::errno::Errno;

use super::dialogue::{Dialogue, INITIALIZE, StdinAction};
use super::freezer::Freezer;
use super::launch::{is_resumed, launch_of};
use super::liveness::{Liveness, Sample};
use super::messages::{Text, event_messages};
use super::places::RunDirectories;
use super::program::{Program, SupervisorEnd};
use super::tool_calls;
use super::tool_offer::Offer;
use super::usage_limit;
use crate::link::{MessageSender, OrchestratorLink};
use crate::process::{ProcessError, ProcessExit, own_sandbox};
use crate::tools::orphan_reaper;
use crate::tools::pipe::{DRAIN_TIMEOUT, SUPERVISOR_GRACE};
use crate::tools::tool_supervisor::task::wire::{Order, SupervisorReport};
use crate::tools::tool_supervisor::{NOT_CONFINED, NOT_CONFINED_WORDS};

/// Silence of a program before other signs of life are checked.
const LOOK_INTERVAL: Duration = Duration::from_secs(30);

/// The same after its result, when it should exit soon.
const LOOK_INTERVAL_AFTER_RESULT: Duration = Duration::from_secs(5);

/// Silence of an `acp` program that has loaded a session after which it gets its prompt, even
/// without an answer to the latest probe: programs may ignore requests that they do not know.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// Time that an `acp` program has to exit after its turn, for which its standard input ends. Some, such as `gemini`
/// 0.61.0, stay for minutes. Their protocol has no work after a turn.
const TURN_EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time between the request to end a program that stayed after its turn, and its forced end.
const TURN_EXIT_GRACE: Duration = Duration::from_secs(5);

/// Part of a shutdown's grace period that is reserved for killing what did not exit in time; at
/// most [`KILLING_TIME_MAX`].
const KILLING_PART: u32 = 4;
const KILLING_TIME_MAX: Duration = Duration::from_secs(2);

/// Maximum bytes read after the program has ended: no process of the program writes any longer, so
/// the limit is a pipe's capacity.
const DRAIN_BYTES_MAX: usize = 2 << 20;

/// Maximum bytes of the supervisor's own output before it has started the program.
const FIRST_WORDS_BYTES_MAX: usize = 4 << 10;

/// Runs the program of a task until it exits, is asked to end, or the orchestrator disconnects.
///
/// # Errors
///
/// [`ProcessError`] if the process cannot continue; the program ends with it.
pub(crate) async fn run(
    mut link: OrchestratorLink,
    assignment: TaskAssignment,
    supervisor: &Path,
) -> Result<ProcessExit, ProcessError> {
    // The steps of a start, each with its own failure.
    // Open it first: this process's confinement would deny access to the group's files.
    let freezer = assignment.group.as_deref().and_then(open_freezer);
    let places = RunDirectories::of(&assignment);
    let mut allowed = places.allowed();
    let offer = offer_tools(&assignment, &places, &mut allowed, supervisor);
    let made = places.make();
    let level = assignment.agent.sandbox.require;
    let confined = own_sandbox::enter(
        Some(level),
        &allowed.policy,
        assignment.egress_socket.as_deref(),
    );
    let outlet = link.outlet();
    let mut outbox = Outbox::default();
    match confined {
        Ok(confined) => outbox.add(ToOrchestrator::Confined(confined)),
        Err(fault) => {
            outbox.add(not_started(error_chain(&fault)));
            return outbox.empty_into(link, outlet).await;
        }
    }
    if let Err(error) = made {
        let at = assignment.work_area.display();
        let words = format!("failed to create the program's home in `{at}`: {error}");
        outbox.add(not_started(words));
        return outbox.empty_into(link, outlet).await;
    }
    let launch = match launch_of(&assignment) {
        Ok(mut launch) => {
            if let Some(offer) = &offer {
                offer.add_to(&mut launch);
                launch.tools = Some(places.temporary().to_owned());
            }
            launch
        }
        Err(error) => {
            outbox.add(not_started(error.to_string()));
            return outbox.empty_into(link, outlet).await;
        }
    };
    let mut program = match Program::supervised(&assignment, &places, &allowed, supervisor) {
        Ok(program) => program,
        Err(error) => {
            let words = format!("the program's supervisor could not be started: {error}");
            outbox.add(not_started(words));
            return outbox.empty_into(link, outlet).await;
        }
    };
    // The supervisor starts nothing before it receives the launch order.
    let freezer = freezer.filter(|freezer| is_admitted(freezer, &program));
    program.order(&Order::Launch(launch));
    tracing::info!(run = assignment.run, "the program of the task is started");
    let setup = Setup {
        prompt: assignment.prompt.clone(),
        is_resumed: is_resumed(&assignment),
    };
    let mut run = TaskRunLoop {
        parser: Parser::new(assignment.agent.format, &setup),
        dialogue: Dialogue::of(
            &assignment,
            offer.as_ref().and_then(Offer::of_session).cloned(),
        ),
        offers_tools: offer.is_some(),
        program,
        freezer,
        outbox,
        stdout_text: Text::of(OutputStream::Stdout),
        stderr_text: Text::of(OutputStream::Stderr),
        liveness: Liveness::default(),
        state: State::default(),
    };
    let steps = run.dialogue.begin();
    run.take(steps);
    let outcome = run.go_on(&mut link, &outlet).await?;
    match outcome {
        Some(ended) => Ok(ended),
        None => run.finish(link, outlet).await,
    }
}

/// Offers goondan's tools to the program. Their server is this process's own executable, which the
/// sandbox shows. Returns `None` if the executable was replaced since this process started, or if
/// its path is not UTF-8.
fn offer_tools(
    assignment: &TaskAssignment,
    places: &RunDirectories<'_>,
    allowed: &mut ProgramRights,
    executable: &Path,
) -> Option<Offer> {
    let executable = std::fs::read_link(executable).unwrap_or_else(|_| executable.to_owned());
    let offer = Offer::of(assignment, &executable, places.temporary())?;
    if !executable.is_file() {
        let path = executable.display();
        tracing::warn!(%path, "the program is given no tools: the agent's executable was replaced");
        return None;
    }
    if allowed.policy.require != Level::Off {
        let path = SandboxPath::try_from(executable).ok()?;
        allowed.policy.read.push(path);
    }
    Some(offer)
}

fn open_freezer(group: &Path) -> Option<Freezer> {
    let opened = Freezer::open(group);
    let failed = opened.as_ref().err().map(ToString::to_string);
    if let Some(error) = failed {
        tracing::warn!(error, "the program has no control group: signals pause it");
    }
    opened.ok()
}

/// Moves the supervisor into the program's group, with the processes that confine the program. The
/// program itself does not start before the launch order.
fn is_admitted(freezer: &Freezer, program: &Program) -> bool {
    let mut admitted = BTreeSet::new();
    loop {
        let processes = program.processes().into_iter();
        let new: Vec<u32> = processes.filter(|pid| !admitted.contains(pid)).collect();
        if new.is_empty() {
            return !admitted.is_empty();
        }
        for pid in new {
            match freezer.admit(pid) {
                Ok(()) => {}
                // It has exited in the meantime.
                Err(error) if error.raw_os_error() == Some(Errno::ESRCH as i32) => {}
                Err(error) => {
                    let error = error.to_string();
                    tracing::warn!(
                        error,
                        "the program gets into no control group: signals pause it"
                    );
                    return false;
                }
            }
            admitted.insert(pid);
        }
    }
}

fn not_started(error: String) -> ToOrchestrator {
    tracing::warn!(error, "the program of the task was not started");
    ToOrchestrator::TaskNotStarted(TaskNotStarted { error })
}

/// Messages to send.
#[derive(Default)]
struct Outbox(VecDeque<ToOrchestrator>);

impl Outbox {
    fn add(&mut self, message: ToOrchestrator) {
        self.0.push_back(message);
    }

    fn extend(&mut self, messages: Vec<ToOrchestrator>) {
        self.0.extend(messages);
    }

    /// Sends all queued messages as the last ones of the process.
    async fn empty_into(
        self,
        link: OrchestratorLink,
        outlet: MessageSender,
    ) -> Result<ProcessExit, ProcessError> {
        for message in self.0 {
            outlet.room().await.send(outlet.frame(&message)?);
        }
        drop(outlet);
        link.close().await;
        Ok(ProcessExit::Finished)
    }
}

#[derive(Debug, Default)]
struct State {
    /// True once the program was started.
    is_started: bool,
    /// True once its failure to start was reported.
    is_not_started: bool,
    is_paused: bool,
    /// True once it has reported a result.
    has_result: bool,
    /// Its exit code, as reported by the supervisor.
    code: Option<i32>,
    /// Exit code of the supervisor.
    supervisor_code: Option<i32>,
    /// True once the supervisor has exited.
    has_ended: bool,
    /// Time when the prompt is sent without an answer to the latest probe.
    prompt_at: Option<Instant>,
    /// Time when a program that stays after its turn is asked to end.
    exit_by: Option<Instant>,
    /// The unanswered request, and the time when it counts as failed.
    awaited: Option<(&'static str, Instant)>,
    /// Time when a requested end is forced.
    give_up_at: Option<Instant>,
    /// Time when the supervisor is killed after it was asked to end the program.
    kill_at: Option<Instant>,
    /// Answers to calls of goondan's tools, sent when the calls' events were sent.
    answers: Vec<(u64, String)>,
    /// Beginning of the supervisor's standard error.
    first_words: Vec<u8>,
    drained_bytes: usize,
}

struct TaskRunLoop {
    parser: Parser,
    dialogue: Dialogue,
    /// True if the program is given goondan's tools.
    offers_tools: bool,
    program: Program,
    /// Freezes the program for a pause; without it, signals are used.
    freezer: Option<Freezer>,
    outbox: Outbox,
    stdout_text: Text,
    stderr_text: Text,
    liveness: Liveness,
    state: State,
}

enum RunLoopEvent {
    Asked(Option<ToTask>),
    Sent,
    Stdout(BytesMut),
    Stderr(BytesMut),
    Reported(Option<SupervisorReport>),
    Ordered,
    Ended(SupervisorEnd),
    /// The outputs of an exited program are drained.
    Drained,
    OverTime,
    /// The program has not exited after its turn.
    Stayed,
    /// The program did not answer a probe in time.
    ProbeUnanswered,
    /// The program did not answer another request in time.
    Unanswered(&'static str),
    /// The liveness check is due.
    TimeToLook,
}

impl TaskRunLoop {
    /// Loops until the program has exited and its output is read, or something else ends the
    /// process.
    async fn go_on(
        &mut self,
        link: &mut OrchestratorLink,
        outlet: &MessageSender,
    ) -> Result<Option<ProcessExit>, ProcessError> {
        let mut next_look = Instant::now() + LOOK_INTERVAL;
        while !(self.state.has_ended && self.program.is_silent() && self.outbox.0.is_empty()) {
            if self.outbox.0.is_empty() {
                for (call, answer) in std::mem::take(&mut self.state.answers) {
                    self.program.order(&Order::CallAnswer { call, answer });
                }
            }
            next_look = next_look.min(Instant::now() + self.look_interval());
            let happened = self.wait(link, outlet, next_look).await?;
            match happened {
                RunLoopEvent::Asked(None) => return Ok(Some(ProcessExit::Orphaned)),
                RunLoopEvent::Asked(Some(message)) => self.follow(message).await?,
                RunLoopEvent::Sent | RunLoopEvent::Ordered => {}
                RunLoopEvent::Stdout(bytes) => self.hear_stdout(&bytes),
                RunLoopEvent::Stderr(bytes) => self.hear_stderr(&bytes),
                RunLoopEvent::Reported(report) => self.hear_supervisor(report),
                RunLoopEvent::Ended(status) => {
                    self.state.has_ended = true;
                    self.state.supervisor_code = status.ok().and_then(|status| status.code());
                }
                RunLoopEvent::Drained => self.program.close_outputs(),
                RunLoopEvent::OverTime => self.end_by_force(),
                RunLoopEvent::Stayed => {
                    tracing::debug!("the program has not exited after its turn: it is ended");
                    self.end_within(TURN_EXIT_GRACE);
                }
                RunLoopEvent::ProbeUnanswered => {
                    tracing::warn!("the agent answers no probe: it gets its prompt");
                    let steps = self.dialogue.probe_unanswered();
                    self.proceed(steps);
                }
                RunLoopEvent::Unanswered(request) => {
                    self.state.awaited = None;
                    let why = unanswered(request);
                    tracing::warn!(why, "the program cannot work for the task");
                    self.outbox
                        .extend(event_messages(vec![CliEvent::Permanent(why)]));
                }
                RunLoopEvent::TimeToLook => {
                    next_look = Instant::now() + self.look_interval();
                    if self.state.is_started
                        && !self.state.is_paused
                        && self.liveness.is_to_be_looked_at()
                    {
                        self.program.order(&Order::Look {});
                    }
                }
            }
        }
        Ok(None)
    }

    fn look_interval(&self) -> Duration {
        match self.state.has_result {
            true => LOOK_INTERVAL_AFTER_RESULT,
            false => LOOK_INTERVAL,
        }
    }

    async fn wait(
        &mut self,
        link: &mut OrchestratorLink,
        outlet: &MessageSender,
        next_look: Instant,
    ) -> Result<RunLoopEvent, ProcessError> {
        let is_full = !self.outbox.0.is_empty();
        let hears = !is_full && !self.program.is_behind();
        let has_ended = self.state.has_ended;
        let has_unsent = self.program.has_unsent();
        let over_time = self.state.give_up_at.or(self.state.kill_at);
        let prompt_at = self.state.prompt_at.filter(|_| !self.state.is_paused);
        let exit_by = self.state.exit_by.filter(|_| !self.state.is_paused);
        let awaited = self.state.awaited.filter(|_| !self.state.is_paused);
        let answer_by = awaited.map(|(_, until)| until);
        let request = awaited.map_or(INITIALIZE, |(request, _)| request);
        let mut parts = self.program.parts();
        let happened = tokio::select! {
            incoming = link.receive_for_task() => RunLoopEvent::Asked(incoming?),
            room = outlet.room(), if is_full => {
                if let Some(message) = self.outbox.0.pop_front() {
                    room.send(outlet.frame(&message)?);
                }
                RunLoopEvent::Sent
            }
            report = parts.reports.next(), if parts.reports.is_open() => RunLoopEvent::Reported(report),
            bytes = parts.stdout.read(), if hears && parts.stdout.is_open() => RunLoopEvent::Stdout(bytes),
            bytes = parts.stderr.read(), if hears && parts.stderr.is_open() => RunLoopEvent::Stderr(bytes),
            () = parts.orders.write_on(), if has_unsent => RunLoopEvent::Ordered,
            status = parts.supervisor.wait(), if !has_ended => RunLoopEvent::Ended(status),
            () = sleep(DRAIN_TIMEOUT), if has_ended && hears => RunLoopEvent::Drained,
            () = at(over_time), if !has_ended => RunLoopEvent::OverTime,
            () = at(exit_by), if !has_ended => RunLoopEvent::Stayed,
            () = at(prompt_at), if !has_ended && hears => RunLoopEvent::ProbeUnanswered,
            () = at(answer_by), if !has_ended && hears => RunLoopEvent::Unanswered(request),
            () = sleep_until(next_look), if !has_ended => RunLoopEvent::TimeToLook,
        };
        Ok(happened)
    }

    async fn follow(&mut self, message: ToTask) -> Result<(), ProcessError> {
        match message {
            ToTask::Ping(ping) => {
                let pong = Pong { nonce: ping.nonce };
                self.outbox.add(ToOrchestrator::Pong(pong));
            }
            ToTask::Shutdown(shutdown) => self.shut_down(&shutdown),
            ToTask::Pause(_) => {
                self.state.is_paused = true;
                if !self.is_frozen().await {
                    self.program.order(&Order::Pause {});
                }
            }
            ToTask::Continue(_) => {
                self.state.is_paused = false;
                self.restart_answer_wait();
                if !self.thaw() {
                    self.program.order(&Order::Continue {});
                }
            }
            ToTask::Permission(decided) => {
                let steps = self.dialogue.permission(decided);
                self.take(steps);
            }
            other @ ToTask::Welcome(_) => {
                let (kind, doing) = (other.kind(), "the program of the task ran");
                return Err(ProcessError::Unexpected { kind, doing });
            }
        }
        Ok(())
    }

    /// Freezes the program; false if signals must be used instead.
    async fn is_frozen(&mut self) -> bool {
        let Some(freezer) = &mut self.freezer else {
            return false;
        };
        match freezer.freeze().await {
            Ok(()) => {
                tracing::debug!("the program is frozen");
                true
            }
            Err(error) => {
                let error = error.to_string();
                tracing::warn!(
                    error,
                    "failed to freeze the program; pausing it with signals"
                );
                false
            }
        }
    }

    /// Thaws the program; false if it was not frozen.
    fn thaw(&mut self) -> bool {
        self.freezer.as_mut().is_some_and(Freezer::thaw)
    }

    fn shut_down(&mut self, shutdown: &Shutdown) {
        tracing::info!(reason = shutdown.reason, "shutdown was asked for");
        self.end_within(Duration::from_millis(shutdown.grace_period_ms));
    }

    /// Asks the program to end, and ends it by force near the end of the grace period.
    fn end_within(&mut self, grace: Duration) {
        self.state.exit_by = None;
        if self.state.give_up_at.is_some() || self.state.kill_at.is_some() {
            return;
        }
        self.state.is_paused = false;
        // A frozen program handles no signals, and neither does its supervisor.
        self.thaw();
        self.program.order(&Order::Terminate {});
        let killing = (grace / KILLING_PART).min(KILLING_TIME_MAX);
        self.state.give_up_at = Some(Instant::now() + grace.saturating_sub(killing));
    }

    /// Handles a missed deadline.
    fn end_by_force(&mut self) {
        if self.state.give_up_at.take().is_some() {
            self.program.give_up();
            self.state.kill_at = Some(Instant::now() + SUPERVISOR_GRACE);
        } else {
            self.state.kill_at = None;
            self.program.kill();
        }
    }

    fn take(&mut self, steps: Vec<StdinAction>) {
        for step in steps {
            let order = match step {
                StdinAction::Write(text) => Order::Input { text },
                StdinAction::End => Order::EndInput {},
            };
            self.program.order(&order);
        }
    }

    /// Restarts the wait for the answer to a request.
    fn restart_answer_wait(&mut self) {
        let until = Instant::now() + Duration::from_millis(ACP_ANSWER_TIMEOUT_MS);
        self.state.awaited = self.dialogue.awaited().map(|request| (request, until));
    }

    fn hear_stdout(&mut self, bytes: &[u8]) {
        self.liveness.printed();
        // A loaded session is replayed before it is answered. An unopened connection has no output.
        if self
            .state
            .awaited
            .is_some_and(|(request, _)| request != INITIALIZE)
        {
            self.restart_answer_wait();
        }
        self.bound_draining(bytes.len());
        let output = match bytes {
            [] => self.stdout_text.end(),
            bytes => self.stdout_text.push(bytes),
        };
        self.outbox.extend(output);
        let events = self.parser.push(bytes);
        self.hear(events);
    }

    fn hear_stderr(&mut self, bytes: &[u8]) {
        self.liveness.printed();
        self.bound_draining(bytes.len());
        if !self.state.is_started && self.state.first_words.len() < FIRST_WORDS_BYTES_MAX {
            self.state.first_words.extend_from_slice(bytes);
        }
        let output = match bytes {
            [] => self.stderr_text.end(),
            bytes => self.stderr_text.push(bytes),
        };
        self.outbox.extend(output);
        let events = self.parser.push_stderr(bytes);
        self.hear(events);
    }

    fn bound_draining(&mut self, bytes: usize) {
        if self.state.has_ended {
            self.state.drained_bytes += bytes;
            if self.state.drained_bytes > DRAIN_BYTES_MAX {
                self.program.close_outputs();
            }
        }
    }

    fn hear(&mut self, mut events: Vec<CliEvent>) {
        if self.offers_tools {
            for own in events.extract_if(.., |event| is_own_call(event)) {
                if let CliEvent::Permission(request) = &own {
                    let steps = self.dialogue.allow_own(request);
                    self.take(steps);
                }
            }
        }
        for event in &mut events {
            if matches!(event, CliEvent::Result(_)) && !self.state.has_result {
                self.state.has_result = true;
                let ends_with_turn = self.dialogue.ends_with_turn();
                self.state.exit_by = ends_with_turn.then(|| Instant::now() + TURN_EXIT_TIMEOUT);
            }
            if let CliEvent::RateLimit(reset) = event {
                usage_limit::resolve(reset, goondan_log::unix_millis_now());
            }
            let steps = self.dialogue.hear(event);
            self.take(steps);
        }
        let (answered, played_back) = (self.parser.answered(), self.parser.played_back());
        let steps = self.dialogue.answered(answered, played_back);
        self.proceed(steps);
        self.outbox.extend(event_messages(events));
    }

    /// Takes steps that may bring the dialogue to its prompt.
    fn proceed(&mut self, steps: Vec<StdinAction>) {
        if self.dialogue.is_prompted() {
            self.parser.prompted();
        }
        let awaits_probe = self.dialogue.awaits_probe();
        self.state.prompt_at = awaits_probe.then(|| Instant::now() + PROBE_TIMEOUT);
        if self.state.is_started && self.dialogue.awaited() != self.state.awaited.map(|it| it.0) {
            self.restart_answer_wait();
        }
        self.take(steps);
    }

    fn hear_supervisor(&mut self, report: Option<SupervisorReport>) {
        match report {
            Some(SupervisorReport::Started { pid }) => {
                self.state.is_started = true;
                self.restart_answer_wait();
                match self.program.identity(pid) {
                    Some(started) => self.outbox.add(ToOrchestrator::TaskStarted(started)),
                    // The program and its supervisor have already exited; the exit is reported.
                    None => tracing::debug!("the program was gone before it was looked at"),
                }
            }
            Some(SupervisorReport::NotStarted { error }) => {
                self.state.is_not_started = true;
                self.outbox.add(not_started(error));
            }
            Some(SupervisorReport::NoTools { error }) => {
                tracing::warn!(error, "the program cannot reach goondan's tools");
            }
            Some(SupervisorReport::Call { call, request }) => {
                self.liveness.printed();
                let (events, answer) = tool_calls::receive(&request);
                self.outbox.extend(event_messages(events));
                self.state.answers.push((call, answer));
            }
            Some(SupervisorReport::Paused { running: 0 }) => {
                tracing::debug!("the program was stopped");
            }
            Some(SupervisorReport::Paused { running }) => {
                tracing::warn!(
                    running,
                    "some processes of the program could not be stopped"
                );
            }
            Some(SupervisorReport::Vitals {
                cpu_ticks,
                written_bytes,
            }) => {
                let sample = Sample {
                    cpu_ticks,
                    written_bytes,
                };
                let interval = self.look_interval();
                let shows_life = self.liveness.looked(sample, interval);
                if shows_life && !self.state.is_paused {
                    self.outbox.add(ToOrchestrator::TaskAlive(TaskAlive {}));
                }
            }
            Some(SupervisorReport::Exited { code, signal }) => {
                tracing::debug!(code, signal, "the program has ended");
                self.state.code = code;
            }
            None => {}
        }
    }

    /// Reports the remaining output after the program has exited.
    async fn finish(
        mut self,
        link: OrchestratorLink,
        outlet: MessageSender,
    ) -> Result<ProcessExit, ProcessError> {
        self.thaw();
        let events = self.parser.end();
        self.outbox.extend(self.stdout_text.end());
        self.outbox.extend(self.stderr_text.end());
        self.outbox.extend(event_messages(events));
        // The supervisor has ended all processes, unless it was itself killed.
        if !orphan_reaper::end_all() {
            tracing::error!("some processes of the program could not be ended");
        }
        if self.state.is_started {
            let code = self.state.code;
            self.outbox
                .add(ToOrchestrator::TaskExited(TaskExited { code }));
        } else if !self.state.is_not_started {
            self.outbox.add(not_started(self.why_not_started()));
        }
        self.outbox.empty_into(link, outlet).await
    }

    fn why_not_started(&self) -> String {
        let words = String::from_utf8_lossy(&self.state.first_words);
        let is_unconfined = self.state.supervisor_code == Some(NOT_CONFINED.into());
        match words.strip_prefix(NOT_CONFINED_WORDS) {
            Some(why) if is_unconfined => why.trim_end().to_owned(),
            _ => "the program's supervisor ended before it had started it".to_owned(),
        }
    }
}

/// True if the program asks for permission to call one of goondan's own tools.
fn is_own_call(event: &CliEvent) -> bool {
    matches!(event, CliEvent::Permission(request) if is_own_request(request))
}

/// Explains an unanswered request to a person.
fn unanswered(request: &str) -> String {
    let seconds = ACP_ANSWER_TIMEOUT_MS / 1_000;
    format!(
        "the program did not answer `{request}` of the Agent Client Protocol within {seconds} s; check that its \
         `command` speaks the protocol, and run it by hand"
    )
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
