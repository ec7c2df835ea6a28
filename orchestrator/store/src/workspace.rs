//! Workspaces: folders of projects, their registration and their audit logs.

use std::path::{Path, PathBuf};

use goondan_durable::disk::{Disk, DiskEntry, EntryKind, read_all};
use goondan_durable::journal::Journal;
use goondan_durable::{FileError, IoContext as _, files};
use goondan_protocol::JsonObject;
use goondan_protocol::ids::{AgentName, InstanceKey, ResourceName, WorkspaceId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::StoreError;
use crate::file_names::{instance_dir_name, instance_key_of, workspace_id};
use crate::instance::{self, Metadata};
use crate::ledger::{self, LEDGER_FILE, Ledger};
use crate::legacy_names::rename_directories;
use crate::own_files::FolderManifest;
use crate::root::{AUDIT_FILE, Layout};

pub(crate) mod record_copy;

pub(crate) use record_copy::RecordCopy;

/// Largest `workspace.json`, in bytes.
const WORKSPACE_BYTES_MAX: usize = 64 * 1024;
/// Instances that one thread reads alone before starting another thread pays off.
const LISTED_BY_ONE_THREAD: usize = 512;
/// File name of [`WorkspaceRecord`] in the workspace's folder.
pub const WORKSPACE_FILE: &str = "workspace.json";

/// `workspace.json`: the project of a workspace (`ROOT-10`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceRecord {
    /// The workspace's id, which is its folder's name.
    pub workspace_id: WorkspaceId,
    pub project_root: PathBuf,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
    /// True if a starting daemon opens it again.
    pub registered: bool,
    /// True if the project's files are watched for changes (`SUP-8`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub watch: bool,
    /// Environment files, absolute. Later files take precedence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_files: Vec<PathBuf>,
    /// The Swarm to run; `None` for the project's first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swarm: Option<ResourceName>,
    /// Fields of other versions, preserved unchanged.
    #[serde(flatten)]
    pub extra: JsonObject,
}

/// An unusable workspace or instance on disk.
#[derive(Debug)]
pub struct UnusableEntry {
    pub path: PathBuf,
    pub error: StoreError,
}

/// Opens and registers the workspace of a project, and creates it if it is missing.
///
/// `project_root` must be canonical.
///
/// # Errors
///
/// [`StoreError::WorkspaceTaken`] if the folder belongs to another project; [`FileError::Damaged`]
/// if its record is invalid; [`FileError::Io`].
pub fn register(
    disk: &dyn Disk,
    layout: &Layout,
    project_root: &Path,
    package: Option<&str>,
) -> Result<WorkspaceRecord, StoreError> {
    layout.check_apart(project_root)?;
    let id = workspace_id(project_root, package).map_err(|error| StoreError::InvalidEvent {
        problem: error.to_string(),
    })?;
    let dir = layout.workspace(&id);
    if let Some(copy) = lost_folder(disk, layout, &id)? {
        tracing::error!(
            workspace_id = %id,
            path = %dir.display(),
            "the workspace's folder is missing and is created again, empty; \
             `gdn daemon verify --all --repair` acknowledges the loss"
        );
        record_copy::mark_lost(disk, layout, &id, copy)?;
    }
    files::ensure_dir(disk, layout.root(), &layout.instances(&id))?;
    let record = match recall(disk, layout, &id)? {
        None => WorkspaceRecord {
            workspace_id: id,
            project_root: project_root.to_owned(),
            package: package.map(str::to_owned),
            registered: true,
            watch: false,
            env_files: Vec::new(),
            swarm: None,
            extra: JsonObject::new(),
        },
        Some(found)
            if found.workspace_id == id
                && found.project_root == project_root
                && found.package.as_deref() == package =>
        {
            if found.registered && is_as_written(disk, layout, &found)? {
                return Ok(found);
            }
            WorkspaceRecord {
                registered: true,
                ..found
            }
        }
        Some(WorkspaceRecord {
            project_root,
            package,
            ..
        }) => {
            return Err(StoreError::WorkspaceTaken {
                path: dir,
                project_root,
                package,
            });
        }
    };
    write(disk, layout, &record)?;
    Ok(record)
}

