//! GitLab deliveries over HTTP, and the actions of agents at a double of GitLab's API. The long form
//! sends the same actions by a client library of that API.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use goondan_protocol::call::{CallErrorCode, CallId, CallOrder, CallOutcome, Caller};
use goondan_protocol::ignored_messages::IgnoreReason;
use goondan_protocol::ipc::ToOrchestrator;
use goondan_tests::needs;
use goondan_tests::provider::{Provider, ProviderResponse, ReceivedRequest};
use hmac::{Hmac, Mac as _};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use sha2::Sha256;

use crate::http::{Client, post};
use crate::orchestrator::{Orchestrator, listening_address};

const SECRET: &str = "a-shared-secret";
const TOKEN: &str = "glpat-the-good-token";

/// The key of [`signing_token`].
const KEY: &[u8] = b"a key of 24 bytes or more";

const OWN_MARK: &str = "<!-- goondan -->";

/// Sends the actions by the client library: `1` installs it in a temporary directory.
const CLIENT_VAR: &str = "GOONDAN_TEST_GITLAB_CLIENT";

/// The client library, with the version that was tested last.
const CLIENT: &str = "@gitbeaker/rest@43";

const SCRIPT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/fixtures/gitlab-client.cjs"
);

fn signing_token() -> String {
    format!("whsec_{}", STANDARD.encode(KEY))
}

fn gitlab(config: &Value, secret: &str) -> (Orchestrator, SocketAddr) {
    let secrets = json!({"webhookSecret": secret});
    let mut orchestrator = Orchestrator::start_as("gitlab", config, &secrets);
    let address = listening_address(&orchestrator.status());
    (orchestrator, address)
}

/// A comment of user `user` on issue 7.
fn comment(user: u64, said: &str) -> Vec<u8> {
    let body = json!({"object_kind": "note", "user": {"id": user, "username": "ada"},
        "project": {"id": 15, "path_with_namespace": "acme/shop"},
        "object_attributes": {"id": 5, "note": said, "noteable_type": "Issue", "action": "create"},
        "issue": {"iid": 7, "title": "It breaks"}});
    body.to_string().into_bytes()
}

fn delivery(id: &str, body: &[u8]) -> Vec<u8> {
    let headers = [
        ("x-gitlab-event", "Note Hook"),
        ("x-gitlab-token", SECRET),
        ("idempotency-key", id),
        ("content-type", "application/json"),
    ];
    post(&headers, body)
}

#[test]
fn conn_3_gitlab_delivery_needs_the_secret_token() {
    let (mut orchestrator, address) = gitlab(&json!({}), SECRET);
    let body = comment(1, "Hello");
    for headers in [&[][..], &[("x-gitlab-token", "another-secret")]] {
        let mut client = Client::sending(address, &post(headers, &body));
        assert_eq!(client.response().status, 401);
    }
    let mut client = Client::sending(address, &delivery("d1", &body));
    let pending = orchestrator.event();
    assert_eq!(pending.event.id.as_ref().unwrap().as_str(), "d1");
    let expected = "ada commented on issue #7 \"It breaks\" in acme/shop\n\nHello";
    assert_eq!(pending.event.input, expected);
    orchestrator.accept(&pending, "d1", false);
    assert_eq!(client.response().status, 202);
}

