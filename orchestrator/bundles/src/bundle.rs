//! The bundle of one conversation: operations of agents, users and the daemon.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use goondan_config::ChangesetPolicy;
use goondan_protocol::bundle::{BundleFile, BundleStatus, ChangesetInfo, ChangesetState};
use goondan_protocol::control::{BundleLogs, ShownChangeset};
use goondan_protocol::ids::{AgentName, ChangesetId, RevisionId};
use goondan_protocol::time::Timestamp;
use goondan_trees::FileAccess;

use crate::diff::diff;
use crate::error::BundleError;
use crate::limits::TEXT_BYTES_MAX;
use crate::machine::{CanaryOutcome, RevisionChange, State};
use crate::store::Store;
use crate::tree::{Tree, changed_paths, overlay_digest, rebase};

mod agent_operations;
mod head_checks;
mod replay;

pub use replay::RehearsalConfigs;

/// Loader of complete configurations.
pub trait ConfigPreflight {
    type Loaded;

    /// Loads a configuration with its secrets.
    ///
    /// # Errors
    ///
    /// All problems of the configuration, as text.
    fn load(&self, files: &Tree) -> Result<Self::Loaded, String>;

    /// Starts, once and confined, the modules of `loaded` that are new or changed since `before`.
    /// Called only for configurations that may become active, because a module is a program.
    ///
    /// # Errors
    ///
    /// All problems of the modules, as text.
    fn start(&self, before: &Tree, loaded: &Self::Loaded) -> Result<(), String>;
}

/// State of a bundle as needed by the daemon.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BundleState {
    /// The active revision; `None` if nothing was proposed yet.
    pub active: Option<RevisionId>,
    /// True if the next step needs a new process, because another revision becomes active or the
    /// agent gets a notice.
    pub is_pending: bool,
    /// True if the active revision is on probation.
    pub is_on_probation: bool,
    /// Reason why the active revision is not the intended one.
    pub problem: Option<String>,
}

/// Configuration for the start of an agent's process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartupConfig<L> {
    /// The loaded active revision; `None` if it is the unchanged project without a notice.
    pub loaded: Option<L>,
    /// Additional notice for the agent.
    pub notice: Option<String>,
}

/// A durable change of a bundle, for the log and for users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleEvent {
    /// Kind: `proposed`, `committed`, `rejected`, `activated`, `promoted`, `reverted`, `failed`.
    pub what: &'static str,
    /// The changeset that caused it, if any.
    pub changeset_id: Option<ChangesetId>,
    pub revision: Option<RevisionId>,
    pub detail: String,
}

#[derive(Debug)]
pub struct Surroundings<'a, G> {
    pub files: &'a dyn FileAccess,
    /// The directory of the conversation.
    pub instance: &'a Path,
    pub agent: &'a AgentName,
    /// Files of the running project; `None` if unknown.
    pub project: Option<Tree>,
    /// Allowed changes; `None` allows no change.
    pub policy: Option<ChangesetPolicy>,
    pub gate: &'a G,
    pub at: Timestamp,
}

#[derive(Debug)]
pub struct Bundle<'a, G> {
    with: Surroundings<'a, G>,
    store: Store<'a>,
    happened: Vec<BundleEvent>,
    standing: Option<BundleState>,
}

/// Truncates a user's text.
fn cut(text: &str) -> &str {
    cut_to(text, TEXT_BYTES_MAX)
}

fn cut_to(text: &str, most: usize) -> &str {
    text.get(..text.floor_char_boundary(most))
        .unwrap_or_default()
}

/// Returns the changesets of the conversation in `instance` that wait for approval, oldest first;
/// empty if nothing was proposed. Read-only, and safe during concurrent operations on the bundle.
///
/// # Errors
///
/// [`BundleError::File`] and [`BundleError::Damaged`].
pub fn waiting_changesets(
    files: &dyn FileAccess,
    instance: &Path,
) -> Result<Option<Vec<ChangesetInfo>>, BundleError> {
    let state = Store::new(files, instance).peek()?;
    Ok(state.map(|state| {
        let all = state.changesets.into_iter();
        all.filter(|it| it.state == ChangesetState::Waiting)
            .collect()
    }))
}

