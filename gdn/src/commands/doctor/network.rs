//! Checks outgoing connections: the proxies and certificate authorities of this shell and of the daemon, and the
//! servers of the project.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use goondan_config::ProjectConfig;
use goondan_connectors::Values;
use goondan_outbound::{PROXY_AUTHENTICATION_REQUIRED, error_text, problem_of, rejection_by_proxy};
use goondan_protocol::cloud::CloudPlatform;
use goondan_protocol::proxy::NetworkSettings;
use reqwest::{Client, Url};
use tokio::net::TcpStream;

use super::check_result::CheckResult;
use crate::context::Context;
use crate::output::text;

/// Timeout of a connection, and of its response, in milliseconds.
const CONNECT_TIMEOUT_MS: u64 = 5_000;

/// Settings of connectors that name their server.
const SERVER_SETTINGS: [&str; 2] = ["endpoint", "url"];

/// Kind of a server, and the project's resources that use it.
type Servers = BTreeMap<(&'static str, Url), Vec<String>>;

pub(super) async fn findings(
    bundle: Option<&ProjectConfig>,
    daemon: Option<&NetworkSettings>,
    context: &Context,
) -> Vec<CheckResult> {
    let here = NetworkSettings::of(|name| std::env::var(name).ok());
    let mut found = vec![proxy(&here), authorities(&here)];
    found.extend(daemon.and_then(|daemon| of_daemon(&here, daemon, context)));
    let Ok(client) = client() else {
        // Reported above.
        return found;
    };
    let servers = bundle.map(servers).unwrap_or_default();
    let servers = servers.iter();
    let tests = servers.map(|((check, url), users)| test_server(&client, check, url, users));
    found.extend(join_all(tests).await);
    found
}

fn client() -> Result<Client, goondan_outbound::ClientError> {
    let limit = Duration::from_millis(CONNECT_TIMEOUT_MS);
    let builder = goondan_outbound::builder()?;
    Ok(builder.connect_timeout(limit).read_timeout(limit).build()?)
}

/// The proxies of this shell, which a daemon started from here would use.
fn proxy(here: &NetworkSettings) -> CheckResult {
    const CHECK: &str = "proxy";
    if let Some(problem) = &here.problem {
        return CheckResult::bad(CHECK, problem.clone(), "correct or unset the variable");
    }
    CheckResult::ok(CHECK, proxies_of(here))
}

fn proxies_of(settings: &NetworkSettings) -> String {
    let named = [
        ("https", &settings.https_proxy),
        ("http", &settings.http_proxy),
    ];
    let named = named
        .iter()
        .filter_map(|(scheme, proxy)| Some(format!("{scheme} through {}", proxy.as_ref()?)));
    let mut parts: Vec<String> = named.collect();
    if parts.is_empty() {
        return "none: all connections are direct".to_owned();
    }
    if let Some(direct) = &settings.no_proxy {
        parts.push(format!("except {direct} (NO_PROXY)"));
    }
    parts.join(", ")
}

fn authorities(here: &NetworkSettings) -> CheckResult {
    const CHECK: &str = "certificates";
    let named = match here.certificate_authorities.as_slice() {
        [] => "the system's authorities".to_owned(),
        named => named.join(", "),
    };
    match goondan_outbound::check_authorities() {
        Ok(()) => CheckResult::ok(CHECK, named),
        Err(problem) => CheckResult::bad(CHECK, problem, "correct or unset the variable"),
    }
}

/// The settings of the running daemon, if they differ.
fn of_daemon(
    here: &NetworkSettings,
    daemon: &NetworkSettings,
    context: &Context,
) -> Option<CheckResult> {
    if here == daemon {
        return None;
    }
    let certificates = match daemon.certificate_authorities.as_slice() {
        [] => "the system's authorities".to_owned(),
        named => named.join(", "),
    };
    let proxies = daemon.problem.clone().unwrap_or_else(|| proxies_of(daemon));
    let found = format!(
        "the daemon was started with other settings than this shell: proxy: {proxies}; certificates: {certificates}"
    );
    let hint = format!(
        "set the same variables where the daemon starts, and restart it: `{}`, then `{}`; a service reads its \
         environment file",
        context.daemon_command("daemon shutdown"),
        context.daemon_command("run")
    );
    Some(CheckResult::warn("network of the daemon", found, hint))
}

/// The servers that a project names.
fn servers(bundle: &ProjectConfig) -> Servers {
    let mut servers = Servers::new();
    let mut add = |check, url: &str, user: String| {
        let origin = Url::parse(url).ok().and_then(|mut url| {
            url.host_str()?;
            // Paths and queries can contain secrets.
            url.set_path("/");
            url.set_query(None);
            url.set_fragment(None);
            url.set_username("").ok()?;
            url.set_password(None).ok()?;
            matches!(url.scheme(), "http" | "https").then_some(url)
        });
        if let Some(origin) = origin {
            servers.entry((check, origin)).or_default().push(user);
        }
    };
    for model in bundle.models.values() {
        add("model server", &model.address(), model.name.to_string());
        if let Some(CloudPlatform::Vertex(vertex)) = &model.platform
            && let Ok(Some(key)) = vertex.key()
        {
            add("token server", &key.token_uri, model.name.to_string());
        }
    }
    for connection in bundle.connections.values() {
        if connection.entry.is_some() {
            continue;
        }
        let values = Values::of(connection.connector.as_str(), &connection.config);
        let connector = goondan_connectors::find(connection.connector.as_str());
        let settings = connector
            .into_iter()
            .flat_map(|connector| connector.settings);
        let mut names = settings.map(|setting| setting.name);
        let named = names
            .find(|name| SERVER_SETTINGS.contains(name))
            .and_then(|name| values.text(name));
        if let Some(url) = named {
            add("server", url, format!("Connection/{}", connection.name));
        }
    }
    for app in bundle.oauth_apps.values() {
        let named = [&app.issuer, &app.endpoints.token, &app.resource];
        for url in named.into_iter().flatten() {
            add(
                "authorization server",
                url,
                format!("OAuthApp/{}", app.name),
            );
        }
    }
    if let Some(package) = &bundle.package {
        for registry in package.registries.all() {
            add("registry", registry.as_str(), package.name.clone());
        }
    }
    for users in servers.values_mut() {
        users.sort();
        users.dedup();
    }
    servers
}

/// Connects to a server. A plain connection is only opened; TLS and proxies are tried with `HEAD /`, without
/// credentials.
async fn test_server(
    client: &Client,
    check: &'static str,
    url: &Url,
    users: &[String],
) -> CheckResult {
    let began = Instant::now();
    let proxy = goondan_outbound::proxy_for(url);
    let way = proxy
        .map(|proxy| format!(" through {proxy}"))
        .unwrap_or_default();
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let port = url.port_or_known_default().unwrap_or_default();
    let of = format!("{host}:{port} ({}){way}", users.join(", "));
    let hint = "check the network, the name and the URL in the project";
    let outcome = if proxy.is_none() && url.scheme() == "http" {
        connect(host, port)
            .await
            .map_err(|why| (why, hint.to_owned()))
    } else {
        let asked = client.head(url.clone()).send().await;
        asked.map_or_else(
            |error| match problem_of(&error) {
                Some(problem) => Err((problem.message, problem.hint)),
                None if error.is_timeout() && !error.is_connect() => Ok(()),
                None => Err((error_text(error), hint.to_owned())),
            },
            |answer| match answer.status().as_u16() {
                PROXY_AUTHENTICATION_REQUIRED => match rejection_by_proxy(url) {
                    Some(problem) => Err((problem.message, problem.hint)),
                    None => Ok(()),
                },
                status @ 502..=504 if proxy.is_some() => {
                    Err((format!("answered {status}"), hint.to_owned()))
                }
                _ => Ok(()),
            },
        )
    };
    match outcome {
        Ok(()) => {
            let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            CheckResult::ok(check, format!("{of} in {}", text::duration(ms)))
        }
        Err((why, hint)) => CheckResult::bad(check, format!("{of}: {why}"), hint),
    }
}

async fn connect(host: &str, port: u16) -> Result<(), String> {
    let limit = Duration::from_millis(CONNECT_TIMEOUT_MS);
    match tokio::time::timeout(limit, TcpStream::connect((host, port))).await {
        Ok(connected) => connected.map(drop).map_err(|error| error.to_string()),
        Err(_) => Err(format!(
            "no answer within {}",
            text::duration(CONNECT_TIMEOUT_MS)
        )),
    }
}