#[test]
fn conn_3_gitlab_delivery_is_signed_by_a_signing_token() {
    let (mut orchestrator, address) = gitlab(&json!({}), &signing_token());
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let body = comment(1, "Hello");
    let signed = |time: u64, body: &[u8]| {
        let time = time.to_string();
        let mut keyed = Hmac::<Sha256>::new_from_slice(KEY).unwrap();
        for part in [&b"w1."[..], time.as_bytes(), b".", body] {
            keyed.update(part);
        }
        let signature = format!("v1,{}", STANDARD.encode(keyed.finalize().into_bytes()));
        (time, signature)
    };
    let deliver = |(time, signature): (String, String), body: &[u8]| {
        let headers = [
            ("webhook-id", "w1"),
            ("webhook-timestamp", time.as_str()),
            ("webhook-signature", signature.as_str()),
        ];
        Client::sending(address, &post(&headers, body))
    };
    let other = comment(1, "Bye");
    assert_eq!(deliver(signed(now, &body), &other).response().status, 401);
    let old = deliver(signed(now - 3_600, &body), &body).response();
    assert_eq!(old.status, 401);
    // The secret in clear text proves nothing.
    let token = signing_token();
    let mut client = Client::sending(address, &post(&[("x-gitlab-token", &token)], &body));
    assert_eq!(client.response().status, 401);
    let mut client = deliver(signed(now, &body), &body);
    let pending = orchestrator.event();
    assert_eq!(pending.event.id.as_ref().unwrap().as_str(), "w1");
    orchestrator.accept(&pending, "w1", false);
    assert_eq!(client.response().status, 202);
}

/// A double of GitLab with project acme/shop. It rejects what GitLab rejects: other tokens, missing
/// fields, and fields that it does not know.
fn double() -> Provider {
    let mut open: Vec<Value> = Vec::new();
    Provider::start(move |request| answer(request, &mut open))
}

fn answer(request: &ReceivedRequest, open: &mut Vec<Value>) -> ProviderResponse {
    if request.header("authorization") != Some(&format!("Bearer {TOKEN}")) {
        return ProviderResponse::error(401, &json!({"message": "401 Unauthorized"}));
    }
    let path = request.path.strip_prefix("/api/v4/").unwrap_or_default();
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let path = path
        .strip_prefix("projects/acme%2Fshop/")
        .unwrap_or(path)
        .to_owned();
    let number = open.len() + 3;
    let opened = json!({"id": 90, "iid": number, "source_branch": "fix/x", "target_branch": "main",
        "web_url": format!("https://gitlab.example/acme/shop/-/merge_requests/{number}")});
    match (request.method.as_str(), path.as_str()) {
        ("GET", "user") => {
            ProviderResponse::json(&json!({"id": 9, "username": "clerk", "bot": true}))
        }
        ("POST", "issues/7/notes" | "merge_requests/7/discussions/6a9c/notes") => {
            created(request, &["body"], &[], &json!({"id": 31, "type": null}))
        }
        ("POST", "issues/8/notes") => {
            let late = json!({"message": "This endpoint has been requested too many times."});
            ProviderResponse::error(429, &late).with_header("retry-after", "7")
        }
        ("POST", "issues") => created(
            request,
            &["title"],
            &["description", "labels"],
            &json!({"id": 84, "iid": 12, "web_url": "https://gitlab.example/acme/shop/-/issues/12"}),
        ),
        ("PUT", "issues/7") => created(
            request,
            &[],
            &[
                "title",
                "description",
                "add_labels",
                "remove_labels",
                "state_event",
            ],
            &json!({"id": 83, "iid": 7, "state": "closed"}),
        ),
        ("GET", "merge_requests/7") => ProviderResponse::json(&json!({"id": 85, "iid": 7,
            "title": "Sell books", "state": "opened", "draft": false, "labels": ["cart"],
            "author": {"username": "ada"}, "source_branch": "books", "target_branch": "main",
            "sha": "da1560886d4f", "head_pipeline": {"status": "failed"}, "milestone": null})),
        ("GET", "issues/7/notes") if query.contains("sort=desc") => {
            let note = |id: u64, said: &str| {
                json!({"id": id, "body": said, "system": false,
                "author": {"username": "ada"}, "created_at": "2026-01-01T00:00:00Z"})
            };
            let notes = json!([note(2, "Newer"), note(1, "Older")]);
            paged(&notes, "2")
        }
        ("GET", "merge_requests/7/diffs") => paged(
            &json!([{"old_path": "a.rs", "new_path": "a.rs", "new_file": false,
                "renamed_file": false, "deleted_file": false, "diff": "@@ -1 +1 @@\n-a\n+b\n"}]),
            "",
        ),
        ("POST", "statuses/da1560886d4f") => created(
            request,
            &["state"],
            &["name", "description", "target_url", "ref"],
            &json!({"id": 93, "status": "success"}),
        ),
        ("GET", "merge_requests") if query.contains("state=opened") => {
            paged(&Value::Array(open.clone()), "")
        }
        ("POST", "merge_requests") if !open.is_empty() => {
            let message = "Another open merge request already exists for this source branch: !3";
            ProviderResponse::error(409, &json!({"message": [message]}))
        }
        ("POST", "merge_requests") => {
            open.push(opened.clone());
            created(
                request,
                &["source_branch", "target_branch", "title"],
                &["description"],
                &opened,
            )
        }
        _ => ProviderResponse::error(404, &json!({"message": "404 Not found"})),
    }
}

