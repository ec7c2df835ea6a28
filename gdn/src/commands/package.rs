//! `gdn package …`: packages that provide resources to a project (`PKG-1` to `PKG-3`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use goondan_packages::limits::{PRUNE_AGE_DAYS, RELEASE_AGE_DAYS};
use goondan_packages::{LOCK_FILE, PackageName, Requirement, Store, tree_digest};
use goondan_protocol::permissions::Permissions;
use serde::Serialize;

use super::names;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::style;
use crate::output::table::{Cell, Column, Table};
use crate::output::text;
use crate::schemas;

mod audit;
mod choose;
mod consent;
mod contents;
mod fetch;
mod find;
mod flow;
mod git;
mod install;
mod manifest;
mod pack;
mod plan;
mod prune;
mod publish;
mod registry;
mod signatures;
mod web;
mod why;

use choose::ResolutionRules;
use consent::Consent;
use fetch::Fetcher;
use install::{InstallResult, Mode};
use plan::{Folder, ProjectPackages};

/// Manage packages of tools, extensions and connectors
#[derive(Debug, Subcommand)]
pub(crate) enum PackageCommand {
    /// Add a package to the project and install it
    #[command(after_help = "\
Examples:
  gdn package add @acme/tools              the newest version, and compatible ones
  gdn package add @acme/tools@~1.2         a range of versions
  gdn package add ../our-tools             a folder, which is used in place
  gdn package add vendor/tools-1.2.0.tgz   an archive, local or at a URL
  gdn package add git+https://example.org/tools.git#v1:packages/tools
                                           a folder of a repository, at a branch, tag or commit

Refer to its resources in goondan.yaml: {kind: Tool, name: NAME, package: \"PACKAGE\"}")]
    Add(PackageAddArgs),
    /// Install the project's packages according to the lockfile
    #[command(after_help = "\
Examples:
  gdn package install                      after a clone, or after an edit of goondan.yaml
  gdn package install --frozen-lockfile    in CI: fails if the lockfile does not match")]
    Install(PackageInstallArgs),
    /// Update to the newest versions that goondan.yaml allows
    #[command(after_help = "\
Examples:
  gdn package update                       all packages
  gdn package update @acme/tools           only this one; all others stay locked")]
    Update(PackageUpdateArgs),
    /// Remove a package from the project
    #[command(after_help = "\
Examples:
  gdn package remove @acme/tools")]
    Remove(PackageRemoveArgs),
    /// List the project's packages and their state
    #[command(after_help = "\
Examples:
  gdn package list
  gdn package list --json | jq -r '.packages[] | select(.state != \"installed\") | .name'")]
    List,
    /// Explain why the project depends on a package
    #[command(after_help = "\
Examples:
  gdn package why @acme/words")]
    Why(PackageWhyArgs),
    /// Remove unused packages from the store
    #[command(after_help = "\
Examples:
  gdn package prune --dry-run              only list the packages
  gdn package prune --min-age 0            also recently installed packages")]
    Prune(PackagePruneArgs),
    /// Create an archive of the project
    #[command(after_help = "\
Examples:
  gdn package pack --dry-run               only list the contents
  gdn package pack --output words.tgz

Excludes the files in `.goondanignore` or, without it, in `.gitignore`. Files that contain secrets are refused.")]
    Pack(PackagePackArgs),
    /// Publish the project to its registry
    #[command(after_help = "\
Examples:
  gdn package publish --dry-run            only list the contents
  gdn package publish --tag next --yes")]
    Publish(PackagePublishArgs),
    /// Check the project's packages for known advisories
    #[command(after_help = "\
Examples:
  gdn package audit                        exits with 16 if there are advisories
  gdn package audit --json | jq -r '.advisories[].url'")]
    Audit,
}

