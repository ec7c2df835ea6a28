//! `gdn`, the command-line client (`CTL-1`).
//!
//! It connects to the daemon over the local socket and never modifies the daemon's state itself.
//!
//! # Modules
//!
//! * `cli`, `help` — the global options, the list of commands, and their groups in `gdn --help`.
//! * `commands` — one module for each command: its arguments with their help, its call, its output.
//! * `goondan_client`, `daemon` — the connection, including paged lists, and starting the daemon.
//! * [`spellings`] — older commands, which are rewritten before they are parsed.
//! * `context`, `project` — the daemon, project and workspace of a command.
//! * `remotes`, `client_settings` — the other machine of a command, and the saved default.
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

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory as _, FromArgMatches as _};
use goondan_config::nearest_name;

mod cli;
mod client_settings;
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
mod remotes;
pub mod schemas;
pub mod spellings;
mod state_format;

use cli::{Cli, Reach};
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
        .try_get_matches_from(spellings::current(std::env::args_os()))
        .and_then(|matches| Cli::from_arg_matches(&matches))
    {
        Ok(cli) => cli,
        Err(mut error) => {
            suggest(&mut error);
            return refuse(&error);
        }
    };
    let output = cli.global.output(cli.wants_json());
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
    let context = match cli.command.as_ref().map(cli::Command::reach) {
        None | Some(Reach::Daemon) => context,
        Some(Reach::ThisMachine(command)) => context.on_this_machine(command, true)?,
        Some(Reach::Files(command)) => context.on_this_machine(command, false)?,
    };
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
    let follows = cli.command.as_ref().is_some_and(cli::Command::follows);
    runtime.block_on(async {
        let running = async {
            match cli.command {
                Some(command) => command.run(&context).await,
                None => commands::overview::run(&context).await,
            }
        };
        let ended = tokio::select! {
            biased;
            ended = running => ended,
            // A command that changes something runs to its end.
            () = reader::gone(), if follows => Err(Failure::reader_gone()),
        };
        match ended {
            Err(failure) => Err(context.at_daemon(commands::near_name(failure, &context).await)),
            Ok(()) => Ok(()),
        }
    })
}

/// Suggests the current spelling of a command that resembles a former one.
fn suggest(error: &mut clap::Error) {
    let Some(ContextValue::String(written)) = error.get(ContextKind::InvalidSubcommand) else {
        return;
    };
    // Only commands at the top level have moved.
    let first = spellings::first(std::env::args().skip(1));
    if first.as_ref() != Some(written) {
        return;
    }
    let Some(near) = nearest_name(written, spellings::known()) else {
        return;
    };
    let mut all = vec![spellings::command(near)];
    if let Some(ContextValue::Strings(others)) = error.get(ContextKind::SuggestedSubcommand) {
        all.extend(others.iter().cloned());
    }
    error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(all));
}

/// Prints the error for an invalid command line, or the requested help.
fn refuse(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // A closed pipe is not a failure for help.
        drop(error.print());
        return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(Exit::Usage.code()));
    }
    let rendered = error.render().to_string();
    let (message, hint) = usage_problem(&rendered);
    let hint = format!("{hint}; help: `{}`", help_command(std::env::args_os()));
    let failure = Failure::new(Exit::Usage, message, hint);
    let wants_json = std::env::args_os().any(|arg| arg == "--json");
    Output::new(wants_json, anstream::ColorChoice::Auto).failure(&failure);
    failure.exit.into()
}

/// The command that shows the help of the command in a command line.
fn help_command(args: impl IntoIterator<Item = OsString>) -> String {
    let mut words = spellings::current(args).into_iter().skip(1);
    let mut command = command();
    let mut help = "gdn help".to_owned();
    while let Some(word) = words.next() {
        let word = word.to_string_lossy();
        if spellings::VALUE_OPTIONS.contains(&word.as_ref()) {
            words.next();
        } else if !word.starts_with('-') {
            let Some(below) = command.find_subcommand(word.as_ref()).cloned() else {
                break;
            };
            help.push_str(&format!(" {word}"));
            command = below;
        }
    }
    help
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
        .unwrap_or_else(|| "correct the command line".to_owned());
    // The words of Rust's parsers.
    let message = message.replace("invalid digit found in string", "expected a whole number");
    (message.trim_start_matches("error: ").to_owned(), hint)
}
