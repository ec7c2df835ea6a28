//! Self-confinement of agent and connector processes, on the running kernel.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "tests report failures by panicking")]
#![expect(clippy::print_stderr, reason = "skipped tests print a message")]
#![expect(clippy::disallowed_methods, reason = "test data need not be durable")]

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::thread;

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;

use goondan_confinement::{
    Facts, Level, Network, OwnPolicy, OwnSandbox, Right, SandboxPath, SandboxPolicy,
    SelfConfinement, enforce, plan, probe,
};

/// A directory with a file that programs may read, a writable directory, and a secret.
struct ConfinedSite(tempfile::TempDir);

impl ConfinedSite {
    fn new() -> Self {
        let site = Self(tempfile::tempdir().unwrap());
        fs::create_dir(site.at("project")).unwrap();
        fs::create_dir(site.at("work")).unwrap();
        fs::write(site.at("project/input"), "input").unwrap();
        fs::write(site.at("secret"), "secret").unwrap();
        site
    }

    fn at(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    /// Policy of the programs there.
    fn policy(&self, require: Level) -> SandboxPolicy {
        let path = |path: &str| SandboxPath::try_from(self.at(path)).unwrap();
        SandboxPolicy {
            require,
            read: vec![path("project")],
            write: vec![path("work")],
            network: Network::None,
        }
    }
}

/// Restricts a thread that ends with the test, as a process would restrict itself.
fn within<T: Send>(own: &OwnPolicy, act: impl FnOnce(SelfConfinement) -> T + Send) -> T {
    thread::scope(|scope| {
        let thread = scope.spawn(|| act(own.enforce().unwrap()));
        thread.join().unwrap()
    })
}

fn of_landlock() -> SelfConfinement {
    SelfConfinement {
        rights: Right::LANDLOCK.into(),
        lacks: None,
    }
}

fn is_had() -> bool {
    let held = probe();
    let is_had = Right::LANDLOCK.iter().all(|right| held.contains(right));
    if !is_had {
        eprintln!("skipped: this kernel holds only {held:?}");
    }
    is_had
}

fn reads(path: &Path) -> bool {
    fs::read(path).is_ok()
}

#[test]
fn sec_3_agent_keeps_only_the_access_that_its_tools_need() {
    if !is_had() {
        return;
    }
    let site = ConfinedSite::new();
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let control = UnixListener::bind(site.at("control")).unwrap();
    let own = OwnPolicy::of_agent(OwnSandbox::Landlock, &site.policy(Level::Landlock));
    within(&own, |held| {
        assert_eq!(held, of_landlock());
        assert!(reads(&site.at("project/input")));
        assert!(fs::write(site.at("work/own"), "x").is_ok());
        assert!(UnixStream::pair().is_ok());
        assert!(File::open("/proc/self/stat").is_ok());

        assert!(!reads(&site.at("secret")));
        assert!(fs::write(site.at("project/input"), "x").is_err());
        assert!(!reads(Path::new("/etc/shadow")));
        assert!(TcpStream::connect(address).is_err());
        assert!(UnixStream::connect(site.at("control")).is_err());
    });
    assert!(reads(&site.at("secret")), "the test itself is free");
    assert!(TcpStream::connect(address).is_ok());
    drop(control);
}

#[test]
fn sec_3_confined_agent_starts_programs_in_landlock_sandboxes() {
    if !is_had() {
        return;
    }
    let site = ConfinedSite::new();
    let policy = site.policy(Level::Landlock);
    let own = OwnPolicy::of_agent(OwnSandbox::Landlock, &policy);
    within(&own, |_| {
        // Its own program, which would enter the sandbox, can be started.
        let started = Command::new("/proc/self/exe").arg("--list").output();
        assert!(started.unwrap().status.success());
        let nested = SandboxPolicy {
            write: Vec::new(),
            ..policy
        };
        let held = enforce(&plan(nested, &Right::ALL.into()).unwrap()).unwrap();
        assert_eq!(held.rights, Right::LANDLOCK.into());
        assert!(reads(&site.at("project/input")));
        assert!(fs::write(site.at("work/other"), "x").is_err());
        assert!(
            Command::new("/proc/self/exe").output().is_err(),
            "a program in the sandbox has no way to goondan's own"
        );
    });
}

#[test]
fn sec_3_connector_keeps_the_network_and_only_server_files() {
    if !is_had() {
        return;
    }
    let site = ConfinedSite::new();
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let control = UnixListener::bind(site.at("control")).unwrap();
    let own = OwnPolicy::of_connector(OwnSandbox::Landlock, &SandboxPolicy::default());
    within(&own, |held| {
        assert_eq!(held, of_landlock());
        assert!(TcpStream::connect(address).is_ok());
        assert!(TcpListener::bind(("127.0.0.1", 0)).is_ok());
        assert!(reads(Path::new("/etc/hosts")));

        assert!(!reads(&site.at("project/input")));
        assert!(!reads(&site.at("secret")));
        assert!(fs::write(site.at("work/own"), "x").is_err());
        assert!(UnixStream::connect(site.at("control")).is_err());
        assert!(UnixDatagram::unbound().is_err());
    });
    drop(control);
}

#[test]
fn sec_3_sandbox_is_off_on_request() {
    let site = ConfinedSite::new();
    let own = OwnPolicy::of_agent(OwnSandbox::beside(Some(Level::Off)), &SandboxPolicy::off());
    within(&own, |held| {
        assert_eq!(held, SelfConfinement::default());
        assert!(reads(&site.at("secret")));
        assert!(UnixDatagram::unbound().is_ok());
    });
}

/// Confinement of a process that starts programs at the level `full` but cannot have a private
/// root. A thread cannot, because it shares its user with the other threads of the process.
fn without_root(site: &ConfinedSite, policy: &SandboxPolicy, reason: &str) {
    let own = OwnPolicy::of_agent(OwnSandbox::Mounts, policy);
    let address = SocketAddr::from_abstract_name(format!("goondan-own-{reason}")).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    let mut other = Command::new("sleep").arg("1000").spawn().unwrap();
    let pid = Pid::from_raw(other.id().try_into().unwrap());
    assert_eq!(kill(pid, None), Ok(()), "the test itself is free");
    assert!(UnixStream::connect_addr(&address).is_ok());
    within(&own, |held| {
        let rights: Facts = [Right::Signals, Right::AbstractSockets, Right::SystemCalls].into();
        assert_eq!(held.rights, rights);
        let lacks = held.lacks.unwrap();
        assert!(lacks.contains(reason), "{lacks}");
        assert_eq!(kill(pid, None), Err(Errno::EPERM));
        assert!(UnixStream::connect_addr(&address).is_err());
        // Files are unrestricted because there was no private root.
        assert!(reads(&site.at("secret")));
        let beneath = Command::new("sleep").arg("0").status();
        assert!(beneath.unwrap().success());
    });
    other.kill().unwrap();
    other.wait().unwrap();
    drop(listener);
}

#[test]
fn sec_3_agent_without_own_root_reports_why_and_signals_nothing() {
    if !is_had() {
        return;
    }
    let site = ConfinedSite::new();
    let policy = site.policy(Level::Full);
    without_root(&site, &policy, "the kernel grants no namespaces");
    // Any process with write access there could have created the link.
    std::os::unix::fs::symlink(site.at("secret"), site.at("work/link")).unwrap();
    let mut planted = policy;
    let link = SandboxPath::try_from(site.at("work/link")).unwrap();
    planted.read.push(link);
    without_root(&site, &planted, "work/link` is a link");
}
