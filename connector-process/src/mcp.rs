//! The connector `mcp`: it speaks to one server of the Model Context Protocol and calls its tools for
//! agents. The server's credentials are in this process and the server's own, and nowhere else.
//!
//! A server that is a program is started here, and again with back-off when it ends; one that is spoken
//! to over HTTP is connected to again.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::{HeaderName, HeaderValue};
use goondan_clock::{sleep, timeout};
use goondan_connectors::Values;
use goondan_log::error_chain;
use goondan_protocol::definition::ConnectorAssignment;
use goondan_protocol::limits::MAX_LOG_LINE_BYTES;
use rmcp::RoleClient;
use rmcp::service::{RunningService, serve_client};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use tokio::process::Child;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::back_off::back_off;
use crate::gateway::Gateway;
use crate::guarded::{self, Group};
use crate::http;
use crate::limits::{
    MCP_HIDDEN_BYTES_MIN, MCP_LAST_WORDS_TIMEOUT_MS, NOTE_BYTES_MAX, PROGRAM_BACK_OFF_FIRST_MS,
    PROGRAM_BACK_OFF_MAX_MS, SERVICE_CONNECT_TIMEOUT_MS,
};
use crate::lines::Lines;
use crate::service::masked;

#[expect(
    deprecated,
    reason = "the protocol is to drop roots, and servers of today ask for them"
)]
mod client;
mod content;
mod errands;
mod own;
mod questions;
mod rounds;
mod wording;

use client::Client;
use errands::{Errands, Serving};
use questions::{Asking, OpenCalls};

/// How a server is reached.
#[derive(Debug)]
enum ServerAddress {
    /// It is a program, spoken to over its stdin and stdout.
    Program {
        command: Vec<String>,
        env: BTreeMap<String, String>,
        project_root: PathBuf,
    },
    /// It is somewhere else, spoken to over HTTP.
    Http(StreamableHttpClientTransportConfig),
}

/// The connector.
pub(crate) struct Mcp {
    address: ServerAddress,
    start_timeout: Duration,
    call_timeout: Duration,
    question_timeout: Duration,
    /// What no error may repeat.
    secrets: Vec<String>,
}

/// A server that is there.
struct Session {
    running: RunningService<RoleClient, Client>,
    program: Option<(Child, Group)>,
    /// What the program says beside the protocol is logged here.
    _log: JoinSet<()>,
}

impl Mcp {
    /// By settings in which nothing is wrong.
    ///
    /// # Errors
    ///
    /// Why there can be no client, in words.
    pub(crate) fn new(assignment: &ConnectorAssignment) -> Result<Self, String> {
        let values = Values::of("mcp", &assignment.config);
        let seconds = |name| Duration::from_secs(values.number(name).unwrap_or_default());
        let token = assignment.secrets.get("token");
        let (env, headers) = (values.text_map("env"), values.text_map("headers"));
        let secrets = env.iter().chain(&headers).map(|(_, value)| *value);
        // A short one is a setting, and hiding every `1` would make errors unreadable.
        let secrets = secrets.filter(|value| value.len() >= MCP_HIDDEN_BYTES_MIN);
        let secrets = secrets.chain(token.map(String::as_str));
        let secrets = secrets.map(str::to_owned).collect();
        let address = match (values.texts("command"), values.text("url")) {
            (Some(command), _) => ServerAddress::Program {
                command,
                env: owned(&env),
                project_root: assignment
                    .project_root
                    .clone()
                    .unwrap_or_else(|| "/".into()),
            },
            (None, Some(url)) => {
                ServerAddress::Http(over_http(url, &headers, token.map(String::as_str))?)
            }
            (None, None) => return Err("neither `command` nor `url` is set".to_owned()),
        };
        Ok(Self {
            address,
            start_timeout: seconds("startSeconds"),
            call_timeout: seconds("timeoutSeconds"),
            question_timeout: seconds("questionSeconds"),
            secrets,
        })
    }

