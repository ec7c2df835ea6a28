//! The connector `mcp`: talks to one server of the Model Context Protocol and calls its tools for
//! agents. Only this process and the server itself hold the server's credentials.
//!
//! A server that is a program is started here, and restarted with back-off when it ends. A server
//! over HTTP is reconnected.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::{HeaderName, HeaderValue};
use goondan_clock::{sleep, timeout};
use goondan_confinement::ProgramRights;
use goondan_connectors::Values;
use goondan_protocol::definition::ConnectorAssignment;
use goondan_protocol::sandbox::SandboxPolicy;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::back_off::back_off;
use crate::gateway::Gateway;
use crate::limits::{
    MCP_HIDDEN_BYTES_MIN, NOTE_BYTES_MAX, PACKAGE_DOWNLOAD_TIMEOUT_MS, PROGRAM_BACK_OFF_FIRST_MS,
    PROGRAM_BACK_OFF_MAX_MS, PROGRAM_START_FAULTS_MAX,
};
use crate::service::masked;
use crate::{child_guard, package_cache};

mod actions;
#[expect(
    deprecated,
    reason = "the protocol will drop roots, but today's servers request them"
)]
mod client;
mod content;
mod error_texts;
mod http_client;
mod http_exchange;
mod initialize_result;
mod json_rpc;
mod older_transport;
mod package_runner;
mod questions;
mod requests;
mod resource_tools;
mod rounds;
mod session;
mod stderr_tail;

use actions::{Actions, RunningServer};
use client::McpClientHandler;
use package_runner::StartContext;
use questions::{OpenCalls, QuestionRelay};
use session::{McpSession, ServerStartFailure};
use stderr_tail::LastWords;

#[derive(Debug)]
enum ServerAddress {
    /// A program, over its stdin and stdout.
    Program {
        command: Vec<String>,
        env: BTreeMap<String, String>,
        project_root: PathBuf,
        sandbox: SandboxPolicy,
        /// Socket of the egress, if the program may only reach listed hosts.
        egress: Option<PathBuf>,
        /// Directory of downloaded packages, if it may download some.
        cache: Option<PathBuf>,
    },
    /// A remote server, over HTTP.
    Http(StreamableHttpClientTransportConfig),
}

impl ServerAddress {
    /// Sandbox policy of the server, if it is a program.
    fn policy(&self) -> Option<SandboxPolicy> {
        match self {
            Self::Program {
                project_root,
                sandbox,
                egress,
                cache,
                ..
            } => {
                let directories = (egress.as_deref(), cache.as_deref());
                Some(rights_of(project_root, sandbox, directories).policy)
            }
            Self::Http(_) => None,
        }
    }

    /// Directory of its packages, if it is a program that may download some.
    fn cache(&self) -> Option<&Path> {
        match self {
            Self::Program { cache, .. } => cache.as_deref(),
            Self::Http(_) => None,
        }
    }
}

fn rights_of(
    project_root: &Path,
    sandbox: &SandboxPolicy,
    (egress, cache): (Option<&Path>, Option<&Path>),
) -> ProgramRights {
    let mut allowed = child_guard::allowed(project_root, sandbox, egress);
    if let Some(cache) = cache {
        package_cache::grant(&mut allowed, cache);
    }
    allowed
}

pub(crate) struct Mcp {
    address: ServerAddress,
    start_timeout: Duration,
    call_timeout: Duration,
    question_timeout: Duration,
    /// Values that no error may contain.
    secrets: Vec<String>,
    /// Last lines of the server's program on stderr.
    last_words: LastWords,
}

