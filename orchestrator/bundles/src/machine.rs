//! State machine of changesets and revisions. Pure: time and digests are inputs, and log records
//! stay in the state until they are logged.
//!
//! # Invariants
//!
//! * A conversation has one active revision. It changes only in [`State::step`], between two steps,
//!   and the result is durable before the process of the next step starts.
//! * A revision becomes the head only on top of the head it was checked against.
//! * Content that failed its probation is rejected permanently.
//! * A changeset is decided once. A repeated request returns the decision.

use std::collections::BTreeMap;

use goondan_protocol::bundle::{
    CanaryState, ChangesetInfo, ChangesetRecord, ChangesetState, QuarantinedContent, StatusPhase,
    StatusRecord, StatusResult,
};
use goondan_protocol::ids::{ChangesetId, RevisionId};
use goondan_protocol::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::limits::{
    CHANGESETS_MAX, PROBATION_FAILURES_MAX, PROBATION_MS, PROBATION_TURNS, QUARANTINED_MAX,
};

/// The version of `cursor.yaml`.
pub(crate) const STATE_VERSION: u32 = 1;

/// State of a bundle: the content of `cursor.yaml`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct State {
    pub(crate) version: u32,
    pub(crate) base: RevisionId,
    /// The revision that becomes active with the next step.
    pub(crate) head: RevisionId,
    pub(crate) active: RevisionId,
    /// The last revision that passed probation.
    pub(crate) promoted: RevisionId,
    pub(crate) last_committed_changeset: Option<ChangesetId>,
    pub(crate) last_activated_changeset: Option<ChangesetId>,
    /// The last tool call that committed a changeset, and the changeset.
    pub(crate) last_commit: Option<(ChangesetId, ChangesetId)>,
    pub(crate) pinned: bool,
    pub(crate) probation: Option<CanaryState>,
    pub(crate) quarantined: Vec<QuarantinedContent>,
    pub(crate) conflicts: Vec<String>,
    /// Reason why the active revision is not the intended one.
    pub(crate) problem: Option<String>,
    /// Notice in the agent's prompt until one of its changes becomes active.
    pub(crate) notice: Option<String>,
    /// True if no process was started with the notice yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_notice_new: bool,
    /// Originating changeset of each file that differs from the project.
    pub(crate) origins: BTreeMap<String, ChangesetId>,
    /// Changesets, newest last.
    pub(crate) changesets: Vec<ChangesetInfo>,
    /// Sequence number of the last record.
    pub(crate) seq: u64,
    /// Records that may be missing in the logs.
    pub(crate) unlogged: UnloggedRecords,
}

/// Records to be written to the logs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct UnloggedRecords {
    pub(crate) changesets: Vec<ChangesetRecord>,
    pub(crate) statuses: Vec<StatusRecord>,
}

/// Result of the check of a changeset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ChangesetVerdict {
    Accepted,
    /// Waits for approval, with the reason.
    Waits(String),
    /// Rejected, with the reason.
    Rejected(String),
}

/// A checked proposal for the head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CheckedProposal {
    pub(crate) revision: Option<RevisionId>,
    pub(crate) summary: Vec<String>,
    pub(crate) paths: Vec<String>,
    pub(crate) verdict: ChangesetVerdict,
}

/// Outcome of a turn or of an ended process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CanaryOutcome {
    Completed,
    /// A turn failed, or its process crashed, with the reason.
    Failed(String),
    /// A turn ended for a reason unrelated to its configuration.
    Neutral,
}

/// Decision between two steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RevisionChange {
    /// The active revision is unchanged.
    Stays,
    Activated,
}

