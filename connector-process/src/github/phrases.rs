//! Phrases of sentences: typed access to the objects of a payload. Pure.

use serde_json::Value;

use crate::payload::{items, omitted, text};
use crate::sentence::PhraseSource;
use crate::sentence::texts::commits_in;
use crate::sentence::values::{listed, one_line, quoted, scalar};

/// Sender of events without a person, such as security advisories.
const GITHUB: &str = "GitHub";

/// The phrases of one payload.
#[derive(Debug, Clone, Copy)]
pub(super) struct Phrases<'v> {
    event: &'v str,
    body: &'v Value,
}

impl PhraseSource for Phrases<'_> {
    fn body(&self) -> &Value {
        self.body
    }

    fn phrase(&self, name: &str) -> Option<Option<String>> {
        Some(match name {
            "who" => Some(self.who()),
            "did" => Some(self.did()),
            "repo" => Some(self.place()),
            "account" => self.account(),
            "app" => Some(self.app()),
            "issue" => Some(self.issue()),
            "pull" => Some(self.numbered("pull request", "/pull_request")),
            "discussion" => Some(self.numbered("discussion", "/discussion")),
            "comment" => Some(self.written("a comment", "/comment/user/login")),
            "review" => Some(self.written("a review", "/review/user/login")),
            "where" => self.line_of_comment(),
            "changed" => self.changed(),
            "ended" => Some(self.ended()),
            "state" => Some(self.state()),
            "commit" => self.commit(),
            "commits" => self.commits(),
            "workflow" => Some(self.workflow()),
            "steps" => self.failed_steps(),
            "release" => Some(self.release()),
            "alert" => Some(self.alert()),
            "package" => Some(self.package()),
            "card" => Some(self.card()),
            "column" => self.other_column(),
            "item" => Some(self.project_item()),
            "field" => self.changed_field(),
            "permission" => self.permission(),
            "reviewer" => Some(self.reviewer()),
            "pages" => Some(self.pages()),
            "repositories" => Some(self.repositories()),
            "inputs" => self.inputs(),
            "settings" => self.settings(),
            "thing" => Some(self.thing()),
            _ => return None,
        })
    }
}

impl<'v> Phrases<'v> {
    pub(super) fn of(event: &'v str, body: &'v Value) -> Self {
        Self { event, body }
    }

    fn at(&self, pointer: &str) -> Option<String> {
        scalar(self.body, pointer)
    }

    fn first(&self, pointers: &[&str]) -> Option<String> {
        pointers.iter().find_map(|pointer| self.at(pointer))
    }

    fn who(&self) -> String {
        self.at("/sender/login")
            .unwrap_or_else(|| GITHUB.to_owned())
    }

    /// The action as a verb in the past tense. GitHub names most actions so.
    fn did(&self) -> String {
        let action = text(self.body, "/action").unwrap_or("changed");
        match action {
            "create" => "created".to_owned(),
            "dismiss" => "dismissed".to_owned(),
            "resolve" => "resolved".to_owned(),
            "reopen" => "reopened".to_owned(),
            "suspend" => "suspended".to_owned(),
            "unsuspend" => "unsuspended".to_owned(),
            "withdrawn" => "withdrew".to_owned(),
            other => one_line(&other.replace(['_', '-'], " ")),
        }
    }

    /// The repository, else the account.
    fn place(&self) -> String {
        let repository = self.at("/repository/full_name");
        repository
            .or_else(|| self.account())
            .unwrap_or_else(|| GITHUB.to_owned())
    }

    /// The organization, enterprise or account concerned.
    fn account(&self) -> Option<String> {
        super::ACCOUNTS.iter().find_map(|pointer| self.at(pointer))
    }

    /// The GitHub App of an installation.
    fn app(&self) -> String {
        match self.at("/installation/app_slug") {
            Some(name) => format!("the GitHub App {name}"),
            None => "the GitHub App".to_owned(),
        }
    }

    /// Such as `issue #3 "Title" in a/b`.
    fn numbered(&self, kind: &str, object: &str) -> String {
        let mut words = kind.to_owned();
        if let Some(number) = self.at(&format!("{object}/number")) {
            words.push_str(&format!(" #{number}"));
        }
        if let Some(title) = self.at(&format!("{object}/title")) {
            words.push_str(&format!(" \"{title}\""));
        }
        format!("{words} in {}", self.place())
    }

    fn issue(&self) -> String {
        let is_pull = self.body.pointer("/issue/pull_request").is_some();
        let kind = if is_pull { "pull request" } else { "issue" };
        self.numbered(kind, "/issue")
    }

