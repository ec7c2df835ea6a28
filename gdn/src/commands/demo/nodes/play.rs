//! Runs the demo: kills a node under load and reports the takeover by the other one.
//!
//! A daemon start is never canceled, because afterwards it would be unknown whether the daemon runs. Ctrl-C is handled
//! between the steps.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use goondan_protocol::control::{
    ListEvents, ListInstances, ListNodes, OpenWorkspace, ReplicatedWorkspace,
};
use goondan_protocol::ids::{InstanceKey, WorkspaceId};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::signal::unix::Signal as Heard;
use tokio::time::sleep;

use super::scene::{NODES, NodesDemoFiles};
use super::sender::{self, Ledger};
use crate::client::Client;
use crate::commands::demo::mark;
use crate::commands::demo::verdict::{DemoMessage, DemoVerdict, judge};
use crate::commands::transcript;
use crate::context::Context;
use crate::daemon::{self, StartedDaemon};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::progress::WaitIndicator;
use crate::output::text;

/// Polling interval, in milliseconds.
const LOOK_MS: u64 = 50;

/// Maximum wait for any condition, in milliseconds.
const PATIENCE_MS: u64 = 60_000;

/// Number of events a node must accept before the demo continues.
const EVENTS: usize = 5;

/// Node that is killed and node that takes over.
const KILLED: NodeIndex = NodeIndex::First;
const SURVIVES: NodeIndex = NodeIndex::Second;

#[derive(Debug, Clone, Copy)]
enum NodeIndex {
    First,
    Second,
}

impl NodeIndex {
    fn name(self) -> &'static str {
        let name: &&str = self.of(&NODES);
        name
    }

    fn number(self) -> usize {
        *self.of(&[0, 1])
    }

    fn of<T>(self, [first, second]: &[T; 2]) -> &T {
        match self {
            Self::First => first,
            Self::Second => second,
        }
    }
}

#[derive(Debug)]
pub(super) struct NodesRunResult {
    pub(super) verdict: DemoVerdict,
    /// Time from the kill until the other node reported that it owns the workspace, in milliseconds.
    pub(super) take_over_ms: u64,
    /// Time from the kill to the first event accepted by the other node, in milliseconds.
    pub(super) accepted_again_ms: u64,
    /// Epoch of the new owner.
    pub(super) epoch: u64,
    /// Number of log records, which both nodes have applied.
    pub(super) records: u64,
}

/// Runs the demo with two daemons, which the caller must stop.
pub(super) async fn run(
    nodes: &[Context; 2],
    scene: &NodesDemoFiles,
    interrupts: [Heard; 2],
) -> Result<NodesRunResult, Failure> {
    let [killed, survives] = nodes;
    let StartedDaemon { mut client, .. } = daemon::start(&killed.state_root, false).await?;
    let pid = client.daemon().pid;
    let other = daemon::start(&survives.state_root, false).await?.client;
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
    let mut play = NodesDemoRun {
        nodes,
        workspace_id: info.workspace_id.clone(),
        interrupts,
    };
    let text = format!(
        "{} pid {pid}, {} pid {}",
        KILLED.name(),
        SURVIVES.name(),
        other.daemon().pid
    );
    play.tell("nodes", &text);
    play.tell("workspace", info.workspace_id.as_str());
    let ledger = Ledger::default();
    let sending = sender::send_all(&ledger, nodes, &info.workspace_id);
    let (played, sent) = tokio::join!(play.kill_one(pid, &ledger), sending);
    let taken = played?;
    sent?;
    play.wait_for_answers().await?;
    let records = play.wait_until_followed(SURVIVES, KILLED).await?;
    let conversations = play.conversations().await?;
    Ok(NodesRunResult {
        verdict: judge(&ledger.into_events(), &conversations),
        take_over_ms: taken.after_ms,
        accepted_again_ms: taken.accepted_ms,
        epoch: taken.epoch,
        records,
    })
}

struct TakeoverTiming {
    after_ms: u64,
    accepted_ms: u64,
    epoch: u64,
}

struct NodesDemoRun<'a> {
    nodes: &'a [Context; 2],
    workspace_id: WorkspaceId,
    interrupts: [Heard; 2],
}

