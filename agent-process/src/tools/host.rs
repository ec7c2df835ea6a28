//! Hosts: the processes that run the project's tool modules.
//!
//! An agent has one host for all its JavaScript and TypeScript modules, one for the modules of each
//! package, and one for each other module. A host is started on the first call, under a tool
//! supervisor, and lives as long as the agent process. A task owns the host process and all its
//! open calls, so a crash or hang of a module only fails its calls.

pub(crate) mod process;
pub(crate) mod wire;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt as _;
use goondan_clock::{Instant, sleep_until};
use goondan_log::TEXT_BYTES_MAX;
use goondan_protocol::JsonObject;
use goondan_protocol::agents::{AgentAnswer, AgentAsk, AgentQuestion};
use goondan_protocol::ids::StepId;
use goondan_protocol::limits::MAX_MESSAGE_BYTES;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::fault::ToolFault;
use super::invocation::ToolInvocation;
use super::pipe::Surroundings;
use crate::tool_call::{MAX_CALLS_PER_STEP, ToolOutcome};
pub(crate) use process::HostProgram;

use process::{HostProcessEvent, Process, happening, log};
use wire::{Context, HandlerError, HostLine, LogLevel, ModuleHostMessage, ModuleHostRequest};

/// The host program of JavaScript and TypeScript modules, as an argument of the runtime.
pub(super) const JAVASCRIPT_HOST: &str = concat!(
    include_str!("host/host.mjs"),
    include_str!("host/handlers.mjs")
);

/// Longest line of the protocol, in bytes.
pub(crate) const MAX_LINE_BYTES: usize = MAX_MESSAGE_BYTES;
/// Time for a handler to stop after its call is canceled. Then its host is killed.
const CANCEL_GRACE: Duration = Duration::from_secs(2);
/// Pause after the second consecutive crash; it doubles with each further crash.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause between two starts.
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// One more than the number of questions that one call may ask other agents.
const ASKS_MAX: u32 = 100;
/// Longest error code of a module, in bytes.
const MAX_CODE_BYTES: usize = 64;

#[derive(Debug)]
pub(super) struct ModuleCall {
    pub(super) tool: Arc<str>,
    pub(super) export: Arc<str>,
    pub(super) module: Arc<Path>,
    pub(super) config: Arc<JsonObject>,
    pub(super) timeout_ms: u64,
}

/// The hosts of one agent process.
#[derive(Debug, Default)]
pub(crate) struct Hosts(Mutex<HostWorkers>);

#[derive(Debug, Default)]
struct HostWorkers {
    /// The key includes the packages that confine the host: modules of two packages never share
    /// one.
    by_program: BTreeMap<(Vec<String>, HostProgram), mpsc::Sender<ModuleCallRequest>>,
    /// Dropping the tasks closes the hosts' inputs, which ends the hosts.
    tasks: JoinSet<()>,
}

#[derive(Debug)]
struct ModuleCallRequest {
    call: ModuleCall,
    invocation: ToolInvocation,
    reply: oneshot::Sender<Result<ToolOutcome, ToolFault>>,
}

impl Hosts {
    /// Runs a call in the host of a program and starts the host if necessary. Dropping the future
    /// cancels the call.
    pub(super) async fn call(
        &self,
        surroundings: &Arc<Surroundings>,
        program: HostProgram,
        call: ModuleCall,
        invocation: ToolInvocation,
    ) -> Result<ToolOutcome, ToolFault> {
        let lost = || ToolFault::new("E_TOOL_CRASHED", "the host of the module is gone");
        let sender = self.of_program(surroundings, program);
        let (reply, answer) = oneshot::channel();
        let request = ModuleCallRequest {
            call,
            invocation,
            reply,
        };
        sender.send(request).await.map_err(|_| lost())?;
        answer.await.map_err(|_| lost())?
    }

    fn of_program(
        &self,
        surroundings: &Arc<Surroundings>,
        program: HostProgram,
    ) -> mpsc::Sender<ModuleCallRequest> {
        // A poisoned lock is safe to use, because no update here can be left half done.
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while open.tasks.try_join_next().is_some() {}
        let key = (surroundings.packages.clone(), program.clone());
        if let Some(sender) = open.by_program.get(&key)
            && !sender.is_closed()
        {
            return sender.clone();
        }
        let (sender, requests) = mpsc::channel(MAX_CALLS_PER_STEP);
        let host = Host {
            surroundings: Arc::clone(surroundings),
            program,
            process: None,
            calls: BTreeMap::new(),
            last_id: 0,
            asks: JoinSet::new(),
            crashes: 0,
            not_before: None,
        };
        open.tasks.spawn(host.run(requests));
        open.by_program.insert(key, sender.clone());
        sender
    }
}