impl<'a, G: ConfigPreflight> Bundle<'a, G> {
    /// Creates the bundle of a conversation without reading anything.
    pub fn new(with: Surroundings<'a, G>) -> Self {
        Self {
            store: Store::new(with.files, with.instance),
            with,
            happened: Vec::new(),
            standing: None,
        }
    }

    /// Takes the durable changes since creation.
    pub fn take_happened(&mut self) -> Vec<BundleEvent> {
        std::mem::take(&mut self.happened)
    }

    /// Takes the state after the last operation, if known.
    pub fn take_standing(&mut self) -> Option<BundleState> {
        self.standing.take()
    }

    fn remember(&mut self, state: &State) {
        self.standing = Some(BundleState {
            active: Some(state.active.clone()),
            is_pending: state.needs_process(),
            is_on_probation: state.probation.is_some(),
            problem: state.problem.clone(),
        });
    }

    /// Creates the directory of changesets, so that the next process can access it.
    ///
    /// # Errors
    ///
    /// [`BundleError::File`].
    pub fn prepare(&self) -> Result<(), BundleError> {
        self.store.prepare()
    }

    /// Loads the state, or creates it on top of the project.
    fn begin(&mut self) -> Result<State, BundleError> {
        if self.with.policy.is_none() {
            return Err(BundleError::NotAllowed);
        }
        if let Some(state) = self.store.load()? {
            return Ok(state);
        }
        let Some(project) = &self.with.project else {
            let text = "cannot copy the project's files: its current configuration does not run, or it contains an inline secret";
            return Err(BundleError::Invalid(text.to_owned()));
        };
        let base = self.store.keep(project)?;
        let mut state = State::new(base);
        self.store.save(&mut state)?;
        Ok(state)
    }

    fn existing(&self) -> Result<State, BundleError> {
        self.store.load()?.ok_or(BundleError::NoBundle)
    }

    fn save(&mut self, state: &mut State) -> Result<(), BundleError> {
        self.store.save(state)?;
        self.remember(state);
        Ok(())
    }

    fn tell_decided(&mut self, state: &State, id: &ChangesetId) {
        let Some(info) = state.changeset(id) else {
            return;
        };
        let what = match info.state {
            ChangesetState::Open => return,
            ChangesetState::Waiting => "waits",
            ChangesetState::Committed => "committed",
            ChangesetState::Rejected => "rejected",
        };
        self.happened.push(BundleEvent {
            what,
            changeset_id: Some(id.clone()),
            revision: info.revision.clone(),
            detail: if info.detail.is_empty() {
                info.summary.join(", ")
            } else {
                info.detail.clone()
            },
        });
    }

    /// Returns the state of the bundle.
    ///
    /// # Errors
    ///
    /// [`BundleError::NoBundle`] if nothing was proposed yet.
    pub fn status(&mut self) -> Result<BundleStatus, BundleError> {
        let state = self.existing()?;
        self.status_of(&state)
    }

    fn status_of(&self, state: &State) -> Result<BundleStatus, BundleError> {
        let trees = self.store.tree(&state.base);
        let trees = trees.and_then(|base| Ok((base, self.store.tree(&state.head)?)));
        // Damage is reported here, before it is repaired.
        let (files, damage) = match trees {
            Ok((base, head)) => (self.blame(state, &base, &head), None),
            Err(error) => (Vec::new(), Some(error.in_words())),
        };
        Ok(BundleStatus {
            base: state.base.clone(),
            head: state.head.clone(),
            active: state.active.clone(),
            promoted: state.promoted.clone(),
            pinned: state.pinned,
            probation: state.probation.clone(),
            files,
            conflicts: state.conflicts.clone(),
            problem: damage.or_else(|| state.problem.clone()),
            quarantined: state.quarantined.clone(),
            changesets: state.changesets.iter().rev().cloned().collect(),
        })
    }

    /// Returns the files in which the head differs from the project, each with its originating
    /// changeset.
    fn blame(&self, state: &State, base: &Tree, head: &Tree) -> Vec<BundleFile> {
        let mut trees = BTreeMap::new();
        let paths = changed_paths(base, head).into_iter();
        let blamed = paths.map(|path| BundleFile {
            changeset_id: self.origin(state, head, &path, &mut trees),
            path,
        });
        blamed.collect()
    }

