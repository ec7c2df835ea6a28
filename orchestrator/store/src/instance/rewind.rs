//! The conversation's part of joint checkpoints and rewinds (`CKPT-6`).
//!
//! The store does not own the files of the work directory. So a rewind has three idempotent steps.
//! A durable note records its begin and target ([`InstanceStore::begin_rewind`]). Then the owner of
//! the files rewinds them. Then the conversation follows ([`InstanceStore::finish_rewind`]), and
//! the note is removed. While the note exists no turn begins, and opening the instance resumes the
//! rewind, so both parts end up unchanged or at the checkpoint. A rewind with files that cannot be
//! restored is abandoned before the conversation changes ([`InstanceStore::abandon_rewind`]).
//!
//! The new base lists every answer that the old one listed, and the inbox does not change: an
//! answered event is never answered again, and a waiting event keeps waiting.

use std::path::{Path, PathBuf};

use goondan_durable::disk::{Disk, EntryKind, read_all};
use goondan_durable::{FileError, IoContext as _, files};
use goondan_protocol::control::{PinnedConversation, RewindRecord};
use goondan_protocol::ids::{AgentName, InstanceKey};
use goondan_protocol::limits::MAX_EXTENSION_STATE_BYTES;
use goondan_protocol::time::Timestamp;
use goondan_protocol::usage::Charge;
use serde::{Deserialize, Serialize};

use super::base::{BASE, Base};
use super::{EXTENSIONS, InstanceStore, MESSAGES};
use crate::error::StoreError;
use crate::limits::{REWIND_NOTE_BYTES_MAX, REWINDS_REMEMBERED};

/// File name of the note in the instance's directory.
pub(super) const REWIND: &str = "rewind.json";

/// Note of a rewind in progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RewindNote {
    pub at: Timestamp,
    pub checkpoint_id: String,
    /// The checkpoint of the state before.
    pub pre_rewind: String,
    /// Number of messages before.
    pub messages_before: u64,
    /// True if the complete new base is written beside the old one, so that only renames are left.
    #[serde(default)]
    pub is_prepared: bool,
}

/// State of a conversation that a joint checkpoint pins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pins {
    pub instance_key: InstanceKey,
    pub agent: AgentName,
    pub messages: u64,
    /// Their size in bytes.
    pub base_bytes: u64,
    /// The number of the last event that was accepted.
    pub inbox_seq: u64,
    /// Number of extensions with a state.
    pub extensions: u64,
}

impl Pins {
    /// Returns the pinned state, completed with the spending and configuration known to the caller.
    /// The checkpoint adds the digest of the messages.
    #[must_use]
    pub fn with(self, spent: Charge, config_digest: Option<String>) -> PinnedConversation {
        PinnedConversation {
            instance_key: self.instance_key,
            agent_name: self.agent,
            messages: self.messages,
            base_bytes: self.base_bytes,
            base_sha256: String::new(),
            inbox_seq: self.inbox_seq,
            extensions: self.extensions,
            spent,
            config_digest,
        }
    }
}

/// Reads the rewind note of the instance in `dir`, if it exists.
pub(super) fn read_note(disk: &dyn Disk, dir: &Path) -> Result<Option<RewindNote>, StoreError> {
    let path = dir.join(REWIND);
    if disk.stat(&path).during("inspect", &path)?.is_none() {
        return Ok(None);
    }
    let mut file = disk.open_read(&path).during("open", &path)?;
    let text = read_all(file.as_mut(), REWIND_NOTE_BYTES_MAX).during("read", &path)?;
    let note = serde_json::from_slice(&text).map_err(|error| FileError::Damaged {
        line: u64::try_from(error.line()).unwrap_or(0),
        problem: format!("failed to read the note of a rewind in progress: {error}"),
        path,
    })?;
    Ok(Some(note))
}

/// Lists the extension state files in a folder. Empty if the folder does not exist.
fn states_in(disk: &dyn Disk, dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    if disk.stat(dir).during("inspect", dir)?.is_none() {
        return Ok(Vec::new());
    }
    let entries = disk.list(dir).during("list", dir)?.into_iter();
    let is_state = |name: &Path| name.extension().is_some_and(|ending| ending == "json");
    let states = entries.filter(|entry| entry.kind == EntryKind::File);
    let states = states.map(|entry| PathBuf::from(entry.name));
    Ok(states.filter(|name| is_state(name)).collect())
}

