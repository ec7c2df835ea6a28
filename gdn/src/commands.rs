//! What each command does, one file each.

use clap::CommandFactory as _;

use crate::cli::{Cli, Command};
use crate::context::Context;
use crate::failure::Failure;

mod archive;
mod ask;
mod attach;
pub(crate) mod audit;
pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod config;
mod confirm;
mod consent;
pub(crate) mod demo;
mod draining;
pub(crate) mod event;
pub(crate) mod forget;
mod health;
mod images;
pub(crate) mod init;
pub(crate) mod instance;
mod known;
pub(crate) mod logs;
pub(crate) mod ps;
pub(crate) mod question;
pub(crate) mod reload;
pub(crate) mod restart;
pub(crate) mod run;
mod running;
pub(crate) mod schema;
pub(crate) mod secret;
pub(crate) mod send;
pub(crate) mod shutdown;
mod status;
pub(crate) mod trace;
mod transcript;
mod turns;
pub(crate) mod usage;
pub(crate) mod validate;
pub(crate) mod verify;
pub(crate) mod workspace;

/// Runs one command.
pub(crate) async fn run(command: Command, context: &Context) -> Result<(), Failure> {
    match command {
        Command::Init(args) => init::run(&args, context),
        Command::Run(args) => run::run(&args, context).await,
        Command::Send(args) => send::run(args, context).await,
        Command::Chat(args) => chat::run(args, context).await,
        Command::Ps(args) => ps::run(&args, context).await,
        Command::Status => status::run(context).await,
        Command::Instance(args) => instance::run(args, context).await,
        Command::Verify(args) => verify::run(args, context).await,
        Command::Event(args) => event::run(args, context).await,
        Command::Question(args) => question::run(args, context).await,
        Command::Secret(args) => secret::run(args, context).await,
        Command::Workspace(args) => workspace::run(&args, context).await,
        Command::Logs(args) => logs::run(args, context).await,
        Command::Trace(args) => trace::run(args, context).await,
        Command::Usage(args) => usage::run(&args, context).await,
        Command::Audit(args) => audit::run(&args, context).await,
        Command::Restart(args) => restart::run(args, context).await,
        Command::Reload(args) => reload::run(&args, context).await,
        Command::Stop => workspace::close(context).await,
        Command::Forget(args) => forget::run(&args, context).await,
        Command::Shutdown(args) => shutdown::run(&args, context).await,
        Command::Validate(args) => validate::run(&args, context),
        Command::Schema(args) => schema::run(&args, context),
        Command::Config(command) => config::run(&command, context),
        Command::Completions(args) => completions::run(&args, &mut Cli::command(), context),
        Command::Demo(args) => demo::run(args, context).await,
    }
}
