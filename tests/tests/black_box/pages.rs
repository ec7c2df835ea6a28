//! Paginated lists, and clients that follow changes without polling (`OBS-1`).

use std::fs::copy;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::Path;

use goondan_tests::home::RunningProgram;
use goondan_tests::processes::{self, Signal};
use goondan_tests::projects::LAB;
use goondan_tests::{Daemon, Home, wait_until};
use serde_json::{Value, json};

use crate::control::{connect, greeting, receive, request, send, version};
use crate::{approvals, tasks};

/// A connection that has greeted.
fn client(home: &Home) -> UnixStream {
    let (goondan, protocol) = version(home);
    let mut stream = connect(home);
    send(&mut stream, &greeting(&goondan, protocol));
    assert!(receive(&mut stream)["error"].is_null());
    stream
}

fn asked(stream: &mut UnixStream, method: &str, params: &Value) -> Value {
    send(stream, &request(method, params));
    let mut answer = receive(stream);
    assert!(answer["error"].is_null(), "{answer}");
    answer["result"].take()
}

/// All pages of a list, each with one item; `change` is called between them with the number of
/// items so far.
fn pages(
    home: &Home,
    (method, list): (&str, &str),
    mut params: Value,
    mut change: impl FnMut(usize),
) -> Vec<Value> {
    let mut stream = client(home);
    params["workspaceId"] =
        home.gdn_json(&["workspace", "list"])["workspaces"][0]["workspaceId"].take();
    params["limit"] = json!(1);
    let mut found = Vec::new();
    loop {
        let mut page = asked(&mut stream, method, &params);
        found.append(page[list].as_array_mut().unwrap());
        if page["next"].is_null() {
            return found;
        }
        params["after"] = page["next"].take();
        change(found.len());
    }
}

fn ids(events: &[Value]) -> Vec<&str> {
    let events = events.iter();
    events
        .map(|event| event["eventId"].as_str().unwrap())
        .collect()
}

/// Queues events in conversations with held turns; the clients wait for the answers.
fn behind_held_turns(home: &Home, keys: &[&str]) -> Vec<RunningProgram> {
    let mut sent = Vec::new();
    for key in keys {
        for number in 0..3 {
            let id = format!("{key}{number}");
            let text = match number {
                0 => format!("hold {key}"),
                _ => format!("echo {id}"),
            };
            let args = ["send", "--instance", key, "--event-id", &id, &text];
            sent.push(home.start_gdn(&args));
            wait_until("it waits", || {
                let listed = home.gdn(&["--json", "event", "list", "--instance", key]);
                // The conversation begins with its first event.
                listed.code == 0 && listed.json()["events"].as_array().unwrap().len() == number + 1
            });
        }
        let runs = home.notes().join(format!("{key}.runs"));
        wait_until("the tool runs", || runs.exists());
    }
    sent
}

#[test]
fn obs_1_event_pages_miss_and_repeat_nothing_under_changes() {
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    let mut sent = behind_held_turns(&home, &["a", "b", "c"]);
    let whole = pages(&home, ("event.list", "events"), json!({}), |_| {});
    let order = ["a0", "a1", "a2", "b0", "b1", "b2", "c0", "c1", "c2"];
    assert_eq!(ids(&whole), order);
    let event = |args: &[&str]| drop(home.gdn(&[&["event"], args].concat()).exits(0));
    let found = pages(
        &home,
        ("event.list", "events"),
        json!({}),
        |count| match count {
            3 => {
                // One listed event is dropped, one moves, and one conversation is paused, whose
                // events must still be listed.
                event(&["drop", "a1", "--yes"]);
                event(&["move", "b2", "--first"]);
                event(&["pause", "c1"]);
            }
            6 => {
                event(&["move", "b2", "--last"]);
                event(&["move", "c2", "--first"]);
            }
            _ => {}
        },
    );
    let order = ["a0", "a1", "a2", "b0", "b2", "b1", "c0", "c2", "c1"];
    assert_eq!(ids(&found), order);
    assert_eq!(found[8]["standing"], "paused");
    event(&["resume", "c1"]);
    for key in ["a", "b", "c"] {
        home.write(&format!("notes/{key}.go"), "");
    }
    // The dropped event ended without an answer.
    let dropped = sent.remove(1);
    assert_ne!(dropped.wait().code, 0);
    for running in sent {
        running.wait().exits(0);
    }
}