    /// Returns the changeset that produced the current content of a file. It is not the last
    /// changeset of the file if the bundle was reverted since; then it is the newest one that
    /// produced this content.
    fn origin(
        &self,
        state: &State,
        head: &Tree,
        path: &str,
        trees: &mut BTreeMap<RevisionId, Option<Tree>>,
    ) -> Option<ChangesetId> {
        let last = state.origins.get(path);
        let Some(last_info) = last.and_then(|id| state.changeset(id)) else {
            // The changeset is no longer stored, or unknown.
            return last.cloned();
        };
        let mut makes_it = |info: &ChangesetInfo| {
            let mut file = |revision: &RevisionId| {
                let tree = trees
                    .entry(revision.clone())
                    .or_insert_with(|| self.store.tree(revision).ok());
                tree.as_ref().map(|tree| tree.get(path).cloned())
            };
            let made = info.revision.as_ref().and_then(&mut file);
            let is_made = made.is_some_and(|made| made.as_ref() == head.get(path));
            is_made && file(&info.base).is_none_or(|before| before.as_ref() != head.get(path))
        };
        if makes_it(last_info) {
            return last.cloned();
        }
        let mut newest = state.changesets.iter().rev();
        let made = newest.find(|info| info.state == ChangesetState::Committed && makes_it(info));
        made.map(|info| info.changeset_id.clone())
    }

    /// Returns the history of all changesets.
    ///
    /// # Errors
    ///
    /// [`BundleError::NoBundle`] if nothing was proposed yet.
    pub fn logs(&self) -> Result<BundleLogs, BundleError> {
        self.existing()?;
        let (changesets, statuses) = self.store.log()?;
        Ok(BundleLogs {
            changesets,
            statuses,
        })
    }

    /// Returns one changeset with its changes.
    ///
    /// # Errors
    ///
    /// [`BundleError::NoChangeset`], and as [`Self::status`].
    pub fn show(&self, id: &ChangesetId) -> Result<ShownChangeset, BundleError> {
        let state = self.existing()?;
        self.shown(&state, id)
    }

    fn shown(&self, state: &State, id: &ChangesetId) -> Result<ShownChangeset, BundleError> {
        let changeset = found(state, id)?.clone();
        let base = self.store.tree(&changeset.base)?;
        let made = match &changeset.revision {
            Some(revision) => self.store.tree(revision)?,
            None => self.store.working_copies()?.read(id, &base)?,
        };
        Ok(ShownChangeset {
            diff: diff(&base, &made),
            changeset,
        })
    }

    /// Approves a waiting changeset, which becomes the head.
    ///
    /// # Errors
    ///
    /// [`BundleError::WrongState`] if it is not waiting.
    pub fn approve(
        &mut self,
        id: &ChangesetId,
        reason: &str,
    ) -> Result<ChangesetInfo, BundleError> {
        let mut state = self.existing()?;
        let info = found(&state, id)?.clone();
        must_wait(&info)?;
        let Some(revision) = &info.revision else {
            return Err(BundleError::NoChangeset { id: id.clone() });
        };
        // The approval applies to the content stored at the proposal, not to the current working
        // copy.
        let (base, made) = (self.store.tree(&info.base)?, self.store.tree(revision)?);
        let on_head = self.on_head(&state, &base, &made)?;
        let proposed = self.check(&state, on_head, true)?;
        state.approve(id, cut(reason), proposed, self.with.at);
        self.save(&mut state)?;
        self.tell_decided(&state, id);
        Ok(found(&state, id)?.clone())
    }

    /// Rejects a waiting changeset.
    ///
    /// # Errors
    ///
    /// [`BundleError::WrongState`] if it is not waiting.
    pub fn reject(&mut self, id: &ChangesetId, reason: &str) -> Result<ChangesetInfo, BundleError> {
        let mut state = self.existing()?;
        must_wait(found(&state, id)?)?;
        state.reject(id, cut(reason), self.with.at);
        self.save(&mut state)?;
        self.tell_decided(&state, id);
        Ok(found(&state, id)?.clone())
    }

