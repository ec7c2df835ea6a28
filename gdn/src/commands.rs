//! What each command does, one file each.

use clap::CommandFactory as _;

use crate::cli::{Cli, Command, Completions};
use crate::context::Context;
use crate::failure::Failure;

mod archive;
mod ask;
mod attach;
mod audit;
mod chat;
mod config;
mod confirm;
mod consent;
mod demo;
mod draining;
mod event;
mod forget;
mod health;
mod images;
mod init;
mod instance;
mod known;
mod logs;
mod ps;
mod question;
mod reload;
mod restart;
mod run;
mod running;
mod schema;
mod secret;
mod send;
mod shutdown;
mod status;
mod trace;
mod transcript;
mod turns;
mod usage;
mod validate;
mod verify;
mod workspace;

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
        Command::Completions(args) => completions(&args, context),
        Command::Demo(args) => demo::run(args, context).await,
    }
}

fn completions(args: &Completions, context: &Context) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "gdn", &mut script);
    context.output.raw(&String::from_utf8_lossy(&script))
}
