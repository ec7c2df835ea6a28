//! The sentence of each event and action. Pure data; `crate::sentence` has the notation.

use serde_json::Value;

use crate::payload::text;
use crate::sentence::EventSentences;

/// The sentences of an event, if the table has them.
pub(super) fn of_event(event: &str) -> Option<&'static EventSentences> {
    TABLE.iter().find(|entry| entry.event == event)
}

/// The action, or a more exact one if the action alone means several things.
pub(super) fn variant<'v>(event: &str, body: &'v Value) -> &'v str {
    let is = |pointer: &str| body.pointer(pointer) == Some(&Value::Bool(true));
    let action = text(body, "/action").unwrap_or_default();
    match (event, action) {
        ("pull_request", "closed") if is("/pull_request/merged") => "merged",
        ("pull_request_review", "submitted") => text(body, "/review/state").unwrap_or(action),
        ("issues", "opened") if body.pointer("/changes/old_issue").is_some() => "received",
        ("create" | "delete", _) => text(body, "/ref_type").unwrap_or_default(),
        ("push", _) => {
            let is_tag = text(body, "/ref").is_some_and(|name| name.starts_with("refs/tags/"));
            match (is_tag, is("/created"), is("/deleted"), is("/forced")) {
                (true, true, _, _) => "tag created",
                (true, _, true, _) => "tag deleted",
                (true, _, _, _) => "tag moved",
                (false, true, _, _) => "branch created",
                (false, _, true, _) => "branch deleted",
                (false, _, _, true) => "forced",
                (false, _, _, false) => "",
            }
        }
        _ => action,
    }
}

/// The sentence of an event that the table does not list.
pub(super) const OTHER: &str = "{who} caused the event {thing}[ ({/action:words})] in {repo}";

