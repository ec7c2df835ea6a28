//! Runs the demo: chooses what to kill and when, restarts the daemon, and reads the result from disk.
//!
//! A daemon start is never canceled, because afterwards it would be unknown whether the daemon runs. Ctrl-C is handled
//! between kills.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use goondan_protocol::control::{
    EventStanding, FindingSeverity, ListEvents, ListInstances, ListProcesses, OpenWorkspace,
    ProcessInfo, RetryEvent, VerifyInstances,
};
use goondan_protocol::ids::{InstanceKey, WorkspaceId};
use goondan_protocol::ipc::ChildRole;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use serde::Serialize;
use tokio::signal::unix::{Signal as Heard, SignalKind, signal};
use tokio::time::sleep;

use super::outside::{OutsideService, OutsideVerdict};
use super::scene::KillDemoFiles;
use super::senders::{self, Ledger};
use crate::client::Client;
use crate::commands::demo::verdict::{DemoMessage, DemoVerdict, judge};
use crate::commands::transcript;
use crate::context::Context;
use crate::daemon::{self, StartedDaemon};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::progress::WaitIndicator;
use crate::output::text;

/// Pause between two kills, in milliseconds.
const GAP_MS: std::ops::Range<u64> = 100..800;

/// Interval between checks for unanswered events, in milliseconds.
const LOOK_MS: u64 = 100;

/// Maximum time without progress before the remaining events are counted as lost, in milliseconds.
const PATIENCE_MS: u64 = 60_000;

/// Interval between checks for the exit of a killed daemon, in milliseconds.
const GONE_POLL_MS: u64 = 2;

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct KillCounts {
    pub(super) daemons: usize,
    pub(super) agents: usize,
    pub(super) connectors: usize,
    /// Number of times all processes were killed together; they are also counted above.
    pub(super) at_once: usize,
}

impl KillCounts {
    pub(super) fn all(&self) -> usize {
        self.daemons + self.agents + self.connectors
    }
}

#[derive(Debug)]
pub(super) struct KillRunResult {
    pub(super) killed: KillCounts,
    pub(super) verdict: DemoVerdict,
    pub(super) outside: OutsideVerdict,
    /// Parked events that had to be retried because their turns were killed too often.
    pub(super) retried: usize,
    pub(super) damaged: Vec<String>,
}

impl KillRunResult {
    pub(super) fn is_good(&self) -> bool {
        self.verdict.is_good() && self.outside.is_good() && self.damaged.is_empty()
    }
}

/// Next process to kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KillTarget {
    Daemon,
    One(ChildRole),
    All,
}

/// Relative frequency of each victim.
const VICTIMS: [(KillTarget, u32); 4] = [
    (KillTarget::Daemon, 3),
    (KillTarget::One(ChildRole::Agent), 4),
    (KillTarget::One(ChildRole::Connector), 2),
    (KillTarget::All, 1),
];

/// Kills processes for the given time, waits until all events are answered, and judges the result.
pub(super) async fn run(
    demo: &Context,
    scene: &KillDemoFiles,
    outside: &OutsideService,
    (seed, for_ms): (u32, u64),
) -> Result<KillRunResult, Failure> {
    let interrupts = [
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    ];
    let StartedDaemon { mut client, .. } = daemon::start(&demo.state_root, false).await?;
    let open = OpenWorkspace {
        project_root: scene.project.clone(),
        watch: None,
        env_files: None,
        swarm: None,
    };
    let info = client.change(open).await?;
    if let Some(problem) = info.problem {
        let exit = Exit::InvalidConfiguration;
        return Err(Failure::new(exit, problem.message, problem.suggestion));
    }
    let mut random = fastrand::Rng::with_seed(seed.into());
    let mut senders_random = random.fork();
    let mut play = KillDemoRun {
        state_root: &demo.state_root,
        workspace_id: info.workspace_id.clone(),
        client,
        random,
        interrupts,
        waiting: WaitIndicator::new(demo.output),
        killed: KillCounts::default(),
        retried: 0,
        retried_inputs: BTreeSet::new(),
    };
    let ledger = Ledger::default();
    let (root, id) = (&demo.state_root, &info.workspace_id);
    let sending = senders::send_all(&ledger, root, id, scene.port, &mut senders_random);
    let (played, sent) = tokio::join!(play.kill_for(for_ms, &ledger), sending);
    played?;
    sent?;
    play.wait_for_answers().await?;
    // The result is read by a daemon that was started after all kills.
    play.strike(KillTarget::All).await?;
    let damaged = play.damaged().await?;
    let conversations = play.conversations().await?;
    let events = ledger.into_events();
    Ok(KillRunResult {
        verdict: judge(&events, &conversations),
        outside: outside.effects().judge(&events, &play.retried_inputs),
        killed: play.killed,
        retried: play.retried,
        damaged,
    })
}

