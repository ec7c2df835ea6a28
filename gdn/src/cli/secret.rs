//! The arguments of `gdn secret`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use goondan_protocol::ids::{SecretKey, SecretName};

#[derive(Debug, Subcommand)]
pub(crate) enum Secret {
    /// Keep a value, encrypted, and restart what uses it
    #[command(after_help = "\
Examples:
  gdn secret set github token            asks for the value, and does not show it
  gdn secret set github token --for .    and allow the project of this directory to use it
  gdn secret set github token < file     from a file; one newline at its end is no part of it
  pass show github | gdn secret set github token

In goondan.yaml: valueFrom: {secretRef: {ref: Secret/github, key: token}}")]
    Set(SecretSet),
    /// Allow a project to use a secret
    #[command(after_help = "\
Examples:
  gdn secret allow github                      the project of this directory
  gdn secret allow github --project ~/bots/pr  another one")]
    Allow(SecretAllow),
    /// No longer allow a project to use a secret, and stop what runs with it
    #[command(after_help = "\
Examples:
  gdn secret deny github                       the project of this directory
  gdn secret deny github --workspace ID        one whose directory is gone; `gdn secret list` shows the id
  gdn secret deny github --all                 every project")]
    Deny(SecretDeny),
    /// List the secrets, without their values, and which projects may use them
    #[command(after_help = "\
Examples:
  gdn secret list
  gdn secret list --json | jq -r .identity.recipient   what `sops --age` is to be told")]
    List,
    /// Forget a secret, or one entry of it
    #[command(after_help = "\
Examples:
  gdn secret remove github token         one entry
  gdn secret remove github               all of it, also if it cannot be read any more")]
    Remove(SecretRemove),
}

#[derive(Debug, Args)]
pub(crate) struct SecretSet {
    /// The secret; made if there is none
    #[arg(value_name = "NAME")]
    pub(crate) name: SecretName,
    /// The entry
    #[arg(value_name = "KEY")]
    pub(crate) key: SecretKey,
    /// Allow the project in this directory to use the secret
    #[arg(long = "for", value_name = "DIR")]
    pub(crate) allow_for: Option<PathBuf>,
    /// Refused: what stands on a command line is seen by every process and kept in the shell's history
    #[arg(value_name = "VALUE", hide = true, num_args = 0..)]
    pub(crate) value: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct SecretAllow {
    /// The secret
    #[arg(value_name = "NAME")]
    pub(crate) name: SecretName,
}

#[derive(Debug, Args)]
pub(crate) struct SecretDeny {
    /// The secret
    #[arg(value_name = "NAME")]
    pub(crate) name: SecretName,
    /// No project may use it any more
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SecretRemove {
    /// The secret
    #[arg(value_name = "NAME")]
    pub(crate) name: SecretName,
    /// Only this entry; with the last one the secret goes, too
    #[arg(value_name = "KEY")]
    pub(crate) key: Option<SecretKey>,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}
