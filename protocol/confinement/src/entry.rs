//! Entry of a process into the sandbox of the program it starts (`SEC-3`, `SEC-6`).
//!
//! A wrapper process is started with the policy in its arguments
//! ([`Allowed::in_words`](crate::Allowed::in_words)), removes the policy from them
//! ([`out_of_words`]), and [enters](Sandbox::enter): it restricts itself, and its descendants
//! inherit the restriction. The sandbox is in effect from the program's first instruction and
//! cannot be undone. No process between the program and the kernel can be attacked.
//!
//! At the level `full` there are two wrappers, `outer → first process → program → …`. The outer one
//! creates the namespaces and waits. The other one is the first process in them: it installs the
//! new root, restricts itself and continues as at other levels. Both have the same standard input,
//! which only the inner one reads. When the inner one ends, the kernel kills all processes of its
//! PID namespace; it receives `SIGKILL` when the outer one ends.
//!
//! If programs may reach some hosts, the outer process connects them to the egress (`way_out`).

use std::ffi::OsString;
use std::path::{Path, PathBuf};
#[cfg(target_os = "linux")]
use std::process::Command;

use goondan_protocol::sandbox::{Level, SandboxPolicy};

#[cfg(target_os = "linux")]
use crate::egress_bridge::EgressBridge;
#[cfg(target_os = "linux")]
use crate::enforcement::enforce;
#[cfg(target_os = "linux")]
use crate::error::EnforceError;
#[cfg(any(target_os = "linux", target_os = "macos"))]
use crate::inherited_files::close_inherited_files;
#[cfg(target_os = "linux")]
use crate::namespaces::{NamespaceError, die_with, own_number, unshare_all};
use crate::plan::{UnmetLevel, plan};

/// Argument that precedes the policy in JSON.
const SANDBOX: &str = "--sandbox";

/// Argument that precedes the path of the egress's socket; follows the policy.
const EGRESS: &str = "--egress";

/// Argument that precedes the process id of the process that created the namespaces; that process's
/// own arguments follow.
const WITHIN: &str = "--within";

