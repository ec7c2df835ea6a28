//! `gdn package …`: the packages whose resources a project refers to (`PKG-1` to `PKG-3`).

use clap::{Args, Subcommand};
use goondan_packages::{LOCK_FILE, Store, tree_digest};
use serde::Serialize;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::style;
use crate::output::table::{Cell, Column, Table};
use crate::output::text;
use crate::schemas;

mod fetch;
mod install;
mod manifest;
mod plan;

use install::{Installed, Mode};
use plan::Plan;

/// Use the tools, extensions and connectors of others
#[derive(Debug, Subcommand)]
pub(crate) enum PackageCommand {
    /// Require a package, and install it
    #[command(after_help = "\
Examples:
  gdn package add ../our-tools             a folder, which is used as it is
  gdn package add vendor/tools-1.2.0.tgz   an archive

What it has is referred to in goondan.yaml: {kind: Tool, name: NAME, package: \"PACKAGE\"}")]
    Add(PackageAddArgs),
    /// Install what the project requires, as the lockfile says it
    #[command(after_help = "\
Examples:
  gdn package install                      after a clone, or after an edit of goondan.yaml
  gdn package install --frozen-lockfile    in a workflow: fails if the lockfile does not fit")]
    Install(PackageInstallArgs),
    /// Require a package no more
    #[command(after_help = "\
Examples:
  gdn package remove @acme/tools")]
    Remove(PackageRemoveArgs),
    /// List the packages of the project, and whether each is there as it was locked
    #[command(after_help = "\
Examples:
  gdn package list
  gdn package list --json | jq -r '.packages[] | select(.state != \"installed\") | .name'")]
    List,
}

#[derive(Debug, Args)]
pub(crate) struct PackageAddArgs {
    /// The packages: paths of folders or of archives
    #[arg(value_name = "PACKAGE", required = true)]
    packages: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PackageInstallArgs {
    /// Fail rather than change the lockfile
    #[arg(long)]
    frozen_lockfile: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PackageRemoveArgs {
    /// The packages, by name
    #[arg(value_name = "NAME", required = true)]
    packages: Vec<String>,
}

pub(crate) async fn run(command: PackageCommand, context: &Context) -> Result<(), Failure> {
    match command {
        PackageCommand::Add(args) => add(&args, context).await,
        PackageCommand::Install(args) => install(&args, context).await,
        PackageCommand::Remove(args) => remove(&args, context).await,
        PackageCommand::List => list(context),
    }
}

async fn install(args: &PackageInstallArgs, context: &Context) -> Result<(), Failure> {
    let plan = Plan::read(context.project()?)?;
    let mode = if args.frozen_lockfile {
        Mode::Frozen
    } else {
        Mode::Locked
    };
    let installed = install::install(&plan, mode, context).await?;
    plan.write_lock(&installed.lock)?;
    told(&installed, &plan, schemas::PACKAGE_INSTALL, context)
}

async fn add(args: &PackageAddArgs, context: &Context) -> Result<(), Failure> {
    let mut plan = Plan::read(context.project()?)?;
    let mut added = Vec::with_capacity(args.packages.len());
    for package in &args.packages {
        added.push(fetch::find(package, &plan, context).await?);
    }
    let mut text = plan.manifest.clone();
    for (name, requirement) in added {
        text = manifest::with(&text, name.as_str(), requirement.as_str())?;
        plan.requires.insert(name, requirement);
    }
    let installed = install::install(&plan, Mode::Anew, context).await?;
    // The lockfile first: what is locked and not required yet hinders nothing.
    plan.write_lock(&installed.lock)?;
    plan.write_manifest(&text)?;
    told(&installed, &plan, schemas::PACKAGE_ADD, context)
}

async fn remove(args: &PackageRemoveArgs, context: &Context) -> Result<(), Failure> {
    let mut plan = Plan::read(context.project()?)?;
    let mut text = plan.manifest.clone();
    for name in &args.packages {
        if plan.requires.remove(name.as_str()).is_none() {
            return Err(Failure::new(
                Exit::NotFound,
                format!("the project requires no package `{name}`"),
                format!(
                    "see what it requires: `{}`",
                    context.command("package list")
                ),
            ));
        }
        text = manifest::without(&text, name)?;
    }
    let installed = install::install(&plan, Mode::Locked, context).await?;
    plan.write_manifest(&text)?;
    plan.write_lock(&installed.lock)?;
    told(&installed, &plan, schemas::PACKAGE_REMOVE, context)
}

/// What `gdn package install` and its like have to tell.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Told<'t> {
    /// How many packages the project uses.
    packages: usize,
    changes: &'t [plan::Change],
}

fn told(
    installed: &Installed,
    plan: &Plan,
    schema: &str,
    context: &Context,
) -> Result<(), Failure> {
    let changes = plan.changes(&installed.lock);
    let packages = installed.lock.packages().len() + installed.folders;
    let output = context.output;
    output.object(
        schema,
        &Told {
            packages,
            changes: &changes,
        },
    )?;
    let mut lines: Vec<String> = changes.iter().map(ToString::to_string).collect();
    let count = text::count(packages as u64, "package");
    lines.push(match installed.stored {
        0 => format!("{count}: everything is installed"),
        stored => format!("{count}, {stored} installed now"),
    });
    output.data(lines.join("\n"))
}

/// One line of `gdn package list`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    name: String,
    version: Option<String>,
    /// What the project itself requires of it.
    required: Option<String>,
    from: String,
    state: &'static str,
}

