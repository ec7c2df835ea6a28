//! `gdn daemon upgrade`: replaces the running version with another one, and rolls back if the new version is unhealthy
//! (`REL-1`).
//!
//! * `staging` — a version from an archive or a directory; `probe` — queries its programs.
//! * `decide` — chooses the next step, without I/O; `journal` — state that survives a kill; `daemon_probe` — current
//!   state of the machine.
//! * `executor` — carries out the steps.

mod daemon_probe;
mod decide;
mod executor;
mod journal;
mod limits;
mod probe;
mod staging;

use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};
use serde_json::json;

use self::daemon_probe::Daemon;
use self::executor::{UpgradeExecutor, UpgradeOutcome};
use self::journal::{Journal, PriorDaemonState, UpgradeDirection};
use self::probe::Reads;
use self::staging::{StagedVersion, clear_away};
use super::{service, shutdown};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::installation::{Installation, VersionLink, VersionName};
use crate::output::style;
use crate::output::table::{Cell, Column, Table};
use crate::output::text;
use crate::package_manager::InstalledPackage;
use crate::programs::GDN;
use crate::schemas;

/// Upgrade to another version, and roll back if it is unhealthy
#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("what").args(["from", "rollback", "resume", "list", "check"])),
    after_help = "\
Examples:
  gdn daemon upgrade                     print how this gdn was installed, and the command that upgrades it
  gdn daemon upgrade ~/.cargo/bin --prefix ~/.local/lib/goondan  install side by side, once
  gdn daemon upgrade goondan-0.2.0.tar.gz  stop after the turns in progress, switch, start, verify
  gdn daemon upgrade --rollback          return to the previous version
  gdn daemon upgrade --resume            continue an interrupted upgrade
  gdn daemon upgrade --list

No accepted event is lost. Exit code 18: the new version failed, and the previous version runs again."
)]
pub(crate) struct UpgradeArgs {
    /// The version: an archive (.tar.gz), or a directory with its programs
    #[arg(value_name = "FROM")]
    from: Option<PathBuf>,
    /// Go back to the previous version, or roll back an interrupted upgrade
    #[arg(long)]
    rollback: bool,
    /// Resume an interrupted upgrade
    #[arg(long)]
    resume: bool,
    /// List the installed versions
    #[arg(long)]
    list: bool,
    /// Print the format that this version writes, and check if it can read the state directory
    #[arg(long)]
    check: bool,
    /// Directory of the versions [default: that of this gdn]
    #[arg(long, value_name = "DIR")]
    prefix: Option<PathBuf>,
    /// Expected SHA-256 of the archive
    #[arg(long, value_name = "HEX", requires = "from", value_parser = sha256)]
    sha256: Option<String>,
    /// Check everything and print the steps without making changes
    #[arg(long, conflicts_with_all = ["resume", "list", "check"])]
    dry_run: bool,
    /// Upgrade even if the previous version cannot read the new format; rollback is not possible then
    #[arg(long, conflicts_with_all = ["list", "check"])]
    one_way: bool,
    /// Grace period for turns in progress [default: each swarm's own]
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["list", "check"])]
    grace: Option<u64>,
}

fn sha256(text: &str) -> Result<String, String> {
    let is_one = text.len() == 64 && text.chars().all(|c| c.is_ascii_hexdigit());
    is_one
        .then(|| text.to_owned())
        .ok_or_else(|| "a SHA-256 has 64 hexadecimal digits".to_owned())
}

