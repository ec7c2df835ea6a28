//! A local PostgreSQL server on a Unix socket in the demo's directory.
//!
//! PostgreSQL refuses to run as root. For root it runs as `postgres` or `nobody`.

use std::fmt::Write as _;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::unistd::{Uid, User};

use crate::exit::Exit;
use crate::failure::Failure;

/// The role that owns the database.
const ROLE: &str = "goondan";

/// Directories of distribution packages, with the prefix of the versioned directory.
const PLACES: [(&str, &str); 2] = [("/usr/lib/postgresql", ""), ("/usr", "pgsql-")];

const INSTALL: &str = "install PostgreSQL 15 or newer, such as with `apt install postgresql`, or add the directory of `initdb` and `pg_ctl` to PATH";

#[derive(Debug)]
pub(super) struct DemoPostgres {
    programs: PathBuf,
    dir: PathBuf,
    user: Option<User>,
}

impl DemoPostgres {
    /// Creates a database in a new directory and starts a server that no other user can reach.
    pub(super) fn start(dir: PathBuf) -> Result<Self, Failure> {
        let Some(programs) = programs() else {
            let exit = Exit::StartFailed;
            return Err(Failure::new(exit, "PostgreSQL server not found", INSTALL));
        };
        let server = Self {
            programs,
            dir,
            user: other_user()?,
        };
        server.make_dir().map_err(|error| {
            let hint = "free disk space in the temporary directory, or set TMPDIR to another one";
            Failure::of(Exit::Internal, &error, hint)
        })?;
        let data = server.data().into_os_string();
        let mut make = server.command("initdb");
        make.args(["--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"]);
        server.run(make.args(["--username", ROLE, "--pgdata"]).arg(data))?;
        server
            .set()
            .map_err(|error| Failure::of(Exit::Internal, &error, "cannot set up the server"))?;
        server.control(&["start", "--wait", "--timeout=60"])?;
        Ok(server)
    }

    /// Stops the server and waits until it has exited.
    pub(super) fn stop(self) -> Result<(), Failure> {
        self.control(&["stop", "--wait", "--mode=fast"])
    }

    pub(super) fn url(&self) -> String {
        let host = percent_encoded(&self.dir);
        format!("postgres:///postgres?user={ROLE}&host={host}")
    }

    /// Directory of the server, including its log.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    fn make_dir(&self) -> io::Result<()> {
        DirBuilder::new().mode(0o700).create(&self.dir)?;
        match &self.user {
            Some(user) => chown(&self.dir, Some(user.uid.as_raw()), Some(user.gid.as_raw())),
            None => Ok(()),
        }
    }

    /// Configures the server to listen only in its directory.
    fn set(&self) -> io::Result<()> {
        let dir = self.dir.to_string_lossy().replace('\'', "''");
        let mut settings = OpenOptions::new()
            .append(true)
            .open(self.data().join("postgresql.conf"))?;
        writeln!(settings, "listen_addresses = ''")?;
        writeln!(settings, "unix_socket_directories = '{dir}'")
    }

    fn control(&self, args: &[&str]) -> Result<(), Failure> {
        let mut command = self.command("pg_ctl");
        command.args(args).arg("--silent").arg("--pgdata");
        command.arg(self.data()).arg("--log").arg(self.log());
        self.run(&mut command)
    }

    fn run(&self, command: &mut Command) -> Result<(), Failure> {
        let program = command.get_program().to_owned();
        // The server inherits these streams. A pipe would stay open as long as the server runs.
        let told = self.dir.with_extension("told");
        let streams = created(&told).and_then(|file| Ok((file.try_clone()?, file)));
        let ran = streams.and_then(|(stdout, stderr)| {
            let command = command.stdin(Stdio::null());
            command.stdout(stdout).stderr(stderr).status()
        });
        match ran {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => {
                let words = [told, self.log()].map(|it| fs::read_to_string(it).unwrap_or_default());
                let words = words.join("\n");
                let last = words.lines().rfind(|line| !line.trim().is_empty());
                let message = format!(
                    "{} failed ({status}): {}",
                    program.display(),
                    last.unwrap_or("no error output")
                );
                let hint = "check that PostgreSQL works on this machine; the path of a socket must be short: set TMPDIR";
                Err(Failure::new(Exit::StartFailed, message, hint))
            }
            Err(error) => Err(Failure::of(Exit::StartFailed, &error, INSTALL)),
        }
    }

    /// Command for a PostgreSQL program, in its own process group so that Ctrl-C does not reach it.
    fn command(&self, program: &str) -> Command {
        let program = self.programs.join(program);
        let mut command = Command::new(program);
        if let Some(user) = &self.user {
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        command.process_group(0).current_dir("/");
        command
    }
}

/// User that runs the server if this process is root.
fn other_user() -> Result<Option<User>, Failure> {
    if !Uid::effective().is_root() {
        return Ok(None);
    }
    let mut users = ["postgres", "nobody"].into_iter();
    let found = users.find_map(|name| User::from_name(name).ok().flatten());
    let none = || {
        Failure::new(
            Exit::StartFailed,
            "PostgreSQL does not run as root, and neither user `postgres` nor user `nobody` exists",
            "run the demo as a user other than root",
        )
    };
    found.map(Some).ok_or_else(none)
}

/// Directory of the PostgreSQL programs: from `PATH`, otherwise the newest version of the distribution.
fn programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let of_path: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let mut of_versions = Vec::new();
    for (place, prefix) in PLACES {
        for entry in fs::read_dir(place).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let version = name.to_str().and_then(|name| name.strip_prefix(prefix));
            let version: Option<u32> = version.and_then(|version| version.parse().ok());
            of_versions.extend(version.map(|it| (it, entry.path().join("bin"))));
        }
    }
    of_versions.sort();
    let of_versions = of_versions.into_iter().rev().map(|(_, place)| place);
    let mut places = of_path.into_iter().chain(of_versions);
    places.find(|place| {
        ["initdb", "pg_ctl", "postgres"]
            .iter()
            .all(|it| place.join(it).is_file())
    })
}

/// Percent-encodes a path for use in a URL.
fn percent_encoded(path: &Path) -> String {
    let mut encoded = String::new();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
                encoded.push(char::from(*byte));
            }
            // Writing to a `String` does not fail.
            byte => drop(write!(encoded, "%{byte:02X}")),
        }
    }
    encoded
}

#[expect(
    clippy::disallowed_methods,
    reason = "temporary output of a program, removed afterwards"
)]
fn created(path: &Path) -> io::Result<fs::File> {
    fs::File::create(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_in_a_url_is_percent_encoded() {
        let path = Path::new("/tmp/a b&host=%/é");
        assert_eq!(percent_encoded(path), "/tmp/a%20b%26host%3D%25/%C3%A9");
    }
}
