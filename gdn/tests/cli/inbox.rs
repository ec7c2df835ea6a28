//! `gdn inbox`, `gdn` alone, and former spellings of commands.

use goondan_protocol::approval::ApprovalDecision;
use goondan_protocol::control::{Call, ControlError, ErrorCode};
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::usage::UsageTotal;
use goondan_protocol::version::Version;
use goondan_tests::terminal::Terminal;
use goondan_tests::wait_until;
use serde_json::{Value, json};

use crate::daemon::{Act, Daemon, answer};
use crate::home::{GdnOutput, Home, WORKSPACE};

const APPROVAL: &str = "a-7f3a9c21";

fn approval() -> Value {
    json!({
        "workspaceId": WORKSPACE, "approvalId": APPROVAL, "instanceKey": "main",
        "agentName": "clerk", "turnId": "t", "stepId": "t.1", "toolCallId": "call-1",
        "toolName": "bash__exec", "summary": "{\"command\":\"rm -rf build\"}",
        "askedAt": "2026-11-21T21:06:00.000Z",
    })
}

/// A watch that reports that a call of another workspace was decided.
fn closed_elsewhere() -> Vec<Act> {
    vec![Act::Change(json!({
        "workspaceId": "w2", "cursor": "0000000000000001.1",
        "at": "2026-11-21T21:07:00.000Z",
        "event": {
            "type": "approval.closed", "instanceKey": "main", "approvalId": "a-w2-19",
            "toolName": "bash__exec", "how": "denied by a person",
        },
    }))]
}

/// A daemon where one tool call waits for approval, and whose usage cannot be read.
fn daemon(home: &Home) -> Daemon {
    let workspace = home.workspace();
    let state_root = home.state_root();
    home.daemon(move |call| match call {
        Call::Status(_) => answer(json!({
            "version": Version::current(), "pid": 4711, "startedAt": "2026-11-21T21:06:00.000Z",
            "stateRoot": state_root, "droppedLogLines": 0, "stopping": false,
            "workspaces": [workspace],
        })),
        Call::ListApprovals(_) => answer(json!({ "approvals": [approval()] })),
        Call::ShowApproval(_) => {
            answer(json!({ "approval": approval(), "input": {"command": "rm -rf build"} }))
        }
        Call::DecideApproval(decide) => answer(json!({
            "approvalId": decide.approval_id, "decision": decide.decision,
            "instanceKey": "main", "toolName": "bash__exec",
        })),
        Call::WatchWorkspace(_) => closed_elsewhere(),
        Call::ListProcesses(_) => answer(json!({ "processes": [] })),
        Call::ListQuestions(_) => answer(json!({ "questions": [] })),
        Call::ListUnknownCalls(_) => answer(json!({ "calls": [] })),
        Call::ListTasks(_) => answer(json!({ "tasks": [] })),
        Call::ListProposals(_) => answer(json!({ "proposals": [] })),
        Call::ListWaitingChangesets(_) => answer(json!({ "changesets": [] })),
        Call::ReadUsage(_) => vec![Act::Refuse(ControlError::new(
            ErrorCode::Storage,
            "the ledger cannot be read",
        ))],
        _ => vec![],
    })
}

fn outside(home: &Home, args: &[&str]) -> GdnOutput {
    let mut command = home.command(args);
    command.current_dir(home.path());
    GdnOutput::of(command.output().unwrap())
}

#[test]
fn need_1_the_inbox_shows_what_is_decided_about() {
    let home = Home::new();
    let _daemon = daemon(&home);
    for ran in [home.gdn(&["inbox"]), outside(&home, &["inbox"])] {
        let ran = ran.exits(0);
        for text in [
            "approval a-7f3a9c21\n",
            "w1 · main · from clerk · since 2026-11-21 21:06:00",
            "  bash__exec\n",
            "rm -rf build\n",
            "  Without a decision: the call waits\n",
            "  gdn --workspace w1 inbox approve a-7f3a9c21\n",
            "  gdn --workspace w1 inbox deny a-7f3a9c21 --reason '…'\n",
        ] {
            assert!(ran.stdout.contains(text), "no {text:?} in {ran:#?}");
        }
        ran.tells(&[
            "Incomplete list: the ledger cannot be read\n",
            "1 thing needs you.",
        ]);
    }
    let json = home.gdn(&["inbox", "--json"]).exits(0).json();
    assert_eq!(json["schema"], "gdn.inbox/v1");
    let item = &json["items"][0];
    assert_eq!(item["kind"], "approval");
    assert_eq!(item["default"], "the call waits");
    assert_eq!(item["details"]["input"]["command"], "rm -rf build");
    assert_eq!(json["unreadable"][0], "the ledger cannot be read");
}

