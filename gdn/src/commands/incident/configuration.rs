//! The configuration that incidents are replayed with: the project's, or that of `--against`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use goondan_config::{LoadResult, Loader, ProcessEnvironment, ProjectSnapshot, Secrets};
use goondan_protocol::definition::AgentDefinition;
use goondan_protocol::ids::{AgentName, ResourceName};
use goondan_protocol::usage::PriceTable;
use goondan_vault::{ProjectIdentity, RealFiles, SecretReader};
use tempfile::TempDir;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::text;
use crate::project::{self, PROJECT_FILE};

/// Environment files of a project, the last one with precedence.
const ENV_FILES: [&str; 2] = [".env", ".env.local"];
/// Files of an overlay that are read as texts; all others stay as they are in the project.
const TEXT_FILES: [&str; 4] = ["yaml", "yml", "md", "txt"];
/// Directory of an overlay that is passed over.
const MODULES_DIR: &str = "node_modules";
/// Levels of directories of an overlay.
const OVERLAY_DEPTH: usize = 16;

/// A loaded configuration.
#[derive(Debug)]
pub(super) struct ReplayConfiguration {
    /// Words for it: the path of the project, or the argument of `--against`.
    pub(super) name: String,
    pub(super) root: PathBuf,
    pub(super) package: Option<String>,
    pub(super) digest: String,
    pub(super) agents: BTreeMap<AgentName, AgentDefinition>,
    pub(super) prices: BTreeMap<ResourceName, PriceTable>,
    pub(super) secrets: Secrets,
    /// Files of a branch, removed at the end.
    _files: Option<TempDir>,
}

/// Loads the project.
///
/// # Errors
///
/// The configuration is invalid.
pub(super) fn of_project(
    context: &Context,
    root: &Path,
    env_files: &[PathBuf],
) -> Result<ReplayConfiguration, Failure> {
    let name = root.display().to_string();
    let loaded = load(context, (root, root), env_files, None)?;
    configuration(name, root, loaded, None)
}

/// Loads the value of `--against`: files over the project's, or a branch.
///
/// # Errors
///
/// Nothing has this name, or its configuration is invalid.
pub(super) fn against(
    context: &Context,
    root: &Path,
    env_files: &[PathBuf],
    named: &str,
) -> Result<ReplayConfiguration, Failure> {
    let path = Path::new(named);
    if path.exists() {
        let plain = load(context, (root, root), env_files, None)?;
        let snapshot = overlaid(plain.sources.kept(), path)?;
        let loaded = load(context, (root, root), env_files, Some(&snapshot))?;
        return configuration(named.to_owned(), root, loaded, None);
    }
    let files = files_of_branch(root, named)?;
    let other = files.path().canonicalize().map_err(Failure::from)?;
    if !other.join(PROJECT_FILE).is_file() {
        return Err(Failure::new(
            Exit::NotFound,
            format!("`{named}` has no {PROJECT_FILE} at the place of this project"),
            "name a branch or a commit that has the project",
        ));
    }
    // A branch has no environment files of its own.
    let own = ENV_FILES.iter().map(|name| root.join(name));
    let mut env: Vec<PathBuf> = own.filter(|path| path.is_file()).collect();
    env.extend_from_slice(env_files);
    let loaded = load(context, (root, &other), &env, None)?;
    configuration(named.to_owned(), &other, loaded, Some(files))
}

/// Loads the files at `place` with the secrets of the project `root`.
fn load(
    context: &Context,
    (root, place): (&Path, &Path),
    env_files: &[PathBuf],
    snapshot: Option<&ProjectSnapshot>,
) -> Result<LoadResult, Failure> {
    context.check_format()?;
    let vault = context.vault();
    let identity: ProjectIdentity = project::identity(root);
    let secrets = SecretReader::new(&vault, &identity);
    let decisions = vault.permissions(&RealFiles);
    let decisions = decisions.map_or_else(|_| Vec::new(), |all| all.of_project(&identity));
    let loader = Loader::new(&ProcessEnvironment)
        .with_env_files(env_files)
        .with_secrets(&secrets)
        .with_decisions(&decisions);
    Ok(match snapshot {
        Some(snapshot) => loader.load_kept(place, snapshot),
        None => loader.load(place),
    })
}

