//! `gdn config`: every effective setting of a project with its origin, and its resources without the
//! short form.

use clap::{Args, Subcommand};
use std::path::Path;

use goondan_config::{Diagnostics, Loader, Origin, Setting, SettingValue};
use serde_json::{Value, json};

use super::import::ImportArgs;
use super::migrate::MigrateArgs;
use super::offline_project::{ReadArgs, SwarmArg};
use super::reload::ReloadArgs;
use super::run::swarms;
use super::schema::SchemaArgs;
use super::types::TypesArgs;
use super::{import, migrate, reload, schema, types};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::style;
use crate::output::table::{Cell, Column, Table};
use crate::output::text;
use crate::schemas;

/// Show, reload and migrate a project's configuration
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show every effective setting, including defaults, and its origin
    #[command(after_help = "\
Examples:
  gdn config show
  gdn config show --json | jq '.settings[] | select(.origin.kind == \"environment\")'

Secrets and values from the environment are masked.")]
    Show(ConfigShowArgs),
    /// Print the resources of a project, with the short form expanded
    #[command(after_help = "\
Examples:
  gdn config expand
  gdn config expand > /tmp/project.yaml

Values are printed as they are written, secrets included.")]
    Expand(ConfigExpandArgs),
    Reload(ReloadArgs),
    Migrate(MigrateArgs),
    Import(ImportArgs),
    Schema(SchemaArgs),
    Types(TypesArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ConfigShowArgs {
    #[command(flatten)]
    project: ReadArgs,
    #[command(flatten)]
    swarm: SwarmArg,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigExpandArgs {
    #[command(flatten)]
    project: ReadArgs,
}

/// Replacement text for a secret.
const MASK: &str = "••••••";

/// Maximum display width of a value in the table; `--json` prints it in full.
const VALUE_COLUMNS: usize = 60;

pub(crate) async fn run(command: &ConfigCommand, context: &Context) -> Result<(), Failure> {
    match command {
        ConfigCommand::Reload(args) => reload::run(args, context).await,
        ConfigCommand::Migrate(args) => migrate::run(args, context),
        ConfigCommand::Import(args) => import::run(args, context),
        ConfigCommand::Schema(args) => schema::run(args, context),
        ConfigCommand::Types(args) => types::run(args, context),
        ConfigCommand::Show(args) => show(args, context),
        ConfigCommand::Expand(args) => {
            let read = |root: &Path, loader: Loader<'_>| expand(root, &loader, context);
            args.project.with_loader(context, read)
        }
    }
}

fn expand(root: &Path, loader: &Loader<'_>, context: &Context) -> Result<(), Failure> {
    let expanded = loader
        .expand(root)
        .map_err(|problems| invalid(root, &problems))?;
    context.output.object(
        schemas::CONFIG_EXPAND,
        &json!({"projectRoot": root, "resources": expanded.resources}),
    )?;
    context.output.data(expanded.yaml.trim_end())
}

fn invalid(root: &Path, problems: &Diagnostics) -> Failure {
    Failure::new(
        Exit::InvalidConfiguration,
        format!(
            "the configuration of {} has {}",
            root.display(),
            text::count(problems.as_slice().len(), "error")
        ),
        "list all problems: `gdn validate`",
    )
}

fn show(args: &ConfigShowArgs, context: &Context) -> Result<(), Failure> {
    let read = |root: &Path, loader: Loader<'_>| {
        let loader = args.swarm.apply(loader);
        show_settings(root, &loader, context)
    };
    args.project.with_loader(context, read)
}

fn show_settings(root: &Path, loader: &Loader<'_>, context: &Context) -> Result<(), Failure> {
    let settings = loader
        .effective(root)
        .map_err(|problems| invalid(root, &problems))?;
    let output = context.output;
    let bundle = loader.load(root).bundle.ok();
    let swarm = bundle.as_ref().and_then(|bundle| bundle.swarm.as_ref());
    let idle = bundle.as_ref().map(|bundle| bundle.idle_swarms.as_slice());
    let idle = idle.unwrap_or_default();
    output.object(
        schemas::CONFIG_SHOW,
        &json!({
            "projectRoot": root,
            "swarm": swarm,
            "idleSwarms": idle,
            "settings": settings.iter().map(setting_json).collect::<Vec<_>>(),
        }),
    )?;
    output.data(table(&settings).render(output.canvas()))?;
    if let Some(swarm) = swarm.filter(|_| !idle.is_empty()) {
        output.note(format!("Swarm: {}", swarms(swarm, idle)));
    }
    Ok(())
}

fn table(settings: &[Setting]) -> Table {
    let mut table = Table::new([
        Column::new("RESOURCE").cut(),
        Column::new("FIELD").cut(),
        Column::new("VALUE").cut(),
        Column::new("FROM").cut().below(1, "from"),
    ]);
    let mut last = "";
    for setting in settings {
        // The resource name is printed once, above its fields.
        let resource = if setting.resource == last {
            Cell::from("")
        } else {
            Cell::styled(&setting.resource, style::TITLE)
        };
        last = &setting.resource;
        let value = match &setting.value {
            SettingValue::Plain(value) => {
                Cell::from(text::fit(&text::one_line(&shown(value)), VALUE_COLUMNS))
            }
            SettingValue::Meaning(meaning) => Cell::styled(meaning, style::FAINT),
            SettingValue::Masked => Cell::from(MASK),
        };
        let origin = match &setting.origin {
            Origin::Default => Cell::styled("default", style::FAINT),
            other => Cell::from(origin_text(other)),
        };
        table.row([resource, setting.path.as_str().into(), value, origin]);
    }
    table
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn at(file: &Path, line: usize) -> String {
    format!("{}:{line}", file.display())
}

fn origin_text(origin: &Origin) -> String {
    match origin {
        Origin::Default => "default".to_owned(),
        Origin::File { file, line, .. } => at(file, *line),
        Origin::Environment {
            variable,
            file: None,
        } => format!("${variable}"),
        Origin::Environment {
            variable,
            file: Some((file, line)),
        } => format!("${variable} ({})", at(file, *line)),
        Origin::Secret { name, key } => format!("Secret/{name} {key}"),
    }
}

fn setting_json(setting: &Setting) -> Value {
    let (value, meaning, masked) = match &setting.value {
        SettingValue::Plain(value) => (value.clone(), None, false),
        SettingValue::Meaning(meaning) => (Value::Null, Some(*meaning), false),
        SettingValue::Masked => (Value::Null, None, true),
    };
    let origin = match &setting.origin {
        Origin::Default => json!({ "kind": "default" }),
        Origin::File { file, line, column } => {
            json!({ "kind": "file", "file": file, "line": line, "column": column })
        }
        Origin::Environment { variable, file } => json!({
            "kind": "environment",
            "variable": variable,
            "file": file.as_ref().map(|(file, _)| file),
            "line": file.as_ref().map(|(_, line)| line),
        }),
        Origin::Secret { name, key } => json!({ "kind": "secret", "name": name, "key": key }),
    };
    json!({
        "resource": setting.resource,
        "path": setting.path,
        "value": value,
        "meaning": meaning,
        "masked": masked,
        "origin": origin,
    })
}
