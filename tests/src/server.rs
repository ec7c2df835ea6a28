//! Third-party servers, if they are installed.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

/// A server that runs until this is dropped.
#[derive(Debug)]
pub struct ServerProcess(Child);

impl ServerProcess {
    /// Starts it, and waits until it reports on its stdout that it listens.
    #[must_use]
    pub fn start(command: &mut Command, listening: &str) -> Self {
        let command = command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().unwrap();
        let mut printed = BufReader::new(process.stdout.take().unwrap());
        let server = Self(process);
        let mut line = String::new();
        while !line.contains(listening) {
            line.clear();
            assert!(
                printed.read_line(&mut line).unwrap() > 0,
                "it did not start"
            );
        }
        // Its later output is discarded, and must not block it.
        std::thread::spawn(move || std::io::copy(&mut printed, &mut std::io::sink()));
        server
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Ports that are free now. If another process takes one, only this test fails.
#[must_use]
pub fn free_ports<const N: usize>() -> [u16; N] {
    let held = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    held.map(|held| held.local_addr().unwrap().port())
}
