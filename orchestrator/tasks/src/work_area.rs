//! The work area: the directory of a task, which alone restores it (`TASK-1`, `TASK-2`).
//!
//! `.metadata/history.jsonl` is authoritative. The other files of `.metadata` are views for people
//! and programs, written from the state after each change; views that differ from the state are
//! rewritten.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use goondan_cli_agents::blocks::Block;
use goondan_durable::disk::{Disk, EntryKind, Folder, append_all, read_all};
use goondan_durable::journal::Journal;
use goondan_durable::sealed_log::SealedLog;
use goondan_durable::{FileError, Finding, IoContext as _, Severity, files};
pub use goondan_protocol::task::HISTORY;
use goondan_protocol::task::KEPT_DIRECTORIES;
use goondan_protocol::time::Timestamp;
use serde::Serialize;
pub use views::json_line;

use crate::fact::{HistoryEntry, NewTask, TaskEvent};
use crate::limits::RECENT_FACTS;
use crate::machine::{InputRefusal, Task};
use crate::state::State;

mod repair;
mod views;

pub use repair::{Records, RepairResult, read_history};

/// Directories of every work area, parents first. `src` and `tests` are optional.
const DIRECTORIES: [&str; 11] = [
    ".metadata",
    ".checkpoints",
    ".logs",
    ".cache",
    ".cache/prompt-cache",
    "docs",
    "docs/planning",
    "docs/design",
    "src",
    "tests",
    "tests/unit",
];

const INTEGRATION_TESTS: &str = "tests/integration";

/// Directory of the history and the views.
const METADATA: &str = ".metadata";

const LOGS: &str = ".logs";

const GUIDE: &str = "guide";

/// Maximum bytes read back of a file of `.metadata`.
const VIEW_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Reason why a work area cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WorkAreaError {
    /// A file could not be read or written. The work area must be loaded again.
    #[error(transparent)]
    File(#[from] FileError),
    /// The directory already contains a task.
    #[error("`{}` already contains a task", .0.display())]
    Taken(PathBuf),
    /// The directory contains no task.
    #[error("`{}` contains no task: `{HISTORY}` is missing or empty", .0.display())]
    NoTask(PathBuf),
    /// The directory contains unrelated files, which a task must not take over.
    #[error(
        "`{}` contains files but no task, such as `{}`: move the files away, or choose another id",
        directory.display(), file.display()
    )]
    Occupied {
        directory: PathBuf,
        /// The first of the files.
        file: PathBuf,
    },
    /// The history is damaged, so the task cannot be restored from it.
    #[error("`{}` is damaged: {problem}; restore it from a backup", path.display())]
    Damaged { path: PathBuf, problem: String },
    /// The guide could not be copied.
    #[error("failed to copy the guide")]
    Guide(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error(transparent)]
    Refused(#[from] InputRefusal),
}

/// Source of a task's guide.
#[derive(Debug, Clone, Copy)]
pub struct Guide<'g> {
    /// Its directory, the target of the link.
    pub path: &'g Path,
    /// Copies it where links are not supported.
    pub copier: &'g dyn CopyGuide,
}

/// Copies a guide. Tasks do not handle file trees themselves.
pub trait CopyGuide: std::fmt::Debug {
    /// Copies it into a directory, under this name. Durable on return.
    ///
    /// # Errors
    ///
    /// The reason why it could not be copied completely.
    fn copy(
        &self,
        into: &dyn Folder,
        name: &str,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>>;
}

/// Links the guide into a work area, or copies it where the file system has no links (`TASK-2`). An
/// existing guide is kept. `folder` is also the work area.
///
/// # Errors
///
/// [`WorkAreaError`].
pub fn put_guide(folder: &dyn Folder, root: &Path, guide: Guide<'_>) -> Result<(), WorkAreaError> {
    let (link, path) = (Path::new(GUIDE), root.join(GUIDE));
    if folder.look(link).during("inspect", &path)?.is_none() {
        match folder.create_link(link, guide.path) {
            Ok(()) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::PermissionDenied | ErrorKind::Unsupported
                ) =>
            {
                let copied = guide.copier.copy(folder, GUIDE);
                copied.map_err(WorkAreaError::Guide)?;
            }
            Err(error) => {
                return Err(error)
                    .during("link", &path)
                    .map_err(WorkAreaError::from);
            }
        }
    }
    // After a crash, the entry of an existing directory may not be durable.
    Ok(folder.sync_dir(Path::new("")).during("sync", root)?)
}

/// Checks that an existing path is a directory: through a link, files elsewhere would be
/// overwritten.
fn check_directory(disk: &dyn Disk, path: &Path) -> Result<(), WorkAreaError> {
    match disk.stat(path).during("inspect", path)? {
        Some(stat) if stat.kind != EntryKind::Directory => Err(WorkAreaError::Damaged {
            path: path.to_owned(),
            problem: "it is not a directory".to_owned(),
        }),
        _ => Ok(()),
    }
}

