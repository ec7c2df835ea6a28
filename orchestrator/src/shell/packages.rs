//! Writes packages to the store from which `goondan_packages` reads them (`PKG-1`, `PKG-3`).
//!
//! A tree is unpacked to a temporary directory, checked, and renamed to its digest, so a crash
//! leaves each package complete or absent. The link by name and version is created last.

mod prune;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use goondan_config::{SKILL_FILE, package_of};
use goondan_durable::disk::Folder as _;
use goondan_packages::limits::{ARCHIVE_BYTES_MAX, PACKAGE_BYTES_MAX, PACKAGE_ENTRIES_MAX};
use goondan_packages::{
    Integrity, PackageName, Requires, Store, TreeDigest, TreeError as UnreadableTree, Version,
    tree_digest,
};
use goondan_protocol::control::{ControlError, ErrorCode, PackageStored, StorePackage};
use goondan_protocol::permissions::Permissions;
use goondan_store::root::Layout;
use goondan_trees::extract::{Options, extract};
use goondan_trees::limits::Limits;
use goondan_trees::{RealFolder, TreeError, remove_all};
use serde_json::Value;

/// The manifest file of a package.
const MANIFEST: &str = "goondan.yaml";

/// Directory for the tree being unpacked.
const INCOMING: &str = "incoming";

/// Temporary name of a link.
const NEW_LINK: &str = ".new-link";

/// Magic bytes of gzip.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The store. Writes are serialized.
pub(super) struct PackageKeeper {
    store: Store,
    turn: Mutex<()>,
}

