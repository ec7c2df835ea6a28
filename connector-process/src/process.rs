//! The life of the process: start, log, handshake, session, exit code.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use goondan_log::{BufferedStdout, Identity, JsonLines, LEVEL_VAR, error_chain, level_filter};
use goondan_protocol::ipc::IPC_FD_VAR;
use goondan_protocol::trace::TraceId;
use serde_json::{Value, json};
use tracing::Subscriber;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::command_line::{self, BINARY_NAME, ProcessMode};
use crate::egress::ProxySockets;
use crate::http;
use crate::link::{ConnectorRole, LinkError, OrchestratorSocket};
use crate::own_sandbox;
use crate::package_cache;
use crate::parent::die_with_parent;
use crate::relay::far::{self, RelaySettings};
use crate::sandboxed_program;
use crate::session;

/// Exit code: the orchestrator is gone or incompatible.
const EXIT_ORCHESTRATOR_LOST: u8 = 1;

/// Exit code: not started by the orchestrator, or started incorrectly.
const EXIT_MISUSED: u8 = 2;

/// Runs a connector process, from its command line to its exit code.
///
/// Exit codes: 0 when the orchestrator requested the stop, 1 when the orchestrator is gone or has
/// another version, 2 when the process was not started by an orchestrator.
#[must_use]
pub fn run() -> ExitCode {
    let ipc_fd = std::env::var_os(IPC_FD_VAR);
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match command_line::read(&arguments, ipc_fd.as_deref()) {
        ProcessMode::Serve => serve(),
        ProcessMode::Become(sandbox, command) => {
            sandboxed_program::become_program(sandbox.as_ref(), &command)
        }
        ProcessMode::Relay(file) => relay(&file),
        ProcessMode::Tell(text) => {
            drop(std::io::stdout().write_all(text.as_bytes()));
            ExitCode::SUCCESS
        }
        ProcessMode::Misused(text) => {
            drop(std::io::stderr().write_all(text.as_bytes()));
            ExitCode::from(EXIT_MISUSED)
        }
    }
}

/// Hides the secrets this process will receive from other processes of the same user: no debugger,
/// no `/proc/PID/mem`, and no core dump (`SEC-6`). Programs that it starts have their own memory.
/// macOS offers no way to do the first without `unsafe`.
fn hide_memory() {
    use nix::sys::resource::{Resource, setrlimit};
    // Best effort: the process also runs on systems that do not support it.
    setrlimit(Resource::RLIMIT_CORE, 0, 0).ok();
    #[cfg(target_os = "linux")]
    if std::env::var_os(goondan_protocol::secret::ALLOW_DEBUGGER_VAR).is_none() {
        nix::sys::prctl::set_dumpable(false).ok();
    }
}

fn serve() -> ExitCode {
    hide_memory();
    http::install_cryptography();
    let pid = std::process::id();
    let trace_id = TraceId::from_uuid(uuid::Uuid::now_v7());
    let nameless = Identity {
        process: "connector",
        pid,
        trace_id,
        fields: Vec::new(),
    };
    let stdout = BufferedStdout::of_this_thread();
    stdout.flush_at_panic();
    // Before the welcome, log lines cannot name the connection or model.
    let mut before_welcome = Some(tracing::subscriber::set_default(log(
        &nameless,
        stdout.clone(),
    )));

    let result = prepare(stdout.clone()).and_then(|runtime| {
        let result = runtime.block_on(async {
            let link = OrchestratorSocket::from_stdin().map_err(ProcessError::Link)?;
            let (mut role, incoming, outgoing) =
                link.shake_hands(pid).await.map_err(ProcessError::Link)?;
            drop(before_welcome.take());
            // Fails only if a subscriber is already set, and only this place sets one.
            let identity = Identity {
                fields: identity_fields(&role),
                ..nameless
            };
            drop(tracing::subscriber::set_global_default(log(
                &identity,
                stdout.clone(),
            )));
            // Sockets are created first, because a confined process cannot create socket files.
            let doors = ProxySockets::of(&role);
            if let ConnectorRole::Connection(assignment) = &mut role {
                package_cache::prepare(assignment);
            }
            let confined = own_sandbox::enter(&role).map_err(|error| {
                format!("failed to confine this process: {}", error_chain(&error))
            });
            session::run(role, confined, doors, incoming, outgoing)
                .await
                .map_err(ProcessError::Link)
        });
        // A pending name resolution must not delay the exit.
        runtime.shutdown_background();
        result
    });
    let code = match result {
        Ok(()) => {
            tracing::info!("stopped");
            ExitCode::SUCCESS
        }
        Err(error) => {
            tracing::error!(error = error_chain(&error), "the connector process ends");
            ExitCode::from(EXIT_ORCHESTRATOR_LOST)
        }
    };
    stdout.flush();
    code
}

