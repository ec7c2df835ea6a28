//! `gdn secret oauth …`: tokens of authorization servers.

use clap::{Args, Subcommand};
use goondan_protocol::control::{
    BeginLogin, FinishLogin, GrantInfo, GrantState, ListGrants, LoginBegun, RefreshGrant,
    RevokeGrant, ShowGrant,
};
use goondan_protocol::ids::{OAuthSubject, ResourceName};
use goondan_protocol::secret::SecretValue;

use super::confirm::confirm;
use crate::client::RequestTimeout;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::style;
use crate::output::table::{Cell, Column, Table};
use crate::output::text;
use crate::schemas;

mod loopback;

use self::loopback::{Loopback, state_of};

/// Maximum length of a pasted URL, in bytes.
const ADDRESS_BYTES_MAX: u64 = 16 * 1024;

/// Log in to authorization servers and manage their tokens
#[derive(Debug, Subcommand)]
pub(crate) enum OAuthCommand {
    /// Log in for an OAuthApp of the project; its tokens are then renewed automatically
    #[command(after_help = "\
Examples:
  gdn secret oauth login github          open the address in a browser of this machine
  gdn secret oauth login github --paste  the browser is on another machine: paste its final address
  gdn secret oauth login github --device  enter a code on another device, if the server supports it
  gdn secret oauth login crm --subject ada  for one of several people (`subjectMode: user`)

In goondan.yaml: apiKey: {valueFrom: {oauth: {app: OAuthApp/github}}}")]
    Login(LoginArgs),
    /// List the project's tokens, without their values
    #[command(after_help = "\
Examples:
  gdn secret oauth list
  gdn secret oauth list --all --json | jq -r '.grants[] | select(.state == \"needsAuth\") | .app'")]
    List(ListArgs),
    /// Show the state of an OAuthApp's tokens
    #[command(after_help = "\
Examples:
  gdn secret oauth show github")]
    Show(GrantArgs),
    /// Renew a token now
    #[command(after_help = "\
Examples:
  gdn secret oauth refresh github        processes that use it restart with the new one")]
    Refresh(GrantArgs),
    /// Revoke tokens at the server and delete them
    #[command(after_help = "\
Examples:
  gdn secret oauth revoke github
  gdn secret oauth revoke github --forget  delete them here, even if the server is unreachable")]
    Revoke(RevokeArgs),
}

/// Selects tokens.
#[derive(Debug, Args)]
pub(crate) struct GrantArgs {
    /// The OAuthApp
    #[arg(value_name = "APP")]
    app: ResourceName,
    /// Owner of the tokens, if the OAuthApp has `subjectMode: user`
    #[arg(long, value_name = "NAME")]
    subject: Option<OAuthSubject>,
}

