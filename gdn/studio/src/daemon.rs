//! The page's requests to the daemon. Each request uses its own connection, so a connection lost
//! with a daemon is never reused.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use goondan_client::{CallError, Client, Endpoint, RequestTimeout};
use goondan_protocol::control::{Call, CallKind, Method as _, TaskStreamPart, WatchTask};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, SemaphorePermit, mpsc};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use crate::limits::{
    CALLS_MAX, DECISIONS_MAX, SEARCH_LINES_MAX, SEARCHES_MAX, STREAM_ALIVE_MS, STREAM_LINES_MAX,
    STREAM_PARTS_MAX, STREAMS_MAX, WAITS_MAX,
};
use crate::methods::Access;
use crate::page_error::DaemonRequestError;
use crate::search::{SearchRequest, search};

/// The daemon of one state root or of another machine.
#[derive(Debug)]
pub(crate) struct Daemon {
    endpoint: Endpoint,
    /// One pool for each kind of request, so that none waits for one of another kind.
    calls: Semaphore,
    decisions: Semaphore,
    waits: Semaphore,
    streams: Arc<Semaphore>,
    searches: Arc<Semaphore>,
    /// Tasks of the streams; each ends when its browser disconnects.
    following: TaskTracker,
}

impl Daemon {
    pub(crate) fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            calls: Semaphore::new(CALLS_MAX),
            decisions: Semaphore::new(DECISIONS_MAX),
            waits: Semaphore::new(WAITS_MAX),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            searches: Arc::new(Semaphore::new(SEARCHES_MAX)),
            following: TaskTracker::new(),
        }
    }

    /// The state root, or the address of the other machine.
    pub(crate) fn place(&self) -> String {
        match &self.endpoint {
            Endpoint::Local(state_root) => state_root.to_string_lossy().into_owned(),
            Endpoint::Remote(remote) => remote.to_string(),
        }
    }

    /// Sends one request. The result is the daemon's raw JSON.
    pub(crate) async fn call(
        &self,
        method: &'static str,
        access: Access,
        params: &RawValue,
    ) -> Result<Box<RawValue>, DaemonRequestError> {
        let _permit = match kind_of(method, params) {
            CallKind::Waits => self
                .waits
                .try_acquire()
                .map_err(|_| DaemonRequestError::TooManyWaits)?,
            CallKind::Decides => acquire(&self.decisions).await,
            CallKind::Other => acquire(&self.calls).await,
        };
        let mut client = Client::connect(&self.endpoint).await?;
        let limit = match access {
            Access::Reads => RequestTimeout::Query,
            Access::Writes => RequestTimeout::Change,
        };
        let answer = client.forward(method, params, limit, |_, _| {});
        Ok(answer.await?)
    }

    /// Starts a stream of events, line by line.
    pub(crate) async fn stream(
        &self,
        method: &'static str,
        params: Box<RawValue>,
    ) -> Result<StreamLines, DaemonRequestError> {
        let permit = Arc::clone(&self.streams).try_acquire_owned();
        let permit = permit.map_err(|_| DaemonRequestError::TooManyStreams)?;
        let lines = if method == WatchTask::NAME {
            let watch = serde_json::from_str(params.get()).map_err(DaemonRequestError::Params)?;
            let client = Client::connect(&self.endpoint).await?;
            let (sender, lines) = mpsc::channel(STREAM_PARTS_MAX);
            self.following.spawn(watch_task(client, watch, sender));
            lines
        } else {
            let client = Client::connect(&self.endpoint).await?;
            let (sender, lines) = mpsc::channel(STREAM_LINES_MAX);
            self.following.spawn(follow(client, method, params, sender));
            lines
        };
        Ok(StreamLines {
            lines,
            _permit: Some(permit),
        })
    }

    /// Starts a search. It ends when the browser closes the connection.
    pub(crate) fn search(&self, request: SearchRequest) -> StreamLines {
        let (sender, lines) = mpsc::channel(SEARCH_LINES_MAX);
        let (endpoint, searches) = (self.endpoint.clone(), Arc::clone(&self.searches));
        self.following.spawn(async move {
            let work = async {
                let _permit = acquire(&searches).await;
                search(&endpoint, request, sender.clone()).await;
            };
            tokio::select! {
                () = work => {}
                () = sender.closed() => {}
            }
        });
        StreamLines {
            lines,
            _permit: None,
        }
    }
}

/// Kind of a request, which determines its timeout. The daemon rejects an invalid request quickly.
fn kind_of(method: &str, params: &RawValue) -> CallKind {
    let call = format!("{{\"method\":\"{method}\",\"params\":{params}}}");
    serde_json::from_str::<Call>(&call).map_or(CallKind::Other, |call| CallKind::from(&call))
}

async fn acquire(pool: &Semaphore) -> SemaphorePermit<'_> {
    match pool.acquire().await {
        Ok(permit) => permit,
        // Pools are never closed.
        Err(_) => std::future::pending().await,
    }
}

/// Forwards the daemon's messages until the stream ends, or the browser closes the connection or
/// stops reading.
async fn follow(
    mut client: Client,
    method: &'static str,
    params: Box<RawValue>,
    lines: mpsc::Sender<Bytes>,
) {
    let cut_off = Notify::new();
    let on_notification = |name: &str, params: &RawValue| {
        let is_taken = notice_line(name, params).is_none_or(|line| lines.try_send(line).is_ok());
        if !is_taken {
            cut_off.notify_one();
        }
    };
    let following = client.forward(method, &params, RequestTimeout::Endless, on_notification);
    let outcome = tokio::select! {
        outcome = following => outcome,
        () = cut_off.notified() => return,
        () = lines.closed() => return,
    };
    let last = match outcome {
        Ok(result) => json!({ "result": result }),
        Err(error) => json!({ "error": DaemonRequestError::Call(error).to_response().1 }),
    };
    // A browser that misses this line still sees that the stream has ended.
    drop(lines.try_send(line(&last)));
}

