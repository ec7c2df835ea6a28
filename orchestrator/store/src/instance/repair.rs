//! Repair of an instance: moves damage aside and rewrites the rest. Nothing is deleted; a copy of
//! every damaged file is kept.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use goondan_durable::disk::{Disk, EntryKind, read_all};
use goondan_durable::{FileError, IoContext as _, files};
use goondan_protocol::ids::AgentName;
use goondan_protocol::time::Timestamp;
use serde::Deserialize;

use super::base::BASE;
use super::llm::LLM;
use super::{EXTENSIONS, InstanceStore, MESSAGES, Metadata, OBSERVED, segments};
use super::{bundle_files, schedules};
use crate::error::StoreError;
use crate::file_names::{instance_key_of, is_dir_of};

/// Largest damaged file that is kept, in bytes.
const KEPT_BYTES_MAX: usize = 1 << 40;

/// Opens the instance in `dir`, which recovers it, and rewrites every file with unreadable records.
/// Returns the paths of the kept copies. No other process or thread may have the instance open.
/// Idempotent.
///
/// # Errors
///
/// [`FileError::Io`]; [`FileError::Damaged`] if `metadata.json` is lost and no log identifies the
/// instance.
pub fn repair(disk: &Arc<dyn Disk>, dir: &Path, at: Timestamp) -> Result<Vec<PathBuf>, StoreError> {
    let mut kept = Vec::new();
    match Metadata::read(disk.as_ref(), dir) {
        Ok(metadata) => {
            let is_its = |name| is_dir_of(name, &metadata.instance_key);
            if dir.file_name().is_some_and(|name| !is_its(name)) {
                let problem = format!("it names instance `{}`", metadata.instance_key);
                let path = dir.join(Metadata::FILE);
                let error = FileError::Damaged {
                    path,
                    line: 1,
                    problem,
                };
                kept.extend(remake_metadata(disk.as_ref(), dir, at, error)?);
            }
        }
        Err(error) if error.is_shortage() => return Err(error.into()),
        Err(error) => kept.extend(remake_metadata(disk.as_ref(), dir, at, error)?),
    }
    let messages = dir.join(MESSAGES);
    let before = names(disk.as_ref(), &messages)?;
    let mut store = InstanceStore::open(disk.clone(), dir)?;
    if store.inbox.is_damaged() {
        store.rewrite_inbox()?;
    }
    // The rewritten inbox has lost the `done` marks that were inferred from damaged records.
    store.restore_every_answer()?;
    store.turn.mend(disk.as_ref())?;
    if let Some(open) = store.turn.open.clone()
        && open.attempt == 0
        && let Some(event) = open.event
    {
        // The turn's begin record is lost; write one from the inferred event.
        store.turn.begin(open.turn_id, event, None, at)?;
        store.turn.sync()?;
    }
    store.manifest.release(disk.as_ref(), BASE)?;
    store.base.mend(disk.as_ref())?;
    store.base.sync()?;
    store.note_files();
    store.manifest.acknowledge(disk.as_ref())?;
    drop(store);
    let after = names(disk.as_ref(), &messages)?;
    let made = after.into_iter().filter(|name| !before.contains(name));
    kept.extend(made.filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.contains(".torn-") || name.contains(".damaged") || name.contains(".replaced")
    }));
    kept.extend(set_states_aside(disk.as_ref(), &dir.join(EXTENSIONS))?);
    kept.extend(schedules::set_aside(disk.as_ref(), dir)?);
    kept.extend(bundle_files::set_aside(disk.as_ref(), dir)?);
    Ok(kept)
}

fn names(disk: &dyn Disk, dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    if disk.stat(dir).during("inspect", dir)?.is_none() {
        return Ok(Vec::new());
    }
    let entries = disk.list(dir).during("list", dir)?.into_iter();
    Ok(entries.map(|entry| dir.join(entry.name)).collect())
}

/// Identity of an instance according to its logs.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InstanceOwner {
    agent_name: AgentName,
}

fn remake_metadata(
    disk: &dyn Disk,
    dir: &Path,
    at: Timestamp,
    error: FileError,
) -> Result<Option<PathBuf>, StoreError> {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let messages = dir.join(MESSAGES);
    let owner_of = |line: &[u8]| {
        let owner = serde_json::from_slice::<InstanceOwner>(line).ok();
        owner.map(|owner| owner.agent_name)
    };
    let mut owner = None;
    for log in [OBSERVED, LLM] {
        if owner.is_none() {
            owner = segments::find_in_lines(disk, &messages, log, owner_of)?;
        }
    }
    let (Some(key), Some(owner)) = (instance_key_of(&name), owner) else {
        return Err(error.into());
    };
    let path = dir.join(Metadata::FILE);
    let mut kept = None;
    if disk.stat(&path).during("inspect", &path)?.is_some() {
        let mut file = disk.open_read(&path).during("open", &path)?;
        let content = read_all(file.as_mut(), KEPT_BYTES_MAX).during("read", &path)?;
        kept = Some(files::keep_aside(disk, &path, "damaged", &content)?);
    }
    files::replace(disk, &path, &Metadata::new(owner, key, at).to_bytes()?)?;
    Ok(kept)
}

/// Renames extension states that are not JSON. Their extensions start without a state.
fn set_states_aside(disk: &dyn Disk, dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let mut kept = Vec::new();
    for entry in disk.list(dir).during("list", dir)? {
        let name = entry.name.to_string_lossy();
        if entry.kind != EntryKind::File || !name.ends_with(".json") {
            continue;
        }
        let path = dir.join(&entry.name);
        let mut file = disk.open_read(&path).during("open", &path)?;
        let bytes = read_all(file.as_mut(), KEPT_BYTES_MAX).during("read", &path)?;
        if serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).is_err() {
            let (aside, _) = files::aside_name(disk, &path, "damaged", None)?;
            files::install(disk, &path, &aside)?;
            kept.push(aside);
        }
    }
    Ok(kept)
}
