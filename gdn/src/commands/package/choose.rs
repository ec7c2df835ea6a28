//! Chooses the versions of a project's packages, from named places and from registries.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt as _, TryStreamExt as _};
use goondan_packages::limits::{PACKAGES_MAX, REGISTRY_REQUESTS_MAX};
use goondan_packages::{
    Candidate, Conflict, Lock, LockedPackage, OfferedVersion, PackageName, PackageSource,
    Packument, Requirement, Requires, ResolveError, Version, resolve,
};

use super::fetch::{FetchExpectation, Fetcher};
use super::plan::{Folder, ProjectPackages};
use super::signatures;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::text;

/// Maximum number of skipped versions that an explanation lists, for each package.
const PASSED_OVER_SHOWN: usize = 3;

/// Constraints on the choice.
#[derive(Debug, Default)]
pub(super) struct ResolutionRules {
    /// Minimum age of a version in its registry, in days.
    pub(super) min_age_days: u32,
    /// Packages to choose again while all others stay locked; if none, all are chosen again.
    pub(super) only: Option<BTreeSet<PackageName>>,
}

impl ResolutionRules {
    /// Returns the locked version if the package must keep it.
    fn kept<'p>(&self, name: &PackageName, plan: &'p ProjectPackages) -> Option<&'p LockedPackage> {
        let only = self.only.as_ref()?;
        plan.lock.get(name).filter(|_| !only.contains(name))
    }

    /// Fetches a package from its registry and removes versions that are not allowed. A locked version may be younger
    /// than the minimum age, because the user has already accepted it.
    pub(super) async fn offered(
        &self,
        name: &PackageName,
        locked: Option<&LockedPackage>,
        fetcher: &Fetcher<'_>,
    ) -> Result<Packument, Failure> {
        let mut found = fetcher.registry.packument(name).await?;
        let now = jiff::Timestamp::now();
        found.pass_over(|version, offer| {
            let is_locked = locked.is_some_and(|it| it.version == *version);
            if is_locked {
                None
            } else {
                too_young(offer, self.min_age_days, now)
            }
        });
        Ok(found)
    }
}

/// Reason if a version is too young.
fn too_young(offer: &OfferedVersion, min_age_days: u32, now: jiff::Timestamp) -> Option<String> {
    if min_age_days == 0 {
        return None;
    }
    let published = offer.published.as_deref();
    let published: Option<jiff::Timestamp> = published.and_then(|it| it.parse().ok());
    let Some(published) = published else {
        return Some("its registry does not report its publication time".to_owned());
    };
    let age = now
        .as_millisecond()
        .saturating_sub(published.as_millisecond());
    let wanted = i64::from(min_age_days) * 24 * 3_600_000;
    (age < wanted).then(|| {
        let age = u64::try_from(age).unwrap_or(0);
        format!("it was published {} ago", text::duration(age))
    })
}

/// The newest versions of a package that were skipped, with the reasons.
pub(super) fn passed_over(name: &PackageName, packument: &Packument) -> Vec<String> {
    let newest = packument.passed_over.iter().rev().take(PASSED_OVER_SHOWN);
    newest
        .map(|(version, why)| format!("skipped `{name}` {version}: {why}"))
        .collect()
}

/// Result of the choice.
pub(super) struct VersionSelection {
    pub(super) lock: Lock,
    pub(super) notes: Vec<String>,
}

/// State of the choice.
struct Chooser<'c> {
    plan: &'c ProjectPackages,
    rules: &'c ResolutionRules,
    folders: &'c BTreeMap<PackageName, Folder>,
    /// Checked packages that are named by their place.
    placed: BTreeMap<PackageName, LockedPackage>,
    offered: BTreeMap<PackageName, Packument>,
}

/// Chooses a version of each package. Missing packages are fetched and checked; nothing is stored.
pub(super) async fn choose(
    plan: &ProjectPackages,
    folders: &BTreeMap<PackageName, Folder>,
    required: &[&Requires],
    rules: &ResolutionRules,
    fetcher: &mut Fetcher<'_>,
) -> Result<VersionSelection, Failure> {
    let mut chooser = Chooser {
        plan,
        rules,
        folders,
        placed: BTreeMap::new(),
        offered: BTreeMap::new(),
    };
    chooser.look_at_places(required, fetcher).await?;
    chooser
        .ask_for(chooser.needed_first(required), fetcher)
        .await?;
    let taken = loop {
        match resolve(&plan.requires, &chooser) {
            Ok(taken) => break taken,
            Err(ResolveError::Supply { name, .. }) => {
                chooser.ask_for(vec![name], fetcher).await?;
            }
            Err(ResolveError::Conflict(conflict)) => return Err(chooser.conflict(conflict)),
            Err(error @ ResolveError::TooMany) => {
                return Err(Failure::of(
                    Exit::Conflict,
                    &error,
                    "require fewer packages",
                ));
            }
        }
    };
    chooser.lock(&taken, fetcher).await
}

