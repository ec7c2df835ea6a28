//! Goal: an agent that is killed, reports falsehoods, hangs, floods or exits harms only its own
//! task, and only for a while (`TASK-7`, `TASK-8`, `PROTO-1`).
//!
//! Method: an agent of each format and each manner works on its own task, all concurrently. Each is
//! honest in its second run, so that every task completes eventually, with people who answer
//! `go on` to questions.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use goondan_tests::cli_agents::{
    self, Format, Manner, PROGRAM, READERS, agent_name, diary, work_area,
};
use goondan_tests::processes::{self, Signal};
use goondan_tests::{Daemon, Home, wait_for, wait_until};
use serde_json::Value;

/// Manners of agents that exit or are ended by goondan.
const MANNERS: [Manner; 6] = [
    Manner::Recover,
    Manner::Hang,
    Manner::Leave,
    Manner::Garbage,
    Manner::Flood,
    Manner::Work,
];

/// Longest time from a person's cancellation to its effect, on a busy machine. Nothing waits for
/// the program.
const CANCEL_MAX: Duration = Duration::from_secs(30);

fn listed(home: &Home) -> BTreeMap<String, Value> {
    let listed = home.gdn_json(&["task", "list", "--all"]);
    let tasks = listed["tasks"].as_array().unwrap().iter();
    tasks
        .map(|task| (task["taskId"].as_str().unwrap().to_owned(), task.clone()))
        .collect()
}

/// Answers `go on` to every task that asks.
fn go_on(home: &Home, tasks: &BTreeMap<String, Value>) {
    for (task, _) in tasks
        .iter()
        .filter(|(_, told)| told["status"] == "waiting_question")
    {
        // A task may have continued automatically meanwhile.
        drop(home.gdn(&["task", "answer", task, "go on"]));
    }
}

/// The data of the events of this name in a task's history.
fn events(home: &Home, task: &str, name: &str) -> Vec<Value> {
    let text = fs::read_to_string(work_area(home, task).join(".metadata/history.jsonl")).unwrap();
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of_name = lines.filter(|line| line["event"] == name);
    of_name.map(|line| line["data"].clone()).collect()
}

fn outcomes(home: &Home, task: &str) -> Vec<Value> {
    let ended = events(home, task, "run_ended").into_iter();
    ended.map(|data| data["outcome"].clone()).collect()
}

fn hire(home: &Home, manners: &[Manner]) -> Vec<(Format, Manner, String)> {
    let mut tasks = Vec::new();
    for format in Format::ALL {
        for manner in manners {
            let name = agent_name(*format, *manner);
            let new = [
                "task",
                "new",
                &name,
                "--id",
                &name,
                "--agent",
                &name,
                "--description",
                "Build a shop.",
                "--start",
            ];
            home.gdn(&new).exits(0);
            tasks.push((*format, *manner, name));
        }
    }
    tasks
}

#[test]
fn task_8_hostile_or_killed_agents_harm_no_other_task() {
    let home = cli_agents::home(&MANNERS);
    let daemon = Daemon::serving(&home);
    let tasks = hire(&home, &MANNERS);
    for (_, _, task) in tasks
        .iter()
        .filter(|(_, manner, _)| *manner == Manner::Work)
    {
        let agent = wait_for("the agent works", || {
            let running = home.running(PROGRAM).into_iter();
            let mut of_task = running.filter(|it| agent_name_of(&it.args) == *task);
            // Before it has shown progress, the next run would receive the same prompt.
            of_task
                .next()
                .filter(|_| !events(&home, task, "prompt_taken").is_empty())
        });
        processes::signal(agent.pid, Signal::SIGKILL);
    }
    wait_until("every task is completed", || {
        let tasks = listed(&home);
        go_on(&home, &tasks);
        tasks.values().all(|task| task["status"] == "completed")
    });
    // Leftover processes ended with their run, even in a separate session.
    wait_until("no process survives its task", || {
        home.running("sleep").is_empty() && home.running(PROGRAM).is_empty()
    });
    for (format, manner, task) in &tasks {
        let runs = diary(&work_area(&home, task));
        let begun = runs.iter().filter(|line| *line == "begun").count();
        let outcomes = outcomes(&home, task);
        assert_eq!(begun, outcomes.len(), "{task}: {runs:?} {outcomes:?}");
        assert!(!runs.contains(&"overlap".to_owned()), "{task}");
        let first = &outcomes[0];
        match manner {
            Manner::Hang => {
                assert_eq!(begun, 1, "{task} was done: {outcomes:?}");
            }
            Manner::Recover => {
                let told =
                    "heard error \"the shop is closed\": recover from it: Try the back door.";
                assert!(runs.contains(&told.to_owned()), "{task}: {runs:?}");
                assert_eq!(first, "done", "{task}");
            }
            Manner::Flood => assert!(
                first["failed"]
                    .as_str()
                    .unwrap()
                    .starts_with("it reported more"),
                "{task}: {first}"
            ),
            // Plain programs have no result but their exit code.
            _ if *format == Format::Plain && *manner != Manner::Work => {
                let why = first["failed"].as_str().unwrap_or_default();
                assert!(why.starts_with("it exited with 1"), "{task}: {first}");
            }
            _ => assert_eq!(first, "unknown", "{task}"),
        }
    }
    drop(daemon.stop());
}

