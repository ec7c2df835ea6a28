//! `gdn incident …`: recorded turns as files that replay without network and side effects.
//!
//! * `recording` collects what the daemon has recorded of some turns; `configuration` loads a
//!   configuration.
//! * `secrets` lists the values that a file must not contain, `redaction` masks them, and `leaks`
//!   refuses a file that contains one anyway.
//! * `playback` lets the turn engine play the turns, and `comparison` compares two playbacks.
//! * `file` is the format; `report` shows results.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::context::Context;
use crate::failure::Failure;
use crate::project::EnvFiles;

mod comparison;
mod configuration;
mod export;
mod file;
mod leaks;
mod limits;
mod playback;
mod recording;
mod redaction;
mod replay;
mod report;
mod secrets;
mod test;

/// Turn recorded turns into tests that run without network
#[derive(Debug, Subcommand)]
pub(crate) enum IncidentCommand {
    /// Export the turns of a trace or an event to a file, with secrets masked
    #[command(after_help = "\
Examples:
  gdn incident export                             the latest trace, to stdout
  gdn incident export EVENT -o incidents/refund.json
  gdn incident export 4bf92f3577b34da6a3ce929d0e0e4736 -o incidents/trace.json

The file has the conversation, replies, tool results, times and configuration. It is not written if it contains a \
secret value in any encoding.")]
    Export(IncidentExportArgs),
    /// Replay a file with the present configuration, and show the first difference
    #[command(after_help = "\
Examples:
  gdn incident replay incidents/refund.json
  gdn incident replay incidents/refund.json --against new-prompts/
  gdn incident replay incidents/refund.json --against a-branch
  gdn incident replay incidents/refund.json --json | jq '.first'

Replies and tool results come from the file: no model is asked and no tool runs.")]
    Replay(IncidentReplayArgs),
    /// Replay all files of a directory, for CI
    #[command(after_help = "\
Examples:
  gdn incident test incidents
  gdn incident test incidents --against a-branch
  gdn incident test incidents --junit report.xml")]
    Test(IncidentTestArgs),
}

#[derive(Debug, Args)]
pub(crate) struct IncidentExportArgs {
    /// A trace, or a turn or event in it [default: the latest trace]
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// Output file; `-` is stdout
    #[arg(long, short, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    /// Overwrite an existing file
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct IncidentReplayArgs {
    /// A file that `gdn incident export` wrote
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    with: ReplayWith,
}

#[derive(Debug, Args)]
pub(crate) struct IncidentTestArgs {
    /// Directory of files that `gdn incident export` wrote, with names that end in `.json`
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    #[command(flatten)]
    with: ReplayWith,
    /// Also write a report for CI, in the format of `JUnit`
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

/// The configuration to replay with.
#[derive(Debug, Args)]
struct ReplayWith {
    /// Changed file, directory of changed files, or branch [default: the project as it is]
    #[arg(long, value_name = "OVERLAY|BRANCH")]
    against: Option<String>,
    #[command(flatten)]
    env: EnvFiles,
}

pub(crate) async fn run(command: IncidentCommand, context: &Context) -> Result<(), Failure> {
    match command {
        IncidentCommand::Export(args) => export::run(&args, context).await,
        IncidentCommand::Replay(args) => replay::run(&args, context),
        IncidentCommand::Test(args) => test::run(&args, context),
    }
}
