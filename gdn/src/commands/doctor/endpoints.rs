//! Checks that model servers are reachable. A connection is opened and closed; no data is sent.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use goondan_config::ProjectConfig;
use goondan_protocol::definition::HostedModel;
use tokio::net::TcpStream;

use super::check_result::CheckResult;
use crate::output::text;

/// Timeout of a connection, in milliseconds.
const CONNECT_TIMEOUT_MS: u64 = 5_000;

/// Variables that name a proxy. With a proxy, the servers are not contacted directly.
const PROXIES: [&str; 4] = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

pub(super) async fn findings(bundle: &ProjectConfig) -> Vec<CheckResult> {
    const CHECK: &str = "model server";
    if let Some(name) = PROXIES.iter().find(|name| std::env::var_os(name).is_some()) {
        let found = format!("reached through the proxy in {name}; not tested");
        return vec![CheckResult::unknown(CHECK, found)];
    }
    let mut servers: BTreeMap<(String, u16), Vec<&str>> = BTreeMap::new();
    for model in bundle.models.values() {
        if let Some(server) = HostedModel::server(model) {
            servers.entry(server).or_default().push(model.name.as_str());
        }
    }
    let mut found = Vec::new();
    for ((host, port), models) in servers {
        found.push(reached(CHECK, &host, port, &models).await);
    }
    found
}

async fn reached(check: &'static str, host: &str, port: u16, models: &[&str]) -> CheckResult {
    let began = Instant::now();
    let limit = Duration::from_millis(CONNECT_TIMEOUT_MS);
    let connected = tokio::time::timeout(limit, TcpStream::connect((host, port))).await;
    let of = format!("{host}:{port} ({})", models.join(", "));
    let hint = "check the network, the name and the `endpoint` of the Model";
    match connected {
        Ok(Ok(_)) => {
            let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            CheckResult::ok(check, format!("{of} in {}", text::duration(ms)))
        }
        Ok(Err(error)) => CheckResult::bad(check, format!("{of}: {error}"), hint),
        Err(_) => {
            let waited = text::duration(CONNECT_TIMEOUT_MS);
            CheckResult::bad(check, format!("{of}: no answer within {waited}"), hint)
        }
    }
}
