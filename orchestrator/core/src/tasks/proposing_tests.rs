//! Tests of tasks with a source: the copy of the project, the proposal, and its approval.

use goondan_cli_agents::{CliEvent, RunResult};
use goondan_protocol::control::{ControlError, ErrorCode};
use serde_json::{Value, json};

use super::world::World;
use crate::exchange::ProposalWork;

fn new(task: &str) -> Value {
    json!({"taskId": task, "title": "Build it", "description": "Do so.", "source": "project", "start": true})
}

fn prepared() -> Result<Value, ControlError> {
    // The value is not used.
    Ok(Value::Null)
}

fn proposed(digest: &str) -> Result<Value, ControlError> {
    let file = json!({"path": "src/a.rs", "status": "modified"});
    Ok(json!({
        "runId": "t", "agentId": "coder", "state": "open", "createdAt": "2026-01-01T00:00:00.000Z",
        "changedFiles": 1, "digest": digest, "notes": "", "directory": "/s", "files": [file],
        "base": {"gitHead": null, "sha256": "0"}, "summary": "", "git": "agreed", "history": [],
    }))
}

fn refused() -> Result<Value, ControlError> {
    let error = ControlError::new(
        ErrorCode::ProposalRefused,
        "src/a.rs: it is another one now",
    );
    Err(error.suggest("merge it"))
}

fn is_preparing(work: &ProposalWork) -> bool {
    matches!(work, ProposalWork::PrepareForTask(_))
}

fn is_proposing(work: &ProposalWork) -> bool {
    matches!(work, ProposalWork::ProposeForTask(_))
}

fn is_delivering(work: &ProposalWork) -> bool {
    matches!(work, ProposalWork::Deliver(_))
}

/// A task whose agent has done its work.
fn done() -> World {
    let mut world = World::new();
    world.get("task.new", &new("t")).unwrap();
    world.sandbox_done(prepared());
    let process = world.run("t");
    let ended = RunResult {
        is_ok: true,
        text: "done".to_owned(),
        denied: Vec::new(),
    };
    world.tell(process, &[CliEvent::Result(ended)]);
    world.exit(process, Some(0));
    world.settle();
    world
}

#[test]
fn repo_1_a_run_begins_when_its_copy_of_the_project_is_there() {
    let mut world = World::new();
    world.get("task.new", &new("t")).unwrap();
    assert!(world.is_next_about_sandboxes(is_preparing));
    assert_eq!(world.process_of("t"), None);
    world.sandbox_done(refused());
    let shown = world.get("task.show", &json!({"taskId": "t"})).unwrap();
    assert!(shown["notBefore"].is_string(), "{shown}");
    assert_eq!(shown["info"]["totalPhases"], 1, "it ends in a review");
    // It is tried again.
    world.pass(600_000);
    world.settle();
    assert!(world.is_next_about_sandboxes(is_preparing));
    world.sandbox_done(prepared());
    let process = world.run("t");
    let assignment = world.children[&process].assignment.as_ref().unwrap();
    let work = assignment.copy_of_project().unwrap();
    assert!(work.ends_with("sandboxes/t/coder/work"), "{work:?}");
}

#[test]
fn repo_1_run_canceled_during_preparation_does_not_start() {
    let mut world = World::new();
    world.get("task.new", &new("t")).unwrap();
    world.get("task.cancel", &json!({"taskId": "t"})).unwrap();
    world.sandbox_done(prepared());
    assert_eq!(world.process_of("t"), None);
    assert_eq!(world.status("t"), "cancelled");
}

