//! A package that is required, and what of it can be referred to.

use goondan_packages::{PackageName, Requirement};

use crate::kind::Kind;
use crate::place::Place;

/// The kinds whose resources can be referred to from outside of their package.
pub(crate) const SHARED_KINDS: [Kind; 3] = [Kind::TOOL, Kind::EXTENSION, Kind::CONNECTOR];

/// A package that is required, and where that stands.
#[derive(Debug, Clone)]
pub(crate) struct Dependency {
    pub(crate) name: PackageName,
    pub(crate) requirement: Requirement,
    pub(crate) place: Place,
}
