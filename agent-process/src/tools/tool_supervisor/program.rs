//! Supervises a program that reads its standard input: a host of tool modules.

use std::ffi::OsString;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::process::Stdio;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::unistd::Pid;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe;
use tokio::process::Command;

use super::super::orphan_reaper;
use super::termination::{code_at_end, end_group};

/// Bytes forwarded per read.
const CHUNK_BYTES: usize = 16 * 1024;

/// Variable with the descriptors of a program's own channel: input, and output.
const CHANNEL_VAR: &str = "GOONDAN_HOST_CHANNEL";

/// Descriptors by which a program speaks with the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProgramChannel {
    /// Its standard input and output.
    StandardStreams,
    /// Two others. Its standard input is empty, and its standard output is standard error, because
    /// programs that it starts inherit both.
    Own,
}

/// Runs a program until it ends or this process's standard input closes.
pub(super) async fn supervise(
    program: &[OsString],
    channel: ProgramChannel,
) -> std::io::Result<u8> {
    let Some((program, arguments)) = program.split_first() else {
        return Err(std::io::ErrorKind::InvalidInput.into());
    };
    let control = std::io::stdin().as_fd().try_clone_to_owned()?;
    let mut control = pipe::Receiver::from_owned_fd(control)?;
    let (calls, input) = std::io::pipe()?;
    let calls = OwnedFd::from(calls);
    let mut command = Command::new(program);
    command.args(arguments).process_group(0);
    let own_descriptors = match channel {
        ProgramChannel::StandardStreams => {
            command.stdin(Stdio::from(calls));
            None
        }
        ProgramChannel::Own => {
            let answers = std::io::stdout().as_fd().try_clone_to_owned()?;
            let output = std::io::stderr().as_fd().try_clone_to_owned()?;
            for descriptor in [&calls, &answers] {
                fcntl(descriptor, FcntlArg::F_SETFD(FdFlag::empty()))?;
            }
            let numbers = format!("{} {}", calls.as_raw_fd(), answers.as_raw_fd());
            command
                .env(CHANNEL_VAR, numbers)
                .stdin(Stdio::null())
                .stdout(Stdio::from(output));
            Some((calls, answers))
        }
    };
    let mut child = command.spawn()?;
    // The command holds descriptors, too. Only the program's copies remain.
    drop((command, own_descriptors));
    let group = child.id();
    let mut input = Some(pipe::Sender::from_owned_fd(OwnedFd::from(input))?);
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
    input: &mut Option<pipe::Sender>,
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
