//! Files that hold secrets, which file tools refuse to open (`SEC-2`).
//!
//! Text that a tool reads stays permanently in the conversation, on disk and at the model's
//! provider. A secret file is recognized by its name, ignoring case, and by its real location, so a
//! link to one is refused too.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use goondan_protocol::base_package::BASE_PACKAGE;
use goondan_protocol::definition::{AgentDefinition, ToolDefinition, ToolSource};
use goondan_protocol::secret_file::holds_secrets;
use goondan_protocol::settings::{FILE_SYSTEM, SECRET_FILES};
use serde_json::Value;

/// Secret files that the tools of one agent refuse to open.
#[derive(Debug, Default)]
pub(crate) struct SecretFiles {
    /// Environment files of the workspace: refused under every name.
    never: Vec<PathBuf>,
    /// Paths within the project or the work directory that the configuration exempts.
    allowed: Vec<PathBuf>,
}

impl SecretFiles {
    /// Reads the exemptions and environment files from an agent's definition.
    pub(super) fn of(agent: &AgentDefinition) -> Self {
        let allowed = agent.tools.iter().filter(|tool| is_file_system(tool));
        let allowed = allowed.filter_map(|tool| tool.config.get(SECRET_FILES)?.as_array());
        let allowed = allowed.flatten().filter_map(Value::as_str);
        // Normalizes `./a` and `a//b` to `a` and `a/b`.
        let clean = |path: &str| Path::new(path).components().collect::<PathBuf>();
        let clean = |path: &str| clean(path.strip_prefix("./").unwrap_or(path));
        Self {
            never: agent.secret_files.clone(),
            allowed: allowed.map(clean).collect(),
        }
    }

    /// True if a path within the project or the work directory names a secret file.
    pub(super) fn refuses_path(&self, path: &Path) -> bool {
        holds_secrets(path) && !self.allowed.iter().any(|allowed| allowed == path)
    }

    /// True if a file is an environment file of the workspace, regardless of the path or link that
    /// leads to it.
    pub(super) fn refuses_file(&self, file: &Metadata) -> bool {
        let is_it = |path: &PathBuf| {
            let named = std::fs::metadata(path);
            named.is_ok_and(|named| (named.dev(), named.ino()) == (file.dev(), file.ino()))
        };
        self.never.iter().any(is_it)
    }
}

fn is_file_system(tool: &ToolDefinition) -> bool {
    matches!(&tool.source, ToolSource::Builtin { package, name }
        if package == BASE_PACKAGE && name.as_str() == FILE_SYSTEM)
}

/// Real path of an open file with all links resolved; `None` on systems that do not provide it.
pub(super) fn real_path(file: &File) -> Option<PathBuf> {
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd as _;
        std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()
    }
    #[cfg(target_os = "macos")]
    {
        let mut path = PathBuf::new();
        let found = nix::fcntl::fcntl(file, nix::fcntl::FcntlArg::F_GETPATH(&mut path));
        found.ok().map(|_| path)
    }
    #[cfg(not(any(target_os = "linux", target_os = "macos")))]
    {
        let _ = file;
        None
    }
}
