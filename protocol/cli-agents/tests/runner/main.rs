//! Transcripts in the formats of real programs, parsed whole, in chunks, and damaged.

#![expect(clippy::unwrap_used, reason = "tests")]

mod formats;
mod hostile;
mod pieces;
mod recorded;
mod replays;
mod stream;

use goondan_cli_agents::{CliEvent, Format, Parser, Setup};

const TRANSCRIPTS: [(&str, Format); 6] = [
    ("claude.jsonl", Format::ClaudeStreamJson),
    ("claude_limit.jsonl", Format::ClaudeStreamJson),
    ("codex.jsonl", Format::CodexJson),
    ("codex_limit.jsonl", Format::CodexJson),
    ("acp.jsonl", Format::Acp),
    ("plain.txt", Format::Plain),
];

fn transcript(name: &str) -> Vec<u8> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    std::fs::read(path.join(name)).unwrap()
}

fn setup() -> Setup {
    Setup {
        prompt: String::from_utf8(transcript("prompt.txt")).unwrap(),
        is_resumed: false,
    }
}

fn read(format: Format, pieces: &[&[u8]]) -> Vec<CliEvent> {
    read_as(format, &setup(), pieces)
}

fn read_as(format: Format, setup: &Setup, pieces: &[&[u8]]) -> Vec<CliEvent> {
    let mut parser = Parser::new(format, setup);
    let mut events: Vec<CliEvent> = pieces.iter().flat_map(|piece| parser.push(piece)).collect();
    events.extend(parser.end());
    events
}
