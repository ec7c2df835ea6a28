//! Disk space of the state root by kind of data, with its bound and the command that frees it.
//!
//! Only names and lengths are read. Links are not followed.

use std::ffi::OsStr;
use std::fs;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::output::style;
use crate::output::table::{Cell, Column, Table};
use crate::output::text;

/// Maximum depth of the scan, which a program of an agent could make endless.
const DEPTH_MAX: usize = 256;

/// Marks in the file names of copies that goondan has set aside.
const SET_ASIDE: [&str; 4] = [".torn-", ".damaged", ".replaced", ".parked"];

/// Variable that moves the work areas of tasks.
const TASKS_ROOT_VAR: &str = "GOONDAN_TASKS_ROOT";

/// Kind of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum DiskClass {
    Conversations,
    Traces,
    WorkDirectories,
    Checkpoints,
    Tasks,
    RemovedTasks,
    Sandboxes,
    SetAside,
    Packages,
    Caches,
    Logs,
    Replication,
    System,
}

impl DiskClass {
    const ALL: [Self; 13] = [
        Self::Conversations,
        Self::Traces,
        Self::WorkDirectories,
        Self::Checkpoints,
        Self::Tasks,
        Self::RemovedTasks,
        Self::Sandboxes,
        Self::SetAside,
        Self::Packages,
        Self::Caches,
        Self::Logs,
        Self::Replication,
        Self::System,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Conversations => "conversations",
            Self::Traces => "traces",
            Self::WorkDirectories => "work directories",
            Self::Checkpoints => "checkpoints",
            Self::Tasks => "tasks",
            Self::RemovedTasks => "removed tasks",
            Self::Sandboxes => "sandboxes",
            Self::SetAside => "set aside",
            Self::Packages => "packages",
            Self::Caches => "caches",
            Self::Logs => "logs",
            Self::Replication => "replication",
            Self::System => "system",
        }
    }

    /// Limit of its size.
    fn bound(self, logs: &LogBound) -> String {
        match self {
            Self::Conversations => "policy.lifecycle.ttlSeconds, if set".to_owned(),
            Self::Traces => "policy.observation, for each log".to_owned(),
            Self::Checkpoints => "a number for each conversation and task".to_owned(),
            Self::Tasks => "runtime.diskMiB of the agent, for each task".to_owned(),
            Self::Logs => text::bytes(logs.max_file_bytes.saturating_mul(logs.max_files)),
            Self::WorkDirectories
            | Self::RemovedTasks
            | Self::Sandboxes
            | Self::SetAside
            | Self::Packages
            | Self::Caches
            | Self::Replication
            | Self::System => "none".to_owned(),
        }
    }

    /// Command or action that frees space.
    fn frees(self) -> &'static str {
        match self {
            Self::Conversations | Self::WorkDirectories => {
                "gdn conversation prune --older-than 90d"
            }
            Self::Traces => "lower policy.observation.maxMiB",
            Self::Checkpoints | Self::Tasks => "gdn task prune --older-than 30d",
            Self::RemovedTasks => "remove directories in backups/ by hand",
            Self::Sandboxes => "gdn proposal sandbox remove",
            Self::SetAside => "remove the files while the daemon is stopped",
            Self::Packages => "gdn daemon gc",
            Self::Caches => "remove caches/ while the daemon is stopped",
            Self::Logs => "lower log.maxFiles in config.json",
            Self::Replication | Self::System => "-",
        }
    }
}

/// Limits of the log files.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LogBound {
    max_file_bytes: u64,
    max_files: u64,
}

impl Default for LogBound {
    fn default() -> Self {
        Self {
            max_file_bytes: 16 * 1024 * 1024,
            max_files: 8,
        }
    }
}

/// Settings of the state root that concern its size. The daemon reports invalid ones.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Settings {
    log: LogBound,
    tasks_root: Option<PathBuf>,
}

/// Size of one kind of data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct DiskShare {
    class: DiskClass,
    bytes: u64,
    files: u64,
    bound: String,
    frees: &'static str,
}

/// Sizes of all kinds of data.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DiskUsage {
    classes: Vec<DiskShare>,
    bytes: u64,
    /// Free bytes of the file system; absent if it does not report them.
    #[serde(skip_serializing_if = "Option::is_none")]
    free_bytes: Option<u64>,
    /// Number of directories that could not be read.
    unreadable: u64,
}

