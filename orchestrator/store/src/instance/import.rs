//! Atomic import of a conversation from an archive.
//!
//! The archive is read once, line by line, and checked while it is written to a staging folder. The
//! instance gets its name only after the last line confirms that the archive is complete.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use goondan_durable::disk::{Disk, DiskFile, EntryKind, read_full};
use goondan_durable::journal::Journal;
use goondan_durable::limits::READ_CHUNK_BYTES;
use goondan_durable::manifest::RunningChecksum;
use goondan_durable::{IoContext as _, files};
use goondan_protocol::control::ImportResult;
use goondan_protocol::ids::{AgentName, ExtensionName, InstanceKey, MessageId};
use goondan_protocol::limits::{MAX_EXTENSION_STATE_BYTES, MAX_MESSAGE_BYTES};
use goondan_protocol::message::Message;
use goondan_protocol::time::Timestamp;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::archive::{ArchiveHead, ArchiveRecord, ExtensionState, FORMAT, Sum};
use super::base::BASE;
use super::base_checksums::{self, Coverage, SUMS};
use super::checksum_diff::LineSum;
use super::{EXTENSIONS, MESSAGES, Metadata, folder};
use crate::error::StoreError;
use crate::file_names::{extension_file_name, instance_dir_name};
use crate::limits::{
    ARCHIVE_EXTENSIONS_MAX, ARCHIVE_LINE_BYTES_MAX, ARCHIVE_MESSAGES_MAX, SUMS_RECORD_LINES,
};

/// Creates instance `key` of `agent` in `instances` from an archive. Durable when it returns.
///
/// # Errors
///
/// [`StoreError::KeyTaken`] if the instance exists; [`StoreError::BadArchive`];
/// [`StoreError::File`]. After an error the instance does not exist, unless only the very last sync
/// failed.
pub fn import(
    disk: &dyn Disk,
    instances: &Path,
    (key, agent): (&InstanceKey, &AgentName),
    archive: &Path,
    at: Timestamp,
    staging_name: &str,
) -> Result<ImportResult, StoreError> {
    let dir = instances.join(instance_dir_name(key));
    if disk.stat(&dir).during("inspect", &dir)?.is_some() {
        let owner = Metadata::read(disk, &dir)?.agent_name;
        let key = key.clone();
        return Err(StoreError::KeyTaken { key, owner });
    }
    let mut lines = ImportLines::open(disk, archive)?;
    let head = lines.head()?;
    let staging = instances.join(staging_name);
    let mut metadata = Metadata::new(agent.clone(), key.clone(), head.created_at);
    metadata.updated_at = at;
    let made = folder::stage(disk, &staging, &metadata)
        .and_then(|()| fill(disk, &staging, &mut lines))
        .and_then(|sum| {
            files::install(disk, &staging, &dir)?;
            Ok(sum)
        });
    match made {
        Ok(sum) => Ok(ImportResult {
            messages: sum.messages,
            extensions: sum.extensions,
        }),
        Err(error) => {
            // Opening the workspace retries a failed removal.
            disk.remove_tree(&staging).ok();
            Err(error)
        }
    }
}

/// Copies the lines after the first into a staged instance. Durable when it returns.
fn fill(disk: &dyn Disk, staging: &Path, lines: &mut ImportLines) -> Result<Sum, StoreError> {
    let messages = staging.join(MESSAGES);
    let mut base = BaseWriter::open(disk, &messages)?;
    let mut ids: HashSet<[u8; 16]> = HashSet::new();
    let mut last_extension: Option<ExtensionName> = None;
    loop {
        let before = lines.sum;
        let line = lines.next()?;
        let record: ArchiveRecord<'_> =
            serde_json::from_slice(&line).map_err(|error| lines.bad(error.to_string()))?;
        match record {
            ArchiveRecord::Message(message) => {
                if last_extension.is_some() {
                    return Err(lines.bad("message after an extension state"));
                }
                let id = lines.check_message(message)?;
                if !ids.insert(short_hash(&id)) {
                    return Err(lines.bad(format!("duplicate message `{id}`")));
                }
                lines.sum.messages += 1;
                lines.at_most("messages", lines.sum.messages, ARCHIVE_MESSAGES_MAX)?;
                base.push(message.get())?;
            }
            ArchiveRecord::Extension(ExtensionState { name, state }) => {
                if last_extension.as_ref() >= Some(&name) {
                    return Err(lines.bad("extensions are not sorted by name"));
                }
                lines.sum.extensions += 1;
                lines.at_most("extensions", lines.sum.extensions, ARCHIVE_EXTENSIONS_MAX)?;
                if state.get().len() >= MAX_EXTENSION_STATE_BYTES {
                    return Err(lines.bad(format!(
                        "state of more than {MAX_EXTENSION_STATE_BYTES} bytes"
                    )));
                }
                let path = staging.join(EXTENSIONS).join(extension_file_name(&name));
                let content = [state.get().as_bytes(), b"\n"].concat();
                files::write_synced(disk, &path, &content)?;
                last_extension = Some(name);
            }
            ArchiveRecord::End(_) => {
                if line != before.end()? {
                    let problem = "totals do not match: a part is missing or damaged";
                    return Err(lines.bad(problem));
                }
                if !lines.is_over()? {
                    return Err(lines.bad("unexpected data after the end"));
                }
                base.finish()?;
                for names in [&messages, &staging.join(EXTENSIONS)] {
                    disk.sync_dir(names).during("sync", names)?;
                }
                return Ok(before);
            }
        }
    }
}