fn paged(items: &Value, next: &str) -> ProviderResponse {
    let pages = [("x-page", "1"), ("x-per-page", "20"), ("x-next-page", next)];
    let response = ProviderResponse::json(items);
    pages.into_iter().fold(response, |response, (name, value)| {
        response.with_header(name, value)
    })
}

fn created(
    request: &ReceivedRequest,
    required: &[&str],
    optional: &[&str],
    answer: &Value,
) -> ProviderResponse {
    let is_json = request.header("content-type") == Some("application/json");
    let Some(fields) = request.body.as_object().filter(|_| is_json) else {
        return ProviderResponse::error(400, &json!({"error": "The body is not JSON"}));
    };
    if let Some(missing) = required.iter().find(|name| !fields.contains_key(**name)) {
        let error = format!("{missing} is missing");
        return ProviderResponse::error(400, &json!({"error": error}));
    }
    let mut names = fields.keys().map(String::as_str);
    let unknown = names.find(|name| !required.contains(name) && !optional.contains(name));
    if let Some(unknown) = unknown {
        // GitLab ignores it, which would hide a mistake.
        let error = format!("{unknown} is unknown");
        return ProviderResponse::error(400, &json!({"error": error}));
    }
    let status = if request.method == "PUT" { 200 } else { 201 };
    ProviderResponse::error(status, answer)
}

/// A connector that acts at the double for agents.
fn acting(double: &Provider, config: &Value) -> (Orchestrator, SocketAddr) {
    let mut config = config.clone();
    config["endpoint"] = json!(format!("{}/api/v4", double.root()));
    let secrets = json!({"webhookSecret": SECRET, "token": TOKEN});
    let mut orchestrator = Orchestrator::start_as("gitlab", &config, &secrets);
    let address = listening_address(&orchestrator.status());
    orchestrator.status_saying("writing as clerk");
    (orchestrator, address)
}

static CALLS: AtomicU64 = AtomicU64::new(1);

fn act(orchestrator: &mut Orchestrator, method: &str, params: &Value) -> CallOutcome {
    orchestrator.call(CallOrder {
        call_id: CallId(CALLS.fetch_add(1, Ordering::Relaxed)),
        caller: Caller {
            agent: "clerk".parse().unwrap(),
            instance_key: "k".parse().unwrap(),
        },
        event_id: None,
        method: method.to_owned(),
        params: to_raw_value(params).unwrap(),
        deadline_ms: 60_000,
        again_since: None,
    });
    loop {
        match orchestrator.receive().1 {
            ToOrchestrator::Status(_) => {}
            ToOrchestrator::CallResult(result) => return result.outcome,
            other => panic!("expected the result of a call, got {other:?}"),
        }
    }
}

