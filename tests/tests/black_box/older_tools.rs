//! The tools of `@goondan/base` 0.0.3 under their names, with their arguments and JSON results (`COMPAT-2`).

use goondan_tests::telegram::{TOKEN, Telegram};
use goondan_tests::{Daemon, Home};
use serde_json::{Value, json};

/// A bundle for the older package in which the agent makes the call with the number in the message.
pub(crate) fn bundle(calls: &[(&str, Value)], more: &str) -> String {
    let rules: Vec<String> = calls
        .iter()
        .enumerate()
        .map(|(number, (tool, args))| {
            let call = json!({"tool": tool, "args": args});
            format!("      - {{when: {{user: '^call {number}$', step: 1}}, call: [{call}]}}\n")
        })
        .collect();
    let tools = [
        "agents",
        "bash",
        "file-system",
        "json-query",
        "self-restart",
        "text-transform",
        "wait",
    ];
    let tools: Vec<String> = tools
        .iter()
        .map(|tool| format!("    - ref: Tool/{tool}\n"))
        .collect();
    format!(
        "apiVersion: goondan.ai/v1\nkind: Package\nmetadata: {{name: '@acme/tools'}}\nspec:\n  dependencies:\n    \
         - {{name: '@goondan/base', version: ^0.0.3-alpha29}}\n---\n\
         apiVersion: goondan.ai/v1\nkind: Model\nmetadata: {{name: main}}\nspec:\n  provider: scripted\n  \
         options:\n    rules:\n      - {{when: {{user: '^hello'}}, say: Hello to you.}}\n{}      - say: '${{result}}'\n---\n\
         apiVersion: goondan.ai/v1\nkind: Agent\nmetadata: {{name: clerk}}\nspec:\n  modelConfig: {{modelRef: \
         Model/main}}\n  tools:\n{}{more}---\n\
         apiVersion: goondan.ai/v1\nkind: Agent\nmetadata: {{name: worker}}\nspec:\n  modelConfig: {{modelRef: \
         Model/main}}\n---\n\
         apiVersion: goondan.ai/v1\nkind: Swarm\nmetadata: {{name: team}}\nspec:\n  entryAgent: Agent/clerk\n  \
         agents: [{{ref: Agent/clerk}}, {{ref: Agent/worker}}]\n",
        rules.concat(),
        tools.concat(),
    )
}

/// Result of each call, as JSON.
pub(crate) fn results(home: &Home, count: usize) -> Vec<Value> {
    let asked = (0..count).map(|number| {
        let text = home.ask("main", &format!("call {number}"));
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("call {number}: no JSON: {text}"))
    });
    asked.collect()
}

/// Every field of `expected` is in `found`, with that value.
pub(crate) fn holds(found: &Value, expected: &Value, call: &str) {
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(found.get(name), Some(value), "{call}: `{name}` of {found}");
    }
}

