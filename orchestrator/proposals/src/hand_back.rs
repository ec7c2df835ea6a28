//! Rebases the sandbox of a task whose proposal the merge queue hands back (`QUEUE-1`).
//!
//! Its agent continues on the target's current files, with its own changes merged into them. A file
//! that both changed gets the project's version: its agent makes the change again, from the patch in
//! `proposal/`, so that no change of another task is reverted by accident.
//!
//! `work/` is changed in place, because it also holds files that are not part of a proposal. The new
//! baseline and record then replace the old ones. A record that waits under its own name is the
//! intent: the next caller that opens the sandbox finishes the replacement.

use std::collections::BTreeSet;
use std::path::Path;

use goondan_durable::disk::Folder;
use goondan_protocol::control::{ProposalBase, ProposalState, RunEventKind, SandboxRef};
use goondan_protocol::git::RepositoryAddress;
use goondan_trees::apply::Tree;
use goondan_trees::freeze::{EntryPolicy, TreeSnapshot, freeze_read_only, scan};
use goondan_trees::limits::Limits;
use goondan_trees::merge::{ConflictReason, MergeOutcome, merge};
use goondan_trees::{
    Manifest, ManifestBuilder, Names, RelativePath, TreeEntry, changes, remove_all,
};

use crate::entries::{leaves, not_given};
use crate::error::{IoContext as _, ProposalError};
use crate::gitignore::{self, IgnoreFile, ignoring};
use crate::guards::{excludes, options};
use crate::merge_queue::task_files;
use crate::place::{
    AFTER, INPUT, NEXT_INPUT, NEXT_ORIGIN, NEXT_RECORD, NEXT_RECORD_PARTIAL, NEXT_WORK, OLD_INPUT,
    OLD_ORIGIN, ORIGIN, SANDBOX,
};
use crate::queue_requests::{QueuePlace, QueuedProposal};
use crate::record::{SandboxRecord, write_file, written};
use crate::repository::RepositoryMaker;
use crate::sandboxes::{OpenSandbox, Sandboxes, StoredProposal};
use crate::tree_copy::bring;

/// Why the handed-back proposal is no longer open.
const HANDED_BACK: &str = "the merge queue handed it back to its agent";

