//! Hints for the model when the sandbox denied something to a program (`SEC-10`).
//!
//! The kernel only returns an error to the program, so the program's output is the only source. The
//! hint is therefore a guess from that text; it is added to the output and has no other effect.

use std::path::Path;

use goondan_protocol::sandbox::{Level, Network, SandboxPath, SandboxPolicy};

/// Messages of programs that were refused something.
const REFUSED: [&str; 6] = [
    "Permission denied",
    "permission denied",
    "Read-only file system",
    "read-only file system",
    "Operation not permitted",
    "operation not permitted",
];

/// Messages about missing files; at the level `full` everything that is not granted is missing.
const ABSENT: [&str; 2] = ["No such file or directory", "no such file or directory"];

/// Message about a missing process.
const GONE: &str = "No such process";

/// Messages about a missing network.
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

/// Messages about sockets that cannot be created, or about a missing socket of the machine. Python
/// prints no such message; its traceback shows the place.
const NO_SOCKET: [&str; 9] = [
    "listen EPERM",
    "_socket.socketpair",
    "socket: Operation not permitted",
    "socket: operation not permitted",
    "connect EPERM",
    "_socket.socket.__init__",
    "Could not open a connection to your authentication agent",
    "Cannot connect to the Docker daemon",
    "Failed to connect to bus",
];

/// Words in lines about Unix sockets in the file system.
const ABOUT_A_SOCKET: [&str; 5] = ["socket", "dial unix", "connect E", ".sock", "unix:"];

/// Messages about a socket without a listener.
const LEADS_NOWHERE: [&str; 4] = [
    "connect ENOENT",
    "Connection refused",
    "connection refused",
    "ECONNREFUSED",
];

/// Programs and functions that are refused memory or semaphores that other processes could find.
const SHARED_BY_KEY: [&str; 6] = [
    "shmget",
    "semget",
    "msgget",
    "mq_open",
    "shared memory segment",
    "create semaphores",
];

/// Messages about missing pseudo-terminals.
const NO_TERMINAL: [&str; 4] = ["out of pty devices", "openpty", "posix_openpt", "/dev/ptmx"];

/// Programs and functions that are refused a mode. Users may change the modes of their files,
/// except to set-user-id.
const OF_MODES: [&str; 4] = [
    "changing permissions of",
    "change permissions of",
    "Cannot change mode to",
    "set permissions",
];

/// Messages about moves of files from one mount to another.
const ACROSS_MOUNTS: [&str; 4] = [
    "Invalid cross-device link",
    "cross-device link not permitted",
    "Cross-device link",
    "EXDEV",
];

/// Programs and functions that are refused a signal, or whose target does not exist.
const SIGNALING: [&str; 2] = ["kill: ", "ProcessLookupError"];

/// Programs and functions that are refused a part of the kernel.
const OF_THE_KERNEL: [&str; 6] = [
    "ptrace",
    "PTRACE_",
    "unshare: ",
    "mount: ",
    "setns",
    "bwrap: ",
];

/// Python's message for a refusal without a file name.
const NAMELESS: &str = "[Errno 1] Operation not permitted";

/// Python's message for a missing or refused object without a name: Python names files but not
/// sockets.
const NAMELESS_SOCKET: [&str; 2] = [
    "[Errno 2] No such file or directory",
    "[Errno 13] Permission denied",
];

/// Messages about a proxy that refuses a host. A listed host can also send the last one; the hint
/// is true in that case, too.
const NOT_LISTED: [&str; 7] = [
    "CONNECT tunnel failed, response 403",
    "from proxy after CONNECT",
    "Tunnel connection failed: 403",
    "Not allowed by the sandbox",
    "complete SOCKS5 connection",
    "alert access denied",
    "The requested URL returned error: 403",
];

/// Number of lines to check, from the end.
const MAX_LINES: usize = 200;