/// Opens the workspace of a project for the first time since this daemon started. Registers it
/// ([`register`]), removes the remains of crashes, and syncs data that a killed process may have
/// left in the page cache only. Do not call it later, because it would interfere with writers.
///
/// # Errors
///
/// As [`register`].
pub fn open(
    disk: &dyn Disk,
    layout: &Layout,
    project_root: &Path,
    package: Option<&str>,
) -> Result<WorkspaceRecord, StoreError> {
    let record = register(disk, layout, project_root, package)?;
    settle(disk, layout, &record.workspace_id)?;
    Ok(record)
}

/// Returns the copy of the record of a workspace whose folder was removed. Replication moves folders
/// itself.
///
/// # Errors
///
/// [`FileError::Io`].
pub(crate) fn lost_folder(
    disk: &dyn Disk,
    layout: &Layout,
    id: &WorkspaceId,
) -> Result<Option<RecordCopy>, FileError> {
    let exists = |path: &Path| {
        let stat = disk.stat(path).during("inspect", path);
        stat.map(|stat| stat.is_some())
    };
    if exists(&layout.workspace(id))? {
        return Ok(None);
    }
    let replication = layout.replication();
    for name in [
        format!("{id}.json"),
        format!("before/{id}"),
        format!("importing/{id}"),
        format!("aside/{id}"),
    ] {
        if exists(&replication.join(name))? {
            return Ok(None);
        }
    }
    RecordCopy::read(disk, layout, id)
}

/// Writes a workspace's record, after its copy in `system/`.
///
/// # Errors
///
/// [`FileError::Io`].
pub fn write(disk: &dyn Disk, layout: &Layout, record: &WorkspaceRecord) -> Result<(), StoreError> {
    let id = &record.workspace_id;
    let path = layout.workspace(id).join(WORKSPACE_FILE);
    record_copy::write(disk, layout, record)?;
    Ok(files::replace(disk, &path, &record_copy::pretty(record)?)?)
}

/// Reads a workspace's record. Falls back to its copy in `system/` if the record is missing or
/// damaged.
///
/// # Errors
///
/// As [`read`].
pub fn recall(
    disk: &dyn Disk,
    layout: &Layout,
    id: &WorkspaceId,
) -> Result<Option<WorkspaceRecord>, FileError> {
    match read(disk, &layout.workspace(id)) {
        lost @ (Ok(None) | Err(FileError::Damaged { .. })) => {
            match RecordCopy::read(disk, layout, id)? {
                Some(copy) => Ok(Some(copy.record)),
                None => lost,
            }
        }
        found => found,
    }
}

/// True if a record and its copy match on disk.
fn is_as_written(
    disk: &dyn Disk,
    layout: &Layout,
    record: &WorkspaceRecord,
) -> Result<bool, StoreError> {
    let id = &record.workspace_id;
    if RecordCopy::read(disk, layout, id)?.is_none() {
        return Ok(false);
    }
    let is_there = matches!(read(disk, &layout.workspace(id)), Ok(Some(_)));
    if !is_there {
        tracing::warn!(
            workspace_id = %id,
            copy = %record_copy::path_of(layout, id).display(),
            "`workspace.json` is missing or damaged; restored from its copy"
        );
    }
    Ok(is_there)
}

/// Reads a workspace's record, if it exists.
///
/// # Errors
///
/// [`FileError::Damaged`] if it is invalid; [`FileError::Io`].
pub fn read(disk: &dyn Disk, dir: &Path) -> Result<Option<WorkspaceRecord>, FileError> {
    let path = dir.join(WORKSPACE_FILE);
    if disk.stat(&path).during("inspect", &path)?.is_none() {
        return Ok(None);
    }
    let mut file = disk.open_read(&path).during("open", &path)?;
    let bytes = read_all(file.as_mut(), WORKSPACE_BYTES_MAX).during("read", &path)?;
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|error| FileError::Damaged {
            line: u64::try_from(error.line()).unwrap_or(0),
            problem: error.to_string(),
            path,
        })
}

