//! The System Root: its layout, its settings and the lock that gives it one owner.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::num::NonZeroU64;
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use goondan_durable::disk::{Disk, RealDisk, read_all};
use goondan_durable::{FileError, IoContext as _, files, names};
use goondan_protocol::ids::{ConnectionName, WorkspaceId};
use goondan_protocol::secret::SecretValue;
use goondan_protocol::state_format::STATE_FORMAT_FILE;
use goondan_protocol::state_root;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::error::StoreError;
use crate::format;

/// Name of the System Root in the home directory (`ROOT-7`).
pub const DEFAULT_DIR_NAME: &str = ".goondan";
/// The environment variable that moves the System Root (`ROOT-7`).
pub const STATE_ROOT_VAR: &str = "GOONDAN_STATE_ROOT";
/// The environment variable that moves the work areas of tasks.
pub const TASKS_ROOT_VAR: &str = "GOONDAN_TASKS_ROOT";
/// Directory of backups beside work areas outside the System Root. No task id equals this name.
const TASK_BACKUPS_DIR: &str = "_backups";
/// Lock file in a tasks directory outside the System Root.
const TASKS_LOCK_FILE: &str = ".goondan.pid";
/// File in a workspace's folder with the last configuration that ran.
pub(crate) const CONFIGURATION_FILE: &str = "configuration.json";
/// The audit log's name, in a workspace's folder and in the system's (`INST-6`).
pub(crate) const AUDIT_FILE: &str = "audit.jsonl";
/// Group of the registers of tasks, independent of where the work areas are.
pub const TASKS_GROUP: &str = "tasks";
/// Hex digits in a socket's name.
const SOCKET_DIGITS: usize = 10;
/// Largest `config.json`, in bytes.
const CONFIG_BYTES_MAX: usize = 1024 * 1024;
/// Number of attempts to take a lock that another process holds, and the pause between them.
const LOCK_TRIES: usize = 10;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Paths below the System Root. Owns nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    root: PathBuf,
    /// The directory of the tasks' work areas, if it is not below the root.
    tasks_root: Option<PathBuf>,
}

