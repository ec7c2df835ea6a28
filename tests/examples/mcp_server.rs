//! A server of the Model Context Protocol over stdio. See `goondan_tests::mcp`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a part of the tests, which speaks over its output and panics where a test is to fail"
)]

use std::process::ExitCode;

use goondan_tests::mcp::{Outcome, Server};

fn main() -> ExitCode {
    let token = std::env::var("SERVER_TOKEN");
    let mut server = Server::new(token.as_deref().unwrap_or("none"));
    let mut lines = std::io::stdin().lines();
    loop {
        for told in server.take_told() {
            eprintln!("{told}");
        }
        let Some(line) = lines.next() else {
            return ExitCode::SUCCESS;
        };
        match server.take(&serde_json::from_str(&line.unwrap()).unwrap()) {
            Outcome::Say(messages) => messages.iter().for_each(|message| println!("{message}")),
            Outcome::Die(code) => return ExitCode::from(code),
        }
    }
}
