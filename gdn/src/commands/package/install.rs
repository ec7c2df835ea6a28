//! Installs packages: chooses versions, fetches what is missing, and builds the lockfile.

use std::collections::BTreeMap;

use goondan_packages::{LOCK_FILE, Lock, LockedPackage, PackageName, Requires, Store, tree_digest};

use super::choose::{ResolutionRules, VersionSelection, choose};
use super::consent::Consent;
use super::fetch::{FetchExpectation, Fetcher, place_of};
use super::plan::{Folder, ProjectPackages};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

/// Role of the lockfile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Installs locked versions, and chooses again if they do not fit.
    Locked,
    /// Installs locked versions, or fails.
    Frozen,
    /// Chooses everything again, independent of the current lockfile.
    Anew,
}

/// Result of an installation. The lockfile is not written yet.
pub(super) struct InstallResult {
    pub(super) lock: Lock,
    pub(super) folders: BTreeMap<PackageName, Folder>,
    /// Number of packages that were not in the store before.
    pub(super) stored: usize,
    /// Notes for the user about the chosen versions.
    pub(super) notes: Vec<String>,
}

/// Installs everything that a project requires, or nothing.
pub(super) async fn install(
    plan: &ProjectPackages,
    mode: Mode,
    rules: &ResolutionRules,
    consent: &Consent,
    fetcher: &mut Fetcher<'_>,
    context: &Context,
) -> Result<InstallResult, Failure> {
    let folders = plan.folders()?;
    let required = folders.values().map(|folder| &folder.requires);
    let required: Vec<&Requires> = required.chain([&plan.requires]).collect();
    let is_folder = |name: &PackageName| folders.contains_key(name);
    let lacks = plan.lock.lacks(required.iter().copied(), is_folder);
    let VersionSelection { lock, notes } = match (mode, lacks) {
        (Mode::Locked | Mode::Frozen, None) => VersionSelection {
            lock: plan.lock.clone(),
            notes: Vec::new(),
        },
        (Mode::Frozen, Some(why)) => {
            return Err(Failure::new(
                Exit::Conflict,
                format!("{LOCK_FILE} does not match the requirements: {why}"),
                format!(
                    "run `{}` and commit {LOCK_FILE}",
                    context.command("package install")
                ),
            ));
        }
        (Mode::Locked | Mode::Anew, _) => choose(plan, &folders, &required, rules, fetcher).await?,
    };
    context.check_format()?;
    let store = Store::of(&context.state_root);
    let is_there = |locked: &LockedPackage| {
        tree_digest(&store.tree(&locked.tree)).is_ok_and(|there| there == locked.tree)
    };
    let missing = lock.packages().filter(|(_, locked)| !is_there(locked));
    let missing: Vec<_> = missing.collect();
    check_all(&missing, fetcher).await?;
    let granted = consent.grant(&lock, &folders, mode == Mode::Frozen, fetcher, context)?;
    for (name, locked) in missing {
        fetcher.store(name, locked).await?;
    }
    Ok(InstallResult {
        folders,
        stored: fetcher.stored,
        lock: granted,
        notes,
    })
}

/// Fetches and checks all packages, before the first one is stored.
async fn check_all(
    missing: &[(&PackageName, &LockedPackage)],
    fetcher: &mut Fetcher<'_>,
) -> Result<(), Failure> {
    let mut archives = Vec::new();
    for (name, locked) in missing {
        if let Some(address) = place_of(name, locked)?.archive_url() {
            archives.push((address.to_owned(), locked.integrity.clone()));
        }
    }
    fetcher.download(archives).await?;
    for (name, locked) in missing {
        let place = place_of(name, locked)?;
        fetcher
            .check(&place, &FetchExpectation::locked(name, locked))
            .await?;
    }
    Ok(())
}