/// Relays the connector that a file describes, until a signal.
fn relay(file: &Path) -> ExitCode {
    hide_memory();
    http::install_cryptography();
    let identity = Identity {
        process: "relay",
        pid: std::process::id(),
        trace_id: TraceId::from_uuid(uuid::Uuid::now_v7()),
        fields: Vec::new(),
    };
    let settings = match RelaySettings::read(file) {
        Ok(settings) => settings,
        Err(why) => {
            let text = format!("{BINARY_NAME}: {why}\n");
            drop(std::io::stderr().write_all(text.as_bytes()));
            return ExitCode::from(EXIT_MISUSED);
        }
    };
    let stdout = BufferedStdout::of_this_thread();
    stdout.flush_at_panic();
    // Fails only if a subscriber is already set, and only this place sets one.
    drop(tracing::subscriber::set_global_default(log(
        &identity,
        stdout.clone(),
    )));
    let result = runtime(stdout.clone()).and_then(|runtime| {
        let result = runtime.block_on(far::run(&settings));
        runtime.shutdown_background();
        result
    });
    let code = match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = error_chain(&error), "the relay failed to start");
            ExitCode::from(EXIT_ORCHESTRATOR_LOST)
        }
    };
    stdout.flush();
    code
}

#[derive(Debug, thiserror::Error)]
enum ProcessError {
    /// A basic system call failed.
    #[error("failed to set up the process")]
    Setup(#[source] std::io::Error),
    /// The orchestrator is gone or cannot be understood.
    #[error("cannot work without the orchestrator")]
    Link(#[source] LinkError),
}

/// Binds the process to its orchestrator and creates the runtime: one thread suffices for requests
/// that mostly wait.
fn prepare(stdout: BufferedStdout) -> Result<tokio::runtime::Runtime, ProcessError> {
    die_with_parent().map_err(ProcessError::Setup)?;
    leave_signals_to_the_orchestrator().map_err(ProcessError::Setup)?;
    take_signals().map_err(ProcessError::Setup)?;
    runtime(stdout).map_err(ProcessError::Setup)
}

fn runtime(stdout: BufferedStdout) -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .on_thread_park(move || stdout.flush())
        .build()
}

/// Unblocks all signals. The orchestrator starts processes from a thread that blocks them, and a
/// process inherits the mask of its parent, as would the programs of connectors. Must be called
/// before another thread exists.
fn take_signals() -> std::io::Result<()> {
    nix::sys::signal::SigSet::empty()
        .thread_set_mask()
        .map_err(Into::into)
}

/// Ignores signals that a terminal's Ctrl-C sends to the whole process group, because the
/// orchestrator decides when its children stop. Handlers are used, which programs do not inherit.
fn leave_signals_to_the_orchestrator() -> std::io::Result<()> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    Ok(())
}

fn log(identity: &Identity, stdout: BufferedStdout) -> impl Subscriber + Send + Sync + use<> {
    let level = std::env::var(LEVEL_VAR).ok();
    // The model library logs provider answers with keys and conversations. The errors of calls
    // report the relevant parts.
    let is_own = filter_fn(|metadata| !metadata.target().starts_with("genai"));
    tracing_subscriber::registry()
        .with(level_filter(level.as_deref()))
        .with(is_own)
        .with(JsonLines::new(identity, stdout))
}

fn identity_fields(role: &ConnectorRole) -> Vec<(&'static str, Value)> {
    let (workspace_id, kind, name) = match role {
        ConnectorRole::Connection(assignment) => (
            &assignment.workspace_id,
            "connection",
            assignment.connection.as_str(),
        ),
        ConnectorRole::Model(assignment) => (
            &assignment.workspace_id,
            "model",
            assignment.model.name.as_str(),
        ),
    };
    vec![("workspace_id", json!(workspace_id)), (kind, json!(name))]
}
