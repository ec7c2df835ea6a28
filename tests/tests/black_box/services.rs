//! Slack, GitHub and Discord in the real daemon, with fakes of their HTTP APIs; and requests to
//! hosts that a project allows.

use std::path::Path;

use ed25519_dalek::{Signer as _, SigningKey};
use goondan_tests::provider::{Provider, ProviderResponse, ReceivedRequest};
use goondan_tests::{Daemon, Home, http, wait_until};
use hmac::{Hmac, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::conversation::text;
use crate::replies::{history, last_result, project};

const SECRET: &str = "a-shared-secret";
const TOKEN: &str = "the-good-token";

fn signature(text: &str) -> String {
    let keyed = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    hex::encode(keyed.chain_update(text).finalize().into_bytes())
}

fn now_s() -> u64 {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap();
    now.as_secs()
}

fn detail(home: &Home, connection: &str) -> String {
    let mut processes = home.ps().into_iter();
    let shown = processes.find(|process| process["name"] == connection);
    shown
        .map(|shown| shown["detail"].to_string())
        .unwrap_or_default()
}

/// Requests whose path ends with this.
fn to(provider: &Provider, end: &str) -> Vec<ReceivedRequest> {
    let mut received = provider.received();
    received.retain(|request| request.path.ends_with(end));
    received
}

/// True if any file below a directory contains this text.
fn is_written_below(directory: &Path, text: &str) -> bool {
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().path()).any(|path| {
        if path.is_dir() {
            return is_written_below(&path, text);
        }
        let content = std::fs::read(&path).unwrap_or_default();
        String::from_utf8_lossy(&content).contains(text)
    })
}

fn slack_double() -> Provider {
    let mut posts = 0;
    Provider::start(move |request| {
        if request.header("authorization") != Some(&format!("Bearer {TOKEN}")) {
            return ProviderResponse::json(&json!({"ok": false, "error": "invalid_auth"}));
        }
        match request.path.as_str() {
            "/v1/auth.test" => {
                ProviderResponse::json(&json!({"ok": true, "user": "clerk", "team": "Acme"}))
            }
            "/v1/chat.postMessage" => {
                posts += 1;
                if posts == 1 {
                    let late = json!({"ok": false, "error": "ratelimited"});
                    return ProviderResponse::error(429, &late).with_header("retry-after", "1");
                }
                ProviderResponse::json(&json!({"ok": true, "ts": format!("9.{posts}")}))
            }
            path if path.starts_with("/v1/conversations.replies?") => {
                ProviderResponse::json(&thread_page(path))
            }
            _ => ProviderResponse::json(&json!({"ok": false, "error": "unknown_method"})),
        }
    })
}

/// A page of a thread of 25 messages, the last of which quotes the token.
fn thread_page(path: &str) -> Value {
    let (numbers, next) = match path.ends_with("&cursor=more") {
        false => (1..=20, "more"),
        true => (21..=25, ""),
    };
    let message = |n: i32| {
        let said = if n == 25 { TOKEN } else { "is &lt;late&gt;" };
        json!({"ts": format!("{n}.5"), "user": format!("U{n}"), "text": format!("{n} {said}")})
    };
    let messages: Vec<Value> = numbers.map(message).collect();
    json!({"ok": true, "messages": messages, "response_metadata": {"next_cursor": next}})
}

/// An agent that calls an export with one argument, and a Slack app with the given `channels`.
fn slack_home(
    slack: &Provider,
    token: &str,
    (export, argument): (&str, &str),
    channels: &str,
) -> Home {
    let connection = format!(
        "  config: {{endpoint: \"{}\"{channels}}}\n  secrets: {{signingSecret: {{value: {SECRET}}}, \
         botToken: {{value: {token}}}}}",
        slack.endpoint()
    );
    Home::new(&project(
        ("slack", export, argument),
        "slack",
        "",
        &connection,
    ))
}

fn mention(daemon: &Daemon, said: &str, ts: &str) {
    let body = json!({"type": "event_callback", "team_id": "T1", "event_id": ts, "event":
        {"type": "app_mention", "channel": "C1", "user": "U1", "ts": ts, "text": said}});
    let (body, time) = (body.to_string(), now_s().to_string());
    let signature = format!("v0={}", signature(&format!("v0:{time}:{body}")));
    let headers = [
        ("x-slack-request-timestamp", time.as_str()),
        ("x-slack-signature", signature.as_str()),
    ];
    let answer = http::post(daemon.webhook("slack"), "/", &headers, &body).unwrap();
    assert_eq!(answer.status, 202, "{answer:?}");
}

