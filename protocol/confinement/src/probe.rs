//! Probes the rights that the running kernel can enforce.

use std::fs::File;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetError, Scope,
};
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};

use crate::namespace_probe::probe_namespaces;
use crate::system_calls::{self, Caller};
use goondan_protocol::sandbox::Network;
use goondan_protocol::sandbox::{Facts, Level, Right};
use goondan_protocol::working_directory::{ProcessPurpose, working_directory};

/// Rights of all levels that the kernel can enforce. `agent_process` is the program that calls
/// [`try_as_asked`](crate::try_as_asked) with its arguments.
#[must_use]
pub fn probe_all(agent_process: &Path) -> Facts {
    let mut held = probe();
    held.extend(probe_namespaces(|| {
        let mut command = Command::new(agent_process);
        command.current_dir(working_directory(ProcessPurpose::Own));
        command
    }));
    held
}

/// Tests each right on a short-lived thread. A right that cannot be tested counts as missing.
///
/// Starts the running program with `--version` as a process that confined threads must not reach.
#[must_use]
pub fn probe() -> Facts {
    let tries: [(Right, fn() -> bool); 4] = [
        (Right::Files, files),
        (Right::Signals, signals),
        (Right::AbstractSockets, abstract_sockets),
        (Right::SystemCalls, system_calls),
    ];
    tries
        .into_iter()
        .filter(|(_, holds)| holds())
        .map(|(right, _)| right)
        .collect()
}

/// Tests `openat2`, which file tools, sandboxes and proposals need to open paths without following
/// links out of a directory. A service manager or a container can disable it.
///
/// # Errors
///
/// The kernel's error: [`io::ErrorKind::Unsupported`] (`ENOSYS`) if it is disabled.
pub fn open_beneath() -> io::Result<()> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = open("/", flags, Mode::empty())?;
    openat2(root, ".", flags, Mode::empty(), resolve)?;
    Ok(())
}

/// True if `is_refused` is true on a restricted thread and false on an unrestricted one.
fn changes(restrict: fn() -> bool, is_refused: impl Fn() -> bool + Sync) -> bool {
    !is_refused()
        && thread::scope(|scope| {
            scope
                .spawn(|| restrict() && is_refused())
                .join()
                .unwrap_or(false)
        })
}

fn files() -> bool {
    let restrict = || {
        let rules = || -> Result<_, RulesetError> {
            hard()
                .handle_access(AccessFs::from_all(ABI::V5))?
                .create()?
                .restrict_self()
        };
        rules().is_ok()
    };
    changes(restrict, || File::open("/").is_err())
}

fn signals() -> bool {
    // The child may have ended, but it can be signaled until it is reaped.
    let Ok(mut child) = Command::new("/proc/self/exe")
        .arg("--version")
        .current_dir(working_directory(ProcessPurpose::Own))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
    else {
        return false;
    };
    let holds = i32::try_from(child.id()).is_ok_and(|id| {
        changes(scopes, || {
            kill(Pid::from_raw(id), None) == Err(Errno::EPERM)
        })
    });
    child.wait().is_ok() && holds
}

fn abstract_sockets() -> bool {
    // Concurrent tests need different names.
    static TRIES: AtomicU64 = AtomicU64::new(0);
    let tries = TRIES.fetch_add(1, Ordering::Relaxed);
    let name = format!("goondan-probe-{}-{tries}", std::process::id());
    let Ok(address) = SocketAddr::from_abstract_name(name) else {
        return false;
    };
    let Ok(_listener) = UnixListener::bind_addr(&address) else {
        return false;
    };
    changes(scopes, || UnixStream::connect_addr(&address).is_err())
}

fn system_calls() -> bool {
    changes(
        || system_calls::apply(Caller::Program(Level::Landlock, Network::None)).is_ok(),
        || UnixStream::connect("/").is_err_and(|e| e.raw_os_error() == Some(1)),
    )
}

fn scopes() -> bool {
    let rules = || -> Result<_, RulesetError> {
        hard()
            .scope(Scope::from_all(ABI::V6))?
            .create()?
            .restrict_self()
    };
    rules().is_ok()
}

fn hard() -> Ruleset {
    Ruleset::default().set_compatibility(CompatLevel::HardRequirement)
}