impl Mcp {
    /// Creates a connector from validated settings.
    ///
    /// # Errors
    ///
    /// A description of why the client cannot be created.
    pub(crate) fn new(assignment: &ConnectorAssignment) -> Result<Self, String> {
        let values = Values::of("mcp", &assignment.config);
        let seconds = |name| Duration::from_secs(values.number(name).unwrap_or_default());
        let token = assignment.secrets.get("token");
        let (env, headers) = (values.text_map("env"), values.text_map("headers"));
        let secrets = env.iter().chain(&headers).map(|(_, value)| *value);
        // A short value is a setting, and hiding every `1` would make errors unreadable.
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
                    .ok_or("a program needs a project, but the daemon sent none")?,
                sandbox: assignment.sandbox.clone(),
                egress: assignment.egress_socket.clone(),
                cache: assignment.package_cache.clone(),
            },
            (None, Some(url)) => {
                ServerAddress::Http(over_http(url, &headers, token.map(String::as_str))?)
            }
            (None, None) => return Err("set `command` or `url`".to_owned()),
        };
        Ok(Self {
            address,
            start_timeout: seconds("startSeconds"),
            call_timeout: seconds("timeoutSeconds"),
            question_timeout: seconds("questionSeconds"),
            secrets,
            last_words: LastWords::default(),
        })
    }

    /// Serves calls until `stop`.
    pub(crate) async fn run(self, gateway: Gateway, stop: CancellationToken) {
        let (serving, server) = watch::channel(None);
        let calls = OpenCalls::default();
        let asking = QuestionRelay::new(
            gateway.clone(),
            calls.clone(),
            self.question_timeout,
            &self.secrets,
        );
        let actions = Actions::new(
            gateway.clone(),
            server,
            calls,
            self.call_timeout,
            self.secrets.clone(),
            self.address.policy(),
        );
        gateway.serve(Arc::new(actions.clone())).await;
        let (mut failures, mut faults): (u32, u32) = (0, 0);
        while !stop.is_cancelled() {
            let (since, start_timeout) = (Instant::now(), self.start_timeout());
            if start_timeout > self.start_timeout {
                tracing::info!("the first start of the MCP server includes its download");
            }
            let started = tokio::select! {
                () = stop.cancelled() => return,
                started = timeout(start_timeout, self.start(&asking)) => started,
            };
            if let Some(cache) = self.address.cache() {
                package_cache::note_start(cache, matches!(started, Ok(Ok(_))));
            }
            let (reason, token) = match started {
                Ok(Ok((session, client))) => {
                    let peer = session.peer();
                    let introduction: Arc<str> = session.introduction().into();
                    let running = RunningServer {
                        peer,
                        client,
                        introduction: Arc::clone(&introduction),
                    };
                    serving.send_replace(Some(running.clone()));
                    // The first list is part of the start, so that no agent waits for it.
                    let is_reported = tokio::select! {
                        () = stop.cancelled() => false,
                        is_listed = actions.list_first(&running) => is_listed,
                    };
                    drop(running);
                    // Waiting calls start as soon as the server is announced.
                    if !is_reported {
                        gateway.report(true, introduction.as_ref()).await;
                    }
                    let end = session.wait_for_end(&stop, &gateway.calls_over()).await;
                    serving.send_replace(None);
                    faults = 0;
                    (end, None)
                }
                Ok(Err(not_started)) => {
                    faults = match not_started.is_lasting {
                        true => faults.saturating_add(1),
                        false => 0,
                    };
                    (not_started.reason, not_started.token)
                }
                Err(_elapsed) => {
                    faults = 0;
                    let seconds = start_timeout.as_secs();
                    let reason = format!("the server was not ready within {seconds} s");
                    (self.last_words.explain(reason), None)
                }
            };
            if stop.is_cancelled() {
                return;
            }
            if faults >= PROGRAM_START_FAULTS_MAX {
                let reason = masked(reason, &self.secrets);
                return gateway.park(&reason, &stop).await;
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
                "the MCP server is not available"
            );
            let detail = format!("{reason}; trying again after {} s", pause.as_secs());
            gateway.report_declined(detail, token).await;
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(pause) => {}
            }
        }
    }

    /// Time for a start, which may include the first download of the server.
    fn start_timeout(&self) -> Duration {
        let download = Duration::from_millis(PACKAGE_DOWNLOAD_TIMEOUT_MS);
        match self.address.cache() {
            Some(cache) if !package_cache::is_filled(cache) => self.start_timeout.max(download),
            Some(_) | None => self.start_timeout,
        }
    }

    /// Starts or connects to the server and negotiates the protocol.
    async fn start(
        &self,
        asking: &QuestionRelay,
    ) -> Result<(McpSession, McpClientHandler), ServerStartFailure> {
        match &self.address {
            ServerAddress::Http(config) => {
                let client = McpClientHandler::new(asking.clone());
                let session = McpSession::over_http(&client, config).await?;
                Ok((session, client))
            }
            ServerAddress::Program {
                command,
                env,
                project_root,
                sandbox,
                egress,
                cache,
            } => {
                let directories = (egress.as_deref(), cache.as_deref());
                let allowed = rights_of(project_root, sandbox, directories);
                let path = allowed.path();
                let context = StartContext {
                    policy: sandbox,
                    project_root,
                    path: &path,
                    env,
                };
                if let Some(reason) = package_runner::refusal(command, context) {
                    return Err(ServerStartFailure::lasting(reason));
                }
                let client = McpClientHandler::in_directory(asking.clone(), project_root);
                let words = &self.last_words;
                let session =
                    McpSession::of_program(&client, command, env, project_root, allowed, words)
                        .await;
                Ok((session?, client))
            }
        }
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