#[test]
fn slack_is_answered_in_the_thread_and_patience_is_kept() {
    let slack = slack_double();
    let home = slack_home(&slack, TOKEN, ("send", "text"), "");
    let daemon = Daemon::serving(&home);
    mention(
        &daemon,
        "<@U9> say Hello &lt;!channel&gt; &amp; <@U1>",
        "1.5",
    );
    let messages = history(&home, "slack:T1:C1:1.5", 4);
    let posts = to(&slack, "/chat.postMessage");
    let [late, posted] = posts.as_slice() else {
        panic!("{posts:?}");
    };
    assert_eq!(late.body, posted.body);
    let expected =
        json!({"text": "Hello &lt;!channel&gt; &amp; <@U1>", "channel": "C1", "thread_ts": "1.5"});
    let mut body = posted.body.clone();
    let metadata = body.as_object_mut().unwrap().remove("metadata").unwrap();
    assert_eq!(metadata["event_type"], "goondan_message");
    assert_eq!(body, expected);
    assert!(
        last_result(&messages).contains("\"messages\":[\"9.2\"]"),
        "{messages:?}"
    );
    wait_until("it says who writes", || {
        detail(&home, "slack").contains("writing as clerk of Acme")
    });
    let log = daemon.stop();
    assert!(!format!("{:?}", log.lines()).contains(TOKEN));
}

#[test]
fn rejected_slack_token_is_reported_and_events_still_arrive() {
    let slack = slack_double();
    let home = slack_home(&slack, "a-bad-token", ("send", "text"), "");
    let daemon = Daemon::serving(&home);
    wait_until("it is reported", || {
        detail(&home, "slack").contains("agents cannot write: Slack says: invalid_auth")
    });
    mention(&daemon, "<@U9> say Hello", "1.5");
    let messages = history(&home, "slack:T1:C1:1.5", 4);
    assert!(
        last_result(&messages).contains("invalid_auth"),
        "{messages:?}"
    );
    // Only the reply of the turn can have been tried, and not twice.
    assert!(to(&slack, "/chat.postMessage").len() <= 1);
    assert_eq!(home.ask("desk", "hello"), "nothing to do");
    let log = daemon.stop();
    assert!(!format!("{:?}", log.lines()).contains("a-bad-token"));
}

#[test]
fn slack_thread_end_is_read_where_the_connection_may_write() {
    let slack = slack_double();
    let home = slack_home(&slack, TOKEN, ("read", "channel"), ", channels: [C1]");
    let daemon = Daemon::serving(&home);
    mention(&daemon, "<@U9> say C1", "1.5");
    let messages = history(&home, "slack:T1:C1:1.5", 4);
    let read: Value = serde_json::from_str(last_result(&messages)).unwrap();
    let shown = read["messages"].as_array().unwrap();
    assert_eq!((shown.len(), &read["hasMore"]), (20, &json!(true)));
    let first = json!({"ts": "6.5", "author": "U6", "time": "1970-01-01T00:00:06.000Z", "text": "6 is <late>"});
    assert_eq!((&shown[0], &shown[19]["text"]), (&first, &json!("25 …")));
    let asked: Vec<String> = slack.received().into_iter().map(|it| it.path).collect();
    let pages: Vec<&String> = asked
        .iter()
        .filter(|path| path.contains("replies"))
        .collect();
    let page = "/v1/conversations.replies?channel=C1&ts=1.5&limit=200";
    assert_eq!(pages, [page, &format!("{page}&cursor=more")]);
    mention(&daemon, "<@U9> say C2", "1.6");
    let messages = history(&home, "slack:T1:C1:1.6", 4);
    let refused = last_result(&messages);
    assert!(
        refused.starts_with("E_REFUSED: channel C2 is not one of"),
        "{refused}"
    );
    let log = daemon.stop();
    assert!(!format!("{:?}", log.lines()).contains(TOKEN));
}

