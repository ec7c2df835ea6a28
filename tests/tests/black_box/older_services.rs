//! The chats and requests of `@goondan/base` 0.0.3 under their names (`COMPAT-2`).

use std::fs;

use goondan_tests::provider::{Provider, ProviderResponse, ReceivedRequest};
use goondan_tests::telegram::{TOKEN, Telegram};
use goondan_tests::{Daemon, Home};
use serde_json::{Value, json};

use crate::older_tools::{bundle, holds, results};

const SLACK_TOKEN: &str = "xoxb-double";

#[test]
fn compat_2_telegram_edits_deletes_reacts_and_fetches_as_before() {
    let telegram = Telegram::start();
    let calls = [
        (
            "telegram__edit",
            json!({"chatId": 5, "messageId": "7", "text": "new", "parseMode": "markdownv2"}),
        ),
        ("telegram__delete", json!({"chatId": "5", "messageId": 7})),
        (
            "telegram__react",
            json!({"chatId": "5", "messageId": 7, "emojis": ["👍", "👎", "👍"], "isBig": true}),
        ),
        (
            "telegram__react",
            json!({"chatId": "5", "messageId": 7, "clear": true}),
        ),
        (
            "telegram__downloadFile",
            json!({"file_id": "F1", "savePath": "in/photo.jpg"}),
        ),
        (
            "telegram__downloadFile",
            json!({"fileId": "F1", "includeBase64": false, "maxBytes": 9_000_000}),
        ),
        (
            "telegram__downloadFile",
            json!({"fileId": "F1", "savePath": " ", "outputPath": "not-used", "includeBase64": false}),
        ),
        (
            "telegram__delete",
            json!({"chatId": "5", "messageId": "+7"}),
        ),
        (
            "telegram__setChatAction",
            json!({"chatId": 5, "action": ""}),
        ),
        (
            "telegram__setChatAction",
            json!({"chatId": 5, "action": "_typing_"}),
        ),
        (
            "telegram__downloadFile",
            json!({"fileId": "F1", "savePath": "in/"}),
        ),
    ];
    let home = Home::new(&bundle(&calls, "    - ref: Tool/telegram\n"));
    home.write(
        "project/.env",
        &format!(
            "TELEGRAM_BOT_TOKEN={TOKEN}\nTELEGRAM_API_BASE_URL={}\n",
            telegram.endpoint()
        ),
    );
    let _daemon = Daemon::serving(&home);
    // The work directory, which results name, exists from the first call on.
    let found = results(&home, 7);
    let expected = [
        json!({"ok": true, "chatId": "5", "messageId": 7, "edited": true}),
        json!({"ok": true, "chatId": "5", "messageId": 7, "deleted": true}),
        json!({"ok": true, "chatId": "5", "messageId": 7, "cleared": false, "reactionCount": 2,
               "emojis": ["👍", "👎"]}),
        json!({"ok": true, "chatId": "5", "messageId": 7, "cleared": true, "reactionCount": 0}),
        json!({
            "ok": true, "fileId": "F1", "fileUniqueId": "u1", "filePath": "photos/file_0.jpg", "fileSize": 7,
            "contentType": "application/json", "sizeBytes": 7,
            "savedPath": home.work_dir("main").canonicalize().unwrap().join("in/photo.jpg"),
            "base64": "ImhlbGxvIg==", "dataUrl": "data:application/json;base64,ImhlbGxvIg==",
        }),
        json!({"ok": true, "sizeBytes": 7, "savedPath": null, "base64": null, "dataUrl": null}),
        json!({"ok": true, "sizeBytes": 7, "savedPath": null}),
    ];
    assert_eq!(found.len(), expected.len());
    for number in expected.len()..calls.len() {
        let refused = home.ask("main", &format!("call {number}"));
        assert!(
            refused.contains("E_TOOL_INVALID_ARGS"),
            "{number}: {refused}"
        );
    }
    for ((found, expected), (call, _)) in found.iter().zip(&expected).zip(&calls) {
        holds(found, expected, call);
    }
    assert!(!found[4].to_string().contains(TOKEN), "{}", found[4]);
    let saved = home.work_dir("main").join("in/photo.jpg");
    assert_eq!(fs::read_to_string(saved).unwrap(), "\"hello\"");
    let deeds = telegram.deeds();
    let methods: Vec<&str> = deeds.iter().map(|deed| deed.method.as_str()).collect();
    let expected = [
        "editMessageText",
        "deleteMessage",
        "setMessageReaction",
        "setMessageReaction",
    ];
    assert_eq!(methods, expected);
    assert_eq!(deeds[0].params["parse_mode"], "MarkdownV2");
    assert_eq!(deeds[2].params["reaction"][0]["emoji"], "👍");
    assert_eq!(deeds[2].params["reaction"][1]["emoji"], "👎");
    assert_eq!(deeds[2].params["is_big"], true);
}

