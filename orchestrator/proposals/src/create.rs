//! Creates a proposal from a worker's changes (`PROP-1`, `PROP-2`).
//!
//! The worker's directory is frozen, so that concurrent writes are not included. The patch is
//! computed from the two trees and verified: applied to the baseline, it must produce the frozen
//! files. Then everything is stored under its digest and recorded in the run's log. The proposal
//! exists from that record on.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use goondan_durable::disk::Folder;
use goondan_protocol::control::{
    CreateProposal, DirectoryChange, FileStatus, GitCheck, ModeChange, PROPOSAL_VERSION,
    ProposalDetail, ProposalPaths, ProposalRecord, ProposalRefusal, ProposalState, ProposedChange,
    RefusalKind, RunEventKind, SandboxRef,
};
use goondan_trees::apply::{Tree, prove};
use goondan_trees::diff::{DiffStatus, Difference, diff};
use goondan_trees::freeze::{EntryPolicy, TreeSnapshot, freeze};
use goondan_trees::patch::Patch;
use goondan_trees::{Digest, Manifest, RelativePath, TreeEntry, remove_all};

use crate::entries::{leaves, not_given, octal, sha256};
use crate::error::{IoContext as _, ProposalError};
use crate::gitignore::ignoring;
use crate::guards::{excludes, options};
use crate::limits::{CUT_LINE_BYTES, SUMMARY_BYTES_MAX, TEST_LOG_BYTES_MAX};
use crate::place::{
    AFTER, DETAILS, INPUT, KEPT, PARTIAL, PATCH, PROPOSAL, RECORD, SUMMARY, TEST_LOG, WORK,
};
use crate::record::{Details, read_end, read_file, read_record, write_file, written};
use crate::sandboxes::{OpenSandbox, Sandboxes};
use crate::texts::made_summary;

/// Reason for rejecting a task's proposal after the agent has reverted all of its changes.
const TAKEN_BACK: &str = "the agent has reverted all its changes";

/// A patch for an independent check.
#[derive(Debug)]
pub struct PatchCheck<'p> {
    /// Path of the baseline, to which the patch must apply.
    pub input: PathBuf,
    /// The file it is in.
    pub patch: PathBuf,
    /// The paths that it changes.
    pub changed: &'p BTreeSet<Vec<u8>>,
}

/// Independent verifier of patches: git, where it is installed.
pub trait PatchVerifier {
    /// Checks that the patch applies and changes exactly the given paths.
    ///
    /// # Errors
    ///
    /// The reason, as text.
    fn verify(&self, check: &PatchCheck<'_>) -> Result<GitCheck, String>;
}

/// No verifier: only the built-in verification applies (`PROP-7`).
#[derive(Debug, Clone, Copy)]
pub struct NoGit;

impl PatchVerifier for NoGit {
    fn verify(&self, _check: &PatchCheck<'_>) -> Result<GitCheck, String> {
        Ok(GitCheck::NotInstalled)
    }
}

impl Sandboxes<'_> {
    /// Creates a proposal from a worker's directory. An earlier proposal that is not applied is
    /// replaced. The creation is atomic and durable.
    ///
    /// # Errors
    ///
    /// [`ProposalError::Refused`] if the proposal changes a path that the worker must not change,
    /// [`ProposalError::Invalid`] if it changes nothing.
    pub fn create(
        &mut self,
        request: &CreateProposal,
        git: &dyn PatchVerifier,
    ) -> Result<ProposalDetail, ProposalError> {
        let at = &request.at;
        let open = self.open(at)?;
        let before = self.standing(at)?;
        if let Some(standing) = &before
            && standing.state == ProposalState::Applied
        {
            return Err(ProposalError::Standing {
                at: at.clone(),
                state: standing.state,
                problem: "for further changes, prepare a new sandbox from the current files",
            });
        }
        let digest = self.keep(&open, request, git)?;
        self.note_created(&open, &digest)?;
        self.publish(&open, &digest)?;
        if let Some(before) = before.filter(|before| before.digest != digest) {
            self.forget_kept(at, Some(&before.digest))?;
            remove_all(open.below(KEPT)?.as_ref(), Path::new(&before.digest))?;
        }
        self.note_kept(&open)?;
        self.show_open(&open)
    }

