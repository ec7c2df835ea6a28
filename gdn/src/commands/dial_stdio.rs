//! `gdn daemon dial-stdio`: the end of `gdn --remote` on the daemon's machine. `ssh` starts it.
//!
//! It copies bytes between its stdin and stdout and the daemon's socket, and knows nothing about them.

use std::io::{self, Read as _};

use clap::Args;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;

use crate::client;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

/// Connect stdin and stdout to the daemon, for `gdn --remote` on another machine
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ssh desk gdn daemon dial-stdio        as `gdn --remote ssh://desk` does

It ends with its stdin, or with the daemon's connection.")]
pub(crate) struct DialStdioArgs {}

/// Size of a read, in bytes.
const CHUNK_BYTES: usize = 64 * 1024;

/// Maximum number of chunks that wait for the daemon.
const CHUNKS_MAX: usize = 4;

pub(crate) async fn run(context: &Context) -> Result<(), Failure> {
    let stream = client::open_socket(&context.state_root).await?;
    let (mut from_daemon, mut to_daemon) = tokio::io::split(stream);
    let mut chunks = read_stdin();
    let up = async {
        while let Some(chunk) = chunks.recv().await {
            to_daemon.write_all(&chunk?).await?;
            to_daemon.flush().await?;
        }
        io::Result::Ok(())
    };
    let down = async {
        let mut stdout = tokio::io::stdout();
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let len = from_daemon.read(&mut chunk).await?;
            if len == 0 {
                return io::Result::Ok(());
            }
            stdout
                .write_all(chunk.get(..len).unwrap_or_default())
                .await?;
            stdout.flush().await?;
        }
    };
    // A client that has ended needs no more answers.
    let copied = tokio::select! {
        copied = up => copied,
        copied = down => copied,
    };
    copied.map_err(|error| {
        Failure::new(
            Exit::ConnectionLost,
            "failed to copy between the client and the daemon",
            "check the daemon: `gdn daemon status`",
        )
        .caused_by(Some(&error))
    })
}

/// Reads stdin in a thread, which ends with the process, because a blocking read cannot be canceled.
fn read_stdin() -> mpsc::Receiver<io::Result<Vec<u8>>> {
    let (sender, receiver) = mpsc::channel(CHUNKS_MAX);
    std::thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        loop {
            let mut chunk = vec![0; CHUNK_BYTES];
            let read = match stdin.read(&mut chunk) {
                Ok(0) => return,
                Ok(len) => {
                    chunk.truncate(len);
                    Ok(chunk)
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
            let has_failed = read.is_err();
            if sender.blocking_send(read).is_err() || has_failed {
                return;
            }
        }
    });
    receiver
}
