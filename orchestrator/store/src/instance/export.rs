//! Export of a conversation's archive in parts.
//!
//! The client holds the whole state of an export ([`ExportPosition`]), so an export uses no daemon
//! resources between two parts, and a disconnected client leaves nothing behind. The export covers
//! the conversation as confirmed when it began. Turns that end later only append to it; a rewrite
//! makes the next part fail.

use std::ops::ControlFlow;

use goondan_durable::disk::{EntryKind, read_all};
use goondan_durable::{FileError, Finding, FindingKind, IoContext as _, Severity};
use goondan_protocol::control::{ExportPart, ExportPosition};
use goondan_protocol::limits::{HISTORY_PAGE_BYTES, MAX_EXTENSION_STATE_BYTES, MAX_MESSAGE_BYTES};
use goondan_protocol::message::Message;
use goondan_protocol::time::Timestamp;
use goondan_protocol::version::Version;
use serde_json::value::RawValue;

use super::archive::{ArchiveHead, ArchiveRecord, ExtensionState, FORMAT, Sum};
use super::{EXTENSIONS, InstanceStore};
use crate::error::StoreError;
use crate::file_names::extension_of;
use crate::limits::{ARCHIVE_EXTENSIONS_MAX, ARCHIVE_MESSAGES_MAX, EXPORT_PART_BYTES};

// States are read again for each part, so a state must fit one part.
const _: () = assert!(MAX_EXTENSION_STATE_BYTES + HISTORY_PAGE_BYTES + 1024 < EXPORT_PART_BYTES);

/// The lines after a position and the next position; `None` at the end of the archive.
struct ExportLines {
    bytes: Vec<u8>,
    sum: Sum,
    damaged: u64,
    then: Option<ExportPosition>,
}

impl ExportLines {
    fn push(&mut self, record: &ArchiveRecord<'_>) -> Result<(), StoreError> {
        let line = super::json_line(record)?;
        match record {
            ArchiveRecord::Message(_) => self.sum.messages += 1,
            ArchiveRecord::Extension(_) => self.sum.extensions += 1,
            ArchiveRecord::End(_) => {}
        }
        for (count, max) in [
            (self.sum.messages, ARCHIVE_MESSAGES_MAX),
            (self.sum.extensions, ARCHIVE_EXTENSIONS_MAX),
        ] {
            if count > max {
                return Err(StoreError::TooMany { max });
            }
        }
        self.sum.add(&line);
        self.bytes.extend(line);
        Ok(())
    }
}

impl InstanceStore {
    /// Returns the part of the archive at `position`, or the first part.
    ///
    /// # Errors
    ///
    /// [`FileError::Damaged`] if a record is damaged, unless damaged records are skipped;
    /// [`StoreError::HistoryChanged`] if the conversation was rewritten since the export began;
    /// [`StoreError::TooMany`]; [`FileError::Io`].
    pub fn export(
        &mut self,
        position: Option<ExportPosition>,
        skip_damaged: bool,
        at: Timestamp,
    ) -> Result<ExportPart, StoreError> {
        let lines = match &position {
            None => self.export_head(skip_damaged, at)?,
            Some(position) => self.export_lines(position, skip_damaged)?,
        };
        let skip = position.as_ref().map_or(0, |position| position.skip);
        let text = String::from_utf8(lines.bytes).map_err(|_| StoreError::HistoryChanged)?;
        let rest = text.get(skip..).ok_or(StoreError::HistoryChanged)?;
        let piece = rest.floor_char_boundary(EXPORT_PART_BYTES);
        let next = match position {
            // A line longer than a part is split.
            Some(position) if piece < rest.len() => Some(ExportPosition {
                skip: skip + piece,
                ..position
            }),
            _ => lines.then,
        };
        Ok(ExportPart {
            text: rest.get(..piece).unwrap_or_default().to_owned(),
            messages: lines.sum.messages,
            extensions: lines.sum.extensions,
            damaged: lines.damaged,
            pending_events: self.waiting_count(),
            next,
        })
    }

