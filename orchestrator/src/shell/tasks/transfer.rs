//! Work areas that come from elsewhere, and those that leave (`TASK-1`, `TASK-10`).

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use goondan_checkpoints::Store;
use goondan_core::{LoadedTask, TaskRef};
use goondan_durable::disk::Disk;
use goondan_durable::{IoContext as _, files};
use goondan_protocol::control::{ControlError, ErrorCode, TaskRemoved};
use goondan_protocol::ids::{AgentName, WorkspaceId};
use goondan_protocol::task::TaskId;
use goondan_tasks::display::happening;
use goondan_tasks::plain_area::{PlainArea, PlainWorker};
use goondan_tasks::work_area::{Guide, HISTORY, WorkArea, WorkAreaError, put_guide};
use goondan_trees::freeze::{EntryPolicy, Options, freeze};
use goondan_trees::limits::Limits;
use goondan_trees::{Excludes, RealFolder};

use super::areas::{GuideFolder, STAGING_PREFIX, refused};
use super::{TaskIo, checkpoints};
use crate::limits::TASK_BACKUPS_OF_ONE_ID_MAX;

fn storage(what: &str, path: &Path, error: &(dyn std::error::Error + 'static)) -> ControlError {
    let text = format!(
        "failed to {what} `{}`: {}",
        path.display(),
        goondan_log::error_chain(error)
    );
    ControlError::new(ErrorCode::Storage, text)
}

/// Copies a work area into a workspace. Its content is not trusted: links to the outside, devices
/// and repositories are omitted, and an invalid task is refused. The import is atomic.
pub(super) fn import(
    ground: &TaskIo,
    id: &WorkspaceId,
    path: &Path,
    guides: &BTreeMap<AgentName, PathBuf>,
    worker: Result<PlainWorker, ControlError>,
) -> Result<LoadedTask, ControlError> {
    let disk = ground.disk.as_ref();
    let tasks = ground.layout.tasks(id);
    files::ensure_dir(disk, ground.layout.above_tasks(), &tasks)
        .map_err(|error| storage("create", &tasks, &error))?;
    if path.starts_with(&tasks) {
        let text = format!("`{}` is already a task of this workspace", path.display());
        return Err(ControlError::new(ErrorCode::TaskTaken, text));
    }
    let source = RealFolder::open(path).map_err(|error| {
        ControlError::new(
            ErrorCode::InvalidRequest,
            format!("failed to open `{}`: {error}", path.display()),
        )
        .suggest(
            "pass a work area: the directory of a task, such as one in `backups/` of a state root",
        )
    })?;
    let parent = RealFolder::open(&tasks).map_err(|error| storage("open", &tasks, &error))?;
    let staging = format!("{STAGING_PREFIX}{}", uuid::Uuid::now_v7().simple());
    let copied = copy(&source, &parent, &tasks.join(&staging), &staging);
    let imported = copied.and_then(|()| {
        translate(disk, &tasks.join(&staging), worker)?;
        adopt_checkpoints(&tasks.join(&staging))?;
        check(ground, id, path, &staging, guides)
    });
    if imported.is_err() {
        let staged = tasks.join(&staging);
        if matches!(disk.stat(&staged), Ok(Some(_)))
            && let Err(error) = disk.remove_tree(&staged)
        {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "failed to remove leftovers of an import"
            );
        }
    }
    imported
}

/// Reason why a task cannot be imported: its id is taken.
fn taken(task_id: &TaskId) -> ControlError {
    let text = format!("the workspace already has a task `{task_id}`");
    ControlError::new(ErrorCode::TaskTaken, text).suggest(format!(
        "remove the existing task, with a backup, once it has ended: `gdn task rm {task_id}`"
    ))
}

fn copy(
    source: &RealFolder,
    parent: &RealFolder,
    staged: &Path,
    staging: &str,
) -> Result<(), ControlError> {
    let excludes = Excludes::new(&[".git"]).map_err(|error| storage("copy", staged, &error))?;
    let options = Options {
        excludes,
        outside_links: EntryPolicy::LeaveOut,
        special: EntryPolicy::LeaveOut,
        limits: Limits::default(),
    };
    let frozen = freeze(source, parent, staging, &options).map_err(|error| {
        let text = format!(
            "failed to copy the work area: {}",
            goondan_log::error_chain(&error)
        );
        ControlError::new(ErrorCode::InvalidRequest, text)
    })?;
    for left_out in frozen.left_out {
        tracing::warn!(path = left_out.path, "import skips a file");
    }
    Ok(())
}

/// Writes a history for a work area of the plain format.
fn translate(
    disk: &dyn Disk,
    staged: &Path,
    worker: Result<PlainWorker, ControlError>,
) -> Result<(), ControlError> {
    let Some(plain) = PlainArea::read(disk, staged).map_err(|error| refused(&error))? else {
        return Ok(());
    };
    let translated = plain.translated(worker?);
    for event in &translated.left_out {
        tracing::warn!(event, "import skips an event of the history");
    }
    translated
        .write(disk, staged)
        .map_err(|error| refused(&error))
}

