//! Changes of an attempt of the merge queue, one on another, and their commits (`QUEUE-1`).
//!
//! Proposals are merged into `work/` one after another. In a repository, each becomes one commit, with
//! the author and the time of its proposal. The tree of the last commit is that of the whole proposal of
//! the attempt, which the proof ran on. Earlier pull requests that are still open come first, so that a
//! pull request of the queue builds on their commits as long as the branch has not moved.

use std::path::Path;

use goondan_merge_queue::Revision;
use goondan_protocol::task::{TaskId, title_and_text};
use goondan_protocol::time::Timestamp;
use goondan_trees::apply::Tree;
use goondan_trees::diff::diff;
use goondan_trees::merge::{Conflict, MergeOutcome, merge};
use goondan_trees::{Manifest, changes, remove_all};

use crate::error::{IoContext as _, ProposalError};
use crate::limits::{COMMIT_TEXT_BYTES_MAX, REFUSALS_TOLD_MAX, SUMMARY_BYTES_MAX};
use crate::place::{AFTER, INPUT, KEPT, PATCH, STACKED, STEP, SUMMARY};
use crate::queue_branch::failed;
use crate::queue_requests::{EarlierProposal, QueuedChanges, QueuedProposal};
use crate::record::{read_file, write_file};
use crate::repository::{BranchMaker, NewBranch};
use crate::sandboxes::{OpenSandbox, Sandboxes, StoredProposal};
use crate::texts::contradiction;
use crate::tree_copy::bring;

/// A commit to be made.
#[derive(Debug)]
struct StackedChange {
    author: String,
    at: Timestamp,
    message: String,
    /// Name of the patch in the sandbox of the attempt.
    patch: String,
}

/// Changes in `work/` of an attempt.
#[derive(Debug)]
pub(crate) struct Stack {
    /// Commits to be made, in order; none for a project's directory.
    changes: Vec<StackedChange>,
    /// URLs of the earlier pull requests whose changes are among these.
    pub(crate) covered: Vec<String>,
    /// True if the queued proposals themselves change files.
    pub(crate) is_changed: bool,
}

/// Result of stacking proposals.
#[derive(Debug)]
pub(crate) enum Stacking {
    Done(Stack),
    /// It conflicts with the target, or with those before it.
    Conflict {
        task: TaskId,
        text: String,
    },
    /// It conflicts only with earlier pull requests.
    Blocked {
        why: String,
    },
}

/// The files to which the next proposal is added.
struct Pile {
    files: Manifest,
    /// Their directory in the sandbox of the attempt.
    place: String,
    number: usize,
    changes: Vec<StackedChange>,
}

/// The conflicts, as the agent of the task receives them.
fn in_words(conflicts: &[Conflict]) -> String {
    let lines = conflicts.iter().take(REFUSALS_TOLD_MAX);
    let lines = lines.map(|found| format!("{}: {}", found.path, contradiction(&found.reason)));
    let mut lines: Vec<String> = lines.collect();
    if let Some(more) = conflicts.len().checked_sub(REFUSALS_TOLD_MAX + 1) {
        lines.push(format!("and {} more", more + 1));
    }
    lines.join("\n")
}

/// Message of the commit of a proposal. On a branch with the changes of many tasks, the trailer names
/// the task.
pub(crate) fn commit_message(summary: &str, task_title: &str, task: &TaskId) -> String {
    let (title, text) = title_and_text(&summary.replace('\0', ""), task_title);
    let title = match title.is_empty() {
        true => task.to_string(),
        false => title,
    };
    let end = text.floor_char_boundary(COMMIT_TEXT_BYTES_MAX);
    let text = text.get(..end).unwrap_or_default().trim_end();
    let paragraphs = [&title, text, &format!("Goondan-Task: {task}")];
    let paragraphs = paragraphs.into_iter().filter(|it| !it.is_empty());
    paragraphs.collect::<Vec<_>>().join("\n\n")
}