/// Explains denials under a policy, and names the setting that would allow the operation.
#[derive(Debug, Clone, Copy)]
pub struct Denials<'a> {
    policy: &'a SandboxPolicy,
    /// Owner of the `sandbox` setting, as text.
    owner: &'static str,
}

/// Additional hint for denials in modules of packages; `None` without packages.
#[must_use]
pub fn denial_of_packages(packages: &[String]) -> Option<String> {
    if packages.is_empty() {
        return None;
    }
    let packages = packages.join("`, `");
    Some(format!(
        "[package `{packages}`: within the agent's `sandbox`, its modules reach what its `permissions` name and a person has granted]\n"
    ))
}

impl<'a> Denials<'a> {
    /// For programs that run for an agent.
    #[must_use]
    pub fn of_agent(policy: &'a SandboxPolicy) -> Self {
        let owner = "the agent's";
        Self { policy, owner }
    }

    /// For the program of a connection.
    #[must_use]
    pub fn of_connection(policy: &'a SandboxPolicy) -> Self {
        let owner = "the connection's";
        Self { policy, owner }
    }

    /// One sentence about the denial, the rule behind it, and a setting that would allow it; `None`
    /// if nothing seems to have been denied.
    #[must_use]
    pub fn explain(&self, said: &str) -> Option<String> {
        let level = self.policy.require;
        if level == Level::Off {
            return None;
        }
        let lines: Vec<&str> = said.lines().rev().take(MAX_LINES).collect();
        let denial = lines.iter().find_map(|line| self.of_line(line));
        let denial = denial.or_else(|| self.of_wrapped_line(&lines));
        let denial = denial.or_else(|| said.contains(NAMELESS).then(|| self.of_something()))?;
        Some(format!("[sandbox `{level}`: {denial}]\n"))
    }

    /// For programs that wrap their messages: joins a refusal with the line before it, where its
    /// path begins. The last line comes first.
    fn of_wrapped_line(&self, lines: &[&str]) -> Option<String> {
        lines.windows(2).find_map(|pair| {
            let [line, before] = pair else { return None };
            let is_refused = REFUSED.iter().any(|words| line.contains(words));
            let joined = || format!("{}{}", before.trim_end(), line.trim_start());
            is_refused.then(joined).and_then(|line| self.of_line(&line))
        })
    }

    fn of_line(&self, line: &str) -> Option<String> {
        let (policy, owner) = (self.policy, self.owner);
        let says = |words: &[&str]| words.iter().any(|words| line.contains(words));
        let (is_absent, is_refused) = (says(&ABSENT), says(&REFUSED));
        if let Some(listed) = policy.allow_list()
            && (says(&UNREACHABLE) || says(&NOT_LISTED))
        {
            let listed: Vec<String> = listed.iter().map(|host| format!("`{host}`")).collect();
            return Some(format!(
                "programs in it can reach only {}, through the proxy in `HTTPS_PROXY`; a person \
                 can add a host to `network: {{allow: […]}}` of {owner} `sandbox`",
                listed.join(", ")
            ));
        }
        if policy.network == Network::None
            && (says(&UNREACHABLE) || is_about_a_host(line))
            && !says(&NO_SOCKET)
        {
            return Some(self.of_network());
        }
        if says(&SHARED_BY_KEY) && is_refused && policy.require != Level::Full {
            return Some(format!(
                "it refuses memory, queues and semaphores shared with other processes; a person \
                 can write `require: full` in {owner} `sandbox`, which gives it private ones"
            ));
        }
        if says(&NO_TERMINAL) && policy.require != Level::Full {
            return Some(format!(
                "terminals cannot be created in it; a person can write `require: full` in {owner} \
                 `sandbox`, which gives it private ones"
            ));
        }
        let mut nameless = NAMELESS_SOCKET.iter();
        let is_nameless = nameless.any(|words| line.trim_end().ends_with(words));
        if is_nameless && is_refused && policy.require != Level::Full {
            return Some(format!(
                "it may have refused shared memory or a semaphore, such as Python's \
                 multiprocessing uses; a person can write `require: full` in {owner} `sandbox`, \
                 which gives it private ones"
            ));
        }
        let leads_nowhere = is_absent || is_refused || says(&LEADS_NOWHERE);
        let is_socket_absent = policy.require == Level::Full
            && (is_nameless
                || (says(&ABOUT_A_SOCKET) && leads_nowhere && self.names_outside(line)));
        if says(&NO_SOCKET) || is_socket_absent {
            return Some(self.of_sockets());
        }
        if says(&SIGNALING) && (is_refused || line.contains(GONE)) {
            return self.of_processes(is_refused);
        }
        if says(&OF_THE_KERNEL) && is_refused {
            return Some(format!(
                "mounts, namespaces and the tracing of processes are refused in it; {}",
                self.only_off()
            ));
        }
        if says(&ACROSS_MOUNTS) && policy.require == Level::Full {
            return Some(format!(
                "each listed directory is a separate mount in it, so files cannot be renamed or \
                 linked between them: copy the file; or a person can list a directory that \
                 contains both under `write` of {owner} `sandbox`"
            ));
        }
        let of_files = self.of_files(line, is_absent, is_refused);
        let is_mode = says(&OF_MODES) && line.contains("Operation not permitted");
        of_files.or_else(|| {
            is_mode.then(|| {
                format!(
                    "files that run with their owner's rights (set-user-id) cannot be created in it; {}",
                    self.only_off()
                )
            })
        })
    }

