//! Checks that every change must pass before it becomes the head.

use super::{Bundle, ConfigPreflight, cut_to};
use crate::diff::summary;
use crate::error::BundleError;
use crate::fields::{PolicyDecision, changes, decide};
use crate::limits::DETAIL_BYTES_MAX;
use crate::machine::{ChangesetVerdict, CheckedProposal, State};
use crate::tree::{Tree, changed_paths, overlay_digest, rebase};

/// A changeset applied to the head.
pub(super) struct RebasedChangeset {
    head: Tree,
    tree: Tree,
    conflicts: Vec<String>,
}

impl<G: ConfigPreflight> Bundle<'_, G> {
    /// Applies a changeset to the head. A file that both changed is a conflict.
    pub(super) fn on_head(
        &self,
        state: &State,
        base: &Tree,
        made: &Tree,
    ) -> Result<RebasedChangeset, BundleError> {
        let head = self.store.tree(&state.head)?;
        // The head takes the role of `theirs` here.
        let (tree, conflicts) = rebase(base, made, &head);
        Ok(RebasedChangeset {
            head,
            tree,
            conflicts,
        })
    }

    /// Checks a proposed head. `is_approved` is true after a user's approval.
    pub(super) fn check(
        &self,
        state: &State,
        on_head: RebasedChangeset,
        is_approved: bool,
    ) -> Result<CheckedProposal, BundleError> {
        let RebasedChangeset {
            head,
            tree,
            conflicts,
        } = on_head;
        let paths: Vec<String> = changed_paths(&head, &tree).into_iter().collect();
        let summary = summary(&head, &tree);
        let rejected = |why: String| CheckedProposal {
            revision: None,
            summary: summary.clone(),
            paths: Vec::new(),
            verdict: ChangesetVerdict::Rejected(cut_to(&why, DETAIL_BYTES_MAX).to_owned()),
        };
        if state.pinned {
            let why = "a user pinned the configuration (`gdn conversation bundle pin`)";
            return Ok(rejected(why.to_owned()));
        }
        if !conflicts.is_empty() {
            let files = conflicts.join(", ");
            let why = format!("stale: the head has other changes of {files}; open a new changeset");
            return Ok(rejected(why));
        }
        if paths.is_empty() {
            return Ok(rejected("it changes nothing".to_owned()));
        }
        let policy = self.with.policy.ok_or(BundleError::NotAllowed)?;
        let decision = match changes(&head, &tree, self.with.agent) {
            Ok(changes) => decide(&changes, &policy),
            Err(unreadable) => {
                return Ok(rejected(format!(
                    "the configuration does not load: {}",
                    unreadable.0
                )));
            }
        };
        if let PolicyDecision::Refused(why) = decision {
            return Ok(rejected(why));
        }
        let base = self.store.tree(&state.base)?;
        let digest = overlay_digest(&base, &tree);
        if let Some(quarantined) = state.is_quarantined(&digest) {
            let why = &quarantined.reason;
            return Ok(rejected(format!(
                "the same content was rolled back before and is refused: {why}"
            )));
        }
        let loaded = match self.with.gate.load(&tree) {
            Ok(loaded) => loaded,
            Err(problems) => {
                return Ok(rejected(format!(
                    "the configuration does not load: {problems}"
                )));
            }
        };
        let waits = matches!(&decision, PolicyDecision::Approval(_)) && !is_approved;
        // Modules are programs, so none is started before a user's approval, if that is required.
        if !waits && let Err(problems) = self.with.gate.start(&head, &loaded) {
            return Ok(rejected(format!("gate: {problems}")));
        }
        let verdict = match decision {
            PolicyDecision::Approval(why) if !is_approved => {
                ChangesetVerdict::Waits(cut_to(&why, DETAIL_BYTES_MAX).to_owned())
            }
            _ => ChangesetVerdict::Accepted,
        };
        Ok(CheckedProposal {
            revision: Some(self.store.keep(&tree)?),
            summary,
            paths,
            verdict,
        })
    }
}
