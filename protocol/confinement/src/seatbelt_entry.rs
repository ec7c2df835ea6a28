//! How a process of macOS enters its sandbox. **Untested.**
//!
//! It turns into `sandbox-exec`, which takes the profile and turns into this program again, with the arguments behind
//! the policy. So there is no process more, and whatever that starts is in the same sandbox.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use goondan_protocol::sandbox::{Facts, Network, Right};
use goondan_protocol::working_directory::{Purpose, working_directory};

use crate::layout::Layout;
use crate::plan::Plan;
use crate::seatbelt::{UnfitPath, profile};

/// What makes the sandbox, a part of macOS.
const SANDBOX_EXEC: &str = "/usr/bin/sandbox-exec";

/// A program of macOS, and a file that it may read in the sandbox it is tried in, and one that it may not.
const READER: &str = "/bin/cat";
const GRANTED: &str = "/bin/ls";
const NOT_GRANTED: &str = "/private/etc/hosts";

/// Why nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum SeatbeltError {
    /// A path of the policy that is not there, or that a confined program could have put there.
    #[error("the sandbox cannot grant a path: {0}; create it, or take it out of the policy")]
    Layout(#[source] std::io::Error),
    /// A path of the policy that the profile cannot name.
    #[error(transparent)]
    Path(#[from] UnfitPath),
    /// This program cannot be found, or what makes the sandbox cannot be started.
    #[error("`/usr/bin/sandbox-exec` cannot be started: {0}")]
    Start(#[source] std::io::Error),
}

/// What macOS holds, found by trying: a file that is granted is read, and one that is not is not.
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
            .current_dir(working_directory(Purpose::Own))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    let is_held = reads(GRANTED) && !reads(NOT_GRANTED);
    is_held.then_some(Right::Profile).into_iter().collect()
}

/// Turns into this program in the sandbox, with other arguments, and returns only if that fails.
pub(crate) fn turn_into_confined(plan: &Plan, arguments: &[OsString]) -> SeatbeltError {
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
