//! Whether something may become the head: the gate that every change goes through.

use super::{Bundle, Gate, cut_to};
use crate::diff::summary;
use crate::error::BundleError;
use crate::fields::{Decision, changes, decide};
use crate::limits::DETAIL_BYTES_MAX;
use crate::machine::{Proposed, State, Verdict};
use crate::tree::{Tree, changed_paths, overlay_digest, rebase};

/// What a changeset makes of the head.
pub(super) struct OnHead {
    head: Tree,
    tree: Tree,
    conflicts: Vec<String>,
}

impl<G: Gate> Bundle<'_, G> {
    /// What a changeset makes of the head: on top of it, unless both change the same file.
    pub(super) fn on_head(
        &self,
        state: &State,
        base: &Tree,
        made: &Tree,
    ) -> Result<OnHead, BundleError> {
        let head = self.store.tree(&state.head)?;
        // What a person wrote last is `theirs`; here that is the head.
        let (tree, conflicts) = rebase(base, made, &head);
        Ok(OnHead {
            head,
            tree,
            conflicts,
        })
    }

    /// Checks what is to be made the head. `is_approved`: a person has looked at it.
    pub(super) fn check(
        &self,
        state: &State,
        on_head: OnHead,
        is_approved: bool,
    ) -> Result<Proposed, BundleError> {
        let OnHead {
            head,
            tree,
            conflicts,
        } = on_head;
        let paths: Vec<String> = changed_paths(&head, &tree).into_iter().collect();
        let summary = summary(&head, &tree);
        let rejected = |why: String| Proposed {
            revision: None,
            summary: summary.clone(),
            paths: Vec::new(),
            verdict: Verdict::Rejected(cut_to(&why, DETAIL_BYTES_MAX).to_owned()),
        };
        if state.pinned {
            let why = "a person keeps the configuration as it is (`gdn bundle pin`)";
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
            Err(unreadable) => return Ok(rejected(format!("it does not load: {}", unreadable.0))),
        };
        if let Decision::Refused(why) = decision {
            return Ok(rejected(why));
        }
        let base = self.store.tree(&state.base)?;
        let digest = overlay_digest(&base, &tree);
        if let Some(quarantined) = state.is_quarantined(&digest) {
            let why = &quarantined.reason;
            return Ok(rejected(format!(
                "the same content was taken back before and is refused: {why}"
            )));
        }
        if let Err(problems) = self.with.gate.load(&tree) {
            return Ok(rejected(format!("it does not load: {problems}")));
        }
        let verdict = match decision {
            Decision::Approval(why) if !is_approved => {
                Verdict::Waits(cut_to(&why, DETAIL_BYTES_MAX).to_owned())
            }
            _ => Verdict::Accepted,
        };
        Ok(Proposed {
            revision: Some(self.store.keep(&tree)?),
            summary,
            paths,
            verdict,
        })
    }
}
