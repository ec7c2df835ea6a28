//! What a model is told when the sandbox kept a program from something.
//!
//! The kernel only says no to the program, and what the program says of that is all there is to go by. So this is
//! a guess from words, which is told as an addition and decides nothing.

use std::path::Path;

use goondan_protocol::sandbox::{Level, SandboxPath, SandboxPolicy};

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

/// What they say when there is no network.
const UNREACHABLE: [&str; 9] = [
    "Could not resolve host",
    "Temporary failure in name resolution",
    "Name or service not known",
    "Network is unreachable",
    "network is unreachable",
    "socket: Operation not permitted",
    "EAI_AGAIN",
    "ENETUNREACH",
    "Failed to resolve",
];

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

/// One sentence on what was denied, by which rule, and what a person could write to allow it; none if nothing
/// seems to have been denied.
pub(super) fn explain(said: &str, policy: &SandboxPolicy) -> Option<String> {
    if policy.require == Level::Off {
        return None;
    }
    let mut lines = said.lines().rev().take(MAX_LINES);
    let denial = lines.find_map(|line| of_line(line, policy))?;
    Some(format!("[sandbox `{}`: {denial}]\n", policy.require))
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
    if says(&UNREACHABLE) {
        return Some(
            "there is no network in it; a tool such as `http-fetch` can be given by a person for the hosts that \
             are needed"
                .to_owned(),
        );
    }
    let is_absent = policy.require == Level::Full && says(&ABSENT);
    if !is_absent && !says(&REFUSED) {
        return None;
    }
    let mut named = line.split(is_around_a_path).filter(|word| is_path(word));
    let outside = named.clone().find(|path| {
        !is_beneath(path, &policy.read) && !is_beneath(path, &policy.write) && !is_own(path)
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
    let read_only = named.rfind(|path| {
        is_beneath(path, &policy.read) && !is_beneath(path, &policy.write) && !is_own(path)
    })?;
    Some(format!(
        "`{read_only}` may only be read in it; write in the work directory, or a person can list the path under \
         `write` of the agent's `sandbox`"
    ))
}

fn is_around_a_path(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\'' | '"' | '`' | ':' | ',' | '(' | ')' | '‘' | '’')
}

fn is_path(word: &str) -> bool {
    word.len() > 1 && word.starts_with('/')
}

/// Whether it is of the sandbox itself, and so nothing that a person could list.
fn is_own(path: &str) -> bool {
    ["/proc", "/dev", "/sys", "/tmp", "/run"]
        .iter()
        .any(|own| Path::new(path).starts_with(own))
}

fn is_beneath(path: &str, granted: &[SandboxPath]) -> bool {
    let path = Path::new(path);
    granted.iter().any(|it| path.starts_with(it.as_path()))
}

#[cfg(test)]
mod tests {
    use goondan_protocol::sandbox::Network;

    use super::*;

    fn policy(require: Level) -> SandboxPolicy {
        let paths = |paths: &[&str]| {
            let paths = paths.iter().map(|path| Path::new(path).to_owned());
            paths.map(|path| path.try_into().unwrap()).collect()
        };
        SandboxPolicy {
            require,
            read: paths(&["/usr", "/bin", "/srv/project"]),
            write: paths(&["/state/work"]),
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
    fn sec_3_what_the_sandbox_did_not_deny_is_not_laid_at_its_door() {
        let full = |said: &str| explain(said, &policy(Level::Full));
        assert!(full("cat: /home/me/x: No such file or directory").is_some());
        for said in [
            "cat: /state/work/x: No such file or directory",
            "cat: x: Permission denied",
            "bash: line 1: /state/work/x: Permission denied",
            "make: *** [all] Error 2",
        ] {
            assert_eq!(full(said), None, "{said}");
        }
        let said = "cat: /home/me/x: No such file or directory";
        assert_eq!(explain(said, &policy(Level::Landlock)), None);
        assert_eq!(explain("x: Permission denied", &SandboxPolicy::off()), None);
    }
}
