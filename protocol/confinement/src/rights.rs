//! Rights of confined programs: the user's settings, plus the files that almost every program
//! needs.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use goondan_protocol::module_file::Runtime;
use goondan_protocol::proxy::{CA_FILE_VAR, CA_VARIABLES, PROXY_VARIABLES};
use goondan_protocol::sandbox::{Host, Level, Network, SandboxPath, SandboxPolicy};

use crate::PROXY_PORT;
use crate::entry::in_words;

/// The system's programs and their libraries.
pub(crate) const PROGRAMS: [&str; 10] = [
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

/// Files with settings of the machine. Not all of `/etc`, because it contains keys, which a daemon
/// that runs as root could read.
pub(crate) const SETTINGS: [&str; 40] = [
    "/etc/alternatives",
    "/etc/bash.bashrc",
    "/etc/ca-certificates",
    "/etc/ca-certificates.conf",
    "/etc/chromium",
    "/etc/chromium.d",
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

const RUNTIMES: [Runtime; 4] = [Runtime::Bun, Runtime::Deno, Runtime::Node, Runtime::Python];

/// Directories of this name hold programs that only look for another one, elsewhere.
const SHIMS: &str = "shims";

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

/// Environment variables that configure a proxy. None has a SOCKS URL, because programs that do not
/// support SOCKS fail to start with one. The proxy itself supports it.
const PROXIES: [&str; 6] = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
];

/// Environment variables with the hosts that bypass the proxy.
const NO_PROXIES: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// The sandbox's own loopback, by each of its names.
const OWN_LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Node uses these variables only if this one is set.
const NODE_ASKS: &str = "NODE_USE_ENV_PROXY";

/// Node ignores the system's certificate authorities, and trusts those in this file as well.
const NODE_CA_FILE: &str = "NODE_EXTRA_CA_CERTS";

/// Files and directories of certificate authorities that environment variables name.
pub(crate) fn certificate_authorities() -> Vec<PathBuf> {
    let named = CA_VARIABLES.into_iter().filter_map(std::env::var_os);
    let paths = named.flat_map(|named| std::env::split_paths(&named).collect::<Vec<_>>());
    paths.filter(|path| path.is_absolute()).collect()
}

/// Rights of programs, and the matching environment variables.
#[derive(Debug, Clone)]
pub struct ProgramRights {
    /// The policy for the kernel to enforce.
    pub policy: SandboxPolicy,
    /// The socket of the egress, if they may reach some hosts.
    pub egress: Option<PathBuf>,
    /// Changes to the inherited environment; `None` removes a variable.
    pub environment: Vec<(&'static str, Option<OsString>)>,
}

impl ProgramRights {
    /// The `PATH` of programs.
    #[must_use]
    pub fn path(&self) -> OsString {
        let own = self.environment.iter().find(|(name, _)| *name == "PATH");
        let own = own.and_then(|(_, path)| path.clone());
        own.or_else(|| std::env::var_os("PATH")).unwrap_or_default()
    }

    /// Arguments that precede all others of the process that enters the sandbox. Empty without a
    /// sandbox.
    #[must_use]
    pub fn in_words(&self) -> Vec<OsString> {
        in_words(&self.policy, self.egress.as_deref())
    }

    /// Builds the rights for a policy on this ground. Without a sandbox nothing is restricted.
    #[must_use]
    pub fn of(asked: &SandboxPolicy, ground: &ProgramContext<'_>) -> Self {
        if asked.require == Level::Off {
            return Self {
                policy: SandboxPolicy::off(),
                egress: None,
                environment: Vec::new(),
            };
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let directories = program_directories(&path, ground.work_dir);
        let path = std::env::join_paths(&directories).unwrap_or_default();
        let runtimes = RUNTIMES
            .iter()
            .filter_map(|runtime| find_program(runtime.program(), &path))
            .filter_map(|program| std::fs::canonicalize(program).ok());
        let usual = PROGRAMS.iter().chain(&SETTINGS).map(PathBuf::from);
        let usual = usual.chain(directories).chain(runtimes);
        let has_network = asked.network != Network::None;
        let authorities = has_network.then(certificate_authorities);
        let usual = usual.chain(authorities.into_iter().flatten());
        let usual = usual.filter(|path| path.exists());
        let project = std::iter::once(ground.project.to_owned());
        let work = ground.work_dir.into_iter().map(Path::to_owned);
        Self {
            policy: SandboxPolicy {
                require: asked.require,
                read: joined(usual.chain(project), &asked.read),
                write: joined(work, &asked.write),
                network: asked.network.clone(),
            },
            egress: ground.egress.map(Path::to_owned),
            environment: environment(asked, path, ground),
        }
    }
}

/// Returns the paths that a policy lets programs of a project read.
#[must_use]
pub fn readable(policy: &SandboxPolicy, project: &Path) -> Vec<PathBuf> {
    let allowed = ProgramRights::of(
        policy,
        &ProgramContext {
            project,
            work_dir: None,
            temporary: None,
            egress: None,
        },
    );
    let paths = allowed.policy.read.into_iter().chain(allowed.policy.write);
    paths.map(PathBuf::from).collect()
}

/// For whom programs are started.
#[derive(Debug, Clone, Copy)]
pub struct ProgramContext<'a> {
    /// The Project Root, which they may read.
    pub project: &'a Path,
    /// The directory they may write in, if they have one; it is their home.
    pub work_dir: Option<&'a Path>,
    /// Directory of temporary files at the level `landlock`, if there is one.
    pub temporary: Option<&'a Path>,
    /// The socket of the egress, if they may reach some hosts.
    pub egress: Option<&'a Path>,
}

/// Finds a program as a shell would.
#[must_use]
pub fn find_program(program: &str, path: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(path)
        .map(|directory| directory.join(program))
        .find(|file| file.is_absolute() && is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    std::fs::metadata(file)
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// Directories of `PATH` that confined programs search: directories of shims come last,
/// and directories that would expose the user's or goondan's own files are left out.
fn program_directories(path: &OsStr, work_dir: Option<&Path>) -> Vec<PathBuf> {
    let home = std::env::home_dir();
    let own = [work_dir, home.as_deref(), Some(Path::new("/"))];
    let is_wide = |directory: &Path| {
        let mut own = own.iter().flatten();
        own.any(|own| own.starts_with(directory))
    };
    let directories = std::env::split_paths(path)
        .filter(|directory| directory.is_absolute() && directory.is_dir() && !is_wide(directory));
    let (last, mut first): (Vec<_>, Vec<_>) =
        directories.partition(|directory| directory.ends_with(SHIMS));
    first.extend(last);
    first
}

/// Merges paths without duplicates. A path that is not valid UTF-8 cannot be granted.
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
    asked: &SandboxPolicy,
    path: OsString,
    ground: &ProgramContext<'_>,
) -> Vec<(&'static str, Option<OsString>)> {
    let own = match asked.require {
        Level::Full => Some(Path::new("/tmp")),
        Level::Landlock | Level::Seatbelt | Level::Off => None,
    };
    let mut all: Vec<_> = OF_THE_USER.iter().map(|name| (*name, None)).collect();
    all.push(("HOME", ground.work_dir.or(own).map(OsString::from)));
    all.push(("PATH", Some(path)));
    all.push(("TMPDIR", own.or(ground.temporary).map(OsString::from)));
    if let Some(listed) = asked.allow_list() {
        let proxy = OsString::from(format!("http://127.0.0.1:{PROXY_PORT}"));
        all.extend(PROXIES.map(|name| (name, Some(proxy.clone()))));
        // A name of the loopback that is listed leads to a service of this machine, the others to the sandbox's own.
        let is_listed = |name: &&str| {
            let host = name.parse::<std::net::IpAddr>();
            let host = host.map_or_else(|_| Host::Name((*name).to_owned()), Host::Address);
            listed.iter().any(|listed| listed.is_host(&host))
        };
        let own: Vec<&str> = OWN_LOOPBACK
            .into_iter()
            .filter(|name| !is_listed(name))
            .collect();
        let own = (!own.is_empty()).then(|| OsString::from(own.join(",")));
        all.extend(NO_PROXIES.map(|name| (name, own.clone())));
        all.push((NODE_ASKS, Some("1".into())));
    } else if asked.network == Network::None {
        // A proxy's URL can contain a password.
        all.extend(PROXY_VARIABLES.map(|name| (name, None)));
    }
    if asked.network != Network::None {
        let authorities = std::env::var_os(CA_FILE_VAR);
        all.extend(authorities.map(|file| (NODE_CA_FILE, Some(file))));
    }
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
            program_directories(&path, Some(&at("state/work"))),
            [at("b/bin"), at("a/shims")]
        );
    }

    #[test]
    fn agent_1_the_loopback_is_the_programs_own_unless_it_is_listed() {
        let no_proxy = |listed: &[&str]| {
            let listed = listed.iter().map(|host| host.parse().unwrap());
            let asked = SandboxPolicy {
                network: Network::Allow(listed.collect()),
                ..SandboxPolicy::default()
            };
            let ground = ProgramContext {
                project: Path::new("/srv/project"),
                work_dir: None,
                temporary: None,
                egress: None,
            };
            let set = environment(&asked, OsString::new(), &ground);
            let found = set.into_iter().find(|(name, _)| *name == "NO_PROXY");
            found.unwrap().1.map(|value| value.into_string().unwrap())
        };
        let own = "localhost,127.0.0.1,::1".to_owned();
        assert_eq!(no_proxy(&["example.org"]), Some(own.clone()));
        assert_eq!(no_proxy(&["127.0.0.2:8080"]), Some(own));
        assert_eq!(
            no_proxy(&["127.0.0.1:8080"]),
            Some("localhost,::1".to_owned())
        );
        assert_eq!(no_proxy(&["localhost:1", "127.0.0.1", "[::1]"]), None);
    }

    #[test]
    fn prov_2_only_programs_with_any_network_keep_the_proxy() {
        let ground = ProgramContext {
            project: Path::new("/srv/project"),
            work_dir: None,
            temporary: None,
            egress: None,
        };
        let removed = |network| {
            let asked = SandboxPolicy {
                network,
                ..SandboxPolicy::default()
            };
            let set = environment(&asked, OsString::new(), &ground);
            let set = set.into_iter().filter(|(_, value)| value.is_none());
            let removed = set.filter(|(name, _)| PROXY_VARIABLES.contains(name));
            removed.count()
        };
        assert_eq!(removed(Network::None), PROXY_VARIABLES.len());
        assert_eq!(removed(Network::Any), 0);
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
