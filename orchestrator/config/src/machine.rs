//! Properties of the machine that decide if a project can run on it.

use std::cell::{LazyCell, OnceCell};
use std::ffi::OsString;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use goondan_protocol::module_file::{ModuleKind, NoRuntime, NodeVersion, Runtime, UnfitNode};
use goondan_protocol::sandbox::{Facts, Level, Right, SandboxPolicy};
use goondan_protocol::working_directory::{ProcessPurpose, working_directory};

/// Timeout of `node --version`, in milliseconds: the same as when a module is started.
const VERSION_TIMEOUT_MS: u64 = 10_000;

/// Interval of checks for the output of `node --version`, in milliseconds.
const LOOK_MS: u64 = 5;

/// Maximum size of the output of `node --version`, in bytes.
const MAX_VERSION_BYTES: u64 = 256;

/// The machine that a project will run on. A parameter, so that loading stays a pure function.
pub trait HostMachine {
    /// Reason why no runtime there can run the module in `file`; `None` if one can.
    fn lacks_runtime(&self, file: &Path) -> Option<NoRuntime>;

    /// True if a program exists there, found in the same way as by a shell: by its name in `PATH`,
    /// or by its path from `directory`.
    fn has_program(&self, program: &str, directory: &Path) -> bool;

    /// Returns the real path of a program that a policy hides from confined programs; `None` if it
    /// is visible, or its visibility is unknown.
    fn hidden_program(
        &self,
        _program: &str,
        _directory: &Path,
        _policy: &SandboxPolicy,
    ) -> Option<PathBuf> {
        None
    }

    /// Rights that a confinement level needs and the kernel lacks, as text; `None` if there are
    /// none.
    fn lacks_sandbox(&self, level: Level) -> Option<String>;

    /// The canonical path; `None` if it does not exist.
    fn real_path(&self, path: &Path) -> Option<PathBuf>;

    /// The home directory of the user, if there is one.
    fn home(&self) -> Option<PathBuf>;

    /// The directory of goondan's own files, without links, if there is one yet.
    fn state_root(&self) -> Option<PathBuf>;

    /// The directory of the tasks' work areas, without links, if it is not in the state root.
    fn tasks_root(&self) -> Option<PathBuf> {
        None
    }
}

/// An unknown machine, which is assumed to have everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct AnyMachine;

impl HostMachine for AnyMachine {
    fn lacks_runtime(&self, _file: &Path) -> Option<NoRuntime> {
        None
    }

    fn has_program(&self, _program: &str, _directory: &Path) -> bool {
        true
    }

    fn lacks_sandbox(&self, _level: Level) -> Option<String> {
        None
    }

    fn real_path(&self, path: &Path) -> Option<PathBuf> {
        Some(path.to_owned())
    }

    fn home(&self) -> Option<PathBuf> {
        std::env::home_dir()
    }

    fn state_root(&self) -> Option<PathBuf> {
        None
    }
}

/// The machine of this process, by its `PATH`. Queries the version of node and the confinement
/// rights of the kernel at most once, when a project needs them.
#[derive(Debug)]
pub struct LocalMachine {
    path: OsString,
    node: OnceCell<Option<NodeVersion>>,
    state_root: PathBuf,
    tasks_root: Option<PathBuf>,
    rights: LazyCell<Facts, Box<dyn FnOnce() -> Facts>>,
    readable: Option<ReadablePathsFn>,
    open_beneath: Option<OpenBeneathFn>,
}

/// Tests the system call `openat2`, which mounts need.
pub type OpenBeneathFn = fn() -> io::Result<()>;

/// Returns the paths that a policy lets programs of a project read.
pub type ReadablePathsFn = fn(&SandboxPolicy, &Path) -> Vec<PathBuf>;

impl LocalMachine {
    /// This machine, as this process finds programs. `state_root` holds goondan's own files; `rights` finds out
    /// what the kernel can confine.
    #[must_use]
    pub fn new(state_root: PathBuf, rights: impl FnOnce() -> Facts + 'static) -> Self {
        Self {
            path: std::env::var_os("PATH").unwrap_or_default(),
            node: OnceCell::new(),
            state_root,
            tasks_root: None,
            rights: LazyCell::new(Box::new(rights)),
            readable: None,
            open_beneath: None,
        }
    }

    /// Adds the test of `openat2`. Service managers and containers can refuse that system call, so
    /// that mounts fail although the kernel supports them.
    #[must_use]
    pub fn with_open_beneath(self, open_beneath: OpenBeneathFn) -> Self {
        Self {
            open_beneath: Some(open_beneath),
            ..self
        }
    }

