//! An isolated network of simulated machines: network namespaces on a bridge, and disks of limited
//! size.
//!
//! All of it is inside separate namespaces, in which [`apart`] runs the test again. Nothing is left
//! of it when the test ends, because the kernel removes the namespaces with their last process.
//!
//! A machine can be cut off from all others, as with its cable pulled ([`Network::unplug`]), or
//! from a single one ([`Network::cut`]). Either way packets are dropped silently, as in a failing
//! network, and no connection is reset.

use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use nix::unistd::Uid;

use crate::needs;

/// Set for the process that runs in separate namespaces.
const APART_VAR: &str = "GOONDAN_TEST_APART";

/// First process in the namespaces. It reaps orphans, and all other processes end with it. `ip`
/// must also record its namespaces in there.
const FIRST_PROCESS: &str = "mount -t tmpfs run /run; code=0; \"$@\" || code=$?; exit $code";

/// The bridge that all machines are plugged into.
const BRIDGE: &str = "bridge";

/// Name of a machine's network interface.
const LINK: &str = "eth0";

/// True in the run in separate namespaces. Otherwise runs the test of this name, with its module,
/// again in such namespaces, where it must succeed; where this is not possible, the test is listed
/// as skipped.
///
/// # Panics
///
/// If that run fails.
#[must_use]
pub fn apart(test: &str) -> bool {
    if std::env::var_os(APART_VAR).is_some() {
        return true;
    }
    if !can_be_made() {
        return false;
    }
    let place = tempfile::tempdir().unwrap();
    // Servers that do not run as root are in there, too.
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "unshare"])
        .args(NAMESPACES)
        .args(["sh", "-euc", FIRST_PROCESS, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(APART_VAR, "1")
        .env("TMPDIR", place.path());
    assert!(
        command.status().unwrap().success(),
        "it failed in namespaces of its own"
    );
    false
}

const NAMESPACES: [&str; 6] = [
    "--mount",
    "--net",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
];

fn can_be_made() -> bool {
    if !Uid::effective().is_root() {
        // A PostgreSQL server needs a second user, which only root can provide.
        return needs::note_left_out("only root makes machines of a network");
    }
    let programs = ["ip", "setpriv", "unshare", "nsenter"];
    if !programs.into_iter().all(needs::program) {
        return false;
    }
    let bridge = "mount -t tmpfs run /run && ip link add bridge type bridge && ip netns add one";
    let mut command = Command::new("unshare");
    command.args(NAMESPACES).args(["sh", "-euc", bridge]);
    command.output().unwrap().status.success()
        || needs::note_left_out("this system does not allow simulated machines")
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkMachine {
    name: &'static str,
    address: Ipv4Addr,
}

impl NetworkMachine {
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Command prefix that runs a program on this machine.
    #[must_use]
    pub fn prefix(&self) -> [String; 2] {
        let namespace = format!("--net=/run/netns/{}", self.name);
        ["nsenter".to_owned(), namespace]
    }
}

#[derive(Debug)]
pub struct Network {
    machines: Vec<NetworkMachine>,
}

impl Network {
    /// A network of these machines, fully connected. Only in a run of [`apart`].
    #[must_use]
    pub fn of(names: &[&'static str]) -> Self {
        assert!(std::env::var_os(APART_VAR).is_some(), "not apart");
        ip(&["link", "add", BRIDGE, "type", "bridge"]);
        ip(&["link", "set", BRIDGE, "up"]);
        let machines = names.iter().zip(1..).map(|(name, number)| {
            let address = Ipv4Addr::new(10, 9, 0, number);
            ip(&["netns", "add", name]);
            let veth = [
                "link", "add", "dev", name, "type", "veth", "peer", "name", LINK,
            ];
            ip(&[&veth[..], &["netns", name]].concat());
            ip(&["link", "set", "dev", name, "master", BRIDGE, "up"]);
            let own = format!("{address}/24");
            ip(&["-n", name, "addr", "add", &own, "dev", LINK]);
            ip(&["-n", name, "link", "set", LINK, "up"]);
            ip(&["-n", name, "link", "set", "lo", "up"]);
            NetworkMachine { name, address }
        });
        Self {
            machines: machines.collect(),
        }
    }

    #[must_use]
    pub fn machine(&self, name: &str) -> &NetworkMachine {
        let mut all = self.machines.iter();
        all.find(|machine| machine.name == name).unwrap()
    }

    /// Pulls the cable of a machine.
    pub fn unplug(&self, machine: &NetworkMachine) {
        ip(&["link", "set", "dev", machine.name, "down"]);
    }

    pub fn plug(&self, machine: &NetworkMachine) {
        ip(&["link", "set", "dev", machine.name, "up"]);
    }

    /// Disconnects two machines from each other; all others can reach both.
    pub fn cut(&self, one: &NetworkMachine, other: &NetworkMachine) {
        Self::blackholes("add", one, other);
    }

    /// Reconnects them.
    pub fn mend(&self, one: &NetworkMachine, other: &NetworkMachine) {
        Self::blackholes("del", one, other);
    }

    fn blackholes(what: &str, one: &NetworkMachine, other: &NetworkMachine) {
        for (at, to) in [(one, other), (other, one)] {
            let to = to.address.to_string();
            ip(&["-n", at.name, "route", what, "blackhole", &to]);
        }
    }
}

/// Mounts a disk of this size on a directory. Only in a run of [`apart`].
pub fn mount_disk(directory: &Path, bytes: u64) {
    assert!(std::env::var_os(APART_VAR).is_some(), "not apart");
    let mut command = Command::new("mount");
    command.args([
        "-t",
        "tmpfs",
        "-o",
        &format!("size={bytes},mode=700"),
        "disk",
    ]);
    succeeds(command.arg(directory));
}

fn ip(args: &[&str]) {
    succeeds(Command::new("ip").args(args));
}

fn succeeds(command: &mut Command) {
    let ran = command.output().unwrap();
    assert!(ran.status.success(), "{command:?}: {ran:?}");
}
