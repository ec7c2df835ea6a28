//! Properties of GitLab events, for ingress rules. Pure.

use goondan_protocol::JsonObject;
use serde_json::{Value, json};

use super::{origin, sentences};
use crate::limits::PROPERTY_BYTES_MAX;
use crate::payload::text;
use crate::sentence::values::ref_name;

/// Properties of events, each with the JSON Pointers of its value; the first one that has a value
/// counts. `docs/connectors/gitlab.md` lists them.
pub(crate) const PROPERTIES: &[(&str, &[&str])] = &[
    (
        "state",
        &[
            "/object_attributes/state",
            "/merge_request/state",
            "/issue/state",
        ],
    ),
    (
        "status",
        &["/object_attributes/status", "/build_status", "/status"],
    ),
    (
        "name",
        &[
            "/build_name",
            "/object_attributes/name",
            "/object_attributes/title",
            "/name",
        ],
    ),
    ("stage", &["/build_stage"]),
    ("reason", &["/build_failure_reason"]),
    ("source", &["/object_attributes/source"]),
    ("environment", &["/environment", "/environment/name"]),
    ("noteType", &["/object_attributes/noteable_type"]),
    ("type", &["/object_attributes/type", "/issue/type"]),
    (
        "confidential",
        &["/object_attributes/confidential", "/issue/confidential"],
    ),
    (
        "draft",
        &["/object_attributes/draft", "/merge_request/draft"],
    ),
    (
        "base",
        &[
            "/object_attributes/target_branch",
            "/merge_request/target_branch",
        ],
    ),
    ("ref", &["/ref", "/object_attributes/ref"]),
    ("severity", &["/object_attributes/severity"]),
    ("active", &["/object_attributes/active"]),
];

/// The properties of an event.
pub(super) fn of(event: &str, body: &Value) -> JsonObject {
    let mut facts = JsonObject::new();
    facts.insert("event".to_owned(), json!(event));
    for (name, pointers) in PROPERTIES {
        let mut values = pointers.iter().filter_map(|pointer| body.pointer(pointer));
        if let Some(value) = values.find(|value| is_property(value)) {
            facts.insert((*name).to_owned(), value.clone());
        }
    }
    let mut add = |name: &str, value: Option<Value>| {
        if let Some(value) = value.filter(is_property) {
            facts.insert(name.to_owned(), value);
        }
    };
    let word = |value: Option<&str>| value.map(|value| json!(value));
    let reference = origin::reference(event, body);
    let is_merge_request = reference.as_ref().map(|it| json!(it.starts_with('!')));
    let number = reference
        .as_deref()
        .and_then(|it| it.get(1..)?.parse::<u64>().ok());
    let is_update = sentences::action(body) == "update" && event != "note";
    add("action", word(Some(sentences::action(body))));
    add("change", word(origin::change(body).filter(|_| is_update)));
    add("project", word(origin::project(body)));
    add("projectId", origin::project_id(body).map(|id| json!(id)));
    add("group", word(origin::group(body)));
    add("sender", word(origin::sender(event, body)));
    add("reference", word(reference.as_deref()));
    add("number", number.map(|number| json!(number)));
    add("isMergeRequest", is_merge_request);
    add("label", word(label(body)));
    add("branch", word(branch(event, body)));
    add("tag", word(tag(event, body)));
    if event == "member" {
        add("member", word(text(body, "/user_username")));
    }
    if matches!(event, "push" | "tag_push") {
        add("created", Some(json!(origin::is_created(body))));
        add("deleted", Some(json!(origin::is_deleted(body))));
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

/// The label that an update added, or else removed.
fn label(body: &Value) -> Option<&str> {
    let change = body.pointer("/changes/labels")?;
    let added = origin::difference(change, ("current", "previous"), "title");
    let removed = origin::difference(change, ("previous", "current"), "title");
    added.into_iter().chain(removed).next()
}

/// True if a pipeline or a job is of a tag.
fn is_of_tag(body: &Value) -> bool {
    ["/object_attributes/tag", "/tag"]
        .iter()
        .any(|pointer| body.pointer(pointer) == Some(&Value::Bool(true)))
}

/// The branch of a push, a pipeline or a job, or the source branch of a merge request.
fn branch<'v>(event: &str, body: &'v Value) -> Option<&'v str> {
    match event {
        "push" => text(body, "/ref").map(ref_name),
        "pipeline" | "job" if !is_of_tag(body) => {
            text(body, "/object_attributes/ref").or_else(|| text(body, "/ref"))
        }
        _ => [
            "/object_attributes/source_branch",
            "/merge_request/source_branch",
        ]
        .iter()
        .find_map(|pointer| text(body, pointer)),
    }
}

/// The tag of a push, a pipeline, a job or a release.
fn tag<'v>(event: &str, body: &'v Value) -> Option<&'v str> {
    match event {
        "tag_push" => text(body, "/ref").map(ref_name),
        "pipeline" | "job" if is_of_tag(body) => {
            text(body, "/object_attributes/ref").or_else(|| text(body, "/ref"))
        }
        "release" => text(body, "/tag"),
        _ => None,
    }
}
