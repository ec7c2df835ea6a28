//! Removes unused packages (`PKG-1`).
//!
//! A package is in use if a lockfile of a workspace names it, or a configuration that is running or
//! can be restarted automatically. Digests are searched in the raw text, so a damaged file still
//! protects the packages it names. A package is first renamed and then deleted; after a crash in
//! between, the next attempt deletes the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::{Duration, SystemTime};

use goondan_bundles::BUNDLE_DIR;
use goondan_durable::disk::Folder as _;
use goondan_packages::{LOCK_FILE, TreeDigest};
use goondan_protocol::control::{
    ControlError, ErrorCode, PackagesPruned, PrunePackages, PrunedPackage,
};
use goondan_store::root::Layout;
use goondan_trees::{RealFolder, remove_all};
use serde::Deserialize;
use serde_json::Value;

use super::{INCOMING, KeepError, NEW_LINK, PackageKeeper, clear, io_error, removal};

/// Prefix of a digest, and the number of its digits.
const DIGEST: (&str, usize) = ("sha256-", 64);

/// Maximum depth of the search for lockfiles of a conversation's own configuration.
const DEPTH_MAX: usize = 6;

/// The record in a workspace's directory.
const WORKSPACE_FILE: &str = "workspace.json";

/// The last configuration that ran there.
const CONFIGURATION: &str = "configuration.json";

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// The part of a workspace's record that contains the project's path.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WorkspaceRecordPath {
    project_root: PathBuf,
}

impl PackageKeeper {
    /// Removes unused packages and returns the response. Blocks.
    pub(in crate::shell) fn prune(
        &self,
        request: &PrunePackages,
        layout: &Layout,
    ) -> Result<Value, ControlError> {
        let pruned = self.prune_unused(request, layout)?;
        serde_json::to_value(pruned)
            .map_err(|error| ControlError::new(ErrorCode::Internal, error.to_string()))
    }

    fn prune_unused(
        &self,
        request: &PrunePackages,
        layout: &Layout,
    ) -> Result<PackagesPruned, KeepError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut used = used(layout)?;
        used.extend(request.keep.iter().flat_map(|text| digests_in(text)));
        let trees = self.store.trees();
        let links = links(self.store.root())?;
        let mut pruned = Vec::new();
        let mut kept = 0;
        for digest in stored(&trees)? {
            let tree = self.store.tree(&digest);
            if used.contains(&digest) || is_young(&tree, request.min_age_days)? {
                kept += 1;
                continue;
            }
            let links = links.get(&tree).map(Vec::as_slice).unwrap_or_default();
            let name = |link: &PathBuf| {
                let name = link.strip_prefix(self.store.root()).unwrap_or(link);
                name.display().to_string()
            };
            pruned.push(PrunedPackage {
                tree: digest.to_string(),
                names: links.iter().map(name).collect(),
                bytes: bytes_of(&tree)?,
            });
            if !request.dry_run {
                remove(&trees, &digest, links)?;
            }
        }
        Ok(PackagesPruned { pruned, kept })
    }
}

/// Renames a package out of the store and deletes it.
fn remove(trees: &Path, digest: &TreeDigest, links: &[PathBuf]) -> Result<(), KeepError> {
    for link in links {
        let (Some(dir), Some(name)) = (link.parent(), link.file_name()) else {
            continue;
        };
        let folder = RealFolder::open(dir).map_err(io_error("open", dir))?;
        remove_all(&folder, Path::new(name)).map_err(|error| removal(link, &error))?;
    }
    let folder = RealFolder::open(trees).map_err(io_error("open", trees))?;
    clear(&folder, trees)?;
    let place = digest.to_hex();
    folder
        .rename_new(Path::new(&place), Path::new(INCOMING))
        .map_err(io_error("move out of its place", trees))?;
    clear(&folder, trees)
}

fn stored(trees: &Path) -> Result<Vec<TreeDigest>, KeepError> {
    let names = list(trees)?.into_iter().filter_map(|path| {
        let name = path.file_name()?.to_str()?;
        format!("{}{name}", DIGEST.0).parse().ok()
    });
    let mut names: Vec<TreeDigest> = names.collect();
    names.sort_unstable();
    Ok(names)
}

