//! The folder of an instance: pending work, removal, and remains of crashes.

use std::path::{Path, PathBuf};

use goondan_durable::disk::{Disk, EntryKind};
use goondan_durable::{IoContext as _, files};

use super::base::BASE;
use super::base_checksums::SUMS;
use super::dedup::MANIFEST;
use super::llm::LLM;
use super::rewind::REWIND;
use super::{EVENTS, EXTENSIONS, INBOX, MESSAGES, Metadata, OBSERVED, ParkedEvent, WORK, inbox};
use crate::error::StoreError;

/// Returns the working directory of an instance's tools.
#[must_use]
pub fn work_dir(instance_dir: &Path) -> PathBuf {
    instance_dir.join(WORK)
}

/// Creates the folder of an empty instance, replacing remains of a crash. Durable when it returns,
/// except for the folder's own name.
pub(super) fn stage(
    disk: &dyn Disk,
    staging: &Path,
    metadata: &Metadata,
) -> Result<(), StoreError> {
    disk.remove_tree(staging).during("remove", staging)?;
    let messages = staging.join(MESSAGES);
    for made in [
        staging,
        &messages,
        &staging.join(EXTENSIONS),
        &staging.join(WORK),
    ] {
        disk.create_dir(made).during("create", made)?;
    }
    files::write_synced(disk, &staging.join(MANIFEST), b"")?;
    let path = staging.join(Metadata::FILE);
    files::write_synced(disk, &path, &metadata.to_bytes()?)?;
    for name in [INBOX, EVENTS, BASE, SUMS, OBSERVED, LLM] {
        files::write_synced(disk, &messages.join(name), b"")?;
    }
    disk.sync_dir(&messages).during("sync", &messages)?;
    Ok(disk.sync_dir(staging).during("sync", staging)?)
}

/// Removes an instance and all its data (`INST-5`): first its name, durably, then its content.
/// Opening the workspace removes the remains of a crash ([`sweep`]). Returns true if the instance
/// existed.
///
/// # Errors
///
/// [`StoreError::File`].
pub fn delete(disk: &dyn Disk, dir: &Path, trash_name: &str) -> Result<bool, StoreError> {
    let Some(stat) = disk.stat(dir).during("inspect", dir)? else {
        return Ok(false);
    };
    let instances = dir.parent().unwrap_or(Path::new("/"));
    let trash = instances.join(trash_name);
    disk.rename(dir, &trash).during("remove", dir)?;
    disk.sync_dir(instances).during("sync", instances)?;
    if stat.kind == EntryKind::Directory {
        disk.remove_tree(&trash).during("remove", &trash)?;
    } else {
        // A foreign link or file: remove the entry itself, never its target.
        disk.remove_file(&trash).during("remove", &trash)?;
    }
    Ok(true)
}

/// True if an instance has pending work: a waiting event, a non-empty journal, or a rewind in
/// progress. Changes nothing, and reads no more than necessary.
///
/// # Errors
///
/// [`StoreError::File`].
pub fn has_work(disk: &dyn Disk, dir: &Path) -> Result<bool, StoreError> {
    let len = |name: &str| -> Result<u64, StoreError> {
        let path = dir.join(MESSAGES).join(name);
        Ok(disk
            .stat(&path)
            .during("inspect", &path)?
            .map_or(0, |stat| stat.len))
    };
    let rewind = dir.join(REWIND);
    if len(EVENTS)? > 0 || disk.stat(&rewind).during("inspect", &rewind)?.is_some() {
        return Ok(true);
    }
    if len(INBOX)? == 0 {
        return Ok(false);
    }
    inbox::has_waiting(disk, &dir.join(MESSAGES).join(INBOX))
}

/// Reads the parked events of an instance that no writer holds, without opening it. `None` if it must
/// be opened, because it has a turn, a rewind in progress, or an inbox that recovery must check.
///
/// # Errors
///
/// [`StoreError::File`].
pub(crate) fn peek_parked(
    disk: &dyn Disk,
    dir: &Path,
) -> Result<Option<Vec<ParkedEvent>>, StoreError> {
    let stat = |path: &Path| disk.stat(path).during("inspect", path);
    let messages = dir.join(MESSAGES);
    let inbox = messages.join(INBOX);
    let has_turn = stat(&messages.join(EVENTS))?.is_none_or(|stat| stat.len > 0);
    if has_turn || stat(&inbox)?.is_none() || stat(&dir.join(REWIND))?.is_some() {
        return Ok(None);
    }
    inbox::peek_parked(disk, &inbox)
}

/// Removes partly created and partly removed instances from `instances`. Their names begin with a
/// dot, unlike those of instances.
///
/// # Errors
///
/// [`StoreError::File`].
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
