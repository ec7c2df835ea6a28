//! Asks the user to allow a project the secrets it names (`SEC-6`).

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::Path;

use goondan_config::{Loader, ProcessEnvironment};
use goondan_protocol::control::{
    AllowSecret, ControlError, ErrorCode, OpenWorkspace, WorkspaceInfo, WorkspacePermission,
};
use goondan_protocol::ids::SecretName;
use goondan_vault::SecretReader;

use super::attach::attach_or_start;
use super::{confirm, permission_requests, shutdown};
use crate::client::{CallError, Client};
use crate::context::Context;
use crate::daemon;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::text;
use crate::project::{self, ProjectChoice};

/// Opens a workspace. Asks for the secrets it names that are not allowed yet, and for undecided
/// permissions, if stdin is a terminal. The permissions in `allow` are allowed.
pub(super) async fn open(
    client: &mut Client,
    open: OpenWorkspace,
    allow: &[WorkspacePermission],
    context: &Context,
) -> Result<WorkspaceInfo, Failure> {
    let opened = match client.change(open.clone()).await {
        Err(error) if is_wanting(&error) => {
            ask(client, &open, error, context).await?;
            client.change(open.clone()).await
        }
        opened => opened,
    };
    let is_undecided = match &opened {
        Ok(info) => !allow.is_empty() || !info.undecided_permissions.is_empty(),
        Err(error) => is_invalid(error),
    };
    if !is_undecided {
        return Ok(opened?);
    }
    let choice = match &opened {
        Ok(info) => ProjectChoice::of_workspace(info),
        Err(_) => ProjectChoice::of_request(&open),
    };
    let requests = permission_requests::requests(&open.project_root, &choice, context);
    if opened.is_err() && !permission_requests::is_outgrown(&requests) {
        return Ok(opened?);
    }
    let decisions = permission_requests::ask(&requests, allow, &open.project_root, context)?;
    if decisions.is_empty() {
        return Ok(opened?);
    }
    permission_requests::store(client, decisions, context).await?;
    Ok(client.change(open).await?)
}

/// True if the daemon refused a project because its configuration is invalid.
fn is_invalid(error: &CallError) -> bool {
    matches!(
        error,
        CallError::Refused(ControlError {
            code: ErrorCode::InvalidConfiguration,
            ..
        })
    )
}

/// True if the daemon refused a project because it names secrets that are not allowed.
fn is_wanting(error: &CallError) -> bool {
    matches!(
        error,
        CallError::Refused(ControlError {
            code: ErrorCode::SecretNotAllowed,
            ..
        })
    )
}

/// Asks for the secrets that a project names before a daemon runs in this terminal. Only a daemon writes state, so if
/// the user agrees, a background daemon is started to record the consent and stopped afterwards.
pub(super) async fn before_foreground(
    project_root: &Path,
    choice: &ProjectChoice,
    allow: &[WorkspacePermission],
    context: &Context,
) -> Result<(), Failure> {
    context.check_format()?;
    let wanted = wanted(project_root, choice, context);
    // If a daemon already runs, the start itself fails with that error.
    if daemon::attach(&context.state_root).await?.is_some() {
        return Ok(());
    }
    if wanted.is_empty() {
        return permissions_before_foreground(project_root, choice, allow, context).await;
    }
    let names: Vec<String> = wanted.keys().map(|name| format!("Secret/{name}")).collect();
    let refused = Failure::new(
        Exit::InvalidConfiguration,
        format!("the project is not allowed to use {}", names.join(", ")),
        "if you trust the project with it, allow it",
    );
    let agreed = agreed(&wanted, project_root, refused, context)?;
    let (mut client, _) = attach_or_start(context, false).await?;
    for allow in agreed {
        client.change(allow).await?;
    }
    // The configuration could not be read in full before.
    let requests = permission_requests::requests(project_root, choice, context);
    let decisions = permission_requests::ask(&requests, allow, project_root, context)?;
    permission_requests::store(&mut client, decisions, context).await?;
    shutdown::stop(client, None, context).await
}

