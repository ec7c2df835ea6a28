//! Tasks with a source: completed work becomes a proposal before it is reviewed (`REPO-3`).

use goondan_protocol::control::{FileStatus, TaskProposal, TaskProposalFile};
use goondan_protocol::task::{TaskChecks, TaskRunKind, TaskSource};

use super::*;

fn with_checks(checks: TaskChecks) -> TaskDriver {
    let new = NewTask {
        source: TaskSource::Project,
        checks,
        ..new_task(1)
    };
    let (task, _) = Task::create(new, Timestamp::from_unix_millis(0)).unwrap();
    TaskDriver { task, now: 0 }
}

/// Kind of the run that starts.
fn begun(effects: &[TaskEffect]) -> TaskRunKind {
    let [.., TaskEffect::StartRun { kind, .. }] = effects else {
        panic!("no run was started: {effects:?}");
    };
    *kind
}

fn prints(task: &mut TaskDriver, text: &str) {
    let (run, text) = (task.run(), text.to_owned());
    task.does(TaskInput::Printed { run, text });
}

fn with_source(phases: u32) -> TaskDriver {
    let new = NewTask {
        source: TaskSource::Project,
        ..new_task(phases)
    };
    let (task, _) = Task::create(new, Timestamp::from_unix_millis(0)).unwrap();
    let mut driven = TaskDriver { task, now: 0 };
    driven.does(TaskInput::Start);
    driven.tells(CliEvent::Session {
        id: "s".to_owned(),
        model: None,
    });
    driven
}

fn proposal(digest: &str) -> TaskProposal {
    TaskProposal {
        digest: digest.to_owned(),
        files: vec![TaskProposalFile {
            path: "src/a.rs".to_owned(),
            status: FileStatus::Modified,
        }],
        more_files: 0,
        is_delivered: false,
        branch: None,
        pull_request: None,
    }
}

fn made(phase: u32, digest: &str) -> TaskInput {
    let result = Ok(Some(proposal(digest)));
    TaskInput::ProposalMade { phase, result }
}

fn delivered(phase: u32, digest: &str) -> TaskInput {
    let delivery = Delivery::Delivered {
        digest: digest.to_owned(),
        branch: None,
        pull_request: None,
    };
    TaskInput::Approve { phase, delivery }
}

fn is_proposed(effects: &[TaskEffect]) -> bool {
    matches!(effects, [.., TaskEffect::MakeProposal { .. }])
}

#[test]
fn repo_3_complete_work_is_proposed_then_reviewed_and_delivered() {
    let mut task = with_source(2);
    task.tells(complete(1));
    assert_eq!(task.status(), Status::Running, "its run may still write");
    let effects = task.ends_well();
    let made_of = TaskEffect::MakeProposal {
        phase: 1,
        words: Some("words".to_owned()),
        test_log: None,
    };
    assert_eq!(effects, [made_of]);
    assert!(task.waits(RETRY_MS).is_empty(), "it is made once");
    task.does(made(1, "d1"));
    assert_eq!(task.status(), Status::WaitingReview);
    // Only the last phase is delivered.
    let effects = task.does(approve(1));
    assert!(started(&effects).contains("Phase 1 is approved."));
    task.tells(complete(2));
    assert!(is_proposed(&task.ends_well()));
    task.does(made(2, "d2"));
    let effects = task.does(TaskInput::Rework {
        comments: Vec::new(),
        phase: 2,
        text: "Shorter.".to_owned(),
    });
    assert!(started(&effects).contains("Phase 2 is not approved: Shorter."));
    task.tells(complete(2));
    assert!(is_proposed(&task.ends_well()));
    task.does(made(2, "d3"));
    assert_eq!(task.tries(approve(2)), Err(InputRefusal::NotDelivered(2)));
    let other = task.tries(delivered(2, "d2"));
    assert_eq!(
        other,
        Err(InputRefusal::NotDelivered(2)),
        "that is another one"
    );
    task.does(delivered(2, "d3"));
    assert_eq!(task.status(), Status::Completed);
    assert!(task.task.state().proposal().unwrap().is_delivered);
}

#[test]
fn repo_3_the_only_phase_is_complete_when_its_agent_is_done() {
    let mut task = with_source(1);
    let effects = task.ends_well();
    assert!(is_proposed(&effects));
    assert!(matches!(
        effects[0],
        TaskEffect::MakeCheckpoint {
            kind: "phase_completion"
        }
    ));
    let (phase, result) = (1, Ok(None));
    task.does(TaskInput::ProposalMade { phase, result });
    let state = task.task.state();
    assert_eq!(
        state.proposing.problem(),
        Some("the project was not changed")
    );
    task.does(approve(1));
    assert_eq!(task.status(), Status::Completed);
    // The end of the whole task also completes its last phase.
    let mut task = with_source(1);
    let documents = Vec::new();
    task.tells(CliEvent::Block(Block::CustomTaskComplete(
        goondan_cli_agents::blocks::CustomTaskComplete { documents },
    )));
    assert!(is_proposed(&task.ends_well()));
    // An agent that asks a question has not completed its work.
    let mut task = with_source(1);
    task.tells(question("Which?", true));
    assert!(task.ends_well().is_empty());
    assert!(started(&task.does(answer("q-0001", "a"))).contains("Answer q-0001"));
}