impl Sandboxes<'_> {
    /// Summary of a proposal.
    pub(crate) fn summary_of(kept: &StoredProposal) -> Result<String, ProposalError> {
        let text = read_file(kept.folder.as_ref(), SUMMARY, SUMMARY_BYTES_MAX)?;
        Ok(String::from_utf8_lossy(&text.unwrap_or_default()).into_owned())
    }

    /// Merges proposals into the `work/` of an attempt, one after another.
    pub(crate) fn stack(
        &mut self,
        open: &OpenSandbox,
        changed: &QueuedChanges<'_>,
    ) -> Result<Stacking, ProposalError> {
        let mut pile = Pile {
            files: open.record.given.clone(),
            place: INPUT.to_owned(),
            number: 0,
            changes: Vec::new(),
        };
        let mut covered = Vec::new();
        for earlier in changed.earlier {
            // One that conflicts with the branch cannot be merged as it is.
            if let Some((source, kept)) = self.earlier(earlier)?
                && add(open, &mut pile, &source, &kept, &earlier.proposal)?.is_none()
            {
                covered.push(earlier.url.clone());
            }
        }
        let (before, commits) = (pile.files.clone(), pile.changes.len());
        for queued in changed.proposals {
            let (source, kept) = self.queued(queued)?;
            let Some(conflicts) = add(open, &mut pile, &source, &kept, queued)? else {
                continue;
            };
            if covered.is_empty() {
                let (task, text) = (queued.task.clone(), in_words(&conflicts));
                return Ok(Stacking::Conflict { task, text });
            }
            return Ok(
                match merged_into(open, INPUT, &open.record.given, &source, &kept)? {
                    MergeOutcome::Conflicts(own) => Stacking::Conflict {
                        task: queued.task.clone(),
                        text: in_words(&own),
                    },
                    MergeOutcome::Merged(_) => Stacking::Blocked {
                        why: format!(
                            "it conflicts with a pull request that is not merged yet ({}); merge or close \
                         that one, then release this proposal: {}",
                            covered.join(", "),
                            in_words(&conflicts)
                        ),
                    },
                },
            );
        }
        let from = open.below(&pile.place)?;
        let difference = changes(&open.record.given, &pile.files);
        bring(open.work()?.as_ref(), from.as_ref(), &difference)?;
        if pile.place != INPUT {
            remove_all(open.folder.as_ref(), Path::new(&pile.place))?;
        }
        Ok(Stacking::Done(Stack {
            // A commit has no changes of other modes than the executable bit.
            is_changed: match &open.record.repository {
                Some(_) => pile.changes.len() > commits,
                None => !changes(&before, &pile.files).is_empty(),
            },
            changes: pile.changes,
            covered,
        }))
    }

    /// The proposal of an earlier pull request; none if its task has another one now, which will change
    /// the pull request.
    fn earlier(
        &mut self,
        earlier: &EarlierProposal,
    ) -> Result<Option<(OpenSandbox, StoredProposal)>, ProposalError> {
        let found = self.open(&earlier.proposal.at).and_then(|open| {
            let kept = self.kept(&open)?;
            Ok((open, kept))
        });
        let (open, kept) = found.map_err(|error| {
            ProposalError::invalid(
                format!(
                    "the change of pull request {} of task `{}`, which is still open, cannot be read: \
                     {error}",
                    earlier.url, earlier.proposal.task
                ),
                "merge or close the pull request",
            )
        })?;
        let is_same = kept.standing.digest == earlier.proposal.digest;
        Ok(is_same.then_some((open, kept)))
    }

    /// Makes the commits of an attempt, and returns the last one.
    pub(crate) fn commit_stack(
        &self,
        open: &OpenSandbox,
        stack: &Stack,
        branches: &dyn BranchMaker,
    ) -> Result<Revision, ProposalError> {
        let whole = self.whole_change(open)?;
        let (target, _) = self.target_of(open)?;
        let mut head = whole.base.to_owned();
        for (number, change) in stack.changes.iter().enumerate() {
            let is_last = number + 1 == stack.changes.len();
            let (base, parent, patch) = match is_last {
                true => (whole.base, Some(head.as_str()), whole.patch.clone()),
                false => (head.as_str(), None, open.path.join(&change.patch)),
            };
            let wanted = NewBranch {
                project: &target,
                base,
                parent,
                patch,
                scratch: open.path.join(KEPT),
                message: change.message.clone(),
                branch: String::new(),
                author: &change.author,
                at: change.at,
            };
            let made = branches.commit(&wanted);
            head = made.map_err(|problem| failed("commit the changes", &problem))?;
        }
        for change in &stack.changes {
            remove_all(open.folder.as_ref(), Path::new(&change.patch))?;
        }
        Ok(Revision::new(head))
    }

    /// True if a commit has exactly the files of an attempt.
    pub(crate) fn is_commit_of(
        &self,
        open: &OpenSandbox,
        commit: &Revision,
        branches: &dyn BranchMaker,
    ) -> Result<bool, ProposalError> {
        let whole = self.whole_change(open)?;
        let (target, _) = self.target_of(open)?;
        let wanted = NewBranch {
            project: &target,
            base: whole.base,
            parent: None,
            patch: whole.patch,
            scratch: open.path.join(KEPT),
            message: String::new(),
            branch: String::new(),
            author: "",
            at: self.now,
        };
        let found = branches.has_files(&wanted, commit.as_str());
        found.map_err(|problem| failed("read the commit", &problem))
    }

    /// The commit that an attempt begins with, and the patch with all of its changes.
    fn whole_change<'o>(&self, open: &'o OpenSandbox) -> Result<WholeChange<'o>, ProposalError> {
        let kept = self.kept(open)?;
        let base = open.record.base.git_head.as_deref();
        Ok(WholeChange {
            base: base.ok_or_else(|| failed("commit the changes", "the clone has no commit"))?,
            patch: open.path.join(KEPT).join(&kept.standing.digest).join(PATCH),
        })
    }
}