async fn permissions_before_foreground(
    project_root: &Path,
    choice: &ProjectChoice,
    allow: &[WorkspacePermission],
    context: &Context,
) -> Result<(), Failure> {
    let requests = permission_requests::requests(project_root, choice, context);
    let decisions = permission_requests::ask(&requests, allow, project_root, context)?;
    if decisions.is_empty() {
        return Ok(());
    }
    let (mut client, _) = attach_or_start(context, false).await?;
    permission_requests::store(&mut client, decisions, context).await?;
    shutdown::stop(client, None, context).await
}

/// Asks for each secret that the project names and is not allowed yet. Returns if the user agrees to all; fails with the
/// command for each if there is no terminal.
async fn ask(
    client: &mut Client,
    open: &OpenWorkspace,
    refused: CallError,
    context: &Context,
) -> Result<(), Failure> {
    let project_root = open.project_root.as_path();
    let wanted = wanted(project_root, &ProjectChoice::of_request(open), context);
    for allow in agreed(&wanted, project_root, refused.into(), context)? {
        client.change(allow).await?;
    }
    Ok(())
}

/// Returns all wanted secrets if the user agrees, otherwise a failure. `refused` is the message if there is no
/// terminal.
fn agreed(
    wanted: &BTreeMap<SecretName, Vec<String>>,
    project_root: &Path,
    refused: Failure,
    context: &Context,
) -> Result<Vec<AllowSecret>, Failure> {
    let commands = wanted
        .keys()
        .map(|name| command(name, project_root, context));
    let commands = commands.collect::<Vec<_>>().join("; ");
    let is_asked = context.output.is_interactive() && std::io::stdin().is_terminal();
    if !is_asked || wanted.is_empty() {
        return Err(match commands.is_empty() {
            true => refused,
            false => Failure {
                hint: format!("if you trust the project with it: {commands}"),
                ..refused
            },
        });
    }
    let mut agreed = Vec::new();
    for (name, resources) in wanted {
        let who = resources.join(", ");
        let root = project_root.to_string_lossy();
        let question = format!(
            "The project {} requests Secret/{name}, for {}. Allow it?",
            text::printable(&root),
            text::printable(&who),
        );
        if !confirm::asked(context, &question)? {
            return Err(Failure::new(
                Exit::Cancelled,
                format!(
                    "the project is not allowed to use Secret/{name}, and cannot run without it"
                ),
                format!(
                    "to allow it later: {}",
                    command(name, project_root, context)
                ),
            ));
        }
        agreed.push(AllowSecret {
            name: name.clone(),
            project_root: project_root.to_owned(),
        });
    }
    Ok(agreed)
}

/// Command that allows a project to use a secret.
fn command(name: &SecretName, project_root: &Path, context: &Context) -> String {
    let root = text::shell_quoted(&project_root.to_string_lossy());
    let root = root.unwrap_or_else(|| "DIR".to_owned());
    let command = format!("secret allow {name} --project {root}");
    format!("`{}`", context.daemon_command(&command))
}

/// Secrets that a project names and may not use, with the resources that reference them.
fn wanted(
    project_root: &Path,
    choice: &ProjectChoice,
    context: &Context,
) -> BTreeMap<SecretName, Vec<String>> {
    let vault = context.vault();
    let project = project::identity(project_root);
    let secrets = SecretReader::new(&vault, &project);
    let loaded = choice
        .apply(Loader::new(&ProcessEnvironment))
        .with_secrets(&secrets)
        .load(project_root);
    let refused = loaded.secrets.refused().iter();
    let refused = refused.filter_map(|(name, resources)| {
        let name = SecretName::new(name).ok()?;
        Some((name, resources.iter().cloned().collect()))
    });
    refused.collect()
}