    /// Reverts to a revision; by default to the last one that passed probation.
    ///
    /// # Errors
    ///
    /// [`BundleError::NoRevision`], and if the revision does not load.
    pub fn revert(
        &mut self,
        to: Option<&RevisionId>,
        reason: &str,
    ) -> Result<BundleStatus, BundleError> {
        let mut state = self.existing()?;
        let to = to.cloned().unwrap_or_else(|| state.back());
        let id = ChangesetId::new(format!("person-{}", state.seq.saturating_add(1)))?;
        self.go_back(&mut state, &id, to, ("person", reason))?;
        self.status_of(&state)
    }

    fn go_back(
        &mut self,
        state: &mut State,
        id: &ChangesetId,
        to: RevisionId,
        (by, reason): (&str, &str),
    ) -> Result<(), BundleError> {
        if state.changeset(id).is_some() {
            self.remember(state);
            return Ok(());
        }
        let tree = self.store.tree(&to)?;
        if to != state.base
            && let Err(problems) = self.with.gate.load(&tree)
        {
            let text = format!("revision {to} does not load: {problems}");
            return Err(BundleError::Invalid(text));
        }
        let gone = state.revert(id, to, (by, cut(reason)), self.with.at);
        self.save(state)?;
        self.store.tidy(state, &gone)?;
        self.tell_decided(state, id);
        Ok(())
    }

    /// Pins the active revision, or unpins it.
    ///
    /// # Errors
    ///
    /// As [`Self::status`].
    pub fn pin(&mut self, pinned: bool) -> Result<BundleStatus, BundleError> {
        let mut state = self.existing()?;
        state.pin(pinned, self.with.at);
        self.save(&mut state)?;
        self.status_of(&state)
    }

    /// Returns the digest of the active revision's changes to the project; `None` if a revision is
    /// unreadable.
    fn digest(&self, state: &State) -> Option<String> {
        let base = self.store.tree(&state.base).ok()?;
        let tree = self.store.tree(&state.active).ok()?;
        Some(overlay_digest(&base, &tree))
    }

    /// Abandons unreadable revisions and everything based on them. Returns true if there are any.
    fn mend(&self, state: &mut State) -> Result<bool, BundleError> {
        let Some(project) = &self.with.project else {
            return Ok(false);
        };
        // Also restores the files of the base if the project is unchanged.
        let project = self.store.keep(project)?;
        let at = self.with.at;
        if let Err(error) = self.store.tree(&state.base) {
            state.give_up(project, &error.in_words(), at);
            return Ok(true);
        }
        let mut lost = BTreeMap::new();
        for revision in [&state.head, &state.active, &state.promoted] {
            if let Err(error) = self.store.tree(revision) {
                lost.insert(revision.clone(), error.in_words());
            }
        }
        Ok(!lost.is_empty() && state.lose(&lost, at))
    }

    /// Rebases on the project's edits, if there are any.
    fn follow_project(&mut self, state: &mut State) -> Result<bool, BundleError> {
        let Some(project) = &self.with.project else {
            return Ok(false);
        };
        let new_base = self.store.keep(project)?;
        if new_base == state.base {
            return Ok(false);
        }
        let old_base = self.store.tree(&state.base)?;
        let revisions = [&state.head, &state.active, &state.promoted];
        let revisions: BTreeSet<&RevisionId> = revisions.into_iter().collect();
        let mut rebased = BTreeMap::new();
        let mut conflicts = BTreeSet::new();
        for revision in revisions {
            let ours = self.store.tree(revision)?;
            let (tree, found) = rebase(&old_base, &ours, project);
            if *revision == state.head {
                conflicts.extend(found);
            }
            rebased.insert(revision.clone(), self.store.keep(&tree)?);
        }
        let conflicts = conflicts.into_iter().collect();
        state.rebase(new_base, &rebased, conflicts, self.with.at);
        Ok(true)
    }

