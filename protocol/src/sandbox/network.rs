//! What confined programs may reach over the network (`SEC-3`).

use serde::{Deserialize, Serialize};

use super::ReachableHost;

/// What may be reached over the network.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// Nothing.
    #[default]
    None,
    /// All that the machine itself can reach, its own services included.
    Any,
    /// These hosts, by a proxy. Only the level `full` has it.
    Allow(Vec<ReachableHost>),
}
