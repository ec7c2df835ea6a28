//! Files that are kept for the secrets in them, which file tools do not open (`SEC-2`).
//!
//! What a tool reads is in the conversation, on disk and at the model's provider, for good. A file is told
//! by its name, in any case of letters, and by where it really is: a link to it is it.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use goondan_protocol::base_package::BASE_PACKAGE;
use goondan_protocol::definition::{AgentDefinition, ToolDefinition, ToolSource};
use goondan_protocol::secret_file::holds_secrets;
use goondan_protocol::settings::{FILE_SYSTEM, SECRET_FILES};
use serde_json::Value;

/// Which files the tools of one agent do not open.
#[derive(Debug, Default)]
pub(crate) struct SecretFiles {
    /// Files of the workspace's environment: never, by whatever name.
    never: Vec<PathBuf>,
    /// Paths within the project or the work directory that the configuration makes exceptions of.
    allowed: Vec<PathBuf>,
}

impl SecretFiles {
    /// What the definition of an agent says.
    pub(super) fn of(agent: &AgentDefinition) -> Self {
        let allowed = agent.tools.iter().filter(|tool| is_file_system(tool));
        let allowed = allowed.filter_map(|tool| tool.config.get(SECRET_FILES)?.as_array());
        let allowed = allowed.flatten().filter_map(Value::as_str);
        // `./a` and `a//b` are `a` and `a/b`.
        let clean = |path: &str| Path::new(path).components().collect::<PathBuf>();
        let clean = |path: &str| clean(path.strip_prefix("./").unwrap_or(path));
        Self {
            never: agent.secret_files.clone(),
            allowed: allowed.map(clean).collect(),
        }
    }

    /// Whether a path within the project or the work directory is that of a file with secrets.
    pub(super) fn refuses_path(&self, path: &Path) -> bool {
        holds_secrets(path) && !self.allowed.iter().any(|allowed| allowed == path)
    }

    /// Whether a file is one of the workspace's environment, by whatever path or link it was reached.
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

/// Where an open file really is, behind all links; nothing where the system does not tell.
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
