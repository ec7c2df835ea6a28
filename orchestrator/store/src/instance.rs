//! One instance on disk: its inbox, its turn journal, its conversation, its metadata.
//!
//! [`InstanceStore`] is synchronous and owned by one writer thread. Its changing methods *stage*: they
//! write, and what they wrote is durable after [`InstanceStore::sync`]. So a writer can stage many
//! operations and sync once.
//!
//! # Life of a turn
//!
//! `accept` → `begin_turn` → `append_event` … → `complete_turn` → `sync` (the commit point) →
//! `fold_turn` (base, inbox), and after some turns or a while `clear_journal` (both durable, journal
//! cleared). After a crash at any point [`InstanceStore::open`] finds the state again and finishes what
//! the commit records promise. A turn that crashes whoever works on it ends by `park` instead: its
//! event and its journal are put aside, and the conversation goes on. One that a person cancels is committed
//! as it stands, by `cancel`.
//!
//! # Invariants
//!
//! * `base.jsonl` changes only under a durable commit record, and every change can be done again.
//! * A turn leaves `events.jsonl` only when the base that holds it and the inbox records `done` of its
//!   events are durable. What is cleared is durably cleared before anything follows.
//! * A turn that rewrites the base is alone in `events.jsonl` from its commit on.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use goondan_durable::checksum::crc32;
use goondan_durable::disk::Disk;
use goondan_durable::manifest::Manifest;
use goondan_durable::{FileError, Finding, IoContext as _, Verified, files};
use goondan_protocol::conversation::MissingTarget;
use goondan_protocol::event::{AgentEvent, TurnOutcome};
use goondan_protocol::ids::{
    AgentName, ConnectionName, EventId, ExtensionStates, InstanceKey, TurnId,
};
use goondan_protocol::time::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::error::StoreError;
use crate::naming::instance_dir_name;

mod answer;
mod answers;
mod approvals;
mod archive;
mod arranging;
mod awaiting;
mod base;
mod base_checksums;
mod bundle_files;
mod cancelling;
mod check;
mod checksum_diff;
mod claims;
mod export;
mod extension;
mod fold;
mod folder;
mod import;
mod inbox;
mod known;
mod llm;
mod metadata;
mod observed;
mod page;
mod parking;
mod raw;
mod recent;
mod recovery;
mod redo;
mod repair;
mod rewinding;
mod segments;
mod traced;
mod turn;

pub use approvals::{Approval, ApprovalMark, AskedCall, DecidedCall};
pub use arranging::{Arranged, Arrangement};
pub use cancelling::Cancelled;
pub(crate) use check::{HISTORY_ADVICE, check_history, check_json, check_ledger, check_log, odd};
pub use folder::{delete, has_work, sweep, work_dir};
pub use import::import;
pub use inbox::{Awaited, EventState, ParkedEvent};
pub use llm::LlmMessage;
pub use metadata::{InstanceStatus, Metadata};
pub use observed::{ObservedPage, observed};
pub use page::Page;
pub use recent::{Recent, recent};
pub use repair::repair;
pub use rewinding::{Pins, RewindNote};
pub use traced::{Traced, Wanted as WantedTrace, traced};
pub use turn::{OpenTurn, TurnEvent};

use answer::Answer;
use base::{BASE, Base};
use claims::KnownFiles;
use extension::check_states;
use goondan_protocol::observe::ObservationBounds;
use inbox::Inbox;
use llm::LLM;
use segments::SegmentedLog;
use turn::{CommitRecord, FoldMode, TurnLog};

/// Name of the folder of an instance's messages.
const MESSAGES: &str = "messages";
/// Name of the folder an instance's tools work in.
const WORK: &str = "work";
/// Name of the folder of an instance's extension state.
const EXTENSIONS: &str = "extensions";

