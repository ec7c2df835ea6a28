//! The command line of `goondan-orchestrator`.

use std::path::PathBuf;

use clap::Parser;
use goondan_store::root::{DEFAULT_DIR_NAME, STATE_ROOT_VAR};

/// The goondan daemon: supervises agents and connectors.
///
/// People use `gdn`, which starts it when it is needed. Service managers start it directly; it then
/// writes one stream of JSON log lines to stdout and speaks systemd's readiness and watchdog protocol.
#[derive(Debug, Parser)]
#[command(name = "goondan-orchestrator", version)]
pub(crate) struct Args {
    /// Directory of all durable state [default: ~/.goondan]
    #[arg(long, value_name = "DIR", env = STATE_ROOT_VAR)]
    pub(crate) state_root: Option<PathBuf>,
    /// Write the log to size-bounded, rotated files in this directory instead of stdout
    #[arg(long, value_name = "DIR")]
    pub(crate) log_dir: Option<PathBuf>,
    /// Register and start this project
    #[arg(long, value_name = "PROJECT")]
    pub(crate) open: Option<PathBuf>,
    /// Leave the terminal's session, for running in the background
    #[arg(long)]
    pub(crate) detach: bool,
}

impl Args {
    /// The System Root: the option, then the environment, then the home directory (`ROOT-7`).
    pub(crate) fn state_root(&self) -> Option<PathBuf> {
        self.state_root
            .clone()
            .or_else(|| Some(std::env::home_dir()?.join(DEFAULT_DIR_NAME)))
    }
}
