//! Tool calls that wait for a person, decided by buttons in Telegram and Slack (`STEER-3`).

use goondan_tests::home::{AGENT, CONNECTOR, RunningProgram};
use goondan_tests::processes::{self, Signal};
use goondan_tests::provider::{Provider, ProviderResponse, ReceivedRequest};
use goondan_tests::random::Random;
use goondan_tests::telegram::{BotAction, TOKEN, Telegram, TelegramFault};
use goondan_tests::{Daemon, Home, http, wait_for, wait_until};
use hmac::{Hmac, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::approvals::{event, id_of, project, runs_of, sent, the_call, waiting};

pub(crate) const CHAT: i64 = -5;
/// User who may decide in the chat.
pub(crate) const ANN: i64 = 7;
/// User who may not.
const EVE: i64 = 8;

/// Number of rounds; the long form is 500.
const ROUNDS_VAR: &str = "GOONDAN_TEST_DECISION_ROUNDS";
const ROUNDS: u64 = 20;
/// Maximum time from the decisions to the kill of the daemon, in milliseconds.
const MOMENT_MS: u64 = 120;

const SECRET: &str = "a-shared-secret";

fn telegram_home(telegram: &Telegram) -> Home {
    Home::new(&format!(
        r#"{}---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {{name: telegram}}
spec:
  connectorRef: {{kind: Connector, name: telegram, package: "@goondan/base"}}
  config:
    endpoint: "{}"
    pollSeconds: 1
    chats: [1]
    approvals: {{chat: {CHAT}, users: [{ANN}], agents: [worker]}}
  secrets: {{botToken: {{value: "{TOKEN}"}}}}
"#,
        project(),
        telegram.endpoint()
    ))
}

pub(crate) fn deeds(telegram: &Telegram, method: &str) -> Vec<BotAction> {
    let mut deeds = telegram.deeds();
    deeds.retain(|deed| deed.method == method);
    deeds
}

/// The message about a call.
pub(crate) fn message_of(telegram: &Telegram, id: &str) -> BotAction {
    wait_for("it is shown in the chat", || {
        let mut posted = deeds(telegram, "sendMessage").into_iter();
        posted.find(|deed| deed.params["text"].as_str().unwrap().contains(id))
    })
}

/// Message shown to the user who pressed the button.
pub(crate) fn notice_for(telegram: &Telegram, query: &str) -> String {
    wait_for("the notice for the user who pressed", || {
        notice_so_far(telegram, query)
    })
}

/// As [`notice_for`], without waiting.
fn notice_so_far(telegram: &Telegram, query: &str) -> Option<String> {
    let mut answers = deeds(telegram, "answerCallbackQuery").into_iter();
    let answer = answers.find(|deed| deed.params["callback_query_id"] == query)?;
    Some(answer.params["text"].as_str().unwrap().to_owned())
}

pub(crate) fn press(telegram: &Telegram, user: i64, message: &BotAction, data: &str) -> String {
    let query = telegram.press(user, (CHAT, message.message_id), data);
    notice_for(telegram, &query)
}

/// Waits until a message loses its buttons and shows the outcome of its call.
pub(crate) fn loses_its_buttons(telegram: &Telegram, message: &BotAction, how: &str) {
    wait_until("the outcome in the message", || {
        let edits = deeds(telegram, "editMessageText");
        let mut of_it = edits
            .iter()
            .filter(|edit| edit.params["message_id"] == message.message_id);
        of_it.any(|edit| {
            edit.params["chat_id"] == CHAT
                && edit.params.get("reply_markup").is_none()
                && edit.params["text"].as_str().unwrap().contains(how)
        })
    });
}

/// Waits until the connection has recorded that it shows a call.
pub(crate) fn is_remembered(home: &Home, connection: &str, id: &str) {
    let directory = home.workspace_dir().join("connectors");
    wait_until("it is remembered where it is shown", || {
        let entries = std::fs::read_dir(&directory).into_iter().flatten();
        entries.map(|entry| entry.unwrap()).any(|entry| {
            let is_its = entry.file_name().to_string_lossy().contains(connection);
            let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
            is_its && text.contains(id)
        })
    });
}

fn kill(home: &Home, program: &str) {
    for process in home.running(program) {
        processes::signal(process.pid, Signal::SIGKILL);
    }
}

#[test]
fn steer_3_telegram_button_approves_once_and_only_for_allowed() {
    let telegram = Telegram::start();
    let home = telegram_home(&telegram);
    let daemon = Daemon::serving(&home);
    let (sending, id) = sent(&home, "a", "run x");
    let message = message_of(&telegram, &id);
    assert_eq!(message.params["chat_id"], CHAT);
    let text = message.params["text"].as_str().unwrap();
    for shown in ["agent: worker", "conversation: a", "; echo ran x"] {
        assert!(text.contains(shown), "{text}");
    }
    let row = &message.params["reply_markup"]["inline_keyboard"][0];
    let data = |at: usize| row[at]["callback_data"].as_str().unwrap().to_owned();
    let (approve, deny) = (data(0), data(1));

    let refused = press(&telegram, EVE, &message, &approve);
    assert!(refused.contains("user 8 is not in"), "{refused}");
    daemon.log().wait_for("it is logged", |line| {
        line["message"] == "decision of a user in a chat refused"
    });
    // Foreign buttons, and buttons without a call, change nothing.
    let forged = press(&telegram, ANN, &message, "goondan:approve:a-00000000");
    assert_eq!(forged, "Nothing changed: it is no longer pending.");
    telegram.press(ANN, (CHAT, message.message_id), "approve");
    wait_until("it is passed over", || telegram.kept() == 0);
    assert_eq!(id_of(&the_call(&home)), id, "it still waits");
    assert_eq!(runs_of(&home, "x"), 0);

    assert_eq!(press(&telegram, ANN, &message, &approve), "Approved.");
    sending.wait().exits(0).prints(&["ran x"]);
    assert_eq!(runs_of(&home, "x"), 1);
    loses_its_buttons(&telegram, &message, "approved by telegram:7");
    let late = press(&telegram, ANN, &message, &deny);
    assert!(late.starts_with("Nothing changed"), "{late}");
    assert_eq!(runs_of(&home, "x"), 1);
    let audit = home.gdn_json(&["audit"]).to_string();
    assert!(
        audit.contains("instance.callApproved") && audit.contains("telegram:7"),
        "{audit}"
    );

    let (sending, id) = sent(&home, "a", "run y");
    let message = message_of(&telegram, &id);
    let denied = press(&telegram, ANN, &message, &format!("goondan:deny:{id}"));
    assert_eq!(denied, "Denied.");
    sending.wait().exits(0).prints(&["E_TOOL_DENIED"]);
    assert_eq!(runs_of(&home, "y"), 0);
    loses_its_buttons(&telegram, &message, "denied by telegram:7");
    assert_eq!(deeds(&telegram, "sendMessage").len(), 2);
}

#[test]
fn steer_3_old_button_still_decides_after_all_processes_died() {
    let telegram = Telegram::start();
    let home = telegram_home(&telegram);
    let mut daemon = Daemon::serving(&home);
    let (sending, id) = sent(&home, "a", "run x");
    let message = message_of(&telegram, &id);
    is_remembered(&home, "telegram", &id);
    kill(&home, CONNECTOR);
    kill(&home, AGENT);
    drop(daemon.kill());
    drop(sending);
    // The button is pressed while the daemon is down.
    let approve = format!("goondan:approve:{id}");
    let query = telegram.press(ANN, (CHAT, message.message_id), &approve);
    daemon = Daemon::serving(&home);
    let said = notice_for(&telegram, &query);
    let said = match said.as_str() {
        // The conversation was not loaded by then.
        text if text.ends_with("Try again in a moment.") => {
            assert_eq!(id_of(&the_call(&home)), id);
            press(&telegram, ANN, &message, &approve)
        }
        _ => said,
    };
    assert_eq!(said, "Approved.");
    let again = ["send", "--instance", "a", "--event-id", "run-x", "run x"];
    home.gdn(&again).exits(0).prints(&["ran x"]);
    assert_eq!(runs_of(&home, "x"), 1);
    loses_its_buttons(&telegram, &message, "approved by telegram:7");
    assert_eq!(deeds(&telegram, "sendMessage").len(), 1, "it is asked once");
    drop(daemon.stop());
}

#[test]
fn steer_3_decision_elsewhere_removes_buttons_even_after_a_kill() {
    let telegram = Telegram::start();
    let home = telegram_home(&telegram);
    let daemon = Daemon::serving(&home);
    let (sending, id) = sent(&home, "a", "run x");
    let message = message_of(&telegram, &id);
    home.gdn(&["deny", &id, "--reason", "@all not <b>today</b>"])
        .exits(0);
    sending.wait().exits(0);
    loses_its_buttons(&telegram, &message, "denied by a person: @all not");

    // Canceling a turn withdraws its pending calls.
    let (sending, id) = sent(&home, "a", "run y");
    let message = message_of(&telegram, &id);
    home.gdn(&["cancel", "--instance", "a"]).exits(0);
    sending.wait().exits(7);
    loses_its_buttons(&telegram, &message, "withdrawn: the turn is cancelled");

    // While Telegram is down, nothing waits for it, and calls decided meanwhile are no longer
    // shown.
    let unwell = TelegramFault::Answer(
        502,
        json!({"ok": false, "description": "because of the test"}),
    );
    telegram.have_deeds(vec![unwell; 2]);
    let (sending, id) = sent(&home, "a", "run z");
    daemon.log().wait_for("it cannot be shown", |line| {
        line["message"] == "failed to show a waiting decision"
    });
    home.gdn(&["approve", &id]).exits(0);
    sending.wait().exits(0).prints(&["ran z"]);

    // The call is decided while the connector receives no updates.
    telegram.have_deeds([]);
    let (sending, id) = sent(&home, "a", "run w");
    let message = message_of(&telegram, &id);
    is_remembered(&home, "telegram", &id);
    telegram.have_deeds(vec![TelegramFault::Break; 1]);
    home.gdn(&["deny", &id]).exits(0);
    sending.wait().exits(0);
    drop(daemon.kill());
    let _daemon = Daemon::serving(&home);
    loses_its_buttons(&telegram, &message, "");
}

#[test]
fn steer_3_simultaneous_button_and_client_answers_decide_once() {
    let telegram = Telegram::start();
    let home = telegram_home(&telegram);
    let _daemon = Daemon::serving(&home);
    for round in 0..4 {
        let name = format!("r{round}");
        let (sending, id) = sent(&home, "a", &format!("run {name}"));
        let message = message_of(&telegram, &id);
        let (button, command) = match round % 2 {
            0 => ("approve", "deny"),
            _ => ("deny", "approve"),
        };
        let data = format!("goondan:{button}:{id}");
        let query = telegram.press(ANN, (CHAT, message.message_id), &data);
        let client: RunningProgram = home.start_gdn(&["--json", command, &id]);
        let said = notice_for(&telegram, &query);
        let ran = client.wait();
        let by_button = !said.starts_with("Nothing changed");
        let by_client = match ran.code {
            0 => true,
            // Already decided, or even complete by then.
            5 | 10 => false,
            _ => panic!("{ran:?}"),
        };
        assert!(by_button != by_client, "{said}, {ran:?}");
        let is_approved = (button == "approve") == by_button;
        let answer = sending.wait().exits(0).stdout;
        assert_eq!(answer.contains("E_TOOL_DENIED"), !is_approved, "{answer}");
        assert_eq!(runs_of(&home, &name), usize::from(is_approved));
        let by = if by_button { "telegram:7" } else { "a person" };
        loses_its_buttons(&telegram, &message, by);
    }
    assert!(waiting(&home).is_empty());
}

/// Goal: a call is decided once, and clients and chat show the same decision, if several decide at
/// once and the daemon is killed.
/// Method: in each round, two clients and a button decide at once, at random, and the daemon is
/// killed at a random time in every second round. The long form is 500 rounds:
/// `GOONDAN_TEST_DECISION_ROUNDS=500`.
#[test]
fn need_1_two_clients_and_a_chat_at_once_decide_once_over_kills() {
    let mut random = Random::announced();
    let rounds = std::env::var(ROUNDS_VAR).map_or(ROUNDS, |text| text.parse().unwrap());
    let telegram = Telegram::start();
    let home = telegram_home(&telegram);
    let mut daemon = Daemon::serving(&home);
    for round in 0..rounds {
        let name = format!("r{round}");
        let text = format!("run {name}");
        let (sending, id) = sent(&home, "a", &text);
        let message = message_of(&telegram, &id);
        is_remembered(&home, "telegram", &id);
        let mut choice = || match random.below(2) {
            0 => "approve",
            _ => "deny",
        };
        let (first, second, button) = (choice(), choice(), choice());
        let clients = [first, second].map(|command| home.start_gdn(&["--json", command, &id]));
        let data = format!("goondan:{button}:{id}");
        let query = telegram.press(ANN, (CHAT, message.message_id), &data);
        let is_killed = round % 2 == 0;
        if is_killed {
            random.let_pass(MOMENT_MS);
            drop(daemon.kill());
            drop(sending);
            daemon = Daemon::serving(&home);
        }
        let mut decided = Vec::new();
        for client in clients {
            let ran = client.wait();
            match ran.code {
                0 => decided.push(ran.json()["decision"].as_str().unwrap() == "approved"),
                // Decided before, over, or without an answer because the daemon was killed.
                5 | 10 => {}
                _ if is_killed => {}
                _ => panic!("{ran:?}"),
            }
        }
        // The notice is not durable: a kill after the decision loses it.
        let notice = match is_killed {
            true => notice_so_far(&telegram, &query),
            false => Some(notice_for(&telegram, &query)),
        };
        let is_approved = |notice: &str| match notice {
            "Approved." => Some(true),
            "Denied." => Some(false),
            // Another decision was earlier, or the conversation was not loaded yet.
            _ => None,
        };
        decided.extend(notice.as_deref().and_then(is_approved));
        assert!(decided.len() <= 1, "round {round}: {decided:?}");
        // Without a durable decision, the call still waits.
        let again = [
            "send",
            "--instance",
            "a",
            "--event-id",
            &event(&text),
            &text,
        ];
        let sending = home.start_gdn(&again);
        wait_until("the call is decided or waits", || {
            !waiting(&home).is_empty() || has_result_of(&home, &text)
        });
        if !waiting(&home).is_empty() {
            assert!(decided.is_empty(), "round {round}: a decision was lost");
            home.gdn(&["approve", &id]).exits(0);
            decided.push(true);
        }
        let answer = sending.wait().exits(0).stdout;
        let is_denied = answer.contains("E_TOOL_DENIED");
        if let Some(is_approved) = decided.first() {
            assert_eq!(*is_approved, !is_denied, "round {round}: {answer}");
        }
        let runs = runs_of(&home, &name);
        let is_cut_short = answer.contains("E_TOOL_INTERRUPTED");
        assert!(
            runs == usize::from(!is_denied) || (is_cut_short && runs == 0),
            "round {round}: {runs} runs: {answer}"
        );
        // The chat shows the same decision, or only that it is over.
        loses_its_buttons(&telegram, &message, "");
        let late = notice_so_far(&telegram, &query);
        if let Some(is_approved) = late.as_deref().and_then(is_approved) {
            assert_eq!(is_approved, !is_denied, "round {round}: {late:?}");
        }
        let wrong = if is_denied {
            "approved by"
        } else {
            "denied by"
        };
        let edits = deeds(&telegram, "editMessageText");
        let mut of_it = edits
            .iter()
            .filter(|edit| edit.params["message_id"] == message.message_id);
        let is_wrong = |edit: &BotAction| edit.params["text"].as_str().unwrap().contains(wrong);
        assert!(!of_it.any(is_wrong), "round {round}: {edits:?}");
    }
    assert!(waiting(&home).is_empty());
}

/// True if the turn of a text has the result of its call.
fn has_result_of(home: &Home, text: &str) -> bool {
    let messages = home.history("a");
    let asked = messages
        .iter()
        .rposition(|it| it["data"]["role"] == "user" && it["data"]["content"] == text);
    asked.is_some_and(|at| messages[at..].iter().any(|it| it["data"]["role"] == "tool"))
}

fn slack_double() -> Provider {
    let mut posts = 0;
    Provider::start(move |request| match request.path.as_str() {
        "/v1/auth.test" => {
            ProviderResponse::json(&json!({"ok": true, "user": "clerk", "team": "Acme"}))
        }
        "/v1/chat.postMessage" => {
            posts += 1;
            ProviderResponse::json(
                &json!({"ok": true, "channel": "C9", "ts": format!("9.{posts}")}),
            )
        }
        _ => ProviderResponse::json(&json!({"ok": true})),
    })
}

/// Requests whose path ends with this.
fn to(slack: &Provider, end: &str) -> Vec<ReceivedRequest> {
    let mut received = slack.received();
    received.retain(|request| request.path.ends_with(end));
    received
}

/// Presses a button in Slack. Returns the status of the response.
fn press_in_slack(daemon: &Daemon, user: &str, ts: &str, action: &str, id: &str) -> u16 {
    let payload = json!({"type": "block_actions", "team": {"id": "T1"}, "user": {"id": user},
        "channel": {"id": "C9"}, "message": {"ts": ts}, "trigger_id": "9",
        "actions": [{"action_id": action, "action_ts": "2.5", "value": id}]});
    let coded: String = payload
        .to_string()
        .bytes()
        .map(|byte| format!("%{byte:02X}"))
        .collect();
    let body = format!("payload={coded}");
    let time = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let keyed = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    let mac = keyed.chain_update(format!("v0:{time}:{body}")).finalize();
    let signature = format!("v0={}", hex::encode(mac.into_bytes()));
    let headers = [
        ("content-type", "application/x-www-form-urlencoded"),
        ("x-slack-request-timestamp", &time.to_string()),
        ("x-slack-signature", &signature),
    ];
    http::post(daemon.webhook("slack"), "/", &headers, &body)
        .unwrap()
        .status
}

#[test]
fn steer_3_slack_buttons_approve_and_deny_across_a_daemon_kill() {
    let slack = slack_double();
    let home = Home::new(&format!(
        r#"{}---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {{name: slack}}
spec:
  connectorRef: {{kind: Connector, name: slack, package: "@goondan/base"}}
  config: {{endpoint: "{}", channels: [C1], approvals: {{channel: C9, users: [U7]}}}}
  secrets: {{signingSecret: {{value: {SECRET}}}, botToken: {{value: the-good-token}}}}
"#,
        project(),
        slack.endpoint()
    ));
    let daemon = Daemon::serving(&home);
    let posted = |count: usize| -> Value {
        wait_for("it is shown in the channel", || {
            let posts = to(&slack, "/chat.postMessage");
            (posts.len() == count).then(|| posts[count - 1].body.clone())
        })
    };
    let is_notified = |user: &str, text: &str| {
        wait_until("a notice for the user who pressed", || {
            let notices = to(&slack, "/chat.postEphemeral");
            notices.iter().any(|it| {
                it.body["user"] == user && it.body["text"].as_str().unwrap().contains(text)
            })
        });
    };
    let closed = |ts: &str, how: &str| {
        wait_until("the outcome in the message", || {
            let updates = to(&slack, "/chat.update");
            updates.iter().any(|it| {
                let text = it.body["blocks"].to_string();
                it.body["ts"] == ts && text.contains(how) && !text.contains("button")
            })
        });
    };
    let (sending, id) = sent(&home, "a", "run x");
    let message = posted(1);
    assert_eq!(message["channel"], "C9");
    let blocks = message["blocks"].to_string();
    assert!(
        blocks.contains("&gt;&gt;") && blocks.contains("echo ran x"),
        "{blocks}"
    );
    let press = |daemon: &Daemon, user, ts, action, id: &str| {
        assert_eq!(press_in_slack(daemon, user, ts, action, id), 200);
    };
    press(&daemon, "U8", "9.1", "goondan:approve", &id);
    is_notified("U8", "user U8 is not in");
    is_remembered(&home, "slack", &id);
    drop(daemon.kill());
    drop(sending);
    let daemon = Daemon::serving(&home);
    assert_eq!(id_of(&the_call(&home)), id, "it is the same question");
    press(&daemon, "U7", "9.1", "goondan:approve", &id);
    is_notified("U7", "Approved.");
    let again = ["send", "--instance", "a", "--event-id", "run-x", "run x"];
    home.gdn(&again).exits(0).prints(&["ran x"]);
    assert_eq!(runs_of(&home, "x"), 1);
    closed("9.1", "approved by slack:U7");

    let (sending, id) = sent(&home, "a", "run y");
    posted(2);
    press(&daemon, "U7", "9.2", "goondan:deny", &id);
    sending.wait().exits(0).prints(&["E_TOOL_DENIED"]);
    assert_eq!(runs_of(&home, "y"), 0);
    is_notified("U7", "Denied.");
    // The fake does not restart its count with a new daemon.
    closed("9.2", "denied by slack:U7");
    press(&daemon, "U7", "9.2", "goondan:approve", &id);
    is_notified("U7", "Nothing changed");
    assert_eq!(runs_of(&home, "y"), 0);
}