impl Sandboxes<'_> {
    /// Rebases the sandbox of a task onto the project's current files, and rejects the proposal.
    /// Returns the files that have the project's version because both sides changed them. A repeated
    /// call has no effect.
    ///
    /// # Errors
    ///
    /// [`ProposalError`]; the sandbox and the proposal are then usable as before.
    pub fn hand_back(
        &mut self,
        place: &QueuePlace<'_>,
        queued: &QueuedProposal,
        maker: &dyn RepositoryMaker,
    ) -> Result<Vec<String>, ProposalError> {
        let open = self.open(&queued.at)?;
        let kept = self.kept(&open)?;
        Self::check_digest(Some(&queued.digest), &kept)?;
        let mut lost = Vec::new();
        if open.record.rebased_from.as_ref() != Some(&queued.digest) {
            lost = self.rebase_sandbox(place, &open, &kept, maker)?;
            self.finish_rebase(&open.at, open.folder.as_ref())?;
        }
        if kept.standing.state == ProposalState::Open {
            let kind = RunEventKind::ProposalRejected;
            self.note(&queued.at, kind, Some(&queued.digest), HANDED_BACK)?;
        }
        Ok(lost)
    }

    /// Copies the target's current files to the baseline that replaces the present one.
    fn freeze_target(
        &self,
        place: &QueuePlace<'_>,
        open: &OpenSandbox,
        maker: &dyn RepositoryMaker,
    ) -> Result<(Option<String>, TreeSnapshot, Vec<IgnoreFile>), ProposalError> {
        let sandbox = open.folder.as_ref();
        let Some(repository) = &place.repository else {
            let project = self.project()?;
            let (copied, ignored) = task_files(project.as_ref(), place.exclude)?;
            let (git_head, now) =
                self.at_head(|| freeze_read_only(project.as_ref(), sandbox, NEXT_INPUT, &copied))?;
            return Ok((git_head, now, ignored));
        };
        let source = repository.source;
        let failed = |problem: String| {
            ProposalError::invalid(
                format!("failed to fetch {source}: {problem}"),
                "check the address, `ref`, and the access of the token",
            )
        };
        let address = source.address().map_err(failed)?;
        for name in [NEXT_ORIGIN, NEXT_WORK] {
            let name = Path::new(name);
            sandbox.create_dir(name, 0o700).during("create", name)?;
        }
        let (origin, files) = (open.path.join(NEXT_ORIGIN), open.path.join(NEXT_WORK));
        let fetched = maker.fetch(repository, &address, &origin, &files);
        let fetched = fetched.map_err(failed)?;
        let checked_out = open.below(NEXT_WORK)?;
        let excludes = excludes(place.exclude, [])?;
        // Tracked files are copied even if `.gitignore` lists them.
        let ignored = gitignore::read(checked_out.as_ref(), &excludes)?;
        let copied = options(excludes, EntryPolicy::LeaveOut);
        let now = freeze_read_only(checked_out.as_ref(), sandbox, NEXT_INPUT, &copied)?;
        remove_all(sandbox, Path::new(NEXT_WORK))?;
        // A repository on this machine has the commits itself.
        if matches!(address, RepositoryAddress::Path(_)) {
            remove_all(sandbox, Path::new(NEXT_ORIGIN))?;
        }
        Ok((Some(fetched.commit), now, ignored))
    }

    fn rebase_sandbox(
        &self,
        place: &QueuePlace<'_>,
        open: &OpenSandbox,
        kept: &StoredProposal,
        maker: &dyn RepositoryMaker,
    ) -> Result<Vec<String>, ProposalError> {
        let sandbox = open.folder.as_ref();
        for name in [NEXT_INPUT, NEXT_ORIGIN, NEXT_WORK, NEXT_RECORD_PARTIAL] {
            remove_all(sandbox, Path::new(name))?;
        }
        let (git_head, now, ignored) = self.freeze_target(place, open, maker)?;
        let (given, after) = (&open.record.given, &kept.details.after);
        let (input, ours) = (open.input()?, open.below(NEXT_INPUT)?);
        let name = Path::new(AFTER);
        let theirs = kept.folder.below(name).during("open", name)?;
        let mut lost = BTreeSet::new();
        let merged = loop {
            let proposed = without(after, given, &lost)?;
            let outcome = merge(
                Tree {
                    manifest: given,
                    folder: input.as_ref(),
                },
                Tree {
                    manifest: &now.manifest,
                    folder: ours.as_ref(),
                },
                Tree {
                    manifest: &proposed,
                    folder: theirs.as_ref(),
                },
            )?;
            let conflicts = match outcome {
                MergeOutcome::Merged(merged) => break merged,
                MergeOutcome::Conflicts(conflicts) => conflicts,
            };
            let known = lost.len();
            for conflict in conflicts {
                match conflict.reason {
                    ConflictReason::InTheWay { of } => drop(lost.insert(of)),
                    ConflictReason::Twins { other } => drop(lost.insert(other)),
                    _ => {}
                }
                lost.insert(conflict.path);
            }
            if lost.len() == known {
                return Err(ProposalError::invalid(
                    "its changes cannot be separated from those in the project",
                    "create a new task from the project's current files",
                ));
            }
        };
        merged.write(ours.as_ref(), theirs.as_ref(), sandbox, NEXT_WORK)?;
        let next = open.below(NEXT_WORK)?;
        let work = open.work()?;
        let own = ignoring(excludes(&[], leaves(given))?, &open.record.ignored);
        let found = scan(work.as_ref(), &options(own, EntryPolicy::LeaveOut))?;
        let changes = changes(&found.manifest, merged.manifest());
        bring(work.as_ref(), next.as_ref(), &changes)?;
        remove_all(sandbox, Path::new(NEXT_WORK))?;
        let record = SandboxRecord {
            base: ProposalBase {
                git_head,
                sha256: now.manifest.digest()?.to_string(),
            },
            not_given: not_given(now.left_out),
            ignored,
            rebased_from: Some(kept.standing.digest.clone()),
            given: now.manifest,
            ..open.record.clone()
        };
        write_file(sandbox, NEXT_RECORD_PARTIAL, &written(&record)?)?;
        let (from, to) = (Path::new(NEXT_RECORD_PARTIAL), Path::new(NEXT_RECORD));
        sandbox.rename_new(from, to).during("rename", to)?;
        sandbox.sync_dir(Path::new("")).during("sync", to)?;
        Ok(lost.iter().map(RelativePath::to_string).collect())
    }

    /// Replaces the baseline and the record of a sandbox by the ones that wait for that, if any.
    pub(crate) fn finish_rebase(
        &self,
        at: &SandboxRef,
        sandbox: &dyn Folder,
    ) -> Result<(), ProposalError> {
        let is_there = |name: &str| {
            let path = Path::new(name);
            sandbox
                .look(path)
                .during("inspect", path)
                .map(|found| found.is_some())
        };
        let rename = |from: &str, to: &str| {
            let to = Path::new(to);
            sandbox
                .rename_new(Path::new(from), to)
                .during("rename", to)?;
            sandbox.sync_dir(Path::new("")).during("sync", to)
        };
        if !is_there(NEXT_RECORD)? {
            return Ok(());
        }
        self.forget_kept(at, None)?;
        for (next, present, old) in [
            (NEXT_INPUT, INPUT, OLD_INPUT),
            (NEXT_ORIGIN, ORIGIN, OLD_ORIGIN),
        ] {
            if is_there(next)? {
                if is_there(present)? {
                    remove_all(sandbox, Path::new(old))?;
                    rename(present, old)?;
                }
                rename(next, present)?;
            }
        }
        if is_there(SANDBOX)? {
            let name = Path::new(SANDBOX);
            sandbox.remove(name).during("remove", name)?;
        }
        rename(NEXT_RECORD, SANDBOX)?;
        remove_all(sandbox, Path::new(OLD_ORIGIN))?;
        Ok(remove_all(sandbox, Path::new(OLD_INPUT))?)
    }
}

/// A proposed tree, with the given entries at these paths and below them.
fn without(
    after: &Manifest,
    given: &Manifest,
    lost: &BTreeSet<RelativePath>,
) -> Result<Manifest, ProposalError> {
    let is_lost = |path: &RelativePath| lost.iter().any(|it| path == it || path.is_below(it));
    let kept = after.entries().filter(|(path, _)| !is_lost(path));
    let restored = given.entries().filter(|(path, _)| is_lost(path));
    let mut entries: Vec<(&RelativePath, &TreeEntry)> = kept.chain(restored).collect();
    entries.sort_by(|one, other| one.0.cmp(other.0));
    let mut manifest = ManifestBuilder::new(Limits::default(), Names::Portable);
    for (path, entry) in entries {
        for parent in manifest.missing_parents(path) {
            if let Some(entry) = given.get(&parent) {
                manifest.add(parent, entry.clone())?;
            }
        }
        manifest.add(path.clone(), entry.clone())?;
    }
    Ok(manifest.finish())
}
