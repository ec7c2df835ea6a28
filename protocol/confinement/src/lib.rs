//! What a program that runs on behalf of a model may touch, held by the kernel (`SEC-3`, `SEC-6`).
//!
//! A [`SandboxPolicy`] says what a person asked for, [`probe`] what the running kernel gives, and [`plan`]
//! whether the one can be had from the other: a pure function, which fails closed. [`enforce`] then restricts
//! the calling thread and everything it starts from there on. None of it can be taken back.
//!
//! # Invariants
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
//! A program of root has no capabilities: it may do with files what their modes let their owner do.

pub use self::plan::{Facts, Plan, Right, Unmet, plan};
pub use self::policy::{InvalidPath, Level, SandboxPath, SandboxPolicy};

#[cfg(target_os = "linux")]
pub use self::enforcement::{EnforceError, Report, enforce};
#[cfg(target_os = "linux")]
pub use self::inherited::close_inherited_files;
#[cfg(target_os = "linux")]
pub use self::probe::probe;

#[cfg(target_os = "linux")]
mod capabilities;
#[cfg(target_os = "linux")]
mod enforcement;
#[cfg(target_os = "linux")]
mod inherited;
mod plan;
mod policy;
#[cfg(target_os = "linux")]
mod probe;
#[cfg(target_os = "linux")]
mod system_calls;
