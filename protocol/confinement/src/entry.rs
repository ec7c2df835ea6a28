//! How a process enters the sandbox of what it is to start (`SEC-3`, `SEC-6`).
//!
//! A process that stands around a program is started with the policy in its arguments
//! ([`Allowed::in_words`](crate::Allowed::in_words)), takes it off them ([`out_of_words`]), and [enters](Sandbox::enter): it restricts itself, and whatever it starts inherits that.
//! So it holds from the first instruction of the program. It cannot be taken back, and there is nothing between it
//! and the kernel that a program could talk to.
//!
//! At the level `full` there are two of them, `outer → first process → program → …`. The outer one makes the
//! namespaces and waits. The other is the first process in them: it puts the new root in place, restricts itself and
//! goes on as it would anywhere. Both have the same standard input, which only the inner one reads. When the inner
//! one ends, the kernel ends all that is in its PID namespace; it is sent `SIGKILL` when the outer one ends.
//!
//! If programs may reach some hosts, the outer one is their way to the egress (`way_out`).

use std::ffi::OsString;
use std::path::{Path, PathBuf};
#[cfg(target_os = "linux")]
use std::process::Command;

use goondan_protocol::sandbox::{Level, SandboxPolicy};

#[cfg(target_os = "linux")]
use crate::enforcement::enforce;
#[cfg(target_os = "linux")]
use crate::error::EnforceError;
#[cfg(any(target_os = "linux", target_os = "macos"))]
use crate::inherited::close_inherited_files;
#[cfg(target_os = "linux")]
use crate::namespaces::{NamespaceError, die_with, own_number, unshare_all};
use crate::plan::{Unmet, plan};
#[cfg(target_os = "linux")]
use crate::way_out::WayOut;

/// The argument before a policy in JSON.
const SANDBOX: &str = "--sandbox";

/// The argument before the path of the egress's socket, behind the policy.
const EGRESS: &str = "--egress";

/// The argument before the number of the process that made the namespaces, and the arguments of that one.
const WITHIN: &str = "--within";