fn short_hash(id: &MessageId) -> [u8; 16] {
    let mut short = [0; 16];
    for (to, from) in short.iter_mut().zip(Sha256::digest(id.as_str())) {
        *to = from;
    }
    short
}

/// Streaming writer of a new instance's messages and checksums.
struct BaseWriter {
    lines: Journal,
    sums: Journal,
    coverage: Coverage,
    running: RunningChecksum,
    pending: Vec<u8>,
    pending_sums: Vec<LineSum>,
}

impl BaseWriter {
    fn open(disk: &dyn Disk, messages: &Path) -> Result<Self, StoreError> {
        Ok(Self {
            lines: Journal::open(disk, &messages.join(BASE))?,
            sums: Journal::open(disk, &messages.join(SUMS))?,
            coverage: Coverage::default(),
            running: RunningChecksum::default(),
            pending: Vec::new(),
            pending_sums: Vec::new(),
        })
    }

    fn push(&mut self, message: &str) -> Result<(), StoreError> {
        let line = [message.as_bytes(), b"\n"].concat();
        self.pending_sums.push(base_checksums::sum_of(&line)?);
        self.pending.extend(line);
        if self.pending.len() >= READ_CHUNK_BYTES || self.pending_sums.len() >= SUMS_RECORD_LINES {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        if !self.pending.is_empty() {
            self.lines.append(&self.pending)?;
            self.running.add(&self.pending);
            let sum = self.running.claim().crc32;
            let lines = &self.pending_sums;
            let records = base_checksums::records_of(lines, &[], Some(sum), &mut self.coverage)?;
            self.sums.append(&records)?;
            self.pending.clear();
            self.pending_sums.clear();
        }
        Ok(())
    }

    fn finish(mut self) -> Result<(), StoreError> {
        self.flush()?;
        self.lines.sync()?;
        Ok(self.sums.sync()?)
    }
}

/// The lines of an archive, one at a time.
struct ImportLines {
    path: PathBuf,
    file: Box<dyn DiskFile>,
    offset: u64,
    /// Bytes that were read but not returned yet.
    ahead: Vec<u8>,
    /// Number of the line returned last, from 1.
    number: u64,
    /// Totals of the returned lines.
    sum: Sum,
}

impl ImportLines {
    fn open(disk: &dyn Disk, path: &Path) -> Result<Self, StoreError> {
        let kind = disk.stat(path).during("inspect", path)?;
        if kind.is_some_and(|stat| stat.kind != EntryKind::File) {
            return Err(StoreError::BadArchive {
                path: path.to_owned(),
                line: 1,
                problem: "not a regular file".to_owned(),
            });
        }
        let file = disk.open_read(path).during("open", path)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            offset: 0,
            ahead: Vec::new(),
            number: 0,
            sum: Sum::default(),
        })
    }

    fn bad(&self, problem: impl Into<String>) -> StoreError {
        StoreError::BadArchive {
            path: self.path.clone(),
            line: self.number.max(1),
            problem: problem.into(),
        }
    }

    fn at_most(&self, what: &str, count: u64, max: u64) -> Result<(), StoreError> {
        if count > max {
            return Err(self.bad(format!("more than {max} {what}")));
        }
        Ok(())
    }

    /// Reads more bytes; false at the end of the file.
    fn read_ahead(&mut self) -> Result<bool, StoreError> {
        let mut chunk = vec![0; READ_CHUNK_BYTES];
        let read =
            read_full(self.file.as_mut(), &mut chunk, self.offset).during("read", &self.path)?;
        chunk.truncate(read);
        self.offset += read as u64;
        self.ahead.extend(chunk);
        Ok(read > 0)
    }

    fn is_over(&mut self) -> Result<bool, StoreError> {
        Ok(self.ahead.is_empty() && !self.read_ahead()?)
    }

    /// Returns the next line, with its newline.
    fn next(&mut self) -> Result<Vec<u8>, StoreError> {
        self.number += 1;
        let mut searched = 0;
        loop {
            let unsearched = self.ahead.get(searched..).unwrap_or_default();
            if let Some(at) = unsearched.iter().position(|byte| *byte == b'\n') {
                let behind = self.ahead.split_off(searched + at + 1);
                let line = std::mem::replace(&mut self.ahead, behind);
                self.sum.add(&line);
                return Ok(line);
            }
            searched = self.ahead.len();
            if searched > ARCHIVE_LINE_BYTES_MAX {
                return Err(self.bad(format!("longer than {ARCHIVE_LINE_BYTES_MAX} bytes")));
            }
            if !self.read_ahead()? {
                return Err(self.bad("archive is truncated"));
            }
        }
    }

    fn head(&mut self) -> Result<ArchiveHead, StoreError> {
        let line = self.next()?;
        let head: ArchiveHead = serde_json::from_slice(&line)
            .map_err(|error| self.bad(format!("not a conversation archive: {error}")))?;
        if head.format != FORMAT {
            let problem = format!("expected format `{FORMAT}`, found `{}`", head.format);
            return Err(self.bad(problem));
        }
        Ok(head)
    }

    fn check_message(&self, raw: &RawValue) -> Result<MessageId, StoreError> {
        if raw.get().len() > MAX_MESSAGE_BYTES {
            return Err(self.bad(format!("message of more than {MAX_MESSAGE_BYTES} bytes")));
        }
        let message: Message = serde_json::from_str(raw.get())
            .map_err(|error| self.bad(format!("invalid message: {error}")))?;
        Ok(message.id)
    }
}