    fn export_head(
        &mut self,
        skip_damaged: bool,
        at: Timestamp,
    ) -> Result<ExportLines, StoreError> {
        // Reading reports unreadable records; missing ones must be reported here.
        let is_gone = |finding: &&Finding| {
            let is_gone = matches!(
                finding.kind,
                FindingKind::MissingRecords | FindingKind::ReplacedFile
            );
            is_gone && finding.path == self.base.path()
        };
        let gone = self.unacknowledged().iter().filter(is_gone);
        let damaged = admit(gone.cloned().collect(), skip_damaged)?;
        self.base.seek(0)?;
        let until = self.base.len();
        let revision = self
            .base
            .revision(until)
            .ok_or(StoreError::HistoryChanged)?;
        let metadata = self.metadata();
        let bytes = super::json_line(&ArchiveHead {
            format: FORMAT.to_owned(),
            instance_key: metadata.instance_key.clone(),
            agent_name: metadata.agent_name.clone(),
            created_at: metadata.created_at,
            exported_at: at,
            goondan: Version::current().goondan,
        })?;
        let mut sum = Sum::default();
        sum.add(&bytes);
        let then = ExportPosition {
            until,
            revision,
            offset: 0,
            extension: None,
            skip: 0,
            messages: 0,
            extensions: 0,
            damaged,
            crc32: sum.crc32,
        };
        Ok(ExportLines {
            bytes,
            sum,
            damaged,
            then: Some(then),
        })
    }

    fn export_lines(
        &mut self,
        from: &ExportPosition,
        skip_damaged: bool,
    ) -> Result<ExportLines, StoreError> {
        let mut lines = ExportLines {
            bytes: Vec::new(),
            sum: Sum {
                messages: from.messages,
                extensions: from.extensions,
                crc32: from.crc32,
            },
            damaged: from.damaged,
            then: None,
        };
        let mut then = from.clone();
        let is_over = if from.offset < from.until {
            then.offset = self.export_messages(from, skip_damaged, &mut lines)?;
            false
        } else {
            self.export_extensions(&mut then.extension, skip_damaged, &mut lines)?
                .is_continue()
        };
        if is_over {
            lines.bytes.extend(lines.sum.end()?);
            return Ok(lines);
        }
        lines.then = Some(ExportPosition {
            skip: 0,
            messages: lines.sum.messages,
            extensions: lines.sum.extensions,
            damaged: lines.damaged,
            crc32: lines.sum.crc32,
            ..then
        });
        Ok(lines)
    }

    /// Adds about a page of messages and returns the offset of the next.
    fn export_messages(
        &mut self,
        from: &ExportPosition,
        skip_damaged: bool,
        lines: &mut ExportLines,
    ) -> Result<u64, StoreError> {
        let offset = from.offset;
        let mut findings = self.base.seek(offset)?;
        if self.base.revision(from.until) != Some(from.revision)
            || (offset > 0 && self.base.read(offset - 1, 1)? != b"\n")
        {
            return Err(StoreError::HistoryChanged);
        }
        let left = usize::try_from(from.until - offset).unwrap_or(usize::MAX);
        let mut chunk = self.base.read(offset, left.min(HISTORY_PAGE_BYTES))?;
        match chunk.iter().rposition(|byte| *byte == b'\n') {
            Some(last) => chunk.truncate(last + 1),
            None => chunk = self.base.line_at(offset)?,
        }
        let (mut end, mut rest) = (offset, chunk.as_slice());
        while !rest.is_empty() {
            let (len, is_good) = self.base.next_line(end, rest)?;
            let (line, behind) = rest.split_at_checked(len).unwrap_or((rest, b""));
            if is_good && line != b"\n" {
                match message_of(line) {
                    Ok(message) => lines.push(&ArchiveRecord::Message(message))?,
                    Err(problem) => {
                        let problem = format!("record at byte {end}: {problem}");
                        let kind = FindingKind::UnknownRecord;
                        findings.push(Finding::new(self.base.path(), kind, problem));
                    }
                }
            }
            end += line.len() as u64;
            rest = behind;
        }
        findings.extend(self.base.end_page(offset, end));
        lines.damaged += admit(findings, skip_damaged)?;
        Ok(end)
    }