/// The agent that a program is, by its arguments.
fn agent_name_of(args: &[String]) -> String {
    let words: Vec<&str> = args.iter().skip(1).take(2).map(String::as_str).collect();
    words.join("-")
}

#[test]
fn task_8_acp_agent_that_lost_its_session_starts_another() {
    let home = cli_agents::home(&[Manner::Forget]);
    let _daemon = Daemon::serving(&home);
    let agent = agent_name(Format::Acp, Manner::Forget);
    let new = [
        "task",
        "new",
        "Shop",
        "--id",
        "shop",
        "--agent",
        &agent,
        "--description",
        "Build a shop.",
        "--phases",
        "1",
        "--start",
    ];
    home.gdn(&new).exits(0);
    let is = |status: &str| listed(&home)["shop"]["status"] == status;
    wait_until("it asks", || is("waiting_question"));
    home.gdn(&["task", "answer", "shop", READERS[1]]).exits(0);
    wait_until("it is done", || is("waiting_review"));
    home.gdn(&["task", "approve", "shop"]).exits(0);
    assert_eq!(events(&home, "shop", "session_lost").len(), 1);
    assert_eq!(events(&home, "shop", "session_opened").len(), 2);
    let heard = format!("heard q-0001 {}", READERS[1]);
    let diary = diary(&work_area(&home, "shop"));
    assert_eq!(
        diary.iter().filter(|line| **line == heard).count(),
        1,
        "{diary:?}"
    );
}

