//! Differences between programs: sessions, permissions, usage figures and failures.

use goondan_cli_agents::blocks::CustomTaskComplete;
use goondan_cli_agents::usage::SessionUsage;
use goondan_cli_agents::{ChoicePrompt, Consent, ToolActivity, ToolState};

use super::*;
use crate::fact::RunOutcome;
use crate::limits::TOOL_EXIT_GRACE_MS;
use crate::state::Note;

fn tool(name: &str, state: ToolState) -> CliEvent {
    CliEvent::Tool(ToolActivity {
        id: "t".to_owned(),
        name: name.to_owned(),
        state,
        detail: Default::default(),
    })
}

fn work_complete() -> CliEvent {
    CliEvent::Block(Block::CustomTaskComplete(CustomTaskComplete {
        documents: Vec::new(),
    }))
}

#[test]
fn agent_3_a_run_without_a_session_gets_the_whole_task() {
    let mut task = TaskDriver::idle(2);
    task.with_agent(AgentProfile {
        resumes: false,
        ..AgentProfile::default()
    });
    started(&task.does(TaskInput::Start));
    // Its program reports a session, but cannot resume one.
    let id = "s".to_owned();
    task.tells(CliEvent::Session { id, model: None });
    task.tells(question("Which?", true));
    task.tells(dependency("API_KEY"));
    task.ends_well();
    task.does(answer("q-0001", "a"));
    let provide = TaskInput::Provide {
        id: "d-0002".to_owned(),
        provision: Provision::Secret("vault:1".to_owned()),
    };
    started(&task.does(provide));
    task.tells(complete(1));
    task.ends_well();
    let rework = TaskInput::Rework {
        comments: Vec::new(),
        phase: 1,
        text: "Shorter.".to_owned(),
    };
    started(&task.does(rework));
    task.tells(complete(1));
    task.ends_well();
    started(&task.does(approve(1)));
    task.tells(CliEvent::Text("I go on".to_owned()));
    // The run's outcome is unknown, and there is no session to resume.
    task.exits(None);
    assert_eq!(task.status(), Status::WaitingQuestion);
    let effects = task.does(answer("q-0003", "go on"));
    let [
        TaskEffect::StartRun {
            session: None,
            prompt,
            ..
        },
    ] = &effects[..]
    else {
        panic!("{effects:?}");
    };
    for said in [
        "Build a shop.",
        "you do not remember it",
        "Answer q-0001 to \"Which?\": a",
        "Provided d-0002: `API_KEY` is in your environment.",
        "Phases approved so far: 1.",
        "- docs/a.md",
        "Phase 1 is not approved: Shorter.",
        "You are in phase 2 of 2.",
    ] {
        assert!(prompt.contains(said), "{said}: {prompt}");
    }
}

#[test]
fn agent_2_the_first_prompt_explains_the_protocol() {
    let mut task = TaskDriver::idle(3);
    task.with_agent(AgentProfile {
        preamble: Preamble::Usual,
        ..AgentProfile::default()
    });
    let effects = task.does(TaskInput::Start);
    let prompt = started(&effects);
    assert!(prompt.starts_with("Build a shop.\n"), "{prompt}");
    assert!(
        prompt.contains("[USER_QUESTION]") && prompt.contains("has 3 phases"),
        "{prompt}"
    );
    assert!(prompt.ends_with("You are in phase 1 of 3.\n"), "{prompt}");
    let id = "s".to_owned();
    task.tells(CliEvent::Session { id, model: None });
    task.tells(question("Which?", true));
    task.ends_well();
    let effects = task.does(answer("q-0001", "a"));
    assert!(
        !started(&effects).contains("USER_QUESTION"),
        "the session knows"
    );
}

/// The same message by a tool.
fn by_tool(event: CliEvent) -> CliEvent {
    match event {
        CliEvent::Block(block) => CliEvent::ToolMessage(block),
        other => panic!("{other:?}"),
    }
}

