//! Kernel-enforced restrictions of programs that run on behalf of a model (`SEC-3`, `SEC-6`).
//!
//! A [`SandboxPolicy`] is the user's policy, [`probe`] returns the rights that the running kernel
//! can enforce, and [`plan`] checks if they are enough: a pure function, which fails closed.
//! [`enforce`] then permanently restricts the calling thread and everything that it starts
//! afterwards.
//!
//! At the level `full` this takes two processes: one calls [`unshare_all`] and starts a second,
//! which is the first process of a PID namespace, ties its life to the other by [`die_with`], and
//! calls [`enforce`]. [`Sandbox`] does all of this in a process that wraps a program.
//!
//! # Map
//!
//! * `rights`: files that almost every program needs, in addition to the user's settings.
//! * `denial`: reports denied accesses, and the settings that would allow them.
//! * `entry`: entry into the sandbox, for callers that start programs.
//! * `self_confinement`: restrictions of agent and connector processes.
//! * `plan`: a decision about data (`goondan_protocol::sandbox`). `layout`: the paths in a new
//!   root; `outside_sockets`: the sockets that are hidden in them.
//! * `namespaces`, `mounts`, `capabilities`, `files`, `system_calls`: each changes one property of
//!   the calling process; `enforcement` applies them in the only working order, because a process
//!   that Landlock restricts cannot mount.
//! * `probe` and `namespace_probe`: find the available rights by trying them.
//! * `seatbelt` and `seatbelt_entry`: the macOS counterpart, as far as there is one. They are
//!   untested.
//!
//! # Invariants
//!
//! * Nothing is created on a file system of the machine, and the sandbox is invisible outside:
//!   mounts end with the last process of their namespace.
//!
//! * A missing right is an error that names it. Nothing is enforced in part.
//! * A right is reported as available only after a forbidden act of its kind was refused, because
//!   kernels claim versions that they do not fully support.
//! * A path that does not exist is not granted: failure to open it is an error.
//!
//! # Limits
//!
//! The level `landlock` hides no processes: their names, arguments and states are readable in
//! `/proc`, which every program needs; their environment, memory and open files are not. A socket
//! that the program inherits stays usable ([`close_inherited_files`]). Landlock does not cover
//! modes, owners, times and extended attributes of the user's files: programs can read and change
//! them outside, too. A writable directory is writable with everything below it, even if the policy
//! lists a part as readable.
//!
//! At the level `full` temporary files are in memory: 1 GiB in `/tmp`, 256 MiB in `/dev/shm`, 16
//! MiB in `/run`. Files are restricted only by the new root, without Landlock rules, which would
//! refuse renames between directories (`files`). Two listed directories are two mounts, between
//! which files cannot be renamed or linked. A program can connect to a socket that a service
//! creates in a listed directory after the program has started: only earlier sockets are hidden,
//! and only at the paths that they were bound to. Mounts of another user's FUSE are mounted but not
//! readable.
//!
//! Programs cannot create files with the set-user-id bit, or set it. The set-group-id bit is
//! refused only for new files: `chmod` can set it, because directories need it.
//!
//! A program that runs as root has no capabilities: it has the rights of an ordinary owner of its
//! files.

pub use self::denial::{Denials, denial_of_packages};
pub use self::entry::{Sandbox, SandboxEntry, SandboxError, out_of_words};
pub use self::plan::{ConfinementPlan, UnmetLevel, plan};
pub use self::rights::{ProgramContext, ProgramRights, find_program, readable};
pub use goondan_protocol::sandbox::{
    Facts, InvalidPath, Level, Network, OwnSandbox, Right, SandboxPath, SandboxPolicy,
};

#[cfg(target_os = "linux")]
pub use self::enforcement::{EnforcementReport, enforce};
#[cfg(target_os = "linux")]
pub use self::error::EnforceError;
#[cfg(any(target_os = "linux", target_os = "macos"))]
pub use self::inherited_files::close_inherited_files;
#[cfg(target_os = "linux")]
pub use self::namespace_probe::{probe_namespaces, try_as_asked};
#[cfg(target_os = "linux")]
pub use self::namespaces::{NamespaceError, die_with, own_number, unshare_all};
#[cfg(target_os = "linux")]
pub use self::probe::{open_beneath, probe, probe_all};
#[cfg(any(target_os = "macos", test))]
pub use self::seatbelt::UnfitPath;
#[cfg(target_os = "macos")]
pub use self::seatbelt_entry::SeatbeltError;
#[cfg(target_os = "linux")]
pub use self::self_confinement::{OwnPolicy, SelfConfinement};

/// Rights that macOS enforces, found by trying.
#[cfg(target_os = "macos")]
#[must_use]
pub fn probe_all(_agent_process: &std::path::Path) -> Facts {
    seatbelt_entry::probe()
}

/// Rights that the kernel enforces: none, because there is no sandbox for this system.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
#[must_use]
pub fn probe_all(_agent_process: &std::path::Path) -> Facts {
    Facts::new()
}

/// Nothing to be tried: paths are resolved another way here.
///
/// # Errors
///
/// None.
#[cfg(not(target_os = "linux"))]
pub fn open_beneath() -> std::io::Result<()> {
    Ok(())
}

/// The port of the sandbox's loopback at which programs find the proxy to the hosts that they may reach.
pub const PROXY_PORT: u16 = 3128;

#[cfg(target_os = "linux")]
mod capabilities;
mod denial;
#[cfg(target_os = "linux")]
mod egress_bridge;
#[cfg(target_os = "linux")]
mod enforcement;
mod entry;
#[cfg(target_os = "linux")]
mod error;
#[cfg(target_os = "linux")]
mod files;
#[cfg(any(target_os = "linux", target_os = "macos"))]
mod inherited_files;
#[cfg(any(target_os = "linux", target_os = "macos"))]
mod layout;
#[cfg(target_os = "linux")]
mod mountinfo;
#[cfg(target_os = "linux")]
mod mounts;
#[cfg(target_os = "linux")]
mod namespace_probe;
#[cfg(target_os = "linux")]
mod namespaces;
#[cfg(target_os = "linux")]
mod outside_sockets;
mod plan;
#[cfg(target_os = "linux")]
mod probe;
mod rights;
#[cfg(any(target_os = "macos", test))]
mod seatbelt;
#[cfg(target_os = "macos")]
mod seatbelt_entry;
#[cfg(target_os = "linux")]
mod self_confinement;
#[cfg(target_os = "linux")]
mod system_calls;
