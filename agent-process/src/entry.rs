//! From `main` to the process loop: arguments, runtime, log and exit code.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use goondan_log::{BufferedStdout, Identity, JsonLines, LEVEL_VAR, error_chain, level_filter};
use goondan_protocol::definition::AgentAssignment;
use goondan_protocol::ipc::{IPC_FD_VAR, REHEARSE, REPLAY, START_MODULES};
use goondan_protocol::rehearsal::{RehearsalScript, ReplayResult};
use goondan_protocol::replay::ReplayScript;
use goondan_protocol::trace::TraceId;
use goondan_protocol::version::Version;
use serde_json::{Value, json};
use tracing_subscriber::Layer as _;
use tracing_subscriber::layer::SubscriberExt as _;
use uuid::Uuid;

use crate::link::{self, LinkError, OrchestratorLink, ProcessAssignment};
use crate::process::{self, ProcessError, ProcessExit};
use crate::rehearsal;
use crate::replay;
use crate::task;
use crate::tools::orphan_reaper;
use crate::tools::startup_check::{StartupTimeouts, start_modules};
use crate::tools::tool_supervisor::task::calls::TOOL_SERVER;
use crate::tools::tool_supervisor::{self, Supervision};

/// The process ended normally, as requested.
const EXIT_DONE: u8 = 0;
/// The process failed; its last log line gives the reason.
const EXIT_FAULT: u8 = 1;
/// The process was not started by the orchestrator, or with wrong arguments.
const EXIT_USAGE: u8 = 2;
/// The orchestrator is gone.
const EXIT_ORPHANED: u8 = 3;

const HELP: &str = "\
goondan-agent-process runs one agent instance. It is started by goondan-orchestrator, which talks to
it over a socket pair on its standard input; do not start it by hand. To talk to an agent, run
`gdn run` and `gdn chat`.

Options:
  -h, --help     Print this text
  -V, --version  Print the version

Exit codes: 0 asked to end · 1 fault (see the last log line) · 2 usage · 3 the orchestrator is gone
";

const NOT_BY_HAND: &str = "\
goondan-agent-process is started by goondan-orchestrator, not by hand: GOONDAN_IPC_FD is not 0.
Run `gdn run` to start the orchestrator and `gdn chat` to talk to an agent.
";

/// Unblocks all signals. The orchestrator starts processes from a thread that blocks them, and a
/// process inherits the mask of its parent. Must be called before another thread or process exists.
fn take_signals() -> nix::Result<()> {
    nix::sys::signal::SigSet::empty().thread_set_mask()
}

/// The binary's `main`.
#[must_use]
pub fn main_impl() -> ExitCode {
    if let Err(error) = take_signals() {
        let text = format!("goondan-agent-process: cannot unblock signals: {error}\n");
        return ExitCode::from(tell(&mut std::io::stderr(), &text, EXIT_FAULT));
    }
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    #[cfg(target_os = "linux")]
    if let Some(code) = goondan_confinement::try_as_asked(&arguments) {
        return code;
    }
    let code = if let Some(supervision) = Supervision::from_arguments(&arguments) {
        run_tool_supervisor(&supervision)
    } else {
        match arguments.as_slice() {
            [] => match std::env::var(IPC_FD_VAR).as_deref() {
                Ok("0") => run_agent(),
                _ => tell(&mut std::io::stderr(), NOT_BY_HAND, EXIT_USAGE),
            },
            [flag, load, stay] if flag == START_MODULES => {
                match StartupTimeouts::read(load, stay) {
                    Some(waits) => try_modules(waits),
                    None => tell(&mut std::io::stderr(), HELP, EXIT_USAGE),
                }
            }
            [flag, directory, rest @ ..] if flag == TOOL_SERVER && rest.len() < 2 => {
                serve_tools(directory, rest.first())
            }
            [flag] if flag == REHEARSE => rehearse(),
            [flag] if flag == REPLAY => replay_incidents(),
            [flag] => info(flag),
            _ => tell(&mut std::io::stderr(), HELP, EXIT_USAGE),
        }
    };
    ExitCode::from(code)
}

