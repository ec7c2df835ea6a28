//! The work areas that are open: the last that were used, so many at a time.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use goondan_core::{LoadedTask, LogText, TaskCreationFailure, TaskRef};
use goondan_durable::disk::{EntryKind, Folder};
use goondan_durable::{FileError, IoContext as _};
use goondan_protocol::control::{ControlError, ErrorCode};
use goondan_protocol::ids::{RunId, WorkerId, WorkspaceId};
use goondan_protocol::task::{SANDBOX_WORK, TaskId, TaskItem};
use goondan_protocol::time::Timestamp;
use goondan_store::file_names::sandbox_dir;
use goondan_tasks::display::{LogLine, happening, stream_item};
use goondan_tasks::fact::{HistoryEntry, NewTask};
use goondan_tasks::state::State;
use goondan_tasks::work_area::{CopyGuide, Guide, HISTORY, WorkArea, WorkAreaError, json_line};
use goondan_trees::freeze::{EntryPolicy, Options, freeze};
use goondan_trees::limits::Limits;
use goondan_trees::{Excludes, RealFolder};

use super::SECRETS;
use super::TaskIo;
use super::checkpoints::{self, RESTORING};
use super::logs::{self, Sizes};
use super::stream;
use crate::limits::TASK_AREAS_OPEN_MAX;

/// Prefix of the directory of an unfinished import.
pub(super) const STAGING_PREFIX: &str = ".import-";

struct OpenArea {
    area: WorkArea,
    sizes: Sizes,
    /// Number of the last operation that used the work area.
    used: u64,
}

/// The open work areas.
pub(super) struct Areas {
    ground: TaskIo,
    open: HashMap<TaskRef, OpenArea>,
    works: u64,
}

fn text_of(error: &WorkAreaError) -> String {
    goondan_log::error_chain(error)
}

/// Error for a client about a work area that was not created.
pub(super) fn refused(error: &WorkAreaError) -> ControlError {
    let code = match error {
        WorkAreaError::Taken(_) | WorkAreaError::Occupied { .. } => ErrorCode::TaskTaken,
        WorkAreaError::Damaged { .. } | WorkAreaError::NoTask(_) => ErrorCode::Damaged,
        WorkAreaError::Refused(_) => ErrorCode::TaskRefused,
        WorkAreaError::File(_) | WorkAreaError::Guide(_) => ErrorCode::Storage,
    };
    ControlError::new(code, text_of(error))
}

/// Logs that the state file of a task is behind its history.
fn report_stale(at: &TaskRef, area: &mut WorkArea) {
    if let Some(error) = area.take_stale() {
        tracing::warn!(
            task_id = %at.task_id,
            error = &error as &dyn std::error::Error,
            "failed to write task status; the history is durable, and the next write retries"
        );
    }
}

impl Areas {
    pub(super) fn new(ground: TaskIo) -> Self {
        Self {
            ground,
            open: HashMap::new(),
            works: 0,
        }
    }

    /// Reads all tasks of a workspace.
    pub(super) fn load_all(&mut self, id: &WorkspaceId) -> Result<Vec<LoadedTask>, String> {
        let dir = self.ground.layout.tasks(id);
        let disk = self.ground.disk.clone();
        self.warn_of_tasks_elsewhere(id, &dir);
        let text = |error: std::io::Error| format!("`{}`: {error}", dir.display());
        if disk.stat(&dir).map_err(text)?.is_none() {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        for entry in disk.list(&dir).map_err(text)? {
            let name = entry.name.to_string_lossy().into_owned();
            if name.starts_with(STAGING_PREFIX) {
                if let Err(error) = disk.remove_tree(&dir.join(&entry.name)) {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "failed to remove leftovers of an import"
                    );
                }
                continue;
            }
            // Folders whose names begin with `_` belong to people (`TASK-10`).
            if entry.kind != EntryKind::Directory || name.starts_with(['_', '.']) {
                continue;
            }
            match TaskId::try_from(name) {
                Ok(task) => {
                    let at = TaskRef::new(id, &task);
                    if self.is_unfinished(&at) || self.is_unknown(&at) {
                        tracing::warn!(
                            workspace_id = %id,
                            task_id = %task,
                            "skipping a task folder without a task; a task whose creation was \
                             interrupted can be created again"
                        );
                    } else {
                        found.push(self.load(&at));
                    }
                }
                Err(problem) => tracing::warn!(
                    workspace_id = %id,
                    error = &problem as &dyn std::error::Error,
                    "skipping a folder that is not a task"
                ),
            }
        }
        Ok(found)
    }

