//! Configurations of a rehearsal: the active one and the proposed one.

use goondan_config::ChangesetPolicy;
use goondan_protocol::bundle::{ChangesetInfo, ChangesetState};
use goondan_protocol::ids::{ChangesetId, RehearsalSubject, RevisionId};

use super::{Bundle, ConfigPreflight};
use crate::error::BundleError;
use crate::fields::{PolicyDecision, changes, decide};
use crate::machine::State;
use crate::tree::{Tree, changed_paths, overlay_digest, rebase};

/// The two configurations of a rehearsal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RehearsalConfigs<L> {
    /// The changeset, if one was named.
    pub changeset_id: Option<ChangesetId>,
    /// The revision; `None` for an uncommitted changeset.
    pub revision: Option<RevisionId>,
    pub against: RevisionId,
    pub before: L,
    /// The loaded proposed configuration; `None` if it was rejected or does not load.
    pub after: Option<L>,
    /// Reasons why it cannot become active.
    pub problems: Vec<String>,
}

/// The proposed configuration with its files.
struct Subject {
    changeset_id: Option<ChangesetId>,
    revision: Option<RevisionId>,
    tree: Tree,
    /// Reason why it cannot be applied to its base.
    problem: Option<String>,
}

impl<G: ConfigPreflight> Bundle<'_, G> {
    /// Loads both configurations of a rehearsal, and starts new modules once, like an activation.
    /// Writes and decides nothing.
    ///
    /// # Errors
    ///
    /// [`BundleError::NoSubject`]; [`BundleError::Invalid`] if the active revision does not load,
    /// so that there is no comparison; and as [`Self::status`].
    pub fn stage(
        &self,
        subject: &RehearsalSubject,
    ) -> Result<RehearsalConfigs<G::Loaded>, BundleError> {
        let policy = self.with.policy.ok_or(BundleError::NotAllowed)?;
        let state = self.existing()?;
        let active = self.on_project(&state, self.store.tree(&state.active)?)?;
        let before = self.with.gate.load(&active).map_err(|problems| {
            BundleError::Invalid(format!(
                "the active revision {} does not load, so a comparison is not possible: {problems}",
                state.active
            ))
        })?;
        let subject = self.subject(&state, subject, &policy)?;
        let mut problems: Vec<String> = subject.problem.into_iter().collect();
        let mut after = None;
        if problems.is_empty() {
            let tree = self.on_project(&state, subject.tree)?;
            match self.with.gate.load(&tree) {
                Ok(loaded) => {
                    let started = self.with.gate.start(&active, &loaded);
                    problems.extend(started.err());
                    after = Some(loaded);
                }
                Err(why) => problems.push(format!("the configuration does not load: {why}")),
            }
        }
        Ok(RehearsalConfigs {
            changeset_id: subject.changeset_id,
            revision: subject.revision,
            against: state.active,
            before,
            after,
            problems,
        })
    }

    /// Applies a revision to the current project, as done before activation.
    fn on_project(&self, state: &State, tree: Tree) -> Result<Tree, BundleError> {
        let Some(project) = &self.with.project else {
            return Ok(tree);
        };
        Ok(rebase(&self.store.tree(&state.base)?, &tree, project).0)
    }

    fn subject(
        &self,
        state: &State,
        subject: &RehearsalSubject,
        policy: &ChangesetPolicy,
    ) -> Result<Subject, BundleError> {
        let mut changesets = state.changesets.iter();
        let info = changesets.find(|it| it.changeset_id.as_str() == subject.as_str());
        let Some(info) = info else {
            let revision = RevisionId::new(subject.as_str())?;
            let tree = self.store.tree(&revision).map_err(|error| match error {
                BundleError::NoRevision { .. } => BundleError::NoSubject {
                    subject: subject.clone(),
                },
                other => other,
            })?;
            return Ok(Subject {
                changeset_id: None,
                revision: Some(revision),
                tree,
                problem: None,
            });
        };
        let base = self.store.tree(&info.base)?;
        let made = match &info.revision {
            Some(revision) => self.store.tree(revision)?,
            None => self
                .store
                .working_copies()?
                .read(&info.changeset_id, &base)?,
        };
        let (tree, problem) = match info.state {
            ChangesetState::Open | ChangesetState::Waiting => {
                self.undecided(state, info, (&base, &made), policy)?
            }
            ChangesetState::Committed | ChangesetState::Rejected => (made, None),
        };
        Ok(Subject {
            changeset_id: Some(info.changeset_id.clone()),
            revision: info.revision.clone(),
            tree,
            problem,
        })
    }

    /// Applies an undecided changeset to the head, and returns the reason for a rejection, by the
    /// rules of commit and approval.
    fn undecided(
        &self,
        state: &State,
        info: &ChangesetInfo,
        (base, made): (&Tree, &Tree),
        policy: &ChangesetPolicy,
    ) -> Result<(Tree, Option<String>), BundleError> {
        let head = self.store.tree(&state.head)?;
        let (tree, conflicts) = rebase(base, made, &head);
        let problem = if !conflicts.is_empty() {
            let files = conflicts.join(", ");
            Some(format!("stale: the head has other changes of {files}"))
        } else if changed_paths(&head, &tree).is_empty() {
            Some(format!("changeset {} changes nothing", info.changeset_id))
        } else {
            match changes(&head, &tree, self.with.agent) {
                Ok(changes) => match decide(&changes, policy) {
                    PolicyDecision::Refused(why) => Some(why),
                    _ => None,
                },
                Err(unreadable) => {
                    Some(format!("the configuration does not load: {}", unreadable.0))
                }
            }
        };
        let digest = overlay_digest(&self.store.tree(&state.base)?, &tree);
        let quarantined = state.is_quarantined(&digest).map(|quarantined| {
            let why = &quarantined.reason;
            format!("the same content was rolled back before and is refused: {why}")
        });
        Ok((tree, problem.or(quarantined)))
    }
}
