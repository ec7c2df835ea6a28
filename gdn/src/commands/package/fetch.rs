//! Fetches packages and passes them to the daemon, which alone writes the store.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use futures_util::{StreamExt as _, TryStreamExt as _};
use goondan_packages::limits::REGISTRY_REQUESTS_MAX;
use goondan_packages::{
    GitSource, Integrity, LockedPackage, PackageName, Requirement, Requires, TreeDigest, Version,
};
use goondan_protocol::control::{PackageStored, StorePackage};
use goondan_protocol::permissions::Permissions;
use tempfile::NamedTempFile;

use super::super::attach::attach_or_start;
use super::git::{self, CommitArchive};
use super::plan::ProjectPackages;
use super::registry::Registry;
use crate::client::Client;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

/// Fetches packages. The daemon is not contacted or started until a package is missing.
///
/// All packages are checked before the first one is stored, so a refused package leaves no trace.
pub(super) struct Fetcher<'f> {
    context: &'f Context,
    root: PathBuf,
    client: Option<Client>,
    pub(super) registry: Registry<'f>,
    /// Downloads by URL. Deleted on drop.
    downloads: BTreeMap<String, NamedTempFile>,
    /// Archives from git repositories by place. Deleted on drop.
    check_outs: BTreeMap<String, Rc<CommitArchive>>,
    checked: BTreeMap<String, (PackageName, LockedPackage)>,
    pub(super) stored: usize,
}

/// Information about a package before it is fetched.
#[derive(Debug, Default)]
pub(super) struct FetchExpectation<'e> {
    pub(super) name: Option<&'e PackageName>,
    pub(super) version: Option<&'e Version>,
    pub(super) integrity: Option<&'e Integrity>,
    pub(super) tree: Option<TreeDigest>,
    pub(super) requires: Option<&'e Requires>,
}

impl<'e> FetchExpectation<'e> {
    pub(super) fn locked(name: &'e PackageName, locked: &'e LockedPackage) -> Self {
        Self {
            name: Some(name),
            version: Some(&locked.version),
            integrity: locked.integrity.as_ref(),
            tree: Some(locked.tree),
            requires: Some(&locked.requires),
        }
    }
}

impl<'f> Fetcher<'f> {
    pub(super) fn new(context: &'f Context, plan: &ProjectPackages) -> Result<Self, Failure> {
        let mut registry = Registry::new(context, plan.registries.clone())?;
        for place in plan.requires.values().filter_map(Requirement::archive_url) {
            registry.name(place);
        }
        Ok(Self {
            context,
            root: plan.root.clone(),
            client: None,
            registry,
            downloads: BTreeMap::new(),
            check_outs: BTreeMap::new(),
            checked: BTreeMap::new(),
            stored: 0,
        })
    }

    /// Downloads archives with limited concurrency, and skips those already downloaded.
    pub(super) async fn download(
        &mut self,
        archives: Vec<(String, Option<Integrity>)>,
    ) -> Result<(), Failure> {
        let wanted = archives.into_iter();
        let wanted = wanted.filter(|(address, _)| !self.downloads.contains_key(address));
        let registry = &self.registry;
        let fetching = futures_util::stream::iter(wanted.collect::<Vec<_>>())
            .map(|(address, integrity)| async move {
                let file = registry.download(&address, integrity.as_ref()).await?;
                Ok::<_, Failure>((address, file))
            })
            .buffer_unordered(REGISTRY_REQUESTS_MAX);
        let fetched: Vec<_> = fetching.try_collect().await?;
        self.downloads.extend(fetched);
        Ok(())
    }

    /// Checks the package at a place without storing it.
    pub(super) async fn check(
        &mut self,
        place: &Requirement,
        expected: &FetchExpectation<'_>,
    ) -> Result<(PackageName, LockedPackage), Failure> {
        if let Some((name, locked)) = self.checked.get(place.as_str()) {
            let is_expected = expected.name.is_none_or(|wanted| wanted == name)
                && expected.tree.is_none_or(|tree| tree == locked.tree);
            if is_expected {
                return Ok((name.clone(), locked.clone()));
            }
        }
        let stored = self.hand_over(place, expected, true).await?;
        let mut found = locked(&stored, place.to_string())?;
        if let (Some(source), Some(got)) =
            (place.git(), self.check_outs.get(place.as_str()).cloned())
        {
            // The commit is locked, not the requested revision. Its archive is built again each time, so the tree
            // digest is locked instead of the archive's.
            found.1.resolved = source.pinned(&got.commit);
            found.1.integrity = None;
            let pinned = found.1.resolved.clone();
            self.check_outs.insert(pinned.clone(), got);
            self.checked.insert(pinned, found.clone());
        }
        self.checked
            .insert(place.as_str().to_owned(), found.clone());
        Ok(found)
    }

    /// Permissions requested by a checked package; none if it was not checked.
    pub(super) fn asked_by(
        &self,
        name: &PackageName,
        locked: &LockedPackage,
    ) -> Option<&Permissions> {
        let (checked, found) = self.checked.get(&locked.resolved)?;
        (checked == name && found.tree == locked.tree).then_some(&found.granted)
    }

    /// Stores a checked package.
    pub(super) async fn store(
        &mut self,
        name: &PackageName,
        locked: &LockedPackage,
    ) -> Result<(), Failure> {
        let place = place_of(name, locked)?;
        self.hand_over(&place, &FetchExpectation::locked(name, locked), false)
            .await?;
        self.stored += 1;
        Ok(())
    }

