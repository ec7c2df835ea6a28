//! One instance on disk: its inbox, its turn journal, its conversation, its metadata.
//!
//! [`InstanceStore`] is synchronous and owned by one writer thread. Its changing methods *stage*: they
//! write, and what they wrote is durable after [`InstanceStore::sync`]. So a writer can stage many
//! operations and sync once.
//!
//! # Life of a turn
//!
//! `accept` → `begin_turn` → `append_event` … → `complete_turn` → `sync` (the commit point) →
//! `finish_turn` (fold, inbox, clear). After a crash at any point [`InstanceStore::open`] finds the
//! state again and finishes what a commit record promises.
//!
//! # Invariants
//!
//! * `base.jsonl` changes only under a durable commit record, and every change can be done again.
//! * `events.jsonl` holds at most one turn.
//! * An inbox record `done` is durable before `events.jsonl` is cleared; a journal whose event is done
//!   is stale and is cleared.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use goondan_protocol::event::{AgentEvent, TurnOutcome};
use goondan_protocol::ids::{AgentName, EventId, InstanceKey, TurnId};
use goondan_protocol::time::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::disk::{Disk, EntryKind};
use crate::durable;
use crate::error::{IoContext as _, StoreError};
use crate::jsonl::{Journal, TornTail};
use crate::limits::READ_CHUNK_BYTES;
use crate::naming::instance_dir_name;

mod extension;
mod fold;
mod inbox;
mod metadata;
mod page;
mod turn;

pub use inbox::EventState;
pub use metadata::{InstanceStatus, Metadata};
pub use page::Page;
pub use turn::{OpenTurn, TurnEvent};

use fold::BASE_NEXT;
use inbox::Inbox;
use turn::{CommitRecord, FoldMode, TurnLog};

/// Name of the folder of an instance's messages.
const MESSAGES: &str = "messages";
/// Name of the folder an instance's tools work in.
const WORK: &str = "work";
/// Name of the folder of an instance's extension state.
const EXTENSIONS: &str = "extensions";

/// Something that was found wrong with a file and dealt with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The file.
    pub path: PathBuf,
    /// What was found and what was done about it.
    pub problem: String,
}

impl Finding {
    fn damaged(path: &Path, line: u64, problem: &str) -> Self {
        Self {
            path: path.to_owned(),
            problem: format!("line {line} is damaged: {problem}"),
        }
    }

    fn torn(path: &Path, torn: &TornTail) -> Self {
        let TornTail {
            offset,
            bytes,
            kept_in,
        } = torn;
        let problem = format!(
            "{bytes} bytes from byte {offset} on were cut short by a crash; they are kept in `{}`",
            kept_in.display()
        );
        Self {
            path: path.to_owned(),
            problem,
        }
    }
}

/// What an instance has to do.
#[derive(Debug, Clone, PartialEq)]
pub struct InstanceState {
    /// The agent it belongs to.
    pub agent: AgentName,
    /// The turn that was in progress, if one was.
    pub open_turn: Option<OpenTurn>,
    /// Events that wait, oldest first; the open turn's event among them.
    pub waiting: Vec<AgentEvent>,
    /// What was found wrong when it was opened.
    pub findings: Vec<Finding>,
}

/// Writes a record as one line.
fn json_line(record: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    let mut line = serde_json::to_vec(record).map_err(|error| StoreError::InvalidEvent {
        problem: error.to_string(),
    })?;
    line.push(b'\n');
    Ok(line)
}

/// Reads the line that begins at `offset`, without its newline, and where the next begins.
fn read_line_at(journal: &mut Journal, offset: u64) -> Result<(Vec<u8>, u64), StoreError> {
    let mut line = Vec::new();
    loop {
        let chunk = journal.read(offset + line.len() as u64, READ_CHUNK_BYTES)?;
        if chunk.is_empty() {
            let next = offset + line.len() as u64;
            return Ok((line, next));
        }
        match chunk.iter().position(|byte| *byte == b'\n') {
            Some(at) => {
                line.extend(chunk.into_iter().take(at));
                let next = offset + line.len() as u64 + 1;
                return Ok((line, next));
            }
            None => line.extend(chunk),
        }
    }
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
    base: Journal,
    observed: Journal,
    findings: Vec<Finding>,
}