    /// A comment or a review, with its author unless that is the sender.
    fn written(&self, kind: &str, author: &str) -> String {
        let author = self.at(author);
        match author.filter(|author| *author != self.who()) {
            Some(author) => format!("{kind} by {author}"),
            None => kind.to_owned(),
        }
    }

    /// File and line of a comment on code.
    fn line_of_comment(&self) -> Option<String> {
        let path = self.at("/comment/path")?;
        let line = self.first(&["/comment/line", "/comment/original_line"]);
        Some(match line {
            Some(line) => format!("`{path}` line {line}"),
            None => format!("`{path}`"),
        })
    }

    /// The changed fields with their former values, from `changes`.
    fn changed(&self) -> Option<String> {
        let changes = self.body.pointer("/changes")?.as_object()?;
        let fields = changes.iter().map(|(name, change)| {
            let words = match name.as_str() {
                "body" => "text".to_owned(),
                other => one_line(&other.replace('_', " ")),
            };
            let is_named = name != "body" && name != "description";
            let former = scalar(change, "/from")
                .or_else(|| scalar(change, "/ref/from"))
                .filter(|_| is_named);
            match former {
                Some(former) => format!("{words} was \"{former}\""),
                None => words,
            }
        });
        listed(fields, 0)
    }

    /// A conclusion as a verb.
    fn ended(&self) -> String {
        let objects = [
            "/check_run",
            "/check_suite",
            "/workflow_run",
            "/workflow_job",
        ];
        let conclusion = objects
            .iter()
            .find_map(|object| text(self.body, &format!("{object}/conclusion")));
        match conclusion {
            Some("success") => "succeeded",
            Some("failure") => "failed",
            Some("cancelled") => "was cancelled",
            Some("timed_out") => "timed out",
            Some("skipped") => "was skipped",
            Some("neutral") => "ended as neutral",
            Some("stale") => "became stale",
            Some("action_required") => "requires an action",
            Some("startup_failure") => "failed to start",
            Some(other) => return format!("ended as {}", one_line(&other.replace('_', " "))),
            None => "ended without a conclusion",
        }
        .to_owned()
    }

    /// A state as a verb.
    fn state(&self) -> String {
        let pointers = [
            "/deployment_status/state",
            "/state",
            "/status",
            "/build/status",
            "/check_run/status",
        ];
        let state = pointers.iter().find_map(|pointer| text(self.body, pointer));
        match state {
            Some("success" | "built") => "succeeded",
            Some("failure" | "errored" | "failed") => "failed",
            Some("error") => "ended with an error",
            Some("cancelled") => "was cancelled",
            Some("inactive") => "is no longer active",
            Some(other) => return format!("is {}", one_line(&other.replace('_', " "))),
            None => "changed",
        }
        .to_owned()
    }

    /// The commit with its branch and pull request, such as `commit 0123456 (branch main)`.
    fn commit(&self) -> Option<String> {
        let objects = [
            "/check_run",
            "/check_suite",
            "/workflow_run",
            "/workflow_job",
        ];
        let object = objects
            .into_iter()
            .find(|object| self.body.pointer(object).is_some())?;
        let sha = self.at(&format!("{object}/head_sha"))?;
        let short: String = sha.chars().take(7).collect();
        let branch = self.first(&[
            &format!("{object}/head_branch"),
            &format!("{object}/check_suite/head_branch"),
        ]);
        let pull = self.first(&[
            &format!("{object}/pull_requests/0/number"),
            &format!("{object}/check_suite/pull_requests/0/number"),
        ]);
        let branch = branch.map(|branch| format!("branch {branch}"));
        let pull = pull.map(|number| format!("pull request #{number}"));
        let notes: Vec<String> = branch.into_iter().chain(pull).collect();
        Some(if notes.is_empty() {
            format!("commit {short}")
        } else {
            format!("commit {short} ({})", notes.join(", "))
        })
    }

    /// The number of commits of a push, if there are any.
    fn commits(&self) -> Option<String> {
        match commits_in(self.body) {
            0 => None,
            1 => Some("1 commit".to_owned()),
            count => Some(format!("{count} commits")),
        }
    }

    /// A workflow with the number of its run.
    fn workflow(&self) -> String {
        let name = self.first(&[
            "/workflow_run/name",
            "/workflow/name",
            "/workflow_run/path",
            "/workflow/path",
        ]);
        let mut words = match name {
            Some(name) => format!("workflow \"{name}\""),
            None => "a workflow".to_owned(),
        };
        if let Some(number) = self.at("/workflow_run/run_number") {
            words.push_str(&format!(" (run {number}"));
            let attempt = self.at("/workflow_run/run_attempt");
            if let Some(attempt) = attempt.filter(|attempt| attempt != "1") {
                words.push_str(&format!(", attempt {attempt}"));
            }
            words.push(')');
        }
        words
    }

