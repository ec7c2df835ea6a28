//! Kind, place and thing of an event. Payloads name them in several ways. Pure.

use serde_json::Value;

use crate::payload::text;

/// JSON Pointers of a project's path.
const PROJECTS: [&str; 4] = [
    "/project/path_with_namespace",
    "/path_with_namespace",
    "/project_path_with_namespace",
    "/object_attributes/target/path_with_namespace",
];

/// JSON Pointers of a group's path, for events without a project.
const GROUPS: [&str; 4] = [
    "/group/full_path",
    "/group/group_path",
    "/full_path",
    "/group_path",
];

/// JSON Pointers of the commit concerned.
const COMMITS: [&str; 6] = [
    "/object_attributes/last_commit/id",
    "/object_attributes/sha",
    "/object_attributes/commit_id",
    "/merge_request/last_commit/id",
    "/sha",
    "/checkout_sha",
];

/// Digit of the commit ID that GitLab sends for a branch or tag that does not exist.
const NO_COMMIT: char = '0';

/// The name of an event; `None` if the payload has none.
pub(super) fn event_name(body: &Value) -> Option<&str> {
    let kind = text(body, "/object_kind").or_else(|| text(body, "/event_name"))?;
    let is = |prefix: &str| kind.starts_with(prefix);
    Some(match kind {
        // The name in GitLab's settings and documentation.
        "build" => "job",
        "user_access_request_to_group"
        | "user_access_request_denied_for_group"
        | "user_add_to_group"
        | "user_add_to_team"
        | "user_remove_from_group"
        | "user_remove_from_team"
        | "user_update_for_group"
        | "user_update_for_team" => "member",
        _ if is("project_") => "project",
        _ if is("subgroup_") => "subgroup",
        other => other,
    })
}

/// The path of the project.
pub(super) fn project(body: &Value) -> Option<&str> {
    let named = PROJECTS.iter().find_map(|pointer| text(body, pointer));
    let named = named.filter(|path| !path.is_empty());
    // Vulnerabilities come with a link alone.
    named.or_else(|| path_in_link(text(body, "/object_attributes/url")?))
}

/// The path of the project whose page is at `link`.
fn path_in_link(link: &str) -> Option<&str> {
    let (_, behind) = link.split_once("://")?;
    let (_, path) = behind.split_once('/')?;
    let (project, _) = path.split_once("/-/")?;
    let group = project.strip_prefix("groups/");
    group.is_none().then_some(project)
}

/// The ID of the project.
pub(super) fn project_id(body: &Value) -> Option<u64> {
    let pointers = [
        "/project/id",
        "/project_id",
        "/object_attributes/project_id",
    ];
    let mut ids = pointers.iter().filter_map(|pointer| body.pointer(pointer));
    ids.find_map(Value::as_u64)
}

/// The path of the group.
pub(super) fn group(body: &Value) -> Option<&str> {
    GROUPS.iter().find_map(|pointer| text(body, pointer))
}

/// The account that acted, if the payload names it.
pub(super) fn sender<'v>(event: &str, body: &'v Value) -> Option<&'v str> {
    let mut pointers = [
        "/user/username",
        "/user_username",
        "/user/name",
        "/user_name",
    ]
    .iter();
    // The user of a `member` event is the member, not the author of the change.
    let is_named = event != "member";
    let found = pointers.find_map(|pointer| text(body, pointer).filter(|name| !name.is_empty()));
    found.filter(|_| is_named)
}

/// The issue or merge request, as GitLab's texts refer to it: `#7` or `!7`.
pub(super) fn reference(event: &str, body: &Value) -> Option<String> {
    let number = |pointer: &str| body.pointer(pointer).and_then(Value::as_u64);
    let own = || number("/object_attributes/iid");
    let of_issue = |number: u64| format!("#{number}");
    let of_merge_request = |number: u64| format!("!{number}");
    match event {
        "issue" | "work_item" => own().map(of_issue),
        "merge_request" => own().map(of_merge_request),
        "note" | "emoji" | "pipeline" | "job" => number("/merge_request/iid")
            .map(of_merge_request)
            .or_else(|| number("/issue/iid").map(of_issue)),
        _ => None,
    }
}

/// The commit concerned.
pub(super) fn commit(body: &Value) -> Option<&str> {
    let mut commits = COMMITS.iter().filter_map(|pointer| text(body, pointer));
    commits.find(|commit| !commit.is_empty())
}

/// True if a push created the branch or tag.
pub(super) fn is_created(body: &Value) -> bool {
    is_no_commit(body, "/before")
}

/// True if a push deleted the branch or tag.
pub(super) fn is_deleted(body: &Value) -> bool {
    is_no_commit(body, "/after")
}

fn is_no_commit(body: &Value, pointer: &str) -> bool {
    let commit = text(body, pointer).unwrap_or_default();
    !commit.is_empty() && commit.chars().all(|digit| digit == NO_COMMIT)
}

/// Changed fields that people do not change, or that only repeat another one.
const SILENT_CHANGES: [&str; 17] = [
    "author_id",
    "closed_at",
    "created_at",
    "head_pipeline_id",
    "id",
    "iid",
    "last_edited_at",
    "last_edited_by_id",
    "lock_version",
    "merge_status",
    "project_id",
    "relative_position",
    "state_id",
    "time_change",
    "updated_at",
    "updated_by_id",
    "url",
];

/// The changed fields of an issue or merge request with their former and new values.
pub(super) fn changes(body: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let changes = body.pointer("/changes").and_then(Value::as_object);
    let changes = changes.into_iter().flatten();
    changes
        .map(|(name, change)| (name.as_str(), change))
        .filter(|(name, _)| !SILENT_CHANGES.contains(name))
}

/// The most important change of an update: `commits`, or a field.
pub(super) fn change(body: &Value) -> Option<&str> {
    if text(body, "/object_attributes/oldrev").is_some() {
        return Some("commits");
    }
    let is = |wanted: &str| changes(body).any(|(name, _)| name == wanted);
    if is("draft") {
        let is_draft = body.pointer("/changes/draft/current") == Some(&Value::Bool(true));
        return Some(if is_draft { "draft" } else { "ready" });
    }
    let ordered = ["labels", "assignees", "reviewers", "milestone_id", "title"];
    let first = ordered.into_iter().find(|wanted| is(wanted));
    let first = first.or_else(|| changes(body).next().map(|(name, _)| name))?;
    Some(first.strip_suffix("_id").unwrap_or(first))
}

/// Names that only the first of two versions of a list has: `("current", "previous")` for added
/// names.
pub(super) fn difference<'v>(
    change: &'v Value,
    (in_list, not_in_list): (&str, &str),
    name: &str,
) -> Vec<&'v str> {
    let names = |list: &str| -> Vec<&'v str> {
        let items = change.get(list).and_then(Value::as_array);
        let items = items.into_iter().flatten();
        items
            .filter_map(|item| item.get(name).and_then(Value::as_str))
            .collect()
    };
    let without = names(not_in_list);
    let mut found = names(in_list);
    found.retain(|name| !without.contains(name));
    found
}
