//! Programs, keys and models that this machine offers to a new project.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum as _;
use serde_json::Value;

use super::offers::{CodingProgram, NEEDED_SECRETS, NeededSecret};

/// Address of Ollama without `OLLAMA_HOST`.
const OLLAMA: &str = "127.0.0.1:11434";

/// Port of Ollama.
const OLLAMA_PORT: u16 = 11434;

/// Maximum wait for Ollama to accept a connection.
const OLLAMA_CONNECT_LIMIT: Duration = Duration::from_millis(300);

/// Maximum wait for each part of Ollama's response.
const OLLAMA_READ_LIMIT: Duration = Duration::from_secs(1);

/// Maximum size of Ollama's list of models, in bytes.
const OLLAMA_BYTES_MAX: u64 = 1 << 20;

/// Programs, keys and models of this machine.
#[derive(Debug, Default)]
pub(super) struct LocalTools {
    pub(super) programs: Vec<FoundProgram>,
    /// Environment variables with a key that are set.
    pub(super) variables: BTreeSet<&'static str>,
    pub(super) ollama: Option<Ollama>,
}

/// An installed coding agent.
#[derive(Debug)]
pub(super) struct FoundProgram {
    pub(super) program: CodingProgram,
    /// Real path of its file.
    pub(super) path: PathBuf,
    /// True if its login directory exists.
    pub(super) has_login: bool,
}

/// A local Ollama that answers.
#[derive(Debug)]
pub(super) struct Ollama {
    /// Address and port.
    pub(super) address: String,
    /// Names of its models.
    pub(super) models: Vec<String>,
}

impl LocalTools {
    /// Inspects the environment and the machine, including the port of a local Ollama.
    pub(super) fn of_this_machine() -> Self {
        Self {
            programs: found_programs(),
            variables: Self::set_variables(),
            ollama: Self::ollama(),
        }
    }

    /// Environment variables with a key that are set.
    pub(super) fn set_variables() -> BTreeSet<&'static str> {
        let variables = NEEDED_SECRETS.iter().flat_map(|secret| secret.variables);
        let variables = variables.copied();
        let is_set =
            |name: &&'static str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        variables.filter(is_set).collect()
    }

    /// The local Ollama, if it answers.
    pub(super) fn ollama() -> Option<Ollama> {
        find_ollama(std::env::var("OLLAMA_HOST").ok().as_deref())
    }

    /// The variable that is set for a secret.
    pub(super) fn variable_of(&self, secret: &NeededSecret) -> Option<&'static str> {
        let mut variables = secret.variables.iter().copied();
        variables.find(|name| self.variables.contains(name))
    }

    pub(super) fn program(&self, program: CodingProgram) -> Option<&FoundProgram> {
        self.programs.iter().find(|found| found.program == program)
    }
}

/// Installed coding agents.
pub(super) fn found_programs() -> Vec<FoundProgram> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let home = std::env::home_dir();
    let programs = CodingProgram::value_variants().iter();
    let found = programs.filter_map(|program| {
        let login = home.as_ref().map(|home| home.join(program.login()));
        Some(FoundProgram {
            program: *program,
            path: in_path(&path, program.name())?,
            has_login: login.is_some_and(|login| login.is_dir()),
        })
    });
    found.collect()
}

/// The real path of a program in `PATH`.
fn in_path(path: &OsStr, name: &str) -> Option<PathBuf> {
    let mut files = std::env::split_paths(path).map(|directory| directory.join(name));
    let file = files.find(|file| is_executable(file))?;
    file.canonicalize().ok()
}

fn is_executable(file: &Path) -> bool {
    let metadata = file.metadata();
    metadata.is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
}