/// The links to packages, by target.
fn links(root: &Path) -> Result<BTreeMap<PathBuf, Vec<PathBuf>>, KeepError> {
    let mut links: BTreeMap<PathBuf, Vec<PathBuf>> = BTreeMap::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(dir) = waiting.pop() {
        for path in list(&dir)? {
            let name = path.file_name().and_then(|name| name.to_str());
            let is_scope = name.is_some_and(|name| name.starts_with('@')) && dir == root;
            if is_scope && path.is_dir() {
                waiting.push(path);
            } else if let Ok(target) = fs::read_link(&path)
                && name != Some(NEW_LINK)
                && let Some(tree) = target.file_name()
            {
                let tree = root.join(".trees").join(tree);
                links.entry(tree).or_default().push(path);
            }
        }
    }
    Ok(links)
}

/// The packages in use by any workspace.
fn used(layout: &Layout) -> Result<BTreeSet<TreeDigest>, KeepError> {
    let mut used = BTreeSet::new();
    for workspace in list(&layout.workspaces())? {
        let record = workspace.join(WORKSPACE_FILE);
        if let Some(text) = text_of(&record)? {
            let read = serde_json::from_str::<WorkspaceRecordPath>(&text);
            let read = read.map_err(io::Error::other);
            let project = read.map_err(io_error("read", &record))?.project_root;
            gather(&project.join(LOCK_FILE), &mut used)?;
        }
        gather(&workspace.join(CONFIGURATION), &mut used)?;
        for instance in list(&workspace.join("instances"))? {
            gather_below(&instance.join(BUNDLE_DIR), DEPTH_MAX, &mut used)?;
        }
    }
    Ok(used)
}

fn gather(file: &Path, used: &mut BTreeSet<TreeDigest>) -> Result<(), KeepError> {
    used.extend(text_of(file)?.iter().flat_map(|text| digests_in(text)));
    Ok(())
}

/// Collects the digests in lockfiles below a directory.
fn gather_below(
    dir: &Path,
    depth: usize,
    used: &mut BTreeSet<TreeDigest>,
) -> Result<(), KeepError> {
    for path in list(dir)? {
        let is_dir = fs::symlink_metadata(&path).is_ok_and(|it| it.is_dir());
        if is_dir && depth > 0 {
            gather_below(&path, depth - 1, used)?;
        } else if path.ends_with(LOCK_FILE) {
            gather(&path, used)?;
        }
    }
    Ok(())
}

fn digests_in(text: &str) -> impl Iterator<Item = TreeDigest> {
    let (prefix, digits) = DIGEST;
    text.match_indices(prefix)
        .filter_map(move |(at, _)| text.get(at..at + prefix.len() + digits)?.parse().ok())
}

/// Reads a file; `None` if it does not exist.
fn text_of(file: &Path) -> Result<Option<String>, KeepError> {
    match fs::read(file) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(io_error("read", file)(error)),
    }
}

/// Lists a directory; empty if it does not exist.
fn list(dir: &Path) -> Result<Vec<PathBuf>, KeepError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if is_absent(&error) => return Ok(Vec::new()),
        Err(error) => return Err(io_error("list", dir)(error)),
    };
    entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .map_err(io_error("list", dir))
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// True if a package was stored too recently to be removed.
fn is_young(tree: &Path, min_age_days: u32) -> Result<bool, KeepError> {
    let metadata = fs::symlink_metadata(tree).map_err(io_error("inspect", tree))?;
    let stored = metadata.modified().map_err(io_error("inspect", tree))?;
    // If the clock was set back, the age is zero.
    let age = SystemTime::now().duration_since(stored).unwrap_or_default();
    Ok(age < DAY.saturating_mul(min_age_days))
}

fn bytes_of(dir: &Path) -> Result<u64, KeepError> {
    let mut bytes = 0;
    for path in list(dir)? {
        let metadata = fs::symlink_metadata(&path).map_err(io_error("inspect", &path))?;
        bytes += if metadata.is_dir() {
            bytes_of(&path)?
        } else {
            metadata.len()
        };
    }
    Ok(bytes)
}