#[derive(Debug)]
struct OpenCall {
    request: ModuleCallRequest,
    deadline: Instant,
    /// The reason for cancellation, if it was canceled.
    given_up: Option<CallAbandonment>,
    /// Number of questions that its handler has asked other agents.
    asked: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallAbandonment {
    TimedOut,
    Dropped,
}

struct Host {
    surroundings: Arc<Surroundings>,
    program: HostProgram,
    process: Option<Process>,
    calls: BTreeMap<u64, OpenCall>,
    last_id: u64,
    /// Its open questions to other agents.
    asks: JoinSet<(u64, Option<AgentAnswer>)>,
    /// Unexpected exits since the last completed call.
    crashes: u32,
    not_before: Option<Instant>,
}

impl Host {
    async fn run(mut self, mut requests: mpsc::Receiver<ModuleCallRequest>) {
        loop {
            let look_again = self.next_deadline();
            let is_any_open = !self.calls.is_empty();
            // A canceled call may take the host down, so no new call starts until it has stopped.
            let is_stopping = self.calls.values().any(|open| open.given_up.is_some());
            tokio::select! {
                // A caller that cancels a call and makes another must find the first one canceled.
                biased;
                () = any_dropped(&mut self.calls), if is_any_open => self.cancel_dropped(),
                () = sleep_until(look_again), if is_any_open => self.look_at_the_clock().await,
                request = requests.recv(), if !is_stopping => match request {
                    Some(request) => self.begin(request),
                    None => return,
                },
                Some(answered) = self.asks.join_next() => {
                    // A question whose task failed gets no answer.
                    if let Ok((ask, answer)) = answered {
                        self.answer(ask, answer.as_ref());
                    }
                }
                happened = happening(&mut self.process) => self.take(happened),
            }
        }
    }

    /// Sends a call to the process and starts the process if necessary.
    fn begin(&mut self, request: ModuleCallRequest) {
        if self.process.is_none()
            && let Err(fault) = self.start()
        {
            drop(request.reply.send(Err(fault)));
            return;
        }
        self.last_id += 1;
        let (id, call, invocation) = (self.last_id, &request.call, &request.invocation);
        let surroundings = &self.surroundings;
        let site = invocation.site.as_ref();
        let message = ModuleHostRequest::Call {
            id,
            tool: &call.tool,
            export: &call.export,
            module: &call.module,
            input: &invocation.args,
            config: &call.config,
            context: Context {
                work_dir: &surroundings.work_dir,
                project_root: &surroundings.project_root,
                instance_key: surroundings.instance_key.as_str(),
                agent_name: surroundings.agent_name.as_str(),
                tool_call_id: &invocation.call_id,
                turn_id: site.map(|site| &site.turn_id),
                step_id: site.map(|site| StepId::of_turn(&site.turn_id, site.key.step)),
                trace_id: site.and_then(|site| Some(site.trace?.trace_id)),
                swarm: surroundings.swarm.as_ref(),
            },
        };
        if let Some(process) = &mut self.process {
            process.say(&message);
        }
        let deadline = Instant::now() + Duration::from_millis(request.call.timeout_ms);
        let open = OpenCall {
            request,
            deadline,
            given_up: None,
            asked: 0,
        };
        self.calls.insert(id, open);
    }

    fn start(&mut self) -> Result<(), ToolFault> {
        let now = Instant::now();
        if let Some(not_before) = self.not_before.filter(|at| *at > now) {
            let seconds = (not_before - now).as_secs() + 1;
            return Err(ToolFault::new(
                "E_TOOL_CRASHED",
                format!(
                    "{} has crashed {} times in a row; it may be started again in {seconds} s",
                    self.program.name, self.crashes
                ),
            ));
        }
        let started = Process::start(&self.surroundings, &self.program);
        self.process = Some(started.map_err(|error| {
            let name = &self.program.name;
            ToolFault::new(
                "E_TOOL_FAILED",
                format!("{name} could not be started: {error}"),
            )
        })?);
        tracing::debug!(host = self.program.name, "tool host started");
        Ok(())
    }