impl State {
    /// Creates the state of a bundle without proposals.
    pub(crate) fn new(base: RevisionId) -> Self {
        Self {
            version: STATE_VERSION,
            head: base.clone(),
            active: base.clone(),
            promoted: base.clone(),
            base,
            last_committed_changeset: None,
            last_activated_changeset: None,
            last_commit: None,
            pinned: false,
            probation: None,
            quarantined: Vec::new(),
            conflicts: Vec::new(),
            problem: None,
            notice: None,
            is_notice_new: false,
            origins: BTreeMap::new(),
            changesets: Vec::new(),
            seq: 0,
            unlogged: UnloggedRecords::default(),
        }
    }

    /// Sets a notice for the agent's next step.
    fn tell_agent(&mut self, text: String) {
        self.notice = Some(text);
        self.is_notice_new = true;
    }

    /// True if the next step needs a new process.
    pub(crate) fn needs_process(&self) -> bool {
        self.is_pending() || self.is_notice_new
    }

    /// True if another revision becomes active with the next step.
    pub(crate) fn is_pending(&self) -> bool {
        self.head != self.active
    }

    pub(crate) fn changeset(&self, id: &ChangesetId) -> Option<&ChangesetInfo> {
        self.changesets.iter().find(|it| it.changeset_id == *id)
    }

    fn changeset_mut(&mut self, id: &ChangesetId) -> Option<&mut ChangesetInfo> {
        self.changesets.iter_mut().find(|it| it.changeset_id == *id)
    }

    pub(crate) fn last_open(&self) -> Option<&ChangesetId> {
        let mut newest = self.changesets.iter().rev();
        newest
            .find(|it| it.state == ChangesetState::Open)
            .map(|it| &it.changeset_id)
    }

    /// Returns the changeset committed by a tool call, if it was the last commit.
    pub(crate) fn committed_by(&self, call: &ChangesetId) -> Option<&ChangesetId> {
        let (by, id) = self.last_commit.as_ref()?;
        (by == call).then_some(id)
    }

    /// Returns the number of undecided changesets.
    pub(crate) fn undecided(&self) -> usize {
        let open = |it: &&ChangesetInfo| {
            matches!(it.state, ChangesetState::Open | ChangesetState::Waiting)
        };
        self.changesets.iter().filter(open).count()
    }

    /// Opens a changeset, unless the id exists. Returns the changesets that are no longer stored.
    pub(crate) fn open(
        &mut self,
        id: &ChangesetId,
        base: RevisionId,
        at: Timestamp,
    ) -> Vec<ChangesetId> {
        if self.changeset(id).is_some() {
            return Vec::new();
        }
        self.changesets.push(ChangesetInfo {
            changeset_id: id.clone(),
            state: ChangesetState::Open,
            base,
            revision: None,
            message: String::new(),
            summary: Vec::new(),
            detail: String::new(),
            opened_at: at,
        });
        self.forget_old()
    }

    fn forget_old(&mut self) -> Vec<ChangesetId> {
        let mut gone = Vec::new();
        while self.changesets.len() > CHANGESETS_MAX {
            let is_over = |it: &ChangesetInfo| {
                matches!(
                    it.state,
                    ChangesetState::Committed | ChangesetState::Rejected
                )
            };
            // The limit of undecided changesets is lower than that of stored ones, so a decided one
            // exists.
            let Some(at) = self.changesets.iter().position(is_over) else {
                break;
            };
            gone.push(self.changesets.remove(at).changeset_id);
        }
        gone
    }

    fn next_seq(&mut self) -> u64 {
        self.seq = self.seq.saturating_add(1);
        self.seq
    }

    fn log_status(
        &mut self,
        (phase, result): (StatusPhase, StatusResult),
        changeset_id: Option<ChangesetId>,
        revision: Option<RevisionId>,
        detail: String,
        at: Timestamp,
    ) {
        let seq = self.next_seq();
        self.unlogged.statuses.push(StatusRecord {
            kind: "swarmBundle.changesetStatus".to_owned(),
            seq,
            recorded_at: at,
            changeset_id,
            revision,
            phase,
            result,
            detail,
        });
    }

