//! The page over HTTP: its files, the login, and its API (`OBS-5`).

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use axum::{Extension, Router};
use bytes::Bytes;
use futures_util::stream;
use goondan_protocol::version::Version;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::assets::{self, Asset};
use crate::connections::{ActiveRequest, Seat};
use crate::daemon::{Daemon, StreamLines};
use crate::guard::Guard;
use crate::limits::{BODY_READ_TIMEOUT_MS, REQUEST_BYTES_MAX};
use crate::methods::{self, Access};
use crate::page_error::{DaemonRequestError, PageError};
use crate::public_address::{PublicAddress, PublicPath};
use crate::search::SearchRequest;
use crate::sessions::{Secret, Sessions};

/// The page runs only its own scripts, uses only its inline style sheet, connects only to us, shows
/// images that it decoded itself, and cannot be framed.
const CONTENT_SECURITY_POLICY: &str = concat!(
    "default-src 'none'; script-src 'self'; style-src '",
    include_str!("../web/dist/style.sha256"),
    "'; connect-src 'self'; img-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types lit-html"
);

/// Other headers of every response.
const ALWAYS: [(&str, &str); 7] = [
    ("content-security-policy", CONTENT_SECURITY_POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    (
        "permissions-policy",
        "camera=(), geolocation=(), microphone=()",
    ),
];

/// Shared state of all requests.
#[derive(Debug)]
pub(crate) struct Studio {
    guard: Guard,
    public: Option<PublicAddress>,
    daemon: Daemon,
    start: Start,
    sessions: Mutex<Sessions>,
    begun: Instant,
    may_write: bool,
}

/// Workspace that a page shows first: that of the person's command.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) project: Option<PathBuf>,
    pub(crate) workspace: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Login {
    ticket: String,
}

/// A method of the daemon with its parameters.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MethodCall {
    method: String,
    params: Box<RawValue>,
}

/// Status and error of a rejected request.
struct RequestFailure(StatusCode, PageError);

impl From<DaemonRequestError> for RequestFailure {
    fn from(failed: DaemonRequestError) -> Self {
        let (status, told) = failed.to_response();
        Self(status, told)
    }
}

impl Studio {
    pub(crate) fn new(
        guard: Guard,
        public: Option<PublicAddress>,
        daemon: Daemon,
        start: Start,
        may_write: bool,
    ) -> Self {
        Self {
            guard,
            public,
            daemon,
            start,
            sessions: Mutex::default(),
            begun: Instant::now(),
            may_write,
        }
    }

