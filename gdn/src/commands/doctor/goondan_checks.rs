//! Checks goondan itself: programs, state directory and daemon.

use std::error::Error as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use goondan_protocol::control::{
    CheckDaemon, CheckNodes, DaemonCheck, ServerFinding, ServerVerdict, WorkspaceInfo,
};
use goondan_protocol::state_root;
use nix::unistd::Uid;

use super::check_result::CheckResult;
use crate::client::{Client, ConnectError};
use crate::commands::health;
use crate::commands::service::service_differences;
use crate::commands::upgrade::cut_off;
use crate::context::Context;
use crate::output::text;
use crate::programs::{AGENT_PROCESS, CONNECTOR_PROCESS, ORCHESTRATOR, place_of};
use crate::state_format;

/// Programs beside `gdn` that a daemon needs.
const BESIDE: [&str; 3] = [ORCHESTRATOR, AGENT_PROCESS, CONNECTOR_PROCESS];

/// Permission bits of other users, which must be unset on files that hold secrets.
const OTHERS: u32 = 0o077;

/// Maximum distance of a file's time into the future before the clock counts as wrong, in seconds.
const CLOCK_TOLERANCE_S: u64 = 60;

/// Name of the check for the log server.
const LOG_SERVER: &str = "log server";

/// Checks that all programs are installed and have one version.
pub(super) fn programs() -> Vec<CheckResult> {
    let own = env!("CARGO_PKG_VERSION");
    BESIDE
        .iter()
        .map(|program| program_finding(program, own))
        .collect()
}

fn program_finding(program: &'static str, own: &str) -> CheckResult {
    let together = "install all four programs of one build in the same directory";
    let Some(place) = place_of(program) else {
        let found = "not found beside gdn or in PATH";
        return CheckResult::bad(program, found, together);
    };
    let said = Command::new(&place)
        .arg("--version")
        .stdin(Stdio::null())
        .output();
    let said = match said {
        Ok(output) => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        Err(error) => {
            let found = format!("{} cannot be run: {error}", place.display());
            return CheckResult::bad(program, found, together);
        }
    };
    let version = said.split_whitespace().nth(1).unwrap_or_default();
    let found = format!("{version} at {}", place.display());
    if version == own {
        CheckResult::ok(program, found)
    } else {
        CheckResult::bad(program, format!("{found}, and gdn is {own}"), together)
    }
}

/// Checks that only this user can access the state directory.
pub(super) fn state_root(context: &Context) -> Vec<CheckResult> {
    let root = &context.state_root;
    let Ok(metadata) = std::fs::metadata(root) else {
        let found = format!(
            "{} does not exist yet; `gdn run` creates it",
            root.display()
        );
        return vec![CheckResult::ok("state directory", found)];
    };
    if !metadata.is_dir() {
        let found = format!("{} is not a directory", root.display());
        let hint = "pass a directory: `gdn --state-root DIR doctor`, or set GOONDAN_STATE_ROOT";
        return vec![CheckResult::bad("state directory", found, hint)];
    }
    let mut findings = vec![privacy("state directory", root, &metadata), format_of(root)];
    let identity = context.vault().identity_file();
    if let Ok(metadata) = std::fs::metadata(&identity) {
        findings.push(privacy("identity of secrets", &identity, &metadata));
    }
    let others = state_root::owned(root).filter(|path| path != root && *path != identity);
    findings.extend(others.filter_map(exposed));
    findings.push(clock(root, SystemTime::now()));
    findings
}

/// Finding for a path of the state directory that another user owns or can write; the daemon refuses to start with it.
fn exposed(path: PathBuf) -> Option<CheckResult> {
    let found = std::fs::metadata(&path).ok()?;
    let own = Uid::effective().as_raw();
    let exposed = state_root::check(path, found.uid(), found.mode(), own).err()?;
    Some(CheckResult::bad(
        "owner of files",
        exposed.to_string(),
        exposed.hint(),
    ))
}

/// Checks that this program supports the format of the state directory (`REL-1`).
fn format_of(root: &Path) -> CheckResult {
    const CHECK: &str = "state format";
    match state_format::read(root) {
        Ok(format) => CheckResult::ok(CHECK, state_format::format_text(format.as_ref())),
        Err(error) => {
            let cause = error.source().map(|cause| format!(": {cause}"));
            let found = format!("{error}{}", cause.unwrap_or_default());
            CheckResult::bad(CHECK, found, error.hint())
        }
    }
}

fn privacy(check: &'static str, path: &Path, metadata: &std::fs::Metadata) -> CheckResult {
    let shown = path.display();
    let own = Uid::effective().as_raw();
    if metadata.uid() != own {
        let found = format!("{shown} belongs to user {}", metadata.uid());
        let hint = format!("sudo chown -R {own} {}", quoted(path));
        return CheckResult::bad(check, found, hint);
    }
    let mode = metadata.mode() & 0o777;
    if mode & OTHERS == 0 {
        return CheckResult::ok(check, format!("{shown}, accessible only to you"));
    }
    let found = format!("{shown} can be read by others (mode {mode:03o})");
    CheckResult::bad(check, found, format!("chmod go= {}", quoted(path)))
}

fn quoted(path: &Path) -> String {
    let path = path.to_string_lossy();
    text::shell_quoted(&path).unwrap_or_else(|| path.into_owned())
}