    /// True if a line names a path that is neither the sandbox's own nor writable. `/run` is the
    /// sandbox's own and only contains files that programs create there.
    fn names_outside(&self, line: &str) -> bool {
        let own = ["/tmp", "/proc", "/dev/shm"];
        let is_own = |path: &str| own.iter().any(|own| Path::new(path).starts_with(own));
        let mut named = paths_in(line);
        named.any(|path| !is_own(path) && !is_beneath(path, &self.policy.write))
    }

    fn of_files(&self, line: &str, is_absent: bool, is_refused: bool) -> Option<String> {
        let (policy, owner) = (self.policy, self.owner);
        let is_absent = policy.require == Level::Full && is_absent;
        if !is_absent && !is_refused {
            return None;
        }
        let outside = paths_in(line).find(|path| {
            !is_beneath(path, &policy.read)
                && !is_beneath(path, &policy.write)
                && !is_own(path, policy.require)
        });
        if let Some(path) = outside {
            return Some(format!(
                "`{path}` is not in it; a person can list it, or its directory, under `read` or \
                 `write` of {owner} `sandbox`"
            ));
        }
        if is_absent {
            return None;
        }
        let is_read_only =
            |path: &&str| is_beneath(path, &policy.read) && !is_beneath(path, &policy.write);
        let read_only = paths_in(line).filter(is_read_only).last()?;
        Some(format!(
            "`{read_only}` may only be read in it; write in the work directory, or a person can list the path under \
             `write` of {owner} `sandbox`"
        ))
    }

    fn of_network(&self) -> String {
        const HTTP_FETCH: &str = "give the agent the tool `http-fetch`";
        let owner = self.owner;
        match self.policy.require {
            Level::Full => format!(
                "it has no network; a person can list the needed hosts under `network: {{allow: \
                 […]}}` of {owner} `sandbox`, or {HTTP_FETCH}"
            ),
            Level::Landlock | Level::Seatbelt | Level::Off => format!(
                "it has no network; a person can {HTTP_FETCH} for the needed hosts, or write \
                 `require: full` in {owner} `sandbox` and list the hosts under `network: {{allow: \
                 […]}}`"
            ),
        }
    }

