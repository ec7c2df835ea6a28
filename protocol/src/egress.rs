//! The egress: the connector process through which confined programs of a workspace reach exactly
//! the hosts that a person listed for them (`SEC-3`).

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::ids::{AgentName, ConnectionName};
use crate::sandbox::ReachableHost;

/// Name of the egress among the connections of a workspace.
pub const EGRESS: &str = "egress";

/// Owner of the programs that an allow list applies to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EgressCaller {
    /// Programs started by an agent's tools and modules.
    Agent(AgentName),
    /// The program of a connection.
    Connection(ConnectionName),
    /// Modules of packages that an agent uses.
    Packages {
        /// The agent.
        agent: AgentName,
        /// The packages: one, unless extensions of several share a process.
        packages: Vec<String>,
    },
}

impl fmt::Display for EgressCaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent(name) => write!(f, "agent `{name}`"),
            Self::Connection(name) => write!(f, "connection `{name}`"),
            Self::Packages { agent, packages } => {
                let packages = packages.join("`, `");
                write!(f, "modules of `{packages}` of agent `{agent}`")
            }
        }
    }
}

/// Hosts that an owner's programs may reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AllowList {
    /// The owner.
    pub caller: EgressCaller,
    /// The hosts.
    pub allow: Vec<ReachableHost>,
}

/// An allow list and the socket through which its programs use the egress. Other lists do not apply
/// there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EgressDoor {
    /// Path of the socket, in a directory that only the user can access.
    pub socket: PathBuf,
    /// The allow list.
    pub list: AllowList,
}