/// A package has not been fetched from its registry yet.
#[derive(Debug, thiserror::Error)]
#[error("it was not requested yet")]
struct MissingPackument;

impl PackageSource for Chooser<'_> {
    type Error = MissingPackument;

    fn candidates(&self, name: &PackageName) -> Result<Vec<Candidate>, MissingPackument> {
        let one = |version: &Version, requires: &Requires| Candidate {
            version: version.clone(),
            requires: requires.clone(),
        };
        if let Some(folder) = self.folders.get(name) {
            return Ok(vec![one(&folder.version, &folder.requires)]);
        }
        let fixed = self
            .placed
            .get(name)
            .or_else(|| self.rules.kept(name, self.plan));
        if let Some(locked) = fixed {
            return Ok(vec![one(&locked.version, &locked.requires)]);
        }
        let offered = self.offered.get(name).ok_or(MissingPackument)?;
        let offers = offered.offers.iter();
        Ok(offers
            .map(|(version, offer)| one(version, &offer.requires))
            .collect())
    }
}

impl Chooser<'_> {
    /// Fetches and checks the packages that are named by their place.
    async fn look_at_places(
        &mut self,
        required: &[&Requires],
        fetcher: &mut Fetcher<'_>,
    ) -> Result<(), Failure> {
        let mut places: BTreeMap<&PackageName, &Requirement> = BTreeMap::new();
        // The project comes last in the list and takes precedence.
        for (name, place) in required.iter().rev().flat_map(|it| it.iter()) {
            if place.range().is_some() || self.folders.contains_key(name) {
                continue;
            }
            if place.archive_file().is_some() && self.plan.requires.get(name) != Some(place) {
                return Err(foreign("a required folder", name, place));
            }
            match places.insert(name, place) {
                Some(known) if known != place => return Err(two_places(name, known, place)),
                _ => {}
            }
        }
        for (name, place) in places {
            let kept = self.rules.kept(name, self.plan);
            let locked = match kept.filter(|it| it.is_from(place.as_str())) {
                Some(kept) => kept.clone(),
                None => {
                    if let Some(address) = place.archive_url() {
                        fetcher.registry.name(address);
                    }
                    let expected = FetchExpectation {
                        name: Some(name),
                        ..FetchExpectation::default()
                    };
                    fetcher.check(place, &expected).await?.1
                }
            };
            check_places(name, &locked, self.plan)?;
            self.placed.insert(name.clone(), locked);
        }
        Ok(())
    }

    /// Packages that registries will be queried for in any case.
    fn needed_first(&self, required: &[&Requires]) -> Vec<PackageName> {
        let placed = self.placed.values().map(|it| &it.requires);
        let all = required.iter().copied().chain(placed);
        let names: BTreeSet<&PackageName> = all.flat_map(BTreeMap::keys).collect();
        let unknown = names
            .into_iter()
            .filter(|name| self.candidates(name).is_err());
        unknown.cloned().collect()
    }

    /// Queries registries, with limited concurrency.
    async fn ask_for(
        &mut self,
        names: Vec<PackageName>,
        fetcher: &Fetcher<'_>,
    ) -> Result<(), Failure> {
        if self.offered.len().saturating_add(names.len()) > PACKAGES_MAX {
            let error = ResolveError::<MissingPackument>::TooMany;
            return Err(Failure::of(
                Exit::Conflict,
                &error,
                "require fewer packages",
            ));
        }
        let (plan, rules) = (self.plan, self.rules);
        let asking = futures_util::stream::iter(names)
            .map(|name| async move {
                let found = rules.offered(&name, plan.lock.get(&name), fetcher).await?;
                Ok::<_, Failure>((name, found))
            })
            .buffer_unordered(REGISTRY_REQUESTS_MAX);
        let found: Vec<_> = asking.try_collect().await?;
        self.offered.extend(found);
        Ok(())
    }

    fn conflict(&self, mut conflict: Conflict) -> Failure {
        let mentions = |name: &PackageName| {
            let quoted = format!("`{name}`");
            conflict.lines.iter().any(|line| line.contains(&quoted))
        };
        let mentioned = self.offered.iter().filter(|(name, _)| mentions(name));
        let passed: Vec<String> = mentioned
            .flat_map(|(name, packument)| passed_over(name, packument))
            .collect();
        let hint = if !passed.is_empty() {
            "change the requirements in goondan.yaml; `--min-release-age 0` allows versions of any age"
        } else if self.rules.only.is_some() {
            "the other packages stay locked; to update all: `gdn package update`"
        } else {
            "change the requirements in goondan.yaml, or require other versions of the packages in between"
        };
        conflict.lines.extend(passed);
        Failure::new(Exit::Conflict, conflict.to_string(), hint)
    }

    /// Builds the lockfile entries of the chosen versions. Versions already in the lockfile are not fetched again.
    async fn lock(
        &self,
        taken: &BTreeMap<PackageName, Version>,
        fetcher: &mut Fetcher<'_>,
    ) -> Result<VersionSelection, Failure> {
        let (mut packages, mut notes) = (BTreeMap::new(), Vec::new());
        let mut new = Vec::new();
        for (name, version) in taken {
            if self.folders.contains_key(name) {
                continue;
            }
            let fixed = self
                .placed
                .get(name)
                .or_else(|| self.rules.kept(name, self.plan));
            if let Some(fixed) = fixed {
                packages.insert(name.clone(), fixed.clone());
                continue;
            }
            let offered = self.offered.get(name);
            let Some(offer) = offered.and_then(|it| it.offers.get(version)) else {
                continue;
            };
            if let Some(why) = &offer.deprecated {
                let why = text::fit(&text::one_line(why), 200);
                notes.push(format!("`{name}` {version} is deprecated: {why}"));
            }
            match self.known(name, version, offer)? {
                Some(known) => drop(packages.insert(name.clone(), known)),
                None => new.push((name, version, offer)),
            }
        }
        signatures::check(&fetcher.registry, &new).await?;
        let archives = new.iter();
        let archives = archives.map(|(_, _, it)| (it.archive.clone(), Some(it.integrity.clone())));
        fetcher.download(archives.collect()).await?;
        for (name, version, offer) in new {
            let locked = check(name, version, offer, fetcher).await?;
            packages.insert(name.clone(), locked);
        }
        Ok(VersionSelection {
            lock: Lock::new(packages),
            notes,
        })
    }

    /// Existing lockfile entry of a registry version, which must match the registry.
    fn known(
        &self,
        name: &PackageName,
        version: &Version,
        offer: &OfferedVersion,
    ) -> Result<Option<LockedPackage>, Failure> {
        let locked = self.plan.lock.get(name);
        let Some(locked) = locked.filter(|it| it.version == *version) else {
            return Ok(None);
        };
        let is_of_registry = locked.resolved.starts_with("http");
        if !is_of_registry {
            return Ok(None);
        }
        let is_same = locked.integrity.as_ref() == Some(&offer.integrity)
            && locked.requires == offer.requires;
        if is_same {
            return Ok(Some(LockedPackage {
                resolved: offer.archive.clone(),
                ..locked.clone()
            }));
        }
        Err(Failure::new(
            Exit::Conflict,
            format!(
                "`{name}` {version} does not match the lockfile: its registry now lists another archive, with the SHA-512 {}",
                offer.integrity
            ),
            format!(
                "ask its authors; if the change is intended: `gdn package remove {name}`, then add it"
            ),
        ))
    }
}

