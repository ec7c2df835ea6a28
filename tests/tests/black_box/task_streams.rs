//! Goal: a person watches an agent of any program in one form, and a person's message reaches a
//! running or finished agent in its session once, even if the daemon is killed (`AGENT-7`).
//!
//! Method: one task for each format. A file holds its agent after it has worked, so that each kill
//! of the daemon hits a known point: before the message is delivered, and after it.

#![expect(clippy::disallowed_methods, reason = "test files need not be durable")]

use std::fs;

use goondan_tests::cli_agents::{self, Format, Manner, Point, agent_name, diary, work_area};
use goondan_tests::{Daemon, Home, wait_until};
use serde_json::Value;

/// Text of the agent at the end of each run.
const COMPLETE: &str = "CUSTOM TASK COMPLETE";

/// Messages: to an agent that works, and to one that has finished.
const TO_RUNNING: &str = "Paint it green.";
const TO_FINISHED: &str = "Paint it blue.";

struct WatchedTask {
    format: Format,
    id: String,
}

impl WatchedTask {
    fn hold(&self, home: &Home) {
        fs::write(self.hold_path(home), "").unwrap();
    }

    fn let_go(&self, home: &Home) {
        fs::remove_file(self.hold_path(home)).unwrap();
    }

    fn hold_path(&self, home: &Home) -> std::path::PathBuf {
        work_area(home, &self.id).join(format!("hold-{}", Point::Told.as_str()))
    }

    /// Sends a message. Its id depends only on its text.
    fn send(&self, home: &Home, text: &str) -> goondan_tests::home::CommandOutput {
        let id = text.replace(' ', "-");
        home.gdn(&["task", "send", &self.id, text, "--message-id", &id])
    }

    fn show(&self, home: &Home) -> Value {
        home.gdn_json(&["task", "show", &self.id])
    }

    /// Number of runs in which the agent received this message, and their session.
    fn deliveries(&self, home: &Home, text: &str) -> (usize, String) {
        let diary = diary(&work_area(home, &self.id));
        let lines = diary.iter().filter_map(|line| {
            let rest = line.strip_prefix("heard message in ")?;
            rest.split_once(": ").filter(|(_, heard)| *heard == text)
        });
        let sessions: Vec<&str> = lines.map(|(session, _)| session).collect();
        let session = sessions.first().copied().unwrap_or_default();
        (sessions.len(), session.to_owned())
    }

    /// Everything in its stream.
    fn stream(&self, home: &Home) -> Vec<Value> {
        let ran = home.gdn(&["--json", "task", "watch", &self.id, "--all"]);
        let ran = ran.exits(0);
        let items = ran.stdout.lines();
        items
            .map(|item| serde_json::from_str(item).unwrap())
            .collect()
    }
}

fn of_type<'i>(items: &'i [Value], kind: &str) -> Vec<&'i Value> {
    items.iter().filter(|item| item["type"] == kind).collect()
}

fn events<'i>(items: &'i [Value], event: &str) -> Vec<&'i Value> {
    let items = items.iter();
    items.filter(|item| item["event"] == event).collect()
}

/// Kills the daemon, and starts another once its agents may work again.
fn restart(home: &Home, daemon: Daemon, tasks: &[WatchedTask]) -> Daemon {
    drop(daemon.kill());
    for task in tasks {
        task.let_go(home);
    }
    Daemon::serving(home)
}

/// Waits until every task is completed. A run that ended with its daemon may need a person.
fn complete(home: &Home, tasks: &[WatchedTask]) {
    wait_until("every task is completed", || {
        let shown: Vec<Value> = tasks.iter().map(|task| task.show(home)).collect();
        for (task, shown) in tasks.iter().zip(&shown) {
            if shown["info"]["status"] == "waiting_question" {
                drop(home.gdn(&["task", "answer", &task.id, "go on"]));
            }
        }
        shown
            .iter()
            .all(|shown| shown["info"]["status"] == "completed")
    });
}