    /// Warns of tasks in the directory of earlier versions. They are not moved automatically,
    /// because it may be another file system.
    fn warn_of_tasks_elsewhere(&self, id: &WorkspaceId, dir: &Path) {
        let usual = self.ground.layout.usual_tasks(id);
        if usual != dir
            && let Ok(entries) = self.ground.disk.list(&usual)
            && !entries.is_empty()
        {
            tracing::warn!(
                workspace_id = %id,
                path = %usual.display(),
                tasks = entries.len(),
                "tasks are outside of the tasks directory; stop the daemon and move them to `{}`",
                dir.display()
            );
        }
    }

    /// True if the task does not exist yet. An unreadable path is reported when it is read.
    fn is_unfinished(&self, at: &TaskRef) -> bool {
        let root = self.ground.work_area(at);
        WorkArea::is_unfinished(self.ground.disk.as_ref(), &root).unwrap_or(false)
    }

    /// True if a folder has no history and no register. An unreadable path is reported when it is
    /// read.
    fn is_unknown(&self, at: &TaskRef) -> bool {
        let history = self.ground.work_area(at).join(HISTORY);
        let is_missing = matches!(self.ground.disk.stat(&history), Ok(None));
        is_missing && matches!(self.ground.register(at).exists(), Ok(false))
    }

    /// Reads a task, and keeps its work area open if it may still change.
    pub(super) fn load(&mut self, at: &TaskRef) -> LoadedTask {
        let root = self.ground.work_area(at);
        let restoring = self.ground.disk.stat(&root.join(RESTORING));
        if matches!(restoring, Ok(Some(_))) {
            let boot = checkpoints::boot();
            let copy = self.copy_of_project(at);
            let task = at.task_id.as_str();
            if let Err(error) = checkpoints::finish_restore(&root, copy.as_deref(), task, &boot) {
                return LoadedTask {
                    task_id: at.task_id.clone(),
                    result: Err(format!("failed to finish a restore: {}", error.message)),
                };
            }
        }
        let result = self.try_load(at).map(|(area, state)| {
            let recent = area.recent().iter().map(happening).collect();
            if !state.status().is_final() {
                self.keep(at.clone(), area);
            }
            (state, recent)
        });
        LoadedTask {
            task_id: at.task_id.clone(),
            result: result.map_err(|error| text_of(&error)),
        }
    }

    /// The copy of the project that a task works on; `None` if the task has no source, or cannot be
    /// read. Restores do not change its history.
    fn copy_of_project(&self, at: &TaskRef) -> Option<PathBuf> {
        let (_, state) = self.try_load(at).ok()?;
        if state.task.source.is_none() {
            return None;
        }
        let run = RunId::new(at.task_id.as_str()).ok()?;
        let agent = WorkerId::new(state.task.agent.as_str()).ok()?;
        let sandboxes = self.ground.layout.sandboxes(&at.workspace_id);
        Some(sandbox_dir(&sandboxes, &run, &agent).join(SANDBOX_WORK))
    }

