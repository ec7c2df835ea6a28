//! One instance on disk: its inbox, turn journal, conversation and metadata.
//!
//! [`InstanceStore`] is synchronous and owned by one writer thread. Its mutating methods *stage*
//! their writes, which become durable with [`InstanceStore::sync`]. So a writer can stage many
//! operations and sync once.
//!
//! # Life of a turn
//!
//! `accept` → `begin_turn` → `append_event` … → `complete_turn` → `sync` (the commit point) →
//! `fold_turn` (into base and inbox), and after some turns or a delay `clear_journal` (syncs both
//! and clears the journal). After a crash at any point, [`InstanceStore::open`] recovers the state
//! and rolls committed turns forward. A turn that repeatedly crashes its process ends by `park`:
//! its event and journal are moved aside, and the conversation continues. `cancel` commits a turn
//! with its current records.
//!
//! # Invariants
//!
//! * `base.jsonl` changes only under a durable commit record, and every change is idempotent.
//! * A turn leaves `events.jsonl` only after its base and the `done` records of its events are
//!   durable. The cleared journal is durable before anything follows.
//! * A turn that rewrites the base is alone in `events.jsonl` from its commit on.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use goondan_durable::checksum::crc32;
use goondan_durable::disk::Disk;
use goondan_durable::manifest::Manifest;
use goondan_durable::{FileError, Finding, IoContext as _, VerificationResult, files};
use goondan_protocol::conversation::MissingTarget;
use goondan_protocol::event::{AgentEvent, TurnOutcome};
use goondan_protocol::ids::{
    AgentName, ConnectionName, EventId, ExtensionStates, InstanceKey, TurnId,
};
use goondan_protocol::time::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::error::StoreError;
use crate::file_names::instance_dir_name;

mod answer;
mod answers;
mod approvals;
mod archive;
mod base;
mod base_checksums;
mod bundle_files;
mod cancellation;
mod check;
mod checksum_diff;
mod dedup;
mod event_log;
mod export;
mod extension;
mod fold;
mod folder;
mod import;
mod inbox;
mod llm;
mod manifest_claims;
mod metadata;
mod page;
mod parked_events;
mod pending_replies;
mod queue_control;
mod records;
mod recovery;
mod redo;
mod repair;
mod rewind;
mod schedules;
mod segments;
mod spans;
mod tail;
mod turn;

pub use approvals::{Approval, ApprovalMark, ApprovalRequest, CallDecision, FirstConsent};
pub use cancellation::CancelScope;
pub(crate) use check::{HISTORY_ADVICE, check_history, check_json, check_ledger, check_log, odd};
pub use event_log::{ObservedPage, read_event_log, read_event_log_before};
pub(crate) use folder::peek_parked;
pub use folder::{delete, has_work, sweep, work_dir};
pub use import::import;
pub use inbox::{EventState, ParkedEvent, PendingReplyRecord};
pub use llm::LlmMessage;
pub use metadata::{InstanceStatus, Metadata};
pub use page::ConversationSlice;
pub use queue_control::{QueueOp, QueueOrder};
pub use repair::repair;
pub use rewind::{Pins, RewindNote};
pub use schedules::read_schedules;
pub use spans::{TraceQuery as WantedTrace, TraceSlice, read_trace};
pub use tail::{ConversationTail, read_tail};
pub use turn::{OpenTurn, TurnEvent};

use answer::AnswerRef;
use base::{BASE, Base};
use extension::check_states;
use goondan_protocol::observe::ObservationBounds;
use inbox::Inbox;
use llm::LLM;
use manifest_claims::KnownFiles;
use segments::SegmentedLog;
use turn::{CommitRecord, FoldMode, TurnLog};

/// Name of an instance's messages folder.
const MESSAGES: &str = "messages";
/// Name of the working directory of an instance's tools.
const WORK: &str = "work";
/// Name of an instance's extension state folder.
const EXTENSIONS: &str = "extensions";

