//! Starts child processes from a thread with few file descriptors.
//!
//! A new process starts with a copy of all its parent's descriptors and closes them on `exec`. A
//! daemon with thousands of children has tens of thousands of descriptors, and each start would
//! iterate over all of them twice. On Linux, a thread can have its own descriptor table: the
//! launcher thread creates one while few descriptors are open, and sends the daemon its ends of new
//! sockets and pipes. On other systems it shares the daemon's table, without this optimization.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use goondan_protocol::ipc::{ChildRole, IPC_FD_VAR, PASSED_TO_CHILDREN};
use goondan_protocol::working_directory::{ProcessPurpose, working_directory};

use super::programs::{ProgramMissing, Programs};

pub(super) struct LaunchedChild {
    pub(super) child: Child,
    /// The daemon's end of the socket that is the child's stdin.
    pub(super) socket: OwnedFd,
    /// Output pipe of the child's stdout and stderr.
    pub(super) output: OwnedFd,
}

/// The thread that starts children. It runs as long as the daemon, because the children's
/// parent-death signals are bound to it.
pub(super) struct Launcher {
    programs: Programs,
    way: Mutex<LauncherChannel>,
}

/// Channels to the thread. Starts are serialized.
struct LauncherChannel {
    asked: Sender<PathBuf>,
    started: Receiver<io::Result<LaunchReply>>,
    #[cfg(target_os = "linux")]
    descriptors: UnixStream,
}

/// The thread's direct response. With two descriptor tables, descriptors are sent over a socket
/// instead.
struct LaunchReply {
    child: Child,
    #[cfg(not(target_os = "linux"))]
    ends: [OwnedFd; 2],
}

