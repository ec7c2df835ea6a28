//! The work area: the directory of a task, which alone restores it (`TASK-1`, `TASK-2`).
//!
//! `.metadata/history.jsonl` is what counts. The other files of `.metadata` are written from the state after
//! it, for people and programs that want to know how the task stands; where they differ, they are written
//! anew.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use goondan_cli_agents::blocks::Block;
use goondan_durable::disk::{Disk, EntryKind, Folder, append_all, read_all};
use goondan_durable::journal::Journal;
use goondan_durable::sealed::SealedLog;
use goondan_durable::{FileError, Finding, IoContext as _, Severity, files};
pub use goondan_protocol::task::HISTORY;
use goondan_protocol::task::KEPT_DIRECTORIES;
use goondan_protocol::time::Timestamp;
use serde::Serialize;
pub use views::json_line;

use crate::fact::{Entry, Fact, NewTask};
use crate::limits::RECENT_FACTS;
use crate::machine::{Refused, Task};
use crate::state::State;

mod repair;
mod views;

pub use repair::{Records, Repaired, read_history};

/// Directories of every work area, above before below. `src` and `tests` are for those that have them.
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

/// Where integration tests lie.
const INTEGRATION_TESTS: &str = "tests/integration";

/// Where it is written how the task stands.
const METADATA: &str = ".metadata";

/// Where the logs lie.
const LOGS: &str = ".logs";

/// The link to the guide.
const GUIDE: &str = "guide";

/// Bytes of a file of `.metadata` that are read back at most.
const VIEW_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Why a work area cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WorkAreaError {
    /// A file could not be read or written. The work area is to be loaded again.
    #[error(transparent)]
    File(#[from] FileError),
    /// There is a task already.
    #[error("`{}` holds a task already", .0.display())]
    Taken(PathBuf),
    /// There is no task.
    #[error("`{}` holds no task: `{HISTORY}` is missing or empty", .0.display())]
    NoTask(PathBuf),
    /// There are files of something else, which a task must not take over.
    #[error(
        "`{}` holds files and no task; `{}` is the first of them: move them away, or take another id",
        directory.display(), file.display()
    )]
    Occupied {
        /// The directory.
        directory: PathBuf,
        /// The first of the files.
        file: PathBuf,
    },
    /// The history is not as it was written: the task cannot be known from it.
    #[error("`{}` is damaged: {problem}; restore it from a backup", path.display())]
    Damaged {
        /// The history.
        path: PathBuf,
        /// What is wrong, the first of it.
        problem: String,
    },
    /// The guide could not be copied.
    #[error("the guide cannot be copied")]
    Guide(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The task is none.
    #[error(transparent)]
    Refused(#[from] Refused),
}

/// Where a task's guide comes from.
#[derive(Debug, Clone, Copy)]
pub struct Guide<'g> {
    /// Its directory, which the link points to.
    pub path: &'g Path,
    /// Copies it where no link can be made.
    pub copier: &'g dyn CopyGuide,
}

/// Copies a guide. Trees of files are no concern of tasks.
pub trait CopyGuide: std::fmt::Debug {
    /// Copies it into a directory, under this name. Durable when it returns.
    ///
    /// # Errors
    ///
    /// Why it cannot be copied whole.
    fn copy(
        &self,
        into: &dyn Folder,
        name: &str,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>>;
}

/// Links the guide of a work area, or copies it where the file system has no links (`TASK-2`). One that is there
/// stays. `folder` is the work area, too.
///
/// # Errors
///
/// [`WorkAreaError`].
pub fn put_guide(folder: &dyn Folder, root: &Path, guide: Guide<'_>) -> Result<(), WorkAreaError> {
    let (link, path) = (Path::new(GUIDE), root.join(GUIDE));
    if folder.look(link).during("look at", &path)?.is_none() {
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
    // One that a crash left may not have its name for good.
    Ok(folder.sync_dir(Path::new("")).during("sync", root)?)
}

/// Whether a directory that is there is one: by a link, files elsewhere would be written.
fn check_directory(disk: &dyn Disk, path: &Path) -> Result<(), WorkAreaError> {
    match disk.stat(path).during("look at", path)? {
        Some(stat) if stat.kind != EntryKind::Directory => Err(WorkAreaError::Damaged {
            path: path.to_owned(),
            problem: "it is no directory".to_owned(),
        }),
        _ => Ok(()),
    }
}

/// A file of `.logs`. Each is only appended to; what a crash takes of it is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Log {
    /// What happened, in words: `agent.log`.
    Agent,
    /// What the agent wrote: `stdout.log`.
    Stdout,
    /// What it wrote beside: `stderr.log`.
    Stderr,
    /// The protocol blocks: `protocols.jsonl`.
    Protocols,
}

/// All of them. They exist from the start (`TASK-2`).
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
        }
    }
}

