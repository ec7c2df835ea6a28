//! `gdn doctor`: checks everything that goondan needs, and suggests how to fix what is missing (`REL-1`).
//!
//! It is read-only. If a daemon runs, the daemon tests what its processes can do, because a service manager or a
//! container can remove rights that this shell has.

mod check_result;
mod daemon_probe;
mod goondan_checks;
mod kernel;
mod machine;
mod network;
mod project;

use clap::Args;
use serde::Serialize;

use self::check_result::{CheckResult, CheckStatus};
use self::daemon_probe::ProbeResults;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::style;
use crate::output::table::{Cell, Column, Table};
use crate::output::text;
use crate::schemas;

/// Check this machine, the state directory and the project, and suggest fixes
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn doctor
  gdn doctor --network                   also show the proxies, and connect to the project's servers
  gdn doctor --json | jq '.findings[] | select(.verdict != \"ok\")'

Changes nothing. Exit code 16 means that something must be fixed.")]
pub(crate) struct DoctorArgs {
    /// Show the proxies and certificate authorities, and connect to the project's servers; no data is sent
    #[arg(long)]
    network: bool,
    /// Has no effect, because `gdn doctor` changes nothing
    #[arg(long, hide = true)]
    fix: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DoctorReport {
    /// True if nothing needs to be fixed.
    healthy: bool,
    findings: Vec<CheckResult>,
}

pub(crate) async fn run(args: &DoctorArgs, context: &Context) -> Result<(), Failure> {
    if args.fix {
        let note =
            "`--fix` has no effect: `gdn doctor` prints the command that fixes each problem.";
        context.output.note(note);
    }
    let mut findings = goondan_checks::programs();
    findings.extend(goondan_checks::state_root(context));
    findings.extend(goondan_checks::upgrade());
    findings.push(goondan_checks::daemon(context).await);
    findings.extend(goondan_checks::models(context).await);
    findings.extend(goondan_checks::service(context));
    findings.extend(goondan_checks::log_server(context).await);
    findings.extend(machine::findings(&context.state_root));
    let check = goondan_checks::daemon_check(context).await;
    let daemon_network = check.as_ref().map(|check| check.network.clone());
    let seen = match check {
        Some(check) => ProbeResults::by_daemon(check),
        None => ProbeResults::here(),
    };
    findings.extend(kernel::findings(&seen));
    findings.extend(seen.read_only_projects());
    let (found, bundle) = project::findings(context);
    findings.extend(found);
    if args.network {
        let tested = network::findings(bundle.as_ref(), daemon_network.as_ref(), context);
        findings.extend(tested.await);
    }
    let bad = count(&findings, CheckStatus::Bad);
    let report = DoctorReport {
        healthy: bad == 0,
        findings,
    };
    let output = context.output;
    output.object(schemas::DOCTOR, &report)?;
    output.data(table(&report.findings).render(output.canvas()))?;
    if bad == 0 {
        return Ok(());
    }
    let message = format!("{} to fix", text::count(bad, "thing"));
    let hint = "see the fix next to each problem";
    Err(Failure::new(Exit::Degraded, message, hint))
}

fn count(findings: &[CheckResult], verdict: CheckStatus) -> usize {
    let found = findings.iter().filter(|finding| finding.verdict == verdict);
    found.count()
}

fn table(findings: &[CheckResult]) -> Table {
    let mut table = Table::new([
        Column::new("CHECK"),
        Column::new("RESULT"),
        Column::new("FOUND").below(1, ""),
        Column::new("WHAT TO DO").below(2, "do: "),
    ]);
    for finding in findings {
        let (word, style) = match finding.verdict {
            CheckStatus::Ok => ("ok", style::GOOD),
            CheckStatus::Warn => ("warning", style::WARN),
            CheckStatus::Bad => ("bad", style::BAD),
            CheckStatus::Unknown => ("unknown", style::FAINT),
        };
        table.row([
            Cell::from(finding.check),
            Cell::styled(word, style),
            Cell::from(text::printable(&finding.found)),
            Cell::from(finding.hint.as_deref().unwrap_or_default()),
        ]);
    }
    table
}
