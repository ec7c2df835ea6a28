//! Telegram in the real daemon, with a fake of its Bot API.

use std::collections::BTreeMap;

use goondan_tests::home::CONNECTOR;
use goondan_tests::processes::{self, Signal};
use goondan_tests::projects::LAB;
use goondan_tests::random::Random;
use goondan_tests::telegram::{BotAction, TOKEN, Telegram, TelegramFault};
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
    wait_until("it is reported", || {
        detail(&home).contains("rejects the bot's token (401)")
    });
    assert_eq!(home.ask("ann", "echo here"), "here");
    assert_eq!(telegram.polls(), 0);
}

/// A bot whose agent answers with fixed texts, and has the tool.
fn answering(telegram: &Telegram, config: &str) -> Home {
    Home::new(&format!(
        r#"
apiVersion: goondan.ai/v1
kind: Model
metadata: {{name: main}}
spec:
  provider: scripted
  options:
    rules:
      - when: {{user: '^long$'}}
        say: "{long}"
      - when: {{user: '^by tool$', step: 1}}
        call: [{{tool: telegram__send, args: {{text: "from the tool"}}}}]
      - when: {{user: '^to (?P<chat>\S+)$', step: 1}}
        call: [{{tool: telegram__send, args: {{text: "elsewhere", chat: "${{chat}}"}}}}]
      - when: {{user: '^file$', step: 1}}
        call: [{{tool: file-system__write, args: {{path: a.txt, content: hello}}}}]
      - when: {{tool: file-system__write}}
        call: [{{tool: telegram__sendFile, args: {{path: a.txt, text: "**see**"}}}}]
      - when: {{user: 'file ID (?P<id>F1)', step: 1}}
        call: [{{tool: telegram__download, args: {{file: "${{id}}", path: got.txt}}}}]
      - when: {{tool: telegram__download}}
        call: [{{tool: file-system__read, args: {{path: got.txt}}}}]
      - when: {{tool: file-system__read}}
        say: "it says: ${{result}}"
      - when: {{user: '(?s)^(?P<text>.*)$'}}
        say: "You said: **${{text}}**"
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {{name: clerk}}
spec:
  modelConfig: {{modelRef: Model/main}}
  tools:
    - {{kind: Tool, name: telegram, package: "@goondan/base"}}
    - {{kind: Tool, name: file-system, package: "@goondan/base"}}
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {{name: telegram}}
spec:
  connectorRef: {{kind: Connector, name: telegram, package: "@goondan/base"}}
  config: {{endpoint: "{}", pollSeconds: 1{config}}}
  secrets: {{botToken: {{value: "{TOKEN}"}}}}
"#,
        telegram.endpoint(),
        long = "word ".repeat(1_500),
    ))
}

fn posted(telegram: &Telegram, count: usize) -> Vec<BotAction> {
    let sent = || {
        let mut deeds = telegram.deeds();
        deeds.retain(|deed| deed.method.starts_with("send"));
        deeds
    };
    wait_until("the messages are posted", || sent().len() >= count);
    sent()
}

#[test]
fn conn_2_telegram_chat_is_answered_by_default_and_once() {
    let telegram = Telegram::start();
    let home = answering(&telegram, "");
    let daemon = Daemon::serving(&home);
    telegram.write(7, "hi_there");
    let sent = posted(&telegram, 1);
    assert_eq!(sent[0].params["chat_id"], 7);
    assert_eq!(sent[0].params["text"], "You said: hi_there");
    let bold = json!([{"type": "bold", "offset": 10, "length": 8}]);
    assert_eq!(sent[0].params["entities"], bold);
    assert_eq!(sent[0].params.get("reply_parameters"), None);
    // If the agent wrote to the chat itself, its reply is not posted.
    telegram.write(7, "by tool");
    telegram.write(7, "end");
    let sent = posted(&telegram, 3);
    assert_eq!(sent[1].params["text"], "from the tool");
    assert_eq!(sent[2].params["text"], "You said: end");
    // A message elsewhere does not replace the reply.
    telegram.write(7, "to 8");
    let sent = posted(&telegram, 5);
    assert_eq!(sent[3].params["text"], "elsewhere");
    assert_eq!(sent[4].params["chat_id"], 7);
    // In a topic of a group, the reply goes to the topic and shows its message.
    telegram.deliver(
        "message",
        &json!({"message_id": 50, "date": 1, "text": "in a topic", "is_topic_message": true,
            "message_thread_id": 40, "chat": {"id": -5, "type": "supergroup", "is_forum": true},
            "from": {"id": 9, "is_bot": false, "first_name": "Ann"}}),
    );
    let sent = posted(&telegram, 6);
    assert_eq!(sent[5].params["message_thread_id"], 40);
    assert_eq!(sent[5].params["reply_parameters"]["message_id"], 50);
    assert_eq!(home.history("telegram:-5:40").len(), 2);
    telegram.write(7, "long");
    let sent = posted(&telegram, 8);
    let whole = format!(
        "{} {}",
        sent[6].params["text"].as_str().unwrap(),
        sent[7].params["text"].as_str().unwrap()
    );
    assert_eq!(whole, "word ".repeat(1_500).trim());
    drop(daemon.stop());
}