impl Layout {
    /// Returns the layout below `root`.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            tasks_root: None,
        }
    }

    /// Sets a separate directory for the work areas of tasks.
    #[must_use]
    pub fn with_tasks_root(self, tasks_root: Option<PathBuf>) -> Self {
        Self { tasks_root, ..self }
    }

    /// The directory of work areas, if it is not below the System Root.
    #[must_use]
    pub fn tasks_root(&self) -> Option<&Path> {
        self.tasks_root.as_deref()
    }

    /// The System Root itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Path of the system's settings.
    #[must_use]
    pub fn config_file(&self) -> PathBuf {
        self.root.join("config.json")
    }

    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.root.join("run").join("orchestrator.sock")
    }

    /// File with the owner's process id, locked while the owner lives.
    #[must_use]
    pub fn pid_file(&self) -> PathBuf {
        self.root.join("run").join("orchestrator.pid")
    }

    /// Directory of the sockets through which confined programs reach allowed hosts.
    #[must_use]
    pub fn egress(&self) -> PathBuf {
        self.root.join("run").join("egress")
    }

    /// Egress socket of `caller` in one workspace. As short as the control socket's path, because
    /// socket paths have a small size limit.
    #[must_use]
    pub fn egress_socket(&self, id: &WorkspaceId, caller: &str) -> PathBuf {
        let digest = Sha256::digest(format!("{id} {caller}"));
        let name: String = hex::encode(digest).chars().take(SOCKET_DIGITS).collect();
        self.egress().join(name)
    }

    /// Directory of files that goondan can download again.
    #[must_use]
    pub fn caches(&self) -> PathBuf {
        self.root.join("caches")
    }

    /// Directory in which the server of a connection keeps downloaded packages. Another command,
    /// identified by `command`, has another one, so that no program finds files of another.
    #[must_use]
    pub fn package_cache(
        &self,
        id: &WorkspaceId,
        connection: &ConnectionName,
        command: &str,
    ) -> PathBuf {
        self.caches()
            .join("packages")
            .join(id.as_str())
            .join(names::encode_directory(connection.as_str()))
            .join(command)
    }

    /// Directory of data that belongs to no workspace and outlives every instance (`SYS-1`).
    #[must_use]
    pub fn system(&self) -> PathBuf {
        self.root.join("system")
    }

    /// File with the format of the System Root (`REL-1`).
    #[must_use]
    pub fn format_file(&self) -> PathBuf {
        self.system().join(STATE_FORMAT_FILE)
    }

    #[must_use]
    pub fn workspaces(&self) -> PathBuf {
        self.root.join("workspaces")
    }

    #[must_use]
    pub fn workspace(&self, id: &WorkspaceId) -> PathBuf {
        self.workspaces().join(id.as_str())
    }

    /// File with the last configuration of one workspace that ran.
    #[must_use]
    pub fn configuration(&self, id: &WorkspaceId) -> PathBuf {
        self.workspace(id).join(CONFIGURATION_FILE)
    }

    /// Directory of one workspace's sandboxes and their proposals (`BOX-1`).
    #[must_use]
    pub fn sandboxes(&self, id: &WorkspaceId) -> PathBuf {
        self.workspace(id).join("sandboxes")
    }

    /// Directory of the work areas of one workspace's tasks (`TASK-1`).
    #[must_use]
    pub fn tasks(&self, id: &WorkspaceId) -> PathBuf {
        match &self.tasks_root {
            Some(tasks_root) => tasks_root.join(id.as_str()),
            None => self.usual_tasks(id),
        }
    }

    /// The default directory of work areas, below the System Root.
    #[must_use]
    pub fn usual_tasks(&self, id: &WorkspaceId) -> PathBuf {
        self.workspace(id).join("tasks")
    }

    /// The existing directory above all work areas and their backups.
    #[must_use]
    pub fn above_tasks(&self) -> &Path {
        self.tasks_root.as_deref().unwrap_or(&self.root)
    }

    /// Directory of the backups of removed tasks (`TASK-10`), on the file system of the work areas.
    #[must_use]
    pub fn backups(&self) -> PathBuf {
        match &self.tasks_root {
            Some(tasks_root) => tasks_root.join(TASK_BACKUPS_DIR),
            None => self.root.join("backups"),
        }
    }

    /// Directory of the data about replicated workspaces (`REP-1`).
    #[must_use]
    pub fn replication(&self) -> PathBuf {
        self.root.join("replication")
    }

    /// Directory of one workspace's instances.
    #[must_use]
    pub fn instances(&self, id: &WorkspaceId) -> PathBuf {
        self.workspace(id).join("instances")
    }
}

/// `config.json`: the system's settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SystemConfig {
    /// Log files of a background daemon.
    pub log: LogConfig,
    /// Directory of the tasks' work areas, absolute. Default: below the state root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks_root: Option<PathBuf>,
    /// Log server of the workspaces; `None` if they are on this machine only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replication: Option<ReplicationConfig>,
}

/// Settings for workspaces that survive the loss of this machine (`REP-1`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReplicationConfig {
    /// Name of this node. Default: the host name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// URL of the PostgreSQL server with the logs, including its password if it has one.
    pub postgres: SecretValue,
    /// Records of a workspace's log between two snapshots. Default: 100,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_after_records: Option<NonZeroU64>,
}

/// Limits of the rotated log files (`LOG-4`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LogConfig {
    /// Largest size of one file, in bytes.
    pub max_file_bytes: u64,
    /// Number of files kept, including the one being written.
    pub max_files: u32,
    /// Overflow policy for files and stdout.
    pub overflow: LogOverflow,
}

/// Overflow policy for log lines that arrive faster than they can be written (`LOG-3`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogOverflow {
    /// Lines are dropped and counted, and the count is logged. A slow reader blocks no writer.
    #[default]
    Drop,
    /// Writers block. No line is lost, and a slow reader slows the daemon down.
    Block,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            max_file_bytes: 16 * 1024 * 1024,
            max_files: 8,
            overflow: LogOverflow::Drop,
        }
    }
}