    fn take(&mut self, happened: HostProcessEvent) {
        match happened {
            HostProcessEvent::Wrote => {}
            HostProcessEvent::Stdout(chunk) => {
                let Some(process) = &mut self.process else {
                    return;
                };
                for line in process.out_lines.take(&chunk, MAX_LINE_BYTES) {
                    self.hear(&line);
                }
            }
            HostProcessEvent::Stderr(chunk) => {
                let Some(process) = &mut self.process else {
                    return;
                };
                for line in process.err_lines.take(&chunk, TEXT_BYTES_MAX) {
                    self.log_line(LogLevel::Warn, &line, true);
                }
            }
            HostProcessEvent::Ended(how) => {
                let Some(mut process) = self.process.take() else {
                    return;
                };
                let levels = [LogLevel::Info, LogLevel::Warn];
                for (line, level) in process.begun_lines().into_iter().zip(levels) {
                    if let Some(line) = line {
                        self.log_line(level, &line, false);
                        process.hear_last_words(&line.text());
                    }
                }
                self.crashed(&how, &process.last_words());
            }
        }
    }

    /// Handles one line of the host's standard output: a protocol message, or text for the log.
    fn hear(&mut self, line: &HostLine) {
        match wire::read_message(&line.bytes) {
            Ok(ModuleHostMessage::Result { id, output }) => {
                self.finish(id, Ok(returned(output)));
            }
            Ok(ModuleHostMessage::Error { id, thrown }) => self.finish(id, Ok(thrown.into())),
            Ok(ModuleHostMessage::Ask { id, ask, question }) => self.ask(id, ask, question),
            Ok(ModuleHostMessage::Log { level, message, id }) => {
                let span = id.and_then(|id| self.calls.get(&id));
                let span = span.map(|open| open.request.invocation.span.clone());
                let span = span.unwrap_or_else(|| self.latest_span());
                log(&span, &self.program.name, level, &message, None);
            }
            Err(_) => self.log_line(LogLevel::Info, line, false),
        }
    }

    fn log_line(&mut self, level: LogLevel, line: &HostLine, is_stderr: bool) {
        let text = line.text();
        if text.is_empty() {
            return;
        }
        let span = self.latest_span();
        log(&span, &self.program.name, level, &text, line.part);
        if is_stderr && let Some(process) = &mut self.process {
            process.hear_last_words(&text);
        }
    }

    /// A line that names no call most likely belongs to the latest call.
    fn latest_span(&self) -> tracing::Span {
        let latest = self.calls.values().next_back();
        latest.map_or_else(tracing::Span::none, |open| {
            open.request.invocation.span.clone()
        })
    }

    /// Asks other agents for a handler. A question that cannot be sent gets an empty answer.
    fn ask(&mut self, id: u64, ask: u64, question: Value) {
        let open = self.calls.get_mut(&id);
        let site = open.and_then(|open| {
            open.asked += 1;
            Some((open.request.invocation.site.clone()?, open.asked))
        });
        self.asks.spawn(
            async move {
                let (site, place) = site?;
                let question = serde_json::from_value::<AgentQuestion>(question).ok()?;
                let reached = matches!(
                    question,
                    AgentQuestion::Request { .. }
                        | AgentQuestion::Send { .. }
                        | AgentQuestion::List { .. }
                        | AgentQuestion::Catalog {}
                );
                if !reached || place >= ASKS_MAX {
                    return None;
                }
                let index = u32::try_from(site.key.index).unwrap_or(u32::MAX);
                let ask = AgentAsk {
                    turn_id: site.turn_id.clone(),
                    step: site.key.step,
                    // The first number of a call is reserved for its own question.
                    call: index
                        .saturating_add(1)
                        .saturating_mul(ASKS_MAX)
                        .saturating_add(place),
                    question,
                };
                site.agent_client.ask(ask, site.trace).await
            }
            .map(move |answer| (ask, answer)),
        );
    }

    /// Sends the answer to a question to the host.
    fn answer(&mut self, ask: u64, answer: Option<&AgentAnswer>) {
        if let Some(process) = &mut self.process {
            process.say(&ModuleHostRequest::Answer { ask, answer });
        }
    }

    /// Completes a call. A call that is not open was completed before.
    fn finish(&mut self, id: u64, outcome: Result<ToolOutcome, ToolFault>) {
        let Some(open) = self.calls.remove(&id) else {
            return;
        };
        self.crashes = 0;
        self.not_before = None;
        let outcome = match open.given_up {
            Some(CallAbandonment::TimedOut) => Err(timed_out(&open, "was stopped")),
            Some(CallAbandonment::Dropped) | None => outcome,
        };
        drop(open.request.reply.send(outcome));
    }