#[test]
fn agent_7_watched_agents_get_each_message_once_over_kills() {
    let home = cli_agents::home(&[Manner::Honest]);
    let daemon = Daemon::serving(&home);
    let tasks = Format::ALL.iter().map(|format| WatchedTask {
        format: *format,
        id: agent_name(*format, Manner::Honest),
    });
    let tasks: Vec<WatchedTask> = tasks.collect();
    let mut watchers = Vec::new();
    for task in &tasks {
        let id = &task.id;
        let new = ["task", "new", "Shop", "--id", id, "--agent", id];
        home.gdn(&[&new[..], &["--description", "Build a shop."]].concat())
            .exits(0);
        task.hold(&home);
        watchers.push(home.start_gdn(&["task", "watch", id]));
        home.gdn(&["task", "start", id]).exits(0);
    }
    // The work is shown while the agent works, also to a watcher that comes late.
    for (task, watcher) in tasks.iter().zip(&watchers) {
        watcher.wait_for_stdout(COMPLETE);
        let late = home.start_gdn(&["task", "watch", &task.id]);
        late.wait_for_stdout("run requested: run 1");
        late.wait_for_stdout(COMPLETE);
    }

    // A message to an agent that works waits for the end of the run. The daemon is killed before.
    let mut sessions = Vec::new();
    for task in &tasks {
        task.send(&home, TO_RUNNING).exits(0).prints(&["running"]);
        let shown = task.show(&home);
        assert_eq!(shown["messages"][0], TO_RUNNING, "{shown}");
        sessions.push(shown["session"].as_str().unwrap_or_default().to_owned());
    }
    let daemon = restart(&home, daemon, &tasks);
    for task in &tasks {
        // The message is known.
        task.send(&home, TO_RUNNING).exits(0);
    }
    complete(&home, &tasks);
    for (task, watcher) in tasks.iter().zip(watchers) {
        let shown = watcher.wait().exits(0).stdout;
        let times = |text: &str| shown.matches(text).count();
        assert_eq!(times("run requested: run 1"), 1, "{shown}");
        let sent = format!("message sent: {TO_RUNNING}");
        assert_eq!(times(&sent), 1, "{}: {shown}", task.id);
        assert!(shown.contains("task completed"), "{shown}");
    }

    // A message to an agent that has finished continues its task. The daemon is killed after the
    // agent has received it.
    for task in &tasks {
        task.hold(&home);
        task.send(&home, TO_FINISHED).exits(0);
    }
    wait_until("every agent has received the message", || {
        tasks.iter().all(|task| {
            let shown = task.show(&home);
            task.deliveries(&home, TO_FINISHED).0 == 1 && shown["messages"].is_null()
        })
    });
    let _daemon = restart(&home, daemon, &tasks);
    for task in &tasks {
        task.send(&home, TO_FINISHED).exits(0);
    }
    complete(&home, &tasks);

    for (task, first) in tasks.iter().zip(&sessions) {
        let id = &task.id;
        for text in [TO_RUNNING, TO_FINISHED] {
            let (times, session) = task.deliveries(&home, text);
            // Without a session, each run receives the whole task.
            if task.format == Format::Plain {
                assert!(times >= 1, "{id}: {text}");
            } else {
                assert_eq!((times, &session), (1, first), "{id}: {text}");
            }
        }
        let items = task.stream(&home);
        let sent = events(&items, "message_sent").into_iter();
        let sent: Vec<&Value> = sent.map(|item| &item["detail"]).collect();
        assert_eq!(sent, [TO_RUNNING, TO_FINISHED], "{id}");
        check_items(task.format, &items);
        // Watched after its end, the latest run is shown.
        let watch = home.gdn(&["task", "watch", id]).exits(0);
        let watch = watch.prints(&[COMPLETE, "task completed"]);
        assert!(
            !watch.stdout.contains("run requested: run 1\n"),
            "{watch:?}"
        );
    }
    check_refusals(&home, &tasks[0].id);
}

/// Items of a format in the common form.
fn check_items(format: Format, items: &[Value]) {
    let texts = of_type(items, "text").into_iter();
    let texts = texts.filter(|item| item["text"].as_str().unwrap().contains(COMPLETE));
    assert!(texts.count() >= 3, "{items:#?}");
    match format {
        Format::Plain => return,
        Format::Claude => assert!(!of_type(items, "thinking").is_empty(), "{items:#?}"),
        Format::Codex => {
            let command = of_type(items, "command")[0];
            assert_eq!(command["command"], "cat notes");
            assert_eq!(
                (&command["exit"], &command["state"]),
                (&0.into(), &"completed".into())
            );
        }
        Format::Acp => assert_eq!(of_type(items, "tool")[0]["name"], "cat notes"),
    }
    assert!(!of_type(items, "result").is_empty(), "{items:#?}");
}

fn check_refusals(home: &Home, agent: &str) {
    let new = ["task", "new", "Other", "--id", "other", "--agent", agent];
    home.gdn(&[&new[..], &["--description", "More."]].concat())
        .exits(0);
    home.gdn(&["task", "cancel", "other", "--yes"]).exits(0);
    home.gdn(&["task", "watch", "other"]).exits(20);
    let refused = home.gdn(&["task", "send", "other", "Hello?"]).exits(10);
    refused.tells(&["it is cancelled, which is final"]);
    let unknown = home.gdn(&["task", "send", "othre", "Hello?"]).exits(5);
    unknown.tells(&["did you mean `other`?"]);
    home.gdn(&["task", "send", "other", ""]).exits(10);
}
