//! `gdn daemon service …`: the daemon as a systemd or launchd service (`REL-1`).
//!
//! The service manager is controlled through its command-line programs. `manager` has the commands, `decide` the
//! rules, `unit` the contents of the file; this module combines them.

mod daemon_service;
mod decide;
mod manager;
mod site;
mod unit;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::json;

pub(super) use self::daemon_service::{
    Runner, runner_of, service_differences, start_own, stop_own,
};
use self::decide::{ServiceState, Surroundings};
use self::manager::{ManagerName, ServiceKind, State, SystemPrograms};
use self::site::{ServiceControl, ServiceSite};
use crate::client::{Client, ConnectError, DaemonConnection};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::style;
use crate::output::table::{Cell, Table};
use crate::output::text;
use crate::schemas;

/// Maximum time from the start of the service until the daemon responds, in milliseconds; the same as the unit's start
/// timeout.
const START_MS: u64 = 60_000;

/// Polling interval for the daemon, in milliseconds.
const LOOK_MS: u64 = 100;

/// Run the daemon as a service that starts automatically and after a crash
#[derive(Debug, Subcommand)]
pub(crate) enum ServiceCommand {
    /// Install the daemon as a service, and start it
    #[command(after_help = "\
Examples:
  gdn daemon service install                       your own service, started at login
  gdn daemon service install --print               print its file, and change nothing
  gdn daemon service install --writable ~/bot      allow proposals to change that project
  sudo gdn daemon service install --system --run-as ada  a service of the machine, with the rights of ada

The service can write only its state directory and a private /tmp.
Refuses to install a second service, and to replace an edited file.")]
    Install(InstallArgs),
    /// Show if the service is installed, enabled and running
    #[command(after_help = "\
Examples:
  gdn daemon service status
  gdn daemon service status --json | jq .pid

Exit code 5: not installed; 16: it does not run or does not start automatically.")]
    Status(StatusArgs),
    /// Stop the service and remove its file; the state is kept
    #[command(after_help = "\
Examples:
  gdn daemon service remove
  sudo gdn daemon service remove --system")]
    Remove(RemoveArgs),
}

#[derive(Debug, Args)]
pub(crate) struct InstallArgs {
    #[command(flatten)]
    which: WhichArgs,
    /// User of a system service [default: the user who invoked `sudo`]
    #[arg(long, value_name = "USER", requires = "system")]
    run_as: Option<String>,
    /// Directory that the daemon and its agents can write, in addition to the state; can be repeated [default: those
    /// of the installed service]
    #[arg(long, value_name = "DIR")]
    writable: Vec<PathBuf>,
    /// Print the file without writing it
    #[arg(long)]
    print: bool,
    /// Replace a modified file, and discard the modifications
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    which: WhichArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    #[command(flatten)]
    which: WhichArgs,
}

#[derive(Debug, Args)]
pub(crate) struct WhichArgs {
    /// A system service, which needs root, instead of a user service
    #[arg(long)]
    system: bool,
    /// Service manager: systemd or launchd [default: that of this system]
    #[arg(long, value_name = "MANAGER", hide_possible_values = true)]
    manager: Option<ManagerName>,
}

impl WhichArgs {
    fn kind(&self) -> Result<ServiceKind, Failure> {
        let manager = self.manager.unwrap_or_else(ManagerName::of_this_system);
        match (manager, self.system) {
            (ManagerName::Systemd, false) => Ok(ServiceKind::User),
            (ManagerName::Systemd, true) => Ok(ServiceKind::System),
            (ManagerName::Launchd, false) => Ok(ServiceKind::Agent),
            (ManagerName::Launchd, true) => Err(Failure::new(
                Exit::Usage,
                "launchd supports user services only",
                "omit `--system`",
            )),
        }
    }
}

pub(crate) async fn run(command: ServiceCommand, context: &Context) -> Result<(), Failure> {
    match command {
        ServiceCommand::Install(args) => install(&args, context).await,
        ServiceCommand::Status(args) => status(&args, context).await,
        ServiceCommand::Remove(args) => remove(&args, context),
    }
}