/// The System Root, owned by this process until it is dropped (`ROOT-11`).
#[derive(Debug)]
pub struct SystemRoot {
    layout: Layout,
    config: SystemConfig,
    /// The operating system releases the lock when the process ends, in any way.
    _root: Option<File>,
    _pid_file: PidFile,
    /// Lock of the directory of work areas, if it is outside the System Root.
    _tasks: Option<PidFile>,
}

impl SystemRoot {
    /// Locks the System Root and creates its missing parts.
    ///
    /// # Errors
    ///
    /// [`StoreError::NewerFormat`] and [`StoreError::UnknownFormat`], before anything is written;
    /// [`StoreError::RootInUse`] if another orchestrator owns it; [`FileError::Damaged`] if
    /// `config.json` is invalid; [`FileError::Io`].
    pub fn take(root: &Path) -> Result<Self, StoreError> {
        Self::take_with(root, std::env::var_os(TASKS_ROOT_VAR).map(PathBuf::from))
    }

    /// As [`Self::take`], with the directory of work areas from the environment.
    fn take_with(root: &Path, named: Option<PathBuf>) -> Result<Self, StoreError> {
        format::read(&RealDisk, root, &Layout::new(root).format_file())?;
        make_dir(root)?;
        // Projects are compared with the canonical path.
        let root = fs::canonicalize(root).during("resolve", root)?;
        let layout = Layout::new(root.clone());
        for name in ["packages", "workspaces", "system"] {
            make_dir(&root.join(name))?;
        }
        make_run_dir(&layout)?;
        let lock = lock_root(&layout)?;
        let pid_file = PidFile::take(&layout)?;
        // Checked again, because another daemon may have owned the root in between.
        format::bring_up(&RealDisk, &root, &layout.format_file())?;
        renew_egress(&layout.egress())?;
        let config = read_config(&layout)?;
        let named = named.filter(|path| !path.as_os_str().is_empty());
        let named = named.or_else(|| config.tasks_root.clone());
        let tasks_root = named.map(|path| make_tasks_root(&path, &root, &config));
        let tasks_root = tasks_root.transpose()?;
        let tasks_lock = tasks_root.as_ref().map(|tasks_root| {
            // Daemons of two System Roots could have a workspace of the same project.
            PidFile::take_at(&tasks_root.join(TASKS_LOCK_FILE), tasks_root)
        });
        Ok(Self {
            layout: layout.with_tasks_root(tasks_root),
            config,
            _root: lock,
            _pid_file: pid_file,
            _tasks: tasks_lock.transpose()?,
        })
    }

    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    #[must_use]
    pub fn config(&self) -> &SystemConfig {
        &self.config
    }
}

/// Everything in the directory belongs to processes that ended with the previous daemon.
fn renew_egress(egress: &Path) -> Result<(), FileError> {
    if let Err(error) = fs::remove_dir_all(egress)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error).during("remove", egress);
    }
    make_dir(egress)
}

/// Creates the directory of work areas and returns its canonical path.
fn make_tasks_root(path: &Path, root: &Path, config: &SystemConfig) -> Result<PathBuf, StoreError> {
    let refused = |problem: &str| StoreError::TasksRoot {
        path: path.to_owned(),
        problem: problem.to_owned(),
    };
    if !path.is_absolute() {
        return Err(refused("expected an absolute path"));
    }
    if config.replication.is_some() {
        return Err(refused(
            "the tasks of workspaces that several nodes share must be below the state directory",
        ));
    }
    make_dir(path)?;
    let path = fs::canonicalize(path).during("resolve", path)?;
    if path.starts_with(root) || root.starts_with(&path) {
        return Err(refused(
            "it must neither contain the state directory nor be in it",
        ));
    }
    // The daemon has checked that the state root belongs to its user.
    let user = fs::metadata(root).during("inspect", root)?.uid();
    let found = fs::metadata(&path).during("inspect", &path)?;
    state_root::check(path.clone(), found.uid(), found.mode(), user)
        .map_err(|exposed| refused(&exposed.to_string()))?;
    Ok(path)
}