/// Reason that a package was not stored.
#[derive(Debug, thiserror::Error)]
enum KeepError {
    #[error("{0}")]
    Request(String),
    #[error("failed to read the archive {}", path.display())]
    Archive {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the archive {} has more than {ARCHIVE_BYTES_MAX} bytes", .0.display())]
    TooLarge(PathBuf),
    #[error("{what} does not match the lockfile: expected {of} {wanted}, found {found}")]
    Other {
        what: String,
        of: &'static str,
        found: String,
        wanted: String,
    },
    #[error("failed to unpack the archive {}", .0.display())]
    Hostile(PathBuf, #[source] TreeError),
    #[error("{0}")]
    Manifest(String),
    #[error("failed to {operation} {}", path.display())]
    Io {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Tree(#[from] UnreadableTree),
}

impl From<KeepError> for ControlError {
    fn from(error: KeepError) -> Self {
        let text = goondan_log::error_chain(&error);
        let code = match error {
            KeepError::Request(_) | KeepError::Archive { .. } => ErrorCode::InvalidRequest,
            KeepError::Io { .. } | KeepError::Tree(UnreadableTree::Io { .. }) => ErrorCode::Storage,
            KeepError::Hostile(_, TreeError::Io { .. }) => ErrorCode::Storage,
            KeepError::TooLarge(_)
            | KeepError::Other { .. }
            | KeepError::Hostile(..)
            | KeepError::Manifest(_)
            | KeepError::Tree(_) => ErrorCode::PackageRefused,
        };
        Self::new(code, text)
    }
}

/// A parsed request.
struct StorePackageParams {
    name: Option<PackageName>,
    version: Option<Version>,
    integrity: Option<Integrity>,
    tree: Option<TreeDigest>,
    requires: Option<BTreeMap<String, String>>,
    check_only: bool,
}

/// A package according to its manifest.
struct PackageManifest {
    name: PackageName,
    version: Version,
    requires: BTreeMap<String, String>,
    permissions: Permissions,
}

impl StorePackageParams {
    fn read(request: &StorePackage) -> Result<Self, KeepError> {
        let invalid = |error: String| KeepError::Request(error);
        let version = request.version.as_deref().map(Version::parse).transpose();
        let integrity = request.integrity.as_deref().map(str::parse).transpose();
        let tree = request.tree.as_deref().map(str::parse).transpose();
        let name = request.name.as_deref().map(str::parse).transpose();
        Ok(Self {
            name: name.map_err(|error| invalid(format!("{error}")))?,
            version: version.map_err(|error| invalid(format!("no version: {error}")))?,
            integrity: integrity.map_err(|error| invalid(format!("{error}")))?,
            tree: tree.map_err(|error| invalid(format!("{error}")))?,
            requires: request.requires.clone(),
            check_only: request.check_only,
        })
    }
}

fn io_error(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> KeepError {
    let path = path.to_owned();
    move |source| KeepError::Io {
        operation,
        path,
        source,
    }
}

impl PackageKeeper {
    pub(super) fn new(layout: &Layout) -> Self {
        Self {
            store: Store::of(layout.root()),
            turn: Mutex::default(),
        }
    }

    /// Unpacks a package and returns the response. Blocks.
    pub(super) fn answer(&self, request: &StorePackage) -> Result<Value, ControlError> {
        let stored = self.keep(request)?;
        serde_json::to_value(stored)
            .map_err(|error| ControlError::new(ErrorCode::Internal, error.to_string()))
    }

    fn keep(&self, request: &StorePackage) -> Result<PackageStored, KeepError> {
        let wanted = StorePackageParams::read(request)?;
        let archive = read_archive(&request.archive)?;
        let integrity = Integrity::of(&archive);
        if let Some(expected) = wanted.integrity.as_ref().filter(|it| **it != integrity) {
            return Err(KeepError::Other {
                what: format!("the archive {}", request.archive.display()),
                of: "SHA-512",
                found: integrity.to_string(),
                wanted: expected.to_string(),
            });
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let trees = self.store.trees();
        fs::create_dir_all(&trees).map_err(io_error("create", &trees))?;
        let folder = RealFolder::open(&trees).map_err(io_error("open", &trees))?;
        // Removes the leftovers of an earlier attempt.
        clear(&folder, &trees)?;
        let done = unpack(&folder, &request.archive, &archive)
            .and_then(|()| self.accept(&folder, &trees, &wanted));
        if done.is_err() {
            // If this fails, the next attempt removes it; the first error is more useful.
            drop(clear(&folder, &trees));
        }
        let (own, tree) = done?;
        let directory = if wanted.check_only {
            self.store.link(&own.name, &own.version)
        } else {
            self.link(&own.name, &own.version, &tree)?
        };
        Ok(PackageStored {
            name: own.name.to_string(),
            version: own.version.to_string(),
            integrity: integrity.to_string(),
            tree: tree.to_string(),
            requires: own.requires,
            permissions: own.permissions,
            directory,
        })
    }

    /// Checks the unpacked tree, and moves it into place unless only a check was requested.
    fn accept(
        &self,
        folder: &RealFolder,
        trees: &Path,
        wanted: &StorePackageParams,
    ) -> Result<(PackageManifest, TreeDigest), KeepError> {
        let incoming = trees.join(INCOMING);
        let own = check_manifest(&incoming, wanted)?;
        let tree = tree_digest(&incoming)?;
        if let Some(expected) = wanted.tree.filter(|it| *it != tree) {
            return Err(KeepError::Other {
                what: format!("the content of `{}` {}", own.name, own.version),
                of: "digest",
                found: tree.to_string(),
                wanted: expected.to_string(),
            });
        }
        if wanted.check_only {
            clear(folder, trees)?;
        } else {
            self.place(folder, trees, &tree)?;
        }
        Ok((own, tree))
    }

    /// Moves the checked tree to its digest.
    fn place(&self, folder: &RealFolder, trees: &Path, tree: &TreeDigest) -> Result<(), KeepError> {
        seal(&trees.join(INCOMING))?;
        let place = self.store.tree(tree);
        let digits = tree.to_hex();
        let own = Path::new(&digits);
        if fs::symlink_metadata(&place).is_ok() {
            if tree_digest(&place).is_ok_and(|there| there == *tree) {
                return clear(folder, trees);
            }
            // The stored tree was modified. Running processes have its files open or reject it by
            // its digest.
            remove_all(folder, own).map_err(|error| removal(&place, &error))?;
        }
        folder
            .rename_new(Path::new(INCOMING), own)
            .map_err(io_error("put in place", &place))?;
        folder
            .sync_dir(Path::new(""))
            .map_err(io_error("sync", trees))
    }

    /// Creates the link by name and version.
    fn link(
        &self,
        name: &PackageName,
        version: &Version,
        tree: &TreeDigest,
    ) -> Result<PathBuf, KeepError> {
        let link = self.store.link(name, version);
        let target = Store::link_target(name, tree);
        if fs::read_link(&link).is_ok_and(|there| there == target) {
            return Ok(link);
        }
        let directory = self.store.folder(name);
        fs::create_dir_all(&directory).map_err(io_error("create", &directory))?;
        let folder = RealFolder::open(&directory).map_err(io_error("open", &directory))?;
        let (new, own) = (Path::new(NEW_LINK), link.file_name().unwrap_or_default());
        remove_all(&folder, new).map_err(|error| removal(&directory, &error))?;
        folder
            .create_link(new, &target)
            .map_err(io_error("make", &link))?;
        let placed = match folder.rename_new(new, Path::new(own)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                folder.exchange(new, Path::new(own))
            }
            other => other,
        };
        placed.map_err(io_error("make", &link))?;
        remove_all(&folder, new).map_err(|error| removal(&directory, &error))?;
        folder
            .sync_dir(Path::new(""))
            .map_err(io_error("sync", &directory))?;
        Ok(link)
    }
}

fn removal(path: &Path, error: &TreeError) -> KeepError {
    KeepError::Io {
        operation: "tidy up",
        path: path.to_owned(),
        source: io::Error::other(goondan_log::error_chain(error)),
    }
}

fn clear(folder: &RealFolder, trees: &Path) -> Result<(), KeepError> {
    remove_all(folder, Path::new(INCOMING)).map_err(|error| removal(trees, &error))
}

/// Reads a whole archive into memory, so that the checked bytes are the unpacked ones.
fn read_archive(path: &Path) -> Result<Vec<u8>, KeepError> {
    let unreadable = |source| KeepError::Archive {
        path: path.to_owned(),
        source,
    };
    // Checked before opening, because opening a named pipe would block until a writer appears.
    let metadata = fs::metadata(path).map_err(unreadable)?;
    if !path.is_absolute() || !metadata.is_file() {
        return Err(unreadable(io::ErrorKind::InvalidInput.into()));
    }
    let file = File::open(path).map_err(unreadable)?;
    let mut archive = Vec::new();
    let most = ARCHIVE_BYTES_MAX + 1;
    let read = file
        .take(most)
        .read_to_end(&mut archive)
        .map_err(unreadable)?;
    if read as u64 == most {
        return Err(KeepError::TooLarge(path.to_owned()));
    }
    Ok(archive)
}

fn unpack(folder: &RealFolder, path: &Path, archive: &[u8]) -> Result<(), KeepError> {
    let options = Options {
        is_gzip: archive.starts_with(&GZIP),
        strips_first_name: true,
        limits: Limits::new(PACKAGE_ENTRIES_MAX, PACKAGE_BYTES_MAX),
    };
    extract(archive, folder, INCOMING, options)
        .map(drop)
        .map_err(|error| KeepError::Hostile(path.to_owned(), error))
}

/// Checks that the unpacked tree is the requested package.
fn check_manifest(dir: &Path, wanted: &StorePackageParams) -> Result<PackageManifest, KeepError> {
    let refused = |text: String| Err(KeepError::Manifest(text));
    if !dir.join(MANIFEST).exists() && !dir.join(SKILL_FILE).exists() {
        let text = "the archive is not a goondan package: it has no goondan.yaml and no SKILL.md";
        return refused(text.to_owned());
    }
    let package = match package_of(dir) {
        Ok(package) => package,
        Err(problems) => {
            return refused(format!("the archive's goondan.yaml is invalid: {problems}"));
        }
    };
    let Some(package) = package else {
        let text = "the archive is not a goondan package: its goondan.yaml does not begin with a document of `kind: Package`";
        return refused(text.to_owned());
    };
    let name: PackageName = match package.name.parse() {
        Ok(name) => name,
        Err(error) => return refused(format!("the archive's package has no name: {error}")),
    };
    if let Some(wanted) = wanted.name.as_ref().filter(|wanted| **wanted != name) {
        return refused(format!("expected the package `{wanted}`, found `{name}`"));
    }
    let version = package.version.as_deref();
    let Some(version) = version.and_then(|it| Version::parse(it).ok()) else {
        return refused(format!("the package `{name}` has no `version`"));
    };
    if let Some(wanted) = wanted.version.as_ref().filter(|it| **it != version) {
        return refused(format!("expected `{name}` {wanted}, found {version}"));
    }
    let requires = as_text(&package.requires);
    match &wanted.requires {
        Some(wanted) if *wanted != requires => refused(format!(
            "the archive's `{name}` {version} requires {}, but its registry entry lists {}",
            listed(&requires),
            listed(wanted)
        )),
        _ => Ok(PackageManifest {
            name,
            version,
            requires,
            permissions: package.permissions,
        }),
    }
}

fn as_text(requires: &Requires) -> BTreeMap<String, String> {
    let texts = requires.iter();
    texts
        .map(|(name, it)| (name.to_string(), it.to_string()))
        .collect()
}

fn listed(requires: &BTreeMap<String, String>) -> String {
    if requires.is_empty() {
        return "nothing".to_owned();
    }
    let all: Vec<String> = requires
        .iter()
        .map(|(name, it)| format!("`{name}` {it}"))
        .collect();
    all.join(", ")
}

/// Makes the files read-only to prevent accidental changes.
fn seal(dir: &Path) -> Result<(), KeepError> {
    let mut waiting = vec![dir.to_owned()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(&dir).map_err(io_error("list", &dir))? {
            let entry = entry.map_err(io_error("list", &dir))?;
            let path = entry.path();
            let metadata = fs::symlink_metadata(&path).map_err(io_error("inspect", &path))?;
            if metadata.is_dir() {
                waiting.push(path);
            } else if metadata.is_file() {
                let mode = metadata.permissions().mode() & 0o555;
                fs::set_permissions(&path, fs::Permissions::from_mode(mode))
                    .map_err(io_error("protect", &path))?;
            }
        }
    }
    Ok(())
}