#[test]
fn conn_2_telegram_reply_survives_kills_and_rejected_formatting() {
    let telegram = Telegram::start();
    let home = answering(&telegram, "");
    let daemon = Daemon::serving(&home);
    let rejected = json!({"ok": false, "description": "Bad Request: can't parse entities: x"});
    let busy =
        json!({"ok": false, "description": "Too Many Requests", "parameters": {"retry_after": 1}});
    telegram.have_deeds([
        TelegramFault::Answer(429, busy),
        TelegramFault::Answer(400, rejected),
    ]);
    telegram.write(7, "formatted");
    let sent = posted(&telegram, 1);
    assert_eq!(sent[0].params["text"], "You said: formatted");
    assert_eq!(sent[0].params.get("entities"), None);
    // The service is not available until the connector has been killed.
    let down = json!({"ok": false, "description": "Bad Gateway"});
    telegram.have_deeds([TelegramFault::Answer(502, down)]);
    telegram.write(7, "late");
    wait_until("the turn is over", || {
        home.ps_agent("telegram:7").is_some() && home.history("telegram:7").len() == 4
    });
    for process in home.running(CONNECTOR) {
        processes::signal(process.pid, Signal::SIGKILL);
    }
    let sent = posted(&telegram, 2);
    assert_eq!(sent[1].params["text"], "You said: late");
    telegram.write(7, "then");
    let sent = posted(&telegram, 3);
    assert_eq!(sent[2].params["text"], "You said: then");
    drop(daemon.stop());
}

#[test]
fn conn_2_files_travel_both_ways_in_telegram() {
    let telegram = Telegram::start();
    let home = answering(&telegram, "");
    let daemon = Daemon::serving(&home);
    telegram.write(7, "file");
    let sent = posted(&telegram, 1);
    let file = sent.iter().find(|deed| deed.method == "sendDocument");
    let file = &file.unwrap().params;
    assert_eq!(file["document"], "a.txt: hello");
    assert_eq!(file["caption"], "see");
    assert_eq!(file["caption_entities"][0]["type"], "bold");
    // A file does not replace the reply.
    posted(&telegram, 2);
    telegram.deliver(
        "message",
        &json!({"message_id": 60, "date": 1, "chat": {"id": 7, "type": "private"}, "from": {"id": 7},
            "document": {"file_id": "F1", "file_name": "a.txt", "mime_type": "text/plain"}}),
    );
    let sent = posted(&telegram, 3);
    let said = sent[2].params["text"].as_str().unwrap();
    assert!(
        said.starts_with("it says:") && said.contains("hello"),
        "{said}"
    );
    drop(daemon.stop());
}

#[test]
fn conn_1_an_album_of_telegram_is_one_turn() {
    let telegram = Telegram::start();
    let home = answering(&telegram, "");
    let daemon = Daemon::serving(&home);
    let photo = |chat: i64, file: &str, caption: Option<&str>| {
        let mut message = json!({"message_id": 60, "date": 1, "chat": {"id": chat, "type": "private"},
            "from": {"id": chat, "is_bot": false, "first_name": "Ann"}, "media_group_id": "g1",
            "photo": [{"file_id": file, "file_unique_id": file, "width": 90, "height": 90}]});
        if let Some(caption) = caption {
            message["caption"] = json!(caption);
        }
        telegram.deliver("message", &message);
    };
    telegram.write(7, "before");
    photo(7, "P1", Some("two photos"));
    telegram.write(8, "between");
    photo(7, "P2", None);
    telegram.write(7, "after");
    posted(&telegram, 4);
    wait_until("the turns are over", || {
        home.history("telegram:7").len() == 6
    });
    let asked: Vec<String> = home
        .history("telegram:7")
        .iter()
        .filter(|message| role(message) == "user")
        .map(text)
        .collect();
    assert!(asked[0].ends_with("before"), "{asked:?}");
    let album = &asked[1];
    assert!(
        ["two photos", "file ID P1", "file ID P2"]
            .iter()
            .all(|part| album.contains(part)),
        "{album}"
    );
    assert!(asked[2].ends_with("after"), "{asked:?}");
    wait_until("the updates are confirmed", || telegram.kept() == 0);
    drop(daemon.stop());
}

