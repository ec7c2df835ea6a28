//! Installing: what is required is chosen, fetched where it is not there yet, and locked.

use std::collections::BTreeMap;
use std::convert::Infallible;

use goondan_packages::{
    Candidate, LOCK_FILE, Lock, Locked, PackageName, Requirement, Requires, ResolveError, Store,
    Supply, resolve, tree_digest,
};

use super::fetch::{Expected, Fetcher};
use super::plan::{Folder, Plan};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

/// What the lockfile counts for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// What is locked is installed; where it does not fit, it is chosen anew.
    Locked,
    /// What is locked is installed, or nothing.
    Frozen,
    /// Everything is chosen anew, so that it does not matter what came before.
    Anew,
}

/// What came of it. The lockfile is not written yet.
pub(super) struct Installed {
    pub(super) lock: Lock,
    pub(super) folders: usize,
    /// How many packages were not there before.
    pub(super) stored: usize,
}

/// Installs what a project requires.
pub(super) async fn install(
    plan: &Plan,
    mode: Mode,
    context: &Context,
) -> Result<Installed, Failure> {
    let folders = plan.folders()?;
    let required = folders.values().map(|folder| &folder.requires);
    let required: Vec<&Requires> = required.chain([&plan.requires]).collect();
    let is_folder = |name: &PackageName| folders.contains_key(name);
    let lacks = plan.lock.lacks(required.iter().copied(), is_folder);
    let mut fetcher = Fetcher::new(context, &plan.root);
    let lock = match (mode, lacks) {
        (Mode::Locked | Mode::Frozen, None) => plan.lock.clone(),
        (Mode::Frozen, Some(why)) => {
            return Err(Failure::new(
                Exit::Conflict,
                format!("{LOCK_FILE} does not fit what is required: {why}"),
                format!(
                    "run `{}` and commit {LOCK_FILE}",
                    context.command("package install")
                ),
            ));
        }
        (Mode::Locked | Mode::Anew, _) => choose(plan, &folders, &required, &mut fetcher).await?,
    };
    let store = Store::of(&context.state_root);
    for (name, locked) in lock.packages() {
        if tree_digest(&store.tree(&locked.tree)).is_ok_and(|there| there == locked.tree) {
            continue;
        }
        let place: Requirement = locked.resolved.parse().map_err(|error| {
            let message = format!("{LOCK_FILE} says nowhere to get `{name}` from: {error}");
            Failure::new(
                Exit::Damaged,
                message,
                "remove it from the lockfile, then try again",
            )
        })?;
        let expected = Expected {
            name: Some(name),
            version: Some(&locked.version),
            integrity: locked.integrity.as_ref(),
            tree: Some(locked.tree),
        };
        fetcher.fetch(&place, expected).await?;
    }
    Ok(Installed {
        lock,
        folders: folders.len(),
        stored: fetcher.stored,
    })
}

/// What can be had without a registry: the folders, and the places that are named.
struct Named {
    versions: BTreeMap<PackageName, Candidate>,
}

impl Supply for Named {
    type Error = Infallible;

    fn candidates(&self, name: &PackageName) -> Result<Vec<Candidate>, Infallible> {
        Ok(self.versions.get(name).cloned().into_iter().collect())
    }
}

/// Chooses a version of each package, and fetches those that are named by their place.
async fn choose(
    plan: &Plan,
    folders: &BTreeMap<PackageName, Folder>,
    required: &[&Requires],
    fetcher: &mut Fetcher<'_>,
) -> Result<Lock, Failure> {
    let mut placed: BTreeMap<PackageName, (&Requirement, Locked)> = BTreeMap::new();
    // The project, which comes last, is asked first.
    for (name, place) in required.iter().rev().flat_map(|it| it.iter()) {
        if place.range().is_some() || folders.contains_key(name) {
            continue;
        }
        if place.archive_file().is_some() && plan.requires.get(name) != Some(place) {
            return Err(foreign("a folder that is required", name, place));
        }
        match placed.get(name) {
            Some((known, _)) if *known == place => {}
            Some((known, _)) => return Err(two_places(name, known, place)),
            None => {
                let expected = Expected {
                    name: Some(name),
                    ..Expected::default()
                };
                let (_, locked) = fetcher.fetch(place, expected).await?;
                check_places(name, &locked, plan)?;
                placed.insert(name.clone(), (place, locked));
            }
        }
    }
    let of_folders = folders.iter().map(|(name, folder)| {
        let (version, requires) = (folder.version.clone(), folder.requires.clone());
        (name.clone(), Candidate { version, requires })
    });
    let of_places = placed.iter().map(|(name, (_, locked))| {
        let (version, requires) = (locked.version.clone(), locked.requires.clone());
        (name.clone(), Candidate { version, requires })
    });
    let named = Named {
        versions: of_folders.chain(of_places).collect(),
    };
    let taken = resolve(&plan.requires, &named).map_err(|error| conflict(&error))?;
    let locked = placed.into_iter().map(|(name, (_, locked))| (name, locked));
    Ok(Lock::new(
        locked
            .filter(|(name, _)| taken.contains_key(name))
            .collect(),
    ))
}

fn conflict<E: std::error::Error + 'static>(error: &ResolveError<E>) -> Failure {
    let hint = "change what goondan.yaml requires, or ask for other versions of what is between";
    Failure::of(Exit::Conflict, error, hint)
}

fn two_places(name: &PackageName, one: &Requirement, other: &Requirement) -> Failure {
    Failure::new(
        Exit::Conflict,
        format!("`{name}` is required from two places: `{one}` and `{other}`"),
        "one version of each package is used: require it from one place",
    )
}

/// Only the project and its folders say where packages come from: what is fetched may name versions alone, or the
/// place that the project names, too.
fn check_places(name: &PackageName, locked: &Locked, plan: &Plan) -> Result<(), Failure> {
    let other = locked
        .requires
        .iter()
        .find(|(inner, place)| place.range().is_none() && plan.requires.get(*inner) != Some(place));
    match other {
        None => Ok(()),
        Some((inner, place)) => Err(foreign(
            &format!("`{name}` {}", locked.version),
            inner,
            place,
        )),
    }
}

fn foreign(who: &str, name: &PackageName, place: &Requirement) -> Failure {
    Failure::new(
        Exit::Conflict,
        format!("{who} wants `{name}` from `{place}`, which only the project can say"),
        format!("if you want that, too, require `{name}` from there in goondan.yaml"),
    )
}
