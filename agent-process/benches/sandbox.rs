//! Cost of a sandbox for a program: `true` started bare, and under the tool supervisor without a
//! sandbox and at each level, in turns. See `docs/performance.md`.

#![expect(clippy::print_stdout, reason = "a measure prints its result")]

use std::error::Error;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use goondan_confinement::{Level, Network, SandboxPath, SandboxPolicy};

const BINARY: &str = env!("CARGO_BIN_EXE_goondan-agent-process");
const ROUNDS: usize = 400;
const SYSTEM: [&str; 5] = ["/usr", "/bin", "/lib", "/lib64", "/etc"];

fn main() -> Result<(), Box<dyn Error>> {
    let work = tempfile::tempdir()?;
    let mut ways = vec![SandboxVariant::new("bare", None)];
    for level in [Level::Off, Level::Landlock, Level::Full] {
        let policy = policy(level, work.path())?;
        ways.push(SandboxVariant::new(
            &level.to_string(),
            Some(serde_json::to_string(&policy)?),
        ));
    }
    for _ in 0..ROUNDS {
        for way in &mut ways {
            let start = Instant::now();
            way.run(work.path())?;
            way.times.push(start.elapsed());
        }
    }
    println!("{ROUNDS} rounds of `true`, in ms");
    println!("{:>10} {:>7} {:>7}", "", "p50", "p99");
    for way in &mut ways {
        way.times.sort();
        let (p50, p99) = (way.at(50), way.at(99));
        println!("{:>10} {p50:>7.2} {p99:>7.2}", way.name);
    }
    Ok(())
}

fn policy(require: Level, work: &Path) -> Result<SandboxPolicy, Box<dyn Error>> {
    let system = SYSTEM.iter().map(Path::new).filter(|path| path.exists());
    let read = system.map(|path| SandboxPath::try_from(path.to_owned()));
    Ok(SandboxPolicy {
        require,
        read: read.collect::<Result<_, _>>()?,
        write: vec![work.to_owned().try_into()?],
        network: Network::None,
    })
}

/// One way to run a command, and how long it took each time.
struct SandboxVariant {
    name: String,
    /// The policy in JSON; none without a supervisor.
    policy: Option<String>,
    times: Vec<Duration>,
}

impl SandboxVariant {
    fn new(name: &str, policy: Option<String>) -> Self {
        Self {
            name: name.to_owned(),
            policy,
            times: Vec::with_capacity(ROUNDS),
        }
    }

    fn run(&self, work: &Path) -> Result<(), Box<dyn Error>> {
        let mut command = match &self.policy {
            None => Command::new("true"),
            Some(policy) => {
                let mut supervisor = Command::new(BINARY);
                supervisor.args(["--sandbox", policy, "--enclose-program", "-", "-", "true"]);
                supervisor
            }
        };
        let mut child = command.current_dir(work).stdin(Stdio::piped()).spawn()?;
        let held = child.stdin.take();
        let status = child.wait()?;
        drop(held);
        if status.success() {
            Ok(())
        } else {
            Err(format!("{}: {status}", self.name).into())
        }
    }

    fn at(&self, percent: usize) -> f64 {
        let index = self.times.len().saturating_sub(1) * percent / 100;
        self.times
            .get(index)
            .map_or(0.0, |time| time.as_secs_f64() * 1_000.0)
    }
}