/// Scans a state root.
pub(super) fn survey(state_root: &Path) -> DiskUsage {
    let settings = fs::read(state_root.join("config.json"))
        .ok()
        .and_then(|text| serde_json::from_slice::<Settings>(&text).ok())
        .unwrap_or_default();
    let classes = DiskClass::ALL.map(|class| DiskShare {
        class,
        bytes: 0,
        files: 0,
        bound: class.bound(&settings.log),
        frees: class.frees(),
    });
    let mut scan = Scan {
        classes: classes.into(),
        unreadable: 0,
    };
    scan.directory(state_root, state_root, class_of, 0);
    let named = std::env::var_os(TASKS_ROOT_VAR).map(PathBuf::from);
    let tasks_root = named
        .filter(|dir| dir.is_absolute())
        .or(settings.tasks_root);
    if let Some(tasks_root) = tasks_root.filter(|dir| dir.is_dir()) {
        scan.directory(&tasks_root, &tasks_root, class_of_task, 0);
    }
    let space = rustix::fs::statvfs(state_root).ok();
    DiskUsage {
        bytes: scan.classes.iter().map(|share| share.bytes).sum(),
        classes: scan.classes,
        free_bytes: space.map(|space| space.f_bavail.saturating_mul(space.f_frsize)),
        unreadable: scan.unreadable,
    }
}

struct Scan {
    classes: Vec<DiskShare>,
    unreadable: u64,
}

impl Scan {
    fn directory(
        &mut self,
        root: &Path,
        dir: &Path,
        class_of: fn(&Path) -> DiskClass,
        depth: usize,
    ) {
        let Ok(entries) = fs::read_dir(dir) else {
            self.unreadable += 1;
            return;
        };
        for entry in entries.flatten() {
            let path = entry.path();
            // Removed meanwhile.
            let Ok(found) = entry.metadata() else {
                continue;
            };
            if found.is_dir() {
                if depth < DEPTH_MAX {
                    self.directory(root, &path, class_of, depth + 1);
                }
                continue;
            }
            let class = class_of(path.strip_prefix(root).unwrap_or(&path));
            let share = self.classes.iter_mut().find(|share| share.class == class);
            if let Some(share) = share {
                share.bytes += bytes_on_disk(&found);
                share.files += 1;
            }
        }
    }
}

/// Allocated bytes, which differ from the length of a sparse file.
fn bytes_on_disk(found: &fs::Metadata) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    found.blocks().saturating_mul(512)
}

fn parts(path: &Path) -> Vec<&OsStr> {
    let parts = path.components().filter_map(|part| match part {
        Component::Normal(part) => Some(part),
        _ => None,
    });
    parts.collect()
}

/// Kind of a file of the state root.
fn class_of(path: &Path) -> DiskClass {
    let parts = parts(path);
    let part = |index: usize| {
        parts
            .get(index)
            .and_then(|part| part.to_str())
            .unwrap_or("")
    };
    let name = parts.last().and_then(|name| name.to_str()).unwrap_or("");
    let is_in = |dir: &str| parts.iter().any(|part| *part == dir);
    match (part(0), part(2)) {
        ("logs", _) => DiskClass::Logs,
        ("packages", _) => DiskClass::Packages,
        ("caches", _) => DiskClass::Caches,
        ("backups", _) => DiskClass::RemovedTasks,
        ("replication", _) => DiskClass::Replication,
        ("workspaces", "tasks") => class_of_task(path),
        ("workspaces", "sandboxes") => DiskClass::Sandboxes,
        ("workspaces", "instances") if part(4) == "work" => DiskClass::WorkDirectories,
        ("workspaces", "instances") if is_in(".checkpoints") => DiskClass::Checkpoints,
        ("workspaces", _) if SET_ASIDE.iter().any(|mark| name.contains(mark)) => {
            DiskClass::SetAside
        }
        ("workspaces", "instances")
            if part(4) == "messages"
                && (name.starts_with("llm.") || name.starts_with("runtime-events.")) =>
        {
            DiskClass::Traces
        }
        ("workspaces", _) => DiskClass::Conversations,
        _ => DiskClass::System,
    }
}