    /// Handles the end of the process: every open call fails, and the next call starts it again.
    fn crashed(&mut self, how: &str, last_words: &str) {
        self.crashes = self.crashes.saturating_add(1);
        let name = &self.program.name;
        tracing::warn!(host = name, how, crashes = self.crashes, "tool host ended");
        // The first restart after a crash is immediate.
        let pause = match self.crashes {
            0 | 1 => Duration::ZERO,
            crashes => FIRST_PAUSE
                .saturating_mul(1_u32.checked_shl(crashes - 2).unwrap_or(u32::MAX))
                .min(MAX_PAUSE),
        };
        self.not_before = Some(Instant::now() + pause);
        let mut message = format!("{name} ended ({how}) while the call ran");
        if !last_words.is_empty() {
            message.push_str("; its last output:\n");
            message.push_str(last_words);
        }
        for open in std::mem::take(&mut self.calls).into_values() {
            let fault = match open.given_up {
                Some(CallAbandonment::TimedOut) => timed_out(&open, "was ended with its host"),
                Some(CallAbandonment::Dropped) | None => {
                    ToolFault::new("E_TOOL_CRASHED", message.clone())
                }
            };
            drop(open.request.reply.send(Err(fault)));
        }
    }

    fn next_deadline(&self) -> Instant {
        let deadlines = self.calls.values().map(|open| open.deadline);
        deadlines.min().unwrap_or_else(Instant::now)
    }

    /// Cancels calls that exceed their time limit, and kills a host that does not stop one.
    async fn look_at_the_clock(&mut self) {
        let now = Instant::now();
        let late: Vec<u64> = self
            .calls
            .iter()
            .filter(|(_, open)| open.deadline <= now)
            .map(|(id, _)| *id)
            .collect();
        for id in late {
            let is_stubborn = self
                .calls
                .get(&id)
                .is_some_and(|open| open.given_up.is_some());
            if is_stubborn {
                self.end("a call did not stop when canceled").await;
                return;
            }
            self.give_up(id, CallAbandonment::TimedOut);
        }
    }

    fn cancel_dropped(&mut self) {
        let dropped: Vec<u64> = self
            .calls
            .iter()
            .filter(|(_, open)| open.given_up.is_none() && open.request.reply.is_closed())
            .map(|(id, _)| *id)
            .collect();
        for id in dropped {
            self.give_up(id, CallAbandonment::Dropped);
        }
    }

    fn give_up(&mut self, id: u64, why: CallAbandonment) {
        let Some(open) = self.calls.get_mut(&id) else {
            return;
        };
        open.given_up = Some(why);
        open.deadline = Instant::now() + CANCEL_GRACE;
        let reason = match why {
            CallAbandonment::TimedOut => "the call took too long",
            CallAbandonment::Dropped => "the call was canceled",
        };
        if let Some(process) = &mut self.process {
            process.say(&ModuleHostRequest::Cancel { id, reason });
        }
    }

    /// Ends the process and every process it started.
    async fn end(&mut self, why: &str) {
        if let Some(process) = self.process.take() {
            process.end().await;
        }
        self.crashed(why, "");
    }
}

/// Resolves when the caller of an open call has dropped it. Calls that are already canceled are
/// ignored.
async fn any_dropped(calls: &mut BTreeMap<u64, OpenCall>) {
    std::future::poll_fn(|cx| {
        let mut waited_for = calls.values_mut().filter(|open| open.given_up.is_none());
        if waited_for.any(|open| open.request.reply.poll_closed(cx).is_ready()) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

fn timed_out(open: &OpenCall, how: &str) -> ToolFault {
    let timeout_ms = open.request.call.timeout_ms;
    ToolFault::new(
        "E_TOOL_TIMEOUT",
        format!(
            "the call ran longer than {timeout_ms} ms and {how}; ask for less at once, or raise \
             the tool's `timeoutSeconds`"
        ),
    )
}

/// Formats a handler's return value for the model.
pub(crate) fn returned(output: Value) -> ToolOutcome {
    ToolOutcome::ok(match output {
        Value::Null => "[no output]".to_owned(),
        Value::String(text) => text,
        other => other.to_string(),
    })
}

impl From<HandlerError> for ToolOutcome {
    fn from(thrown: HandlerError) -> Self {
        let code = thrown.code.filter(|code| is_code(code));
        let code = code.as_deref().unwrap_or("E_TOOL_FAILED");
        let mut text = format!("{code}: {}", thrown.message);
        for (name, said) in [("suggestion", thrown.suggestion), ("help", thrown.help_url)] {
            if let Some(said) = said {
                text.push_str(&format!("\n{name}: {said}"));
            }
        }
        Self::error(text)
    }
}

/// True if a module's error code has our form: `E_` and capitals.
fn is_code(code: &str) -> bool {
    let allowed = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    code.len() <= MAX_CODE_BYTES && code.starts_with("E_") && code.chars().all(allowed)
}