/// Fetches and checks the archive of a registry version.
async fn check(
    name: &PackageName,
    version: &Version,
    offer: &OfferedVersion,
    fetcher: &mut Fetcher<'_>,
) -> Result<LockedPackage, Failure> {
    let place: Requirement = offer.archive.parse().map_err(|error| {
        Failure::new(
            Exit::Conflict,
            format!("the registry's address of `{name}` {version} cannot be used: {error}"),
            "nothing was changed: check the registry's address",
        )
    })?;
    let expected = FetchExpectation {
        name: Some(name),
        version: Some(version),
        integrity: Some(&offer.integrity),
        tree: None,
        requires: Some(&offer.requires),
    };
    let (_, locked) = fetcher.check(&place, &expected).await?;
    Ok(locked)
}

fn two_places(name: &PackageName, one: &Requirement, other: &Requirement) -> Failure {
    Failure::new(
        Exit::Conflict,
        format!("`{name}` is required from two places: `{one}` and `{other}`"),
        "a project uses one version of each package: require it from one place",
    )
}

/// Only the project and its folders may name places: fetched packages may require versions, or the same place that the
/// project names.
fn check_places(
    name: &PackageName,
    locked: &LockedPackage,
    plan: &ProjectPackages,
) -> Result<(), Failure> {
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
        format!(
            "{who} requires `{name}` from `{place}`; only the project can select such a source"
        ),
        format!("if you agree, require `{name}` from there in goondan.yaml"),
    )
}
