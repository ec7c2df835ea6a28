//! A comment in a thread on GitLab is answered in the thread, through a double of GitLab's API.

use goondan_tests::provider::{Provider, ProviderResponse};
use goondan_tests::{Daemon, Home, http, wait_until};
use serde_json::json;

use crate::replies::{history, last_result, project};

const SECRET: &str = "a-shared-secret";
const TOKEN: &str = "glpat-the-good-token";

const THREAD: &str = "/api/v4/projects/acme%2Fshop/merge_requests/7/discussions/6a9c/notes";

/// A double of GitLab that limits the rate of the first comment.
fn gitlab_double() -> Provider {
    let mut comments = 0;
    Provider::start(move |request| {
        if request.header("authorization") != Some(&format!("Bearer {TOKEN}")) {
            return ProviderResponse::error(401, &json!({"message": "401 Unauthorized"}));
        }
        match request.path.as_str() {
            "/api/v4/user" => ProviderResponse::json(&json!({"id": 9, "username": "clerk"})),
            THREAD => {
                comments += 1;
                if comments == 1 {
                    let late = json!({"message": "Retry later"});
                    return ProviderResponse::error(429, &late).with_header("retry-after", "1");
                }
                ProviderResponse::error(201, &json!({"id": 99}))
            }
            _ => ProviderResponse::error(404, &json!({"message": "404 Not found"})),
        }
    })
}

#[test]
fn conn_1_comment_on_gitlab_is_answered_in_its_thread() {
    let gitlab = gitlab_double();
    let connection = format!(
        "  config: {{endpoint: \"{}/api/v4\", projects: [acme/shop]}}\n  secrets: {{webhookSecret: \
         {{value: {SECRET}}}, token: {{value: {TOKEN}}}}}\n  ingress:\n    rules:\n      \
         - match: {{event: note, properties: {{noteType: MergeRequest, project: Acme/Shop}}}}",
        gitlab.root()
    );
    let home = Home::new(&project(
        ("gitlab", "comment", "body"),
        "gitlab",
        "",
        &connection,
    ));
    let daemon = Daemon::serving(&home);
    let deliver = |id: &str, kind: &str, said: &str| {
        let body = json!({"object_kind": "note", "user": {"id": 5, "username": "ada"},
            "project": {"id": 15, "path_with_namespace": "acme/shop"},
            "object_attributes": {"id": 5, "note": said, "noteable_type": kind,
                "discussion_id": "6a9c", "action": "create"},
            "merge_request": {"iid": 7, "title": "Sell books"}});
        let headers = [
            ("x-gitlab-event", "Note Hook"),
            ("x-gitlab-token", SECRET),
            ("x-gitlab-event-uuid", id),
            ("content-type", "application/json"),
        ];
        http::post(daemon.webhook("gitlab"), "/", &headers, &body.to_string()).unwrap()
    };
    assert_eq!(
        deliver("u1", "MergeRequest", "say It is mended.").status,
        202
    );
    let messages = history(&home, "gitlab:acme/shop!7", 4);
    assert!(
        last_result(&messages).contains("\"comment\":99"),
        "{messages:?}"
    );
    let mut comments = gitlab.received();
    comments.retain(|request| request.path == THREAD);
    let [late, comment] = comments.as_slice() else {
        panic!("{comments:?}");
    };
    assert_eq!(late.body, comment.body);
    let text = comment.body["body"].as_str().unwrap();
    assert!(text.starts_with("It is mended."), "{text}");
    // Neither the agent's own comment nor one that no rule takes is an event.
    let back = deliver("u2", "MergeRequest", text);
    assert!(
        back.status == 200 && back.body.contains("goondan did it"),
        "{back:?}"
    );
    assert_eq!(deliver("u3", "Commit", "say No.").status, 200);
    wait_until("the account is shown", || {
        let shown = home.ps();
        let mut processes = shown.iter();
        processes.any(|process| process["detail"].to_string().contains("writing as clerk"))
    });
    let log = daemon.stop();
    assert!(!format!("{:?}", log.lines()).contains(TOKEN));
}