#[test]
fn compat_2_texts_and_documents_have_their_results() {
    let calls = [
        (
            "json-query__query",
            json!({"data": r#"{"users":[{"name":"Ada"}]}"#, "path": "users[0].name"}),
        ),
        (
            "json-query__pick",
            json!({"data": r#"{"a":1,"b":2}"#, "keys": ["a", "c"]}),
        ),
        ("json-query__count", json!({"data": "[1,2,3]"})),
        ("json-query__flatten", json!({"data": "[1,[2,[3]]]"})),
        (
            "text-transform__replace",
            json!({"text": "a-a", "search": "a", "replacement": "b"}),
        ),
        (
            "text-transform__replace",
            json!({"text": "a-a", "search": "a", "all": true}),
        ),
        (
            "text-transform__slice",
            json!({"text": "hello world", "start": 0, "end": 5}),
        ),
        (
            "text-transform__split",
            json!({"text": "a,b,c", "delimiter": ",", "maxParts": 2}),
        ),
        (
            "text-transform__join",
            json!({"parts": ["a", 1, true], "delimiter": "-"}),
        ),
        (
            "text-transform__trim",
            json!({"text": "  x ", "mode": "start"}),
        ),
        ("text-transform__case", json!({"text": "Ab", "to": "upper"})),
        ("wait__seconds", json!({"seconds": 0})),
        ("wait__seconds", json!({"seconds": 0.0015})),
        (
            "text-transform__slice",
            json!({"text": "a😀b", "start": -3, "end": -1}),
        ),
    ];
    let home = Home::new(&bundle(&calls, ""));
    let _daemon = Daemon::serving(&home);
    let found = results(&home, calls.len());
    let expected = [
        json!({"path": "users[0].name", "found": true, "value": "Ada"}),
        json!({"keys": ["a", "c"], "result": {"a": 1}}),
        json!({"path": ".", "count": 3, "type": "array"}),
        json!({"depth": 1, "count": 3, "result": [1, 2, [3]]}),
        json!({"original": "a-a", "result": "b-a", "replacements": 1}),
        json!({"original": "a-a", "result": "-", "replacements": 2}),
        json!({"original": "hello world", "result": "hello", "start": 0, "end": 5, "length": 5}),
        json!({"delimiter": ",", "count": 2, "parts": ["a", "b"]}),
        json!({"delimiter": "-", "count": 3, "result": "a-1-true"}),
        json!({"original": "  x ", "result": "x ", "mode": "start", "trimmedLength": 2}),
        json!({"original": "Ab", "result": "AB", "to": "upper"}),
        json!({"waitedSeconds": 0, "waitedMs": 0}),
        json!({"waitedSeconds": 0.0015, "waitedMs": 2}),
        json!({"original": "a😀b", "result": "😀", "start": -3, "end": -1, "length": 2}),
    ];
    for ((found, expected), (call, _)) in found.iter().zip(&expected).zip(&calls) {
        assert_eq!(found, expected, "{call}");
    }
}

#[test]
fn compat_2_commands_and_files_have_their_results() {
    let calls = [
        ("file-system__mkdir", json!({"path": "sub/deep"})),
        (
            "file-system__write",
            json!({"path": "sub/a.txt", "content": "one\n"}),
        ),
        (
            "file-system__write",
            json!({"path": "sub/a.txt", "content": "two\n", "append": true}),
        ),
        (
            "file-system__read",
            json!({"path": "sub/a.txt", "maxBytes": 5}),
        ),
        (
            "file-system__list",
            json!({"path": "sub", "recursive": true, "includeDirs": false}),
        ),
        (
            "file-system__write",
            json!({"path": "run.sh", "content": "echo $1 $WORD; exit 3\n"}),
        ),
        (
            "bash__exec",
            json!({"command": "pwd; echo $WORD >&2", "cwd": "sub", "env": {"WORD": "it's", "N": 1}}),
        ),
        (
            "bash__script",
            json!({"path": "run.sh", "args": ["a b"], "env": {"WORD": "c"}}),
        ),
        (
            "bash__exec",
            json!({"command": "sleep 30", "timeoutMs": 200}),
        ),
        (
            "bash__exec",
            json!({"command": "echo \"$0\"", "timeoutMs": 0}),
        ),
        (
            "file-system__list",
            json!({"path": "sub/../sub/", "includeFiles": false}),
        ),
        (
            "file-system__read",
            json!({"path": "sub/../run.sh", "maxBytes": 4}),
        ),
    ];
    let home = Home::new(&bundle(&calls, ""));
    let _daemon = Daemon::serving(&home);
    let found = results(&home, calls.len());
    let work = home.work_dir("main").canonicalize().unwrap();
    let under = |path: &str| json!(work.join(path));
    let expected = [
        json!({"path": under("sub/deep"), "created": true, "recursive": true}),
        json!({"path": under("sub/a.txt"), "size": 4, "written": true, "append": false}),
        json!({"size": 8, "written": true, "append": true}),
        json!({"size": 8, "truncated": true, "content": "one\nt"}),
        json!({"path": under("sub"), "recursive": true, "count": 1, "entries": [
            {"name": "a.txt", "path": under("sub/a.txt"), "type": "file", "size": 8},
        ]}),
        json!({"written": true}),
        json!({"command": "pwd; echo $WORD >&2", "cwd": under("sub"), "exitCode": 0, "stderr": "it's\n",
               "stdout": format!("{}\n", work.join("sub").display()), "signal": null, "timedOut": false}),
        json!({"path": under("run.sh"), "shell": "/bin/bash", "args": ["a b"], "exitCode": 3,
               "stdout": "a b c\n"}),
        json!({"timedOut": true, "exitCode": -1, "signal": "SIGTERM", "stdout": ""}),
        json!({"exitCode": 0, "stdout": "/bin/sh\n"}),
        json!({"path": format!("{}/", work.join("sub").display()), "recursive": false, "count": 1, "entries": [
            {"name": "deep", "path": under("sub/deep"), "type": "dir"},
        ]}),
        json!({"path": under("run.sh"), "truncated": true, "content": "echo"}),
    ];
    for ((found, expected), (call, _)) in found.iter().zip(&expected).zip(&calls) {
        holds(found, expected, call);
    }
}

#[test]
fn compat_2_calls_that_failed_in_0_0_3_fail() {
    let calls = [
        ("wait__seconds", json!({"seconds": -1})),
        ("wait__seconds", json!({"seconds": 300.5})),
        (
            "file-system__mkdir",
            json!({"path": "a/b", "recursive": false}),
        ),
        (
            "file-system__mkdir",
            json!({"path": ".", "recursive": false}),
        ),
        ("file-system__write", json!({"path": "a", "content": ""})),
        ("file-system__write", json!({"path": "b/", "content": ""})),
        ("file-system__read", json!({"path": "none"})),
        ("bash__exec", json!({"command": "pwd", "cwd": "none"})),
        ("bash__exec", json!({"command": "pwd", "env": {"A": {}}})),
        ("bash__script", json!({"path": "none.sh"})),
        ("text-transform__slice", json!({"text": ""})),
        ("json-query__query", json!({"data": "{"})),
    ];
    let home = Home::new(&bundle(&calls, ""));
    let _daemon = Daemon::serving(&home);
    for (number, (call, args)) in calls.iter().enumerate() {
        let text = home.ask("main", &format!("call {number}"));
        assert!(text.contains("E_"), "{call} {args}: {text}");
    }
}

#[test]
fn compat_2_other_agents_are_reached_as_they_were() {
    let calls = [
        ("agents__catalog", json!({})),
        (
            "agents__request",
            json!({"target": "worker", "input": "hello", "metadata": {"a": 1}}),
        ),
        (
            "agents__send",
            json!({"target": "worker", "input": "hello", "eventType": "note"}),
        ),
        (
            "agents__spawn",
            json!({"target": "worker", "instanceKey": "w1"}),
        ),
        ("agents__list", json!({})),
        ("agents__list", json!({"includeAll": true})),
        ("self-restart__request", json!({"reason": " "})),
    ];
    let home = Home::new(&bundle(&calls, ""));
    let _daemon = Daemon::serving(&home);
    let found = results(&home, calls.len());
    let expected = [
        json!({"swarmName": "team", "entryAgent": "clerk", "selfAgent": "clerk", "availableCount": 2,
               "callableCount": 1, "availableAgents": ["clerk", "worker"], "callableAgents": ["worker"]}),
        json!({"target": "worker", "accepted": true, "async": false, "response": "Hello to you."}),
        json!({"target": "worker", "accepted": true}),
        json!({"target": "worker", "instanceKey": "w1", "spawned": true, "cwd": null}),
        json!({"count": 1}),
        json!({}),
        json!({"ok": true, "restartRequested": true, "restartReason": "tool:self-restart"}),
    ];
    for ((found, expected), (call, _)) in found.iter().zip(&expected).zip(&calls) {
        holds(found, expected, call);
    }
    holds(
        &found[4]["agents"][0],
        &json!({"target": "worker", "instanceKey": "w1", "ownerAgent": "clerk", "ownerInstanceKey": "main",
                "cwd": null}),
        "list",
    );
    // With `includeAll`, also the conversation that the request began.
    assert!(
        found[5]["count"].as_u64() > found[4]["count"].as_u64(),
        "{}",
        found[5]
    );
    assert!(found[1]["eventId"].is_string() && found[1]["correlationId"].is_string());
}

#[test]
fn compat_2_telegram_sends_through_an_implicit_connection() {
    let telegram = Telegram::start();
    let calls = [
        (
            "telegram__send",
            json!({"chatId": 5, "text": "hi", "token": "other", "disableNotification": true}),
        ),
        (
            "telegram__setChatAction",
            json!({"chatId": "5", "action": "upload-photo"}),
        ),
        (
            "telegram__send",
            json!({"chatId": "5", "text": "more", "replyToMessageId": "7", "allowSendingWithoutReply": true,
                   "disableWebPagePreview": true, "parseMode": "markdown-v2"}),
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
    let found = results(&home, calls.len());
    holds(
        &found[0],
        &json!({"ok": true, "chatId": "5", "text": "hi", "date": 1}),
        "send",
    );
    assert!(found[0]["messageId"].is_number(), "{}", found[0]);
    holds(
        &found[1],
        &json!({"ok": true, "chatId": "5", "status": "upload_photo", "action": "upload_photo"}),
        "setChatAction",
    );
    assert_eq!(telegram.written_to(5), ["hi", "more"]);
    let deeds = telegram.deeds();
    assert_eq!(deeds[0].params["disable_notification"], true);
    assert_eq!(deeds[1].params["action"], "upload_photo");
    let expected = json!({"chat_id": 5, "text": "more", "parse_mode": "MarkdownV2", "reply_to_message_id": 7,
        "allow_sending_without_reply": true, "disable_web_page_preview": true});
    assert_eq!(deeds[2].params, expected);
}