/// All events, sorted by name.
pub(super) static TABLE: &[EventSentences] = &[
    EventSentences {
        event: "branch_protection_configuration",
        texts: &[],
        sentences: &[
            (
                "disabled",
                "{who} disabled all branch protection rules of {repo}",
            ),
            (
                "enabled",
                "{who} enabled all branch protection rules of {repo}",
            ),
            ("", "{who} changed the branch protection of {repo}"),
        ],
    },
    EventSentences {
        event: "branch_protection_rule",
        texts: &[],
        sentences: &[
            (
                "edited",
                "{who} edited the branch protection rule {/rule/name:quoted} of {repo}[: {changed}]",
            ),
            (
                "",
                "{who} {did} the branch protection rule {/rule/name:quoted} of {repo}",
            ),
        ],
    },
    EventSentences {
        event: "check_run",
        texts: &["/check_run/output/title", "/check_run/output/summary"],
        sentences: &[
            (
                "created",
                "check {/check_run/name:quoted} {state} on {commit} in {repo}",
            ),
            (
                "completed",
                "check {/check_run/name:quoted} {ended} on {commit} in {repo}",
            ),
            (
                "requested_action",
                "{who} asked check {/check_run/name:quoted} for the action {/requested_action/identifier:quoted} on {commit} in {repo}",
            ),
            (
                "rerequested",
                "{who} asked to run check {/check_run/name:quoted} again on {commit} in {repo}",
            ),
            (
                "",
                "check {/check_run/name:quoted} on {commit} in {repo}: {did}",
            ),
        ],
    },
    EventSentences {
        event: "check_suite",
        texts: &[],
        sentences: &[
            (
                "completed",
                "the checks of {/check_suite/app/name} {ended} on {commit} in {repo}",
            ),
            (
                "requested",
                "{/check_suite/app/name} is asked to check {commit} in {repo}, pushed by {who}",
            ),
            (
                "rerequested",
                "{who} asked {/check_suite/app/name} to check {commit} in {repo} again",
            ),
            (
                "",
                "the checks of {/check_suite/app/name} on {commit} in {repo}: {did}",
            ),
        ],
    },
    EventSentences {
        event: "code_scanning_alert",
        texts: &["/alert/most_recent_instance/message/text"],
        sentences: &[
            (
                "appeared_in_branch",
                "code scanning {alert} appeared in branch {/ref:ref}",
            ),
            (
                "closed_by_user",
                "{who} dismissed code scanning {alert}[ as {/alert/dismissed_reason:words}]",
            ),
            ("created", "code scanning found {alert}[ on {/ref:ref}]"),
            ("fixed", "code scanning {alert} is fixed[ on {/ref:ref}]"),
            (
                "reopened",
                "code scanning {alert} is open again[ on {/ref:ref}]",
            ),
            ("reopened_by_user", "{who} reopened code scanning {alert}"),
            (
                "updated_assignment",
                "{who} changed the assignees of code scanning {alert}",
            ),
            ("", "code scanning {alert}: {did}"),
        ],
    },
    EventSentences {
        event: "commit_comment",
        texts: &["/comment/body"],
        sentences: &[(
            "",
            "{who} commented on commit {/comment/commit_id:short}[ at {where}] in {repo}",
        )],
    },
    EventSentences {
        event: "create",
        texts: &[],
        sentences: &[
            ("branch", "{who} created branch {/ref} in {repo}"),
            ("tag", "{who} created tag {/ref} in {repo}"),
            ("", "{who} created {/ref_type} {/ref} in {repo}"),
        ],
    },
    EventSentences {
        event: "custom_property",
        texts: &[],
        sentences: &[(
            "",
            "{who} {did} the repository property {/definition/property_name:quoted} in {repo}",
        )],
    },
    EventSentences {
        event: "custom_property_values",
        texts: &[],
        sentences: &[(
            "",
            "{who} set repository properties of {repo}[, such as {/new_property_values/0/property_name:quoted} to {/new_property_values/0/value:quoted}]",
        )],
    },
    EventSentences {
        event: "delete",
        texts: &[],
        sentences: &[
            ("branch", "{who} deleted branch {/ref} of {repo}"),
            ("tag", "{who} deleted tag {/ref} of {repo}"),
            ("", "{who} deleted {/ref_type} {/ref} of {repo}"),
        ],
    },
    EventSentences {
        event: "dependabot_alert",
        texts: &["/alert/security_advisory/description"],
        sentences: &[
            (
                "assignees_changed",
                "{who} changed the assignees of Dependabot {alert}",
            ),
            ("auto_dismissed", "a rule dismissed Dependabot {alert}"),
            ("auto_reopened", "a rule reopened Dependabot {alert}"),
            ("created", "Dependabot found {alert}"),
            (
                "dismissed",
                "{who} dismissed Dependabot {alert}[ as {/alert/dismissed_reason:words}][: {/alert/dismissed_comment}]",
            ),
            ("fixed", "Dependabot {alert} is fixed"),
            ("reintroduced", "Dependabot {alert} is back"),
            ("reopened", "{who} reopened Dependabot {alert}"),
            ("", "Dependabot {alert}: {did}"),
        ],
    },
    EventSentences {
        event: "deploy_key",
        texts: &[],
        sentences: &[
            (
                "created",
                "{who} added the deploy key {/key/title:quoted} to {repo}",
            ),
            (
                "deleted",
                "{who} deleted the deploy key {/key/title:quoted} of {repo}",
            ),
            (
                "",
                "{who} {did} the deploy key {/key/title:quoted} of {repo}",
            ),
        ],
    },
    EventSentences {
        event: "deployment",
        texts: &["/deployment/description"],
        sentences: &[(
            "",
            "{who} started the deployment of {/deployment/ref:ref} (commit {/deployment/sha:short}) to {/deployment/environment:quoted} in {repo}",
        )],
    },
    EventSentences {
        event: "deployment_protection_rule",
        texts: &[],
        sentences: &[(
            "",
            "the deployment[ of {/deployment/ref:ref}] to {/environment:quoted} in {repo} waits for a protection rule",
        )],
    },
    EventSentences {
        event: "deployment_review",
        texts: &["/comment"],
        sentences: &[
            (
                "approved",
                "{who} approved the deployment of {workflow}[ to {/environment|/workflow_job_runs/0/environment:quoted}] in {repo}",
            ),
            (
                "rejected",
                "{who} rejected the deployment of {workflow}[ to {/environment|/workflow_job_runs/0/environment:quoted}] in {repo}",
            ),
            (
                "requested",
                "{/requestor/login|/sender/login} needs a review of the deployment of {workflow} to {/environment:quoted} in {repo} by {reviewer}",
            ),
            (
                "",
                "review of the deployment of {workflow} in {repo}: {did}",
            ),
        ],
    },
    EventSentences {
        event: "deployment_status",
        texts: &["/deployment_status/description"],
        sentences: &[(
            "",
            "the deployment of {/deployment/ref:ref} (commit {/deployment/sha:short}) to {/deployment_status/environment|/deployment/environment:quoted} in {repo} {state}",
        )],
    },
    EventSentences {
        event: "discussion",
        texts: &["/answer/body", "/old_answer/body", "/discussion/body"],
        sentences: &[
            (
                "answered",
                "{who} marked a comment[ by {/answer/user/login}] as the answer of {discussion}",
            ),
            (
                "category_changed",
                "{who} moved {discussion}[ from category {/changes/category/from/name:quoted}] to category {/discussion/category/name:quoted}",
            ),
            (
                "created",
                "{who} started {discussion}[ (category {/discussion/category/name})]",
            ),
            ("edited", "{who} edited {discussion}[ ({changed})]"),
            (
                "labeled",
                "{who} added label {/label/name:quoted} to {discussion}",
            ),
            (
                "transferred",
                "{who} moved {discussion}[ to {/changes/new_repository/full_name}]",
            ),
            (
                "unanswered",
                "{who} unmarked the answer[ by {/old_answer/user/login}] of {discussion}",
            ),
            (
                "unlabeled",
                "{who} removed label {/label/name:quoted} from {discussion}",
            ),
            ("", "{who} {did} {discussion}"),
        ],
    },
    EventSentences {
        event: "discussion_comment",
        texts: &["/comment/body"],
        sentences: &[
            ("created", "{who} commented on {discussion}"),
            ("", "{who} {did} {comment} on {discussion}"),
        ],
    },
    EventSentences {
        event: "fork",
        texts: &[],
        sentences: &[("", "{who} forked {repo} to {/forkee/full_name}")],
    },
    EventSentences {
        event: "github_app_authorization",
        texts: &[],
        sentences: &[("", "{who} {did} the authorization of the GitHub App")],
    },
    EventSentences {
        event: "gollum",
        texts: &[],
        sentences: &[("", "{who} changed the wiki of {repo}: {pages}")],
    },
    EventSentences {
        event: "installation",
        texts: &[],
        sentences: &[
            (
                "created",
                "{who} installed {app} for {account} with access to {repositories}",
            ),
            (
                "deleted",
                "{who} uninstalled {app} from {account}, which had access to {repositories}",
            ),
            (
                "new_permissions_accepted",
                "{who} accepted new permissions of {app} for {account}",
            ),
            ("suspend", "{who} suspended {app} for {account}"),
            ("unsuspend", "{who} resumed {app} for {account}"),
            ("", "{who} {did} {app} for {account}"),
        ],
    },
    EventSentences {
        event: "installation_repositories",
        texts: &[],
        sentences: &[
            ("added", "{who} gave {app} access to {repositories}"),
            (
                "removed",
                "{who} ended the access of {app} to {repositories}",
            ),
            (
                "",
                "{who} changed the access of {app} for {account}: {repositories}",
            ),
        ],
    },
    EventSentences {
        event: "installation_target",
        texts: &[],
        sentences: &[(
            "",
            "{who} {did} the account[ {/changes/login/from}] of {app} to {/account/login|/organization/login}",
        )],
    },
    EventSentences {
        event: "issue_comment",
        texts: &["/comment/body"],
        sentences: &[
            ("created", "{who} commented on {issue}"),
            ("", "{who} {did} {comment} on {issue}"),
        ],
    },
    EventSentences {
        event: "issue_dependencies",
        texts: &[],
        sentences: &[
            (
                "blocked_by_added",
                "{who} marked issue #{/blocked_issue/number} {/blocked_issue/title:quoted} in {repo} as blocked by #{/blocking_issue/number} {/blocking_issue/title:quoted}",
            ),
            (
                "blocked_by_removed",
                "{who} unmarked issue #{/blocked_issue/number} {/blocked_issue/title:quoted} in {repo} as blocked by #{/blocking_issue/number} {/blocking_issue/title:quoted}",
            ),
            (
                "blocking_added",
                "{who} marked issue #{/blocking_issue/number} {/blocking_issue/title:quoted} in {repo} as blocking #{/blocked_issue/number} {/blocked_issue/title:quoted}",
            ),
            (
                "blocking_removed",
                "{who} unmarked issue #{/blocking_issue/number} {/blocking_issue/title:quoted} in {repo} as blocking #{/blocked_issue/number} {/blocked_issue/title:quoted}",
            ),
            ("", "{who} changed dependencies of issues in {repo}"),
        ],
    },
    EventSentences {
        event: "issues",
        texts: &["/issue/body"],
        sentences: &[
            ("assigned", "{who} assigned {/assignee/login} to {issue}"),
            (
                "closed",
                "{who} closed {issue}[ as {/issue/state_reason:words}]",
            ),
            (
                "demilestoned",
                "{who} removed {issue} from milestone {/milestone/title:quoted}",
            ),
            ("edited", "{who} edited {issue}[ ({changed})]"),
            (
                "labeled",
                "{who} added label {/label/name:quoted} to {issue}",
            ),
            (
                "locked",
                "{who} locked {issue}[ as {/issue/active_lock_reason:words}]",
            ),
            (
                "milestoned",
                "{who} added {issue} to milestone {/milestone/title|/issue/milestone/title:quoted}",
            ),
            (
                "received",
                "{who} moved {issue} here[ from {/changes/old_repository/full_name}]",
            ),
            (
                "transferred",
                "{who} moved {issue}[ to {/changes/new_repository/full_name}]",
            ),
            (
                "typed",
                "{who} set the type of {issue}[ to {/type/name|/issue/type/name:quoted}]",
            ),
            (
                "unassigned",
                "{who} unassigned {/assignee/login} from {issue}",
            ),
            (
                "unlabeled",
                "{who} removed label {/label/name:quoted} from {issue}",
            ),
            (
                "untyped",
                "{who} removed the type[ {/type/name:quoted}] of {issue}",
            ),
            ("", "{who} {did} {issue}"),
        ],
    },
    EventSentences {
        event: "label",
        texts: &["/label/description"],
        sentences: &[
            (
                "edited",
                "{who} edited label {/label/name:quoted} of {repo}[ ({changed})]",
            ),
            ("", "{who} {did} label {/label/name:quoted} of {repo}"),
        ],
    },
    EventSentences {
        event: "marketplace_purchase",
        texts: &[],
        sentences: &[
            (
                "cancelled",
                "{account} canceled the plan {/marketplace_purchase/plan/name:quoted} of the GitHub App[, effective {/effective_date:date}]",
            ),
            (
                "changed",
                "{account} changed to the plan {/marketplace_purchase/plan/name:quoted}[ with {/marketplace_purchase/unit_count} units] of the GitHub App[, effective {/effective_date:date}]",
            ),
            (
                "pending_change",
                "{account} will change to the plan {/marketplace_purchase/plan/name:quoted} of the GitHub App[, effective {/effective_date:date}]",
            ),
            (
                "pending_change_cancelled",
                "{account} stays with the plan {/marketplace_purchase/plan/name:quoted} of the GitHub App",
            ),
            (
                "purchased",
                "{account} bought the plan {/marketplace_purchase/plan/name:quoted} of the GitHub App[, effective {/effective_date:date}]",
            ),
            (
                "",
                "plan {/marketplace_purchase/plan/name:quoted} of {account}: {did}",
            ),
        ],
    },
    EventSentences {
        event: "member",
        texts: &[],
        sentences: &[
            (
                "added",
                "{who} added {/member/login} as a collaborator of {repo}[ with permission {/changes/permission/to}]",
            ),
            (
                "edited",
                "{who} changed the permission of {/member/login} in {repo}[ {permission}]",
            ),
            (
                "removed",
                "{who} removed the collaborator {/member/login} from {repo}",
            ),
            ("", "collaborator {/member/login} of {repo}: {did}"),
        ],
    },
    EventSentences {
        event: "membership",
        texts: &[],
        sentences: &[
            (
                "added",
                "{who} added {/member/login} to team {/team/name} of {repo}",
            ),
            (
                "removed",
                "{who} removed {/member/login} from team {/team/name} of {repo}",
            ),
            ("", "{/member/login} in team {/team/name} of {repo}: {did}"),
        ],
    },
    EventSentences {
        event: "merge_group",
        texts: &["/merge_group/head_commit/message"],
        sentences: &[
            (
                "checks_requested",
                "the merge queue of branch {/merge_group/base_ref:ref} in {repo} needs checks of {/merge_group/head_ref:file} (commit {/merge_group/head_sha:short})",
            ),
            (
                "destroyed",
                "the merge queue of branch {/merge_group/base_ref:ref} in {repo} ended {/merge_group/head_ref:file}[: {/reason:words}]",
            ),
            (
                "",
                "merge queue of branch {/merge_group/base_ref:ref} in {repo}: {did}",
            ),
        ],
    },
    EventSentences {
        event: "meta",
        texts: &[],
        sentences: &[(
            "",
            "{who} {did} the webhook of {repo} that sends these events",
        )],
    },
    EventSentences {
        event: "milestone",
        texts: &["/milestone/description"],
        sentences: &[
            (
                "edited",
                "{who} edited milestone {/milestone/title:quoted} of {repo}[ ({changed})]",
            ),
            (
                "opened",
                "{who} reopened milestone {/milestone/title:quoted} of {repo}",
            ),
            (
                "closed",
                "{who} closed milestone {/milestone/title:quoted} of {repo}[ with {/milestone/open_issues} open issues]",
            ),
            (
                "",
                "{who} {did} milestone {/milestone/title:quoted} of {repo}[, due {/milestone/due_on:date}]",
            ),
        ],
    },
    EventSentences {
        event: "org_block",
        texts: &[],
        sentences: &[("", "{who} {did} {/blocked_user/login} in {repo}")],
    },
    EventSentences {
        event: "organization",
        texts: &[],
        sentences: &[
            ("deleted", "{who} deleted the organization {account}"),
            (
                "member_added",
                "{/membership/user/login} joined the organization {account}[ as {/membership/role:words}]",
            ),
            (
                "member_invited",
                "{who} invited {/user/login|/invitation/login|/invitation/email} to the organization {account}[ as {/invitation/role:words}]",
            ),
            (
                "member_removed",
                "{/membership/user/login} is no longer a member of the organization {account}",
            ),
            (
                "renamed",
                "{who} renamed the organization[ {/changes/login/from}] to {account}",
            ),
            ("", "{who} changed the organization {account}: {did}"),
        ],
    },
    EventSentences {
        event: "package",
        texts: &["/package/description"],
        sentences: &[("", "{who} {did} {package} in {repo}")],
    },
    EventSentences {
        event: "page_build",
        texts: &["/build/error/message"],
        sentences: &[(
            "",
            "the build of the GitHub Pages of {repo} {state}[ (commit {/build/commit:short})], after a push by {/build/pusher/login|/sender/login}",
        )],
    },
    EventSentences {
        event: "personal_access_token_request",
        texts: &["/personal_access_token_request/reason"],
        sentences: &[
            (
                "approved",
                "{who} approved the access token of {/personal_access_token_request/owner/login} for {repo}",
            ),
            (
                "cancelled",
                "{/personal_access_token_request/owner/login|/sender/login} withdrew the request for an access token for {repo}",
            ),
            (
                "created",
                "{/personal_access_token_request/owner/login|/sender/login} requested an access token for {repo}",
            ),
            (
                "denied",
                "{who} denied the access token of {/personal_access_token_request/owner/login} for {repo}",
            ),
            ("", "request for an access token for {repo}: {did}"),
        ],
    },
    EventSentences {
        event: "project",
        texts: &["/project/body"],
        sentences: &[
            (
                "edited",
                "{who} edited project {/project/name:quoted} of {repo}[ ({changed})]",
            ),
            ("", "{who} {did} project {/project/name:quoted} of {repo}"),
        ],
    },
    EventSentences {
        event: "project_card",
        texts: &[],
        sentences: &[
            (
                "converted",
                "{who} converted {card} of a project of {repo} to an issue",
            ),
            ("created", "{who} added {card} to a project of {repo}"),
            ("deleted", "{who} removed {card} from a project of {repo}"),
            (
                "edited",
                "{who} edited {card} of a project of {repo}[ (formerly {/changes/note/from:quoted})]",
            ),
            (
                "moved",
                "{who} moved {card} of a project of {repo}[ to {column}]",
            ),
            ("", "{who} {did} {card} of a project of {repo}"),
        ],
    },
    EventSentences {
        event: "project_column",
        texts: &[],
        sentences: &[
            (
                "edited",
                "{who} edited column {/project_column/name:quoted} of a project of {repo}[ ({changed})]",
            ),
            (
                "",
                "{who} {did} column {/project_column/name:quoted} of a project of {repo}",
            ),
        ],
    },
    EventSentences {
        event: "projects_v2",
        texts: &["/projects_v2/short_description"],
        sentences: &[
            (
                "edited",
                "{who} edited project #{/projects_v2/number} {/projects_v2/title:quoted} of {repo}[ ({changed})]",
            ),
            (
                "",
                "{who} {did} project #{/projects_v2/number} {/projects_v2/title:quoted} of {repo}",
            ),
        ],
    },
    EventSentences {
        event: "projects_v2_item",
        texts: &[],
        sentences: &[
            ("archived", "{who} archived {item} in a project of {repo}"),
            (
                "converted",
                "{who} converted a draft to {item} in a project of {repo}",
            ),
            ("created", "{who} added {item} to a project of {repo}"),
            ("deleted", "{who} removed {item} from a project of {repo}"),
            (
                "edited",
                "{who} changed {item} in a project of {repo}[: {field}]",
            ),
            (
                "reordered",
                "{who} moved {item} to another place in a project of {repo}",
            ),
            ("restored", "{who} restored {item} in a project of {repo}"),
            ("", "{who} {did} {item} in a project of {repo}"),
        ],
    },
    EventSentences {
        event: "projects_v2_status_update",
        texts: &["/projects_v2_status_update/body"],
        sentences: &[
            (
                "created",
                "{who} posted a status update of a project of {repo}[: {/projects_v2_status_update/status:words}]",
            ),
            (
                "",
                "{who} {did} a status update of a project of {repo}[: {/projects_v2_status_update/status:words}]",
            ),
        ],
    },
    EventSentences {
        event: "public",
        texts: &[],
        sentences: &[("", "{who} made {repo} public")],
    },
    EventSentences {
        event: "pull_request",
        texts: &["/pull_request/body"],
        sentences: &[
            ("assigned", "{who} assigned {/assignee/login} to {pull}"),
            (
                "auto_merge_disabled",
                "{who} disabled the automatic merge of {pull}[: {/reason}]",
            ),
            (
                "auto_merge_enabled",
                "{who} enabled the automatic merge of {pull}[ ({/pull_request/auto_merge/merge_method})]",
            ),
            ("closed", "{who} closed {pull} without merging it"),
            ("converted_to_draft", "{who} converted {pull} to a draft"),
            (
                "demilestoned",
                "{who} removed {pull} from milestone {/milestone/title:quoted}",
            ),
            ("dequeued", "{pull} left the merge queue[: {/reason:words}]"),
            ("edited", "{who} edited {pull}[ ({changed})]"),
            ("enqueued", "{who} added {pull} to the merge queue"),
            (
                "labeled",
                "{who} added label {/label/name:quoted} to {pull}",
            ),
            (
                "locked",
                "{who} locked {pull}[ as {/pull_request/active_lock_reason:words}]",
            ),
            (
                "merged",
                "{who} merged {pull} into {/pull_request/base/ref}",
            ),
            (
                "milestoned",
                "{who} added {pull} to milestone {/milestone/title|/pull_request/milestone/title:quoted}",
            ),
            (
                "opened",
                "{who} opened {pull}[ to merge {/pull_request/head/label} into {/pull_request/base/ref}]",
            ),
            (
                "ready_for_review",
                "{who} marked {pull} as ready for review",
            ),
            (
                "review_request_removed",
                "{who} no longer asks {reviewer} to review {pull}",
            ),
            (
                "review_requested",
                "{who} asked {reviewer} to review {pull}",
            ),
            (
                "synchronize",
                "{who} pushed to {pull}[, from commit {/before:short} to {/after:short}]",
            ),
            (
                "unassigned",
                "{who} unassigned {/assignee/login} from {pull}",
            ),
            (
                "unlabeled",
                "{who} removed label {/label/name:quoted} from {pull}",
            ),
            ("", "{who} {did} {pull}"),
        ],
    },
    EventSentences {
        event: "pull_request_review",
        texts: &["/review/body"],
        sentences: &[
            ("approved", "{who} approved {pull}"),
            ("changes_requested", "{who} requested changes in {pull}"),
            ("commented", "{who} reviewed {pull} with comments"),
            ("dismissed", "{who} dismissed {review} of {pull}"),
            ("edited", "{who} edited {review} of {pull}"),
            ("", "{who} {did} {review} of {pull}"),
        ],
    },
    EventSentences {
        event: "pull_request_review_comment",
        texts: &["/comment/body"],
        sentences: &[
            ("created", "{who} commented on[ {where} of] {pull}"),
            ("", "{who} {did} {comment} on[ {where} of] {pull}"),
        ],
    },
    EventSentences {
        event: "pull_request_review_thread",
        texts: &["/thread/comments/0/body"],
        sentences: &[(
            "",
            "{who} {did} a thread[ at `{/thread/comments/0/path}`] of {pull}",
        )],
    },
    EventSentences {
        event: "push",
        texts: &[],
        sentences: &[
            (
                "branch created",
                "{who} created branch {/ref:ref} of {repo}[ from {/base_ref:ref}][ with {commits}]",
            ),
            (
                "branch deleted",
                "{who} deleted branch {/ref:ref} of {repo}, which was at commit {/before:short}",
            ),
            (
                "forced",
                "{who} force-pushed branch {/ref:ref} of {repo} from commit {/before:short} to {/after:short}[ with {commits}]",
            ),
            (
                "tag created",
                "{who} pushed the new tag {/ref:ref} of {repo}[ on commit {/head_commit/id|/after:short}]",
            ),
            (
                "tag deleted",
                "{who} deleted tag {/ref:ref} of {repo}, which was on commit {/before:short}",
            ),
            (
                "tag moved",
                "{who} moved tag {/ref:ref} of {repo} from commit {/before:short} to {/after:short}",
            ),
            (
                "",
                "{who} pushed[ {commits}] to branch {/ref:ref} of {repo}",
            ),
        ],
    },
    EventSentences {
        event: "registry_package",
        texts: &["/registry_package/description"],
        sentences: &[("", "{who} {did} {package} in {repo}")],
    },
    EventSentences {
        event: "release",
        texts: &["/release/body"],
        sentences: &[
            ("edited", "{who} edited {release} of {repo}[ ({changed})]"),
            ("prereleased", "{who} published {release} of {repo}"),
            (
                "released",
                "{who} published {release} of {repo} as a full release",
            ),
            ("", "{who} {did} {release} of {repo}"),
        ],
    },
    EventSentences {
        event: "repository",
        texts: &[],
        sentences: &[
            (
                "edited",
                "{who} edited the settings of {repo}[ ({changed})]",
            ),
            ("privatized", "{who} made {repo} private"),
            ("publicized", "{who} made {repo} public"),
            (
                "renamed",
                "{who} renamed[ {/changes/repository/name/from} to] {repo}",
            ),
            (
                "transferred",
                "{who} transferred {repo}[ from {/changes/owner/from/user/login|/changes/owner/from/organization/login}] to {/repository/owner/login}",
            ),
            ("", "{who} {did} the repository {repo}"),
        ],
    },
    EventSentences {
        event: "repository_advisory",
        texts: &["/repository_advisory/description"],
        sentences: &[(
            "",
            "{who} {did} the security advisory {/repository_advisory/ghsa_id} {/repository_advisory/summary:quoted}[ ({/repository_advisory/severity})] in {repo}",
        )],
    },
    EventSentences {
        event: "repository_dispatch",
        texts: &["/client_payload"],
        sentences: &[(
            "",
            "{who} sent the event {/action:quoted} to {repo}[ (branch {/branch})]",
        )],
    },
    EventSentences {
        event: "repository_import",
        texts: &[],
        sentences: &[("", "the import of {repo} by {who} {state}")],
    },
    EventSentences {
        event: "repository_ruleset",
        texts: &[],
        sentences: &[(
            "",
            "{who} {did} the ruleset {/repository_ruleset/name:quoted} of {repo}",
        )],
    },
    EventSentences {
        event: "repository_vulnerability_alert",
        texts: &[],
        sentences: &[
            (
                "create",
                "GitHub found a vulnerable dependency: {alert}[, fixed in {/alert/fixed_in}]",
            ),
            (
                "dismiss",
                "{/alert/dismisser/login|/sender/login} dismissed the vulnerability {alert}[: {/alert/dismiss_reason}]",
            ),
            ("", "{who} {did} the vulnerability {alert}"),
        ],
    },
    EventSentences {
        event: "secret_scanning_alert",
        texts: &["/alert/resolution_comment"],
        sentences: &[
            ("created", "GitHub found a secret: {alert}"),
            ("publicly_leaked", "the secret of {alert} is public"),
            (
                "resolved",
                "{who} resolved secret scanning {alert}[ as {/alert/resolution:words}]",
            ),
            (
                "validated",
                "GitHub checked the secret of {alert}[: {/alert/validity}]",
            ),
            ("", "{who} {did} secret scanning {alert}"),
        ],
    },
    EventSentences {
        event: "secret_scanning_alert_location",
        texts: &[],
        sentences: &[(
            "",
            "GitHub found the secret of {alert} at another place[: {/location/details/path|/location/type}]",
        )],
    },
    EventSentences {
        event: "secret_scanning_scan",
        texts: &[],
        sentences: &[("", "GitHub {did} a secret scan[ ({/type:words})] of {repo}")],
    },
    EventSentences {
        event: "security_advisory",
        texts: &["/security_advisory/description"],
        sentences: &[(
            "",
            "GitHub {did} the security advisory {/security_advisory/ghsa_id} {/security_advisory/summary:quoted}[ ({/security_advisory/severity})][ about {/security_advisory/vulnerabilities/0/package/name}]",
        )],
    },
    EventSentences {
        event: "security_and_analysis",
        texts: &[],
        sentences: &[(
            "",
            "{who} changed security settings of {repo}[: {settings}]",
        )],
    },
    EventSentences {
        event: "sponsorship",
        texts: &[],
        sentences: &[
            (
                "cancelled",
                "{/sponsorship/sponsor/login} no longer sponsors {account}[ ({/sponsorship/tier/name})]",
            ),
            (
                "created",
                "{/sponsorship/sponsor/login} sponsors {account}[ ({/sponsorship/tier/name})]",
            ),
            (
                "edited",
                "{/sponsorship/sponsor/login} edited the sponsorship of {account}[ ({changed})]",
            ),
            (
                "pending_cancellation",
                "{/sponsorship/sponsor/login} will no longer sponsor {account}[ from {/effective_date:date} on]",
            ),
            (
                "pending_tier_change",
                "{/sponsorship/sponsor/login} will change the sponsorship of {account}[ from {/changes/tier/from/name}][, effective {/effective_date:date}]",
            ),
            (
                "tier_changed",
                "{/sponsorship/sponsor/login} changed the sponsorship of {account}[ from {/changes/tier/from/name}][ to {/sponsorship/tier/name}]",
            ),
            (
                "",
                "sponsorship of {account} by {/sponsorship/sponsor/login}: {did}",
            ),
        ],
    },
    EventSentences {
        event: "star",
        texts: &[],
        sentences: &[
            (
                "created",
                "{who} starred {repo}[ (stars: {/repository/stargazers_count})]",
            ),
            (
                "deleted",
                "{who} removed the star of {repo}[ (stars: {/repository/stargazers_count})]",
            ),
            ("", "star of {who} for {repo}: {did}"),
        ],
    },
    EventSentences {
        event: "status",
        texts: &["/description"],
        sentences: &[(
            "",
            "status {/context:quoted} of commit {/sha:short}[ (branch {/branches/0/name})] in {repo} {state}",
        )],
    },
    EventSentences {
        event: "sub_issues",
        texts: &[],
        sentences: &[
            (
                "parent_issue_added",
                "{who} made issue #{/sub_issue/number} {/sub_issue/title:quoted} in {repo} a part of #{/parent_issue/number} {/parent_issue/title:quoted}",
            ),
            (
                "parent_issue_removed",
                "{who} removed issue #{/sub_issue/number} {/sub_issue/title:quoted} in {repo} from #{/parent_issue/number} {/parent_issue/title:quoted}",
            ),
            (
                "sub_issue_added",
                "{who} added sub-issue #{/sub_issue/number} {/sub_issue/title:quoted} to issue #{/parent_issue/number} {/parent_issue/title:quoted} in {repo}",
            ),
            (
                "sub_issue_removed",
                "{who} removed sub-issue #{/sub_issue/number} {/sub_issue/title:quoted} from issue #{/parent_issue/number} {/parent_issue/title:quoted} in {repo}",
            ),
            (
                "",
                "{who} changed the sub-issues of issue #{/parent_issue/number} {/parent_issue/title:quoted} in {repo}",
            ),
        ],
    },
    EventSentences {
        event: "team",
        texts: &["/team/description"],
        sentences: &[
            (
                "added_to_repository",
                "{who} gave team {/team/name} access to {repo}[ ({/repository/role_name|/team/permission})]",
            ),
            ("created", "{who} created team {/team/name} in {account}"),
            ("deleted", "{who} deleted team {/team/name} of {account}"),
            (
                "edited",
                "{who} edited team {/team/name} of {account}[ ({changed})]",
            ),
            (
                "removed_from_repository",
                "{who} ended the access of team {/team/name} to {repo}",
            ),
            ("", "{who} {did} team {/team/name} of {account}"),
        ],
    },
    EventSentences {
        event: "team_add",
        texts: &[],
        sentences: &[(
            "",
            "{who} gave team {/team/name} access to {repo}[ ({/team/permission})]",
        )],
    },
    EventSentences {
        event: "watch",
        texts: &[],
        sentences: &[(
            "",
            "{who} starred {repo}[ (stars: {/repository/stargazers_count})]",
        )],
    },
    EventSentences {
        event: "workflow_dispatch",
        texts: &[],
        sentences: &[(
            "",
            "{who} started workflow {/workflow:file} on {/ref:ref} in {repo} by hand[ ({inputs})]",
        )],
    },
    EventSentences {
        event: "workflow_job",
        texts: &[],
        sentences: &[
            (
                "completed",
                "job {/workflow_job/name:quoted}[ of workflow {/workflow_job/workflow_name:quoted}] {ended}[ at {steps}] on {commit} in {repo}",
            ),
            (
                "in_progress",
                "job {/workflow_job/name:quoted}[ of workflow {/workflow_job/workflow_name:quoted}] started on {commit} in {repo}",
            ),
            (
                "queued",
                "job {/workflow_job/name:quoted}[ of workflow {/workflow_job/workflow_name:quoted}] is queued on {commit} in {repo}",
            ),
            (
                "waiting",
                "job {/workflow_job/name:quoted}[ of workflow {/workflow_job/workflow_name:quoted}] waits for an approval on {commit} in {repo}",
            ),
            (
                "",
                "job {/workflow_job/name:quoted}[ of workflow {/workflow_job/workflow_name:quoted}] on {commit} in {repo}: {did}",
            ),
        ],
    },
    EventSentences {
        event: "workflow_run",
        texts: &["/workflow_run/display_title"],
        sentences: &[
            (
                "completed",
                "{workflow} {ended} on {commit} in {repo}[, caused by {/workflow_run/event:words}]",
            ),
            (
                "in_progress",
                "{workflow} started on {commit} in {repo}[, caused by {/workflow_run/event:words}]",
            ),
            (
                "requested",
                "{workflow} is requested on {commit} in {repo}[, caused by {/workflow_run/event:words}]",
            ),
            ("", "{workflow} on {commit} in {repo}: {did}"),
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::super::phrases::Phrases;
    use super::*;
    use crate::sentence::{faults, table_faults};

    #[test]
    fn conn_1_sentences_are_sorted_complete_and_well_formed() {
        let phrases = Phrases::of("", &Value::Null);
        assert_eq!(faults(OTHER, &phrases), Vec::<String>::new());
        assert_eq!(table_faults(TABLE, &phrases), Vec::<String>::new());
    }
}
