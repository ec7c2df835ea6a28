//! What confined programs may reach over the network (`SEC-3`).

use serde::{Deserialize, Serialize};

/// What may be reached over the network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// Nothing.
    #[default]
    None,
    /// All that the machine itself can reach, its own services included.
    Any,
}
