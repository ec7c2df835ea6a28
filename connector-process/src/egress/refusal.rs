//! Why a program does not get where it wants to, as it is told.

use std::net::IpAddr;

use super::target::{NoHost, Target};

/// Why a program does not get where it wants to.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    /// What it asks for is no host.
    #[error(transparent)]
    NoHost(#[from] NoHost),
    /// It asks for something else than a proxy does.
    #[error("{0}")]
    NoRequest(&'static str),
    /// A host or a port that nobody has listed.
    #[error(
        "the sandbox of {caller} does not let programs reach `{target}`: it lists {listed}; a person can add it to \
         `network: {{allow: […]}}` of that sandbox"
    )]
    NotListed {
        target: Target,
        caller: String,
        listed: String,
    },
    /// A name that leads into the machine or its network.
    #[error(
        "`{target}` leads to {address}, which is private; a person who means that can add the address to \
         `network: {{allow: […]}}` of the sandbox of {caller}, beside the name"
    )]
    Private {
        target: Target,
        address: IpAddr,
        caller: String,
    },
    /// An address where no program has any business, whoever lists it.
    #[error("`{target}` leads to {address}, where no sandbox leads")]
    Never { target: Target, address: IpAddr },
    /// A name that leads nowhere.
    #[error("`{target}` cannot be resolved: {why}")]
    Unresolved { target: Target, why: String },
    /// A host that does not answer.
    #[error("`{target}` cannot be reached: {why}")]
    Unreachable { target: Target, why: String },
}

/// Whose fault it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The program's: it does not say what it wants.
    Asked,
    /// Nobody has allowed it.
    Denied,
    /// It is allowed, and does not work.
    Failed,
}

impl Refusal {
    pub(super) fn fault(&self) -> Fault {
        match self {
            Self::NoHost(_) | Self::NoRequest(_) => Fault::Asked,
            Self::NotListed { .. } | Self::Private { .. } | Self::Never { .. } => Fault::Denied,
            Self::Unresolved { .. } | Self::Unreachable { .. } => Fault::Failed,
        }
    }
}