fn info(flag: &OsString) -> u8 {
    match flag.to_str() {
        Some("--version" | "-V") => {
            let version = format!("goondan-agent-process {}\n", Version::current());
            tell(&mut std::io::stdout(), &version, EXIT_DONE)
        }
        Some("--help" | "-h") => tell(&mut std::io::stdout(), HELP, EXIT_DONE),
        _ => tell(&mut std::io::stderr(), HELP, EXIT_USAGE),
    }
}

fn tell(out: &mut dyn std::io::Write, text: &str, code: u8) -> u8 {
    // The reader may be gone.
    drop(out.write_all(text.as_bytes()));
    code
}

fn run_tool_supervisor(supervision: &Supervision) -> u8 {
    tool_supervisor::run(supervision).unwrap_or_else(|error| {
        let text = format!("goondan: cannot supervise a command: {error}\n");
        tell(&mut std::io::stderr(), &text, EXIT_FAULT)
    })
}

/// Prevents other processes of the same user, including the commands of its tools, from reading the
/// agent's memory or impersonating it (`SEC-6`). Processes that it starts are not hidden. macOS
/// offers no way to do this without `unsafe`.
fn hide_memory() {
    #[cfg(target_os = "linux")]
    if std::env::var_os(goondan_protocol::secret::ALLOW_DEBUGGER_VAR).is_none() {
        // Best effort: the agent also runs on systems that do not support it.
        nix::sys::prctl::set_dumpable(false).ok();
    }
}

/// Starts the modules of an agent's tools once and prints the problems.
fn try_modules(waits: StartupTimeouts) -> u8 {
    hide_memory();
    let tried = || -> Result<Vec<String>, Box<dyn std::error::Error>> {
        let assignment: AgentAssignment = serde_json::from_reader(std::io::stdin())?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let problems = runtime.block_on(async {
            orphan_reaper::adopt_orphans()?;
            process::ignore_signals()?;
            process::confine(&assignment)?;
            Ok::<_, Box<dyn std::error::Error>>(
                start_modules(&assignment, own_executable(), waits).await,
            )
        });
        orphan_reaper::end_all();
        problems
    };
    answer(tried().and_then(|problems| Ok(serde_json::to_string(&problems)?)))
}

/// Serves goondan's tools to the program of a task.
fn serve_tools(directory: &OsString, proposal: Option<&OsString>) -> u8 {
    match task::serve_tools(Path::new(directory), proposal.map(Path::new)) {
        Ok(()) => EXIT_DONE,
        Err(error) => {
            let at = directory.display();
            let text = format!("goondan: failed to serve the tools of a task in `{at}`: {error}\n");
            tell(&mut std::io::stderr(), &text, EXIT_FAULT)
        }
    }
}

/// Replays recorded turns with another configuration and prints the differences (`BUNDLE-7`).
fn rehearse() -> u8 {
    hide_memory();
    let play = || -> Result<ReplayResult, Box<dyn std::error::Error>> {
        let script: RehearsalScript = serde_json::from_reader(std::io::stdin().lock())?;
        // Nothing is started and no model is asked here; confinement protects the messages of other
        // conversations.
        process::confine(&script.after)?;
        Ok(rehearsal::run(&script, own_executable()))
    };
    answer(play().and_then(|played| Ok(serde_json::to_string(&played)?)))
}

/// Replays the turns of incidents and prints what the turn engine did.
fn replay_incidents() -> u8 {
    hide_memory();
    let play = || -> Result<String, Box<dyn std::error::Error>> {
        let script: ReplayScript = serde_json::from_reader(std::io::stdin().lock())?;
        // Nothing is started and no model is asked here; confinement is a second wall. All
        // assignments have the same directories.
        if let Some(assignment) = script.assignments.first() {
            process::confine(assignment)?;
        }
        let played = replay::run(&script, &own_executable())?;
        Ok(serde_json::to_string(&played)?)
    };
    answer(play())
}

/// Prints the result for the program that started this one.
fn answer(said: Result<String, Box<dyn std::error::Error>>) -> u8 {
    match said {
        Ok(text) => tell(&mut std::io::stdout(), &text, EXIT_DONE),
        Err(error) => {
            let text = error_chain(&*error);
            tell(&mut std::io::stderr(), &format!("{text}\n"), EXIT_FAULT)
        }
    }
}

