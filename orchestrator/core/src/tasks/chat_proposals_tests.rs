//! Tests of proposals without a task in chats: one decision, over kills of the daemon and answers
//! elsewhere.

use goondan_protocol::control::{ControlError, ErrorCode};
use goondan_protocol::decision::{DecisionAnswer, DecisionButton, DecisionVerdict};
use goondan_protocol::ids::DecisionId;
use serde_json::{Value, json};

use super::chat_decisions_tests::{closed, follow, is_shown, press, shown, verdicts};
use super::world::World;
use crate::exchange::ProposalWork;

const APPROVE: DecisionAnswer = DecisionAnswer::Button(DecisionButton::Approve);
const REJECT: DecisionAnswer = DecisionAnswer::Button(DecisionButton::Deny);

/// The details of an open proposal.
fn proposal(run: &str, digest: &str) -> Value {
    let file = json!({"path": "src/a.rs", "status": "modified"});
    json!({
        "runId": run, "agentId": "coder", "state": "open", "createdAt": "2026-01-01T00:00:00.000Z",
        "changedFiles": 1, "digest": digest, "notes": "", "directory": "/s", "files": [file],
        "base": {"gitHead": null, "sha256": "0"}, "summary": "Faster.", "git": "agreed", "history": [],
    })
}

/// A chat that shows one proposal without a task.
fn showing() -> (World, DecisionId) {
    let mut world = World::asking();
    world.proposals = vec![proposal("r1", "d1"), proposal("merge-queue", "d2")];
    world.settle();
    follow(&mut world, &[]);
    let show = shown(&mut world);
    (world, show.decision_id)
}

fn refused() -> ControlError {
    ControlError::new(ErrorCode::ProposalRefused, "src/a.rs was changed").suggest("merge it")
}

fn before(how: &str) -> DecisionVerdict {
    let how = how.to_owned();
    DecisionVerdict::DecidedBefore { how }
}

fn decided(how: &str) -> DecisionVerdict {
    let how = how.to_owned();
    DecisionVerdict::Decided { how }
}

#[test]
fn need_2_a_proposal_without_a_task_is_decided_once_in_a_chat() {
    let mut world = World::asking();
    world.proposals = vec![proposal("r1", "d1"), proposal("merge-queue", "d2")];
    world.settle();
    follow(&mut world, &[]);
    let show = serde_json::to_value(shown(&mut world)).unwrap();
    assert!(!is_shown(&world), "the merge queue decides its own");
    let about = &show["about"];
    assert_eq!(about["kind"], "proposal");
    assert_eq!(about["of"], "proposal r1/coder");
    assert_eq!(about["command"], "proposal show r1 coder");
    let text = "1 changed file\n- src/a.rs (modified)\nFaster.";
    assert_eq!(about["text"], text);
    let id: DecisionId = show["decisionId"].as_str().unwrap().parse().unwrap();

    press(&mut world, &id, "6", APPROVE);
    press(
        &mut world,
        &id,
        "5",
        DecisionAnswer::Button(DecisionButton::Option(0)),
    );
    let answers = verdicts(&mut world);
    let is_refused = |it: &DecisionVerdict| matches!(it, DecisionVerdict::NotAllowed { .. });
    assert!(
        answers.len() == 2 && answers.iter().all(is_refused),
        "{answers:?}"
    );
    world.chat.clear();

    // It fails first, and is not decided twice.
    press(&mut world, &id, "5", APPROVE);
    press(&mut world, &id, "7", REJECT);
    let busy = verdicts(&mut world);
    assert!(
        matches!(busy[..], [DecisionVerdict::NotNow { .. }]),
        "{busy:?}"
    );
    let is_application = |work: &ProposalWork| match work {
        ProposalWork::Apply(apply) => apply.digest.as_deref() == Some("d1"),
        _ => false,
    };
    assert!(world.is_next_about_sandboxes(is_application));
    world.chat.clear();
    world.sandbox_done(Err(refused()));
    let failed = verdicts(&mut world);
    let message = "src/a.rs was changed; merge it".to_owned();
    assert_eq!(failed, [DecisionVerdict::NotAllowed { message }]);
    assert_eq!(closed(&world), []);
    world.chat.clear();

    press(
        &mut world,
        &id,
        "7",
        DecisionAnswer::Text(" Too big. ".to_owned()),
    );
    let is_rejection = |work: &ProposalWork| match work {
        ProposalWork::Reject(reject) => reject.reason == "Too big.",
        _ => false,
    };
    assert!(world.is_next_about_sandboxes(is_rejection));
    world.proposals[0]["state"] = json!("rejected");
    world.sandbox_done(Ok(Value::Null));
    let how = "rejected by telegram:7: Too big.";
    assert_eq!(verdicts(&mut world), [decided(how)]);
    assert_eq!(closed(&world), [(id.clone(), how.to_owned())]);
    let is_audited = |it: &String| it.contains("workspace.proposalDecided") && it.contains(how);
    assert!(world.audited.iter().any(is_audited), "{:?}", world.audited);
    world.chat.clear();
    press(&mut world, &id, "5", APPROVE);
    assert_eq!(verdicts(&mut world), [before(how)]);

    // The next daemon reads the outcome; the connection still shows the proposal.
    world.kill_daemon();
    world.settle();
    world.chat.clear();
    follow(&mut world, std::slice::from_ref(&id));
    assert_eq!(closed(&world), [(id.clone(), "rejected".to_owned())]);
    press(&mut world, &id, "5", APPROVE);
    assert_eq!(verdicts(&mut world), [before("rejected")]);
    assert!(world.proposal_works.is_empty());
}