    /// Serves calls until `stop`.
    pub(crate) async fn run(self, gateway: Gateway, stop: CancellationToken) {
        let (serving, server) = watch::channel(None);
        let calls = OpenCalls::default();
        let asking = Asking::new(
            gateway.clone(),
            calls.clone(),
            self.question_timeout,
            &self.secrets,
        );
        let errands = Errands::new(server, calls, self.call_timeout, self.secrets.clone());
        gateway.serve(Arc::new(errands)).await;
        let mut failures: u32 = 0;
        while !stop.is_cancelled() {
            let since = Instant::now();
            let started = tokio::select! {
                () = stop.cancelled() => return,
                started = timeout(self.start_timeout, self.start(&asking)) => started,
            };
            let reason = match started {
                Ok(Ok((session, client))) => {
                    let peer = session.running.peer().clone();
                    // Whoever waits for the server calls as soon as it is told to be there.
                    serving.send_replace(Some(Serving { peer, client }));
                    gateway.report(true, session.introduction()).await;
                    let end = session.wait_for_end(&stop).await;
                    serving.send_replace(None);
                    end
                }
                Ok(Err(reason)) => reason,
                Err(_elapsed) => format!(
                    "the server was not ready within {} s",
                    self.start_timeout.as_secs()
                ),
            };
            if stop.is_cancelled() {
                return;
            }
            let was_well = since.elapsed() >= Duration::from_millis(PROGRAM_BACK_OFF_MAX_MS);
            failures = if was_well {
                1
            } else {
                failures.saturating_add(1)
            };
            let pause = back_off(failures, PROGRAM_BACK_OFF_FIRST_MS, PROGRAM_BACK_OFF_MAX_MS);
            let reason: String = masked(reason, &self.secrets)
                .chars()
                .take(NOTE_BYTES_MAX)
                .collect();
            tracing::error!(
                reason,
                failures,
                pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
                "the MCP server is not there"
            );
            gateway
                .report(
                    false,
                    format!("{reason}; trying again after {} s", pause.as_secs()),
                )
                .await;
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(pause) => {}
            }
        }
    }

    /// Starts or finds the server, and agrees with it on the protocol.
    async fn start(&self, asking: &Asking) -> Result<(Session, Client), String> {
        let asking = asking.clone();
        match &self.address {
            ServerAddress::Http(config) => {
                let client = Client::new(asking);
                let http = http::client(Duration::from_millis(SERVICE_CONNECT_TIMEOUT_MS));
                let http = http.map_err(|error| error_chain(&error))?;
                let transport = StreamableHttpClientTransport::with_client(http, config.clone());
                let running = serve_client(client.clone(), transport).await;
                let running = running.map_err(|error| {
                    format!(
                        "`{}` cannot be spoken to: {}",
                        config.uri,
                        wording::of_start(&error)
                    )
                })?;
                let session = Session {
                    running,
                    program: None,
                    _log: JoinSet::new(),
                };
                Ok((session, client))
            }
            ServerAddress::Program {
                command,
                env,
                project_root,
            } => {
                let client = Client::in_directory(asking, project_root);
                let shown = command.first().map_or("", String::as_str);
                let cannot =
                    |error: std::io::Error| format!("`{shown}` cannot be started: {error}");
                let mut child = guarded::command(guarded::words(command), project_root)
                    .map_err(cannot)?
                    .envs(env)
                    .spawn()
                    .map_err(cannot)?;
                let group = Group::of(&child);
                let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
                let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
                    return Err(format!("`{shown}` cannot be started: it has no pipes"));
                };
                let mut logging = JoinSet::new();
                logging.spawn(log(Lines::new(stderr, MAX_LOG_LINE_BYTES)));
                match serve_client(client.clone(), (stdout, stdin)).await {
                    Ok(running) => {
                        let session = Session {
                            running,
                            program: Some((child, group)),
                            _log: logging,
                        };
                        Ok((session, client))
                    }
                    Err(error) => {
                        drop(group);
                        let time_limit = Duration::from_millis(MCP_LAST_WORDS_TIMEOUT_MS);
                        let how = match timeout(time_limit, child.wait()).await {
                            Ok(Ok(status)) => guarded::ended(status),
                            Ok(Err(_)) | Err(_) => "does not end".to_owned(),
                        };
                        let error = wording::of_start(&error);
                        Err(format!("`{shown}` speaks no MCP: {error}; it {how}"))
                    }
                }
            }
        }
    }
}

impl Session {
    /// Who the server says it is.
    fn introduction(&self) -> String {
        let info = self.running.peer().peer_info();
        let told = match info.as_ref().and_then(|info| info.server_info.as_ref()) {
            Some(server) => format!("MCP server {} {}", server.name, server.version),
            None => "MCP server without a name".to_owned(),
        };
        told.chars().take(NOTE_BYTES_MAX).collect()
    }

    /// Waits for its end, or ends it at `stop`; says how it ended.
    async fn wait_for_end(mut self, stop: &CancellationToken) -> String {
        let mut program = self.program.take();
        let cancel = self.running.cancellation_token();
        let exited = async {
            match &mut program {
                Some((child, _)) => child.wait().await,
                None => std::future::pending().await,
            }
        };
        let closed = tokio::select! {
            () = stop.cancelled() => {
                cancel.cancel();
                return "it is being stopped".to_owned();
            }
            status = exited => return exit_words(status),
            end = self.running.waiting() => match end {
                Ok(reason) => format!("the server closed the connection ({reason:?})"),
                Err(error) => format!("the connection has a fault: {error}"),
            },
        };
        // A program that closes its pipes is about to end, and its exit code says more.
        let time_limit = Duration::from_millis(MCP_LAST_WORDS_TIMEOUT_MS);
        match &mut program {
            Some((child, _)) => timeout(time_limit, child.wait())
                .await
                .map_or(closed, exit_words),
            None => closed,
        }
    }
}

/// How the server's program ended.
fn exit_words(status: std::io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => format!("the server {}", guarded::ended(status)),
        Err(error) => format!("the server ended, nobody knows how: {error}"),
    }
}

fn owned(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let pairs = pairs.iter();
    pairs
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

fn over_http(
    url: &str,
    headers: &[(&str, &str)],
    token: Option<&str>,
) -> Result<StreamableHttpClientTransportConfig, String> {
    let mut fields = HashMap::new();
    for (name, value) in headers {
        let unusable = |_| format!("the header `{name}` cannot be sent");
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| unusable(()))?;
        let mut value = HeaderValue::from_str(value).map_err(|_| unusable(()))?;
        value.set_sensitive(true);
        fields.insert(key, value);
    }
    let config = StreamableHttpClientTransportConfig::with_uri(url).custom_headers(fields);
    Ok(match token {
        Some(token) => config.auth_header(token),
        None => config,
    })
}

/// What the server's program writes to its stderr is logged.
async fn log(mut lines: Lines<tokio::process::ChildStderr>) {
    while let Ok(Some(line)) = lines.next().await {
        line.log_as_stderr();
    }
}
