//! Disk usage of a turn.

use std::fs;
use std::path::Path;

use goondan_tests::{Daemon, Home};

use crate::client::BenchClient;
use crate::{AgentsBenchResult, INSTANT, knob};

/// Concurrent events.
const DEPTH: usize = 16;
/// Bytes of an event's text.
const INPUT_BYTES: usize = 200;
/// A file of the conversation, and its description.
const FILES: [(&str, &str); 5] = [
    ("base.", "messages"),
    ("inbox.", "inbox"),
    ("manifest.", "what the store last knew"),
    ("runtime-events.", "runtime events"),
    ("llm.", "messages to and from models"),
];

/// Runs many turns of one conversation, and reports the bytes of its files per turn.
pub(crate) fn per_turn() -> AgentsBenchResult {
    let turns = knob("GOONDAN_BENCH_TURNS", 3_000);
    let home = Home::new(INSTANT);
    let daemon = Daemon::serving(&home).measured();
    let mut client = BenchClient::connect(&home)?;
    let text = "x".repeat(INPUT_BYTES);
    let (mut asked, mut answered) = (0, 0);
    while answered < turns {
        while asked < turns && asked < answered + DEPTH {
            client.say("main", &text)?;
            asked += 1;
        }
        client.next_answer()?;
        answered += 1;
    }
    daemon.stop();
    let dir = home.workspace_dir().join("instances/main");
    for (prefix, what) in FILES {
        let (plain, packed) = bytes_of(&dir, prefix)?;
        let packed = match packed {
            0 => String::new(),
            bytes => format!(", and {:.0} compressed", bytes as f64 / turns as f64),
        };
        println!(
            "bytes, {turns} turns of {INPUT_BYTES} bytes: {what}: {:.0} a turn in the current file{packed}",
            plain as f64 / turns as f64,
        );
    }
    Ok(())
}

/// Bytes of the files with this prefix, plain and compressed.
fn bytes_of(dir: &Path, prefix: &str) -> Result<(u64, u64), std::io::Error> {
    let (mut plain, mut packed) = (0, 0);
    for dir in [dir.to_owned(), dir.join("messages")] {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(prefix) {
                let bytes = entry.metadata()?.len();
                *(if name.ends_with(".gz") {
                    &mut packed
                } else {
                    &mut plain
                }) += bytes;
            }
        }
    }
    Ok((plain, packed))
}