/// Pending work of an instance.
#[derive(Debug, Clone, PartialEq)]
pub struct InstanceState {
    /// The agent it belongs to.
    pub agent: AgentName,
    /// The turn in progress, if any.
    pub open_turn: Option<OpenTurn>,
    /// Tool calls of that turn that needed approval.
    pub approvals: Vec<Approval>,
    /// Waiting events in the order of their turns, including the open turn's event.
    pub waiting: Vec<AgentEvent>,
    /// Waiting events that a user paused.
    pub paused: BTreeSet<EventId>,
    /// Number of crashed turns of waiting events, if not zero.
    pub attempts: BTreeMap<EventId, u32>,
    /// Parked events, oldest first.
    pub parked: Vec<ParkedEvent>,
    /// Questions of its agent with answers that will arrive as events.
    pub awaiting: Vec<PendingReplyRecord>,
    /// Findings of opening the instance.
    pub findings: Vec<Finding>,
    /// Losses found now or earlier that are not acknowledged.
    pub unacknowledged: Vec<Finding>,
    /// A rewind in progress, which must finish before a turn begins.
    pub rewind: Option<RewindNote>,
}

/// Checks every file of the instance in `dir`.
pub(crate) fn check(
    disk: &dyn Disk,
    dir: &Path,
    out: &mut VerificationResult,
) -> Result<(), StoreError> {
    check::check(disk, dir, out)?;
    bundle_files::check(disk, dir, out)
}

/// Writes a record as one line.
fn json_line(record: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    let mut line = serde_json::to_vec(record).map_err(|error| FileError::Unwritable {
        problem: error.to_string(),
    })?;
    line.push(b'\n');
    Ok(line)
}

/// Content of a turn's commit besides its messages.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CommitExtras {
    /// Other waiting events that the turn consumed; they end with it.
    pub also: Vec<EventId>,
    /// New states of the extensions that changed theirs.
    pub states: ExtensionStates,
}

/// One instance, open.
#[derive(Debug)]
pub struct InstanceStore {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    metadata: Metadata,
    metadata_is_dirty: bool,
    inbox: Inbox,
    turn: TurnLog,
    base: Base,
    observed: SegmentedLog,
    llm: SegmentedLog,
    bounds: ObservationBounds,
    /// Manifest of the instance's files.
    manifest: Manifest<KnownFiles>,
    /// Messages of the committed turn as lines, until they are folded.
    delta: Option<Vec<u8>>,
    findings: Vec<Finding>,
    /// A rewind in progress. No turn begins until it finishes.
    rewind: Option<RewindNote>,
}