#[test]
fn repo_3_failed_proposal_is_not_approved_by_mistake() {
    let mut task = with_source(1);
    task.ends_well();
    let (phase, result) = (1, Err("the disk is full".to_owned()));
    task.does(TaskInput::ProposalMade { phase, result });
    assert_eq!(task.status(), Status::WaitingReview);
    assert_eq!(task.tries(approve(1)), Err(InputRefusal::NoProposal(1)));
    let delivery = Delivery::Left;
    task.does(TaskInput::Approve { phase, delivery });
    assert_eq!(task.status(), Status::Completed);
}

#[test]
fn repo_3_a_daemon_that_finds_no_proposal_has_it_made() {
    let mut task = with_source(1);
    assert!(is_proposed(&task.ends_well()));
    let mut next = TaskDriver {
        task: Task::restored(task.task.state().clone()),
        now: task.now,
    };
    assert!(is_proposed(&next.does(TaskInput::Tick)));
    next.does(TaskInput::Pause);
    next.does(made(1, "d"));
    // A paused task is not proposed before it resumes, and a canceled one never.
    let mut paused = with_source(1);
    paused.tells(complete(1));
    paused.does(TaskInput::Pause);
    assert!(paused.ends_well().is_empty());
    assert!(is_proposed(&paused.does(TaskInput::Resume)));
    paused.does(TaskInput::Cancel);
    paused.does(made(1, "d"));
    assert!(paused.task.state().proposal().is_none());
}

#[test]
fn repo_3_files_that_are_taken_back_are_complete_no_more() {
    let mut task = with_source(1);
    task.tells(complete(1));
    task.does(TaskInput::Pause);
    task.ends_well();
    task.does(TaskInput::Restored {
        id: "checkpoint_001".to_owned(),
        pre_restore: None,
    });
    assert!(started(&task.does(TaskInput::Resume)).contains("checkpoint_001"));
}

#[test]
fn repo_2_complete_work_is_verified_before_it_is_proposed() {
    let mut task = with_checks(TaskChecks {
        setup: false,
        verify: true,
    });
    task.does(TaskInput::Start);
    assert_eq!(begun(&task.ends_well()), TaskRunKind::Verify);
    // Output of tests is ignored.
    task.tells(question("Which?", true));
    assert_eq!(task.status(), Status::Running);
    // It is repeated after the daemon died.
    assert_eq!(begun(&task.exits(None)), TaskRunKind::Verify);
    task.does(TaskInput::Pause);
    assert!(task.exits(None).is_empty());
    assert!(
        task.does(TaskInput::Resume).is_empty(),
        "the second one waits"
    );
    assert_eq!(begun(&task.waits(RETRY_MS)), TaskRunKind::Verify);
    prints(&mut task, "1 test failed\n");
    let effects = task.exits(Some(1));
    let [TaskEffect::MakeProposal { test_log, .. }] = &effects[..] else {
        panic!("{effects:?}");
    };
    let log = "1 test failed\n[`verify` failed: it exited with 1]\n";
    assert_eq!(test_log.as_deref(), Some(log));
    task.does(made(1, "d"));
    // The agent is notified about the failure, and the work is verified again.
    let effects = task.does(TaskInput::Rework {
        comments: Vec::new(),
        phase: 1,
        text: "Mend it.".to_owned(),
    });
    let prompt = started(&effects);
    assert!(
        prompt.contains("1 test failed\nPhase 1 is not approved: Mend it."),
        "{prompt}"
    );
    assert_eq!(begun(&task.ends_well()), TaskRunKind::Verify);
    assert!(is_proposed(&task.exits(Some(0))));
    assert!(task.task.state().proposing.verdict().unwrap().passed);
}

#[test]
fn repo_2_setup_runs_first_and_its_failure_is_shown() {
    let mut task = with_checks(TaskChecks {
        setup: true,
        verify: false,
    });
    assert_eq!(begun(&task.does(TaskInput::Start)), TaskRunKind::Setup);
    prints(&mut task, "no such package\n");
    assert!(task.exits(Some(7)).is_empty());
    let (id, ask) = task.task.state().open_asks().next().unwrap();
    let PersonInputKind::Question(_, question, None) = &ask.what else {
        panic!("{ask:?}");
    };
    let says = ["it exited with 7", "no such package"];
    assert!(
        says.iter().all(|text| question.question.contains(text)),
        "{question:?}"
    );
    let id = id.to_owned();
    assert_eq!(begun(&task.does(answer(&id, "go on"))), TaskRunKind::Setup);
    assert_eq!(begun(&task.exits(Some(0))), TaskRunKind::Agent);
    // Proposed only once.
    assert!(is_proposed(&task.ends_well()));
    task.does(made(1, "d"));
    let text = "Better.".to_owned();
    let effects = task.does(TaskInput::Rework {
        phase: 1,
        text,
        comments: Vec::new(),
    });
    assert_eq!(begun(&effects), TaskRunKind::Agent);
}
