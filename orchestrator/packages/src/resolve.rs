//! Version resolution.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt;

use nodejs_semver::Version;
use pubgrub::{
    Dependencies, DependencyProvider, DerivationTree, External, PackageResolutionStatistics,
    PubGrubError,
};

use crate::limits::{EXPLAINED_MAX, PACKAGES_MAX, VERSIONS_MAX};
use crate::name::PackageName;
use crate::requirement::Requires;
use crate::versions::Versions;

/// An available version of a package.
#[derive(Debug, Clone)]
pub struct Candidate {
    pub version: Version,
    pub requires: Requires,
}

/// Source of available versions.
pub trait PackageSource {
    type Error: Error + 'static;

    /// Returns the versions of a package, unordered; empty if the package does not exist.
    ///
    /// # Errors
    ///
    /// The versions cannot be determined.
    fn candidates(&self, name: &PackageName) -> Result<Vec<Candidate>, Self::Error>;
}

/// Reason why resolution failed.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError<E: Error + 'static> {
    /// No set of versions satisfies all requirements.
    #[error("{0}")]
    Conflict(Conflict),
    /// The available versions are unknown.
    #[error("failed to determine the versions of `{name}`")]
    Supply {
        name: PackageName,
        #[source]
        source: E,
    },
    #[error(
        "more than {PACKAGES_MAX} packages are required, or one has more than {VERSIONS_MAX} versions"
    )]
    TooMany,
}

/// Requirements that cannot be satisfied together, as chains from the project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    pub lines: Vec<String>,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no versions of the packages meet all requirements:")?;
        for line in &self.lines {
            write!(f, "\n  {line}")?;
        }
        Ok(())
    }
}

/// Chooses the newest version of each package such that all requirements are satisfied.
///
/// # Errors
///
/// [`ResolveError`]
pub fn resolve<S: PackageSource>(
    requires: &Requires,
    supply: &S,
) -> Result<BTreeMap<PackageName, Version>, ResolveError<S::Error>> {
    let provider = Provider {
        requires,
        supply,
        known: RefCell::default(),
    };
    let root = Version::from((0_u64, 0_u64, 0_u64));
    match pubgrub::resolve(&provider, PackageNode(None), root) {
        Ok(taken) => {
            let named = taken.into_iter();
            Ok(named
                .filter_map(|(node, version)| Some((node.0?, version)))
                .collect())
        }
        Err(PubGrubError::NoSolution(tree)) => Err(ResolveError::Conflict(provider.explain(&tree))),
        Err(
            PubGrubError::ErrorRetrievingDependencies { source, .. }
            | PubGrubError::ErrorChoosingVersion { source, .. }
            | PubGrubError::ErrorInShouldCancel(source),
        ) => Err(match source {
            ResolveStop::Supply { name, source } => ResolveError::Supply { name, source },
            ResolveStop::TooMany => ResolveError::TooMany,
        }),
    }
}

/// A package, or the project if `None`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct PackageNode(Option<PackageName>);

impl fmt::Display for PackageNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(name) => write!(f, "`{name}`"),
            None => f.write_str("the project"),
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum ResolveStop<E: Error + 'static> {
    #[error("failed to determine the versions of `{name}`")]
    Supply {
        name: PackageName,
        #[source]
        source: E,
    },
    #[error("limit exceeded")]
    TooMany,
}

struct Provider<'a, S: PackageSource> {
    requires: &'a Requires,
    supply: &'a S,
    known: RefCell<BTreeMap<PackageName, BTreeMap<Version, Requires>>>,
}

