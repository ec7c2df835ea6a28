//! PostgreSQL servers, each with its own directory and a socket in it.

use std::cell::RefCell;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid, User};
use tempfile::TempDir;

use crate::needs;
use crate::network::NetworkMachine;
use crate::wait::{wait_for, wait_until};

/// Owner of the databases.
pub const ROLE: &str = "goondan";

/// Certificates for `localhost`, and their authorities.
const FIXTURES: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../connector-process/tests/fixtures"
);

/// Directory of the PostgreSQL programs; none if they are missing, and the test is then listed as
/// skipped.
///
/// # Panics
///
/// If they are missing but required.
#[must_use]
pub fn programs() -> Option<PathBuf> {
    let of_config = Command::new("pg_config").arg("--bindir").output();
    let of_config = of_config
        .ok()
        .map(|it| PathBuf::from(String::from_utf8_lossy(&it.stdout).trim()));
    let versions = std::fs::read_dir("/usr/lib/postgresql");
    let of_versions = versions
        .into_iter()
        .flatten()
        .flatten()
        .map(|it| it.path().join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let of_path: Vec<_> = std::env::split_paths(&path).collect();
    let mut places = of_config.into_iter().chain(of_versions).chain(of_path);
    let found = places.find(|place| place.join("initdb").is_file());
    if found.is_none() {
        needs::left_out("there is no PostgreSQL server");
    }
    found
}

#[derive(Debug)]
pub struct PostgresServer {
    programs: PathBuf,
    dir: TempDir,
    settings: Vec<String>,
    port: u16,
    /// Machine that it runs on, if not the local one.
    machine: Option<NetworkMachine>,
    child: RefCell<Option<Child>>,
}

impl PostgresServer {
    /// An empty database, whose server is not started. None without PostgreSQL.
    #[must_use]
    pub fn made(settings: &[&str]) -> Option<Self> {
        Some(Self::empty(settings)?.with_database())
    }

    /// A server on a machine of a network, which accepts clients from that network. None without
    /// PostgreSQL.
    #[must_use]
    pub fn running_at(machine: &NetworkMachine, settings: &[&str]) -> Option<Self> {
        let server = Self::empty(settings)?.at(machine).with_database();
        let path = server.data().join("pg_hba.conf");
        let mut rules = std::fs::OpenOptions::new().append(true).open(path).unwrap();
        for database in ["all", "replication"] {
            writeln!(rules, "host {database} {ROLE} samenet trust").unwrap();
        }
        server.start();
        Some(server)
    }

    fn with_database(self) -> Self {
        let data = self.data();
        let made = self
            .command("initdb")
            .args(["--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"])
            .args(["--username", ROLE, "--pgdata"])
            .arg(&data)
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        self
    }

    /// Moves it to a machine of a network, where it listens.
    fn at(mut self, machine: &NetworkMachine) -> Self {
        let address = machine.address();
        self.settings.push(format!("listen_addresses={address}"));
        self.machine = Some(machine.clone());
        self
    }

    #[must_use]
    pub fn running(settings: &[&str]) -> Option<Self> {
        let server = Self::made(settings)?;
        server.start();
        Some(server)
    }

    /// A server on a local port with TLS, as `localhost`. None without PostgreSQL.
    #[must_use]
    pub fn with_tls() -> Option<Self> {
        let mut server = Self::made(&["ssl=on", "listen_addresses=*"])?;
        // The port stays free until the server binds it: the kernel hands out other ports first.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        server.port = free.local_addr().unwrap().port();
        drop(free);
        for (setting, fixture) in [
            ("ssl_cert_file", "localhost.pem"),
            ("ssl_key_file", "localhost.key"),
        ] {
            let file = server.dir.path().join(fixture);
            std::fs::copy(Path::new(FIXTURES).join(fixture), &file).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
            if let Some(user) = other_user() {
                chown(&file, Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
            }
            server
                .settings
                .push(format!("{setting}={}", file.display()));
        }
        server.start();
        Some(server)
    }

    /// Connection URL for a client that trusts the authority of a fixture.
    #[must_use]
    pub fn tls_url(&self, host: &str, authority: &str) -> String {
        let port = self.port;
        format!(
            "postgres://{ROLE}@{host}:{port}/postgres?sslmode=verify-full&sslrootcert={FIXTURES}/{authority}"
        )
    }

    /// A standby of a server, registered under a name.
    #[must_use]
    pub fn standby_of(primary: &Self, name: &str) -> Self {
        let host = primary.host().to_owned();
        let server = Self::empty(&[]).unwrap();
        server.copied_from(primary).following(&host, name)
    }

    /// A standby on one machine of a network, of a server on another, registered under its
    /// machine's name.
    #[must_use]
    pub fn standby_at(machine: &NetworkMachine, primary: &Self, settings: &[&str]) -> Self {
        let host = primary.machine.as_ref().unwrap().address().to_string();
        let server = Self::empty(settings).unwrap().at(machine);
        let server = server.copied_from(primary);
        server.following(&host, machine.name())
    }

    fn copied_from(self, primary: &Self) -> Self {
        let copied = self
            .command("pg_basebackup")
            .args(["--no-sync", "--checkpoint=fast", "--write-recovery-conf"])
            .args(["--username", ROLE, "--host"])
            .arg(primary.dir.path())
            .arg("--pgdata")
            .arg(self.data())
            .output()
            .unwrap();
        assert!(copied.status.success(), "{copied:?}");
        self
    }

    fn following(mut self, host: &str, name: &str) -> Self {
        // On the command line, so that it overrides the copied settings.
        self.settings.push(format!(
            "primary_conninfo=host={host} user={ROLE} application_name={name}"
        ));
        self.start();
        self
    }

    /// Promotes a standby, and waits until it accepts writes.
    pub fn promote(&self) {
        assert_eq!(self.sql("SELECT pg_promote()"), "t");
    }

    fn empty(settings: &[&str]) -> Option<Self> {
        let programs = programs()?;
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        if let Some(user) = other_user() {
            chown(dir.path(), Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
        }
        Some(Self {
            programs,
            dir,
            settings: settings.iter().map(ToString::to_string).collect(),
            port: 5432,
            machine: None,
            child: RefCell::new(None),
        })
    }

    /// Starts it, and waits until it accepts clients.
    pub fn start(&self) {
        // The tests kill programs, not machines.
        let mut settings = vec!["fsync=off".to_owned(), "listen_addresses=".to_owned()];
        settings.push(format!("port={}", self.port));
        settings.extend(self.settings.iter().cloned());
        let mut command = self.command("postgres");
        command
            .arg("-D")
            .arg(self.data())
            .arg("-k")
            .arg(self.dir.path());
        for setting in settings {
            command.arg("-c").arg(setting);
        }
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.dir.path().join("log"))
            .unwrap();
        let child = command.stderr(log).stdout(Stdio::null()).spawn().unwrap();
        *self.child.borrow_mut() = Some(child);
        wait_until("the server answers", || {
            self.shows_why_it_ended();
            self.try_sql("SELECT 1").is_some_and(|it| it == "1")
        });
    }

    fn shows_why_it_ended(&self) {
        let mut child = self.child.borrow_mut();
        if child.as_mut().unwrap().try_wait().unwrap().is_some() {
            let log = std::fs::read_to_string(self.dir.path().join("log"));
            panic!("the server has ended: {}", log.unwrap());
        }
    }

    pub fn crash(&self) {
        if let Some(mut child) = self.child.borrow_mut().take() {
            kill(pid_of(&child), Signal::SIGQUIT).ok();
            child.wait().unwrap();
        }
    }

    /// Result of a statement, as `psql` prints it.
    #[must_use]
    pub fn sql(&self, text: &str) -> String {
        self.try_sql(text).unwrap_or_else(|| panic!("{text}"))
    }

    fn try_sql(&self, text: &str) -> Option<String> {
        let mut command = Command::new(self.programs.join("psql"));
        command.args(["-X", "-A", "-t", "-U", ROLE, "-d", "postgres", "-c", text]);
        command.args(["-p", &self.port.to_string(), "-h"]);
        let ran = command.arg(self.dir.path()).output().unwrap();
        let printed = String::from_utf8(ran.stdout).unwrap().trim().to_owned();
        ran.status.success().then_some(printed)
    }

    /// The directory of its socket, which is its host.
    #[must_use]
    pub fn host(&self) -> &str {
        self.dir.path().to_str().unwrap()
    }

    #[must_use]
    pub fn url(&self) -> String {
        url_of(&[self])
    }

    /// Pauses a standby: it receives and confirms nothing until the pause ends.
    #[must_use]
    pub fn paused(&self) -> PausedStandby {
        let receiver = "SELECT pid FROM pg_stat_wal_receiver WHERE status = 'streaming'";
        let pid = wait_for("the standby receives", || self.sql(receiver).parse().ok());
        let paused = PausedStandby(Pid::from_raw(pid));
        kill(paused.0, Signal::SIGSTOP).unwrap();
        paused
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// A PostgreSQL program. The server does not run as root, and ends with the test.
    fn command(&self, program: &str) -> Command {
        let program = self.programs.join(program);
        let Some(user) = other_user() else {
            return Command::new(program);
        };
        let prefix = self.machine.as_ref().map(NetworkMachine::prefix);
        let mut words = prefix.into_iter().flatten().chain(["setpriv".to_owned()]);
        let mut command = Command::new(words.next().unwrap());
        command
            .args(words)
            .args(["--pdeathsig", "QUIT", "--clear-groups"])
            .arg(format!("--reuid={}", user.uid))
            .arg(format!("--regid={}", user.gid))
            .arg(program)
            .process_group(0)
            .current_dir(Path::new("/"));
        command
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.crash();
    }
}

#[derive(Debug)]
pub struct PausedStandby(Pid);

impl Drop for PausedStandby {
    fn drop(&mut self) {
        kill(self.0, Signal::SIGCONT).ok();
    }
}

/// Connection URL for several servers.
#[must_use]
pub fn url_of(servers: &[&PostgresServer]) -> String {
    let hosts: Vec<_> = servers.iter().map(|server| server.host()).collect();
    format!("postgres:///postgres?user={ROLE}&host={}", hosts.join(","))
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(child.id().try_into().unwrap())
}

/// User that the server runs as, if this process is root.
fn other_user() -> Option<User> {
    let named = |name| User::from_name(name).ok().flatten();
    let other = Uid::effective().is_root();
    other.then(|| named("postgres").or_else(|| named("nobody")).unwrap())
}