pub(crate) async fn run(args: &UpgradeArgs, context: &Context) -> Result<(), Failure> {
    if args.check {
        return check(context);
    }
    let is_named = args.from.is_some() || args.rollback || args.resume || args.list;
    if !is_named {
        return advise(args, context);
    }
    let installation = installation(args)?;
    if args.list {
        return list(&installation, context);
    }
    let lock = installation
        .lock()
        .map_err(|error| unwritable(installation.prefix(), &error))?;
    // Held until the command ends.
    let _lock = lock.ok_or_else(|| {
        let list = again(&installation, "--list");
        Failure::new(
            Exit::TryAgain,
            format!(
                "another upgrade works on {}",
                installation.prefix().display()
            ),
            format!("wait until it ends; show its progress: `{list}`"),
        )
    })?;
    let cut_off = Journal::read(&installation)?;
    match (cut_off, &args.from) {
        (Some(journal), None) => go_on(journal, args, &installation, context).await,
        (Some(journal), Some(_)) => Err(Failure::new(
            Exit::Conflict,
            format!("an upgrade {} was interrupted", journal.versions_text()),
            format!(
                "resume it: `{}`; or roll it back: `{}`",
                again(&installation, "--resume"),
                again(&installation, "--rollback")
            ),
        )),
        (None, Some(from)) => {
            clear_away(&installation);
            take_in(from, args, &installation, context).await
        }
        (None, None) if args.resume => {
            context.output.data("No upgrade was interrupted.")?;
            context
                .output
                .object(schemas::UPGRADE, &json!({ "outcome": "unchanged" }))
        }
        (None, None) => {
            let previous = installation.linked(VersionLink::Previous)?;
            let previous = previous.ok_or_else(|| {
                let hint = format!("list the versions: `{}`", again(&installation, "--list"));
                Failure::new(Exit::NotFound, "no previous version", hint)
            })?;
            go_to(&previous, args, &installation, context).await
        }
    }
}

/// Prints how this program was installed, and the command that upgrades it.
fn advise(args: &UpgradeArgs, context: &Context) -> Result<(), Failure> {
    let output = context.output;
    let version = env!("CARGO_PKG_VERSION");
    let installed = InstalledPackage::of_this_program().filter(|_| args.prefix.is_none());
    let (by, command) = match &installed {
        Some(package) => (package.manager.name(), package.command.clone()),
        None => {
            let installation = installation(args)?;
            (
                "an archive",
                again(&installation, "goondan-VERSION-TARGET.tar.gz"),
            )
        }
    };
    output.object(
        schemas::UPGRADE,
        &json!({
            "outcome": "advised",
            "version": version,
            "manager": installed.as_ref().map(|package| package.manager),
            "command": command,
        }),
    )?;
    output.data(format!(
        "goondan {version}, installed by {by}. Upgrade it: {command}"
    ))?;
    if installed.is_some() {
        let (shutdown, run) = (
            context.daemon_command("daemon shutdown"),
            context.daemon_command("run"),
        );
        output.note(format!(
            "Then restart the daemon: `{shutdown} && {run}`, or its service. Turns in progress finish first."
        ));
    }
    Ok(())
}

fn installation(args: &UpgradeArgs) -> Result<Installation, Failure> {
    if let Some(prefix) = &args.prefix {
        let prefix = std::path::absolute(prefix)?;
        if args.from.is_some() {
            let versions = Installation::at(prefix.clone()).versions();
            std::fs::create_dir_all(&versions).map_err(|error| unwritable(&prefix, &error))?;
        }
        // A missing directory contains no versions.
        return Ok(Installation::at(prefix.canonicalize().unwrap_or(prefix)));
    }
    Installation::of_this_program().ok_or_else(|| {
        if let Some(package) = InstalledPackage::of_this_program() {
            return Failure::new(
                Exit::Conflict,
                format!("this gdn was installed by {}", package.manager.name()),
                format!("upgrade it with: `{}`", package.command),
            );
        }
        let exe = std::env::current_exe().unwrap_or_default();
        let dir = exe.parent().unwrap_or(Path::new("/")).to_string_lossy();
        let dir = text::shell_quoted(&dir).unwrap_or_else(|| dir.clone().into_owned());
        Failure::new(
            Exit::Conflict,
            "this gdn is not in an installation with versions",
            format!(
                "create an installation: `gdn daemon upgrade {dir} --prefix ~/.local/lib/goondan`"
            ),
        )
    })
}

