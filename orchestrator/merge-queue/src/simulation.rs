//! Queues whose daemon is killed at any step: each landing had its proof on its very base, and no
//! proposal is lost.
//!
//! The world has a target, a queue with its records, and tasks. A kill loses everything but the
//! target, a prefix of the records, and the outcomes that tasks have recorded. People change the
//! queue, and others change the target.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use goondan_protocol::task::TaskId;
use goondan_protocol::time::Timestamp;

use crate::{
    Action, Event, Landing, LandingResult, MergeQueue, Outcome, Output, Place, Proof, Proposal,
    Rebase, Record, Revision, Target,
};

/// Files of a target: the value of each.
type Files = BTreeMap<u8, u32>;

/// The change of a task: the file, its value before and afterwards.
#[derive(Debug, Clone, Copy)]
struct Change {
    file: u8,
    from: u32,
    to: u32,
    /// The proof fails with this change.
    is_broken: bool,
}

/// A change of the target.
#[derive(Debug)]
struct TargetChange {
    attempt: u64,
    base: Revision,
    result: Revision,
    tasks: Vec<TaskId>,
}

#[derive(Debug)]
struct World {
    rng: Rng,
    now_ms: i64,
    files: Files,
    /// All changes of the target: landings, and changes by others, which have no tasks.
    landings: Vec<TargetChange>,
    changes: BTreeMap<TaskId, Change>,
    proofs: BTreeSet<(u64, Revision, Revision)>,
    /// Files of attempts, which a kill does not remove.
    work: BTreeMap<u64, (Revision, Files)>,
    reported: BTreeMap<TaskId, Outcome>,
    records: Vec<Record>,
    queue: MergeQueue,
    batch_max: usize,
    /// Actions that are not carried out yet.
    actions: Vec<Action>,
    /// Events that the daemon has not handled yet.
    events: Vec<Event>,
    steps: usize,
    /// The steps after which the daemon is killed.
    kill_at: BTreeSet<usize>,
}

fn revision(files: &Files) -> Revision {
    Revision::new(format!("{files:?}"))
}