    /// Determines the configuration for the next start of the agent's process, between two steps.
    /// The decision is durable when it returns.
    ///
    /// # Errors
    ///
    /// [`BundleError`]: start with the unchanged project then.
    pub fn arm(&mut self) -> Result<StartupConfig<G::Loaded>, BundleError> {
        let nothing = StartupConfig {
            loaded: None,
            notice: None,
        };
        let Some(mut state) = self.store.load()? else {
            self.standing = Some(BundleState::default());
            return Ok(nothing);
        };
        let mut is_changed = self.mend(&mut state)?;
        is_changed |= self.follow_project(&mut state)?;
        let was_on_probation = state.probation.is_some();
        let digest = self.digest(&state);
        is_changed |= state.step(digest.as_deref(), self.with.at) == RevisionChange::Activated;
        let mut loaded = None;
        while state.active != state.base {
            let tree = self.store.tree(&state.active)?;
            match self.with.gate.load(&tree) {
                Ok(made) => {
                    self.store.snapshot(&state.active, &tree)?;
                    loaded = Some(made);
                    break;
                }
                Err(problems) => {
                    let digest = self.digest(&state);
                    state.cannot_load(cut(&problems), digest.as_deref(), self.with.at);
                    is_changed = true;
                }
            }
        }
        if loaded.is_none() && state.notice.is_some() {
            // A notice is part of the prompt, so the project's prompt must be loaded.
            let base = self.store.tree(&state.base)?;
            loaded = self.with.gate.load(&base).ok();
        }
        is_changed |= std::mem::take(&mut state.is_notice_new);
        if is_changed || was_on_probation || state.probation.is_some() {
            let told = events_to_report(&state);
            self.save(&mut state)?;
            self.happened.extend(told);
        }
        self.remember(&state);
        Ok(StartupConfig {
            loaded,
            notice: state.notice.as_deref().map(cut).map(str::to_owned),
        })
    }

    /// Records the outcome of a turn or of an ended process.
    ///
    /// # Errors
    ///
    /// [`BundleError`]: the outcome may not be counted then.
    pub fn note(&mut self, outcome: &CanaryOutcome) -> Result<(), BundleError> {
        let Some(mut state) = self.store.load()? else {
            return Ok(());
        };
        if state.probation.is_some() {
            let digest = self.digest(&state);
            let outcome = match outcome {
                CanaryOutcome::Failed(why) => CanaryOutcome::Failed(cut(why).to_owned()),
                other => other.clone(),
            };
            state.note(&outcome, digest.as_deref(), self.with.at);
            let told = events_to_report(&state);
            self.save(&mut state)?;
            self.happened.extend(told);
        }
        self.remember(&state);
        Ok(())
    }
}

/// Returns the unlogged records as reported changes.
fn events_to_report(state: &State) -> Vec<BundleEvent> {
    use goondan_protocol::bundle::StatusResult;
    let statuses = state.unlogged.statuses.iter();
    let told = statuses.map(|record| BundleEvent {
        what: match record.result {
            StatusResult::Ok if record.detail.is_empty() => "activated",
            StatusResult::Ok => "promoted",
            StatusResult::Failed => "reverted",
            StatusResult::Rejected => "rejected",
            StatusResult::Skipped => "rebased",
        },
        changeset_id: record.changeset_id.clone(),
        revision: record.revision.clone(),
        detail: record.detail.clone(),
    });
    told.collect()
}

fn found<'s>(state: &'s State, id: &ChangesetId) -> Result<&'s ChangesetInfo, BundleError> {
    let info = state.changeset(id);
    info.ok_or_else(|| BundleError::NoChangeset { id: id.clone() })
}

/// Returns the requested changeset, by default the latest open one.
fn chosen(state: &State, id: Option<&ChangesetId>) -> Result<ChangesetId, BundleError> {
    match id {
        Some(id) => Ok(found(state, id)?.changeset_id.clone()),
        None => state.last_open().cloned().ok_or(BundleError::NoneOpen),
    }
}

fn must_wait(info: &ChangesetInfo) -> Result<(), BundleError> {
    let needed = "only a waiting changeset can be decided";
    must_be(info, ChangesetState::Waiting, needed)
}

fn must_be(
    info: &ChangesetInfo,
    state: ChangesetState,
    needed: &'static str,
) -> Result<(), BundleError> {
    if info.state == state {
        return Ok(());
    }
    Err(BundleError::WrongState {
        id: info.changeset_id.clone(),
        state: info.state.as_str(),
        needed,
    })
}
