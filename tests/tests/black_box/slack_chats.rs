//! Conversations in Slack as people have them: threads, replies by default, and files.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use goondan_tests::provider::{Provider, ProviderResponse, ReceivedRequest};
use goondan_tests::{Daemon, Home, http, wait_until};
use hmac::{Hmac, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::conversation::text;

pub(crate) const SECRET: &str = "a-shared-secret";
const TOKEN: &str = "the-good-token";

/// A clerk whose scripted model follows these rules, and a Slack app with further settings.
fn project(slack: &Provider, rules: &str, settings: &str) -> Home {
    Home::new(&format!(
        r#"
apiVersion: goondan.ai/v1
kind: Model
metadata: {{name: main}}
spec:
  provider: scripted
  options:
    rules:
{rules}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {{name: clerk}}
spec:
  modelConfig: {{modelRef: Model/main}}
  tools:
    - {{kind: Tool, name: slack, package: "@goondan/base"}}
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {{name: slack}}
spec:
  connectorRef: {{kind: Connector, name: slack, package: "@goondan/base"}}
  config: {{endpoint: "{}"{settings}}}
  secrets: {{signingSecret: {{value: {SECRET}}}, botToken: {{value: {TOKEN}}}}}
  ingress:
    rules:
      - match: {{event: app_mention}}
      - match: {{event: slash_command}}
      - match: {{event: message, properties: {{channelType: im}}}}
"#,
        slack.endpoint()
    ))
}

/// A fake of Slack's Web API. While `is_down`, it takes no messages.
pub(crate) fn slack_double(is_down: &Arc<AtomicBool>) -> Provider {
    let is_down = Arc::clone(is_down);
    let mut posts = 0;
    Provider::start(move |request| {
        let is_upload = request.path.starts_with("/v1/upload");
        let bearer = format!("Bearer {TOKEN}");
        if !is_upload && request.header("authorization") != Some(bearer.as_str()) {
            return ProviderResponse::json(&json!({"ok": false, "error": "invalid_auth"}));
        }
        let path = request.path.split('?').next().unwrap_or_default();
        match path {
            "/v1/auth.test" => {
                ProviderResponse::json(&json!({"ok": true, "user": "clerk", "team": "Acme"}))
            }
            "/v1/chat.postMessage" if is_down.load(Ordering::SeqCst) => {
                ProviderResponse::error(503, &json!({}))
            }
            "/v1/chat.postMessage" => {
                posts += 1;
                ProviderResponse::json(&json!({"ok": true, "ts": format!("9.{posts}")}))
            }
            "/v1/files/a.txt" => ProviderResponse::json(&json!("hello")),
            "/v1/files.getUploadURLExternal" => {
                let host = request.header("host").unwrap_or_default();
                let url = format!("http://{host}/v1/upload/1");
                ProviderResponse::json(&json!({"ok": true, "upload_url": url, "file_id": "F2"}))
            }
            _ => ProviderResponse::json(&json!({"ok": true})),
        }
    })
}

/// Requests whose path has this start after `/v1/`.
pub(crate) fn to(slack: &Provider, method: &str) -> Vec<ReceivedRequest> {
    let mut received = slack.received();
    received.retain(|request| request.path.starts_with(&format!("/v1/{method}")));
    received
}

/// Texts of the messages that were posted, with their thread.
fn posted(slack: &Provider) -> Vec<(String, Value)> {
    let posts = to(slack, "chat.postMessage").into_iter();
    let shown = posts.map(|post| {
        let text = post.body["text"].as_str().unwrap_or_default().to_owned();
        (text, post.body["thread_ts"].clone())
    });
    shown.collect()
}

/// Sends a body with Slack's signature, and returns the response.
pub(crate) fn post_signed(
    (address, path): (SocketAddr, &str),
    kind: &str,
    body: &str,
) -> http::HttpResponse {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let time = now.to_string();
    let keyed = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    let mac = keyed.chain_update(format!("v0:{time}:{body}")).finalize();
    let signature = format!("v0={}", hex::encode(mac.into_bytes()));
    let headers = [
        ("content-type", kind),
        ("x-slack-request-timestamp", time.as_str()),
        ("x-slack-signature", signature.as_str()),
    ];
    http::post(address, path, &headers, body).unwrap()
}

/// An event in its envelope.
pub(crate) fn envelope(event: &Value) -> String {
    json!({"type": "event_callback", "team_id": "T1", "api_app_id": "A1", "event_id": event["ts"],
        "event": event, "authorizations": [{"team_id": "T1", "user_id": "U9", "is_bot": true}]})
    .to_string()
}

/// Sends an event of Slack, and returns the response.
fn send(daemon: &Daemon, event: &Value) -> http::HttpResponse {
    let place = (daemon.webhook("slack"), "/");
    post_signed(place, "application/json", &envelope(event))
}

/// A message of a person in channel `C1`.
pub(crate) fn message(ts: &str, thread: Option<&str>, said: &str) -> Value {
    let mut message = json!({"type": "message", "channel": "C1", "channel_type": "channel", "user": "U1",
        "ts": ts, "text": said});
    if let Some(thread) = thread {
        message["thread_ts"] = json!(thread);
    }
    message
}

const NAMES: &str = r#"      - when: {user: 'my name\?', history: 'I am (?P<name>\w+)'}
        say: "You are **${name}**."
      - say: "**Hello** <!channel>, see [this](https://x.example/?a=1&b=2)."
"#;

#[test]
fn conn_2_slack_thread_is_one_conversation_and_answered_by_default() {
    let slack = slack_double(&Arc::default());
    let home = project(&slack, NAMES, "");
    let daemon = Daemon::serving(&home);
    let mention = message("1.5", None, "<@U9> I am Ada");
    assert_eq!(send(&daemon, &mention).status, 202);
    // The same message once more, as a mention.
    let mut twin = mention;
    twin["type"] = json!("app_mention");
    assert_eq!(send(&daemon, &twin).status, 202);
    let hello = "*Hello* &lt;!channel&gt;, see <https://x.example/?a=1&amp;b=2|this>.";
    wait_until("the mention is answered", || posted(&slack).len() == 1);
    assert_eq!(posted(&slack), [(hello.to_owned(), json!("1.5"))]);

    // A reply without a mention continues the conversation; other messages are ignored.
    let question = message("2.5", Some("1.5"), "what is my name?");
    assert_eq!(send(&daemon, &question).status, 202);
    wait_until("the reply is answered", || posted(&slack).len() == 2);
    let named = ("You are *Ada*.".to_owned(), json!("1.5"));
    assert_eq!(posted(&slack)[1], named);
    let other = send(&daemon, &message("3.5", None, "lunch?"));
    assert!(
        other.status == 200 && other.body.contains("ignored"),
        "{other:?}"
    );

    // The thread is known after a crash as well.
    drop(daemon.kill());
    let daemon = Daemon::serving(&home);
    let again = message("4.5", Some("1.5"), "and what is my name?");
    assert_eq!(send(&daemon, &again).status, 202);
    wait_until("the later reply is answered", || posted(&slack).len() == 3);
    assert_eq!(posted(&slack)[2], named);
    assert_eq!(home.history("slack:T1:C1:1.5").len(), 6);
    let log = daemon.stop();
    assert!(!format!("{:?}", log.lines()).contains(TOKEN));
}

#[test]
fn conn_2_slack_thread_under_a_reply_to_a_command_continues_it() {
    let slack = slack_double(&Arc::default());
    let home = project(&slack, NAMES, "");
    let daemon = Daemon::serving(&home);
    let command = |trigger: &str, said: &str| {
        let form = format!(
            "team_id=T1&channel_id=C1&user_id=U1&command=%2Fask&text={said}&trigger_id={trigger}"
        );
        let place = (daemon.webhook("slack"), "/");
        let answer = post_signed(place, "application/x-www-form-urlencoded", &form);
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    command("13.9", "I+am+Ada");
    wait_until("the command is answered", || posted(&slack).len() == 1);
    assert_eq!(posted(&slack)[0].1, Value::Null);
    // The first reply is recorded before the next one to this channel is posted.
    command("14.9", "hello");
    wait_until("the next one is answered", || posted(&slack).len() == 2);
    drop(daemon.kill());
    let daemon = Daemon::serving(&home);
    let mut reply = message("20.1", Some("9.1"), "what is my name?");
    reply["parent_user_id"] = json!("U9");
    assert_eq!(send(&daemon, &reply).status, 202);
    let named = ("You are *Ada*.".to_owned(), json!("9.1"));
    wait_until("the thread is answered", || posted(&slack).contains(&named));
    assert_eq!(home.history("slack:T1:C1").len(), 6);
    drop(daemon.stop());
}

#[test]
fn conn_2_slack_direct_chat_is_one_conversation_without_threads() {
    let slack = slack_double(&Arc::default());
    let home = project(&slack, NAMES, "");
    let daemon = Daemon::serving(&home);
    let direct = |ts: &str, said: &str| {
        let mut direct = message(ts, None, said);
        direct["channel"] = json!("D1");
        direct["channel_type"] = json!("im");
        assert_eq!(send(&daemon, &direct).status, 202);
    };
    direct("1.5", "I am Ada");
    wait_until("it is answered", || posted(&slack).len() == 1);
    direct("2.5", "what is my name?");
    wait_until("it is answered again", || posted(&slack).len() == 2);
    assert_eq!(
        posted(&slack)[1],
        ("You are *Ada*.".to_owned(), Value::Null)
    );
    assert_eq!(home.history("slack:T1:D1").len(), 4);
    drop(daemon.stop());
}

#[test]
fn conn_2_slack_reply_is_posted_after_a_kill() {
    let is_down = Arc::new(AtomicBool::new(true));
    let slack = slack_double(&is_down);
    let home = project(&slack, NAMES, "");
    let daemon = Daemon::serving(&home);
    assert_eq!(
        send(&daemon, &message("1.5", None, "<@U9> hello")).status,
        202
    );
    wait_until("the reply is tried", || {
        !to(&slack, "chat.postMessage").is_empty()
    });
    drop(daemon.kill());
    is_down.store(false, Ordering::SeqCst);
    let before = posted(&slack).len();
    let daemon = Daemon::serving(&home);
    wait_until("the reply is posted", || posted(&slack).len() > before);
    assert_eq!(posted(&slack)[before].1, "1.5");
    drop(daemon.stop());
}

#[test]
fn conn_2_files_travel_both_ways_in_slack() {
    let slack = slack_double(&Arc::default());
    let rules = r#"      - when: {tool: slack__sendFile}
        say: "never posted: ${result}"
      - when: {tool: slack__download}
        call: [{tool: slack__sendFile, args: {path: in/a.txt, text: "**Back**"}}]
      - when: {user: 'URL (?P<url>http\S+?)\]'}
        call: [{tool: slack__download, args: {url: "${url}", path: in/a.txt}}]
"#;
    let home = project(&slack, rules, "");
    let daemon = Daemon::serving(&home);
    let mut shared = message("1.5", None, "<@U9>");
    shared["subtype"] = json!("file_share");
    shared["files"] = json!([{"id": "F1", "name": "a.txt", "mimetype": "text/plain", "size": 7,
        "url_private_download": format!("{}/files/a.txt", slack.endpoint())}]);
    assert_eq!(send(&daemon, &shared).status, 202);
    let completed = || to(&slack, "files.completeUploadExternal");
    wait_until("the file is sent", || completed().len() == 1);
    let expected = json!({"files": [{"id": "F2", "title": "a.txt"}], "channel_id": "C1",
        "thread_ts": "1.5", "initial_comment": "*Back*"});
    assert_eq!(completed()[0].body, expected);
    let asked = &to(&slack, "files.getUploadURLExternal")[0].path;
    assert!(
        asked.contains("filename=a.txt") && asked.contains("length=7"),
        "{asked}"
    );
    assert_eq!(to(&slack, "upload/1")[0].body, "hello");
    assert_eq!(to(&slack, "upload/1")[0].header("authorization"), None);
    // The agent answered in the thread itself, so its reply is not posted.
    wait_until("the turn is over", || {
        home.history("slack:T1:C1:1.5").len() == 6
    });
    let last = text(&home.history("slack:T1:C1:1.5")[5]);
    assert!(last.contains(r#""file":"F2""#), "{last}");
    drop(daemon.stop());
    assert!(posted(&slack).is_empty(), "{:?}", posted(&slack));
}

#[test]
fn conn_1_alerts_and_workflows_of_slack_reach_the_agent() {
    let slack = slack_double(&Arc::default());
    let home = project(&slack, NAMES, ", bots: [B7]");
    let daemon = Daemon::serving(&home);
    let workflow = json!({"type": "app_mention", "user": "U5", "bot_id": "B7", "channel": "C1", "ts": "200.1",
        "text": "<@U9> from a workflow"});
    let alert = json!({"type": "message", "subtype": "bot_message", "bot_id": "B7", "channel": "C1", "ts": "200.2",
        "thread_ts": "200.1", "text": "", "attachments": [{"fallback": "disk full"}],
        "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": "cpu high"}}]});
    for event in [&workflow, &alert] {
        assert_eq!(send(&daemon, event).status, 202);
    }
    let other = json!({"type": "app_mention", "bot_id": "B8", "channel": "C1", "ts": "200.3", "text": "<@U9> hi"});
    assert!(send(&daemon, &other).body.contains("it is from a bot"));
    let messages = || home.history("slack:T1:C1:200.1");
    wait_until("both are answered", || messages().len() == 4);
    let told = text(&messages()[2]);
    assert!(told.contains("cpu high\n[attachment] disk full"), "{told}");
    drop(daemon.stop());
}
