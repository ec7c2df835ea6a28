//! `gdn`, the client people hold in their hands (`CTL-1`).
//!
//! It attaches to the daemon over the local socket and never touches the daemon's state itself.
//!
//! # Where things are
//!
//! * `cli`, `help` — the options of every command, the list of commands, and their groups in `gdn --help`.
//! * `commands` — each command in a file of its own: its arguments with their help, its call, its output.
//! * `goondan_client`, `daemon` — the connection, with lists that come over it, and starting what it connects to.
//! * `context`, `project` — which daemon, project and workspace a command is about.
//! * `output` — everything that is printed; nothing else prints.
//! * `reader` — whether anybody reads what is printed.
//! * `failure`, [`exit`] — errors as people read them, and the codes scripts read.
//! * `installation` — versions side by side, and which of them is started; `programs` — where the others are.
//! * `state_format` — whether the files of the state root can be read.
//! * [`schemas`] — the names of the JSON forms.
//!
//! # Invariants
//!
//! * Data goes to stdout, everything else to stderr; an exit code never changes its meaning.
//! * What agents, tools and logs say cannot steer the terminal it is shown on.
//! * A question has an event id before it is sent, so that asking again is never asking twice.
//! * Every error says what to do next.

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};

mod cli;
mod commands;
mod context;
mod daemon;
pub mod exit;
mod failure;
mod help;
mod installation;
mod output;
mod programs;
mod project;
mod reader;
pub mod schemas;
mod state_format;

use cli::Cli;
use exit::Exit;
use failure::Failure;
use goondan_client as client;
use output::Output;

/// The command line as clap knows it, for the reference in `docs/cli.md` and its test.
#[must_use]
pub fn command() -> clap::Command {
    help::grouped(Cli::command())
}

/// Runs `gdn` with the arguments and the environment of this process.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match help::with_epilogues(command())
        .try_get_matches()
        .and_then(|matches| Cli::from_arg_matches(&matches))
    {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    let output = Output::new(cli.wants_json(), cli.global.color.into());
    match run(cli, output) {
        Ok(()) => Exit::Ok.into(),
        Err(failure) => {
            output.failure(&failure);
            failure.exit.into()
        }
    }
}

fn run(cli: Cli, output: Output) -> Result<(), Failure> {
    let context = cli.global.context(output)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| {
            Failure::of(
                Exit::Internal,
                &error,
                "the system refuses what every program needs; look at `ulimit -a`",
            )
        })?;
    let follows = cli.command.follows();
    runtime.block_on(async {
        let ended = tokio::select! {
            biased;
            ended = cli.command.run(&context) => ended,
            // A command that changes something finishes it.
            () = reader::gone(), if follows => Err(Failure::reader_gone()),
        };
        match ended {
            Err(failure) => Err(commands::near_name(failure, &context).await),
            Ok(()) => Ok(()),
        }
    })
}

/// Answers a command line that is not valid, or that asks for help.
fn refuse(error: &clap::Error) -> ExitCode {
    let wants_json = std::env::args_os().any(|arg| arg == "--json");
    if !error.use_stderr() || !wants_json {
        // Help that nobody reads is no failure.
        drop(error.print());
        return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(Exit::Usage.code()));
    }
    let rendered = error.render().to_string();
    let (message, hint) = usage_problem(&rendered);
    let failure = Failure::new(Exit::Usage, message, hint);
    Output::new(true, anstream::ColorChoice::Never).failure(&failure);
    failure.exit.into()
}

/// What is wrong with a command line and what to do, from what clap prints of it: the first paragraph in
/// one line, and its tip or the form of the command.
fn usage_problem(rendered: &str) -> (String, String) {
    let mut paragraphs = rendered.split("\n\n").map(|paragraph| {
        let lines = paragraph.lines().map(str::trim);
        lines.filter(|line| !line.is_empty()).collect::<Vec<_>>()
    });
    let message = paragraphs.next().unwrap_or_default().join(" ");
    let rest: Vec<String> = paragraphs.map(|lines| lines.join(" ")).collect();
    let said = |start: &str| {
        let found = rest
            .iter()
            .find_map(|paragraph| paragraph.strip_prefix(start));
        found.map(|text| text.trim().to_owned())
    };
    let hint = said("tip:")
        .or_else(|| said("Usage:").map(|usage| format!("write it as `{usage}`")))
        .unwrap_or_else(|| "see `gdn help`".to_owned());
    (message.trim_start_matches("error: ").to_owned(), hint)
}