impl InstanceStore {
    /// Atomically creates a new instance in `instances` and opens it. Durable when it returns.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn create(
        disk: Arc<dyn Disk>,
        instances: &Path,
        key: &InstanceKey,
        agent: &AgentName,
        at: Timestamp,
        staging_name: &str,
    ) -> Result<Self, StoreError> {
        let dir = instances.join(instance_dir_name(key));
        let staging = instances.join(staging_name);
        let metadata = Metadata::new(agent.clone(), key.clone(), at);
        folder::stage(disk.as_ref(), &staging, &metadata)?;
        files::install(disk.as_ref(), &staging, &dir)?;
        Self::open(disk, &dir)
    }

    /// Opens an instance and recovers it from a crash.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`]; [`FileError::Damaged`] if its metadata is invalid, or if a committed turn
    /// cannot be folded because its journal or base is damaged.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path) -> Result<Self, StoreError> {
        let metadata = Metadata::read(disk.as_ref(), dir)?;
        let messages = dir.join(MESSAGES);
        for made in [&messages, &dir.join(EXTENSIONS), &dir.join(WORK)] {
            files::ensure_dir(disk.as_ref(), dir, made)?;
        }
        let rewind = rewind::read_note(disk.as_ref(), dir)?;
        let mut findings = Vec::new();
        let manifest = dedup::open(disk.as_ref(), dir)?;
        let inbox = Inbox::open(disk.as_ref(), &messages.join(INBOX), &mut findings)?;
        let turn = TurnLog::open(disk.as_ref(), &messages.join(EVENTS), &mut findings)?;
        let base = Base::open(disk.as_ref(), &messages, &mut findings)?;
        let observed = SegmentedLog::open(Arc::clone(&disk), &messages, OBSERVED)?;
        let llm = SegmentedLog::open(Arc::clone(&disk), &messages, LLM)?;
        // File names created by a killed process may be visible without being durable, and missing
        // files were just created.
        let above = dir.parent().unwrap_or(Path::new("/"));
        for names in [above, dir, &messages, &dir.join(EXTENSIONS)] {
            disk.sync_dir(names).during("sync", names)?;
        }
        let dir = dir.to_owned();
        let metadata_is_dirty = false;
        let mut store = Self {
            disk,
            dir,
            metadata,
            metadata_is_dirty,
            inbox,
            turn,
            base,
            observed,
            llm,
            manifest,
            bounds: ObservationBounds::default(),
            delta: None,
            findings,
            rewind,
        };
        store.recover()?;
        Ok(store)
    }

    fn status(&self) -> InstanceStatus {
        if self.turn.open.is_some() && self.turn.commit.is_none() {
            InstanceStatus::Processing
        } else {
            InstanceStatus::Idle
        }
    }

    fn touch(&mut self, at: Timestamp) {
        self.metadata.updated_at = at;
        self.metadata.status = self.status();
        self.metadata_is_dirty = true;
    }

    /// Returns the pending work.
    #[must_use]
    pub fn state(&self) -> InstanceState {
        InstanceState {
            agent: self.metadata.agent_name.clone(),
            open_turn: self.turn.open.clone(),
            approvals: self.approvals().to_vec(),
            waiting: self.inbox.waiting().cloned().collect(),
            paused: self.inbox.paused(),
            attempts: self.inbox.attempts(),
            parked: self.inbox.parked().collect(),
            awaiting: self.inbox.awaiting().cloned().collect(),
            findings: self.findings.clone(),
            unacknowledged: self.unacknowledged().to_vec(),
            rewind: self.rewind.clone(),
        }
    }

    /// Returns the current metadata, which may not be written yet.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// True if no turn is open and the journal is empty.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.turn.open.is_none() && self.turn.folded() == 0
    }

    /// True if the journal holds folded turns and no turn is open.
    pub(crate) fn is_clear_due(&self) -> bool {
        self.turn.open.is_none() && self.turn.folded() > 0
    }

    /// Returns the number of waiting events.
    #[must_use]
    pub fn waiting_count(&self) -> usize {
        self.inbox.waiting_count()
    }

    /// Stages an event. An event with a known id is ignored (`MSG-13`).
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn accept(&mut self, event: AgentEvent) -> Result<EventState, StoreError> {
        let state = self.event_state(&event.id)?;
        if state == EventState::Unknown {
            let at = event.created_at;
            self.inbox.accept(event)?;
            self.touch(at);
        }
        Ok(state)
    }

    /// Stages a join: `event` is the last part with the texts of all, and the other parts are
    /// finished. Idempotent.
    ///
    /// # Errors
    ///
    /// [`StoreError::WrongEvent`] if a part is not waiting as a part, which changes nothing;
    /// [`FileError::Io`].
    pub fn join_events(&mut self, event: AgentEvent, at: Timestamp) -> Result<(), StoreError> {
        self.inbox.join(event, at)?;
        self.touch(at);
        Ok(())
    }

    /// Returns the connections of all events in the inbox, including finished events until they are
    /// dropped.
    #[must_use]
    pub fn sources(&self) -> &BTreeSet<ConnectionName> {
        self.inbox.sources()
    }

    /// Returns the state of an event. The event of a committed turn is done even before the fold,
    /// so that a client never sees it waiting after its end was reported.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn event_state(&mut self, event_id: &EventId) -> Result<EventState, StoreError> {
        match &self.turn.commit {
            Some(commit) if commit.ends(event_id) => Ok(EventState::Done(commit.outcome.clone())),
            Some(_) | None => self.inbox.state_of(event_id),
        }
    }

    /// Returns a stored event, or without an id the latest ones, latest first.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn events(&mut self, event_id: Option<&EventId>) -> Result<Vec<AgentEvent>, StoreError> {
        self.inbox.events(event_id)
    }

    /// Stages the begin of a turn, or of another attempt at the open turn, which keeps its id.
    ///
    /// # Errors
    ///
    /// [`StoreError::WrongEvent`] if the event is not waiting or the open turn answers another
    /// event.
    pub fn begin_turn(
        &mut self,
        turn_id: TurnId,
        event_id: &EventId,
        at: Timestamp,
    ) -> Result<OpenTurn, StoreError> {
        self.begin_turn_under(turn_id, event_id, None, at)
    }

    /// As [`Self::begin_turn`], with the digest of the turn's configuration.
    ///
    /// # Errors
    ///
    /// As [`Self::begin_turn`].
    pub fn begin_turn_under(
        &mut self,
        turn_id: TurnId,
        event_id: &EventId,
        config_digest: Option<&str>,
        at: Timestamp,
    ) -> Result<OpenTurn, StoreError> {
        let wrong = || StoreError::WrongEvent {
            event_id: event_id.clone(),
        };
        self.rewinds_not()?;
        if self.turn.is_long() && self.turn.open.is_none() {
            self.clear_journal()?;
        }
        let inbox_seq = self.inbox.seq_of_waiting(event_id).ok_or_else(wrong)?;
        if self.inbox.is_paused(event_id) {
            let event_id = event_id.clone();
            return Err(StoreError::EventPaused { event_id });
        }
        if self.inbox.is_part(event_id) {
            return Err(wrong());
        }
        let event = TurnEvent {
            event_id: event_id.clone(),
            inbox_seq,
        };
        if let Some(open) = &self.turn.open
            && open.event.as_ref() != Some(&event)
        {
            return Err(wrong());
        }
        let open = self.turn.begin(turn_id, event, config_digest, at)?;
        self.touch(at);
        Ok(open)
    }

    /// Stages a message event of the open turn.
    ///
    /// # Errors
    ///
    /// [`StoreError::WrongTurn`], [`StoreError::OutOfOrder`], [`StoreError::InvalidEvent`] or
    /// [`StoreError::TooLarge`], which change nothing; [`FileError::Io`].
    pub fn append_event(
        &mut self,
        turn_id: &TurnId,
        seq: u64,
        event: &RawValue,
    ) -> Result<(), StoreError> {
        self.turn.append(turn_id, seq, event)
    }

    /// Stages the commit of the open turn. After [`Self::sync`] the turn is committed, and the
    /// caller must call [`Self::finish_turn`].
    ///
    /// # Errors
    ///
    /// [`StoreError::WrongTurn`] or [`StoreError::OutOfOrder`], which change nothing;
    /// [`FileError::Io`].
    pub fn complete_turn(
        &mut self,
        turn_id: &TurnId,
        last_seq: u64,
        outcome: TurnOutcome,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        self.complete_turn_with(turn_id, last_seq, CommitExtras::default(), outcome, at)
    }

    /// As [`Self::complete_turn`], for a turn with more than messages. Events of [`CommitExtras::also`]
    /// that are not waiting are ignored.
    ///
    /// # Errors
    ///
    /// As [`Self::complete_turn`]; [`StoreError::TooLarge`] for a state beyond
    /// [`goondan_protocol::limits::MAX_EXTENSION_STATE_BYTES`].
    pub fn complete_turn_with(
        &mut self,
        turn_id: &TurnId,
        last_seq: u64,
        brought: CommitExtras,
        outcome: TurnOutcome,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        self.turn.check_complete(turn_id, last_seq)?;
        check_states(&brought.states)?;
        let mut also = self.taken_in(&brought.also);
        // The conversation lists the parts of a joined input as answered, too.
        let own = self.open_event().cloned();
        also.extend(own.map_or_else(Vec::new, |own| self.inbox.parts_of(&own)));
        // The agent warned of missing targets when it created the events.
        let _missing = self.stage_commit(turn_id, last_seq, (also, brought.states), outcome, at)?;
        self.touch(at);
        Ok(())
    }

    fn stage_commit(
        &mut self,
        turn_id: &TurnId,
        last_seq: u64,
        (also, states): (Vec<TurnEvent>, ExtensionStates),
        outcome: TurnOutcome,
        at: Timestamp,
    ) -> Result<Vec<MissingTarget>, StoreError> {
        let events = self.turn.events()?;
        let mut missing = Vec::new();
        let event = self.turn.open.as_ref().and_then(|open| open.event.clone());
        let fold = if self.turn.has_only_appends {
            let delta = fold::delta_of(&events);
            let mode = FoldMode::Delta {
                base_bytes: self.base.len(),
                sums_bytes: Some(self.base.sums_len()),
                bytes: Some(delta.len() as u64),
                crc32: Some(crc32(&delta)),
            };
            self.delta = Some(delta);
            mode
        } else {
            // No earlier fold may be left to redo on a base that the rewrite has changed.
            self.clear_journal()?;
            // The new base is prepared before the commit, so that only renames are left after it.
            let answers = AnswerRef::of_turn(turn_id, event.as_ref(), &also);
            let disk = self.disk.as_ref();
            let (mode, targets) = fold::prepare(disk, &mut self.base, events, &answers)?;
            missing = targets;
            self.manifest.release(disk, BASE)?;
            self.base.release();
            mode
        };
        let turn_id = turn_id.clone();
        self.turn.commit(CommitRecord {
            turn_id,
            event,
            also,
            last_seq,
            at,
            outcome,
            fold,
            states,
        })?;
        Ok(missing)
    }

    /// Returns the turn in progress, also if its begin is not written yet.
    #[must_use]
    pub fn open_turn(&self) -> Option<&OpenTurn> {
        self.turn.open.as_ref()
    }

    /// Syncs all staged data, and brings runtime events and manifest up to date.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`]: no staged operation may be acknowledged, and the instance must be
    /// reopened.
    pub fn sync(&mut self) -> Result<(), StoreError> {
        self.sync_records()?;
        self.write_out()
    }

    /// Syncs all staged data.
    ///
    /// # Errors
    ///
    /// As [`Self::sync`].
    pub fn sync_records(&mut self) -> Result<(), StoreError> {
        self.sync_inbox()?;
        self.turn.sync()
    }

    /// Writes all staged data and runtime events to their files, where readers can see them.
    ///
    /// # Errors
    ///
    /// As [`Self::sync`].
    pub fn write_out(&mut self) -> Result<(), StoreError> {
        self.inbox.write_out()?;
        self.turn.write_out()?;
        self.write_logs()?;
        self.note_files();
        Ok(())
    }

    /// Writes runtime events and messages of models to their files, where readers follow them.
    ///
    /// # Errors
    ///
    /// As [`Self::sync`].
    pub fn write_logs(&mut self) -> Result<(), StoreError> {
        let now = self.metadata.updated_at;
        self.observed.write_out(self.bounds, now)?;
        self.llm.write_out(self.bounds, now)
    }

    /// Syncs the staged data of the inbox only.
    ///
    /// # Errors
    ///
    /// As [`Self::sync`].
    pub fn sync_inbox(&mut self) -> Result<(), StoreError> {
        self.inbox.sync()
    }

    /// Folds a committed turn into the base and marks its events done. Both become durable with
    /// [`Self::clear_journal`]; until then the turn stays in the journal, and other turns may
    /// follow it there. Does nothing if no fold is due.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`] or [`FileError::Damaged`]: the turn stays committed, its events are kept,
    /// and opening the instance retries (`MSG-10`).
    pub fn fold_turn(&mut self) -> Result<(), StoreError> {
        let Some(commit) = self.turn.commit.clone() else {
            return Ok(());
        };
        match commit.fold {
            FoldMode::Delta { .. } => {
                let delta = match self.delta.take() {
                    Some(delta) => delta,
                    None => fold::delta_of(&self.turn.events()?),
                };
                let answers = AnswerRef::of_commit(&commit);
                self.base.append_delta(&delta, &answers)?;
                self.conclude(&commit)?;
                self.turn.retire();
            }
            FoldMode::Rewrite { bytes, .. } => {
                self.base.install(self.disk.as_ref())?;
                self.check_installed(bytes);
                self.conclude(&commit)?;
                self.turn.retire();
                self.clear_journal()?;
            }
        }
        self.touch(commit.at);
        Ok(())
    }

    /// Runs the steps after a fold. Idempotent.
    fn conclude(&mut self, commit: &CommitRecord) -> Result<(), StoreError> {
        // States are written before the event is marked done, because a state missing then would be
        // lost.
        for (name, state) in &commit.states {
            self.set_extension_state(name, state)?;
        }
        self.mark_events(commit)
    }

    /// Folds a committed turn. If no other turn is open, syncs the folds and clears the journal.
    ///
    /// # Errors
    ///
    /// As [`Self::fold_turn`].
    pub fn finish_turn(&mut self) -> Result<(), StoreError> {
        self.fold_turn()?;
        if self.is_clear_due() {
            self.clear_journal()?;
        }
        Ok(())
    }

    /// Syncs the folds and removes their turns from the journal; an open turn stays. Idempotent,
    /// also after a crash at any point. Durable when it returns.
    ///
    /// # Errors
    ///
    /// As [`Self::fold_turn`].
    pub fn clear_journal(&mut self) -> Result<(), StoreError> {
        if self.turn.folded() == 0 {
            return Ok(());
        }
        self.base.sync()?;
        // If turns left the journal before the `done` records of their events are durable, they
        // would run again.
        self.inbox.sync()?;
        let disk = self.disk.as_ref();
        self.turn.shed(disk)?;
        if self.inbox.is_long() {
            self.rewrite_inbox()?;
        }
        self.note_files();
        Ok(self.manifest.compact(self.disk.as_ref())?)
    }

    fn rewrite_inbox(&mut self) -> Result<(), StoreError> {
        let disk = self.disk.as_ref();
        self.manifest.release(disk, INBOX)?;
        self.inbox.rewrite(disk)
    }

    /// Appends one line to the runtime events (`MSG-12`). Not synced, because they are never an
    /// input of state.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn observe(&mut self, line: &[u8]) -> Result<(), StoreError> {
        self.observed.append(line)
    }

    /// Sets the limits of the runtime events kept.
    pub fn bound_observation(&mut self, bounds: ObservationBounds) {
        self.bounds = bounds;
    }

    /// Writes the metadata if it changed. Durable when it returns.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn flush_metadata(&mut self) -> Result<(), StoreError> {
        if self.metadata_is_dirty {
            let path = self.dir.join(Metadata::FILE);
            files::replace(self.disk.as_ref(), &path, &self.metadata.to_bytes()?)?;
            self.metadata_is_dirty = false;
        }
        Ok(())
    }

    /// True if [`Self::flush_metadata`] has something to write.
    #[must_use]
    pub fn metadata_is_dirty(&self) -> bool {
        self.metadata_is_dirty
    }

    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

const INBOX: &str = "inbox.jsonl";
const EVENTS: &str = "events.jsonl";
const OBSERVED: &str = "runtime-events.jsonl";

#[cfg(test)]
mod tests;
