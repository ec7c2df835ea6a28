//! Locates, verifies and reads the packages that a project refers to (`PKG-2`, `PKG-3`).
//!
//! A package is a folder with its own `goondan.yaml`. Other packages can refer to its Tools,
//! Extensions and Connectors; the rest of its definitions is only used when it runs as a project.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use goondan_packages::limits::{LOCK_BYTES_MAX, PACKAGES_MAX};
use goondan_packages::{LOCK_FILE, Lock, LockedPackage, PackageName, Store, tree_digest};

use goondan_protocol::permissions::Permissions;

use crate::codes;
use crate::dependency::{Dependency, SHARED_KINDS};
use crate::documents;
use crate::file_list::{FileFailure, PROJECT_FILE};
use crate::kinds::{Context, ResolvedPackage, Resources};
use crate::project_files::ProjectFiles;
use crate::reference::qualified;
use crate::report::{Problem, ProblemReport, SourceLocation};

/// Suggestion for packages that are not up to date.
const INSTALL: &str = "run `gdn package install`";

/// A package to load: its requirement, and the base folder of relative paths.
struct PackageToLoad {
    dependency: Dependency,
    from: PathBuf,
    /// True if a local folder requires it; the project can then override the version.
    by_folder: bool,
}

/// Adds the resources of all direct and indirect requirements.
pub(crate) fn add(resources: &mut Resources, cx: &mut Context<'_>) {
    let own = std::mem::take(&mut resources.dependencies);
    if own.is_empty() {
        return;
    }
    let root = cx.files.root().to_owned();
    let wanted = |from: &Path, by_folder: bool| {
        let from = from.to_owned();
        move |dependency| PackageToLoad {
            dependency,
            from: from.clone(),
            by_folder,
        }
    };
    let mut waiting: Vec<PackageToLoad> = own.into_iter().map(wanted(&root, true)).collect();
    let mut lock = None;
    let mut seen = BTreeSet::new();
    while let Some(next) = waiting.pop() {
        let Dependency { name, place, .. } = &next.dependency;
        if !seen.insert(name.clone()) || seen.len() > PACKAGES_MAX {
            continue;
        }
        resources.names.require(name);
        let Some(found) = find(&next, &mut lock, cx) else {
            cx.report.set_partial();
            continue;
        };
        let required = read(resources, name, *place, &found, cx);
        let is_live = found.granted.is_none();
        waiting.extend(required.into_iter().map(wanted(&found.folder, is_live)));
    }
}

struct PackageLocation {
    folder: PathBuf,
    /// Granted permissions; `None` for a local folder, whose own requests apply.
    granted: Option<Permissions>,
}

fn find(
    wanted: &PackageToLoad,
    lock: &mut Option<Option<Lock>>,
    cx: &mut Context<'_>,
) -> Option<PackageLocation> {
    let Dependency {
        name,
        requirement,
        place,
    } = &wanted.dependency;
    if let Some(path) = requirement.folder() {
        if !wanted.by_folder {
            let message = format!(
                "`{name}` is required as the folder `{path}`, relative to a package whose location is unknown"
            );
            let problem = Problem::new(codes::NOT_INSTALLED, *place, message);
            cx.report
                .add(problem.help("require an archive or a version range instead"));
            return None;
        }
        return Some(PackageLocation {
            folder: wanted.from.join(path),
            granted: None,
        });
    }
    let lock = lock.get_or_insert_with(|| read_lock(*place, cx)).as_ref()?;
    let Some(locked) = lock.get(name) else {
        let message = format!("package `{name}` is not in `{LOCK_FILE}`");
        cx.report
            .add(Problem::new(codes::NOT_INSTALLED, *place, message).help(INSTALL));
        return None;
    };
    let is_met = match requirement.range() {
        Some(range) => range.satisfies(&locked.version),
        None => locked.is_from(requirement.as_str()),
    };
    if !is_met {
        let message = format!(
            "`{LOCK_FILE}` has `{name}` {} from `{}`, but `{requirement}` is required",
            locked.version, locked.resolved
        );
        cx.report
            .add(Problem::new(codes::NOT_INSTALLED, *place, message).help(INSTALL));
        return None;
    }
    Some(PackageLocation {
        folder: locked_folder(name, locked, *place, cx)?,
        granted: Some(locked.granted.clone()),
    })
}

/// The lockfile; `None` if it is unusable, which is reported.
fn read_lock(place: SourceLocation, cx: &mut Context<'_>) -> Option<Lock> {
    let text = match cx.files.read(Path::new(LOCK_FILE), LOCK_BYTES_MAX) {
        Ok(text) => text,
        Err(FileFailure::NotFound(_)) => {
            let message =
                format!("the project's packages are not installed: `{LOCK_FILE}` does not exist");
            cx.report
                .add(Problem::new(codes::NOT_INSTALLED, place, message).help(INSTALL));
            return None;
        }
        Err(failure) => {
            cx.report.add(failure.at(place));
            return None;
        }
    };
    match Lock::read(&text) {
        Ok(lock) => Some(lock),
        Err(error) => {
            let file = cx.report.add_file(Path::new(LOCK_FILE), text);
            let mut message = format!("failed to read `{LOCK_FILE}`: {error}");
            if let Some(source) = std::error::Error::source(&error) {
                message.push_str(&format!(": {source}"));
            }
            let help =
                "restore it from the last commit, or remove it and run `gdn package install`";
            let problem = Problem::new(
                codes::NOT_INSTALLED,
                SourceLocation::start_of(file),
                message,
            );
            cx.report.add(problem.help(help));
            None
        }
    }
}