#[test]
fn conn_1_group_that_becomes_a_supergroup_continues() {
    let telegram = Telegram::start();
    let home = answering(&telegram, ", chats: [-100]");
    let mut daemon = Daemon::serving(&home);
    let from = |chat: i64, fields: serde_json::Value| {
        let mut message = json!({"message_id": 5, "date": 1, "chat": {"id": chat, "type": "group"},
            "from": {"id": 9, "is_bot": false, "first_name": "Ann"}});
        let all = message.as_object_mut().unwrap();
        all.extend(fields.as_object().unwrap().clone());
        telegram.deliver("message", &message);
    };
    from(-100, json!({"text": "before"}));
    posted(&telegram, 1);
    from(-100, json!({"migrate_to_chat_id": -1_001_234}));
    from(-1_001_234, json!({"text": "after"}));
    from(-1_001_234, json!({"text": "to -100"}));
    from(-9, json!({"text": "foreign"}));
    // The message to the former ID goes to the new one, where it replaces the reply.
    let sent = posted(&telegram, 3);
    let chats: Vec<i64> = sent
        .iter()
        .map(|deed| deed.params["chat_id"].as_i64().unwrap())
        .collect();
    assert_eq!(chats, [-100, -1_001_234, -1_001_234], "{sent:?}");
    assert_eq!(sent[2].params["text"], "elsewhere");
    wait_until(
        "the status has the change, and counts the foreign message",
        || {
            let ps = home.gdn(&["ps"]).stdout;
            ps.contains("chat -100 is now -1001234") && ps.contains("ignored 1")
        },
    );
    // The change is known after a restart.
    drop(daemon.kill());
    daemon = Daemon::start(&home);
    from(-1_001_234, json!({"text": "again"}));
    let sent = posted(&telegram, 4);
    assert_eq!(sent[3].params["text"], "You said: again");
    assert_eq!(sent[3].params["chat_id"], -1_001_234);
    let asked: Vec<String> = home
        .history("telegram:-100")
        .iter()
        .filter(|message| role(message) == "user")
        .map(text)
        .collect();
    let expected = ["before", "after", "to -100", "again"];
    assert_eq!(
        asked,
        expected.map(|text| format!("[Telegram · Ann (id 9)]\n{text}"))
    );
    drop(daemon.stop());
}

#[test]
fn conn_2_reaction_to_the_bot_reaches_the_conversation_after_a_restart() {
    let telegram = Telegram::start();
    let home = answering(&telegram, ", reactions: true, joinRequests: true");
    let mut daemon = Daemon::serving(&home);
    let chat = json!({"id": -5, "type": "supergroup", "is_forum": true});
    let in_topic = |number: i64, text: &str| {
        telegram.deliver(
            "message",
            &json!({"message_id": number, "date": 1, "text": text, "is_topic_message": true,
                "message_thread_id": 40, "chat": chat,
                "from": {"id": 9, "is_bot": false, "first_name": "Ann"}}),
        );
    };
    in_topic(50, "one");
    posted(&telegram, 1);
    // Replies of a topic are posted in order, so the first one is recorded before the second.
    in_topic(51, "two");
    let sent = posted(&telegram, 2);
    let mut expected = vec![
        "message",
        "edited_message",
        "channel_post",
        "edited_channel_post",
    ];
    expected.extend([
        "message_reaction",
        "message_reaction_count",
        "chat_join_request",
    ]);
    assert_eq!(telegram.allowed(), expected);
    drop(daemon.kill());
    daemon = Daemon::start(&home);
    let react = |message: &serde_json::Value| {
        telegram.deliver(
            "message_reaction",
            &json!({"chat": chat, "message_id": message, "date": 2,
                "user": {"id": 9, "is_bot": false, "first_name": "Ann"}, "old_reaction": [],
                "new_reaction": [{"type": "emoji", "emoji": "👍"}]}),
        );
    };
    // The message of a person.
    react(&json!(50));
    react(&json!(sent[0].message_id));
    // Not requested.
    telegram.deliver(
        "poll",
        &json!({"id": "p", "question": "Tea?", "options": []}),
    );
    wait_until("the updates are fetched", || telegram.kept() == 0);
    wait_until("the reaction is in the conversation", || {
        let ps = home.gdn(&["ps"]).stdout;
        home.history("telegram:-5:40").len() == 6 && ps.contains("ignored 1")
    });
    let messages = home.history("telegram:-5:40");
    let asked: Vec<String> = messages
        .iter()
        .filter(|message| role(message) == "user")
        .map(text)
        .collect();
    assert!(
        asked[2].ends_with("[Ann reacted with 👍 to your message \"You said: one\"]"),
        "{asked:?}"
    );
    // A reaction is not a message, so the reply to it is not posted.
    in_topic(52, "three");
    let texts = || -> Vec<String> {
        let sent = posted(&telegram, 3);
        let texts = sent.iter().map(|it| it.params["text"].to_string());
        texts.collect()
    };
    // The reply before the kill may be there twice.
    wait_until("the reply is posted", || {
        texts().iter().any(|text| text.contains("You said: three"))
    });
    assert!(
        !texts().iter().any(|text| text.contains("reacted")),
        "{:?}",
        texts()
    );
    drop(daemon.stop());
}