    fn log_changeset(&mut self, info: &ChangesetInfo, by: &str, at: Timestamp) {
        let seq = self.next_seq();
        self.unlogged.changesets.push(ChangesetRecord {
            kind: "swarmBundle.changeset".to_owned(),
            seq,
            recorded_at: at,
            changeset_id: info.changeset_id.clone(),
            base_revision: info.base.clone(),
            revision: info.revision.clone(),
            by: by.to_owned(),
            message: info.message.clone(),
            summary: info.summary.clone(),
        });
    }

    /// Decides an open changeset. An earlier decision stays.
    pub(crate) fn commit(
        &mut self,
        id: &ChangesetId,
        call: &ChangesetId,
        message: &str,
        proposed: CheckedProposal,
        at: Timestamp,
    ) {
        let Some(info) = self.changeset_mut(id) else {
            return;
        };
        if info.state != ChangesetState::Open {
            return;
        }
        message.clone_into(&mut info.message);
        self.last_commit = Some((call.clone(), id.clone()));
        let Some(info) = self.changeset_mut(id) else {
            return;
        };
        info.summary = proposed.summary;
        info.revision = proposed.revision;
        let (state, result, detail) = match &proposed.verdict {
            ChangesetVerdict::Accepted => {
                (ChangesetState::Committed, StatusResult::Ok, String::new())
            }
            ChangesetVerdict::Waits(why) => {
                (ChangesetState::Waiting, StatusResult::Skipped, why.clone())
            }
            ChangesetVerdict::Rejected(why) => (
                ChangesetState::Rejected,
                StatusResult::Rejected,
                why.clone(),
            ),
        };
        info.state = state;
        info.detail.clone_from(&detail);
        let info = info.clone();
        self.log_changeset(&info, "agent", at);
        let revision = info.revision.clone();
        let phase = (StatusPhase::Commit, result);
        self.log_status(phase, Some(id.clone()), revision.clone(), detail, at);
        if let (ChangesetVerdict::Accepted, Some(revision)) = (proposed.verdict, revision) {
            self.become_head(id, revision, proposed.paths);
        }
    }

    fn become_head(&mut self, id: &ChangesetId, revision: RevisionId, paths: Vec<String>) {
        self.head = revision;
        self.last_committed_changeset = Some(id.clone());
        for path in paths {
            self.origins.insert(path, id.clone());
        }
    }

    /// Applies a user's approval: the changeset, rebased on the current head, becomes the head. It
    /// is rejected if that is not possible.
    pub(crate) fn approve(
        &mut self,
        id: &ChangesetId,
        reason: &str,
        proposed: CheckedProposal,
        at: Timestamp,
    ) {
        let Some(info) = self.changeset_mut(id) else {
            return;
        };
        let (state, result, detail) = match &proposed.verdict {
            ChangesetVerdict::Rejected(why) => (
                ChangesetState::Rejected,
                StatusResult::Rejected,
                why.clone(),
            ),
            ChangesetVerdict::Accepted | ChangesetVerdict::Waits(_) => {
                let said = said_by_person("approved", reason);
                (ChangesetState::Committed, StatusResult::Ok, said)
            }
        };
        info.state = state;
        info.detail.clone_from(&detail);
        if state == ChangesetState::Committed {
            info.revision.clone_from(&proposed.revision);
        }
        let phase = (StatusPhase::Commit, result);
        let revision = proposed.revision;
        if state == ChangesetState::Rejected {
            self.tell_agent(format!(
                "Your changeset {id} was approved by a person, but is rejected: {detail}"
            ));
        }
        self.log_status(phase, Some(id.clone()), revision.clone(), detail, at);
        if let (ChangesetState::Committed, Some(revision)) = (state, revision) {
            self.become_head(id, revision, proposed.paths);
        }
    }

