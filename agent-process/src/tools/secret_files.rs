//! Files that are kept for the secrets in them, which file tools do not open (`SEC-2`).
//!
//! What a tool reads is in the conversation, on disk and at the model's provider, for good. A file is told
//! by its name, in any case of letters, and by where it really is: a link to it is it.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use goondan_protocol::base_package::BASE_PACKAGE;
use goondan_protocol::definition::{AgentDefinition, ToolDefinition, ToolSource};
use goondan_protocol::settings::{FILE_SYSTEM, SECRET_FILES};
use serde_json::Value;

/// Directories in which every file holds secrets.
const DIRECTORIES: [&str; 6] = [".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker"];

/// Files that hold secrets, with the directory they stand in if that matters.
const FILES: [(&str, &str); 16] = [
    (".git", "config"),
    (".git", "credentials"),
    (".config", "gh"),
    ("gh", "hosts.yml"),
    ("gcloud", "credentials.db"),
    ("", ".netrc"),
    ("", "_netrc"),
    ("", ".npmrc"),
    ("", ".pypirc"),
    ("", ".pgpass"),
    ("", ".git-credentials"),
    ("", ".htpasswd"),
    ("", ".envrc"),
    ("", ".vault-token"),
    ("", "credentials.json"),
    ("", "identity.age"),
];

/// Endings of files with keys.
const ENDINGS: [&str; 8] = [
    ".pem",
    ".key",
    ".p12",
    ".pfx",
    ".jks",
    ".keystore",
    ".ppk",
    ".kdbx",
];

/// Environment files that are templates, by their last part: they are there to be read.
const TEMPLATES: [&str; 4] = [".example", ".sample", ".template", ".dist"];

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

/// Whether a path names a file that holds secrets.
fn holds_secrets(path: &Path) -> bool {
    let names: Vec<String> = path
        .iter()
        .map(|name| name.to_string_lossy().to_lowercase())
        .collect();
    let Some((name, directories)) = names.split_last() else {
        return false;
    };
    let parent = directories.last().map_or("", String::as_str);
    let is_within = directories.iter().any(|dir| DIRECTORIES.contains(&&**dir));
    let is_listed = FILES
        .iter()
        .any(|(dir, file)| name == file && (dir.is_empty() || parent == *dir));
    is_within || is_listed || is_environment(name) || is_key(name)
}

/// `.env`, `.env.local`, `production.env`; not `.env.example`.
fn is_environment(name: &str) -> bool {
    let is_template = TEMPLATES.iter().any(|ending| name.ends_with(ending));
    let is_env = name == ".env" || name.starts_with(".env.") || name.starts_with(".env-");
    (is_env || name.ends_with(".env")) && !is_template
}

/// `id_ed25519`, `server.pem`; a public half can be read.
fn is_key(name: &str) -> bool {
    let is_ssh = name.starts_with("id_") && !name.contains('.');
    is_ssh || ENDINGS.iter().any(|ending| name.ends_with(ending))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sec_2_files_with_secrets_are_told_by_name_and_place_in_any_case() {
        for path in [
            ".env",
            ".ENV",
            "a/.env.local",
            "deploy/production.env",
            ".git/config",
            "sub/.Git/Config",
            ".netrc",
            ".npmrc",
            ".pypirc",
            "tls/server.PEM",
            "tls/server.key",
            "id_ed25519",
            ".ssh/known_hosts",
            ".aws/credentials",
            ".gnupg/x/y",
        ] {
            assert!(holds_secrets(Path::new(path)), "{path}");
        }
        for path in [
            "",
            "environment.md",
            ".env.example",
            "src/env.rs",
            "config",
            "git/config",
            ".gitignore",
            "id_ed25519.pub",
            "keys.rs",
            "id_card.txt",
            "src/key",
        ] {
            assert!(!holds_secrets(Path::new(path)), "{path}");
        }
    }
}