/// Lists every workspace with a record, by id, and the unusable ones.
///
/// # Errors
///
/// [`FileError::Io`] if the folder of workspaces cannot be listed.
pub fn list(
    disk: &dyn Disk,
    layout: &Layout,
) -> Result<(Vec<WorkspaceRecord>, Vec<UnusableEntry>), StoreError> {
    let (mut records, mut unusable) = (Vec::new(), Vec::new());
    let dir = layout.workspaces();
    for entry in disk.list(&dir).during("list", &dir)? {
        if entry.kind != EntryKind::Directory {
            continue;
        }
        let path = dir.join(&entry.name);
        // A damaged record is restored when the workspace is opened.
        let found = match entry.name.to_str().and_then(|name| name.parse().ok()) {
            Some(id) => recall(disk, layout, &id),
            None => read(disk, &path),
        };
        match found {
            Ok(Some(record)) if entry.name == record.workspace_id.as_str() => records.push(record),
            Ok(Some(record)) => {
                let problem = format!(
                    "the record names workspace `{}`, not this folder",
                    record.workspace_id
                );
                let at = path.join(WORKSPACE_FILE);
                let error = FileError::Damaged {
                    path: at,
                    line: 1,
                    problem,
                }
                .into();
                unusable.push(UnusableEntry { path, error });
            }
            Ok(None) => {}
            Err(error) => {
                let error = error.into();
                unusable.push(UnusableEntry { path, error });
            }
        }
    }
    records.sort_by(|a, b| a.workspace_id.cmp(&b.workspace_id));
    Ok((records, unusable))
}

/// Lists the metadata of every instance of a workspace, and the unusable instances (`INST-4`).
///
/// # Errors
///
/// [`FileError::Io`] if the folder of instances cannot be listed.
pub fn list_instances(
    disk: &dyn Disk,
    instances: &Path,
) -> Result<(Vec<Metadata>, Vec<UnusableEntry>), StoreError> {
    let (mut found, mut unusable) = (Vec::new(), Vec::new());
    if disk.stat(instances).during("inspect", instances)?.is_none() {
        return Ok((found, unusable));
    }
    let mut folders = disk.list(instances).during("list", instances)?;
    folders.retain(|entry| {
        entry.kind == EntryKind::Directory && !entry.name.as_encoded_bytes().starts_with(b".")
    });
    // The system answers from several files, which takes longer than to read a few instances.
    let threads = if folders.len() > LISTED_BY_ONE_THREAD {
        std::thread::available_parallelism().map_or(1, usize::from)
    } else {
        1
    };
    let each = LISTED_BY_ONE_THREAD.max(folders.len().div_ceil(threads));
    let parts: Vec<_> = std::thread::scope(|scope| {
        let parts: Vec<_> = folders.chunks(each).collect();
        let (last, others) = match parts.split_last() {
            Some((last, others)) => (*last, others),
            None => return Vec::new(),
        };
        let others: Vec<_> = others
            .iter()
            .map(|part| scope.spawn(|| read_instances(disk, instances, part)))
            .collect();
        // The current thread reads the last part. A thread that panics is a bug, and its panic
        // propagates.
        let last = read_instances(disk, instances, last);
        let others = others.into_iter().map(|thread| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        others.chain(std::iter::once(last)).collect()
    });
    for (some, odd) in parts {
        found.extend(some);
        unusable.extend(odd);
    }
    found.sort_by(|a, b| a.instance_key.cmp(&b.instance_key));
    Ok((found, unusable))
}

/// An instance that has, or may have, pending work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingInstance {
    pub instance_key: InstanceKey,
    /// Its agent, if known.
    pub agent_name: Option<AgentName>,
}

fn read_instances(
    disk: &dyn Disk,
    instances: &Path,
    folders: &[DiskEntry],
) -> (Vec<Metadata>, Vec<UnusableEntry>) {
    let (mut found, mut unusable) = (Vec::new(), Vec::new());
    for entry in folders {
        let path = instances.join(&entry.name);
        match Metadata::read(disk, &path) {
            // A folder that was copied or renamed by hand does not match its metadata.
            Ok(metadata) if *entry.name == *instance_dir_name(&metadata.instance_key) => {
                found.push(metadata);
            }
            Ok(metadata) => {
                let problem = format!(
                    "the metadata names instance `{}`, not this folder",
                    metadata.instance_key
                );
                let at = path.join(Metadata::FILE);
                let error = FileError::Damaged {
                    path: at,
                    line: 1,
                    problem,
                }
                .into();
                unusable.push(UnusableEntry { path, error });
            }
            Err(error) => {
                let error = error.into();
                unusable.push(UnusableEntry { path, error });
            }
        }
    }
    (found, unusable)
}