fn list(context: &Context) -> Result<(), Failure> {
    let plan = Plan::read(context.project()?)?;
    let folders = plan.folders()?;
    let store = Store::of(&context.state_root);
    let required = |name: &str| plan.requires.get(name).map(ToString::to_string);
    let mut listed: Vec<Listed> = Vec::new();
    for (name, folder) in &folders {
        listed.push(Listed {
            name: name.to_string(),
            version: Some(folder.version.to_string()),
            required: required(name.as_str()),
            from: folder.dir.display().to_string(),
            state: "folder",
        });
    }
    for (name, locked) in plan.lock.packages() {
        let dir = store.tree(&locked.tree);
        listed.push(Listed {
            name: name.to_string(),
            version: Some(locked.version.to_string()),
            required: required(name.as_str()),
            from: locked.resolved.clone(),
            state: match tree_digest(&dir) {
                Ok(digest) if digest == locked.tree => "installed",
                Ok(_) => "changed",
                Err(_) if dir.is_dir() => "changed",
                Err(_) => "missing",
            },
        });
    }
    let missing = plan
        .requires
        .iter()
        .filter(|(name, _)| !folders.contains_key(*name) && plan.lock.get(name).is_none());
    for (name, requirement) in missing {
        listed.push(Listed {
            name: name.to_string(),
            version: None,
            required: Some(requirement.to_string()),
            from: String::new(),
            state: "not locked",
        });
    }
    listed.sort_by(|one, other| one.name.cmp(&other.name));
    print_list(&listed, &plan, context)
}

fn print_list(listed: &[Listed], plan: &Plan, context: &Context) -> Result<(), Failure> {
    let output = context.output;
    output.object(
        schemas::PACKAGE_LIST,
        &serde_json::json!({"packages": listed}),
    )?;
    if listed.is_empty() {
        return output.data("The project requires no packages.");
    }
    let mut table = Table::new([
        Column::new("PACKAGE"),
        Column::new("VERSION"),
        Column::new("STATE"),
        Column::new("REQUIRED").below(1, "required"),
        Column::new("FROM").below(2, ""),
    ]);
    for it in listed {
        let style = match it.state {
            "installed" | "folder" => style::GOOD,
            _ => style::BAD,
        };
        table.row([
            text::printable(&it.name).into(),
            it.version.clone().unwrap_or_default().into(),
            Cell::styled(it.state, style),
            text::printable(it.required.as_deref().unwrap_or_default()).into(),
            text::one_line(&it.from).into(),
        ]);
    }
    output.data(table.render(output.canvas()).trim_end())?;
    let is_whole = |it: &Listed| matches!(it.state, "installed" | "folder");
    if !listed.iter().all(is_whole) || plan.lacks()?.is_some() {
        output.note(format!(
            "{LOCK_FILE} and what is installed do not fit: run `{}`",
            context.command("package install")
        ));
    }
    Ok(())
}
