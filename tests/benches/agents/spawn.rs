//! Time from starting an agent's process until it is ready for turns. The benchmark plays the
//! daemon: it starts the real binary with one end of a socket pair and speaks the protocol.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use goondan_protocol::definition::{
    AgentAssignment, AgentDefinition, LoopBreaker, ModelDefinition, ModelProvider,
};
use goondan_protocol::envelope::Address;
use goondan_protocol::ipc::{Assignment, EnvelopeHeader, IPC_FD_VAR, ToAgent, Welcome};
use goondan_protocol::process_limits::ProcessLimits;
use goondan_protocol::sandbox::{Level, SandboxPolicy};
use goondan_protocol::version::Version;
use goondan_protocol::working_directory::CwdMode;
use goondan_tests::binaries::bin;
use goondan_tests::home::AGENT;
use serde_json::{Value, json};

use crate::{AgentsBenchResult, quantile_ms};

const ROUNDS: usize = 200;

/// Starts agents one after the other, alternating between the kinds of confinement.
pub(crate) fn spawn_to_ready() -> AgentsBenchResult {
    let work = tempfile::tempdir()?;
    let ways = [
        ("not confined", Some(Level::Off)),
        ("by Landlock, without programs", None),
        ("by mounts, with programs at `full`", Some(Level::Full)),
    ];
    let mut ways = ways
        .into_iter()
        .map(|(how, programs)| Ok((how, welcome(work.path(), programs)?, Vec::new())))
        .collect::<Result<Vec<_>, Box<dyn Error>>>()?;
    for _ in 0..ROUNDS {
        for (_, welcome, times) in &mut ways {
            times.push(start_one(welcome)?);
        }
    }
    for (how, _, times) in &mut ways {
        println!(
            "spawn, {how}: a process from its start until it asks for its conversation: p50 {:.2} ms, p99 {:.2} ms",
            quantile_ms(times, 500),
            quantile_ms(times, 990),
        );
    }
    Ok(())
}

/// Frame with an agent's identity; the agent starts programs at a level, or none.
fn welcome(dir: &Path, programs: Option<Level>) -> Result<Vec<u8>, Box<dyn Error>> {
    let bash = json!({
        "name": "bash", "source": {"kind": "builtin", "package": "@goondan/base", "name": "bash"},
        "errorMessageLimit": 1000,
    });
    let bash = programs.map(|_| serde_json::from_value(bash)).transpose()?;
    let assignment = AgentAssignment {
        workspace_id: "w".parse()?,
        instance_key: "main".parse()?,
        agent: AgentDefinition {
            name: "worker".parse()?,
            description: None,
            system_prompt: None,
            model: ModelDefinition {
                name: "instant".parse()?,
                model: "scripted".to_owned(),
                provider: ModelProvider::Scripted {
                    script: serde_json::from_value(json!({"rules": [{"say": "Done."}]}))?,
                },
            },
            tools: bash.into_iter().collect(),
            extensions: Vec::new(),
            max_steps_per_turn: 8,
            loop_breaker: LoopBreaker::default(),
            cwd_mode: CwdMode::default(),
            limits: ProcessLimits::default(),
            secret_files: Vec::new(),
            package_sandboxes: Vec::new(),
            extension_sandbox: None,
            skills: Vec::new(),
            contract: goondan_protocol::base_package::BaseContract::Own,
            swarm: None,
            project_work: None,
            sandbox: SandboxPolicy {
                require: programs.unwrap_or_default(),
                ..SandboxPolicy::off()
            },
        },
        work_dir: dir.to_owned(),
        project_root: dir.to_owned(),
        egress_socket: None,
        package_sockets: BTreeMap::new(),
        sandbox: None,
        run: None,
        changesets: None,
        task: None,
        node: None,
    };
    let welcome = ToAgent::Welcome(Box::new(Welcome {
        version: Version::current(),
        assignment: Assignment::Agent(Box::new(assignment)),
    }));
    let body = welcome.to_frame(&EnvelopeHeader::new(Address::Orchestrator, Address::Child))?;
    let mut frame = u32::try_from(body.len())?.to_be_bytes().to_vec();
    frame.extend(body);
    Ok(frame)
}

fn start_one(welcome: &[u8]) -> Result<Duration, Box<dyn Error>> {
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
    ours.write_all(welcome)?;
    expect(&mut ours, "confined")?;
    expect(&mut ours, "conversation.load")?;
    let elapsed = start.elapsed();
    // A process exits when its socket closes.
    drop(ours);
    child.wait()?;
    Ok(elapsed)
}

fn expect(stream: &mut UnixStream, kind: &str) -> AgentsBenchResult {
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