fn make_dir(path: &Path) -> Result<(), FileError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .during("create", path)
}

/// Creates the directory of the socket and the pid file, accessible to its owner only.
///
/// # Errors
///
/// [`FileError::Io`].
pub fn make_run_dir(layout: &Layout) -> Result<(), FileError> {
    let run = layout.root().join("run");
    make_dir(&run)?;
    fs::set_permissions(&run, fs::Permissions::from_mode(0o700)).during("set the mode of", &run)
}

/// File with the owner's process id, locked while this value lives.
#[derive(Debug)]
pub struct PidFile {
    /// The operating system releases the lock when the process ends, in any way.
    _file: File,
}

impl PidFile {
    /// Creates the file if it is missing, locks it, and writes the caller's process id.
    ///
    /// # Errors
    ///
    /// [`StoreError::RootInUse`] if another orchestrator holds it; [`FileError::Io`].
    pub fn take(layout: &Layout) -> Result<Self, StoreError> {
        Self::take_at(&layout.pid_file(), layout.root())
    }

    /// Locks the directory `locked` through its lock file at `path`.
    fn take_at(path: &Path, locked: &Path) -> Result<Self, StoreError> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .during("open", path)?;
        if !lock(&file, path)? {
            let mut text = String::new();
            let read = file.read_to_string(&mut text);
            let owner = read.ok().and_then(|_| text.trim().parse().ok());
            return Err(in_use(locked, owner));
        }
        let write = |file: &mut File| -> io::Result<()> {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())
        };
        write(&mut file).during("write", path)?;
        Ok(Self { _file: file })
    }
}

fn in_use(locked: &Path, owner: Option<u32>) -> StoreError {
    StoreError::RootInUse {
        path: locked.to_owned(),
        owner,
    }
}

/// Locks the System Root itself, because the pid file can be removed and created again by a second
/// daemon. `None` if the file system has no directory locks.
fn lock_root(layout: &Layout) -> Result<Option<File>, StoreError> {
    let root = layout.root();
    let directory = File::open(root).during("open", root)?;
    match lock(&directory, root) {
        Ok(true) => Ok(Some(directory)),
        Ok(false) => {
            let owner = fs::read_to_string(layout.pid_file()).ok();
            let owner = owner.and_then(|text| text.trim().parse().ok());
            Err(in_use(layout.root(), owner))
        }
        Err(_) => Ok(None),
    }
}

/// Takes the lock and returns true, or false if it stays taken. A client that checks for a live
/// daemon holds the lock briefly.
fn lock(file: &File, path: &Path) -> Result<bool, FileError> {
    for tries in (0..LOCK_TRIES).rev() {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) if tries > 0 => thread::sleep(LOCK_PAUSE),
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) => return Err(error).during("lock", path),
        }
    }
    Ok(false)
}

/// Reads the current replication settings from `config.json`. The daemon uses those read at its
/// start, except for the server's password, which may be rotated.
///
/// # Errors
///
/// [`FileError`] if the file cannot be read or is invalid.
pub fn replication_config(layout: &Layout) -> Result<Option<ReplicationConfig>, FileError> {
    let path = layout.config_file();
    if RealDisk.stat(&path).during("inspect", &path)?.is_none() {
        return Ok(None);
    }
    parse_config(&path).map(|config| config.replication)
}

fn read_config(layout: &Layout) -> Result<SystemConfig, FileError> {
    let path = layout.config_file();
    let disk = RealDisk;
    if disk.stat(&path).during("inspect", &path)?.is_none() {
        files::replace(&disk, &path, b"{}\n")?;
        return Ok(SystemConfig::default());
    }
    parse_config(&path)
}

