//! Tests of single rules.

use goondan_protocol::task::TaskId;
use goondan_protocol::time::Timestamp;

use crate::limits::{BATCH_MAX, ENTRIES_MAX, RETRIES_MAX, RETRY_MS};
use crate::{
    Action, Event, LandingResult, MergeQueue, Outcome, Output, Place, Proof, Proposal, Rebase,
    Record, Refusal, Revision, Stage, Target,
};

fn id(name: &str) -> TaskId {
    name.parse().unwrap()
}

fn proposal(name: &str, priority: i32) -> Proposal {
    Proposal {
        task: id(name),
        digest: format!("digest of {name}"),
        priority,
        target: Target::Project,
    }
}

fn at(millis: i64) -> Timestamp {
    Timestamp::from_unix_millis(millis)
}

/// A queue with its records, as a daemon would keep them.
struct Bench {
    queue: MergeQueue,
    records: Vec<Record>,
    batch_max: usize,
    now: Timestamp,
}

impl Bench {
    fn new(batch_max: usize) -> Self {
        Self {
            queue: MergeQueue::default().with_batches_of(batch_max),
            records: Vec::new(),
            batch_max,
            now: at(0),
        }
    }

    fn keep(&mut self, output: Output) -> Vec<Action> {
        self.records.extend(output.records);
        output.actions
    }

    fn event(&mut self, event: Event) -> Vec<Action> {
        let output = self.queue.handle(event, self.now).unwrap();
        self.keep(output)
    }

    fn refused(&mut self, event: Event) -> Refusal {
        let before = self.queue.clone();
        let refusal = self.queue.handle(event, self.now).unwrap_err();
        assert_eq!(self.queue, before);
        refusal
    }

    fn enter(&mut self, name: &str, priority: i32) -> Vec<Action> {
        self.event(Event::Enter(proposal(name, priority)))
    }

    /// A queue in which the first proposal is tried, so that the others wait.
    fn with(batch_max: usize, names: &[&str]) -> Self {
        let mut bench = Self::new(batch_max);
        for name in names {
            bench.enter(name, 0);
        }
        bench
    }

    fn attempt(&self) -> u64 {
        self.queue.last.0
    }

    fn rebased(&mut self) -> Vec<Action> {
        let (base, result) = (Revision::new("base"), Revision::new("result"));
        let rebase = Rebase::Clean { base, result };
        let attempt = self.attempt();
        self.event(Event::Rebased { attempt, rebase })
    }

    fn proved(&mut self, proof: Proof) -> Vec<Action> {
        let attempt = self.attempt();
        self.event(Event::Proved { attempt, proof })
    }

    fn landed(&mut self, landing: LandingResult) -> Vec<Action> {
        let attempt = self.attempt();
        self.event(Event::Landed { attempt, landing })
    }

    fn conflicts(&mut self, name: &str) -> Vec<Action> {
        let rebase = Rebase::Conflict {
            base: Revision::new("base"),
            task: id(name),
            text: format!("conflict of {name}"),
        };
        let attempt = self.attempt();
        self.event(Event::Rebased { attempt, rebase })
    }

    fn order(&self) -> Vec<String> {
        let entries = self.queue.entries();
        entries
            .map(|(entry, _)| entry.proposal.task.to_string())
            .collect()
    }

    fn stages(&self) -> Vec<Stage> {
        self.queue.entries().map(|(_, stage)| stage).collect()
    }

    fn restart(&mut self) -> Vec<Action> {
        let queue = MergeQueue::restored(&self.records);
        self.queue = queue.with_batches_of(self.batch_max);
        let output = self.queue.resume(self.now);
        self.keep(output)
    }
}

/// Tasks of the attempt that the actions begin.
fn tried(actions: &[Action]) -> Vec<String> {
    let rebase = actions.iter().find_map(|action| match action {
        Action::Rebase { proposals, .. } => Some(proposals),
        _ => None,
    });
    let tasks = rebase.into_iter().flatten();
    tasks.map(|proposal| proposal.task.to_string()).collect()
}

