//! Parses the command line: started by the daemon or by a user.

use std::ffi::{OsStr, OsString};

use goondan_protocol::ipc::IPC_FD_VAR;
use goondan_protocol::version::GOONDAN_VERSION;

pub(crate) const BINARY_NAME: &str = "goondan-replica";

/// The only allowed descriptor of the daemon's socket: stdin.
const IPC_FD: &str = "0";

/// Action to take.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReplicaMode {
    Serve,
    /// Print this text and exit successfully.
    Tell(String),
    /// Print this text to stderr and exit with a usage error.
    Misused(String),
}

/// Parses the arguments after the program's name, and the value of [`IPC_FD_VAR`].
pub(crate) fn read(arguments: &[OsString], ipc_fd: Option<&OsStr>) -> ReplicaMode {
    match arguments.first() {
        Some(argument) if argument == "--version" || argument == "-V" => {
            ReplicaMode::Tell(format!("{BINARY_NAME} {GOONDAN_VERSION}\n"))
        }
        Some(argument) if argument == "--help" || argument == "-h" => ReplicaMode::Tell(help()),
        // Not repeated, because it may be a URL with a password.
        Some(_) => ReplicaMode::Misused(format!(
            "{BINARY_NAME}: unexpected argument\nhint: the server's URL comes over the socket, \
             never on the command line; see `{BINARY_NAME} --help`\n"
        )),
        None if ipc_fd.is_some_and(|fd| fd == IPC_FD) => ReplicaMode::Serve,
        None => ReplicaMode::Misused(format!(
            "{BINARY_NAME} must be started by goondan-orchestrator, not by hand: {IPC_FD_VAR} is \
             not `{IPC_FD}`\nhint: see docs/replication.md\n"
        )),
    }
}

fn help() -> String {
    format!(
        "Holds the connection to the PostgreSQL server that stores the logs of workspaces.\n\n\
         goondan-orchestrator starts this process and talks to it over a socket on its stdin\n\
         ({IPC_FD_VAR}={IPC_FD}), which also carries the server's URL. Do not start it by hand.\n\n\
         Usage: {BINARY_NAME} [--version | --help]\n\n\
         Exit codes:\n\
         \x20 0  the orchestrator closed the socket\n\
         \x20 1  the orchestrator has another version or sent an invalid message, or the URL is invalid\n\
         \x20 2  not started by the orchestrator\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(arguments: &[&str], ipc_fd: Option<&str>) -> ReplicaMode {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        read(&arguments, ipc_fd.map(OsStr::new))
    }

    #[test]
    fn replica_serves_only_the_daemon_and_echoes_no_argument() {
        assert_eq!(start(&[], Some("0")), ReplicaMode::Serve);
        let url = "postgres://u:hidden@h/d";
        for (arguments, ipc_fd, said) in [
            (&[][..], None, "started by goondan-orchestrator"),
            (&[], Some("3"), "not `0`"),
            (&[url], Some("0"), "over the socket"),
        ] {
            match start(arguments, ipc_fd) {
                ReplicaMode::Misused(text) => {
                    assert!(text.contains(said) && !text.contains("hidden"), "{text}");
                }
                other => panic!("{arguments:?} {ipc_fd:?} gave {other:?}"),
            }
        }
    }

    #[test]
    fn version_and_help_need_no_daemon() {
        let version = format!("goondan-replica {GOONDAN_VERSION}\n");
        assert_eq!(start(&["--version"], None), ReplicaMode::Tell(version));
        assert!(
            matches!(start(&["-h"], None), ReplicaMode::Tell(text) if text.contains("Exit codes"))
        );
    }
}