    async fn hand_over(
        &mut self,
        place: &Requirement,
        expected: &FetchExpectation<'_>,
        check_only: bool,
    ) -> Result<PackageStored, Failure> {
        let archive = self.archive(place, expected.integrity).await?;
        let requires = expected.requires.map(|requires| {
            let texts = requires.iter();
            texts
                .map(|(name, it)| (name.to_string(), it.to_string()))
                .collect()
        });
        let request = StorePackage {
            name: expected.name.map(ToString::to_string),
            version: expected.version.map(ToString::to_string),
            archive,
            integrity: expected.integrity.map(ToString::to_string),
            tree: expected.tree.map(|tree| tree.to_string()),
            requires,
            check_only,
        };
        let client = match &mut self.client {
            Some(client) => client,
            none => none.insert(attach_or_start(self.context, false).await?.0),
        };
        Ok(client.change(request).await?)
    }

    /// Returns the local archive of a place.
    async fn archive(
        &mut self,
        place: &Requirement,
        integrity: Option<&Integrity>,
    ) -> Result<PathBuf, Failure> {
        if let Some(address) = place.archive_url() {
            let wanted = vec![(address.to_owned(), integrity.cloned())];
            self.download(wanted).await?;
            let file = self
                .downloads
                .get(address)
                .ok_or_else(|| not_fetched(place))?;
            return Ok(file.path().to_owned());
        }
        if let Some(source) = place.git() {
            return self.check_out(place, source).await;
        }
        let path = place.archive_file().ok_or_else(|| not_fetched(place))?;
        let archive = self.root.join(path);
        archive.canonicalize().map_err(|error| {
            let message = format!("cannot read the archive {}: {error}", archive.display());
            Failure::new(Exit::NotFound, message, "correct the path in goondan.yaml")
        })
    }

    /// Returns the archive of a commit; each repository is fetched once.
    async fn check_out(
        &mut self,
        place: &Requirement,
        source: &GitSource,
    ) -> Result<PathBuf, Failure> {
        if let Some(got) = self.check_outs.get(place.as_str()) {
            return Ok(got.archive.path().to_owned());
        }
        let source = source.clone();
        let taking = tokio::task::spawn_blocking(move || git::check_out(&source));
        let got = taking.await.map_err(std::io::Error::other)??;
        let path = got.archive.path().to_owned();
        self.check_outs
            .insert(place.as_str().to_owned(), Rc::new(got));
        Ok(path)
    }
}

/// Parses the place in the lockfile.
pub(super) fn place_of(name: &PackageName, locked: &LockedPackage) -> Result<Requirement, Failure> {
    locked.resolved.parse().map_err(|error| {
        Failure::new(
            Exit::Damaged,
            format!("goondan.lock has no valid source for `{name}`: {error}"),
            "remove it from the lockfile, then try again",
        )
    })
}

fn not_fetched(place: &Requirement) -> Failure {
    Failure::new(
        Exit::Usage,
        format!("this version cannot fetch packages from `{place}`"),
        "require a range of versions, a folder (`file:PATH`) or an archive (`file:PATH.tgz`)",
    )
}

/// Lockfile entry of a checked package, with the requested permissions as granted.
fn locked(
    stored: &PackageStored,
    resolved: String,
) -> Result<(PackageName, LockedPackage), Failure> {
    let unexpected = |what: String| {
        Failure::new(
            Exit::Internal,
            format!("the daemon's answer is incomplete: {what}"),
            "for details: `gdn logs --all`",
        )
    };
    let name = stored.name.parse();
    let version = Version::parse(&stored.version);
    let integrity = stored.integrity.parse();
    let tree = stored.tree.parse();
    let mut requires = Requires::new();
    for (name, required) in &stored.requires {
        let name = name.parse();
        let required = required.parse();
        requires.insert(
            name.map_err(|error| unexpected(format!("{error}")))?,
            required.map_err(|error| unexpected(format!("{error}")))?,
        );
    }
    let locked = LockedPackage {
        version: version.map_err(|error| unexpected(format!("{error}")))?,
        resolved,
        integrity: Some(integrity.map_err(|error| unexpected(format!("{error}")))?),
        tree: tree.map_err(|error| unexpected(format!("{error}")))?,
        requires,
        granted: stored.permissions.clone(),
    };
    Ok((
        name.map_err(|error| unexpected(format!("{error}")))?,
        locked,
    ))
}

/// `file:` requirement with the path relative to the project.
pub(super) fn required_as(path: &Path, root: &Path) -> Result<Requirement, Failure> {
    let common = path.components().zip(root.components());
    let common = common.take_while(|(one, other)| one == other).count();
    let mut way = PathBuf::new();
    root.components().skip(common).for_each(|_| way.push(".."));
    path.components()
        .skip(common)
        .for_each(|part| way.push(part));
    let invalid = |why: String| Failure::new(Exit::Usage, why, "choose another path");
    let way = way.to_str().filter(|way| !way.is_empty());
    let way = way.ok_or_else(|| invalid("a project cannot be its own package".to_owned()))?;
    let requirement: Requirement = format!("file:{way}")
        .parse()
        .map_err(|error| invalid(format!("{error}")))?;
    if path.is_dir() != requirement.folder().is_some() {
        return Err(invalid(format!(
            "`{way}` is neither a folder nor an archive (.tgz, .tar.gz or .tar)"
        )));
    }
    Ok(requirement)
}
