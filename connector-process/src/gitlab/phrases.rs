//! Phrases of sentences: typed access to the objects of a payload. Pure.

use serde_json::Value;

use super::origin;
use crate::payload::{items, omitted, text};
use crate::sentence::PhraseSource;
use crate::sentence::texts::commits_in;
use crate::sentence::values::{listed, one_line, quoted, scalar};

/// Sender of events without a person.
const GITLAB: &str = "GitLab";

/// Displayed characters of a commit's ID.
const COMMIT_ID_CHARS: usize = 7;

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
            "who" => Some(self.sender().unwrap_or_else(|| GITLAB.to_owned())),
            "sender" => self.sender(),
            "place" => Some(self.place()),
            "issue" => Some(self.issue("/object_attributes")),
            "merge_request" => Some(self.merge_request("/object_attributes")),
            "target" => Some(self.target("/object_attributes/noteable_type")),
            "awarded" => Some(self.awarded()),
            "where" => self.place_in_code(),
            "changed" => self.changed(),
            "ended" => Some(self.ended()),
            "reason" => self.failure_reason(),
            "revision" => self.revision(),
            "commits" => self.commits(),
            "failed" => self.failed_jobs(),
            "release" => Some(self.release()),
            "member" => Some(self.member()),
            "access" => self.first(&["/group_access", "/project_access", "/access_level"]),
            "vulnerability" => Some(self.vulnerability()),
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

    fn is(&self, pointer: &str) -> bool {
        self.body.pointer(pointer) == Some(&Value::Bool(true))
    }

    fn sender(&self) -> Option<String> {
        origin::sender(self.event, self.body).map(str::to_owned)
    }

    /// The project, else the group.
    fn place(&self) -> String {
        let group = || origin::group(self.body).map(|group| format!("group {group}"));
        origin::project(self.body)
            .map(str::to_owned)
            .or_else(group)
            .unwrap_or_else(|| GITLAB.to_owned())
    }

    /// Such as `issue #3 "Title" in a/b`.
    fn numbered(&self, kind: &str, sign: char, object: &str) -> String {
        let mut words = kind.to_owned();
        if let Some(number) = self.at(&format!("{object}/iid")) {
            words.push_str(&format!(" {sign}{number}"));
        }
        if let Some(title) = quoted(self.body, &format!("{object}/title")) {
            words.push_str(&format!(" {title}"));
        }
        format!("{words} in {}", self.place())
    }

    /// An issue, or another kind of work item.
    fn issue(&self, object: &str) -> String {
        let kind = self.at(&format!("{object}/type"));
        let kind = kind.map_or_else(|| "issue".to_owned(), |kind| kind.to_lowercase());
        match self.is(&format!("{object}/confidential")) {
            true => self.numbered(&format!("confidential {kind}"), '#', object),
            false => self.numbered(&kind, '#', object),
        }
    }

    fn merge_request(&self, object: &str) -> String {
        // The sentence of an event that changes the draft state names the change.
        let is_changed = self.body.pointer("/changes/draft").is_some();
        let is_draft = !is_changed && self.is(&format!("{object}/draft"));
        let kind = match is_draft {
            true => "draft merge request",
            false => "merge request",
        };
        self.numbered(kind, '!', object)
    }

    /// The commented object, or the object with the reaction, by its kind.
    fn target(&self, kind: &str) -> String {
        match text(self.body, kind) {
            Some("Commit") => self.commented_commit(),
            Some("MergeRequest") => self.merge_request("/merge_request"),
            Some("Issue" | "WorkItem") => self.issue("/issue"),
            Some("Epic") => self.numbered("epic", '&', "/epic"),
            Some("Snippet" | "ProjectSnippet") => self.snippet(),
            Some(_) | None => format!("something in {}", self.place()),
        }
    }

    /// The object with the reaction.
    fn awarded(&self) -> String {
        const KIND: &str = "/object_attributes/awardable_type";
        match text(self.body, KIND) {
            Some("Note") => format!("a comment on {}", self.target("/note/noteable_type")),
            Some(_) | None => self.target(KIND),
        }
    }

    fn commented_commit(&self) -> String {
        let mut words = "commit".to_owned();
        let id = self.first(&[
            "/commit/id",
            "/object_attributes/commit_id",
            "/note/commit_id",
        ]);
        if let Some(id) = id {
            words.push_str(&format!(" {}", short(&id)));
        }
        let message = text(self.body, "/commit/message").unwrap_or_default();
        let title = one_line(message.lines().next().unwrap_or_default());
        if !title.is_empty() {
            words.push_str(&format!(" \"{title}\""));
        }
        format!("{words} in {}", self.place())
    }

    fn snippet(&self) -> String {
        let id = self.at("/snippet/id").map(|id| format!(" ${id}"));
        let title = quoted(self.body, "/snippet/title").map(|title| format!(" {title}"));
        format!(
            "snippet{}{} in {}",
            id.unwrap_or_default(),
            title.unwrap_or_default(),
            self.place()
        )
    }

    /// File and line of a comment on code.
    fn place_in_code(&self) -> Option<String> {
        let path = self.first(&[
            "/object_attributes/position/new_path",
            "/object_attributes/position/old_path",
            "/object_attributes/st_diff/new_path",
        ])?;
        let line = self.first(&[
            "/object_attributes/position/new_line",
            "/object_attributes/position/old_line",
        ]);
        Some(match line {
            Some(line) => format!("`{path}` line {line}"),
            None => format!("`{path}`"),
        })
    }

    /// The changes of an issue or merge request.
    fn changed(&self) -> Option<String> {
        let changes = origin::changes(self.body);
        let words = changes.flat_map(|(name, change)| self.change(name, change));
        listed(words, 0)
    }

    fn change(&self, name: &str, change: &Value) -> Vec<String> {
        let of_list = |key: &str, added: &str, removed: &str| {
            let named = |words: &str, names: Vec<&str>| -> Vec<String> {
                let words = names.iter().map(|name| format!("{words} {name}"));
                words.collect()
            };
            let more = origin::difference(change, ("current", "previous"), key);
            let less = origin::difference(change, ("previous", "current"), key);
            let mut words = named(added, more);
            words.extend(named(removed, less));
            words
        };
        match name {
            "labels" => of_list("title", "added label", "removed label"),
            "assignees" => of_list("username", "assigned to", "no longer assigned to"),
            "reviewers" => of_list("username", "review by", "no review by"),
            "description" => vec!["the description".to_owned()],
            "draft" if self.is("/changes/draft/current") => vec!["now a draft".to_owned()],
            "draft" => vec!["no longer a draft".to_owned()],
            "milestone_id" => vec!["the milestone".to_owned()],
            other => {
                let words = other.strip_suffix("_id").unwrap_or(other).replace('_', " ");
                let former = scalar(change, "/previous").filter(|_| other == "title");
                let now = scalar(change, "/current");
                vec![match (former, now) {
                    (Some(former), _) => format!("the title was \"{former}\""),
                    (None, Some(now)) => format!("{words} is now \"{now}\""),
                    (None, None) => words,
                }]
            }
        }
    }

    /// The status of a pipeline, a job or a deployment as a verb.
    fn ended(&self) -> String {
        let pointers = ["/object_attributes/status", "/build_status", "/status"];
        let status = pointers.iter().find_map(|pointer| text(self.body, pointer));
        match status {
            Some("success") => "succeeded",
            Some("failed") => "failed",
            Some("canceled") => "was canceled",
            Some("canceling") => "is being canceled",
            Some("created") => "was created",
            Some("manual") => "waits for a person to start it",
            Some("skipped") => "was skipped",
            Some("waiting_for_resource") => "waits for a resource",
            Some("waiting_for_callback") => "waits for a callback",
            Some(other) => return format!("is {}", other.replace('_', " ")),
            None => "changed",
        }
        .to_owned()
    }

    /// The reason of a failed job. Other jobs have one without meaning.
    fn failure_reason(&self) -> Option<String> {
        let is_failed = text(self.body, "/build_status") == Some("failed");
        let reason = self.at("/build_failure_reason").filter(|_| is_failed)?;
        (reason != "unknown_failure").then(|| reason.replace('_', " "))
    }

    /// The branch, tag and commit of a pipeline or job, and the merge request.
    fn revision(&self) -> Option<String> {
        let branch = self.first(&["/object_attributes/ref", "/ref"])?;
        let is_tag = self.is("/object_attributes/tag") || self.is("/tag");
        let kind = if is_tag { "tag" } else { "branch" };
        let commit = origin::commit(self.body).map(|commit| format!("commit {}", short(commit)));
        let merge_request = self.at("/merge_request/iid");
        let merge_request = merge_request.map(|number| format!("merge request !{number}"));
        let notes: Vec<String> = commit.into_iter().chain(merge_request).collect();
        Some(match notes.is_empty() {
            true => format!("{kind} {branch}"),
            false => format!("{kind} {branch} ({})", notes.join(", ")),
        })
    }

    /// The number of commits of a push, if there are any.
    fn commits(&self) -> Option<String> {
        match total_commits(self.body) {
            0 => None,
            1 => Some("1 commit".to_owned()),
            count => Some(format!("{count} commits")),
        }
    }

    /// Names of the failed jobs of a pipeline that were not allowed to fail.
    fn failed_jobs(&self) -> Option<String> {
        let failed = items(self.body, "/builds").filter(|job| {
            let may_fail = job.get("allow_failure") == Some(&Value::Bool(true));
            text(job, "/status") == Some("failed") && !may_fail
        });
        let is_failed = text(self.body, "/object_attributes/status") == Some("failed");
        let names = failed.filter_map(|job| quoted(job, "/name"));
        listed(names, omitted(self.body, "/builds")).filter(|_| is_failed)
    }

    fn release(&self) -> String {
        match (self.at("/name"), self.at("/tag")) {
            (Some(name), Some(tag)) if name != tag => format!("release \"{name}\" (tag {tag})"),
            (_, Some(tag)) => format!("release {tag}"),
            (Some(name), None) => format!("release \"{name}\""),
            (None, None) => "a release".to_owned(),
        }
    }

    fn member(&self) -> String {
        self.first(&["/user_username", "/user_name"])
            .unwrap_or_else(|| "a person".to_owned())
    }

    /// A vulnerability with its severity, place and public number.
    fn vulnerability(&self) -> String {
        const OBJECT: &str = "/object_attributes";
        let title = quoted(self.body, &format!("{OBJECT}/title"));
        let severity = self.at(&format!("{OBJECT}/severity"));
        let package = self.at(&format!("{OBJECT}/location/dependency/package/name"));
        let file = self.at(&format!("{OBJECT}/location/file"));
        let file = file.map(|file| format!("`{file}`"));
        let place = match (package, file) {
            (Some(package), Some(file)) => Some(format!("{package} in {file}")),
            (package, file) => package.or(file),
        };
        let mut numbers = items(self.body, "/object_attributes/identifiers");
        let number = numbers.find(|it| text(it, "/external_type") == Some("cve"));
        let number = number.and_then(|it| scalar(it, "/name"));
        let notes = [severity, place, number].into_iter().flatten();
        let notes: Vec<String> = notes.collect();
        let mut words = "vulnerability".to_owned();
        if let Some(title) = title {
            words.push_str(&format!(" {title}"));
        }
        if !notes.is_empty() {
            words.push_str(&format!(" ({})", notes.join(", ")));
        }
        words
    }
}

/// The number of commits of a push. The payload has the newest ones only.
pub(super) fn total_commits(body: &Value) -> usize {
    let total = body.pointer("/total_commits_count").and_then(Value::as_u64);
    let total = total.and_then(|total| usize::try_from(total).ok());
    total.unwrap_or_else(|| commits_in(body))
}

fn short(commit: &str) -> String {
    commit.chars().take(COMMIT_ID_CHARS).collect()
}
