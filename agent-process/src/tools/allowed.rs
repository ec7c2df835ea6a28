//! What the programs of an agent may touch: the policy of its definition, with what hardly a program does without.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use goondan_protocol::definition::AgentAssignment;
use goondan_protocol::module_file::Runtime;
use goondan_protocol::sandbox::{Level, SandboxPath, SandboxPolicy};

use super::runtimes::in_path;

/// The system's programs and what they are made of.
const PROGRAMS: [&str; 10] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/nix",
    "/run/current-system/sw",
];

/// What programs look up about the machine. Not all of `/etc`: there are keys in it, which a daemon of root could
/// read.
const SETTINGS: [&str; 38] = [
    "/etc/alternatives",
    "/etc/bash.bashrc",
    "/etc/ca-certificates",
    "/etc/ca-certificates.conf",
    "/etc/crypto-policies",
    "/etc/debian_version",
    "/etc/fonts",
    "/etc/gai.conf",
    "/etc/gitconfig",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hostname",
    "/etc/hosts",
    "/etc/inputrc",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/locale.alias",
    "/etc/locale.conf",
    "/etc/localtime",
    "/etc/lsb-release",
    "/etc/magic",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/perl",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/cert.pem",
    "/etc/pki/tls/certs",
    "/etc/protocols",
    "/etc/python3",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl/cert.pem",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/terminfo",
];

/// What runs modules.
const RUNTIMES: [Runtime; 4] = [Runtime::Bun, Runtime::Deno, Runtime::Node, Runtime::Python];

/// Directories of this name hold programs that only look for another one, elsewhere.
const SHIMS: &str = "shims";

/// Where temporary files go, within the work directory, if programs may not write to the machine's own.
pub(crate) const TEMPORARY_DIRECTORY: &str = ".goondan/tmp";

/// Variables that name places or services of the user, which are of no use inside.
const OF_THE_USER: [&str; 7] = [
    "DBUS_SESSION_BUS_ADDRESS",
    "SSH_AUTH_SOCK",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
];

/// What programs may touch, and what they are told of it.
#[derive(Debug)]
pub(crate) struct Allowed {
    /// What the kernel is asked to hold them to.
    pub(crate) policy: SandboxPolicy,
    /// Variables that differ from the agent's own; none: it is not there.
    pub(crate) environment: Vec<(&'static str, Option<OsString>)>,
}

impl Allowed {
    /// The `PATH` of programs.
    pub(crate) fn path(&self) -> OsString {
        let own = self.environment.iter().find(|(name, _)| *name == "PATH");
        let own = own.and_then(|(_, path)| path.clone());
        own.or_else(|| std::env::var_os("PATH")).unwrap_or_default()
    }

    /// Without a sandbox nothing is said: programs are as free as the agent.
    pub(crate) fn of(assignment: &AgentAssignment) -> Self {
        let asked = &assignment.agent.sandbox;
        if asked.require == Level::Off {
            return Self {
                policy: SandboxPolicy::off(),
                environment: Vec::new(),
            };
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let directories = program_directories(&path, &assignment.work_dir);
        let path = std::env::join_paths(&directories).unwrap_or_default();
        let runtimes = RUNTIMES
            .iter()
            .filter_map(|runtime| in_path(runtime.program(), &path))
            .filter_map(|program| std::fs::canonicalize(program).ok());
        let usual = PROGRAMS.iter().chain(&SETTINGS).map(PathBuf::from);
        let usual = usual.chain(directories).chain(runtimes);
        let usual = usual.filter(|path| path.exists());
        let project = std::iter::once(assignment.project_root.clone());
        let work = std::iter::once(assignment.work_dir.clone());
        Self {
            policy: SandboxPolicy {
                require: asked.require,
                read: joined(usual.chain(project), &asked.read),
                write: joined(work, &asked.write),
            },
            environment: environment(asked.require, path, &assignment.work_dir),
        }
    }
}

/// The directories of `PATH` in which confined programs are looked for: what only looks for another program comes
/// last, and what would open the user's own files or goondan's is left out.
fn program_directories(path: &OsString, work_dir: &Path) -> Vec<PathBuf> {
    let home = std::env::home_dir();
    let is_wide = |directory: &Path| {
        work_dir.starts_with(directory) || home.iter().any(|home| home.starts_with(directory))
    };
    let directories = std::env::split_paths(path)
        .filter(|directory| directory.is_absolute() && directory.is_dir() && !is_wide(directory));
    let (last, mut first): (Vec<_>, Vec<_>) =
        directories.partition(|directory| directory.ends_with(SHIMS));
    first.extend(last);
    first
}

/// Each path once. A path that is no text cannot be granted.
fn joined(usual: impl Iterator<Item = PathBuf>, asked: &[SandboxPath]) -> Vec<SandboxPath> {
    let usual = usual.filter(|path| path.to_str().is_some());
    let mut paths: Vec<SandboxPath> = Vec::new();
    for path in usual.filter_map(|path| SandboxPath::try_from(path).ok()) {
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths.extend(asked.iter().cloned());
    paths
}

fn environment(
    level: Level,
    path: OsString,
    work_dir: &Path,
) -> Vec<(&'static str, Option<OsString>)> {
    let temporary = match level {
        Level::Full => PathBuf::from("/tmp"),
        Level::Landlock | Level::Off => work_dir.join(TEMPORARY_DIRECTORY),
    };
    let mut all: Vec<_> = OF_THE_USER.iter().map(|name| (*name, None)).collect();
    all.push(("HOME", Some(work_dir.into())));
    all.push(("PATH", Some(path)));
    all.push(("TMPDIR", Some(temporary.into())));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sec_3_no_directory_of_path_opens_the_users_files_or_goondans() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["a/shims", "b/bin", "state/work"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        let home = std::env::home_dir().unwrap();
        let path = [
            at("a/shims"),
            home,
            at("state"),
            at("b/bin"),
            at("missing"),
            "bin".into(),
            "/".into(),
        ];
        let path = std::env::join_paths(path).unwrap();
        assert_eq!(
            program_directories(&path, &at("state/work")),
            [at("b/bin"), at("a/shims")]
        );
    }

    #[test]
    fn sec_3_nothing_of_etc_that_holds_keys_is_granted() {
        for path in SETTINGS {
            for key in [
                "/etc/shadow",
                "/etc/ssh/key",
                "/etc/ssl/private/key",
                "/etc/sudoers",
            ] {
                assert!(!Path::new(key).starts_with(path), "{path} opens {key}");
            }
        }
    }
}