    /// Names of the failed steps of a job.
    fn failed_steps(&self) -> Option<String> {
        let steps = items(self.body, "/workflow_job/steps");
        let failed = steps.filter(|step| text(step, "/conclusion") == Some("failure"));
        listed(failed.filter_map(|step| quoted(step, "/name")), 0)
    }

    /// Such as `release v1 "First"`; drafts and pre-releases are named so.
    fn release(&self) -> String {
        let is = |pointer: &str| self.body.pointer(pointer) == Some(&Value::Bool(true));
        let kind = if is("/release/draft") {
            "draft release"
        } else if is("/release/prerelease") {
            "pre-release"
        } else {
            "release"
        };
        let tag = self.at("/release/tag_name");
        let name = self.at("/release/name");
        match (tag, name) {
            (Some(tag), Some(name)) if tag != name => format!("{kind} {tag} \"{name}\""),
            (Some(tag), _) => format!("{kind} {tag}"),
            (None, Some(name)) => format!("{kind} \"{name}\""),
            (None, None) => format!("a {kind}"),
        }
    }

    /// A security alert with its number, summary, severity and place.
    fn alert(&self) -> String {
        let mut words = "alert".to_owned();
        if let Some(number) = self.at("/alert/number") {
            words.push_str(&format!(" #{number}"));
        }
        let title = self.first(&[
            "/alert/security_advisory/summary",
            "/alert/rule/description",
            "/alert/secret_type_display_name",
            "/alert/secret_type",
            "/alert/affected_package_name",
        ]);
        if let Some(title) = title {
            words.push_str(&format!(" \"{title}\""));
        }
        let severity = self.first(&[
            "/alert/security_advisory/severity",
            "/alert/rule/security_severity_level",
            "/alert/rule/severity",
            "/alert/severity",
        ]);
        let package = self.at("/alert/dependency/package/name");
        let file = self.at("/alert/dependency/manifest_path");
        let place = match (package, file) {
            (Some(package), Some(file)) => Some(format!("{package} in `{file}`")),
            (package, file) => package.or(file),
        };
        let tool = self.at("/alert/tool/name");
        let advisory = self.first(&[
            "/alert/security_advisory/ghsa_id",
            "/alert/external_identifier",
            "/alert/ghsa_id",
        ]);
        let notes = [severity, tool, place, advisory].into_iter().flatten();
        let notes: Vec<String> = notes.collect();
        if !notes.is_empty() {
            words.push_str(&format!(" ({})", notes.join(", ")));
        }
        format!("{words} in {}", self.place())
    }

    /// A package with its kind and version.
    fn package(&self) -> String {
        let object = match self.body.pointer("/registry_package") {
            Some(_) => "/registry_package",
            None => "/package",
        };
        let name = self.at(&format!("{object}/name")).unwrap_or_default();
        let kind = self.at(&format!("{object}/package_type"));
        let kind = kind.map(|kind| format!("{} ", kind.to_lowercase()));
        let version = self.first(&[
            &format!("{object}/package_version/container_metadata/tag/name"),
            &format!("{object}/package_version/version"),
        ]);
        let version = version.map(|version| format!(" {version}"));
        format!(
            "{}package {name}{}",
            kind.unwrap_or_default(),
            version.unwrap_or_default()
        )
    }

    /// A card of a classic project: its note, or the number of its issue.
    fn card(&self) -> String {
        if let Some(note) = self.at("/project_card/note") {
            return format!("the card \"{note}\"");
        }
        let link = self.at("/project_card/content_url");
        let number = link.as_deref().and_then(|link| link.rsplit('/').next());
        match number {
            Some(number) => format!("the card of issue #{number}"),
            None => "a card".to_owned(),
        }
    }

    /// The destination of a card that left its column; payloads have only the IDs of columns.
    fn other_column(&self) -> Option<String> {
        self.at("/changes/column_id/from")?;
        Some("another column".to_owned())
    }

    /// An item of a project. Its payload has only the kind of its content.
    fn project_item(&self) -> String {
        match text(self.body, "/projects_v2_item/content_type") {
            Some("DraftIssue") => "a draft issue",
            Some("Issue") => "an issue",
            Some("PullRequest") => "a pull request",
            Some(_) | None => "an item",
        }
        .to_owned()
    }