    /// Creates a proposal from the changes of a task's agent; `None` if there are no changes. An
    /// earlier undecided proposal is replaced, or rejected if no changes are left, so that it
    /// cannot be applied. `words` is the summary if the agent wrote none.
    ///
    /// # Errors
    ///
    /// As [`Self::create`].
    pub fn propose(
        &mut self,
        request: &CreateProposal,
        words: Option<&str>,
        git: &dyn PatchVerifier,
    ) -> Result<Option<ProposalDetail>, ProposalError> {
        let mut request = request.clone();
        if request.summary.is_none() && !self.has_summary(&request.at)? {
            request.summary = words.map(str::to_owned);
        }
        match self.create(&request, git) {
            Err(ProposalError::Unchanged { .. }) => {
                let standing = self.standing(&request.at)?;
                if standing.is_some_and(|standing| standing.state == ProposalState::Open) {
                    self.reject(&request.at, TAKEN_BACK)?;
                }
                Ok(None)
            }
            made => made.map(Some),
        }
    }

    /// True if the worker has left a summary since the last proposal.
    fn has_summary(&self, at: &SandboxRef) -> Result<bool, ProposalError> {
        let open = self.look(at)?;
        let Ok(folder) = open.below(PROPOSAL) else {
            return Ok(false);
        };
        let text = read_file(folder.as_ref(), SUMMARY, SUMMARY_BYTES_MAX)?;
        Ok(text.is_some_and(|text| !self.is_published(&open, SUMMARY, &text)))
    }

    /// Makes all of a proposal below the name of its digest, durably; returns that.
    pub(crate) fn keep(
        &self,
        open: &OpenSandbox,
        request: &CreateProposal,
        git: &dyn PatchVerifier,
    ) -> Result<String, ProposalError> {
        let kept = open.below(KEPT)?;
        let partial = Path::new(PARTIAL);
        remove_all(kept.as_ref(), partial)?;
        kept.create_dir(partial, 0o700).during("create", partial)?;
        let folder = kept.below(partial).during("open", partial)?;
        let made = self.make(open, folder.as_ref(), request, git);
        let placed = made.and_then(|digest| {
            let to = Path::new(&digest);
            // A digest that is in no log was never reported.
            self.forget_kept(&open.at, Some(&digest))?;
            remove_all(kept.as_ref(), to)?;
            kept.rename_new(partial, to).during("rename", to)?;
            kept.sync_dir(Path::new("")).during("sync", to)?;
            Ok(digest)
        });
        if placed.is_err() {
            drop(remove_all(kept.as_ref(), partial));
        }
        placed
    }

    /// Writes down that a proposal was made: from then on it is there.
    pub(crate) fn note_created(
        &mut self,
        open: &OpenSandbox,
        digest: &str,
    ) -> Result<(), ProposalError> {
        let folder = open.below(KEPT)?;
        let folder = folder
            .below(Path::new(digest))
            .during("open", Path::new(digest))?;
        let record: Option<ProposalRecord> = read_record(folder.as_ref(), RECORD)?;
        let changed = record.map_or(0, |record| record.changed_files.len());
        let mut detail = match changed {
            1 => "1 file".to_owned(),
            _ => format!("{changed} files"),
        };
        if let Some(from) = &open.record.merged_from {
            let (agent, digest) = (&from.agent_id, &from.digest);
            detail.push_str(&format!(", merged from the proposal {digest} of {agent}"));
        }
        self.hand_on(open, digest)?;
        self.note(
            &open.at,
            RunEventKind::ProposalCreated,
            Some(digest),
            detail,
        )
    }

