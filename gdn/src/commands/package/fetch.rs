//! Where packages come from: to the store, by the daemon, which alone writes there.

use std::path::{Path, PathBuf};

use goondan_packages::{Integrity, Locked, PackageName, Requirement, Store, TreeDigest, Version};
use goondan_protocol::control::{PackageStored, StorePackage};

use super::super::attach::attach_or_start;
use super::plan::{self, Plan};
use crate::client::Client;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

/// Fetches packages. The daemon is asked for nothing, and not even started, before the first one is missing.
pub(super) struct Fetcher<'f> {
    context: &'f Context,
    root: &'f Path,
    client: Option<Client>,
    /// How many were stored.
    pub(super) stored: usize,
}

/// What is known of a package before it is fetched.
#[derive(Debug, Default)]
pub(super) struct Expected<'e> {
    pub(super) name: Option<&'e PackageName>,
    pub(super) version: Option<&'e Version>,
    pub(super) integrity: Option<&'e Integrity>,
    pub(super) tree: Option<TreeDigest>,
}

impl<'f> Fetcher<'f> {
    pub(super) fn new(context: &'f Context, root: &'f Path) -> Self {
        Self {
            context,
            root,
            client: None,
            stored: 0,
        }
    }

    /// Brings the package that a place names into the store.
    pub(super) async fn fetch(
        &mut self,
        place: &Requirement,
        expected: Expected<'_>,
    ) -> Result<(PackageName, Locked), Failure> {
        let archive = match place.archive_file() {
            Some(path) => self.root.join(path),
            None => return Err(not_fetched(place)),
        };
        let archive = archive.canonicalize().map_err(|error| {
            let message = format!("there is no archive {}: {error}", archive.display());
            Failure::new(Exit::NotFound, message, "correct the path in goondan.yaml")
        })?;
        let stored = self.store(archive, &expected).await?;
        self.stored += 1;
        locked(&stored, place.to_string(), self.context)
    }

    async fn store(
        &mut self,
        archive: PathBuf,
        expected: &Expected<'_>,
    ) -> Result<PackageStored, Failure> {
        let request = StorePackage {
            name: expected.name.map(ToString::to_string),
            version: expected.version.map(ToString::to_string),
            archive,
            integrity: expected.integrity.map(ToString::to_string),
            tree: expected.tree.map(|tree| tree.to_string()),
        };
        let client = match &mut self.client {
            Some(client) => client,
            none => none.insert(attach_or_start(self.context, false).await?.0),
        };
        Ok(client.change(request).await?)
    }
}

fn not_fetched(place: &Requirement) -> Failure {
    Failure::new(
        Exit::Usage,
        format!("packages are not fetched from `{place}` by this version"),
        "require a folder (`file:PATH`) or an archive (`file:PATH.tgz`)",
    )
}

/// What the lockfile says of a package that is in the store now.
fn locked(
    stored: &PackageStored,
    resolved: String,
    context: &Context,
) -> Result<(PackageName, Locked), Failure> {
    let unexpected = |what: String| {
        Failure::new(
            Exit::Internal,
            what,
            "see what the daemon says: `gdn logs --all`",
        )
    };
    let tree: TreeDigest = stored
        .tree
        .parse()
        .map_err(|error| unexpected(format!("{error}")))?;
    let dir = Store::of(&context.state_root).tree(&tree);
    let (name, folder) = plan::read_named_folder(&dir, None)?;
    let integrity = stored
        .integrity
        .parse()
        .map_err(|error| unexpected(format!("{error}")))?;
    let locked = Locked {
        version: folder.version,
        resolved,
        integrity: Some(integrity),
        tree,
        requires: folder.requires,
    };
    Ok((name, locked))
}

/// The package that a person means, and how it is required: a path is taken from where they are, and written from
/// the project.
pub(super) async fn find(
    written: &str,
    plan: &Plan,
    context: &Context,
) -> Result<(PackageName, Requirement), Failure> {
    let path = written.strip_prefix("file:").unwrap_or(written);
    let full = std::path::absolute(path)?;
    let Ok(full) = full.canonicalize() else {
        return Err(Failure::new(
            Exit::NotFound,
            format!("there is neither a folder nor an archive `{written}`"),
            "name the path of one",
        ));
    };
    let requirement = required_as(&full, &plan.root)?;
    let name = if requirement.folder().is_some() {
        plan::read_named_folder(&full, None)?.0
    } else {
        let mut fetcher = Fetcher::new(context, &plan.root);
        fetcher.fetch(&requirement, Expected::default()).await?.0
    };
    Ok((name, requirement))
}

/// `file:` and the way from the project to a path.
fn required_as(path: &Path, root: &Path) -> Result<Requirement, Failure> {
    let common = path.components().zip(root.components());
    let common = common.take_while(|(one, other)| one == other).count();
    let mut way = PathBuf::new();
    root.components().skip(common).for_each(|_| way.push(".."));
    path.components()
        .skip(common)
        .for_each(|part| way.push(part));
    let invalid = |why: String| Failure::new(Exit::Usage, why, "name another path");
    let way = way.to_str().filter(|way| !way.is_empty());
    let way = way.ok_or_else(|| invalid("a project is no package of its own".to_owned()))?;
    let requirement: Requirement = format!("file:{way}")
        .parse()
        .map_err(|error| invalid(format!("{error}")))?;
    if path.is_dir() != requirement.folder().is_some() {
        return Err(invalid(format!(
            "`{way}` is neither a folder nor an archive by its name: .tgz, .tar.gz or .tar"
        )));
    }
    Ok(requirement)
}