/// A file of `.logs`. Logs are append-only and not synced; a crash can lose their tail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Log {
    /// Readable events: `agent.log`.
    Agent,
    /// Output of the agent: `stdout.log`.
    Stdout,
    /// Its error output: `stderr.log`.
    Stderr,
    /// The protocol blocks: `protocols.jsonl`.
    Protocols,
    /// The stream: `stream.jsonl`.
    Stream,
}

/// Older part of the stream, below the work area.
pub const OLDER_STREAM: &str = ".logs/stream.older.jsonl";

/// Logs that exist from the start (`TASK-2`).
const LOG_FILES: [Log; 4] = [Log::Agent, Log::Stdout, Log::Stderr, Log::Protocols];

impl Log {
    /// Its path below the work area.
    #[must_use]
    pub fn path(self) -> &'static str {
        match self {
            Self::Agent => ".logs/agent.log",
            Self::Stdout => ".logs/stdout.log",
            Self::Stderr => ".logs/stderr.log",
            Self::Protocols => ".logs/protocols.jsonl",
            Self::Stream => ".logs/stream.jsonl",
        }
    }
}

#[derive(Debug)]
pub struct WorkArea {
    root: PathBuf,
    history: SealedLog,
    recent: VecDeque<HistoryEntry>,
    /// Contents of the views, if known.
    written: [Option<Vec<u8>>; 3],
    /// Reason why the views are behind the history.
    stale: Option<WorkAreaError>,
}

impl WorkArea {
    /// Creates the work area of a new task in an existing directory without a task. `folder` is
    /// also that directory. Durable on return. After a crash there is either a complete task, or
    /// none and the call can be repeated.
    ///
    /// # Errors
    ///
    /// [`WorkAreaError`].
    pub fn create(
        disk: &dyn Disk,
        folder: &dyn Folder,
        root: &Path,
        new: NewTask,
        guide: Option<Guide<'_>>,
        now: Timestamp,
    ) -> Result<(Self, Task), WorkAreaError> {
        let (task, created) = Task::create(new, now)?;
        if let Some(file) = foreign(disk, root)? {
            let directory = root.to_owned();
            let history = root.join(HISTORY);
            let is_there = disk.stat(&history).during("inspect", &history)?.is_some();
            let is_task = is_there && !is_empty_history(disk, root, Path::new(HISTORY))?;
            return Err(match is_task {
                true => WorkAreaError::Taken(directory),
                false => WorkAreaError::Occupied { directory, file },
            });
        }
        for directory in DIRECTORIES.iter().chain([&INTEGRATION_TESTS]) {
            let path = root.join(directory);
            files::ensure_dir(disk, root, &path)?;
            // After a crash, the entry of an existing directory may not be durable.
            let above = path.parent().unwrap_or(root);
            disk.sync_dir(above).during("sync", above)?;
        }
        if let Some(guide) = guide {
            put_guide(folder, root, guide)?;
        }
        make_logs(disk, root)?;
        let path = root.join(HISTORY);
        let (history, reading) = SealedLog::open(disk, &path)?;
        if !reading.records.is_empty() || !reading.broken.is_empty() {
            return Err(WorkAreaError::Taken(root.to_owned()));
        }
        disk.sync_dir(&root.join(".metadata"))
            .during("sync", &root.join(".metadata"))?;
        let mut area = Self {
            root: root.to_owned(),
            history,
            recent: VecDeque::new(),
            written: Default::default(),
            stale: None,
        };
        area.write(disk, task.state(), &[created])?;
        Ok((area, task))
    }

    /// True if the machine stopped during the creation of a task there, and the task was never
    /// acknowledged: it can be created again. False if the directory holds any unrelated file.
    ///
    /// # Errors
    ///
    /// [`WorkAreaError::File`].
    pub fn is_unfinished(disk: &dyn Disk, root: &Path) -> Result<bool, WorkAreaError> {
        Ok(foreign(disk, root)?.is_none())
    }

    /// Creates missing directories and logs in a work area that came from another node, which
    /// contains only its history.
    ///
    /// # Errors
    ///
    /// [`WorkAreaError::File`].
    pub fn make_directories(disk: &dyn Disk, root: &Path) -> Result<(), WorkAreaError> {
        for directory in DIRECTORIES {
            let path = root.join(directory);
            if disk.stat(&path).during("inspect", &path)?.is_none() {
                files::ensure_dir(disk, root, &path)?;
            }
        }
        make_logs(disk, root)
    }