struct KillDemoRun<'a> {
    state_root: &'a Path,
    workspace_id: WorkspaceId,
    /// Connection to the running daemon.
    client: Client,
    random: fastrand::Rng,
    interrupts: [Heard; 2],
    waiting: WaitIndicator,
    killed: KillCounts,
    retried: usize,
    retried_inputs: BTreeSet<String>,
}

impl KillDemoRun<'_> {
    /// Kills processes for the given time, then stops the senders from starting new events.
    async fn kill_for(&mut self, for_ms: u64, ledger: &Ledger) -> Result<(), Failure> {
        let killed = self.kill_until(for_ms, ledger).await;
        match &killed {
            Ok(()) => ledger.end(),
            Err(_) => ledger.give_up(),
        }
        killed
    }

    async fn kill_until(&mut self, for_ms: u64, ledger: &Ledger) -> Result<(), Failure> {
        let (begun, whole) = (Instant::now(), Duration::from_millis(for_ms));
        loop {
            let gap = Duration::from_millis(self.random.u64(GAP_MS));
            let left = whole.saturating_sub(begun.elapsed());
            self.pause(gap.min(left)).await?;
            if begun.elapsed() >= whole {
                return Ok(());
            }
            let victim = self.choose();
            self.strike(victim).await?;
            let so_far = format!(
                "{} of {} s: {} killed, {} accepted",
                begun.elapsed().as_secs(),
                whole.as_secs(),
                text::count(self.killed.all(), "process"),
                text::count(ledger.accepted(), "event")
            );
            self.waiting.show(&so_far, false);
        }
    }

    /// Waits unless Ctrl-C is pressed.
    async fn pause(&mut self, time: Duration) -> Result<(), Failure> {
        let [interrupt, terminate] = &mut self.interrupts;
        tokio::select! {
            () = sleep(time) => Ok(()),
            _ = interrupt.recv() => Err(interrupted()),
            _ = terminate.recv() => Err(interrupted()),
        }
    }

    fn choose(&mut self) -> KillTarget {
        let all = VICTIMS.iter().map(|(_, weight)| weight).sum();
        let mut drawn = self.random.u32(0..all);
        for (victim, weight) in VICTIMS {
            match drawn.checked_sub(weight) {
                Some(rest) => drawn = rest,
                None => return victim,
            }
        }
        KillTarget::All
    }

    /// Kills the victim, and restarts the daemon if it was killed.
    async fn strike(&mut self, victim: KillTarget) -> Result<(), Failure> {
        let daemon = self.client.daemon().pid;
        let listed = ListProcesses {
            workspace_id: Some(self.workspace_id.clone()),
            after: None,
            limit: None,
        };
        let mut children = self.client.all(listed).await?;
        children.retain(|child| child.pid.is_some());
        match victim {
            KillTarget::Daemon => children.clear(),
            KillTarget::One(role) => {
                children.retain(|child| child.role == role);
                // Picks one at random. The role was chosen before, even if no process of that role runs.
                let chosen = self.random.usize(0..usize::MAX);
                let count = children.len().max(1);
                children = children.into_iter().skip(chosen % count).take(1).collect();
            }
            KillTarget::All => self.killed.at_once += 1,
        }
        let ends_daemon = !matches!(victim, KillTarget::One(_));
        // All are stopped first, so that none can react to the death of another.
        for signal in [Signal::SIGSTOP, Signal::SIGKILL] {
            if ends_daemon && send(daemon, signal) && signal == Signal::SIGKILL {
                self.killed.daemons += 1;
            }
            for child in &children {
                self.send_to(child, signal);
            }
        }
        if ends_daemon {
            gone(daemon).await;
            self.client = daemon::start(self.state_root, false).await?.client;
        }
        Ok(())
    }

    fn send_to(&mut self, child: &ProcessInfo, signal: Signal) {
        let is_sent = child.pid.is_some_and(|pid| send(pid, signal));
        if is_sent && signal == Signal::SIGKILL {
            match child.role {
                ChildRole::Agent | ChildRole::Task => self.killed.agents += 1,
                ChildRole::Connector | ChildRole::Model => self.killed.connectors += 1,
            }
        }
    }

    /// Waits until no event is pending, or none is answered for a long time. Retries parked events whose turns were
    /// killed too often, as an operator would.
    async fn wait_for_answers(&mut self) -> Result<(), Failure> {
        let (mut fewest, mut since) = (usize::MAX, Instant::now());
        loop {
            let list = ListEvents {
                workspace_id: self.workspace_id.clone(),
                instance_key: None,
                parked: false,
                after: None,
                limit: None,
            };
            let events = self.client.all(list).await?;
            if events.is_empty() {
                return Ok(());
            }
            if events.len() < fewest {
                (fewest, since) = (events.len(), Instant::now());
            } else if since.elapsed() > Duration::from_millis(PATIENCE_MS) {
                return Ok(());
            }
            let left = format!(
                "no more kills; {} still to be answered",
                text::count(events.len(), "event")
            );
            self.waiting.show(&left, false);
            for event in events {
                if event.standing == EventStanding::Parked {
                    self.retried += 1;
                    self.retried_inputs
                        .insert(senders::input_of(&event.event_id));
                    let retry = RetryEvent {
                        workspace_id: self.workspace_id.clone(),
                        instance_key: event.instance_key,
                        event_id: event.event_id,
                    };
                    self.client.change(retry).await?;
                }
            }
            self.pause(Duration::from_millis(LOOK_MS)).await?;
        }
    }

    /// Unreadable files, as `verify` reports them.
    async fn damaged(&mut self) -> Result<Vec<String>, Failure> {
        let verify = VerifyInstances {
            workspace_id: self.workspace_id.clone(),
            instance_key: None,
            repair: false,
        };
        let mut findings = self.client.change(verify).await?.findings;
        findings.retain(|finding| finding.severity == FindingSeverity::Error);
        let lines = findings
            .iter()
            .map(|finding| format!("{}: {}", finding.path.display(), finding.problem));
        Ok(lines.collect())
    }

    /// Inputs and replies of every conversation, as the daemon reads them.
    async fn conversations(&mut self) -> Result<BTreeMap<InstanceKey, Vec<DemoMessage>>, Failure> {
        let list = ListInstances {
            workspace_id: Some(self.workspace_id.clone()),
            ..ListInstances::default()
        };
        let mut conversations = BTreeMap::new();
        for instance in self.client.all(list).await? {
            let key = instance.instance_key;
            let read = transcript::read(&mut self.client, &self.workspace_id, &key, None).await?;
            let messages = read.messages.iter().chain(&read.pending);
            conversations.insert(key, messages.filter_map(DemoMessage::of).collect());
        }
        Ok(conversations)
    }
}

/// Sends a signal. True if it reached a process.
fn send(pid: u32, signal: Signal) -> bool {
    // 0 and negative numbers address process groups.
    let pid = i32::try_from(pid).ok().filter(|pid| *pid > 0);
    pid.is_some_and(|pid| kill(Pid::from_raw(pid), signal).is_ok())
}

/// Waits until a killed daemon has exited. It is a child of this process.
async fn gone(pid: u32) {
    let Ok(raw) = i32::try_from(pid) else { return };
    loop {
        match waitpid(Pid::from_raw(raw), Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => {
                sleep(Duration::from_millis(GONE_POLL_MS)).await;
            }
            Ok(_) | Err(_) => return,
        }
    }
}

fn interrupted() -> Failure {
    Failure::new(
        Exit::Interrupted,
        "interrupted",
        "run the demo again, or for a shorter time: `gdn demo kill --for 10s`",
    )
}
