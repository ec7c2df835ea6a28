//! The arguments of `gdn workspace`.

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum Workspace {
    /// List the registered workspaces
    #[command(after_help = "\
Examples:
  gdn workspace list
  gdn workspace list --json | jq -r '.workspaces[].workspaceId'")]
    List,
    /// Stop a workspace and forget its registration; its conversations stay
    #[command(after_help = "\
Examples:
  gdn workspace close                              this project's, like `gdn stop`
  gdn workspace close --workspace home_me_swarm__swarm   one whose project is gone")]
    Close,
}
