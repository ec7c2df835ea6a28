//! The example project's clerk, in the real binary, with real tools on the real data.

use std::path::{Path, PathBuf};

use goondan_protocol::ipc::{ToAgent, ToOrchestrator, TurnAppend, TurnAppended};
use goondan_protocol::message::MessageRole;

use crate::support::{Orchestrator, StoredMessages, TestProject, script, trace};

fn bookshop() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/bookshop")
}

fn clerk(site: &mut TestProject) -> Orchestrator {
    site.project = bookshop().canonicalize().unwrap();
    let yaml = std::fs::read_to_string(bookshop().join("scripts/clerk.yaml")).unwrap();
    Orchestrator::start(&site.assignment(script(&yaml)), StoredMessages::default())
}

#[test]
fn bookshop_question_is_answered_in_five_steps_with_real_data() {
    let mut site = TestProject::new();
    let mut clerk = clerk(&mut site);
    let question = "How many copies of Dune were sold, and what did they earn?";
    let answer = clerk.ask("t1", question);

    let (mut copies, mut cents) = (0, 0);
    let orders = std::fs::read_to_string(site.project.join("data/orders.csv")).unwrap();
    for order in orders.lines().skip(1) {
        let fields: Vec<_> = order.split(',').collect();
        let (sold, price) = (
            fields[3].parse::<u32>().unwrap(),
            fields[4].replace('.', ""),
        );
        if fields[2] == "Dune" {
            copies += sold;
            cents += sold * price.parse::<u32>().unwrap();
        }
    }
    let earned = format!("{}.{:02}", cents / 100, cents % 100);
    let expected = format!("{copies} copies of Dune were sold, and they earned {earned} euros.");
    assert_eq!(answer, expected);

    let report = std::fs::read_to_string(site.work.join("reports/Dune.md")).unwrap();
    assert!(
        report.contains(&format!("- copies: {copies}\n")),
        "{report}"
    );

    use MessageRole::{Assistant, Tool, User};
    let roles: Vec<_> = clerk.stored.base.iter().map(|m| m.data.role).collect();
    let step = [Assistant, Tool];
    let four_steps = [step, step, step, step].concat();
    assert_eq!(roles, [vec![User], four_steps, vec![Assistant]].concat());
    assert_eq!(clerk.stored.base[0].metadata["eventId"], "event of t1");

    let step = [
        "step.started",
        "tool.called",
        "tool.completed",
        "step.completed",
    ];
    let four_steps = [step, step, step, step].concat();
    let last = vec!["step.started", "step.completed", "turn.completed"];
    assert_eq!(
        clerk.kinds_observed(),
        [vec!["turn.started"], four_steps, last].concat()
    );
    let trace = trace();
    for event in &clerk.observed {
        assert_eq!(event.trace_id, trace.trace_id);
        let is_of_turn = event.kind.as_str().starts_with("turn.");
        assert_eq!(event.span_id == trace.span_id, is_of_turn);
        assert!(is_of_turn || event.parent_span_id.is_some());
    }
    let log = clerk.log();
    for kind in ["tool.called", "tool.completed"] {
        let line = log.iter().find(|line| line["message"] == kind).unwrap();
        assert_eq!(line["traceId"], trace.trace_id.to_string());
        assert_eq!(line["turnId"], "t1");
        assert_eq!(line["agentName"], "clerk");
        assert_eq!(line["instanceKey"], "key: 1");
        assert_eq!(line["level"], "info");
    }
    // Details of each turn, which only the level `debug` has.
    for kind in [
        "turn.started",
        "step.started",
        "step.completed",
        "turn.completed",
    ] {
        assert!(log.iter().all(|line| line["message"] != kind), "{kind}");
    }
}

#[test]
fn clerk_remembers_the_customer_echoes_and_lists_its_commands() {
    let mut site = TestProject::new();
    let mut first = clerk(&mut site);
    assert!(first.ask("t1", "hi").contains("take stock slowly"));
    assert!(first.ask("t2", "what is my name").contains("not told me"));
    assert_eq!(
        first.ask("t3", "remember my name is Ada"),
        "I shall remember you, Ada."
    );
    assert_eq!(first.ask("t4", "echo a\nb"), "a\nb");
    assert_eq!(
        first.ask("t5", "How many copies of Emma were sold?"),
        "No order mentions that title."
    );
    assert_eq!(
        first.ask("t6", "take stock slowly for 0 s"),
        "There are 30 orders on the books."
    );

    // Another process with the same conversation, loaded over many pages.
    let yaml = std::fs::read_to_string(bookshop().join("scripts/clerk.yaml")).unwrap();
    let mut second = Orchestrator::start(&site.assignment(script(&yaml)), first.stored.clone());
    assert_eq!(second.ask("t7", "what is my name"), "Your name is Ada.");
}

#[test]
fn a_clerk_killed_while_it_takes_stock_counts_again() {
    let mut site = TestProject::new();
    let mut first = clerk(&mut site);
    first.give("t1", 1, "take stock slowly for 99 s");
    first.serve_until_tool_called();
    first.child.kill().unwrap();
    first.child.wait().unwrap();

    let yaml = std::fs::read_to_string(bookshop().join("scripts/clerk.yaml")).unwrap();
    let mut second = Orchestrator::start(&site.assignment(script(&yaml)), first.stored.clone());
    second.give("t1", 2, "take stock slowly for 99 s");
    second.finish_turn();
    let said: Vec<_> = second
        .stored
        .base
        .iter()
        .map(|m| m.data.content.to_text())
        .collect();
    assert_eq!(
        said,
        [
            "take stock slowly for 99 s",
            "I count every order, one by one.",
            "",
            "I was interrupted; I count again.",
            "",
            "There are 30 orders on the books.",
        ]
    );
    assert_eq!(second.kinds_observed()[0], "turn.resumed");
}

#[test]
fn tools_run_only_after_the_messages_are_durable() {
    let mut site = TestProject::new();
    let mut clerk = clerk(&mut site);
    clerk.give("t1", 1, "How many copies of Dune were sold?");
    let is_append = |message: &ToOrchestrator| matches!(message, ToOrchestrator::TurnAppend(_));
    // The question and the reply of the model, which runs inside the process.
    let appended: Vec<TurnAppend> = std::iter::repeat_with(|| clerk.serve_until(is_append))
        .take(2)
        .map(|message| match message {
            ToOrchestrator::TurnAppend(append) => append,
            other => unreachable!("{other:?} is none, which was just checked"),
        })
        .collect();
    for (append, seq) in appended.into_iter().zip(1..) {
        assert_eq!(append.seq, seq);
        // Without the acknowledgment, the process only answers pings.
        let kinds_before = clerk.kinds_observed();
        clerk.ping(seq);
        assert!(
            matches!(clerk.next(), Some(ToOrchestrator::Pong(_))),
            "after {kinds_before:?}"
        );
        clerk.send(&ToAgent::TurnAppended(TurnAppended {
            turn_id: append.turn_id,
            seq,
        }));
    }
    clerk.serve_until_tool_called();
}