#[test]
fn agent_2_goondan_tool_calls_count_once_beside_equal_blocks() {
    let home = cli_agents::home(&[Manner::Tools]);
    let _daemon = Daemon::serving(&home);
    let new = |format: &Format, task: &str, phases: &str| {
        let agent = agent_name(*format, Manner::Tools);
        let new = ["task", "new", task, "--id", task, "--agent", &agent];
        let more = [
            "--phases",
            phases,
            "--description",
            "Build a shop.",
            "--start",
        ];
        home.gdn(&[&new[..], &more[..]].concat()).exits(0);
    };
    for format in Format::ALL {
        new(format, format.as_str(), "1");
    }
    new(&Format::Claude, "whole", "0");
    let all_are = |status: &str| {
        let tasks = listed(&home);
        let tasks = tasks.iter().filter(|(task, _)| *task != "whole");
        tasks
            .map(|(_, task)| task)
            .all(|task| task["status"] == status)
    };
    wait_until("all ask", || all_are("waiting_question"));
    for format in Format::ALL {
        home.gdn(&["task", "answer", format.as_str(), READERS[1]])
            .exits(0);
    }
    wait_until("all are reviewed", || all_are("waiting_review"));
    wait_until("a task without phases is finished", || {
        listed(&home)["whole"]["status"] == "completed"
    });
    for format in Format::ALL {
        let task = format.as_str();
        home.gdn(&["task", "approve", task]).exits(0);
        for event in [
            "question_asked",
            "phase_completed",
            "progress_made",
            "step_started",
        ] {
            assert_eq!(events(&home, task, event).len(), 1, "{task}: {event}");
        }
        assert_eq!(events(&home, task, "protocol_refused").len(), 0, "{task}");
        let diary = diary(&work_area(&home, task));
        let told = [
            "called report_progress: ok",
            "called ask_person: ok",
            "called complete_phase: error",
            "called complete_phase: ok",
        ];
        let called: Vec<&String> = diary
            .iter()
            .filter(|line| line.starts_with("called "))
            .collect();
        assert_eq!(called, told, "{task}");
        // A proposal needs a copy of the project.
        assert!(diary.contains(&"listed 5".to_owned()), "{task}: {diary:?}");
    }
    assert_eq!(events(&home, "whole", "work_completed").len(), 1);
    wait_until("no process survives its task", || {
        home.running(PROGRAM).is_empty()
    });
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a file of the test need not be durable"
)]
fn agent_8_at_a_limit_another_program_takes_over() {
    let home = cli_agents::home(&[Manner::Limit, Manner::Honest]);
    let daemon = Daemon::serving(&home);
    let first = agent_name(Format::Claude, Manner::Limit);
    let second = agent_name(Format::Codex, Manner::Honest);
    let new = |task: &str, phases: &str| {
        let new = ["task", "new", task, "--id", task, "--phases", phases];
        let agents = ["--agent", &first, "--fallback", &second];
        let more = ["--description", "Build a shop."];
        home.gdn(&[&new[..], &agents[..], &more[..]].concat())
            .exits(0);
    };
    new("shop", "1");
    // The first program never gets there.
    let area = work_area(&home, "shop");
    fs::write(area.join("hold-told"), "").unwrap();
    home.gdn(&["task", "start", "shop"]).exits(0);
    wait_until("the second program asks", || {
        diary(&area).contains(&"held told".to_owned())
            && listed(&home)["shop"]["status"] == "waiting_question"
    });
    drop(daemon.kill());
    fs::remove_file(area.join("hold-told")).unwrap();
    let _daemon = Daemon::start(&home);
    let is = |task: &str, status: &str| listed(&home)[task]["status"] == status;
    wait_until("the run is lost", || {
        outcomes(&home, "shop").len() == 2 && is("shop", "waiting_question")
    });
    home.gdn(&["task", "answer", "shop", READERS[0]]).exits(0);
    wait_until("it is done", || is("shop", "waiting_review"));
    let runs = events(&home, "shop", "run_requested");
    let agents: Vec<&Value> = runs.iter().map(|run| &run["agent"]).collect();
    assert_eq!(agents, [&first, &second, &second]);
    let sessions: Vec<bool> = runs.iter().map(|run| run["session"].is_string()).collect();
    assert_eq!(sessions, [false, false, true], "{runs:?}");
    assert_eq!(events(&home, "shop", "agent_changed").len(), 1);
    let diary = diary(&area);
    let heard = diary.iter().filter(|line| *line == "heard hand-over");
    assert_eq!(heard.count(), 1, "{diary:?}");
    let why = format!("{second} continues, because the usage limit of {first} is reached until");
    home.gdn(&["task", "logs", "shop"])
        .exits(0)
        .prints(&[&why, &format!("run 2 of {second}")]);
    let shown = home.gdn(&["task", "show", "shop"]).exits(0);
    shown.prints(&[&second, &format!("{first} (limit until ")]);
    home.gdn(&["task", "approve", "shop"]).exits(0);
    // Another task does not try the first program.
    new("stall", "0");
    home.gdn(&["task", "start", "stall"]).exits(0);
    wait_until("both are completed", || {
        is("shop", "completed") && is("stall", "completed")
    });
    let runs = events(&home, "stall", "run_requested");
    assert_eq!(runs.len(), 1, "{runs:?}");
    assert_eq!(runs[0]["agent"], second);
    let usage = home.gdn_json(&["usage"]);
    let account = |agent: &str| {
        let accounts = usage["accounts"].as_array().unwrap().iter();
        let mut of_agent = accounts.filter(|account| account["agents"][0] == agent);
        of_agent.next().unwrap().clone()
    };
    let (limited, open) = (account(&first), account(&second));
    assert!(limited["limitedUntil"].is_string(), "{limited}");
    assert_eq!(limited["usage"]["inputTokens"], 10, "{limited}");
    assert!(open["limitedUntil"].is_null(), "{open}");
    // Two of its three runs had a result.
    assert_eq!(open["usage"]["inputTokens"], 20, "{open}");
    assert_eq!(open["usage"]["outputTokens"], 10, "{open}");
    let by_agent = usage["rows"].as_array().unwrap().iter();
    let by_agent: Vec<&Value> = by_agent.map(|row| &row["key"]).collect();
    assert!(
        by_agent.contains(&&Value::from(first.clone()))
            && by_agent.contains(&&Value::from(second.clone())),
        "{by_agent:?}"
    );
    let shown = home.gdn(&["usage"]).exits(0);
    shown.prints(&["ACCOUNT", "until 2", "open"]);
}

