//! The other machine of a relay, and the line to it, which a test can cut and restore.

use std::io::{BufRead as _, BufReader};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::wait::wait_for;

/// A certificate and its key, as PEM.
#[derive(Debug, Clone, Copy)]
pub struct Identity {
    pub certificate: &'static str,
    pub key: &'static str,
}

/// The daemon's side.
pub const RELAY: Identity = Identity {
    certificate: include_str!("../../connector-process/tests/fixtures/relay.pem"),
    key: include_str!("../../connector-process/tests/fixtures/relay.key"),
};

/// The other machine.
pub const FAR: Identity = Identity {
    certificate: include_str!("../../connector-process/tests/fixtures/far.pem"),
    key: include_str!("../../connector-process/tests/fixtures/far.key"),
};

pub const STRANGER: Identity = Identity {
    certificate: include_str!("../../connector-process/tests/fixtures/localhost.pem"),
    key: include_str!("../../connector-process/tests/fixtures/localhost.key"),
};

impl Identity {
    /// The SHA-256 of the certificate, in hexadecimal digits.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let lines = self.certificate.lines();
        let base64: String = lines.filter(|line| !line.starts_with("-----")).collect();
        let der = BASE64_STANDARD.decode(base64).unwrap();
        let digest = Sha256::digest(der);
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// A line between the two machines.
#[derive(Debug, Clone)]
pub struct NetworkLine {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    is_cut: bool,
    streams: Vec<TcpStream>,
}

impl NetworkLine {
    /// A line to this address. It ends with the test's process.
    #[must_use]
    pub fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let line = Self {
            address: listener.local_addr().unwrap(),
            state: Arc::default(),
        };
        let state = Arc::clone(&line.state);
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let mut state = state.lock().unwrap();
                let far = TcpStream::connect(target);
                let Some(far) = far.ok().filter(|_| !state.is_cut) else {
                    continue;
                };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    pump(from.try_clone().unwrap(), to.try_clone().unwrap());
                }
                state.streams.extend([near, far]);
            }
        });
        line
    }

    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts all connections, and rejects new ones.
    pub fn cut(&self) {
        let mut state = self.state.lock().unwrap();
        state.is_cut = true;
        for stream in state.streams.drain(..) {
            // It may have ended already.
            drop(stream.shutdown(Shutdown::Both));
        }
    }

    /// Accepts connections again.
    pub fn mend(&self) {
        self.state.lock().unwrap().is_cut = false;
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream) {
    std::thread::spawn(move || {
        drop(std::io::copy(&mut from, &mut to));
        drop(to.shutdown(Shutdown::Both));
    });
}

/// The other machine: `relay-to`, and its children.
#[derive(Debug)]
pub struct FarSide {
    process: Child,
    log: Arc<Mutex<Vec<Value>>>,
}

impl FarSide {
    /// Starts it with `binary` in a separate directory, which is also its `HOME`. `work` configures
    /// what it relays.
    #[must_use]
    pub fn start(
        binary: &Path,
        directory: &Path,
        (relay, identity): (SocketAddr, Identity),
        work: &Value,
    ) -> Self {
        std::fs::create_dir_all(directory).unwrap();
        std::fs::write(directory.join("own.pem"), identity.certificate).unwrap();
        std::fs::write(directory.join("own.key"), identity.key).unwrap();
        let mut written = json!({
            "relay": relay, "fingerprint": RELAY.fingerprint(), "certificate": "own.pem", "key": "own.key",
        });
        for (name, value) in work.as_object().unwrap() {
            written[name] = value.clone();
        }
        let file = directory.join("relay.json");
        std::fs::write(&file, written.to_string()).unwrap();
        let mut process = Command::new(binary)
            .arg("relay-to")
            .arg(file)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", directory)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let read = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let line = serde_json::from_str(&line).unwrap_or(Value::String(line));
                read.lock().unwrap().push(line);
            }
        });
        Self { process, log }
    }

    /// Waits for a line of its log with this message; returns the last one.
    #[must_use]
    pub fn log_line(&self, message: &str) -> Value {
        wait_for(message, || {
            let log = self.log.lock().unwrap();
            let mut found = log.iter().filter(|line| line["message"] == message);
            found.next_back().cloned()
        })
    }

    #[must_use]
    pub fn log(&self) -> String {
        format!("{:?}", self.log.lock().unwrap())
    }

    /// Asks it to stop, and waits until it has.
    #[must_use]
    pub fn stop(mut self) -> ExitStatus {
        let pid = i32::try_from(self.process.id()).unwrap();
        let pid = nix::unistd::Pid::from_raw(pid);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        wait_for("the other machine to stop", || {
            self.process.try_wait().unwrap()
        })
    }
}

impl Drop for FarSide {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
