//! `gdn daemon backup create` and `gdn daemon backup identity`.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use clap::Args;
use goondan_backup::{BackupDir, Created, Recipients, Session, SessionOptions};
use goondan_protocol::control::{HoldWrites, ReleaseWrites, WRITE_HOLD_MS_MAX};
use goondan_vault::Identities;
use secrecy::ExposeSecret as _;
use serde::Serialize;

use crate::client::Client;
use crate::context::Context;
use crate::daemon;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::style;
use crate::output::table::Table;
use crate::output::text;
use crate::schemas;

/// Number of attempts to copy the last changes while the daemon holds its writes.
const LAST_PASSES: usize = 3;

/// Number of listed paths in a note.
const SHOWN_PATHS: usize = 5;

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// Directory of backups; created if it does not exist
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Encrypt for this age recipient, `age1…` (repeatable)
    #[arg(long = "recipient", value_name = "RECIPIENT")]
    recipients: Vec<String>,
    /// Do not encrypt: the backup contains the identity of all secrets
    #[arg(long, conflicts_with = "recipients")]
    unencrypted: bool,
    /// Copy every file again, so that the backup depends on no earlier one
    #[arg(long)]
    full: bool,
}

/// A backup, and how long the daemon waited.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CreateOutput<'c> {
    #[serde(flatten)]
    created: &'c Created,
    /// Duration for which the daemon held its writes, in milliseconds; absent if no daemon runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    held_ms: Option<u64>,
}

pub(super) async fn run(args: &CreateArgs, context: &Context) -> Result<(), Failure> {
    if args.recipients.is_empty() && !args.unencrypted {
        return Err(Failure::new(
            Exit::Usage,
            "a backup contains all secrets, and no recipient is named to encrypt it for",
            "create an identity: `gdn daemon backup identity FILE`, keep it on another machine, and pass what it \
             prints: `--recipient age1…`; or pass `--unencrypted`",
        ));
    }
    let recipients = Recipients::parse(args.recipients.iter().map(String::as_str))?;
    context.check_format()?;
    let options = SessionOptions {
        state_root: context.state_root.clone(),
        recipients,
        cache: cache_dir(),
        full: args.full,
        now: text::now(),
        goondan: env!("CARGO_PKG_VERSION").to_owned(),
    };
    if !context.state_root.is_dir() {
        // Before a directory of backups is created for nothing.
        let path = context.state_root.clone();
        return Err(goondan_backup::BackupError::NoStateRoot { path }.into());
    }
    let mut session = Session::begin(BackupDir::open_or_create(&args.dir)?, options)?;
    session.pass()?;
    session.pass()?;
    let held_ms = match daemon::attach(&context.state_root).await? {
        Some(client) => Some(last_pass(client, &mut session).await?),
        None => {
            last_pass_alone(&mut session, context)?;
            None
        }
    };
    let created = session.finish()?;
    show(&created, held_ms, context)
}

/// Copies the last changes while the daemon holds its writes, and returns the duration.
async fn last_pass(mut client: Client, session: &mut Session) -> Result<u64, Failure> {
    for _ in 0..LAST_PASSES {
        let max_ms = WRITE_HOLD_MS_MAX;
        client.change(HoldWrites { max_ms }).await?;
        let since = Instant::now();
        session.pass()?;
        if client.change(ReleaseWrites {}).await?.held {
            return Ok(u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX));
        }
    }
    Err(Failure::new(
        Exit::TryAgain,
        format!(
            "the last changes could not be copied within the {} s for which the daemon can wait",
            WRITE_HOLD_MS_MAX / 1000
        ),
        "try again when the machine has less load, or stop the daemon first: `gdn daemon shutdown`",
    ))
}

/// Copies the last changes without a daemon.
fn last_pass_alone(session: &mut Session, context: &Context) -> Result<(), Failure> {
    let pid_file = context.state_root.join("run").join("orchestrator.pid");
    // A starting daemon writes this file before any other.
    let started = || -> Option<SystemTime> { std::fs::metadata(&pid_file).ok()?.modified().ok() };
    let before = started();
    session.pass()?;
    if started() == before && !super::is_owned(context) {
        return Ok(());
    }
    Err(Failure::new(
        Exit::TryAgain,
        "a daemon started while the files were copied",
        "run the command again",
    ))
}

fn show(created: &Created, held_ms: Option<u64>, context: &Context) -> Result<(), Failure> {
    let output = context.output;
    output.object(schemas::BACKUP_CREATE, &CreateOutput { created, held_ms })?;
    let mut table = Table::of_fields();
    table.field("Backup", created.id.as_str());
    table.field("Files", created.files.to_string());
    table.field("Size", text::bytes(created.bytes));
    table.field("Added", text::bytes(created.new_bytes));
    table.field(
        "Encrypted",
        match created.recipients.as_slice() {
            [] => "no".to_owned(),
            recipients => format!("for {}", recipients.join(", ")),
        },
    );
    if let Some(held_ms) = held_ms {
        table.field("Writes held", text::duration(held_ms));
    }
    output.data(table.render(output.canvas()))?;
    let warning = output.err.paint(style::WARN, "warning:");
    if created.recipients.is_empty() {
        output.note(format!(
            "{warning} the backup contains readable secrets: restrict access to its directory"
        ));
    }
    for (path, why) in created.skipped.iter().take(SHOWN_PATHS) {
        let path = text::printable(path);
        output.note(format!("{warning} {path} is not in the backup: {why}"));
    }
    for path in created.unsteady.iter().take(SHOWN_PATHS) {
        let path = text::printable(path);
        output.note(format!("{warning} {path} changed while it was read"));
    }
    let more = created.skipped.len().saturating_sub(SHOWN_PATHS)
        + created.unsteady.len().saturating_sub(SHOWN_PATHS);
    if more > 0 {
        output.note(format!(
            "{warning} and {} more; see `--json`",
            text::count(more, "path")
        ));
    }
    if let Some(why) = &created.no_cache {
        output.note(format!(
            "{warning} the next backup copies every file again: {why}"
        ));
    }
    Ok(())
}

/// Directory of data that can be recreated, of this user.
fn cache_dir() -> Option<PathBuf> {
    let named = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let dir = named.filter(|dir| dir.is_absolute());
    let dir = dir.or_else(|| Some(std::env::home_dir()?.join(".cache")))?;
    Some(dir.join("goondan").join("backups"))
}

/// Writes a new identity and returns its recipient.
pub(super) fn write_identity(path: &Path) -> Result<String, Failure> {
    let identities = Identities::generate();
    let mut options = OpenOptions::new();
    let created = options.write(true).create_new(true).mode(0o600).open(path);
    let written = created.and_then(|mut file| {
        file.write_all(identities.file(text::now()).expose_secret().as_bytes())?;
        file.sync_all()
    });
    match written {
        Ok(()) => Ok(identities.recipient()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Err(Failure::new(
            Exit::Conflict,
            format!("{} exists", path.display()),
            "name a new file, because an identity must not be overwritten",
        )),
        Err(error) => Err(Failure::new(
            Exit::Internal,
            format!("failed to write {}", path.display()),
            "check the space and the permissions there",
        )
        .caused_by(Some(&error))),
    }
}