fn reported(actions: &[Action]) -> Vec<(String, Outcome)> {
    let reports = actions.iter().filter_map(|action| match action {
        Action::Report { proposal, outcome } => Some((proposal.task.to_string(), outcome.clone())),
        _ => None,
    });
    reports.collect()
}

#[test]
fn queue_1_proposal_is_rebased_proved_and_landed() {
    let mut bench = Bench::new(1);
    assert_eq!(tried(&bench.enter("a", 0)), ["a"]);
    assert_eq!(bench.stages(), [Stage::Rebasing]);
    assert_eq!(bench.rebased(), [Action::Prove { attempt: 1 }]);
    assert_eq!(bench.stages(), [Stage::Proving]);
    let actions = bench.proved(Proof::Passed);
    let [Action::Land(landing)] = actions.as_slice() else {
        panic!("{actions:?}");
    };
    assert_eq!(landing.base, Revision::new("base"));
    assert_eq!(landing.result, Revision::new("result"));
    assert_eq!(bench.stages(), [Stage::Landing]);
    let intent = Record::LandingBegun {
        attempt: 1,
        base: Revision::new("base"),
        result: Revision::new("result"),
    };
    assert_eq!(bench.records.last(), Some(&intent));
    let landed = Outcome::Landed {
        base: Revision::new("base"),
        result: Revision::new("result"),
        pull_request: None,
    };
    let actions = bench.landed(LandingResult::Done);
    assert_eq!(reported(&actions), [("a".to_owned(), landed)]);
    assert!(!bench.queue.is_idle());
    bench.event(Event::Acknowledged { task: id("a") });
    assert!(bench.queue.is_idle());
    assert_eq!(bench.queue.outcomes().count(), 1);
}

#[test]
fn queue_1_conflict_and_failed_proof_are_handed_back() {
    let mut bench = Bench::with(1, &["a", "b"]);
    let actions = bench.conflicts("a");
    let conflict = Outcome::Conflict {
        base: Revision::new("base"),
        text: "conflict of a".to_owned(),
    };
    assert_eq!(reported(&actions), [("a".to_owned(), conflict)]);
    assert_eq!(tried(&actions), ["b"]);
    bench.rebased();
    let log = "1 test failed".to_owned();
    let actions = bench.proved(Proof::Failed { log: log.clone() });
    let base = Revision::new("base");
    assert_eq!(
        reported(&actions),
        [("b".to_owned(), Outcome::Unproved { base, log })]
    );
    assert_eq!(bench.order(), Vec::<String>::new());
}

#[test]
fn queue_1_target_that_moved_needs_another_rebase_and_proof() {
    let mut bench = Bench::with(1, &["a"]);
    bench.rebased();
    bench.proved(Proof::Passed);
    let actions = bench.landed(LandingResult::TargetMoved);
    assert_eq!(tried(&actions), ["a"]);
    assert_eq!(bench.attempt(), 2);
    // The proof of the first attempt proves nothing now.
    let attempt = 1;
    let proof = Proof::Passed;
    assert_eq!(bench.event(Event::Proved { attempt, proof }), []);
    assert_eq!(bench.stages(), [Stage::Rebasing]);
}

#[test]
fn queue_1_failed_batch_is_bisected_until_the_culprit_is_found() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    for culprit in names {
        let mut bench = Bench::new(BATCH_MAX);
        bench.enter("first", 0);
        for name in names {
            bench.enter(name, 0);
        }
        let mut actions = bench.event(Event::Drop {
            task: id("first"),
            why: "test".to_owned(),
        });
        assert_eq!(tried(&actions), names);
        let (mut landed, mut proofs, mut handed_back) = (Vec::new(), 0, Vec::new());
        while !bench.order().is_empty() {
            let batch = tried(&actions);
            bench.rebased();
            proofs += 1;
            if batch.iter().any(|name| name == culprit) {
                let log = String::new();
                actions = bench.proved(Proof::Failed { log });
                handed_back.extend(reported(&actions));
            } else {
                bench.proved(Proof::Passed);
                landed.extend(batch);
                actions = bench.landed(LandingResult::Done);
            }
        }
        let others: Vec<&str> = names.into_iter().filter(|name| *name != culprit).collect();
        assert_eq!(landed, others, "in order");
        assert_eq!(handed_back.len(), 1);
        assert_eq!(handed_back.first().unwrap().0, culprit);
        assert!(proofs <= 8, "{proofs} proofs for culprit {culprit}");
    }
}

