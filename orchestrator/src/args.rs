//! The command line of `goondan-orchestrator`.

use std::path::PathBuf;

use clap::Parser;
use goondan_core::WorkspaceSettings;
use goondan_protocol::ids::ResourceName;
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
    /// Watch that project's files, and restart affected processes after a change; remembered
    #[arg(long, requires = "open", overrides_with = "no_watch")]
    pub(crate) watch: bool,
    /// Stop watching that project's files; remembered
    #[arg(long, requires = "open", overrides_with = "watch")]
    pub(crate) no_watch: bool,
    /// Also read environment variables for that project from this file; remembered (can be repeated;
    /// the last one wins)
    #[arg(long, value_name = "FILE", requires = "open")]
    pub(crate) env_file: Vec<PathBuf>,
    /// Forget the environment files of that project
    #[arg(long, requires = "open", conflicts_with = "env_file")]
    pub(crate) no_env_file: bool,
    /// Run this Swarm of that project; remembered
    #[arg(
        long,
        value_name = "NAME",
        requires = "open",
        conflicts_with = "first_swarm"
    )]
    pub(crate) swarm: Option<ResourceName>,
    /// Run that project's first Swarm; remembered
    #[arg(long, requires = "open")]
    pub(crate) first_swarm: bool,
    /// Do not run a project's last known good configuration if its own is invalid
    #[arg(long)]
    pub(crate) strict: bool,
    /// Verify the files of the state root, print the result as JSON, and exit; no daemon may own it
    #[arg(long, conflicts_with_all = ["open", "detach", "log_dir"])]
    pub(crate) verify: bool,
    /// Leave the terminal's session, for running in the background
    #[arg(long)]
    pub(crate) detach: bool,
}

impl Args {
    /// Settings of the opened project.
    pub(crate) fn settings(&self) -> WorkspaceSettings {
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        WorkspaceSettings {
            watch: (self.watch || self.no_watch).then_some(self.watch),
            env_files: (self.no_env_file || !self.env_file.is_empty())
                .then(|| self.env_file.iter().map(absolute).collect()),
            swarm: (self.first_swarm || self.swarm.is_some()).then(|| self.swarm.clone()),
        }
    }

    /// The System Root: the option, then the environment, then the home directory (`ROOT-7`).
    pub(crate) fn state_root(&self) -> Option<PathBuf> {
        self.state_root
            .clone()
            .or_else(|| Some(std::env::home_dir()?.join(DEFAULT_DIR_NAME)))
    }
}
