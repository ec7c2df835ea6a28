//! Supervises a program that reads its standard input: a host of tool modules.

use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::process::Stdio;

use nix::unistd::Pid;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe;
use tokio::process::{ChildStdin, Command};

use super::super::orphan_reaper;
use super::termination::{code_at_end, end_group};

/// Bytes forwarded per read.
const CHUNK_BYTES: usize = 16 * 1024;

/// Runs a program until it ends or this process's standard input closes.
pub(super) async fn supervise(program: &[OsString]) -> std::io::Result<u8> {
    let Some((program, arguments)) = program.split_first() else {
        return Err(std::io::ErrorKind::InvalidInput.into());
    };
    let control = std::io::stdin().as_fd().try_clone_to_owned()?;
    let mut control = pipe::Receiver::from_owned_fd(control)?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let group = child.id();
    let mut input = child.stdin.take();
    let status = tokio::select! {
        status = child.wait() => Some(status?),
        () = pass_on(&mut control, &mut input, group) => None,
    };
    end_group(group);
    Ok(code_at_end(status))
}

/// Forwards input until its end. Input for a program that has closed its own is discarded.
async fn pass_on(
    control: &mut pipe::Receiver,
    input: &mut Option<ChildStdin>,
    program: Option<u32>,
) {
    let program = program
        .and_then(|pid| i32::try_from(pid).ok())
        .map(Pid::from_raw);
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let count = control.read(&mut chunk).await.unwrap_or(0);
        let Some(read) = chunk.get(..count).filter(|read| !read.is_empty()) else {
            return;
        };
        // Reap orphans, because a long-lived program would accumulate zombies.
        orphan_reaper::reap_all_but(program);
        if let Some(open) = input
            && open.write_all(read).await.is_err()
        {
            *input = None;
        }
    }
}