#[test]
fn obs_1_process_pages_miss_and_repeat_nothing_as_others_end() {
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    for key in ["a", "b", "c", "d"] {
        assert_eq!(home.ask(key, "echo hi"), "hi");
    }
    let all = home.ps();
    let named = |of: &[Value]| {
        let of = of.iter();
        of.map(|one| {
            (
                one["role"].clone(),
                one["name"].clone(),
                one["instanceKey"].clone(),
            )
        })
        .collect::<Vec<_>>()
    };
    let pid = |key: &str| {
        let pid = home.ps_agent(key).unwrap()["pid"].as_u64().unwrap();
        u32::try_from(pid).unwrap()
    };
    let list = ("daemon.processes", "processes");
    let found = pages(&home, list, json!({}), |count| {
        if count == all.len() - 2 {
            // One entry before and one after the cursor are restarted.
            for key in ["a", "d"] {
                let before = pid(key);
                processes::signal(before, Signal::SIGKILL);
                wait_until("it is gone", || {
                    home.ps_agent(key).is_none_or(|now| now["pid"] != before)
                });
                assert_eq!(home.ask(key, "echo hi"), "hi");
                assert_ne!(pid(key), before);
            }
        }
    });
    assert_eq!(named(&found), named(&all));
    assert!(found.len() > 4, "{found:#?}");
    let last = found.last().unwrap();
    assert_eq!(last["pid"], pid("d"), "a later page is of its own time");
    if cfg!(target_os = "linux") {
        assert!(last["memoryBytes"].as_u64() > Some(100_000), "{last}");
    }
}

/// A field of each item, in order.
fn told<'a>(items: &'a [Value], name: &str) -> Vec<&'a str> {
    let items = items.iter();
    items.map(|item| item[name].as_str().unwrap()).collect()
}

#[test]
fn obs_1_approval_pages_start_oldest_and_list_each_call_once() {
    let home = Home::new(&approvals::project());
    let _daemon = Daemon::serving(&home);
    let keys = ["b", "a", "c"];
    let mut sending = Vec::new();
    for (before, key) in keys.iter().enumerate() {
        let text = format!("run {key}");
        sending.push(home.start_gdn(&["send", "--instance", key, &text]));
        wait_until("its call waits", || {
            approvals::waiting(&home).len() == before + 1
        });
    }
    let first = approvals::id_of(&approvals::waiting(&home)[0]);
    let list = ("approval.list", "approvals");
    let found = pages(&home, list, json!({}), |count| {
        if count == 1 {
            home.gdn(&["approve", &first]).exits(0);
        }
    });
    assert_eq!(told(&found, "instanceKey"), keys);
    for call in &found[1..] {
        home.gdn(&["deny", &approvals::id_of(call)]).exits(0);
    }
    for running in sending {
        running.wait().exits(0);
    }
    assert_eq!(keys.map(|key| approvals::runs_of(&home, key)), [1, 0, 0]);
}

#[test]
fn obs_1_sandbox_proposal_and_checkpoint_pages_are_exact() {
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    home.write("project/src/a.txt", "a\n");
    // Listed by run and worker, in any order of creation.
    let prepare = |agent: &str| {
        let args = ["sandbox", "prepare", "--run", "r1", "--agent", agent, "src"];
        home.gdn(&args).exits(0);
    };
    for agent in ["d", "b", "c"] {
        prepare(agent);
    }
    let list = ("sandbox.list", "sandboxes");
    let found = pages(&home, list, json!({}), |count| {
        if count == 1 {
            // One listed sandbox is removed, and one is added before the others.
            home.gdn(&["sandbox", "remove", "r1", "b"]).exits(0);
            prepare("a");
        }
    });
    assert_eq!(told(&found, "agentId"), ["b", "c", "d"]);
    for agent in ["d", "a"] {
        let shown = home.gdn_json(&["sandbox", "show", "r1", agent]);
        let work = Path::new(shown["workDir"].as_str().unwrap());
        copy(home.project().join("goondan.yaml"), work.join("src/b.txt")).unwrap();
        home.gdn(&["proposal", "create", "r1", agent]).exits(0);
    }
    let list = ("proposal.list", "proposals");
    let found = pages(&home, list, json!({}), |_| {});
    // One sandbox has no proposal, and is on no page.
    assert_eq!(told(&found, "agentId"), ["a", "d"]);
    // The CLI lists them in creation order.
    let listed = home.gdn_json(&["proposal", "list"]);
    let listed = listed["proposals"].as_array().unwrap();
    assert_eq!(told(listed, "agentId"), ["d", "a"]);

    assert_eq!(home.ask("main", "echo hi"), "hi");
    for _ in 0..3 {
        home.gdn(&["instance", "checkpoint"]).exits(0);
    }
    let list = ("instance.checkpoints", "checkpoints");
    let found = pages(&home, list, json!({"instanceKey": "main"}), |_| {});
    let ids = ["checkpoint_001", "checkpoint_002", "checkpoint_003"];
    assert_eq!(told(&found, "checkpointId"), ids);
}