impl NodesDemoRun<'_> {
    fn tell(&self, what: &str, text: &str) {
        let demo = SURVIVES.of(self.nodes);
        demo.output.note(format!("{} {text}", mark(demo, what)));
    }

    /// Kills the node that runs the workspace, then stops the sender from starting new events after it is back.
    async fn kill_one(&mut self, pid: u32, ledger: &Ledger) -> Result<TakeoverTiming, Failure> {
        let taken = self.live_through_it(pid, ledger).await;
        match &taken {
            Ok(_) => ledger.end(),
            Err(_) => ledger.give_up(),
        }
        taken
    }

    async fn live_through_it(
        &mut self,
        pid: u32,
        ledger: &Ledger,
    ) -> Result<TakeoverTiming, Failure> {
        let begun = Instant::now();
        self.wait_until_followed(KILLED, SURVIVES).await?;
        self.wait_for_events(KILLED, begun, ledger).await?;
        let (killed, survives) = (KILLED.name(), SURVIVES.name());
        self.tell(
            "runs on",
            &format!("{killed}; {survives} follows; events are sent continuously"),
        );
        self.tell("killed", &format!("{killed}, with SIGKILL"));
        let lost = Instant::now();
        // A pid is positive.
        let raw = i32::try_from(pid).unwrap_or(i32::MAX);
        kill(Pid::from_raw(raw), Signal::SIGKILL).map_err(std::io::Error::from)?;
        let mut waiting = WaitIndicator::new(SURVIVES.of(self.nodes).output);
        let text = format!("{survives} takes over when it has not heard from {killed} for 5 s …");
        waiting.show(&text, true);
        let owned = self.wait("the other node takes over the workspace", async |play| {
            let workspace = play.standing(SURVIVES).await?;
            Some(workspace).filter(|it| it.is_here)
        });
        let owned = owned.await?;
        let after_ms = ms_since(lost);
        drop(waiting);
        let taken = text::duration(after_ms);
        let told = format!(
            "{survives} runs the workspace after {taken}, in epoch {}",
            owned.epoch
        );
        self.tell("taken", &told);
        let accepted = self.wait_for_events(SURVIVES, lost, ledger).await?;
        let accepted_ms = u64::try_from((accepted - lost).as_millis()).unwrap_or(u64::MAX);
        let message = format!(
            "the first event that {survives} accepted, after {}",
            text::duration(accepted_ms)
        );
        self.tell("resumes", &message);
        daemon::start(&KILLED.of(self.nodes).state_root, false).await?;
        self.wait_until_followed(SURVIVES, KILLED).await?;
        self.tell("back", &format!("{killed} is started again, and follows"));
        Ok(TakeoverTiming {
            after_ms,
            accepted_ms,
            epoch: owned.epoch,
        })
    }

    /// Waits until a node has accepted some events after `after`, and returns the time of the first.
    async fn wait_for_events(
        &mut self,
        node: NodeIndex,
        after: Instant,
        ledger: &Ledger,
    ) -> Result<Instant, Failure> {
        self.wait("events are accepted", async |_| {
            let accepted = ledger.accepted_by(node.number(), after);
            accepted
                .first()
                .copied()
                .filter(|_| accepted.len() >= EVENTS)
        })
        .await
    }

    /// Waits until a node has applied everything the owner has written so far, and returns the number of records.
    async fn wait_until_followed(
        &mut self,
        owner: NodeIndex,
        by: NodeIndex,
    ) -> Result<u64, Failure> {
        let mut written = None;
        self.wait("the other node has followed the log", async |play| {
            let workspace = play.standing(owner).await?;
            let of = |node: &str| {
                let replica = workspace.replicas.iter().find(|it| it.node == node);
                replica.map(|it| it.position)
            };
            if written.is_none() && workspace.is_here {
                written = of(owner.name());
            }
            written.filter(|written| of(by.name()).is_some_and(|followed| followed >= *written))
        })
        .await
    }

    /// Waits until no event is pending.
    async fn wait_for_answers(&mut self) -> Result<(), Failure> {
        self.wait("all is answered", async |play| {
            let list = ListEvents {
                workspace_id: play.workspace_id.clone(),
                instance_key: None,
                parked: false,
                after: None,
                limit: None,
            };
            let mut client = play.client(SURVIVES).await?;
            let events = client.all(list).await.ok()?;
            events.is_empty().then_some(())
        })
        .await
    }

    /// Inputs and replies of every conversation, as the surviving node reads them.
    async fn conversations(&mut self) -> Result<BTreeMap<InstanceKey, Vec<DemoMessage>>, Failure> {
        let mut client = Client::connect(&SURVIVES.of(self.nodes).state_root).await?;
        let list = ListInstances {
            workspace_id: Some(self.workspace_id.clone()),
            ..ListInstances::default()
        };
        let mut conversations = BTreeMap::new();
        for instance in client.all(list).await? {
            let key = instance.instance_key;
            let read = transcript::read(&mut client, &self.workspace_id, &key, None).await?;
            let messages = read.messages.iter().chain(&read.pending);
            conversations.insert(key, messages.filter_map(DemoMessage::of).collect());
        }
        Ok(conversations)
    }

    /// State of the workspace as reported by a node; none if the node does not list it.
    async fn standing(&self, node: NodeIndex) -> Option<ReplicatedWorkspace> {
        let mut client = self.client(node).await?;
        let page = client.query(ListNodes::default()).await.ok()?;
        let mut workspaces = page.workspaces.into_iter();
        workspaces.find(|it| it.workspace_id == self.workspace_id)
    }

    async fn client(&self, node: NodeIndex) -> Option<Client> {
        Client::connect(&node.of(self.nodes).state_root).await.ok()
    }

    /// Polls until there is a value, unless Ctrl-C is pressed.
    async fn wait<T>(
        &mut self,
        what: &str,
        mut look: impl AsyncFnMut(&Self) -> Option<T>,
    ) -> Result<T, Failure> {
        let begun = Instant::now();
        loop {
            if let Some(found) = look(self).await {
                return Ok(found);
            }
            if ms_since(begun) > PATIENCE_MS {
                let message = format!("not within {} s: {what}", PATIENCE_MS / 1000);
                let hint =
                    "the machine is very busy, or this is a bug in goondan; run the demo again";
                return Err(Failure::new(Exit::TimedOut, message, hint));
            }
            let [interrupt, terminate] = &mut self.interrupts;
            tokio::select! {
                () = sleep(Duration::from_millis(LOOK_MS)) => {}
                _ = interrupt.recv() => return Err(interrupted()),
                _ = terminate.recv() => return Err(interrupted()),
            }
        }
    }
}

fn interrupted() -> Failure {
    Failure::new(
        Exit::Interrupted,
        "interrupted",
        "run the demo again: `gdn demo nodes`",
    )
}

fn ms_since(moment: Instant) -> u64 {
    u64::try_from(moment.elapsed().as_millis()).unwrap_or(u64::MAX)
}