fn run_agent() -> u8 {
    hide_memory();
    let trace_id = TraceId::from_uuid(Uuid::now_v7());
    let identity = |fields| Identity {
        process: "agent",
        pid: std::process::id(),
        trace_id,
        fields,
    };
    let stdout = BufferedStdout::of_this_thread();
    stdout.flush_at_panic();
    let before_waiting = stdout.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_park(move || before_waiting.flush())
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            let text = format!("goondan-agent-process: cannot start: {error}\n");
            return tell(&mut std::io::stderr(), &text, EXIT_FAULT);
        }
    };
    let greeted = runtime.block_on(async {
        orphan_reaper::adopt_orphans().map_err(|errno| LinkError::Setup(errno.into()))?;
        link::greet(stdout.clone()).await
    });
    let ended = match greeted {
        Ok((link, work)) => {
            let log = subscriber(&identity(identity_fields(&work)), stdout.clone());
            // Cannot fail, because nothing else in this binary sets the subscriber.
            drop(tracing::subscriber::set_global_default(log));
            let result = runtime.block_on(run(link, work));
            // File operations that hang in the kernel must not keep the process alive.
            runtime.shutdown_background();
            stdout.flush();
            if !orphan_reaper::end_all() {
                tracing::error!("failed to end some tool processes");
            }
            log_end(&result);
            result
        }
        Err(error) => {
            let result = Err(ProcessError::from(error));
            let log = subscriber(&identity(Vec::new()), stdout.clone());
            tracing::subscriber::with_default(log, || log_end(&result));
            result
        }
    };
    stdout.flush();
    match ended {
        Ok(ProcessExit::Shutdown | ProcessExit::Finished) => EXIT_DONE,
        Ok(ProcessExit::Orphaned) => EXIT_ORPHANED,
        Err(_) => EXIT_FAULT,
    }
}

async fn run(link: OrchestratorLink, work: ProcessAssignment) -> Result<ProcessExit, ProcessError> {
    process::ignore_signals()?;
    match work {
        ProcessAssignment::Agent(assignment) => {
            process::run(link, *assignment, own_executable()).await
        }
        ProcessAssignment::Task(assignment) => {
            task::run(link, *assignment, &own_executable()).await
        }
    }
}

/// Executable of this process, even if its file has been replaced since.
fn own_executable() -> PathBuf {
    if cfg!(target_os = "linux") {
        PathBuf::from("/proc/self/exe")
    } else {
        std::env::current_exe().unwrap_or_else(|_| PathBuf::from("goondan-agent-process"))
    }
}

fn identity_fields(work: &ProcessAssignment) -> Vec<(&'static str, Value)> {
    match work {
        ProcessAssignment::Agent(assignment) => vec![
            ("workspace_id", json!(assignment.workspace_id)),
            ("agent_name", json!(assignment.agent.name)),
            ("instance_key", json!(assignment.instance_key)),
        ],
        ProcessAssignment::Task(assignment) => vec![
            ("workspace_id", json!(assignment.workspace_id)),
            ("agent_name", json!(assignment.agent.name)),
            ("task_id", json!(assignment.task_id)),
        ],
    }
}

fn subscriber(
    identity: &Identity,
    stdout: BufferedStdout,
) -> impl tracing::Subscriber + Send + Sync + use<> {
    let level = std::env::var(LEVEL_VAR).ok();
    let lines = JsonLines::new(identity, stdout).with_filter(level_filter(level.as_deref()));
    tracing_subscriber::registry().with(lines)
}

fn log_end(result: &Result<ProcessExit, ProcessError>) {
    match result {
        Ok(ProcessExit::Shutdown) => tracing::info!("agent process ended as requested"),
        Ok(ProcessExit::Finished) => tracing::info!("the program of the task has ended"),
        Ok(ProcessExit::Orphaned) => {
            tracing::warn!("orchestrator is gone; ended all tools, exiting");
        }
        Err(error) => tracing::error!(error = error_chain(error), "agent process failed"),
    }
}