    /// Applies a user's rejection.
    pub(crate) fn reject(&mut self, id: &ChangesetId, reason: &str, at: Timestamp) {
        let detail = said_by_person("turned down", reason);
        let Some(info) = self.changeset_mut(id) else {
            return;
        };
        info.state = ChangesetState::Rejected;
        info.detail.clone_from(&detail);
        let revision = info.revision.clone();
        self.tell_agent(format!("Your changeset {id} was {detail}."));
        let phase = (StatusPhase::Commit, StatusResult::Rejected);
        self.log_status(phase, Some(id.clone()), revision, detail, at);
    }

    /// Returns the default target of a revert: the last revision that passed probation, or the
    /// project if that revision is the head already.
    pub(crate) fn back(&self) -> RevisionId {
        if self.head == self.promoted && self.active == self.promoted {
            self.base.clone()
        } else {
            self.promoted.clone()
        }
    }

    /// Reverts to a revision with the next step. Idempotent by id.
    pub(crate) fn revert(
        &mut self,
        id: &ChangesetId,
        to: RevisionId,
        (by, reason): (&str, &str),
        at: Timestamp,
    ) -> Vec<ChangesetId> {
        if self.changeset(id).is_some() {
            return Vec::new();
        }
        let info = ChangesetInfo {
            changeset_id: id.clone(),
            state: ChangesetState::Committed,
            base: self.head.clone(),
            revision: Some(to.clone()),
            message: reason.to_owned(),
            summary: vec![format!("back to {to}")],
            detail: format!("reverted by {by}"),
            opened_at: at,
        };
        self.log_changeset(&info, by, at);
        let phase = (StatusPhase::Commit, StatusResult::Ok);
        let detail = info.detail.clone();
        self.log_status(phase, Some(id.clone()), Some(to.clone()), detail, at);
        self.changesets.push(info);
        self.last_committed_changeset = Some(id.clone());
        self.head = to;
        if by == "person" {
            let said = said_by_person("rolled back", reason);
            self.tell_agent(format!("Your changes of your configuration were {said}."));
        }
        self.forget_old()
    }

    /// Pins the active revision, or unpins it. Pinning abandons an agent's pending changeset, but
    /// not a revert by a user or after a failure.
    pub(crate) fn pin(&mut self, pinned: bool, at: Timestamp) {
        if self.pinned == pinned {
            return;
        }
        self.pinned = pinned;
        let mut detail = format!("{} by a person", if pinned { "pinned" } else { "unpinned" });
        if pinned && let Some(given_up) = self.pending_changeset() {
            detail.push_str(&format!("; changeset {given_up} does not become active"));
            self.tell_agent(format!(
                "A person pinned your current configuration: your changeset {given_up} does not become active."
            ));
            self.head = self.active.clone();
        }
        let phase = (StatusPhase::Activate, StatusResult::Skipped);
        let revision = self.active.clone();
        self.log_status(phase, None, Some(revision), detail, at);
    }

    /// Returns an agent's changeset that becomes active with the next step, unless a user decided
    /// it.
    fn pending_changeset(&self) -> Option<ChangesetId> {
        let is_back = self.head == self.promoted || self.head == self.base;
        if !self.is_pending() || is_back {
            return None;
        }
        let mut newest = self.changesets.iter().rev();
        let info = newest.find(|it| it.revision.as_ref() == Some(&self.head))?;
        // A user's approval or revert leaves a detail.
        info.detail.is_empty().then(|| info.changeset_id.clone())
    }

    /// Rebases every revision on a changed project.
    pub(crate) fn rebase(
        &mut self,
        base: RevisionId,
        rebased: &BTreeMap<RevisionId, RevisionId>,
        conflicts: Vec<String>,
        at: Timestamp,
    ) {
        let onto = |revision: &RevisionId| {
            let new = rebased.get(revision).cloned();
            new.unwrap_or_else(|| base.clone())
        };
        self.head = onto(&self.head);
        self.active = onto(&self.active);
        self.promoted = onto(&self.promoted);
        self.base = base;
        let mut detail = "rebased on the project's edit".to_owned();
        if !conflicts.is_empty() {
            let files = conflicts.join(", ");
            detail = format!("{detail}; the project's version of {files} wins");
            self.tell_agent(format!(
                "A person changed {files} in the project: their text holds instead of yours."
            ));
        }
        self.conflicts = conflicts;
        if self.active == self.base && self.head == self.base {
            self.origins.clear();
            self.probation = None;
            self.promoted = self.base.clone();
        }
        let phase = (StatusPhase::Activate, StatusResult::Skipped);
        let revision = self.active.clone();
        self.log_status(phase, None, Some(revision), detail, at);
    }

