//! Starts child processes from a thread with few file descriptors.
//!
//! A new process begins with a copy of all descriptors of whoever starts it, and closes them when it runs
//! its program. A daemon with thousands of children has tens of thousands, and each start would go through
//! all of them twice. On Linux a thread can have a table of descriptors of its own: the one that starts
//! children takes its own while hardly any are open, and hands the daemon its ends of what it makes.
//! Elsewhere it shares the daemon's table, and all is as it would be without.

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
use goondan_protocol::working_directory::{Purpose, working_directory};

use super::programs::{ProgramMissing, Programs};

/// A child that was started.
pub(super) struct Launched {
    pub(super) child: Child,
    /// The daemon's end of the socket that is the child's stdin.
    pub(super) socket: OwnedFd,
    /// What the child writes to stdout and stderr.
    pub(super) output: OwnedFd,
}

/// The thread that starts children. It lives as long as the daemon: parent-death signals of children are
/// bound to it.
pub(super) struct Launcher {
    programs: Programs,
    way: Mutex<Way>,
}

/// The way to the thread: one start at a time.
struct Way {
    asked: Sender<PathBuf>,
    started: Receiver<io::Result<Handed>>,
    #[cfg(target_os = "linux")]
    descriptors: UnixStream,
}

/// What the thread hands over directly: descriptors have another way, where the tables are two.
struct Handed {
    child: Child,
    #[cfg(not(target_os = "linux"))]
    ends: [OwnedFd; 2],
}

impl Launcher {
    /// Starts the thread. To be called before files and sockets are opened: it keeps those that are open
    /// now for as long as it lives.
    ///
    /// # Errors
    ///
    /// As the operating system says when there can be no thread or no socket.
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
                let launched = launched.map(|(child, ends)| Handed { child, ends });
                if answer.send(launched).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new()
            .name("launcher".to_owned())
            .spawn(serve)?;
        let way = Mutex::new(Way {
            asked: ask,
            started,
            #[cfg(target_os = "linux")]
            descriptors,
        });
        Ok(Self { programs, way })
    }

    /// The binary of agents.
    pub(super) fn agent_process(&self) -> &Path {
        self.programs.agent()
    }

    /// Why no connector process can be started, if none can.
    pub(super) fn missing(&self) -> Option<&ProgramMissing> {
        self.programs.missing()
    }

    /// Starts a child in a process group of its own, with what it gets of the daemon's environment.
    ///
    /// # Errors
    ///
    /// As the operating system says when it cannot be started; `NotFound` if its binary is missing.
    pub(super) fn launch(&self, role: ChildRole) -> io::Result<Launched> {
        self.launch_program(self.programs.of(role)?.to_owned())
    }

    /// Starts any program in the same way.
    ///
    /// # Errors
    ///
    /// As the operating system says when it cannot be started.
    pub(super) fn launch_program(&self, program: PathBuf) -> io::Result<Launched> {
        let gone = || io::Error::other("the thread that starts processes is gone");
        let way = self.way.lock().unwrap_or_else(PoisonError::into_inner);
        way.asked.send(program).map_err(|_| gone())?;
        let handed = way.started.recv().map_err(|_| gone())??;
        #[cfg(target_os = "linux")]
        let (mut child, ends) = (handed.child, take_over(&way.descriptors));
        #[cfg(not(target_os = "linux"))]
        let (mut child, ends) = (handed.child, io::Result::Ok(handed.ends));
        match ends {
            Ok([socket, output]) => Ok(Launched {
                child,
                socket,
                output,
            }),
            Err(error) => {
                // Nobody could talk to it.
                child.kill().ok();
                child.wait().ok();
                Err(error)
            }
        }
    }
}

/// What a child gets of the daemon's environment.
pub(super) fn passed_on() -> BTreeMap<&'static str, OsString> {
    PASSED_TO_CHILDREN
        .into_iter()
        .filter_map(|name| Some((name, std::env::var_os(name)?)))
        .collect()
}

/// Leaves all signals to the other threads. A handler writes to a descriptor that hardly ever is in this thread's
/// table: a SIGTERM handled here would be lost, and the daemon would go on (`SUP-6`). Children begin with all
/// signals blocked, and unblock them first of all.
#[cfg(target_os = "linux")]
fn block_signals() -> io::Result<()> {
    Ok(nix::sys::signal::SigSet::all().thread_block()?)
}

/// Gives the calling thread a table of descriptors of its own, a copy of the process' as it is now.
#[cfg(target_os = "linux")]
fn own_table() -> io::Result<()> {
    use nix::sched::{CloneFlags, unshare};
    Ok(unshare(CloneFlags::CLONE_FILES)?)
}

/// Starts a program. Gives the process, and the daemon's ends of its socket and its output.
fn launch(program: PathBuf) -> io::Result<(Child, [OwnedFd; 2])> {
    let (ours, theirs) = UnixStream::pair()?;
    // One pipe for all it writes: there may be thousands of children, and each descriptor counts.
    let (output, their_output) = io::pipe()?;
    let child = Command::new(program)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(their_output.try_clone()?)
        .stderr(their_output)
        .process_group(0)
        .env_clear()
        .envs(passed_on())
        .env(IPC_FD_VAR, "0")
        .current_dir(working_directory(Purpose::Own))
        .spawn()?;
    Ok((child, [ours.into(), output.into()]))
}

/// Sends the daemon its ends; those of this thread's table are closed.
#[cfg(target_os = "linux")]
fn hand_over(
    launched: io::Result<(Child, [OwnedFd; 2])>,
    way: &io::Result<UnixStream>,
) -> io::Result<Handed> {
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
            return Err(io::Error::other("no room for two descriptors"));
        }
        let byte = [io::IoSlice::new(&[0])];
        sendmsg(way, &byte, &mut rights, SendFlags::NOSIGNAL)?;
        Ok(())
    };
    match sent() {
        Ok(()) => Ok(Handed { child }),
        Err(error) => {
            child.kill().ok();
            child.wait().ok();
            Err(error)
        }
    }
}

/// Receives the daemon's ends of what a child was started with.
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
    // Where the daemon may have no more descriptors, the kernel delivers fewer.
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
    fn a_child_has_its_socket_and_its_output_and_no_other_descriptor() {
        let launcher = launcher();
        // They are open when the child starts, and not in the table it begins with.
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

    /// A signal that this thread handled would be lost.
    #[test]
    #[cfg(target_os = "linux")]
    fn sup_6_the_thread_leaves_all_signals_to_the_others() {
        let launcher = launcher();
        // What it starts begins with its mask.
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
    fn what_cannot_be_started_is_said_and_the_next_can() {
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