#[test]
fn need_1_one_item_is_shown_and_an_unknown_one_names_the_nearest() {
    let home = Home::new();
    let _daemon = daemon(&home);
    let json = home.gdn(&["inbox", "show", APPROVAL, "--json"]).exits(0);
    let json = json.json();
    assert_eq!(json["schema"], "gdn.inbox.show/v1");
    assert_eq!(json["id"], APPROVAL);
    home.gdn(&["inbox", "show", "a-7f3a9c22"]).exits(5).tells(&[
        "error: nothing in the inbox is called `a-7f3a9c22`\n",
        "did you mean `a-7f3a9c21`?",
    ]);
}

#[test]
fn ctl_1_gdn_alone_shows_what_runs_what_waits_and_the_next_command() {
    let home = Home::new();
    let ran = home.gdn(&[]).exits(0);
    assert!(ran.stdout.contains("not running on "), "{ran:#?}");
    assert!(ran.stdout.contains("\nNext: gdn run "), "{ran:#?}");
    let ran = outside(&home, &[]).exits(0);
    assert!(
        ran.stdout.contains("\nNext: gdn init my-swarm "),
        "{ran:#?}"
    );
    let json = outside(&home, &["--json"]).exits(0).json();
    assert_eq!(json["schema"], "gdn.overview/v1");
    assert!(json["daemon"].is_null() && json["project"].is_null());

    let _daemon = daemon(&home);
    for ran in [home.gdn(&[]), outside(&home, &[])] {
        let ran = ran.exits(0);
        for text in [
            "running, pid 4711",
            "w1",
            "1 thing needs you:",
            "\nNext: gdn inbox ",
        ] {
            assert!(ran.stdout.contains(text), "no {text:?} in {ran:#?}");
        }
    }
    let json = home.gdn(&["--json"]).exits(0).json();
    assert_eq!(json["project"]["workspaceId"], WORKSPACE);
    assert_eq!(json["items"][0]["id"], APPROVAL);
    assert_eq!(json["next"], "gdn inbox");
    home.gdn(&["--project", "/nowhere"]).exits(5);
}

#[test]
fn compat_4_former_commands_and_options_are_accepted() {
    let home = Home::new();
    let daemon = daemon(&home);
    let config = home.project().join("goondan.yaml");
    let config = config.to_string_lossy().into_owned();
    let config = config.as_str();
    for args in [
        &["approve", APPROVAL][..],
        &["--json", "approve", APPROVAL],
        &["-q", "--no-color", "inbox", "approve", APPROVAL],
        &["-v", "-c", config, "approve", APPROVAL],
        &["--config", config, "approve", APPROVAL],
    ] {
        home.gdn(args).exits(0);
    }
    let calls = daemon.calls();
    let decided = calls
        .iter()
        .filter(|call| matches!(call, Call::DecideApproval(_)));
    assert_eq!(decided.count(), 5);
    home.gdn(&["shutdwn"])
        .exits(2)
        .tells(&["'daemon shutdown'"]);
    home.gdn(&["-q", "-v", "ps"]).exits(2).tells(&["--quiet"]);
}

/// Goal: `gdn top` lists and decides what `gdn inbox` lists, outside a project, too.
#[test]
fn need_1_top_shows_an_item_and_decides_it_with_its_key() {
    let home = Home::new();
    let daemon = daemon(&home);
    let mut command = home.command(&["top"]);
    command.current_dir(home.path()).env("TERM", "xterm");
    let mut top = Terminal::start(command, 100);
    top.wait_for("approval");
    top.press(b"\r");
    top.wait_for("rm -rf build");
    top.wait_for("y approve");
    let decided = || {
        let calls = daemon.calls();
        let decided = calls.iter().filter_map(|call| match call {
            Call::DecideApproval(decide) => Some((decide.decision, decide.reason.clone())),
            _ => None,
        });
        decided.collect::<Vec<_>>()
    };
    assert_eq!(decided(), []);
    top.press(b"n");
    top.wait_for("Reason (optional)");
    top.press(b"later\r");
    let denied = (ApprovalDecision::Denied, Some("later".to_owned()));
    wait_until("the call is denied", || decided() == [denied.clone()]);
    top.press(b"q");
    assert_eq!(top.ends().0, Some(0));

    for (view, shown) in [("inbox", "bash__exec"), ("processes", "No processes.")] {
        let ran = outside(&home, &["top", "--once", "--view", view]).exits(0);
        assert!(ran.stdout.contains(shown), "{ran:#?}");
    }
    let json = outside(&home, &["top", "--view", "inbox", "--json"]).exits(0);
    assert_eq!(json.json()["inbox"][0]["id"], APPROVAL);
    outside(&home, &["top", "--view", "logs", "--once"])
        .exits(2)
        .tells(&[
            "the view `logs` shows one project",
            "gdn --workspace ID top",
        ]);
}