#[test]
fn agent_2_a_message_by_a_tool_and_a_block_counts_once() {
    let refusals = |task: &TaskDriver| {
        let notes = &task.task.state().notes;
        let refused = notes
            .iter()
            .filter(|note| matches!(note, Note::Refused(..)));
        refused.count()
    };
    for (first, second) in [(true, false), (false, true)] {
        let way = |is_tool: bool, event| if is_tool { by_tool(event) } else { event };
        let mut task = TaskDriver::running(2);
        task.tells(way(first, question("Which?", true)));
        let CliEvent::Block(Block::UserQuestion(mut again)) = question("Which?", true) else {
            panic!("no question");
        };
        again.category = QuestionCategory::Clarification;
        task.tells(way(second, CliEvent::Block(Block::UserQuestion(again))));
        task.tells(way(first, dependency("KEY")));
        task.tells(way(second, dependency("KEY")));
        assert_eq!(task.task.state().open_asks().count(), 2);
        let mut task = TaskDriver::running(2);
        task.tells(way(first, complete(1)));
        task.tells(way(second, complete(1)));
        task.tells(way(second, work_complete()));
        assert_eq!(task.task.state().review, Some(1));
        // A person approves before the program has written its last words.
        task.does(approve(1));
        task.tells(way(second, complete(1)));
        assert_eq!(refusals(&task), 0, "{:?}", task.task.state().notes);
        let effects = task.ends_well();
        let prompt = started(&effects);
        assert!(prompt.ends_with("You are in phase 2 of 2.\n"), "{prompt}");
        task.tells(way(second, complete(1)));
        assert_eq!(refusals(&task), 1, "that was another run's phase");
    }
}

#[test]
fn agent_2_a_program_ends_its_turn_after_a_tool_call() {
    let mut task = TaskDriver::running(2);
    task.tells(by_tool(question("Which?", true)));
    assert!(task.waits(TOOL_EXIT_GRACE_MS - 1).is_empty());
    task.tells(result(true));
    assert_eq!(task.waits(1), [TaskEffect::EndRun { run: 1 }]);
    let mut task = TaskDriver::running(2);
    task.tells(by_tool(question("Which?", true)));
    task.tells(result(true));
    assert!(task.waits(EXIT_GRACE_MS - 1).is_empty());
    assert_eq!(task.waits(1), [TaskEffect::EndRun { run: 1 }]);
}

#[test]
fn agent_6_a_call_of_goondans_own_tool_is_no_success() {
    let mut task = TaskDriver::running(0);
    task.tells(tool("make", ToolState::Started));
    task.tells(tool("", ToolState::Failed));
    task.tells(tool("mcp__goondan__report_progress", ToolState::Started));
    task.tells(tool("", ToolState::Completed));
    task.tells(result(true));
    let effects = task.exits(Some(0));
    assert!(effects.is_empty(), "it failed, and waits: {effects:?}");
    let ended = &task.task.state().last_run.as_ref().unwrap().outcome;
    assert!(
        matches!(ended, RunOutcome::Failed(why) if why.contains("make")),
        "{ended:?}"
    );
}

#[test]
fn agent_2_phase_can_be_approved_after_its_agent_ended() {
    let mut task = TaskDriver::running(2);
    assert_eq!(task.tries(approve(1)), Err(InputRefusal::NotUnderReview(1)));
    task.ends_well();
    assert_eq!(
        task.status(),
        Status::WaitingQuestion,
        "stopped without a word"
    );
    assert_eq!(task.tries(approve(2)), Err(InputRefusal::NotUnderReview(2)));
    let effects = task.does(approve(1));
    let Some(TaskEffect::StartRun { prompt, .. }) = effects.last() else {
        panic!("{effects:?}");
    };
    assert!(
        prompt.contains("Phase 1 is approved.\nYou are in phase 2 of 2."),
        "{prompt}"
    );
    assert_eq!(task.task.state().open_asks().count(), 0);
    // A phase that waits for an answer has not ended.
    task.tells(question("Which?", true));
    task.ends_well();
    assert_eq!(task.tries(approve(2)), Err(InputRefusal::NotUnderReview(2)));
}

#[test]
fn agent_3_lost_session_is_replaced_once_without_using_a_retry() {
    let mut task = TaskDriver::running(1);
    task.ends_well();
    task.does(answer("q-0001", "go on"));
    let run = task.run();
    let lost = CliEvent::SessionRefused("No conversation found".to_owned());
    assert_eq!(task.tells(lost), [TaskEffect::EndRun { run }]);
    // The program also exits with an error: that is the same failure.
    let effects = task.exits(Some(1));
    let [
        TaskEffect::StartRun {
            session: None,
            prompt,
            ..
        },
    ] = &effects[..]
    else {
        panic!("{effects:?}");
    };
    assert!(prompt.contains("Build a shop.") && prompt.contains("session that no longer exists"));
    assert!(!prompt.contains("interrupted"), "{prompt}");
    assert_eq!(task.task.state().failures, 0);
}

