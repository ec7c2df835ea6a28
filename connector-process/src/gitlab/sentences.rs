//! The sentence of each event and action. Pure data; `crate::sentence` has the notation.

use serde_json::Value;

use super::origin;
use crate::payload::text;
use crate::sentence::EventSentences;

/// The sentences of an event; `None` if it is not supported.
pub(super) fn of_event(event: &str) -> Option<&'static EventSentences> {
    TABLE.iter().find(|entry| entry.event == event)
}

/// The action, or a more exact one if the action alone means several things.
pub(super) fn variant<'v>(event: &str, body: &'v Value) -> &'v str {
    let is = |pointer: &str| body.pointer(pointer) == Some(&Value::Bool(true));
    match event {
        "push" | "tag_push" => match (origin::is_created(body), origin::is_deleted(body)) {
            (_, true) => "deleted",
            (true, false) => "created",
            (false, false) => "",
        },
        "merge_request" => match (action(body), origin::change(body)) {
            ("update", Some(change @ ("commits" | "draft" | "ready"))) => change,
            (action, _) => action,
        },
        "feature_flag" if is("/object_attributes/active") => "on",
        "feature_flag" => "off",
        "vulnerability" => text(body, "/object_attributes/state").unwrap_or_default(),
        _ => action(body),
    }
}

/// The action of an event; empty if it has none.
pub(super) fn action(body: &Value) -> &str {
    let of_object = || text(body, "/object_attributes/action");
    // Events of groups have no kind; their name says what happened.
    let has_kind = body.pointer("/object_kind").is_some();
    let of_group = || text(body, "/event_name").filter(|_| !has_kind);
    of_object()
        .or_else(|| text(body, "/action"))
        .or_else(of_group)
        .unwrap_or_default()
}

