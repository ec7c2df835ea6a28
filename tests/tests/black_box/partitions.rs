//! Three daemons and two PostgreSQL servers on five machines, under load, with random faults of all
//! of them and of the network (`REP-1`).
//!
//! Every fault ends before the next one begins. Acknowledged events are checked after everything
//! has healed (`oracle`). A server is promoted only after the former primary has ended, which is
//! the operator's responsibility.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use goondan_tests::network::{self, Network, NetworkMachine};
use goondan_tests::node::ClusterNode;
use goondan_tests::postgres_pair::Pair;
use goondan_tests::processes::Signal;
use goondan_tests::random::Random;
use goondan_tests::service::ServiceManager;
use goondan_tests::{Home, postgres, wait_until};

use load::Load;

mod load;
mod oracle;

/// Number of faults; the long form is 300.
const FAULTS_VAR: &str = "GOONDAN_TEST_PARTITION_FAULTS";

const NODES: [&str; 3] = ["a", "b", "c"];
const SERVERS: [&str; 2] = ["db1", "db2"];

/// Size of a state root's disk.
const DISK_BYTES: u64 = 128 * 1024 * 1024;

const PROJECT: &str = r#"
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: main}
spec:
  provider: scripted
  options:
    rules:
      - when: {user: '^echo (?P<id>\S+)$'}
        say: "answer ${id}"
      - when: {user: '^tally (?P<id>\S+)$', tool: bash__exec, result: 'tallied \S+'}
        say: "answer ${id}"
      - when: {user: '^tally (?P<id>\S+)$'}
        call:
          - tool: bash__exec
            args: {command: "echo ${id} >> NOTES/tally; sleep 0.1; echo tallied ${id}"}
      - say: "I do not understand."
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: worker}
spec:
  modelConfig: {modelRef: Model/main}
  tools:
    - {kind: Tool, name: bash, package: "@goondan/base"}
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {name: all}
spec:
  entryAgent: Agent/worker
  policy:
    sandbox: {write: [NOTES]}
"#;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    /// A daemon is killed, and starts later.
    Killed,
    /// A daemon is stopped for a while.
    Stopped,
    /// A daemon's machine is disconnected.
    Unplugged,
    /// A daemon's machine cannot reach the primary.
    CutFromServer,
    /// The servers cannot reach each other.
    ServersCut,
    /// The primary crashes, and starts again.
    ServerCrashed,
    /// The primary is lost, and the standby is promoted.
    FailedOver,
    /// Like `FailedOver`, but clients do not notice the end of the former primary.
    FailedOverUnheard,
    /// A daemon's disk is full.
    DiskFull,
}

const FAULTS: [Fault; 9] = [
    Fault::Killed,
    Fault::FailedOver,
    Fault::Stopped,
    Fault::ServersCut,
    Fault::Unplugged,
    Fault::DiskFull,
    Fault::CutFromServer,
    Fault::FailedOverUnheard,
    Fault::ServerCrashed,
];

struct PartitionTrial {
    // Fields are dropped in this order, so the services stop first.
    services: Vec<ServiceManager>,
    nodes: Vec<Arc<ClusterNode>>,
    machines: Vec<NetworkMachine>,
    pair: Pair,
    network: Network,
    load: Load,
    random: Random,
    /// Time from the loss of an owner to the first acknowledgment by another node.
    take_overs: Vec<(Fault, Duration)>,
}

impl PartitionTrial {
    fn new(random: Random) -> Option<Self> {
        let names = [&NODES[..], &SERVERS].concat();
        let network = Network::of(&names);
        let pair = Pair::running(SERVERS.map(|name| network.machine(name).clone()))?;
        let home = |project: Option<&str>| {
            let home = project.map_or_else(Home::without_project, Home::new);
            std::fs::create_dir(home.state_root()).unwrap();
            network::mount_disk(&home.state_root(), DISK_BYTES);
            home
        };
        let first = ClusterNode::with(home(Some(PROJECT)), NODES[0], &pair.url());
        let others = NODES[1..]
            .iter()
            .map(|name| first.and(home(None), name, &pair.url()));
        let others: Vec<_> = others.collect();
        let nodes: Vec<_> = [first].into_iter().chain(others).map(Arc::new).collect();
        let machines: Vec<_> = NODES.map(|name| network.machine(name).clone()).into();
        let mut services = vec![ServiceManager::started(&nodes[0], &machines[0])];
        nodes[0].gdn(&["run"]).exits(0);
        for at in 1..NODES.len() {
            services.push(ServiceManager::started(&nodes[at], &machines[at]));
            nodes[0].waits_until_followed_by(NODES[at]);
        }
        Some(Self {
            services,
            load: Load::on(&nodes),
            nodes,
            machines,
            pair,
            network,
            random,
            take_overs: Vec::new(),
        })
    }

    /// A node: the owner every other time.
    fn some_node(&mut self) -> usize {
        match self.random.below(2) {
            0 => self.load.owner(),
            _ => usize::try_from(self.random.below(3)).unwrap(),
        }
    }

