//! What a model is told when the sandbox kept a program from something.
//!
//! The kernel only says no to the program, and what the program says of that is all there is to go by. So this is
//! a guess from words, which is told as an addition and decides nothing.

use std::path::Path;

use goondan_protocol::sandbox::{Level, Network, SandboxPath, SandboxPolicy};

/// What programs say when something is refused.
const REFUSED: [&str; 6] = [
    "Permission denied",
    "permission denied",
    "Read-only file system",
    "read-only file system",
    "Operation not permitted",
    "operation not permitted",
];

/// What they say when something is not there; at the level `full` that is all that is not granted.
const ABSENT: [&str; 2] = ["No such file or directory", "no such file or directory"];

/// What they say when there is no such process.
const GONE: &str = "No such process";

/// What they say when there is no network.
const UNREACHABLE: [&str; 8] = [
    "Could not resolve host",
    "Temporary failure in name resolution",
    "Name or service not known",
    "Network is unreachable",
    "network is unreachable",
    "EAI_AGAIN",
    "ENETUNREACH",
    "Failed to resolve",
];

/// What they say when a socket cannot be made. Python does not say so itself: it shows where that was.
const NO_SOCKET: [&str; 6] = [
    "socket: Operation not permitted",
    "socket: operation not permitted",
    "connect EPERM",
    "_socket.socket.__init__",
    "Could not open a connection to your authentication agent",
    "Cannot connect to the Docker daemon",
];

/// Who speaks when a signal is refused, or nobody is there to get it.
const SIGNALING: [&str; 2] = ["kill: ", "ProcessLookupError"];

/// Who speaks when a part of the kernel is refused.
const OF_THE_KERNEL: [&str; 6] = [
    "ptrace",
    "PTRACE_",
    "unshare: ",
    "mount: ",
    "setns",
    "bwrap: ",
];

/// Python, of a refusal that it names no file for.
const NAMELESS: &str = "[Errno 1] Operation not permitted";

/// What they say when the proxy to the hosts that may be reached does not let them through.
/// The last of them may be a listed host's own word; what is told then is true all the same.
const NOT_LISTED: [&str; 7] = [
    "CONNECT tunnel failed, response 403",
    "from proxy after CONNECT",
    "Tunnel connection failed: 403",
    "Not allowed by the sandbox",
    "complete SOCKS5 connection",
    "alert access denied",
    "The requested URL returned error: 403",
];

/// Most lines that are looked at, from the end.
const MAX_LINES: usize = 200;

/// What no level but `off` gives.
const ONLY_OFF: &str =
    "a person who wants that can only write `require: off` in the agent's `sandbox`";

/// One sentence on what was denied, by which rule, and what a person could write to allow it; none if nothing
/// seems to have been denied.
pub(super) fn explain(said: &str, policy: &SandboxPolicy) -> Option<String> {
    if policy.require == Level::Off {
        return None;
    }
    let mut lines = said.lines().rev().take(MAX_LINES);
    let denial = lines.find_map(|line| of_line(line, policy));
    let denial = denial.or_else(|| said.contains(NAMELESS).then(of_something))?;
    Some(format!("[sandbox `{}`: {denial}]\n", policy.require))
}

/// What is to be known beside that where modules of packages were denied something.
pub(super) fn of_packages(packages: &[String]) -> Option<String> {
    if packages.is_empty() {
        return None;
    }
    let packages = packages.join("`, `");
    Some(format!(
        "[package `{packages}`: within the agent's `sandbox`, its modules reach what its `permissions` name and a person has granted]\n"
    ))
}