struct WholeChange<'o> {
    base: &'o str,
    patch: std::path::PathBuf,
}

/// Merges a proposal into files in the sandbox of an attempt.
fn merged_into(
    open: &OpenSandbox,
    place: &str,
    files: &Manifest,
    source: &OpenSandbox,
    kept: &StoredProposal,
) -> Result<MergeOutcome, ProposalError> {
    let (given, current) = (source.input()?, open.below(place)?);
    let after = Path::new(AFTER);
    let theirs = kept.folder.below(after).during("open", after)?;
    let base = Tree {
        manifest: &source.record.given,
        folder: given.as_ref(),
    };
    let ours = Tree {
        manifest: files,
        folder: current.as_ref(),
    };
    let theirs = Tree {
        manifest: &kept.details.after,
        folder: theirs.as_ref(),
    };
    Ok(merge(base, ours, theirs)?)
}

/// Adds a proposal to a pile. With conflicts, which are returned, nothing is added.
fn add(
    open: &OpenSandbox,
    pile: &mut Pile,
    source: &OpenSandbox,
    kept: &StoredProposal,
    queued: &QueuedProposal,
) -> Result<Option<Vec<Conflict>>, ProposalError> {
    let merged = match merged_into(open, &pile.place, &pile.files, source, kept)? {
        MergeOutcome::Merged(merged) => merged,
        MergeOutcome::Conflicts(found) => return Ok(Some(found)),
    };
    let current = open.below(&pile.place)?;
    let after = Path::new(AFTER);
    let theirs = kept.folder.below(after).during("open", after)?;
    let next = format!("{STACKED}{}", pile.number);
    merged.write(
        current.as_ref(),
        theirs.as_ref(),
        open.folder.as_ref(),
        &next,
    )?;
    if open.record.repository.is_some() {
        let added = open.below(&next)?;
        let before = Tree {
            manifest: &pile.files,
            folder: current.as_ref(),
        };
        let after = Tree {
            manifest: merged.manifest(),
            folder: added.as_ref(),
        };
        let patch = diff(before, after)?.patch;
        // The target may have the change already.
        if !patch.is_empty() {
            let name = format!("{STEP}{}.patch", pile.number);
            write_file(open.folder.as_ref(), &name, &patch)?;
            let summary = Sandboxes::summary_of(kept)?;
            pile.changes.push(StackedChange {
                author: queued.at.agent_id.to_string(),
                at: kept.record.created_at,
                message: commit_message(&summary, &queued.title, &queued.task),
                patch: name,
            });
        }
    }
    if pile.place != INPUT {
        remove_all(open.folder.as_ref(), Path::new(&pile.place))?;
    }
    pile.files = merged.manifest().clone();
    pile.place = next;
    pile.number += 1;
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_1_commit_names_the_change_and_its_task() {
        let task: TaskId = "fix-it".parse().unwrap();
        let message = |summary: &str| commit_message(summary, "Fix it", &task);
        assert_eq!(
            message("# Check the name\n\nIt was not checked.\n"),
            "Check the name\n\nIt was not checked.\n\nGoondan-Task: fix-it"
        );
        assert_eq!(message("Mended"), "Mended\n\nGoondan-Task: fix-it");
        assert_eq!(
            message("# What changed\n\n- modified `a`"),
            "Fix it\n\n# What changed\n\n- modified `a`\n\nGoondan-Task: fix-it"
        );
        // Git takes no longer message as one argument, and none with a zero byte.
        let long = message(&format!("a\0b\n\n{}", "é".repeat(COMMIT_TEXT_BYTES_MAX)));
        assert!(long.len() < COMMIT_TEXT_BYTES_MAX + 100, "{}", long.len());
        assert!(long.starts_with("ab\n\né"));
    }
}