fn read_state(disk: &dyn Disk, path: &Path) -> Result<Vec<u8>, StoreError> {
    let mut file = disk.open_read(path).during("open", path)?;
    Ok(read_all(file.as_mut(), MAX_EXTENSION_STATE_BYTES).during("read", path)?)
}

impl InstanceStore {
    /// Returns the rewind in progress, if any.
    #[must_use]
    pub fn rewind(&self) -> Option<&RewindNote> {
        self.rewind.as_ref()
    }

    /// Folds everything into the base, and returns the state that a checkpoint pins. Durable when
    /// it returns.
    ///
    /// # Errors
    ///
    /// [`StoreError::InTurn`] if a turn is open; [`StoreError::Rewinding`] if a rewind is in
    /// progress, because the state may be half rewound; [`StoreError::File`].
    pub fn pin(&mut self) -> Result<Pins, StoreError> {
        self.rewinds_not()?;
        self.rest()?;
        let extensions = states_in(self.disk.as_ref(), &self.dir.join(EXTENSIONS))?;
        Ok(Pins {
            instance_key: self.metadata.instance_key.clone(),
            agent: self.metadata.agent_name.clone(),
            messages: self.base.count(),
            base_bytes: self.base.len(),
            inbox_seq: self.inbox.last_seq(),
            extensions: extensions.len() as u64,
        })
    }

    /// Fails if a rewind is in progress.
    pub(super) fn rewinds_not(&self) -> Result<(), StoreError> {
        match &self.rewind {
            Some(begun) => Err(StoreError::Rewinding {
                checkpoint_id: begun.checkpoint_id.clone(),
            }),
            None => Ok(()),
        }
    }

    /// Fails if a turn is open; otherwise folds everything into the base.
    fn rest(&mut self) -> Result<(), StoreError> {
        if let Some(open) = &self.turn.open {
            return Err(StoreError::InTurn {
                turn_id: open.turn_id.clone(),
                event_id: open.event.as_ref().map(|event| event.event_id.clone()),
            });
        }
        self.sync()?;
        self.clear_journal()
    }

    /// Records the begin of a rewind. No turn begins after that. Durable when it returns.
    ///
    /// # Errors
    ///
    /// [`StoreError::InTurn`] if a turn is open; [`StoreError::Rewinding`] if another is in
    /// progress; [`StoreError::File`].
    pub fn begin_rewind(&mut self, note: RewindNote) -> Result<(), StoreError> {
        self.rewinds_not()?;
        self.rest()?;
        let note = RewindNote {
            messages_before: self.base.count(),
            is_prepared: false,
            ..note
        };
        self.write_note(note)
    }

    fn write_note(&mut self, note: RewindNote) -> Result<(), StoreError> {
        let path = self.dir.join(REWIND);
        files::replace(self.disk.as_ref(), &path, &super::json_line(&note)?)?;
        self.rewind = Some(note);
        Ok(())
    }

    fn remove_note(&mut self) -> Result<(), StoreError> {
        let path = self.dir.join(REWIND);
        self.disk.remove_file(&path).during("remove", &path)?;
        self.disk.sync_dir(&self.dir).during("sync", &self.dir)?;
        self.rewind = None;
        Ok(())
    }

    /// Abandons a rewind whose files are unchanged. Durable when it returns. Idempotent.
    ///
    /// # Errors
    ///
    /// [`StoreError::Rewinding`] if the conversation may have changed, because the rewind must then
    /// finish; [`StoreError::File`].
    pub fn abandon_rewind(&mut self) -> Result<(), StoreError> {
        match &self.rewind {
            Some(note) if note.is_prepared => self.rewinds_not(),
            Some(_) => self.remove_note(),
            None => Ok(()),
        }
    }