    /// Adds about a page of extension states after `after`. Breaks if there are more.
    fn export_extensions(
        &mut self,
        after: &mut Option<String>,
        skip_damaged: bool,
        lines: &mut ExportLines,
    ) -> Result<ControlFlow<()>, StoreError> {
        let dir = self.dir.join(EXTENSIONS);
        let mut findings = Vec::new();
        let mut found = Vec::new();
        for entry in self.disk.list(&dir).during("list", &dir)? {
            let path = dir.join(&entry.name);
            let file_name = entry.name.to_string_lossy();
            if entry.kind != EntryKind::File || !file_name.ends_with(".json") {
                continue;
            }
            match extension_of(&file_name) {
                Some(name) => found.push((name, path)),
                None if after.is_none() => {
                    let problem = "file name is not an extension's";
                    let kind = FindingKind::UnknownFile;
                    let finding = Finding::new(&path, kind, problem);
                    findings.push(finding.severity(Severity::Warning));
                }
                None => {}
            }
        }
        found.sort();
        let mut flow = ControlFlow::Continue(());
        for (name, path) in found {
            if after.as_deref() >= Some(name.as_str()) {
                continue;
            }
            if lines.bytes.len() >= HISTORY_PAGE_BYTES {
                flow = ControlFlow::Break(());
                break;
            }
            let mut file = self.disk.open_read(&path).during("open", &path)?;
            let bytes = read_all(file.as_mut(), MAX_EXTENSION_STATE_BYTES).during("read", &path)?;
            *after = Some(name.as_str().to_owned());
            match one_line(&bytes) {
                Ok(state) => {
                    let state = &*state;
                    lines.push(&ArchiveRecord::Extension(ExtensionState { name, state }))?;
                }
                Err(error) => {
                    let problem = format!("failed to read the state: {error}");
                    let kind = FindingKind::UnreadableFile;
                    findings.push(Finding::new(&path, kind, problem));
                }
            }
        }
        lines.damaged += admit(findings, skip_damaged)?;
        Ok(flow)
    }
}

/// Returns the raw message, if it can be imported.
fn message_of(line: &[u8]) -> Result<&RawValue, String> {
    if line.len() > MAX_MESSAGE_BYTES {
        return Err(format!("message has more than {MAX_MESSAGE_BYTES} bytes"));
    }
    let is_no_message = |error: serde_json::Error| format!("invalid message: {error}");
    let raw: &RawValue = serde_json::from_slice(line).map_err(is_no_message)?;
    serde_json::from_str::<Message>(raw.get()).map_err(is_no_message)?;
    Ok(raw)
}

/// Returns the raw state without line breaks, which an archive line cannot contain.
fn one_line(bytes: &[u8]) -> serde_json::Result<Box<RawValue>> {
    let state: Box<RawValue> = serde_json::from_slice(bytes)?;
    if state.get().contains(['\n', '\r']) {
        let value: serde_json::Value = serde_json::from_slice(bytes)?;
        return serde_json::value::to_raw_value(&value);
    }
    Ok(state)
}

/// Returns the number of damaged records, or an error if none is allowed.
fn admit(findings: Vec<Finding>, skip_damaged: bool) -> Result<u64, StoreError> {
    let mut damaged = 0;
    for finding in findings {
        if finding.severity == Severity::Info {
            continue;
        }
        if !skip_damaged {
            return Err(FileError::Damaged {
                path: finding.path,
                line: finding.line.unwrap_or(1),
                problem: finding.problem,
            }
            .into());
        }
        damaged += 1;
    }
    Ok(damaged)
}
