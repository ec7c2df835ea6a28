//! A person's messages to the agent of a task.

use goondan_cli_agents::blocks::CustomTaskComplete;
use goondan_protocol::task::TaskSource;

use super::*;

fn say(text: &str) -> TaskInput {
    TaskInput::Say {
        id: None,
        text: text.to_owned(),
    }
}

fn resumed(effects: &[TaskEffect]) -> &str {
    let [
        TaskEffect::StartRun {
            session: Some(session),
            prompt,
            ..
        },
    ] = effects
    else {
        panic!("no session was resumed: {effects:?}");
    };
    assert_eq!(session, "s");
    prompt
}

#[test]
fn agent_7_message_waits_for_the_run_and_is_delivered_once() {
    let mut task = TaskDriver::running(2);
    assert!(task.does(say("Use tabs.")).is_empty(), "the run goes on");
    let effects = task.ends_well();
    let prompt = resumed(&effects);
    assert_eq!(
        prompt,
        "Message from a person: Use tabs.\nYou are in phase 1 of 2.\n"
    );
    // The agent took no notice of the prompt, so the next run repeats the message.
    task.exits(Some(1));
    let effects = task.waits(RETRY_MS);
    assert!(resumed(&effects).contains("Use tabs."));
    task.tells(CliEvent::Text("I do".to_owned()));
    task.ends_well();
    // Nothing is left to say, and the phase is not complete.
    assert_eq!(task.status(), Status::WaitingQuestion);
    // A message answers goondan's own question.
    let effects = task.does(say("Go on."));
    let prompt = resumed(&effects);
    assert!(
        prompt.contains("Go on.") && !prompt.contains("Use tabs."),
        "{prompt}"
    );
    assert_eq!(task.task.state().open_asks().count(), 0);
    // Without the session, the agent is told everything again.
    task.tells(CliEvent::SessionRefused("not found".to_owned()));
    let effects = task.exits(Some(1));
    let prompt = started(&effects);
    let at = |text| prompt.find(text).unwrap_or_else(|| panic!("{prompt}"));
    assert!(at("Build a shop.") < at("Use tabs.") && at("Use tabs.") < at("Go on."));
}

#[test]
fn agent_7_a_review_waits_until_the_agent_has_the_message() {
    let mut task = TaskDriver::running(1);
    task.does(say("And the taxes?"));
    task.tells(complete(1));
    assert_eq!(task.tries(approve(1)), Err(InputRefusal::MessagePending(1)));
    let effects = task.ends_well();
    assert!(resumed(&effects).contains("And the taxes?"));
    assert_eq!(task.task.state().review(), None);
    task.tells(complete(1));
    task.ends_well();
    assert_eq!(task.status(), Status::WaitingReview);
    // During a review, too.
    assert!(resumed(&task.does(say("Why?"))).contains("Why?"));
    task.ends_well();
    task.does(approve(1));
    assert_eq!(task.status(), Status::Completed);
}

#[test]
fn agent_7_a_task_that_ended_continues_with_a_message() {
    let done = || {
        CliEvent::Block(Block::CustomTaskComplete(CustomTaskComplete {
            documents: Vec::new(),
        }))
    };
    for phases in [0, 1] {
        let mut task = TaskDriver::running(phases);
        // Completed only after the message, which came first.
        task.does(say("Quick!"));
        if phases == 0 {
            task.tells(done());
            let effects = task.ends_well();
            assert!(resumed(&effects).contains("Quick!"));
            task.tells(done());
            task.ends_well();
        } else {
            task.ends_well();
            task.tells(complete(1));
            task.ends_well();
            task.does(approve(1));
        }
        assert_eq!(task.status(), Status::Completed);
        let effects = task.does(say("Now in green."));
        assert!(resumed(&effects).contains("Now in green."));
        assert_eq!(task.status(), Status::Running);
        task.tells(CliEvent::Text("It is green".to_owned()));
        task.ends_well();
        assert_eq!(task.status(), Status::Completed, "{phases}: it was, before");
        // It fails, and continues.
        task.does(say("Now in blue."));
        task.tells(CliEvent::Block(Block::Error(AgentError {
            kind: ErrorKind::Fatal,
            message: "no blue".to_owned(),
            recovery: None,
        })));
        task.exits(Some(1));
        assert_eq!(task.status(), Status::Failed);
        let effects = task.does(say("Green will do."));
        assert!(resumed(&effects).contains("Green will do."));
        assert_eq!(task.task.state().failure, None);
        task.does(TaskInput::Cancel);
        task.exits(None);
        let refused = task.tries(say("Hello?"));
        assert_eq!(refused, Err(InputRefusal::Final(Status::Cancelled)));
    }
}

#[test]
fn agent_7_a_message_is_accepted_once_for_each_id() {
    let say = |id: &str, text: &str| TaskInput::Say {
        id: Some(id.to_owned()),
        text: text.to_owned(),
    };
    let mut task = TaskDriver::idle(1);
    task.does(say("m-1", "In tabs."));
    task.does(say("m-1", "In tabs."));
    assert_eq!(task.status(), Status::Idle);
    let effects = task.does(TaskInput::Start);
    let prompt = started(&effects);
    assert_eq!(prompt.matches("In tabs.").count(), 1, "{prompt}");
    task.tells(CliEvent::Text("I do".to_owned()));
    task.does(TaskInput::Cancel);
    task.does(say("m-1", "In tabs."));
    for text in ["", " \n", &"x".repeat(TEXT_CHARS_MAX + 1)] {
        assert_eq!(task.tries(say("m-2", text)), Err(InputRefusal::BadText));
    }
}

#[test]
fn agent_7_a_delivered_proposal_takes_no_message() {
    let mut new = new_task(1);
    new.source = TaskSource::Project;
    let (task, _) = Task::create(new, Timestamp::from_unix_millis(0)).unwrap();
    let mut task = TaskDriver { task, now: 0 };
    let proposal = |digest: &str| goondan_protocol::control::TaskProposal {
        digest: digest.to_owned(),
        files: Vec::new(),
        more_files: 1,
        is_delivered: false,
        branch: None,
        pull_request: None,
    };
    let propose = |task: &mut TaskDriver, digest: &str| {
        task.does(TaskInput::ProposalMade {
            phase: 1,
            result: Ok(Some(proposal(digest))),
        });
    };
    task.does(TaskInput::Start);
    task.tells(CliEvent::Session {
        id: "s".to_owned(),
        model: None,
    });
    task.ends_well();
    propose(&mut task, "one");
    let (phase, delivery) = (1, Delivery::Left);
    task.does(TaskInput::Approve { phase, delivery });
    assert_eq!(task.status(), Status::Completed);
    // Its proposal was left alone, and is made again.
    assert!(resumed(&task.does(say("Now in green."))).contains("green"));
    task.ends_well();
    propose(&mut task, "two");
    assert_eq!(task.status(), Status::WaitingReview);
    let delivery = Delivery::Delivered {
        digest: "two".to_owned(),
        branch: None,
        pull_request: None,
    };
    task.does(TaskInput::Approve { phase, delivery });
    assert_eq!(task.status(), Status::Completed);
    assert_eq!(task.tries(say("Hello?")), Err(InputRefusal::Delivered));
}