    fn of_sockets(&self) -> String {
        let (owner, only_off) = (self.owner, self.only_off());
        match (self.policy.require, &self.policy.network) {
            (Level::Full, _) => format!(
                "sockets of the machine, such as those of Docker, D-Bus and SSH agents, are not in \
                 it; private sockets can be created in the work directory and in `/tmp`; \
                 {only_off}"
            ),
            (_, Network::Any) => format!(
                "no sockets of files can be made in it, since they would lead to Docker, D-Bus and SSH agents; a person \
                 can write `require: full` in {owner} `sandbox` for sockets of its own; for those of the machine, {only_off}"
            ),
            (_, Network::None | Network::Allow(_)) => format!(
                "no sockets can be made in it; for sockets of its own, and for hosts listed under `network: {{allow: \
                 […]}}`, a person can write `require: full` in {owner} `sandbox`, or give the agent the tool `http-fetch`; \
                 for sockets of the machine, such as Docker's, {only_off}"
            ),
        }
    }

    fn of_processes(&self, is_refused: bool) -> Option<String> {
        let only_off = self.only_off();
        match self.policy.require {
            // Hidden processes cannot be distinguished from missing ones.
            Level::Full if !is_refused => {
                Some(format!("only its own processes are there; {only_off}"))
            }
            _ if is_refused => Some(format!(
                "it cannot send signals to processes outside; {only_off}"
            )),
            Level::Full | Level::Landlock | Level::Seatbelt | Level::Off => None,
        }
    }

    /// Hint for a denial without further details.
    fn of_something(&self) -> String {
        format!(
            "it may have refused a signal to a process outside, a socket of the machine, a \
             set-user-id file, a mount, a namespace or tracing a process; {}",
            self.only_off()
        )
    }

    /// Hint for something that only the level `off` permits.
    fn only_off(&self) -> String {
        let owner = self.owner;
        format!("a person can allow it only with `require: off` in {owner} `sandbox`")
    }
}

/// True if curl failed to connect to a host other than the sandbox's own services.
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

/// The absolute paths in a line.
fn paths_in(line: &str) -> impl Iterator<Item = &str> {
    line.split(is_around_a_path).filter(|word| is_path(word))
}

fn is_path(word: &str) -> bool {
    word.len() > 1 && word.starts_with('/')
}

