//! Connects to the daemon, and starts one if none runs.

use std::path::PathBuf;

use crate::client::Client;
use crate::context::Context;
use crate::daemon::{self, StartedDaemon};
use crate::failure::Failure;

/// Connects to the running daemon, or starts one and prints its log directory.
pub(super) async fn attach_or_start(
    context: &Context,
    is_strict: bool,
) -> Result<(Client, Option<PathBuf>), Failure> {
    // Only a person on the other machine starts its daemon.
    if context.remote().is_some() {
        return Ok((context.connect().await?, None));
    }
    if let Some(client) = daemon::attach(&context.state_root).await? {
        return Ok((client, None));
    }
    context.check_format()?;
    let StartedDaemon { client, log_dir } = daemon::start(&context.state_root, is_strict).await?;
    context.output.note(format!(
        "Started the daemon: pid {}, log in {}",
        client.daemon().pid,
        log_dir.display()
    ));
    Ok((client, Some(log_dir)))
}