#[test]
fn github_comment_of_the_agent_is_not_an_event() {
    let mut posts = 0;
    let github = Provider::start(move |request| {
        if request.header("authorization") != Some(&format!("Bearer {TOKEN}")) {
            return ProviderResponse::error(401, &json!({"message": "Bad credentials"}));
        }
        match request.path.as_str() {
            "/v1/rate_limit" => ProviderResponse::json(&json!({})),
            "/v1/repos/acme/shop/issues/7/comments" => {
                posts += 1;
                if posts == 1 {
                    let late = json!({"message": "You have exceeded a secondary rate limit."});
                    return ProviderResponse::error(403, &late).with_header("retry-after", "1");
                }
                ProviderResponse::error(201, &json!({"id": 99, "html_url": "https://github.com/x"}))
            }
            _ => ProviderResponse::error(404, &json!({"message": "Not Found"})),
        }
    });
    let connection = format!(
        "  config: {{endpoint: \"{}\", repositories: [acme/shop]}}\n  secrets: {{webhookSecret: \
         {{value: {SECRET}}}, token: {{value: {TOKEN}}}}}",
        github.endpoint()
    );
    let home = Home::new(&project(
        ("github", "comment", "body"),
        "github",
        "",
        &connection,
    ));
    let daemon = Daemon::serving(&home);
    let deliver = |id: &str, said: &str| {
        let body = json!({"action": "created", "repository": {"full_name": "acme/shop"},
            "issue": {"number": 7, "title": "It breaks"}, "comment": {"id": 5, "body": said},
            "sender": {"login": "ann", "type": "User"}});
        let body = body.to_string();
        let signature = format!("sha256={}", signature(&body));
        let headers = [
            ("x-github-event", "issue_comment"),
            ("x-github-delivery", id),
            ("x-hub-signature-256", signature.as_str()),
        ];
        http::post(daemon.webhook("github"), "/", &headers, &body).unwrap()
    };
    assert_eq!(deliver("d1", "say It is mended.").status, 202);
    let messages = history(&home, "github:acme/shop#7", 4);
    assert!(
        last_result(&messages).contains("\"comment\":99"),
        "{messages:?}"
    );
    let posts = to(&github, "/comments");
    assert_eq!(posts.len(), 2, "{posts:?}");
    let comment = posts[1].body["body"].as_str().unwrap();
    assert!(comment.starts_with("It is mended."), "{comment}");
    let back = deliver("d2", comment);
    assert!(
        back.status == 200 && back.body.contains("goondan wrote it"),
        "{back:?}"
    );
    drop(daemon.stop());
}

/// A fake of Discord: its first answer to a command comes late.
fn discord_double() -> Provider {
    let mut answers = 0;
    Provider::start(move |request| {
        let bot = format!("Bot {TOKEN}");
        let is_bot = request.header("authorization") == Some(bot.as_str());
        match (request.method.as_str(), request.path.as_str()) {
            ("GET", "/v1/users/@me") if is_bot => {
                ProviderResponse::json(&json!({"username": "clerk"}))
            }
            ("PATCH", "/v1/webhooks/app1/interaction-token/messages/@original") => {
                answers += 1;
                if answers == 1 {
                    let late =
                        json!({"message": "You are being rate limited.", "retry_after": 1.0});
                    return ProviderResponse::error(429, &late).with_header("retry-after", "1");
                }
                ProviderResponse::json(&json!({"id": "50"}))
            }
            ("POST", "/v1/webhooks/app1/interaction-token") => {
                ProviderResponse::json(&json!({"id": "51"}))
            }
            ("POST", "/v1/channels/12/messages") if is_bot => {
                ProviderResponse::json(&json!({"id": "52"}))
            }
            ("GET", "/v1/attachments/a.txt") => ProviderResponse::json(&json!("hello")),
            _ => ProviderResponse::error(401, &json!({"message": "401: Unauthorized", "code": 0})),
        }
    })
}