/// Queries the local Ollama for its models.
fn find_ollama(host: Option<&str>) -> Option<Ollama> {
    let address = ollama_address(host)?;
    let resolved: SocketAddr = address.to_socket_addrs().ok()?.next()?;
    let mut stream = TcpStream::connect_timeout(&resolved, OLLAMA_CONNECT_LIMIT).ok()?;
    stream.set_read_timeout(Some(OLLAMA_READ_LIMIT)).ok()?;
    stream.set_write_timeout(Some(OLLAMA_READ_LIMIT)).ok()?;
    // HTTP/1.0, so that the response is not chunked and ends with the connection.
    let request = format!("GET /api/tags HTTP/1.0\r\nhost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut response = String::new();
    let mut stream = stream.take(OLLAMA_BYTES_MAX);
    stream.read_to_string(&mut response).ok()?;
    let models = ollama_models(&response)?;
    Some(Ollama { address, models })
}

/// `host:port` of `OLLAMA_HOST`, if it is this machine: another machine is not called without a request.
fn ollama_address(host: Option<&str>) -> Option<String> {
    let Some(host) = host.map(str::trim).filter(|host| !host.is_empty()) else {
        return Some(OLLAMA.to_owned());
    };
    let host = host.strip_prefix("http://").unwrap_or(host);
    let host = host.trim_end_matches('/');
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) => (name, port.parse().ok()?),
        None => (host, OLLAMA_PORT),
    };
    match name {
        "" | "0.0.0.0" | "127.0.0.1" | "localhost" => Some(format!("127.0.0.1:{port}")),
        _ => None,
    }
}

/// The names in a response of `/api/tags`.
fn ollama_models(response: &str) -> Option<Vec<String>> {
    let (head, body) = response.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?;
    if status != "200" {
        return None;
    }
    let body: Value = serde_json::from_str(body).ok()?;
    let models = body.get("models")?.as_array()?.iter();
    let names = models.filter_map(|model| model.get("name")?.as_str());
    // Names become part of a YAML file and are shown on a terminal.
    let names = names.filter(|name| !name.is_empty() && !name.contains(char::is_control));
    Some(names.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn only_an_ollama_of_this_machine_is_called() {
        for (host, address) in [
            (None, Some("127.0.0.1:11434")),
            (Some(" "), Some("127.0.0.1:11434")),
            (Some("0.0.0.0"), Some("127.0.0.1:11434")),
            (Some("http://localhost:7000/"), Some("127.0.0.1:7000")),
            (Some(":7000"), Some("127.0.0.1:7000")),
            (Some("10.0.0.8:11434"), None),
            (Some("https://ollama.example.org"), None),
            (Some("localhost:port"), None),
        ] {
            assert_eq!(ollama_address(host).as_deref(), address, "{host:?}");
        }
    }

    #[test]
    fn models_of_a_running_ollama_are_listed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let asked = lines.next().unwrap().unwrap();
            for line in lines {
                if line.unwrap().is_empty() {
                    break;
                }
            }
            let body = r#"{"models": [{"name": "qwen3:8b"}, {"name": "bad\u001b"}, {}]}"#;
            let mut stream = stream;
            stream
                .write_all(format!("HTTP/1.0 200 OK\r\n\r\n{body}").as_bytes())
                .unwrap();
            asked
        });
        let found = find_ollama(Some(&address)).unwrap();
        assert_eq!(found.models, ["qwen3:8b"]);
        assert_eq!(found.address, address);
        assert_eq!(server.join().unwrap(), "GET /api/tags HTTP/1.0");
        // Its port is closed now.
        assert!(find_ollama(Some(&address)).is_none());
    }

    #[test]
    fn answers_that_are_not_from_ollama_are_ignored() {
        for response in [
            "",
            "HTTP/1.0 404 Not Found\r\n\r\n{\"models\": []}",
            "HTTP/1.0 200 OK\r\n\r\nhello",
            "HTTP/1.0 200 OK\r\n\r\n{\"models\": 7}",
        ] {
            assert_eq!(ollama_models(response), None, "{response}");
        }
    }

    #[test]
    fn only_executable_files_are_programs() {
        let path = std::env::join_paths(["/nonexistent", "/etc", "/bin"]).unwrap();
        assert!(in_path(&path, "sh").is_some());
        assert!(in_path(&path, "passwd").is_none_or(|file| !file.starts_with("/etc")));
        assert!(in_path(&path, "no-such-program").is_none());
    }
}