/// The command `gdn daemon upgrade <words>` for the same installation.
fn again(installation: &Installation, words: &str) -> String {
    if Installation::of_this_program().as_ref() == Some(installation) {
        return format!("gdn daemon upgrade {words}");
    }
    let prefix = installation.prefix().to_string_lossy();
    let prefix = text::shell_quoted(&prefix).unwrap_or_else(|| prefix.clone().into_owned());
    format!("gdn daemon upgrade {words} --prefix {prefix}")
}

fn unwritable(prefix: &Path, error: &std::io::Error) -> Failure {
    let prefix = prefix.display();
    Failure::new(
        Exit::Internal,
        format!("cannot write in {prefix}"),
        format!("check its permissions: `ls -ld {prefix}`"),
    )
    .caused_by(Some(error))
}

/// Prints the format that this version writes, and fails if it cannot read the state directory.
fn check(context: &Context) -> Result<(), Failure> {
    context.check_format()?;
    let reads = Reads::this();
    context.output.object(schemas::UPGRADE_CHECK, &reads)?;
    context.output.data(format!(
        "goondan {} can read {}; it writes format {}, which programs from format {} on can read",
        reads.version,
        context.state_root.display(),
        reads.wrote,
        reads.readable_from
    ))
}

fn list(installation: &Installation, context: &Context) -> Result<(), Failure> {
    let output = context.output;
    let current = installation.linked(VersionLink::Current)?;
    let previous = installation.linked(VersionLink::Previous)?;
    let journal = Journal::read(installation)?;
    let installed = installation.installed()?;
    let is = |link: &Option<VersionName>, name| link.as_ref() == Some(name);
    let versions = installed.iter().map(|name| {
        json!({
            "name": name, "version": name.number(), "build": name.build(),
            "current": is(&current, name), "previous": is(&previous, name),
        })
    });
    let shown = json!({
        "prefix": installation.prefix(), "versions": versions.collect::<Vec<_>>(),
        "upgrade": journal,
    });
    output.object(schemas::UPGRADE_LIST, &shown)?;
    let mut table = Table::new([
        Column::new("VERSION"),
        Column::new("BUILD"),
        Column::new(""),
    ]);
    for name in &installed {
        let mark = match (is(&current, name), is(&previous, name)) {
            (true, _) => Cell::styled("current", style::GOOD),
            (_, true) => Cell::from("previous"),
            _ => Cell::from(""),
        };
        table.row([Cell::from(name.number()), Cell::from(name.build()), mark]);
    }
    output.data(table.render(output.canvas()))?;
    if let Some(journal) = journal {
        let warning = output.err.paint(style::WARN, "warning:");
        let resume = again(installation, "--resume");
        output.note(format!(
            "{warning} an upgrade {} is in progress or was interrupted: `{resume}`",
            journal.versions_text()
        ));
    }
    Ok(())
}

/// Installs a version and upgrades to it.
async fn take_in(
    from: &Path,
    args: &UpgradeArgs,
    installation: &Installation,
    context: &Context,
) -> Result<(), Failure> {
    let incoming = StagedVersion::take(from, args.sha256.as_deref(), installation)?;
    let number = probe::number_of(incoming.dir())?;
    let name = incoming.name(&number).map_err(|error| {
        let hint = "nothing was changed; get a complete, unmodified version of goondan";
        Failure::of(Exit::Damaged, &error, hint)
    })?;
    probe::reads(&incoming.dir().join(GDN), &context.state_root)
        .map_err(|error| unreadable(&error))?;
    if args.dry_run && installation.linked(VersionLink::Current)?.as_ref() != Some(&name) {
        return print_outcome(installation, context, &name, "planned", None, &[]);
    }
    incoming.settle(&name, installation)?;
    installation
        .link_programs()
        .map_err(|error| unwritable(installation.prefix(), &error))?;
    go_to(&name, args, installation, context).await
}

fn unreadable(error: &probe::AskError) -> Failure {
    let hint = "nothing was changed; choose a version that can read the state directory: `gdn doctor` shows its format";
    Failure::of(Exit::VersionMismatch, error, hint)
}