/// A daemon with two workspaces of 20 waiting tool calls each. A watch reports that one of the second
/// workspace was decided.
fn large_daemon(home: &Home) -> Daemon {
    let workspace = home.workspace();
    let approvals = |id: &str| -> Vec<Value> {
        let one = |n: usize| {
            let mut one = approval();
            one["workspaceId"] = id.into();
            one["approvalId"] = format!("a-{id}-{n:02}").into();
            one
        };
        (0..20).map(one).collect()
    };
    let all = [WORKSPACE, "w2"].map(|id| (id, approvals(id)));
    home.daemon(move |call| {
        let of = |only: &Option<WorkspaceId>| -> Vec<(&'static str, Vec<Value>)> {
            let is_wanted = |id: &str| only.as_ref().is_none_or(|only| only.as_str() == id);
            let wanted = all.iter().filter(|(id, _)| is_wanted(id));
            wanted.cloned().collect()
        };
        match call {
            Call::ListWorkspaces(list) => {
                let listed = of(&list.workspace_id).into_iter().map(|(id, _)| {
                    let mut workspace = workspace.clone();
                    workspace["workspaceId"] = id.into();
                    workspace
                });
                answer(json!({ "workspaces": listed.collect::<Vec<_>>() }))
            }
            Call::ListApprovals(list) => {
                let listed = of(&list.workspace_id)
                    .into_iter()
                    .flat_map(|(_, listed)| listed);
                answer(json!({ "approvals": listed.collect::<Vec<_>>() }))
            }
            Call::ShowApproval(show) => {
                let mut shown = approval();
                shown["approvalId"] = json!(show.approval_id);
                answer(json!({ "approval": shown, "input": {"command": "ls"} }))
            }
            Call::DecideApproval(decide) => answer(json!({
                "approvalId": decide.approval_id, "decision": decide.decision,
                "instanceKey": "main", "toolName": "bash__exec",
            })),
            Call::WatchWorkspace(_) => closed_elsewhere(),
            Call::ListQuestions(_) => answer(json!({ "questions": [] })),
            Call::ListUnknownCalls(_) => answer(json!({ "calls": [] })),
            Call::ListTasks(_) => answer(json!({ "tasks": [] })),
            Call::ListProposals(_) => answer(json!({ "proposals": [] })),
            Call::ListWaitingChangesets(_) => answer(json!({ "changesets": [] })),
            Call::ReadUsage(_) => answer(json!({
                "rows": [], "leftOut": 0, "total": UsageTotal::default(), "unreadable": 0,
                "budgets": [],
            })),
            _ => vec![],
        }
    })
}

/// Goal: the number of requests for a change does not grow with the number of workspaces.
#[test]
fn need_1_a_change_is_read_from_its_own_workspace_only() {
    let home = Home::new();
    let daemon = large_daemon(&home);
    let mut command = home.command(&["inbox"]);
    command.current_dir(home.path()).env("TERM", "xterm");
    let mut inbox = Terminal::start(command, 100);
    inbox.wait_for("40 to decide");
    inbox.wait_for("q quit: ");
    let lists = || -> Vec<Option<String>> {
        let calls = daemon.calls();
        let lists = calls.iter().filter_map(|call| match call {
            Call::ListApprovals(list) => Some(list.workspace_id.as_ref().map(ToString::to_string)),
            _ => None,
        });
        lists.collect()
    };
    let of = |id: &str| Some(id.to_owned());
    wait_until("the change is read", || lists() == [None, of("w2")]);
    inbox.press(b"y");
    inbox.wait_for("Approved a-w1-00.");
    wait_until("its workspace is read again", || {
        lists() == [None, of("w2"), of(WORKSPACE)]
    });
    inbox.wait_for("39 to decide");
    let shown = |call: &Call| matches!(call, Call::ShowApproval(_));
    assert_eq!(daemon.calls().iter().filter(|call| shown(call)).count(), 2);
    inbox.press(b"q");
    assert_eq!(inbox.ends().0, Some(0));
}