impl Launcher {
    /// Starts the thread. Must be called before files and sockets are opened, because the thread
    /// keeps all descriptors open at this point.
    ///
    /// # Errors
    ///
    /// The operating system's error if the thread or socket cannot be created.
    pub(super) fn begin(programs: Programs) -> io::Result<Self> {
        let (ask, asked) = channel::<PathBuf>();
        let (answer, started) = channel();
        #[cfg(target_os = "linux")]
        let (descriptors, theirs) = UnixStream::pair()?;
        let serve = move || {
            #[cfg(target_os = "linux")]
            let theirs = block_signals().and_then(|()| own_table()).map(|()| theirs);
            for program in asked {
                let launched = launch(program);
                #[cfg(target_os = "linux")]
                let launched = hand_over(launched, &theirs);
                #[cfg(not(target_os = "linux"))]
                let launched = launched.map(|(child, ends)| LaunchReply { child, ends });
                if answer.send(launched).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new()
            .name("launcher".to_owned())
            .spawn(serve)?;
        let way = Mutex::new(LauncherChannel {
            asked: ask,
            started,
            #[cfg(target_os = "linux")]
            descriptors,
        });
        Ok(Self { programs, way })
    }

    pub(super) fn agent_process(&self) -> &Path {
        self.programs.agent()
    }

    /// The reason that no connector process can be started, if any.
    pub(super) fn missing(&self) -> Option<&ProgramMissing> {
        self.programs.missing()
    }

    /// Starts a child in a separate process group, with the passed-on environment variables.
    ///
    /// # Errors
    ///
    /// The operating system's error; `NotFound` if its binary is missing.
    pub(super) fn launch(&self, role: ChildRole) -> io::Result<LaunchedChild> {
        self.launch_program(self.programs.of(role)?.to_owned())
    }

    /// Starts any program in the same way.
    ///
    /// # Errors
    ///
    /// The operating system's error.
    pub(super) fn launch_program(&self, program: PathBuf) -> io::Result<LaunchedChild> {
        let gone = || io::Error::other("the thread that starts processes has ended");
        let way = self.way.lock().unwrap_or_else(PoisonError::into_inner);
        way.asked.send(program).map_err(|_| gone())?;
        let handed = way.started.recv().map_err(|_| gone())??;
        #[cfg(target_os = "linux")]
        let (mut child, ends) = (handed.child, take_over(&way.descriptors));
        #[cfg(not(target_os = "linux"))]
        let (mut child, ends) = (handed.child, io::Result::Ok(handed.ends));
        match ends {
            Ok([socket, output]) => Ok(LaunchedChild {
                child,
                socket,
                output,
            }),
            Err(error) => {
                // A process without a socket is useless.
                child.kill().ok();
                child.wait().ok();
                Err(error)
            }
        }
    }
}

/// The environment variables passed to children.
pub(super) fn passed_on() -> BTreeMap<&'static str, OsString> {
    PASSED_TO_CHILDREN
        .into_iter()
        .filter_map(|name| Some((name, std::env::var_os(name)?)))
        .collect()
}

/// Blocks all signals in this thread. A handler writes to a descriptor that usually does not exist
/// in this thread's table, so a SIGTERM handled here would be lost and the daemon would continue
/// (`SUP-6`). Children start with all signals blocked and unblock them first.
#[cfg(target_os = "linux")]
fn block_signals() -> io::Result<()> {
    Ok(nix::sys::signal::SigSet::all().thread_block()?)
}

/// Gives the calling thread its own descriptor table, a copy of the process's current one.
#[cfg(target_os = "linux")]
fn own_table() -> io::Result<()> {
    use nix::sched::{CloneFlags, unshare};
    Ok(unshare(CloneFlags::CLONE_FILES)?)
}

/// Starts a program. Returns the process and the daemon's ends of its socket and output pipe.
fn launch(program: PathBuf) -> io::Result<(Child, [OwnedFd; 2])> {
    let (ours, theirs) = UnixStream::pair()?;
    // One pipe for both streams, to save descriptors with thousands of children.
    let (output, their_output) = io::pipe()?;
    let child = Command::new(program)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(their_output.try_clone()?)
        .stderr(their_output)
        .process_group(0)
        .env_clear()
        .envs(passed_on())
        .env(IPC_FD_VAR, "0")
        .current_dir(working_directory(ProcessPurpose::Own))
        .spawn()?;
    Ok((child, [ours.into(), output.into()]))
}

/// Sends the daemon its ends and closes them in this thread's table.
#[cfg(target_os = "linux")]
fn hand_over(
    launched: io::Result<(Child, [OwnedFd; 2])>,
    way: &io::Result<UnixStream>,
) -> io::Result<LaunchReply> {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    use std::os::fd::AsFd as _;

    let (mut child, ends) = launched?;
    let sent = || -> io::Result<()> {
        let way = way
            .as_ref()
            .map_err(|error| io::Error::new(error.kind(), error.to_string()))?;
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        let fds = [ends[0].as_fd(), ends[1].as_fd()];
        if !rights.push(SendAncillaryMessage::ScmRights(&fds)) {
            return Err(io::Error::other("no free file descriptors"));
        }
        let byte = [io::IoSlice::new(&[0])];
        sendmsg(way, &byte, &mut rights, SendFlags::NOSIGNAL)?;
        Ok(())
    };
    match sent() {
        Ok(()) => Ok(LaunchReply { child }),
        Err(error) => {
            child.kill().ok();
            child.wait().ok();
            Err(error)
        }
    }
}

/// Receives the daemon's ends of a child's socket and pipe.
#[cfg(target_os = "linux")]
fn take_over(way: &UnixStream) -> io::Result<[OwnedFd; 2]> {
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(
        way,
        &mut [io::IoSliceMut::new(&mut byte)],
        &mut rights,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let ends: Vec<OwnedFd> = rights
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        })
        .flatten()
        .collect();
    // If the daemon's descriptor limit is reached, the kernel delivers fewer.
    <[OwnedFd; 2]>::try_from(ends).map_err(|_| io::Error::from_raw_os_error(nix::libc::EMFILE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    fn launcher() -> Launcher {
        Launcher::begin(Programs::nowhere()).unwrap()
    }

    #[test]
    fn child_inherits_only_its_socket_and_output_descriptors() {
        let launcher = launcher();
        // Open when the child starts, but not in the launcher thread's table.
        let files: Vec<_> = (0..100)
            .map(|_| std::fs::File::open("/").unwrap())
            .collect();
        let mut launched = launcher.launch_program("/bin/ls".into()).unwrap();
        let status = launched.child.wait().unwrap();
        let mut output = String::new();
        std::fs::File::from(launched.output)
            .read_to_string(&mut output)
            .unwrap();
        assert!(status.success() && !output.is_empty(), "{output}");
        let mut socket = UnixStream::from(launched.socket);
        assert_eq!(socket.read(&mut [0; 8]).unwrap(), 0, "its end is closed");
        drop(files);
    }

    /// A signal handled by this thread would be lost.
    #[test]
    #[cfg(target_os = "linux")]
    fn sup_6_the_thread_leaves_all_signals_to_the_others() {
        let launcher = launcher();
        // The child inherits the thread's signal mask.
        let mut launched = launcher.launch_program("/bin/cat".into()).unwrap();
        let status = format!("/proc/{}/status", launched.child.id());
        let status = std::fs::read_to_string(status).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
        let mask = u64::from_str_radix(mask.unwrap().trim(), 16).unwrap();
        use nix::libc::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
        for signal in [SIGTERM, SIGINT, SIGHUP, SIGCHLD] {
            assert_ne!(mask & 1 << (signal - 1), 0, "signal {signal} of {mask:x}");
        }
        drop(launched.socket);
        launched.child.wait().unwrap();
    }

    #[test]
    fn failed_program_start_is_reported_and_the_next_succeeds() {
        let launcher = launcher();
        for _ in 0..3 {
            let error = launcher
                .launch_program("/no/such/program".into())
                .err()
                .unwrap();
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
        }
        assert!(
            launcher
                .launch_program("/bin/true".into())
                .unwrap()
                .child
                .wait()
                .unwrap()
                .success()
        );
    }
}
