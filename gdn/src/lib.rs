//! `gdn`, the command-line client (`CTL-1`).
//!
//! It connects to the daemon over the local socket and never modifies the daemon's state itself.
//!
//! # Modules
//!
//! * `cli`, `help` — the global options, the list of commands, and their groups in `gdn --help`.
//! * `commands` — one module for each command: its arguments with their help, its call, its output.
//! * `goondan_client`, `daemon` — the connection, including paged lists, and starting the daemon.
//! * `context`, `project` — the daemon, project and workspace of a command.
//! * `output` — all printing; nothing else prints.
//! * `reader` — detects if the reader of stdout is gone.
//! * `failure`, [`exit`] — errors for people, and exit codes for scripts.
//! * `installation` — versions side by side, and the current one; `programs` — paths of the other programs.
//! * `state_format` — checks that the state root's files can be read.
//! * [`schemas`] — names of the JSON formats.
//!
//! # Invariants
//!
//! * Data goes to stdout, everything else to stderr; an exit code never changes its meaning.
//! * Text from agents, tools and logs cannot control the terminal.
//! * An event gets its id before it is sent, so that sending it again is idempotent.
//! * Every error has a hint about what to do next.

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
mod package_manager;
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

/// Clap's definition of the command line, for the reference in `docs/cli.md` and its test.
#[must_use]
pub fn command() -> clap::Command {
    help::grouped(Cli::command())
}

/// Runs `gdn` with the arguments and environment of this process.
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
                "the system refuses basic resources; check `ulimit -a`",
            )
        })?;
    let follows = cli.command.follows();
    runtime.block_on(async {
        let ended = tokio::select! {
            biased;
            ended = cli.command.run(&context) => ended,
            // A command that changes something runs to its end.
            () = reader::gone(), if follows => Err(Failure::reader_gone()),
        };
        match ended {
            Err(failure) => Err(commands::near_name(failure, &context).await),
            Ok(()) => Ok(()),
        }
    })
}

/// Prints the error for an invalid command line, or the requested help.
fn refuse(error: &clap::Error) -> ExitCode {
    let wants_json = std::env::args_os().any(|arg| arg == "--json");
    if !error.use_stderr() || !wants_json {
        // A closed pipe is not a failure for help.
        drop(error.print());
        return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(Exit::Usage.code()));
    }
    let rendered = error.render().to_string();
    let (message, hint) = usage_problem(&rendered);
    let failure = Failure::new(Exit::Usage, message, hint);
    Output::new(true, anstream::ColorChoice::Never).failure(&failure);
    failure.exit.into()
}

/// Extracts the problem and a hint from clap's output: the first paragraph as one line, and its tip or the usage.
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
        .or_else(|| said("Usage:").map(|usage| format!("usage: `{usage}`")))
        .unwrap_or_else(|| "see `gdn help`".to_owned());
    (message.trim_start_matches("error: ").to_owned(), hint)
}
