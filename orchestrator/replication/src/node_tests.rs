//! Nodes before a log in memory, with answers and disks that are as fast as can be.

use std::collections::BTreeMap;

use super::*;
use crate::limits::{
    LEFT_MS, NOTE_BEHIND_MS, PROBE_MS, READ_RECORDS_MAX, TAKE_OVER_AFTER_MS, TAKE_OVER_STEP_MS,
    TAKEN_WITHIN_MS,
};
use crate::log::{LogPage, MemoryLog, PutRequest};
use crate::operation::RelativePath;
use crate::record::Body;
use crate::tree::MemoryTree;
use crate::wire::{LastHeartbeat, LogHead};

struct NodeHarness {
    node: ReplicationNode,
    trees: BTreeMap<WorkspaceId, MemoryTree>,
    notes: BTreeMap<WorkspaceId, Chain>,
    /// Effects that a daemon would act on.
    seen: Vec<NodeEffect>,
    /// True while it does nothing: it is paused, or disconnected.
    is_still: bool,
    /// Outcomes of changes that are held back, if they are.
    held: Option<Vec<NodeInput>>,
    /// True if checks of its files never end.
    is_slow: bool,
}

/// Records after which a snapshot is due.
const SNAPSHOT_AFTER: u64 = 10;

struct World {
    now_ms: u64,
    logs: BTreeMap<WorkspaceId, MemoryLog>,
    beats: BTreeMap<(WorkspaceId, NodeId), LastHeartbeat>,
    snapshots: BTreeMap<String, MemoryTree>,
    batches: u64,
    shells: Vec<NodeHarness>,
    lives: u64,
    /// True if the server confirms no commits: the outcome of puts is unknown.
    confirms_nothing: bool,
}

fn workspace(name: &str) -> WorkspaceId {
    WorkspaceId::new(name).unwrap()
}

