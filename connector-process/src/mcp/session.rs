//! A session with a server, from start to end.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use goondan_clock::{sleep, timeout};
use goondan_confinement::ProgramRights;
use goondan_log::{TEXT_BYTES_MAX, error_chain};
use goondan_protocol::call::TokenVerdict;
use goondan_protocol::lone_surrogates::without_lone_surrogates;
use rmcp::RoleClient;
use rmcp::service::{Peer, RunningService, serve_client};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use tokio::io::{AsyncWriteExt as _, DuplexStream};
use tokio::process::{Child, ChildStderr, ChildStdout};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::client::McpClientHandler;
use super::error_texts;
use super::http_client::McpHttpClient;
use super::initialize_result;
use super::json_rpc;
use super::older_transport::{self, OFFERS_ONLY_EVENTS};
use super::stderr_tail::LastWords;
use crate::child_guard::{self, Group};
use crate::http;
use crate::limits::{
    MCP_CALLS_END_TIMEOUT_MS, MCP_LAST_WORDS_TIMEOUT_MS, NOTE_BYTES_MAX, PROGRAM_LINE_BYTES_MAX,
    SERVICE_CONNECT_TIMEOUT_MS,
};
use crate::lines::{LineReader, ProgramStream};

/// Byte order mark of UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Buffer for messages to the client, in bytes.
const MESSAGE_BYTES_WAITING: usize = 64 * 1024;

/// Reason why a server is not available.
pub(super) struct ServerStartFailure {
    pub(super) reason: String,
    /// Verdict on the request's token, if it caused the failure.
    pub(super) token: Option<TokenVerdict>,
    /// True if the next start would meet the reason as well.
    pub(super) is_lasting: bool,
}

impl ServerStartFailure {
    /// A reason that another start would meet as well.
    pub(super) fn lasting(reason: String) -> Self {
        Self {
            is_lasting: true,
            ..Self::new(reason, None)
        }
    }

    fn new(reason: String, token: Option<TokenVerdict>) -> Self {
        Self {
            reason,
            token,
            is_lasting: false,
        }
    }
}

/// A running server.
pub(super) struct McpSession {
    running: RunningService<RoleClient, McpClientHandler>,
    program: Option<(Child, Group)>,
    /// Tasks that log the program's other output.
    log: JoinSet<()>,
}

impl McpSession {
    /// Connects to a remote server and negotiates the protocol.
    ///
    /// # Errors
    ///
    /// [`ServerStartFailure`] if communication fails.
    pub(super) async fn over_http(
        client: &McpClientHandler,
        config: &StreamableHttpClientTransportConfig,
    ) -> Result<Self, ServerStartFailure> {
        let http = http::client_of_one_host(Duration::from_millis(SERVICE_CONNECT_TIMEOUT_MS));
        let http = http.map_err(|error| ServerStartFailure::new(error_chain(&error), None))?;
        let transport = StreamableHttpClientTransport::with_client(
            McpHttpClient::new(http.clone()),
            config.clone(),
        );
        let running = serve_client(client.clone(), transport).await;
        let error = match running {
            Ok(running) => {
                return Ok(Self {
                    running,
                    program: None,
                    log: JoinSet::new(),
                });
            }
            Err(error) => error,
        };
        let token = error
            .auth_challenge()
            .and_then(error_texts::verdict_of_challenge);
        let error = error_texts::of_start(&error);
        let why = match token.is_none() && older_transport::is_the_only_one(&http, config).await {
            true => OFFERS_ONLY_EVENTS.to_owned(),
            false => error,
        };
        let reason = format!("failed to connect to `{}`: {why}", config.uri);
        Err(ServerStartFailure::new(reason, token))
    }