/// An open work area.
#[derive(Debug)]
pub struct WorkArea {
    root: PathBuf,
    history: SealedLog,
    recent: VecDeque<Entry>,
    /// What the views hold, as far as that is known.
    written: [Option<Vec<u8>>; 3],
    /// Why the views are behind the history.
    stale: Option<WorkAreaError>,
}

impl WorkArea {
    /// Makes the work area of a new task in a directory that is there and holds none. `folder` is that
    /// directory, too; Durable when it returns; after a crash there is
    /// a whole task, or none and this can be done again.
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
            let is_there = disk.stat(&history).during("look at", &history)?.is_some();
            let is_task = is_there && !is_empty_history(disk, root, Path::new(HISTORY))?;
            return Err(match is_task {
                true => WorkAreaError::Taken(directory),
                false => WorkAreaError::Occupied { directory, file },
            });
        }
        for directory in DIRECTORIES.iter().chain([&INTEGRATION_TESTS]) {
            let path = root.join(directory);
            files::ensure_dir(disk, root, &path)?;
            // One that a crash left may not have its name for good.
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

    /// True if a task was being made there when the machine stopped, and nobody was told that it exists: it can be made
    /// again. A directory that holds any file of another making is no such one.
    ///
    /// # Errors
    ///
    /// [`WorkAreaError::File`].
    pub fn is_unfinished(disk: &dyn Disk, root: &Path) -> Result<bool, WorkAreaError> {
        Ok(foreign(disk, root)?.is_none())
    }

    /// Makes the directories and logs that are missing in a work area that came from another node, which has its
    /// history alone.
    ///
    /// # Errors
    ///
    /// [`WorkAreaError::File`].
    pub fn make_directories(disk: &dyn Disk, root: &Path) -> Result<(), WorkAreaError> {
        for directory in DIRECTORIES {
            let path = root.join(directory);
            if disk.stat(&path).during("look at", &path)?.is_none() {
                files::ensure_dir(disk, root, &path)?;
            }
        }
        make_logs(disk, root)
    }

    /// Opens a work area, and gives its task as it was left, with nothing but what lies in it. What a crash
    /// left over is cut off and told.
    ///
    /// # Errors
    ///
    /// [`WorkAreaError`]; nothing is changed then.
    pub fn load(disk: &dyn Disk, root: &Path) -> Result<(Self, Task, Vec<Finding>), WorkAreaError> {
        for directory in KEPT_DIRECTORIES {
            check_directory(disk, &root.join(directory))?;
        }
        let path = root.join(HISTORY);
        if disk.stat(&path).during("look at", &path)?.is_none() {
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
            let entry = Entry::from_record(&record)
                .map_err(|error| damaged(format!("line {}: {error}", span.line)))?;
            match (&mut state, &entry.fact) {
                (None, Fact::TaskCreated(task)) => {
                    state = Some(State::new(task.clone(), entry.timestamp));
                }
                (Some(state), fact) if !matches!(fact, Fact::TaskCreated(_)) => state.apply(&entry),
                _ => {
                    return Err(damaged(format!(
                        "line {}: a task is made once, first",
                        span.line
                    )));
                }
            }
            note(&mut recent, entry);
        }
        let state = state.ok_or_else(|| WorkAreaError::NoTask(root.to_owned()))?;
        // What a killed daemon wrote can be read before it is durable.
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

    /// Writes facts, and how the task stands with them. The facts are durable when it returns; only then what follows
    /// from them may be done.
    ///
    /// # Errors
    ///
    /// [`WorkAreaError::File`]: nothing of it may be acknowledged, and the work area is to be loaded again.
    pub fn write(
        &mut self,
        disk: &dyn Disk,
        state: &State,
        facts: &[Entry],
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

    /// The last lines of the history, the newest last.
    #[must_use]
    pub fn recent(&self) -> &VecDeque<Entry> {
        &self.recent
    }

    /// Writes how the task stands. The history has it already, so a full disk, say, is no reason to refuse what is durable:
    /// the next write tries again.
    fn refresh_views(&mut self, disk: &dyn Disk, state: &State) {
        self.stale = self.write_views(disk, state).err();
    }

    /// Why the files that say how the task stands are behind its history; nothing if they are not. Returned once.
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

    /// Where a log is.
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
        // A program that is confined by Landlock alone can put a link there.
        check_directory(disk, &self.root.join(LOGS))?;
        let path = self.root.join(log.path());
        let mut file = disk.open(&path).during("open", &path)?;
        Ok(append_all(file.as_mut(), bytes).during("append to", &path)?)
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

/// Makes the logs that are missing. What is missing after a crash is made by the next one to open them.
fn make_logs(disk: &dyn Disk, root: &Path) -> Result<(), WorkAreaError> {
    for log in LOG_FILES {
        let path = root.join(log.path());
        disk.open(&path).during("open", &path)?;
    }
    Ok(())
}

/// A file in a directory that the making of a task does not leave there when it is cut short; none if there is none. A
/// history is one as soon as it has a line.
fn foreign(disk: &dyn Disk, root: &Path) -> Result<Option<PathBuf>, WorkAreaError> {
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        let at = root.join(&directory);
        match disk.stat(&at).during("look at", &at)?.map(|stat| stat.kind) {
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
            // A guide that was copied has files of its own.
            if entry.kind == EntryKind::Directory && !is_guide(&path) {
                directories.push(path);
            }
        }
    }
    Ok(None)
}

/// True for a directory of every new work area.
fn is_made(path: &Path) -> bool {
    let mut made = DIRECTORIES.iter().chain([&INTEGRATION_TESTS]);
    is_guide(path) || made.any(|made| path == Path::new(made))
}

/// True for a guide that was copied, and for what of it a crash leaves.
fn is_guide(path: &Path) -> bool {
    let name = path.to_string_lossy();
    path.components().count() == 1 && name.trim_start_matches('.').starts_with(GUIDE)
}

/// True for a log without a byte: all logs are made with the directories.
fn is_empty_log(disk: &dyn Disk, root: &Path, path: &Path) -> Result<bool, WorkAreaError> {
    if !LOG_FILES.iter().any(|log| path == Path::new(log.path())) {
        return Ok(false);
    }
    let at = root.join(path);
    let stat = disk.stat(&at).during("look at", &at)?;
    Ok(stat.is_none_or(|stat| stat.len == 0))
}

/// True for a history without a whole line, and for the torn lines that were kept beside it.
fn is_empty_history(disk: &dyn Disk, root: &Path, path: &Path) -> Result<bool, WorkAreaError> {
    if path != Path::new(HISTORY) {
        let torn = format!("{HISTORY}.torn-");
        return Ok(path.to_string_lossy().starts_with(&torn));
    }
    let whole_lines = Journal::open_read(disk, &root.join(path))?.scan(|_, _| {})?;
    Ok(whole_lines == 0)
}

/// Keeps the last of what happened.
fn note(recent: &mut VecDeque<Entry>, entry: Entry) {
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

/// A view as it lies there. One that cannot be read as one is written anew.
fn read_view(disk: &dyn Disk, path: &Path) -> Result<Option<Vec<u8>>, FileError> {
    let Some(stat) = disk.stat(path).during("look at", path)? else {
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
