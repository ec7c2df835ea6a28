//! Tests of the merge queue in the core: outcomes of tasks, lost records, and kills of the daemon.

use goondan_cli_agents::{CliEvent, RunResult};
use goondan_merge_queue::Record;
use goondan_protocol::control::{ControlError, ErrorCode};
use goondan_protocol::ipc::{Pong, ToOrchestrator};
use goondan_tasks::limits::STALL_MS;
use serde_json::{Value, json};

use super::world::World;
use crate::exchange::{ProposalWork, QueueStep};
use crate::limits::{HEARTBEAT_INTERVAL_MS, QUEUE_RETRY_MS};

/// Name of the next operation on the files of the queue.
fn next(world: &World) -> &'static str {
    match world.proposal_works.front() {
        Some(ProposalWork::Queue(work)) => match &work.step {
            QueueStep::Load => "load",
            QueueStep::Record(_) => "record",
            QueueStep::Rebase { .. } => "rebase",
            QueueStep::Land { .. } => "land",
            QueueStep::Find { .. } => "find",
            QueueStep::Discard { .. } => "discard",
            QueueStep::HandBack(_) => "hand back",
        },
        Some(_) => "other",
        None => "nothing",
    }
}

/// Creates a task, and runs it until it waits for a review.
fn bring_to_review(world: &mut World, task: &str) {
    let new = json!({
        "taskId": task, "title": "Build it", "description": "Do so.", "source": "project",
        "start": true,
    });
    world.get("task.new", &new).unwrap();
    world.sandbox_done(Ok(Value::Null));
    let process = world.run(task);
    let ended = RunResult {
        is_ok: true,
        text: "done".to_owned(),
        denied: Vec::new(),
    };
    world.tell(process, &[CliEvent::Result(ended)]);
    world.exit(process, Some(0));
    world.settle();
    world.sandbox_done(Ok(Value::Null));
    let process = world.run(task);
    world.exit(process, Some(0));
    world.settle();
    let file = json!({"path": "src/a.rs", "status": "modified"});
    world.sandbox_done(Ok(json!({
        "runId": task, "agentId": "coder", "state": "open",
        "createdAt": "2026-01-01T00:00:00.000Z", "changedFiles": 1, "digest": "d1", "notes": "",
        "directory": "/s", "files": [file], "base": {"gitHead": null, "sha256": "0"},
        "summary": "", "git": "agreed", "history": [],
    })));
    assert_eq!(world.status(task), "waiting_review");
}

/// A workspace whose queue is kept by the test.
struct Bench {
    world: World,
    records: Vec<Record>,
}

impl Bench {
    /// A workspace in which this task waits for a review.
    fn with_review(task: &str) -> Self {
        let mut world = World::verifying();
        bring_to_review(&mut world, task);
        let records = Vec::new();
        Self { world, records }
    }

    fn change(&mut self, change: &Value) -> crate::RequestToken {
        let params = json!({"taskId": "t", "change": change});
        self.world.ask("queue.change", &params)
    }

    /// Completes operations, with durable records, until the next one is another.
    fn record(&mut self) {
        loop {
            match self.world.proposal_works.front() {
                Some(ProposalWork::Queue(work)) => match &work.step {
                    QueueStep::Record(records) => self.records.extend(records.iter().cloned()),
                    QueueStep::Discard { .. } => {}
                    _ => return,
                },
                _ => return,
            }
            self.world.sandbox_done(Ok(json!({})));
        }
    }

    /// Completes all operations, also those of the task, with durable records.
    fn drain(&mut self) {
        while let Some(work) = self.world.proposal_works.front() {
            if let ProposalWork::Queue(work) = work
                && let QueueStep::Record(records) = &work.step
            {
                self.records.extend(records.iter().cloned());
            }
            self.world.sandbox_done(Ok(json!({})));
        }
    }

    /// Completes the next operation, which has this name.
    fn done(&mut self, name: &str, answer: Value) {
        assert_eq!(next(&self.world), name);
        self.world.sandbox_done(Ok(answer));
        self.record();
    }

    /// The task enters the queue, and is rebased.
    fn enter(&mut self) {
        let token = self.change(&json!({"kind": "enter"}));
        self.done("load", json!([]));
        let view = self.world.answers.remove(&token).unwrap().unwrap();
        assert_eq!(view["entries"][0]["taskId"], "t", "{view}");
        self.done(
            "rebase",
            json!({"kind": "clean", "base": "b", "result": "r"}),
        );
    }

    fn prove(&mut self, code: i32) {
        let process = self.world.run("merge-queue");
        let assignment = self.world.children[&process].assignment.as_ref().unwrap();
        let work = assignment.copy_of_project().unwrap();
        assert!(
            work.ends_with("sandboxes/merge-queue/attempt-1/work"),
            "{work:?}"
        );
        self.world.exit(process, Some(code));
        self.world.settle();
        self.record();
    }
}