/// Lists the instances of a workspace with pending work. Includes instances that are currently
/// unreadable, because their work must not be abandoned.
///
/// # Errors
///
/// [`FileError::Io`] if the folder of instances cannot be listed.
pub fn instances_with_work(
    disk: &dyn Disk,
    instances: &Path,
) -> Result<(Vec<PendingInstance>, Vec<UnusableEntry>), StoreError> {
    let (found, mut unusable) = list_instances(disk, instances)?;
    let with_work = with_work_among(disk, instances, &found, &mut unusable);
    Ok((with_work, unusable))
}

/// Filters the listed instances for pending work. Currently unreadable instances are included and
/// added to `unusable`.
#[must_use]
pub fn with_work_among(
    disk: &dyn Disk,
    instances: &Path,
    found: &[Metadata],
    unusable: &mut Vec<UnusableEntry>,
) -> Vec<PendingInstance> {
    let mut with_work = Vec::new();
    for metadata in found {
        let dir = instances.join(instance_dir_name(&metadata.instance_key));
        match instance::has_work(disk, &dir) {
            Ok(true) => with_work.push(PendingInstance {
                instance_key: metadata.instance_key.clone(),
                agent_name: Some(metadata.agent_name.clone()),
            }),
            Ok(false) => {}
            Err(error) => unusable.push(UnusableEntry { path: dir, error }),
        }
    }
    for UnusableEntry { path, error } in unusable.iter() {
        let name = path.file_name().and_then(|name| name.to_str());
        if let Some(instance_key) = name.and_then(instance_key_of).filter(|_| error.is_io()) {
            let agent_name = None;
            with_work.push(PendingInstance {
                instance_key,
                agent_name,
            });
        }
    }
    with_work
}

/// Schedules of one instance, as found on disk.
#[derive(Debug)]
pub struct StoredSchedules {
    pub instance_key: InstanceKey,
    /// The agent of the instance.
    pub agent_name: AgentName,
    /// The content of the file, or the reason why it cannot be read.
    pub content: Result<Box<RawValue>, StoreError>,
}

/// Reads the schedules of every instance in `found` that has any.
pub fn schedules_among(
    disk: &dyn Disk,
    instances: &Path,
    found: &[Metadata],
) -> Vec<StoredSchedules> {
    let stored = found.iter().filter_map(|metadata| {
        let dir = instances.join(instance_dir_name(&metadata.instance_key));
        let content = instance::read_schedules(disk, &dir).transpose()?;
        Some(StoredSchedules {
            instance_key: metadata.instance_key.clone(),
            agent_name: metadata.agent_name.clone(),
            content,
        })
    });
    stored.collect()
}

/// Opens an audit log. Terminates a last line that a crash or a full disk cut short, so that the
/// next record starts on its own line.
fn open_audit(disk: &dyn Disk, path: &Path) -> Result<Journal, StoreError> {
    let mut journal = Journal::open(disk, path)?;
    if journal.len() > 0 && journal.read(journal.len() - 1, 1)? != b"\n" {
        let good = journal.scan(|_, _| {})?;
        journal.mend_tail(disk, good)?;
    }
    Ok(journal)
}