async fn install(args: &InstallArgs, context: &Context) -> Result<(), Failure> {
    let output = context.output;
    let mut site = ServiceSite::find(args.which.kind()?, args.run_as.as_deref(), context)?;
    if !args.writable.is_empty() {
        let dirs = writable(site.kind, &args.writable)?;
        site = site.with_writable(dirs);
    }
    let there = site.there()?;
    let wanted = site.wanted(there.as_deref())?;
    if args.print {
        let shown = json!({ "unit": site.file, "isWritten": false, "text": wanted });
        output.object(schemas::SERVICE_INSTALL, &shown)?;
        return output.data(&wanted);
    }
    let service = ServiceControl::new(&site, &SystemPrograms);
    let state = service.state()?;
    let usual = site.usual(there.as_deref())?;
    let other = service.other()?;
    let daemon = daemon(&site).await?.map(|daemon| daemon.pid);
    let found = ServiceState {
        kind: site.kind,
        is_root: site.is_root,
        file: &site.file,
        there: there.as_deref(),
        state: &state,
    };
    let around = Surroundings {
        wanted: &wanted,
        usual: &usual,
        other: other.as_deref(),
        daemon,
        is_forced: args.force,
        shutdown: &context.daemon_command("daemon shutdown"),
    };
    let installing = decide::install(&found, &around)?;
    if installing.writes {
        site.write(there.as_deref(), &wanted)?;
        output.note(format!("Wrote {}", site.file.display()));
    }
    site.make_state_root()?;
    service.start(&state)?;
    let pid = wait_until_it_runs(&site, &service).await?;
    let shown = json!({ "unit": site.file, "isWritten": installing.writes, "pid": pid });
    output.object(schemas::SERVICE_INSTALL, &shown)?;
    output.data(format!("The service runs: pid {pid}"))?;
    if installing.needs_restart {
        let restart = site.kind.restart(site.uid, &site.file);
        output.note(format!(
            "The daemon still runs with the previous file; `{restart}` restarts it."
        ));
    }
    if site.ends_with_login() {
        output.note(
            "The service ends when you log out. To keep it running: `loginctl enable-linger`",
        );
    }
    Ok(())
}

/// Canonical paths of the directories the service may write, because systemd mounts real paths.
fn writable(kind: ServiceKind, dirs: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    if kind == ServiceKind::Agent {
        let message = "launchd does not restrict the directories of a service";
        return Err(Failure::new(Exit::Usage, message, "omit `--writable`"));
    }
    let real = |dir: &PathBuf| {
        let found = dir.canonicalize().and_then(|real| match real.is_dir() {
            true => Ok(real),
            false => Err(std::io::ErrorKind::NotADirectory.into()),
        });
        found.map_err(|error| {
            let message = format!("cannot make {} writable", dir.display());
            let hint = "pass an existing directory: `--writable DIR`";
            Failure::new(Exit::Usage, message, hint).caused_by(Some(&error))
        })
    };
    dirs.iter().map(real).collect()
}

/// Waits until the manager reports the service as running and, if it is ours, the daemon responds.
async fn wait_until_it_runs(
    site: &ServiceSite,
    service: &ServiceControl<'_>,
) -> Result<u32, Failure> {
    let deadline = Instant::now() + Duration::from_millis(START_MS);
    loop {
        let state = service.state()?;
        if let Some(pid) = state.pid.filter(|_| state.is_active()) {
            let is_answering = match Client::reach(&site.state_root).await {
                Ok(DaemonConnection::Same(client)) => client.daemon().pid == pid,
                Ok(DaemonConnection::Other(other)) => other.client.daemon().pid == pid,
                // Root may not connect to the user's daemon, so the manager's report must suffice.
                Err(ConnectError::ForeignPeer { .. }) => site.kind == ServiceKind::System,
                Err(_) => false,
            };
            if is_answering {
                return Ok(pid);
            }
        }
        if state.has_failed() || Instant::now() >= deadline {
            let active = text::printable(&state.active);
            let message = format!("the service is installed but does not run: `{active}`");
            return Err(Failure::new(Exit::StartFailed, message, site.advice()));
        }
        tokio::time::sleep(Duration::from_millis(LOOK_MS)).await;
    }
}

/// The daemon that owns the state root.
struct RunningDaemon {
    pid: u32,
    /// None if the daemon cannot be queried.
    version: Option<String>,
}

async fn daemon(site: &ServiceSite) -> Result<Option<RunningDaemon>, Failure> {
    let client = match Client::reach(&site.state_root).await {
        Ok(DaemonConnection::Same(client)) => client,
        Ok(DaemonConnection::Other(other)) => other.client,
        Err(ConnectError::NotRunning { .. }) => return Ok(None),
        Err(error @ (ConnectError::ForeignPeer { .. } | ConnectError::NotListening { .. })) => {
            let pid = site.pid_in_file().ok_or(error)?;
            return Ok(Some(RunningDaemon { pid, version: None }));
        }
        Err(error) => return Err(error.into()),
    };
    let daemon = client.daemon();
    Ok(Some(RunningDaemon {
        pid: daemon.pid,
        version: Some(daemon.version.goondan.clone()),
    }))
}

/// Output of `gdn daemon service status`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ServiceStatusOutput {
    installed: bool,
    /// `user`, `system` or `agent`.
    kind: &'static str,
    unit: PathBuf,
    enabled: String,
    active: String,
    pid: Option<u32>,
    version: Option<String>,
    /// Directories that the service can write in addition to the state directory.
    writable: Vec<PathBuf>,
    /// True if the file differs from what this version would write; none if unknown.
    differs: Option<bool>,
}