/// Why nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The policy cannot be read.
    #[error("the sandbox policy cannot be read: {0}; use programs of one release")]
    Policy(#[from] serde_json::Error),
    /// The kernel has no such sandbox.
    #[error(transparent)]
    Unmet(#[from] Unmet),
    /// What was open before cannot be listed.
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    #[error("the open files that were inherited cannot be listed: {0}; mount /proc")]
    Inherited(#[source] std::io::Error),
    /// The namespaces cannot be made.
    #[cfg(target_os = "linux")]
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The hosts that may be reached have no way to them.
    #[cfg(target_os = "linux")]
    #[error(
        "the hosts of the sandbox's `network.allow` cannot be reached: {0}; restart the daemon, or write \
         `network: none`"
    )]
    NoWayOut(#[source] std::io::Error),
    /// The process within cannot be started.
    #[cfg(target_os = "linux")]
    #[error("the first process of the sandbox cannot be started: {0}")]
    First(#[source] std::io::Error),
    /// The kernel refused a part of it.
    #[cfg(target_os = "linux")]
    #[error(transparent)]
    Enforce(#[from] EnforceError),
    /// The sandbox of macOS cannot be made.
    #[cfg(target_os = "macos")]
    #[error(transparent)]
    Seatbelt(#[from] crate::seatbelt_entry::SeatbeltError),
}

/// The policy as arguments of the process that is to enter it, before all others. None without a sandbox.
pub(crate) fn in_words(policy: &SandboxPolicy, egress: Option<&Path>) -> Vec<OsString> {
    // A policy of paths that are text is always JSON; any other is refused by who reads it.
    let json = || serde_json::to_string(policy).unwrap_or_default();
    let mut words: Vec<OsString> = match policy.require {
        Level::Off => return Vec::new(),
        Level::Full | Level::Landlock | Level::Seatbelt => vec![SANDBOX.into(), json().into()],
    };
    if let (Some(egress), Some(_)) = (egress, policy.allow_list()) {
        words.extend([EGRESS.into(), egress.into()]);
    }
    words
}

/// How this process is to be confined, as its arguments say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sandbox {
    /// The policy, unread.
    policy: OsString,
    /// The socket of the egress, if only some hosts may be reached.
    egress: Option<PathBuf>,
    /// The number of the process that has made the namespaces this process is the first one in.
    parent: Option<OsString>,
}

/// Where the process is, once the sandbox is made.
#[derive(Debug)]
pub enum Entered {
    /// In the sandbox.
    Inside,
    /// Outside, and what it started inside has ended.
    Ended(std::process::ExitStatus),
}

/// Takes the sandbox off the front of the arguments.
#[must_use]
pub fn out_of_words(words: &[OsString]) -> (Option<Sandbox>, &[OsString]) {
    let (parent, words) = match words {
        [flag, parent, rest @ ..] if flag == WITHIN => (Some(parent.clone()), rest),
        rest => (None, rest),
    };
    match words {
        [flag, policy, rest @ ..] if flag == SANDBOX => {
            let (egress, rest) = match rest {
                [flag, egress, rest @ ..] if flag == EGRESS => (Some(egress.into()), rest),
                rest => (None, rest),
            };
            let policy = policy.clone();
            let sandbox = Sandbox {
                policy,
                egress,
                parent,
            };
            (Some(sandbox), rest)
        }
        rest => (None, rest),
    }
}

impl Sandbox {
    /// Whether this is the first process of the sandbox, which all others in it are the children of.
    #[must_use]
    pub fn is_first_process(&self) -> bool {
        self.parent.is_some()
    }

    /// Restricts this process, which has one thread as yet, for good; or starts one that is, and waits for it.
    ///
    /// # Errors
    ///
    /// [`SandboxError`] if the policy cannot be held: nothing was started then, and the caller ends.
    #[cfg(target_os = "linux")]
    pub fn enter(&self) -> Result<Entered, SandboxError> {
        use goondan_protocol::sandbox::Right;

        if let Some(parent) = &self.parent {
            die_with(&parent.to_string_lossy())?;
        }
        close_inherited_files().map_err(SandboxError::Inherited)?;
        let policy: SandboxPolicy = serde_json::from_slice(self.policy.as_encoded_bytes())?;
        if policy.require == Level::Full && self.parent.is_none() {
            return start_within(&policy, self.egress.as_deref());
        }
        // What the kernel lacks shows when it is asked for it: there is no time to try it before each command.
        enforce(&plan(policy, &Right::ALL.into())?)?;
        Ok(Entered::Inside)
    }

    /// Turns into the same program within, and returns only if nothing is to be confined.
    ///
    /// # Errors
    ///
    /// [`SandboxError`] if the policy cannot be held: nothing was started then, and the caller ends.
    #[cfg(target_os = "macos")]
    pub fn enter(&self) -> Result<Entered, SandboxError> {
        close_inherited_files().map_err(SandboxError::Inherited)?;
        let policy = serde_json::from_slice(self.policy.as_encoded_bytes())?;
        let plan = plan(policy, &[goondan_protocol::sandbox::Right::Profile].into())?;
        match plan.level {
            Level::Off => Ok(Entered::Inside),
            Level::Full | Level::Landlock | Level::Seatbelt => {
                let words: Vec<OsString> = std::env::args_os().skip(1).collect();
                let (_, own) = out_of_words(&words);
                Err(crate::seatbelt_entry::turn_into_confined(&plan, own).into())
            }
        }
    }

    /// There is no sandbox for this system.
    ///
    /// # Errors
    ///
    /// [`SandboxError`] unless none is asked for.
    #[cfg(not(any(target_os = "linux", target_os = "macos")))]
    pub fn enter(&self) -> Result<Entered, SandboxError> {
        let policy = serde_json::from_slice(self.policy.as_encoded_bytes())?;
        plan(policy, &goondan_protocol::sandbox::Facts::new())?;
        Ok(Entered::Inside)
    }
}

/// Starts this binary again as the first process of a PID namespace and waits for it. Whichever of the two ends,
/// the other does, and all that is in the namespace: the kernel sees to it.
#[cfg(target_os = "linux")]
fn start_within(policy: &SandboxPolicy, egress: Option<&Path>) -> Result<Entered, SandboxError> {
    use nix::sys::signal::{SigSet, Signal};

    let number = own_number().map_err(SandboxError::First)?;
    // A signal to the group is the business of the process within, which begins without this mask.
    SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP])
        .thread_block()
        .map_err(|errno| SandboxError::First(errno.into()))?;
    let way_out = match (policy.allow_list(), egress) {
        (None, _) => None,
        (Some(_), Some(egress)) => Some(WayOut::find(egress).map_err(SandboxError::NoWayOut)?),
        (Some(_), None) => {
            let error = std::io::Error::other("nobody said where the egress is");
            return Err(SandboxError::NoWayOut(error));
        }
    };
    unshare_all(&policy.network)?;
    let mut first = Command::new("/proc/self/exe");
    if let Some(way_out) = &way_out {
        first.current_dir(way_out.directory_within());
    }
    let listening = way_out.map(WayOut::listen).transpose()?;
    let mut first = first
        .arg(WITHIN)
        .arg(number)
        .args(std::env::args_os().skip(1))
        .spawn()
        .map_err(SandboxError::First)?;
    let ended = match listening {
        Some(listening) => listening.serve_until_end(&mut first),
        None => first.wait(),
    };
    Ok(Entered::Ended(ended.map_err(SandboxError::First)?))
}