    /// Makes all of a proposal in a directory; returns its digest.
    fn make(
        &self,
        open: &OpenSandbox,
        folder: &dyn Folder,
        request: &CreateProposal,
        git: &dyn PatchVerifier,
    ) -> Result<String, ProposalError> {
        let given = &open.record.given;
        let excludes = excludes(&[], leaves(given))?;
        let options = options(
            ignoring(excludes, &open.record.ignored),
            EntryPolicy::LeaveOut,
        );
        let frozen = freeze(open.work()?.as_ref(), folder, AFTER, &options)?;
        let (input, after) = (
            open.input()?,
            folder
                .below(Path::new(AFTER))
                .during("open", Path::new(AFTER))?,
        );
        let before = Tree {
            manifest: given,
            folder: input.as_ref(),
        };
        let difference = diff(
            before,
            Tree {
                manifest: &frozen.manifest,
                folder: after.as_ref(),
            },
        )?;
        self.check_made(open, &difference)?;
        let patch = Patch::parse(&difference.patch).map_err(|error| error.to_string());
        let proved = patch.and_then(|patch| {
            prove(&patch, before, &frozen.manifest).map_err(|error| error.to_string())
        });
        proved.map_err(|problem| refused(&[], Some(problem)))?;
        write_file(folder, PATCH, &difference.patch)?;
        let paths = difference.changed.iter().map(|(path, _)| path);
        let check = PatchCheck {
            input: open.path.join(INPUT),
            patch: open.path.join(KEPT).join(PARTIAL).join(PATCH),
            changed: &paths.map(|path| path.as_bytes().to_vec()).collect(),
        };
        let git = git
            .verify(&check)
            .map_err(|problem| refused(&[], Some(problem)))?;
        let record = self.write_parts(open, folder, request, (&frozen, &difference))?;
        let details = Details {
            git,
            left_out: not_given(frozen.left_out.clone()),
            after: frozen.manifest,
        };
        write_file(folder, DETAILS, &written(&details)?)?;
        let text = written(&record)?;
        write_file(folder, RECORD, &text)?;
        folder
            .sync_dir(Path::new(""))
            .during("sync", Path::new(KEPT))?;
        Ok(Digest::of(&text).to_string())
    }

    /// Refuses empty proposals, and changes that the worker may not make.
    fn check_made(&self, open: &OpenSandbox, difference: &Difference) -> Result<(), ProposalError> {
        let directories = difference.not_carried.iter().filter(|change| {
            let is_directory =
                |entry: &Option<TreeEntry>| entry.as_ref().is_some_and(TreeEntry::is_directory);
            is_directory(&change.old) != is_directory(&change.new)
        });
        let made = directories.filter(|change| change.new.is_some());
        let made: Vec<&RelativePath> = made.map(|change| &change.path).collect();
        let touched = difference.changed.iter().map(|(path, _)| path);
        let is_needed = |path: &RelativePath| {
            difference
                .changed
                .iter()
                .any(|(changed, _)| changed.is_below(path))
        };
        let outside = touched
            .chain(made.into_iter().filter(|path| !is_needed(path)))
            .filter(|path| !open.record.allows(path));
        let outside: Vec<RelativePath> = outside.cloned().collect();
        if !outside.is_empty() {
            return Err(refused(&outside, None));
        }
        if difference.changed.is_empty() && difference.not_carried.is_empty() {
            return Err(ProposalError::Unchanged {
                at: open.at.clone(),
                work: open.path.join(WORK),
            });
        }
        Ok(())
    }

    fn write_parts(
        &self,
        open: &OpenSandbox,
        folder: &dyn Folder,
        request: &CreateProposal,
        (frozen, difference): (&TreeSnapshot, &Difference),
    ) -> Result<ProposalRecord, ProposalError> {
        let given = &open.record.given;
        let change = |(path, status): &(RelativePath, DiffStatus)| ProposedChange {
            path: path.to_string(),
            status: match status {
                DiffStatus::Added => FileStatus::Added,
                DiffStatus::Modified => FileStatus::Modified,
                DiffStatus::Deleted => FileStatus::Deleted,
                DiffStatus::TypeChanged => FileStatus::TypeChanged,
            },
            old_sha256: sha256(given.get(path)),
            new_sha256: sha256(frozen.manifest.get(path)),
        };
        let changed_files: Vec<ProposedChange> = difference.changed.iter().map(change).collect();
        let has_test_log = self.write_texts(open, folder, request, &changed_files)?;
        let part = |name: &str| format!("{PROPOSAL}/{name}");
        Ok(ProposalRecord {
            version: PROPOSAL_VERSION.to_owned(),
            run_id: open.at.run_id.clone(),
            agent_id: open.at.agent_id.clone(),
            created_at: self.now,
            base: open.record.base.clone(),
            paths: ProposalPaths {
                input_dir: INPUT.to_owned(),
                work_dir: WORK.to_owned(),
                patch_file: part(PATCH),
                summary_file: part(SUMMARY),
                test_log_file: has_test_log.then(|| part(TEST_LOG)),
            },
            changed_files,
            directories: directories_of(difference),
            modes: modes_of(given, &frozen.manifest),
            patch_sha256: Digest::of(&difference.patch).to_string(),
            result_sha256: frozen.manifest.digest()?.to_string(),
            merged_from: open.record.merged_from.clone(),
            notes: request.notes.clone(),
        })
    }

