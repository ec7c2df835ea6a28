//! `gdn daemon verify`.

use std::path::Path;
use std::process::{Command, Stdio};

use clap::Args;
use goondan_protocol::control::{
    FileFinding, FindingSeverity, ListWorkspaces, Verification, VerifyInstances, VerifyReplica,
    VerifyRoot,
};
use goondan_protocol::ids::InstanceKey;
use goondan_protocol::ids::WorkspaceId;

use super::node;
use crate::client::Client;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::style;
use crate::output::table::{Cell, Column, Table};
use crate::output::text;
use crate::programs;
use crate::schemas;

/// Exit code of the daemon's program if another daemon owns the state root.
const IN_USE: i32 = 3;
/// Exit code of the daemon's program if it does not know the format of the state root.
const UNKNOWN_FORMAT: i32 = 4;

/// Verify the integrity of stored files
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn daemon verify                        this project's conversations
  gdn daemon verify --conversation order-17
  gdn daemon verify --repair        set damaged data aside; nothing is deleted
  gdn daemon verify --offline       all files of a state root that no daemon owns
  gdn daemon verify --all           include this node's copies of other nodes' workspaces
  gdn daemon verify --all --json | jq '.findings[] | select(.severity == \"error\")'

Exit code 15: stored data cannot be read.")]
pub(crate) struct VerifyArgs {
    /// Only this conversation
    #[arg(
        long = "conversation",
        alias = "instance",
        value_name = "KEY",
        conflicts_with = "all"
    )]
    instance: Option<InstanceKey>,
    /// Include every workspace, and replicas of other nodes' workspaces
    #[arg(long)]
    all: bool,
    /// Without a daemon: all files, except sandboxes and encrypted documents
    #[arg(long, conflicts_with_all = ["instance", "all", "repair"])]
    offline: bool,
    /// Quarantine damaged data, so that everything else can be used; no data is deleted
    #[arg(long)]
    repair: bool,
}

impl VerifyArgs {
    /// True if no daemon is asked.
    pub(crate) fn is_offline(&self) -> bool {
        self.offline
    }
}

pub(crate) async fn run(args: VerifyArgs, context: &Context) -> Result<(), Failure> {
    if args.offline {
        let found = verify_offline(context)?;
        return tell(&args, context, &found, false);
    }
    let mut client = context.connect().await?;
    let followed = followed(&mut client).await?;
    let named = context.workspace_id();
    let is_followed = named.as_ref().is_some_and(|id| followed.contains(id));
    let (workspaces, replicas): (Vec<WorkspaceId>, Vec<WorkspaceId>) = match named {
        _ if args.all => {
            let all = client.all(ListWorkspaces::default()).await?;
            let all = all.into_iter().map(|info| info.workspace_id);
            (all.collect(), followed)
        }
        Some(id) if is_followed && args.instance.is_some() => {
            return Err(Failure::new(
                Exit::Usage,
                format!(
                    "workspace {id} runs on another node: its files here can only be checked together"
                ),
                format!(
                    "omit `--conversation`: `{}`",
                    context.command("daemon verify")
                ),
            ));
        }
        Some(id) if is_followed => (Vec::new(), vec![id]),
        _ => (
            vec![context.find(&mut client).await?.workspace_id],
            Vec::new(),
        ),
    };
    let mut found = Verification::default();
    if args.all {
        let repair = args.repair;
        add(&mut found, client.change(VerifyRoot { repair }).await?);
    }
    for workspace_id in workspaces {
        let verify = VerifyInstances {
            workspace_id,
            instance_key: args.instance.clone(),
            repair: args.repair,
        };
        add(&mut found, client.change(verify).await?);
    }
    // Other damage is repaired by the node that owns the workspace.
    let is_own_damaged = !args.repair && is_damaged(&found.findings);
    for workspace_id in replicas {
        add(
            &mut found,
            client.change(VerifyReplica { workspace_id }).await?,
        );
    }
    tell(&args, context, &found, is_own_damaged)
}

