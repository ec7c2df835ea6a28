//! Reasons why a program cannot reach its target, as reported to it.

use std::net::IpAddr;

use super::target::{NoHost, Target};

/// Reason why a program cannot reach its target.
#[derive(Debug, thiserror::Error)]
pub(super) enum EgressDenial {
    /// The target is not a valid host.
    #[error(transparent)]
    NoHost(#[from] NoHost),
    /// The request is not one for a proxy.
    #[error("{0}")]
    NoRequest(&'static str),
    /// The host or port is not listed.
    #[error(
        "the sandbox of {caller} does not let programs reach `{target}`: it lists {listed}; a person can add it to \
         `network: {{allow: […]}}` of that sandbox"
    )]
    NotListed {
        target: Target,
        caller: String,
        listed: String,
    },
    /// The name resolves to an address of this machine or its network.
    #[error(
        "`{target}` resolves to {address}, which is private; to permit it, a person can add the address to \
         `network: {{allow: […]}}` of the sandbox of {caller}, next to the name"
    )]
    Private {
        target: Target,
        address: IpAddr,
        caller: String,
    },
    /// An address that no program may reach, even if it is listed.
    #[error("`{target}` resolves to {address}, which no sandbox may reach")]
    Never { target: Target, address: IpAddr },
    /// The name cannot be resolved.
    #[error("failed to resolve `{target}`: {why}")]
    Unresolved { target: Target, why: String },
    /// The host does not answer.
    #[error("failed to connect to `{target}`: {why}")]
    Unreachable { target: Target, why: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EgressFaultParty {
    /// The program: its request is invalid.
    Asked,
    /// The target is not permitted.
    Denied,
    /// The target is permitted, but the connection failed.
    Failed,
}

impl EgressDenial {
    pub(super) fn fault(&self) -> EgressFaultParty {
        match self {
            Self::NoHost(_) | Self::NoRequest(_) => EgressFaultParty::Asked,
            Self::NotListed { .. } | Self::Private { .. } | Self::Never { .. } => {
                EgressFaultParty::Denied
            }
            Self::Unresolved { .. } | Self::Unreachable { .. } => EgressFaultParty::Failed,
        }
    }
}
