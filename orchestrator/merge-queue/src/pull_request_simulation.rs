//! Pull requests of a queue whose daemon is killed at any step: each branch has a commit whose proof ran on
//! its very base with the open ones before it, each task has one pull request, and none is lost.
//!
//! A kill loses everything but the records so far and the service: its branch `main`, the branches and the
//! pull requests. Meanwhile, the service merges some, and a person closes some.

use std::collections::{BTreeMap, BTreeSet};

use goondan_protocol::task::TaskId;
use goondan_protocol::time::Timestamp;

use crate::{
    Action, Event, Landing, LandingResult, MergeQueue, OpenPullRequest, Output, Proof, Proposal,
    Rebase, Record, Revision, Target,
};

/// Changes that a commit has, in order.
type Changes = Vec<TaskId>;

#[derive(Debug, Default)]
struct World {
    main: Changes,
    branches: BTreeMap<TaskId, Revision>,
    /// Tasks with a pull request, and if it is open.
    requests: BTreeMap<TaskId, bool>,
    /// Results for which the proof passed, each with its base and its changes.
    proofs: BTreeMap<Revision, (Revision, Changes)>,
    /// Files of the attempt in progress.
    work: Option<(Revision, Changes)>,
    completed: BTreeSet<TaskId>,
    records: Vec<Record>,
    queue: MergeQueue,
    actions: Vec<Action>,
    steps: usize,
    kill_at: usize,
}

fn revision(changes: &Changes) -> Revision {
    let names: Vec<&str> = changes.iter().map(TaskId::as_str).collect();
    Revision::new(format!("[{}]", names.join(" ")))
}

fn url_of(task: &TaskId) -> String {
    format!("https://git.example/{task}")
}

