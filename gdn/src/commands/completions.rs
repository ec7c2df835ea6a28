//! `gdn completions`: prints shell completion scripts.

use clap::Args;
use clap_complete::Shell;

use crate::context::Context;
use crate::failure::Failure;

/// Print a shell completion script
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn completions bash > ~/.local/share/bash-completion/completions/gdn
  gdn completions zsh > ~/.zfunc/_gdn
  gdn completions fish > ~/.config/fish/completions/gdn.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Prints the script for the command line `gdn` as `command` defines it.
pub(crate) fn run(
    args: &CompletionsArgs,
    command: &mut clap::Command,
    context: &Context,
) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, command, "gdn", &mut script);
    context.output.raw(&String::from_utf8_lossy(&script))
}
