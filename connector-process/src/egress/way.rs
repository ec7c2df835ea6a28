//! Connects to a target.

use std::net::IpAddr;
use std::time::Duration;

use goondan_clock::timeout;
use goondan_log::error_chain;
use goondan_outbound::tunnel::{self, TunnelError};
use goondan_protocol::proxy::Proxy;
use goondan_protocol::sandbox::Host;
use tokio::net::TcpStream;

use super::refusal::EgressDenial;
use super::rules::EgressRules;
use super::target::Target;
use crate::limits::{EGRESS_ADDRESSES_MAX, EGRESS_CONNECT_TIMEOUT_MS, EGRESS_RESOLVE_TIMEOUT_MS};

/// Connects to a target, if it is permitted: directly, or through a tunnel of the proxy for
/// `https`.
pub(super) async fn connect(
    rules: &EgressRules,
    target: &Target,
) -> Result<TcpStream, EgressDenial> {
    match proxy_of(rules, target, "https").await? {
        Some(proxy) => {
            let opened = within(tunnel::open(proxy, &target.to_string())).await;
            opened.map_err(|why| unreachable(target, why))
        }
        None => connect_directly(rules, target).await,
    }
}

/// Connects to the proxy for `http` URLs of a permitted target. `None` if it is reached directly.
pub(super) async fn connect_to_proxy(
    rules: &EgressRules,
    target: &Target,
) -> Result<Option<(TcpStream, &'static Proxy)>, EgressDenial> {
    let Some(proxy) = proxy_of(rules, target, "http").await? else {
        return Ok(None);
    };
    let connected = within(tunnel::connect_to(proxy)).await;
    let stream = connected.map_err(|why| unreachable(target, why))?;
    Ok(Some((stream, proxy)))
}

/// The proxy of a permitted target. A name that this machine resolves only to forbidden addresses
/// is denied; the proxy decides about other names.
async fn proxy_of(
    rules: &EgressRules,
    target: &Target,
    scheme: &str,
) -> Result<Option<&'static Proxy>, EgressDenial> {
    rules.check_listed(target)?;
    let settings = goondan_outbound::settings();
    let settings = settings.map_err(|problem| unreachable(target, problem.to_string()))?;
    let host = target.host.to_string();
    let Some(proxy) = settings.proxy_for(scheme, &host, target.port) else {
        return Ok(None);
    };
    if let Ok(addresses) = resolve(target).await {
        rules.reachable(target, &addresses)?;
    }
    Ok(Some(proxy))
}

fn unreachable(target: &Target, why: String) -> EgressDenial {
    EgressDenial::Unreachable {
        target: target.clone(),
        why,
    }
}

async fn within<T>(connecting: impl Future<Output = Result<T, TunnelError>>) -> Result<T, String> {
    let time_limit = Duration::from_millis(EGRESS_CONNECT_TIMEOUT_MS);
    match timeout(time_limit, connecting).await {
        Ok(connected) => connected.map_err(|error| error_chain(&error)),
        Err(_elapsed) => Err(format!(
            "no answer of the proxy within {EGRESS_CONNECT_TIMEOUT_MS} ms"
        )),
    }
}

/// Connects to a target without a proxy, if it is permitted.
pub(super) async fn connect_directly(
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
    Err(unreachable(target, why))
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