    fn try_load(&self, at: &TaskRef) -> Result<(WorkArea, State), WorkAreaError> {
        let root = self.ground.work_area(at);
        let register = self.ground.register(at);
        // A history without its end looks complete, and the missing facts would be repeated.
        if let Some(lost) = register.compare()?.into_iter().next() {
            return Err(WorkAreaError::Damaged {
                path: lost.path,
                problem: lost.problem,
            });
        }
        let (mut area, task, findings) = WorkArea::load(self.ground.disk.as_ref(), &root)?;
        report_stale(at, &mut area);
        register.note_new(&[HISTORY]);
        register.here().note_new(&[SECRETS]);
        if !task.state().status().is_final() {
            WorkArea::make_directories(self.ground.disk.as_ref(), &root)?;
        }
        for finding in findings {
            tracing::warn!(
                task_id = %at.task_id,
                path = %finding.path.display(),
                problem = finding.problem,
                "work area of a task was damaged"
            );
        }
        let state = task.state().clone();
        if state.task.task_id != at.task_id {
            return Err(WorkAreaError::Damaged {
                problem: format!("it belongs to task `{}`", state.task.task_id),
                path: root,
            });
        }
        Ok((area, state))
    }

    pub(super) fn create(
        &mut self,
        at: &TaskRef,
        new: NewTask,
        guide: Option<&Path>,
        now: Timestamp,
    ) -> Result<(), Box<TaskCreationFailure>> {
        let created = self.try_create(at, new, guide, now);
        let area = created.map_err(|error| {
            // Foreign files are not a task, and stay unchanged.
            let is_none = matches!(error, WorkAreaError::Occupied { .. }) || self.is_unfinished(at);
            let found = (!is_none).then(|| self.load(at));
            let error = refused(&error);
            Box::new(TaskCreationFailure { error, found })
        })?;
        self.keep(at.clone(), area);
        let created = self.open.get(at).map(|open| open.area.recent().clone());
        for entry in created.into_iter().flatten() {
            self.log_fact(at, &entry);
        }
        Ok(())
    }

    fn try_create(
        &self,
        at: &TaskRef,
        new: NewTask,
        guide: Option<&Path>,
        now: Timestamp,
    ) -> Result<WorkArea, WorkAreaError> {
        let TaskIo { disk, layout, .. } = &self.ground;
        let root = self.ground.work_area(at);
        // The register of an earlier folder does not apply to this one.
        let register = self.ground.register(at);
        register.begin_again()?;
        register.here().begin_again()?;
        goondan_durable::files::ensure_dir(disk.as_ref(), layout.above_tasks(), &root)?;
        let folder = RealFolder::open(&root).during("open", &root)?;
        let copier = guide.map(GuideFolder::open).transpose()?;
        let guide = guide.zip(copier.as_ref());
        let guide = guide.map(|(path, copier)| Guide { path, copier });
        let (mut area, _) = WorkArea::create(disk.as_ref(), &folder, &root, new, guide, now)?;
        report_stale(at, &mut area);
        self.ground.register(at).note(&[HISTORY]);
        Ok(area)
    }

    fn keep(&mut self, at: TaskRef, area: WorkArea) {
        self.works += 1;
        let open = OpenArea {
            area,
            sizes: Sizes::default(),
            used: self.works,
        };
        self.open.insert(at, open);
        if self.open.len() > TASK_AREAS_OPEN_MAX {
            let oldest = self.open.iter().min_by_key(|(_, open)| open.used);
            if let Some(oldest) = oldest.map(|(at, _)| at.clone()) {
                self.open.remove(&oldest);
            }
        }
    }

    /// The work area of a task, which is opened if necessary.
    fn area(&mut self, at: &TaskRef) -> Result<&mut OpenArea, WorkAreaError> {
        if !self.open.contains_key(at) {
            let (area, _) = self.try_load(at)?;
            self.keep(at.clone(), area);
        }
        self.works += 1;
        let used = self.works;
        let open = self.open.get_mut(at);
        let open = open.ok_or_else(|| WorkAreaError::NoTask(at.task_id.as_str().into()))?;
        open.used = used;
        Ok(open)
    }

