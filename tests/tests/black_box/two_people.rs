//! Tool calls that two people must approve (`NEED-1`): each person counts once, over kills.

use goondan_tests::random::Random;
use goondan_tests::telegram::{BotAction, TOKEN, Telegram};
use goondan_tests::{Daemon, Home, wait_until};
use serde_json::{Value, json};

use crate::approval_buttons::{
    ANN, CHAT, deeds, is_remembered, loses_its_buttons, message_of, notice_for, press,
};
use crate::approvals::{event, id_of, project, runs_of, sent, the_call, waiting};

/// The second user who may decide in the chat.
const BEN: i64 = 9;

/// Number of rounds with simultaneous approvals.
const ROUNDS: u64 = 6;
/// Maximum time from the approvals to the kill of the daemon, in milliseconds.
const MOMENT_MS: u64 = 120;

/// The project of [`crate::approvals`], whose calls need two people.
fn for_two() -> String {
    let rules = "approve: never}]}}";
    let project = project();
    assert!(project.contains(rules), "{project}");
    project.replacen(rules, "approve: never}], otherwise: askTwo}}", 1)
}

fn chat_home(telegram: &Telegram) -> Home {
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
    approvals: {{chat: {CHAT}, users: [{ANN}, {BEN}], agents: [worker]}}
  secrets: {{botToken: {{value: "{TOKEN}"}}}}
"#,
        for_two(),
        telegram.endpoint()
    ))
}

/// Waits until a message shows the first approval and still has its buttons.
fn shows_first_approval(telegram: &Telegram, message: &BotAction, by: &str) {
    wait_until("the first approval in the message", || {
        let edits = deeds(telegram, "editMessageText");
        let mut of_it = edits
            .iter()
            .filter(|edit| edit.params["message_id"] == message.message_id);
        of_it.any(|edit| {
            let text = edit.params["text"].as_str().unwrap();
            text.contains(by) && edit.params.get("reply_markup").is_some()
        })
    });
}

/// Sends the event of a call again and waits for its answer.
fn answer_of(home: &Home, text: &str) -> String {
    let again = ["send", "--instance", "a", "--event-id", &event(text), text];
    home.gdn(&again).exits(0).stdout
}

/// Goal: the first approval survives a kill of the daemon, the same person counts once, and the call
/// runs once after the approval of another person.
/// Method: one user approves, the daemon is killed, the same user approves again, and then another.
#[test]
fn need_1_first_of_two_approvals_survives_a_kill() {
    let telegram = Telegram::start();
    let home = chat_home(&telegram);
    let mut daemon = Daemon::serving(&home);
    let (sending, id) = sent(&home, "a", "run x");
    let message = message_of(&telegram, &id);
    let text = message.params["text"].as_str().unwrap();
    assert!(text.contains("Two people must approve it."), "{text}");
    is_remembered(&home, "telegram", &id);
    let approve = format!("goondan:approve:{id}");

    let first = press(&telegram, ANN, &message, &approve);
    assert_eq!(
        first,
        "Approved, 1 of 2: another person must approve it, too."
    );
    shows_first_approval(&telegram, &message, "1 of 2, by telegram:7");
    drop(daemon.kill());
    drop(sending);
    daemon = Daemon::serving(&home);
    let call = the_call(&home);
    assert_eq!(
        (
            &call["approvalId"],
            &call["needsTwo"],
            &call["firstApproval"]["by"]
        ),
        (&json!(id), &json!(true), &json!("telegram:7"))
    );
    let refused = press(&telegram, ANN, &message, &approve);
    assert!(
        refused.starts_with("Nothing changed: you approved it already (1 of 2)"),
        "{refused}"
    );
    assert_eq!(id_of(&the_call(&home)), id, "it still waits");
    assert_eq!(runs_of(&home, "x"), 0);

    assert_eq!(press(&telegram, BEN, &message, &approve), "Approved.");
    assert!(answer_of(&home, "run x").contains("ran x"));
    assert_eq!(runs_of(&home, "x"), 1);
    loses_its_buttons(&telegram, &message, "approved by telegram:7 and telegram:9");
    let audit = home.gdn_json(&["audit"]).to_string();
    for record in ["instance.callApprovedFirst", "instance.callApproved\""] {
        assert!(audit.contains(record), "{record}: {audit}");
    }
    drop(daemon.stop());
}