    /// Opens a work area and restores its task from the directory alone. Crash leftovers are
    /// truncated and reported.
    ///
    /// # Errors
    ///
    /// [`WorkAreaError`]; nothing is changed then.
    pub fn load(disk: &dyn Disk, root: &Path) -> Result<(Self, Task, Vec<Finding>), WorkAreaError> {
        for directory in KEPT_DIRECTORIES {
            check_directory(disk, &root.join(directory))?;
        }
        let path = root.join(HISTORY);
        if disk.stat(&path).during("inspect", &path)?.is_none() {
            return Err(WorkAreaError::NoTask(root.to_owned()));
        }
        let (mut history, reading) = SealedLog::open(disk, &path)?;
        let damaged = |problem: String| WorkAreaError::Damaged {
            path: path.clone(),
            problem,
        };
        let worst = reading
            .findings
            .iter()
            .find(|finding| finding.severity > Severity::Warning);
        if let Some(finding) = worst {
            return Err(damaged(finding.problem.clone()));
        }
        let mut state: Option<State> = None;
        let mut recent = VecDeque::new();
        for span in reading.records {
            let record = history.record(span)?;
            let entry = HistoryEntry::from_record(&record)
                .map_err(|error| damaged(format!("line {}: {error}", span.line)))?;
            match (&mut state, &entry.fact) {
                (None, TaskEvent::TaskCreated(task)) => {
                    state = Some(State::new(task.clone(), entry.timestamp));
                }
                (Some(state), fact) if !matches!(fact, TaskEvent::TaskCreated(_)) => {
                    state.apply(&entry);
                }
                _ => {
                    return Err(damaged(format!(
                        "line {}: the creation of the task must be the first record and occur once",
                        span.line
                    )));
                }
            }
            note(&mut recent, entry);
        }
        let state = state.ok_or_else(|| WorkAreaError::NoTask(root.to_owned()))?;
        // The output of a killed daemon can be read before it is durable.
        history.sync()?;
        let mut area = Self {
            root: root.to_owned(),
            history,
            recent,
            written: Default::default(),
            stale: None,
        };
        for (known, name) in area.written.iter_mut().zip(views::NAMES) {
            *known = read_view(disk, &root.join(name))?;
        }
        let task = Task::restored(state);
        area.refresh_views(disk, task.state());
        Ok((area, task, reading.findings))
    }

    /// Writes facts, and the views that include them. The facts are durable on return; their
    /// effects must not be executed earlier.
    ///
    /// # Errors
    ///
    /// [`WorkAreaError::File`]: none of the facts may be acknowledged, and the work area must be
    /// loaded again.
    pub fn write(
        &mut self,
        disk: &dyn Disk,
        state: &State,
        facts: &[HistoryEntry],
    ) -> Result<(), WorkAreaError> {
        if facts.is_empty() {
            return Ok(());
        }
        for entry in facts {
            self.history.append(entry)?;
        }
        self.history.sync()?;
        for entry in facts {
            note(&mut self.recent, entry.clone());
        }
        check_directory(disk, &self.root.join(METADATA))?;
        self.refresh_views(disk, state);
        Ok(())
    }

    /// The most recent records of the history, the newest last.
    #[must_use]
    pub fn recent(&self) -> &VecDeque<HistoryEntry> {
        &self.recent
    }

    /// Writes the views. The facts are already durable, so a failure (a full disk, for example) is
    /// not reported as an error: the next write tries again.
    fn refresh_views(&mut self, disk: &dyn Disk, state: &State) {
        self.stale = self.write_views(disk, state).err();
    }

    /// Returns why the views are behind the history, once; none if they are current.
    pub fn take_stale(&mut self) -> Option<WorkAreaError> {
        self.stale.take()
    }

    fn write_views(&mut self, disk: &dyn Disk, state: &State) -> Result<(), WorkAreaError> {
        let views = views::views_of(state, &self.root)?;
        for ((known, name), view) in self.written.iter_mut().zip(views::NAMES).zip(views) {
            if known.as_ref() != Some(&view) {
                *known = None;
                files::replace(disk, &self.root.join(name), &view)?;
                *known = Some(view);
            }
        }
        Ok(())
    }

    #[must_use]
    pub fn log_path(&self, log: Log) -> PathBuf {
        self.root.join(log.path())
    }

    /// Appends to a log.
    ///
    /// # Errors
    ///
    /// [`WorkAreaError::File`].
    pub fn log(&self, disk: &dyn Disk, log: Log, bytes: &[u8]) -> Result<(), WorkAreaError> {
        // A program that is confined only by Landlock can place a link there.
        check_directory(disk, &self.root.join(LOGS))?;
        let path = self.root.join(log.path());
        let mut file = disk.open(&path).during("open", &path)?;
        Ok(append_all(file.as_mut(), bytes).during("append to", &path)?)
    }

