//! Checks if a proposal can be applied, and lists the obstacles (`PROP-4`).
//!
//! Nothing in `proposal/` is trusted: its content must equal the submitted proposal, and the
//! submitted proposal must be the result of its patch on the baseline, within the worker's
//! permissions. Then each file in the Project Root must equal the version that the worker was
//! given.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use goondan_durable::disk::Folder;
use goondan_protocol::control::{
    BaseCheck, ProposalRefusal, ProposalReview, ProposalState, RefusalKind, RunEventKind,
    SandboxRef,
};
use goondan_trees::apply::{Tree, apply, prove};
use goondan_trees::limits::PATCH_BYTES_MAX;
use goondan_trees::patch::Patch;
use goondan_trees::swap::{self, Specials, SwapError, SwapSite};
use goondan_trees::{Digest, Names, PathChange, RelativePath, TreeEntry, changes};

use crate::entries::{PathState, standing};
use crate::error::{IoContext as _, ProposalError};
use crate::git_head::git_head;
use crate::limits::{CUT_LINE_BYTES, RECORD_BYTES_MAX, SUMMARY_BYTES_MAX, TEST_LOG_BYTES_MAX};
use crate::place::{PATCH, PROPOSAL, RECORD, STAGING, SUMMARY, TEST_LOG};
use crate::record::read_file;
use crate::sandboxes::{OpenSandbox, Sandboxes, StoredProposal};
use crate::texts::{verdict, with_agent};

impl Sandboxes<'_> {
    /// Checks if a proposal can be applied, and returns every obstacle. Writes nothing.
    ///
    /// # Errors
    ///
    /// [`ProposalError::Standing`] if the proposal is not pending; [`ProposalError::Io`].
    pub fn check(&mut self, at: &SandboxRef) -> Result<ProposalReview, ProposalError> {
        let open = self.open(at)?;
        let kept = self.kept(&open)?;
        self.examine(&open, &kept)
    }

    /// The same, as a review: the run's log has what was found (`PROP-5`).
    ///
    /// # Errors
    ///
    /// As [`Self::check`].
    pub fn review(&mut self, at: &SandboxRef) -> Result<ProposalReview, ProposalError> {
        let open = self.open(at)?;
        let kept = self.kept(&open)?;
        self.examine_and_record(&open, &kept, Vec::new(), None)
    }

    /// Checks everything, and records the verdict: the found refusals and `more`, and the agent
    /// that requested the check.
    pub(crate) fn examine_and_record(
        &mut self,
        open: &OpenSandbox,
        kept: &StoredProposal,
        more: Vec<ProposalRefusal>,
        by: Option<&str>,
    ) -> Result<ProposalReview, ProposalError> {
        let mut review = self.examine(open, kept)?;
        review.refusals.extend(more);
        review.can_apply = review.refusals.is_empty();
        self.note(
            &open.at,
            RunEventKind::ProposalReviewed,
            Some(kept.standing.digest.as_str()),
            with_agent(verdict(&review.refusals), by),
        )?;
        Ok(review)
    }

    fn examine(
        &mut self,
        open: &OpenSandbox,
        kept: &StoredProposal,
    ) -> Result<ProposalReview, ProposalError> {
        let state = kept.standing.state;
        if state != ProposalState::Open {
            return Err(ProposalError::Standing {
                at: open.at.clone(),
                state,
                problem: "only a waiting proposal can be checked and applied",
            });
        }
        if let Some(repository) = &open.record.repository {
            let SandboxRef { run_id, agent_id } = &open.at;
            return Err(ProposalError::invalid(
                format!(
                    "the proposal of `{agent_id}` changes {}, not the project",
                    repository.source
                ),
                format!(
                    "deliver it by approving its task: `gdn task approve {run_id}`; or apply the \
                     patch there: `gdn proposal diff {run_id} {agent_id} | git apply`"
                ),
            ));
        }
        let mut refusals = unsound(open, kept)?;
        let project = self.project()?;
        refusals.extend(stale(open, kept, project.as_ref())?);
        if refusals.iter().all(ProposalRefusal::is_overridable) {
            refusals.extend(blocked(&changes_of(open, kept), project.as_ref())?);
        }
        refusals.extend(unwritable(open, kept, project.as_ref())?);
        let root = &self.project_root;
        let found_head = git_head(self.files.disk(), root).during("read the git head of", root)?;
        let given_head = open.record.base.git_head.clone();
        if found_head != given_head {
            refusals.push(head_moved(given_head.as_deref(), found_head.as_deref()));
        }
        Ok(ProposalReview {
            proposal: self.proposal_info(open, kept),
            can_apply: refusals.is_empty(),
            refusals,
            base: BaseCheck {
                given_head,
                found_head,
            },
        })
    }
}