    /// Adds the function that returns the paths that a sandbox lets programs read.
    #[must_use]
    pub fn with_readable(self, readable: ReadablePathsFn) -> Self {
        Self {
            readable: Some(readable),
            ..self
        }
    }

    /// The same with the tasks' work areas in a directory of their own, without links.
    #[must_use]
    pub fn with_tasks_root(self, tasks_root: Option<&Path>) -> Self {
        Self {
            tasks_root: tasks_root.map(Path::to_owned),
            ..self
        }
    }

    /// The same with another `PATH`.
    #[must_use]
    pub fn with_path(self, path: OsString) -> Self {
        Self { path, ..self }
    }

    fn find(&self, program: &str) -> Option<PathBuf> {
        std::env::split_paths(&self.path)
            .map(|directory| directory.join(program))
            .find(|file| file.is_absolute() && is_executable(file))
    }
}

impl HostMachine for LocalMachine {
    fn lacks_runtime(&self, file: &Path) -> Option<NoRuntime> {
        let kind = ModuleKind::of(file);
        let mut node = UnfitNode::Absent;
        for runtime in kind.runtimes() {
            let Some(program) = self.find(runtime.program()) else {
                continue;
            };
            // Every node runs JavaScript.
            if *runtime != Runtime::Node || kind == ModuleKind::JavaScript {
                return None;
            }
            match *self.node.get_or_init(|| version_of(&program)) {
                Some(version) if version.runs(kind) => return None,
                Some(version) => node = UnfitNode::TooOld(version),
                None => node = UnfitNode::Silent,
            }
        }
        let runs_itself = kind == ModuleKind::Executable && is_executable(file);
        (!runs_itself).then_some(NoRuntime { kind, node })
    }

    fn has_program(&self, program: &str, directory: &Path) -> bool {
        match program.contains('/') {
            true => is_executable(&directory.join(program)),
            false => self.find(program).is_some(),
        }
    }

    fn hidden_program(
        &self,
        program: &str,
        directory: &Path,
        policy: &SandboxPolicy,
    ) -> Option<PathBuf> {
        let readable = self.readable.filter(|_| policy.require != Level::Off)?;
        let found = match program.contains('/') {
            true => Some(directory.join(program)),
            false => self.find(program),
        };
        let real = std::fs::canonicalize(found?).ok()?;
        let real_of = |path: PathBuf| std::fs::canonicalize(path).ok();
        let mut readable = readable(policy, directory).into_iter().filter_map(real_of);
        let is_there = readable.any(|path| real.starts_with(path));
        (!is_there).then_some(real)
    }

    fn lacks_sandbox(&self, level: Level) -> Option<String> {
        let needed = Right::of(level).iter();
        let missing = needed.filter(|right| !self.rights.contains(right));
        let named = |right: &Right| {
            let test = self.open_beneath.filter(|_| *right == Right::Mounts);
            match test.map(|test| test()) {
                Some(Err(error)) => {
                    format!("mounts (the system call `openat2` is refused: {error})")
                }
                _ => right.to_string(),
            }
        };
        let missing: Vec<String> = missing.map(named).collect();
        (!missing.is_empty()).then(|| missing.join(", "))
    }

    fn real_path(&self, path: &Path) -> Option<PathBuf> {
        std::fs::canonicalize(path).ok()
    }

    fn home(&self) -> Option<PathBuf> {
        std::env::home_dir().filter(|home| home.is_absolute())
    }

    fn tasks_root(&self) -> Option<PathBuf> {
        self.tasks_root.clone()
    }

    fn state_root(&self) -> Option<PathBuf> {
        self.real_path(&self.state_root)
    }
}

fn is_executable(file: &Path) -> bool {
    std::fs::metadata(file)
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// Version of node, if it answers in time.
fn version_of(node: &Path) -> Option<NodeVersion> {
    let mut child = Command::new(node)
        .arg("--version")
        .current_dir(working_directory(ProcessPurpose::Own))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let deadline = Instant::now() + Duration::from_millis(VERSION_TIMEOUT_MS);
    while child.try_wait().ok()?.is_none() {
        if Instant::now() >= deadline {
            // It may have ended since; either way it is gone afterwards.
            let _ended = child.kill();
            let _status = child.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(LOOK_MS));
    }
    let mut printed = String::new();
    let mut output = child.stdout.take()?.take(MAX_VERSION_BYTES);
    output.read_to_string(&mut printed).ok()?;
    NodeVersion::parse(&printed)
}