/// What an instance has to do.
#[derive(Debug, Clone, PartialEq)]
pub struct InstanceState {
    /// The agent it belongs to.
    pub agent: AgentName,
    /// The turn that was in progress, if one was.
    pub open_turn: Option<OpenTurn>,
    /// Tool calls of that turn that a person was asked about.
    pub approvals: Vec<Approval>,
    /// Events that wait, in the order of their turns; the open turn's event among them.
    pub waiting: Vec<AgentEvent>,
    /// Those of them that a person has wait until they are resumed.
    pub paused: BTreeSet<EventId>,
    /// Crashes of the turns of waiting events, where there were any.
    pub attempts: BTreeMap<EventId, u32>,
    /// Events that were taken out of the way, oldest first.
    pub parked: Vec<ParkedEvent>,
    /// Questions of its agent whose answers are to come as events.
    pub awaiting: Vec<Awaited>,
    /// What was found wrong when it was opened.
    pub findings: Vec<Finding>,
    /// What was found to be lost, now or before, and nobody acknowledged.
    pub unacknowledged: Vec<Finding>,
    /// The rewind that has begun and is to be finished before a turn begins.
    pub rewind: Option<RewindNote>,
}

/// Looks at every file of the instance in `dir`.
pub(crate) fn check(disk: &dyn Disk, dir: &Path, out: &mut Verified) -> Result<(), StoreError> {
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

/// What a turn brings to its commit besides its messages.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Brought {
    /// Other waiting events that it took in on the way: they are over with it.
    pub also: Vec<EventId>,
    /// What extensions remember from then on, of those that changed it.
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
    /// What was last known of the files.
    manifest: Manifest<KnownFiles>,
    /// The messages of the committed turn as lines, until they are in the base.
    delta: Option<Vec<u8>>,
    findings: Vec<Finding>,
    /// The rewind that has begun: no turn begins before it is finished.
    rewind: Option<RewindNote>,
}

impl InstanceStore {
    /// Makes a new instance in `instances`, whole or not at all, and opens it. Durable when it
    /// returns.
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

    /// Opens an instance, finishing what a crash cut short.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`]; [`FileError::Damaged`] if its metadata cannot be read, or if a committed
    /// turn cannot be folded because its journal or base is damaged.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path) -> Result<Self, StoreError> {
        let metadata = Metadata::read(disk.as_ref(), dir)?;
        let messages = dir.join(MESSAGES);
        for made in [&messages, &dir.join(EXTENSIONS), &dir.join(WORK)] {
            files::ensure_dir(disk.as_ref(), dir, made)?;
        }
        let rewind = rewinding::read_note(disk.as_ref(), dir)?;
        let mut findings = Vec::new();
        let manifest = known::open(disk.as_ref(), dir)?;
        let inbox = Inbox::open(disk.as_ref(), &messages.join(INBOX), &mut findings)?;
        let turn = TurnLog::open(disk.as_ref(), &messages.join(EVENTS), &mut findings)?;
        let base = Base::open(disk.as_ref(), &messages, &mut findings)?;
        let observed = SegmentedLog::open(Arc::clone(&disk), &messages, OBSERVED)?;
        let llm = SegmentedLog::open(Arc::clone(&disk), &messages, LLM)?;
        // Names that a killed process made may be seen without being durable; and files that were
        // missing have just been made.
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

    /// What it has to do.
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