    /// Determines the active revision for a starting process, between two steps. `digest` is the
    /// digest of the active revision's changes; `None` if it is unreadable.
    pub(crate) fn step(&mut self, digest: Option<&str>, at: Timestamp) -> RevisionChange {
        let was = self.active.clone();
        if self.is_pending() {
            self.activate(at);
        } else if let Some(probation) = &mut self.probation
            && probation.is_started
        {
            probation.is_started = false;
            self.fail("a process with this revision was lost", digest, at);
            if self.is_pending() {
                self.activate(at);
            }
        }
        if let Some(probation) = &mut self.probation {
            probation.is_started = true;
        }
        if self.active == was {
            RevisionChange::Stays
        } else {
            RevisionChange::Activated
        }
    }

    fn activate(&mut self, at: Timestamp) {
        self.active = self.head.clone();
        let proves_itself = self.active == self.promoted || self.active == self.base;
        if proves_itself {
            self.promoted = self.active.clone();
        } else {
            self.notice = None;
            self.problem = None;
        }
        self.probation = (!proves_itself).then(|| CanaryState {
            since: at,
            turns: 0,
            failures: 0,
            is_started: false,
            last_failure: String::new(),
        });
        let mut newest = self.changesets.iter().rev();
        let changeset = newest.find(|it| it.revision.as_ref() == Some(&self.active));
        let changeset = changeset.map(|it| it.changeset_id.clone());
        self.last_activated_changeset.clone_from(&changeset);
        if self.active == self.base {
            self.origins.clear();
        }
        let phase = (StatusPhase::Activate, StatusResult::Ok);
        let revision = self.active.clone();
        self.log_status(phase, changeset, Some(revision), String::new(), at);
    }

    /// Replaces an active revision that does not load by the next fallback. The failure does
    /// not count against the fallback.
    pub(crate) fn cannot_load(&mut self, why: &str, digest: Option<&str>, at: Timestamp) {
        let problem = format!("revision {} does not load: {why}", self.active);
        if self.probation.is_some() {
            self.take_back(&problem, digest, at);
        } else {
            let phase = (StatusPhase::Activate, StatusResult::Failed);
            let revision = self.active.clone();
            self.log_status(phase, None, Some(revision), problem.clone(), at);
            // A promoted revision is not quarantined, because it may load again after another edit
            // of the project.
            let next = if self.active == self.promoted {
                &self.base
            } else {
                &self.promoted
            };
            self.head = next.clone();
            self.promoted = next.clone();
            self.tell_agent(format!("{problem}. Another revision is active instead."));
        }
        self.activate(at);
        self.problem = Some(problem);
    }

    /// Abandons unreadable revisions, given with reasons. Returns true if anything changed.
    pub(crate) fn lose(&mut self, lost: &BTreeMap<RevisionId, String>, at: Timestamp) -> bool {
        let mut is_changed = false;
        if lost.contains_key(&self.promoted) {
            self.promoted = self.base.clone();
            is_changed = true;
        }
        if self.is_pending()
            && let Some(why) = lost.get(&self.head)
        {
            let detail = format!("revision {} cannot become active: {why}", self.head);
            let phase = (StatusPhase::Activate, StatusResult::Failed);
            self.log_status(phase, None, Some(self.head.clone()), detail.clone(), at);
            self.head = self.active.clone();
            self.tell_agent(detail);
            is_changed = true;
        }
        if let Some(why) = lost.get(&self.active) {
            self.cannot_load(why, None, at);
            is_changed = true;
        }
        is_changed
    }