/// Goal: all clients count as one person, and options that would bypass the second one are refused.
/// Method: a client approves twice and with options, and a user of the chat decides.
#[test]
fn need_1_clients_count_as_one_of_two_people() {
    let telegram = Telegram::start();
    let home = chat_home(&telegram);
    let _daemon = Daemon::serving(&home);
    let (sending, id) = sent(&home, "a", "run x");
    let message = message_of(&telegram, &id);
    for options in [["--always"].as_slice(), &["--set", "command=true"]] {
        let command = [["approve", &id].as_slice(), options].concat();
        home.gdn(&command)
            .exits(2)
            .tells(&["two people", "inbox deny"]);
    }
    let approved: Value = home.gdn_json(&["approve", &id]);
    assert_eq!(approved["needsAnother"], json!(true), "{approved}");
    home.gdn(&["approve", &id])
        .exits(10)
        .tells(&["(1 of 2)", "another person"]);
    let shown = "1 of 2, by the operator";
    home.gdn(&["approvals", &id]).exits(0).prints(&[shown]);
    home.gdn(&["inbox"]).exits(0).prints(&[shown]);
    shows_first_approval(&telegram, &message, shown);
    assert_eq!(runs_of(&home, "x"), 0);
    let approve = format!("goondan:approve:{id}");
    assert_eq!(press(&telegram, ANN, &message, &approve), "Approved.");
    sending.wait().exits(0).prints(&["ran x"]);
    assert_eq!(runs_of(&home, "x"), 1);

    // One denial is enough, also after an approval.
    let (sending, id) = sent(&home, "a", "run y");
    let message = message_of(&telegram, &id);
    home.gdn(&["approve", &id]).exits(0);
    let denied = press(&telegram, ANN, &message, &format!("goondan:deny:{id}"));
    assert_eq!(denied, "Denied.");
    sending.wait().exits(0).prints(&["E_TOOL_DENIED"]);
    assert_eq!(runs_of(&home, "y"), 0);
    assert!(waiting(&home).is_empty());
}

/// Goal: two people who approve at the same time cause one effect, also if the daemon is killed.
/// Method: two users press at once; in every second round, the daemon is killed at a random time.
/// The users press again until the call runs.
#[test]
fn need_1_two_approvals_at_once_have_one_effect_over_kills() {
    let mut random = Random::announced();
    let telegram = Telegram::start();
    let home = chat_home(&telegram);
    let mut daemon = Daemon::serving(&home);
    for round in 0..ROUNDS {
        let name = format!("r{round}");
        let text = format!("run {name}");
        let (sending, id) = sent(&home, "a", &text);
        let message = message_of(&telegram, &id);
        is_remembered(&home, "telegram", &id);
        let approve = format!("goondan:approve:{id}");
        let place = (CHAT, message.message_id);
        let queries = [ANN, BEN].map(|user| telegram.press(user, place, &approve));
        let is_killed = round % 2 == 1;
        if is_killed {
            random.let_pass(MOMENT_MS);
            drop(daemon.kill());
            daemon = Daemon::serving(&home);
        } else {
            for query in &queries {
                notice_for(&telegram, query);
            }
        }
        drop(sending);
        let mut again = home.start_gdn(&[
            "send",
            "--instance",
            "a",
            "--event-id",
            &event(&text),
            &text,
        ]);
        wait_until("both approvals count", || {
            if let Some(call) = waiting(&home).pop() {
                let by = call["firstApproval"]["by"].as_str();
                for user in [ANN, BEN] {
                    if by != Some(&format!("telegram:{user}")) {
                        telegram.press(user, place, &approve);
                    }
                }
            }
            again.has_ended()
        });
        let answer = again.wait().exits(0).stdout;
        let runs = runs_of(&home, &name);
        assert!(!answer.contains("E_TOOL_DENIED"), "{answer}");
        // A kill between the delivery and the start of the call leaves its outcome unknown.
        let least = usize::from(!is_killed);
        assert!(
            (least..=1).contains(&runs),
            "round {round}: {runs} runs, {answer}"
        );
    }
    assert!(waiting(&home).is_empty());
    drop(daemon.stop());
}