    /// Its metadata, as last written or about to be.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Whether no turn is open, and none is left in the journal.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.turn.open.is_none() && self.turn.folded() == 0
    }

    /// Whether turns are part of the base that are to leave the journal, and no other is open.
    pub(crate) fn is_clear_due(&self) -> bool {
        self.turn.open.is_none() && self.turn.folded() > 0
    }

    /// How many events wait.
    #[must_use]
    pub fn waiting_count(&self) -> usize {
        self.inbox.waiting_count()
    }

    /// Stages an event. One whose id is known is left alone (`MSG-13`).
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

    /// By which connections the events came that the inbox holds, those that are over too, as long as
    /// they have not been dropped from it.
    #[must_use]
    pub fn sources(&self) -> &BTreeSet<ConnectionName> {
        self.inbox.sources()
    }

    /// What is known of an event. One whose turn is committed is over, whether it is folded or not:
    /// who asked is not told that it waits after its end was reported.
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

    /// Stages the beginning of a turn, or of another attempt at the one that is open; the open turn
    /// keeps its id.
    ///
    /// # Errors
    ///
    /// [`StoreError::WrongEvent`] if the event does not wait or the open turn answers another.
    pub fn begin_turn(
        &mut self,
        turn_id: TurnId,
        event_id: &EventId,
        at: Timestamp,
    ) -> Result<OpenTurn, StoreError> {
        self.begin_turn_under(turn_id, event_id, None, at)
    }

    /// Stages the begin of a turn, with the digest of the configuration it runs under.
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

    /// Stages the commit of the open turn. After [`Self::sync`] it is committed, and
    /// [`Self::finish_turn`] is due.
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
        self.complete_turn_with(turn_id, last_seq, Brought::default(), outcome, at)
    }

    /// The same for a turn that brings more than its messages. An event of [`Brought::also`] that
    /// does not wait is left alone.
    ///
    /// # Errors
    ///
    /// As [`Self::complete_turn`]; [`StoreError::TooLarge`] for a state beyond
    /// [`goondan_protocol::limits::MAX_EXTENSION_STATE_BYTES`].
    pub fn complete_turn_with(
        &mut self,
        turn_id: &TurnId,
        last_seq: u64,
        brought: Brought,
        outcome: TurnOutcome,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        self.turn.check_complete(turn_id, last_seq)?;
        check_states(&brought.states)?;
        let also = self.taken_in(&brought.also);
        // The agent has warned of missing targets when it made the events.
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
            // Nothing before it would be left to be done again on a base that it has changed.
            self.clear_journal()?;
            // The new base is prepared before the commit, so that after it only renames are left.
            let answers = Answer::of_turn(turn_id, event.as_ref(), &also);
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

    /// Makes everything staged so far durable, and puts what is observed into its files.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`]: nothing staged may be acknowledged, and the instance must be opened anew.
    pub fn sync(&mut self) -> Result<(), StoreError> {
        self.sync_inbox()?;
        self.turn.sync()?;
        self.write_out()
    }

    /// Puts everything staged and observed so far into its files, where others may read it.
    ///
    /// # Errors
    ///
    /// As [`Self::sync`].
    pub fn write_out(&mut self) -> Result<(), StoreError> {
        self.inbox.write_out()?;
        self.turn.write_out()?;
        let now = self.metadata.updated_at;
        self.observed.write_out(self.bounds, now)?;
        self.llm.write_out(self.bounds, now)?;
        self.note_files();
        Ok(())
    }

    /// Makes durable what is staged of the inbox alone: the events that wait.
    ///
    /// # Errors
    ///
    /// As [`Self::sync`].
    pub fn sync_inbox(&mut self) -> Result<(), StoreError> {
        self.inbox.sync()
    }

    /// Makes a committed turn part of the base and marks its events done; neither is durable before
    /// [`Self::clear_journal`], and until then the turn stays in the journal, which other turns may follow
    /// it into. Does nothing if no fold is due.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`] or [`FileError::Damaged`]: the turn stays committed, its events are kept,
    /// and opening the instance tries again (`MSG-10`).
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
                let answers = Answer::of_commit(&commit);
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

    /// What follows a fold. Can be done again.
    fn conclude(&mut self, commit: &CommitRecord) -> Result<(), StoreError> {
        // Before the event is done: a state that is missing then would be missing for ever.
        for (name, state) in &commit.states {
            self.set_extension_state(name, state)?;
        }
        self.mark_events(commit)
    }

    /// Folds a committed turn, and if no other is open makes the folds durable and clears the journal.
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

    /// Makes the folds durable and takes their turns out of the journal; an open turn stays in it. Can be
    /// done again after a crash at any point. Durable when it returns.
    ///
    /// # Errors
    ///
    /// As [`Self::fold_turn`].
    pub fn clear_journal(&mut self) -> Result<(), StoreError> {
        if self.turn.folded() == 0 {
            return Ok(());
        }
        self.base.sync()?;
        // Turns that left the journal before their events are known to be done would begin anew.
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

    /// Appends one line to the runtime events (`MSG-12`). Not synced: they are never an input of
    /// state.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn observe(&mut self, line: &[u8]) -> Result<(), StoreError> {
        self.observed.append(line)
    }

    /// How much of what is observed is kept from now on.
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

    /// Whether [`Self::flush_metadata`] has something to write.
    #[must_use]
    pub fn metadata_is_dirty(&self) -> bool {
        self.metadata_is_dirty
    }

    /// Its directory.
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
