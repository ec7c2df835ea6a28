//! `gdn studio`: a web page to observe and control agents (`OBS-5`). Starts the program that serves it, prints its
//! address, and stops it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};

use clap::Args;
use serde::Deserialize;
use serde_json::json;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{programs, schemas};

/// Names of this machine, on which the page is always served.
const LOOPBACK: [&str; 3] = ["127.0.0.1", "localhost", "::1"];

/// Program that serves the page.
const STUDIO: &str = "goondan-studio";

/// Observe and control agents in a browser
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn studio                            read-only
  gdn studio --write                    approve, answer, apply and cancel there, too
  gdn studio --port 4711 --host localhost:8080
                                        behind `ssh -L 8080:127.0.0.1:4711`
  gdn studio --port 4711 --url https://desk.example/studio/
                                        behind a reverse proxy with TLS

The address works once and for one minute: press Enter for a new one. Studio listens on this machine
only, uses the daemon like this command (with --remote, one on another machine), and ends with Ctrl-C.")]
pub(crate) struct StudioArgs {
    /// Allow changes from the page
    #[arg(long)]
    write: bool,
    /// Port to listen on [default: any free port]
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 0,
        hide_default_value = true
    )]
    port: u16,
    /// Additional host of the page, such as the end of a tunnel (can be repeated)
    #[arg(long, value_name = "NAME:PORT")]
    host: Vec<String>,
    /// Has no effect, because `gdn studio` opens no browser
    #[arg(long, hide = true)]
    no_open: bool,
    /// Address of the page behind a reverse proxy
    #[arg(long, value_name = "URL")]
    url: Option<String>,
}

/// First output of Studio.
#[derive(Deserialize)]
struct StudioAddress {
    address: String,
}

pub(crate) fn run(args: &StudioArgs, context: &Context) -> Result<(), Failure> {
    let mut studio = start(args, context)?;
    let asks = studio.stdin.take();
    let stdout = studio.stdout.take();
    // Studio exits when its stdin is closed, so this handle keeps it running.
    let (asking, kept) = split(asks)?;
    std::thread::spawn(move || ask_for_more(asking));
    let mut is_first = true;
    for line in stdout
        .into_iter()
        .flat_map(|stdout| BufReader::new(stdout).lines())
    {
        let line = line.map_err(|error| ended(&error.to_string()))?;
        let announced: StudioAddress =
            serde_json::from_str(&line).map_err(|error| ended(&error.to_string()))?;
        show(&announced, is_first, args, context)?;
        is_first = false;
    }
    let status = studio.wait().map_err(|error| ended(&error.to_string()))?;
    drop(kept);
    match status.success() {
        true => Ok(()),
        // Studio has printed the reason.
        false => Err(ended(&status.to_string())),
    }
}

fn start(args: &StudioArgs, context: &Context) -> Result<Child, Failure> {
    let program = programs::place_of(STUDIO).ok_or_else(|| {
        Failure::new(
            Exit::Internal,
            format!("the program `{STUDIO}` was not found beside gdn or in PATH"),
            "install all programs of goondan together",
        )
    })?;
    let mut command = Command::new(&program);
    match context.remote() {
        Some(remote) => command.args(["--remote", &remote.to_string()]),
        None => command.arg("--state-root").arg(&context.state_root),
    };
    command.args(["--port", &args.port.to_string()]);
    if args.no_open {
        let note = "`--no-open` has no effect: `gdn studio` opens no browser.";
        context.output.note(note);
    }
    // In 0.0.3, the option was the address to listen on, which is always this machine's.
    let is_own = |host: &&String| LOOPBACK.contains(&host.as_str());
    for host in args.host.iter().filter(|host| !is_own(host)) {
        command.args(["--host", host]);
    }
    if let Some(url) = &args.url {
        command.args(["--url", url]);
    }
    // The page starts with the workspace of this command. Outside of a project, it starts with any.
    if let Some(id) = context.workspace_id() {
        command.args(["--workspace", id.as_str()]);
    } else if let Ok(project) = context.project() {
        command.arg("--project").arg(project);
    }
    if args.write {
        command.arg("--write");
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().map_err(|error| {
        let message = format!("cannot start {}", program.display());
        Failure::new(
            Exit::Internal,
            message,
            "install all programs of goondan together",
        )
        .caused_by(Some(&error))
    })
}

/// Duplicates the write end of Studio's stdin.
fn split(stdin: Option<ChildStdin>) -> Result<(ChildStdin, ChildStdin), Failure> {
    let stdin = stdin.ok_or_else(|| ended("no standard input"))?;
    let other = std::os::fd::AsFd::as_fd(&stdin).try_clone_to_owned();
    let other = other.map_err(|error| ended(&error.to_string()))?;
    Ok((stdin, ChildStdin::from(other)))
}

/// Requests a new address for each line that the user types.
fn ask_for_more(mut studio: ChildStdin) {
    let mut lines = std::io::stdin().lines();
    while let Some(Ok(_)) = lines.next() {
        if studio
            .write_all(b"\n")
            .and_then(|()| studio.flush())
            .is_err()
        {
            return;
        }
    }
}

fn show(
    announced: &StudioAddress,
    is_first: bool,
    args: &StudioArgs,
    context: &Context,
) -> Result<(), Failure> {
    let output = context.output;
    let shown = json!({ "address": announced.address, "write": args.write });
    output.object(schemas::STUDIO, &shown)?;
    output.data(&announced.address)?;
    if is_first && output.is_interactive() {
        output.note("valid once and for one minute; Enter: new address, Ctrl-C: stop");
        if !args.write {
            let write = context.daemon_command("studio --write");
            output.note(format!(
                "the page is read-only; to allow changes: `{write}`"
            ));
        }
    }
    Ok(())
}

fn ended(why: &str) -> Failure {
    Failure::new(
        Exit::Internal,
        format!("Studio has ended: {why}"),
        "start it again: `gdn studio`",
    )
}