#[test]
fn queue_1_proposals_for_other_targets_are_not_tried_together() {
    let mut bench = Bench::new(BATCH_MAX);
    let branch = |name: &str| Target::Branch {
        repository: "https://git.example/shop.git".to_owned(),
        branch: name.to_owned(),
    };
    let targets = [
        ("first", branch("main")),
        ("a", branch("main")),
        ("b", branch("main")),
        ("c", branch("next")),
        ("d", branch("main")),
    ];
    for (name, target) in targets {
        let proposal = proposal(name, 0);
        bench.event(Event::Enter(Proposal { target, ..proposal }));
    }
    let mut batches = Vec::new();
    while !bench.order().is_empty() {
        bench.rebased();
        bench.proved(Proof::Passed);
        batches.push(tried(&bench.landed(LandingResult::Done)));
    }
    assert_eq!(batches, [vec!["a", "b"], vec!["c"], vec!["d"], vec![]]);
}

#[test]
fn queue_1_conflict_within_a_batch_does_not_blame_the_later_proposal() {
    let mut bench = Bench::with(4, &["x"]);
    for name in ["a", "b", "c"] {
        bench.enter(name, 0);
    }
    bench.rebased();
    bench.proved(Proof::Passed);
    assert_eq!(tried(&bench.landed(LandingResult::Done)), ["a", "b", "c"]);
    let actions = bench.conflicts("b");
    assert_eq!(reported(&actions), []);
    assert_eq!(tried(&actions), ["a"]);
    bench.rebased();
    bench.proved(Proof::Passed);
    let actions = bench.landed(LandingResult::Done);
    assert_eq!(tried(&actions), ["b", "c"]);
    // Now it is the first, so that the conflict is its own.
    assert_eq!(reported(&bench.conflicts("b")).len(), 1);
}

#[test]
fn queue_1_priorities_moves_holds_and_drops_change_the_order() {
    let mut bench = Bench::with(1, &["a", "b", "c"]);
    bench.enter("urgent", 5);
    bench.enter("late", -1);
    assert_eq!(bench.order(), ["urgent", "a", "b", "c", "late"]);
    assert_eq!(bench.stages().get(1), Some(&Stage::Rebasing));
    let to = Place::Before(id("a"));
    bench.event(Event::Move { task: id("c"), to });
    assert_eq!(bench.order(), ["urgent", "c", "a", "b", "late"]);
    let (task, priority) = (id("late"), 5);
    bench.event(Event::Prioritize { task, priority });
    assert_eq!(bench.order(), ["urgent", "late", "c", "a", "b"]);
    let to = Place::Last;
    bench.event(Event::Move {
        task: id("urgent"),
        to,
    });
    let to = Place::First;
    bench.event(Event::Move { task: id("b"), to });
    assert_eq!(bench.order(), ["b", "late", "c", "a", "urgent"]);
    // The proposal that is tried is held: the next one is tried instead.
    let why = "wait for the release".to_owned();
    let held = Event::Hold { task: id("a"), why };
    let actions = bench.event(held);
    assert_eq!(actions.first(), Some(&Action::Discard { attempt: 1 }));
    assert_eq!(tried(&actions), ["b"]);
    assert_eq!(bench.stages().get(3), Some(&Stage::Held));
    let (task, why) = (id("b"), "no longer wanted".to_owned());
    let actions = bench.event(Event::Drop { task, why });
    assert_eq!(tried(&actions), ["late"]);
    assert_eq!(reported(&actions).len(), 1);
    bench.event(Event::Release { task: id("a") });
    assert_eq!(bench.order(), ["late", "c", "a", "urgent"]);
}