    /// Replaces the messages and extension states with those in `unpacked`, and removes the note.
    /// The files must be rewound already. Durable when it returns. Does nothing without a note.
    ///
    /// # Errors
    ///
    /// [`StoreError::File`]; call it again then.
    pub fn finish_rewind(&mut self, unpacked: &Path) -> Result<Option<RewindRecord>, StoreError> {
        let Some(note) = self.rewind.clone() else {
            return Ok(None);
        };
        self.rest()?;
        let mut pinned = Base::open(
            self.disk.as_ref(),
            &unpacked.join(MESSAGES),
            &mut Vec::new(),
        )?;
        let lines = pinned.survey()?.lines;
        let content = pinned.read(0, usize::MAX)?;
        let disk = self.disk.clone();
        // The new base lists the answers of the old one too.
        self.base.prepare(disk.as_ref(), &content, &lines, &[])?;
        self.manifest.release(disk.as_ref(), BASE)?;
        self.base.release();
        self.write_note(RewindNote {
            is_prepared: true,
            ..note.clone()
        })?;
        self.base.install(disk.as_ref())?;
        self.base.sync()?;
        self.take_states_back(&unpacked.join(EXTENSIONS))?;
        let record = RewindRecord {
            at: note.at,
            checkpoint_id: note.checkpoint_id,
            pre_rewind: note.pre_rewind,
            messages_before: note.messages_before,
            messages_after: self.base.count(),
        };
        self.remember_rewind(record.clone())?;
        self.note_files();
        self.remove_note()?;
        Ok(Some(record))
    }

    /// Installs a base that an interrupted rewind had prepared. Idempotent.
    pub(super) fn redo_rewind(&mut self) -> Result<bool, StoreError> {
        let is_prepared = self.rewind.as_ref().is_some_and(|note| note.is_prepared);
        if is_prepared {
            self.base.install(self.disk.as_ref())?;
        }
        Ok(is_prepared)
    }

    fn take_states_back(&self, from: &Path) -> Result<(), StoreError> {
        let (disk, to) = (self.disk.as_ref(), self.dir.join(EXTENSIONS));
        let wanted = states_in(disk, from)?;
        for name in &wanted {
            let (state, path) = (read_state(disk, &from.join(name))?, to.join(name));
            let is_there = disk.stat(&path).during("inspect", &path)?.is_some();
            if !is_there || read_state(disk, &path)? != state {
                files::replace(disk, &path, &state)?;
            }
        }
        for name in states_in(disk, &to)? {
            if !wanted.contains(&name) {
                let path = to.join(name);
                disk.remove_file(&path).during("remove", &path)?;
            }
        }
        Ok(disk.sync_dir(&to).during("sync", &to)?)
    }

    /// Adds the rewind to the conversation's metadata. Durable when it returns. Idempotent.
    fn remember_rewind(&mut self, record: RewindRecord) -> Result<(), StoreError> {
        let rewinds = &mut self.metadata.rewinds;
        if rewinds.last().is_none_or(|last| last.at != record.at) {
            self.metadata.updated_at = record.at.max(self.metadata.updated_at);
            rewinds.push(record);
            let surplus = rewinds.len().saturating_sub(REWINDS_REMEMBERED);
            rewinds.drain(..surplus);
        }
        self.metadata_is_dirty = true;
        self.flush_metadata()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::tests::{agent, at, dir, fresh, key};
    use super::*;

    #[test]
    fn ckpt_6_started_rewind_is_not_pinned_nor_undone_after_rename() {
        let disk = Arc::new(fresh());
        let instances = dir().parent().unwrap().to_owned();
        let made = InstanceStore::create(disk.clone(), &instances, &key(), &agent(), at(0), ".new");
        let mut store = made.unwrap();
        store.pin().unwrap();
        let note = RewindNote {
            at: at(1),
            checkpoint_id: "checkpoint_001".to_owned(),
            pre_rewind: "checkpoint_002".to_owned(),
            messages_before: 0,
            is_prepared: false,
        };
        store.begin_rewind(note.clone()).unwrap();
        let is_rewinding = |error| matches!(error, StoreError::Rewinding { .. });
        assert!(is_rewinding(store.pin().unwrap_err()));
        store.abandon_rewind().unwrap();
        store.pin().unwrap();
        store.begin_rewind(note.clone()).unwrap();
        let prepared = RewindNote {
            is_prepared: true,
            ..note
        };
        store.write_note(prepared).unwrap();
        assert!(is_rewinding(store.abandon_rewind().unwrap_err()));
        assert!(read_note(disk.as_ref(), &dir()).unwrap().is_some());
    }
}
