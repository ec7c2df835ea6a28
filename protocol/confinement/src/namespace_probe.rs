//! What the level `full` needs beyond `landlock`, found by trying.
//!
//! A process with more than one thread cannot have a user namespace, and none may keep it: so each right is
//! tried by a process of its own, which ends with it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::process::{Command, ExitCode, Stdio};

use goondan_protocol::sandbox::{Facts, Right};
use nix::sched::CloneFlags;
use rustix::mount::{MountFlags, mount};

use crate::mounts::can_put_in;
use crate::namespaces::{has_own_proc, pass_on_capabilities, raise_loopback, unshare_with};

/// The argument before what is to be tried.
const TRY: &str = "--try-right";

/// Each right, and the word for it.
const TRIES: [(Right, &str); 4] = [
    (Right::UserNamespaces, "users"),
    (Right::Mounts, "mounts"),
    (Right::Processes, "processes"),
    (Right::Network, "network"),
];

/// The word for what is tried within the namespace of [`Right::Processes`].
const FIRST_PROCESS: &str = "first-process";

/// Tries each right of namespaces in a process of its own: `tool_supervisor` starts the program that calls
/// [`try_as_asked`] with its arguments. What cannot be tried is not counted as given.
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

/// Tries what the arguments ask for; none if they ask for nothing of the kind. To be called while there is one
/// thread, in a process that ends then.
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

/// An empty directory is put over one that is not, and a file of the machine into it.
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
