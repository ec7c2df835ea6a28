//! `gdn daemon shutdown`.

use clap::Args;
use std::path::Path;
use std::time::{Duration, Instant};

use goondan_protocol::control::Stop;
use goondan_protocol::limits::DEFAULT_GRACE_PERIOD_MS;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use super::drain_progress::while_draining;
use crate::client::{CallError, Client, ConnectError, DaemonConnection, RemoteProblem};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::schemas;

/// Stop the daemon and every process, and wait until they have exited
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn daemon shutdown                           after the turns in progress
  gdn daemon shutdown --grace 5          give them 5 seconds

Accepted events without an answer are answered after the next `gdn run`.")]
pub(crate) struct ShutdownArgs {
    /// Grace period for turns in progress [default: each swarm's own]
    #[arg(long, value_name = "SECONDS")]
    grace: Option<u64>,
}

/// Time that a daemon may need beyond the grace period, in milliseconds: to kill processes, write its state and exit.
const MARGIN_MS: u64 = 30_000;

/// Polling interval for the end of the process, in milliseconds.
const POLL_MS: u64 = 25;

pub(crate) async fn run(args: &ShutdownArgs, context: &Context) -> Result<(), Failure> {
    let output = context.output;
    let client = match Client::reach(&context.endpoint).await {
        Ok(DaemonConnection::Same(client)) => client,
        Ok(DaemonConnection::Other(other)) => other.client,
        // Not an error, because no daemon runs.
        Err(error) if is_not_running(&error) => {
            output.object(schemas::SHUTDOWN, &json!({ "pid": null }))?;
            return output.data("No daemon runs.");
        }
        Err(ConnectError::NotListening { pid: Some(pid), .. }) => {
            output.note("The daemon does not listen on its socket. Stopping it with a signal, after the turns in progress …");
            stop_by_signal(pid, args.grace, context).await?;
            output.object(schemas::SHUTDOWN, &json!({ "pid": pid }))?;
            return output.data(format!("Stopped the daemon, pid {pid}"));
        }
        Err(error) => return Err(error.into()),
    };
    let pid = client.daemon().pid;
    output.note("Stopping, after the turns in progress …");
    stop(
        client,
        args.grace.map(|seconds| seconds.saturating_mul(1000)),
        context,
    )
    .await?;
    output.object(schemas::SHUTDOWN, &json!({ "pid": pid }))?;
    output.data(format!("Stopped the daemon, pid {pid}"))
}

fn is_not_running(error: &ConnectError) -> bool {
    match error {
        ConnectError::NotRunning { .. } => true,
        ConnectError::Remote {
            problem: RemoteProblem::Refused { code, .. },
            ..
        } => code == Exit::DaemonNotRunning.name(),
        _ => false,
    }
}

/// Stops a daemon that cannot be reached over its socket, with SIGTERM. A second SIGTERM after the grace period ends
/// the wait for turns.
async fn stop_by_signal(pid: u32, grace: Option<u64>, context: &Context) -> Result<(), Failure> {
    let grace_ms = grace.map_or(DEFAULT_GRACE_PERIOD_MS, |seconds| {
        seconds.saturating_mul(1000)
    });
    terminate(pid)?;
    if is_gone_by(pid, Instant::now() + Duration::from_millis(grace_ms)).await {
        return Ok(());
    }
    terminate(pid)?;
    if is_gone_by(pid, Instant::now() + Duration::from_millis(MARGIN_MS)).await {
        return Ok(());
    }
    Err(still_there(
        pid,
        grace_ms.saturating_add(MARGIN_MS),
        context,
    ))
}

/// Sends SIGTERM. A process that has already exited is not an error.
fn terminate(pid: u32) -> Result<(), Failure> {
    let raw = i32::try_from(pid).map_err(|_| Errno::ESRCH);
    match raw.and_then(|raw| kill(Pid::from_raw(raw), Signal::SIGTERM)) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(error) => Err(Failure::new(
            Exit::Internal,
            format!("cannot signal the daemon, pid {pid}: {error}"),
            format!("check the owner of the process: `ps -o user,pid,args -p {pid}`"),
        )),
    }
}

fn still_there(pid: u32, limit_ms: u64, context: &Context) -> Failure {
    Failure::new(
        Exit::TimedOut,
        format!(
            "the daemon, pid {pid}, did not end within {} s",
            limit_ms / 1000
        ),
        format!(
            "check its processes: `{}`; or kill it: `kill -9 {pid}`",
            context.daemon_command("ps --all")
        ),
    )
}

/// Stops the daemon and waits until its socket is closed and its process has exited.
pub(super) async fn stop(
    mut client: Client,
    grace_period_ms: Option<u64>,
    context: &Context,
) -> Result<(), Failure> {
    let pid = client.daemon().pid;
    let stopping = client.change(Stop { grace_period_ms });
    match while_draining(context, None, stopping).await {
        // A daemon that is already stopping, or that exits before it replies, is not an error.
        Ok(_) | Err(CallError::Lost { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let limit_ms = grace_period_ms
        .unwrap_or(DEFAULT_GRACE_PERIOD_MS)
        .saturating_add(MARGIN_MS);
    let deadline = Instant::now() + Duration::from_millis(limit_ms);
    let still_there = || still_there(pid, limit_ms, context);
    let closed = tokio::time::timeout(Duration::from_millis(limit_ms), client.closed()).await;
    closed.map_err(|_elapsed| still_there())?;
    // The process id of another machine means nothing here; its closed socket is the sign of its end.
    if context.remote().is_some() || is_gone_by(pid, deadline).await {
        Ok(())
    } else {
        Err(still_there())
    }
}

/// Waits for a stopping daemon, up to its time limit. True if it exited.
pub(super) async fn is_gone_in_time(pid: u32, grace_period_ms: Option<u64>) -> bool {
    let limit_ms = grace_period_ms.unwrap_or(DEFAULT_GRACE_PERIOD_MS);
    let limit = Duration::from_millis(limit_ms.saturating_add(MARGIN_MS));
    is_gone_by(pid, Instant::now() + limit).await
}

async fn is_gone_by(pid: u32, deadline: Instant) -> bool {
    while is_alive(pid) {
        if Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(POLL_MS)).await;
    }
    true
}

/// True if the process runs. A zombie does not count.
pub(super) fn is_alive(pid: u32) -> bool {
    let Ok(raw) = i32::try_from(pid) else {
        return false;
    };
    kill(Pid::from_raw(raw), None) != Err(Errno::ESRCH) && !is_zombie(pid)
}

/// Reads the state from `/proc` on Linux; false on other systems.
fn is_zombie(pid: u32) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
    // The state follows the command name in parentheses, which may contain any character.
    stat.is_ok_and(|stat| {
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with('Z'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_gone_once_it_has_ended() {
        assert!(is_alive(std::process::id()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        // The child becomes a zombie first, because it is not reaped.
        let deadline = Instant::now() + Duration::from_secs(20);
        while is_alive(pid) && cfg!(target_os = "linux") {
            assert!(Instant::now() < deadline, "still alive");
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(!is_alive(pid));
    }
}
