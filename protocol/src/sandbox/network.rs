//! Network access of confined programs (`SEC-3`).

use serde::{Deserialize, Serialize};

use super::ReachableHost;

/// Network access.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// No network.
    #[default]
    None,
    /// Everything the machine can reach, including its own services.
    Any,
    /// Only these hosts, through a proxy. Requires the level `full`.
    Allow(Vec<ReachableHost>),
}