#[derive(Debug, Args)]
pub(crate) struct LoginArgs {
    #[command(flatten)]
    grant: GrantArgs,
    /// Paste the URL that the browser ends at; for a browser on another machine
    #[arg(long, conflicts_with = "device")]
    paste: bool,
    /// Enter a code on another device
    #[arg(long)]
    device: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Include every workspace
    #[arg(long)]
    all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RevokeArgs {
    #[command(flatten)]
    grant: GrantArgs,
    /// Delete the tokens here even if the server cannot be reached
    #[arg(long)]
    forget: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
}

pub(crate) async fn run(command: OAuthCommand, context: &Context) -> Result<(), Failure> {
    match command {
        OAuthCommand::Login(args) => login(args, context).await,
        OAuthCommand::List(args) => list(&args, context).await,
        OAuthCommand::Show(args) => show(args, context).await,
        OAuthCommand::Refresh(args) => refresh(args, context).await,
        OAuthCommand::Revoke(args) => revoke(args, context).await,
    }
}

async fn login(args: LoginArgs, context: &Context) -> Result<(), Failure> {
    let LoginArgs {
        grant: GrantArgs { app, subject },
        paste,
        device,
    } = args;
    let (mut client, workspace) = context.open().await?;
    let listener = Loopback::bind(0).await?;
    let begun = client
        .change(BeginLogin {
            workspace_id: workspace.workspace_id.clone(),
            app,
            subject,
            port: Some(listener.port()),
            device,
        })
        .await?;
    let listener = match (&begun.redirect_uri, paste) {
        (Some(redirect_uri), false) => listener.for_redirect(redirect_uri).await?,
        _ => None,
    };
    let is_heard = begun.heard_by.is_some() && !paste;
    tell_begun(&begun, (listener.is_some(), is_heard), context)?;
    let callback = match (&begun.redirect_uri, &listener) {
        (None, _) => None,
        (Some(_), None) if is_heard => None,
        (Some(_), None) => Some(read_address().await?),
        (Some(redirect_uri), Some(listener)) => {
            let state = state_of(&begun.url).ok_or_else(|| {
                Failure::new(
                    Exit::Internal,
                    "the address of the login has no `state`",
                    "log in with `--paste`",
                )
            })?;
            Some(listener.wait_for(redirect_uri, &state).await?)
        }
    };
    let finish = FinishLogin {
        workspace_id: workspace.workspace_id,
        login_id: begun.login_id,
        callback: callback.map(SecretValue::new),
    };
    let info = client
        .watch(finish, RequestTimeout::Endless, &mut |_| {})
        .await?;
    context.output.object(schemas::OAUTH_SHOW, &info)?;
    let name = named(&info);
    context.output.data(format!("Logged in for {name}"))?;
    if !info.needed {
        context.output.note(
            "No resource of the project uses the token yet: `valueFrom: {oauth: {app: OAuthApp/…}}`",
        );
    }
    Ok(())
}

/// Prints the next step for the user.
fn tell_begun(
    begun: &LoginBegun,
    (is_heard_here, is_heard): (bool, bool),
    context: &Context,
) -> Result<(), Failure> {
    let output = context.output;
    output.object(schemas::OAUTH_LOGIN, begun)?;
    if let Some(issuer) = &begun.issuer {
        let issuer = text::printable(issuer);
        output.note(format!("Authorization server: {issuer}"));
    }
    if let Some(scope) = &begun.scope {
        let scope = text::printable(scope);
        output.note(format!("Requested scope: {scope}"));
    }
    let next = match (&begun.user_code, is_heard_here) {
        (Some(code), _) => format!("Open this address on any device, and enter {code}:"),
        (None, true) => "Open this address in a browser on this machine:".to_owned(),
        (None, false) => "Open this address in a browser, and consent:".to_owned(),
    };
    output.note(next);
    output.data(text::printable(&begun.url))?;
    if begun.user_code.is_none() && !is_heard_here && !is_heard {
        output.note(
            "Then paste the complete final address of the browser, even if it shows an error there:",
        );
    }
    Ok(())
}

/// Reads a line from stdin.
async fn read_address() -> Result<String, Failure> {
    use std::io::{BufRead as _, Read as _};
    let read = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        let stdin = std::io::stdin().lock();
        stdin.take(ADDRESS_BYTES_MAX).read_line(&mut line)?;
        std::io::Result::Ok(line)
    });
    let line = match read.await {
        Ok(Ok(line)) => line.trim().to_owned(),
        Ok(Err(_)) | Err(_) => String::new(),
    };
    if line.is_empty() {
        let hint = "paste the final address of the browser, or pass it on stdin";
        return Err(Failure::new(Exit::Usage, "no address given", hint));
    }
    Ok(line)
}

async fn list(args: &ListArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace_id) = context.open_scope(args.all).await?;
    let grants = client.query(ListGrants { workspace_id }).await?;
    let output = context.output;
    output.object(schemas::OAUTH_LIST, &serde_json::json!({"grants": grants}))?;
    if grants.is_empty() {
        return output
            .data("No OAuthApps. Define one as a document of `kind: OAuthApp` in goondan.yaml");
    }
    output.data(table(&grants).render(output.canvas()))?;
    for info in &grants {
        warn(info, context);
    }
    Ok(())
}

fn table(grants: &[GrantInfo]) -> Table {
    let mut table = Table::new([
        Column::new("APP").cut(),
        Column::new("SUBJECT").cut(),
        Column::new("STATE"),
        Column::new("ENDS").below(1, "ends"),
        Column::new("WORKSPACE").cut().below(2, "workspace"),
    ]);
    for info in grants {
        let paint = match info.state {
            GrantState::Active | GrantState::Refreshing => style::GOOD,
            GrantState::NeedsAuth => style::BAD,
            GrantState::None => style::WARN,
        };
        table.row([
            Cell::from(&info.app),
            Cell::from(&info.subject),
            Cell::styled(words(info.state), paint),
            info.expires_at.map_or_else(String::new, text::clock).into(),
            Cell::from(&info.workspace_id),
        ]);
    }
    table
}

