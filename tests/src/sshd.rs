//! OpenSSH: a real server on a port of this machine, and `ssh` with a configuration that knows it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::binaries::bin_dir;
use crate::processes::{self, Signal};
use crate::server::free_ports;
use crate::wait::wait_until;
use crate::{Home, needs};

/// Alias of the server in the client's configuration.
pub const ALIAS: &str = "server";

/// The command of a key that may use only the daemon.
const ONLY_GDN: &str = "gdn --json daemon dial-stdio";

/// A server whose sessions run as this user in a [`Home`]. All sessions and shared connections end when this is
/// dropped, so it must be dropped before the homes.
#[derive(Debug)]
pub struct Sshd {
    child: Child,
    dir: tempfile::TempDir,
    pub port: u16,
}

impl Sshd {
    /// Starts a server that lets this user into a home, where commands use `state_root` by default;
    /// none if OpenSSH is missing, which is listed.
    #[must_use]
    pub fn start(home: &Home, state_root: &Path) -> Option<Self> {
        let sshd = needs::sshd()?;
        let dir = tempfile::Builder::new().prefix("sshd-").tempdir().unwrap();
        let [port] = free_ports();
        let at = |name: &str| dir.path().join(name);
        for name in ["host", "user", "stranger"] {
            keygen(&at(name));
        }
        fs::copy(at("user.pub"), at("authorized")).unwrap();
        let host_key = fs::read_to_string(at("host.pub")).unwrap();
        let known = format!("[127.0.0.1]:{port} {host_key}");
        fs::write(at("known"), known).unwrap();
        fs::write(at("sshd_config"), server_config(dir.path(), port)).unwrap();
        write_program(&at("session"), &session(home, state_root, dir.path()));
        fs::create_dir(at("bin")).unwrap();
        fs::write(at("ssh_config"), client_config(dir.path(), port)).unwrap();
        // `ssh` ignores HOME, and reads the configuration of the user's account.
        let ssh = needs::path_of("ssh").unwrap();
        let wrapper = format!(
            "#!/bin/sh\nexec '{}' -F '{}' \"$@\"\n",
            ssh.display(),
            at("ssh_config").display()
        );
        write_program(&at("bin/ssh"), &wrapper);
        if nix::unistd::geteuid().is_root() {
            // A service manager creates it otherwise.
            fs::create_dir_all("/run/sshd").unwrap();
        }
        let log = fs::File::create(at("log")).unwrap();
        let child = Command::new(sshd)
            .args(["-D", "-e", "-f"])
            .arg(at("sshd_config"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let server = Self { child, dir, port };
        let is_listening = || server.log().contains("Server listening on");
        wait_until("sshd listens", is_listening);
        Some(server)
    }

    /// `PATH` in which `ssh` knows the server.
    #[must_use]
    pub fn path(&self) -> String {
        let path = std::env::var("PATH").unwrap();
        format!("{}:{path}", self.dir.path().join("bin").display())
    }

    /// Log of the server.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// The file of known hosts of the client.
    #[must_use]
    pub fn known_hosts(&self) -> PathBuf {
        self.dir.path().join("known")
    }

    /// Replaces the keys that may log in.
    pub fn authorize(&self, key: &str) {
        let key = self.dir.path().join(format!("{key}.pub"));
        fs::copy(key, self.dir.path().join("authorized")).unwrap();
    }

    /// Replaces the keys that may log in by one that may do nothing but talk to the daemon, as
    /// docs/security.md restricts it.
    pub fn authorize_only_gdn(&self, key: &str) {
        let key = fs::read_to_string(self.dir.path().join(format!("{key}.pub"))).unwrap();
        let line = format!("restrict,command=\"{ONLY_GDN}\" {key}");
        fs::write(self.dir.path().join("authorized"), line).unwrap();
        // The command of the fixture's configuration has precedence over that of a key.
        self.begin_sessions_with(&format!("COMMAND='{ONLY_GDN}'"));
    }

    /// Replaces the lines of the shell that begin each session.
    pub fn begin_sessions_with(&self, lines: &str) {
        fs::write(self.dir.path().join("begin"), lines).unwrap();
    }

    /// Kills all connections, as a network that fails. The server continues to listen.
    pub fn cut(&self) {
        let server = self.child.id();
        let is_below = |pid: u32| {
            let mut ancestors =
                std::iter::successors(processes::parent(pid), |pid| processes::parent(*pid));
            ancestors.any(|ancestor| ancestor == server)
        };
        for process in processes::all() {
            if process.program().starts_with("sshd") && is_below(process.pid) {
                processes::signal(process.pid, Signal::SIGKILL);
            }
        }
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        self.cut();
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn keygen(path: &Path) {
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(path)
        .status();
    assert!(made.unwrap().success());
}

fn write_program(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn server_config(dir: &Path, port: u16) -> String {
    let dir = dir.display();
    format!(
        "ListenAddress 127.0.0.1\nPort {port}\nHostKey {dir}/host\nAuthorizedKeysFile {dir}/authorized\n\
         StrictModes no\nUsePAM no\nPidFile none\nPasswordAuthentication no\n\
         KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n\
         ForceCommand exec /bin/sh {dir}/session\n"
    )
}

fn client_config(dir: &Path, port: u16) -> String {
    let dir = dir.display();
    format!(
        "Host {ALIAS}\n  HostName 127.0.0.1\n  Port {port}\nHost *\n  IdentityFile {dir}/user\n\
         \x20 IdentitiesOnly yes\n  UserKnownHostsFile {dir}/known\n  GlobalKnownHostsFile {dir}/none\n\
         \x20 StrictHostKeyChecking yes\n"
    )
}

/// Runs a session's command with the environment of the home instead of the account's.
fn session(home: &Home, state_root: &Path, dir: &Path) -> String {
    let path = std::env::var("PATH").unwrap();
    let bin = bin_dir().display();
    let (state, home) = (state_root, home.path().display());
    format!(
        "exec env -i PATH='{bin}:{path}' HOME='{home}' GOONDAN_STATE_ROOT='{}' COMMAND=\"$SSH_ORIGINAL_COMMAND\" \\\n\
         \x20 /bin/sh -c 'if [ -e {begin} ]; then . {begin}; fi; eval \"$COMMAND\"'\n",
        state.display(),
        begin = dir.join("begin").display(),
    )
}
