//! From starting an agent's process to its being ready for turns. The measure plays the daemon: it
//! starts the real binary with one end of a socket pair and speaks the protocol.

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use goondan_protocol::ipc::IPC_FD_VAR;
use goondan_protocol::version::Version;
use goondan_tests::binaries::bin;
use goondan_tests::home::AGENT;
use serde_json::{Value, json};

use crate::{Outcome, quantile_ms};

const ROUNDS: usize = 200;

/// Starts agents one after the other.
pub(crate) fn spawn_to_ready() -> Outcome {
    let work = tempfile::tempdir()?;
    let dir = work.path().to_str().ok_or("a path that is no text")?;
    let welcome = json!({
        "type": "welcome", "from": "orchestrator", "to": "agent:worker:main",
        "payload": {"version": Version::current(), "assignment": {"role": "agent", "definition": {
            "workspaceId": "w", "instanceKey": "main", "workDir": dir, "projectRoot": dir,
            "agent": {"name": "worker", "tools": [], "maxStepsPerTurn": 8, "model": {
                "name": "instant", "model": "scripted",
                "provider": {"kind": "scripted", "script": {"rules": [{"say": "Done."}]}},
            }},
        }}},
    });
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        times.push(start_one(&welcome)?);
    }
    println!(
        "spawn: a process from its start until it asks for its conversation: p50 {:.2} ms, p99 {:.2} ms",
        quantile_ms(&mut times, 500),
        quantile_ms(&mut times, 990),
    );
    Ok(())
}

fn start_one(welcome: &Value) -> Result<Duration, Box<dyn Error>> {
    let (mut ours, theirs) = UnixStream::pair()?;
    let start = Instant::now();
    let mut child = Command::new(bin(AGENT))
        .env_clear()
        .env(IPC_FD_VAR, "0")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()?;
    expect(&mut ours, "hello")?;
    let body = serde_json::to_vec(welcome)?;
    ours.write_all(&u32::try_from(body.len())?.to_be_bytes())?;
    ours.write_all(&body)?;
    expect(&mut ours, "conversation.load")?;
    let elapsed = start.elapsed();
    // A process whose socket closes ends.
    drop(ours);
    child.wait()?;
    Ok(elapsed)
}

fn expect(stream: &mut UnixStream, kind: &str) -> Outcome {
    let mut header = [0; 4];
    stream.read_exact(&mut header)?;
    let mut body = vec![0; usize::try_from(u32::from_be_bytes(header))?];
    stream.read_exact(&mut body)?;
    let frame: Value = serde_json::from_slice(&body)?;
    if frame.get("type").and_then(Value::as_str) == Some(kind) {
        Ok(())
    } else {
        Err(format!("`{kind}` was expected, and this came: {frame}").into())
    }
}
