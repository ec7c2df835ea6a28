//! Comments of people on the files and lines of a proposal (`REPO-3`).
//!
//! The run's log is the source of truth: a comment exists once its event is durable. Each comment
//! has the text of its line, because the proposal that it is about may be replaced.

use std::path::Path;

use goondan_durable::disk::read_all;
use goondan_protocol::control::{
    CommentChange, CommentProposal, CommentState, ProposalComment, ProposalState, RunEvent,
    RunEventKind, SandboxRef, UncommentProposal,
};
use goondan_protocol::ids::WorkerId;
use goondan_trees::{Digest, RelativePath, TreeEntry};

use crate::error::{IoContext as _, ProposalError};
use crate::guards::path_of;
use crate::limits::{
    COMMENT_BYTES_MAX, COMMENT_LINE_CHARS_MAX, COMMENTED_FILE_BYTES_MAX, COMMENTS_MAX,
    COMMENTS_OPEN_MAX,
};
use crate::place::{AFTER, INPUT};
use crate::sandboxes::{OpenSandbox, Sandboxes, StoredProposal};

/// Maximum characters of a comment in the detail of its event.
const DETAIL_CHARS_MAX: usize = 200;

/// A comment with the data that only the log needs.
#[derive(Debug)]
struct LoggedComment {
    comment: ProposalComment,
    is_removed: bool,
    /// Request for rework with which it was sent.
    round: Option<u64>,
}

/// The comments of a sandbox, oldest first, from the run's log.
fn logged(events: &[RunEvent], agent: &WorkerId) -> Vec<LoggedComment> {
    let mut all: Vec<LoggedComment> = Vec::new();
    for event in events.iter().filter(|event| event.agent_id == *agent) {
        match (event.kind, &event.comments) {
            (RunEventKind::SandboxPrepared | RunEventKind::SandboxRemoved, _) => all.clear(),
            (RunEventKind::ProposalCreated, _) => {
                for entry in &mut all {
                    let comment = &mut entry.comment;
                    if comment.state == CommentState::Sent && comment.addressed_by.is_none() {
                        comment.addressed_by.clone_from(&event.digest);
                    }
                }
            }
            (_, Some(CommentChange::Added { comment })) => all.push(LoggedComment {
                comment: (**comment).clone(),
                is_removed: false,
                round: None,
            }),
            (_, Some(CommentChange::Removed { number })) => {
                let entry = all.iter_mut().find(|entry| entry.comment.number == *number);
                if let Some(entry) = entry {
                    entry.is_removed = true;
                }
            }
            (_, Some(CommentChange::Sent { numbers, round })) => {
                for entry in &mut all {
                    if numbers.contains(&entry.comment.number) {
                        entry.round = Some(*round);
                        entry.comment.state = CommentState::Sent;
                        entry.comment.sent_at = Some(event.at);
                    }
                }
            }
            _ => {}
        }
    }
    all
}

/// The comments of a sandbox for display, oldest first.
pub(crate) fn comments(events: &[RunEvent], agent: &WorkerId) -> Vec<ProposalComment> {
    let present = logged(events, agent)
        .into_iter()
        .filter(|it| !it.is_removed);
    present.map(|entry| entry.comment).collect()
}