#[test]
fn need_2_a_replaced_proposal_is_another_decision() {
    let (mut world, id) = showing();
    world.chat.clear();
    world.proposals[0] = proposal("r1", "d3");
    world.kill_daemon();
    world.settle();
    follow(&mut world, std::slice::from_ref(&id));
    let how = "closed: it no longer needs you".to_owned();
    assert_eq!(closed(&world), [(id.clone(), how)]);
    let next = shown(&mut world).decision_id;
    assert_ne!(next, id);
    press(&mut world, &id, "5", APPROVE);
    assert_eq!(verdicts(&mut world), [DecisionVerdict::Over {}]);
    assert!(world.proposal_works.is_empty());
}

#[test]
fn need_2_the_proposal_of_a_task_is_decided_with_the_task_only() {
    let mut world = World::asking();
    let new = json!({"taskId": "r1", "title": "Build it", "description": "Do so."});
    world.get("task.new", &new).unwrap();
    world.proposals = vec![proposal("r1", "d1")];
    follow(&mut world, &[]);
    assert!(!is_shown(&world));
}

/// Carries out an operation on the proposal, as the files do: once.
fn perform(world: &mut World, applied: &mut Vec<&'static str>) -> Result<Value, ControlError> {
    let state = match world.proposal_works.front() {
        Some(ProposalWork::Apply(_)) => "applied",
        Some(ProposalWork::Reject(_)) => "rejected",
        other => panic!("{other:?}"),
    };
    if world.proposals[0]["state"] != "open" {
        return Err(refused());
    }
    world.proposals[0]["state"] = json!(state);
    applied.push(state);
    Ok(Value::Null)
}

fn restart(world: &mut World, id: &DecisionId) {
    world.proposal_works.clear();
    world.kill_daemon();
    world.settle();
    follow(world, std::slice::from_ref(id));
}

/// One round: presses, operations that succeed or fail, and kills of the daemon, in random order.
fn round(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut world, id) = showing();
    let mut done = Vec::new();
    let mut answers = Vec::new();
    for _ in 0..random.usize(1..24) {
        let is_idle = world.proposal_works.is_empty();
        match random.u8(0..10) {
            0 => restart(&mut world, &id),
            1 | 2 if !is_idle => world.sandbox_done(Err(refused())),
            3 | 4 if !is_idle => {
                let result = perform(&mut world, &mut done);
                world.sandbox_done(result);
            }
            // The daemon dies after an operation, and before its result.
            5 if !is_idle => {
                drop(perform(&mut world, &mut done));
                answers.extend(verdicts(&mut world));
                restart(&mut world, &id);
            }
            _ => {
                let user = ["5", "7", "6"][random.usize(0..3)];
                let answer = if random.bool() { APPROVE } else { REJECT };
                press(&mut world, &id, user, answer);
            }
        }
        answers.extend(verdicts(&mut world));
        world.chat.clear();
    }
    assert!(done.len() <= 1, "seed {seed}: {done:?}");
    let outcome = done.first().copied().unwrap_or("nothing");
    for answer in answers {
        if let DecisionVerdict::Decided { how } | DecisionVerdict::DecidedBefore { how } = answer {
            assert!(how.starts_with(outcome), "seed {seed}: {how}, {outcome}");
        }
    }
    // In the end, the chat shows the outcome.
    restart(&mut world, &id);
    let how: Vec<String> = closed(&world).into_iter().map(|(_, how)| how).collect();
    assert_eq!(how, done, "seed {seed}");
}

#[test]
fn need_2_a_proposal_is_decided_once_over_kills_at_any_time() {
    for seed in 0..200 {
        round(seed);
    }
}
