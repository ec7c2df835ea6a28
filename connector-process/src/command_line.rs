//! Command line of the process: started by the orchestrator, as a relay, or by hand.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use goondan_confinement::{Sandbox, out_of_words};
use goondan_protocol::ipc::IPC_FD_VAR;
use goondan_protocol::version::GOONDAN_VERSION;

pub(crate) const BINARY_NAME: &str = "goondan-connector-process";

/// The only supported descriptor of the socket to the orchestrator: stdin.
const IPC_FD: &str = "0";

/// The argument with which this binary starts itself in place of a connector program. The program
/// and its arguments follow; a sandbox policy can precede it.
pub(crate) const BECOME: &str = "--become";

/// The argument with which this binary relays a connector to a daemon on another machine. A file
/// follows.
const RELAY_TO: &str = "relay-to";

/// Action to perform.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ProcessMode {
    Serve,
    /// Turn into this program, which ends together with its parent.
    Become(Option<Sandbox>, Vec<OsString>),
    /// Relay the connector that this file describes.
    Relay(PathBuf),
    /// Print this and exit successfully.
    Tell(String),
    /// Print this to stderr and exit with the usage error code.
    Misused(String),
}

/// Parses the arguments after the program's name, and the value of [`IPC_FD_VAR`].
pub(crate) fn read(arguments: &[OsString], ipc_fd: Option<&OsStr>) -> ProcessMode {
    if let (sandbox, [flag, program @ ..]) = out_of_words(arguments)
        && flag == BECOME
    {
        return ProcessMode::Become(sandbox, program.to_vec());
    }
    if let [command, file] = arguments
        && command == RELAY_TO
    {
        return ProcessMode::Relay(file.into());
    }
    match arguments.first() {
        Some(argument) if argument == RELAY_TO => ProcessMode::Misused(format!(
            "{BINARY_NAME}: `{RELAY_TO}` takes one file\nhint: `{BINARY_NAME} {RELAY_TO} relay.json`\n"
        )),
        Some(argument) if argument == "--version" || argument == "-V" => {
            ProcessMode::Tell(format!("{BINARY_NAME} {GOONDAN_VERSION}\n"))
        }
        Some(argument) if argument == "--help" || argument == "-h" => ProcessMode::Tell(help()),
        Some(argument) => ProcessMode::Misused(format!(
            "{BINARY_NAME}: unknown argument `{}`\nhint: it takes no arguments; see `{BINARY_NAME} --help`\n",
            argument.display()
        )),
        None => match ipc_fd {
            Some(fd) if fd == IPC_FD => ProcessMode::Serve,
            Some(fd) => ProcessMode::Misused(format!(
                "{BINARY_NAME}: {IPC_FD_VAR} is `{}`, and only `{IPC_FD}` (stdin) is understood\n\
                 hint: this process and its orchestrator are different builds\n",
                fd.display()
            )),
            None => ProcessMode::Misused(format!(
                "{BINARY_NAME} is started by goondan-orchestrator, not by hand: {IPC_FD_VAR} is not set\n\
                 hint: `gdn run` starts the daemon, which starts a connector for each Connection\n"
            )),
        },
    }
}

fn help() -> String {
    format!(
        "One connector of goondan, such as a webhook.\n\n\
         goondan-orchestrator starts this process for each Connection of goondan.yaml and talks to\n\
         it over a socket on its stdin ({IPC_FD_VAR}={IPC_FD}). Run by hand, it can only relay a\n\
         connector to a daemon on another machine.\n\n\
         Usage: {BINARY_NAME} {RELAY_TO} FILE\n\
         \x20      {BINARY_NAME} [--version | --help]\n\n\
         Exit codes:\n\
         \x20 0  asked to stop\n\
         \x20 1  the orchestrator is gone or has another version; a relay failed to start\n\
         \x20 2  not started by the orchestrator, or with an invalid file\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(arguments: &[&str], ipc_fd: Option<&str>) -> ProcessMode {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        read(&arguments, ipc_fd.map(OsStr::new))
    }

    #[test]
    fn only_the_orchestrators_way_of_starting_serves() {
        assert_eq!(start(&[], Some("0")), ProcessMode::Serve);
        for (arguments, ipc_fd, said) in [
            (&[][..], None, "started by goondan-orchestrator"),
            (&[], Some("3"), "different builds"),
            (&["--port"], Some("0"), "unknown argument `--port`"),
            (
                &["--sandbox", "{}"],
                Some("0"),
                "unknown argument `--sandbox`",
            ),
        ] {
            match start(arguments, ipc_fd) {
                ProcessMode::Misused(text) => assert!(text.contains(said), "{text}"),
                other => panic!("{arguments:?} {ipc_fd:?} gave {other:?}"),
            }
        }
    }

    #[test]
    fn a_relay_takes_one_file() {
        let relay = ProcessMode::Relay("relay.json".into());
        assert_eq!(start(&["relay-to", "relay.json"], None), relay);
        for arguments in [&["relay-to"][..], &["relay-to", "a", "b"]] {
            let misused = start(arguments, None);
            assert!(
                matches!(misused, ProcessMode::Misused(text) if text.contains("takes one file"))
            );
        }
    }

    #[test]
    fn version_and_help_need_no_orchestrator() {
        let version = format!("goondan-connector-process {GOONDAN_VERSION}\n");
        assert_eq!(start(&["--version"], None), ProcessMode::Tell(version));
        assert!(
            matches!(start(&["-h"], None), ProcessMode::Tell(text) if text.contains("Exit codes"))
        );
    }
}
