//! Connects to a target.

use std::net::IpAddr;
use std::time::Duration;

use goondan_clock::timeout;
use goondan_protocol::sandbox::Host;
use tokio::net::TcpStream;

use super::refusal::EgressDenial;
use super::rules::EgressRules;
use super::target::Target;
use crate::limits::{EGRESS_ADDRESSES_MAX, EGRESS_CONNECT_TIMEOUT_MS, EGRESS_RESOLVE_TIMEOUT_MS};

/// Connects to a target, if it is permitted.
pub(super) async fn connect(
    rules: &EgressRules,
    target: &Target,
) -> Result<TcpStream, EgressDenial> {
    rules.check_listed(target)?;
    let addresses = resolve(target).await?;
    let mut why = String::new();
    for address in rules
        .reachable(target, &addresses)?
        .into_iter()
        .take(EGRESS_ADDRESSES_MAX)
    {
        let time_limit = Duration::from_millis(EGRESS_CONNECT_TIMEOUT_MS);
        match timeout(time_limit, TcpStream::connect(address)).await {
            Ok(Ok(server)) => return Ok(server),
            Ok(Err(error)) => why = error.to_string(),
            Err(_elapsed) => why = format!("no answer within {EGRESS_CONNECT_TIMEOUT_MS} ms"),
        }
    }
    Err(EgressDenial::Unreachable {
        target: target.clone(),
        why,
    })
}

async fn resolve(target: &Target) -> Result<Vec<IpAddr>, EgressDenial> {
    let name = match &target.host {
        Host::Address(address) => return Ok(vec![*address]),
        Host::Name(name) => name.as_str(),
    };
    let time_limit = Duration::from_millis(EGRESS_RESOLVE_TIMEOUT_MS);
    let why = match timeout(time_limit, tokio::net::lookup_host((name, target.port))).await {
        Ok(Ok(found)) => return Ok(found.map(|address| address.ip()).collect()),
        Ok(Err(error)) => error.to_string(),
        Err(_elapsed) => format!("no answer within {EGRESS_RESOLVE_TIMEOUT_MS} ms"),
    };
    Err(EgressDenial::Unresolved {
        target: target.clone(),
        why,
    })
}