/// All events, sorted by name.
pub(super) static TABLE: &[EventSentences] = &[
    EventSentences {
        event: "access_token",
        texts: &[],
        sentences: &[(
            "",
            "the access token {/object_attributes/name:quoted} of {place} expires on {/object_attributes/expires_at}",
        )],
    },
    EventSentences {
        event: "deployment",
        texts: &[],
        sentences: &[(
            "",
            "the deployment of commit {/short_sha}[ {/commit_title:quoted}] to {/environment:quoted} in {place} {ended}[, started by {sender}]",
        )],
    },
    EventSentences {
        event: "emoji",
        texts: &["/note/note"],
        sentences: &[
            (
                "award",
                "{who} reacted with :{/object_attributes/name}: to {awarded}",
            ),
            (
                "revoke",
                "{who} removed the reaction :{/object_attributes/name}: from {awarded}",
            ),
            (
                "",
                "{who} changed the reaction :{/object_attributes/name}: to {awarded}",
            ),
        ],
    },
    EventSentences {
        event: "feature_flag",
        texts: &["/object_attributes/description"],
        sentences: &[
            (
                "on",
                "{who} turned on the feature flag {/object_attributes/name:quoted} in {place}",
            ),
            (
                "",
                "{who} turned off the feature flag {/object_attributes/name:quoted} in {place}",
            ),
        ],
    },
    EventSentences {
        event: "issue",
        texts: ISSUE_TEXTS,
        sentences: ISSUE_SENTENCES,
    },
    EventSentences {
        event: "job",
        texts: &[],
        sentences: &[(
            "",
            "job {/build_name:quoted} (stage {/build_stage}) {ended}[ ({reason})] on {revision} in {place}[, started by {sender}]",
        )],
    },
    EventSentences {
        event: "member",
        texts: &[],
        sentences: &[
            (
                "user_access_request_denied_for_group",
                "{member} was denied access to {place}",
            ),
            (
                "user_access_request_to_group",
                "{member} asked for access to {place}",
            ),
            (
                "user_add_to_group",
                "{member} became a member of {place}[ as {access}][ until {/expires_at:date}]",
            ),
            (
                "user_add_to_team",
                "{member} became a member of {place}[ as {access}][ until {/expires_at:date}]",
            ),
            (
                "user_remove_from_group",
                "{member} is no longer a member of {place}",
            ),
            (
                "user_remove_from_team",
                "{member} is no longer a member of {place}",
            ),
            (
                "",
                "{member} is now a member of {place}[ as {access}][ until {/expires_at:date}]",
            ),
        ],
    },
    EventSentences {
        event: "merge_request",
        texts: &["/object_attributes/description"],
        sentences: &[
            ("approval", "{who} approved {merge_request}"),
            (
                "approved",
                "{who} approved {merge_request}, which has all required approvals now",
            ),
            ("close", "{who} closed {merge_request}"),
            ("commits", "{who} pushed commits to {merge_request}"),
            ("draft", "{who} marked {merge_request} as a draft"),
            (
                "merge",
                "{who} merged {merge_request}[ into {/object_attributes/target_branch}]",
            ),
            (
                "open",
                "{who} opened {merge_request}[ ({/object_attributes/source_branch} into {/object_attributes/target_branch})]",
            ),
            ("ready", "{who} marked {merge_request} as ready"),
            ("reopen", "{who} reopened {merge_request}"),
            (
                "unapproval",
                "{who} withdrew an approval of {merge_request}",
            ),
            (
                "unapproved",
                "{who} withdrew an approval of {merge_request}, which lacks a required approval now",
            ),
            ("", "{who} edited {merge_request}[: {changed}]"),
        ],
    },
    EventSentences {
        event: "milestone",
        texts: &["/object_attributes/description"],
        sentences: &[
            (
                "close",
                "milestone {/object_attributes/title:quoted} in {place} was closed",
            ),
            (
                "create",
                "milestone {/object_attributes/title:quoted} was created in {place}[, due on {/object_attributes/due_date}]",
            ),
            (
                "delete",
                "milestone {/object_attributes/title:quoted} in {place} was deleted",
            ),
            (
                "reopen",
                "milestone {/object_attributes/title:quoted} in {place} was reopened",
            ),
            (
                "",
                "milestone {/object_attributes/title:quoted} in {place} was changed",
            ),
        ],
    },
    EventSentences {
        event: "note",
        texts: &["/object_attributes/note"],
        sentences: &[
            ("update", "{who} edited a comment on {target}[ at {where}]"),
            ("", "{who} commented on {target}[ at {where}]"),
        ],
    },
    EventSentences {
        event: "pipeline",
        texts: &[],
        sentences: &[(
            "",
            "pipeline {/object_attributes/id}[ {/object_attributes/name:quoted}] {ended} on {revision} in {place}[; failed: {failed}][, started by {sender}]",
        )],
    },
    EventSentences {
        event: "project",
        texts: &[],
        sentences: &[
            (
                "project_create",
                "project {place} was created[ by {/owners/0/name|/owner_name}]",
            ),
            ("project_destroy", "project {place} was deleted"),
            (
                "project_rename",
                "project {/old_path_with_namespace} was renamed to {place}",
            ),
            (
                "project_transfer",
                "project {/old_path_with_namespace} was moved to {place}",
            ),
            ("", "project {place} was changed"),
        ],
    },
    EventSentences {
        event: "push",
        texts: &[],
        sentences: &[
            (
                "created",
                "{who} created branch {/ref:ref} of {place}[ with {commits}]",
            ),
            ("deleted", "{who} deleted branch {/ref:ref} of {place}"),
            (
                "",
                "{who} pushed[ {commits}] to branch {/ref:ref} of {place}",
            ),
        ],
    },
    EventSentences {
        event: "release",
        texts: &["/description"],
        sentences: &[
            ("create", "{release} was published in {place}"),
            ("delete", "{release} in {place} was deleted"),
            ("", "{release} in {place} was edited"),
        ],
    },
    EventSentences {
        event: "subgroup",
        texts: &[],
        sentences: &[
            (
                "subgroup_create",
                "subgroup {/full_path} was created in group {/parent_full_path}",
            ),
            (
                "subgroup_destroy",
                "subgroup {/full_path} was removed from group {/parent_full_path}",
            ),
            (
                "",
                "subgroup {/full_path} of group {/parent_full_path} was changed",
            ),
        ],
    },
    EventSentences {
        event: "tag_push",
        texts: &["/message"],
        sentences: &[
            (
                "created",
                "{who} created tag {/ref:ref} of {place}[ at commit {/checkout_sha:short}]",
            ),
            ("deleted", "{who} deleted tag {/ref:ref} of {place}"),
            (
                "",
                "{who} moved tag {/ref:ref} of {place}[ to commit {/checkout_sha:short}]",
            ),
        ],
    },
    EventSentences {
        event: "vulnerability",
        texts: &[],
        sentences: &[
            ("confirmed", "{vulnerability} in {place} is confirmed"),
            ("detected", "{vulnerability} was detected in {place}"),
            ("dismissed", "{vulnerability} in {place} was dismissed"),
            ("resolved", "{vulnerability} in {place} is resolved"),
            ("", "{vulnerability} in {place} was changed"),
        ],
    },
    EventSentences {
        event: "wiki_page",
        texts: &["/object_attributes/content"],
        sentences: &[
            (
                "create",
                "{who} created the wiki page {/object_attributes/title:quoted} in {place}[: {/object_attributes/message}]",
            ),
            (
                "delete",
                "{who} deleted the wiki page {/object_attributes/title:quoted} in {place}",
            ),
            (
                "",
                "{who} edited the wiki page {/object_attributes/title:quoted} in {place}[: {/object_attributes/message}]",
            ),
        ],
    },
    EventSentences {
        event: "work_item",
        texts: ISSUE_TEXTS,
        sentences: ISSUE_SENTENCES,
    },
];

const ISSUE_TEXTS: &[&str] = &["/object_attributes/description"];

/// Sentences of issues and other work items.
const ISSUE_SENTENCES: &[(&str, &str)] = &[
    ("close", "{who} closed {issue}"),
    ("open", "{who} opened {issue}"),
    ("reopen", "{who} reopened {issue}"),
    ("", "{who} edited {issue}[: {changed}]"),
];

#[cfg(test)]
mod tests {
    use super::super::phrases::Phrases;
    use super::*;
    use crate::sentence::table_faults;

    #[test]
    fn conn_1_gitlab_sentences_are_sorted_complete_and_well_formed() {
        let phrases = Phrases::of("", &Value::Null);
        assert_eq!(table_faults(TABLE, &phrases), Vec::<String>::new());
    }
}
