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
//! The level `landlock` hides no processes and drops no capabilities: a program of root stays one. What it
//! lets a program read of `/proc` is what the policy lists of it. A socket that the program inherits stays
//! usable. Modes, owners, times and extended attributes of the user's files are no rights of Landlock: they
//! can be seen and changed outside, too.

pub use self::plan::{Facts, Plan, Right, Unmet, plan};
pub use self::policy::{InvalidPath, Level, SandboxPath, SandboxPolicy};

#[cfg(target_os = "linux")]
pub use self::enforcement::{EnforceError, Report, enforce};
#[cfg(target_os = "linux")]
pub use self::probe::probe;

#[cfg(target_os = "linux")]
mod enforcement;
mod plan;
mod policy;
#[cfg(target_os = "linux")]
mod probe;
#[cfg(target_os = "linux")]
mod system_calls;