/// Sets up the first version of an installation. No version has run from here, so none is stopped.
async fn first(
    name: &VersionName,
    installation: &Installation,
    context: &Context,
) -> Result<(), Failure> {
    let output = context.output;
    installation
        .point(VersionLink::Current, name)
        .map_err(|error| unwritable(installation.prefix(), &error))?;
    print_outcome(installation, context, name, "installed", None, &[])?;
    let bin = installation.bin_dir();
    let bin = bin.display();
    output.note(format!("Put it first in PATH: export PATH=\"{bin}:$PATH\""));
    if let Daemon::Answers(daemon) = Daemon::of(&context.state_root).await? {
        output.note(format!(
            "A daemon of other programs runs, pid {}: `{}`, then `{bin}/gdn run`; for a service: `{bin}/gdn daemon service install --force`, and restart it",
            daemon.pid(),
            context.daemon_command("daemon shutdown")
        ));
    }
    Ok(())
}

/// Upgrades to an installed version.
async fn go_to(
    to: &VersionName,
    args: &UpgradeArgs,
    installation: &Installation,
    context: &Context,
) -> Result<(), Failure> {
    let Some(from) = installation.linked(VersionLink::Current)? else {
        return first(to, installation, context).await;
    };
    if from == *to {
        return print_outcome(installation, context, to, "unchanged", None, &[]);
    }
    let (old_gdn, new_gdn) = (
        installation.program(&from, GDN),
        installation.program(to, GDN),
    );
    let new = probe::reads(&new_gdn, &context.state_root).map_err(|error| unreadable(&error))?;
    let old = probe::reads(&old_gdn, &context.state_root);
    let has_way_back = old.is_ok_and(|old| new.can_be_read_by(&old));
    if !has_way_back && !args.one_way {
        return Err(Failure::new(
            Exit::Conflict,
            format!("{from} cannot read the format of {to}: a rollback would not be possible"),
            "copy the state directory first (docs/operations.md, \"Back up and restore\"), then add `--one-way`",
        ));
    }
    let ran = how_it_runs(installation, context).await?;
    let mut journal = Journal::new(from.clone(), to.clone(), &context.state_root, ran);
    if ran != PriorDaemonState::Not {
        let look = probe::look(&old_gdn, &context.state_root);
        journal.ill_before = look.ok().flatten().map(|look| look.ill).unwrap_or_default();
    }
    if args.dry_run {
        return print_outcome(installation, context, to, "planned", None, &[]);
    }
    journal.write(installation)?;
    carry_out(journal, args, installation, context).await
}

/// Detects how the daemon to replace was started.
async fn how_it_runs(
    installation: &Installation,
    context: &Context,
) -> Result<PriorDaemonState, Failure> {
    let daemon = match Daemon::of(&context.state_root).await? {
        Daemon::None => return Ok(PriorDaemonState::Not),
        Daemon::Answers(daemon) => daemon,
        Daemon::Silent(_) => {
            return Err(Failure::new(
                Exit::TimedOut,
                "the daemon does not respond, so the upgrade could not be verified",
                format!("for details: `{}`", context.daemon_command("logs --all")),
            ));
        }
    };
    let pid = daemon.pid();
    let shutdown = context.daemon_command("daemon shutdown");
    let bin = installation.bin_dir();
    let bin = bin.display();
    let refused = |problem: String, hint: String| Failure::new(Exit::Conflict, problem, hint);
    let is_of_here = daemon.program.as_deref().is_none_or(|program| {
        Installation::of(program).is_some_and(|(of, _)| {
            let real = |prefix: &Path| prefix.canonicalize().ok();
            real(of.prefix()) == real(installation.prefix())
        })
    });
    if !is_of_here {
        return Err(refused(
            format!("the daemon, pid {pid}, is not from this installation"),
            format!("start it from here first: `{shutdown}`, then `{bin}/gdn run`"),
        ));
    }
    match service::runner_of(pid, installation, context)? {
        service::Runner::Own => Ok(PriorDaemonState::AsService),
        service::Runner::OwnElsewhere => Err(refused(
            "the service does not start the current version".to_owned(),
            format!("update the service, and restart it: `{bin}/gdn daemon service install --force`"),
        )),
        service::Runner::Machine => Err(refused(
            "the daemon is a system service, which only root can stop".to_owned(),
            "as root: `systemctl stop goondan`, then this command again, then `systemctl start goondan`".to_owned(),
        )),
        service::Runner::Nobody if daemon.client.daemon().log_dir.is_some() => Ok(PriorDaemonState::InBackground),
        service::Runner::Nobody => Err(refused(
            format!("the daemon, pid {pid}, runs in a terminal, or was started in an unknown way"),
            format!("stop it (`{shutdown}`), run this again, and start it as before"),
        )),
    }
}