/// Changes that `gdn ps --watch --json` printed for an agent: the change, and its process id.
fn changes(watch: &RunningProgram, key: &str) -> Vec<(String, Value)> {
    let printed = watch.stdout();
    let whole = printed.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let lines = whole.lines();
    let told = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of_key = told.filter(|told| told["process"]["instanceKey"] == key);
    of_key
        .map(|told| {
            let what = told["change"].as_str().unwrap().to_owned();
            (what, told["process"]["pid"].clone())
        })
        .collect()
}

#[test]
fn obs_1_ps_watch_reports_changes_over_a_kill_until_stop() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    let watch = home.start_gdn(&["ps", "--watch", "--json"]);
    let plain = home.start_gdn(&["ps", "-w"]);
    assert_eq!(home.ask("main", "echo one"), "one");
    let pid = home.ps_agent("main").unwrap()["pid"].clone();
    let is_told = |pid: &Value| changes(&watch, "main").iter().any(|(_, told)| told == pid);
    wait_until("its process is notified", || is_told(&pid));
    assert_eq!(changes(&watch, "main")[0].0, "appeared");
    plain.wait_for_stdout(&format!("pid {pid}"));
    drop(daemon.kill());
    plain.wait_for_stderr("Connection lost");
    let daemon = Daemon::start(&home);
    wait_until("the project runs", || home.gdn(&["ps"]).code == 0);
    assert_eq!(home.ask("main", "echo two"), "two");
    let next = home.ps_agent("main").unwrap()["pid"].clone();
    assert_ne!(pid, next);
    wait_until("the next process is notified", || is_told(&next));
    plain.wait_for_stdout(&format!("pid {next}"));
    home.gdn(&["stop"]).exits(0);
    watch.wait().exits(0);
    plain.wait().exits(0).tells(&["The project is stopped."]);
    daemon.stop();
}

#[test]
fn obs_1_process_watcher_is_notified_only_of_differences() {
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    assert_eq!(home.ask("main", "echo one"), "one");
    let idle = || {
        home.ps_agent("main")
            .is_some_and(|now| now["state"] == "idle")
    };
    wait_until("it is idle", idle);
    let mut stream = client(&home);
    send(&mut stream, &request("process.watch", &json!({})));
    let first = receive(&mut stream);
    assert_eq!(first["method"], "process.change", "{first}");
    let told = &first["params"];
    assert_eq!(
        (&told["requestId"], &told["gone"]),
        (&json!(2), &Value::Null)
    );
    assert_eq!(told["processes"].as_array().unwrap().len(), home.ps().len());
    // The next notifications are about the next changes, and only about this agent.
    let mut next = |state: &str| loop {
        let told = receive(&mut stream);
        let processes = told["params"]["processes"].as_array().unwrap();
        let of_main = |one: &Value| one["instanceKey"] == "main";
        assert!(processes.len() == 1 && of_main(&processes[0]), "{told}");
        if processes[0]["state"] == state {
            return;
        }
    };
    let held = home.start_gdn(&["send", "--instance", "main", "hold x"]);
    next("processing");
    home.write("notes/x.go", "");
    next("idle");
    held.wait().exits(0);
    let refused = json!({"workspaceId": "nobody__no-package"});
    let mut stream = client(&home);
    send(&mut stream, &request("process.watch", &refused));
    let error = receive(&mut stream);
    assert_eq!(
        error["error"]["data"]["code"], "workspaceNotFound",
        "{error}"
    );
}