/// Kind of a file of a task's work area.
fn class_of_task(path: &Path) -> DiskClass {
    let parts = parts(path);
    if parts.iter().any(|part| *part == ".checkpoints") {
        DiskClass::Checkpoints
    } else if parts.first().is_some_and(|part| *part == "_backups") {
        DiskClass::RemovedTasks
    } else {
        DiskClass::Tasks
    }
}

/// Table of all kinds that use space.
pub(super) fn table(usage: &DiskUsage) -> Table {
    let mut table = Table::new([
        Column::new("DISK"),
        Column::new("SIZE"),
        Column::new("FILES").below(3, "files"),
        Column::new("BOUND").below(2, "bound"),
        Column::new("FREED BY").below(1, "freed by"),
    ]);
    for share in usage.classes.iter().filter(|share| share.files > 0) {
        table.row([
            Cell::from(share.class.name()),
            text::bytes(share.bytes).into(),
            share.files.to_string().into(),
            Cell::styled(share.bound.as_str(), style::FAINT),
            share.frees.into(),
        ]);
    }
    table
}

/// Sum, and the free space.
pub(super) fn total(usage: &DiskUsage) -> String {
    let free = usage.free_bytes.map_or_else(String::new, |free| {
        format!("; {} are free", text::bytes(free))
    });
    let unreadable = match usage.unreadable {
        0 => String::new(),
        count => format!("; {} cannot be read", text::count(count, "directory")),
    };
    format!("Total {}{free}{unreadable}", text::bytes(usage.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_belongs_to_one_kind_of_data() {
        for (path, class) in [
            ("config.json", DiskClass::System),
            ("system/identity.age", DiskClass::System),
            ("run/orchestrator.pid", DiskClass::System),
            ("logs/orchestrator.log.1", DiskClass::Logs),
            ("packages/.trees/x/y", DiskClass::Packages),
            ("caches/packages/w/c/x", DiskClass::Caches),
            ("backups/t/x", DiskClass::RemovedTasks),
            ("replication/w.json", DiskClass::Replication),
            ("workspaces/w/audit.jsonl", DiskClass::Conversations),
            ("workspaces/w/tasks/t/work/x", DiskClass::Tasks),
            (
                "workspaces/w/tasks/t/.checkpoints/c/snapshot.tar.gz",
                DiskClass::Checkpoints,
            ),
            ("workspaces/w/sandboxes/r/a/x", DiskClass::Sandboxes),
            (
                "workspaces/w/instances/i/work/llm.jsonl",
                DiskClass::WorkDirectories,
            ),
            (
                "workspaces/w/instances/i/.checkpoints/c/x",
                DiskClass::Checkpoints,
            ),
            (
                "workspaces/w/instances/i/messages/base.jsonl",
                DiskClass::Conversations,
            ),
            (
                "workspaces/w/instances/i/messages/base.jsonl.damaged",
                DiskClass::SetAside,
            ),
            (
                "workspaces/w/instances/i/messages/llm.000.2026-01-01.jsonl.gz",
                DiskClass::Traces,
            ),
        ] {
            assert_eq!(class_of(Path::new(path)), class, "{path}");
        }
    }

    #[test]
    fn sizes_are_summed_up_by_kind_and_bounds_are_shown() {
        let root = tempfile::tempdir().unwrap();
        let add = |path: &str, len: usize| {
            let file = root.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            let mut options = fs::OpenOptions::new();
            let mut file = options.write(true).create_new(true).open(file).unwrap();
            std::io::Write::write_all(&mut file, &vec![1; len]).unwrap();
        };
        add("logs/orchestrator.log", 5_000);
        add("logs/orchestrator.log.1", 5_000);
        add("workspaces/w/instances/i/work/x", 9_000);
        let usage = survey(root.path());
        let logs = usage.classes.iter().find(|it| it.class == DiskClass::Logs);
        let logs = logs.unwrap();
        assert_eq!((logs.files, logs.bound.as_str()), (2, "128.0 MiB"));
        assert!(logs.bytes >= 10_000, "{logs:?}");
        assert!(usage.bytes >= 19_000 && usage.free_bytes.is_some());
    }
}