    /// Starts a server that is a program and negotiates the protocol.
    ///
    /// # Errors
    ///
    /// [`ServerStartFailure`] if it cannot be started or spoken to.
    pub(super) async fn of_program(
        client: &McpClientHandler,
        command: &[String],
        env: &BTreeMap<String, String>,
        project_root: &Path,
        allowed: ProgramRights,
        last_words: &LastWords,
    ) -> Result<Self, ServerStartFailure> {
        let shown = command.first().map_or("", String::as_str);
        let cannot = |error: std::io::Error| {
            ServerStartFailure::new(format!("`{shown}` cannot be started: {error}"), None)
        };
        let mut child = child_guard::command(&child_guard::words(command), project_root, allowed)
            .map_err(cannot)?
            .envs(env)
            .spawn()
            .map_err(cannot)?;
        let group = Group::of(&child);
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            let reason = format!("`{shown}` cannot be started: it has no pipes");
            return Err(ServerStartFailure::new(reason, None));
        };
        let mut log = JoinSet::new();
        let not_started = Arc::new(OnceLock::new());
        let stderr = LineReader::new(stderr, TEXT_BYTES_MAX);
        last_words.clear();
        log.spawn(log_lines(
            stderr,
            Arc::clone(&not_started),
            last_words.clone(),
        ));
        let (messages, into_messages) = tokio::io::duplex(MESSAGE_BYTES_WAITING);
        log.spawn(pass_messages_on(
            LineReader::new(stdout, PROGRAM_LINE_BYTES_MAX),
            into_messages,
        ));
        match serve_client(client.clone(), (messages, stdin)).await {
            Ok(running) => Ok(Self {
                running,
                program: Some((child, group)),
                log,
            }),
            Err(error) => {
                drop(group);
                finish(log).await;
                let time_limit = Duration::from_millis(MCP_LAST_WORDS_TIMEOUT_MS);
                let how = match timeout(time_limit, child.wait()).await {
                    Ok(Ok(status)) if child_guard::was_not_started(status) => match not_started
                        .get()
                    {
                        Some(reason) => {
                            return Err(ServerStartFailure::lasting(format!("`{shown}` {reason}")));
                        }
                        None => child_guard::ended(status),
                    },
                    Ok(Ok(status)) => child_guard::ended(status),
                    Ok(Err(_)) | Err(_) => "does not end".to_owned(),
                };
                let error = error_texts::of_start(&error);
                let reason = format!("`{shown}` is not an MCP server: {error}; it {how}");
                let reason = last_words.explain(reason);
                Err(ServerStartFailure::new(reason, None))
            }
        }
    }

    /// Handle for requests to the server.
    pub(super) fn peer(&self) -> Peer<RoleClient> {
        self.running.peer().clone()
    }

    /// Name and version that the server reports.
    pub(super) fn introduction(&self) -> String {
        let info = self.running.peer().peer_info();
        let server = info.as_ref().and_then(|info| info.server_info.as_ref());
        let told = match server.filter(|server| !server.name.is_empty()) {
            Some(server) => format!("MCP server {} {}", server.name, server.version),
            None => "MCP server without a name".to_owned(),
        };
        told.trim_end().chars().take(NOTE_BYTES_MAX).collect()
    }

    /// Waits for the session to end, or ends it at `stop` after in-flight calls are answered.
    /// Returns a description of the end.
    pub(super) async fn wait_for_end(
        mut self,
        stop: &CancellationToken,
        calls_over: &CancellationToken,
    ) -> String {
        let log = std::mem::take(&mut self.log);
        let mut program = self.program.take();
        let how = self.end(&mut program, stop, calls_over).await;
        // Kills the program's remaining processes and logs their last output.
        drop(program);
        finish(log).await;
        how
    }

    async fn end(
        self,
        program: &mut Option<(Child, Group)>,
        stop: &CancellationToken,
        calls_over: &CancellationToken,
    ) -> String {
        let cancel = self.running.cancellation_token();
        let exited = async {
            match program {
                Some((child, _)) => child.wait().await,
                None => std::future::pending().await,
            }
        };
        let closed = tokio::select! {
            () = stopped(stop, calls_over) => {
                cancel.cancel();
                return "it is being stopped".to_owned();
            }
            status = exited => return exit_words(status),
            end = self.running.waiting() => match end {
                Ok(reason) => format!("the server closed the connection ({reason:?})"),
                Err(error) => format!("the connection failed: {error}"),
            },
        };
        // A program that closes its pipes is about to exit, and its exit code is more informative.
        let time_limit = Duration::from_millis(MCP_LAST_WORDS_TIMEOUT_MS);
        match program {
            Some((child, _)) => timeout(time_limit, child.wait())
                .await
                .map_or(closed, exit_words),
            None => closed,
        }
    }
}

/// Waits until the session must stop. Calls in progress get a short time to finish, because the
/// outcome of an aborted call would be unknown.
async fn stopped(stop: &CancellationToken, calls_over: &CancellationToken) {
    stop.cancelled().await;
    let time_limit = Duration::from_millis(MCP_CALLS_END_TIMEOUT_MS);
    tokio::select! {
        () = calls_over.cancelled() => {}
        () = sleep(time_limit) => {}
    }
}

/// Describes the exit of the server's program.
fn exit_words(status: std::io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => format!("the server {}", child_guard::ended(status)),
        Err(error) => format!("the server ended with an unknown status: {error}"),
    }
}

/// Logs the stderr of the server's program.
async fn log_lines(
    mut lines: LineReader<ChildStderr>,
    not_started: Arc<OnceLock<String>>,
    last_words: LastWords,
) {
    while let Ok(Some(line)) = lines.next().await {
        last_words.hear(&line.bytes);
        if let Some(reason) = child_guard::not_started_line(&line.bytes) {
            not_started.get_or_init(|| reason);
        }
        line.log(ProgramStream::Stderr);
    }
}

/// Forwards lines of stdout that are messages; other lines are logged (`LOG-3`). A line too long to
/// check is forwarded unchanged. Programs of .NET write a byte order mark first.
async fn pass_messages_on(mut lines: LineReader<ChildStdout>, mut messages: DuplexStream) {
    let mut is_initialized = false;
    while let Ok(Some(line)) = lines.next().await {
        let text = match line.is_whole() {
            true => line.bytes.strip_prefix(BYTE_ORDER_MARK),
            false => None,
        };
        let text = text.unwrap_or(&line.bytes);
        // The library would drop an answer with half of a surrogate pair, and its call would never
        // end.
        let repaired = std::str::from_utf8(text)
            .ok()
            .and_then(without_lone_surrogates);
        let text = repaired.as_deref().map_or(text, str::as_bytes);
        let found = match line.is_whole() {
            true => json_rpc::messages(text),
            false => Some(vec![text.into()]),
        };
        let Some(found) = found else {
            if !line.is_blank() {
                line.log(ProgramStream::Stdout);
            }
            continue;
        };
        let end: &[u8] = if line.is_end { b"\n" } else { b"" };
        for text in found {
            let completed = match is_initialized {
                true => None,
                false => initialize_result::completed(&text),
            };
            is_initialized |= completed.is_some();
            let text = completed.as_deref().unwrap_or(&text);
            let passed = async {
                messages.write_all(text).await?;
                messages.write_all(end).await
            };
            // A client that no longer reads has ended the session.
            if passed.await.is_err() {
                return;
            }
        }
    }
}

/// Waits until all output of the program is logged, unless its pipes are held open.
async fn finish(log: JoinSet<()>) {
    let time_limit = Duration::from_millis(MCP_LAST_WORDS_TIMEOUT_MS);
    if timeout(time_limit, log.join_all()).await.is_err() {
        tracing::warn!("failed to read the last output of the server's program");
    }
}