#[test]
fn agent_4_of_a_cumulative_figure_the_difference_counts() {
    let usage = |tokens| Usage {
        input_tokens: tokens,
        ..Usage::default()
    };
    let mut task = TaskDriver::running(1);
    let tells = |task: &mut TaskDriver, own, tokens, cost| {
        task.tells(CliEvent::Usage(UsageReport {
            counter: Counter::Run,
            usage: usage(own),
            cost: None,
            session: Some(SessionUsage {
                id: "s".to_owned(),
                usage: usage(tokens),
                cost: Some(MicroUsd(cost)),
            }),
        }));
    };
    let next = |task: &mut TaskDriver| {
        task.tells(question("Which?", true));
        task.ends_well();
        let id = format!("q-{:04}", task.task.state().asks.len());
        task.does(answer(&id, "a"));
    };
    let total = |task: &TaskDriver| {
        let total = task.task.state().tokens.total();
        (total.usage.input_tokens, total.cost.0)
    };
    tells(&mut task, 100, 100, 10);
    assert_eq!(total(&task), (100, 10));
    next(&mut task);
    // A helper model used 20 tokens that no message of the run reports.
    tells(&mut task, 80, 200, 20);
    tells(&mut task, 80, 200, 20);
    assert_eq!(total(&task), (200, 20));
    next(&mut task);
    // The program was killed before it saved the previous run: that run's share of the cost is
    // estimated from its tokens.
    tells(&mut task, 50, 150, 15);
    assert_eq!(total(&task), (250, 25));
    next(&mut task);
    tells(&mut task, 100, 250, 25);
    assert_eq!(total(&task), (350, 35));
}

#[test]
fn agent_6_a_permanent_failure_asks_a_person_at_once() {
    let mut task = TaskDriver::running(1);
    let why = "the provider answered 401: check the key or the login";
    assert_eq!(
        task.tells(CliEvent::Permanent(why.to_owned())),
        [TaskEffect::EndRun { run: 1 }]
    );
    task.tells(CliEvent::Stderr("warning: old\nfatal: 401".to_owned()));
    assert_eq!(task.exits(None), []);
    assert_eq!(task.status(), Status::WaitingQuestion);
    let shown = task
        .task
        .state()
        .detail(&"w".parse().unwrap(), "/w".as_ref(), Vec::new());
    assert_eq!(
        shown.asks[0].text,
        format!("The agent cannot work: {why}. Go on?")
    );
    let last = shown.last_run.unwrap();
    assert_eq!((last.number, last.is_ok), (1, false));
    assert!(
        last.outcome.contains(why) && last.stderr.contains("fatal: 401"),
        "{last:?}"
    );
    // A person has fixed it.
    started(&task.does(answer("q-0001", "go on")));
    task.tells(complete(1));
    task.ends_well();
    assert_eq!(task.status(), Status::WaitingReview);
}

#[test]
fn agent_6_failed_exit_is_explained_by_its_error_output() {
    let mut task = TaskDriver::running(1);
    task.tells(CliEvent::Text("I begin".to_owned()));
    task.tells(CliEvent::Stderr(
        "Error: the folder is not trusted".to_owned(),
    ));
    assert_eq!(task.exits(Some(41)), []);
    let last = task.task.state().last_run.clone().unwrap();
    let why = "it exited with 41: Error: the folder is not trusted";
    assert_eq!(last.outcome, RunOutcome::Failed(why.to_owned()));
    assert_eq!(last.last_words, "I begin");
    let effects = task.waits(RETRY_MS);
    assert!(started(&effects).contains(why));
    // An error output about an invalid key must not cause a retry.
    task.tells(CliEvent::Stderr(
        "Error: Incorrect API key provided".to_owned(),
    ));
    task.exits(Some(1));
    assert_eq!(task.status(), Status::WaitingQuestion);
}

#[test]
fn agent_6_a_run_of_which_every_tool_call_failed_is_no_success() {
    let bwrap = "bash -lc make";
    let mut task = TaskDriver::running(0);
    task.tells(tool(bwrap, ToolState::Started));
    task.tells(tool("", ToolState::Failed));
    task.ends_well();
    assert_eq!(task.status(), Status::Running, "it is not completed");
    let effects = task.waits(RETRY_MS);
    let why = "its only tool call failed, most recently bash -lc make";
    assert!(started(&effects).contains(why), "{effects:?}");
    // Its report that all work is done is then rejected.
    task.tells(tool(bwrap, ToolState::Failed));
    task.tells(tool(bwrap, ToolState::Failed));
    task.tells(work_complete());
    task.ends_well();
    assert_eq!(task.status(), Status::Running);
    let effects = task.waits(RETRY_MS * 64);
    assert!(
        started(&effects).contains("CUSTOM_TASK_COMPLETE was refused: all its 2 tool calls failed")
    );
    // One success is enough, and a person judges the phase.
    task.tells(tool(bwrap, ToolState::Failed));
    task.tells(tool(bwrap, ToolState::Completed));
    task.tells(work_complete());
    task.ends_well();
    assert_eq!(task.status(), Status::Completed);
    let mut task = TaskDriver::running(1);
    task.tells(tool(bwrap, ToolState::Failed));
    task.tells(complete(1));
    task.ends_well();
    assert_eq!(task.status(), Status::WaitingReview);
    assert_eq!(task.task.state().failures, 0);
}

