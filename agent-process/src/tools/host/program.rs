//! What a host runs.

use std::ffi::OsString;

use goondan_protocol::process_limits::ProcessLimits;

/// What a host runs: the program, its arguments, and where its modules are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HostProgram {
    /// The host's name, for people.
    pub(crate) name: String,
    /// The program and its arguments.
    pub(crate) command: Vec<OsString>,
    /// What each of its processes may take.
    pub(crate) limits: ProcessLimits,
}
