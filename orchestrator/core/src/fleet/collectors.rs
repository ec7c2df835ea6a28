//! Trace export to collectors: sends turn events to the `otlp` connections.
//!
//! Export is asynchronous. Each connection receives one batch at a time; later events wait in a
//! bounded queue. Events that overflow the queue or cannot be delivered are counted and reported.

use std::collections::VecDeque;

use goondan_protocol::call::{CallId, CallOrder, CallOutcome, CallResult, Caller};
use goondan_protocol::envelope::Address;
use goondan_protocol::export::{EXPORT, Export, ExportedEvent};
use goondan_protocol::ids::{ConnectionName, WorkspaceId};
use goondan_protocol::ipc::{EnvelopeHeader, ToConnector};
use goondan_protocol::observe::{RuntimeEvent, SpanOutcome, SpanPhase};
use serde_json::value::to_raw_value;

use crate::bus::context::Cx;
use crate::limits::{EXPORT_BATCH_EVENTS, EXPORT_DEADLINE_MS, EXPORT_QUEUE_EVENTS};
use crate::{CoreEffect, LogEvent, ProcessId};

#[derive(Debug)]
struct Batch {
    process: ProcessId,
    call_id: CallId,
    events: u64,
}

/// Export state of one `otlp` connection.
#[derive(Debug, Default)]
pub(super) struct ExportQueue {
    waiting: VecDeque<ExportedEvent>,
    batch: Option<Batch>,
    /// Number of lost events, and how many of them were reported.
    lost: u64,
    told: u64,
    /// Reason for the latest loss.
    why: String,
}

impl ExportQueue {
    pub(super) fn add(&mut self, event: ExportedEvent) {
        if self.waiting.len() < EXPORT_QUEUE_EVENTS {
            self.waiting.push_back(event);
        } else {
            self.lose(1, "they arrive faster than they can be exported");
        }
    }

    fn lose(&mut self, events: u64, why: &str) {
        self.lost = self.lost.saturating_add(events);
        why.clone_into(&mut self.why);
    }
}

/// The error code at the start of a failure's text. The rest of the text is not exported.
pub(super) fn code_of(event: &RuntimeEvent) -> Option<String> {
    let is_failure = matches!(
        event.kind.phase(),
        SpanPhase::Ends(SpanOutcome::Failed | SpanOutcome::Parked)
    );
    let (code, _) = event.detail.as_deref()?.split_once(':')?;
    let is_code = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    (is_failure && code.starts_with("E_") && code.bytes().all(is_code)).then(|| code.to_owned())
}

impl ExportQueue {
    /// Sends the next batch to a process that is ready for it, if there is one.
    pub(super) fn send(
        &mut self,
        cx: &mut Cx,
        (id, name): (&WorkspaceId, &ConnectionName),
        ready: Option<ProcessId>,
    ) {
        let (Some(process), None) = (ready, &self.batch) else {
            return;
        };
        while !self.waiting.is_empty() {
            let call_id = cx.next_call_id();
            let count = self.waiting.len().min(EXPORT_BATCH_EVENTS);
            let events: Vec<ExportedEvent> = self.waiting.drain(..count).collect();
            let Some(first) = events.first() else {
                return;
            };
            let caller = Caller {
                agent: first.event.agent_name.clone(),
                instance_key: first.event.instance_key.clone(),
            };
            let export = Export {
                workspace_id: id.clone(),
                events,
            };
            let Ok(params) = to_raw_value(&export) else {
                self.lose(count as u64, "they cannot be written as JSON");
                continue;
            };
            self.batch = Some(Batch {
                process,
                call_id,
                events: count as u64,
            });
            let order = CallOrder {
                call_id,
                caller,
                event_id: None,
                method: EXPORT.to_owned(),
                params,
                deadline_ms: EXPORT_DEADLINE_MS,
                again_since: None,
            };
            let to = Address::Connector { name: name.clone() };
            return cx.emit(CoreEffect::Send {
                process,
                head: EnvelopeHeader::new(Address::Orchestrator, to),
                message: Box::new(ToConnector::Call(Box::new(order)).into()),
            });
        }
    }

    /// True if this is the result of the batch in flight.
    pub(super) fn on_done(&mut self, process: ProcessId, result: &CallResult) -> bool {
        let is_its =
            |batch: &mut Batch| batch.process == process && batch.call_id == result.call_id;
        let Some(batch) = self.batch.take_if(is_its) else {
            return false;
        };
        if let CallOutcome::Error(error) = &result.outcome {
            self.lose(batch.events, &error.message);
        }
        true
    }

    /// Handles the exit of the process. Its batch may not have been delivered.
    pub(super) fn on_gone(&mut self, process: ProcessId, how: &str) {
        if let Some(batch) = self.batch.take_if(|batch| batch.process == process) {
            self.lose(batch.events, how);
        }
    }

    /// The events lost since the last report, for the log.
    pub(super) fn losses(
        &mut self,
        (id, name): (&WorkspaceId, &ConnectionName),
    ) -> Option<LogEvent> {
        if self.lost <= self.told {
            return None;
        }
        let event = LogEvent::warn("trace events not exported")
            .with("workspaceId", id.as_str())
            .with("connection", name.as_str())
            .with("lost", self.lost - self.told)
            .with("lostInAll", self.lost)
            .with("reason", self.why.clone());
        self.told = self.lost;
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(kind: &str, detail: &str) -> RuntimeEvent {
        serde_json::from_value(json!({
            "type": kind,
            "timestamp": "2026-01-01T00:00:00.000Z",
            "traceId": "4bf92f3577b34da6a3ce929d0e0e4736",
            "spanId": "00f067aa0ba902b7",
            "agentName": "clerk",
            "instanceKey": "main",
            "turnId": "t",
            "detail": detail,
        }))
        .unwrap()
    }

    #[test]
    fn events_over_the_export_limit_are_dropped_and_counted() {
        let mut collecting = ExportQueue::default();
        let exported = ExportedEvent {
            event: event("turn.started", ""),
            model: None,
        };
        for _ in 0..EXPORT_QUEUE_EVENTS + 7 {
            collecting.add(exported.clone());
        }
        assert_eq!(collecting.waiting.len(), EXPORT_QUEUE_EVENTS);
        assert_eq!((collecting.lost, collecting.told), (7, 0));
    }

    #[test]
    fn exported_failure_contains_only_its_error_code() {
        let code = |kind: &str, detail: &str| code_of(&event(kind, detail));
        assert_eq!(
            code("turn.failed", "E_LOOP: it says: hello"),
            Some("E_LOOP".to_owned())
        );
        assert_eq!(code("tool.failed", "my secret: hello"), None);
        assert_eq!(code("tool.failed", "E_secret: hello"), None);
        assert_eq!(code("turn.started", "E_LOOP: hello"), None);
    }
}