#[test]
fn queue_1_impossible_changes_are_refused() {
    let mut bench = Bench::with(1, &["a", "b"]);
    let refused = bench.refused(Event::Enter(proposal("a", 0)));
    assert_eq!(refused, Refusal::AlreadyQueued(id("a")));
    let refused = bench.refused(Event::Release { task: id("a") });
    assert_eq!(refused, Refusal::NotHeld(id("a")));
    let to = Place::Before(id("a"));
    let refused = bench.refused(Event::Move { task: id("a"), to });
    assert_eq!(refused, Refusal::BeforeItself(id("a")));
    let to = Place::Before(id("z"));
    let refused = bench.refused(Event::Move { task: id("a"), to });
    assert_eq!(refused, Refusal::NotQueued(id("z")));
    bench.rebased();
    bench.proved(Proof::Passed);
    let (task, why) = (id("a"), String::new());
    let refused = bench.refused(Event::Drop { task, why });
    assert_eq!(refused, Refusal::Landing(id("a")));
    // The task is reported the landing, which cannot be stopped.
    let (task, why) = (id("a"), String::new());
    assert_eq!(bench.event(Event::Withdraw { task, why }), []);
    let names = (0..ENTRIES_MAX - 2).map(|number| format!("more-{number}"));
    for name in names {
        bench.enter(&name, 0);
    }
    let refused = bench.refused(Event::Enter(proposal("beyond", 0)));
    assert_eq!(refused, Refusal::Full);
}

#[test]
fn queue_1_lost_proof_is_repeated_and_then_left_to_a_person() {
    let mut bench = Bench::with(1, &["a", "b"]);
    for time in 0..RETRIES_MAX {
        bench.rebased();
        let actions = bench.proved(Proof::Lost("killed".to_owned()));
        assert_eq!(tried(&actions), Vec::<String>::new());
        let due = bench.queue.next_tick().unwrap();
        let wait = due.as_unix_millis() - bench.now.as_unix_millis();
        assert_eq!(wait, RETRY_MS << time);
        assert_eq!(bench.event(Event::Tick), []);
        bench.now = due;
        assert_eq!(tried(&bench.event(Event::Tick)), ["a"]);
    }
    bench.rebased();
    let actions = bench.proved(Proof::Lost("killed".to_owned()));
    assert_eq!(bench.stages(), [Stage::Held, Stage::Rebasing]);
    assert_eq!(tried(&actions), ["b"]);
}

#[test]
fn queue_1_landing_that_always_fails_is_left_to_a_person() {
    let mut bench = Bench::with(1, &["a"]);
    let why = || "the token may not push".to_owned();
    for _ in 0..=RETRIES_MAX {
        bench.rebased();
        bench.proved(Proof::Passed);
        bench.landed(LandingResult::Failed { why: why() });
        bench.now = bench.queue.next_tick().unwrap_or(bench.now);
        bench.event(Event::Tick);
    }
    let held = bench.queue.entries().map(|(entry, _)| entry.held.clone());
    assert_eq!(held.collect::<Vec<_>>(), [Some(why())]);
}

/// A proposal whose result becomes a pull request.
fn for_pull_request(name: &str) -> Proposal {
    let target = Target::PullRequest {
        repository: "https://git.example/shop.git".to_owned(),
        branch: "main".to_owned(),
    };
    Proposal {
        target,
        ..proposal(name, 0)
    }
}

/// Attempts whose open pull requests the next proof covers.
fn covered(actions: &[Action]) -> Vec<u64> {
    let earlier = actions.iter().find_map(|action| match action {
        Action::Look { opened, .. } => Some(opened),
        Action::Rebase { earlier, .. } => Some(earlier),
        _ => None,
    });
    let earlier = earlier.into_iter().flatten();
    earlier.map(|opened| opened.attempt).collect()
}