/// The folder of a locked package, whose content matches the lockfile.
fn locked_folder(
    name: &PackageName,
    locked: &LockedPackage,
    place: SourceLocation,
    cx: &mut Context<'_>,
) -> Option<PathBuf> {
    // Without information about the machine, installed packages are unknown.
    let store = Store::of(&cx.machine.state_root()?);
    let folder = store.tree(&locked.tree);
    let shown = format!("package `{name}` {}", locked.version);
    if !folder.is_dir() {
        let message = format!("{shown} is not installed on this machine");
        cx.report
            .add(Problem::new(codes::NOT_INSTALLED, place, message).help(INSTALL));
        return None;
    }
    let changed = match tree_digest(&folder) {
        Ok(digest) if digest == locked.tree => return Some(folder),
        Ok(_) => format!(
            "{shown} does not match the lockfile: {} was changed",
            folder.display()
        ),
        Err(error) => {
            let source = std::error::Error::source(&error);
            let source = source
                .map(|source| format!(": {source}"))
                .unwrap_or_default();
            format!("failed to verify {shown}: {error}{source}")
        }
    };
    let problem = Problem::new(codes::PACKAGE_CHANGED, place, changed);
    cx.report
        .add(problem.help("run `gdn package install` to install it again"));
    None
}

/// Reads the resources of the package in a folder, and returns its requirements.
fn read(
    resources: &mut Resources,
    name: &PackageName,
    place: SourceLocation,
    at: &PackageLocation,
    cx: &mut Context<'_>,
) -> Vec<Dependency> {
    let folder = at.folder.as_path();
    let files = match ProjectFiles::open(folder) {
        Ok(files) => files.of_package(),
        Err(error) => {
            let message = format!(
                "failed to open package `{name}` in {}: {error}",
                folder.display()
            );
            cx.report
                .add(Problem::new(codes::MISSING_FILE, place, message));
            cx.report.set_partial();
            cx.files.note_absent(folder);
            return Vec::new();
        }
    };
    let is_skill = files.check_is_file(Path::new(PROJECT_FILE)).is_err();
    let mut found = {
        let mut inner = Context {
            files: &files,
            variables: cx.variables,
            store: cx.store,
            machine: cx.machine,
            secrets: std::mem::take(&mut cx.secrets),
            asked_tokens: std::mem::take(&mut cx.asked_tokens),
            resource: String::new(),
            contract: cx.contract,
            report: std::mem::take(&mut cx.report),
        };
        let trees = documents::read_trees(&files, &mut inner.report);
        let found = documents::read_shared(&trees, &SHARED_KINDS, &mut inner);
        let Context {
            secrets,
            asked_tokens,
            report,
            ..
        } = inner;
        (cx.secrets, cx.asked_tokens, cx.report) = (secrets, asked_tokens, report);
        found
    };
    cx.files.add_sources(files);
    check_name(&found, name, place, folder, &mut cx.report);
    resources.names.install(name, &found.names);
    let key = |own: String| qualified(Some(name), &own).into_owned();
    let own = std::mem::take(&mut found.tools).into_iter();
    resources.tools.extend(own.map(|(own, it)| (key(own), it)));
    let own = std::mem::take(&mut found.extensions).into_iter();
    resources
        .extensions
        .extend(own.map(|(own, it)| (key(own), it)));
    let own = std::mem::take(&mut found.connectors).into_iter();
    resources
        .connectors
        .extend(own.map(|(own, it)| (key(own), it)));
    let package = found.package.take();
    let permissions = package.map(|it| it.permissions).unwrap_or_default();
    check_granted(name, &permissions, at, place, &mut cx.report);
    let installed = ResolvedPackage {
        folder: folder.canonicalize().unwrap_or_else(|_| folder.to_owned()),
        permissions,
        is_skill,
    };
    resources.packages.insert(name.clone(), installed);
    found.dependencies
}

/// Refuses a package that requests more permissions than a person has granted.
fn check_granted(
    name: &PackageName,
    asked: &Permissions,
    at: &PackageLocation,
    place: SourceLocation,
    report: &mut ProblemReport,
) {
    let Some(granted) = &at.granted else {
        return;
    };
    let beyond = asked.beyond(granted);
    if !beyond.is_empty() {
        let message = format!("package `{name}` needs permissions that were not granted: {beyond}");
        let problem = Problem::new(codes::NOT_GRANTED, place, message);
        report.add(
            problem.help("run `gdn package install` to grant them; in a script, add `--grant`"),
        );
    }
}

fn check_name(
    found: &Resources,
    name: &PackageName,
    place: SourceLocation,
    folder: &Path,
    report: &mut ProblemReport,
) {
    let own = found.package.as_ref().map(|package| package.name.as_str());
    if own == Some(name.as_str()) || report.is_partial() {
        return;
    }
    let file = folder.join(PROJECT_FILE);
    let message = match own {
        Some(own) => format!("{} is the package `{own}`, not `{name}`", file.display()),
        None => format!(
            "{} does not begin with a document of `kind: Package`",
            file.display()
        ),
    };
    report.add(Problem::new(codes::INVALID_VALUE, place, message));
}
