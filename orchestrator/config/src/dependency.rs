//! A required package and its accessible resources.

use goondan_packages::{PackageName, Requirement};

use crate::kind::ResourceKind;
use crate::place::SourceLocation;

/// Kinds of resources that other packages can refer to.
pub(crate) const SHARED_KINDS: [ResourceKind; 3] = [
    ResourceKind::TOOL,
    ResourceKind::EXTENSION,
    ResourceKind::CONNECTOR,
];

/// A required package and the place of the requirement.
#[derive(Debug, Clone)]
pub(crate) struct Dependency {
    pub(crate) name: PackageName,
    pub(crate) requirement: Requirement,
    pub(crate) place: SourceLocation,
}