fn permission(id: &str, kind: &str, consent: Consent) -> CliEvent {
    CliEvent::Permission(PermissionRequest {
        id: id.to_owned(),
        tool: "Write a.txt".to_owned(),
        kind: kind.to_owned(),
        detail: "+++ a.txt".to_owned(),
        consent,
        ..PermissionRequest::default()
    })
}

fn decision(effects: &[TaskEffect]) -> &PermissionDecision {
    let [TaskEffect::AnswerPermission { decision, .. }] = effects else {
        panic!("{effects:?}");
    };
    decision
}

#[test]
fn agent_5_permission_is_granted_once_or_denied_with_a_reason() {
    let mut task = TaskDriver::running(1);
    task.tells(permission("p1", "edit", Consent::Tool));
    let shown = task
        .task
        .state()
        .detail(&"w".parse().unwrap(), "/w".as_ref(), Vec::new());
    assert_eq!(shown.asks[0].text, "Write a.txt:\n+++ a.txt");
    assert_eq!(
        shown.asks[0].options,
        ["allow", "allow for this task", "refuse"]
    );
    let effects = task.does(answer("q-0001", "refuse: use b.txt"));
    assert_eq!(
        *decision(&effects),
        PermissionDecision::Refuse("use b.txt".to_owned())
    );
    task.tells(permission("p2", "edit", Consent::Tool));
    let effects = task.does(answer("q-0002", "allow for this task"));
    assert_eq!(*decision(&effects), PermissionDecision::AllowForTask);
    let effects = task.tells(permission("p3", "edit", Consent::Tool));
    assert_eq!(
        *decision(&effects),
        PermissionDecision::AllowForTask,
        "nobody is asked again"
    );
    assert_eq!(
        task.tells(permission("p4", "execute", Consent::Tool)),
        [],
        "another kind"
    );
    assert!(matches!(
        task.tries(answer("q-0003", "maybe")),
        Err(InputRefusal::NoOption { .. })
    ));
}

#[test]
fn agent_5_questions_of_a_program_are_asked_one_by_one() {
    let mut task = TaskDriver::running(1);
    let choice = |question: &str| ChoicePrompt {
        question: question.to_owned(),
        options: vec![("SQLite".to_owned(), "a file".to_owned())],
    };
    let choices = vec![choice("Which database?"), choice("Which backup?")];
    task.tells(permission(
        "p1",
        "AskUserQuestion",
        Consent::Choices(choices),
    ));
    let shown = task
        .task
        .state()
        .detail(&"w".parse().unwrap(), "/w".as_ref(), Vec::new());
    assert_eq!(shown.asks[0].text, "Which database?\nSQLite: a file");
    assert_eq!(
        shown.asks[0].kind,
        goondan_protocol::control::TaskAskKind::Question
    );
    assert!(
        task.waits(PERMISSION_WAIT_MS * 2).is_empty(),
        "it waits as long as it takes"
    );
    assert_eq!(task.does(answer("q-0001", "SQLite")), []);
    let effects = task.does(answer("q-0002", "neither, use tape"));
    let answers = [
        ("Which database?", "SQLite"),
        ("Which backup?", "neither, use tape"),
    ];
    let answers = answers.map(|(question, answer)| (question.to_owned(), answer.to_owned()));
    assert_eq!(
        *decision(&effects),
        PermissionDecision::Answers(answers.to_vec())
    );
    task.tells(permission(
        "p2",
        "ExitPlanMode",
        Consent::Plan("1. Do it.".to_owned()),
    ));
    let effects = task.does(answer("q-0003", "Write the tests first."));
    assert_eq!(
        *decision(&effects),
        PermissionDecision::Refuse("Write the tests first.".to_owned())
    );
    task.tells(permission(
        "p3",
        "ExitPlanMode",
        Consent::Plan("1. Tests.".to_owned()),
    ));
    let effects = task.does(answer("q-0004", "approve"));
    assert_eq!(*decision(&effects), PermissionDecision::Allow);
}