/// A program that cannot resume a session, and whose key is invalid at first.
const PROGRAM_WITHOUT_SESSION: &str = "#!/bin/sh
runs=$(ls prompt-* 2>/dev/null | wc -l)
cat > prompt-$runs
if [ $runs = 0 ]; then
  echo 'I begin.'
  echo 'warning: old' >&2
  echo 'Error: Incorrect API key provided: sk-1' >&2
  exit 1
fi
";

#[test]
fn agent_6_failed_run_reports_why_and_its_phase_can_be_approved() {
    let home = Home::new(
        "apiVersion: goondan.ai/v1\nkind: Agent\nmetadata: {name: coder}\nspec: {runtime: {kind: cli, command: \
         [./agent.sh]}, sandbox: {require: landlock}}\n",
    );
    home.write_program("project/agent.sh", PROGRAM_WITHOUT_SESSION);
    let _daemon = Daemon::serving(&home);
    let new = ["task", "new", "Shop", "--id", "shop", "--phases", "1"];
    let more = ["--description", "Build a shop.", "--start"];
    home.gdn(&[&new[..], &more[..]].concat()).exits(0);
    let is = |status: &str| listed(&home)["shop"]["status"] == status;
    // A retry would not help: a person is asked immediately.
    wait_until("it asks", || is("waiting_question"));
    let shown = home.gdn(&["task", "show", "shop"]).exits(0);
    shown.prints(&[
        "Incorrect API key provided: sk-1",
        "I begin.",
        "warning: old",
    ]);
    home.gdn(&["task", "answer", "shop", "go on"]).exits(0);
    wait_until("it stopped without a word", || {
        outcomes(&home, "shop").len() == 2 && is("waiting_question")
    });
    let prompt = fs::read_to_string(work_area(&home, "shop").join("prompt-1")).unwrap();
    for said in [
        "Build a shop.",
        "[USER_QUESTION]",
        "You are in phase 1 of 1.",
    ] {
        assert!(prompt.contains(said), "{said}: {prompt}");
    }
    home.gdn(&["task", "approve", "shop"]).exits(0);
    wait_until("it is completed", || is("completed"));
}

/// Ten minutes: the maximum time without a sign of life.
#[test]
fn task_8_agent_without_sign_of_life_is_ended_in_the_long_test() {
    if std::env::var("GOONDAN_TEST_TASK_KILL_ROUNDS").is_err() {
        return;
    }
    let home = cli_agents::home(&[Manner::Stall]);
    let _daemon = Daemon::serving(&home);
    let tasks = hire(&home, &[Manner::Stall]);
    let limit = Duration::from_secs(900);
    let done = goondan_tests::wait::within(limit, || {
        let tasks = listed(&home);
        go_on(&home, &tasks);
        tasks
            .values()
            .all(|task| task["status"] == "completed")
            .then_some(())
    });
    assert!(done.is_some(), "{:#?}", listed(&home));
    for (_, _, task) in &tasks {
        assert_eq!(outcomes(&home, task)[0], "unknown", "{task}");
    }
}

#[test]
fn task_8_canceled_long_command_leaves_no_process() {
    let home = cli_agents::home(&[Manner::Command]);
    let daemon = Daemon::serving(&home);
    let tasks = hire(&home, &[Manner::Command]);
    // Each has one in its process group, and one in a separate session.
    wait_until("all commands run", || {
        home.running("sleep").len() == 2 * tasks.len()
    });
    for (_, _, task) in &tasks {
        let begun = Instant::now();
        home.gdn(&["task", "cancel", task, "--yes"]).exits(0);
        wait_until("it is canceled", || {
            listed(&home)[task]["status"] == "cancelled"
        });
        let took = begun.elapsed();
        assert!(took < CANCEL_MAX, "{task}: {took:?}");
    }
    wait_until("no process is left", || {
        home.running("sleep").is_empty() && home.running(PROGRAM).is_empty()
    });
    drop(daemon.stop());
}