/// Converts checkpoints of the plain format.
fn adopt_checkpoints(staged: &Path) -> Result<(), ControlError> {
    let folder = RealFolder::open(staged).map_err(|error| storage("open", staged, &error))?;
    let task = staged.file_name().unwrap_or_default().to_string_lossy();
    let store = Store::look(Box::new(folder), Some(task.to_string()));
    let store = store.map_err(|error| storage("read", staged, &error))?;
    checkpoints::adopt(&store, None, &task)
}

fn check(
    ground: &TaskIo,
    id: &WorkspaceId,
    path: &Path,
    staging: &str,
    guides: &BTreeMap<AgentName, PathBuf>,
) -> Result<LoadedTask, ControlError> {
    let disk = ground.disk.as_ref();
    let tasks = &ground.layout.tasks(id);
    let staged = tasks.join(staging);
    let (area, task, _) = WorkArea::load(disk, &staged).map_err(|error| {
        // The message must not name the temporary copy, which no longer exists then.
        let why = refused(&error).message;
        let why = why.replace(&staged.display().to_string(), &path.display().to_string());
        ControlError::new(ErrorCode::InvalidRequest, why)
            .suggest("pass the directory of a task, with its `.metadata/history.jsonl`")
    })?;
    let state = task.state().clone();
    let task_id = state.task.task_id.clone();
    let recent = area.recent().iter().map(happening).collect();
    drop(area);
    if let Some(guide) = guides.get(&state.task.agent) {
        // The task continues without its guide, as if the guide were removed later.
        if let Err(error) = link_guide(&staged, guide) {
            tracing::warn!(
                task_id = %task_id,
                error = &error as &dyn std::error::Error,
                "failed to link the guide of an imported task"
            );
        }
    }
    // The state file contains the task's path.
    let root = tasks.join(task_id.as_str());
    let there = disk
        .stat(&root)
        .map_err(|error| storage("inspect", &root, &error))?;
    if there.is_some() {
        return Err(taken(&task_id));
    }
    // The register of an earlier folder does not apply to this one.
    let at = TaskRef::new(id, &task_id);
    let register = ground.register(&at);
    register
        .begin_again()
        .and_then(|()| register.clone().here().begin_again())
        .map_err(|error| storage("note", &root, &error))?;
    // Renamed on the daemon's disk, which records changes for other nodes.
    disk.rename(&staged, &root)
        .map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty => taken(&task_id),
            _ => storage("rename", &staged, &error),
        })?;
    disk.sync_dir(tasks)
        .map_err(|error| storage("sync", tasks, &error))?;
    drop(WorkArea::load(disk, &root).map_err(|error| refused(&error))?);
    register.note(&[HISTORY]);
    Ok(LoadedTask {
        task_id,
        result: Ok((state, recent)),
    })
}

fn link_guide(work_area: &Path, guide: &Path) -> Result<(), WorkAreaError> {
    let folder = RealFolder::open(work_area).during("open", work_area)?;
    let copier = GuideFolder::open(guide)?;
    let guide = Guide {
        path: guide,
        copier: &copier,
    };
    put_guide(&folder, work_area, guide)
}

/// Removes a work area: moves it to the backups, where it stays readable, or deletes it.
pub(super) fn remove(
    ground: &TaskIo,
    at: &TaskRef,
    with_backup: bool,
) -> Result<TaskRemoved, ControlError> {
    let disk = ground.disk.as_ref();
    let work_area = ground.work_area(at);
    let tasks = ground.layout.tasks(&at.workspace_id);
    let sync = |path: &Path| {
        disk.sync_dir(path)
            .map_err(|error| storage("sync", path, &error))
    };
    ground
        .register(at)
        .forget()
        .map_err(|error| storage("forget", &work_area, &error))?;
    if !with_backup {
        disk.remove_tree(&work_area)
            .map_err(|error| storage("remove", &work_area, &error))?;
        sync(&tasks)?;
        return Ok(TaskRemoved { backup: None });
    }
    let backups = ground.layout.backups();
    files::ensure_dir(disk, ground.layout.above_tasks(), &backups)
        .map_err(|error| storage("create", &backups, &error))?;
    let backup = free_name(ground, &backups, at.task_id.as_str())?;
    // A rename within a file system copies nothing, so nothing can be missing.
    disk.rename(&work_area, &backup)
        .map_err(|error| storage("move", &work_area, &error))?;
    sync(&backups)?;
    sync(&tasks)?;
    if let Err(error) = WorkArea::load(disk, &backup) {
        tracing::warn!(
            task_id = %at.task_id,
            error = &error as &dyn std::error::Error,
            "backup of a removed task is unreadable, as the task was before"
        );
    }
    Ok(TaskRemoved {
        backup: Some(backup),
    })
}

fn free_name(ground: &TaskIo, backups: &Path, task: &str) -> Result<PathBuf, ControlError> {
    for number in 1..=TASK_BACKUPS_OF_ONE_ID_MAX {
        let name = match number {
            1 => task.to_owned(),
            _ => format!("{task}.{number}"),
        };
        let path = backups.join(name);
        let there = ground
            .disk
            .stat(&path)
            .map_err(|error| storage("inspect", &path, &error))?;
        if there.is_none() {
            return Ok(path);
        }
    }
    let text = format!("`{task}` already has {TASK_BACKUPS_OF_ONE_ID_MAX} backups");
    Err(ControlError::new(ErrorCode::TaskRefused, text)
        .suggest("remove some, or remove the task with `--no-backup`"))
}