    /// Writes the files for people; returns true if there is a test log.
    fn write_texts(
        &self,
        open: &OpenSandbox,
        folder: &dyn Folder,
        request: &CreateProposal,
        changed_files: &[ProposedChange],
    ) -> Result<bool, ProposalError> {
        let worker = open.below(PROPOSAL).ok();
        let left = |name: &str| match &worker {
            Some(folder) if name == TEST_LOG => read_end(folder.as_ref(), name, TEST_LOG_BYTES_MAX),
            Some(folder) => read_file(folder.as_ref(), name, SUMMARY_BYTES_MAX),
            None => Ok(None),
        };
        let summary = match &request.summary {
            Some(text) => Some(text.clone().into_bytes()),
            // The summary of the previous proposal does not describe this one.
            None => left(SUMMARY)?.filter(|text| !self.is_published(open, SUMMARY, text)),
        };
        let summary = summary.unwrap_or_else(|| made_summary(changed_files).into_bytes());
        for (what, bytes) in [
            ("the summary", summary.len()),
            ("the notes", request.notes.len()),
        ] {
            if bytes > SUMMARY_BYTES_MAX {
                return Err(ProposalError::invalid(
                    format!("{what} can have at most {SUMMARY_BYTES_MAX} bytes"),
                    "shorten it",
                ));
            }
        }
        write_file(folder, SUMMARY, &summary)?;
        let test_log = match &request.test_log {
            Some(text) => Some(text.clone().into_bytes()),
            None => left(TEST_LOG)?.filter(|text| !self.is_published(open, TEST_LOG, text)),
        };
        if let Some(text) = &test_log {
            if text.len() > TEST_LOG_BYTES_MAX + CUT_LINE_BYTES {
                return Err(ProposalError::invalid(
                    format!("the test log can have at most {TEST_LOG_BYTES_MAX} bytes"),
                    "submit only its last part",
                ));
            }
            write_file(folder, TEST_LOG, text)?;
        }
        Ok(test_log.is_some())
    }

    /// True if a file in `proposal/` is the copy that was published with the previous proposal.
    fn is_published(&self, open: &OpenSandbox, name: &str, text: &[u8]) -> bool {
        let kept = self.kept(open).ok();
        let last = kept.and_then(|kept| read_file(kept.folder.as_ref(), name, usize::MAX).ok()?);
        last.is_some_and(|last| last == text)
    }
}

fn refused(outside: &[RelativePath], problem: Option<String>) -> ProposalError {
    let outside = outside.iter().map(|path| ProposalRefusal {
        kind: RefusalKind::NotAllowed,
        path: Some(path.to_string()),
        reason: "the sandbox does not include it; prepare a sandbox that includes it, or pass \
            `--may-create` for its directory"
            .to_owned(),
        given: None,
        proposed: None,
        found: None,
    });
    let problem = problem.map(|problem| ProposalRefusal {
        kind: RefusalKind::Tampered,
        path: None,
        reason: problem,
        given: None,
        proposed: None,
        found: None,
    });
    ProposalError::Refused {
        what: "the proposal",
        refusals: outside.chain(problem).collect(),
        kept: Vec::new(),
        merge: None,
    }
}

fn directories_of(difference: &Difference) -> Vec<DirectoryChange> {
    let is_directory =
        |entry: &Option<TreeEntry>| entry.as_ref().is_some_and(TreeEntry::is_directory);
    let changes = difference.not_carried.iter();
    let changes = changes.filter(|change| is_directory(&change.old) != is_directory(&change.new));
    let told = changes.map(|change| DirectoryChange {
        path: change.path.to_string(),
        is_made: is_directory(&change.new),
    });
    told.collect()
}

/// Changed permission bits of files that exist before and after, even if the patch does not include
/// them.
fn modes_of(given: &Manifest, after: &Manifest) -> Vec<ModeChange> {
    let changes = given.entries().filter_map(|(path, old)| {
        let (TreeEntry::File { mode: old, .. }, Some(TreeEntry::File { mode: new, .. })) =
            (old, after.get(path))
        else {
            return None;
        };
        (old != new).then(|| ModeChange {
            path: path.to_string(),
            old: octal(*old),
            new: octal(*new),
        })
    });
    changes.collect()
}