#[test]
fn repo_3_an_approval_waits_until_the_proposal_is_applied() {
    let mut world = done();
    assert!(world.is_next_about_sandboxes(is_proposing));
    assert_eq!(world.status("t"), "running");
    // After a crash, the next daemon requests the proposal.
    world.kill_daemon();
    world.settle();
    assert!(world.is_next_about_sandboxes(is_proposing));
    world.sandbox_done(proposed("d1"));
    assert_eq!(world.status("t"), "waiting_review");
    let shown = world.get("task.show", &json!({"taskId": "t"})).unwrap();
    assert_eq!(shown["proposal"]["files"][0]["path"], "src/a.rs");
    let approve = json!({"taskId": "t"});
    let token = world.ask("task.approve", &approve);
    assert!(world.is_next_about_sandboxes(is_delivering));
    let busy = world.get("task.rework", &json!({"taskId": "t", "text": "x"}));
    assert!(busy.unwrap_err().message.contains("is being applied"));
    world.sandbox_done(refused());
    let error = world.answers.remove(&token).unwrap().unwrap_err();
    assert_eq!(error.code, ErrorCode::ProposalRefused);
    assert!(error.message.contains("src/a.rs: it is another one now"));
    assert_eq!(world.status("t"), "waiting_review");
    let token = world.ask("task.approve", &approve);
    world.sandbox_done(Ok(Value::Null));
    world.answers.remove(&token).unwrap().unwrap();
    assert_eq!(world.status("t"), "completed");
    assert!(world.facts("t").contains(&"proposal_delivered".to_owned()));
    world.get("task.remove", &json!({"taskId": "t"})).unwrap();
    let is_removing = |work: &ProposalWork| matches!(work, ProposalWork::Remove(_));
    assert!(world.is_next_about_sandboxes(is_removing));
}

#[test]
fn repo_3_a_person_may_approve_without_delivery() {
    let mut world = done();
    world.sandbox_done(proposed("d1"));
    let approve = json!({"taskId": "t", "withoutDelivery": true});
    world.get("task.approve", &approve).unwrap();
    assert_eq!(world.status("t"), "completed");
    assert!(!world.is_next_about_sandboxes(|_| true));
}

#[test]
fn repo_3_proposal_of_a_canceled_task_is_not_delivered() {
    let mut world = done();
    world.sandbox_done(proposed("d1"));
    let task = json!({"taskId": "t"});
    world.get("task.cancel", &task).unwrap();
    world.get("task.approve", &task).unwrap_err();
    assert!(!world.is_next_about_sandboxes(is_delivering));
}

#[test]
fn repo_3_rework_hands_the_comments_to_the_agent() {
    let mut world = done();
    world.sandbox_done(proposed("d1"));
    let is_taking = |work: &ProposalWork| matches!(work, ProposalWork::TakeComments(_));
    let rework = json!({"taskId": "t"});
    let comments = json!([{
        "number": 1, "at": "2026-01-01T00:00:00.000Z", "digest": "d1", "path": "src/a.rs",
        "line": 2, "lineText": "fn a() {}", "text": "Shorter.", "state": "sent",
    }]);
    // Nothing to send: the task stays under review.
    let token = world.ask("task.rework", &rework);
    assert!(world.is_next_about_sandboxes(is_taking));
    let busy = world.get("task.approve", &json!({"taskId": "t"}));
    assert!(busy.unwrap_err().message.contains("are being sent"));
    world.sandbox_done(Ok(json!([])));
    let error = world.answers.remove(&token).unwrap().unwrap_err();
    assert!(error.message.contains("text is empty"), "{error:?}");
    let round = |world: &World| match world.proposal_works.front() {
        Some(ProposalWork::TakeComments(take)) => take.round,
        other => panic!("{other:?}"),
    };
    world.ask("task.rework", &rework);
    let first = round(&world);
    // A daemon killed before the request is recorded takes the same comments again.
    world.kill_daemon();
    world.settle();
    assert_eq!(world.status("t"), "waiting_review");
    let token = world.ask("task.rework", &rework);
    assert_eq!(round(&world), first);
    world.sandbox_done(Ok(comments));
    world.answers.remove(&token).unwrap().unwrap();
    world.sandbox_done(prepared());
    let process = world.run("t");
    let prompt = &world.children[&process].assignment.as_ref().unwrap().prompt;
    let text = "- src/a.rs:2\n    > fn a() {}\n    Shorter.\n";
    assert!(prompt.contains(text), "{prompt}");
    let refused = world.get("task.rework", &json!({"taskId": "t", "text": "x"}));
    assert!(refused.is_err());
    assert!(
        !world.is_next_about_sandboxes(is_taking),
        "it is not under review"
    );
}
