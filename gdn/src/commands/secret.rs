//! `gdn secret …`: manages secrets.

use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::io::{IsTerminal as _, Read as _};
use std::path::PathBuf;

use goondan_protocol::control::{
    AllowSecret, ChangeKind, DenySecret, ListSecrets, RemoveSecret, RotateSecrets, SecretChanged,
    SecretConsentChanged, SecretList, SetSecret,
};
use goondan_protocol::ids::{SecretKey, SecretName};
use goondan_protocol::limits::MAX_SECRET_VALUE_BYTES;
use goondan_protocol::secret::SecretValue;

use super::attach::attach_or_start;
use super::confirm::confirm;
use super::oauth::OAuthCommand;
use super::{oauth, reload};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::style;
use crate::output::table::{Cell, Column, Table};
use crate::output::text;
use crate::project;
use crate::schemas;

/// Manage secrets
#[derive(Debug, Subcommand)]
pub(crate) enum SecretCommand {
    /// Store an encrypted value, and restart what uses it
    #[command(after_help = "\
Examples:
  gdn secret set github token            asks for the value without showing it
  gdn secret set github token --for .    and allow the project in this directory to use it
  gdn secret set github token < file     from a file; a trailing newline is removed
  pass show github | gdn secret set github token

In goondan.yaml: valueFrom: {secretRef: {ref: Secret/github, key: token}}")]
    Set(SecretSetArgs),
    /// Allow a project to use a secret
    #[command(after_help = "\
Examples:
  gdn secret allow github                      the project in this directory
  gdn secret allow github --project ~/bots/pr  another one")]
    Allow(SecretAllowArgs),
    /// Revoke a project's access to a secret, and stop what runs with it
    #[command(after_help = "\
Examples:
  gdn secret deny github                       the project in this directory
  gdn secret deny github --workspace ID        a deleted project; `gdn secret list` shows the id
  gdn secret deny github --all                 every project")]
    Deny(SecretDenyArgs),
    /// List secrets, without their values, and the projects that may use them
    #[command(after_help = "\
Examples:
  gdn secret list
  gdn secret list --json | jq -r .identity.recipient   the recipient for `sops --age`")]
    List,
    /// Remove a secret, or one entry of it
    #[command(after_help = "\
Examples:
  gdn secret remove github token         one entry
  gdn secret remove github               the whole secret, even if unreadable")]
    Remove(SecretRemoveArgs),
    /// Re-encrypt all secrets and tokens for a new identity
    #[command(after_help = "\
Examples:
  gdn secret rotate                      after the identity leaked, or a person left

Values do not change: anyone who could read them still knows them. If the identity is a credential of the service or a
variable, first put the new one there, restart the daemon, then run this.")]
    Rotate(SecretRotateArgs),
    #[command(subcommand, name = "oauth")]
    OAuth(OAuthCommand),
}

