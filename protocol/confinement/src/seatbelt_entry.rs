//! Entry of a macOS process into its sandbox. **Untested.**
//!
//! The process executes `sandbox-exec`, which applies the profile and executes this program again
//! with the arguments after the policy. No additional process is needed, and all descendants are in
//! the same sandbox.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use goondan_protocol::sandbox::{Facts, Network, Right};
use goondan_protocol::working_directory::{ProcessPurpose, working_directory};

use crate::layout::Layout;
use crate::plan::ConfinementPlan;
use crate::seatbelt::{UnfitPath, profile};

/// The macOS program that creates the sandbox.
const SANDBOX_EXEC: &str = "/usr/bin/sandbox-exec";

/// A program of macOS for the test, a file that it may read in the sandbox, and a file that it may
/// not.
const READER: &str = "/bin/cat";
const GRANTED: &str = "/bin/ls";
const NOT_GRANTED: &str = "/private/etc/hosts";

/// Reason why nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum SeatbeltError {
    /// A path of the policy does not exist, or a confined program could have created it.
    #[error("the sandbox cannot grant a path: {0}; create it, or remove it from the policy")]
    Layout(#[source] std::io::Error),
    /// A path of the policy cannot be expressed in the profile.
    #[error(transparent)]
    Path(#[from] UnfitPath),
    /// This program cannot be found, or `sandbox-exec` cannot be started.
    #[error("failed to start `/usr/bin/sandbox-exec`: {0}")]
    Start(#[source] std::io::Error),
}

/// Tests macOS: a granted file can be read and another one cannot.
pub(crate) fn probe() -> Facts {
    let of_reader = Path::new("/bin");
    let layout = Layout::of_paths([of_reader].into_iter(), std::iter::empty());
    let Some(profile) = layout
        .ok()
        .and_then(|layout| profile(&layout, &Network::None, Path::new(READER)).ok())
    else {
        return Facts::new();
    };
    let reads = |file: &str| {
        Command::new(SANDBOX_EXEC)
            .args(["-p", &profile, READER, file])
            .current_dir(working_directory(ProcessPurpose::Own))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    let is_held = reads(GRANTED) && !reads(NOT_GRANTED);
    is_held.then_some(Right::Profile).into_iter().collect()
}

/// Replaces this process by this program in the sandbox, with other arguments. Returns only on
/// failure.
pub(crate) fn turn_into_confined(plan: &ConfinementPlan, arguments: &[OsString]) -> SeatbeltError {
    let confined = || -> Result<Command, SeatbeltError> {
        let program = std::env::current_exe().and_then(|program| program.canonicalize());
        let program = program.map_err(SeatbeltError::Start)?;
        let layout = Layout::of(plan).map_err(SeatbeltError::Layout)?;
        let profile = profile(&layout, &plan.network, &program)?;
        let mut confined = Command::new(SANDBOX_EXEC);
        confined.arg("-p").arg(profile).arg(program).args(arguments);
        Ok(confined)
    };
    match confined() {
        Ok(mut confined) => SeatbeltError::Start(confined.exec()),
        Err(error) => error,
    }
}
