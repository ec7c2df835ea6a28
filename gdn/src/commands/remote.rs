//! `gdn daemon remote …`: the saved default for daemons of other machines (`REP-2`).

use clap::{Args, Subcommand};
use serde_json::json;

use crate::client::Remote;
use crate::client_settings::ClientSettings;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::remotes::{LOCAL, RemoteChoice};
use crate::schemas;

/// Choose the machine whose daemon all commands use
#[derive(Debug, Subcommand)]
pub(crate) enum RemoteCommand {
    /// Use the daemon of another machine by default
    #[command(after_help = "\
Examples:
  gdn daemon remote use ssh://ada@server.example
  gdn daemon remote use local           the daemon of this machine again")]
    Use(RemoteUseArgs),
    /// Show the machine that commands use, and why
    #[command(after_help = "\
Examples:
  gdn daemon remote show")]
    Show,
    /// List the saved machines; `*` marks the default
    #[command(after_help = "\
Examples:
  gdn daemon remote list")]
    List,
    /// Remove a saved machine
    #[command(after_help = "\
Examples:
  gdn daemon remote remove ssh://ada@server.example")]
    Remove(RemoteRemoveArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RemoteUseArgs {
    /// `ssh://[user@]host[:port][/state-root]`, or `local` for this machine
    #[arg(value_name = "URL")]
    url: RemoteChoice,
}

#[derive(Debug, Args)]
pub(crate) struct RemoteRemoveArgs {
    /// The address, as listed by `gdn daemon remote list`
    #[arg(value_name = "URL")]
    url: Remote,
}

pub(crate) fn run(command: RemoteCommand, context: &Context) -> Result<(), Failure> {
    match command {
        RemoteCommand::Use(args) => select(args.url, context),
        RemoteCommand::Show => show(context),
        RemoteCommand::List => list(context),
        RemoteCommand::Remove(args) => remove(&args.url, context),
    }
}

fn select(choice: RemoteChoice, context: &Context) -> Result<(), Failure> {
    let mut settings = ClientSettings::read()?;
    let remote = match choice {
        RemoteChoice::ThisMachine => None,
        RemoteChoice::Other(remote) => Some(remote),
    };
    settings.select(remote);
    settings.write()?;
    let output = context.output;
    output.object(schemas::REMOTE_USE, &saved(&settings))?;
    match &settings.remote {
        Some(remote) => {
            output.data(format!("Commands use the daemon on {remote}"))?;
            output.note("Check it: gdn daemon status");
        }
        None => output.data("Commands use the daemon of this machine")?,
    }
    Ok(())
}

fn show(context: &Context) -> Result<(), Failure> {
    let output = context.output;
    let (remote, source) = (context.remote(), context.remote_source());
    let shown = json!({
        "remote": remote.map(ToString::to_string),
        "source": source.map(crate::remotes::RemoteSource::name),
    });
    output.object(schemas::REMOTE_SHOW, &shown)?;
    output.data(match (remote, source) {
        (Some(remote), Some(source)) => format!("{remote}{}", source.words()),
        _ => LOCAL.to_owned(),
    })
}

fn list(context: &Context) -> Result<(), Failure> {
    let settings = ClientSettings::read()?;
    let output = context.output;
    output.object(schemas::REMOTE_LIST, &saved(&settings))?;
    let mark = |is_default: bool| if is_default { "*" } else { " " };
    output.data(format!("{} {LOCAL}", mark(settings.remote.is_none())))?;
    for remote in &settings.remotes {
        let is_default = settings.remote.as_ref() == Some(remote);
        output.data(format!("{} {remote}", mark(is_default)))?;
    }
    Ok(())
}

fn remove(remote: &Remote, context: &Context) -> Result<(), Failure> {
    let mut settings = ClientSettings::read()?;
    if !settings.remove(remote) {
        return Err(Failure::new(
            Exit::NotFound,
            format!("{remote} is not saved"),
            "list the saved machines: `gdn daemon remote list`",
        ));
    }
    settings.write()?;
    context
        .output
        .object(schemas::REMOTE_REMOVE, &saved(&settings))?;
    context.output.data(format!("Removed {remote}"))
}

/// The saved settings as JSON.
fn saved(settings: &ClientSettings) -> serde_json::Value {
    let remotes: Vec<String> = settings.remotes.iter().map(ToString::to_string).collect();
    json!({ "remote": settings.remote.as_ref().map(ToString::to_string), "remotes": remotes })
}