    fn lives_through(&mut self, fault: Fault) {
        let at = self.some_node();
        let started = Instant::now();
        let machine = self.machines[at].clone();
        // Varies the time after an answer.
        self.random.let_pass(300);
        match fault {
            Fault::Killed => self.loses(
                fault,
                at,
                |it| it.services[at].dies(),
                |it| it.services[at].starts(),
            ),
            Fault::Stopped => self.loses(
                fault,
                at,
                |it| it.services[at].signal(Signal::SIGSTOP),
                |it| it.services[at].signal(Signal::SIGCONT),
            ),
            Fault::Unplugged => self.loses(
                fault,
                at,
                |it| it.network.unplug(&machine),
                |it| it.network.plug(&machine),
            ),
            Fault::CutFromServer => self.loses(
                fault,
                at,
                |it| it.network.cut(&machine, it.pair.primary_machine()),
                |it| it.network.mend(&machine, it.pair.primary_machine()),
            ),
            Fault::ServersCut => self.cuts_servers(),
            Fault::ServerCrashed => self.pair.crashes(),
            Fault::FailedOver => self.fails_over(false),
            Fault::FailedOverUnheard => self.fails_over(true),
            Fault::DiskFull => self.fills(at),
        }
        let healed = Instant::now();
        let by = self.load.acknowledged_after(healed, None).by;
        for service in &self.services {
            wait_until("the daemon has started", || service.has_started());
        }
        self.pair.waits_until_in_step();
        eprintln!(
            "{:6.1} s, then {:4.1} s  {fault:?} at {}; now {}",
            (healed - started).as_secs_f64(),
            healed.elapsed().as_secs_f64(),
            NODES[at],
            NODES[by]
        );
    }

    /// A node is lost, and comes back. If it was the owner, another node mostly owns its workspace
    /// by then.
    fn loses(&mut self, fault: Fault, at: usize, lost: impl Fn(&Self), back: impl Fn(&Self)) {
        let was_owner = self.load.owner() == at;
        let since = Instant::now();
        lost(self);
        if was_owner && self.random.below(4) > 0 {
            let next = self.load.acknowledged_after(since, Some(at));
            self.take_overs.push((fault, next.at - since));
        } else {
            // About the time that other nodes wait before they take over.
            self.random.let_pass(6_000);
        }
        back(self);
    }

    fn cuts_servers(&mut self) {
        let (one, other) = (self.pair.primary_machine(), self.pair.standby_machine());
        self.network.cut(one, other);
        self.random.let_pass(5_000);
        self.network.mend(one, other);
    }

    fn fails_over(&mut self, is_cut_off: bool) {
        self.pair.fails_over(&self.network, is_cut_off);
        // Commits that need a standby wait meanwhile.
        self.random.let_pass(4_000);
        self.pair.has_a_standby_again(&self.network);
    }

    /// Fills a node's disk to the last byte, and empties it again.
    fn fills(&mut self, at: usize) {
        let path = self.nodes[at].home.state_root().join("filler");
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .open(&path)
            .unwrap();
        for size in [64 * 1024, 4096, 1] {
            while file.write_all(&vec![b'x'; size]).is_ok() {}
        }
        self.random.let_pass(4_000);
        drop(file);
        std::fs::remove_file(path).unwrap();
    }

    /// Heals everything, and checks.
    fn ends(self, since: Instant) -> String {
        let owner = self.load.owner();
        let sent = self.load.ends();
        let node = &self.nodes[owner];
        let histories = oracle::histories(&sent, node);
        for name in NODES {
            node.waits_until_followed_by(name);
        }
        let tally = self.nodes[0].home.note("tally");
        oracle::each_is_answered_once(&sent, &histories, &tally);
        let tasks = oracle::each_task_is_there(&sent, node);
        let epochs =
            oracle::each_epoch_has_one_owner(&sent, &NODES, &self.services, self.pair.primary());
        oracle::no_daemon_failed(&self.services);
        let nodes: Vec<&ClusterNode> = self.nodes.iter().map(Arc::as_ref).collect();
        node.waits_until_alike(&nodes);
        let mut told = format!(
            "{} events, {} lines of tools, {tasks} tasks, {epochs} epochs, in {:.0} s",
            sent.acknowledged.len(),
            tally.lines().count(),
            since.elapsed().as_secs_f64()
        );
        let mut times: Vec<_> = self.take_overs.iter().map(|(_, time)| *time).collect();
        times.sort();
        if let (Some(longest), Some(middle)) = (times.last(), times.get(times.len() / 2)) {
            write!(
                told,
                "; {} take-overs: the median {:.1} s, the longest {:.1} s",
                times.len(),
                middle.as_secs_f64(),
                longest.as_secs_f64()
            )
            .unwrap();
        }
        told
    }
}

#[test]
fn rep_1_network_failures_lose_and_duplicate_no_event() {
    let name = "partitions::rep_1_network_failures_lose_and_duplicate_no_event";
    if postgres::programs().is_none() || !network::apart(name) {
        return;
    }
    let faults = std::env::var(FAULTS_VAR).map_or(FAULTS.len(), |text| text.parse().unwrap());
    let since = Instant::now();
    let Some(mut trial) = PartitionTrial::new(Random::announced()) else {
        return;
    };
    for number in 0..faults {
        // First, one fault of each kind.
        let of_kind = FAULTS.get(number).copied();
        let fault = of_kind.unwrap_or_else(|| *trial.random.choose(&FAULTS).unwrap());
        eprint!("{number:4} ");
        trial.lives_through(fault);
    }
    eprintln!("{faults} faults: {}", trial.ends(since));
}
