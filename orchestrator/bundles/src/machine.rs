//! Decides what becomes of changesets and revisions. Pure: time and digests come in, and what is to be logged is
//! kept in the state until it is in the logs.
//!
//! # Invariants
//!
//! * Of one conversation one revision is active. It changes in [`State::step`] alone, which is asked between two
//!   steps, and what it says is durable before the process of the next step starts.
//! * A revision becomes the head only on top of the head it was checked against.
//! * Content that failed its probation is refused for good.
//! * The same changeset is decided once: asked again, it gives what came of it.

use std::collections::BTreeMap;

use goondan_protocol::bundle::{
    ChangesetInfo, ChangesetRecord, ChangesetState, Probation, Quarantined, StatusPhase,
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

/// How a bundle stands: what `cursor.yaml` holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct State {
    pub(crate) version: u32,
    /// The project as it was last seen.
    pub(crate) base: RevisionId,
    /// What becomes active with the next step.
    pub(crate) head: RevisionId,
    /// What the agent works with.
    pub(crate) active: RevisionId,
    /// The last that proved itself.
    pub(crate) promoted: RevisionId,
    pub(crate) last_committed_changeset: Option<ChangesetId>,
    pub(crate) last_activated_changeset: Option<ChangesetId>,
    /// The last tool call that committed a changeset, and which.
    pub(crate) last_commit: Option<(ChangesetId, ChangesetId)>,
    pub(crate) pinned: bool,
    pub(crate) probation: Option<Probation>,
    pub(crate) quarantined: Vec<Quarantined>,
    pub(crate) conflicts: Vec<String>,
    /// Why the active revision is not the one that was meant to be.
    pub(crate) problem: Option<String>,
    /// What the agent is told with its prompt until something of it becomes active.
    pub(crate) notice: Option<String>,
    /// Whether no process was started with it yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_notice_new: bool,
    /// Which changeset each file comes from that is not the project's.
    pub(crate) origins: BTreeMap<String, ChangesetId>,
    /// The newest last.
    pub(crate) changesets: Vec<ChangesetInfo>,
    /// The place of the last record.
    pub(crate) seq: u64,
    /// Records that are not known to be in the logs.
    pub(crate) unlogged: Unlogged,
}

/// Records on their way to the logs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Unlogged {
    pub(crate) changesets: Vec<ChangesetRecord>,
    pub(crate) statuses: Vec<StatusRecord>,
}

/// What a check of a changeset came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It becomes the head.
    Accepted,
    /// A person is to say.
    Waits(String),
    /// It may not be.
    Rejected(String),
}

/// Something that is to be made the head, and what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Proposed {
    pub(crate) revision: Option<RevisionId>,
    pub(crate) summary: Vec<String>,
    /// The files it changes.
    pub(crate) paths: Vec<String>,
    pub(crate) verdict: Verdict,
}

/// What is known of a turn, or of a process that is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A turn was completed.
    Completed,
    /// A turn failed, or its process crashed: why.
    Failed(String),
    /// A turn ended for a reason that says nothing about its configuration.
    Neutral,
}

/// What was decided between two steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stepped {
    /// The same revision as before.
    Stays,
    /// Another one is active from now on.
    Activated,
}