fn parse_config(path: &Path) -> Result<SystemConfig, FileError> {
    let mut file = RealDisk.open_read(path).during("open", path)?;
    let bytes = read_all(file.as_mut(), CONFIG_BYTES_MAX).during("read", path)?;
    let damaged = |line, problem| FileError::Damaged {
        line,
        problem,
        path: path.to_owned(),
    };
    let config: SystemConfig = serde_json::from_slice(&bytes).map_err(|error| {
        let line = u64::try_from(error.line()).unwrap_or(0);
        damaged(line, error.to_string())
    })?;
    match &config.replication {
        Some(replication) if !is_postgres_url(replication.postgres.expose()) => {
            let line = line_of(&bytes, "\"postgres\"");
            Err(damaged(line, BAD_POSTGRES_URL.to_owned()))
        }
        _ => Ok(config),
    }
}

/// Number of the line with the first occurrence of a text.
fn line_of(bytes: &[u8], text: &str) -> u64 {
    let whole = String::from_utf8_lossy(bytes);
    let before = whole.split(text).next().unwrap_or_default();
    u64::try_from(before.matches('\n').count() + 1).unwrap_or(0)
}

/// Why the URL of the log's server is rejected, without its password.
const BAD_POSTGRES_URL: &str = "`replication.postgres` is not a URL: expected the form \
    `postgres://user:password@host:port/database`; in a user, password or path, write characters \
    such as `@`, `:`, `/` and `?` as `%40`, `%3A`, `%2F` and `%3F`";