    /// The changed field of a project's item, with its values.
    fn changed_field(&self) -> Option<String> {
        let value = "/changes/field_value";
        let name = self.at(&format!("{value}/field_name")).or_else(|| {
            let kind = self.at(&format!("{value}/field_type"))?;
            Some(format!("a field of type {}", kind.replace('_', " ")))
        })?;
        let named = |side: &str| {
            self.first(&[
                &format!("{value}/{side}/name"),
                &format!("{value}/{side}/title"),
                &format!("{value}/{side}"),
            ])
        };
        Some(match (named("from"), named("to")) {
            (Some(from), Some(to)) => format!("{name} from \"{from}\" to \"{to}\""),
            (None, Some(to)) => format!("{name} to \"{to}\""),
            (_, None) => name,
        })
    }

    /// The new permission of a member.
    fn permission(&self) -> Option<String> {
        let to = self.first(&["/changes/permission/to", "/changes/role_name/to"]);
        let from = self.first(&["/changes/permission/from", "/changes/old_permission/from"]);
        match (from, to) {
            (Some(from), Some(to)) => Some(format!("from {from} to {to}")),
            (None, Some(to)) => Some(format!("to {to}")),
            (Some(from), None) => Some(format!("from {from}")),
            (None, None) => None,
        }
    }

    /// The people or teams of whom a review is requested.
    fn reviewer(&self) -> String {
        let single = self.at("/requested_reviewer/login");
        let team = self.at("/requested_team/name");
        let team = team.map(|team| format!("team {team}"));
        let several = items(self.body, "/reviewers").filter_map(|entry| {
            let person = scalar(entry, "/reviewer/login");
            let team = || scalar(entry, "/reviewer/name").map(|name| format!("team {name}"));
            person.or_else(team)
        });
        let several = listed(several, 0);
        let reviewer = single.or(team).or(several);
        reviewer.unwrap_or_else(|| "a reviewer".to_owned())
    }

    /// The changed pages of a wiki.
    fn pages(&self) -> String {
        let pages = items(self.body, "/pages").filter_map(|page| {
            let did = scalar(page, "/action").unwrap_or_else(|| "changed".to_owned());
            Some(format!("{did} {}", quoted(page, "/title")?))
        });
        let pages = listed(pages, omitted(self.body, "/pages"));
        pages.unwrap_or_else(|| "changed pages".to_owned())
    }

    /// The repositories of an installation's event.
    fn repositories(&self) -> String {
        let lists = super::REPOSITORY_LISTS;
        let names = lists.iter().flat_map(|list| items(self.body, list));
        let names = names.filter_map(|repository| scalar(repository, "/full_name"));
        let rest = lists.iter().map(|list| omitted(self.body, list)).sum();
        let is_all = text(self.body, "/installation/repository_selection") == Some("all");
        match listed(names, rest) {
            Some(names) if is_all => format!("all repositories ({names})"),
            Some(names) => names,
            None if is_all => "all repositories".to_owned(),
            None => "no repository".to_owned(),
        }
    }

    /// The inputs of a workflow that a person started.
    fn inputs(&self) -> Option<String> {
        let inputs = self.body.pointer("/inputs")?.as_object()?;
        let inputs = inputs.iter().filter_map(|(name, value)| {
            let value = scalar(value, "")?;
            Some(format!("{}: {value}", one_line(name)))
        });
        listed(inputs, 0)
    }

    /// The changed security settings of a repository, from `changes.from`.
    fn settings(&self) -> Option<String> {
        let former = "/changes/from/security_and_analysis";
        let former = self.body.pointer(former)?.as_object()?;
        let settings = former.keys().map(|name| {
            let now = self.at(&format!("/repository/security_and_analysis/{name}/status"));
            let now = now.unwrap_or_else(|| "changed".to_owned());
            format!("{} is {now}", one_line(&name.replace('_', " ")))
        });
        listed(settings, 0)
    }

    /// An object of an event that the table does not list: the event's name in words, and the name
    /// of the object with that name.
    fn thing(&self) -> String {
        let mut words = one_line(&self.event.replace('_', " "));
        let object = format!("/{}", self.event);
        let number = self.first(&[&format!("{object}/number"), "/alert/number"]);
        if let Some(number) = number {
            words.push_str(&format!(" #{number}"));
        }
        let names = ["name", "title", "display_title", "slug", "login"];
        let name = names
            .iter()
            .find_map(|name| self.at(&format!("{object}/{name}")));
        if let Some(name) = name {
            words.push_str(&format!(" \"{name}\""));
        }
        words
    }
}
