//! The fake of Telegram that the other tests use, with a client of its own: grammY, a framework for
//! bots. Skipped unless [`needs::GRAMMY_VAR`] names its package.

use std::process::{Command, Stdio};

use goondan_tests::home::RunningProgram;
use goondan_tests::telegram::{TOKEN, Telegram};
use goondan_tests::{needs, wait_until};
use serde_json::{Value, json};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/grammy.cjs");

#[test]
fn conn_2_bot_of_a_framework_works_at_the_fake_of_telegram() {
    let Some(package) = needs::grammy() else {
        return;
    };
    let telegram = Telegram::start();
    telegram.write(7, "hello");
    let ann = json!({"id": 9, "is_bot": false, "first_name": "Ann"});
    telegram.deliver(
        "message_reaction",
        &json!({"chat": {"id": 7, "type": "private"}, "message_id": 1001, "date": 2, "user": ann,
            "old_reaction": [], "new_reaction": [{"type": "emoji", "emoji": "👍"}]}),
    );
    // The bot does not request it.
    telegram.deliver(
        "poll",
        &json!({"id": "p", "question": "Tea?", "options": []}),
    );
    let query = telegram.press(9, (7, 1001), "yes");
    let mut command = Command::new("node");
    command.arg(SCRIPT).arg(package).arg(TOKEN);
    command.arg(telegram.endpoint());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.stderr(Stdio::piped());
    let bot = RunningProgram::start(command);
    let told = || -> Vec<(String, String)> {
        let lines = bot.stdout();
        let lines = lines
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let field = |line: &Value, name: &str| line[name].as_str().unwrap_or_default().to_owned();
        lines
            .map(|line| (field(&line, "kind"), field(&line, "text")))
            .collect()
    };
    let expected = [
        ("sent", "1001 7 Hi **there**"),
        ("edited", "1001"),
        ("reacted", "true"),
        ("typing", "true"),
        ("document", "1005"),
        ("deleted", "true"),
        ("file", "\"hello\""),
        ("error", "400 Bad Request: chat not found {}"),
        ("error", "400 Bad Request: message is too long {}"),
        ("ready", "double_bot"),
        ("message", "7 7 hello"),
        ("reaction", "1001 👍"),
        ("button", "yes"),
    ];
    let expected = expected.map(|(kind, text)| (kind.to_owned(), text.to_owned()));
    bot.wait_for_stdout(r#""button","text":"yes"}"#);
    assert_eq!(told(), expected);
    wait_until("the updates are confirmed", || telegram.kept() == 0);

    // The framework sends the same requests as the connector.
    let deeds = telegram.deeds();
    let params = |method: &str| {
        let deed = deeds.iter().find(|deed| deed.method == method);
        deed.unwrap_or_else(|| panic!("no {method}: {deeds:?}"))
            .params
            .clone()
    };
    assert_eq!(params("sendMessage")["entities"][0]["type"], "bold");
    assert_eq!(params("editMessageText")["text"], "Hello");
    let reaction = json!([{"type": "emoji", "emoji": "👍"}]);
    assert_eq!(params("setMessageReaction")["reaction"], reaction);
    assert_eq!(params("sendDocument")["document"], "a.txt: \"hello\"");
    assert_eq!(params("sendDocument")["caption_entities"][0]["length"], 2);
    assert_eq!(params("deleteMessage")["message_id"], 1001);
    assert_eq!(params("answerCallbackQuery")["callback_query_id"], query);
}
