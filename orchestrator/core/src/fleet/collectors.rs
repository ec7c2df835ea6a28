//! Trace export to collectors: sends turn events to the `otlp` connections.
//!
//! Export is asynchronous. Each connection receives one batch at a time; later events wait in a
//! bounded queue. Events that overflow the queue or cannot be delivered are counted and reported.

use std::collections::VecDeque;

use goondan_protocol::call::{
    CallError, CallErrorCode, CallId, CallOrder, CallOutcome, CallResult, Caller,
};
use goondan_protocol::control::Readiness;
use goondan_protocol::definition::{HostedModel, ModelProvider};
use goondan_protocol::envelope::Address;
use goondan_protocol::export::{EXPORT, Export, ExportedEvent, ExportedModel};
use goondan_protocol::ids::{ConnectionName, InstanceRef, WorkspaceId};
use goondan_protocol::ipc::{EnvelopeHeader, ToConnector};
use goondan_protocol::observe::{RuntimeEvent, SpanOutcome, SpanPhase};
use serde_json::value::to_raw_value;

use super::Fleet;
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
    fn add(&mut self, event: ExportedEvent) {
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
fn code_of(event: &RuntimeEvent) -> Option<String> {
    let is_failure = matches!(
        event.kind.phase(),
        SpanPhase::Ends(SpanOutcome::Failed | SpanOutcome::Parked)
    );
    let (code, _) = event.detail.as_deref()?.split_once(':')?;
    let is_code = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    (is_failure && code.starts_with("E_") && code.bytes().all(is_code)).then(|| code.to_owned())
}

impl Fleet {
    /// Queues an event of a turn for export.
    pub(super) fn tell_collectors(&mut self, at: &InstanceRef, event: &RuntimeEvent) {
        let id = &at.workspace_id;
        let Some(workspace) = self.workspaces.get(id) else {
            return;
        };
        let exporters = workspace.connectors.iter();
        let exporters = exporters.filter(|(_, connector)| connector.is_exporter());
        let names: Vec<ConnectionName> = exporters.map(|(name, _)| name.clone()).collect();
        if names.is_empty() {
            return;
        }
        let exported = ExportedEvent {
            event: RuntimeEvent {
                detail: code_of(event),
                ..event.clone()
            },
            model: self.model_of(at),
        };
        for name in names {
            if let Some(connector) = self.connector_mut(id, &name) {
                connector.collecting.add(exported.clone());
            }
            self.pump_collecting(id, &name);
        }
    }

    /// The model of an instance's agent, as exported.
    fn model_of(&self, at: &InstanceRef) -> Option<ExportedModel> {
        let workspace = self.workspaces.get(&at.workspace_id)?;
        let model = &self.conversation(at)?.definition()?.model;
        let hosted = workspace.bundle.as_ref()?.models.get(&model.name);
        let provider = match (&model.provider, hosted) {
            (ModelProvider::Scripted { .. }, _) => "scripted",
            (ModelProvider::Connector { .. }, Some(hosted)) => hosted.provider_name(),
            (ModelProvider::Connector { .. }, None) => "openai",
        };
        let server = hosted.and_then(HostedModel::server);
        Some(ExportedModel {
            name: model.model.clone(),
            provider: provider.to_owned(),
            server_address: server.as_ref().map(|(host, _)| host.clone()),
            server_port: server.map(|(_, port)| port),
        })
    }

    /// Sends the next batch, if the connection is ready.
    pub(crate) fn pump_collecting(&mut self, id: &WorkspaceId, name: &ConnectionName) {
        let call_id = self.cx.next_call_id();
        let Some(connector) = self.connector_mut(id, name) else {
            return;
        };
        let ready = connector.slot.ready();
        let ready = ready.filter(|_| connector.readiness == Readiness::Ready);
        let collecting = &mut connector.collecting;
        let (Some(process), None) = (ready, &collecting.batch) else {
            return;
        };
        let count = collecting.waiting.len().min(EXPORT_BATCH_EVENTS);
        let events: Vec<ExportedEvent> = collecting.waiting.drain(..count).collect();
        let Some(first) = events.first() else {
            return;
        };
        let caller = Caller {
            agent: first.event.agent_name.clone(),
            instance_key: first.event.instance_key.clone(),
        };
        collecting.batch = Some(Batch {
            process,
            call_id,
            events: count as u64,
        });
        let export = Export {
            workspace_id: id.clone(),
            events,
        };
        let Ok(params) = to_raw_value(&export) else {
            return self.on_collected(process, call_id, &CallOutcome::Error(unwritable()));
        };
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
        self.cx.emit(CoreEffect::Send {
            process,
            head: EnvelopeHeader::new(Address::Orchestrator, to),
            message: Box::new(ToConnector::Call(Box::new(order)).into()),
        });
    }

    /// True if this is the result of a batch, in which case the next batch is sent.
    pub(crate) fn is_collected(&mut self, process: ProcessId, result: &CallResult) -> bool {
        let is_known = self
            .exporter_with(process)
            .is_some_and(|(_, _, batch)| batch == result.call_id);
        if is_known {
            self.on_collected(process, result.call_id, &result.outcome);
        }
        is_known
    }

    /// The connection and call of the batch in flight in this process.
    fn exporter_with(&self, process: ProcessId) -> Option<(WorkspaceId, ConnectionName, CallId)> {
        self.workspaces.iter().find_map(|(id, workspace)| {
            workspace.connectors.iter().find_map(|(name, connector)| {
                let batch = connector.collecting.batch.as_ref();
                let batch = batch.filter(|batch| batch.process == process)?;
                Some((id.clone(), name.clone(), batch.call_id))
            })
        })
    }

    fn on_collected(&mut self, process: ProcessId, call_id: CallId, outcome: &CallOutcome) {
        let Some((id, name, known)) = self.exporter_with(process) else {
            return;
        };
        let Some(connector) = self.connector_mut(&id, &name).filter(|_| known == call_id) else {
            return;
        };
        let batch = connector.collecting.batch.take();
        match outcome {
            CallOutcome::Ok(_) => connector.slot.crashes = 0,
            CallOutcome::Error(error) => {
                let events = batch.map_or(0, |batch| batch.events);
                connector.collecting.lose(events, &error.message);
            }
        }
        self.pump_collecting(&id, &name);
    }

    /// Handles the loss of a connection's process. Its batch may not have been delivered.
    pub(crate) fn on_collecting_gone(&mut self, process: ProcessId, how: &str) {
        let Some((id, name, _)) = self.exporter_with(process) else {
            return;
        };
        if let Some(connector) = self.connector_mut(&id, &name)
            && let Some(batch) = connector.collecting.batch.take()
        {
            connector.collecting.lose(batch.events, how);
        }
    }

    /// Reports the events lost since the last report.
    pub(crate) fn tell_uncollected(&mut self) {
        let mut told = Vec::new();
        for (id, workspace) in &mut self.workspaces {
            for (name, connector) in &mut workspace.connectors {
                let collecting = &mut connector.collecting;
                if collecting.lost > collecting.told {
                    let event = LogEvent::warn("trace events not exported");
                    let event = event
                        .with("workspaceId", id.as_str())
                        .with("connection", name.as_str())
                        .with("lost", collecting.lost - collecting.told)
                        .with("lostInAll", collecting.lost)
                        .with("reason", collecting.why.clone());
                    collecting.told = collecting.lost;
                    told.push(event);
                }
            }
        }
        for event in told {
            self.log(event);
        }
    }
}

fn unwritable() -> CallError {
    CallError::new(CallErrorCode::Internal, "they cannot be written as JSON")
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