/// Reason why nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The policy cannot be parsed.
    #[error("failed to read the sandbox policy: {0}; use programs of one release")]
    Policy(#[from] serde_json::Error),
    /// The kernel does not support the sandbox.
    #[error(transparent)]
    Unmet(#[from] UnmetLevel),
    /// Inherited open files cannot be listed.
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    #[error("failed to list inherited open files: {0}; mount /proc")]
    Inherited(#[source] std::io::Error),
    /// The namespaces cannot be created.
    #[cfg(target_os = "linux")]
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The listed hosts are unreachable because the egress is unavailable.
    #[cfg(target_os = "linux")]
    #[error(
        "failed to connect the sandbox to the hosts of `network.allow`: {0}; restart the daemon, \
         or write `network: none`"
    )]
    NoWayOut(#[source] std::io::Error),
    /// The inner process cannot be started.
    #[cfg(target_os = "linux")]
    #[error("failed to start the first process of the sandbox: {0}")]
    First(#[source] std::io::Error),
    /// The kernel refused a part of the sandbox.
    #[cfg(target_os = "linux")]
    #[error(transparent)]
    Enforce(#[from] EnforceError),
    /// The macOS sandbox cannot be created.
    #[cfg(target_os = "macos")]
    #[error(transparent)]
    Seatbelt(#[from] crate::seatbelt_entry::SeatbeltError),
}

/// The policy as arguments that precede those of the process that enters it. Empty without a
/// sandbox.
pub(crate) fn in_words(policy: &SandboxPolicy, egress: Option<&Path>) -> Vec<OsString> {
    // A policy with UTF-8 paths always serializes; the receiving process refuses the empty text of
    // any other.
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

/// Confinement of this process, as given by its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sandbox {
    /// The policy, not parsed yet.
    policy: OsString,
    /// The socket of the egress, if only some hosts may be reached.
    egress: Option<PathBuf>,
    /// The process id of the parent that created the namespaces, if this process is the first one
    /// in them.
    parent: Option<OsString>,
}

/// Result of entering the sandbox.
#[derive(Debug)]
pub enum SandboxEntry {
    /// This process is inside the sandbox.
    Inside,
    /// This process is outside, and the process it started inside has ended.
    Ended(std::process::ExitStatus),
}

/// Removes the sandbox from the front of the arguments.
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
    /// True if this is the first process of the sandbox, and so the ancestor of all others in it.
    #[must_use]
    pub fn is_first_process(&self) -> bool {
        self.parent.is_some()
    }

    /// Permanently restricts this process, which must have one thread; or starts a restricted
    /// process and waits for it.
    ///
    /// # Errors
    ///
    /// [`SandboxError`] if the policy cannot be enforced. Nothing was started then, and the caller
    /// must exit.
    #[cfg(target_os = "linux")]
    pub fn enter(&self) -> Result<SandboxEntry, SandboxError> {
        use goondan_protocol::sandbox::Right;

        if let Some(parent) = &self.parent {
            die_with(&parent.to_string_lossy())?;
        }
        close_inherited_files().map_err(SandboxError::Inherited)?;
        let policy: SandboxPolicy = serde_json::from_slice(self.policy.as_encoded_bytes())?;
        if policy.require == Level::Full && self.parent.is_none() {
            return start_within(&policy, self.egress.as_deref());
        }
        // Missing kernel support surfaces as an error here: probing before each command would take
        // too long.
        enforce(&plan(policy, &Right::ALL.into())?)?;
        Ok(SandboxEntry::Inside)
    }

    /// Replaces this process by the same program inside the sandbox. Returns only if no confinement
    /// is required.
    ///
    /// # Errors
    ///
    /// [`SandboxError`] if the policy cannot be enforced. Nothing was started then, and the caller
    /// must exit.
    #[cfg(target_os = "macos")]
    pub fn enter(&self) -> Result<SandboxEntry, SandboxError> {
        close_inherited_files().map_err(SandboxError::Inherited)?;
        let policy = serde_json::from_slice(self.policy.as_encoded_bytes())?;
        let plan = plan(policy, &[goondan_protocol::sandbox::Right::Profile].into())?;
        match plan.level {
            Level::Off => Ok(SandboxEntry::Inside),
            Level::Full | Level::Landlock | Level::Seatbelt => {
                let words: Vec<OsString> = std::env::args_os().skip(1).collect();
                let (_, own) = out_of_words(&words);
                Err(crate::seatbelt_entry::turn_into_confined(&plan, own).into())
            }
        }
    }

    /// This operating system has no sandbox.
    ///
    /// # Errors
    ///
    /// [`SandboxError`] unless no sandbox is requested.
    #[cfg(not(any(target_os = "linux", target_os = "macos")))]
    pub fn enter(&self) -> Result<SandboxEntry, SandboxError> {
        let policy = serde_json::from_slice(self.policy.as_encoded_bytes())?;
        plan(policy, &goondan_protocol::sandbox::Facts::new())?;
        Ok(SandboxEntry::Inside)
    }
}

/// Starts this binary again as the first process of a PID namespace and waits for it. If either
/// process ends, the kernel ends the other one and all processes in the namespace.
#[cfg(target_os = "linux")]
fn start_within(
    policy: &SandboxPolicy,
    egress: Option<&Path>,
) -> Result<SandboxEntry, SandboxError> {
    use nix::sys::signal::{SigSet, Signal};

    let number = own_number().map_err(SandboxError::First)?;
    // Signals to the process group are handled by the inner process, which starts without this
    // mask.
    SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP])
        .thread_block()
        .map_err(|errno| SandboxError::First(errno.into()))?;
    let way_out = match (policy.allow_list(), egress) {
        (None, _) => None,
        (Some(_), Some(egress)) => {
            Some(EgressBridge::find(egress).map_err(SandboxError::NoWayOut)?)
        }
        (Some(_), None) => {
            let error = std::io::Error::other("the egress proxy's sockets are unknown");
            return Err(SandboxError::NoWayOut(error));
        }
    };
    unshare_all(&policy.network)?;
    let mut first = Command::new("/proc/self/exe");
    if let Some(way_out) = &way_out {
        first.current_dir(way_out.directory_within());
    }
    let listening = way_out.map(EgressBridge::listen).transpose()?;
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
    Ok(SandboxEntry::Ended(ended.map_err(SandboxError::First)?))
}
