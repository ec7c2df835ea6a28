//! Permissions that a project can use, and a person's decisions about them (`SEC-3`).

use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::path::Path;

use goondan_config::{Loader, PermissionRequest, PermissionState, ProcessEnvironment};
use goondan_protocol::control::{DecidePermission, PermissionDecision, WorkspacePermission};
use goondan_protocol::package_runner::cover_text;
use goondan_vault::{RealFiles, SecretReader};

use super::confirm;
use crate::client::Client;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::text;
use crate::project::{ProjectChoice, identity};

/// Number of files, connections or commands that a question names.
const NAMED_MAX: usize = 20;

/// Permissions that a project can use, with a person's decisions about them.
pub(super) fn requests(
    project_root: &Path,
    choice: &ProjectChoice,
    context: &Context,
) -> Vec<PermissionRequest> {
    let vault = context.vault();
    let root = std::fs::canonicalize(project_root);
    let project = identity(root.as_deref().unwrap_or(project_root));
    let secrets = SecretReader::new(&vault, &project);
    // Unreadable decisions allow nothing; the daemon reports them when a new one is stored.
    let decisions = vault.permissions(&RealFiles).unwrap_or_default();
    let decisions = decisions.of_project(&project);
    let loader = choice
        .apply(Loader::new(&ProcessEnvironment))
        .with_secrets(&secrets)
        .with_decisions(&decisions);
    loader.load(project_root).permissions
}

/// True if a configuration needs a person's decision before it can run.
pub(super) fn is_outgrown(requests: &[PermissionRequest]) -> bool {
    requests.iter().any(|request| {
        request.permission == WorkspacePermission::Project
            && request.state == PermissionState::Undecided
            && request.added != request.covers
    })
}

/// Decides about the requests: allows those in `allow`, and asks about undecided ones on a
/// terminal. Without a terminal, they stay undecided. Returns the decisions to store.
pub(super) fn ask(
    requests: &[PermissionRequest],
    allow: &[WorkspacePermission],
    project_root: &Path,
    context: &Context,
) -> Result<Vec<DecidePermission>, Failure> {
    let is_asked = context.output.is_interactive() && std::io::stdin().is_terminal();
    let mut decisions = Vec::new();
    for request in requests {
        let is_allowed = request.state == PermissionState::Allowed;
        let allowed = if allow.contains(&request.permission) && !is_allowed {
            true
        } else if request.state == PermissionState::Undecided && is_asked {
            context.output.note(meaning(request, project_root));
            let question = format!("Allow `{}`?", request.permission);
            confirm::asked(context, &question)?
        } else {
            continue;
        };
        decisions.push(DecidePermission {
            permission: request.permission,
            project_root: project_root.to_owned(),
            allowed,
            covers: request.covers.clone(),
        });
    }
    if let Some(permission) = allow
        .iter()
        .find(|it| !requests.iter().any(|request| request.permission == **it))
    {
        return Err(unusable(*permission, project_root, context));
    }
    Ok(decisions)
}

/// Stores decisions.
pub(super) async fn store(
    client: &mut Client,
    decisions: Vec<DecidePermission>,
    context: &Context,
) -> Result<(), Failure> {
    for decision in decisions {
        let decided = client.change(decision).await?;
        context.output.note(decision_text(&decided.decision));
    }
    Ok(())
}

/// One paragraph about the effect of a permission.
fn meaning(request: &PermissionRequest, project_root: &Path) -> String {
    let root = project_root.to_string_lossy();
    let root = text::printable(&root);
    let names = |all: &BTreeSet<String>| {
        let named = all.iter().take(NAMED_MAX);
        let named: Vec<&str> = named.map(|entry| cover_text(entry)).collect();
        let more = all.len().saturating_sub(named.len());
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        text::printable(&format!("{}{more}", named.join(", ")))
    };
    match request.permission {
        WorkspacePermission::Project if request.added != request.covers => format!(
            "The configuration of {root} has files that its agents could have written, because they may write there: \
             {}. Check them. If you deny, agents can no longer write in the project, and the files are still loaded.",
            names(&request.added)
        ),
        WorkspacePermission::Project => format!(
            "The project {root} is written for goondan 0.0.3: its agents want to read and write all files there, and \
             see each other's, also files that you run or commit. Its configuration, its modules, files for secrets \
             that it reads, and git's hooks stay read-only. If you deny, each conversation works in its own directory."
        ),
        WorkspacePermission::Network => format!(
            "Connector modules of the project {root} want to use the whole network, in and out, including services of \
             this machine: {}. If you deny, they run without a network.",
            names(&request.covers)
        ),
        WorkspacePermission::Packages => format!(
            "Connections of the project {root} want to download and run packages of other people: {}. The programs run \
             confined, and reach the registry of their packages while they run. If you deny, they do not start.",
            names(&request.added)
        ),
    }
}

/// The failure to decide about a permission that a project cannot use.
pub(super) fn unusable(permission: WorkspacePermission, root: &Path, context: &Context) -> Failure {
    let root = root.to_string_lossy();
    let validate = context.command("validate");
    let users = match permission {
        WorkspacePermission::Project | WorkspacePermission::Network => {
            "projects of the format 0.0.3"
        }
        WorkspacePermission::Packages => "projects with MCP servers of `npx`, `uvx` and the like",
    };
    Failure::new(
        Exit::Usage,
        format!(
            "the project {} has no use for the permission `{permission}`",
            text::printable(&root)
        ),
        format!("it is for {users}, whose configuration is valid: `{validate}`"),
    )
}

/// A decision, in words.
pub(super) fn decision_text(decision: &PermissionDecision) -> String {
    let root = decision.project_root.to_string_lossy();
    let done = if decision.allowed {
        "Allowed"
    } else {
        "Denied"
    };
    format!(
        "{done} `{}` to {}",
        decision.permission,
        text::printable(&root)
    )
}
