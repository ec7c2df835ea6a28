//! A server of the Model Context Protocol, as a program and over HTTP.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

/// The program, for `python3`.
pub const SERVER: &str = include_str!("mcp_server.py");

/// The same server over HTTP, gone at the end of the test.
#[derive(Debug)]
pub struct HttpServer {
    child: Child,
    port: u16,
}

impl HttpServer {
    /// A server that takes requests with this bearer token.
    #[must_use]
    pub fn start(token: &str) -> Self {
        let mut child = Command::new("python3")
            .args(["-c", SERVER, "http", token])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut told = BufReader::new(child.stdout.take().unwrap());
        told.read_line(&mut line).unwrap();
        let port = line.trim().parse().unwrap();
        Self { child, port }
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
