//! Reading for clients what the writer threads do not own. Everything here blocks.

use goondan_durable::disk::Disk;
use goondan_protocol::control::{
    AuditLog, AuditRecord, ControlError, ErrorCode, Trace, TurnsPage, UsageReport,
};
use goondan_protocol::limits::AUDIT_ANSWER_BYTES;
use goondan_store::index::InstanceIndex;
use goondan_store::root::Layout;
use goondan_store::{audit, instance};
use serde::Serialize;
use serde_json::Value;

use super::{bundles, usage};
use goondan_core::{Read, control_error};

/// Reads what the core asks for, as the answer of the request.
pub(super) fn read(
    disk: &dyn Disk,
    layout: &Layout,
    index: &InstanceIndex,
    read: Read,
) -> Result<Value, ControlError> {
    match read {
        Read::Audit { logs, records } => {
            let most = audit::Most {
                records,
                bytes: AUDIT_ANSWER_BYTES,
            };
            let tail =
                audit::tail(disk, layout, &logs, most).map_err(|error| control_error(&error))?;
            let records = tail.records.into_iter();
            let records = records.map(|(workspace_id, record)| AuditRecord {
                workspace_id,
                record,
            });
            answer(&AuditLog {
                records: records.collect(),
                earlier: tail.earlier,
                unreadable: tail.unreadable,
            })
        }
        Read::Usage {
            workspaces,
            by,
            since,
            budgets,
        } => {
            let report = usage::report(disk, layout, &workspaces, by, since)?;
            answer(&UsageReport { budgets, ..report })
        }
        Read::Trace { workspace_id, of } => {
            let mut known = index.list(&workspace_id).unwrap_or_default();
            known.sort_by_key(|metadata| std::cmp::Reverse(metadata.updated_at));
            let latest: Vec<_> = known.into_iter().map(|m| m.instance_key).collect();
            let instances = layout.instances(&workspace_id);
            let found = instance::traced(disk, &instances, &latest, of.as_deref())
                .map_err(|error| control_error(&error))?;
            let found = found.ok_or_else(|| no_trace(of.as_deref()))?;
            answer(&Trace {
                trace_id: found.trace_id,
                events: found.events,
                partial: found.is_partial,
            })
        }
        Read::WaitingChangesets(list) => {
            let instances = layout.instances(&list.workspace_id);
            let known = index.list(&list.workspace_id).unwrap_or_default();
            answer(&bundles::waiting(&instances, known, &list))
        }
        Read::Turns {
            instance,
            offset,
            busy,
        } => {
            let instances = layout.instances(&instance.workspace_id);
            let page = instance::observed(disk, &instances, &instance.instance_key, offset)
                .map_err(|error| control_error(&error))?;
            answer(&TurnsPage {
                events: page.events,
                unreadable: page.unreadable,
                busy,
                next: page.next,
            })
        }
    }
}

fn no_trace(of: Option<&str>) -> ControlError {
    let message = match of {
        Some(of) => format!("no trace, turn or event `{of}` is known"),
        None => "no turn has begun yet".to_owned(),
    };
    ControlError::new(ErrorCode::EventNotFound, message)
        .suggest("`gdn instance history --turns` shows the turns of a conversation")
}

fn answer(value: &impl Serialize) -> Result<Value, ControlError> {
    serde_json::to_value(value)
        .map_err(|error| ControlError::new(ErrorCode::Internal, error.to_string()))
}