impl Bench {
    /// Proves the proposal of the attempt in progress, and opens its pull request.
    fn opens(&mut self, url: &str) -> Vec<Action> {
        self.rebased();
        self.proved(Proof::Passed);
        let summary = String::new();
        assert_eq!(self.landed(LandingResult::Pushed { summary }), []);
        assert_eq!(self.stages().first(), Some(&Stage::Landing));
        let url = url.to_owned();
        self.landed(LandingResult::Opened { url })
    }

    fn looked(&mut self, ended: Result<Vec<u64>, String>) -> Vec<Action> {
        let attempt = self.attempt();
        self.event(Event::Looked { attempt, ended })
    }
}

#[test]
fn queue_1_pull_requests_are_proved_one_by_one_with_the_open_ones_before() {
    let mut bench = Bench::new(BATCH_MAX);
    for name in ["a", "b", "c"] {
        bench.event(Event::Enter(for_pull_request(name)));
    }
    let actions = bench.opens("https://git.example/pull/1");
    let reports = reported(&actions);
    let [(task, Outcome::Landed { pull_request, .. })] = reports.as_slice() else {
        panic!("{actions:?}");
    };
    assert_eq!(task, "a");
    assert_eq!(pull_request.as_deref(), Some("https://git.example/pull/1"));
    // Its change is part of the next proof, unless the service says that it is merged or closed.
    assert_eq!(covered(&actions), [1]);
    let actions = bench.looked(Ok(Vec::new()));
    assert_eq!(
        (tried(&actions), covered(&actions)),
        (vec!["b".to_owned()], vec![1])
    );
    assert_eq!(covered(&bench.opens("https://git.example/pull/2")), [1, 2]);
    let actions = bench.looked(Ok(vec![1]));
    assert_eq!(
        (tried(&actions), covered(&actions)),
        (vec!["c".to_owned()], vec![2])
    );
    // It stays known after a restart.
    assert_eq!(covered(&bench.restart()), [2]);
    // Its agent cannot see the change of the open one.
    bench.looked(Ok(Vec::new()));
    bench.rebased();
    let log = "1 test failed".to_owned();
    let reports = reported(&bench.proved(Proof::Failed { log }));
    let [(_, Outcome::Unproved { log, .. })] = reports.as_slice() else {
        panic!("{reports:?}");
    };
    assert!(
        log.starts_with("1 test failed\n[") && log.contains("/pull/2"),
        "{log}"
    );
}

#[test]
fn queue_1_service_that_cannot_be_asked_delays_the_proof() {
    let mut bench = Bench::new(1);
    bench.event(Event::Enter(for_pull_request("a")));
    bench.event(Event::Enter(for_pull_request("b")));
    bench.opens("https://git.example/pull/1");
    for _ in 0..=RETRIES_MAX {
        assert_eq!(bench.stages(), [Stage::Rebasing]);
        assert_eq!(
            tried(&bench.looked(Err("no network".to_owned()))),
            Vec::<String>::new()
        );
        bench.now = bench.queue.next_tick().unwrap_or(bench.now);
        bench.event(Event::Tick);
    }
    assert_eq!(bench.stages(), [Stage::Held]);
}

#[test]
fn queue_1_change_that_an_open_pull_request_blocks_waits_for_a_person() {
    let mut bench = Bench::new(1);
    for name in ["a", "b", "c"] {
        bench.event(Event::Enter(for_pull_request(name)));
    }
    bench.opens("https://git.example/pull/1");
    bench.looked(Ok(Vec::new()));
    let (attempt, why) = (bench.attempt(), "conflicts with pull request 1".to_owned());
    let rebase = Rebase::Blocked { why };
    bench.event(Event::Rebased { attempt, rebase });
    assert_eq!(bench.stages(), [Stage::Held, Stage::Rebasing]);
    let actions = bench.looked(Ok(vec![1]));
    assert_eq!(tried(&actions), ["c"]);
}