/// The actions of the script, each with its result for the agent.
fn actions() -> Vec<(&'static str, Value, Value)> {
    vec![
        (
            "comment",
            json!({"reference": "#7", "body": "Done."}),
            json!({"comment": 31}),
        ),
        (
            "comment",
            json!({"reference": "!7", "body": "Done.", "discussion": "6a9c"}),
            json!({"comment": 31}),
        ),
        (
            "openIssue",
            json!({"title": "It breaks", "description": "Badly.", "labels": ["bug", "cart"]}),
            json!({"reference": "#12", "url": "https://gitlab.example/acme/shop/-/issues/12"}),
        ),
        (
            "edit",
            json!({"reference": "#7", "addLabels": ["bug"], "removeLabels": ["new"],
                "state": "close"}),
            json!({}),
        ),
        (
            "read",
            json!({"reference": "!7"}),
            json!({"reference": "!7", "title": "Sell books", "state": "opened", "author": "ada",
                "labels": ["cart"], "source": "books", "target": "main", "draft": false,
                "pipeline": "failed", "commit": "da1560886d4f"}),
        ),
        (
            "comments",
            json!({"reference": "#7", "page": 1}),
            json!({"comments": [
                {"comment": 1, "author": "ada", "createdAt": "2026-01-01T00:00:00Z",
                    "isSystem": false, "text": "Older"},
                {"comment": 2, "author": "ada", "createdAt": "2026-01-01T00:00:00Z",
                    "isSystem": false, "text": "Newer"}], "nextPage": 2}),
        ),
        (
            "diff",
            json!({"reference": "!7", "page": 1}),
            json!({"files": [{"path": "a.rs", "change": "changed", "diff": "@@ -1 +1 @@\n-a\n+b\n"}],
                "nextPage": null}),
        ),
        (
            "setStatus",
            json!({"commit": "da1560886d4f", "state": "success", "description": "Fine"}),
            json!({}),
        ),
        (
            "openMergeRequest",
            json!({"source": "fix/x", "target": "main", "title": "Mend it",
                "description": "At last."}),
            json!({"reference": "!3", "url": "https://gitlab.example/acme/shop/-/merge_requests/3"}),
        ),
    ]
}

fn act_all(orchestrator: &mut Orchestrator) {
    for (method, mut params, expected) in actions() {
        params["project"] = json!("acme/shop");
        match act(orchestrator, method, &params) {
            CallOutcome::Ok(result) => {
                let result: Value = serde_json::from_str(result.get()).unwrap();
                assert_eq!(result, expected, "{method}");
            }
            CallOutcome::Error(error) => panic!("{method}: {error}"),
        }
    }
}

#[test]
fn agents_act_on_gitlab_within_their_projects() {
    let double = double();
    let (mut orchestrator, _) = acting(&double, &json!({"projects": ["Acme/Shop"]}));
    act_all(&mut orchestrator);
    let comment = &double.received()[1];
    assert_eq!(comment.body["body"], format!("Done.\n\n{OWN_MARK}"));

    // The merge request of an earlier request is found.
    let again = json!({"project": "acme/shop", "source": "fix/x", "target": "main", "title": "T"});
    let sent = double.received().len();
    match act(&mut orchestrator, "openMergeRequest", &again) {
        CallOutcome::Ok(result) => assert!(result.get().contains("\"!3\""), "{result}"),
        CallOutcome::Error(error) => panic!("{error}"),
    }
    assert_eq!(double.received().len(), sent + 1);

    let error = |orchestrator: &mut Orchestrator, project: &str, reference: &str| {
        let params = json!({"project": project, "reference": reference, "body": "x"});
        match act(orchestrator, "comment", &params) {
            CallOutcome::Error(error) => error,
            CallOutcome::Ok(result) => panic!("{result}"),
        }
    };
    let limited = error(&mut orchestrator, "acme/shop", "#8");
    assert_eq!(
        (limited.code, limited.retry_after_ms),
        (CallErrorCode::RateLimited, Some(7_000))
    );
    let missing = error(&mut orchestrator, "acme/shop", "#9");
    assert_eq!(missing.code, CallErrorCode::NotFound);
    let sent = double.received().len();
    let elsewhere = error(&mut orchestrator, "acme/other", "#7");
    assert_eq!(elsewhere.code, CallErrorCode::Refused);
    assert_eq!(double.received().len(), sent);
}