#[test]
fn discord_command_gets_its_answer_and_its_token_is_not_stored() {
    let discord = discord_double();
    let key = SigningKey::from_bytes(&[7; 32]);
    let connection = format!(
        "  config: {{endpoint: \"{}\", publicKey: {}, channels: [\"12\"]}}\n  secrets: {{botToken: \
         {{value: {TOKEN}}}}}",
        discord.endpoint(),
        hex::encode(key.verifying_key().to_bytes())
    );
    let there = "      - when: {user: '^there (?P<text>.*)$', step: 1}
        call: [{tool: discord__send, args: {text: \"${text}\", channel: \"12\"}}]";
    let home = Home::new(&project(
        ("discord", "send", "text"),
        "discord",
        there,
        &connection,
    ));
    let daemon = Daemon::serving(&home);
    let command = |daemon: &Daemon, id: &str, said: &str| {
        let body = json!({"type": 2, "id": id, "application_id": "app1", "token": "interaction-token",
            "channel_id": "12", "member": {"user": {"id": "u"}},
            "data": {"name": "ask", "options": [{"name": "prompt", "value": said}]}});
        let (body, time) = (body.to_string(), now_s().to_string());
        let signature = hex::encode(key.sign(format!("{time}{body}").as_bytes()).to_bytes());
        let headers = [
            ("x-signature-timestamp", time.as_str()),
            ("x-signature-ed25519", signature.as_str()),
        ];
        let answer = http::post(daemon.webhook("discord"), "/", &headers, &body).unwrap();
        assert_eq!(
            (answer.status, answer.json()["type"].as_u64()),
            (200, Some(5))
        );
    };
    let long = "word ".repeat(500);
    command(&daemon, "1", &format!("say {long}"));
    let messages = history(&home, "discord:12", 4);
    assert!(
        last_result(&messages).contains("\"messages\":[\"50\",\"51\"]"),
        "{messages:?}"
    );
    let said: Vec<ReceivedRequest> = discord.received();
    let answers: Vec<&Value> = said
        .iter()
        .filter(|request| request.path.contains("webhooks"))
        .map(|request| &request.body["content"])
        .collect();
    assert_eq!(answers.len(), 3, "{said:?}");
    assert_eq!(answers[0], answers[1]);
    let written = format!(
        "{} {}",
        answers[1].as_str().unwrap(),
        answers[2].as_str().unwrap()
    );
    assert_eq!(written.trim(), long.trim());
    assert!(!is_written_below(&home.state_root(), "interaction-token"));
    // If there is no interaction to answer, the bot sends a message, which Discord deduplicates by
    // its nonce.
    assert!(
        home.ask("desk", "there Late.")
            .contains("\"messages\":[\"52\"]")
    );
    let late = to(&discord, "/v1/channels/12/messages");
    assert_eq!(late[0].body["content"], "Late.");
    assert_eq!(late[0].body["enforce_nonce"], true);
    drop(daemon.stop());
}

/// Sends a signed interaction of channel 12.
fn interact(daemon: &Daemon, key: &SigningKey, id: &str, kind: u64, more: &Value) {
    let mut body = json!({"type": kind, "id": id, "application_id": "app1", "token": "interaction-token",
        "channel_id": "12", "member": {"user": {"id": "u", "username": "ann"}}});
    let fields = body.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    let (body, time) = (body.to_string(), now_s().to_string());
    let signature = hex::encode(key.sign(format!("{time}{body}").as_bytes()).to_bytes());
    let headers = [
        ("x-signature-timestamp", time.as_str()),
        ("x-signature-ed25519", signature.as_str()),
    ];
    let answer = http::post(daemon.webhook("discord"), "/", &headers, &body).unwrap();
    assert_eq!(
        (answer.status, answer.json()["type"].as_u64()),
        (200, Some(5))
    );
}

#[test]
fn conn_2_discord_is_answered_by_default_with_files_both_ways() {
    let discord = discord_double();
    let key = SigningKey::from_bytes(&[7; 32]);
    let connection = format!(
        "  config: {{endpoint: \"{}\", publicKey: {}, channels: [\"12\"]}}\n  secrets: {{botToken: \
         {{value: {TOKEN}}}}}",
        discord.endpoint(),
        hex::encode(key.verifying_key().to_bytes())
    );
    let rules = "      - when: {user: 'URL (?P<url>\\S+)\\]$', step: 1}
        call: [{tool: discord__download, args: {url: \"${url}\", path: got.txt}}]
      - when: {tool: discord__download}
        call: [{tool: discord__sendFile, args: {path: got.txt, text: There}}]
      - when: {tool: discord__sendFile}
        say: \"sent: ${result}\"
      - when: {user: '^again$'}
        say: \"Once more.\"";
    let home = Home::new(&project(
        ("discord", "send", "text"),
        "discord",
        rules,
        &connection,
    ));
    let daemon = Daemon::serving(&home);
    // The agent calls no tool: its reply is the answer to the command.
    let words = |text: &str| {
        json!({"data": {"name": "ask", "type": 1, "options": [
        {"name": "prompt", "type": 3, "value": text}]}})
    };
    interact(&daemon, &key, "1", 2, &words("hello"));
    let answers = || to(&discord, "/messages/@original");
    // The first attempt is answered with 429.
    wait_until("the command is answered", || answers().len() >= 2);
    assert_eq!(answers()[1].body["content"], "nothing to do");
    assert_eq!(
        answers()[1].body["allowed_mentions"],
        json!({"parse": ["users"]})
    );
    // The agent writes itself, so its reply is not posted.
    interact(&daemon, &key, "2", 2, &words("say By tool."));
    wait_until("the tool answers", || answers().len() >= 3);
    assert_eq!(answers()[2].body["content"], "By tool.");
    let url = discord.endpoint() + "/attachments/a.txt";
    let attached = json!({"data": {"name": "read", "type": 1,
        "options": [{"name": "file", "type": 11, "value": "5"}],
        "resolved": {"attachments": {"5": {"id": "5", "filename": "a.txt", "size": 7, "url": url}}}}});
    interact(&daemon, &key, "3", 2, &attached);
    let followed = || to(&discord, "/webhooks/app1/interaction-token");
    // The file replaces "thinks …", and the reply follows it.
    wait_until("the reply follows the file", || !followed().is_empty());
    let said = followed()[0].body["content"].to_string();
    assert!(said.contains("sent: "), "{said}");
    let messages = home.history("discord:12");
    let asked: Vec<String> = messages.iter().map(text).collect();
    assert!(
        asked.iter().any(|said| said.contains("/read file: a.txt")),
        "{asked:?}"
    );
    drop(daemon.stop());
}

#[test]
fn conn_2_discord_thread_under_an_answer_continues_its_conversation() {
    let discord = discord_double();
    let key = SigningKey::from_bytes(&[7; 32]);
    let connection = format!(
        "  config: {{endpoint: \"{}\", publicKey: {}, channels: [\"12\"]}}\n  secrets: {{botToken: \
         {{value: {TOKEN}}}}}",
        discord.endpoint(),
        hex::encode(key.verifying_key().to_bytes())
    );
    let rules = "      - when: {user: '^again$'}
        say: \"Once more.\"";
    let home = Home::new(&project(
        ("discord", "send", "text"),
        "discord",
        rules,
        &connection,
    ));
    let mut daemon = Daemon::serving(&home);
    let words = |text: &str| {
        json!({"data": {"name": "ask", "type": 1, "options": [
        {"name": "prompt", "type": 3, "value": text}]}})
    };
    let in_thread = |id: &str, text: &str| {
        let mut more = words(text);
        more["channel_id"] = json!(id);
        more["channel"] = json!({"id": id, "type": 11, "parent_id": "12", "name": "thread"});
        more
    };
    interact(&daemon, &key, "1", 2, &words("hello"));
    let answers = || to(&discord, "/messages/@original");
    // The first attempt is answered with 429; the second one becomes message 50.
    wait_until("the command is answered", || answers().len() >= 2);
    // Its answer is recorded before that of the next command is posted.
    interact(&daemon, &key, "2", 2, &words("hello"));
    wait_until("the next one is answered", || answers().len() >= 3);
    drop(daemon.kill());
    daemon = Daemon::start(&home);
    interact(&daemon, &key, "3", 2, &in_thread("50", "again"));
    wait_until("the thread is answered", || answers().len() >= 4);
    assert_eq!(answers()[3].body["content"], "Once more.");
    assert_eq!(home.history("discord:12").len(), 6);
    // A thread on the message of a person.
    interact(&daemon, &key, "4", 2, &in_thread("60", "again"));
    wait_until("the other thread is answered", || answers().len() >= 5);
    assert_eq!(home.history("discord:60").len(), 2);
    drop(daemon.stop());
}

fn page_double() -> Provider {
    Provider::start(|request| {
        let html = |body: &str| ProviderResponse {
            headers: vec![("content-type", "text/html; charset=utf-8".to_owned())],
            chunks: vec![body.as_bytes().to_vec()],
            ..ProviderResponse::json(&Value::Null)
        };
        match request.path.as_str() {
            "/page" => html("<title>Books</title><p>See <a href='/dune'>Dune</a>.</p>"),
            "/moved" => ProviderResponse::error(302, &json!({})).with_header("location", "/page"),
            "/away" => {
                let host = request
                    .header("host")
                    .unwrap()
                    .replace("127.0.0.1", "localhost");
                let away = format!("http://{host}/page");
                ProviderResponse::error(302, &json!({})).with_header("location", &away)
            }
            "/round" => ProviderResponse::error(302, &json!({})).with_header("location", "/round"),
            _ => ProviderResponse::error(404, &json!({"error": "none"})),
        }
    })
}

fn reader(config: &str) -> Home {
    let connection = format!("  config: {config}");
    Home::new(&project(
        ("http-fetch", "get", "url"),
        "http",
        "",
        &connection,
    ))
}

#[test]
fn requests_go_where_the_project_allows_and_nowhere_else() {
    let pages = page_double();
    let root = pages.endpoint().replace("/v1", "");
    let home = reader(&format!("{{allow: [\"{root}\"], allowPrivate: true}}"));
    let daemon = Daemon::serving(&home);
    let said = |path: &str| home.ask("desk", &format!("say {root}{path}"));
    let page = said("/moved");
    assert!(
        page.contains("status: 200") && page.contains(&format!("url: {root}/page")),
        "{page}"
    );
    assert!(
        page.contains(&format!("# Books\n\nSee Dune ({root}/dune).")),
        "{page}"
    );
    assert!(said("/none").contains("status: 404"));
    let away = said("/away");
    assert!(
        away.contains("E_REFUSED: requests may not go to `http://localhost:"),
        "{away}"
    );
    assert!(said("/round").contains("more than 5 redirects"));
    let other = home.ask("desk", "say https://example.com/");
    assert!(
        other.contains("requests may not go to `https://example.com:443`"),
        "{other}"
    );
    assert!(to(&pages, "/page").len() == 1, "{:?}", pages.received());
    drop(daemon.stop());
}

#[test]
fn a_name_that_leads_into_this_machine_is_not_followed() {
    let pages = page_double();
    let root = pages.endpoint().replace("/v1", "");
    let named = root.replace("127.0.0.1", "localhost");
    let home = reader(&format!("{{allow: [\"{root}\", \"{named}\"]}}"));
    let daemon = Daemon::serving(&home);
    for root in [root, named] {
        let reply = home.ask("desk", &format!("say {root}/page"));
        assert!(
            reply.contains("E_REFUSED") && reply.contains("which is private"),
            "{reply}"
        );
    }
    assert!(pages.received().is_empty());
    let messages = home.history("desk");
    assert!(text(&messages[3]).contains("allowPrivate"), "{messages:?}");
    drop(daemon.stop());
}

/// The example, unchanged except for its ports.
#[test]
fn the_support_bot_answers_each_update_once_in_its_chat() {
    let chat = Provider::start(|_| ProviderResponse::json(&json!({"ok": true})));
    let address = chat.endpoint().replace("/v1", "");
    let home = Home::without_project();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/support");
    for file in ["goondan.yaml", "scripts/clerk.yaml", "data/orders.csv"] {
        let content = std::fs::read_to_string(example.join(file)).unwrap();
        let content = content.replace("http://127.0.0.1:8090", &address);
        let content = content.replace("port: 8085", "port: 0");
        home.write(&format!("project/{file}"), &content);
    }
    let daemon = Daemon::serving(&home);
    let update = |id: u64, chat: u64, said: &str| {
        let body = json!({"update_id": id, "message": {"chat": {"id": chat}, "text": said}});
        let sent = http::post(
            daemon.webhook("updates"),
            "/updates",
            &[],
            &body.to_string(),
        );
        assert_eq!(sent.unwrap().status, 202);
    };
    update(1, 5, "Where is order 1042?");
    history(&home, "5", 6);
    update(1, 5, "Where is order 1042?");
    update(2, 6, "where is my order #77");
    update(3, 5, "Hello?");
    history(&home, "6", 6);
    let messages = history(&home, "5", 12);
    assert_eq!(text(&messages[11]), "Answered.");
    let mut written: Vec<(String, String)> = to(&chat, "/sendMessage")
        .iter()
        .map(|request| {
            let field = |name: &str| request.body[name].as_str().unwrap().to_owned();
            (field("chat_id"), field("text"))
        })
        .collect();
    written.sort();
    let expected = [
        ("5", "Ask me where an order is, by its number."),
        ("5", "Order 1042 is shipped. Expect it on Thursday."),
        ("6", "There is no such order. Is the number right?"),
    ];
    let expected = expected.map(|(chat, said)| (chat.to_owned(), said.to_owned()));
    assert_eq!(written, expected);
    drop(daemon.stop());
}
