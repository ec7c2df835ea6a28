//! `gdn completions`: what lets a shell complete commands and options.

use clap::Args;
use clap_complete::Shell;

use crate::context::Context;
use crate::failure::Failure;

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: Shell,
}

/// Prints the script for the command line `gdn` as `command` defines it.
pub(super) fn run(
    args: &Completions,
    command: &mut clap::Command,
    context: &Context,
) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, command, "gdn", &mut script);
    context.output.raw(&String::from_utf8_lossy(&script))
}
