//! `gdn send`.

use std::fs;
use std::process::Stdio;

use goondan_protocol::control::{Call, ControlError, ErrorCode, SendEvent};
use goondan_protocol::limits::MAX_INPUT_BYTES;
use serde_json::{Value, json};

use crate::daemon::{Act, Daemon, answer};
use crate::home::{GdnOutput, Home, WORKSPACE, completed, progress, sent};

fn only_send(daemon: &Daemon) -> SendEvent {
    match daemon.calls().as_slice() {
        [Call::SendEvent(send)] => send.clone(),
        other => panic!("{other:?}"),
    }
}

/// A daemon that completes every turn with the input as reply.
fn echo(home: &Home) -> Daemon {
    home.daemon(|call| match call {
        Call::SendEvent(send) => {
            let outcome = if send.wait {
                completed(&send.input)
            } else {
                Value::Null
            };
            answer(sent(call, &outcome))
        }
        _ => vec![],
    })
}

#[test]
fn images_are_attached_and_others_are_refused_before_sending() {
    let home = Home::new();
    let daemon = echo(&home);
    let file = |name: &str, content: &str| {
        let path = home.path().join(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (gif, text) = (file("a.gif", "GIF8"), file("b.png", "hello"));
    home.gdn(&["send", "--image", &text, "hi"])
        .exits(2)
        .tells(&["is not an image in a supported format"]);
    assert!(daemon.calls().is_empty());
    home.gdn(&["send", "--image", &gif, "hi"]).exits(0);
    let sent = only_send(&daemon);
    assert_eq!(sent.images.len(), 1);
    assert_eq!(sent.images[0].image, "R0lGOA==");
    assert_eq!(sent.images[0].media_type.as_deref(), Some("image/gif"));
}

#[test]
fn the_reply_is_on_stdout_and_the_progress_on_stderr() {
    let home = Home::new();
    let daemon = home.daemon(|call| match call {
        Call::SendEvent(_) => vec![
            progress("turn.started", &json!({})),
            progress("step.started", &json!({"stepId": "t.1"})),
            progress(
                "tool.called",
                &json!({"toolName": "bash__exec", "detail": "ls"}),
            ),
            progress(
                "tool.completed",
                &json!({"toolName": "bash__exec", "durationMs": 12}),
            ),
            Act::Answer(sent(call, &completed("two\nlines \u{1b}[1m"))),
        ],
        _ => vec![],
    });
    let ran = home.gdn(&["send", "How many?"]).exits(0);
    // Byte for byte, because stdout is not a terminal.
    assert_eq!(ran.stdout, "two\nlines \u{1b}[1m\n");
    assert_eq!(
        ran.stderr,
        "step 1\n  → bash__exec  ls\n  ✓ bash__exec  12ms\n"
    );
    let send = only_send(&daemon);
    assert_eq!(send.workspace_id.as_str(), WORKSPACE);
    assert_eq!(send.conversation_key.as_str(), "main");
    assert_eq!((send.agent, send.wait), (None, true));
    assert_eq!(send.input, "How many?");
    assert!(send.event_id.is_some(), "the client makes the event's id");
}

#[test]
fn quiet_and_json_show_no_progress() {
    let home = Home::new();
    let _daemon = home.daemon(|call| match call {
        Call::SendEvent(_) => vec![
            progress("step.started", &json!({"stepId": "t.1"})),
            Act::Answer(sent(call, &completed("done"))),
        ],
        _ => vec![],
    });
    let ran = home.gdn(&["send", "--quiet", "x"]).exits(0);
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("done\n", ""));
    let args = [
        "send",
        "--json",
        "--event-id",
        "e1",
        "--agent",
        "clerk",
        "--instance",
        "k",
        "x",
    ];
    let ran = home.gdn(&args).exits(0);
    assert_eq!(ran.stderr, "");
    assert_eq!(
        ran.json(),
        json!({
            "schema": "gdn.send/v1",
            "eventId": "e1",
            "instanceKey": "k",
            "agent": "clerk",
            "traceId": "01".repeat(16),
            "duplicate": false,
            "outcome": {"status": "completed", "reply": "done"},
        })
    );
}

#[test]
fn a_dash_reads_stdin() {
    let home = Home::new();
    let daemon = echo(&home);
    let ran = home
        .gdn_with_stdin(&["send", "-"], "first\nsecond\n")
        .exits(0);
    assert_eq!(ran.stdout, "first\nsecond\n");
    assert_eq!(only_send(&daemon).input, "first\nsecond");
}

#[test]
fn invalid_messages_are_rejected_before_sending() {
    let home = Home::new();
    let daemon = echo(&home);
    home.gdn(&["send", "  "])
        .exits(2)
        .tells(&["error: the message is empty", "hint: "]);
    let long = "x".repeat(MAX_INPUT_BYTES + 1);
    home.gdn_with_stdin(&["send", "-"], &long)
        .exits(2)
        .tells(&["at most 1048576"]);
    home.gdn(&["send", "--agent", "a/b", "x"])
        .exits(2)
        .tells(&["agent name"]);
    assert_eq!(daemon.calls(), []);
}

#[test]
fn no_wait_prints_how_to_get_the_answer() {
    let home = Home::new();
    let daemon = echo(&home);
    let ran = home
        .gdn(&["send", "--no-wait", "--event-id", "e1", "it's late"])
        .exits(0);
    assert_eq!(
        ran.stdout,
        "Accepted for clerk, conversation main, as event e1\n"
    );
    let again = r"gdn send --event-id e1 'it'\''s late'";
    ran.tells(&[again]);
    assert!(!only_send(&daemon).wait);
}

#[test]
fn a_turn_that_fails_has_a_code_of_its_own() {
    let home = Home::new();
    let _daemon = home.daemon(|call| match call {
        Call::SendEvent(_) => answer(sent(
            call,
            &json!({"status": "failed", "code": "E_MODEL", "message": "no rule matches"}),
        )),
        _ => vec![],
    });
    let ran = home.gdn(&["send", "x"]).exits(7);
    assert_eq!(ran.stdout, "");
    let trace = "01".repeat(16);
    ran.tells(&[
        "error: the turn failed (E_MODEL): no rule matches\n",
        &format!("hint: for details: `gdn logs --trace {trace}`"),
    ]);
    let ran = home.gdn(&["send", "--json", "x"]).exits(7);
    assert_eq!(ran.json()["outcome"]["code"], "E_MODEL");
    let error = ran.error_json();
    assert_eq!(error["schema"], "gdn.error/v1");
    assert_eq!(error["code"], "turnFailed");
    assert_eq!(error["exitCode"], 7);
}

#[test]
fn daemon_death_during_wait_prints_how_to_get_the_answer() {
    let home = Home::new();
    let daemon = home.daemon(|call| match call {
        Call::SendEvent(_) => vec![
            progress("step.started", &json!({"stepId": "t.1"})),
            Act::Die,
        ],
        _ => vec![],
    });
    let ran = home
        .gdn(&["send", "--instance", "order 17", "Where is it?"])
        .exits(9);
    let id = only_send(&daemon).event_id.unwrap();
    let again =
        format!("`gdn run && gdn send --event-id {id} --conversation 'order 17' 'Where is it?'`");
    ran.tells(&[
        "error: the connection to the daemon was lost before the answer arrived",
        "accepted events are answered exactly once",
        &again,
    ]);
    drop(daemon);

    // The same command again, after the daemon is back: the same event, and its reply.
    let daemon = echo(&home);
    let args = [
        "send",
        "--event-id",
        id.as_str(),
        "--instance",
        "order 17",
        "Where is it?",
    ];
    home.gdn(&args).exits(0);
    assert_eq!(only_send(&daemon).event_id, Some(id));
}

#[test]
fn the_hint_repeats_the_options_that_name_the_daemon() {
    let home = Home::new();
    let _daemon = home.daemon(|call| match call {
        Call::SendEvent(_) => vec![Act::Die],
        _ => vec![],
    });
    let state_root = home.state_root();
    let state_root = state_root.to_str().unwrap();
    let mut command = home.command(&["--state-root", state_root, "send", "--project", ".", "x"]);
    command.env_remove("GOONDAN_STATE_ROOT");
    let ran = GdnOutput::of(command.output().unwrap()).exits(9);
    ran.tells(&[&format!("gdn --state-root {state_root} --project . run &&")]);
}

#[test]
fn a_time_limit_gives_up_waiting_not_the_question() {
    let home = Home::new();
    let daemon = home.daemon(|call| match call {
        Call::SendEvent(_) => vec![Act::Silence],
        _ => vec![],
    });
    let ran = home.gdn(&["send", "--timeout", "0", "x"]).exits(11);
    ran.tells(&["error: no answer within 0 s", "gdn send --event-id "]);
    // A limit of 0 seconds may expire before the request is written.
    assert!(daemon.calls().len() <= 1);
}

#[test]
fn ctrl_c_gives_up_waiting_not_the_question() {
    let home = Home::new();
    let daemon = home.daemon(|call| match call {
        Call::SendEvent(_) => vec![
            progress("step.started", &json!({"stepId": "t.1"})),
            Act::Silence,
        ],
        _ => vec![],
    });
    let mut gdn = home
        .command(&["send", "x"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // Once it shows progress, it waits and handles signals.
    let mut stderr = gdn.stderr.take().unwrap();
    let mut seen = Vec::new();
    while !seen.ends_with(b"step 1\n") {
        let mut byte = [0];
        std::io::Read::read_exact(&mut stderr, &mut byte).unwrap();
        seen.extend(byte);
    }
    let pid = nix::unistd::Pid::from_raw(i32::try_from(gdn.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut stderr, &mut rest).unwrap();
    assert_eq!(gdn.wait().unwrap().code(), Some(130));
    let id = only_send(&daemon).event_id.unwrap();
    assert!(rest.contains(&format!("--event-id {id}")), "{rest}");
}

#[test]
fn already_accepted_event_is_reported() {
    let home = Home::new();
    let _daemon = home.daemon(|call| match call {
        Call::SendEvent(_) => {
            let mut sent = sent(call, &completed("same"));
            sent["duplicate"] = json!(true);
            answer(sent)
        }
        _ => vec![],
    });
    let ran = home.gdn(&["send", "--event-id", "e1", "x"]).exits(0);
    assert_eq!(ran.stdout, "same\n");
    ran.tells(&["already accepted"]);
}

#[test]
fn a_refusal_keeps_the_daemons_advice() {
    let home = Home::new();
    let refusals = [
        (ErrorCode::Overloaded, 8),
        (ErrorCode::Stopping, 8),
        (ErrorCode::AgentNotFound, 5),
        (ErrorCode::InstanceKeyTaken, 10),
        (ErrorCode::InvalidConfiguration, 6),
        (ErrorCode::Cancelled, 12),
        (ErrorCode::Internal, 1),
    ];
    for (code, exit) in refusals {
        let _daemon = home.daemon(move |call| match call {
            Call::SendEvent(_) => {
                let error = ControlError::new(code, "no").suggest("do that");
                vec![Act::Refuse(error)]
            }
            _ => vec![],
        });
        home.gdn(&["send", "x"])
            .exits(exit)
            .tells(&["error: no\n", "hint: do that\n"]);
        let error = home.gdn(&["--json", "send", "x"]).exits(exit).error_json();
        assert_eq!(error["retryable"], exit == 8);
    }
}

/// A model that sends text, is called again, calls a tool and replies.
fn streaming(home: &Home) -> Daemon {
    home.daemon(|call| match call {
        Call::SendEvent(_) => vec![
            progress("step.started", &json!({"stepId": "t.1"})),
            Act::Piece(json!({"type": "text", "text": "Lo"})),
            Act::Piece(json!({"type": "again"})),
            Act::Piece(json!({"type": "reasoning", "text": "hm"})),
            Act::Piece(json!({"type": "text", "text": "Let me "})),
            Act::Piece(json!({"type": "text", "text": "look."})),
            progress("tool.called", &json!({"toolName": "bash__exec"})),
            progress("step.started", &json!({"stepId": "t.2"})),
            Act::Piece(json!({"type": "text", "text": "47 "})),
            Act::Piece(json!({"type": "text", "text": "copies."})),
            Act::Answer(sent(call, &completed("47 copies."))),
        ],
        _ => vec![],
    })
}

#[test]
fn pipe_gets_the_reply_once_or_pieces_with_the_stream_option() {
    let home = Home::new();
    let _daemon = streaming(&home);
    let ran = home.gdn(&["send", "How many?"]).exits(0);
    assert_eq!(ran.stdout, "47 copies.\n");
    let ran = home.gdn(&["send", "How many?", "--stream"]).exits(0);
    assert_eq!(ran.stdout, "Lo\nLet me look.\n47 copies.\n");
    assert!(ran.stderr.contains("calling the model again"), "{ran:?}");
}

#[test]
fn json_streams_one_object_for_each_part_and_the_answer_last() {
    let home = Home::new();
    let _daemon = streaming(&home);
    let ran = home
        .gdn(&["send", "How many?", "--stream", "--json"])
        .exits(0);
    let lines: Vec<Value> = ran
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let (answer, pieces) = lines.split_last().unwrap();
    assert_eq!(answer["schema"], "gdn.send/v1");
    assert_eq!(pieces.len(), 7);
    assert!(
        pieces
            .iter()
            .all(|piece| piece["schema"] == "gdn.send.piece/v1")
    );
    assert_eq!(pieces[0]["piece"]["text"], "Lo");
    assert_eq!(pieces[0]["place"]["stepId"], "t.1");
}
