//! Restricts the addresses of externally supplied URLs. The address that is checked is the one
//! connected to.

use std::net::{IpAddr, SocketAddr};

use goondan_connectors::{AddressReachability, reach_of};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// True if a request may go to an address.
pub(crate) fn may_reach(address: IpAddr, allows_private: bool) -> bool {
    match reach_of(address) {
        AddressReachability::Public => true,
        AddressReachability::Private => allows_private,
        AddressReachability::Never => false,
    }
}

/// The host resolves to a forbidden address.
#[derive(Debug, thiserror::Error)]
#[error("`{host}` resolves to {address}, {}", if *.is_private { "which is private" } else { "which no request may reach" })]
pub(crate) struct ForbiddenAddress {
    host: String,
    address: IpAddr,
    pub(crate) is_private: bool,
}

impl ForbiddenAddress {
    pub(crate) fn at(host: &str, address: IpAddr) -> Self {
        Self {
            host: host.to_owned(),
            address,
            is_private: reach_of(address) == AddressReachability::Private,
        }
    }

    /// Extracts this error from an error of the client, if it is the cause.
    pub(crate) fn of(error: &reqwest::Error) -> Option<&Self> {
        let mut cause: Option<&dyn std::error::Error> = Some(error);
        while let Some(it) = cause {
            if let Some(forbidden) = it.downcast_ref::<Self>() {
                return Some(forbidden);
            }
            cause = it.source();
        }
        None
    }
}

/// Resolves names to permitted addresses.
#[derive(Debug)]
pub(crate) struct Resolver {
    pub(crate) allows_private: bool,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let allows_private = self.allows_private;
        Box::pin(async move {
            let host = name.as_str();
            let all: Vec<SocketAddr> = tokio::net::lookup_host((host, 0)).await?.collect();
            let is_good = |address: &SocketAddr| may_reach(address.ip(), allows_private);
            let good: Vec<SocketAddr> = all.iter().copied().filter(is_good).collect();
            if let (Some(bad), true) = (all.first(), good.is_empty()) {
                return Err(ForbiddenAddress::at(host, bad.ip()).into());
            }
            let good: Addrs = Box::new(good.into_iter());
            Ok(good)
        })
    }
}
