//! Properties of GitHub events, for ingress rules. Pure.

use goondan_protocol::JsonObject;
use serde_json::{Value, json};

use crate::limits::PROPERTY_BYTES_MAX;
use crate::payload::text;
use crate::sentence::values::ref_name;

/// The properties of an event, each with the JSON Pointers of its value; the first one that has a
/// value counts. `docs/connectors/github.md` lists them.
pub(crate) const PROPERTIES: &[(&str, &[&str])] = &[
    ("action", &["/action"]),
    ("repository", &["/repository/full_name"]),
    ("repositoryId", &["/repository/id"]),
    ("organization", &["/organization/login"]),
    ("private", &["/repository/private"]),
    ("sender", &["/sender/login"]),
    ("senderType", &["/sender/type"]),
    (
        "author",
        &[
            "/comment/user/login",
            "/review/user/login",
            "/issue/user/login",
            "/pull_request/user/login",
            "/discussion/user/login",
            "/release/author/login",
        ],
    ),
    (
        "authorAssociation",
        &[
            "/comment/author_association",
            "/review/author_association",
            "/issue/author_association",
            "/pull_request/author_association",
            "/discussion/author_association",
        ],
    ),
    (
        "state",
        &[
            "/review/state",
            "/deployment_status/state",
            "/alert/state",
            "/issue/state",
            "/pull_request/state",
            "/discussion/state",
            "/milestone/state",
            "/state",
        ],
    ),
    ("stateReason", &["/issue/state_reason"]),
    (
        "status",
        &[
            "/workflow_job/status",
            "/check_run/status",
            "/check_suite/status",
            "/workflow_run/status",
            "/build/status",
            "/status",
        ],
    ),
    (
        "conclusion",
        &[
            "/workflow_job/conclusion",
            "/check_run/conclusion",
            "/check_suite/conclusion",
            "/workflow_run/conclusion",
        ],
    ),
    (
        "name",
        &[
            "/workflow_job/name",
            "/check_run/name",
            "/workflow_run/name",
            "/context",
            "/package/name",
            "/registry_package/name",
        ],
    ),
    (
        "workflow",
        &[
            "/workflow/name",
            "/workflow_run/name",
            "/workflow_job/workflow_name",
            "/workflow",
        ],
    ),
    (
        "environment",
        &[
            "/deployment_status/environment",
            "/deployment/environment",
            "/environment",
        ],
    ),
    ("label", &["/label/name"]),
    (
        "milestone",
        &[
            "/milestone/title",
            "/issue/milestone/title",
            "/pull_request/milestone/title",
        ],
    ),
    ("assignee", &["/assignee/login"]),
    (
        "reviewer",
        &["/requested_reviewer/login", "/requested_team/slug"],
    ),
    ("merged", &["/pull_request/merged"]),
    ("draft", &["/pull_request/draft", "/release/draft"]),
    ("prerelease", &["/release/prerelease"]),
    (
        "base",
        &[
            "/pull_request/base/ref",
            "/base_ref",
            "/merge_group/base_ref",
        ],
    ),
    ("ref", &["/ref"]),
    ("created", &["/created"]),
    ("deleted", &["/deleted"]),
    ("forced", &["/forced"]),
    (
        "severity",
        &[
            "/alert/rule/security_severity_level",
            "/alert/security_advisory/severity",
            "/alert/severity",
            "/alert/rule/severity",
            "/security_advisory/severity",
            "/repository_advisory/severity",
        ],
    ),
    ("team", &["/team/slug"]),
    ("member", &["/member/login", "/membership/user/login"]),
    ("category", &["/discussion/category/name"]),
];

/// The properties of an event.
pub(super) fn of(event: &str, number: Option<u64>, body: &Value) -> JsonObject {
    let mut facts = JsonObject::new();
    facts.insert("event".to_owned(), json!(event));
    for (name, pointers) in PROPERTIES {
        let mut values = pointers.iter().filter_map(|pointer| body.pointer(pointer));
        if let Some(value) = values.find(|value| is_property(value)) {
            facts.insert((*name).to_owned(), value.clone());
        }
    }
    let refs = [("branch", branch(event, body)), ("tag", tag(event, body))];
    for (name, value) in refs {
        if let Some(value) = value.filter(|value| value.len() <= PROPERTY_BYTES_MAX) {
            facts.insert(name.to_owned(), json!(value));
        }
    }
    if let Some(base) = facts.get_mut("base")
        && let Some(name) = base.as_str().map(|name| ref_name(name).to_owned())
    {
        *base = json!(name);
    }
    if let Some(number) = number {
        facts.insert("number".to_owned(), json!(number));
        let is_pull = body.pointer("/pull_request").is_some()
            || body.pointer("/issue/pull_request").is_some();
        facts.insert("isPullRequest".to_owned(), json!(is_pull));
    }
    facts
}

fn is_property(value: &Value) -> bool {
    match value {
        Value::String(text) => !text.is_empty() && text.len() <= PROPERTY_BYTES_MAX,
        Value::Number(_) | Value::Bool(_) => true,
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    }
}

/// The branch concerned: that of a push, a check or a run, or the head of a pull request.
fn branch<'v>(event: &str, body: &'v Value) -> Option<&'v str> {
    let name = text(body, "/ref").unwrap_or_default();
    if let Some(branch) = name.strip_prefix("refs/heads/") {
        return Some(branch);
    }
    if matches!(event, "create" | "delete") {
        return (text(body, "/ref_type") == Some("branch")).then_some(name);
    }
    [
        "/check_run/check_suite/head_branch",
        "/check_suite/head_branch",
        "/workflow_run/head_branch",
        "/workflow_job/head_branch",
        "/pull_request/head/ref",
    ]
    .iter()
    .find_map(|pointer| text(body, pointer))
}

/// The tag of a push, of its creation or deletion, or of a release.
fn tag<'v>(event: &str, body: &'v Value) -> Option<&'v str> {
    let name = text(body, "/ref").unwrap_or_default();
    if let Some(tag) = name.strip_prefix("refs/tags/") {
        return Some(tag);
    }
    if matches!(event, "create" | "delete") {
        return (text(body, "/ref_type") == Some("tag")).then_some(name);
    }
    text(body, "/release/tag_name")
}