fn of_line(line: &str, policy: &SandboxPolicy) -> Option<String> {
    let says = |words: &[&str]| words.iter().any(|words| line.contains(words));
    if let Some(listed) = policy.allow_list()
        && (says(&UNREACHABLE) || says(&NOT_LISTED))
    {
        let listed: Vec<String> = listed.iter().map(|host| format!("`{host}`")).collect();
        return Some(format!(
            "only {} can be reached from it, by the proxy that `HTTPS_PROXY` names; a person can add a host to \
             `network: {{allow: […]}}` of the agent's `sandbox`",
            listed.join(", ")
        ));
    }
    if policy.network == Network::None && (says(&UNREACHABLE) || is_about_a_host(line)) {
        return Some(of_network(policy.require));
    }
    if says(&NO_SOCKET) {
        return Some(of_sockets(policy));
    }
    if says(&SIGNALING) && (says(&REFUSED) || line.contains(GONE)) {
        return of_processes(says(&REFUSED), policy.require);
    }
    if says(&OF_THE_KERNEL) && says(&REFUSED) {
        return Some(format!(
            "mounts, namespaces and the tracing of processes are refused in it; {ONLY_OFF}"
        ));
    }
    of_files(line, policy, says(&ABSENT), says(&REFUSED))
}

fn of_files(
    line: &str,
    policy: &SandboxPolicy,
    is_absent: bool,
    is_refused: bool,
) -> Option<String> {
    let is_absent = policy.require == Level::Full && is_absent;
    if !is_absent && !is_refused {
        return None;
    }
    let mut named = line.split(is_around_a_path).filter(|word| is_path(word));
    let outside = named.clone().find(|path| {
        !is_beneath(path, &policy.read)
            && !is_beneath(path, &policy.write)
            && !is_own(path, policy.require)
    });
    if let Some(path) = outside {
        return Some(format!(
            "`{path}` is not in it; a person can list it, or the directory that holds it, under `read` or `write` \
             of the agent's `sandbox`"
        ));
    }
    if is_absent {
        return None;
    }
    let read_only =
        named.rfind(|path| is_beneath(path, &policy.read) && !is_beneath(path, &policy.write))?;
    Some(format!(
        "`{read_only}` may only be read in it; write in the work directory, or a person can list the path under \
         `write` of the agent's `sandbox`"
    ))
}

fn of_network(level: Level) -> String {
    const HTTP_FETCH: &str = "give the agent the tool `http-fetch`";
    match level {
        Level::Full => format!(
            "there is no network in it; a person can list the hosts that are needed under `network: {{allow: […]}}` \
             of the agent's `sandbox`, or {HTTP_FETCH}"
        ),
        Level::Landlock | Level::Seatbelt | Level::Off => format!(
            "there is no network in it; a person can {HTTP_FETCH} for the hosts that are needed, or write `require: \
             full` in its `sandbox`, at which level hosts can be listed under `network: {{allow: […]}}`"
        ),
    }
}

fn of_sockets(policy: &SandboxPolicy) -> String {
    // With a network, or one of its own, those of the network can be made.
    let has_network = policy.network == Network::Any || policy.require == Level::Full;
    if has_network {
        format!(
            "no sockets of files can be made in it, so that Docker, D-Bus and SSH agents cannot be reached; {ONLY_OFF}"
        )
    } else {
        "no sockets can be made in it; for the network a person can give the agent the tool `http-fetch`, or write \
         `require: full` in its `sandbox` and list hosts under `network: {allow: […]}`; sockets of files, such as \
         Docker's, take `require: off`"
            .to_owned()
    }
}

fn of_processes(is_refused: bool, level: Level) -> Option<String> {
    match level {
        // Nobody can tell whom it does not see from whom there is not.
        Level::Full if !is_refused => Some(format!("only its own processes are there; {ONLY_OFF}")),
        _ if is_refused => Some(format!(
            "processes outside of it get no signals; {ONLY_OFF}"
        )),
        Level::Full | Level::Landlock | Level::Seatbelt | Level::Off => None,
    }
}

/// Of a refusal of which nothing more is known.
fn of_something() -> String {
    format!(
        "what was refused may be a signal to a process outside of it, a socket of files, a mount, a namespace or the \
         tracing of a process; {ONLY_OFF}"
    )
}

/// Whether curl could not connect to some host, and not to one of the sandbox's own services.
fn is_about_a_host(line: &str) -> bool {
    let host = line
        .split_once("Failed to connect to ")
        .map(|(_, rest)| rest);
    let host = host.and_then(|rest| rest.split_whitespace().next());
    host.is_some_and(|host| host != "localhost" && host != "::1" && !host.starts_with("127."))
}