impl ServiceStatusOutput {
    fn new(
        site: &ServiceSite,
        state: &State,
        there: Option<&str>,
        running: Option<RunningDaemon>,
    ) -> Self {
        let is_its = |running: &RunningDaemon| state.pid == Some(running.pid);
        let wanted = site.usual(there).ok();
        let differs = there.zip(wanted).map(|(there, wanted)| there != wanted);
        Self {
            installed: state.is_known || there.is_some(),
            kind: site.kind.name(),
            unit: state.file.clone().unwrap_or_else(|| site.file.clone()),
            enabled: state.enabled.clone(),
            active: state.active.clone(),
            pid: state.pid,
            version: running.filter(is_its).and_then(|running| running.version),
            writable: site.writable_in(there),
            differs,
        }
    }

    fn table(&self, site: &ServiceSite, state: &State) -> Table {
        let told = |word: &str, is_good: bool| {
            let style = if is_good { style::GOOD } else { style::WARN };
            let word = if word.is_empty() { "no" } else { word };
            Cell::styled(text::printable(word), style)
        };
        let mut table = Table::of_fields();
        table.field("Service", format!("{} ({})", manager::UNIT, self.kind));
        table.field("File", self.unit.to_string_lossy());
        table.field("Enabled", told(&self.enabled, state.is_enabled()));
        table.field("Active", told(&self.active, state.is_active()));
        if let Some(pid) = self.pid {
            table.field("Process", pid.to_string());
        }
        if let Some(version) = &self.version {
            table.field("Version", text::printable(version));
        }
        for dir in &self.writable {
            table.field("Writable", text::printable(&dir.to_string_lossy()));
        }
        match self.differs {
            Some(false) => table.field("Form", "up to date"),
            Some(true) => {
                let told = "differs from the file that this version would write";
                table.field("Form", Cell::styled(told, style::WARN));
                table.field("", Cell::styled(site.differences(), style::WARN));
            }
            None => {}
        }
        table
    }
}

async fn status(args: &StatusArgs, context: &Context) -> Result<(), Failure> {
    let output = context.output;
    let site = ServiceSite::find(args.which.kind()?, None, context)?;
    let service = ServiceControl::new(&site, &SystemPrograms);
    let state = service.state()?;
    let there = site.there()?;
    let running = daemon(&site).await?;
    let shown = ServiceStatusOutput::new(&site, &state, there.as_deref(), running);
    output.object(schemas::SERVICE_STATUS, &shown)?;
    if !shown.installed {
        let other = service.other()?;
        return Err(none_installed(&site, other.as_deref()));
    }
    output.data(shown.table(&site, &state).render(output.canvas()))?;
    if !state.is_active() {
        let message = "the service does not run";
        return Err(Failure::new(Exit::Degraded, message, site.advice()));
    }
    if !state.is_enabled() {
        let message = "the service does not start automatically";
        let hint = format!("enable it: `{}`", site.kind.install_command());
        return Err(Failure::new(Exit::Degraded, message, hint));
    }
    Ok(())
}

fn none_installed(site: &ServiceSite, other: Option<&Path>) -> Failure {
    let hint = match (site.kind, other) {
        (ServiceKind::User, Some(_)) => {
            "check the system service: `gdn daemon service status --system`"
        }
        (ServiceKind::System, Some(_)) => "check the user service: `gdn daemon service status`",
        (ServiceKind::System, None) => "install it: `sudo gdn daemon service install --system`",
        (ServiceKind::User | ServiceKind::Agent, _) => "install it: `gdn daemon service install`",
    };
    Failure::new(Exit::NotFound, "the service is not installed", hint)
}

fn remove(args: &RemoveArgs, context: &Context) -> Result<(), Failure> {
    let output = context.output;
    let site = ServiceSite::find(args.which.kind()?, None, context)?;
    let service = ServiceControl::new(&site, &SystemPrograms);
    let state = service.state()?;
    let there = site.there()?;
    let removing = decide::remove(&ServiceState {
        kind: site.kind,
        is_root: site.is_root,
        file: &site.file,
        there: there.as_deref(),
        state: &state,
    })?;
    let existed = removing.stops || removing.deletes;
    if removing.stops {
        output.note("Stopping, after the turns in progress …");
        service.stop()?;
    }
    if removing.deletes {
        site.delete()?;
    }
    if existed {
        service.forget()?;
    }
    let shown = json!({ "unit": site.file, "existed": existed });
    output.object(schemas::SERVICE_REMOVE, &shown)?;
    if !existed {
        // Not an error, because the service is already absent.
        return output.data("The service is not installed.");
    }
    output.data(format!("Removed {}", site.file.display()))?;
    output.note("Conversations, secrets and logs stay in the state directory.");
    Ok(())
}