pub(crate) fn about(
    kind: RefusalKind,
    path: Option<String>,
    reason: impl Into<String>,
) -> ProposalRefusal {
    ProposalRefusal {
        kind,
        path,
        reason: reason.into(),
        given: None,
        proposed: None,
        found: None,
    }
}

fn head_moved(given: Option<&str>, found: Option<&str>) -> ProposalRefusal {
    let short = |head: Option<&str>| {
        head.map_or("no commit".to_owned(), |head| {
            head.chars().take(12).collect()
        })
    };
    let reason = format!(
        "the git HEAD is {}, but was {} when the sandbox was prepared; a person can apply it \
         anyway: `--allow-moved-base`",
        short(found),
        short(given)
    );
    about(RefusalKind::HeadMoved, None, reason)
}

/// Problems of the proposal itself, independent of the project's current state.
pub(crate) fn unsound(
    open: &OpenSandbox,
    kept: &StoredProposal,
) -> Result<Vec<ProposalRefusal>, ProposalError> {
    let mut refusals = tampered(open, kept)?;
    refusals.extend(unfit(open, kept)?);
    Ok(refusals)
}

/// Files in `proposal/` that differ from the submitted proposal.
fn tampered(
    open: &OpenSandbox,
    kept: &StoredProposal,
) -> Result<Vec<ProposalRefusal>, ProposalError> {
    let published = open.below(PROPOSAL);
    let mut refusals = Vec::new();
    for (name, max) in [
        (RECORD, RECORD_BYTES_MAX),
        (PATCH, PATCH_BYTES_MAX),
        (SUMMARY, SUMMARY_BYTES_MAX),
        (TEST_LOG, TEST_LOG_BYTES_MAX + CUT_LINE_BYTES),
    ] {
        let made = read_file(kept.folder.as_ref(), name, max)?;
        let Some(made) = made else { continue };
        // A file that is unreadable or too long also differs.
        let found = published
            .as_ref()
            .ok()
            .and_then(|folder| read_file(folder.as_ref(), name, max).ok()?);
        if found.as_ref() != Some(&made) {
            let found = found.map_or("nothing readable".to_owned(), |found| {
                Digest::of(&found).to_string()
            });
            let reason = format!(
                "it has changed since it was submitted: expected {}, found {found}; submit it \
                 again with `gdn proposal create`",
                Digest::of(&made)
            );
            let path = format!("{PROPOSAL}/{name}");
            refusals.push(about(RefusalKind::Tampered, Some(path), reason));
        }
    }
    Ok(refusals)
}

/// Inconsistencies between the stored record, patch, baseline and frozen files.
fn unfit(open: &OpenSandbox, kept: &StoredProposal) -> Result<Vec<ProposalRefusal>, ProposalError> {
    let record = &kept.record;
    let wrong = |reason: String| Ok(vec![about(RefusalKind::Tampered, None, reason)]);
    if (&record.run_id, &record.agent_id) != (&open.at.run_id, &open.at.agent_id) {
        return wrong(format!(
            "it is the proposal of `{}` in run `{}`",
            record.agent_id, record.run_id
        ));
    }
    let text = read_file(kept.folder.as_ref(), PATCH, PATCH_BYTES_MAX)?.unwrap_or_default();
    if Digest::of(&text).to_string() != record.patch_sha256 {
        return wrong("the patch does not match the proposal's digest".to_owned());
    }
    if kept.details.after.digest()?.to_string() != record.result_sha256 {
        return wrong("the files do not match the proposal's digest".to_owned());
    }
    let patch = match Patch::parse(&text) {
        Ok(patch) => patch,
        Err(error) => return wrong(error.to_string()),
    };
    let input = open.input()?;
    let before = Tree {
        manifest: &open.record.given,
        folder: input.as_ref(),
    };
    let applied = apply(&patch, before, &|path| open.record.allows(path));
    let applied = match applied {
        Ok(applied) => applied,
        Err(error) => return wrong(error.to_string()),
    };
    if let Err(error) = prove(&patch, before, &kept.details.after) {
        return wrong(error.to_string());
    }
    let listed: Vec<&str> = record
        .changed_files
        .iter()
        .map(|change| change.path.as_str())
        .collect();
    let made: Vec<String> = applied.keys().map(RelativePath::to_string).collect();
    if listed != made {
        return wrong("the patch does not change the files listed in the proposal".to_owned());
    }
    Ok(Vec::new())
}