/// Verifies the files with the daemon's program, because only it knows their format.
fn verify_offline(context: &Context) -> Result<Verification, Failure> {
    let program = programs::place_of(programs::ORCHESTRATOR);
    let program = program.unwrap_or_else(|| programs::ORCHESTRATOR.into());
    let ran = Command::new(&program)
        .arg("--verify")
        .arg("--state-root")
        .arg(&context.state_root)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| {
            Failure::new(
                Exit::StartFailed,
                format!("failed to run {}", program.display()),
                "install goondan-orchestrator beside gdn",
            )
            .caused_by(Some(&error))
        })?;
    if !ran.status.success() {
        let problem = String::from_utf8_lossy(&ran.stderr);
        let problem = text::one_line(problem.trim().trim_start_matches("error: "));
        let (exit, hint) = match ran.status.code() {
            Some(IN_USE) => (
                Exit::Conflict,
                format!(
                    "use the daemon: `{}`; or stop it: `{}`",
                    context.daemon_command("daemon verify --all"),
                    context.daemon_command("daemon shutdown")
                ),
            ),
            Some(UNKNOWN_FORMAT) => (
                Exit::VersionMismatch,
                "use the programs of goondan that wrote the state root".to_owned(),
            ),
            _ => (
                Exit::Internal,
                "check the path and the permissions of the state root".to_owned(),
            ),
        };
        return Err(Failure::new(
            exit,
            format!("cannot verify the files without a daemon: {problem}"),
            hint,
        ));
    }
    serde_json::from_slice(&ran.stdout).map_err(|error| {
        Failure::of(
            Exit::VersionMismatch,
            &error,
            "install all programs of goondan from one build",
        )
    })
}

/// Prints the findings; remaining damage is a failure.
fn tell(
    args: &VerifyArgs,
    context: &Context,
    found: &Verification,
    is_own_damaged: bool,
) -> Result<(), Failure> {
    let output = context.output;
    output.object(schemas::VERIFY, found)?;
    let sandboxes = match found.sandboxes {
        0 => String::new(),
        count => format!(" and {}", plural(count, "sandbox", "sandboxes")),
    };
    let checked = format!(
        "Checked {}{sandboxes} in {} ({})",
        text::count(found.instances, "conversation"),
        text::count(found.files, "file"),
        text::bytes(found.bytes)
    );
    if found.findings.is_empty() {
        return output.data(format!("{checked}: all files are intact."));
    }
    output.data(table_of(&found.findings, &context.state_root).render(output.canvas()))?;
    output.data(format!(
        "{checked}: {}.",
        text::count(found.findings.len(), "finding")
    ))?;
    for kept in &found.kept {
        output.data(format!(
            "Original kept: {}",
            text::one_line(&kept.to_string_lossy())
        ))?;
    }
    // Only conversations are repaired; acknowledged findings in other files are no longer errors.
    let mut left = found.findings.iter();
    let is_left = |finding: &FileFinding| {
        finding.severity == FindingSeverity::Error
            && !(args.repair && finding.instance_key.is_some())
    };
    if !left.any(is_left) {
        return Ok(());
    }
    let problem = "stored data is damaged";
    let advice = if is_own_damaged {
        let repair = context.command("daemon verify --repair");
        format!("restore the files from a backup, or continue without the damaged data: `{repair}`")
    } else {
        let again = context.command(match args.all {
            true => "daemon verify --all",
            false => "daemon verify",
        });
        format!("check again in a few seconds, when they are restored from the log: `{again}`")
    };
    Err(Failure::new(Exit::Damaged, problem, advice))
}

fn is_damaged(findings: &[FileFinding]) -> bool {
    let mut severities = findings.iter().map(|finding| finding.severity);
    severities.any(|severity| severity == FindingSeverity::Error)
}

