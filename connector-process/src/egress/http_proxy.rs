//! The HTTP proxy: `CONNECT`, and requests that name a host.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use goondan_log::error_chain;
use hyper::body::Incoming;
use hyper::ext::ReasonPhrase;
use hyper::header::{
    CONNECTION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRAILER, UPGRADE,
};
use hyper::http::uri::{Authority, PathAndQuery};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::refusal::{EgressDenial, EgressFaultParty};
use super::rules::EgressRules;
use super::target::Target;
use super::{tunnel, way};
use crate::limits::{HEADER_READ_TIMEOUT_MS, HEADERS_MAX, READ_BUFFER_BYTES};

/// Headers of the connection to the proxy, which are not forwarded.
const OF_THE_CONNECTION: [HeaderName; 8] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    UPGRADE,
];

/// A tunnel that was granted, and starts once its response is sent.
struct PendingTunnel {
    program: OnUpgrade,
    server: TcpStream,
    target: Target,
}

/// State of one program's connection.
#[derive(Default)]
struct ProxyConnection {
    promised: Mutex<Option<PendingTunnel>>,
    /// Connections to hosts, which end together with it.
    hosts: Mutex<JoinSet<hyper::Result<()>>>,
}

impl ProxyConnection {
    /// Drives a connection to a host until the body of the response has ended.
    fn keep(&self, connection: impl Future<Output = hyper::Result<()>> + Send + 'static) {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        while hosts.try_join_next().is_some() {}
        hosts.spawn(connection);
    }
}

/// Serves a program that speaks HTTP.
pub(super) async fn serve<P>(program: P, rules: Arc<EgressRules>) -> std::io::Result<()>
where
    P: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let begun = Arc::new(ProxyConnection::default());
    let service = service_fn(|request| {
        let (rules, begun) = (Arc::clone(&rules), Arc::clone(&begun));
        async move { Ok::<_, hyper::Error>(answer(request, &rules, &begun).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(HEADER_READ_TIMEOUT_MS))
        .max_headers(HEADERS_MAX)
        .max_buf_size(READ_BUFFER_BYTES)
        .serve_connection(TokioIo::new(program), service)
        .with_upgrades()
        .await;
    if let Err(error) = served {
        // A broken connection of the program is not an error of the egress.
        tracing::debug!(error = error_chain(&error), "connection of a program broke");
    }
    let promise = begun
        .promised
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    let Some(PendingTunnel {
        program,
        server,
        target,
    }) = promise
    else {
        return Ok(());
    };
    let program = program.await.map_err(std::io::Error::other)?;
    tunnel::pass_on(TokioIo::new(program), server, &target, &rules).await
}

async fn answer(
    request: Request<Incoming>,
    rules: &EgressRules,
    begun: &ProxyConnection,
) -> Response<Body> {
    let answered = if request.method() == Method::CONNECT {
        promise(request, rules, begun).await
    } else {
        pass_on(request, rules, begun).await
    };
    answered.unwrap_or_else(|refusal| {
        rules.tell_refused(&refusal);
        refused(&refusal)
    })
}

/// Connects to the host of a `CONNECT` request; its data follows.
async fn promise(
    request: Request<Incoming>,
    rules: &EgressRules,
    begun: &ProxyConnection,
) -> Result<Response<Body>, EgressDenial> {
    let target = target_of(request.uri(), None)?;
    let server = way::connect(rules, &target).await?;
    let promise = PendingTunnel {
        program: hyper::upgrade::on(request),
        server,
        target,
    };
    *begun
        .promised
        .lock()
        .unwrap_or_else(PoisonError::into_inner) = Some(promise);
    Ok(Response::new(Body::empty()))
}

/// Forwards a program's request to the host that it names.
async fn pass_on(
    mut request: Request<Incoming>,
    rules: &EgressRules,
    begun: &ProxyConnection,
) -> Result<Response<Body>, EgressDenial> {
    if request.uri().scheme_str() != Some("http") {
        return Err(EgressDenial::NoRequest(
            "this is a proxy: send `CONNECT host:port`, or a request for `http://host/…`",
        ));
    }
    let target = target_of(request.uri(), Some(HTTP_PORT))?;
    let forwarder = way::connect_to_proxy(rules, &target).await?;
    let (server, proxy) = match forwarder {
        Some((server, proxy)) => (server, Some(proxy)),
        None => (way::connect_directly(rules, &target).await?, None),
    };
    let unreachable = |error: hyper::Error| EgressDenial::Unreachable {
        target: target.clone(),
        why: error_chain(&error),
    };
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(server))
        .await
        .map_err(unreachable)?;
    begun.keep(connection);
    let host = request.uri().authority().map(Authority::as_str);
    let host = host.and_then(|host| HeaderValue::from_str(host).ok());
    let path = request
        .uri()
        .path_and_query()
        .map_or("/", PathAndQuery::as_str);
    // A proxy needs the whole URL.
    if proxy.is_none() {
        *request.uri_mut() = Uri::try_from(path).unwrap_or_default();
    }
    take_off(request.headers_mut());
    if let Some(authorization) = proxy.and_then(goondan_outbound::authorization) {
        request
            .headers_mut()
            .insert(PROXY_AUTHORIZATION, authorization);
    }
    if let Some(host) = host {
        request.headers_mut().insert(HOST, host);
    }
    let mut response = sender.send_request(request).await.map_err(unreachable)?;
    if response.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED
        && let Some(proxy) = proxy
    {
        return Err(EgressDenial::Unreachable {
            target,
            why: format!("the proxy {proxy} requires another user or password"),
        });
    }
    take_off(response.headers_mut());
    Ok(response.map(Body::new))
}

/// Default port of `http://`.
const HTTP_PORT: u16 = 80;

fn target_of(uri: &Uri, usual_port: Option<u16>) -> Result<Target, EgressDenial> {
    let authority = uri.authority();
    let authority = authority.filter(|authority| !authority.as_str().contains('@'));
    let place = authority.and_then(|it| Some((it.host(), it.port_u16().or(usual_port)?)));
    match place {
        Some((host, port)) => Ok(Target::read(host, port)?),
        None => Err(EgressDenial::NoRequest(
            "a request must name a host and a port, without a user",
        )),
    }
}

/// Removes the headers that must not be forwarded.
fn take_off(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|names| names.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&OF_THE_CONNECTION) {
        headers.remove(name);
    }
}

fn refused(refusal: &EgressDenial) -> Response<Body> {
    let (status, reason) = match refusal.fault() {
        EgressFaultParty::Asked => (
            StatusCode::BAD_REQUEST,
            ReasonPhrase::from_static(b"Bad Request"),
        ),
        EgressFaultParty::Denied => (
            StatusCode::FORBIDDEN,
            ReasonPhrase::from_static(b"Not allowed by the sandbox"),
        ),
        EgressFaultParty::Failed => (
            StatusCode::BAD_GATEWAY,
            ReasonPhrase::from_static(b"Bad Gateway"),
        ),
    };
    let mut response = Response::new(Body::from(format!("goondan: {refusal}\n")));
    *response.status_mut() = status;
    response.extensions_mut().insert(reason);
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response
}