    /// Falls back to the current project, because the former base is unreadable and nothing can be
    /// rebased.
    pub(crate) fn give_up(&mut self, project: RevisionId, why: &str, at: Timestamp) {
        let was = std::mem::replace(&mut self.base, project.clone());
        self.promoted = project.clone();
        self.head = project;
        let problem = format!("revision {was} does not load: {why}");
        let (phase, revision) = ((StatusPhase::Activate, StatusResult::Failed), Some(was));
        self.log_status(phase, None, revision, problem.clone(), at);
        self.activate(at);
        self.conflicts.clear();
        self.tell_agent(format!("{problem}. Your changes are abandoned."));
        self.problem = Some(problem);
    }

    /// Records the outcome of a turn or of an ended process.
    pub(crate) fn note(&mut self, outcome: &CanaryOutcome, digest: Option<&str>, at: Timestamp) {
        let Some(probation) = &mut self.probation else {
            return;
        };
        probation.is_started = false;
        match outcome {
            CanaryOutcome::Neutral => {}
            CanaryOutcome::Failed(why) => self.fail(why, digest, at),
            CanaryOutcome::Completed => {
                probation.turns = probation.turns.saturating_add(1);
                let since = probation.since.as_unix_millis();
                let age_ms = at.as_unix_millis().saturating_sub(since);
                let is_old = u64::try_from(age_ms).is_ok_and(|age| age >= PROBATION_MS);
                if probation.turns >= PROBATION_TURNS || is_old {
                    let detail = format!("it proved itself in {} turns", probation.turns);
                    self.probation = None;
                    self.promoted = self.active.clone();
                    let phase = (StatusPhase::Activate, StatusResult::Ok);
                    let changeset = self.last_activated_changeset.clone();
                    let revision = self.active.clone();
                    self.log_status(phase, changeset, Some(revision), detail, at);
                }
            }
        }
    }

    fn fail(&mut self, why: &str, digest: Option<&str>, at: Timestamp) {
        let Some(probation) = &mut self.probation else {
            return;
        };
        probation.failures = probation.failures.saturating_add(1);
        why.clone_into(&mut probation.last_failure);
        if probation.failures >= PROBATION_FAILURES_MAX {
            let failures = probation.failures;
            let why = format!("it failed {failures} times; the last time: {why}");
            self.take_back(&why, digest, at);
        }
    }

    /// Rolls the active revision back, and quarantines its content if the digest is known.
    fn take_back(&mut self, why: &str, digest: Option<&str>, at: Timestamp) {
        let revision = self.active.clone();
        let changeset = self.last_activated_changeset.clone();
        self.quarantined
            .extend(digest.map(|digest| QuarantinedContent {
                digest: digest.to_owned(),
                revision: revision.clone(),
                at,
                reason: why.to_owned(),
            }));
        let over = self.quarantined.len().saturating_sub(QUARANTINED_MAX);
        self.quarantined.drain(..over);
        self.probation = None;
        self.head = self.promoted.clone();
        let id = changeset.as_ref().map_or("", ChangesetId::as_str);
        let refused = if digest.is_some() {
            " The same content is refused from now on; propose another."
        } else {
            ""
        };
        self.tell_agent(format!(
            "Your changeset {id} was rolled back: {why}.{refused}"
        ));
        let phase = (StatusPhase::Activate, StatusResult::Failed);
        self.log_status(phase, changeset, Some(revision), why.to_owned(), at);
    }

    /// Returns the quarantine entry of a digest, if there is one.
    pub(crate) fn is_quarantined(&self, digest: &str) -> Option<&QuarantinedContent> {
        self.quarantined.iter().find(|it| it.digest == digest)
    }
}

fn said_by_person(what: &str, reason: &str) -> String {
    if reason.is_empty() {
        format!("{what} by a person")
    } else {
        format!("{what} by a person: {reason}")
    }
}