impl Sandboxes<'_> {
    /// Adds a comment to a pending proposal. A comment with a known id is returned as it is.
    ///
    /// # Errors
    ///
    /// [`ProposalError::Invalid`] if the proposal does not change the file, the file does not have
    /// the line, or a limit is reached; [`ProposalError::Standing`] if the proposal is decided.
    pub fn comment(&mut self, request: &CommentProposal) -> Result<ProposalComment, ProposalError> {
        let at = &request.at;
        let open = self.open(at)?;
        let all = logged(&self.events(&at.run_id)?, &at.agent_id);
        let is_known = |entry: &&LoggedComment| {
            request.comment_id.is_some() && entry.comment.comment_id == request.comment_id
        };
        if let Some(known) = all.iter().find(is_known) {
            return Ok(known.comment.clone());
        }
        let kept = self.kept(&open)?;
        Self::check_digest(request.digest.as_deref(), &kept)?;
        let state = kept.standing.state;
        if state != ProposalState::Open {
            return Err(ProposalError::Standing {
                at: at.clone(),
                state,
                problem: "only a waiting proposal can be commented on",
            });
        }
        let text = request.text.trim();
        if text.is_empty() || text.len() > COMMENT_BYTES_MAX {
            return Err(ProposalError::invalid(
                format!("a comment must have 1 to {COMMENT_BYTES_MAX} bytes"),
                "shorten it, or add several comments",
            ));
        }
        check_count(&all)?;
        let path = path_of(&request.path)?;
        let is_changed = kept
            .record
            .changed_files
            .iter()
            .any(|change| change.path == path.to_string());
        if !is_changed {
            return Err(ProposalError::invalid(
                format!("the proposal does not change `{path}`"),
                format!(
                    "list its files: `gdn proposal show {} {}`",
                    at.run_id, at.agent_id
                ),
            ));
        }
        let line_text = match request.line {
            Some(line) => Some(line_text(&open, &kept, &path, line, request.old)?),
            None => None,
        };
        let number = all.last().map_or(0, |entry| entry.comment.number) + 1;
        let comment = ProposalComment {
            number,
            comment_id: request.comment_id.clone(),
            at: self.now,
            digest: kept.standing.digest.clone(),
            path: path.to_string(),
            line: request.line,
            old: request.old && request.line.is_some(),
            line_text,
            text: text.to_owned(),
            state: CommentState::Open,
            sent_at: None,
            addressed_by: None,
        };
        let detail = format!(
            "comment {number} on {}: {}",
            comment.place(),
            in_short(text)
        );
        let change = CommentChange::Added {
            comment: Box::new(comment.clone()),
        };
        self.note_comments(at, &kept.standing.digest, detail, change)?;
        Ok(comment)
    }

    /// Removes a comment that was not sent.
    ///
    /// # Errors
    ///
    /// [`ProposalError::Invalid`] if it does not exist, or was sent.
    pub fn uncomment(&mut self, request: &UncommentProposal) -> Result<(), ProposalError> {
        let (at, number) = (&request.at, request.number);
        let open = self.open(at)?;
        let kept = self.kept(&open)?;
        let all = logged(&self.events(&at.run_id)?, &at.agent_id);
        let found = all.iter().find(|entry| entry.comment.number == number);
        let hint = format!(
            "list them: `gdn proposal comments {} {}`",
            at.run_id, at.agent_id
        );
        match found {
            None => Err(ProposalError::invalid(
                format!("comment {number} does not exist"),
                hint,
            )),
            // A repeated request has no effect.
            Some(entry) if entry.is_removed => Ok(()),
            Some(entry) if entry.comment.state == CommentState::Sent => {
                Err(ProposalError::invalid(
                    format!("comment {number} was sent to the agent"),
                    "add another comment that corrects it",
                ))
            }
            Some(_) => {
                let detail = format!("comment {number} removed");
                let change = CommentChange::Removed { number };
                self.note_comments(at, &kept.standing.digest, detail, change)
            }
        }
    }

    /// Marks all open comments as sent with a request for rework, and returns the comments of that
    /// request. Called again for the same request, it returns at least the same comments, so that a
    /// request that was interrupted by a crash loses none.
    ///
    /// # Errors
    ///
    /// [`ProposalError::Damaged`], [`ProposalError::Io`].
    pub fn take_comments(
        &mut self,
        at: &SandboxRef,
        round: u64,
    ) -> Result<Vec<ProposalComment>, ProposalError> {
        match self.open(at) {
            Ok(_) => {}
            Err(ProposalError::NoSandbox { .. }) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        }
        let all = logged(&self.events(&at.run_id)?, &at.agent_id);
        let numbers: Vec<u32> = all
            .iter()
            .filter(|entry| entry.is_open())
            .map(|entry| entry.comment.number)
            .collect();
        if !numbers.is_empty() {
            let digest = self.standing(at)?.map(|standing| standing.digest);
            let list: Vec<String> = numbers.iter().map(u32::to_string).collect();
            let detail = format!("sent to the agent: comments {}", list.join(", "));
            let change = CommentChange::Sent { numbers, round };
            self.note_comments(at, &digest.unwrap_or_default(), detail, change)?;
        }
        let all = logged(&self.events(&at.run_id)?, &at.agent_id);
        let sent = all.into_iter().filter(|entry| entry.round == Some(round));
        Ok(sent.map(|entry| entry.comment).collect())
    }
}

