//! The requests of the other tests of Slack, sent to an app of Slack's own framework, and the upload
//! of a file by Slack's own client. Skipped unless [`needs::SLACK_BOLT_VAR`] names their package.

use std::process::{Command, Stdio};
use std::sync::Arc;

use goondan_tests::home::RunningProgram;
use goondan_tests::{needs, wait_until};
use serde_json::{Value, json};

use crate::slack_chats::{SECRET, envelope, message, post_signed, slack_double, to};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/slack-bolt.cjs");

/// A form with a payload, as interactions are sent.
fn form(payload: &Value) -> String {
    let encoded: String = payload
        .to_string()
        .bytes()
        .map(|byte| format!("%{byte:02X}"))
        .collect();
    format!("payload={encoded}")
}

#[test]
fn conn_1_slacks_own_framework_takes_the_requests_of_the_tests() {
    let Some(package) = needs::slack_bolt() else {
        return;
    };
    let slack = slack_double(&Arc::default());
    let mut command = Command::new("node");
    command.arg(SCRIPT).arg(package).arg(SECRET);
    command.arg(format!("{}/", slack.endpoint()));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.stderr(Stdio::piped());
    let app = RunningProgram::start(command);
    app.wait_for_stdout("ready");
    let told = || -> Vec<(String, String)> {
        let lines = app.stdout();
        let lines = lines
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let field = |line: &Value, name: &str| line[name].as_str().unwrap_or_default().to_owned();
        lines
            .map(|line| (field(&line, "kind"), field(&line, "text")))
            .collect()
    };
    let port = &told()[0].1;
    let address = format!("127.0.0.1:{port}").parse().unwrap();

    let mut mention = message("1.5", None, "<@U9> hello");
    mention["type"] = json!("app_mention");
    let events = [message("2.5", Some("1.5"), "and now?"), mention];
    let interaction =
        json!({"team": {"id": "T1"}, "user": {"id": "U1"}, "api_app_id": "A1", "trigger_id": "9"});
    let of = |more: &Value| {
        let mut payload = interaction.clone();
        let fields = payload.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        form(&payload)
    };
    let forms = [
        "team_id=T1&channel_id=C1&user_id=U1&command=%2Fweather&text=94070&trigger_id=13.9"
            .to_owned(),
        of(
            &json!({"type": "block_actions", "channel": {"id": "C1"}, "message": {"ts": "1.5"},
            "actions": [{"action_id": "approve", "block_id": "b", "action_ts": "2.5", "type": "button",
                "value": "yes", "text": {"type": "plain_text", "text": "Approve"}}]}),
        ),
        of(
            &json!({"type": "view_submission", "view": {"id": "V1", "type": "modal", "callback_id": "order",
            "hash": "h", "state": {"values": {"b": {"a": {"type": "plain_text_input", "value": "tea"}}}}}}),
        ),
        of(
            &json!({"type": "message_action", "callback_id": "sum_up", "channel": {"id": "C1"},
            "message": {"ts": "1.5", "text": "Long story."}}),
        ),
    ];
    let bodies = events
        .iter()
        .map(|event| ("application/json", envelope(event)));
    let forms = forms.map(|form| ("application/x-www-form-urlencoded", form));
    for (kind, body) in bodies.chain(forms) {
        let answer = post_signed((address, "/slack/events"), kind, &body);
        assert_eq!(answer.status, 200, "{answer:?} {body}");
    }
    wait_until("all are taken", || told().len() >= 7);
    let expected = [
        ("message", "and now?"),
        ("app_mention", "<@U9> hello"),
        ("command", "94070"),
        ("action", "approve"),
        ("view", "order"),
        ("shortcut", "sum_up"),
    ];
    let expected = expected.map(|(kind, text)| (kind.to_owned(), text.to_owned()));
    assert_eq!(told()[1..], expected);

    // The client uploads a file by the same three requests as the connector.
    let asked = to(&slack, "files.getUploadURLExternal")[0].body.to_string();
    assert!(asked.contains("filename=a.txt&length=7"), "{asked}");
    assert_eq!(to(&slack, "upload/1").len(), 1);
    let completed = to(&slack, "files.completeUploadExternal")[0]
        .body
        .to_string();
    for part in [
        "%22id%22%3A%22F2%22",
        "channel_id=C1",
        "thread_ts=1.5",
        "initial_comment=*Back*",
    ] {
        assert!(completed.contains(part), "{completed}");
    }
}