#[derive(Debug, Args)]
pub(crate) struct PackagePruneArgs {
    /// Minimum days that a package has been in the store before it is removed
    #[arg(long, value_name = "DAYS", default_value_t = PRUNE_AGE_DAYS)]
    min_age: u32,
    /// Only show what would be removed
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PackagePackArgs {
    /// Archive file [default: NAME-VERSION.tgz in this directory]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Only show the contents
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PackagePublishArgs {
    /// Tag of the version in the registry
    #[arg(long, value_name = "TAG", default_value = "latest")]
    tag: String,
    /// Only show what would be published
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReleaseAgeArgs {
    /// Minimum days that a version has been in its registry before it is chosen
    #[arg(long, value_name = "DAYS", default_value_t = RELEASE_AGE_DAYS)]
    min_release_age: u32,
}

impl ReleaseAgeArgs {
    fn rules(&self) -> ResolutionRules {
        ResolutionRules {
            min_age_days: self.min_release_age,
            only: None,
        }
    }

    /// Builds a command line with these arguments.
    fn on(&self, command: &str, args: &[String]) -> String {
        let quoted = |text: &String| {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "@/._-^~:+#=".contains(c);
            if text.chars().all(is_plain) {
                text.clone()
            } else {
                format!("'{}'", text.replace('\'', "'\\''"))
            }
        };
        let mut words = vec![command.to_owned()];
        words.extend(args.iter().map(quoted));
        if self.min_release_age != RELEASE_AGE_DAYS {
            words.push(format!("--min-release-age {}", self.min_release_age));
        }
        words.join(" ")
    }
}

/// Consent to permissions.
#[derive(Debug, Args)]
pub(crate) struct GrantArgs {
    /// Grant the permissions that packages request, without asking
    #[arg(long)]
    grant: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PackageAddArgs {
    /// Packages: names in a registry with optional ranges or tags, paths of folders, or archives
    #[arg(value_name = "PACKAGE", required = true)]
    packages: Vec<String>,
    /// Require exactly the selected version, instead of compatible ones
    #[arg(long, short = 'E')]
    exact: bool,
    /// Has no effect, because every dependency is one of the project
    #[arg(long, short = 'D', hide = true)]
    dev: bool,
    #[command(flatten)]
    age: ReleaseAgeArgs,
    #[command(flatten)]
    grant: GrantArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PackageUpdateArgs {
    /// Packages to update, by name [default: all]
    #[arg(value_name = "NAME")]
    packages: Vec<String>,
    #[command(flatten)]
    age: ReleaseAgeArgs,
    #[command(flatten)]
    grant: GrantArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PackageWhyArgs {
    /// The package, by name
    #[arg(value_name = "NAME")]
    package: String,
}

#[derive(Debug, Args)]
pub(crate) struct PackageInstallArgs {
    /// Fail if the lockfile would change
    #[arg(long)]
    frozen_lockfile: bool,
    #[command(flatten)]
    age: ReleaseAgeArgs,
    #[command(flatten)]
    grant: GrantArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PackageRemoveArgs {
    /// The packages, by name
    #[arg(value_name = "NAME", required = true)]
    packages: Vec<String>,
    #[command(flatten)]
    age: ReleaseAgeArgs,
    #[command(flatten)]
    grant: GrantArgs,
}

pub(crate) async fn run(command: PackageCommand, context: &Context) -> Result<(), Failure> {
    match command {
        PackageCommand::Add(args) => add(&args, context).await,
        PackageCommand::Install(args) => install(&args, context).await,
        PackageCommand::Update(args) => update(&args, context).await,
        PackageCommand::Remove(args) => remove(&args, context).await,
        PackageCommand::List => list(context),
        PackageCommand::Why(args) => why::why(&args.package, context),
        PackageCommand::Prune(args) => prune::prune(args.min_age, args.dry_run, context).await,
        PackageCommand::Pack(args) => pack::pack(args.output.as_deref(), args.dry_run, context),
        PackageCommand::Publish(args) => {
            publish::publish(&args.tag, args.dry_run, args.yes, context).await
        }
        PackageCommand::Audit => audit::audit(context).await,
    }
}

async fn install(args: &PackageInstallArgs, context: &Context) -> Result<(), Failure> {
    let plan = ProjectPackages::read(context.project()?)?;
    let mode = if args.frozen_lockfile {
        Mode::Frozen
    } else {
        Mode::Locked
    };
    let mut fetcher = Fetcher::new(context, &plan)?;
    let command = args.age.on("package install", &[]);
    let consent = Consent::new(&plan, &plan.folders()?, args.grant.grant, &command);
    let rules = args.age.rules();
    let installed = install::install(&plan, mode, &rules, &consent, &mut fetcher, context).await?;
    plan.write_lock(&installed.lock)?;
    print_installed(
        &installed,
        &plan,
        &installed.folders,
        schemas::PACKAGE_INSTALL,
        context,
    )
}

async fn add(args: &PackageAddArgs, context: &Context) -> Result<(), Failure> {
    let mut plan = ProjectPackages::read(context.project()?)?;
    let before = plan.folders()?;
    let rules = args.age.rules();
    let mut fetcher = Fetcher::new(context, &plan)?;
    let mut text = plan.manifest.clone();
    let command = args.age.on("package add", &args.packages);
    let consent = Consent::new(&plan, &before, args.grant.grant, &command);
    if args.dev {
        let note = "`--dev` has no effect: every dependency is one of the project.";
        context.output.note(note);
    }
    for package in &args.packages {
        let (name, found) = find::find(package, &plan, &mut fetcher, &rules).await?;
        // A range that was written is kept.
        let requirement = match args.exact && !package.ends_with(found.as_str()) {
            true => exact(found),
            false => found,
        };
        text = manifest::with(&text, name.as_str(), requirement.as_str())?;
        plan.requires.insert(name, requirement);
    }
    let installed =
        install::install(&plan, Mode::Anew, &rules, &consent, &mut fetcher, context).await?;
    // The lockfile is written first, because locked packages that are not required yet do no harm.
    plan.write_lock(&installed.lock)?;
    plan.write_manifest(&text)?;
    print_installed(&installed, &plan, &before, schemas::PACKAGE_ADD, context)
}

/// Requirement of one version, from one of compatible versions.
fn exact(compatible: Requirement) -> Requirement {
    let version = compatible.as_str().strip_prefix('^');
    let exact = version.and_then(|version| version.parse().ok());
    exact.unwrap_or(compatible)
}

async fn update(args: &PackageUpdateArgs, context: &Context) -> Result<(), Failure> {
    let plan = ProjectPackages::read(context.project()?)?;
    let mut rules = args.age.rules();
    if !args.packages.is_empty() {
        let mut only = BTreeSet::new();
        for name in &args.packages {
            let known = plan.lock.packages().map(|(name, _)| name);
            let known: Vec<_> = known.chain(plan.requires.keys()).collect();
            let found = known.iter().find(|it| it.as_str() == name);
            let Some(found) = found else {
                let known = known.iter().map(|it| it.as_str());
                return Err(unknown(name, known, context));
            };
            only.insert((*found).clone());
        }
        rules.only = Some(only);
    }
    let mut fetcher = Fetcher::new(context, &plan)?;
    let command = args.age.on("package update", &args.packages);
    let consent = Consent::new(&plan, &plan.folders()?, args.grant.grant, &command);
    let installed =
        install::install(&plan, Mode::Anew, &rules, &consent, &mut fetcher, context).await?;
    plan.write_lock(&installed.lock)?;
    print_installed(
        &installed,
        &plan,
        &installed.folders,
        schemas::PACKAGE_UPDATE,
        context,
    )
}

#[expect(single_use_lifetimes, reason = "`impl Trait` cannot elide a lifetime")]
fn unknown<'a>(name: &str, known: impl IntoIterator<Item = &'a str>, context: &Context) -> Failure {
    let list = context.command("package list");
    let hint = format!("list its packages: `{list}`");
    Failure::new(
        Exit::NotFound,
        format!("the project does not require the package `{name}`"),
        names::with_near_name(name, known, hint),
    )
}

async fn remove(args: &PackageRemoveArgs, context: &Context) -> Result<(), Failure> {
    let mut plan = ProjectPackages::read(context.project()?)?;
    let before = plan.folders()?;
    let mut text = plan.manifest.clone();
    for name in &args.packages {
        if plan.requires.remove(name.as_str()).is_none() {
            let known = plan.requires.keys().map(PackageName::as_str);
            return Err(unknown(name, known, context));
        }
        text = manifest::without(&text, name)?;
    }
    let mut fetcher = Fetcher::new(context, &plan)?;
    let rules = args.age.rules();
    let command = args.age.on("package remove", &args.packages);
    let consent = Consent::new(&plan, &before, args.grant.grant, &command);
    let installed =
        install::install(&plan, Mode::Locked, &rules, &consent, &mut fetcher, context).await?;
    plan.write_manifest(&text)?;
    plan.write_lock(&installed.lock)?;
    print_installed(&installed, &plan, &before, schemas::PACKAGE_REMOVE, context)
}

/// Output of `gdn package install` and similar commands.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct InstallOutput<'t> {
    /// Number of packages that the project uses.
    packages: usize,
    changes: &'t [plan::PackageChange],
    /// Notes about the chosen versions.
    notes: &'t [String],
}

fn print_installed(
    installed: &InstallResult,
    plan: &ProjectPackages,
    before: &BTreeMap<PackageName, Folder>,
    schema: &str,
    context: &Context,
) -> Result<(), Failure> {
    let changes = plan.changes(before, &installed.lock, &installed.folders);
    let packages = installed.lock.packages().len() + installed.folders.len();
    let output = context.output;
    for note in &installed.notes {
        output.note(note);
    }
    output.object(
        schema,
        &InstallOutput {
            packages,
            changes: &changes,
            notes: &installed.notes,
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

/// A line of `gdn package list`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PackageListRow {
    name: String,
    version: Option<String>,
    /// Requirement of the project itself.
    required: Option<String>,
    from: String,
    state: &'static str,
    /// Permissions beyond those that every module has.
    granted: Permissions,
}

fn list(context: &Context) -> Result<(), Failure> {
    context.check_format()?;
    let plan = ProjectPackages::read(context.project()?)?;
    let folders = plan.folders()?;
    let store = Store::of(&context.state_root);
    let required = |name: &str| plan.requires.get(name).map(ToString::to_string);
    let mut listed: Vec<PackageListRow> = Vec::new();
    for (name, folder) in &folders {
        listed.push(PackageListRow {
            name: name.to_string(),
            version: Some(folder.version.to_string()),
            required: required(name.as_str()),
            from: folder.dir.display().to_string(),
            state: "folder",
            granted: folder.permissions.clone(),
        });
    }
    for (name, locked) in plan.lock.packages() {
        let dir = store.tree(&locked.tree);
        listed.push(PackageListRow {
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
            granted: locked.granted.clone(),
        });
    }
    let missing = plan
        .requires
        .iter()
        .filter(|(name, _)| !folders.contains_key(*name) && plan.lock.get(name).is_none());
    for (name, requirement) in missing {
        listed.push(PackageListRow {
            name: name.to_string(),
            version: None,
            required: Some(requirement.to_string()),
            from: String::new(),
            state: "not locked",
            granted: Permissions::default(),
        });
    }
    listed.sort_by(|one, other| one.name.cmp(&other.name));
    print_list(&listed, &plan, context)
}

fn print_list(
    listed: &[PackageListRow],
    plan: &ProjectPackages,
    context: &Context,
) -> Result<(), Failure> {
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
        Column::new("GRANTED").below(1, "granted"),
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
            text::one_line(&it.granted.to_string()).into(),
        ]);
    }
    output.data(table.render(output.canvas()).trim_end())?;
    let is_whole = |it: &PackageListRow| matches!(it.state, "installed" | "folder");
    if !listed.iter().all(is_whole) || plan.lacks()?.is_some() {
        output.note(format!(
            "{LOCK_FILE} and the installed packages do not match: run `{}`",
            context.command("package install")
        ));
    }
    Ok(())
}