fn configuration(
    name: String,
    root: &Path,
    loaded: LoadResult,
    files: Option<TempDir>,
) -> Result<ReplayConfiguration, Failure> {
    let bundle = loaded.bundle.map_err(|problems| {
        let problems = problems.as_slice();
        let first = problems.first().map(|problem| problem.message.clone());
        let count = text::count(problems.len(), "error");
        let first = text::one_line(&first.unwrap_or_default());
        Failure::new(
            Exit::InvalidConfiguration,
            format!("the configuration of {name} has {count}; the first: {first}"),
            "list all problems of a project: `gdn validate`",
        )
    })?;
    Ok(ReplayConfiguration {
        name,
        root: root.to_owned(),
        package: bundle.package.map(|package| package.name),
        digest: bundle.digest,
        agents: bundle.agents,
        prices: bundle.prices,
        secrets: loaded.secrets,
        _files: files,
    })
}

/// The files of a project with those of an overlay.
fn overlaid(project: &ProjectSnapshot, overlay: &Path) -> Result<ProjectSnapshot, Failure> {
    let mut files: BTreeMap<PathBuf, Option<String>> = project
        .iter()
        .map(|(path, text)| (path.to_owned(), text.map(str::to_owned)))
        .collect();
    let unreadable = |path: &Path, error: &std::io::Error| {
        let message = format!("cannot read {}", path.display());
        Failure::new(Exit::NotFound, message, "pass readable files of UTF-8 text")
            .caused_by(Some(error))
    };
    let mut found = Vec::new();
    if overlay.is_dir() {
        list(overlay, OVERLAY_DEPTH, &mut found);
        for path in found {
            let Ok(relative) = path.strip_prefix(overlay) else {
                continue;
            };
            match fs::read_to_string(&path) {
                Ok(text) => files.insert(relative.to_owned(), Some(text)),
                // Not a text, so no part of a configuration.
                Err(error) if error.kind() == std::io::ErrorKind::InvalidData => continue,
                Err(error) => return Err(unreadable(&path, &error)),
            };
        }
        return Ok(files.into_iter().collect());
    }
    let name = overlay.file_name();
    let same = files.keys().filter(|path| path.file_name() == name);
    let same: Vec<PathBuf> = same.cloned().collect();
    let [place] = same.as_slice() else {
        let count = text::count(same.len(), "file");
        return Err(Failure::new(
            Exit::Usage,
            format!(
                "the project has {count} with the name of {}",
                overlay.display()
            ),
            "pass a directory that has the file at its path within the project",
        ));
    };
    let text = fs::read_to_string(overlay).map_err(|error| unreadable(overlay, &error))?;
    files.insert(place.clone(), Some(text));
    Ok(files.into_iter().collect())
}

/// The text files below a directory, without hidden ones.
fn list(dir: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if name.as_encoded_bytes().starts_with(b".") || name == MODULES_DIR {
            continue;
        }
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let end = path.extension().and_then(|end| end.to_str());
        if is_dir && depth > 1 {
            list(&path, depth - 1, found);
        } else if !is_dir && end.is_some_and(|end| TEXT_FILES.contains(&end)) {
            found.push(path);
        }
    }
}

/// The files of a branch, below the directory of the project.
fn files_of_branch(root: &Path, branch: &str) -> Result<TempDir, Failure> {
    let unknown = || {
        Failure::new(
            Exit::NotFound,
            format!("`{branch}` is neither a file nor a directory nor a branch of the project"),
            "pass a file or a directory with changed files, or a branch, tag or commit",
        )
    };
    // A name that begins with a dash would be an option of git.
    if branch.starts_with('-') {
        return Err(unknown());
    }
    let target = tempfile::tempdir()?;
    let mut child = Command::new("git")
        .args(["archive", "--format=tar", branch])
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| {
            let hint = "install git, or pass a directory with the changed files";
            Failure::of(Exit::Internal, &error, hint)
        })?;
    let unpacked = match child.stdout.take() {
        Some(stdout) => tar::Archive::new(stdout).unpack(target.path()),
        None => Ok(()),
    };
    let ended = child.wait()?;
    if !ended.success() {
        return Err(unknown());
    }
    unpacked?;
    Ok(target)
}