fn is_around_a_path(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\'' | '"' | '`' | ':' | ',' | '(' | ')' | '‘' | '’')
}

fn is_path(word: &str) -> bool {
    word.len() > 1 && word.starts_with('/')
}

/// Whether it is of the sandbox itself, and so nothing that a person could list.
fn is_own(path: &str, level: Level) -> bool {
    let own: &[&str] = match level {
        Level::Full => &["/proc", "/dev", "/sys", "/tmp", "/run"],
        Level::Landlock | Level::Seatbelt | Level::Off => &["/proc", "/dev", "/sys"],
    };
    own.iter().any(|own| Path::new(path).starts_with(own))
}

fn is_beneath(path: &str, granted: &[SandboxPath]) -> bool {
    let path = Path::new(path);
    granted.iter().any(|it| path.starts_with(it.as_path()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(require: Level) -> SandboxPolicy {
        let paths = |paths: &[&str]| {
            let paths = paths.iter().map(|path| Path::new(path).to_owned());
            paths.map(|path| path.try_into().unwrap()).collect()
        };
        SandboxPolicy {
            require,
            read: paths(&["/usr", "/bin", "/srv/project"]),
            write: paths(&["/state/desk"]),
            network: Network::None,
        }
    }

    #[test]
    fn sec_3_a_denial_names_the_path_and_what_would_allow_it() {
        let explain = |said: &str| explain(said, &policy(Level::Landlock)).unwrap_or_default();
        for said in [
            "cat: /home/me/.ssh/id_rsa: Permission denied",
            "PermissionError: [Errno 13] Permission denied: '/home/me/.ssh/id_rsa'",
            "Error: EACCES: permission denied, open '/home/me/.ssh/id_rsa'",
            "/bin/bash: line 1: /home/me/.ssh/id_rsa: Permission denied\nand more",
        ] {
            let told = explain(said);
            assert!(
                told.contains("`/home/me/.ssh/id_rsa` is not in it"),
                "{said}: {told}"
            );
            assert!(told.contains("`read`"), "{told}");
        }
        let told = explain("touch: cannot touch '/srv/project/a': Permission denied");
        assert!(told.contains("`/srv/project/a` may only be read"), "{told}");
        let told = explain("curl: (6) Could not resolve host: example.org");
        assert!(told.contains("no network"), "{told}");
    }

    #[test]
    fn sec_3_a_host_that_is_not_listed_is_told_with_those_that_are() {
        let listed = SandboxPolicy {
            network: Network::Allow(vec!["packages.example.org".parse().unwrap()]),
            ..policy(Level::Full)
        };
        for said in [
            "curl: (56) CONNECT tunnel failed, response 403",
            "curl: (6) Could not resolve host: example.org",
            "OSError: Tunnel connection failed: 403 Not allowed by the sandbox",
        ] {
            let told = explain(said, &listed).unwrap();
            assert!(told.contains("only `packages.example.org`"), "{told}");
            assert!(told.contains("`network: {allow: […]}`"), "{told}");
        }
    }

    #[test]
    fn sec_3_a_denial_of_something_else_than_a_file_says_what_it_was() {
        let at = |level, said: &str| explain(said, &policy(level)).unwrap_or_default();
        let python = "  File \"/usr/lib/python3.11/socket.py\", line 232, in __init__\n    \
                      _socket.socket.__init__(self, family, type, proto, fileno)\n\
                      PermissionError: [Errno 1] Operation not permitted\n";
        let docker = "permission denied while trying to connect to the Docker daemon socket at \
                      unix:///var/run/docker.sock: dial unix /var/run/docker.sock: socket: operation not permitted";
        for said in [
            python,
            docker,
            "Error: connect EPERM /run/user/1000/bus",
            "Could not open a connection to your authentication agent.",
        ] {
            let told = at(Level::Full, said);
            assert!(told.contains("no sockets of files"), "{said}: {told}");
            assert!(told.contains("`require: off`"), "{told}");
            assert!(!told.contains("network"), "{told}");
            let told = at(Level::Landlock, said);
            assert!(told.contains("no sockets can be made"), "{said}: {told}");
            assert!(told.contains("`http-fetch`"), "{told}");
        }
        let told = at(Level::Full, "bash: line 1: kill: (6822) - No such process");
        assert!(told.contains("only its own processes"), "{told}");
        let python = "ProcessLookupError: [Errno 3] No such process";
        assert!(at(Level::Full, python).contains("only its own processes"));
        let told = at(
            Level::Landlock,
            "bash: line 1: kill: (6822) - Operation not permitted",
        );
        assert!(told.contains("get no signals"), "{told}");
        let gone = "bash: line 1: kill: (6822) - No such process";
        assert_eq!(at(Level::Landlock, gone), "");
        for said in [
            "mount: /mnt: permission denied.",
            "unshare: unshare failed: Operation not permitted",
            "strace: ptrace(PTRACE_TRACEME, ...): Operation not permitted",
        ] {
            let told = at(Level::Landlock, said);
            assert!(told.contains("tracing of processes are refused"), "{told}");
            assert!(!told.contains("`read`"), "{told}");
        }
        let told = at(
            Level::Full,
            "PermissionError: [Errno 1] Operation not permitted",
        );
        assert!(told.contains("may be a signal"), "{told}");
    }

    #[test]
    fn sec_3_a_network_that_is_missing_is_told_with_what_gives_one() {
        let connect =
            "curl: (7) Failed to connect to 1.1.1.1 port 80 after 0 ms: Couldn't connect to server";
        for said in [connect, "OSError: [Errno 101] Network is unreachable"] {
            let told = explain(said, &policy(Level::Full)).unwrap();
            assert!(told.contains("under `network: {allow: […]}`"), "{told}");
            let told = explain(said, &policy(Level::Landlock)).unwrap();
            assert!(told.contains("`require: full`"), "{told}");
        }
        let own = "curl: (7) Failed to connect to 127.0.0.1 port 80 after 0 ms: Couldn't connect to server";
        assert_eq!(explain(own, &policy(Level::Full)), None);
        let open = SandboxPolicy {
            network: Network::Any,
            ..policy(Level::Full)
        };
        for said in [connect, "curl: (6) Could not resolve host: example.org"] {
            assert_eq!(explain(said, &open), None, "{said}");
        }
    }

    #[test]
    fn sec_3_what_is_below_the_directory_of_temporary_files_is_explained_as_well() {
        let paths = |path: &str| vec![Path::new(path).to_owned().try_into().unwrap()];
        let below = |level| SandboxPolicy {
            read: paths("/tmp/project"),
            ..policy(level)
        };
        for level in [Level::Full, Level::Landlock] {
            let told = explain("cp: '/tmp/project/copy': Permission denied", &below(level));
            assert!(told.unwrap().contains("may only be read"));
        }
        // Only at the level `full` it is another directory.
        let denied = "cat: /tmp/other: Permission denied";
        let told = explain(denied, &below(Level::Landlock)).unwrap();
        assert!(told.contains("`/tmp/other` is not in it"), "{told}");
        assert_eq!(explain(denied, &below(Level::Full)), None);
    }

    #[test]
    fn sec_3_what_the_sandbox_did_not_deny_is_not_laid_at_its_door() {
        let full = |said: &str| explain(said, &policy(Level::Full));
        assert!(full("cat: /home/me/x: No such file or directory").is_some());
        for said in [
            "cat: /state/desk/x: No such file or directory",
            "cat: x: Permission denied",
            "bash: line 1: /state/desk/x: Permission denied",
            "make: *** [all] Error 2",
        ] {
            assert_eq!(full(said), None, "{said}");
        }
        let said = "cat: /home/me/x: No such file or directory";
        assert_eq!(explain(said, &policy(Level::Landlock)), None);
        assert_eq!(explain("x: Permission denied", &SandboxPolicy::off()), None);
    }
}