fn slack_double() -> Provider {
    Provider::start(|request| {
        if request.header("authorization") != Some(&format!("Bearer {SLACK_TOKEN}")) {
            return ProviderResponse::json(&json!({"ok": false, "error": "invalid_auth"}));
        }
        let path = request.path.split('?').next().unwrap_or_default();
        ProviderResponse::json(&match path {
            "/v1/files/a.png" => json!("hello"),
            "/v1/conversations.history" if request.path.contains("latest=1.5") => {
                json!({"ok": true, "messages": [{"ts": "1.5", "user": "U1", "text": "one"}]})
            }
            "/v1/conversations.history" => json!({"ok": true, "has_more": true, "messages": [
                {"ts": "2.5", "user": "U2", "text": "two", "reactions": []},
                {"ts": "1.5", "user": "U1", "text": "one"},
            ], "response_metadata": {"next_cursor": "next"}}),
            "/v1/chat.postMessage" => {
                json!({"ok": true, "channel": "C1", "ts": "9.5", "message": {"text": "hi there"}})
            }
            _ => json!({"ok": true, "ts": "9.5", "user": "clerk", "team": "Acme"}),
        })
    })
}

/// Requests whose path ends with this.
fn to(provider: &Provider, end: &str) -> Vec<ReceivedRequest> {
    let mut received = provider.received();
    received.retain(|request| request.path.ends_with(end));
    received
}

#[test]
fn compat_2_slack_works_as_before_with_an_implicit_connection() {
    let slack = slack_double();
    let calls = [
        (
            "slack__send",
            json!({"channelId": "C1", "text": "hi & <@U1>", "threadTs": "1.5", "token": "other",
                   "unfurlLinks": false, "replyBroadcast": true}),
        ),
        ("slack__read", json!({"channelId": "C1", "limit": 5})),
        ("slack__read", json!({"channel": "C1", "ts": "1.5"})),
        (
            "slack__edit",
            json!({"channelId": "C1", "timestamp": "1.5", "text": "new"}),
        ),
        (
            "slack__delete",
            json!({"channelId": "C1", "messageTs": "1.5"}),
        ),
        (
            "slack__react",
            json!({"channelId": "C1", "messageTs": "1.5", "emoji": ":wave:", "emojis": ["tada"]}),
        ),
        (
            "slack__downloadFile",
            json!({"fileUrl": format!("{}/files/a.png", slack.endpoint())}),
        ),
        (
            "slack__downloadFile",
            json!({"url": "https://evil.example/a.png"}),
        ),
    ];
    let home = Home::new(&bundle(&calls, "    - ref: Tool/slack\n"));
    home.write(
        "project/.env",
        &format!(
            "SLACK_BOT_TOKEN={SLACK_TOKEN}\nSLACK_SIGNING_SECRET=s\nSLACK_WEBHOOK_PORT=0\nSLACK_API_BASE_URL={}\n",
            slack.endpoint()
        ),
    );
    let _daemon = Daemon::serving(&home);
    let found = results(&home, calls.len() - 1);
    let expected = [
        json!({"ok": true, "channelId": "C1", "messageTs": "9.5", "text": "hi there"}),
        json!({"ok": true, "channelId": "C1", "method": "conversations.history", "count": 2, "found": null,
        "hasMore": true, "nextCursor": "next", "messages": [
            {"ts": "2.5", "user": "U2", "text": "two", "reactions": []},
            {"ts": "1.5", "user": "U1", "text": "one"},
        ]}),
        json!({"ok": true, "channelId": "C1", "messageTs": "1.5", "count": 1, "hasMore": false,
               "found": {"ts": "1.5", "user": "U1", "text": "one"}, "nextCursor": null}),
        json!({"ok": true, "channelId": "C1", "messageTs": "9.5", "edited": true}),
        json!({"ok": true, "channelId": "C1", "messageTs": "1.5", "deleted": true}),
        json!({"ok": true, "channelId": "C1", "emojis": ["wave", "tada"], "reactionCount": 2}),
        json!({"ok": true, "contentType": "application/json", "sizeBytes": 7, "base64": "ImhlbGxvIg=="}),
    ];
    for ((found, expected), (call, _)) in found.iter().zip(&expected).zip(&calls) {
        holds(found, expected, call);
    }
    let refused = home.ask("main", &format!("call {}", calls.len() - 1));
    assert!(
        refused.contains("its address does not belong to Slack"),
        "{refused}"
    );
    let sent = to(&slack, "/chat.postMessage");
    let expected = json!({"channel": "C1", "text": "hi & <@U1>", "thread_ts": "1.5", "unfurl_links": false,
        "reply_broadcast": true});
    assert_eq!(sent[0].body, expected);
    let mut reads = slack.received();
    reads.retain(|request| request.path.contains("/conversations.history"));
    for part in ["channel=C1", "limit=1", "latest=1.5", "inclusive=true"] {
        assert!(reads[1].path.contains(part), "{}", reads[1].path);
    }
    assert_eq!(to(&slack, "/reactions.add").len(), 2);
}