    /// Begins a new part of the stream; the present one replaces the older one.
    ///
    /// # Errors
    ///
    /// [`WorkAreaError::File`].
    pub fn rotate_stream(&self, disk: &dyn Disk) -> Result<(), WorkAreaError> {
        check_directory(disk, &self.root.join(LOGS))?;
        let path = self.root.join(Log::Stream.path());
        let older = self.root.join(OLDER_STREAM);
        Ok(disk.rename(&path, &older).during("rename", &path)?)
    }

    /// Appends a protocol block to `protocols.jsonl` (`PROTO-1`).
    ///
    /// # Errors
    ///
    /// [`WorkAreaError::File`].
    pub fn log_block(
        &self,
        disk: &dyn Disk,
        block: &Block,
        timestamp: Timestamp,
    ) -> Result<(), WorkAreaError> {
        let line = ProtocolLine { timestamp, block };
        self.log(disk, Log::Protocols, &json_line(&line)?)
    }
}

/// Creates missing logs, including those that a crash removed.
fn make_logs(disk: &dyn Disk, root: &Path) -> Result<(), WorkAreaError> {
    for log in LOG_FILES {
        let path = root.join(log.path());
        disk.open(&path).during("open", &path)?;
    }
    Ok(())
}

/// Returns a file that an interrupted creation of a task does not leave behind; none if there is no
/// such file. A history counts as soon as it has a line.
fn foreign(disk: &dyn Disk, root: &Path) -> Result<Option<PathBuf>, WorkAreaError> {
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        let at = root.join(&directory);
        match disk.stat(&at).during("inspect", &at)?.map(|stat| stat.kind) {
            Some(EntryKind::Directory) => {}
            Some(_) => return Ok(Some(at)),
            None => continue,
        }
        for entry in disk.list(&at).during("list", &at)? {
            let path = directory.join(&entry.name);
            let is_own = match entry.kind {
                EntryKind::Directory => is_made(&path),
                EntryKind::File => {
                    is_empty_log(disk, root, &path)? || is_empty_history(disk, root, &path)?
                }
                EntryKind::Other => path.starts_with(GUIDE),
            };
            if !is_own {
                return Ok(Some(root.join(path)));
            }
            // A copied guide has its own files.
            if entry.kind == EntryKind::Directory && !is_guide(&path) {
                directories.push(path);
            }
        }
    }
    Ok(None)
}

/// True for a directory that every new work area has.
fn is_made(path: &Path) -> bool {
    let mut made = DIRECTORIES.iter().chain([&INTEGRATION_TESTS]);
    is_guide(path) || made.any(|made| path == Path::new(made))
}

/// True for a copied guide, and for the parts that a crash leaves.
fn is_guide(path: &Path) -> bool {
    let name = path.to_string_lossy();
    path.components().count() == 1 && name.trim_start_matches('.').starts_with(GUIDE)
}

/// True for an empty log: all logs are created with the directories.
fn is_empty_log(disk: &dyn Disk, root: &Path, path: &Path) -> Result<bool, WorkAreaError> {
    if !LOG_FILES.iter().any(|log| path == Path::new(log.path())) {
        return Ok(false);
    }
    let at = root.join(path);
    let stat = disk.stat(&at).during("inspect", &at)?;
    Ok(stat.is_none_or(|stat| stat.len == 0))
}

/// True for a history without a complete line, and for the torn lines kept next to it.
fn is_empty_history(disk: &dyn Disk, root: &Path, path: &Path) -> Result<bool, WorkAreaError> {
    if path != Path::new(HISTORY) {
        let torn = format!("{HISTORY}.torn-");
        return Ok(path.to_string_lossy().starts_with(&torn));
    }
    let whole_lines = Journal::open_read(disk, &root.join(path))?.scan(|_, _| {})?;
    Ok(whole_lines == 0)
}

/// Keeps the most recent facts.
fn note(recent: &mut VecDeque<HistoryEntry>, entry: HistoryEntry) {
    if recent.len() >= RECENT_FACTS {
        recent.pop_front();
    }
    recent.push_back(entry);
}

/// A line of `protocols.jsonl`.
#[derive(Debug, Serialize)]
struct ProtocolLine<'b> {
    timestamp: Timestamp,
    #[serde(flatten)]
    block: &'b Block,
}

/// Reads a view; none if it is unreadable, so that it is rewritten.
fn read_view(disk: &dyn Disk, path: &Path) -> Result<Option<Vec<u8>>, FileError> {
    let Some(stat) = disk.stat(path).during("inspect", path)? else {
        return Ok(None);
    };
    if stat.len > VIEW_BYTES_MAX as u64 {
        return Ok(None);
    }
    let mut file = disk.open_read(path).during("open", path)?;
    read_all(file.as_mut(), VIEW_BYTES_MAX)
        .during("read", path)
        .map(Some)
}

#[cfg(test)]
mod tests;
