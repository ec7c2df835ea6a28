//! Time from a committed changeset to the next step on the new revision, within one turn, with the
//! real binaries; compared with the same path without a change. See `docs/performance.md`.

#![expect(clippy::print_stdout, reason = "a measure prints its result")]

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use goondan_protocol::time::Timestamp;
use goondan_tests::daemon::Daemon;
use goondan_tests::home::Home;
use serde_json::Value;

const ROUNDS: usize = 15;
/// Maximum duration of an activation, in milliseconds.
const TARGET_MS: i64 = 100;

fn main() -> Result<(), Box<dyn Error>> {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/self-improving");
    let home = Home::new(&fs::read_to_string(example.join("goondan.yaml"))?);
    let prompt = fs::read_to_string(example.join("prompts/poet.md"))?;
    home.write("project/prompts/poet.md", &prompt);
    let _daemon = Daemon::serving(&home);
    home.ask("main", "hello");
    for round in 0..ROUNDS {
        home.ask("main", &format!("answer in verse{round}"));
    }
    let messages: PathBuf = home.work_dir("main").with_file_name("messages");
    let events = lines(&messages.join("runtime-events.jsonl"))?;
    let (mut changed, mut unchanged) = gaps(&events)?;
    println!(
        "{ROUNDS} changesets, each within a turn; from the end of a call to the next step, medians in ms"
    );
    for (name, times) in [
        ("with another revision", &mut changed),
        ("with the same", &mut unchanged),
    ] {
        times.sort_unstable();
        let at = |part: usize| times.get(part).copied().unwrap_or_default();
        let median = at(times.len() / 2);
        println!(
            "{name:>22}: {median} ({} to {}, {} of them){}",
            at(0),
            at(times.len().saturating_sub(1)),
            times.len(),
            if median <= TARGET_MS {
                ""
            } else {
                ", too slow"
            },
        );
    }
    Ok(())
}

fn lines(path: &Path) -> Result<Vec<Value>, Box<dyn Error>> {
    let text = fs::read_to_string(path)?;
    let lines = text.lines().map(serde_json::from_str);
    Ok(lines.collect::<Result<_, _>>()?)
}

fn text<'v>(event: &'v Value, name: &str) -> Option<&'v str> {
    event.get(name).and_then(Value::as_str)
}

/// Time from each accepted commit to the next step, which has a new revision, and from each other
/// call to the next step. In milliseconds.
fn gaps(events: &[Value]) -> Result<(Vec<i64>, Vec<i64>), Box<dyn Error>> {
    let (mut changed, mut unchanged) = (Vec::new(), Vec::new());
    let mut call = None;
    for event in events {
        let at = text(event, "timestamp").ok_or("an event without a time")?;
        let at = at.parse::<Timestamp>()?.as_unix_millis();
        let revision = text(event, "bundleRevision");
        match text(event, "type") {
            Some("tool.completed") => {
                let is_commit = text(event, "toolName") == Some("swarm-bundle__commit");
                call = Some((at, revision, is_commit));
            }
            Some("step.started") => match call.take() {
                Some((since, before, true)) if before != revision => changed.push(at - since),
                Some((since, _, false)) => unchanged.push(at - since),
                Some((_, _, true)) => return Err("a commit without another revision".into()),
                None => {}
            },
            _ => {}
        }
    }
    Ok((changed, unchanged))
}