    /// Creates a ticket, valid immediately.
    ///
    /// # Errors
    ///
    /// If the system provides no randomness.
    pub(crate) fn ticket(&self) -> Result<Secret, getrandom::Error> {
        let ticket = Secret::random()?;
        let now_ms = self.now_ms();
        self.sessions().admit(&ticket, now_ms);
        Ok(ticket)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answer(&self, seat: &Arc<Seat>, request: Request) -> Result<Response, RequestFailure> {
        let (head, body) = request.into_parts();
        self.guard
            .check(&head.method, &head.headers)
            .map_err(|refused| {
                let hint = "open the address that `gdn studio` shows";
                RequestFailure(
                    StatusCode::FORBIDDEN,
                    PageError::new("forbidden", &refused, hint),
                )
            })?;
        let path = match &self.public {
            None => head.uri.path(),
            Some(public) => match public.page_path(head.uri.path()) {
                PublicPath::Page(path) => path,
                PublicPath::MissingSlash => return Ok(redirect(public.base())),
            },
        };
        if head.method == Method::GET {
            let asset = assets::find(path).ok_or_else(|| no_such(path))?;
            return Ok(file(asset, &head.headers));
        }
        if head.method != Method::POST {
            let hint = "open the address that `gdn studio` shows";
            let page_error =
                PageError::new("methodNotAllowed", &"only GET and POST are supported", hint);
            return Err(RequestFailure(StatusCode::METHOD_NOT_ALLOWED, page_error));
        }
        if path == "/api/login" {
            return self.log_in(&read::<Login>(body).await?);
        }
        let token = bearer(&head.headers);
        let token = token.filter(|token| self.sessions().knows(token, self.now_ms()));
        let token = token.ok_or_else(unknown)?;
        let work = seat.work();
        match path {
            "/api/logout" => {
                self.sessions().end(token, self.now_ms());
                Ok(json_of(StatusCode::OK, &json!({ "result": {} })))
            }
            "/api/call" => self.call(read(body).await?).await,
            "/api/stream" => self.stream(read(body).await?, work).await,
            "/api/search" => self.search(read(body).await?, work),
            _ => Err(no_such(path)),
        }
    }

    fn log_in(&self, login: &Login) -> Result<Response, RequestFailure> {
        let token = Secret::random().map_err(|error| {
            let page_error = PageError::new("internal", &error, "restart Studio: `gdn studio`");
            RequestFailure(StatusCode::INTERNAL_SERVER_ERROR, page_error)
        })?;
        let now_ms = self.now_ms();
        if !self.sessions().exchange(&login.ticket, &token, now_ms) {
            return Err(unknown());
        }
        let logged_in = json!({
            "token": token.as_str(),
            "write": self.may_write,
            "goondan": Version::current().goondan,
            "stateRoot": self.daemon.place(),
            "projectRoot": self.start.project.as_ref().map(|dir| dir.to_string_lossy()),
            "workspaceId": self.start.workspace,
        });
        Ok(json_of(StatusCode::OK, &logged_in))
    }

    async fn call(&self, asked: MethodCall) -> Result<Response, RequestFailure> {
        let known = methods::method(&asked.method);
        let (method, access) = known.ok_or_else(|| not_for_pages(&asked.method))?;
        if access == Access::Writes && !self.may_write {
            let message = format!("Studio only reads: `{method}` changes something");
            let hint = "restart Studio with write access: `gdn studio --write`";
            return Err(RequestFailure(
                StatusCode::FORBIDDEN,
                PageError::new("readOnly", &message, hint),
            ));
        }
        let result = self.daemon.call(method, access, &asked.params).await?;
        // The daemon's result is already JSON.
        let body = format!("{{\"result\":{result}}}");
        Ok(respond(
            StatusCode::OK,
            "application/json",
            "no-store",
            Body::from(body),
        ))
    }

    async fn stream(
        &self,
        asked: MethodCall,
        work: ActiveRequest,
    ) -> Result<Response, RequestFailure> {
        let known = methods::stream(&asked.method);
        let method = known.ok_or_else(|| not_for_pages(&asked.method))?;
        let lines = self.daemon.stream(method, asked.params).await?;
        Ok(stream_of(lines, work))
    }

    fn search(
        &self,
        request: SearchRequest,
        work: ActiveRequest,
    ) -> Result<Response, RequestFailure> {
        request.check().map_err(|problem| {
            let page_error = PageError::new("invalidRequest", &problem, "search for another text");
            RequestFailure(StatusCode::BAD_REQUEST, page_error)
        })?;
        Ok(stream_of(self.daemon.search(request), work))
    }
}

/// A response with one line for each item, while the request counts as work in progress.
fn stream_of(lines: StreamLines, work: ActiveRequest) -> Response {
    let lines = stream::unfold((lines, work), |(mut lines, work)| async {
        let line = lines.next().await?;
        Some((Ok::<_, std::convert::Infallible>(line), (lines, work)))
    });
    let kind = "application/x-ndjson";
    respond(StatusCode::OK, kind, "no-store", Body::from_stream(lines))
}

/// Routes every request.
pub(crate) fn router(studio: Arc<Studio>) -> Router {
    Router::new().fallback(handle).with_state(studio)
}

async fn handle(
    State(studio): State<Arc<Studio>>,
    Extension(seat): Extension<Arc<Seat>>,
    request: Request,
) -> Response {
    let answer = studio.answer(&seat, request).await;
    answer.unwrap_or_else(|RequestFailure(status, told)| json_of(status, &json!({ "error": told })))
}

async fn read<T: DeserializeOwned>(body: Body) -> Result<T, RequestFailure> {
    let hint = "load the page again";
    let limit = Duration::from_millis(BODY_READ_TIMEOUT_MS);
    let body = timeout(limit, to_bytes(body, REQUEST_BYTES_MAX)).await;
    let body = body.ok().and_then(Result::ok).ok_or_else(|| {
        let message = format!(
            "the request is longer than {REQUEST_BYTES_MAX} bytes, was cut off, or arrived too slowly"
        );
        RequestFailure(
            StatusCode::PAYLOAD_TOO_LARGE,
            PageError::new("tooLarge", &message, hint),
        )
    })?;
    serde_json::from_slice(&body).map_err(|error| {
        let page_error = PageError::new(
            "invalidRequest",
            &format!("the request cannot be read: {error}"),
            hint,
        );
        RequestFailure(StatusCode::BAD_REQUEST, page_error)
    })
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    value.strip_prefix("Bearer ")
}

fn unknown() -> RequestFailure {
    let message = "this page is not logged in, or its login has expired";
    let hint = "open the next address that `gdn studio` prints: each is valid once, for one minute";
    RequestFailure(
        StatusCode::UNAUTHORIZED,
        PageError::new("unauthorized", &message, hint),
    )
}

fn no_such(path: &str) -> RequestFailure {
    let message = format!("{path} does not exist");
    let hint = "open the address that `gdn studio` shows";
    RequestFailure(
        StatusCode::NOT_FOUND,
        PageError::new("notFound", &message, hint),
    )
}

fn not_for_pages(method: &str) -> RequestFailure {
    let message = format!("Studio does not support `{method}`");
    let page_error = PageError::new("forbidden", &message, "see what gdn can do: `gdn --help`");
    RequestFailure(StatusCode::FORBIDDEN, page_error)
}

/// Redirects to the base path of the page.
fn redirect(base: &str) -> Response {
    let mut response = respond(
        StatusCode::PERMANENT_REDIRECT,
        "text/plain",
        "no-store",
        Body::empty(),
    );
    // A base path has only characters of URLs.
    if let Ok(place) = HeaderValue::from_str(base) {
        response.headers_mut().insert(header::LOCATION, place);
    }
    response
}

fn file(asset: &'static Asset, headers: &HeaderMap) -> Response {
    let accepted = headers
        .get(header::ACCEPT_ENCODING)
        .and_then(|value| value.to_str().ok());
    let is_zipped = accepted.is_some_and(|all| all.split(',').any(|one| one.trim() == "gzip"));
    let (body, encoding) = match is_zipped {
        true => (Bytes::from_static(asset.zipped()), Some("gzip")),
        false => (Bytes::from_static(asset.bytes()), None),
    };
    // A cached page of another version must not run against this version of Studio.
    let mut response = respond(StatusCode::OK, asset.kind(), "no-cache", Body::from(body));
    let headers = response.headers_mut();
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    if let Some(encoding) = encoding {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
    }
    response
}

fn json_of(status: StatusCode, value: &Value) -> Response {
    respond(
        status,
        "application/json",
        "no-store",
        Body::from(value.to_string()),
    )
}

fn respond(status: StatusCode, kind: &'static str, cached: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    for (name, value) in ALWAYS {
        headers.insert(
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(cached));
    response
}