impl<S: PackageSource> Provider<'_, S> {
    /// Loads the versions of a package once.
    fn learn(&self, name: &PackageName) -> Result<(), ResolveStop<S::Error>> {
        if self.known.borrow().contains_key(name) {
            return Ok(());
        }
        let found = self
            .supply
            .candidates(name)
            .map_err(|source| ResolveStop::Supply {
                name: name.clone(),
                source,
            })?;
        let mut known = self.known.borrow_mut();
        if found.len() > VERSIONS_MAX || known.len() >= PACKAGES_MAX {
            return Err(ResolveStop::TooMany);
        }
        let found = found.into_iter();
        let found = found.filter_map(|it| Some((it.version.clone(), besides_itself(name, it)?)));
        known.insert(name.clone(), found.collect());
        Ok(())
    }

    fn requires_of(&self, node: &PackageNode, version: &Version) -> Requires {
        match &node.0 {
            None => self.requires.clone(),
            Some(name) => {
                let known = self.known.borrow();
                let found = known.get(name).and_then(|versions| versions.get(version));
                found.cloned().unwrap_or_default()
            }
        }
    }

    /// Returns the requirements that conflict, starting at the project.
    fn explain(&self, tree: &DerivationTree<PackageNode, Versions, String>) -> Conflict {
        let mut edges = BTreeSet::new();
        gather(tree, &mut edges);
        let mut lines = Vec::new();
        let mut reached = BTreeSet::from([PackageNode(None)]);
        let mut waiting = std::collections::VecDeque::from([PackageNode(None)]);
        while let Some(node) = waiting.pop_front() {
            for (from, versions, to) in edges.iter().filter(|(from, ..)| *from == node) {
                lines.extend(self.edge(from, versions, to));
                if reached.insert(to.clone()) {
                    waiting.push_back(to.clone());
                }
            }
        }
        for node in &reached {
            lines.extend(self.what_there_is(node, &edges));
        }
        lines.dedup();
        lines.truncate(EXPLAINED_MAX);
        Conflict { lines }
    }

    /// Describes the requirement of one package on another, one line per distinct requirement.
    fn edge(&self, from: &PackageNode, versions: &[Version], to: &PackageNode) -> Vec<String> {
        let Some(to) = &to.0 else {
            return Vec::new();
        };
        if from.0.is_none() {
            let required = self.requires.get(to);
            return required
                .map(|it| format!("the project requires `{to}` {it}"))
                .into_iter()
                .collect();
        }
        let mut by_text: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for version in versions.iter().rev() {
            if let Some(required) = self.requires_of(from, version).get(to) {
                let said = by_text.entry(required.to_string()).or_default();
                said.push(version.to_string());
            }
        }
        let said = by_text.into_iter();
        said.map(|(required, versions)| {
            format!("{from} {} requires `{to}` {required}", shortened(&versions))
        })
        .collect()
    }

    /// Describes the available versions of a conflicting package that has no requirements.
    fn what_there_is(
        &self,
        node: &PackageNode,
        edges: &BTreeSet<(PackageNode, Vec<Version>, PackageNode)>,
    ) -> Option<String> {
        let name = node.0.as_ref()?;
        if edges.iter().any(|(from, ..)| from == node) {
            return None;
        }
        let known = self.known.borrow();
        let versions = known.get(name)?;
        if versions.is_empty() {
            return Some(format!("package `{name}` does not exist"));
        }
        let versions: Vec<String> = versions.keys().rev().map(ToString::to_string).collect();
        Some(format!("there is `{name}` {}", shortened(&versions)))
    }
}

/// Returns a version's requirements without its own package. `None` if it requires another version
/// of itself, which can never be satisfied.
fn besides_itself(name: &PackageName, candidate: Candidate) -> Option<Requires> {
    let Candidate {
        version,
        mut requires,
    } = candidate;
    let own = requires.remove(name);
    let range = own.as_ref().and_then(|requirement| requirement.range());
    range
        .is_none_or(|range| range.satisfies(&version))
        .then_some(requires)
}

/// Shortens a list to the newest versions.
fn shortened(versions: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown: Vec<&str> = versions.iter().take(SHOWN).map(String::as_str).collect();
    let shown = shown.join(", ");
    match versions.len().checked_sub(SHOWN) {
        None | Some(0) => shown,
        Some(more) => format!("{shown} and {more} more"),
    }
}

type DependencyEdges = BTreeSet<(PackageNode, Vec<Version>, PackageNode)>;

fn gather(tree: &DerivationTree<PackageNode, Versions, String>, edges: &mut DependencyEdges) {
    let mut waiting = vec![tree];
    while let Some(tree) = waiting.pop() {
        match tree {
            DerivationTree::External(External::FromDependencyOf(from, versions, to, _)) => {
                let versions = versions.listed().cloned().collect();
                edges.insert((from.clone(), versions, to.clone()));
            }
            DerivationTree::External(_) => {}
            DerivationTree::Derived(derived) => {
                waiting.extend([derived.cause1.as_ref(), derived.cause2.as_ref()]);
            }
        }
    }
}