/// Removes the remains of crashes in a workspace, and syncs data that a killed process may have
/// left in the page cache only.
fn settle(disk: &dyn Disk, layout: &Layout, id: &WorkspaceId) -> Result<(), StoreError> {
    rename_directories(disk, layout, id)?;
    // An agent that coordinates others sees their sandboxes from its start on, also those that are prepared later.
    files::ensure_dir(disk, layout.root(), &layout.sandboxes(id))?;
    instance::sweep(disk, &layout.instances(id))?;
    let dir = layout.workspace(id);
    // The check comes before any truncation or append.
    let mut known = FolderManifest::open(disk, &dir)?;
    let path = dir.join(AUDIT_FILE);
    if disk.stat(&path).during("inspect", &path)?.is_some() {
        open_audit(disk, &path)?.sync()?;
        disk.sync_dir(&dir).during("sync", &dir)?;
    }
    let path = dir.join(LEDGER_FILE);
    if disk.stat(&path).during("inspect", &path)?.is_some() {
        let (_, findings) = Ledger::open(disk, layout, id)?;
        ledger::report(id, &findings);
        disk.sync_dir(&dir).during("sync", &dir)?;
        known.note(disk, LEDGER_FILE)?;
    }
    Ok(known.note(disk, AUDIT_FILE)?)
}

/// Appends a record to a workspace's audit log (`INST-6`, `SEC-5`). Durable when it returns.
///
/// # Errors
///
/// [`FileError::Io`].
pub fn append_audit(
    disk: &dyn Disk,
    layout: &Layout,
    id: &WorkspaceId,
    record: &JsonObject,
) -> Result<(), StoreError> {
    append_record(disk, &layout.workspace(id), record)
}

/// Appends a record to the system's own audit log (`SEC-5`). Durable when it returns.
///
/// # Errors
///
/// [`FileError::Io`].
pub fn append_system_audit(
    disk: &dyn Disk,
    layout: &Layout,
    record: &JsonObject,
) -> Result<(), StoreError> {
    let dir = layout.system();
    let mut known = FolderManifest::open(disk, &dir)?;
    append_record(disk, &dir, record)?;
    Ok(known.note(disk, AUDIT_FILE)?)
}

fn append_record(disk: &dyn Disk, dir: &Path, record: &JsonObject) -> Result<(), StoreError> {
    let path = dir.join(AUDIT_FILE);
    let mut line = serde_json::to_vec(record).map_err(|error| StoreError::InvalidEvent {
        problem: error.to_string(),
    })?;
    line.push(b'\n');
    let mut journal = open_audit(disk, &path)?;
    journal.append(&line)?;
    journal.sync()?;
    // The file name may be visible without being durable, after a failed attempt or a killed
    // process.
    Ok(disk.sync_dir(dir).during("sync", dir)?)
}

#[cfg(test)]
mod tests {
    use goondan_durable::disk::{Crash, SimulatedDisk};
    use goondan_durable::register::Register;

    use super::*;

    fn disk() -> (SimulatedDisk, Layout) {
        let disk = SimulatedDisk::new();
        for dir in ["/s", "/s/workspaces"] {
            disk.create_dir(Path::new(dir)).unwrap();
        }
        for dir in ["/", "/s"] {
            disk.sync_dir(Path::new(dir)).unwrap();
        }
        (disk, Layout::new("/s"))
    }

    #[test]
    fn root_10_workspace_folder_belongs_to_one_project_only() {
        let (disk, layout) = disk();
        let record = open(&disk, &layout, Path::new("/p/a"), Some("x")).unwrap();
        assert_eq!(
            open(&disk, &layout, Path::new("/p/a"), Some("x")).unwrap(),
            record
        );
        let stolen = WorkspaceRecord {
            project_root: "/p/b".into(),
            ..record.clone()
        };
        write(&disk, &layout, &stolen).unwrap();
        let error = open(&disk, &layout, Path::new("/p/a"), Some("x")).unwrap_err();
        assert!(
            matches!(error, StoreError::WorkspaceTaken { .. }),
            "{error}"
        );
    }

    #[test]
    fn inst_1_directories_with_older_names_are_renamed_at_any_crash() {
        let layout = Layout::new("/s");
        let opened = |disk: &SimulatedDisk| open(disk, &layout, Path::new("/p/a"), None);
        let (disk, made) = older_names();
        opened(&disk).unwrap();
        let opened_by = disk.calls();
        assert_is_renamed(&disk);
        // Calls are counted from 1.
        for at in made + 1..=opened_by {
            for crash in [Crash::ProcessOnly, Crash::LoseUnsynced, Crash::Subset(at)] {
                let (disk, _) = older_names();
                disk.crash_at(at);
                assert!(opened(&disk).is_err() || disk.is_down(), "call {at}");
                let disk = disk.after_crash(crash);
                opened(&disk).unwrap();
                assert_is_renamed(&disk);
            }
        }
    }