impl State {
    /// How a bundle stands in which nothing was proposed yet.
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
            unlogged: Unlogged::default(),
        }
    }

    /// The agent is told this from its next step on.
    fn tell_agent(&mut self, text: String) {
        self.notice = Some(text);
        self.is_notice_new = true;
    }

    /// Whether another process is to make the next step.
    pub(crate) fn needs_process(&self) -> bool {
        self.is_pending() || self.is_notice_new
    }

    /// Whether another revision becomes active with the next step.
    pub(crate) fn is_pending(&self) -> bool {
        self.head != self.active
    }

    pub(crate) fn changeset(&self, id: &ChangesetId) -> Option<&ChangesetInfo> {
        self.changesets.iter().find(|it| it.changeset_id == *id)
    }

    fn changeset_mut(&mut self, id: &ChangesetId) -> Option<&mut ChangesetInfo> {
        self.changesets.iter_mut().find(|it| it.changeset_id == *id)
    }

    /// The changeset that was opened last and is still open.
    pub(crate) fn last_open(&self) -> Option<&ChangesetId> {
        let mut newest = self.changesets.iter().rev();
        newest
            .find(|it| it.state == ChangesetState::Open)
            .map(|it| &it.changeset_id)
    }

    /// The changeset that a tool call committed, if it was the last to commit one.
    pub(crate) fn committed_by(&self, call: &ChangesetId) -> Option<&ChangesetId> {
        let (by, id) = self.last_commit.as_ref()?;
        (by == call).then_some(id)
    }

    /// How many changesets nobody has decided about.
    pub(crate) fn undecided(&self) -> usize {
        let open = |it: &&ChangesetInfo| {
            matches!(it.state, ChangesetState::Open | ChangesetState::Waiting)
        };
        self.changesets.iter().filter(open).count()
    }

    /// Begins a changeset, unless there is one of this id. Gives those that are not remembered any longer.
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
            // Fewer may be undecided than are remembered, so that there always is one.
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

    /// Decides about a changeset that is open. What was decided before stays.
    pub(crate) fn commit(
        &mut self,
        id: &ChangesetId,
        call: &ChangesetId,
        message: &str,
        proposed: Proposed,
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
            Verdict::Accepted => (ChangesetState::Committed, StatusResult::Ok, String::new()),
            Verdict::Waits(why) => (ChangesetState::Waiting, StatusResult::Skipped, why.clone()),
            Verdict::Rejected(why) => (
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
        if let (Verdict::Accepted, Some(revision)) = (proposed.verdict, revision) {
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

    /// A person lets a changeset become the head, in the form it has on top of the head as it is. If that is not
    /// possible, it is turned down.
    pub(crate) fn approve(
        &mut self,
        id: &ChangesetId,
        reason: &str,
        proposed: Proposed,
        at: Timestamp,
    ) {
        let Some(info) = self.changeset_mut(id) else {
            return;
        };
        let (state, result, detail) = match &proposed.verdict {
            Verdict::Rejected(why) => (
                ChangesetState::Rejected,
                StatusResult::Rejected,
                why.clone(),
            ),
            Verdict::Accepted | Verdict::Waits(_) => {
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
                "Your changeset {id} was approved by a person, and is rejected all the same: {detail}"
            ));
        }
        self.log_status(phase, Some(id.clone()), revision.clone(), detail, at);
        if let (ChangesetState::Committed, Some(revision)) = (state, revision) {
            self.become_head(id, revision, proposed.paths);
        }
    }

    /// A person turns a changeset down.
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

    /// Where a revert goes that names no revision: the last that proved itself, or, if the head is that already,
    /// the project.
    pub(crate) fn back(&self) -> RevisionId {
        if self.head == self.promoted && self.active == self.promoted {
            self.base.clone()
        } else {
            self.promoted.clone()
        }
    }

    /// Goes back to a revision with the next step. The same id once only.
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
            let said = said_by_person("taken back", reason);
            self.tell_agent(format!("Your changes of your configuration were {said}."));
        }
        self.forget_old()
    }

    /// A person keeps what is active, or lets it change again. What an agent made, and what waits for the next step, is
    /// given up; where a person or a failure sent the bundle back to is not.
    pub(crate) fn pin(&mut self, pinned: bool, at: Timestamp) {
        if self.pinned == pinned {
            return;
        }
        self.pinned = pinned;
        let mut detail = format!("{} by a person", if pinned { "pinned" } else { "unpinned" });
        if pinned && let Some(given_up) = self.pending_changeset() {
            detail.push_str(&format!("; changeset {given_up} does not become active"));
            self.tell_agent(format!(
                "A person pinned your configuration as it is: your changeset {given_up} does not become active."
            ));
            self.head = self.active.clone();
        }
        let phase = (StatusPhase::Activate, StatusResult::Skipped);
        let revision = self.active.clone();
        self.log_status(phase, None, Some(revision), detail, at);
    }

    /// The changeset of an agent that becomes active with the next step, if no person decided about it.
    fn pending_changeset(&self) -> Option<ChangesetId> {
        let is_back = self.head == self.promoted || self.head == self.base;
        if !self.is_pending() || is_back {
            return None;
        }
        let mut newest = self.changesets.iter().rev();
        let info = newest.find(|it| it.revision.as_ref() == Some(&self.head))?;
        // What a person approved or reverted says so.
        info.detail.is_empty().then(|| info.changeset_id.clone())
    }

    /// The project is another one: every revision is put on top of it.
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
            detail = format!("{detail}; what the project says of {files} holds");
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

    /// A process of the agent is about to start, between two steps: what it works with. `digest` is that of what
    /// the active revision changes; none if that cannot be read any more.
    pub(crate) fn step(&mut self, digest: Option<&str>, at: Timestamp) -> Stepped {
        let was = self.active.clone();
        if self.is_pending() {
            self.activate(at);
        } else if let Some(probation) = &mut self.probation
            && probation.is_started
        {
            probation.is_started = false;
            self.fail("a process that was started with it was lost", digest, at);
            if self.is_pending() {
                self.activate(at);
            }
        }
        if let Some(probation) = &mut self.probation {
            probation.is_started = true;
        }
        if self.active == was {
            Stepped::Stays
        } else {
            Stepped::Activated
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
        self.probation = (!proves_itself).then(|| Probation {
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

    /// The active revision cannot be loaded: the next best one is active instead, and gets no chance less.
    pub(crate) fn cannot_load(&mut self, why: &str, digest: Option<&str>, at: Timestamp) {
        let problem = format!("revision {} does not load: {why}", self.active);
        if self.probation.is_some() {
            self.take_back(&problem, digest, at);
        } else {
            let phase = (StatusPhase::Activate, StatusResult::Failed);
            let revision = self.active.clone();
            self.log_status(phase, None, Some(revision), problem.clone(), at);
            // What proved itself may load again once the project does not contradict it; it is not refused.
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

    /// Some revisions cannot be read any more, each for a reason: what they were to be is given up. Gives whether
    /// anything changed.
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

    /// What the project was cannot be read any more, so that nothing can be put on top of what it is: that holds.
    pub(crate) fn give_up(&mut self, project: RevisionId, why: &str, at: Timestamp) {
        let was = std::mem::replace(&mut self.base, project.clone());
        self.promoted = project.clone();
        self.head = project;
        let problem = format!("revision {was} does not load: {why}");
        let (phase, revision) = ((StatusPhase::Activate, StatusResult::Failed), Some(was));
        self.log_status(phase, None, revision, problem.clone(), at);
        self.activate(at);
        self.conflicts.clear();
        self.tell_agent(format!("{problem}. What you changed is given up."));
        self.problem = Some(problem);
    }

    /// Something is known of a turn, or of a process that is gone.
    pub(crate) fn note(&mut self, outcome: &Outcome, digest: Option<&str>, at: Timestamp) {
        let Some(probation) = &mut self.probation else {
            return;
        };
        probation.is_started = false;
        match outcome {
            Outcome::Neutral => {}
            Outcome::Failed(why) => self.fail(why, digest, at),
            Outcome::Completed => {
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

    /// The active revision is given up, and its content refused from now on if it is known.
    fn take_back(&mut self, why: &str, digest: Option<&str>, at: Timestamp) {
        let revision = self.active.clone();
        let changeset = self.last_activated_changeset.clone();
        self.quarantined.extend(digest.map(|digest| Quarantined {
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
            "Your changeset {id} was taken back: {why}.{refused}"
        ));
        let phase = (StatusPhase::Activate, StatusResult::Failed);
        self.log_status(phase, changeset, Some(revision), why.to_owned(), at);
    }

    /// Whether content is refused, and why.
    pub(crate) fn is_quarantined(&self, digest: &str) -> Option<&Quarantined> {
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
