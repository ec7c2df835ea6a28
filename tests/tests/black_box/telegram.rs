//! Telegram in the real daemon, with a fake of its Bot API.

use std::collections::BTreeMap;

use goondan_tests::home::CONNECTOR;
use goondan_tests::processes::{self, Signal};
use goondan_tests::projects::LAB;
use goondan_tests::random::Random;
use goondan_tests::telegram::{TOKEN, Telegram, TelegramFault};
use goondan_tests::{Daemon, Home, wait_until};
use serde_json::json;

use crate::conversation::{check, role, text};

fn home(telegram: &Telegram, token: &str) -> Home {
    Home::new(&format!(
        r#"{LAB}---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {{name: telegram}}
spec:
  connectorRef: {{kind: Connector, name: telegram, package: "@goondan/base"}}
  config: {{endpoint: "{}", pollSeconds: 1, chats: [1, 2, 3]}}
  secrets: {{botToken: {{value: "{token}"}}}}
  header: none
"#,
        telegram.endpoint()
    ))
}

fn detail(home: &Home) -> String {
    let mut processes = home.ps().into_iter();
    let shown =
        processes.find(|process| process["role"] == "connector" && process["name"] == "telegram");
    let detail = shown
        .as_ref()
        .and_then(|process| process["detail"].as_str());
    detail.unwrap_or_default().to_owned()
}

#[test]
fn msg_13_no_update_is_lost_or_repeated_despite_kills() {
    let telegram = Telegram::start();
    let home = home(&telegram, TOKEN);
    let mut random = Random::announced();
    let mut daemon = Daemon::serving(&home);
    let mut said: BTreeMap<i64, Vec<String>> = BTreeMap::new();
    for number in 0..60 {
        let chat = 1 + i64::try_from(random.below(3)).unwrap();
        let text = format!("echo {number}");
        telegram.write(chat, &text);
        said.entry(chat).or_default().push(text);
        // No agent receives messages of this chat.
        telegram.write(4, "echo nobody");
        match number % 15 {
            7 => {
                for process in home.running(CONNECTOR) {
                    processes::signal(process.pid, Signal::SIGKILL);
                }
            }
            14 => {
                drop(daemon.kill());
                daemon = Daemon::start(&home);
            }
            _ => {}
        }
    }
    wait_until("Telegram has nothing left", || telegram.kept() == 0);
    for (chat, said) in said {
        let key = format!("telegram:{chat}");
        wait_until("all are answered", || {
            home.history(&key).len() == 2 * said.len()
        });
        let messages = home.history(&key);
        check(&messages);
        let asked = messages.iter().filter(|message| role(message) == "user");
        assert_eq!(asked.map(text).collect::<Vec<_>>(), said);
    }
    let instances = home.gdn_json(&["instance", "list"]).to_string();
    assert!(!instances.contains("telegram:4"), "{instances}");
    drop(daemon.stop());
}

#[test]
fn trouble_with_telegram_is_shown_and_passes() {
    let telegram = Telegram::start();
    let answer = |status: u16, more: serde_json::Value| {
        let mut body = json!({"ok": false, "description": "because of the test"});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        TelegramFault::Answer(status, body)
    };
    let home = home(&telegram, TOKEN);
    let daemon = Daemon::serving(&home);
    wait_until("it listens", || detail(&home) == "listening as @double_bot");
    for (mishap, said) in [
        (answer(409, json!({})), "another client polls this bot"),
        (
            answer(429, json!({"parameters": {"retry_after": 1}})),
            "requests a pause of 1 s",
        ),
        (answer(502, json!({})), "Telegram answered 502"),
        (TelegramFault::Break, "failed to connect to Telegram"),
    ] {
        telegram.have([mishap]);
        daemon.log().wait_for(said, |line| {
            line["message"] == "connector not ready"
                && line["detail"]
                    .as_str()
                    .is_some_and(|detail| detail.contains(said))
        });
        wait_until("it listens again", || {
            detail(&home) == "listening as @double_bot"
        });
    }
    telegram.write(1, "echo still here");
    wait_until("it is answered", || {
        home.ps_agent("telegram:1").is_some() && home.history("telegram:1").len() == 2
    });
    let log = daemon.stop();
    let log = format!("{:?}", log.lines());
    assert!(!log.contains(TOKEN), "the token is in the log");
}

#[test]
fn rejected_bot_token_is_reported_and_disturbs_no_other_part() {
    let telegram = Telegram::start();
    let home = home(&telegram, "1:wrong");
    let _daemon = Daemon::serving(&home);
    wait_until("it is told", || {
        detail(&home).contains("rejects the bot's token (401)")
    });
    assert_eq!(home.ask("ann", "echo here"), "here");
    assert_eq!(telegram.polls(), 0);
}