    /// Writes facts of a task, with its state.
    pub(super) fn write(
        &mut self,
        at: &TaskRef,
        state: &State,
        facts: &[HistoryEntry],
    ) -> Result<(), ControlError> {
        let disk = self.ground.disk.clone();
        let written = self.area(at).and_then(|open| {
            open.area.write(disk.as_ref(), state, facts)?;
            report_stale(at, &mut open.area);
            Ok(())
        });
        if let Err(error) = written {
            self.open.remove(at);
            return Err(refused(&error));
        }
        self.ground.register(at).note(&[HISTORY]);
        for entry in facts {
            self.log_fact(at, entry);
        }
        Ok(())
    }

    fn log_fact(&mut self, at: &TaskRef, entry: &HistoryEntry) {
        let mut line = LogLine::new(at.task_id.clone(), entry);
        // Before the text becomes JSON, which may write a value in another form.
        line.message = self.ground.masks.text(&line.message).into_owned();
        self.append(at, |disk, open| {
            logs::append_line(disk, &open.area, &mut open.sizes, line)
        });
        if let Some(item) = stream_item(entry) {
            self.add_to_stream(at, &[item]);
        }
    }

    /// Appends items to a task's stream, masked.
    fn add_to_stream(&mut self, at: &TaskRef, items: &[TaskItem]) {
        let masks = self.ground.masks.clone();
        self.append(at, |disk, open| {
            let mut lines = Vec::new();
            for item in items {
                lines.extend(masks.line(json_line(item)?));
            }
            stream::append(disk, &open.area, &mut open.sizes.stream, &lines)
        });
    }

    /// Appends to a task's log. Failures are only logged by the daemon, because nothing depends on
    /// this log.
    pub(super) fn log(&mut self, at: &TaskRef, text: &LogText) {
        if let LogText::Items(items) = text {
            return self.add_to_stream(at, items);
        }
        self.append(at, |disk, open| match text {
            LogText::Items(_) => Ok(()),
            LogText::Output(stream, text) => {
                let log = logs::of_stream(*stream);
                logs::append(disk, &open.area, &mut open.sizes, log, text.as_bytes())
            }
            LogText::Block(now, block) => {
                logs::append_block(disk, &open.area, &mut open.sizes, block, *now)
            }
        });
    }

    fn append(
        &mut self,
        at: &TaskRef,
        append: impl FnOnce(
            &dyn goondan_durable::disk::Disk,
            &mut OpenArea,
        ) -> Result<(), WorkAreaError>,
    ) {
        let disk = self.ground.disk.clone();
        let appended = self.area(at).and_then(|open| append(disk.as_ref(), open));
        if let Err(error) = appended {
            tracing::warn!(
                task_id = %at.task_id,
                error = &error as &dyn std::error::Error,
                "failed to write a task log"
            );
        }
    }

    pub(super) fn close(&mut self, at: &TaskRef) {
        self.open.remove(at);
    }

    /// Closes all work areas of a workspace.
    pub(super) fn close_all(&mut self, id: &WorkspaceId) {
        self.open.retain(|at, _| at.workspace_id != *id);
    }
}

/// Copies a guide as trees are copied.
#[derive(Debug)]
pub(super) struct GuideFolder(RealFolder);

impl GuideFolder {
    pub(super) fn open(path: &Path) -> Result<Self, FileError> {
        Ok(Self(RealFolder::open(path).during("open", path)?))
    }
}

impl CopyGuide for GuideFolder {
    fn copy(
        &self,
        into: &dyn Folder,
        name: &str,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let options = Options {
            excludes: Excludes::new::<&str>(&[])?,
            outside_links: EntryPolicy::LeaveOut,
            special: EntryPolicy::LeaveOut,
            limits: Limits::default(),
        };
        freeze(&self.0, into, name, &options)?;
        Ok(())
    }
}
