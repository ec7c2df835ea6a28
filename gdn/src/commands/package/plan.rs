//! A project's requirements and lockfile.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use goondan_config::package_of;
use goondan_packages::limits::PACKAGES_MAX;
use goondan_packages::{LOCK_FILE, Lock, PackageName, Registries, Requires, Version};
use goondan_protocol::permissions::Permissions;
use serde::Serialize;

use super::super::rewrite::rewrite;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::text;
use crate::project::PROJECT_FILE;

/// Project state read from its files.
pub(super) struct ProjectPackages {
    pub(super) root: PathBuf,
    pub(super) manifest: String,
    pub(super) requires: Requires,
    /// Registries named by the project.
    pub(super) registries: Registries,
    /// Lockfile; empty if there is none.
    pub(super) lock: Lock,
    lock_text: Option<String>,
}

/// A package that is a local folder, used in place.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) dir: PathBuf,
    pub(super) version: Version,
    pub(super) requires: Requires,
    /// Requested permissions, which a folder has without consent.
    pub(super) permissions: Permissions,
}

/// A change to one package of the project.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PackageChange {
    name: PackageName,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<String>,
    #[serde(skip_serializing_if = "Permissions::is_empty")]
    granted: Permissions,
    #[serde(skip_serializing_if = "Permissions::is_empty")]
    revoked: Permissions,
    #[serde(skip)]
    is_elsewhere: bool,
}

/// Version and permissions of a package in use.
#[derive(Debug, Default, PartialEq, Eq)]
struct InstalledPackage<'u> {
    version: Option<String>,
    place: Option<String>,
    granted: Cow<'u, Permissions>,
}

impl fmt::Display for PackageChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match (&self.before, &self.after) {
            (None, Some(after)) => write!(f, "+ {name} {after}"),
            (Some(before), None) => write!(f, "- {name} {before}"),
            (Some(before), Some(after)) if before != after => {
                write!(f, "~ {name} {before} → {after}")
            }
            (Some(_), Some(after)) if self.is_elsewhere => {
                write!(f, "~ {name} {after}, from another source")
            }
            (_, after) => write!(f, "~ {name} {}", after.as_deref().unwrap_or_default()),
        }?;
        let signs = [("+", &self.granted), ("-", &self.revoked)];
        signs
            .into_iter()
            .flat_map(|(sign, permissions)| lines(sign, permissions))
            .try_for_each(|line| write!(f, "\n{line}"))
    }
}

/// Permissions of a package, one per line.
pub(super) fn lines(sign: &str, permissions: &Permissions) -> Vec<String> {
    let sections = permissions.sections().into_iter();
    let said = sections.filter(|(_, texts)| !texts.is_empty());
    said.map(|(name, texts)| {
        let texts: Vec<String> = texts.iter().map(|it| text::one_line(it)).collect();
        format!("    {sign} {name}: {}", texts.join(", "))
    })
    .collect()
}

/// Version of a folder's package that does not set one.
const UNVERSIONED: (u64, u64, u64) = (0, 0, 0);