#[test]
fn obs_1_task_log_is_followed_over_a_daemon_kill_to_its_end() {
    let home = tasks::example();
    let daemon = Daemon::serving(&home);
    tasks::new_task(&home);
    let follow = home.start_gdn(&["task", "logs", "shop", "--follow"]);
    let output = home.start_gdn(&[
        "task", "logs", "shop", "--follow", "--log", "stdout", "--json",
    ]);
    let mut daemon = Some(daemon);
    for (step, (before, act, after)) in tasks::STEPS.into_iter().enumerate() {
        tasks::wait_for(&home, before);
        if step == 1 {
            follow.wait_for_stdout("Who reads it?");
            drop(daemon.take().map(Daemon::kill));
            follow.wait_for_stderr("Connection lost");
            daemon = Some(Daemon::start(&home));
            wait_until("the task is known", || {
                home.gdn(&["task", "show", "shop"]).code == 0
            });
        }
        act(&home);
        tasks::wait_for(&home, after);
    }
    let followed = follow.wait().exits(0).stdout;
    let log = home.gdn(&["task", "logs", "shop"]).exits(0).stdout;
    assert_eq!(
        followed, log,
        "nothing is missing, and nothing is there twice"
    );
    let parts = output.wait().exits(0).stdout;
    let parts: Vec<Value> = parts
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let texts: String = parts
        .iter()
        .map(|part| part["text"].as_str().unwrap())
        .collect();
    let log = home
        .gdn(&["task", "logs", "shop", "--log", "stdout"])
        .exits(0)
        .stdout;
    assert_eq!(texts, log);
    // A finished task has nothing to follow.
    let again = home.gdn(&["task", "logs", "shop", "-f"]).exits(0);
    assert_eq!(again.stdout, followed);
}

#[test]
fn obs_1_log_waiter_is_answered_when_task_or_project_goes_away() {
    let home = tasks::example();
    let _daemon = Daemon::serving(&home);
    tasks::new_task(&home);
    tasks::wait_for(&home, "waiting_question");
    let follow = home.start_gdn(&["task", "logs", "shop", "-f"]);
    follow.wait_for_stdout("Who reads it?");
    home.gdn(&["task", "cancel", "shop", "--yes"]).exits(0);
    follow.wait().exits(0);
    let new = [
        "task",
        "new",
        "Other",
        "--description",
        "More.",
        "--id",
        "other",
    ];
    home.gdn(&new).exits(0);
    let follow = home.start_gdn(&["task", "logs", "other", "-f"]);
    follow.wait_for_stdout("Other");
    home.gdn(&["stop"]).exits(0);
    follow.wait().exits(0).tells(&["The project is stopped."]);
}

/// More turns than the sockets and queues can hold notifications for.
const TURNS_UNREAD: usize = 600;

#[test]
fn obs_1_watcher_that_does_not_read_is_cut_off_and_blocks_none() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    let id = home.gdn_json(&["workspace", "list"])["workspaces"][0]["workspaceId"].take();
    let mut deaf = client(&home);
    send(
        &mut deaf,
        &request("workspace.watch", &json!({ "workspaceId": id })),
    );
    let mut stream = client(&home);
    for number in 0..TURNS_UNREAD {
        let input = format!("echo {number}");
        let event =
            json!({"workspaceId": id, "conversationKey": "main", "input": input, "wait": true});
        send(&mut stream, &request("event.send", &event));
        let answer = loop {
            let told = receive(&mut stream);
            if told["id"].is_number() {
                break told;
            }
        };
        assert_eq!(
            answer["result"]["outcome"]["reply"],
            number.to_string(),
            "{answer}"
        );
    }
    // The connection is closed after the earlier notifications were read.
    let mut told = Vec::new();
    deaf.read_to_end(&mut told).expect("it is cut off");
    assert!(!told.is_empty());
    daemon.stop();
}
