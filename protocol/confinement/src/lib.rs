//! What a program that runs on behalf of a model may touch, held by the kernel (`SEC-3`, `SEC-6`).
//!
//! A [`SandboxPolicy`] says what a person asked for, [`probe`] what the running kernel gives, and [`plan`]
//! whether the one can be had from the other: a pure function, which fails closed. [`enforce`] then restricts
//! the calling thread and everything it starts from there on. None of it can be taken back.
//!
//! At the level `full` two processes do it: one calls [`unshare_all`] and starts a second, which is the first
//! process of a PID namespace, binds its life to the other by [`die_with`], and calls [`enforce`]. [`Sandbox`] is how a
//! process that stands around a program does all of this.
//!
//! # Map
//!
//! * `allowed` is what hardly a program does without, beside what a person listed.
//! * `denial` says what was denied, and which setting would allow it.
//! * `entry` is the way in, for whoever starts programs.
//! * `own` is what agents and connectors hold themselves to.
//! * `plan` is a decision about data (`goondan_protocol::sandbox`). `layout` is which paths a new root holds, and
//!   `outside_sockets` what is covered in them.
//! * `namespaces`, `mounts`, `capabilities`, `files`, `system_calls` each change one thing about the calling process;
//!   `enforcement` does so in the one order that works: whose files Landlock holds may not mount.
//! * `probe` and `namespace_probe` find out by trying.
//! * `seatbelt` and `seatbelt_entry` are all of it on macOS, as far as there is any. They are untested.
//!
//! # Invariants
//!
//! * Nothing is created on a file system of the machine, and nothing of the sandbox is to be seen outside of
//!   it: mounts end with the last process of their namespace.
//!
//! * A right that is missing is an error that names it. Nothing is enforced in part.
//! * A right is counted as given only after an act of its kind was seen to be refused: kernels claim versions
//!   that they do not keep.
//! * No path is granted that did not exist: a path that cannot be opened is an error.
//!
//! # Limits
//!
//! The level `landlock` hides no processes: their names, arguments and states can be read in `/proc`, which no
//! program can do without; their environment, memory and open files cannot. A socket that the program
//! inherits stays usable ([`close_inherited_files`]). Modes, owners, times and extended attributes of the
//! user's files are no rights of Landlock: they can be seen and changed outside, too. What may be written may
//! be written with all below it, even if the policy lists a part of it to be read.
//!
//! At the level `full` temporary files are memory: 1 GiB in `/tmp`, 256 MiB in `/dev/shm`, 16 MiB in `/run`. Files
//! are held by the new root alone, without rules of Landlock: those would refuse renames between directories (`files`).
//! Two listed directories are two mounts, between which nothing can be renamed or linked. A socket that a service makes
//! in a listed directory after a program has started can be connected to: only those that are there by then are
//! covered, and only by the paths that they were bound to. What is mounted from another user's FUSE is mounted and not
//! readable.
//!
//! Files with the set-user-id bit can neither be made nor changed to be so. The bit of the group is refused for new
//! files alone: `chmod` sets it, since directories need it.
//!
//! A program of root has no capabilities: it may do with files what their modes let their owner do.

pub use self::allowed::{Allowed, Ground, find_program, readable};
pub use self::denial::{Denials, denial_of_packages};
pub use self::entry::{Entered, Sandbox, SandboxError, out_of_words};
pub use self::plan::{Plan, Unmet, plan};
pub use goondan_protocol::sandbox::{
    Facts, InvalidPath, Level, Network, OwnSandbox, Right, SandboxPath, SandboxPolicy,
};

#[cfg(target_os = "linux")]
pub use self::enforcement::{Report, enforce};
#[cfg(target_os = "linux")]
pub use self::error::EnforceError;
#[cfg(any(target_os = "linux", target_os = "macos"))]
pub use self::inherited::close_inherited_files;
#[cfg(target_os = "linux")]
pub use self::namespace_probe::{probe_namespaces, try_as_asked};
#[cfg(target_os = "linux")]
pub use self::namespaces::{NamespaceError, die_with, own_number, unshare_all};
#[cfg(target_os = "linux")]
pub use self::own::{Held, OwnPolicy};
#[cfg(target_os = "linux")]
pub use self::probe::{open_beneath, probe, probe_all};
#[cfg(any(target_os = "macos", test))]
pub use self::seatbelt::UnfitPath;
#[cfg(target_os = "macos")]
pub use self::seatbelt_entry::SeatbeltError;

/// What macOS holds, found by trying.
#[cfg(target_os = "macos")]
#[must_use]
pub fn probe_all(_agent_process: &std::path::Path) -> Facts {
    seatbelt_entry::probe()
}

/// What the kernel holds of all levels: nothing, since there is no sandbox for this system.
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

mod allowed;
#[cfg(target_os = "linux")]
mod capabilities;
mod denial;
#[cfg(target_os = "linux")]
mod enforcement;
mod entry;
#[cfg(target_os = "linux")]
mod error;
#[cfg(target_os = "linux")]
mod files;
#[cfg(any(target_os = "linux", target_os = "macos"))]
mod inherited;
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
#[cfg(target_os = "linux")]
mod own;
mod plan;
#[cfg(target_os = "linux")]
mod probe;
#[cfg(any(target_os = "macos", test))]
mod seatbelt;
#[cfg(target_os = "macos")]
mod seatbelt_entry;
#[cfg(target_os = "linux")]
mod system_calls;
#[cfg(target_os = "linux")]
mod way_out;
