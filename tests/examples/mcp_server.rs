//! A server of the Model Context Protocol over stdio. See `goondan_tests::mcp`.
//!
//! With `--pieces FILE` it first writes each line of that file to its stderr in two pieces,
//! separated by a tab in the file: the second piece only after the reader has read the first.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test program, which prints its protocol and panics to fail a test"
)]

use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use goondan_tests::mcp::{McpReaction, McpTestServer};

/// Maximum time until the reader reads a piece.
const TAKEN_TIMEOUT: Duration = Duration::from_secs(20);

/// Writes these lines in pieces, so that no two are read together.
fn write_in_pieces(lines: &str) {
    let mut stderr = std::io::stderr().lock();
    for piece in lines.lines().flat_map(|line| line.split('\t')) {
        let piece = piece.replace("\\n", "\n");
        stderr.write_all(piece.as_bytes()).unwrap();
        let begun = Instant::now();
        while rustix::io::ioctl_fionread(&stderr).unwrap() > 0 {
            assert!(begun.elapsed() < TAKEN_TIMEOUT, "nobody reads");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    if let (Some("--pieces"), Some(file)) = (args.next().as_deref(), args.next()) {
        write_in_pieces(&std::fs::read_to_string(file).unwrap());
        return ExitCode::SUCCESS;
    }
    let token = std::env::var("SERVER_TOKEN");
    let mut server = McpTestServer::new(token.as_deref().unwrap_or("none"));
    let mut lines = std::io::stdin().lines();
    loop {
        for told in server.take_told() {
            eprintln!("{told}");
        }
        let Some(line) = lines.next() else {
            return ExitCode::SUCCESS;
        };
        match server.take(&serde_json::from_str(&line.unwrap()).unwrap()) {
            McpReaction::Say(messages) => messages.iter().for_each(|message| println!("{message}")),
            McpReaction::Die(code) => return ExitCode::from(code),
        }
    }
}
