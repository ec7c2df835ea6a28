//! The life of the process: start, log, handshake, session, exit code.

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use goondan_log::{BufferedStdout, Identity, JsonLines, LEVEL_VAR, error_chain, level_filter};
use goondan_protocol::ipc::IPC_FD_VAR;
use goondan_protocol::trace::TraceId;
use serde_json::json;
use tracing::Subscriber;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::command_line::{self, ReplicaMode};
use crate::link::{DaemonSocket, LinkError};
use crate::parent::die_with_parent;
use crate::session;
use crate::settings::{PostgresSettings, SettingsFault};

/// Exit code: cannot work with the daemon or its settings.
const EXIT_CANNOT_WORK: u8 = 1;

/// Exit code: not started by the daemon.
const EXIT_MISUSED: u8 = 2;

/// Runs the program and returns its exit code.
///
/// Exit codes: 0 if the daemon closed the socket; 1 if its version differs, its messages are
/// invalid, or it names no server; 2 if the process was not started by a daemon.
#[must_use]
pub fn run() -> ExitCode {
    let ipc_fd = std::env::var_os(IPC_FD_VAR);
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match command_line::read(&arguments, ipc_fd.as_deref()) {
        ReplicaMode::Serve => serve(),
        ReplicaMode::Tell(text) => {
            drop(std::io::stdout().write_all(text.as_bytes()));
            ExitCode::SUCCESS
        }
        ReplicaMode::Misused(text) => {
            drop(std::io::stderr().write_all(text.as_bytes()));
            ExitCode::from(EXIT_MISUSED)
        }
    }
}

fn serve() -> ExitCode {
    hide_memory();
    let pid = std::process::id();
    let identity = Identity {
        process: "replica",
        pid,
        trace_id: TraceId::from_uuid(uuid::Uuid::now_v7()),
        fields: Vec::new(),
    };
    let stdout = BufferedStdout::of_this_thread();
    stdout.flush_at_panic();
    // Before the welcome, log lines cannot contain the node's name.
    let mut before_welcome = Some(tracing::subscriber::set_default(log(
        &identity,
        stdout.clone(),
    )));
    let result = prepare(stdout.clone()).and_then(|runtime| {
        let result = runtime.block_on(async {
            let link = DaemonSocket::from_stdin().map_err(ProcessError::Link)?;
            let greeted = link.greet().await.map_err(ProcessError::Link)?;
            let Some((welcome, incoming, outgoing)) = greeted else {
                return Ok(());
            };
            drop(before_welcome.take());
            let identity = Identity {
                fields: vec![("node", json!(welcome.node.as_str()))],
                ..identity
            };
            // Fails only if a subscriber was set already, and no other code sets one.
            drop(tracing::subscriber::set_global_default(log(
                &identity,
                stdout.clone(),
            )));
            let settings = PostgresSettings::read(welcome.server.expose(), &welcome.node);
            let settings = settings.map_err(ProcessError::Settings)?;
            let served = session::run(settings, welcome.node.clone(), incoming, outgoing).await;
            served.map_err(ProcessError::Link)
        });
        // A pending host name lookup must not delay the exit.
        runtime.shutdown_background();
        result
    });
    let code = match result {
        Ok(()) => {
            tracing::info!("stopped");
            ExitCode::SUCCESS
        }
        Err(error) => {
            tracing::error!(error = error_chain(&error), "replica process ends");
            ExitCode::from(EXIT_CANNOT_WORK)
        }
    };
    stdout.flush();
    code
}

#[derive(Debug, thiserror::Error)]
enum ProcessError {
    /// A system call that should always succeed failed.
    #[error("failed to set up the process")]
    Setup(#[source] std::io::Error),
    /// The connection to the daemon failed.
    #[error("failed to communicate with the orchestrator")]
    Link(#[source] LinkError),
    #[error("invalid URL of the log's server")]
    Settings(#[source] SettingsFault),
}

/// Protects the password from other processes of the same user: no debugger, no `/proc/PID/mem`,
/// and no core dump (`SEC-6`).
fn hide_memory() {
    use nix::sys::resource::{Resource, setrlimit};
    // Unsupported protections are skipped, because there is no alternative.
    setrlimit(Resource::RLIMIT_CORE, 0, 0).ok();
    #[cfg(target_os = "linux")]
    if std::env::var_os(goondan_protocol::secret::ALLOW_DEBUGGER_VAR).is_none() {
        nix::sys::prctl::set_dumpable(false).ok();
    }
}

/// Binds the process to its daemon and creates the runtime, with a single thread because it mostly
/// waits.
fn prepare(stdout: BufferedStdout) -> Result<tokio::runtime::Runtime, ProcessError> {
    die_with_parent().map_err(ProcessError::Setup)?;
    leave_signals_to_the_daemon().map_err(ProcessError::Setup)?;
    nix::sys::signal::SigSet::empty()
        .thread_set_mask()
        .map_err(|error| ProcessError::Setup(error.into()))?;
    tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .on_thread_park(move || stdout.flush())
        .build()
        .map_err(ProcessError::Setup)
}

/// Ctrl-C in a terminal reaches the whole process group, but the daemon still has to append
/// batches. It ends its children by closing their sockets.
fn leave_signals_to_the_daemon() -> std::io::Result<()> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    Ok(())
}

fn log(identity: &Identity, stdout: BufferedStdout) -> impl Subscriber + Send + Sync + use<> {
    let level = std::env::var(LEVEL_VAR).ok();
    // Libraries may log data sent to a server. Relevant problems are reported as errors.
    let is_own = filter_fn(|metadata| metadata.target().starts_with("goondan"));
    tracing_subscriber::registry()
        .with(level_filter(level.as_deref()))
        .with(is_own)
        .with(JsonLines::new(identity, stdout))
}
