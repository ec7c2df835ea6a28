//! `gdn chat` with input from a pipe.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use goondan_protocol::control::{Call, SendEvent};
use serde_json::{Value, json};

use crate::daemon::{Act, Daemon, answer};
use crate::home::{Home, completed, progress, sent};
use crate::look::shown;

fn sends(daemon: &Daemon) -> Vec<SendEvent> {
    let sends = daemon.calls().into_iter();
    let sends = sends.filter_map(|call| match call {
        Call::SendEvent(send) => Some(send),
        _ => None,
    });
    sends.collect()
}

#[test]
fn each_line_is_answered_in_the_same_conversation() {
    let home = Home::new();
    let daemon = home.daemon(|call| match call {
        Call::SendEvent(send) => answer(sent(call, &completed(&format!("re: {}", send.input)))),
        Call::InstancePage(_) => answer(json!({"messages": [], "pending": [], "total": 0})),
        Call::InstanceTurns(_) => answer(json!({"events": [], "unreadable": 0, "busy": false})),
        Call::ShowInstance(show) => answer(shown(show)),
        _ => vec![],
    });
    let lines = "one\n\n/history\n//slash\n/quit\nnever\n";
    let ran = home
        .gdn_with_stdin(&["chat", "--instance", "k"], lines)
        .exits(0);
    assert_eq!(ran.stdout, "re: one\nNo messages yet.\nre: /slash\n");
    let sends = sends(&daemon);
    assert_eq!(sends.len(), 2);
    assert!(
        sends
            .iter()
            .all(|send| send.conversation_key.as_str() == "k")
    );
    assert_ne!(sends[0].event_id, sends[1].event_id);
}

#[test]
fn json_gives_one_object_a_line() {
    let home = Home::new();
    let _daemon = home.daemon(|call| match call {
        Call::SendEvent(send) => answer(sent(call, &completed(&send.input))),
        _ => vec![],
    });
    let ran = home
        .gdn_with_stdin(&["chat", "--json"], "one\ntwo")
        .exits(0);
    let replies: Vec<Value> = ran
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["outcome"]["reply"].take())
        .collect();
    assert_eq!(replies, ["one", "two"]);
}

#[test]
fn failed_turn_does_not_end_the_chat_but_sets_the_exit_code() {
    let home = Home::new();
    let _daemon = home.daemon(|call| match call {
        Call::SendEvent(send) if send.input == "bad" => answer(sent(
            call,
            &json!({"status": "failed", "code": "E_MODEL", "message": "no rule matches"}),
        )),
        Call::SendEvent(_) => answer(sent(call, &completed("fine"))),
        _ => vec![],
    });
    let ran = home.gdn_with_stdin(&["chat"], "bad\ngood\n").exits(7);
    assert_eq!(ran.stdout, "fine\n");
    ran.tells(&["error: the turn failed (E_MODEL)"]);
}

#[test]
fn a_conversation_outlives_the_daemon() {
    let home = Home::new();
    let mut first = home.daemon(|call| match call {
        Call::SendEvent(_) => vec![
            progress("step.started", &json!({"stepId": "t.1"})),
            Act::Die,
        ],
        _ => vec![],
    });
    let mut gdn = home
        .command(&["chat"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = gdn.stdin.take().unwrap();
    writeln!(stdin, "important").unwrap();
    first.wait_for_death();

    // A daemon that dies again, before it replies, and one that replies.
    let mut second = home.daemon(|call| match call {
        Call::SendEvent(_) => vec![Act::Die],
        _ => vec![],
    });
    second.wait_for_death();
    let third = home.daemon(|call| match call {
        Call::SendEvent(send) => answer(sent(call, &completed(&format!("re: {}", send.input)))),
        _ => vec![],
    });
    let mut replies = BufReader::new(gdn.stdout.take().unwrap()).lines();
    assert_eq!(replies.next().unwrap().unwrap(), "re: important");
    writeln!(stdin, "more").unwrap();
    assert_eq!(replies.next().unwrap().unwrap(), "re: more");
    drop(stdin);
    assert_eq!(gdn.wait().unwrap().code(), Some(0));

    let asked = [&first, &second, &third].map(|daemon| sends(daemon)[0].clone());
    assert!(asked[0].event_id.is_some());
    assert_eq!(asked[0], asked[1], "the very same question is asked again");
    assert_eq!(asked[0], asked[2], "the very same question is asked again");
}