/// Workspaces that another node runs and this node replicates.
async fn followed(client: &mut Client) -> Result<Vec<WorkspaceId>, Failure> {
    let page = node::pages(client).await?;
    let workspaces = page.workspaces.into_iter();
    let followed = workspaces.filter(|it| !it.is_here && !it.is_failed);
    Ok(followed.map(|it| it.workspace_id).collect())
}

fn plural(count: u64, one: &str, more: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        count => format!("{count} {more}"),
    }
}

/// File name in a conversation; otherwise the path in its workspace or the state directory, because every task has a
/// `history.jsonl`.
fn place_of<'a>(finding: &'a FileFinding, state_root: &Path) -> &'a Path {
    if finding.instance_key.is_some() {
        return finding
            .path
            .file_name()
            .map_or(finding.path.as_path(), Path::new);
    }
    let below = finding.path.strip_prefix(state_root);
    let below = below.unwrap_or(&finding.path);
    let Ok(in_workspaces) = below.strip_prefix("workspaces") else {
        return below;
    };
    let mut parts = in_workspaces.components();
    // The id of the workspace.
    parts.next();
    match parts.as_path() {
        folder if folder.as_os_str().is_empty() => below,
        path => path,
    }
}

/// Merges a partial result; findings in both are kept once.
fn add(found: &mut Verification, part: Verification) {
    found.instances += part.instances;
    found.sandboxes += part.sandboxes;
    found.files += part.files;
    found.bytes += part.bytes;
    for finding in part.findings {
        if !found.findings.contains(&finding) {
            found.findings.push(finding);
        }
    }
    found.kept.extend(part.kept);
}

fn table_of(findings: &[FileFinding], state_root: &Path) -> Table {
    let mut table = Table::new([
        Column::new(""),
        Column::new("CONVERSATION").cut(),
        Column::new("FILE").cut(),
        Column::new("LINE"),
        Column::new("FOUND").below(1, ""),
        Column::new("WHAT TO DO").below(2, ""),
    ]);
    for finding in findings {
        let look = match finding.severity {
            FindingSeverity::Info => style::FAINT,
            FindingSeverity::Warning => style::WARN,
            FindingSeverity::Error => style::BAD,
        };
        let file = place_of(finding, state_root);
        let line = finding.line.map(|line| line.to_string());
        table.row([
            Cell::styled(finding.severity.as_str(), look),
            finding
                .instance_key
                .as_ref()
                .map_or_else(|| "".into(), Cell::from),
            text::one_line(&file.to_string_lossy()).into(),
            line.unwrap_or_default().into(),
            text::one_line(&finding.problem).into(),
            text::one_line(&finding.advice).into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str, instance_key: Option<&str>) -> String {
        let finding = FileFinding {
            instance_key: instance_key.map(|key| key.parse().unwrap()),
            severity: FindingSeverity::Error,
            kind: "damaged-record".to_owned(),
            path: path.into(),
            line: None,
            bytes: None,
            problem: String::new(),
            advice: String::new(),
            kept_in: None,
        };
        let place = place_of(&finding, Path::new("/state"));
        place.to_str().unwrap().to_owned()
    }

    #[test]
    fn msg_11_a_finding_names_the_task_of_its_file() {
        for (path, key, shown) in [
            (
                "/state/workspaces/w/instances/main/messages/inbox.jsonl",
                Some("main"),
                "inbox.jsonl",
            ),
            (
                "/state/workspaces/w/tasks/shop/.metadata/history.jsonl",
                None,
                "tasks/shop/.metadata/history.jsonl",
            ),
            ("/state/workspaces/w/audit.jsonl", None, "audit.jsonl"),
            ("/state/workspaces/w", None, "workspaces/w"),
            (
                "/state/system/secrets/github.sops.yaml",
                None,
                "system/secrets/github.sops.yaml",
            ),
            (
                "/tasks/w/shop/.metadata/history.jsonl",
                None,
                "/tasks/w/shop/.metadata/history.jsonl",
            ),
        ] {
            assert_eq!(place(path, key), shown);
        }
    }
}