impl World {
    fn is_killed(&mut self) -> bool {
        self.steps += 1;
        self.steps == self.kill_at
    }

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
        self.work = None;
        self.queue = MergeQueue::restored(&self.records);
        let output = self.queue.resume(Timestamp::from_unix_millis(0));
        self.carry_on(output);
    }

    fn event(&mut self, event: Event) {
        let now = Timestamp::from_unix_millis(0);
        let output = self.queue.handle(event, now).unwrap();
        self.carry_on(output);
    }

    /// A person repeats the request until it is acknowledged.
    fn enter(&mut self, name: &str) {
        let task: TaskId = name.parse().unwrap();
        while !self.queue.entries().any(|(it, _)| it.proposal.task == task) {
            let target = Target::PullRequest {
                repository: "shop".to_owned(),
                branch: "main".to_owned(),
            };
            self.event(Event::Enter(Proposal {
                task: task.clone(),
                digest: String::new(),
                priority: 0,
                target,
            }));
        }
    }

    fn rebase(&mut self, earlier: &[OpenPullRequest], proposals: &[Proposal]) -> Rebase {
        let base = revision(&self.main);
        let mut changes = self.main.clone();
        let earlier = earlier.iter().map(|opened| &opened.proposal.task);
        for task in earlier.chain(proposals.iter().map(|it| &it.task)) {
            if !changes.contains(task) {
                changes.push(task.clone());
            }
        }
        let result = revision(&changes);
        self.work = Some((base.clone(), changes));
        Rebase::Clean { base, result }
    }

    fn push(&mut self, landing: &Landing) -> LandingResult {
        if revision(&self.main) != landing.base {
            return LandingResult::TargetMoved;
        }
        let (base, _) = self
            .proofs
            .get(&landing.result)
            .expect("pushed without its proof");
        assert_eq!(*base, landing.base);
        let [proposal] = landing.proposals.as_slice() else {
            panic!("{landing:?}");
        };
        let task = &proposal.task;
        if let Some(found) = self.branches.get(task) {
            let is_known = *found == landing.result || landing.replaces.contains(found);
            assert!(
                is_known,
                "{found} of {task} is not known as the queue's: {landing:?}"
            );
        }
        self.branches.insert(task.clone(), landing.result.clone());
        LandingResult::Done
    }

    /// Opens the pull request of a pushed branch, or finds it.
    fn open(&mut self, landing: &Landing) -> Option<LandingResult> {
        let task = landing.proposals.first().unwrap().task.clone();
        let url = url_of(&task);
        self.requests.entry(task).or_insert(true);
        // The daemon may be killed before it knows.
        if self.is_killed() {
            self.restart();
            return None;
        }
        Some(LandingResult::Opened { url })
    }

    fn landed(&mut self, landing: &Landing, result: LandingResult) {
        let result = match result {
            LandingResult::Done => self.open(landing),
            other => Some(other),
        };
        if let Some(result) = result {
            let attempt = landing.attempt;
            let landing = result;
            self.event(Event::Landed { attempt, landing });
        }
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Look { attempt, opened } => {
                let is_ended =
                    |it: &&OpenPullRequest| !self.requests.get(&it.proposal.task).unwrap();
                let ended = opened
                    .iter()
                    .filter(is_ended)
                    .map(|it| it.attempt)
                    .collect();
                let ended = Ok(ended);
                self.event(Event::Looked { attempt, ended });
            }
            Action::Rebase {
                attempt,
                earlier,
                proposals,
            } => {
                let rebase = self.rebase(&earlier, &proposals);
                self.event(Event::Rebased { attempt, rebase });
            }
            Action::Prove { attempt } => {
                let (base, changes) = self.work.clone().unwrap();
                self.proofs.insert(revision(&changes), (base, changes));
                let proof = Proof::Passed;
                self.event(Event::Proved { attempt, proof });
            }
            Action::Land(landing) => {
                let result = self.push(&landing);
                if self.is_killed() {
                    return self.restart();
                }
                self.landed(&landing, result);
            }
            Action::Inspect(landing) => {
                let task = &landing.proposals.first().unwrap().task;
                let result = match self.branches.get(task) == Some(&landing.result) {
                    true => LandingResult::Done,
                    false => LandingResult::TargetMoved,
                };
                self.landed(&landing, result);
            }
            Action::Discard { .. } => {}
            Action::Report { proposal, .. } => {
                self.completed.insert(proposal.task.clone());
                let task = proposal.task;
                self.event(Event::Acknowledged { task });
            }
        }
    }

    fn finish(&mut self) {
        for _ in 0..1_000 {
            if self.actions.is_empty() {
                break;
            }
            let action = self.actions.remove(0);
            self.carry_out(action);
        }
        assert!(self.queue.is_idle(), "{:?}", self.queue);
    }

    fn changes_of(&self, name: &str) -> Vec<&str> {
        let task: TaskId = name.parse().unwrap();
        let commit = self.branches.get(&task).unwrap();
        let (_, changes) = self.proofs.get(commit).unwrap();
        changes.iter().map(TaskId::as_str).collect()
    }
}

#[test]
fn queue_1_pull_requests_survive_a_kill_at_every_step() {
    let run = |kill_at: usize| {
        let mut world = World {
            kill_at,
            ..World::default()
        };
        world.enter("a");
        world.enter("b");
        world.finish();
        assert_eq!(world.changes_of("a"), ["a"], "kill at {kill_at}");
        assert_eq!(world.changes_of("b"), ["a", "b"], "kill at {kill_at}");
        // The service merges the first one, and a person closes the second.
        let (a, b): (TaskId, TaskId) = ("a".parse().unwrap(), "b".parse().unwrap());
        world.main.push(a.clone());
        world.requests.insert(a, false);
        world.requests.insert(b, false);
        world.enter("c");
        world.enter("d");
        world.finish();
        assert_eq!(world.changes_of("c"), ["a", "c"], "kill at {kill_at}");
        assert_eq!(world.changes_of("d"), ["a", "c", "d"], "kill at {kill_at}");
        assert_eq!(world.completed.len(), 4, "kill at {kill_at}");
        assert_eq!(world.requests.len(), 4, "kill at {kill_at}");
        world.steps
    };
    let steps = run(0);
    assert!(steps > 40, "only {steps} steps");
    for kill_at in 1..=steps {
        run(kill_at);
    }
}