/// Checks for files with a time in the future: the clock was set back, or is wrong.
fn clock(root: &Path, now: SystemTime) -> CheckResult {
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    let written = entries.filter_map(|entry| entry.metadata().ok()?.modified().ok());
    let latest = written.max();
    let ahead = latest.and_then(|latest| latest.duration_since(now).ok());
    match ahead.filter(|ahead| *ahead > Duration::from_secs(CLOCK_TOLERANCE_S)) {
        None => CheckResult::ok("clock", "no file of the state directory has a future date"),
        Some(ahead) => {
            let ms = u64::try_from(ahead.as_millis()).unwrap_or(u64::MAX);
            let found = format!(
                "a file of the state directory has a date {} in the future",
                text::duration(ms)
            );
            CheckResult::warn(
                "clock",
                found,
                "set the clock by NTP: `timedatectl set-ntp true`",
            )
        }
    }
}

/// Reports an interrupted upgrade; none if there is none.
pub(super) fn upgrade() -> Option<CheckResult> {
    let (found, hint) = cut_off()?;
    Some(CheckResult::bad("upgrade", found, hint))
}

/// Models of the running workspaces whose calls fail until a person acts, such as those with a rejected key.
pub(super) async fn models(context: &Context) -> Vec<CheckResult> {
    let Ok(mut client) = Client::connect(&context.endpoint).await else {
        return Vec::new();
    };
    let Ok(status) = client.status().await else {
        return Vec::new();
    };
    let check = |workspace: &WorkspaceInfo| {
        let id = &workspace.workspace_id;
        let show = health::settings_of(workspace, context);
        let failing = workspace.failing.iter();
        let failing = failing.map(|(model, failures)| {
            let found = format!("{id}: {}", health::failing(model.as_str(), failures));
            CheckResult::warn(
                "models",
                found,
                format!("for the source of the value: `{show}`"),
            )
        });
        failing.collect::<Vec<_>>()
    };
    status.workspaces.iter().flat_map(check).collect()
}

/// Checks the state of the daemon.
pub(super) async fn daemon(context: &Context) -> CheckResult {
    const CHECK: &str = "daemon";
    let run = context.daemon_command("run");
    let mut client = match Client::connect(&context.endpoint).await {
        Ok(client) => client,
        Err(ConnectError::NotRunning { .. }) => {
            return CheckResult::ok(CHECK, "not running").hint(format!("start one: `{run}`"));
        }
        Err(error) => {
            let restart = context.daemon_command("daemon shutdown");
            let hint = format!("`{restart}`, then `{run}`");
            return CheckResult::bad(CHECK, error.to_string(), hint);
        }
    };
    let status = match client.status().await {
        Ok(status) => status,
        Err(error) => {
            let logs = context.daemon_command("logs");
            return CheckResult::bad(CHECK, error.to_string(), format!("for details: `{logs}`"));
        }
    };
    let found = format!(
        "{} runs as process {} with {}",
        status.version.goondan,
        status.pid,
        text::count(status.workspaces.len(), "workspace")
    );
    let ill = status.workspaces.iter().any(|info| !info.is_healthy());
    if ill || !status.short_of.is_empty() {
        let look = context.daemon_command("daemon status");
        let found = format!("{found}; something needs attention");
        return CheckResult::warn(CHECK, found, format!("for details: `{look}`"));
    }
    CheckResult::ok(CHECK, found)
}

/// Rights of the running daemon's processes, tested by the daemon; none if no daemon runs.
pub(super) async fn daemon_check(context: &Context) -> Option<DaemonCheck> {
    let mut client = Client::connect(&context.endpoint).await.ok()?;
    client.query(CheckDaemon {}).await.ok()
}

/// Compares the service's file with the one this version would write; empty if they match or there is no service.
pub(super) fn service(context: &Context) -> Vec<CheckResult> {
    let differing = service_differences(context).into_iter();
    let finding = |(file, hint): (PathBuf, String)| {
        let found = format!(
            "{} differs from the file that this version would write",
            file.display()
        );
        CheckResult::warn("service", found, hint)
    };
    differing.map(finding).collect()
}

/// Checks the settings of the log server; empty if no daemon runs or it uses no log server.
pub(super) async fn log_server(context: &Context) -> Vec<CheckResult> {
    let Ok(mut client) = Client::connect(&context.endpoint).await else {
        return Vec::new();
    };
    match client.query(CheckNodes {}).await {
        Ok(check) => check.findings.into_iter().map(of_server).collect(),
        Err(error) => vec![CheckResult::unknown(LOG_SERVER, error.to_string())],
    }
}

fn of_server(finding: ServerFinding) -> CheckResult {
    let found = format!("{}: {}", finding.what, finding.found);
    let advice = finding.advice.unwrap_or_default();
    match finding.verdict {
        ServerVerdict::Good => CheckResult::ok(LOG_SERVER, found),
        ServerVerdict::Weak => CheckResult::warn(LOG_SERVER, found, advice),
        ServerVerdict::Bad => CheckResult::bad(LOG_SERVER, found, advice),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::check_result::CheckStatus;
    use super::*;

    #[test]
    fn directory_readable_by_others_is_bad_and_the_hint_fixes_it() {
        let dir = tempfile::tempdir().unwrap();
        let verdict = |mode| {
            std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(mode)).unwrap();
            privacy("x", dir.path(), &std::fs::metadata(dir.path()).unwrap())
        };
        assert_eq!(verdict(0o700).verdict, CheckStatus::Ok);
        let open = verdict(0o755);
        assert_eq!(open.verdict, CheckStatus::Bad);
        assert!(open.hint.unwrap().starts_with("chmod go= /"));
    }

    #[test]
    fn a_clock_that_was_set_back_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        tempfile::NamedTempFile::new_in(&dir)
            .unwrap()
            .keep()
            .unwrap();
        let now = SystemTime::now();
        assert_eq!(clock(dir.path(), now).verdict, CheckStatus::Ok);
        let before = now - Duration::from_secs(2 * 3_600);
        let finding = clock(dir.path(), before);
        assert_eq!(finding.verdict, CheckStatus::Warn);
        assert!(finding.found.contains('h'), "{}", finding.found);
    }
}
