//! Reads data that the writer threads do not own, for clients. All functions block.

use goondan_durable::disk::Disk;
use goondan_protocol::control::{
    AuditLog, AuditRecord, ControlError, ErrorCode, PageTrace, TracePage, TurnsPage, UsageReport,
};
use goondan_store::index::InstanceIndex;
use goondan_store::root::Layout;
use goondan_store::{audit, instance};
use serde::Serialize;
use serde_json::Value;

use super::{bundles, usage};
use goondan_core::{ReadRequest, control_error};

/// Reads the requested data and returns the response.
pub(super) fn read(
    disk: &dyn Disk,
    layout: &Layout,
    index: &InstanceIndex,
    read: ReadRequest,
) -> Result<Value, ControlError> {
    match read {
        ReadRequest::Audit { logs, page } => {
            let page = audit::page(disk, layout, &logs, page.before.as_ref(), page.limit)
                .map_err(|error| control_error(&error))?;
            let records = page.records.into_iter();
            let records = records.map(|(workspace_id, record)| AuditRecord {
                workspace_id,
                record,
            });
            answer(&AuditLog {
                records: records.collect(),
                previous: page.previous,
                unreadable: page.unreadable,
            })
        }
        ReadRequest::Usage {
            workspaces,
            page,
            budgets,
            accounts,
        } => {
            let report = usage::report(disk, layout, &workspaces, &page)?;
            answer(&UsageReport {
                budgets,
                accounts,
                ..report
            })
        }
        ReadRequest::Trace(page) => trace(disk, layout, index, &page),
        ReadRequest::WaitingChangesets(list) => {
            let instances = layout.instances(&list.workspace_id);
            let known = index.list(&list.workspace_id).unwrap_or_default();
            answer(&bundles::waiting(&instances, known, &list))
        }
        ReadRequest::Turns {
            instance,
            offset,
            before,
            busy,
        } => {
            let instances = layout.instances(&instance.workspace_id);
            let key = &instance.instance_key;
            let page = match before {
                Some(before) => instance::read_event_log_before(disk, &instances, key, before),
                None => instance::read_event_log(disk, &instances, key, offset),
            };
            let page = page.map_err(|error| control_error(&error))?;
            answer(&TurnsPage {
                events: page.events,
                unreadable: page.unreadable,
                busy,
                next: page.next,
                previous: page.previous,
            })
        }
    }
}

fn trace(
    disk: &dyn Disk,
    layout: &Layout,
    index: &InstanceIndex,
    page: &PageTrace,
) -> Result<Value, ControlError> {
    let mut known = index.list(&page.workspace_id).unwrap_or_default();
    known.sort_by_key(|metadata| std::cmp::Reverse(metadata.updated_at));
    let latest: Vec<_> = known.into_iter().map(|m| m.instance_key).collect();
    let instances = layout.instances(&page.workspace_id);
    let wanted = instance::WantedTrace {
        of: page.of.as_deref(),
        after: page.after.as_ref(),
        limit: page.limit,
    };
    let found = instance::read_trace(disk, &instances, &latest, wanted)
        .map_err(|error| control_error(&error))?;
    let found = found.ok_or_else(|| no_trace(page.of.as_deref()))?;
    answer(&TracePage {
        trace_id: found.trace_id,
        events: found.events,
        partial: found.is_partial,
        next: found.next,
    })
}

fn no_trace(of: Option<&str>) -> ControlError {
    let message = match of {
        Some(of) => format!("no trace, turn or event `{of}`"),
        None => "no turn has started yet".to_owned(),
    };
    ControlError::new(ErrorCode::EventNotFound, message)
        .suggest("list the turns of a conversation: `gdn conversation history --turns`")
}

fn answer(value: &impl Serialize) -> Result<Value, ControlError> {
    serde_json::to_value(value)
        .map_err(|error| ControlError::new(ErrorCode::Internal, error.to_string()))
}