/// Changes to the Project Root. Mode changes of directories that exist before and after are
/// ignored.
pub(crate) fn changes_of(open: &OpenSandbox, kept: &StoredProposal) -> Vec<PathChange> {
    let mut changes = changes(&open.record.given, &kept.details.after);
    let is_directory =
        |entry: &Option<TreeEntry>| entry.as_ref().is_some_and(TreeEntry::is_directory);
    changes.retain(|change| !(is_directory(&change.old) && is_directory(&change.new)));
    changes
}

/// Files of the Project Root that differ from the versions that the worker was given.
fn stale(
    open: &OpenSandbox,
    kept: &StoredProposal,
    root: &dyn Folder,
) -> Result<Vec<ProposalRefusal>, ProposalError> {
    let given = &open.record.given;
    let mut refusals = Vec::new();
    let find = |path: &RelativePath| PathState::of(root, path).during("inspect", path.as_path());
    let changes: BTreeMap<RelativePath, PathChange> = changes_of(open, kept)
        .into_iter()
        .map(|change| (change.path.clone(), change))
        .collect();
    for (path, change) in &changes {
        let found = find(path)?;
        let is_wanted = change.new.as_ref().is_some_and(TreeEntry::is_directory)
            && matches!(found, PathState::Entry(Some(TreeEntry::Directory { .. })));
        if let (None, false) = (&change.old, found.is(None) || is_wanted) {
            refusals.push(refusal(RefusalKind::Created, change, &found));
        } else if change.old.is_some() && !found.is(change.old.as_ref()) {
            let kind = if found.is(None) {
                RefusalKind::Deleted
            } else {
                RefusalKind::Changed
            };
            refusals.push(refusal(kind, change, &found));
        } else if change.old.is_none()
            && !is_wanted
            && let Some(twin) = twin(root, path, &changes)?
        {
            let reason = format!("`{twin}` exists and differs only in case");
            let path = Some(path.to_string());
            refusals.push(about(RefusalKind::NeverGiven, path, reason));
        }
    }
    for (path, entry) in given.entries() {
        if changes.contains_key(path) || entry.is_directory() {
            continue;
        }
        let found = find(path)?;
        if !found.is(Some(entry)) {
            let mut refusal = about(
                RefusalKind::BaseChanged,
                Some(path.to_string()),
                "the worker did not change it, but the project's file has changed since; a person \
                 can apply the rest anyway: `--allow-moved-base`",
            );
            refusal.given = Some(standing(Some(entry)));
            refusal.found = Some(found.standing());
            refusals.push(refusal);
        }
    }
    Ok(refusals)
}

/// Obstacles that a swap would find, so that every proposal that passes the check can be applied.
fn blocked(
    changes: &[PathChange],
    root: &dyn Folder,
) -> Result<Vec<ProposalRefusal>, ProposalError> {
    let place = SwapSite {
        // Nothing is written before the swap is made.
        journal: root,
        root,
        names: Names::Portable,
        specials: Specials::Refuse,
    };
    let refusals = match swap::plan(place, changes, STAGING) {
        Ok(()) => Vec::new(),
        Err(SwapError::Stale { stale, .. }) => late_refusals(changes, stale),
        Err(SwapError::Blocked { by }) => vec![in_the_way(&by)],
        Err(SwapError::Impossible { path, problem }) => {
            let path = Some(path.to_string());
            vec![about(RefusalKind::Blocked, path, problem)]
        }
        Err(SwapError::Tree(error)) => return Err(error.into()),
        Err(error @ (SwapError::Used | SwapError::Unfinished(_))) => {
            return Err(ProposalError::Unfinished(Box::new(error)));
        }
    };
    Ok(refusals)
}

/// Refusal because of a file that the proposal does not change, at a path that the proposal needs.
pub(crate) fn in_the_way(by: &RelativePath) -> ProposalRefusal {
    let reason = "it is in the way of the proposal's file; move it away";
    about(RefusalKind::Blocked, Some(by.to_string()), reason)
}

