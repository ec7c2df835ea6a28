//! Search over everything that the page may read: names, decisions, events, tasks, proposals, the
//! audit log, the log, and the messages and turns of all conversations (`OBS-5`).
//!
//! The search has no index: each answer reads through the daemon's lists, latest conversation first, and
//! sends hits as it finds them. Its work is bounded: it pauses after a number of hits or requests,
//! and ends when the browser closes the connection. The memory is that of one response of the
//! daemon. It finds what the daemon shows, so masked secrets stay masked.

use std::time::Duration;

use bytes::Bytes;
use goondan_client::{CallError, Client, Endpoint, RequestTimeout};
use goondan_protocol::control::ErrorCode;
use goondan_protocol::ids::WorkspaceId;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use self::cursor::{Cursor, Stage};
use self::lists::{APPROVALS, NAMES, QUESTIONS};
use self::needle::{Excerpt, Needle};
use crate::limits::{
    SEARCH_HITS_MAX, SEARCH_PROGRESS_MS, SEARCH_REQUESTS_MAX, SEARCH_TEXT_BYTES_MAX,
};
use crate::page_error::DaemonRequestError;

mod conversations;
mod cursor;
mod lists;
mod needle;
mod proposals;
mod tasks;

/// A search, or its continuation.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct SearchRequest {
    text: String,
    /// Search only this workspace; all if absent.
    #[serde(default)]
    workspace_id: Option<WorkspaceId>,
    /// `next` of the previous answer; absent at the start.
    #[serde(default)]
    after: Option<Cursor>,
}

/// A found place. The page makes an address from it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Hit<'v> {
    kind: &'static str,
    /// Absent for the system's own records.
    #[serde(skip_serializing_if = "Option::is_none")]
    workspace_id: Option<&'v str>,
    /// Name of the item that has a page, such as the key of the conversation.
    id: &'v str,
    title: &'v str,
    text: Excerpt,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<&'v str>,
    /// Place within the item: a message, a trace or a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<&'v str>,
}

/// Reason why an answer ends before the search does.
enum Pause {
    /// It has enough hits, or has done enough work.
    Full,
    /// The browser no longer reads.
    Gone,
    Failed(DaemonRequestError),
}

/// Searches, and sends a line for each hit, for the progress, and for the end with the position of
/// the next answer.
pub(crate) async fn search(
    endpoint: &Endpoint,
    request: SearchRequest,
    lines: mpsc::Sender<Bytes>,
) {
    let last = match Search::start(endpoint, request, lines.clone()).await {
        Ok(mut search) => match search.run().await {
            Ok(()) => json!({ "end": { "read": search.read, "skipped": search.skipped } }),
            Err(Pause::Full) => {
                let next = &search.cursor;
                json!({ "end": { "read": search.read, "skipped": search.skipped, "next": next } })
            }
            Err(Pause::Gone) => return,
            Err(Pause::Failed(error)) => json!({ "error": error.to_response().1 }),
        },
        Err(error) => json!({ "error": error.to_response().1 }),
    };
    // A browser that is gone does not need the end.
    drop(lines.send(line(&last)).await);
}

fn line(value: &impl Serialize) -> Bytes {
    let text = serde_json::to_string(value).unwrap_or_default();
    Bytes::from(format!("{text}\n"))
}

impl SearchRequest {
    /// Checks the text.
    ///
    /// # Errors
    ///
    /// A message for the user.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self.text.trim() {
            "" => Err("the searched text is empty".to_owned()),
            text if text.len() > SEARCH_TEXT_BYTES_MAX => Err(format!(
                "the searched text has more than {SEARCH_TEXT_BYTES_MAX} bytes"
            )),
            _ => Ok(()),
        }
    }
}

struct Search<'e> {
    endpoint: &'e Endpoint,
    client: Client,
    lines: mpsc::Sender<Bytes>,
    text: String,
    needle: Needle,
    only: Option<WorkspaceId>,
    cursor: Cursor,
    hits: usize,
    requests: usize,
    /// Items that could not be read, such as damaged conversations.
    skipped: usize,
    /// Conversations, tasks and proposals that were searched.
    read: usize,
    reported: Instant,
}

impl<'e> Search<'e> {
    async fn start(
        endpoint: &'e Endpoint,
        request: SearchRequest,
        lines: mpsc::Sender<Bytes>,
    ) -> Result<Self, DaemonRequestError> {
        let text = request.text.trim().to_owned();
        Ok(Self {
            endpoint,
            client: Client::connect(endpoint).await?,
            lines,
            needle: Needle::new(&text),
            text,
            only: request.workspace_id,
            cursor: request.after.unwrap_or_default(),
            hits: 0,
            requests: 0,
            skipped: 0,
            read: 0,
            reported: Instant::now(),
        })
    }