/// Forwards a task's stream part by part until the task is over, or the browser closes the
/// connection. A browser that reads slowly delays the next request.
async fn watch_task(mut client: Client, mut watch: WatchTask, lines: mpsc::Sender<Bytes>) {
    // The first part comes at once, even without an item, so that the page sees a live stream.
    watch.wait = false;
    loop {
        let Ok(room) = lines.reserve().await else {
            return;
        };
        let part = tokio::select! {
            part = next_part(&mut client, &watch) => part,
            () = lines.closed() => return,
        };
        let part = match part {
            Ok(part) => part,
            Err(error) => {
                return room.send(line(
                    &json!({ "error": DaemonRequestError::Call(error).to_response().1 }),
                ));
            }
        };
        let notice = TaskNotice {
            after: watch.after,
            part: &part,
        };
        room.send(line(&json!({ "notice": "task.part", "params": notice })));
        if part.is_over {
            return;
        }
        watch.after = Some(part.next);
        watch.wait = true;
    }
}

async fn next_part(client: &mut Client, watch: &WatchTask) -> Result<TaskStreamPart, CallError> {
    let unreadable = |source| CallError::Unreadable {
        method: WatchTask::NAME,
        source,
    };
    let params = to_raw_value(watch).map_err(unreadable)?;
    let limit = RequestTimeout::Endless;
    let part = client.forward(WatchTask::NAME, &params, limit, |_, _| {});
    serde_json::from_str(part.await?.get()).map_err(unreadable)
}

/// A part of a task's stream with the position at which it begins, which shows the page if it
/// missed one.
#[derive(Serialize)]
struct TaskNotice<'p> {
    /// Absent at the start of the latest run.
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<u64>,
    #[serde(flatten)]
    part: &'p TaskStreamPart,
}

/// Formats a notification for the page, without the request id, which belongs to our own request.
fn notice_line(name: &str, params: &RawValue) -> Option<Bytes> {
    let mut params: Map<String, Value> = serde_json::from_str(params.get()).ok()?;
    params.shift_remove("requestId");
    Some(line(&json!({ "notice": name, "params": params })))
}

fn line(value: &Value) -> Bytes {
    Bytes::from(format!("{value}\n"))
}

#[derive(Debug)]
pub(crate) struct StreamLines {
    lines: mpsc::Receiver<Bytes>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl StreamLines {
    /// The next line; after a silent interval, a keep-alive line. `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        let silence = Duration::from_millis(STREAM_ALIVE_MS);
        match timeout(silence, self.lines.recv()).await {
            Ok(line) => line,
            Err(_) => Some(line(&json!({ "alive": true }))),
        }
    }
}

#[cfg(test)]
mod tests {
    use goondan_protocol::control::{ControlError, ErrorCode};

    use axum::http::StatusCode;

    use super::*;

    #[test]
    fn daemon_refusal_is_passed_on_unchanged() {
        let refused = ControlError::new(ErrorCode::EventNotFound, "no event e1").suggest("look");
        let (status, told) = DaemonRequestError::Call(CallError::Refused(refused)).to_response();
        assert_eq!(status, StatusCode::OK);
        let json = json!({"code": "eventNotFound", "message": "no event e1", "suggestion": "look"});
        assert_eq!(serde_json::to_value(&told).unwrap(), json);
    }

    #[test]
    fn a_notification_has_no_number_of_a_request() {
        let params = r#"{"requestId":7,"cursor":"1.2","event":{"type":"turnBegan"}}"#;
        let params = RawValue::from_string(params.to_owned()).unwrap();
        let line = notice_line("workspace.change", &params).unwrap();
        let written = "{\"notice\":\"workspace.change\",\
                       \"params\":{\"cursor\":\"1.2\",\"event\":{\"type\":\"turnBegan\"}}}\n";
        assert_eq!(line, written);
    }

    #[test]
    fn agent_7_a_part_of_a_task_names_its_beginning() {
        let part = TaskStreamPart {
            next: 4096,
            is_over: true,
            ..TaskStreamPart::default()
        };
        let shown = |after| serde_json::to_value(TaskNotice { after, part: &part }).unwrap();
        let first = json!({"items": [], "next": 4096, "isEnd": false, "isOver": true});
        assert_eq!(shown(None), first);
        assert_eq!(shown(Some(2048))["after"], 2048);
    }

    #[tokio::test(start_paused = true)]
    async fn silent_stream_sends_keep_alives_and_ends_with_its_sender() {
        let streams = Arc::new(Semaphore::new(1));
        let (sender, lines) = mpsc::channel(1);
        let mut lines = StreamLines {
            lines,
            _permit: Some(streams.try_acquire_owned().unwrap()),
        };
        assert_eq!(lines.next().await.unwrap(), "{\"alive\":true}\n");
        sender.try_send(Bytes::from_static(b"x\n")).unwrap();
        assert_eq!(lines.next().await.unwrap(), "x\n");
        drop(sender);
        assert_eq!(lines.next().await, None);
    }
}
