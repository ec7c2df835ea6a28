//! Reads a project without the daemon.

use std::path::{Path, PathBuf};

use clap::Args;
use goondan_config::{Loader, ProcessEnvironment};
use goondan_protocol::ids::ResourceName;
use goondan_vault::SecretReader;

use crate::context::Context;
use crate::failure::Failure;
use crate::project::{self, EnvFiles};

/// Swarm of a project with several.
#[derive(Debug, Args)]
pub(crate) struct SwarmArg {
    /// Read the project as it runs with this one of its Swarms, instead of the first
    #[arg(long, short, value_name = "NAME")]
    swarm: Option<ResourceName>,
}

impl SwarmArg {
    pub(super) fn apply<'e>(&self, loader: Loader<'e>) -> Loader<'e> {
        loader.with_swarm(self.swarm.as_ref())
    }
}

#[derive(Debug, Args)]
pub(crate) struct ReadArgs {
    /// The project
    #[arg(value_name = "PATH", conflicts_with = "project")]
    path: Option<PathBuf>,
    #[command(flatten)]
    env: EnvFiles,
}

impl ReadArgs {
    /// Calls a function with the project's root and a loader that has the available variables and secrets.
    pub(super) fn with_loader<T>(
        &self,
        context: &Context,
        work: impl FnOnce(&Path, Loader<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let root = match &self.path {
            Some(path) => project::find(Some(path))?,
            None => context.project()?,
        };
        let env_files = self.env.absolute()?;
        context.check_format()?;
        let vault = context.vault();
        let project = project::identity(&root);
        let secrets = SecretReader::new(&vault, &project);
        let loader = Loader::new(&ProcessEnvironment)
            .with_env_files(&env_files)
            .with_secrets(&secrets);
        work(&root, loader)
    }
}