impl LoggedComment {
    fn is_open(&self) -> bool {
        !self.is_removed && self.comment.state == CommentState::Open
    }
}

fn check_count(all: &[LoggedComment]) -> Result<(), ProposalError> {
    if all.len() >= COMMENTS_MAX {
        return Err(ProposalError::invalid(
            format!("the sandbox already had {COMMENTS_MAX} comments"),
            "write the rest as text: `gdn task rework TASK TEXT`",
        ));
    }
    if all.iter().filter(|entry| entry.is_open()).count() >= COMMENTS_OPEN_MAX {
        return Err(ProposalError::invalid(
            format!("the proposal already has {COMMENTS_OPEN_MAX} open comments"),
            "send them to the agent first: `gdn task rework TASK`; or remove some: `gdn proposal uncomment`",
        ));
    }
    Ok(())
}

/// Text of a line of a changed file, before or after the change.
fn line_text(
    open: &OpenSandbox,
    kept: &StoredProposal,
    path: &RelativePath,
    line: u32,
    is_old: bool,
) -> Result<String, ProposalError> {
    let (manifest, when) = match is_old {
        true => (&open.record.given, "before"),
        false => (&kept.details.after, "after"),
    };
    let (bytes, sha256) = match manifest.get(path) {
        Some(TreeEntry::File { bytes, sha256, .. }) => (*bytes, *sha256),
        Some(TreeEntry::Link { .. } | TreeEntry::Directory { .. }) => {
            return Err(ProposalError::invalid(
                format!("`{path}` is not a file {when} the change"),
                "comment on it without a line",
            ));
        }
        None => {
            return Err(ProposalError::invalid(
                format!("`{path}` does not exist {when} the change"),
                match is_old {
                    true => "omit `--old`",
                    false => "add `--old` for a line of the deleted file",
                },
            ));
        }
    };
    if bytes > COMMENTED_FILE_BYTES_MAX as u64 {
        return Err(ProposalError::invalid(
            format!("`{path}` has more than {COMMENTED_FILE_BYTES_MAX} bytes"),
            "comment on it without a line",
        ));
    }
    let root = match is_old {
        true => open.below(INPUT)?,
        false => {
            let after = Path::new(AFTER);
            kept.folder.below(after).during("open", after)?
        }
    };
    let mut file = root.read(path.as_path()).during("open", path.as_path())?;
    let content =
        read_all(file.as_mut(), COMMENTED_FILE_BYTES_MAX).during("read", path.as_path())?;
    if Digest::of(&content) != sha256 {
        return Err(ProposalError::Damaged {
            path: path.as_path().to_owned(),
            problem: "its content has changed since it was written".to_owned(),
        });
    }
    if content.contains(&0) {
        return Err(ProposalError::invalid(
            format!("`{path}` is binary"),
            "comment on it without a line",
        ));
    }
    let mut lines = content.split_inclusive(|byte| *byte == b'\n');
    let count = lines.clone().count();
    let found = usize::try_from(line)
        .ok()
        .and_then(|line| line.checked_sub(1));
    let found = found.and_then(|index| lines.nth(index)).ok_or_else(|| {
        ProposalError::invalid(
            format!("`{path}` has no line {line}: it has {count} lines {when} the change"),
            "choose one of its lines; with `--old`, one from before the change",
        )
    })?;
    let text = String::from_utf8_lossy(found);
    let text = text.trim_end();
    let shown = text.chars().take(COMMENT_LINE_CHARS_MAX);
    let shown = shown.map(|character| match character {
        '\t' => '\t',
        control if control.is_control() => char::REPLACEMENT_CHARACTER,
        other => other,
    });
    let mut shown: String = shown.collect();
    if text.chars().nth(COMMENT_LINE_CHARS_MAX).is_some() {
        shown.push('…');
    }
    Ok(shown)
}