/// True if a path is the sandbox's own, so that a person cannot list it.
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

    fn explain(said: &str, policy: &SandboxPolicy) -> Option<String> {
        Denials::of_agent(policy).explain(said)
    }

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
    fn sec_3_denial_names_the_path_and_the_setting_that_allows_it() {
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
    fn sec_3_denial_names_a_path_that_the_program_wrapped() {
        // Printed by pnpm 12.21.0.
        let said = "  × installing dependencies\n  ╰─▶ Failed to open the store operation lock at \
                    \"/tmp/pnpm-store-operation-\n      locks-0/all-stores.lock\": Permission denied \
                    (os error 13)\n";
        let told = explain(said, &policy(Level::Landlock)).unwrap();
        let path = "`/tmp/pnpm-store-operation-locks-0/all-stores.lock` is not in it";
        assert!(told.contains(path), "{told}");
    }

    #[test]
    fn sec_3_unlisted_host_is_reported_with_the_listed_ones() {
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
    fn sec_3_denial_of_a_non_file_operation_names_the_operation() {
        let at = |level, said: &str| explain(said, &policy(level)).unwrap_or_default();
        let python = "  File \"/usr/lib/python3.11/socket.py\", line 232, in __init__\n    \
                      _socket.socket.__init__(self, family, type, proto, fileno)\n\
                      PermissionError: [Errno 1] Operation not permitted\n";
        let docker = "permission denied while trying to connect to the Docker daemon socket at \
                      unix:///var/run/docker.sock: dial unix /var/run/docker.sock: socket: operation not permitted";
        let absent = "FileNotFoundError: [Errno 2] No such file or directory";
        for said in [
            python,
            docker,
            absent,
            "Error: connect ENOENT /run/user/1000/bus",
            "dial unix /srv/project/app.sock: connect: connection refused",
            "Failed to connect to bus: No such file or directory",
            "Could not open a connection to your authentication agent.",
        ] {
            let told = at(Level::Full, said);
            assert!(told.contains("sockets of the machine"), "{said}: {told}");
            assert!(told.contains("`require: off`"), "{told}");
            assert!(!told.contains("network"), "{told}");
        }
        for own in ["/tmp/.s.PGSQL.5432", "/state/desk/.s.PGSQL.5432"] {
            let text = format!(
                "connection to server on socket \"{own}\" failed: No such file or directory"
            );
            assert_eq!(at(Level::Full, &text), "");
        }
        for said in [
            python,
            docker,
            "Could not open a connection to your authentication agent.",
        ] {
            let told = at(Level::Landlock, said);
            assert!(told.contains("no sockets can be made"), "{said}: {told}");
            assert!(told.contains("`http-fetch`"), "{told}");
            assert!(told.contains("`require: full`"), "{told}");
        }
        for said in [
            "FATAL:  could not create shared memory segment: Operation not permitted",
            "shmget: Operation not permitted",
        ] {
            let told = at(Level::Landlock, said);
            assert!(told.contains("memory, queues and semaphores"), "{told}");
            assert!(told.contains("`require: full`"), "{told}");
        }
        let semaphore = "PermissionError: [Errno 13] Permission denied";
        for said in [
            semaphore,
            "OSError: out of pty devices",
            "Error: listen EPERM: operation not permitted",
        ] {
            let told = at(Level::Landlock, said);
            assert!(told.contains("`require: full`"), "{said}: {told}");
        }
        let mode = "chmod: changing permissions of 'copy': Operation not permitted";
        assert!(at(Level::Full, mode).contains("set-user-id"));
        let moved = "mv: cannot link 'a/x' to '/srv/out/x': Invalid cross-device link";
        assert!(at(Level::Full, moved).contains("a separate mount"));
        assert_eq!(at(Level::Landlock, moved), "");
        let told = at(Level::Full, "bash: line 1: kill: (6822) - No such process");
        assert!(told.contains("only its own processes"), "{told}");
        let python = "ProcessLookupError: [Errno 3] No such process";
        assert!(at(Level::Full, python).contains("only its own processes"));
        let told = at(
            Level::Landlock,
            "bash: line 1: kill: (6822) - Operation not permitted",
        );
        assert!(told.contains("cannot send signals"), "{told}");
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
        assert!(told.contains("may have refused a signal"), "{told}");
    }

    #[test]
    fn sec_3_missing_network_is_reported_with_the_setting_for_it() {
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
    fn sec_3_denial_below_the_temporary_directory_is_explained() {
        let paths = |path: &str| vec![Path::new(path).to_owned().try_into().unwrap()];
        let below = |level| SandboxPolicy {
            read: paths("/tmp/project"),
            ..policy(level)
        };
        for level in [Level::Full, Level::Landlock] {
            let told = explain("cp: '/tmp/project/copy': Permission denied", &below(level));
            assert!(told.unwrap().contains("may only be read"));
        }
        // Only at the level `full` it is a different directory.
        let denied = "cat: /tmp/other: Permission denied";
        let told = explain(denied, &below(Level::Landlock)).unwrap();
        assert!(told.contains("`/tmp/other` is not in it"), "{told}");
        assert_eq!(explain(denied, &below(Level::Full)), None);
    }

    #[test]
    fn sec_3_failures_unrelated_to_the_sandbox_are_not_attributed() {
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

    #[test]
    fn sec_10_denial_names_the_owner_of_the_sandbox_setting() {
        let policy = policy(Level::Full);
        let said = "cat: /home/me/x: No such file or directory";
        for (denials, owner) in [
            (Denials::of_agent(&policy), "the agent's `sandbox`"),
            (
                Denials::of_connection(&policy),
                "the connection's `sandbox`",
            ),
        ] {
            let told = denials.explain(said).unwrap();
            assert!(told.contains(owner), "{told}");
        }
    }
}
