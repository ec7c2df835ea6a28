//! Agents answer where they received the message, through the connection that holds the token.

use goondan_tests::home::{AGENT, CONNECTOR};
use goondan_tests::processes::{self, Signal};
use goondan_tests::telegram::{TOKEN, Telegram, TelegramFault};
use goondan_tests::{Daemon, Home, wait_until};
use serde_json::{Value, json};

use crate::conversation::{check, result_text, role, text};

/// An agent that calls `export` of `tool` with the text after `say` as its `argument`, and answers
/// with the result. `rules` are further rules, `connection` is the rest of the Connection.
pub(crate) fn project(
    (tool, export, argument): (&str, &str, &str),
    connector: &str,
    rules: &str,
    connection: &str,
) -> String {
    format!(
        r#"
apiVersion: goondan.ai/v1
kind: Model
metadata: {{name: main}}
spec:
  provider: scripted
  options:
    rules:
      - when: {{user: '(?s)say (?P<text>.*)$', step: 1}}
        call: [{{tool: {tool}__{export}, args: {{{argument}: "${{text}}"}}}}]
{rules}
      - when: {{tool: {tool}__{export}}}
        say: "so: ${{result}}"
      - say: "nothing to do"
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {{name: clerk}}
spec:
  modelConfig: {{modelRef: Model/main}}
  tools:
    - {{kind: Tool, name: {tool}, package: "@goondan/base"}}
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {{name: {connector}}}
spec:
  connectorRef: {{kind: Connector, name: {connector}, package: "@goondan/base"}}
{connection}
"#
    )
}

fn telegram_home(telegram: &Telegram, token: &str) -> Home {
    let connection = format!(
        "  config: {{endpoint: \"{}\", pollSeconds: 1, chats: [1, 2, 3], sendTo: [403, 404], reply: \
         never}}\n  secrets: {{botToken: {{value: \"{token}\"}}}}",
        telegram.endpoint()
    );
    let there = "      - when: {user: '^there (?P<chat>\\S+) (?P<text>.*)$', step: 1}
        call: [{tool: telegram__send, args: {text: \"${text}\", chat: \"${chat}\"}}]";
    Home::new(&project(
        ("telegram", "send", "text"),
        "telegram",
        there,
        &connection,
    ))
}

/// Waits until a conversation has this many messages, and returns them.
pub(crate) fn history(home: &Home, key: &str, count: usize) -> Vec<Value> {
    wait_until("the turn is over", || {
        home.ps_agent(key).is_some() && home.history(key).len() == count
    });
    let messages = home.history(key);
    check(&messages);
    messages
}

/// The last result of a tool.
pub(crate) fn last_result(messages: &[Value]) -> &str {
    let mut results = messages
        .iter()
        .rev()
        .filter(|message| role(message) == "tool");
    result_text(results.next().unwrap())
}

#[test]
fn telegram_is_answered_in_its_chat_and_patience_is_kept() {
    let telegram = Telegram::start();
    telegram.have_deeds([TelegramFault::Answer(
        429,
        json!({"ok": false, "description": "Too Many Requests", "parameters": {"retry_after": 1}}),
    )]);
    let home = telegram_home(&telegram, TOKEN);
    let daemon = Daemon::serving(&home);
    telegram.write(2, "say Hello there.");
    let messages = history(&home, "telegram:2", 4);
    assert_eq!(telegram.written_to(2), ["Hello there."]);
    assert_eq!(telegram.impatient(), 0);
    assert!(
        last_result(&messages).contains("\"messages\":[1001]"),
        "{messages:?}"
    );
    // A text that exceeds one message is split into several, in order.
    let long: String = (0..900).map(|n| format!("word{n} ")).collect();
    telegram.write(3, &format!("say {long}"));
    history(&home, "telegram:3", 4);
    let parts = telegram.written_to(3);
    assert!(parts.len() > 1, "{parts:?}");
    assert_eq!(parts.join(" ").trim(), long.trim());
    let log = daemon.stop();
    assert!(!format!("{:?}", log.lines()).contains(TOKEN));
}

#[test]
fn telegram_rejection_is_reported_with_its_reason() {
    let telegram = Telegram::start();
    let home = telegram_home(&telegram, TOKEN);
    let daemon = Daemon::serving(&home);
    for (chat, code, why) in [
        ("404", "E_NOT_FOUND", "chat not found"),
        ("403", "E_REFUSED", "bot was blocked"),
        ("77", "E_REFUSED", "not one of `chats`"),
    ] {
        let reply = home.ask("desk", &format!("there {chat} Hello."));
        assert!(reply.contains(code) && reply.contains(why), "{reply}");
    }
    let said = home.ask("desk", "say Hello.");
    assert!(said.contains("pass `chat`"), "{said}");
    assert!(telegram.deeds().is_empty());
    // A server may have executed a request despite its error: there is no retry.
    telegram.have_deeds([TelegramFault::Answer(
        500,
        json!({"ok": false, "description": "Oh."}),
    )]);
    let answer = home.ask("desk", "there 1 Hello.");
    assert!(
        answer.contains("E_TOOL_INTERRUPTED") && answer.contains("outcome unknown"),
        "{answer}"
    );
    assert!(telegram.deeds().is_empty());
    drop(daemon.stop());
}

#[test]
fn broken_connection_is_reported_to_its_caller() {
    let telegram = Telegram::start();
    let home = telegram_home(&telegram, "1:wrong");
    let daemon = Daemon::serving(&home);
    wait_until("it is reported", || {
        home.ps()
            .iter()
            .any(|process| process["detail"].to_string().contains("(401)"))
    });
    let reply = home.ask("desk", "there 1 Hello.");
    assert!(reply.contains("rejects the bot's token (401)"), "{reply}");
    assert_eq!(home.ask("desk", "and you?"), "nothing to do");
    let log = daemon.stop();
    assert!(!format!("{:?}", log.lines()).contains("1:wrong"));
}

/// Whichever process is killed while a message is in flight, the message is sent once, and the agent
/// receives an unknown outcome.
#[test]
fn msg_13_message_is_sent_once_despite_a_kill_of_any_process() {
    for killed in [CONNECTOR, AGENT, "daemon"] {
        let telegram = Telegram::start();
        telegram.have_deeds([TelegramFault::Hang]);
        let home = telegram_home(&telegram, TOKEN);
        let mut daemon = Daemon::serving(&home);
        telegram.write(1, "say Once.");
        wait_until("it is written", || telegram.written_to(1).len() == 1);
        if killed == "daemon" {
            drop(daemon.kill());
            daemon = Daemon::start(&home);
        } else {
            for process in home.running(killed) {
                processes::signal(process.pid, Signal::SIGKILL);
            }
        }
        let messages = history(&home, "telegram:1", 4);
        let result = last_result(&messages);
        assert!(result.contains("E_TOOL_INTERRUPTED"), "{killed}: {result}");
        assert!(
            text(&messages[3]).contains("E_TOOL_INTERRUPTED"),
            "{killed}"
        );
        // Everything works again.
        telegram.write(1, "say Twice.");
        history(&home, "telegram:1", 8);
        assert_eq!(telegram.written_to(1), ["Once.", "Twice."], "{killed}");
        drop(daemon.stop());
    }
}