/// The beginning of a comment, in one line.
fn in_short(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let mut short: String = line.chars().take(DETAIL_CHARS_MAX).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use goondan_durable::disk::Crash;
    use goondan_protocol::ids::EventId;

    use super::*;
    use crate::world::{SimulatedDiskFiles, WORK, World, at, create, workspace};
    use crate::{NoGit, Sandboxes};

    fn on(path: &str, line: Option<u32>, text: &str) -> CommentProposal {
        CommentProposal {
            workspace_id: workspace(),
            at: at(),
            path: path.to_owned(),
            line,
            old: false,
            text: text.to_owned(),
            digest: None,
            comment_id: None,
        }
    }

    fn remove(number: u32) -> UncommentProposal {
        UncommentProposal {
            workspace_id: workspace(),
            at: at(),
            number,
        }
    }

    fn shown(sandboxes: &mut Sandboxes<'_>) -> Vec<(u32, CommentState, Option<String>)> {
        let comments = sandboxes.show(&at()).unwrap().comments.into_iter();
        comments
            .map(|it| (it.number, it.state, it.addressed_by))
            .collect()
    }

    #[test]
    fn repo_3_comments_name_lines_of_either_side() {
        let world = World::with_proposal();
        let mut sandboxes = world.sandboxes();
        let made = sandboxes.comment(&on("src/a.rs", Some(1), " Why 1?\n"));
        let made = made.unwrap();
        assert_eq!(made.line_text.as_deref(), Some("fn a() { 1 }"));
        assert_eq!((made.number, made.text.as_str()), (1, "Why 1?"));
        let mut old = on("./src/a.rs", Some(1), "It was fine.");
        old.old = true;
        let made = sandboxes.comment(&old).unwrap();
        assert_eq!(made.line_text.as_deref(), Some("fn a() {}"));
        assert_eq!(made.place(), "src/a.rs:1 (before the change)");
        let mut deleted = on("src/deep/c.rs", Some(1), "Keep it.");
        let refused = sandboxes.comment(&deleted).unwrap_err().to_string();
        assert!(refused.contains("does not exist after"), "{refused}");
        deleted.old = true;
        let made = sandboxes.comment(&deleted).unwrap();
        assert_eq!(made.line_text.as_deref(), Some("c"));
        sandboxes
            .comment(&on("src/new.rs", None, "Is it needed?"))
            .unwrap();
        for (wrong, told) in [
            (on("src/b.rs", Some(1), "x"), "does not change `src/b.rs`"),
            (on("src", None, "x"), "does not change `src`"),
            (on("../a.rs", None, "x"), "are not allowed"),
            (on("src/a.rs", Some(0), "x"), "no line 0: it has 1 lines"),
            (on("src/a.rs", Some(2), "x"), "no line 2"),
            (on("src/a.rs", Some(u32::MAX), "x"), "no line"),
            (on("src/a.rs", Some(1), " \n"), "1 to 2048 bytes"),
            (on("src/a.rs", Some(1), &"x".repeat(4_000)), "1 to 2048"),
            (
                CommentProposal {
                    digest: Some("other".to_owned()),
                    ..on("src/a.rs", Some(1), "x")
                },
                "newer proposal",
            ),
        ] {
            let refused = sandboxes.comment(&wrong).unwrap_err().to_string();
            assert!(refused.contains(told), "{wrong:?}: {refused}");
        }
        assert_eq!(shown(&mut sandboxes).len(), 4);
        sandboxes.reject(&at(), "no").unwrap();
        let refused = sandboxes.comment(&on("src/a.rs", None, "x")).unwrap_err();
        assert!(matches!(refused, ProposalError::Standing { .. }));
    }

    #[test]
    fn repo_3_each_comment_is_sent_with_one_rework() {
        let world = World::with_proposal();
        let mut sandboxes = world.sandboxes();
        for line in ["one", "two", "three"] {
            let comment = on("src/a.rs", Some(1), line);
            sandboxes.comment(&comment).unwrap();
        }
        sandboxes.uncomment(&remove(2)).unwrap();
        sandboxes.uncomment(&remove(2)).unwrap();
        assert!(sandboxes.uncomment(&remove(9)).is_err());
        let mut take = |round| -> Vec<u32> {
            let taken = sandboxes.take_comments(&at(), round).unwrap();
            taken.iter().map(|comment| comment.number).collect()
        };
        // The first attempt was interrupted: the second one loses nothing.
        assert_eq!(take(1), [1, 3]);
        assert_eq!(take(1), [1, 3]);
        assert_eq!(take(2), [] as [u32; 0]);
        assert!(sandboxes.uncomment(&remove(1)).is_err(), "it was sent");
        world.write(WORK, "src/a.rs", "fn a() { 2 }\n");
        let mut sandboxes = world.sandboxes();
        let next = sandboxes.create(&create(), &NoGit).unwrap().info.digest;
        sandboxes.comment(&on("src/a.rs", Some(1), "four")).unwrap();
        let sent = |number| (number, CommentState::Sent, Some(next.clone()));
        let expected = [sent(1), sent(3), (4, CommentState::Open, None)];
        assert_eq!(shown(&mut sandboxes), expected);
        // Applying it leaves the comments readable.
        world.applied().unwrap();
        assert_eq!(shown(&mut sandboxes), expected);
    }

    #[test]
    fn repo_3_comment_stopped_at_any_call_is_added_once() {
        let base = World::with_proposal();
        let mut request = on("src/a.rs", Some(1), "Why?");
        request.comment_id = Some(EventId::new("c-1").unwrap());
        for call in 1.. {
            let world = base.copy();
            world.disk().crash_at(world.disk().calls() + call);
            let is_done = world.sandboxes().comment(&request).is_ok();
            for crash in [
                Crash::LoseUnsynced,
                Crash::KeepUnsynced,
                Crash::Subset(call),
            ] {
                let found = World(SimulatedDiskFiles(world.disk().after_crash(crash)));
                let mut sandboxes = found.sandboxes();
                let count = shown(&mut sandboxes).len();
                assert!(count == 1 || !is_done, "acknowledged means durable");
                assert_eq!(sandboxes.comment(&request).unwrap().number, 1);
                assert_eq!(shown(&mut sandboxes).len(), 1, "call {call}, {crash:?}");
            }
            if is_done {
                assert!(call > 5, "{call}");
                return;
            }
        }
    }

    #[test]
    fn repo_3_open_comments_have_a_limit() {
        let world = World::with_proposal();
        let mut sandboxes = world.sandboxes();
        for _ in 0..COMMENTS_OPEN_MAX {
            sandboxes.comment(&on("src/a.rs", None, "x")).unwrap();
        }
        let refused = sandboxes.comment(&on("src/a.rs", None, "x")).unwrap_err();
        assert!(refused.to_string().contains("open comments"), "{refused}");
        sandboxes.take_comments(&at(), 1).unwrap();
        sandboxes.comment(&on("src/a.rs", None, "x")).unwrap();
    }
}
