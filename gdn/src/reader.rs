//! The reader of stdout: the end of a pipe, or a terminal.

use std::future::pending;
use std::io::{Error, stdout};
use std::os::fd::AsFd as _;

use nix::errno::Errno;
use nix::sys::stat::{SFlag, fstat};
use tokio::io::Interest;
use tokio::net::unix::pipe::Sender;

/// Waits until the reader of stdout is gone: the other end of a pipe, or a terminal, was closed. Never returns if stdout
/// is something else, or the system does not report it.
pub(crate) async fn gone() {
    // It is never written to, so it may stay in blocking mode.
    let watch = || Sender::from_owned_fd_unchecked(stdout().as_fd().try_clone_to_owned()?);
    // A regular file cannot be watched, and is never closed by its reader.
    let Ok(stdout) = watch() else {
        return pending().await;
    };
    if stdout.ready(Interest::ERROR).await.is_err() {
        pending::<()>().await;
    }
}

/// True if a write error on stdout means that the reader is gone. A closed terminal reports EIO, like a bad disk.
pub(crate) fn is_gone(error: &Error) -> bool {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EPIPE) => true,
        Some(Errno::EIO) => fstat(stdout())
            .is_ok_and(|stat| SFlag::from_bits_truncate(stat.st_mode).contains(SFlag::S_IFCHR)),
        _ => error.kind() == std::io::ErrorKind::BrokenPipe,
    }
}