    async fn run(&mut self) -> Result<(), Pause> {
        loop {
            match self.cursor.stage {
                Stage::Workspaces => self.workspaces().await?,
                Stage::Names => self.plain(&NAMES, None).await?,
                Stage::Approvals => self.plain(&APPROVALS, None).await?,
                Stage::Questions => self.plain(&QUESTIONS, None).await?,
                Stage::Events => self.of_each_workspace(false).await?,
                Stage::Tasks => self.tasks().await?,
                Stage::Proposals => self.of_each_workspace(true).await?,
                Stage::Audit => self.audit().await?,
                Stage::Log => self.log().await?,
                Stage::Conversations | Stage::Changed => self.conversations().await?,
            }
            match self.cursor.next_stage() {
                Some(next) => self.cursor = next,
                None => return Ok(()),
            }
            self.rest().await?;
        }
    }

    /// Sends a request that reads. `None` if the daemon refuses it, for example because the item is
    /// damaged or was deleted meanwhile.
    async fn ask(&mut self, method: &'static str, params: &Value) -> Result<Option<Value>, Pause> {
        self.ask_with(method, params, |_| {}).await
    }

    async fn ask_with(
        &mut self,
        method: &'static str,
        params: &Value,
        mut on_notification: impl FnMut(&RawValue),
    ) -> Result<Option<Value>, Pause> {
        self.requests += 1;
        let unreadable = |source| CallError::Unreadable { method, source };
        let failed = |error: CallError| Pause::Failed(error.into());
        let params = to_raw_value(params).map_err(|source| failed(unreadable(source)))?;
        let mut is_again = false;
        loop {
            let notify = |_: &str, params: &RawValue| on_notification(params);
            let answer = self
                .client
                .forward(method, &params, RequestTimeout::Query, notify);
            match answer.await {
                Ok(result) => {
                    let value = serde_json::from_str(result.get());
                    return Ok(Some(value.map_err(|source| failed(unreadable(source)))?));
                }
                Err(CallError::Refused(refused)) if !is_general(refused.code) => {
                    self.skipped += 1;
                    return Ok(None);
                }
                // The daemon makes room for other clients, or was restarted. Reading twice is safe.
                Err(error) if error.is_lost() && !is_again => {
                    is_again = true;
                    let client = Client::connect(self.endpoint).await;
                    self.client = client.map_err(|error| Pause::Failed(error.into()))?;
                }
                Err(error) => return Err(failed(error)),
            }
        }
    }

    async fn send(&mut self, value: &impl Serialize) -> Result<(), Pause> {
        let sent = self.lines.send(line(value)).await;
        sent.map_err(|_| Pause::Gone)
    }

    async fn hit(&mut self, hit: Hit<'_>) -> Result<(), Pause> {
        self.hits += 1;
        self.send(&json!({ "hit": hit })).await
    }

    /// Called where the position is complete: reports the progress, and pauses if there is enough.
    async fn rest(&mut self) -> Result<(), Pause> {
        if self.reported.elapsed() >= Duration::from_millis(SEARCH_PROGRESS_MS) {
            self.reported = Instant::now();
            let progress = json!({ "stage": self.cursor.stage, "read": self.read });
            self.send(&json!({ "progress": progress })).await?;
        }
        match self.hits >= SEARCH_HITS_MAX || self.requests >= SEARCH_REQUESTS_MAX {
            true => Err(Pause::Full),
            false => Ok(()),
        }
    }

    /// Sets the position in the list; false at its end.
    fn turn(&mut self, next: Option<&Value>) -> bool {
        self.cursor.after = next.filter(|next| !next.is_null()).cloned();
        self.cursor.after.is_some()
    }
}

/// True for errors that the next request would get as well.
fn is_general(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::Overloaded | ErrorCode::Stopping | ErrorCode::VersionMismatch
    )
}

/// The items of a list; none if it is absent.
fn items<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    let items = value.get(name).and_then(Value::as_array);
    items.map_or(&[], Vec::as_slice)
}

fn optional_text<'v>(value: &'v Value, name: &str) -> Option<&'v str> {
    value.get(name)?.as_str()
}

fn text_of<'v>(value: &'v Value, name: &str) -> &'v str {
    optional_text(value, name).unwrap_or_default()
}
