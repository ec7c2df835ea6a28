//! The program that a host runs.

use std::ffi::OsString;

use goondan_protocol::process_limits::ProcessLimits;

/// The program that a host runs, with its arguments.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HostProgram {
    /// The host's display name.
    pub(crate) name: String,
    /// The program and its arguments.
    pub(crate) command: Vec<OsString>,
    /// Resource limits of each of its processes.
    pub(crate) limits: ProcessLimits,
}