impl World {
    fn new(seed: u64, batch_max: usize) -> Self {
        Self {
            rng: Rng::with_seed(seed),
            now_ms: 0,
            files: (0..4).map(|file| (file, 0)).collect(),
            landings: Vec::new(),
            changes: BTreeMap::new(),
            proofs: BTreeSet::new(),
            work: BTreeMap::new(),
            reported: BTreeMap::new(),
            records: Vec::new(),
            queue: MergeQueue::default().with_batches_of(batch_max),
            batch_max,
            actions: Vec::new(),
            events: Vec::new(),
            steps: 0,
            kill_at: BTreeSet::new(),
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_unix_millis(self.now_ms)
    }

    /// Counts a step; true if the daemon is killed after it.
    fn is_killed(&mut self) -> bool {
        self.steps += 1;
        self.kill_at.contains(&self.steps)
    }

    /// Makes an output durable, record by record. A kill leaves a prefix.
    fn carry_on(&mut self, output: Output) {
        for record in output.records {
            if self.is_killed() {
                return self.restart();
            }
            self.records.push(record);
        }
        if self.is_killed() {
            return self.restart();
        }
        self.actions.extend(output.actions);
    }

    fn restart(&mut self) {
        self.actions.clear();
        self.events.clear();
        let queue = MergeQueue::restored(&self.records);
        self.queue = queue.with_batches_of(self.batch_max);
        let now = self.now();
        let output = self.queue.resume(now);
        self.carry_on(output);
    }

    fn event(&mut self, event: Event) {
        let now = self.now();
        if let Ok(output) = self.queue.handle(event, now) {
            self.carry_on(output);
        }
    }

    fn rebase(&mut self, attempt: u64, proposals: &[Proposal]) -> Rebase {
        if self.rng.u8(..) < 8 {
            return Rebase::Failed {
                why: "no space".to_owned(),
            };
        }
        let base = revision(&self.files);
        let mut files = self.files.clone();
        for proposal in proposals {
            let change = self.changes.get(&proposal.task).unwrap();
            let value = files.get_mut(&change.file).unwrap();
            if *value != change.from {
                let (task, text) = (proposal.task.clone(), "conflict".to_owned());
                return Rebase::Conflict { base, task, text };
            }
            *value = change.to;
        }
        let result = revision(&files);
        self.work.insert(attempt, (base.clone(), files));
        Rebase::Clean { base, result }
    }

    fn prove(&mut self, attempt: u64) -> Proof {
        let Some((base, files)) = self.work.get(&attempt) else {
            return Proof::Lost("no files".to_owned());
        };
        if self.rng.u8(..) < 8 {
            return Proof::Lost("killed".to_owned());
        }
        let is_broken =
            |change: &Change| change.is_broken && files.get(&change.file) == Some(&change.to);
        if self.changes.values().any(is_broken) {
            let log = "failed".to_owned();
            return Proof::Failed { log };
        }
        let proof = (attempt, base.clone(), revision(files));
        self.proofs.insert(proof);
        Proof::Passed
    }

    fn land(&mut self, landing: &Landing) -> LandingResult {
        if revision(&self.files) != landing.base {
            return LandingResult::TargetMoved;
        }
        let (base, files) = self.work.get(&landing.attempt).unwrap();
        assert_eq!(revision(files), landing.result);
        assert_eq!(*base, landing.base);
        let proof = (
            landing.attempt,
            landing.base.clone(),
            landing.result.clone(),
        );
        assert!(self.proofs.contains(&proof), "landed without its proof");
        self.files = files.clone();
        let tasks = landing.proposals.iter().map(|it| it.task.clone());
        self.landings.push(TargetChange {
            attempt: landing.attempt,
            base: landing.base.clone(),
            result: landing.result.clone(),
            tasks: tasks.collect(),
        });
        LandingResult::Done
    }

    fn report(&mut self, task: &TaskId, outcome: &Outcome) {
        let before = self.reported.insert(task.clone(), outcome.clone());
        assert!(before.is_none_or(|before| before == *outcome), "{task}");
    }

    /// Carries out an action. The daemon may be killed before its event is handled.
    fn carry_out(&mut self, action: Action) {
        let event = match action {
            Action::Look { attempt, .. } => {
                let ended = Ok(Vec::new());
                Event::Looked { attempt, ended }
            }
            Action::Rebase {
                attempt, proposals, ..
            } => {
                let rebase = self.rebase(attempt, &proposals);
                Event::Rebased { attempt, rebase }
            }
            Action::Prove { attempt } => {
                let proof = self.prove(attempt);
                Event::Proved { attempt, proof }
            }
            Action::Land(landing) => {
                let attempt = landing.attempt;
                let landing = self.land(&landing);
                Event::Landed { attempt, landing }
            }
            Action::Inspect(landing) => {
                let attempt = landing.attempt;
                // Others may have changed the target since.
                let mut landings = self.landings.iter();
                let is_done =
                    landings.any(|it| it.attempt == attempt && it.result == landing.result);
                let landing = match is_done {
                    true => LandingResult::Done,
                    false => LandingResult::TargetMoved,
                };
                Event::Landed { attempt, landing }
            }
            Action::Discard { attempt } => {
                self.work.remove(&attempt);
                return;
            }
            Action::Report { proposal, outcome } => {
                self.report(&proposal.task, &outcome);
                let task = proposal.task;
                Event::Acknowledged { task }
            }
        };
        if self.is_killed() {
            return self.restart();
        }
        self.events.push(event);
    }

    /// One step of the daemon. Returns false if there is nothing to do.
    fn step(&mut self) -> bool {
        let choices = self.actions.len() + self.events.len();
        if choices == 0 {
            let Some(at) = self.queue.next_tick() else {
                return false;
            };
            self.now_ms = self.now_ms.max(at.as_unix_millis());
            self.event(Event::Tick);
            return true;
        }
        let choice = self.rng.usize(..choices);
        if choice < self.events.len() {
            let event = self.events.remove(choice);
            self.event(event);
        } else {
            // Actions begin in order, because the thread of a workspace does one after another.
            let action = self.actions.remove(0);
            self.carry_out(action);
        }
        true
    }

    fn enter(&mut self, number: u32) {
        let file = self.rng.u8(..4);
        let from = self.files.get(&file).copied().unwrap_or_default();
        let is_broken = self.rng.u8(..) < 40;
        let to = number + 1;
        let change = Change {
            file,
            from,
            to,
            is_broken,
        };
        self.enter_change(number, change);
    }

    fn enter_change(&mut self, number: u32, change: Change) {
        let task: TaskId = format!("t{number}").parse().unwrap();
        self.changes.insert(task.clone(), change);
        let priority = self.rng.i32(-1..2);
        let digest = String::new();
        // A person repeats the request until it is acknowledged.
        loop {
            let is_known = self.queue.entries().any(|(it, _)| it.proposal.task == task)
                || self.queue.outcomes().any(|(it, _)| it.task == task);
            if is_known {
                return;
            }
            let (task, digest) = (task.clone(), digest.clone());
            self.event(Event::Enter(Proposal {
                task,
                digest,
                priority,
                target: Target::Project,
            }));
        }
    }

    fn person(&mut self) {
        let tasks: Vec<TaskId> = self
            .queue
            .entries()
            .map(|(entry, _)| entry.proposal.task.clone())
            .collect();
        let Some(task) = self.rng.choice(&tasks).cloned() else {
            return;
        };
        let other = self.rng.choice(&tasks).cloned().unwrap();
        let why = "a person".to_owned();
        let event = match self.rng.u8(..7) {
            0 => Event::Hold { task, why },
            1 => Event::Release { task },
            2 => Event::Move {
                task,
                to: Place::Before(other),
            },
            3 => Event::Move {
                task,
                to: Place::First,
            },
            4 => Event::Prioritize { task, priority: 1 },
            5 => Event::Withdraw { task, why },
            _ => Event::Drop { task, why },
        };
        self.event(event);
    }

    /// Someone else changes the target.
    fn move_target(&mut self) {
        let file = self.rng.u8(..4);
        self.files.insert(file, 1_000 + self.rng.u32(..1_000));
        self.landings.push(TargetChange {
            attempt: 0,
            base: Revision::new(""),
            result: revision(&self.files),
            tasks: Vec::new(),
        });
    }

    /// Lets the daemon finish, and checks the result.
    fn finish(&mut self) {
        for _ in 0..100_000 {
            if self.step() {
                continue;
            }
            let held = self.queue.entries().find(|(entry, _)| entry.held.is_some());
            let Some((entry, _)) = held else {
                break;
            };
            let task = entry.proposal.task.clone();
            self.event(Event::Release { task });
        }
        assert!(self.queue.is_idle(), "{:?}", self.queue);
        let reported: BTreeSet<&TaskId> = self.reported.keys().collect();
        let entered: BTreeSet<&TaskId> = self.changes.keys().collect();
        assert_eq!(reported, entered, "no proposal is lost");
        let mut landed: Vec<&TaskId> = Vec::new();
        let mut before: Option<&Revision> = None;
        for change in &self.landings {
            let is_landing = !change.tasks.is_empty();
            if let Some(before) = before.filter(|_| is_landing) {
                assert_eq!(change.base, *before, "the history is linear");
            }
            before = Some(&change.result);
            landed.extend(&change.tasks);
        }
        let once: BTreeSet<&TaskId> = landed.iter().copied().collect();
        assert_eq!(once.len(), landed.len(), "landed more than once");
        let reported = self
            .reported
            .iter()
            .filter(|(_, outcome)| matches!(outcome, Outcome::Landed { .. }));
        let reported: BTreeSet<&TaskId> = reported.map(|(task, _)| task).collect();
        assert_eq!(reported, once, "each task knows if its proposal landed");
        let broken = once
            .iter()
            .find(|task| self.changes.get(**task).is_some_and(|it| it.is_broken));
        assert_eq!(broken, None, "a broken proposal landed");
        // The records alone give the same queue.
        let restored = MergeQueue::restored(&self.records);
        assert!(restored.is_idle());
    }
}

#[test]
fn queue_1_random_kills_people_and_other_changes_lose_no_proposal() {
    let mut landed = 0;
    for seed in 0..400 {
        let batch_max = *Rng::with_seed(seed).choice(&[1, 2, 8]).unwrap();
        let mut world = World::new(seed, batch_max);
        let kills = world.rng.usize(..12);
        world.kill_at = (0..kills).map(|_| world.rng.usize(1..300)).collect();
        let mut number = 0;
        for _ in 0..300 {
            match world.rng.u8(..40) {
                0..4 if number < 40 => {
                    world.enter(number);
                    number += 1;
                }
                4 => world.person(),
                5 if world.rng.bool() => world.move_target(),
                _ => {
                    world.step();
                }
            }
        }
        world.finish();
        let own = world.landings.iter().filter(|it| !it.tasks.is_empty());
        landed += own.count();
    }
    assert!(landed > 1_000, "only {landed} landings");
}

#[test]
fn queue_1_kill_at_every_step_loses_nothing_and_lands_nothing_twice() {
    let run = |kill_at: usize| {
        let mut world = World::new(7, 3);
        world.kill_at.insert(kill_at);
        for number in 0..6_u8 {
            let change = Change {
                file: number % 4,
                from: 0,
                to: u32::from(number) + 1,
                is_broken: number == 2,
            };
            world.enter_change(u32::from(number), change);
        }
        world.finish();
        let landed = world.landings.iter().map(|it| it.tasks.len());
        // One is broken, and two change the files of others.
        assert_eq!(landed.sum::<usize>(), 3, "{:?}", world.landings);
        world.steps
    };
    let steps = run(0);
    assert!(steps > 40, "only {steps} steps");
    for kill_at in 1..=steps {
        run(kill_at);
    }
}

#[test]
fn queue_1_proposals_without_conflicts_land_in_the_order_of_the_queue() {
    for batch_max in [1, 3, 8] {
        let mut world = World::new(1, batch_max);
        world.files = (0..20).map(|file| (file, 0)).collect();
        let mut expected = Vec::new();
        for file in 0..20_u8 {
            let task: TaskId = format!("t{file}").parse().unwrap();
            let change = Change {
                file,
                from: 0,
                to: 1,
                is_broken: file == 5,
            };
            world.changes.insert(task.clone(), change);
            if !change.is_broken {
                expected.push(task.clone());
            }
            let (digest, priority) = (String::new(), 0);
            world.event(Event::Enter(Proposal {
                task,
                digest,
                priority,
                target: Target::Project,
            }));
        }
        world.finish();
        let tasks = world.landings.iter().flat_map(|it| &it.tasks);
        let landed: Vec<TaskId> = tasks.cloned().collect();
        assert_eq!(landed, expected, "batches of {batch_max}");
    }
}