/// True if the parts of a server's URL can be distinguished. The client of the log validates them.
fn is_postgres_url(url: &str) -> bool {
    let schemes = ["postgres://", "postgresql://"];
    let Some(rest) = schemes.iter().find_map(|scheme| url.strip_prefix(scheme)) else {
        return false;
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let authority = rest.get(..end).unwrap_or_default();
    let (user, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    let is_port = |port: &str| port.is_empty() || port.parse::<u16>().is_ok();
    let is_host = |host: &str| {
        let port = match host.strip_prefix('[') {
            Some(address) => address.split_once(']').map(|(_, port)| port),
            None => host.find(':').and_then(|at| host.get(at..)).or(Some("")),
        };
        port.is_some_and(|port| is_port(port.strip_prefix(':').unwrap_or(port)))
    };
    !user.contains('@') && user.matches(':').count() <= 1 && hosts.split(',').all(is_host)
}

/// Checks that neither root contains the other (`ROOT-1`). Both paths must be canonical.
///
/// # Errors
///
/// [`StoreError::RootsOverlap`].
pub fn check_separate(project_root: &Path, state_root: &Path) -> Result<(), StoreError> {
    if overlaps(project_root, state_root) {
        return Err(StoreError::RootsOverlap {
            project_root: project_root.to_owned(),
            state_root: state_root.to_owned(),
        });
    }
    Ok(())
}

fn overlaps(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

impl Layout {
    /// Checks that a project neither contains goondan's state nor is inside it (`ROOT-1`).
    /// `project_root` must be canonical.
    ///
    /// # Errors
    ///
    /// [`StoreError::RootsOverlap`] and [`StoreError::TasksRootOverlaps`].
    pub fn check_apart(&self, project_root: &Path) -> Result<(), StoreError> {
        check_separate(project_root, &self.root)?;
        match &self.tasks_root {
            Some(tasks_root) if overlaps(project_root, tasks_root) => {
                Err(StoreError::TasksRootOverlaps {
                    project_root: project_root.to_owned(),
                    tasks_root: tasks_root.clone(),
                })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use goondan_protocol::state_format::{STATE_FORMAT, StateFormat};

    use super::*;

    #[test]
    fn root_8_missing_directories_are_created_with_private_mode() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("state");
        let taken = SystemRoot::take(&root).unwrap();
        for name in ["packages", "workspaces", "system", "run"] {
            assert!(root.join(name).is_dir(), "{name}");
        }
        assert!(root.join("config.json").is_file());
        let mode = fs::metadata(&root).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o700);
        assert_eq!(taken.config(), &SystemConfig::default());
    }

    #[test]
    fn prov_1_a_malformed_log_server_url_is_refused() {
        for url in [
            "postgres://keeper:p@ss:w/1@127.0.0.1:9312/d1",
            "postgres://u:p@ss@h/d",
            "postgres://u:a:b@h/d",
            "postgres://h:port/d",
            "host=h user=u",
        ] {
            assert!(!is_postgres_url(url), "{url}");
        }
        for url in [
            "postgres://u:p%40ss%3Aw%2F1@127.0.0.1:9312/d1",
            "postgresql://u@h1:1,h2:2/d?sslmode=disable",
            "postgres://u:p@[::1]:5432/d",
            "postgres://[::1]/d",
            "postgres://h",
            "postgresql:///d?host=/run/postgresql&user=u",
            "postgres://h/d?options=-c%20x",
        ] {
            assert!(is_postgres_url(url), "{url}");
        }
    }

    #[test]
    fn root_11_a_second_owner_is_refused_with_the_first_ones_pid() {
        let temp = tempfile::tempdir().unwrap();
        let first = SystemRoot::take(temp.path()).unwrap();
        match SystemRoot::take(temp.path()) {
            Err(StoreError::RootInUse { owner, .. }) => assert_eq!(owner, Some(std::process::id())),
            other => panic!("{other:?}"),
        }
        drop(first);
        SystemRoot::take(temp.path()).unwrap();
    }

    #[test]
    fn root_11_a_removed_pid_file_gives_no_second_owner() {
        let temp = tempfile::tempdir().unwrap();
        let first = SystemRoot::take(temp.path()).unwrap();
        fs::remove_dir_all(temp.path().join("run")).unwrap();
        let second = SystemRoot::take(temp.path());
        assert!(
            matches!(second, Err(StoreError::RootInUse { .. })),
            "{second:?}"
        );
        drop(first);
        SystemRoot::take(temp.path()).unwrap();
    }

    #[test]
    fn rel_1_first_start_writes_the_format_and_later_ones_raise_it() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("state");
        let layout = SystemRoot::take(&root).unwrap().layout().clone();
        let ours = StateFormat::current().render().unwrap();
        let said = || fs::read_to_string(layout.format_file()).unwrap();
        assert_eq!(said(), ours);
        for older in [r#"{"wrote":0,"readableFrom":0,"goondan":"0.0.9"}"#, &ours] {
            files::replace(&RealDisk, &layout.format_file(), older.as_bytes()).unwrap();
            drop(SystemRoot::take(&root).unwrap());
            assert_eq!(said(), ours);
        }
        // A System Root from before the format file existed.
        fs::remove_file(layout.format_file()).unwrap();
        drop(SystemRoot::take(&root).unwrap());
        assert_eq!(said(), ours);
    }

    #[test]
    fn rel_1_a_newer_format_is_refused_before_anything_is_written() {
        let temp = tempfile::tempdir().unwrap();
        let system = temp.path().join("system");
        fs::create_dir(&system).unwrap();
        let refused = |text: String| {
            files::replace(&RealDisk, &system.join("format.json"), text.as_bytes()).unwrap();
            let refused = SystemRoot::take(temp.path()).unwrap_err();
            let names = fs::read_dir(temp.path()).unwrap();
            let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
            assert_eq!(names, ["system"]);
            assert_eq!(
                fs::read_to_string(system.join("format.json")).unwrap(),
                text
            );
            refused
        };
        let newer = StateFormat {
            wrote: STATE_FORMAT + 1,
            readable_from: STATE_FORMAT + 1,
            goondan: "9.9.9".to_owned(),
        };
        let error = refused(newer.render().unwrap());
        assert!(matches!(error, StoreError::NewerFormat { .. }), "{error:?}");
        let error = refused("{\"wrote\":".to_owned());
        assert!(
            matches!(error, StoreError::UnknownFormat { .. }),
            "{error:?}"
        );
    }

    #[test]
    fn task_1_work_areas_may_have_a_directory_of_their_own() {
        let temp = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(temp.path()).unwrap();
        let (root, tasks) = (base.join("state"), base.join("deep/tasks"));
        let id = WorkspaceId::new("w").unwrap();
        let usual = SystemRoot::take_with(&root, None).unwrap();
        assert_eq!(usual.layout().tasks(&id), root.join("workspaces/w/tasks"));
        assert_eq!(usual.layout().backups(), root.join("backups"));
        drop(usual);
        let setting = format!("{{\"tasksRoot\": \"{}\"}}", tasks.display());
        files::replace(&RealDisk, &root.join("config.json"), setting.as_bytes()).unwrap();
        let taken = SystemRoot::take_with(&root, None).unwrap();
        let layout = taken.layout();
        assert_eq!(layout.tasks(&id), tasks.join("w"));
        assert_eq!(layout.backups(), tasks.join("_backups"));
        let mode = fs::metadata(&tasks).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o700);
        for project in [&tasks.join("project"), &base.join("deep")] {
            let error = layout.check_apart(project).unwrap_err();
            let named = matches!(error, StoreError::TasksRootOverlaps { .. });
            assert!(named, "{error}");
        }
        let error = layout.check_apart(&root.join("p")).unwrap_err();
        assert!(matches!(error, StoreError::RootsOverlap { .. }), "{error}");
        layout.check_apart(&base.join("project")).unwrap();
        // Another System Root must not own the same work areas.
        let other = base.join("other");
        match SystemRoot::take_with(&other, Some(tasks.clone())) {
            Err(StoreError::RootInUse { path, .. }) => assert_eq!(path, tasks),
            taken => panic!("{taken:?}"),
        }
        drop(taken);
        let named = base.join("named");
        let taken = SystemRoot::take_with(&root, Some(named.clone())).unwrap();
        assert_eq!(taken.layout().tasks_root(), Some(named.as_path()));
        drop(taken);
        for wrong in [Path::new("tasks"), &root.join("tasks"), &base] {
            let error = SystemRoot::take_with(&root, Some(wrong.to_owned())).unwrap_err();
            assert!(matches!(error, StoreError::TasksRoot { .. }), "{error}");
        }
    }

    #[test]
    fn sec_4_work_areas_that_others_can_write_are_refused() {
        let temp = tempfile::tempdir().unwrap();
        let (root, tasks) = (temp.path().join("state"), temp.path().join("tasks"));
        fs::create_dir(&tasks).unwrap();
        let take = || SystemRoot::take_with(&root, Some(tasks.clone()));
        let set_mode = |mode| fs::set_permissions(&tasks, fs::Permissions::from_mode(mode));
        for mode in [0o770, 0o777] {
            set_mode(mode).unwrap();
            let error = take().unwrap_err().to_string();
            assert!(error.contains("can be written by other users"), "{error}");
        }
        set_mode(0o755).unwrap();
        drop(take().unwrap());
    }

    #[test]
    fn unknown_setting_is_an_error_with_its_line() {
        let temp = tempfile::tempdir().unwrap();
        drop(SystemRoot::take(temp.path()).unwrap());
        let path = temp.path().join("config.json");
        files::replace(&RealDisk, &path, b"{\n\"logs\": {}\n}").unwrap();
        let error = SystemRoot::take(temp.path()).unwrap_err();
        assert!(
            matches!(error, StoreError::File(FileError::Damaged { line: 2, .. })),
            "{error}"
        );
    }

    #[test]
    fn root_1_neither_root_contains_the_other() {
        let check = |a: &str, b: &str| check_separate(Path::new(a), Path::new(b));
        assert!(check("/home/a/p", "/home/a/.goondan").is_ok());
        assert!(check("/home/a/pp", "/home/a/p").is_ok());
        assert!(check("/home/a", "/home/a/.goondan").is_err());
        assert!(check("/home/a/.goondan/p", "/home/a/.goondan").is_err());
        assert!(check("/x", "/x").is_err());
    }
}
