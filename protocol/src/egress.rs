//! The egress: the connector process that lets confined programs of a workspace reach the hosts that a person has
//! listed for them, and nothing else (`SEC-3`).

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::ids::{AgentName, ConnectionName};
use crate::sandbox::ReachableHost;

/// The name of the egress among the connections of a workspace that needs one.
pub const EGRESS: &str = "egress";

/// Whose programs a list is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EgressCaller {
    /// What an agent's tools and modules start.
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

/// The hosts that somebody's programs may reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AllowList {
    /// Whose programs.
    pub caller: EgressCaller,
    /// The hosts.
    pub allow: Vec<ReachableHost>,
}

/// A list, and the socket at which the egress waits for those it is for: no other list holds there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EgressDoor {
    /// The path of the socket, in a directory that is for the user alone.
    pub socket: PathBuf,
    /// Who may reach what by it.
    pub list: AllowList,
}