impl ProjectPackages {
    /// Reads the project in `root`.
    pub(super) fn read(root: PathBuf) -> Result<Self, Failure> {
        let manifest = fs::read_to_string(root.join(PROJECT_FILE))?;
        let package = package_of(&root).map_err(|problems| wrong_manifest(&root, &problems))?;
        let lock_text = match fs::read_to_string(root.join(LOCK_FILE)) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error.into()),
        };
        let lock = lock_text.as_deref().map_or(Ok(Lock::default()), Lock::read);
        let lock = lock.map_err(|error| {
            let hint = format!(
                "restore {LOCK_FILE} from the last commit, or remove it and run `gdn package install`"
            );
            let mut failure = Failure::of(Exit::Damaged, &error, hint);
            failure.message = format!("{LOCK_FILE} cannot be used: {}", failure.message);
            failure
        })?;
        let (requires, registries) = package
            .map(|package| (package.requires, package.registries))
            .unwrap_or_default();
        Ok(Self {
            root,
            manifest,
            requires,
            registries,
            lock,
            lock_text,
        })
    }

    /// Packages that are folders, including those required by folders.
    pub(super) fn folders(&self) -> Result<BTreeMap<PackageName, Folder>, Failure> {
        let mut folders = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let mut waiting = vec![(self.root.clone(), self.requires.clone())];
        while let Some((from, requires)) = waiting.pop() {
            for (name, requirement) in requires {
                let Some(path) = requirement.folder() else {
                    continue;
                };
                // The project's own requirement takes precedence.
                if folders.len() > PACKAGES_MAX || !seen.insert(name.clone()) {
                    continue;
                }
                let folder = read_folder(&from.join(path), Some(&name))?;
                waiting.push((folder.dir.clone(), folder.requires.clone()));
                folders.insert(name, folder);
            }
        }
        Ok(folders)
    }

    /// Reason if the lockfile does not satisfy the requirements.
    pub(super) fn lacks(&self) -> Result<Option<String>, Failure> {
        let folders = self.folders()?;
        let required = folders.values().map(|folder| &folder.requires);
        let required = required.chain([&self.requires]);
        Ok(self.lock.lacks(required, |name| folders.contains_key(name)))
    }

    /// Differences to another lockfile and other folders.
    pub(super) fn changes(
        &self,
        folders: &BTreeMap<PackageName, Folder>,
        new: &Lock,
        new_folders: &BTreeMap<PackageName, Folder>,
    ) -> Vec<PackageChange> {
        let names = self.lock.packages().chain(new.packages());
        let names = names.map(|(name, _)| name);
        let names: BTreeSet<&PackageName> = names
            .chain(folders.keys())
            .chain(new_folders.keys())
            .collect();
        let both = names.into_iter().map(|name| {
            let before = used(&self.lock, folders, name);
            (name, before, used(new, new_folders, name))
        });
        both.filter(|(_, before, after)| before != after)
            .map(|(name, before, after)| PackageChange {
                name: name.clone(),
                granted: after.granted.beyond(&before.granted),
                revoked: before.granted.beyond(&after.granted),
                is_elsewhere: before.place != after.place,
                before: before.version,
                after: after.version,
            })
            .collect()
    }

    /// Writes the lockfile if it changed. A project without locked packages gets none.
    pub(super) fn write_lock(&self, lock: &Lock) -> Result<(), Failure> {
        let text = lock.to_text().map_err(io::Error::other)?;
        let is_same = self.lock_text.as_ref() == Some(&text);
        let is_needless = self.lock_text.is_none() && lock.packages().len() == 0;
        if is_same || is_needless {
            return Ok(());
        }
        let before = self.lock_text.as_ref().map(String::as_bytes);
        rewrite(&self.root.join(LOCK_FILE), before, text.as_bytes())
            .map_err(|error| error.failure("gdn package install"))
    }

    /// Writes `goondan.yaml` if it changed.
    pub(super) fn write_manifest(&self, text: &str) -> Result<(), Failure> {
        if text == self.manifest {
            return Ok(());
        }
        let before = Some(self.manifest.as_bytes());
        rewrite(&self.root.join(PROJECT_FILE), before, text.as_bytes())
            .map_err(|error| error.failure("gdn package add"))
    }
}

fn used<'u>(
    lock: &'u Lock,
    folders: &'u BTreeMap<PackageName, Folder>,
    name: &PackageName,
) -> InstalledPackage<'u> {
    if let Some(folder) = folders.get(name) {
        return InstalledPackage {
            version: Some(folder.version.to_string()),
            place: Some(folder.dir.display().to_string()),
            granted: Cow::Borrowed(&folder.permissions),
        };
    }
    match lock.get(name) {
        None => InstalledPackage::default(),
        Some(locked) => InstalledPackage {
            version: Some(locked.shown()),
            place: Some(locked.tree.to_string()),
            granted: Cow::Borrowed(&locked.granted),
        },
    }
}

fn wrong_manifest(root: &Path, problems: &goondan_config::Diagnostics) -> Failure {
    Failure::new(
        Exit::InvalidConfiguration,
        format!(
            "{} is not valid:\n{problems}",
            root.join(PROJECT_FILE).display()
        ),
        "list the problems: `gdn validate`",
    )
}

/// Reads the package in a folder and checks its name if one is given.
pub(super) fn read_folder(dir: &Path, name: Option<&PackageName>) -> Result<Folder, Failure> {
    let (_, folder) = read_named_folder(dir, name)?;
    Ok(folder)
}

/// Like `read_folder`, and also returns the package's name.
pub(super) fn read_named_folder(
    dir: &Path,
    name: Option<&PackageName>,
) -> Result<(PackageName, Folder), Failure> {
    let place = || dir.join(PROJECT_FILE).display().to_string();
    let not_found = |why: String| {
        let hint =
            "a package is a folder whose goondan.yaml begins with a document of `kind: Package`";
        Failure::new(Exit::NotFound, why, hint)
    };
    let dir = dir
        .canonicalize()
        .map_err(|error| not_found(format!("no package in {}: {error}", dir.display())))?;
    let package = package_of(&dir).map_err(|problems| wrong_manifest(&dir, &problems))?;
    let package =
        package.ok_or_else(|| not_found(format!("{} does not belong to a package", place())))?;
    let own: PackageName = package
        .name
        .parse()
        .map_err(|error| not_found(format!("{}: {error}", place())))?;
    if let Some(name) = name.filter(|name| **name != own) {
        return Err(Failure::new(
            Exit::Conflict,
            format!("{} is the package `{own}`, not `{name}`", place()),
            format!("require it as `{own}`"),
        ));
    }
    let version = package
        .version
        .as_deref()
        .and_then(|it| Version::parse(it).ok());
    let folder = Folder {
        dir,
        version: version.unwrap_or_else(|| UNVERSIONED.into()),
        requires: package.requires,
        permissions: package.permissions,
    };
    Ok((own, folder))
}