#[test]
fn compat_2_http_requests_go_only_to_hosts_that_policy_allows() {
    let server = Provider::start(|request: &ReceivedRequest| {
        let told = json!({"method": request.method, "path": request.path, "body": request.body,
            "token": request.header("x-token"), "type": request.header("content-type")});
        let answer = ProviderResponse::json(&told).with_header("x-a", "1");
        let answer = answer
            .with_header("x-a", "2")
            .with_header("set-cookie", "a=1");
        let answer = answer.with_header("set-cookie", "b=2");
        match request.path.ends_with("/gzip") {
            true => answer.in_gzip(),
            false => answer,
        }
    });
    let url = |path: &str| format!("{}{path}", server.endpoint());
    let calls: [(&str, Value); 6] = [
        (
            "http-fetch__get",
            json!({"url": url("/a"), "headers": {"x-token": 5}}),
        ),
        (
            "http-fetch__post",
            json!({"url": url("/b"), "body": {"n": 1}, "maxBytes": 10}),
        ),
        (
            "http-fetch__post",
            json!({"url": url("/c?"), "bodyString": "{\"n\":2}"}),
        ),
        (
            "http-fetch__get",
            json!({"url": url("/gzip"), "headers": {"x-token": 1, "X-Token": true, "x-b": null}}),
        ),
        (
            "http-fetch__post",
            json!({"url": url("/d"), "body": {"n": 1.0}, "headers": {"CONTENT-TYPE": "a/b", "connection": "close"}}),
        ),
        (
            "http-fetch__get",
            json!({"url": url("/e"), "headers": {"host": "other.example"}}),
        ),
    ];
    let address = server.endpoint().replace("http://", "").replace("/v1", "");
    let policy = format!("  policy: {{sandbox: {{network: {{allow: [\"{address}\"]}}}}}}\n");
    let home = Home::new(&(bundle(&calls, "    - ref: Tool/http-fetch\n") + &policy));
    let _daemon = Daemon::serving(&home);
    let found = results(&home, calls.len() - 1);
    let refused = home.ask("main", &format!("call {}", calls.len() - 1));
    assert!(refused.contains("the header `host`"), "{refused}");
    holds(
        &found[0],
        &json!({"method": "GET", "status": 200, "statusText": "-", "truncated": false, "url": url("/a")}),
        "get",
    );
    let body: Value = serde_json::from_str(found[0]["body"].as_str().unwrap()).unwrap();
    assert_eq!(body["token"], "5");
    holds(
        &found[0]["headers"],
        &json!({"content-type": "application/json", "x-a": "1, 2", "set-cookie": "b=2"}),
        "headers",
    );
    holds(
        &found[1],
        &json!({"method": "POST", "status": 200, "truncated": true}),
        "post",
    );
    assert_eq!(found[1]["body"].as_str().unwrap().len(), 10);
    let body: Value = serde_json::from_str(found[2]["body"].as_str().unwrap()).unwrap();
    assert_eq!(body["body"], json!({"n": 2}));
    assert_eq!(body["type"], "text/plain;charset=UTF-8");
    assert_eq!(found[2]["url"], url("/c?"));
    let body: Value = serde_json::from_str(found[3]["body"].as_str().unwrap()).unwrap();
    assert_eq!(body["token"], "1, true");
    assert_eq!(found[3]["headers"]["content-encoding"], "gzip");
    let body: Value = serde_json::from_str(found[4]["body"].as_str().unwrap()).unwrap();
    assert_eq!(body["type"], "a/b, application/json");
    let received = server.received();
    let sent = |path: &str| received.iter().find(|it| it.path.ends_with(path));
    // A question mark without a query is not sent.
    assert!(sent("/c").is_some());
    assert_eq!(sent("/d").unwrap().body.to_string(), r#"{"n":1}"#);
}
