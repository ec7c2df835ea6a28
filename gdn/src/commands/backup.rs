//! `gdn daemon backup …`: backups of the state root.
//!
//! The files are copied by this program, because the operator can write to places that the daemon's
//! service cannot. The daemon only holds its writes during the last pass.

mod create;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use goondan_backup::{BackupDir, BackupError, BackupSummary, Identities, RestoreOptions};
use goondan_protocol::control::ResumeDaemon;
use serde_json::json;

use self::create::CreateArgs;
use super::confirm::confirm;
use crate::client::{self, Client};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::table::{Cell, Column, Table};
use crate::output::text;
use crate::schemas;

/// Back up the daemon's state, check and restore backups
#[derive(Debug, Subcommand)]
pub(crate) enum BackupCommand {
    /// Back up the state root while agents work
    #[command(after_help = "\
Examples:
  gdn daemon backup identity ~/backup-identity.txt   then keep this file on another machine
  gdn daemon backup create /mnt/backups --recipient age1…
  gdn daemon backup create /mnt/backups --recipient age1… --json | jq .newBytes

A backup after the first copies only what has changed. The daemon waits with its writes for the last, short pass.
The directories run, logs and caches, and projects, are not part of a backup.")]
    Create(CreateArgs),
    /// List the backups in a directory
    #[command(after_help = "\
Examples:
  gdn daemon backup list /mnt/backups")]
    List(ListArgs),
    /// Verify the integrity of backups
    #[command(after_help = "\
Examples:
  gdn daemon backup verify /mnt/backups
  gdn daemon backup verify /mnt/backups --identity backup-identity.txt   also decrypt every file

Exit code 15: a backup is damaged.")]
    Verify(VerifyArgs),
    /// Restore a backup as a new state root
    #[command(after_help = "\
Examples:
  gdn daemon shutdown
  mv ~/.goondan ~/goondan-of-before
  gdn daemon backup restore /mnt/backups --identity backup-identity.txt
  gdn run                          starts no agent until `gdn daemon backup resume`

The state root (`--state-root`) must be missing or empty. Without a complete and intact backup, nothing is restored.")]
    Restore(RestoreArgs),
    /// Start the processes of a restored state root
    #[command(after_help = "\
Examples:
  gdn daemon status                which backup was restored
  gdn conversation list            what it contains
  gdn daemon backup resume")]
    Resume,
    /// Remove old backups, and the contents that only they use
    #[command(after_help = "\
Examples:
  gdn daemon backup prune /mnt/backups --keep 30 --yes")]
    Prune(PruneArgs),
    /// Create a file with a new age identity, which decrypts backups
    #[command(after_help = "\
Examples:
  gdn daemon backup identity backup-identity.txt     prints its recipient, age1…

Keep the file on another machine: without it, no backup for this recipient can be restored.")]
    Identity(IdentityArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Directory of backups
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// Directory of backups
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Only this backup
    #[arg(long, value_name = "ID")]
    backup: Option<String>,
    /// File with the age identity that decrypts the backups
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// Directory of backups
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// This backup [default: the latest]
    #[arg(long, value_name = "ID")]
    backup: Option<String>,
    /// File with the age identity that decrypts the backup
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct PruneArgs {
    /// Directory of backups
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Number of latest backups to keep
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    keep: u16,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct IdentityArgs {
    /// File to create
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub(crate) async fn run(command: BackupCommand, context: &Context) -> Result<(), Failure> {
    match command {
        BackupCommand::Create(args) => create::run(&args, context).await,
        BackupCommand::List(args) => list(&args, context),
        BackupCommand::Verify(args) => verify(&args, context),
        BackupCommand::Restore(args) => restore(&args, context),
        BackupCommand::Resume => resume(context).await,
        BackupCommand::Prune(args) => prune(&args, context),
        BackupCommand::Identity(args) => identity(&args, context),
    }
}

fn list(args: &ListArgs, context: &Context) -> Result<(), Failure> {
    let backups = BackupDir::open(&args.dir)?.list()?;
    let output = context.output;
    output.object(schemas::BACKUP_LIST, &json!({ "backups": backups }))?;
    if backups.is_empty() {
        return output.data("No backups.");
    }
    let mut table = Table::new([
        Column::new("BACKUP"),
        Column::new("TAKEN").below(3, ""),
        Column::new("FILES").below(2, "files"),
        Column::new("SIZE"),
        Column::new("ADDED").below(1, "added"),
        Column::new("ENCRYPTED"),
    ]);
    for backup in &backups {
        table.row([
            Cell::from(backup.id.as_str()),
            text::clock(backup.taken_at).into(),
            backup.files.to_string().into(),
            text::bytes(backup.bytes).into(),
            text::bytes(backup.new_bytes).into(),
            Cell::from(if is_encrypted(backup) { "yes" } else { "no" }),
        ]);
    }
    output.data(table.render(output.canvas()))
}

fn is_encrypted(backup: &BackupSummary) -> bool {
    !backup.recipients.is_empty()
}

fn identities(file: Option<&PathBuf>) -> Result<Identities, Failure> {
    let read = file.map(|file| Identities::read(file));
    Ok(read.transpose()?.unwrap_or_default())
}

fn verify(args: &VerifyArgs, context: &Context) -> Result<(), Failure> {
    let identities = identities(args.identity.as_ref())?;
    let dir = BackupDir::open(&args.dir)?;
    let checked = goondan_backup::verify(&dir, args.backup.as_deref(), &identities)?;
    let output = context.output;
    output.object(schemas::BACKUP_VERIFY, &checked)?;
    for finding in &checked.findings {
        output.data(text::printable(finding))?;
    }
    let backups = text::count(checked.backups.len(), "backup");
    let size = text::bytes(checked.bytes);
    output.data(match checked.findings.len() {
        0 => format!("Checked {backups} ({size}): all are intact."),
        found => format!(
            "Checked {backups} ({size}): {}.",
            text::count(found, "finding")
        ),
    })?;
    if !checked.findings.is_empty() {
        return Err(Failure::new(
            Exit::Damaged,
            "backups are damaged",
            format!(
                "make a complete one: `{}`",
                context.daemon_command("daemon backup create DIR --full")
            ),
        ));
    }
    let unopened = checked.backups.len() - checked.opened.len();
    if unopened > 0 {
        output.note(format!(
            "{} encrypted and only compared with the stored digests; to decrypt and compare every file, pass \
             `--identity FILE`.",
            match unopened {
                1 => "1 backup is".to_owned(),
                more => format!("{more} backups are"),
            }
        ));
    }
    Ok(())
}

fn restore(args: &RestoreArgs, context: &Context) -> Result<(), Failure> {
    let options = RestoreOptions {
        backup: args.backup.clone(),
        identities: identities(args.identity.as_ref())?,
        target: context.state_root.clone(),
        now: text::now(),
    };
    let restored = goondan_backup::restore(&BackupDir::open(&args.dir)?, &options)?;
    // A backup of a newer version is restored, and its format is reported now instead of at the start.
    context.check_format()?;
    let output = context.output;
    output.object(schemas::BACKUP_RESTORE, &restored)?;
    let mut table = Table::of_fields();
    table.field("Backup", restored.id.as_str());
    table.field("Taken", text::clock(restored.taken_at));
    table.field("Restored", restored.state_root.to_string_lossy());
    table.field("Files", restored.files.to_string());
    table.field("Size", text::bytes(restored.bytes));
    output.data(table.render(output.canvas()))?;
    output.note(format!(
        "The daemon starts no process until `{}`. Check the state first: `{}`, `{}`",
        context.daemon_command("daemon backup resume"),
        context.daemon_command("daemon verify --offline"),
        context.daemon_command("run"),
    ));
    Ok(())
}

async fn resume(context: &Context) -> Result<(), Failure> {
    let mut client: Client = context.connect().await?;
    let restored = client.status().await?.restored;
    client.change(ResumeDaemon {}).await?;
    let output = context.output;
    output.object(schemas::BACKUP_RESUME, &json!({ "restored": restored }))?;
    output.data(match restored {
        Some(restored) => format!("Resumed the state of backup {}.", restored.backup_id),
        None => "The daemon was not paused.".to_owned(),
    })
}

fn prune(args: &PruneArgs, context: &Context) -> Result<(), Failure> {
    let dir = BackupDir::open(&args.dir)?.locked()?;
    let keep = usize::from(args.keep);
    let surplus = dir.list()?.len().saturating_sub(keep);
    if surplus > 0 && !args.yes {
        let question = format!("Remove {}?", text::count(surplus, "backup"));
        let command = format!("daemon backup prune DIR --keep {keep} --yes");
        confirm(context, &question, &command)?;
    }
    let pruned = dir.prune(keep)?;
    let output = context.output;
    output.object(schemas::BACKUP_PRUNE, &pruned)?;
    output.data(format!(
        "Removed {}; {} freed.",
        text::count(pruned.removed.len(), "backup"),
        text::bytes(pruned.bytes)
    ))
}

fn identity(args: &IdentityArgs, context: &Context) -> Result<(), Failure> {
    let recipient = create::write_identity(&args.file)?;
    let output = context.output;
    let shown = json!({ "file": args.file, "recipient": recipient });
    output.object(schemas::BACKUP_IDENTITY, &shown)?;
    output.data(&recipient)?;
    output.note(format!(
        "Keep {} on another machine: it is needed to restore backups for this recipient.",
        args.file.display()
    ));
    Ok(())
}

impl From<BackupError> for Failure {
    fn from(error: BackupError) -> Self {
        let (exit, hint) = match &error {
            BackupError::Io { .. } => (
                Exit::Internal,
                "check the space and the permissions there, then run the command again",
            ),
            BackupError::NoStateRoot { .. } => (
                Exit::NotFound,
                "name the state root: `gdn --state-root DIR daemon backup create …`",
            ),
            BackupError::NotABackupDirectory { .. } | BackupError::Empty { .. } => (
                Exit::NotFound,
                "name a directory that `gdn daemon backup create` has written",
            ),
            BackupError::NotFound { .. } => {
                (Exit::NotFound, "list them: `gdn daemon backup list DIR`")
            }
            BackupError::Occupied { .. } => {
                (Exit::Conflict, "name an empty directory, or a new one")
            }
            BackupError::Nested { .. } => (
                Exit::Usage,
                "name a directory outside of the state root, on another disk if possible",
            ),
            BackupError::Busy { .. } => {
                (Exit::TryAgain, "try again when the other backup has ended")
            }
            BackupError::NewerFormat { .. } => (
                Exit::VersionMismatch,
                "use the version of goondan that made the backup, or a newer one",
            ),
            BackupError::Damaged { .. } => (
                Exit::Damaged,
                "check all backups: `gdn daemon backup verify DIR`; an older one can be intact: `--backup ID`",
            ),
            BackupError::IdentityNeeded { .. } | BackupError::OtherIdentity { .. } => (
                Exit::Usage,
                "pass the file with the identity of a listed recipient: `--identity FILE`",
            ),
            BackupError::Recipient { .. } => (
                Exit::Usage,
                "create an identity: `gdn daemon backup identity FILE` prints its recipient",
            ),
            BackupError::Identity { .. } => (
                Exit::Usage,
                "pass the file that `gdn daemon backup identity` or `age-keygen` has written",
            ),
            BackupError::TooLarge { .. } => (
                Exit::Conflict,
                "remove files that are not needed: `gdn daemon status --disk` shows where they are",
            ),
            BackupError::MountPoint { .. } => (
                Exit::Conflict,
                "restore to a directory in it: `gdn --state-root DIR daemon backup restore …`",
            ),
            BackupError::Encryption(_) => {
                (Exit::Internal, "report this with the command that failed")
            }
            BackupError::TargetExists { .. } => (
                Exit::Conflict,
                "stop the daemon (`gdn daemon shutdown`) and move the directory away, or restore to another one: \
                 `gdn --state-root DIR daemon backup restore …`",
            ),
            BackupError::NoSpace { .. } => (
                Exit::TryAgain,
                "free space, or restore to another disk: `gdn --state-root DIR daemon backup restore …`",
            ),
        };
        Self::of(exit, &error, hint)
    }
}

/// True if a daemon owns the state root.
fn is_owned(context: &Context) -> bool {
    client::is_owned(&context.state_root)
}