impl InstanceStore {
    /// Makes a new instance in `instances`, whole or not at all, and opens it. Durable when it
    /// returns.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`].
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
        disk.remove_tree(&staging).during("remove", &staging)?;
        let messages = staging.join(MESSAGES);
        for made in [
            &staging,
            &messages,
            &staging.join(EXTENSIONS),
            &staging.join(WORK),
        ] {
            disk.create_dir(made).during("create", made)?;
        }
        let metadata = Metadata::new(agent.clone(), key.clone(), at);
        let path = staging.join(Metadata::FILE);
        durable::write_synced(disk.as_ref(), &path, &metadata.to_bytes()?)?;
        for name in [INBOX, EVENTS, BASE, OBSERVED] {
            durable::write_synced(disk.as_ref(), &messages.join(name), b"")?;
        }
        disk.sync_dir(&messages).during("sync", &messages)?;
        disk.sync_dir(&staging).during("sync", &staging)?;
        durable::install(disk.as_ref(), &staging, &dir)?;
        Self::open(disk, &dir)
    }

    /// Opens an instance, finishing what a crash cut short.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`]; [`StoreError::Damaged`] if its metadata cannot be read, or if a committed
    /// turn cannot be folded because its journal or base is damaged.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path) -> Result<Self, StoreError> {
        let metadata = Metadata::read(disk.as_ref(), dir)?;
        let messages = dir.join(MESSAGES);
        for made in [&messages, &dir.join(EXTENSIONS), &dir.join(WORK)] {
            durable::ensure_dir(disk.as_ref(), dir, made)?;
        }
        let mut findings = Vec::new();
        let inbox = Inbox::open(disk.as_ref(), &messages.join(INBOX), &mut findings)?;
        let turn = TurnLog::open(disk.as_ref(), &messages.join(EVENTS), &mut findings)?;
        let base = Journal::open(disk.as_ref(), &messages.join(BASE))?;
        let observed = Journal::open(disk.as_ref(), &messages.join(OBSERVED))?;
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
            findings,
        };
        store.recover()?;
        Ok(store)
    }

    /// Finishes what a crash cut short, from the files alone.
    fn recover(&mut self) -> Result<(), StoreError> {
        // What was read may never have been synced; it must not vanish under what follows.
        self.sync()?;
        self.base.sync()?;
        let done_already = self.turn.open.as_ref().and_then(|open| open.event.as_ref());
        if done_already.is_some_and(|event| self.inbox.is_done(event.inbox_seq)) {
            // The turn is part of the base; only clearing its journal was cut short.
            self.turn.clear()?;
            self.turn.sync()?;
        }
        if self.turn.commit.is_some() {
            self.finish_turn()?;
        } else {
            fold::discard_prepared(self.disk.as_ref(), &self.dir.join(MESSAGES))?;
            self.mend_base()?;
            self.adopt_foreign_turn()?;
        }
        self.mend_observed()?;
        let status = self.status();
        if self.metadata.status != status {
            self.metadata.status = status;
            self.metadata_is_dirty = true;
        }
        Ok(())
    }

    /// A base that does not end in a newline was not left so by this store, whose commits say how
    /// long it is; another implementation or damage did it.
    fn mend_base(&mut self) -> Result<(), StoreError> {
        let len = self.base.len();
        if len == 0 || self.base.read(len - 1, 1)? == b"\n" {
            return Ok(());
        }
        let good = self.base.scan(|_, _| {})?;
        if let Some(torn) = self.base.mend_tail(self.disk.as_ref(), good)? {
            self.findings.push(Finding::torn(self.base.path(), &torn));
        }
        Ok(())
    }

    /// Runtime events are not synced one by one, so a torn end is ordinary and is just cut.
    fn mend_observed(&mut self) -> Result<(), StoreError> {
        let len = self.observed.len();
        if len > 0 && self.observed.read(len - 1, 1)? != b"\n" {
            let good = self.observed.scan(|_, _| {})?;
            self.observed.cut(good)?;
        }
        Ok(())
    }

    /// A turn without an input event was left by another implementation. Nobody can resume it: what
    /// it recorded becomes part of the base (`MSG-8`).
    fn adopt_foreign_turn(&mut self) -> Result<(), StoreError> {
        let Some(open) = self.turn.open.clone().filter(|open| open.event.is_none()) else {
            return Ok(());
        };
        let outcome = TurnOutcome::Failed {
            code: "E_FOREIGN_TURN".to_owned(),
            message: "a turn of another implementation was folded as it stood".to_owned(),
        };
        let at = self.metadata.updated_at;
        self.stage_commit(&open.turn_id, open.last_seq, outcome, at)?;
        self.sync()?;
        self.finish_turn()?;
        Ok(())
    }

    fn status(&self) -> InstanceStatus {
        if self.turn.open.is_some() {
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
            waiting: self.inbox.waiting().cloned().collect(),
            findings: self.findings.clone(),
        }
    }

    /// Its metadata, as last written or about to be.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
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
    /// [`StoreError::Io`].
    pub fn accept(&mut self, event: AgentEvent) -> Result<EventState, StoreError> {
        let state = self.inbox.state_of(&event.id)?;
        if state == EventState::Unknown {
            let at = event.created_at;
            self.inbox.accept(event)?;
            self.touch(at);
        }
        Ok(state)
    }

    /// What is known of an event.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`].
    pub fn event_state(&mut self, event_id: &EventId) -> Result<EventState, StoreError> {
        self.inbox.state_of(event_id)
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
        let wrong = || StoreError::WrongEvent {
            event_id: event_id.clone(),
        };
        let inbox_seq = self.inbox.seq_of_waiting(event_id).ok_or_else(wrong)?;
        let event = TurnEvent {
            event_id: event_id.clone(),
            inbox_seq,
        };
        if let Some(open) = &self.turn.open
            && open.event.as_ref() != Some(&event)
        {
            return Err(wrong());
        }
        let open = self.turn.begin(turn_id, event, at)?;
        self.touch(at);
        Ok(open)
    }

    /// Stages a message event of the open turn.
    ///
    /// # Errors
    ///
    /// [`StoreError::WrongTurn`], [`StoreError::OutOfOrder`], [`StoreError::InvalidEvent`] or
    /// [`StoreError::TooLarge`], which change nothing; [`StoreError::Io`].
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
    /// [`StoreError::Io`].
    pub fn complete_turn(
        &mut self,
        turn_id: &TurnId,
        last_seq: u64,
        outcome: TurnOutcome,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        self.turn.check_complete(turn_id, last_seq)?;
        self.stage_commit(turn_id, last_seq, outcome, at)?;
        self.touch(at);
        Ok(())
    }

    fn stage_commit(
        &mut self,
        turn_id: &TurnId,
        last_seq: u64,
        outcome: TurnOutcome,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let fold = if self.turn.has_only_appends {
            FoldMode::Delta {
                base_bytes: self.base.len(),
            }
        } else {
            // The new base is prepared before the commit, so that after it only a rename is left.
            let events = self.turn.events()?;
            fold::prepare(self.disk.as_ref(), &mut self.base, events)?;
            FoldMode::Rewrite
        };
        let event = self.turn.open.as_ref().and_then(|open| open.event.clone());
        let turn_id = turn_id.clone();
        self.turn.commit(CommitRecord {
            turn_id,
            event,
            last_seq,
            at,
            outcome,
            fold,
        })
    }

    /// Makes everything staged so far durable.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`]: nothing staged may be acknowledged, and the instance must be opened anew.
    pub fn sync(&mut self) -> Result<(), StoreError> {
        self.inbox.sync()?;
        self.turn.sync()
    }

    /// Makes a committed turn part of the base, marks its event done and clears the journal. Can be
    /// done again after a crash at any point. Does nothing if no commit is due.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`] or [`StoreError::Damaged`]: the turn stays committed, its events are kept,
    /// and opening the instance tries again (`MSG-10`).
    pub fn finish_turn(&mut self) -> Result<(), StoreError> {
        let Some(commit) = self.turn.commit.clone() else {
            return Ok(());
        };
        let messages = self.dir.join(MESSAGES);
        match commit.fold {
            FoldMode::Delta { base_bytes } => {
                let events = self.turn.events()?;
                fold::append_delta(&mut self.base, base_bytes, &events)?;
            }
            FoldMode::Rewrite => {
                fold::install_prepared(self.disk.as_ref(), &messages)?;
                self.base = Journal::open(self.disk.as_ref(), &messages.join(BASE))?;
            }
        }
        if let Some(event) = &commit.event {
            let (turn, outcome) = (&commit.turn_id, &commit.outcome);
            self.inbox
                .finish(event.inbox_seq, turn, commit.at, outcome)?;
            self.inbox.sync()?;
        }
        self.turn.clear()?;
        self.touch(commit.at);
        self.inbox.compact(self.disk.as_ref())
    }

    /// Appends one line to the runtime events (`MSG-12`). Not synced: they are never an input of
    /// state.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`].
    pub fn observe(&mut self, line: &[u8]) -> Result<(), StoreError> {
        self.observed.append(line)
    }

    /// Writes the metadata if it changed. Durable when it returns.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`].
    pub fn flush_metadata(&mut self) -> Result<(), StoreError> {
        if self.metadata_is_dirty {
            let path = self.dir.join(Metadata::FILE);
            durable::replace(self.disk.as_ref(), &path, &self.metadata.to_bytes()?)?;
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

/// Where the tools of an instance work, below its directory.
#[must_use]
pub fn work_dir(instance_dir: &Path) -> PathBuf {
    instance_dir.join(WORK)
}

/// Removes an instance and all it holds (`INST-5`): first its name, durably, then its content. What
/// a crash leaves over is swept when the workspace is opened ([`sweep`]). Returns whether it existed.
///
/// # Errors
///
/// [`StoreError::Io`].
pub fn delete(disk: &dyn Disk, dir: &Path, trash_name: &str) -> Result<bool, StoreError> {
    let Some(stat) = disk.stat(dir).during("look at", dir)? else {
        return Ok(false);
    };
    let instances = dir.parent().unwrap_or(Path::new("/"));
    let trash = instances.join(trash_name);
    disk.rename(dir, &trash).during("remove", dir)?;
    disk.sync_dir(instances).during("sync", instances)?;
    if stat.kind == EntryKind::Directory {
        disk.remove_tree(&trash).during("remove", &trash)?;
    } else {
        // A link or file that somebody put there: the thing itself goes, never what it points to.
        disk.remove_file(&trash).during("remove", &trash)?;
    }
    Ok(true)
}

/// Whether an instance has something to do: an event that waits, or a journal that is not empty.
/// Changes nothing, and reads no more than it must.
///
/// # Errors
///
/// [`StoreError::Io`].
pub fn has_work(disk: &dyn Disk, dir: &Path) -> Result<bool, StoreError> {
    let len = |name: &str| -> Result<u64, StoreError> {
        let path = dir.join(MESSAGES).join(name);
        Ok(disk
            .stat(&path)
            .during("look at", &path)?
            .map_or(0, |stat| stat.len))
    };
    if len(EVENTS)? > 0 {
        return Ok(true);
    }
    if len(INBOX)? == 0 {
        return Ok(false);
    }
    inbox::has_waiting(disk, &dir.join(MESSAGES).join(INBOX))
}

/// Removes what crashes left over in `instances`: half-made and half-removed instances. Their names
/// begin with a dot, which no instance's does.
///
/// # Errors
///
/// [`StoreError::Io`].
pub fn sweep(disk: &dyn Disk, instances: &Path) -> Result<(), StoreError> {
    for entry in disk.list(instances).during("list", instances)? {
        if entry.name.as_encoded_bytes().starts_with(b".") {
            let path = instances.join(&entry.name);
            match entry.kind {
                EntryKind::Directory => disk.remove_tree(&path).during("remove", &path)?,
                EntryKind::File | EntryKind::Other => {
                    disk.remove_file(&path).during("remove", &path)?;
                }
            }
        }
    }
    Ok(())
}

const INBOX: &str = "inbox.jsonl";
const EVENTS: &str = "events.jsonl";
const BASE: &str = "base.jsonl";
const OBSERVED: &str = "runtime-events.jsonl";

const _: () = assert!(BASE_NEXT.len() > BASE.len());

#[cfg(test)]
mod tests;