#[derive(Debug, Args)]
pub(crate) struct SecretRotateArgs {
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SecretSetArgs {
    /// The secret; created if it does not exist
    #[arg(value_name = "NAME")]
    name: SecretName,
    /// The entry
    #[arg(value_name = "KEY")]
    key: SecretKey,
    /// Allow the project in this directory to use the secret
    #[arg(long = "for", value_name = "DIR")]
    allow_for: Option<PathBuf>,
    /// Refused, because command lines are visible to every process and kept in the shell's history
    #[arg(value_name = "VALUE", hide = true, num_args = 0..)]
    value: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct SecretAllowArgs {
    /// The secret
    #[arg(value_name = "NAME")]
    name: SecretName,
}

#[derive(Debug, Args)]
pub(crate) struct SecretDenyArgs {
    /// The secret
    #[arg(value_name = "NAME")]
    name: SecretName,
    /// Revoke access for all projects
    #[arg(long)]
    all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SecretRemoveArgs {
    /// The secret
    #[arg(value_name = "NAME")]
    name: SecretName,
    /// Only this entry; removing the last entry removes the secret
    #[arg(value_name = "KEY")]
    key: Option<SecretKey>,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
}

pub(crate) async fn run(command: SecretCommand, context: &Context) -> Result<(), Failure> {
    match command {
        SecretCommand::Set(args) => set(args, context).await,
        SecretCommand::Allow(args) => allow(args, context).await,
        SecretCommand::Deny(args) => deny(args, context).await,
        SecretCommand::List => list(context).await,
        SecretCommand::Remove(args) => remove(args, context).await,
        SecretCommand::Rotate(args) => rotate(&args, context).await,
        SecretCommand::OAuth(args) => oauth::run(args, context).await,
    }
}

async fn set(args: SecretSetArgs, context: &Context) -> Result<(), Failure> {
    let SecretSetArgs {
        name,
        key,
        allow_for,
        value,
    } = args;
    let allow_for = allow_for.map(|dir| project::find(Some(&dir))).transpose()?;
    if !value.is_empty() {
        let command = context.daemon_command(&format!("secret set {name} {key}"));
        return Err(Failure::new(
            Exit::Usage,
            "secrets cannot be passed as arguments: other processes could see them, and the shell stores them in its history",
            format!("run `{command}` and type the value, or pass it on stdin: `{command} < FILE`"),
        ));
    }
    let value = read_value(
        &format!("Value of Secret/{name} {key} (not shown): "),
        &context.daemon_command(&format!("secret set {name} {key} < FILE")),
        context,
    )?;
    // The daemon may not run yet, because the project needs this secret first.
    let (mut client, _) = attach_or_start(context, false).await?;
    let value = SecretValue::new(value);
    let set = SetSecret {
        name,
        key,
        value,
        allow_for,
    };
    let changed = client.change(set).await?;
    context.output.object(schemas::SECRET_SET, &changed)?;
    tell(&changed, context)
}

/// Reads a value from stdin or from the terminal. `pipe` is the command that passes it on stdin.
pub(super) fn read_value(question: &str, pipe: &str, context: &Context) -> Result<String, Failure> {
    let unreadable = |error: &std::io::Error| {
        Failure::new(
            Exit::Usage,
            "cannot read the value",
            "pass UTF-8 text on stdin, or type it on a terminal",
        )
        .caused_by(Some(error))
    };
    let value = if std::io::stdin().is_terminal() {
        if context.output.is_json() {
            return Err(Failure::new(
                Exit::Usage,
                "with `--json`, the value cannot be typed",
                format!("pass it on stdin: `{pipe}`"),
            ));
        }
        rpassword::prompt_password(question).map_err(|error| unreadable(&error))?
    } else {
        let most = u64::try_from(MAX_SECRET_VALUE_BYTES).unwrap_or(u64::MAX);
        let mut value = String::new();
        // Two bytes more than allowed: a newline, and one byte to detect that the value is too long.
        let stdin = std::io::stdin().lock();
        let read = stdin
            .take(most.saturating_add(2))
            .read_to_string(&mut value);
        read.map_err(|error| unreadable(&error))?;
        if value.ends_with('\n') {
            value.pop();
        }
        value
    };
    let problem = match value.len() {
        0 => "the value is empty".to_owned(),
        length if length > MAX_SECRET_VALUE_BYTES => {
            format!("the value has more than {MAX_SECRET_VALUE_BYTES} bytes")
        }
        _ => return Ok(value),
    };
    let hint = "pass the value on stdin, or type it on a terminal; nothing was changed";
    Err(Failure::new(Exit::Usage, problem, hint))
}

async fn allow(args: SecretAllowArgs, context: &Context) -> Result<(), Failure> {
    let SecretAllowArgs { name } = args;
    let (mut client, project_root) = if context.is_by_id() {
        let (client, workspace) = context.open().await?;
        (client, workspace.project_root)
    } else {
        let project_root = context.project()?;
        // The daemon may not run yet, because the project needs this consent first.
        (attach_or_start(context, false).await?.0, project_root)
    };
    let allow = AllowSecret { name, project_root };
    let changed = client.change(allow).await?;
    context.output.object(schemas::SECRET_ALLOW, &changed)?;
    tell_consent(&changed, "Allowed", "It was already allowed.", context)
}

async fn deny(args: SecretDenyArgs, context: &Context) -> Result<(), Failure> {
    let SecretDenyArgs { name, all } = args;
    let workspace_id = context.workspace_id().filter(|_| !all);
    let project_root = match (&workspace_id, all) {
        (None, false) => Some(context.project()?),
        _ => None,
    };
    let (mut client, _) = attach_or_start(context, false).await?;
    let deny = DenySecret {
        name,
        project_root,
        workspace_id,
    };
    let changed = client.change(deny).await?;
    context.output.object(schemas::SECRET_DENY, &changed)?;
    tell_consent(&changed, "Denied", "It was not allowed.", context)
}

/// Prints who may now use the secret, or no longer, and the effect.
fn tell_consent(
    changed: &SecretConsentChanged,
    done: &str,
    nothing: &str,
    context: &Context,
) -> Result<(), Failure> {
    let output = context.output;
    for consent in &changed.changed {
        let root = consent.project_root.to_string_lossy();
        let root = text::printable(&root);
        output.data(format!("{done} Secret/{} to {root}", changed.name))?;
    }
    if changed.changed.is_empty() {
        output.note(nothing);
    }
    for workspace in &changed.workspaces {
        output.data(reload::reload_text(workspace))?;
    }
    for workspace in &changed.workspaces {
        reload::warn(workspace, context);
    }
    Ok(())
}

async fn remove(args: SecretRemoveArgs, context: &Context) -> Result<(), Failure> {
    let SecretRemoveArgs { name, key, yes } = args;
    let mut client = context.connect().await?;
    if !yes {
        let what = match &key {
            Some(key) => format!("Secret/{name} {key}"),
            None => format!("Secret/{name} with all its entries"),
        };
        let words = key
            .as_ref()
            .map_or_else(String::new, |key| format!(" {key}"));
        let command = format!("secret remove {name}{words} --yes");
        confirm(context, &format!("Remove {what}?"), &command)?;
    }
    let changed = client.change(RemoveSecret { name, key }).await?;
    context.output.object(schemas::SECRET_REMOVE, &changed)?;
    tell(&changed, context)
}

fn tell(changed: &SecretChanged, context: &Context) -> Result<(), Failure> {
    let output = context.output;
    let SecretChanged { name, key, .. } = changed;
    let entry = key
        .as_ref()
        .map_or_else(String::new, |key| format!(" {key}"));
    let done = match changed.change {
        ChangeKind::Added => "Added",
        ChangeKind::Changed => "Changed",
        ChangeKind::Removed => "Removed",
    };
    output.data(format!("{done} Secret/{name}{entry}"))?;
    for workspace in &changed.workspaces {
        output.data(reload::reload_text(workspace))?;
    }
    if let Some(path) = &changed.made_identity {
        output.note(format!(
            "{} created the identity {}: without it, no secret can be read. Keep a copy in a safe place.",
            output.err.paint(style::WARN, "note:"),
            path.display()
        ));
    }
    for workspace in &changed.workspaces {
        reload::warn(workspace, context);
    }
    if changed.workspaces.is_empty() {
        output.note("No running workspace uses it.");
    }
    if let Some(allowed) = &changed.allowed {
        let root = allowed.project_root.to_string_lossy();
        output.note(format!("{} can use it.", text::printable(&root)));
    } else if changed.change == ChangeKind::Added {
        let command = context.daemon_command(&format!("secret allow {name} --project DIR"));
        output.note(format!("To allow a project to use it: {command}"));
    }
    Ok(())
}

async fn rotate(args: &SecretRotateArgs, context: &Context) -> Result<(), Failure> {
    let mut client = context.connect().await?;
    if !args.yes {
        let question = "Re-encrypt all secrets and tokens for a new identity?";
        confirm(context, question, "secret rotate --yes")?;
    }
    let rotated = client.change(RotateSecrets {}).await?;
    let output = context.output;
    output.object(schemas::SECRET_ROTATE, &rotated)?;
    let documents = text::count(rotated.documents, "document");
    let recipient = &rotated.recipient;
    output.data(format!("Re-encrypted {documents} for {recipient}"))?;
    let warning = output.err.paint(style::WARN, "warning:");
    for problem in &rotated.problems {
        output.note(format!("{warning} {}", text::printable(problem)));
    }
    match (&rotated.made_identity, rotated.former_kept) {
        (Some(path), false) => output.note(format!(
            "The identity in {} was replaced. Keep a copy in a safe place.",
            path.display()
        )),
        (Some(path), true) => output.note(format!(
            "The old identity stays in {}, because not everything could be re-encrypted.",
            path.display()
        )),
        (None, _) => {
            output.note("The identity is provided externally: remove the old ones there.");
        }
    }
    Ok(())
}

async fn list(context: &Context) -> Result<(), Failure> {
    let mut client = context.connect().await?;
    let list = client.query(ListSecrets {}).await?;
    let output = context.output;
    output.object(schemas::SECRET_LIST, &list)?;
    if list.secrets.is_empty() {
        let hint = context.daemon_command("secret set NAME KEY");
        output.data(format!("No secrets. Store one: {hint}"))?;
    } else {
        output.data(table(&list).render(output.canvas()))?;
    }
    if !list.consents.is_empty() {
        output.data("")?;
        output.data(consents(&list).render(output.canvas()))?;
    }
    if let Some(identity) = &list.identity {
        output.note(format!(
            "Encrypted for {}, identity in {}",
            identity.recipient, identity.origin
        ));
    }
    let of_secrets = list.secrets.iter().filter_map(|secret| {
        let problem = secret.problem.as_ref()?;
        Some(format!("Secret/{}: {problem}", secret.name))
    });
    for problem in list.problem.iter().cloned().chain(of_secrets) {
        let warning = output.err.paint(style::WARN, "warning:");
        output.note(format!("{warning} {}", text::printable(&problem)));
    }
    Ok(())
}

/// Table of the projects that may use each secret.
fn consents(list: &SecretList) -> Table {
    let mut table = Table::new([
        Column::new("SECRET").cut(),
        Column::new("ALLOWED TO").cut(),
        Column::new("WORKSPACE").cut().below(2, "workspace"),
        Column::new("SINCE").below(1, "since"),
    ]);
    for consent in &list.consents {
        let root = consent.project_root.to_string_lossy();
        table.row([
            Cell::from(&consent.secret),
            text::one_line(&root).into(),
            Cell::from(&consent.workspace_id),
            text::clock(consent.allowed_at).into(),
        ]);
    }
    table
}

fn table(list: &SecretList) -> Table {
    let mut table = Table::new([
        Column::new("SECRET").cut(),
        Column::new("KEYS").cut(),
        Column::new("CHANGED").below(1, "changed"),
        Column::new("STATE"),
    ]);
    for secret in &list.secrets {
        let state = match secret.problem {
            Some(_) => Cell::styled("unreadable", style::BAD),
            None => Cell::styled("good", style::GOOD),
        };
        let changed = secret.changed_at.map_or_else(String::new, text::clock);
        table.row([
            Cell::from(&secret.name),
            Cell::from(text::one_line(&secret.keys.join(", "))),
            changed.into(),
            state,
        ]);
    }
    table
}
