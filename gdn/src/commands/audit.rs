//! `gdn daemon audit`: conversations created, restarted and deleted, and decisions by people (`INST-6`, `SEC-5`).

use clap::Args;
use goondan_protocol::JsonObject;
use goondan_protocol::control::{AuditLog, AuditRecord};
use goondan_protocol::time::Timestamp;
use serde_json::{Value, json};

use crate::context::Context;
use crate::failure::Failure;
use crate::output::table::{Cell, Column, Table};
use crate::output::{style, text};
use crate::schemas;

/// Number of records shown by default.
const DEFAULT_AUDIT_RECORDS: usize = 50;

/// Show the audit log: conversations created, restarted and deleted, and decisions by people
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn daemon audit                              this project's latest records
  gdn daemon audit --lines 1000
  gdn daemon audit --all --json | jq '.records[] | select(.record.event == \"instance.deleted\")'")]
pub(crate) struct AuditArgs {
    /// Number of latest records
    #[arg(long, short = 'n', value_name = "N", default_value_t = DEFAULT_AUDIT_RECORDS)]
    lines: usize,
    /// Include every workspace
    #[arg(long)]
    all: bool,
}

/// Fields that have their own column.
const COLUMNS: [&str; 3] = ["at", "event", "instanceKey"];

pub(crate) async fn run(args: &AuditArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace_id) = context.open_scope(args.all).await?;
    let log = client.audit(workspace_id, args.lines).await?;
    let output = context.output;
    output.object(
        schemas::AUDIT,
        &json!({
            "records": log.records,
            "earlier": log.previous.is_some(),
            "unreadable": log.unreadable,
        }),
    )?;
    if log.records.is_empty() {
        output.data("No records.")?;
    } else {
        output.data(table(&log.records, args.all).render(output.canvas()))?;
    }
    remark(&log, context);
    Ok(())
}

fn table(records: &[AuditRecord], all: bool) -> Table {
    let workspace = all.then_some(Column::new("WORKSPACE").cut());
    let titles = [
        Column::new("AT"),
        Column::new("EVENT"),
        Column::new("CONVERSATION").cut(),
        Column::new("DETAILS").below(1, ""),
    ];
    let mut table = Table::new(workspace.into_iter().chain(titles));
    for AuditRecord {
        workspace_id,
        record,
    } in records
    {
        let workspace = workspace_id.as_ref().map_or("-", |id| id.as_str());
        let workspace = all.then(|| Cell::from(workspace));
        let cells = [
            Cell::from(time_of(record)),
            Cell::from(field(record, "event")),
            Cell::from(field(record, "instanceKey")),
            Cell::styled(details(record), style::FAINT),
        ];
        table.row(workspace.into_iter().chain(cells));
    }
    table
}

/// Time in the local time zone; an invalid time is returned unchanged.
fn time_of(record: &JsonObject) -> String {
    let written = field(record, "at");
    let at = written.parse::<Timestamp>();
    at.map_or(written, text::clock)
}

fn field(record: &JsonObject, name: &str) -> String {
    record.get(name).map_or_else(String::new, plain)
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Remaining fields, as `name=value`.
fn details(record: &JsonObject) -> String {
    let others = record
        .iter()
        .filter(|(name, _)| !COLUMNS.contains(&name.as_str()));
    let shown: Vec<String> = others
        .map(|(name, value)| format!("{name}={}", plain(value)))
        .collect();
    shown.join(" ")
}

/// Prints notes about the log to stderr.
fn remark(log: &AuditLog, context: &Context) {
    let output = context.output;
    if log.previous.is_some() {
        output.note("There are earlier records: show more with `--lines`.");
    }
    if log.unreadable > 0 {
        let lines = text::count(
            usize::try_from(log.unreadable).unwrap_or(usize::MAX),
            "line",
        );
        output.note(format!(
            "{} {lines} of the audit log cannot be read and {} skipped; list them: {}",
            output.err.paint(style::WARN, "warning:"),
            if log.unreadable == 1 { "is" } else { "are" },
            context.command("daemon verify")
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_audit_record_is_one_line_with_all_its_fields() {
        let record = |record: Value| AuditRecord {
            workspace_id: Some("w".parse().unwrap()),
            record: record.as_object().unwrap().clone(),
        };
        let records = [
            record(
                json!({"at": "soon", "event": "instance.created", "instanceKey": "main", "agentName": "clerk"}),
            ),
            record(
                json!({"at": "soon", "event": "instance.eventParked", "instanceKey": "a\nb", "eventId": "e", "n": 3}),
            ),
        ];
        let rendered = table(&records, false).render(style::Palette::new(false));
        assert_eq!(
            rendered,
            "AT    EVENT                 CONVERSATION  DETAILS\n\
             soon  instance.created      main          agentName=clerk\n\
             soon  instance.eventParked  a\\nb          eventId=e n=3\n"
        );
        let rendered = table(&records, true).render(style::Palette::new(false));
        assert!(rendered.starts_with("WORKSPACE  AT"), "{rendered}");
    }
}
