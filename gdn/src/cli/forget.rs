//! The arguments of `gdn forget`.

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct Forget {
    /// Delete its conversations, too
    #[arg(long)]
    pub(crate) delete: bool,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}
