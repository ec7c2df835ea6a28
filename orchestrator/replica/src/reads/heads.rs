//! Positions of logs and heartbeats of nodes.

use goondan_protocol::ids::WorkspaceId;
use goondan_replication::names::{Epoch, Incarnation, NodeId};
use goondan_replication::wire::{Beat, LastHeartbeat, LogHead};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::page::{position, seq};

/// Each requested workspace with a log or heartbeats, and its recent heartbeats.
pub(super) const HEADS: &str = r#"
SELECT w.workspace, h.seq, h.oldest, b.node, b.life, b.epoch, b.position, b.owns, b.count
FROM (SELECT DISTINCT workspace COLLATE "C" AS workspace FROM unnest($1::text[]) AS w (workspace)) AS w
LEFT JOIN goondan.heads AS h ON h.workspace = w.workspace
LEFT JOIN goondan.beats AS b ON b.workspace = w.workspace AND b.heard > now() - make_interval(days => $2)
WHERE h.workspace IS NOT NULL OR b.workspace IS NOT NULL
ORDER BY w.workspace, b.node"#;

/// The workspaces with a log, after a given one.
pub(super) const LIST: &str =
    "SELECT workspace FROM goondan.heads WHERE workspace > $1 ORDER BY workspace LIMIT $2";

pub(super) const BEAT: &str = r#"
INSERT INTO goondan.beats (workspace, node, life, epoch, position, owns)
SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::boolean[])
ON CONFLICT (workspace, node) DO UPDATE SET
    life = excluded.life, epoch = excluded.epoch, position = excluded.position, owns = excluded.owns,
    count = beats.count + 1, heard = excluded.heard"#;

/// Heartbeats as one array per column.
#[derive(Default)]
pub(super) struct Columns<'b> {
    workspaces: Vec<&'b str>,
    nodes: Vec<&'b str>,
    lives: Vec<i64>,
    epochs: Vec<i64>,
    positions: Vec<i64>,
    owns: Vec<bool>,
}

impl<'b> Columns<'b> {
    pub(super) fn of(beats: impl Iterator<Item = &'b Beat>) -> Self {
        let mut columns = Self::default();
        for beat in beats {
            columns.workspaces.push(beat.workspace.as_str());
            columns.nodes.push(beat.node.as_str());
            // A life is any 64-bit number, but the server only has signed ones.
            columns.lives.push(beat.life.0.cast_signed());
            columns.epochs.push(beat.epoch.0.cast_signed());
            columns.positions.push(seq(beat.position));
            columns.owns.push(beat.owns);
        }
        columns
    }

    /// Parameters of [`BEAT`].
    pub(super) fn values(&self) -> [&(dyn ToSql + Sync); 6] {
        [
            &self.workspaces,
            &self.nodes,
            &self.lives,
            &self.epochs,
            &self.positions,
            &self.owns,
        ]
    }
}

/// Parses the rows of [`HEADS`]; `None` if a row is invalid.
pub(super) fn read(rows: &[Row]) -> Option<Vec<LogHead>> {
    let mut heads: Vec<LogHead> = Vec::new();
    for row in rows {
        let workspace = WorkspaceId::new(row.try_get::<_, String>(0).ok()?).ok()?;
        if heads.last().is_none_or(|last| last.workspace != workspace) {
            heads.push(LogHead {
                workspace: workspace.clone(),
                head: position(row.try_get(1).ok()?),
                oldest: position(row.try_get(2).ok()?),
                heard: Vec::new(),
            });
        }
        if let Some(heard) = heard(row, workspace)? {
            heads.last_mut()?.heard.push(heard);
        }
    }
    Some(heads)
}

/// Parses the rows of [`LIST`]; `None` if a row is invalid.
pub(super) fn listed(rows: &[Row]) -> Option<Vec<WorkspaceId>> {
    let names = rows.iter().map(|row| row.try_get::<_, String>(0).ok());
    names.map(|name| WorkspaceId::new(name?).ok()).collect()
}

/// Parses a row's heartbeat, if it has one; `None` if it is invalid.
#[expect(
    clippy::option_option,
    reason = "distinguishes a row without a node from an invalid one"
)]
fn heard(row: &Row, workspace: WorkspaceId) -> Option<Option<LastHeartbeat>> {
    let Some(node) = row.try_get::<_, Option<&str>>(3).ok()? else {
        return Some(None);
    };
    let beat = Beat {
        workspace,
        node: NodeId::new(node).ok()?,
        life: Incarnation(row.try_get::<_, i64>(4).ok()?.cast_unsigned()),
        epoch: Epoch(row.try_get::<_, i64>(5).ok()?.cast_unsigned()),
        position: position(row.try_get(6).ok()?),
        owns: row.try_get(7).ok()?,
    };
    let count = u64::try_from(row.try_get::<_, i64>(8).ok()?).ok()?;
    Some(Some(LastHeartbeat { beat, count }))
}
