//! Clients that read task logs and wait for new lines.

use goondan_core::{EndOfLogPolicy, LogPosition, RequestToken, TaskRef};
use goondan_protocol::control::{ControlError, ErrorCode, TaskLogPart, TaskStreamPart};
use goondan_protocol::ids::WorkspaceId;

use super::{TaskIo, logs, stream};

/// A client that reads a log.
#[derive(Debug)]
pub(super) struct TaskLogReader {
    pub(super) token: RequestToken,
    pub(super) at: TaskRef,
    pub(super) position: LogPosition,
}

/// Result of a read.
enum Found {
    /// No new lines. The client continues at this position.
    Nothing(LogPosition),
    Part(Result<serde_json::Value, serde_json::Error>),
}

/// Waiting clients.
pub(super) struct Readers {
    ground: TaskIo,
    waiting: Vec<TaskLogReader>,
}

impl Readers {
    pub(super) fn new(ground: TaskIo) -> Self {
        Self {
            ground,
            waiting: Vec::new(),
        }
    }

    /// Responds to a client, or makes it wait for new lines.
    pub(super) fn read(&mut self, mut reader: TaskLogReader, at_end: EndOfLogPolicy) {
        match self.find(&reader, at_end) {
            Ok(Found::Nothing(position)) => {
                reader.position = position;
                self.waiting.push(reader);
            }
            Ok(Found::Part(part)) => {
                let internal = |error: serde_json::Error| {
                    ControlError::new(ErrorCode::Internal, error.to_string())
                };
                self.ground.answer(reader.token, part.map_err(internal));
            }
            Err(error) => self.ground.answer(reader.token, Err(error)),
        }
    }

    fn find(&self, reader: &TaskLogReader, at_end: EndOfLogPolicy) -> Result<Found, ControlError> {
        let work_area = self.ground.work_area(&reader.at);
        let disk = self.ground.disk.as_ref();
        let (waits, is_over) = (
            at_end == EndOfLogPolicy::Wait,
            at_end == EndOfLogPolicy::Over,
        );
        Ok(match reader.position {
            LogPosition::Log { log, offset } => {
                let part = logs::read(disk, &work_area, log, offset)?;
                if part.text.is_empty() && waits {
                    // All new lines are requested, regardless of their number.
                    let offset = i64::try_from(part.next).unwrap_or(i64::MAX);
                    return Ok(Found::Nothing(LogPosition::Log { log, offset }));
                }
                let is_over = is_over && part.is_end;
                Found::Part(serde_json::to_value(TaskLogPart { is_over, ..part }))
            }
            LogPosition::Stream { after } => {
                let part = stream::read(disk, &work_area, after)?;
                if part.items.is_empty() && part.skipped_bytes == 0 && waits {
                    let after = Some(part.next);
                    return Ok(Found::Nothing(LogPosition::Stream { after }));
                }
                let is_over = is_over && part.is_end;
                Found::Part(serde_json::to_value(TaskStreamPart { is_over, ..part }))
            }
        })
    }

    /// Handles possible new lines of a task.
    pub(super) fn written(&mut self, at: &TaskRef) {
        for reader in self.take(|reader| reader.at == *at) {
            self.read(reader, EndOfLogPolicy::Wait);
        }
    }

    /// Handles the end of a task's logs.
    pub(super) fn over(&mut self, at: &TaskRef) {
        for reader in self.take(|reader| reader.at == *at) {
            self.read(reader, EndOfLogPolicy::Over);
        }
    }

    /// Responds to the clients of a closed workspace.
    pub(super) fn close(&mut self, id: &WorkspaceId) {
        for reader in self.take(|reader| reader.at.workspace_id == *id) {
            let error = ControlError::new(
                ErrorCode::WorkspaceNotFound,
                format!("workspace `{id}` was stopped"),
            );
            let error = error.suggest("start it with `gdn run`");
            self.ground.answer(reader.token, Err(error));
        }
    }

    /// Removes disconnected clients.
    pub(super) fn forget(&mut self, tokens: &[RequestToken]) {
        drop(self.take(|reader| tokens.contains(&reader.token)));
    }

    fn take(&mut self, is_meant: impl Fn(&TaskLogReader) -> bool) -> Vec<TaskLogReader> {
        let waiting = std::mem::take(&mut self.waiting);
        let (meant, others) = waiting.into_iter().partition(is_meant);
        self.waiting = others;
        meant
    }
}