    /// Files in the workspace of `/p/a` with names of earlier versions, and their current names.
    const OLDER: [(&str, &str); 4] = [
        (
            "instances/telegram%3a1/metadata.json",
            "instances/telegram~3a1/metadata.json",
        ),
        (
            "sandboxes/%43at-1/%41nna/sandbox.json",
            "sandboxes/~43at-1/~41nna/sandbox.json",
        ),
        (
            "sandboxes/%43at-1/.handed-on/%41nna.json",
            "sandboxes/~43at-1/.handed-on/~41nna.json",
        ),
        (
            "known/instances/telegram%3a1/files.jsonl",
            "known/instances/telegram~3a1/files.jsonl",
        ),
    ];

    fn workspace_dir(path: &str) -> PathBuf {
        Path::new("/s/workspaces/p_a__no-package").join(path)
    }

    /// A disk on which an earlier version worked, and the calls that made it.
    fn older_names() -> (SimulatedDisk, u64) {
        let (disk, layout) = disk();
        open(&disk, &layout, Path::new("/p/a"), None).unwrap();
        for (path, _) in OLDER {
            let path = workspace_dir(path);
            files::ensure_dir(&disk, Path::new("/s"), path.parent().unwrap()).unwrap();
            files::write_synced(&disk, &path, path.as_os_str().as_encoded_bytes()).unwrap();
            disk.sync_dir(path.parent().unwrap()).unwrap();
        }
        // The register of a sandbox contains its file names.
        let run = workspace_dir("sandboxes/%43at-1");
        Register::of(&disk, &run)
            .here()
            .note(&["%41nna/sandbox.json"]);
        let calls = disk.calls();
        (disk, calls)
    }

    fn assert_is_renamed(disk: &SimulatedDisk) {
        for (older, today) in OLDER {
            let [older, today] = [older, today].map(workspace_dir);
            assert_eq!(disk.stat(&older).unwrap(), None, "{}", older.display());
            let mut file = disk.open_read(&today).unwrap();
            let content = read_all(file.as_mut(), 1024).unwrap();
            assert_eq!(content, older.as_os_str().as_encoded_bytes());
        }
        let run = workspace_dir("sandboxes/~43at-1");
        assert_eq!(Register::of(disk, &run).here().check().unwrap(), []);
    }

    #[test]
    fn a_damaged_record_is_reported_and_the_others_are_listed() {
        let (disk, layout) = disk();
        let good = open(&disk, &layout, Path::new("/p/a"), None).unwrap();
        let bad = open(&disk, &layout, Path::new("/p/b"), None).unwrap();
        let path = layout.workspace(&bad.workspace_id).join(WORKSPACE_FILE);
        disk.plant(&path, b"{").unwrap();
        // Both lack their copy, as in a System Root of an earlier version.
        for record in [&good, &bad] {
            let copy = record_copy::path_of(&layout, &record.workspace_id);
            disk.remove_file(&copy).unwrap();
        }
        let (records, unusable) = list(&disk, &layout).unwrap();
        assert_eq!(records, [good]);
        assert_eq!(unusable.len(), 1);
        assert!(open(&disk, &layout, Path::new("/p/b"), None).is_err());
    }

    #[test]
    fn inst_6_the_audit_log_grows_by_whole_lines() {
        let (disk, layout) = disk();
        let id = open(&disk, &layout, Path::new("/p/a"), None)
            .unwrap()
            .workspace_id;
        let record = JsonObject::from_iter([("event".to_owned(), "deleted".into())]);
        append_audit(&disk, &layout, &id, &record).unwrap();
        append_audit(&disk, &layout, &id, &record).unwrap();
        let after = disk.after_crash(Crash::LoseUnsynced);
        let mut file = after
            .open_read(&layout.workspace(&id).join(AUDIT_FILE))
            .unwrap();
        let text = String::from_utf8(read_all(file.as_mut(), 1000).unwrap()).unwrap();
        assert_eq!(text, "{\"event\":\"deleted\"}\n{\"event\":\"deleted\"}\n");
    }
}
