//! Cost of a sandbox for turns that run a command in a session of `bash`.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use goondan_tests::{Daemon, Home};

use crate::AgentsBenchResult;
use crate::client::BenchClient;

const AGENTS: usize = 8;
/// Concurrent events per agent.
const DEPTH: usize = 2;
/// Number of turns before the next level is measured.
const TURNS: usize = 500;
const ROUNDS: usize = 6;
const LEVELS: [&str; 3] = ["off", "landlock", "full"];

/// An agent that runs one command in its session and answers.
const PROJECT: &str = r#"
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: instant}
spec:
  provider: scripted
  options:
    rules:
      - when: {step: 1}
        call: [{tool: bash__exec, args: {command: "echo $((1 + 1))", session: s}}]
      - say: Done.
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: worker}
spec:
  modelConfig: {modelRef: Model/instant}
  tools: [{kind: Tool, name: bash, package: "@goondan/base"}]
  sandbox: {require: LEVEL}
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {name: team}
spec:
  entryAgent: Agent/worker
  # Longer than the measure takes.
  policy: {lifecycle: {idleSeconds: 86400}}
"#;

/// A level, with a separate daemon.
struct BenchedLevel {
    level: &'static str,
    client: BenchClient,
    daemon: Daemon,
    /// Kept until its daemon has exited.
    _home: Home,
    took: Vec<Duration>,
}

/// Turns per second at each level, measured alternately.
pub(crate) fn turns_with_tools() -> AgentsBenchResult {
    let mut ways = Vec::new();
    for level in LEVELS {
        let home = Home::new(&PROJECT.replace("LEVEL", level));
        if home.gdn(&["validate"]).code != 0 {
            println!("tools: this machine does not give the level `{level}`");
            continue;
        }
        let daemon = Daemon::serving(&home).measured();
        let mut client = BenchClient::connect(&home)?;
        for agent in 0..AGENTS {
            client.ask_and_wait(&format!("agent-{agent}"))?;
        }
        ways.push(BenchedLevel {
            level,
            client,
            daemon,
            _home: home,
            took: Vec::new(),
        });
    }
    for _ in 0..ROUNDS {
        for way in &mut ways {
            let start = Instant::now();
            turns(&mut way.client)?;
            way.took.push(start.elapsed());
        }
    }
    let mut free = None;
    for way in &mut ways {
        way.took.sort_unstable();
        let median = way.took.get(ROUNDS / 2).copied().unwrap_or_default();
        let rate = TURNS as f64 / median.as_secs_f64();
        let free = *free.get_or_insert(rate);
        println!(
            "tools, {AGENTS} agents, a command in a session, level `{}`: {rate:.0} turns/s at the median of {ROUNDS} \
             rounds, {:+.1} %",
            way.level,
            (rate / free - 1.0) * 100.0
        );
    }
    for way in ways {
        way.daemon.stop();
    }
    Ok(())
}

fn turns(client: &mut BenchClient) -> AgentsBenchResult {
    let keys: Vec<String> = (0..AGENTS).map(|n| format!("agent-{n}")).collect();
    let mut asked: HashMap<u64, &str> = HashMap::new();
    for key in keys.iter().flat_map(|key| std::iter::repeat_n(key, DEPTH)) {
        asked.insert(client.ask(key)?, key);
    }
    let (mut sent, mut answered) = (asked.len(), 0);
    while answered < TURNS {
        let (id, _) = client.next_answer()?;
        let key = asked.remove(&id).ok_or("an answer to nothing")?;
        answered += 1;
        if sent < TURNS {
            asked.insert(client.ask(key)?, key);
            sent += 1;
        }
    }
    Ok(())
}