/// Resumes or rolls back an interrupted upgrade.
async fn go_on(
    mut journal: Journal,
    args: &UpgradeArgs,
    installation: &Installation,
    context: &Context,
) -> Result<(), Failure> {
    if args.rollback && journal.way == UpgradeDirection::Forward {
        journal.way = UpgradeDirection::Back {
            why: "a rollback was requested".to_owned(),
        };
        journal.write(installation)?;
    }
    let context = context.with_state_root(journal.state_root.clone());
    carry_out(journal, args, installation, &context).await
}

async fn carry_out(
    journal: Journal,
    args: &UpgradeArgs,
    installation: &Installation,
    context: &Context,
) -> Result<(), Failure> {
    let (from, to) = (journal.from.clone(), journal.to.clone());
    let mut carrying = UpgradeExecutor {
        installation,
        context,
        journal,
        grace_ms: args.grace.map(|seconds| seconds.saturating_mul(1000)),
    };
    match carrying.run().await? {
        UpgradeOutcome::Upgraded(removed) => print_outcome(
            installation,
            context,
            &to,
            "upgraded",
            Some(&from),
            &removed,
        ),
        // The rollback was requested.
        UpgradeOutcome::TakenBack(_) if args.rollback => {
            print_outcome(installation, context, &from, "takenBack", Some(&to), &[])
        }
        UpgradeOutcome::TakenBack(why) => Err(Failure::new(
            Exit::TakenBack,
            format!("{to} failed, and {from} is the current version again: {why}"),
            format!(
                "show the log: `{}`",
                context.daemon_command("logs --all -n 200")
            ),
        )),
    }
}

/// Prints the outcome.
fn print_outcome(
    installation: &Installation,
    context: &Context,
    version: &VersionName,
    outcome: &str,
    instead_of: Option<&VersionName>,
    removed: &[VersionName],
) -> Result<(), Failure> {
    let object = json!({
        "prefix": installation.prefix(), "version": version, "outcome": outcome,
        "insteadOf": instead_of, "removed": removed,
    });
    context.output.object(schemas::UPGRADE, &object)?;
    let prefix = installation.prefix().display();
    context.output.data(match outcome {
        "planned" => {
            format!("All checks passed: {version} would become the current version in {prefix}")
        }
        "unchanged" => format!("{version} is already the current version"),
        "installed" => format!("Installed {version} in {prefix}"),
        _ => format!("{version} is now the current version"),
    })
}

/// Finding of `gdn doctor` about an interrupted upgrade in this program's installation; none if there is none.
pub(in crate::commands) fn cut_off() -> Option<(String, String)> {
    let installation = Installation::of_this_program()?;
    match Journal::read(&installation) {
        Ok(None) => None,
        Ok(Some(journal)) => {
            let found = format!(
                "one {} is in progress or was interrupted",
                journal.versions_text()
            );
            Some((found, again(&installation, "--resume")))
        }
        Err(error) => {
            let failure = Failure::from(error);
            Some((failure.to_string(), failure.hint))
        }
    }
}
