//! Commands that inspect and change: `ps`, `status`, `instance`, `workspace`, `logs`, `restart`, `stop`, `shutdown`,
//! `audit`.

use goondan_protocol::control::{Call, InstancePage, ReadAudit, ShowInstance};
use goondan_protocol::ids::{InstanceKey, WorkspaceId};
use goondan_protocol::version::Version;
use serde_json::{Value, json};

use crate::daemon::{Act, Daemon, answer};
use crate::home::{Home, WORKSPACE};

/// A time `seconds` ago.
fn ago(seconds: i64) -> String {
    let at = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let ms = i64::try_from(at.as_millis()).unwrap() - seconds * 1000;
    goondan_protocol::time::Timestamp::from_unix_millis(ms).to_string()
}

fn process() -> Value {
    json!({
        "workspaceId": WORKSPACE,
        "role": "agent",
        "name": "clerk",
        "instanceKey": "가나",
        "state": "processing",
        "pid": 4711,
        "startedAt": ago(7800),
        "consecutiveCrashes": 2,
        "pendingEvents": 1,
        "memoryBytes": 3_250_586,
    })
}

fn instance() -> Value {
    json!({
        "workspaceId": WORKSPACE,
        "instanceKey": "main",
        "agentName": "clerk",
        "status": "idle",
        "createdAt": "2026-11-21T21:06:00.000Z",
        "updatedAt": ago(7800),
    })
}

/// A daemon that reports process changes, and then that the project was stopped.
fn watched(home: &Home) -> Daemon {
    home.daemon(|call| match call {
        Call::WatchProcesses(_) => {
            let at = |second| format!("2026-01-01T00:00:0{second}.000Z");
            let mut idle = process();
            idle["state"] = json!("idle");
            let mut fatter = idle.clone();
            fatter["memoryBytes"] = json!(7);
            let mut key = json!({});
            for name in ["workspaceId", "role", "name", "instanceKey"] {
                key[name] = process()[name].clone();
            }
            let told = |second, processes| json!({"at": at(second), "processes": processes});
            let mut gone = told(4, json!([]));
            gone["gone"] = json!([key]);
            // A list in parts is not shown before it is complete.
            let mut part = told(1, json!([idle.clone()]));
            part["more"] = json!(true);
            vec![
                Act::Processes(part),
                Act::Processes(told(1, json!([process()]))),
                Act::Processes(told(2, json!([idle]))),
                Act::Processes(told(3, json!([fatter]))),
                Act::Processes(gone),
                Act::Answer(json!({})),
            ]
        }
        _ => vec![],
    })
}