impl<S: PackageSource> DependencyProvider for Provider<'_, S> {
    type P = PackageNode;
    type V = Version;
    type VS = Versions;
    /// Decision order: the package with the fewest remaining versions first, then by name, so that
    /// the result is deterministic.
    type Priority = (Reverse<usize>, Reverse<PackageNode>);
    type M = String;
    type Err = ResolveStop<S::Error>;

    fn prioritize(
        &self,
        package: &PackageNode,
        range: &Versions,
        _conflicts: &PackageResolutionStatistics,
    ) -> Self::Priority {
        (Reverse(range.listed().count()), Reverse(package.clone()))
    }

    fn choose_version(
        &self,
        _package: &PackageNode,
        range: &Versions,
    ) -> Result<Option<Version>, Self::Err> {
        Ok(range.listed().next_back().cloned())
    }

    fn get_dependencies(
        &self,
        package: &PackageNode,
        version: &Version,
    ) -> Result<Dependencies<PackageNode, Versions, String>, Self::Err> {
        let requires = self.requires_of(package, version);
        let mut needs = Vec::with_capacity(requires.len());
        for (name, requirement) in requires {
            self.learn(&name)?;
            let known = self.known.borrow();
            let there = known.get(&name).into_iter().flat_map(BTreeMap::keys);
            let fits = there.filter(|version| match requirement.range() {
                Some(range) => range.satisfies(version),
                // The source has no further versions.
                None => true,
            });
            let fits = Versions::of(fits.cloned());
            needs.push((PackageNode(Some(name)), fits));
        }
        Ok(Dependencies::Available(needs.into_iter().collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type PackageTable<'l> = &'l [(&'l str, &'l str, &'l [(&'l str, &'l str)])];

    struct TestRegistry(BTreeMap<PackageName, Vec<Candidate>>);

    #[derive(Debug, thiserror::Error)]
    #[error("the shelf is out of reach")]
    struct OutOfReach;

    impl PackageSource for TestRegistry {
        type Error = OutOfReach;

        fn candidates(&self, name: &PackageName) -> Result<Vec<Candidate>, OutOfReach> {
            if name.as_str() == "unreachable" {
                return Err(OutOfReach);
            }
            Ok(self.0.get(name).cloned().unwrap_or_default())
        }
    }

    fn requires(listed: &[(&str, &str)]) -> Requires {
        let read = |(name, text): &(&str, &str)| (name.parse().unwrap(), text.parse().unwrap());
        listed.iter().map(read).collect()
    }

    fn shelf(listed: PackageTable<'_>) -> TestRegistry {
        let mut all: BTreeMap<PackageName, Vec<Candidate>> = BTreeMap::new();
        for (name, version, needs) in listed {
            all.entry(name.parse().unwrap())
                .or_default()
                .push(Candidate {
                    version: Version::parse(version).unwrap(),
                    requires: requires(needs),
                });
        }
        TestRegistry(all)
    }

    fn taken(shelf: &TestRegistry, wanted: &[(&str, &str)]) -> Vec<String> {
        let taken = resolve(&requires(wanted), shelf).unwrap();
        let taken = taken.iter();
        taken
            .map(|(name, version)| format!("{name}@{version}"))
            .collect()
    }

    fn conflict(shelf: &TestRegistry, wanted: &[(&str, &str)]) -> Vec<String> {
        match resolve(&requires(wanted), shelf) {
            Err(ResolveError::Conflict(conflict)) => conflict.lines,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn pkg_3_newest_versions_that_meet_all_requirements_are_chosen() {
        let shelf = shelf(&[
            ("a", "1.0.0", &[("c", "^1")]),
            ("a", "1.1.0", &[("c", "^2")]),
            ("b", "1.0.0", &[("c", "1.x")]),
            ("c", "1.0.0", &[]),
            ("c", "1.9.0", &[]),
            ("c", "2.0.0", &[]),
            ("c", "2.1.0-beta.1", &[]),
        ]);
        assert_eq!(taken(&shelf, &[("a", "^1")]), ["a@1.1.0", "c@2.0.0"]);
        // An older `a` is chosen instead of two versions of `c`.
        assert_eq!(
            taken(&shelf, &[("a", "^1"), ("b", "*")]),
            ["a@1.0.0", "b@1.0.0", "c@1.9.0"]
        );
        // A pre-release is chosen only if required.
        assert_eq!(taken(&shelf, &[("c", ">=2")]), ["c@2.0.0"]);
        assert_eq!(taken(&shelf, &[("c", "^2.1.0-alpha")]), ["c@2.1.0-beta.1"]);
        assert_eq!(taken(&shelf, &[]), Vec::<String>::new());
    }

    #[test]
    fn pkg_3_version_that_requires_another_one_of_itself_is_skipped() {
        let shelf = shelf(&[
            ("a", "1.0.0", &[("a", "^1")]),
            ("a", "1.1.0", &[("a", "^2")]),
            ("a", "2.0.0", &[("a", "<2")]),
        ]);
        assert_eq!(taken(&shelf, &[("a", "*")]), ["a@1.0.0"]);
        assert!(resolve(&requires(&[("a", ">1.0.0")]), &shelf).is_err());
    }

    #[test]
    fn pkg_3_conflict_is_reported_as_a_chain_from_the_project() {
        let shelf = shelf(&[
            ("a", "1.0.0", &[("b", "^1")]),
            ("b", "1.0.0", &[("d", "^1.4")]),
            ("b", "1.1.0", &[("d", "^1.4")]),
            ("c", "3.0.0", &[("d", "~1.2.0")]),
            ("d", "1.2.5", &[]),
            ("d", "1.4.0", &[]),
        ]);
        assert_eq!(
            conflict(&shelf, &[("a", "^1"), ("c", "^3")]),
            [
                "the project requires `a` ^1",
                "the project requires `c` ^3",
                "`a` 1.0.0 requires `b` ^1",
                "`c` 3.0.0 requires `d` ~1.2.0",
                "`b` 1.1.0, 1.0.0 requires `d` ^1.4",
                "there is `d` 1.4.0, 1.2.5",
            ]
        );
        assert_eq!(
            conflict(&shelf, &[("d", "^2")]),
            ["the project requires `d` ^2", "there is `d` 1.4.0, 1.2.5"]
        );
        assert_eq!(
            conflict(&shelf, &[("x", "*")]),
            ["the project requires `x` *", "package `x` does not exist"]
        );
        let unreachable = resolve(&requires(&[("unreachable", "*")]), &shelf);
        assert!(matches!(unreachable, Err(ResolveError::Supply { .. })));
    }

    /// True if the choice satisfies all requirements, checked independently.
    fn is_met(
        shelf: &TestRegistry,
        wanted: &Requires,
        taken: &BTreeMap<PackageName, Version>,
    ) -> bool {
        let of = |name: &PackageName, version: &Version| {
            let mut all = shelf.0[name].iter();
            all.find(|it| it.version == *version)
                .unwrap()
                .requires
                .clone()
        };
        let own = taken.iter().map(|(name, version)| of(name, version));
        own.chain([wanted.clone()])
            .flatten()
            .all(|(name, requirement)| {
                let version = taken.get(&name);
                version.is_some_and(|version| requirement.range().unwrap().satisfies(version))
            })
    }

    /// Tries every choice of versions: one or none of each package.
    fn any_choice(shelf: &TestRegistry, wanted: &Requires) -> bool {
        let mut choices = vec![BTreeMap::new()];
        for (name, versions) in &shelf.0 {
            let mut more = choices.clone();
            for choice in &choices {
                for it in versions {
                    let mut choice = choice.clone();
                    choice.insert(name.clone(), it.version.clone());
                    more.push(choice);
                }
            }
            choices = more;
        }
        choices.iter().any(|choice| is_met(shelf, wanted, choice))
    }

    #[test]
    fn pkg_3_resolution_is_order_independent_or_fails_if_impossible() {
        let names = ["a", "b", "c", "d"];
        let ranges = ["*", "^1", "^2", "1.x", "<2", ">=1.1", "~1.1.0", "2.0.0"];
        let versions = ["1.0.0", "1.1.0", "2.0.0"];
        let seed = fastrand::u64(..);
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut met, mut refused) = (0, 0);
        for _ in 0..300 {
            let mut all: BTreeMap<PackageName, Vec<Candidate>> = BTreeMap::new();
            let some = |rng: &mut fastrand::Rng, odds: u32| -> Requires {
                let mut listed = Vec::new();
                for name in names {
                    if rng.u32(..100) < odds {
                        listed.push((name, *rng.choice(&ranges).unwrap()));
                    }
                }
                requires(&listed)
            };
            for name in names {
                for version in versions {
                    if rng.u32(..4) > 0 {
                        all.entry(name.parse().unwrap())
                            .or_default()
                            .push(Candidate {
                                version: Version::parse(version).unwrap(),
                                requires: some(&mut rng, 35),
                            });
                    }
                }
            }
            let wanted = some(&mut rng, 50);
            let mut shelf = TestRegistry(all);
            let first = resolve(&wanted, &shelf);
            shelf
                .0
                .values_mut()
                .for_each(|versions| rng.shuffle(versions));
            match (first, resolve(&wanted, &shelf)) {
                (Ok(taken), Ok(again)) => {
                    assert_eq!(taken, again, "seed {seed}");
                    assert!(is_met(&shelf, &wanted, &taken), "seed {seed}");
                    met += 1;
                }
                (Err(ResolveError::Conflict(one)), Err(ResolveError::Conflict(two))) => {
                    assert_eq!(one, two, "seed {seed}");
                    assert!(!any_choice(&shelf, &wanted), "seed {seed}: {one}");
                    refused += 1;
                }
                other => panic!("seed {seed}: {other:?}"),
            }
        }
        assert!(met > 20 && refused > 20, "{met} {refused}");
    }
}