fn words(state: GrantState) -> &'static str {
    match state {
        GrantState::None => "no login",
        GrantState::Active => "active",
        GrantState::Refreshing => "refreshing",
        GrantState::NeedsAuth => "needs login",
    }
}

fn named(info: &GrantInfo) -> String {
    if info.subject.is_global() {
        format!("OAuthApp/{}", info.app)
    } else {
        format!("OAuthApp/{} of {}", info.app, info.subject)
    }
}

/// Warns if a grant needs an action by the user.
fn warn(info: &GrantInfo, context: &Context) {
    let output = context.output;
    let warning = output.err.paint(style::WARN, "warning:");
    if let Some(problem) = &info.problem {
        let problem = text::printable(problem);
        output.note(format!("{warning} {}: {problem}", named(info)));
    }
    let is_missing = info.needed && info.state == GrantState::None;
    if is_missing || info.state == GrantState::NeedsAuth {
        let subject = match info.subject.is_global() {
            true => String::new(),
            false => format!(" --subject {}", info.subject),
        };
        let command = context.command(&format!("secret oauth login {}{subject}", info.app));
        output.note(format!("Log in for {}: {command}", named(info)));
    }
}

async fn show(args: GrantArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let info = client
        .query(ShowGrant {
            workspace_id: workspace.workspace_id,
            app: args.app,
            subject: args.subject,
        })
        .await?;
    tell(&info, context)
}

fn tell(info: &GrantInfo, context: &Context) -> Result<(), Failure> {
    let output = context.output;
    output.object(schemas::OAUTH_SHOW, info)?;
    output.data(format!("{}: {}", named(info), words(info.state)))?;
    let line = |name: &str, at: Option<goondan_protocol::time::Timestamp>| {
        at.map(|at| format!("  {name} {}", text::clock(at)))
    };
    let lines = [
        line("given  ", info.obtained_at),
        line("renewed", info.refresh_at.filter(|_| info.renewable)),
        line("ends   ", info.expires_at),
        info.scope
            .as_ref()
            .map(|scope| format!("  allows  {}", text::printable(scope))),
        info.wider_scope.as_ref().map(|scope| {
            format!(
                "  wanted  {}; the next login requests it",
                text::printable(scope)
            )
        }),
    ];
    for line in lines.into_iter().flatten() {
        output.data(line)?;
    }
    warn(info, context);
    Ok(())
}

async fn refresh(args: GrantArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let info = client
        .change(RefreshGrant {
            workspace_id: workspace.workspace_id,
            app: args.app,
            subject: args.subject,
        })
        .await?;
    tell(&info, context)
}

async fn revoke(args: RevokeArgs, context: &Context) -> Result<(), Failure> {
    let RevokeArgs {
        grant: GrantArgs { app, subject },
        forget,
        yes,
    } = args;
    let (mut client, workspace) = context.open().await?;
    if !yes {
        let of = subject
            .as_ref()
            .map_or_else(String::new, |subject| format!(" --subject {subject}"));
        let forgets = if forget { " --forget" } else { "" };
        let command = format!("secret oauth revoke {app}{of}{forgets} --yes");
        let question =
            format!("Revoke the tokens of OAuthApp/{app}? Processes that use them stop.");
        confirm(context, &question, &command)?;
    }
    let revoked = client
        .change(RevokeGrant {
            workspace_id: workspace.workspace_id,
            app,
            subject,
            forget,
        })
        .await?;
    let output = context.output;
    output.object(schemas::OAUTH_REVOKE, &revoked)?;
    let app = &revoked.app;
    if revoked.at_server {
        return output.data(format!("Revoked the tokens of OAuthApp/{app}"));
    }
    output.data(format!("Deleted the tokens of OAuthApp/{app}"))?;
    if let Some(problem) = &revoked.problem {
        let warning = output.err.paint(style::WARN, "warning:");
        let problem = text::printable(problem);
        output.note(format!(
            "{warning} they stay valid until they expire: {problem}"
        ));
    }
    Ok(())
}
