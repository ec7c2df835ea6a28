//! `goondan-studio`: the user interface in a browser (`OBS-5`).
//!
//! It is a client of the daemon like `gdn`, in a separate process, because the daemon speaks no
//! HTTP, and connectors, which face the network, have no user's permissions. `gdn studio` starts
//! it, prints its address and ends it.
//!
//! # Map
//!
//! * `guard` — filters requests; `public_address` — address behind a reverse proxy; `sessions` —
//!   authentication; `methods` — permitted methods.
//! * `connections` — connections; `server` — responses; `assets` — the files of the page, built from
//!   `web/`.
//! * `daemon` — requests to the daemon, and event streams; `search` — search over all that the page may
//!   read; `page_error` — errors as the page shows them.
//! * `limits` — all limits.
//!
//! # Invariants
//!
//! * It listens only on this machine, even for a daemon of another one, and stores nothing: the page shows the daemon's data.
//! * A request without a token never reaches the daemon, and nothing is changed without `--write`.
//! * It ends together with its parent.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use goondan_client::{Endpoint, Remote};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

mod assets;
mod connections;
mod daemon;
mod guard;
mod limits;
mod methods;
mod page_error;
mod public_address;
mod search;
mod server;
mod sessions;

use daemon::Daemon;
use guard::Guard;
use public_address::PublicAddress;
use server::{Start, Studio};

/// goondan's page in the browser, for the daemon of one state root.
///
/// Users run `gdn studio`, which starts it. It writes one line of JSON with its address to stdout,
/// and another for each line it reads from stdin, because an address is valid only once. It exits
/// when stdin closes.
#[derive(Debug, Parser)]
#[command(name = "goondan-studio", version)]
struct Args {
    /// Directory of the daemon's durable state
    #[arg(long, value_name = "DIR", required_unless_present = "remote")]
    state_root: Option<PathBuf>,
    /// Daemon of another machine, over OpenSSH: `ssh://[user@]host[:port][/state-root]`
    #[arg(long, value_name = "URL", conflicts_with = "state_root")]
    remote: Option<Remote>,
    /// Listen on this port of this machine; 0 selects a free one
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
    /// Let the page change things instead of only showing them
    #[arg(long)]
    write: bool,
    /// Also accept this address, for example the end of a tunnel (can be repeated)
    #[arg(long, value_name = "NAME:PORT", value_parser = host_of)]
    host: Vec<String>,
    /// Address of the page behind a reverse proxy, such as `https://desk.example/studio/`
    #[arg(long, value_name = "URL")]
    url: Option<PublicAddress>,
    /// Project that the page shows first
    #[arg(long, value_name = "DIR")]
    project: Option<PathBuf>,
    /// Workspace that the page shows first
    #[arg(long, value_name = "ID")]
    workspace: Option<String>,
}

/// Parses a host as a browser names it.
fn host_of(text: &str) -> Result<String, String> {
    let parts = text.rsplit_once(':');
    let is_host = parts.is_some_and(|(name, port)| {
        let is_name = |char: char| char.is_ascii_alphanumeric() || "-.:[]".contains(char);
        !name.is_empty() && name.chars().all(is_name) && port.parse::<u16>().is_ok()
    });
    match is_host {
        true => Ok(text.to_ascii_lowercase()),
        false => Err("write it as the browser shows it, such as localhost:8080".to_owned()),
    }
}

/// Reason why Studio cannot run.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("cannot listen on {address}: {source}; another port: `gdn studio --port 0`")]
    Listen {
        address: SocketAddr,
        source: std::io::Error,
    },
    #[error("failed to print the page's address: {0}")]
    Announce(std::io::Error),
    #[error("the system provides no random numbers: {0}")]
    Random(#[from] getrandom::Error),
    #[error("cannot begin: {0}")]
    Begin(std::io::Error),
}

/// Runs Studio with the arguments of this process.
#[must_use]
pub fn main() -> ExitCode {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => {
            let outcome = runtime.block_on(run(args));
            runtime.shutdown_background();
            outcome
        }
        Err(error) => Err(Failure::Begin(error)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            tell(&failure);
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stderr, reason = "stderr is the only output")]
fn tell(failure: &Failure) {
    eprintln!("goondan-studio: {failure}");
}

async fn run(args: Args) -> Result<(), Failure> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, args.port));
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|source| Failure::Listen { address, source })?;
    let address = listener.local_addr().map_err(Failure::Begin)?;
    let guard = Guard::new(address.port(), &args.host, args.url.as_ref());
    let page = match &args.url {
        Some(public) => public.url(),
        None => format!("http://{address}/"),
    };
    let endpoint = match args.remote {
        Some(remote) => Endpoint::Remote(remote),
        // Clap requires a state root here.
        None => Endpoint::Local(args.state_root.unwrap_or_default()),
    };
    let daemon = Daemon::new(endpoint);
    let start = Start {
        project: args.project,
        workspace: args.workspace,
    };
    let studio = Arc::new(Studio::new(guard, args.url, daemon, start, args.write));
    announce(&studio, &page)?;
    let mut asked = asked_for_more();
    let more_addresses = async {
        while asked.recv().await.is_some() {
            announce(&studio, &page)?;
        }
        Ok(())
    };
    tokio::select! {
        never = connections::serve(listener, server::router(Arc::clone(&studio))) => match never {},
        outcome = more_addresses => outcome,
        () = told_to_end() => Ok(()),
    }
}

/// Prints the page's address, with a new ticket.
fn announce(studio: &Studio, page: &str) -> Result<(), Failure> {
    let ticket = studio.ticket()?;
    let page = format!("{page}#t={}", ticket.as_str());
    let line = format!("{}\n", json!({ "address": page }));
    let mut stdout = std::io::stdout();
    let written = stdout.write_all(line.as_bytes());
    written
        .and_then(|()| stdout.flush())
        .map_err(Failure::Announce)
}

/// Each line of stdin requests a new address; the end of stdin ends the receiver.
fn asked_for_more() -> mpsc::Receiver<()> {
    let (asks, asked) = mpsc::channel(1);
    // The thread ends with the process, because a blocking read from stdin cannot be canceled.
    std::thread::spawn(move || {
        for line in std::io::stdin().lines() {
            if line.is_err() || asks.blocking_send(()).is_err() {
                return;
            }
        }
    });
    asked
}

/// Waits for SIGINT or SIGTERM.
async fn told_to_end() {
    use tokio::signal::unix::{SignalKind, signal};
    let (interrupt, terminate) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    );
    let (Ok(mut interrupt), Ok(mut terminate)) = (interrupt, terminate) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
