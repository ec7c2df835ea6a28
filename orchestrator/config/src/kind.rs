//! The kinds of resources.

use std::fmt;

/// The kinds of resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Package,
    Model,
    Agent,
    Swarm,
    Tool,
    Extension,
    Connector,
    Connection,
}

impl Kind {
    pub(crate) const ALL: [Self; 8] = [
        Self::Package,
        Self::Model,
        Self::Agent,
        Self::Swarm,
        Self::Tool,
        Self::Extension,
        Self::Connector,
        Self::Connection,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Package => "Package",
            Self::Model => "Model",
            Self::Agent => "Agent",
            Self::Swarm => "Swarm",
            Self::Tool => "Tool",
            Self::Extension => "Extension",
            Self::Connector => "Connector",
            Self::Connection => "Connection",
        }
    }

    /// The kind of exactly this name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