fn node(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

impl World {
    fn new(names: &[&str]) -> Self {
        let mut world = Self {
            now_ms: 0,
            logs: BTreeMap::new(),
            beats: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            batches: 1_000,
            shells: Vec::new(),
            lives: 0,
            confirms_nothing: false,
        };
        for name in names {
            world.begin(name);
        }
        world
    }

    /// Starts a node with an empty disk.
    fn begin(&mut self, name: &str) {
        self.lives += 1;
        let at = self.shells.len();
        self.shells.push(NodeHarness {
            node: ReplicationNode::new(node(name), Incarnation(self.lives), self.now_ms)
                .with_snapshots_after(SNAPSHOT_AFTER),
            trees: BTreeMap::new(),
            notes: BTreeMap::new(),
            seen: Vec::new(),
            is_still: false,
            held: None,
            is_slow: false,
        });
        self.give(at, NodeInput::Connected(true));
    }

    fn join(&mut self, at: usize, name: &str) {
        let chain = Chain::new(workspace(name));
        let files = FilesState::AsNoted;
        self.give(at, NodeInput::Joined { chain, files });
    }

    fn give(&mut self, at: usize, input: NodeInput) {
        let mut waiting = vec![input];
        while !waiting.is_empty() {
            let input = waiting.remove(0);
            let effects = self.shells[at].node.handle(self.now_ms, input);
            for effect in effects {
                waiting.extend(self.carry_out(at, effect));
            }
        }
    }

    fn carry_out(&mut self, at: usize, effect: NodeEffect) -> Vec<NodeInput> {
        match effect {
            NodeEffect::Ask(LogRequest { id, ask }) => vec![NodeInput::Answered {
                id,
                answer: self.answer(ask),
            }],
            NodeEffect::Files { workspace, work } => {
                let shell = &mut self.shells[at];
                let tree = shell.trees.entry(workspace.clone()).or_default();
                let outcome = match work {
                    FilesWork::Apply(changes) => {
                        let made = changes.iter().try_for_each(|it| it.make_in(tree));
                        let outcome = FilesOutcome::Applied(made);
                        let done = NodeInput::FilesDone { workspace, outcome };
                        let Some(held) = &mut shell.held else {
                            return vec![done];
                        };
                        held.push(done);
                        return Vec::new();
                    }
                    FilesWork::Digest => FilesOutcome::Digested(tree.digest()),
                    FilesWork::Verify if shell.is_slow => return Vec::new(),
                    FilesWork::Verify => FilesOutcome::Verified(true),
                    FilesWork::Restore(reference) => {
                        let kept = reference.map(|it| self.snapshots[it.as_str()].clone());
                        *tree = kept.unwrap_or_default();
                        FilesOutcome::Restored(true)
                    }
                    FilesWork::Note(chain) => {
                        shell.notes.insert(workspace, chain);
                        return Vec::new();
                    }
                    FilesWork::Own(_) => FilesOutcome::Owned,
                    FilesWork::Capture(reference) => {
                        let digest = tree.digest();
                        let name = reference.as_str().to_owned();
                        self.snapshots.insert(name, tree.clone());
                        self.batches += 1;
                        let snapshot = NodeInput::Snapshot {
                            workspace: workspace.clone(),
                            batch: BatchId(self.batches),
                            reference: reference.clone(),
                        };
                        let outcome = FilesOutcome::Captured(
                            reference,
                            Some(CapturedSnapshot { digest, parts: 1 }),
                        );
                        return vec![snapshot, NodeInput::FilesDone { workspace, outcome }];
                    }
                };
                vec![NodeInput::FilesDone { workspace, outcome }]
            }
            NodeEffect::Found(workspace) => {
                // The state of existing files is unknown.
                let files = match self.shells[at].trees.contains_key(&workspace) {
                    true => FilesState::PerhapsAhead,
                    false => FilesState::AsNoted,
                };
                let chain = Chain::new(workspace);
                vec![NodeInput::Joined { chain, files }]
            }
            seen => {
                self.shells[at].seen.push(seen);
                Vec::new()
            }
        }
    }

    fn answer(&mut self, ask: LogCommand) -> LogAnswer {
        match ask {
            LogCommand::Put(_) if self.confirms_nothing => LogAnswer::Put(PutAnswer::Unknown),
            LogCommand::Probe if self.confirms_nothing => LogAnswer::Unavailable,
            LogCommand::Probe => LogAnswer::Noted,
            LogCommand::Put(put) => {
                let record = crate::record::LogRecord::decode(put.record.bytes()).unwrap();
                let log = self.logs.entry(record.workspace).or_default();
                LogAnswer::Put(log.put(&put))
            }
            LogCommand::Read { workspace, from } => {
                let log = self.logs.get(&workspace);
                let page = log.map_or_else(LogPage::default, |log| log.read(from));
                LogAnswer::Read(ReadAnswer::Page(page))
            }
            LogCommand::Heads(names) => {
                let heads = names.into_iter().map(|workspace| {
                    let heard = self.beats.iter().filter(|((of, _), _)| *of == workspace);
                    let page = self.logs.get(&workspace).map(|log| log.read(Position(1)));
                    LogHead {
                        heard: heard.map(|(_, heard)| heard.clone()).collect(),
                        head: page.map(|page| page.head).unwrap_or_default(),
                        oldest: Position(1),
                        workspace,
                    }
                });
                LogAnswer::Heads(heads.collect())
            }
            LogCommand::List { after } => {
                let names = self.logs.keys();
                let behind = names.filter(|name| after.as_ref().is_none_or(|after| *name > after));
                LogAnswer::Listed(behind.take(HEADS_MAX).cloned().collect())
            }
            LogCommand::Beat(beats) => {
                for beat in beats {
                    let key = (beat.workspace.clone(), beat.node.clone());
                    let count = self.beats.get(&key).map_or(1, |heard| heard.count + 1);
                    self.beats.insert(key, LastHeartbeat { beat, count });
                }
                LogAnswer::Noted
            }
            LogCommand::Check => LogAnswer::Checked(Vec::new()),
            LogCommand::Standing => LogAnswer::Standing(None),
            LogCommand::Server(_) => LogAnswer::Noted,
            LogCommand::Trim { workspace, before } => {
                let log = self.logs.entry(workspace).or_default();
                LogAnswer::Trimmed(log.trim(before.at, before.hash))
            }
            LogCommand::ForgetSnapshots { before, .. } => {
                let first = before.reference.as_str();
                self.snapshots.retain(|name, _| &**name >= first);
                LogAnswer::Noted
            }
            other => panic!("{other:?}"),
        }
    }

    fn pass(&mut self, ms: u64) {
        let until_ms = self.now_ms + ms;
        while self.now_ms < until_ms {
            self.now_ms += 50;
            for at in 0..self.shells.len() {
                let shell = &self.shells[at];
                if !shell.is_still && shell.node.due_ms() <= self.now_ms {
                    self.give(at, NodeInput::Tick);
                }
            }
        }
    }

    fn batch(&mut self, at: usize, name: &str, batch: u64) {
        let path = RelativePath::new(&format!("f{batch}")).unwrap();
        let operation = FileOperation::Create { path };
        let tree = self.shells[at].trees.entry(workspace(name)).or_default();
        tree.apply(&operation).unwrap();
        self.give(
            at,
            NodeInput::Batch {
                workspace: workspace(name),
                batch: BatchId(batch),
                operations: vec![operation],
                is_awaited: true,
            },
        );
    }

    /// Has a node's files be other than those that the log makes.
    fn spoil(&mut self, at: usize, name: &str) {
        let path = RelativePath::new("strange").unwrap();
        let tree = self.shells[at].trees.get_mut(&workspace(name)).unwrap();
        tree.apply(&FileOperation::Create { path }).unwrap();
    }

    fn digest(&self, at: usize, name: &str) -> Hash {
        self.shells[at].trees[&workspace(name)].digest()
    }

    fn has_seen(&self, at: usize, effect: &NodeEffect) -> bool {
        self.shells[at].seen.contains(effect)
    }

    fn owns(&self, at: usize, name: &str) -> bool {
        self.has_seen(at, &NodeEffect::Own(workspace(name)))
    }

    fn owners(&self, name: &str) -> Vec<usize> {
        let all = 0..self.shells.len();
        all.filter(|at| self.owns(*at, name)).collect()
    }
}

/// Three nodes that all have a workspace; the first owns it.
fn three() -> World {
    let mut world = World::new(&["a", "b", "c"]);
    world.join(0, "w");
    world.give(0, NodeInput::Wanted(workspace("w")));
    world.pass(8_000);
    assert_eq!(world.owners("w"), [0]);
    world
}

#[test]
fn unowned_workspace_goes_to_the_node_with_a_client() {
    let mut world = World::new(&["a", "b", "c"]);
    world.join(1, "w");
    world.give(1, NodeInput::Wanted(workspace("w")));
    assert_eq!(world.owners("w"), [1], "at once");
    for batch in 1..=3 {
        world.batch(1, "w", batch);
        assert!(world.has_seen(1, &NodeEffect::Acknowledge(workspace("w"), BatchId(batch))));
    }
    world.pass(8_000);
    assert_eq!(world.owners("w"), [1]);
    let digest = world.shells[1].trees[&workspace("w")].digest();
    for at in [0, 2] {
        assert_eq!(world.shells[at].trees[&workspace("w")].digest(), digest);
        assert_eq!(
            world.shells[at].notes[&workspace("w")].position(),
            Position(4)
        );
    }
}

#[test]
fn client_is_pointed_to_the_node_that_owns_its_workspace() {
    let mut world = three();
    world.give(1, NodeInput::Wanted(workspace("w")));
    world.pass(1_000);
    assert!(world.has_seen(1, &NodeEffect::Elsewhere(workspace("w"), node("a"))));
    assert_eq!(world.owners("w"), [0]);
}

#[test]
fn a_server_that_confirms_nothing_is_noticed_without_a_write() {
    let mut world = three();
    let since = |world: &World, at: usize| {
        let mut unanswered = world.shells[at].node.unanswered();
        unanswered.next().map(|(_, since_ms)| since_ms)
    };
    assert_eq!(since(&world, 0), None);
    let before_ms = world.now_ms;
    world.confirms_nothing = true;
    world.pass(PROBE_MS);
    let first = since(&world, 0).unwrap();
    assert!(first >= before_ms);
    world.pass(3 * PROBE_MS);
    assert_eq!(
        since(&world, 0),
        Some(first),
        "it counts from the first time"
    );
    assert_eq!(
        since(&world, 1),
        None,
        "who owns nothing acknowledges nothing"
    );
    world.confirms_nothing = false;
    world.pass(PROBE_MS);
    assert_eq!(since(&world, 0), None);
}

#[test]
fn a_node_that_took_a_workspace_and_died_is_not_heard_to_own_it() {
    let mut world = three();
    let release = NodeInput::Release {
        workspace: workspace("w"),
        to: node("b"),
    };
    world.give(0, release);
    world.pass(2_000);
    let standing = |world: &World, at: usize| world.shells[at].node.standings().remove(0);
    assert_eq!(standing(&world, 0).owner, Some(node("b")));
    assert!(standing(&world, 0).is_owner_heard);
    assert!(!standing(&world, 0).is_owned && standing(&world, 1).is_owned);
    // The same, but its heartbeats are only a standby's, as if it died after its seal.
    let mut world = three();
    for heard in world.beats.values_mut() {
        heard.beat.owns = false;
    }
    world.shells[0].is_still = true;
    world.pass(1_000);
    for heard in world
        .beats
        .values_mut()
        .filter(|it| it.beat.node == node("a"))
    {
        heard.count += 1;
    }
    world.pass(1_000);
    assert_eq!(standing(&world, 1).owner, Some(node("a")));
    assert!(!standing(&world, 1).is_owner_heard);
}

#[test]
fn assigned_node_is_awaited_while_alive_but_not_forever() {
    let is_owned = |world: &World| {
        let mut standings = world.shells.iter().map(|it| it.node.standings().remove(0));
        standings.any(|standing| standing.is_owned)
    };
    for lives in [true, false] {
        let mut world = three();
        world.shells[1].is_slow = true;
        let release = NodeInput::Release {
            workspace: workspace("w"),
            to: node("b"),
        };
        world.give(0, release);
        world.shells[1].is_still = !lives;
        world.pass(TAKE_OVER_AFTER_MS + 3 * TAKE_OVER_STEP_MS + 1_000);
        assert_eq!(is_owned(&world), !lives, "it lives: {lives}");
        world.pass(TAKEN_WITHIN_MS);
        assert!(is_owned(&world));
    }
}

#[test]
fn workspace_kept_by_its_leaving_node_is_not_taken_over() {
    let mut world = three();
    world.batch(0, "w", 1);
    let release = NodeInput::Release {
        workspace: workspace("w"),
        to: node("a"),
    };
    world.give(0, release);
    world.give(1, NodeInput::Wanted(workspace("w")));
    world.pass(1_000);
    assert!(world.has_seen(1, &NodeEffect::LogEnded(workspace("w"), node("a"))));
    world.shells[0].is_still = true;
    world.pass(60_000);
    assert_eq!(world.owners("w"), [0]);
    // Nor by the node itself, or by one that was not there, as long as they follow the log.
    world.shells[0].is_still = false;
    world.begin("d");
    world.give(3, NodeInput::Wanted(workspace("w")));
    world.pass(60_000);
    assert_eq!(world.owners("w"), [0]);
    for shell in &world.shells {
        let standing = shell.node.standings().remove(0);
        assert_eq!(standing.ended_by, Some(node("a")));
        assert!(!standing.is_owned);
    }
}

#[test]
fn one_node_takes_over_from_a_silent_owner_and_the_owner_ends() {
    let mut world = three();
    world.batch(0, "w", 1);
    world.shells[0].is_still = true;
    world.pass(10_000);
    let owners = world.owners("w");
    assert_eq!(owners.len(), 2, "{owners:?}");
    let successor = owners[1];
    let of_successor = world.shells[successor].trees[&workspace("w")].digest();
    assert_eq!(
        of_successor,
        world.shells[0].trees[&workspace("w")].digest()
    );
    // It resumes with outdated state.
    world.shells[0].is_still = false;
    world.batch(0, "w", 2);
    assert!(!world.has_seen(0, &NodeEffect::Acknowledge(workspace("w"), BatchId(2))));
    let is_end =
        |effect: &NodeEffect| matches!(effect, NodeEffect::Deposed(_, NodeExit::Deposed(_)));
    assert!(world.shells[0].seen.iter().any(is_end));
    world.batch(successor, "w", 7);
    assert!(world.has_seen(
        successor,
        &NodeEffect::Acknowledge(workspace("w"), BatchId(7))
    ));
}

#[test]
fn restarted_node_regains_its_workspaces_before_a_takeover() {
    let mut world = three();
    world.batch(0, "w", 1);
    world.pass(2_000);
    world.shells[0].is_still = true;
    let chain = world.shells[0].notes[&workspace("w")].clone();
    world.begin("a");
    let files = FilesState::PerhapsAhead;
    world.give(3, NodeInput::Joined { chain, files });
    world.pass(1_000);
    assert!(world.owns(3, "w"));
    world.pass(20_000);
    assert_eq!(world.owners("w"), [0, 3]);
    let standing = world.shells[3].node.standings();
    assert_eq!(standing.len(), 1);
    assert!(standing[0].is_owned && standing[0].epoch == Epoch(2));
    assert_eq!(standing[0].nodes.len(), 3, "{standing:?}");
}

#[test]
fn draining_node_takes_over_when_no_other_is_available() {
    let mut world = three();
    let first = [1, 2].map(|at| {
        let hearing = &world.shells[at].node.hearing;
        hearing.rank(world.now_ms, &workspace("w"), Some(&node("a")))
    });
    let first = if first[0] == 0 { 1 } else { 2 };
    world.give(first, NodeInput::Drains(true));
    world.shells[0].is_still = true;
    world.pass(30_000);
    assert_eq!(world.owners("w"), [0, 3 - first]);
    world.shells[3 - first].is_still = true;
    world.pass(30_000);
    assert_eq!(world.owners("w").len(), 3, "better there than nowhere");
}

#[test]
fn a_workspace_is_moved_and_its_former_owner_follows_it() {
    let mut world = three();
    world.batch(0, "w", 1);
    world.pass(2_000);
    let at = world.now_ms;
    let successors = world.shells[0].node.successors(at, &workspace("w"));
    assert_eq!(successors.unwrap().near.len(), 2);
    assert_eq!(world.shells[1].node.successors(at, &workspace("w")), None);
    let release = |to: &str| NodeInput::Release {
        workspace: workspace("w"),
        to: node(to),
    };
    world.give(0, release("c"));
    world.pass(1_500);
    assert_eq!(world.owners("w"), [0, 2], "at once");
    let is_end = |effect: &NodeEffect| matches!(effect, NodeEffect::Deposed(..));
    assert!(!world.shells[0].seen.iter().any(is_end));
    world.batch(2, "w", 2);
    world.pass(2_000);
    for at in 0..2 {
        assert_eq!(world.digest(at, "w"), world.digest(2, "w"));
    }
    // A node that is gone does not get it for long; the one that gave it up can have it again.
    world.shells[1].is_still = true;
    world.shells[0].seen.clear();
    world.give(2, release("b"));
    world.pass(15_000);
    let standing = world.shells[0].node.standings();
    let owner = standing[0].owner.clone().unwrap();
    assert!([node("a"), node("c")].contains(&owner), "{owner}");
    assert_eq!(standing[0].epoch, Epoch(3));
}

#[test]
fn unfit_node_neither_receives_nor_takes_a_workspace() {
    let mut world = three();
    world.batch(0, "w", 1);
    let fit = |unfit: Option<&str>| NodeInput::Fit {
        workspace: workspace("w"),
        unfit: unfit.map(str::to_owned),
    };
    world.give(1, fit(Some("a secret is missing")));
    world.give(2, fit(Some("a secret is missing")));
    world.pass(10_000);
    let successors = world.shells[0]
        .node
        .successors(world.now_ms, &workspace("w"));
    assert_eq!(successors, Some(Successors::default()));
    world.shells[0].is_still = true;
    world.pass(30_000);
    assert_eq!(world.owners("w"), [0], "it would run nowhere");
    assert!(world.shells[1].node.standings()[0].unfit.is_some());
    assert!(!world.shells[1].node.standings()[0].is_owner_heard);
    world.give(2, fit(None));
    world.pass(10_000);
    assert_eq!(world.owners("w"), [0, 2]);
}

#[test]
fn a_node_that_is_far_behind_is_not_given_a_workspace() {
    let mut hearing = HeartbeatTable::new(node("a"));
    for count in 0..2 {
        for (name, position) in [("b", 4_000), ("c", 5_999)] {
            let beat = Beat {
                workspace: workspace("w"),
                node: node(name),
                life: Incarnation(1),
                epoch: Epoch(1),
                position: Position(position),
                owns: false,
            };
            hearing.hear(0, &LastHeartbeat { beat, count });
        }
    }
    let successors = hearing.successors(0, &workspace("w"), Position(6_000));
    assert_eq!(successors.near, [node("c")]);
    assert_eq!(successors.far_behind, [(node("b"), 2_000)].into());
}

#[test]
fn a_workspace_that_was_to_be_given_up_can_stay() {
    let mut world = three();
    world.batch(0, "w", 1);
    world.pass(2_000);
    world.shells[0].seen.clear();
    world.give(0, NodeInput::Keep(workspace("w")));
    assert!(world.has_seen(0, &NodeEffect::Own(workspace("w"))));
    world.batch(0, "w", 2);
    world.pass(2_000);
    assert_eq!(world.owners("w"), [0]);
    assert_eq!(world.digest(1, "w"), world.digest(0, "w"));
}

#[test]
fn without_replica_nothing_is_acknowledged_and_doubt_ends_node() {
    let mut world = three();
    world.give(0, NodeInput::Check);
    assert!(world.has_seen(0, &NodeEffect::Checked(Some(Vec::new()))));
    world.give(0, NodeInput::Connected(false));
    world.give(0, NodeInput::Check);
    assert!(world.has_seen(0, &NodeEffect::Checked(None)));
    assert!(
        !world.shells[0]
            .seen
            .iter()
            .any(|it| matches!(it, NodeEffect::Deposed(..)))
    );
    world.batch(0, "w", 1);
    world.pass(2_000);
    assert!(!world.has_seen(0, &NodeEffect::Acknowledge(workspace("w"), BatchId(1))));
    world.give(0, NodeInput::Connected(true));
    world.pass(3_000);
    assert!(world.has_seen(0, &NodeEffect::Acknowledge(workspace("w"), BatchId(1))));

    // This one is offered, and its answer does not come.
    let path = RelativePath::new("f2").unwrap();
    let operations = vec![FileOperation::Create { path }];
    let (workspace, batch) = (workspace("w"), BatchId(2));
    let now_ms = world.now_ms;
    let input = NodeInput::Batch {
        workspace: workspace.clone(),
        batch,
        operations,
        is_awaited: true,
    };
    let offered = world.shells[0].node.handle(now_ms, input);
    assert!(matches!(&offered[..], [NodeEffect::Ask(_)]), "{offered:?}");
    let ended = world.shells[0]
        .node
        .handle(now_ms, NodeInput::Connected(false));
    assert_eq!(ended, [NodeEffect::Deposed(workspace, NodeExit::InDoubt)]);
}

#[test]
fn a_failing_disk_leaves_a_workspace_to_others() {
    let mut world = three();
    let failed = NodeInput::FilesDone {
        workspace: workspace("w"),
        outcome: FilesOutcome::Failed,
    };
    world.give(1, failed);
    assert_eq!(
        world.shells[1].node.follows(&workspace("w")),
        Err(NotStandby::Failed)
    );
    world.shells[0].is_still = true;
    world.pass(LEFT_MS - 1_000);
    assert_eq!(world.owners("w"), [0, 2]);
    let standings = world.shells[1].node.standings();
    assert!(standings[0].is_failed, "{standings:?}");
}

#[test]
fn node_with_a_failed_disk_rebuilds_its_files_and_follows_again() {
    let mut world = three();
    world.batch(0, "w", 1);
    world.pass(1_000);
    // The outcome of the last change is unknown.
    world.spoil(1, "w");
    let failed = NodeInput::FilesDone {
        workspace: workspace("w"),
        outcome: FilesOutcome::Failed,
    };
    world.give(1, failed);
    world.batch(0, "w", 2);
    world.pass(LEFT_MS + 2_000);
    let standings = world.shells[1].node.standings();
    assert!(!standings[0].is_failed, "{standings:?}");
    assert_eq!(standings[0].position, standings[0].head);
    assert_eq!(world.digest(1, "w"), world.digest(0, "w"));
    assert_eq!(world.owners("w"), [0]);
}

#[test]
fn files_are_rebuilt_on_request() {
    let mut world = three();
    world.batch(0, "w", 1);
    world.pass(1_000);
    world.spoil(1, "w");
    assert_eq!(world.shells[1].node.follows(&workspace("w")), Ok(()));
    assert_eq!(
        world.shells[0].node.follows(&workspace("w")),
        Err(NotStandby::Owned)
    );
    world.give(1, NodeInput::Rebuild(workspace("w")));
    world.pass(1_000);
    assert_eq!(world.digest(1, "w"), world.digest(0, "w"));
}

#[test]
fn log_is_trimmed_to_its_last_snapshot_where_late_nodes_start() {
    let mut world = three();
    for batch in 1..=35 {
        world.batch(0, "w", batch);
        world.pass(1_000);
    }
    let oldest = world.logs[&workspace("w")].read(Position(1)).oldest;
    assert!(oldest > Position(20), "{oldest}");
    assert_eq!(world.snapshots.len(), 1, "with one left");
    world.begin("d");
    world.pass(8_000);
    for at in 1..=3 {
        assert_eq!(world.digest(at, "w"), world.digest(0, "w"));
    }
    let is_trouble = |effect: &NodeEffect| {
        !matches!(
            effect,
            NodeEffect::Say(_, StandbyTrouble::TooFarBehind { .. })
        )
    };
    let is_said = |effect: &&NodeEffect| matches!(effect, NodeEffect::Say(..));
    let mut said = world
        .shells
        .iter()
        .flat_map(|it| it.seen.iter().filter(is_said));
    assert!(!said.any(is_trouble));

    // The new owner continues from the last snapshot.
    world.shells[0].is_still = true;
    world.pass(10_000);
    let successor = world.owners("w")[1];
    for batch in 50..=75 {
        world.batch(successor, "w", batch);
        world.pass(1_000);
    }
    let later = world.logs[&workspace("w")].read(Position(1)).oldest;
    assert!(later > oldest && world.snapshots.len() == 1, "{later}");
}

#[test]
fn a_log_is_kept_for_a_standby_that_is_a_little_behind() {
    let mut world = three();
    world.shells[2].is_still = true;
    for batch in 1..=15 {
        world.batch(0, "w", batch);
        world.pass(200);
    }
    let oldest = |world: &World| world.logs[&workspace("w")].read(Position(1)).oldest;
    assert_eq!(oldest(&world), Position(1));
    world.shells[2].is_still = false;
    world.pass(3_000);
    assert!(oldest(&world) > Position(10));
}

#[test]
fn nothing_is_noted_while_changes_are_made() {
    let mut world = three();
    let position = |world: &World| world.shells[1].node.standings()[0].position;
    let noted = |world: &World| world.shells[1].notes[&workspace("w")].position();
    for batch in 1..=2 {
        world.batch(0, "w", batch);
        while position(&world) < Position(batch + 1) {
            world.pass(50);
        }
    }
    assert_eq!(noted(&world), Position(2), "the next one is not due yet");
    world.shells[1].held = Some(Vec::new());
    world.batch(0, "w", 3);
    world.pass(3_000);
    assert_eq!(
        (position(&world), noted(&world)),
        (Position(3), Position(2))
    );
    let due_ms = world.shells[1].node.due_ms();
    assert!(due_ms > world.now_ms, "it would be asked without end");
    for done in world.shells[1].held.take().unwrap() {
        world.give(1, done);
    }
    world.pass(1_000);
    assert_eq!(
        (position(&world), noted(&world)),
        (Position(4), Position(4))
    );
}

#[test]
fn continuous_following_saves_its_position_between_pages() {
    let mut world = World::new(&["b"]);
    let mut writer = Chain::new(workspace("w"));
    let log = world.logs.entry(workspace("w")).or_default();
    let seal = Body::Seal {
        node: node("a"),
        life: Incarnation(1),
    };
    let batches = (1..3 * READ_RECORDS_MAX).map(|number| {
        let path = RelativePath::new(&format!("f{number}")).unwrap();
        Body::Operations(vec![FileOperation::Create { path }])
    });
    for body in std::iter::once(seal).chain(batches) {
        let record = writer.next(body).unwrap();
        let after = writer.last();
        writer.follow_bytes(record.bytes().to_vec()).unwrap();
        assert_eq!(log.put(&PutRequest { record, after }), PutAnswer::Done);
    }
    world.shells[0].held = Some(Vec::new());
    world.join(0, "w");
    for pages in 1..=2 {
        world.now_ms += NOTE_BEHIND_MS;
        let done = world.shells[0].held.replace(Vec::new()).unwrap();
        assert_eq!(done.len(), 1);
        for done in done {
            world.give(0, done);
        }
        let position = Position(pages * READ_RECORDS_MAX as u64);
        assert_eq!(world.shells[0].node.standings()[0].position, position);
        assert_eq!(world.shells[0].notes[&workspace("w")].position(), position);
    }
}

#[test]
fn node_that_starts_disconnected_soon_requests_the_log_list() {
    let mut early = ReplicationNode::new(node("b"), Incarnation(7), 0);
    early.handle(0, NodeInput::Tick);
    assert!(early.due_ms() <= HEADS_MS);
    let is_list = |effect: &NodeEffect| {
        let NodeEffect::Ask(request) = effect else {
            return false;
        };
        matches!(request.ask, LogCommand::List { .. })
    };
    let effects = early.handle(1, NodeInput::Connected(true));
    assert_eq!(effects.iter().filter(|it| is_list(it)).count(), 1);
}