#[test]
fn queue_1_landed_proposal_completes_its_task() {
    let mut bench = Bench::with_review("t");
    bench.enter();
    // Only the queue lands it now.
    let refused = bench.world.get("task.approve", &json!({"taskId": "t"}));
    assert!(refused.unwrap_err().message.contains("in the merge queue"));
    bench.prove(0);
    bench.done("land", json!({"kind": "done"}));
    assert_eq!(bench.world.status("t"), "completed");
    bench.record();
    let acknowledged = bench.records.last();
    assert!(
        matches!(acknowledged, Some(Record::Acknowledged { .. })),
        "{acknowledged:?}"
    );
    let view = bench.world.get("queue.list", &json!({})).unwrap();
    assert_eq!(view["entries"], json!([]));
    assert_eq!(view["outcomes"][0]["kind"], "landed");
}

#[test]
fn queue_1_failed_proof_sends_the_task_back_to_its_agent() {
    let mut bench = Bench::with_review("t");
    bench.enter();
    bench.prove(1);
    bench.done("hand back", json!(["src/a.rs"]));
    bench.world.sandbox_done(Ok(Value::Null));
    let process = bench.world.run("t");
    let prompt = &bench.world.children[&process]
        .assignment
        .as_ref()
        .unwrap()
        .prompt;
    assert!(prompt.contains("`verify` exited with 1"), "{prompt}");
    assert!(
        prompt.contains("without your changes: src/a.rs."),
        "{prompt}"
    );
    bench.record();
    let view = bench.world.get("queue.list", &json!({})).unwrap();
    assert_eq!(view["outcomes"][0]["kind"], "unproved");
}

#[test]
fn queue_1_landing_before_a_kill_is_found_and_completes_its_task() {
    let mut bench = Bench::with_review("t");
    bench.enter();
    bench.prove(0);
    assert_eq!(next(&bench.world), "land");
    bench.world.kill_daemon();
    bench.world.settle();
    assert_eq!(bench.world.status("t"), "waiting_review");
    let records = serde_json::to_value(&bench.records).unwrap();
    bench.done("load", records);
    bench.done("find", json!({"kind": "done"}));
    assert_eq!(bench.world.status("t"), "completed");
}

#[test]
fn queue_1_restored_queue_lands_nothing_before_it_is_resumed() {
    let mut bench = Bench::with_review("t");
    bench.enter();
    bench.prove(0);
    assert_eq!(next(&bench.world), "land");
    bench.world.restore_daemon();
    bench.world.settle();
    let records = serde_json::to_value(&bench.records).unwrap();
    bench.done("load", records.clone());
    let view = bench.world.get("queue.list", &json!({})).unwrap();
    assert_eq!(view["entries"][0]["taskId"], "t", "{view}");
    bench.world.pass(QUEUE_RETRY_MS);
    assert_eq!(next(&bench.world), "nothing");
    bench.world.get("daemon.resume", &json!({})).unwrap();
    bench.done("load", records);
    bench.done("find", json!({"kind": "done"}));
    assert_eq!(bench.world.status("t"), "completed");
}

#[test]
fn queue_1_task_that_is_sent_back_by_a_person_leaves_the_queue() {
    let mut bench = Bench::with_review("t");
    bench.enter();
    let process = bench.world.run("merge-queue");
    let rework = json!({"taskId": "t", "text": "Shorter."});
    bench.world.ask("task.rework", &rework);
    bench.world.sandbox_done(Ok(json!([])));
    bench.world.settle();
    bench.drain();
    // The files of the attempt are removed when its process is gone.
    bench.world.exit(process, None);
    assert_eq!(next(&bench.world), "discard");
    bench.drain();
    let left = bench
        .records
        .iter()
        .any(|it| matches!(it, Record::Left { .. }));
    assert!(left, "{:?}", bench.records);
    let view = bench.world.get("queue.list", &json!({})).unwrap();
    assert_eq!(view["entries"], json!([]));
    assert_eq!(view["outcomes"][0]["kind"], "dropped");
}

#[test]
fn queue_1_lost_record_is_not_acknowledged() {
    let mut bench = Bench::with_review("t");
    let token = bench.change(&json!({"kind": "enter"}));
    assert_eq!(next(&bench.world), "load");
    bench.world.sandbox_done(Ok(json!([])));
    assert_eq!(next(&bench.world), "record");
    let error = ControlError::new(ErrorCode::Storage, "the disk is full");
    bench.world.sandbox_done(Err(error));
    bench.world.answers.remove(&token).unwrap().unwrap_err();
    assert_eq!(next(&bench.world), "nothing", "nothing follows from it");
    let token = bench.change(&json!({"kind": "enter"}));
    bench.done("load", json!([]));
    bench.world.answers.remove(&token).unwrap().unwrap();
}

