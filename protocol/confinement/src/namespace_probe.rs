//! Probes the kernel features that the level `full` needs beyond `landlock`.
//!
//! A process with more than one thread cannot create a user namespace, and this process must not
//! stay in one. Each right is therefore tested by a separate short-lived process.

use std::ffi::OsString;
use std::fs::{self, File};
use std::process::{Command, ExitCode, Stdio};

use goondan_protocol::sandbox::{Facts, Right};
use nix::sched::CloneFlags;
use rustix::mount::{MountFlags, mount};

use crate::mounts::can_put_in;
use crate::namespaces::{has_own_proc, pass_on_capabilities, raise_loopback, unshare_with};

/// Argument that precedes the right to test.
const TRY: &str = "--try-right";

/// Each right with its name in the arguments.
const TRIES: [(Right, &str); 4] = [
    (Right::UserNamespaces, "users"),
    (Right::Mounts, "mounts"),
    (Right::Processes, "processes"),
    (Right::Network, "network"),
];

/// Name of the test that runs within the namespace of [`Right::Processes`].
const FIRST_PROCESS: &str = "first-process";

/// Tests each namespace right in a separate process. `tool_supervisor` starts the program that
/// calls [`try_as_asked`] with its arguments. A right that cannot be tested counts as missing.
#[must_use]
pub fn probe_namespaces(tool_supervisor: impl Fn() -> Command) -> Facts {
    let holds = |word: &str| {
        let mut command = tool_supervisor();
        command.args([TRY, word]);
        succeeds(&mut command)
    };
    let held = TRIES.into_iter().filter(|(_, word)| holds(word));
    held.map(|(right, _)| right).collect()
}

fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Runs the test that the arguments request; `None` if they request none. Call this while the
/// process has one thread, and exit afterwards.
#[must_use]
pub fn try_as_asked(arguments: &[OsString]) -> Option<ExitCode> {
    let [flag, word] = arguments else {
        return None;
    };
    if flag != TRY {
        return None;
    }
    let holds = match word.to_str()? {
        "users" => unshare_with(CloneFlags::empty()).is_ok(),
        "mounts" => mounts(),
        "processes" => processes(),
        "network" => unshare_with(CloneFlags::CLONE_NEWNET).is_ok() && raise_loopback().is_ok(),
        FIRST_PROCESS => has_own_proc(),
        _ => return None,
    };
    Some(if holds {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Mounts an empty directory over a non-empty one, and a file of the machine into it.
fn mounts() -> bool {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    unshare_with(CloneFlags::CLONE_NEWNS).is_ok()
        && mount(c"tmpfs", c"/tmp", c"tmpfs", flags, c"size=64k").is_ok()
        && fs::read_dir("/tmp").is_ok_and(|mut entries| entries.next().is_none())
        && File::create_new("/tmp/goondan").is_ok()
        && can_put_in()
}

fn processes() -> bool {
    unshare_with(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID).is_ok()
        && pass_on_capabilities().is_ok()
        && succeeds(Command::new("/proc/self/exe").args([TRY, FIRST_PROCESS]))
}
