//! Events of connectors with their names and properties of 0.0.3 (`COMPAT-1`).

use ed25519_dalek::{Signer as _, SigningKey};
use goondan_tests::log::message;
use goondan_tests::provider::{Provider, ProviderResponse};
use goondan_tests::telegram::{TOKEN, Telegram};
use goondan_tests::{Daemon, Home, http, needs, wait_until};
use hmac::{Hmac, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

const SECRET: &str = "a-shared-secret";

/// A bundle for the older package with one connection, each rule of which matches one event with
/// its properties.
fn bundle(connection: &str, rules: &[(&str, &str)]) -> String {
    let rules: String = rules
        .iter()
        .map(|(event, properties)| {
            format!(
                "      - match: {{event: {event}, properties: {{{properties}}}}}\n        \
                 route: {{agentRef: Agent/clerk, instanceKey: {event}}}\n"
            )
        })
        .collect();
    format!(
        "apiVersion: goondan.ai/v1\nkind: Package\nmetadata: {{name: '@acme/events'}}\nspec:\n  dependencies:\n    \
         - {{name: '@goondan/base', version: ^0.0.3}}\n---\n\
         apiVersion: goondan.ai/v1\nkind: Model\nmetadata: {{name: main}}\nspec: {{provider: scripted, options: \
         {{rules: [{{say: 'You said: ${{input}}'}}]}}}}\n---\n\
         apiVersion: goondan.ai/v1\nkind: Agent\nmetadata: {{name: clerk}}\nspec: {{modelConfig: {{modelRef: \
         Model/main}}}}\n---\n\
         apiVersion: goondan.ai/v1\nkind: Swarm\nmetadata: {{name: desk}}\nspec: {{entryAgent: Agent/clerk, agents: \
         [{{ref: Agent/clerk}}]}}\n---\n\
         apiVersion: goondan.ai/v1\nkind: Connection\nmetadata: {{name: outside}}\nspec:\n{connection}  \
         ingress:\n    rules:\n{rules}"
    )
}

/// Waits until the clerk received this text in the conversation of the event's rule.
#[track_caller]
fn is_told(home: &Home, event: &str, text: &str) {
    let has = || {
        let output = home.gdn(&["instance", "history", "--json", event]);
        output.stdout.contains(text) && output.stdout.contains("You said: ")
    };
    wait_until(&format!("`{event}` was answered"), has);
}

fn hmac_of(text: &str) -> String {
    let keyed = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    hex::encode(keyed.chain_update(text).finalize().into_bytes())
}

fn now_s() -> String {
    std::time::UNIX_EPOCH
        .elapsed()
        .unwrap()
        .as_secs()
        .to_string()
}

fn telegram_connection(telegram: &Telegram) -> String {
    format!(
        "  connectorRef: {{kind: Connector, name: telegram-polling, package: '@goondan/base'}}\n  config: \
         {{TELEGRAM_API_BASE_URL: '{}'}}\n  secrets: {{TELEGRAM_BOT_TOKEN: {{value: '{TOKEN}'}}}}\n",
        telegram.endpoint()
    )
}

#[test]
fn compat_1_files_of_telegram_have_markers_in_the_text() {
    let telegram = Telegram::start();
    let connection = telegram_connection(&telegram);
    let home = Home::new(&bundle(
        &connection,
        &[("telegram_message", "chat_id: '5'")],
    ));
    let _daemon = Daemon::serving(&home);
    telegram.deliver(
        "message",
        &json!({"message_id": 1, "date": 1, "chat": {"id": 5, "type": "private"},
            "from": {"id": 5, "is_bot": false}, "caption": "look at this",
            "photo": [{"file_id": "F1", "width": 9, "height": 9}]}),
    );
    is_told(&home, "telegram_message", "look at this");
    is_told(&home, "telegram_message", "[telegram_photo] file_id=F1");
}

#[test]
fn compat_1_a_message_of_telegram_has_the_properties_it_had() {
    let telegram = Telegram::start();
    let connection = telegram_connection(&telegram);
    let properties = "update_id: '1', chat_id: '5', chat_type: private, message_id: '1', date: '1', from_id: '5'";
    let home = Home::new(&bundle(&connection, &[("telegram_message", properties)]));
    let _daemon = Daemon::serving(&home);
    telegram.write(5, "hello there");
    is_told(&home, "telegram_message", "hello there");
}

#[test]
fn compat_1_events_of_slack_have_the_properties_they_had() {
    let slack = Provider::start(|_| ProviderResponse::json(&json!({"ok": true})));
    let connection = format!(
        "  connectorRef: Connector/slack\n  config: {{SLACK_WEBHOOK_PORT: {{value: '0'}}, SLACK_API_BASE_URL: \
         '{}'}}\n  secrets: {{SLACK_BOT_TOKEN: {{value: t}}}}\n  verify: {{webhook: {{signingSecret: {{value: \
         {SECRET}}}}}}}\n",
        slack.endpoint()
    );
    let rules = [
        (
            "app_mention",
            "channel_id: C1, ts: '1.5', thread_ts: '1.0', user_id: U1",
        ),
        ("message_im", "channel_id: D1, ts: '2.5', user_id: U1"),
    ];
    let home = Home::new(&bundle(&connection, &rules));
    let daemon = Daemon::serving(&home);
    let post = |event: &Value| {
        let body = json!({"type": "event_callback", "team_id": "T1", "event_id": event["ts"], "event": event});
        let (body, time) = (body.to_string(), now_s());
        let signature = format!("v0={}", hmac_of(&format!("v0:{time}:{body}")));
        let headers = [
            ("x-slack-request-timestamp", time.as_str()),
            ("x-slack-signature", signature.as_str()),
        ];
        let answer = http::post(daemon.webhook("outside"), "/", &headers, &body).unwrap();
        assert_eq!(answer.status, 202, "{answer:?}");
    };
    post(
        &json!({"type": "app_mention", "channel": "C1", "user": "U1", "ts": "1.5", "thread_ts": "1.0",
        "text": "<@U9> hello there"}),
    );
    post(
        &json!({"type": "message", "channel_type": "im", "channel": "D1", "user": "U1", "ts": "2.5",
        "text": "between us", "files": [{"id": "F1", "name": "a.png", "filetype": "png",
            "url_private": "https://files.slack.com/a.png"}]}),
    );
    is_told(&home, "app_mention", "hello there");
    is_told(&home, "message_im", "between us");
    is_told(
        &home,
        "message_im",
        "[image:a.png] https://files.slack.com/a.png",
    );
}

#[test]
fn compat_1_events_of_github_have_the_properties_they_had() {
    let connection = format!(
        "  connectorRef: Connector/github\n  config: {{PORT: {{value: '0'}}}}\n  verify: {{webhook: {{signingSecret: \
         {{value: {SECRET}}}}}}}\n"
    );
    let rules = [
        (
            "github_push",
            "repo: acme/shop, ref: refs/heads/main, sender: ann",
        ),
        (
            "github_pull_request",
            "repo: acme/shop, action: opened, number: 7, sender: ann",
        ),
        (
            "github_issue",
            "repo: acme/shop, action: opened, number: 8, sender: ann",
        ),
        (
            "github_issue_comment",
            "repo: acme/shop, action: created, number: 8, sender: ann",
        ),
    ];
    let home = Home::new(&bundle(&connection, &rules));
    let daemon = Daemon::serving(&home);
    let deliver = |name: &str, more: Value| {
        let mut body = json!({"repository": {"full_name": "acme/shop"}, "sender": {"login": "ann", "type": "User"}});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let body = body.to_string();
        let signature = format!("sha256={}", hmac_of(&body));
        let headers = [
            ("x-github-event", name),
            ("x-github-delivery", name),
            ("x-hub-signature-256", signature.as_str()),
        ];
        let answer = http::post(daemon.webhook("outside"), "/", &headers, &body).unwrap();
        assert_eq!(answer.status, 202, "{name}: {answer:?}");
    };
    deliver(
        "push",
        json!({"ref": "refs/heads/main", "commits": [], "head_commit": {"message": "it pushes"}}),
    );
    deliver(
        "pull_request",
        json!({"action": "opened", "number": 7, "pull_request": {"number": 7, "title": "it pulls"}}),
    );
    deliver(
        "issues",
        json!({"action": "opened", "issue": {"number": 8, "title": "it breaks"}}),
    );
    deliver(
        "issue_comment",
        json!({"action": "created", "issue": {"number": 8, "title": "it breaks"},
        "comment": {"id": 1, "body": "it works"}}),
    );
    for (event, _) in rules {
        is_told(&home, event, "acme/shop");
    }
}

#[test]
fn compat_1_events_of_discord_have_the_properties_they_had() {
    let key = SigningKey::from_bytes(&[7; 32]);
    let public = hex::encode(key.verifying_key().to_bytes());
    let connection = format!(
        "  connectorRef: Connector/discord\n  config: {{PORT: {{value: '0'}}, DISCORD_PUBLIC_KEY: {public}}}\n"
    );
    let rules = [
        (
            "slash_command",
            "interaction_id: '1', channel_id: '12', guild_id: '3', command_name: ask, user_id: u",
        ),
        (
            "component_interaction",
            "interaction_id: '2', channel_id: '12', custom_id: yes-please, user_id: u",
        ),
    ];
    let home = Home::new(&bundle(&connection, &rules));
    let daemon = Daemon::serving(&home);
    let post = |more: Value| {
        let mut body = json!({"application_id": "app", "token": "t", "channel_id": "12", "guild_id": "3",
            "member": {"user": {"id": "u"}}});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let (body, time) = (body.to_string(), now_s());
        let signature = hex::encode(key.sign(format!("{time}{body}").as_bytes()).to_bytes());
        let headers = [
            ("x-signature-timestamp", time.as_str()),
            ("x-signature-ed25519", signature.as_str()),
        ];
        let answer = http::post(daemon.webhook("outside"), "/", &headers, &body).unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    post(
        json!({"type": 2, "id": "1", "data": {"name": "ask", "options": [{"name": "prompt", "value": "the time"}]}}),
    );
    post(json!({"type": 3, "id": "2", "data": {"custom_id": "yes-please"}}));
    is_told(&home, "slash_command", "the time");
    is_told(&home, "component_interaction", "yes-please");
}

#[test]
fn compat_1_a_message_of_a_webhook_has_its_route() {
    let connection = "  connectorRef: Connector/webhook\n  config: {WEBHOOK_PORT: {value: '0'}, WEBHOOK_PATH: /in}\n";
    let home = Home::new(&bundle(connection, &[("webhook_message", "route: /in")]));
    let daemon = Daemon::serving(&home);
    let posted = http::post(
        daemon.webhook("outside"),
        "/in",
        &[],
        "{\"text\":\"knock\"}",
    )
    .unwrap();
    assert_eq!(posted.status, 202, "{posted:?}");
    is_told(&home, "webhook_message", "knock");
}

/// An extension that logs what it receives.
const WATCH: &str = r#"
export function register(api) {
  api.pipeline.register("turn", async (ctx) => {
    const { type, name, source, instanceKey, properties } = ctx.inputEvent;
    const { eventType, sourceName } = ctx.runtime.inbound;
    const own = { key: ctx.instanceKey, chat: properties?.chat_id, eventType, sourceName };
    api.logger.warn(`told ${JSON.stringify({ type, name, source, instanceKey, ...own })}`);
    return await ctx.next();
  });
}
"#;

#[test]
fn compat_3_modules_receive_older_event_names_sources_and_keys() {
    if !needs::javascript() {
        return;
    }
    let telegram = Telegram::start();
    let connection = format!(
        "  connectorRef: {{kind: Connector, name: telegram-polling, package: '@goondan/base'}}\n  config: \
         {{TELEGRAM_API_BASE_URL: '{}'}}\n  secrets: {{TELEGRAM_BOT_TOKEN: {{value: '{TOKEN}'}}}}\n",
        telegram.endpoint()
    );
    let bundle = bundle(&connection, &[("telegram_message", "chat_id: '5'")])
        .replace(", instanceKey: telegram_message", "")
        .replace(
            "modelRef: Model/main}}",
            "modelRef: Model/main}, extensions: [{ref: Extension/watch}]}",
        );
    let extension = "apiVersion: goondan.ai/v1\nkind: Extension\nmetadata: {name: watch}\nspec: {entry: ./watch.mjs}\n";
    let home = Home::new(&format!("{bundle}---\n{extension}"));
    home.write("project/watch.mjs", WATCH);
    let daemon = Daemon::serving(&home);
    let told = |count: usize| {
        let is_told = |line: &Value| message(line).starts_with("told ");
        wait_until(&format!("the module received {count} events"), || {
            daemon
                .log()
                .lines()
                .iter()
                .filter(|line| is_told(line))
                .count()
                >= count
        });
        let lines = daemon.log().lines();
        let line = lines.iter().rfind(|line| is_told(line)).unwrap();
        let text = message(line).strip_prefix("told ").unwrap().to_owned();
        serde_json::from_str::<Value>(&text).unwrap()
    };
    telegram.write(5, "hello there");
    let expected = json!({
        "type": "telegram_message", "name": "telegram_message",
        "source": {"kind": "connector", "name": "telegram-polling"},
        "instanceKey": "telegram:5", "key": "telegram:5", "chat": "5",
        "eventType": "telegram_message", "sourceName": "telegram-polling",
    });
    assert_eq!(told(1), expected);
    let listed = home.gdn(&["instance", "list"]).exits(0);
    assert!(
        listed.stdout.contains("outside:telegram:5"),
        "{}",
        listed.stdout
    );
    home.ask("main", "hi");
    let sent = told(2);
    assert_eq!(sent["type"], "stdin_message");
    assert_eq!(sent["source"]["name"], "cli");
    assert_eq!(sent["key"], "main");
}