#[test]
fn queue_1_later_change_of_a_task_updates_its_pull_request() {
    let mut bench = Bench::new(1);
    bench.event(Event::Enter(for_pull_request("a")));
    bench.opens("https://git.example/pull/1");
    bench.event(Event::Acknowledged { task: id("a") });
    // Its own earlier change is part of its new one.
    let actions = bench.event(Event::Enter(for_pull_request("a")));
    assert_eq!(
        (tried(&actions), covered(&actions)),
        (vec!["a".to_owned()], vec![])
    );
    let (base, result) = (Revision::new("base"), Revision::new("second"));
    let rebase = Rebase::Clean { base, result };
    bench.event(Event::Rebased { attempt: 2, rebase });
    let actions = bench.proved(Proof::Passed);
    let [Action::Land(landing)] = actions.as_slice() else {
        panic!("{actions:?}");
    };
    assert_eq!(landing.replaces, [Revision::new("result")]);
    // A kill after its push: the commit that the branch has now is known, too.
    let actions = bench.restart();
    let [Action::Inspect(inspected)] = actions.as_slice() else {
        panic!("{actions:?}");
    };
    assert_eq!(inspected, landing);
    bench.landed(LandingResult::Failed { why: String::new() });
    bench.now = bench.queue.next_tick().unwrap();
    bench.event(Event::Tick);
    bench.rebased();
    let actions = bench.proved(Proof::Passed);
    let [Action::Land(landing)] = actions.as_slice() else {
        panic!("{actions:?}");
    };
    assert_eq!(
        landing.replaces,
        [Revision::new("result"), Revision::new("second")]
    );
    let url = "https://git.example/pull/1".to_owned();
    bench.landed(LandingResult::Opened { url });
    assert_eq!(bench.queue.opened.len(), 1);
}

#[test]
fn queue_1_restart_inspects_a_landing_and_repeats_reports() {
    let mut bench = Bench::with(1, &["a", "b"]);
    let actions = bench.restart();
    assert_eq!(actions.first(), Some(&Action::Discard { attempt: 1 }));
    assert_eq!(tried(&actions), ["a"]);
    bench.rebased();
    bench.proved(Proof::Passed);
    let actions = bench.restart();
    let [Action::Inspect(landing)] = actions.as_slice() else {
        panic!("{actions:?}");
    };
    assert_eq!(landing.attempt, 2);
    assert_eq!(bench.stages(), [Stage::Landing, Stage::Waiting]);
    let actions = bench.landed(LandingResult::Done);
    assert_eq!(reported(&actions).len(), 1);
    let actions = bench.restart();
    assert_eq!(reported(&actions).len(), 1);
    bench.event(Event::Acknowledged { task: id("a") });
    assert_eq!(reported(&bench.restart()), []);
}

#[test]
fn queue_1_records_are_read_as_they_are_written() {
    let base = Revision::new("base");
    let text = "conflict".to_owned();
    let records = [
        Record::Entered {
            proposal: proposal("a", -2),
        },
        Record::Moved {
            task: id("a"),
            to: Place::Before(id("b")),
        },
        Record::AttemptBegun {
            attempt: 1,
            tasks: vec![id("a")],
        },
        Record::Left {
            task: id("a"),
            outcome: Outcome::Conflict { base, text },
        },
        Record::Landed {
            attempt: 1,
            pull_request: None,
        },
        Record::Landed {
            attempt: 2,
            pull_request: Some("u".to_owned()),
        },
    ];
    let texts = [
        r#"{"event":"entered","data":{"proposal":{"task":"a","digest":"digest of a","priority":-2,"target":{"kind":"project"}}}}"#,
        r#"{"event":"moved","data":{"task":"a","to":{"before":"b"}}}"#,
        r#"{"event":"attempt_begun","data":{"attempt":1,"tasks":["a"]}}"#,
        r#"{"event":"left","data":{"task":"a","outcome":{"kind":"conflict","base":"base","text":"conflict"}}}"#,
        r#"{"event":"landed","data":{"attempt":1}}"#,
        r#"{"event":"landed","data":{"attempt":2,"pullRequest":"u"}}"#,
    ];
    for (record, text) in records.iter().zip(texts) {
        assert_eq!(serde_json::to_string(record).unwrap(), text);
        assert_eq!(serde_json::from_str::<Record>(text).unwrap(), *record);
    }
}