/// Directories of the Project Root that the daemon cannot write: the root itself, in which new
/// files are staged, and the parents of changed names.
fn unwritable(
    open: &OpenSandbox,
    kept: &StoredProposal,
    root: &dyn Folder,
) -> Result<Vec<ProposalRefusal>, ProposalError> {
    let changes = changes_of(open, kept);
    let parents = changes.iter().map(|change| change.path.parent());
    let directories: BTreeSet<Option<RelativePath>> = parents.chain([None]).collect();
    let mut refusals = Vec::new();
    for directory in directories {
        let path = directory
            .as_ref()
            .map_or(Path::new(""), RelativePath::as_path);
        let why = match root.check_writable(path) {
            Ok(()) => continue,
            // The change makes it, or it is gone, which is a reason of its own.
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                continue;
            }
            Err(error) => error,
        };
        let is_mount = why.kind() == ErrorKind::ReadOnlyFilesystem;
        let reason = if is_mount {
            "it is read-only for the daemon; for a service, add it with `gdn daemon service install \
             --writable DIR`, or with `ReadWritePaths=` in its unit, and restart the service"
                .to_owned()
        } else {
            format!("the daemon cannot write it: {why}")
        };
        let path = directory.map_or_else(|| ".".to_owned(), |path| path.to_string());
        refusals.push(about(RefusalKind::Unwritable, Some(path), reason));
        if is_mount {
            // Everything below it is unwritable, too.
            break;
        }
    }
    Ok(refusals)
}

/// The refusal of a change, from the given, the proposed and the current entry of its path.
fn refusal(kind: RefusalKind, change: &PathChange, found: &PathState) -> ProposalRefusal {
    let kind = match found {
        PathState::Special | PathState::BehindSpecial(_) => RefusalKind::Blocked,
        PathState::Entry(_) | PathState::BehindLink(_) => kind,
    };
    let usual = match kind {
        RefusalKind::Created => {
            "it exists in the project but not in the sandbox: it was created later, or never \
             copied"
        }
        RefusalKind::Deleted => "it was deleted after the sandbox was prepared",
        _ => "it was changed after the sandbox was prepared",
    };
    ProposalRefusal {
        kind,
        path: Some(change.path.to_string()),
        reason: found.obstacle().unwrap_or_else(|| usual.to_owned()),
        given: Some(standing(change.old.as_ref())),
        proposed: Some(standing(change.new.as_ref())),
        found: Some(found.standing()),
    }
}

/// The corresponding refusals for changes that a swap detected at the last moment.
pub(crate) fn late_refusals(
    changes: &[PathChange],
    stale: Vec<swap::StalePath>,
) -> Vec<ProposalRefusal> {
    let told = stale.into_iter().map(|stale| {
        let change = changes.iter().find(|change| change.path == stale.path);
        let change = change.cloned().unwrap_or(PathChange {
            path: stale.path,
            old: stale.expected,
            new: None,
        });
        let kind = match (&change.old, &stale.found) {
            (None, _) => RefusalKind::Created,
            (_, None) => RefusalKind::Deleted,
            _ => RefusalKind::Changed,
        };
        refusal(kind, &change, &PathState::Entry(stale.found))
    });
    told.collect()
}

/// An existing name in the Project Root that differs from a new path only in case, unless the
/// proposal removes it, as a rename does.
fn twin(
    root: &dyn Folder,
    path: &RelativePath,
    changes: &BTreeMap<RelativePath, PathChange>,
) -> Result<Option<String>, ProposalError> {
    let is_removed = |path: &RelativePath| {
        let change = changes.get(path);
        change.is_some_and(|change| change.new.is_none())
    };
    for part in path.ancestors().iter().chain([path]) {
        let parent = part.parent();
        let directory = parent.as_ref().map_or(Path::new(""), RelativePath::as_path);
        // A directory that does not exist yet has no conflicting names.
        let Ok(names) = root.names(directory) else {
            return Ok(None);
        };
        for name in names {
            let beside = match &parent {
                Some(parent) => parent.join(name.as_bytes()),
                None => RelativePath::new(name.as_bytes()),
            };
            if let Ok(beside) = beside
                && beside != *part
                && beside.folded() == part.folded()
                && !is_removed(&beside)
            {
                return Ok(Some(beside.to_string()));
            }
        }
    }
    Ok(None)
}