#[test]
fn queue_1_task_cannot_be_changed_while_its_proposal_lands() {
    let mut bench = Bench::with_review("t");
    bench.enter();
    bench.prove(0);
    assert_eq!(next(&bench.world), "land");
    let rework = json!({"taskId": "t", "text": "Shorter."});
    let refused = bench.world.get("task.rework", &rework);
    assert!(refused.unwrap_err().message.contains("is landing"));
    bench.done("land", json!({"kind": "target_moved"}));
    // The next attempt begins with the new files.
    assert_eq!(next(&bench.world), "rebase");
}

#[test]
fn queue_1_task_that_was_canceled_before_a_kill_leaves_the_queue() {
    let mut bench = Bench::with_review("t");
    bench.enter();
    bench.world.ask("task.cancel", &json!({"taskId": "t"}));
    bench.world.settle();
    assert_eq!(bench.world.status("t"), "cancelled");
    // The queue has not recorded it.
    bench.world.kill_daemon();
    bench.world.settle();
    let token = bench.world.ask("queue.list", &json!({}));
    let records = serde_json::to_value(&bench.records).unwrap();
    bench.done("load", records);
    bench.drain();
    bench.world.answers.remove(&token).unwrap().unwrap();
    let left = bench
        .records
        .iter()
        .any(|it| matches!(it, Record::Left { .. }));
    assert!(left, "{:?}", bench.records);
    let view = bench.world.get("queue.list", &json!({})).unwrap();
    assert_eq!(view["entries"], json!([]));
}

#[test]
fn queue_1_cancel_that_is_not_durable_yet_prevents_a_landing() {
    let mut bench = Bench::with_review("t");
    bench.enter();
    let process = bench.world.run("merge-queue");
    bench.world.ask("task.cancel", &json!({"taskId": "t"}));
    bench.world.exit(process, Some(0));
    bench.drain();
    assert_eq!(bench.world.status("t"), "cancelled");
    bench.drain();
    let has_begun = |it: &Record| matches!(it, Record::LandingBegun { .. });
    assert!(!bench.records.iter().any(has_begun), "{:?}", bench.records);
    let left = |it: &Record| matches!(it, Record::Left { .. });
    assert!(bench.records.iter().any(left), "{:?}", bench.records);
}

#[test]
fn queue_1_rework_that_waits_for_comments_prevents_a_landing() {
    let mut bench = Bench::with_review("t");
    bench.enter();
    let process = bench.world.run("merge-queue");
    let rework = json!({"taskId": "t", "text": "Shorter."});
    bench.world.ask("task.rework", &rework);
    bench.world.exit(process, Some(0));
    bench.world.sandbox_done(Ok(json!([])));
    bench.drain();
    let has_begun = |it: &Record| matches!(it, Record::LandingBegun { .. });
    assert!(!bench.records.iter().any(has_begun), "{:?}", bench.records);
}

#[test]
fn queue_1_proof_without_a_sign_of_life_is_ended() {
    let mut bench = Bench::with_review("t");
    bench.enter();
    let process = bench.world.run("merge-queue");
    let step_ms = HEARTBEAT_INTERVAL_MS;
    for _ in 0..STALL_MS.unsigned_abs() / step_ms {
        bench.world.pass(step_ms);
        // Its process answers, but not its program.
        let pong = ToOrchestrator::Pong(Pong { nonce: 0 });
        bench.world.say(process, pong);
    }
    assert!(!bench.world.children[&process].is_asked_to_end);
    bench.world.pass(step_ms);
    assert!(bench.world.children[&process].is_asked_to_end);
    bench.world.exit(process, None);
    bench.record();
    bench.world.pass(step_ms);
    bench.record();
    assert_eq!(next(&bench.world), "rebase", "it is tried again");
}

#[test]
fn queue_1_proposal_of_an_unreadable_task_is_held() {
    let mut bench = Bench::with_review("a");
    bring_to_review(&mut bench.world, "b");
    bench.world.kill_daemon();
    bench.world.unreadable = Some("b");
    bench.world.settle();
    let entered = |task: &str| {
        let proposal = json!({"task": task, "digest": "d1"});
        json!({"event": "entered", "data": {"proposal": proposal}})
    };
    bench.done("load", json!([entered("a"), entered("b")]));
    // The other one is tried alone.
    let rebased: Vec<&str> = match bench.world.proposal_works.front() {
        Some(ProposalWork::Queue(work)) => match &work.step {
            QueueStep::Rebase { proposals, .. } => {
                proposals.iter().map(|it| it.task.as_str()).collect()
            }
            step => panic!("{step:?}"),
        },
        work => panic!("{work:?}"),
    };
    assert_eq!(rebased, ["a"]);
    let view = bench.world.get("queue.list", &json!({})).unwrap();
    assert_eq!(view["entries"][1]["held"], "its task cannot be read");
}