#[test]
fn conn_1_what_the_bot_does_on_gitlab_is_not_an_event() {
    let double = double();
    let (mut orchestrator, address) = acting(&double, &json!({}));
    let mut client = Client::sending(address, &delivery("d1", &comment(9, "By the bot")));
    assert_eq!(orchestrator.ignored(), IgnoreReason::Own);
    assert_eq!(client.response().status, 200);
    let marked = comment(1, &format!("By its text\n\n{OWN_MARK}"));
    let mut client = Client::sending(address, &delivery("d2", &marked));
    assert_eq!(orchestrator.ignored(), IgnoreReason::Own);
    assert_eq!(client.response().status, 200);
    // A run that the bot caused is news to it.
    let pipeline = json!({"object_kind": "pipeline", "user": {"id": 9, "username": "clerk"},
        "project": {"path_with_namespace": "acme/shop"},
        "object_attributes": {"id": 31, "ref": "fix", "status": "failed"}});
    let body = pipeline.to_string().into_bytes();
    let mut client = Client::sending(address, &delivery("d3", &body));
    let pending = orchestrator.event();
    let said = &pending.event.input;
    assert!(
        said.starts_with("pipeline 31 failed on branch fix in acme/shop"),
        "{said}"
    );
    orchestrator.accept(&pending, "d3", false);
    assert_eq!(client.response().status, 202);
}

/// Requests to a double in order: method, path and body.
fn requests(double: &Provider) -> Vec<(String, String, Value)> {
    let received = double.received().into_iter();
    let requests = received.map(|it| {
        let body = if it.method == "GET" {
            Value::Null
        } else {
            it.body
        };
        (it.method, it.path, body)
    });
    requests.collect()
}

#[test]
fn client_library_of_gitlab_sends_the_requests_of_the_connector() {
    if std::env::var_os(CLIENT_VAR).is_none() {
        needs::note_left_out(&format!("{CLIENT_VAR} is not set"));
        return;
    }
    if !needs::program("node") || !needs::program("npm") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut npm = Command::new("npm");
    npm.args([
        "install",
        "--no-audit",
        "--no-fund",
        "--ignore-scripts",
        "--prefix",
    ]);
    let installed = npm.arg(directory.path()).arg(CLIENT).output().unwrap();
    let said = String::from_utf8_lossy(&installed.stderr);
    assert!(installed.status.success(), "npm: {said}");
    let theirs = double();
    let ran = Command::new("node")
        .args([SCRIPT, &theirs.root(), TOKEN, OWN_MARK])
        .env("NODE_PATH", directory.path().join("node_modules"))
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "node: {printed}");
    // The library reads the answers of the double as those of GitLab.
    let results: Value = serde_json::from_slice(&ran.stdout).unwrap();
    for (pointer, value) in [
        ("/user/username", json!("clerk")),
        ("/comment/id", json!(31)),
        ("/openIssue/iid", json!(12)),
        ("/read/head_pipeline/status", json!("failed")),
        ("/comments/data/0/body", json!("Newer")),
        ("/comments/paginationInfo/next", json!(2)),
        ("/diff/data/0/new_path", json!("a.rs")),
        ("/open", json!([])),
        ("/openMergeRequest/iid", json!(3)),
    ] {
        assert_eq!(results.pointer(pointer), Some(&value), "{pointer}");
    }
    let ours = double();
    let (mut orchestrator, _) = acting(&ours, &json!({}));
    act_all(&mut orchestrator);
    assert_eq!(requests(&theirs), requests(&ours));
}