#[test]
fn ps_watch_asks_once_and_prints_changes_until_project_stops() {
    let home = Home::new();
    let daemon = watched(&home);
    let ran = home.gdn(&["ps", "--watch", "--json"]).exits(0);
    let lines = ran
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let lines: Vec<Value> = lines.collect();
    let told: Vec<_> = lines
        .iter()
        .map(|line| {
            (
                line["change"].as_str().unwrap(),
                line["process"]["state"].as_str().unwrap(),
                line["at"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("appeared", "processing", "2026-01-01T00:00:01.000Z"),
            ("changed", "idle", "2026-01-01T00:00:02.000Z"),
            ("gone", "idle", "2026-01-01T00:00:04.000Z")
        ]
    );
    assert!(
        lines
            .iter()
            .all(|line| line["schema"] == "gdn.ps.change/v1")
    );
    // There was only one request, in spite of the changes.
    let calls = daemon.calls();
    assert!(
        matches!(calls.as_slice(), [Call::WatchProcesses(watch)] if !watch.memory),
        "{calls:?}"
    );
    drop(daemon);

    let home = Home::new();
    let _daemon = watched(&home);
    let ran = home.gdn(&["ps", "-w"]).exits(0);
    let ran = ran.tells(&["The project is stopped."]);
    let lines: Vec<_> = ran.stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{}", ran.stdout);
    for (line, end) in lines.iter().zip([
        "agent clerk/가나  processing  pid 4711  1 pending  2 crashes",
        "agent clerk/가나  idle  pid 4711  1 pending  2 crashes",
        "agent clerk/가나  gone",
    ]) {
        assert!(line.ends_with(end), "{line}");
    }
}

#[test]
fn task_logs_follow_requests_more_after_each_answer() {
    let home = Home::new();
    let daemon = home.daemon(|call| match call {
        Call::ReadTaskLog(read) if read.offset < 0 => {
            answer(json!({"text": "begun\n", "next": 6, "isEnd": true}))
        }
        Call::ReadTaskLog(_) => {
            answer(json!({"text": "done\n", "next": 11, "isEnd": true, "isOver": true}))
        }
        // A task that cannot be read is not followed.
        Call::ShowTask(_) => answer(json!({
            "info": {
                "workspaceId": "w1", "taskId": "shop", "title": "Shop", "type": "custom", "agent": "coder",
                "status": "running", "currentPhase": 0, "totalPhases": 0, "progress": 0, "tokens": 0, "cost": 0,
                "createdAt": "2026-01-01T00:00:00.000Z", "updatedAt": "2026-01-01T00:00:00.000Z",
            },
            "description": "", "workArea": "/tasks/shop", "asks": [], "documents": [], "runs": 1, "budget": {},
            "usage": {"inputTokens": 0, "outputTokens": 0, "cacheReadTokens": 0, "cacheWriteTokens": 0},
            "recent": [],
        })),
        _ => vec![],
    });
    let ran = home.gdn(&["task", "logs", "shop", "--follow"]).exits(0);
    assert_eq!(ran.stdout, "begun\ndone\n");
    let asked: Vec<_> = daemon
        .calls()
        .into_iter()
        .filter_map(|call| match call {
            Call::ReadTaskLog(read) => Some((read.offset, read.wait)),
            Call::ShowTask(_) => None,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(asked, [(-16_384, true), (6, true)]);
    home.gdn(&["task", "logs", "shop"]).exits(0);
    let calls = daemon.calls();
    assert!(
        matches!(calls.last(), Some(Call::ReadTaskLog(read)) if !read.wait),
        "{calls:?}"
    );
}

#[test]
fn obs_1_lists_are_whole_however_many_pages_they_have() {
    let home = Home::new();
    let own = home.workspace();
    let workspace = move |id: &str| {
        let mut workspace = own.clone();
        workspace["workspaceId"] = json!(id);
        workspace
    };
    let named = |name: &str| {
        let mut process = process();
        process["name"] = json!(name);
        process
    };
    let key = |name: &str| json!({"workspaceId": WORKSPACE, "role": "connector", "name": name});
    let event = |key: &str| {
        json!({
            "instanceKey": key, "agentName": "clerk", "eventId": key, "standing": "waiting",
            "crashes": 0, "since": ago(1), "source": {"kind": "connector", "name": "cli"},
            "input": "Hello",
        })
    };
    let _daemon = home.daemon(move |call| match call {
        Call::ListProcesses(list) => answer(match &list.after {
            None => json!({"processes": [named("a")], "next": key("a")}),
            Some(after) if after.name == "a" => {
                json!({"processes": [named("b"), named("c")], "next": key("c")})
            }
            Some(after) => {
                assert_eq!(after.name, "c");
                json!({"processes": [named("d")]})
            }
        }),
        Call::ListEvents(list) => answer(match list.after.as_ref().map(InstanceKey::as_str) {
            None => json!({"events": [event("e1")], "next": "e1"}),
            // A page may be empty without being the last.
            Some("e1") => json!({"events": [], "next": "e2"}),
            after => {
                assert_eq!(after, Some("e2"));
                json!({"events": [event("e3")]})
            }
        }),
        Call::Status(_) => {
            let mut status = status();
            status["workspaces"] = json!([workspace("v"), workspace(WORKSPACE)]);
            status["nextWorkspace"] = json!(WORKSPACE);
            answer(status)
        }
        // Request for a single workspace, as sent by commands about one.
        Call::ListWorkspaces(list) if list.project_root.is_some() => vec![],
        Call::ListWorkspaces(list) if list.workspace_id.is_some() => vec![],
        Call::ListWorkspaces(list) => answer(match list.after.as_ref().map(WorkspaceId::as_str) {
            None => json!({"workspaces": [workspace("v")], "next": "v"}),
            Some("v") => json!({"workspaces": [workspace(WORKSPACE)], "next": WORKSPACE}),
            after => {
                assert_eq!(after, Some(WORKSPACE));
                json!({"workspaces": [workspace("x")]})
            }
        }),
        _ => vec![],
    });
    let listed = |args: &[&str], list: &str, field: &str| {
        let json = home.gdn(args).exits(0).json();
        let items = json[list].as_array().unwrap().iter();
        let text = |item: &Value| item[field].as_str().unwrap().to_owned();
        items.map(text).collect::<Vec<_>>()
    };
    let processes = listed(&["ps", "--json"], "processes", "name");
    assert_eq!(processes, ["a", "b", "c", "d"]);
    let events = listed(&["event", "list", "--json"], "events", "eventId");
    assert_eq!(events, ["e1", "e3"]);
    for args in [&["workspace", "list", "--json"], &["status", "--json"][..]] {
        let workspaces = listed(args, "workspaces", "workspaceId");
        assert_eq!(workspaces, ["v", WORKSPACE, "x"], "{args:?}");
    }
}

fn status() -> Value {
    json!({
        "version": Version::current(), "pid": 4711, "startedAt": ago(7800), "stateRoot": "/s",
        "droppedLogLines": 0, "stopping": false, "workspaces": [],
    })
}

#[test]
fn ps_shows_a_table_and_the_same_as_json() {
    let home = Home::new();
    let daemon = home.daemon(|call| match call {
        Call::ListProcesses(_) => answer(json!({"processes": [process()]})),
        _ => vec![],
    });
    let ran = home.gdn(&["ps"]).exits(0);
    assert_eq!(
        ran.stdout,
        "KIND   NAME   CONVERSATION  STATE       PID   UP      MEMORY   SANDBOX  PENDING  CRASHES  DETAIL\n\
         agent  clerk  가나          processing  4711  2h 10m  3.1 MiB  -        1        2\n"
    );
    let json = home.gdn(&["ps", "--json"]).exits(0).json();
    assert_eq!(json["schema"], "gdn.ps/v1");
    assert_eq!(json["processes"][0]["instanceKey"], "가나");
    home.gdn(&["ps", "--all"]).exits(0);
    let workspaces: Vec<_> = daemon
        .calls()
        .into_iter()
        .filter_map(|call| match call {
            Call::ListProcesses(list) => Some(list.workspace_id.map(|id| id.to_string())),
            // Changes that the merge queue holds.
            Call::ListTasks(_) => None,
            other => panic!("{other:?}"),
        })
        .collect();
    let this = Some(WORKSPACE.to_owned());
    assert_eq!(workspaces, [this.clone(), this, None]);
}

#[test]
fn status_shows_the_daemon_and_problems() {
    let home = Home::new();
    let mut workspace = home.workspace();
    workspace["problem"] = json!({"message": "bad edit", "suggestion": "run gdn validate"});
    let state_root = home.state_root();
    let _daemon = home.daemon(move |call| match call {
        Call::Status(_) => answer(json!({
            "version": Version::current(),
            "pid": 4711,
            "startedAt": ago(7800),
            "stateRoot": state_root,
            "droppedLogLines": 3,
            "stopping": false,
            "workspaces": [workspace],
        })),
        _ => vec![],
    });
    let ran = home.gdn(&["status"]).exits(16);
    let ran = ran.tells(&["warning: w1: bad edit", "hint: run gdn validate"]);
    for text in [
        "Daemon    running\nProcess   4711\n",
        "(2h 10m ago)",
        "stdout of the daemon",
        "3 log lines dropped",
        "Observed  0 B",
        "WORKSPACE  PROJECT",
        "problem",
    ] {
        assert!(ran.stdout.contains(text), "no {text:?} in {ran:#?}");
    }
    let json = home.gdn(&["status", "--json"]).exits(16).json();
    assert_eq!(json["schema"], "gdn.status/v1");
    assert_eq!(json["workspaces"][0]["problem"]["message"], "bad edit");
}

pub(crate) fn shown(show: &ShowInstance) -> Value {
    let mut detail = instance();
    let more = json!({
        "instanceKey": show.instance_key,
        "directory": "/state/i",
        "workDir": "/state/w",
        "messages": 12,
        "baseBytes": 2048,
        "pendingEvents": 1,
        "process": process(),
        "extensions": {"notes": {"n": 1}},
    });
    let more = more.as_object().unwrap().clone();
    detail.as_object_mut().unwrap().extend(more);
    detail
}

#[test]
fn instances_are_listed_and_shown() {
    let home = Home::new();
    let mut other = instance();
    other["instanceKey"] = json!("zebra");
    let _daemon = home.daemon(move |call| match call {
        Call::ListInstances(list) => answer(match list.after {
            None => json!({"instances": [instance()], "total": 2, "next": {
                "workspaceId": "w", "instanceKey": "main", "updatedAt": "2026-11-21T00:00:00.000Z",
            }}),
            Some(_) => json!({"instances": [other.clone()], "total": 2}),
        }),
        Call::ShowInstance(show) => answer(shown(show)),
        _ => vec![],
    });
    let ran = home.gdn(&["instance", "list"]).exits(0);
    assert_eq!(
        ran.stdout,
        "CONVERSATION  AGENT  STATUS  CREATED              UPDATED\n\
         main          clerk  idle    2026-11-21 21:06:00  2h 10m ago\n\
         zebra         clerk  idle    2026-11-21 21:06:00  2h 10m ago\n"
    );
    let json = home.gdn(&["instance", "list", "--json"]).exits(0).json();
    assert_eq!(json["schema"], "gdn.instance.list/v1");
    assert_eq!(json["instances"][0]["agentName"], "clerk");

    let ran = home.gdn(&["instance", "show", "../../x"]).exits(0);
    for text in [
        "Conversation  ../../x\n",
        "Messages      12 (2.0 KiB)\n",
        "Pending       1 event\n",
        "Process       processing, pid 4711\n",
        "Extension     notes {\"n\":1}\n",
        "Files         /state/i\n",
    ] {
        assert!(ran.stdout.contains(text), "no {text:?} in {ran:#?}");
    }
    let json = home.gdn(&["instance", "show", "--json"]).exits(0).json();
    assert_eq!(json["schema"], "gdn.instance.show/v1");
    assert_eq!(json["instanceKey"], "main");
}

fn message(id: usize) -> Value {
    json!({
        "id": format!("m{id}"),
        "data": {"role": "user", "content": format!("question {id}")},
        "metadata": {},
        "createdAt": "2026-11-21T21:06:00.000Z",
        "source": {"type": "user"},
    })
}

/// Three pages of two, two and one message, and one pending tool call.
fn page(offset: u64) -> Value {
    let pending = json!([{
        "id": "p",
        "data": {"role": "assistant", "content": [
            {"type": "text", "text": "Looking."},
            {"type": "tool-call", "toolCallId": "c", "toolName": "bash__exec",
             "input": {"command": "ls"}},
        ]},
        "metadata": {},
        "createdAt": "2026-11-21T21:06:01.000Z",
        "source": {"type": "assistant", "stepId": "t.1"},
    }]);
    match offset {
        0 => json!({"messages": [message(1), message(2)], "pending": [], "next": 70}),
        70 => json!({"messages": [message(3), message(4)], "pending": [], "next": 140}),
        140 => json!({"messages": [message(5)], "pending": pending}),
        other => panic!("no page begins at {other}"),
    }
}

/// The same messages read from the end: pages of at most two, with pending messages on two pages.
fn page_before(request: &InstancePage) -> Value {
    let end = request.before.unwrap_or(5);
    let start = end.saturating_sub(request.limit.clamp(1, 2));
    let messages: Vec<Value> = (start + 1..=end)
        .map(|id| message(usize::try_from(id).unwrap()))
        .collect();
    let mut page = json!({"messages": messages, "pending": [], "total": 5});
    if start > 0 {
        page["previous"] = json!(start);
    }
    if request.before.is_none() {
        page["pending"] = self::page(140)["pending"].clone();
        page["next"] = json!(140);
    }
    page
}

#[test]
fn history_reads_every_page() {
    let home = Home::new();
    let _daemon = home.daemon(|call| match call {
        Call::InstanceHistory(history) => answer(page(history.offset)),
        Call::InstancePage(request) => answer(page_before(request)),
        Call::InstanceTurns(_) => answer(failed_turns()),
        Call::ShowInstance(show) => answer(shown(show)),
        _ => vec![],
    });
    let json = home.gdn(&["instance", "history", "--json"]).exits(0).json();
    assert_eq!(json["schema"], "gdn.instance.history/v1");
    let ids: Vec<_> = json["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| &m["id"])
        .collect();
    assert_eq!(ids, ["m1", "m2", "m3", "m4", "m5"]);
    assert_eq!(json["pending"][0]["id"], "p");
    assert_eq!(json["total"], 5);
    let unanswered = &json["unansweredTurns"];
    assert_eq!(
        (&unanswered[0]["outcome"], &unanswered[1]["reason"]),
        (&json!("failed"), &json!("E_MODEL: overloaded"))
    );

    // Nothing before the latest messages is read, and the whole turn in progress is.
    let latest = |limit: &str| {
        let args = ["instance", "history", "--json", "--limit", limit];
        let json = home.gdn(&args).exits(0).json();
        let ids = |of: &str| {
            let messages = json[of].as_array().unwrap().iter();
            let ids: Vec<_> = messages.map(|m| m["id"].as_str().unwrap()).collect();
            ids.join(" ")
        };
        assert_eq!(json["total"], 5);
        (ids("messages"), ids("pending"))
    };
    let pending = "p p".to_owned();
    assert_eq!(latest("0"), (String::new(), pending.clone()));
    assert_eq!(latest("3"), ("m3 m4 m5".to_owned(), pending.clone()));
    assert_eq!(latest("9"), ("m1 m2 m3 m4 m5".to_owned(), pending));

    let ran = home.gdn(&["instance", "history", "--limit", "1"]).exits(0);
    let in_progress = "assistant  2026-11-21 21:06:01  (turn in progress)\n  Looking.\n  \
                       → bash__exec {\"command\":\"ls\"}\n\n";
    assert_eq!(
        ran.stdout.replacen(in_progress, "", 1),
        "(4 earlier messages omitted)\n\n\
         user  2026-11-21 21:06:00\n  question 5\n\n\
         assistant  2026-11-21 21:06:01  (turn in progress)\n  Looking.\n  \
         → bash__exec {\"command\":\"ls\"}\n\n\
         turn failed  2026-11-21 21:07:00\n  \
         are you there?\n  \
         ✗ E_MODEL: overloaded\n"
    );
}

/// A turn that failed before all messages of [`page`], and one after them.
fn failed_turns() -> Value {
    let event = |kind: &str, turn: &str, at: &str, detail: &str| {
        json!({
            "type": kind, "timestamp": at, "traceId": "01".repeat(16), "spanId": "02".repeat(8),
            "agentName": "clerk", "instanceKey": "main", "turnId": turn, "detail": detail,
        })
    };
    let events = [
        event("turn.started", "a", "2026-11-21T21:00:00.000Z", "long ago"),
        event(
            "turn.failed",
            "a",
            "2026-11-21T21:00:01.000Z",
            "E_MODEL: no rule",
        ),
        event(
            "turn.started",
            "b",
            "2026-11-21T21:07:00.000Z",
            "are you there?",
        ),
        event(
            "turn.failed",
            "b",
            "2026-11-21T21:07:01.000Z",
            "E_MODEL: overloaded",
        ),
    ];
    json!({"events": events, "unreadable": 0, "busy": false})
}

#[test]
fn delete_asks_on_a_terminal_and_refuses_without() {
    let home = Home::new();
    let daemon = home.daemon(|call| match call {
        Call::DeleteInstance(delete) => {
            answer(json!({"existed": delete.instance_key.as_str() == "main"}))
        }
        _ => vec![],
    });
    home.gdn(&["instance", "delete", "it's"]).exits(2).tells(&[
        "error: confirmation required: Delete the conversation it's",
        r"hint: pass `--yes`: `gdn conversation delete 'it'\''s' --yes`",
    ]);
    assert_eq!(daemon.calls(), []);
    let ran = home.gdn(&["instance", "delete", "main", "--yes"]).exits(0);
    assert_eq!(ran.stdout, "Deleted conversation main\n");
    let ran = home
        .gdn(&["instance", "delete", "none", "--yes", "--json"])
        .exits(0);
    assert_eq!(ran.json()["existed"], false);
    assert_eq!(daemon.calls().len(), 2);
}

#[test]
fn restart_forwards_its_options_and_confirms_deletion() {
    let home = Home::new();
    let daemon = home.daemon(|call| match call {
        Call::Restart(restart) => {
            let removed = if restart.fresh { vec!["main"] } else { vec![] };
            answer(json!({"processes": 2, "removed": removed}))
        }
        Call::ShowInstance(show) => answer(shown(show)),
        _ => vec![],
    });
    home.gdn(&["restart", "--agent", "clerk", "--fresh"])
        .exits(2)
        .tells(&["`gdn restart --agent clerk --fresh --yes`"]);
    assert_eq!(daemon.calls(), []);
    let ran = home.gdn(&["restart"]).exits(0);
    assert_eq!(
        ran.stdout,
        "Restarting 2 processes, each after its turn in progress.\n"
    );
    let args = [
        "restart",
        "--agent",
        "clerk",
        "--instance",
        "k",
        "--fresh",
        "--yes",
        "--json",
    ];
    let json = home.gdn(&args).exits(0).json();
    assert_eq!(json["schema"], "gdn.restart/v1");
    assert_eq!(json["removed"], json!(["main"]));
    let calls = daemon.calls();
    let Some(Call::Restart(last)) = calls.last() else {
        panic!("{calls:?}")
    };
    assert_eq!(last.agent.as_ref().unwrap().as_str(), "clerk");
    assert_eq!(last.instance_key.as_ref().unwrap().as_str(), "k");
}

#[test]
fn stop_closes_this_projects_workspace_and_workspace_closes_any() {
    let home = Home::new();
    let daemon = home.daemon(|call| match call {
        Call::CloseWorkspace(_) => answer(json!({})),
        _ => vec![],
    });
    let ran = home.gdn(&["stop"]).exits(0).tells(&["gdn run"]);
    assert_eq!(ran.stdout, "Stopped workspace w1\n");
    let json = home
        .gdn(&["workspace", "close", "--workspace", "w1", "--json"])
        .exits(0)
        .json();
    assert_eq!(json["schema"], "gdn.workspace.close/v1");
    assert_eq!(daemon.calls().len(), 2);
    home.gdn(&["stop", "--workspace", "w2"])
        .exits(5)
        .tells(&["gdn workspace list"]);
    let ran = home.gdn(&["workspace", "list"]).exits(0);
    assert!(ran.stdout.starts_with("WORKSPACE  PROJECT"), "{ran:?}");
}

const LINES: [&str; 2] = [
    r#"{"timestamp":"2026-11-21T21:06:00.123Z","level":"info","message":"turn completed","process":"agent","pid":7,"workspaceId":"w1","agentName":"clerk","instanceKey":"main","traceId":"t1"}"#,
    r#"{"timestamp":"2026-11-21T21:06:01.000Z","level":"error","message":"gone","process":"orchestrator","pid":1}"#,
];

#[test]
fn logs_are_shown_for_people_and_passed_on_for_scripts() {
    let home = Home::new();
    let daemon = home.daemon(|call| match call {
        Call::FollowLogs(_) => vec![
            Act::Line(LINES[0]),
            Act::Line(LINES[1]),
            Act::Answer(json!({})),
        ],
        _ => vec![],
    });
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let ran = home
        .gdn(&["logs", "-n", "7", "--agent", "clerk", "--trace", trace])
        .exits(0);
    assert_eq!(
        ran.stdout,
        "2026-11-21 21:06:00.123  INFO   agent clerk/main  turn completed\n\
         2026-11-21 21:06:01.000  ERROR  orchestrator  gone\n"
    );
    let ran = home.gdn(&["logs", "--all", "--json"]).exits(0);
    let lines: Vec<Value> = ran
        .stdout
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    let expected = LINES.map(|line| serde_json::from_str::<Value>(line).unwrap());
    assert_eq!(lines, expected);
    let calls = daemon.calls();
    let [Call::FollowLogs(first), Call::FollowLogs(second)] = calls.as_slice() else {
        panic!("{calls:?}")
    };
    assert_eq!((first.tail, first.follow), (7, false));
    assert_eq!(first.trace_id.unwrap().to_string(), trace);
    assert_eq!(first.workspace_id.as_ref().unwrap().as_str(), WORKSPACE);
    assert_eq!(second.workspace_id, None);
}

#[test]
fn a_log_reader_that_goes_ends_the_command_quietly() {
    let home = Home::new();
    // Endless output: the daemon sends far more than a pipe holds and never replies.
    let _daemon = home.daemon(|call| match call {
        Call::FollowLogs(_) => (0..5_000).map(|_| Act::Line(LINES[0])).collect(),
        _ => vec![],
    });
    let mut gdn = home.command(&["logs", "-f"]).spawn().unwrap();
    drop(gdn.stdout.take());
    let output = gdn.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[test]
fn shutdown_waits_until_the_daemon_is_gone() {
    let home = Home::new();
    let (daemon, pid) = Daemon::mortal(&home.state_root(), |_| vec![]);
    let ran = home.gdn(&["shutdown", "--grace", "7"]).exits(0);
    assert_eq!(ran.stdout, format!("Stopped the daemon, pid {pid}\n"));
    let calls = daemon.calls();
    let [Call::Stop(stop)] = calls.as_slice() else {
        panic!("{calls:?}")
    };
    assert_eq!(stop.grace_period_ms, Some(7_000));
    // A second call succeeds, because the daemon is already gone.
    let ran = home.gdn(&["shutdown"]).exits(0);
    assert_eq!(ran.stdout, "No daemon runs.\n");
    let json = home.gdn(&["shutdown", "--json"]).exits(0).json();
    assert_eq!(json["pid"], Value::Null);
}

#[test]
fn audit_log_is_shown_with_a_note_on_omitted_records() {
    let home = Home::new();
    let daemon = home.daemon(|call| match call {
        Call::ReadAudit(ReadAudit { before, .. }) => answer(json!({
            "records": [
                {"workspaceId": WORKSPACE, "record": {"at": "2026-11-21T21:06:00.000Z",
                 "event": "instance.created", "instanceKey": "main", "agentName": "clerk"}},
            ],
            "previous": before.is_none().then(|| json!({"workspaces": {WORKSPACE: 100}})),
            "unreadable": 2,
        })),
        _ => vec![],
    });
    let ran = home.gdn(&["audit", "-n", "1"]).exits(0);
    let ran = ran.tells(&["earlier records", "warning: 2 lines", "are skipped"]);
    assert_eq!(
        ran.stdout,
        "AT                   EVENT             CONVERSATION  DETAILS\n\
         2026-11-21 21:06:00  instance.created  main          agentName=clerk\n"
    );
    let json = home.gdn(&["audit", "--all", "--json"]).exits(0).json();
    assert_eq!(json["schema"], "gdn.audit/v1");
    assert_eq!(json["records"][0]["record"]["instanceKey"], "main");
    // Both pages of the log.
    let records = json["records"].as_array().unwrap().len();
    assert_eq!(
        (records, &json["earlier"], &json["unreadable"]),
        (2, &json!(false), &json!(4))
    );
    let asked: Vec<_> = daemon
        .calls()
        .into_iter()
        .map(|call| match call {
            Call::ReadAudit(read) => (read.workspace_id.is_some(), read.limit),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        asked,
        [(true, Some(1)), (false, Some(50)), (false, Some(49))]
    );
}

#[test]
fn turns_are_read_over_every_page() {
    let home = Home::new();
    let event = |kind: &str, turn: &str, at: &str| {
        json!({
            "type": kind,
            "timestamp": at,
            "traceId": "4bf92f3577b34da6a3ce929d0e0e4736",
            "spanId": "00f067aa0ba902b7",
            "agentName": "clerk",
            "instanceKey": "main",
            "turnId": turn,
            "eventId": format!("e{turn}"),
        })
    };
    let _daemon = home.daemon(move |call| match call {
        Call::InstanceTurns(turns) if turns.offset == 0 => answer(json!({
            "events": [event("turn.started", "1", "2026-11-21T21:06:00.000Z")],
            "unreadable": 1, "busy": true, "next": 70,
        })),
        Call::InstanceTurns(_) => answer(json!({
            "events": [
                event("turn.completed", "1", "2026-11-21T21:06:02.000Z"),
                event("turn.started", "2", "2026-11-21T21:06:03.000Z"),
            ],
            "unreadable": 0, "busy": true,
        })),
        _ => vec![],
    });
    let args = ["instance", "history", "--turns"];
    let ran = home.gdn(&args).exits(0).tells(&["warning: 1 record"]);
    for text in ["STARTED", "2.0s", "completed", "e1", "in progress", "e2"] {
        assert!(ran.stdout.contains(text), "no {text:?} in {ran:#?}");
    }
    let json = home.gdn(&[&args[..], &["--json", "--limit", "1"]].concat());
    let json = json.exits(0).json();
    assert_eq!(json["schema"], "gdn.instance.turns/v1");
    assert_eq!(
        (&json["total"], &json["unreadable"]),
        (&json!(2), &json!(1))
    );
    assert_eq!(json["turns"][0]["outcome"], "inProgress");
}

#[test]
fn export_file_gets_its_name_only_when_complete() {
    let home = Home::new();
    let position = |offset: u64| {
        json!({"until": 9, "revision": 1, "offset": offset, "skip": 0, "messages": 1,
               "extensions": 0, "damaged": 0, "crc32": 7})
    };
    let daemon = home.daemon(move |call| match call {
        Call::ExportInstance(export) => match (export.instance_key.as_str(), &export.position) {
            (_, None) => answer(json!({"text": "first\n", "messages": 0, "extensions": 0,
                "damaged": 0, "pendingEvents": 2, "next": position(5)})),
            ("broken", Some(_)) => vec![Act::Die],
            (_, Some(_)) => answer(json!({"text": "last\n", "messages": 3, "extensions": 0,
                "damaged": 1, "pendingEvents": 0})),
        },
        _ => vec![],
    });
    let file = home.path().join("a.jsonl");
    let name = file.to_str().unwrap();
    let ran = home.gdn(&["instance", "export", "-o", name]).exits(0);
    let ran = ran.tells(&["2 events waited", "warning: 1 damaged record skipped"]);
    assert_eq!(
        ran.stdout,
        format!("Exported main: 3 messages, 11 B, to {name}\n")
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "first\nlast\n");
    let ran = home.gdn(&["instance", "export"]).exits(0);
    assert_eq!(ran.stdout, "first\nlast\n");

    let asked = daemon.calls().len();
    home.gdn(&["instance", "export", "-o", name]).exits(10);
    assert_eq!(daemon.calls().len(), asked, "nobody was asked in vain");
    let other = home.path().join("b.jsonl");
    let args = [
        "instance",
        "export",
        "broken",
        "-o",
        other.to_str().unwrap(),
    ];
    home.gdn(&args).exits(9);
    assert!(!other.exists());
}
